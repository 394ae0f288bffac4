//! Lines on which controllers are tested.

// Each test uses a part of it.
#![allow(dead_code)]

use altq_adapt::{Adaptive, Answer, Controller, Decision, Load, PROBE_EVERY, Sample, Settings, TICK};
use altq_engine::units::{Nanos, Rate};

/// A millisecond.
pub const MS: Nanos = 1_000_000;
/// The delay of an idle line, there and back.
pub const EMPTY: i64 = 40_000_000;

/// A rate in Mbit/s.
pub fn mbit(n: u64) -> Rate {
    Rate::mbit_s(n)
}

/// The settings of most tests: 20 Mbit/s, from 5 to 60, target 30 ms.
pub fn usual() -> Settings {
    Settings::new(mbit(20), mbit(5), mbit(60), 30 * MS)
}

/// A link and the line after it. A queue grows between them as soon as the link's rate exceeds the
/// line's capacity. Traffic is a fluid of whole bits, in steps of a millisecond.
pub struct Line<C: Controller> {
    /// What sets the rate.
    pub controller: C,
    /// The present time.
    pub now: Nanos,
    /// Bits that wait before the line.
    pub queue: u64,
    /// Bits that the line has carried.
    pub carried: u64,
    /// The decisions so far.
    pub decisions: Vec<Decision>,
    /// Every 10 ms: the time, the rate in bit/s, the queue's delay.
    pub seen: Vec<(Nanos, u64, Nanos)>,
    reflectors: usize,
    sent: u64,
    answers: Vec<(Nanos, usize, Nanos, i64)>,
}

impl<C: Controller> Line<C> {
    /// An empty line.
    pub fn new(controller: C, reflectors: usize) -> Line<C> {
        let (decisions, seen, answers) = (Vec::new(), Vec::new(), Vec::new());
        Line { controller, now: 0, queue: 0, carried: 0, decisions, seen, reflectors, sent: 0, answers }
    }

    /// Lets time pass. `capacity`: what the line carries in bit/s at a given time. `wanted`: what
    /// would be sent in bit/s if the link's rate allowed it. `delay`: the delay that a reflector
    /// pretends for a probe, given the reflector's number, the time and the true delay; `None`: it
    /// does not answer.
    pub fn run(
        &mut self,
        time: Nanos,
        capacity: impl Fn(Nanos) -> u64,
        wanted: u64,
        mut delay: impl FnMut(usize, Nanos, i64) -> Option<i64>,
    ) {
        let end = self.now + time;
        while self.now < end {
            let (now, carries) = (self.now, capacity(self.now));
            let sends = self.controller.rate().as_bit_s().min(wanted) / 1000;
            self.sent += sends;
            let passes = (self.queue + sends).min(carries / 1000);
            self.queue = self.queue + sends - passes;
            self.carried += passes;
            let waits = self.queue.saturating_mul(1_000_000_000) / carries.max(1);
            for reflector in 0..self.reflectors {
                let first = PROBE_EVERY / self.reflectors as u64 * reflector as u64 / MS * MS;
                if now >= first && (now - first).is_multiple_of(PROBE_EVERY) {
                    let true_delay = EMPTY + waits as i64;
                    self.controller.probed(now, reflector);
                    if let Some(shown) = delay(reflector, now, true_delay) {
                        self.answers.push((now + true_delay as u64, reflector, now, shown));
                    }
                }
            }
            // Answers come in the order of their times; those of the same time in the order of the
            // probes.
            self.answers.sort_by_key(|answer| answer.0);
            while self.answers.first().is_some_and(|answer| answer.0 <= now) {
                let (at, reflector, sent, shown) = self.answers.remove(0);
                self.controller.heard(Sample { at, reflector, sent, answer: Answer::After(shown) });
            }
            if now.is_multiple_of(TICK) {
                let load = Load { at: now, sent_bytes: self.sent / 8, backlogged: wanted > sends * 1000 };
                self.decisions.extend(self.controller.decide(load));
            }
            if now.is_multiple_of(10 * MS) {
                self.seen.push((now, self.controller.rate().as_bit_s(), waits));
            }
            self.now += MS;
        }
    }

    /// Runs with honest reflectors, a constant capacity, and a link that always has packets.
    pub fn busy(&mut self, time: Nanos, capacity: Rate) {
        self.run(time, |_| capacity.as_bit_s(), u64::MAX, |_, _, delay| Some(delay));
    }
}

/// A controller of three reflectors.
pub fn three() -> Adaptive {
    Adaptive::new(usual(), 3)
}
