//! The reservations of the running links: one table for each link whose policy has a class for
//! them.
//!
//! A table first makes its changes in the trial of its link, like subscribers, so the loop gets
//! only changes that its engine accepts. Rules of reservations are tried before those of
//! subscribers, and these before those of the policy.
//!
//! There is no clock here: the caller gives the time.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use altq_config::{Class, Link, Path, Span};
use altq_engine::Change;
use altq_engine::classify::{Order, Rule, RuleSet};
use altq_engine::settings::{Limit, Settings};
use altq_engine::spec::{ClassId, ClassSpec, QueueSpec, ROOT, SpecError};
use altq_engine::units::{Nanos, SECOND};
use altq_reserve::{Answer, Apply, Event, Op, Place, Reply, Request, State, Table};

use super::{Changes, Roster, Tree, without_gaps};
use crate::fault::Fault;
use crate::journal::{gone, saved};
use crate::reply::Body;
use crate::reservations::{Again, Places, Said, Told};

/// The most events that are kept for clients that have not received them yet.
const KEPT: usize = 4096;
/// How long to wait after the engine has refused to end reservations.
const AGAIN: Nanos = SECOND;

/// The time of two clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// The loop's clock, in nanoseconds. It never goes backwards.
    pub now: Nanos,
    /// The time since the boot, in nanoseconds. It goes on while the host sleeps, and nobody can
    /// set it.
    pub boot: u64,
}

/// The outcome of an operation, and what the caller must do with it.
#[derive(Debug, Default)]
pub struct Done<T> {
    /// The result for the client.
    pub result: T,
    /// The changes that the loops must make.
    pub changes: Changes,
    /// Lines for the supervisor's [journal](crate::journal).
    pub notes: Vec<u8>,
    /// Messages for the log, one line each.
    pub said: Vec<String>,
}

impl<T> Done<T> {
    fn with<U>(self, result: U) -> Done<U> {
        Done { result, changes: self.changes, notes: self.notes, said: self.said }
    }
}

/// The reservations of a link.
pub(super) struct Reserved {
    pub table: Table,
    /// How many events of the table have been added to the news.
    told: u64,
    /// True if the link has changed since the table got its place.
    pub outdated: bool,
    /// Before this time the engine is not asked again to end reservations that are over.
    not_before: Nanos,
}

impl Reserved {
    /// An empty table for a link. `None` if the policy has no class for reservations, or the kernel
    /// executes the link.
    pub fn of(link: &Link) -> Option<Box<Reserved>> {
        let place = Some(link).filter(|link| link.path() != Some(Path::Kernel)).and_then(Place::of)?;
        Some(Reserved::with(place.without_rules()))
    }

    /// An empty table for this place.
    pub fn with(place: Place) -> Box<Reserved> {
        Box::new(Reserved { table: Table::new(place), told: 0, outdated: false, not_before: 0 })
    }

    /// When the table has something to do next.
    fn due(&self) -> Option<Nanos> {
        if self.outdated {
            return Some(0);
        }
        self.table.next_deadline().map(|deadline| deadline.max(self.not_before))
    }
}

/// What reservations hold in the tree of a link.
#[derive(Default)]
pub(super) struct Booked {
    pub classes: BTreeSet<ClassId>,
    /// Their rules, which are tried before all others.
    pub rules: Vec<Rule>,
    /// The most bytes that their queues can hold in all, and how many are allowed.
    pub held: u64,
    pub room: u64,
    /// True if a class has been made that has no name yet.
    unnamed: bool,
}

impl Booked {
    pub fn of(link: &Link) -> Booked {
        Booked { room: link.reservation_room(), ..Booked::default() }
    }
}

/// Events, as lines for clients that watch.
#[derive(Default)]
pub(super) struct News {
    lines: VecDeque<Vec<u8>>,
    /// The number of the next event.
    next: u64,
}

impl News {
    fn push(&mut self, link: &str, event: &Event) {
        let told = Told { event: Event { seq: self.next, ..event.clone() }, link };
        if self.lines.len() == KEPT {
            self.lines.pop_front();
        }
        // It fails only for maps with keys that are not text, of which there are none.
        let mut line = serde_json::to_vec(&told).unwrap_or_default();
        line.push(b'\n');
        self.lines.push_back(line);
        self.next += 1;
    }
}

impl Roster {
    /// The number of the next event.
    pub fn coming(&self) -> u64 {
        self.news.next
    }

