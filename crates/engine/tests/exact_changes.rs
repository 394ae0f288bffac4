//! Exact CBQ with random trees, random packets, and changes while packets wait
//! (docs/reference/cbq.md rules 13 to 17). The tests compare counters with a count of their own,
//! and check that the link does not idle while a class may send, that extra calls change nothing,
//! and what a class keeps through a change.

use crate::support;

use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::units::Rate;
use altq_engine::{Change, Packet};
use support::{Class, MS, Random, S, Wire, leaves, link, tree};

/// The test's own count of a class's packets.
#[derive(Clone, Copy, Default)]
struct Count {
    came: u64,
    came_bytes: u64,
    sent: u64,
    sent_bytes: u64,
    lost: u64,
}

#[test]
fn counters_hold_through_random_changes() {
    for seed in 0..40 {
        let mut random = Random::new(300 + seed);
        let rate = 10_000_000;
        let mut classes: Vec<Option<Class>> = tree(&mut random, rate).into_iter().map(Some).collect();
        let excess = random.pick(&["share", "priority"]);
        let first: Vec<Class> = classes.iter().flatten().cloned().collect();
        let mut engine = altq_engine::Engine::new(&link(rate, &first, excess)).unwrap();
        let mut counts = vec![Count::default(); 400];
        let mut now = 0u64;
        let mut handle = 0;
        for _ in 0..3000 {
            now += random.below(2 * MS);
            let existing: Vec<u32> =
                (1..=classes.len() as u32).filter(|id| classes[*id as usize - 1].is_some()).collect();
            match if existing.is_empty() { 0 } else { random.below(40) } {
                0 => {
                    // A class more, anywhere: below a leaf with packets too.
                    let parent = if existing.is_empty() || random.chance(20) { 0 } else { random.pick(&existing) };
                    let class = Class::new(parent, random.below(1_000_000))
                        .borrows(random.chance(70))
                        .priority(random.below(8) as u8);
                    let id = engine.apply(now, &Change::AddClass(class.spec())).unwrap().unwrap();
                    if classes.len() < id as usize {
                        classes.push(None);
                    }
                    assert!(classes[id as usize - 1].is_none(), "number {id} was taken");
                    classes[id as usize - 1] = Some(class);
                    counts[id as usize] = Count::default();
                }
                1 | 2 => {
                    let id = random.pick(&existing);
                    let has_children = classes.iter().flatten().any(|class| class.parent == id);
                    let heir = random.chance(50).then(|| random.pick(&existing)).filter(|heir| *heir != id);
                    let parent = classes[id as usize - 1].as_ref().unwrap().parent;
                    let before = engine.own_counters(id);
                    match engine.apply(now, &Change::RemoveClass { class: id, heir }) {
                        Err(_) => assert!(has_children),
                        Ok(_) => {
                            assert!(!has_children);
                            classes[id as usize - 1] = None;
                            let gone = std::mem::take(&mut counts[id as usize]);
                            let drops: Vec<_> = engine.drops().collect();
                            let into = &mut counts[parent as usize];
                            into.came += gone.came;
                            into.came_bytes += gone.came_bytes;
                            into.sent += gone.sent;
                            into.sent_bytes += gone.sent_bytes;
                            into.lost += gone.lost;
                            match heir {
                                None => {
                                    assert_eq!(drops.len() as u64, before.queued_packets);
                                    into.lost += drops.len() as u64;
                                }
                                Some(heir) => {
                                    // Packets that waited count as received by the heir.
                                    counts[parent as usize].came -= before.queued_packets;
                                    counts[parent as usize].came_bytes -= before.queued_bytes;
                                    counts[heir as usize].came += before.queued_packets;
                                    counts[heir as usize].came_bytes += before.queued_bytes;
                                    counts[heir as usize].lost += drops.len() as u64;
                                }
                            }
                        }
                    }
                }
                3 | 4 => {
                    let id = random.pick(&existing);
                    let mut class = classes[id as usize - 1].clone().unwrap();
                    class.rate = random.pick(&[0, 1, 1000, 500_000, 5_000_000]);
                    class.borrow = random.chance(60);
                    class.ceiling = (class.borrow && random.chance(30)).then_some(class.rate * 2);
                    class.priority = random.below(8) as u8;
                    if random.chance(40) {
                        class.parent = if random.chance(20) { 0 } else { random.pick(&existing) };
                    }
                    let change = Change::SetClass { class: id, parent: class.parent, settings: class.settings() };
                    // The engine refuses a class that would be below itself.
                    if engine.apply(now, &change).is_ok() {
                        classes[id as usize - 1] = Some(class);
                    }
                }
                5 => {
                    let settings = link(rate, &[], random.pick(&["share", "priority"])).scheduler.settings;
                    engine.apply(now, &Change::SetScheduler { class: 0, settings }).unwrap();
                }
                6 => {
                    engine
                        .apply(
                            now,
                            &Change::SetRate(Rate::bit_s(random.pick(&[1_000_000, 10_000_000, 100_000_000_000]))),
                        )
                        .unwrap();
                }
                7 => {
                    let id = random.pick(&existing);
                    let queue = altq_engine::spec::QueueSpec {
                        name: random.pick(&["drop_tail", "drop_head"]),
                        limit: Limit::Packets(1 + random.below(20) as u32),
                        settings: Default::default(),
                    };
                    engine.apply(now, &Change::SetQueue { class: id, queue }).unwrap();
                    let lost = engine.drops().count();
                    counts[id as usize].lost += lost as u64;
                }
                8..24 => {
                    // Inner classes and the root get packets too.
                    let id = if random.chance(5) { 0 } else { random.pick(&existing) };
                    let size = random.pick(&[1, 64, 1500, 9000, 65535]);
                    handle += 1;
                    engine.enqueue(now, id, Packet::new(handle, size));
                    let count = &mut counts[id as usize];
                    count.came += 1;
                    count.came_bytes += u64::from(size);
                    count.lost += engine.drops().count() as u64;
                }
                _ => {
                    for _ in 0..random.below(4) {
                        if let Some(departure) = engine.dequeue(now) {
                            let count = &mut counts[departure.class as usize];
                            count.sent += 1;
                            count.sent_bytes += u64::from(departure.packet.len);
                        }
                    }
                    engine.next_wakeup();
                }
            }
            for id in existing.iter().copied().chain([0]) {
                if id != 0 && classes[id as usize - 1].is_none() {
                    continue;
                }
                let (own, count) = (engine.own_counters(id), counts[id as usize]);
                assert_eq!(own.received_packets(), count.came, "seed {seed} class {id}");
                assert_eq!(own.received_bytes(), count.came_bytes, "seed {seed} class {id}");
                assert_eq!(
                    (own.sent_packets, own.sent_bytes, own.dropped_packets),
                    (count.sent, count.sent_bytes, count.lost)
                );
            }
        }
        // Given enough time, every packet that may be sent is sent.
        for id in 1..=classes.len() as u32 {
            if let Some(class) = &mut classes[id as usize - 1] {
                (class.rate, class.borrow, class.ceiling) = (1000, true, None);
                engine
                    .apply(now, &Change::SetClass { class: id, parent: class.parent, settings: class.settings() })
                    .unwrap();
            }
        }
        for _ in 0..100_000 {
            if engine.backlog() == 0 {
                break;
            }
            now = now.max(engine.next_wakeup().expect("packets wait, so there is a time"));
            assert!(engine.dequeue(now).is_some(), "seed {seed}: woken for nothing");
        }
        assert_eq!(engine.backlog(), 0, "seed {seed}");
    }
}

