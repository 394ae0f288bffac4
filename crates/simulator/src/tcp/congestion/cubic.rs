//! CUBIC (RFC 9438): the window is a cubic function of the time since the last reduction. The
//! function has its inflection point at the window that the loss came at.
//!
//! All arithmetic is addition, multiplication and division of doubles, and the cube root is made of
//! these. So results are the same on every machine.

use altq_engine::units::{Nanos, SECOND};

use super::{Ack, Window};

/// RFC 9438 4.6: the part of the window that is left after a loss.
const BETA: f64 = 0.7;
/// RFC 9438 5.1: the function's factor, in segments per second cubed.
const C: f64 = 0.4;
/// RFC 9438 4.3: segments per round trip. With this growth and [`BETA`] the average window is that
/// of Reno: 3 (1 - beta) / (1 + beta).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// CUBIC's state; windows in segments, times in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cubic {
    /// When this epoch of congestion avoidance began; `None` before its first acknowledgement.
    epoch: Option<Nanos>,
    /// The window at the inflection point.
    w_max: f64,
    /// The time from the epoch's beginning to the inflection point.
    k: f64,
    /// The window that Reno would have if it had begun with the epoch.
    w_est: f64,
    /// The window before the last reduction.
    prior: f64,
    /// The growth that is not a whole segment yet.
    fraction: f64,
    /// `w_max` and `prior` before the last reduction, in case that it is found needless.
    before: (f64, f64),
    /// Alpha becomes 1 above `prior` (RFC 9438 4.3).
    catches_up: bool,
    /// A timeout came last: the inflection point will be at the window with which the epoch begins
    /// (RFC 9438 4.8).
    after_timeout: bool,
}

impl Cubic {
    /// The state before the first loss. `catches_up`: alpha becomes 1 above the prior window (RFC
    /// 9438 4.3).
    pub fn new(catches_up: bool) -> Cubic {
        Cubic { catches_up, ..Cubic::default() }
    }

    /// RFC 9438 4.2: `acked` segments were acknowledged in congestion avoidance.
    pub fn acked(&mut self, window: &mut Window, ack: &Ack, acked: u32) {
        let cwnd = f64::from(window.cwnd);
        let start = match self.epoch {
            Some(start) => start,
            None => {
                self.begin(cwnd);
                *self.epoch.insert(ack.now)
            }
        };
        let elapsed = seconds(ack.now.saturating_sub(start));
        let rtt = seconds(ack.srtt.unwrap_or(0));
        // RFC 9438 4.3: Reno's window. Above the window before the reduction alpha is Reno's own.
        let alpha = if self.catches_up && self.w_est >= self.prior { 1.0 } else { ALPHA };
        self.w_est += alpha * f64::from(acked) / cwnd;
        let at = |t: f64| C * (t - self.k) * (t - self.k) * (t - self.k) + self.w_max;
        let growth = if at(elapsed) < self.w_est {
            // RFC 9438 4.3: the Reno-friendly region.
            (self.w_est - cwnd - self.fraction).max(0.0)
        } else {
            // RFC 9438 4.2, 4.4, 4.5: what the function says a round trip from now, neither less
            // than now nor half as much again.
            let target = at(elapsed + rtt).clamp(cwnd, 1.5 * cwnd);
            (target - cwnd) / cwnd * f64::from(acked)
        };
        self.fraction += growth;
        let whole = self.fraction.floor().min(f64::from(u32::MAX / 2));
        self.fraction -= whole;
        window.cwnd = window.cwnd.saturating_add(whole as u32);
    }

    /// Begins an epoch (RFC 9438 4.2).
    fn begin(&mut self, cwnd: f64) {
        (self.w_est, self.fraction) = (cwnd, 0.0);
        if self.after_timeout || self.w_max <= cwnd {
            // RFC 9438 4.8, 4.10: without a loss before, the inflection point is the present
            // window. So it is in Linux (bictcp_update of net/ipv4/tcp_cubic.c) where the window is
            // above the last one already.
            (self.w_max, self.k) = (cwnd, 0.0);
        } else {
            self.k = cube_root((self.w_max - cwnd) / C);
        }
        self.after_timeout = false;
    }

    /// The threshold after a loss (RFC 9438 4.6). If the loss came below the last inflection point,
    /// other flows have taken some of the rate, so the new point is lower (fast convergence, 4.7).
    pub fn reduced(&mut self, window: &Window) -> u32 {
        let cwnd = f64::from(window.cwnd);
        self.before = (self.w_max, self.prior);
        self.w_max = if cwnd < self.w_max { cwnd * (1.0 + BETA) / 2.0 } else { cwnd };
        self.prior = cwnd;
        (self.epoch, self.fraction) = (None, 0.0);
        (cwnd * BETA) as u32
    }

