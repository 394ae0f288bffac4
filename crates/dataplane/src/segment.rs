//! Super-packets: computes their length on the wire, and cuts them into shorter ones.
//!
//! With segmentation offload (TSO, USO) TCP and UDP pass up to 64 KB to the device at once,
//! together with the size of a segment; the device, or the kernel before it, makes packets of it. A
//! scheduler must charge the bytes of these packets. And one super-packet must not block the link
//! for more than a millisecond: 64 KB take 52 µs at 10 Gbit/s, but 524 ms at 1 Mbit/s. A
//! super-packet that takes longer is cut into several that are short enough, down to single
//! segments. Segmentation and checksums of the parts are still left to the device. What stands
//! behind PPPoE or MPLS, or in a tunnel, is always cut into single segments ([`Super::direct`]).

use altq_engine::headers::{Encapsulation, IPV4, IPV6};

use crate::checksum::Sum;
use crate::pool::Pool;
use crate::vnet::{GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, NEEDS_CSUM, Vnet};

/// The layout of a super-packet. Offsets are from the frame's first byte, and lie in its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Super {
    /// Where layer 3 begins. In a tunnel that is its outer IP header.
    pub layer3: usize,
    /// Where the IP header before TCP or UDP begins.
    pub network: usize,
    /// Where the TCP or UDP header begins.
    pub transport: usize,
    /// Where the payload begins.
    pub payload: usize,
    /// Bytes of the whole frame.
    pub frame: usize,
    /// Payload bytes of every segment but the last.
    pub size: usize,
    /// True for IPv6, false for IPv4.
    pub v6: bool,
    /// The same of the outer header of a tunnel, if it is one: IP in IP (RFC 2003, 2473, 4213) or
    /// GRE (RFC 2784, 2890). Receive offload (GRO) joins packets also inside of these.
    pub outer_v6: Option<bool>,
    /// True for UDP, false for TCP.
    pub udp: bool,
    /// Where the PPPoE header begins, if there is one.
    pub pppoe: Option<usize>,
    /// False if the IP header stands behind PPPoE or MPLS, or in a tunnel. Linux 6.12 segments no
    /// such frame of a packet socket: for MPLS and tunnels it wants an inner header noted that a
    /// packet socket cannot note (net/mpls/mpls_gso.c, net/ipv4/af_inet.c), for PPPoE it has
    /// nothing. It would drop the frame, or hand it to a device that cannot segment it either. So
    /// it must be cut into single segments, even if it has only one.
    pub direct: bool,
}

impl Super {
    /// Reads the headers of a super-packet. `None` if the frame is no super-packet, or its headers
    /// disagree with the virtio header or are not all in `head`; it then counts as one packet.
    pub fn read(vnet: &Vnet, head: &[u8], frame: usize) -> Option<Super> {
        if vnet.kind() == GSO_NONE || vnet.gso_size == 0 {
            return None;
        }
        let way = Encapsulation::read(head);
        let layer3 = way.layer3;
        let (mut network, mut v6) = (layer3, is_v6(way.ethertype)?);
        let behind = |at: usize, v6: bool| if v6 { transport6(head, at) } else { transport4(head, at) };
        let (mut transport, mut proto) = behind(network, v6)?;
        let mut outer_v6 = None;
        if matches!(proto, IPIP | SIT | GRE) {
            outer_v6 = Some(v6);
            (network, v6) = inside(head, transport, proto)?;
            (transport, proto) = behind(network, v6)?;
        }
        let udp = proto == 17;
        let payload = if udp { transport + 8 } else { transport + usize::from(head.get(transport + 12)? >> 4) * 4 };
        let agrees = match vnet.kind() {
            GSO_TCPV4 => proto == 6 && !v6,
            GSO_TCPV6 => proto == 6 && v6,
            GSO_UDP_L4 => udp,
            _ => false,
        };
        let sound = agrees && (udp || payload >= transport + 20) && payload <= head.len() && payload < frame;
        let (pppoe, size) = (way.pppoe, vnet.gso_size.into());
        let direct = way.is_direct() && outer_v6.is_none();
        sound.then_some(Super { layer3, network, transport, payload, frame, size, v6, outer_v6, udp, pppoe, direct })
    }

    /// Number of packets that it becomes on the wire.
    pub fn segments(&self) -> usize {
        (self.frame - self.payload).div_ceil(self.size)
    }

