//! What came, what went, and what was refused for which reason.

use std::collections::BTreeMap;

use crate::integrity::IntegrityError;
use crate::wire::kind_name;

/// Why a message, or a part of it, was refused. Nothing of it was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// It came by an interface that is not listed.
    Interface,
    /// It is not RSVP as RFC 2205 has it.
    Malformed,
    /// It has an object that must be understood and is not.
    UnknownObject,
    /// It comes from a neighbour that is not listed.
    Neighbour,
    /// Its neighbour has keys, and it has no INTEGRITY.
    Unsigned,
    /// Its INTEGRITY is malformed, or its key or digest is wrong.
    Forged,
    /// Its sequence number was used before.
    Replayed,
    /// A handshake is under way with its neighbour.
    Handshake,
    /// More messages came than are taken in this time.
    Rate,
    /// It names this node as its own neighbour.
    OwnHop,
    /// The session's or sender's address is not a unicast address, or is not where the message
    /// goes.
    Address,
    /// The session has destination port 0, which is not allowed here, or beside another port.
    Ports,
    /// The sender is told apart by a flow label.
    FlowLabel,
    /// The tables are full.
    Limit,
    /// It has values out of range.
    Values,
    /// There is no path state for it.
    NoPath,
    /// Another style is in place, or the style is not offered.
    Style,
    /// The service is not offered.
    Service,
    /// It comes from where no Path went.
    Branch,
    /// There is nothing that it takes away, or is about.
    NoState,
    /// Traffic control refused the reservation, or its change.
    Admission,
    /// Its TTL is used up.
    Ttl,
    /// There is no route for it.
    Route,
    /// An answer to a challenge that was not sent, or a challenge where nothing is signed.
    Answer,
}

impl Refusal {
    /// The reason, for people.
    pub fn reason(self) -> &'static str {
        match self {
            Refusal::Interface => "the interface is not listed",
            Refusal::Malformed => "malformed",
            Refusal::UnknownObject => "unknown object",
            Refusal::Neighbour => "the neighbour is not listed",
            Refusal::Unsigned => "no INTEGRITY",
            Refusal::Forged => "wrong INTEGRITY",
            Refusal::Replayed => "replayed",
            Refusal::Handshake => "a handshake is under way",
            Refusal::Rate => "too many messages",
            Refusal::OwnHop => "it names this node as its neighbour",
            Refusal::Address => "an address that cannot be",
            Refusal::Ports => "ports that cannot be, or are not allowed",
            Refusal::FlowLabel => "a flow label as filter",
            Refusal::Limit => "the tables are full",
            Refusal::Values => "values out of range",
            Refusal::NoPath => "no path state",
            Refusal::Style => "the style",
            Refusal::Service => "the service",
            Refusal::Branch => "no Path went there",
            Refusal::NoState => "nothing to take away",
            Refusal::Admission => "traffic control",
            Refusal::Ttl => "the TTL is used up",
            Refusal::Route => "no route",
            Refusal::Answer => "a handshake that nobody began",
        }
    }
}

impl From<IntegrityError> for Refusal {
    fn from(error: IntegrityError) -> Refusal {
        match error {
            IntegrityError::Absent => Refusal::Unsigned,
            IntegrityError::Malformed | IntegrityError::UnknownKey | IntegrityError::WrongDigest => Refusal::Forged,
            IntegrityError::Replayed => Refusal::Replayed,
            IntegrityError::Handshake => Refusal::Handshake,
        }
    }
}

/// Counters since the node was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that were taken, by name of their type.
    pub received: BTreeMap<&'static str, u64>,
    /// Messages that were sent, by name of their type.
    pub sent: BTreeMap<&'static str, u64>,
    /// Messages that go elsewhere and were passed on untouched.
    pub passed_on: u64,
    /// What was refused, by reason.
    pub refused: BTreeMap<Refusal, u64>,
}

impl Counters {
    /// How often something was refused for this reason.
    pub fn refused(&self, why: Refusal) -> u64 {
        self.refused.get(&why).copied().unwrap_or(0)
    }

    pub(super) fn refuse(&mut self, why: Refusal) {
        *self.refused.entry(why).or_insert(0) += 1;
    }

    pub(super) fn receive(&mut self, kind: u8) {
        *self.received.entry(kind_name(kind)).or_insert(0) += 1;
    }

    pub(super) fn send(&mut self, kind: u8) {
        *self.sent.entry(kind_name(kind)).or_insert(0) += 1;
    }
}
