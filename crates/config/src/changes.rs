//! The changes that turn a running link into the link of another policy, while its packets stay
//! queued.
//!
//! Classes are the same if they have the same name. A class that stands below the same scheduler
//! keeps its number, its packets and its counters. One that now belongs to another scheduler, or
//! holds another one, is made anew, and the packets of the old one move into it. Packets of a class
//! that is gone move to the default class of the new policy, as far as it has room for them; the
//! others are drops. All of it is one list of changes that a loop makes between two packets, so no
//! packet sees a state in between.

use std::collections::{HashMap, HashSet};

use altq_engine::classify::{Field, RuleSet, Values};
use altq_engine::settings::Settings;
use altq_engine::spec::{ClassId, ClassSpec, ROOT, SchedulerSpec, SpecError};
use altq_engine::{Change, Engine};

use crate::policy::{Class, Link};

/// What leads from a link that runs to another one.
#[derive(Clone, Debug, Default)]
pub struct Transition {
    /// The changes, in an order in which the engine takes them. Empty if nothing differs.
    pub changes: Vec<Change>,
    /// What takes them back, in the order in which it is to be done.
    pub undo: Vec<Change>,
    /// For each class of the new link, its number in the engine.
    pub numbers: Vec<ClassId>,
}

/// The changes that turn the engine of `from` into that of `to`, in an order in which it takes
/// them. Empty if nothing differs. Neither link has numbers without a class. The rules of both may
/// name the same interfaces in another order.
///
/// # Errors
/// Says what only a new start can change: `its mtu`, or `the scheduler of the link`.
///
/// ```
/// use altq_config::{Language, changes, parse_str};
///
/// let link = |voice: u32| {
///     let text = format!("link wan {{ rate 10Mbit/s  scheduler cbq
///         class voice {{ share {voice}% }}  class rest {{ share 40%  default }} }}");
///     parse_str(&text, "doc.altq", Language::Native).unwrap().links.remove(0)
/// };
/// assert_eq!(changes(&link(20), &link(30)).unwrap().len(), 1);
/// assert!(changes(&link(20), &link(20)).unwrap().is_empty());
/// ```
pub fn changes(from: &Link, to: &Link) -> Result<Vec<Change>, String> {
    let mut engine = Engine::new(&from.spec).map_err(|error| error.to_string())?;
    let to = to.clone().with_interfaces(&from.spec.rules.interfaces);
    transition(&mut engine, from, &to).map(|found| found.changes)
}

impl Link {
    /// The same link, with the interfaces that its rules name in this order. It stays as it is if
    /// its rules name others. A loop knows interfaces by their places in the list of its start.
    #[must_use]
    pub fn with_interfaces(mut self, order: &[String]) -> Link {
        let place = |name: &String| order.iter().position(|other| other == name).map(|at| at as u32);
        let places: Option<Vec<u32>> = self.spec.rules.interfaces.iter().map(place).collect();
        let Some(places) = places.filter(|places| places.len() == order.len()) else { return self };
        let terms = self.spec.rules.rules.iter_mut().flat_map(|rule| &mut rule.terms);
        for term in terms.filter(|term| term.field == Field::Interface) {
            if let Values::Ranges(ranges) = &mut term.values {
                let named = ranges.iter().flat_map(|(from, to)| *from..=*to);
                let moved = named.filter_map(|at| places.get(at as usize)).map(|at| (*at, *at));
                *ranges = moved.collect();
            }
        }
        self.spec.rules.interfaces = order.to_vec();
        self
    }
}

/// Makes the changes from one link to another in an engine without packets, and returns them.
///
/// `engine` is one of `from`; numbers of `from` that no class has have an empty name. `to` has no
/// such numbers. After an error the engine is as before.
///
/// # Errors
/// Says what only a new start can change.
pub fn transition(engine: &mut Engine, from: &Link, to: &Link) -> Result<Transition, String> {
    same_frame(from, to)?;
    let mut work = Work::new(engine, from, to);
    match work.run() {
        Ok(()) => Ok(work.finish()),
        Err(error) => {
            work.take_back();
            Err(error)
        }
    }
}