    /// Bytes of the headers from layer 3 on, which every segment carries.
    pub fn headers(&self) -> usize {
        self.payload - self.layer3
    }

    /// The sum of the segments' lengths at layer 3.
    pub fn wire_len(&self) -> usize {
        self.frame - self.payload + self.segments() * self.headers()
    }
}

/// Protocol numbers of tunnels: IPv4 in IP, IPv6 in IP, GRE.
const IPIP: u8 = 4;
const SIT: u8 = 41;
const GRE: u8 = 47;

/// True for IPv6, false for IPv4.
fn is_v6(ethertype: u16) -> Option<bool> {
    match ethertype {
        IPV4 => Some(false),
        IPV6 => Some(true),
        _ => None,
    }
}

/// Where the IP header in a tunnel begins, and whether it is of IPv6. `None` for GRE with a
/// checksum or numbers, which each segment would have of its own.
fn inside(head: &[u8], at: usize, proto: u8) -> Option<(usize, bool)> {
    /// The flag of a key (RFC 2890 2).
    const KEY: u16 = 0x2000;
    match proto {
        IPIP => Some((at, false)),
        SIT => Some((at, true)),
        _ => {
            let flags = word(head, at).filter(|flags| flags & !KEY == 0)?;
            let length = if flags & KEY == 0 { 4 } else { 8 };
            Some((at + length, is_v6(word(head, at + 2)?)?))
        }
    }
}

fn transport4(head: &[u8], network: usize) -> Option<(usize, u8)> {
    let first = *head.get(network)?;
    let words = usize::from(first & 15);
    (first >> 4 == 4 && words >= 5).then_some((network + words * 4, *head.get(network + 9)?))
}

fn transport6(head: &[u8], network: usize) -> Option<(usize, u8)> {
    if head.get(network)? >> 4 != 6 {
        return None;
    }
    let (mut at, mut next) = (network + 40, *head.get(network + 6)?);
    // Hop-by-hop options, routing and destination options (RFC 8200 4.3, 4.4, 4.6); fragments are
    // never super-packets.
    while matches!(next, 0 | 43 | 60) {
        next = *head.get(at)?;
        at += (usize::from(*head.get(at + 1)?) + 1) * 8;
    }
    Some((at, next))
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

fn put(bytes: &mut [u8], at: usize, word: u16) {
    if let Some(field) = bytes.get_mut(at..at + 2) {
        field.copy_from_slice(&word.to_be_bytes());
    }
}

/// A part of a super-packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The handle of the part's frame.
    pub handle: u32,
    /// Number of packets that it becomes on the wire.
    pub segments: u16,
    /// The sum of their lengths at layer 3.
    pub len: u32,
}

/// Cuts the super-packet `handle` into parts of at most `most` segments (at least 1), and writes
/// them to `parts` in order. The frame itself becomes the first part. False if the pool has no
/// room; the frame is then unchanged.
pub fn cut(pool: &mut Pool, handle: u32, whole: &Super, most: usize, parts: &mut Vec<Part>) -> bool {
    let step = most.max(1) * whole.size;
    let count = (whole.frame - whole.payload).div_ceil(step);
    if count > pool.free_heads() {
        return false;
    }
    let before = parts.len();
    for part in 0..count {
        let from = whole.payload + part * step;
        let to = (from + step).min(whole.frame);
        // The first part is the frame itself, which is shortened last.
        let made = if part == 0 { Some(handle) } else { pool.cut(handle, whole.payload, from, to) };
        let Some(made) = made else {
            for part in parts.drain(before..).skip(1) {
                pool.free(part.handle);
            }
            return false;
        };
        let segments = (to - from).div_ceil(whole.size);
        let len = to - from + segments * whole.headers();
        parts.push(Part { handle: made, segments: segments as u16, len: len as u32 });
    }
    pool.truncate(handle, whole.payload + step);
    for part in 0..count {
        let vnet = pool.vnet_mut(parts[before + part].handle);
        let kind = vnet.kind();
        let single = parts[before + part].segments == 1;
        *vnet = Vnet {
            flags: NEEDS_CSUM,
            // The ECN bit says that only the first segment carries CWR, so only the first part
            // keeps it (RFC 3168, 6.1.2).
            gso_type: if single { GSO_NONE } else { kind | if part == 0 { vnet.gso_type & GSO_ECN } else { 0 } },
            hdr_len: whole.payload as u16,
            gso_size: if single { 0 } else { whole.size as u16 },
            csum_start: whole.transport as u16,
            csum_offset: if whole.udp { 6 } else { 16 },
        };
        let place = Place { part, last: part + 1 == count, segment: part * most.max(1), offset: part * step };
        let len = pool.len(parts[before + part].handle);
        rewrite(pool.head_mut(parts[before + part].handle), whole, len, place);
    }
    true
}

