//! fq_codel against RFC 8290: a model written from its text, orders of packets worked out by hand,
//! and the bounds of its round robin.

use crate::support;

use std::collections::{HashMap, VecDeque};

use altq_engine::account::DropReason;
use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::spec::{ClassSpec, LinkSpec, QueueSpec, ROOT, SchedulerSpec};
use altq_engine::units::Rate;
use altq_engine::{Engine, Packet};
use support::{MS, Random};

/// A link with one queue.
fn engine(limit: Limit, settings: Settings) -> Engine {
    let class = |queue| ClassSpec { parent: ROOT, settings: Settings::new(), queue, scheduler: None };
    let queue = QueueSpec { name: "fq_codel", limit, settings };
    Engine::new(&LinkSpec::new(Rate::mbit_s(10), SchedulerSpec::new("priq"), vec![class(None), class(Some(queue))]))
        .unwrap()
}

/// So many buckets that a few flows never share one.
fn apart() -> Settings {
    Settings::new().with("flows", Value::Int(1 << 20))
}

fn packet(flow: u32, handle: u32, len: u32) -> Packet {
    Packet { flow, ..Packet::new(handle, len) }
}

fn order(engine: &mut Engine, now: u64) -> Vec<u32> {
    std::iter::from_fn(|| engine.dequeue(now)).map(|departure| departure.packet.handle).collect()
}

#[test]
fn a_sparse_flow_goes_first() {
    // Quantum 1500. Bulk flows A (handles 0..) and B (100..) of 1500-byte packets; the sparse flow
    // S (200..) has 100 bytes now and then.
    let mut engine = engine(Limit::Packets(100), apart());
    for n in 0..4 {
        engine.enqueue(0, 1, packet(1, n, 1500));
        engine.enqueue(0, 1, packet(2, 100 + n, 1500));
    }
    let next = |engine: &mut Engine| engine.dequeue(0).unwrap().packet.handle;
    // A and B are new: each sends its quantum, and is old then.
    assert_eq!([next(&mut engine), next(&mut engine)], [0, 100]);
    // A packet of S comes and goes first. B is still the first of the new flows, but its credit is
    // used up, so it moves to the old ones.
    engine.enqueue(0, 1, packet(3, 200, 100));
    assert_eq!(next(&mut engine), 200);
    // S is empty, but its turn is not over: 1400 bytes of its quantum are left. So another packet
    // of S goes first as well.
    engine.enqueue(0, 1, packet(3, 201, 100));
    assert_eq!(next(&mut engine), 201);
    assert_eq!([next(&mut engine), next(&mut engine)], [1, 101]);
    // S, which is empty, is now among the old flows, behind B. A packet of S waits until the flow's
    // turn there.
    engine.enqueue(0, 1, packet(3, 202, 100));
    assert_eq!(order(&mut engine, 0), [202, 2, 102, 3, 103]);
}

#[test]
fn a_flow_that_empties_is_not_new_again_at_once() {
    // RFC 8290, 4.2: a new flow that is empty goes to the end of the old ones, so that it cannot
    // starve them. Here S gets a packet as soon as its last one has left. A must get its quantum
    // once in each round.
    let mut engine = engine(Limit::Packets(1000), apart());
    (0..20).for_each(|n| engine.enqueue(0, 1, packet(1, n, 1500)));
    let (mut bulk, mut sparse) = (0, 0);
    engine.enqueue(0, 1, packet(2, 1000, 1500));
    for step in 0..20 {
        if engine.dequeue(0).unwrap().packet.flow == 2 {
            sparse += 1;
            engine.enqueue(0, 1, packet(2, 1001 + step, 1500));
        } else {
            bulk += 1;
        }
    }
    assert_eq!((bulk, sparse), (10, 10));
}

// ------------------------------------------------------------------ the model

/// The state of CoDel (RFC 8289, 5.2). Times are in ns.
#[derive(Default)]
struct Codel {
    first_above_time: u64,
    drop_next: u64,
    count: u64,
    lastcount: u64,
    dropping: bool,
}

