//! The changes that turn a running link into the link of another policy, while its packets stay
//! queued.

use altq_engine::spec::{ROOT, SchedulerSpec};
use altq_engine::{Change, Engine};

use crate::policy::Link;

/// The changes that turn the engine of `from` into that of `to`, in an order in which it takes
/// them. Empty if nothing differs.
///
/// The words of classes, queues, schedulers and rules, the rates and the regulator can change.
///
/// # Errors
/// Says what only a new start can change: `its mtu`, or ``class `voice` is new``.
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
    same_frame(from, to)?;
    let mut left = differences(from, to)?;
    // Two words may exclude each other until both are changed: one class takes the share that
    // another gives up. So each change is tried on an engine without packets, and one that is
    // refused waits for the others.
    let mut engine = Engine::new(&from.spec).map_err(|error| error.to_string())?;
    let mut ordered = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let mut refused = None;
        let before = left.len();
        left.retain(|change| match engine.apply(0, change) {
            Ok(_) => {
                ordered.push(change.clone());
                false
            }
            Err(error) => {
                refused.get_or_insert(error);
                true
            }
        });
        if left.len() == before
            && let Some(error) = refused
        {
            let class = error.class.map_or(String::new(), |class| format!("class `{}`: ", to.class_name(class)));
            return Err(format!("{class}{error}"));
        }
    }
    Ok(ordered)
}

/// Finds what stays as it was built: the tree of classes and schedulers, and what the link charges.
fn same_frame(from: &Link, to: &Link) -> Result<(), String> {
    let (old, new) = (&from.spec, &to.spec);
    for (same, what) in [
        (old.mtu == new.mtu, "its mtu"),
        (old.overhead == new.overhead, "its overhead"),
        (old.timer == new.timer, "its timer"),
        (from.adapt == to.adapt, "how its rate adapts"),
        (old.rules.interfaces == new.rules.interfaces, "which interfaces its rules name"),
    ] {
        if !same {
            return Err(what.to_owned());
        }
    }
    if let Some(class) = to.classes.iter().find(|class| from.class(&class.name).is_none()) {
        return Err(format!("class `{}` is new", class.name));
    }
    if let Some(class) = from.classes.iter().find(|class| to.class(&class.name).is_none()) {
        return Err(format!("class `{}` is gone", class.name));
    }
    if let Some((class, _)) = to.classes.iter().zip(&from.classes).find(|(new, old)| new.name != old.name) {
        return Err(format!("class `{}` stands at another place in the order of the classes", class.name));
    }
    let name = |scheduler: Option<&SchedulerSpec>| scheduler.map(|scheduler| scheduler.name);
    for (class, entry) in (0..).zip(&to.classes) {
        if name(old.scheduler_at(class)) != name(new.scheduler_at(class)) {
            let place = if class == ROOT { "the link".to_owned() } else { format!("class `{}`", entry.name) };
            return Err(format!("the scheduler of {place}"));
        }
    }
    Ok(())
}

/// One change for each thing that differs.
fn differences(from: &Link, to: &Link) -> Result<Vec<Change>, String> {
    let (old, new) = (&from.spec, &to.spec);
    let mut changes = Vec::new();
    if old.rate != new.rate {
        changes.push(Change::SetRate(new.rate));
    }
    if old.regulator != new.regulator {
        changes.push(Change::SetRegulator(new.regulator));
    }
    for ((class, before), after) in (0..).zip(&old.classes).zip(&new.classes) {
        if let (Some(before), Some(after)) = (old.scheduler_at(class), new.scheduler_at(class))
            && before.settings != after.settings
        {
            changes.push(Change::SetScheduler { class, settings: after.settings.clone() });
        }
        if before.settings != after.settings || before.parent != after.parent {
            if class == ROOT {
                return Err("the words of the root".to_owned());
            }
            let (parent, settings) = (after.parent, after.settings.clone());
            changes.push(Change::SetClass { class, parent, settings });
        }
        match &after.queue {
            queue if *queue == before.queue => {}
            Some(queue) => changes.push(Change::SetQueue { class, queue: queue.clone() }),
            None => return Err(format!("class `{}` no longer has a queue of its own", to.class_name(class))),
        }
    }
    if old.rules != new.rules || old.default != new.default {
        changes.push(Change::SetRules { rules: new.rules.clone(), default: new.default });
    }
    Ok(changes)
}
