//! WFQ's kinds of classes: shares of the excess, low latency, shapers, policers, nesting, changes.

use crate::support;
use crate::support::tree;
use crate::support::wire;

use altq_engine::account::DropReason;
use altq_engine::settings::{ONE, Settings, Value};
use altq_engine::spec::{ClassSpec, LinkSpec, SchedulerSpec, Timer};
use altq_engine::units::{Nanos, Rate, SECOND};
use altq_engine::{Change, Engine, Packet};
use support::Random;
use wire::{Arrival, Caller, Departure, Wire, rate_of};

const MS: Nanos = 1_000_000;

fn rate(word: &'static str, bit_s: u64) -> Settings {
    Settings::new().with(word, Value::Rate(Rate::bit_s(bit_s)))
}

fn low_latency(bit_s: u64, burst: u64) -> Settings {
    rate("low-latency", bit_s).with("low-latency burst", Value::Bytes(burst))
}

fn remaining(percent: u32) -> Settings {
    Settings::new().with("bandwidth remaining", Value::Percent(ONE / 100 * percent))
}

fn nothing() -> Settings {
    Settings::new()
}

/// A link of 10 Mbit/s with classes 1, 2, … of these words, each with a queue of 50 packets.
fn spec(classes: &[Settings]) -> LinkSpec {
    let mut spec = tree::link(Rate::mbit_s(10), "wfq");
    spec.classes.extend(classes.iter().map(|words| tree::class(0, words.clone(), 50)));
    spec
}

fn equal(mut spec: LinkSpec) -> LinkSpec {
    spec.scheduler.settings.set("excess", Value::Choice("equal"));
    spec
}

/// A class's packets of `bytes`, evenly at `rate`.
fn source(class: u32, rate: u64, bytes: u32, from: Nanos, to: Nanos) -> impl Iterator<Item = Arrival> {
    let gap = u128::from(bytes) * 8 * u128::from(SECOND);
    (0..)
        .map(move |n: u64| from + (u128::from(n) * gap / u128::from(rate)) as Nanos)
        .take_while(move |at| *at < to)
        .map(move |at| Arrival { at, class, bytes })
}

fn run(engine: &mut Engine, until: Nanos, mut arrivals: Vec<Arrival>) -> Vec<Departure> {
    arrivals.sort_by_key(|arrival| arrival.at);
    let caller = Caller { rate: engine.rate(), timer: Timer::Exact, ring: 1 };
    wire::run(engine, caller, until, arrivals)
}

/// Checks what classes 1, 2, … get of a link of 10 Mbit/s over ten seconds when their sources send
/// at the rates `offered`; all in Mbit/s. Each class has packets of another size.
#[track_caller]
fn gets(spec: &LinkSpec, offered: &[f64], expected: &[f64]) {
    let mut engine = Engine::new(spec).unwrap();
    let sizes = [1500, 700, 1100, 300];
    let arrivals = (1..).zip(offered).filter(|(_, rate)| **rate > 0.0);
    let arrivals = arrivals
        .flat_map(|(class, rate)| source(class, (rate * 1e6) as u64, sizes[class as usize % 4], 0, 11 * SECOND));
    let departures = run(&mut engine, 11 * SECOND, arrivals.collect());
    for (class, expected) in (1..).zip(expected) {
        let got = rate_of(&departures, class, SECOND, 11 * SECOND) / 1e6;
        // Packets at the ends of the window: 0.003 Mbit/s; and 2 in 1000.
        assert!((got - expected).abs() <= 0.003 + expected / 500.0, "class {class} has {got} and not {expected}");
    }
}

