//! The engine of one link: the contract. [`walk`] takes packets through the tree of schedulers,
//! [`stateful`] through queues that decide for themselves, [`tree`] changes it, [`inspect`] answers
//! questions about it.

mod inspect;
mod nested;
mod stateful;
mod tree;
mod walk;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::account::DropReason;
use crate::classify::RuleSet;
use crate::link::Overhead;
use crate::packet::{Packet, Slab};
use crate::prefetch::{prefetch, prefetch_first};
use crate::queue::Queue;
use crate::schedule::{Scheduler, Slot};
use crate::settings::Settings;
use crate::shape::meter::Meter;
use crate::shape::token_bucket::TokenBucket;
use crate::spec::{ClassId, ClassSpec, LinkSpec, QueueSpec, Regulator, SchedulerSpec, SpecError, Timer};
use crate::trace::{Trace, What};
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
    /// Takes a class without children away. Its packets go to the tail of the heir's queue, as far
    /// as they fit, or are drops.
    RemoveClass {
        /// Which.
        class: ClassId,
        /// Who gets its packets.
        heir: Option<ClassId>,
    },
    /// Another limit or kind of queue. Packets that do not fit any more are dropped where the queue
    /// drops.
    SetQueue {
        /// Whose.
        class: ClassId,
        /// The queue.
        queue: QueueSpec,
    },
    /// New words of a scheduler itself.
    SetScheduler {
        /// The class that holds it; [`ROOT`](crate::spec::ROOT) for the link's own.
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

/// What a packet touches of its class besides the scheduler's own record: one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Leaf {
    /// First packet; of a queue with a state of its own, its place in [`Engine::queues`].
    head: u32,
    tail: u32,
    packets: u32,
    bytes: u32,
    /// Limit, in packets or bytes.
    limit: u32,
    /// The scheduler that serves this class's own packets, and the class's place in it:
    /// [`ROOT_SLOT`](crate::schedule::ROOT_SLOT) for a class that holds a scheduler.
    scheduler: u32,
    slot: Slot,
    kind: Kind,
    limit_in_bytes: bool,
    /// False for a free number.
    exists: bool,
    sent_packets: u64,
    sent_bytes: u64,
    sent_wire_bytes: u64,
    borrowed_bytes: u64,
}

const _: () = assert!(size_of::<Leaf>() == 64);

/// [`Policy`](crate::queue::Policy) without what belongs to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    DropTail,
    DropHead,
    Stateful,
}

/// What a class lost: made when there is something to count.
#[derive(Default)]
struct Losses {
    packets: u64,
    bytes: u64,
    marked_packets: u64,
    /// Packets and bytes dropped, by reason.
    reasons: [(u64, u64); DropReason::ALL.len()],
}

/// Where a class stands in the tree, and what is rare; not touched by a packet that just passes.
struct TreePlace {
    parent: ClassId,
    children: u32,
    /// The scheduler among whose classes it is, and its place there. For the root: its own.
    scheduler: u32,
    slot: Slot,
    /// What its words guarantee; where that is nothing, the rate by which the scheduler that serves
    /// it measures.
    rate: Rate,
    /// Its words guarantee something.
    guaranteed: bool,
    losses: Option<Box<Losses>>,
    /// What measures the packets of the class and of all below it.
    meter: Option<Box<Meter>>,
}

/// From so many classes on their records do not stay in a processor's own caches, and a batch
/// fetches them beforehand.
const PREFETCH_FROM: usize = 4096;

/// Bit in [`Node::classes`]: what is below this class has a scheduler of its own.
const HOLDS_SCHEDULER: u32 = 1 << 31;

