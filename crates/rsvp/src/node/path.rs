//! Path messages and path state (RFC 2205 3.1.3, RFC 2209).

use std::net::IpAddr;

use super::counters::Refusal;
use super::event::{Arrived, Event};
use super::state::{LOCAL, Phop, Psb, carries_too_much};
use super::timing::{Timer, clamp, lifetime, spread};
use super::world::{Route, World};
use super::{Node, Origin, State};
use crate::wire::{
    ErrorSpec, Hop, HopOffer, Message, Path, PathErr, PathTear, Select, Sender, Session, code, is_unicast, traffic,
};

/// The refresh period where no interface says one, milliseconds.
const DEFAULT_REFRESH_MS: u32 = 30_000;

/// The most words of an ADSPEC. One with guaranteed service has 19 (RFC 2210 3.3).
const MOST_ADSPEC: usize = 128;

impl Node {
    /// RFC 2209, PATH MESSAGE ARRIVES.
    pub(super) fn on_path(
        &mut self,
        now: u64,
        world: &mut World<'_>,
        arrived: &Arrived<'_>,
        send_ttl: u8,
        path: Path,
    ) -> Result<(), Refusal> {
        self.admit_path(arrived, &path)?;
        let (session, sender) = (path.session, path.sender);
        let previous = Phop { interface: arrived.interface, address: path.hop.address, handle: path.hop.handle };
        let state = self.sessions.entry(session).or_default();
        let old = state.paths.get(&sender);
        let unanswered = old.is_some_and(|old| old.unanswered);
        let psb = Psb {
            previous,
            tspec: path.tspec,
            adspec: path.adspec,
            passed_on: path.passed_on,
            edge: path.session_flags & 1 != 0,
            ttl: arrived.ttl,
            // RFC 2205 3.8: a hop that does not speak RSVP lowers the IP TTL and not Send_TTL.
            gap: arrived.ttl != send_ttl,
            out: old.and_then(|old| old.out),
            gateway: old.and_then(|old| old.gateway),
            told: None,
            unanswered,
        };
        let changed = old.is_none_or(|old| old.differs(&psb));
        let traffic_changed = old.is_none_or(|old| old.tspec != psb.tspec || old.edge != psb.edge);
        let before = state.paths.insert(sender, psb).map(|old| old.previous);
        self.count_sender(before, Some(previous));
        let expires = now.saturating_add(lifetime(path.refresh_ms, self.config.limits.k));
        self.timers.set(Timer::PathExpires(session, sender), expires);
        if traffic_changed {
            self.tell(Event::Path { session, sender, tspec: path.tspec });
        }
        let moved = self.reroute(world, session, sender);
        if changed || moved {
            self.send_path(now, world, session, sender);
        }
        if moved {
            self.follow_path(session, sender);
        }
        if traffic_changed || moved {
            self.retune(now, world, session);
        }
        // RFC 2205 3.6: a new previous hop gets its Resv at once. What had no room may have it now.
        if changed || traffic_changed || moved || unanswered {
            self.answer_for_receiver(now, world, session, sender);
            self.sync(now, world, session);
        }
        Ok(())
    }

    /// Whether a Path may make state: addresses, ports, values, limits.
    fn admit_path(&mut self, arrived: &Arrived<'_>, path: &Path) -> Result<(), Refusal> {
        let (session, sender) = (&path.session, &path.sender);
        // RFC 2205 3.3: a Path goes to the session's address. Multicast is not built.
        let goes_there = arrived.destination == session.address;
        if !goes_there || !is_unicast(session.address) || !is_unicast(sender.address) {
            return Err(Refusal::Address);
        }
        // RFC 2205 A.1: the protocol is not 0.
        if session.protocol == 0 {
            return Err(Refusal::Values);
        }
        let Select::Port(port) = sender.select else {
            return Err(Refusal::FlowLabel);
        };
        // RFC 2205 3.2: if the destination port is 0, so is the source port.
        if session.port == 0 && (port != 0 || !self.config.port_zero) {
            return Err(Refusal::Ports);
        }
        if self.has_other_ports(session) {
            self.refuse_path(arrived.interface, path, code::DESTINATION_PORTS, 0);
            return Err(Refusal::Ports);
        }
        if !path.tspec.is_legal() {
            self.refuse_path(arrived.interface, path, code::TRAFFIC_CONTROL, traffic::BAD_TSPEC);
            return Err(Refusal::Values);
        }
        let long_adspec = path.adspec.as_ref().is_some_and(|adspec| adspec.words() > MOST_ADSPEC);
        if long_adspec || carries_too_much(&path.passed_on) {
            self.refuse_path(arrived.interface, path, code::SYSTEM, 0);
            return Err(Refusal::Limit);
        }
        let limits = &self.config.limits;
        let from = self.origin(arrived.interface, path.hop.address);
        let of_it = self.senders_of.get(&from).copied().unwrap_or(0) < limits.paths_of_neighbour;
        let one_more = of_it && self.senders < limits.paths;
        let Some(state) = self.sessions.get(session) else {
            return if one_more && self.sessions.len() < limits.sessions {
                Ok(())
            } else {
                self.refuse_path(arrived.interface, path, code::SYSTEM, 0);
                Err(Refusal::Limit)
            };
        };
        let mixed = state.paths.keys().any(|other| {
            other.address == sender.address && other.port().is_some_and(|other| (other == 0) != (port == 0))
        });
        if mixed {
            self.refuse_path(arrived.interface, path, code::SENDER_PORTS, 0);
            return Err(Refusal::Ports);
        }
        match state.paths.get(sender) {
            // This node announces the sender itself.
            Some(psb) if psb.previous.interface == LOCAL => Err(Refusal::OwnHop),
            // It stays with its neighbour, or another one has room for it.
            Some(psb) if of_it || self.origin(psb.previous.interface, psb.previous.address) == from => Ok(()),
            None if one_more && state.paths.len() < limits.senders => Ok(()),
            _ => {
                self.refuse_path(arrived.interface, path, code::SYSTEM, 0);
                Err(Refusal::Limit)
            }
        }
    }

