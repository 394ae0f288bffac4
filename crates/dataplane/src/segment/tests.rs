//! Segmentation, checked by a receiver written for this test. It reads the frames' bytes by RFC
//! 791, 8200, 9293 and 768, and sums checksums word by word.

use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::*;

/// The one's-complement sum over bytes, computed in the simplest way.
fn plain_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for (at, byte) in bytes.iter().enumerate() {
        sum += if at % 2 == 0 { u32::from(*byte) * 256 } else { u32::from(*byte) };
        sum = sum % 65536 + sum / 65536;
    }
    sum as u16
}

struct Made {
    bytes: Vec<u8>,
    vnet: Vnet,
    payload: Vec<u8>,
}

/// What stands between the tags and the IP header.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wrap {
    Nothing,
    /// A PPPoE session (RFC 2516 4).
    Session,
    /// Labels 100 and 16 (RFC 3032 2.1).
    Labels,
}

impl Wrap {
    /// Bytes that it takes.
    fn len(self) -> usize {
        if self == Wrap::Nothing { 0 } else { 8 }
    }
}

/// A super-packet as a kernel hands it over, with the TCP flags CWR, ACK, PSH and FIN.
fn super_packet(v6: bool, udp: bool, tags: usize, wrap: Wrap, options: usize, payload: usize, size: u16) -> Made {
    let mut rng = Pcg32::seed_from_u64((payload * 31 + usize::from(size)) as u64);
    let payload: Vec<u8> = (0..payload).map(|_| rng.next_u32() as u8).collect();
    let mut bytes = vec![2u8, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for tag in 0..tags {
        bytes.extend([0x81, 0, 0, 5 + tag as u8]);
    }
    let proto = if udp { 17 } else { 6 };
    let transport_len = if udp { 8 } else { 20 + options } + payload.len();
    match wrap {
        Wrap::Nothing => bytes.extend(if v6 { [0x86, 0xdd] } else { [8, 0] }),
        Wrap::Session => {
            let length = 2 + if v6 { 40 } else { 20 } + transport_len;
            bytes.extend([0x88, 0x64, 0x11, 0, 0, 1]);
            bytes.extend((length as u16).to_be_bytes());
            bytes.extend([0, if v6 { 0x57 } else { 0x21 }]);
        }
        Wrap::Labels => bytes.extend([0x88, 0x47, 0, 6, 0x40, 64, 0, 1, 1, 64]),
    }
    if v6 {
        bytes.extend([0x60, 0, 0, 0]);
        bytes.extend((transport_len as u16).to_be_bytes());
        bytes.extend([proto, 64]);
        bytes.extend((0..32).map(|i| 0x20 + i as u8));
    } else {
        bytes.extend([0x45, 0]);
        bytes.extend(((20 + transport_len) as u16).to_be_bytes());
        bytes.extend([0xff, 0xfe, 0x40, 0, 64, proto, 0, 0, 10, 0, 0, 1, 192, 0, 2, 1]);
    }
    let transport = bytes.len();
    bytes.extend([0x9c, 0x40, 0, 80]);
    if udp {
        bytes.extend(((8 + payload.len()) as u16).to_be_bytes());
        bytes.extend([0, 0]);
    } else {
        bytes.extend([0xff, 0xff, 0xf0, 0, 1, 2, 3, 4, ((20 + options) * 4) as u8, 0x99, 0xff, 0xff, 0, 0, 0, 0]);
        bytes.extend(vec![1; options]);
    }
    let gso_type = match (udp, v6) {
        (true, _) => GSO_UDP_L4,
        (false, true) => GSO_TCPV6,
        (false, false) => GSO_TCPV4 | GSO_ECN,
    };
    let vnet = Vnet {
        flags: NEEDS_CSUM,
        gso_type,
        hdr_len: bytes.len() as u16,
        gso_size: size,
        csum_start: transport as u16,
        csum_offset: if udp { 6 } else { 16 },
    };
    bytes.extend(&payload);
    Made { bytes, vnet, payload }
}

/// What the receiver reads from a frame.
struct Seen {
    id: u16,
    sequence: u32,
    flags: u8,
    payload: Vec<u8>,
}

fn receive(bytes: &[u8], v6: bool, udp: bool, tags: usize, wrap: Wrap, options: usize) -> Seen {
    let ip = 14 + 4 * tags + wrap.len();
    let field = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    match wrap {
        Wrap::Nothing => {}
        Wrap::Session => {
            assert_eq!(bytes[ip - 10..ip - 4], [0x88, 0x64, 0x11, 0, 0, 1]);
            assert_eq!(usize::from(field(ip - 4)), bytes.len() - ip + 2, "PPPoE length");
            assert_eq!(bytes[ip - 2..ip], [0, if v6 { 0x57 } else { 0x21 }]);
        }
        Wrap::Labels => assert_eq!(bytes[ip - 10..ip], [0x88, 0x47, 0, 6, 0x40, 64, 0, 1, 1, 64]),
    }
    let (transport, id, pseudo) = if v6 {
        assert_eq!(usize::from(field(ip + 4)), bytes.len() - ip - 40);
        (ip + 40, 0, bytes[ip + 8..ip + 40].to_vec())
    } else {
        assert_eq!(usize::from(field(ip + 2)), bytes.len() - ip);
        assert_eq!(plain_sum(&bytes[ip..ip + 20]), 0xffff, "IPv4 header checksum");
        (ip + 20, field(ip + 4), bytes[ip + 12..ip + 20].to_vec())
    };
    let segment = &bytes[transport..];
    let mut summed = pseudo;
    summed.extend([0, if udp { 17 } else { 6 }]);
    summed.extend((segment.len() as u16).to_be_bytes());
    summed.extend(segment);
    assert_eq!(plain_sum(&summed), 0xffff, "transport checksum");
    if udp {
        assert_eq!(usize::from(field(transport + 4)), segment.len());
        return Seen { id, sequence: 0, flags: 0, payload: segment[8..].to_vec() };
    }
    assert!(segment[20..20 + options].iter().all(|o| *o == 1), "options are repeated");
    let sequence = u32::from_be_bytes([segment[4], segment[5], segment[6], segment[7]]);
    Seen { id, sequence, flags: segment[13], payload: segment[20 + options..].to_vec() }
}

/// `form`: number of tags, what stands behind them, bytes of TCP options.
fn check(v6: bool, udp: bool, form: (usize, Wrap, usize), payload: usize, size: u16, most: usize) {
    let (tags, wrap, options) = form;
    let what =
        format!("v6 {v6} udp {udp} tags {tags} {wrap:?} options {options} payload {payload} size {size} most {most}");
    let made = super_packet(v6, udp, tags, wrap, options, payload, size);
    let mut pool = Pool::new(2048, 2);
    let frame = pool.take_large().unwrap();
    assert!(pool.fill(frame, &made.bytes));
    *pool.vnet_mut(frame) = made.vnet;
    let whole = Super::read(&made.vnet, pool.head(frame), made.bytes.len()).expect(&what);
    assert_eq!(whole.direct, wrap == Wrap::Nothing, "{what}");
    let headers = made.bytes.len() - payload - 14 - 4 * tags - wrap.len();
    let segments = payload.div_ceil(size.into());
    assert_eq!((whole.segments(), whole.wire_len()), (segments, payload + segments * headers), "{what}");

    let mut parts = Vec::new();
    assert!(cut(&mut pool, frame, &whole, most, &mut parts), "{what}");
    assert_eq!(parts.len(), segments.div_ceil(most), "{what}");
    assert_eq!(parts.iter().map(|p| usize::from(p.segments)).sum::<usize>(), segments, "{what}");
    assert_eq!(parts.iter().map(|p| p.len as usize).sum::<usize>(), whole.wire_len(), "{what}");
    let mut joined = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let vnet = *pool.vnet(part.handle);
        assert_eq!(vnet.gso_type == GSO_NONE, part.segments == 1, "{what}");
        assert_eq!(usize::from(vnet.gso_size), if part.segments == 1 { 0 } else { size.into() }, "{what}");
        assert_eq!(
            vnet.gso_type & GSO_ECN != 0,
            at == 0 && part.segments > 1 && made.vnet.gso_type & GSO_ECN != 0,
            "{what}"
        );
        assert!(complete(&mut pool, part.handle));
        let seen = receive(&pool.bytes(part.handle), v6, udp, tags, wrap, options);
        if !v6 {
            assert_eq!(seen.id, 0xfffeu16.wrapping_add((at * most) as u16), "{what}");
        }
        if !udp {
            assert_eq!(seen.sequence, 0xffff_f000u32.wrapping_add(joined.len() as u32), "{what}");
            let (first, last) = (at == 0, at + 1 == parts.len());
            assert_eq!(seen.flags, 0x10 | if first { 0x80 } else { 0 } | if last { 0x09 } else { 0 }, "{what}");
        }
        joined.extend(seen.payload);
    }
    assert_eq!(joined, made.payload, "{what}");
    for part in parts {
        pool.free(part.handle);
    }
    assert_eq!(pool.free_heads(), 2048, "{what}");
    assert!(pool.take_large().is_some() && pool.take_large().is_some(), "a body leaked: {what}");
}

