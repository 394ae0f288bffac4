//! The packets that wait in the kernel: by handle, what is needed for their verdicts.

use altq_engine::headers::{self, Encapsulation, IPV4, IPV6, Key};

use super::marks;
use super::message::{self, Behind, Packet, Verdict};
use crate::edge::{BATCH, EdgeCounters};
use crate::pool::Pool;
use crate::vnet::{GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, Vnet};

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// Sequence number of verdicts that let a packet through. Only errors of these matter.
pub const ACCEPTED: u32 = 1;

/// A frame whose packet waits in the kernel.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    id: u32,
    mark: u32,
    /// Place, in the rules' list, of the interface by which it came; `None` if no rule names it.
    place: Option<u16>,
    len: u32,
    /// DSCP and ECN on arrival.
    octet: u8,
    /// True if the rules behind the queue can write into the packet: they do not find an IP header
    /// behind PPPoE, MPLS or a second VLAN tag.
    writable: bool,
}

/// The packets that wait in the kernel.
pub struct Waiting {
    /// The queue.
    pub queue: u16,
    /// By handle.
    held: Vec<Held>,
    /// By handle: the destination after NAT. Empty unless the kernel is asked for it.
    behind: Vec<Option<Behind>>,
    /// Bytes of packets that wait, and the most that may.
    bytes: u64,
    most: u64,
    /// Verdicts that were not sent yet.
    pub verdicts: Vec<u8>,
    /// The number of the last packet that came. The kernel's first one is 1.
    last: u32,
    /// The interface's MTU, in bytes.
    pub mtu: usize,
    /// Index and place in the rules' list of the interfaces that the rules name, by index.
    pub places: Vec<(u32, u16)>,
    /// Counters of what came and went.
    pub counters: EdgeCounters,
}

impl Waiting {
    /// An empty set. At most `frames` frames and `bytes` bytes may wait.
    pub fn new(queue: u16, frames: usize, bytes: u64) -> Waiting {
        Waiting {
            queue,
            held: vec![Held::default(); frames],
            behind: Vec::new(),
            bytes: 0,
            most: bytes,
            verdicts: Vec::with_capacity(2 * BATCH * 40),
            last: 0,
            mtu: 1500,
            places: Vec::new(),
            counters: EdgeCounters::default(),
        }
    }

    /// Makes room for the packets' destinations after NAT, which the kernel will send.
    pub fn track(&mut self) {
        self.behind = vec![None; self.held.len()];
    }

    /// Puts a packet's headers into a slot. A packet without room is dropped.
    pub fn take(&mut self, packet: &Packet<'_>, pool: &mut Pool, out: &mut Vec<u32>) {
        self.last = packet.id;
        if is_discovery(packet) {
            let mark = marks::of(packet.mark, 0, 0);
            return message::verdict(&mut self.verdicts, self.queue, packet.id, Verdict::Accept, mark, 0);
        }
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
        // If a rule names the port of the bridge, the port counts, otherwise the bridge.
        let place = self.place(packet.port).or_else(|| self.place(packet.input));
        let (mark, octet) = (packet.mark, octet(pool.head(handle)));
        if let Some(held) = self.held.get_mut(handle as usize) {
            let writable = matches!(packet.protocol, IPV4 | IPV6);
            *held = Held { id: packet.id, mark, place, len: packet.len, octet, writable };
        }
        if let Some(behind) = self.behind.get_mut(handle as usize) {
            *behind = packet.behind;
        }
        out.push(handle);
    }

    /// Writes the verdict that lets a frame's packet through.
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

    /// Writes the requests that let all packets through, those that wait and those that come.
    pub fn release(&mut self) {
        message::let_pass(&mut self.verdicts, self.queue, 0, false);
        // Packets that have come since have higher numbers. Numbers are compared by their
        // difference, which must be less than 2^31.
        message::verdict_up_to(&mut self.verdicts, self.queue, self.last.wrapping_add(1 << 30), Verdict::Accept);
    }

    /// The place, in the rules' list, of the interface of this index.
    fn place(&self, index: u32) -> Option<u16> {
        let at = self.places.binary_search_by_key(&index, |(index, _)| *index).ok()?;
        self.places.get(at).map(|(_, place)| *place)
    }

    /// Adds to a key the packet's mark, the interface by which it came, and where it goes behind
    /// NAT.
    pub fn describe(&self, handle: u32, key: &mut Key) {
        let Some(held) = self.held.get(handle as usize) else { return };
        key.mark = held.mark;
        key.interface = held.place.unwrap_or(key.interface);
        if let Some(Some(behind)) = self.behind.get(handle as usize) {
            key.dst = behind.address;
            // A fragment, or an error of ICMP about the connection, has no ports.
            *key = key.with_dport(key.dport().map(|port| behind.port.unwrap_or(port)));
        }
    }

    /// True if CE can be written into the packet of a frame.
    pub fn writes_ecn(&self, handle: u32) -> bool {
        self.held.get(handle as usize).is_some_and(|held| held.writable)
    }

    /// Forgets the packet of a frame: it waits no longer.
    pub fn forget(&mut self, handle: u32) {
        if let Some(held) = self.held.get_mut(handle as usize) {
            self.bytes = self.bytes.saturating_sub(u64::from(std::mem::take(&mut held.len)));
        }
    }
}

/// True for IPv6's neighbour discovery (RFC 4861 4), which passes unshaped like ARP: if it were
/// lost in a full queue, the neighbour could not be reached. It always has a hop limit of 255 (RFC
/// 4861 6.1, 7.1, 8.1) and no extension headers.
fn is_discovery(packet: &Packet<'_>) -> bool {
    let Some(header) = packet.head.first_chunk::<41>().filter(|_| packet.protocol == 0x86dd) else { return false };
    header[6] == 58 && header[7] == 255 && (133..=137).contains(&header[40])
}

