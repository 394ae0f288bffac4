//! The engine of one link, and the functions that its caller uses. [`walk`] takes packets through
//! the tree of schedulers, [`departing`] out of it the short way, [`stateful`] through queues that
//! have a state of their own; [`tree`] builds and changes the tree, [`nested`] keeps the rates and
//! wake-ups of schedulers inside classes, and [`inspect`] answers questions about all of it.

mod departing;
mod inspect;
mod nested;
mod shown;
mod stateful;
mod tree;
mod walk;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::account::DropReason;
use crate::classify::{BATCH, RuleSet};
use crate::link::Charges;
use crate::packet::{Packet, Slab};
use crate::prefetch::{prefetch, prefetch_first};
use crate::queue::Queue;
use crate::schedule::{NOBODY, Scheduler, Slot};
use crate::settings::Settings;
use crate::shape::meter::Meter;
use crate::shape::regulator::Limiter;
use crate::spec::{ClassId, ClassSpec, LinkSpec, QueueSpec, Regulator, SchedulerSpec, SpecError, Timer};
use crate::trace::Trace;
use crate::units::{Nanos, Rate};
pub(crate) use departing::depart;
use departing::{How, Lossy};
pub use shown::ClassShown;

/// How many schedulers may be nested in one another, the link's included.
pub const MAX_NESTING: usize = 8;

/// A packet that leaves the engine.
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

/// A change that may be made while packets are queued. It is made as a whole or not at all.
#[derive(Clone, Debug)]
pub enum Change {
    /// A new class; [`Engine::apply`] returns its number.
    AddClass(ClassSpec),
    /// Other words for a class, and perhaps another parent under the same scheduler.
    SetClass {
        /// Which.
        class: ClassId,
        /// The class above.
        parent: ClassId,
        /// Its words.
        settings: Settings,
    },
    /// Removes a class without children. Its packets go to the tail of the heir's queue, as far as
    /// they fit; the others, or without an heir all of them, are dropped.
    RemoveClass {
        /// Which.
        class: ClassId,
        /// The class that gets its packets.
        heir: Option<ClassId>,
    },
    /// Another limit or another kind of queue for a class. Packets that do not fit any more are
    /// dropped.
    SetQueue {
        /// Whose.
        class: ClassId,
        /// The queue.
        queue: QueueSpec,
    },
    /// Other words for a scheduler itself.
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

/// What a packet touches of its class, besides the scheduler's record: one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Leaf {
    /// The cell of the first packet. For a queue with a state of its own: its index in
    /// [`Buffers::queues`].
    head: u32,
    tail: u32,
    packets: u32,
    bytes: u32,
    /// The limit, in packets or in bytes.
    limit: u32,
    /// The scheduler that serves this class's own packets, and the class's slot in it. A class that
    /// holds a scheduler is [`ROOT_SLOT`](crate::schedule::ROOT_SLOT) in it.
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

/// The variants of [`Policy`](crate::queue::Policy).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    DropTail,
    DropHead,
    Stateful,
}

/// What a class dropped and marked. Made with the first drop or mark.
#[derive(Default)]
struct Losses {
    packets: u64,
    bytes: u64,
    marked_packets: u64,
    /// Packets and bytes dropped, by reason.
    reasons: [(u64, u64); DropReason::ALL.len()],
}

/// A class's place in the tree, and what is rarely needed of it. A packet that is only queued and
/// sent does not touch this.
struct TreePlace {
    parent: ClassId,
    children: u32,
    /// The scheduler that the class belongs to, and its slot there. For the root: the scheduler
    /// that it holds.
    scheduler: u32,
    slot: Slot,
    /// The rate that its words guarantee. Without a guarantee: the rate by which its scheduler
    /// measures shares.
    rate: Rate,
    /// True if its words guarantee a rate.
    guaranteed: bool,
    losses: Option<Box<Losses>>,
    /// The meter of its packets and of those of all classes below it.
    meter: Option<Box<Meter>>,
}

