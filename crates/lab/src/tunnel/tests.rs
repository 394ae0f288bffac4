use altq_config::{Language, parse_str};
use altq_dataplane::channel::{Channel, Timed};
use altq_dataplane::edge::Blocked;
use altq_dataplane::shaper::{Shaper, Tuning};
use altq_dataplane::stats::Totals;
use altq_dataplane::vnet::{GSO_TCPV6, NEEDS_CSUM, Vnet};
use altq_engine::headers::parse_ethernet;
use altq_engine::random::SplitMix64;

use super::*;

/// A UDP packet of IPv6 in Ethernet: traffic class 0xba (EF, ECT(0)), flow label 0x12345, 4 bytes
/// of payload. By hand from RFC 8200 3 and RFC 768; the checksum is over both addresses, length,
/// next header, and the packet: its words sum to 0x24437, folded 4439, so that it is 0xbbc6.
const PLAIN: [u8; 66] = [
    2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, // Ethernet
    0x6b, 0xa1, 0x23, 0x45, 0, 12, 17, 64, // version, class, label; length, UDP, hop limit
    0x20, 2, 0xc0, 0, 2, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, // 2002:c000:204::2, of 192.0.2.4
    0x20, 2, 0xc6, 0x33, 0x64, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, // 2002:c633:6407::7, of 198.51.100.7
    0x13, 0x88, 0, 53, 0, 12, 0xbb, 0xc6, 1, 2, 3, 4, // UDP
];

/// The header that RFC 4213 3.5 puts before it, between 192.0.2.1 and 192.0.2.2: 72 bytes in all,
/// id 0, no flags, TTL 64, protocol 41. By hand: 45ba + 0048 + 0000 + 0000 + 4029 + c000 + 0201 +
/// c000 + 0202 = 20a2e, folded 0a30, inverted f5cf.
const OUTER: [u8; 20] = [0x45, 0xba, 0, 72, 0, 0, 0, 0, 64, 41, 0xf5, 0xcf, 192, 0, 2, 1, 192, 0, 2, 2];

fn between(ends: [[u8; 4]; 2], mtu: u32) -> Option<Tunnel> {
    Some(Tunnel { ends: Box::new(move |_, _| ends.map(Ipv4Addr::from)), mtu })
}

fn configured(mtu: u32) -> Option<Tunnel> {
    between([[192, 0, 2, 1], [192, 0, 2, 2]], mtu)
}

/// An edge that receives these frames, its pool, and the frames that came out of `receive`.
fn receive(tunnel: Option<Tunnel>, frames: &[(Vec<u8>, Vnet)]) -> (Tunnelled<Channel>, Pool, Vec<u32>) {
    let mut channel = Channel::new(1_000);
    frames.iter().for_each(|(bytes, vnet)| channel.arrive(Timed { at: 0, bytes: bytes.clone(), vnet: *vnet }));
    let (mut edge, mut pool, mut out) = (Tunnelled::new(channel, tunnel), Pool::new(256, 8), Vec::new());
    while edge.receive(&mut pool, &mut out).unwrap() && edge.counters().received < frames.len() as u64 {}
    (edge, pool, out)
}

fn plain(bytes: &[u8]) -> (Vec<u8>, Vnet) {
    (bytes.to_vec(), Vnet::default())
}

/// Sends all frames and returns those that left.
fn departed(edge: &mut Tunnelled<Channel>, pool: &mut Pool, frames: &[u32]) -> Vec<Timed> {
    let mut done = 0;
    while done < frames.len() {
        done += edge.send(pool, &frames[done..], &[]).unwrap().done;
    }
    frames.iter().for_each(|handle| pool.free(*handle));
    edge.edge.departed()
}

/// The frame [`PLAIN`] inside the tunnel.
fn inside(outer: &[u8; 20]) -> Vec<u8> {
    [&PLAIN[..12], &[8, 0], outer, &PLAIN[14..]].concat()
}

#[test]
fn a_header_goes_before_and_comes_off() {
    let (mut edge, mut pool, frames) = receive(configured(1500), &[plain(&PLAIN)]);
    assert_eq!(pool.bytes(frames[0]), inside(&OUTER));
    // The header fields by which rules, hash and charge work are those of the outer header.
    let key = parse_ethernet(pool.head(frames[0]), 86).key;
    assert_eq!((key.family, key.proto, key.tos, key.length, key.sport()), (4, 41, 0xba, 72, None));
    assert_eq!((key.src, key.dst), (0xc000_0201, 0xc000_0202));
    let out = departed(&mut edge, &mut pool, &frames);
    assert_eq!((out[0].bytes.as_slice(), out[0].vnet), (&PLAIN[..], Vnet::default()));
}

