//! Changes of the hash (`perturb`): each call moves one bucket of the old hash to the new one, with
//! its packets in order.
//!
//! The table has two halves, one for each hash. While flows move, a packet whose flow has a bucket
//! under the old hash still goes there. A bucket is moved as a whole; the new hash separates the
//! flows in it. A flow is in one bucket at a time, so its packets stay in order. The first flow of
//! a moved bucket keeps the record, and with it the place in the rounds.

use super::super::Store;
use super::super::flows::Hash;
use super::Sfq;
use super::words::Words;
use crate::account::DropReason;
use crate::packet::Packet;
use crate::units::Nanos;

/// Buckets of the old hash that a call looks at, at most. It moves the first one in use.
const LOOKS: u32 = 64;

/// The state of a change of the hash.
pub(super) struct Perturb {
    hashes: [Hash; 2],
    /// The index of the hash in use; the other is the old one.
    current: usize,
    /// Buckets of the old hash from this one on may still hold flows. It equals `places` when no
    /// flow is left there.
    cursor: u32,
    /// Buckets of each half of the table.
    places: u32,
    period: Option<Nanos>,
    /// When the hash changes next.
    due: Option<Nanos>,
    /// Scratch space for the packets of the bucket that is moved.
    moving: Vec<Packet>,
}

impl Perturb {
    pub fn new(words: &Words, hash: Hash) -> Perturb {
        Perturb {
            hashes: [hash; 2],
            current: 0,
            cursor: words.divisor,
            places: words.divisor,
            period: words.perturb,
            due: None,
            moving: Vec::new(),
        }
    }

    /// The hash in use.
    pub fn hash(&self) -> Hash {
        self.hashes[self.current]
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

    /// The bucket of a flow under one of the two hashes.
    fn place(&self, which: usize, key: u32) -> u32 {
        which as u32 * self.places + self.hashes[which].bucket(key, self.places)
    }
}

impl Sfq {
    /// The bucket of a flow: under the old hash as long as there is one, else under the new one.
    #[inline]
    pub(super) fn bucket(&self, key: u32) -> u32 {
        let perturb = &self.perturb;
        if perturb.cursor < perturb.places {
            let old = perturb.place(1 - perturb.current, key);
            if self.flows.find(old).is_some() {
                return old;
            }
        }
        perturb.place(perturb.current, key)
    }

    /// Changes the hash when it is due, and continues a change that is under way.
    #[inline]
    pub(super) fn perturb_if_due(&mut self, now: Nanos, store: &mut Store<'_>) {
        if let Some(period) = self.perturb.period {
            self.perturb(now, period, store);
        }
    }

    #[inline(never)]
    fn perturb(&mut self, now: Nanos, period: Nanos, store: &mut Store<'_>) {
        let perturb = &mut self.perturb;
        if perturb.cursor < perturb.places {
            self.move_next_bucket(store);
        } else if now >= *perturb.due.get_or_insert(now.saturating_add(period)) {
            perturb.due = Some(now.saturating_add(period));
            perturb.current = 1 - perturb.current;
            perturb.hashes[perturb.current] = Hash::new(self.random.bits());
            perturb.cursor = 0;
        }
    }

    /// Moves the packets of the next bucket of the old hash.
    fn move_next_bucket(&mut self, store: &mut Store<'_>) {
        let old = (1 - self.perturb.current) as u32 * self.perturb.places;
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
        // The record moves to the bucket of the first packet, if that is free: mostly all packets
        // are of one flow.
        let first = moving.first().map(|packet| self.perturb.place(self.perturb.current, self.key(packet)));
        self.flows.set_bucket(at, first.filter(|place| self.flows.find(*place).is_none()));
        for packet in moving.drain(..) {
            self.put_again(packet, store, DropReason::QueueFull);
        }
        self.perturb.moving = moving;
    }

    /// Puts a packet that has waited before into its bucket under the new hash. If its flow is
    /// full, or there are too many flows, the packet is dropped.
    pub(super) fn put_again(&mut self, packet: Packet, store: &mut Store<'_>, reason: DropReason) {
        let place = self.perturb.place(self.perturb.current, self.key(&packet));
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