#[derive(Default)]
struct Model {
    queues: HashMap<u32, (VecDeque<Packet>, Codel, i64)>,
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    bytes: u64,
    ecn: bool,
    dropped: Vec<u32>,
}

const TARGET: u64 = 5 * MS;
const INTERVAL: u64 = 100 * MS;
const MAXPACKET: u64 = 1500;
const QUANTUM: i64 = 600;

fn control_law(t: u64, count: u64) -> u64 {
    t + (INTERVAL as u128 * INTERVAL as u128 / count as u128).isqrt() as u64
}

impl Model {
    fn enqueue(&mut self, packet: Packet) {
        let queue = self.queues.entry(packet.flow).or_default();
        queue.0.push_back(packet);
        self.bytes += u64::from(packet.len);
        if !self.new.contains(&packet.flow) && !self.old.contains(&packet.flow) {
            queue.2 = QUANTUM;
            self.new.push_back(packet.flow);
        }
    }

    fn dodequeue(&mut self, flow: u32, now: u64) -> (Option<Packet>, bool) {
        let (queue, codel, _) = self.queues.get_mut(&flow).unwrap();
        let Some(packet) = queue.pop_front() else {
            codel.first_above_time = 0;
            return (None, false);
        };
        self.bytes -= u64::from(packet.len);
        let mut ok_to_drop = false;
        if now - packet.arrived < TARGET || self.bytes <= MAXPACKET {
            codel.first_above_time = 0;
        } else if codel.first_above_time == 0 {
            codel.first_above_time = now + INTERVAL;
        } else if now >= codel.first_above_time {
            ok_to_drop = true;
        }
        (Some(packet), ok_to_drop)
    }

    /// Marks a packet and returns true, or drops it.
    fn signal(&mut self, packet: &mut Packet) -> bool {
        if self.ecn && packet.ecn != 0 {
            packet.ecn = 3;
            return true;
        }
        self.dropped.push(packet.handle);
        false
    }

    fn codel_dequeue(&mut self, flow: u32, now: u64) -> Option<Packet> {
        let (mut packet, mut ok) = self.dodequeue(flow, now);
        if self.queues[&flow].1.dropping {
            self.queues.get_mut(&flow).unwrap().1.dropping = ok;
            while self.queues[&flow].1.dropping && now >= self.queues[&flow].1.drop_next {
                let codel = &mut self.queues.get_mut(&flow).unwrap().1;
                codel.count += 1;
                if self.signal(packet.as_mut().unwrap()) {
                    let codel = &mut self.queues.get_mut(&flow).unwrap().1;
                    codel.drop_next = control_law(codel.drop_next, codel.count);
                    break;
                }
                (packet, ok) = self.dodequeue(flow, now);
                let codel = &mut self.queues.get_mut(&flow).unwrap().1;
                match ok {
                    true => codel.drop_next = control_law(codel.drop_next, codel.count),
                    false => codel.dropping = false,
                }
            }
        } else if ok {
            if !self.signal(packet.as_mut().unwrap()) {
                packet = self.dodequeue(flow, now).0;
            }
            let codel = &mut self.queues.get_mut(&flow).unwrap().1;
            codel.dropping = true;
            let delta = codel.count - codel.lastcount;
            codel.count = if delta > 1 && now.saturating_sub(codel.drop_next) < 16 * INTERVAL { delta } else { 1 };
            codel.drop_next = control_law(now, codel.count);
            codel.lastcount = codel.count;
        }
        packet
    }

    fn dequeue(&mut self, now: u64) -> Option<Packet> {
        loop {
            let new = !self.new.is_empty();
            let flow = *self.new.front().or(self.old.front())?;
            let deficit = &mut self.queues.get_mut(&flow).unwrap().2;
            if *deficit <= 0 {
                *deficit += QUANTUM;
                if new {
                    self.new.pop_front()
                } else {
                    self.old.pop_front()
                };
                self.old.push_back(flow);
                continue;
            }
            match self.codel_dequeue(flow, now) {
                Some(packet) => {
                    self.queues.get_mut(&flow).unwrap().2 -= i64::from(packet.len);
                    if self.queues.values().all(|(queue, ..)| queue.is_empty()) {
                        // A driver asks until no packet comes, so all flows leave the rounds.
                        assert_eq!(self.dequeue(now), None);
                    }
                    return Some(packet);
                }
                None if new => {
                    self.new.pop_front();
                    // Without old flows it leaves the rounds, as in Linux.
                    if !self.old.is_empty() {
                        self.old.push_back(flow);
                    }
                }
                None => {
                    self.old.pop_front();
                }
            }
        }
    }
}

