//! Congestion control: how the window grows, and to what it shrinks after a loss.
//!
//! Windows are counted in segments, as in Linux. Tahoe, Reno and NewReno differ only in how they
//! recover (`recovery.rs`).

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
    /// Segments that may be in flight.
    pub cwnd: u32,
    /// Where slow start ends; `u32::MAX` before the first loss.
    pub ssthresh: u32,
    /// Acknowledged segments that have not made the window grow yet.
    pub count: u32,
}

impl Window {
    /// Whether the connection is in slow start: the window is below the threshold, and grows by
    /// what is acknowledged (RFC 5681 3.1).
    pub fn slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Grows the window by `acked`, but not above the threshold. Returns what is left of `acked`.
    fn grow(&mut self, acked: u32) -> u32 {
        let room = self.ssthresh.saturating_sub(self.cwnd);
        let step = acked.min(room);
        self.cwnd += step;
        acked - step
    }

    /// Grows the window by a segment for every `per` acknowledged. This is equation 3 of RFC 5681
    /// 3.1 done by counting (RFC 3465 2.1).
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
    /// The first sequence number that is not acknowledged.
    pub una: u64,
    /// The next sequence number to be sent.
    pub next: u64,
    /// The round-trip time of the latest segment that it acknowledges.
    pub rtt: Option<Nanos>,
    /// The smoothed round-trip time.
    pub srtt: Option<Nanos>,
    /// The shortest round-trip time so far.
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
    /// The state before the first segment.
    pub fn new(config: &Config) -> Control {
        Control {
            slow: SlowStart::new(config.hystart),
            bbr: (config.congestion == Algorithm::Bbr)
                .then(|| Box::new(Bbr::new(config.bytes(config.timestamps, 0, u32::from(config.mss))))),
            cubic: (config.congestion == Algorithm::Cubic).then(|| Cubic::new(config.cubic_catches_up)),
        }
    }

    /// True for BBR: the window follows from a model of the path, without slow start and without
    /// reductions.
    pub fn is_model_based(&self) -> bool {
        self.bbr.is_some()
    }

    /// BBR's state; `None` for other algorithms.
    #[cfg(test)]
    pub fn mode(&self) -> Option<Mode> {
        self.bbr.as_ref().map(|bbr| bbr.mode())
    }

    /// Hands an acknowledgement to BBR, see [`Bbr::acked`]. True if the window is small on purpose.
    pub fn acked_by_model(&mut self, window: &mut Window, progress: &Progress) -> bool {
        self.bbr.as_mut().is_some_and(|bbr| bbr.acked(window, progress))
    }

    /// The pacing rate; a full segment's packet has `bytes`.
    pub fn pace(&mut self, window: &Window, srtt: Option<Nanos>, bytes: u32) -> Pace {
        if let Some(bbr) = &mut self.bbr {
            return bbr.pace(window, srtt);
        }
        let ratio = if window.cwnd < window.ssthresh / 2 { 2.0 } else { 1.2 };
        Pace::new(ratio * f64::from(window.cwnd) * SECOND as f64 / srtt.unwrap_or(SECOND / 1000).max(1) as f64, bytes)
    }

    /// Grows the window for an acknowledgement. Called only if the window was used to the full.
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

    /// The new threshold after a loss or a mark: at least two segments (RFC 5681 3.1 equation 4,
    /// RFC 9438 4.6).
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

    /// The last reduction was found needless.
    pub fn undo(&mut self) {
        if let Some(cubic) = &mut self.cubic {
            cubic.undo();
        }
        if let Some(bbr) = &mut self.bbr {
            bbr.undo();
        }
    }

    /// The retransmission timeout has expired.
    pub fn timed_out(&mut self) {
        if let Some(cubic) = &mut self.cubic {
            cubic.timed_out();
        }
        if let Some(bbr) = &mut self.bbr {
            bbr.timed_out();
        }
    }

    /// Sending begins again after nothing was sent for `idle`.
    pub fn resumed(&mut self, idle: Nanos) {
        if let Some(cubic) = &mut self.cubic {
            cubic.resumed(idle);
        }
        if let Some(bbr) = &mut self.bbr {
            bbr.resumed();
        }
    }
}
