//! The event trace: what happened to packets, in order.

use crate::account::DropReason;
use crate::packet::Packet;
use crate::spec::ClassId;
use crate::units::Nanos;

/// Something that happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it happened.
    pub at: Nanos,
    /// The packet's class.
    pub class: ClassId,
    /// The packet.
    pub packet: Packet,
    /// What happened to it.
    pub what: What,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It was put in its queue.
    Queued,
    /// It was handed to the device.
    Sent {
        /// True if it used bandwidth beyond the class's own.
        borrowed: bool,
    },
    /// It was dropped.
    Dropped(DropReason),
}

/// The latest events, in a ring of fixed size. Old events are overwritten, but still count in the
/// total.
#[derive(Debug, Default)]
pub struct Trace {
    ring: Vec<Event>,
    next: usize,
    total: u64,
}

impl Trace {
    /// A ring for the latest `capacity` events (at least 1). Allocates here and never again.
    pub fn new(capacity: usize) -> Trace {
        Trace { ring: Vec::with_capacity(capacity.max(1)), next: 0, total: 0 }
    }

    pub(crate) fn push(&mut self, event: Event) {
        self.total += 1;
        if self.ring.len() < self.ring.capacity() {
            self.ring.push(event);
        } else {
            self.ring[self.next] = event;
            self.next = (self.next + 1) % self.ring.len();
        }
    }

    /// The events held, oldest first.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        let (new, old) = self.ring.split_at(self.next);
        old.iter().chain(new)
    }

    /// Events so far, the overwritten ones included.
    pub fn total(&self) -> u64 {
        self.total
    }
}
