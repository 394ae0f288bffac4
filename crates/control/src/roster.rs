//! The subscribers of a running policy: classes that come, change and go while packets are queued.
//!
//! Each link has a trial: an engine of the same link without packets. A change is made there first.
//! So the loop gets only changes that its engine accepts, and the class numbers are those that its
//! engine will give. A subscriber gets all of its classes or none.
//!
//! Reservations ([`reserved`]) are made in the same way.

pub mod followed;
mod owners;
pub mod reserved;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use altq_config::{Class, Link, Path, Span};
use altq_engine::classify::{Field, Rule, RuleSet, Term, Values};
use altq_engine::settings::{Limit, Settings};
use altq_engine::spec::{ClassId, ClassSpec, ROOT, SpecError};
use altq_engine::units::{Nanos, Rate};
use altq_engine::{Change, Engine};
use serde::{Deserialize, Serialize};

use crate::fault::{AGAIN, Code, Fault};
use crate::prefix::Prefix;
use crate::request::{Gets, Place, Subscriber};
use crate::words::{Reader, scheduler_below};
use owners::Owners;
use reserved::{Booked, News, Reserved};

/// The class below which subscribers' classes are made by default, if the link has it.
pub const PARENT: &str = "subscribers";

/// The shortest packet, in bytes. It gives the most packets in a queue whose limit is in bytes.
const SHORTEST: usize = 28;

/// The changes of each link, by the link's name, in the order in which they must be made.
pub type Changes = Vec<(String, Vec<Change>)>;

/// The outcome of a request about several subscribers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// How many were added, changed or removed.
    pub done: usize,
    /// How many were already as asked.
    pub unchanged: usize,
    /// Those that are refused, and why.
    pub failed: Vec<Failure>,
}

/// A subscriber that is refused. It stays as it was. Only among several that exchange addresses may
/// it have its new classes and keep its addresses; then the error says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Its name.
    pub id: String,
    /// Why.
    pub error: Fault,
}

/// The subscribers, and the links in which they have classes.
pub struct Roster {
    links: Vec<Tree>,
    people: BTreeMap<String, Person>,
    owners: Owners,
    /// The most packets that the queues of all subscribers may hold, in each link.
    room: usize,
    /// The events of reservations.
    news: News,
    /// Until when what the previous process had is waited for, by the loop's clock.
    awaited: Option<Nanos>,
}

/// A present subscriber.
struct Person {
    asked: Subscriber,
    /// Its classes: the index of the link, and the class.
    classes: Vec<(usize, ClassId)>,
}

/// A link in which subscribers have classes.
struct Tree {
    link: Arc<Link>,
    trial: Engine,
    /// The link as the policy has it.
    policy: Arc<Link>,
    /// The numbers of the policy's own classes.
    own: HashSet<ClassId>,
    /// The policy's own rules, which are tried after those of reservations and subscribers.
    rules: RuleSet,
    spans: Vec<Span>,
    /// The rules of subscribers.
    leading: Vec<Rule>,
    readers: HashMap<ClassId, Reader>,
    /// The most packets that the queues of all subscribers can hold.
    held: usize,
    /// The reservations, if the policy has a class for them.
    reserved: Option<Box<Reserved>>,
    /// The lowest number that the first reservation of the next table may get.
    next: u64,
    /// The classes and rules of reservations.
    booked: Booked,
}

/// What a request changes.
struct Work {
    steps: Vec<Vec<Change>>,
    gone: Vec<Vec<ClassId>>,
    /// By link: whether rules have changed.
    rules: Vec<bool>,
    /// The sum of the guarantees below a class, by link and class, as far as it was asked for.
    sums: HashMap<(usize, ClassId), u128>,
    /// Whether guarantees may be more than there is.
    unbounded: bool,
}

/// A class to be made or changed.
struct Planned {
    at: usize,
    old: Option<ClassId>,
    spec: ClassSpec,
    /// The sum of the guarantees below its parent, including its own.
    sum: u128,
}

