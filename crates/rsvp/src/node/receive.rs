//! What is done with a message before its contents count: where it comes from, whether it is
//! authentic, how many came. Cheap checks come first, so a flood costs little.

use std::net::IpAddr;

use super::counters::Refusal;
use super::event::Arrived;
use super::rate::About;
use super::world::World;
use super::{Node, Output};
use crate::integrity::{self, Verdict};
use crate::node::Transmit;
use crate::wire::{self, ErrorSpec, Fault, Header, Hop, Message, Session, code, kind};

const MILLISECOND: u64 = 1_000_000;

impl Node {
    /// Takes a message that arrived. What is refused is counted ([`Node::counters`]), and changes
    /// nothing else.
    pub fn receive(&mut self, now: u64, world: &mut World<'_>, arrived: &Arrived<'_>) {
        if let Err(why) = self.take(now, world, arrived) {
            self.counters.refuse(why);
        }
    }

    fn take(&mut self, now: u64, world: &mut World<'_>, arrived: &Arrived<'_>) -> Result<(), Refusal> {
        if self.config.interface(arrived.interface).is_none() {
            return Err(Refusal::Interface);
        }
        let header = Header::read(arrived.message).map_err(|_| Refusal::Malformed)?;
        if to_one_hop(header.kind) && !self.config.is_own(arrived.destination) {
            return self.pass_on(now, world, arrived);
        }
        let peer = match header.kind {
            kind::PATH_ERR | kind::RESV_CONF | kind::CHALLENGE | kind::RESPONSE => arrived.source,
            _ => wire::peek_hop(arrived.message).ok_or(Refusal::Malformed)?.address,
        };
        if self.config.is_own(peer) {
            return Err(Refusal::OwnHop);
        }
        self.authenticate(now, world, arrived, &header, peer)?;
        // A message with a digest has passed it by now, so a forger cannot use up the rate of a
        // neighbour that signs. A challenge has none, and is about no session.
        let session = wire::peek_session(arrived.message).filter(|_| header.kind != kind::CHALLENGE);
        let known = session.is_some_and(|session| self.sessions.contains_key(&session));
        let about = match (known, self.has_keys(arrived.interface, peer)) {
            (false, false) => About::Unknown,
            (false, true) => About::UnknownSigned,
            (true, false) => About::Open,
            (true, true) => About::Signed,
        };
        let due = self.is_due(now, arrived.interface, session, header.kind);
        if !self.rates.take(now, arrived.interface, peer, about) && !due {
            return Err(Refusal::Rate);
        }
        self.note(now, session, header.kind);
        // Class and C-type are the value of errors 13 and 14.
        let object = |class: u8, ctype: u8| u16::from_be_bytes([class, ctype]);
        let decoded = match wire::decode(arrived.message) {
            Ok(decoded) => decoded,
            Err(error) => {
                let (error, why) = match error.fault {
                    Fault::UnknownClass { class, ctype } => {
                        ((code::UNKNOWN_CLASS, object(class, ctype)), Refusal::UnknownObject)
                    }
                    Fault::UnknownType { class, ctype } => {
                        ((code::UNKNOWN_TYPE, object(class, ctype)), Refusal::UnknownObject)
                    }
                    // RFC 2205 B: error 06.
                    Fault::UnknownStyle if header.kind == kind::RESV => ((code::UNKNOWN_STYLE, 0), Refusal::Style),
                    _ => return Err(Refusal::Malformed),
                };
                return self.bounce(arrived, peer, error, why);
            }
        };
        self.counters.receive(header.kind);
        if let Some(unknown) = decoded.unknown {
            let code = if unknown.known_class { code::UNKNOWN_TYPE } else { code::UNKNOWN_CLASS };
            let error = (code, object(unknown.class, unknown.ctype));
            return self.bounce(arrived, peer, error, Refusal::UnknownObject);
        }
        match decoded.message {
            Message::Path(path) => self.on_path(now, world, arrived, header.send_ttl, path),
            Message::Resv(resv) => self.on_resv(now, world, arrived, resv),
            Message::PathErr(error) => self.on_path_err(arrived, error),
            Message::ResvErr(error) => self.on_resv_err(now, world, arrived, error),
            Message::PathTear(tear) => self.on_path_tear(now, world, arrived, &tear),
            Message::ResvTear(tear) => self.on_resv_tear(now, world, arrived, &tear),
            Message::ResvConf(conf) => self.on_resv_conf(world, arrived, conf),
            // Both were dealt with when their sender was authenticated.
            Message::Challenge(_) | Message::Response(_) => Ok(()),
        }
    }