/// Rule 15: the link never idles while a leaf has packets that borrows, and above which all classes
/// borrow.
#[test]
fn the_link_never_idles_while_a_borrower_waits() {
    for seed in 0..40 {
        let mut random = Random::new(5000 + seed);
        let mut classes = tree(&mut random, 10_000_000);
        let all = leaves(&classes);
        let mut at = random.pick(&all);
        let chosen = at;
        while at != 0 {
            let class = &mut classes[at as usize - 1];
            (class.borrow, class.ceiling) = (true, None);
            at = class.parent;
        }
        let mut wire = Wire::new(&link(10_000_000, &classes, random.pick(&["share", "priority"])));
        wire.greedy(chosen, &[random.pick(&[64, 1500])]);
        for leaf in all {
            if leaf != chosen && random.chance(50) {
                wire.greedy(leaf, &[random.pick(&[64, 700, 1500])]);
            }
        }
        wire.run(S);
        // What is sent includes the packet on the wire, so it is at least the link's rate.
        let sent: u64 = wire.bytes.iter().sum();
        assert!(sent * 8 >= 10_000_000, "seed {seed}: {} bits in a second", sent * 8);
    }
}

/// Rule 13: extra calls of `dequeue` change no departure.
#[test]
fn extra_calls_change_nothing() {
    for seed in 0..300 {
        let log = |extra| {
            let mut random = Random::new(9000 + seed);
            let classes = tree(&mut random, 10_000_000);
            let mut wire = Wire::new(&link(10_000_000, &classes, random.pick(&["share", "priority"])));
            (wire.extra, wire.log) = (extra, Some(Vec::new()));
            for leaf in leaves(&classes) {
                if random.chance(40) {
                    wire.greedy(leaf, &[random.pick(&[64, 1500]), 300]);
                } else if random.chance(50) {
                    let interval = MS + random.below(20 * MS);
                    wire.cbr(support::Cbr { class: leaf, size: 800, interval, start: 0, end: u64::MAX });
                }
            }
            let mut step = 0;
            while wire.now < S {
                step += 1;
                // Odd times at which nothing is due.
                let end = if extra > 0 { wire.now + 1 + (step * 7919) % 300_000 } else { S };
                wire.run(end.min(S));
            }
            wire.log.take().into_iter().flatten().map(|s| (s.at, s.departure.packet.handle)).collect::<Vec<_>>()
        };
        assert_eq!(log(0), log(3), "seed {seed}");
    }
}

