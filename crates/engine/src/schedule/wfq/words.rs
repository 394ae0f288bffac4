//! WFQ's words, and the weights that follow from the words of all classes together.

use super::Wfq;
use crate::schedule::{Entry, Rank, Role};
use crate::settings::{Kind as Is, Limit, ONE, Settings, Value, Word};
use crate::spec::{QueueSpec, SpecError};
use crate::units::{Nanos, Rate};

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    words: &[Word {
        name: "excess",
        kind: Is::Choice(&["proportional", "equal"]),
        help: "what guarantees leave goes in proportion to bandwidth, or in equal parts",
        default: "proportional",
    }],
    class_words: &[
        Word {
            name: "bandwidth",
            kind: Is::Rate,
            help: "guaranteed under congestion, and the weight for the excess",
            default: "an equal part of what nobody reserved",
        },
        Word {
            name: "bandwidth remaining",
            kind: Is::Percent,
            help: "part of what guarantees and low-latency classes leave",
            default: "none",
        },
        Word {
            name: "weight",
            kind: Is::Int { min: 1, max: 1_000_000 },
            help: "parts of what guarantees and low-latency classes leave",
            default: "1 where others have one",
        },
        Word {
            name: "low-latency",
            kind: Is::Rate,
            help: "served before all others, policed at this rate when the link is congested",
            default: "none",
        },
        Word {
            name: "low-latency burst",
            kind: Is::Bytes { min: 32, max: 2_000_000_000 },
            help: "what may come at once under congestion, bytes; written behind low-latency's rate",
            default: "200 ms of the rate",
        },
        Word {
            name: "level",
            kind: Is::Int { min: 1, max: 2 },
            help: "of a low-latency class: 1 is served before 2",
            default: "1",
        },
        Word { name: "shape", kind: Is::Rate, help: "the most it ever has: its packets wait", default: "none" },
        Word { name: "police", kind: Is::Rate, help: "what arrives beyond this rate is dropped", default: "none" },
        Word {
            name: "police burst",
            kind: Is::Bytes { min: 1, max: 2_000_000_000 },
            help: "what may come at once, bytes; written behind police's rate",
            default: "250 ms of the rate, at least 1500",
        },
        Word {
            name: "fair-queue",
            kind: Is::Flag,
            help: "flows of the class are kept apart and served fairly: its queue is an sfq",
            default: "off",
        },
    ],
    rank: |_, class| {
        // Low-latency classes go before all others, those of level 1 before those of level 2.
        let others = 2;
        let level = class.rate("low-latency").map(|_| class.int("level").unwrap_or(1).saturating_sub(1));
        Some(Rank::Always(level.unwrap_or(others)))
    },
    foreign: &[
        // The words of Cisco's MQC, and those of other schedulers here.
        ("priority", "low-latency 1Mbit/s` or `low-latency 10%"),
        ("prio", "low-latency 1Mbit/s` or `low-latency 10%"),
        ("ceiling", "shape 5Mbit/s"),
        ("ceil", "shape 5Mbit/s"),
        ("queue-limit", "queue drop_tail { limit 64packets }"),
        ("limit", "queue drop_tail { limit 64packets }"),
        ("qlimit", "queue drop_tail { limit 64packets }"),
    ],
    roles: &[
        ("shape", Role::Shape),
        ("bandwidth", Role::Guarantee),
        ("low-latency", Role::Urgent),
        ("weight", Role::Weight),
        ("police", Role::Ceiling),
    ],
    queue: |_, class| if class.flag("fair-queue") { fair_queue() } else { QueueSpec::plain(Limit::Packets(LIMIT)) },
    guarantee: |class| class.rate("bandwidth").or(class.rate("low-latency")),
    promises: super::promise::promises,
    burst: super::promise::burst,
    polices: super::promise::polices,
    check: super::check::check,
    ..Entry::new(
        "wfq",
        "class-based weighted fair queueing with low-latency classes, as Cisco's CBWFQ and LLQ",
        |context, settings| Ok(Box::new(Wfq::new(context, scheduler(settings)))),
    )
};

/// Packets that a class's queue holds, and the part of them that a flow may have with `fair-queue`:
/// IOS's queue-limit of 64, and a quarter of it.
const LIMIT: u32 = 64;
const PER_FLOW: u64 = 16;

/// The queue of a class with `fair-queue`.
fn fair_queue() -> QueueSpec {
    let settings = Settings::new().with("depth", Value::Int(PER_FLOW));
    QueueSpec { name: "sfq", limit: Limit::Packets(LIMIT), settings }
}

