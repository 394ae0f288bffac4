//! Service curves: for each time, the least service that a class gets within it from the moment at
//! which it becomes backlogged (Cruz 1991; Stoica, Zhang and Ng 1997).

use crate::units::{Nanos, Rate};

/// A two-piece linear curve: `first` for the time `until`, then `then`. Linear if `until` is 0.
///
/// A concave curve (`first` > `then`) gives a low delay to a class of a low rate. A convex one
/// (`first` < `then`; `first` is often 0) gives little service at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceCurve {
    /// The slope of the first piece.
    pub first: Rate,
    /// How long the first piece lasts, ns.
    pub until: Nanos,
    /// The slope of the second piece.
    pub then: Rate,
}

impl ServiceCurve {
    /// A straight line through the origin.
    pub const fn linear(rate: Rate) -> ServiceCurve {
        ServiceCurve { first: rate, until: 0, then: rate }
    }

    /// No service for `latency`, then `rate`: a latency-rate server (Stiliadis and Varma 1998).
    pub const fn latency_rate(latency: Nanos, rate: Rate) -> ServiceCurve {
        ServiceCurve { first: Rate::ZERO, until: latency, then: rate }
    }

    /// The bytes of service due after `time`, rounded down.
    ///
    /// ```
    /// # use altq_engine::{shape::service_curve::ServiceCurve, units::Rate};
    /// let (first, then) = (Rate::mbit_s(2), Rate::mbit_s(1));
    /// let curve = ServiceCurve { first, until: 5_000_000, then };
    /// assert_eq!(curve.bytes_in(5_000_000), 1250);
    /// assert_eq!(curve.bytes_in(13_000_000), 2250);
    /// ```
    pub const fn bytes_in(&self, time: Nanos) -> u64 {
        if time <= self.until {
            return self.first.bytes_in(time);
        }
        self.first.bytes_in(self.until).saturating_add(self.then.bytes_in(time - self.until))
    }

    /// The time after which `bytes` of service are due, rounded up; `None` if that is never.
    ///
    /// ```
    /// # use altq_engine::{shape::service_curve::ServiceCurve, units::Rate};
    /// let curve = ServiceCurve::latency_rate(1_000_000, Rate::mbit_s(8));
    /// assert_eq!(curve.time_for(1500), Some(2_500_000));
    /// ```
    pub const fn time_for(&self, bytes: u64) -> Option<Nanos> {
        let early = self.first.bytes_in(self.until);
        if bytes <= early && !self.first.is_zero() {
            return Some(self.first.time_for(bytes));
        }
        match self.then.time_for(bytes.saturating_sub(early)) {
            Nanos::MAX => None,
            time => self.until.checked_add(time),
        }
    }
}

/// The first corner of the curves (a time at which one of them changes its slope), in ns, by which
/// their sum exceeds `whole`; it may exceed it before that corner already. [`Nanos::MAX`] if only
/// the sum of the long-run rates exceeds it; `None` if the sum never exceeds it.
///
/// ```
/// # use altq_engine::{shape::service_curve::{ServiceCurve, excess}, units::Rate};
/// let voice = ServiceCurve { first: Rate::mbit_s(8), until: 5_000_000, then: Rate::mbit_s(1) };
/// let whole = ServiceCurve::linear(Rate::mbit_s(10));
/// assert_eq!(excess(&[voice, ServiceCurve::linear(Rate::mbit_s(2))], &whole), None);
/// assert_eq!(excess(&[voice, voice], &whole), Some(5_000_000));
/// ```
pub fn excess(curves: &[ServiceCurve], whole: &ServiceCurve) -> Option<Nanos> {
    let bits = |rate: Rate| u128::from(rate.as_bit_s());
    // The times at which a slope changes, and by how much the sum's slope changes there. Between
    // them the sum and `whole` are straight lines.
    let mut corners: Vec<(Nanos, i128)> = vec![(whole.until, 0)];
    let (mut slope, mut last) = (0_i128, 0_i128);
    for curve in curves {
        let (first, then) = (bits(curve.first) as i128, bits(curve.then) as i128);
        last = last.saturating_add(then);
        if curve.until > 0 {
            slope = slope.saturating_add(first);
            corners.push((curve.until, then - first));
        } else {
            slope = slope.saturating_add(then);
        }
    }
    corners.sort_unstable();
    let (mut at, mut sum) = (0, 0_i128);
    for (time, change) in corners {
        sum = sum.saturating_add(slope.saturating_mul(i128::from(time - at)));
        (at, slope) = (time, slope.saturating_add(change));
        let early = bits(whole.first).saturating_mul(u128::from(time.min(whole.until)));
        let late = bits(whole.then).saturating_mul(u128::from(time.saturating_sub(whole.until)));
        if sum > i128::try_from(early.saturating_add(late)).unwrap_or(i128::MAX) {
            return Some(time);
        }
    }
    (last > bits(whole.then) as i128).then_some(Nanos::MAX)
}