/// A scheduler at its place in the tree.
struct Node {
    inner: Box<dyn Scheduler>,
    /// The class that holds it.
    class: ClassId,
    /// The class of each slot, with [`HOLDS_SCHEDULER`] for one that holds a scheduler.
    classes: Vec<ClassId>,
    /// Every slot has the number of its class, and none holds a scheduler: as long as that is so,
    /// nobody need look.
    slots_are_classes: bool,
    free: Vec<Slot>,
    /// Packets below.
    backlog: u32,
    /// Set while it has packets but may send none: until when, as announced to the wake-up queue.
    blocked_until: Option<Nanos>,
    wants_arrivals: bool,
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
    regulator_spec: Regulator,
    leaves: Vec<Leaf>,
    places: Vec<TreePlace>,
    free: Vec<ClassId>,
    nodes: Vec<Node>,
    /// Numbers of schedulers that went with their class.
    free_nodes: Vec<u32>,
    /// Inner schedulers that hold packets back, by the time at which they may send again. An entry
    /// whose time is not the one in [`Node::blocked_until`] is void.
    wakeups: BinaryHeap<Reverse<(Nanos, u32)>>,
    slab: Slab,
    /// Queues with a state of their own.
    queues: Vec<Option<Box<dyn Queue>>>,
    /// Their names in the registry.
    queue_names: Vec<&'static str>,
    free_queues: Vec<u32>,
    /// What such a queue lost in the call under way.
    lost: Vec<(Packet, DropReason)>,
    seed: u64,
    drops: Vec<Drop>,
    unclassified: (u64, u64),
    classifier: crate::classify::Classifier,
    default: Option<ClassId>,
    trace: Option<Trace>,
    /// Some scheduler hears every arrival.
    wants_arrivals: bool,
    /// Some class has a meter.
    metered: bool,
    /// One of these, or a trace is kept: arrivals take the long way.
    arrivals_observed: bool,
    now: Nanos,
}

impl Leaf {
    /// Whether a packet of so many bytes fits into a plain queue.
    #[inline]
    fn fits(&self, len: u32) -> bool {
        if self.limit_in_bytes {
            u64::from(self.bytes) + u64::from(len) <= u64::from(self.limit)
        } else {
            self.packets < self.limit
        }
    }

    /// Whether a plain queue holds more than its limit.
    fn over(&self) -> bool {
        self.packets > 0 && if self.limit_in_bytes { self.bytes > self.limit } else { self.packets > self.limit }
    }
}

