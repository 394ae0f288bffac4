//! VLAN stacks, PPPoE sessions and MPLS label stacks, byte by byte from RFC 2516 4, RFC 1661 2 and
//! RFC 3032 2.1.

use super::*;

/// 28 bytes: UDP from 10.1.2.3 port 5000 to 192.0.2.1 port 53.
fn packet4() -> Vec<u8> {
    v4(17, 0, 0, &UDP_HEADER)
}

fn packet6() -> Vec<u8> {
    v6(6, &tcp(0x12))
}

/// Session data of session 0x1234. `payload` begins with PPP's protocol field.
fn session(payload: &[u8]) -> Vec<u8> {
    let mut p = vec![0x11, 0, 0x12, 0x34];
    p.extend((payload.len() as u16).to_be_bytes());
    p.extend(payload);
    p
}

/// Label stack entries with TTL 64; the last one has the bit for the bottom of the stack.
fn stack(labels: &[u32]) -> Vec<u8> {
    let bottom = labels.len() - 1;
    labels
        .iter()
        .enumerate()
        .flat_map(|(at, label)| (label << 12 | u32::from(at == bottom) << 8 | 64).to_be_bytes())
        .collect()
}

fn whole(frame: &[u8]) -> Headers {
    parse_ethernet(frame, frame.len() as u32)
}

/// Holds that the frame is parsed as the bare packet is, `before` bytes further on.
fn same(frame: &[u8], packet: &[u8], vlan: Option<u16>, what: &str) {
    let (found, bare) = (whole(frame), ip(packet));
    assert_ne!(bare.key.family, 0, "{what}");
    let before = (frame.len() - packet.len()) as u32;
    let moved = Headers {
        key: bare.key.with_vlan(vlan),
        layer3: before,
        transport: bare.transport.map(|at| at + before),
        ..bare
    };
    assert_eq!(found, moved, "{what}");
}

/// Holds that nothing is read but a length of `length` bytes from `layer3` on.
fn unread(frame: &[u8], layer3: u32, length: u32, what: &str) {
    let vlan = whole(frame).key.vlan();
    let blank = Headers { key: Key { length, ..Key::default() }.with_vlan(vlan), layer3, ..Headers::default() };
    assert_eq!(whole(frame), blank, "{what}");
}

#[test]
fn sessions() {
    for (protocol, packet) in
        [(&[0, 0x21][..], packet4()), (&[0, 0x57], packet6()), (&[0x21], packet4()), (&[0x57], packet6())]
    {
        let payload = session(&[protocol, &packet].concat());
        let what = format!("{protocol:x?}");
        same(&ethernet(&[], 0x8864, &payload), &packet, None, &what);
        same(&ethernet(&[(0x8100, 0x2007)], 0x8864, &payload), &packet, Some(7), &what);
        let tags = [(0x88a8, 300), (0x8100, 7)];
        same(&ethernet(&tags, 0x8864, &payload), &packet, Some(300), &what);
    }
    // In full: version and type 11, code 00, session 0001, length 001e (2 and 28), protocol 0021,
    // then an IPv4 header with TTL 64, UDP, from 10.0.0.1 to 10.0.0.2.
    let frame = [
        0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x88, 0x64, 0x11, 0, 0, 1, 0, 0x1e, 0, 0x21, 0x45, 0xb8, 0, 28, 0, 0,
        0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x13, 0x88, 0x13, 0x89, 0, 8, 0, 0,
    ];
    let h = whole(&frame);
    assert_eq!((h.layer3, h.transport, h.key.length, h.key.dscp()), (22, Some(42), 28, 46));
    assert_eq!((h.key.src, h.key.dst, ports(&h)), (0x0a00_0001, 0x0a00_0002, (Some(5000), Some(5001))));
    let way = Encapsulation::read(&frame);
    assert_eq!(way, Encapsulation { layer3: 22, ethertype: IPV4, vlan: None, pppoe: Some(14), labels: None });
    assert!(!way.is_direct() && Encapsulation::read(&ethernet(&[(0x8100, 1)], 0x0800, &[])).is_direct());
}

