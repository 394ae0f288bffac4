//! PIE against the pseudo-code of RFC 8033, appendices A and B, implemented here a second time,
//! with a timer that makes each update. Both drop the same packets at the same times.

use crate::support::queue as support;

use std::collections::VecDeque;

use altq_engine::settings::{Limit, Value};
use altq_engine::{Engine, Packet};
use support::{Fate, Random, Step, counter, fates, link, queue, traffic};

const MEAN_PKTSIZE: u32 = 1500;
const T_UPDATE: u64 = 15_000_000;
const QDELAY_REF: f64 = 0.015;
const MAX_BURST: f64 = 0.150;

struct Reference {
    limit: usize,
    ecn: bool,
    derand: bool,
    queue: VecDeque<(u64, Packet)>,
    drop_prob: f64,
    current_qdelay: f64,
    qdelay_old: f64,
    burst_allowance: f64,
    accu_prob: f64,
    next_update: Option<u64>,
    random: Random,
    fates: Vec<Fate>,
    marked: Vec<u32>,
}

impl Reference {
    fn new(seed: u64, limit: usize, ecn: bool, derand: bool) -> Reference {
        Reference {
            limit,
            ecn,
            derand,
            queue: VecDeque::new(),
            drop_prob: 0.0,
            current_qdelay: 0.0,
            qdelay_old: 0.0,
            burst_allowance: MAX_BURST,
            accu_prob: 0.0,
            next_update: None,
            random: Random::of_class(seed),
            fates: Vec::new(),
            marked: Vec::new(),
        }
    }

    /// Makes the updates that the timer has made until `now`. It starts when the queue is first
    /// used.
    fn timer(&mut self, now: u64) {
        let next = self.next_update.get_or_insert(now + T_UPDATE);
        while *next <= now {
            *next += T_UPDATE;
            if self.queue.is_empty() {
                self.current_qdelay = 0.0;
            }
            let mut p = 0.125 * (self.current_qdelay - QDELAY_REF) + 1.25 * (self.current_qdelay - self.qdelay_old);
            if self.drop_prob < 0.000001 {
                p /= 2048.0;
            } else if self.drop_prob < 0.00001 {
                p /= 512.0;
            } else if self.drop_prob < 0.0001 {
                p /= 128.0;
            } else if self.drop_prob < 0.001 {
                p /= 32.0;
            } else if self.drop_prob < 0.01 {
                p /= 8.0;
            } else if self.drop_prob < 0.1 {
                p /= 2.0;
            }
            if self.drop_prob >= 0.1 && p > 0.02 {
                p = 0.02;
            }
            self.drop_prob += p;
            if self.current_qdelay < QDELAY_REF / 2.0 && self.qdelay_old < QDELAY_REF / 2.0 {
                self.drop_prob *= 0.98;
            }
            self.drop_prob = self.drop_prob.clamp(0.0, 1.0);
            self.qdelay_old = self.current_qdelay;
            self.burst_allowance = (self.burst_allowance - 0.015).max(0.0);
            // 0.150 less ten times 0.015 is not exactly 0.
            if self.burst_allowance < 1e-9 {
                self.burst_allowance = 0.0;
            }
        }
    }

    fn drop_early(&mut self) -> bool {
        let bytes: u32 = self.queue.iter().map(|(_, packet)| packet.len).sum();
        if (self.qdelay_old < QDELAY_REF / 2.0 && self.drop_prob < 0.2) || bytes <= 2 * MEAN_PKTSIZE {
            return false;
        }
        if self.derand {
            // Appendix B.
            if self.drop_prob == 0.0 {
                self.accu_prob = 0.0;
            }
            self.accu_prob += self.drop_prob;
            if self.accu_prob < 0.85 {
                return false;
            }
            if self.accu_prob >= 8.5 {
                return true;
            }
        }
        self.random.fraction() < self.drop_prob
    }