    /// Whether a known session was not heard of for so long that this message may be the refresh of
    /// its state. That is taken whatever else its neighbour sends: a flood that comes by the same
    /// neighbour must not cost others their state. Refreshes are at least R/2 apart (RFC 2205 3.7);
    /// half of that is allowed for delays on the way.
    fn is_due(&self, now: u64, interface: u32, session: Option<Session>, kind: u8) -> bool {
        let Some(interface) = self.config.interface(interface) else { return false };
        let Some(state) = session.and_then(|session| self.sessions.get(&session)) else { return false };
        let least = u64::from(interface.refresh_ms) * MILLISECOND / 4;
        state.heard[direction(kind)].is_none_or(|heard| now.saturating_sub(heard) >= least)
    }

    /// Notes that a session was heard of.
    fn note(&mut self, now: u64, session: Option<Session>, kind: u8) {
        if let Some(state) = session.and_then(|session| self.sessions.get_mut(&session)) {
            state.heard[direction(kind)] = Some(now);
        }
    }

    /// RFC 2747 4.2: from a neighbour with keys only what has a right digest and a new sequence
    /// number. No object is parsed before that.
    fn authenticate(
        &mut self,
        now: u64,
        world: &mut World<'_>,
        arrived: &Arrived<'_>,
        header: &Header,
        peer: IpAddr,
    ) -> Result<(), Refusal> {
        let interface = self.config.interface(arrived.interface).ok_or(Refusal::Interface)?;
        let neighbour = interface.neighbour(peer).ok_or(Refusal::Neighbour)?;
        if header.kind == kind::CHALLENGE {
            return self.on_challenge(now, arrived, peer);
        }
        if neighbour.keys.is_empty() {
            return Ok(());
        }
        let signature = integrity::verify(arrived.message, &neighbour.keys)?;
        if header.kind == kind::RESPONSE {
            let Ok(Message::Response(answer)) = wire::decode(arrived.message).map(|decoded| decoded.message) else {
                return Err(Refusal::Malformed);
            };
            let right = self.peers.answered(peer, &signature, &answer);
            return if right { Ok(()) } else { Err(Refusal::Answer) };
        }
        let handshake = neighbour.handshake;
        let cookie = if handshake { (world.random)() } else { 0 };
        let is_named = !matches!(header.kind, kind::PATH_ERR | kind::RESV_CONF);
        match self.peers.judge(now, (peer, is_named), &signature, handshake, cookie) {
            Verdict::Accept => Ok(()),
            Verdict::Refuse(error) => Err(error.into()),
            Verdict::Challenge(challenge) => {
                // The challenge goes where the message came from, unsigned (RFC 2747 4.3).
                self.send_unsigned(arrived.interface, peer, &Message::Challenge(challenge));
                Err(Refusal::Handshake)
            }
        }
    }

    /// Whether a neighbour on an interface has keys.
    pub(super) fn has_keys(&self, interface: u32, neighbour: IpAddr) -> bool {
        let listed = self.config.interface(interface).and_then(|interface| interface.neighbour(neighbour));
        listed.is_some_and(|neighbour| !neighbour.keys.is_empty())
    }

