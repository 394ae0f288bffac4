//! SFQ: its decisions against a model written from tc-sfq(8), the marks of the RED in its flows
//! against RED's formula, and changes of the hash.

use crate::support;

use std::collections::{HashMap, VecDeque};

use altq_engine::account::DropReason;
use altq_engine::settings::{Limit, ONE, Settings, Value};
use altq_engine::spec::{ClassSpec, LinkSpec, QueueSpec, ROOT, SchedulerSpec};
use altq_engine::units::Rate;
use altq_engine::{Engine, Packet};
use support::{Random, S};

fn engine(limit: Limit, settings: Settings) -> Engine {
    let class = |queue| ClassSpec { parent: ROOT, settings: Settings::new(), queue, scheduler: None };
    let queue = QueueSpec { name: "sfq", limit, settings };
    Engine::new(&LinkSpec::new(Rate::mbit_s(10), SchedulerSpec::new("priq"), vec![class(None), class(Some(queue))]))
        .unwrap()
}

fn apart() -> Settings {
    Settings::new().with("divisor", Value::Int(1 << 20))
}

fn packet(flow: u32, handle: u32, len: u32) -> Packet {
    Packet { flow, ..Packet::new(handle, len) }
}

fn lost(engine: &mut Engine) -> Vec<u32> {
    engine.drops().map(|drop| drop.packet.handle).collect()
}

fn counters(engine: &Engine) -> HashMap<&'static str, u64> {
    engine.queue_counters(1).into_iter().collect()
}

// ------------------------------------------------------------------ rounds

/// SFQ with rounds by bytes and the drops of tc-sfq(8). A flow has packets and a credit in bytes.
#[derive(Default)]
struct Model {
    flows: HashMap<u32, (VecDeque<Packet>, i64)>,
    ring: VecDeque<u32>,
    /// The step at which each flow's length last changed.
    touched: HashMap<u32, u64>,
    step: u64,
    lost: Vec<u32>,
}

const QUANTUM: i64 = 1000;

impl Model {
    fn touch(&mut self, flow: u32) {
        self.step += 1;
        self.touched.insert(flow, self.step);
    }

    fn total(&self) -> usize {
        self.flows.values().map(|(queue, _)| queue.len()).sum()
    }

    fn enqueue(&mut self, packet: Packet, (limit, flows, depth): (usize, usize, usize), headdrop: bool, front: bool) {
        let id = packet.flow;
        if !self.flows.contains_key(&id) && self.flows.len() >= flows {
            return self.lost.push(packet.handle);
        }
        let (queue, _) = self.flows.entry(id).or_default();
        if queue.len() >= depth {
            if !headdrop {
                return self.lost.push(packet.handle);
            }
            self.lost.push(queue.pop_front().unwrap().handle);
            queue.push_back(packet);
            // The length changed, though it is the same again.
            return self.touch(id);
        }
        queue.push_back(packet);
        if queue.len() == 1 {
            self.flows.get_mut(&id).unwrap().1 = QUANTUM;
            if front { self.ring.push_front(id) } else { self.ring.push_back(id) }
        }
        self.touch(id);
        if self.total() <= limit {
            return;
        }
        let longest = self.flows.values().map(|(queue, _)| queue.len()).max().unwrap();
        let victim = if longest == 1 {
            self.ring[0]
        } else {
            let of_them = self.flows.iter().filter(|(_, (queue, _))| queue.len() == longest);
            *of_them.max_by_key(|(flow, _)| self.touched[flow]).unwrap().0
        };
        let queue = &mut self.flows.get_mut(&victim).unwrap().0;
        self.lost.push(if headdrop { queue.pop_front() } else { queue.pop_back() }.unwrap().handle);
        if queue.is_empty() {
            self.flows.remove(&victim);
            self.ring.pop_front();
        }
        self.touch(victim);
    }

    fn dequeue(&mut self) -> Option<u32> {
        loop {
            let id = *self.ring.front()?;
            let (queue, allot) = self.flows.get_mut(&id).unwrap();
            if *allot <= 0 {
                *allot += QUANTUM;
                self.ring.rotate_left(1);
                continue;
            }
            let packet = queue.pop_front().unwrap();
            *allot -= i64::from(packet.len);
            if queue.is_empty() {
                self.flows.remove(&id);
                self.ring.pop_front();
            }
            self.touch(id);
            return Some(packet.handle);
        }
    }
}

