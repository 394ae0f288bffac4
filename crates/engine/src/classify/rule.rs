//! The form of rules.

use crate::spec::ClassId;

/// The rules of a link, and the order in which they are tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSet {
    /// The rules, as written.
    pub rules: Vec<Rule>,
    /// Which of several matching rules decides.
    pub order: Order,
    /// Names of the interfaces that rules name. [`Field::Interface`] compares the index into this
    /// list.
    pub interfaces: Vec<String>,
}

/// Which of several matching rules decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The first in the order in which they are written.
    #[default]
    First,
    /// ALTQ's: rules with a full-host destination before all others, then the larger `ruleno`, then
    /// the later line (docs/reference/altq.md 10.1).
    Altq,
}

/// A rule: all of its terms must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its terms. Without any, every packet matches.
    pub terms: Vec<Term>,
    /// The class of the packets that match.
    pub class: ClassId,
    /// ALTQ's `ruleno`; only [`Order::Altq`] looks at it.
    pub number: u32,
}

/// One condition of a rule: the field is, or is not, one of the values. [`Field::Src`],
/// [`Field::Dst`] and [`Field::Host`] take addresses, all others numbers. A value of the wrong kind
/// matches nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    /// The field.
    pub field: Field,
    /// `!` before the values: none of them may match.
    pub negated: bool,
    /// The values. The term holds if one of them matches.
    pub values: Values,
}

/// The fields of a packet. A packet that does not have a field (an ICMP packet or a later fragment
/// has no ports) matches no value of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// Source address.
    Src,
    /// Destination address.
    Dst,
    /// Either address.
    Host,
    /// Source port of TCP, UDP, UDP-Lite, SCTP or DCCP.
    SrcPort,
    /// Destination port.
    DstPort,
    /// Either port.
    Port,
    /// IP protocol number behind all extension headers.
    Proto,
    /// DSCP, 0 to 63.
    Dscp,
    /// ECN field, 0 to 3.
    Ecn,
    /// The whole TOS or traffic-class octet, with a mask.
    Tos,
    /// TCP flags octet (FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128), with a mask.
    TcpFlags,
    /// Length at layer 3, in bytes.
    Length,
    /// Firewall mark.
    Mark,
    /// VLAN id of the outermost tag.
    Vlan,
    /// Interface by which the packet came, as an index into [`RuleSet::interfaces`].
    Interface,
    /// 4 or 6.
    Family,
    /// SPI of ESP or AH: ALTQ's `gpi`.
    Spi,
    /// IPv6 flow label.
    FlowLabel,
}

/// The values of a term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Values {
    /// Addresses under a mask.
    Addresses(Vec<Address>),
    /// Numbers from first to last, both included.
    Ranges(Vec<(u32, u32)>),
    /// (value, mask): numbers n with n & mask = value. As in ALTQ, a value with bits outside its
    /// mask matches nothing.
    Masked(Vec<(u32, u32)>),
}

/// An address and a mask. The mask need not be a prefix: altq.conf(5) allows any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// True for IPv6. An IPv4 address is in the low 32 bits.
    pub v6: bool,
    /// The address, masked.
    pub bits: u128,
    /// The bits that are compared.
    pub mask: u128,
}
