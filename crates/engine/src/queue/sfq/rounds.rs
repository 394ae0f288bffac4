//! The rounds: which packet leaves next.

use super::super::flows::Flow;
use super::super::{Store, Taken};
use super::{Sfq, Slot};

impl Sfq {
    /// The packet that leaves next; `None` without packets.
    #[inline(always)]
    pub(super) fn next(&mut self, store: &mut Store<'_>) -> Option<Taken> {
        let mut passed = 0;
        match self.depart_quickly(store, &mut passed) {
            Some(packet) => Some(packet),
            None => self.next_any(store, passed),
        }
    }

    /// [`next`](Sfq::next) for what most departures are: the flow whose turn it is, or the one
    /// after it, has packets and credit. `None`, and nothing was sent, if that is not so.
    #[inline(always)]
    fn depart_quickly(&mut self, store: &mut Store<'_>, passed: &mut u32) -> Option<Taken> {
        let mut at = self.ring.first()?;
        let flow = self.flows.get_mut(at);
        if flow.deficit <= 0 {
            if flow.list.is_empty() || self.ring.len() < 2 {
                return None;
            }
            flow.deficit = flow.deficit.saturating_add(self.words.quantum);
            at = self.flows.rotate(&mut self.ring);
            *passed = 1;
        }
        let (has_credit, mut empty) = (|flow: &Flow<Slot>, _| flow.deficit > 0, false);
        let packet = self.flows.pop_if(at, store, has_credit, |flow, packet| {
            empty = flow.list.is_empty();
            flow.deficit = flow.deficit.saturating_sub_unsigned(packet.wire);
        })?;
        if empty {
            self.active -= 1;
            self.leave();
        }
        Some(packet)
    }

    /// [`next`](Sfq::next) in all cases. `passed` flows were passed in this call already.
    #[inline(never)]
    fn next_any(&mut self, store: &mut Store<'_>, mut passed: u32) -> Option<Taken> {
        loop {
            let at = self.ring.first()?;
            let flow = self.flows.get_mut(at);
            if flow.list.is_empty() {
                // A change of the hash has moved its packets elsewhere.
                self.leave();
                continue;
            }
            if flow.deficit <= 0 {
                let quantum = self.words.quantum as u32;
                let alone = self.ring.len() == 1;
                let rounds = if alone { flow.deficit.unsigned_abs() / quantum + 1 } else { 1 };
                flow.deficit = flow.deficit.saturating_add_unsigned(rounds * quantum);
                self.flows.shift(&mut self.ring);
                self.flows.append(&mut self.ring, at);
                passed += 1;
                if !alone && passed >= self.ring.len() {
                    self.flows.skip_rounds(&self.ring, quantum);
                    passed = 0;
                }
                continue;
            }
            let packet = self.pop(at, store)?;
            let flow = self.flows.get_mut(at);
            if flow.list.is_empty() {
                self.leave();
            } else {
                flow.deficit = flow.deficit.saturating_sub_unsigned(packet.wire);
            }
            return Some(packet);
        }
    }
}
