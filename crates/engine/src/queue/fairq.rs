//! FAIRQ's buckets (DragonFly's ALTQ; altq.md section 5): flows of a class take turns, a packet each, and hogs give way.
//!
//! Flows are hashed into `buckets`, each with a queue of its own; `limit` is a bucket's. With `hogs` every bucket's rate is measured by
//! sums that decay: one that comes back and is known to send less than an eighth of `hogs` is served next, and one below `hogs`
//! keeps its turn while it has packets, so that light flows are through quickly. Without `hogs` all take turns.
//!
//! The scheduler [`fairq`](crate::schedule) gives this queue to its classes. A bucket has a record while it has packets, with `hogs` from its
//! first packet on, for what was measured. ALTQ puts packets whose flow is unknown into the bucket at the ring's end; here they are
//! a flow, so that they stay in order.

use super::flows::{ByPackets, Chain, Flow, Flows, Hash};
use super::{Context, Entry, Policy, Queue, Store, Taken};
use crate::account::DropReason;
use crate::packet::Packet;
use crate::settings::{Kind, Limit, Settings, Word};
use crate::shape::decay::Decay;
use crate::spec::{QueueSpec, SpecError};
use crate::units::{Nanos, Rate};

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    name: "fairq",
    about: "flows in buckets take turns by packets, light ones first (FAIRQ)",
    limit: Limit::Packets(50),
    words: &[BUCKETS, HOGS],
    build: |context, spec| Ok(Policy::Own(Box::new(Fairq::new(context, spec)))),
};

/// How many buckets (altq.md section 16).
pub const BUCKETS: Word = Word {
    name: "buckets",
    kind: Kind::Int { min: 1, max: 2048 },
    help: "queues that flows are hashed into; the limit is that of each",
    default: "256",
};

/// What a hog is.
pub const HOGS: Word = Word {
    name: "hogs",
    kind: Kind::Rate,
    help: "a flow below this rate keeps its turn, one below an eighth of it is served next when it comes",
    default: "0bit/s: all take turns",
};

const _: () = assert!(size_of::<Flow<Decay>>() == 64);

struct Fairq {
    buckets: u32,
    /// Bits a second.
    hogs: Rate,
    limit: Limit,
    flows: Flows<Decay, ByPackets>,
    ring: Chain,
    packets: u32,
    bytes: u32,
    hash: Hash,
    seed: Option<u64>,
    mtu: u32,
}

fn buckets(settings: &Settings) -> u32 {
    settings.int("buckets").unwrap_or(256).clamp(1, 2048) as u32
}

impl Fairq {
    fn new(context: &Context, spec: &QueueSpec) -> Fairq {
        let buckets = buckets(&spec.settings);
        Fairq {
            buckets,
            hogs: spec.settings.rate("hogs").unwrap_or_default(),
            limit: spec.limit,
            flows: Flows::new(buckets),
            ring: Chain::NEW,
            packets: 0,
            bytes: 0,
            hash: Hash::new(context.seed),
            seed: None,
            mtu: context.overhead.charge(context.mtu),
        }
    }

    fn clear(&mut self, hash: Hash) {
        self.flows = Flows::new(self.buckets);
        (self.ring, self.hash) = (Chain::NEW, hash);
    }

    /// A bucket without packets is out of the ring; its record stays if what it measured counts.
    fn leave(&mut self) {
        if let Some(at) = self.flows.shift(&mut self.ring)
            && self.hogs.is_zero()
        {
            self.flows.close(at);
        }
    }

