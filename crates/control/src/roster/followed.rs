//! Replaces the running policy by another one. Subscribers and reservations stay.
//!
//! The target of a link is its new policy with the classes and rules of subscribers and
//! reservations. The changes that lead there are first made in the trial of the link
//! ([`Roster::prepare`]). After that the caller can still write to disk that they will come. Then
//! it has them made ([`Roster::commit`]) or taken back ([`Roster::abandon`]).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use altq_config::{Class, Link, Path, Transition, renumbered, transition};
use altq_engine::classify::{Order, Rule, RuleSet};
use altq_engine::schedule;
use altq_engine::spec::{ClassId, ClassSpec, ROOT};
use altq_engine::units::Rate;
use altq_reserve::Place;

use super::reserved::{Done, Reserved, Time};
use super::{Person, Roster, Tree, of_engine, packets, rule};
use crate::fault::Fault;
use crate::journal::{gone, note, saved};
use crate::request::{BULK, Request, Subscriber};
use crate::words::{Reader, scheduler_below};

/// How many of the subscribers and reservations that do not fit a message names.
const NAMED: usize = 10;

/// Links that are ready to replace the running ones. Their changes are already made in the trials,
/// so they must be committed or abandoned before the roster is asked for anything else.
#[must_use]
pub struct Prepared {
    links: Vec<(usize, Ready)>,
    /// Subscribers that lose their classes.
    evicted: BTreeSet<String>,
    /// The number of changes that the engines get.
    count: usize,
}

impl Prepared {
    /// The number of changes that the engines of the links get.
    pub fn changes(&self) -> usize {
        self.count
    }
}

/// What replaces a link's tree.
enum Ready {
    /// The same tree with these changes.
    Changed(Box<Followed>),
    /// A new tree: the kernel executes the link.
    New(Box<Tree>),
}

struct Followed {
    policy: Arc<Link>,
    /// The target, with the numbers that its classes will have.
    link: Link,
    transition: Transition,
    /// True if all its reservations end.
    without_table: bool,
}

/// The target of a link, with class numbers of its own: the policy's classes come first.
struct Target {
    link: Link,
    /// The number of each class of subscribers and reservations.
    people: BTreeMap<String, ClassId>,
    booked: HashMap<ClassId, ClassId>,
}

/// Subscribers that do not fit, and why.
type Misfits = BTreeMap<String, String>;

impl Roster {
    /// Prepares to replace the links of the same names. Subscribers and reservations stay. With
    /// `evict`, those that no longer fit lose their classes.
    ///
    /// # Errors
    /// What only a new start can change; or, without `evict`, the subscribers and reservations that
    /// do not fit. Then nothing has changed.
    pub fn prepare(&mut self, links: Vec<Arc<Link>>, evict: bool) -> Result<Prepared, Fault> {
        self.prepare_with(links, evict, false)
    }

    /// Like [`prepare`](Roster::prepare), but a rate that was [set](Roster::set_rate) while a link
    /// runs stays if its policy before and the new one write the same rate.
    ///
    /// # Errors
    /// Those of `prepare`.
    pub fn prepare_keeping_rates(&mut self, links: Vec<Arc<Link>>, evict: bool) -> Result<Prepared, Fault> {
        self.prepare_with(links, evict, true)
    }

    fn prepare_with(&mut self, links: Vec<Arc<Link>>, evict: bool, keep: bool) -> Result<Prepared, Fault> {
        let places: Vec<(usize, Arc<Link>)> =
            links.into_iter().map(|link| Ok((self.place(&link.name)?, link))).collect::<Result<_, Fault>>()?;
        let mut misfits = Misfits::new();
        for (index, link) in &places {
            self.find_misfits(*index, link, &mut misfits);
        }
        let mut said: Vec<String> = misfits.iter().map(|(id, why)| format!("subscriber {id}: {why}")).collect();
        let evicted: BTreeSet<String> = misfits.into_keys().collect();
        // The links, their targets, and whether their reservations stay.
        let mut planned = Vec::with_capacity(places.len());
        for (index, link) in places {
            let tree = &self.links[index];
            if link.path() == Some(Path::Kernel) {
                planned.push((index, link, None));
                continue;
            }
            let people = self.people.values().filter(|person| !evicted.contains(&person.asked.id));
            let mut target = tree.target(index, &link, people)?;
            if keep && link.spec.rate == tree.policy.spec.rate {
                target.link.spec.rate = tree.link.spec.rate;
            }
            let (lost, stay) = tree.lose(&target.link);
            let place = &tree.link.name;
            said.extend(lost.into_iter().map(|(id, why)| format!("reservation {id} of link {place}: {why}")));
            if stay {
                tree.book_into(&mut target);
            }
            tree.rules_into(&mut target, &self.people);
            planned.push((index, link, Some((target, !stay))));
        }
        if !said.is_empty() && !evict {
            return Err(would_not_fit(&said));
        }
        let mut prepared = Prepared { links: Vec::with_capacity(planned.len()), evicted, count: 0 };
        for (index, policy, target) in planned {
            let ready = match target {
                None => Tree::new(policy.clone()).map(|tree| Ready::New(Box::new(tree))).map_err(|e| of_engine(&e)),
                Some((target, without_table)) => self.links[index].make_target(policy.clone(), target, without_table),
            };
            match ready {
                Ok(ready) => {
                    if let Ready::Changed(followed) = &ready {
                        prepared.count += followed.transition.changes.len();
                    }
                    prepared.links.push((index, ready));
                }
                Err(fault) => {
                    self.abandon(prepared);
                    return Err(fault);
                }
            }
        }
        Ok(prepared)
    }

