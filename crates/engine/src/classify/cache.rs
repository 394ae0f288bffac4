//! The exact-match cache: packed keys and their classes in sets of four.
//!
//! An entry is the whole packed key, with the class in the half word that packing leaves free: 32
//! bytes for IPv4, 64 for IPv6. All bits of the key are compared, so a packet is never taken for
//! one of another flow. The hash only says in which set to look.
//!
//! A key has two sets. It lies in the first, or in the second if the first was full when it came.
//! In the first set it has a home, an entry that is looked at before the others. It lies there
//! unless another key was there before it. The last entry of a set is *on trial*: where both sets
//! are full, a new flow replaces that entry and no other. A hit on the entry on trial swaps it with
//! one of the other three. So a port scan, in which every packet is a new flow, does not push out
//! flows that have had hits. A lookup compares these eight entries at most.
//!
//! The table starts small and doubles, up to its limit. While it is small it doubles long before it
//! is full, so that most keys lie at home; a large one, which has to share the processor's caches,
//! only after enough entries have been replaced. The larger table starts empty: each flow asks the
//! rules once more, but no single packet has to wait until all entries have been moved.

use crate::prefetch::prefetch;

/// Entries to a set.
const WAYS: usize = 4;

/// Entries of a new table.
const START: usize = 1024;

/// A table with fewer entries doubles when a sixteenth of them is used.
const ROOMIEST: usize = 4096;

/// A table with fewer entries, but at least [`ROOMIEST`], doubles when a quarter of them is used.
/// With 1,000 classes a packet takes 14 % less time than in a table that is half full, where two of
/// five keys are not at home and the processor guesses wrong.
const ROOMY: usize = 65_536;

/// Words of the largest table of which no entry need be fetched ahead: 128 KiB.
const NEAR: usize = 128 * 1024 / 8 + SPARE;

/// Words more than the entries take, for their alignment.
const SPARE: usize = 7;

/// The half word of an entry without a class. 0 is an empty entry; class c is c + 2.
const NO_CLASS: u32 = 1;

/// The class that an entry keeps for its key; `None`: the packet has no class.
#[inline]
pub(super) fn class_of(kept: u32) -> Option<u32> {
    kept.checked_sub(NO_CLASS + 1)
}

/// A table of entries of `N` words.
pub(super) struct Table<const N: usize> {
    /// The sets, one behind the other from `start`, which is aligned to a cache line.
    words: Vec<u64>,
    start: usize,
    /// The number of sets, a power of two, less one.
    mask: usize,
    most: usize,
    /// Entries in use.
    used: usize,
    evicted: u64,
    /// Evictions after which the table doubles.
    patience: u64,
    turn: usize,
}

impl<const N: usize> Table<N> {
    /// A table of at most `most` entries, rounded down to a power of two; below 4 it holds none. It
    /// takes no memory before its first entry.
    pub(super) fn new(most: usize) -> Table<N> {
        let most = if most < WAYS { 0 } else { 1 << most.ilog2() };
        Table { words: Vec::new(), start: 0, mask: 0, most, used: 0, evicted: 0, patience: 0, turn: 0 }
    }

    fn allocate(&mut self, entries: usize) {
        let sets = entries / WAYS;
        // The system gives zeroed memory lazily: pages that are not used cost nothing.
        self.words = vec![0; sets * WAYS * N + SPARE];
        self.start = (64 - self.words.as_ptr() as usize % 64) % 64 / 8;
        self.mask = sets - 1;
        self.used = 0;
        self.evicted = 0;
        self.patience = (entries / 16) as u64;
    }

    #[inline]
    fn set(&self, hash: u64) -> Option<&[[u64; N]; WAYS]> {
        let at = self.start + (hash as usize & self.mask) * (WAYS * N);
        self.words.get(at..)?.as_chunks::<N>().0.first_chunk()
    }

    fn set_mut(&mut self, hash: u64) -> Option<&mut [[u64; N]; WAYS]> {
        let at = self.start + (hash as usize & self.mask) * (WAYS * N);
        self.words.get_mut(at..)?.as_chunks_mut::<N>().0.first_chunk_mut()
    }

    /// True while the table is so small that the processor's caches hold it.
    #[inline]
    pub(super) fn is_near(&self) -> bool {
        self.words.len() <= NEAR
    }

    /// Hints that the set of a hash is needed soon.
    #[inline]
    pub(super) fn fetch(&self, hash: u64) {
        let at = self.start + (hash as usize & self.mask) * (WAYS * N);
        for line in 0..(WAYS * N * 8).div_ceil(64) {
            prefetch(&self.words, at + line * 8);
        }
    }

