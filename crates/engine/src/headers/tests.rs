//! Frames are built here byte by byte from the RFCs' drawings, not by code that the parser shares.

mod encapsulated;

use proptest::prelude::*;

use super::*;

/// An IPv4 packet (RFC 791 3.1): `options` words of options, stated length as it should be.
fn v4(proto: u8, options: usize, flags_offset: u16, payload: &[u8]) -> Vec<u8> {
    let total = (20 + 4 * options + payload.len()) as u16;
    let mut p = vec![0x45 + options as u8, 0xb8];
    p.extend(total.to_be_bytes());
    p.extend(0xbeef_u16.to_be_bytes());
    p.extend(flags_offset.to_be_bytes());
    p.extend([64, proto, 0, 0, 10, 1, 2, 3, 192, 0, 2, 1]);
    p.extend(vec![1; 4 * options]);
    p.extend(payload);
    p
}

/// An IPv6 packet (RFC 8200 3), traffic class 0xb9, flow label 0x12345.
fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut p = vec![0x6b, 0x91, 0x23, 0x45];
    p.extend((payload.len() as u16).to_be_bytes());
    p.extend([next, 64]);
    p.extend(0x2001_0db8_0000_0000_0000_0000_0000_0001_u128.to_be_bytes());
    p.extend(0x2001_0db8_0000_0000_0000_0000_0000_0002_u128.to_be_bytes());
    p.extend(payload);
    p
}

fn ethernet(tags: &[(u16, u16)], kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut f = vec![2; 12];
    for (tpid, tci) in tags {
        f.extend(tpid.to_be_bytes());
        f.extend(tci.to_be_bytes());
    }
    f.extend(kind.to_be_bytes());
    f.extend(payload);
    f
}

/// A TCP header: ports 40000 and 80, the given flags.
fn tcp(flags: u8) -> Vec<u8> {
    let mut t = vec![0; 20];
    t[..4].copy_from_slice(&[0x9c, 0x40, 0, 80]);
    t[12] = 0x50;
    t[13] = flags;
    t
}

/// A UDP header: ports 5000 and 53.
const UDP_HEADER: [u8; 8] = [0x13, 0x88, 0, 53, 0, 8, 0, 0];

fn ip(bytes: &[u8]) -> Headers {
    parse_ip(bytes, bytes.len() as u32)
}

fn ports(h: &Headers) -> (Option<u16>, Option<u16>) {
    (h.key.sport(), h.key.dport())
}

#[test]
fn tcp_over_ipv4() {
    let h = ip(&v4(6, 0, 0x4000, &tcp(0x12)));
    assert_eq!((h.key.family, h.key.proto, h.key.length), (4, 6, 40));
    assert_eq!((h.key.src, h.key.dst), (0x0a01_0203, 0xc000_0201));
    assert_eq!((ports(&h), h.key.tcp_flags), ((Some(40000), Some(80)), 0x12));
    assert_eq!((h.key.tos, h.key.dscp(), h.key.ecn()), (0xb8, 46, 0));
    assert_eq!((h.layer3, h.transport, h.fragment), (0, Some(20), None));
    assert_eq!((h.key.vlan(), h.key.interface, h.key.mark), (None, Key::NO_INTERFACE, 0));
    let packet = h.packet(7);
    assert_eq!((packet.handle, packet.len, packet.segments, packet.dscp, packet.ecn), (7, 40, 1, 46, 0));
}

#[test]
fn options_move_the_transport_header() {
    for options in 0..=10 {
        let h = ip(&v4(17, options, 0, &UDP_HEADER));
        assert_eq!(
            (ports(&h), h.transport),
            ((Some(5000), Some(53)), Some(20 + 4 * options as u32)),
            "{options} words"
        );
    }
}

#[test]
fn vlan_stacks() {
    let inner = v4(17, 0, 0, &UDP_HEADER);
    let plain = parse_ethernet(&ethernet(&[], 0x0800, &inner), 42);
    assert_eq!((plain.key.vlan(), plain.layer3, plain.key.length, plain.key.family), (None, 14, 28, 4));
    // 802.1Q: priority 5, id 100.
    let one = parse_ethernet(&ethernet(&[(0x8100, 0xa064)], 0x0800, &inner), 46);
    assert_eq!((one.key.vlan(), one.layer3, one.transport, one.key.dport()), (Some(100), 18, Some(38), Some(53)));
    // 802.1ad: the service tag is the outer one.
    let two = parse_ethernet(&ethernet(&[(0x88a8, 7), (0x8100, 100)], 0x0800, &inner), 50);
    assert_eq!((two.key.vlan(), two.layer3, two.key.sport()), (Some(7), 22, Some(5000)));
    let deep = ethernet(&[(0x8100, 1); 9], 0x0800, &inner);
    let deep = parse_ethernet(&deep, deep.len() as u32);
    assert_eq!((deep.key.family, deep.key.vlan()), (0, Some(1)));
}

