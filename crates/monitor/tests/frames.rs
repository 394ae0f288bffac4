//! An engine with random traffic, watched for 70 seconds: every frame adds up, and says what a
//! count beside it says.

use std::borrow::Cow;
use std::collections::HashMap;

use altq_engine::account::Counters;
use altq_engine::headers::Key;
use altq_engine::random::SplitMix64;
use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::sketch::{Packed, Sketch};
use altq_engine::spec::{ClassId, ClassSpec, LinkSpec, QueueSpec, ROOT, SchedulerSpec};
use altq_engine::units::{Nanos, Rate, SECOND};
use altq_engine::{Engine, Packet};
use altq_monitor::amount::Amount;
use altq_monitor::document::{Link, More, SCHEMA, Top};
use altq_monitor::slice::Slice;
use altq_monitor::{Class, Departures, FlowKey, Frame, Limits, Monitor, Second, Tree, Window};
use proptest::prelude::*;

/// Name, class above, guarantee in kbit/s.
const CLASSES: [(&str, ClassId, u64); 7] = [
    ("link", 0, 10_000),
    ("agency", 0, 5_000),
    ("web", 1, 3_000),
    ("bulk", 1, 2_000),
    ("rest", 0, 3_000),
    ("idle", 0, 1_000),
    ("deep", 2, 1_000),
];
const MS: Nanos = 1_000_000;

fn tree() -> Tree {
    let class = |(name, parent, kbit): (&str, ClassId, u64)| Class {
        name: name.into(),
        parent,
        asked: Some(Rate::kbit_s(kbit)),
        ceiling: None,
    };
    Tree::new(CLASSES.map(class).into()).unwrap()
}

fn engine() -> Engine {
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
    Key { src: u128::from(flow), dst: 99, sport: Some(1000), dport: Some(443), proto: 6, family: 4, ..Key::default() }
}

/// What was counted beside the monitor: what left each second.
#[derive(Clone, Debug, Default)]
struct Left {
    /// Charged bytes, by class of the packet.
    wire: [u64; 7],
    /// By class and flow.
    flows: HashMap<(ClassId, u32), Amount>,
    /// Times in the queue, by class.
    times: [Vec<Nanos>; 7],
    dropped: u64,
}

/// A link under random load, its monitor, and the count beside.
struct World {
    engine: Engine,
    departures: Departures,
    monitor: Monitor,
    random: SplitMix64,
    now: Nanos,
    wire_free: Nanos,
    /// The flow of each packet, by handle.
    flows: Vec<u32>,
    sketches: [Sketch; 7],
    seconds: Vec<Left>,
    unclassified: u64,
}

