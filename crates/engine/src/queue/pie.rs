//! PIE (Pan et al. 2013; RFC 8033): a queue whose drop probability a controller moves until packets
//! wait for about `target`.
//!
//! Every `tupdate` the probability grows with how far the delay is above the target, and with how
//! fast it grows; a packet that arrives is dropped with that probability. Unlike CoDel it decides
//! at the tail, on arrival, and by chance. Steps are scaled down while the probability is small, so
//! that no parameter depends on the link.
//!
//! This is the pseudo-code of the RFC's appendix A, with the options of section 5 that change
//! decisions: ECN (5.1) and de-randomisation (5.4) on request. The delay is that of the packet that
//! left last (timestamps, not the estimated rate of 5.2: the engine knows when each packet arrived,
//! and a scheduler above makes a class's rate jump); when the queue is empty at an update it is 0.
//!
//! There is no timer: updates that are due are made up for when the queue is next looked at.
//! Between two looks nothing changes that they go by, so the result is the same. After a long
//! silence what is left is worked out at once.

use super::aqm::{self, Aqm, ECN};
use super::{Context, Entry, List, Store, Taken};
use crate::account::DropReason;
use crate::packet::Packet;
use crate::random::SplitMix64;
use crate::settings::{Kind, Limit, ONE, Settings, Word};
use crate::spec::{QueueSpec, SpecError};
use crate::units::{Nanos, SECOND};

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    words: &[
        Word { name: "target", kind: Kind::Time, help: "delay that is aimed at", default: "15ms" },
        Word {
            name: "tupdate",
            kind: Kind::Time,
            help: "time from one change of the probability to the next",
            default: "15ms",
        },
        Word {
            name: "max_burst",
            kind: Kind::Time,
            help: "a queue that was short drops nothing for so long",
            default: "150ms",
        },
        ECN,
        Word {
            name: "max_ecnth",
            kind: Kind::Fraction,
            help: "with ecn: above this probability they are dropped even so",
            default: "0.1",
        },
        Word {
            name: "derand",
            kind: Kind::Flag,
            help: "drops neither too close together nor too far apart",
            default: "off",
        },
    ],
    in_order: true,
    ..Entry::new(
        "pie",
        "drops at random, as likely as keeps the delay at a target (RFC 8033)",
        Limit::Packets(1000),
        aqm::build::<Pie>,
    )
};

/// The controller's weights, 1/s, for updates every 15 ms (RFC 8033 4.2).
const ALPHA: f64 = 0.125;
const BETA: f64 = 1.25;
const UPDATE: Nanos = 15_000_000;

/// Updates that are made up for one by one: 15 s of them at 15 ms. So long takes any probability
/// that decays to 0.
const ONE_BY_ONE: u64 = 1024;

#[derive(Clone, Copy, Debug)]
struct Law {
    /// Seconds.
    target: f64,
    update: Nanos,
    alpha: f64,
    beta: f64,
    burst: Nanos,
    ecn: Option<f64>,
    derand: bool,
    /// A queue of at most so many bytes drops nothing: two packets.
    few: u32,
}

impl Law {
    fn read(context: &Context, settings: &Settings) -> Result<Law, SpecError> {
        let target = settings.time("target").unwrap_or(15_000_000);
        let update = settings.time("tupdate").unwrap_or(UPDATE);
        let burst = settings.time("max_burst").unwrap_or(150_000_000);
        for (word, time, least, most) in [
            ("target", target, 1000, 60 * SECOND),
            ("tupdate", update, 100_000, 100_000_000),
            ("max_burst", burst, 0, 60 * SECOND),
        ] {
            if !(least..=most).contains(&time) {
                let message = format!("a {word} of {time} ns is not within {least} to {most} ns");
                return Err(SpecError::word(word, message).help("leave it out for the RFC's"));
            }
        }
        // RFC 8033 4.2: half the time between updates takes half of alpha, and a quarter of alpha
        // more for beta.
        let ratio = update as f64 / UPDATE as f64;
        let ecn = settings.flag("ecn");
        if settings.get("max_ecnth").is_some() && !ecn {
            return Err(
                SpecError::word("max_ecnth", "without ecn nothing is marked").help("write ecn, or leave it out")
            );
        }
        let threshold = f64::from(settings.fraction("max_ecnth").unwrap_or(ONE / 10)) / f64::from(ONE);
        Ok(Law {
            target: seconds(target),
            update,
            alpha: ALPHA * ratio,
            beta: BETA + ALPHA / 2.0 * (1.0 - ratio),
            burst,
            ecn: ecn.then_some(threshold),
            derand: settings.flag("derand"),
            few: context.mtu.saturating_mul(2),
        })
    }
}

