//! A link of one class with a queue, for tests of what queues decide.
#![allow(dead_code)]

use altq_engine::classify::RuleSet;
use altq_engine::link::Overhead;
use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::spec::{ClassSpec, LinkSpec, QueueSpec, ROOT, Regulator, SchedulerSpec, SpecError, Timer};
use altq_engine::units::Rate;
use altq_engine::{Change, Engine, Packet};

/// The class.
pub const CLASS: u32 = 1;

/// A queue by its words.
pub fn queue(name: &'static str, limit: Limit, words: &[(&'static str, Value)]) -> QueueSpec {
    let mut settings = Settings::new();
    for (word, value) in words {
        settings.set(word, *value);
    }
    QueueSpec { name, limit, settings }
}

/// A link of so many bit/s, first in first out, with one class that has this queue.
pub fn link(rate: u64, queue: QueueSpec) -> Result<Engine, SpecError> {
    let class = |queue| ClassSpec { parent: ROOT, settings: Settings::new(), queue, scheduler: None };
    Engine::new(&LinkSpec {
        rate: Rate::bit_s(rate),
        mtu: 1500,
        overhead: Overhead::NONE,
        regulator: Regulator::None,
        timer: Timer::Exact,
        scheduler: SchedulerSpec { name: "fifo", settings: Settings::new() },
        classes: vec![class(None), class(Some(queue))],
        rules: RuleSet::default(),
        default: None,
    })
}

/// A packet arrives. Its fate: `None` if it was queued, else the reason.
pub fn arrive(engine: &mut Engine, now: u64, packet: Packet) -> Option<&'static str> {
    engine.enqueue(now, CLASS, packet);
    let drops: Vec<_> = engine.drops().collect();
    drops.iter().find(|drop| drop.packet.handle == packet.handle).map(|drop| drop.reason.name())
}

/// What the queue counts by this name.
#[track_caller]
pub fn told(engine: &Engine, name: &str) -> u64 {
    let all = engine.queue_counters(CLASS);
    all.iter().find(|(word, _)| *word == name).unwrap_or_else(|| panic!("{name} is not in {all:?}")).1
}

/// Other words for the queue.
pub fn change(engine: &mut Engine, now: u64, queue: QueueSpec) -> Result<(), SpecError> {
    engine.apply(now, &Change::SetQueue { class: CLASS, queue }).map(|_| ())
}

/// How far the counts of equally likely cases are from equal, in standard deviations of chi-square (mean k - 1, variance 2 (k - 1)).
pub fn uneven(counts: &[u64]) -> f64 {
    let cases = counts.len() as f64;
    let mean = counts.iter().sum::<u64>() as f64 / cases;
    let square: f64 = counts.iter().map(|n| (*n as f64 - mean).powi(2) / mean).sum();
    (square - (cases - 1.0)) / (2.0 * (cases - 1.0)).sqrt()
}
