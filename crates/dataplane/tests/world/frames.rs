//! Makes frames for tests: frames of all kinds that rules tell apart, and floods.

use altq_dataplane::checksum::Sum;

/// Pseudo-random numbers, the same in every run: the upper bits of a linear congruential generator
/// with the constants of Knuth's MMIX.
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Noise {
        Noise(seed)
    }

    /// 31 bits.
    pub fn number(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u32) -> u32 {
        self.number() % end
    }

    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u32) as usize]
    }
}

/// What stands before the IP header: two addresses, and a VLAN tag if there is one.
#[derive(Clone, Copy)]
pub struct Outside {
    pub to: [u8; 6],
    pub from: [u8; 6],
    pub vlan: Option<u16>,
}

impl Outside {
    /// A frame with this packet.
    fn around(&self, kind: u16, packet: &[u8]) -> Vec<u8> {
        let mut frame = [self.to, self.from].concat();
        if let Some(id) = self.vlan {
            frame.extend([0x81, 0]);
            frame.extend(id.to_be_bytes());
        }
        frame.extend(kind.to_be_bytes());
        frame.extend(packet);
        frame
    }
}

/// An IPv4 header without options (RFC 791 3.1), with its checksum, before `payload`. `fragment` is
/// the word of flags and offset.
pub fn ipv4(from: [u8; 4], to: [u8; 4], tos: u8, proto: u8, id: u16, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, tos];
    packet.extend((20 + payload.len() as u16).to_be_bytes());
    packet.extend(id.to_be_bytes());
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, proto, 0, 0]);
    packet.extend(from);
    packet.extend(to);
    let sum = Sum::default().add(&packet).finish();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

/// An IPv6 header (RFC 8200 3) before `payload`, which may begin with extension headers.
pub fn ipv6(from: [u8; 16], to: [u8; 16], tos: u8, flow: u32, next: u8, payload: &[u8]) -> Vec<u8> {
    let first = 6 << 28 | u32::from(tos) << 20 | flow & 0xf_ffff;
    let mut packet = first.to_be_bytes().to_vec();
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    packet.extend(from);
    packet.extend(to);
    packet.extend(payload);
    packet
}

/// A UDP header (RFC 768) and `len` bytes. The checksum is not computed.
pub fn udp(sport: u16, dport: u16, len: usize) -> Vec<u8> {
    let mut bytes = [sport.to_be_bytes(), dport.to_be_bytes(), (8 + len as u16).to_be_bytes(), [0, 0]].concat();
    bytes.resize(8 + len, 7);
    bytes
}

/// A TCP header without options (RFC 9293 3.1) and `len` bytes. The checksum is not computed.
fn tcp(sport: u16, dport: u16, flags: u8, len: usize) -> Vec<u8> {
    let mut bytes = [sport.to_be_bytes(), dport.to_be_bytes()].concat();
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes.resize(20 + len, 7);
    bytes
}

const PORTS: [u16; 10] = [22, 53, 80, 123, 443, 5060, 5061, 8080, 8443, 40_000];

/// A transport header with data: its protocol, and its bytes. For ICMP it is an echo request (of
/// IPv4 or IPv6), because the next hop itself would take neighbour discovery.
fn transport(noise: &mut Noise, v6: bool) -> (u8, Vec<u8>) {
    let (sport, dport) = (noise.one(&PORTS), noise.one(&PORTS));
    let long = noise.below(1400) as usize;
    let len = noise.one(&[0, 20, 60, 300, 1000, 1400, long]);
    match noise.below(20) {
        0..=7 => (17, udp(sport, dport, len)),
        8..=15 => (6, tcp(sport, dport, noise.one(&[0x02, 0x10, 0x11, 0x12, 0x14, 0x18]), len)),
        16..=17 => {
            let mut bytes = vec![if v6 { 128 } else { 8 }, 0, 0, 0, 0, 1, 0, 1];
            bytes.resize(8 + len, 7);
            (if v6 { 58 } else { 1 }, bytes)
        }
        18 => {
            // ESP: the SPI, a sequence number, and what is encrypted.
            let spi = noise.one(&[4096u32, 70_000]);
            let mut bytes = [spi.to_be_bytes(), [0, 0, 0, 1]].concat();
            bytes.resize(8 + len, 7);
            (50, bytes)
        }
        _ => {
            let mut bytes = [sport.to_be_bytes(), dport.to_be_bytes()].concat();
            bytes.resize(12 + len, 7);
            (132, bytes)
        }
    }
}

/// Frames of all kinds: IPv4 from 10.50.0.0/14 to 10.200.0.0/22, and IPv6 from fd50::/30 to
/// fd20::/30. Every twentieth is a datagram in three fragments. With `vlans` some frames have tags.
pub fn mixed(seed: u64, count: usize, outside: Outside, vlans: bool) -> Vec<Vec<u8>> {
    let mut noise = Noise::new(seed);
    let mut frames = Vec::new();
    while frames.len() < count {
        let vlan = if vlans { noise.one(&[None, None, None, Some(5), Some(7), Some(100)]) } else { None };
        let outside = Outside { vlan, ..outside };
        let (dscp, ecn) = (noise.one(&[0, 0, 8, 10, 18, 34, 38, 44, 46, 48]), noise.one(&[0, 0, 1, 2, 3]));
        let tos = dscp << 2 | ecn;
        let (a, b, c, d) = (noise.below(4) as u8, noise.below(12) as u8, noise.below(4) as u8, noise.below(12) as u8);
        let (id, flow) = (noise.number(), noise.one(&[0, 7, 99]));
        let (v6, fragments) = (noise.below(5) < 2, noise.below(20) == 0);
        let (from4, to4) = ([10, 50 + a, b, 1 + d], [10, 200, c, 1 + b]);
        let (mut from6, mut to6) = ([0; 16], [0; 16]);
        (from6[0], from6[1], from6[3], from6[15]) = (0xfd, 0x50, a, 1 + d);
        (to6[0], to6[1], to6[3], to6[15]) = (0xfd, 0x20, c, 1 + b);
        if fragments {
            let whole = udp(noise.one(&PORTS), noise.one(&PORTS), 2000);
            for (at, end) in [(0, 800), (800, 1600), (1600, whole.len())] {
                let (part, more) = (&whole[at..end], end < whole.len());
                frames.push(if v6 {
                    // RFC 8200 4.5: next header, reserved, offset and flag for more, number.
                    let word = at as u16 | u16::from(more);
                    let mut bytes = vec![17, 0];
                    bytes.extend(word.to_be_bytes());
                    bytes.extend(id.to_be_bytes());
                    bytes.extend(part);
                    outside.around(0x86dd, &ipv6(from6, to6, tos, flow, 44, &bytes))
                } else {
                    let word = (at / 8) as u16 | if more { 0x2000 } else { 0 };
                    outside.around(0x800, &ipv4(from4, to4, tos, 17, id as u16, word, part))
                });
            }
            continue;
        }
        let (proto, bytes) = transport(&mut noise, v6);
        frames.push(if v6 {
            outside.around(0x86dd, &ipv6(from6, to6, tos, flow, proto, &bytes))
        } else {
            outside.around(0x800, &ipv4(from4, to4, tos, proto, id as u16, 0x4000, &bytes))
        });
    }
    frames
}

/// A frame with an IPv4 packet.
pub fn frame4(outside: Outside, packet: &[u8]) -> Vec<u8> {
    outside.around(0x800, packet)
}

/// A frame with an IPv6 packet.
pub fn frame6(outside: Outside, packet: &[u8]) -> Vec<u8> {
    outside.around(0x86dd, packet)
}
