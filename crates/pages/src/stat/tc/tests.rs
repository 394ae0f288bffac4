//! The printed blocks of CeroWrt's Early_Test_Results (April 2012), byte for byte, and the
//! identities that they fulfil.

use altq_config::Language;
use altq_engine::{Engine, Packet};

use super::*;

const QDISC: &str = include_str!("qdisc.txt");
const LOADED: &str = include_str!("qdisc-loaded.txt");
const CLASS: &str = include_str!("class.txt");

fn htb(bytes: u64, packets: u64, overlimits: u64, requeues: u64, backlog_packets: u64) -> Qdisc {
    let counts = Counts { bytes, packets, dropped: 0, overlimits, requeues, backlog_bytes: 0, backlog_packets };
    let kind = Kind::Htb { r2q: 10, default: "12".into(), direct_packets: 0 };
    Qdisc { handle: "1:".into(), parent: None, name: "htb".into(), kind, counts }
}

/// A leaf: its limit; marks at the tail and at the head; bytes and packets sent; the backlog.
fn sfq(n: u32, limit: u32, marks: (u64, u64), sent: (u64, u64), backlog: (u64, u64)) -> Qdisc {
    let red = SfqRed {
        ewma: 4,
        min: 3000,
        max: 18_000,
        probability: 200_000_000,
        ecn: true,
        prob_mark: marks.0,
        prob_mark_head: marks.1,
        ..SfqRed::default()
    };
    let sfq = Sfq { limit, quantum: 1514, depth: 42, headdrop: true, divisor: 1024, perturb: 0, red: Some(red) };
    let counts = Counts {
        bytes: sent.0,
        packets: sent.1,
        overlimits: marks.0 + marks.1,
        backlog_bytes: backlog.0,
        backlog_packets: backlog.1,
        ..Counts::default()
    };
    let (handle, parent) = (format!("{n}0:"), Some(format!("1:{n}")));
    Qdisc { handle, parent, name: "sfq".into(), kind: Kind::Sfq(sfq), counts }
}

fn text(blocks: &[impl Display]) -> String {
    blocks.iter().map(ToString::to_string).collect()
}

#[test]
fn the_published_qdiscs() {
    let after = [
        htb(1_387_076_657, 918_754, 2_197_603, 598, 0),
        sfq(11, 200, (0, 10_244), (397_807_758, 263_694), (0, 0)),
        sfq(12, 300, (1, 15_657), (783_087_099, 518_868), (0, 0)),
        sfq(13, 150, (0, 4_597), (206_181_800, 136_192), (0, 0)),
    ];
    assert_eq!(text(&after), QDISC);
    let during = [
        htb(707_469_403, 468_141, 1_119_667, 278, 22),
        sfq(11, 200, (0, 6_337), (235_716_510, 156_182), (10_598, 7)),
        sfq(12, 300, (0, 10_292), (392_692_535, 259_730), (13_626, 9)),
        sfq(13, 150, (0, 2_168), (79_060_358, 52_229), (9_084, 6)),
    ];
    assert_eq!(text(&during), LOADED);
}

#[test]
fn the_published_classes() {
    let class = |n: u32, leaf: bool, prio, rates: (u64, u64), bursts: (u64, u64)| {
        let kind = HtbClass {
            prio,
            rate: rates.0 * 1000,
            ceil: rates.1 * 1000,
            burst: bursts.0,
            cburst: bursts.1,
            tokens: Some((5000, 5000)),
            ..HtbClass::default()
        };
        Class {
            id: format!("1:{n}"),
            parent: (n != 1).then(|| "1:1".into()),
            leaf: leaf.then(|| format!("{n}0:")),
            name: "htb".into(),
            kind: ClassKind::Htb(kind),
            counts: Counts::default(),
            rate: (0, 0),
        }
    };
    let with = |mut class: Class, sent: (u64, u64), rate, counted: (u64, u64), tokens| {
        (class.counts.bytes, class.counts.packets) = sent;
        class.rate = rate;
        if let ClassKind::Htb(htb) = &mut class.kind {
            (htb.lended, htb.borrowed) = counted;
            htb.tokens = Some(tokens);
        }
        class
    };
    let ef = class(11, true, Some(1), (32, 13_333), (1600, 1599));
    let root = class(1, false, None, (40_000, 40_000), (1600, 1600));
    let top = class(10, false, Some(0), (40_000, 40_000), (1600, 1600));
    let background = class(13, true, Some(3), (4_444, 39_936), (1599, 1597));
    let best = class(12, true, Some(2), (6_666, 39_936), (1599, 1597));
    let blocks = [
        with(ef, (397_810_468, 263_718), (264, 0), (1_313, 262_405), (5_937_500, 14_250)),
        with(root, (1_387_094_521, 918_853), (3000, 2), (686_264, 0), (4750, 4750)),
        top,
        with(background, (206_181_800, 136_192), (0, 0), (87_685, 48_507), (-32_342, 4735)),
        with(best, (783_102_253, 518_943), (2736, 1), (143_591, 375_352), (28_590, 4782)),
    ];
    assert_eq!(text(&blocks), CLASS);
}