    /// The last reduction was found needless (RFC 9438 4.9).
    pub fn undo(&mut self) {
        (self.w_max, self.prior) = self.before;
        self.epoch = None;
    }

    /// The retransmission timeout has expired (RFC 9438 4.8).
    pub fn timed_out(&mut self) {
        (self.epoch, self.after_timeout) = (None, true);
    }

    /// Sending begins again after nothing was sent for `idle`, which does not count as time of the
    /// epoch (RFC 9438 4.2, 5.8).
    pub fn resumed(&mut self, idle: Nanos) {
        self.epoch = self.epoch.map(|start| start.saturating_add(idle));
    }
}

fn seconds(span: Nanos) -> f64 {
    span as f64 / SECOND as f64
}

/// The cube root by Newton's method. The standard library calls the platform's, which may differ in
/// the last bit from machine to machine.
fn cube_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let mut root = x.max(1.0);
    loop {
        let next = (2.0 * root + x / (root * root)) / 3.0;
        if next >= root {
            return root;
        }
        root = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_roots() {
        for n in [1u32, 2, 3, 10, 100, 1000] {
            let x = f64::from(n);
            assert!((cube_root(x * x * x) - x).abs() < 1e-9 * x);
        }
        assert!((cube_root(0.001) - 0.1).abs() < 1e-12);
        assert_eq!(cube_root(0.0), 0.0);
    }

    fn window(cwnd: u32, ssthresh: u32) -> Window {
        Window { cwnd, ssthresh, count: 0 }
    }

    /// Acknowledges whole windows, one every `rtt`, for `span`; the window then.
    fn run(cubic: &mut Cubic, window: &mut Window, rtt: Nanos, span: Nanos) {
        let mut now = 0;
        while now <= span {
            let cwnd = window.cwnd;
            for n in 0..cwnd {
                let now = now + rtt * u64::from(n) / u64::from(cwnd);
                let ack = Ack { now, acked: 1, una: 0, next: 0, rtt: Some(rtt), srtt: Some(rtt), min_rtt: Some(rtt) };
                cubic.acked(window, &ack, 1);
            }
            now += rtt;
        }
    }

    #[test]
    fn the_window_is_back_at_the_saddle_after_k() {
        // RFC 9438 4.2: K = cbrt(W_max (1 - beta) / C); for W_max = 1000: cbrt(750) = 9.0856 s.
        let mut cubic = Cubic::new(true);
        let mut w = window(1000, u32::MAX);
        w.ssthresh = cubic.reduced(&w);
        assert_eq!(w.ssthresh, 700);
        w.cwnd = 700;
        run(&mut cubic, &mut w, 100_000_000, 9_085_600_000);
        assert!((f64::from(w.cwnd) - 1000.0).abs() < 3.0, "{}", w.cwnd);
        // Two seconds later: 0.4 * 2^3 = 3.2 above it. Ten: 400, but for the growth of a round
        // trip.
        assert!((cubic.k - 9.0856).abs() < 1e-4);
    }

    #[test]
    fn half_way_it_is_where_the_function_says() {
        // W(K/2) = W_max - C (K/2)^3 = 1000 - 0.3 * 1000 / 8 = 962.5.
        let mut cubic = Cubic::new(true);
        let mut w = window(1000, u32::MAX);
        w.ssthresh = cubic.reduced(&w);
        w.cwnd = 700;
        run(&mut cubic, &mut w, 100_000_000, 4_542_800_000);
        assert!((f64::from(w.cwnd) - 962.5).abs() < 8.0, "{}", w.cwnd);
    }

    #[test]
    fn small_windows_grow_as_reno_would() {
        // RFC 9438 4.3: 10 segments, 10 ms: the cube is slow; alpha 0.529 a round trip until the
        // old window of 10, then 1.
        let mut cubic = Cubic::new(true);
        let mut w = window(10, u32::MAX);
        w.ssthresh = cubic.reduced(&w);
        assert_eq!(w.ssthresh, 7);
        w.cwnd = 7;
        // From 7 to 10 takes 3 / 0.529 = 5.7 round trips, then 4.3 with one segment each.
        run(&mut cubic, &mut w, 10_000_000, 90_000_000);
        assert!((13..=14).contains(&w.cwnd), "{}", w.cwnd);
    }

    #[test]
    fn fast_convergence() {
        // RFC 9438 4.7: a loss below the last saddle: W_max = cwnd (1 + beta) / 2.
        let mut cubic = Cubic::new(true);
        cubic.reduced(&window(1000, u32::MAX));
        assert_eq!(cubic.w_max, 1000.0);
        cubic.reduced(&window(800, 700));
        assert!((cubic.w_max - 680.0).abs() < 1e-9);
        cubic.undo();
        assert_eq!(cubic.w_max, 1000.0);
    }
}