#[test]
fn padding_is_not_part_of_the_packet() {
    // 28 bytes of IP in the smallest frame: 60 bytes without the check sequence. Padding that looks
    // like ports is not read.
    let mut frame = ethernet(&[], 0x0800, &v4(17, 0, 0, &[0x13, 0x88]));
    frame.resize(60, 0x55);
    let h = parse_ethernet(&frame, 60);
    assert_eq!((h.key.length, ports(&h), h.transport), (22, (None, None), Some(34)));
}

#[test]
fn other_ethertypes_have_a_length_only() {
    let arp = parse_ethernet(&ethernet(&[], 0x0806, &[0; 46]), 60);
    assert_eq!((arp.key.family, arp.key.length, arp.layer3, arp.transport), (0, 46, 14, None));
    // An ethertype that lies about the version is no IP.
    let lie = parse_ethernet(&ethernet(&[], 0x86dd, &v4(17, 3, 0, &UDP_HEADER)), 60);
    assert_eq!((lie.key.family, lie.key.length), (0, 46));
}

#[test]
fn fragments_of_ipv4() {
    // First: more fragments, offset 0. Its ports are there.
    let first = ip(&v4(17, 0, 0x2000, &UDP_HEADER));
    assert_eq!(first.fragment, Some(Fragment { id: 0xbeef, offset: 0, more: true, proto: 17 }));
    assert_eq!(ports(&first), (Some(5000), Some(53)));
    // Offset 185 x 8 = 1480.
    let later = ip(&v4(17, 0, 185, &UDP_HEADER));
    assert_eq!(later.fragment, Some(Fragment { id: 0xbeef, offset: 1480, more: false, proto: 17 }));
    assert_eq!((ports(&later), later.transport, later.key.proto), ((None, None), None, 17));
    // RFC 1858 3: a first fragment too small for the ports.
    let tiny = ip(&v4(6, 0, 0x2000, &[0x9c, 0x40]));
    assert_eq!(ports(&tiny), (None, None));
}

#[test]
fn extension_headers_of_ipv6() {
    // Hop-by-hop (8 bytes), destination options (16), routing (24), fragment at 0, authentication
    // (24, SPI 0xabcdef01), then TCP.
    let mut p = vec![60, 0, 0, 0, 0, 0, 0, 0];
    p.extend([43, 1].into_iter().chain([0; 14]));
    p.extend([44, 2].into_iter().chain([0; 22]));
    p.extend([51, 0, 0, 1, 0xca, 0xfe, 0xba, 0xbe]);
    p.extend([6, 4, 0, 0, 0xab, 0xcd, 0xef, 0x01].into_iter().chain([0; 16]));
    let header = p.len() as u32;
    p.extend(tcp(2));
    let h = ip(&v6(0, &p));
    assert_eq!((h.key.family, h.key.proto, h.key.length), (6, 6, 40 + header + 20));
    assert_eq!((ports(&h), h.key.tcp_flags, h.transport), ((Some(40000), Some(80)), 2, Some(40 + header)));
    assert_eq!(h.key.spi, 0xabcd_ef01);
    assert_eq!(h.fragment, Some(Fragment { id: 0xcafe_babe, offset: 0, more: true, proto: 51 }));
    assert_eq!((h.key.tos, h.key.dscp(), h.key.ecn(), h.key.flow_label), (0xb9, 46, 1, 0x12345));
    assert_eq!(h.key.src, 0x2001_0db8_0000_0000_0000_0000_0000_0001);
    assert_eq!(h.key.dst, 0x2001_0db8_0000_0000_0000_0000_0000_0002);
}

#[test]
fn later_fragments_of_ipv6() {
    let mut p = vec![17, 0, 0x05, 0xa8, 0, 0, 0, 9];
    p.extend(UDP_HEADER);
    let h = ip(&v6(44, &p));
    assert_eq!((h.key.proto, ports(&h), h.transport), (17, (None, None), None));
    assert_eq!(h.fragment, Some(Fragment { id: 9, offset: 1448, more: false, proto: 17 }));
}

