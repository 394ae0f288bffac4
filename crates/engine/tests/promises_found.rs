//! Inputs that once broke what `altq check` promises, each with the law that it broke.

#[path = "support/adversary/mod.rs"]
mod adversary;

use adversary::laws::Laws;
use adversary::run::{Event, Outcome, run};
use altq_engine::Change;

/// Runs `time, class, bytes` through a policy, and tells how near `watched` came to its bound.
fn replay(policy: &str, packets: &[(u64, &str, u32)], watched: &str) -> Outcome {
    let laws = Laws::read(policy.to_owned()).expect("a policy without errors");
    let number = |name: &str| laws.link.class(name).expect("a class of the policy");
    let events: Vec<Event> =
        packets.iter().map(|(at, class, bytes)| Event { at: *at, class: number(class), bytes: *bytes }).collect();
    run(&laws, &events, &[], number(watched))
}

/// Packets of `c2` itself go when `c3` below it has none, so they are promised nothing. A bound of
/// 541 ms was printed, and 631 ms passed.
#[test]
fn hfsc_promises_an_inner_class_nothing_for_its_own_packets() {
    let policy = "link l { rate 84016bit/s overhead 44 bytes atm scheduler hfsc
        class c1 { linkshare 16452bit/s }
        class c2 { linkshare 65808bit/s class c3 { linkshare 65808bit/s } }
        match dport 2 -> c2 }";
    let laws = Laws::read(policy.to_owned()).unwrap();
    assert!(laws.classes[2].conforming.is_none() && laws.classes[2].promise.is_none());
    assert!(laws.classes[3].conforming.is_some());
}

/// Words that a class has already change nothing, not even how late its limit may be.
#[test]
fn hfsc_given_the_same_words_sends_as_before() {
    let policy = "link l { rate 10Mbit/s scheduler hfsc
        class a { linkshare 5Mbit/s upperlimit 6Mbit/s }
        class b { realtime 1Mbit/s for 5ms then 3Mbit/s linkshare 3Mbit/s }
        class c { linkshare 2Mbit/s for 3ms then 1Mbit/s } }";
    let laws = Laws::read(policy.to_owned()).unwrap();
    let events: Vec<Event> =
        (0..90).map(|n| Event { at: n / 3 * 700_000, class: 1 + n as u32 % 3, bytes: 1500 }).collect();
    let before = run(&laws, &events, &[], 1);
    let changes: Vec<_> = (1..200)
        .map(|n| {
            let class = 1 + n as u32 % 3;
            let settings = laws.link.spec.classes[class as usize].settings.clone();
            (n * 131_000, Change::SetClass { class, parent: 0, settings })
        })
        .collect();
    let after = run(&laws, &events, &changes, 1);
    assert_eq!(before.left, after.left);
    assert_eq!((before.broken, after.broken), (None, None));
}

/// Six siblings of `v` hold schedulers whose next packet is of 40 bytes until one of 1500 comes
/// before it. By the deadlines of 40 bytes all six went before `v`, 9.60 ms after it came; each of
/// them with a true deadline behind that of `v`.
#[test]
fn hfsc_takes_a_guessed_packet_for_a_long_one() {
    for inner in ["priq { }", "wfq { }", "cbq { }"] {
        let (high, low) = match inner {
            "priq { }" => ("priority 15", "priority 0"),
            "wfq { }" => ("low-latency 500kbit/s burst 3000", "bandwidth 100kbit/s"),
            _ => ("rate 500kbit/s priority 7", "rate 100kbit/s priority 0"),
        };
        let mut policy = "link l { rate 10Mbit/s scheduler hfsc
            class v { realtime 3.3Mbit/s linkshare 3.3Mbit/s }
            class s { linkshare 100kbit/s default }\n"
            .to_owned();
        for n in 1..=6 {
            policy += &format!(
                "class g{n} {{ realtime 1.1Mbit/s linkshare 1.1Mbit/s scheduler {inner}
                    class hi{n} {{ {high} }} class lo{n} {{ {low} }} }}\n"
            );
        }
        let policy = policy.replace("{ }", "") + "}\n";
        let mut packets = vec![(0, "s", 1500)];
        packets.extend(["lo1", "lo2", "lo3", "lo4", "lo5", "lo6"].map(|class| (1000, class, 40)));
        packets.extend(["hi1", "hi2", "hi3", "hi4", "hi5", "hi6"].map(|class| (2000, class, 1500)));
        packets.push((3000, "v", 1500));
        let outcome = replay(&policy, &packets, "v");
        assert_eq!(outcome.broken, None, "{inner}");
        // 1500 bytes at 3.3 Mbit/s and one packet of the link are 4.84 ms.
        assert!(outcome.nearest > 0.4, "{}", outcome.nearest);
    }
}

/// `c6` has a class below it and packets of its own, which go by its `realtime`. It was left out
/// where deadlines are added up: `c7` below it had a bound of 92.03 ms, and waited 100.41.
#[test]
fn hfsc_counts_the_deadlines_of_inner_classes_with_packets() {
    let policy = "link l { rate 1577848bit/s overhead 8 bytes mpu 200 scheduler hfsc
        class c1 { linkshare 73048bit/s }
        class c5 { realtime 861972bit/s linkshare 861972bit/s
            class c6 { realtime 861972bit/s linkshare 861972bit/s class c7 { linkshare 861972bit/s } } }
        class c8 { realtime 613606bit/s }
        class c9 { linkshare 29218bit/s }
        match dport 6 -> c6 }";
    let mut packets = vec![(0, "c6", 1500); 15];
    packets.extend([(37_326_885, "c8", 1500), (53_521_000, "c7", 40)]);
    packets.extend((0..5).map(|n| (56_987_710 + n * 19_660_825, "c8", 1500)));
    let outcome = replay(policy, &packets, "c6");
    assert_eq!(outcome.broken, None);
    let laws = Laws::read(policy.to_owned()).unwrap();
    let class = |name: &str| &laws.classes[laws.link.class(name).unwrap() as usize];
    // By its deadlines: 1508 bytes at 861972 bit/s and, on the wire, at 1577848.
    let (bound, _) = class("c6").conforming.unwrap();
    assert_eq!(bound, (1508 * 8_000_000_000_u64).div_ceil(861_972) + (1508 * 8_000_000_000_u64).div_ceil(1_577_848));
    // Deadlines of `c6` count in its share, of which `c7` has all.
    assert!(class("c7").conforming.is_none());
}

/// A class of fairq that is given what it has keeps its place among equals.
#[test]
fn fairq_given_the_same_words_sends_as_before() {
    let policy = "link l { rate 10Mbit/s scheduler fairq
        class a { priority 5 bandwidth 2Mbit/s }  class b { priority 5 bandwidth 3Mbit/s }
        class c { priority 5 }  class d { priority 2 bandwidth 1Mbit/s } }";
    let laws = Laws::read(policy.to_owned()).unwrap();
    let events: Vec<Event> =
        (0..120).map(|n| Event { at: n / 4 * 900_000, class: 1 + n as u32 % 4, bytes: 1500 }).collect();
    let before = run(&laws, &events, &[], 1);
    let changes: Vec<_> = (1..200)
        .map(|n| {
            let class = 1 + n as u32 % 4;
            let settings = laws.link.spec.classes[class as usize].settings.clone();
            (n * 131_000, Change::SetClass { class, parent: 0, settings })
        })
        .collect();
    let after = run(&laws, &events, &changes, 1);
    assert_eq!(before.left, after.left);
}
