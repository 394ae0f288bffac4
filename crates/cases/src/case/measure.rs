//! What is measured, and what must come out.

use altq_engine::units::{Nanos, Rate};
use serde::{Deserialize, Serialize};

use super::class::ClassName;
use crate::place::Place;
use crate::world::World;

/// What to measure, of which class or flow, and in which window.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// The measure.
    pub measure: Measure,
    /// The class or flow.
    pub subject: Subject,
    /// For a share: the class whose sent bytes are the whole. `None`: the link's rate over the
    /// window.
    pub of: Option<ClassName>,
    /// The beginning of the window.
    pub from: Nanos,
    /// The end of the window, which is not part of it.
    pub to: Nanos,
    /// For [`Measure::Reach`]: the rate to be reached, in bit/s.
    pub level: Rate,
    /// For [`Measure::Reach`]: the length of the span in which it is reached.
    pub over: Nanos,
    /// For [`Measure::Counter`]: which one.
    pub counter: Option<Box<CounterName>>,
}

/// A counter as a case names it, and where it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterName {
    /// Its name.
    pub text: String,
    /// Where that is written.
    pub place: Place,
}

/// Something that is measured in every row. It stands in the table of the case, beside what was
/// published.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its name.
    pub name: String,
    /// How it is found.
    pub what: Figured,
    /// The unit in which it is published and shown.
    pub unit: &'static Shown,
    /// False if the case's row is not one of the figure's rows; then it has no number.
    pub here: bool,
}

/// How a figure is found.
#[derive(Clone, Debug, PartialEq)]
pub enum Figured {
    /// It is measured.
    Probe(Probe),
    /// The ratio of two other figures, given by their indices.
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

    /// The measure of its number.
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
    /// The unit as it is written.
    pub name: &'static str,
    /// The kind of quantity that it measures.
    pub unit: Unit,
    /// Its size, in the measure's own unit.
    pub factor: f64,
}

/// All units of figures. The first one of each kind is the measure's own.
pub const UNITS: [Shown; 17] = {
    const fn shown(name: &'static str, unit: Unit, factor: f64) -> Shown {
        Shown { name, unit, factor }
    }
    [
        shown("bit/s", Unit::Rate, 1.0),
        shown("kbit/s", Unit::Rate, 1e3),
        shown("Mbit/s", Unit::Rate, 1e6),
        // ttcp's KB is 1024 bytes.
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

/// A figure that must come out.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// Its name, unique in its column; empty if the row says enough.
    pub name: String,
    /// What is measured.
    pub probe: Probe,
    /// The index of the case's figure that it is about; the probe is then that figure's, if it has
    /// one.
    pub figure: Option<usize>,
    /// The expected value, in the measure's own unit.
    pub expected: f64,
    /// How far the measured value may be from it, in the same unit.
    pub tolerance: f64,
    /// On which side it may be.
    pub bound: Bound,
    /// The column that it is about; `None`: every column.
    pub column: Option<String>,
    /// The only world in which it holds; `None`: both.
    pub world: Option<World>,
    /// Where the expected figure comes from.
    pub source: String,
    /// True if the expected value is the published one.
    pub published: bool,
}

impl Expectation {
    /// Whether it is about this column in this world.
    pub fn concerns(&self, column: &super::Column, world: World) -> bool {
        (self.column.is_none() || self.column == column.name) && self.world.is_none_or(|own| own == world)
    }

    /// Whether a measured value meets it.
    pub fn holds(&self, measured: f64) -> bool {
        self.bound.holds(measured, self.expected, self.tolerance)
    }
}

/// On which side of the expected value the measured one may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// On either side, within the tolerance.
    #[default]
    Within,
    /// At most the expected value plus the tolerance.
    AtMost,
    /// At least the expected value minus the tolerance.
    AtLeast,
}

impl Bound {
    /// Whether a measured value meets the expectation.
    pub fn holds(self, measured: f64, expected: f64, tolerance: f64) -> bool {
        match self {
            Bound::Within => (measured - expected).abs() <= tolerance,
            Bound::AtMost => measured <= expected + tolerance,
            Bound::AtLeast => measured >= expected - tolerance,
        }
    }
}

/// What a measured value is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A class.
    Class(ClassName),
    /// A flow, by its index in the case's flows.
    Flow(usize),
    /// Other figures of the case.
    Figures,
}

