//! Local repair (RFC 2205 3.6): after a change of routes, paths go the new way soon, and not only
//! with their next refresh.

use super::Node;
use super::event::Event;
use super::state::{LOCAL, RsbKey};
use super::timing::Timer;
use super::world::World;
use crate::wire::{Sender, Session};

impl Node {
    /// Takes notice that routes have changed. Every path is asked for its route; where it differs,
    /// a Path goes the new way after W ([`super::Limits::repair_ns`]), when routing has settled.
    /// The Resv that answers it makes the new reservation; until then the one upstream stays.
    pub fn routes_changed(&mut self, now: u64, world: &mut World<'_>) {
        let mut moved: Vec<(Session, Sender)> = Vec::new();
        for (session, state) in &self.sessions {
            for (sender, psb) in &state.paths {
                if self.way(world, session, psb.previous.interface) != (psb.out, psb.gateway) {
                    moved.push((*session, *sender));
                }
            }
        }
        let at = now.saturating_add(self.config.limits.repair_ns);
        for (session, sender) in moved {
            // A further change does not put the repair off.
            if !self.timers.is_set(Timer::Repair(session, sender)) {
                self.timers.set(Timer::Repair(session, sender), at);
            }
        }
    }

    /// After a path has gone another way: requests of receivers here whose senders' paths all end
    /// elsewhere go, because nothing else would end them. If the path ends here now, that is told,
    /// so that they can be made again.
    pub(super) fn follow_path(&mut self, session: Session, sender: Sender) {
        let Some(state) = self.sessions.get(&session) else {
            return;
        };
        let strayed = state.requests.iter().filter(|(key, rsb)| {
            key.interface == LOCAL && !rsb.wanted.filters.iter().any(|sender| state.is_live(LOCAL, sender))
        });
        let strayed: Vec<RsbKey> = strayed.map(|(key, _)| *key).collect();
        let here = state.paths.get(&sender).filter(|psb| psb.out == Some(LOCAL)).map(|psb| psb.tspec);
        for key in strayed {
            self.remove_request(session, key);
        }
        if let Some(tspec) = here {
            self.tell(Event::Path { session, sender, tspec });
        }
    }

    /// W is over: the path goes the way that it has now, if that is another one than before.
    pub(super) fn repair(&mut self, now: u64, world: &mut World<'_>, session: Session, sender: Sender) {
        if self.reroute(world, session, sender) {
            self.send_path(now, world, session, sender);
            self.follow_path(session, sender);
            self.retune(now, world, session);
            self.answer_for_receiver(now, world, session, sender);
            self.sync(now, world, session);
        }
    }
}
