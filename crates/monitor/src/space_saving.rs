//! The keys of a stream with the most bytes, in bounded memory: Space-Saving.
//!
//! A. Metwally, D. Agrawal and A. El Abbadi, "Efficient Computation of Frequent and Top-k Elements
//! in Data Streams", ICDT 2005. There are m counters. A key that has a counter adds to it. A key
//! without one takes a free counter or, if there is none, the counter with the smallest count. It
//! goes on from that count, which is then the error of the new key. With N bytes in all, for every
//! key:
//!
//! ```text
//! count - error <= true <= count        error <= N/m        true > N/m: the key has a counter
//! ```
//!
//! # What it costs
//!
//! Here the stream is all packets of a class, weighted with their bytes.
//!
//! - *A packet of a known flow* reads one of 2 m heads of chains (two bytes), compares a hash and a
//!   key, and adds to two numbers beside them. With a [`FlowKey`](crate::FlowKey), the key, the
//!   numbers and the index of the next counter are one cache line of 64 bytes. A chain has half a
//!   counter on average, so a second comparison is rare. These are about 15 instructions after the
//!   hash.
//! - *A packet of an unknown flow* needs the smallest counter. A heap of m numbers (512 bytes for
//!   64 counters: eight cache lines) has each counter's count as it was when the heap last read it.
//!   Counters only grow, so these numbers are lower bounds, and if the root is up to date it is the
//!   smallest. If it is not, it is corrected and sinks, and the new root is examined. Since each
//!   such step at least one packet had come for that counter, so the heap costs nothing per packet
//!   of a known flow and O(log m) amortised per packet of an unknown one. With four children to a
//!   node, 64 counters have four levels, so a number sinks by at most three.
//! - At most, a single packet takes m steps of the heap or a chain of m counters. Chains do not
//!   grow with the number of flows, and a secret decides which flows share one.
//!
//! If nine packets in ten belong to a flow that has a counter, a packet takes less than 10 ns on
//! average on a processor of 3 GHz, with the hash (one to three multiplications).
//!
//! The paper's lists of counters with equal counts suit counts that grow by one: with bytes nearly
//! every packet would move its counter to another list.

use crate::amount::Amount;
use crate::summary::{Counted, Summary};

/// The index that means "none", in the head of a chain and in a counter.
const NONE: u16 = u16::MAX;
/// The bits of a number in the heap that are the index of its counter.
const PLACE_BITS: u32 = 16;
/// Children of a node of the heap.
const ARITY: usize = 4;

/// A counter with its key.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Counter<K> {
    key: K,
    /// Bytes: an upper bound of what the key has.
    count: u64,
    /// Packets that have come since the key took this counter.
    packets: u64,
    hash: u32,
    /// The next counter of the chain.
    next: u16,
}

/// The counters, and how to find them. Weights are bytes.
#[derive(Clone, Debug)]
pub struct SpaceSaving<K> {
    counters: Vec<Counter<K>>,
    /// The errors: what each counter had before its key took it. They are stored apart, because
    /// only a new key needs them.
    errors: Vec<Amount>,
    /// The first counter of each chain. Their number is a power of two.
    heads: Vec<u16>,
    /// Counts in the upper bits, places in the lower ones. Empty until a key takes a counter from
    /// another for the first time.
    heap: Vec<u64>,
    most: usize,
    total: Amount,
    /// The most that a key without a counter can have.
    floor: Amount,
}

impl<K: Copy + Ord> SpaceSaving<K> {
    /// `most` counters, 1 to 65535. All memory is allocated here.
    pub fn new(most: usize) -> SpaceSaving<K> {
        let most = most.clamp(1, usize::from(NONE));
        SpaceSaving {
            counters: Vec::with_capacity(most),
            errors: Vec::with_capacity(most),
            heads: vec![NONE; (2 * most).next_power_of_two()],
            heap: Vec::with_capacity(most),
            most,
            total: Amount::default(),
            floor: Amount::default(),
        }
    }