/// From so many classes on their records do not fit into the processor's caches. Then a batch
/// prefetches them.
const PREFETCH_FROM: usize = 4096;

/// The queues of all classes, and the packets in them. Schedulers hand it to
/// [`depart`](Scheduler::depart) and do not look into it.
pub struct Buffers {
    charges: Charges,
    leaves: Vec<Leaf>,
    slab: Slab,
    /// Queues with a state of their own.
    queues: Vec<Option<Box<dyn Queue>>>,
    /// Packets that such a queue dropped in the current call.
    lost: Vec<(Packet, DropReason)>,
    /// What such a queue did in a departure, where it dropped or marked packets.
    lossy: Lossy,
    /// How the last packet left, or why none did.
    how: How,
}

/// Bit in [`Node::classes`]: the class holds a scheduler for the classes below it.
const HOLDS_SCHEDULER: u32 = 1 << 31;

/// A scheduler in the tree.
struct Node {
    inner: Box<dyn Scheduler>,
    /// The class that holds it.
    class: ClassId,
    /// The class of each slot, with the bit [`HOLDS_SCHEDULER`] if it holds a scheduler.
    classes: Vec<ClassId>,
    /// True while every slot is the number of its class and no class holds a scheduler. Then
    /// `classes` need not be looked at.
    slots_are_classes: bool,
    free: Vec<Slot>,
    /// Packets queued in and below its classes.
    backlog: u32,
    /// Set while it has packets but may send none: the time until which, as in [`Engine::wakeups`].
    blocked_until: Option<Nanos>,
    /// The time of its latest entry in [`Engine::wakeups`], so that none is there twice.
    filed: Option<Nanos>,
    wants_arrivals: bool,
    spec: SchedulerSpec,
    /// The queue of its own packets where none is written.
    queue: QueueSpec,
}

/// The engine of one link.
pub struct Engine {
    rate: Rate,
    mtu: u32,
    timer: Timer,
    regulator: Option<Limiter>,
    regulator_spec: Regulator,
    /// How late packets are seen at most.
    seen_late: Nanos,
    buffers: Buffers,
    places: Vec<TreePlace>,
    free: Vec<ClassId>,
    nodes: Vec<Node>,
    /// Free indices of `nodes`: their schedulers were removed with their classes.
    free_nodes: Vec<u32>,
    /// Blocked inner schedulers, by the time at which they may send again. An entry is void if its
    /// time is not that of [`Node::blocked_until`].
    wakeups: BinaryHeap<Reverse<(Nanos, u32)>>,
    /// The names in the registry of [`Buffers::queues`].
    queue_names: Vec<&'static str>,
    free_queues: Vec<u32>,
    seed: u64,
    drops: Vec<Drop>,
    unclassified: (u64, u64),
    classifier: crate::classify::Classifier,
    default: Option<ClassId>,
    trace: Option<Trace>,
    /// True if a scheduler wants to be asked about every arrival before the packet is queued.
    may_refuse: bool,
    /// True if a class has a meter.
    metered: bool,
    /// True if either holds, or a trace is kept: then arrivals take the long way.
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
            // Its bytes are counted in 32 bits.
            self.packets < self.limit && len <= u32::MAX - self.bytes
        }
    }

    /// Whether a plain queue holds more than its limit.
    fn over(&self) -> bool {
        self.packets > 0 && if self.limit_in_bytes { self.bytes > self.limit } else { self.packets > self.limit }
    }
}