    /// Who makes this node keep a sender whose Paths come by `interface` from `neighbour`.
    pub(super) fn origin(&self, interface: u32, neighbour: IpAddr) -> Origin {
        (interface, self.has_keys(interface, neighbour).then_some(neighbour))
    }

    /// Counts a sender that was of one previous hop and is of another one now. Those that this node
    /// announces itself have no origin.
    pub(super) fn count_sender(&mut self, before: Option<Phop>, now: Option<Phop>) {
        self.senders = (self.senders + usize::from(now.is_some())).saturating_sub(usize::from(before.is_some()));
        let origin = |hop: Phop| (hop.interface != LOCAL).then(|| self.origin(hop.interface, hop.address));
        let (before, now) = (before.and_then(origin), now.and_then(origin));
        if let Some(origin) = now {
            *self.senders_of.entry(origin).or_insert(0) += 1;
        }
        if let Some(origin) = before
            && let Some(count) = self.senders_of.get_mut(&origin)
        {
            *count -= 1;
            if *count == 0 {
                self.senders_of.remove(&origin);
            }
        }
    }

    /// Whether there is another session of the same address and protocol, and one of the two has
    /// destination port 0 (RFC 2205 3.2, error 07).
    pub(super) fn has_other_ports(&self, session: &Session) -> bool {
        let with = |port: u16| Session { port, ..*session };
        if session.port == 0 {
            self.sessions.range(with(1)..=with(u16::MAX)).next().is_some()
        } else {
            self.sessions.contains_key(&with(0))
        }
    }

    /// Answers a Path with a PathErr. Nothing is kept of the Path.
    fn refuse_path(&mut self, interface: u32, path: &Path, code: u8, value: u16) {
        let own = self.config.interface(interface).and_then(|interface| interface.own(path.hop.address));
        let Some(node) = own else {
            return;
        };
        let error = PathErr {
            session: path.session,
            error: ErrorSpec { node, flags: 0, code, value },
            sender: path.sender,
            tspec: path.tspec,
            adspec: path.adspec.clone(),
            passed_on: Vec::new(),
        };
        self.send(interface, path.hop.address, &Message::PathErr(error));
    }

    /// Asks for the route of a path anew. True if it goes elsewhere than before.
    pub(super) fn reroute(&mut self, world: &mut World<'_>, session: Session, sender: Sender) -> bool {
        let Some(psb) = self.sessions.get(&session).and_then(|state| state.paths.get(&sender)) else {
            return false;
        };
        let (before, incoming) = ((psb.out, psb.gateway), psb.previous.interface);
        let (out, gateway) = self.way(world, &session, incoming);
        if let Some(psb) = self.sessions.get_mut(&session).and_then(|state| state.paths.get_mut(&sender)) {
            (psb.out, psb.gateway) = (out, gateway);
        }
        (out, gateway) != before
    }

    /// Where the packets of a session go that come by `incoming`: an interface, [`LOCAL`], or
    /// nowhere; and the router that they go to there, if the route has one.
    pub(super) fn way(&self, world: &mut World<'_>, session: &Session, incoming: u32) -> (Option<u32>, Option<IpAddr>) {
        // A receiver proxy is the end of the path (RFC 5945). A sender here is no reason to be
        // one.
        if incoming != LOCAL && self.config.is_proxied(session.address) {
            return (Some(LOCAL), None);
        }
        let route = world.routes.route(session.address);
        if route == Route::Local {
            return (Some(LOCAL), None);
        }
        // RFC 2209: never out of the interface that it came by.
        let by = route.by().filter(|(id, _)| *id != incoming);
        let is_usable = |id: u32| self.config.interface(id).is_some_and(|at| at.own(session.address).is_some());
        match by.filter(|(id, _)| is_usable(*id)) {
            Some((id, gateway)) => (Some(id), gateway),
            None => (None, None),
        }
    }

