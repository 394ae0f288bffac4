//! Resv messages (RFC 2205 3.1.4, RFC 2209).

use std::net::IpAddr;
use std::sync::Arc;

use super::Node;
use super::counters::Refusal;
use super::event::Arrived;
use super::install::NotInstalled;
use super::state::{RsbKey, Wanted, carries_too_much};
use super::timing::{Timer, lifetime};
use super::world::{Refused, World};
use crate::wire::{Flow, Flowspec, RawObject, Resv, Sender, Session, Style, Tspec, code};

/// What the flow descriptors of a Resv have in common.
#[derive(Debug)]
struct Asked {
    session: Session,
    interface: u32,
    next_hop: IpAddr,
    style: Style,
    confirm: Option<IpAddr>,
    lifetime: u64,
    passed_on: Arc<[RawObject]>,
}

impl Node {
    /// RFC 2209, RESV MESSAGE ARRIVES. Every flow descriptor is judged by itself.
    pub(super) fn on_resv(
        &mut self,
        now: u64,
        world: &mut World<'_>,
        arrived: &Arrived<'_>,
        resv: Resv,
    ) -> Result<(), Refusal> {
        // The outgoing interface is the handle that this node's Path brought to the next hop (RFC
        // 2205 A.2), which is not always the interface that the Resv came by.
        let interface = resv.hop.handle;
        self.speaks_for(arrived, interface, resv.hop.address)?;
        let asked = Asked {
            session: resv.session,
            interface,
            next_hop: resv.hop.address,
            style: resv.style,
            confirm: resv.confirm,
            lifetime: lifetime(resv.refresh_ms, self.config.limits.k),
            passed_on: resv.passed_on.into(),
        };
        // No session has so many senders, and no more objects are kept. One answer is enough, or a
        // single message would be answered by a thousand.
        if resv.flows.len() > self.config.limits.senders || carries_too_much(&asked.passed_on) {
            if let Some(flow) = resv.flows.into_iter().next() {
                self.refuse_flow(&asked, flow, (code::SYSTEM, 0, 0));
            }
            return Err(Refusal::Limit);
        }
        let mut result = self.check_style(&asked, &resv.flows);
        if result.is_ok() {
            let mut refused: Option<Flowspec> = None;
            for flow in resv.flows {
                // A flowspec that stands for several flows, and is refused for itself, is answered
                // once: the answers must not be many times as long as the message.
                if refused.as_ref() == Some(&flow.flowspec) {
                    continue;
                }
                let flowspec = flow.flowspec.clone();
                // The first refusal is counted; each one was answered.
                let one = self.on_flow(now, world, &asked, flow);
                if matches!(one, Err(Refusal::Service | Refusal::Values)) {
                    refused = Some(flowspec);
                }
                result = result.and(one);
            }
        }
        self.sync(now, world, resv.session);
        self.confirm(resv.session);
        result
    }

    /// A session has path state, and one style (RFC 2209).
    fn check_style(&mut self, asked: &Asked, flows: &[Flow]) -> Result<(), Refusal> {
        let style = self.sessions.get(&asked.session).map(|state| (state.paths.is_empty(), state.style()));
        let (code, value, why) = match style {
            None | Some((true, _)) => (code::NO_PATH, 0, Refusal::NoPath),
            Some((false, Some(there))) if there != asked.style => {
                // The value is the low 16 bits of the option vector in place (RFC 2205 B). All
                // vectors that are defined have 5 bits.
                let vector = u16::try_from(there.vector() & 0xffff).unwrap_or(0);
                (code::STYLE_CONFLICT, vector, Refusal::Style)
            }
            Some(_) if asked.style == Style::Wildcard => (code::UNKNOWN_STYLE, 0, Refusal::Style),
            Some(_) => return Ok(()),
        };
        // All flows have the same error, so the first is answered for all.
        if let Some(flow) = flows.first() {
            self.refuse_flow(asked, flow.clone(), (code, value, 0));
        }
        Err(why)
    }

