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

/// A whole nanosecond, in what a bucket carries.
pub const WHOLE: u32 = (1 << POINT) - 1;

/// A token bucket, held as the time at which it is no longer in debt.
///
/// The kernel counts tokens as nanoseconds at the bucket's rate, lets a packet go while there are
/// not less than 0, and then takes as many as the packet takes time. Here the tokens are the
/// present less that time. So no step fills the bucket, and the time of the next change of mode is
/// known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket {
    /// That time, rounded up to a nanosecond: a packet may go from it on. [`Nanos::MAX`]: never.
    pub clear: Nanos,
    /// Time of a byte in 2^-30 ns, rounded up; 0 for rate 0.
    byte: u64,
    /// How long it takes to fill, ns.
    depth: Nanos,
}

impl Bucket {
    /// One that is always in debt.
    pub const NEVER: Bucket = Bucket { clear: Nanos::MAX, byte: 0, depth: 0 };

    /// One that is never in debt.
    pub const ALWAYS: Bucket = Bucket { clear: 0, byte: 0, depth: Nanos::MAX };

    /// A bucket of a rate in bit/s that holds `bytes`, full.
    pub fn full(rate: u64, bytes: u64, now: Nanos) -> Bucket {
        let mut bucket = Bucket::NEVER;
        if rate > 0 {
            bucket.set(rate, bytes);
            bucket.clear = now.saturating_sub(bucket.depth);
        }
        bucket
    }

    fn set(&mut self, rate: u64, bytes: u64) {
        let rate = u128::from(rate);
        self.byte = (u128::from(8 * SECOND) << POINT).div_ceil(rate) as u64;
        self.depth = u64::try_from(u128::from(bytes) * u128::from(8 * SECOND) / rate).unwrap_or(u64::MAX);
    }

    /// The tokens in it, as the time that they are worth in ns, rounded up; negative in debt.
    /// `carry` is as for [`charge`](Bucket::charge).
    pub fn tokens(&self, carry: u32, now: Nanos) -> i64 {
        if self.byte == 0 {
            return 0;
        }
        let whole = i128::from(self.clear) - i128::from(carry != WHOLE);
        let tokens = (i128::from(now) - whole).min(i128::from(self.depth));
        i64::try_from(tokens).unwrap_or(i64::MIN)
    }

    /// The bytes that it holds when it is full, rounded down.
    pub fn bytes(&self) -> u64 {
        (u128::from(self.depth) << POINT).checked_div(u128::from(self.byte)).map_or(0, |bytes| bytes as u64)
    }

    /// Sets another rate and depth. The bytes that are in the bucket, or that it owes, stay; of a
    /// full bucket no more than it held. The same rate and depth change nothing. `carry` is as for
    /// [`charge`](Bucket::charge).
    pub fn change(&mut self, carry: &mut u32, now: Nanos, rate: u64, bytes: u64) {
        let mut same = *self;
        if rate > 0 {
            same.set(rate, bytes);
            if (same.byte, same.depth) == (self.byte, self.depth) {
                return;
            }
        }
        let clear = self.clear.max(now.saturating_sub(self.depth));
        let old = self.byte;
        *carry = WHOLE;
        if rate == 0 {
            *self = Bucket::NEVER;
            return;
        }
        self.set(rate, bytes);
        if old == 0 {
            // It had no tokens and owed none.
            self.clear = now;
            return;
        }
        let scaled =
            |time: Nanos| u64::try_from(u128::from(time) * u128::from(self.byte) / u128::from(old)).unwrap_or(u64::MAX);
        self.clear = match clear.checked_sub(now) {
            Some(debt) => now.saturating_add(scaled(debt)),
            None => now.saturating_sub(scaled(now - clear)),
        };
    }