    /// Checks that the running links could replace the prepared ones again, so that the change can
    /// be taken back.
    ///
    /// # Errors
    /// What only a new start can change.
    pub fn can_return(&mut self, prepared: &Prepared) -> Result<(), Fault> {
        for (index, ready) in &prepared.links {
            let (Ready::Changed(followed), Some(tree)) = (ready, self.links.get_mut(*index)) else { continue };
            let (before, _) = super::without_gaps(&tree.link);
            let back = transition(&mut tree.trial, &followed.link, &before).map_err(|what| {
                let fault = Fault::refused(format!("link `{}`: there would be no way back: {what}", before.name));
                fault.help("change it in smaller steps, or without a time in which it is to be confirmed")
            })?;
            for change in &back.undo {
                let done = tree.trial.apply(0, change);
                debug_assert!(done.is_ok(), "{change:?}: {done:?}");
            }
        }
        Ok(())
    }

    /// Takes back what was prepared. Nothing has changed then.
    pub fn abandon(&mut self, prepared: Prepared) {
        for (index, ready) in prepared.links.into_iter().rev() {
            if let (Ready::Changed(followed), Some(tree)) = (ready, self.links.get_mut(index)) {
                for change in &followed.transition.undo {
                    let done = tree.trial.apply(0, change);
                    debug_assert!(done.is_ok(), "{change:?}: {done:?}");
                }
            }
        }
    }

    /// Replaces the running links by the prepared ones. The caller must make the returned changes
    /// in the loops.
    pub fn commit(&mut self, at: Time, prepared: Prepared) -> Done<()> {
        let mut done = Done::default();
        let mut settled = Vec::new();
        for (index, ready) in prepared.links {
            let Some(tree) = self.links.get_mut(index) else { continue };
            match ready {
                Ready::New(new) => {
                    tree.drop_table();
                    let next = tree.next;
                    *tree = *new;
                    tree.next = next;
                }
                Ready::Changed(followed) => {
                    let (name, without) = (followed.policy.name.clone(), followed.without_table);
                    let changes = tree.follow(*followed);
                    if !changes.is_empty() {
                        done.changes.push((name, changes));
                    }
                    if without {
                        self.end_table(index, at, &mut done);
                    }
                    settled.push(index);
                }
            }
            self.renumber_people(index, &prepared.evicted);
        }
        if !prepared.evicted.is_empty() {
            let ids: Vec<String> = prepared.evicted.into_iter().collect();
            ids.chunks(BULK).for_each(|ids| done.notes.extend(note(&Request::DeleteSubscribers(ids.to_vec()))));
            for id in &ids {
                done.said.push(format!("subscriber {id} does not fit into the policy, and has no class any more"));
            }
            // Removes their classes in the other links, and their rules.
            let (_, changes) = self.delete(&ids);
            done.changes.extend(changes);
        }
        for index in settled {
            self.settle(index, at, &mut done);
            let Some(tree) = self.links.get(index) else { continue };
            // The policy may let reservations last for less time than before.
            for there in tree.reserved.iter().flat_map(|reserved| reserved.table.reservations()) {
                done.notes.extend(saved(&tree.link.name, there.saved(at.now, at.boot)));
            }
        }
        done
    }

