//! HTB's bounds and its order: rates and ceils to a packet, guarantees whatever others do,
//! borrowing by level, priority and quantum.

use crate::support;

use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::spec::{ClassSpec, LinkSpec, QueueSpec, SchedulerSpec};
use altq_engine::units::{Nanos, Rate};
use altq_engine::{Engine, Packet};
use support::{Cbr, MS, Random, S, Wire};

/// A class of htb by its words.
#[derive(Clone, Debug)]
struct Class {
    parent: u32,
    rate: u64,
    ceil: u64,
    burst: u64,
    cburst: u64,
    prio: u64,
    quantum: u64,
    overhead: u64,
    mpu: u64,
}

impl Class {
    fn new(parent: u32, rate: u64, ceil: u64) -> Class {
        Class { parent, rate, ceil, burst: 6000, cburst: 6000, prio: 0, quantum: 1500, overhead: 0, mpu: 0 }
    }

    fn prio(self, prio: u64) -> Class {
        Class { prio, ..self }
    }

    fn quantum(self, quantum: u64) -> Class {
        Class { quantum, ..self }
    }

    fn bursts(self, burst: u64, cburst: u64) -> Class {
        Class { burst, cburst, ..self }
    }

    fn settings(&self) -> Settings {
        let mut settings = Settings::new();
        settings.set("rate", Value::Rate(Rate::bit_s(self.rate))).set("ceil", Value::Rate(Rate::bit_s(self.ceil)));
        settings.set("burst", Value::Bytes(self.burst)).set("cburst", Value::Bytes(self.cburst));
        settings.set("prio", Value::Int(self.prio)).set("quantum", Value::Bytes(self.quantum));
        settings.set("overhead", Value::Bytes(self.overhead)).set("mpu", Value::Bytes(self.mpu));
        settings
    }
}

fn scheduler() -> SchedulerSpec {
    SchedulerSpec::new("htb")
}

fn spec_of(parent: u32, settings: Settings, scheduler: Option<SchedulerSpec>) -> ClassSpec {
    let queue = QueueSpec::new("drop_tail", Limit::Packets(1000));
    ClassSpec { parent, settings, queue: Some(queue), scheduler }
}

fn link(rate: u64, classes: &[Class]) -> LinkSpec {
    let mut all = vec![spec_of(0, Settings::new(), None)];
    all.extend(classes.iter().map(|class| spec_of(class.parent, class.settings(), None)));
    LinkSpec::new(Rate::bit_s(rate), scheduler(), all)
}

fn leaves(classes: &[Class]) -> Vec<u32> {
    (1..=classes.len() as u32).filter(|id| !classes.iter().any(|class| class.parent == *id)).collect()
}

/// A tree of up to three levels below the link; children's rates add up to their parent's at most.
fn tree(random: &mut Random, rate: u64) -> Vec<Class> {
    let mut classes = Vec::new();
    grow(random, &mut classes, 0, (rate, rate), 0);
    classes
}

fn grow(random: &mut Random, classes: &mut Vec<Class>, parent: u32, (rate, most): (u64, u64), depth: u32) {
    let children = 1 + random.below(4);
    let mut left = rate;
    for _ in 0..children {
        let part = if random.chance(5) { 0 } else { (rate / children * (40 + random.below(61)) / 100).min(left) };
        left -= part;
        let ceil =
            if random.chance(30) { part } else { part + most.saturating_sub(part) * random.below(101) / 100 }.max(1);
        let class = Class::new(parent, part, ceil)
            .prio(random.below(3))
            .quantum(random.pick(&[700, 1500, 3000, 20_000]))
            .bursts(random.pick(&[200, 1600, 6000, 40_000]), random.pick(&[200, 1600, 6000, 40_000]));
        classes.push(class);
        let id = classes.len() as u32;
        if depth < 2 && part > 0 && random.chance(45) {
            grow(random, classes, id, (part, ceil), depth + 1);
        }
    }
}

/// A wire on which every packet that left is written down.
fn logged(spec: &LinkSpec) -> Wire {
    let mut wire = Wire::new(spec);
    wire.log = Some(Vec::new());
    wire
}

fn sends(wire: &Wire) -> Vec<(Nanos, u32, u32)> {
    wire.log.iter().flatten().map(|sent| (sent.at, sent.departure.class, sent.departure.packet.wire)).collect()
}

