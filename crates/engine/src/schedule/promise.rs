//! What a scheduler promises a class, worked out from words alone: `altq check` prints it, tests
//! hold the engine to it.
//!
//! A promise is a service curve: while the class has packets, it is served at least that much.
//! Promises compose: what a class is promised is what the scheduler inside it divides further, so a
//! class's promise is made from the promise of the place that its scheduler works in (Le Boudec and
//! Thiran 2001, chapter 1: the server sees what the one above leaves).

use crate::settings::Settings;
use crate::shape::service_curve::ServiceCurve;
use crate::spec::LinkSpec;
use crate::units::{Nanos, Rate};

/// The service that a class can count on from the moment at which it begins to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// No service is promised before this.
    pub latency: Nanos,
    /// What is promised from then on.
    pub curve: ServiceCurve,
}

impl Promise {
    /// A latency-rate server (Stiliadis and Varma 1998).
    pub const fn new(latency: Nanos, rate: Rate) -> Promise {
        Promise { latency, curve: ServiceCurve::linear(rate) }
    }

    /// What is left of it when `bytes` of others may go first: the same, so much later. `None` if
    /// that is never.
    ///
    /// ```
    /// # use altq_engine::{schedule::promise::Promise, units::Rate};
    /// let all = Promise::new(1_000, Rate::mbit_s(8));
    /// assert_eq!(all.after(1500), Some(Promise::new(1_501_000, Rate::mbit_s(8))));
    /// ```
    pub const fn after(&self, bytes: u64) -> Option<Promise> {
        let ServiceCurve { first, until, then } = self.curve;
        let early = first.bytes_in(until);
        let (wait, curve) = if early > bytes {
            let wait = first.time_for(bytes);
            (wait, ServiceCurve { first, until: until.saturating_sub(wait), then })
        } else {
            match then.time_for(bytes - early) {
                Nanos::MAX => return None,
                time => (until.saturating_add(time), ServiceCurve::linear(then)),
            }
        };
        match self.latency.checked_add(wait) {
            Some(latency) => Some(Promise { latency, curve }),
            None => None,
        }
    }

    /// `parts` of `of` parts of it, rates rounded down. `None` where nothing is left in the long
    /// run.
    pub fn part(&self, parts: u128, of: u128) -> Option<Promise> {
        let cut = |rate: Rate| {
            let rate = u128::from(rate.as_bit_s()).checked_mul(parts)?.checked_div(of)?;
            u64::try_from(rate).ok().map(Rate::bit_s)
        };
        let curve =
            ServiceCurve { first: cut(self.curve.first)?, until: self.curve.until, then: cut(self.curve.then)? };
        (!curve.then.is_zero()).then_some(Promise { latency: self.latency, curve })
    }

    /// The rate in the long run.
    pub const fn rate(&self) -> Rate {
        self.curve.then
    }

    /// The longest wait, until its last bit has left, of a packet before which, itself included, at
    /// most `bytes` wait: with a source that sends at most the rate and bursts of `bytes`, of any
    /// packet. `None` if there is no bound.
    ///
    /// ```
    /// # use altq_engine::{schedule::promise::Promise, units::Rate};
    /// assert_eq!(Promise::new(1_000, Rate::mbit_s(8)).delay(1500), Some(1_501_000));
    /// ```
    pub const fn delay(&self, bytes: u64) -> Option<Nanos> {
        let ServiceCurve { first, until, then } = self.curve;
        let Some(mut time) = self.curve.time_for(bytes) else { return None };
        // Of a convex curve the knee is furthest from a source that sends at the second slope all
        // the while.
        let early = first.bytes_in(until);
        if first.as_bit_s() < then.as_bit_s() && bytes < early {
            let sooner = then.time_for(early - bytes).saturating_sub(1);
            let knee = until.saturating_sub(sooner);
            time = if knee > time { knee } else { time };
        }
        self.latency.checked_add(time)
    }

    /// What holds from any moment on at which the class has packets, not only from that at which it
    /// began to wait: the second slope, late by what a slow beginning costs. A scheduler inside
    /// counts on this, for packets may come to one of its classes at any time.
    pub const fn steady(&self) -> Promise {
        let ServiceCurve { first, until, then } = self.curve;
        let slow = if first.as_bit_s() < then.as_bit_s() {
            // What the first piece gives takes so long at the second slope; a nanosecond less, for
            // it was rounded up.
            until.saturating_sub(then.time_for(first.bytes_in(until)).saturating_sub(1))
        } else {
            0
        };
        Promise::new(self.latency.saturating_add(slow), then)
    }
}

