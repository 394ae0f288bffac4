//! The rate of a link whose capacity changes: LTE, cable, satellite.
//!
//! Packets wait in the shaper only while its rate is at most what the line carries. If the line
//! becomes slower, they wait in the modem or in the base station instead, where nobody schedules
//! them; if it becomes faster, the shaper wastes capacity. A [`Controller`] follows the line: it is
//! told how long probes took, how much the link sent and whether packets wait, and decides which
//! rate the link should have.
//!
//! Everything here is pure: time is an argument, nothing is read or sent, and numbers are whole. So
//! the simulator can run a controller in virtual time, and `altq run` beside the loop. The same
//! samples and loads give the same rates on every machine.
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
//! // The first answer takes 40 ms, the next two take 140 ms: more than 30 ms longer than usual.
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
    /// Values that do not fit together are moved to the nearest that do: `from` is at least 1 bit/s
    /// and `target` at least 1 ns, `to` is at least `from`, and `base` lies between `from` and
    /// `to`.
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
    /// The answer took this long, in nanoseconds. It is the round trip, or the delay in one
    /// direction, measured with the clocks of both ends. If those differ, it may be negative; that
    /// does no harm, because only changes count.
    After(i64),
    /// There was no answer within [`DEADLINE`]. An answer that comes later is a sample of its own.
    Lost,
}

/// What a probe measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When the answer came, or when the probe was given up.
    pub at: Nanos,
    /// The number of the reflector, from 0. Samples of a number that the controller does not have
    /// are ignored.
    pub reflector: usize,
    /// When the probe was sent.
    pub sent: Nanos,
    /// What became of the probe.
    pub answer: Answer,
}

/// What the link has sent, and whether packets wait in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The present time.
    pub at: Nanos,
    /// The charged bytes of all packets that the link has sent since it began. A smaller number
    /// than before means that the link began anew.
    pub sent_bytes: u64,
    /// True if packets wait in the link.
    pub backlogged: bool,
}

/// Decides which rate a link should have. Times of samples and loads should not decrease. A time
/// before the latest one counts as the latest one.
pub trait Controller {
    /// A probe was sent to a reflector. [`Sample::sent`] of its sample must have the same time.
    fn probed(&mut self, at: Nanos, reflector: usize);

    /// Takes what a probe measured.
    fn heard(&mut self, sample: Sample);

    /// Takes the link's load, and decides whether its rate changes now. It should be called about
    /// every [`TICK`]; calls that come more often or more rarely do no harm.
    fn decide(&mut self, load: Load) -> Option<Decision>;

    /// The notices since the last call, in order of time. Each is returned once.
    fn notices(&mut self) -> Vec<Notice>;

    /// The rate that the link should have now.
    fn rate(&self) -> Rate;
}
