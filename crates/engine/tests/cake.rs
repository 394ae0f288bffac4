//! CAKE: the shares of hosts and flows in every mode, COBALT against a second implementation of its
//! rules, and the set-associative hash.

use crate::support;
use crate::support::tree;

use std::collections::HashMap;

use altq_engine::account::DropReason;
use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::spec::{ClassSpec, QueueSpec};
use altq_engine::units::Rate;
use altq_engine::{Engine, Packet};
use support::{MS, Random, S};

fn engine(limit: Limit, settings: Settings) -> Engine {
    let mut spec = tree::link(Rate::mbit_s(10), "priq");
    let queue = QueueSpec { name: "cake", limit, settings };
    spec.classes.push(ClassSpec { parent: 0, settings: Settings::new(), queue: Some(queue), scheduler: None });
    Engine::new(&spec).unwrap()
}

fn flag(word: &'static str) -> Settings {
    Settings::new().with(word, Value::Flag)
}

/// The shares in the bytes sent of flows that always have packets. Each flow is given by its source
/// and destination host.
fn shares(settings: Settings, flows: &[(u16, u16)], sizes: &[u32]) -> Vec<f64> {
    // No packet is dropped or marked: none waits longer than the target, a twentieth of an hour.
    let mut engine = engine(Limit::Packets(1_000_000), settings.with("rtt", Value::Time(3600 * S)));
    engine.set_seed(1);
    let put = |engine: &mut Engine, at: usize, n: u32| {
        let (source, destination) = flows[at];
        let len = sizes[(at + n as usize) % sizes.len()];
        engine.enqueue(0, 1, Packet { flow: 1000 + at as u32, hosts: [source, destination], ..Packet::new(n, len) });
    };
    for at in 0..flows.len() {
        (0..4).for_each(|n| put(&mut engine, at, n));
    }
    let (mut sent, mut total) = (vec![0u64; flows.len()], 0);
    for step in 0..60_000 {
        let packet = engine.dequeue(0).unwrap().packet;
        let at = packet.flow as usize - 1000;
        if step >= 10_000 {
            sent[at] += u64::from(packet.len);
            total += u64::from(packet.len);
        }
        put(&mut engine, at, step);
    }
    assert!(!engine.has_drops());
    sent.iter().map(|bytes| *bytes as f64 / total as f64).collect()
}

fn near(shares: &[f64], expected: &[f64], tolerance: f64) {
    assert!(shares.iter().zip(expected).all(|(a, b)| (a - b).abs() < tolerance * b), "{shares:?}, not {expected:?}");
}

/// Source 1 has eight flows, each to another host. Sources 2 and 3 have one flow each.
#[test]
fn hosts_get_equal_shares_whatever_their_flows() {
    let mut flows: Vec<(u16, u16)> = (0..8).map(|n| (1, 10 + n)).collect();
    flows.extend([(2, 20), (3, 30)]);
    for sizes in [&[1500][..], &[1500, 100, 600]] {
        let by_source: Vec<f64> = (0..10).map(|n| if n < 8 { 1.0 / 24.0 } else { 1.0 / 3.0 }).collect();
        near(&shares(flag("dual-srchost"), &flows, sizes), &by_source, 0.02);
        // Triple isolation: the source is the host with more flows.
        near(&shares(flag("triple-isolate"), &flows, sizes), &by_source, 0.02);
        near(&shares(Settings::new(), &flows, sizes), &by_source, 0.02);
        // By destination, or without regard to hosts, all ten flows get the same.
        near(&shares(flag("dual-dsthost"), &flows, sizes), &[0.1; 10], 0.02);
        near(&shares(flag("flows"), &flows, sizes), &[0.1; 10], 0.02);
        // The same with sources and destinations exchanged.
        let back: Vec<(u16, u16)> = flows.iter().map(|(source, destination)| (*destination, *source)).collect();
        near(&shares(flag("dual-dsthost"), &back, sizes), &by_source, 0.02);
        near(&shares(flag("dual-srchost"), &back, sizes), &[0.1; 10], 0.02);
        near(&shares(flag("triple-isolate"), &back, sizes), &by_source, 0.02);
    }
}