impl Roster {
    /// A roster without subscribers. In each link their queues may hold `room` packets in all.
    ///
    /// # Errors
    /// That of a link that the engine refuses.
    pub fn new(links: impl IntoIterator<Item = Arc<Link>>, room: usize) -> Result<Roster, SpecError> {
        let links: Vec<Tree> = links.into_iter().map(Tree::new).collect::<Result<_, SpecError>>()?;
        let (people, owners) = (BTreeMap::new(), Owners::default());
        Ok(Roster { links, people, owners, room, news: News::default(), awaited: None })
    }

    /// A link as it is now, with the classes of subscribers. The number of a class that is gone has
    /// an empty name until another class takes it.
    pub fn link(&self, name: &str) -> Option<&Arc<Link>> {
        self.links.iter().map(|tree| &tree.link).find(|link| link.name == name)
    }

    /// An engine without packets that was asked for all that the loop of a link was.
    pub fn trial(&self, name: &str) -> Option<&Engine> {
        self.links.iter().find(|tree| tree.link.name == name).map(|tree| &tree.trial)
    }

    /// Number of subscribers.
    pub fn len(&self) -> usize {
        self.people.len()
    }

    /// True if there are no subscribers.
    pub fn is_empty(&self) -> bool {
        self.people.is_empty()
    }

    /// A subscriber as it is now.
    pub fn subscriber(&self, id: &str) -> Option<&Subscriber> {
        self.people.get(id).map(|person| &person.asked)
    }

    /// The subscribers, by name.
    pub fn subscribers(&self) -> impl Iterator<Item = &Subscriber> {
        self.people.values().map(|person| &person.asked)
    }

    /// Changes the rate of a link. Classes keep the rates that they have; percentages in the words
    /// of subscribers that come later are of the rate that the policy writes.
    ///
    /// # Errors
    /// There is no such link, or its engine refuses the rate.
    pub fn set_rate(&mut self, name: &str, rate: Rate) -> Result<Changes, Fault> {
        let at = self.place(name)?;
        let tree = &mut self.links[at];
        if tree.link.spec.rate == rate {
            return Ok(Vec::new());
        }
        let change = Change::SetRate(rate);
        tree.trial.apply(0, &change).map_err(|error| of_engine(&error))?;
        Arc::make_mut(&mut tree.link).spec.rate = rate;
        tree.outdate();
        Ok(vec![(name.to_owned(), vec![change])])
    }

    /// Adds or changes these subscribers. A subscriber that is already like this is not changed.
    pub fn set(&mut self, subscribers: Vec<Subscriber>) -> (Report, Changes) {
        self.set_all(subscribers, false)
    }

    /// Adds subscribers that a previous process had. They fit when they came, so their guarantees
    /// are not added up again: since then the rate of a link may have become lower.
    pub fn set_again(&mut self, subscribers: Vec<Subscriber>) -> (Report, Changes) {
        self.set_all(subscribers, true)
    }

    fn set_all(&mut self, subscribers: Vec<Subscriber>, unbounded: bool) -> (Report, Changes) {
        let (mut report, mut work) = (Report::default(), Work::new(self.links.len()));
        work.unbounded = unbounded;
        // One may take an address that another one gives up later in the request. So it is tried
        // again after the others, as long as that helps.
        let mut rest = subscribers;
        while !rest.is_empty() {
            let open: HashSet<String> = rest.iter().map(|one| one.id.clone()).collect();
            let (count, mut waiting) = (rest.len(), Vec::new());
            for subscriber in rest {
                if self.waits(&subscriber, &open) {
                    waiting.push(subscriber);
                } else {
                    self.set_or_say(subscriber, &mut work, &mut report);
                }
            }
            if waiting.len() == count {
                // They wait for each other, except those that are new: nobody waits for these.
                let (new, there): (Vec<Subscriber>, Vec<Subscriber>) =
                    waiting.into_iter().partition(|one| !self.people.contains_key(&one.id));
                self.exchange(there, &mut work, &mut report);
                new.into_iter().for_each(|one| self.set_or_say(one, &mut work, &mut report));
                break;
            }
            rest = waiting;
        }
        (report, self.finish(work))
    }

