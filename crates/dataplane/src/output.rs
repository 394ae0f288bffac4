//! The output of a link's loop: it decides how many packets may leave, and when.

use std::convert::Infallible;

use altq_engine::Departure;
use altq_engine::drive::{Taken, Transmitter};
use altq_engine::headers::Key;
use altq_engine::spec::ClassId;
use altq_engine::units::{Nanos, Rate};

/// The transmitter of a loop.
///
/// A loop wakes up later than it asked for, and outputs deal with that in two ways. A device takes
/// packets whenever it is given some. The engine is then asked in every turn of the loop, with the
/// time of that turn, once the arrived packets are in the queues. A transmitter in software knows
/// beforehand when each of its packets ends ([`BY_EVENTS`](Output::BY_EVENTS)). There a late loop
/// loses nothing: the events that were due are handled first, in order and with their own times,
/// and then what has arrived since.
pub trait Output: Transmitter<Error = Infallible> {
    /// Whether the engine is asked at events only: when a packet has ended, a timer fires, a packet
    /// arrives, or the link changes.
    const BY_EVENTS: bool = false;

    /// When a full transmitter has room again, if that is known.
    fn next_end(&self) -> Option<Nanos> {
        None
    }

    /// Notes that the packet of [`next_end`](Output::next_end) has ended. Called only with
    /// [`BY_EVENTS`](Output::BY_EVENTS).
    fn complete(&mut self) {}

    /// Sets the rate, for packets taken from now on.
    fn set_rate(&mut self, rate: Rate) {
        let _ = rate;
    }

    /// Notes that a packet was put into a queue. `dropped`: it, or another packet in its place, was
    /// dropped. Returns false if the engine need not be asked now.
    fn arrived(&mut self, key: &Key, dropped: bool) -> bool {
        let _ = (key, dropped);
        true
    }

    /// Bytes that a class's own packets took on the wire, if they differ from what the link
    /// charged.
    fn wire_bytes(&self, class: ClassId) -> Option<u64> {
        let _ = class;
        None
    }
}

/// A device that takes packets whenever it is given some. The link's regulator keeps the rate.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceOutput;

impl Transmitter for DeviceOutput {
    type Error = Infallible;

    #[inline]
    fn has_room(&self, _: Nanos) -> bool {
        true
    }

    #[inline]
    fn take(&mut self, _: Nanos, departure: &Departure) -> Result<Taken, Infallible> {
        Ok(Taken { end: None, bytes: departure.packet.wire })
    }
}

impl Output for DeviceOutput {}