    fn refuse_flow(&mut self, asked: &Asked, flow: Flow, error: (u8, u16, u8)) {
        self.answer(asked.interface, asked.next_hop, asked.session, asked.style, flow, error);
    }

    /// One flow descriptor.
    fn on_flow(&mut self, now: u64, world: &mut World<'_>, asked: &Asked, flow: Flow) -> Result<(), Refusal> {
        let tspec = match self.judge_flow(asked, &flow) {
            Ok(tspec) => tspec,
            Err((Some(refused), why)) => {
                self.refuse_flow(asked, flow, (refused.code, refused.value, 0));
                return Err(why);
            }
            Err((None, why)) => return Err(why),
        };
        let mut filters = flow.filters.clone();
        filters.sort_unstable();
        filters.dedup();
        let filter = if asked.style == Style::Fixed { filters.first().copied() } else { None };
        let key = RsbKey { interface: asked.interface, next_hop: asked.next_hop, filter };
        let wanted = Wanted { style: asked.style, filters, tspec, passed_on: Arc::clone(&asked.passed_on) };
        let session = asked.session;
        let state = self.sessions.get(&session);
        let before = state.and_then(|state| state.requests.get(&key));
        let before = before.map(|rsb| (rsb.wanted.clone(), rsb.changed));
        let is_live = |sender: &Sender| state.is_some_and(|state| state.is_live(asked.interface, sender));
        let old_is_live = before.as_ref().is_some_and(|(old, _)| old.filters.iter().any(is_live));
        if before.is_none() && !self.has_room(asked.next_hop) {
            self.refuse_flow(asked, flow, (code::SYSTEM, 0, 0));
            return Err(Refusal::Limit);
        }
        let expires = now.saturating_add(asked.lifetime);
        // A change that comes soon after the last one waits. The old request is refreshed by it.
        let soonest = before.as_ref().map_or(0, |(_, changed)| changed.saturating_add(self.config.limits.change_ns));
        let waits = old_is_live && before.as_ref().is_some_and(|(old, _)| *old != wanted) && now < soonest;
        let asks_for = match &before {
            Some((old, _)) if waits => old.clone(),
            _ => wanted.clone(),
        };
        let made = self.request(now, world, session, key, (asks_for, asked.lifetime));
        self.set_waiting(session, key, waits.then_some((wanted, soonest, asked.confirm)));
        match made {
            Ok(()) => {
                self.timers.set(Timer::ResvExpires(session, key), expires);
                if let Some(rsb) = self.sessions.get_mut(&session).and_then(|state| state.requests.get_mut(&key)) {
                    rsb.confirm = if waits { None } else { asked.confirm };
                }
                Ok(())
            }
            Err(not) => {
                self.not_made(now, world, session, key, &not);
                if not.kept && before.is_some() {
                    // The receiver is still there, so what it has lives on.
                    self.timers.set(Timer::ResvExpires(session, key), expires);
                }
                self.refuse_flow(asked, flow, (not.refused.code, not.refused.value, in_place(&not)));
                Err(Refusal::Admission)
            }
        }
    }

    /// What can be said of a flow descriptor before traffic control is asked: its traffic, or an
    /// error for the next hop, if it is to be told, and a reason for the counters.
    fn judge_flow(&self, asked: &Asked, flow: &Flow) -> Result<Tspec, (Option<Refused>, Refusal)> {
        let tspec = match &flow.flowspec {
            Flowspec::ControlledLoad(tspec) if tspec.is_legal() => *tspec,
            Flowspec::ControlledLoad(_) => {
                return Err((Some(Refused::flowspec("values out of range")), Refusal::Values));
            }
            // As published: error 21, value 02.
            Flowspec::Guaranteed { .. } | Flowspec::Other { .. } => {
                return Err((Some(Refused::service("only controlled load is offered")), Refusal::Service));
            }
        };
        if flow.filters.len() > self.config.limits.senders {
            return Err((Some(Refused::new(code::SYSTEM, 0, "too many senders")), Refusal::Limit));
        }
        let state = self.sessions.get(&asked.session);
        let has_path = |sender: &Sender| state.is_some_and(|state| state.paths.contains_key(sender));
        if !flow.filters.iter().any(has_path) {
            // In SE senders without path state fall out, and the others stand (RFC 2209).
            return Err((Some(Refused::new(code::NO_SENDER, 0, "no path state for a sender")), Refusal::NoPath));
        }
        let is_live = |sender: &Sender| state.is_some_and(|state| state.is_live(asked.interface, sender));
        if !flow.filters.iter().any(is_live) {
            // The route has changed, and the next hop of the old way does not know yet.
            return Err((None, Refusal::Branch));
        }
        let mtu = self.config.interface(asked.interface).map_or(0, |interface| interface.mtu);
        if tspec.max_packet > mtu {
            // RFC 2211, Invocation Information: a packet larger than the link's MTU cannot be
            // promised.
            return Err((Some(Refused::mtu("the largest packet is larger than the MTU")), Refusal::Admission));
        }
        Ok(tspec)
    }

