//! `regulator auto`: the link's rate, kept as a wire of that rate would keep it.
//!
//! Every packet is on a wire that exists by calculation only: one packet after the other, each for
//! as long as its bytes take, fractions of a nanosecond carried. A packet may leave when the one
//! before it has ended there. So what a device holds is the packet that it sends, whatever the size
//! of its ring, and everything else waits where it is scheduled.
//!
//! Who asks the engine may ask late: a timer fires late, frames are seen a little after they came.
//! A wire that began each packet when it was asked for would lose that time. So a packet begins
//! when it could have begun:
//!
//! - If packets waited for the wire, or for a time that the engine had named, that is when the wire
//!   was free or the time came, at most [`LATE`] ago. The rate over a busy period is exact.
//! - If there was nothing to send, that is when the packet came: when it was seen, or so long
//!   before as the host may see it late. With a virtual clock that is nothing, on a device
//!   [`SEEN_LATE`].
//!
//! So in any span of `t` at most `rate * t` and one packet leave where the engine is asked in time
//! and packets are seen when they come; on a device `rate * (t + SEEN_LATE)` and one packet; and
//! where it is asked late `rate * (t + LATE)` and one packet.

use crate::spec::Timer;
use crate::units::{Nanos, Rate, SECOND};

/// How late a process before a device may see a frame: it is woken up late, and reads frames in
/// batches. In this time at 100 Mbit/s 12500 bytes pass, at 2 Mbit/s 250: less than a ring holds.
pub const SEEN_LATE: Nanos = 1_000_000;

/// How much time a host that was late makes good while packets wait: 8 ms. On a machine with fewer
/// processors than work a process waits for 4 ms and more. Where timers fire at ticks only, at
/// least a tick.
pub const LATE: Nanos = 8_000_000;

/// What the engine has named since the last packet left.
#[derive(Clone, Copy, Debug)]
enum Named {
    /// Nothing: it was not asked, or no packet waited.
    Nothing,
    /// From this time on a packet may leave.
    At(Nanos),
    /// The packets that wait may leave after an arrival or a change only.
    Never,
}

/// A wire by calculation, and when the next packet may begin on it.
#[derive(Clone, Debug)]
pub struct Pacer {
    rate: u64,
    /// The end of the last packet, rounded down to a nanosecond.
    end: Nanos,
    /// What was rounded off, in units of 1/rate ns.
    fraction: u64,
    /// The time that the engine has named since the last packet, at which one may leave.
    named: Named,
    /// How much time is made good where packets wait.
    late: Nanos,
    /// How late packets may be seen.
    seen_late: Nanos,
}

impl Pacer {
    /// A free wire of `rate` (at least 1 bit/s). Timers fire as `timer` says, and packets are seen
    /// at most `seen_late` after they came.
    pub fn new(rate: Rate, timer: Timer, seen_late: Nanos, now: Nanos) -> Pacer {
        let tick = match timer {
            Timer::Exact => 0,
            Timer::Tick(tick) => tick,
        };
        let rate = rate.as_bit_s().max(1);
        Pacer { rate, end: now, fraction: 0, named: Named::Nothing, late: LATE.max(tick), seen_late }
    }

    /// Packets are seen at most so long after they came.
    pub fn set_seen_late(&mut self, time: Nanos) {
        self.seen_late = time;
    }

    /// Whether a packet may begin now.
    #[inline]
    pub fn ready(&self, now: Nanos) -> bool {
        self.ready_at() <= now
    }

    /// When the next packet may begin: the first whole nanosecond at which the last one has ended.
    #[inline]
    pub fn ready_at(&self) -> Nanos {
        self.end.saturating_add(u64::from(self.fraction > 0))
    }

    /// Packets wait. At this time, which is not before [`ready_at`](Pacer::ready_at), one may leave
    /// if the engine is asked; `None`: after an arrival or a change only.
    #[inline]
    pub fn name(&mut self, at: Option<Nanos>) {
        self.named = at.map_or(Named::Never, Named::At);
    }

    /// Something has changed now that may let packets leave that wait.
    pub fn changed(&mut self, now: Nanos) {
        if !matches!(self.named, Named::At(at) if at <= now) {
            self.named = Named::At(now);
        }
    }

    /// A packet of `bytes` on the wire that was seen at `arrived` leaves now.
    #[inline]
    pub fn sent(&mut self, now: Nanos, arrived: Nanos, bytes: u32) {
        let could = match self.named {
            Named::At(at) if at <= now => at,
            Named::Nothing => arrived.saturating_sub(self.seen_late),
            // A packet has come that may leave, or by which another one may.
            Named::At(_) | Named::Never => now.saturating_sub(self.seen_late),
        };
        let begin = could.max(now.saturating_sub(self.late));
        if self.ready_at() < begin {
            (self.end, self.fraction) = (begin, 0);
        }
        // The narrow division is several times faster, and nearly always enough.
        let work = u128::from(bytes) * 8 * u128::from(SECOND) + u128::from(self.fraction);
        let (whole, fraction) = match u64::try_from(work) {
            Ok(work) => (work / self.rate, work % self.rate),
            Err(_) => {
                let rate = u128::from(self.rate);
                (u64::try_from(work / rate).unwrap_or(u64::MAX), (work % rate) as u64)
            }
        };
        (self.end, self.fraction) = (self.end.saturating_add(whole), fraction);
        self.named = Named::Nothing;
    }

