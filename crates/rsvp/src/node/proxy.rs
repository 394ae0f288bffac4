//! Proxies: this node speaks RSVP in place of hosts that do not (RFC 5945). Triggered by a Path
//! ([`super::Config::receiver_proxy`]), or by an application, through the calls here.

use std::sync::Arc;

use thiserror::Error;

use super::counters::Refusal;
use super::event::Event;
use super::install::NotInstalled;
use super::state::{LOCAL, Phop, Psb, Rsb, RsbKey, Wanted};
use super::world::{Refused, World};
use super::{Node, nobody};
use crate::wire::{Adspec, HopOffer, Sender, Session, Style, Tspec, code, is_unicast, parameter, service};

/// Why a proxy call did nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ProxyError {
    /// The session's or the sender's address is not a unicast address, or they differ in family, or
    /// the session has no protocol.
    #[error("the session and the sender have unicast addresses of one family, and the session a protocol")]
    Address,
    /// Ports: the session's is 0, or 0 stands beside another one.
    #[error("destination port 0 is not allowed, or another session of this address and protocol differs in it")]
    Ports,
    /// The traffic has values out of range (RFC 2215 3.6).
    #[error("the traffic has values out of range")]
    Values,
    /// A limit is reached.
    #[error("the tables are full")]
    Limit,
    /// The sender is announced by a neighbour.
    #[error("a neighbour announces this sender")]
    Foreign,
    /// No sender's path ends here.
    #[error("no path of such a sender ends here")]
    NoPath,
    /// The session has another style, or the style is not offered.
    #[error("the session has another style, or the style is not offered")]
    Style,
}

impl Node {
    /// Announces a sender in place of its host, or changes its traffic (sender proxy). What gets
    /// reserved for it is told by [`Event::SenderReserved`].
    ///
    /// # Errors
    /// A [`ProxyError`]; nothing is changed then.
    pub fn announce(
        &mut self,
        now: u64,
        world: &mut World<'_>,
        session: Session,
        sender: Sender,
        tspec: Tspec,
    ) -> Result<(), ProxyError> {
        let one_family = session.address.is_ipv6() == sender.address.is_ipv6();
        if !one_family || !is_unicast(session.address) || !is_unicast(sender.address) || session.protocol == 0 {
            return Err(ProxyError::Address);
        }
        let zero = session.port == 0 && !(self.config.port_zero && sender.port() == Some(0));
        if zero || sender.port().is_none() || self.has_other_ports(&session) {
            return Err(ProxyError::Ports);
        }
        if !tspec.is_legal() {
            return Err(ProxyError::Values);
        }
        let limits = &self.config.limits;
        let (sessions, senders) = (limits.sessions, limits.senders);
        let full = self.senders >= limits.paths;
        match self.sessions.get(&session) {
            None if full || self.sessions.len() >= sessions => return Err(ProxyError::Limit),
            None => {}
            Some(state) => match state.paths.get(&sender) {
                Some(psb) if psb.previous.interface != LOCAL => return Err(ProxyError::Foreign),
                None if full || state.paths.len() >= senders => return Err(ProxyError::Limit),
                _ => {}
            },
        }
        // RFC 2210 3.3: an Adspec begins with the best values; this node adds itself when it
        // sends.
        let best = HopOffer { bandwidth: 4e13, latency_us: 0, mtu: u32::from(u16::MAX) };
        let state = self.sessions.entry(session).or_default();
        let old = state.paths.get(&sender);
        let psb = Psb {
            previous: Phop { interface: LOCAL, address: nobody(session.address), handle: 0 },
            tspec,
            adspec: Some(Adspec::new(best)),
            passed_on: Vec::new(),
            edge: true,
            // One less is what it is sent with.
            ttl: super::send::TTL + 1,
            gap: false,
            out: old.and_then(|old| old.out),
            gateway: old.and_then(|old| old.gateway),
            told: old.and_then(|old| old.told),
            unanswered: false,
        };
        let previous = psb.previous;
        let before = state.paths.insert(sender, psb).map(|old| old.previous);
        self.count_sender(before, Some(previous));
        self.tell(Event::Path { session, sender, tspec });
        self.reroute(world, session, sender);
        self.send_path(now, world, session, sender);
        self.retune(now, world, session);
        self.sync(now, world, session);
        Ok(())
    }

    /// Takes back what [`Node::announce`] announced. False if there is no such sender.
    pub fn renounce(&mut self, now: u64, world: &mut World<'_>, session: Session, sender: Sender) -> bool {
        let psb = self.sessions.get(&session).and_then(|state| state.paths.get(&sender));
        let is_here = psb.is_some_and(|psb| psb.previous.interface == LOCAL);
        if is_here {
            self.drop_path(now, world, session, sender);
        }
        is_here
    }