    /// [`prepare`](Roster::prepare) and [`commit`](Roster::commit) at once.
    ///
    /// # Errors
    /// Those of `prepare`.
    pub fn follow(&mut self, at: Time, links: Vec<Arc<Link>>, evict: bool) -> Result<Done<()>, Fault> {
        let prepared = self.prepare(links, evict)?;
        Ok(self.commit(at, prepared))
    }

    /// Finds the subscribers that have no room in a link of another policy.
    fn find_misfits(&self, index: usize, to: &Link, misfits: &mut Misfits) {
        let mut sums: HashMap<ClassId, u128> = HashMap::new();
        let (mut readers, names, mut held) = (HashMap::new(), names(to), 0_usize);
        for person in self.people.values() {
            let id = &person.asked.id;
            if misfits.contains_key(id) || !person.classes.iter().any(|(at, _)| *at == index) {
                continue;
            }
            let Some(asked) = person.asked.classes.iter().find(|place| place.link == to.name) else { continue };
            let read = class_of(to, &names, asked, id, &mut readers).and_then(|spec| {
                held = held.saturating_add(packets(&spec));
                if held > self.room {
                    return Err(format!("there is room for queues of {} packets since the start", self.room));
                }
                room_for(to, &spec, &mut sums)
            });
            if let Err(why) = read {
                misfits.insert(id.clone(), why);
            }
        }
    }

    /// Gives the classes of subscribers the numbers that they have in the new link. The classes of
    /// evicted subscribers are removed.
    fn renumber_people(&mut self, index: usize, evicted: &BTreeSet<String>) {
        let Some(tree) = self.links.get(index) else { return };
        let numbers = names(&tree.link);
        for (id, person) in &mut self.people {
            if evicted.contains(id) {
                person.classes.retain(|(at, _)| *at != index);
                continue;
            }
            for (_, class) in person.classes.iter_mut().filter(|(at, _)| *at == index) {
                *class = numbers.get(id.as_str()).copied().unwrap_or(*class);
            }
        }
    }

    /// Ends all reservations of a link, whose classes are gone already.
    fn end_table(&mut self, index: usize, at: Time, done: &mut Done<()>) {
        let why = "the policy has no room for it any more";
        let Some(tree) = self.links.get_mut(index) else { return };
        if let Some(reserved) = &mut tree.reserved {
            for there in reserved.table.reservations() {
                done.notes.extend(gone(&tree.link.name, there.id));
            }
            // The engine is not asked, so it cannot refuse.
            let _ = reserved.table.preempt(at.now, why, &mut |_| Ok(None));
            reserved.outdated = false;
        }
        self.tell(index, done);
        let Some(tree) = self.links.get_mut(index) else { return };
        tree.drop_table();
        tree.reserved = tree.new_table();
    }
}

