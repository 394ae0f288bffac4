//! RACK: a segment is lost if one sent later has arrived and some time has passed (RFC 8985 6).

use altq_engine::units::Nanos;

use super::rto::Rto;
use super::scoreboard::{RETRANSMITTED, Scoreboard, Sent};
use super::segment::{Options, Segment};

/// The state of RACK: the segment sent last of those that have arrived, and the time for which
/// reordered segments are waited for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rack {
    /// When that segment was sent, and its end: RACK.xmit_ts, RACK.end_seq.
    latest: (Nanos, u64),
    /// The round-trip time of the segment that arrived last.
    rtt: Nanos,
    /// Segments have overtaken others (RFC 8985 6.2 step 3).
    pub reordered: bool,
    /// The reordering window is `steps + 1` quarters of the shortest round-trip time (RFC 8985 6.2
    /// step 4).
    steps: u8,
    /// Recoveries after which `steps` falls back to 0.
    persist: u8,
    /// `steps` does not grow again before this sequence number is acknowledged.
    round: u64,
}

impl Rack {
    /// A segment arrived (RFC 8985 6.2 step 2), and its acknowledgement does not tell that it was
    /// [`resent_needlessly`] to send it again.
    pub fn arrived(&mut self, now: Nanos, shortest: Option<Nanos>, sent: &Sent) {
        let rtt = now.saturating_sub(sent.sent);
        // An acknowledgement that is too early for the retransmission is for the original.
        if sent.flags & RETRANSMITTED != 0 && shortest.is_some_and(|shortest| rtt < shortest) {
            return;
        }
        self.rtt = rtt;
        if (sent.sent, sent.end()) > self.latest {
            self.latest = (sent.sent, sent.end());
        }
    }

    /// A retransmission was needless, so the reordering window grows, but only once a round trip
    /// (RFC 8985 6.2 step 4).
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

    /// The reordering window: how much later than its successors a segment may arrive (RFC 8985 6.2
    /// step 4).
    fn window(&self, rto: &Rto, recovering: bool, sacked: u32) -> Nanos {
        if !self.reordered && (recovering || sacked >= 3) {
            return 0;
        }
        let quarter = rto.min().unwrap_or(0) / 4;
        quarter.saturating_mul(u64::from(self.steps) + 1).min(rto.srtt().unwrap_or(0))
    }

    /// Finds losses (RFC 8985 6.2 step 5). Returns how many segments are newly lost, and when to
    /// call this again.
    pub fn detect(&self, now: Nanos, board: &mut Scoreboard, rto: &Rto, recovering: bool) -> (u32, Option<Nanos>) {
        let wait = self.rtt.saturating_add(self.window(rto, recovering, board.sacked()));
        board.lose_by_time(now, self.latest, wait)
    }

    /// Whether a segment has been in flight for longer than RACK would wait. At a timeout these
    /// count as lost (RFC 8985 6.3).
    pub fn overdue(&self, now: Nanos, sent: &Sent, rto: &Rto, sacked: u32) -> bool {
        sent.sent.saturating_add(self.rtt).saturating_add(self.window(rto, true, sacked)) <= now
    }
}

/// Whether a segment that is acknowledged by number was sent again needlessly: the acknowledgement
/// echoes a timestamp from before the retransmission (RFC 8985 6.2 step 2; Linux:
/// tcp_skb_spurious_retrans of net/ipv4/tcp_input.c). The time of the retransmission then says
/// nothing of the segments that were sent before it.
pub fn resent_needlessly(segment: &Segment, sent: &Sent) -> bool {
    sent.flags & RETRANSMITTED != 0 && segment.options.has(Options::STAMPS) && segment.echo < sent.sent
}