impl Engine {
    /// Builds the engine of a link.
    pub fn new(spec: &LinkSpec) -> Result<Engine, SpecError> {
        let mut engine = Engine {
            rate: spec.rate,
            mtu: spec.mtu,
            timer: spec.timer,
            regulator: None,
            regulator_spec: Regulator::None,
            seen_late: 0,
            buffers: Buffers {
                charges: Charges::new(spec.overhead),
                leaves: Vec::with_capacity(spec.classes.len()),
                slab: Slab::default(),
                queues: Vec::new(),
                lost: Vec::new(),
                lossy: (None, 0),
                how: How::Nobody,
            },
            places: Vec::with_capacity(spec.classes.len()),
            free: Vec::new(),
            nodes: Vec::new(),
            free_nodes: Vec::new(),
            wakeups: BinaryHeap::new(),
            queue_names: Vec::new(),
            free_queues: Vec::new(),
            seed: 0,
            drops: Vec::new(),
            unclassified: (0, 0),
            classifier: crate::classify::Classifier::new(&RuleSet::default(), None),
            default: None,
            trace: None,
            may_refuse: false,
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

    /// A packet arrives for a class. It is queued, or dropped; the queue may also drop others to
    /// make room. Dropped packets are among the [`drops`](Engine::drops).
    ///
    /// Where the `class` does not exist, the packet is dropped with the reason `no_class`.
    #[inline(always)]
    pub fn enqueue(&mut self, now: Nanos, class: ClassId, packet: Packet) {
        self.now = now;
        let wire = self.buffers.charges.segments(packet.len, packet.segments);
        // The common case, inlined: no meter, trace or scheduler looks at arrivals before they are
        // queued, and a plain queue has room. The packet is put together only where it is passed
        // on, so that here it goes from its caller into the slab without being written in between.
        if !self.arrivals_observed && self.enqueue_quickly(class, &packet, wire) {
            return;
        }
        self.enqueue_any(class, Packet { arrived: now, wire, ..packet });
    }

    /// Queues a packet of a class that exists, if its queue has a state of its own, or is a plain
    /// one with room. Else returns false, and has done nothing. For use where nobody looks at
    /// arrivals before they are queued. `wire` is the packet's charged length, and it arrives now.
    #[inline(always)]
    fn enqueue_quickly(&mut self, class: ClassId, packet: &Packet, wire: u32) -> bool {
        let Some(leaf) = self.buffers.leaves.get_mut(class as usize).filter(|leaf| leaf.exists) else {
            return false;
        };
        if leaf.kind == Kind::Stateful {
            self.enqueue_stateful(class, &mut Packet { arrived: self.now, wire, ..*packet });
            return true;
        }
        if !leaf.fits(packet.len) {
            return false;
        }
        let at = self.buffers.slab.insert(&Packet { arrived: self.now, wire, ..*packet });
        leaf.packets += 1;
        leaf.bytes += packet.len;
        let before = std::mem::replace(&mut leaf.tail, at);
        let first = leaf.packets == 1;
        if first {
            leaf.head = at;
        } else {
            self.buffers.slab.link(before, at, wire);
        }
        let (node, slot) = (leaf.scheduler, leaf.slot);
        self.report_arrival(node, slot, wire, first);
        true
    }

    /// Finds the class of a packet by its key.
    #[inline]
    pub fn classify(&mut self, key: &crate::headers::Key) -> Option<ClassId> {
        self.classifier.classify(key)
    }

    /// [`classify`](Engine::classify) for several packets: adds one class for each key to
    /// `classes`, in order. It prefetches the records that [`enqueue`](Engine::enqueue) will need,
    /// for all packets at the same time. So batches of about [`BATCH`](crate::classify::BATCH)
    /// packets that are enqueued right afterwards are best.
    pub fn classify_batch(&mut self, keys: &[crate::headers::Key], classes: &mut Vec<Option<ClassId>>) {
        let from = classes.len();
        self.classifier.classify_batch(keys, classes);
        if self.buffers.leaves.len() >= PREFETCH_FROM {
            classes[from..].chunks(BATCH).for_each(|classes| self.fetch_batch(classes));
        }
    }

    /// Prefetches what the packets of at most [`BATCH`] classes need: of each class all records
    /// before any of them is read.
    fn fetch_batch(&self, classes: &[Option<ClassId>]) {
        let root = &self.nodes[0];
        let mut slots = [NOBODY; BATCH];
        for (slot, class) in slots.iter_mut().zip(classes) {
            *slot = class.unwrap_or(NOBODY);
            prefetch(&self.buffers.leaves, *slot as usize);
        }
        if root.slots_are_classes {
            root.inner.fetch_all(&slots[..classes.len()]);
        }
        for class in classes.iter().flatten() {
            if let Some(leaf) = self.buffers.leaves.get(*class as usize) {
                if !root.slots_are_classes {
                    self.nodes[leaf.scheduler as usize].inner.fetch(leaf.slot);
                }
                if leaf.kind == Kind::Stateful {
                    prefetch(&self.buffers.queues, leaf.head as usize);
                } else {
                    self.buffers.slab.fetch(leaf.tail);
                }
            }
        }
        if self.buffers.queues.len() >= PREFETCH_FROM {
            for class in classes.iter().flatten() {
                if let Some(queue) = self.queue_of(*class) {
                    prefetch_first(queue);
                }
            }
        }
    }

    /// The classifier, for its explanations and figures.
    pub fn classifier(&self) -> &crate::classify::Classifier {
        &self.classifier
    }

    /// Replaces the classifier's flow cache with an empty one of these settings. A later change of
    /// the rules keeps the settings.
    pub fn set_flow_cache(&mut self, settings: crate::classify::CacheSettings) {
        self.classifier.set_cache(settings);
    }

    /// Sets the seed of the queues' random numbers, which start anew. Without a call the seed is 0.
    pub fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
        self.seed_queues();
        self.seed_meters();
    }

    /// [`classify`](Engine::classify), then [`enqueue`](Engine::enqueue).
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
        if self.regulator.is_some() { self.dequeue_regulated(now) } else { self.dequeue_any(now) }
    }

