//! FAIRQ: the order of classes against cases worked out by hand, their rates, and the queue's
//! buckets packet by packet against docs/reference/altq.md 5.

use crate::support;
use crate::support::tree;

use std::collections::{HashMap, VecDeque};

use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::spec::{ClassSpec, LinkSpec, QueueSpec};
use altq_engine::units::Rate;
use altq_engine::{Change, Engine, Packet};
use support::{MS, Random, S, Wire};

fn words(priority: u64, bandwidth: Option<u64>) -> Settings {
    let settings = tree::int("priority", priority);
    match bandwidth {
        Some(rate) => settings.with("bandwidth", Value::Rate(Rate::bit_s(rate))),
        None => settings,
    }
}

fn spec(classes: &[(u64, Option<u64>)]) -> LinkSpec {
    let mut spec = tree::link(Rate::mbit_s(10), "fairq");
    spec.classes.extend(classes.iter().map(|(priority, rate)| tree::class(0, words(*priority, *rate), 200)));
    spec
}

fn rates(classes: &[(u64, Option<u64>)], greedy: &[u32]) -> Vec<f64> {
    let mut wire = Wire::new(&spec(classes));
    greedy.iter().for_each(|class| wire.greedy(*class, &[1000]));
    wire.run(S);
    wire.rates(11 * S).iter().map(|rate| rate / 1e6).collect()
}

/// A class that sends as soon as it is not over has its bandwidth, less what it waits for others:
/// each packet waits for those on the wire and above, e; of that an eighth is lost (the rest the
/// sums remember), so it has bandwidth/(1 + e/8G) with G its packets' interval.
#[test]
fn bandwidth_is_a_preference() {
    let classes = [(7, Some(2_000_000)), (3, Some(4_000_000)), (0, None)];
    let all = rates(&classes, &[1, 2, 3]);
    // G is 4 ms, and e at most the packet on the wire, 0.8 ms; then 2 ms and two packets.
    assert!((1.95..=2.001).contains(&all[1]), "{all:?}");
    assert!((3.63..=4.001).contains(&all[2]), "{all:?}");
    assert!((all[1..].iter().sum::<f64>() - 10.0).abs() < 0.01, "{all:?}");
    // A bandwidth is no cap: alone, or among classes that are over theirs too, the class of the
    // highest priority has all that is left.
    assert!((rates(&classes, &[1])[1] - 10.0).abs() < 0.01);
    let two = rates(&classes, &[1, 2]);
    assert!((3.63..=4.001).contains(&two[2]) && (two[1] + two[2] - 10.0).abs() < 0.01, "{two:?}");
}

#[test]
fn the_highest_goes_first_and_equals_take_turns() {
    let sent =
        |engine: &mut Engine| -> Vec<u32> { std::iter::from_fn(|| engine.dequeue(S)).map(|d| d.class).collect() };
    // Bandwidth 0 is always over: the others first, and among those that are over the highest.
    let mut engine = Engine::new(&spec(&[(7, Some(0)), (5, None), (5, None), (1, Some(0)), (0, None)])).unwrap();
    for class in [1, 4, 5, 2, 3, 2, 4, 1, 3] {
        engine.enqueue(S, class, Packet::new(0, 100));
    }
    // 1 Gbit in no time: after one packet each of 2, 3 and 5 would be over had they sent at any
    // rate before; they had not, for 1 s.
    assert_eq!(sent(&mut engine), [2, 3, 2, 3, 5, 1, 1, 4, 4]);
    assert_eq!(engine.next_wakeup(), None);
    // Another priority while packets wait.
    for class in [2, 3, 2, 3] {
        engine.enqueue(2 * S, class, Packet::new(0, 100));
    }
    engine.apply(2 * S, &Change::SetClass { class: 3, parent: 0, settings: words(6, None) }).unwrap();
    assert_eq!(sent(&mut engine), [3, 3, 2, 2]);
    let error =
        engine.apply(S, &Change::SetClass { class: 3, parent: 0, settings: tree::int("buckets", 9) }).unwrap_err();
    assert_eq!(error.word, Some("buckets"));
}

