//! What is measured, and what it must be.

use altq_engine::units::{Nanos, Rate};
use serde::{Deserialize, Serialize};

use crate::world::World;

/// What to measure, of what, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// What is measured.
    pub measure: Measure,
    /// Of what.
    pub subject: Subject,
    /// The share's base: a class's name, whose sent bytes are the whole. `None`: the link's rate
    /// over the window.
    pub of: Option<String>,
    /// The window's begin.
    pub from: Nanos,
    /// The window's end, itself not in it.
    pub to: Nanos,
    /// Of [`Measure::Reach`]: the rate to be reached, in bit/s.
    pub level: Rate,
    /// Of [`Measure::Reach`]: over how long.
    pub over: Nanos,
    /// Of [`Measure::Counter`]: its name.
    pub counter: Option<String>,
}

/// Something that is measured in every row, and stands in the table of the case beside what was
/// published.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its name.
    pub name: String,
    /// Where its figure comes from.
    pub what: Figured,
    /// The unit in which it is published and shown.
    pub unit: &'static Shown,
    /// False where the case's row is none of its rows: then it has no number.
    pub here: bool,
}

/// Where a figure comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Figured {
    /// It is measured.
    Probe(Probe),
    /// The ratio of two other figures, by their places.
    Ratio(usize, usize),
}

impl Figure {
    /// The probe, if it is measured in this row.
    pub fn probe(&self) -> Option<&Probe> {
        match &self.what {
            Figured::Probe(probe) if self.here => Some(probe),
            _ => None,
        }
    }

    /// What its number is.
    pub fn measure(&self) -> Measure {
        match &self.what {
            Figured::Probe(probe) => probe.measure,
            Figured::Ratio(..) => Measure::Ratio,
        }
    }
}

/// A unit in which figures are published.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shown {
    /// As it is written.
    pub name: &'static str,
    /// What it is a unit of.
    pub unit: Unit,
    /// How much of the measure's own unit it is.
    pub factor: f64,
}

/// All units of figures. The first of each kind is the measure's own.
pub const UNITS: [Shown; 17] = {
    const fn shown(name: &'static str, unit: Unit, factor: f64) -> Shown {
        Shown { name, unit, factor }
    }
    [
        shown("bit/s", Unit::Rate, 1.0),
        shown("kbit/s", Unit::Rate, 1e3),
        shown("Mbit/s", Unit::Rate, 1e6),
        // As ttcp counts: 1024 bytes.
        shown("KB/s", Unit::Rate, 8192.0),
        shown("ns", Unit::Time, 1.0),
        shown("us", Unit::Time, 1e3),
        shown("ms", Unit::Time, 1e6),
        shown("s", Unit::Time, 1e9),
        shown("fraction", Unit::Fraction, 1.0),
        shown("%", Unit::Fraction, 0.01),
        shown("", Unit::Count, 1.0),
        shown("bytes", Unit::Count, 1.0),
        shown("KB", Unit::Count, 1024.0),
        shown("packets", Unit::Count, 1.0),
        shown("packets/s", Unit::Count, 1.0),
        shown("cells/s", Unit::Count, 1.0),
        shown("a second", Unit::Count, 1.0),
    ]
};

/// Something that must come out.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// Its name, unique in its column; empty where the row says enough.
    pub name: String,
    /// What is measured.
    pub probe: Probe,
    /// It is about this figure of the case, by its place; the probe is the figure's, where it has
    /// one.
    pub figure: Option<usize>,
    /// What it must be, in the measure's own unit.
    pub expected: f64,
    /// How far off it may be, in the same unit.
    pub tolerance: f64,
    /// On which side.
    pub bound: Bound,
    /// The column that it is about; `None`: every one.
    pub column: Option<String>,
    /// Only in this world; `None`: in both.
    pub world: Option<World>,
    /// Where the expected figure comes from.
    pub source: String,
    /// The expected figure is the published one.
    pub published: bool,
}

impl Expectation {
    /// Whether it is about this column in this world.
    pub fn concerns(&self, column: &super::Column, world: World) -> bool {
        (self.column.is_none() || self.column == column.name) && self.world.is_none_or(|own| own == world)
    }

    /// Whether a measured figure will do.
    pub fn holds(&self, measured: f64) -> bool {
        self.bound.holds(measured, self.expected, self.tolerance)
    }
}

/// On which side of the expected figure the measured one may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Either, within the tolerance.
    #[default]
    Within,
    /// At most the expected figure plus the tolerance.
    AtMost,
    /// At least the expected figure minus the tolerance.
    AtLeast,
}

