//! What is measured, and what it must be.

use altq_engine::units::Nanos;
use serde::{Deserialize, Serialize};

/// Something that must come out.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// Its name, unique in its column.
    pub name: String,
    /// What is measured.
    pub measure: Measure,
    /// Of what.
    pub subject: Subject,
    /// The share's base: a class's name, whose sent bytes are the whole. `None`: the link's rate over the window.
    pub of: Option<String>,
    /// The window's begin.
    pub from: Nanos,
    /// The window's end, itself not in it.
    pub to: Nanos,
    /// What it must be, in the measure's own unit.
    pub expected: f64,
    /// How far off it may be, in the same unit.
    pub tolerance: f64,
    /// On which side.
    pub bound: Bound,
    /// The column that it is about; `None`: every one.
    pub column: Option<String>,
    /// `Some(true)`: only in the simulator; `Some(false)`: only in the lab; `None`: both.
    pub simulated: Option<bool>,
    /// Where the expected figure comes from.
    pub source: String,
}

impl Expectation {
    /// Whether a measured figure will do.
    pub fn holds(&self, measured: f64) -> bool {
        match self.bound {
            Bound::Within => (measured - self.expected).abs() <= self.tolerance,
            Bound::AtMost => measured <= self.expected + self.tolerance,
            Bound::AtLeast => measured >= self.expected - self.tolerance,
        }
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

/// What a figure is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A class.
    Class(String),
    /// A flow, as a place in the case's flows.
    Flow(usize),
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Class: bytes charged for what it sent, as a fraction of the base.
    Share,
    /// Class: its own bytes sent, in bit/s.
    Rate,
    /// Flow: payload delivered, in bit/s.
    Goodput,
    /// Class: sojourn in the link; flow: from source to destination. Nanoseconds: the median.
    DelayP50,
    /// The 99th percentile.
    DelayP99,
    /// The longest.
    DelayMax,
    /// Class: packets dropped.
    Drops,
    /// Flow: packets that did not arrive, as a fraction of those sent.
    Loss,
    /// Flow: round trips, nanoseconds: the median.
    RttP50,
    /// The 99th percentile.
    RttP99,
    /// Flow: requests answered a second.
    Transactions,
    /// Flow: its goodput as a ratio to that of the same flow through kernel HTB, in the same run: the policy's own classes where its
    /// scheduler is htb, else one class of the link's rate. Class, of a policy of htb: the same of its charged bytes. Only in the lab.
    HtbRatio,
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

impl Measure {
    /// All, with the words for them.
    pub const ALL: [(&'static str, Measure); 12] = [
        ("share", Measure::Share),
        ("rate", Measure::Rate),
        ("goodput", Measure::Goodput),
        ("delay_p50", Measure::DelayP50),
        ("delay_p99", Measure::DelayP99),
        ("delay_max", Measure::DelayMax),
        ("drops", Measure::Drops),
        ("loss", Measure::Loss),
        ("rtt_p50", Measure::RttP50),
        ("rtt_p99", Measure::RttP99),
        ("transactions", Measure::Transactions),
        ("htb_ratio", Measure::HtbRatio),
    ];

    /// Its unit.
    pub fn unit(self) -> Unit {
        match self {
            Measure::Share | Measure::Loss => Unit::Fraction,
            Measure::Rate | Measure::Goodput => Unit::Rate,
            Measure::Drops | Measure::Transactions | Measure::HtbRatio => Unit::Count,
            _ => Unit::Time,
        }
    }

    /// Whether it can be said of a class.
    pub fn of_class(self) -> bool {
        use Measure::*;
        matches!(self, Share | Rate | DelayP50 | DelayP99 | DelayMax | Drops | HtbRatio)
    }

    /// Whether it can be said of a flow.
    pub fn of_flow(self) -> bool {
        use Measure::*;
        matches!(self, Goodput | DelayP50 | DelayP99 | DelayMax | Loss | RttP50 | RttP99 | Transactions | HtbRatio)
    }
}