    /// Takes the tokens of `bytes`. Tokens that came while the bucket was full are lost. `carry` is
    /// how much of the last nanosecond before [`clear`](Bucket::clear) is taken, in 2^-30 ns, less
    /// one; it is carried from packet to packet, so that no rate drifts. It begins at [`WHOLE`].
    ///
    /// Buckets that are always or never in debt stay so: a byte takes no time there.
    #[inline]
    pub fn charge(&mut self, carry: &mut u32, now: Nanos, bytes: u32) {
        let full = now.saturating_sub(self.depth);
        // As `carry` says, it may be full a part of a nanosecond before `clear`.
        let (clear, before) = if self.clear <= full { (full, WHOLE) } else { (self.clear, *carry) };
        let sum = match self.byte.checked_mul(u64::from(bytes)) {
            Some(time) if time < 1 << 63 => time + u64::from(before),
            _ => return self.charge_far(carry, clear, before, bytes),
        };
        *carry = sum as u32 & WHOLE;
        self.clear = clear.saturating_add(sum >> POINT);
    }

    /// [`charge`](Bucket::charge) where the packet takes seconds.
    #[cold]
    fn charge_far(&mut self, carry: &mut u32, clear: Nanos, before: u32, bytes: u32) {
        let sum = u128::from(self.byte) * u128::from(bytes) + u128::from(before);
        *carry = sum as u32 & WHOLE;
        self.clear = clear.saturating_add(u64::try_from(sum >> POINT).unwrap_or(u64::MAX));
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
    pub carry: [u32; 2],
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
        carry: [WHOLE; 2],
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
        let [rate, ceil] = &mut self.carry;
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
        if self.overhead | self.mpu == 0 {
            return len;
        }
        len.saturating_add(u32::from(self.overhead)).max(u32::from(self.mpu))
    }

    /// Takes a packet's tokens of the ceil.
    #[inline]
    pub fn charge_ceil(&mut self, now: Nanos, bytes: u32) {
        self.ceil.charge(&mut self.carry[1], now, bytes);
    }

    /// Takes a packet's tokens of the rate.
    #[inline]
    pub fn charge_rate(&mut self, now: Nanos, bytes: u32) {
        self.rate.charge(&mut self.carry[0], now, bytes);
    }

    /// Its mode now. Without hysteresis, which today's kernels have only if told to.
    #[inline]
    pub fn mode_at(&self, now: Nanos) -> Mode {
        if self.ceil.clear > now {
            Mode::Red
        } else if self.rate.clear <= now {
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
            let (mut bucket, mut carry) = (Bucket::full(rate, 0, 1 << 60), WHOLE);
            for _ in 0..1000 {
                bucket.charge(&mut carry, 1 << 60, bytes);
            }
            let exact = (u128::from(bytes) * 1000 * 8_000_000_000).div_ceil(u128::from(rate)) as u64;
            let took = bucket.clear - (1 << 60);
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
        bucket.charge(&mut WHOLE.clone(), now, 1500);
        assert_eq!(bucket.clear, now + 12_000_000);
        bucket.change(&mut WHOLE.clone(), now, 4_000_000, 0);
        assert_eq!(bucket.clear, now + 3_000_000);
        let mut bucket = Bucket::full(1_000_000, 500, now);
        bucket.change(&mut WHOLE.clone(), now, 4_000_000, 2000);
        assert_eq!(bucket.clear, now - 1_000_000);
        // 500 bytes are all it held, however long it has been full: 4 ms at 1 Mbit/s.
        let mut bucket = Bucket::full(1_000_000, 500, now);
        bucket.change(&mut WHOLE.clone(), now + (1 << 40), 1_000_000, 2000);
        assert_eq!(bucket.tokens(WHOLE, now + (1 << 40)), 4_000_000);
    }

    #[test]
    fn a_change_that_changes_nothing() {
        // A packet at 7 Mbit/s takes no whole number of nanoseconds. What is carried of one stays.
        let now = 1 << 60;
        let (mut bucket, mut carry) = (Bucket::full(7_000_000, 3000, now), WHOLE);
        bucket.charge(&mut carry, now, 1499);
        let (clear, carried) = (bucket.clear, carry);
        assert_ne!(carried, WHOLE);
        bucket.change(&mut carry, now + 5, 7_000_000, 3000);
        assert_eq!((bucket.clear, carry), (clear, carried));
    }
}
