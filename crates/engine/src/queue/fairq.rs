//! FAIRQ's buckets (DragonFly's ALTQ; docs/reference/altq.md 5): flows of a class take turns, a
//! packet each, and hogs give way.
//!
//! Flows are hashed into `buckets`, each with a queue of its own; `limit` is a bucket's. With
//! `hogs` the rate of every bucket is measured by sums that decay. A bucket that gets packets again
//! and whose measured rate is below `hogs` is served next, and a bucket whose rate is below `hogs`
//! keeps its turn while it has packets. So light flows are through quickly. Without `hogs` all
//! buckets take turns.
//!
//! The scheduler [`fairq`](crate::schedule) gives this queue to its classes. A bucket has a record
//! while it has packets, with `hogs` from its first packet on, for what was measured. One record
//! lies in the queue itself, so that a class with a single flow takes three cache lines; the table
//! of the buckets and further records come with a second bucket. ALTQ puts packets whose flow is
//! unknown into the bucket at the ring's end; here they are a flow, so that they stay in order.

use super::flows::{Hash, NextSeed, drain};
use super::{Context, Entry, List, Policy, Queue, Store, Taken};
use crate::account::DropReason;
use crate::packet::Packet;
use crate::settings::{Kind, Limit, Settings, Word};
use crate::shape::decay::Decay;
use crate::spec::{QueueSpec, SpecError};
use crate::units::{Nanos, Rate};

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    words: &[BUCKETS, HOGS],
    ..Entry::new(
        "fairq",
        "flows in buckets take turns by packets, light ones first (FAIRQ)",
        Limit::Packets(50),
        |context, spec| Ok(Policy::Stateful(Box::new(Fairq::new(context, spec)))),
    )
};

/// How many buckets (docs/reference/altq.md 16).
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
    help: "a flow below this rate is served next when it comes, and keeps its turn while it has packets",
    default: "0bit/s: all take turns",
};

/// No record, and no bucket.
const NIL: u16 = u16::MAX;
/// In [`Bucket::next`]: it is not in the ring.
const OUT: u16 = NIL - 1;

/// A bucket that has something to remember.
struct Bucket {
    /// What it sent, with `hogs`.
    sent: Decay,
    list: List,
    /// The next one in the ring, or of the free records.
    next: u16,
    /// Its number; [`NIL`] for a free record.
    number: u16,
}

impl Bucket {
    fn new(number: u16) -> Bucket {
        Bucket { sent: Decay::NEW, list: List::NEW, next: OUT, number }
    }

    fn free(next: u16) -> Bucket {
        Bucket { next, ..Bucket::new(NIL) }
    }
}

/// In the first line what a packet that goes looks at, in the second what one that comes looks at
/// besides.
#[repr(C, align(64))]
struct Fairq {
    /// Record 0.
    first: Bucket,
    packets: u32,
    bytes: u32,
    /// Buckets with packets, in turn.
    head: u16,
    tail: u16,
    ring: u16,
    /// How many buckets there are.
    buckets: u16,
    hash: Hash,
    /// A bucket's.
    limit: Limit,
    hogs: Rate,
    /// The record of each bucket; without any as long as there is but record 0.
    table: Box<[u16]>,
    /// The first free record.
    free: u16,
    /// Records from 1 on.
    more: Vec<Bucket>,
    seed: NextSeed,
}

const _: () = assert!(size_of::<Fairq>() == 192);

fn buckets(settings: &Settings) -> u16 {
    settings.int("buckets").unwrap_or(256).clamp(1, 2048) as u16
}

impl Fairq {
    fn new(context: &Context, spec: &QueueSpec) -> Fairq {
        Fairq {
            first: Bucket::free(NIL),
            packets: 0,
            bytes: 0,
            head: NIL,
            tail: NIL,
            ring: 0,
            buckets: buckets(&spec.settings),
            hash: Hash::new(context.seed),
            limit: spec.limit,
            hogs: spec.settings.rate("hogs").unwrap_or_default(),
            table: Box::default(),
            free: 0,
            more: Vec::new(),
            seed: NextSeed::default(),
        }
    }

    /// Forgets all buckets, which have no packets.
    fn clear(&mut self, hash: Hash) {
        self.first = Bucket::free(NIL);
        (self.head, self.tail, self.ring, self.free) = (NIL, NIL, 0, 0);
        (self.table, self.more, self.hash) = (Box::default(), Vec::new(), hash);
    }

    #[inline]
    fn bucket(&mut self, at: u16) -> &mut Bucket {
        match at.checked_sub(1) {
            None => &mut self.first,
            Some(at) => &mut self.more[usize::from(at)],
        }
    }

    /// The record of a bucket, if it has one.
    #[inline]
    fn find(&self, number: u16) -> Option<u16> {
        match self.table.get(usize::from(number)) {
            None => (self.first.number == number).then_some(0),
            Some(at) => (*at != NIL).then_some(*at),
        }
    }

    /// A record for a bucket that has none.
    #[inline]
    fn open(&mut self, number: u16) -> u16 {
        let at = self.free;
        if at == NIL {
            return self.open_more(number);
        }
        // Field by field: a record made elsewhere and copied would be read before it is written.
        let bucket = self.bucket(at);
        let free = bucket.next;
        bucket.sent = Decay::NEW;
        bucket.list = List::NEW;
        bucket.next = OUT;
        bucket.number = number;
        self.free = free;
        if let Some(held) = self.table.get_mut(usize::from(number)) {
            *held = at;
        }
        at
    }

