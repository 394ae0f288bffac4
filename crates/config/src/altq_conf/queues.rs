//! ALTQ's queues, with the numbers that ALTQ gives them (docs/reference/altq.md 7).

use altq_engine::settings::{Limit, ONE, Settings, Value};
use altq_engine::spec::QueueSpec;

use crate::diagnostic::Span;

/// The least and the greatest threshold of a RED, in packets, and the inverse of the greatest drop
/// probability.
pub type Red = [u32; 3];

/// The numbers that queues have where no word gives others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    pub red: Red,
    /// Of low, medium and high drop precedence.
    pub rio: [Red; 3],
}

/// What the kernel has built in (docs/reference/altq.md 7.1, 7.2).
pub const BUILT_IN: Defaults = Defaults { red: [5, 15, 10], rio: [[35, 45, 10], [20, 30, 10], [5, 15, 10]] };

/// The words of `rio`, by precedence.
pub const RIO: [[&str; 3]; 3] = [
    ["low-min", "low-max", "low-probability"],
    ["medium-min", "medium-max", "medium-probability"],
    ["high-min", "high-max", "high-probability"],
];

/// The limit for which the queues of the engine have the built-in thresholds of `rio`.
const RIO_LIMIT: u32 = 60;

/// 1 / `inverse` as a probability.
pub fn probability(inverse: u32) -> Value {
    Value::Fraction((f64::from(ONE) / f64::from(inverse.max(1))).round() as u32)
}

/// A number of packets.
pub fn packets(n: u32) -> Value {
    Value::Limit(Limit::Packets(n))
}

/// What the words of a class say about its queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kind {
    pub red: bool,
    pub rio: Option<Span>,
    pub ecn: Option<Span>,
    pub flowvalve: Option<Span>,
    pub cleardscp: Option<Span>,
}

impl Kind {
    /// Whether the queue is one of RED's kind. `ecn` alone means red, and so does `flowvalve`.
    pub fn is_active(&self) -> bool {
        self.red || self.rio.is_some() || self.ecn.is_some() || self.flowvalve.is_some()
    }

    /// Clears the DSCP of a class's packets, by a meter, where its queue is a plain one: ALTQ's RED
    /// left it, and RIO needs it until a packet leaves.
    pub fn clear(&self, class: &mut Settings, words: &mut Vec<(&'static str, Span)>) {
        if let Some(span) = self.cleardscp.filter(|_| !self.is_active()) {
            class.set("meter", Value::Choice("all")).set("meter green", Value::Int(0));
            words.push(("meter", span));
        }
    }

    /// The queue of a class: `plain`, or RED or RIO with ALTQ's numbers for classes
    /// (docs/reference/altq.md 2.10). `packetsize` is by which idle time counts.
    pub fn queue(&self, plain: &'static str, limit: u32, packetsize: u64, defaults: &Defaults) -> QueueSpec {
        let mut queue = QueueSpec { name: plain, limit: Limit::Packets(limit), settings: Settings::new() };
        if self.is_active() {
            queue.settings.set("variant", Value::Choice("altq")).set("packetsize", Value::Bytes(packetsize));
        }
        if self.rio.is_some() {
            queue.name = "rio";
            rio(&mut queue, defaults);
            if self.cleardscp.is_some() {
                queue.settings.set("cleardscp", Value::Flag);
            }
        } else if self.is_active() {
            queue.name = "red";
            // A class has thresholds of a tenth and three tenths of its limit. Where that is
            // nothing, the defaults take their place.
            let [min, max, inverse] = defaults.red;
            let settings = &mut queue.settings;
            if limit < 10 && min != BUILT_IN.red[0] {
                settings.set("min", packets(min));
            }
            if limit < 4 && max != BUILT_IN.red[1] {
                settings.set("max", packets(max));
            }
            if inverse != BUILT_IN.red[2] {
                settings.set("probability", probability(inverse));
            }
            if self.ecn.is_some() {
                settings.set("ecn", Value::Flag);
            }
            if self.flowvalve.is_some() {
                settings.set("flowvalve", Value::Flag);
            }
        }
        queue
    }
}

/// Gives `rio` its thresholds where they are not those that the engine has for the limit.
pub fn rio(queue: &mut QueueSpec, levels: &Defaults) {
    let same = queue.limit == Limit::Packets(RIO_LIMIT);
    for ((words, level), built_in) in RIO.iter().zip(levels.rio).zip(BUILT_IN.rio) {
        let [min, max, part] = *words;
        if !same || level[..2] != built_in[..2] {
            queue.settings.set(min, packets(level[0])).set(max, packets(level[1]));
        }
        if level[2] != built_in[2] {
            queue.settings.set(part, probability(level[2]));
        }
    }
}
