//! PathTear and ResvTear (RFC 2205 2.4, RFC 2209).

use super::Node;
use super::counters::Refusal;
use super::event::Arrived;
use super::state::{Rsb, RsbKey};
use super::world::World;
use crate::wire::{PathTear, ResvTear, Style};

impl Node {
    /// RFC 2209: a PathTear matches session, sender and previous hop.
    pub(super) fn on_path_tear(
        &mut self,
        now: u64,
        world: &mut World<'_>,
        arrived: &Arrived<'_>,
        tear: &PathTear,
    ) -> Result<(), Refusal> {
        let psb = self.sessions.get(&tear.session).and_then(|state| state.paths.get(&tear.sender));
        let previous = psb.ok_or(Refusal::NoState)?.previous;
        // A tear that comes the old way after a change of route tears nothing.
        if previous.interface != arrived.interface || previous.address != tear.hop.address {
            return Err(Refusal::Branch);
        }
        self.drop_path(now, world, tear.session, tear.sender);
        Ok(())
    }

    /// RFC 2209: a ResvTear matches session, next hop, style and filters; its flowspecs do not
    /// count. It stops where something else is still reserved for the same senders.
    pub(super) fn on_resv_tear(
        &mut self,
        now: u64,
        world: &mut World<'_>,
        arrived: &Arrived<'_>,
        tear: &ResvTear,
    ) -> Result<(), Refusal> {
        let (session, interface, next_hop) = (tear.session, tear.hop.handle, tear.hop.address);
        self.speaks_for(arrived, interface, next_hop)?;
        let state = self.sessions.get(&session).ok_or(Refusal::NoState)?;
        let is_meant = |key: &RsbKey, rsb: &Rsb| {
            key.interface == interface
                && key.next_hop == next_hop
                && rsb.wanted.style == tear.style
                && (tear.style == Style::Wildcard || rsb.wanted.filters.iter().any(|s| tear.filters.contains(s)))
        };
        let meant = state.requests.iter().filter(|(key, rsb)| is_meant(key, rsb));
        let meant: Vec<RsbKey> = meant.map(|(key, _)| *key).collect();
        if meant.is_empty() {
            return Err(Refusal::NoState);
        }
        for key in meant {
            let rsb = self.sessions.get_mut(&session).and_then(|state| state.requests.get_mut(&key));
            let Some(rsb) = rsb else {
                continue;
            };
            rsb.wanted.filters.retain(|sender| !tear.filters.contains(sender));
            if let Some(waiting) = &mut rsb.waiting {
                waiting.filters.retain(|sender| !tear.filters.contains(sender));
            }
            if rsb.wanted.filters.is_empty() {
                self.remove_request(session, key);
            } else if rsb.waiting.as_ref().is_some_and(|waiting| waiting.filters.is_empty()) {
                self.set_waiting(session, key, None);
            }
        }
        // What is left may have no sender with path state.
        self.drop_orphans(session);
        self.retune(now, world, session);
        self.sync(now, world, session);
        self.tidy(&session);
        Ok(())
    }
}
