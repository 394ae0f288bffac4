//! What is done to a calendar seldom: its slots become narrower, its virtual time is set back, a
//! child is taken out because the tree changes.

use super::{Calendar, SLOTS};
use crate::schedule::cbq::exact::state::{LINKED, NIL, Records, span};

impl Calendar {
    #[cold]
    pub(super) fn narrow(&mut self, records: &mut Records, nspb: u64) {
        self.fastest = nspb;
        let packet = span(nspb, 1500).max(1);
        let shift = packet.ilog2().saturating_sub(4);
        if shift != self.shift {
            let all = self.drain(records);
            self.shift = shift;
            self.cur = all.iter().map(|id| records.tag(*id) >> shift).min().unwrap_or(0);
            for id in all {
                self.place(records, id, records.tag(id));
            }
        }
    }

    /// Takes all entries out, in no order.
    pub fn drain(&mut self, records: &mut Records) -> Vec<u32> {
        let mut all = Vec::new();
        (self.bits, self.above) = (0, u64::MAX);
        let Some(slots) = self.slots.as_deref_mut() else { return all };
        slots.far.iter_mut().for_each(|level| level.bits = 0);
        for list in slots.near.iter_mut().chain(slots.far.iter_mut().flat_map(|level| &mut level.lists)) {
            let mut id = std::mem::replace(&mut list.head, NIL);
            while id != NIL {
                all.push(id);
                id = records.calendar_next(id);
            }
        }
        all
    }

    /// Sets virtual time back by `by`, and files `all` again. The caller has taken them out with
    /// [`drain`](Calendar::drain), and has set back the tags of all children by as much.
    pub fn rebase(&mut self, records: &mut Records, by: u64, all: Vec<u32>) {
        self.v = self.v.saturating_sub(by);
        self.ahead = self.ahead.saturating_sub(by);
        self.cur = all.iter().map(|id| records.tag(*id) >> self.shift).min().unwrap_or(0);
        for id in all {
            self.place(records, id, records.tag(id));
        }
    }

    /// Takes one child's entry out. Linear in the children of its slot: only changes of the tree do
    /// this.
    pub fn unlink(&mut self, records: &mut Records, id: u32) {
        let at = records.filed(id);
        let (n, slot) = ((at >> 6) as usize, (at % SLOTS as u16) as usize);
        let Some(slots) = self.slots.as_deref_mut() else { return };
        let (bits, list) = match n.checked_sub(1) {
            None => (&mut self.bits, &mut slots.near[slot]),
            Some(n) => match slots.far.get_mut(n) {
                Some(level) => (&mut level.bits, &mut level.lists[slot]),
                None => return,
            },
        };
        let (mut before, mut here) = (NIL, list.head);
        while here != NIL && here != id {
            (before, here) = (here, records.calendar_next(here));
        }
        if here == NIL {
            return;
        }
        let next = records.calendar_next(id);
        if before == NIL {
            list.head = next;
        } else {
            records.set_calendar_next(before, next);
        }
        if next == NIL {
            list.tail = before;
            if before == NIL {
                *bits &= !(1 << slot);
                self.above = self.first_above();
            }
        }
        *records.flags(id) &= !LINKED;
    }
}