#[test]
fn what_a_session_carries_besides_stays_unread() {
    let packet = packet4();
    // LCP echo request, IPCP, IPV6CP, and numbers that are not given: the length is that of the
    // frame behind the protocol field, which begins at byte 20.
    for protocol in [[0xc0, 0x21], [0x80, 0x21], [0x80, 0x57], [0, 0x23], [0, 0x20], [2, 0x21]] {
        let frame = ethernet(&[], 0x8864, &session(&[&protocol[..], &packet].concat()));
        unread(&frame, 22, 28, &format!("{protocol:x?}"));
    }
    // A compressed protocol that is neither.
    unread(&ethernet(&[], 0x8864, &session(&[&[0x23][..], &packet].concat())), 21, 28, "23");
    // A number that is the other family's: no header is there.
    unread(&ethernet(&[], 0x8864, &session(&[&[0, 0x57][..], &packet].concat())), 22, 28, "IPv4 as IPv6");
    // Discovery (RFC 2516 5.1: PADI, code 9), other versions and other codes are not looked into.
    let good = session(&[&[0, 0x21][..], &packet].concat());
    let with = |at: usize, byte: u8| {
        let mut bad = good.clone();
        bad[at] = byte;
        bad
    };
    unread(&ethernet(&[], 0x8863, &with(1, 9)), 14, 36, "discovery");
    unread(&ethernet(&[], 0x8863, &good), 14, 36, "discovery's ethertype");
    for (at, byte) in [(0, 0x10), (0, 0x12), (0, 0x21), (0, 0x01), (1, 9), (1, 0xa7), (1, 1)] {
        unread(&ethernet(&[], 0x8864, &with(at, byte)), 14, 36, &format!("{byte:x} at {at}"));
    }
    // Session and length do not matter: the IP header states the packet's length.
    for at in 2..6 {
        same(&ethernet(&[], 0x8864, &with(at, 0xff)), &packet, None, &format!("{at}"));
        same(&ethernet(&[], 0x8864, &with(at, 0)), &packet, None, &format!("{at}"));
    }
}

#[test]
fn label_stacks() {
    let (four, six) = (packet4(), packet6());
    for kind in [0x8847, 0x8848] {
        for labels in [&[16][..], &[100, 200], &[1, 0xf_ffff], &[7, 500, 16, 17], &[3], &[0, 16], &[16; 32]] {
            let what = format!("{kind:x} {labels:?}");
            same(&ethernet(&[], kind, &[stack(labels), four.clone()].concat()), &four, None, &what);
            same(&ethernet(&[(0x8100, 9)], kind, &[stack(labels), six.clone()].concat()), &six, Some(9), &what);
        }
    }
    // In full: label 100 (0x00064), traffic class 5, not the bottom, TTL 64; label 16, bottom.
    let entries = [0x00, 0x06, 0x4a, 0x40, 0x00, 0x01, 0x01, 0x3f];
    let frame = ethernet(&[], 0x8847, &[&entries[..], &four].concat());
    same(&frame, &four, None, "in full");
    let way = Encapsulation::read(&frame);
    assert_eq!(way, Encapsulation { layer3: 22, ethertype: IPV4, vlan: None, pppoe: None, labels: Some(14) });
    // The explicit nulls (0 IPv4, 2 IPv6) hold whatever the version says, so the other family's
    // header is none.
    for (label, right, wrong) in [(0, &four, &six), (2, &six, &four)] {
        let with = |packet: &[u8]| ethernet(&[], 0x8847, &[stack(&[40, label]), packet.to_vec()].concat());
        same(&with(right), right, None, "explicit null");
        unread(&with(wrong), 22, wrong.len() as u32, "explicit null of the other family");
    }
}