    fn put(&mut self, packet: &Packet, store: &mut Store<'_>) -> bool {
        let bucket = self.hash.bucket(packet.flow, self.buckets);
        let at = self.flows.find(bucket).unwrap_or_else(|| self.flows.open(bucket));
        if !self.flows.get(at).list.fits(self.limit, packet.len) {
            if !self.flows.in_chain(at) && self.hogs.is_zero() {
                self.flows.close(at);
            }
            return false;
        }
        if !self.flows.in_chain(at) {
            let rate = &self.flows.get(at).state;
            // Light ones first.
            if !self.hogs.is_zero() && rate.measured() && rate.below(Rate::bit_s(self.hogs.as_bit_s() / 8)) {
                self.flows.prepend(&mut self.ring, at);
            } else {
                self.flows.append(&mut self.ring, at);
            }
            // Flows of this queue have no credit: those with packets may send.
            self.flows.get_mut(at).deficit = 1;
        }
        self.flows.push(at, packet, store);
        self.packets += 1;
        self.bytes += packet.len;
        true
    }

    /// The first packet of the ring, and its bucket.
    fn next(&mut self, store: &mut Store<'_>) -> Option<(u32, Taken)> {
        loop {
            let at = self.ring.first()?;
            if let Some(packet) = self.flows.pop(at, store) {
                self.packets -= 1;
                self.bytes -= packet.len;
                return Some((at, packet));
            }
            self.leave();
        }
    }
}

impl Queue for Fairq {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn enqueue(&mut self, _: Nanos, packet: &mut Packet, store: &mut Store<'_>) -> Result<(), DropReason> {
        if self.packets == 0
            && let Some(seed) = self.seed.take()
        {
            self.clear(Hash::new(seed));
        }
        if self.bytes.checked_add(packet.len).is_none() || !self.put(packet, store) {
            return Err(DropReason::QueueFull);
        }
        Ok(())
    }

    fn dequeue(&mut self, now: Nanos, store: &mut Store<'_>) -> Option<Taken> {
        let (at, packet) = self.next(store)?;
        let hogs = self.hogs;
        let flow = self.flows.get_mut(at);
        let keeps_turn = if hogs.is_zero() {
            false
        } else {
            flow.state.add(now, packet.wire);
            flow.state.below(hogs)
        };
        if flow.list.is_empty() {
            self.leave();
        } else if !keeps_turn && self.ring.len() > 1 {
            self.flows.shift(&mut self.ring);
            self.flows.append(&mut self.ring, at);
        }
        Some(packet)
    }

    fn peek(&self) -> Option<u32> {
        (self.packets > 0).then(|| self.flows.guess(&[self.ring]).unwrap_or(self.mtu))
    }

    fn backlog(&self) -> (u32, u32) {
        (self.packets, self.bytes)
    }

    fn take(&mut self, store: &mut Store<'_>) -> Option<Taken> {
        let (at, packet) = self.next(store)?;
        if self.flows.get(at).list.is_empty() {
            self.leave();
        } else if self.ring.len() > 1 {
            self.flows.shift(&mut self.ring);
            self.flows.append(&mut self.ring, at);
        }
        Some(packet)
    }

    fn change(&mut self, _: Nanos, _: &Context, spec: &QueueSpec, store: &mut Store<'_>) -> Result<(), SpecError> {
        // All packets are put again: it is a change, not the packets' way.
        let mut waiting = Vec::with_capacity(self.packets as usize);
        while let Some(packet) = self.take(store) {
            waiting.push(store.packet(packet));
        }
        self.limit = spec.limit;
        self.buckets = buckets(&spec.settings);
        self.hogs = spec.settings.rate("hogs").unwrap_or_default();
        self.clear(self.hash);
        for packet in waiting {
            if !self.put(&packet, store) {
                store.lose_packet(packet, DropReason::LimitLowered);
            }
        }
        Ok(())
    }

    fn keeps_flows(&self) -> bool {
        true
    }

    fn seed(&mut self, seed: u64) {
        if self.packets == 0 {
            self.clear(Hash::new(seed));
        } else {
            self.seed = Some(seed);
        }
    }

    fn tell(&self, word: &mut dyn FnMut(&'static str, u64)) {
        word("buckets", u64::from(self.ring.len()));
    }

    fn memory(&self) -> usize {
        size_of::<Fairq>() + self.flows.memory()
    }
}
