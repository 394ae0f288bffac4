//! Links with any scheduler for tests, and what the scheduler promises its classes.
use altq_engine::schedule::{self, promise};
use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::spec::{ClassSpec, LinkSpec, QueueSpec, SchedulerSpec};
use altq_engine::units::Rate;

/// A link with this scheduler, without classes.
pub fn link(rate: Rate, scheduler: &str) -> LinkSpec {
    LinkSpec::new(rate, SchedulerSpec { name: name(scheduler), settings: Settings::new() }, vec![ClassSpec::root()])
}

/// A scheduler's name, with the lifetime that the registry's has.
pub fn name(scheduler: &str) -> &'static str {
    schedule::find(scheduler).expect("a registered scheduler").name
}

/// A class with a drop-tail queue of `packets` packets.
pub fn class(parent: u32, settings: Settings, packets: u32) -> ClassSpec {
    let queue = QueueSpec::new("drop_tail", Limit::Packets(packets));
    ClassSpec { parent, settings, queue: Some(queue), scheduler: None }
}

/// A single word with a number.
pub fn int(word: &'static str, n: u64) -> Settings {
    Settings::new().with(word, Value::Int(n))
}

/// A single word with a number of bytes.
pub fn bytes(word: &'static str, n: u64) -> Settings {
    Settings::new().with(word, Value::Bytes(n))
}

/// What the link's scheduler promises to each of its classes, class 1 first. None is below another.
pub fn promises(spec: &LinkSpec) -> Vec<Result<promise::Promise, String>> {
    let members: Vec<promise::Member<'_>> = spec.classes[1..]
        .iter()
        .map(|class| promise::Member {
            parent: None,
            settings: &class.settings,
            leaf: true,
            packets: true,
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
