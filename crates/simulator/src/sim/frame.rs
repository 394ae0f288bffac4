//! Frames: what a source's packet would look like on the wire.

use std::net::IpAddr;

use altq_engine::headers::Key;

const UDP: u8 = 17;

/// Where a UDP flow's packets come from and go to.
#[derive(Clone, Debug)]
pub struct UdpFlow {
    /// Source address, and the sender's place among the hosts (for its MAC address).
    pub src: (IpAddr, usize),
    /// Destination.
    pub dst: (IpAddr, usize),
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// DSCP.
    pub dscp: u8,
}

impl UdpFlow {
    /// The key by which a packet of `len` bytes is classified.
    pub fn key(&self, len: u32) -> Key {
        let bits = |address: IpAddr| match address {
            IpAddr::V4(v4) => u128::from(v4.to_bits()),
            IpAddr::V6(v6) => v6.to_bits(),
        };
        Key {
            src: bits(self.src.0),
            dst: bits(self.dst.0),
            sport: Some(self.sport),
            dport: Some(self.dport),
            proto: UDP,
            family: if self.src.0.is_ipv6() { 6 } else { 4 },
            tos: self.dscp << 2,
            length: len,
            ..Key::default()
        }
    }

    /// Bytes of the IP and UDP headers.
    pub fn headers(&self) -> u32 {
        if self.src.0.is_ipv6() { 48 } else { 28 }
    }

    /// An Ethernet frame with packet `number` of the flow, `len` bytes at layer 3: valid headers and checksums; the payload is the
    /// number in eight bytes, as far as there is room, then zeros.
    pub fn frame(&self, len: u32, number: u64, ecn: u8) -> Vec<u8> {
        let mac = |host: usize| [2, 0, 0, 0, (host >> 8) as u8, host as u8];
        let mut f = Vec::with_capacity(14 + len as usize);
        f.extend(mac(self.dst.1));
        f.extend(mac(self.src.1));
        let tos = self.dscp << 2 | ecn;
        let mut pseudo = Vec::with_capacity(40);
        let udp = len.saturating_sub(self.headers() - 8) as u16;
        match (self.src.0, self.dst.0) {
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                f.extend([0x86, 0xdd]);
                f.extend([0x60 | tos >> 4, tos << 4, 0, 0]);
                f.extend(udp.to_be_bytes());
                f.extend([UDP, 64]);
                f.extend(src.octets());
                f.extend(dst.octets());
                pseudo.extend(src.octets());
                pseudo.extend(dst.octets());
            }
            (src, dst) => {
                let octets = |address| match address {
                    IpAddr::V4(v4) => v4.octets(),
                    IpAddr::V6(_) => [0; 4],
                };
                f.extend([0x08, 0x00]);
                let start = f.len();
                f.extend([0x45, tos]);
                f.extend((len as u16).to_be_bytes());
                f.extend((number as u16).to_be_bytes());
                // Don't fragment; 64 hops.
                f.extend([0x40, 0, 64, UDP, 0, 0]);
                f.extend(octets(src));
                f.extend(octets(dst));
                let sum = checksum(&f[start..]);
                f[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
                pseudo.extend(octets(src));
                pseudo.extend(octets(dst));
            }
        }
        pseudo.extend([0, UDP]);
        pseudo.extend(udp.to_be_bytes());
        let start = f.len();
        f.extend(self.sport.to_be_bytes());
        f.extend(self.dport.to_be_bytes());
        f.extend(udp.to_be_bytes());
        f.extend([0, 0]);
        let payload = usize::from(udp).saturating_sub(8);
        f.extend(&number.to_be_bytes()[8 - payload.min(8)..]);
        f.resize(14 + len as usize, 0);
        pseudo.extend(&f[start..]);
        // RFC 768: a checksum of 0 is sent as all ones.
        let sum = match checksum(&pseudo) {
            0 => 0xffff,
            sum => sum,
        };
        f[start + 6..start + 8].copy_from_slice(&sum.to_be_bytes());
        f
    }
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let sum: u64 = bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0))).sum();
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

    fn flow(src: &str, dst: &str) -> UdpFlow {
        UdpFlow { src: (src.parse().unwrap(), 0), dst: (dst.parse().unwrap(), 1), sport: 40_000, dport: 53, dscp: 46 }
    }

    #[test]
    fn the_parser_reads_back_the_key() {
        for (flow, lens) in [
            (flow("10.0.0.1", "192.0.2.7"), [28, 29, 190, 1500, 65535]),
            (flow("2001:db8::1", "2001:db8::2"), [48, 49, 190, 1500, 9000]),
        ] {
            for len in lens {
                let frame = flow.frame(len, 0x1234_5678_9abc, 0);
                assert_eq!(frame.len(), 14 + len as usize);
                assert_eq!(parse_ethernet(&frame, frame.len() as u32).key, flow.key(len), "{len}");
            }
        }
    }

    #[test]
    fn checksums_sum_to_zero() {
        // RFC 1071: summing over a header with its checksum gives 0.
        let frame = flow("10.0.0.1", "192.0.2.7").frame(101, 7, 0);
        assert_eq!(checksum(&frame[14..34]), 0);
        let mut pseudo = frame[26..34].to_vec();
        pseudo.extend([0, UDP, 0, 81]);
        pseudo.extend(&frame[34..]);
        assert_eq!(checksum(&pseudo), 0);
        // RFC 1071 section 3's example.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }
}
