//! Streams: the conversations that a case's flows consist of, and the packets in which they travel.

use altq_cases::source::{Playback, Source};
use altq_engine::classify::FlowHash;
use altq_engine::headers::Key;
use altq_engine::units::Nanos;

use super::talk::{Ask, TcpPair};
use crate::tcp::Segment;

/// Never, of a wake-up.
pub const NEVER: Nanos = Nanos::MAX;

/// What a packet carries.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// A datagram or a captured packet: its number.
    Number(u64),
    /// A segment of TCP.
    Segment(Segment),
}

/// A packet on its way.
#[derive(Clone, Copy, Debug)]
pub struct Travelling {
    /// When it was sent.
    pub sent: Nanos,
    /// Its stream, and which of those that had that place.
    pub stream: u32,
    /// See `stream`.
    pub life: u32,
    /// Length at layer 3.
    pub len: u32,
    /// Packets on the wire that it stands for.
    pub segments: u16,
    /// The host that it comes to next.
    pub host: u16,
    /// The end that sent it.
    pub end: u8,
    /// DSCP and ECN as the last link left them.
    pub octet: u8,
    /// What it carries.
    pub load: Load,
}

/// An end of a stream.
#[derive(Clone, Debug)]
pub struct End {
    /// Its host.
    pub host: usize,
    /// What its packets look like, but for their length, flags and ECN.
    pub key: Key,
    /// Hashes of that.
    pub flow: u32,
    /// See `flow`.
    pub hosts: [u16; 2],
    /// When it wants to be woken.
    pub wake: Nanos,
    /// The one event that will look: an event of another time is void. It is not moved when `wake`
    /// moves on, but looks again, so that a timer which every acknowledgement sets anew costs an
    /// event only now and then.
    pub armed: Nanos,
}

impl End {
    /// One that sends packets with this key.
    pub fn new(host: usize, key: Key, hash: &FlowHash) -> End {
        End { host, flow: hash.flow(&key), hosts: hash.hosts(&key), key, wake: NEVER, armed: NEVER }
    }
}

/// What the ends say to each other.
pub enum Talk {
    /// A UDP source.
    Source(Source),
    /// A capture.
    Playback(Playback),
    /// Datagrams that ask and answer.
    Ask(Ask),
    /// TCP.
    Tcp(Box<TcpPair>),
    /// Nothing more: the place is free.
    Over,
}

/// A conversation of two ends.
pub struct Stream {
    /// The case's flow.
    pub flow: u32,
    /// How many had this place before.
    pub life: u32,
    /// From where it is opened, and to where.
    pub ends: [End; 2],
    /// What is said.
    pub talk: Talk,
}
