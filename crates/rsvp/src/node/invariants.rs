//! What holds after every call. Tests and the fuzzer check it after each step.

use std::collections::BTreeMap;

use super::Node;
use super::state::{LOCAL, State};
use super::timing::Timer;
use crate::wire::{Session, Style};

/// Fails with a sentence unless a condition holds.
fn must(holds: bool, session: &Session, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("{session}: {what}")) }
}

impl Node {
    /// Checks that no state is without a timer and no timer without state, that requests have path
    /// state, that what traffic control has follows from requests, and that counts are right.
    ///
    /// # Errors
    /// A sentence on what does not hold.
    pub fn invariants(&self) -> Result<(), String> {
        let (mut requests, mut senders, mut of) = (0, 0, BTreeMap::new());
        for (session, state) in &self.sessions {
            must(!state.is_empty(), session, "a session without state")?;
            self.paths_hold(session, state)?;
            self.requests_hold(session, state)?;
            self.reservations_hold(session, state)?;
            requests += state.requests.len();
            senders += state.paths.len();
            for previous in state.paths.values().map(|psb| psb.previous).filter(|hop| hop.interface != LOCAL) {
                *of.entry(self.origin(previous.interface, previous.address)).or_insert(0) += 1;
            }
        }
        if senders != self.senders || of != self.senders_of {
            return Err(format!("{senders} senders, {of:?}, counted as {}, {:?}", self.senders, self.senders_of));
        }
        if requests != self.requests || requests != self.requests_of.values().sum::<usize>() {
            return Err(format!("{requests} requests, counted as {}", self.requests));
        }
        let limits = &self.config.limits;
        let full = self.sessions.len() > limits.sessions
            || senders > limits.paths
            || of.values().any(|of| *of > limits.paths_of_neighbour);
        if full || requests > limits.reservations {
            return Err("more state than the limits allow".into());
        }
        for timer in self.timers.all() {
            if !self.has_state(timer) {
                return Err(format!("a timer without state: {timer:?}"));
            }
        }
        Ok(())
    }

    fn paths_hold(&self, session: &Session, state: &State) -> Result<(), String> {
        must(state.paths.len() <= self.config.limits.senders, session, "more senders than allowed")?;
        for (sender, psb) in &state.paths {
            let refreshed = self.timers.is_set(Timer::PathRefresh(*session, *sender));
            must(refreshed, session, "a path without a refresh timer")?;
            let expires = self.timers.is_set(Timer::PathExpires(*session, *sender));
            must(expires == (psb.previous.interface != LOCAL), session, "a path's lifetime")?;
            must(psb.tspec.is_legal(), session, "a path with values out of range")?;
            must(psb.out != Some(psb.previous.interface) || psb.out == Some(LOCAL), session, "a path that turns back")?;
        }
        for sender in state.blockades.keys() {
            let ends = self.timers.is_set(Timer::BlockadeEnds(*session, *sender));
            must(ends && state.paths.contains_key(sender), session, "a blockade without end or path")?;
        }
        Ok(())
    }

    fn requests_hold(&self, session: &Session, state: &State) -> Result<(), String> {
        for (key, rsb) in &state.requests {
            let filters = &rsb.wanted.filters;
            must(filters.iter().any(|s| state.paths.contains_key(s)), session, "a request without path state")?;
            must(Some(rsb.wanted.style) == state.style(), session, "two styles")?;
            must(rsb.wanted.tspec.is_legal(), session, "a request with values out of range")?;
            let single = rsb.wanted.style == Style::Fixed;
            must(key.filter.is_some() == single && (!single || filters.len() == 1), session, "filters and style")?;
            let expires = self.timers.is_set(Timer::ResvExpires(*session, *key));
            must(expires == (key.interface != LOCAL), session, "a request's lifetime")?;
            let waits = self.timers.is_set(Timer::Change(*session, *key));
            must(waits == rsb.waiting.is_some(), session, "a change that waits, and its timer")?;
            let wish_waits = rsb.confirm_waiting.is_none() || rsb.waiting.is_some();
            must(wish_waits, session, "a wish for a confirmation of a change that is not there")?;
            must(rsb.confirm.is_none(), session, "a wish for a confirmation that was not answered")?;
        }
        Ok(())
    }

    fn reservations_hold(&self, session: &Session, state: &State) -> Result<(), String> {
        for (at, installed) in &state.installed {
            must(at.interface != LOCAL && !installed.filters.is_empty(), session, "a reservation of nothing")?;
            let requested = state.requests.keys().any(|key| key.installed() == *at);
            must(requested, session, "a reservation that nobody asked for")?;
            // A change that was refused leaves the old one, which may have a sender more.
            let live = installed.filters.iter().any(|sender| state.is_live(at.interface, sender));
            must(live, session, "a reservation where no packets go")?;
        }
        for key in state.requests.keys().filter(|key| key.interface != LOCAL) {
            let wanted = super::install::desired(state, key.installed(), None);
            let installed = state.installed.contains_key(&key.installed());
            must(wanted.is_none() || installed, session, "a request without its reservation")?;
        }
        for phop in state.upstream.keys() {
            let refreshed = self.timers.is_set(Timer::ResvRefresh(*session, *phop));
            must(refreshed && phop.interface != LOCAL, session, "a request upstream without a refresh timer")?;
        }
        Ok(())
    }

    /// Whether there is what a timer is for.
    fn has_state(&self, timer: Timer) -> bool {
        let of = |session: &Session| self.sessions.get(session);
        match timer {
            Timer::PathRefresh(session, sender) | Timer::PathExpires(session, sender) => {
                of(&session).is_some_and(|state| state.paths.contains_key(&sender))
            }
            Timer::Repair(session, sender) => of(&session).is_some_and(|state| state.paths.contains_key(&sender)),
            Timer::ResvRefresh(session, phop) => of(&session).is_some_and(|state| state.upstream.contains_key(&phop)),
            Timer::ResvExpires(session, key) | Timer::Change(session, key) => {
                of(&session).is_some_and(|state| state.requests.contains_key(&key))
            }
            Timer::BlockadeEnds(session, sender) => {
                of(&session).is_some_and(|state| state.blockades.contains_key(&sender))
            }
        }
    }
}
