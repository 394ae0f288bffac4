//! First in, first out: no promise to anyone, and the baseline that every other scheduler is compared with.
//!
//! Packets leave in the order in which they came, whatever their class; a class only keeps its own count and its own limit.

use std::collections::VecDeque;

use super::{Context, Entry, Scheduler, Slot};
use crate::settings::{Limit, Settings};
use crate::spec::{QueueSpec, SpecError};
use crate::units::{Nanos, Rate};

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    name: "fifo",
    about: "first in, first out",
    words: &[],
    class_words: &[],
    default_queue: |_| QueueSpec { name: "drop_tail", limit: Limit::Packets(50), settings: Settings::new() },
    guarantee: |_| None,
    build: |_: &Context, _: &Settings| Ok(Box::<Fifo>::default()),
};

#[derive(Default)]
struct Fifo {
    /// The class of every queued packet, in order of arrival.
    order: VecDeque<Slot>,
    /// Entries of `order`, the oldest of a class, whose packets were lost from the head of their queue.
    lost: Vec<u32>,
}

impl Fifo {
    fn skip_lost(&mut self) {
        while let Some(&slot) = self.order.front() {
            let lost = &mut self.lost[slot as usize];
            if *lost == 0 {
                return;
            }
            *lost -= 1;
            self.order.pop_front();
        }
    }
}

impl Scheduler for Fifo {
    fn add(&mut self, _: Nanos, slot: Slot, _: Slot, _: &Settings) -> Result<(), SpecError> {
        if self.lost.len() <= slot as usize {
            self.lost.resize(slot as usize + 1, 0);
        }
        Ok(())
    }

    fn change(&mut self, _: Nanos, _: Slot, _: Slot, _: &Settings) -> Result<(), SpecError> {
        Ok(())
    }

    fn remove(&mut self, _: Nanos, slot: Slot) {
        // The slot may be used again, so no entry of the old class may stay. Linear in the backlog, as removal may be.
        self.order.retain(|s| *s != slot);
        self.lost[slot as usize] = 0;
    }

    fn set_rate(&mut self, _: Nanos, _: Rate, _: Rate) {}

    fn hears_arrivals(&self) -> bool {
        true
    }

    fn queued(&mut self, now: Nanos, slot: Slot, _: u32, _: bool) {
        if self.lost.is_empty() {
            let _ = self.add(now, slot, slot, &Settings::new());
        }
        self.order.push_back(slot);
    }

    fn head_lost(&mut self, _: Nanos, slot: Slot, _: Option<u32>) {
        self.lost[slot as usize] += 1;
    }

    fn tail_lost(&mut self, _: Nanos, slot: Slot) {
        if let Some(at) = self.order.iter().rposition(|s| *s == slot) {
            self.order.remove(at);
        }
    }

    fn choose(&mut self, _: Nanos) -> Option<Slot> {
        self.skip_lost();
        self.order.front().copied()
    }

    fn sent(&mut self, _: Nanos, _: Slot, _: u32, _: Option<u32>) -> bool {
        self.order.pop_front();
        false
    }

    fn next_wakeup(&mut self) -> Option<Nanos> {
        self.skip_lost();
        if self.order.is_empty() { None } else { Some(0) }
    }

    fn memory(&self) -> usize {
        self.order.capacity() * 4 + self.lost.capacity() * 4
    }
}
