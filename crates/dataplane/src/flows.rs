//! The flows of the packets that leave, by class, as a loop counts them for those who watch.
//!
//! A packet's flow is in its headers, which the loop reads when the packet arrives. It is kept
//! until the packet leaves, because only then it is known that the packet was sent, in which class,
//! and with which DSCP.

use std::sync::mpsc::{self, Receiver, Sender};

use altq_engine::headers::Key;
use altq_engine::packet::Packet;
use altq_engine::spec::ClassId;
use altq_monitor::{Departures, FlowCounters, FlowKey, Summary};

/// How many counters come back to the loop in one parcel, and how many parcels it takes at a time:
/// for as many classes as it counts in one turn.
const PARCEL: usize = 64;
const PARCELS: usize = 4;

/// The flows of the packets that wait in a loop, and of those that have left.
pub struct Flows {
    departures: Departures,
    /// By handle: the flow of the packet that waits there.
    waiting: Vec<FlowKey>,
    /// Counters that were read come back by this channel.
    back: Receiver<Vec<FlowCounters>>,
    give: Sender<Vec<FlowCounters>>,
}

/// Counters of flows on their way to another thread.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    counters: Vec<(ClassId, FlowCounters)>,
    back: Option<Sender<Vec<FlowCounters>>>,
}

impl Flows {
    /// For classes with numbers below `classes`, of which at most `most` have counters at a time,
    /// and packets with handles below `handles`. The seed must be secret.
    pub fn new(classes: usize, most: usize, seed: u64, handles: usize) -> Flows {
        let (give, back) = mpsc::channel();
        let departures = Departures::new(classes, most, seed);
        // The kernel gives memory only for handles that are used.
        Flows { departures, waiting: Vec::with_capacity(handles), back, give }
    }

    /// There are numbers for so many classes now.
    pub fn grow(&mut self, classes: usize) {
        self.departures.set_classes(classes);
    }

    /// A packet with these headers, or a part of it, waits under this handle.
    #[inline]
    pub fn waits(&mut self, handle: u32, key: &Key) {
        match self.waiting.get_mut(handle as usize) {
            Some(place) => *place = FlowKey::of(key),
            None => self.waits_first(handle, key),
        }
    }

    /// The handle is used for the first time.
    #[cold]
    fn waits_first(&mut self, handle: u32, key: &Key) {
        self.waiting.resize(handle as usize + 1, FlowKey::default());
        self.waiting[handle as usize] = FlowKey::of(key);
    }

    /// A packet of a class has left.
    #[inline]
    pub fn departed(&mut self, class: ClassId, packet: &Packet) {
        if let Some(flow) = self.waiting.get_mut(packet.handle as usize) {
            flow.set_dscp(packet.dscp);
            self.departures.add(class, flow, packet.len);
        }
    }

    /// A class was removed. What its flows have sent counts for the link, like its counters,
    /// without listed flows.
    pub fn removed(&mut self, class: ClassId) {
        let counters = self.departures.take_class(class);
        self.departures.give_back(counters);
    }

    /// Takes what the flows of a class have sent since the last call, if it has sent anything.
    pub fn take(&mut self, class: ClassId) -> Option<FlowCounters> {
        self.departures.take_class(class)
    }

    /// Takes counters back that another thread has read.
    pub fn take_back(&mut self) {
        for parcel in self.back.try_iter().take(PARCELS) {
            self.departures.give_back(parcel);
        }
    }

    /// Counters for another thread, which gives them back when it has read them.
    pub fn hand_over(&self, counters: Vec<(ClassId, FlowCounters)>) -> Taken {
        Taken { counters, back: Some(self.give.clone()) }
    }
}

impl Taken {
    /// What the classes' flows have sent. The counters go back to the loop.
    pub fn summaries(&mut self) -> Vec<(ClassId, Summary<FlowKey>)> {
        let mut counters = std::mem::take(&mut self.counters);
        let summaries = counters.iter().map(|(class, counters)| (*class, counters.summary())).collect();
        while !counters.is_empty() {
            let rest = counters.split_off(counters.len().min(PARCEL));
            let parcel = std::mem::replace(&mut counters, rest).into_iter().map(|(_, counters)| counters).collect();
            // If the loop has ended, nobody needs them.
            let _ = self.back.as_ref().map(|back| back.send(parcel));
        }
        summaries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(sport: u16) -> Key {
        Key { src: 1, dst: 2, proto: 17, family: 4, ..Key::default() }.with_ports(sport, 53)
    }

    fn packet(handle: u32, len: u32) -> Packet {
        Packet { handle, len, ..Packet::default() }
    }

    #[test]
    fn a_packet_is_counted_when_it_leaves_and_for_its_class() {
        let mut flows = Flows::new(3, 2, 7, 16);
        for (handle, sport) in [(4, 1000), (9, 1001), (0, 1000)] {
            flows.waits(handle, &key(sport));
        }
        flows.departed(1, &packet(9, 700));
        flows.departed(1, &Packet { dscp: 46, ..packet(0, 100) });
        flows.departed(2, &packet(4, 300));
        // A packet that was never admitted has no flow.
        flows.departed(2, &packet(15, 1));
        let taken: Vec<_> = (0..3).filter_map(|class| Some((class, flows.take(class)?))).collect();
        assert!(flows.take(1).is_none());
        let mut taken = flows.hand_over(taken);
        let seen: Vec<_> = taken
            .summaries()
            .into_iter()
            .flat_map(|(class, summary)| {
                summary.listed().iter().map(|one| (class, one.key, one.at_least.bytes)).collect::<Vec<_>>()
            })
            .collect();
        let flow = |sport: u16, dscp: u8| FlowKey::of(&key(sport)).with_dscp(dscp);
        assert_eq!(seen, [(1, flow(1001, 0), 700), (1, flow(1000, 46), 100), (2, flow(1000, 0), 300)]);
        // Both counters that exist are on their way; when they are back, there are some again.
        flows.departed(0, &packet(9, 5));
        assert!(flows.take(0).is_none());
        flows.take_back();
        flows.departed(0, &packet(9, 5));
        assert_eq!(flows.take(0).map(|counters| counters.total().bytes), Some(5));
    }
}