fn seconds(time: Nanos) -> f64 {
    time as f64 / SECOND as f64
}

/// What the controller knows. Floating point is the same everywhere here: additions,
/// multiplications and divisions of IEEE 754.
#[derive(Clone, Copy, Debug, Default)]
struct Control {
    probability: f64,
    /// Delay now, and at the last update: seconds.
    delay: f64,
    old_delay: f64,
    /// What is left of the time in which nothing is dropped.
    burst: Nanos,
    /// Probabilities since the last drop, added up.
    accumulated: f64,
}

impl Control {
    /// How much one update changes the probability (RFC 8033 4.2, 5.5).
    fn step(&self, law: &Law) -> f64 {
        let step = law.alpha * (self.delay - law.target) + law.beta * (self.delay - self.old_delay);
        match self.probability {
            p if p < 0.000001 => step / 2048.0,
            p if p < 0.00001 => step / 512.0,
            p if p < 0.0001 => step / 128.0,
            p if p < 0.001 => step / 32.0,
            p if p < 0.01 => step / 8.0,
            p if p < 0.1 => step / 2.0,
            _ => step.min(0.02),
        }
    }

    /// Both delays are below half of the target.
    fn relaxed(&self, law: &Law) -> bool {
        self.delay < law.target / 2.0 && self.old_delay < law.target / 2.0
    }

    fn update(&mut self, law: &Law) {
        self.probability += self.step(law);
        if self.relaxed(law) {
            self.probability *= 0.98;
        }
        self.probability = self.probability.clamp(0.0, 1.0);
        self.old_delay = self.delay;
    }

    /// So many updates while nothing arrives and nothing leaves.
    fn updates(&mut self, law: &Law, count: u64) {
        self.burst = self.burst.saturating_sub(law.update.saturating_mul(count));
        for _ in 0..count.min(ONE_BY_ONE) {
            let before = (self.probability, self.old_delay);
            self.update(law);
            if before == (self.probability, self.old_delay) {
                break;
            }
        }
        let mut left = count.saturating_sub(ONE_BY_ONE);
        if left > 0 && self.relaxed(law) {
            self.probability = 0.0;
        }
        // The delay stands, so steps are equal until the probability passes a bound of the table.
        const BOUNDS: [f64; 8] = [0.0, 0.000001, 0.00001, 0.0001, 0.001, 0.01, 0.1, 1.0];
        for _ in 0..2 * BOUNDS.len() {
            let step = self.step(law);
            let bound = if step > 0.0 {
                BOUNDS.iter().find(|bound| **bound > self.probability)
            } else {
                BOUNDS.iter().rev().find(|bound| **bound < self.probability || **bound == 0.0)
            };
            let Some(bound) = bound.filter(|_| left > 0 && step != 0.0) else { break };
            let steps = ((bound - self.probability) / step).ceil().max(1.0);
            let steps = if steps < left as f64 { steps as u64 } else { left };
            self.probability = (self.probability + step * steps as f64).clamp(0.0, 1.0);
            left -= steps;
        }
    }