#[test]
fn what_labels_carry_besides_stays_unread() {
    // RFC 4385 3 and 5: a control word begins with 0, an associated channel with 1. Then an
    // Ethernet frame with an IPv4 packet.
    let inner = ethernet(&[], 0x0800, &packet4());
    for word in [[0, 0, 0, 0], [0, 0, 0x12, 0x34], [0x10, 0, 0, 0x21]] {
        let payload = [stack(&[16, 300]), word.to_vec(), inner.clone()].concat();
        unread(&ethernet(&[], 0x8847, &payload), 22, 4 + inner.len() as u32, &format!("{word:x?}"));
    }
    // Neither version (an Ethernet address 02:…), nothing behind the stack.
    unread(&ethernet(&[], 0x8847, &[stack(&[16]), inner.clone()].concat()), 18, inner.len() as u32, "pseudowire");
    unread(&ethernet(&[], 0x8847, &stack(&[16])), 18, 0, "nothing");
    // No bottom: 33 labels, or the frame ends before it. The stack then counts as what it carries.
    let deep = [stack(&[16; 33]), packet4()].concat();
    unread(&ethernet(&[], 0x8847, &deep), 14, deep.len() as u32, "33 labels");
    unread(&ethernet(&[], 0x8847, &stack(&[16; 32])[..124]), 14, 124, "no bottom");
}

#[test]
fn mixtures() {
    let (four, six) = (packet4(), packet6());
    // MPLS in PPP (RFC 3032 4.3), in a session, behind two tags.
    for (protocol, packet, labels) in [([2, 0x81], &four, &[0][..]), ([2, 0x83], &six, &[16, 17])] {
        let payload = session(&[&protocol[..], &stack(labels), packet].concat());
        same(&ethernet(&[(0x88a8, 1), (0x8100, 2)], 0x8864, &payload), packet, Some(1), "all of them");
    }
    // Eight tags are walked through, nine are not.
    let payload = session(&[&[0, 0x21][..], &four].concat());
    same(&ethernet(&[(0x9100, 5); 8], 0x8864, &payload), &four, Some(5), "eight tags");
    assert_eq!(whole(&ethernet(&[(0x9100, 5); 9], 0x8864, &payload)).key.family, 0);
    // The tag of a customer within a session or behind labels is not an Ethernet tag any more.
    let tagged = ethernet(&[(0x8100, 4)], 0x0800, &four);
    assert_eq!(whole(&ethernet(&[], 0x8847, &[stack(&[16]), vec![0; 4], tagged].concat())).key.vlan(), None);
}

#[test]
fn padding_behind_a_session_is_not_part_of_the_packet() {
    let packet = v4(17, 0, 0, &[0x13, 0x88]);
    let mut frame = ethernet(&[], 0x8864, &session(&[&[0, 0x21][..], &packet].concat()));
    frame.resize(60, 0x55);
    let h = whole(&frame);
    assert_eq!((h.layer3, h.key.length, ports(&h), h.transport), (22, 22, (None, None), Some(42)));
}

/// All encapsulations around a packet of one family. Each with the number of bytes before it.
fn around(six: bool, packet: &[u8]) -> Vec<Vec<u8>> {
    let (kind, protocol, short) = if six { (0x86dd, [0, 0x57], 0x57) } else { (0x0800, [0, 0x21], 0x21) };
    let null = if six { 2 } else { 0 };
    let mut payloads = vec![(kind, packet.to_vec())];
    payloads.push((0x8864, session(&[&protocol[..], packet].concat())));
    payloads.push((0x8864, session(&[&[short][..], packet].concat())));
    payloads.push((0x8864, session(&[&[2, 0x81][..], &stack(&[17, 18]), packet].concat())));
    for labels in [&[null][..], &[16], &[16, 99, 1000], &[55, null]] {
        payloads.push((0x8847, [stack(labels), packet.to_vec()].concat()));
    }
    let tags = [&[][..], &[(0x8100, 7)], &[(0x88a8, 7), (0x8100, 8)], &[(0x9100, 7), (0x9200, 8), (0x8100, 9)]];
    let frames = |tags: &[(u16, u16)]| payloads.iter().map(|(kind, p)| ethernet(tags, *kind, p)).collect::<Vec<_>>();
    tags.iter().flat_map(|tags| frames(tags)).collect()
}

