//! What the classes did in one stretch of time, packed.
//!
//! Only classes that did something have a point, and its numbers take as many bytes as they need (7
//! bits to a byte, LEB128): some 20 bytes for a class with a few packets, 50 for one with
//! gigabytes. Counters are kept exactly. Times are kept to 1/256.

use std::collections::BTreeMap;

use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::Nanos;

/// What a class's own packets did, without those of the classes below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Packets sent.
    pub sent_packets: u64,
    /// Their own bytes.
    pub sent_bytes: u64,
    /// The bytes that the link charged for them.
    pub wire_bytes: u64,
    /// Packets dropped.
    pub dropped_packets: u64,
    /// Packets marked.
    pub marked_packets: u64,
    /// Charged bytes beyond its guarantee ([`ledger`](crate::ledger)).
    pub borrowed_bytes: u64,
    /// Charged bytes of its guarantee that others used.
    pub lent_bytes: u64,
    /// The sum of the own bytes that waited at the end of each second. Divided by the number of
    /// seconds it is the mean backlog. As a sum it can be added up over classes and over time.
    pub waiting_bytes: u64,
    /// Charged bytes that it could claim by its guarantee, because packets of it waited
    /// ([`promise`](crate::promise)).
    pub promised_bytes: u64,
    /// What of these it did not get.
    pub missed_bytes: u64,
    /// The median time in the queue, in ns; 0 if nothing left.
    pub p50: Nanos,
    /// The 99th percentile.
    pub p99: Nanos,
}

impl Point {
    /// Adds what another stretch of time, or another class, did. Percentiles do not add up: they
    /// stay as they are.
    pub fn add(&mut self, other: &Point) {
        for (sum, more) in self.sums_mut().into_iter().zip(other.sums()) {
            *sum = sum.saturating_add(more);
        }
    }

    /// True if its packets did nothing. It may have lent.
    pub fn is_idle(&self) -> bool {
        Point { lent_bytes: 0, ..*self } == Point::default()
    }

    /// The fields that add up.
    fn sums(&self) -> [u64; 10] {
        [
            self.sent_packets,
            self.sent_bytes,
            self.wire_bytes,
            self.dropped_packets,
            self.marked_packets,
            self.borrowed_bytes,
            self.lent_bytes,
            self.waiting_bytes,
            self.promised_bytes,
            self.missed_bytes,
        ]
    }

    fn sums_mut(&mut self) -> [&mut u64; 10] {
        [
            &mut self.sent_packets,
            &mut self.sent_bytes,
            &mut self.wire_bytes,
            &mut self.dropped_packets,
            &mut self.marked_packets,
            &mut self.borrowed_bytes,
            &mut self.lent_bytes,
            &mut self.waiting_bytes,
            &mut self.promised_bytes,
            &mut self.missed_bytes,
        ]
    }
}

/// A stretch of time. Its points are in memory of its own or, as a [`SliceRef`], in that of a
/// history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slice<B = Box<[u8]>> {
    /// When it began, on the loop's clock.
    pub from: Nanos,
    /// When it ended.
    pub to: Nanos,
    /// The number of its seconds: how often waiting packets were counted.
    pub seconds: u32,
    /// The sum of charged bytes that classes without a point have lent. Every idle class with a
    /// guarantee lends while others borrow, and a point for each of them would take more than all
    /// else.
    pub lent_by_idle: u64,
    /// The lowest rate that the link had in this time, bit/s; 0 if it is not known.
    pub rate_bit_s: u64,
    /// The points, packed, in the order of the classes' numbers.
    packed: B,
}

/// A slice of a history.
pub type SliceRef<'a> = Slice<&'a [u8]>;

impl Slice {
    /// A slice of these points, in the order of their classes' numbers, each class at most once.
    pub fn new(from: Nanos, to: Nanos, seconds: u32, points: impl IntoIterator<Item = (ClassId, Point)>) -> Slice {
        let (mut packed, mut before, mut lent_by_idle) = (Vec::new(), 0, 0u64);
        for (class, point) in points {
            if point.is_idle() {
                lent_by_idle = lent_by_idle.saturating_add(point.lent_bytes);
                continue;
            }
            put(&mut packed, u64::from(class.wrapping_sub(before)));
            before = class;
            point.sums().into_iter().for_each(|number| put(&mut packed, number));
            put(&mut packed, short(point.p50));
            put(&mut packed, short(point.p99));
        }
        // A copy takes just these bytes. Behind a buffer that is shortened the allocator keeps a
        // hole of up to half its size, which nobody counts.
        Slice { from, to, seconds, lent_by_idle, rate_bit_s: 0, packed: Box::from(packed.as_slice()) }
    }

    /// The slice of these bytes; `None` if they break off before the points.
    pub fn decoded(bytes: &[u8]) -> Option<Slice> {
        let mut rest = bytes;
        let (from, to) = (take(&mut rest)?, take(&mut rest)?);
        let seconds = u32::try_from(take(&mut rest)?).ok()?;
        let (lent_by_idle, rate_bit_s) = (take(&mut rest)?, take(&mut rest)?);
        Some(Slice { from, to, seconds, lent_by_idle, rate_bit_s, packed: rest.into() })
    }

    /// The same slice, to read.
    pub fn view(&self) -> SliceRef<'_> {
        self.with(&*self.packed)
    }
}

impl<B> Slice<B> {
    /// The points, packed, or where they are.
    pub(crate) fn packed(&self) -> &B {
        &self.packed
    }

    /// The same slice with its points elsewhere.
    pub(crate) fn with<C>(&self, packed: C) -> Slice<C> {
        let Slice { from, to, seconds, lent_by_idle, rate_bit_s, .. } = *self;
        Slice { from, to, seconds, lent_by_idle, rate_bit_s, packed }
    }
}

