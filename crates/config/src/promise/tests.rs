//! Promises, with what comes out by hand.

use crate::{Language, parse_str};

use super::*;

fn bound(text: &str, class: &str) -> DelayBound {
    let policy = parse_str(text, "t.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}"));
    let link = &policy.links[0];
    Promises::new(link).delay_bound(link.class(class).unwrap())
}

#[test]
fn the_formula_by_hand() {
    // docs/reference/cbq.md rule 9: the burst of voice, 2 x 160 bytes, and one packet of 1500
    // are 1820 bytes at 10 Mbit/s.
    let text = "link l { rate 10Mbit/s scheduler cbq
        class voice { share 5% priority 7 packetsize 160 queue drop_tail { limit 10packets } }
        class a { share 45% borrow }  class b { share 50% borrow default } }";
    let voice = bound(text, "voice");
    assert_eq!(voice.conforming, Some(1820 * 8 * 100));
    // A full queue: ten packets of 1500 bytes and one just sent, at 500 kbit/s.
    assert_eq!(voice.queue_full, Some(1820 * 8 * 100 + 11 * 1500 * 8 * 2000));
    // For a: the bursts of a and b, 2 x 1500 bytes each, and one packet; the burst of voice,
    // 320 bytes, and one packet. All at the 9.5 Mbit/s that voice leaves. A byte at 4.5 Mbit/s
    // takes no whole number of nanoseconds: three of the link's are for rounding.
    let bits = (3000 + 3000 + 1500 + 320 + 1500) * 8;
    let work = bits * 1_000_000_000_u64 + 3 * 10_000_000;
    assert_eq!(bound(text, "a").conforming, Some(work.div_ceil(9_500_000)));
}

fn link(text: &str) -> Link {
    let policy = parse_str(text, "t.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}"));
    policy.links[0].clone()
}

fn guaranteed(text: &str, class: &str) -> Option<u64> {
    let link = link(text);
    Promises::new(&link).guaranteed(link.class(class).unwrap()).map(Rate::as_bit_s)
}

#[test]
fn priq_by_hand() {
    // A burst of one packet and one packet of another class are 3000 bytes at 10 Mbit/s. A full
    // queue: ten packets that wait, one just sent, and one of another class.
    let text = "link l { rate 10Mbit/s scheduler priq
        class voice { priority 15 queue drop_tail { limit 10packets } }  class rest { default } }";
    assert_eq!(
        (bound(text, "voice").conforming, bound(text, "voice").queue_full),
        (Some(2_400_000), Some(12 * 1_200_000))
    );
    assert_eq!((guaranteed(text, "voice"), guaranteed(text, "rest")), (Some(10_000_000), None));
    assert_eq!(bound(text, "rest").conforming, None);
    assert!(bound(text, "voice").assumes.contains("10Mbit/s and bursts of 1500 bytes"));
    // Packets of the link itself have priority 1. They may take the whole rate from a class of
    // priority 0, and share it in turns with one of priority 1.
    let text = "link l { rate 10Mbit/s scheduler priq default class a { priority 1 } class b { priority 0 } }";
    assert!(bound(text, "a").assumes.contains("takes turns"));
    assert!(bound(text, "b").assumes.contains("higher priority"));
}

#[test]
fn drr_in_others_by_hand() {
    // F = 9000 and Q = 3000, so the rate is a third of the link's. The latency is (6000 (1 +
    // 1/2)
    // + 3 * 1500) bytes at 10 Mbit/s; a burst of 1500 bytes at the class's rate comes on top.
    let classes = "class a { quantum 3000 }  class b { quantum 1500 }  class c { quantum 4500 }";
    let text = format!("link l {{ rate 10Mbit/s scheduler drr {classes} }}");
    assert_eq!(guaranteed(&text, "a"), Some(3_333_333));
    assert_eq!(bound(&text, "a").conforming, Some(13_500 * 800 + 3_600_001));
    // Inside the highest class of priq, every bound is longer by one packet of the link.
    let text = format!(
        "link l {{ rate 10Mbit/s scheduler priq class top {{ priority 15 scheduler drr {classes} }} \
         class low {{ }} }}"
    );
    assert_eq!(guaranteed(&text, "a"), Some(3_333_333));
    assert_eq!(bound(&text, "a").conforming, Some(13_500 * 800 + 3_600_001 + 1_200_000));
    let top = bound(&text, "top");
    assert!(top.conforming == Some(2_400_000) && top.queue_full.is_none() && top.assumes.contains("on top"));
    // Inside the other class of priq nothing is promised.
    let text = format!(
        "link l {{ rate 10Mbit/s scheduler priq class top {{ priority 15 }} \
         class low {{ scheduler drr {classes} }} }}"
    );
    assert_eq!((guaranteed(&text, "a"), bound(&text, "a").conforming), (None, None));
    assert!(
        bound(&text, "a").assumes.contains("`low`, which holds the scheduler, is promised nothing: classes of higher")
    );
}

#[test]
fn cbq_in_drr_by_hand() {
    // `a`, which holds the scheduler: F = 6000 and Q = 3000, so a latency of (3000 (1 + 2 *
    // 1500 / 3000) + 1500 + 1500) bytes, 7.2 ms, and a rate of 5 Mbit/s. Inside, by
    // docs/reference/cbq.md rule 9: the burst of v, 400 bytes, and a packet are 1900 bytes at 5
    // Mbit/s, 3.04 ms; the burst at 1 Mbit/s, 3.2 ms.
    let text = "link l { rate 10Mbit/s scheduler drr
        class a { quantum 3000 scheduler cbq class v { rate 1Mbit/s priority 7 packetsize 200 queue drop_tail { \
        limit 4packets } }
                                             class w { rate 3Mbit/s borrow } }
        class b { quantum 3000 default } }";
    let of_v = bound(text, "v");
    assert_eq!((guaranteed(text, "v"), of_v.conforming), (Some(1_000_000), Some(7_200_000 + 3_040_000 + 3_200_000)));
    // A full queue: four packets of 1500 bytes and one just sent, at 1 Mbit/s.
    assert_eq!(of_v.queue_full, Some(7_200_000 + 3_040_000 + 60_000_000));
    assert!(of_v.assumes.contains("bursts of 400 bytes"));
}

