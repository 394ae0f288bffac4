//! Proportional rate reduction (RFC 6937): during recovery the window shrinks to the threshold in
//! step with what arrives.

use super::congestion::Window;

/// What was sent and delivered since the reduction began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prr {
    /// Segments on their way when it began (RFC 6937 3: RecoverFS), as the window then.
    prior: u32,
    delivered: u32,
    out: u32,
}

impl Prr {
    /// A reduction begins.
    pub fn begin(window: &Window) -> Prr {
        Prr { prior: window.cwnd.max(1), delivered: 0, out: 0 }
    }

    /// A segment was sent, new or again.
    pub fn sent(&mut self) {
        self.out = self.out.saturating_add(1);
    }

    /// An acknowledgement delivered segments; `in_flight` remain on their way. `progress`: it
    /// acknowledged by number and found no further loss, so that slow start's reduction bound may
    /// be used (RFC 6937 3.1, SSRB; RFC 9937 5 makes that the rule).
    pub fn acked(&mut self, window: &mut Window, delivered: u32, in_flight: u32, progress: bool) {
        if delivered == 0 {
            return;
        }
        self.delivered = self.delivered.saturating_add(delivered);
        let mut send = if in_flight > window.ssthresh {
            // In proportion.
            let share = (u64::from(window.ssthresh) * u64::from(self.delivered)).div_ceil(u64::from(self.prior));
            share.saturating_sub(u64::from(self.out)) as u32
        } else {
            // Not below the threshold: what was delivered, and catch up.
            let limit = self.delivered.saturating_sub(self.out).max(delivered) + u32::from(progress);
            limit.min(window.ssthresh - in_flight)
        };
        // RFC 6937 3: the fast retransmission goes in any case.
        if self.out == 0 {
            send = send.max(1);
        }
        window.cwnd = in_flight.saturating_add(send);
    }
}