impl<'a> SliceRef<'a> {
    /// The points.
    pub fn points(self) -> impl Iterator<Item = (ClassId, Point)> + 'a {
        let mut rest = self.packed;
        let mut class: ClassId = 0;
        std::iter::from_fn(move || {
            // If the numbers break off, as in a damaged file, the points end.
            class = class.wrapping_add(take(&mut rest)? as ClassId);
            let mut point = Point::default();
            for number in point.sums_mut() {
                *number = take(&mut rest)?;
            }
            (point.p50, point.p99) = (long(take(&mut rest)?), long(take(&mut rest)?));
            Some((class, point))
        })
    }

    /// The point of a class; `None` if it did nothing.
    pub fn point(self, class: ClassId) -> Option<Point> {
        self.points().take_while(|(at, _)| *at <= class).find(|(at, _)| *at == class).map(|(_, point)| point)
    }

    /// The same slice with other class numbers. `new` has the new number by old number.
    pub fn renumbered(self, new: &[ClassId]) -> Slice {
        let mut points: BTreeMap<ClassId, Point> = BTreeMap::new();
        for (class, point) in self.points() {
            let class = new.get(class as usize).copied().unwrap_or(ROOT);
            let sum = points.entry(class).or_default();
            let times = if class == ROOT && sum.p99 > point.p99 { *sum } else { point };
            sum.add(&point);
            (sum.p50, sum.p99) = (times.p50, times.p99);
        }
        let mut slice = Slice::new(self.from, self.to, self.seconds, points);
        slice.lent_by_idle = slice.lent_by_idle.saturating_add(self.lent_by_idle);
        slice.rate_bit_s = self.rate_bit_s;
        slice
    }

    /// The slice as bytes, for another process: five numbers, then the points.
    pub fn encoded(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(50 + self.packed.len());
        for number in [self.from, self.to, u64::from(self.seconds), self.lent_by_idle, self.rate_bit_s] {
            put(&mut bytes, number);
        }
        bytes.extend_from_slice(self.packed);
        bytes
    }
}

/// Appends a number: seven bits to a byte, the lowest first. The top bit of a byte means that more
/// follow.
fn put(packed: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        packed.push(number as u8 | 0x80);
        number >>= 7;
    }
    packed.push(number as u8);
}

/// Takes the next number; `None` at the end.
fn take(packed: &mut &[u8]) -> Option<u64> {
    let (mut number, mut shift) = (0u64, 0u32);
    loop {
        let (byte, rest) = packed.split_first()?;
        *packed = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Some(number);
        }
        shift = shift.saturating_add(7);
    }
}

/// A time as a short number: its nine highest bits, and how many bits follow them. So it is rounded
/// down by less than 1/256. Times below 2^40 ns (18 minutes) take two bytes, longer ones three.
fn short(time: Nanos) -> u64 {
    let shift = (Nanos::BITS - time.leading_zeros()).saturating_sub(9);
    u64::from(shift) << 9 | time >> shift
}

/// The time of [`short`].
fn long(short: u64) -> Nanos {
    let (shift, bits) = ((short >> 9) as u32, short & 511);
    bits.checked_shl(shift).unwrap_or(Nanos::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let numbers = [0, 1, 127, 128, 300, 1 << 35, u64::MAX];
        let mut packed = Vec::new();
        numbers.iter().for_each(|number| put(&mut packed, *number));
        // They take 1 + 1 + 1 + 2 + 2 + 6 + 10 bytes.
        assert_eq!(packed.len(), 23);
        let mut rest = &packed[..];
        let back: Vec<u64> = std::iter::from_fn(|| take(&mut rest)).collect();
        assert_eq!(back, numbers);
        assert_eq!(take(&mut &[0x80u8, 0x80][..]), None);
        // More bytes than a number can have do not panic.
        assert!(take(&mut &[[0xffu8; 30].as_slice(), &[1]].concat()[..]).is_some());
    }

    #[test]
    fn times_are_kept_to_a_part_in_256() {
        for time in [0, 1, 511, 512, 513, 90_000, 22_694_335, 3_600_000_000_000, u64::MAX] {
            let back = long(short(time));
            assert!(back <= time && (time - back) as u128 * 256 <= time as u128, "{time}: {back}");
        }
        assert_eq!(long(u64::MAX), u64::MAX);
    }

    #[test]
    fn points_come_back_and_idle_lenders_are_one_sum() {
        let point = |n: u64| Point { sent_packets: n, sent_bytes: n * 1000, p50: 500, p99: 511, ..Point::default() };
        let lender = Point { lent_bytes: 70, ..Point::default() };
        let busy = [(0, point(1)), (7, point(300)), (8, lender), (9, lender), (4_000_000_000, point(2))];
        let slice = Slice::new(5, 6, 1, busy);
        let points: Vec<_> = slice.view().points().collect();
        assert_eq!(points, [busy[0], busy[1], busy[4]]);
        assert_eq!((slice.lent_by_idle, slice.view().point(7), slice.view().point(8)), (140, Some(point(300)), None));
        // The link's rate comes along, and stays when classes get other numbers.
        let slice = Slice { rate_bit_s: 5_000_000, ..slice };
        assert_eq!(Slice::decoded(&slice.view().encoded()), Some(slice.clone()));
        assert_eq!(slice.view().renumbered(&[0, 1]).rate_bit_s, 5_000_000);
        // The class takes 1 byte, the ten sums take 11 (one of them two), and the two times two
        // bytes each.
        assert_eq!(Slice::new(0, 1, 1, [(1, point(1))]).packed().len(), 1 + 11 + 4);
    }
}