    /// Adds or changes a subscriber, and notes the outcome.
    fn set_or_say(&mut self, subscriber: Subscriber, work: &mut Work, report: &mut Report) {
        let id = subscriber.id.clone();
        match self.set_one(subscriber, work) {
            Ok(true) => report.done += 1,
            Ok(false) => report.unchanged += 1,
            Err(error) => report.failed.push(Failure { id, error }),
        }
    }

    /// True if one of these subscribers has an address that `asked` is to get.
    fn waits(&self, asked: &Subscriber, open: &HashSet<String>) -> bool {
        let owner = |prefix: &Prefix| self.owners.of(*prefix, |other| other == asked.id);
        asked.addresses.iter().filter_map(owner).any(|owner| open.contains(owner))
    }

    /// Changes subscribers of which each is to get an address that another one of them has. Whoever
    /// is refused keeps its addresses, so others may be refused for that.
    fn exchange(&mut self, group: Vec<Subscriber>, work: &mut Work, report: &mut Report) {
        let mut fitting = Vec::with_capacity(group.len());
        for asked in group {
            match self.plans(&asked, work) {
                Ok(_) => fitting.push(asked),
                Err(error) => report.failed.push(Failure { id: asked.id, error }),
            }
        }
        // First they get their classes. One that fits by itself may be refused here, because
        // several together do not. Another one may then have its new classes and keep its address.
        let (mut moving, mut changed) = (Vec::with_capacity(fitting.len()), HashSet::new());
        for asked in self.agreed(fitting, report) {
            let Some(person) = self.people.get(&asked.id) else { continue };
            let stays = Subscriber { addresses: person.asked.addresses.clone(), ..asked.clone() };
            match self.set_one(stays, work) {
                Ok(new) => {
                    if new {
                        changed.insert(asked.id.clone());
                    }
                    moving.push(asked);
                }
                Err(error) => report.failed.push(Failure { id: asked.id, error }),
            }
        }
        // Then they get their addresses, which cannot be refused any more.
        let refused_before = report.failed.len();
        let moving = self.agreed(moving, report);
        for failure in report.failed.iter_mut().skip(refused_before).filter(|one| changed.contains(&one.id)) {
            failure.error.message.push_str("; it has its new classes, and keeps its addresses");
        }
        for asked in &moving {
            if let Some(person) = self.people.get(&asked.id) {
                self.owners.forget(&person.asked);
            }
        }
        for asked in moving {
            self.owners.take(&asked);
            if let Some(person) = self.people.get_mut(&asked.id) {
                person.classes.iter().for_each(|(at, _)| work.rules[*at] = true);
                person.asked = asked;
                report.done += 1;
            }
        }
    }

    /// Those of these subscribers whose addresses nobody else has once all of them have given
    /// theirs up. The others are refused. No name is there twice.
    fn agreed(&mut self, group: Vec<Subscriber>, report: &mut Report) -> Vec<Subscriber> {
        for person in group.iter().filter_map(|one| self.people.get(&one.id)) {
            self.owners.forget(&person.asked);
        }
        let refused = self.refuse(&group, report);
        let stays = |(at, one): (usize, Subscriber)| (!refused.contains(&at)).then_some(one);
        let agreed: Vec<Subscriber> = group.into_iter().enumerate().filter_map(stays).collect();
        for person in agreed.iter().filter_map(|one| self.people.get(&one.id)) {
            self.owners.take(&person.asked);
        }
        agreed
    }