    /// The events from number `from` on, one line each, up to about `most` bytes; and the number of
    /// the event after them. Events that are no longer kept are left out.
    pub fn news(&self, from: u64, most: usize) -> (Body, u64) {
        let first = self.news.next - self.news.lines.len() as u64;
        let (mut at, mut lines) = (from.max(first), Vec::new());
        let skipped = usize::try_from(at - first).unwrap_or(usize::MAX);
        for line in self.news.lines.iter().skip(skipped) {
            if lines.len() >= most {
                break;
            }
            lines.extend_from_slice(line);
            at += 1;
        }
        (Body::from(lines), at)
    }

    /// Number of reservations.
    pub fn reservations(&self) -> usize {
        self.tables().map(|(_, table)| table.reservations().count()).sum()
    }

    /// When [`expire`](Roster::expire) has something to do next, by the loop's clock.
    pub fn due(&self) -> Option<Nanos> {
        self.links.iter().filter_map(|tree| tree.reserved.as_ref()?.due()).min()
    }

    /// Ends the reservations whose time is over, and updates tables whose links have changed.
    pub fn expire(&mut self, at: Time) -> Done<()> {
        let mut done = Done::default();
        for index in 0..self.links.len() {
            if self.links[index].reserved.as_ref().and_then(|reserved| reserved.due()).is_some_and(|due| due <= at.now)
            {
                self.settle(index, at, &mut done);
            }
        }
        done
    }

    /// Carries out a client's request. A refused request changes nothing.
    ///
    /// # Errors
    /// The reservations of the previous process are not restored yet.
    pub fn reserve(&mut self, at: Time, asked: &Request) -> Result<Done<Said>, Fault> {
        self.all_there(at.now)?;
        self.awaited = None;
        let mut done = Done::default();
        if matches!(asked.op, Op::List | Op::Watch) {
            return Ok(self.list(at, asked, done));
        }
        let index = match self.table_of(asked).and_then(|index| self.only_key(at.now, index, asked).map(|()| index)) {
            Ok(index) => index,
            Err(why) => return Ok(done.with(Said::Answer(Box::new(Answer::refusing(asked, why))))),
        };
        self.settle(index, at, &mut done);
        let mut steps = Vec::new();
        let tree = &mut self.links[index];
        let reply = tree.with_table(&mut steps, |table, apply| table.handle(at.now, asked, apply));
        let answer = match reply {
            Some(Reply::Answer(answer)) => *answer,
            _ => Answer::refusing(asked, "this link has no class for reservations"),
        };
        let there = answer.id.filter(|_| answer.granted && asked.op != Op::Del);
        if let Some((id, reserved)) = there.zip(tree.reserved.as_ref())
            && let Some(there) = reserved.table.get(id)
        {
            done.notes.extend(saved(&tree.link.name, there.saved(at.now, at.boot)));
        }
        done.make(&tree.link.name, steps);
        self.tell(index, &mut done);
        Ok(done.with(Said::Answer(Box::new(answer))))
    }

    /// Restores reservations of the previous process, except those that are here already. With
    /// `last`, clients are answered from now on.
    pub fn restore(&mut self, at: Time, state: Option<&State>, last: bool) -> Done<Again> {
        if last {
            self.awaited = None;
        }
        let mut done = Done::default();
        let Some(state) = state else { return done.with(Again::default()) };
        let ids: Vec<u64> = state.reservations.iter().map(|there| there.id).collect();
        let none =
            |why: &str| Again { refused: ids.iter().map(|id| (*id, why.to_owned())).collect(), ..Again::default() };
        let index = self.links.iter().position(|tree| tree.link.name == state.link && tree.reserved.is_some());
        let Some(index) = index else {
            // A later policy may have a class for reservations again.
            if let Some(tree) = self.links.iter_mut().find(|tree| tree.link.name == state.link) {
                tree.next = tree.next.max(state.next_id);
            }
            done.notes.extend(ids.iter().flat_map(|id| gone(&state.link, *id)));
            let why = format!("no link `{}` runs here that has a class for reservations", state.link);
            return done.with(none(&why));
        };
        self.settle(index, at, &mut done);
        let mut steps = Vec::new();
        let tree = &mut self.links[index];
        // What is sent again, because no answer came, may be here.
        let here = |id: u64| tree.reserved.as_ref().is_some_and(|there| there.table.get(id).is_some());
        let reservations = state.reservations.iter().filter(|one| !here(one.id)).cloned().collect();
        let state = &State { form: state.form, link: state.link.clone(), next_id: state.next_id, reservations };
        let again = tree.with_table(&mut steps, |table, apply| table.restore(at.now, at.boot, state, apply));
        done.make(&tree.link.name, steps);
        let again = match again {
            Some(Ok(again)) => Again::from(again),
            Some(Err(why)) => none(&why),
            None => none("this link has no class for reservations"),
        };
        for id in &ids {
            if tree.reserved.as_ref().is_none_or(|reserved| reserved.table.get(*id).is_none()) {
                done.notes.extend(gone(&state.link, *id));
            }
        }
        self.tell(index, &mut done);
        done.with(again)
    }

