//! Messages about routes and addresses (`struct rtmsg`, `struct ifaddrmsg`): where packets to an
//! address go, and which addresses the host's interfaces have.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::read::{Attributes, u32_at};
use super::{HEADER, NLM_F_ACK, NLM_F_DUMP, Writer};

/// The type of a message that tells an address.
pub(super) const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
/// The type of a message that tells a route.
pub(super) const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;

// linux/socket.h
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

// linux/rtnetlink.h, linux/if_addr.h
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_VIA: u16 = 18;
const RTN_UNICAST: u8 = 1;
const RTN_LOCAL: u8 = 2;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
/// Flags of an address that is not to be used, because another host has it, or because that is not
/// known yet (RFC 4862 5.4).
const IFA_F_DADFAILED: u8 = 0x08;
const IFA_F_TENTATIVE: u8 = 0x40;
/// Bytes of `struct rtmsg` and of `struct ifaddrmsg`.
const ROUTE: usize = 12;
const ADDRESS: usize = 8;

/// Where packets to an address go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// They leave by the interface with this index, to their destination itself.
    Interface(u32),
    /// They leave by the interface with this index, to this router.
    Gateway(u32, IpAddr),
    /// The address is one of this host's.
    Local,
    /// Nowhere: they are dropped or refused, or go to more than one host.
    Nowhere,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Own {
    /// The index of the interface.
    pub device: u32,
    /// How far it reaches, as the kernel counts it: 0 everywhere, 253 on its link, 254 in this host
    /// (RT_SCOPE_*).
    pub scope: u8,
    /// The address.
    pub address: IpAddr,
    /// False if it cannot be used, or not yet.
    pub usable: bool,
}

/// Asks where packets to an address go.
pub fn get_route(to: IpAddr) -> Vec<u8> {
    let (family, bytes) = match to {
        IpAddr::V4(to) => (AF_INET, to.octets().to_vec()),
        IpAddr::V6(to) => (AF_INET6, to.octets().to_vec()),
    };
    let mut writer = Writer::new(RTM_GETROUTE, NLM_F_ACK);
    // struct rtmsg: family, bits of destination and source, TOS; table, protocol, scope, type;
    // flags.
    let bits = u8::try_from(8 * bytes.len()).unwrap_or(0);
    writer.0.extend_from_slice(&[family, bits, 0, 0, 0, 0, 0, 0]);
    writer.u32(0);
    writer.attribute(RTA_DST, &bytes);
    writer.done()
}

/// Asks for all addresses of all interfaces.
pub fn get_addresses() -> Vec<u8> {
    let mut writer = Writer::new(RTM_GETADDR, NLM_F_DUMP);
    writer.0.resize(HEADER + ADDRESS, 0);
    writer.done()
}

/// Reads a route. `None` if it is cut short.
pub(super) fn route(message: &[u8]) -> Option<Way> {
    let kind = *message.get(HEADER + 7)?;
    let attributes = Attributes(message.get(HEADER + ROUTE..)?);
    let device = attributes.value(RTA_OIF).and_then(|value| u32_at(value, 0));
    // The router of an IPv4 route may have an IPv6 address: `struct rtvia`, family and address.
    let via = || ip(attributes.value(RTA_VIA)?.get(2..)?);
    let gateway = attributes.value(RTA_GATEWAY).and_then(ip).or_else(via);
    Some(match (kind, device, gateway) {
        (RTN_LOCAL, ..) => Way::Local,
        (RTN_UNICAST, Some(device), Some(gateway)) => Way::Gateway(device, gateway),
        (RTN_UNICAST, Some(device), None) => Way::Interface(device),
        _ => Way::Nowhere,
    })
}

/// An address from its bytes.
fn ip(bytes: &[u8]) -> Option<IpAddr> {
    Some(match bytes.len() {
        4 => IpAddr::from(Ipv4Addr::from(*bytes.first_chunk::<4>()?)),
        16 => IpAddr::from(Ipv6Addr::from(*bytes.first_chunk::<16>()?)),
        _ => return None,
    })
}