    /// Refuses those of a group that conflict, and returns their places. All of the group have
    /// given their addresses up; whoever is refused has its own again. If one before it is to get
    /// one of these, that one is looked at again, before all that follow, and is refused as well.
    /// So nobody is looked at more than twice.
    fn refuse(&mut self, group: &[Subscriber], report: &mut Report) -> HashSet<usize> {
        let places: HashMap<&str, (usize, &Subscriber)> =
            group.iter().enumerate().map(|(at, one)| (one.id.as_str(), (at, one))).collect();
        let mut open: BTreeMap<usize, &Subscriber> = group.iter().enumerate().collect();
        let (mut taken, mut refused) = (Owners::default(), HashSet::new());
        while let Some((at, one)) = open.pop_first() {
            let Some(error) = self.conflict(one, &taken) else {
                taken.take(one);
                continue;
            };
            refused.insert(at);
            report.failed.push(Failure { id: one.id.clone(), error });
            let Some(person) = self.people.get(&one.id) else { continue };
            self.owners.take(&person.asked);
            for prefix in &person.asked.addresses {
                while let Some(&(again, other)) = taken.of(*prefix, |_| false).and_then(|id| places.get(id.as_str())) {
                    taken.forget(other);
                    open.insert(again, other);
                }
            }
        }
        refused
    }

    /// Why a subscriber cannot get its addresses: somebody has one of them, or has `taken` it.
    fn conflict(&self, asked: &Subscriber, taken: &Owners) -> Option<Fault> {
        let owner = |prefix: &Prefix| self.owners.of(*prefix, |_| false).or_else(|| taken.of(*prefix, |_| false));
        asked.addresses.iter().find_map(|prefix| owner(prefix).map(|owner| owned(*prefix, owner)))
    }

    /// Those of these subscribers that have this address.
    pub fn at(&self, ids: &[String], addr: Prefix) -> Vec<String> {
        let has = |id: &&String| self.people.get(*id).is_some_and(|person| person.asked.addresses.contains(&addr));
        ids.iter().filter(has).cloned().collect()
    }

    /// From now on nothing about subscribers and reservations is answered until those of the
    /// previous process are here ([`restore`](Roster::restore)), or until this time.
    pub fn await_those_before(&mut self, until: Nanos) {
        self.awaited = Some(until);
    }

    /// Something of the previous process has come. More is awaited until this time.
    pub fn await_more(&mut self, until: Nanos) {
        self.awaited = self.awaited.and(Some(until));
    }

    /// Checks that all that the previous process had is here.
    ///
    /// # Errors
    /// It is not yet.
    pub fn all_there(&self, now: Nanos) -> Result<(), Fault> {
        if self.awaited.is_none_or(|until| until <= now) {
            return Ok(());
        }
        let fault = Fault::new(Code::Failed, "the subscribers and reservations of the worker before are not all here");
        Err(fault.help(AGAIN))
    }

    /// Removes these subscribers. Names that do not exist are ignored.
    pub fn delete(&mut self, ids: &[String]) -> (Report, Changes) {
        let (mut report, mut work) = (Report::default(), Work::new(self.links.len()));
        for id in ids {
            match self.people.remove(id) {
                None => report.unchanged += 1,
                Some(person) => {
                    report.done += 1;
                    self.owners.forget(&person.asked);
                    person.classes.iter().for_each(|(at, class)| work.goes(*at, *class));
                }
            }
        }
        (report, self.finish(work))
    }