    /// Asks for a reservation in place of a receiver (receiver proxy), for senders whose path ends
    /// here. The link between this node and the receiver is not reserved. With `confirm` the answer
    /// comes as [`Event::Confirmed`]; a refusal comes as [`Event::ResvError`].
    ///
    /// # Errors
    /// A [`ProxyError`]; nothing is changed then.
    pub fn reserve(
        &mut self,
        now: u64,
        world: &mut World<'_>,
        session: Session,
        (style, filters): (Style, &[Sender]),
        (tspec, confirm): (Tspec, bool),
    ) -> Result<(), ProxyError> {
        if !tspec.is_legal() {
            return Err(ProxyError::Values);
        }
        let state = self.sessions.get(&session).ok_or(ProxyError::NoPath)?;
        if style == Style::Wildcard || state.style().is_some_and(|there| there != style) {
            return Err(ProxyError::Style);
        }
        // Where senders share a reservation, it is made as soon as one of them has a path, as for a
        // Resv that names them all.
        let is_live = |sender: &Sender| state.is_live(LOCAL, sender);
        let enough = if style == Style::Fixed { filters.iter().all(is_live) } else { filters.iter().any(is_live) };
        if filters.is_empty() || !enough {
            return Err(ProxyError::NoPath);
        }
        if filters.len() > self.config.limits.senders {
            return Err(ProxyError::Limit);
        }
        // The confirmation comes to this node's address on the way to the sender.
        let first = filters.iter().find_map(|sender| state.paths.get(sender)).map(|psb| psb.previous);
        let own = first.and_then(|phop| self.config.interface(phop.interface)?.own(session.address));
        let confirm = if confirm { own.or(Some(nobody(session.address))) } else { None };
        let mut filters = filters.to_vec();
        filters.sort_unstable();
        filters.dedup();
        let groups: Vec<Vec<Sender>> = match style {
            Style::Fixed => filters.into_iter().map(|sender| vec![sender]).collect(),
            _ => vec![filters],
        };
        let more = groups.iter().filter(|group| !state.requests.contains_key(&here(&session, style, group))).count();
        if self.requests + more > self.config.limits.reservations {
            return Err(ProxyError::Limit);
        }
        for filters in groups {
            let key = here(&session, style, &filters);
            let wanted = Wanted { style, filters, tspec, passed_on: Arc::default() };
            // Nothing is asked of traffic control here, so this is never refused.
            let made = self.request(now, world, session, key, (wanted, 0));
            if let (Ok(()), Some(rsb)) = (made, self.local_request(&session, &key)) {
                rsb.confirm = confirm;
                rsb.by_application = true;
            }
        }
        self.sync(now, world, session);
        self.confirm(session);
        Ok(())
    }

    /// Takes back what [`Node::reserve`] asked for in a session. False if there was nothing.
    pub fn release(&mut self, now: u64, world: &mut World<'_>, session: Session) -> bool {
        let Some(state) = self.sessions.get(&session) else {
            return false;
        };
        let here: Vec<RsbKey> = state.requests.keys().filter(|key| key.interface == LOCAL).copied().collect();
        for key in &here {
            self.remove_request(session, *key);
        }
        self.sync(now, world, session);
        self.tidy(&session);
        !here.is_empty()
    }

    /// A path that ends at this proxy is answered by a reservation of what its sender announced
    /// (RFC 5945), unless an application has asked for something there: what it asked for stays. If
    /// there is no room, the sender is told once, and the next Path is answered if there is some.
    pub(super) fn answer_for_receiver(&mut self, now: u64, world: &mut World<'_>, session: Session, sender: Sender) {
        if !self.config.is_proxied(session.address) {
            return;
        }
        let Some(state) = self.sessions.get(&session) else {
            return;
        };
        let other_style = state.style().is_some_and(|style| style != Style::Fixed);
        let key = here(&session, Style::Fixed, &[sender]);
        let there = state.requests.get(&key);
        let has_room = there.is_some() || self.requests < self.config.limits.reservations;
        let by_application = there.is_some_and(|rsb| rsb.by_application);
        let answers = !other_style && !by_application && state.is_live(LOCAL, &sender);
        let psb = self.sessions.get_mut(&session).and_then(|state| state.paths.get_mut(&sender));
        let told = psb.is_some_and(|psb| std::mem::replace(&mut psb.unanswered, answers && !has_room));
        if answers && !has_room {
            self.counters.refuse(Refusal::Limit);
            if !told {
                self.tell_no_room(session, sender);
            }
        }
        let Some(state) = self.sessions.get(&session).filter(|_| answers && has_room) else {
            return;
        };
        if let Some(psb) = state.paths.get(&sender) {
            // RFC 2210: a receiver asks for no larger packets than the path carries, which the
            // Adspec says; a router on the way would refuse them (01/03).
            let carries = psb.adspec.as_ref().and_then(|adspec| adspec.word(service::GENERAL, parameter::MTU));
            let max_packet = psb.tspec.max_packet.min(carries.unwrap_or(u32::MAX)).max(psb.tspec.min_unit);
            let tspec = Tspec { max_packet, ..psb.tspec };
            let wanted = Wanted { style: Style::Fixed, filters: vec![sender], tspec, passed_on: Arc::default() };
            // Nothing is asked of traffic control here, so this is never refused.
            let _never_refused = self.request(now, world, session, key, (wanted, 0));
        }
    }

    /// There is no room for the request that answers a sender's Path.
    fn tell_no_room(&mut self, session: Session, sender: Sender) {
        let refused = Refused::new(code::SYSTEM, 0, "the table of reservation requests is full");
        self.tell_refused(session, &NotInstalled { kept: false, refused });
        let psb = self.sessions.get(&session).and_then(|state| state.paths.get(&sender));
        let error = psb.and_then(|psb| self.error(psb.previous.interface, psb.previous.address, (code::SYSTEM, 0, 0)));
        if let Some(error) = error {
            self.tell_sender(session, sender, error);
        }
    }

    fn local_request(&mut self, session: &Session, key: &RsbKey) -> Option<&mut Rsb> {
        self.sessions.get_mut(session)?.requests.get_mut(key)
    }
}

/// The key of a receiver's request here.
fn here(session: &Session, style: Style, filters: &[Sender]) -> RsbKey {
    let filter = if style == Style::Fixed { filters.first().copied() } else { None };
    RsbKey { interface: LOCAL, next_hop: nobody(session.address), filter }
}
