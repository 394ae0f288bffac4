//! What an engine has of a class, so that two engines can be compared that were asked for the same.

use super::{Engine, Kind};
use crate::schedule::ROOT_SLOT;
use crate::settings::Limit;
use crate::spec::{ClassId, SchedulerSpec};
use crate::units::Rate;

/// What an engine has of a class. What a scheduler keeps of the other words of a class it alone
/// knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassShown {
    /// The class above; the root is its own.
    pub parent: ClassId,
    /// The rate that its words guarantee. Without a guarantee: the rate by which its scheduler
    /// measures shares.
    pub rate: Rate,
    /// True if its words guarantee a rate.
    pub guaranteed: bool,
    /// The name of its queue in the registry; `None` for one of the two plain queues.
    pub queue: Option<&'static str>,
    /// True if a plain queue drops at its head.
    pub drops_head: bool,
    /// How much its queue holds.
    pub limit: Limit,
    /// The scheduler that it holds.
    pub scheduler: Option<SchedulerSpec>,
    /// True if a rule leads to it.
    pub led_to: bool,
    /// True if packets that no rule matches come to it.
    pub default: bool,
}

impl Engine {
    /// What the engine has of a class; `None` for a number without a class.
    pub fn shown(&self, class: ClassId) -> Option<ClassShown> {
        let leaf = self.buffers.leaves.get(class as usize).filter(|leaf| leaf.exists)?;
        let place = self.places.get(class as usize)?;
        let stateful = leaf.kind == Kind::Stateful;
        let held = (leaf.slot == ROOT_SLOT).then(|| self.nodes.get(leaf.scheduler as usize)).flatten();
        Some(ClassShown {
            parent: place.parent,
            rate: place.rate,
            guaranteed: place.guaranteed,
            queue: stateful.then(|| self.queue_names.get(leaf.head as usize).copied()).flatten(),
            drops_head: leaf.kind == Kind::DropHead,
            limit: if leaf.limit_in_bytes { Limit::Bytes(leaf.limit) } else { Limit::Packets(leaf.limit) },
            scheduler: held.map(|node| node.spec.clone()),
            led_to: self.classifier.leads_to(class),
            default: self.default == Some(class),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Change;
    use crate::classify::RuleSet;
    use crate::queue;
    use crate::settings::Settings;
    use crate::spec::{ClassSpec, LinkSpec, QueueSpec, ROOT};

    #[test]
    fn what_was_asked_for_is_shown_and_what_is_changed_too() {
        let scheduler = SchedulerSpec::plain();
        let class = ClassSpec::new(ROOT, Settings::new());
        let spec = LinkSpec::new(Rate::bit_s(1_000_000), scheduler.clone(), vec![ClassSpec::root(), class]);
        let mut engine = Engine::new(&spec).unwrap();
        let root = engine.shown(ROOT).unwrap();
        assert_eq!((root.rate, root.scheduler), (Rate::bit_s(1_000_000), Some(scheduler)));
        let before = engine.shown(1).unwrap();
        assert_eq!((before.parent, before.scheduler.is_none(), before.default), (ROOT, true, false));
        let limit = Limit::Packets(7);
        let queue = QueueSpec { name: queue::PLAIN.name, limit, settings: Settings::new() };
        engine.apply(0, &Change::SetQueue { class: 1, queue }).unwrap();
        engine.apply(0, &Change::SetRules { rules: RuleSet::default(), default: Some(1) }).unwrap();
        assert_eq!(engine.shown(1), Some(ClassShown { limit, default: true, ..before }));
        assert_eq!(engine.shown(2), None);
    }
}