#[test]
fn parts_are_what_a_device_would_send() {
    for v6 in [false, true] {
        for udp in [false, true] {
            for (tags, wrap, options) in [
                (0, Wrap::Nothing, 12),
                (1, Wrap::Nothing, 0),
                (2, Wrap::Nothing, 40),
                (0, Wrap::Session, 12),
                (1, Wrap::Session, 0),
                (0, Wrap::Labels, 12),
                (2, Wrap::Labels, 40),
            ] {
                let options = if udp { 0 } else { options };
                for (payload, size) in [
                    (65_000, 1448),
                    (2_897, 1448),
                    (2_000, 1000),
                    (1_990, 100),
                    (1_449, 1448),
                    (30_000, 48),
                    (64_001, 8960),
                ] {
                    for most in [1, 3, 8] {
                        check(v6, udp, (tags, wrap, options), payload, size, most);
                    }
                }
            }
        }
    }
}

#[test]
fn lying_headers_are_refused_and_never_panic() {
    let mut rng = Pcg32::seed_from_u64(7);
    let mut pool = Pool::new(4096, 1);
    for round in 0..40_000 {
        let wrap = [Wrap::Nothing, Wrap::Session, Wrap::Labels][round / 4 % 3];
        let size = 1 + (round % 1500) as u16;
        let made = super_packet(round % 2 == 0, round % 3 == 0, round % 4, wrap, 12, 1 + round % 4_000, size);
        let (mut bytes, mut vnet) = (made.bytes, made.vnet);
        // Changes bytes in the headers or in the virtio header, or cuts the frame.
        for _ in 0..rng.next_u32() % 4 {
            let at = rng.next_u32() as usize % bytes.len().min(120);
            bytes[at] = rng.next_u32() as u8;
        }
        if rng.next_u32() % 2 == 0 {
            let mut raw = vnet.write();
            raw[rng.next_u32() as usize % crate::vnet::LEN] = rng.next_u32() as u8;
            vnet = Vnet::read(&raw);
        }
        if rng.next_u32() % 3 == 0 {
            bytes.truncate(rng.next_u32() as usize % bytes.len());
        }
        let frame = pool.take_large().expect("nothing leaks");
        pool.fill(frame, &bytes);
        *pool.vnet_mut(frame) = vnet;
        let mut parts = Vec::new();
        if let Some(whole) = Super::read(&vnet, pool.head(frame), bytes.len()) {
            assert!(whole.segments() >= 1 && whole.wire_len() >= whole.frame - whole.network);
            if cut(&mut pool, frame, &whole, 1 + round % 5, &mut parts) {
                for part in &parts[1..] {
                    assert!(complete(&mut pool, part.handle));
                    pool.free(part.handle);
                }
            }
        }
        complete(&mut pool, frame);
        pool.free(frame);
        assert_eq!(pool.free_heads(), 4096);
    }
}

