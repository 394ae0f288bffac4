//! Curves of classes while they run: when the service that a class has had is due, on a curve of
//! two pieces. Rounding errors do not add up.
//!
//! A two-piece curve is the lesser (concave) or the greater (convex) of two straight lines. So its
//! inverse, the time at which an amount of service is due, is the later or the earlier of two
//! clocks, each of which advances by what a packet takes at one rate. A class that becomes active
//! again begins a new curve, and the least of all its curves counts (Stoica, Zhang and Ng 1997):
//! the later of old and new clock, line by line. That is the same as two leaky buckets, and
//! exact however often a class comes and goes.
//!
//! Clocks keep the fraction of a nanosecond, so they do not drift. In 128 bits they hold 10²²
//! years.

use crate::shape::service_curve::ServiceCurve;
use crate::units::{Nanos, SECOND};

/// The caller's time 0 on these clocks, so that a class can have been idle before it, and the
/// beginning of virtual time.
pub const EPOCH: u128 = 1 << 90;

/// A time on these clocks as the caller's, rounded up by [`Clock::due`]; [`Nanos::MAX`] for never.
#[inline]
pub fn real(at: u128) -> Nanos {
    Nanos::try_from(at.saturating_sub(EPOCH)).unwrap_or(Nanos::MAX)
}

/// A rate, ready to be divided by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slope {
    rate: u64,
    /// floor((2^64 - 1) / rate); 0 for rates too large for the short way.
    inverse: u64,
}

/// Bits times nanoseconds a second, in a byte.
const BYTE: u64 = 8 * SECOND;

impl Slope {
    pub const fn new(rate: u64) -> Slope {
        let inverse = if rate == 0 || rate >= 1 << 63 { 0 } else { u64::MAX / rate };
        Slope { rate, inverse }
    }

    pub const fn is_zero(self) -> bool {
        self.rate == 0
    }

    pub const fn rate(self) -> u64 {
        self.rate
    }

    /// Divides by the rate: how long `len` bytes and a remainder take, and the remainder that is
    /// left.
    #[inline(always)]
    fn step(self, rem: u64, len: u32) -> (u128, u64) {
        // 2^29 bytes are less than 2^62, the remainder is less than 2^63.
        if self.inverse == 0 || len >= 1 << 29 {
            return self.step_far(rem, len);
        }
        let n = u64::from(len) * BYTE + rem;
        // The reciprocal is too small by less than one in its last place: the quotient by at most
        // two.
        let mut q = ((u128::from(n) * u128::from(self.inverse)) >> 64) as u64;
        let mut r = n - q * self.rate;
        while r >= self.rate {
            r -= self.rate;
            q += 1;
        }
        (u128::from(q), r)
    }

    #[cold]
    fn step_far(self, rem: u64, len: u32) -> (u128, u64) {
        let n = u128::from(len) * u128::from(BYTE) + u128::from(rem);
        let rate = u128::from(self.rate.max(1));
        (n / rate, (n % rate) as u64)
    }
}

/// A point in time with its fraction: `rem` of the slope's rate, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    high: u64,
    low: u64,
    rem: u64,
}

impl Clock {
    /// A whole nanosecond.
    pub const fn at(t: u128) -> Clock {
        Clock { high: (t >> 64) as u64, low: t as u64, rem: 0 }
    }

    #[inline]
    fn whole(self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }

    /// The time, rounded up.
    #[inline]
    fn due(self) -> u128 {
        self.whole() + u128::from(self.rem != 0)
    }

    #[inline(always)]
    fn advance(&mut self, slope: Slope, len: u32) {
        let (time, rem) = slope.step(self.rem, len);
        *self = Clock { rem, ..Clock::at(self.whole().saturating_add(time)) };
    }

    /// Not before `t`.
    #[inline]
    fn at_least(&mut self, t: u128) {
        if self.whole() < t {
            *self = Clock::at(t);
        }
    }

    #[inline]
    fn shift(&mut self, by: u128) {
        *self = Clock { rem: self.rem, ..Clock::at(self.whole().saturating_add(by)) };
    }

    /// The same time under another rate; the fraction is rounded down.
    fn rescale(&mut self, from: Slope, to: Slope) {
        let rem = u128::from(self.rem) * u128::from(to.rate) / u128::from(from.rate.max(1));
        self.rem = rem as u64;
    }
}

/// The first piece of a curve that has two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstPiece {
    slope: Slope,
    clock: Clock,
    convex: bool,
    /// How much earlier (concave) or later (convex) than the curve's start its second line meets
    /// the time axis.
    offset: u128,
}

impl FirstPiece {
    /// The part that is the same whenever the curve begins anew.
    pub const fn shape(&self) -> (Slope, bool, u128) {
        (self.slope, self.convex, self.offset)
    }
}

