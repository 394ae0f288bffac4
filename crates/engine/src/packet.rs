//! The packet as the engine sees it: a descriptor. The bytes stay with the caller.

use crate::link::Charges;
use crate::prefetch::prefetch;
use crate::units::Nanos;

/// A packet descriptor.
///
/// A GSO super-packet is one descriptor: `segments` says how many packets it becomes on the wire,
/// `len` and `wire` are their sums. Queues count descriptors (as a kernel pfifo counts them) and
/// bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// When it arrived. [`Engine::enqueue`](crate::Engine::enqueue) sets it.
    pub arrived: Nanos,
    /// The caller's own number for the packet: a kernel queue id, a buffer slot, a slab index. The
    /// engine only hands it back.
    pub handle: u32,
    /// Its own bytes, layer 3 and up. The `*_bytes` counters count these.
    pub len: u32,
    /// The bytes charged for it: `len` and the link's overhead on every segment.
    /// [`Engine::enqueue`](crate::Engine::enqueue) sets it from the link's
    /// [`Overhead`](crate::link::Overhead).
    pub wire: u32,
    /// A hash of the packet's flow, for queues that keep flows apart.
    pub flow: u32,
    /// Packets on the wire that this descriptor stands for, 1 or more (0 counts as 1).
    pub segments: u16,
    /// DSCP, 0 to 63.
    pub dscp: u8,
    /// The ECN field of the IP header (RFC 3168, 5): 0 not-ECT, 1 ECT(1), 2 ECT(0), 3 CE.
    pub ecn: u8,
    /// True for a packet that the queue `two_level` serves first: it opens a TCP connection, or
    /// acknowledges without data (docs/reference/altq.md 9).
    pub high: bool,
    /// Hashes of the source and the destination address, for queues that keep hosts apart. Only
    /// looked at when the packet arrives; both are 0 in a packet that leaves.
    pub hosts: [u16; 2],
    /// The source port, 0 where there is none, for queues that keep ports apart. Only looked at
    /// when the packet arrives; 0 in a packet that leaves.
    pub sport: u16,
}

const _: () = assert!(size_of::<Packet>() == 40);

/// Congestion experienced: the ECN field of a marked packet (RFC 3168, 5).
pub(crate) const CE: u8 = 3;

impl Packet {
    /// A plain packet of `len` bytes.
    pub fn new(handle: u32, len: u32) -> Packet {
        Packet { handle, len, segments: 1, ..Packet::default() }
    }
}

/// "None", where a list links to another item.
pub(crate) const NIL: u32 = u32::MAX;

/// All queued packets of a link, in one slab with a free list. A queue is a chain of cells, linked
/// by their indices.
///
/// A packet takes 32 bytes. The slab grows when it is full and never shrinks. So once it has held
/// the most packets, nothing is allocated.
///
/// A cell holds the charged length of the *next* packet of its queue, not its own. A departure has
/// to tell the scheduler that length, and so it does not have to fetch the next packet from memory.
/// A packet's own charged length is worked out again when it leaves.
pub(crate) struct Slab {
    cells: Vec<Cell>,
    /// The first free cell. Each free cell links to the next one.
    free: u32,
}

impl Default for Slab {
    fn default() -> Slab {
        Slab { cells: Vec::new(), free: NIL }
    }
}

/// Bit in [`Cell::ecn`] for [`Packet::high`].
const HIGH: u8 = 1 << 7;

/// [`Packet`] without its charged length. It is written and read field by field, never copied as a
/// whole: a processor that reads several recent small writes as one large value has to wait until
/// they have reached the cache.
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

impl Cell {
    const EMPTY: Cell =
        Cell { arrived: 0, handle: 0, len: 0, flow: 0, segments: 0, dscp: 0, ecn: 0, next: NIL, next_wire: 0 };
}

const _: () = assert!(size_of::<Cell>() == 32);

