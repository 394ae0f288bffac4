//! Packets on their way through the tree: queues at the bottom, schedulers above them.

use std::cmp::Reverse;

use super::{Drop, Engine};
use crate::account::DropReason;
use crate::packet::Packet;
use crate::schedule::Slot;
use crate::spec::ClassId;
use crate::trace::{Event, What};
use crate::units::Nanos;

impl Engine {
    #[inline]
    pub(super) fn note(&mut self, class: ClassId, packet: Packet, what: What) {
        if let Some(trace) = &mut self.trace {
            trace.push(Event { at: self.now, class, packet, what });
        }
    }

    /// Puts a packet at the tail. True if the queue was empty.
    #[inline]
    pub(super) fn append(&mut self, class: ClassId, packet: Packet) -> bool {
        let at = self.slab.insert(packet);
        let leaf = &mut self.leaves[class as usize];
        let first = leaf.packets == 0;
        if first {
            leaf.head = at;
        } else {
            self.slab.link(leaf.tail, at);
        }
        leaf.tail = at;
        leaf.packets += 1;
        leaf.bytes += packet.len;
        self.note(class, packet, What::Queued);
        first
    }

    #[inline]
    pub(super) fn take_head(&mut self, class: ClassId) -> Packet {
        let leaf = &mut self.leaves[class as usize];
        let (packet, next) = self.slab.remove(leaf.head);
        leaf.head = next;
        leaf.packets -= 1;
        leaf.bytes -= packet.len;
        packet
    }

    #[inline]
    pub(super) fn head_wire(&self, class: ClassId) -> Option<u32> {
        let leaf = &self.leaves[class as usize];
        (leaf.packets > 0).then(|| self.slab.get(leaf.head).wire)
    }

    /// Tells the schedulers from a class upwards that a packet is at the door.
    #[inline]
    pub(super) fn knock(&mut self, mut node: u32, mut slot: Slot) {
        loop {
            let n = &mut self.nodes[node as usize];
            if n.hears_arrivals {
                n.inner.arriving(self.now, slot);
            }
            if node == 0 {
                return;
            }
            let place = self.places[n.class as usize];
            (node, slot) = (place.scheduler, place.slot);
        }
    }

    /// Tells the schedulers from a class upwards that a packet was queued.
    #[inline]
    pub(super) fn announce(&mut self, mut node: u32, mut slot: Slot, len: u32, mut first: bool) {
        let mut was_held = false;
        loop {
            let n = &mut self.nodes[node as usize];
            n.backlog += 1;
            if first || n.hears_arrivals {
                n.inner.queued(self.now, slot, len, first);
            }
            if was_held {
                n.inner.released(self.now, slot, len);
            }
            if node == 0 {
                return;
            }
            first = n.backlog == 1;
            // A scheduler that held packets back may have something to send now: it is asked again.
            was_held = n.blocked.take().is_some();
            let place = self.places[n.class as usize];
            (node, slot) = (place.scheduler, place.slot);
        }
    }

    /// Drops the head of a class's queue and tells the schedulers.
    pub(super) fn drop_from_head(&mut self, class: ClassId, reason: DropReason) {
        let leaf = self.leaves[class as usize];
        loop {
            let packet = self.take_head(class);
            self.count_drop(class, packet, reason);
            let next = self.head_wire(class);
            self.head_lost(leaf.scheduler, leaf.slot, next);
            let leaf = &self.leaves[class as usize];
            let fits = if leaf.limit_in_bytes { leaf.bytes <= leaf.limit } else { leaf.packets <= leaf.limit };
            if fits || leaf.packets == 0 {
                return;
            }
        }
    }

    /// Tells the schedulers from a class upwards that a first packet is gone.
    pub(super) fn head_lost(&mut self, mut node: u32, mut slot: Slot, mut next: Option<u32>) {
        let mut tell = true;
        loop {
            let n = &mut self.nodes[node as usize];
            n.backlog -= 1;
            if tell || n.hears_arrivals {
                n.inner.head_lost(self.now, slot, next);
            }
            if node == 0 {
                return;
            }
            // Above, only the loss of the last packet shows, and one that was held back is out of the race already.
            let was_held = n.blocked.is_some();
            if n.backlog == 0 {
                n.blocked = None;
                next = None;
            } else if next.is_none() {
                // The class below is empty, this scheduler is not: another class has what comes next.
                next = Some(self.overhead.charge(self.mtu));
            }
            tell = n.backlog == 0 && !was_held;
            let place = self.places[n.class as usize];
            (node, slot) = (place.scheduler, place.slot);
        }
    }

    /// An inner scheduler has packets but may send none: the ones above are to look elsewhere until it may.
    #[cold]
    pub(super) fn block(&mut self, node: u32) {
        let n = &mut self.nodes[node as usize];
        let until = n.inner.next_wakeup().unwrap_or(Nanos::MAX).max(self.now + 1);
        n.blocked = Some(until);
        let place = self.places[n.class as usize];
        if until != Nanos::MAX {
            self.wakeups.push(Reverse((until, node)));
        }
        self.nodes[place.scheduler as usize].inner.held(self.now, place.slot);
    }

    /// Gives inner schedulers whose time has come back to the race, and with them those above that waited for them.
    pub(super) fn release(&mut self) {
        while let Some(&Reverse((time, node))) = self.wakeups.peek() {
            if time > self.now {
                return;
            }
            self.wakeups.pop();
            let mut node = node;
            if self.nodes[node as usize].blocked != Some(time) {
                continue;
            }
            while node != 0 && self.nodes[node as usize].blocked.take().is_some() {
                let place = self.places[self.nodes[node as usize].class as usize];
                let len = self.overhead.charge(self.mtu);
                self.nodes[place.scheduler as usize].inner.released(self.now, place.slot, len);
                node = place.scheduler;
            }
        }
    }

    pub(super) fn count_drop(&mut self, class: ClassId, packet: Packet, reason: DropReason) {
        let sent = &mut self.sent[class as usize];
        sent.dropped_packets += 1;
        sent.dropped_bytes += u64::from(packet.len);
        let (packets, bytes) = &mut self.reasons[class as usize].get_or_insert_default()[reason as usize];
        *packets += 1;
        *bytes += u64::from(packet.len);
        self.note(class, packet, What::Dropped(reason));
        self.drops.push(Drop { at: self.now, class: Some(class), packet, reason });
    }

    pub(super) fn drop_unclassified(&mut self, packet: Packet) {
        self.unclassified.0 += 1;
        self.unclassified.1 += u64::from(packet.len);
        self.drops.push(Drop { at: self.now, class: None, packet, reason: DropReason::NoClass });
    }
}
