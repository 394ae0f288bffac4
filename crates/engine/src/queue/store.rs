//! Where the packets of queues lie: lists in the engine's slab, and what is lost or marked on the way.

use crate::account::DropReason;
use crate::link::Overhead;
use crate::packet::{CE, NIL, Packet, Slab};
use crate::settings::Limit;
use crate::units::Nanos;

/// A list of packets, first in, first out. Its packets lie in the [`Store`]: an empty list takes no memory beyond itself.
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
    /// One without packets.
    pub const NEW: List = List { head: NIL, tail: NIL, packets: 0, bytes: 0, first: 0 };

    /// Packets in it.
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

    /// Whether a packet more is within a limit.
    #[inline]
    pub fn fits(&self, limit: Limit, packet: &Packet) -> bool {
        match limit {
            Limit::Packets(most) => self.packets < most,
            Limit::Bytes(most) => u64::from(self.bytes) + u64::from(packet.len) <= u64::from(most),
        }
    }

    /// Whether it holds more than a limit.
    #[inline]
    pub fn over(&self, limit: Limit) -> bool {
        match limit {
            Limit::Packets(most) => self.packets > most,
            Limit::Bytes(most) => self.bytes > most,
        }
    }

    /// The charged length of its first packet.
    #[inline]
    pub fn peek(&self) -> Option<u32> {
        (self.packets > 0).then_some(self.first)
    }
}

/// The packets that wait in a link, as a queue sees them.
pub struct Store<'e> {
    slab: &'e mut Slab,
    overhead: &'e Overhead,
    lost: &'e mut Vec<(Packet, DropReason)>,
    marked: u64,
}

impl<'e> Store<'e> {
    #[inline]
    pub(crate) fn new(slab: &'e mut Slab, overhead: &'e Overhead, lost: &'e mut Vec<(Packet, DropReason)>) -> Store<'e> {
        Store { slab, overhead, lost, marked: 0 }
    }

    /// Puts a packet at the end of a list.
    #[inline]
    pub fn push(&mut self, list: &mut List, packet: &Packet) {
        let at = self.slab.insert(packet);
        if list.packets == 0 {
            list.head = at;
            list.first = packet.wire;
        } else {
            self.slab.link(list.tail, at, packet.wire);
        }
        list.tail = at;
        list.packets += 1;
        list.bytes += packet.len;
    }

    /// Takes the first packet of a list.
    #[inline]
    pub fn pop(&mut self, list: &mut List) -> Option<Packet> {
        if list.packets == 0 {
            return None;
        }
        let (packet, next, wire) = self.slab.remove(list.head, self.overhead);
        list.head = next;
        list.first = wire;
        list.packets -= 1;
        list.bytes -= packet.len;
        Some(packet)
    }

    /// Takes the last packet of a list. Linear in the list: for changes, not for packets' way.
    pub fn pop_last(&mut self, list: &mut List) -> Option<Packet> {
        if list.packets <= 1 {
            return self.pop(list);
        }
        let before = self.slab.before(list.head, list.tail);
        let (packet, ..) = self.slab.remove(list.tail, self.overhead);
        self.slab.link(before, NIL, 0);
        list.tail = before;
        list.packets -= 1;
        list.bytes -= packet.len;
        Some(packet)
    }

    /// Loses the last packets of a list, as many as are beyond a limit that was lowered. False if all stay. Linear in the list.
    pub fn cut(&mut self, list: &mut List, limit: Limit) -> bool {
        if !list.over(limit) {
            return false;
        }
        let mut kept = List::NEW;
        while let Some(packet) = self.pop(list) {
            if !kept.fits(limit, &packet) {
                self.lose(packet, DropReason::LimitLowered);
                break;
            }
            self.push(&mut kept, &packet);
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

    /// A packet that the queue held is dropped.
    #[inline]
    pub fn lose(&mut self, packet: Packet, reason: DropReason) {
        self.lost.push((packet, reason));
    }

    /// Tells the sender of congestion by the ECN field instead of a drop, if the packet's transport understands it (RFC 3168, 5).
    /// False, and nothing done, if it does not.
    #[inline]
    pub fn mark(&mut self, packet: &mut Packet) -> bool {
        if packet.ecn & CE == 0 {
            return false;
        }
        // One that comes with the mark set says it already; it counts as marked here too, as in Linux.
        packet.ecn = CE;
        self.marked += 1;
        true
    }

    /// [`mark`](Store::mark) for the first packet of a list, where it lies.
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

/// A store by itself, for tests of queues without an engine.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct Tub {
    slab: Slab,
    overhead: Overhead,
    pub lost: Vec<(Packet, DropReason)>,
}

#[cfg(test)]
impl Tub {
    pub fn store(&mut self) -> Store<'_> {
        Store::new(&mut self.slab, &self.overhead, &mut self.lost)
    }
}
