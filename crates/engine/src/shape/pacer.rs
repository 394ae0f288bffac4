//! `regulator auto`: the link's rate, kept as a wire of that rate would keep it.
//!
//! The pacer computes when each packet would begin and end on such a wire: one packet after the
//! other, each for as long as its bytes take, with fractions of a nanosecond carried. A packet may
//! leave when the one before it has ended there. So a device holds only the packet that it sends,
//! whatever the size of its ring, and all others wait in the scheduler's queues.
//!
//! The engine may be asked late: a timer fires late, or a frame is seen a little after it came. If
//! a packet began when the engine is asked, that time would be lost. So a packet begins when it
//! could have begun:
//!
//! - If packets waited for the wire, or for a time that the engine had named, it begins when the
//!   wire was free or that time came, at most [`LATE`] ago. The rate over a busy period is exact.
//! - If no packet waited, it begins when it came: when it was seen, less the time by which the host
//!   may see it late. That time is 0 with a virtual clock, and [`SEEN_LATE`] on a device.
//!
//! So in any span of `t` at most `rate * t` and one packet leave, if the engine is asked in time
//! and packets are seen when they come. On a device it is `rate * (t + SEEN_LATE)` and one packet.
//! If the engine is asked late it is `rate * (t + LATE)` and one packet.

use crate::spec::Timer;
use crate::units::{Nanos, Rate, SECOND};

/// How late the process that shapes for a device may see a frame: it is woken up late, and reads
/// frames in batches. In this time at 100 Mbit/s 12500 bytes pass, at 2 Mbit/s 250: less than a
/// ring holds.
pub const SEEN_LATE: Nanos = 1_000_000;

/// How much lateness is made up for while packets wait: 8 ms, or a tick of the timers if that is
/// longer. On a machine whose processors are all busy a process waits for 4 ms and more.
pub const LATE: Nanos = 8_000_000;

/// The time that the engine has named since the last packet left, at which another one may leave.
#[derive(Clone, Copy, Debug)]
enum Named {
    /// Nothing: it was not asked, or no packet waited.
    Nothing,
    /// From this time on a packet may leave.
    At(Nanos),
    /// The packets that wait may leave after an arrival or a change only.
    Never,
}

/// The computed wire, and when the next packet may begin on it.
#[derive(Clone, Debug)]
pub struct Pacer {
    rate: u64,
    /// The end of the last packet, rounded down to a nanosecond.
    end: Nanos,
    /// What was rounded off, in units of 1/rate ns.
    fraction: u64,
    /// When a packet that waits may leave, as the engine has named it.
    named: Named,
    /// How much lateness is made up for where packets wait, ns.
    late: Nanos,
    /// How late packets may be seen, ns.
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

    /// Sets how late packets may be seen, ns.
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

    /// Notes, while packets wait, from when on one may leave. That is not before
    /// [`ready_at`](Pacer::ready_at). `None`: only after an arrival or a change.
    #[inline]
    pub fn name(&mut self, at: Option<Nanos>) {
        self.named = at.map_or(Named::Never, Named::At);
    }

    /// A change at `now` may let packets leave that wait.
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
            // A packet has just come that may leave, or that lets another one leave.
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

    /// A pacer of so many Mbit/s, with exact timers.
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
    fn late_calls_and_packets_seen_late_are_made_up_for_to_their_bounds() {
        let mut pacer = Pacer::new(Rate::mbit_s(12), Timer::Exact, MS, 10 * MS); // 1500 bytes are 1 ms
        assert_eq!(send_all(&mut pacer, 10 * MS, 10 * MS), 1);
        // 2.5 ms late: packets that would have begun at 11, 12 and 13 ms.
        pacer.name(Some(pacer.ready_at()));
        assert_eq!((pacer.ready_at(), send_all(&mut pacer, 13_500_000, 10 * MS)), (11 * MS, 3));
        // 86 ms late: 8 ms are made up for, and the packet of this instant.
        pacer.name(Some(pacer.ready_at()));
        assert_eq!(send_all(&mut pacer, 100 * MS, 10 * MS), 9);
        // Idle until 500 ms, and seen up to 1 ms late: that, and the packet of this instant.
        pacer.named = Named::Nothing;
        assert_eq!(send_all(&mut pacer, 500 * MS, 500 * MS), 2);
        // Seen at once: the packet of this instant.
        pacer.set_seen_late(0);
        pacer.named = Named::Nothing;
        assert_eq!(send_all(&mut pacer, 600 * MS, 600 * MS), 1);
        // Held back until 700 ms by a class's ceiling, and asked in time: there is nothing to make
        // up for.
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
    fn a_tick_is_made_up_for_however_long_it_is() {
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
