//! HTB's contract under changes and nesting: no packet is lost, every wake-up comes in time, and
//! changed words hold from the change on.

use crate::support;

use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::spec::{ClassSpec, LinkSpec, QueueSpec, ROOT, SchedulerSpec};
use altq_engine::units::Rate;
use altq_engine::{Change, Engine, Packet};
use support::{MS, Random, S, Wire};

fn words(rate: u64, ceil: u64) -> Settings {
    let mut settings = Settings::new();
    settings.set("rate", Value::Rate(Rate::bit_s(rate))).set("ceil", Value::Rate(Rate::bit_s(ceil)));
    settings.set("burst", Value::Bytes(6000)).set("cburst", Value::Bytes(6000)).set("quantum", Value::Bytes(1500));
    settings
}

fn class(parent: u32, settings: Settings) -> ClassSpec {
    let queue = QueueSpec::new("drop_tail", Limit::Packets(40));
    ClassSpec { parent, settings, queue: Some(queue), scheduler: None }
}

fn named(name: &str) -> SchedulerSpec {
    let name = altq_engine::schedule::find(name).expect("a registered scheduler").name;
    SchedulerSpec::new(name)
}

fn link(scheduler: &str, classes: Vec<ClassSpec>) -> LinkSpec {
    let mut all = vec![class(ROOT, Settings::new())];
    all.extend(classes);
    LinkSpec::new(Rate::mbit_s(10), named(scheduler), all)
}

fn rate(wire: &mut Wire, class: usize, seconds: u64) -> f64 {
    wire.run(wire.now + 200 * MS);
    let end = wire.now + seconds * S;
    wire.rates(end)[class] / 1e6
}

#[track_caller]
fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 0.02 * expected.max(1.0), "{found} is not {expected}");
}

/// Words, parents, the link's rate and r2q change while packets wait. From then on rates are those
/// of the new words.
#[test]
fn changes_hold_from_then_on() {
    let inner = class(0, words(6_000_000, 8_000_000));
    let spec = link(
        "htb",
        vec![
            inner,
            class(1, words(2_000_000, 4_000_000)),
            class(1, words(4_000_000, 8_000_000)),
            class(0, words(1_000_000, 1_000_000)),
        ],
    );
    let mut wire = Wire::new(&spec);
    wire.greedy(2, &[1500]);
    near(rate(&mut wire, 2, 2), 4.0);
    let set = |wire: &mut Wire, class, parent, settings| {
        wire.engine.apply(wire.now, &Change::SetClass { class, parent, settings }).expect("a change that holds");
    };
    // Its own ceil, then its parent's.
    set(&mut wire, 2, 1, words(2_000_000, 9_000_000));
    near(rate(&mut wire, 2, 2), 8.0);
    set(&mut wire, 1, 0, words(2_000_000, 3_000_000));
    near(rate(&mut wire, 2, 2), 3.0);
    set(&mut wire, 1, 0, words(6_000_000, 10_000_000));
    near(rate(&mut wire, 2, 2), 9.0);
    // Below the other class, which becomes an inner one, with packets of its own.
    wire.greedy(4, &[500]);
    near(rate(&mut wire, 4, 2), 1.0);
    set(&mut wire, 2, 4, words(500_000, 9_000_000));
    near(rate(&mut wire, 2, 2) + rate(&mut wire, 4, 2), 1.0);
    set(&mut wire, 2, 0, words(500_000, 9_000_000));
    near(rate(&mut wire, 2, 2), 9.0);
    near(rate(&mut wire, 4, 2), 1.0);
    // The link: a wire of the same rate.
    wire.engine.apply(wire.now, &Change::SetRate(Rate::mbit_s(5))).unwrap();
    near(rate(&mut wire, 2, 2), 4.0);
    wire.engine.apply(wire.now, &Change::SetRate(Rate::mbit_s(10))).unwrap();
    near(rate(&mut wire, 2, 2), 9.0);
    // Quanta by r2q: 1 and 3 Mbit/s, so 12500 and 37500 bytes, then 1000 both.
    let by_r2q = |rate: u64| {
        let mut settings = words(rate, 10_000_000);
        settings.unset("quantum");
        settings
    };
    set(&mut wire, 2, 0, by_r2q(1_000_000));
    set(&mut wire, 4, 0, by_r2q(3_000_000));
    near(rate(&mut wire, 2, 10), 2.5);
    near(rate(&mut wire, 4, 10), 7.5);
    let r2q = Settings::new().with("r2q", Value::Int(4_000_000));
    wire.engine.apply(wire.now, &Change::SetScheduler { class: ROOT, settings: r2q }).unwrap();
    // A packet a turn of 1500 and, of 500 with 1000 bytes, two to three.
    let (two, four) = (rate(&mut wire, 2, 10), rate(&mut wire, 4, 10));
    assert!(two > 3.5 && four > 4.5, "{two} and {four}");
}