    fn enqueue(&mut self, now: u64, packet: Packet) {
        self.timer(now);
        if self.queue.len() >= self.limit {
            self.accu_prob = 0.0;
            return self.fates.push((now, packet.handle, 'd'));
        }
        if self.burst_allowance == 0.0 && self.drop_early() {
            self.accu_prob = 0.0;
            if !(self.ecn && packet.ecn != 0 && self.drop_prob <= 0.1) {
                return self.fates.push((now, packet.handle, 'd'));
            }
            self.marked.push(packet.handle);
        }
        if self.drop_prob == 0.0 && self.current_qdelay < QDELAY_REF / 2.0 && self.qdelay_old < QDELAY_REF / 2.0 {
            self.burst_allowance = MAX_BURST;
        }
        self.queue.push_back((now, packet));
    }

    fn dequeue(&mut self, now: u64) {
        self.timer(now);
        if let Some((arrived, packet)) = self.queue.pop_front() {
            self.current_qdelay = (now - arrived) as f64 / 1e9;
            let mark = packet.ecn == 3 || self.marked.contains(&packet.handle);
            self.fates.push((now, packet.handle, if mark { 'm' } else { 's' }));
        }
    }

    fn run(mut self, traffic: &[Step]) -> Vec<Fate> {
        for step in traffic {
            match *step {
                Step::Arrival(now, packet) => self.enqueue(now, packet),
                // The engine does not ask an empty queue.
                Step::Departure(now) if !self.queue.is_empty() => self.dequeue(now),
                Step::Departure(_) => {}
            }
        }
        self.fates.sort_unstable();
        self.fates
    }
}

fn pie(seed: u64, limit: u32, ecn: bool, derand: bool) -> Engine {
    let words = [("ecn", ecn), ("derand", derand)];
    let words: Vec<_> = words.iter().filter(|(_, on)| *on).map(|(word, _)| (*word, Value::Flag)).collect();
    let mut engine = link(10_000_000, queue("pie", Limit::Packets(limit), &words)).unwrap();
    engine.set_seed(seed);
    engine
}

#[test]
fn the_same_drops_on_random_traffic() {
    let mut hits = 0;
    for seed in 1..=60 {
        let (ecn, derand) = (seed % 2 == 0, seed % 4 < 2);
        let traffic = traffic(seed, 6000);
        let seen = fates(&mut pie(seed, 300, ecn, derand), &traffic);
        let expected = Reference::new(seed, 300, ecn, derand).run(&traffic);
        let differs = seen.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(differs.map(|at| (seen[at], expected[at])), None, "seed {seed}");
        assert_eq!(seen.len(), expected.len());
        hits += seen.iter().filter(|(_, _, fate)| *fate != 's').count();
    }
    assert!(hits > 10_000, "{hits} drops and marks");
}

/// For a minute a packet of 1000 bytes arrives every 900 us, and one leaves every millisecond. So
/// one in ten must be dropped, and the delay settles at the target, 15 ms (RFC 8033, 4.2).
fn standing(engine: &mut Engine) -> (Vec<Step>, Vec<Fate>) {
    let mut traffic: Vec<Step> = (0..66_000).map(|n| Step::Arrival(n * 900_000, Packet::new(n as u32, 1000))).collect();
    traffic.extend((0..60_000).map(|n| Step::Departure(n * 1_000_000 + 1)));
    traffic.sort_by_key(|step| match step {
        Step::Arrival(now, _) | Step::Departure(now) => *now,
    });
    let seen = fates(engine, &traffic);
    (traffic, seen)
}

#[test]
fn the_delay_comes_to_the_target() {
    for derand in [false, true] {
        let (traffic, seen) = standing(&mut pie(3, 10_000, false, derand));
        assert_eq!(seen, Reference::new(3, 10_000, false, derand).run(&traffic));
        let sojourns: Vec<f64> = seen
            .iter()
            .filter(|(now, _, fate)| *fate == 's' && *now > 20_000_000_000)
            .map(|(now, handle, _)| (*now - u64::from(*handle) * 900_000) as f64 / 1e6)
            .collect();
        let mean = sojourns.iter().sum::<f64>() / sojourns.len() as f64;
        assert!((mean - 15.0).abs() < 1.5, "{mean} ms");
        let dropped = seen.iter().filter(|(_, _, fate)| *fate == 'd').count();
        assert!((5_000..8_000).contains(&dropped), "{dropped} of 66000");
    }
}