    fn place(&self, name: &str) -> Result<usize, Fault> {
        self.links.iter().position(|tree| tree.link.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.links.iter().map(|tree| tree.link.name.as_str()).collect();
            Fault::usage(format!("no link `{name}` runs here")).help(format!("there is {}", names.join(", ")))
        })
    }

    /// Adds or changes a subscriber. True if something has changed.
    fn set_one(&mut self, asked: Subscriber, work: &mut Work) -> Result<bool, Fault> {
        let before = self.people.get(&asked.id);
        if before.is_some_and(|person| person.asked == asked) {
            return Ok(false);
        }
        let before: Vec<(usize, ClassId)> = before.map(|person| person.classes.clone()).unwrap_or_default();
        for prefix in &asked.addresses {
            if let Some(owner) = self.owners.of(*prefix, |other| other == asked.id) {
                return Err(owned(*prefix, owner));
            }
        }
        let planned = self.plans(&asked, work)?;
        let (mut steps, mut undo, mut classes) = (Vec::new(), Vec::new(), Vec::new());
        for plan in &planned {
            match self.links[plan.at].try_class(plan, &mut steps, &mut undo) {
                Ok(class) => classes.push((plan.at, class)),
                Err(error) => {
                    // In the reverse order, so that the trial will give the same numbers as before.
                    for (at, change) in undo.into_iter().rev() {
                        let _ = self.links[at].trial.apply(0, &change);
                    }
                    return Err(of_engine(&error));
                }
            }
        }
        // From here on nothing fails.
        for (plan, (at, class)) in planned.into_iter().zip(&classes) {
            let moved = plan.old.and_then(|old| self.links[*at].link.spec.classes.get(old as usize)).map(|c| c.parent);
            if let Some(parent) = moved {
                work.sums.remove(&(*at, parent));
            }
            work.sums.insert((*at, plan.spec.parent), plan.sum);
            self.links[*at].put(*class, &asked.id, plan.spec);
            work.rules[*at] = true;
        }
        for (at, change) in steps {
            work.steps[at].push(change);
        }
        for (at, class) in before.iter().filter(|(at, _)| classes.iter().all(|(other, _)| other != at)) {
            work.goes(*at, *class);
        }
        let id = asked.id.clone();
        if let Some(old) = self.people.remove(&id) {
            self.owners.forget(&old.asked);
        }
        self.owners.take(&asked);
        self.people.insert(id, Person { asked, classes });
        Ok(true)
    }

    /// Reads and checks the classes of a subscriber. Changes nothing.
    fn plans(&mut self, asked: &Subscriber, work: &mut Work) -> Result<Vec<Planned>, Fault> {
        let mut planned = Vec::with_capacity(asked.classes.len());
        for place in &asked.classes {
            let at = self.place(&place.link)?;
            let classes = self.people.get(&asked.id).map(|person| person.classes.as_slice()).unwrap_or_default();
            let old = classes.iter().find(|(link, _)| *link == at).map(|(_, class)| *class);
            planned.push(self.plan(at, old, &asked.id, place, work)?);
        }
        Ok(planned)
    }

    /// Reads and checks a class. Changes nothing.
    fn plan(
        &mut self,
        at: usize,
        old: Option<ClassId>,
        id: &str,
        place: &Place,
        work: &mut Work,
    ) -> Result<Planned, Fault> {
        let room = self.room;
        let tree = &mut self.links[at];
        if tree.link.path() == Some(Path::Kernel) {
            let fault =
                Fault::refused(format!("the kernel executes link `{}`, so it takes no subscribers", place.link));
            return Err(fault.help("leave `path kernel` out of the link, so that altq executes it"));
        }
        let parent = tree.parent(place)?;
        let spec = tree.read(parent, &place.gets)?;
        if tree.link.class(id).is_some_and(|class| Some(class) != old) {
            let fault = Fault::refused(format!("the link `{}` has a class `{id}`", place.link));
            return Err(fault.help("the class of a subscriber has its name; give it another one"));
        }
        let before = old.map_or(0, |old| tree.packets_of(old));
        let held = (tree.held - before.min(tree.held)).saturating_add(packets(&spec));
        if held > room {
            let message = format!("the queues of subscribers would hold {held} packets, and there is room for {room}");
            return Err(Fault::refused(message).help("start `altq run` with more `--subscribers`, or shorten queues"));
        }
        let before = work.sum(at, tree, parent);
        let stays = |old: &ClassId| tree.link.spec.classes.get(*old as usize).is_some_and(|c| c.parent == parent);
        let own = old.filter(stays).and_then(|old| tree.link.guarantee(old)).unwrap_or_default();
        let sum = before.saturating_sub(u128::from(own.as_bit_s())) + u128::from(tree.guarantee(&spec).as_bit_s());
        if let Some(whole) = tree.bound(parent).filter(|whole| sum > *whole && sum > before && !work.unbounded) {
            let name = tree.link.class_name(parent);
            let message = format!("the classes below `{name}` would be guaranteed {sum} bit/s of its {whole} bit/s");
            return Err(Fault::refused(message).help("lower a guarantee, or write `overcommit` in the link"));
        }
        Ok(Planned { at, old, spec, sum })
    }

    /// The changes of each link: first classes are made, then the rules that lead to them, then
    /// classes are removed to which no rule leads any more.
    fn finish(&mut self, work: Work) -> Changes {
        let mut changes = Vec::new();
        let all = work.steps.into_iter().zip(work.gone).zip(work.rules);
        for (at, ((mut steps, gone), rules)) in all.enumerate() {
            if !rules {
                continue;
            }
            let mut own: Vec<(&Subscriber, ClassId)> = Vec::new();
            for person in self.people.values() {
                let class = person.classes.iter().find(|(link, _)| *link == at);
                own.extend(class.map(|(_, class)| (&person.asked, *class)));
            }
            let leading: Vec<Rule> = own.into_iter().map(|(subscriber, class)| rule(subscriber, class)).collect();
            let tree = &mut self.links[at];
            tree.outdate();
            tree.lead(leading, &mut steps);
            for class in gone {
                tree.remove(class, &mut steps);
            }
            changes.push((tree.link.name.clone(), steps));
        }
        changes
    }
}

