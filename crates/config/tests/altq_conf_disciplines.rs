//! altq.conf's disciplines other than CBQ: what is read, worked out by hand from
//! docs/reference/altq.md 3, 4, 7 and 10. Everything that is read is printed in the native language
//! and read again.

use altq_config::{Language, Link, Policy, parse_str, print};
use altq_engine::settings::{Limit, Value};
use altq_engine::shape::service_curve::ServiceCurve;
use altq_engine::spec::{QueueSpec, ROOT, Regulator};
use altq_engine::units::Rate;
use altq_engine::{Engine, Packet};

/// Reads an altq.conf, prints it in the native language, and reads that. Both are the same.
fn parse(text: &str) -> Policy {
    let policy = parse_str(text, "/etc/altq.conf", Language::Altq).unwrap_or_else(|failed| panic!("{failed}"));
    let printed = print(&policy).text;
    let again = parse_str(&printed, "t", Language::Native).unwrap_or_else(|failed| panic!("{failed}\n{printed}"));
    for (link, again) in policy.links.iter().zip(&again.links) {
        let (spec, native) = (&link.spec, &again.spec);
        assert_eq!((spec.rate, spec.regulator, &spec.scheduler), (native.rate, native.regulator, &native.scheduler));
        assert_eq!(format!("{:?}", spec.classes), format!("{:?}", native.classes), "{printed}");
        assert_eq!(spec.default, native.default, "{printed}");
        assert_eq!(spec.rules.rules.len(), native.rules.rules.len());
    }
    policy
}

fn link(text: &str) -> Link {
    let policy = parse(text);
    assert_eq!(codes(&policy), [""; 0]);
    policy.links[0].clone()
}

/// The kinds of warnings. That packets go to few of the classes of these tests is none that counts
/// here (`tests/reached.rs`).
fn codes(policy: &Policy) -> Vec<&'static str> {
    policy.warnings.iter().map(|warning| warning.code).filter(|code| *code != "never-reached").collect()
}

fn curve(link: &Link, class: &str, word: &str) -> Option<ServiceCurve> {
    link.spec.classes[link.class(class).unwrap() as usize].settings.curve(word)
}

fn queue(link: &Link, class: &str) -> QueueSpec {
    link.spec.classes[link.class(class).unwrap() as usize].queue.clone().unwrap()
}

fn line(rate: u64) -> Option<ServiceCurve> {
    Some(ServiceCurve::linear(Rate::bit_s(rate)))
}

const HFSC: &str = "interface em1 bandwidth 100M hfsc\n\
    class hfsc em1 bulk root pshare 60 default\n\
    class hfsc em1 video root [rt 30M 10 8M] [ls 0 0 20M] ulimit 40M\n\
    class hfsc em1 dept root [sc 8M 20 5M] qlimit 100\n\
    class hfsc em1 voice dept bandwidth 1M red\n\
    class hfsc em1 mail dept [ RT 500K 5 100K ] [Ls 0 0 1.5M] rio admission cntlload\n\
    class hfsc em1 late root [sc 0 20 1M]\n\
    filter em1 video 10.1.0.7 0 0 0 17\nfilter em1 voice 0 0 0 0 17 tos 0xb8 tosmask 0xfc dontwarn\n";