/// The burst of a low-latency class for which none is written: what its rate brings in 200 ms,
/// IOS's default.
const URGENT_BURST: Nanos = 200_000_000;
/// The least burst of a policer for which none is written, bytes. IOS's default is rate / 32 bytes,
/// what the rate brings in 250 ms, and no less than this.
const LEAST_BURST: u64 = 1500;
/// How much idle time or lateness a shaper makes up for: 25 ms, the interval of IOS's class-based
/// shaping.
const SHAPE_CREDIT: Nanos = 25_000_000;
/// It makes up for the time of at least so many packets.
const SHAPE_PACKETS: u64 = 3;

/// What a class gets, and by which word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `low-latency`: served before all others, and policed under congestion.
    Urgent {
        /// The most that it gets under congestion.
        rate: Rate,
        /// What may come at once, bytes.
        burst: u64,
        /// Level 0 is served before level 1.
        level: u8,
    },
    /// `bandwidth`: guaranteed this rate.
    Bandwidth(Rate),
    /// `bandwidth remaining`: billionths of what guarantees and low-latency classes leave.
    Remaining(u32),
    /// `weight`: this many parts of what guarantees and low-latency classes leave.
    Weight(u64),
    /// None of these words: it shares what no class reserved.
    Rest,
}

/// A class's words, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// What the class gets.
    pub kind: Kind,
    /// The most that it ever gets.
    pub shape: Option<Rate>,
    /// What arrives beyond this rate and burst is dropped.
    pub police: Option<(Rate, u64)>,
    /// Its queue keeps flows apart.
    pub fair_queue: bool,
}

impl Words {
    /// Reads a class's words.
    pub fn read(settings: &Settings) -> Result<Words, SpecError> {
        let rate = |word: &'static str| match settings.rate(word) {
            Some(Rate::ZERO) if word != "bandwidth" => {
                Err(SpecError::word(word, format!("{word} of 0 bit/s lets nothing through"))
                    .help("leave it out, or raise it"))
            }
            rate => Ok(rate),
        };
        let (bandwidth, urgent) = (rate("bandwidth")?, rate("low-latency")?);
        let (shape, police) = (rate("shape")?, rate("police")?);
        let (remaining, weight) = (settings.percent("bandwidth remaining"), settings.int("weight"));
        for (word, needs, there) in [
            ("low-latency burst", "low-latency", urgent.is_some()),
            ("level", "low-latency", urgent.is_some()),
            ("police burst", "police", police.is_some()),
        ] {
            if settings.get(word).is_some() && !there {
                return Err(SpecError::word(word, format!("{word} means nothing without {needs}"))
                    .help(format!("write {needs}, or leave it out")));
            }
        }
        let kinds = [
            ("bandwidth", bandwidth.is_some()),
            ("bandwidth remaining", remaining.is_some()),
            ("weight", weight.is_some()),
            ("low-latency", urgent.is_some()),
        ];
        let mut given = kinds.into_iter().filter(|(_, given)| *given).map(|(word, _)| word);
        if let (Some(first), Some(second)) = (given.next(), given.next()) {
            return Err(SpecError::word(second, format!("{first} and {second} both say what the class gets"))
                .help("leave one out"));
        }
        if let (Some(_), Some(_)) = (urgent, shape) {
            return Err(SpecError::word(
                "shape",
                "a low-latency class is policed and not shaped: a shaper would make it wait",
            )
            .help("leave shape out; low-latency holds it to its rate when there is congestion, police always"));
        }
        let kind = match (urgent, bandwidth, remaining, weight) {
            (Some(rate), ..) => Kind::Urgent {
                rate,
                burst: settings.bytes("low-latency burst").unwrap_or_else(|| rate.bytes_in(URGENT_BURST)).max(1),
                level: settings.int("level").unwrap_or(1).clamp(1, 2) as u8 - 1,
            },
            (_, Some(rate), ..) => Kind::Bandwidth(rate),
            (_, _, Some(part), _) => Kind::Remaining(part),
            (_, _, _, Some(weight)) => Kind::Weight(weight),
            _ => Kind::Rest,
        };
        let burst =
            |rate: Rate| settings.bytes("police burst").unwrap_or_else(|| (rate.as_bit_s() / 32).max(LEAST_BURST));
        Ok(Words {
            kind,
            shape,
            police: police.map(|rate| (rate, burst(rate))),
            fair_queue: settings.flag("fair-queue"),
        })
    }
}

