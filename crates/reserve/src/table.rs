//! The reservations of a link: soft state, by number, key, owner, flow and deadline.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use altq_engine::Change;
use altq_engine::spec::{ClassId, SpecError};
use altq_engine::units::Nanos;

use crate::events::{Event, Events, Happened};
use crate::flow::Flow;
use crate::install::{self, Apply, Step};
use crate::message::{Excess, List, Listed, seconds};
use crate::place::Place;
use crate::room::{Asked, Held, Refusal, Room};
use crate::tspec::Tspec;

/// A reservation.
#[derive(Clone, Debug, PartialEq)]
pub struct Reservation {
    /// Its number, which no other reservation ever gets.
    pub id: u64,
    /// The name that its owner gave it.
    pub key: Option<String>,
    /// Its owner.
    pub owner: Option<String>,
    /// The name of its class.
    pub name: String,
    /// Its class in the engine.
    pub class: ClassId,
    /// Its rate, burst and packet sizes.
    pub tspec: Tspec,
    /// The flows that belong to it.
    pub flows: Vec<Flow>,
    /// What becomes of packets beyond rate and burst.
    pub excess: Excess,
    /// The longest wait of a conforming packet that its owner asked for.
    pub delay: Option<Nanos>,
    /// How long it lasts after a refresh; `None`: until its owner gives it up.
    pub ttl: Option<Nanos>,
    /// When it ends, on the caller's clock.
    pub deadline: Option<Nanos>,
    pub(crate) held: Held,
}

impl Reservation {
    /// What the link charges for it, in bit/s.
    pub fn charged(&self) -> u64 {
        self.held.charged
    }

    pub(crate) fn asked(&self) -> Asked<'_> {
        Asked { owner: self.owner.as_deref(), tspec: &self.tspec, excess: self.excess, delay: self.delay }
    }

    pub(crate) fn expires_s(&self, now: Nanos) -> Option<f64> {
        self.deadline.map(|deadline| seconds(deadline.saturating_sub(now)))
    }
}

/// The reservations of a link.
///
/// `now` is any clock that never goes backwards, in nanoseconds.
pub struct Table {
    pub(crate) room: Room,
    /// The number of the next reservation.
    pub(crate) next: u64,
    pub(crate) by_id: BTreeMap<u64, Reservation>,
    pub(crate) keys: HashMap<String, u64>,
    /// The reservation of each flow. A flow can belong to only one: the engine tries rules in turn,
    /// so a second one would never match.
    flows: HashMap<Flow, u64>,
    pub(crate) deadlines: BTreeSet<(Nanos, u64)>,
    pub(crate) events: Events,
    /// Classes of ended reservations that the engine has refused to remove, and what they hold.
    left: Vec<(ClassId, Held)>,
    /// How many requests to add or to modify were refused, by the word of the reason.
    pub(crate) refused: BTreeMap<&'static str, u64>,
}

impl Table {
    /// A table without reservations.
    pub fn new(place: Place) -> Table {
        Table {
            room: Room::new(place),
            next: 1,
            by_id: BTreeMap::new(),
            keys: HashMap::new(),
            flows: HashMap::new(),
            deadlines: BTreeSet::new(),
            events: Events::default(),
            left: Vec::new(),
            refused: BTreeMap::new(),
        }
    }

    /// The policy's class for reservations.
    pub fn place(&self) -> &Place {
        &self.room.place
    }

    /// The reservations, by number.
    pub fn reservations(&self) -> impl Iterator<Item = &Reservation> {
        self.by_id.values()
    }

    /// The reservation of a number.
    pub fn get(&self, id: u64) -> Option<&Reservation> {
        self.by_id.get(&id)
    }

    /// The reservation of a key.
    pub fn of_key(&self, key: &str) -> Option<&Reservation> {
        self.by_id.get(self.keys.get(key)?)
    }

    /// The longest wait of a conforming packet of a reservation, in nanoseconds, as `altq check`
    /// computes it; `None` if there is no bound.
    pub fn wait(&self, id: u64) -> Option<Nanos> {
        self.room.wait(&self.by_id.get(&id)?.held)
    }

    /// The events from number `from` on, and how many of them are no longer kept.
    pub fn events_since(&self, from: u64) -> (u64, impl Iterator<Item = &Event>) {
        self.events.since(from)
    }

    /// The reservations that have ended since the last call. Of events only the last ones are kept;
    /// these are all.
    pub fn take_ended(&mut self) -> Vec<u64> {
        self.events.take_ended()
    }

    /// When [`expire`](Table::expire) next has something to do.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// How many classes of ended reservations the engine has refused to remove. They keep their
    /// room, and every request and every call of [`expire`](Table::expire) tries again to remove
    /// them.
    pub fn unremoved(&self) -> usize {
        self.left.len()
    }

