//! Hosts and links of a case.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use altq_engine::link::{Framing, Overhead};
use altq_engine::settings::Limit;
use altq_engine::units::{Nanos, Rate};

/// A host or router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its address; 10.0.0.N, N its place in the file from 1, where none is given.
    pub address: IpAddr,
    /// How long it takes to get round to a packet that comes, to pass it on or for itself;
    /// simulator only.
    pub delay: Nanos,
}

/// A link, full duplex.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseLink {
    /// Its name.
    pub name: String,
    /// The host at one end, as a place in [`Case::hosts`](super::Case::hosts).
    pub from: usize,
    /// The host at the other.
    pub to: usize,
    /// From `from` to `to`, and the other way.
    pub ways: [Way; 2],
    /// What a packet is on the wire; `None`: what the policy charges for it, and its own bytes
    /// where there is none.
    pub medium: Option<Medium>,
    /// Both ways share one medium, by CSMA/CD.
    pub half_duplex: bool,
    /// The largest packet; `None`: the policy's, and 1500 bytes without one.
    pub mtu: Option<u32>,
    /// IPv6 packets cross it in IPv4.
    pub tunnel: Option<Tunnel>,
    /// The policy's link that governs what goes from `from` to `to`; `None`: a plain FIFO.
    pub policy: Option<String>,
    /// The policy's link that governs the other way; `None`: a plain FIFO.
    pub reverse: Option<String>,
    /// Packets that the driver holds, the one on the wire included.
    pub tx_ring: usize,
    /// Transmit queues of the driver, each with such a ring and its own instance of the policy.
    pub tx_queues: usize,
    /// With several transmit queues: bytes of a packet that a slot of a ring takes, the headers in
    /// one of their own; `None`: all of it.
    pub tx_buffer: Option<u32>,
}

/// One way of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// Rate of the wire. `None`: that of the policy's link.
    pub rate: Option<Rate>,
    /// Propagation delay.
    pub delay: Nanos,
    /// A packet takes up to so much longer, each span with equal chance.
    pub jitter: Nanos,
    /// Jitter lets none overtake another.
    pub keep_order: bool,
    /// What is lost on the way.
    pub loss: Loss,
    /// This share of the packets, from 0 to 1, is held back, and may be overtaken.
    pub reorder: f64,
    /// For so long.
    pub reorder_delay: Nanos,
    /// Limit of a plain FIFO.
    pub queue: Limit,
}

impl Default for Way {
    fn default() -> Way {
        Way {
            rate: None,
            delay: 0,
            jitter: 0,
            keep_order: true,
            loss: Loss::None,
            reorder: 0.0,
            reorder_delay: 0,
            queue: Limit::Packets(1000),
        }
    }
}

/// What a medium loses, in probabilities from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// Nothing.
    None,
    /// Every packet with the same chance.
    Random(f64),
    /// The two states of Gilbert (1960) and Elliott (1963), which may change before every packet.
    Bursts {
        /// From good to bad.
        enter: f64,
        /// From bad to good.
        leave: f64,
        /// Loss while good.
        good: f64,
        /// Loss while bad.
        bad: f64,
    },
}

/// What a packet is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Preamble, header, checksum and gap: 38 bytes; 84 in all at least (IEEE 802.3).
    Ethernet,
    /// AAL5 with LLC/SNAP (RFC 2684 5.1): 16 bytes more, in cells of 48 that are 53 on the wire.
    Atm,
    /// AAL5 with VC multiplexing (RFC 2684 6.1): 8 bytes more.
    AtmVcMux,
}

impl Medium {
    /// What it adds.
    pub fn overhead(self) -> Overhead {
        match self {
            Medium::Ethernet => Overhead { bytes: 38, mpu: 84, framing: Framing::Plain },
            Medium::Atm => Overhead { bytes: 16, mpu: 0, framing: Framing::Atm },
            Medium::AtmVcMux => Overhead { bytes: 8, mpu: 0, framing: Framing::Atm },
        }
    }
}

/// IPv6 in IPv4, protocol 41, with the DSCP and ECN field of what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tunnel {
    /// Between two configured addresses (RFC 4213 3): that of the link's `from`, and of its `to`.
    Configured([Ipv4Addr; 2]),
    /// The addresses stand in those of IPv6, 2002:V4ADDR::/48 (RFC 3056); any other is behind the
    /// relay 192.88.99.1 (RFC 3068).
    SixToFour,
}

impl Tunnel {
    /// Bytes that it adds: a header of IPv4.
    pub const HEADER: u32 = 20;

    /// Source and destination of the header before an IPv6 packet from `src` to `dst`; `back`: from
    /// the link's `to` to its `from`.
    pub fn ends(self, src: Ipv6Addr, dst: Ipv6Addr, back: bool) -> [Ipv4Addr; 2] {
        match self {
            Tunnel::Configured([from, to]) if back => [to, from],
            Tunnel::Configured(ends) => ends,
            Tunnel::SixToFour => [outside(src), outside(dst)],
        }
    }
}

/// The IPv4 address in one of 6to4, 2002:V4ADDR::/48 (RFC 3056 2); a relay's for any other (RFC
/// 3068 2.4).
fn outside(v6: Ipv6Addr) -> Ipv4Addr {
    match v6.octets() {
        [0x20, 0x02, a, b, c, d, ..] => Ipv4Addr::new(a, b, c, d),
        _ => Ipv4Addr::new(192, 88, 99, 1),
    }
}