    /// Another rate, for packets that begin from now on.
    pub fn set_rate(&mut self, rate: Rate) {
        let rate = rate.as_bit_s().max(1);
        if rate != self.rate {
            // The fraction is one of the old rate: it counts as a nanosecond.
            (self.end, self.fraction) = (self.ready_at(), 0);
            self.rate = rate;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    /// A pacer of so many Mbit/s, before exact timers.
    fn pacer(mbit_s: u64) -> Pacer {
        Pacer::new(Rate::mbit_s(mbit_s), Timer::Exact, 0, 0)
    }

    /// Sends packets of 1500 bytes, seen at `arrived`, as long as one may begin at `now`.
    fn send_all(pacer: &mut Pacer, now: Nanos, arrived: Nanos) -> usize {
        let mut sent = 0;
        while pacer.ready(now) {
            pacer.sent(now, arrived, 1500);
            sent += 1;
        }
        sent
    }

    #[test]
    fn keeps_the_rate_to_the_bit() {
        // 3 Mbit/s: 1500 bytes are exactly 4 ms, 100 bytes 266,666 2/3 ns.
        let mut pacer = pacer(3);
        let mut begins = Vec::new();
        for bytes in [1500, 100, 100, 100] {
            begins.push(pacer.ready_at());
            pacer.name(Some(pacer.ready_at()));
            pacer.sent(pacer.ready_at(), 0, bytes);
        }
        assert_eq!(begins, [0, 4_000_000, 4_266_667, 4_533_334]);
        assert_eq!(pacer.ready_at(), 4_800_000);
    }

    #[test]
    fn another_rate_holds_from_the_next_packet_on() {
        let mut pacer = pacer(3);
        pacer.sent(0, 0, 100); // 266,666 2/3 ns
        pacer.set_rate(Rate::mbit_s(3));
        assert_eq!((pacer.end, pacer.fraction), (266_666, 2_000_000));
        pacer.set_rate(Rate::mbit_s(12));
        pacer.sent(pacer.ready_at(), 0, 1500); // 1 ms
        assert_eq!(pacer.ready_at(), 266_667 + MS);
    }

    #[test]
    fn late_service_is_made_good_up_to_its_bound_and_idleness_to_its_own() {
        let mut pacer = Pacer::new(Rate::mbit_s(12), Timer::Exact, MS, 10 * MS); // 1500 bytes are 1 ms
        assert_eq!(send_all(&mut pacer, 10 * MS, 10 * MS), 1);
        // 2.5 ms late: packets that would have begun at 11, 12 and 13 ms.
        pacer.name(Some(pacer.ready_at()));
        assert_eq!((pacer.ready_at(), send_all(&mut pacer, 13_500_000, 10 * MS)), (11 * MS, 3));
        // 86 ms late: 8 ms are made good, and the packet of this instant.
        pacer.name(Some(pacer.ready_at()));
        assert_eq!(send_all(&mut pacer, 100 * MS, 10 * MS), 9);
        // Idle until 500 ms, and seen up to 1 ms late: that, and the packet of this instant.
        pacer.named = Named::Nothing;
        assert_eq!(send_all(&mut pacer, 500 * MS, 500 * MS), 2);
        // Seen at once: the packet of this instant.
        pacer.set_seen_late(0);
        pacer.named = Named::Nothing;
        assert_eq!(send_all(&mut pacer, 600 * MS, 600 * MS), 1);
        // Held back until 700 ms by a class's ceiling, and asked in time: nothing is made good.
        pacer.name(Some(700 * MS));
        assert_eq!(send_all(&mut pacer, 700 * MS, 500 * MS), 1);
        // The same, asked 3 ms late.
        pacer.name(Some(800 * MS));
        assert_eq!(send_all(&mut pacer, 803 * MS, 500 * MS), 4);
        // A change at 900 ms, then an arrival at 950 ms, lets a packet leave that has waited.
        pacer.name(None);
        pacer.changed(900 * MS);
        assert_eq!(send_all(&mut pacer, 900 * MS, 500 * MS), 1);
        pacer.name(None);
        assert_eq!(send_all(&mut pacer, 950 * MS, 500 * MS), 1);
    }

    #[test]
    fn a_tick_is_made_good_however_long() {
        // 100 ms of 12 Mbit/s are 100 packets.
        let mut pacer = Pacer::new(Rate::mbit_s(12), Timer::Tick(100 * MS), 0, 0);
        let mut sent = 0;
        for tick in 0..=10 {
            sent += send_all(&mut pacer, tick * 100 * MS, 0);
            pacer.name(Some(pacer.ready_at()));
        }
        assert_eq!(sent, 1001);
    }

    #[test]
    fn nothing_overflows() {
        let mut pacer = Pacer::new(Rate::bit_s(0), Timer::Tick(Nanos::MAX), Nanos::MAX, 0);
        for _ in 0..10 {
            pacer.sent(Nanos::MAX, 0, u32::MAX);
            assert!(pacer.ready(Nanos::MAX));
        }
    }
}
