//! Schedulers in classes: the rates that they are told, and what holds them back.

use std::cmp::Reverse;

use super::{Engine, Node};
use crate::schedule::ROOT_SLOT;
use crate::spec::{ClassId, ROOT, SpecError};
use crate::units::{Nanos, Rate};

impl Engine {
    /// The rate by which the scheduler that serves a class measures.
    pub(super) fn rate_of_place(&self, node: u32) -> Rate {
        self.places[self.nodes[node as usize].class as usize].rate
    }

    /// The classes whose rate follows from that of a class above, when that of `class` becomes
    /// `rate`; it itself is the first. In an order in which each stands behind those that it
    /// follows. When it is the link's, all classes: schedulers know that too.
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

    /// Whether the schedulers in these classes can work with these rates.
    pub(super) fn check_rates(&self, rates: &[(ClassId, Rate)]) -> Result<(), SpecError> {
        for (class, rate) in rates.iter().filter(|(class, _)| self.holds_scheduler(*class)) {
            self.nodes[self.leaves[*class as usize].scheduler as usize]
                .inner
                .check_rate(*rate)
                .map_err(|e| e.of(*class))?;
        }
        Ok(())
    }

    /// Tells schedulers and queues in these classes their rates.
    pub(super) fn set_rates(&mut self, now: Nanos, rates: &[(ClassId, Rate)]) {
        for (class, rate) in rates {
            self.places[*class as usize].rate = *rate;
            self.set_queue_rate(*class, *rate);
            if self.holds_scheduler(*class) {
                let node = self.leaves[*class as usize].scheduler;
                self.nodes[node as usize].inner.set_rate(now, *rate, self.rate);
                self.reconsider(node);
            }
        }
    }

    fn holds_scheduler(&self, class: ClassId) -> bool {
        self.leaves[class as usize].slot == ROOT_SLOT
    }

    /// A scheduler has changed, or those below it: if it or one above it holds packets back, it may
    /// say another time now, or send at once.
    pub(super) fn reconsider(&mut self, mut node: u32) {
        while node != 0 {
            let Node { inner, blocked_until, class, .. } = &mut self.nodes[node as usize];
            let class = *class;
            if let Some(before) = *blocked_until {
                let until = inner.next_wakeup().unwrap_or(Nanos::MAX);
                if until <= self.now {
                    return self.unblock(node);
                }
                if until != before {
                    *blocked_until = Some(until);
                    if until != Nanos::MAX {
                        self.wakeups.push(Reverse((until, node)));
                    }
                }
            }
            node = self.places[class as usize].scheduler;
        }
    }

    /// Gives an inner scheduler back to the race, and with it those above that waited for it.
    pub(super) fn unblock(&mut self, mut node: u32) {
        while node != 0 && self.nodes[node as usize].blocked_until.take().is_some() {
            let place = &self.places[self.nodes[node as usize].class as usize];
            let len = self.overhead.charge(self.mtu);
            self.nodes[place.scheduler as usize].inner.unblocked(self.now, place.slot, len);
            node = place.scheduler;
        }
    }
}
