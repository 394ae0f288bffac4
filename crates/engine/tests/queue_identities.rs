//! Every queue of the registry under random traffic and changes: every packet comes out once,
//! counters add up, the scheduler above never waits for a packet that is gone, and the same seed
//! gives the same decisions.

use crate::support;

use std::collections::HashMap;

use altq_engine::account::DropReason;
use altq_engine::queue::QUEUES;
use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::spec::{ClassSpec, LinkSpec, QueueSpec, ROOT, SchedulerSpec};
use altq_engine::units::Rate;
use altq_engine::{Change, Engine, Packet};
use support::Random;

const CLASSES: u32 = 5;

fn queue(random: &mut Random) -> QueueSpec {
    let entry = QUEUES[random.below(QUEUES.len() as u64) as usize];
    let mut settings = Settings::new();
    if random.chance(50) && entry.words.iter().any(|word| word.name == "ecn") {
        settings.set("ecn", Value::Flag);
    }
    if entry.name == "sfq" {
        if settings.flag("ecn") || random.chance(30) {
            settings.set("redflowlimit", Value::Bytes(random.pick(&[12_000, 40_000])));
        }
        settings.set("perturb", Value::Time(1_000_000_000)).set("divisor", Value::Int(random.pick(&[4, 64])));
        if random.chance(50) {
            settings.set("headdrop", Value::Flag);
        }
    }
    let limit = if random.chance(50) {
        Limit::Packets(random.below(40) as u32 + 5)
    } else {
        Limit::Bytes(random.below(40_000) as u32 + 4000)
    };
    QueueSpec { name: entry.name, limit, settings }
}

/// A link with two classes. The second holds another scheduler, with two more classes.
fn link(random: &mut Random) -> LinkSpec {
    let scheduler =
        |random: &mut Random| SchedulerSpec { name: random.pick(&["fifo", "cbq"]), settings: Settings::new() };
    let (outer, inner) = (scheduler(random), scheduler(random));
    let words = |scheduler: &str, rate: u64| {
        let mut settings = Settings::new();
        if scheduler == "cbq" {
            settings.set("rate", Value::Rate(Rate::bit_s(rate))).set("borrow", Value::Flag);
        }
        settings
    };
    let class = |parent, settings, queue, scheduler| ClassSpec { parent, settings, queue, scheduler };
    let (a, b, c, d) = (queue(random), queue(random), queue(random), queue(random));
    let classes = vec![
        class(ROOT, Settings::new(), None, None),
        class(ROOT, words(outer.name, 2_000_000), Some(a), None),
        class(ROOT, words(outer.name, 6_000_000), Some(b), Some(inner.clone())),
        class(2, words(inner.name, 1_000_000), Some(c), None),
        class(2, words(inner.name, 3_000_000), Some(d), None),
    ];
    LinkSpec::new(Rate::mbit_s(10), outer, classes)
}

struct Run {
    engine: Engine,
    /// The class and length of each packet in the engine, by its handle.
    inside: HashMap<u32, (u32, u32)>,
    /// The packets that came out: handle, time, and the ECN field if sent, 2 if dropped.
    story: Vec<(u32, u64, u8)>,
}

impl Run {
    fn drops(&mut self, now: u64) {
        for drop in self.engine.drops() {
            let (class, len) = self.inside.remove(&drop.packet.handle).expect("the packet dropped was in the engine");
            assert_eq!((Some(class), len), (drop.class, drop.packet.len));
            self.story.push((drop.packet.handle, now, 2));
        }
    }

    fn dequeue(&mut self, now: u64) -> bool {
        let departure = self.engine.dequeue(now);
        self.drops(now);
        let Some(departure) = departure else { return false };
        let (class, len) = self.inside.remove(&departure.packet.handle).expect("the packet sent was in the engine");
        assert_eq!((class, len), (departure.class, departure.packet.len));
        self.story.push((departure.packet.handle, now, departure.packet.ecn));
        true
    }

    fn check(&self) {
        for class in 0..CLASSES {
            let inside = |mine: u32| self.inside.values().filter(move |(class, _)| *class == mine);
            let own = self.engine.own_counters(class);
            assert_eq!(own.queued_packets, inside(class).count() as u64);
            assert_eq!(own.queued_bytes, inside(class).map(|(_, len)| u64::from(*len)).sum::<u64>());
            let by_reason: u64 = self.engine.drop_reasons(class).map(|(_, packets, _)| packets).sum();
            assert_eq!(own.dropped_packets, by_reason);
        }
        assert_eq!(self.engine.backlog() as usize, self.inside.len());
    }
}