impl Work {
    fn new(links: usize) -> Work {
        let (steps, gone) = (vec![Vec::new(); links], vec![Vec::new(); links]);
        Work { steps, gone, rules: vec![false; links], sums: HashMap::new(), unbounded: false }
    }

    fn goes(&mut self, at: usize, class: ClassId) {
        self.gone[at].push(class);
        self.rules[at] = true;
    }

    /// The sum of the guarantees of the classes below a class.
    fn sum(&mut self, at: usize, tree: &Tree, parent: ClassId) -> u128 {
        *self.sums.entry((at, parent)).or_insert_with(|| {
            let (spec, names) = (&tree.link.spec, &tree.link.classes);
            let below = spec.classes.iter().zip(names).enumerate().skip(1);
            let below = below.filter(|(_, (class, named))| class.parent == parent && !named.name.is_empty());
            below.map(|(id, _)| u128::from(tree.link.guarantee(id as ClassId).unwrap_or_default().as_bit_s())).sum()
        })
    }
}

impl Tree {
    fn new(link: Arc<Link>) -> Result<Tree, SpecError> {
        let (trial, rules, spans) = (Engine::new(&link.spec)?, link.spec.rules.clone(), link.rules.clone());
        let (own, leading, readers) = ((0..link.classes.len() as ClassId).collect(), Vec::new(), HashMap::new());
        let (reserved, booked, policy) = (Reserved::of(&link), Booked::of(&link), link.clone());
        Ok(Tree { link, policy, own, trial, rules, spans, leading, readers, held: 0, reserved, next: 1, booked })
    }

    /// The parent of a subscriber's class.
    fn parent(&self, place: &Place) -> Result<ClassId, Fault> {
        let Some(name) = &place.within else { return Ok(self.link.class(PARENT).unwrap_or(ROOT)) };
        let class = self.link.class(name).filter(|class| self.own.contains(class));
        class.ok_or_else(|| Fault::usage(format!("the policy's link `{}` has no class `{name}`", place.link)))
    }

    fn read(&mut self, parent: ClassId, gets: &Gets) -> Result<ClassSpec, Fault> {
        // Percentages are of the rate that the policy writes, not of one that was set or adapts: so
        // the same words give the same class whenever they come, and again after a restart.
        let (link, rate) = (&self.link, self.policy.spec.rate);
        self.readers.entry(parent).or_insert_with(|| Reader::new(link, rate, parent)).class(parent, gets)
    }

    /// The rate that a class would be guaranteed by its words.
    fn guarantee(&self, spec: &ClassSpec) -> Rate {
        let entry = altq_engine::schedule::find(scheduler_below(&self.link, spec.parent).name);
        entry.and_then(|entry| (entry.guarantee)(&spec.settings)).unwrap_or_default()
    }

