//! Which packets are one flow, and the hash by which a flow is found.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use altq_engine::classify::Mix;
use altq_engine::headers::Key;

/// A flow: source, destination, ports, protocol and DSCP.
///
/// The DSCP is part of it so that flows can be folded by DSCP exactly. A connection whose packets
/// have several DSCPs is shown as several flows.
///
/// It takes five words: four for the addresses, and one for ports, protocol, family and DSCP. Both
/// addresses of IPv4 are in the second word. All packets that are not IP are one flow, whose words
/// are 0.
#[derive(Clone, Copy, Debug, Default, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::derived_hash_with_manual_eq, reason = "words that are not compared are equal")]
pub struct FlowKey([u64; 5]);

impl PartialEq for FlowKey {
    /// Word by word. If they were compared as a piece of memory, words that were written just
    /// before would be read together, and a processor waits with that until they are in its cache.
    #[inline]
    fn eq(&self, other: &FlowKey) -> bool {
        let (own, other) = (&self.0, &other.0);
        let differs = (own[1] ^ other[1]) | (own[4] ^ other[4]);
        // Only IPv6 has anything in the others.
        differs == 0 && (self.family() != 6 || (own[0] ^ other[0]) | (own[2] ^ other[2]) | (own[3] ^ other[3]) == 0)
    }
}

/// Where the DSCP is in the last word. From the top it has source port, destination port, protocol,
/// DSCP with two zeros, 8 zeros, and family: as a [`Key`] has them side by side, so that all but
/// the family are read as one word.
const DSCP: u32 = 18;
/// The bits of the last word that are bits of a key as they lie there.
const SMALL: u64 = u64::MAX << DSCP;

impl FlowKey {
    /// The flow of a packet with these headers.
    #[inline]
    pub fn of(key: &Key) -> FlowKey {
        // The fields as they lie side by side, which makes it one load.
        let small = u64::from(key.sport) << 48
            | u64::from(key.dport) << 32
            | u64::from(key.proto) << 24
            | u64::from(key.tos) << 16
            | u64::from(key.tcp_flags) << 8
            | u64::from(key.there);
        let rest = small & SMALL | u64::from(key.family);
        match key.family {
            4 => FlowKey([0, (key.src as u64) << 32 | u64::from(key.dst as u32), 0, 0, rest]),
            6 => FlowKey([(key.src >> 64) as u64, key.src as u64, (key.dst >> 64) as u64, key.dst as u64, rest]),
            _ => FlowKey::default(),
        }
    }

    /// The same flow with another DSCP.
    #[inline]
    pub fn with_dscp(mut self, dscp: u8) -> FlowKey {
        self.set_dscp(dscp);
        self
    }

    /// Sets the DSCP (0 to 63): that of a packet may be changed before it leaves.
    #[inline]
    pub fn set_dscp(&mut self, dscp: u8) {
        if self.family() != 0 {
            self.0[4] = self.0[4] & !(63 << DSCP) | u64::from(dscp & 63) << DSCP;
        }
    }

    /// Its hash. IPv4 flows are hashed as two words, which costs one multiplication; IPv6 flows as
    /// six, which costs three.
    #[inline]
    pub fn hash(&self, mix: &Mix) -> u32 {
        let [src_high, low, dst_high, dst, rest] = self.0;
        let hash = if self.family() == 6 {
            mix.hash(&[src_high, low, dst_high, dst, rest, 0])
        } else {
            mix.hash(&[low, rest])
        };
        (hash ^ hash >> 32) as u32
    }

    /// 4, 6, or 0 for packets that are not IP.
    #[inline]
    pub fn family(&self) -> u8 {
        self.0[4] as u8
    }

    /// The protocol after all extension headers.
    pub fn protocol(&self) -> u8 {
        (self.0[4] >> 24) as u8
    }

    /// Source port; 0 where there is none.
    pub fn sport(&self) -> u16 {
        (self.0[4] >> 48) as u16
    }

    /// Destination port; 0 where there is none.
    pub fn dport(&self) -> u16 {
        (self.0[4] >> 32) as u16
    }

    /// DSCP, 0 to 63.
    pub fn dscp(&self) -> u8 {
        (self.0[4] >> DSCP) as u8 & 63
    }

    /// Source address; `None` for packets that are not IP.
    pub fn src(&self) -> Option<IpAddr> {
        address(self.family(), self.src_bits())
    }

