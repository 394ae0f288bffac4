//! The way of a packet through a queue with a state of its own. The engine counts what the queue
//! does, and reports it to the schedulers.

use super::{Engine, Kind, Lossy};
use crate::account::DropReason;
use crate::packet::{NIL, Packet};
use crate::queue::{Context, Policy, Queue, Store, Taken};
use crate::random;
use crate::spec::{ClassId, QueueSpec, SpecError};
use crate::trace::What;
use crate::units::{Nanos, Rate};

impl Engine {
    pub(super) fn queue_context(&self, class: ClassId, rate: Rate) -> Context {
        Context {
            rate,
            link_rate: self.rate,
            mtu: self.mtu,
            overhead: self.buffers.charges.overhead(),
            seed: self.queue_seed(class),
        }
    }

    /// The seed of a class's queue: a different one for every class, from the seed of the engine.
    fn queue_seed(&self, class: ClassId) -> u64 {
        random::mix(self.seed ^ (u64::from(class) + 1).wrapping_mul(random::GOLDEN_GAMMA))
    }

    /// Gives the meter of a class, if it has one, the seed of its random numbers.
    pub(super) fn seed_meter(&mut self, class: ClassId) {
        // Another one than its queue's.
        let seed = random::mix(self.queue_seed(class));
        if let Some(meter) = self.places.get_mut(class as usize).and_then(|place| place.meter.as_mut()) {
            meter.seed(seed);
        }
    }

    pub(super) fn seed_meters(&mut self) {
        (0..self.places.len() as ClassId).for_each(|class| self.seed_meter(class));
    }

    pub(super) fn seed_queues(&mut self) {
        for class in 0..self.buffers.leaves.len() as ClassId {
            let seed = self.queue_seed(class);
            let leaf = &self.buffers.leaves[class as usize];
            if leaf.exists
                && leaf.kind == Kind::Stateful
                && let Some(queue) = self.buffers.queues.get_mut(leaf.head as usize).and_then(Option::as_mut)
            {
                queue.seed(seed);
            }
        }
    }

    pub(super) fn keep_queue(&mut self, queue: Box<dyn Queue>, name: &'static str) -> u32 {
        match self.free_queues.pop() {
            Some(at) => {
                self.buffers.queues[at as usize] = Some(queue);
                self.queue_names[at as usize] = name;
                at
            }
            None => {
                self.buffers.queues.push(Some(queue));
                self.queue_names.push(name);
                (self.buffers.queues.len() - 1) as u32
            }
        }
    }

    /// Removes a class's queue, which is empty, if it has a state of its own.
    pub(super) fn forget_queue(&mut self, class: ClassId) {
        let leaf = &mut self.buffers.leaves[class as usize];
        if leaf.kind == Kind::Stateful {
            self.buffers.queues[leaf.head as usize] = None;
            self.free_queues.push(leaf.head);
            (leaf.kind, leaf.head) = (Kind::DropTail, NIL);
        }
    }

    pub(super) fn queue_of(&self, class: ClassId) -> Option<&dyn Queue> {
        let leaf = self.buffers.leaves.get(class as usize).filter(|leaf| leaf.exists && leaf.kind == Kind::Stateful)?;
        self.buffers.queues.get(leaf.head as usize)?.as_deref()
    }

    pub(super) fn set_queue_rate(&mut self, class: ClassId, rate: Rate) {
        let (leaf, link) = (&self.buffers.leaves[class as usize], self.rate);
        if leaf.kind == Kind::Stateful
            && let Some(queue) = &mut self.buffers.queues[leaf.head as usize]
        {
            queue.set_rate(rate);
            queue.set_link_rate(link);
        }
    }

