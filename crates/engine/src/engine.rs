//! The engine of one link: the contract, and the walk through the tree of schedulers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::account::{Counters, DropReason};
use crate::classify::RuleSet;
use crate::link::Overhead;
use crate::packet::{NIL, Packet, Slab};
use crate::queue::{self, Policy};
use crate::schedule::{self, Context, ROOT_SLOT, Scheduler, Slot};
use crate::settings::{Limit, Settings};
use crate::shape::token_bucket::TokenBucket;
use crate::spec::{ClassId, ClassSpec, LinkSpec, QueueSpec, ROOT, Regulator, SchedulerSpec, SpecError, Timer};
use crate::trace::{Event, Trace, What};
use crate::units::{Nanos, Rate};

/// How deep schedulers may stand in one another.
pub const MAX_NESTING: usize = 8;

/// A packet that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Its class.
    pub class: ClassId,
    /// The packet.
    pub packet: Packet,
}

/// A packet that was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drop {
    /// When.
    pub at: Nanos,
    /// Its class; `None` if it had none.
    pub class: Option<ClassId>,
    /// The packet.
    pub packet: Packet,
    /// Why.
    pub reason: DropReason,
}

/// A change while packets are queued. It holds as a whole or not at all.
#[derive(Clone, Debug)]
pub enum Change {
    /// A new class; [`Engine::apply`] returns its number.
    AddClass(ClassSpec),
    /// New words, and perhaps a new parent under the same scheduler, for a class.
    SetClass {
        /// Which.
        class: ClassId,
        /// The class above.
        parent: ClassId,
        /// Its words.
        settings: Settings,
    },
    /// Takes a class without children away. Its packets go to the tail of the heir's queue, as far as they fit, or are drops.
    RemoveClass {
        /// Which.
        class: ClassId,
        /// Who gets its packets.
        heir: Option<ClassId>,
    },
    /// Another limit or kind of queue. Packets that do not fit any more are dropped where the queue drops.
    SetQueue {
        /// Whose.
        class: ClassId,
        /// The queue.
        queue: QueueSpec,
    },
    /// New words of a scheduler itself.
    SetScheduler {
        /// The class that holds it; [`ROOT`] for the link's own.
        class: ClassId,
        /// Its words.
        settings: Settings,
    },
    /// Another rate of the link. Classes keep the rates that they have.
    SetRate(Rate),
    /// Another regulator.
    SetRegulator(Regulator),
    /// Other rules and another default class.
    SetRules {
        /// The rules.
        rules: RuleSet,
        /// The default class.
        default: Option<ClassId>,
    },
}

/// What an arrival touches: 32 bytes a class.
#[derive(Clone, Copy)]
struct Leaf {
    head: u32,
    tail: u32,
    packets: u32,
    bytes: u32,
    /// Limit, in packets or bytes.
    limit: u32,
    /// The scheduler that serves this class's own packets, and the class's place in it.
    scheduler: u32,
    slot: Slot,
    policy: Policy,
    limit_in_bytes: bool,
    /// False for a free number.
    exists: bool,
}

/// What a departure writes, besides the leaf: one cache line a class.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Sent {
    packets: u64,
    bytes: u64,
    wire_bytes: u64,
    dropped_packets: u64,
    dropped_bytes: u64,
    borrowed_bytes: u64,
    marked_packets: u64,
}

/// Where a class stands in the tree; not touched per packet.
#[derive(Clone, Copy)]
struct Place {
    parent: ClassId,
    children: u32,
    /// The scheduler among whose classes it is, and its place there. For the root: none.
    scheduler: u32,
    slot: Slot,
    /// The scheduler that it holds, or [`NIL`].
    holds: u32,
}

/// A scheduler at its place in the tree.
struct Node {
    inner: Box<dyn Scheduler>,
    /// The class that holds it.
    class: ClassId,
    /// The class of each slot.
    classes: Vec<ClassId>,
    free: Vec<Slot>,
    /// Packets below.
    backlog: u32,
    /// Set while it has packets but may send none: until when, as announced to the wake-up queue.
    blocked: Option<Nanos>,
    hears_arrivals: bool,
    spec: SchedulerSpec,
    /// Its default queue.
    queue: QueueSpec,
}