#[test]
fn the_excess_goes_in_proportion_or_in_equal_parts() {
    let classes = spec(&[rate("bandwidth", 1_000_000), rate("bandwidth", 4_000_000), rate("bandwidth", 2_000_000)]);
    let xe = equal(classes.clone());
    gets(&classes, &[9.0, 9.0, 0.0], &[2.0, 8.0, 0.0]);
    gets(&xe, &[9.0, 9.0, 0.0], &[3.5, 6.5, 0.0]);
    gets(&classes, &[9.0, 9.0, 9.0], &[10.0 / 7.0, 40.0 / 7.0, 20.0 / 7.0]);
    gets(&xe, &[9.0, 9.0, 9.0], &[2.0, 5.0, 3.0]);
    // What a class leaves of its part goes to the others by the same rule.
    gets(&xe, &[1.5, 9.0, 9.0], &[1.5, 5.25, 3.25]);
    gets(&classes, &[0.5, 9.0, 9.0], &[0.5, 9.5 * 2.0 / 3.0, 9.5 / 3.0]);
    // A class whose siblings have no packets has the whole link.
    gets(&classes, &[9.9, 0.0, 0.0], &[9.9, 0.0, 0.0]);
    gets(&xe, &[9.9, 0.0, 0.0], &[9.9, 0.0, 0.0]);
}

#[test]
fn who_says_nothing_has_what_nobody_reserved() {
    // 3 Mbit/s are left: for one, or for two.
    gets(
        &spec(&[rate("bandwidth", 5_000_000), rate("bandwidth", 2_000_000), nothing()]),
        &[9.0, 9.0, 9.0],
        &[5.0, 2.0, 3.0],
    );
    gets(&spec(&[rate("bandwidth", 7_000_000), nothing(), nothing()]), &[9.0, 9.0, 9.0], &[7.0, 1.5, 1.5]);
    // With the excess in equal parts it has one of these, and no guarantee.
    gets(
        &equal(spec(&[rate("bandwidth", 5_000_000), rate("bandwidth", 2_000_000), nothing()])),
        &[9.0; 3],
        &[6.0, 3.0, 1.0],
    );
    // Where the whole link is reserved, it has a thousandth.
    gets(&spec(&[rate("bandwidth", 10_000_000), nothing()]), &[12.0, 12.0], &[10.0 / 1.001, 0.01 / 1.001]);
}

#[test]
fn what_remains_is_divided_beside_low_latency() {
    let classes = spec(&[low_latency(4_000_000, 6000), remaining(30), remaining(70)]);
    gets(&classes, &[0.0, 9.0, 9.0], &[0.0, 3.0, 7.0]);
    gets(&classes, &[3.0, 9.0, 9.0], &[3.0, 2.1, 4.9]);
    // The policer holds the low-latency class to its rate.
    gets(&classes, &[8.0, 9.0, 9.0], &[4.0, 1.8, 4.2]);
    gets(&equal(classes), &[8.0, 9.0, 9.0], &[4.0, 1.8, 4.2]);
    let weight = |n| tree::int("weight", n);
    gets(&spec(&[weight(1), weight(3), nothing()]), &[9.0; 3], &[2.0, 6.0, 2.0]);
    gets(&equal(spec(&[weight(1), weight(3), nothing()])), &[9.0; 3], &[2.0, 6.0, 2.0]);
    gets(&spec(&[remaining(50), remaining(30), nothing()]), &[9.0; 3], &[5.0, 3.0, 2.0]);
    // With equal excess, guarantees come out of all that there is, and low latency before them.
    gets(
        &equal(spec(&[low_latency(2_000_000, 6000), rate("bandwidth", 1_000_000), rate("bandwidth", 4_000_000)])),
        &[1.0, 9.0, 9.0],
        &[1.0, 3.0, 6.0],
    );
}