#[test]
fn the_identities_hold_in_what_was_published() {
    for (published, blocks) in [(QDISC, 4), (LOADED, 4), (CLASS, 5)] {
        let read = read(published).unwrap();
        assert_eq!(read.len(), blocks);
        assert_eq!(disagreements(&read), Vec::<String>::new());
    }
    let classes = read(CLASS).unwrap();
    assert_eq!(classes[3].numbers["tokens"], -32_342);
    assert_eq!((classes[0].counts.bytes, classes[0].parent.as_deref()), (397_810_468, Some("1:1")));
    assert_eq!(read(LOADED).unwrap()[2].counts.backlog_bytes, 13_626);
}

/// If one figure is changed, the identity with that figure fails.
#[test]
fn a_wrong_figure_is_found() {
    for (published, right, wrong, what) in [
        (QDISC, "263694 pkt", "263695 pkt", "packets of the root"),
        (QDISC, "783087099", "783087098", "bytes of the root"),
        (QDISC, "prob_mark_head 4597", "prob_mark_head 4598", "overlimits of 130:"),
        (LOADED, "9084b 6p", "9084b 5p", "backlog of the root"),
        (CLASS, "lended: 1313", "lended: 1312", "packets of 1:11, and lended"),
        (CLASS, "lended: 686264", "lended: 686263", "lended and borrowed of 1:1"),
        (CLASS, "206181800 bytes 136192", "206181801 bytes 136192", "bytes of 1:1 and its children"),
    ] {
        assert!(published.contains(right));
        let found = disagreements(&read(&published.replace(right, wrong)).unwrap());
        assert!(found.iter().any(|line| line.starts_with(what)), "{what}: {found:?}");
    }
}

#[test]
fn what_is_not_tcs_is_refused_with_its_line() {
    for (text, line) in
        [("Sent 1 bytes 2 pkt", 1), ("qdisc htb 1: root\n Sent x bytes", 2), ("qdisc htb 1: root\nqdisc", 2)]
    {
        assert_eq!(read(text).unwrap_err().line, line, "{text}");
    }
    assert!(read("qdisc htb 1: root\n backlog 5x 1p").is_err());
}

/// An engine's own counters, with packets queued and dropped and a scheduler in a class: every
/// block can be read again, and the sums are right.
#[test]
fn an_engine_prints_blocks_that_add_up() {
    let policy = "link wan { rate 10Mbit/s scheduler cbq
        class a { share 50% borrow  scheduler drr
            class x { quantum 500 queue drop_head { limit 3packets } } class y { } }
        class b { share 10% queue codel { limit 20packets target 10ms } } class c { share 20% default } }";
    let link = altq_config::parse_str(policy, "test.altq", Language::Native).unwrap().links.remove(0);
    let mut engine = Engine::new(&link.spec).unwrap();
    for n in 0..400u32 {
        let now = u64::from(n) * 300_000;
        engine.enqueue(now, [2, 3, 4, 5, 0][n as usize % 5], Packet::new(n, 100 + n % 1300));
        if n % 2 == 0 {
            engine.dequeue(now);
        }
    }
    let stat = altq_cases::stat::LinkStat::of(&link, &engine, 400 * 300_000);
    let printed = print(&stat, false);
    let blocks = read(&printed).unwrap();
    assert_eq!(disagreements(&blocks), Vec::<String>::new(), "{printed}");
    let root = &blocks[0];
    assert_eq!((root.kind.as_str(), root.id.as_str()), ("cbq", "1:"));
    let all = engine.counters(0);
    assert_eq!((root.counts.packets, root.counts.bytes), (all.sent_packets, all.sent_bytes));
    assert_eq!((root.counts.dropped, root.counts.backlog_packets), (all.dropped_packets, all.queued_packets));
    assert!(all.dropped_packets > 0 && all.queued_packets > 0);
    // 1:2 is a, which holds drr; 1:3 is x with its queue; 1:5 is b.
    let has = |line: &str| assert!(printed.contains(line), "{line}\n{printed}");
    has("qdisc drr 20: parent 1:2 default 6 \n");
    has("qdisc pfifo_head_drop 30: parent 1:3 limit 3p \n");
    has("qdisc codel 50: parent 1:5 limit 20p target 10ms interval 100ms \n");
    has("class cbq 1:2 parent 1:1 leaf 20: rate 5000Kbit borrow priority 1 ");
    has("class drr 1:3 parent 1:2 leaf 30: quantum 500b \n");
    // With names, as tc -nm prints them.
    assert!(print(&stat, true).contains("class drr x#1:3 parent a#1:2 leaf 30: "));
}