#[test]
fn many_extension_headers() {
    for n in [0, 1, 7, 8, 9, 100] {
        let mut p = Vec::new();
        for left in (0..n).rev() {
            p.extend([if left == 0 { 17 } else { 60 }, 0, 0, 0, 0, 0, 0, 0]);
        }
        p.extend(UDP_HEADER);
        let h = ip(&v6(if n == 0 { 17 } else { 60 }, &p));
        let expected = if n <= 8 { (17, Some(53)) } else { (60, None) };
        assert_eq!((h.key.proto, h.key.dport()), expected, "{n} headers");
    }
}

#[test]
fn protocols() {
    for proto in [6, 17, 33, 132, 136] {
        assert_eq!(ports(&ip(&v4(proto, 0, 0, &tcp(0)))), (Some(40000), Some(80)), "{proto}");
        assert_eq!(ports(&ip(&v6(proto, &tcp(0)))), (Some(40000), Some(80)), "{proto}");
    }
    // ICMP, IGMP, GRE, ICMPv6, OSPF: no ports, a transport header all the same.
    for proto in [1, 2, 47, 58, 89] {
        let h = ip(&v4(proto, 0, 0, &tcp(0xff)));
        assert_eq!((ports(&h), h.key.tcp_flags, h.transport, h.key.proto), ((None, None), 0, Some(20), proto));
    }
    // ESP: the SPI. AH over IPv4, then UDP.
    assert_eq!(ip(&v4(50, 0, 0, &[0, 0, 1, 2, 0, 0, 0, 1])).key.spi, 0x102);
    let mut ah = vec![17, 1, 0, 0, 0, 0, 3, 4, 0, 0, 0, 1];
    ah.extend(UDP_HEADER);
    let h = ip(&v4(51, 0, 0, &ah));
    assert_eq!((h.key.proto, h.key.spi, h.key.dport()), (17, 0x304, Some(53)));
    // In IPv4 the numbers of IPv6's extension headers are protocols like any other.
    assert_eq!(ip(&v4(0, 0, 0, &UDP_HEADER)).key.proto, 0);
    assert_eq!(ip(&v4(60, 0, 0, &UDP_HEADER)).key.proto, 60);
    // Only eight bytes of TCP: ports, no flags.
    let short = ip(&v4(6, 0, 0, &tcp(0x12)[..8]));
    assert_eq!((ports(&short), short.key.tcp_flags), ((Some(40000), Some(80)), 0));
}

#[test]
fn lengths_that_lie() {
    let good = v4(17, 0, 0, &UDP_HEADER);
    // Longer than the frame, shorter than the header, 0 (a super-packet): the frame's own length
    // holds.
    for stated in [29_u16, 0xffff, 19, 0] {
        let mut p = good.clone();
        p[2..4].copy_from_slice(&stated.to_be_bytes());
        let h = ip(&p);
        assert_eq!((h.key.length, h.key.dport()), (28, Some(53)), "stated {stated}");
    }
    // A super-packet of 100,000 bytes of which only the headers are seen.
    let mut p = good.clone();
    p[2..4].fill(0);
    assert_eq!(parse_ip(&p, 100_000).key.length, 100_000);
    let mut p = v6(17, &UDP_HEADER);
    p[4..6].fill(0);
    assert_eq!(parse_ip(&p, 100_000).key.length, 100_000);
    p[6] = 59;
    assert_eq!((parse_ip(&p, 46).key.length, parse_ip(&p, 46).key.dport()), (40, None));
    // Header lengths below 20, or beyond the packet: addresses and protocol, no ports.
    for ihl in [0, 4, 15] {
        let mut p = good.clone();
        p[0] = 0x40 | ihl;
        let h = ip(&p);
        assert_eq!((h.key.family, h.key.proto, h.key.src, ports(&h)), (4, 17, 0x0a01_0203, (None, None)), "ihl {ihl}");
        assert_eq!((h.transport, h.key.length), (None, 28));
    }
    // An extension header that ends beyond the packet.
    let h = ip(&v6(60, &[17, 200, 0, 0, 0, 0, 0, 0]));
    assert_eq!((h.key.proto, h.transport), (17, None));
}

#[test]
fn the_capture_may_be_shorter_than_the_packet() {
    let whole = v4(6, 0, 0, &[&tcp(0x18)[..], &[0; 1400]].concat());
    let h = parse_ip(&whole[..64], whole.len() as u32);
    assert_eq!((h.key.length, h.key.dport(), h.key.tcp_flags), (1440, Some(80), 0x18));
    assert_eq!(parse_ip(&whole[..19], 1440).key, Key { length: 1440, ..Key::default() });
    assert_eq!(parse_ethernet(&[], 0), Headers::default());
    assert_eq!(parse_ethernet(&[0; 5], 5).key.length, 0);
}