/// Every frame cut at every byte: what is read is what the whole frame has, or nothing.
#[test]
fn cut_anywhere() {
    for (six, packet) in [(false, v4(6, 3, 0, &tcp(0x18))), (true, v6(17, &UDP_HEADER))] {
        for frame in around(six, &packet) {
            let all = whole(&frame);
            assert_eq!(all.key.length as usize, packet.len());
            for cut in 0..frame.len() {
                for len in [cut, frame.len()] {
                    let h = parse_ethernet(&frame[..cut], len as u32);
                    sane(&h, cut, len);
                    let what = format!("{cut} of {frame:x?}: {h:?}");
                    let fixed = all.layer3 as usize + if six { 40 } else { 20 };
                    assert_eq!(h.key.family == 0, cut < fixed, "{what}");
                    assert!(h.key.vlan().is_none() || h.key.vlan() == all.key.vlan(), "{what}");
                    if h.key.family != 0 {
                        assert_eq!((h.key.src, h.key.dst, h.key.tos), (all.key.src, all.key.dst, all.key.tos));
                        assert_eq!((h.layer3, h.key.proto), (all.layer3, all.key.proto), "{what}");
                        assert_eq!(h.key.length as usize, len - all.layer3 as usize, "{what}");
                    }
                    let there = all.transport.is_some_and(|at| cut >= at as usize + 4);
                    assert_eq!(ports(&h), if there { ports(&all) } else { (None, None) }, "{what}");
                    assert!(h.key.tcp_flags == 0 || h.key.tcp_flags == all.key.tcp_flags, "{what}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// A packet with options or extension headers, whole or a fragment, gives the same key in any
    /// encapsulation as without one.
    #[test]
    fn encapsulation_changes_nothing(
        six in any::<bool>(), proto in prop_oneof![Just(6_u8), Just(17), Just(50), Just(51), Just(60), any::<u8>()],
        options in 0_usize..=10, flags in prop_oneof![Just(0_u16), any::<u16>()],
        payload in proptest::collection::vec(any::<u8>(), 0..100), padding in 0_usize..40,
    ) {
        let packet = if six { v6(proto, &payload) } else { v4(proto, options, flags, &payload) };
        let bare = ip(&packet);
        for (which, mut frame) in around(six, &packet).into_iter().enumerate() {
            let before = (frame.len() - packet.len()) as u32;
            frame.extend(vec![0xee; padding]);
            let h = whole(&frame);
            prop_assert_eq!((h.layer3, h.key.vlan()), (before, (which >= 8).then_some(7)));
            // An IPv6 packet of no payload states a length of 0: all that is there counts.
            if !(six && payload.is_empty()) {
                prop_assert_eq!(h.key.with_vlan(None), bare.key);
                prop_assert_eq!((h.fragment, h.payload), (bare.fragment, bare.payload));
                prop_assert_eq!(h.transport, bare.transport.map(|at| at + before));
            }
        }
    }

    /// Frames with a few bytes changed, cut anywhere.
    #[test]
    fn damaged_encapsulations(
        six in any::<bool>(), which in 0_usize..32, labels in proptest::collection::vec(any::<u32>(), 0..40),
        changes in proptest::collection::vec((0_usize..64, any::<u8>()), 0..6), cut in 0_usize..120,
    ) {
        let packet = if six { packet6() } else { packet4() };
        let mut frame = around(six, &packet).swap_remove(which);
        for (at, byte) in changes {
            let at = at % frame.len();
            frame[at] = byte;
        }
        let noise = labels.iter().flat_map(|entry| entry.to_be_bytes()).collect::<Vec<_>>();
        for frame in [frame, ethernet(&[], 0x8847, &noise), ethernet(&[], 0x8864, &noise)] {
            let (seen, len) = (&frame[..cut.min(frame.len())], frame.len());
            sane(&parse_ethernet(seen, len as u32), seen.len(), len);
            let way = Encapsulation::read(seen);
            prop_assert!(way.layer3 == 14 || way.layer3 <= seen.len(), "{:?}", way);
            prop_assert!(way.is_direct() || way.pppoe.or(way.labels).is_some_and(|at| (14..way.layer3).contains(&at)));
        }
    }
}
