//! ALTQ's WFQ, packet by packet against docs/reference/altq.md 8.1 written down again as it stands
//! there: a search through all queues for the longest one, and a ring that is walked step by step.

use crate::support::queue as support;

use std::collections::VecDeque;

use altq_engine::random::{GOLDEN_GAMMA, SplitMix64, mix};
use altq_engine::settings::{Limit, Value};
use altq_engine::{Engine, Packet};
use support::{CLASS, Random, change, counter, link, queue};

const FLOW: (&str, Value) = ("hash", Value::Choice("flow"));

fn wfq(limit: Limit, words: &[(&'static str, Value)]) -> Engine {
    link(8_000_000, queue("hashed_wfq", limit, words)).unwrap()
}

/// Which of `queues` queues a flow has after `set_seed(seed)`: multiply-shift (Dietzfelbinger 1996)
/// with two random numbers, of which the first is odd.
fn queue_of(seed: u64, flow: u32, queues: u64) -> usize {
    let mut random = SplitMix64::new(mix(seed ^ (u64::from(CLASS) + 1).wrapping_mul(GOLDEN_GAMMA)));
    let (a, b) = (random.bits() | 1, random.bits());
    let hash = a.wrapping_mul(u64::from(flow)).wrapping_add(b) >> 32;
    ((hash * queues) >> 32) as usize
}

/// One of the queues.
#[derive(Clone, Default)]
struct Lane {
    packets: VecDeque<(u32, u32)>,
    quota: i64,
}

impl Lane {
    fn bytes(&self) -> u32 {
        self.packets.iter().map(|(_, len)| len).sum()
    }
}

/// The rules.
struct Model {
    lanes: Vec<Lane>,
    /// The active ones, from the pointer on.
    ring: VecDeque<usize>,
    limit: u32,
}

impl Model {
    fn total(&self) -> u32 {
        self.lanes.iter().map(Lane::bytes).sum()
    }

    /// A packet arrives. Returns those that are dropped.
    fn enqueue(&mut self, at: usize, handle: u32, len: u32) -> Vec<u32> {
        self.lanes[at].packets.push_back((handle, len));
        if !self.ring.contains(&at) {
            if self.ring.is_empty() {
                self.lanes[at].quota += 512;
            } else {
                self.lanes[at].quota = 0;
            }
            self.ring.push_back(at);
        }
        let mut dropped = Vec::new();
        while self.total() > self.limit {
            let most = self.lanes.iter().map(Lane::bytes).max().unwrap();
            let longest = *self.ring.iter().find(|at| self.lanes[**at].bytes() == most).unwrap();
            dropped.push(self.lanes[longest].packets.pop_front().unwrap().0);
        }
        dropped
    }

    fn dequeue(&mut self) -> Option<u32> {
        if self.total() == 0 {
            return None;
        }
        loop {
            let lane = &mut self.lanes[self.ring[0]];
            if lane.quota > 0 {
                if let Some((handle, len)) = lane.packets.pop_front() {
                    lane.quota -= i64::from(len);
                    return Some(handle);
                }
                self.ring.pop_front();
            } else {
                self.ring.rotate_left(1);
            }
            self.lanes[self.ring[0]].quota += 512;
        }
    }
}

#[test]
fn packet_by_packet() {
    let (mut sent, mut dropped, mut others, mut giants) = (0, 0, 0, 0);
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let queues = [1, 2, 7, 256, 2048][random.below(5) as usize];
        let limit = [3000, 20_000, 65_536, 300_000][random.below(4) as usize];
        let flows = [2, 20, 300][random.below(3) as usize];
        let giant = random.below(4) == 0 && limit > 65_535;
        let mut engine = wfq(Limit::Bytes(limit), &[("queues", Value::Int(queues)), FLOW]);
        engine.set_seed(seed);
        let mut model = Model { lanes: vec![Lane::default(); queues as usize], ring: VecDeque::new(), limit };
        for handle in 0..2500 {
            if random.below(100) < [70, 45, 30][handle as usize / 250 % 3] {
                let flow = if random.below(3) == 0 { 0 } else { random.below(flows) as u32 };
                // Super-packets owe for many rounds.
                let most = if giant && random.below(10) == 0 { 65_535 } else { 1500 };
                let len = [40, 512, 1000, most][random.below(4) as usize];
                giants += u32::from(len == 65_535);
                engine.enqueue(0, CLASS, Packet { flow, ..Packet::new(handle, len) });
                let ours: Vec<u32> = engine.drops().map(|drop| drop.packet.handle).collect();
                let theirs = model.enqueue(queue_of(seed, flow, queues), handle, len);
                assert_eq!(ours, theirs, "seed {seed}, packet {handle}");
                dropped += theirs.len();
                others += theirs.iter().filter(|gone| **gone != handle).count();
            } else {
                let ours = engine.dequeue(0).map(|departure| departure.packet.handle);
                assert_eq!(ours, model.dequeue(), "seed {seed}, packet {handle}");
                sent += u32::from(ours.is_some());
            }
        }
    }
    assert!(sent > 30_000 && dropped > 5000 && others > 4000 && giants > 100, "{sent} {dropped} {others} {giants}");
}

/// Among queues that always have packets, each gets the same bytes: after the same number of turns
/// both sides of 512 bytes a turn by what may be left or owed, and one of the two may have had a
/// turn more.
#[test]
fn equal_bytes() {
    let mut engine = wfq(Limit::Bytes(1_000_000), &[("queues", Value::Int(2048)), FLOW]);
    engine.set_seed(1);
    let sizes = [1500, 100, 700];
    let own: Vec<usize> = (0..3).map(|flow| queue_of(1, flow, 2048)).collect();
    assert!(own[0] != own[1] && own[1] != own[2] && own[0] != own[2]);
    let mut sent = [0_u64; 3];
    let arrive = |engine: &mut Engine, flow: usize| {
        engine.enqueue(0, CLASS, Packet { flow: flow as u32, ..Packet::new(0, sizes[flow]) });
    };
    (0..3).for_each(|flow| (0..5).for_each(|_| arrive(&mut engine, flow)));
    for _ in 0..20_000 {
        let packet = engine.dequeue(0).unwrap().packet;
        sent[packet.flow as usize] += u64::from(packet.len);
        arrive(&mut engine, packet.flow as usize);
    }
    let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
    assert!(most - least <= 512 + 512 + 1500, "{sent:?}");
}

/// What is hashed decides which packets share a queue. Those that share one leave in order.
#[test]
fn destinations_ports_and_flows() {
    let order = |hash: &'static str| -> Vec<u32> {
        let mut engine = wfq(Limit::Bytes(65_536), &[("queues", Value::Int(2048)), ("hash", Value::Choice(hash))]);
        engine.set_seed(1);
        assert!(engine.keeps_flows());
        // Four packets of 512 bytes: a queue sends one a turn.
        for (handle, (dst, sport, flow)) in [(1, 1, 1), (1, 2, 2), (2, 1, 2), (2, 1, 3)].into_iter().enumerate() {
            let packet = Packet { hosts: [9, dst], sport, flow, ..Packet::new(handle as u32, 512) };
            engine.enqueue(0, CLASS, packet);
        }
        (0..4).map(|_| engine.dequeue(0).unwrap().packet.handle).collect()
    };
    assert_eq!(order("dst"), [0, 2, 1, 3]);
    assert_eq!(order("sport"), [0, 1, 2, 3]);
    assert_eq!(order("flow"), [0, 1, 3, 2]);
}