/// The most bytes by which these packets exceed `rate` times the interval's length, in any
/// interval: exactly, over all pairs of packets, in one pass.
fn excess(packets: impl Iterator<Item = (Nanos, u32)>, rate: u64) -> f64 {
    // The excess from packet i to packet j is bytes(i..=j) - rate (t_j - t_i). `run` is the largest
    // of all intervals that end with the current packet.
    let (mut most, mut run, mut before) = (f64::MIN, 0.0_f64, None);
    for (at, bytes) in packets {
        let passed = before.map_or(0, |before| at - before);
        run = (run - rate as f64 * passed as f64 / 8e9).max(0.0) + f64::from(bytes);
        most = most.max(run);
        before = Some(at);
    }
    most
}

/// Cruz 1991, and a token for a packet: no class, inner or leaf, sends more than ceil t + cburst +
/// a packet in any interval; on a wire far faster than the link, so that only its buckets hold it.
#[test]
fn never_beyond_the_ceil() {
    let mut random = Random::new(1);
    for _ in 0..60 {
        let rate = random.pick(&[1_000_000, 10_000_000, 100_000_000]);
        let classes = tree(&mut random, rate);
        let mut wire = logged(&link(rate, &classes));
        wire.rate = rate * 50;
        for class in leaves(&classes) {
            let sizes: Vec<u32> = (0..5).map(|_| 40 + random.below(1461) as u32).collect();
            if random.chance(80) {
                wire.greedy(class, &sizes);
            } else {
                let interval = 1 + random.below(20 * MS);
                wire.cbr(Cbr { class, size: 1500, interval, start: random.below(S / 10), end: S });
            }
        }
        wire.run(12_000 * 1500 * 8 * (S / rate.min(S)).max(1) / 100);
        let sent = sends(&wire);
        assert!(sent.len() > 50, "{}", sent.len());
        let below = |mut class: u32, above: u32| {
            while class != above && class != 0 {
                class = classes[class as usize - 1].parent;
            }
            class == above
        };
        for (id, class) in (1..).zip(&classes) {
            let own = sent.iter().filter(|(_, from, _)| below(*from, id)).map(|(at, _, bytes)| (*at, *bytes));
            let most = excess(own, class.ceil);
            // Green leaves send whatever their parents' ceil says, as in the kernel: that of an
            // inner class holds what is borrowed.
            let inner = classes.iter().any(|other| other.parent == id);
            let green: f64 = if inner { classes.iter().map(|c| c.burst as f64 + 1500.0).sum() } else { 0.0 };
            let bound = class.cburst as f64 + 1500.0 + green;
            assert!(most <= bound + 0.001, "class {id} of {classes:?}: {most} bytes beyond its ceil, at most {bound}");
        }
    }
}

/// A leaf that always has packets, and bursts that cover the longest wait, has its rate from
/// `promise`'s latency on: at any time since it began to wait, whatever others do.
#[test]
fn green_classes_get_their_rate() {
    let mut random = Random::new(2);
    let mut tried = 0;
    for _ in 0..80 {
        let rate = random.pick(&[1_000_000, 10_000_000, 100_000_000]);
        let mut classes = tree(&mut random, rate);
        for class in &mut classes {
            (class.burst, class.cburst) = (60_000, 60_000);
        }
        let spec = link(rate, &classes);
        let leaves = leaves(&classes);
        let mut wire = logged(&spec);
        let start = rate_time(rate, 200) + random.below(rate_time(rate, 50));
        let end = start + rate_time(rate, 1500);
        let one = random.pick(&leaves);
        for class in leaves.iter().copied().filter(|class| *class != one) {
            if random.chance(60) {
                wire.greedy(class, &[1500, 64, 900]);
            } else {
                let interval = 1 + random.below(rate_time(rate, 40));
                wire.cbr(Cbr {
                    class,
                    size: 40 + random.below(1461) as u32,
                    interval,
                    start: random.below(start),
                    end,
                });
            }
        }
        // It may have spent its tokens before.
        if random.chance(50) {
            wire.cbr(Cbr { class: one, size: 1500, interval: rate_time(rate, 1), start: 0, end: start });
        }
        wire.run(start);
        let Some(promise) = promised(&spec, one) else { continue };
        tried += 1;
        let size = random.pick(&[1500, 700, 64]);
        wire.greedy(one, &[size]);
        wire.log.as_mut().unwrap().clear();
        wire.run(end);
        let own: Vec<_> = sends(&wire).into_iter().filter(|(_, class, _)| *class == one).collect();
        let mut served = 0_u64;
        for (at, _, bytes) in own.iter().copied().chain([(end, one, 0)]) {
            // Until this packet is done the class had what came before: so much was due by then at
            // most.
            let due = Rate::bit_s(promise.rate().as_bit_s()).bytes_in((at - start).saturating_sub(promise.latency));
            assert!(
                due <= served + u64::from(bytes),
                "class {one} of {classes:?} at {at}: {due} bytes due, {served} sent"
            );
            served += u64::from(bytes);
        }
    }
    assert!(tried > 40, "{tried}");
}