    /// [`dequeue`](Engine::dequeue) whatever the regulator says.
    #[inline]
    fn dequeue_any(&mut self, now: Nanos) -> Option<Departure> {
        self.now = now;
        let root = &mut self.nodes[0];
        if root.backlog == 0 {
            if root.wants_arrivals {
                root.inner.choose(now);
            }
            return None;
        }
        self.dequeue_backlogged(now)
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
    /// happens. A time that has passed means now; `None` means only after an arrival or a change.
    ///
    /// Any other call may change the answer. Calling `dequeue` earlier, later or more often is
    /// harmless.
    pub fn next_wakeup(&mut self) -> Option<Nanos> {
        if self.nodes[0].backlog == 0 {
            return None;
        }
        // While the link is busy its schedulers are not asked: what they would send then, a packet
        // to come may change.
        if let Some(busy) = self.regulator.as_mut().and_then(|regulator| regulator.busy_until(self.now)) {
            return Some(busy);
        }
        let mut at = self.nodes[0].inner.next_wakeup();
        while let Some(&Reverse((time, node))) = self.wakeups.peek() {
            if self.nodes[node as usize].blocked_until == Some(time) {
                at = Some(at.map_or(time, |at| at.min(time)));
                break;
            }
            self.pop_wakeup();
        }
        if let Some(regulator) = &mut self.regulator {
            at = regulator.next_wakeup(self.now, at, self.timer);
        }
        at
    }

    /// Changes classes, rates, queues or rules while packets are queued. Every packet stays queued
    /// or is among the drops. On an error nothing has changed. Returns the number of the new class
    /// for [`Change::AddClass`].
    pub fn apply(&mut self, now: Nanos, change: &Change) -> Result<Option<ClassId>, SpecError> {
        self.now = now;
        if let Some(regulator) = &mut self.regulator
            && self.nodes[0].backlog > 0
        {
            regulator.changed(now);
        }
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

    /// The drops since the last call, oldest first. The caller takes them after every call that can
    /// drop, and frees the packets.
    pub fn drops(&mut self) -> std::vec::Drain<'_, Drop> {
        self.drops.drain(..)
    }

    /// True if drops wait to be taken.
    pub fn has_drops(&self) -> bool {
        !self.drops.is_empty()
    }
}
