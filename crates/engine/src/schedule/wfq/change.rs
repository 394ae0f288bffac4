//! Changes: new classes, words, weights and limits. What is linear in the classes happens here,
//! never for a packet.

use super::fair::{self, Fair};
use super::limits::{Policer, Shaper};
use super::words::{self, Excess, Kind, Sums, Words};
use super::{Limits, NONE, Wfq};
use crate::schedule::{ROOT_SLOT, Scheduler, Slot};

/// Log2 of the virtual time that a byte takes at the sum of all weights. At this scale rounding
/// changes no weight by more than 2^-18 of itself.
const FINE: u32 = 17;

impl Wfq {
    /// Sets how the excess is divided, and makes the orders for it, in which no class waits yet.
    pub(super) fn set_excess(&mut self, excess: Excess) {
        self.excess = excess;
        self.fair = Fair::new(excess == Excess::Proportional, self.packet);
        self.spare = (excess == Excess::Equal).then(|| Fair::new(true, self.packet));
        for slot in 0..self.classes.len() as Slot {
            self.make_room(slot);
        }
        (self.unit, self.spare_unit) = (0, 0);
        self.weights_changed();
    }

    pub(super) fn make_room(&mut self, slot: Slot) {
        self.fair.add(slot);
        if let Some(spare) = &mut self.spare {
            spare.add(slot);
        }
    }

    pub(super) fn kinds(&self) -> impl Iterator<Item = Kind> {
        self.kinds.iter().flatten().copied()
    }

    /// Weights must be computed again. While no packets wait that is left until the next one comes,
    /// so that building a tree takes linear time. While packets wait it is done at once, so that
    /// departures do not depend on when the scheduler is asked next.
    pub(super) fn weights_changed(&mut self) {
        self.stale = true;
        if self.waiting > 0 {
            self.compute_weights();
        }
    }

    /// Computes the weights after a change of classes or rates. Linear in the classes.
    #[cold]
    pub(super) fn compute_weights(&mut self) {
        self.stale = false;
        let sums = Sums::of(self.rate, self.kinds());
        let equal = self.excess == Excess::Equal;
        let weight = |kind| if equal { sums.guarantee(kind) } else { sums.share(kind) };
        let all = if equal { sums.whole() } else { self.kinds().map(weight).sum::<u128>().max(1) };
        let bits = |n: u128| 128 - n.leading_zeros();
        let wanted = (bits(all) + FINE).min(126);
        if self.fair.is_empty() || wanted.abs_diff(self.unit) > 4 {
            // The scale changes, or no class waits: tags are forgotten.
            self.unit = wanted;
            self.fair.clear();
        }
        let per_byte = |unit: u32, weight: u128| match weight {
            0 => 0,
            weight => (((1_u128 << unit) + weight / 2) / weight).clamp(1, u128::from(fair::MAX_PER_BYTE)) as u64,
        };
        self.fair.set_pace(per_byte(self.unit, all));
        let parts: u128 = self.kinds().map(|kind| sums.part(kind)).sum::<u128>().max(1);
        let wanted = (bits(parts) + FINE).min(126);
        if let Some(spare) = &mut self.spare {
            if spare.is_empty() || wanted.abs_diff(self.spare_unit) > 4 {
                self.spare_unit = wanted;
                spare.clear();
            }
            spare.set_pace(per_byte(self.spare_unit, parts));
        }
        let spare_unit = self.spare_unit;
        // Packets of the class that holds the scheduler have no words. They get a thousandth, as a
        // class that says nothing does where all is reserved.
        let own = self.classes[ROOT_SLOT as usize].len;
        match &mut self.spare {
            Some(spare) => spare.set_weight(ROOT_SLOT, per_byte(spare_unit, (parts / 1000).max(1)), own),
            None => self.fair.set_weight(ROOT_SLOT, per_byte(self.unit, (all / 1000).max(1)), own),
        }
        self.file(ROOT_SLOT);
        for slot in 1..self.classes.len() as Slot {
            let Some(kind) = self.kinds[slot as usize] else { continue };
            let class = self.classes[slot as usize];
            self.fair.set_weight(slot, per_byte(self.unit, weight(kind)), class.len);
            if let Some(spare) = &mut self.spare {
                spare.set_weight(slot, per_byte(spare_unit, sums.part(kind)), class.len);
            }
            self.file(slot);
        }
    }

