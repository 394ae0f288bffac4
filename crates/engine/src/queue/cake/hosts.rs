//! The hosts of flows, at either end, and how many bulk flows each host has.

use super::WAYS;
use crate::prefetch::prefetch;

#[derive(Clone, Copy, Default)]
struct Host {
    tag: u16,
    /// Flows with a record.
    flows: u32,
    /// Those that are bulk.
    bulk: u32,
}

/// Tables of source and destination hosts. Like that of the flows, they are eight-way
/// set-associative.
pub struct Hosts([Box<[Host]>; 2]);

impl Hosts {
    /// `queues` is a multiple of eight.
    pub fn new(queues: u32) -> Hosts {
        let places = queues.min(1 << 16) as usize;
        Hosts([(); 2].map(|()| vec![Host::default(); places].into_boxed_slice()))
    }

    /// Counts a new flow for its hosts, and returns their places in the tables.
    pub fn enter(&mut self, tags: [u16; 2]) -> [u16; 2] {
        let mut places = [0; 2];
        for (side, place) in places.iter_mut().enumerate() {
            *place = find(&mut self.0[side], tags[side]);
            self.0[side][usize::from(*place)].flows += 1;
        }
        places
    }

    /// A flow's record is freed, or goes to other hosts.
    pub fn leave(&mut self, places: [u16; 2]) {
        for (table, place) in self.0.iter_mut().zip(places) {
            table[usize::from(place)].flows -= 1;
        }
    }

    /// Counts one bulk flow more (`by` is 1) or less (-1) for these hosts.
    pub fn count(&mut self, places: [u16; 2], by: i32) {
        for (table, place) in self.0.iter_mut().zip(places) {
            let bulk = &mut table[usize::from(place)].bulk;
            *bulk = bulk.saturating_add_signed(by);
        }
    }

    /// Bulk flows of the source and of the destination.
    #[inline]
    pub fn bulk(&self, places: [u16; 2]) -> [u32; 2] {
        [self.0[0][usize::from(places[0])].bulk, self.0[1][usize::from(places[1])].bulk]
    }

    /// Prefetches the records of these hosts from memory. A hint.
    #[inline]
    pub fn fetch(&self, places: [u16; 2]) {
        for (table, place) in self.0.iter().zip(places) {
            prefetch(table, usize::from(place));
        }
    }

    pub fn memory(&self) -> usize {
        self.0.iter().map(|table| table.len() * size_of::<Host>()).sum()
    }
}

/// A host's place: the one that its hash names, or one of the other seven of its set. If other
/// hosts have all eight, it shares the first.
fn find(table: &mut [Host], tag: u16) -> u16 {
    let ways = WAYS as usize;
    let place = usize::from(tag) % table.len();
    let (own, set) = (place % ways, place - place % ways);
    let places = || (0..ways).map(|nth| set + (own + nth) % ways);
    let known = places().find(|place| table[*place].tag == tag && table[*place].flows > 0);
    let found = known.or_else(|| places().find(|place| table[*place].flows == 0)).unwrap_or(place);
    if table[found].flows == 0 {
        table[found].tag = tag;
    }
    found as u16
}