impl Engine {
    /// Builds the engine of a link. `spec` is taken as checked; what cannot be built is an error,
    /// not a panic.
    pub fn new(spec: &LinkSpec) -> Result<Engine, SpecError> {
        let mut engine = Engine {
            rate: spec.rate,
            mtu: spec.mtu,
            overhead: spec.overhead,
            timer: spec.timer,
            regulator: None,
            regulator_spec: Regulator::None,
            leaves: Vec::with_capacity(spec.classes.len()),
            places: Vec::with_capacity(spec.classes.len()),
            free: Vec::new(),
            nodes: Vec::new(),
            free_nodes: Vec::new(),
            wakeups: BinaryHeap::new(),
            slab: Slab::default(),
            queues: Vec::new(),
            queue_names: Vec::new(),
            free_queues: Vec::new(),
            lost: Vec::new(),
            seed: 0,
            drops: Vec::new(),
            unclassified: (0, 0),
            classifier: crate::classify::Classifier::new(&RuleSet::default(), None),
            default: None,
            trace: None,
            wants_arrivals: false,
            metered: false,
            arrivals_observed: false,
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

    /// A packet arrives for a class. It is queued, or it, or another that makes room for it, is
    /// among the [`drops`](Engine::drops).
    ///
    /// A `class` that does not exist drops the packet with the reason `no_class`.
    #[inline]
    pub fn enqueue(&mut self, now: Nanos, class: ClassId, mut packet: Packet) {
        self.now = now;
        packet.arrived = now;
        packet.wire = self.overhead.charge_segments(packet.len, packet.segments);
        // The common way, short: nobody listens, and a plain queue has room.
        if !self.arrivals_observed
            && let Some(leaf) = self.leaves.get_mut(class as usize)
            && leaf.exists
        {
            if leaf.kind == Kind::Stateful {
                return self.enqueue_stateful(class, &mut packet);
            }
            if leaf.fits(packet.len) {
                let at = self.slab.insert(&packet);
                leaf.packets += 1;
                leaf.bytes += packet.len;
                let before = std::mem::replace(&mut leaf.tail, at);
                let first = leaf.packets == 1;
                if first {
                    leaf.head = at;
                } else {
                    self.slab.link(before, at, packet.wire);
                }
                let (node, slot) = (leaf.scheduler, leaf.slot);
                if node != 0 {
                    return self.report_queued(node, slot, packet.wire, first);
                }
                let root = &mut self.nodes[0];
                root.backlog += 1;
                if first {
                    root.inner.queued(now, slot, packet.wire, true);
                }
                return;
            }
        }
        self.enqueue_any(class, packet);
    }

    /// Finds the class of a packet by its key.
    #[inline]
    pub fn classify(&mut self, key: &crate::headers::Key) -> Option<ClassId> {
        self.classifier.classify(key)
    }

    /// [`classify`](Engine::classify) for several packets: one class a key is added to `classes`,
    /// in order. What the packets' arrival will look at is fetched from memory on the way, for all
    /// of them at the same time; so batches of about [`BATCH`](crate::classify::BATCH), enqueued at
    /// once, are best.
    pub fn classify_batch(&mut self, keys: &[crate::headers::Key], classes: &mut Vec<Option<ClassId>>) {
        let from = classes.len();
        self.classifier.classify_batch(keys, classes);
        if self.leaves.len() < PREFETCH_FROM {
            return;
        }
        for class in classes[from..].iter().flatten() {
            prefetch(&self.leaves, *class as usize);
        }
        for class in classes[from..].iter().flatten() {
            if let Some(leaf) = self.leaves.get(*class as usize) {
                self.nodes[leaf.scheduler as usize].inner.fetch(leaf.slot);
                if leaf.kind == Kind::Stateful {
                    prefetch(&self.queues, leaf.head as usize);
                } else {
                    self.slab.fetch(leaf.tail);
                }
            }
        }
        if self.queues.len() < PREFETCH_FROM {
            return;
        }
        for class in classes[from..].iter().flatten() {
            if let Some(queue) = self.queue_of(*class) {
                prefetch_first(queue);
            }
        }
    }

    /// The classifier: its explanations and figures.
    pub fn classifier(&self) -> &crate::classify::Classifier {
        &self.classifier
    }

    /// Sets up the classifier's flow cache anew. Rules that come later keep it so.
    pub fn set_flow_cache(&mut self, settings: crate::classify::CacheSettings) {
        self.classifier.set_cache(settings);
    }

    /// Random numbers of queues start anew from this seed; without a call, from 0.
    pub fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
        self.seed_queues();
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
        let root = &mut self.nodes[0];
        if root.backlog == 0 {
            if root.wants_arrivals {
                root.inner.choose(now);
            }
            return None;
        }
        if let Some(regulator) = &mut self.regulator
            && !regulator.ready(now)
        {
            return None;
        }
        if !self.wakeups.is_empty() {
            self.unblock_due();
        }
        loop {
            let root = &mut self.nodes[0];
            let slot = root.inner.choose(now)?;
            let class = root.class(slot);
            // No class has a number with HOLDS_SCHEDULER in it.
            let many = self.leaves.len() >= PREFETCH_FROM;
            let Some(leaf) = self.leaves.get_mut(class as usize) else {
                return self.dequeue_nested(slot);
            };
            if leaf.kind == Kind::Stateful {
                match self.dequeue_stateful(class, slot) {
                    Some(departure) => return Some(departure),
                    None => continue,
                }
            }
            // As `take_packet` and `finish_departure` do it; the packet itself is looked at last.
            let at = leaf.head;
            let (len, wire, next_at, next_wire) = self.slab.first(at, &self.overhead);
            leaf.head = next_at;
            leaf.packets -= 1;
            leaf.bytes -= len;
            leaf.sent_packets += 1;
            leaf.sent_bytes += u64::from(len);
            leaf.sent_wire_bytes += u64::from(wire);
            if let Some(regulator) = &mut self.regulator {
                regulator.spend(wire);
            }
            let next = (leaf.packets > 0).then_some(next_wire);
            let borrowed = self.nodes[0].sent(now, slot, (len, wire), next);
            if borrowed {
                leaf.borrowed_bytes += u64::from(len);
            }
            if many {
                // The same class may go again, as one of htb that borrows does.
                self.slab.fetch(next_at);
                self.prefetch_next(slot);
            }
            if self.trace.is_some() {
                self.record_event(class, &self.slab.look(at, wire), What::Sent { borrowed });
            }
            return Some(Departure { class, packet: self.slab.take(at, wire) });
        }
    }

    /// [`dequeue`](Engine::dequeue) until `out` holds `most` departures or none may leave now.
    /// Returns how many were added.
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

    /// The earliest time at which [`dequeue`](Engine::dequeue) may return a packet if nothing else
    /// happens; a time that has passed means now. `None`: only an arrival or a change can bring
    /// one.
    ///
    /// The answer may change after any other call. Calling `dequeue` earlier, later or more often
    /// is harmless.
    pub fn next_wakeup(&mut self) -> Option<Nanos> {
        if self.nodes[0].backlog == 0 {
            return None;
        }
        let mut at = self.nodes[0].inner.next_wakeup();
        while let Some(&Reverse((time, node))) = self.wakeups.peek() {
            if self.nodes[node as usize].blocked_until == Some(time) {
                at = Some(at.map_or(time, |at| at.min(time)));
                break;
            }
            self.wakeups.pop();
        }
        if let Some(regulator) = &self.regulator {
            match self.timer {
                Timer::Exact => at = at.map(|at| at.max(regulator.ready_at())),
                // ALTQ's regulator kicks the device on every tick while there is backlog
                // (docs/reference/altq.md 1.3). Where the schedulers wait for nothing but an
                // arrival or a change, a kick brings nothing.
                Timer::Tick(tick) => {
                    let tick = tick.max(1);
                    let next = (self.now / tick + 1).saturating_mul(tick);
                    at = match at {
                        Some(at) if at > self.now => Some(at.min(next)),
                        Some(_) if regulator.ready_at() <= self.now => at,
                        Some(_) => Some(next),
                        None => None,
                    };
                }
            }
        }
        at
    }

    /// Changes classes, rates, queues or rules while packets are queued: every packet stays
    /// accounted for. On an error nothing has changed. Returns the class's number for
    /// [`Change::AddClass`].
    pub fn apply(&mut self, now: Nanos, change: &Change) -> Result<Option<ClassId>, SpecError> {
        self.now = now;
        match change {
            Change::AddClass(spec) => return self.add_class(now, spec).map(Some),
            Change::SetClass { class, parent, settings } => self.set_class(now, *class, *parent, settings)?,
            Change::RemoveClass { class, heir } => self.remove_class(now, *class, *heir)?,
            Change::SetQueue { class, queue } => self.set_queue(now, *class, queue)?,
            Change::SetScheduler { class, settings } => self.set_scheduler(now, *class, settings)?,
            Change::SetRate(rate) => self.set_rate(now, *rate)?,
            Change::SetRegulator(regulator) => self.set_regulator(now, *regulator),
            Change::SetRules { rules, default } => self.set_rules(rules, *default)?,
        }
        Ok(None)
    }

    /// The drops since the last call, oldest first. A feeder takes them after every call that can
    /// drop, and frees the packets.
    pub fn drops(&mut self) -> std::vec::Drain<'_, Drop> {
        self.drops.drain(..)
    }

    /// True if drops wait to be taken.
    pub fn has_drops(&self) -> bool {
        !self.drops.is_empty()
    }
}
