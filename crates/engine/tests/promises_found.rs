//! Inputs that once broke what `altq check` promises, each with the law that it broke.

use crate::support::adversary;

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

/// Thirty packets of each class of a policy, one every `gap` ns, leave at the same times if the
/// classes are given the words that they have again and again.
fn sends_as_before_given_the_same_words(policy: &str, classes: u32, gap: u64) {
    let laws = Laws::read(policy.to_owned()).unwrap();
    let arrivals = (0..30).flat_map(|n| (1..=classes).map(move |class| Event { at: n * gap, class, bytes: 1500 }));
    let events: Vec<Event> = arrivals.collect();
    let before = run(&laws, &events, &[], 1);
    let changes: Vec<_> = (1..200)
        .map(|n| {
            let class = 1 + n as u32 % classes;
            let settings = laws.link.spec.classes[class as usize].settings.clone();
            (n * 131_000, Change::SetClass { class, parent: 0, settings })
        })
        .collect();
    let after = run(&laws, &events, &changes, 1);
    assert_eq!(before.left, after.left);
    assert_eq!((before.broken, after.broken), (None, None));
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
    sends_as_before_given_the_same_words(policy, 3, 700_000);
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

/// A class of fairq that is given the words that it has keeps its place among those of its
/// priority.
#[test]
fn fairq_given_the_same_words_sends_as_before() {
    let policy = "link l { rate 10Mbit/s scheduler fairq
        class a { priority 5 bandwidth 2Mbit/s }  class b { priority 5 bandwidth 3Mbit/s }
        class c { priority 5 }  class d { priority 2 bandwidth 1Mbit/s } }";
    sends_as_before_given_the_same_words(policy, 4, 900_000);
}

/// While `c1`'s turn is late, `c3` earns its rate as much as ever, and goes first with all of it
/// when the turn comes. The lateness was counted as a time, and `c2` waited 91.5 ms of 90.9.
#[test]
fn cbq_counts_what_higher_priorities_earn_while_its_turn_is_late() {
    let policy = "link l { rate 7991861bit/s scheduler cbq { excess priority }
        class c1 { rate 7728385bit/s borrow ceiling 13401019bit/s packetsize 200 scheduler cbq
            class c2 { rate 1850105bit/s }
            class c3 { rate 1695924bit/s priority 3 maxburst 6 packetsize 768 } }
        class c4 { rate 263467bit/s borrow ceiling 323274bit/s priority 3 maxburst 44 packetsize 1500 } }";
    let mut packets = vec![(0, "c2", 40), (0, "c2", 40), (0, "c4", 1500), (0, "c4", 1500)];
    packets.extend([(1, "c3", 1500), (1, "c3", 1500), (1, "c3", 1243), (1, "c3", 1243)]);
    packets.extend(std::iter::repeat_n((6, "c4", 1500), 43));
    packets.extend([(27, "c3", 1500), (103, "c3", 1500), (103, "c3", 1500), (103, "c3", 1500), (103, "c3", 40)]);
    packets.extend([(1_501_527, "c3", 40), (1_798_575, "c3", 1243), (2_131_136, "c3", 1500)]);
    packets.extend([2_653_570, 51_888_952, 53_531_156, 58_457_768].map(|at| (at, "c3", 1243)));
    packets.extend(std::iter::repeat_n((86_882_504, "c3", 1500), 3));
    assert_eq!(replay(policy, &packets, "c2").broken, None);
}

/// `c2` sent a packet of 1500 bytes where one of 40 had been announced, left the ring, as the
/// scheduler inside held the next one back, and was rid of what it owed. `c1` waited 684 ms of
/// 650.
#[test]
fn drr_remembers_what_a_class_owes() {
    let policy = "link l { rate 100000bit/s overhead 44 bytes atm scheduler drr
        class c1 { quantum 13972 }
        class c2 { quantum 898 scheduler cbq { excess priority }
            class c3 { rate 1894bit/s }  class c4 { rate 8842bit/s priority 3 }
            class c5 { rate 5123bit/s borrow packetsize 29 }
            class c6 { rate 210bit/s borrow priority 4 maxburst 3 } } }";
    let mut packets = vec![(0, "c4", 1500), (0, "c3", 40), (0, "c1", 1500), (0, "c5", 1500)];
    packets.extend((1..40).map(|n| (n * 148_914_432, "c1", 1500)));
    let others = [
        (139_920_001, "c6", 64),
        (279_840_000, "c4", 40),
        (419_760_000, "c6", 64),
        (446_743_296, "c4", 1500),
        (2_141_200_001, "c6", 64),
        (2_429_519_999, "c6", 1500),
        (3_701_519_999, "c3", 481),
        (3_701_519_999, "c3", 481),
        (4_970_569_094, "c3", 481),
        (4_970_569_094, "c3", 481),
        (5_821_519_999, "c6", 1500),
    ];
    packets.extend(others);
    packets.sort_by_key(|(at, ..)| *at);
    assert_eq!(replay(policy, &packets, "c1").broken, None);
}

/// The deadline of `c1` was that of the 1500 bytes that it had announced, and 98 bytes went. By
/// these alone it seemed to be more than a second late, and the clocks of all equals were put back
/// (docs/reference/cbq.md rule 14): `c6` lost 1.2 s.
#[test]
fn cbq_forgets_nothing_because_of_a_short_packet() {
    let policy = "link l { rate 64000bit/s scheduler cbq { excess priority }
        class c1 { rate 949bit/s maxburst 1 packetsize 432 scheduler drr
            class c2 { quantum 2619 }  class c5 { quantum 1231 } }
        class c6 { rate 62899bit/s priority 1 maxburst 4 } }";
    let mut packets: Vec<(u64, &str, u32)> = std::iter::repeat_n((0, "c6", 1500), 19).collect();
    packets.extend([(0, "c5", 1500), (0, "c6", 1500)]);
    packets.extend(std::iter::repeat_n((187_500_000, "c6", 1500), 6));
    packets.extend([(388_811_490, "c2", 98), (607_054_057, "c6", 1500)]);
    packets.extend((0..7).map(|n| (1_450_804_057 + n * 843_750_000, "c6", 1500)));
    assert_eq!(replay(policy, &packets, "c6").broken, None);
}