/// The place of a part in its super-packet.
struct Place {
    part: usize,
    last: bool,
    /// Number of its first segment.
    segment: usize,
    /// Payload bytes before it.
    offset: usize,
}

/// Writes the headers of a part as a segmenting device would (RFC 9293 3.1 for TCP): lengths, those
/// of PPPoE and of a tunnel too, IP id, sequence number, flags, and the IPv4 header's checksum. The
/// checksum field of TCP and UDP gets the sum of the pseudo-header; the rest is left to the device.
fn rewrite(head: &mut [u8], whole: &Super, frame: usize, place: Place) {
    let (network, transport) = (whole.network, whole.transport);
    let length = frame - transport;
    if let Some(pppoe) = whole.pppoe {
        // Version, type, code, session, length: of all that follows (RFC 2516 4).
        put(head, pppoe + 4, (frame - pppoe - 6) as u16);
    }
    if let Some(v6) = whole.outer_v6 {
        rewrite_ip(head, whole.layer3, v6, frame, place.segment);
    }
    rewrite_ip(head, network, whole.v6, frame, place.segment);
    if whole.udp {
        put(head, transport + 4, length as u16);
    } else {
        if let Some(field) = head.get_mut(transport + 4..transport + 8) {
            let sequence =
                u32::from_be_bytes([field[0], field[1], field[2], field[3]]).wrapping_add(place.offset as u32);
            field.copy_from_slice(&sequence.to_be_bytes());
        }
        if let Some(flags) = head.get_mut(transport + 13) {
            if !place.last {
                *flags &= !0x09; // FIN, PSH
            }
            if place.part > 0 {
                *flags &= !0x80; // CWR
            }
        }
    }
    let addresses = if whole.v6 { network + 8..network + 40 } else { network + 12..network + 20 };
    let mut sum = Sum::default();
    if let Some(addresses) = head.get(addresses) {
        sum.add(addresses);
    }
    sum.word(if whole.udp { 17 } else { 6 }).word(length as u16);
    put(head, transport + if whole.udp { 6 } else { 16 }, sum.folded());
}

/// Writes the length of an IP header at `at`, and of IPv4 the id of the segment of this number and
/// the checksum.
fn rewrite_ip(head: &mut [u8], at: usize, v6: bool, frame: usize, segment: usize) {
    if v6 {
        put(head, at + 4, (frame - at - 40) as u16);
        return;
    }
    put(head, at + 2, (frame - at) as u16);
    // Each segment has the next id
    // (RFC 6864 4.1 asks no more of packets that may not be fragmented).
    let id = word(head, at + 4).unwrap_or(0).wrapping_add(segment as u16);
    put(head, at + 4, id);
    put(head, at + 10, 0);
    let end = at + head.get(at).map_or(0, |first| usize::from(first & 15) * 4);
    let sum = head.get(at..end).map_or(0, |header| Sum::default().add(header).finish());
    put(head, at + 10, sum);
}

/// Computes a checksum that was left to the device, for edges whose other side does not compute it.
/// False if the virtio header's offsets are not in the frame's head.
pub fn complete(pool: &mut Pool, handle: u32) -> bool {
    let vnet = *pool.vnet(handle);
    if vnet.flags & NEEDS_CSUM == 0 {
        return true;
    }
    let start = usize::from(vnet.csum_start);
    let field = start + usize::from(vnet.csum_offset);
    if field + 2 > pool.head(handle).len() {
        return false;
    }
    let mut sum = Sum::default();
    sum.add(&pool.head(handle)[start..]).add(pool.body(handle));
    // In UDP a checksum of zero means that there is none, so zero is sent as ones (RFC 768).
    let value = match sum.finish() {
        0 if vnet.csum_offset == 6 => 0xffff,
        value => value,
    };
    put(pool.head_mut(handle), field, value);
    pool.vnet_mut(handle).flags &= !NEEDS_CSUM;
    true
}

#[cfg(test)]
mod tests;