/// The header of a tunnel, and the headers behind it up to the inner IP header, with room for
/// `inside` bytes: IP in IP, or GRE with or without a key (RFC 2784 2.1, RFC 2890 2).
fn tunnel(outer_v6: bool, inner_v6: bool, gre: Option<bool>, inside: usize) -> Vec<u8> {
    let behind = match gre {
        None => Vec::new(),
        Some(key) => {
            let kind = if inner_v6 { [0x86, 0xdd] } else { [8, 0] };
            let (flags, number): ([u8; 2], &[u8]) = if key { ([0x20, 0], &[0, 0, 0, 9]) } else { ([0, 0], &[]) };
            [&flags[..], &kind, number].concat()
        }
    };
    let proto = if gre.is_some() {
        47
    } else if inner_v6 {
        41
    } else {
        4
    };
    let length = behind.len() + inside;
    let mut bytes = if outer_v6 {
        let mut bytes = vec![0x60, 0, 0, 0];
        bytes.extend((length as u16).to_be_bytes());
        bytes.extend([proto, 64]);
        bytes.extend((0..32).map(|i| 0x40 + i as u8));
        bytes
    } else {
        let mut bytes = vec![0x45, 0];
        bytes.extend(((20 + length) as u16).to_be_bytes());
        bytes.extend([0xff, 0xff, 0, 0, 64, proto, 0, 0, 172, 16, 0, 1, 172, 16, 0, 2]);
        bytes
    };
    bytes.extend(behind);
    bytes
}