    /// Ends the reservations whose time is over, and returns their number.
    ///
    /// # Errors
    /// The engine refused the rules. Then all reservations stay as they were. A class that it does
    /// not remove is not an error ([`unremoved`](Table::unremoved)).
    pub fn expire(&mut self, now: Nanos, apply: &mut Apply<'_>) -> Result<usize, SpecError> {
        let heir = self.room.place.default;
        for (class, held) in std::mem::take(&mut self.left) {
            self.remove_class(class, held, heir, apply);
        }
        let due = self.deadlines.iter().take_while(|(deadline, _)| *deadline <= now);
        let over: Vec<(u64, Happened, Option<String>)> = due.map(|(_, id)| (*id, Happened::Expired, None)).collect();
        if over.is_empty() {
            return Ok(0);
        }
        self.end(now, &over, apply).map(|()| over.len())
    }

    /// Ends all reservations, because the policy no longer has a class for them.
    ///
    /// # Errors
    /// What the engine refused. If it refused the rules, all reservations stay as they were.
    pub fn preempt(&mut self, now: Nanos, why: &str, apply: &mut Apply<'_>) -> Result<(), SpecError> {
        let all = self.by_id.keys().map(|id| (*id, Happened::Preempted, Some(why.to_owned())));
        let all: Vec<(u64, Happened, Option<String>)> = all.collect();
        self.end(now, &all, apply)
    }

    /// Ends several reservations: first all their rules are removed, then their classes. Packets
    /// that wait in them move to the default class; if it has no room for them, or there is none,
    /// they are dropped.
    pub(crate) fn end(
        &mut self,
        now: Nanos,
        over: &[(u64, Happened, Option<String>)],
        apply: &mut Apply<'_>,
    ) -> Result<(), SpecError> {
        apply(&self.rules(&over.iter().map(|(id, ..)| *id).collect()))?;
        let heir = self.room.place.default;
        for (id, happened, why) in over {
            let Some(gone) = self.take_out(*id) else { continue };
            self.events.push(now, *happened, &gone, why.clone());
            self.remove_class(gone.class, gone.held, heir, apply);
        }
        Ok(())
    }

    /// Removes the class of an ended reservation, and frees its room. If the engine keeps the
    /// class, it still has its guarantee, so its room stays taken.
    pub(crate) fn remove_class(&mut self, class: ClassId, held: Held, heir: Option<ClassId>, apply: &mut Apply<'_>) {
        match apply(&Change::RemoveClass { class, heir }) {
            Ok(_) => self.room.give_back(&held),
            Err(_) => self.left.push((class, held)),
        }
    }

    /// The reservations for which another place has no room, and why:
    /// [`set_place`](Table::set_place) would end them.
    pub fn misfits(&self, place: Place) -> Vec<(u64, String)> {
        let mut room = Room::new(place);
        self.left.iter().for_each(|(_, held)| room.take(held));
        let mut misfits = Vec::new();
        for there in self.by_id.values() {
            match room.ask(&there.asked(), None) {
                Ok(held) => room.take(&held),
                Err(refusal) => misfits.push((there.id, refusal.reason)),
            }
        }
        misfits
    }

    /// Takes over a changed policy, after the engine has changed. Reservations for which the new
    /// place has no room are ended; those of lower numbers are kept first. The others get the words
    /// that follow from the new place, and last no longer than it allows. The rules of the policy
    /// and of the reservations are set anew.
    ///
    /// # Errors
    /// What the engine refused. If it refused the rules, nothing has changed. If it refused the
    /// words or the queue of a class, that reservation holds what it held before.
    pub fn set_place(&mut self, now: Nanos, place: Place, apply: &mut Apply<'_>) -> Result<(), SpecError> {
        let mut room = Room::new(place);
        self.left.iter().for_each(|(_, held)| room.take(held));
        let (mut kept, mut gone, mut without) = (Vec::new(), Vec::new(), HashSet::new());
        for there in self.by_id.values() {
            match room.ask(&there.asked(), None) {
                Ok(held) => {
                    room.take(&held);
                    kept.push((there.id, held));
                }
                Err(refusal) => {
                    without.insert(there.id);
                    gone.push((there.id, refusal.reason));
                }
            }
        }
        let before = std::mem::replace(&mut self.room, room);
        if let Err(error) = apply(&self.rules(&without)) {
            self.room = before;
            return Err(error);
        }
        let mut refused = None;
        for (id, held) in kept {
            let Some(there) = self.by_id.get_mut(&id) else { continue };
            let (ended, charged, class) = (there.deadline, there.held.charged, there.class);
            let mut steps = Vec::new();
            if held.settings != there.held.settings || self.room.place.id != before.place.id {
                let change = install::words(&self.room.place, class, &held);
                let back = Some(install::words(&before.place, class, &there.held));
                steps.push(Step { change, back });
            }
            if held.limit != there.held.limit {
                let change = Change::SetQueue { class, queue: install::queue(&held) };
                steps.push(Step { change, back: None });
            }
            match install::all(apply, steps) {
                Ok(()) => there.held = held,
                Err(error) => {
                    // The class has not changed, so it holds the same room as before.
                    self.room.give_back(&held);
                    self.room.take(&there.held);
                    refused.get_or_insert(error);
                }
            }
            there.ttl = self.room.place.ttl(there.ttl);
            let latest = there.ttl.map(|ttl| now.saturating_add(ttl));
            let deadline = there.deadline.into_iter().chain(latest).min();
            if deadline != there.deadline {
                self.deadlines.extend(deadline.map(|deadline| (deadline, id)));
                if let Some(before) = std::mem::replace(&mut there.deadline, deadline) {
                    self.deadlines.remove(&(before, id));
                }
            }
            if is_sooner(ended, deadline) || there.held.charged != charged {
                self.events.push(now, Happened::Changed, there, Some("the policy has changed".to_owned()));
            }
        }
        for (id, why) in gone {
            let Some(gone) = self.take_out(id) else { continue };
            self.events.push(now, Happened::Preempted, &gone, Some(why));
            // Its class keeps its room until it is removed.
            self.room.take(&gone.held);
            self.remove_class(gone.class, gone.held, self.room.place.default, apply);
        }
        refused.map_or(Ok(()), Err)
    }

