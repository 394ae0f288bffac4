//! What is known of the packets that wait in the kernel: by handle, what their verdicts need.

use altq_engine::headers::{self, Encapsulation, IPV4, IPV6, Key};

use super::marks;
use super::message::{self, Packet, Verdict};
use crate::edge::{BATCH, EdgeCounters};
use crate::pool::Pool;
use crate::vnet::{GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, Vnet};

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// Sequence number of verdicts that let a packet go on. Only an error of these is of interest.
pub const ACCEPTED: u32 = 1;

/// A frame whose packet waits in the kernel.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    id: u32,
    mark: u32,
    /// Index of the interface by which it came.
    input: u32,
    len: u32,
    /// DSCP and ECN on arrival.
    octet: u8,
}

/// The packets that wait in the kernel.
pub struct Waiting {
    /// The queue.
    pub queue: u16,
    /// By handle.
    held: Vec<Held>,
    /// Bytes of packets that wait, and the most that may.
    bytes: u64,
    most: u64,
    /// Verdicts that were not sent yet.
    pub verdicts: Vec<u8>,
    /// The number of the last packet that came.
    last: Option<u32>,
    /// The interface's MTU, in bytes.
    pub mtu: usize,
    /// Index and place in the rules' list of the interfaces that the rules name, by index.
    pub places: Vec<(u32, u16)>,
    /// Counters of what came and went.
    pub counters: EdgeCounters,
}

impl Waiting {
    /// Nothing waits yet. At most `frames` may, and at most `bytes`.
    pub fn new(queue: u16, frames: usize, bytes: u64) -> Waiting {
        Waiting {
            queue,
            held: vec![Held::default(); frames],
            bytes: 0,
            most: bytes,
            verdicts: Vec::with_capacity(2 * BATCH * 40),
            last: None,
            mtu: 1500,
            places: Vec::new(),
            counters: EdgeCounters::default(),
        }
    }

    /// Puts a packet's headers into a slot. A packet without room is dropped.
    pub fn take(&mut self, packet: &Packet<'_>, pool: &mut Pool, out: &mut Vec<u32>) {
        self.last = Some(packet.id);
        self.counters.received += 1;
        self.counters.received_bytes += u64::from(packet.len) + ETHERNET as u64;
        let room = self.bytes + u64::from(packet.len) <= self.most;
        let Some(handle) = pool.take().filter(|handle| {
            let fits = room && (*handle as usize) < self.held.len();
            if !fits {
                pool.free(*handle);
            }
            fits
        }) else {
            self.counters.missed += 1;
            return message::verdict(&mut self.verdicts, self.queue, packet.id, Verdict::Drop, None, 0);
        };
        let [high, low] = packet.protocol.to_be_bytes();
        let ethernet = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low];
        if !pool.fill_head(handle, &[&ethernet, packet.head], packet.len as usize + ETHERNET) {
            pool.free(handle);
            self.counters.unreadable += 1;
            return message::verdict(&mut self.verdicts, self.queue, packet.id, Verdict::Drop, None, 0);
        }
        if let Some((tpid, tci)) = packet.vlan {
            pool.insert_tag(handle, tpid, tci);
        }
        if packet.gso {
            *pool.vnet_mut(handle) = estimate(pool.head(handle), pool.len(handle), self.mtu);
        }
        self.bytes += u64::from(packet.len);
        let (mark, input, octet) = (packet.mark, packet.input, octet(pool.head(handle)));
        if let Some(held) = self.held.get_mut(handle as usize) {
            *held = Held { id: packet.id, mark, input, len: packet.len, octet };
        }
        out.push(handle);
    }

    /// Writes the verdict that lets a frame's packet go on.
    pub fn accept(&mut self, pool: &Pool, handle: u32) {
        let Some(held) = self.held.get(handle as usize) else { return };
        let mark = marks::of(held.mark, held.octet, octet(pool.head(handle)));
        message::verdict(&mut self.verdicts, self.queue, held.id, Verdict::Accept, mark, ACCEPTED);
    }

    /// Writes the verdict that drops a frame's packet.
    pub fn drop(&mut self, handle: u32) {
        let Some(held) = self.held.get(handle as usize) else { return };
        message::verdict(&mut self.verdicts, self.queue, held.id, Verdict::Drop, None, 0);
        self.forget(handle);
    }

    /// Writes a verdict that lets all packets go on.
    pub fn accept_all(&mut self) {
        if let Some(last) = self.last {
            // Packets that have come since have higher numbers. Numbers are compared by their
            // difference, which must be less than 2^31.
            message::verdict_up_to(&mut self.verdicts, self.queue, last.wrapping_add(1 << 30), Verdict::Accept);
        }
    }

    /// Adds to a key the packet's mark, and the interface by which it came.
    pub fn describe(&self, handle: u32, key: &mut Key) {
        let Some(held) = self.held.get(handle as usize) else { return };
        key.mark = held.mark;
        let place = self.places.binary_search_by_key(&held.input, |(index, _)| *index);
        if let Some((_, place)) = place.ok().and_then(|at| self.places.get(at)) {
            key.interface = *place;
        }
    }

    /// The packet of a frame waits no longer.
    pub fn forget(&mut self, handle: u32) {
        if let Some(held) = self.held.get_mut(handle as usize) {
            self.bytes = self.bytes.saturating_sub(u64::from(std::mem::take(&mut held.len)));
        }
    }
}