/// Host isolation of Høiland-Jørgensen, Täht and Morton 2018: of the two hosts of a flow, the one
/// with more bulk flows counts. Here A has three flows, two of them to X. B has one flow, to X. So
/// A and X have three flows each, and every flow's quantum is divided by 3.
#[test]
fn triple_isolation_takes_the_busier_end() {
    let (a, b, x, y) = (1, 2, 10, 11);
    let flows = [(a, x), (a, x), (a, y), (b, x)];
    near(&shares(flag("triple-isolate"), &flows, &[1000]), &[0.25; 4], 0.02);
    // By source: A's three flows get half together, and B's one flow gets half.
    near(&shares(flag("dual-srchost"), &flows, &[1000]), &[1.0 / 6.0, 1.0 / 6.0, 1.0 / 6.0, 0.5], 0.02);
}

#[test]
fn modes_that_keep_only_hosts_apart() {
    // Four flows between few hosts: how many queues they get in each mode.
    let flows = [(1, 10), (1, 11), (1, 10), (2, 10)];
    let queues = |word| {
        let mut engine = engine(Limit::Packets(1000), flag(word));
        for (flow, (source, destination)) in (0u32..).zip(flows) {
            engine.enqueue(0, 1, Packet { flow, hosts: [source, destination], ..Packet::new(flow, 1000) });
        }
        engine.queue_counters(1).into_iter().collect::<HashMap<_, _>>()["way_miss"]
    };
    assert_eq!(["flowblind", "srchost", "dsthost", "hosts", "flows"].map(queues), [1, 2, 2, 3, 4]);
}

/// A host with 400 flows and a host with one get half each. The quantum of the 400 is far below a
/// packet.
#[test]
fn a_host_with_many_flows() {
    let mut flows: Vec<(u16, u16)> = (0..400).map(|_| (1, 1)).collect();
    flows.push((2, 2));
    let shares = shares(flag("dual-srchost").with("queues", Value::Int(1 << 16)), &flows, &[1500]);
    assert!((shares[400] - 0.5).abs() < 0.01, "{}", shares[400]);
}

#[test]
fn a_sparse_flow_goes_first() {
    let mut engine = engine(Limit::Packets(1000), Settings::new());
    (0..20).for_each(|n| engine.enqueue(0, 1, Packet { flow: n % 2, ..Packet::new(n, 1500) }));
    (0..4).for_each(|_| assert!(engine.dequeue(0).is_some()));
    engine.enqueue(0, 1, Packet { flow: 7, ..Packet::new(100, 100) });
    assert_eq!(engine.dequeue(0).unwrap().packet.handle, 100);
}

/// Of 900 flows in 1024 queues hardly any shares a queue: the set-associative hash avoids almost
/// all collisions (Høiland-Jørgensen, Täht and Morton 2018). With a plain hash only (1 -
/// 1/1024)^899 = 42 % of the flows would have a queue of their own.
#[test]
fn flows_hardly_ever_share_a_queue() {
    let mut engine = engine(Limit::Packets(10_000), flag("flows"));
    for flow in 0..900 {
        engine.enqueue(0, 1, Packet { flow, ..Packet::new(flow, 100) });
    }
    let c: HashMap<_, _> = engine.queue_counters(1).into_iter().collect();
    assert_eq!(c["way_miss"] + c["way_cols"], 900);
    // A set of 8 queues has 7.03 flows on average. With a Poisson distribution, 6 % of all flows
    // are beyond the first 8 of their set.
    assert!(c["way_cols"] < 900 * 8 / 100, "{c:?}");
}

// ------------------------------------------------------------------ COBALT

/// The rules of COBALT's CoDel for one flow, at 10 Mbit/s and an rtt of 100 ms: a target of 5 ms,
/// an interval of 100 ms.
#[derive(Default)]
struct Cobalt {
    count: u64,
    drop_next: i128,
    dropping: bool,
}

impl Cobalt {
    fn control(at: i128, count: u64) -> i128 {
        at + ((100 * MS as u128 * 100 * MS as u128) / u128::from(count.max(1))).isqrt() as i128
    }