/// The engine decides as the model about every packet, in bursts, standing queues and pauses, with
/// and without ECN.
#[test]
fn packet_by_packet_as_the_rfc() {
    let (mut dropped, mut marked, mut sent) = (0, 0, 0);
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let ecn = random.chance(50);
        let mut settings = apart().with("quantum", Value::Bytes(QUANTUM as u64));
        if ecn {
            settings.set("ecn", Value::Flag);
        }
        let mut engine = engine(Limit::Packets(1_000_000), settings);
        let mut model = Model { ecn, ..Model::default() };
        let (mut now, mut handle) = (0, 0);
        for step in 0..4000 {
            let busy = [75, 45, 20, 52][step / 300 % 4];
            if random.chance(busy) {
                // Flow 0 sends most; the others send now and then.
                let flow = if random.chance(60) { 0 } else { random.below(6) as u32 };
                let len = random.pick(&[60, 300, 1000, 1500]);
                let ecn = if flow == 1 { 0 } else { 2 };
                let packet = Packet { ecn, ..packet(flow, handle, len) };
                engine.enqueue(now, 1, packet);
                model.enqueue(Packet { arrived: now, ..packet });
                handle += 1;
            } else {
                let ours = engine.dequeue(now).map(|departure| (departure.packet.handle, departure.packet.ecn));
                let theirs = model.dequeue(now).map(|packet| (packet.handle, packet.ecn));
                assert_eq!(ours, theirs, "at {now}, seed {seed}");
                marked += u64::from(ours.is_some_and(|(_, ecn)| ecn == 3));
                sent += u64::from(ours.is_some());
                let lost: Vec<u32> = engine.drops().map(|drop| drop.packet.handle).collect();
                dropped += lost.len();
                assert_eq!(lost, std::mem::take(&mut model.dropped), "at {now}, seed {seed}");
            }
            // Now and then a pause, shorter or longer than 16 intervals.
            now += if random.below(500) == 0 { random.below(2500) * MS } else { random.below(8) * MS };
        }
    }
    assert!(dropped > 500 && marked > 500 && sent > 10_000, "only {dropped} drops, {marked} marks, {sent} sent");
}

/// The bytes served of two flows that always have packets differ by at most Q + 2 L over any
/// interval. A turn adds Q to a flow's credit, and less than L is carried to the next turn. So m
/// turns serve m Q ± L, and the numbers of turns of two flows differ by at most one (Shreedhar and
/// Varghese 1996, lemma 2 and the fairness theorem; here the credit goes below zero, in their
/// algorithm it is saved up).
#[test]
fn rounds_are_fair() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let flows = 2 + random.below(20) as u32;
        let quantum = random.pick(&[256, 600, 1500, 3000]);
        let mut engine = engine(Limit::Packets(1_000_000), apart().with("quantum", Value::Bytes(quantum)));
        let sizes: Vec<u32> = (0..flows).map(|_| random.pick(&[64, 500, 1500, 0])).collect();
        let put = |engine: &mut Engine, random: &mut Random, flow: u32| {
            let len = if sizes[flow as usize] == 0 { 40 + random.below(1461) as u32 } else { sizes[flow as usize] };
            engine.enqueue(0, 1, packet(flow, 0, len));
        };
        for flow in 0..flows {
            (0..60).for_each(|_| put(&mut engine, &mut random, flow));
        }
        let mut served = vec![0i64; flows as usize];
        // The least and the greatest difference of each pair, since all flows are old ones.
        let mut range = HashMap::<(u32, u32), (i64, i64)>::new();
        for step in 0..20_000 {
            let departure = engine.dequeue(0).unwrap();
            let flow = departure.packet.flow;
            served[flow as usize] += i64::from(departure.packet.len);
            put(&mut engine, &mut random, flow);
            if step < 500 {
                continue;
            }
            for other in 0..flows {
                let pair = (flow.min(other), flow.max(other));
                let difference = served[pair.0 as usize] - served[pair.1 as usize];
                let seen = range.entry(pair).or_insert((difference, difference));
                *seen = (seen.0.min(difference), seen.1.max(difference));
            }
        }
        // The greatest difference over an interval is the distance between these two.
        let worst = range.values().map(|(least, most)| most - least).max().unwrap();
        assert!(worst <= quantum as i64 + 2 * 1500, "{worst} with a quantum of {quantum}");
        assert!(worst >= quantum as i64 / 2, "{worst} with a quantum of {quantum}: the test hardly tried the bound");
    }
}

