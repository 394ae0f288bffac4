//! Traffic control: from requests and paths to reservations on an interface (RFC 2205 3.11.2, RFC
//! 2209, UPDATE TRAFFIC CONTROL).

use std::net::IpAddr;

use super::Node;
use super::event::Event;
use super::state::{Installed, LOCAL, Psb, RsbKey, State, TcKey, Wanted};
use super::world::{FlowKey, Police, Refused, Reservation, World};
use crate::merge;
use crate::wire::{ErrorSpec, IN_PLACE, Sender, Session};

/// What is asked of traffic control.
pub(super) struct Ask {
    /// Which reservation.
    pub(super) at: TcKey,
    /// What it is to be.
    pub(super) wanted: Installed,
    /// The neighbour that asks.
    pub(super) owner: IpAddr,
    /// How long it lives without a refresh, nanoseconds.
    pub(super) ttl: u64,
}

/// A refusal, and whether a reservation was there before and still is.
pub(super) struct NotInstalled {
    pub(super) kept: bool,
    pub(super) refused: Refused,
}

/// What the requests for a reservation make together: the merge of what next hops ask for (RFC 2205
/// 2.2), no more than their senders announced (RFC 2211, Ordering and Merging). None if no request
/// has a sender whose packets go there. `instead` takes the place of the request with its key, or
/// is added.
pub(super) fn desired(state: &State, at: TcKey, instead: Option<(RsbKey, &Wanted)>) -> Option<Installed> {
    let is_live = |sender: &Sender| state.is_live(at.interface, sender);
    let others = state.requests.iter().filter(|(key, _)| {
        let replaced = instead.is_some_and(|(other, _)| other == **key);
        key.installed() == at && !replaced
    });
    let mut wanted: Vec<&Wanted> = others.map(|(_, rsb)| &rsb.wanted).collect();
    if let Some((_, new)) = instead {
        wanted.push(new);
    }
    wanted.retain(|wanted| wanted.filters.iter().any(is_live));
    let mut filters: Vec<Sender> = wanted.iter().flat_map(|wanted| wanted.filters.iter().copied()).collect();
    filters.retain(is_live);
    filters.sort_unstable();
    filters.dedup();
    let request = wanted.iter().map(|wanted| wanted.tspec).reduce(|a, b| merge::merge(&a, &b))?;
    let paths: Vec<&Psb> = filters.iter().filter_map(|sender| state.paths.get(sender)).collect();
    let announced = paths.iter().map(|psb| psb.tspec).reduce(|a, b| merge::sum(&a, &b))?;
    let police = Police { edge: paths.iter().any(|psb| psb.edge), merge: filters.len() > 1 };
    Some(Installed { tspec: merge::least(&request, &announced), police, filters })
}

/// The name of a reservation in traffic control, at the interface with this name. It is the same
/// after a restart of this node, and when the interface was made anew and has another number:
/// otherwise what traffic control still has would be in the way of its own flows.
pub(super) fn key_of(session: &Session, at: &TcKey, interface: &str) -> String {
    match at.filter {
        Some(sender) => format!("rsvp:{session}/{sender}#{interface}"),
        None => format!("rsvp:{session}#{interface}"),
    }
}

/// The session that such a name is about.
fn session_of(key: &str) -> Option<Session> {
    let mut parts = key.strip_prefix("rsvp:")?.split(['/', '#']);
    let (address, protocol, port) = (parts.next()?, parts.next()?, parts.next()?);
    Some(Session { address: address.parse().ok()?, protocol: protocol.parse().ok()?, port: port.parse().ok()? })
}