/// A link as the engine that runs has it: its classes have these numbers, and numbers up to `count`
/// that no class has are blank, with an empty name.
pub fn renumbered(to: &Link, numbers: &[ClassId], count: usize) -> Link {
    let number = |class: ClassId| numbers.get(class as usize).copied().unwrap_or(ROOT);
    let count = numbers.iter().map(|number| *number as usize + 1).max().unwrap_or(1).max(count);
    let mut link = to.clone();
    link.spec.classes = vec![ClassSpec::new(ROOT, Settings::new()); count];
    link.classes = vec![Class::default(); count];
    for ((spec, class), at) in to.spec.classes.iter().zip(&to.classes).zip(numbers) {
        if let (Some(into), Some(named)) = (link.spec.classes.get_mut(*at as usize), link.classes.get_mut(*at as usize))
        {
            *into = ClassSpec { parent: number(spec.parent), ..spec.clone() };
            *named = class.clone();
        }
    }
    link.spec.rules = renumbered_rules(&to.spec.rules, numbers);
    link.spec.default = to.spec.default.map(number);
    if let Some(reservations) = &mut link.reservations {
        reservations.class = number(reservations.class);
    }
    link
}

fn renumbered_rules(rules: &RuleSet, numbers: &[ClassId]) -> RuleSet {
    let mut rules = rules.clone();
    for rule in &mut rules.rules {
        rule.class = numbers.get(rule.class as usize).copied().unwrap_or(ROOT);
    }
    rules
}

/// Finds what stays as it was built: what the link charges, and the scheduler at its root.
fn same_frame(from: &Link, to: &Link) -> Result<(), String> {
    let (old, new) = (&from.spec, &to.spec);
    for (same, what) in [
        (old.mtu == new.mtu, "its mtu"),
        (old.overhead == new.overhead, "its overhead"),
        (old.timer == new.timer, "its timer"),
        (from.adapt == to.adapt, "how its rate adapts"),
        (old.rules.interfaces == new.rules.interfaces, "which interfaces its rules name"),
        (old.scheduler.name == new.scheduler.name, "the scheduler of the link"),
        (root(from).settings == root(to).settings, "the words of the root"),
    ] {
        if !same {
            return Err(what.to_owned());
        }
    }
    Ok(())
}

fn root(link: &Link) -> ClassSpec {
    link.spec.classes.first().cloned().unwrap_or_else(ClassSpec::root)
}

/// A change that may have to wait for others.
enum Step {
    /// Of the link, or of words that know no other class.
    Plain(Change),
    /// Other words or another parent for a class of the new link that keeps its number.
    Class(usize),
    /// A class of the new link that is made.
    Add(usize),
    /// A class of the old link that goes.
    Remove(ClassId),
}

struct Work<'a> {
    engine: &'a mut Engine,
    from: &'a Link,
    to: &'a Link,
    /// For each class of the new link its number, where it has one already.
    numbers: Vec<Option<ClassId>>,
    /// The class of the new link that the packets of an old class go to.
    heirs: HashMap<ClassId, usize>,
    /// What the engine has now.
    rules: (RuleSet, Option<ClassId>),
    steps: Vec<Step>,
    done: Vec<Change>,
    undo: Vec<Change>,
}