/// What GRO has joined inside a tunnel. Each segment has the tunnel's header with its own length,
/// id and checksum.
#[test]
fn packets_of_a_tunnel_are_cut_with_its_header() {
    for case in 0..16 {
        let (outer_v6, inner_v6) = (case & 1 != 0, case & 2 != 0);
        let gre = [None, Some(false), Some(true), None][case >> 2];
        let tags = if case >> 2 == 3 { 1 } else { 0 };
        let made = super_packet(inner_v6, false, tags, Wrap::Nothing, 12, 5000, 1400);
        let layer3 = 14 + 4 * tags;
        let outer = tunnel(outer_v6, inner_v6, gre, made.bytes.len() - layer3);
        let ethertype = |v6: bool| if v6 { [0x86, 0xdd] } else { [8, 0] };
        let head = [&made.bytes[..layer3 - 2], &ethertype(outer_v6)].concat();
        let bytes = [&head[..], &outer, &made.bytes[layer3..]].concat();
        let vnet = Vnet { csum_start: made.vnet.csum_start + outer.len() as u16, ..made.vnet };
        let mut pool = Pool::new(16, 1);
        let frame = pool.take_large().unwrap();
        pool.fill(frame, &bytes);
        *pool.vnet_mut(frame) = vnet;
        let whole = Super::read(&vnet, pool.head(frame), bytes.len()).unwrap_or_else(|| panic!("case {case}"));
        assert!(!whole.direct && whole.outer_v6 == Some(outer_v6) && whole.v6 == inner_v6);
        let inner_headers = if inner_v6 { 40 } else { 20 } + 32;
        assert_eq!(whole.wire_len(), 5000 + 4 * (outer.len() + inner_headers));
        let mut parts = Vec::new();
        assert!(cut(&mut pool, frame, &whole, 1, &mut parts));
        assert_eq!(parts.len(), 4);
        let mut payload = Vec::new();
        for (at, part) in parts.iter().enumerate() {
            assert!(complete(&mut pool, part.handle));
            let bytes = pool.bytes(part.handle);
            assert_eq!(part.len as usize, bytes.len() - layer3);
            let field = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            if outer_v6 {
                assert_eq!(usize::from(field(layer3 + 4)), bytes.len() - layer3 - 40, "case {case}");
            } else {
                assert_eq!(usize::from(field(layer3 + 2)), bytes.len() - layer3, "case {case}");
                assert_eq!(plain_sum(&bytes[layer3..layer3 + 20]), 0xffff, "case {case}: checksum");
                assert_eq!(field(layer3 + 4), 0xffff_u16.wrapping_add(at as u16));
            }
            // Without the tunnel it is a segment like any other.
            let bare = [&bytes[..layer3 - 2], &ethertype(inner_v6), &bytes[layer3 + outer.len()..]].concat();
            payload.extend(receive(&bare, inner_v6, false, tags, Wrap::Nothing, 12).payload);
        }
        assert_eq!(payload, made.payload);
    }
    // A checksum or numbers of GRE would be other ones in each segment.
    let made = super_packet(false, false, 0, Wrap::Nothing, 12, 5000, 1400);
    let mut bytes = [&made.bytes[..14], &tunnel(false, false, Some(true), 5000), &made.bytes[14..]].concat();
    bytes[14 + 20] = 0xb0;
    assert_eq!(Super::read(&made.vnet, &bytes, bytes.len()), None);
}

#[test]
fn a_pool_without_room_leaves_the_frame_whole() {
    let made = super_packet(false, false, 0, Wrap::Nothing, 12, 20_000, 1448);
    let mut pool = Pool::new(5, 1);
    let frame = pool.take_large().unwrap();
    pool.fill(frame, &made.bytes);
    let whole = Super::read(&made.vnet, pool.head(frame), made.bytes.len()).unwrap();
    let mut parts = Vec::new();
    assert!(!cut(&mut pool, frame, &whole, 1, &mut parts));
    assert!(parts.is_empty());
    assert_eq!((pool.bytes(frame), pool.free_heads()), (made.bytes, 4));
}
