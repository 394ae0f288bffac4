//! Where a loop meets the world: an [`Edge`] brings frames, takes them, tells the time and waits.

use altq_engine::units::Nanos;

use crate::error::Error;
use crate::pool::Pool;

/// Most frames taken in or given out in one call: what a system call costs is spread over them (32
/// to 64 is where it stops to matter).
pub const BATCH: usize = 64;

/// What a loop waits for, besides its deadline and being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Frames that arrive. False while there is no slot for one.
    pub frames: bool,
    /// The other side taking frames again, after [`Sent::blocked`].
    pub room: bool,
}

/// Why [`Edge::send`] took less than all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// The other side is full; [`Edge::wait`] tells when it is not.
    Full,
    /// The other side is full and does not tell: to be tried again at this time.
    Until(Nanos),
}

/// What [`Edge::send`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Frames that it is done with, from the first on: sent, or refused and counted.
    pub done: usize,
    /// Set where it was not all: the rest is to be given again.
    pub blocked: Option<Blocked>,
}

/// What woke a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Woken {
    /// There may be frames.
    pub frames: bool,
    /// It is to end.
    pub stop: bool,
}

/// What happened to frames outside the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeCounters {
    /// Frames taken in.
    pub received: u64,
    /// Their bytes, layer 2.
    pub received_bytes: u64,
    /// Frames given out.
    pub sent: u64,
    /// Lost before altq saw them: the receive buffer was full.
    pub missed: u64,
    /// Longer than a slot, or with a super-packet's header that the kernel could not tell: dropped
    /// on arrival.
    pub unreadable: u64,
    /// Given out and refused for good: longer than the device's MTU, or a header that the kernel
    /// does not take.
    pub refused: u64,
    /// Longer than a tunnel's MTU: dropped on arrival.
    pub too_large: u64,
    /// Taken by the device and dropped there, as its own statistics say.
    pub lost: u64,
    /// Times at which the other side was full, and frames waited for it.
    pub blocked: u64,
}

impl EdgeCounters {
    /// Frames that were lost outside the engine's queues, on either side.
    pub fn dropped(&self) -> u64 {
        self.missed + self.unreadable + self.refused + self.too_large + self.lost
    }
}

/// A place where frames come in and go out.
pub trait Edge {
    /// The time. Never goes back.
    fn now(&mut self) -> Nanos;

    /// Takes what has arrived, at most [`BATCH`] frames, into slots of the pool; their handles are
    /// added to `out`. False if it had no slot to take any into.
    ///
    /// # Errors
    /// What ends the loop: the interface went away.
    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<u32>) -> Result<bool, Error>;

    /// Gives frames out, in order. The slots stay the caller's.
    ///
    /// `ends`: when the last bit of each frame leaves, where the loop's [`Output`] knows that; else
    /// it is empty, and they leave now. Only an edge that stands for what lies behind the wire has
    /// a use for it; any other gives the frames out at once.
    ///
    /// [`Output`]: crate::output::Output
    ///
    /// # Errors
    /// What ends the loop.
    fn send(&mut self, pool: &mut Pool, frames: &[u32], ends: &[Nanos]) -> Result<Sent, Error>;

    /// Waits until there is what is wanted, or the deadline (an absolute time) has passed, or the
    /// loop is to stop.
    ///
    /// # Errors
    /// What ends the loop.
    fn wait(&mut self, deadline: Option<Nanos>, want: Want) -> Result<Woken, Error>;

    /// Whether the loop is to stop, without waiting.
    fn stopped(&mut self) -> bool;

    /// What happened so far outside the engine.
    fn counters(&mut self) -> EdgeCounters;
}