impl<'a> Work<'a> {
    fn new(engine: &'a mut Engine, from: &'a Link, to: &'a Link) -> Work<'a> {
        let rules = (from.spec.rules.clone(), from.spec.default);
        let (steps, done, undo) = (Vec::new(), Vec::new(), Vec::new());
        let mut work = Work { engine, from, to, numbers: Vec::new(), heirs: HashMap::new(), rules, steps, done, undo };
        work.plan();
        work
    }

    /// Which classes keep their numbers, and what is to be done.
    fn plan(&mut self) {
        let (from, to) = (self.from, self.to);
        let (old, new) = (&from.spec, &to.spec);
        let there = || from.classes.iter().enumerate().skip(1).filter(|(_, class)| !class.name.is_empty());
        let by_name: HashMap<&str, ClassId> = there().map(|(at, class)| (&*class.name, at as ClassId)).collect();
        let mut holders = vec![ROOT as usize];
        self.numbers = vec![Some(ROOT)];
        let mut kept = vec![false; from.classes.len()];
        for (at, (spec, class)) in new.classes.iter().zip(&to.classes).enumerate().skip(1) {
            let parent = spec.parent as usize;
            let holds = parent == ROOT as usize || new.classes.get(parent).is_some_and(|spec| spec.scheduler.is_some());
            let holder = if holds { parent } else { holders.get(parent).copied().unwrap_or(0) };
            holders.push(holder);
            let before = by_name.get(class.name.as_str()).copied();
            let stays = before.filter(|before| {
                let same_holder = self.numbers.get(holder).copied().flatten() == Some(holder_of(from, *before));
                same_holder && name(old.scheduler_at(*before)) == name(spec.scheduler.as_ref())
            });
            if let (Some(before), None) = (before, stays) {
                self.heirs.insert(before, at);
            }
            if let Some(kept) = stays.and_then(|number| kept.get_mut(number as usize)) {
                *kept = true;
            }
            self.numbers.push(stays);
        }
        let mut gone: Vec<ClassId> = there().map(|(at, _)| at as ClassId).filter(|at| !kept[*at as usize]).collect();
        // Those below others go first.
        gone.sort_by_cached_key(|class| std::cmp::Reverse(depth(from, *class)));
        if !gone.is_empty() {
            // A class goes when no rule leads to it. No packet comes in between.
            let rules = RuleSet { rules: Vec::new(), ..old.rules.clone() };
            self.steps.push(Step::Plain(Change::SetRules { rules, default: None }));
        }
        if old.rate != new.rate {
            self.steps.push(Step::Plain(Change::SetRate(new.rate)));
        }
        if old.regulator != new.regulator {
            self.steps.push(Step::Plain(Change::SetRegulator(new.regulator)));
        }
        let inner: HashSet<ClassId> = new.classes.iter().skip(1).map(|spec| spec.parent).collect();
        for (at, number) in self.numbers.iter().enumerate() {
            let (Some(class), Some(after)) = (*number, new.classes.get(at)) else { continue };
            let Some(before) = old.classes.get(class as usize) else { continue };
            if let (Some(before), Some(after)) = (old.scheduler_at(class), new.scheduler_at(at as ClassId))
                && before.settings != after.settings
            {
                let settings = after.settings.clone();
                self.steps.push(Step::Plain(Change::SetScheduler { class, settings }));
            }
            let parent = self.numbers.get(after.parent as usize).copied().flatten();
            if class != ROOT && (before.settings != after.settings || parent != Some(before.parent)) {
                self.steps.push(Step::Class(at));
            }
            // Without `queue` a class has that of its scheduler, which depends on the words of
            // both. A class that has others below it now, and no queue of its own any more, keeps
            // its packets until they are sent.
            let own = after.queue.is_some() || !inner.contains(&(at as ClassId)) && after.scheduler.is_none();
            if let Some(queue) =
                to.queue(at as ClassId).filter(|queue| own && from.queue(class).as_ref() != Some(queue))
            {
                self.steps.push(Step::Plain(Change::SetQueue { class, queue }));
            }
        }
        let made = self.numbers.iter().enumerate().filter(|(_, number)| number.is_none());
        self.steps.extend(made.map(|(at, _)| Step::Add(at)));
        self.steps.extend(gone.into_iter().map(Step::Remove));
    }

    /// Two words may exclude each other until both are changed: one class takes the share that
    /// another gives up. So each step is tried, and one that is refused waits for the others.
    fn run(&mut self) -> Result<(), String> {
        let mut left = std::mem::take(&mut self.steps);
        while !left.is_empty() {
            let (count, mut refused) = (left.len(), None);
            let mut waiting = Vec::new();
            for step in left {
                match self.ready(&step).map(|change| self.make(change)) {
                    Some(Ok(made)) => {
                        if let (Step::Add(at), Some(made)) = (&step, made) {
                            self.numbers[*at] = Some(made);
                        }
                    }
                    Some(Err(error)) => {
                        refused.get_or_insert_with(|| self.said(&step, &error));
                        waiting.push(step);
                    }
                    None => waiting.push(step),
                }
            }
            if waiting.len() == count {
                return Err(refused.unwrap_or_else(|| "the order of its classes".to_owned()));
            }
            left = waiting;
        }
        let numbers: Vec<ClassId> = self.numbers.iter().map(|number| number.unwrap_or(ROOT)).collect();
        let rules = renumbered_rules(&self.to.spec.rules, &numbers);
        let default = self.to.spec.default.and_then(|class| numbers.get(class as usize).copied());
        if (&rules, default) != (&self.rules.0, self.rules.1) {
            self.make(Change::SetRules { rules, default }).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// The change of a step, once the classes that it names have numbers.
    fn ready(&self, step: &Step) -> Option<Change> {
        let of = |at: usize| self.numbers.get(at).copied().flatten();
        let spec = |at: usize| self.to.spec.classes.get(at);
        match step {
            Step::Plain(change) => Some(change.clone()),
            Step::Class(at) => {
                let spec = spec(*at)?;
                let (class, parent) = (of(*at)?, of(spec.parent as usize)?);
                Some(Change::SetClass { class, parent, settings: spec.settings.clone() })
            }
            Step::Add(at) => {
                let spec = spec(*at)?;
                Some(Change::AddClass(ClassSpec { parent: of(spec.parent as usize)?, ..spec.clone() }))
            }
            Step::Remove(class) => {
                let heir = self.heirs.get(class).copied().or(self.to.spec.default.map(|class| class as usize));
                let heir = match heir {
                    Some(heir) => Some(of(heir)?),
                    None => None,
                };
                Some(Change::RemoveClass { class: *class, heir })
            }
        }
    }

    /// Makes a change, and notes it with what takes it back.
    fn make(&mut self, change: Change) -> Result<Option<ClassId>, SpecError> {
        let before = |class: ClassId| self.from.spec.classes.get(class as usize);
        let back = match &change {
            Change::AddClass(_) => None,
            Change::SetClass { class, .. } => before(*class).map(|spec| Change::SetClass {
                class: *class,
                parent: spec.parent,
                settings: spec.settings.clone(),
            }),
            Change::RemoveClass { class, .. } => before(*class).cloned().map(Change::AddClass),
            Change::SetQueue { class, .. } => {
                self.from.queue(*class).map(|queue| Change::SetQueue { class: *class, queue })
            }
            Change::SetScheduler { class, .. } => self
                .from
                .spec
                .scheduler_at(*class)
                .map(|spec| Change::SetScheduler { class: *class, settings: spec.settings.clone() }),
            Change::SetRate(_) => Some(Change::SetRate(self.from.spec.rate)),
            Change::SetRegulator(_) => Some(Change::SetRegulator(self.from.spec.regulator)),
            Change::SetRules { .. } => Some(Change::SetRules { rules: self.rules.0.clone(), default: self.rules.1 }),
        };
        let made = self.engine.apply(0, &change)?;
        if let Change::SetRules { rules, default } = &change {
            self.rules = (rules.clone(), *default);
        }
        let made_class = made.filter(|_| matches!(change, Change::AddClass(_)));
        self.undo.extend(back.or(made_class.map(|class| Change::RemoveClass { class, heir: None })));
        self.done.push(change);
        Ok(made)
    }

    fn said(&self, step: &Step, error: &SpecError) -> String {
        let class = match step {
            Step::Class(at) | Step::Add(at) => self.to.class_name(*at as ClassId),
            Step::Remove(class) => self.from.class_name(*class),
            Step::Plain(Change::SetQueue { class, .. } | Change::SetScheduler { class, .. }) => {
                self.from.class_name(*class)
            }
            Step::Plain(_) => "",
        };
        if class.is_empty() { error.to_string() } else { format!("class `{class}`: {error}") }
    }

    /// Takes back what was made. The engine has had all of these states before, and gives a class
    /// that comes back the number that it had.
    fn take_back(&mut self) {
        for change in self.undo.iter().rev() {
            let done = self.engine.apply(0, change);
            debug_assert!(done.is_ok(), "{change:?}: {done:?}");
        }
    }

    fn finish(self) -> Transition {
        let numbers = self.numbers.into_iter().map(|number| number.unwrap_or(ROOT)).collect();
        let mut undo = self.undo;
        undo.reverse();
        Transition { changes: self.done, undo, numbers }
    }
}

fn name(scheduler: Option<&SchedulerSpec>) -> Option<&'static str> {
    scheduler.map(|scheduler| scheduler.name)
}

/// The class above that holds the scheduler of a class.
fn holder_of(link: &Link, class: ClassId) -> ClassId {
    let parent = |class: ClassId| link.spec.classes.get(class as usize).map_or(ROOT, |spec| spec.parent);
    let mut at = parent(class);
    while at != ROOT && link.spec.classes.get(at as usize).is_some_and(|spec| spec.scheduler.is_none()) {
        at = parent(at);
    }
    at
}

fn depth(link: &Link, class: ClassId) -> usize {
    let (mut at, mut depth) = (class, 0);
    while at != ROOT && depth < link.spec.classes.len() {
        at = link.spec.classes.get(at as usize).map_or(ROOT, |spec| spec.parent);
        depth += 1;
    }
    depth
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Language, parse_str};

    fn link(rules: &str) -> Link {
        let text = format!(
            "link wan {{ rate 10Mbit/s  scheduler cbq  class a {{ share 20% }}  class rest {{ share 40%  default }}
            {rules} }}"
        );
        parse_str(&text, "p.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}")).links.remove(0)
    }

    /// For each rule, the names of its interfaces.
    fn named(link: &Link) -> Vec<Vec<&str>> {
        let rules = &link.spec.rules;
        let name = |at: u32| rules.interfaces[at as usize].as_str();
        let of_term = |values: &Values| match values {
            Values::Ranges(ranges) => ranges.iter().map(|(at, _)| name(*at)).collect::<Vec<&str>>(),
            _ => Vec::new(),
        };
        rules.rules.iter().map(|rule| rule.terms.iter().flat_map(|term| of_term(&term.values)).collect()).collect()
    }

    #[test]
    fn interfaces_may_be_named_in_another_order() {
        let from = link("match interface eth1 -> a  match interface eth2,!eth1 -> rest");
        let to = link("match interface eth2,!eth1 -> rest  match interface eth1 -> a");
        assert_eq!(from.spec.rules.interfaces, ["eth1", "eth2"]);
        assert_eq!(to.spec.rules.interfaces, ["eth2", "eth1"]);
        // The rules have changed places, and nothing else differs.
        assert_eq!(changes(&from, &to).unwrap().len(), 1);
        let moved = to.clone().with_interfaces(&from.spec.rules.interfaces);
        assert_eq!(moved.spec.rules.interfaces, from.spec.rules.interfaces);
        assert_eq!(named(&moved), named(&to));
        assert_eq!(named(&moved), [vec!["eth2", "eth1"], vec!["eth1"]]);
        for other in ["match interface eth3 -> a  match interface eth2 -> rest", "match interface eth1 -> a", ""] {
            let refused = changes(&from, &link(other)).unwrap_err();
            assert_eq!(refused, "which interfaces its rules name", "{other}");
        }
    }
}
