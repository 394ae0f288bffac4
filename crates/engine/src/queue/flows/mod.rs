//! The flows of a queue: a table of buckets, and a record for each flow that has packets or state.
//!
//! A bucket takes four bytes. The records lie in a slab; idle flows have none. All operations take
//! constant time: a flow is found by its bucket, rounds are [`Chain`]s of records, and the fattest
//! flow, from which an overflow drops, is known at any time, because flows with packets are also in
//! lists by the size of their backlog ([`Rank`]).

mod hash;
mod ranks;
#[cfg(test)]
mod tests;

pub(super) use hash::{Hash, NextSeed};
pub(super) use ranks::{ByBytes, ByPackets, Rank};

use std::marker::PhantomData;

use super::{List, Queue, Store};
use crate::packet::{NIL, Packet};
use crate::prefetch::prefetch;
use crate::settings::{Kind, Limit, Word};

/// The most buckets of a table.
pub(super) const MOST: u64 = 1 << 20;

/// The word for the bytes that a flow may send in a round.
pub(super) const QUANTUM: Word = Word {
    name: "quantum",
    kind: Kind::Bytes { min: 256, max: 1 << 20 },
    help: "bytes that a flow may send in a round, counted on the wire",
    default: "the link's MTU and its overhead",
};

/// The value of [`Flow::next`] for a flow in no chain.
const NO_CHAIN: u32 = NIL - 1;

/// The value of [`Flow::bucket`] for a flow without one.
const NO_BUCKET: u32 = NIL - 1;

/// A flow's record: 40 bytes and the queue's state.
pub(super) struct Flow<S> {
    /// Its packets.
    pub list: List,
    /// Bytes that it may still send in this round.
    pub deficit: i32,
    /// What the queue keeps for it.
    pub state: S,
    /// The next record in its chain, or among the free ones.
    next: u32,
    bucket: u32,
    /// Neighbours in the list of flows of its rank.
    up: u32,
    down: u32,
}

/// The flows of a queue.
pub(super) struct Flows<S, R> {
    /// The index of the record of the flow in each bucket.
    buckets: Box<[u32]>,
    records: Vec<Flow<S>>,
    free: u32,
    open: u32,
    /// Packets of all flows, and their own bytes.
    packets: u32,
    bytes: u32,
    /// The first flow of each rank, and a bit for each rank that has flows.
    ranks: [u32; 128],
    occupied: [u64; 2],
    rank: PhantomData<R>,
}

/// Takes all packets out of a queue, in the order in which they would leave.
pub(super) fn drain(queue: &mut impl Queue, store: &mut Store<'_>) -> Vec<Packet> {
    let mut packets = Vec::with_capacity(queue.backlog().0 as usize);
    while let Some(taken) = queue.take(store) {
        packets.push(store.packet(taken));
    }
    packets
}

/// A list of flows, first in, first out. A flow is in at most one.
#[derive(Clone, Copy)]
pub(super) struct Chain {
    head: u32,
    tail: u32,
    len: u32,
}

impl Chain {
    pub const NEW: Chain = Chain { head: NIL, tail: NIL, len: 0 };

