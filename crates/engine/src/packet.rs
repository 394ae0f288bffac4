//! The packet as the engine sees it: a descriptor. The bytes stay with whoever feeds the engine.

use crate::link::Overhead;
use crate::prefetch::prefetch;
use crate::units::Nanos;

/// A packet descriptor.
///
/// A GSO super-packet is one descriptor: `segments` says how many packets it becomes on the wire, `len` and `wire` are
/// their sums. Queues count descriptors (as a kernel pfifo counts them) and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// When it arrived. [`Engine::enqueue`](crate::Engine::enqueue) sets it.
    pub arrived: Nanos,
    /// The feeder's own name for the packet: a kernel queue id, a buffer slot, a slab index. The engine only hands it back.
    pub handle: u32,
    /// Its own bytes, layer 3 and up. The `*_bytes` counters count these.
    pub len: u32,
    /// The bytes charged for it: `len` and the link's overhead on every segment.
    /// [`Engine::enqueue`](crate::Engine::enqueue) sets it from the link's [`Overhead`].
    pub wire: u32,
    /// A hash of the packet's flow, for queues that keep flows apart.
    pub flow: u32,
    /// Packets on the wire that this descriptor stands for, 1 or more (0 counts as 1).
    pub segments: u16,
    /// DSCP, 0 to 63.
    pub dscp: u8,
    /// The ECN field of the IP header (RFC 3168): 0 not-ECT, 1 ECT(1), 2 ECT(0), 3 CE.
    pub ecn: u8,
    /// True for what a queue of two levels serves first: connections that open, and acknowledgements without data (altq.md section 9).
    pub high: bool,
    /// Hashes of the source and the destination address, for queues that keep hosts apart. Looked at when the packet arrives, and
    /// not kept: 0 in a packet that leaves.
    pub hosts: [u16; 2],
}

/// Values of the ECN field.
pub(crate) const CE: u8 = 3;

impl Packet {
    /// A plain packet of `len` bytes.
    pub fn new(handle: u32, len: u32) -> Packet {
        Packet { handle, len, segments: 1, ..Packet::default() }
    }
}

/// "No packet", in the links of the lists.
pub(crate) const NIL: u32 = u32::MAX;

/// All queued packets of a link, in one slab with a free list: a queue is a chain of indices.
///
/// 32 bytes a packet; the slab grows when it must and never shrinks, so that a warm engine does not allocate. A cell holds the
/// charged length of the *next* packet in place of its own, which is worked out again when it leaves: so that a departure need not
/// fetch the packet behind it from memory.
pub(crate) struct Slab {
    cells: Vec<Cell>,
    /// The first free cell; each names the next.
    free: u32,
}

impl Default for Slab {
    fn default() -> Slab {
        Slab { cells: Vec::new(), free: NIL }
    }
}

/// Bit in [`Cell::ecn`] for [`Packet::high`].
const HIGH: u8 = 1 << 7;

/// [`Packet`] without its charged length.
#[derive(Clone, Copy)]
struct Cell {
    arrived: Nanos,
    handle: u32,
    len: u32,
    flow: u32,
    segments: u16,
    dscp: u8,
    ecn: u8,
    next: u32,
    next_wire: u32,
}

const _: () = assert!(size_of::<Cell>() == 32);

impl Slab {
    #[inline]
    pub(crate) fn insert(&mut self, packet: &Packet) -> u32 {
        let Packet { arrived, handle, len, wire: _, flow, segments, dscp, ecn, high, hosts: _ } = *packet;
        let ecn = ecn | if high { HIGH } else { 0 };
        let cell = Cell { arrived, handle, len, flow, segments, dscp, ecn, next: NIL, next_wire: 0 };
        let at = self.free;
        match self.cells.get_mut(at as usize) {
            Some(free) => {
                self.free = free.next;
                *free = cell;
                at
            }
            None => self.grow(cell),
        }
    }

    #[cold]
    fn grow(&mut self, cell: Cell) -> u32 {
        self.cells.push(cell);
        (self.cells.len() - 1) as u32
    }

    /// The length and the charged length of the packet at a place, the next one's place, and its charged length.
    #[inline]
    pub(crate) fn first(&self, at: u32, overhead: &Overhead) -> (u32, u32, u32, u32) {
        let cell = &self.cells[at as usize];
        (cell.len, overhead.charge_segments(cell.len, cell.segments), cell.next, cell.next_wire)
    }

    /// Takes a packet out whose charged length is known.
    #[inline]
    pub(crate) fn take(&mut self, at: u32, wire: u32) -> Packet {
        let cell = &mut self.cells[at as usize];
        let Cell { arrived, handle, len, flow, segments, dscp, ecn, .. } = *cell;
        cell.next = self.free;
        self.free = at;
        let (high, ecn) = (ecn & HIGH != 0, ecn & !HIGH);
        Packet { arrived, handle, len, wire, flow, segments, dscp, ecn, high, hosts: [0; 2] }
    }

    /// Takes a packet out, with the next one's place and charged length. Its own is charged anew by the link's overhead.
    #[inline]
    pub(crate) fn remove(&mut self, at: u32, overhead: &Overhead) -> (Packet, u32, u32) {
        let (_, wire, next, next_wire) = self.first(at, overhead);
        (self.take(at, wire), next, next_wire)
    }

    /// Chains `next`, of `wire` bytes charged, behind `at`.
    #[inline]
    pub(crate) fn link(&mut self, at: u32, next: u32, wire: u32) {
        let cell = &mut self.cells[at as usize];
        cell.next = next;
        cell.next_wire = wire;
    }

    /// The cell that links to `at`, in the chain from `from`.
    pub(crate) fn before(&self, from: u32, at: u32) -> u32 {
        let mut cell = from;
        while self.cells[cell as usize].next != at {
            cell = self.cells[cell as usize].next;
        }
        cell
    }

    /// The packet at a place is needed soon.
    #[inline]
    pub(crate) fn fetch(&self, at: u32) {
        prefetch(&self.cells, at as usize);
    }

    /// Sets the CE mark on the packet at a place, if its transport understands it.
    pub(crate) fn mark(&mut self, at: u32) -> bool {
        let ecn = &mut self.cells[at as usize].ecn;
        let understands = *ecn & CE != 0;
        if understands {
            *ecn |= CE;
        }
        understands
    }

    /// The charged length of the packet at a place.
    pub(crate) fn wire(&self, at: u32, overhead: &Overhead) -> u32 {
        let cell = &self.cells[at as usize];
        overhead.charge_segments(cell.len, cell.segments)
    }

    /// When the packet at a place arrived.
    #[inline]
    pub(crate) fn arrived(&self, at: u32) -> Nanos {
        self.cells[at as usize].arrived
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.cells.capacity() * size_of::<Cell>()
    }
}