#[test]
fn low_latency_is_policed_under_congestion_only() {
    let classes = spec(&[rate("low-latency", 2_000_000), rate("bandwidth", 4_000_000)]);
    // Alone it has what it wants, and nothing is dropped. (At 9 Mbit/s no packet of it finds
    // another waiting.)
    let mut engine = Engine::new(&classes).unwrap();
    let departures = run(&mut engine, 4 * SECOND, source(1, 9_000_000, 1000, 0, 4 * SECOND).collect());
    assert!(rate_of(&departures, 1, 0, 4 * SECOND) > 8.99e6);
    assert_eq!(engine.own_counters(1).dropped_packets, 0);
    // The first packet of another class that has to wait begins congestion: from then on 2 Mbit/s,
    // and the burst of 200 ms is gone long ago.
    let arrivals = source(1, 9_000_000, 1000, 0, 4 * SECOND).chain(source(2, 12_000_000, 1500, 2 * SECOND, 4 * SECOND));
    let mut engine = Engine::new(&classes).unwrap();
    let departures = run(&mut engine, 4 * SECOND, arrivals.collect());
    assert!(rate_of(&departures, 1, 0, 2 * SECOND) > 8.99e6);
    assert!((rate_of(&departures, 1, 2 * SECOND, 4 * SECOND) - 2e6).abs() < 0.02e6);
    let reasons: Vec<_> = engine.drop_reasons(1).collect();
    assert!(reasons.len() == 1 && reasons[0].0 == DropReason::Policed, "{reasons:?}");
    // A class that its own shaper makes wait is no congestion.
    let shaped = spec(&[
        low_latency(2_000_000, 3000),
        rate("bandwidth", 4_000_000).with("shape", Value::Rate(Rate::kbit_s(100))),
    ]);
    let mut engine = Engine::new(&shaped).unwrap();
    let arrivals = source(1, 9_000_000, 1000, 0, 2 * SECOND).chain(source(2, 1_000_000, 100, 0, 2 * SECOND));
    run(&mut engine, 2 * SECOND, arrivals.collect());
    // Its packets wait for the link for a moment each, 250 of them.
    assert!(engine.own_counters(1).dropped_packets < 30, "{:?}", engine.own_counters(1));
    assert!(engine.own_counters(1).sent_bytes > 2_200_000);
}

/// Its burst is what its rate brings in 200 ms: 2 Mbit/s, 50,000 bytes. Nothing else waits when the
/// first packet comes.
#[test]
fn the_burst_is_200_ms() {
    let mut words = spec(&[rate("low-latency", 2_000_000), nothing()]);
    words.classes[1].queue = tree::class(0, nothing(), 1000).queue;
    let mut engine = Engine::new(&words).unwrap();
    for _ in 0..80 {
        engine.enqueue(0, 1, Packet::new(0, 1000));
    }
    assert_eq!((engine.own_counters(1).queued_packets, engine.drops().count()), (50, 30));
    // 4 ms bring another.
    engine.enqueue(4 * MS, 1, Packet::new(0, 1000));
    engine.enqueue(4 * MS, 1, Packet::new(0, 1));
    assert_eq!((engine.own_counters(1).queued_packets, engine.drops().count()), (51, 1));
    // The first packet that finds nothing waiting is not policed, whatever its length.
    let mut engine = Engine::new(&spec(&[low_latency(2_000_000, 100)])).unwrap();
    engine.enqueue(0, 1, Packet::new(0, 1000));
    engine.enqueue(0, 1, Packet::new(0, 1000));
    assert_eq!((engine.own_counters(1).queued_packets, engine.drops().count()), (1, 1));
}

#[test]
fn levels_go_in_order_and_a_level_by_arrival() {
    let urgent = |level| rate("low-latency", 2_000_000).with("level", Value::Int(level));
    let mut engine =
        Engine::new(&spec(&[urgent(2), urgent(1), rate("bandwidth", 1_000_000), urgent(1), urgent(2)])).unwrap();
    for class in [3, 1, 4, 5, 2, 1, 4, 3, 2] {
        engine.enqueue(0, class, Packet::new(0, 500));
    }
    let order: Vec<u32> = std::iter::from_fn(|| engine.dequeue(0)).map(|departure| departure.class).collect();
    assert_eq!(order, [4, 2, 4, 2, 1, 5, 1, 3, 3]);
}

/// In no interval does a shaped class send more than its rate, what its rate brings in 25 ms (at
/// least three packets), and one packet. In the long run it sends exactly its rate, if the engine
/// is called only at the times that it names.
#[test]
fn a_shaper_is_exact() {
    for (bit_s, bytes) in [(3_000_000, 1500), (777_777, 64), (64_000, 1500)] {
        let mut engine = Engine::new(&spec(&[rate("shape", bit_s), nothing()])).unwrap();
        let mut arrivals: Vec<Arrival> = source(1, 2 * bit_s, bytes, 0, 20 * SECOND).collect();
        arrivals.extend(source(2, 9_000_000, 1500, 5 * SECOND, 10 * SECOND));
        let departures = run(&mut engine, 20 * SECOND, arrivals);
        let own: Vec<&Departure> = departures.iter().filter(|departure| departure.class == 1).collect();
        let credit = Rate::bit_s(bit_s).bytes_in(25 * MS).max(4500);
        for (n, first) in own.iter().enumerate().step_by(7) {
            let mut sum = 0;
            for last in own[n..].iter().take(300) {
                sum += u64::from(last.bytes);
                let most = Rate::bit_s(bit_s).bytes_in(last.at - first.at) + credit + u64::from(bytes) + 1;
                assert!(sum <= most, "{sum} bytes of {most} at {bit_s}");
            }
        }
        let got = rate_of(&departures, 1, SECOND, 20 * SECOND);
        assert!((got - bit_s as f64).abs() * 19.0 <= f64::from(bytes * 8) + 1.0, "{got} of {bit_s}");
    }
}