/// A class as its scheduler sees it.
#[derive(Clone, Copy, Debug)]
pub struct Member<'s> {
    /// The class above among these, by index; `None` right below the scheduler.
    pub parent: Option<usize>,
    /// Its words.
    pub settings: &'s Settings,
    /// It has no classes below it in this scheduler.
    pub leaf: bool,
    /// Packets go to the class itself, or to the scheduler that it holds. Always true of a leaf.
    pub packets: bool,
    /// Its scheduler can only guess how long its next packet is: the class holds a scheduler of its
    /// own, or a queue that [guesses](crate::queue::Entry::guesses).
    pub holds: bool,
}

/// The place a scheduler works in, and all that it serves there.
#[derive(Clone, Copy, Debug)]
pub struct Place<'s> {
    /// What the scheduler itself is promised: the link's rate without latency, or the promise of
    /// the class that holds it as far as it is [steady](Promise::steady).
    pub promised: Promise,
    /// The rate by which shares are measured.
    pub rate: Rate,
    /// The largest packet, in bytes charged on the wire.
    pub packet: u32,
    /// The scheduler's own words.
    pub scheduler: &'s Settings,
    /// Its classes, parents first.
    pub classes: &'s [Member<'s>],
}

/// Works out what each class is promised, or says in half a sentence why nothing is. All at once:
/// what the others may do is added up once, so that a link of many classes takes no longer than its
/// classes are.
pub type Promised = fn(&Place<'_>) -> Vec<Result<Promise, String>>;

/// Works out the rate of each class in the long run, while all of them have packets; `None` where
/// nobody can say. For all classes at once, in their order.
pub type LongRun = fn(&Place<'_>) -> Option<Vec<Rate>>;

/// The delay bound of a class, where its scheduler knows a better one than follows from its
/// promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The longest wait, until its last bit has left, of a packet within guarantee.
    pub conforming: Nanos,
    /// At which the class is served beyond that.
    pub rate: Rate,
    /// What its source may send at once, bytes.
    pub burst: u64,
    /// In packets of at most so many bytes.
    pub packetsize: u64,
}

/// Works out the bounds of all classes that the link's own scheduler serves, by class; or says in
/// half a sentence why there is none.
pub type Bounds = fn(&LinkSpec) -> Vec<Result<Bound, String>>;

/// A class that holds packets, as [`Kept`] counts it.
#[derive(Clone, Copy, Debug)]
pub struct Leaf<'s> {
    /// Its words.
    pub settings: &'s Settings,
    /// What it is guaranteed beyond what its children are.
    pub rate: Rate,
    /// Its scheduler can only guess how long its next packet is: see [`Member::holds`].
    pub guesses: bool,
    /// It holds another scheduler.
    pub holds: bool,
}

/// The [`Bounds`] of a link whose classes come and go one by one. What the classes may do together
/// is kept as sums, so no call takes time that grows with the number of classes. A bound is the
/// same as the one that [`Bounds`] works out anew.
pub trait Kept: Send {
    /// A class comes, or what holds of it now is this.
    fn add(&mut self, leaf: Leaf<'_>);

    /// A class goes, or this no longer holds of it. It was [added](Kept::add) with the same values.
    fn remove(&mut self, leaf: Leaf<'_>);

    /// The bound of a class that was added; or why there is none, in half a sentence.
    fn bound(&self, leaf: Leaf<'_>) -> Result<Bound, String>;
}

/// The same reason for all classes of a place.
pub(super) fn none(place: &Place<'_>, why: impl Into<String>) -> Vec<Result<Promise, String>> {
    vec![Err(why.into()); place.classes.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(first: u64, until: Nanos, then: u64) -> Promise {
        let curve = ServiceCurve { first: Rate::mbit_s(first), until, then: Rate::mbit_s(then) };
        Promise { latency: 1_000, curve }
    }

    #[test]
    fn the_furthest_from_a_conforming_source_by_hand() {
        // 8 Mbit/s for 1 ms, 1000 bytes, then 16: 500 bytes at 0 take 0.5 ms, but what comes at 16
        // Mbit/s behind them, up to the 1000th byte at 0.25 ms, leaves at the knee: 0.75 ms.
        let delay = curve(8, 1_000_000, 16).delay(500).unwrap();
        assert!((751_000..=751_002).contains(&delay), "{delay}");
        assert_eq!(curve(8, 1_000_000, 16).delay(2000), Some(1_501_000));
        // Concave: the beginning is furthest.
        assert_eq!(curve(16, 1_000_000, 8).delay(500), Some(251_000));
    }

    #[test]
    fn what_is_steady_by_hand() {
        // 1000 bytes in the first ms where 16 Mbit/s would give 2000: half a millisecond late.
        let steady = curve(8, 1_000_000, 16).steady();
        assert!(
            (501_000..=501_002).contains(&steady.latency) && steady.curve == ServiceCurve::linear(Rate::mbit_s(16))
        );
        assert_eq!(curve(16, 1_000_000, 8).steady(), Promise::new(1_000, Rate::mbit_s(8)));
    }
}
