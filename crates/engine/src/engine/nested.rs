//! Schedulers inside classes: the rates by which they measure, and the times until which they are
//! blocked.

use super::{Engine, Node};
use crate::schedule::ROOT_SLOT;
use crate::spec::{ClassId, ROOT, SpecError};
use crate::units::{Nanos, Rate};

impl Engine {
    /// The rate by which a scheduler measures shares: that of the class that holds it.
    pub(super) fn rate_of_place(&self, node: u32) -> Rate {
        self.places[self.nodes[node as usize].class as usize].rate
    }

    /// The classes whose rate changes when that of `class` becomes `rate`, with their new rates:
    /// `class` itself, then the classes without a guarantee that measure by its rate. Parents come
    /// before children. If `class` is the root, all classes are listed, as schedulers know the
    /// link's rate too.
    pub(super) fn derived_rates(&self, class: ClassId, rate: Rate) -> Vec<(ClassId, Rate)> {
        let mut changed = vec![(class, rate)];
        if !self.holds_scheduler(class) {
            return changed;
        }
        let mut new: Vec<Option<Rate>> = vec![None; self.places.len()];
        new[class as usize] = Some(rate);
        for id in self.bottom_up().into_iter().rev().filter(|id| *id != ROOT && *id != class) {
            let place = &self.places[id as usize];
            let rate = match place.guaranteed {
                true if class == ROOT => Some(place.rate),
                true => None,
                false => new[self.nodes[place.scheduler as usize].class as usize],
            };
            if let Some(rate) = rate {
                new[id as usize] = Some(rate);
                changed.push((id, rate));
            }
        }
        changed
    }

    /// Asks the schedulers inside these classes whether they can work with these rates.
    pub(super) fn check_rates(&self, rates: &[(ClassId, Rate)]) -> Result<(), SpecError> {
        for (class, rate) in rates.iter().filter(|(class, _)| self.holds_scheduler(*class)) {
            self.nodes[self.buffers.leaves[*class as usize].scheduler as usize]
                .inner
                .check_rate(*rate)
                .map_err(|e| e.of(*class))?;
        }
        Ok(())
    }

    /// Sets the rates of these classes, of their queues and of the schedulers inside them.
    pub(super) fn set_rates(&mut self, now: Nanos, rates: &[(ClassId, Rate)]) {
        for (class, rate) in rates {
            self.places[*class as usize].rate = *rate;
            self.set_queue_rate(*class, *rate);
            if self.holds_scheduler(*class) {
                let node = self.buffers.leaves[*class as usize].scheduler;
                self.nodes[node as usize].inner.set_rate(now, *rate, self.rate);
                self.reconsider(node);
            }
        }
    }

    fn holds_scheduler(&self, class: ClassId) -> bool {
        self.buffers.leaves[class as usize].slot == ROOT_SLOT
    }

    /// A scheduler or its classes have changed. If it or a scheduler above it is blocked, its
    /// wake-up may be another one now, or it may send at once. Where the wake-up has passed, the
    /// next departure unblocks it, as it would have without the change: else a change that changes
    /// nothing would have the scheduler above count from an earlier time.
    pub(super) fn reconsider(&mut self, mut node: u32) {
        while node != 0 {
            let Node { inner, blocked_until, class, .. } = &mut self.nodes[node as usize];
            let class = *class;
            if let Some(before) = *blocked_until
                && before > self.now
            {
                let until = inner.next_wakeup().unwrap_or(Nanos::MAX);
                if until <= self.now {
                    return self.unblock(node);
                }
                if until != before {
                    *blocked_until = Some(until);
                    self.file_wakeup(until, node);
                }
            }
            node = self.places[class as usize].scheduler;
        }
    }

    /// Unblocks an inner scheduler, and those above it that were blocked because of it.
    pub(super) fn unblock(&mut self, mut node: u32) {
        while node != 0 && self.nodes[node as usize].blocked_until.take().is_some() {
            let place = &self.places[self.nodes[node as usize].class as usize];
            let len = self.buffers.charges.overhead().charge(self.mtu);
            self.nodes[place.scheduler as usize].inner.unblocked(self.now, place.slot, len);
            node = place.scheduler;
        }
    }
}