/// Rule 14, on a wire of half the link's rate: the class of higher priority has its guarantee, and
/// classes of equal priority share the rest in proportion to their rates. When the wire is fast
/// again, at most a second's worth of what was missed is made up for.
#[test]
fn a_wire_slower_than_the_link() {
    let classes = [
        Class::new(0, 3_000_000).priority(7),
        Class::new(0, 1_000_000).priority(1),
        Class::new(0, 3_000_000).priority(1),
        Class::new(0, 3_000_000).borrow().priority(0),
    ];
    let mut wire = Wire::new(&link(10_000_000, &classes, "share"));
    wire.rate = 5_000_000;
    for class in 1..=4 {
        wire.greedy(class, &[1000]);
    }
    wire.run(4 * S);
    let got = wire.rates(14 * S);
    for (class, want) in [(1, 3e6), (2, 0.5e6), (3, 1.5e6), (4, 0.0)] {
        assert!((got[class] - want).abs() <= 0.01e6, "class {class}: {got:.0?}");
    }
    // On a wire of 20 Mbit/s the classes first get what they are owed, and then their rates.
    wire.rate = 20_000_000;
    let before = wire.bytes.clone();
    wire.run(18 * S);
    for (class, rate) in [(2, 1e6), (3, 3e6)] {
        let more = (wire.bytes[class] - before[class]) as f64 * 8.0 - 4.0 * rate;
        assert!(more > 0.9 * rate && more < 1.1 * rate, "class {class} was owed {more:.0} bits");
    }
    let got = wire.rates(22 * S);
    for (class, want) in [(1, 3e6), (2, 1e6), (3, 3e6)] {
        assert!((got[class] - want).abs() <= 0.01e6, "class {class}: {got:.0?}");
    }
}

