//! Changes of the hash (`perturb`): flows move to their buckets under the new hash a few at a time,
//! with their packets in order.
//!
//! The table has two halves, one for each hash. While flows move, a packet whose flow has a bucket
//! under the old hash still goes there. A bucket is moved as a whole, and the new hash separates
//! the flows in it. Packets of a flow stay in order, because a flow has one bucket at a time; a
//! bucket that keeps its record keeps its place in the rounds.

use super::super::Store;
use super::super::flows::Hash;
use super::Sfq;
use super::words::Words;
use crate::account::DropReason;
use crate::packet::Packet;
use crate::units::Nanos;

/// Places of the old table that a call looks at, at most; it empties one.
const LOOKS: u32 = 64;

pub(super) struct Perturb {
    hashes: [Hash; 2],
    /// Which of the two holds; the other is the old one.
    now: usize,
    /// Places of the old table from here on may hold flows still; the number of places when none
    /// does.
    cursor: u32,
    places: u32,
    period: Option<Nanos>,
    /// When the hash changes.
    due: Option<Nanos>,
    /// Packets on their way from one place to others.
    moving: Vec<Packet>,
}

impl Perturb {
    pub fn new(words: &Words, hash: Hash) -> Perturb {
        Perturb {
            hashes: [hash; 2],
            now: 0,
            cursor: words.divisor,
            places: words.divisor,
            period: words.perturb,
            due: None,
            moving: Vec::new(),
        }
    }

    pub fn hash(&self) -> Hash {
        self.hashes[self.now]
    }

    pub fn set_period(&mut self, now: Nanos, period: Option<Nanos>) {
        if self.period != period {
            self.period = period;
            self.due = period.map(|period| now.saturating_add(period));
        }
    }

    pub fn memory(&self) -> usize {
        self.moving.capacity() * size_of::<Packet>()
    }

    fn place(&self, which: usize, key: u32) -> u32 {
        which as u32 * self.places + self.hashes[which].bucket(key, self.places)
    }
}

impl Sfq {
    /// The place of a flow.
    #[inline]
    pub(super) fn bucket(&self, key: u32) -> u32 {
        let perturb = &self.perturb;
        if perturb.cursor < perturb.places {
            let old = perturb.place(1 - perturb.now, key);
            if self.flows.find(old).is_some() {
                return old;
            }
        }
        perturb.place(perturb.now, key)
    }

    /// Changes the hash when it is time, and goes on with a change that is under way.
    #[inline]
    pub(super) fn turn_hash(&mut self, now: Nanos, store: &mut Store<'_>) {
        if let Some(period) = self.perturb.period {
            self.turn(now, period, store);
        }
    }

    fn turn(&mut self, now: Nanos, period: Nanos, store: &mut Store<'_>) {
        let perturb = &mut self.perturb;
        if perturb.cursor < perturb.places {
            self.go_over(store);
        } else if now >= *perturb.due.get_or_insert(now.saturating_add(period)) {
            perturb.due = Some(now.saturating_add(period));
            perturb.now = 1 - perturb.now;
            perturb.hashes[perturb.now] = Hash::new(self.random.bits());
            perturb.cursor = 0;
        }
    }

    /// Empties the next place of the old table.
    fn go_over(&mut self, store: &mut Store<'_>) {
        let old = (1 - self.perturb.now) as u32 * self.perturb.places;
        let end = (self.perturb.cursor + LOOKS).min(self.perturb.places);
        let found = (self.perturb.cursor..end).find_map(|place| Some((place, self.flows.find(old + place)?)));
        let Some((place, at)) = found else {
            self.perturb.cursor = end;
            return;
        };
        self.perturb.cursor = place + 1;
        let mut moving = std::mem::take(&mut self.perturb.moving);
        while let Some(packet) = self.pop(at, store) {
            moving.push(store.packet(packet));
        }
        // The record goes with the first packet, if there is room for it: mostly they are one flow.
        let first = moving.first().map(|packet| self.perturb.place(self.perturb.now, self.key(packet)));
        self.flows.rehang(at, first.filter(|place| self.flows.find(*place).is_none()));
        for packet in moving.drain(..) {
            self.put_again(packet, store, DropReason::QueueFull);
        }
        self.perturb.moving = moving;
    }

    /// Puts a packet that waited already by the present hash; if its flow has as many as it may, or
    /// there are too many flows, it is lost.
    pub(super) fn put_again(&mut self, packet: Packet, store: &mut Store<'_>, reason: DropReason) {
        let place = self.perturb.place(self.perturb.now, self.key(&packet));
        let at = match self.flows.find(place) {
            Some(at) => at,
            None if self.active >= self.words.flows => return store.lose_packet(packet, reason),
            None => self.flows.open(place),
        };
        let list = &self.flows.get(at).list;
        let long =
            self.words.red.is_some_and(|red| u64::from(list.bytes()) + u64::from(packet.len) > u64::from(red.limit));
        if list.packets() >= self.words.depth || long {
            if list.is_empty() && !self.flows.in_chain(at) {
                self.flows.close(at);
            }
            return store.lose_packet(packet, reason);
        }
        self.append(at, &packet, false, store);
    }
}