#[test]
fn no_flow_starves() {
    // An old flow is served within one round of all flows, though 30 others become new again and
    // again.
    let mut engine = engine(Limit::Packets(10_000), apart());
    (0..200).for_each(|n| engine.enqueue(0, 1, packet(0, n, 1500)));
    let (mut since, mut worst, mut handle) = (0, 0, 1000);
    for _ in 0..3000 {
        for flow in 1..=30 {
            engine.enqueue(0, 1, packet(flow, handle, 50));
            handle += 1;
        }
        for _ in 0..30 {
            let departure = engine.dequeue(0).unwrap();
            since = if departure.packet.flow == 0 { 0 } else { since + departure.packet.len };
            worst = worst.max(since);
            if departure.packet.flow == 0 {
                engine.enqueue(0, 1, packet(0, 0, 1500));
            }
        }
    }
    // Each of the 30 flows sends at most its quantum and a packet more in a turn, and has two
    // turns: one as a new flow and one as an old one.
    assert!(worst <= 2 * 30 * (1500 + 50), "{worst} bytes of others in a row");
}

#[test]
fn an_overflow_drops_from_the_head_of_the_fattest_flow() {
    // A has 60 packets and B has 4. With one packet more than the limit, half of A's 61 are
    // dropped, from the head.
    let mut engine = engine(Limit::Packets(64), apart());
    (0..60).for_each(|n| engine.enqueue(0, 1, packet(1, n, 1000)));
    (100..104).for_each(|n| engine.enqueue(0, 1, packet(2, n, 1000)));
    assert!(!engine.has_drops());
    engine.enqueue(0, 1, packet(1, 60, 1000));
    let lost: Vec<_> = engine.drops().map(|drop| (drop.packet.handle, drop.reason)).collect();
    assert_eq!(lost, (0..31).map(|n| (n, DropReason::HeadDropped)).collect::<Vec<_>>());
    // A flow with 301 packets loses 64 at a time (RFC 8290, 4.1), or as many as drop_batch says.
    for (batch, settings) in [(64, apart()), (1, apart().with("drop_batch", Value::Int(1)))] {
        let mut engine = self::engine(Limit::Packets(300), settings);
        (0..301).for_each(|n| engine.enqueue(0, 1, packet(1, n, 1000)));
        assert_eq!(engine.drops().count(), batch);
    }
}

#[test]
fn only_active_flows_take_memory() {
    let spec = |flows| apart().with("flows", Value::Int(flows));
    let mut engine = engine(Limit::Packets(200_000), spec(1 << 20));
    let idle = engine.memory();
    assert!(idle < (1 << 20) * 4 + 4096, "{idle}");
    (0..10_000).for_each(|n| engine.enqueue(0, 1, packet(n, n, 100)));
    let active = engine.memory() - idle;
    // 64 bytes each, in a list that grows by doubling.
    assert!((10_000 * 63..=16_384 * 64).contains(&active), "{active}");
    assert_eq!(order(&mut engine, 0).len(), 10_000);
    // Other flows use the same records again.
    (20_000..30_000).for_each(|n| engine.enqueue(0, 1, packet(n, n, 100)));
    assert_eq!(engine.memory() - idle, active);
}
