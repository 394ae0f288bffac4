//! Flow queueing (RFC 8290, 3): what fq_codel and cake do alike.
//!
//! Such a queue keeps flows apart and serves them in rounds, those that have just become active
//! first. It lets every packet in, and when it is over its limit drops from the flow that holds
//! most. [`FlowScheduler`] is the part in which the two differ; [`FlowQueue`] adds the limit and
//! the hash, and is a [`Queue`].

use super::flows::{ByBytes, Flows, Hash, NextSeed, drain};
use super::{Context, Policy, Queue, Store, Taken};
use crate::account::DropReason;
use crate::packet::Packet;
use crate::settings::Limit;
use crate::spec::{QueueSpec, SpecError};
use crate::units::{Nanos, Rate};

/// Which flow a packet belongs to, which flow sends next, and which loses a packet. `now` never
/// decreases.
pub(super) trait FlowScheduler: Send + Sync + Sized + 'static {
    /// What is kept of a flow besides its packets.
    type State: Default + Send;

    /// A scheduler without flows.
    fn new(context: &Context, spec: &QueueSpec) -> Result<Self, SpecError>;

    /// The flows.
    fn flows(&self) -> &Flows<Self::State, ByBytes>;

    /// Puts a packet at the end of its flow, and the flow into the rounds if it is not there.
    fn put(&mut self, now: Nanos, packet: &Packet, hash: &Hash, store: &mut Store<'_>);

    /// The packet that leaves next; `None` without packets, and no flow is in the rounds then. With
    /// `decide` the flow's AQM may mark it, or drop it and go on to the next one.
    fn next(&mut self, now: Nanos, store: &mut Store<'_>, decide: bool) -> Option<Taken>;

    /// What [`next`](FlowScheduler::next) does without packets: all flows leave the rounds.
    fn rest_all(&mut self, now: Nanos, store: &mut Store<'_>);

    /// The queue holds more than `limit`. Loses one packet or a few of the flow that holds most.
    fn overflow(&mut self, now: Nanos, limit: Limit, store: &mut Store<'_>, reason: DropReason);

    /// Forgets all flows. None has packets.
    fn clear(&mut self);

    /// Takes its words from `new`. True if they put flows into other buckets: all packets are taken
    /// out then, the flows are [cleared](FlowScheduler::clear), and the packets put in again.
    fn change(&mut self, place: &Context, new: &QueueSpec) -> Result<bool, SpecError>;

    /// The charged length of the packet that [`next`](FlowScheduler::next) would give; a guess as
    /// that of [`Queue::peek`]. There are packets.
    fn peek(&self) -> u32;

    /// As [`Queue::set_rate`].
    fn set_rate(&mut self, _rate: Rate) {}

    /// As [`Queue::seed`], for what else it draws besides the hash.
    fn seed(&mut self, _seed: u64) {}

    /// As [`Queue::report_counters`].
    fn report_counters(&self, counter: &mut dyn FnMut(&'static str, u64));

    /// Bytes of memory held beyond its own size.
    fn memory(&self) -> usize;
}

/// A queue of flows: its limit, the hash of its flows, and the scheduler that serves them.
struct FlowQueue<F> {
    limit: Limit,
    hash: Hash,
    seed: NextSeed,
    flows: F,
}

/// Makes the queue of a scheduler: the `build` of its [`Entry`](super::Entry).
pub(super) fn build<F: FlowScheduler>(context: &Context, spec: &QueueSpec) -> Result<Policy, SpecError> {
    let flows = F::new(context, spec)?;
    let (limit, hash, seed) = (spec.limit, Hash::new(context.seed), NextSeed::default());
    Ok(Policy::Stateful(Box::new(FlowQueue { limit, hash, seed, flows })))
}

impl<F: FlowScheduler> FlowQueue<F> {
    /// Starts again without flows, by this hash. Nothing waits.
    fn restart(&mut self, hash: Hash) {
        self.hash = hash;
        self.flows.clear();
    }

    /// Drops until the limit holds.
    #[inline]
    fn bring_within_limit(&mut self, now: Nanos, store: &mut Store<'_>, reason: DropReason) {
        while self.flows.flows().over(self.limit) {
            self.flows.overflow(now, self.limit, store, reason);
        }
    }
}

impl<F: FlowScheduler> Queue for FlowQueue<F> {
    fn enqueue(&mut self, now: Nanos, packet: &mut Packet, store: &mut Store<'_>) -> Result<(), DropReason> {
        if !self.flows.flows().admits(self.limit, packet.len) {
            return Err(DropReason::QueueFull);
        }
        if let Some(hash) = self.seed.due(self.flows.flows().packets() == 0) {
            self.restart(hash);
        }
        self.flows.put(now, packet, &self.hash, store);
        self.bring_within_limit(now, store, DropReason::HeadDropped);
        Ok(())
    }

    fn dequeue(&mut self, now: Nanos, store: &mut Store<'_>) -> Option<Taken> {
        self.dequeue_and_peek(now, store).0
    }

    fn dequeue_and_peek(&mut self, now: Nanos, store: &mut Store<'_>) -> (Option<Taken>, Option<u32>) {
        let Some(packet) = self.flows.next(now, store, true) else { return (None, None) };
        if self.flows.flows().packets() > 0 {
            return (Some(packet), Some(self.flows.peek()));
        }
        // The engine does not ask an empty queue. So it is asked once more here, and all flows
        // leave the rounds.
        self.flows.rest_all(now, store);
        (Some(packet), None)
    }

    fn peek(&self) -> Option<u32> {
        (self.flows.flows().packets() > 0).then(|| self.flows.peek())
    }

    fn backlog(&self) -> (u32, u32) {
        self.flows.flows().backlog()
    }

    fn take(&mut self, store: &mut Store<'_>) -> Option<Taken> {
        self.flows.next(0, store, false)
    }

    fn change(&mut self, now: Nanos, place: &Context, new: &QueueSpec, store: &mut Store<'_>) -> Result<(), SpecError> {
        let moved = self.flows.change(place, new)?;
        self.limit = new.limit;
        if moved {
            // In the order in which they would have left.
            let waiting = drain(self, store);
            self.flows.clear();
            waiting.iter().for_each(|packet| self.flows.put(now, packet, &self.hash, store));
        }
        self.bring_within_limit(now, store, DropReason::LimitLowered);
        Ok(())
    }

    fn keeps_flows(&self) -> bool {
        true
    }

    fn set_rate(&mut self, rate: Rate) {
        self.flows.set_rate(rate);
    }

    fn seed(&mut self, seed: u64) {
        self.flows.seed(seed);
        if let Some(hash) = self.seed.set(seed, self.flows.flows().packets() == 0) {
            self.restart(hash);
        }
    }

    fn report_counters(&self, counter: &mut dyn FnMut(&'static str, u64)) {
        self.flows.report_counters(counter);
    }

    fn memory(&self) -> usize {
        size_of::<FlowQueue<F>>() + self.flows.flows().memory() + self.flows.memory()
    }
}