impl World {
    fn new(seed: u64) -> World {
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
    fn second(&mut self, loads: [u64; 7]) {
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
    fn check(&self, frame: &Frame) -> Result<(), TestCaseError> {
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

fn is_below(mut class: ClassId, above: ClassId) -> bool {
    while class != above {
        if class == ROOT {
            return false;
        }
        class = CLASSES[class as usize].1;
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_frame_adds_up_and_is_what_was_counted(
        seed: u64,
        phases in prop::collection::vec(prop::array::uniform7(0u64..90), 7),
    ) {
        let mut world = World::new(seed);
        for second in 0..70 {
            let mut loads = phases[second / 10];
            // Packets of inner classes, of the link itself among them, are few; class 5 is idle.
            (loads[0], loads[1], loads[2], loads[5]) = (loads[0] / 20, loads[1] / 20, loads[2] / 20, 0);
            world.second(loads);
            for window in Window::ALL {
                let frame = world.monitor.frame(window).unwrap();
                prop_assert_eq!(frame.check(), Ok(()));
                if second % 9 == 4 || second > 67 {
                    world.check(&frame)?;
                }
            }
        }
        prop_assert_eq!(world.engine.unclassified().0, world.unclassified);
        // The history of 70 seconds, and that of four quarters of a minute, have what left.
        let history = world.monitor.history();
        prop_assert_eq!((history.seconds().len(), history.quarters().len()), (70, 4));
        for class in 0..7 {
            let wire = |seconds: &[Left]| seconds.iter().map(|left| left.wire[class as usize]).sum::<u64>();
            let of_slice = |slice: &Slice| slice.point(class).map_or(0, |point| point.wire_bytes);
            let fine: u64 = history.seconds().map(of_slice).sum();
            let coarse: u64 = history.quarters().map(of_slice).sum();
            prop_assert_eq!((fine, coarse), (wire(&world.seconds), wire(&world.seconds[..60])));
        }
        // In every slice what was borrowed was lent.
        for slice in history.seconds().chain(history.quarters()) {
            let borrowed: u64 = slice.points().map(|(_, point)| point.borrowed_bytes).sum();
            let lent: u64 = slice.points().map(|(_, point)| point.lent_bytes).sum();
            prop_assert_eq!(borrowed, lent + slice.lent_by_idle);
        }
        // Lines of the link are what it got each second.
        let series = world.monitor.series(&[ROOT, 1], 70);
        for (second, left) in world.seconds.iter().enumerate() {
            prop_assert_eq!(series[0][second], left.wire.iter().sum::<u64>() * 8);
            prop_assert_eq!(series[1][second], [1, 2, 3, 6].map(|at: usize| left.wire[at]).iter().sum::<u64>() * 8);
        }
    }
}

#[test]
fn a_document_is_the_frame_that_it_was_made_of() {
    let mut world = World::new(5);
    assert!(world.monitor.frame(Window::Second).is_none());
    for second in 0..20 {
        world.second([1, 1, 1, 60, if second < 10 { 80 } else { 5 }, 0, 40]);
    }
    let frame = world.monitor.frame(Window::Ten).unwrap();
    let more = |class| More { flows: Some(world.monitor.flows(&frame, class)), ..More::default() };
    let top = Top::new(vec![Link::of(&frame, world.monitor.counters(), more)]);
    let text = serde_json::to_string(&top).unwrap();
    assert!(text.starts_with(&format!("{{\"schema\":\"{SCHEMA}\",\"links\":[{{\"name\":\"link\"")), "{text}");
    let back: Top = serde_json::from_str(&text).unwrap();
    assert_eq!(back, top);
    let again = back.links[0].frame().unwrap();
    again.check().unwrap();
    assert_eq!((&again.rows, &again.tree), (&frame.rows, &frame.tree));
    assert_eq!((again.window, again.from, again.to, again.time), (frame.window, frame.from, frame.to, frame.time));
    for class in &top.links[0].classes {
        let listed: u64 = class.flows.iter().map(|flow| flow.bytes_at_least).sum();
        assert_eq!(listed + class.other_bytes.unwrap(), class.window.sent_bytes, "{}", class.name);
    }
    let web = &top.links[0].classes[2];
    assert_eq!((web.name.as_str(), web.parent.as_deref(), web.asked_bit_s), ("web", Some("agency"), Some(3_000_000)));
}

/// An engine that begins anew counts from 0: what a class has sent is all that it has counted, also
/// if that is more than the old engine's count.
#[test]
fn an_engine_that_begins_anew() {
    let mut monitor = Monitor::new(tree(), Limits::default(), None);
    let mut second = |at: u64, bulk: u64, rest: u64| {
        let mut counters = vec![Counters::default(); CLASSES.len()];
        for (class, packets) in [(0, bulk + rest), (1, bulk), (3, bulk), (4, rest)] {
            let bytes = packets * 100;
            counters[class] =
                Counters { sent_packets: packets, sent_bytes: bytes, sent_wire_bytes: bytes, ..Counters::default() };
        }
        let (from, to) = (at * SECOND, (at + 1) * SECOND);
        monitor.second(Second { from, to, counters: &counters, ..Second::default() });
    };
    second(0, 1000, 5);
    // Less in all, and more of the last class.
    second(1, 100, 50);
    let frame = monitor.frame(Window::Second).unwrap();
    frame.check().unwrap();
    let own = |class: usize| frame.rows[class].own.sent_packets;
    assert_eq!([0, 1, 3, 4].map(own), [0, 0, 100, 50]);
}

/// Charged bytes of a class's own packets in all seconds of the history.
fn in_history(monitor: &Monitor, class: ClassId) -> u64 {
    monitor.history().seconds().filter_map(|slice| slice.point(class)).map(|point| point.wire_bytes).sum()
}

#[test]
fn a_history_goes_on_in_another_process_and_under_another_policy() {
    let mut world = World::new(9);
    (0..20).for_each(|_| world.second([0, 0, 0, 50, 50, 0, 0]));
    let sent = |world: &World, class: usize| world.seconds.iter().map(|left| left.wire[class]).sum::<u64>();
    let kept: altq_monitor::History =
        serde_json::from_str(&serde_json::to_string(world.monitor.history()).unwrap()).unwrap();
    world.monitor = Monitor::new(tree(), Limits::default(), Some(kept));
    // The new monitor sees the engine's counters for the first time: it takes them as one second.
    // Here the engine begins anew as well.
    (world.engine, world.flows) = (engine(), Vec::new());
    (0..25).for_each(|_| world.second([0, 0, 0, 50, 50, 0, 0]));
    for class in [3, 4] {
        assert_eq!(in_history(&world.monitor, class), sent(&world, class as usize));
        // 15 seconds, then the five that were left and 15 of the new process.
        let quarters: Vec<u32> = world.monitor.history().quarters().map(|slice| slice.seconds).collect();
        assert_eq!(quarters, [15, 20]);
    }
    // Class 3 and what it did are gone from the policy: its history is the link's.
    let mut classes = tree().classes().to_vec();
    classes.remove(3);
    classes[5].parent = 2;
    world.monitor.set_tree(Tree::new(classes).unwrap());
    let of = |class: ClassId| in_history(&world.monitor, class);
    assert_eq!((of(ROOT), of(3)), (sent(&world, 3), sent(&world, 4)));
}