#[test]
fn curves_of_hfsc() {
    let link = link(HFSC);
    let names: Vec<&str> = link.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(names, ["root", "bulk", "video", "dept", "voice", "mail", "late"]);
    assert_eq!(link.spec.scheduler.name, "hfsc");
    assert_eq!(link.spec.regulator, Regulator::Altq);
    let parents: Vec<u32> = link.spec.classes.iter().map(|class| class.parent).collect();
    assert_eq!(parents, [ROOT, ROOT, ROOT, ROOT, 3, 3, ROOT]);
    assert_eq!(link.spec.default, Some(1));
    let of = |class, word| curve(&link, class, word);
    let two = |first, ms: u64, then| {
        let (first, then) = (Rate::bit_s(first), Rate::bit_s(then));
        Some(ServiceCurve { first, until: ms * 1_000_000, then })
    };
    // 60 % of the interface.
    assert_eq!((of("bulk", "realtime"), of("bulk", "linkshare")), (None, line(60_000_000)));
    assert_eq!(of("video", "realtime"), two(30_000_000, 10, 8_000_000));
    assert_eq!((of("video", "linkshare"), of("video", "upperlimit")), (line(20_000_000), line(40_000_000)));
    // `sc` and `bandwidth` are both curves. That of `late` begins with nothing for 20 ms.
    let dept = two(8_000_000, 20, 5_000_000);
    assert_eq!(of("late", "realtime"), two(0, 20, 1_000_000));
    assert_eq!((of("dept", "realtime"), of("dept", "linkshare"), of("dept", "upperlimit")), (dept, dept, None));
    assert_eq!((of("voice", "realtime"), of("voice", "linkshare")), (line(1_000_000), line(1_000_000)));
    // The first letter of a type decides, in either case; blanks may stand in the brackets.
    assert_eq!((of("mail", "realtime"), of("mail", "linkshare")), (two(500_000, 5, 100_000), line(1_500_000)));
    assert!(link.notes.iter().any(|note| note.contains("`mail`") && note.contains("reservations")));
    // 50 packets, or as `qlimit` says; RED with a tenth and three tenths, RIO with ALTQ's own.
    assert_eq!(queue(&link, "bulk"), QueueSpec::plain(Limit::Packets(50)));
    assert_eq!(queue(&link, "dept").limit, Limit::Packets(100));
    let red = queue(&link, "voice");
    assert_eq!((red.name, red.limit), ("red", Limit::Packets(50)));
    assert_eq!(red.settings.choice("variant"), Some("altq"));
    assert_eq!((red.settings.get("min"), red.settings.bytes("packetsize")), (None, Some(1500)));
    let rio = queue(&link, "mail");
    assert_eq!((rio.name, rio.settings.limit("low-max")), ("rio", Some(Limit::Packets(45))));
    let classes: Vec<u32> = link.spec.rules.rules.iter().map(|rule| rule.class).collect();
    assert_eq!(classes, [2, 4]);
}

/// The words of a curve replace its m2; what is replaced is a warning.
#[test]
fn later_words_replace_curves() {
    let policy = parse(
        "interface em0 bandwidth 10M hfsc\n\
         class hfsc em0 a root [rt 4M 10 1M] grate 2M pshare 10 default\n\
         class hfsc em0 b root bandwidth 1M [ls 0 0 3M]\n",
    );
    let link = &policy.links[0];
    let (first, then) = (Rate::mbit_s(4), Rate::mbit_s(2));
    assert_eq!(curve(link, "a", "realtime"), Some(ServiceCurve { first, until: 10_000_000, then }));
    assert_eq!(curve(link, "a", "linkshare"), line(1_000_000));
    assert_eq!((curve(link, "b", "realtime"), curve(link, "b", "linkshare")), (line(1_000_000), line(3_000_000)));
    assert_eq!(policy.warnings.iter().map(|warning| warning.code).collect::<Vec<_>>(), ["given-twice"; 2]);
}

/// Packets for a class with classes below it go to the default class, as in ALTQ.
#[test]
fn filters_for_inner_classes_of_hfsc() {
    let policy = parse(&format!("{HFSC}filter em1 dept 0 25 0 0 6\nfilter em1 root 0 119 0 0 6\n"));
    let classes: Vec<u32> = policy.links[0].spec.rules.rules.iter().map(|rule| rule.class).collect();
    assert_eq!(classes, [2, 4, 1, 1]);
    assert_eq!(codes(&policy), ["inner-class"; 2]);
}