    /// The link as the policy has it, without classes of subscribers and reservations.
    pub fn written(&self, name: &str) -> Option<Arc<Link>> {
        self.links.iter().find(|tree| tree.link.name == name).map(|tree| tree.policy.clone())
    }

    fn tables(&self) -> impl Iterator<Item = (&Arc<Link>, &Table)> {
        self.links.iter().filter_map(|tree| Some((&tree.link, &tree.reserved.as_ref()?.table)))
    }

    fn list(&mut self, at: Time, asked: &Request, mut done: Done<()>) -> Done<Said> {
        let mut places = Vec::new();
        for index in 0..self.links.len() {
            self.settle(index, at, &mut done);
            let Some(reserved) = &self.links[index].reserved else { continue };
            if reserved.table.place().answers_to(asked.within_class.as_deref()) {
                places.push(reserved.table.list(at.now));
            }
        }
        done.with(Said::Places(Places { places }))
    }

    /// The index of the link whose table a request means; or why there is none.
    fn table_of(&self, asked: &Request) -> Result<usize, String> {
        let within = asked.within_class.as_deref();
        let all = self.links.iter().enumerate().filter_map(|(at, tree)| Some((at, &tree.reserved.as_ref()?.table)));
        let named: Vec<(usize, &Table)> = all.clone().filter(|(_, table)| table.place().answers_to(within)).collect();
        if let [(index, _)] = named[..] {
            return Ok(index);
        }
        let places: Vec<String> = all.map(|(_, table)| format!("`{}`", table.place().path())).collect();
        let places = places.join(", ");
        if named.is_empty() {
            let link = within.and_then(|within| within.split_once('/')).map(|(link, _)| link);
            let by_kernel =
                |tree: &&Tree| Some(tree.link.name.as_str()) == link && tree.link.path() == Some(Path::Kernel);
            return Err(match (self.links.iter().find(by_kernel), within) {
                (Some(tree), _) => format!(
                    "the kernel executes link `{}`, so it takes no reservations; leave `path kernel` out of the link",
                    tree.link.name
                ),
                _ if places.is_empty() => {
                    "no link that runs here has a class for reservations; write `reservations` in a class".to_owned()
                }
                (None, Some(within)) => format!("no reservations go below `{within}`; they go below {places}"),
                (None, None) => format!("reservations go below {places}"),
            });
        }
        // A key belongs to one reservation across all links.
        let key = asked.key.as_deref();
        match named.iter().find(|(_, table)| key.is_some_and(|key| table.of_key(key).is_some())) {
            Some((index, _)) => Ok(*index),
            None if key.is_some() && asked.op != Op::Add => Err("there is no such reservation".to_owned()),
            None => Err(format!("several classes take reservations: `within_class` says which of {places}")),
        }
    }

    /// Checks that a key that `add` would put into the table of a link is in no other table. One
    /// whose time is over no longer counts.
    fn only_key(&self, now: Nanos, index: usize, asked: &Request) -> Result<(), String> {
        let Some(key) = asked.key.as_deref().filter(|_| asked.op == Op::Add) else { return Ok(()) };
        let others = self.links.iter().enumerate().filter(|(at, _)| *at != index);
        let holds = |tree: &Tree| {
            let there = tree.reserved.as_ref().and_then(|reserved| reserved.table.of_key(key));
            there.is_some_and(|there| there.deadline.is_none_or(|deadline| deadline > now))
        };
        match others.map(|(_, tree)| tree).find(|tree| holds(tree)) {
            Some(tree) => Err(format!(
                "link `{}` has a reservation with the key `{key}` already; end that one first, or take another key",
                tree.link.name
            )),
            None => Ok(()),
        }
    }

    /// Whether a reservation has this key.
    pub fn has_key(&self, key: &str) -> bool {
        self.tables().any(|(_, table)| table.of_key(key).is_some())
    }