/// Reads an address. `None` if it is cut short, or of another family than IP.
pub(super) fn own(message: &[u8]) -> Option<Own> {
    let [_, _, flags, scope] = *message.get(HEADER..)?.first_chunk::<4>()?;
    let device = u32_at(message, HEADER + 4)?;
    let attributes = Attributes(message.get(HEADER + ADDRESS..)?);
    // On a point-to-point link of IPv4 IFA_ADDRESS is the other end's.
    let value = attributes.value(IFA_LOCAL).or_else(|| attributes.value(IFA_ADDRESS))?;
    Some(Own { device, scope, address: ip(value)?, usable: flags & (IFA_F_DADFAILED | IFA_F_TENTATIVE) == 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Message, Messages};

    /// Written by hand from linux/rtnetlink.h, for a machine of either byte order.
    fn message(kind: u16, fixed: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut writer = Writer::new(kind, 0);
        writer.0.extend_from_slice(fixed);
        for (kind, value) in attributes {
            writer.attribute(*kind, value);
        }
        writer.done()
    }

    #[test]
    fn a_route_is_read_by_its_type_and_interface() {
        let read = |kind: u8, attributes: &[(u16, &[u8])]| {
            let bytes = message(24, &[2, 32, 0, 0, 254, 2, 0, kind, 0, 2, 0, 0], attributes);
            Messages::new(&bytes).collect::<Vec<Message>>()
        };
        let by: &[(u16, &[u8])] = &[(1, &[10, 0, 2, 2]), (4, &7u32.to_ne_bytes())];
        assert_eq!(read(1, by), [Message::Route(Way::Interface(7))]);
        assert_eq!(read(2, by), [Message::Route(Way::Local)]);
        // A router, of either family: RTA_GATEWAY 5, RTA_VIA 18.
        let gateway = |kind: u16, value: &[u8]| read(1, &[by[0], by[1], (kind, value)]);
        let [four, six] = [IpAddr::from([10, 0, 12, 2]), IpAddr::from(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2))];
        assert_eq!(gateway(5, &[10, 0, 12, 2]), [Message::Route(Way::Gateway(7, four))]);
        let mut via = 10u16.to_ne_bytes().to_vec();
        via.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(gateway(18, &via), [Message::Route(Way::Gateway(7, six))]);
        assert_eq!(gateway(5, &[10, 0]), [Message::Route(Way::Interface(7))]);
        // Broadcast, unreachable, and a route without an interface.
        assert_eq!(read(3, by), [Message::Route(Way::Nowhere)]);
        assert_eq!(read(7, by), [Message::Route(Way::Nowhere)]);
        assert_eq!(read(1, &by[..1]), [Message::Route(Way::Nowhere)]);
    }

    #[test]
    fn addresses_are_the_hosts_own() {
        let read = |flags: u8, scope: u8, attributes: &[(u16, &[u8])]| {
            let mut fixed = vec![2, 24, flags, scope];
            fixed.extend(3u32.to_ne_bytes());
            let bytes = message(20, &fixed, attributes);
            match Messages::new(&bytes).next() {
                Some(Message::Address(own)) => Some((own.device, own.scope, own.address.to_string(), own.usable)),
                Some(Message::Other) => None,
                other => panic!("{other:?}"),
            }
        };
        let peer: &[(u16, &[u8])] = &[(1, &[10, 0, 0, 9]), (2, &[10, 0, 0, 1])];
        assert_eq!(read(0x80, 0, peer), Some((3, 0, "10.0.0.1".to_owned(), true)));
        let six = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 5).octets();
        assert_eq!(read(0xc0, 253, &[(1, &six)]), Some((3, 253, "fe80::5".to_owned(), false)));
        assert_eq!(read(0, 0, &[(1, &[1, 2, 3])]), None);
    }

    #[test]
    fn requests_are_of_the_kernels_sizes() {
        let four = get_route(IpAddr::from([10, 0, 2, 2]));
        // A header of 16 bytes, rtmsg of 12, and an attribute of 4 + 4.
        assert_eq!((four.len(), four[16], four[17]), (36, 2, 32));
        let six = get_route(IpAddr::from([0; 16]));
        assert_eq!((six.len(), six[16], six[17]), (48, 10, 128));
        assert_eq!(get_addresses().len(), 24);
    }
}