/// The queue that a class has by its own words.
#[test]
fn a_class_keeps_its_flows_apart() {
    let mut spec = tree::link(Rate::mbit_s(10), "fairq");
    let settings = tree::int("buckets", 2048);
    spec.classes.push(ClassSpec { parent: 0, settings, queue: None, scheduler: None });
    let mut engine = Engine::new(&spec).unwrap();
    assert!(engine.keeps_flows());
    // 50 packets a bucket.
    (0..60).for_each(|n| engine.enqueue(0, 1, Packet { flow: 1, ..Packet::new(n, 100) }));
    (100..103).for_each(|n| engine.enqueue(0, 1, Packet { flow: 2, ..Packet::new(n, 100) }));
    assert_eq!(engine.drops().map(|drop| drop.packet.handle).collect::<Vec<_>>(), (50..60).collect::<Vec<_>>());
    let first: Vec<u32> = (0..7).map(|_| engine.dequeue(0).unwrap().packet.handle).collect();
    assert_eq!(first, [0, 100, 1, 101, 2, 102, 3]);
}

// ------------------------------------------------------------------ buckets

/// A bucket as docs/reference/altq.md 5 has it. Rates in bytes a second.
#[derive(Default)]
struct Bucket {
    packets: VecDeque<u32>,
    d: u64,
    b: u64,
    last: u64,
}

impl Bucket {
    fn rate(&self) -> f64 {
        self.b as f64 * 1e9 / self.d as f64
    }
}

#[derive(Default)]
struct Model {
    buckets: HashMap<u32, Bucket>,
    ring: VecDeque<u32>,
    hogs: f64,
}

impl Model {
    fn enqueue(&mut self, flow: u32, handle: u32) -> bool {
        let bucket = self.buckets.entry(flow).or_default();
        if bucket.packets.len() == 50 {
            return false;
        }
        if bucket.packets.is_empty() {
            if self.hogs > 0.0 && bucket.b > 0 && bucket.rate() < self.hogs {
                self.ring.push_front(flow);
            } else {
                self.ring.push_back(flow);
            }
        }
        bucket.packets.push_back(handle);
        true
    }

    fn dequeue(&mut self, now: u64, lens: &[u64]) -> Option<u32> {
        let flow = *self.ring.front()?;
        let bucket = self.buckets.get_mut(&flow).unwrap();
        let handle = bucket.packets.pop_front().unwrap();
        bucket.d += (now - bucket.last).min(8 * S);
        bucket.b += lens[handle as usize];
        bucket.d -= bucket.d / 8;
        bucket.b -= bucket.b / 8;
        bucket.last = now;
        let light = self.hogs > 0.0 && bucket.rate() < self.hogs;
        if bucket.packets.is_empty() {
            self.ring.pop_front();
        } else if !light {
            self.ring.rotate_left(1);
        }
        Some(handle)
    }
}

#[test]
fn buckets_packet_by_packet() {
    let (mut light, mut dropped) = (0, 0);
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let hogs = random.pick(&[0, 200_000, 1_000_000]);
        let mut settings = tree::int("buckets", 2048);
        if hogs > 0 {
            settings.set("hogs", Value::Rate(Rate::bit_s(hogs)));
        }
        let mut spec = tree::link(Rate::mbit_s(10), "priq");
        let queue = QueueSpec { name: "fairq", limit: Limit::Packets(50), settings };
        spec.classes.push(ClassSpec { parent: 0, settings: Settings::new(), queue: Some(queue), scheduler: None });
        let mut engine = Engine::new(&spec).unwrap();
        // With this seed the seven flows have buckets of their own.
        engine.set_seed(3);
        let mut model = Model { hogs: hogs as f64 / 8.0, ..Model::default() };
        let (mut now, mut lens) = (0, Vec::new());
        for step in 0..4000 {
            now += random.below(2 * MS);
            if random.chance([60, 40][step / 400 % 2]) {
                let flow = if random.chance(70) { 0 } else { random.below(7) as u32 };
                let (handle, len) = (lens.len() as u32, random.pick(&[60, 600, 1500]));
                lens.push(len);
                engine.enqueue(now, 1, Packet { flow, ..Packet::new(handle, len as u32) });
                let taken = model.enqueue(flow, handle);
                assert_eq!(engine.drops().count(), usize::from(!taken));
                dropped += u32::from(!taken);
            } else {
                let ours = engine.dequeue(now).map(|departure| departure.packet.handle);
                assert_eq!(ours, model.dequeue(now, &lens), "step {step}, seed {seed}, hogs {hogs}");
            }
            light += u32::from(model.ring.front().is_some_and(|flow| *flow != 0 && hogs > 0));
        }
    }
    assert!(light > 1000 && dropped > 100, "{light} {dropped}");
}