    /// Whether what came by one interface may speak for a neighbour on the interface that its
    /// handle names. Both may differ (RFC 2205 A.2). If that neighbour has keys, the message must
    /// have been checked by the same ones, or a way without keys would get around them.
    pub(super) fn speaks_for(&self, arrived: &Arrived<'_>, handle: u32, neighbour: IpAddr) -> Result<(), Refusal> {
        let listed = self.config.interface(handle).ok_or(Refusal::Branch)?;
        let there = listed.neighbour(neighbour).ok_or(Refusal::Neighbour)?;
        let here = self.config.interface(arrived.interface).and_then(|interface| interface.neighbour(neighbour));
        let is_checked = here.is_some_and(|here| here.keys == there.keys && (here.handshake || !there.handshake));
        if there.keys.is_empty() || is_checked { Ok(()) } else { Err(Refusal::Unsigned) }
    }

    /// RFC 2747 4.3: a challenge is answered by the same object, signed. Challenges have a rate of
    /// their own, because anybody may send one.
    fn on_challenge(&mut self, now: u64, arrived: &Arrived<'_>, peer: IpAddr) -> Result<(), Refusal> {
        if !self.rates.take(now, arrived.interface, peer, About::Challenge) {
            return Err(Refusal::Rate);
        }
        // Without a key there is nothing to prove.
        if self.config.interface(arrived.interface).is_none_or(|interface| interface.sign.is_none()) {
            return Err(Refusal::Answer);
        }
        let Ok(Message::Challenge(challenge)) = wire::decode(arrived.message).map(|decoded| decoded.message) else {
            return Err(Refusal::Malformed);
        };
        if self.peers.waits_for(&challenge) {
            return Err(Refusal::Answer);
        }
        self.send(arrived.interface, peer, &Message::Response(challenge));
        Ok(())
    }

    /// A message between two other nodes, which the kernel gave to this one because of its router
    /// alert option: it goes on untouched.
    fn pass_on(&mut self, now: u64, world: &mut World<'_>, arrived: &Arrived<'_>) -> Result<(), Refusal> {
        if !self.rates.take(now, arrived.interface, arrived.source, About::Passing) {
            return Err(Refusal::Rate);
        }
        if arrived.ttl <= 1 {
            return Err(Refusal::Ttl);
        }
        let Some((interface, _)) = world.routes.route(arrived.destination).by() else {
            return Err(Refusal::Route);
        };
        if self.config.interface(interface).is_none() {
            return Err(Refusal::Route);
        }
        self.counters.passed_on += 1;
        self.out.push_back(Output::Send(Transmit {
            interface,
            source: arrived.source,
            destination: arrived.destination,
            ttl: arrived.ttl - 1,
            router_alert: true,
            message: arrived.message.to_vec(),
        }));
        Ok(())
    }

    /// Answers a Path or Resv that cannot be read as a whole with an error, which is code and value
    /// (RFC 2205 3.10), and refuses it for the reason `why`.
    fn bounce(
        &mut self,
        arrived: &Arrived<'_>,
        peer: IpAddr,
        (code, value): (u8, u16),
        why: Refusal,
    ) -> Result<(), Refusal> {
        let interface = self.config.interface(arrived.interface).ok_or(Refusal::Interface)?;
        let node = interface.own(peer).ok_or(Refusal::Address)?;
        let error = ErrorSpec { node, flags: 0, code, value };
        let hop = Hop { address: node, handle: interface.id };
        if let Some(answer) = wire::bounce(arrived.message, error, hop, super::send::TTL) {
            self.send_bytes(arrived.interface, peer, answer);
        }
        Err(why)
    }
}

/// 0 for messages that go downstream, 1 for those that go upstream: a flood of Paths is no reason
/// to wait for Resvs, and the other way round.
fn direction(kind: u8) -> usize {
    usize::from(matches!(kind, kind::RESV | kind::RESV_TEAR | kind::PATH_ERR))
}

/// Whether messages of this type go from one RSVP node to the next, with its address as
/// destination.
fn to_one_hop(kind: u8) -> bool {
    !matches!(kind, kind::PATH | kind::PATH_TEAR | kind::RESV_CONF)
}
