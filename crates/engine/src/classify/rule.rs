//! What a rule says.

use crate::spec::ClassId;

/// The rules of a link, and the order in which they are tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSet {
    /// The rules, as written.
    pub rules: Vec<Rule>,
    /// Which of several that match decides.
    pub order: Order,
    /// Names of the interfaces that rules speak of: [`Field::Interface`] compares the place in this
    /// list.
    pub interfaces: Vec<String>,
}

/// Which of several rules that match decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The first as written.
    #[default]
    First,
    /// ALTQ's: rules with a full-host destination before all others, then the larger `ruleno`, then
    /// the later line (docs/reference/altq.md 10.1).
    Altq,
}

/// A rule: all of its terms must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What must hold. None: every packet matches.
    pub terms: Vec<Term>,
    /// Where its packets go.
    pub class: ClassId,
    /// ALTQ's `ruleno`; only [`Order::Altq`] looks at it.
    pub number: u32,
}

/// One condition of a rule: the field is, or is not, among the values. Addresses go with
/// [`Field::Src`], [`Field::Dst`] and [`Field::Host`], numbers with all others; a value of the
/// wrong kind matches nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// What is looked at.
    pub field: Field,
    /// `!` before the value: none of the values may match.
    pub negated: bool,
    /// Any of these.
    pub values: Values,
}

/// What a term looks at. A packet without the field (ports of an ICMP packet, later fragments)
/// matches no value of it.
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
    /// Interface by which the packet came, as a place in [`RuleSet::interfaces`].
    Interface,
    /// 4 or 6.
    Family,
    /// SPI of ESP or AH: ALTQ's `gpi`.
    Spi,
    /// IPv6 flow label.
    FlowLabel,
}

/// The values of a term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// Addresses under a mask.
    Addresses(Vec<Address>),
    /// Numbers from first to last, both included.
    Ranges(Vec<(u32, u32)>),
    /// Numbers that are `value` under `mask`: (value, mask). As in ALTQ, a value with bits outside
    /// its mask matches nothing.
    Masked(Vec<(u32, u32)>),
}

/// An address under a mask; the mask need not be a prefix (altq.conf allows any).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// True for IPv6; an IPv4 address stands in the low 32 bits.
    pub v6: bool,
    /// The address, masked.
    pub bits: u128,
    /// The bits that count.
    pub mask: u128,
}