    /// Adds a packet of `bytes` bytes. `hash` must be the same for equal keys. It should be secret,
    /// so that nobody can choose keys that all fall into one chain.
    #[inline]
    pub fn add(&mut self, key: &K, hash: u32, bytes: u32) {
        let bytes = u64::from(bytes);
        self.total.bytes += bytes;
        self.total.packets += 1;
        let mut at = self.heads[self.chain(hash)];
        while let Some(counter) = self.counters.get_mut(usize::from(at)) {
            if counter.hash == hash && counter.key == *key {
                counter.count += bytes;
                counter.packets += 1;
                return;
            }
            at = counter.next;
        }
        self.add_new(key, hash, bytes);
    }

    /// The chain of a hash.
    #[inline]
    fn chain(&self, hash: u32) -> usize {
        // The number of heads is a power of two and at least 2.
        hash as usize & (self.heads.len() - 1)
    }

    /// Gives a counter to a key that has none.
    #[inline(never)]
    fn add_new(&mut self, key: &K, hash: u32, bytes: u64) {
        let chain = self.chain(hash);
        if self.counters.len() < self.most {
            let next = std::mem::replace(&mut self.heads[chain], self.counters.len() as u16);
            self.counters.push(Counter { key: *key, count: bytes, packets: 1, hash, next });
            self.errors.push(Amount::default());
            return;
        }
        let at = self.smallest();
        self.unlink(at);
        let next = std::mem::replace(&mut self.heads[chain], at as u16);
        let counter = &mut self.counters[at];
        // What the key may have had before: at most the smallest count, because the smallest count
        // never falls. Packets are not in the order of bytes, so their bound is the most that any
        // key had when it lost its counter.
        self.floor =
            Amount { bytes: counter.count, packets: self.floor.packets.max(counter.packets + self.errors[at].packets) };
        self.errors[at] = self.floor;
        *counter = Counter { key: *key, count: counter.count + bytes, packets: 1, hash, next };
    }

    /// The index of the counter with the smallest count. All counters must be in use.
    fn smallest(&mut self) -> usize {
        if self.heap.is_empty() {
            self.heap.extend(self.counters.iter().enumerate().map(|(at, counter)| valued(counter.count, at)));
            (0..self.heap.len().div_ceil(ARITY)).rev().for_each(|at| self.sink(at));
        }
        loop {
            let root = self.heap[0];
            let at = (root & ((1 << PLACE_BITS) - 1)) as usize;
            let now = valued(self.counters[at].count, at);
            if now == root {
                return at;
            }
            self.heap[0] = now;
            self.sink(0);
        }
    }

    /// Moves a number of the heap down until those below it are not smaller.
    fn sink(&mut self, mut at: usize) {
        let heap = &mut self.heap[..];
        let Some(moved) = heap.get(at).copied() else { return };
        loop {
            let first = ARITY * at + 1;
            let below = heap.get(first..(first + ARITY).min(heap.len())).unwrap_or(&[]);
            let least = below.iter().copied().enumerate().min_by_key(|(_, value)| *value);
            let Some((place, value)) = least.filter(|(_, value)| *value < moved) else { break };
            heap[at] = value;
            at = first + place;
        }
        heap[at] = moved;
    }

    /// Takes a counter out of its chain.
    fn unlink(&mut self, at: usize) {
        let (hash, next) = (self.counters[at].hash, self.counters[at].next);
        let chain = self.chain(hash);
        let mut before = usize::from(self.heads[chain]);
        if before == at {
            self.heads[chain] = next;
            return;
        }
        while let Some(counter) = self.counters.get_mut(before) {
            before = usize::from(counter.next);
            if before == at {
                counter.next = next;
                return;
            }
        }
    }

    /// The sum of all that was added.
    pub fn total(&self) -> Amount {
        self.total
    }

    /// True if nothing was added.
    pub fn is_empty(&self) -> bool {
        self.total.packets == 0
    }

    /// Forgets everything; the memory stays.
    pub fn clear(&mut self) {
        self.counters.clear();
        self.errors.clear();
        self.heads.fill(NONE);
        self.heap.clear();
        (self.total, self.floor) = (Amount::default(), Amount::default());
    }

    /// The keys with their bounds, the total and the floor.
    pub fn summary(&self) -> Summary<K> {
        let listed = self.counters.iter().zip(&self.errors).map(|(counter, error)| Counted {
            key: counter.key,
            at_least: Amount { bytes: counter.count - error.bytes, packets: counter.packets },
            error: *error,
        });
        Summary::new(listed.collect(), self.total, self.floor)
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.counters.capacity() * size_of::<Counter<K>>()
            + self.errors.capacity() * size_of::<Amount>()
            + self.heads.capacity() * size_of::<u16>()
            + self.heap.capacity() * size_of::<u64>()
    }
}

