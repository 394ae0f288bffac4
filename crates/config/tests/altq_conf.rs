//! altq.conf and cbq.conf: what is read, worked out by hand from docs/reference/altq.md 2, 10
//! and 12.

use std::path::Path;

use altq_config::{Device, Language, Link, Policy, load, parse_str};
use altq_engine::classify::{Field, Order, Values};
use altq_engine::settings::Limit;
use altq_engine::spec::{ROOT, Regulator};
use altq_engine::units::Rate;
use altq_engine::{Engine, Packet};

fn parse(text: &str) -> Policy {
    parse_str(text, "/etc/altq.conf", Language::Altq).unwrap_or_else(|failed| panic!("{failed}"))
}

fn names(link: &Link) -> Vec<&str> {
    link.classes.iter().map(|class| class.name.as_str()).collect()
}

fn rates(link: &Link) -> Vec<u64> {
    (0..link.classes.len() as u32).map(|class| link.guarantee(class).unwrap().as_bit_s()).collect()
}

/// Two published files: that of ALTQ/CBQ 0.3.2 (1997) for three interfaces, and the one that the
/// package suggests for RSVP.
#[test]
fn the_printed_files_are_read_as_they_are() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    // The interface, its bandwidth, def_class without the control class's 2 % of the interface,
    // tcp_class, ctl_class.
    for (file, interface, rate, def, tcp) in [
        ("1997-atm.cbq.conf", "en0", 134_000_000_u64, 1_340_000 * 96, 1_340_000 * 5),
        ("1997-10baset.cbq.conf", "fxp0", 10_000_000, 100_000 * 96, 100_000 * 10),
        ("1997-100baset.cbq.conf", "fxp0", 100_000_000, 1_000_000 * 96, 1_000_000 * 10),
    ] {
        let policy = load(&examples.join(file), None).unwrap_or_else(|failed| panic!("{failed}"));
        let link = &policy.links[0];
        assert_eq!(policy.warnings.len(), 0, "{:?}", policy.warnings);
        assert_eq!(link.name, interface);
        assert_eq!(link.device, Some(Device::Interface { name: interface.into(), ingress: false }));
        assert_eq!(names(link), ["root_class", "def_class", "ctl_class", "tcp_class"]);
        assert_eq!(rates(link), [rate, def, rate / 50, tcp]);
        let parents: Vec<u32> = link.spec.classes.iter().map(|class| class.parent).collect();
        assert_eq!(parents, [ROOT, ROOT, ROOT, 1]);
        let settings = |class: usize| &link.spec.classes[class].settings;
        let priorities: Vec<Option<u64>> = (1..4).map(|class| settings(class).int("priority")).collect();
        assert_eq!(priorities, [Some(2), Some(6), Some(3)]);
        let borrows: Vec<bool> = (1..4).map(|class| settings(class).flag("borrow")).collect();
        assert_eq!(borrows, [true, true, false]);
        assert_eq!(link.spec.default, Some(1));
        assert!(link.classes[2].made && !link.classes[1].made);
        assert_eq!(link.spec.regulator, Regulator::None);
        assert_eq!(link.spec.scheduler.settings.choice("estimator"), Some("classic"));
        assert!(link.spec.classes.iter().all(|class| class.queue.as_ref().unwrap().limit == Limit::Packets(30)));
        let rules = &link.spec.rules;
        assert_eq!((rules.order, rules.rules.len()), (Order::Altq, 3));
        // The filter sends protocol 6 to tcp_class, whatever the addresses and ports.
        let filter = &rules.rules[2];
        assert_eq!(filter.class, 3);
        let terms: Vec<(Field, &Values)> = filter.terms.iter().map(|term| (term.field, &term.values)).collect();
        assert_eq!(
            terms,
            [(Field::Family, &Values::Ranges(vec![(4, 4)])), (Field::Proto, &Values::Ranges(vec![(6, 6)]))]
        );
    }

    let policy = load(&examples.join("rsvp.cbq.conf"), None).unwrap_or_else(|failed| panic!("{failed}"));
    let link = &policy.links[0];
    assert_eq!(names(link), ["root_class", "unres_class", "ctl_class", "res_class"]);
    assert_eq!(rates(link), [2_000_000, 58 * 20_000, 2 * 20_000, 40 * 20_000]);
    // The MTU of an ATM interface: RFC 2225, 7.
    assert_eq!(link.spec.mtu, 9180);
    assert!(!link.spec.classes[3].settings.flag("borrow"));
    assert!(link.notes.iter().any(|note| note.contains("res_class") && note.contains("reservations")));
}

