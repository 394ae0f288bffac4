//! Writes simulated packets as Ethernet frames, for captures. Headers and checksums are valid; the
//! payload is the packet's number, or zeros.

use altq_engine::headers::Key;
use altq_engine::units::Nanos;

use super::stream::Load;
use crate::tcp::{Flags, Options, Segment};

/// An Ethernet frame with a packet of this key. MAC addresses are made from the indices of the two
/// hosts. A datagram's payload is its number in eight bytes, or in as many as fit, and then zeros.
/// `outer`: the IPv4 header of the tunnel that carries the packet.
pub fn ethernet(key: &Key, hosts: [usize; 2], load: &Load, outer: Option<&Key>) -> Vec<u8> {
    let mac = |host: usize| {
        let [a, b, c, d] = (host as u32).to_be_bytes();
        [2, 0, a, b, c, d]
    };
    let (transport, id) = match load {
        Load::Number(number) => (datagram(key, *number), *number),
        Load::Echo { number, answer } => (echo(key, *number, *answer), *number),
        Load::Segment(segment) => (tcp(key, segment), segment.seq),
    };
    let mut f = Vec::with_capacity(54 + key.length as usize);
    f.extend(mac(hosts[1]));
    f.extend(mac(hosts[0]));
    let outermost = outer.unwrap_or(key);
    f.extend(if outermost.family == 6 { [0x86, 0xdd] } else { [0x08, 0x00] });
    if let Some(outer) = outer {
        ip(outer, id, &mut f);
    }
    ip(key, id, &mut f);
    f.extend(transport);
    f
}

