//! A class: its two token buckets, its place in the tree, its turn in the rounds.

use super::words::Words;
use crate::units::{Nanos, SECOND};

/// "None", in links and indices.
pub const NIL: u32 = u32::MAX;

/// Levels of a tree, the link's and the leaves' included: as many as the kernel has.
pub const LEVELS: usize = 8;

/// Bits behind the point of [`Bucket::byte`]: at 100 Gbit/s a byte takes 0.08 ns, here good to 1 in
/// 10^8.
const POINT: u32 = 30;

/// A token bucket, held as the time at which it is no longer in debt.
///
/// The kernel counts tokens as nanoseconds at the bucket's rate, lets a packet go while there are
/// not less than 0, and then takes as many as the packet takes time. Here the tokens are the
/// present less that time. So no step fills the bucket, and the time of the next change of mode is
/// known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket {
    /// The whole nanoseconds of that time; [`Nanos::MAX`]: never.
    whole: Nanos,
    /// Time of a byte in 2^-30 ns, rounded up; 0 for rate 0.
    byte: u64,
    /// How long it takes to fill, ns.
    depth: Nanos,
}

impl Bucket {
    /// One that is always in debt.
    pub const NEVER: Bucket = Bucket { whole: Nanos::MAX, byte: 0, depth: 0 };

    /// One that is never in debt.
    pub const ALWAYS: Bucket = Bucket { whole: 0, byte: 0, depth: Nanos::MAX };

    /// A bucket of a rate in bit/s that holds `bytes`, full.
    pub fn full(rate: u64, bytes: u64, now: Nanos) -> Bucket {
        let mut bucket = Bucket::NEVER;
        if rate > 0 {
            bucket.set(rate, bytes);
            bucket.whole = now.saturating_sub(bucket.depth);
        }
        bucket
    }

    fn set(&mut self, rate: u64, bytes: u64) {
        let rate = u128::from(rate);
        self.byte = (u128::from(8 * SECOND) << POINT).div_ceil(rate) as u64;
        self.depth = u64::try_from(u128::from(bytes) * u128::from(8 * SECOND) / rate).unwrap_or(u64::MAX);
    }

    /// The tokens in it, as the time that they are worth in ns; negative in debt.
    pub fn tokens(&self, now: Nanos) -> i64 {
        if self.byte == 0 {
            return 0;
        }
        let tokens = (i128::from(now) - i128::from(self.whole)).min(i128::from(self.depth));
        i64::try_from(tokens).unwrap_or(i64::MIN)
    }

    /// The bytes that it holds when it is full, rounded down.
    pub fn bytes(&self) -> u64 {
        (u128::from(self.depth) << POINT).checked_div(u128::from(self.byte)).map_or(0, |bytes| bytes as u64)
    }

    /// Sets another rate and depth. The bytes that are in the bucket, or that it owes, stay; of a
    /// full bucket no more than it held. The same rate and depth change nothing. `part` is as for
    /// [`charge`](Bucket::charge).
    pub fn change(&mut self, part: &mut u32, now: Nanos, rate: u64, bytes: u64) {
        let mut same = *self;
        if rate > 0 {
            same.set(rate, bytes);
            if (same.byte, same.depth) == (self.byte, self.depth) {
                return;
            }
        }
        let full = now.saturating_sub(self.depth);
        if self.whole < full {
            (self.whole, *part) = (full, 0);
        }
        let (old, clear) = (self.byte, self.clear(*part));
        *part = 0;
        if rate == 0 {
            *self = Bucket::NEVER;
            return;
        }
        self.set(rate, bytes);
        if old == 0 {
            // It had no tokens and owed none.
            self.whole = now;
            return;
        }
        let scaled =
            |time: Nanos| u64::try_from(u128::from(time) * u128::from(self.byte) / u128::from(old)).unwrap_or(u64::MAX);
        self.whole = match clear.checked_sub(now) {
            Some(debt) => now.saturating_add(scaled(debt)),
            None => now.saturating_sub(scaled(now - clear)),
        };
    }

    /// A packet may go from this time on.
    #[inline]
    pub fn clear(&self, part: u32) -> Nanos {
        self.whole.saturating_add(u64::from(part != 0))
    }