/// The time in which so many packets of 1500 bytes pass.
fn rate_time(rate: u64, packets: u64) -> Nanos {
    Rate::bit_s(rate).time_for(packets * 1500)
}

fn promised(spec: &LinkSpec, class: u32) -> Option<altq_engine::schedule::promise::Promise> {
    use altq_engine::schedule::promise::{Member, Place, Promise};
    let members: Vec<Member<'_>> = spec.classes[1..]
        .iter()
        .enumerate()
        .map(|(at, class)| Member {
            parent: (class.parent as usize).checked_sub(1),
            settings: &class.settings,
            leaf: !spec.classes.iter().skip(1).any(|other| other.parent as usize == at + 1),
            packets: true,
            holds: false,
        })
        .collect();
    let place = Place {
        promised: Promise::new(0, spec.rate),
        rate: spec.rate,
        packet: 1500,
        scheduler: &spec.scheduler.settings,
        classes: &members,
    };
    (altq_engine::schedule::htb::ENTRY.promises)(&place)[class as usize - 1].clone().ok()
}

/// The delay that `promise` derives, to what a constructed case comes: every other class has saved
/// up its burst and all of them are green at once, the wire has just begun a packet, and the class
/// has just overspent.
#[test]
fn the_bound_is_not_twice_the_worst_case() {
    let rate = 10_000_000;
    // 19200 bytes are 76.8 ms at 2 Mbit/s, and a packet takes 6 ms there, 1.2 ms on the wire: after
    // 16 packets the bucket is in debt by 96 - 76.8 = 19.2 ms, which is when the next one begins.
    // It may go at the last moment, and leaves a debt of 6 ms.
    let mut classes = vec![Class::new(0, 2_000_000, 2_000_000).bursts(19_200, 19_200).prio(1)];
    classes.extend((0..8).map(|_| Class::new(0, 400_000, 400_000).bursts(6000, 6000)));
    let spec = link(rate, &classes);
    let promise = promised(&spec, 1).expect("a promise");
    let mut wire = logged(&spec);
    for _ in 0..17 {
        wire.enqueue(1, 1500);
    }
    let arrived = rate_time(rate, 17);
    wire.run(arrived);
    assert_eq!(sends(&wire).len(), 17);
    wire.enqueue(1, 1500);
    // A moment before the debt is paid all others send what they have saved.
    wire.run(rate_time(rate, 16) + 6 * MS - 1);
    for class in 2..10 {
        for _ in 0..12 {
            wire.enqueue(class, 1500);
        }
    }
    wire.run(S);
    let last = sends(&wire).into_iter().rfind(|(_, class, _)| *class == 1).expect("it went");
    let waited = last.0 + rate_time(rate, 1) - arrived;
    let bound = promise.delay(1500).expect("a bound");
    assert!(waited <= bound && waited * 2 >= bound, "waited {waited}, bound {bound}");
}