/// Real-time curves may have 80 % of the interface, and no more.
#[test]
fn the_whole_of_what_altqd_admits() {
    link(
        "interface em0 bandwidth 10M hfsc\nclass hfsc em0 a root grate 3M pshare 40 default\n\
          class hfsc em0 b root grate 5M pshare 60\nclass hfsc em0 c b [rt 5M 10 2M]\n",
    );
}

#[test]
fn priorities_of_priq() {
    let link = link(
        "interface em0 bandwidth 10M tbrsize 6000 priq\nclass priq em0 high NULL priority 15 qlimit 20\n\
         class priq em0 mid NULL priority 7 ecn\nclass priq low NULL default\nfilter em0 high 0 0 0 0 1\n",
    );
    assert_eq!((link.spec.scheduler.name, link.spec.regulator), ("priq", Regulator::Depth(6000)));
    let priorities: Vec<Option<u64>> = link.spec.classes.iter().map(|class| class.settings.int("priority")).collect();
    // altqd's default is 0.
    assert_eq!(priorities, [None, Some(15), Some(7), Some(0)]);
    assert_eq!(link.spec.default, Some(3));
    assert_eq!(queue(&link, "high"), QueueSpec::plain(Limit::Packets(20)));
    let red = queue(&link, "mid");
    assert_eq!((red.name, red.limit, red.settings.flag("ecn")), ("red", Limit::Packets(50), true));
}

/// docs/reference/altq.md 8.3: JoBS, where -1 turns an option off.
#[test]
fn jobs() {
    let link = link(
        "interface em0 bandwidth 10M jobs qlimit 100 separate\n\
         class jobs em0 gold NULL priority 0 adc 10000 alc 0.01 arc 2M rdc -1 rlc -1\n\
         class jobs em0 silver NULL adc -1 priority 1 rdc 4 rlc 2\n\
         class jobs em0 rest NULL priority 2 rdc 1 rlc 1 default\nfilter em0 gold 0 0 0 0 17\n\
         filter em0 silver 0 0 0 0 6\n",
    );
    let own = &link.spec.scheduler;
    assert_eq!((own.name, own.settings.int("limit"), own.settings.flag("separate")), ("jobs", Some(100), true));
    let words = |class: &str| {
        let class = link.class(class).unwrap() as usize;
        link.spec.classes[class].settings.iter().collect::<Vec<_>>()
    };
    let (bound, loss, rate) = (Value::Time(10_000_000), Value::Fraction(10_000_000), Value::Rate(Rate::mbit_s(2)));
    assert_eq!(words("gold"), [("priority", Value::Int(0)), ("adc", bound), ("alc", loss), ("arc", rate)]);
    assert_eq!(words("silver"), [("priority", Value::Int(1)), ("rdc", Value::Int(4)), ("rlc", Value::Int(2))]);
    assert_eq!(link.spec.default, link.class("rest"));
    Engine::new(&link.spec).unwrap();
}

fn own_queue(options: &str) -> QueueSpec {
    let link = link(&format!("interface em0 bandwidth 10M {options}\n"));
    assert_eq!((link.spec.scheduler.name, link.spec.classes.len(), link.spec.default), ("fifo", 1, Some(ROOT)));
    link.spec.classes[0].queue.clone().unwrap()
}

fn value(queue: &QueueSpec, word: &str) -> Option<Value> {
    queue.settings.get(word)
}

