//! COBALT (Palmei and others 2019, "Design and Evaluation of COBALT Queue Discipline"): CoDel and
//! BLUE side by side.
//!
//! CAKE's CoDel does not forget its drop rate when the sojourn time falls below the target: the
//! count decreases as it rose, a step after each interval/sqrt(count). BLUE drops at random, with a
//! probability that rises when the queue overflows and falls when it is empty. It is for flows that
//! do not react to CoDel.

use super::super::codel::control_law;
use super::super::{Store, Taken};
use crate::random::SplitMix64;
use crate::units::Nanos;

/// The parameters of CoDel and BLUE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    pub target: Nanos,
    pub interval: Nanos,
    /// How long a full packet takes at the class's rate.
    pub packet: Nanos,
}

/// Steps of BLUE's probability: up by 1/256, down by 1/4096, each at most once per target.
const RISE: u32 = 1 << 24;
const SINK: u32 = 1 << 20;

/// The state of a flow: 32 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cobalt {
    drop_next: Nanos,
    /// When BLUE's probability last changed.
    changed: Nanos,
    count: u32,
    /// BLUE's probability, in 2^-32.
    probability: u32,
    dropping: bool,
}

impl Cobalt {
    /// Whether [`drops`](Cobalt::drops) lets a packet that arrived at this time pass, draws no
    /// random number, and does nothing else but [`in_time`](Cobalt::in_time). It is so for most
    /// packets.
    #[inline]
    pub fn passes(&self, parameters: &Parameters, now: Nanos, arrived: Nanos) -> bool {
        self.at_rest() && now.saturating_sub(arrived) <= parameters.target
    }

    /// A packet leaves that has not waited for longer than the target, and the state is at rest.
    #[inline]
    pub fn in_time(&mut self, parameters: &Parameters, now: Nanos) {
        self.dropping = false;
        self.drop_next = now.saturating_add(parameters.interval);
    }

    /// Whether a packet that leaves is to be dropped. CoDel marks it instead, if it can.
    pub fn drops(
        &mut self,
        parameters: &Parameters,
        now: Nanos,
        packet: &Taken,
        store: &mut Store<'_>,
        random: &mut SplitMix64,
    ) -> bool {
        let sojourn = now.saturating_sub(store.arrived_of(packet));
        let over = sojourn > parameters.target && sojourn > 4 * parameters.packet;
        let mut due = self.count > 0 && now >= self.drop_next;
        if over && !self.dropping {
            self.dropping = true;
            self.drop_next = control_law(now, parameters.interval, self.count);
        }
        self.dropping = over;
        if over && self.count == 0 {
            self.count = 1;
        }
        let mut drops = false;
        let mut later = self.count > 0 && now > self.drop_next;
        if due && self.dropping {
            drops = !store.mark_taken(packet);
            self.count = self.count.saturating_add(1);
            self.drop_next = control_law(self.drop_next, parameters.interval, self.count);
            later = now > self.drop_next;
        } else {
            while due {
                self.count -= 1;
                self.drop_next = control_law(self.drop_next, parameters.interval, self.count);
                due = self.count > 0 && now >= self.drop_next;
                later = now > self.drop_next;
            }
        }
        // BLUE drops and never marks: it is for flows that have not reacted to marks.
        if self.probability > 0 {
            drops |= ((random.bits() >> 32) as u32) < self.probability;
        }
        if self.count == 0 {
            self.drop_next = now.saturating_add(parameters.interval);
        } else if later && !drops {
            self.drop_next = now;
        }
        drops
    }

    /// The queue overflowed, and this flow lost a packet.
    pub fn full(&mut self, parameters: &Parameters, now: Nanos) {
        if now.saturating_sub(self.changed) > parameters.target {
            self.probability = self.probability.saturating_add(RISE);
            self.changed = now;
        }
        self.dropping = true;
        self.drop_next = now;
        self.count = self.count.max(1);
    }

    /// Lets the state decay for a flow that has been empty, or out of the rounds, until now.
    pub fn decay(&mut self, parameters: &Parameters, now: Nanos) {
        self.dropping = false;
        if self.probability > 0 {
            let steps = now.saturating_sub(self.changed) / parameters.target.max(1);
            let sunk = steps.saturating_mul(u64::from(SINK)).min(u64::from(self.probability));
            self.probability -= sunk as u32;
            self.changed = self.changed.saturating_add(steps.saturating_mul(parameters.target));
        }
        while self.count > 0 && now >= self.drop_next {
            self.count -= 1;
            self.drop_next = control_law(self.drop_next, parameters.interval, self.count);
        }
    }

    /// True if its state cannot change a later decision.
    #[inline]
    pub fn at_rest(&self) -> bool {
        self.count | self.probability == 0
    }

    /// True if BLUE's probability is above 0.
    pub fn blue(&self) -> bool {
        self.probability > 0
    }
}