    #[inline]
    pub fn first(&self) -> Option<u32> {
        (self.len > 0).then_some(self.head)
    }

    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<S: Default, R: Rank> Flows<S, R> {
    /// A table of `buckets` buckets, 1 to [`MOST`].
    pub fn new(buckets: u32) -> Flows<S, R> {
        let buckets = buckets.clamp(1, MOST as u32);
        Flows {
            buckets: vec![NIL; buckets as usize].into_boxed_slice(),
            records: Vec::new(),
            free: NIL,
            open: 0,
            packets: 0,
            bytes: 0,
            ranks: [NIL; 128],
            occupied: [0; 2],
            rank: PhantomData,
        }
    }

    /// Flows that have a record.
    #[cfg(test)]
    pub fn open_flows(&self) -> u32 {
        self.open
    }

    /// The flow in a bucket.
    #[inline]
    pub fn find(&self, bucket: u32) -> Option<u32> {
        let at = self.buckets[bucket as usize];
        (at != NIL).then_some(at)
    }

    /// Makes a record for a flow in a bucket that has none.
    #[inline]
    pub fn open(&mut self, bucket: u32) -> u32 {
        if self.free == NIL {
            self.free = self.records.len() as u32;
            self.records.push(Flow {
                list: List::NEW,
                deficit: 0,
                state: S::default(),
                next: NIL,
                bucket: NIL,
                up: NIL,
                down: NIL,
            });
        }
        let at = self.free;
        // Field by field: a copy of a record just made would read it with wide loads before the
        // narrow stores to it are done.
        let record = &mut self.records[at as usize];
        self.free = record.next;
        record.list = List::NEW;
        record.deficit = 0;
        record.state = S::default();
        record.next = NO_CHAIN;
        record.bucket = bucket;
        (record.up, record.down) = (NIL, NIL);
        self.buckets[bucket as usize] = at;
        self.open += 1;
        at
    }

    /// Frees the record of a flow that has no packets and is in no chain.
    #[inline]
    pub fn close(&mut self, at: u32) {
        let record = &mut self.records[at as usize];
        debug_assert!(record.list.is_empty());
        let bucket = std::mem::replace(&mut record.bucket, NIL);
        record.next = self.free;
        self.free = at;
        self.open -= 1;
        if let Some(held) = self.buckets.get_mut(bucket as usize) {
            *held = NIL;
        }
    }

    /// Moves a flow to another bucket, or out of the table.
    pub fn set_bucket(&mut self, at: u32, bucket: Option<u32>) {
        let before = std::mem::replace(&mut self.records[at as usize].bucket, bucket.unwrap_or(NO_BUCKET));
        for (bucket, place) in [(before, NIL), (bucket.unwrap_or(NO_BUCKET), at)] {
            if let Some(held) = self.buckets.get_mut(bucket as usize) {
                *held = place;
            }
        }
    }

    #[inline]
    pub fn get(&self, at: u32) -> &Flow<S> {
        &self.records[at as usize]
    }

    #[inline]
    pub fn get_mut(&mut self, at: u32) -> &mut Flow<S> {
        &mut self.records[at as usize]
    }

    /// How many records there are, used and free.
    pub fn records(&self) -> u32 {
        self.records.len() as u32
    }

    /// Whether a record is in use.
    pub fn is_open(&self, at: u32) -> bool {
        self.records[at as usize].bucket != NIL
    }

    // ------------------------------------------------------------------ packets

    /// Packets of all flows.
    #[inline]
    pub fn packets(&self) -> u32 {
        self.packets
    }

    /// Packets of all flows, and their own bytes.
    #[inline]
    pub fn backlog(&self) -> (u32, u32) {
        (self.packets, self.bytes)
    }

    /// Whether a packet of `len` bytes may come in before others are dropped to make room for it:
    /// it is within the limit by itself, and the sum of bytes does not overflow.
    #[inline]
    pub fn admits(&self, limit: Limit, len: u32) -> bool {
        let possible = match limit {
            Limit::Packets(most) => most > 0,
            Limit::Bytes(most) => most > 0 && len <= most,
        };
        possible && self.bytes.checked_add(len).is_some()
    }

    /// Whether all flows together hold more than a limit.
    #[inline]
    pub fn over(&self, limit: Limit) -> bool {
        limit.is_exceeded(self.packets, self.bytes)
    }

    // ------------------------------------------------------------------ rounds

    /// Puts a flow at the end of a chain.
    #[inline]
    pub fn append(&mut self, chain: &mut Chain, at: u32) {
        self.records[at as usize].next = NIL;
        if chain.len == 0 {
            chain.head = at;
        } else {
            self.records[chain.tail as usize].next = at;
        }
        chain.tail = at;
        chain.len += 1;
    }

    /// Puts a flow at the head of a chain.
    #[inline]
    pub fn prepend(&mut self, chain: &mut Chain, at: u32) {
        self.records[at as usize].next = if chain.len == 0 { NIL } else { chain.head };
        if chain.len == 0 {
            chain.tail = at;
        }
        chain.head = at;
        chain.len += 1;
    }

    /// Takes the first flow of a chain out.
    #[inline]
    pub fn shift(&mut self, chain: &mut Chain) -> Option<u32> {
        let at = chain.first()?;
        chain.head = std::mem::replace(&mut self.records[at as usize].next, NO_CHAIN);
        chain.len -= 1;
        Some(at)
    }

    /// Moves the first flow of a chain of two or more to its end. Returns the one that is first
    /// then.
    #[inline]
    pub fn rotate(&mut self, chain: &mut Chain) -> u32 {
        let at = chain.head;
        chain.head = std::mem::replace(&mut self.records[at as usize].next, NIL);
        self.records[chain.tail as usize].next = at;
        chain.tail = at;
        chain.head
    }

    /// Whether a flow is in a chain.
    #[inline]
    pub fn in_chain(&self, at: u32) -> bool {
        self.records[at as usize].next != NO_CHAIN
    }

    /// Prefetches from memory what the next flows of a chain will need: the first packet of the
    /// next flow, and the record of the flow after it. A hint, for queues whose flows do not follow
    /// each other in memory.
    #[inline]
    pub fn prefetch_next(&self, at: u32, store: &Store<'_>) {
        if let Some(near) = self.records.get(self.records[at as usize].next as usize) {
            store.fetch(&near.list);
            prefetch(&self.records, near.next as usize);
        }
    }

    /// Adds to each flow of a chain the quanta of as many rounds as end without anybody sending:
    /// after a whole round the order is what it was.
    #[cold]
    pub fn skip_rounds(&mut self, chain: &Chain, quantum: u32) {
        let (mut rounds, mut next) = (u32::MAX, chain.first());
        while let Some(at) = next {
            let deficit = self.get(at).deficit;
            rounds = rounds.min(if deficit > 0 { 0 } else { deficit.unsigned_abs() / quantum });
            next = self.behind(at);
        }
        let mut next = chain.first().filter(|_| rounds > 0);
        while let Some(at) = next {
            let flow = self.get_mut(at);
            flow.deficit = flow.deficit.saturating_add_unsigned(rounds * quantum);
            next = self.behind(at);
        }
    }

    /// The next flow in a chain.
    pub fn behind(&self, at: u32) -> Option<u32> {
        let next = self.records[at as usize].next;
        (next < NO_CHAIN).then_some(next)
    }

    /// The charged length of a flow's first packet if the flow has packets and credit.
    #[inline]
    pub fn ready(&self, at: u32) -> Option<u32> {
        let flow = self.get(at);
        if flow.deficit > 0 { flow.list.peek() } else { None }
    }

    /// A guess at the charged length of the packet that leaves next when these chains are served
    /// one after the other: that of the first flow with packets and credit. `None` if it is not
    /// among the first four flows.
    #[inline(never)]
    pub fn guess(&self, chains: &[Chain]) -> Option<u32> {
        let mut looks = 0;
        for chain in chains {
            let mut at = chain.first();
            while let Some(here) = at {
                let flow = self.get(here);
                if let Some(len) = flow.list.peek().filter(|_| flow.deficit > 0) {
                    return Some(len);
                }
                looks += 1;
                if looks == 4 {
                    return None;
                }
                at = self.behind(here);
            }
        }
        None
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.buckets.len() * 4 + self.records.capacity() * size_of::<Flow<S>>()
    }
}