/// HTB and RED of an engine, in tc's words; the identities of borrowing hold at every level.
#[test]
fn htb_of_an_engine() {
    let policy = "link wan { rate 40Mbit/s scheduler htb
        class top { rate 20Mbit/s ceil 40Mbit/s
            class x { rate 1Mbit/s ceil 40Mbit/s prio 1 burst 1600bytes queue red { limit 30packets min 3packets max \
            9packets } }
            class y { rate 5Mbit/s ceil 30Mbit/s prio 2 } }
        class z { rate 10Mbit/s ceil 40Mbit/s default } }";
    let link = altq_config::parse_str(policy, "test.altq", Language::Native).unwrap().links.remove(0);
    let mut engine = Engine::new(&link.spec).unwrap();
    let mut free = 0;
    for n in 0..20_000u32 {
        let now = u64::from(n) * 100_000;
        engine.enqueue(now, [2, 3, 4][n as usize % 3], Packet { ecn: 2, ..Packet::new(n, 1500) });
        while free <= now {
            let Some(sent) = engine.dequeue(now) else { break };
            free = now + u64::from(sent.packet.wire) * 200;
        }
    }
    let stat = altq_cases::stat::LinkStat::of(&link, &engine, 2_000_000_000);
    let printed = print(&stat, false);
    let blocks = read(&printed).unwrap();
    assert_eq!(disagreements(&blocks), Vec::<String>::new(), "{printed}");
    let has = |line: &str| assert!(printed.contains(line), "{line}\n{printed}");
    has("qdisc htb 1: root refcnt 2 r2q 10 default 5 direct_packets_stat 0\n");
    has("class htb 1:3 parent 1:2 leaf 30: prio 1 rate 1000Kbit ceil 40000Kbit burst 1600b cburst ");
    has("class htb 1:2 parent 1:1 rate 20000Kbit ceil 40000Kbit burst ");
    let x = blocks.iter().find(|block| block.class && block.id == "1:3").unwrap();
    assert!(x.numbers["borrowed"] > 0 && x.numbers["lended"] > 0, "{printed}");
    let red = blocks.iter().find(|block| block.kind == "red").unwrap();
    assert_eq!(red.counts.overlimits, (red.numbers["marked"] + red.numbers["early"]) as u64);
    assert_eq!(red.counts.dropped, (red.numbers["early"] + red.numbers["pdrop"]) as u64);
    assert!(red.counts.overlimits > 0, "{printed}");
}

/// Class 1:10 of the published blocks while it is idle: 1600 bytes at 40 Mbit/s are 320 us, which
/// are 5000 ticks of 64 ns.
#[test]
fn an_idle_class_of_htb() {
    let policy = "link wan { rate 40Mbit/s scheduler htb
        class top { rate 40Mbit/s ceil 40Mbit/s prio 0 burst 1600bytes cburst 1600bytes default } }";
    let link = altq_config::parse_str(policy, "test.altq", Language::Native).unwrap().links.remove(0);
    let stat = altq_cases::stat::LinkStat::of(&link, &Engine::new(&link.spec).unwrap(), 1_000_000_000);
    let published = CLASS.split("\n\n").find(|block| block.starts_with("class htb 1:10 ")).unwrap();
    let expected = published.replace("1:10 parent 1:1", "1:2 parent 1:1 leaf 20:") + "\n\n";
    assert_eq!(classes(&stat, false)[1].to_string(), expected);
}

/// An engine with an `sfq` that has the words of the leaf 120: of CeroWrt's results: it is printed
/// as tc prints it, some packets are marked at the head, and marks and drops add up to its
/// overlimits.
#[test]
fn sfq_of_an_engine() {
    let policy = "link wan { rate 10Mbit/s overhead 14bytes scheduler fifo
        class a { default  queue sfq { limit 300packets depth 42 headdrop divisor 1024 redflowlimit 100000bytes
            ewma 4 min 3000bytes max 18000bytes probability 0.2 ecn } } }";
    let link = altq_config::parse_str(policy, "test.altq", Language::Native).unwrap().links.remove(0);
    let mut engine = Engine::new(&link.spec).unwrap();
    let mut free = 0;
    for n in 0..20_000u32 {
        let now = u64::from(n) * 1_000_000;
        engine.enqueue(now, 1, Packet { ecn: 2, flow: n % 3, ..Packet::new(n, 1500) });
        while free <= now {
            let Some(sent) = engine.dequeue(now) else { break };
            free = now + u64::from(sent.packet.wire) * 800;
        }
    }
    let printed = print(&altq_cases::stat::LinkStat::of(&link, &engine, 20_000_000_000), false);
    let words = "qdisc sfq 20: parent 1:2 limit 300p quantum 1514b depth 42 headdrop divisor 1024 \n \
                 ewma 4 min 3000b max 18000b probability 0.2 ecn \n prob_mark ";
    assert!(printed.contains(words), "{printed}");
    let blocks = read(&printed).unwrap();
    assert_eq!(disagreements(&blocks), Vec::<String>::new(), "{printed}");
    let sfq = blocks.iter().find(|block| block.kind == "sfq").unwrap();
    assert!(sfq.numbers["prob_mark_head"] + sfq.numbers["forced_mark_head"] > 0, "{printed}");
}