    /// Destination address; `None` for packets that are not IP.
    pub fn dst(&self) -> Option<IpAddr> {
        address(self.family(), self.dst_bits())
    }

    /// Source address as a number; an IPv4 address is in the low 32 bits.
    pub fn src_bits(&self) -> u128 {
        match self.family() {
            6 => u128::from(self.0[0]) << 64 | u128::from(self.0[1]),
            _ => u128::from(self.0[1] >> 32),
        }
    }

    /// Destination address as a number; an IPv4 address is in the low 32 bits.
    pub fn dst_bits(&self) -> u128 {
        match self.family() {
            6 => u128::from(self.0[2]) << 64 | u128::from(self.0[3]),
            _ => u128::from(self.0[1] as u32),
        }
    }
}

/// The address with this number in a family; `None` if the family is neither 4 nor 6.
pub fn address(family: u8, bits: u128) -> Option<IpAddr> {
    match family {
        4 => Some(IpAddr::V4(Ipv4Addr::from(bits as u32))),
        6 => Some(IpAddr::V6(Ipv6Addr::from(bits))),
        _ => None,
    }
}

impl fmt::Display for FlowKey {
    /// `10.1.0.7:51222 > 192.0.2.9:443`; an IPv6 address with a port stands in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.src(), self.dst()) {
            (Some(src), Some(dst)) => {
                end(f, src, self.sport())?;
                f.write_str(" > ")?;
                end(f, dst, self.dport())
            }
            _ => f.write_str("not IP"),
        }
    }
}

/// One end of a flow. Port 0 means that there is none.
fn end(f: &mut fmt::Formatter<'_>, address: IpAddr, port: u16) -> fmt::Result {
    match (address, port) {
        (address, 0) => write!(f, "{address}"),
        (IpAddr::V4(address), port) => write!(f, "{address}:{port}"),
        (IpAddr::V6(address), port) => write!(f, "[{address}]:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key { src: 0x0a01_0007, dst: 0xc000_0209, proto: 6, family: 4, tos: 46 << 2 | 1, ..Key::default() }
            .with_ports(51222, 443)
    }

    #[test]
    fn all_fields_come_back() {
        let flow = FlowKey::of(&key());
        assert_eq!((flow.sport(), flow.dport(), flow.protocol(), flow.family(), flow.dscp()), (51222, 443, 6, 4, 46));
        assert_eq!(flow.to_string(), "10.1.0.7:51222 > 192.0.2.9:443");
        let src = 0x2001_0db8_0001_0000_0000_0000_0000_0007;
        let six = Key { family: 6, src, dst: 1, proto: 58, tos: 255, ..key() };
        let six = FlowKey::of(&six.with_sport(None).with_dport(None));
        assert_eq!((six.to_string().as_str(), six.protocol(), six.dscp()), ("2001:db8:1::7 > ::1", 58, 63));
        assert_eq!(FlowKey::of(&Key { family: 6, src: 1, dst: 2, ..key() }).to_string(), "[::1]:51222 > [::2]:443");
        assert_eq!(flow.with_dscp(0).dscp(), 0);
        assert_eq!(flow.with_dscp(0).with_dscp(46), flow);
    }

    #[test]
    fn what_is_not_ip_is_one_flow() {
        let arp = FlowKey::of(&Key { family: 0, ..key() });
        assert_eq!((arp, arp.src(), arp.to_string().as_str()), (FlowKey::default(), None, "not IP"));
        assert_eq!(arp.with_dscp(10), arp);
    }

    #[test]
    fn every_field_counts_in_the_hash_and_so_does_the_seed() {
        let base = key();
        let others = [
            Key { src: 1, ..base },
            Key { dst: 1, ..base },
            base.with_sport(Some(1)),
            base.with_dport(Some(1)),
            Key { proto: 17, ..base },
            Key { tos: 0, ..base },
            Key { family: 6, ..base },
            Key { family: 6, src: base.src | 1 << 100, ..base },
            Key { family: 6, dst: base.dst | 1 << 100, ..base },
        ];
        let mix = Mix::new(1);
        let mut hashes: Vec<u32> = others.iter().map(|key| FlowKey::of(key).hash(&mix)).collect();
        hashes.push(FlowKey::of(&base).hash(&mix));
        hashes.push(FlowKey::of(&base).hash(&Mix::new(2)));
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 11);
    }
}
