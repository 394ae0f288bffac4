//! The way of a packet through the tree: queues at the bottom, schedulers above them.

use std::cmp::Reverse;

use super::{Buffers, Departure, Drop, Engine, HOLDS_SCHEDULER, How, Kind, MAX_NESTING, Node};
use crate::account::DropReason;
use crate::packet::Packet;
use crate::queue::Taken;
use crate::schedule::{Admit, ROOT_SLOT, Slot};
use crate::shape::meter::Outcome;
use crate::spec::{ClassId, ROOT};
use crate::trace::{Event, What};
use crate::units::Nanos;

impl Node {
    /// Lets the class send that the scheduler chooses.
    #[inline]
    pub(super) fn depart(&mut self, now: Nanos, buffers: &mut Buffers) -> Option<Departure> {
        let classes: &[ClassId] = if self.slots_are_classes { &[] } else { &self.classes };
        self.inner.depart(now, classes, buffers)
    }

    /// The class of a slot, with the bit [`HOLDS_SCHEDULER`] if it holds a scheduler.
    #[inline]
    pub(super) fn class(&self, slot: Slot) -> ClassId {
        if self.slots_are_classes { slot } else { self.classes[slot as usize] }
    }

    /// A packet of the class at `slot` is sent: of `len` own bytes and `wire` charged ones; `next`
    /// is the charged length of the next. True if it goes on borrowed bandwidth.
    #[inline]
    pub(super) fn sent(&mut self, now: Nanos, slot: Slot, (len, wire): (u32, u32), next: Option<u32>) -> bool {
        self.backlog -= 1;
        let borrowed = self.inner.sent(now, slot, wire, next);
        if borrowed && self.wants_arrivals {
            self.inner.count_borrowed(slot, len);
        }
        borrowed
    }
}

impl Engine {
    #[inline(always)]
    pub(super) fn trace_packet(&mut self, class: ClassId, packet: &Packet, what: What) {
        if self.trace.is_some() {
            self.record_event(class, packet, what);
        }
    }

    #[cold]
    pub(super) fn record_event(&mut self, class: ClassId, packet: &Packet, what: What) {
        if let Some(trace) = &mut self.trace {
            trace.push(Event { at: self.now, class, packet: *packet, what });
        }
    }

    /// [`enqueue`](Engine::enqueue) for all cases. The packet has its time of arrival and its
    /// charged length.
    #[inline(never)]
    pub(super) fn enqueue_any(&mut self, mut class: ClassId, mut packet: Packet) {
        if self.metered && self.buffers.leaves.get(class as usize).is_some_and(|leaf| leaf.exists) {
            let default = self.default.filter(|default| *default != class);
            let mut outcome = self.apply_meters(class, &mut packet, default.is_some());
            // A packet that goes to the default class goes through the meters there as well, but no
            // further.
            if outcome == Outcome::Default
                && let Some(default) = default
            {
                class = default;
                outcome = self.apply_meters(class, &mut packet, false);
            }
            if outcome == Outcome::Drop {
                return self.count_drop(class, packet, DropReason::Policed);
            }
            // Mostly nobody but meters looks at arrivals.
            if !self.may_refuse && self.trace.is_none() && self.enqueue_quickly(class, &packet, packet.wire) {
                return;
            }
        }
        let Some(leaf) = self.buffers.leaves.get(class as usize).filter(|leaf| leaf.exists) else {
            return self.drop_unclassified(packet);
        };
        let (node, slot, kind) = (leaf.scheduler, leaf.slot, leaf.kind);
        let fits = leaf.fits(packet.len);
        if self.may_refuse
            && let Admit::Drop(reason) = self.ask_admission(node, slot, packet.wire)
        {
            self.count_drop(class, packet, reason);
            return self.drop_victims(node);
        }
        if kind == Kind::Stateful {
            self.enqueue_stateful(class, &mut packet);
        } else if fits {
            let first = self.append(class, &packet);
            self.report_queued(node, slot, packet.wire, first);
        } else {
            self.overflow(class, packet);
        }
        if self.may_refuse {
            self.drop_victims(node);
        }
    }

