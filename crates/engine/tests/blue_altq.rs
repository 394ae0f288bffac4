//! `variant altq` of BLUE, decision by decision against docs/reference/altq.md 7.4 written down
//! again as it stands there, with a driver that asks for a packet when its wire is free.

use crate::support::queue as support;

use std::collections::VecDeque;

use altq_engine::Packet;
use altq_engine::random::{GOLDEN_GAMMA, SplitMix64, mix};
use altq_engine::settings::{Limit, Value};
use support::{CLASS, Random, change, counter, link, queue};

/// At 8 Mbit/s a byte takes a microsecond.
const RATE: u64 = 8_000_000;
const MS: u64 = 1_000_000;

/// The rules. Times in microseconds.
struct Model {
    pmark: i64,
    maxpmark: i64,
    holdtime: u64,
    stamp: u64,
    idle: bool,
    waiting: VecDeque<(u32, bool)>,
    limit: usize,
    ecn: bool,
    random: SplitMix64,
}

impl Model {
    /// Returns the packet that is dropped, if one is.
    fn arrival(&mut self, now: u64, packet: &Packet) -> Option<u32> {
        if self.idle {
            self.idle = false;
            if now / 1_000_000 - self.stamp / 1_000_000 >= 2 {
                (self.pmark, self.stamp) = (1, now);
            } else if now - self.stamp > self.holdtime {
                (self.pmark, self.stamp) = ((self.pmark - 1).max(0), now);
            }
        }
        let drawn = (self.random.bits() % self.maxpmark as u64) as i64;
        let mut marked = packet.ecn == 3;
        if drawn < self.pmark && self.waiting.len() > 1 {
            if self.ecn && packet.ecn != 0 {
                marked = true;
            } else {
                return Some(packet.handle);
            }
        }
        self.waiting.push_back((packet.handle, marked));
        if self.waiting.len() <= self.limit {
            return None;
        }
        let place = self.random.bits() % self.waiting.len() as u64;
        if now - self.stamp > self.holdtime {
            (self.pmark, self.stamp) = ((self.pmark + self.maxpmark / 8).min(self.maxpmark), now);
        }
        self.waiting.remove(place as usize).map(|(handle, _)| handle)
    }

    fn dequeue(&mut self, now: u64) -> Option<(u32, bool)> {
        if self.waiting.is_empty() && !self.idle {
            (self.idle, self.stamp) = (true, now);
        }
        self.waiting.pop_front()
    }
}

#[test]
fn decision_by_decision() {
    let (mut dropped, mut victims, mut marked, mut fell, mut one) = (0, 0, 0, 0, 0);
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let (maxpmark, limit) = ([4000, 1000, 8, 100][seed as usize % 4], [3, 20, 60][seed as usize % 3]);
        let (holdtime, ecn) = ([MS, 50 * MS, 0][seed as usize / 4 % 3], random.below(2) == 0);
        let mut words = vec![("variant", Value::Choice("altq")), ("maxpmark", Value::Int(maxpmark))];
        words.push(("holdtime", Value::Time(holdtime)));
        if ecn {
            words.push(("ecn", Value::Flag));
        }
        let mut engine = link(RATE, queue("blue", Limit::Packets(limit), &words)).unwrap();
        engine.set_seed(seed);
        let generator = SplitMix64::new(mix(seed ^ (u64::from(CLASS) + 1).wrapping_mul(GOLDEN_GAMMA)));
        let mut model = Model {
            pmark: 0,
            maxpmark: maxpmark as i64,
            holdtime: holdtime / 1000,
            stamp: 0,
            idle: false,
            waiting: VecDeque::new(),
            limit: limit as usize,
            ecn,
            random: generator,
        };
        let (mut now, mut busy_until) = (0, None::<u64>);
        for handle in 0..4000 {
            // Overload, light load, bursts that find the link idle, and silence.
            now += match handle / 200 % 4 {
                0 => random.below(1_200_000),
                1 => random.below(4_000_000),
                2 if handle % 20 == 0 => 40 * MS,
                2 => random.below(300_000),
                _ if random.below(40) == 0 => random.below(3_500_000_000),
                _ => random.below(2_000_000),
            };
            let len = [100, 700, 1000, 1500][random.below(4) as usize];
            // What the wire takes until then, and what it takes at once if it is idle.
            while let Some(at) = busy_until.filter(|at| *at <= now) {
                busy_until = step(&mut engine, &mut model, at, &mut marked);
            }
            let packet = Packet { ecn: random.below(4) as u8, ..Packet::new(handle, len) };
            let before = model.pmark;
            engine.enqueue(now, CLASS, packet);
            let ours: Vec<u32> = engine.drops().map(|drop| drop.packet.handle).collect();
            let theirs = model.arrival(now / 1000, &packet);
            assert_eq!(ours, theirs.into_iter().collect::<Vec<_>>(), "seed {seed}, packet {handle}");
            assert_eq!(counter(&engine, "pmark"), model.pmark as u64, "seed {seed}, packet {handle}");
            dropped += ours.len();
            victims += ours.iter().filter(|gone| **gone != handle).count();
            fell += u32::from(model.pmark < before);
            one += u32::from(model.pmark == 1 && before == 0);
            if busy_until.is_none() {
                busy_until = step(&mut engine, &mut model, now, &mut marked);
            }
        }
    }
    assert!(dropped > 10_000 && victims > 5000 && marked > 5000, "{dropped} {victims} {marked}");
    assert!(fell > 1000 && one > 20, "{fell} {one}");
}

/// The wire is free: it takes a packet. Returns when it is free again.
fn step(engine: &mut altq_engine::Engine, model: &mut Model, now: u64, marked: &mut u32) -> Option<u64> {
    let ours = engine.dequeue(now).map(|departure| departure.packet);
    let theirs = model.dequeue(now / 1000);
    assert_eq!(ours.map(|packet| (packet.handle, packet.ecn == 3)), theirs, "at {now}");
    let packet = ours?;
    *marked += u32::from(packet.ecn == 3);
    Some(now + u64::from(packet.len) * 1000)
}

/// The probability stays when words change, as a part of the new maxpmark; the other variant begins
/// at 0.
#[test]
fn changes() {
    let words = |maxpmark| [("variant", Value::Choice("altq")), ("maxpmark", Value::Int(maxpmark))];
    let mut engine = link(RATE, queue("blue", Limit::Packets(2), &words(4000))).unwrap();
    for handle in 0..3 {
        engine.enqueue(2 * MS, CLASS, Packet::new(handle, 100));
    }
    assert_eq!((counter(&engine, "pmark"), engine.drops().count()), (500, 1));
    change(&mut engine, 2 * MS, queue("blue", Limit::Packets(2), &words(80))).unwrap();
    assert_eq!((counter(&engine, "pmark"), counter(&engine, "probability_billionths")), (10, 125_000_000));
    change(&mut engine, 2 * MS, queue("blue", Limit::Packets(2), &[])).unwrap();
    assert_eq!((counter(&engine, "probability_billionths"), engine.backlog()), (0, 2));
}
