//! Congestion control: how the window grows, and what is left of it after a loss.
//!
//! Windows are counted in segments, as Linux does. Tahoe, Reno and NewReno differ in recovery only (`recovery.rs`).

mod cubic;
mod hystart;

use altq_engine::units::Nanos;

use self::cubic::Cubic;
use self::hystart::SlowStart;
use super::config::{Algorithm, Config};

/// The congestion window and what bounds its growth.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Segments that may be on their way.
    pub cwnd: u32,
    /// Where slow start ends; `u32::MAX` before the first loss.
    pub ssthresh: u32,
    /// What was acknowledged and has not made the window grow yet, in segments.
    pub count: u32,
}

impl Window {
    /// RFC 5681 3.1: below the threshold the window grows by what is acknowledged.
    pub fn slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Grows by `acked` up to the threshold; what is left.
    fn grow(&mut self, acked: u32) -> u32 {
        let room = self.ssthresh.saturating_sub(self.cwnd);
        let step = acked.min(room);
        self.cwnd += step;
        acked - step
    }

    /// One segment for every `per` acknowledged (RFC 5681 3.1, equation 3, counted: RFC 3465 2.1).
    fn count(&mut self, per: u32, acked: u32) {
        let per = per.max(1);
        self.count += acked;
        let step = self.count / per;
        self.count -= step * per;
        self.cwnd = self.cwnd.saturating_add(step);
    }
}

/// An acknowledgement, as congestion control sees it.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// The time.
    pub now: Nanos,
    /// Segments newly delivered.
    pub acked: u32,
    /// Acknowledged by number; the next to be sent.
    pub una: u64,
    /// See `una`.
    pub next: u64,
    /// The round-trip time of the last segment that it acknowledges.
    pub rtt: Option<Nanos>,
    /// Smoothed and shortest round-trip time.
    pub srtt: Option<Nanos>,
    /// See `srtt`.
    pub min_rtt: Option<Nanos>,
}

/// The state of a connection's congestion control.
#[derive(Debug)]
pub struct Control {
    slow: SlowStart,
    cubic: Option<Cubic>,
}

impl Control {
    /// At the start.
    pub fn new(config: &Config) -> Control {
        Control {
            slow: SlowStart::new(config.hystart),
            cubic: (config.congestion == Algorithm::Cubic).then(|| Cubic::new(config.cubic_catches_up)),
        }
    }

    /// An acknowledgement came and the window was in use.
    pub fn acked(&mut self, window: &mut Window, ack: &Ack) {
        let mut acked = ack.acked;
        if window.slow_start() {
            acked = self.slow.grow(window, ack);
            if acked == 0 {
                return;
            }
        }
        match &mut self.cubic {
            Some(cubic) => cubic.acked(window, ack, acked),
            None => window.count(window.cwnd, acked),
        }
    }

    /// A loss or a mark: the threshold that follows (RFC 5681 3.1 equation 4, RFC 9438 4.6). At least two segments.
    pub fn reduced(&mut self, window: &Window) -> u32 {
        let next = match &mut self.cubic {
            Some(cubic) => cubic.reduced(window),
            None => window.cwnd / 2,
        };
        next.max(2)
    }

    /// The reduction was needless.
    pub fn undo(&mut self) {
        if let Some(cubic) = &mut self.cubic {
            cubic.undo();
        }
    }

    /// A timeout.
    pub fn timed_out(&mut self) {
        if let Some(cubic) = &mut self.cubic {
            cubic.timed_out();
        }
    }

    /// Sending begins anew after a silence of `idle`.
    pub fn resumed(&mut self, idle: Nanos) {
        if let Some(cubic) = &mut self.cubic {
            cubic.resumed(idle);
        }
    }
}