    /// Drops the packets that the schedulers from a class upwards name after an arrival.
    pub(super) fn drop_victims(&mut self, mut node: u32) {
        loop {
            while let Some((slot, reason)) = self.nodes[node as usize].inner.victim() {
                let class = self.nodes[node as usize].class(slot);
                let leaf = self.buffers.leaves.get(class as usize);
                if leaf.is_some_and(|leaf| leaf.kind != Kind::Stateful && leaf.packets > 0) {
                    self.drop_tail(class, reason);
                }
            }
            if node == 0 {
                return;
            }
            node = self.places[self.nodes[node as usize].class as usize].scheduler;
        }
    }

    /// Applies the meters of a class and of the classes above it to a packet, from the class
    /// upwards, until one of them does not let it pass. A packet for the default class passes,
    /// unless it `may_move` there.
    fn apply_meters(&mut self, class: ClassId, packet: &mut Packet, may_move: bool) -> Outcome {
        let mut at = class;
        loop {
            let place = &mut self.places[at as usize];
            if let Some(meter) = &mut place.meter {
                let outcome = meter.apply(self.now, packet);
                if outcome == Outcome::Drop || outcome == Outcome::Default && may_move {
                    return outcome;
                }
            }
            if at == ROOT {
                return Outcome::Pass;
            }
            at = place.parent;
        }
    }

    /// [`dequeue`](Engine::dequeue) of a link with a regulator.
    #[inline(never)]
    pub(super) fn dequeue_regulated(&mut self, now: Nanos) -> Option<Departure> {
        if self.nodes[0].backlog > 0 && self.regulator.as_mut().is_some_and(|regulator| !regulator.ready(now)) {
            self.now = now;
            return None;
        }
        let departure = self.dequeue_any(now);
        if let (Some(regulator), Some(Departure { packet, .. })) = (&mut self.regulator, &departure) {
            regulator.sent(now, packet.arrived, packet.wire);
        }
        departure
    }

    /// [`dequeue`](Engine::dequeue) while packets are queued.
    pub(super) fn dequeue_backlogged(&mut self, now: Nanos) -> Option<Departure> {
        if !self.wakeups.is_empty() {
            self.unblock_due();
        }
        let root = &mut self.nodes[0];
        let mut departure = root.depart(now, &mut self.buffers);
        if departure.is_some() {
            root.backlog -= 1;
            if self.trace.is_some() {
                self.trace_departure(&departure);
            }
        } else if self.buffers.how != How::Nobody {
            departure = self.dequeue_otherwise();
        }
        departure
    }

    #[cold]
    fn trace_departure(&mut self, departure: &Option<Departure>) {
        if let (Some(Departure { class, packet }), How::Sent { borrowed }) = (departure, self.buffers.how) {
            self.record_event(*class, packet, What::Sent { borrowed });
        }
    }

    /// [`dequeue`](Engine::dequeue) where [`Node::depart`] has left something to do.
    #[inline(never)]
    fn dequeue_otherwise(&mut self) -> Option<Departure> {
        loop {
            match self.buffers.how {
                // A call that returned no packet never says that one was sent.
                How::Nobody | How::Sent { .. } => return None,
                How::Inside(slot) => return self.dequeue_nested(slot),
                How::Lost(class, slot) => {
                    if let Some(departure) = self.dequeue_lossy(class, slot) {
                        return Some(departure);
                    }
                }
            }
            // The queue has dropped all its packets: another class is to be chosen.
            let root = &mut self.nodes[0];
            let departure = root.depart(self.now, &mut self.buffers);
            if departure.is_some() {
                root.backlog -= 1;
                self.trace_departure(&departure);
                return departure;
            }
        }
    }

