//! Flows folded by what they have in common: host, prefix, port, DSCP or protocol. This is done
//! outside of the loop, on a summary of at most 64 flows.

use core::fmt;
use core::net::IpAddr;
use std::collections::BTreeMap;

use crate::amount::Amount;
use crate::flow::{FlowKey, address};
use crate::prefix::{Host, prefixes};
use crate::summary::Summary;

/// Which end of a flow is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The host that sends.
    Source,
    /// The host that receives.
    Destination,
}

/// What flows are folded by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Address of one end.
    Host(Side),
    /// Prefixes of the addresses of one end. A prefix with less than `per_mille` thousandths of all
    /// bytes, and of all packets, is folded into the next shorter prefix that contains it.
    Prefix(Side, u32),
    /// Protocol and [service port](service).
    Port,
    /// DSCP.
    Dscp,
    /// Protocol.
    Protocol,
}

/// A prefix with less than so many thousandths of the traffic is folded into a shorter one: a list
/// has room for some twenty.
const PER_MILLE: u32 = 50;

/// What users may fold flows by, with the word for it.
pub const WORDS: [(&str, By); 6] = [
    ("host", By::Host(Side::Source)),
    ("to-host", By::Host(Side::Destination)),
    ("prefix", By::Prefix(Side::Source, PER_MILLE)),
    ("to-prefix", By::Prefix(Side::Destination, PER_MILLE)),
    ("port", By::Port),
    ("dscp", By::Dscp),
];

impl By {
    /// The one with this word.
    pub fn of_word(word: &str) -> Option<By> {
        WORDS.into_iter().find(|(known, _)| *known == word).map(|(_, by)| by)
    }

    /// The word for it; empty where users have none.
    pub fn word(self) -> &'static str {
        WORDS.into_iter().find(|(_, by)| *by == self).map_or("", |(word, _)| word)
    }
}

/// What the flows of a group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Label {
    /// An address.
    Host(IpAddr),
    /// A prefix: the lowest address, and its length in bits.
    Prefix(IpAddr, u8),
    /// Protocol and port. Port 0: the protocol has none.
    Port(u8, u16),
    /// DSCP.
    Dscp(u8),
    /// Protocol number.
    Protocol(u8),
    /// Packets that are not IP.
    NotIp,
}

/// Flows that have something in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// What they have in common.
    pub label: Label,
    /// What they have for certain. Flows that the summary does not list may belong to the group as
    /// well. So a group has no error of its own: all groups together may have [`Folded::others`]
    /// more.
    pub at_least: Amount,
}

/// All groups of a summary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folded {
    /// The groups, those with the most bytes first.
    pub groups: Vec<Group>,
    /// What is not certain to belong to one of them.
    pub others: Amount,
}

/// Folds the flows of a summary. Groups and others add up to the summary's total.
pub fn fold(flows: &Summary<FlowKey>, by: By) -> Folded {
    let mut groups = match by {
        By::Prefix(side, per_mille) => by_prefix(flows, side, per_mille),
        _ => by_label(flows, by),
    };
    groups.sort_unstable_by(|a, b| b.at_least.cmp(&a.at_least).then_with(|| a.label.cmp(&b.label)));
    Folded { groups, others: flows.others() }
}

fn by_label(flows: &Summary<FlowKey>, by: By) -> Vec<Group> {
    let mut groups: BTreeMap<Label, Amount> = BTreeMap::new();
    for counted in flows.listed() {
        *groups.entry(label(&counted.key, by)).or_default() += counted.at_least;
    }
    groups.into_iter().map(|(label, at_least)| Group { label, at_least }).collect()
}

fn label(flow: &FlowKey, by: By) -> Label {
    if flow.family() == 0 {
        return Label::NotIp;
    }
    match by {
        By::Host(side) | By::Prefix(side, _) => host(flow, side).map_or(Label::NotIp, Label::Host),
        By::Port => Label::Port(flow.protocol(), service(flow)),
        By::Dscp => Label::Dscp(flow.dscp()),
        By::Protocol => Label::Protocol(flow.protocol()),
    }
}

fn host(flow: &FlowKey, side: Side) -> Option<IpAddr> {
    match side {
        Side::Source => flow.src(),
        Side::Destination => flow.dst(),
    }
}

/// The port of a flow's service: the lower of its two ports. Services have low ports, and clients
/// use the dynamic ports, which are the highest (RFC 6335 6).
pub fn service(flow: &FlowKey) -> u16 {
    flow.sport().min(flow.dport())
}

fn by_prefix(flows: &Summary<FlowKey>, side: Side, per_mille: u32) -> Vec<Group> {
    let (mut groups, mut rest) = (Vec::new(), Amount::default());
    for family in [4, 6] {
        let hosts = flows.listed().iter().filter(|counted| counted.key.family() == family);
        let hosts: Vec<Host> = hosts
            .map(|counted| Host {
                bits: match side {
                    Side::Source => counted.key.src_bits(),
                    Side::Destination => counted.key.dst_bits(),
                },
                amount: counted.at_least,
            })
            .collect();
        for found in prefixes(hosts, family, flows.total(), per_mille) {
            match address(family, found.bits) {
                Some(address) => {
                    groups.push(Group { label: Label::Prefix(address, found.length), at_least: found.amount });
                }
                None => rest += found.amount,
            }
        }
    }
    let other = flows.listed().iter().filter(|counted| !matches!(counted.key.family(), 4 | 6));
    rest += other.map(|counted| counted.at_least).sum::<Amount>();
    if !rest.is_zero() {
        groups.push(Group { label: Label::NotIp, at_least: rest });
    }
    groups
}