/// Shares from 5 to 95 per cent, as in the published table (docs/reference/altq.md 17). 95 is the
/// most that fits beside the control class.
#[test]
fn the_published_shares_are_admitted() {
    let file = |percent: u32| {
        format!(
            "interface fxp0 bandwidth 100000000 cbq\nclass cbq fxp0 root_class NULL priority 0 admission none \
             pbandwidth 100\n\
             class cbq fxp0 def_class root_class borrow root_class priority 2 pbandwidth 98 default\n\
             class cbq fxp0 tcp_class def_class priority 3 pbandwidth {percent}\nfilter fxp0 tcp_class 0 0 0 0 6\n"
        )
    };
    for percent in (5..=95).step_by(5) {
        parse(&file(percent));
    }
    assert!(parse_str(&file(97), "cbq.conf", Language::Altq).is_err());
}

#[test]
fn words_may_be_cut_short_joined_and_left_out() {
    // Abbreviated commands, a comment, a joined line, and commands that name no interface.
    let policy = parse(
        "int em0 cbq bandwidth 1.5M efficient\ncl cbq em0 root NULL pbandwidth 100 # the root\n\
         cl cbq def root borrow \\\n pbandwidth 50 default\nclas cbq voice root exactbandwidth 64K priority 7\n\
         fi voice name v ruleno 0x10 10.0.0.1 0 192.0.2.0 netmask 255.255.255.0 1000 udp tos 0xb8 tosmask 0xfc\n\
         filter6 voice 2001:db8::/32 domain 0 0 17 flowlabel 5\n",
    );
    let link = &policy.links[0];
    assert_eq!(link.spec.rate, Rate::bit_s(1_500_000));
    assert!(link.spec.scheduler.settings.flag("efficient"));
    assert_eq!(names(link), ["root", "def", "ctl_class", "voice"]);
    // One per cent is 15000 bit/s: 50 per cent less 2, 2 per cent, and 64000 bit/s.
    assert_eq!(rates(link), [1_500_000, 720_000, 30_000, 64_000]);
    // The first filters are those of the control class.
    let [v4, v6] = &link.spec.rules.rules[2..] else { panic!("{:?}", link.spec.rules.rules) };
    assert_eq!((v4.class, v4.number, v6.number), (3, 16, 0));
    let fields: Vec<Field> = v4.terms.iter().map(|term| term.field).collect();
    assert_eq!(fields, [Field::Dst, Field::Src, Field::SrcPort, Field::Proto, Field::Tos]);
    assert_eq!(v4.terms[2].values, Values::Ranges(vec![(1000, 1000)]));
    assert_eq!(v4.terms[4].values, Values::Masked(vec![(0xb8, 0xfc)]));
    let fields: Vec<Field> = v6.terms.iter().map(|term| term.field).collect();
    assert_eq!(fields, [Field::Dst, Field::DstPort, Field::Proto, Field::FlowLabel]);
    assert_eq!(v6.terms[1].values, Values::Ranges(vec![(53, 53)]));
}

#[test]
fn queues_and_bandwidths_by_the_book() {
    let policy = parse(
        "interface em0 bandwidth 100M cbq-prr\nclass cbq em0 root NULL pbandwidth 100\n\
         class cbq em0 def root borrow pbandwidth 20 default\nclass cbq em0 a root pbandwidth 10 maxdelay 60\n\
         class cbq em0 b root pbandwidth 10 maxdelay 1\nclass cbq em0 none root\nclass cbq em0 lender root borrow\n",
    );
    let link = &policy.links[0];
    assert_eq!(link.spec.scheduler.settings.choice("rounds"), Some("prr"));
    let limit = |name: &str| {
        let class = link.class(name).unwrap() as usize;
        link.spec.classes[class].queue.as_ref().unwrap().limit
    };
    // docs/reference/altq.md 2.2: 60 ms at 10 Mbit/s are 50 packets of 1500 bytes; the limit is at
    // least 4; a class with neither bandwidth nor borrow has none.
    assert_eq!(limit("a"), Limit::Packets(50));
    assert_eq!(limit("b"), Limit::Packets(4));
    assert_eq!(limit("none"), Limit::Packets(0));
    assert_eq!(limit("lender"), Limit::Packets(30));
    assert_eq!(policy.warnings.iter().map(|w| w.code).collect::<Vec<_>>(), ["never-sends"]);
}