#[test]
fn packets_are_counted_in_their_ids() {
    let (_, pool, frames) = receive(configured(1500), &[plain(&PLAIN), plain(&PLAIN), plain(&PLAIN)]);
    for (at, handle) in frames.iter().enumerate() {
        let header = &pool.head(*handle)[14..34];
        assert_eq!(header[4..6], [0, at as u8]);
        // RFC 1071, section 1: the sum over a header with its checksum is all ones.
        assert_eq!(Sum::default().add(header).folded(), 0xffff);
    }
}

#[test]
fn the_ends_are_of_the_packet() {
    let six_to_four = |v6: Ipv6Addr| Ipv4Addr::from_bits((v6.to_bits() >> 80) as u32);
    let tunnel = Tunnel { ends: Box::new(move |src, dst| [six_to_four(src), six_to_four(dst)]), mtu: 1500 };
    let (_, pool, frames) = receive(Some(tunnel), &[plain(&PLAIN)]);
    assert_eq!(pool.head(frames[0])[26..34], [192, 0, 2, 4, 198, 51, 100, 7]);
}

#[test]
fn padding_and_tags_stay_where_they_are() {
    // Two VLAN tags, and 6 bytes of padding at the end: the outer length counts neither.
    let tags = [0x88, 0xa8, 0, 5, 0x81, 0, 0x20, 7];
    let frame = [&PLAIN[..12], &tags, &PLAIN[12..], &[9; 6]].concat();
    let (mut edge, mut pool, frames) = receive(configured(1500), &[plain(&frame)]);
    assert_eq!(pool.bytes(frames[0]), [&PLAIN[..12], &tags, &[8, 0], &OUTER, &PLAIN[14..], &[9; 6]].concat());
    assert_eq!(departed(&mut edge, &mut pool, &frames)[0].bytes, frame);
}

#[test]
fn an_open_checksum_moves_with_its_packet() {
    // The checksum is left to the device. Its field holds the sum of addresses, length and next
    // header: 22c68, folded 2c6a.
    let mut frame = PLAIN;
    (frame[60], frame[61]) = (0x2c, 0x6a);
    let open = Vnet { flags: NEEDS_CSUM, hdr_len: 62, csum_start: 54, csum_offset: 6, ..Vnet::default() };
    let (mut edge, mut pool, frames) = receive(configured(1500), &[(frame.to_vec(), open)]);
    assert_eq!(*pool.vnet(frames[0]), Vnet { hdr_len: 82, csum_start: 74, ..open });
    let out = departed(&mut edge, &mut pool, &frames);
    assert_eq!((out[0].bytes.as_slice(), out[0].vnet), (&PLAIN[..], Vnet { flags: 0, ..open }));
}

/// RFC 6040 4.2, figure 4: rows are Not-ECT, ECT(0), ECT(1), CE of the inner header, columns the
/// same of the outer header.
#[test]
fn marks_come_out_as_rfc_6040_says() {
    const CODES: [u8; 4] = [0, 2, 1, 3];
    const FIGURE: [[Option<u8>; 4]; 4] = [
        [Some(0), Some(0), Some(0), None],
        [Some(2), Some(2), Some(1), Some(3)],
        [Some(1), Some(1), Some(1), Some(3)],
        [Some(3), Some(3), Some(3), Some(3)],
    ];
    for (row, inner) in FIGURE.iter().zip(CODES) {
        for (wanted, outer) in row.iter().zip(CODES) {
            let mut frame = PLAIN;
            frame[15] = 0x80 | inner << 4 | 1;
            let (mut edge, mut pool, frames) = receive(configured(1500), &[plain(&frame)]);
            assert_eq!(pool.head(frames[0])[15], 0xb8 | inner, "copied in (4.1)");
            // A queue sets an ECN mark, and a meter writes another DSCP, AF11.
            remark(pool.head_mut(frames[0]), 10, outer);
            let before = edge.counters();
            let out = departed(&mut edge, &mut pool, &frames);
            match wanted {
                Some(ecn) => {
                    let octet = 10 << 2 | ecn;
                    (frame[14], frame[15]) = (0x60 | octet >> 4, octet << 4 | 1);
                    assert_eq!(out[0].bytes, frame, "{inner} in {outer}");
                }
                None => {
                    assert!(out.is_empty());
                    assert_eq!(edge.counters().refused, before.refused + 1);
                }
            }
        }
    }
}

