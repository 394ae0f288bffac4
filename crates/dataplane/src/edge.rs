//! How a loop receives and sends frames: an [`Edge`] delivers frames, takes them, tells the time
//! and waits.

use altq_engine::headers::Key;
use altq_engine::units::Nanos;

use crate::error::Error;
use crate::pool::Pool;
use crate::segment::Super;

/// The most frames that are received or sent in one call, so that they share the cost of a system
/// call. More than 32 to 64 hardly help.
pub const BATCH: usize = 64;

/// What a loop waits for, in addition to its deadline and the signal to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Frames that arrive. False while there is no free slot.
    pub frames: bool,
    /// The other side accepting frames again, after [`Sent::blocked`].
    pub room: bool,
}

/// Why [`Edge::send`] did not take all frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// The other side is full; [`Edge::wait`] returns when it has room.
    Full,
    /// The other side is full and will not report room; the loop tries again at this time.
    Until(Nanos),
}

/// The outcome of [`Edge::send`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Number of frames, from the first on, that were sent, or were refused and counted.
    pub done: usize,
    /// Set if that is not all of them; the loop must send the others again, in the same order and
    /// before any others.
    pub blocked: Option<Blocked>,
}

/// What woke a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Woken {
    /// There may be frames to receive.
    pub frames: bool,
    /// The loop must end.
    pub stop: bool,
}

/// What happened to frames outside the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeCounters {
    /// Frames received.
    pub received: u64,
    /// Their bytes at layer 2.
    pub received_bytes: u64,
    /// Frames sent.
    pub sent: u64,
    /// Frames lost before altq received them, because the receive buffer or the room for waiting
    /// frames was full.
    pub missed: u64,
    /// Frames dropped on arrival, because they were longer than a slot, or because the kernel could
    /// not describe them with a virtio header.
    pub unreadable: u64,
    /// Frames that the device refused to send: longer than its MTU, or with a header that the
    /// kernel does not accept.
    pub refused: u64,
    /// Frames dropped on arrival because they were longer than a tunnel's MTU.
    pub too_large: u64,
    /// Taken by the device and dropped there, as its own statistics say.
    pub lost: u64,
    /// How often the other side was full, so that frames had to wait.
    pub blocked: u64,
}

impl EdgeCounters {
    /// Frames that were lost outside the engine's queues, before or after it.
    pub fn dropped(&self) -> u64 {
        self.missed + self.unreadable + self.refused + self.too_large + self.lost
    }
}

/// Where a loop receives and sends frames.
pub trait Edge {
    /// The time. Never goes back.
    fn now(&mut self) -> Nanos;

    /// How late a frame may be received after it came. 0 if the clock moves from event to event.
    fn seen_late(&self) -> Nanos {
        0
    }

    /// The memory for the loop's frames, with room for this many; the loop asks for it once, before
    /// everything else. An edge whose frames lie in memory of its own gives that.
    fn pool(&mut self, heads: usize, bodies: usize) -> Pool {
        Pool::new(heads, bodies)
    }

    /// Receives frames that have arrived, at most [`BATCH`], into slots of the pool, and adds their
    /// handles to `out`. False if there was no free slot.
    ///
    /// # Errors
    /// Errors that end the loop: the interface is gone.
    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<u32>) -> Result<bool, Error>;

    /// Sends frames, in order. Their slots still belong to the caller.
    ///
    /// `ends`: when the last bit of each frame leaves, if the loop's [`Output`] knows that;
    /// otherwise it is empty, and the frames leave now. Only an edge that emulates the network
    /// after the wire uses these times; any other edge sends the frames at once.
    ///
    /// [`Output`]: crate::output::Output
    ///
    /// # Errors
    /// Errors that end the loop.
    fn send(&mut self, pool: &mut Pool, frames: &[u32], ends: &[Nanos]) -> Result<Sent, Error>;

    /// Takes note that the engine has dropped a frame, which is thus not sent. Its slots still
    /// belong to the caller. An edge whose frames wait elsewhere frees them there.
    fn dropped(&mut self, handle: u32) {
        let _ = handle;
    }

    /// True if the edge sends such a super-packet as it is. Otherwise it is cut into single
    /// segments.
    fn segments(&self, whole: &Super) -> bool {
        let _ = whole;
        true
    }

    /// Takes note that a frame is not sent because nobody can: a super-packet whose headers are not
    /// understood, so that it can be cut neither here nor by the kernel. Its slots still belong to
    /// the caller.
    fn refuse(&mut self, handle: u32) {
        self.dropped(handle);
    }

    /// Adds to the key of a received frame what the edge knows and the frame's bytes do not say.
    fn describe(&self, handle: u32, key: &mut Key) {
        let _ = (handle, key);
    }

    /// True if what the loop writes into the ECN field of a received frame is in what leaves.
    /// Otherwise queues drop the packet where they would mark it.
    fn writes_ecn(&self, handle: u32) -> bool {
        let _ = handle;
        true
    }

    /// True if the pool holds all bytes of the frames. Super-packets are cut only then.
    fn holds_bytes(&self) -> bool {
        true
    }

    /// Waits until something of `want` has happened, the deadline (an absolute time) has passed, or
    /// the loop must stop.
    ///
    /// # Errors
    /// Errors that end the loop.
    fn wait(&mut self, deadline: Option<Nanos>, want: Want) -> Result<Woken, Error>;

    /// Whether the loop must stop; does not wait.
    fn stopped(&mut self) -> bool;

    /// Counters of what has happened outside the engine.
    fn counters(&mut self) -> EdgeCounters;
}