    /// The rest of a departure from a queue with a state of its own that dropped or marked packets.
    /// `None` if it dropped all its packets.
    fn dequeue_lossy(&mut self, class: ClassId, slot: Slot) -> Option<Departure> {
        let lossy = std::mem::take(&mut self.buffers.lossy);
        let (taken, next) = self.depart_with_losses(class, lossy)?;
        self.count_sent(class, &taken);
        let borrowed = self.nodes[0].sent(self.now, slot, (taken.len, taken.wire), next);
        Some(self.finish_departure(class, taken, borrowed))
    }

    /// Puts a packet at the tail of a plain queue, and traces it. True if the queue was empty.
    #[inline]
    pub(super) fn append(&mut self, class: ClassId, packet: &Packet) -> bool {
        let first = self.put(class, packet);
        self.trace_packet(class, packet, What::Queued);
        first
    }

    #[inline]
    pub(super) fn put(&mut self, class: ClassId, packet: &Packet) -> bool {
        let at = self.buffers.slab.insert(packet);
        let leaf = &mut self.buffers.leaves[class as usize];
        let first = leaf.packets == 0;
        if first {
            leaf.head = at;
        } else {
            self.buffers.slab.link(leaf.tail, at, packet.wire);
        }
        leaf.tail = at;
        leaf.packets += 1;
        leaf.bytes += packet.len;
        first
    }

    /// Takes the first packet of a plain queue. Returns it with the charged length of the next one.
    #[inline]
    pub(super) fn take_head(&mut self, class: ClassId) -> (Taken, Option<u32>) {
        let leaf = &mut self.buffers.leaves[class as usize];
        let at = leaf.head;
        let (len, wire, next, next_wire) = self.buffers.slab.first(at, &self.buffers.charges);
        leaf.head = next;
        leaf.packets -= 1;
        leaf.bytes -= len;
        let next = (leaf.packets > 0).then_some(next_wire);
        (Taken { at, len, wire }, next)
    }

    /// A packet does not fit into a plain queue: it is dropped, or the packets at the head are.
    #[cold]
    pub(super) fn overflow(&mut self, class: ClassId, packet: Packet) {
        let leaf = self.buffers.leaves[class as usize];
        let too_long = leaf.limit_in_bytes && packet.len > leaf.limit || leaf.bytes.checked_add(packet.len).is_none();
        if leaf.kind == Kind::DropTail || leaf.limit == 0 || too_long {
            self.count_drop(class, packet, DropReason::QueueFull);
            return;
        }
        let first = self.append(class, &packet);
        self.report_queued(leaf.scheduler, leaf.slot, packet.wire, first);
        self.drop_from_head(class, DropReason::HeadDropped);
    }

    /// [`dequeue`](Engine::dequeue) where the root's scheduler chose a class, at `slot`, that holds
    /// a scheduler.
    pub(super) fn dequeue_nested(&mut self, slot: Slot) -> Option<Departure> {
        // Down: from the root's scheduler to a queue.
        let now = self.now;
        let mut path = [(0u32, ROOT_SLOT); MAX_NESTING];
        let (mut depth, mut node, mut chosen) = (0, 0u32, Some(slot));
        let (class, taken, mut next) = loop {
            let Some(slot) = chosen else {
                if node == 0 {
                    return None;
                }
                self.block(node);
                (depth, node, chosen) = (0, 0, self.nodes[0].inner.choose(now));
                continue;
            };
            path[depth] = (node, slot);
            depth += 1;
            let class = self.nodes[node as usize].class(slot);
            if class & HOLDS_SCHEDULER == 0 {
                if let Some((taken, next)) = self.take_packet(class) {
                    break (class, taken, next);
                }
                (depth, node, chosen) = (0, 0, self.nodes[0].inner.choose(now));
                continue;
            }
            node = self.buffers.leaves[(class & !HOLDS_SCHEDULER) as usize].scheduler;
            chosen = self.nodes[node as usize].inner.choose(now);
        };
        // Up: report to every scheduler on the way what was sent.
        let mut borrowed = false;
        for &(node, slot) in path[..depth].iter().rev() {
            let node = &mut self.nodes[node as usize];
            borrowed |= node.sent(now, slot, (taken.len, taken.wire), next);
            next = (node.backlog > 0).then_some(taken.wire);
        }
        Some(self.finish_departure(class, taken, borrowed))
    }