    /// Updates a table if its link has changed, and ends the reservations whose time is over.
    pub(super) fn settle(&mut self, index: usize, at: Time, done: &mut Done<()>) {
        let tree = &mut self.links[index];
        let Some(reserved) = &tree.reserved else { return };
        let mut steps = Vec::new();
        let mut refused = None;
        if reserved.outdated {
            let place = tree.place();
            let followed = tree.with_table(&mut steps, |table, apply| match place {
                Some(place) => table.set_place(at.now, place, apply),
                None => table.preempt(at.now, "the policy has no class for reservations any more", apply),
            });
            refused = followed.and_then(Result::err);
            if let Some(reserved) = &mut tree.reserved {
                reserved.outdated = false;
            }
        }
        let ended = tree.with_table(&mut steps, |table, apply| table.expire(at.now, apply));
        if let Some(Err(error)) = ended {
            refused.get_or_insert(error);
            if let Some(reserved) = &mut tree.reserved {
                reserved.not_before = at.now.saturating_add(AGAIN);
            }
        }
        if let Some(error) = refused {
            done.said.push(format!("link {}: reservations: the engine refused a change: {error}", tree.link.name));
        }
        done.make(&tree.link.name, steps);
        self.tell(index, done);
        let tree = &mut self.links[index];
        if tree.reserved.is_some() && tree.link.reservations.is_none() {
            tree.drop_table();
        }
    }

    /// Adds the new events of a table to the news, and notes which reservations have ended.
    pub(super) fn tell(&mut self, index: usize, done: &mut Done<()>) {
        let tree = &mut self.links[index];
        let Some(reserved) = &mut tree.reserved else { return };
        let name = &tree.link.name;
        for id in reserved.table.take_ended() {
            done.notes.extend(gone(name, id));
        }
        let (missed, events) = reserved.table.events_since(reserved.told);
        // Clients that watch see by the numbers that events are missing.
        self.news.next += missed;
        if missed > 0 {
            self.news.lines.clear();
        }
        let mut told = reserved.told + missed;
        for event in events {
            told = event.seq + 1;
            self.news.push(name, event);
        }
        reserved.told = told;
    }
}

impl Done<()> {
    /// Adds changes of a link.
    fn make(&mut self, link: &str, steps: Vec<Change>) {
        if !steps.is_empty() {
            self.changes.push((link.to_owned(), steps));
        }
    }
}

impl Tree {
    /// Removes the table. A later one continues with its numbers.
    pub(super) fn drop_table(&mut self) {
        if let Some(gone) = self.reserved.take() {
            self.next = self.next.max(gone.table.next_id());
        }
    }

    /// Marks that the link has changed since its table got its place.
    pub(super) fn outdate(&mut self) {
        if let Some(reserved) = &mut self.reserved {
            reserved.outdated = true;
        }
    }

    /// All rules with their places, in the order in which they are tried: those of reservations, of
    /// subscribers, and of the policy.
    pub(super) fn all_rules(&self, of_reservations: &[Rule]) -> (RuleSet, Vec<Span>) {
        let own = of_reservations.len() + self.leading.len();
        if own == 0 {
            return (self.rules.clone(), self.spans.clone());
        }
        let (mut rules, mut spans) = (of_reservations.to_vec(), vec![Span::default(); own]);
        rules.extend_from_slice(&self.leading);
        for at in self.rules.tried() {
            rules.extend(self.rules.rules.get(at as usize).cloned());
            spans.push(self.spans.get(at as usize).copied().unwrap_or_default());
        }
        (RuleSet { rules, order: Order::First, interfaces: self.rules.interfaces.clone() }, spans)
    }

