//! Which packet leaves next: the rounds of flows, new ones first.

use super::super::flows::Flow;
use super::super::{Store, Taken};
use super::rounds::Rounds;
use super::{Cake, PREFETCH_FROM, Set, State};
use crate::account::DropReason;
use crate::units::Nanos;

impl Cake {
    /// The first flow of the rounds, and whether it is among the new ones.
    #[inline]
    fn first(&mut self) -> Option<(u32, bool)> {
        match self.new.first() {
            Some(at) => Some((at, true)),
            None => Some((self.old.first()?, false)),
        }
    }

    /// [`next`](super::FlowScheduler::next) for what most departures are: the flow whose turn it is
    /// has credit, and its first packet did not wait for long. `None`, and nothing was sent, if
    /// that is not so.
    #[inline(always)]
    pub(super) fn depart_quickly(&mut self, now: Nanos, store: &mut Store<'_>) -> Option<Taken> {
        let (mut at, new) = self.first()?;
        if self.flows.get(at).deficit <= 0 {
            self.shift(new);
            self.next_round(at);
            at = self.first()?.0;
        }
        let parameters = &self.words.parameters;
        let passes =
            |flow: &Flow<State>, arrived| flow.deficit > 0 && flow.state.cobalt.passes(parameters, now, arrived);
        if self.flows.packets() >= PREFETCH_FROM {
            self.flows.prefetch_next(at, store);
        }
        let hosts = &self.hosts;
        self.flows.pop_if(at, store, passes, |flow, packet| {
            flow.state.cobalt.in_time(parameters, now);
            flow.deficit = flow.deficit.saturating_sub_unsigned(packet.wire);
            if flow.deficit <= 0 {
                // The next call computes this flow's next round, from its hosts.
                hosts.fetch(flow.state.hosts);
            }
        })
    }

    /// [`next`](super::FlowScheduler::next) in all cases.
    #[inline(never)]
    pub(super) fn next_any(&mut self, now: Nanos, store: &mut Store<'_>, decide: bool) -> Option<Taken> {
        loop {
            let (at, new) = self.first()?;
            if self.flows.get(at).deficit <= 0 {
                self.shift(new);
                self.next_round(at);
                continue;
            }
            if self.flows.packets() >= PREFETCH_FROM {
                self.flows.prefetch_next(at, store);
            }
            while let Some(packet) = self.flows.pop(at, store) {
                let flow = self.flows.get_mut(at);
                // The last packet of a flow may be marked, but is not dropped.
                if decide
                    && flow.state.cobalt.drops(&self.words.parameters, now, &packet, store, &mut self.random)
                    && !flow.list.is_empty()
                {
                    store.lose(packet, DropReason::Early);
                    continue;
                }
                flow.deficit = flow.deficit.saturating_sub_unsigned(packet.wire);
                if flow.deficit <= 0 {
                    // The next call computes this flow's next round, from its hosts.
                    self.hosts.fetch(flow.state.hosts);
                }
                return Some(packet);
            }
            self.shift(new);
            self.rest(now, at);
        }
    }

    /// Puts a flow that has used up its credit into the round in which it has credit again.
    fn next_round(&mut self, at: u32) {
        let flow = self.flows.get(at);
        if flow.state.set == Set::Sparse {
            if flow.list.is_empty() {
                // It still counts as sparse.
                self.flows.get_mut(at).state.set = Set::SparseWait;
            } else {
                self.sparse -= 1;
                self.becomes_bulk(at);
            }
        }
        let load = self.load(at);
        let missing = 1 - i64::from(self.flows.get(at).deficit);
        // Each round gives quantum/load. The sum is rounded up or down at random, so that its mean
        // is exact.
        let quantum = u64::from(self.words.quantum);
        let needed = missing.max(1).unsigned_abs() * u64::from(load);
        // One round is enough for most, and a host with one flow needs no division.
        let rounds = if needed <= quantum { 1 } else { needed.div_ceil(quantum).min(Rounds::MOST) };
        let mut part = rounds * quantum;
        if load > 1 {
            let rest = part % u64::from(load);
            let drawn = rest > 0 && self.random.bits() % u64::from(load) < rest;
            part = part / u64::from(load) + u64::from(drawn);
        }
        let part = i32::try_from(part).unwrap_or(i32::MAX);
        let flow = self.flows.get_mut(at);
        flow.deficit = flow.deficit.saturating_add(part);
        self.old.append(&mut self.flows, at, rounds);
    }

    fn shift(&mut self, new: bool) {
        if new {
            self.flows.shift(&mut self.new);
        } else {
            self.old.shift(&mut self.flows);
        }
    }
}
