//! RED against its paper's formulas: averages worked out by hand, probabilities by statistics.
//!
//! A sample of `n` intervals between drops, of mean m and standard deviation s, has a mean that is
//! normal around m with s/sqrt(n): five of those are allowed, which chance exceeds in one of 1.7
//! million samples. The seeds are fixed, so that a test that passes keeps passing.

#[path = "support/queue.rs"]
mod support;

use altq_engine::settings::{Limit, Value};
use altq_engine::{Engine, Packet};
use support::{arrive, change, counter, link, queue, uneven};

const MS: u64 = 1_000_000;

fn packets(n: u32) -> Value {
    Value::Limit(Limit::Packets(n))
}

/// RED on 60 packets from 5 to 15, at most 0.1, the average being what the last packet found.
fn red(more: &[(&'static str, Value)]) -> Engine {
    let mut words = vec![("min", packets(5)), ("max", packets(15)), ("weight", Value::Int(1))];
    words.extend_from_slice(more);
    link(8_000_000, queue("red", Limit::Packets(60), &words)).unwrap()
}

/// Lets `n` packets arrive at a queue of exactly `length` packets. The intervals between those that
/// are dropped.
fn intervals(engine: &mut Engine, length: u32, n: u32, ecn: u8) -> Vec<u64> {
    engine.set_seed(7);
    let mut handle = 0;
    let mut fill = 0;
    // Some of the first are dropped; and the first interval begins at a drop.
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

/// The paper's formula with p = 0.1 (10 - 5) / (15 - 5) = 0.05: after a drop, `count` is 1 at the
/// next packet, so that one of 19 packets is dropped, each as likely (p / (1 - count p) = 1 / (20 -
/// count)): a mean of 10.
#[test]
fn drops_are_spread_evenly() {
    let all = intervals(&mut red(&[]), 10, 1_000_000, 0);
    near(&all, 10.0, ((19.0f64.powi(2) - 1.0) / 12.0).sqrt());
    let counts: Vec<u64> =
        (1..=19).map(|interval| all.iter().filter(|seen| **seen == interval).count() as u64).collect();
    assert_eq!(counts.iter().sum::<u64>(), all.len() as u64, "none is longer");
    assert!(uneven(&counts) < 5.0, "{counts:?}");
}

/// The same for other averages and probabilities: one of 1/p - 1 packets.
#[test]
fn the_probability_grows_with_the_average() {
    for (length, billionths, most) in
        [(6, 100_000_000, 99.0), (7, 100_000_000, 49.0), (14, 100_000_000, 9.0 * 10.0 / 81.0), (10, 20_000_000, 99.0)]
    {
        let p = f64::from(billionths) / 1e9 * f64::from(length - 5) / 10.0;
        let all = intervals(&mut red(&[("probability", Value::Fraction(billionths))]), length, 400_000, 0);
        // Directly from the formula, as 1/p may not be whole: P(k) = p / (1 - k p) times the chance
        // to get there.
        let (mut left, mut mean, mut square, mut k) = (1.0, 0.0, 0.0, 1.0);
        while left > 1e-12 {
            let here = left * (p / (1.0 - k * p)).clamp(0.0, 1.0);
            let here = if 1.0 - k * p <= p { left } else { here };
            (mean, square) = (mean + here * k, square + here * k * k);
            (left, k) = (left - here, k + 1.0);
        }
        near(&all, mean, (square - mean * mean).sqrt());
        // What it comes to: an even choice of so many packets, where 1/p is whole.
        assert!((1.0 / p).fract() > 1e-9 || ((most + 1.0) / 2.0 - mean).abs() < 1e-6, "{mean}");
    }
}

/// Floyd 2000: at 20, a third of the way from 15 to 30, p = 0.1 + 0.9 / 3 = 0.4: 0.4 / 0.6 of the
/// packets behind a drop are dropped, and all that come second (0.4 / 0.2).
#[test]
fn gentle_goes_on_above_max() {
    let all = intervals(&mut red(&[("gentle", Value::Flag)]), 20, 300_000, 0);
    let second = all.iter().filter(|n| **n == 2).count();
    assert!(all.iter().all(|n| *n <= 2));
    let (n, share) = (all.len() as f64, second as f64 / all.len() as f64);
    assert!((share - 1.0 / 3.0).abs() < 5.0 * (2.0 / 9.0 / n).sqrt(), "{share}");
    // Without it all are dropped from max on; with it from where p = 0.1 + 0.9 (22 - 15) / 15 is
    // above 1/2, as then p / (1 - p) is above 1.
    for (words, length) in [(&[("gentle", Value::Flag)][..], 22), (&[], 15)] {
        let mut engine = red(words);
        let drops = (0..2000).filter(|n| arrive(&mut engine, 0, Packet::new(*n, 100)).is_some()).count();
        assert_eq!(u64::from(engine.backlog()), 2000 - drops as u64);
        assert_eq!(engine.backlog(), length, "none passes when the average is {length}");
    }
}

/// docs/reference/altq.md 7.1: p / (2 - count p): one of 39 packets, a mean of 20 for p = 0.05.
#[test]
fn altq_drops_half_as_many() {
    let altq = ("variant", Value::Choice("altq"));
    let all = intervals(&mut red(&[altq]), 10, 1_000_000, 0);
    near(&all, 20.0, ((39.0f64.powi(2) - 1.0) / 12.0).sqrt());
    let counts: Vec<u64> =
        (1..=39).map(|interval| all.iter().filter(|seen| **seen == interval).count() as u64).collect();
    assert_eq!(counts.iter().sum::<u64>(), all.len() as u64);
    assert!(uneven(&counts) < 5.0, "{counts:?}");
    // The packet that first finds the average above min is never dropped, nor one that finds at
    // most one packet waiting.
    let sure = [
        ("min", packets(1)),
        ("max", packets(2)),
        ("probability", Value::Fraction(1_000_000_000)),
        ("weight", Value::Int(1)),
        altq,
    ];
    let mut engine = link(8_000_000, queue("red", Limit::Packets(60), &sure)).unwrap();
    let fates: Vec<_> = (0..4).map(|n| arrive(&mut engine, 0, Packet::new(n, 100)).is_none()).collect();
    assert_eq!(fates, [true, true, false, false], "0 and 1 waiting: passed; 2 is max: forced");
}

#[test]
fn packets_that_understand_it_are_marked() {
    let ecn = ("ecn", Value::Flag);
    let mut engine = red(&[ecn]);
    let all = intervals(&mut engine, 10, 300_000, 2);
    near(&all, 10.0, ((19.0f64.powi(2) - 1.0) / 12.0).sqrt());
    // The one before the first interval, and those that were dropped while the queue was filled
    // (they do not understand it).
    assert_eq!(counter(&engine, "prob_mark"), all.len() as u64 + 1);
    assert_eq!(engine.own_counters(1).marked_packets, counter(&engine, "prob_mark"));
    assert_eq!(counter(&engine, "prob_drop") + counter(&engine, "forced_drop"), engine.own_counters(1).dropped_packets);
    // Beyond max: marked, unless that is not wanted; ALTQ never does.
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

/// avg += (length - avg) / 4 for lengths 0, 1, 2, 3: 0, 1/4, 11/16, 81/64.
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
    // In bytes: lengths 0, 100, 200, 300.
    let words = [("weight", Value::Int(4)), ("min", Value::Limit(Limit::Bytes(2000)))];
    let mut engine = link(8_000_000, queue("red", Limit::Bytes(60_000), &words)).unwrap();
    (0..4).for_each(|n| assert!(arrive(&mut engine, 0, Packet::new(n, 100)).is_none()));
    assert_eq!(counter(&engine, "average_thousandths"), 126_562);
}

/// An idle class could have sent 1000 bytes a millisecond at 8 Mbit/s. The average of 15.75 (63/4,
/// see the loop) decays by 3/4 for each of the ten that fit into 10.9 ms, and what is left over
/// counts with the next idle time.
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
    // In two idle times of 5.45 ms, with nothing queued in between (dropped: larger than the queue
    // takes in bytes is not possible here, so it is sent at once): 5 packets, and 5.
    let (mut engine, average) = build();
    for at in [5_450_000, 10_900_000] {
        arrive(&mut engine, 5 * MS + at, Packet::new(99, 100));
        engine.dequeue(5 * MS + at);
    }
    let expected = average * 0.75f64.powi(10) * 1000.0;
    let seen = counter(&engine, "average_thousandths") as f64;
    assert!((seen - expected).abs() <= 1.0, "{seen}, not {expected}");
    // Years of it: nothing is left.
    let (mut engine, _) = build();
    arrive(&mut engine, 1 << 60, Packet::new(99, 100));
    assert_eq!(counter(&engine, "average_thousandths"), 0);
}

/// With an average above max an idle class drops what comes, but every arrival counts, also those
/// that are closer than a packet's time.
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
    // Five arrivals a packet's time: each is a sample.
    let first = (1..1000).find(|n| arrive(&mut engine, n * MS / 5, Packet::new(99, 100)).is_none()).expect("recovers");
    // From the average a to below 10 within n packets' times: a (15/16)^n.
    let needed = ((before as f64 / 10_000.0).ln() / (16.0f64 / 15.0).ln()).floor() as u64 + 1;
    // Below max one in ten is dropped at most.
    assert!((needed..needed + 30).contains(&first), "{first}, though {needed} samples take it below max");
}

#[test]
fn what_does_not_go_together_is_refused() {
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
