//! Bytes laid out by hand, after linux/netlink.h and linux/netfilter/nfnetlink_queue.h.

use proptest::prelude::*;

use super::*;

const NLA_F_NESTED: u16 = 0x8000;

/// A netlink message: header, nfgenmsg with queue 0x1234, attributes.
fn message(kind: u16, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = vec![2, 0, 0x12, 0x34];
    for (kind, value) in attributes {
        body.extend((value.len() as u16 + 4).to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(*value);
        while body.len() % 4 != 0 {
            body.push(0);
        }
    }
    let mut bytes = ((body.len() + 16) as u32).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend([0, 0, 7, 0, 0, 0, 9, 0, 0, 0]);
    bytes.extend(body);
    bytes
}

/// The kernel's description of a packet of 1500 bytes, of which 21 were copied.
fn queued() -> Vec<u8> {
    let tci = [6, 0, NFQA_VLAN_TCI as u8, 0, 0x20, 5, 0, 0, 6, 0, NFQA_VLAN_PROTO as u8, 0, 0x81, 0, 0, 0];
    #[cfg(target_endian = "big")]
    compile_error!("these bytes are for little-endian machines");
    message(
        0x0300,
        &[
            (1, &[0, 0, 1, 2, 0x08, 0x00, 4]),
            (3, &[0, 0, 0, 0x2a]),
            (5, &[0, 0, 0, 3]),
            (6, &[0, 0, 0, 4]),
            (7, &[0, 0, 0, 8]),
            (20, &[1, 2, 3, 4, 5, 6]),
            (NLA_F_NESTED | 19, &tci),
            (14, &[0, 0, 0, 3]),
            (13, &[0, 0, 5, 0xdc]),
            (10, b"twenty-one bytes here"),
        ],
    )
}

#[test]
fn a_packet_is_read_field_by_field() {
    let bytes = queued();
    let expected = Packet {
        id: 0x102,
        protocol: 0x800,
        mark: 42,
        input: 3,
        port: 8,
        output: 4,
        len: 1500,
        gso: true,
        vlan: Some((0x8100, 0x2005)),
        behind: None,
        head: b"twenty-one bytes here",
    };
    assert_eq!(Messages::new(&bytes).collect::<Vec<_>>(), [Message::Packet(expected)]);
    // A packet that was copied whole has no length of its own; most other attributes may be
    // missing.
    let bytes = message(0x0300, &[(10, b"whole"), (1, &[0, 0, 0, 9, 0x86, 0xdd, 1])]);
    let expected = Packet { id: 9, protocol: 0x86dd, len: 5, head: b"whole", ..Packet::default() };
    assert_eq!(Messages::new(&bytes).collect::<Vec<_>>(), [Message::Packet(expected)]);
}

/// An attribute, padded.
fn attribute_bytes(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// A tuple as `ctnetlink_dump_tuples` writes it: source and destination, protocol and ports.
fn tuple(kind: u16, [from, to]: [&[u8]; 2], protocol: u8, ports: Option<[u16; 2]>) -> Vec<u8> {
    let first = if from.len() == 4 { 1 } else { 3 };
    let addresses = [attribute_bytes(first, from), attribute_bytes(first + 1, to)].concat();
    let mut inner = attribute_bytes(1, &[protocol]);
    for (kind, port) in (2..).zip(ports.into_iter().flatten()) {
        inner.extend(attribute_bytes(kind, &port.to_be_bytes()));
    }
    let pair = [attribute_bytes(NLA_F_NESTED | 1, &addresses), attribute_bytes(NLA_F_NESTED | 2, &inner)].concat();
    attribute_bytes(NLA_F_NESTED | kind, &pair)
}

/// 10.0.0.5:4000 talks to 198.51.100.7:443 through a router with NAT, whose outer address is
/// 192.0.2.1, with port 61000 for this connection.
#[test]
fn the_host_behind_nat_is_the_other_ways_source() {
    let (host, router, server): ([u8; 4], [u8; 4], [u8; 4]) = ([10, 0, 0, 5], [192, 0, 2, 1], [198, 51, 100, 7]);
    let tracked = [
        tuple(1, [&host, &server], 6, Some([4000, 443])),
        tuple(2, [&server, &router], 6, Some([443, 61000])),
        attribute_bytes(3, &[0, 0, 1, 0x8e]),
    ]
    .concat();
    let read = |tracked: &[u8], info: &[u8]| -> Result<Option<Behind>, String> {
        let bytes =
            message(0x0300, &[(1, &[0, 0, 0, 9, 8, 0, 0]), (NLA_F_NESTED | 11, tracked), (12, info), (10, b"bytes")]);
        match Messages::new(&bytes).next() {
            Some(Message::Packet(packet)) => Ok(packet.behind),
            other => Err(format!("{other:?}")),
        }
    };
    let behind = |address: [u8; 4], port: Option<u16>| -> Result<Option<Behind>, String> {
        Ok(Some(Behind { address: u128::from(u32::from_be_bytes(address)), port }))
    };
    // The destination of an answer (IP_CT_ESTABLISHED_REPLY) is the host; that of a packet to the
    // server is the server, also in a new connection (IP_CT_NEW).
    assert_eq!(read(&tracked, &[0, 0, 0, 3]), behind(host, Some(4000)));
    assert_eq!(read(&tracked, &[0, 0, 0, 0]), behind(server, Some(443)));
    assert_eq!(read(&tracked, &[0, 0, 0, 2]), behind(server, Some(443)));
    // ICMP has no ports.
    let echo = [tuple(1, [&host, &server], 1, None), tuple(2, [&server, &router], 1, None)].concat();
    assert_eq!(read(&echo, &[0, 0, 0, 3]), behind(host, None));
    // IPv6.
    let (host6, server6) = ([0xfd_u8; 16], [0x20_u8; 16]);
    let six = [tuple(1, [&host6, &server6], 17, Some([5, 53])), tuple(2, [&server6, &[7; 16]], 17, None)].concat();
    let expected: Result<Option<Behind>, String> =
        Ok(Some(Behind { address: u128::from_be_bytes(host6), port: Some(5) }));
    assert_eq!(read(&six, &[0, 0, 0, 4]), expected);
    // Half a description, or one without tuples, gives no address; an impossible length makes the
    // message broken.
    assert_eq!(read(&tracked[..tuple(1, [&host, &server], 6, Some([4000, 443])).len()], &[0, 0, 0, 0]), Ok(None));
    assert_eq!(read(&[], &[0, 0, 0, 3]), Ok(None));
    for at in [0, 4, 8] {
        let mut broken = tracked.clone();
        broken[at] = 0xff;
        assert!(read(&broken, &[0, 0, 0, 3]).is_err(), "{at}");
    }
}

#[test]
fn a_datagram_may_have_several_messages() {
    let mut bytes = message(0x0300, &[(1, &[0, 0, 0, 1, 8, 0, 0]), (10, b"a")]);
    // An answer: the error -2 (ENOENT), then the header of the request with its number 7.
    bytes.extend(36u32.to_ne_bytes());
    bytes.extend([2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend((-2i32).to_ne_bytes());
    bytes.extend([20, 0, 0, 0, 1, 3, 1, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(message(0x0301, &[]));
    bytes.extend(message(0x0300, &[(1, &[0, 0, 0, 2, 8, 0, 0])]));
    let kinds: Vec<_> = Messages::new(&bytes).collect();
    assert!(matches!(kinds[0], Message::Packet(Packet { id: 1, .. })));
    assert_eq!(kinds[1..], [Message::Answer { sequence: 7, error: 2 }, Message::Other, Message::Broken]);
}

#[test]
fn a_message_cut_anywhere_is_broken() {
    let bytes = queued();
    for len in 1..bytes.len() {
        // The datagram is shorter than the message says, ...
        assert_eq!(Messages::new(&bytes[..len]).collect::<Vec<_>>(), [Message::Broken], "{len}");
        // ... or the message's length is too short: then it ends within an attribute, or lacks the
        // bytes of the packet, which come last.
        let mut short = bytes[..len].to_vec();
        if len >= 4 {
            short[..4].copy_from_slice(&(len as u32).to_ne_bytes());
            let read = Messages::new(&short).next();
            // Only the padding of the last attribute may be missing.
            let whole = len >= bytes.len() - 3;
            assert_eq!(read == Some(Message::Broken), !whole, "{len}: {read:?}");
        }
    }
}

#[test]
fn lengths_that_cannot_be_are_broken() {
    for len in [0u32, 1, 15, 17, 20, 23, u32::MAX, 0x8000_0000] {
        let mut bytes = queued();
        bytes[..4].copy_from_slice(&len.to_ne_bytes());
        assert_eq!(Messages::new(&bytes).next(), Some(Message::Broken), "{len}");
    }
    for len in [0u16, 1, 3, 0xffff] {
        let mut bytes = queued();
        bytes[20..22].copy_from_slice(&len.to_ne_bytes());
        assert_eq!(Messages::new(&bytes).next(), Some(Message::Broken), "{len}");
    }
}

#[test]
fn requests_are_laid_out_as_the_kernel_reads_them() {
    let mut out = Vec::new();
    bind(&mut out, 0x1234, 7, Setup { copy: 192, length: 5000, gso: true });
    // nlmsghdr (length 64, type 0x302, request and ack, 7, 0); nfgenmsg; the attributes: command,
    // mode, length of the queue, mask and flags.
    let head = |len: u8, kind: u8, flags: u8, sequence: u8| {
        vec![len, 0, 0, 0, kind, 3, flags, 0, sequence, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34]
    };
    let attributes = [
        vec![8, 0, 1, 0, 1, 0, 0, 0],
        vec![9, 0, 2, 0, 0, 0, 0, 192, 2, 0, 0, 0],
        vec![8, 0, 3, 0, 0, 0, 0x13, 0x88],
        vec![8, 0, 4, 0, 0, 0, 0, 4],
        vec![8, 0, 5, 0, 0, 0, 0, 4],
    ];
    assert_eq!(out, [head(64, 2, 5, 7), attributes.concat()].concat());
    out.clear();
    bind(&mut out, 0x1234, 8, Setup { copy: 192, length: 5000, gso: false });
    assert_eq!(out[56..], [8, 0, 5, 0, 0, 0, 0, 0], "the flag is in the mask, and off");
    // Connections: flag 2. It is switched on with a request for an answer, and off without.
    let flags = |mask: u8, value: u8| vec![8, 0, 4, 0, 0, 0, 0, mask, 8, 0, 5, 0, 0, 0, 0, value];
    out.clear();
    track(&mut out, 0x1234, 9, true, true);
    assert_eq!(out, [head(36, 2, 5, 9), flags(2, 2)].concat());
    out.clear();
    track(&mut out, 0x1234, 0, false, false);
    assert_eq!(out, [head(36, 2, 1, 0), flags(2, 0)].concat());
    // Fail open (flag 1), then a length of 0, with a request for an answer or without.
    out.clear();
    let_pass(&mut out, 0x1234, 0, false);
    let length = |of: u8| vec![8, 0, 3, 0, 0, 0, 0, of];
    assert_eq!(out, [head(36, 2, 1, 0), flags(1, 1), head(28, 2, 1, 0), length(0)].concat());
    out.clear();
    let_pass(&mut out, 0x1234, 9, true);
    assert_eq!(out, [head(36, 2, 1, 0), flags(1, 1), head(28, 2, 5, 9), length(0)].concat());
    // The other way round: a length, and the flag is off.
    out.clear();
    hold(&mut out, 0x1234, 77);
    assert_eq!(out, [head(44, 2, 1, 0), length(77), flags(1, 0)].concat());
}

#[test]
fn verdicts_follow_one_another_in_a_buffer() {
    let mut out = Vec::new();
    verdict(&mut out, 0x1234, 0x01020304, Verdict::Accept, None, 3);
    verdict(&mut out, 0x1234, 5, Verdict::Drop, Some(0xf0), 0);
    verdict_up_to(&mut out, 0x1234, 6, Verdict::Accept);
    let first =
        vec![32, 0, 0, 0, 1, 3, 1, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 12, 0, 2, 0, 0, 0, 0, 1, 1, 2, 3, 4];
    let second = vec![
        40, 0, 0, 0, 1, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 12, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 5, 8, 0,
        3, 0, 0, 0, 0, 0xf0,
    ];
    let third =
        vec![32, 0, 0, 0, 3, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 12, 0, 2, 0, 0, 0, 0, 1, 0, 0, 0, 6];
    assert_eq!(out, [first, second, third].concat());
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic_and_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(Messages::new(&bytes).count() <= bytes.len());
    }

    #[test]
    fn any_change_of_a_packet_reads_within_its_bytes(at in 0usize..200, byte: u8, cut in 0usize..200) {
        let mut bytes = queued();
        let (at, cut) = (at % bytes.len(), cut % bytes.len());
        bytes[at] = byte;
        for bytes in [&bytes[..], &bytes[..cut]] {
            for message in Messages::new(bytes) {
                if let Message::Packet(packet) = message {
                    prop_assert!(packet.head.len() <= bytes.len() && packet.len as usize >= packet.head.len());
                }
            }
        }
    }
}