/// Backlogged classes of one lender and one priority share what is borrowed by quantum, however
/// they are nested, within the bound of deficit round robin: of two of them, bytes over quantum
/// differ by at most 1 + L/Q + L/Q' (Shreedhar and Varghese 1996, theorem on fairness) for every
/// round that a packet of their own rate cuts short. Without own rates: by exactly that.
#[test]
fn what_is_borrowed_is_shared_by_quantum() {
    let mut random = Random::new(3);
    for _ in 0..60 {
        let n = 2 + random.below(6);
        let mut classes = Vec::new();
        // Inner classes of rate 0 lend nothing: all is borrowed from the link.
        for _ in 0..n {
            let parent = if random.chance(50) && !classes.is_empty() { inner(&mut random, &mut classes) } else { 0 };
            classes.push(Class::new(parent, 0, 10_000_000).quantum(1500 + random.below(20_000)));
        }
        let spec = link(10_000_000, &classes);
        let mut wire = logged(&spec);
        for class in leaves(&classes) {
            wire.greedy(class, &[40 + random.below(1461) as u32, 1500, 40 + random.below(700) as u32]);
        }
        wire.run(5 * S);
        let sent = sends(&wire);
        let leaves = leaves(&classes);
        for (a, b) in leaves.iter().flat_map(|a| leaves.iter().map(move |b| (*a, *b))).filter(|(a, b)| a < b) {
            let quantum = |id: u32| classes[id as usize - 1].quantum as f64;
            let (qa, qb) = (quantum(a), quantum(b));
            // Over all intervals: how far the difference of normalised service wanders.
            let (mut now, mut least, mut most) = (0.0_f64, 0.0_f64, 0.0_f64);
            for (_, class, bytes) in &sent {
                if *class == a {
                    now += f64::from(*bytes) / qa;
                } else if *class == b {
                    now -= f64::from(*bytes) / qb;
                }
                (least, most) = (least.min(now), most.max(now));
            }
            let bound = 1.0 + 1500.0 / qa + 1500.0 / qb;
            assert!(most - least <= bound + 1e-9, "{a} and {b} of {classes:?}: {} of {bound}", most - least);
        }
    }
}

fn inner(random: &mut Random, classes: &mut Vec<Class>) -> u32 {
    let inner: Vec<u32> =
        (1..=classes.len() as u32).filter(|id| classes.iter().any(|class| class.parent == *id)).collect();
    if !inner.is_empty() && random.chance(50) {
        return random.pick(&inner);
    }
    classes.push(Class::new(0, 0, 10_000_000));
    let id = classes.len() as u32;
    classes.push(Class::new(id, 0, 10_000_000).quantum(1500 + random.below(20_000)));
    id
}

/// Excess goes to the lowest prio alone while it wants it; guarantees stand.
#[test]
fn the_first_priority_borrows_first() {
    let class = |rate, prio| Class::new(0, rate, 10_000_000).prio(prio);
    let mut wire =
        Wire::new(&link(10_000_000, &[class(1_000_000, 0), class(2_000_000, 1), class(3_000_000, 1), class(0, 2)]));
    for id in 1..=4 {
        wire.greedy(id, &[1500]);
    }
    wire.run(S);
    let rates = wire.rates(6 * S);
    for (id, expected) in [(1, 5.0), (2, 2.0), (3, 3.0), (4, 0.0)] {
        assert!((rates[id] / 1e6 - expected).abs() < 0.02, "{rates:?}");
    }
    // The first one at 1.5 Mbit/s: 3.5 Mbit/s more for the next priority, in equal parts by
    // quantum.
    wire.greedy(1, &[]);
    wire.cbr(Cbr { class: 1, size: 1500, interval: 8 * MS, start: 7 * S, end: 20 * S });
    wire.run(8 * S);
    let rates = wire.rates(18 * S);
    for (id, expected) in [(1, 1.5), (2, 3.75), (3, 4.75), (4, 0.0)] {
        assert!((rates[id] / 1e6 - expected).abs() < 0.03, "{rates:?}");
    }
}