/// Rules 6 and 16: a class of rate 0, and packets of inner classes and of the root.
#[test]
fn rate_0_and_packets_of_inner_classes() {
    let classes = [
        Class::new(0, 6_000_000).borrow(),
        Class::new(1, 4_000_000).borrow(),
        Class::new(0, 0).borrow(),
        Class::new(0, 2_000_000).borrow(),
    ];
    for excess in ["share", "priority"] {
        let mut wire = Wire::new(&link(10_000_000, &classes, excess));
        // The root's children leave 2 of its 10 Mbit/s, and class 1's child leaves 2 of its 6.
        for class in 0..=4 {
            wire.greedy(class, &[500]);
        }
        wire.run(S);
        let got = wire.rates(3 * S);
        for (class, want) in [(0, 2e6), (1, 2e6), (2, 4e6), (3, 0.0), (4, 2e6)] {
            assert!((got[class] - want).abs() <= 0.01e6, "{excess} class {class}: {got:.0?}");
        }
        for class in [0, 1, 2, 4] {
            wire.greedy(class, &[]);
        }
        wire.run(4 * S);
        let got = wire.rates(5 * S);
        assert!(got[3] > 9.99e6, "{excess}: {got:.0?}");
    }
}

/// Rates from 1 bit/s to 100 Gbit/s. Shares stay in proportion after more virtual time than 64 bits
/// can count, because it is set back in time.
#[test]
fn rates_far_apart() {
    let classes = [Class::new(0, 1).borrow(), Class::new(0, 3).borrow(), Class::new(0, 50_000_000_000).borrow()];
    let mut wire = Wire::new(&link(100_000_000_000, &classes, "share"));
    wire.greedy(1, &[1500]);
    wire.greedy(2, &[1500]);
    wire.run(MS);
    // 1.6 million packets: each moves virtual time by an hour or more.
    let got = wire.rates(200 * MS);
    assert!((got[1] / 25e9 - 1.0).abs() < 0.005 && (got[2] / 75e9 - 1.0).abs() < 0.005, "{got:.0?}");
    wire.greedy(3, &[1500]);
    let got = wire.rates(220 * MS);
    assert!(got[3] > 99.9e9, "{got:.0?}");
}

/// What classes got, to 30 kbit/s.
fn near(got: &[f64], want: &[(usize, f64)]) {
    for (class, want) in want {
        assert!((got[*class] - want).abs() <= 0.03e6, "class {class}: {got:.0?}");
    }
}

/// Rule 17: a class with a new rate keeps the time that it is owed, a class with a new parent
/// starts at the present, and a new class that gets the number of a removed one starts afresh.
#[test]
fn changes_while_backlogged() {
    let classes = [
        Class::new(0, 7_000_000).borrow(),
        Class::new(0, 3_000_000).borrow(),
        Class::new(1, 3_000_000).borrow(),
        Class::new(1, 4_000_000).borrow(),
        Class::new(2, 3_000_000).borrow(),
    ];
    let mut wire = Wire::new(&link(10_000_000, &classes, "share"));
    for class in [3, 4, 5] {
        wire.greedy(class, &[1000]);
    }
    wire.run(S);
    let set = |wire: &mut Wire, class: u32, to: &Class| {
        let change = Change::SetClass { class, parent: to.parent, settings: to.settings() };
        wire.engine.apply(wire.now, &change).unwrap();
    };
    // Classes 3 and 4 exchange their rates.
    set(&mut wire, 3, &Class::new(1, 4_000_000).borrow());
    set(&mut wire, 4, &Class::new(1, 3_000_000).borrow());
    let got = wire.rates(3 * S);
    near(&got, &[(3, 4e6), (4, 3e6), (5, 3e6)]);
    // Class 4 moves below class 2, whose 3 Mbit/s its children 4 and 5 now share as 1 : 2. Class 3
    // has the 7 Mbit/s of class 1 to itself.
    set(&mut wire, 5, &Class::new(2, 2_000_000).borrow());
    set(&mut wire, 4, &Class::new(2, 1_000_000).borrow());
    let got = wire.rates(5 * S);
    near(&got, &[(3, 7e6), (4, 1e6), (5, 2e6)]);
    // Class 3 is removed with its packets. A new class gets its number, and has no packets.
    wire.forget(3);
    wire.engine.apply(wire.now, &Change::RemoveClass { class: 3, heir: None }).unwrap();
    assert_eq!(wire.engine.drops().count(), 3);
    let got = wire.rates(6 * S);
    near(&got, &[(4, 10e6 / 3.0), (5, 20e6 / 3.0)]);
    let id = wire.engine.apply(wire.now, &Change::AddClass(Class::new(1, 5_000_000).spec())).unwrap().unwrap();
    assert_eq!(id, 3);
    let got = wire.rates(7 * S);
    near(&got, &[(3, 0.0)]);
    wire.greedy(3, &[1000]);
    let got = wire.rates(9 * S);
    near(&got, &[(3, 5e6), (4, 5e6 / 3.0), (5, 10e6 / 3.0)]);
    // Class 1 moves below class 2.
    set(&mut wire, 1, &Class::new(2, 0).borrow());
    set(&mut wire, 2, &Class::new(0, 9_000_000).borrow());
    set(&mut wire, 1, &Class::new(2, 6_000_000).borrow());
    let got = wire.rates(11 * S);
    near(&got, &[(3, 5e6), (4, 5e6 / 3.0), (5, 10e6 / 3.0)]);
}