/// A packet at a time: nothing leaves before the time that was named, and something does at it.
#[test]
fn shaped_packets_leave_at_the_time_that_was_named() {
    let mut engine = Engine::new(&spec(&[rate("shape", 1_000_000), rate("shape", 500_000)])).unwrap();
    for class in [1, 2] {
        (0..20).for_each(|_| engine.enqueue(0, class, Packet::new(0, 1250)));
    }
    let (mut now, mut waits) = (0, 0);
    while engine.backlog() > 0 {
        if engine.dequeue(now).is_none() {
            let at = engine.next_wakeup().unwrap();
            assert!(at > now && engine.dequeue(at - 1).is_none());
            (now, waits) = (at, waits + 1);
            assert!(engine.dequeue(now).is_some());
        }
    }
    // 20 ms a packet of the slower; there was no idleness before time 0 to make up for.
    assert_eq!(now, 19 * 20 * MS);
    assert!(waits > 20);
}

#[test]
fn a_policer_drops_what_comes_too_early() {
    // 1 Mbit/s: 31,250 bytes at once where nothing is said (rate / 32).
    for (words, first) in
        [(rate("police", 1_000_000), 31), (rate("police", 1_000_000).with("police burst", Value::Bytes(5000)), 5)]
    {
        let mut engine = Engine::new(&spec(&[words])).unwrap();
        for _ in 0..40 {
            engine.enqueue(0, 1, Packet::new(0, 1000));
        }
        assert_eq!(engine.own_counters(1).queued_packets, first);
        assert!(engine.drops().all(|drop| drop.reason == DropReason::Policed));
        // On an idle link as well: 8 ms a packet.
        let departures = run(&mut engine, 10 * SECOND, source(1, 2_000_000, 1000, SECOND, 10 * SECOND).collect());
        let expected = first + 125 * 9 + first;
        assert!((departures.len() as u64).abs_diff(expected) <= 1, "{} for {expected}", departures.len());
    }
}

/// Of two flows in one class, one that sends too much and one that does not, the second loses
/// nothing and waits little.
#[test]
fn fair_queue_keeps_flows_apart() {
    for fair in [false, true] {
        let words = if fair { nothing().with("fair-queue", Value::Flag) } else { nothing() };
        let mut link = spec(&[rate("bandwidth", 8_000_000)]);
        link.classes.push(ClassSpec { parent: 0, settings: words, queue: None, scheduler: None });
        let mut engine = Engine::new(&link).unwrap();
        // 2 Mbit/s for the class: 3 Mbit/s of flow 1, and 500 kbit/s of flow 2.
        let mut arrivals: Vec<(Nanos, u32, u32)> =
            source(2, 3_000_000, 1000, 0, 10 * SECOND).map(|a| (a.at, 2, 1)).collect();
        arrivals.extend(source(2, 500_000, 1000, 0, 10 * SECOND).map(|a| (a.at, 2, 2)));
        arrivals.extend(source(1, 9_000_000, 1000, 0, 10 * SECOND).map(|a| (a.at, 1, 3)));
        arrivals.sort_unstable();
        let (mut lost, mut sent, mut longest, mut wire) = ([0; 4], [0_u64; 4], 0, 0);
        for (at, class, flow) in arrivals {
            while wire <= at
                && let Some(departure) = engine.dequeue(wire)
            {
                sent[departure.packet.flow as usize] += 1;
                if departure.packet.flow == 2 {
                    longest = longest.max(wire - departure.packet.arrived);
                }
                wire += 800_000;
            }
            wire = wire.max(at);
            engine.enqueue(at, class, Packet { flow, ..Packet::new(0, 1000) });
            engine.drops().for_each(|drop| lost[drop.packet.flow as usize] += 1);
        }
        assert!((sent[1] + sent[2]).abs_diff(2500) < 30, "{sent:?}");
        if fair {
            // A turn of each flow, at 4 ms a packet of the class; and what the class may be late.
            assert!(lost[2] == 0 && lost[1] > 1000 && longest < 20 * MS, "{lost:?} {longest}");
        } else {
            assert!(lost[2] > 100 && longest > 200 * MS, "{lost:?} {longest}");
        }
        let change = Change::SetClass { class: 2, parent: 0, settings: nothing().with("weight", Value::Int(1)) };
        assert_eq!(engine.apply(wire, &change).is_err(), fair);
    }
}

