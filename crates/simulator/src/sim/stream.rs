//! Streams, which are the conversations between two ends that a flow consists of, and their
//! packets.

use altq_cases::source::{Playback, Source};
use altq_engine::classify::FlowHash;
use altq_engine::headers::Key;
use altq_engine::units::Nanos;

use super::talk::{Pings, Requests, TcpPair};
use crate::tcp::Segment;

/// The time of a wake-up that never comes.
pub const NEVER: Nanos = Nanos::MAX;

/// What a packet carries.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// The number of a datagram or of a captured packet.
    Number(u64),
    /// A ping, by its number, or the answer to it.
    Echo {
        /// The number.
        number: u64,
        /// True for an answer.
        answer: bool,
    },
    /// A segment of TCP.
    Segment(Segment),
}

/// A packet in the network.
#[derive(Clone, Copy, Debug)]
pub struct Travelling {
    /// When it was sent.
    pub sent: Nanos,
    /// The index of its stream.
    pub stream: u32,
    /// The value of [`Stream::life`] when the packet was sent. It tells to which of the streams
    /// that had this index the packet belongs.
    pub life: u32,
    /// Length at layer 3 in bytes.
    pub len: u32,
    /// The index in [`World::hops`](super::world::World::hops) of the port that it takes next.
    pub hop: u32,
    /// Number of packets on the wire; above 1 for a super-packet.
    pub segments: u16,
    /// The end that sent it.
    pub end: u8,
    /// DSCP and ECN, as the last link left them.
    pub octet: u8,
    /// What it carries.
    pub load: Load,
}

/// An end of a stream.
#[derive(Clone, Debug)]
pub struct End {
    /// Its host.
    pub host: usize,
    /// The index in [`World::hops`](super::world::World::hops) of the first port that its packets
    /// take.
    pub way: u32,
    /// The key of its packets, without length, flags and ECN.
    pub key: Key,
    /// The key's flow hash.
    pub flow: u32,
    /// The key's hashes of the two hosts.
    pub hosts: [u16; 2],
    /// When it must be woken.
    pub wake: Nanos,
    /// The time of its valid wake-up event; events at other times are ignored. When `wake` moves to
    /// a later time, the event stays, and sets another one when it runs. So a timer that every
    /// acknowledgement sets anew needs few events.
    pub armed: Nanos,
}

impl End {
    /// An end at `host` that sends packets with this key on this way.
    pub fn new(host: usize, way: u32, key: Key, hash: &FlowHash) -> End {
        End { host, way, flow: hash.flow(&key), hosts: hash.hosts(&key), key, wake: NEVER, armed: NEVER }
    }
}

/// The traffic of a stream.
pub enum Talk {
    /// A UDP source.
    Source(Source),
    /// A capture.
    Playback(Playback),
    /// Requests and answers in datagrams.
    Requests(Requests),
    /// Pings.
    Pings(Pings),
    /// TCP.
    Tcp(Box<TcpPair>),
    /// The stream is over, and its slot is free.
    Over,
}

/// A conversation between two ends.
pub struct Stream {
    /// The case's flow.
    pub flow: u32,
    /// Number of streams that had this index before.
    pub life: u32,
    /// The end that opens the stream, and the other one.
    pub ends: [End; 2],
    /// The traffic.
    pub talk: Talk,
}
