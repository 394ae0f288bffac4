//! First in, first out: the baseline with which every other scheduler is compared.
//!
//! Packets leave in the order of their arrival, whatever their class, so no class is guaranteed
//! anything. Classes have counters and queue limits of their own.

use std::collections::VecDeque;

use super::{AltqstatForm, Entry, Order, OwnPackets, Scheduler, Slot};
use crate::settings::Settings;
use crate::spec::SpecError;
use crate::units::{Nanos, Rate};

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    in_order: true,
    order: Order::Said("in the order of arrival"),
    promises: |place| super::promise::none(place, "fifo guarantees nothing"),
    own_packets: OwnPackets::Plain,
    altqstat: AltqstatForm::One,
    ..Entry::new("fifo", "first in, first out", |_, _| Ok(Box::new(Fifo::new())))
};

pub(super) struct Fifo {
    /// The class of every queued packet, in order of arrival.
    order: VecDeque<Slot>,
    classes: Vec<Class>,
}

#[derive(Clone, Copy, Default)]
struct Class {
    /// How many of the class's oldest entries in `order` are of packets that were dropped.
    lost: u32,
    /// Entries taken out of `order` while the scheduler inside the class may send nothing.
    aside: u32,
    blocked: bool,
}

impl Fifo {
    pub(super) fn new() -> Fifo {
        Fifo { order: VecDeque::new(), classes: vec![Class::default()] }
    }

    /// Makes room for a class.
    pub(super) fn make_room(&mut self, slot: Slot) {
        if self.classes.len() <= slot as usize {
            self.classes.resize(slot as usize + 1, Class::default());
        }
    }

    /// Takes entries off the front of `order` until the first one is of a packet that may leave.
    /// Every entry is taken once, so a packet costs a constant number of steps on average.
    fn settle(&mut self) {
        while let Some(&slot) = self.order.front() {
            let class = &mut self.classes[slot as usize];
            if class.lost > 0 {
                class.lost -= 1;
            } else if class.blocked {
                class.aside += 1;
            } else {
                return;
            }
            self.order.pop_front();
        }
    }
}

impl Scheduler for Fifo {
    fn add(&mut self, _: Nanos, slot: Slot, _: Slot, _: &Settings) -> Result<(), SpecError> {
        self.make_room(slot);
        Ok(())
    }

    fn change(&mut self, _: Nanos, _: Slot, _: Slot, _: &Settings) -> Result<(), SpecError> {
        Ok(())
    }

    fn remove(&mut self, _: Nanos, slot: Slot) {
        // The slot may be used again, so no entry of the old class may stay. Linear in the backlog,
        // as a removal may be.
        self.order.retain(|s| *s != slot);
        self.classes[slot as usize] = Class::default();
    }

    fn set_rate(&mut self, _: Nanos, _: Rate, _: Rate) {}

    fn wants_arrivals(&self) -> bool {
        true
    }

    fn may_refuse(&self) -> bool {
        false
    }

    fn queued(&mut self, _: Nanos, slot: Slot, _: u32, _: bool) {
        self.order.push_back(slot);
    }

    fn head_lost(&mut self, _: Nanos, slot: Slot, next: Option<u32>) {
        let class = &mut self.classes[slot as usize];
        // A class without packets is not blocked any more: `queued`, not `unblocked`, tells of its
        // next packet.
        class.blocked &= next.is_some();
        if class.aside > 0 {
            class.aside -= 1;
        } else {
            class.lost += 1;
        }
    }

    fn heads_dropped(&mut self, _: Nanos, slot: Slot, packets: u32) {
        self.classes[slot as usize].lost += packets;
    }

    fn tail_lost(&mut self, _: Nanos, slot: Slot) {
        match self.order.iter().rposition(|s| *s == slot) {
            Some(at) => {
                self.order.remove(at);
            }
            None => self.classes[slot as usize].aside -= 1,
        }
    }

    fn blocked(&mut self, _: Nanos, slot: Slot) {
        self.classes[slot as usize].blocked = true;
    }

    fn unblocked(&mut self, _: Nanos, slot: Slot, _: u32) {
        let class = &mut self.classes[slot as usize];
        class.blocked = false;
        for _ in 0..std::mem::take(&mut class.aside) {
            self.order.push_front(slot);
        }
    }

    fn choose(&mut self, _: Nanos) -> Option<Slot> {
        self.settle();
        self.order.front().copied()
    }

    fn sent(&mut self, _: Nanos, _: Slot, _: u32, _: Option<u32>) -> bool {
        self.order.pop_front();
        false
    }

    fn next_wakeup(&mut self) -> Option<Nanos> {
        self.settle();
        if self.order.is_empty() { None } else { Some(0) }
    }

    fn memory(&self) -> usize {
        self.order.capacity() * 4 + self.classes.capacity() * size_of::<Class>()
    }
}
