//! Carries out requests in the table and in the engine.

use std::collections::HashSet;

use altq_engine::Change;
use altq_engine::units::Nanos;

use crate::events::Happened;
use crate::install::{self, Apply, Step};
use crate::message::{Answer, Op, Reply, Request, Service};
use crate::place::Place;
use crate::room::{Asked, Refusal};
use crate::table::{Reservation, Table, is_sooner};

impl Table {
    /// Carries out a request, and makes the changes in the engine. Reservations whose time is over
    /// are ended first. A refused request changes nothing, neither here nor in the engine.
    pub fn handle(&mut self, now: Nanos, request: &Request, apply: &mut Apply<'_>) -> Reply {
        // If the engine refuses to end them, they stay, and are ended with the next request.
        let _ = self.expire(now, apply);
        match request.op {
            Op::List => Reply::List(self.list(now)),
            Op::Watch => Reply::Watching { from: self.events.coming() },
            Op::Add | Op::Modify | Op::Refresh | Op::Del => {
                let answer = self.answer(now, request, apply);
                if !answer.granted && matches!(request.op, Op::Add | Op::Modify) {
                    let word = Refusal::word(answer.rsvp_code.zip(answer.rsvp_value));
                    *self.refused.entry(word).or_default() += 1;
                }
                Reply::Answer(Box::new(answer))
            }
        }
    }

    fn answer(&mut self, now: Nanos, request: &Request, apply: &mut Apply<'_>) -> Answer {
        let plain = Answer::to(request);
        if let Err(why) = request.check() {
            return plain.refused(Refusal::because(why));
        }
        if !self.room.place.answers_to(request.within_class.as_deref()) {
            let Place { link, class, .. } = &self.room.place;
            return plain.refused(Refusal::because(format!("reservations of the link `{link}` go below `{class}`")));
        }
        let found = match self.find(request) {
            Ok(found) => found,
            Err(refusal) => return plain.refused(refusal),
        };
        if request.service == Some(Service::Guaranteed) {
            let answer = found.and_then(|id| self.standing(now, id, request)).unwrap_or(plain);
            let why = "guaranteed service (RFC 2212) is not offered; controlled-load (RFC 2211) is";
            return answer.refused(Refusal::coded(Refusal::SERVICE, why));
        }
        match (request.op, found) {
            (Op::Add, None) => self.add(now, request, apply),
            (Op::Add | Op::Modify, Some(id)) => self.modify(now, id, request, apply),
            (Op::Refresh, Some(id)) => self.refresh(now, id, request),
            (Op::Del, Some(id)) => self.del(now, id, apply),
            _ => plain.refused(Refusal::because("there is no such reservation; a `key` or an `id` says which")),
        }
    }

    /// The reservation that a request means, if it exists.
    fn find(&self, request: &Request) -> Result<Option<u64>, Refusal> {
        let id = match (&request.key, request.id) {
            (Some(key), _) => self.keys.get(key).copied(),
            (None, Some(id)) if request.op != Op::Add => Some(id),
            _ => None,
        };
        let Some(reservation) = id.and_then(|id| self.by_id.get(&id)) else { return Ok(None) };
        if request.owner.is_some() && request.owner != reservation.owner {
            return Err(Refusal::because("the reservation belongs to another owner"));
        }
        Ok(Some(reservation.id))
    }

    /// An answer with the present values of a reservation.
    fn standing(&self, now: Nanos, id: u64, request: &Request) -> Option<Answer> {
        let there = self.by_id.get(&id)?;
        Some(Answer {
            id: Some(id),
            key: there.key.clone(),
            owner: there.owner.clone(),
            class: Some(there.name.clone()),
            expires_s: there.expires_s(now),
            ..Answer::to(request)
        })
    }

    fn granted(&self, now: Nanos, there: &Reservation) -> Answer {
        Answer {
            granted: true,
            id: Some(there.id),
            key: there.key.clone(),
            owner: there.owner.clone(),
            class: Some(there.name.clone()),
            rate_bit_s: Some(there.tspec.rate_bit_s),
            charged_bit_s: Some(there.charged()),
            expires_s: there.expires_s(now),
            ..Answer::to(&Request::new(Op::List))
        }
    }