/// Two classes wait for their ceil. When the words of one change, the other wakes at the same time
/// as without the change.
#[test]
fn a_change_of_one_wakes_the_other_in_time() {
    let mut engine =
        Engine::new(&link("htb", vec![class(0, words(1_000_000, 1_000_000)), class(0, words(2_000_000, 2_000_000))]))
            .unwrap();
    for n in 0..20 {
        engine.enqueue(0, 1 + n % 2, Packet::new(n, 1500));
    }
    while engine.dequeue(0).is_some() {}
    // Four packets from a bucket of 6000 bytes, and the one for which a token is enough: 12 ms each
    // at 1 Mbit/s, 6 at 2.
    assert_eq!(engine.next_wakeup(), Some(6 * MS));
    engine.apply(0, &Change::SetClass { class: 2, parent: 0, settings: words(500_000, 500_000) }).unwrap();
    assert_eq!(engine.next_wakeup(), Some(12 * MS));
    assert_eq!(engine.dequeue(12 * MS).map(|d| d.class), Some(1));
    assert_eq!(engine.next_wakeup(), Some(24 * MS));
    // Class 2 owed 1500 bytes: 24 ms at its new rate.
    let mut both: Vec<u32> = std::iter::from_fn(|| engine.dequeue(24 * MS)).map(|d| d.class).collect();
    both.sort_unstable();
    assert_eq!(both, [1, 2]);
}

#[test]
fn what_cannot_be_changes_nothing() {
    let mut engine = Engine::new(&link("htb", vec![class(0, words(1_000_000, 2_000_000))])).unwrap();
    engine.enqueue(0, 1, Packet::new(7, 1500));
    let mut chain = 1;
    for _ in 0..6 {
        chain = engine.apply(0, &Change::AddClass(class(chain, words(1_000_000, 1_000_000)))).unwrap().unwrap();
    }
    let wrong = words(2_000_000, 1_000_000);
    let sub = engine.apply(0, &Change::AddClass(class(0, words(1, 1)))).unwrap().unwrap();
    engine.apply(0, &Change::AddClass(class(sub, words(1, 1)))).unwrap();
    for change in [
        Change::AddClass(class(0, wrong.clone())),
        Change::SetClass { class: 1, parent: 0, settings: wrong },
        // One level too many, alone and with what is below it.
        Change::AddClass(class(chain, words(1, 1))),
        Change::SetClass { class: sub, parent: 6, settings: words(1, 1) },
    ] {
        assert!(engine.apply(0, &change).is_err(), "{change:?}");
    }
    assert_eq!(engine.dequeue(0).map(|d| d.packet.handle), Some(7));
}

/// Anything, in any order: received = sent + dropped + queued for every class, all packets come out
/// in the end, and nothing waits without a time to wake up.
#[test]
fn random_changes_lose_nothing() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut engine =
            Engine::new(&link("htb", vec![class(0, words(1_000_000, 5_000_000)), class(1, words(500_000, 5_000_000))]))
                .unwrap();
        let mut alive: Vec<u32> = vec![1, 2];
        let (mut now, mut arrived, mut left, mut dropped) = (0, 0_u64, 0_u64, 0_u64);
        let random_words = |random: &mut Random| {
            let rate = random.pick(&[0, 100_000, 1_000_000, 9_000_000]);
            let mut settings = words(rate, rate.max(random.pick(&[50_000, 1_000_000, 20_000_000])));
            settings.set("prio", Value::Int(random.below(8))).set("burst", Value::Bytes(1 + random.below(20_000)));
            if random.chance(50) {
                settings.unset("quantum");
            }
            settings
        };
        for _ in 0..3000 {
            now += random.below(2 * MS);
            let any = |random: &mut Random, alive: &[u32]| if random.chance(5) { ROOT } else { random.pick(alive) };
            match random.below(20) {
                0 => {
                    let parent = any(&mut random, &alive);
                    let spec = class(parent, random_words(&mut random));
                    if let Ok(id) = engine.apply(now, &Change::AddClass(spec)) {
                        alive.extend(id);
                    }
                }
                1 if alive.len() > 2 => {
                    let class = random.pick(&alive);
                    let heir = random.chance(50).then(|| any(&mut random, &alive)).filter(|heir| *heir != class);
                    if engine.apply(now, &Change::RemoveClass { class, heir }).is_ok() {
                        alive.retain(|id| *id != class);
                    }
                }
                2 => {
                    let (class, parent) = (random.pick(&alive), any(&mut random, &alive));
                    let _ = engine.apply(now, &Change::SetClass { class, parent, settings: random_words(&mut random) });
                }
                3 => {
                    let class = any(&mut random, &alive);
                    let limit = Limit::Packets(random.below(40) as u32);
                    let queue = QueueSpec::new("drop_head", limit);
                    engine.apply(now, &Change::SetQueue { class, queue }).unwrap();
                }
                4 => {
                    engine.apply(now, &Change::SetRate(Rate::bit_s(1 + random.below(50_000_000)))).unwrap();
                }
                5..=11 => {
                    for _ in 0..random.below(6) {
                        arrived += 1;
                        let class = any(&mut random, &alive);
                        engine.enqueue(now, class, Packet::new(0, 1 + random.below(1500) as u32));
                    }
                }
                _ => left += u64::from(engine.dequeue(now).is_some()),
            }
            dropped += engine.drops().count() as u64;
            if engine.backlog() > 0 && random.chance(20) {
                let wake = engine.next_wakeup();
                if engine.dequeue(now).is_some() {
                    left += 1;
                    assert!(wake.is_some_and(|at| at <= now), "{seed}: it left at {now}, woken for {wake:?}");
                } else if let Some(wake) = wake.filter(|wake| *wake < now + 10 * S) {
                    assert!(
                        wake > now && engine.dequeue(wake - 1).is_none() && engine.dequeue(wake).is_some(),
                        "{seed}: {wake}"
                    );
                    (left, now) = (left + 1, wake);
                }
            }
            let total = engine.counters(ROOT);
            assert_eq!(total.received_packets(), arrived);
            assert_eq!((total.sent_packets, total.dropped_packets), (left, dropped));
            assert_eq!(total.queued_packets, u64::from(engine.backlog()));
        }
        // Everybody may send in the end.
        for class in &alive {
            let parent = engine.parent(*class).unwrap();
            engine
                .apply(now, &Change::SetClass { class: *class, parent, settings: words(1_000_000, 10_000_000) })
                .unwrap();
        }
        while engine.backlog() > 0 {
            match engine.dequeue(now) {
                Some(_) => left += 1,
                None => {
                    let wake = engine.next_wakeup().expect("packets wait, and nothing will wake them");
                    assert!(wake > now);
                    now = wake;
                }
            }
        }
        dropped += engine.drops().count() as u64;
        assert_eq!(left + dropped, arrived);
    }
}