    /// Whether a class has these words already.
    pub(super) fn has_words(&self, slot: Slot, words: &Words) -> bool {
        let class = &self.classes[slot as usize];
        let limits = self.limits.get(class.limits as usize).copied().unwrap_or_default();
        self.kinds[slot as usize] == Some(words.kind)
            && class.fair_queue == words.fair_queue
            && limits.police.map(|meter| meter.words()) == words.police
            && limits.shape.map(|shape| shape.rate()) == words.shape
    }

    /// Sets the limits that a class's words ask for. Buckets and clocks go on, also at another
    /// rate.
    pub(super) fn limit(&mut self, slot: Slot, words: &Words) {
        let at = self.classes[slot as usize].limits;
        let before = self.limits.get(at as usize).copied().unwrap_or_default();
        let now = self.now;
        let meter = |before: Option<Policer>, rate, burst| match before {
            Some(meter) => meter.changed(now, rate, burst),
            None => Policer::new(rate, burst),
        };
        let limits = Limits {
            urgent: match words.kind {
                Kind::Urgent { rate, burst, .. } => Some(meter(before.urgent, rate, burst)),
                _ => None,
            },
            police: words.police.map(|(rate, burst)| meter(before.police, rate, burst)),
            shape: words.shape.map(|rate| {
                let credit = words::shape_credit(rate, self.packet);
                before.shape.map_or_else(|| Shaper::new(rate, credit), |shape| shape.changed(now, rate, credit))
            }),
        };
        let any = limits.urgent.is_some() || limits.police.is_some() || limits.shape.is_some();
        self.classes[slot as usize].limits = match (any, at) {
            (true, NONE) => match self.free_limits.pop() {
                Some(at) => {
                    self.limits[at as usize] = limits;
                    at
                }
                None => {
                    self.limits.push(limits);
                    (self.limits.len() - 1) as u32
                }
            },
            (true, at) => {
                self.limits[at as usize] = limits;
                at
            }
            (false, NONE) => NONE,
            (false, at) => {
                self.free_limits.push(at);
                NONE
            }
        };
    }

    /// Sets the words of a class, new or changed. Its packets keep their places.
    pub(super) fn set(&mut self, slot: Slot, words: Words) {
        let urgent = match words.kind {
            Kind::Urgent { level, .. } => Some(level),
            _ => None,
        };
        let before = self.classes[slot as usize];
        if before.urgent != urgent {
            if let Some(level) = before.urgent {
                self.urgent[usize::from(level)].remove(self.now, slot);
                self.classes[slot as usize].places = 0;
                if before.blocked {
                    self.classes[slot as usize].blocked = false;
                    // It counts the class out of the low-latency ones as well.
                    self.wait(slot, false);
                } else {
                    self.urgent_waiting -= u32::from(before.waiting);
                }
            } else {
                self.unfile(slot);
            }
            self.classes[slot as usize].urgent = urgent;
            if let Some(level) = urgent {
                self.urgent[usize::from(level)].make_room(slot);
                if self.classes[slot as usize].waiting {
                    self.urgent_waiting += 1;
                    self.take_place(slot);
                }
            }
        }
        self.limit(slot, &words);
        self.wants_arrivals |= urgent.is_some() || words.police.is_some();
        self.kinds[slot as usize] = Some(words.kind);
        self.classes[slot as usize].fair_queue = words.fair_queue;
        self.classes[slot as usize].parked = false;
        if self.park(slot) {
            self.unfile(slot);
        }
        self.weights_changed();
    }
}
