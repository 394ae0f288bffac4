//! RED against its paper's formulas: averages worked out by hand, probabilities by statistics.
//!
//! If intervals between drops have the mean m and the standard deviation s, the mean of `n` of them
//! is normal around m with a standard deviation of s/sqrt(n). Five of these are allowed, which
//! chance exceeds in one of 1.7 million samples. The seeds are fixed, so that a test that passes
//! keeps passing.

use crate::support::queue as support;

use altq_engine::settings::{Limit, Value};
use altq_engine::{Engine, Packet};
use support::{arrive, change, counter, link, queue, uneven};

const MS: u64 = 1_000_000;

fn packets(n: u32) -> Value {
    Value::Limit(Limit::Packets(n))
}

/// RED with a limit of 60 packets, min 5, max 15 and probability 0.1. With weight 1 the average
/// equals the length that the last packet found.
fn red(more: &[(&'static str, Value)]) -> Engine {
    let mut words = vec![("min", packets(5)), ("max", packets(15)), ("weight", Value::Int(1))];
    words.extend_from_slice(more);
    link(8_000_000, queue("red", Limit::Packets(60), &words)).unwrap()
}

/// Lets `n` packets arrive at a queue of exactly `length` packets. Returns the intervals between
/// those that are dropped or marked.
fn intervals(engine: &mut Engine, length: u32, n: u32, ecn: u8) -> Vec<u64> {
    engine.set_seed(7);
    let mut handle = 0;
    let mut fill = 0;
    // Some packets are dropped while the queue fills. The first interval begins at a later drop.
    while fill < length {
        fill += u32::from(arrive(engine, 0, Packet::new(handle, 1000)).is_none());
        handle += 1;
    }
    let (mut since, mut all, mut begun) = (0, Vec::new(), false);
    let mut marked = engine.own_counters(1).marked_packets;
    for _ in 0..n {
        since += 1;
        let dropped = arrive(engine, 0, Packet { ecn, ..Packet::new(handle, 1000) }).is_some();
        handle += 1;
        let now_marked = engine.own_counters(1).marked_packets;
        if !dropped {
            assert!(engine.dequeue(0).is_some());
        }
        if dropped || now_marked > marked {
            if begun {
                all.push(since);
            }
            (since, begun, marked) = (0, true, now_marked);
        }
        assert_eq!(engine.own_counters(1).queued_packets, u64::from(length));
    }
    all
}

#[track_caller]
fn near(intervals: &[u64], mean: f64, deviation: f64) {
    let n = intervals.len() as f64;
    let seen = intervals.iter().sum::<u64>() as f64 / n;
    let allowed = 5.0 * deviation / n.sqrt();
    assert!(n > 1000.0 && (seen - mean).abs() <= allowed, "{n} intervals of {seen}, not {mean} +- {allowed}");
}

/// The paper's formula with p = 0.1 (10 - 5) / (15 - 5) = 0.05. After a drop, `count` is 1 for the
/// next packet, and the drop probability p / (1 - count p) = 1 / (20 - count). So intervals are
/// uniform from 1 to 19 packets, with a mean of 10.
#[test]
fn drops_are_spread_evenly() {
    let all = intervals(&mut red(&[]), 10, 1_000_000, 0);
    near(&all, 10.0, ((19.0f64.powi(2) - 1.0) / 12.0).sqrt());
    let counts: Vec<u64> =
        (1..=19).map(|interval| all.iter().filter(|seen| **seen == interval).count() as u64).collect();
    assert_eq!(counts.iter().sum::<u64>(), all.len() as u64, "none is longer");
    assert!(uneven(&counts) < 5.0, "{counts:?}");
}

/// The same for other averages and probabilities: intervals from 1 to 1/p - 1 packets.
#[test]
fn the_probability_grows_with_the_average() {
    for (length, billionths, most) in
        [(6, 100_000_000, 99.0), (7, 100_000_000, 49.0), (14, 100_000_000, 9.0 * 10.0 / 81.0), (10, 20_000_000, 99.0)]
    {
        let p = f64::from(billionths) / 1e9 * f64::from(length - 5) / 10.0;
        let all = intervals(&mut red(&[("probability", Value::Fraction(billionths))]), length, 400_000, 0);
        // The mean and variance directly from the formula, because 1/p may not be an integer: P(k)
        // is p / (1 - k p) times the probability that no earlier packet was dropped.
        let (mut left, mut mean, mut square, mut k) = (1.0, 0.0, 0.0, 1.0);
        while left > 1e-12 {
            let here = left * (p / (1.0 - k * p)).clamp(0.0, 1.0);
            let here = if 1.0 - k * p <= p { left } else { here };
            (mean, square) = (mean + here * k, square + here * k * k);
            (left, k) = (left - here, k + 1.0);
        }
        near(&all, mean, (square - mean * mean).sqrt());
        // Where 1/p is an integer, that is the mean of the uniform distribution from 1 to `most`.
        assert!((1.0 / p).fract() > 1e-9 || ((most + 1.0) / 2.0 - mean).abs() < 1e-6, "{mean}");
    }
}

/// `gentle` (Floyd 2000): an average of 20 is a third of the way from 15 to 30, so p = 0.1 + 0.9 /
/// 3 = 0.4. The first packet after a drop is dropped with probability 0.4 / 0.6 = 2/3, the second
/// always (0.4 / 0.2 is more than 1).
#[test]
fn gentle_goes_on_above_max() {
    let all = intervals(&mut red(&[("gentle", Value::Flag)]), 20, 300_000, 0);
    let second = all.iter().filter(|n| **n == 2).count();
    assert!(all.iter().all(|n| *n <= 2));
    let (n, share) = (all.len() as f64, second as f64 / all.len() as f64);
    assert!((share - 1.0 / 3.0).abs() < 5.0 * (2.0 / 9.0 / n).sqrt(), "{share}");
    // Without `gentle` all packets are dropped from max on. With it they are from 22 on: p = 0.1 +
    // 0.9 (22 - 15) / 15 is above 1/2, so p / (1 - p) is above 1.
    for (words, length) in [(&[("gentle", Value::Flag)][..], 22), (&[], 15)] {
        let mut engine = red(words);
        let drops = (0..2000).filter(|n| arrive(&mut engine, 0, Packet::new(*n, 100)).is_some()).count();
        assert_eq!(u64::from(engine.backlog()), 2000 - drops as u64);
        assert_eq!(engine.backlog(), length, "none passes when the average is {length}");
    }
}

/// docs/reference/altq.md 7.1: ALTQ drops with p / (2 - count p). For p = 0.05, intervals are
/// uniform from 1 to 39 packets, with a mean of 20.
#[test]
fn altq_drops_half_as_many() {
    let altq = ("variant", Value::Choice("altq"));
    let all = intervals(&mut red(&[altq]), 10, 1_000_000, 0);
    near(&all, 20.0, ((39.0f64.powi(2) - 1.0) / 12.0).sqrt());
    let counts: Vec<u64> =
        (1..=39).map(|interval| all.iter().filter(|seen| **seen == interval).count() as u64).collect();
    assert_eq!(counts.iter().sum::<u64>(), all.len() as u64);
    assert!(uneven(&counts) < 5.0, "{counts:?}");
    // The packet that first finds the average at min or above is not dropped, nor is one that finds
    // at most one packet waiting.
    let sure = [
        ("min", packets(1)),
        ("max", packets(2)),
        ("probability", Value::Fraction(1_000_000_000)),
        ("weight", Value::Int(1)),
        altq,
    ];
    let mut engine = link(8_000_000, queue("red", Limit::Packets(60), &sure)).unwrap();
    let fates: Vec<_> = (0..4).map(|n| arrive(&mut engine, 0, Packet::new(n, 100)).is_none()).collect();
    assert_eq!(fates, [true, true, false, false], "queued with 0 and 1 waiting; dropped at an average of 2, the max");
}

#[test]
fn ecn_capable_packets_are_marked() {
    let ecn = ("ecn", Value::Flag);
    let mut engine = red(&[ecn]);
    let all = intervals(&mut engine, 10, 300_000, 2);
    near(&all, 10.0, ((19.0f64.powi(2) - 1.0) / 12.0).sqrt());
    // One mark more than intervals. Packets that fill the queue are not ECN-capable: they were
    // dropped, not marked.
    assert_eq!(counter(&engine, "prob_mark"), all.len() as u64 + 1);
    assert_eq!(engine.own_counters(1).marked_packets, counter(&engine, "prob_mark"));
    assert_eq!(counter(&engine, "prob_drop") + counter(&engine, "forced_drop"), engine.own_counters(1).dropped_packets);
    // Above max, packets are marked, but not with harddrop or in ALTQ's variant.
    for (words, marks) in [
        (&[ecn][..], true),
        (&[ecn, ("harddrop", Value::Flag)], false),
        (&[ecn, ("variant", Value::Choice("altq"))], false),
    ] {
        let mut engine = red(words);
        let mut handle = 0;
        while engine.backlog() < 15 {
            arrive(&mut engine, 0, Packet { ecn: 1, ..Packet::new(handle, 100) });
            handle += 1;
        }
        let before = engine.own_counters(1).marked_packets;
        let passed = arrive(&mut engine, 0, Packet { ecn: 1, ..Packet::new(handle, 100) }).is_none();
        assert_eq!((passed, engine.own_counters(1).marked_packets - before), (marks, u64::from(marks)));
        assert_eq!(counter(&engine, if marks { "forced_mark" } else { "forced_drop" }), 1);
    }
    // Marks leave with the packet.
    let mut engine = red(&[ecn]);
    (0..1000).for_each(|n| {
        assert!(arrive(&mut engine, 0, Packet { ecn: 2, ..Packet::new(n, 100) }).is_none() || engine.backlog() == 60)
    });
    let marked = std::iter::from_fn(|| engine.dequeue(0)).filter(|departure| departure.packet.ecn == 3).count();
    assert!(marked > 40 && marked <= engine.own_counters(1).marked_packets as usize, "{marked}");
}

/// avg += (length - avg) / 4 for the lengths 0, 1, 2, 3 gives 0, 1/4, 11/16, 81/64.
#[test]
fn the_average_by_hand() {
    let words = [("weight", Value::Int(4)), ("min", packets(20))];
    let mut engine = link(8_000_000, queue("red", Limit::Packets(60), &words)).unwrap();
    let mut seen = Vec::new();
    for n in 0..4 {
        arrive(&mut engine, 0, Packet::new(n, 100));
        seen.push(counter(&engine, "average_thousandths"));
    }
    assert_eq!(seen, [0, 250, 687, 1265]);
    // The same in bytes, for the lengths 0, 100, 200, 300.
    let words = [("weight", Value::Int(4)), ("min", Value::Limit(Limit::Bytes(2000)))];
    let mut engine = link(8_000_000, queue("red", Limit::Bytes(60_000), &words)).unwrap();
    (0..4).for_each(|n| assert!(arrive(&mut engine, 0, Packet::new(n, 100)).is_none()));
    assert_eq!(counter(&engine, "average_thousandths"), 126_562);
}

/// At 8 Mbit/s a class sends 1000 bytes, the usual packet, in a millisecond. In 10.9 ms of idle
/// time the average decays by 3/4 for each of the ten packets that fit. The remaining 0.9 ms do not
/// count.
#[test]
fn the_average_decays_while_idle() {
    let words = [("weight", Value::Int(4)), ("min", packets(50)), ("max", packets(60))];
    let build = || {
        let mut engine = link(8_000_000, queue("red", Limit::Packets(60), &words)).unwrap();
        let mut average = 0.0;
        for n in 0..20 {
            arrive(&mut engine, 0, Packet::new(n, 100));
            average += (f64::from(n) - average) / 4.0;
        }
        while engine.dequeue(5 * MS).is_some() {}
        (engine, average)
    };
    let (mut engine, average) = build();
    arrive(&mut engine, 5 * MS + 10_900_000, Packet::new(99, 100));
    let expected = average * 0.75f64.powi(10) * 1000.0;
    let seen = counter(&engine, "average_thousandths") as f64;
    assert!((seen - expected).abs() <= 1.0, "{seen}, not {expected}");
    // In two idle times of 5.45 ms five packets fit each. The packet between them leaves at once.
    let (mut engine, average) = build();
    for at in [5_450_000, 10_900_000] {
        arrive(&mut engine, 5 * MS + at, Packet::new(99, 100));
        engine.dequeue(5 * MS + at);
    }
    let expected = average * 0.75f64.powi(10) * 1000.0;
    let seen = counter(&engine, "average_thousandths") as f64;
    assert!((seen - expected).abs() <= 1.0, "{seen}, not {expected}");
    // After years of idle time the average is 0.
    let (mut engine, _) = build();
    arrive(&mut engine, 1 << 60, Packet::new(99, 100));
    assert_eq!(counter(&engine, "average_thousandths"), 0);
}

/// docs/reference/altq.md 7.1: after n = idle / 800 us - 1 packets the average is that times
/// (3/4)^n, and then the arriving packet finds an empty queue. The rate of the link has no part in
/// it. After more than a minute the average is 0. A class's average stands still.
#[test]
fn the_average_of_an_interface_decays_as_in_altq() {
    let seen = |variant, idle: u64| {
        let choice = ("variant", Value::Choice(variant));
        let words = [("weight", Value::Int(4)), ("min", packets(50)), ("max", packets(60)), choice];
        let mut engine = link(123_000_000, queue("red", Limit::Packets(60), &words)).unwrap();
        let mut average = 0.0;
        for n in 0..20 {
            arrive(&mut engine, 0, Packet::new(n, 100));
            average += (f64::from(n) - average) / 4.0;
        }
        while engine.dequeue(5 * MS).is_some() {}
        arrive(&mut engine, 5 * MS + idle, Packet::new(99, 100));
        (counter(&engine, "average_thousandths") as f64, average * 1000.0)
    };
    for (variant, idle, samples) in [
        ("altq-interface", 700_000, 1),
        ("altq-interface", 8_700_000, 10),
        ("altq", 8_700_000, 1),
        ("altq-interface", 60 * 1_000 * MS + 1, 10_000),
    ] {
        let (seen, average) = seen(variant, idle);
        let expected = average * 0.75f64.powi(samples);
        assert!((seen - expected).abs() <= 1.0, "{variant}, {idle} ns: {seen}, not {expected}");
    }
    let choice = ("variant", Value::Choice("altq-interface"));
    let wrong = queue("red", Limit::Packets(60), &[choice, ("packetsize", Value::Bytes(500))]);
    assert_eq!(link(1_000_000, wrong).err().and_then(|error| error.word), Some("packetsize"));
}

/// With an average above max an empty queue drops arriving packets. But each arrival lowers the
/// average, also when arrivals are closer together than a packet's time.
#[test]
fn an_idle_class_recovers_under_fast_arrivals() {
    let words = [("weight", Value::Int(16)), ("min", packets(5)), ("max", packets(10))];
    let mut engine = link(8_000_000, queue("red", Limit::Packets(60), &words)).unwrap();
    for n in 0..60 {
        arrive(&mut engine, 0, Packet { ecn: 2, ..Packet::new(n, 100) });
        if n == 30 {
            change(&mut engine, 0, queue("red", Limit::Packets(60), &[("weight", Value::Int(1)), words[1], words[2]]))
                .unwrap();
        }
    }
    change(&mut engine, 0, queue("red", Limit::Packets(60), &words)).unwrap();
    while engine.dequeue(0).is_some() {}
    let before = counter(&engine, "average_thousandths");
    assert!(before >= 10_000, "{before}");
    // Five packets arrive in the time of a usual packet, and each is a sample of the length.
    let first = (1..1000).find(|n| arrive(&mut engine, n * MS / 5, Packet::new(99, 100)).is_none()).expect("recovers");
    // After n samples the average a is a (15/16)^n. The least n for which that is below 10:
    let needed = ((before as f64 / 10_000.0).ln() / (16.0f64 / 15.0).ln()).floor() as u64 + 1;
    // Below max at most one packet in ten is dropped.
    assert!((needed..needed + 30).contains(&first), "{first}, though {needed} samples take it below max");
}

#[test]
fn wrong_words_are_errors() {
    let error = |words: &[(&'static str, Value)]| match link(8_000_000, queue("red", Limit::Packets(60), words)) {
        Ok(_) => panic!("{words:?} was taken"),
        Err(error) => error.word.expect("names its word"),
    };
    assert_eq!(error(&[("weight", Value::Int(500))]), "weight");
    assert_eq!(error(&[("min", packets(0))]), "min");
    assert_eq!(error(&[("min", packets(20)), ("max", packets(20))]), "max");
    assert_eq!(error(&[("min", Value::Limit(Limit::Bytes(5)))]), "min");
    assert_eq!(error(&[("max", packets(61))]), "max");
    assert_eq!(error(&[("probability", Value::Fraction(0))]), "probability");
    assert_eq!(error(&[("harddrop", Value::Flag)]), "harddrop");
    assert_eq!(error(&[("gentle", Value::Flag), ("variant", Value::Choice("altq"))]), "gentle");
}