impl Cell {
    #[inline(always)]
    fn packet(&self, wire: u32) -> Packet {
        Packet {
            arrived: self.arrived,
            handle: self.handle,
            len: self.len,
            wire,
            flow: self.flow,
            segments: self.segments,
            dscp: self.dscp,
            ecn: self.ecn & !HIGH,
            high: self.ecn & HIGH != 0,
            hosts: [0; 2],
            sport: 0,
        }
    }
}

impl Slab {
    #[inline]
    pub(crate) fn insert(&mut self, packet: &Packet) -> u32 {
        if self.free as usize >= self.cells.len() {
            self.grow();
        }
        let at = self.free;
        if let Some(cell) = self.cells.get_mut(at as usize) {
            self.free = cell.next;
            cell.arrived = packet.arrived;
            cell.handle = packet.handle;
            cell.len = packet.len;
            cell.flow = packet.flow;
            cell.segments = packet.segments;
            cell.dscp = packet.dscp;
            cell.ecn = packet.ecn | if packet.high { HIGH } else { 0 };
            cell.next = NIL;
            cell.next_wire = 0;
        }
        at
    }

    #[cold]
    fn grow(&mut self) {
        self.free = self.cells.len() as u32;
        self.cells.push(Cell::EMPTY);
    }

    /// The length and the charged length of the packet in cell `at`, the cell of the next packet in
    /// its queue, and that packet's charged length.
    #[inline]
    pub(crate) fn first(&self, at: u32, charges: &Charges) -> (u32, u32, u32, u32) {
        let cell = &self.cells[at as usize];
        (cell.len, charges.segments(cell.len, cell.segments), cell.next, cell.next_wire)
    }

    /// Takes the packet out of cell `at`, and frees the cell. `wire` is its charged length.
    #[inline(always)]
    pub(crate) fn take(&mut self, at: u32, wire: u32) -> Packet {
        let cell = &mut self.cells[at as usize];
        cell.next = self.free;
        self.free = at;
        cell.packet(wire)
    }

    /// The packet in cell `at`. `wire` is its charged length.
    pub(crate) fn look(&self, at: u32, wire: u32) -> Packet {
        self.cells[at as usize].packet(wire)
    }

    /// Links the cell `next`, whose packet has the charged length `wire`, behind `at`.
    #[inline]
    pub(crate) fn link(&mut self, at: u32, next: u32, wire: u32) {
        let cell = &mut self.cells[at as usize];
        cell.next = next;
        cell.next_wire = wire;
    }

    /// The cell that links to `at`, in the chain that starts at `from`. Linear in the chain.
    pub(crate) fn before(&self, from: u32, at: u32) -> u32 {
        let mut cell = from;
        while self.cells[cell as usize].next != at {
            cell = self.cells[cell as usize].next;
        }
        cell
    }

    /// Hints that the packet in cell `at` is needed soon.
    #[inline]
    pub(crate) fn fetch(&self, at: u32) {
        prefetch(&self.cells, at as usize);
    }

    /// Sets CE on the packet in cell `at` if its transport is ECN-capable (RFC 3168, 5). False if
    /// it is not.
    pub(crate) fn mark(&mut self, at: u32) -> bool {
        let ecn = &mut self.cells[at as usize].ecn;
        let understands = *ecn & CE != 0;
        if understands {
            *ecn |= CE;
        }
        understands
    }

    /// The charged length of the packet in cell `at`.
    pub(crate) fn wire(&self, at: u32, charges: &Charges) -> u32 {
        let cell = &self.cells[at as usize];
        charges.segments(cell.len, cell.segments)
    }

    /// When the packet in cell `at` arrived.
    #[inline]
    pub(crate) fn arrived(&self, at: u32) -> Nanos {
        self.cells[at as usize].arrived
    }

    /// The DSCP of the packet in cell `at`.
    #[inline]
    pub(crate) fn dscp(&self, at: u32) -> u8 {
        self.cells[at as usize].dscp
    }

    /// Gives the packet in cell `at` another DSCP.
    pub(crate) fn set_dscp(&mut self, at: u32, dscp: u8) {
        self.cells[at as usize].dscp = dscp;
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.cells.capacity() * size_of::<Cell>()
    }
}