    /// Whether the lot falls on a packet that arrives (RFC 8033 4.1, 5.4). `bytes`: waiting.
    fn drops_early(&mut self, law: &Law, bytes: u32, random: &mut SplitMix64) -> bool {
        if self.old_delay < law.target / 2.0 && self.probability < 0.2 || bytes <= law.few {
            return false;
        }
        if law.derand {
            if self.probability == 0.0 {
                self.accumulated = 0.0;
            }
            self.accumulated += self.probability;
            if self.accumulated < 0.85 {
                return false;
            }
            if self.accumulated >= 8.5 {
                self.accumulated = 0.0;
                return true;
            }
        }
        // 53 bits: as many as a fraction has.
        let drawn = (random.bits() >> 11) as f64 / (1u64 << 53) as f64;
        let drops = drawn < self.probability;
        if drops {
            self.accumulated = 0.0;
        }
        drops
    }
}

struct Pie {
    law: Law,
    limit: Limit,
    control: Control,
    next_update: Option<Nanos>,
    random: SplitMix64,
    dropped: u64,
    marked: u64,
}

impl Pie {
    /// Makes up for the updates that are due.
    #[inline]
    fn catch_up(&mut self, now: Nanos, list: &List) {
        let next = *self.next_update.get_or_insert(now.saturating_add(self.law.update));
        if now >= next {
            self.catch_up_from(now, next, list);
        }
    }

    fn catch_up_from(&mut self, now: Nanos, next: Nanos, list: &List) {
        let count = 1 + (now - next) / self.law.update;
        if list.is_empty() {
            self.control.delay = 0.0;
        }
        self.control.updates(&self.law, count);
        self.next_update = Some(next.saturating_add(count.saturating_mul(self.law.update)));
    }
}

impl Aqm for Pie {
    fn new(context: &Context, spec: &QueueSpec) -> Result<Pie, SpecError> {
        let law = Law::read(context, &spec.settings)?;
        let control = Control { burst: law.burst, ..Control::default() };
        let random = SplitMix64::new(context.seed);
        Ok(Pie { law, limit: spec.limit, control, next_update: None, random, dropped: 0, marked: 0 })
    }

    #[inline(always)]
    fn admit(&mut self, now: Nanos, packet: &mut Packet, list: &List, store: &mut Store<'_>) -> Result<(), DropReason> {
        self.catch_up(now, list);
        if !list.fits(self.limit, packet.len) {
            self.control.accumulated = 0.0;
            return Err(DropReason::QueueFull);
        }
        let (law, control) = (&self.law, &mut self.control);
        if control.burst == 0 && control.drops_early(law, list.bytes(), &mut self.random) {
            if !(law.ecn.is_some_and(|most| control.probability <= most) && store.mark(packet)) {
                self.dropped += 1;
                return Err(DropReason::Early);
            }
            self.marked += 1;
        }
        if control.probability == 0.0 && control.relaxed(law) {
            control.burst = law.burst;
        }
        Ok(())
    }

    fn dequeue(&mut self, now: Nanos, list: &mut List, store: &mut Store<'_>) -> Option<Taken> {
        self.catch_up(now, list);
        let packet = store.pop(list)?;
        self.control.delay = seconds(now.saturating_sub(store.arrived_of(&packet)));
        Some(packet)
    }

    fn change(&mut self, now: Nanos, new: Pie, list: &mut List, store: &mut Store<'_>) {
        self.catch_up(now, list);
        (self.law, self.limit) = (new.law, new.limit);
        self.next_update = Some(now.saturating_add(self.law.update));
        self.control.burst = self.control.burst.min(self.law.burst);
        store.cut(list, self.limit);
    }

    fn seed(&mut self, seed: u64) {
        self.random = SplitMix64::new(seed);
    }

    fn report_counters(&self, counter: &mut dyn FnMut(&'static str, u64)) {
        counter("probability_billionths", (self.control.probability * f64::from(ONE)) as u64);
        counter("delay_ns", (self.control.delay * SECOND as f64) as u64);
        counter("prob_drop", self.dropped);
        counter("prob_mark", self.marked);
    }
}
