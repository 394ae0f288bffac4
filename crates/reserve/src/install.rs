//! Makes changes in the engine, and takes them back if it refuses one.

use altq_engine::Change;
use altq_engine::classify::{Rule, RuleSet};
use altq_engine::settings::Limit;
use altq_engine::spec::{ClassId, ClassSpec, QueueSpec, SpecError};

use crate::flow::Flow;
use crate::place::Place;
use crate::room::Held;

/// Makes a change in the running engine: [`Engine::apply`](altq_engine::Engine::apply), perhaps in
/// another thread. Returns the number of a new class.
pub type Apply<'a> = dyn FnMut(&Change) -> Result<Option<ClassId>, SpecError> + 'a;

/// A change, and the one that takes it back. The last of several needs none.
pub(crate) struct Step {
    pub change: Change,
    pub back: Option<Change>,
}

/// Makes all changes, or none.
pub(crate) fn all(apply: &mut Apply<'_>, steps: Vec<Step>) -> Result<(), SpecError> {
    let mut done = Vec::with_capacity(steps.len());
    for step in steps {
        if let Err(error) = apply(&step.change) {
            // The engine accepts these values, because it had them before.
            for back in done.iter().rev() {
                let _ = apply(back);
            }
            return Err(error);
        }
        done.extend(step.back);
    }
    Ok(())
}

/// The class of a reservation that holds this.
pub(crate) fn class(place: &Place, held: &Held) -> ClassSpec {
    ClassSpec { queue: Some(queue(held)), ..ClassSpec::new(place.id, held.settings.clone()) }
}

/// Its queue.
pub(crate) fn queue(held: &Held) -> QueueSpec {
    QueueSpec::plain(Limit::Bytes(held.limit))
}

/// The change that sets the words of a class.
pub(crate) fn words(place: &Place, class: ClassId, held: &Held) -> Change {
    Change::SetClass { class, parent: place.id, settings: held.settings.clone() }
}

/// The rules of the reservations, followed by those of the policy.
pub(crate) fn rules<'f>(place: &Place, flows: impl Iterator<Item = (&'f Flow, ClassId)>) -> Change {
    let mut rules: Vec<Rule> = flows.map(|(flow, class)| Rule { terms: flow.terms(), class, number: 0 }).collect();
    rules.extend_from_slice(&place.rules.rules);
    let rules = RuleSet { rules, order: place.rules.order, interfaces: place.rules.interfaces.clone() };
    Change::SetRules { rules, default: place.default }
}