    /// Takes the packet that leaves from its queue, and counts it. `None` if the queue dropped all
    /// its packets instead.
    #[inline]
    pub(super) fn take_packet(&mut self, class: ClassId) -> Option<(Taken, Option<u32>)> {
        let (taken, next) = if self.buffers.leaves[class as usize].kind == Kind::Stateful {
            self.take_from_stateful(class)?
        } else {
            self.take_head(class)
        };
        self.count_sent(class, &taken);
        Some((taken, next))
    }

    #[inline(always)]
    fn count_sent(&mut self, class: ClassId, taken: &Taken) {
        let leaf = &mut self.buffers.leaves[class as usize];
        leaf.sent_packets += 1;
        leaf.sent_bytes += u64::from(taken.len);
        leaf.sent_wire_bytes += u64::from(taken.wire);
    }

    /// The end of a departure whose scheduler has been told of it.
    #[inline(always)]
    fn finish_departure(&mut self, class: ClassId, taken: Taken, borrowed: bool) -> Departure {
        if borrowed {
            self.buffers.leaves[class as usize].borrowed_bytes += u64::from(taken.len);
        }
        if self.trace.is_some() {
            self.record_event(class, &self.buffers.slab.look(taken.at, taken.wire), What::Sent { borrowed });
        }
        Departure { class, packet: self.buffers.slab.take(taken.at, taken.wire) }
    }

    /// Asks the schedulers from a class upwards whether they admit a packet, until one of them
    /// drops it.
    #[inline]
    pub(super) fn ask_admission(&mut self, mut node: u32, mut slot: Slot, len: u32) -> Admit {
        loop {
            let n = &mut self.nodes[node as usize];
            if n.wants_arrivals {
                let admit = n.inner.admit(self.now, slot, len);
                if admit != Admit::Take {
                    return admit;
                }
            }
            if node == 0 {
                return Admit::Take;
            }
            let place = &self.places[n.class as usize];
            (node, slot) = (place.scheduler, place.slot);
        }
    }

    /// [`report_queued`](Engine::report_queued); the link's own scheduler is told without a call.
    #[inline(always)]
    pub(super) fn report_arrival(&mut self, node: u32, slot: Slot, len: u32, first: bool) {
        if node != 0 {
            return self.report_queued(node, slot, len, first);
        }
        let root = &mut self.nodes[0];
        root.backlog += 1;
        if first || root.wants_arrivals {
            root.inner.queued(self.now, slot, len, first);
        }
    }

    /// Reports to the schedulers from a class upwards that a packet was queued.
    #[inline(never)]
    pub(super) fn report_queued(&mut self, mut node: u32, mut slot: Slot, len: u32, mut first: bool) {
        let mut was_blocked = false;
        loop {
            let n = &mut self.nodes[node as usize];
            n.backlog += 1;
            if first || n.wants_arrivals {
                n.inner.queued(self.now, slot, len, first);
            }
            if was_blocked {
                n.inner.unblocked(self.now, slot, len);
            }
            if node == 0 {
                return;
            }
            first = n.backlog == 1;
            // A scheduler that was blocked may be able to send now: it is unblocked, and asked
            // again.
            was_blocked = n.blocked_until.take().is_some();
            let place = &self.places[n.class as usize];
            (node, slot) = (place.scheduler, place.slot);
        }
    }

    /// Drops packets at the head of a class's queue until its limit holds, at least one, and
    /// reports that to the schedulers.
    pub(super) fn drop_from_head(&mut self, class: ClassId, reason: DropReason) {
        let leaf = self.buffers.leaves[class as usize];
        loop {
            let (taken, next) = self.take_head(class);
            let packet = self.buffers.slab.take(taken.at, taken.wire);
            self.count_drop(class, packet, reason);
            self.head_lost(leaf.scheduler, leaf.slot, next);
            if !self.buffers.leaves[class as usize].over() {
                return;
            }
        }
    }

