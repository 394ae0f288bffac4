//! BLUE: the steps of its probability by hand, its random drops by statistics. RIO: which packets
//! each level counts, and its RED.

use crate::support::queue as support;

use altq_engine::settings::{Limit, Value};
use altq_engine::{Engine, Packet};
use support::{Random, arrive, counter, link, queue, uneven};

const MS: u64 = 1_000_000;

fn blue(words: &[(&'static str, Value)]) -> Engine {
    link(8_000_000, queue("blue", Limit::Packets(4), words)).unwrap()
}

#[test]
fn blue_goes_up_on_overflow_and_down_after_idleness() {
    let mut engine = blue(&[]);
    let probability = |engine: &Engine| counter(engine, "probability_billionths");
    (0..4).for_each(|n| assert_eq!(arrive(&mut engine, 0, Packet::new(n, 100)), None));
    assert_eq!(arrive(&mut engine, 0, Packet::new(4, 100)), Some("queue_full"));
    assert_eq!(probability(&engine), 125_000_000);
    // The probability does not rise again within a millisecond; after that it does.
    arrive(&mut engine, MS, Packet::new(5, 100));
    assert_eq!(probability(&engine), 125_000_000);
    arrive(&mut engine, MS + 1, Packet::new(6, 100));
    assert_eq!(probability(&engine), 250_000_000);
    // It rises to 1, and no further.
    for n in 2..22 {
        arrive(&mut engine, n * 2 * MS, Packet::new(7, 100));
    }
    assert_eq!(probability(&engine), 1_000_000_000);
    // It falls by 1/4000 after more than a millisecond of idle time, and to at most 1/4000 after
    // more than a second. With at most one packet waiting, nothing is dropped at random.
    let mut now = 50 * MS;
    let idle = |engine: &mut Engine, now: &mut u64, time: u64| {
        while engine.dequeue(*now).is_some() {}
        *now += time;
        assert_eq!(arrive(engine, *now, Packet::new(9, 100)), None);
        counter(engine, "probability_billionths")
    };
    assert_eq!(idle(&mut engine, &mut now, MS), 1_000_000_000);
    assert_eq!(idle(&mut engine, &mut now, MS + 1), 999_750_000);
    assert_eq!(idle(&mut engine, &mut now, 1_000 * MS), 999_500_000);
    assert_eq!(idle(&mut engine, &mut now, 1_000 * MS + 1), 250_000);
    assert_eq!(idle(&mut engine, &mut now, 2 * MS), 0);
    assert_eq!(idle(&mut engine, &mut now, 2 * MS), 0);
}

/// At a probability of 1/8 or 1/4 packets are dropped independently: their number is binomial, and
/// within five standard deviations of its mean.
#[test]
fn blue_drops_by_its_probability() {
    for (overflows, p, ecn) in [(1, 0.125, 0), (2, 0.25, 0), (1, 0.125, 2)] {
        let words = [("holdtime", Value::Time(0)), ("ecn", Value::Flag)];
        let mut engine = link(8_000_000, queue("blue", Limit::Packets(20), &words)).unwrap();
        engine.set_seed(11);
        let mut now = 0;
        for n in 0.. {
            now += 1;
            if arrive(&mut engine, now, Packet::new(n, 100)) == Some("queue_full")
                && counter(&engine, "probability_billionths") as f64 >= p * 1e9
            {
                break;
            }
        }
        assert_eq!(counter(&engine, "probability_billionths"), overflows * 125_000_000);
        while engine.backlog() > 10 {
            engine.dequeue(now);
        }
        let before = (counter(&engine, "prob_drop"), counter(&engine, "prob_mark"));
        let n = 200_000u32;
        for handle in 0..n {
            if arrive(&mut engine, now, Packet { ecn, ..Packet::new(handle, 100) }).is_none() {
                engine.dequeue(now);
            }
        }
        let hits = (counter(&engine, "prob_drop") - before.0, counter(&engine, "prob_mark") - before.1);
        assert_eq!((hits.0 == 0, hits.1 == 0), (ecn != 0, ecn == 0));
        let (hits, n) = ((hits.0 + hits.1) as f64, f64::from(n));
        assert!((hits - n * p).abs() < 5.0 * (n * p * (1.0 - p)).sqrt(), "{hits} of {n}");
    }
}

fn packets(n: u32) -> Value {
    Value::Limit(Limit::Packets(n))
}

const AF11: u8 = 10;
const AF12: u8 = 12;
const AF13: u8 = 14;

/// RIO with min and max of 10 and 20 packets for low, 6 and 16 for medium, 2 and 12 for high. With
/// weight 1 an average equals the length that the last packet found.
fn rio(more: &[(&'static str, Value)]) -> Engine {
    let words = [
        ("low-min", packets(10)),
        ("low-max", packets(20)),
        ("medium-min", packets(6)),
        ("medium-max", packets(16)),
        ("high-min", packets(2)),
        ("high-max", packets(12)),
        ("weight", Value::Int(1)),
    ];
    let mut engine = link(8_000_000, queue("rio", Limit::Packets(60), &[&words, more].concat())).unwrap();
    engine.set_seed(21);
    engine
}

/// Fills the queue with as many packets of each DSCP as `fill` says. Then `n` packets of `dscp`
/// arrive, and after each that is queued one leaves. Returns the intervals from one drop to the
/// next, in packets.
fn hits(engine: &mut Engine, fill: &[(u8, u32)], dscp: u8, n: u32) -> Vec<u64> {
    let mut handle = 0;
    for (dscp, count) in fill {
        let mut queued = 0;
        while queued < *count {
            queued += u32::from(arrive(engine, 0, Packet { dscp: *dscp, ..Packet::new(handle, 100) }).is_none());
            handle += 1;
        }
    }
    let (mut since, mut all, mut begun) = (0, Vec::new(), false);
    for _ in 0..n {
        since += 1;
        if arrive(engine, 0, Packet { dscp, ..Packet::new(handle, 100) }).is_some() {
            if begun {
                all.push(since);
            }
            (since, begun) = (0, true);
        } else {
            // The packet that leaves has the same precedence: no other was queued.
            engine.dequeue(0);
        }
        handle += 1;
    }
    all
}

/// With 11 low packets waiting, p = 0.1 (11 - 10) / 10 = 0.01 for another low one. With 11 medium
/// ones it is 0.05 for medium packets, with 11 high ones 0.09 for high packets. As in RED, the
/// intervals between drops are uniform from 1 to 1/p - 1 packets.
#[test]
fn each_level_has_its_own_red() {
    for (dscp, p) in [(AF11, 0.01), (AF12, 0.05), (AF13, 0.09)] {
        let all = hits(&mut rio(&[]), &[(dscp, 11)], dscp, 300_000);
        let n = all.len() as f64;
        let mean = all.iter().sum::<u64>() as f64 / n;
        let most = 1.0 / p - 1.0;
        let allowed = 5.0 * (most * most / 12.0 / n).sqrt();
        // Where 1/p is not an integer (p = 0.09) the longest interval is less likely, and the mean
        // up to half a packet less.
        let off = (mean - (most + 1.0) / 2.0).abs();
        assert!(off < allowed + if p == 0.09 { 0.5 } else { 0.0 }, "{mean} at {p}");
        if p != 0.09 {
            let counts: Vec<u64> =
                (1..=most.round() as u64).map(|gap| all.iter().filter(|seen| **seen == gap).count() as u64).collect();
            assert_eq!(counts.iter().sum::<u64>(), all.len() as u64);
            assert!(uneven(&counts) < 5.0, "{counts:?}");
        }
    }
}

#[test]
fn high_precedence_sees_all_and_low_only_itself() {
    // With 12 low packets waiting, a packet of high precedence is dropped, though no other of high
    // precedence waits.
    let mut engine = rio(&[]);
    let mut handle = 0;
    while engine.backlog() < 12 {
        arrive(&mut engine, 0, Packet { dscp: AF11, ..Packet::new(handle, 100) });
        handle += 1;
    }
    assert_eq!(arrive(&mut engine, 0, Packet { dscp: AF13, ..Packet::new(1000, 100) }), Some("early"));
    assert_eq!(counter(&engine, "high_forced_drop"), 1);
    assert_eq!(counter(&engine, "high_average_thousandths"), 12_000);
    // With 11 high packets and no low one, low packets are queued: their average counts low ones
    // only.
    let mut engine = rio(&[]);
    handle = 0;
    while engine.backlog() < 11 {
        arrive(&mut engine, 0, Packet { dscp: AF13, ..Packet::new(handle, 100) });
        handle += 1;
    }
    for n in 0..9 {
        assert_eq!(arrive(&mut engine, 0, Packet { dscp: AF11, ..Packet::new(n, 100) }), None);
    }
    assert_eq!(
        (counter(&engine, "low_average_thousandths"), counter(&engine, "medium_average_thousandths")),
        (8_000, 8_000)
    );
    assert_eq!(counter(&engine, "high_average_thousandths"), 19_000);
    // A packet without a drop precedence (best effort, class selectors) counts as low. EF counts as
    // high, because of its two bits (docs/reference/altq.md 7.2).
    let mut engine = rio(&[]);
    for (n, dscp) in [0, 8, 46, AF12].into_iter().enumerate() {
        arrive(&mut engine, 0, Packet { dscp, ..Packet::new(n as u32, 100) });
    }
    engine.enqueue(0, 1, Packet { dscp: AF13, ..Packet::new(9, 100) });
    assert_eq!(counter(&engine, "low_average_thousandths"), 1_000, "found by the second");
    assert_eq!(counter(&engine, "medium_average_thousandths"), 2_000, "found by AF12: the two low ones");
    assert_eq!(counter(&engine, "high_average_thousandths"), 4_000);
}

/// After random arrivals and departures the level `high` counts the packets that wait.
#[test]
fn levels_count_what_waits() {
    let mut engine = rio(&[("ecn", Value::Flag)]);
    let mut random = Random::new(5);
    let mut waiting: std::collections::VecDeque<u8> = Default::default();
    for handle in 0..20_000 {
        if random.below(100) < 51 {
            let dscp = random.below(64) as u8;
            if arrive(&mut engine, 0, Packet { dscp, ecn: random.below(4) as u8, ..Packet::new(handle, 100) }).is_none()
            {
                waiting.push_back(dscp);
            }
        } else {
            assert_eq!(engine.dequeue(0).map(|d| d.packet.dscp), waiting.pop_front());
        }
        if handle % 100 == 0 {
            // A high packet's average counts all packets that wait.
            let found = waiting.len() as u64;
            if arrive(&mut engine, 0, Packet { dscp: AF13, ..Packet::new(handle, 100) }).is_none() {
                waiting.push_back(AF13);
            }
            assert_eq!(counter(&engine, "high_average_thousandths"), 1000 * found);
        }
    }
    let marks: u64 = ["low", "medium", "high"]
        .iter()
        .map(|level| {
            counter(&engine, &format!("{level}_prob_mark")) + counter(&engine, &format!("{level}_forced_mark"))
        })
        .sum();
    assert_eq!(marks, engine.own_counters(1).marked_packets);
    assert!(marks > 100);
}

#[test]
fn wrong_words_are_errors() {
    let error = |name, words: &[(&'static str, Value)]| match link(8_000_000, queue(name, Limit::Packets(60), words)) {
        Ok(_) => panic!("{words:?} was taken"),
        Err(error) => error.word.expect("names its word"),
    };
    assert_eq!(error("blue", &[("increment", Value::Fraction(0))]), "increment");
    assert_eq!(error("blue", &[("decrement", Value::Fraction(0))]), "decrement");
    assert_eq!(error("blue", &[("holdtime", Value::Time(2_000 * MS))]), "holdtime");
    let altq = ("variant", Value::Choice("altq"));
    assert_eq!(error("blue", &[("maxpmark", Value::Int(1000))]), "maxpmark");
    assert_eq!(error("blue", &[altq, ("increment", Value::Fraction(1))]), "increment");
    assert_eq!(error("blue", &[altq, ("decrement", Value::Fraction(1))]), "decrement");
    for limit in [Limit::Bytes(60_000), Limit::Packets(10_001)] {
        assert_eq!(link(8_000_000, queue("blue", limit, &[altq])).map(|_| ()).unwrap_err().word, Some("variant"));
    }
    assert_eq!(error("rio", &[("low-max", packets(30))]), "low-max");
    assert_eq!(error("rio", &[("high-min", packets(0))]), "high-min");
    assert_eq!(error("rio", &[("medium-max", packets(61))]), "medium-max");
    assert_eq!(error("rio", &[("medium-probability", Value::Fraction(0))]), "medium-probability");
    assert_eq!(error("rio", &[("low-min", Value::Limit(Limit::Bytes(3)))]), "low-min");
}
