//! PRIQ: the strict order of priorities, round robin among classes of one priority, and what the
//! highest class is promised.

use crate::support;
use crate::support::tree;

use altq_engine::settings::Settings;
use altq_engine::spec::LinkSpec;
use altq_engine::units::Rate;
use altq_engine::{Change, Engine, Packet};
use support::{Cbr, Random, S, Wire};

/// A link with the classes 1, 2, … of these priorities.
fn spec(priorities: &[u64]) -> LinkSpec {
    let mut spec = tree::link(Rate::mbit_s(10), "priq");
    spec.classes.extend(priorities.iter().map(|priority| tree::class(0, tree::int("priority", *priority), 50)));
    spec
}

fn sent(engine: &mut Engine) -> Vec<u32> {
    std::iter::from_fn(|| engine.dequeue(0)).map(|d| d.class).collect()
}

/// docs/reference/altq.md 4: the class of the highest priority that has packets sends.
#[test]
fn sixteen_classes_leave_from_fifteen_down() {
    let priorities: Vec<u64> = (0..16).collect();
    let mut engine = Engine::new(&spec(&priorities)).unwrap();
    for class in [3, 16, 1, 9, 16, 2, 1] {
        engine.enqueue(0, class, Packet::new(0, 100));
    }
    assert_eq!(sent(&mut engine), [16, 16, 9, 3, 2, 1, 1]);
    assert_eq!(engine.next_wakeup(), None);
    // Class 16 (priority 15) ran empty once, class 5 never had a packet.
    assert_eq!(engine.scheduler_counters(16), [("period", 1)]);
    assert_eq!(engine.scheduler_counters(5), [("period", 0)]);
}

#[test]
fn equals_take_turns() {
    let mut engine = Engine::new(&spec(&[4, 4, 4, 9])).unwrap();
    for class in [1, 1, 1, 2, 3, 3] {
        engine.enqueue(0, class, Packet::new(0, 100));
    }
    assert_eq!(engine.dequeue(0).unwrap().class, 1);
    engine.enqueue(0, 4, Packet::new(0, 100));
    // The class of higher priority comes first; then the round robin goes on.
    assert_eq!(sent(&mut engine), [4, 2, 3, 1, 3, 1]);
}

#[test]
fn a_class_changes_its_priority_with_packets() {
    let mut engine = Engine::new(&spec(&[1, 2, 3])).unwrap();
    for class in [1, 2, 3, 1, 2, 3] {
        engine.enqueue(0, class, Packet::new(0, 100));
    }
    let change = |class, settings| Change::SetClass { class, parent: 0, settings };
    engine.apply(0, &change(1, tree::int("priority", 15))).unwrap();
    assert_eq!(engine.dequeue(0).unwrap().class, 1);
    // Without a word the priority is 1.
    engine.apply(0, &change(3, Settings::new())).unwrap();
    assert!(engine.apply(0, &change(3, tree::int("priority", 16))).is_err());
    assert_eq!(sent(&mut engine), [1, 2, 2, 3, 3]);
}

#[test]
fn classes_stand_side_by_side() {
    let mut below = spec(&[1]);
    below.classes.push(tree::class(1, Settings::new(), 50));
    let error = Engine::new(&below).map(|_| ()).unwrap_err();
    assert!(error.help.is_some_and(|help| help.contains("scheduler priq")));
}

/// Against the definition: a packet leaves from the highest priority that has any. Within a
/// priority, it leaves from the class that has waited longest for its turn.
#[test]
fn random_packets_leave_as_defined() {
    for seed in 0..50 {
        let mut random = Random::new(seed);
        let priorities: Vec<u64> = (0..1 + random.below(40)).map(|_| random.below(16)).collect();
        let mut engine = Engine::new(&spec(&priorities)).unwrap();
        let classes = priorities.len();
        // For each class: its packets, and since which step it has waited for its turn.
        let (mut queued, mut since) = (vec![0u32; classes + 1], vec![0u32; classes + 1]);
        let mut step = 0;
        for _ in 0..4000 {
            step += 1;
            if random.chance(50) {
                let class = 1 + random.below(classes as u64) as usize;
                engine.enqueue(0, class as u32, Packet::new(0, 100));
                if engine.drops().count() == 0 {
                    queued[class] += 1;
                    if queued[class] == 1 {
                        since[class] = step;
                    }
                }
            } else {
                let first = (1..=classes).filter(|class| queued[*class] > 0);
                let expected = first.min_by_key(|class| (15 - priorities[*class - 1], since[*class]));
                let left = engine.dequeue(0).map(|d| d.class as usize);
                assert_eq!(left, expected, "seed {seed} step {step}");
                if let Some(class) = left {
                    queued[class] -= 1;
                    since[class] = step;
                }
            }
        }
    }
}

/// The highest class is promised the whole link, with the latency of one packet (Le Boudec and
/// Thiran 2001, proposition 1.3.4). Until its last bit has left, its packet waits at most for the
/// packets before it in its class, itself, and one full packet of another class.
#[test]
fn the_highest_waits_for_one_packet() {
    let spec = spec(&[15, 7, 7, 0]);
    let promised = tree::promises(&spec);
    // 1500 bytes at 10 Mbit/s are 1.2 ms.
    let promise = promised[0].clone().unwrap();
    assert_eq!((promise.latency, promise.rate()), (1_200_000, Rate::mbit_s(10)));
    assert!(promised[1..].iter().all(|promised| promised.is_err()));
    // Two classes that share the highest priority are promised nothing.
    assert!(tree::promises(&self::spec(&[15, 15]))[0].is_err());
    let mut packets = 0;
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut wire = Wire::new(&spec);
        for class in 2..=4 {
            wire.greedy(class, &[random.pick(&[1500, 40, 777]), 1500]);
        }
        // Packets of class 1 are so far apart that none ever waits for another of its class.
        let size = random.pick(&[64, 576, 1500]);
        let interval = promise.delay(u64::from(size)).unwrap() + random.below(100_000);
        wire.cbr(Cbr { class: 1, size, interval, start: random.below(S), end: 100 * S });
        wire.log = Some(Vec::new());
        wire.run(40 * S);
        let log = wire.log.take().unwrap();
        packets += log.len();
        let mut worst = 0;
        for sent in log.iter().filter(|sent| sent.departure.class == 1) {
            // The packet is handed to a free wire, so its last bit leaves a packet's time later.
            let wait = sent.at - sent.departure.packet.arrived + spec.rate.time_for(u64::from(size));
            worst = worst.max(wait);
        }
        let most = promise.delay(u64::from(size)).unwrap();
        // One nanosecond more, because the end of the packet before and this packet's time are both
        // rounded up.
        assert!(worst <= most + 1 && worst * 10 > most * 9, "seed {seed}: {worst} of {most}");
    }
    assert!(packets > 1_000_000, "{packets}");
}
