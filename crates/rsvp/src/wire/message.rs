//! The messages (RFC 2205 3.1.3 to 3.1.10, RFC 2747 4.3) as values.

use std::fmt;
use std::net::IpAddr;

use super::address::{ErrorSpec, Hop, Sender, Session};
use super::adspec::Adspec;
use super::header::kind;
use super::intserv::{Flowspec, Tspec};
use super::object::RawObject;

/// Reservation styles (RFC 2205 1.3, A.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Style {
    /// WF: one reservation for all senders.
    Wildcard,
    /// FF: one reservation for each sender.
    Fixed,
    /// SE: one reservation that the listed senders share.
    Shared,
}

impl Style {
    /// The option vector of 24 bits (RFC 2205 A.7): sharing and sender selection.
    pub fn vector(self) -> u32 {
        match self {
            Style::Wildcard => 0x11,
            Style::Fixed => 0x0a,
            Style::Shared => 0x12,
        }
    }

    /// The style of an option vector. Only its five lower bits are defined.
    pub fn from_vector(vector: u32) -> Option<Style> {
        match vector & 0x1f {
            0x11 => Some(Style::Wildcard),
            0x0a => Some(Style::Fixed),
            0x12 => Some(Style::Shared),
            _ => None,
        }
    }
}

impl fmt::Display for Style {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Style::Wildcard => "WF",
            Style::Fixed => "FF",
            Style::Shared => "SE",
        })
    }
}

/// A flow descriptor (RFC 2205 3.1.4): what is asked for, and for whose packets. FF has one sender,
/// SE one or more, WF none.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// What is asked for.
    pub flowspec: Flowspec,
    /// For which senders.
    pub filters: Vec<Sender>,
}

/// Path: a sender announces its traffic, downstream (RFC 2205 3.1.3).
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// The session.
    pub session: Session,
    /// Flags of the session; 1: this hop is the edge, which polices.
    pub session_flags: u8,
    /// The previous hop.
    pub hop: Hop,
    /// R of the previous hop, milliseconds; at least 1.
    pub refresh_ms: u32,
    /// The sender.
    pub sender: Sender,
    /// The sender's traffic.
    pub tspec: Tspec,
    /// What the path can do so far.
    pub adspec: Option<Adspec>,
    /// POLICY_DATA, and unknown objects that go on unread.
    pub passed_on: Vec<RawObject>,
}

/// Resv: receivers ask for reservations, upstream (RFC 2205 3.1.4).
#[derive(Debug, Clone, PartialEq)]
pub struct Resv {
    /// The session.
    pub session: Session,
    /// The next hop, with the handle that a Path brought it.
    pub hop: Hop,
    /// R of the next hop, milliseconds; at least 1.
    pub refresh_ms: u32,
    /// The receiver that wants a confirmation.
    pub confirm: Option<IpAddr>,
    /// Senders that a WF reservation goes to.
    pub scope: Vec<IpAddr>,
    /// The style of all flows.
    pub style: Style,
    /// What is asked for. WF and SE have one.
    pub flows: Vec<Flow>,
    /// POLICY_DATA, and unknown objects that go on unread.
    pub passed_on: Vec<RawObject>,
}

/// PathTear: a sender's path state goes (RFC 2205 3.1.5).
#[derive(Debug, Clone, PartialEq)]
pub struct PathTear {
    /// The session.
    pub session: Session,
    /// The previous hop.
    pub hop: Hop,
    /// The sender.
    pub sender: Sender,
}

/// ResvTear: reservations go (RFC 2205 3.1.6).
#[derive(Debug, Clone, PartialEq)]
pub struct ResvTear {
    /// The session.
    pub session: Session,
    /// The next hop.
    pub hop: Hop,
    /// Senders, for WF.
    pub scope: Vec<IpAddr>,
    /// The style.
    pub style: Style,
    /// Whose reservations. Flowspecs in a ResvTear are ignored, and not kept here.
    pub filters: Vec<Sender>,
}