/// How much idle time or lateness a shaper of this rate makes up for, ns, where the largest packet
/// has `packet` bytes.
pub fn shape_credit(rate: Rate, packet: u32) -> Nanos {
    rate.time_for(SHAPE_PACKETS * u64::from(packet)).max(SHAPE_CREDIT)
}

/// How what is beyond the guarantees is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// In proportion to bandwidth (classic IOS): one weight divides guarantees and the rest.
    Proportional,
    /// In equal parts, or by `weight` and `bandwidth remaining`, whatever the guarantees (IOS XE).
    Equal,
}

/// Reads the scheduler's own words.
pub fn scheduler(settings: &Settings) -> Excess {
    if settings.choice("excess") == Some("equal") { Excess::Equal } else { Excess::Proportional }
}

/// Fraction bits of a weight, so that small parts of small rates do not become 0.
const POINT: u32 = 16;

/// Sums over the classes of one scheduler, and what follows from them for each class.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    /// The rate that the classes divide, bit/s.
    pub rate: u128,
    /// Sum of the rates of low-latency classes, bit/s.
    pub urgent: u128,
    /// Sum of the guarantees, bit/s.
    pub reserved: u128,
    /// Sum of the `weight`s. Beside them each class of [`Kind::Rest`] counts as one of weight 1.
    weights: u128,
    /// Number of classes of [`Kind::Rest`].
    rest: u128,
    /// Sum of the parts of `bandwidth remaining`, billionths.
    remaining: u128,
}

impl Sums {
    /// Adds up the classes that divide a rate.
    pub fn of(rate: Rate, classes: impl Iterator<Item = Kind>) -> Sums {
        let mut sums = Sums { rate: u128::from(rate.as_bit_s()), ..Sums::default() };
        for kind in classes {
            match kind {
                Kind::Urgent { rate, .. } => sums.urgent += u128::from(rate.as_bit_s()),
                Kind::Bandwidth(rate) => sums.reserved += u128::from(rate.as_bit_s()),
                Kind::Remaining(part) => sums.remaining += u128::from(part),
                Kind::Weight(weight) => sums.weights += u128::from(weight),
                Kind::Rest => sums.rest += 1,
            }
        }
        sums
    }

    /// What low-latency classes and guarantees leave, as a weight. Never less than a thousandth of
    /// the rate, so that no class starves where all of it is reserved.
    fn left(&self) -> u128 {
        self.rate.saturating_sub(self.urgent + self.reserved).max(self.rate / 1000).max(1) << POINT
    }

    /// With `excess proportional`: the one weight of a class, 0 for a low-latency class. It is a
    /// rate in bit/s with [`POINT`] fraction bits.
    pub fn share(&self, kind: Kind) -> u128 {
        let (left, one) = (self.left(), u128::from(ONE));
        let weight = match kind {
            Kind::Urgent { .. } => return 0,
            Kind::Bandwidth(rate) => u128::from(rate.as_bit_s()) << POINT,
            Kind::Remaining(part) => left * u128::from(part) / one,
            Kind::Weight(weight) => left * u128::from(weight) / (self.weights + self.rest),
            Kind::Rest if self.weights > 0 => left / (self.weights + self.rest),
            // An equal part of what the percentages of `bandwidth remaining` leave, which counts as
            // a thousandth at least.
            Kind::Rest => left * one.saturating_sub(self.remaining).max(one / 1000) / one / self.rest.max(1),
        };
        weight.max(1)
    }

    /// With `excess equal`: what a class is guaranteed, as a weight; 0 for nothing.
    pub fn guarantee(&self, kind: Kind) -> u128 {
        match kind {
            Kind::Bandwidth(rate) => u128::from(rate.as_bit_s()) << POINT,
            _ => 0,
        }
    }

    /// With `excess equal`: a class's part of the excess, 0 for a low-latency class.
    pub fn part(&self, kind: Kind) -> u128 {
        let part = match kind {
            Kind::Urgent { .. } => return 0,
            Kind::Remaining(part) => u128::from(part),
            Kind::Weight(weight) => u128::from(weight),
            // As much as a class with `weight 1`, or with `bandwidth remaining 1%`.
            Kind::Rest | Kind::Bandwidth(_) if self.remaining > 0 => u128::from(ONE / 100),
            Kind::Rest | Kind::Bandwidth(_) => 1,
        };
        (part << POINT).max(1)
    }

    /// The rate that the classes divide, as a weight; at least the sum of the guarantees.
    pub fn whole(&self) -> u128 {
        self.rate.max(self.reserved).max(1) << POINT
    }
}