/// DSCP and ECN of a frame; 0 without an IP header.
fn octet(frame: &[u8]) -> u8 {
    let way = Encapsulation::read(frame);
    let (Some(first), Some(second)) = (frame.get(way.layer3), frame.get(way.layer3 + 1)) else { return 0 };
    match way.ethertype {
        IPV4 => *second,
        IPV6 => first << 4 | second >> 4,
        _ => 0,
    }
}

/// A virtio header for a super-packet. The kernel does not tell the size of its segments: they are
/// taken to fill the interface's MTU.
fn estimate(frame: &[u8], len: usize, mtu: usize) -> Vnet {
    let found = headers::parse_ethernet(frame, len as u32);
    let none = Vnet::default();
    let Some(transport) = found.transport.map(|at| at as usize) else { return none };
    let (kind, header) = match (found.key.proto, found.key.family) {
        (6, family) => {
            let Some(offset) = frame.get(transport + 12) else { return none };
            (if family == 4 { GSO_TCPV4 } else { GSO_TCPV6 }, usize::from(offset >> 4) * 4)
        }
        (17, _) => (GSO_UDP_L4, 8),
        _ => (GSO_NONE, 0),
    };
    let size = (mtu + found.layer3 as usize).saturating_sub(transport + header);
    Vnet { gso_type: kind, gso_size: u16::try_from(size).unwrap_or(u16::MAX), ..none }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment;

    /// TCP with timestamps from port 40000 to 443, over IPv4 or IPv6 with DSCP 0 and ECT(0).
    fn tcp(v6: bool) -> Vec<u8> {
        let mut packet = if v6 {
            [&[0x60, 0x20, 0, 0, 0xff, 0xff, 6, 64][..], &[0xfd; 32]].concat()
        } else {
            vec![0x45, 2, 0xff, 0xff, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 1, 0, 1, 10, 2, 0, 2]
        };
        packet.extend([0x9c, 0x40, 1, 0xbb, 0, 0, 0, 1, 0, 0, 0, 1, 0x80, 0x10, 1, 0, 0, 0, 0, 0]);
        packet.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        packet
    }

    fn packet(head: &[u8], protocol: u16, len: u32) -> Packet<'_> {
        Packet { id: 7, protocol, mark: 0x2a, input: 3, len, head, ..Packet::default() }
    }

    #[test]
    fn a_packet_becomes_a_frame_with_its_true_length() {
        let (mut waiting, mut pool, mut out) = (Waiting::new(5, 4, 10_000), Pool::new(4, 1), Vec::new());
        waiting.places = vec![(3, 9)];
        let head = tcp(false);
        waiting.take(&packet(&head, 0x800, 1500), &mut pool, &mut out);
        let frame = pool.head(out[0]);
        assert_eq!((&frame[12..14], &frame[14..], pool.len(out[0])), (&[8, 0][..], &head[..], 1514));
        let mut key = headers::parse_ethernet(frame, 1514).key;
        waiting.describe(out[0], &mut key);
        assert_eq!((key.dport, key.mark, key.interface, key.ecn()), (Some(443), 0x2a, 9, 2));
        assert_eq!(waiting.verdicts, []);
        // Nothing was written into the packet: the verdict leaves the mark alone.
        let mut expected = Vec::new();
        waiting.accept(&pool, out[0]);
        message::verdict(&mut expected, 5, 7, Verdict::Accept, None, ACCEPTED);
        // CE was written.
        pool.head_mut(out[0])[15] = 3;
        waiting.accept(&pool, out[0]);
        message::verdict(&mut expected, 5, 7, Verdict::Accept, Some(0x8000_002a), ACCEPTED);
        waiting.drop(out[0]);
        message::verdict(&mut expected, 5, 7, Verdict::Drop, None, 0);
        assert_eq!((waiting.verdicts, waiting.bytes), (expected, 0));
    }

    #[test]
    fn what_has_no_room_is_dropped_at_once() {
        let head = tcp(true);
        for (frames, bytes) in [(1, 10_000), (4, 2000), (0, 10_000)] {
            let (mut waiting, mut pool, mut out) = (Waiting::new(5, frames, bytes), Pool::new(4, 1), Vec::new());
            for _ in 0..2 {
                waiting.take(&packet(&head, 0x86dd, 1500), &mut pool, &mut out);
            }
            let fit = out.len();
            assert_eq!((fit, waiting.counters.missed, pool.free_heads()), (frames.min(1), 2 - fit as u64, 4 - fit));
            let mut expected = Vec::new();
            (fit..2).for_each(|_| message::verdict(&mut expected, 5, 7, Verdict::Drop, None, 0));
            assert_eq!(waiting.verdicts, expected);
        }
    }

    #[test]
    fn a_super_packet_has_as_many_segments_as_fill_the_mtu() {
        for (v6, protocol, size, kind) in [(false, 0x800, 1448, GSO_TCPV4), (true, 0x86dd, 1428, GSO_TCPV6)] {
            let (mut waiting, mut pool, mut out) = (Waiting::new(5, 4, 1 << 20), Pool::new(4, 1), Vec::new());
            let head = tcp(v6);
            // Ten full segments and one of 100 bytes.
            let len = (head.len() + 10 * size + 100) as u32;
            waiting.take(&Packet { gso: true, ..packet(&head, protocol, len) }, &mut pool, &mut out);
            let vnet = pool.vnet(out[0]);
            assert_eq!((vnet.kind(), usize::from(vnet.gso_size)), (kind, size));
            let whole = segment::Super::read(vnet, pool.head(out[0]), pool.len(out[0])).unwrap();
            assert_eq!((whole.segments(), whole.wire_len()), (11, 10 * 1500 + 100 + head.len()));
        }
    }

    #[test]
    fn no_headers_make_a_panic() {
        let head = tcp(false);
        for (len, protocol) in (0..head.len()).zip([0x800, 0x86dd, 0x8100, 0].into_iter().cycle()) {
            let (mut waiting, mut pool, mut out) = (Waiting::new(5, 4, 1 << 20), Pool::new(4, 1), Vec::new());
            let packet = Packet { gso: true, vlan: Some((0x8100, 5)), ..packet(&head[..len], protocol, 9000) };
            waiting.take(&packet, &mut pool, &mut out);
            waiting.accept(&pool, out[0]);
        }
    }
}
