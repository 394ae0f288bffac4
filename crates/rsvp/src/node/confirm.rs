//! Confirmations (RFC 2205 2.6, 3.1.9): a receiver may ask to be told that its reservation is made.
//! A request that is passed upstream takes the wish with it; where it ends, or changes nothing, the
//! node answers.

use super::Node;
use super::counters::Refusal;
use super::event::{Arrived, Event};
use super::state::LOCAL;
use super::world::{Route, World};
use crate::wire::{ErrorSpec, Message, ResvConf, Session};

impl Node {
    /// Answers the wishes that did not go upstream.
    pub(super) fn confirm(&mut self, session: Session) {
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        let mut answers = Vec::new();
        for (key, rsb) in &mut state.requests {
            if let Some(receiver) = rsb.confirm.take() {
                answers.push((*key, receiver, rsb.wanted.style, rsb.wanted.flow()));
            }
        }
        for (key, receiver, style, flow) in answers {
            if key.interface == LOCAL {
                self.tell(Event::Confirmed { session, by: receiver });
                continue;
            }
            let own = self.config.interface(key.interface).and_then(|interface| interface.own(receiver));
            let Some(node) = own else {
                continue;
            };
            let error = ErrorSpec { node, flags: 0, code: 0, value: 0 };
            let message = Message::ResvConf(ResvConf { session, error, receiver, style, flows: vec![flow] });
            self.send_confirmation(key.interface, receiver, super::send::TTL, &message);
        }
    }

    /// A confirmation from upstream: for a receiver here, or on its way to one.
    pub(super) fn on_resv_conf(
        &mut self,
        world: &mut World<'_>,
        arrived: &Arrived<'_>,
        conf: ResvConf,
    ) -> Result<(), Refusal> {
        let state = self.sessions.get(&conf.session).ok_or(Refusal::NoState)?;
        if state.requests.is_empty() {
            return Err(Refusal::NoState);
        }
        if self.config.is_own(conf.receiver) {
            self.tell(Event::Confirmed { session: conf.session, by: conf.error.node });
            return Ok(());
        }
        if arrived.destination != conf.receiver {
            return Err(Refusal::Address);
        }
        if arrived.ttl <= 1 {
            return Err(Refusal::Ttl);
        }
        match world.routes.route(conf.receiver) {
            Route::Interface(interface) if interface != arrived.interface => {
                let receiver = conf.receiver;
                self.send_confirmation(interface, receiver, arrived.ttl - 1, &Message::ResvConf(conf));
                Ok(())
            }
            _ => Err(Refusal::Route),
        }
    }
}