fn run(seed: u64) -> Vec<(u32, u64, u8)> {
    let mut random = Random::new(seed);
    let random = &mut random;
    let spec = link(random);
    let mut engine = Engine::new(&spec).unwrap();
    engine.set_seed(seed);
    let mut run = Run { engine, inside: HashMap::new(), story: Vec::new() };
    let (mut now, mut handle) = (0, 0);
    // In phases of more and of less load than the link can carry, so that queues fill and empty.
    for step in 0..3000 {
        let busy = if step / 500 % 2 == 0 { 70 } else { 45 };
        if random.chance(busy) {
            let class = random.pick(&[1, 3, 4, 1, 3, 4, 2, 0]);
            let len = random.pick(&[40, 200, 1000, 1500]);
            let packet = Packet {
                flow: random.below(20) as u32,
                ecn: random.below(4) as u8,
                dscp: random.below(64) as u8,
                high: random.chance(20),
                hosts: [random.below(4) as u16, random.below(4) as u16],
                ..Packet::new(handle, len)
            };
            run.inside.insert(handle, (class, len));
            run.engine.enqueue(now, class, packet);
            run.drops(now);
            handle += 1;
        } else {
            run.dequeue(now);
        }
        if random.chance(1) {
            let class = random.pick(&[1, 3, 4, 2, 0]);
            let queue = queue(random);
            run.engine.apply(now, &Change::SetQueue { class, queue }).unwrap();
            run.drops(now);
        }
        if step % 50 == 0 {
            run.check();
        }
        now += random.below(2_000_000);
    }
    // Class 3 is removed; its packets go to class 4.
    for (handle, (class, len)) in run.inside.iter().map(|(h, v)| (*h, *v)).collect::<Vec<_>>() {
        if class == 3 {
            run.inside.insert(handle, (4, len));
        }
    }
    run.engine.apply(now, &Change::RemoveClass { class: 3, heir: Some(4) }).unwrap();
    run.drops(now);
    let mut waits = 0;
    while !run.inside.is_empty() {
        if !run.dequeue(now) {
            let next = run.engine.next_wakeup().expect("packets wait, so next_wakeup gives a time");
            waits = if next > now { 0 } else { waits + 1 };
            assert!(waits < 3, "next_wakeup stays at {next}, but no packet leaves");
            now = now.max(next);
        }
    }
    assert_eq!((run.engine.backlog(), run.engine.next_wakeup()), (0, None));
    let total = run.engine.counters(ROOT);
    assert_eq!(total.sent_packets + total.dropped_packets, u64::from(handle));
    run.story
}

#[test]
fn what_goes_in_comes_out_once() {
    for seed in 1..=60 {
        run(seed);
    }
}

#[test]
fn the_same_seed_gives_the_same_decisions() {
    for seed in 1..=5 {
        assert_eq!(run(seed), run(seed));
    }
}

#[test]
fn a_class_that_gets_another_kind_of_queue_keeps_its_packets_and_their_arrival_times() {
    let mut random = Random::new(1);
    let mut spec = link(&mut random);
    spec.classes[1].queue = Some(QueueSpec::new("drop_tail", Limit::Packets(10)));
    let mut engine = Engine::new(&spec).unwrap();
    for handle in 0..10 {
        engine.enqueue(u64::from(handle), 1, Packet::new(handle, 100));
    }
    let codel = |limit| QueueSpec::new("codel", limit);
    engine.apply(20, &Change::SetQueue { class: 1, queue: codel(Limit::Packets(6)) }).unwrap();
    let lost: Vec<_> = engine.drops().map(|drop| (drop.packet.handle, drop.reason)).collect();
    assert_eq!(lost, [6, 7, 8, 9].map(|handle| (handle, DropReason::LimitLowered)));
    engine.apply(20, &Change::SetQueue { class: 1, queue: spec.classes[1].queue.clone().unwrap() }).unwrap();
    let mut left = Vec::new();
    let mut now = 20;
    while let Some(next) = engine.next_wakeup() {
        now = now.max(next);
        left.extend(engine.dequeue(now).map(|departure| (departure.packet.handle, departure.packet.arrived)));
    }
    assert_eq!(left, [0, 1, 2, 3, 4, 5].map(|handle| (handle, u64::from(handle))));
}