    fn drops(&mut self, now: i128, sojourn: i128) -> bool {
        let mut schedule = now - self.drop_next;
        let over = sojourn > 5 * MS as i128 && sojourn > 4 * 1_200_000;
        let mut next_due = self.count > 0 && schedule >= 0;
        if over {
            if !self.dropping {
                self.dropping = true;
                self.drop_next = Self::control(now, self.count);
            }
            self.count = self.count.max(1);
        } else {
            self.dropping = false;
        }
        let mut drop = false;
        if next_due && self.dropping {
            drop = true;
            self.count += 1;
            self.drop_next = Self::control(self.drop_next, self.count);
            schedule = now - self.drop_next;
        } else {
            while next_due {
                self.count -= 1;
                self.drop_next = Self::control(self.drop_next, self.count);
                schedule = now - self.drop_next;
                next_due = self.count > 0 && schedule >= 0;
            }
        }
        if self.count == 0 {
            self.drop_next = now + 100 * MS as i128;
        } else if schedule > 0 && !drop {
            self.drop_next = now;
        }
        drop
    }
}

#[test]
fn cobalt_packet_by_packet() {
    let (mut dropped, mut marked) = (0, 0);
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let ecn = (seed % 2) as u8;
        let mut engine = engine(Limit::Packets(1_000_000), flag("flows"));
        let mut model = Cobalt::default();
        let mut waiting = std::collections::VecDeque::new();
        // The flow never runs empty, because the model has no rule for that.
        let (mut now, mut handle) = (0, 0);
        for step in 0..6000 {
            let standing = if step / 1000 % 2 == 0 { 30 } else { 2 };
            while waiting.len() < standing + random.below(4) as usize {
                engine.enqueue(now, 1, Packet { flow: 1, ecn, ..Packet::new(handle, 1500) });
                waiting.push_back((handle, now));
                handle += 1;
            }
            now += random.below(2_400_000);
            let ours = engine.dequeue(now).unwrap().packet;
            loop {
                let (theirs, arrived) = waiting.pop_front().unwrap();
                let drops = model.drops(i128::from(now), i128::from(now - arrived));
                if drops && ecn == 0 && !waiting.is_empty() {
                    dropped += 1;
                    continue;
                }
                assert_eq!(ours.handle, theirs, "step {step}, seed {seed}");
                assert_eq!(ours.ecn == 3, drops && ecn == 1);
                marked += u32::from(ours.ecn == 3);
                break;
            }
            assert!(engine.drops().all(|drop| drop.reason == DropReason::Early));
        }
    }
    assert!(dropped > 500 && marked > 500, "{dropped} {marked}");
}

/// Overflows raise BLUE's probability by 1/256, at most once per target. While the flow is empty it
/// falls by 1/4096 per target.
#[test]
fn blue_rises_with_overflows_and_sinks_in_silence() {
    let mut engine = engine(Limit::Packets(10), flag("flows"));
    let blue = |engine: &Engine| engine.queue_counters(1).into_iter().find(|(name, _)| *name == "un_flows").unwrap().1;
    let mut handle = 0;
    let mut flood = |engine: &mut Engine, now: u64, n: u32| {
        for _ in 0..n {
            engine.enqueue(now, 1, Packet { flow: 1, ..Packet::new(handle, 1500) });
            handle += 1;
        }
        engine.drops().count()
    };
    assert_eq!(flood(&mut engine, S, 10), 0);
    assert_eq!(blue(&engine), 0);
    // One or two overflows in each of 20 targets: 20/256, because two in one target count once.
    for n in 1..=20 {
        assert_eq!(flood(&mut engine, S + n * 6 * MS, 2), 2);
    }
    assert_eq!(blue(&engine), 1);
    while engine.dequeue(S + 126 * MS).is_some() {}
    // 20/256 takes 320 targets of 5 ms, 1.6 s, to fall to 0. CoDel's count is 0 by then as well.
    // The state is updated when packets of other flows arrive.
    let other = |engine: &mut Engine, now: u64| {
        (0..4).for_each(|flow| engine.enqueue(now, 1, Packet { flow: 10 + flow, ..Packet::new(0, 100) }));
        while engine.dequeue(now).is_some() {}
    };
    other(&mut engine, S + 1600 * MS);
    assert_eq!(blue(&engine), 1);
    other(&mut engine, S + 1800 * MS);
    assert_eq!(blue(&engine), 0);
}