/// De-randomization (RFC 8033, 5.4): from one drop to the next, the packets' probabilities add up
/// to at least 0.85 and at most 8.5.
#[test]
fn derand_keeps_drops_apart() {
    let mut gaps: Vec<u32> = Vec::new();
    let mut plain: Vec<u32> = Vec::new();
    for (derand, gaps) in [(true, &mut gaps), (false, &mut plain)] {
        let (_, seen) = standing(&mut pie(9, 10_000, false, derand));
        let mut dropped: Vec<u32> = seen
            .iter()
            .filter(|(now, _, fate)| *fate == 'd' && *now > 20_000_000_000)
            .map(|(_, handle, _)| *handle)
            .collect();
        dropped.sort_unstable();
        gaps.extend(dropped.windows(2).map(|pair| pair[1] - pair[0]));
    }
    let close = |gaps: &[u32]| gaps.iter().filter(|gap| **gap < 4).count() as f64 / gaps.len() as f64;
    // With p about 0.1, a quarter of independent drops is within three packets of the one before.
    assert!(close(&gaps) == 0.0 && close(&plain) > 0.2, "{} {}", close(&gaps), close(&plain));
    assert!(gaps.iter().max() <= Some(&200));
}

/// After a pause of any length the probability is the one that the timer would have made.
#[test]
fn a_long_silence_is_made_up_for() {
    let fill = |engine: &mut Engine, reference: &mut Reference, stop: u64| {
        for n in 0..stop {
            let packet = Packet::new(n as u32, 1000);
            engine.enqueue(n * 900_000, 1, packet);
            engine.drops().count();
            reference.enqueue(n * 900_000, packet);
            if n % 10 < 9 {
                engine.dequeue(n * 900_000);
                reference.dequeue(n * 900_000);
            }
        }
    };
    // Pauses of so many seconds, with packets waiting (the class may not send) and with none.
    for silence in [1, 10, 15, 16, 100, 3000] {
        for empty in [false, true] {
            let (mut engine, mut reference) = (pie(5, 10_000, false, false), Reference::new(5, 10_000, false, false));
            fill(&mut engine, &mut reference, 3000);
            let now = 3000 * 900_000;
            while empty && engine.dequeue(now).is_some() {
                reference.dequeue(now);
            }
            let now = now + silence * 1_000_000_000;
            engine.enqueue(now, 1, Packet::new(9999, 1000));
            reference.enqueue(now, Packet::new(9999, 1000));
            let seen = counter(&engine, "probability_billionths") as f64 / 1e9;
            assert!(
                (seen - reference.drop_prob).abs() < 1e-6 * reference.drop_prob + 2e-9,
                "{seen}, not {} after {silence} s",
                reference.drop_prob
            );
        }
    }
    // A pause of a century takes a bounded number of steps.
    let mut engine = pie(5, 10_000, false, false);
    engine.enqueue(0, 1, Packet::new(0, 1000));
    engine.enqueue(1 << 62, 1, Packet::new(1, 1000));
    assert_eq!(counter(&engine, "probability_billionths"), 0);
}

#[test]
fn wrong_words_are_errors() {
    let error = |words: &[(&'static str, Value)]| match link(8_000_000, queue("pie", Limit::Packets(60), words)) {
        Ok(_) => panic!("{words:?} was taken"),
        Err(error) => error.word.expect("names its word"),
    };
    assert_eq!(error(&[("target", Value::Time(0))]), "target");
    assert_eq!(error(&[("tupdate", Value::Time(1))]), "tupdate");
    assert_eq!(error(&[("max_burst", Value::Time(61_000_000_000))]), "max_burst");
    assert_eq!(error(&[("max_ecnth", Value::Fraction(1))]), "max_ecnth");
}