#[test]
fn packet_by_packet_as_the_manual_says() {
    let mut dropped = 0;
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let headdrop = random.chance(50);
        let front = random.chance(50);
        let bounds = (10 + random.below(60) as usize, 3 + random.below(10) as usize, 4 + random.below(20) as usize);
        let mut settings = apart()
            .with("flows", Value::Int(bounds.1 as u64))
            .with("depth", Value::Int(bounds.2 as u64))
            .with("quantum", Value::Bytes(QUANTUM as u64));
        if headdrop {
            settings.set("headdrop", Value::Flag);
        }
        if front {
            settings.set("new-flow", Value::Choice("front"));
        }
        let mut engine = engine(Limit::Packets(bounds.0 as u32), settings);
        let mut model = Model::default();
        for step in 0..3000u32 {
            if random.chance([70, 40][step as usize / 300 % 2]) {
                let flow = if random.chance(40) { 0 } else { random.below(14) as u32 };
                let packet = packet(flow, step, random.pick(&[60, 300, 1000, 1500]));
                engine.enqueue(0, 1, packet);
                model.enqueue(packet, bounds, headdrop, front);
            } else {
                let ours = engine.dequeue(0).map(|departure| departure.packet.handle);
                assert_eq!(ours, model.dequeue(), "step {step}, seed {seed}");
            }
            let lost = lost(&mut engine);
            dropped += lost.len();
            assert_eq!(
                lost,
                std::mem::take(&mut model.lost),
                "step {step}, seed {seed}, headdrop {headdrop}, front {front}"
            );
        }
    }
    assert!(dropped > 5000, "{dropped}");
}

#[test]
fn a_new_flow_is_served_next_or_last() {
    // Three flows have packets. The first one sends a packet, and its quantum is used up. Then two
    // new flows come.
    for (word, order) in [("back", [2, 3, 8, 9, 1]), ("front", [9, 8, 2, 3, 1])] {
        let mut engine = engine(
            Limit::Packets(100),
            apart().with("quantum", Value::Bytes(1500)).with("new-flow", Value::Choice(word)),
        );
        // With `front` the last new flow is served first, so flow 1 comes last.
        let flows = if word == "back" { [1, 2, 3] } else { [3, 2, 1] };
        flows.iter().for_each(|flow| (0..3).for_each(|_| engine.enqueue(0, 1, packet(*flow, 0, 1500))));
        assert_eq!(engine.dequeue(0).unwrap().packet.flow, 1);
        [8, 9].iter().for_each(|flow| engine.enqueue(0, 1, packet(*flow, 0, 60)));
        assert_eq!([(); 5].map(|()| engine.dequeue(0).unwrap().packet.flow), order, "{word}");
    }
}

/// The bytes served of two flows that always have packets differ by at most Q + 2 L over any
/// interval (Shreedhar and Varghese 1996; see the same test of fq_codel).
#[test]
fn rounds_are_fair() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let flows = 2 + random.below(20) as u32;
        let quantum = random.pick(&[256, 600, 1514, 3000]);
        let settings = apart().with("quantum", Value::Bytes(quantum));
        let mut engine = engine(Limit::Packets(1_000_000), settings);
        let put = |engine: &mut Engine, random: &mut Random, flow: u32| {
            let len =
                if flow.is_multiple_of(3) { 40 + random.below(1461) as u32 } else { [64, 1500][flow as usize % 2] };
            engine.enqueue(0, 1, packet(flow, 0, len));
        };
        for flow in 0..flows {
            (0..100).for_each(|_| put(&mut engine, &mut random, flow));
        }
        let mut served = vec![0i64; flows as usize];
        let mut range = HashMap::<(u32, u32), (i64, i64)>::new();
        for _ in 0..20_000 {
            let flow = engine.dequeue(0).unwrap().packet;
            served[flow.flow as usize] += i64::from(flow.len);
            put(&mut engine, &mut random, flow.flow);
            for other in 0..flows {
                let pair = (flow.flow.min(other), flow.flow.max(other));
                let difference = served[pair.0 as usize] - served[pair.1 as usize];
                let seen = range.entry(pair).or_insert((0, 0));
                *seen = (seen.0.min(difference), seen.1.max(difference));
            }
        }
        assert!(!engine.has_drops());
        let worst = range.values().map(|(least, most)| most - least).max().unwrap();
        assert!(worst <= quantum as i64 + 2 * 1500, "{worst} with a quantum of {quantum}");
        assert!(worst >= quantum as i64 / 2, "{worst} with a quantum of {quantum}: the test hardly tried the bound");
    }
}

// ------------------------------------------------------------------ RED