/// docs/reference/altq.md 2.2, 2.10, 7.1: 60 packets with red or rio; thresholds of a tenth and
/// three tenths, or rio's own; ecn alone means red.
#[test]
fn active_queues_of_classes() {
    let policy = parse(
        "interface em0 bandwidth 100M cbq\nclass cbq em0 root NULL pbandwidth 100\n\
         class cbq em0 def root borrow pbandwidth 20 default\nclass cbq em0 a root pbandwidth 10 red packetsize 500\n\
         class cbq em0 b root pbandwidth 10 ecn\nclass cbq em0 c root pbandwidth 10 rio\n\
         class cbq em0 d root pbandwidth 10 rio maxdelay 60\n\
         class cbq em0 e root pbandwidth 10 red maxdelay 1\nclass cbq em0 f root pbandwidth 10 red ecn maxdelay 60\n\
         class cbq em0 g root red\n",
    );
    let link = &policy.links[0];
    let queue = |name: &str| {
        let queue = link.spec.classes[link.class(name).unwrap() as usize].queue.clone().unwrap();
        assert_eq!(queue.settings.choice("variant"), Some("altq"));
        let words: Vec<_> = queue.settings.iter().map(|(word, _)| word).filter(|word| *word != "variant").collect();
        let Limit::Packets(limit) = queue.limit else { panic!("{queue:?}") };
        (queue.name, limit, words.join(" "), queue.settings.bytes("packetsize"))
    };
    assert_eq!(queue("a"), ("red", 60, "packetsize".into(), Some(500)));
    assert_eq!(queue("b"), ("red", 60, "packetsize ecn".into(), Some(1500)));
    assert_eq!(queue("c"), ("rio", 60, "packetsize".into(), Some(1500)));
    let rio = "packetsize low-min low-max medium-min medium-max high-min high-max";
    assert_eq!(queue("d"), ("rio", 50, rio.into(), Some(1500)));
    assert_eq!(queue("e"), ("red", 4, "packetsize".into(), Some(1500)));
    assert_eq!(queue("f"), ("red", 50, "packetsize ecn".into(), Some(1500)));
    assert_eq!(queue("g"), ("red", 0, "packetsize".into(), Some(1500)));
    // Printed in the native language and read again, it is the same.
    let again = altq_config::parse_str(&altq_config::print(&policy).text, "t", Language::Native)
        .unwrap_or_else(|e| panic!("{e}"));
    let queues =
        |link: &altq_config::Link| link.spec.classes.iter().map(|class| class.queue.clone()).collect::<Vec<_>>();
    assert_eq!(queues(link), queues(&again.links[0]));
}

/// A file of NetBSD's own test, tests/net/altq/t_cbq.sh: no token bucket, no control class, a root
/// class that is the default class, and a class of 0 per cent, which drops what it gets.
#[test]
fn what_only_netbsd_has() {
    let policy = parse(
        "interface shmif0 cbq no-tbr no-control\nclass cbq shmif0 root_class NULL pbandwidth 100 default\n\
         class cbq shmif0 normal_class root_class pbandwidth 50\n filter shmif0 normal_class 10.0.0.2 0 0 0 0\n\
         class cbq shmif0 drop_class root_class pbandwidth 0\n filter shmif0 drop_class 10.0.0.22 0 0 0 0\n",
    );
    let link = &policy.links[0];
    assert_eq!(names(link), ["root_class", "normal_class", "drop_class"]);
    assert_eq!((link.spec.default, link.spec.regulator, link.spec.rules.rules.len()), (Some(ROOT), Regulator::None, 2));
    let mut engine = Engine::new(&link.spec).unwrap();
    for (class, sent, dropped) in [(1, 1, 0), (2, 0, 1), (ROOT, 1, 0)] {
        engine.enqueue(0, class, Packet::new(class, 84));
        assert_eq!((u32::from(engine.dequeue(0).is_some()), engine.drops().count()), (sent, dropped), "class {class}");
    }
    let text = "interface em0 cbq tbrsize 12K no-tbr no-control\nclass cbq em0 r NULL pbandwidth 100 default\n";
    let policy = parse(text);
    assert_eq!(policy.warnings.iter().map(|warning| warning.code).collect::<Vec<_>>(), ["no-effect"]);
    assert_eq!(policy.links[0].spec.regulator, Regulator::None);
    // altqd gives the control class that it makes the sizes of the default class, and not its RED.
    let policy = parse(
        "interface em0 cbq\nclass cbq em0 r NULL pbandwidth 100\n\
         class cbq em0 d r pbandwidth 50 red ecn maxburst 9 default\n",
    );
    let control = &policy.links[0].spec.classes[policy.links[0].class("ctl_class").unwrap() as usize];
    assert_eq!((control.settings.int("maxburst"), control.queue.as_ref().unwrap().name), (Some(9), "drop_head"));
}