#[test]
fn curves_by_hand() {
    // 2 Mbit/s for 5 ms are 1250 bytes. The other 250 bytes of a packet take 2 ms at 1 Mbit/s.
    // A packet of the link takes 1.2 ms. A full queue counts on the second slope alone: 11
    // packets at 1 Mbit/s.
    let text = "link l { rate 10Mbit/s scheduler hfsc
        class a { realtime 2Mbit/s for 5ms then 1Mbit/s  queue drop_tail { limit 10packets } }
        class b { linkshare 5Mbit/s default } }";
    let of_a = bound(text, "a");
    assert_eq!((of_a.conforming, of_a.queue_full), (Some(8_200_000), Some(132_000_000 + 1_200_000)));
    // A queue of flows has no bound when it is full: others may overtake the last packet again
    // and again.
    let text = "link l { rate 10Mbit/s scheduler priq class a { priority 15 queue fq_codel { } default } }";
    assert!(bound(text, "a").conforming.is_some() && bound(text, "a").queue_full.is_none());
}

/// What holds a class below its guarantee, by its words or a meter, is what it can count on,
/// and what its source may send.
#[test]
fn a_guarantee_is_never_above_the_ceiling() {
    let meter = |kind: &str| format!("class a {{ rate 5Mbit/s borrow meter {kind} }} class b {{ default }}");
    for (scheduler, classes, expected) in [
        ("wfq", "class a { bandwidth 5Mbit/s police 1Mbit/s } class b { default }".to_owned(), 1),
        ("wfq", "class a { bandwidth 5Mbit/s shape 2Mbit/s } class b { default }".to_owned(), 2),
        ("wfq", "class a { low-latency 3Mbit/s police 1Mbit/s } class b { default }".to_owned(), 1),
        ("hfsc", "class a { linkshare 5Mbit/s upperlimit 2Mbit/s } class b { linkshare 5Mbit/s default }".into(), 2),
        ("cbq", meter("bucket { cir 2Mbit/s cbs 3000 red drop }"), 2),
        ("cbq", meter("srtcm { cir 2Mbit/s cbs 3000 ebs 3000 yellow drop red drop }"), 2),
        ("cbq", meter("trtcm { cir 1Mbit/s cbs 3000 pir 4Mbit/s pbs 3000 red drop }"), 4),
        ("cbq", meter("trtcm { cir 1Mbit/s cbs 3000 pir 4Mbit/s pbs 3000 yellow drop red drop }"), 1),
        ("cbq", meter("trtcm { cir 1Mbit/s cbs 3000 pir 4Mbit/s pbs 3000 red dscp le }"), 5),
        ("hfsc", "class a { realtime 2Mbit/s } class b { linkshare 5Mbit/s default }".into(), 2),
        ("hfsc", "class a { realtime 8Mbit/s for 5ms then 2Mbit/s } class b { linkshare 5Mbit/s default }".into(), 2),
    ] {
        let text = format!("link l {{ rate 10Mbit/s scheduler {scheduler} {classes} }}");
        let link = link(&text);
        let a = link.class("a").unwrap();
        let ceiling = if text.contains("red dscp") { 10 } else { expected };
        assert_eq!((guaranteed(&text, "a"), link.ceiling(a)), (Some(expected * 1_000_000), Rate::mbit_s(ceiling)));
        let bound = bound(&text, "a");
        let sends = format!("the source sends at most {} ", Rate::mbit_s(expected));
        assert!(bound.conforming.is_none() || bound.assumes.starts_with(&sends), "{text}: {}", bound.assumes);
    }
}

#[test]
fn nothing_is_promised_where_nothing_holds() {
    for (text, class, why) in [
        ("link l { rate 1Mbit/s scheduler fifo class a { default } }", "a", "fifo guarantees nothing"),
        ("link l { rate 1Mbit/s scheduler cbq { estimator classic } class a { share 5% default } }", "a", "no delay"),
        ("link l { rate 1Mbit/s scheduler cbq class a { borrow default } }", "a", "guaranteed nothing"),
        ("link l { rate 1Mbit/s scheduler cbq class a { share 5% class b { share 1% default } } }", "a", "no packets"),
        (
            "link l { rate 1Mbit/s overcommit scheduler cbq class a { share 80% default } class b { share 80% } }",
            "a",
            "more than",
        ),
        (
            "link l { rate 1Mbit/s overcommit scheduler hfsc class a { linkshare 600kbit/s default } \
             class b { linkshare 600kbit/s } }",
            "a",
            "of its 600kbit/s it can count on 500kbit/s",
        ),
        (
            "link l { rate 1Mbit/s scheduler cbq class a { share 0% borrow default } \
             class b { share 100% priority 7 } }",
            "a",
            "nothing",
        ),
    ] {
        let bound = bound(text, class);
        assert_eq!((bound.conforming, bound.queue_full), (None, None), "{text}");
        assert!(bound.assumes.contains(why), "{}", bound.assumes);
    }
}