    /// Reports to the schedulers from a class upwards that the first packet was lost. `next` is the
    /// charged length of the next one.
    pub(super) fn head_lost(&mut self, from: u32, mut slot: Slot, mut next: Option<u32>) {
        let (mut node, mut report, mut any_blocked) = (from, true, false);
        loop {
            let n = &mut self.nodes[node as usize];
            n.backlog -= 1;
            if report || n.wants_arrivals {
                n.inner.head_lost(self.now, slot, next);
            }
            if node == 0 {
                break;
            }
            // The schedulers above only have to know that the class has no packets any more; and
            // not if it was blocked, for then they take it as empty already.
            let was_blocked = n.blocked_until.is_some();
            any_blocked |= was_blocked;
            if n.backlog == 0 {
                n.blocked_until = None;
                next = None;
            } else if next.is_none() {
                // The class below is empty, this scheduler is not: the next packet is that of
                // another class, of unknown length.
                next = Some(self.buffers.charges.overhead().charge(self.mtu));
            }
            report = n.backlog == 0 && !was_blocked;
            let place = &self.places[n.class as usize];
            (node, slot) = (place.scheduler, place.slot);
        }
        if any_blocked {
            self.reconsider(from);
        }
    }

    /// An inner scheduler has packets but may send none: the scheduler above takes its class as
    /// empty until it may.
    #[cold]
    pub(super) fn block(&mut self, node: u32) {
        let n = &mut self.nodes[node as usize];
        let until = n.inner.next_wakeup().unwrap_or(Nanos::MAX).max(self.now + 1);
        n.blocked_until = Some(until);
        let place = &self.places[n.class as usize];
        let (scheduler, slot) = (place.scheduler, place.slot);
        self.file_wakeup(until, node);
        self.nodes[scheduler as usize].inner.blocked(self.now, slot);
    }

    /// Notes when a blocked scheduler may send again. It may be blocked anew until the same time
    /// with each packet that comes.
    pub(super) fn file_wakeup(&mut self, until: Nanos, node: u32) {
        let n = &mut self.nodes[node as usize];
        if until != Nanos::MAX && n.filed != Some(until) {
            n.filed = Some(until);
            self.wakeups.push(Reverse((until, node)));
        }
    }

    /// Takes the first wake-up away.
    pub(super) fn pop_wakeup(&mut self) {
        let Some(Reverse((time, node))) = self.wakeups.pop() else { return };
        let n = &mut self.nodes[node as usize];
        if n.filed == Some(time) {
            n.filed = None;
        }
    }

    /// Unblocks the inner schedulers whose time has come.
    #[inline(never)]
    pub(super) fn unblock_due(&mut self) {
        while let Some(&Reverse((time, node))) = self.wakeups.peek() {
            if time > self.now {
                return;
            }
            self.pop_wakeup();
            if self.nodes[node as usize].blocked_until == Some(time) {
                self.unblock(node);
            }
        }
    }

    pub(super) fn count_drop(&mut self, class: ClassId, packet: Packet, reason: DropReason) {
        let losses = self.places[class as usize].losses.get_or_insert_default();
        losses.packets += 1;
        losses.bytes += u64::from(packet.len);
        let (packets, bytes) = &mut losses.reasons[reason as usize];
        *packets += 1;
        *bytes += u64::from(packet.len);
        self.trace_packet(class, &packet, What::Dropped(reason));
        self.drops.push(Drop { at: self.now, class: Some(class), packet, reason });
    }

    pub(super) fn drop_unclassified(&mut self, packet: Packet) {
        self.unclassified.0 += 1;
        self.unclassified.1 += u64::from(packet.len);
        self.drops.push(Drop { at: self.now, class: None, packet, reason: DropReason::NoClass });
    }
}
