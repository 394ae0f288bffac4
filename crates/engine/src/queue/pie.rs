//! PIE (Pan et al. 2013; RFC 8033): drops arriving packets at random. A controller moves the drop
//! probability until packets wait for about `target`.
//!
//! Every `tupdate` the probability changes with the distance of the delay from the target, and with
//! how much the delay has changed since the last update. Unlike CoDel, PIE decides when a packet
//! arrives, and at random. While the probability is small its steps are scaled down, so that no
//! parameter depends on the link's rate.
//!
//! This is the pseudo-code of RFC 8033, appendix A, with two options of section 5: ECN (5.1) and
//! de-randomization (5.4), both on request. The delay is the sojourn time of the packet that left
//! last, or 0 when the queue is empty at an update. The rate estimate of 5.2 is not used: the
//! engine knows when each packet arrived, and the scheduler above makes the rate of a class jump.
//!
//! There is no timer. Updates that are due are made when the queue is next used. What an update
//! reads does not change in between, so the result is the same. After a long pause, updates beyond
//! [`ONE_BY_ONE`] are computed in one step.

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
        Word { name: "target", kind: Kind::Time, help: "the delay that the controller aims at", default: "15ms" },
        Word {
            name: "tupdate",
            kind: Kind::Time,
            help: "time between two updates of the probability",
            default: "15ms",
        },
        Word {
            name: "max_burst",
            kind: Kind::Time,
            help: "how long a burst may last without drops after the queue was short",
            default: "150ms",
        },
        ECN,
        Word {
            name: "max_ecnth",
            kind: Kind::Fraction,
            help: "with ecn: above this probability packets are dropped, not marked",
            default: "0.1",
        },
        Word {
            name: "derand",
            kind: Kind::Flag,
            help: "spaces drops evenly, neither too close together nor too far apart",
            default: "off",
        },
    ],
    in_order: true,
    ..Entry::new(
        "pie",
        "drops at random, as often as it takes to keep the delay at a target (RFC 8033)",
        Limit::Packets(1000),
        aqm::build::<Pie>,
    )
};

/// The controller's weights, 1/s, for updates every 15 ms (RFC 8033 4.2).
const ALPHA: f64 = 0.125;
const BETA: f64 = 1.25;
const UPDATE: Nanos = 15_000_000;

/// How many missed updates are made one by one: 15 s of them at 15 ms. By then a probability that
/// decays has reached 0.
const ONE_BY_ONE: u64 = 1024;

/// What the policy's words say.
#[derive(Clone, Copy, Debug)]
struct Parameters {
    /// In seconds.
    target: f64,
    /// Time between two updates.
    update: Nanos,
    /// Weights of the delay's distance from the target and of its change, 1/s.
    alpha: f64,
    beta: f64,
    /// The allowance for bursts (RFC 8033, 4.4).
    burst: Nanos,
    /// With `ecn`: up to this probability packets are marked instead of dropped.
    ecn: Option<f64>,
    derand: bool,
    /// A queue of at most this many bytes drops nothing at random: two full packets (RFC 8033,
    /// 4.1).
    few: u32,
}

