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
//! - *A packet of a known flow* reads the counter at the home place of its hash, compares hash and
//!   key, and adds to two numbers beside them: with a [`FlowKey`](crate::FlowKey), one cache line
//!   of 64 bytes. A key takes its home place if that is free when it comes. Otherwise its counter
//!   is in the chain of its home place: one more line, or a few.
//! - *A packet of an unknown flow* needs the smallest counter. A heap of m numbers (512 bytes for
//!   64 counters: eight cache lines) has each counter's count as it was when the heap last read it.
//!   Counters only grow, so these numbers are lower bounds, and if the root is up to date it is the
//!   smallest. If it is not, it is corrected and sinks, and the new root is examined. Since each
//!   such step at least one packet had come for that counter, so the heap costs nothing per packet
//!   of a known flow and O(log m) amortised per packet of an unknown one. With four children to a
//!   node, 64 counters have four levels, so a number sinks by at most three.
//! - At most, a single packet takes m steps of the heap or a chain of m counters. Chains do not
//!   grow with the number of flows, and a secret decides which flows share one.
//! - The total is not counted: it is the sum of all counters, because a key takes over the count of
//!   the counter that it takes.
//!
//! The paper's lists of counters with equal counts suit counts that grow by one: with bytes nearly
//! every packet would move its counter to another list.

use crate::amount::Amount;
use crate::summary::{Counted, Summary};

/// The index that means "none", in the head of a chain and in a counter.
const NONE: u16 = u16::MAX;
/// The most counters that there can be.
const MOST: usize = 1 << 15;
/// Set in the hash of every key that has a counter. A free counter has the hash 0.
const USED: u32 = 1 << 31;
/// The bits of a number in the heap that say which counter it is of.
const NTH_BITS: u32 = 16;
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
    /// The next counter of the chain that this one is in.
    next: u16,
    /// The first counter of the chain of the keys whose home place this is.
    head: u16,
}

/// The counters, and how to find them. Weights are bytes.
#[derive(Clone, Debug)]
pub struct SpaceSaving<K> {
    /// Their number is a power of two, so that the low bits of a hash are a home place.
    counters: Box<[Counter<K>]>,
    rest: Box<Rest>,
}

/// What only a new key needs.
#[derive(Clone, Debug, Default)]
struct Rest {
    /// How many counters may be in use.
    most: usize,
    /// The places of the counters in use, in the order in which they came into use.
    used: Vec<u16>,
    /// There is no free counter at this place and above.
    free_below: usize,
    /// By place, the errors: what each counter had before its key took it.
    errors: Vec<Amount>,
    /// Counts in the upper bits; in the lower ones the index in `used`, so that which of equal
    /// counters is taken does not depend on hashes. Empty until a key takes a counter from another
    /// for the first time.
    heap: Vec<u64>,
    /// Packets of keys that have lost their counters.
    lost: u64,
    /// The most that a key without a counter can have.
    floor: Amount,
}

impl<K: Copy + Ord + Default> SpaceSaving<K> {
    /// `most` counters, 1 to 32768; fewer or more are taken as these. All memory is allocated here.
    pub fn new(most: usize) -> SpaceSaving<K> {
        // The next power of two must leave an index that means "none".
        let most = most.clamp(1, MOST);
        let free = Counter { key: K::default(), count: 0, packets: 0, hash: 0, next: NONE, head: NONE };
        SpaceSaving {
            counters: vec![free; most.next_power_of_two()].into_boxed_slice(),
            rest: Box::new(Rest {
                most,
                used: Vec::with_capacity(most),
                free_below: most,
                errors: vec![Amount::default(); most.next_power_of_two()],
                heap: Vec::with_capacity(most),
                ..Rest::default()
            }),
        }
    }

    /// Adds a packet of `bytes` bytes. `hash` must be the same for equal keys. It should be secret,
    /// so that nobody can choose keys that all fall into one chain.
    #[inline]
    pub fn add(&mut self, key: &K, hash: u32, bytes: u32) {
        let hash = hash | USED;
        let home = self.home(hash);
        match self.counters.get_mut(home) {
            Some(counter) if counter.hash == hash && counter.key == *key => {
                counter.count += u64::from(bytes);
                counter.packets += 1;
            }
            _ => self.add_elsewhere(key, hash, u64::from(bytes)),
        }
    }

    /// Adds to a key that is not at its home place.
    #[inline(never)]
    fn add_elsewhere(&mut self, key: &K, hash: u32, bytes: u64) {
        let home = self.home(hash);
        let mut at = self.counters[home].head;
        while let Some(counter) = self.counters.get_mut(usize::from(at)) {
            if counter.hash == hash && counter.key == *key {
                counter.count += bytes;
                counter.packets += 1;
                return;
            }
            at = counter.next;
        }
        // What the key may have had before: at most the smallest count, because the smallest count
        // never falls. Packets are not in the order of bytes, so their bound is the most that any
        // key had when it lost its counter.
        let (at, before) = if self.rest.used.len() < self.rest.most {
            (self.free(home), Amount::default())
        } else {
            (self.smallest(), self.rest.floor)
        };
        self.counters[at] = Counter {
            key: *key,
            count: before.bytes + bytes,
            packets: 1,
            hash,
            next: self.counters[home].head,
            head: self.counters[at].head,
        };
        self.counters[home].head = at as u16;
        self.rest.errors[at] = before;
    }