    /// What is kept for a key: 0 if the key is not in the table, else what [`class_of`] reads. One
    /// number instead of an option in an option: every packet comes by here.
    #[inline(always)]
    pub(super) fn get(&mut self, key: &[u64; N], hash: u64) -> u32 {
        let Some(set) = self.set(hash) else { return 0 };
        let entry = &set[home(hash)];
        // At its home no key is on trial.
        if same(entry, key) { class(entry) } else { self.get_first(key, hash) }
    }

    /// [`get`](Table::get) for a key that is not at its home.
    #[inline(never)]
    fn get_first(&mut self, key: &[u64; N], hash: u64) -> u32 {
        let Some(set) = self.set(hash) else { return 0 };
        // The first two words of all entries are compared without a branch: the processor cannot
        // predict which entry it is, and a wrong prediction costs more than three comparisons.
        let mut hits = 0u32;
        for (way, entry) in set.iter().enumerate() {
            hits |= u32::from((entry[0] ^ key[0]) | (entry[1] ^ key[1]) == 0) << way;
        }
        let mut way = hits.trailing_zeros() as usize;
        if !set.get(way).is_some_and(|entry| same_from(2, entry, key)) {
            // An entry begins like the key and differs later, or there is none. This is rare.
            way = set.iter().position(|entry| same(entry, key)).unwrap_or(WAYS);
        }
        let Some(entry) = set.get(way) else {
            // The last entry of a set is filled last, and none is ever emptied. So the key can be
            // in its second set only if this one is full.
            return if class(&set[WAYS - 1]) == 0 { 0 } else { self.get_second(key, hash.rotate_right(32)) };
        };
        let kept = class(entry);
        // An empty entry looks like the key of zeros. It is not on trial.
        if way == WAYS - 1 && kept != 0 {
            self.promote(hash);
        }
        kept
    }

    fn get_second(&mut self, key: &[u64; N], hash: u64) -> u32 {
        let Some(set) = self.set(hash) else { return 0 };
        let Some(way) = set.iter().position(|entry| class(entry) != 0 && same(entry, key)) else { return 0 };
        let kept = class(&set[way]);
        if way == WAYS - 1 {
            self.promote(hash);
        }
        kept
    }

    /// A hit on the entry on trial: it changes places with one of the others, in rotation.
    #[inline]
    fn promote(&mut self, hash: u64) {
        self.turn = (self.turn + 1) % (WAYS - 1);
        let turn = self.turn;
        if let Some(set) = self.set_mut(hash) {
            set.swap(turn, WAYS - 1);
        }
    }

    /// Enters a key that is not in the table, with its class.
    pub(super) fn put(&mut self, key: &[u64; N], hash: u64, found: Option<u32>) {
        if self.words.is_empty() {
            if self.most == 0 {
                return;
            }
            self.allocate(START.min(self.most));
        }
        let entries = (self.mask + 1) * WAYS;
        let share = if entries < ROOMIEST { 16 } else { 4 };
        if entries < self.most.min(ROOMY) && self.used >= entries / share {
            self.allocate(entries * 2);
        }
        let mut entry = *key;
        entry[N - 1] |= u64::from(found.map_or(NO_CLASS, |found| found + NO_CLASS + 1));
        for hash in [hash, hash.rotate_right(32)] {
            // The last entry is filled last.
            let Some(set) = self.set_mut(hash) else { continue };
            let mut ways = std::iter::once(home(hash)).chain(0..WAYS);
            if let Some(free) = ways.find(|way| class(&set[*way]) == 0) {
                set[free] = entry;
                self.used += 1;
                return;
            }
        }
        self.evicted += 1;
        if self.evicted > self.patience && entries < self.most {
            self.allocate(entries * 2);
        }
        if let Some(set) = self.set_mut(hash) {
            // A table that has just grown is empty. Otherwise the entry on trial is replaced.
            let free = set.iter().position(|entry| class(entry) == 0).unwrap_or(WAYS - 1);
            set[free] = entry;
        }
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.words.capacity() * 8
    }
}

/// The home of a key in its first set: any entry but the last one.
#[inline]
fn home(hash: u64) -> usize {
    // The low bits choose the set.
    (((hash >> 32) * (WAYS as u64 - 1)) >> 32) as usize % WAYS
}

/// The half word that holds the class.
#[inline]
fn class<const N: usize>(entry: &[u64; N]) -> u32 {
    entry[N - 1] as u32
}

/// True if the entry has this key. An empty entry has the key of zeros.
#[inline]
fn same<const N: usize>(entry: &[u64; N], key: &[u64; N]) -> bool {
    same_from(0, entry, key)
}

/// [`same`] for an entry whose words before `first` are known to be the key's.
#[inline]
fn same_from<const N: usize>(first: usize, entry: &[u64; N], key: &[u64; N]) -> bool {
    let mut differ = (entry[N - 1] ^ key[N - 1]) >> 32;
    for at in first..N - 1 {
        differ |= entry[at] ^ key[at];
    }
    differ == 0
}