    /// The list of all reservations.
    pub fn list(&self, now: Nanos) -> List {
        let place = &self.room.place;
        let one = |there: &Reservation| Listed {
            id: there.id,
            key: there.key.clone(),
            owner: there.owner.clone(),
            class: there.name.clone(),
            tspec: there.tspec,
            charged_bit_s: there.charged(),
            excess: there.excess,
            delay_ns: there.delay,
            expires_s: there.expires_s(now),
            flows: there.flows.clone(),
        };
        List {
            schema: "altq.reservations/1",
            link: place.link.clone(),
            class: place.class.clone(),
            mtu_bytes: place.mtu,
            overhead: place.overhead.into(),
            reservable_bit_s: place.reservable,
            charged_bit_s: self.room.charged(),
            buffer_bytes: place.buffer,
            burst_bytes: self.room.bursts(),
            refused: self.refused.clone(),
            reservations: self.by_id.values().map(one).collect(),
        }
    }

    /// The time to live that was asked for, limited to what the policy allows.
    pub(crate) fn ttl(&self, asked: Option<Nanos>) -> Option<Nanos> {
        self.room.place.ttl(asked)
    }

    /// The number of a new reservation, and the name of its class.
    pub(crate) fn number(&self) -> (u64, String) {
        let mut id = self.next;
        loop {
            // The policy has finitely many names, so this ends.
            match self.room.place.name(id) {
                Some(name) => return (id, name),
                None => id += 1,
            }
        }
    }

    /// Checks that no reservation except `but` has one of these flows.
    pub(crate) fn free(&self, flows: &[Flow], but: Option<u64>) -> Result<(), Refusal> {
        for flow in flows {
            if let Some(id) = self.flows.get(flow).filter(|id| Some(**id) != but) {
                return Err(Refusal::because(format!("the flow {flow} has reservation {id} already")));
            }
        }
        Ok(())
    }

    /// Makes the class of a reservation.
    pub(crate) fn make_class(&self, held: &Held, apply: &mut Apply<'_>) -> Result<ClassId, Refusal> {
        match apply(&Change::AddClass(install::class(&self.room.place, held))) {
            Ok(Some(class)) => Ok(class),
            Ok(None) => Err(Refusal::coded(Refusal::SYSTEM, "the engine gave the new class no number")),
            Err(error) => Err(Refusal::system(&error)),
        }
    }

    /// The change that sets the rules of all reservations except `without`, and those of the
    /// policy.
    pub(crate) fn rules(&self, without: &HashSet<u64>) -> Change {
        let there = self.by_id.values().filter(|there| !without.contains(&there.id));
        let flows = there.flat_map(|there| there.flows.iter().map(move |flow| (flow, there.class)));
        install::rules(&self.room.place, flows)
    }

    /// Adds a reservation to the table, and takes its room.
    pub(crate) fn put_in(&mut self, reservation: Reservation) {
        self.room.take(&reservation.held);
        let id = reservation.id;
        if let Some(key) = &reservation.key {
            self.keys.insert(key.clone(), id);
        }
        for flow in &reservation.flows {
            self.flows.insert(flow.clone(), id);
        }
        if let Some(deadline) = reservation.deadline {
            self.deadlines.insert((deadline, id));
        }
        self.by_id.insert(id, reservation);
    }

    /// Removes a reservation from the table. Its room stays taken.
    pub(crate) fn take_out(&mut self, id: u64) -> Option<Reservation> {
        let gone = self.by_id.remove(&id)?;
        if let Some(key) = &gone.key {
            self.keys.remove(key);
        }
        for flow in &gone.flows {
            self.flows.remove(flow);
        }
        if let Some(deadline) = gone.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        Some(gone)
    }

    /// Whether a reservation with this number, this key or one of these flows exists.
    pub(crate) fn clashes(&self, id: u64, key: Option<&String>, flows: &[Flow]) -> bool {
        let key = key.is_some_and(|key| self.keys.contains_key(key));
        key || self.by_id.contains_key(&id) || flows.iter().any(|flow| self.flows.contains_key(flow))
    }
}

/// Whether a deadline is earlier than before. `None` is never.
pub(crate) fn is_sooner(before: Option<Nanos>, after: Option<Nanos>) -> bool {
    after.is_some_and(|after| before.is_none_or(|before| after < before))
}