/// A class that holds a wfq of its own.
fn holds(parent: u32, words: Settings, inner: &'static str) -> ClassSpec {
    let scheduler = SchedulerSpec { name: tree::name(inner), settings: Settings::new() };
    ClassSpec { parent, settings: words, queue: None, scheduler: Some(scheduler) }
}

/// A low-latency class whose own scheduler holds its packets back gets another level meanwhile. It
/// is counted among those that wait once, or the link would stand still.
#[test]
fn a_blocked_low_latency_class_gets_another_level() {
    let mut link = spec(&[]);
    link.classes.push(holds(0, low_latency(2_000_000, 20_000), "htb"));
    let words = rate("rate", 1_000_000).with("burst", Value::Bytes(1600)).with("cburst", Value::Bytes(1600));
    link.classes.push(tree::class(1, words, 50));
    let mut engine = Engine::new(&link).unwrap();
    (0..8).for_each(|handle| engine.enqueue(0, 2, Packet::new(handle, 1500)));
    let (mut now, mut sent, mut changes) = (0, 0, 0);
    while sent < 8 {
        if engine.dequeue(now).is_some() {
            sent += 1;
            now += 1_200_000;
            continue;
        }
        for level in [2, 1] {
            let settings = low_latency(2_000_000, 20_000).with("level", Value::Int(level));
            engine.apply(now, &Change::SetClass { class: 1, parent: 0, settings }).unwrap();
            changes += 1;
        }
        now = engine.next_wakeup().expect("it sends again").max(now + 1);
        assert!(now < SECOND, "{sent} packets");
    }
    // 12,000 bytes at 1 Mbit/s are 96 ms.
    assert!(changes > 4 && now > 50 * MS, "{changes} changes, {now}");
}

/// MQC's shaped parent over a CBWFQ child, one a virtual circuit: each is held to its rate, and
/// divides it.
#[test]
fn a_shaped_parent_divides_what_it_is_shaped_to() {
    let mut link = spec(&[]);
    link.classes.push(holds(0, rate("shape", 2_000_000).with("bandwidth", Value::Rate(Rate::mbit_s(2))), "wfq"));
    link.classes.push(holds(0, rate("shape", 4_000_000).with("bandwidth", Value::Rate(Rate::mbit_s(4))), "wfq"));
    link.classes.push(tree::class(0, nothing(), 50));
    for circuit in [1, 2] {
        // 800 and 400 kbit/s, 200 kbit/s at low latency, and one that has what is left: 600 kbit/s,
        // or 2.6 Mbit/s.
        link.classes.push(tree::class(circuit, rate("bandwidth", 800_000), 50));
        link.classes.push(tree::class(circuit, rate("bandwidth", 400_000), 50));
        link.classes.push(tree::class(circuit, low_latency(200_000, 1500), 50));
        link.classes.push(tree::class(circuit, nothing(), 50));
    }
    let mut engine = Engine::new(&link).unwrap();
    let mut arrivals: Vec<Arrival> = (4..=11).flat_map(|class| source(class, 5_000_000, 500, 0, 10 * SECOND)).collect();
    arrivals.extend(source(3, 9_000_000, 1500, 0, 10 * SECOND));
    let departures = run(&mut engine, 10 * SECOND, arrivals);
    let expected = [800, 400, 200, 600, 800, 400, 200, 2600];
    for (class, expected) in (4..).zip(expected) {
        let got = rate_of(&departures, class, SECOND, 10 * SECOND) / 1e3;
        assert!(
            (got - f64::from(expected)).abs() <= 2.0 + f64::from(expected) / 500.0,
            "class {class}: {got} for {expected}"
        );
    }
    // The rest is the third's, and nothing is lost.
    assert!((rate_of(&departures, 3, SECOND, 10 * SECOND) - 4e6).abs() < 0.02e6);
    // Inside, congestion is when packets wait for the shaper: the low-latency class is policed
    // though the link has room.
    assert!(engine.drop_reasons(6).any(|(reason, ..)| reason == DropReason::Policed));
}