/// A number of the heap: count and index. Counts from 2^48 (281 TB) on are equal.
#[inline]
fn valued(count: u64, at: usize) -> u64 {
    count.min(u64::MAX >> PLACE_BITS) << PLACE_BITS | at as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::FlowKey;

    /// `(key, at least, error)` in bytes, by key.
    fn listed(counters: &SpaceSaving<u32>) -> Vec<(u32, u64, u64)> {
        let mut all: Vec<_> = counters
            .summary()
            .listed()
            .iter()
            .map(|counted| (counted.key, counted.at_least.bytes, counted.error.bytes))
            .collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn as_worked_out_by_hand() {
        // There are two counters. Key 1 has 500 and key 2 has 100. Key 3 with 50 takes the counter
        // of key 2: its count is 150, of which 100 are the error. Key 4 with 10 takes that of key
        // 3: 160, error 150. Then key 3 comes again with 700: it takes over the 160 and has 860.
        // Now key 1 has the smallest count, and key 5 with 1 takes over its 500.
        let mut counters = SpaceSaving::new(2);
        let add = |counters: &mut SpaceSaving<u32>, key: u32, bytes| counters.add(&key, key * 7, bytes);
        for (key, bytes) in [(1, 300), (2, 100), (1, 200), (3, 50)] {
            add(&mut counters, key, bytes);
        }
        assert_eq!(listed(&counters), [(1, 500, 0), (3, 50, 100)]);
        add(&mut counters, 4, 10);
        assert_eq!(listed(&counters), [(1, 500, 0), (4, 10, 150)]);
        add(&mut counters, 3, 700);
        assert_eq!(listed(&counters), [(1, 500, 0), (3, 700, 160)]);
        add(&mut counters, 5, 1);
        assert_eq!(listed(&counters), [(3, 700, 160), (5, 1, 500)]);
        assert_eq!(counters.total(), Amount::new(300 + 100 + 200 + 50 + 10 + 700 + 1, 7));
        assert_eq!(counters.summary().floor().bytes, 500);
        counters.clear();
        assert!(counters.is_empty() && listed(&counters).is_empty());
        add(&mut counters, 9, 5);
        assert_eq!((listed(&counters), counters.total()), (vec![(9, 5, 0)], Amount::new(5, 1)));
    }

    #[test]
    fn packets_are_bounded_by_what_was_lost() {
        // Key 1 has three packets of 1 byte and loses its counter to key 2. Then key 1 comes back
        // and takes the only counter again.
        let mut counters = SpaceSaving::new(1);
        for key in [1u32, 1, 1, 2, 1] {
            counters.add(&key, 0, 1);
        }
        let summary = counters.summary();
        let [one] = summary.listed() else { panic!("{summary:?}") };
        // Key 2 had one packet and an error of three, so key 1 may have had up to four before.
        assert_eq!((one.key, one.at_least, one.error), (1, Amount::new(1, 1), Amount::new(4, 4)));
    }

    #[test]
    fn all_keys_in_one_chain_are_still_found() {
        let mut counters = SpaceSaving::new(64);
        for round in 0..3u32 {
            for key in 0..64u32 {
                counters.add(&key, 5, 10 + round);
            }
        }
        let all = listed(&counters);
        assert_eq!(all.len(), 64);
        assert!(all.iter().all(|(_, bytes, error)| (*bytes, *error) == (33, 0)));
        // Half of them lose their counters.
        (100..132u32).for_each(|key| counters.add(&key, 5, 1000));
        assert_eq!(listed(&counters).iter().filter(|(key, _, _)| *key >= 100).count(), 32);
    }

    #[test]
    fn a_flow_is_one_cache_line_and_nothing_grows() {
        assert_eq!(size_of::<Counter<FlowKey>>(), 64);
        let mut counters: SpaceSaving<u32> = SpaceSaving::new(64);
        let before = counters.memory();
        (0..10_000u32).for_each(|key| counters.add(&(key * 7919 % 1000), key * 7919 % 1000, 1 + key % 9));
        assert_eq!(counters.memory(), before);
    }
}
