//! What the loop of a link sends by: it decides how many packets may leave, and when.

use std::convert::Infallible;

use altq_engine::Departure;
use altq_engine::drive::{Taken, Transmitter};
use altq_engine::headers::Key;
use altq_engine::spec::ClassId;
use altq_engine::units::{Nanos, Rate};

use crate::pacer::Pacer;

/// The transmitter of a loop.
///
/// A loop wakes up later than it wanted to. What that means depends on what it sends by. Where the
/// device takes packets when it is given them, the engine is asked at every turn of the loop, at
/// the time that it is then, and behind what has arrived. A transmitter in software that knows
/// beforehand when each of its packets ends ([`BY_EVENTS`](Output::BY_EVENTS)) loses nothing by a
/// late loop: what was due happens at its own time and in its own order, before anything that has
/// arrived since.
pub trait Output: Transmitter<Error = Infallible> {
    /// Whether the engine is asked at events only: when a packet has ended, when a timer fires,
    /// when one has arrived or the link has changed.
    const BY_EVENTS: bool = false;

    /// When a full transmitter has room again, if that is known.
    fn next_end(&self) -> Option<Nanos>;

    /// The packet that [`next_end`](Output::next_end) is about has ended. Called only where the
    /// engine is asked at events.
    fn complete(&mut self) {}

    /// There has been nothing to send since the last turn of the loop; it is `now` now. Called only
    /// where the engine is asked at every turn.
    fn idle(&mut self, now: Nanos) {
        let _ = now;
    }

    /// Another rate, for packets taken from now on.
    fn set_rate(&mut self, rate: Rate);

    /// A packet has been put into a queue. `dropped`: one was dropped for it, that one or another.
    /// False if the engine need not be asked for that.
    fn arrived(&mut self, key: &Key, dropped: bool) -> bool {
        let _ = (key, dropped);
        true
    }

    /// Bytes on the wire of a class's own packets, if that is not what the link charged for them.
    fn wire_bytes(&self, class: ClassId) -> Option<u64> {
        let _ = class;
        None
    }
}

/// A device that takes what it is given.
#[derive(Clone, Debug, Default)]
pub struct DeviceOutput {
    /// What keeps the link's rate; `None`: the device takes what it can.
    pub pacer: Option<Pacer>,
}

impl Transmitter for DeviceOutput {
    type Error = Infallible;

    #[inline]
    fn has_room(&self, now: Nanos) -> bool {
        self.pacer.as_ref().is_none_or(|pacer| pacer.ready(now))
    }

    #[inline]
    fn take(&mut self, now: Nanos, departure: &Departure) -> Result<Taken, Infallible> {
        let bytes = departure.packet.wire;
        if let Some(pacer) = &mut self.pacer {
            pacer.sent(now, bytes);
        }
        Ok(Taken { end: None, bytes })
    }
}

impl Output for DeviceOutput {
    #[inline]
    fn next_end(&self) -> Option<Nanos> {
        self.pacer.as_ref().map(Pacer::free_at)
    }

    #[inline]
    fn idle(&mut self, now: Nanos) {
        if let Some(pacer) = &mut self.pacer {
            pacer.idle(now);
        }
    }

    fn set_rate(&mut self, rate: Rate) {
        if let Some(pacer) = &mut self.pacer {
            pacer.set_rate(rate);
        }
    }
}
