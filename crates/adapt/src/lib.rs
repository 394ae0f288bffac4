//! The rate of a link whose capacity changes: LTE, cable, satellite.
//!
//! A shaper keeps the queue only while its rate is at most what the line carries. If the line
//! becomes slower, packets wait in the modem or in the base station instead, where nobody schedules
//! them; if it becomes faster, the shaper wastes it. A [`Controller`] follows the line: it is told
//! how long probes took and how much the link sent, and says which rate the link should have.
//!
//! Everything here is pure. Time is an argument, nothing is read or sent, numbers are whole. So the
//! simulator runs a controller in virtual time, `altq run` runs it beside the loop, and both get
//! the same rates for the same samples on every machine.
//!
//! [`Adaptive`] is altq's controller; docs/adapt.md has its rules and their sources.
//!
//! ```
//! use altq_adapt::{Adaptive, Answer, Controller, Load, Sample, Settings};
//! use altq_engine::units::Rate;
//!
//! let mbit = Rate::mbit_s;
//! let settings = Settings::new(mbit(20), mbit(5), mbit(60), 30_000_000);
//! let mut controller = Adaptive::new(settings, 1);
//! // The first answer takes 40 ms, the next two 140 ms: more than 30 ms longer than usual.
//! for (at, delay) in [(0, 40), (250, 140), (500, 140)] {
//!     let (now, answer) = (at * 1_000_000, Answer::After(delay * 1_000_000));
//!     controller.heard(Sample { at: now, reflector: 0, sent: now, answer });
//!     controller.decide(Load { at: now, sent_bytes: at * 2_500, backlogged: true });
//! }
//! assert!(controller.rate() < mbit(20));
//! ```

#![forbid(unsafe_code)]

mod adaptive;
mod constants;
mod reflector;
mod said;
mod usage;

use altq_engine::units::{Nanos, Rate};

pub use adaptive::Adaptive;
pub use constants::{CUT_EVERY, DEADLINE, LEAST_GAP, PROBE_BYTES, PROBE_EVERY, TICK};
pub use said::{Decision, Health, Notice, Noticed, Reason};

/// The bounds of a link's rate, and the delay that is tolerated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    base: Rate,
    from: Rate,
    to: Rate,
    target: Nanos,
}

impl Settings {
    /// `base`: the rate at the start, and the one to which an unused link returns. `from` and `to`:
    /// the bounds, which the rate never leaves. `target`: by how much longer than usual an answer
    /// may take, in nanoseconds.
    ///
    /// Values that do not fit together are moved to the nearest that do: `from` and `target` are at
    /// least 1, `to` is at least `from`, `base` lies between them.
    pub fn new(base: Rate, from: Rate, to: Rate, target: Nanos) -> Settings {
        let from = from.max(Rate::bit_s(1));
        let to = to.max(from);
        Settings { base: base.clamp(from, to), from, to, target: target.max(1) }
    }

    /// The rate at the start, and the one to which an unused link returns.
    pub fn base(&self) -> Rate {
        self.base
    }

    /// The lowest rate.
    pub fn from(&self) -> Rate {
        self.from
    }

    /// The highest rate.
    pub fn to(&self) -> Rate {
        self.to
    }

    /// By how much longer than usual an answer may take, in nanoseconds.
    pub fn target(&self) -> Nanos {
        self.target
    }
}

/// What became of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The answer took this long, in nanoseconds. It is the round trip, or the time in one
    /// direction by the clocks of both ends, whose difference may make it negative: only changes
    /// count.
    After(i64),
    /// There was no answer within [`DEADLINE`]. If one comes later all the same, it is a sample of
    /// its own.
    Lost,
}

/// What a probe measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When the answer came, or when it was given up.
    pub at: Nanos,
    /// The number of the reflector, from 0. Numbers that the controller was not made for are
    /// ignored.
    pub reflector: usize,
    /// When the probe was sent.
    pub sent: Nanos,
    /// What became of it.
    pub answer: Answer,
}

/// What the link did up to now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The present time.
    pub at: Nanos,
    /// Bytes that the link charged for packets it has sent, since it began. Fewer than before mean
    /// that it began anew.
    pub sent_bytes: u64,
    /// True if packets wait in the link.
    pub backlogged: bool,
}

/// Says which rate a link should have. Times of samples and loads must not decrease, but an earlier
/// one does no harm: it counts as the latest one.
pub trait Controller {
    /// A probe was sent to a reflector. Of [`Sample::sent`] the same time is expected.
    fn probed(&mut self, at: Nanos, reflector: usize);

    /// Takes what a probe measured.
    fn heard(&mut self, sample: Sample);

    /// Takes what the link did, and decides whether its rate changes now. It should be called about
    /// every [`TICK`]; calls at other times, more often or more rarely, do no harm.
    fn decide(&mut self, load: Load) -> Option<Decision>;

    /// Takes what else there was to say since the last call, in order of time.
    fn notices(&mut self) -> Vec<Notice>;

    /// The rate that the link should have now.
    fn rate(&self) -> Rate;
}