    /// Keeps a change that has to wait, with when it is due and the receiver that wants it
    /// confirmed, or forgets the one that waited.
    pub(super) fn set_waiting(
        &mut self,
        session: Session,
        key: RsbKey,
        waiting: Option<(Wanted, u64, Option<IpAddr>)>,
    ) {
        let Some(rsb) = self.sessions.get_mut(&session).and_then(|state| state.requests.get_mut(&key)) else {
            return;
        };
        match waiting {
            Some((wanted, due, confirm)) => {
                // A refresh of the change that waits does not take the wish back.
                if confirm.is_some() || rsb.waiting.as_ref() != Some(&wanted) {
                    rsb.confirm_waiting = confirm;
                }
                rsb.waiting = Some(wanted);
                self.timers.set(Timer::Change(session, key), due);
            }
            None => {
                (rsb.waiting, rsb.confirm_waiting) = (None, None);
                self.timers.cancel(Timer::Change(session, key));
            }
        }
    }

    /// A change that had to wait is due.
    pub(super) fn change_due(&mut self, now: u64, world: &mut World<'_>, session: Session, key: RsbKey) {
        let rsb = self.sessions.get_mut(&session).and_then(|state| state.requests.get_mut(&key));
        let due = rsb.and_then(|rsb| Some((rsb.waiting.take()?, rsb.lifetime, rsb.confirm_waiting.take())));
        let Some((wanted, lifetime, confirm)) = due else {
            return;
        };
        let is_live =
            |sender: &Sender| self.sessions.get(&session).is_some_and(|state| state.is_live(key.interface, sender));
        if !wanted.filters.iter().any(is_live) {
            // The sender has gone or moved. What was reserved stays until the receiver's next Resv,
            // as if this change had not been asked for.
            self.counters.refuse(Refusal::Branch);
            return;
        }
        let (style, flow) = (wanted.style, wanted.flow());
        match self.request(now, world, session, key, (wanted, lifetime)) {
            Ok(()) => {
                if let Some(rsb) = self.sessions.get_mut(&session).and_then(|state| state.requests.get_mut(&key)) {
                    rsb.confirm = confirm;
                }
            }
            Err(not) => {
                self.counters.refuse(Refusal::Admission);
                self.not_made(now, world, session, key, &not);
                let error = (not.refused.code, not.refused.value, in_place(&not));
                self.answer(key.interface, key.next_hop, session, style, flow, error);
            }
        }
        self.sync(now, world, session);
        self.confirm(session);
        self.tidy(&session);
    }

    /// After a refusal: a request whose old reservation is gone goes too.
    fn not_made(&mut self, now: u64, world: &mut World<'_>, session: Session, key: RsbKey, not: &NotInstalled) {
        self.tell_refused(session, not);
        if !not.kept {
            self.remove_request(session, key);
            self.retune(now, world, session);
        }
    }
}

/// The flag of ERROR_SPEC that a reservation was there before, and still is (RFC 2205 A.5).
fn in_place(not: &NotInstalled) -> u8 {
    if not.kept { crate::wire::IN_PLACE } else { 0 }
}
