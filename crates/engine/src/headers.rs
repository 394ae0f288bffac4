//! From the bytes of a frame to the key by which it is classified.

/// What a classifier may look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key {
    /// Source address; an IPv4 address stands in the low 32 bits.
    pub src: u128,
    /// Destination address.
    pub dst: u128,
    /// Source port, `None` where the packet has none.
    pub sport: Option<u16>,
    /// Destination port.
    pub dport: Option<u16>,
    /// IP protocol behind all extension headers.
    pub proto: u8,
    /// 4, 6, or 0 for anything else.
    pub family: u8,
    /// The whole TOS or traffic-class octet: DSCP in the upper six bits, ECN in the lower two.
    pub tos: u8,
    /// TCP flags octet; 0 where there is no TCP header.
    pub tcp_flags: u8,
    /// Length at layer 3.
    pub length: u32,
    /// Firewall mark.
    pub mark: u32,
    /// VLAN id of the outermost tag.
    pub vlan: Option<u16>,
    /// Interface by which it came, as a place in the rule set's list.
    pub interface: u16,
    /// SPI of ESP or AH.
    pub spi: u32,
    /// IPv6 flow label.
    pub flow_label: u32,
}