#[test]
fn fragment_cache() {
    let piece = |id: u16, flags: u16, payload: &[u8]| {
        let mut p = v4(17, 0, flags, payload);
        p[4..6].copy_from_slice(&id.to_be_bytes());
        ip(&p)
    };
    let mut cache = FragmentCache::new();
    // Unknown: no ports. Then first, middle, last; after the last one it is forgotten.
    let mut lost = piece(1, 185, &[0; 8]);
    cache.see(&mut lost);
    assert_eq!(ports(&lost), (None, None));
    cache.see(&mut piece(1, 0x2000, &UDP_HEADER));
    let mut middle = piece(1, 0x2000 | 185, &[0; 8]);
    cache.see(&mut middle);
    assert_eq!(ports(&middle), (Some(5000), Some(53)));
    let mut last = piece(1, 370, &[0; 8]);
    cache.see(&mut last);
    assert_eq!(ports(&last), (Some(5000), Some(53)));
    let mut again = piece(1, 370, &[0; 8]);
    cache.see(&mut again);
    assert_eq!(ports(&again), (None, None));
    // Seventeen packets at once: the oldest has made room.
    for id in 100..117 {
        cache.see(&mut piece(id, 0x2000, &UDP_HEADER));
    }
    for id in 100..117 {
        let mut last = piece(id, 370, &[0; 8]);
        cache.see(&mut last);
        assert_eq!(last.key.sport().is_some(), id != 100, "{id}");
    }
    // Whole packets pass untouched.
    let mut whole = piece(5, 0, &UDP_HEADER);
    let before = whole;
    cache.see(&mut whole);
    assert_eq!(whole, before);
}

/// What must hold of every answer, whatever the bytes.
fn sane(h: &Headers, seen: usize, len: usize) {
    let key = &h.key;
    let end = h.layer3 as usize + key.length as usize;
    assert!(end <= len.max(seen), "{h:?} of {len}");
    if let Some(at) = h.transport {
        assert!((at as usize) < seen.min(end) && at > h.layer3, "{h:?}");
    }
    assert!(key.sport().is_some() == key.dport().is_some());
    assert!(key.sport().is_none() || h.transport.is_some() && [6, 17, 33, 132, 136].contains(&key.proto));
    assert!(key.tcp_flags == 0 || key.proto == 6 && key.sport().is_some());
    assert!(h.fragment.is_none_or(|f| f.offset == 0 || h.transport.is_none()));
    assert!([0, 4, 6].contains(&key.family));
    if key.family != 6 {
        assert!(key.src <= u128::from(u32::MAX) && key.dst <= u128::from(u32::MAX) && key.flow_label == 0);
    }
    if key.family == 0 {
        assert_eq!((key.src, key.dst, key.proto, key.tos, h.transport), (0, 0, 0, 0, None));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200), more in 0_u32..3000) {
        let len = bytes.len() as u32 + more;
        sane(&parse_ethernet(&bytes, len), bytes.len(), len as usize);
        sane(&parse_ip(&bytes, len), bytes.len(), len as usize);
    }

    /// Near misses find more than noise does: a good packet with a few bytes changed, cut anywhere.
    #[test]
    fn damaged_packets(
        six in any::<bool>(),
        chain in proptest::collection::vec(prop_oneof![Just(0_u8), Just(43), Just(44), Just(51), Just(60)], 0..11),
        tags in proptest::collection::vec((prop_oneof![Just(0x8100_u16), Just(0x88a8)], any::<u16>()), 0..4),
        changes in proptest::collection::vec((0_usize..160, any::<u8>()), 0..6),
        cut in 0_usize..300,
    ) {
        let mut payload = Vec::new();
        for at in 0..chain.len() {
            payload.extend([chain.get(at + 1).copied().unwrap_or(6), 0, 0, 0, 0, 0, 0, 7]);
        }
        payload.extend(tcp(0x10));
        let first = chain.first().copied().unwrap_or(6);
        let packet = if six { v6(first, &payload) } else { v4(first, 2, 0, &payload) };
        let mut frame = ethernet(&tags, if six { 0x86dd } else { 0x0800 }, &packet);
        for (at, byte) in changes {
            let at = at % frame.len();
            frame[at] = byte;
        }
        let len = frame.len();
        let seen = &frame[..cut.min(len)];
        sane(&parse_ethernet(seen, len as u32), seen.len(), len);
        let bare = seen.get(14..).unwrap_or(&[]);
        sane(&parse_ip(bare, bare.len() as u32), bare.len(), bare.len());
        let mut cache = FragmentCache::new();
        cache.see(&mut parse_ethernet(seen, len as u32));
    }

    /// What is built comes back.
    #[test]
    fn built_packets(
        six in any::<bool>(), udp in any::<bool>(), options in 0_usize..=10, padding in 0_usize..50,
        vlan in proptest::option::of(0_u16..4096), cut in 0_usize..1000,
    ) {
        let (proto, transport) = if udp { (17, UDP_HEADER.to_vec()) } else { (6, tcp(0x18)) };
        let payload = [&transport[..], &[0xaa; 700]].concat();
        let packet = if six { v6(proto, &payload) } else { v4(proto, options, 0, &payload) };
        let tags: Vec<_> = vlan.iter().map(|id| (0x8100, *id)).collect();
        let mut frame = ethernet(&tags, if six { 0x86dd } else { 0x0800 }, &packet);
        frame.extend(vec![0xee; padding]);
        let at = 14 + 4 * tags.len() + if six { 40 } else { 20 + 4 * options };
        // All headers are seen, and as much of the rest as may be.
        let seen = &frame[..(at + transport.len() + cut).min(frame.len())];
        let h = parse_ethernet(seen, frame.len() as u32);
        prop_assert_eq!(h.key.length as usize, packet.len());
        prop_assert_eq!(h.key.vlan(), vlan);
        prop_assert_eq!(h.transport, Some(at as u32));
        prop_assert_eq!(ports(&h), if udp { (Some(5000), Some(53)) } else { (Some(40000), Some(80)) });
        prop_assert_eq!(h.key.tcp_flags, if udp { 0 } else { 0x18 });
        // The bare packet gives the same key, but for the tag.
        let bare = parse_ip(&packet, packet.len() as u32);
        prop_assert_eq!(bare.key.with_vlan(vlan), h.key);
    }
}