/// The SFQ-RED of early CeroWrt, in tc's words: `limit 200p depth 42 headdrop divisor 1024 ewma 4
/// min 3000b max 18000b probability 0.2 ecn`.
fn cerowrt() -> Settings {
    Settings::new()
        .with("depth", Value::Int(42))
        .with("headdrop", Value::Flag)
        .with("redflowlimit", Value::Bytes(72_000))
        .with("ewma", Value::Int(4))
        .with("min", Value::Bytes(3000))
        .with("max", Value::Bytes(18_000))
        .with("probability", Value::Fraction(ONE / 5))
        .with("ecn", Value::Flag)
}

/// Fills a flow with `packets` packets of 1500 bytes. Then, `n` times, one leaves and one arrives.
fn hold(engine: &mut Engine, packets: u32, n: u32, ecn: u8) {
    for handle in 0..packets + n {
        if handle >= packets {
            engine.dequeue(0);
        }
        // From then on, each arriving packet finds `packets` - 1.
        while engine.own_counters(1).queued_packets < u64::from(packets) {
            engine.enqueue(0, 1, Packet { ecn, ..packet(1, handle, 1500) });
        }
    }
}

#[test]
fn marks_as_often_as_the_formula_says() {
    // Packets find 7 others: an average of 10,500 bytes, halfway from 3000 to 18,000. So p = 0.2/2
    // = 0.1. By Floyd and Jacobson's figure 2 the first packet after a mark is marked with
    // probability p/(1 - p), the second with p/(1 - 2 p), and so on. So the interval between marks
    // is uniform from 1 to 9 packets: 5 on average, with a standard deviation of 2.58.
    let mut engine = engine(Limit::Packets(200), cerowrt());
    hold(&mut engine, 8, 200, 2);
    let before = counters(&engine)["prob_mark_head"];
    hold(&mut engine, 8, 20_000, 2);
    let marks = counters(&engine)["prob_mark_head"] - before;
    // 20,000/5 = 4000 marks, with a standard deviation of about 4000^0.5 · 2.58/5 = 33. Four of
    // these are allowed.
    assert!((3868..=4132).contains(&marks), "{marks} marks");
    assert_eq!(lost(&mut engine).len(), 0);
    let counters = counters(&engine);
    assert_eq!([counters["prob_mark"], counters["prob_drop"], counters["forced_mark_head"]], [0, 0, 0]);
    assert_eq!(engine.own_counters(1).marked_packets, counters["prob_mark_head"]);
}

#[test]
fn the_head_is_marked_and_the_tail_without_headdrop() {
    // The average is above max, so every arriving packet leads to a mark.
    let words = cerowrt().with("min", Value::Bytes(100)).with("max", Value::Bytes(200)).with("ewma", Value::Int(1));
    let run = |settings: Settings, ecn: u8| {
        let mut engine = engine(Limit::Packets(200), settings);
        (0..4).for_each(|n| engine.enqueue(0, 1, Packet { ecn, ..packet(1, n, 1500) }));
        let lost = lost(&mut engine);
        let left: Vec<_> = std::iter::from_fn(|| engine.dequeue(0)).map(|d| (d.packet.handle, d.packet.ecn)).collect();
        let counters = counters(&engine);
        let names = ["prob_mark", "prob_mark_head", "prob_drop", "forced_mark", "forced_mark_head", "forced_drop"];
        (lost, left, names.map(|name| counters[name]))
    };
    // The first packet finds an empty flow. From the second on the average is above max: 750 bytes
    // or more.
    assert_eq!(run(words.clone(), 2), (vec![], vec![(0, 3), (1, 2), (2, 2), (3, 2)], [0, 0, 0, 0, 3, 0]));
    let mut tail = words.clone();
    tail.unset("headdrop");
    assert_eq!(run(tail.clone(), 2), (vec![], vec![(0, 2), (1, 3), (2, 3), (3, 3)], [0, 0, 0, 3, 0, 0]));
    // Packets that are not ECN-capable are dropped: with headdrop the one at the head, without it
    // the arriving one.
    assert_eq!(run(words.clone(), 0), (vec![0, 1, 2], vec![(3, 0)], [0, 0, 0, 0, 0, 3]));
    assert_eq!(run(tail, 0), (vec![1, 2, 3], vec![(0, 0)], [0, 0, 0, 0, 0, 3]));
    assert_eq!(run(words.with("harddrop", Value::Flag), 2), (vec![0, 1, 2], vec![(3, 2)], [0, 0, 0, 0, 0, 3]));
}