#[test]
fn what_is_too_large_is_counted() {
    // 1480 bytes of IPv6 fit, 1481 do not.
    let of = |len: usize| {
        let mut frame = PLAIN.to_vec();
        frame.resize(14 + len, 7);
        frame[18..20].copy_from_slice(&((len - 40) as u16).to_be_bytes());
        plain(&frame)
    };
    let (mut edge, pool, frames) = receive(configured(1500), &[of(1480), of(1481), of(40)]);
    assert_eq!(frames.iter().map(|handle| pool.len(*handle)).collect::<Vec<_>>(), [1514, 74]);
    assert_eq!((edge.counters().too_large, edge.counters().dropped()), (1, 1));
    assert_eq!(pool.free_heads(), 254);
    // A length that does not fit in an IPv4 header.
    let mut most = of(60);
    most.0.resize(14 + 65_575, 0);
    most.0[18..20].copy_from_slice(&[0xff, 0xff]);
    let (mut edge, _, frames) = receive(configured(u32::MAX), &[most]);
    assert!(frames.is_empty() && edge.counters().too_large == 1);
}

#[test]
fn others_pass_untouched() {
    let mut arp = PLAIN.to_vec();
    (arp[12], arp[13]) = (8, 6);
    // A tunnel of another host, even between the same addresses: its own header stays.
    let foreign = inside(&OUTER);
    let frames = [plain(&arp), plain(&foreign), plain(&PLAIN), plain(&[1; 13]), plain(&[])];
    let (mut edge, mut pool, here) = receive(configured(1500), &frames);
    assert_eq!(pool.bytes(here[1]), foreign);
    let out = departed(&mut edge, &mut pool, &here);
    assert!(out.iter().zip(&frames).all(|(out, (bytes, _))| out.bytes == *bytes));
    assert_eq!((out.len(), edge.counters().dropped()), (5, 0));
}

#[test]
fn without_a_tunnel_nothing_happens() {
    let (mut edge, mut pool, frames) = receive(None, &[plain(&PLAIN)]);
    assert_eq!(pool.bytes(frames[0]), PLAIN);
    assert_eq!(departed(&mut edge, &mut pool, &frames)[0].bytes, PLAIN);
}

#[test]
fn what_was_not_taken_is_given_again() {
    let (mut edge, mut pool, frames) = receive(configured(1500), &vec![plain(&PLAIN); 4]);
    // The third frame must be dropped: it is marked, but its connection does not use ECN.
    let head = pool.head_mut(frames[2]);
    head[35] &= 0xcf;
    remark(head, 0, CE);
    edge.edge.gulp(1);
    assert_eq!(edge.send(&mut pool, &frames, &[]).unwrap(), Sent { done: 1, blocked: Some(Blocked::Until(0)) });
    assert_eq!(edge.send(&mut pool, &frames[1..], &[]).unwrap(), Sent { done: 3, blocked: None });
    let out = edge.edge.departed();
    assert!(out.len() == 3 && out.iter().all(|frame| frame.bytes == PLAIN));
    assert_eq!(edge.counters().refused, 1);
}

/// A link in a tunnel that is offered twice its rate. Its rules see protocol 41, it charges 20
/// bytes more per packet, and packets that its queue marks come out marked and otherwise unchanged.
#[test]
fn a_link_in_a_tunnel() {
    let policy = "link wan { device bridge a b  rate 10Mbit/s  scheduler cbq
        class plain { share 50% borrow default }  class tunnel { share 50% borrow queue codel { ecn } }  \
        match proto 41 length 1000 -> tunnel }";
    let policy = parse_str(policy, "test.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}"));
    let mut frame = PLAIN.to_vec();
    frame.resize(14 + 980, 3);
    frame[18..20].copy_from_slice(&[(940u16 >> 8) as u8, 940u16 as u8]);
    let mut channel = Channel::new(1_000_000_000);
    // 980 bytes every 400 µs.
    (0..2500).for_each(|n| channel.arrive(Timed { at: n * 400_000, bytes: frame.clone(), vnet: Vnet::default() }));
    let edge = Tunnelled::new(channel, configured(1500));
    let mut shaper =
        Shaper::new(&policy.links[0], "a", edge, Tuning { memory: 64 << 20, ..Tuning::default() }).unwrap();
    let (mut totals, mut last) = (Totals::default(), None);
    shaper.run(|report| last = Some(totals.sum(report))).unwrap();
    let (last, out) = (last.unwrap(), shaper.edge().edge.departed());
    let stat = &last.classes[policy.links[0].class("tunnel").unwrap() as usize].counters;
    assert_eq!((stat.sent_packets, stat.sent_bytes), (out.len() as u64, 1000 * out.len() as u64));
    // 10 Mbit/s are 1250 packets of 1000 bytes a second.
    assert!((1245..=1255).contains(&out.len()), "{}", out.len());
    let mut marked = frame.clone();
    marked[15] |= 0x30;
    let marks = out.iter().filter(|sent| sent.bytes == marked).count();
    assert!(marks > 0 && marks as u64 == stat.marked_packets, "{marks} of {}", stat.marked_packets);
    assert!(out.iter().all(|sent| sent.bytes == frame || sent.bytes == marked));
}