    fn open_more(&mut self, number: u16) -> u16 {
        self.more.push(Bucket::new(number));
        // There are as many records as buckets at most, 2048.
        let at = self.more.len() as u16;
        if self.table.is_empty() {
            self.table = vec![NIL; usize::from(self.buckets)].into_boxed_slice();
            self.table[usize::from(self.first.number)] = 0;
        }
        self.table[usize::from(number)] = at;
        at
    }

    /// Puts a bucket at the end of the ring.
    #[inline]
    fn append(&mut self, at: u16) {
        self.bucket(at).next = NIL;
        if self.ring == 0 {
            self.head = at;
        } else {
            self.bucket(self.tail).next = at;
        }
        self.tail = at;
        self.ring += 1;
    }

    /// Puts a bucket at the head of the ring.
    fn prepend(&mut self, at: u16) {
        if self.ring == 0 {
            return self.append(at);
        }
        self.bucket(at).next = self.head;
        self.head = at;
        self.ring += 1;
    }

    /// The first bucket goes to the end of the ring.
    #[inline]
    fn turn(&mut self) {
        if self.ring > 1 {
            let at = self.head;
            self.head = self.bucket(at).next;
            self.ring -= 1;
            self.append(at);
        }
    }

    /// The first bucket has no packets any more, and is out of the ring; its record stays if what
    /// it measured counts.
    #[inline]
    fn leave(&mut self) {
        let (at, forget) = (self.head, self.hogs.is_zero());
        let free = self.free;
        let bucket = self.bucket(at);
        let next = std::mem::replace(&mut bucket.next, OUT);
        if forget {
            bucket.next = free;
            let number = std::mem::replace(&mut bucket.number, NIL);
            self.free = at;
            if let Some(held) = self.table.get_mut(usize::from(number)) {
                *held = NIL;
            }
        }
        self.head = next;
        self.ring -= 1;
    }

    #[inline]
    fn put(&mut self, packet: &Packet, store: &mut Store<'_>) -> bool {
        let number = self.hash.bucket(packet.flow, u32::from(self.buckets)) as u16;
        let (limit, hogs) = (self.limit, self.hogs);
        let at = match self.find(number) {
            Some(at) if !self.bucket(at).list.fits(limit, packet.len) => return false,
            Some(at) => at,
            None if !List::NEW.fits(limit, packet.len) => return false,
            None => self.open(number),
        };
        let bucket = self.bucket(at);
        store.push(&mut bucket.list, packet);
        if bucket.next == OUT {
            // Light ones first.
            if !hogs.is_zero() && bucket.sent.measured() && bucket.sent.below(hogs) {
                self.prepend(at);
            } else {
                self.append(at);
            }
        }
        self.packets += 1;
        self.bytes += packet.len;
        true
    }

    /// The first packet of the ring, and whether its bucket has more.
    #[inline(always)]
    fn next(&mut self, store: &mut Store<'_>) -> Option<(Taken, bool)> {
        if self.ring == 0 {
            return None;
        }
        let list = &mut self.bucket(self.head).list;
        let packet = store.pop(list)?;
        let more = !list.is_empty();
        self.packets -= 1;
        self.bytes -= packet.len;
        Some((packet, more))
    }
}

impl Queue for Fairq {
    fn enqueue(&mut self, _: Nanos, packet: &mut Packet, store: &mut Store<'_>) -> Result<(), DropReason> {
        if let Some(hash) = self.seed.due(self.packets == 0) {
            self.clear(hash);
        }
        if self.bytes.checked_add(packet.len).is_none() || !self.put(packet, store) {
            return Err(DropReason::QueueFull);
        }
        Ok(())
    }

    fn dequeue(&mut self, now: Nanos, store: &mut Store<'_>) -> Option<Taken> {
        let (packet, more) = self.next(store)?;
        let hogs = self.hogs;
        let keeps_turn = !hogs.is_zero() && {
            let bucket = self.bucket(self.head);
            bucket.sent.add(now, packet.wire);
            bucket.sent.below(hogs)
        };
        if !more {
            self.leave();
        } else if !keeps_turn {
            self.turn();
        }
        Some(packet)
    }

    fn peek(&self) -> Option<u32> {
        let first = match self.head.checked_sub(1) {
            None => Some(&self.first),
            Some(at) => self.more.get(usize::from(at)),
        };
        first.filter(|_| self.ring > 0)?.list.peek()
    }

    fn backlog(&self) -> (u32, u32) {
        (self.packets, self.bytes)
    }

    fn take(&mut self, store: &mut Store<'_>) -> Option<Taken> {
        let (packet, more) = self.next(store)?;
        if more {
            self.turn();
        } else {
            self.leave();
        }
        Some(packet)
    }

    fn change(&mut self, _: Nanos, _: &Context, spec: &QueueSpec, store: &mut Store<'_>) -> Result<(), SpecError> {
        // All packets are put again: it is a change, not the packets' way.
        let waiting = drain(self, store);
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
        if let Some(hash) = self.seed.set(seed, self.packets == 0) {
            self.clear(hash);
        }
    }

    fn report_counters(&self, counter: &mut dyn FnMut(&'static str, u64)) {
        counter("buckets", u64::from(self.ring));
    }

    fn memory(&self) -> usize {
        size_of::<Fairq>() + self.table.len() * 2 + self.more.capacity() * size_of::<Bucket>()
    }
}
