//! The table of reservation requests (RSBs): what is put in, counted, and taken out.

use std::net::IpAddr;

use super::Node;
use super::install::{Ask, NotInstalled, desired};
use super::state::{LOCAL, Rsb, RsbKey, Wanted};
use super::timing::Timer;
use super::world::{Refused, World};
use crate::wire::{Session, code};

impl Node {
    /// Makes or changes a request, and the reservation that follows from it. If traffic control
    /// refuses, neither is changed. Timers and confirmation are the caller's.
    pub(super) fn request(
        &mut self,
        now: u64,
        world: &mut World<'_>,
        session: Session,
        key: RsbKey,
        (wanted, lifetime): (Wanted, u64),
    ) -> Result<(), NotInstalled> {
        let no_path = || NotInstalled { kept: false, refused: Refused::new(code::NO_SENDER, 0, "no path state") };
        let state = self.sessions.get(&session).ok_or_else(no_path)?;
        if key.interface != LOCAL {
            let at = key.installed();
            let installed = desired(state, at, Some((key, &wanted))).ok_or_else(no_path)?;
            let ask = Ask { at, wanted: installed, owner: key.next_hop, ttl: lifetime };
            self.install(now, world, session, ask)?;
        }
        let Some(state) = self.sessions.get_mut(&session) else {
            return Ok(());
        };
        match state.requests.get_mut(&key) {
            Some(rsb) => {
                if rsb.wanted != wanted {
                    rsb.changed = now;
                }
                rsb.wanted = wanted;
                rsb.lifetime = lifetime;
            }
            None => {
                let rsb = Rsb {
                    wanted,
                    lifetime,
                    confirm: None,
                    changed: now,
                    waiting: None,
                    confirm_waiting: None,
                    by_application: false,
                };
                state.requests.insert(key, rsb);
                self.requests += 1;
                *self.requests_of.entry(key.next_hop).or_insert(0) += 1;
            }
        }
        self.drop_superseded(session, key);
        Ok(())
    }

    /// After a change of route: requests of the old way go when one for the new way is there. Until
    /// then they keep the reservation upstream.
    fn drop_superseded(&mut self, session: Session, by: RsbKey) {
        let Some(state) = self.sessions.get(&session) else {
            return;
        };
        let old = state.requests.iter().filter(|(key, rsb)| {
            key.interface != by.interface
                && key.filter == by.filter
                && !rsb.wanted.filters.iter().any(|sender| state.is_live(key.interface, sender))
        });
        for key in old.map(|(key, _)| *key).collect::<Vec<RsbKey>>() {
            self.remove_request(session, key);
        }
    }

    /// Takes a request out. Traffic control and previous hops are the caller's to tell.
    pub(super) fn remove_request(&mut self, session: Session, key: RsbKey) {
        let removed = self.sessions.get_mut(&session).and_then(|state| state.requests.remove(&key));
        if removed.is_none() {
            return;
        }
        self.timers.cancel(Timer::ResvExpires(session, key));
        self.timers.cancel(Timer::Change(session, key));
        self.requests -= 1;
        if let Some(count) = self.requests_of.get_mut(&key.next_hop) {
            *count -= 1;
            if *count == 0 {
                self.requests_of.remove(&key.next_hop);
            }
        }
    }

    /// Takes a request out, with all that follows: the reservation shrinks or goes, and the
    /// previous hops are told.
    pub(super) fn drop_request(&mut self, now: u64, world: &mut World<'_>, session: Session, key: RsbKey) {
        self.remove_request(session, key);
        self.retune(now, world, session);
        self.sync(now, world, session);
        self.tidy(&session);
    }

    /// Whether one more request of this next hop is within the limits.
    pub(super) fn has_room(&self, next_hop: IpAddr) -> bool {
        let limits = &self.config.limits;
        let of_this = self.requests_of.get(&next_hop).copied().unwrap_or(0);
        self.requests < limits.reservations && of_this < limits.reservations_of_neighbour
    }
}