/// The measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Class: bytes charged for what it sent, as a fraction of the whole.
    Share,
    /// Class: its own bytes sent, in bit/s; flow: bytes at layer 3 that arrived.
    Rate,
    /// Flow: payload delivered, in bit/s.
    Goodput,
    /// Class: wait in the link; flow: time from source to destination. The median, in nanoseconds.
    DelayP50,
    /// The same: the 99th percentile.
    DelayP99,
    /// The same: the longest.
    DelayMax,
    /// Class: packets dropped; flow: packets of its source that a queue on the way dropped.
    Drops,
    /// Packets that were marked (ECN), as a fraction. Class: of the packets it sent, those that its
    /// queue marked; flow: of the packets its source sent, those that a queue on the way marked.
    Marked,
    /// Flow: packets that did not arrive, as a fraction of those sent. Class: packets dropped, as a
    /// fraction of those dropped or sent.
    Loss,
    /// Flow: round trips, the median, in nanoseconds.
    RttP50,
    /// The same: the 95th percentile.
    RttP95,
    /// The same: the 99th percentile.
    RttP99,
    /// Flow: requests answered per second.
    Transactions,
    /// Flow: its goodput divided by that of the same flow through kernel HTB, in the same run. HTB
    /// has the policy's own classes if the policy's scheduler is htb, else one class at the link's
    /// rate. Class of a policy of htb: the same for its charged bytes. Only in the lab.
    HtbRatio,
    /// Class: the time that its packets took on the wire, as a fraction of the window; on an ATM
    /// link its share of the cells.
    WireShare,
    /// Class: bytes on the wire as the medium frames them (53 per cell), in bit/s.
    WireRate,
    /// Class: cells sent per second.
    Cells,
    /// Class: packets handed to the wire per second; flow: packets that arrived per second.
    Packets,
    /// Class: the average number of packets in its queue over the window (by Little's law, from the
    /// packets that left it or were dropped); flow: the same for packets of its source, in links
    /// with a policy.
    Queue,
    /// Class: a counter that `tc -s` prints of it at the end.
    Counter,
    /// Class that is a link: the number of identities that the output of `tc -s` for it must fulfil
    /// at the end (`altq_pages::stat::tc::identities`).
    Identities,
    /// Class that is a link: the number of broken ones (`altq_pages::stat::tc::disagreements`).
    Disagreements,
    /// Flow: mean of the gaps between the packets that arrive, in nanoseconds.
    GapMean,
    /// Standard deviation of these gaps.
    GapDeviation,
    /// The mode that holds most of these gaps ([`crate::gaps`]).
    GapMode,
    /// The fraction of all gaps that this mode holds.
    GapModeShare,
    /// The mode that holds most of the other gaps.
    GapSecondMode,
    /// Class (charged bytes) or flow (payload): the time from the beginning of the window to that
    /// of the first span of `over` in which it had `level` or more, in nanoseconds.
    Reach,
    /// Flow: packets sent per second.
    Offered,
    /// Class: bytes that the engine of its link holds for classes, schedulers and queues, without
    /// packets, flows and rules.
    Memory,
    /// Class: the same divided by the number of the link's classes.
    ClassMemory,
    /// Class: the longest time between two answers of its link's loop, which is asked for its
    /// counters all the time, in nanoseconds. Only in the lab.
    AnswerMax,
    /// Class: CPU time for reading the headers of a packet of its link, with packets for all leaves
    /// in random order, in nanoseconds. Only in the lab.
    KeyTime,
    /// The same for finding the packet's class. Only in the lab.
    ClassifyTime,
    /// The same for queueing it. Only in the lab.
    EnqueueTime,
    /// The same for choosing it and taking it out. Only in the lab.
    DequeueTime,
    /// The same for all four together. Only in the lab.
    PacketTime,
    /// A ratio of two figures.
    Ratio,
    /// How far a series of figures is from rising (or falling) throughout: its worst step, as a
    /// fraction of the figure before it.
    Monotone,
}

/// The kinds of units that measures have.
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
    /// The name that results use.
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
    /// All measures, with the words for them.
    pub const ALL: [(&'static str, Measure); 37] = [
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
        ("rtt_p95", Measure::RttP95),
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

    /// The unit of its values.
    pub fn unit(self) -> Unit {
        use Measure::*;
        match self {
            Share | Loss | Marked | WireShare | GapModeShare | Monotone => Unit::Fraction,
            Rate | Goodput | WireRate => Unit::Rate,
            Drops | Transactions | HtbRatio | Cells | Packets | Offered | Queue | Memory | ClassMemory | Ratio => {
                Unit::Count
            }
            Counter | Identities | Disagreements => Unit::Count,
            DelayP50 | DelayP99 | DelayMax | RttP50 | RttP95 | RttP99 => Unit::Time,
            GapMean | GapDeviation | GapMode | GapSecondMode | Reach => Unit::Time,
            AnswerMax | KeyTime | ClassifyTime | EnqueueTime | DequeueTime | PacketTime => Unit::Time,
        }
    }

    /// Whether a class can have it.
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

    /// Whether a flow can have it.
    pub fn of_flow(self) -> bool {
        use Measure::*;
        match self {
            Goodput | DelayP50 | DelayP99 | DelayMax | Loss | RttP50 | RttP95 | RttP99 => true,
            Transactions | HtbRatio => true,
            Drops | Marked | Queue => true,
            Rate | Packets | Offered | GapMean | GapDeviation | GapMode | GapModeShare | GapSecondMode | Reach => true,
            Share | WireShare | WireRate | Cells | Counter | Identities | Disagreements | Ratio | Monotone => false,
            Memory | ClassMemory | AnswerMax | KeyTime | ClassifyTime | EnqueueTime | DequeueTime | PacketTime => false,
        }
    }

    /// Whether it is only known at the end of the run.
    pub fn of_the_end(self) -> bool {
        matches!(self, Measure::Counter | Measure::Identities | Measure::Disagreements)
    }

    /// Whether it is the engine's time for a packet, which needs a clock but no traffic.
    pub fn of_engine(self) -> bool {
        use Measure::*;
        matches!(self, KeyTime | ClassifyTime | EnqueueTime | DequeueTime | PacketTime)
    }

    /// Whether only the lab has it.
    pub fn of_lab(self) -> bool {
        self.of_engine() || matches!(self, Measure::HtbRatio | Measure::AnswerMax)
    }

    /// Whether it needs the gaps between a flow's packets.
    pub fn of_gaps(self) -> bool {
        use Measure::*;
        matches!(self, GapMean | GapDeviation | GapMode | GapModeShare | GapSecondMode)
    }
}