    /// Takes the tokens of `bytes`. Tokens that came while the bucket was full are lost. `part` is
    /// a part of a nanosecond, in 2^-30 ns, that is carried from packet to packet, so that no rate
    /// drifts.
    #[inline]
    pub fn charge(&mut self, part: &mut u32, now: Nanos, bytes: u32) {
        if self.byte == 0 {
            // Always or never in debt.
            return;
        }
        let full = now.saturating_sub(self.depth);
        if self.whole < full {
            (self.whole, *part) = (full, 0);
        }
        let sum = u128::from(self.byte) * u128::from(bytes) + u128::from(*part);
        *part = (sum as u32) & ((1 << POINT) - 1);
        self.whole = self.whole.saturating_add(u64::try_from(sum >> POINT).unwrap_or(u64::MAX));
    }
}

/// What a class may do: the kernel's red, yellow and green.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The bucket of its ceil is in debt: it neither sends nor borrows.
    #[default]
    Red,
    /// Only the bucket of its rate is in debt: it may borrow.
    Yellow,
    /// No bucket is in debt: it sends on its own tokens.
    Green,
}

/// The slot is in use.
pub const EXISTS: u8 = 1;
/// It has packets of its own.
pub const BACKLOGGED: u8 = 2;
/// A leaf that stands in its parent's feed: while it is yellow, and on while it is green, so that
/// it need not be put back.
pub const FED: u8 = 4;

/// A class, leaf or inner: all that a packet touches of it, in two cache lines side by side, as
/// processors fetch lines in pairs.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
pub struct Class {
    /// Tokens of its rate.
    pub rate: Bucket,
    /// Tokens of its ceil.
    pub ceil: Bucket,
    /// What the buckets carry of a nanosecond, of the rate and of the ceil.
    pub part: [u32; 2],
    /// What is left of its quantum, by the level that it borrows from.
    pub deficit: [i32; LEVELS],
    /// The class above; [`NIL`] for the root.
    pub parent: u32,
    /// Its place among that one's members.
    pub at: u32,
    /// What it has as an inner class; [`NIL`] for a leaf.
    pub node: u32,
    /// Bytes a turn.
    pub quantum: u32,
    /// Bytes that its buckets are charged beyond a packet's own.
    pub overhead: u16,
    /// Bytes that its buckets are charged at least.
    pub mpu: u16,
    /// Classes above it.
    pub depth: u8,
    /// Its level: leaves are 0; the root is the highest, and an inner class one below the one above
    /// it, as in the kernel.
    pub level: u8,
    /// 0 to 7, 0 first.
    pub prio: u8,
    pub flags: u8,
    /// Priorities in which it or a class below it wants to send: at its own right or by borrowing
    /// from it.
    pub wants: u8,
    /// Held only while it wants to send.
    pub mode: Mode,
    /// Packets that went on its own tokens, its own or those of classes below; the counters wrap,
    /// as the kernel's do.
    pub lends: u32,
    /// Packets for which it borrowed.
    pub borrows: u32,
    /// Times that it went over its ceil.
    pub overlimits: u32,
}

const _: () = assert!(size_of::<Class>() == 128);

impl Class {
    /// A free slot.
    pub const NONE: Class = Class {
        rate: Bucket::NEVER,
        ceil: Bucket::NEVER,
        part: [0; 2],
        deficit: [0; LEVELS],
        parent: NIL,
        at: 0,
        node: NIL,
        quantum: 0,
        overhead: 0,
        mpu: 0,
        depth: 0,
        level: 0,
        prio: 0,
        flags: 0,
        wants: 0,
        mode: Mode::Red,
        lends: 0,
        borrows: 0,
        overlimits: 0,
    };

    /// A class with full buckets.
    pub fn new(now: Nanos, words: &Words, quantum: u32, parent: u32, depth: u8) -> Class {
        Class {
            // The root has nobody to borrow from: its ceil, which is its rate, is enough.
            rate: if parent == NIL { Bucket::ALWAYS } else { Bucket::full(words.rate, words.burst, now) },
            ceil: Bucket::full(words.ceil, words.cburst, now),
            parent,
            quantum,
            overhead: words.overhead,
            mpu: words.mpu,
            depth,
            prio: words.prio,
            flags: EXISTS,
            ..Class::NONE
        }
    }

    /// Gives it other words.
    pub fn set(&mut self, now: Nanos, words: &Words, quantum: u32) {
        let [rate, ceil] = &mut self.part;
        if self.parent != NIL {
            self.rate.change(rate, now, words.rate, words.burst);
        }
        self.ceil.change(ceil, now, words.ceil, words.cburst);
        self.quantum = quantum;
        (self.overhead, self.mpu, self.prio) = (words.overhead, words.mpu, words.prio);
    }

