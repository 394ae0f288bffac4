//! RACK: losses found by time (RFC 8985 6).

use altq_engine::units::Nanos;

use super::rto::Rto;
use super::scoreboard::{AGAIN, Scoreboard, Sent};

/// What RACK knows of the latest segment that arrived.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rack {
    /// When it was sent, and its end: RACK.xmit_ts, RACK.end_seq.
    latest: (Nanos, u64),
    /// Its round-trip time.
    rtt: Nanos,
    /// Segments have overtaken others (RFC 8985 6.2 step 3).
    pub reordered: bool,
    /// Quarters of the shortest round-trip time that a late one is waited for, less one (RFC 8985
    /// 6.2 step 4).
    steps: u8,
    /// Recoveries for which the longer wait still holds.
    persist: u8,
    /// No further step before this is acknowledged.
    round: u64,
}

impl Rack {
    /// RFC 8985 6.2 step 2: a segment arrived.
    pub fn arrived(&mut self, now: Nanos, shortest: Option<Nanos>, sent: &Sent) {
        let rtt = now.saturating_sub(sent.sent);
        // An answer that is too fast for the retransmission is one to the original.
        if sent.flags & AGAIN != 0 && shortest.is_some_and(|shortest| rtt < shortest) {
            return;
        }
        if (sent.sent, sent.end()) > self.latest {
            (self.latest, self.rtt) = ((sent.sent, sent.end()), rtt);
        }
    }

    /// RFC 8985 6.2 step 4: a retransmission was needless, so wait longer; once a round trip.
    pub fn needless(&mut self, una: u64, next: u64) {
        if una >= self.round {
            self.round = next;
            self.steps = self.steps.saturating_add(1).min(15);
            self.persist = 16;
        }
    }

    /// A recovery has ended.
    pub fn recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.steps = 0;
        }
    }

    /// RFC 8985 6.2 step 4: how long a segment may come late.
    fn window(&self, rto: &Rto, recovering: bool, sacked: u32) -> Nanos {
        if !self.reordered && (recovering || sacked >= 3) {
            return 0;
        }
        let quarter = rto.min().unwrap_or(0) / 4;
        quarter.saturating_mul(u64::from(self.steps) + 1).min(rto.srtt().unwrap_or(0))
    }

    /// RFC 8985 6.2 step 5. How many segments are newly lost, and when it is to be called again.
    pub fn detect(&self, now: Nanos, board: &mut Scoreboard, rto: &Rto, recovering: bool) -> (u32, Option<Nanos>) {
        let wait = self.rtt.saturating_add(self.window(rto, recovering, board.sacked()));
        board.lose_by_time(now, self.latest, wait)
    }

    /// Whether a segment has been out for longer than RACK would wait (RFC 8985 6.3: which are lost
    /// at a timeout).
    pub fn overdue(&self, now: Nanos, sent: &Sent, rto: &Rto, sacked: u32) -> bool {
        sent.sent.saturating_add(self.rtt).saturating_add(self.window(rto, true, sacked)) <= now
    }
}