impl Parameters {
    fn read(context: &Context, settings: &Settings) -> Result<Parameters, SpecError> {
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
        // RFC 8033, 4.2: with half the time between updates alpha is halved, and beta grows by a
        // quarter of the former alpha.
        let ratio = update as f64 / UPDATE as f64;
        let ecn = settings.flag("ecn");
        if settings.get("max_ecnth").is_some() && !ecn {
            return Err(
                SpecError::word("max_ecnth", "without ecn no packet is marked").help("write ecn, or leave it out")
            );
        }
        let threshold = f64::from(settings.fraction("max_ecnth").unwrap_or(ONE / 10)) / f64::from(ONE);
        Ok(Parameters {
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

/// The state of the controller. It is the same on every machine: only additions, multiplications
/// and divisions of IEEE 754 are used.
#[derive(Clone, Copy, Debug, Default)]
struct Control {
    probability: f64,
    /// The delay now, and at the last update, in seconds.
    delay: f64,
    old_delay: f64,
    /// What is left of the allowance for bursts; until it is 0, nothing is dropped at random.
    burst: Nanos,
    /// The sum of the probabilities of all packets since the last drop (RFC 8033, 5.4).
    accumulated: f64,
}

impl Control {
    /// By how much one update changes the probability (RFC 8033, 4.2 and 5.5).
    fn step(&self, parameters: &Parameters) -> f64 {
        let step =
            parameters.alpha * (self.delay - parameters.target) + parameters.beta * (self.delay - self.old_delay);
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

    /// True if the delay is below half of the target, now and at the last update.
    fn relaxed(&self, parameters: &Parameters) -> bool {
        self.delay < parameters.target / 2.0 && self.old_delay < parameters.target / 2.0
    }

    fn update(&mut self, parameters: &Parameters) {
        self.probability += self.step(parameters);
        if self.relaxed(parameters) {
            self.probability *= 0.98;
        }
        self.probability = self.probability.clamp(0.0, 1.0);
        self.old_delay = self.delay;
    }

    /// Makes `count` updates between which no packet arrives and none leaves.
    fn updates(&mut self, parameters: &Parameters, count: u64) {
        self.burst = self.burst.saturating_sub(parameters.update.saturating_mul(count));
        for _ in 0..count.min(ONE_BY_ONE) {
            let before = (self.probability, self.old_delay);
            self.update(parameters);
            if before == (self.probability, self.old_delay) {
                break;
            }
        }
        let mut left = count.saturating_sub(ONE_BY_ONE);
        if left > 0 && self.relaxed(parameters) {
            self.probability = 0.0;
        }
        // The delay does not change any more, so all steps are equal until the probability passes a
        // bound of the table in `step`.
        const BOUNDS: [f64; 8] = [0.0, 0.000001, 0.00001, 0.0001, 0.001, 0.01, 0.1, 1.0];
        for _ in 0..2 * BOUNDS.len() {
            let step = self.step(parameters);
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

    /// Decides at random whether an arriving packet is dropped or marked (RFC 8033, 4.1 and 5.4).
    /// `bytes` wait.
    fn drops_early(&mut self, parameters: &Parameters, bytes: u32, random: &mut SplitMix64) -> bool {
        if self.old_delay < parameters.target / 2.0 && self.probability < 0.2 || bytes <= parameters.few {
            return false;
        }
        if parameters.derand {
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
        // 53 bits: the precision of an f64.
        let drawn = (random.bits() >> 11) as f64 / (1u64 << 53) as f64;
        let drops = drawn < self.probability;
        if drops {
            self.accumulated = 0.0;
        }
        drops
    }
}

struct Pie {
    parameters: Parameters,
    limit: Limit,
    control: Control,
    next_update: Option<Nanos>,
    random: SplitMix64,
    dropped: u64,
    marked: u64,
}

impl Pie {
    /// Makes the updates that are due.
    #[inline]
    fn catch_up(&mut self, now: Nanos, list: &List) {
        let next = *self.next_update.get_or_insert(now.saturating_add(self.parameters.update));
        if now >= next {
            self.catch_up_from(now, next, list);
        }
    }

    fn catch_up_from(&mut self, now: Nanos, next: Nanos, list: &List) {
        let count = 1 + (now - next) / self.parameters.update;
        if list.is_empty() {
            self.control.delay = 0.0;
        }
        self.control.updates(&self.parameters, count);
        self.next_update = Some(next.saturating_add(count.saturating_mul(self.parameters.update)));
    }
}

impl Aqm for Pie {
    fn new(context: &Context, spec: &QueueSpec) -> Result<Pie, SpecError> {
        let parameters = Parameters::read(context, &spec.settings)?;
        let control = Control { burst: parameters.burst, ..Control::default() };
        let random = SplitMix64::new(context.seed);
        Ok(Pie { parameters, limit: spec.limit, control, next_update: None, random, dropped: 0, marked: 0 })
    }

    #[inline(always)]
    fn admit(
        &mut self,
        now: Nanos,
        packet: &mut Packet,
        list: &mut List,
        store: &mut Store<'_>,
    ) -> Result<(), DropReason> {
        self.catch_up(now, list);
        if !list.fits(self.limit, packet.len) {
            self.control.accumulated = 0.0;
            return Err(DropReason::QueueFull);
        }
        let (parameters, control) = (&self.parameters, &mut self.control);
        if control.burst == 0 && control.drops_early(parameters, list.bytes(), &mut self.random) {
            if !(parameters.ecn.is_some_and(|most| control.probability <= most) && store.mark(packet)) {
                self.dropped += 1;
                return Err(DropReason::Early);
            }
            self.marked += 1;
        }
        if control.probability == 0.0 && control.relaxed(parameters) {
            control.burst = parameters.burst;
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
        (self.parameters, self.limit) = (new.parameters, new.limit);
        self.next_update = Some(now.saturating_add(self.parameters.update));
        self.control.burst = self.control.burst.min(self.parameters.burst);
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