/// The engine of one link.
pub struct Engine {
    rate: Rate,
    mtu: u32,
    overhead: Overhead,
    timer: Timer,
    regulator: Option<TokenBucket>,
    leaves: Vec<Leaf>,
    sent: Vec<Sent>,
    places: Vec<Place>,
    free: Vec<ClassId>,
    nodes: Vec<Node>,
    /// Numbers of schedulers that went with their class.
    free_nodes: Vec<u32>,
    /// Inner schedulers that hold packets back, by the time at which they may send again. An entry whose time is not the one
    /// in [`Node::blocked`] is void.
    wakeups: BinaryHeap<Reverse<(Nanos, u32)>>,
    slab: Slab,
    drops: Vec<Drop>,
    reasons: BTreeMap<(ClassId, DropReason), (u64, u64)>,
    unclassified: (u64, u64),
    classifier: crate::classify::Classifier,
    default: Option<ClassId>,
    trace: Option<Trace>,
    now: Nanos,
}

impl Engine {
    /// Builds the engine of a link. `spec` is taken as checked; what cannot be built is an error, not a panic.
    pub fn new(spec: &LinkSpec) -> Result<Engine, SpecError> {
        let mut engine = Engine {
            rate: spec.rate,
            mtu: spec.mtu,
            overhead: spec.overhead,
            timer: spec.timer,
            regulator: None,
            leaves: Vec::with_capacity(spec.classes.len()),
            sent: Vec::with_capacity(spec.classes.len()),
            places: Vec::with_capacity(spec.classes.len()),
            free: Vec::new(),
            nodes: Vec::new(),
            free_nodes: Vec::new(),
            wakeups: BinaryHeap::new(),
            slab: Slab::default(),
            drops: Vec::new(),
            reasons: BTreeMap::new(),
            unclassified: (0, 0),
            classifier: crate::classify::Classifier::new(&RuleSet::default(), None),
            default: None,
            trace: None,
            now: 0,
        };
        if spec.rate.is_zero() {
            return Err(SpecError::word("rate", "the link's rate is 0 bit/s"));
        }
        let Some(root) = spec.classes.first() else {
            return Err(SpecError::new("a link needs its root class"));
        };
        engine.set_regulator(0, spec.regulator);
        engine.push_root(root, &spec.scheduler)?;
        for (id, class) in spec.classes.iter().enumerate().skip(1) {
            let id = id as ClassId;
            if class.parent >= id {
                return Err(SpecError::new("a parent stands after its child").of(id));
            }
            let made = engine.add_class(0, class).map_err(|e| e.of(id))?;
            debug_assert_eq!(made, id);
        }
        engine.set_rules(&spec.rules, spec.default)?;
        Ok(engine)
    }

    // ------------------------------------------------------------------ the contract

    /// A packet arrives for a class. It is queued, or it, or another that makes room for it, is among the [`drops`](Engine::drops).
    ///
    /// A `class` that does not exist drops the packet with the reason `no_class`.
    #[inline]
    pub fn enqueue(&mut self, now: Nanos, class: ClassId, mut packet: Packet) {
        self.now = now;
        packet.arrived = now;
        packet.wire = self.overhead.charge_segments(packet.len, packet.segments);
        let Some(leaf) = self.leaves.get(class as usize).filter(|leaf| leaf.exists) else {
            return self.drop_unclassified(packet);
        };
        let (policy, limit, in_bytes) = (leaf.policy, leaf.limit, leaf.limit_in_bytes);
        let (node, slot) = (leaf.scheduler, leaf.slot);
        if self.nodes[node as usize].hears_arrivals {
            self.nodes[node as usize].inner.arriving(now, slot);
        }
        let full = if in_bytes { leaf.bytes.saturating_add(packet.len) > limit } else { leaf.packets >= limit };
        if full && (policy == Policy::DropTail || limit == 0 || in_bytes && packet.len > limit) {
            self.count_drop(class, packet, DropReason::QueueFull);
            return;
        }
        let first = self.append(class, packet);
        self.announce(node, slot, packet.wire, first);
        if full {
            self.drop_from_head(class, DropReason::HeadDropped);
        }
    }

    /// Finds the class of a packet by its key.
    #[inline]
    pub fn classify(&mut self, key: &crate::headers::Key) -> Option<ClassId> {
        self.classifier.classify(key)
    }

    /// [`classify`](Engine::classify) and [`enqueue`](Engine::enqueue) in one.
    #[inline]
    pub fn receive(&mut self, now: Nanos, key: &crate::headers::Key, packet: Packet) {
        match self.classifier.classify(key) {
            Some(class) => self.enqueue(now, class, packet),
            None => {
                self.now = now;
                self.drop_unclassified(packet);
            }
        }
    }

    /// [`enqueue`](Engine::enqueue) for several packets that arrive at the same time, in order.
    pub fn enqueue_batch(&mut self, now: Nanos, packets: &[(ClassId, Packet)]) {
        for (class, packet) in packets {
            self.enqueue(now, *class, *packet);
        }
    }