impl Tree {
    /// The target for a link of another policy: its classes and those of subscribers.
    fn target<'p>(
        &self,
        index: usize,
        policy: &Link,
        people: impl Iterator<Item = &'p Person>,
    ) -> Result<Target, Fault> {
        let mut target = Target { link: policy.clone(), people: BTreeMap::new(), booked: HashMap::new() };
        let (mut readers, names) = (HashMap::new(), names(policy));
        for person in people.filter(|person| person.classes.iter().any(|(at, _)| *at == index)) {
            let id = &person.asked.id;
            let Some(asked) = person.asked.classes.iter().find(|place| place.link == policy.name) else { continue };
            let spec = class_of(policy, &names, asked, id, &mut readers).map_err(Fault::refused)?;
            target.people.insert(id.clone(), target.link.spec.classes.len() as ClassId);
            target.push(id, spec);
        }
        Ok(target)
    }

    /// The reservations that would end in another link, with the reasons; and whether the others
    /// can stay.
    fn lose(&self, to: &Link) -> (Vec<(u64, String)>, bool) {
        let Some(reserved) = self.reserved.as_ref().filter(|reserved| reserved.table.reservations().count() > 0) else {
            return (Vec::new(), self.reserved.is_some() && to.reservations.is_some());
        };
        let all = |why: &str| {
            let all = reserved.table.reservations().map(|there| (there.id, why.to_owned())).collect();
            (all, false)
        };
        let Some(place) = Place::of(to).map(Place::without_rules) else {
            return all("the policy has no class for reservations");
        };
        let (Some(old), Some(new)) = (&self.link.reservations, &to.reservations) else {
            return all("the policy has no class for reservations");
        };
        let holder = |link: &Link, class: ClassId| {
            let mut at = class;
            while at != ROOT && link.spec.classes.get(at as usize).is_some_and(|spec| spec.scheduler.is_none()) {
                at = link.spec.classes.get(at as usize).map_or(ROOT, |spec| spec.parent);
            }
            (scheduler_below(link, class).name, (at != ROOT).then(|| link.class_name(at).to_owned()))
        };
        if holder(&self.link, old.class) != holder(to, new.class) {
            return all("its class would belong to another scheduler");
        }
        if let Some(there) = reserved.table.reservations().find(|there| to.class(&there.name).is_some()) {
            return all(&format!("the policy has a class `{}`, which is the name of a reservation's", there.name));
        }
        (reserved.table.misfits(place), true)
    }

    /// Adds the classes of reservations to a target, unchanged.
    fn book_into(&self, target: &mut Target) {
        let Some(parent) = target.link.reservations.as_ref().map(|reservations| reservations.class) else { return };
        for class in &self.booked.classes {
            let Some(spec) = self.link.spec.classes.get(*class as usize) else { continue };
            target.booked.insert(*class, target.link.spec.classes.len() as ClassId);
            let name = self.link.class_name(*class).to_owned();
            target.push(&name, ClassSpec { parent, ..spec.clone() });
        }
    }

    /// Puts the rules of reservations and subscribers before those of the policy.
    fn rules_into(&self, target: &mut Target, people: &BTreeMap<String, Person>) {
        let booked = self.booked.rules.iter().filter_map(|rule| {
            let class = *target.booked.get(&rule.class)?;
            Some(Rule { class, ..rule.clone() })
        });
        let subscribers = target.people.iter().filter_map(|(id, class)| {
            let asked: &Subscriber = &people.get(id)?.asked;
            Some(rule(asked, *class))
        });
        let mut rules: Vec<Rule> = booked.chain(subscribers).collect();
        if rules.is_empty() {
            return;
        }
        let (own, spans) = (&target.link.spec.rules, &target.link.rules);
        let mut places = vec![altq_config::Span::default(); rules.len()];
        for at in own.tried() {
            rules.extend(own.rules.get(at as usize).cloned());
            places.push(spans.get(at as usize).copied().unwrap_or_default());
        }
        let interfaces = own.interfaces.clone();
        (target.link.spec.rules, target.link.rules) = (RuleSet { rules, order: Order::First, interfaces }, places);
    }

    /// Makes the changes that lead to a target in the trial.
    fn make_target(&mut self, policy: Arc<Link>, target: Target, without_table: bool) -> Result<Ready, Fault> {
        let transition = transition(&mut self.trial, &self.link, &target.link).map_err(|what| {
            let fault = Fault::refused(format!("link `{}`: only a new start can change this: {what}", policy.name));
            fault.help("stop altq and start it with this policy; packets pass unshaped for a moment")
        })?;
        let link = renumbered(&target.link, &transition.numbers, self.trial.numbers());
        // The table of reservations knows its classes by number, so these numbers must stay.
        let stays = |(old, at): (&ClassId, &ClassId)| transition.numbers.get(*at as usize) == Some(old);
        if !target.booked.iter().all(stays) {
            for change in &transition.undo {
                let done = self.trial.apply(0, change);
                debug_assert!(done.is_ok(), "{change:?}: {done:?}");
            }
            let message = format!("link `{}`: the classes of its reservations would be made anew", policy.name);
            return Err(Fault::refused(message).help("keep the scheduler above the class for reservations as it is"));
        }
        Ok(Ready::Changed(Box::new(Followed { policy, link, transition, without_table })))
    }

    /// Takes over what was prepared. Returns the changes for the loop.
    fn follow(&mut self, followed: Followed) -> Vec<altq_engine::Change> {
        let Followed { policy, link, transition, without_table } = followed;
        let count = policy.classes.len();
        let own = transition.numbers.get(..count).unwrap_or_default();
        self.own = own.iter().copied().collect();
        let numbered = renumbered(&policy, own, 0);
        (self.rules, self.spans) = (numbered.spec.rules, numbered.rules);
        let classes: HashSet<ClassId> = if without_table {
            self.booked.classes.clear();
            self.booked.rules.clear();
            self.booked.held = 0;
            HashSet::new()
        } else {
            self.booked.classes.iter().copied().collect()
        };
        let mut leading = Vec::new();
        if link.spec.rules.rules.len() > self.rules.rules.len() {
            let own = link.spec.rules.rules.len() - self.rules.rules.len();
            let own = link.spec.rules.rules.iter().take(own);
            leading.extend(own.filter(|rule| !classes.contains(&rule.class)).cloned());
        }
        self.leading = leading;
        self.booked.room = policy.reservation_room();
        self.readers.clear();
        self.policy = policy;
        self.link = Arc::new(link);
        self.held = self.held_by_people();
        match &mut self.reserved {
            Some(reserved) => reserved.outdated = true,
            None => self.reserved = self.new_table(),
        }
        transition.changes
    }

    /// The most packets that the queues of all subscribers can hold.
    fn held_by_people(&self) -> usize {
        let classes = self.link.classes.iter().zip(&self.link.spec.classes).enumerate();
        let of_people = classes.filter(|(at, (class, _))| {
            let id = *at as ClassId;
            !class.name.is_empty() && !self.own.contains(&id) && !self.booked.classes.contains(&id)
        });
        of_people.map(|(_, (_, spec))| packets(spec)).sum()
    }

    /// A table for the reservations of the link as it is now. It gives no number again that a table
    /// before it has given.
    fn new_table(&self) -> Option<Box<Reserved>> {
        if self.link.path() == Some(Path::Kernel) {
            return None;
        }
        let mut new = self.place().map(Reserved::with)?;
        new.table.continue_at(self.next);
        Some(new)
    }
}

