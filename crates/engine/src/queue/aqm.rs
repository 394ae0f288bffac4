//! Queues of one list with active queue management (AQM, RFC 7567): what red, rio, blue, codel and
//! pie do alike.
//!
//! Such a queue sends its packets in the order of their arrival. [`Aqm`] is the part in which they
//! differ: which packet is dropped or marked, on its arrival or when it leaves. [`AqmQueue`] adds
//! the list, and is a [`Queue`].

use super::{Context, List, Policy, Queue, Store, Taken};
use crate::account::DropReason;
use crate::packet::Packet;
use crate::settings::{Kind, Word};
use crate::spec::{QueueSpec, SpecError};
use crate::units::{Nanos, Rate};

/// The word that asks for marks (RFC 3168 5) in place of drops.
pub(super) const ECN: Word =
    Word { name: "ecn", kind: Kind::Flag, help: "marks ECN-capable packets instead of dropping them", default: "off" };

/// An algorithm that drops or marks packets of one list. `now` never decreases.
pub(super) trait Aqm: Send + Sync + Sized + 'static {
    /// The algorithm in the state of an empty queue.
    fn new(context: &Context, spec: &QueueSpec) -> Result<Self, SpecError>;

    /// Judges a packet that arrives behind those of `list`. An error drops it and says why; without
    /// one it is queued, and the algorithm may have [marked](Store::mark) it, or dropped another
    /// one for it.
    fn admit(
        &mut self,
        now: Nanos,
        packet: &mut Packet,
        list: &mut List,
        store: &mut Store<'_>,
    ) -> Result<(), DropReason>;

    /// As [`Queue::dequeue`].
    fn dequeue(&mut self, now: Nanos, list: &mut List, store: &mut Store<'_>) -> Option<Taken>;

    /// As [`Queue::take`].
    fn take(&mut self, list: &mut List, store: &mut Store<'_>) -> Option<Taken> {
        store.pop(list)
    }

    /// Takes its words from `new` and keeps what it has measured. Packets beyond a lower limit are
    /// lost, with [`DropReason::LimitLowered`].
    fn change(&mut self, now: Nanos, new: Self, list: &mut List, store: &mut Store<'_>);

    /// As [`Queue::set_rate`].
    fn set_rate(&mut self, _rate: Rate) {}

    /// As [`Queue::set_link_rate`].
    fn set_link_rate(&mut self, _rate: Rate) {}

    /// As [`Queue::seed`].
    fn seed(&mut self, _seed: u64) {}

    /// As [`Queue::keeps_flows`].
    fn keeps_flows(&self) -> bool {
        false
    }

    /// As [`Queue::report_counters`].
    fn report_counters(&self, counter: &mut dyn FnMut(&'static str, u64));

    /// Bytes of memory held beyond its own size.
    fn memory(&self) -> usize {
        0
    }
}

/// A list of packets, and the algorithm that drops or marks them.
struct AqmQueue<A> {
    list: List,
    aqm: A,
}

/// Makes the queue of an algorithm: the `build` of its [`Entry`](super::Entry).
pub(super) fn build<A: Aqm>(context: &Context, spec: &QueueSpec) -> Result<Policy, SpecError> {
    Ok(Policy::Stateful(Box::new(AqmQueue { list: List::NEW, aqm: A::new(context, spec)? })))
}

impl<A: Aqm> Queue for AqmQueue<A> {
    fn enqueue(&mut self, now: Nanos, packet: &mut Packet, store: &mut Store<'_>) -> Result<(), DropReason> {
        self.aqm.admit(now, packet, &mut self.list, store)?;
        store.push(&mut self.list, packet);
        Ok(())
    }

    #[inline(always)]
    fn dequeue(&mut self, now: Nanos, store: &mut Store<'_>) -> Option<Taken> {
        self.aqm.dequeue(now, &mut self.list, store)
    }

    #[inline(always)]
    fn peek(&self) -> Option<u32> {
        self.list.peek()
    }

    fn backlog(&self) -> (u32, u32) {
        (self.list.packets(), self.list.bytes())
    }

    fn take(&mut self, store: &mut Store<'_>) -> Option<Taken> {
        self.aqm.take(&mut self.list, store)
    }

    fn change(&mut self, now: Nanos, place: &Context, new: &QueueSpec, store: &mut Store<'_>) -> Result<(), SpecError> {
        let new = A::new(place, new)?;
        self.aqm.change(now, new, &mut self.list, store);
        Ok(())
    }

    fn set_rate(&mut self, rate: Rate) {
        self.aqm.set_rate(rate);
    }

    fn set_link_rate(&mut self, rate: Rate) {
        self.aqm.set_link_rate(rate);
    }

    fn seed(&mut self, seed: u64) {
        self.aqm.seed(seed);
    }

    fn keeps_flows(&self) -> bool {
        self.aqm.keeps_flows()
    }

    fn report_counters(&self, counter: &mut dyn FnMut(&'static str, u64)) {
        self.aqm.report_counters(counter);
    }

    fn memory(&self) -> usize {
        size_of::<AqmQueue<A>>() + self.aqm.memory()
    }
}
