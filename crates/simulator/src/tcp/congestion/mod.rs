//! Congestion control: how the window grows, and what is left of it after a loss.
//!
//! Windows are counted in segments, as Linux does. Tahoe, Reno and NewReno differ in recovery only
//! (`recovery.rs`).

mod bbr;
mod cubic;
mod hystart;
mod policer;

use altq_engine::units::{Nanos, SECOND};

use self::bbr::Bbr;
#[cfg(test)]
pub use self::bbr::Mode;
pub use self::bbr::Progress;
use self::cubic::Cubic;
use self::hystart::SlowStart;
use super::config::{Algorithm, Config};
use super::pacer::Pace;

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
    bbr: Option<Box<Bbr>>,
}

impl Control {
    /// At the start.
    pub fn new(config: &Config) -> Control {
        Control {
            slow: SlowStart::new(config.hystart),
            bbr: (config.congestion == Algorithm::Bbr)
                .then(|| Box::new(Bbr::new(config.bytes(config.timestamps, 0, u32::from(config.mss))))),
            cubic: (config.congestion == Algorithm::Cubic).then(|| Cubic::new(config.cubic_catches_up)),
        }
    }

    /// The window follows from a model of the path alone: no reduction, no slow start.
    pub fn models(&self) -> bool {
        self.bbr.is_some()
    }

    /// What the model is doing.
    #[cfg(test)]
    pub fn mode(&self) -> Option<Mode> {
        self.bbr.as_ref().map(|bbr| bbr.mode())
    }

    /// An acknowledgement for the model. True: the window is small on purpose.
    pub fn modelled(&mut self, window: &mut Window, progress: &Progress) -> bool {
        self.bbr.as_mut().is_some_and(|bbr| bbr.acked(window, progress))
    }

    /// The pace at which segments may go; `bytes` of a full one's packet.
    pub fn pace(&mut self, window: &Window, srtt: Option<Nanos>, bytes: u32) -> Pace {
        if let Some(bbr) = &mut self.bbr {
            return bbr.pace(window, srtt);
        }
        let ratio = if window.cwnd < window.ssthresh / 2 { 2.0 } else { 1.2 };
        Pace::new(ratio * f64::from(window.cwnd) * SECOND as f64 / srtt.unwrap_or(SECOND / 1000).max(1) as f64, bytes)
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

    /// A loss or a mark: the threshold that follows (RFC 5681 3.1 equation 4, RFC 9438 4.6). At
    /// least two segments.
    pub fn reduced(&mut self, window: &Window) -> u32 {
        if let Some(bbr) = &mut self.bbr {
            return bbr.reduced(window);
        }
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
        if let Some(bbr) = &mut self.bbr {
            bbr.undo();
        }
    }

    /// A timeout.
    pub fn timed_out(&mut self) {
        if let Some(cubic) = &mut self.cubic {
            cubic.timed_out();
        }
        if let Some(bbr) = &mut self.bbr {
            bbr.timed_out();
        }
    }

    /// Sending begins anew after a silence of `idle`.
    pub fn resumed(&mut self, idle: Nanos) {
        if let Some(cubic) = &mut self.cubic {
            cubic.resumed(idle);
        }
        if let Some(bbr) = &mut self.bbr {
            bbr.resumed();
        }
    }
}
