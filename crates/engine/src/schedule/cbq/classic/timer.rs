//! The clock in microseconds, the overlimit action, and the callouts that end it
//! (docs/reference/altq.md 1.2, 2.8).

use std::cmp::Reverse;

use super::{Classic, NONE};
use crate::schedule::Slot;
use crate::spec::Timer;
use crate::units::Nanos;

/// Microseconds on the estimator's clock at the engine's time 0. A class that never sent has `last`
/// 0, "long ago": the machine has been up for a while when its first packet comes.
const UPTIME: i64 = 1_000_000 * 1_000_000;

/// The greatest difference of two times: 2 s.
pub(super) const LONG: i64 = 2_000_000;

/// `microtime`: the engine's time in whole microseconds.
pub(super) fn micros(now: Nanos) -> i64 {
    UPTIME + (now / 1000) as i64
}

/// The engine's time at which a microsecond begins.
fn nanos(micros: i64) -> Nanos {
    Nanos::try_from(micros - UPTIME).unwrap_or(0).saturating_mul(1000)
}

/// The difference of two times as ALTQ takes it: 2 s if they are further apart, or if `later` is
/// the earlier one and lies in another whole second.
pub(super) fn delta(later: i64, earlier: i64) -> i64 {
    let delta = later - earlier;
    if delta >= LONG || delta < 0 && later / 1_000_000 != earlier / 1_000_000 { LONG } else { delta }
}

impl Classic {
    /// Puts a class that may not send to sleep until its `undertime`. In that the offtime of
    /// `lender`, or the class's own, takes the place of the last packet's time if it is longer.
    pub(super) fn delay_action(&mut self, now: Nanos, slot: Slot, lender: Slot) {
        let at = micros(now);
        let lender_offtime = (lender != NONE).then(|| self.classes[lender as usize].numbers.offtime);
        let timer = self.timer;
        let class = &mut self.classes[slot as usize];
        class.stats.overactions += 1;
        let mut delay = delta(class.undertime, at);
        if class.sleeping {
            return;
        }
        let extra = lender_offtime.unwrap_or(class.numbers.offtime) - class.last_pkttime;
        if extra > 0 {
            class.undertime += extra;
            delay += extra;
        }
        class.sleeping = true;
        class.stats.delays += 1;
        let due = match timer {
            // Where ALTQ's code was measured with an exact timer, its tick was 1 us, so a class
            // woke a microsecond later. A class of 60 Mbit/s that was fed by bursts had 61.1 Mbit/s
            // there (docs/reference/altq.md 17), and has 60.6 here. Here it wakes at its
            // `undertime`, as nothing may leave before the wake-up that was announced.
            Timer::Exact => nanos(class.undertime),
            Timer::Tick(tick) => {
                // The next tick may be arbitrarily near, so a pause is two ticks at least. A longer
                // one is counted from the last tick, where the coarse clock stands: rounded up to
                // ticks, plus one.
                let tick = tick.max(1);
                let last = now / tick * tick;
                let ticks = if delay.unsigned_abs().saturating_mul(1000) > tick.saturating_mul(2) {
                    (nanos(class.undertime).saturating_sub(last)).div_ceil(tick) + 1
                } else {
                    2
                };
                last.saturating_add(ticks.saturating_mul(tick))
            }
        };
        self.callouts_set += 1;
        class.callout = self.callouts_set;
        self.callouts.push(Reverse((due, self.callouts_set, slot)));
    }

    /// The earliest callout that has not been stopped.
    pub(super) fn next_callout(&mut self) -> Option<Nanos> {
        while let Some(&Reverse((due, number, slot))) = self.callouts.peek() {
            // A class that is gone does not have this number, nor has a later class in its slot.
            if self.classes[slot as usize].callout == number {
                return Some(due);
            }
            self.callouts.pop();
        }
        None
    }

    /// Runs the callouts due before `until`. What happens at that time itself comes before those
    /// due then.
    pub(super) fn run_callouts_before(&mut self, until: Nanos) {
        while self.next_callout().is_some_and(|due| due < until) {
            self.run_callout();
        }
    }

    /// Runs the earliest callout if its time has come.
    pub(super) fn run_callout_due(&mut self, now: Nanos) -> bool {
        let due = self.next_callout().is_some_and(|due| due <= now);
        if due {
            self.run_callout();
        }
        due
    }

    /// ALTQ's restart: the class wakes, whatever it owes (docs/reference/altq.md 14.13).
    fn run_callout(&mut self) {
        if let Some(Reverse((_, _, slot))) = self.callouts.pop() {
            let class = &mut self.classes[slot as usize];
            class.wake();
            class.undertime = 0;
            self.failed = false;
        }
    }
}