/// Three levels: what a leaf leaves goes to its siblings before its parent's, whatever their
/// priority; a parent's ceil holds.
#[test]
fn the_lowest_lender_goes_first() {
    // a (6) of a1 (2), a2 (4); b (4) of b1 (1), b2 (3).
    let all = 10_000_000;
    let classes = [
        Class::new(0, 6_000_000, all),
        Class::new(1, 2_000_000, all).prio(5),
        Class::new(1, 4_000_000, all).prio(5),
        Class::new(0, 4_000_000, all),
        Class::new(4, 1_000_000, all).prio(0),
        Class::new(4, 3_000_000, all).prio(0),
    ];
    let rates = |classes: &[Class], greedy: &[u32]| {
        let mut wire = Wire::new(&link(all, classes));
        for class in greedy {
            wire.greedy(*class, &[1500]);
        }
        wire.run(S);
        wire.rates(6 * S).iter().map(|rate| (rate / 1e4).round() / 1e2).collect::<Vec<_>>()
    };
    // a2 silent: its 4 are a1's, of priority 5, and not b's, of priority 0.
    let all_but_a2 = rates(&classes, &[2, 5, 6]);
    assert!((all_but_a2[2] - 6.0).abs() < 0.02 && (all_but_a2[5] - 1.0).abs() < 0.02, "{all_but_a2:?}");
    // a silent altogether: b's priority-0 leaves share its 6 by quantum, 3 each.
    let only_b = rates(&classes, &[5, 6]);
    assert!((only_b[5] - 4.0).abs() < 0.02 && (only_b[6] - 6.0).abs() < 0.02, "{only_b:?}");
    // b may not have more than 5.
    let mut held = classes.to_vec();
    held[3].ceil = 5_000_000;
    let held = rates(&held, &[5, 6]);
    assert!((held[5] + held[6] - 5.0).abs() < 0.02, "{held:?}");
}

/// Overhead and mpu are charged in tokens alone: the wire carries what it carries, and counters
/// count the packets' own.
#[test]
fn overhead_and_mpu_of_a_class() {
    for (size, overhead, mpu, charged) in
        [(1000, 500, 0, 1500), (100, 0, 400, 400), (100, 50, 120, 150), (1400, 0, 64, 1400)]
    {
        let class = Class { overhead, mpu, ..Class::new(0, 3_000_000, 3_000_000) };
        let mut wire = Wire::new(&link(100_000_000, &[class]));
        wire.greedy(1, &[size]);
        wire.run(S);
        let rates = wire.rates(11 * S);
        let expected = 3e6 * f64::from(size) / f64::from(charged);
        assert!((rates[1] - expected).abs() < expected * 0.002, "{size}: {} of {expected}", rates[1]);
    }
}

/// Packets of the link itself go before all others, take no tokens, and are counted.
#[test]
fn direct_packets() {
    let mut engine = Engine::new(&link(10_000_000, &[Class::new(0, 1_000_000, 1_000_000)])).unwrap();
    for n in 0..5 {
        engine.enqueue(0, 1, Packet::new(n, 1500));
        engine.enqueue(0, 0, Packet::new(100 + n, 1500));
    }
    let sent: Vec<u32> = std::iter::from_fn(|| engine.dequeue(0)).map(|d| d.packet.handle).collect();
    // Five direct ones; of the class a burst of 6000, and a packet for the token at 0.
    assert_eq!(sent, [100, 101, 102, 103, 104, 0, 1, 2, 3, 4]);
    let direct = engine.scheduler_counters(0).into_iter().find(|(name, _)| *name == "direct_packets");
    assert_eq!(direct, Some(("direct_packets", 5)));
    assert_eq!(engine.own_counters(0).sent_packets, 5);
}

/// Packets of an inner class have what its children leave of it, and not more than its ceil.
#[test]
fn packets_of_an_inner_class() {
    let classes = [
        Class::new(0, 4_000_000, 6_000_000),
        Class::new(1, 3_000_000, 6_000_000),
        Class::new(0, 6_000_000, 10_000_000),
    ];
    let mut wire = Wire::new(&link(10_000_000, &classes));
    for class in 1..=3 {
        wire.greedy(class, &[1500]);
    }
    wire.run(S);
    let rates = wire.rates(6 * S);
    // 1 is left of the 4, shared between the two by turns; 6 for the other.
    for (id, expected) in [(1, 0.5), (2, 3.5), (3, 6.0)] {
        assert!((rates[id] / 1e6 - expected).abs() < 0.02, "{rates:?}");
    }
    wire.greedy(2, &[]);
    wire.greedy(3, &[]);
    wire.run(7 * S);
    let rates = wire.rates(12 * S);
    assert!((rates[1] / 1e6 - 6.0).abs() < 0.02, "{rates:?}");
}

#[test]
fn eight_levels_and_no_more() {
    let chain = |n: u32| (0..n).map(|parent| Class::new(parent, 1_000_000, 1_000_000)).collect::<Vec<_>>();
    assert!(Engine::new(&link(1_000_000, &chain(7))).is_ok());
    let error = Engine::new(&link(1_000_000, &chain(8))).err().expect("too deep");
    assert!(error.message.contains("8 levels"), "{error}");
}
