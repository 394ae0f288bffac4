//! What an operator sees: paths, reservations, neighbours.

use std::net::IpAddr;

use super::Node;
use super::install::key_of;
use super::state::LOCAL;
use super::timing::Timer;
use crate::wire::{Adspec, Sender, Session, Style, Tspec};

/// Path state.
#[derive(Debug, Clone, PartialEq)]
pub struct PathView {
    /// The session.
    pub session: Session,
    /// The sender.
    pub sender: Sender,
    /// Its traffic.
    pub tspec: Tspec,
    /// The previous hop; None for a sender here.
    pub previous_hop: Option<IpAddr>,
    /// The interface that its Paths come by; None for a sender here.
    pub incoming: Option<u32>,
    /// The interface that they leave by; None if the path ends here.
    pub outgoing: Option<u32>,
    /// A router without RSVP is before this node.
    pub gap: bool,
    /// What the path can do, as it came: without this node.
    pub adspec: Option<Adspec>,
    /// When it goes unless it is refreshed; None for a sender here.
    pub expires: Option<u64>,
}

/// A reservation request and what became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ReservationView {
    /// The session.
    pub session: Session,
    /// The style.
    pub style: Style,
    /// The senders that were asked for.
    pub senders: Vec<Sender>,
    /// What was asked for.
    pub asked: Tspec,
    /// What is reserved, if it is: no more than the senders announced.
    pub reserved: Option<Tspec>,
    /// The reservation's key in traffic control.
    pub key: String,
    /// The next hop; None for a receiver here.
    pub next_hop: Option<IpAddr>,
    /// The interface; None for a receiver here.
    pub interface: Option<u32>,
    /// A change waits for its time.
    pub changing: bool,
    /// When it goes unless it is refreshed; None for a receiver here.
    pub expires: Option<u64>,
}

/// A neighbour that was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeighbourView {
    /// The interface.
    pub interface: u32,
    /// Its address.
    pub address: IpAddr,
    /// When a message of its about a known session was heard last.
    pub heard: u64,
    /// How many requests it has.
    pub requests: usize,
}

impl Node {
    /// All path state.
    pub fn paths(&self) -> Vec<PathView> {
        let mut views = Vec::new();
        for (session, state) in &self.sessions {
            for (sender, psb) in &state.paths {
                let remote = psb.previous.interface != LOCAL;
                views.push(PathView {
                    session: *session,
                    sender: *sender,
                    tspec: psb.tspec,
                    previous_hop: remote.then_some(psb.previous.address),
                    incoming: remote.then_some(psb.previous.interface),
                    outgoing: psb.out.filter(|out| *out != LOCAL),
                    gap: psb.gap,
                    adspec: psb.adspec.clone(),
                    expires: self.timers.at(Timer::PathExpires(*session, *sender)),
                });
            }
        }
        views
    }

    /// All reservation requests.
    pub fn reservations(&self) -> Vec<ReservationView> {
        let mut views = Vec::new();
        for (session, state) in &self.sessions {
            for (key, rsb) in &state.requests {
                let at = key.installed();
                let remote = key.interface != LOCAL;
                views.push(ReservationView {
                    session: *session,
                    style: rsb.wanted.style,
                    senders: rsb.wanted.filters.clone(),
                    asked: rsb.wanted.tspec,
                    reserved: state.installed.get(&at).map(|installed| installed.tspec),
                    key: key_of(session, &at, self.config.name(at.interface)),
                    next_hop: remote.then_some(key.next_hop),
                    interface: remote.then_some(key.interface),
                    changing: rsb.waiting.is_some(),
                    expires: self.timers.at(Timer::ResvExpires(*session, *key)),
                });
            }
        }
        views
    }

    /// The neighbours that were heard.
    pub fn neighbours(&self) -> Vec<NeighbourView> {
        let view = |(interface, address, heard): (u32, IpAddr, u64)| {
            let requests = self.requests_of.get(&address).copied().unwrap_or(0);
            NeighbourView { interface, address, heard, requests }
        };
        self.rates.heard().map(view).collect()
    }

    /// How many sessions there are.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }
}