/// PathErr: a Path was refused, upstream (RFC 2205 3.1.7).
#[derive(Debug, Clone, PartialEq)]
pub struct PathErr {
    /// The session.
    pub session: Session,
    /// What is wrong, and who says so.
    pub error: ErrorSpec,
    /// The sender.
    pub sender: Sender,
    /// The sender's traffic.
    pub tspec: Tspec,
    /// What the path can do.
    pub adspec: Option<Adspec>,
    /// POLICY_DATA, and unknown objects that go on unread.
    pub passed_on: Vec<RawObject>,
}

/// ResvErr: a reservation was refused, or taken away, downstream (RFC 2205 3.1.8).
#[derive(Debug, Clone, PartialEq)]
pub struct ResvErr {
    /// The session.
    pub session: Session,
    /// The previous hop.
    pub hop: Hop,
    /// What is wrong, and who says so.
    pub error: ErrorSpec,
    /// Senders, for WF.
    pub scope: Vec<IpAddr>,
    /// The style.
    pub style: Style,
    /// What was refused.
    pub flow: Flow,
    /// POLICY_DATA, and unknown objects that go on unread.
    pub passed_on: Vec<RawObject>,
}

/// ResvConf: a reservation is made as far as the node that says so (RFC 2205 3.1.9).
#[derive(Debug, Clone, PartialEq)]
pub struct ResvConf {
    /// The session.
    pub session: Session,
    /// Who says so; code and value are 0.
    pub error: ErrorSpec,
    /// The receiver that asked.
    pub receiver: IpAddr,
    /// The style.
    pub style: Style,
    /// What is reserved.
    pub flows: Vec<Flow>,
}

/// What is asked, and answered, in a handshake (RFC 2747 4.3): the same object both ways.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Challenge {
    /// The key, 48 bits.
    pub key_id: u64,
    /// A number that was never used before.
    pub cookie: Vec<u8>,
}

/// A message.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// Path.
    Path(Path),
    /// Resv.
    Resv(Resv),
    /// PathErr.
    PathErr(PathErr),
    /// ResvErr.
    ResvErr(ResvErr),
    /// PathTear.
    PathTear(PathTear),
    /// ResvTear.
    ResvTear(ResvTear),
    /// ResvConf.
    ResvConf(ResvConf),
    /// Integrity challenge.
    Challenge(Challenge),
    /// Integrity response.
    Response(Challenge),
}

impl Message {
    /// Its type in the header.
    pub fn kind(&self) -> u8 {
        match self {
            Message::Path(_) => kind::PATH,
            Message::Resv(_) => kind::RESV,
            Message::PathErr(_) => kind::PATH_ERR,
            Message::ResvErr(_) => kind::RESV_ERR,
            Message::PathTear(_) => kind::PATH_TEAR,
            Message::ResvTear(_) => kind::RESV_TEAR,
            Message::ResvConf(_) => kind::RESV_CONF,
            Message::Challenge(_) => kind::CHALLENGE,
            Message::Response(_) => kind::RESPONSE,
        }
    }
}

/// The name of a message type, for messages and counters.
pub fn kind_name(kind: u8) -> &'static str {
    match kind {
        kind::PATH => "Path",
        kind::RESV => "Resv",
        kind::PATH_ERR => "PathErr",
        kind::RESV_ERR => "ResvErr",
        kind::PATH_TEAR => "PathTear",
        kind::RESV_TEAR => "ResvTear",
        kind::RESV_CONF => "ResvConf",
        kind::CHALLENGE => "Challenge",
        kind::RESPONSE => "Response",
        _ => "unknown",
    }
}

/// An object that must be understood and is not (RFC 2205 3.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownObject {
    /// Where it begins in the message.
    pub at: usize,
    /// Its class.
    pub class: u8,
    /// Its C-type.
    pub ctype: u8,
    /// Whether the class is known, and only the C-type is not.
    pub known_class: bool,
}

/// A message as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The header.
    pub header: super::header::Header,
    /// The message.
    pub message: Message,
    /// The first object that must be understood and is not. All that the message needs is there
    /// besides; a node answers with error 13 or 14.
    pub unknown: Option<UnknownObject>,
}