    /// The home place of a hash.
    #[inline]
    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.counters.len() - 1)
    }

    /// The place of a free counter, which is in use from now on: the home place, if that is free.
    /// One must be free.
    fn free(&mut self, home: usize) -> usize {
        let mut at = home;
        while self.counters[at].hash != 0 && self.rest.free_below > 0 {
            self.rest.free_below -= 1;
            at = self.rest.free_below;
        }
        self.rest.used.push(at as u16);
        at
    }

    /// Takes the counter with the smallest count from its key. All counters must be in use. What
    /// they had is the floor from now on.
    fn smallest(&mut self) -> usize {
        let at = self.find_smallest();
        self.unlink(at);
        let (counter, rest) = (&self.counters[at], &mut *self.rest);
        let packets = rest.floor.packets.max(counter.packets + rest.errors[at].packets);
        rest.floor = Amount { bytes: counter.count, packets };
        rest.lost += counter.packets;
        at
    }

    /// The place of the counter with the smallest count.
    fn find_smallest(&mut self) -> usize {
        let (counters, rest) = (&self.counters, &mut *self.rest);
        let count = |at: usize| counters[at].count;
        if rest.heap.is_empty() {
            rest.heap.extend(rest.used.iter().enumerate().map(|(nth, at)| valued(count(usize::from(*at)), nth)));
            (0..rest.heap.len().div_ceil(ARITY)).rev().for_each(|at| rest.sink(at));
        }
        loop {
            let root = rest.heap[0];
            let nth = (root & ((1 << NTH_BITS) - 1)) as usize;
            let at = usize::from(rest.used[nth]);
            let now = valued(count(at), nth);
            if now == root {
                return at;
            }
            rest.heap[0] = now;
            rest.sink(0);
        }
    }

    /// Takes a counter out of its chain.
    fn unlink(&mut self, at: usize) {
        let (home, next) = (self.home(self.counters[at].hash), self.counters[at].next);
        let mut before = usize::from(self.counters[home].head);
        if before == at {
            self.counters[home].head = next;
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

    /// The counters in use, with their errors.
    fn used(&self) -> impl Iterator<Item = (&Counter<K>, &Amount)> {
        self.rest.used.iter().map(|at| (&self.counters[usize::from(*at)], &self.rest.errors[usize::from(*at)]))
    }

    /// The sum of all that was added.
    pub fn total(&self) -> Amount {
        let sum = |sum: Amount, (counter, _): (&Counter<K>, _)| sum + Amount::new(counter.count, counter.packets);
        self.used().fold(Amount::new(0, self.rest.lost), sum)
    }

    /// True if nothing was added.
    pub fn is_empty(&self) -> bool {
        self.rest.used.is_empty()
    }

    /// Forgets everything; the memory stays.
    pub fn clear(&mut self) {
        // Each chain has a counter in use, from which its head is found.
        for nth in 0..self.rest.used.len() {
            let at = usize::from(self.rest.used[nth]);
            let hash = std::mem::take(&mut self.counters[at].hash);
            let home = self.home(hash);
            self.counters[home].head = NONE;
        }
        let rest = &mut *self.rest;
        rest.used.clear();
        rest.heap.clear();
        (rest.free_below, rest.lost, rest.floor) = (rest.most, 0, Amount::default());
    }

    /// The keys with their bounds, the total and the floor.
    pub fn summary(&self) -> Summary<K> {
        let listed = self.used().map(|(counter, error)| Counted {
            key: counter.key,
            at_least: Amount { bytes: counter.count - error.bytes, packets: counter.packets },
            error: *error,
        });
        Summary::new(listed.collect(), self.total(), self.rest.floor)
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        size_of_val(&*self.counters)
            + size_of::<Rest>()
            + self.rest.used.capacity() * size_of::<u16>()
            + self.rest.errors.capacity() * size_of::<Amount>()
            + self.rest.heap.capacity() * size_of::<u64>()
    }
}

impl Rest {
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
}

/// A number of the heap: count, and which counter. Counts from 2^48 (281 TB) on are equal.
#[inline]
fn valued(count: u64, nth: usize) -> u64 {
    count.min(u64::MAX >> NTH_BITS) << NTH_BITS | nth as u64
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

    /// Packets of one size: many counters are equal, and one of them is taken. After a second that
    /// was forgotten nothing of it is left.
    #[test]
    fn what_is_counted_does_not_depend_on_hashes() {
        for most in [1, 2, 3, 7, 8, 64] {
            let mut all = [1u32, 0x9e37_79b1, 0xffff_0000].map(|factor| (factor, SpaceSaving::new(most)));
            for second in 0..3u32 {
                for (factor, counters) in &mut all {
                    for at in 0..400u32 {
                        let key = at * at % (50 + 100 * second);
                        counters.add(&key, key.wrapping_mul(*factor), 100);
                    }
                }
                let [first, others @ ..] = all.each_ref().map(|(_, counters)| counters.summary());
                assert_eq!(first.total(), Amount::new(40_000, 400));
                assert!(others.iter().all(|other| *other == first), "{most} counters, second {second}");
                all.iter_mut().for_each(|(_, counters)| counters.clear());
            }
        }
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
