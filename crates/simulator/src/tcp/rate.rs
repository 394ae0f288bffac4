//! Estimation of the delivery rate, the rate at which the receiver gets segments. BBR models the
//! path with it.
//!
//! "Rate draft" in this file is draft-cheng-iccrg-delivery-rate-estimation-00; the number after it
//! is the section there.

use std::collections::VecDeque;

use altq_engine::units::Nanos;

use super::scoreboard::Sent;

/// The connection's counters when a segment was sent (Rate draft 3.2).
#[derive(Clone, Copy, Debug)]
struct Stamp {
    delivered: u64,
    delivered_at: Nanos,
    first_sent: Nanos,
    limited: bool,
}

/// Of the segments that an acknowledgement reports, the one that was sent last.
#[derive(Clone, Copy, Debug)]
struct Latest {
    stamp: Stamp,
    sent: Nanos,
    end: u64,
}

/// A sample of the delivery rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Segments delivered in `interval`.
    pub delivered: u64,
    /// The time that this took, in nanoseconds.
    pub interval: Nanos,
    /// Segments that had been delivered when the sampled segment was sent.
    pub prior: u64,
    /// The application had nothing more to send then, so the path may be faster than the sample.
    pub limited: bool,
}

/// The state of a connection (Rate draft 3.1.1).
#[derive(Debug, Default)]
pub struct DeliveryRate {
    /// Segments delivered so far.
    pub delivered: u64,
    delivered_at: Nanos,
    first_sent: Nanos,
    /// Until this many segments are delivered, samples count as limited by the application; 0: they
    /// do not.
    limited: u64,
    /// A stamp for each segment on the scoreboard, in the same order.
    stamps: VecDeque<Stamp>,
    latest: Option<Latest>,
}

impl DeliveryRate {
    fn stamp(&self) -> Stamp {
        Stamp {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            limited: self.limited > 0,
        }
    }

    /// A new segment is sent. `alone`: no other is in flight (Rate draft 3.2).
    pub fn sent(&mut self, now: Nanos, alone: bool) {
        if alone {
            (self.first_sent, self.delivered_at) = (now, now);
        }
        let stamp = self.stamp();
        self.stamps.push_back(stamp);
    }

    /// The segment at `index` of the scoreboard is retransmitted.
    pub fn resent(&mut self, index: usize) {
        let stamp = self.stamp();
        if let Some(slot) = self.stamps.get_mut(index) {
            *slot = stamp;
        }
    }

    /// An acknowledgement reports the segment at `index` of the scoreboard (Rate draft 3.3,
    /// UpdateRateSample).
    pub fn arrived(&mut self, index: usize, sent: &Sent) {
        self.delivered += 1;
        if self.latest.is_none_or(|latest| (sent.sent, sent.end()) > (latest.sent, latest.end))
            && let Some(stamp) = self.stamps.get(index).copied()
        {
            self.latest = Some(Latest { stamp, sent: sent.sent, end: sent.end() });
        }
    }

    /// The first segment leaves the scoreboard: it is acknowledged by number.
    pub fn pop(&mut self) {
        self.stamps.pop_front();
    }

    /// Samples are limited from now on, until what is in flight is delivered: the application has
    /// nothing more to send (Rate draft 3.4), or the window is kept small on purpose.
    pub fn limit(&mut self, in_flight: u32) {
        self.limited = (self.delivered + u64::from(in_flight)).max(1);
    }

    /// Whether samples are limited by the application now.
    pub fn is_limited(&self) -> bool {
        self.limited > 0
    }

    /// The sample that an acknowledgement gives, after [`DeliveryRate::arrived`] for each segment
    /// that it reports (Rate draft 3.3, GenerateRateSample). `None` if it reports nothing new, or
    /// if the interval is below `shortest`, the shortest round-trip time.
    pub fn sample(&mut self, now: Nanos, shortest: Nanos) -> Option<Sample> {
        if self.limited > 0 && self.delivered > self.limited {
            self.limited = 0;
        }
        let Latest { stamp, sent, .. } = self.latest.take()?;
        // The interval is the longer of the time of sending and the time of acknowledging. So
        // neither a burst of segments nor one of acknowledgements makes the rate look higher than
        // it is.
        let interval = sent.saturating_sub(stamp.first_sent).max(now.saturating_sub(stamp.delivered_at));
        (self.delivered_at, self.first_sent) = (now, sent);
        (interval >= shortest.max(1)).then_some(Sample {
            delivered: self.delivered - stamp.delivered,
            interval,
            prior: stamp.delivered,
            limited: stamp.limited,
        })
    }

    /// Memory that this takes, in bytes.
    pub fn memory(&self) -> usize {
        size_of::<DeliveryRate>() + self.stamps.capacity() * size_of::<Stamp>()
    }
}
