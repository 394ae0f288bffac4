//! Lists of packets in the engine's slab, and the drops and marks of queues.

use crate::account::DropReason;
use crate::link::Charges;
use crate::packet::{CE, NIL, Packet, Slab};
use crate::settings::Limit;
use crate::units::Nanos;

/// A list of packets, first in, first out. Its packets lie in the [`Store`], so an empty list takes
/// no memory beyond itself.
#[derive(Clone, Copy, Debug)]
pub struct List {
    head: u32,
    tail: u32,
    packets: u32,
    bytes: u32,
    /// Charged length of the first packet.
    first: u32,
}

impl Default for List {
    fn default() -> List {
        List::NEW
    }
}

impl List {
    /// A list without packets.
    pub const NEW: List = List { head: NIL, tail: NIL, packets: 0, bytes: 0, first: 0 };

    /// How many packets it has.
    #[inline]
    pub fn packets(&self) -> u32 {
        self.packets
    }

    /// Their own bytes.
    #[inline]
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// True without packets.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// Whether one more packet, of `len` own bytes, is within a limit.
    #[inline]
    pub fn fits(&self, limit: Limit, len: u32) -> bool {
        match limit {
            // Its bytes are counted in 32 bits.
            Limit::Packets(most) => self.packets < most && len <= u32::MAX - self.bytes,
            Limit::Bytes(most) => u64::from(self.bytes) + u64::from(len) <= u64::from(most),
        }
    }

    /// Whether it holds more than a limit.
    #[inline]
    pub fn over(&self, limit: Limit) -> bool {
        limit.is_exceeded(self.packets, self.bytes)
    }

    /// The charged length of its first packet.
    #[inline]
    pub fn peek(&self) -> Option<u32> {
        (self.packets > 0).then_some(self.first)
    }
}

/// A packet that was taken out of its list. It lies in the [`Store`] until it leaves the engine or
/// is [dropped](Store::lose), so that it is read only once.
#[derive(Debug)]
#[must_use = "its place in the store would never be free again"]
pub struct Taken {
    pub(crate) at: u32,
    /// Its own bytes.
    pub len: u32,
    /// The bytes charged for it.
    pub wire: u32,
}

/// A queue's access to the packets of the link.
pub struct Store<'e> {
    slab: &'e mut Slab,
    charges: &'e Charges,
    lost: &'e mut Vec<(Packet, DropReason)>,
    marked: u64,
}

