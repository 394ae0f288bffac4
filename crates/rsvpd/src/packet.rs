//! The IP packets around messages: written for raw sockets, and read as these hand them over. No
//! I/O.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use altq_rsvp::node::Transmit;

/// The IP protocol of RSVP.
pub const PROTOCOL: u8 = 46;
/// The TOS or traffic class of messages: DSCP CS6, network control (RFC 4594 3.1).
pub const CLASS: u8 = 48 << 2;

/// The router alert option of IPv4 with the value 0: routers look at the packet (RFC 2113).
const ALERT4: [u8; 4] = [0x94, 4, 0, 0];
/// The hop-by-hop header of IPv6 before an RSVP message: the next header, no more than 8 bytes, the
/// router alert option with the value 1, RSVP (RFC 2711 2.1), and padding of 2 bytes.
const ALERT6: [u8; 8] = [PROTOCOL, 0, 5, 2, 0, 1, 1, 0];
/// Next headers of IPv6 that may stand before the message: hop-by-hop and destination options.
const OPTIONS: [u8; 2] = [0, 60];

/// A message with what its IP header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// The TTL or hop limit.
    pub ttl: u8,
    /// The message.
    pub message: &'a [u8],
}

/// The packet of a message, with its IP header. Total length, identification and checksum of an
/// IPv4 header the kernel fills in (raw(7)). None if source and destination are of two families, or
/// if the message is too long for a packet.
pub fn write(transmit: &Transmit) -> Option<Vec<u8>> {
    let message = &transmit.message;
    let mut packet = match (transmit.source, transmit.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let options: &[u8] = if transmit.router_alert { &ALERT4 } else { &[] };
            let words = 5 + options.len() / 4;
            let total = u16::try_from(4 * words + message.len()).ok()?;
            let mut header = vec![0x40 | u8::try_from(words).ok()?, CLASS];
            header.extend(total.to_be_bytes());
            header.extend([0, 0, 0, 0, transmit.ttl, PROTOCOL, 0, 0]);
            header.extend(source.octets());
            header.extend(destination.octets());
            header.extend(options);
            header
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let options: &[u8] = if transmit.router_alert { &ALERT6 } else { &[] };
            let payload = u16::try_from(options.len() + message.len()).ok()?;
            let first: u32 = 6 << 28 | u32::from(CLASS) << 20;
            let mut header = first.to_be_bytes().to_vec();
            header.extend(payload.to_be_bytes());
            header.extend([if transmit.router_alert { 0 } else { PROTOCOL }, transmit.ttl]);
            header.extend(source.octets());
            header.extend(destination.octets());
            header.extend(options);
            header
        }
        _ => return None,
    };
    packet.extend(message);
    Some(packet)
}

/// Reads an IPv4 packet with its header. None if it is no whole packet with RSVP.
pub fn read4(packet: &[u8]) -> Option<Packet<'_>> {
    let fixed = packet.first_chunk::<20>()?;
    let header = usize::from(fixed[0] & 0x0f) * 4;
    let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    // More fragments, or an offset: the kernel puts them together before.
    let fragment = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff;
    if fixed[0] >> 4 != 4 || header < 20 || fixed[9] != PROTOCOL || fragment != 0 {
        return None;
    }
    Some(Packet {
        source: IpAddr::from(Ipv4Addr::new(fixed[12], fixed[13], fixed[14], fixed[15])),
        destination: IpAddr::from(Ipv4Addr::new(fixed[16], fixed[17], fixed[18], fixed[19])),
        ttl: fixed[8],
        message: packet.get(header..total)?,
    })
}

/// Reads an IPv6 packet with its headers. None if it is no whole packet with RSVP behind options.
pub fn read6(packet: &[u8]) -> Option<Packet<'_>> {
    let fixed = packet.first_chunk::<40>()?;
    if fixed[0] >> 4 != 6 {
        return None;
    }
    let end = 40 + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    let mut rest = packet.get(40..end)?;
    let mut next = fixed[6];
    while OPTIONS.contains(&next) {
        // RFC 8200 4.3: the next header, and the length in units of 8 bytes behind the first ones.
        let [after, length] = *rest.first_chunk::<2>()?;
        rest = rest.get(8 + 8 * usize::from(length)..)?;
        next = after;
    }
    let address = |at: usize| Some(IpAddr::from(Ipv6Addr::from(*fixed.get(at..)?.first_chunk::<16>()?)));
    let (source, destination) = (address(8)?, address(24)?);
    (next == PROTOCOL).then_some(Packet { source, destination, ttl: fixed[7], message: rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transmit(source: &str, destination: &str, router_alert: bool) -> Transmit {
        Transmit {
            interface: 1,
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            ttl: 63,
            router_alert,
            message: vec![0x10, 1, 2, 3],
        }
    }

    /// The bytes worked out from RFC 791 3.1 and RFC 2113.
    #[test]
    fn a_path_of_ipv4_has_its_option_and_its_class() {
        let packet = write(&transmit("10.0.1.1", "10.0.2.2", true)).unwrap();
        let expected =
            [0x46, 0xc0, 0, 28, 0, 0, 0, 0, 63, 46, 0, 0, 10, 0, 1, 1, 10, 0, 2, 2, 0x94, 4, 0, 0, 0x10, 1, 2, 3];
        assert_eq!(packet, expected);
        let without = write(&transmit("10.0.1.1", "10.0.2.2", false)).unwrap();
        assert_eq!((without[0], without[3], without.len()), (0x45, 24, 24));
    }

    /// RFC 8200 3 and 4.3, RFC 2711 2.1.
    #[test]
    fn a_path_of_ipv6_has_a_hop_by_hop_header() {
        let packet = write(&transmit("2001:db8::1", "2001:db8::2", true)).unwrap();
        assert_eq!(packet[..8], [0x6c, 0, 0, 0, 0, 12, 0, 63]);
        assert_eq!(packet[40..], [46, 0, 5, 2, 0, 1, 1, 0, 0x10, 1, 2, 3]);
        assert!(write(&transmit("2001:db8::1", "10.0.2.2", true)).is_none());
    }

    #[test]
    fn what_is_written_is_read_and_what_is_cut_is_not() {
        for (source, destination) in [("10.0.1.1", "10.0.2.2"), ("2001:db8::1", "2001:db8::2")] {
            for router_alert in [true, false] {
                let sent = transmit(source, destination, router_alert);
                let packet = write(&sent).unwrap();
                let read = |packet: &[u8]| {
                    let found = if sent.source.is_ipv4() { read4(packet) } else { read6(packet) };
                    found.map(|found| (found.source, found.destination, found.ttl, found.message.to_vec()))
                };
                assert_eq!(read(&packet), Some((sent.source, sent.destination, 63, sent.message.clone())));
                for cut in 0..packet.len() {
                    assert_eq!(read(&packet[..cut]), None, "{cut}");
                }
            }
        }
        // Of another protocol, and a fragment.
        let mut other = write(&transmit("10.0.1.1", "10.0.2.2", true)).unwrap();
        other[9] = 17;
        assert_eq!(read4(&other), None);
        (other[9], other[6]) = (46, 0x20);
        assert_eq!(read4(&other), None);
        let mut long = write(&transmit("10.0.1.1", "10.0.2.2", true)).unwrap();
        long[0] = 0x4f;
        assert_eq!(read4(&long), None, "a header longer than the packet");
        let huge = Transmit { message: vec![0; 65_530], ..transmit("10.0.1.1", "10.0.2.2", true) };
        assert_eq!(write(&huge), None);
    }
}