    /// The packet that leaves now, if any may.
    #[inline]
    pub fn dequeue(&mut self, now: Nanos) -> Option<Departure> {
        self.now = now;
        if self.nodes[0].backlog == 0 {
            return None;
        }
        if let Some(regulator) = &mut self.regulator {
            if !regulator.ready(now) {
                return None;
            }
        }
        if !self.wakeups.is_empty() {
            self.release(now);
        }
        // Down: from the root's scheduler to a queue.
        let mut path = [(0u32, ROOT_SLOT); MAX_NESTING];
        let mut depth = 0;
        let mut node = 0u32;
        let class = loop {
            let Some(slot) = self.nodes[node as usize].inner.choose(now) else {
                if node == 0 {
                    return None;
                }
                self.block(now, node);
                (depth, node) = (0, 0);
                continue;
            };
            path[depth] = (node, slot);
            depth += 1;
            let class = self.nodes[node as usize].classes[slot as usize];
            let inner = self.places[class as usize].holds;
            if slot == ROOT_SLOT || inner == NIL {
                break class;
            }
            node = inner;
        };
        let packet = self.take_head(class);
        // Up: every scheduler on the way hears what was sent.
        let next = self.head_wire(class);
        let mut borrowed = false;
        for (at, &(node, slot)) in path[..depth].iter().enumerate().rev() {
            let next =
                if at + 1 == depth { next } else { (self.nodes[path[at + 1].0 as usize].backlog > 0).then_some(packet.wire) };
            let node = &mut self.nodes[node as usize];
            node.backlog -= 1;
            borrowed |= node.inner.sent(now, slot, packet.wire, next);
        }
        if let Some(regulator) = &mut self.regulator {
            regulator.spend(packet.wire);
        }
        let sent = &mut self.sent[class as usize];
        sent.packets += 1;
        sent.bytes += u64::from(packet.len);
        sent.wire_bytes += u64::from(packet.wire);
        if borrowed {
            sent.borrowed_bytes += u64::from(packet.len);
        }
        self.note(class, packet, What::Sent { borrowed });
        Some(Departure { class, packet })
    }

    /// [`dequeue`](Engine::dequeue) until `out` holds `most` departures or none may leave now. Returns how many were added.
    pub fn dequeue_batch(&mut self, now: Nanos, most: usize, out: &mut Vec<Departure>) -> usize {
        let before = out.len();
        while out.len() < most {
            match self.dequeue(now) {
                Some(departure) => out.push(departure),
                None => break,
            }
        }
        out.len() - before
    }

    /// The earliest time at which [`dequeue`](Engine::dequeue) may return a packet if nothing else happens; a time that has passed
    /// means now. `None`: only an arrival or a change can bring one.
    ///
    /// The answer may change after any other call. Calling `dequeue` earlier, later or more often is harmless.
    pub fn next_wakeup(&mut self) -> Option<Nanos> {
        if self.nodes[0].backlog == 0 {
            return None;
        }
        let mut at = self.nodes[0].inner.next_wakeup();
        while let Some(&Reverse((time, node))) = self.wakeups.peek() {
            if self.nodes[node as usize].blocked == Some(time) {
                at = Some(at.map_or(time, |at| at.min(time)));
                break;
            }
            self.wakeups.pop();
        }
        if let Some(regulator) = &self.regulator {
            match self.timer {
                Timer::Exact => at = at.map(|at| at.max(regulator.ready_at())),
                // ALTQ's regulator kicks the device on every tick while there is backlog (altq.md 1.3).
                Timer::Tick(tick) => {
                    let next = (self.now / tick + 1) * tick;
                    at = Some(at.map_or(next, |at| if at > self.now { at.min(next) } else { next }));
                }
            }
        }
        at
    }

    /// Changes classes, rates, queues or rules while packets are queued: every packet stays accounted for. On an error nothing has
    /// changed. Returns the class's number for [`Change::AddClass`].
    pub fn apply(&mut self, now: Nanos, change: &Change) -> Result<Option<ClassId>, SpecError> {
        self.now = now;
        match change {
            Change::AddClass(spec) => return self.add_class(now, spec).map(Some),
            Change::SetClass { class, parent, settings } => self.set_class(now, *class, *parent, settings)?,
            Change::RemoveClass { class, heir } => self.remove_class(now, *class, *heir)?,
            Change::SetQueue { class, queue } => self.set_queue(*class, queue)?,
            Change::SetScheduler { class, settings } => self.set_scheduler(now, *class, settings)?,
            Change::SetRate(rate) => self.set_rate(now, *rate)?,
            Change::SetRegulator(regulator) => self.set_regulator(now, *regulator),
            Change::SetRules { rules, default } => self.set_rules(rules, *default)?,
        }
        Ok(None)
    }

