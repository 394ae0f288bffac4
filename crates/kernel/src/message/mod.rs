//! Messages of rtnetlink about qdiscs, classes and filters, and about routes and addresses
//! (linux/rtnetlink.h): writes requests, and reads what the kernel sends.
//!
//! A message is a header of 16 bytes (`struct nlmsghdr`: length, type, flags, sequence number,
//! port), one of 20 bytes (`struct tcmsg`: family, interface, handle, parent, and for filters
//! priority and protocol), and attributes: length, type, value, padded to 4 bytes. Numbers are in
//! the machine's byte order, values of packet fields in network order.
//!
//! Nothing here calls the kernel.

mod filter;
mod qdisc;
mod read;
mod route;
mod words;

pub use filter::{INCOMING, delete_filters, delete_program, delete_redirect, new_filter, new_table};
pub use filter::{program, program_name, redirect, redirected, table_of};
pub use qdisc::{change_class, change_qdisc, delete_qdisc, ingress_qdisc, new_class, new_qdisc, restore_class};
pub use read::{Counters, Found, Message, Messages, sent};
pub use route::{Own, Way, get_addresses, get_route};
pub(crate) use words::keeps_hosts_apart;
pub use words::{changeable, leads, same, same_filter};

use crate::handle::Handle;

/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Bytes of `struct tcmsg`.
const TC: usize = 20;

// linux/netlink.h
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
/// Flags of an answer: it has only the header of the request; attributes follow.
const NLM_F_CAPPED: u16 = 0x100;
const NLM_F_ACK_TLVS: u16 = 0x200;
/// The type of an attribute, without the flags for nested attributes and for byte order.
const NLA_TYPE_MASK: u16 = 0x3fff;

// linux/rtnetlink.h
/// The type of a message that makes a device.
pub const RTM_NEWLINK: u16 = 16;
/// … that deletes a device.
pub const RTM_DELLINK: u16 = 17;
/// … that asks for a device.
pub const RTM_GETLINK: u16 = 18;
/// … that makes or changes a qdisc.
pub const RTM_NEWQDISC: u16 = 36;
/// … that deletes a qdisc.
pub const RTM_DELQDISC: u16 = 37;
/// … that asks for all qdiscs.
pub const RTM_GETQDISC: u16 = 38;
/// … that makes or changes a class.
pub const RTM_NEWTCLASS: u16 = 40;
/// … that asks for all classes.
pub const RTM_GETTCLASS: u16 = 42;
/// … that makes a filter.
pub const RTM_NEWTFILTER: u16 = 44;
/// … that deletes filters.
pub const RTM_DELTFILTER: u16 = 45;
/// … that asks for all filters.
pub const RTM_GETTFILTER: u16 = 46;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STAB: u16 = 8;

// linux/if_link.h
const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFF_UP: u32 = 1;
const IFF_PROMISC: u32 = 0x100;

/// A request that is being written.
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    /// A request with `struct tcmsg` after its header.
    fn tc(kind: u16, flags: u16, device: u32, handle: Handle, parent: Handle, info: u32) -> Writer {
        let mut writer = Writer::new(kind, flags);
        // The family AF_UNSPEC and padding.
        writer.u32(0);
        for word in [device, handle.0, parent.0, info] {
            writer.u32(word);
        }
        writer
    }

    fn new(kind: u16, flags: u16) -> Writer {
        let mut writer = Writer(vec![0; HEADER]);
        writer.0[4..6].copy_from_slice(&kind.to_ne_bytes());
        writer.0[6..8].copy_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
        writer
    }

    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_ne_bytes());
    }

    /// An attribute, padded to 4 bytes.
    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let len = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&len.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn attribute_u32(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_ne_bytes());
    }

    /// An attribute that is a text with a 0 byte at its end.
    fn attribute_text(&mut self, kind: u16, text: &str) {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(kind, &bytes);
    }

    /// An attribute that contains the attributes that `inside` writes.
    fn nest(&mut self, kind: u16, inside: impl FnOnce(&mut Writer)) {
        let start = self.0.len();
        self.0.extend_from_slice(&[0, 0]);
        self.0.extend_from_slice(&kind.to_ne_bytes());
        inside(self);
        let len = u16::try_from(self.0.len() - start).unwrap_or(u16::MAX);
        self.0[start..start + 2].copy_from_slice(&len.to_ne_bytes());
    }

    /// The bytes of the request, with its length filled in.
    fn done(mut self) -> Vec<u8> {
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        self.0
    }
}

/// Sets the sequence number of a request.
pub fn number(request: &mut [u8], sequence: u32) {
    if let Some(place) = request.get_mut(8..12) {
        place.copy_from_slice(&sequence.to_ne_bytes());
    }
}

/// Asks for all qdiscs of all interfaces.
pub fn get_qdiscs() -> Vec<u8> {
    Writer::tc(RTM_GETQDISC, NLM_F_DUMP, 0, Handle::default(), Handle::default(), 0).done()
}

/// Asks for all classes of an interface.
pub fn get_classes(device: u32) -> Vec<u8> {
    Writer::tc(RTM_GETTCLASS, NLM_F_DUMP, device, Handle::default(), Handle::default(), 0).done()
}

/// Asks for all filters of a qdisc.
pub fn get_filters(device: u32, qdisc: Handle) -> Vec<u8> {
    Writer::tc(RTM_GETTFILTER, NLM_F_DUMP, device, Handle::default(), qdisc, 0).done()
}

/// `struct ifinfomsg`: family, type, index, flags, and which flags are changed.
fn link(kind: u16, flags: u16, device: u32, [set, changed]: [u32; 2]) -> Writer {
    let mut writer = Writer::new(kind, flags);
    for word in [0, device, set, changed] {
        writer.u32(word);
    }
    writer
}

/// Sets or ends the promiscuous mode of a device that lasts until it is ended, as `ip link set dev
/// IF promisc on` does. Sockets can set it as well, each for as long as it is open.
pub fn promiscuous(device: u32, on: bool) -> Vec<u8> {
    link(RTM_NEWLINK, NLM_F_ACK, device, [if on { IFF_PROMISC } else { 0 }, IFF_PROMISC]).done()
}

/// Makes an ifb of this name, in the state `up`.
pub fn new_ifb(name: &str) -> Vec<u8> {
    let mut writer = link(RTM_NEWLINK, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, 0, [IFF_UP; 2]);
    writer.attribute_text(IFLA_IFNAME, name);
    writer.nest(IFLA_LINKINFO, |writer| writer.attribute(IFLA_INFO_KIND, b"ifb"));
    writer.done()
}

/// Deletes a device.
pub fn delete_link(device: u32) -> Vec<u8> {
    link(RTM_DELLINK, NLM_F_ACK, device, [0; 2]).done()
}

/// Asks for a device by its name.
pub fn get_link(name: &str) -> Vec<u8> {
    let mut writer = link(RTM_GETLINK, NLM_F_ACK, 0, [0; 2]);
    writer.attribute_text(IFLA_IFNAME, name);
    writer.done()
}