#[test]
fn integer_arithmetic_of_percentages() {
    // B / 100 * p: 12345678 / 100 = 123456.
    let policy = parse(
        "interface em0 bandwidth 12345678 cbq\nclass cbq em0 root NULL pbandwidth 100\n\
         class cbq em0 def root pbandwidth 50 default\n",
    );
    assert_eq!(rates(&policy.links[0]), [12_345_678, 123_456 * 48, 123_456 * 2]);
}

#[test]
fn a_root_with_part_of_the_interface_is_a_class_below_the_link() {
    let policy = parse(
        "interface em0 bandwidth 10M cbq\nclass cbq em0 root NULL pbandwidth 50\n\
         class cbq em0 def root borrow pbandwidth 50 default\n",
    );
    let link = &policy.links[0];
    assert_eq!(names(link), ["em0", "root", "def", "ctl_class"]);
    assert_eq!(rates(link), [10_000_000, 5_000_000, 4_800_000, 200_000]);
    assert_eq!(link.ceiling(2), Rate::mbit_s(5));
    assert_eq!(link.spec.default, Some(2));
}

#[test]
fn control_classes_of_ones_own() {
    let policy = parse(
        "interface em0 bandwidth 10M cbq\nclass cbq em0 root NULL pbandwidth 100\n\
         class cbq em0 ctl_class root pbandwidth 4 priority 7\n\
         class cbq em0 def root pbandwidth 50 default\n",
    );
    let link = &policy.links[0];
    assert_eq!(rates(link), [10_000_000, 400_000, 5_000_000]);
    // ICMP, IGMP, RSVP over IPv4 and IPv6, to the control class.
    assert_eq!(link.spec.rules.rules.iter().map(|rule| rule.class).collect::<Vec<_>>(), [1, 1]);
    assert!(!link.classes[1].made);
}

#[test]
fn token_buckets_as_altqd_and_cbqd_had_them() {
    let text = "interface em0 bandwidth 10M cbq\nclass cbq em0 r NULL pbandwidth 100\n\
        class cbq em0 d r BORROW pbandwidth 50 default\n";
    let regulator = |name: &str, borrow: &str, tbr: &str| {
        let text = text.replace("BORROW", borrow).replace("10M cbq", &format!("10M cbq {tbr}"));
        parse_str(&text, name, Language::Altq).unwrap_or_else(|failed| panic!("{failed}")).links[0].spec.regulator
    };
    assert_eq!(regulator("altq.conf", "borrow", ""), Regulator::Altq);
    assert_eq!(regulator("altq.conf", "borrow", "tbrsize 12K"), Regulator::Depth(12288));
    assert_eq!(regulator("cbq.conf", "borrow", ""), Regulator::None);
    // A file with the old form `borrow PARENT` is a cbq.conf whatever its name.
    assert_eq!(regulator("x.conf", "borrow r", ""), Regulator::None);
    assert_eq!(regulator("cbq.conf", "borrow r", "tbrsize 3000"), Regulator::Depth(3000));
}

#[test]
fn several_interfaces() {
    let one = |name: &str| {
        format!(
            "interface {name} bandwidth 10M cbq\nclass cbq {name} root NULL pbandwidth 100\n\
             class cbq {name} def root pbandwidth 50 default\n"
        )
    };
    let policy = parse(&format!("{}{}filter em0 def 0 0 0 0 6\nfilter def 0 25 0 0 6\n", one("em0"), one("em1")));
    let counts: Vec<(&str, usize)> =
        policy.links.iter().map(|link| (link.name.as_str(), link.spec.rules.rules.len())).collect();
    // Each interface has the two filters of its control class. Commands that name no interface are
    // about the one named last.
    assert_eq!(counts, [("em0", 4), ("em1", 2)]);
}