    /// The drops since the last call, oldest first. A feeder takes them after every call that can drop, and frees the packets.
    pub fn drops(&mut self) -> std::vec::Drain<'_, Drop> {
        self.drops.drain(..)
    }

    /// True if drops wait to be taken.
    pub fn has_drops(&self) -> bool {
        !self.drops.is_empty()
    }

    // ------------------------------------------------------------------ what it tells

    /// The counters of a class and of everything below it.
    pub fn counters(&self, class: ClassId) -> Counters {
        let mut total = Counters::default();
        for id in 0..self.leaves.len() as ClassId {
            if self.leaves[id as usize].exists && self.is_below(id, class) {
                total += self.own_counters(id);
            }
        }
        if let Some(bytes) = self.borrowed_by_scheduler(class) {
            total.borrowed_bytes = bytes;
        }
        total
    }

    /// The counters of all classes, each with everything below it, by number; unused numbers are zero.
    pub fn all_counters(&self) -> Vec<Counters> {
        let ids = 0..self.leaves.len() as ClassId;
        let mut all: Vec<Counters> = ids.clone().map(|id| self.own_counters(id)).collect();
        for id in self.bottom_up() {
            if id != ROOT {
                let own = all[id as usize];
                all[self.places[id as usize].parent as usize] += own;
            }
        }
        for id in ids {
            if let Some(bytes) = self.borrowed_by_scheduler(id) {
                all[id as usize].borrowed_bytes = bytes;
            }
        }
        all
    }

    /// The counters of a class's own packets.
    pub fn own_counters(&self, class: ClassId) -> Counters {
        let Some(leaf) = self.leaves.get(class as usize) else {
            return Counters::default();
        };
        let sent = &self.sent[class as usize];
        Counters {
            sent_packets: sent.packets,
            sent_bytes: sent.bytes,
            sent_wire_bytes: sent.wire_bytes,
            dropped_packets: sent.dropped_packets,
            dropped_bytes: sent.dropped_bytes,
            borrowed_bytes: sent.borrowed_bytes,
            marked_packets: sent.marked_packets,
            queued_packets: u64::from(leaf.packets),
            queued_bytes: u64::from(leaf.bytes),
        }
    }

    /// A class's own drops by reason: packets and bytes.
    pub fn drop_reasons(&self, class: ClassId) -> impl Iterator<Item = (DropReason, u64, u64)> {
        DropReason::ALL.into_iter().filter_map(move |reason| {
            let (packets, bytes) = self.reasons.get(&(class, reason))?;
            Some((reason, *packets, *bytes))
        })
    }

    /// Packets and bytes that had no class, and were dropped for it.
    pub fn unclassified(&self) -> (u64, u64) {
        self.unclassified
    }

    /// Packets waiting in the whole link.
    pub fn backlog(&self) -> u32 {
        self.nodes[0].backlog
    }

    /// The class above; `None` for the root and for numbers without a class.
    pub fn parent(&self, class: ClassId) -> Option<ClassId> {
        let exists = self.leaves.get(class as usize).is_some_and(|leaf| leaf.exists);
        (exists && class != ROOT).then(|| self.places[class as usize].parent)
    }

    /// The link's rate.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// The link's overhead.
    pub fn overhead(&self) -> Overhead {
        self.overhead
    }

    /// Keeps the latest `capacity` events from now on; 0 ends it.
    pub fn trace(&mut self, capacity: usize) {
        self.trace = (capacity > 0).then(|| Trace::new(capacity));
    }

    /// The event trace, if one is kept.
    pub fn traced(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }

    /// Bytes of memory held for classes and schedulers, packets and flows apart.
    pub fn memory(&self) -> usize {
        self.leaves.capacity() * size_of::<Leaf>()
            + self.sent.capacity() * size_of::<Sent>()
            + self.places.capacity() * size_of::<Place>()
            + self
                .nodes
                .iter()
                .map(|n| n.inner.memory() + n.classes.capacity() * 4 + n.free.capacity() * 4 + size_of::<Node>())
                .sum::<usize>()
    }

    /// Bytes of memory held for queued packets.
    pub fn packet_memory(&self) -> usize {
        self.slab.memory()
    }

    fn is_below(&self, mut class: ClassId, above: ClassId) -> bool {
        while class != above {
            if class == ROOT {
                return false;
            }
            class = self.places[class as usize].parent;
        }
        true
    }

    /// Existing classes, children before parents.
    fn bottom_up(&self) -> Vec<ClassId> {
        let mut order = Vec::with_capacity(self.leaves.len());
        let mut waiting: Vec<u32> = self.places.iter().map(|p| p.children).collect();
        for id in 0..self.leaves.len() as ClassId {
            let mut at = id;
            while self.leaves[at as usize].exists && waiting[at as usize] == 0 {
                waiting[at as usize] = u32::MAX;
                order.push(at);
                if at == ROOT {
                    break;
                }
                at = self.places[at as usize].parent;
                waiting[at as usize] -= 1;
            }
        }
        order
    }

    fn borrowed_by_scheduler(&self, class: ClassId) -> Option<u64> {
        let place = self.places.get(class as usize)?;
        if !self.leaves[class as usize].exists {
            return None;
        }
        if class == ROOT {
            return self.nodes[0].inner.borrowed_bytes(ROOT_SLOT);
        }
        self.nodes[place.scheduler as usize].inner.borrowed_bytes(place.slot)
    }

    // ------------------------------------------------------------------ packets

    #[inline]
    fn note(&mut self, class: ClassId, packet: Packet, what: What) {
        if let Some(trace) = &mut self.trace {
            trace.push(Event { at: self.now, class, packet, what });
        }
    }

    /// Puts a packet at the tail. True if the queue was empty.
    #[inline]
    fn append(&mut self, class: ClassId, packet: Packet) -> bool {
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
    fn take_head(&mut self, class: ClassId) -> Packet {
        let leaf = &mut self.leaves[class as usize];
        let (packet, next) = self.slab.remove(leaf.head);
        leaf.head = next;
        leaf.packets -= 1;
        leaf.bytes -= packet.len;
        packet
    }

    #[inline]
    fn head_wire(&self, class: ClassId) -> Option<u32> {
        let leaf = &self.leaves[class as usize];
        (leaf.packets > 0).then(|| self.slab.get(leaf.head).wire)
    }

    /// Tells the schedulers from a class upwards that a packet was queued.
    #[inline]
    fn announce(&mut self, mut node: u32, mut slot: Slot, len: u32, mut first: bool) {
        loop {
            let n = &mut self.nodes[node as usize];
            n.backlog += 1;
            if first || n.hears_arrivals {
                n.inner.queued(self.now, slot, len, first);
            }
            if node == 0 {
                return;
            }
            // A scheduler that held packets back may have something to send now: ask it again.
            first = n.backlog == 1 || n.blocked.take().is_some();
            let place = self.places[n.class as usize];
            (node, slot) = (place.scheduler, place.slot);
        }
    }

    /// Drops the head of a class's queue and tells the schedulers.
    fn drop_from_head(&mut self, class: ClassId, reason: DropReason) {
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
    fn head_lost(&mut self, mut node: u32, mut slot: Slot, mut next: Option<u32>) {
        let mut tell = true;
        loop {
            let now = self.now;
            let n = &mut self.nodes[node as usize];
            n.backlog -= 1;
            if tell {
                n.inner.head_lost(now, slot, next);
            }
            if node == 0 {
                return;
            }
            // Above, only the last packet's loss shows; a scheduler that was blocked is out of the race already.
            let was_blocked = n.blocked.is_some();
            if n.backlog == 0 {
                n.blocked = None;
            }
            tell = n.backlog == 0 && !was_blocked;
            next = None;
            let place = self.places[n.class as usize];
            (node, slot) = (place.scheduler, place.slot);
        }
    }

    /// An inner scheduler has packets but may send none: the ones above are to look elsewhere until it may.
    fn block(&mut self, now: Nanos, node: u32) {
        let n = &mut self.nodes[node as usize];
        let until = n.inner.next_wakeup().unwrap_or(Nanos::MAX).max(now + 1);
        n.blocked = Some(until);
        let place = self.places[n.class as usize];
        if until != Nanos::MAX {
            self.wakeups.push(Reverse((until, node)));
        }
        self.nodes[place.scheduler as usize].inner.head_lost(now, place.slot, None);
    }

    /// Gives inner schedulers whose time has come back to the race.
    fn release(&mut self, now: Nanos) {
        while let Some(&Reverse((time, node))) = self.wakeups.peek() {
            if time > now {
                return;
            }
            self.wakeups.pop();
            let n = &mut self.nodes[node as usize];
            if n.blocked == Some(time) {
                n.blocked = None;
                let place = self.places[n.class as usize];
                let len = self.mtu;
                let above = &mut self.nodes[place.scheduler as usize];
                above.inner.queued(now, place.slot, len, true);
            }
        }
    }

    fn count_drop(&mut self, class: ClassId, packet: Packet, reason: DropReason) {
        let sent = &mut self.sent[class as usize];
        sent.dropped_packets += 1;
        sent.dropped_bytes += u64::from(packet.len);
        let (packets, bytes) = self.reasons.entry((class, reason)).or_default();
        *packets += 1;
        *bytes += u64::from(packet.len);
        self.note(class, packet, What::Dropped(reason));
        self.drops.push(Drop { at: self.now, class: Some(class), packet, reason });
    }

    fn drop_unclassified(&mut self, packet: Packet) {
        self.unclassified.0 += 1;
        self.unclassified.1 += u64::from(packet.len);
        self.drops.push(Drop { at: self.now, class: None, packet, reason: DropReason::NoClass });
    }

    // ------------------------------------------------------------------ the tree

    fn push_root(&mut self, root: &ClassSpec, scheduler: &SchedulerSpec) -> Result<(), SpecError> {
        let node = self.build_scheduler(ROOT, scheduler, self.rate)?;
        self.places.push(Place { parent: ROOT, children: 0, scheduler: node, slot: ROOT_SLOT, holds: node });
        self.sent.push(Sent::default());
        let leaf = self.leaf(root.queue.as_ref().unwrap_or(&self.nodes[node as usize].queue), node, ROOT_SLOT)?;
        self.leaves.push(leaf);
        Ok(())
    }

    fn build_scheduler(&mut self, class: ClassId, spec: &SchedulerSpec, rate: Rate) -> Result<u32, SpecError> {
        let entry = schedule::find(spec.name).ok_or_else(|| SpecError::new(format!("no scheduler is called {}", spec.name)))?;
        let context = Context { rate, link_rate: self.rate, mtu: self.mtu, overhead: self.overhead, timer: self.timer };
        let inner = (entry.build)(&context, &spec.settings)?;
        let node = Node {
            hears_arrivals: inner.hears_arrivals(),
            inner,
            class,
            classes: vec![class],
            free: Vec::new(),
            backlog: 0,
            blocked: None,
            spec: spec.clone(),
            queue: (entry.default_queue)(&spec.settings),
        };
        Ok(match self.free_nodes.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        })
    }

    fn leaf(&self, queue: &QueueSpec, scheduler: u32, slot: Slot) -> Result<Leaf, SpecError> {
        let (policy, limit, limit_in_bytes) = queue_policy(queue)?;
        Ok(Leaf { head: NIL, tail: NIL, packets: 0, bytes: 0, limit, scheduler, slot, policy, limit_in_bytes, exists: true })
    }

    fn existing(&self, class: ClassId) -> Result<Place, SpecError> {
        match self.leaves.get(class as usize) {
            Some(leaf) if leaf.exists => Ok(self.places[class as usize]),
            _ => Err(SpecError::new(format!("there is no class {class}"))),
        }
    }

    /// The scheduler that serves the children of a class.
    fn scheduler_below(place: Place) -> (u32, Slot) {
        if place.holds == NIL { (place.scheduler, place.slot) } else { (place.holds, ROOT_SLOT) }
    }

    fn add_class(&mut self, now: Nanos, spec: &ClassSpec) -> Result<ClassId, SpecError> {
        let above = self.existing(spec.parent)?;
        let (node, parent_slot) = Engine::scheduler_below(above);
        let entry = schedule::find(self.nodes[node as usize].spec.name).expect("a scheduler that was built is registered");
        let queue = spec.queue.clone().unwrap_or_else(|| self.nodes[node as usize].queue.clone());
        queue_policy(&queue)?;
        if spec.scheduler.is_some() && self.nesting(node) >= MAX_NESTING {
            return Err(SpecError::new(format!("schedulers stand more than {MAX_NESTING} deep in one another")));
        }
        let n = &mut self.nodes[node as usize];
        let slot = n.free.pop().unwrap_or(n.classes.len() as Slot);
        if let Err(error) = n.inner.add(now, slot, parent_slot, &spec.settings) {
            if (slot as usize) < n.classes.len() {
                n.free.push(slot);
            }
            return Err(error);
        }
        let id = self.free.last().copied().unwrap_or(self.leaves.len() as ClassId);
        let holds = match &spec.scheduler {
            None => NIL,
            Some(inner) => {
                let rate = (entry.guarantee)(&spec.settings).filter(|r| !r.is_zero()).unwrap_or(self.rate);
                match self.build_scheduler(id, inner, rate) {
                    Ok(made) => made,
                    Err(error) => {
                        let n = &mut self.nodes[node as usize];
                        n.inner.remove(now, slot);
                        if (slot as usize) < n.classes.len() {
                            n.free.push(slot);
                        }
                        return Err(error);
                    }
                }
            }
        };
        let n = &mut self.nodes[node as usize];
        if slot as usize == n.classes.len() {
            n.classes.push(id);
        } else {
            n.classes[slot as usize] = id;
        }
        let (own_node, own_slot) = if holds == NIL { (node, slot) } else { (holds, ROOT_SLOT) };
        let leaf = self.leaf(&queue, own_node, own_slot)?;
        let place = Place { parent: spec.parent, children: 0, scheduler: node, slot, holds };
        if self.free.pop().is_some() {
            self.leaves[id as usize] = leaf;
            self.sent[id as usize] = Sent::default();
            self.places[id as usize] = place;
        } else {
            self.leaves.push(leaf);
            self.sent.push(Sent::default());
            self.places.push(place);
        }
        self.places[spec.parent as usize].children += 1;
        Ok(id)
    }

    fn nesting(&self, mut node: u32) -> usize {
        let mut depth = 1;
        while node != 0 {
            node = self.places[self.nodes[node as usize].class as usize].scheduler;
            depth += 1;
        }
        depth
    }

    fn set_class(&mut self, now: Nanos, class: ClassId, parent: ClassId, settings: &Settings) -> Result<(), SpecError> {
        let place = self.existing(class)?;
        let above = self.existing(parent)?;
        if class == ROOT {
            return Err(SpecError::new("the root has no words of a class; change the link's rate or its scheduler instead"));
        }
        let (node, parent_slot) = Engine::scheduler_below(above);
        if node != place.scheduler {
            return Err(
                SpecError::new("a class cannot move to another scheduler").help("add it there and remove it here, with an heir")
            );
        }
        if self.is_below(parent, class) {
            return Err(SpecError::new("a class cannot stand below itself"));
        }
        self.nodes[node as usize].inner.change(now, place.slot, parent_slot, settings)?;
        let entry = schedule::find(self.nodes[node as usize].spec.name).expect("a scheduler that was built is registered");
        if place.holds != NIL {
            let rate = (entry.guarantee)(settings).filter(|r| !r.is_zero()).unwrap_or(self.rate);
            self.nodes[place.holds as usize].inner.set_rate(now, rate, self.rate);
        }
        self.places[place.parent as usize].children -= 1;
        self.places[parent as usize].children += 1;
        self.places[class as usize].parent = parent;
        Ok(())
    }

    fn remove_class(&mut self, now: Nanos, class: ClassId, heir: Option<ClassId>) -> Result<(), SpecError> {
        let place = self.existing(class)?;
        if class == ROOT {
            return Err(SpecError::new("the root cannot be removed"));
        }
        if place.children > 0 {
            return Err(SpecError::new(format!("the class has {} classes below it", place.children)).help("remove those first"));
        }
        if let Some(heir) = heir {
            self.existing(heir)?;
            if heir == class {
                return Err(SpecError::new("a class cannot be its own heir"));
            }
        }
        if self.default == Some(class) || self.classifier.names(class) {
            return Err(SpecError::new("rules or the default still lead to the class").help("change the rules first"));
        }
        let leaf = self.leaves[class as usize];
        while self.leaves[class as usize].packets > 0 {
            let packet = self.take_head(class);
            let next = self.head_wire(class);
            self.head_lost(leaf.scheduler, leaf.slot, next);
            match heir {
                None => self.count_drop(class, packet, DropReason::ClassRemoved),
                Some(heir) => self.inherit(heir, packet),
            }
        }
        if place.holds != NIL {
            self.free_nodes.push(place.holds);
            self.nodes[place.holds as usize].blocked = None;
        }
        let n = &mut self.nodes[place.scheduler as usize];
        n.inner.remove(now, place.slot);
        n.free.push(place.slot);
        self.places[place.parent as usize].children -= 1;
        // What the class did stays in its parents' sums.
        let gone = self.sent[class as usize];
        let into = &mut self.sent[place.parent as usize];
        into.packets += gone.packets;
        into.bytes += gone.bytes;
        into.wire_bytes += gone.wire_bytes;
        into.dropped_packets += gone.dropped_packets;
        into.dropped_bytes += gone.dropped_bytes;
        into.borrowed_bytes += gone.borrowed_bytes;
        into.marked_packets += gone.marked_packets;
        for reason in DropReason::ALL {
            if let Some((packets, bytes)) = self.reasons.remove(&(class, reason)) {
                let to = self.reasons.entry((place.parent, reason)).or_default();
                to.0 += packets;
                to.1 += bytes;
            }
        }
        self.sent[class as usize] = Sent::default();
        self.leaves[class as usize].exists = false;
        self.free.push(class);
        Ok(())
    }

    /// A packet of a removed class joins its heir's queue, with the time of arrival that it has.
    fn inherit(&mut self, heir: ClassId, packet: Packet) {
        let leaf = self.leaves[heir as usize];
        let fits =
            if leaf.limit_in_bytes { leaf.bytes.saturating_add(packet.len) <= leaf.limit } else { leaf.packets < leaf.limit };
        if !fits {
            return self.count_drop(heir, packet, DropReason::QueueFull);
        }
        let first = self.append(heir, packet);
        self.announce(leaf.scheduler, leaf.slot, packet.wire, first);
    }

    fn set_queue(&mut self, class: ClassId, queue: &QueueSpec) -> Result<(), SpecError> {
        self.existing(class)?;
        let (policy, limit, limit_in_bytes) = queue_policy(queue)?;
        let leaf = &mut self.leaves[class as usize];
        (leaf.policy, leaf.limit, leaf.limit_in_bytes) = (policy, limit, limit_in_bytes);
        let over = |leaf: &Leaf| leaf.packets > 0 && if limit_in_bytes { leaf.bytes > limit } else { leaf.packets > limit };
        if policy == Policy::DropHead {
            if over(&self.leaves[class as usize]) {
                self.drop_from_head(class, DropReason::LimitLowered);
            }
            return Ok(());
        }
        // Drop-tail keeps the oldest: the chain is cut behind the last packet that fits.
        while over(&self.leaves[class as usize]) {
            self.drop_tail(class);
        }
        Ok(())
    }

    /// Drops the last packet of a queue. Linear in the queue: only a lowered limit does this.
    fn drop_tail(&mut self, class: ClassId) {
        let leaf = self.leaves[class as usize];
        if leaf.packets == 1 {
            return self.drop_from_head(class, DropReason::LimitLowered);
        }
        let before = self.slab.before(leaf.head, leaf.tail);
        let (packet, _) = self.slab.remove(leaf.tail);
        self.slab.link(before, NIL);
        let leaf = &mut self.leaves[class as usize];
        leaf.tail = before;
        leaf.packets -= 1;
        leaf.bytes -= packet.len;
        let (mut node, mut slot) = (leaf.scheduler, leaf.slot);
        self.count_drop(class, packet, DropReason::LimitLowered);
        loop {
            let n = &mut self.nodes[node as usize];
            n.backlog -= 1;
            n.inner.tail_lost(self.now, slot);
            if node == 0 {
                return;
            }
            let place = self.places[n.class as usize];
            (node, slot) = (place.scheduler, place.slot);
        }
    }

    fn set_scheduler(&mut self, now: Nanos, class: ClassId, settings: &Settings) -> Result<(), SpecError> {
        let place = self.existing(class)?;
        if place.holds == NIL {
            return Err(SpecError::new(format!("class {class} holds no scheduler")));
        }
        let node = &mut self.nodes[place.holds as usize];
        node.inner.change(now, ROOT_SLOT, ROOT_SLOT, settings)?;
        node.spec.settings = settings.clone();
        Ok(())
    }

    fn set_rate(&mut self, now: Nanos, rate: Rate) -> Result<(), SpecError> {
        if rate.is_zero() {
            return Err(SpecError::word("rate", "the link's rate is 0 bit/s"));
        }
        self.rate = rate;
        self.nodes[0].inner.set_rate(now, rate, rate);
        if let Some(regulator) = &mut self.regulator {
            regulator.set(now, rate, TokenBucket::auto_depth(rate, self.mtu));
        }
        Ok(())
    }

    fn set_regulator(&mut self, now: Nanos, regulator: Regulator) {
        self.regulator = match regulator {
            Regulator::None => None,
            Regulator::Auto => Some(TokenBucket::new(self.rate, TokenBucket::auto_depth(self.rate, self.mtu), now)),
            Regulator::Depth(depth) => Some(TokenBucket::new(self.rate, depth, now)),
        };
    }

    fn set_rules(&mut self, rules: &RuleSet, default: Option<ClassId>) -> Result<(), SpecError> {
        for class in rules.rules.iter().map(|rule| rule.class).chain(default) {
            self.existing(class)?;
        }
        self.classifier = crate::classify::Classifier::new(rules, default);
        self.default = default;
        Ok(())
    }
}

fn queue_policy(spec: &QueueSpec) -> Result<(Policy, u32, bool), SpecError> {
    let entry = queue::find(spec.name).ok_or_else(|| SpecError::new(format!("no queue is called {}", spec.name)))?;
    let policy = (entry.build)(&spec.settings)?;
    Ok(match spec.limit {
        Limit::Packets(n) => (policy, n, false),
        Limit::Bytes(n) => (policy, n, true),
    })
}