/// The names of common protocols, as in IANA's registry of protocol numbers, in lower case.
pub fn protocol_name(number: u8) -> Option<&'static str> {
    Some(match number {
        1 => "icmp",
        2 => "igmp",
        4 => "ipv4",
        6 => "tcp",
        17 => "udp",
        33 => "dccp",
        41 => "ipv6",
        47 => "gre",
        50 => "esp",
        51 => "ah",
        58 => "ipv6-icmp",
        89 => "ospfigp",
        103 => "pim",
        112 => "vrrp",
        115 => "l2tp",
        132 => "sctp",
        136 => "udplite",
        _ => return None,
    })
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = |f: &mut fmt::Formatter<'_>, number: u8| match protocol_name(number) {
            Some(name) => f.write_str(name),
            None => write!(f, "protocol {number}"),
        };
        match *self {
            Label::Host(address) => write!(f, "{address}"),
            Label::Prefix(address, length) => write!(f, "{address}/{length}"),
            Label::Port(number, 0) => protocol(f, number),
            Label::Port(number, port) => {
                protocol(f, number)?;
                write!(f, " {port}")
            }
            Label::Dscp(dscp) => write!(f, "dscp {dscp}"),
            Label::Protocol(number) => protocol(f, number),
            Label::NotIp => f.write_str("not IP"),
        }
    }
}

#[cfg(test)]
mod tests {
    use altq_engine::headers::Key;

    use super::*;
    use crate::summary::Counted;

    fn counted(src: u128, sport: u16, dport: u16, proto: u8, dscp: u8, bytes: u64) -> Counted<FlowKey> {
        let key = Key { src, dst: 0xc000_0201, proto, family: 4, tos: dscp << 2, ..Key::default() };
        let port = |port: u16| (port > 0).then_some(port);
        let key = key.with_sport(port(sport)).with_dport(port(dport));
        Counted { key: FlowKey::of(&key), at_least: Amount::new(bytes, bytes / 100), error: Amount::new(7, 1) }
    }

    fn texts(flows: &Summary<FlowKey>, by: By) -> Vec<(String, u64)> {
        let folded = fold(flows, by);
        let known: Amount = folded.groups.iter().map(|group| group.at_least).sum();
        assert_eq!(known + folded.others, flows.total());
        folded.groups.iter().map(|group| (group.label.to_string(), group.at_least.bytes)).collect()
    }

    #[test]
    fn every_word_is_found_again() {
        for (word, by) in WORDS {
            assert_eq!((By::of_word(word), by.word()), (Some(by), word));
        }
        assert_eq!((By::of_word("colour"), By::Protocol.word()), (None, ""));
    }

    #[test]
    fn groups_and_others_are_the_total() {
        let all = vec![
            counted(0x0a00_0001, 50_000, 443, 6, 0, 1000),
            counted(0x0a00_0001, 443, 50_001, 6, 0, 600),
            counted(0x0a00_0002, 50_002, 53, 17, 46, 300),
            counted(0x0a00_0002, 0, 0, 1, 0, 200),
            Counted { key: FlowKey::default(), at_least: Amount::new(100, 1), error: Amount::default() },
        ];
        let flows = Summary::new(all, Amount::new(2500, 40), Amount::new(9, 1));
        let owned = |list: &[(&str, u64)]| -> Vec<(String, u64)> {
            list.iter().map(|(name, bytes)| (name.to_string(), *bytes)).collect()
        };
        assert_eq!(
            texts(&flows, By::Host(Side::Source)),
            owned(&[("10.0.0.1", 1600), ("10.0.0.2", 500), ("not IP", 100)])
        );
        assert_eq!(texts(&flows, By::Host(Side::Destination)), owned(&[("192.0.2.1", 2100), ("not IP", 100)]));
        assert_eq!(
            texts(&flows, By::Port),
            owned(&[("tcp 443", 1600), ("udp 53", 300), ("icmp", 200), ("not IP", 100)])
        );
        assert_eq!(texts(&flows, By::Dscp), owned(&[("dscp 0", 1800), ("dscp 46", 300), ("not IP", 100)]));
        assert_eq!(texts(&flows, By::Protocol), owned(&[("tcp", 1600), ("udp", 300), ("icmp", 200), ("not IP", 100)]));
        // 1 % of all is 25 bytes: both hosts have more.
        assert_eq!(
            texts(&flows, By::Prefix(Side::Source, 10)),
            owned(&[("10.0.0.1/32", 1600), ("10.0.0.2/32", 500), ("not IP", 100)])
        );
        // 30 % are 750 bytes or 12 packets. 10.0.0.2 has 500 and 5, so it is folded into the prefix
        // of both hosts, which has too little as well and is folded into /0.
        assert_eq!(
            texts(&flows, By::Prefix(Side::Source, 300)),
            owned(&[("10.0.0.1/32", 1600), ("0.0.0.0/0", 500), ("not IP", 100)])
        );
    }
}
