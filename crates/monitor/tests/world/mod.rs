//! An engine with random traffic, its monitor, and a full count beside both.

// Each file of tests uses a part of it.
#![allow(dead_code)]

use std::borrow::Cow;
use std::collections::HashMap;

use altq_engine::headers::Key;
use altq_engine::random::SplitMix64;
use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::sketch::{Packed, Sketch};
use altq_engine::spec::{ClassId, ClassSpec, LinkSpec, QueueSpec, ROOT, SchedulerSpec};
use altq_engine::units::{Nanos, Rate, SECOND};
use altq_engine::{Engine, Packet};
use altq_monitor::amount::Amount;
use altq_monitor::{Class, Departures, FlowKey, Frame, Limits, Monitor, Second, Tree};
use proptest::prelude::*;

/// Name, class above, guarantee in kbit/s.
pub const CLASSES: [(&str, ClassId, u64); 7] = [
    ("link", 0, 10_000),
    ("agency", 0, 5_000),
    ("web", 1, 3_000),
    ("bulk", 1, 2_000),
    ("rest", 0, 3_000),
    ("idle", 0, 1_000),
    ("deep", 2, 1_000),
];
const MS: Nanos = 1_000_000;

pub fn tree() -> Tree {
    let class = |(name, parent, kbit): (&str, ClassId, u64)| Class {
        name: name.into(),
        parent,
        asked: Some(Rate::kbit_s(kbit)),
        ceiling: None,
    };
    Tree::new(CLASSES.map(class).into()).unwrap()
}

pub fn engine() -> Engine {
    let class = |(_, parent, kbit): &(&str, ClassId, u64)| ClassSpec {
        parent: *parent,
        settings: Settings::new().with("rate", Value::Rate(Rate::kbit_s(*kbit))).with("borrow", Value::Flag),
        queue: Some(QueueSpec::new("drop_tail", Limit::Packets(40))),
        scheduler: None,
    };
    let classes = std::iter::once(ClassSpec::root()).chain(CLASSES[1..].iter().map(class)).collect();
    let mut spec = LinkSpec::new(Rate::kbit_s(10_000), SchedulerSpec::new("cbq"), classes);
    // Packets of the link itself wait in the queue of class 0.
    spec.default = Some(ROOT);
    Engine::new(&spec).unwrap()
}

fn key(flow: u32) -> Key {
    Key { src: u128::from(flow), dst: 99, proto: 6, family: 4, ..Key::default() }.with_ports(1000, 443)
}

/// The independent count: what left in each second.
#[derive(Clone, Debug, Default)]
pub struct Left {
    /// Charged bytes, by class of the packet.
    pub wire: [u64; 7],
    /// Bytes by class and flow.
    pub flows: HashMap<(ClassId, u32), Amount>,
    /// Times in the queue, by class.
    pub times: [Vec<Nanos>; 7],
    pub dropped: u64,
}

/// A link under random load, its monitor, and the independent count.
pub struct World {
    pub engine: Engine,
    departures: Departures,
    pub monitor: Monitor,
    random: SplitMix64,
    now: Nanos,
    wire_free: Nanos,
    /// The flow of each packet, by handle.
    pub flows: Vec<u32>,
    sketches: [Sketch; 7],
    pub seconds: Vec<Left>,
    pub unclassified: u64,
}

impl World {
    pub fn new(seed: u64) -> World {
        World {
            engine: engine(),
            departures: Departures::new(CLASSES.len(), CLASSES.len(), seed),
            monitor: Monitor::new(tree(), Limits::default(), None),
            random: SplitMix64::new(seed),
            now: 0,
            wire_free: 0,
            flows: Vec::new(),
            sketches: Default::default(),
            seconds: Vec::new(),
            unclassified: 0,
        }
    }