impl Target {
    fn push(&mut self, name: &str, spec: ClassSpec) {
        self.link.spec.classes.push(spec);
        self.link.classes.push(Class { name: name.to_owned(), ..Class::default() });
    }
}

/// The classes of a link by name.
fn names(link: &Link) -> HashMap<&str, ClassId> {
    let named = link.classes.iter().enumerate().filter(|(_, class)| !class.name.is_empty());
    named.map(|(at, class)| (class.name.as_str(), at as ClassId)).collect()
}

/// The class of a subscriber in a link of another policy; or why it cannot have one.
fn class_of(
    to: &Link,
    names: &HashMap<&str, ClassId>,
    asked: &crate::request::Place,
    id: &str,
    readers: &mut HashMap<ClassId, Reader>,
) -> Result<ClassSpec, String> {
    let parent = match &asked.within {
        None => names.get(super::PARENT).copied().unwrap_or(ROOT),
        Some(name) => {
            let found = names.get(name.as_str()).copied();
            found.ok_or_else(|| format!("the link `{}` has no class `{name}` any more", to.name))?
        }
    };
    if names.contains_key(id) {
        return Err(format!("the policy has a class of this name in the link `{}`", to.name));
    }
    let reader = readers.entry(parent).or_insert_with(|| Reader::new(to, to.spec.rate, parent));
    reader.class(parent, &asked.gets).map_err(|fault| fault.message)
}

/// Adds the guarantee of a class to the sum below its parent. An error if the parent does not have
/// so much.
fn room_for(to: &Link, spec: &ClassSpec, sums: &mut HashMap<ClassId, u128>) -> Result<(), String> {
    let parent = spec.parent;
    let entry = schedule::find(scheduler_below(to, parent).name);
    let own = entry.and_then(|entry| (entry.guarantee)(&spec.settings)).unwrap_or_default();
    let before = *sums.entry(parent).or_insert_with(|| {
        let below = to.spec.classes.iter().enumerate().skip(1).filter(|(_, spec)| spec.parent == parent);
        below.map(|(at, _)| u128::from(to.guarantee(at as ClassId).unwrap_or(Rate::ZERO).as_bit_s())).sum()
    });
    let sum = before + u128::from(own.as_bit_s());
    let unbounded = to.overcommit || entry.is_some_and(|entry| entry.adds_up_itself);
    let whole = to.capacity(parent).map(|whole| u128::from(whole.as_bit_s())).filter(|_| !unbounded);
    if let Some(whole) = whole.filter(|whole| sum > *whole && sum > before) {
        let name = to.class_name(parent);
        return Err(format!("the classes below `{name}` would be guaranteed {sum} bit/s of its {whole} bit/s"));
    }
    sums.insert(parent, sum);
    Ok(())
}

/// The fault that subscribers and reservations, of which each line names one, do not fit.
pub(crate) fn would_not_fit(said: &[String]) -> Fault {
    let mut named = said.iter().take(NAMED).cloned().collect::<Vec<String>>().join("; ");
    if said.len() > NAMED {
        named += &format!("; and {} more", said.len() - NAMED);
    }
    Fault::refused(format!("what came while altq ran would not fit: {named}"))
        .help("leave room for them in the policy, or take their classes away with --evict")
}

#[cfg(test)]
mod tests;
