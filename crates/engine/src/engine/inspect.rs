//! Questions about the engine: counters, the tree, memory, the event trace.

use super::{Engine, Leaf, Losses, Node, TreePlace};
use crate::account::{Counters, DropReason};
use crate::link::Overhead;
use crate::queue::Queue;
use crate::schedule::ROOT_SLOT;
use crate::spec::{ClassId, ROOT};
use crate::trace::Trace;
use crate::units::Rate;

impl Engine {
    /// The counters of a class and of all classes below it.
    pub fn counters(&self, class: ClassId) -> Counters {
        let mut total = Counters::default();
        for id in 0..self.buffers.leaves.len() as ClassId {
            if self.buffers.leaves[id as usize].exists && self.is_below(id, class) {
                total += self.own_counters(id);
            }
        }
        if let Some(bytes) = self.borrowed(class) {
            total.borrowed_bytes = bytes;
        }
        total
    }

    /// The counters of all classes, each with those of all classes below it, by class number.
    /// Unused numbers have zeros.
    pub fn all_counters(&self) -> Vec<Counters> {
        let ids = 0..self.buffers.leaves.len() as ClassId;
        let mut all: Vec<Counters> = ids.clone().map(|id| self.own_counters(id)).collect();
        for id in self.bottom_up() {
            if id != ROOT {
                let own = all[id as usize];
                all[self.places[id as usize].parent as usize] += own;
            }
        }
        for id in ids {
            if let Some(bytes) = self.borrowed(id) {
                all[id as usize].borrowed_bytes = bytes;
            }
        }
        all
    }

    /// The counters of a class's own packets.
    pub fn own_counters(&self, class: ClassId) -> Counters {
        // The counters of a removed class are in those of the class above it.
        let Some(leaf) = self.buffers.leaves.get(class as usize).filter(|leaf| leaf.exists) else {
            return Counters::default();
        };
        let losses = self.places[class as usize].losses.as_deref();
        let of = |what: fn(&Losses) -> u64| losses.map_or(0, what);
        Counters {
            sent_packets: leaf.sent_packets,
            sent_bytes: leaf.sent_bytes,
            sent_wire_bytes: leaf.sent_wire_bytes,
            dropped_packets: of(|losses| losses.packets),
            dropped_bytes: of(|losses| losses.bytes),
            borrowed_bytes: leaf.borrowed_bytes,
            marked_packets: of(|losses| losses.marked_packets),
            queued_packets: u64::from(leaf.packets),
            queued_bytes: u64::from(leaf.bytes),
        }
    }

    /// One more than the highest class number that is, or was, in use.
    pub fn numbers(&self) -> usize {
        self.buffers.leaves.len()
    }

    /// The first counter of these names that its scheduler keeps for a class.
    pub fn scheduler_counter(&self, class: ClassId, names: &[&str]) -> Option<u64> {
        let leaf = self.buffers.leaves.get(class as usize).filter(|leaf| leaf.exists)?;
        let place = &self.places[class as usize];
        let (node, slot) = if class == ROOT { (leaf.scheduler, ROOT_SLOT) } else { (place.scheduler, place.slot) };
        let mut found = None;
        self.nodes[node as usize].inner.report_counters(slot, &mut |name, count| {
            if names.contains(&name) {
                found.get_or_insert(count);
            }
        });
        found
    }

    /// What its scheduler counts for a class, by name, and what its meter counts: packets and bytes
    /// by colour.
    pub fn scheduler_counters(&self, class: ClassId) -> Vec<(&'static str, u64)> {
        let mut all = Vec::new();
        if let Some(leaf) = self.buffers.leaves.get(class as usize).filter(|leaf| leaf.exists) {
            let place = &self.places[class as usize];
            let (node, slot) = if class == ROOT { (leaf.scheduler, ROOT_SLOT) } else { (place.scheduler, place.slot) };
            self.nodes[node as usize].inner.report_counters(slot, &mut |name, count| all.push((name, count)));
            if let Some(meter) = &place.meter {
                meter.report_counters(&mut |name, count| all.push((name, count)));
            }
        }
        all
    }