/// The IP header of a packet.
fn ip(key: &Key, id: u64, f: &mut Vec<u8>) {
    if key.family == 6 {
        f.extend([0x60 | key.tos >> 4, key.tos << 4, 0, 0]);
        f.extend((key.length.saturating_sub(40) as u16).to_be_bytes());
        f.extend([key.proto, 64]);
        f.extend(key.src.to_be_bytes());
        f.extend(key.dst.to_be_bytes());
        return;
    }
    let start = f.len();
    f.extend([0x45, key.tos]);
    f.extend((key.length as u16).to_be_bytes());
    f.extend((id as u16).to_be_bytes());
    // Don't fragment; 64 hops.
    f.extend([0x40, 0, 64, key.proto, 0, 0]);
    f.extend((key.src as u32).to_be_bytes());
    f.extend((key.dst as u32).to_be_bytes());
    let sum = checksum(&f[start..]);
    f[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
}

/// The number of bytes after the IP header.
fn behind_ip(key: &Key) -> u32 {
    key.length.saturating_sub(if key.family == 6 { 40 } else { 20 })
}

/// The checksum of TCP and UDP, which also covers the addresses, the protocol and the length (RFC
/// 9293 3.1, RFC 8200 8.1).
fn sum(key: &Key, transport: &[u8]) -> u16 {
    let mut all = Vec::with_capacity(40 + transport.len());
    if key.family == 6 {
        all.extend(key.src.to_be_bytes());
        all.extend(key.dst.to_be_bytes());
    } else {
        all.extend((key.src as u32).to_be_bytes());
        all.extend((key.dst as u32).to_be_bytes());
    }
    all.extend([0, key.proto]);
    all.extend((transport.len() as u16).to_be_bytes());
    all.extend(transport);
    checksum(&all)
}

/// An echo request or its answer (RFC 792; RFC 4443 4.1 and 4.2). Its data begin with the number.
fn echo(key: &Key, number: u64, answer: bool) -> Vec<u8> {
    let len = (behind_ip(key) as usize).max(8);
    let kind = match (key.family == 6, answer) {
        (false, false) => 8,
        (false, true) => 0,
        (true, false) => 128,
        (true, true) => 129,
    };
    let mut f = vec![kind, 0, 0, 0, 0, 1];
    f.extend((number as u16).to_be_bytes());
    let data = len - 8;
    f.extend(&number.to_be_bytes()[8 - data.min(8)..]);
    f.resize(len, 0);
    // RFC 4443 2.3: the checksum of ICMPv6 also covers the addresses.
    let sum = if key.family == 6 { sum(key, &f) } else { checksum(&f) };
    f[2..4].copy_from_slice(&sum.to_be_bytes());
    f
}

fn datagram(key: &Key, number: u64) -> Vec<u8> {
    let len = behind_ip(key);
    let mut f = Vec::with_capacity(len as usize);
    f.extend(key.sport.to_be_bytes());
    f.extend(key.dport.to_be_bytes());
    f.extend((len as u16).to_be_bytes());
    f.extend([0, 0]);
    let payload = len.saturating_sub(8) as usize;
    f.extend(&number.to_be_bytes()[8 - payload.min(8)..]);
    f.resize((len as usize).max(8), 0);
    // RFC 768: a checksum of 0 is sent as all ones.
    let sum = match sum(key, &f) {
        0 => 0xffff,
        sum => sum,
    };
    f[6..8].copy_from_slice(&sum.to_be_bytes());
    f
}

/// The window scale in captures: the largest that RFC 7323 2.3 allows, so that every window fits.
const SCALE: u8 = 14;

fn tcp(key: &Key, segment: &Segment) -> Vec<u8> {
    let len = behind_ip(key) as usize;
    let syn = segment.flags.has(Flags::SYN);
    let mut f = Vec::with_capacity(len);
    f.extend(key.sport.to_be_bytes());
    f.extend(key.dport.to_be_bytes());
    f.extend((segment.seq as u32).to_be_bytes());
    f.extend((segment.ack as u32).to_be_bytes());
    f.extend([0, segment.flags.0]);
    let scaled = segment.options.has(Options::SCALE) && !syn;
    let window = if scaled { segment.window >> SCALE } else { segment.window.min(u32::from(u16::MAX)) };
    f.extend((window.min(u32::from(u16::MAX)) as u16).to_be_bytes());
    f.extend([0, 0, 0, 0]);
    // The options fill the room that the packet's length leaves, so that the frame has the length
    // of the simulated packet.
    let room = len.saturating_sub(segment.len as usize).clamp(20, 60) & !3;
    let mut options = Vec::new();
    if syn {
        options.extend([2, 4]);
        options.extend(segment.mss.to_be_bytes());
        if segment.options.has(Options::SACK) {
            options.extend([4, 2]);
        }
    }
    if segment.options.has(Options::STAMPS) {
        // Timestamps are in microseconds. (RFC 7323 5.4 advises 1 ms to 1 s, and accepts down to 59
        // ns.)
        let stamp = |t: Nanos| ((t / 1_000) as u32).to_be_bytes();
        while options.len() % 4 != 2 {
            options.push(1);
        }
        options.extend([8, 10]);
        options.extend(stamp(segment.stamp));
        options.extend(stamp(segment.echo));
    }
    if syn && segment.options.has(Options::SCALE) {
        options.extend([1, 3, 3, SCALE]);
    }
    let blocks = segment.sack.len();
    if blocks > 0 {
        options.extend([1, 1, 5, 2 + 8 * blocks as u8]);
        for (from, to) in segment.sack_blocks() {
            options.extend((from as u32).to_be_bytes());
            options.extend((to as u32).to_be_bytes());
        }
    }
    if options.len() > room - 20 {
        options.clear();
    }
    f.extend(options);
    f.resize(room, 0);
    f[12] = (room as u8 / 4) << 4;
    f.resize(len.max(room), 0);
    let sum = sum(key, &f);
    f[16..18].copy_from_slice(&sum.to_be_bytes());
    f
}

/// The Internet checksum (RFC 1071 1).
fn checksum(bytes: &[u8]) -> u16 {
    let sum: u64 =
        bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0))).sum();
    let mut sum = sum;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use altq_engine::headers::parse_ethernet;

    use super::*;

    const TCP: u8 = 6;

    fn key(src: &str, dst: &str, proto: u8, length: u32) -> Key {
        let bits = |text: &str| match text.parse().unwrap() {
            std::net::IpAddr::V4(v4) => u128::from(v4.to_bits()),
            std::net::IpAddr::V6(v6) => v6.to_bits(),
        };
        let family = if src.contains(':') { 6 } else { 4 };
        let key = Key { src: bits(src), dst: bits(dst), proto, family, tos: 46 << 2 | 1, length, ..Key::default() };
        key.with_ports(40_000, 53)
    }

    const V4: (&str, &str) = ("10.0.0.1", "192.0.2.7");
    const V6: (&str, &str) = ("2001:db8::1", "2001:db8::2");

    #[test]
    fn the_parser_reads_back_the_key() {
        for ((src, dst), lens) in [(V4, [28, 29, 190, 1500, 65535]), (V6, [48, 49, 190, 1500, 9000])] {
            for len in lens {
                let key = key(src, dst, 17, len);
                let frame = ethernet(&key, [0, 1], &Load::Number(0x1234_5678_9abc), None);
                assert_eq!(frame.len(), 14 + len as usize);
                assert_eq!(parse_ethernet(&frame, frame.len() as u32).key, key, "{len}");
            }
        }
    }

    #[test]
    fn segments_are_read_back_too() {
        for (src, dst) in [V4, V6] {
            let ip = if src == V4.0 { 20 } else { 40 };
            for (flags, payload, header) in
                [(Flags::SYN, 0, 40), (Flags::ACK, 1448, 32), (Flags::ACK.with(Flags::FIN), 0, 32)]
            {
                let options = Options(Options::SACK | Options::STAMPS | Options::SCALE);
                let segment = Segment { seq: 5, ack: 9, len: payload, flags, options, mss: 1460, ..Segment::default() };
                let key = Key { tcp_flags: flags.0, ..key(src, dst, TCP, ip + header + payload) };
                let frame = ethernet(&key, [0, 1], &Load::Segment(segment), None);
                let read = parse_ethernet(&frame, frame.len() as u32);
                assert_eq!((read.key, read.payload), (key, Some(payload)));
                assert_eq!(sum(&key, &frame[14 + ip as usize..]), 0);
            }
        }
    }

    #[test]
    fn a_tunnel_stands_before_it() {
        let inner = key(V6.0, V6.1, 17, 100);
        let outer = Key { proto: 41, ..key("192.0.2.1", "192.0.2.2", 41, 120) }.with_sport(None).with_dport(None);
        let frame = ethernet(&inner, [0, 1], &Load::Number(1), Some(&outer));
        assert_eq!(frame.len(), 14 + 120);
        assert_eq!(parse_ethernet(&frame, 134).key, outer);
        assert_eq!(altq_engine::headers::parse_ip(&frame[34..], 100).key, inner);
    }

    #[test]
    fn checksums_sum_to_zero() {
        // RFC 1071 1: the sum over a header with its checksum gives 0.
        let key = key(V4.0, V4.1, 17, 101);
        let frame = ethernet(&key, [0, 1], &Load::Number(7), None);
        assert_eq!(checksum(&frame[14..34]), 0);
        assert_eq!(sum(&key, &frame[34..]), 0);
        // The example of RFC 1071 3.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }
}