/// wfq inside another scheduler and around others: classes have their shares.
#[test]
fn others_stand_inside_and_around() {
    for inner in ["drr", "fifo", "priq", "cbq"] {
        let mut link = spec(&[rate("bandwidth", 3_000_000)]);
        link.classes.push(holds(0, rate("bandwidth", 6_000_000), inner));
        let words = if inner == "cbq" { rate("rate", 3_000_000).with("borrow", Value::Flag) } else { nothing() };
        link.classes.push(tree::class(2, words.clone(), 50));
        link.classes.push(tree::class(2, words, 50));
        let mut engine = Engine::new(&link).unwrap();
        let arrivals = [(1, 1500), (3, 1000), (4, 1000)]
            .into_iter()
            .flat_map(|(class, bytes)| source(class, 9_000_000, bytes, 0, 5 * SECOND));
        let departures = run(&mut engine, 5 * SECOND, arrivals.collect());
        let got: Vec<f64> = [1, 3, 4].map(|class| rate_of(&departures, class, SECOND, 5 * SECOND) / 1e6).to_vec();
        assert!((got[0] - 10.0 / 3.0).abs() < 0.02 && (got[1] + got[2] - 20.0 / 3.0).abs() < 0.02, "{inner}: {got:?}");
    }
    // In a class of cbq that may not borrow: wfq divides its 4 Mbit/s.
    let mut link = spec(&[]);
    link.scheduler = SchedulerSpec::new("cbq");
    link.classes.push(holds(0, rate("rate", 4_000_000), "wfq"));
    link.classes.push(tree::class(0, rate("rate", 6_000_000), 50));
    link.classes.push(tree::class(1, rate("bandwidth", 3_000_000), 50));
    link.classes.push(tree::class(1, nothing(), 50));
    let mut engine = Engine::new(&link).unwrap();
    let arrivals = [2, 3, 4].into_iter().flat_map(|class| source(class, 9_000_000, 700, 0, 5 * SECOND));
    let departures = run(&mut engine, 5 * SECOND, arrivals.collect());
    for (class, expected) in [(2, 6.0), (3, 3.0), (4, 1.0)] {
        let got = rate_of(&departures, class, SECOND, 5 * SECOND) / 1e6;
        assert!((got - expected).abs() < 0.02, "class {class}: {got}");
    }
}

/// Words of any kind.
fn random_words(random: &mut Random) -> Settings {
    let part = Rate::bit_s(1 + random.below(4_000_000));
    let mut words = match random.below(7) {
        0 => rate("low-latency", part.as_bit_s()).with("level", Value::Int(1 + random.below(2))),
        1 => tree::int("weight", 1 + random.below(50)),
        2 => remaining(random.below(101) as u32),
        3 => nothing(),
        4 => rate("bandwidth", random.pick(&[0, 1, 50_000_000])),
        _ => rate("bandwidth", part.as_bit_s()),
    };
    if words.rate("low-latency").is_none() && random.chance(25) {
        words.set("shape", Value::Rate(Rate::bit_s(10_000 + random.below(9_000_000))));
    }
    if random.chance(20) {
        words.set("police", Value::Rate(Rate::bit_s(10_000 + random.below(9_000_000))));
    }
    words
}