impl Bound {
    /// Whether a measured figure will do.
    pub fn holds(self, measured: f64, expected: f64, tolerance: f64) -> bool {
        match self {
            Bound::Within => (measured - expected).abs() <= tolerance,
            Bound::AtMost => measured <= expected + tolerance,
            Bound::AtLeast => measured >= expected - tolerance,
        }
    }
}

/// What a figure is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A class.
    Class(String),
    /// A flow, as a place in the case's flows.
    Flow(usize),
    /// Other figures.
    Figures,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Class: bytes charged for what it sent, as a fraction of the base.
    Share,
    /// Class: its own bytes sent, in bit/s; flow: bytes at layer 3 that arrived.
    Rate,
    /// Flow: payload delivered, in bit/s.
    Goodput,
    /// Class: sojourn in the link; flow: from source to destination. Nanoseconds: the median.
    DelayP50,
    /// The 99th percentile.
    DelayP99,
    /// The longest.
    DelayMax,
    /// Class: packets dropped; flow: those of its source that a queue on the way dropped.
    Drops,
    /// Packets that a queue marked on their way (ECN), as a fraction: class: of those that it sent;
    /// flow: of those that its source sent.
    Marked,
    /// Flow: packets that did not arrive, as a fraction of those sent. Class: packets dropped, as a
    /// fraction of those dropped or sent.
    Loss,
    /// Flow: round trips, nanoseconds: the median.
    RttP50,
    /// The 99th percentile.
    RttP99,
    /// Flow: requests answered a second.
    Transactions,
    /// Flow: its goodput as a ratio to that of the same flow through kernel HTB, in the same run:
    /// the policy's own classes where its scheduler is htb, else one class of the link's rate.
    /// Class, of a policy of htb: the same of its charged bytes. Only in the lab.
    HtbRatio,
    /// Class: the time that its packets took on the wire, as a fraction of the window: share of an
    /// ATM link's cells.
    WireShare,
    /// Class: bytes on the wire as its medium frames them (53 a cell), in bit/s.
    WireRate,
    /// Class: cells sent a second.
    Cells,
    /// Class: packets handed over a second; flow: packets arrived a second.
    Packets,
    /// Class: packets waiting in its queue, on average over the window (by Little's law, of the
    /// packets that left it or were dropped); flow: those of its source that wait in links with a
    /// policy.
    Queue,
    /// Class: what `tc -s` prints of it at the end, under a name.
    Counter,
    /// Class, a link: identities that what `tc -s` prints of it at the end must fulfil
    /// (`altq_pages::stat::tc::identities`).
    Identities,
    /// Class, a link: those that are broken (`altq_pages::stat::tc::disagreements`).
    Disagreements,
    /// Flow: mean of the gaps between the packets that arrive, nanoseconds.
    GapMean,
    /// Their standard deviation.
    GapDeviation,
    /// The mode of the gaps that holds most of them ([`crate::gaps`]).
    GapMode,
    /// The part of all gaps that it holds.
    GapModeShare,
    /// The mode that holds most of the others.
    GapSecondMode,
    /// Class: charged bytes, flow: payload: the time from the window's begin to that of the first
    /// span of `over` in which it had `level` or more, nanoseconds.
    Reach,
    /// Flow: packets sent a second.
    Offered,
    /// Class: bytes that the engine of its link holds for classes, schedulers and queues; packets,
    /// flows and rules apart.
    Memory,
    /// Class: the same over the number of the link's classes.
    ClassMemory,
    /// Class: the longest time between two answers of its link's loop, which is asked for its
    /// counters all the time, nanoseconds. Only in the lab.
    AnswerMax,
    /// Class: CPU time of a packet of its link, each leaf in random order, nanoseconds: reading its
    /// headers. Only in the lab.
    KeyTime,
    /// Finding its class. Only in the lab.
    ClassifyTime,
    /// Queueing it. Only in the lab.
    EnqueueTime,
    /// Choosing it and taking it out. Only in the lab.
    DequeueTime,
    /// All four. Only in the lab.
    PacketTime,
    /// A ratio of two figures.
    Ratio,
    /// How far a series of figures is from rising (or falling) all the way: its worst step, as a
    /// fraction of the figure before it.
    Monotone,
}

/// What unit a measure's figures have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A fraction of 1.
    Fraction,
    /// bit/s.
    Rate,
    /// Nanoseconds.
    Time,
    /// A plain number.
    Count,
}

impl Unit {
    /// As results name it.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Fraction => "fraction",
            Unit::Rate => "bit/s",
            Unit::Time => "ns",
            Unit::Count => "",
        }
    }
}

