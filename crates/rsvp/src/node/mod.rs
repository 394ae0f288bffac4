//! The state machine of an RSVP node: a router, and a proxy for hosts that do not speak RSVP.
//!
//! ```text
//!             receive(message) ─┐                              ┌─► messages to send
//!         handle_timeout(now) ──┼─► path state, reservations ──┼─► events
//!   routes_changed, proxy calls ┘          │        ▲          └─► next_timeout
//!                                          ▼        │
//!                                   traffic control, routes
//! ```
//!
//! State is what RFC 2209 has: path state for each sender, reservation requests for each next
//! hop, reservations in traffic control for each interface, and what was asked of each previous
//! hop. It is soft: every part that a neighbour made has a timer, and goes when it is not
//! refreshed. [`Node::invariants`] checks that.
//!
//! After every change three steps follow, each of which may be repeated without harm: `retune`
//! makes traffic control be what requests and paths say, `sync` makes the previous hops be asked
//! for what is reserved here, `tidy` forgets what is empty.

mod config;
mod confirm;
mod counters;
mod errors;
mod event;
mod install;
mod invariants;
mod path;
mod proxy;
mod rate;
mod receive;
mod repair;
mod requests;
mod resv;
mod send;
mod state;
mod tear;
mod timing;
mod upstream;
mod view;
mod world;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

pub use config::{Config, ConfigError, Interface, Limits, Neighbour, Prefix};
pub use counters::{Counters, Refusal};
pub use event::{Arrived, Event, Output, Transmit};
pub use proxy::ProxyError;
pub use view::{NeighbourView, PathView, ReservationView};
pub use world::{Admission, FlowKey, Granted, Offer, Police, Refused, Reservation, Route, Routes, World};

use crate::integrity::{Peers, Sequence};
use crate::wire::{Sender, Session};
use rate::Rates;
use state::{LOCAL, State};
use timing::{Timer, Timers};

/// Who makes a node keep senders, as far as it can be told apart: an interface, and there a
/// neighbour that has keys. Those without keys are one.
type Origin = (u32, Option<IpAddr>);

/// An RSVP node. Times are nanoseconds of any clock that does not go back.
#[derive(Debug)]
pub struct Node {
    config: Config,
    sessions: BTreeMap<Session, State>,
    timers: Timers,
    rates: Rates,
    peers: Peers,
    sequence: Sequence,
    counters: Counters,
    /// How many senders there are: in all sessions, and of each origin.
    senders: usize,
    senders_of: BTreeMap<Origin, usize>,
    /// How many requests there are, in all and of each next hop.
    requests: usize,
    requests_of: BTreeMap<IpAddr, usize>,
    out: VecDeque<Output>,
}

impl Node {
    /// A node without state.
    ///
    /// # Errors
    /// The configuration is not one that works.
    pub fn new(config: Config) -> Result<Node, ConfigError> {
        config.check()?;
        let limits = &config.limits;
        Ok(Node {
            sessions: BTreeMap::new(),
            timers: Timers::default(),
            rates: Rates::new(limits.known, limits.unknown, limits.open),
            peers: Peers::default(),
            sequence: Sequence::starting_at(config.first_sequence),
            counters: Counters::default(),
            senders: 0,
            senders_of: BTreeMap::new(),
            requests: 0,
            requests_of: BTreeMap::new(),
            out: VecDeque::new(),
            config,
        })
    }

    /// The next thing to send or to tell. To be called until it is None after every other call, or
    /// else what is to be sent waits here.
    pub fn poll(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// When [`Node::handle_timeout`] is to be called, if nothing else happens before.
    pub fn next_timeout(&self) -> Option<u64> {
        self.timers.next()
    }

    /// Does what is due. Early and late calls are harmless.
    pub fn handle_timeout(&mut self, now: u64, world: &mut World<'_>) {
        // Every timer that is set again is set later than now, so this ends.
        while let Some(timer) = self.timers.pop(now) {
            match timer {
                Timer::PathRefresh(session, sender) => self.refresh_path(now, world, session, sender),
                Timer::PathExpires(session, sender) => self.drop_path(now, world, session, sender),
                Timer::Repair(session, sender) => self.repair(now, world, session, sender),
                Timer::ResvRefresh(session, phop) => self.refresh_upstream(now, world, session, phop),
                Timer::ResvExpires(session, key) => self.drop_request(now, world, session, key),
                Timer::Change(session, key) => self.change_due(now, world, session, key),
                Timer::BlockadeEnds(session, sender) => self.end_blockade(now, world, session, sender),
            }
        }
    }

    /// Counters since the node was made.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn tell(&mut self, event: Event) {
        self.out.push_back(Output::Event(event));
    }

    /// Forgets a session of which nothing is left.
    fn tidy(&mut self, session: &Session) {
        if self.sessions.get(session).is_some_and(State::is_empty) {
            self.sessions.remove(session);
        }
    }

    /// A sender's blockade is over: what was held back is asked for again.
    fn end_blockade(&mut self, now: u64, world: &mut World<'_>, session: Session, sender: Sender) {
        if let Some(state) = self.sessions.get_mut(&session) {
            state.blockades.remove(&sender);
        }
        self.sync(now, world, session);
    }
}

/// The next hop of a receiver here, which has no address: that of its family that is unspecified.
fn nobody(like: IpAddr) -> IpAddr {
    if like.is_ipv6() {
        IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED)
    } else {
        IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED)
    }
}