/// HTB inside every scheduler and every scheduler inside HTB: ceils hold in both, the link does not
/// idle while a packet may go, and what is left goes to the classes that may have it.
#[test]
fn nesting_in_both_directions() {
    for other in altq_engine::schedule::SCHEDULERS {
        for outer_is_htb in [true, false] {
            let (outer, inner) = if outer_is_htb { ("htb", other.name) } else { (other.name, "htb") };
            // Two classes of 6 and 4 Mbit/s, the first with a scheduler for two of 3 Mbit/s, one of
            // which may have 5.
            let of = |scheduler: &str, rate: u64, ceil: u64| {
                let entry = altq_engine::schedule::find(scheduler).unwrap();
                let has = |word: &str| entry.class_words.iter().any(|known| known.name == word);
                let mut settings = Settings::new();
                if scheduler == "htb" {
                    return words(rate, ceil);
                }
                if has("rate") {
                    settings.set("rate", Value::Rate(Rate::bit_s(rate)));
                }
                if has("borrow") && ceil > rate {
                    settings.set("borrow", Value::Flag).set("ceiling", Value::Rate(Rate::bit_s(ceil)));
                }
                if has("linkshare") {
                    let curve = altq_engine::shape::service_curve::ServiceCurve::linear;
                    settings.set("linkshare", Value::Curve(curve(Rate::bit_s(rate))));
                    settings.set("upperlimit", Value::Curve(curve(Rate::bit_s(ceil))));
                }
                settings
            };
            let mut holder = class(0, of(outer, 6_000_000, 8_000_000));
            holder.scheduler = Some(named(inner));
            let spec = link(
                outer,
                vec![
                    holder,
                    class(1, of(inner, 3_000_000, 3_000_000)),
                    class(1, of(inner, 3_000_000, 5_000_000)),
                    class(0, of(outer, 4_000_000, 4_000_000)),
                ],
            );
            let what = format!("{inner} in {outer}");
            if Engine::new(&spec).is_err() {
                // A scheduler that needs other words has its own tests.
                eprintln!(
                    "SKIPPED {what}: {}",
                    Engine::new(&spec).err().map_or_else(String::new, |error| error.message)
                );
                continue;
            }
            let mut wire = Wire::new(&spec);
            wire.depth = 5;
            wire.extra = 2;
            for class in 2..=4 {
                wire.greedy(class, &[1500, 300]);
            }
            wire.run(S);
            let all = wire.rates(5 * S);
            let sum: f64 = all.iter().sum();
            assert!(sum > 8.5e6, "{what}: {all:?}");
            wire.greedy(4, &[]);
            wire.greedy(3, &[]);
            wire.run(6 * S);
            let alone = wire.rates(9 * S);
            assert!(alone[2] > 2.9e6, "{what}: {alone:?}");
            if inner == "htb" {
                // Its ceil, whatever holds it.
                assert!(alone[2] < 3.05e6 && all[2] < 3.05e6 && all[3] < 5.05e6, "{what}: {all:?}, {alone:?}");
            }
            if outer == "htb" {
                assert!(all[2] + all[3] < 8.05e6 && all[4] < 4.05e6 && all[2] + all[3] > 5.9e6, "{what}: {all:?}");
                assert!(alone[2] < 8.05e6, "{what}: {alone:?}");
            }
            wire.greedy(2, &[]);
            wire.run(40 * S);
            assert_eq!(wire.engine.backlog(), 0, "{what}");
            assert_eq!(wire.engine.next_wakeup(), None, "{what}");
        }
    }
}