    /// True if the flag is set.
    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Sets the level that follows from its depth and from whether it is a leaf. To be called when
    /// one of these has changed.
    pub fn set_level(&mut self) {
        let depth = usize::from(self.depth).min(LEVELS - 1);
        self.level = if self.node == NIL { 0 } else { (LEVELS - 1 - depth) as u8 };
    }

    /// What its buckets are charged for a packet.
    #[inline]
    pub fn charged(&self, len: u32) -> u32 {
        len.saturating_add(u32::from(self.overhead)).max(u32::from(self.mpu))
    }

    /// It can have its rate from this time on.
    #[inline]
    pub fn rate_clear(&self) -> Nanos {
        self.rate.clear(self.part[0])
    }

    /// It is not held by its ceil from this time on.
    #[inline]
    pub fn ceil_clear(&self) -> Nanos {
        self.ceil.clear(self.part[1])
    }

    /// Takes a packet's tokens: of the ceil, and of the rate if it or a class below it borrowed
    /// from no lower class than this.
    #[inline]
    pub fn charge(&mut self, now: Nanos, bytes: u32, lends: bool) {
        let [rate, ceil] = &mut self.part;
        self.ceil.charge(ceil, now, bytes);
        if lends {
            self.rate.charge(rate, now, bytes);
        }
    }

    /// Its mode now. Without hysteresis, which today's kernels have only if told to.
    #[inline]
    pub fn mode_at(&self, now: Nanos) -> Mode {
        if self.ceil_clear() > now {
            Mode::Red
        } else if self.rate_clear() <= now {
            Mode::Green
        } else {
            Mode::Yellow
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bucket is exact to the nanosecond whatever its rate: a thousand packets take what they
    /// take together, rounded up once.
    #[test]
    fn rounds_once() {
        for (rate, bytes) in
            [(1, 1), (3, 1500), (999_999_937, 1471), (10_000_000_000, 64), (100_000_000_000, 40), (1 << 40, 9000)]
        {
            let (mut bucket, mut part) = (Bucket::full(rate, 0, 1 << 60), 0);
            for _ in 0..1000 {
                bucket.charge(&mut part, 1 << 60, bytes);
            }
            let exact = (u128::from(bytes) * 1000 * 8_000_000_000).div_ceil(u128::from(rate)) as u64;
            let took = bucket.clear(part) - (1 << 60);
            // The time of a byte is rounded up to 2^-30 ns.
            let most = exact + ((u64::from(bytes) * 1000) >> 30) + 1;
            assert!((exact..=most).contains(&took), "{rate}: {took}, exactly {exact}");
        }
    }

    #[test]
    fn a_change_keeps_the_bytes() {
        // 1500 bytes of debt at 1 Mbit/s are 12 ms; at 4 Mbit/s 3 ms. 500 bytes left: 4 ms, 1 ms.
        let now = 1 << 60;
        let mut bucket = Bucket::full(1_000_000, 0, now);
        bucket.charge(&mut 0, now, 1500);
        assert_eq!(bucket.clear(0), now + 12_000_000);
        bucket.change(&mut 0, now, 4_000_000, 0);
        assert_eq!(bucket.clear(0), now + 3_000_000);
        let mut bucket = Bucket::full(1_000_000, 500, now);
        bucket.change(&mut 0, now, 4_000_000, 2000);
        assert_eq!(bucket.clear(0), now - 1_000_000);
        // 500 bytes are all it held, however long it has been full: 4 ms at 1 Mbit/s.
        let mut bucket = Bucket::full(1_000_000, 500, now);
        bucket.change(&mut 0, now + (1 << 40), 1_000_000, 2000);
        assert_eq!(bucket.tokens(now + (1 << 40)), 4_000_000);
    }

    #[test]
    fn a_change_that_changes_nothing() {
        // A packet at 7 Mbit/s takes no whole number of nanoseconds. What is carried of one stays.
        let now = 1 << 60;
        let (mut bucket, mut part) = (Bucket::full(7_000_000, 3000, now), 0);
        bucket.charge(&mut part, now, 1499);
        let (whole, carried) = (bucket.whole, part);
        assert_ne!(carried, 0);
        bucket.change(&mut part, now + 5, 7_000_000, 3000);
        assert_eq!((bucket.whole, part), (whole, carried));
    }
}