/// Other words while packets wait: none is lost that still fits, and a lower limit takes the first
/// ones of the longest queue.
#[test]
fn changes() {
    let mut engine = wfq(Limit::Bytes(65_536), &[FLOW]);
    engine.set_seed(1);
    for handle in 0..12 {
        engine.enqueue(0, CLASS, Packet { flow: u32::from(handle % 4 == 0), ..Packet::new(handle, 1000) });
    }
    change(&mut engine, 0, queue("hashed_wfq", Limit::Bytes(65_536), &[("queues", Value::Int(3)), FLOW])).unwrap();
    assert_eq!((engine.backlog(), engine.drops().count()), (12, 0));
    change(&mut engine, 0, queue("hashed_wfq", Limit::Packets(6), &[("queues", Value::Int(2048)), FLOW])).unwrap();
    let lost: Vec<_> = engine.drops().map(|drop| (drop.packet.flow, drop.reason.name())).collect();
    assert_eq!(lost, [(0, "limit_lowered"); 6]);
    assert_eq!((engine.backlog(), counter(&engine, "queues")), (6, 2));
    // A packet that is larger than the limit takes only its own queue with it.
    change(&mut engine, 0, queue("hashed_wfq", Limit::Bytes(6000), &[("queues", Value::Int(2048)), FLOW])).unwrap();
    engine.enqueue(0, CLASS, Packet { flow: 7, ..Packet::new(99, 7000) });
    assert_eq!(
        engine.drops().map(|drop| (drop.packet.handle, drop.reason.name())).collect::<Vec<_>>(),
        [(99, "queue_full")]
    );
}