/// docs/reference/altq.md 9: SYN, SYN/ACK and pure ACK without FIN or RST are to go first.
#[test]
fn what_goes_first() {
    const FIN: u8 = 1;
    const SYN: u8 = 2;
    const RST: u8 = 4;
    const PSH: u8 = 8;
    const ACK: u8 = 16;
    let high = |segment: &[u8]| {
        let (four, six) = (ip(&v4(6, 0, 0, segment)), ip(&v6(6, segment)));
        assert_eq!((four.high(), four.payload), (six.high(), six.payload));
        assert_eq!(four.packet(0).high, four.high());
        (four.high(), four.payload)
    };
    for (flags, first) in [
        (SYN, true),
        (SYN | ACK, true),
        (ACK, true),
        (FIN | ACK, false),
        (RST, false),
        (RST | ACK, false),
        (SYN | FIN, false),
        (SYN | RST, false),
        (0, false),
    ] {
        assert_eq!(high(&tcp(flags)), (first, Some(0)), "{flags:#x}");
    }
    let data = |flags: u8, bytes: usize| [tcp(flags), vec![0; bytes]].concat();
    assert_eq!(high(&data(ACK, 1)), (false, Some(1)));
    assert_eq!(high(&data(ACK | PSH, 1000)), (false, Some(1000)));
    // TCP Fast Open, a SYN with data (RFC 7413 3): it still opens a connection.
    assert_eq!(high(&data(SYN, 100)), (true, Some(100)));
    // Twelve bytes of options, as timestamps take, are no data.
    let mut options = data(ACK, 12);
    options[12] = 0x80;
    assert_eq!(high(&options), (true, Some(0)));
    // A length that lies, beyond the packet or below a header's least: not known.
    for offset in [0xf0, 0x40] {
        let mut lie = tcp(ACK);
        lie[12] = offset;
        assert_eq!(high(&lie), (false, None));
    }
    // Ethernet's padding is no data.
    let mut padded = ethernet(&[], 0x0800, &v4(6, 0, 0, &tcp(ACK)));
    padded.resize(60, 0);
    let found = parse_ethernet(&padded, 60);
    assert_eq!((found.high(), found.payload), (true, Some(0)));
    // Only the beginning is there, the packet's length is known all the same.
    let whole = v4(6, 0, 0, &data(ACK, 1000));
    assert_eq!(parse_ip(&whole[..40], whole.len() as u32).payload, Some(1000));
    // A fragment, UDP, and a TCP header that is cut off before its flags.
    assert_eq!(ip(&v4(6, 0, 0x2000, &tcp(ACK))).payload, None);
    assert_eq!(ip(&v4(17, 0, 0, &tcp(SYN))).payload, None);
    assert!(!ip(&v4(6, 0, 0, &tcp(SYN)[..13])).high());
}