#[test]
fn queues_of_interfaces() {
    let packets = |n| Some(Value::Limit(Limit::Packets(n)));
    assert_eq!(own_queue("fifoq"), QueueSpec::plain(Limit::Packets(50)));
    assert_eq!(own_queue("qlimit 7 fifoq").limit, Limit::Packets(7));
    // Thresholds do not depend on the limit, and the average decays while the interface is idle.
    let red = own_queue("red qlimit 100 thmax 30 invpmax 20 weight 256 ecn");
    assert_eq!(
        (red.name, red.limit, red.settings.choice("variant")),
        ("red", Limit::Packets(100), Some("altq-interface"))
    );
    assert_eq!(
        (value(&red, "min"), value(&red, "max"), value(&red, "weight")),
        (packets(5), packets(30), Some(Value::Int(256)))
    );
    assert_eq!((red.settings.fraction("probability"), red.settings.flag("ecn")), (Some(50_000_000), true));
    assert!(own_queue("red flowvalve").settings.flag("flowvalve") && !red.settings.flag("flowvalve"));
    let red = own_queue("red thmin 0");
    assert_eq!((red.limit, value(&red, "min"), value(&red, "max")), (Limit::Packets(60), packets(5), packets(15)));
    assert_eq!(red.settings.fraction("probability"), None);
    let rio = own_queue("rio med_thmin 10 hi_invpmax 5");
    assert_eq!((rio.name, rio.settings.choice("variant")), ("rio", Some("altq-interface")));
    assert_eq!(
        (value(&rio, "medium-min"), value(&rio, "medium-max"), value(&rio, "low-min")),
        (packets(10), packets(30), None)
    );
    assert_eq!(rio.settings.fraction("high-probability"), Some(200_000_000));
    let blue = own_queue("blue maxpmark 1000 holdtime 50000 ecn");
    assert_eq!((blue.name, blue.limit, blue.settings.choice("variant")), ("blue", Limit::Packets(60), Some("altq")));
    assert_eq!((value(&blue, "maxpmark"), blue.settings.flag("ecn")), (Some(Value::Int(1000)), true));
    assert_eq!(blue.settings.time("holdtime"), Some(50_000_000));
    // altqd's numbers are those of the queue.
    let words: Vec<_> = own_queue("blue maxpmark 4000 holdtime 1000").settings.iter().map(|(word, _)| word).collect();
    assert_eq!(words, ["variant"]);
}

/// docs/reference/altq.md 8.1: 256 queues and 64 KB for all of them, which `qsize 0` asks for too.
#[test]
fn hashed_queues_of_an_interface() {
    let plain = own_queue("wfq");
    assert_eq!((plain.name, plain.limit, plain.settings.iter().count()), ("hashed_wfq", Limit::Bytes(65_536), 0));
    assert_eq!(own_queue("qsize 0 wfq").limit, Limit::Bytes(65_536));
    let wfq = own_queue("wfq nqueues 0x40 qsize 32K hash full");
    assert_eq!(
        (wfq.limit, value(&wfq, "queues"), value(&wfq, "hash")),
        (Limit::Bytes(32_768), Some(Value::Int(64)), Some(Value::Choice("flow")))
    );
    assert_eq!(value(&own_queue("wfq hash srcport"), "hash"), Some(Value::Choice("sport")));
    assert_eq!(value(&own_queue("wfq hash dstaddr"), "hash"), Some(Value::Choice("dst")));
}

/// An edge router of the kind that KAME's samples have: conditioners for what comes in on one
/// interface, classes with RIO for what goes out on another one.
const EDGE: &str = "interface pvc1\n\
    conditioner pvc1 ef <tbmeter 6M 64K <mark 0xb8><drop>>\n  filter pvc1 ef 0 0 192.0.2.1 0 0\n\
    conditioner pvc1 af1 \\\n  <trtcm 3M 32K 10M 64K <mark 0x28><mark 0x30><mark 0x38> colorblind>\n\
    filter pvc1 af1 0 0 192.0.2.2 0 0\n\
    conditioner pvc1 af4 <tswtcm 3M 10M 500 <mark 0x88><mark 0x90><mark 0x98>>\n  filter pvc1 af4 0 0 192.0.2.3 0 0\n\
    interface pvc0 bandwidth 45M hfsc\nclass hfsc pvc0 other root pshare 10 default\n\
    class hfsc pvc0 ef root grate 6M\n  filter pvc0 ef 0 0 0 0 0 tos 0xb8 tosmask 0xfc\n\
    rio 40 50 10 20 30 10 5 15 10\n\
    class hfsc pvc0 af1 root grate 3M pshare 10 rio\n  filter pvc0 af1 0 0 0 0 0 tos 0x20 tosmask 0xe4\n\
    class hfsc pvc0 af4 root grate 3M pshare 10 rio cleardscp\n  filter pvc0 af4 0 0 0 0 0 tos 0x80 tosmask 0xe4\n";

