//! Soft state in time: refresh periods, their spread, lifetimes (RFC 2205 3.7), and the timers.

use std::collections::{BTreeMap, BTreeSet};

use super::state::{Phop, RsbKey};
use crate::wire::{Sender, Session};

/// A neighbour's R is taken as at least this, milliseconds: a shorter one would let its state
/// expire between two of its own refreshes that are late.
pub(super) const LEAST_REFRESH_MS: u32 = 1_000;

/// A neighbour's R is taken as at most this, milliseconds: state that nobody refreshes goes within
/// 53 minutes.
pub(super) const MOST_REFRESH_MS: u32 = 600_000;

/// The R that counts for a neighbour's R, milliseconds.
pub(super) fn clamp(refresh_ms: u32) -> u32 {
    refresh_ms.clamp(LEAST_REFRESH_MS, MOST_REFRESH_MS)
}

/// How long state lives that a neighbour refreshes every R milliseconds, in nanoseconds. RFC 2205
/// 3.7: L is at least (K + 0.5) · 1.5 · R, so that K - 1 refreshes in a row may be lost.
pub(super) fn lifetime(refresh_ms: u32, k: u32) -> u64 {
    // (K + 0.5) · 1.5 = (2 K + 1) · 0.75, and 0.75 ms = 750,000 ns.
    u64::from(clamp(refresh_ms)) * (2 * u64::from(k) + 1) * 750_000
}

/// The time to the next refresh, nanoseconds: evenly distributed in [0.5 R, 1.5 R], so that nodes
/// do not fall into step (RFC 2205 3.7).
pub(super) fn spread(refresh_ms: u32, random: u64) -> u64 {
    let period = u64::from(clamp(refresh_ms)) * 1_000_000;
    // The upper 32 random bits as a fraction of the period; the product fits 64 bits up to 600 s
    // only in 128.
    let part = (u128::from(period) * u128::from(random >> 32)) >> 32;
    period / 2 + u64::try_from(part).unwrap_or(period)
}

/// What happens when a timer comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A sender's path state is refreshed downstream.
    PathRefresh(Session, Sender),
    /// A sender's path state was not refreshed in time.
    PathExpires(Session, Sender),
    /// The route to a session changed W ago.
    Repair(Session, Sender),
    /// Reservations are refreshed upstream, to this hop.
    ResvRefresh(Session, Phop),
    /// A reservation request was not refreshed in time.
    ResvExpires(Session, RsbKey),
    /// A change of a reservation, which had to wait, is due.
    Change(Session, RsbKey),
    /// The blockade of a sender ends.
    BlockadeEnds(Session, Sender),
}

/// Timers, each set once at most.
#[derive(Debug, Clone, Default)]
pub(super) struct Timers {
    due: BTreeMap<Timer, u64>,
    order: BTreeSet<(u64, Timer)>,
}

impl Timers {
    /// Sets a timer, or moves it.
    pub(super) fn set(&mut self, timer: Timer, at: u64) {
        if let Some(before) = self.due.insert(timer, at) {
            self.order.remove(&(before, timer));
        }
        self.order.insert((at, timer));
    }

    pub(super) fn cancel(&mut self, timer: Timer) {
        if let Some(before) = self.due.remove(&timer) {
            self.order.remove(&(before, timer));
        }
    }

    pub(super) fn is_set(&self, timer: Timer) -> bool {
        self.due.contains_key(&timer)
    }

    /// When a timer comes.
    pub(super) fn at(&self, timer: Timer) -> Option<u64> {
        self.due.get(&timer).copied()
    }

    /// The earliest time.
    pub(super) fn next(&self) -> Option<u64> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes the earliest timer that is due. A timer at the end of time is never due.
    pub(super) fn pop(&mut self, now: u64) -> Option<Timer> {
        let (at, timer) = self.order.first().copied()?;
        if at > now || at == u64::MAX {
            return None;
        }
        self.order.remove(&(at, timer));
        self.due.remove(&timer);
        Some(timer)
    }

    /// Every timer, for checks.
    pub(super) fn all(&self) -> impl Iterator<Item = Timer> + '_ {
        self.due.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 2205 3.7 with R = 30 s and K = 3: (3 + 0.5) · 1.5 · 30 s = 157.5 s.
    #[test]
    fn lifetime_of_the_rfc() {
        assert_eq!(lifetime(30_000, 3), 157_500_000_000);
        assert_eq!(lifetime(1, 3), lifetime(1_000, 3), "a period too short is taken as a second");
        assert_eq!(lifetime(u32::MAX, 3), 3_150_000_000_000, "5.25 times ten minutes");
        assert_eq!(lifetime(30_000, 8), 382_500_000_000);
    }

    #[test]
    fn refreshes_are_spread_over_half_to_one_and_a_half_periods() {
        assert_eq!(spread(30_000, 0), 15_000_000_000);
        assert_eq!(spread(30_000, 1 << 63), 30_000_000_000);
        let latest = spread(30_000, u64::MAX);
        assert!((44_999_999_000..=45_000_000_000).contains(&latest), "{latest}");
        assert!(spread(600_000, u64::MAX) <= 900_000_000_000);
    }
}