impl Node {
    /// Makes, changes or prolongs a reservation. One that is refused leaves what was there before,
    /// unless that is for senders only whose packets no longer go there.
    pub(super) fn install(
        &mut self,
        now: u64,
        world: &mut World<'_>,
        session: Session,
        ask: Ask,
    ) -> Result<(), NotInstalled> {
        let Ask { at, wanted, owner, ttl } = ask;
        let Some(state) = self.sessions.get_mut(&session) else {
            return Ok(());
        };
        let reservation = Reservation {
            key: key_of(&session, &at, self.config.name(at.interface)),
            owner: format!("rsvp:{owner}"),
            interface: at.interface,
            ttl_ns: ttl,
            flows: wanted.filters.iter().filter_map(|sender| FlowKey::new(&session, sender)).collect(),
            tspec: wanted.tspec,
            police: wanted.police,
        };
        let key = reservation.key.as_str();
        let mut granted = None;
        if let Some(before) = state.installed.get(&at) {
            if *before == wanted {
                if world.admission.refresh(now, key, ttl).is_ok() {
                    return Ok(());
                }
            } else {
                let is_used = before.filters.iter().any(|sender| state.is_live(at.interface, sender));
                match world.admission.modify(now, &reservation) {
                    Ok(made) => granted = Some(made),
                    // All senders of the old one are gone: it is no use to anybody, and makes room.
                    Err(_) if !is_used => world.admission.del(now, key),
                    // The old one is still there, and lives on.
                    Err(refused) if world.admission.refresh(now, key, ttl).is_ok() => {
                        return Err(NotInstalled { kept: true, refused });
                    }
                    Err(_) => {}
                }
            }
        }
        let result = match granted {
            Some(granted) => Ok(granted),
            // There is none yet, or traffic control has lost it, as after a restart of its own.
            None => world.admission.add(now, &reservation),
        };
        match result {
            Ok(granted) => {
                let (interface, senders, tspec) = (at.interface, wanted.filters.clone(), wanted.tspec);
                state.installed.insert(at, wanted);
                self.tell(Event::Reserved { session, interface, senders, tspec, class: granted.class });
                Ok(())
            }
            Err(refused) => {
                if state.installed.remove(&at).is_some() {
                    self.tell(Event::Released { session, interface: at.interface });
                }
                Err(NotInstalled { kept: false, refused })
            }
        }
    }

    /// Takes a reservation away.
    fn uninstall(&mut self, now: u64, world: &mut World<'_>, session: Session, at: TcKey) {
        let removed = self.sessions.get_mut(&session).and_then(|state| state.installed.remove(&at));
        if removed.is_some() {
            world.admission.del(now, &key_of(&session, &at, self.config.name(at.interface)));
            self.tell(Event::Released { session, interface: at.interface });
        }
    }

    /// Makes traffic control be what requests and paths say, after one of them changed. What
    /// shrinks or goes is done first, so that what it frees can be used. Next hops whose
    /// reservation is refused are told (RFC 2205 2.5).
    pub(super) fn retune(&mut self, now: u64, world: &mut World<'_>, session: Session) {
        let Some(state) = self.sessions.get(&session) else {
            return;
        };
        let mut all: Vec<TcKey> = state.requests.keys().map(RsbKey::installed).collect();
        all.extend(state.installed.keys().copied());
        all.retain(|at| at.interface != LOCAL);
        all.sort_unstable();
        all.dedup();
        let is_gone = |at: &TcKey| desired(state, *at, None).is_none();
        let (gone, there): (Vec<TcKey>, Vec<TcKey>) = all.into_iter().partition(is_gone);
        for at in gone {
            self.uninstall(now, world, session, at);
        }
        for at in there {
            let Some(state) = self.sessions.get(&session) else {
                return;
            };
            let Some(wanted) = desired(state, at, None) else {
                continue;
            };
            if state.installed.get(&at) == Some(&wanted) {
                continue;
            }
            let of: Vec<RsbKey> = state.requests.keys().filter(|key| key.installed() == at).copied().collect();
            let ttl = of.iter().filter_map(|key| state.requests.get(key)).map(|rsb| rsb.lifetime).max().unwrap_or(0);
            let Some(owner) = of.first().map(|key| key.next_hop) else {
                continue;
            };
            if let Err(not) = self.install(now, world, session, Ask { at, wanted, owner, ttl }) {
                self.tell_refused(session, &not);
                for key in of {
                    self.refuse_request(session, key, &not);
                }
            }
        }
    }

