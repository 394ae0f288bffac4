//! Flows of a case.

use std::path::PathBuf;

use altq_engine::units::{Nanos, Rate};

use super::class::ClassName;

/// A flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Its name.
    pub name: String,
    /// The index in [`Case::hosts`](super::Case::hosts) of the sender; for requests, of the host
    /// that asks.
    pub from: usize,
    /// The index of the receiver.
    pub to: usize,
    /// The class in which its packets must be; another class makes the result invalid. The policy's
    /// rules choose the class, not this.
    pub class: Option<ClassName>,
    /// Source port; with several streams that of the first one. TCP: with 0 the system chooses.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// DSCP, 0 to 63.
    pub dscp: u8,
    /// UDP in the simulator: true if the queue `two_level` serves its packets first, as those that
    /// open connections.
    pub high: bool,
    /// Spans of time in which it sends, in order, none overlapping.
    pub active: Vec<(Nanos, Nanos)>,
    /// What it sends.
    pub kind: Kind,
}

/// Kinds of traffic.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// UDP without congestion control.
    Udp(Udp),
    /// TCP that always has something to send.
    TcpBulk {
        /// Number of connections at once.
        streams: u32,
        /// The options of the ends.
        tcp: Tcp,
    },
    /// TCP that sends a request, waits for the answer, and repeats.
    TcpRr {
        /// Number of connections at once.
        streams: u32,
        /// Bytes of a request.
        request: u32,
        /// Bytes of an answer.
        response: u32,
        /// The options of the ends.
        tcp: Tcp,
    },
    /// Clients that open a connection, send a request, receive the answer, close, and repeat.
    TcpConnect {
        /// Number of clients at once.
        streams: u32,
        /// Bytes of a request.
        request: u32,
        /// Bytes of an answer.
        response: u32,
        /// A client's port rests for twice this time after its connection is closed (RFC 9293
        /// 3.6.1).
        msl: Nanos,
        /// The options of the ends.
        tcp: Tcp,
    },
    /// Requests and answers in datagrams, one after another.
    UdpRr {
        /// Number of clients at once.
        streams: u32,
        /// Payload of a request.
        request: u32,
        /// Payload of an answer.
        response: u32,
        /// Time after which a request without an answer is sent again.
        retry: Nanos,
    },
    /// ICMP echo requests at a constant interval, whatever becomes of the earlier ones, and their
    /// answers (RFC 792, RFC 4443 4).
    Ping {
        /// Length of a request and of its answer at layer 3.
        size: u32,
        /// Time from one request to the next.
        interval: Nanos,
    },
    /// The packets of a capture, at the times that they have in it.
    Pcap {
        /// The file, pcap or pcapng.
        file: PathBuf,
        /// How many times faster than it was captured.
        speed: f64,
    },
}

impl Kind {
    /// The options of the ends of its connections, if it is TCP.
    pub fn tcp(&self) -> Option<&Tcp> {
        match self {
            Kind::TcpBulk { tcp, .. } | Kind::TcpRr { tcp, .. } | Kind::TcpConnect { tcp, .. } => Some(tcp),
            Kind::Udp(_) | Kind::UdpRr { .. } | Kind::Ping { .. } | Kind::Pcap { .. } => None,
        }
    }

    /// The word for it in a case.
    pub fn word(&self) -> &'static str {
        match self {
            Kind::Udp(_) => "udp",
            Kind::UdpRr { .. } => "udp_rr",
            Kind::TcpBulk { .. } => "tcp_bulk",
            Kind::TcpRr { .. } => "tcp_rr",
            Kind::TcpConnect { .. } => "tcp_connect",
            Kind::Ping { .. } => "ping",
            Kind::Pcap { .. } => "pcap",
        }
    }

    /// Number of its streams at once.
    pub fn streams(&self) -> u32 {
        match self {
            Kind::TcpBulk { streams, .. }
            | Kind::TcpRr { streams, .. }
            | Kind::TcpConnect { streams, .. }
            | Kind::UdpRr { streams, .. } => *streams,
            Kind::Udp(_) | Kind::Ping { .. } | Kind::Pcap { .. } => 1,
        }
    }
}

/// The options of the ends of a TCP connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// The name of the congestion control; `None`: the system's default, which is CUBIC in the
    /// simulator.
    pub congestion: Option<String>,
    /// SO_SNDBUF and SO_RCVBUF of both ends, in bytes; `None`: the system's choice.
    pub buffers: Option<u32>,
    /// Which TCP the ends have; simulator only.
    pub stack: Stack,
    /// Payload of a full segment; `None`: what the path's MTU leaves.
    pub mss: Option<u32>,
    /// Explicit congestion notification (RFC 3168 6.1).
    pub ecn: bool,
    /// The time over which the streams start, one after another.
    pub stagger: Nanos,
    /// True if both ends hand super-packets of up to 65,535 bytes to their card, which cuts them.
    /// For the simulator; in the lab the case's `offload` decides.
    pub tso: bool,
}

/// The behaviour of a system's TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stack {
    /// That of Linux today.
    #[default]
    Linux,
    /// That of Linux before 3.7 (2012), as far as the answer to marks goes: a mark makes one
    /// acknowledgement urgent, and the sender's word that it slowed down makes none urgent. All
    /// else is that of Linux today, and the lab has the host's TCP.
    LinuxOf2012,
    /// That of BSD in 1997.
    Bsd,
}

/// A UDP source.
#[derive(Clone, Debug, PartialEq)]
pub struct Udp {
    /// Sizes of packets at layer 3. If there are several, each packet's is chosen with equal
    /// probability.
    pub sizes: Vec<u32>,
    /// When they are sent.
    pub shape: Shape,
}

/// When a UDP source sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// At a constant pace.
    Constant(Pace),
    /// At a constant pace for some time, then silent for some time, and so on.
    OnOff {
        /// The pace while on.
        pace: Pace,
        /// Length of the sending spans.
        on: Nanos,
        /// Length of the silent spans.
        off: Nanos,
        /// How these lengths vary about their means.
        spans: Spans,
    },
    /// A program on the host that has the queue. It sends the next packet `gap` after the last one
    /// was accepted. After a drop there (ENOBUFS) it sleeps until the next tick of the column's
    /// timer.
    Local {
        /// Time from one packet to the next.
        gap: Nanos,
        /// Least time that it sleeps.
        sleep: Nanos,
    },
    /// A Poisson process of this mean pace.
    Poisson(Pace),
    /// Several packets back to back, at intervals.
    Bursts {
        /// Number of packets in a burst.
        packets: u32,
        /// Time from the start of one burst to that of the next.
        every: Nanos,
    },
}

/// How lengths of time vary about their mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spans {
    /// They do not vary.
    Fixed,
    /// With an exponential distribution.
    Exponential,
    /// With a Pareto distribution of this shape, above 1; the shortest is mean·(shape-1)/shape.
    Pareto(f64),
}

/// How fast a source sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// A rate in bits of packets at layer 3, with fractions of a nanosecond carried over.
    Rate(Rate),
    /// A packet at every multiple of this time.
    Interval(Nanos),
}
