//! Confirmations (RFC 2205 2.6, 3.1.9): a receiver may ask to be told that its reservation is made.
//! A request that is passed upstream takes the wish with it; where it ends, or changes nothing, the
//! node answers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::Node;
use super::counters::Refusal;
use super::event::{Arrived, Event};
use super::state::{LOCAL, State};
use super::upstream::FLOWS;
use super::world::World;
use crate::merge;
use crate::wire::{ErrorSpec, Flow, Message, ResvConf, Sender, Session, Style, is_unicast};

impl Node {
    /// Answers the wishes that did not go upstream, one message for all flows of a receiver. The
    /// wish of a request that is blockaded is dropped (RFC 2205 3.1.4).
    pub(super) fn confirm(&mut self, session: Session) {
        let Some(State { requests, blockades, .. }) = self.sessions.get_mut(&session) else {
            return;
        };
        let mut answers: BTreeMap<(u32, IpAddr), (Style, Vec<Flow>)> = BTreeMap::new();
        for (key, rsb) in requests {
            let Some(receiver) = rsb.confirm.take() else {
                continue;
            };
            let is_refused = |sender: &Sender| {
                blockades.get(sender).is_some_and(|there| merge::is_blockaded(&there.refused, &rsb.wanted.tspec))
            };
            let may_be_told = key.interface == LOCAL || is_unicast(receiver);
            if may_be_told && !rsb.wanted.filters.iter().any(is_refused) {
                let answer = answers.entry((key.interface, receiver));
                answer.or_insert_with(|| (rsb.wanted.style, Vec::new())).1.push(rsb.wanted.flow());
            }
        }
        for ((interface, receiver), (style, flows)) in answers {
            if interface == LOCAL {
                self.tell(Event::Confirmed { session, by: receiver });
                continue;
            }
            let own = self.config.interface(interface).and_then(|interface| interface.own(receiver));
            let Some(node) = own else {
                continue;
            };
            let error = ErrorSpec { node, flags: 0, code: 0, value: 0 };
            for flows in flows.chunks(FLOWS) {
                let flows = flows.to_vec();
                let message = Message::ResvConf(ResvConf { session, error, receiver, style, flows });
                self.send_confirmation(interface, receiver, super::send::TTL, &message);
            }
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
        match world.routes.route(conf.receiver).by() {
            Some((interface, _)) if interface != arrived.interface && self.config.interface(interface).is_some() => {
                let receiver = conf.receiver;
                self.send_confirmation(interface, receiver, arrived.ttl - 1, &Message::ResvConf(conf));
                Ok(())
            }
            _ => Err(Refusal::Route),
        }
    }
}