impl Measure {
    /// All, with the words for them.
    pub const ALL: [(&'static str, Measure); 36] = [
        ("share", Measure::Share),
        ("rate", Measure::Rate),
        ("goodput", Measure::Goodput),
        ("delay_p50", Measure::DelayP50),
        ("delay_p99", Measure::DelayP99),
        ("delay_max", Measure::DelayMax),
        ("drops", Measure::Drops),
        ("marked", Measure::Marked),
        ("loss", Measure::Loss),
        ("rtt_p50", Measure::RttP50),
        ("rtt_p99", Measure::RttP99),
        ("transactions", Measure::Transactions),
        ("htb_ratio", Measure::HtbRatio),
        ("wire_share", Measure::WireShare),
        ("wire_rate", Measure::WireRate),
        ("cells", Measure::Cells),
        ("packets", Measure::Packets),
        ("queue", Measure::Queue),
        ("counter", Measure::Counter),
        ("identities", Measure::Identities),
        ("disagreements", Measure::Disagreements),
        ("gap_mean", Measure::GapMean),
        ("gap_deviation", Measure::GapDeviation),
        ("gap_mode", Measure::GapMode),
        ("gap_mode_share", Measure::GapModeShare),
        ("gap_second_mode", Measure::GapSecondMode),
        ("reach", Measure::Reach),
        ("offered", Measure::Offered),
        ("memory", Measure::Memory),
        ("class_memory", Measure::ClassMemory),
        ("answer_max", Measure::AnswerMax),
        ("key_time", Measure::KeyTime),
        ("classify_time", Measure::ClassifyTime),
        ("enqueue_time", Measure::EnqueueTime),
        ("dequeue_time", Measure::DequeueTime),
        ("packet_time", Measure::PacketTime),
    ];

    /// Its unit.
    pub fn unit(self) -> Unit {
        use Measure::*;
        match self {
            Share | Loss | Marked | WireShare | GapModeShare | Monotone => Unit::Fraction,
            Rate | Goodput | WireRate => Unit::Rate,
            Drops | Transactions | HtbRatio | Cells | Packets | Offered | Queue | Memory | ClassMemory | Ratio => {
                Unit::Count
            }
            Counter | Identities | Disagreements => Unit::Count,
            DelayP50 | DelayP99 | DelayMax | RttP50 | RttP99 | GapMean | GapDeviation | GapMode | GapSecondMode
            | Reach => Unit::Time,
            AnswerMax | KeyTime | ClassifyTime | EnqueueTime | DequeueTime | PacketTime => Unit::Time,
        }
    }

    /// Whether it can be said of a class.
    pub fn of_class(self) -> bool {
        use Measure::*;
        matches!(
            self,
            Share
                | Rate
                | DelayP50
                | DelayP99
                | DelayMax
                | Drops
                | Loss
                | Marked
                | HtbRatio
                | WireShare
                | WireRate
                | Cells
                | Packets
                | Queue
                | Counter
                | Identities
                | Disagreements
                | Reach
                | Memory
                | ClassMemory
                | AnswerMax
        ) || self.of_engine()
    }

    /// Whether it can be said of a flow.
    pub fn of_flow(self) -> bool {
        use Measure::*;
        match self {
            Goodput | DelayP50 | DelayP99 | DelayMax | Loss | RttP50 | RttP99 | Transactions | HtbRatio => true,
            Drops | Marked | Queue => true,
            Rate | Packets | Offered | GapMean | GapDeviation | GapMode | GapModeShare | GapSecondMode | Reach => true,
            Share | WireShare | WireRate | Cells | Counter | Identities | Disagreements | Ratio | Monotone => false,
            Memory | ClassMemory | AnswerMax | KeyTime | ClassifyTime | EnqueueTime | DequeueTime | PacketTime => false,
        }
    }

    /// Whether it is known of the run's end only.
    pub fn of_the_end(self) -> bool {
        matches!(self, Measure::Counter | Measure::Identities | Measure::Disagreements)
    }

    /// Whether it is the engine's time for a packet: a clock is needed, and no traffic.
    pub fn of_engine(self) -> bool {
        use Measure::*;
        matches!(self, KeyTime | ClassifyTime | EnqueueTime | DequeueTime | PacketTime)
    }

    /// Whether only the lab has it.
    pub fn of_lab(self) -> bool {
        self.of_engine() || matches!(self, Measure::HtbRatio | Measure::AnswerMax)
    }

    /// Whether the gaps between a flow's packets must be kept for it.
    pub fn of_gaps(self) -> bool {
        use Measure::*;
        matches!(self, GapMean | GapDeviation | GapMode | GapModeShare | GapSecondMode)
    }
}
