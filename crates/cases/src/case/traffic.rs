//! Flows of a case.

use std::path::PathBuf;

use altq_engine::units::{Nanos, Rate};

/// Some traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Its name.
    pub name: String,
    /// Who sends, as a place in [`Case::hosts`](super::Case::hosts). For request/response: who
    /// asks.
    pub from: usize,
    /// Who receives.
    pub to: usize,
    /// The class in which its packets must be: another one makes the result invalid. Rules decide,
    /// not this.
    pub class: Option<String>,
    /// Source port; with several streams the first one's. TCP: 0 leaves it to the system.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// DSCP, 0 to 63.
    pub dscp: u8,
    /// UDP in the simulator: its packets go first in the queue `two_level`, as those that open
    /// connections do.
    pub high: bool,
    /// Spans of time in which it sends, in order, none overlapping.
    pub active: Vec<(Nanos, Nanos)>,
    /// What it is.
    pub kind: Kind,
}

/// Kinds of traffic.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// UDP that nothing holds back.
    Udp(Udp),
    /// TCP that always has something to send.
    TcpBulk {
        /// Connections side by side.
        streams: u32,
        /// The ends.
        tcp: Tcp,
    },
    /// TCP that asks and waits for the answer, over and over.
    TcpRr {
        /// Connections side by side.
        streams: u32,
        /// Bytes of a request.
        request: u32,
        /// Bytes of an answer.
        response: u32,
        /// The ends.
        tcp: Tcp,
    },
    /// Clients that open a connection, ask, hear the answer, and close it, over and over.
    TcpConnect {
        /// Clients side by side.
        streams: u32,
        /// Bytes of a request.
        request: u32,
        /// Bytes of an answer.
        response: u32,
        /// A client's port rests for twice this once its connection is closed (RFC 9293 3.4.1).
        msl: Nanos,
        /// The ends.
        tcp: Tcp,
    },
    /// A datagram asks and another answers, over and over.
    UdpRr {
        /// Who ask side by side.
        streams: u32,
        /// Payload of a request.
        request: u32,
        /// Payload of an answer.
        response: u32,
        /// What is not answered by then is asked again.
        retry: Nanos,
    },
    /// The packets of a capture, at the times that they have there.
    Pcap {
        /// The file, pcap or pcapng.
        file: PathBuf,
        /// How many times faster than it was captured.
        speed: f64,
    },
}

impl Kind {
    /// The ends of its connections, where it is TCP.
    pub fn tcp(&self) -> Option<&Tcp> {
        match self {
            Kind::TcpBulk { tcp, .. } | Kind::TcpRr { tcp, .. } | Kind::TcpConnect { tcp, .. } => Some(tcp),
            Kind::Udp(_) | Kind::UdpRr { .. } | Kind::Pcap { .. } => None,
        }
    }

    /// Its word in a case.
    pub fn word(&self) -> &'static str {
        match self {
            Kind::Udp(_) => "udp",
            Kind::UdpRr { .. } => "udp_rr",
            Kind::TcpBulk { .. } => "tcp_bulk",
            Kind::TcpRr { .. } => "tcp_rr",
            Kind::TcpConnect { .. } => "tcp_connect",
            Kind::Pcap { .. } => "pcap",
        }
    }

    /// How many run side by side.
    pub fn streams(&self) -> u32 {
        match self {
            Kind::TcpBulk { streams, .. }
            | Kind::TcpRr { streams, .. }
            | Kind::TcpConnect { streams, .. }
            | Kind::UdpRr { streams, .. } => *streams,
            Kind::Udp(_) | Kind::Pcap { .. } => 1,
        }
    }
}

/// The ends of a TCP connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// Congestion control by the system's name; `None`: the system's default, CUBIC in the
    /// simulator.
    pub congestion: Option<String>,
    /// SO_SNDBUF and SO_RCVBUF of both ends, in bytes; `None`: the system's choice.
    pub buffers: Option<u32>,
    /// What the ends do; simulator only.
    pub stack: Stack,
    /// Payload of a full segment; `None`: what the way's MTU leaves.
    pub mss: Option<u32>,
    /// Explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// Streams start one after another over so long.
    pub stagger: Nanos,
    /// Both ends hand super-packets of up to 65,535 bytes to their card, which cuts them
    /// (simulator; the lab's do as the case's `offload` says).
    pub tso: bool,
}

/// A TCP of its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stack {
    /// What Linux does today.
    #[default]
    Linux,
    /// What BSD did in 1997.
    Bsd,
}

/// A UDP source.
#[derive(Clone, Debug, PartialEq)]
pub struct Udp {
    /// Sizes of packets at layer 3; of several, each packet's is drawn with equal chance.
    pub sizes: Vec<u32>,
    /// When they are sent.
    pub shape: Shape,
}

/// When a UDP source sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// At a constant pace.
    Constant(Pace),
    /// At a constant pace for a while, then silent for a while, over and over.
    OnOff {
        /// The pace while on.
        pace: Pace,
        /// How long on.
        on: Nanos,
        /// How long off.
        off: Nanos,
        /// How these spans vary about their means.
        spans: Spans,
    },
    /// A program on the host of the queue: the next packet comes so long after the last was taken;
    /// after a drop there (ENOBUFS) it sleeps until the next tick of the column's timer.
    Local {
        /// From one packet to the next.
        gap: Nanos,
        /// How long it sleeps at least.
        sleep: Nanos,
    },
    /// A Poisson process of this mean pace.
    Poisson(Pace),
    /// Packets back to back, at intervals.
    Bursts {
        /// Packets in a burst.
        packets: u32,
        /// From the start of one to the start of the next.
        every: Nanos,
    },
}

/// How spans of time vary about their mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spans {
    /// They do not.
    Fixed,
    /// Exponential.
    Exponential,
    /// Pareto with this shape, above 1: the least is mean·(shape-1)/shape.
    Pareto(f64),
}

/// How fast a source sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Bits of packets at layer 3 a second, the fraction of a nanosecond carried.
    Rate(Rate),
    /// A packet at every multiple of this.
    Interval(Nanos),
}
