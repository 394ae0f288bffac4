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
    /// Its address; by default 10.0.0.N, where N is its number in the file, from 1.
    pub address: IpAddr,
    /// The time until it handles a packet that arrives, whether it forwards it or receives it.
    pub delay: Nanos,
}

/// A link, full duplex.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseLink {
    /// Its name.
    pub name: String,
    /// The index in [`Case::hosts`](super::Case::hosts) of the host at one end.
    pub from: usize,
    /// The index of the host at the other end.
    pub to: usize,
    /// The two directions: from `from` to `to`, and back.
    pub ways: [Way; 2],
    /// How packets are framed on the wire; `None`: as the policy charges them, or without a policy
    /// by their own bytes.
    pub medium: Option<Medium>,
    /// True if both directions share one medium, by CSMA/CD.
    pub half_duplex: bool,
    /// The largest packet in bytes; `None`: the policy's MTU, or 1500 without a policy.
    pub mtu: Option<u32>,
    /// The tunnel in which IPv6 packets cross the link inside IPv4, if there is one.
    pub tunnel: Option<Tunnel>,
    /// The policy's link that governs the direction from `from` to `to`; `None`: a plain FIFO.
    pub policy: Option<String>,
    /// The policy's link that governs the other direction; `None`: a plain FIFO.
    pub reverse: Option<String>,
    /// Packets that the driver holds, the one on the wire included.
    pub tx_ring: usize,
    /// Transmit queues of the driver, each with such a ring and its own instance of the policy.
    pub tx_queues: usize,
    /// With several transmit queues: bytes of a packet that a slot of a ring takes, where the
    /// headers have a slot of their own; `None`: a slot takes a whole packet.
    pub tx_buffer: Option<u32>,
}

impl CaseLink {
    /// The rate of the wire there (`back` false) or back: the one that the case names, or that of
    /// the policy's link that governs the direction; without either, that of the other direction's
    /// policy. `policies`: the rates of the policy's links, there and back. A medium that both
    /// directions share has one rate.
    pub fn rate(&self, back: bool, policies: [Option<Rate>; 2]) -> Option<Rate> {
        let [there, far] = policies;
        let own = if back && !self.half_duplex { far.or(there) } else { there.or(far) };
        self.ways[usize::from(back)].rate.or(own)
    }
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// Rate of the wire; `None`: that of the policy's link.
    pub rate: Option<Rate>,
    /// Propagation delay.
    pub delay: Nanos,
    /// A packet takes up to this much longer, evenly distributed.
    pub jitter: Nanos,
    /// True if jitter lets no packet overtake another.
    pub keep_order: bool,
    /// The packets that are lost.
    pub loss: Loss,
    /// The fraction of the packets, from 0 to 1, that is held back, so that others may overtake it.
    pub reorder: f64,
    /// How long these packets are held back.
    pub reorder_delay: Nanos,
    /// The limit of a plain FIFO.
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

/// How a medium loses packets, with probabilities from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// Nothing.
    None,
    /// Every packet with the same probability.
    Random(f64),
    /// The model of Gilbert (1960) and Elliott (1963) with two states, which may change before
    /// every packet.
    Bursts {
        /// Probability to change from good to bad.
        enter: f64,
        /// Probability to change from bad to good.
        leave: f64,
        /// Probability of loss in the good state.
        good: f64,
        /// Probability of loss in the bad state.
        bad: f64,
    },
}

/// How packets are framed on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Preamble, header, checksum and gap: 38 bytes more, and at least 84 in all (IEEE 802.3).
    Ethernet,
    /// AAL5 with LLC/SNAP (RFC 2684 5.1): 16 bytes more, in cells of 48 bytes that take 53 on the
    /// wire.
    Atm,
    /// AAL5 with VC multiplexing (RFC 2684 6.1): 8 bytes more.
    AtmVcMux,
}

impl Medium {
    /// The bytes and framing that it adds.
    pub fn overhead(self) -> Overhead {
        match self {
            Medium::Ethernet => Overhead { bytes: 38, mpu: 84, framing: Framing::Plain },
            Medium::Atm => Overhead { bytes: 16, mpu: 0, framing: Framing::Atm },
            Medium::AtmVcMux => Overhead { bytes: 8, mpu: 0, framing: Framing::Atm },
        }
    }
}

/// IPv6 in IPv4, protocol 41. The outer header has the DSCP and the ECN field of the inner one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tunnel {
    /// Between two configured addresses (RFC 4213 3): that of the link's `from` and that of its
    /// `to`.
    Configured([Ipv4Addr; 2]),
    /// Between the IPv4 addresses embedded in the IPv6 addresses, 2002:V4ADDR::/48 (RFC 3056 2).
    /// Any other address is behind the relay 192.88.99.1 (RFC 3068 2.4).
    SixToFour,
}

impl Tunnel {
    /// Bytes that it adds: an IPv4 header.
    pub const HEADER: u32 = 20;

    /// Source and destination of the outer header for an IPv6 packet from `src` to `dst`. `back`:
    /// it goes from the link's `to` to its `from`.
    pub fn ends(self, src: Ipv6Addr, dst: Ipv6Addr, back: bool) -> [Ipv4Addr; 2] {
        match self {
            Tunnel::Configured([from, to]) if back => [to, from],
            Tunnel::Configured(ends) => ends,
            Tunnel::SixToFour => [outside(src), outside(dst)],
        }
    }
}

/// The IPv4 address embedded in a 6to4 address, 2002:V4ADDR::/48 (RFC 3056 2); the relay's for any
/// other (RFC 3068 2.4).
fn outside(v6: Ipv6Addr) -> Ipv4Addr {
    match v6.octets() {
        [0x20, 0x02, a, b, c, d, ..] => Ipv4Addr::new(a, b, c, d),
        _ => Ipv4Addr::new(192, 88, 99, 1),
    }
}