/// How many packets of 1000 bytes, one every `pace` nanoseconds for ten seconds, leave with each
/// DSCP from a class.
fn conditioned(link: &Link, class: &str, pace: u64) -> Vec<(u8, u64)> {
    let mut engine = Engine::new(&link.spec).unwrap();
    let class = link.class(class).unwrap();
    let mut sent = vec![0_u64; 64];
    for now in (0..10_000_000_000).step_by(pace as usize) {
        engine.enqueue(now, class, Packet::new(0, 1000));
        while let Some(out) = engine.dequeue(now) {
            sent[usize::from(out.packet.dscp)] += 1;
        }
    }
    (0..64).filter(|dscp| sent[*dscp as usize] > 0).map(|dscp| (dscp, sent[usize::from(dscp)])).collect()
}

#[test]
fn conditioners_and_the_edge_behind_them() {
    let policy = parse(EDGE);
    assert_eq!(codes(&policy), [""; 0]);
    let [edge, out] = &policy.links[..] else { panic!("{}", policy.links.len()) };
    let input = Some(altq_config::Device::Interface { name: "pvc1".into(), ingress: true });
    assert_eq!((edge.device.clone(), edge.spec.default, edge.spec.regulator), (input, Some(ROOT), Regulator::None));
    assert!(edge.marks_dscp() && out.marks_dscp() && edge.spec.rules.rules.len() == 3);
    // 6 Mbit/s and a burst of 64 KB as EF, of 16 Mbit/s.
    assert_eq!(conditioned(edge, "ef", 500_000), [(46, (7_500_000 + 65_536) / 1000)]);
    // AF11 up to 3 Mbit/s, AF12 up to 10, AF13 beyond, of 16 Mbit/s, and the bursts.
    let [(10, green), (12, yellow), (14, red)] = conditioned(edge, "af1", 500_000)[..] else { panic!() };
    assert!(green.abs_diff(3_782) <= 1 && (green + yellow).abs_diff(12_565) <= 1, "{green} {yellow}");
    assert_eq!(green + yellow + red, 20_000);
    // AF41 to AF43 by chance. While the average rises, for a second or two, more are AF41.
    let [(34, green), (36, yellow), (38, red)] = conditioned(edge, "af4", 500_000)[..] else { panic!() };
    assert!(green.abs_diff(3750) < 900 && yellow.abs_diff(8750) < 900 && red.abs_diff(7500) < 900, "{green} {yellow}");
    // What no filter names passes.
    assert_eq!(conditioned(edge, "pvc1", 500_000), [(0, 20_000)]);
    // The other side: `cleardscp` of rio takes the mark away, as it leaves.
    let rio = queue(out, "af4");
    assert_eq!((rio.name, rio.settings.flag("cleardscp")), ("rio", true));
    assert!(!queue(out, "af1").settings.flag("cleardscp"));
    let mut engine = Engine::new(&out.spec).unwrap();
    for (class, dscp, leaves) in [("af1", 10, 10), ("af4", 34, 0)] {
        engine.enqueue(0, out.class(class).unwrap(), Packet { dscp, ..Packet::new(0, 1000) });
        let at = engine.next_wakeup().unwrap();
        assert_eq!(engine.dequeue(at).unwrap().packet.dscp, leaves);
    }
}