/// A curve while it runs: the line of its second piece, or of its only one. The first piece is
/// stored elsewhere, because few curves have one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runtime {
    pub slope: Slope,
    clock: Clock,
}

impl Runtime {
    /// A curve that never ran. `None` if its first piece lets it have more than its second could
    /// make up for in 2^90 ns.
    pub fn new(curve: &ServiceCurve) -> Option<(Runtime, Option<FirstPiece>)> {
        let then = curve.then.as_bit_s();
        let main = Runtime { slope: Slope::new(then), clock: Clock::default() };
        if curve.until == 0 || curve.first == curve.then || then == 0 {
            return Some((main, None));
        }
        let first = curve.first.as_bit_s();
        let convex = first < then;
        let offset = u128::from(first.abs_diff(then)).checked_mul(u128::from(curve.until))? / u128::from(then);
        if offset > EPOCH {
            return None;
        }
        Some((main, Some(FirstPiece { slope: Slope::new(first), clock: Clock::default(), convex, offset })))
    }

    /// When what has been served is due.
    #[inline]
    pub fn position(&self, first: Option<&FirstPiece>) -> u128 {
        let main = self.clock.due();
        match first {
            None => main,
            Some(first) if !first.convex => main.max(first.clock.due()),
            Some(first) if first.slope.is_zero() => main,
            Some(first) => main.min(first.clock.due()),
        }
    }

    /// When `len` bytes more are due.
    #[inline]
    pub fn after(&self, first: Option<&FirstPiece>, len: u32) -> u128 {
        let mut next = *self;
        match first {
            None => {
                next.clock.advance(next.slope, len);
                next.clock.due()
            }
            Some(first) => {
                let mut first = *first;
                next.advance(Some(&mut first), len);
                next.position(Some(&first))
            }
        }
    }

    /// `len` bytes have been served.
    #[inline(always)]
    pub fn advance(&mut self, first: Option<&mut FirstPiece>, len: u32) {
        self.clock.advance(self.slope, len);
        if let Some(first) = first
            && !first.slope.is_zero()
        {
            first.clock.advance(first.slope, len);
        }
    }

    /// When the next packet is eligible (the paper's eligible curve): a convex curve may be served
    /// ahead of its deadlines, at the rate of its second piece from the start, so that it can be
    /// kept when others become active.
    #[inline]
    pub fn eligible(&self, first: Option<&FirstPiece>) -> u128 {
        match first {
            Some(first) if first.convex => self.clock.due().saturating_sub(first.offset),
            first => self.position(first),
        }
    }

    /// The class becomes active at `at`: from now on the lesser of the curve so far and a new one
    /// from here counts.
    #[inline]
    pub fn restart(&mut self, first: Option<&mut FirstPiece>, at: u128) {
        match first {
            None => self.clock.at_least(at),
            Some(first) if !first.convex => {
                first.clock.at_least(at);
                self.clock.at_least(at - first.offset.min(at));
            }
            Some(first) => {
                // Of a convex curve that is ahead the slow line is taken up where the class stands:
                // the least of both would have three pieces, and this is it or, between their
                // corners, less.
                let position = self.position(Some(first)).max(at);
                if !first.slope.is_zero() {
                    first.clock = Clock::at(position);
                }
                self.clock.at_least(at + first.offset);
            }
        }
    }

    /// Moves the whole curve so that its position is not before `at`.
    #[inline]
    pub fn raise_to(&mut self, first: Option<&mut FirstPiece>, at: u128) {
        let position = self.position(first.as_deref());
        if position < at {
            self.clock.shift(at - position);
            if let Some(first) = first {
                first.clock.shift(at - position);
            }
        }
    }

    /// Goes on as another curve from where this one stands: what was served early stays served, and
    /// a new first piece is earned by idling.
    pub fn replaced(
        &self,
        first: Option<&FirstPiece>,
        by: (Runtime, Option<FirstPiece>),
    ) -> (Runtime, Option<FirstPiece>) {
        let (mut main, mut bent) = by;
        let position = self.position(first);
        match (&mut bent, first) {
            (Some(new), Some(old)) if new.convex == old.convex && old.offset == new.offset => {
                (main.clock, new.clock) = (self.clock, old.clock);
                main.clock.rescale(self.slope, main.slope);
                new.clock.rescale(old.slope, new.slope);
            }
            (None, None) => {
                main.clock = self.clock;
                main.clock.rescale(self.slope, main.slope);
            }
            (new, _) => {
                main.clock = Clock::at(position);
                if let Some(new) = new {
                    new.clock = Clock::at(position);
                }
            }
        }
        (main, bent)
    }

    /// Forgets the past.
    pub fn clear(&mut self, first: Option<&mut FirstPiece>) {
        self.clock = Clock::default();
        if let Some(first) = first {
            first.clock = Clock::default();
        }
    }
}