/// Another way to divide the excess begins anew: a class that had all of it before owes nothing.
#[test]
fn a_change_of_excess_forgets_who_had_it() {
    for (from, to, priority) in [("priority", "share", 3), ("share", "priority", 1), ("priority", "share", 1)] {
        let class = |priority: u8| Class::new(0, 1_000_000).borrow().priority(priority);
        let mut wire = Wire::new(&link(10_000_000, &[class(1), class(priority)], from));
        wire.greedy(1, &[500]);
        wire.run(20 * S);
        let settings = Settings::new().with("excess", Value::Choice(to));
        wire.engine.apply(wire.now, &Change::SetScheduler { class: 0, settings }).unwrap();
        wire.greedy(2, &[500]);
        wire.run(21 * S);
        let got = wire.rates(23 * S);
        near(&got, &[(1, 5e6), (2, 5e6)]);
    }
}

#[test]
fn a_tree_a_hundred_deep() {
    for excess in ["share", "priority"] {
        let mut classes: Vec<Class> =
            (0..100).map(|depth| Class::new(depth, 5_000_000 - u64::from(depth) * 1000).borrow()).collect();
        classes.push(Class::new(0, 5_000_000).borrow());
        let mut wire = Wire::new(&link(10_000_000, &classes, excess));
        wire.greedy(100, &[1500]);
        wire.greedy(101, &[300]);
        wire.run(S);
        let got = wire.rates(3 * S);
        assert!(
            (got[100] / 5e6 - 1.0).abs() < 0.005 && (got[101] / 5e6 - 1.0).abs() < 0.005,
            "{excess} {}, {}",
            got[100],
            got[101]
        );
    }
}

#[test]
fn words_of_classic_are_errors() {
    use altq_engine::settings::{Settings, Value};
    let with = |class: Settings| {
        let mut spec = link(1_000_000, &[Class::new(0, 1000)], "share");
        spec.classes[1].settings = class;
        altq_engine::Engine::new(&spec).err().expect("refused")
    };
    for (word, value) in [
        ("minburst", Value::Int(2)),
        ("maxdelay", Value::Time(1)),
        ("maxpacketsize", Value::Bytes(1500)),
        ("control", Value::Flag),
    ] {
        let error = with(Settings::new().with(word, value));
        assert!(error.message.contains("classic") && error.word == Some(word), "{error:?}");
    }
    let error = with(Settings::new().with("ceiling", Value::Rate(Rate::bit_s(5))));
    assert_eq!(error.word, Some("ceiling"));
    for (word, value) in [
        ("efficient", Value::Flag),
        ("rounds", Value::Choice("prr")),
        ("link-sharing", Value::Choice("top-level")),
        ("link-sharing", Value::Choice("ancestor-only")),
    ] {
        let mut spec = link(1_000_000, &[], "share");
        spec.scheduler.settings.set(word, value);
        let error = altq_engine::Engine::new(&spec).err().expect("refused");
        assert!(error.message.contains("classic") && error.word == Some(word), "{error:?}");
    }
}