    /// One second of traffic. `loads` has, by class, how many packets come in 100 ms on average.
    pub fn second(&mut self, loads: [u64; 7]) {
        let (from, mut left) = (self.now, Left::default());
        for _ in 0..1000 {
            self.now += MS;
            for (class, load) in (0..).zip(loads) {
                if self.random.chance(load, 100) {
                    // Few flows are large.
                    let unit = (self.random.bits() >> 40) as f64 / (1u64 << 24) as f64;
                    self.flows.push((unit.powi(4) * 300.0) as u32);
                    let len = 64 + (self.random.bits() % 1437) as u32;
                    self.engine.enqueue(self.now, class, Packet::new(self.flows.len() as u32 - 1, len));
                }
            }
            // A packet without a class.
            if self.random.chance(1, 500) {
                self.engine.enqueue(self.now, ClassId::MAX, Packet::new(0, 100));
                self.unclassified += 1;
            }
            while self.wire_free <= self.now
                && let Some(departure) = self.engine.dequeue(self.now)
            {
                let (class, packet) = (departure.class, departure.packet);
                let time = Rate::kbit_s(10_000).time_for(u64::from(packet.wire));
                self.wire_free = self.wire_free.max(self.now - MS) + time;
                let flow = self.flows[packet.handle as usize];
                self.departures.add(class, &FlowKey::of(&key(flow)), packet.len);
                self.sketches[class as usize].add(self.now - packet.arrived);
                left.wire[class as usize] += u64::from(packet.wire);
                *left.flows.entry((class, flow)).or_default() += Amount::new(u64::from(packet.len), 1);
                left.times[class as usize].push(self.now - packet.arrived);
            }
            left.dropped += self.engine.drops().count() as u64;
        }
        self.seconds.push(left);
        let mut taken = Vec::new();
        self.departures.take(&mut taken);
        let delays: Vec<(ClassId, Packed)> = (0..)
            .zip(&mut self.sketches)
            .filter(|(_, sketch)| sketch.count() > 0)
            .map(|(class, sketch)| {
                let packed = sketch.packed();
                sketch.clear();
                (class, packed)
            })
            .collect();
        self.monitor.second(Second {
            from,
            to: self.now,
            counters: &self.engine.all_counters(),
            unclassified: self.engine.unclassified().0,
            delays,
            flows: taken.iter().map(|(class, counters)| (*class, counters.summary())).collect(),
            limited_by: vec![Cow::Borrowed("offered"); CLASSES.len()],
            ..Second::default()
        });
        self.departures.give_back(taken.into_iter().map(|(_, counters)| counters));
    }

    /// Compares a frame with the count.
    pub fn check(&self, frame: &Frame) -> Result<(), TestCaseError> {
        prop_assert_eq!(frame.check(), Ok(()));
        let seconds = (frame.time / SECOND) as usize;
        let watched = &self.seconds[self.seconds.len() - seconds..];
        let counters = self.engine.all_counters();
        for class in 0..CLASSES.len() as ClassId {
            let row = frame.row(class).unwrap();
            // The packets of this class and of those below it.
            let below: Vec<ClassId> = (0..CLASSES.len() as ClassId).filter(|at| is_below(*at, class)).collect();
            let wire: u64 = watched.iter().flat_map(|left| below.iter().map(move |at| left.wire[*at as usize])).sum();
            prop_assert_eq!(row.total.wire_bytes, wire, "{}", class);
            prop_assert_eq!(row.total.backlog_packets, counters[class as usize].queued_packets);
            prop_assert_eq!(row.total.backlog_bytes, counters[class as usize].queued_bytes);

            let mut exact: HashMap<u32, Amount> = HashMap::new();
            for ((at, flow), amount) in watched.iter().flat_map(|left| &left.flows) {
                if below.contains(at) {
                    *exact.entry(*flow).or_default() += *amount;
                }
            }
            let flows = self.monitor.flows(frame, class);
            let sent = Amount::new(row.total.sent_bytes, row.total.sent_packets);
            let known: Amount = flows.listed().iter().map(|counted| counted.at_least).sum();
            prop_assert_eq!(known + flows.others, sent, "flows and others are what the class sent");
            prop_assert_eq!(flows.summary.total(), sent);
            for counted in flows.listed() {
                let true_amount = exact.get(&(counted.key.src_bits() as u32)).copied().unwrap_or_default();
                prop_assert!(counted.at_least.bytes <= true_amount.bytes, "{:?}", counted);
                prop_assert!(true_amount.bytes <= counted.at_most().bytes, "{:?}", counted);
                prop_assert!(counted.at_least.packets <= true_amount.packets, "{:?}", counted);
                prop_assert!(true_amount.packets <= counted.at_most().packets, "{:?}", counted);
            }
            for (flow, amount) in &exact {
                let listed = flows.listed().iter().any(|counted| counted.key.src_bits() as u32 == *flow);
                prop_assert!(listed || amount.bytes * 64 <= sent.bytes, "{} has {:?} of {:?}", flow, amount, sent);
            }

            let times = watched.iter().flat_map(|left| below.iter().flat_map(move |at| &left.times[*at as usize]));
            let mut times: Vec<Nanos> = times.copied().collect();
            times.sort_unstable();
            prop_assert_eq!(row.delay.count, times.len() as u64);
            prop_assert_eq!(row.delay.max, times.last().copied().unwrap_or(0));
            for (per_cent, shown) in [(50, row.delay.p50), (99, row.delay.p99)] {
                let rank = (times.len() * per_cent).div_ceil(100).max(1);
                let true_time = times.get(rank - 1).copied().unwrap_or(0);
                let close = shown.abs_diff(true_time) <= true_time / 32 + 1;
                prop_assert!(close, "p{}: {} for {}", per_cent, shown, true_time);
            }
        }
        let dropped: u64 = watched.iter().map(|left| left.dropped).sum();
        prop_assert_eq!(frame.rows[0].total.dropped_packets, dropped);
        Ok(())
    }
}

/// Whether a class is another one, or below it.
pub fn is_below(mut class: ClassId, above: ClassId) -> bool {
    while class != above {
        if class == ROOT {
            return false;
        }
        class = CLASSES[class as usize].1;
    }
    true
}