    /// The most that the classes below a class may be guaranteed in all; `None` if there is no
    /// bound here, because the link has `overcommit`, or because its scheduler checks curves
    /// instead of rates.
    fn bound(&self, parent: ClassId) -> Option<u128> {
        let entry = altq_engine::schedule::find(scheduler_below(&self.link, parent).name);
        if self.link.overcommit || entry.is_some_and(|entry| entry.adds_up_itself) {
            return None;
        }
        self.link.capacity(parent).map(|whole| u128::from(whole.as_bit_s()))
    }

    fn packets_of(&self, class: ClassId) -> usize {
        self.link.spec.classes.get(class as usize).map_or(0, packets)
    }

    /// Makes or changes a class in the trial, and notes the change and the one that undoes it.
    fn try_class(
        &mut self,
        plan: &Planned,
        steps: &mut Vec<(usize, Change)>,
        undo: &mut Vec<(usize, Change)>,
    ) -> Result<ClassId, SpecError> {
        let spec = &plan.spec;
        let Some(class) = plan.old else {
            let change = Change::AddClass(spec.clone());
            let made = self.trial.apply(0, &change)?;
            let class = made.ok_or_else(|| SpecError::new("the engine gave the class no number"))?;
            steps.push((plan.at, change));
            undo.push((plan.at, Change::RemoveClass { class, heir: None }));
            return Ok(class);
        };
        let Some(now) = self.link.spec.classes.get(class as usize) else {
            return Err(SpecError::new("the class is gone"));
        };
        let set = |of: &ClassSpec| Change::SetClass { class, parent: of.parent, settings: of.settings.clone() };
        if now.parent != spec.parent || now.settings != spec.settings {
            let change = set(spec);
            self.trial.apply(0, &change)?;
            steps.push((plan.at, change));
            undo.push((plan.at, set(now)));
        }
        if let (Some(before), Some(after)) = (&now.queue, &spec.queue)
            && before != after
        {
            let change = Change::SetQueue { class, queue: after.clone() };
            self.trial.apply(0, &change)?;
            steps.push((plan.at, change));
            undo.push((plan.at, Change::SetQueue { class, queue: before.clone() }));
        }
        Ok(class)
    }

    /// Writes a class into the link.
    fn put(&mut self, class: ClassId, name: &str, spec: ClassSpec) {
        let (at, packets) = (class as usize, packets(&spec));
        self.held = (self.held - self.packets_of_named(class).min(self.held)).saturating_add(packets);
        let link = Arc::make_mut(&mut self.link);
        let named = Class { name: name.to_owned(), ..Class::default() };
        // The engine gives the number after the highest one, or one that was freed.
        while link.spec.classes.len() <= at {
            link.spec.classes.push(ClassSpec::root());
            link.classes.push(Class::default());
        }
        link.spec.classes[at] = spec;
        link.classes[at] = named;
    }

    /// The most packets in the queue of an existing class.
    fn packets_of_named(&self, class: ClassId) -> usize {
        if self.link.class_name(class).is_empty() { 0 } else { self.packets_of(class) }
    }

    /// Puts rules before those of the policy.
    fn lead(&mut self, leading: Vec<Rule>, steps: &mut Vec<Change>) {
        self.leading = leading;
        let (rules, spans) = self.all_rules(&self.booked.rules);
        let link = Arc::make_mut(&mut self.link);
        (link.spec.rules, link.rules) = (rules, spans);
        let change = Change::SetRules { rules: link.spec.rules.clone(), default: link.spec.default };
        // This cannot fail: all classes to which rules lead exist.
        let done = self.trial.apply(0, &change);
        debug_assert!(done.is_ok(), "{done:?}");
        steps.push(change);
    }