    /// Tells a next hop that the reservation that it has is refused, and forgets its request unless
    /// the old reservation is kept.
    fn refuse_request(&mut self, session: Session, key: RsbKey, not: &NotInstalled) {
        let rsb = self.sessions.get(&session).and_then(|state| state.requests.get(&key));
        let Some((style, flow)) = rsb.map(|rsb| (rsb.wanted.style, rsb.wanted.flow())) else {
            return;
        };
        if !not.kept {
            self.remove_request(session, key);
        }
        let flags = if not.kept { IN_PLACE } else { 0 };
        self.answer(key.interface, key.next_hop, session, style, flow, (not.refused.code, not.refused.value, flags));
    }

    /// The event of a refusal.
    pub(super) fn tell_refused(&mut self, session: Session, not: &NotInstalled) {
        self.tell(Event::Refused {
            session,
            code: not.refused.code,
            value: not.refused.value,
            reason: not.refused.reason.clone(),
            would_fit_bit_s: not.refused.would_fit_bit_s,
            kept: not.kept,
        });
    }

    /// Takes notice that traffic control has taken a reservation away by itself: because of a more
    /// important one (`code` 12, RFC 2205 B), or because it expired there. The next hops are told,
    /// and their requests go. True if there was such a reservation.
    pub fn withdrawn(&mut self, now: u64, world: &mut World<'_>, key: &str, code: u8, value: u16) -> bool {
        let Some(session) = session_of(key) else {
            return false;
        };
        let Some(state) = self.sessions.get_mut(&session) else {
            return false;
        };
        let is_meant = |at: &TcKey| key_of(&session, at, self.config.name(at.interface)) == key;
        let Some(at) = state.installed.keys().copied().find(is_meant) else {
            return false;
        };
        state.installed.remove(&at);
        let of: Vec<RsbKey> = state.requests.keys().filter(|key| key.installed() == at).copied().collect();
        self.tell(Event::Released { session, interface: at.interface });
        let not = NotInstalled { kept: false, refused: Refused::new(code, value, "taken away by traffic control") };
        for key in of {
            self.refuse_request(session, key, &not);
        }
        self.sync(now, world, session);
        self.tidy(&session);
        true
    }

    /// Takes notice that traffic control may have lost reservations, as after a restart of its own.
    /// Those whose key is not there (`is_there`) are asked for again at once, and not only when
    /// their next hops refresh them. Returns how many were lost.
    pub fn reinstall(&mut self, now: u64, world: &mut World<'_>, is_there: &dyn Fn(&str) -> bool) -> usize {
        let sessions: Vec<Session> = self.sessions.keys().copied().collect();
        let mut lost = 0;
        for session in sessions {
            let Some(state) = self.sessions.get_mut(&session) else {
                continue;
            };
            let before = state.installed.len();
            state.installed.retain(|at, _| is_there(&key_of(&session, at, self.config.name(at.interface))));
            let gone = before - state.installed.len();
            if gone > 0 {
                lost += gone;
                self.retune(now, world, session);
                self.sync(now, world, session);
                self.tidy(&session);
            }
        }
        lost
    }

    /// This node's ERROR_SPEC for a neighbour on an interface.
    pub(super) fn error(&self, interface: u32, like: IpAddr, (code, value, flags): (u8, u16, u8)) -> Option<ErrorSpec> {
        let node = self.config.interface(interface)?.own(like)?;
        Some(ErrorSpec { node, flags, code, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_which_session_it_is_about() {
        for address in ["10.0.2.2", "2001:db8::2", "::ffff:10.0.2.2"] {
            let session = Session { address: address.parse().unwrap(), protocol: 17, port: 5004 };
            let sender = Sender::new(session.address, 4000);
            for filter in [None, Some(sender)] {
                // A name may have every sign but `/` and blanks.
                let key = key_of(&session, &TcKey { interface: 7, filter }, "eth0#1.5");
                assert_eq!(session_of(&key), Some(session), "{key}");
            }
        }
        for wrong in ["", "rsvp:", "rsvp:10.0.2.2/17", "10.0.2.2/17/5004#eth7", "rsvp:10.0.2.2/17/70000#eth7"] {
            assert_eq!(session_of(wrong), None, "{wrong}");
        }
    }
}