/// DSCP and ECN of a frame; 0 without an IP header.
fn octet(frame: &[u8]) -> u8 {
    let way = Encapsulation::read(frame);
    let Some([first, second]) = frame.get(way.layer3..).and_then(|packet| packet.first_chunk()) else { return 0 };
    match way.ethertype {
        IPV4 => *second,
        IPV6 => first << 4 | second >> 4,
        _ => 0,
    }
}

/// A virtio header for a super-packet. The kernel does not tell the size of the segments, so they
/// are assumed to fill the interface's MTU.
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
        assert_eq!((key.dport(), key.mark, key.interface, key.ecn()), (Some(443), 0x2a, 9, 2));
        assert!(waiting.verdicts.is_empty());
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
    fn a_port_of_a_bridge_or_the_bridge_may_be_named() {
        let (mut waiting, mut pool, mut out) = (Waiting::new(5, 4, 10_000), Pool::new(4, 1), Vec::new());
        let head = tcp(false);
        for (places, expected) in
            [(vec![(3, 9)], 9), (vec![(3, 9), (8, 1)], 1), (vec![(8, 1)], 1), (vec![(4, 2)], Key::NO_INTERFACE)]
        {
            waiting.places = places;
            waiting.take(&Packet { port: 8, ..packet(&head, 0x800, 60) }, &mut pool, &mut out);
            let mut key = Key::default();
            waiting.describe(out[out.len() - 1], &mut key);
            assert_eq!(key.interface, expected);
        }
    }

    #[test]
    fn a_key_has_the_destination_behind_nat() {
        let (mut waiting, mut pool, mut out) = (Waiting::new(5, 4, 10_000), Pool::new(4, 1), Vec::new());
        waiting.track();
        let head = tcp(false);
        let key = |waiting: &Waiting, pool: &Pool, handle| {
            let mut key = headers::parse_ethernet(pool.head(handle), 74).key;
            waiting.describe(handle, &mut key);
            (key.dst, key.dport())
        };
        let behind = Some(Behind { address: 0xc0a8_0005, port: Some(4000) });
        waiting.take(&Packet { behind, ..packet(&head, 0x800, 60) }, &mut pool, &mut out);
        assert_eq!(key(&waiting, &pool, out[0]), (0xc0a8_0005, Some(4000)));
        // The next packet in the same slot has no connection.
        waiting.drop(out[0]);
        pool.free(out[0]);
        waiting.take(&packet(&head, 0x800, 60), &mut pool, &mut out);
        assert_eq!((out[1], key(&waiting, &pool, out[1])), (out[0], (0x0a02_0002, Some(443))));
        // Without ports of its own it gets none.
        let mut fragment = head.clone();
        fragment[7] = 10;
        waiting.take(&Packet { behind, ..packet(&fragment, 0x800, 60) }, &mut pool, &mut out);
        assert_eq!(key(&waiting, &pool, out[2]), (0xc0a8_0005, None));
    }

    /// RFC 4861 4.3: an IPv6 header with next header 58 and hop limit 255, then type 135.
    #[test]
    fn neighbour_discovery_passes_at_once() {
        let mut head = [&[0x60, 0, 0, 0, 0, 24, 58, 255][..], &[0xfe; 32], &[135, 0, 0, 0, 0, 0, 0, 0]].concat();
        let (mut waiting, mut pool, mut out) = (Waiting::new(5, 4, 0), Pool::new(4, 1), Vec::new());
        let mut expected = Vec::new();
        waiting.take(&packet(&head, 0x86dd, 64), &mut pool, &mut out);
        message::verdict(&mut expected, 5, 7, Verdict::Accept, None, 0);
        let own = Packet { mark: 0x8000_0001, ..packet(&head, 0x86dd, 64) };
        waiting.take(&own, &mut pool, &mut out);
        message::verdict(&mut expected, 5, 7, Verdict::Accept, Some(1), 0);
        assert_eq!((&waiting.verdicts, waiting.counters.received), (&expected, 0));
        // An echo request, and a message that was forwarded or is cut short, are ordinary packets:
        // there is no room for them here.
        for (at, byte, len) in [(40, 128, 48), (7, 254, 48), (40, 135, 40)] {
            (head[7], head[40]) = (255, 135);
            head[at] = byte;
            waiting.take(&packet(&head[..len], 0x86dd, 64), &mut pool, &mut out);
        }
        assert_eq!((waiting.counters.missed, out.len()), (3, 0));
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

    /// The rules that write CE look at the packet's ethertype: 0x8864 is PPPoE (RFC 2516 4), 0x8847
    /// MPLS (RFC 3032 5), 0x8100 a VLAN tag (IEEE 802.1Q).
    #[test]
    fn ce_is_written_only_where_the_rules_find_an_ip_header() {
        let head = tcp(false);
        for (protocol, written) in [(0x800, true), (0x86dd, true), (0x8864, false), (0x8847, false), (0x8100, false)] {
            let (mut waiting, mut pool, mut out) = (Waiting::new(5, 4, 10_000), Pool::new(4, 1), Vec::new());
            let tagged = Packet { vlan: Some((0x8100, 5)), ..packet(&head, protocol, 60) };
            waiting.take(&tagged, &mut pool, &mut out);
            assert_eq!(waiting.writes_ecn(out[0]), written, "{protocol:#x}");
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
