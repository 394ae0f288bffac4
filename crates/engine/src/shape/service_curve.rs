//! Service curves: how much a class has been served at least, a time after it began to wait (Cruz 1991; Stoica, Zhang and Ng 1997).

use crate::units::{Nanos, Rate};

/// A two-piece linear curve: `first` for the time `until`, then `then`. Linear if `until` is 0.
///
/// Concave (`first` > `then`) gives a low delay at a low rate, convex (`first` < `then`, often 0) takes time to begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceCurve {
    /// The slope of the first piece.
    pub first: Rate,
    /// How long that lasts, ns.
    pub until: Nanos,
    /// The slope from then on.
    pub then: Rate,
}

impl ServiceCurve {
    /// A straight line through the origin.
    pub const fn linear(rate: Rate) -> ServiceCurve {
        ServiceCurve { first: rate, until: 0, then: rate }
    }

    /// Nothing for `latency`, then `rate`: what a latency-rate server gives (Stiliadis and Varma 1998).
    pub const fn latency_rate(latency: Nanos, rate: Rate) -> ServiceCurve {
        ServiceCurve { first: Rate::ZERO, until: latency, then: rate }
    }

    /// The bytes of service due after `time`, rounded down.
    ///
    /// ```
    /// # use altq_engine::{shape::service_curve::ServiceCurve, units::Rate};
    /// let curve = ServiceCurve { first: Rate::mbit_s(2), until: 5_000_000, then: Rate::mbit_s(1) };
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