/// TCP over IPv6 with 3 segments of 1000 bytes and one of 500 becomes four packets in the tunnel.
#[test]
fn a_super_packet_goes_as_its_packets() {
    let mut frame = PLAIN[..54].to_vec();
    frame[20] = 6;
    frame.extend([0x13, 0x88, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
    frame.resize(74 + 3500, 5);
    let vnet =
        Vnet { flags: NEEDS_CSUM, gso_type: GSO_TCPV6, hdr_len: 74, gso_size: 1000, csum_start: 54, csum_offset: 16 };
    let (mut edge, mut pool, frames) = receive(configured(1500), &[(frame, vnet)]);
    assert_eq!(frames.len(), 4);
    for (at, handle) in frames.iter().enumerate() {
        let payload: u16 = if at == 3 { 500 } else { 1000 };
        let head = pool.head(*handle);
        assert_eq!(pool.len(*handle), 94 + usize::from(payload));
        assert_eq!(
            (&head[16..18], &head[38..40]),
            (&(payload + 80).to_be_bytes()[..], &(payload + 20).to_be_bytes()[..])
        );
        assert_eq!(pool.vnet(*handle).gso_type, 0);
    }
    let out = departed(&mut edge, &mut pool, &frames);
    assert!(out.iter().all(|frame| frame.vnet.csum_start == 54 && frame.bytes[12..14] == [0x86, 0xdd]));
    assert_eq!(out.iter().map(|frame| frame.bytes.len() - 74).sum::<usize>(), 3500);
    assert_eq!(pool.free_heads(), 256);
}

/// Random frames, cut and changed, with any content in their virtio headers: nothing panics, no
/// slot is lost, and what comes out is what came in.
#[test]
fn odd_frames_do_no_harm() {
    let mut random = SplitMix64::new(1);
    let mut draw = move |below: u64| random.bits() % below;
    let mut changed = 0;
    for _ in 0..10_000 {
        let mut frame = if draw(4) == 0 { inside(&OUTER) } else { PLAIN.to_vec() };
        if draw(3) == 0 {
            frame.splice(12..12, [[0x81, 0, 0, 1], [0x88, 0xa8, 9, 9]][draw(2) as usize]);
        }
        frame.resize(draw(3000) as usize, draw(256) as u8);
        frame.truncate([frame.len(), draw(100) as usize][draw(2) as usize]);
        for _ in 0..draw(6) {
            let at = draw(frame.len().clamp(1, 80) as u64) as usize;
            frame.get_mut(at).into_iter().for_each(|byte| *byte = draw(256) as u8);
        }
        let word = |draw: &mut dyn FnMut(u64) -> u64| [0, draw(80), draw(65_536)][draw(3) as usize] as u16;
        let vnet = Vnet {
            flags: draw(2) as u8,
            gso_type: [0, 1, 4, 5, 0x84, draw(256) as u8][draw(6) as usize],
            hdr_len: word(&mut draw),
            gso_size: word(&mut draw),
            csum_start: word(&mut draw),
            csum_offset: word(&mut draw),
        };
        let (mut edge, mut pool, frames) = receive(configured(1500), &[(frame.clone(), vnet)]);
        // Meanwhile the bytes of the frames may be changed in any way.
        if draw(2) == 0 {
            for handle in &frames {
                let head = pool.head_mut(*handle);
                let at = draw(head.len().clamp(1, 80) as u64) as usize;
                head.get_mut(at).into_iter().for_each(|byte| *byte = draw(256) as u8);
            }
            changed += 1;
        } else if let [handle] = frames[..] {
            let out = departed(&mut edge, &mut pool, &[handle]);
            assert_eq!(pool.free_heads(), 256);
            assert!(vnet.gso_type != 0 || vnet.flags != 0 || out[0].bytes == frame && out[0].vnet == vnet);
            continue;
        }
        departed(&mut edge, &mut pool, &frames);
        assert_eq!(pool.free_heads(), 256);
    }
    assert!(changed > 1000);
}