    /// Calls `work` with the table of the link. Its changes are made in the trial and in the link,
    /// and are added to `steps`.
    fn with_table<T>(
        &mut self,
        steps: &mut Vec<Change>,
        work: impl FnOnce(&mut Table, &mut Apply<'_>) -> T,
    ) -> Option<T> {
        let mut reserved = self.reserved.take()?;
        let result = work(&mut reserved.table, &mut |change: &Change| self.book(change, steps));
        if std::mem::take(&mut self.booked.unnamed) {
            let link = Arc::make_mut(&mut self.link);
            for there in reserved.table.reservations() {
                if let Some(class) = link.classes.get_mut(there.class as usize).filter(|class| class.name != there.name)
                {
                    class.name.clone_from(&there.name);
                }
            }
        }
        self.reserved = Some(reserved);
        Some(result)
    }

    /// Makes a change of a table in trial and link, if there is room for it.
    fn book(&mut self, change: &Change, steps: &mut Vec<Change>) -> Result<Option<ClassId>, SpecError> {
        let mut change = change.clone();
        let mut places = None;
        if let Change::SetRules { rules, .. } = &mut change {
            let own = std::mem::take(&mut rules.rules);
            let (all, spans) = self.all_rules(&own);
            *rules = all;
            places = Some((own, spans));
        }
        let held = self.held_with(&change)?;
        let made = self.trial.apply(0, &change)?;
        self.booked.held = held;
        self.write(&change, made, places);
        steps.push(change);
        Ok(made)
    }

    /// The most bytes that the queues of reservations can hold in all after a change.
    fn held_with(&self, change: &Change) -> Result<u64, SpecError> {
        let before = |class: ClassId| {
            let there = self.link.spec.classes.get(class as usize).filter(|_| self.booked.classes.contains(&class));
            there.map_or(0, |spec| bytes(spec.queue.as_ref()))
        };
        let (less, more) = match change {
            Change::AddClass(spec) => (0, bytes(spec.queue.as_ref())),
            Change::SetQueue { class, queue } => (before(*class), bytes(Some(queue))),
            Change::RemoveClass { class, .. } => (before(*class), 0),
            _ => (0, 0),
        };
        let (held, room) = (self.booked.held.saturating_sub(less).saturating_add(more), self.booked.room);
        if held > room && more > less {
            let message = format!("the queues of reservations would hold {held} bytes, and there is room for {room}");
            return Err(
                SpecError::new(message).help("ask for smaller packets or bursts, or give the class more buffer")
            );
        }
        Ok(held)
    }

    /// Writes a change that the trial has made into the link.
    fn write(&mut self, change: &Change, made: Option<ClassId>, places: Option<(Vec<Rule>, Vec<Span>)>) {
        let link = Arc::make_mut(&mut self.link);
        match change {
            Change::AddClass(spec) => {
                let Some(class) = made else { return };
                while link.spec.classes.len() <= class as usize {
                    link.spec.classes.push(ClassSpec::root());
                    link.classes.push(Class::default());
                }
                link.spec.classes[class as usize] = spec.clone();
                link.classes[class as usize] = Class::default();
                self.booked.classes.insert(class);
                self.booked.unnamed = true;
            }
            Change::SetClass { class, parent, settings } => {
                if let Some(spec) = link.spec.classes.get_mut(*class as usize) {
                    (spec.parent, spec.settings) = (*parent, settings.clone());
                }
            }
            Change::SetQueue { class, queue } => {
                if let Some(spec) = link.spec.classes.get_mut(*class as usize) {
                    spec.queue = Some(queue.clone());
                }
            }
            Change::RemoveClass { class, .. } => {
                blank(link, *class);
                self.booked.classes.remove(class);
            }
            Change::SetRules { rules, .. } => {
                link.spec.rules = rules.clone();
                if let Some((own, spans)) = places {
                    link.rules = spans;
                    self.booked.rules = own;
                }
            }
            // Tables make no such changes.
            Change::SetScheduler { .. } | Change::SetRate(_) | Change::SetRegulator(_) => {}
        }
    }

    /// The place for reservations of this link, computed from the link without its reservations and
    /// with only the policy's own rules.
    pub(super) fn place(&self) -> Option<Place> {
        let mut link = Link::clone(&self.link);
        (link.spec.rules, link.rules) = (self.rules.clone(), self.spans.clone());
        for class in &self.booked.classes {
            blank(&mut link, *class);
        }
        let (base, numbers) = without_gaps(&link);
        let place = Place::of(&base).map(Place::without_rules)?;
        Some(place.renumbered(|class| numbers.get(class as usize).copied().unwrap_or(ROOT)))
    }
}

/// Removes a class from a link. Its number stays, unused.
fn blank(link: &mut Link, class: ClassId) {
    let at = class as usize;
    if let (Some(spec), Some(named)) = (link.spec.classes.get_mut(at), link.classes.get_mut(at)) {
        *spec = ClassSpec::new(ROOT, Settings::new());
        *named = Class::default();
    }
}

/// The most bytes that the queue of a reservation can hold.
fn bytes(queue: Option<&QueueSpec>) -> u64 {
    match queue.map(|queue| queue.limit) {
        Some(Limit::Bytes(bytes)) => u64::from(bytes),
        Some(Limit::Packets(_)) | None => 0,
    }
}

#[cfg(test)]
pub(in crate::roster) mod tests;
