//! PathErr and ResvErr (RFC 2205 3.1.7, 3.1.8, RFC 2209): they inform. None of them
//! changes state, but for the blockade of a request that admission control refused.

use std::net::IpAddr;

use super::Node;
use super::config::SECOND;
use super::counters::Refusal;
use super::event::{Arrived, Event};
use super::state::{Blockade, LOCAL, RsbKey};
use super::timing::{Timer, clamp};
use super::world::World;
use crate::merge;
use crate::wire::{
    ErrorSpec, Flow, Flowspec, Hop, IN_PLACE, Message, PathErr, ResvErr, Sender, Session, Style, Tspec, code,
};

/// Kb: how many refresh periods a blockade lasts (RFC 2205 3.5 leaves it to the node).
const BLOCKADE_PERIODS: u64 = 2;

impl Node {
    /// Answers a request with a ResvErr to its next hop. For a receiver here nothing is sent: no
    /// node refuses what it asks of itself. The error is code, value and flags.
    pub(super) fn answer(
        &mut self,
        interface: u32,
        next_hop: IpAddr,
        session: Session,
        style: Style,
        flow: Flow,
        error: (u8, u16, u8),
    ) {
        if interface == LOCAL {
            return;
        }
        let own = self.config.interface(interface).and_then(|listed| listed.own(next_hop));
        if let (Some(own), Some(error)) = (own, self.error(interface, next_hop, error)) {
            let hop = Hop { address: own, handle: interface };
            let (scope, passed_on) = (Vec::new(), Vec::new());
            let message = Message::ResvErr(ResvErr { session, hop, error, scope, style, flow, passed_on });
            self.send(interface, next_hop, &message);
        }
    }

    /// RFC 2209: a PathErr goes on to the previous hop of its sender, as it is.
    pub(super) fn on_path_err(&mut self, arrived: &Arrived<'_>, error: PathErr) -> Result<(), Refusal> {
        let psb = self.sessions.get(&error.session).and_then(|state| state.paths.get(&error.sender));
        let psb = psb.ok_or(Refusal::NoState)?;
        if psb.out != Some(arrived.interface) {
            return Err(Refusal::Branch);
        }
        let previous = psb.previous;
        if previous.interface == LOCAL {
            let PathErr { session, sender, error, .. } = error;
            self.tell(Event::PathError { session, sender, error });
        } else {
            self.send(previous.interface, previous.address, &Message::PathErr(error));
        }
        Ok(())
    }

    /// RFC 2209: a ResvErr goes on to the next hops whose requests it is about.
    pub(super) fn on_resv_err(
        &mut self,
        now: u64,
        world: &mut World<'_>,
        arrived: &Arrived<'_>,
        error: ResvErr,
    ) -> Result<(), Refusal> {
        let session = error.session;
        let state = self.sessions.get(&session).ok_or(Refusal::NoState)?;
        let comes_from = |sender: &Sender| {
            let previous = state.paths.get(sender).map(|psb| psb.previous);
            previous.is_some_and(|phop| phop.interface == arrived.interface && phop.address == error.hop.address)
        };
        let senders: Vec<Sender> = error.flow.filters.iter().copied().filter(comes_from).collect();
        if senders.is_empty() || state.style() != Some(error.style) {
            return Err(Refusal::NoState);
        }
        let refused = match &error.flow.flowspec {
            Flowspec::ControlledLoad(tspec) if tspec.is_legal() && error.error.code == code::ADMISSION => Some(*tspec),
            _ => None,
        };
        let keys = self.requests_for(&session, &senders);
        for key in keys {
            self.pass_resv_err(key, &error, &senders, refused);
        }
        if let Some(refused) = refused {
            self.blockade(now, arrived.interface, session, &senders, refused);
            self.sync(now, world, session);
        }
        Ok(())
    }

    /// One next hop. Where the old reservation is in place upstream, only those that asked for too
    /// much are told (RFC 2205 3.5).
    fn pass_resv_err(&mut self, key: RsbKey, error: &ResvErr, senders: &[Sender], refused: Option<Tspec>) {
        let session = error.session;
        let rsb = self.sessions.get(&session).and_then(|state| state.requests.get(&key));
        let Some(wanted) = rsb.map(|rsb| rsb.wanted.clone()) else {
            return;
        };
        let in_place = error.error.flags & IN_PLACE != 0;
        if in_place && refused.is_some_and(|refused| !merge::is_blockaded(&refused, &wanted.tspec)) {
            return;
        }
        let mut filters = wanted.filters;
        filters.retain(|sender| senders.contains(sender));
        if key.interface == LOCAL {
            self.tell(Event::ResvError { session, error: error.error });
            for sender in filters {
                self.tell_sender(session, sender, error.error);
            }
            return;
        }
        let own = self.config.interface(key.interface).and_then(|listed| listed.own(key.next_hop));
        if let Some(own) = own {
            let message = Message::ResvErr(ResvErr {
                session,
                hop: Hop { address: own, handle: key.interface },
                error: error.error,
                scope: Vec::new(),
                style: error.style,
                flow: Flow { flowspec: error.flow.flowspec.clone(), filters },
                passed_on: error.passed_on.clone(),
            });
            self.send(key.interface, key.next_hop, &message);
        }
    }

    /// RFC 5946: a receiver proxy tells the sender by a PathErr that its reservation failed, with
    /// the code and value of the ResvErr, because the receiver cannot.
    pub(super) fn tell_sender(&mut self, session: Session, sender: Sender, failed: ErrorSpec) {
        if !self.config.is_proxied(session.address) {
            return;
        }
        let psb = self.sessions.get(&session).and_then(|state| state.paths.get(&sender));
        let Some((previous, tspec, adspec)) = psb.map(|psb| (psb.previous, psb.tspec, psb.adspec.clone())) else {
            return;
        };
        let Some(error) = self.error(previous.interface, previous.address, (failed.code, failed.value, 0)) else {
            return;
        };
        let message = PathErr { session, error, sender, tspec, adspec, passed_on: Vec::new() };
        self.send(previous.interface, previous.address, &Message::PathErr(message));
    }

    /// RFC 2205 3.5: what was refused is not asked for again for Kb refresh periods, where less is
    /// asked for too.
    fn blockade(&mut self, now: u64, interface: u32, session: Session, senders: &[Sender], refused: Tspec) {
        let refresh_ms = self.config.interface(interface).map_or(30_000, |listed| clamp(listed.refresh_ms));
        let ends = now.saturating_add(BLOCKADE_PERIODS * u64::from(refresh_ms) * (SECOND / 1000));
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        for sender in senders {
            state.blockades.insert(*sender, Blockade { refused });
            self.timers.set(Timer::BlockadeEnds(session, *sender), ends);
        }
    }
}
