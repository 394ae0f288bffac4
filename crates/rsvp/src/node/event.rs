//! What goes into a node and what comes out of it.

use std::net::IpAddr;

use crate::wire::{ErrorSpec, Sender, Session, Tspec};

/// A message that arrived.
#[derive(Debug, Clone, Copy)]
pub struct Arrived<'a> {
    /// The interface that it came by.
    pub interface: u32,
    /// The source address of its IP header.
    pub source: IpAddr,
    /// The destination address of its IP header.
    pub destination: IpAddr,
    /// The TTL or hop limit of its IP header as it came, not yet decremented.
    pub ttl: u8,
    /// The RSVP message, without the IP header.
    pub message: &'a [u8],
}

/// A message to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// The interface that it leaves by.
    pub interface: u32,
    /// The source address of its IP header. In Path and PathTear it is the sender's, not this
    /// node's (RFC 2205 3.3).
    pub source: IpAddr,
    /// The destination address of its IP header.
    pub destination: IpAddr,
    /// The TTL or hop limit of its IP header.
    pub ttl: u8,
    /// Whether it has the router alert option (RFC 2113, RFC 2711).
    pub router_alert: bool,
    /// The RSVP message.
    pub message: Vec<u8>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A sender announced itself, its traffic changed, or its path has come to end here.
    Path {
        /// The session.
        session: Session,
        /// The sender.
        sender: Sender,
        /// Its traffic.
        tspec: Tspec,
    },
    /// A sender's path state went.
    PathGone {
        /// The session.
        session: Session,
        /// The sender.
        sender: Sender,
    },
    /// Bandwidth is reserved on an interface, or a reservation was changed.
    Reserved {
        /// The session.
        session: Session,
        /// The interface.
        interface: u32,
        /// Whose packets.
        senders: Vec<Sender>,
        /// For what traffic.
        tspec: Tspec,
        /// The class, as traffic control calls it.
        class: String,
    },
    /// A reservation on an interface went.
    Released {
        /// The session.
        session: Session,
        /// The interface.
        interface: u32,
    },
    /// Traffic control refused.
    Refused {
        /// The session.
        session: Session,
        /// The error code.
        code: u8,
        /// The error value.
        value: u16,
        /// The reason that traffic control gave.
        reason: String,
        /// A rate that would fit, bit/s.
        would_fit_bit_s: Option<u64>,
        /// Whether a reservation was there before, and still is.
        kept: bool,
    },
    /// For a sender here: what is reserved along its path. None: nothing any more.
    SenderReserved {
        /// The session.
        session: Session,
        /// The sender.
        sender: Sender,
        /// For what traffic.
        tspec: Option<Tspec>,
    },
    /// For a receiver here: its reservation is confirmed (RFC 2205 2.6).
    Confirmed {
        /// The session.
        session: Session,
        /// The node that says so.
        by: IpAddr,
    },
    /// For a sender here: its Path met an error. Nothing was changed by that.
    PathError {
        /// The session.
        session: Session,
        /// The sender.
        sender: Sender,
        /// The error.
        error: ErrorSpec,
    },
    /// For a receiver here: its reservation met an error.
    ResvError {
        /// The session.
        session: Session,
        /// The error.
        error: ErrorSpec,
    },
}

/// What a node wants done, or tells.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Send this.
    Send(Transmit),
    /// This happened.
    Event(Event),
}