    fn add(&mut self, now: Nanos, request: &Request, apply: &mut Apply<'_>) -> Answer {
        let answer = Answer::to(request);
        let (Some(tspec), Some(flows)) = (request.tspec, request.flows.clone()) else {
            return answer.refused(Refusal::because("a new reservation needs `flows` and `tspec`"));
        };
        if let Err(refusal) = self.free(&flows, None) {
            return answer.refused(refusal);
        }
        let excess = request.excess.unwrap_or_default();
        let asked = Asked { owner: request.owner.as_deref(), tspec: &tspec, excess, delay: request.delay_ns };
        let held = match self.room.ask(&asked, None) {
            Ok(held) => held,
            Err(refusal) => return answer.refused(refusal),
        };
        let (id, name) = self.number();
        let class = match self.make_class(&held, apply) {
            Ok(class) => class,
            Err(refusal) => return answer.refused(refusal),
        };
        let ttl = self.ttl(request.ttl());
        let made = Reservation {
            id,
            key: request.key.clone(),
            owner: request.owner.clone(),
            name,
            class,
            tspec,
            flows,
            excess,
            delay: request.delay_ns,
            ttl,
            deadline: ttl.map(|ttl| now.saturating_add(ttl)),
            held,
        };
        let answer_granted = self.granted(now, &made);
        self.put_in(made.clone());
        if let Err(error) = apply(&self.rules(&HashSet::new())) {
            self.take_out(id);
            // The class can be removed: no rule leads to it, and it has no packets.
            self.remove_class(class, made.held, None, apply);
            return answer.refused(Refusal::system(&error));
        }
        self.next = id + 1;
        self.events.push(now, Happened::Granted, &made, None);
        answer_granted
    }

    fn modify(&mut self, now: Nanos, id: u64, request: &Request, apply: &mut Apply<'_>) -> Answer {
        let (Some(old), Some(answer)) = (self.by_id.get(&id).cloned(), self.standing(now, id, request)) else {
            return Answer::to(request);
        };
        // If only other values are asked for, the old timer goes on. A second `add` starts it anew,
        // like RSVP's refreshes.
        let restarts = request.ttl_s.is_some() || request.op == Op::Add;
        let ttl = if request.ttl_s.is_some() { self.ttl(request.ttl()) } else { old.ttl };
        let mut new = Reservation {
            tspec: request.tspec.unwrap_or(old.tspec),
            flows: request.flows.clone().unwrap_or_else(|| old.flows.clone()),
            excess: request.excess.unwrap_or(old.excess),
            delay: request.delay_ns.or(old.delay),
            ttl,
            deadline: if restarts { ttl.map(|ttl| now.saturating_add(ttl)) } else { old.deadline },
            ..old.clone()
        };
        if let Err(refusal) = self.free(&new.flows, Some(id)) {
            return answer.refused(refusal);
        }
        new.held = match self.room.ask(&new.asked(), Some(&old.held)) {
            Ok(held) => held,
            Err(refusal) => return answer.refused(refusal),
        };
        if let Err(error) = install::all(apply, self.steps(&old, &new)) {
            return answer.refused(Refusal::system(&error));
        }
        self.take_out(id);
        self.room.give_back(&old.held);
        let same = (&old.tspec, &old.flows, old.excess, old.delay) == (&new.tspec, &new.flows, new.excess, new.delay);
        let answer = self.granted(now, &new);
        if !same || is_sooner(old.deadline, new.deadline) {
            self.events.push(now, Happened::Changed, &new, None);
        }
        self.put_in(new);
        answer
    }

    /// The changes from the class and the rules of one reservation to those of another. A shorter
    /// queue comes last, because the packets that it drops cannot be brought back.
    fn steps(&self, old: &Reservation, new: &Reservation) -> Vec<Step> {
        let (place, class) = (&self.room.place, old.class);
        let mut steps = Vec::new();
        if new.held.settings != old.held.settings {
            let back = Some(install::words(place, class, &old.held));
            steps.push(Step { change: install::words(place, class, &new.held), back });
        }
        if new.flows != old.flows {
            let rules = |of: &Reservation| {
                let flows = self.by_id.values().flat_map(move |there| {
                    let there = if there.id == of.id { of } else { there };
                    there.flows.iter().map(move |flow| (flow, there.class))
                });
                install::rules(place, flows)
            };
            steps.push(Step { change: rules(new), back: Some(rules(old)) });
        }
        if new.held.limit != old.held.limit {
            steps.push(Step { change: Change::SetQueue { class, queue: install::queue(&new.held) }, back: None });
        }
        steps
    }

    fn refresh(&mut self, now: Nanos, id: u64, request: &Request) -> Answer {
        let asked = request.ttl_s.is_some().then(|| self.ttl(request.ttl()));
        let Some(there) = self.by_id.get_mut(&id) else { return Answer::to(request) };
        let before = there.deadline;
        there.ttl = asked.unwrap_or(there.ttl);
        there.deadline = there.ttl.map(|ttl| now.saturating_add(ttl));
        if let Some(before) = before {
            self.deadlines.remove(&(before, id));
        }
        if let Some(deadline) = there.deadline {
            self.deadlines.insert((deadline, id));
        }
        let there = there.clone();
        if is_sooner(before, there.deadline) {
            self.events.push(now, Happened::Changed, &there, None);
        }
        self.granted(now, &there)
    }

    fn del(&mut self, now: Nanos, id: u64, apply: &mut Apply<'_>) -> Answer {
        let Some(there) = self.by_id.get(&id).cloned() else { return Answer::to(&Request::new(Op::Del)) };
        let answer = Answer { expires_s: None, ..self.granted(now, &there) };
        match self.end(now, &[(id, Happened::Deleted, None)], apply) {
            Ok(()) => answer,
            Err(error) => answer.refused(Refusal::system(&error)),
        }
    }
}
