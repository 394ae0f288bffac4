//! What stands between a link's scheduler and its device, so that packets wait in the scheduler's
//! queues and not in the device: by the word `regulator`, a [`Pacer`] or a [`TokenBucket`].

use super::pacer::Pacer;
use super::token_bucket::TokenBucket;
use crate::spec::{Regulator, Timer};
use crate::units::{Nanos, Rate};

/// A regulator at work.
#[derive(Clone, Debug)]
pub(crate) enum Limiter {
    /// `auto`.
    Pacer(Pacer),
    /// `altq`, or a depth that is written.
    Bucket(TokenBucket),
}

impl Limiter {
    /// Whether a packet may leave now.
    #[inline]
    pub fn ready(&mut self, now: Nanos) -> bool {
        match self {
            Limiter::Pacer(pacer) => pacer.ready(now),
            Limiter::Bucket(bucket) => bucket.ready(now),
        }
    }

    /// A packet of `bytes` on the wire that was seen at `arrived` leaves now.
    #[inline]
    pub fn sent(&mut self, now: Nanos, arrived: Nanos, bytes: u32) {
        match self {
            Limiter::Pacer(pacer) => pacer.sent(now, arrived, bytes),
            Limiter::Bucket(bucket) => bucket.spend(bytes),
        }
    }

    /// When the last packet of a pacer ends, if that is after `now`: until then no packet leaves.
    /// `None` for a token bucket.
    #[inline]
    pub fn busy_until(&mut self, now: Nanos) -> Option<Nanos> {
        let Limiter::Pacer(pacer) = self else { return None };
        let at = pacer.ready_at();
        (at > now).then(|| {
            pacer.name(Some(at));
            at
        })
    }

    /// When the engine should be asked next, if its schedulers would send at `at`. `timer`: when
    /// the caller's timers can fire.
    #[inline]
    pub fn next_wakeup(&mut self, now: Nanos, at: Option<Nanos>, timer: Timer) -> Option<Nanos> {
        match (self, timer) {
            (Limiter::Pacer(pacer), _) => {
                pacer.name(at.map(|at| at.max(now)));
                at
            }
            (Limiter::Bucket(bucket), Timer::Exact) => at.map(|at| at.max(bucket.ready_at())),
            // ALTQ's regulator starts the device on every tick while packets are queued
            // (docs/reference/altq.md 1.3). While the schedulers wait for an arrival or a change,
            // such a start would send nothing, so there is none.
            (Limiter::Bucket(bucket), Timer::Tick(tick)) => {
                let tick = tick.max(1);
                let next = (now / tick + 1).saturating_mul(tick);
                match at {
                    Some(at) if at > now => Some(at.min(next)),
                    Some(_) if bucket.ready_at() <= now => at,
                    Some(_) => Some(next),
                    None => None,
                }
            }
        }
    }

    /// A change at `now` may let packets leave that wait.
    pub fn changed(&mut self, now: Nanos) {
        if let Limiter::Pacer(pacer) = self {
            pacer.changed(now);
        }
    }
}

impl Regulator {
    /// The depth in bytes of the token bucket, on a link of this rate and MTU whose timers fire as
    /// `timer` says. `None`: it is no token bucket.
    pub fn depth(self, rate: Rate, mtu: u32, timer: Timer) -> Option<u32> {
        match (self, timer) {
            (Regulator::None | Regulator::Auto, _) => None,
            (Regulator::Altq, Timer::Exact) => Some(TokenBucket::auto_depth(rate, mtu)),
            // A smaller bucket could not keep its own rate, as it is only looked at once a tick
            // (docs/reference/altq.md 1.3, `tbrconfig auto`).
            (Regulator::Altq, Timer::Tick(tick)) => {
                let tick = u32::try_from(rate.bytes_in(tick)).unwrap_or(u32::MAX);
                Some(TokenBucket::auto_depth(rate, mtu).max(tick))
            }
            (Regulator::Depth(depth), _) => Some(depth),
        }
    }
}