impl<'e> Store<'e> {
    #[inline]
    pub(crate) fn new(slab: &'e mut Slab, charges: &'e Charges, lost: &'e mut Vec<(Packet, DropReason)>) -> Store<'e> {
        Store { slab, charges, lost, marked: 0 }
    }

    /// Copies a packet into the slab, and puts it at the end of a list.
    #[inline]
    pub fn push(&mut self, list: &mut List, packet: &Packet) {
        let at = self.slab.insert(packet);
        self.chain(list, at, packet.len, packet.wire);
    }

    #[inline]
    fn chain(&mut self, list: &mut List, at: u32, len: u32, wire: u32) {
        if list.packets == 0 {
            list.head = at;
            list.first = wire;
        } else {
            self.slab.link(list.tail, at, wire);
        }
        list.tail = at;
        list.packets += 1;
        list.bytes += len;
    }

    /// Takes the first packet of a list.
    #[inline]
    pub fn pop(&mut self, list: &mut List) -> Option<Taken> {
        if list.packets == 0 {
            return None;
        }
        let at = list.head;
        let (len, wire, next, next_wire) = self.slab.first(at, self.charges);
        list.head = next;
        list.first = next_wire;
        list.packets -= 1;
        list.bytes -= len;
        Some(Taken { at, len, wire })
    }

    /// Takes the last packet of a list. Linear in the list: not for every packet.
    pub fn pop_last(&mut self, list: &mut List) -> Option<Taken> {
        if list.packets <= 1 {
            return self.pop(list);
        }
        let at = list.tail;
        let before = self.slab.before(list.head, at);
        let (len, wire, ..) = self.slab.first(at, self.charges);
        self.slab.link(before, NIL, 0);
        list.tail = before;
        list.packets -= 1;
        list.bytes -= len;
        Some(Taken { at, len, wire })
    }

    /// Takes the packet at a place of a list; 0 is the first one. `None` if it has not so many.
    /// Linear in the place: not for every packet.
    pub fn pop_at(&mut self, list: &mut List, place: u32) -> Option<Taken> {
        if place >= list.packets {
            return None;
        }
        if place == 0 {
            return self.pop(list);
        }
        let mut before = list.head;
        for _ in 1..place {
            before = self.slab.first(before, self.charges).2;
        }
        let at = self.slab.first(before, self.charges).2;
        let (len, wire, next, next_wire) = self.slab.first(at, self.charges);
        self.slab.link(before, next, next_wire);
        if at == list.tail {
            list.tail = before;
        }
        list.packets -= 1;
        list.bytes -= len;
        Some(Taken { at, len, wire })
    }

    /// Puts a packet that was taken out of a list at the end of another one.
    pub fn put_back(&mut self, list: &mut List, taken: Taken) {
        let Taken { at, len, wire } = taken;
        self.slab.link(at, NIL, 0);
        self.chain(list, at, len, wire);
    }

    /// Takes a packet out of the store, and frees its cell.
    #[inline]
    pub fn packet(&mut self, taken: Taken) -> Packet {
        self.slab.take(taken.at, taken.wire)
    }

    /// Drops the packets of a list that are beyond a lowered limit: the first that does not fit and
    /// all behind it. False if all fit. Linear in the list.
    pub fn cut(&mut self, list: &mut List, limit: Limit) -> bool {
        if !list.over(limit) {
            return false;
        }
        let mut kept = List::NEW;
        while let Some(packet) = self.pop(list) {
            if !kept.fits(limit, packet.len) {
                self.lose(packet, DropReason::LimitLowered);
                break;
            }
            self.put_back(&mut kept, packet);
        }
        while let Some(packet) = self.pop(list) {
            self.lose(packet, DropReason::LimitLowered);
        }
        *list = kept;
        true
    }

    /// When the first packet of a list arrived.
    #[inline]
    pub fn arrived(&self, list: &List) -> Option<Nanos> {
        (list.packets > 0).then(|| self.slab.arrived(list.head))
    }

    /// Prefetches the first packet of a list from memory. A hint, without effect on results.
    #[inline]
    pub fn fetch(&self, list: &List) {
        self.slab.fetch(list.head);
    }

    /// When a taken packet arrived.
    #[inline]
    pub fn arrived_of(&self, taken: &Taken) -> Nanos {
        self.slab.arrived(taken.at)
    }

    /// The DSCP of a taken packet.
    #[inline]
    pub fn dscp_of(&self, taken: &Taken) -> u8 {
        self.slab.dscp(taken.at)
    }

    /// Gives a taken packet another DSCP.
    pub fn set_dscp(&mut self, taken: &Taken, dscp: u8) {
        self.slab.set_dscp(taken.at, dscp);
    }

    /// Drops a taken packet.
    #[inline]
    pub fn lose(&mut self, taken: Taken, reason: DropReason) {
        let packet = self.packet(taken);
        self.lose_packet(packet, reason);
    }

    /// Drops a packet that the queue held and that is not in the store any more.
    #[inline]
    pub fn lose_packet(&mut self, packet: Packet, reason: DropReason) {
        self.lost.push((packet, reason));
    }

    /// [`mark`](Store::mark) for a taken packet.
    #[inline]
    pub fn mark_taken(&mut self, taken: &Taken) -> bool {
        let marks = self.slab.mark(taken.at);
        self.marked += u64::from(marks);
        marks
    }

    /// Marks an arriving packet with CE, if its transport is ECN-capable (RFC 3168, 5). If not,
    /// returns false and does nothing.
    #[inline]
    pub fn mark(&mut self, packet: &mut Packet) -> bool {
        if packet.ecn & CE == 0 {
            return false;
        }
        // A packet that arrives with CE counts as marked, too, as in Linux.
        packet.ecn = CE;
        self.marked += 1;
        true
    }

    /// [`mark`](Store::mark) for the first packet of a list.
    pub fn mark_first(&mut self, list: &List) -> bool {
        let marks = list.packets > 0 && self.slab.mark(list.head);
        self.marked += u64::from(marks);
        marks
    }

    /// Packets marked so far.
    #[inline]
    pub(crate) fn marked(&self) -> u64 {
        self.marked
    }
}

/// What a [`Store`] borrows from the engine, for tests of queues without one.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct Backing {
    slab: Slab,
    charges: Charges,
    pub lost: Vec<(Packet, DropReason)>,
}

#[cfg(test)]
impl Backing {
    pub fn store(&mut self) -> Store<'_> {
        Store::new(&mut self.slab, &self.charges, &mut self.lost)
    }
}
