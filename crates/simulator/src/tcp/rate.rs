//! How fast segments arrive (draft-cheng-iccrg-delivery-rate-estimation-00), for congestion control
//! that models the path.

use std::collections::VecDeque;

use altq_engine::units::Nanos;

use super::scoreboard::Sent;

/// What is noted of a segment when it is sent (section 3.2 there).
#[derive(Clone, Copy, Debug)]
struct Stamp {
    delivered: u64,
    delivered_at: Nanos,
    first_sent: Nanos,
    limited: bool,
}

/// Of the latest sent segment that an acknowledgement tells of.
#[derive(Clone, Copy, Debug)]
struct Latest {
    stamp: Stamp,
    sent: Nanos,
    end: u64,
}

/// A sample of the delivery rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// So many segments arrived in this time.
    pub delivered: u64,
    /// See `delivered`.
    pub interval: Nanos,
    /// What had been delivered when the segment was sent.
    pub prior: u64,
    /// The application had nothing to send then: the path may be faster.
    pub limited: bool,
}

/// The connection's part (section 3.1.1 there).
#[derive(Debug, Default)]
pub struct Rate {
    /// Segments delivered so far.
    pub delivered: u64,
    delivered_at: Nanos,
    first_sent: Nanos,
    /// Samples of what is sent before so many are delivered are limited by the application; 0:
    /// none.
    limited: u64,
    /// One a segment on the scoreboard.
    stamps: VecDeque<Stamp>,
    latest: Option<Latest>,
}

impl Rate {
    fn stamp(&self) -> Stamp {
        Stamp {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            limited: self.limited > 0,
        }
    }

    /// A new segment goes; `alone`: nothing else is on its way (3.2).
    pub fn sent(&mut self, now: Nanos, alone: bool) {
        if alone {
            (self.first_sent, self.delivered_at) = (now, now);
        }
        let stamp = self.stamp();
        self.stamps.push_back(stamp);
    }

    /// A segment goes again.
    pub fn resent(&mut self, index: usize) {
        let stamp = self.stamp();
        if let Some(slot) = self.stamps.get_mut(index) {
            *slot = stamp;
        }
    }

    /// A segment has arrived (3.3, UpdateRateSample).
    pub fn arrived(&mut self, index: usize, sent: &Sent) {
        self.delivered += 1;
        if self.latest.is_none_or(|latest| (sent.sent, sent.end()) > (latest.sent, latest.end))
            && let Some(stamp) = self.stamps.get(index).copied()
        {
            self.latest = Some(Latest { stamp, sent: sent.sent, end: sent.end() });
        }
    }

    /// The first segment is acknowledged by number.
    pub fn pop(&mut self) {
        self.stamps.pop_front();
    }

    /// The application has nothing more to send (3.4), or the window was kept small on purpose.
    pub fn limit(&mut self, in_flight: u32) {
        self.limited = (self.delivered + u64::from(in_flight)).max(1);
    }

    /// Whether samples are limited by the application now.
    pub fn is_limited(&self) -> bool {
        self.limited > 0
    }

    /// An acknowledgement has been gone through (3.3, GenerateRateSample). `None` if it tells of
    /// nothing new, or of less than a round trip.
    pub fn sample(&mut self, now: Nanos, shortest: Nanos) -> Option<Sample> {
        if self.limited > 0 && self.delivered > self.limited {
            self.limited = 0;
        }
        let Latest { stamp, sent, .. } = self.latest.take()?;
        // What was sent and what was acknowledged since, over the longer of both times: neither
        // bursts nor compressed acknowledgements count.
        let interval = sent.saturating_sub(stamp.first_sent).max(now.saturating_sub(stamp.delivered_at));
        (self.delivered_at, self.first_sent) = (now, sent);
        (interval >= shortest.max(1)).then_some(Sample {
            delivered: self.delivered - stamp.delivered,
            interval,
            prior: stamp.delivered,
            limited: stamp.limited,
        })
    }

    /// Room of the notes, in bytes.
    pub fn memory(&self) -> usize {
        size_of::<Rate>() + self.stamps.capacity() * size_of::<Stamp>()
    }
}
