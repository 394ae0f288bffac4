//! Trees of any scheduler for tests: classes by the name of their scheduler and their words, and
//! places for promises.
#![allow(dead_code)]

use altq_engine::schedule::{self, promise};
use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::spec::{ClassSpec, LinkSpec, QueueSpec, SchedulerSpec};
use altq_engine::units::Rate;

/// A link under a scheduler, without classes.
pub fn link(rate: Rate, scheduler: &str) -> LinkSpec {
    LinkSpec::new(rate, SchedulerSpec { name: name(scheduler), settings: Settings::new() }, vec![ClassSpec::root()])
}

/// The name as the registry has it.
pub fn name(scheduler: &str) -> &'static str {
    schedule::find(scheduler).expect("a registered scheduler").name
}

/// A class with a drop-tail queue of so many packets.
pub fn class(parent: u32, settings: Settings, packets: u32) -> ClassSpec {
    let queue = QueueSpec::new("drop_tail", Limit::Packets(packets));
    ClassSpec { parent, settings, queue: Some(queue), scheduler: None }
}

/// Words with a number.
pub fn int(word: &'static str, n: u64) -> Settings {
    Settings::new().with(word, Value::Int(n))
}

/// Words with bytes.
pub fn bytes(word: &'static str, n: u64) -> Settings {
    Settings::new().with(word, Value::Bytes(n))
}

/// What the link's own scheduler promises its classes that stand right below it, in the order of
/// their numbers, class 1 first.
pub fn promises(spec: &LinkSpec) -> Vec<Result<promise::Promise, String>> {
    let members: Vec<promise::Member<'_>> = spec.classes[1..]
        .iter()
        .map(|class| promise::Member {
            parent: None,
            settings: &class.settings,
            leaf: true,
            holds: class.scheduler.is_some(),
        })
        .collect();
    let place = promise::Place {
        promised: promise::Promise::new(0, spec.rate),
        rate: spec.rate,
        packet: spec.overhead.charge(spec.mtu),
        scheduler: &spec.scheduler.settings,
        classes: &members,
    };
    let entry = schedule::find(spec.scheduler.name).expect("a registered scheduler");
    (entry.promises)(&place)
}