    /// Removes a class to which no rule leads. Its packets go to the default class.
    fn remove(&mut self, class: ClassId, steps: &mut Vec<Change>) {
        self.held -= self.packets_of_named(class).min(self.held);
        let link = Arc::make_mut(&mut self.link);
        let change = Change::RemoveClass { class, heir: link.spec.default };
        let done = self.trial.apply(0, &change);
        debug_assert!(done.is_ok(), "{done:?}");
        steps.push(change);
        if let (Some(spec), Some(named)) =
            (link.spec.classes.get_mut(class as usize), link.classes.get_mut(class as usize))
        {
            *spec = ClassSpec::new(ROOT, Settings::new());
            *named = Class::default();
        }
    }
}

/// The most packets that the queue of a class can hold.
fn packets(spec: &ClassSpec) -> usize {
    match spec.queue.as_ref().map(|queue| queue.limit) {
        Some(Limit::Packets(packets)) => packets as usize,
        Some(Limit::Bytes(bytes)) => bytes as usize / SHORTEST + 1,
        None => 0,
    }
}

/// Packets from and to the addresses of a subscriber belong to its class.
fn rule(subscriber: &Subscriber, class: ClassId) -> Rule {
    let addresses = subscriber.addresses.iter().map(|prefix| prefix.address()).collect();
    let term = Term { field: Field::Host, negated: false, values: Values::Addresses(addresses) };
    Rule { terms: vec![term], class, number: 0 }
}

/// The fault that somebody else has an address.
fn owned(prefix: Prefix, owner: &str) -> Fault {
    let fault = Fault::refused(format!("{prefix} is an address of subscriber {owner}"));
    fault.help(format!("take it from {owner} first"))
}

fn of_engine(error: &SpecError) -> Fault {
    let fault = Fault::refused(error.message.clone());
    match &error.help {
        Some(help) => fault.help(help.clone()),
        None => fault,
    }
}

/// The same link without unused class numbers, and for each of its classes the number that it has
/// in `link`. Parents come before their children. Everything that is computed over all classes of a
/// link, such as promises, is computed from this.
pub fn without_gaps(link: &Link) -> (Link, Vec<ClassId>) {
    let there = |id: ClassId| id == ROOT || !link.class_name(id).is_empty();
    let mut kept: Vec<ClassId> = (0..link.spec.classes.len() as ClassId).filter(|id| there(*id)).collect();
    let parent = |id: ClassId| link.spec.classes.get(id as usize).map_or(ROOT, |spec| spec.parent);
    let ordered = kept.iter().all(|id| *id == ROOT || parent(*id) < *id);
    if ordered && kept.len() == link.spec.classes.len() {
        return (link.clone(), kept);
    }
    if !ordered {
        kept = parents_first(&link.children(), there);
    }
    let mut numbers = vec![ROOT; link.spec.classes.len()];
    for (new, old) in kept.iter().enumerate() {
        numbers[*old as usize] = new as ClassId;
    }
    let number = |old: ClassId| numbers.get(old as usize).copied().unwrap_or(ROOT);
    let mut whole = link.clone();
    whole.spec.classes = kept
        .iter()
        .filter_map(|old| link.spec.classes.get(*old as usize))
        .map(|spec| ClassSpec { parent: number(spec.parent), ..spec.clone() })
        .collect();
    whole.classes = kept.iter().filter_map(|old| link.classes.get(*old as usize).cloned()).collect();
    whole.spec.rules.rules.iter_mut().for_each(|rule| rule.class = number(rule.class));
    whole.spec.default = link.spec.default.map(number);
    if let Some(reservations) = &mut whole.reservations {
        reservations.class = number(reservations.class);
    }
    (whole, kept)
}

/// The classes of a tree, parents before their children.
fn parents_first(children: &[Vec<ClassId>], there: impl Fn(ClassId) -> bool) -> Vec<ClassId> {
    let (mut order, mut open) = (Vec::with_capacity(children.len()), vec![ROOT]);
    while let Some(class) = open.pop() {
        order.push(class);
        open.extend(children.get(class as usize).into_iter().flatten().rev().filter(|child| there(**child)));
    }
    order
}

#[cfg(test)]
mod tests;