    /// Calls a class's queue, and updates the class's backlog. What the queue dropped is in
    /// `self.buffers.lost`.
    fn with_queue<R>(&mut self, class: ClassId, call: impl FnOnce(&mut dyn Queue, &mut Store<'_>) -> R) -> Option<R> {
        let leaf = &mut self.buffers.leaves[class as usize];
        let queue = self.buffers.queues.get_mut(leaf.head as usize)?.as_deref_mut()?;
        let mut store = Store::new(&mut self.buffers.slab, &self.buffers.charges, &mut self.buffers.lost);
        let answer = call(queue, &mut store);
        (leaf.packets, leaf.bytes) = queue.backlog();
        let marked = store.marked();
        self.count_marks(class, marked);
        Some(answer)
    }

    #[inline(always)]
    fn count_marks(&mut self, class: ClassId, marked: u64) {
        if marked > 0 {
            self.places[class as usize].losses.get_or_insert_default().marked_packets += marked;
        }
    }

    /// Updates a class's backlog from its queue, after drops.
    fn recount(&mut self, class: ClassId) {
        if let Some((packets, bytes)) = self.queue_of(class).map(Queue::backlog) {
            let leaf = &mut self.buffers.leaves[class as usize];
            (leaf.packets, leaf.bytes) = (packets, bytes);
        }
    }

    /// The charged length of the packet that would leave a class next.
    fn first_length(&self, class: ClassId) -> Option<u32> {
        let leaf = &self.buffers.leaves[class as usize];
        match leaf.kind {
            Kind::Stateful => self.buffers.queues.get(leaf.head as usize)?.as_deref()?.peek(),
            _ => (leaf.packets > 0).then(|| self.buffers.slab.wire(leaf.head, &self.buffers.charges)),
        }
    }

    /// [`enqueue`](Engine::enqueue) for a class whose queue has a state of its own. The packet is
    /// passed by reference: its fields have just been written one by one, and a copy would make the
    /// processor wait for those writes.
    #[inline(never)]
    pub(super) fn enqueue_stateful(&mut self, class: ClassId, packet: &mut Packet) {
        let leaf = &mut self.buffers.leaves[class as usize];
        let (node, slot) = (leaf.scheduler, leaf.slot);
        let Some(queue) = self.buffers.queues.get_mut(leaf.head as usize).and_then(Option::as_deref_mut) else {
            return;
        };
        let mut store = Store::new(&mut self.buffers.slab, &self.buffers.charges, &mut self.buffers.lost);
        let answer = queue.enqueue(self.now, packet, &mut store);
        let marked = store.marked();
        let first = leaf.packets == 0;
        if answer.is_ok() {
            leaf.packets += 1;
            leaf.bytes += packet.len;
        }
        if marked > 0 || answer.is_err() || !self.buffers.lost.is_empty() {
            return self.enqueue_lossy(class, packet, answer, marked, first);
        }
        debug_assert_eq!(self.queue_of(class).map(Queue::backlog), Some(self.backlog_of(class)));
        self.trace_packet(class, packet, What::Queued);
        self.report_arrival(node, slot, packet.wire, first);
    }

    /// The rest of [`enqueue_stateful`](Engine::enqueue_stateful) if the queue marked or dropped
    /// packets.
    #[inline(never)]
    fn enqueue_lossy(
        &mut self,
        class: ClassId,
        packet: &Packet,
        answer: Result<(), DropReason>,
        marked: u64,
        first: bool,
    ) {
        self.count_marks(class, marked);
        if !self.buffers.lost.is_empty() {
            self.recount(class);
        }
        debug_assert_eq!(self.queue_of(class).map(Queue::backlog), Some(self.backlog_of(class)));
        let leaf = &self.buffers.leaves[class as usize];
        let (node, slot) = (leaf.scheduler, leaf.slot);
        match answer {
            Ok(()) => {
                self.trace_packet(class, packet, What::Queued);
                self.report_queued(node, slot, packet.wire, first);
            }
            Err(reason) => self.count_drop(class, *packet, reason),
        }
        if !self.buffers.lost.is_empty() {
            self.count_lost(class, None);
        }
    }

    fn backlog_of(&self, class: ClassId) -> (u32, u32) {
        let leaf = &self.buffers.leaves[class as usize];
        (leaf.packets, leaf.bytes)
    }

    /// Takes the packet that the class's queue sends. Returns it with the charged length of the
    /// next one. `None` if the queue dropped all its packets: the schedulers have been told, and
    /// have to choose again.
    #[inline]
    pub(super) fn take_from_stateful(&mut self, class: ClassId) -> Option<(Taken, Option<u32>)> {
        match self.buffers.take_stateful(self.now, class) {
            Ok(taken) => Some(taken),
            Err(lossy) => self.depart_with_losses(class, lossy),
        }
    }

    /// The rest of [`take_from_stateful`](Engine::take_from_stateful) if the queue marked or
    /// dropped packets.
    #[inline(never)]
    pub(super) fn depart_with_losses(
        &mut self,
        class: ClassId,
        (taken, marked): Lossy,
    ) -> Option<(Taken, Option<u32>)> {
        self.count_marks(class, marked);
        self.recount(class);
        let Some(taken) = taken else {
            self.count_lost(class, None);
            return None;
        };
        // The schedulers' choice of the class stands. They are told how many packets were dropped
        // before it.
        let lost = std::mem::take(&mut self.buffers.lost);
        for (packet, reason) in &lost {
            self.count_drop(class, *packet, *reason);
        }
        let packets = lost.len() as u32;
        self.keep_lost(lost);
        if packets > 0 {
            let leaf = self.buffers.leaves[class as usize];
            let (mut node, mut slot) = (leaf.scheduler, leaf.slot);
            loop {
                let n = &mut self.nodes[node as usize];
                n.backlog -= packets;
                n.inner.heads_dropped(self.now, slot, packets);
                if node == 0 {
                    break;
                }
                let place = &self.places[n.class as usize];
                (node, slot) = (place.scheduler, place.slot);
            }
        }
        Some((taken, self.first_length(class)))
    }

    /// Takes the first packet of any queue without a drop decision.
    pub(super) fn take_first(&mut self, class: ClassId) -> Option<(Packet, Option<u32>)> {
        if self.buffers.leaves[class as usize].kind != Kind::Stateful {
            let (taken, next) = self.take_head(class);
            return Some((self.buffers.slab.take(taken.at, taken.wire), next));
        }
        let taken = self.with_queue(class, |queue, store| queue.take(store))??;
        let packet = self.buffers.slab.take(taken.at, taken.wire);
        Some((packet, self.first_length(class)))
    }

    /// Counts what a queue dropped, and reports every packet to the schedulers. With a `reason`,
    /// that one counts for all of them.
    fn count_lost(&mut self, class: ClassId, reason: Option<DropReason>) {
        let leaf = self.buffers.leaves[class as usize];
        let lost = std::mem::take(&mut self.buffers.lost);
        let left = self.first_length(class);
        for (nth, (packet, why)) in lost.iter().enumerate() {
            self.count_drop(class, *packet, reason.unwrap_or(*why));
            // Only the last of them may have left the queue empty.
            let next = if nth + 1 == lost.len() { left } else { left.or(Some(packet.wire)) };
            self.head_lost(leaf.scheduler, leaf.slot, next);
        }
        self.keep_lost(lost);
    }

    /// Gives the vector back, so that the next drops do not allocate.
    fn keep_lost(&mut self, mut lost: Vec<(Packet, DropReason)>) {
        lost.clear();
        self.buffers.lost = lost;
    }

    // ------------------------------------------------------------------ changes

    /// Other words for a queue with a state of its own. False if the class's queue is of another
    /// kind: then nothing was done.
    pub(super) fn change_stateful(
        &mut self,
        now: Nanos,
        class: ClassId,
        spec: &QueueSpec,
        rate: Rate,
    ) -> Result<bool, SpecError> {
        let leaf = &self.buffers.leaves[class as usize];
        if leaf.kind != Kind::Stateful || self.queue_names.get(leaf.head as usize) != Some(&spec.name) {
            return Ok(false);
        }
        let context = self.queue_context(class, rate);
        let answer = self.with_queue(class, |queue, store| queue.change(now, &context, spec, store)).unwrap_or(Ok(()));
        if !self.buffers.lost.is_empty() {
            self.count_lost(class, Some(DropReason::LimitLowered));
        }
        answer.map(|()| true)
    }

    /// Replaces a class's queue by one of another kind. Its packets go over in the order in which
    /// they would have left; those that do not fit are dropped.
    pub(super) fn replace_queue(&mut self, class: ClassId, policy: Policy, spec: &QueueSpec) {
        let old = self.buffers.leaves[class as usize];
        let mut waiting = Vec::with_capacity(old.packets as usize);
        while self.buffers.leaves[class as usize].packets > 0 {
            let Some((packet, _)) = self.take_first(class) else { break };
            waiting.push(packet);
        }
        self.forget_queue(class);
        let new = self.leaf(policy, spec, old.scheduler, old.slot);
        let leaf = &mut self.buffers.leaves[class as usize];
        (leaf.kind, leaf.head, leaf.tail) = (new.kind, new.head, new.tail);
        (leaf.limit, leaf.limit_in_bytes) = (new.limit, new.limit_in_bytes);
        let now = self.now;
        let mut refused = Vec::new();
        for mut packet in waiting {
            let taken = match self.buffers.leaves[class as usize].kind {
                Kind::Stateful => self
                    .with_queue(class, |queue, store| queue.enqueue(now, &mut packet, store))
                    .is_some_and(|answer| answer.is_ok()),
                _ if self.buffers.leaves[class as usize].fits(packet.len) => {
                    self.put(class, &packet);
                    true
                }
                _ => false,
            };
            if !taken {
                refused.push((packet, DropReason::LimitLowered));
            }
        }
        self.buffers.lost.append(&mut refused);
        self.count_lost(class, Some(DropReason::LimitLowered));
    }
}