    /// The refresh timer of a path: its route is asked for anew, and a Path is sent.
    pub(super) fn refresh_path(&mut self, now: u64, world: &mut World<'_>, session: Session, sender: Sender) {
        let moved = self.reroute(world, session, sender);
        self.send_path(now, world, session, sender);
        if moved {
            self.follow_path(session, sender);
            self.retune(now, world, session);
            self.sync(now, world, session);
        }
    }

    /// Sends a Path downstream, if there is a way, and sets the next refresh.
    pub(super) fn send_path(&mut self, now: u64, world: &mut World<'_>, session: Session, sender: Sender) {
        let Some(psb) = self.sessions.get(&session).and_then(|state| state.paths.get(&sender)) else {
            return;
        };
        let way = psb.out.filter(|out| *out != LOCAL).and_then(|out| self.config.interface(out));
        let refresh_ms = way.map_or(DEFAULT_REFRESH_MS, |interface| clamp(interface.refresh_ms));
        self.timers.set(Timer::PathRefresh(session, sender), now.saturating_add(spread(refresh_ms, (world.random)())));
        let Some((interface, own)) = way.and_then(|way| Some((way, way.own(session.address)?))) else {
            return;
        };
        if psb.ttl <= 1 {
            self.counters.refuse(Refusal::Ttl);
            return;
        }
        let offer = world.admission.offer(interface.id, &psb.tspec);
        let hop_offer = HopOffer { bandwidth: offer.bandwidth, latency_us: offer.latency_us, mtu: interface.mtu };
        let adspec = psb.adspec.clone().map(|mut adspec| {
            adspec.pass(hop_offer, psb.gap);
            adspec
        });
        // RFC 2205 3.3: Send_TTL and the IP TTL are one less than the IP TTL that it came with.
        let (out, ttl) = (interface.id, psb.ttl - 1);
        let message = Message::Path(Path {
            session,
            // This node can police, so it is the edge if one was asked for, and the next is not
            // (RFC 2205 3.8).
            session_flags: 0,
            hop: Hop { address: own, handle: out },
            refresh_ms,
            sender,
            tspec: psb.tspec,
            adspec,
            passed_on: psb.passed_on.clone(),
        });
        self.send_downstream(out, &session, &sender, ttl, &message);
    }

    /// Forgets a sender: because it was not refreshed, or was torn down. A PathTear goes
    /// downstream, and the requests that have no other sender go without a word (RFC 2209).
    pub(super) fn drop_path(&mut self, now: u64, world: &mut World<'_>, session: Session, sender: Sender) {
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        let Some(psb) = state.paths.remove(&sender) else {
            return;
        };
        state.blockades.remove(&sender);
        self.count_sender(Some(psb.previous), None);
        for timer in [
            Timer::PathRefresh(session, sender),
            Timer::PathExpires(session, sender),
            Timer::Repair(session, sender),
            Timer::BlockadeEnds(session, sender),
        ] {
            self.timers.cancel(timer);
        }
        self.tear_downstream(&session, &sender, &psb);
        self.drop_orphans(session);
        self.retune(now, world, session);
        self.sync(now, world, session);
        self.tidy(&session);
        self.tell(Event::PathGone { session, sender });
    }

    /// Sends a PathTear for path state that is gone.
    fn tear_downstream(&mut self, session: &Session, sender: &Sender, psb: &Psb) {
        let way = psb.out.filter(|out| *out != LOCAL).and_then(|out| self.config.interface(out));
        let Some((out, own)) = way.and_then(|way| Some((way.id, way.own(session.address)?))) else {
            return;
        };
        if psb.ttl > 1 {
            let hop = Hop { address: own, handle: out };
            let message = Message::PathTear(PathTear { session: *session, hop, sender: *sender });
            self.send_downstream(out, session, sender, psb.ttl - 1, &message);
        }
    }

    /// Removes requests all of whose senders have lost their path state.
    pub(super) fn drop_orphans(&mut self, session: Session) {
        let orphans = |state: &State| {
            let with_path = |filters: &[Sender]| filters.iter().any(|sender| state.paths.contains_key(sender));
            let lost = state.requests.iter().filter(|(_, rsb)| !with_path(&rsb.wanted.filters));
            lost.map(|(key, _)| *key).collect::<Vec<_>>()
        };
        for key in self.sessions.get(&session).map(orphans).unwrap_or_default() {
            self.remove_request(session, key);
        }
    }
}

impl Psb {
    /// Whether what goes downstream differs, so that it goes at once (RFC 2209).
    fn differs(&self, other: &Psb) -> bool {
        self.previous != other.previous
            || self.tspec != other.tspec
            || self.adspec != other.adspec
            || self.passed_on != other.passed_on
            || self.ttl != other.ttl
            || self.gap != other.gap
    }
}