#[test]
fn red_counts_what_it_did() {
    // Random flows, half of them ECN-capable. The queue's counters of marks and drops add up to the
    // engine's.
    for seed in 0..10 {
        let mut random = Random::new(seed);
        let mut engine = engine(Limit::Packets(200), cerowrt());
        engine.set_seed(seed);
        let mut early = 0;
        for handle in 0..30_000 {
            let flow = random.below(8) as u32;
            engine.enqueue(
                0,
                1,
                Packet { ecn: (flow % 2) as u8, ..packet(flow, handle, random.pick(&[100, 600, 1500])) },
            );
            if random.chance(90) {
                engine.dequeue(0);
            }
            early += engine.drops().filter(|drop| drop.reason == DropReason::Early).count() as u64;
        }
        let c = counters(&engine);
        let marks = c["prob_mark"] + c["prob_mark_head"] + c["forced_mark"] + c["forced_mark_head"];
        assert_eq!(marks, engine.own_counters(1).marked_packets);
        assert_eq!(c["prob_drop"] + c["forced_drop"], early);
        assert!(c["prob_mark_head"] > 100 && c["prob_drop"] > 100, "{c:?}");
    }
}

#[test]
fn a_flow_holds_no_more_bytes_than_redflowlimit() {
    let words = apart().with("redflowlimit", Value::Bytes(4000)).with("ewma", Value::Int(20));
    let mut engine = engine(Limit::Packets(100), words);
    (0..5).for_each(|n| engine.enqueue(0, 1, packet(1, n, 1000)));
    (10..12).for_each(|n| engine.enqueue(0, 1, packet(2, n, 1000)));
    assert_eq!(lost(&mut engine), [4]);
}

// ------------------------------------------------------------------ the hash that changes

#[test]
fn flows_stay_in_order_while_the_hash_changes() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let divisor = random.pick(&[2, 8, 500]);
        let settings = Settings::new().with("divisor", Value::Int(divisor)).with("perturb", Value::Time(S));
        let mut engine = engine(Limit::Packets(100_000), settings.with("flows", Value::Int(1000)));
        engine.set_seed(seed);
        let mut last = HashMap::new();
        let mut handle = 0;
        for _ in 0..20_000 {
            let now = u64::from(handle) * 10_000_000;
            handle += 1;
            engine.enqueue(now, 1, packet(random.below(40) as u32, handle, 100));
            if random.chance(95)
                && let Some(departure) = engine.dequeue(now)
            {
                let before = last.insert(departure.packet.flow, departure.packet.handle);
                assert!(before < Some(departure.packet.handle));
            }
            // When two flows come to share a bucket, they may exceed the depth of one flow.
            engine.drops().for_each(|drop| assert_eq!(drop.reason, DropReason::QueueFull));
        }
    }
}

#[test]
fn a_change_of_the_hash_separates_flows_that_shared_a_bucket() {
    // With three flows and two buckets, at least two flows always share one. Over 600 changes of
    // the hash each flow is alone equally often, and gets 1/3 of the link on average.
    let share = |perturb: bool| {
        let mut settings = Settings::new().with("divisor", Value::Int(2));
        if perturb {
            settings.set("perturb", Value::Time(S));
        }
        let mut engine = engine(Limit::Packets(127), settings);
        let mut sent = [0f64; 3];
        (0..30).for_each(|n| engine.enqueue(0, 1, packet(n % 3, n, 1500)));
        for step in 0..60_000u64 {
            let now = step * 10_000_000;
            let flow = engine.dequeue(now).unwrap().packet.flow;
            sent[flow as usize] += 1.0 / 60_000.0;
            engine.enqueue(now, 1, packet(flow, 0, 1500));
            assert!(!engine.has_drops());
        }
        sent
    };
    let fixed = share(false);
    assert!(fixed.iter().any(|part| *part > 0.49) || fixed.iter().all(|part| *part < 0.35), "{fixed:?}");
    // Each share is the mean of 600 draws from 1/2, 1/4, 1/4 (or 1/3 if all three share one
    // bucket), with a standard deviation of at most 0.118/600^0.5 = 0.0048.
    let changing = share(true);
    assert!(changing.iter().all(|part| (part - 1.0 / 3.0).abs() < 0.02), "{changing:?}");
}

#[test]
fn hosts_are_kept_apart_if_asked_for() {
    // Host 1 has nine flows and host 2 has one. By host each gets half.
    for (word, which) in [("src", 0), ("dst", 1)] {
        let mut engine = engine(Limit::Packets(1000), apart().with("hash", Value::Choice(word)));
        for flow in 0..10 {
            let mut hosts = [7, 7];
            hosts[which] = if flow == 9 { 2 } else { 1 };
            (0..if flow == 9 { 90 } else { 10 })
                .for_each(|_| engine.enqueue(0, 1, Packet { hosts, ..packet(flow, 0, 1000) }));
        }
        let mut of_nine = 0;
        (0..100).for_each(|_| of_nine += u32::from(engine.dequeue(0).unwrap().packet.flow == 9));
        assert_eq!(of_nine, 50, "{word}");
    }
}