/// Anything may change while packets are queued: every packet comes out once, identities hold, the
/// wire never idles when something may go, nothing leaves before it may, and asking more often
/// changes nothing.
#[test]
fn identities_hold_and_asking_more_often_changes_nothing() {
    for seed in 0..60 {
        let mut logs = Vec::new();
        for extra in [false, true] {
            let mut random = Random::new(seed);
            // Of its own, so that both runs do the same.
            let mut asking = Random::new(seed + 1_000_000);
            let mut link = spec(&(0..1 + random.below(8)).map(|_| random_words(&mut random)).collect::<Vec<_>>());
            if random.chance(40) {
                link = equal(link);
            }
            let nested = random.chance(60).then(|| {
                let inner = random.pick(&["wfq", "drr", "fifo"]);
                link.classes.push(holds(0, random_words(&mut random), inner));
                let holder = link.classes.len() as u32 - 1;
                let words = if inner == "wfq" { random_words(&mut random) } else { nothing() };
                link.classes.push(tree::class(holder, words, 50));
                link.classes.push(tree::class(holder, nothing(), 50));
                holder
            });
            let mut alive: Vec<u32> = (1..link.classes.len() as u32).filter(|class| Some(*class) != nested).collect();
            let mut engine = Engine::new(&link).unwrap();
            let mut wire = Wire::new(Rate::mbit_s(10));
            let (mut now, mut received, mut log, mut id) = (0, 0_u64, Vec::new(), 0);
            let mut dropped = 0_u64;
            let mut next_arrival = 0;
            while now < 2 * SECOND {
                while wire.next_end().is_some_and(|end| end <= now) {
                    wire.complete();
                }
                if next_arrival <= now {
                    for _ in 0..1 + random.below(4) {
                        let class = alive[random.below(alive.len() as u64) as usize];
                        engine.enqueue(now, class, Packet::new(id, 1 + random.below(1500) as u32));
                        (id, received) = (id + 1, received + 1);
                    }
                    next_arrival = now + random.below(4 * MS);
                    if random.chance(4) {
                        let class = alive[random.below(alive.len() as u64) as usize];
                        let parent = engine.parent(class).unwrap();
                        let change = match random.below(6) {
                            0 if alive.len() > 2 => {
                                alive.retain(|other| *other != class);
                                Change::RemoveClass { class, heir: random.chance(50).then(|| alive[0]) }
                            }
                            1 => Change::SetRate(Rate::bit_s(1_000_000 + random.below(20_000_000))),
                            2 => Change::SetScheduler {
                                class: 0,
                                settings: Settings::new()
                                    .with("excess", Value::Choice(random.pick(&["equal", "proportional"]))),
                            },
                            3 => Change::AddClass(tree::class(0, random_words(&mut random), 30)),
                            _ if parent == 0 => Change::SetClass { class, parent, settings: random_words(&mut random) },
                            _ => Change::SetRate(Rate::mbit_s(10)),
                        };
                        alive.extend(engine.apply(now, &change).unwrap());
                    }
                }
                if wire.held() == 0 {
                    match engine.dequeue(now) {
                        Some(departure) => {
                            wire.send(now, departure.packet.wire);
                            log.push((now, departure.class, departure.packet.handle));
                        }
                        None => {
                            let at = engine.next_wakeup();
                            assert_eq!(at.is_some(), engine.backlog() > 0, "seed {seed}");
                            assert!(at.is_none_or(|at| at > now), "seed {seed}: {at:?} at {now}");
                        }
                    }
                }
                dropped += engine.drops().count() as u64;
                let all = engine.counters(0);
                assert_eq!((all.received_packets(), all.dropped_packets), (received, dropped));
                assert_eq!(all.queued_packets, u64::from(engine.backlog()));
                // What comes next.
                let wake = (wire.held() == 0).then(|| engine.next_wakeup()).flatten();
                let then =
                    [Some(next_arrival), wire.next_end(), wake].into_iter().flatten().min().unwrap().max(now + 1);
                if extra && wire.held() == 0 {
                    for _ in 0..asking.below(4) {
                        now += asking.below(then - now);
                        assert!(
                            engine.dequeue(now).is_none(),
                            "seed {seed}: something left before the time that was named"
                        );
                        assert_eq!(engine.next_wakeup(), wake, "seed {seed}");
                    }
                }
                if extra {
                    (0..asking.below(3)).for_each(|_| _ = engine.next_wakeup());
                }
                now = then;
            }
            assert_eq!(log.len() as u64 + dropped + u64::from(engine.backlog()), received);
            logs.push(log);
        }
        let differs = logs[0].iter().zip(&logs[1]).position(|(one, other)| one != other);
        assert!(
            logs[0].len() > 100 && logs[0] == logs[1],
            "seed {seed}: {:?}",
            differs.map(|at| (at, logs[0][at], logs[1][at]))
        );
    }
}

