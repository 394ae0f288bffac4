//! Proportional rate reduction (RFC 6937): during recovery the window shrinks to the threshold in
//! proportion to what is delivered.

use super::congestion::Window;

/// What was sent and delivered since the reduction began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prr {
    /// The window when the reduction began. It stands in for RecoverFS, the data then in flight
    /// (RFC 6937 3).
    prior: u32,
    /// RFC 6937 3: prr_delivered.
    delivered: u32,
    /// RFC 6937 3: prr_out.
    out: u32,
}

impl Prr {
    /// A reduction begins.
    pub fn begin(window: &Window) -> Prr {
        Prr { prior: window.cwnd.max(1), delivered: 0, out: 0 }
    }

    /// A segment was sent, new or retransmitted.
    pub fn sent(&mut self) {
        self.out = self.out.saturating_add(1);
    }

    /// Sets the window after an acknowledgement that delivered segments and left `in_flight`.
    /// `progress`: the acknowledgement number advanced and no further loss was found. Then the slow
    /// start reduction bound may be used (RFC 6937 3, SSRB; RFC 9937 6.2 makes that the rule).
    pub fn acked(&mut self, window: &mut Window, delivered: u32, in_flight: u32, progress: bool) {
        if delivered == 0 {
            return;
        }
        self.delivered = self.delivered.saturating_add(delivered);
        let mut send = if in_flight > window.ssthresh {
            // Send in proportion to what was delivered.
            let share = (u64::from(window.ssthresh) * u64::from(self.delivered)).div_ceil(u64::from(self.prior.max(1)));
            share.saturating_sub(u64::from(self.out)) as u32
        } else {
            // In flight is at or below the threshold: send as much as was delivered, and fill up to
            // the threshold.
            let limit = self.delivered.saturating_sub(self.out).max(delivered) + u32::from(progress);
            limit.min(window.ssthresh - in_flight)
        };
        // RFC 6937 3: the fast retransmission is sent in any case.
        if self.out == 0 {
            send = send.max(1);
        }
        window.cwnd = in_flight.saturating_add(send);
    }
}