    /// What the queue of a class counts, by name, if it has a state of its own.
    pub fn queue_counters(&self, class: ClassId) -> Vec<(&'static str, u64)> {
        let mut all = Vec::new();
        if let Some(queue) = self.queue_of(class) {
            queue.report_counters(&mut |name, count| all.push((name, count)));
        }
        all
    }

    /// True if a queue looks at [`Packet::flow`](crate::Packet::flow) or
    /// [`Packet::hosts`](crate::Packet::hosts). A change may change the answer.
    pub fn keeps_flows(&self) -> bool {
        self.buffers.queues.iter().flatten().any(|queue| queue.keeps_flows())
    }

    /// The drops of a class's own packets by reason, in packets and bytes.
    pub fn drop_reasons(&self, class: ClassId) -> impl Iterator<Item = (DropReason, u64, u64)> {
        let losses = self.places.get(class as usize).and_then(|place| place.losses.as_deref());
        DropReason::ALL.into_iter().filter_map(move |reason| {
            let (packets, bytes) = losses?.reasons[reason as usize];
            (packets > 0).then_some((reason, packets, bytes))
        })
    }

    /// Packets that were dropped because they had no class, and their bytes.
    pub fn unclassified(&self) -> (u64, u64) {
        self.unclassified
    }

    /// Packets queued in the whole link.
    pub fn backlog(&self) -> u32 {
        self.nodes[0].backlog
    }

    /// The class above; `None` for the root and for numbers without a class.
    pub fn parent(&self, class: ClassId) -> Option<ClassId> {
        let exists = self.buffers.leaves.get(class as usize).is_some_and(|leaf| leaf.exists);
        (exists && class != ROOT).then(|| self.places[class as usize].parent)
    }

    /// The link's rate.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// The link's overhead.
    pub fn overhead(&self) -> Overhead {
        self.buffers.charges.overhead()
    }

    /// Keeps a trace of the latest `capacity` events from now on. 0 ends the trace.
    pub fn trace(&mut self, capacity: usize) {
        self.trace = (capacity > 0).then(|| Trace::new(capacity));
        self.arrivals_observed = self.may_refuse || self.metered || capacity > 0;
    }

    /// The event trace, if one is kept.
    pub fn traced(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }

    /// Bytes of memory held for classes, schedulers and queues, without packets and the flow cache.
    pub fn memory(&self) -> usize {
        self.buffers.leaves.capacity() * size_of::<Leaf>()
            + self.places.capacity() * size_of::<TreePlace>()
            + self.places.iter().filter(|place| place.losses.is_some()).count() * size_of::<Losses>()
            + self.buffers.queues.capacity() * size_of::<Option<Box<dyn Queue>>>()
            + self.queue_names.capacity() * size_of::<&str>()
            + self.buffers.queues.iter().flatten().map(|queue| queue.memory()).sum::<usize>()
            + self
                .nodes
                .iter()
                .map(|n| n.inner.memory() + n.classes.capacity() * 4 + n.free.capacity() * 4 + size_of::<Node>())
                .sum::<usize>()
    }

    /// Bytes of memory held for queued packets.
    pub fn packet_memory(&self) -> usize {
        self.buffers.slab.memory()
    }

    pub(super) fn is_below(&self, mut class: ClassId, above: ClassId) -> bool {
        while class != above {
            if class == ROOT {
                return false;
            }
            class = self.places[class as usize].parent;
        }
        true
    }

    /// Existing classes, children before parents.
    pub(super) fn bottom_up(&self) -> Vec<ClassId> {
        let mut order = Vec::with_capacity(self.buffers.leaves.len());
        let mut waiting: Vec<u32> = self.places.iter().map(|p| p.children).collect();
        for id in 0..self.buffers.leaves.len() as ClassId {
            let mut at = id;
            while self.buffers.leaves[at as usize].exists && waiting[at as usize] == 0 {
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

    /// The bytes that a class has borrowed, where its scheduler counts that for classes with
    /// classes below them. Elsewhere it is the sum over those.
    pub fn borrowed(&self, class: ClassId) -> Option<u64> {
        let place = self.places.get(class as usize)?;
        if !self.buffers.leaves[class as usize].exists {
            return None;
        }
        if class == ROOT {
            return self.nodes[0].inner.borrowed_bytes(ROOT_SLOT);
        }
        self.nodes[place.scheduler as usize].inner.borrowed_bytes(place.slot)
    }
}