/// Changes of a class's guarantee, as often as every third millisecond, leave the excess in equal
/// parts. Half of the time class 3 has 2 Mbit/s and half of the time 2.2, so 2.9 Mbit/s are left on
/// average, a third for each class.
#[test]
fn real_changes_do_not_tilt_equal_parts() {
    for every in [3 * MS, 10 * MS, 100 * MS] {
        let words = [rate("bandwidth", 1_000_000), rate("bandwidth", 4_000_000), rate("bandwidth", 2_000_000)];
        let mut engine = Engine::new(&equal(spec(&words))).unwrap();
        for class in 1..4 {
            (0..4).for_each(|_| engine.enqueue(0, class, Packet::new(0, [1500, 700, 1100][class as usize - 1])));
        }
        let (mut now, mut changes, mut bytes) = (0, 0, [0_u64; 4]);
        while now < 60 * SECOND {
            if now >= changes * every {
                changes += 1;
                let settings = rate("bandwidth", if changes % 2 == 0 { 2_000_000 } else { 2_200_000 });
                engine.apply(now, &Change::SetClass { class: 3, parent: 0, settings }).unwrap();
            }
            let departure = engine.dequeue(now).expect("every class has packets");
            bytes[departure.class as usize] += u64::from(departure.packet.wire);
            engine.enqueue(now, departure.class, Packet::new(0, departure.packet.len));
            now += Rate::mbit_s(10).time_for(u64::from(departure.packet.wire));
        }
        for (class, guarantee) in [(1, 1.0), (2, 4.0), (3, 2.1)] {
            let (got, expected) = (bytes[class] as f64 * 8.0 / 60e6, guarantee + 2.9 / 3.0);
            assert!((got / expected - 1.0).abs() < 0.005, "every {every} ns: class {class} has {got}, not {expected}");
        }
    }
}

/// Packets stay in order through changes of kind, and the new words hold at once.
#[test]
fn a_class_may_become_another_kind_with_its_packets() {
    let mut engine = Engine::new(&spec(&[rate("bandwidth", 1_000_000), rate("bandwidth", 9_000_000)])).unwrap();
    for id in 0..10 {
        engine.enqueue(0, 1, Packet::new(id, 1000));
        engine.enqueue(0, 2, Packet::new(id, 1000));
    }
    let change = |class, settings| Change::SetClass { class, parent: 0, settings };
    engine.apply(0, &change(1, rate("low-latency", 1_000_000))).unwrap();
    for id in 0..4 {
        let departure = engine.dequeue(0).unwrap();
        assert_eq!((departure.class, departure.packet.handle), (1, id));
    }
    // Back, with a shaper: a packet goes, and three of the MTU after it.
    engine.apply(0, &change(1, rate("shape", 1_000_000).with("bandwidth", Value::Rate(Rate::mbit_s(1))))).unwrap();
    let now = SECOND;
    let first: Vec<(u32, u32)> =
        std::iter::from_fn(|| engine.dequeue(now)).map(|d| (d.class, d.packet.handle)).collect();
    let own: Vec<u32> = first.iter().filter(|(class, _)| *class == 1).map(|(_, id)| *id).collect();
    assert_eq!((first.len(), own), (15, vec![4, 5, 6, 7, 8]));
    assert_eq!(engine.next_wakeup(), Some(now + (5 * 1000 - 4500) * 8 * 1000));
    engine.apply(now, &change(1, nothing())).unwrap();
    assert_eq!(engine.dequeue(now).map(|d| d.packet.handle), Some(9));
    // What is refused changes nothing.
    for wrong in [
        rate("low-latency", 0),
        rate("shape", 1_000_000).with("low-latency", Value::Rate(Rate::mbit_s(1))),
        rate("bandwidth", 1).with("weight", Value::Int(2)),
        nothing().with("level", Value::Int(1)),
    ] {
        assert!(engine.apply(now, &change(2, wrong)).is_err());
    }
}