/// Words of cbq and of filters that hardly any file has (docs/reference/altq.md 10): the two kinds
/// of rounds, the largest packet, the SPI that old files call generalised port identifier, the
/// traffic class of IPv6, and the class for reservations by its other word.
#[test]
fn words_that_hardly_any_file_has() {
    let file = |discipline: &str| {
        parse(&format!(
            "interface em1 bandwidth 45M {discipline}\nclass cbq em1 root NULL pbandwidth 100\n\
             class cbq em1 ctl root pbandwidth 4 control\n\
             class cbq em1 def root borrow pbandwidth 90 default maxpacketsize 1000 admission guaranteed\n\
             filter6 em1 ctl ::/0 0 ::/0 0 0 tclass 0x20 tclassmask 0xe0\n\
             filter em1 ctl 0 0 0 0 50 gpi 0x1234\n"
        ))
    };
    let printed = print(&file("cbq-wrr")).text;
    for words in [
        "class def { rate 40500kbit/s  borrow  maxpacketsize 1000  default",
        "  reservations }",
        "match family ipv4 proto esp spi 4660 -> ctl",
        "match family ipv6 tos 0x20/0xe0 -> ctl",
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    assert_eq!(printed, print(&file("cbq")).text, "weighted rounds are what cbq has");
    assert!(print(&file("cbq-prr")).text.contains("rounds prr"));
}

/// Actions without a meter, another name, meters inside meters, and `cleardscp` of plain queues.
#[test]
fn other_conditioners() {
    let policy = parse(
        "interface em0\nconditioner em0 a <mark 0x20>\nconditioner em0 b < conditioner a >\n\
         conditioner em0 c <drop>\nconditioner em0 d <pass>\n\
         conditioner em0 e <tbmeter 8M 16K <pass><trtcm 1M 16K 2M 16K <pass><mark 0x30><mark 0x38> coloraware>>\n\
         filter em0 a 0 0 192.0.2.1 0 0\nfilter em0 b 0 0 192.0.2.2 0 0\nfilter em0 c 0 0 192.0.2.3 0 0\n\
         filter em0 d 0 0 192.0.2.4 0 0\nfilter em0 e 0 0 192.0.2.5 0 0\n\
         interface em1 priq\nclass priq em1 x NULL cleardscp default\n",
    );
    assert_eq!(codes(&policy), ["colours"]);
    let link = &policy.links[0];
    assert_eq!(link.spec.classes.len(), 5);
    let rules: Vec<u32> = link.spec.rules.rules.iter().map(|rule| rule.class).collect();
    let a = link.class("a").unwrap();
    assert_eq!(rules[..2], [a, a], "b is another name of a");
    assert_eq!(conditioned(link, "a", 1_000_000), [(8, 10_000)]);
    assert_eq!(conditioned(link, "c", 1_000_000), []);
    assert_eq!(conditioned(link, "d", 1_000_000), [(0, 10_000)]);
    // Of 16 Mbit/s 8 pass, 1 more, then 1 as AF12, and 6 as AF13.
    let sent = conditioned(link, "e", 500_000);
    let of = |dscp: u8| sent.iter().find(|(found, _)| *found == dscp).map_or(0, |(_, n)| *n);
    assert!(of(0).abs_diff(11_250) < 50 && of(12).abs_diff(1250) < 50 && of(14).abs_diff(7500) < 50, "{sent:?}");
    let mut engine = Engine::new(&policy.links[1].spec).unwrap();
    engine.enqueue(0, 1, Packet { dscp: 46, ..Packet::new(0, 1000) });
    assert_eq!(engine.dequeue(0).unwrap().packet.dscp, 0);
    // That of a root class without classes below it.
    let sole = "interface em2 bandwidth 10M cbq no-control\n\
        class cbq em2 root NULL pbandwidth 100 default cleardscp\n";
    let mut engine = Engine::new(&parse(sole).links[0].spec).unwrap();
    engine.enqueue(0, 0, Packet { dscp: 46, ..Packet::new(0, 1000) });
    assert_eq!(engine.dequeue(0).unwrap().packet.dscp, 0);
}

/// The lines `red` and `rio` change the numbers of queues in the lines behind them.
#[test]
fn lines_that_set_defaults() {
    let policy = parse(
        "interface em0 red\nred 4 12 50\nrio 30 40 10 20 30 10 5 15 2\ninterface em1 red\ninterface em2 rio\n\
         interface em3 priq\nclass priq em3 a NULL red default\nclass priq em3 b NULL priority 1 red qlimit 3\n\
         class priq em3 c NULL priority 2 rio\n",
    );
    let queue = |link: usize, class: usize| policy.links[link].spec.classes[class].queue.clone().unwrap();
    let packets = |n| Some(Limit::Packets(n));
    let red = |queue: QueueSpec| {
        let words = &queue.settings;
        (words.limit("min"), words.limit("max"), words.fraction("probability"))
    };
    assert_eq!(red(queue(0, 0)), (packets(5), packets(15), None));
    assert_eq!(red(queue(1, 0)), (packets(4), packets(12), Some(20_000_000)));
    // The thresholds of a class follow from its limit, except where that makes them 0.
    assert_eq!(red(queue(3, 1)), (None, None, Some(20_000_000)));
    assert_eq!(red(queue(3, 2)), (packets(4), packets(12), Some(20_000_000)));
    for rio in [queue(2, 0), queue(3, 3)] {
        assert_eq!((rio.settings.limit("low-min"), rio.settings.limit("low-max")), (packets(30), packets(40)));
        assert_eq!(rio.settings.fraction("high-probability"), Some(500_000_000));
    }
}

/// altqd took these limits. They hold back what is shared, not what goes by real-time curve, and no
/// class gets more than the interface has.
#[test]
fn upper_limits_that_altqd_took() {
    for (words, code, limit) in [
        ("[RT 1M 10 500K] ulimit 2M", "no-effect", None),
        ("pshare 30 ulimit 20M", "no-effect", None),
        ("bandwidth 3M ulimit 2M", "limit-below-realtime", line(3_000_000)),
    ] {
        let text = format!(
            "interface em0 bandwidth 10M hfsc\nclass hfsc em0 a root pshare 20 default\nclass hfsc em0 b root {words}\n"
        );
        let policy = parse(&text);
        assert_eq!((codes(&policy), curve(&policy.links[0], "b", "upperlimit")), (vec![code], limit), "{words}");
    }
}

/// Both classes of the example always have packets. Link sharing is 60 to 20, so of 100 Mbit/s
/// `bulk` has 75 and `video` 25; alone `video` has its upper limit, 40.
#[test]
fn the_engine_serves_what_was_read() {
    let link = link(&HFSC.lines().take(3).map(|line| format!("{line}\n")).collect::<String>());
    for (both, expected) in [(true, 25.0), (false, 40.0)] {
        let mut spec = link.spec.clone();
        spec.regulator = Regulator::Auto;
        let mut engine = Engine::new(&spec).unwrap();
        let (mut now, mut sent, mut handle) = (0, 0_u64, 0);
        while now < 2_000_000_000 {
            for class in if both { 1..=2 } else { 2..=2 } {
                while engine.own_counters(class).queued_packets < 10 {
                    handle += 1;
                    engine.enqueue(now, class, Packet::new(handle, 1500));
                }
            }
            match engine.dequeue(now) {
                Some(out) => sent += if out.class == 2 { 1500 } else { 0 },
                None => now = engine.next_wakeup().map_or(now + 1_000_000, |at| at.max(now + 1)),
            }
        }
        let mbit = sent as f64 * 8.0 / 2e6;
        assert!((mbit - expected).abs() < 0.2, "{mbit}, not {expected}");
    }
}
