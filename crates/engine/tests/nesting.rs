//! Every scheduler inside a class of every other: the contract, the identities of counters,
//! `next_wakeup` and the promised delays hold for each ordered pair, and for random trees of three
//! levels. The schedulers are those of the registry.

use crate::support;
use crate::support::nest;

use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::spec::{ClassSpec, QueueSpec};
use altq_engine::units::{Nanos, Rate};
use altq_engine::{Change, Engine};
use nest::{Left, Nest, Rules, What, names, run, traffic, words};
use support::{MS, Random, S};

const RATE: u64 = 10_000_000;

/// A link with the scheduler `outer` and classes 1, 2 and 3. Class 1 holds the scheduler `inner`,
/// with classes 4 and 5. `limited` says whether class 1, and class 4, may have no more than their
/// rates.
fn pair(outer: &str, inner: &'static str, limited: (bool, bool)) -> Nest {
    let mut nest = Nest::new(RATE, outer);
    let top: Vec<Settings> = [50, 20, 30]
        .iter()
        .enumerate()
        .map(|(at, percent)| words(outer, at, RATE, *percent, limited.0 && at == 0))
        .collect();
    nest.divide(0, &top, &[Some(inner), None, None]);
    let rate = nest.rate[1];
    let below: Vec<Settings> = [40, 60]
        .iter()
        .enumerate()
        .map(|(at, percent)| words(inner, at, rate, *percent, limited.1 && at == 0))
        .collect();
    nest.divide(1, &below, &[None, None]);
    let conserves =
        |scheduler: &str, limited: bool| nest::conserves(scheduler) && !(limited && nest::limits(scheduler));
    nest.conserving = conserves(outer, limited.0) && conserves(inner, limited.1);
    nest
}

fn pairs() -> impl Iterator<Item = (&'static str, &'static str)> {
    names().into_iter().flat_map(|outer| names().into_iter().map(move |inner| (outer, inner)))
}

/// Runs the events twice, once with more calls of `dequeue` than needed, and checks that the same
/// packets leave at the same times.
fn both_ways(nest: &Nest, events: &[(Nanos, What)], what: &str) -> Vec<Left> {
    // Printed if an assertion below fails.
    println!("{what}");
    let last = events.last().map_or(0, |(at, _)| *at);
    let rules = Rules { extra: false, conserving: nest.conserving };
    let plain = run(&mut Engine::new(&nest.spec).unwrap(), Rate::bit_s(RATE), events, rules, last + 20 * S);
    let rules = Rules { extra: true, ..rules };
    let more = run(&mut Engine::new(&nest.spec).unwrap(), Rate::bit_s(RATE), events, rules, last + 20 * S);
    let first = plain.iter().zip(&more).find(|(plain, more)| plain != more);
    assert!(first.is_none() && plain.len() == more.len(), "{what}: more calls change a departure: {first:?}");
    plain
}

#[test]
fn contract_and_identities_of_every_pair() {
    for (outer, inner) in pairs() {
        for limited in [(false, false), (true, false), (false, true), (true, true)] {
            let nest = pair(outer, inner, limited);
            let mut random = Random::new(outer.len() as u64 * 31 + inner.len() as u64);
            for load in [60, 150] {
                let events = traffic(&mut random, &[2, 3, 4, 5, 5, 1], RATE, load, 1500);
                let left = both_ways(&nest, &events, &format!("{inner} in {outer}, {limited:?}"));
                assert!(left.len() > 300);
            }
        }
    }
}

/// ALTQ's CBQ (`estimator classic`) inside and outside every other scheduler. Checks the identities
/// of counters, and that a call at `next_wakeup` sends a packet or gives a later time. (Extra calls
/// of `dequeue` do change the departures of classic CBQ, as in ALTQ, so they are not tried.)
#[test]
fn classic_in_and_around_all_others() {
    let classic = Settings::new().with("estimator", Value::Choice("classic"));
    for other in names() {
        for around in [true, false] {
            let mut nest = if around { pair("cbq", other, (false, true)) } else { pair(other, "cbq", (true, true)) };
            if around {
                nest.spec.scheduler.settings = classic.clone();
            } else if let Some(inner) = &mut nest.spec.classes[1].scheduler {
                inner.settings = classic.clone();
            }
            let mut random = Random::new(other.len() as u64);
            let events = traffic(&mut random, &[2, 3, 4, 5, 5, 1], RATE, 90, 1500);
            let last = events.last().map_or(0, |(at, _)| *at);
            println!("{other}, classic around it: {around}");
            let left =
                run(&mut Engine::new(&nest.spec).unwrap(), Rate::bit_s(RATE), &events, Rules::default(), last + 20 * S);
            assert!(left.len() > 300);
        }
    }
}

/// A random change, which the engine may accept or refuse.
fn change(random: &mut Random, nest: &Nest) -> Change {
    let n = nest.spec.classes.len() as u64;
    let class = 1 + random.below(n - 1) as u32;
    let spec = &nest.spec.classes[class as usize];
    let holder = spec.parent;
    let scheduler = nest.held(holder).map_or("fifo", |held| held.name);
    let limited = random.chance(30);
    let settings =
        words(scheduler, random.below(4) as usize, nest.rate[holder as usize], 1 + random.below(40), limited);
    match random.below(10) {
        0 => Change::RemoveClass { class, heir: random.chance(50).then(|| random.below(n) as u32) },
        1 | 2 => Change::AddClass(ClassSpec { parent: holder, settings, queue: None, scheduler: None }),
        3 => {
            let limit = Limit::Packets(1 + random.below(30) as u32);
            let name = random.pick(&["drop_tail", "drop_head"]);
            Change::SetQueue { class, queue: QueueSpec::new(name, limit) }
        }
        4 => Change::SetRate(Rate::bit_s(RATE * (50 + random.below(100)) / 100)),
        _ => Change::SetClass { class, parent: holder, settings },
    }
}

fn mixed(random: &mut Random, nest: &Nest, load: u64, count: usize) -> Vec<(Nanos, What)> {
    let classes: Vec<u32> = (0..nest.spec.classes.len() as u32).collect();
    let packets = traffic(random, &classes, RATE, load, count);
    let mut events = Vec::new();
    for event in packets {
        if random.chance(2) {
            events.push((event.0, What::Change(change(random, nest))));
        }
        events.push(event);
    }
    events
}

#[test]
fn changes_while_packets_wait_in_every_pair() {
    for (outer, inner) in pairs() {
        for seed in 0..6 {
            let mut random = Random::new(seed * 1000 + outer.len() as u64 * 37 + inner.len() as u64);
            let mut nest = pair(outer, inner, (seed % 2 == 0, seed % 3 == 0));
            // After a change the link may idle with packets; when it may is not worked out here.
            nest.conserving = false;
            let events = mixed(&mut random, &nest, 100, 800);
            both_ways(&nest, &events, &format!("{inner} in {outer}, seed {seed}"));
        }
    }
}

#[test]
fn three_deep_at_random() {
    let mut conserving = 0;
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let all = names();
        let mut nest = Nest::new(RATE, random.pick(&all));
        nest.grow(&mut random, 0, 3, seed % 2 == 0);
        conserving += u32::from(nest.conserving);
        let load = random.pick(&[70, 130]);
        let events = if seed % 3 == 0 {
            nest.conserving = false;
            mixed(&mut random, &nest, load, 800)
        } else {
            let classes: Vec<u32> = (0..nest.spec.classes.len() as u32).collect();
            traffic(&mut random, &classes, RATE, load, 800)
        };
        both_ways(&nest, &events, &format!("seed {seed}"));
    }
    assert!(conserving > 15, "{conserving}");
}

/// A scheduler inside the only class of a work-conserving one makes the same decisions as at the
/// link, also after changes. In particular it is asked again as soon as a change lets it send.
#[test]
fn inside_the_only_class_a_scheduler_acts_as_at_the_link() {
    for inner in names() {
        for outer in ["fifo", "priq", "drr"] {
            for seed in 0..12 {
                let mut random = Random::new(seed * 7 + 1);
                let mut alone = Nest::new(RATE, inner);
                let classes = 2 + random.below(3);
                let settings: Vec<Settings> = (0..classes)
                    .map(|at| words(inner, at as usize, RATE, 1 + random.below(100 / classes), random.chance(60)))
                    .collect();
                alone.divide(0, &settings, &vec![None; settings.len()]);
                let mut nested = Nest::new(RATE, outer);
                nested.divide(0, &[Settings::new()], &[Some(inner)]);
                nested.divide(1, &settings, &vec![None; settings.len()]);
                let packets = traffic(&mut random, &(1..=classes as u32).collect::<Vec<_>>(), RATE, 40, 600);
                let mut events = [Vec::new(), Vec::new()];
                for (at, what) in packets {
                    let What::Packet { class, bytes } = what else { continue };
                    if random.chance(5) {
                        let class = 1 + random.below(classes) as u32;
                        let limited = random.chance(60);
                        let settings = words(inner, class as usize, RATE, 1 + random.below(100 / classes), limited);
                        for (down, events) in events.iter_mut().enumerate() {
                            let (class, parent) = (class + down as u32, down as u32);
                            events.push((
                                at,
                                What::Change(Change::SetClass { class, parent, settings: settings.clone() }),
                            ));
                        }
                    }
                    for (down, events) in events.iter_mut().enumerate() {
                        events.push((at, What::Packet { class: class + down as u32, bytes }));
                    }
                }
                let end = events[0].last().map_or(0, |(at, _)| *at) + 20 * S;
                let go = |nest: &Nest, events: &[(Nanos, What)]| {
                    run(&mut Engine::new(&nest.spec).unwrap(), Rate::bit_s(RATE), events, Rules::default(), end)
                };
                let one = go(&alone, &events[0]);
                let two = go(&nested, &events[1]);
                for (one, two) in one.iter().zip(&two) {
                    let same = Left { class: one.class + 1, ..*one };
                    assert_eq!(same, *two, "{inner} in {outer}, seed {seed}");
                }
                assert_eq!(one.len(), two.len(), "{inner} in {outer}, seed {seed}");
            }
        }
    }
}

/// A class of 1 kbit/s inside another scheduler may not send for more than a second. When its rate
/// is raised it may send at once.
#[test]
fn a_change_frees_what_an_inner_scheduler_holds() {
    let mut nest = Nest::new(RATE, "priq");
    nest.divide(0, &[Settings::new()], &[Some("cbq")]);
    let rate = |rate| Settings::new().with("rate", Value::Rate(Rate::bit_s(rate)));
    nest.divide(1, &[rate(1_000)], &[None]);
    let mut engine = Engine::new(&nest.spec).unwrap();
    for id in 0..6 {
        engine.enqueue(0, 2, altq_engine::Packet::new(id, 1500));
    }
    while engine.dequeue(0).is_some() {}
    let (waiting, wake) = (engine.backlog(), engine.next_wakeup().unwrap());
    assert!(waiting > 2 && wake > S, "{waiting} wait until {wake}");
    let settings = rate(5_000_000);
    engine.apply(MS, &Change::SetClass { class: 2, parent: 1, settings }).unwrap();
    // What the class has overdrawn counts as time at its new rate (docs/reference/cbq.md rule 17):
    // it waits at most for the time of one packet, 2.4 ms.
    let wake = engine.next_wakeup().unwrap();
    assert!(wake <= MS + 1500 * 8 * 200, "still held until {wake}");
    assert!(engine.dequeue(wake).is_some());
}

/// Promises compose: the promise of a class in an inner scheduler follows from that of the class
/// that holds the scheduler. A source that keeps to the promised rate waits no longer than the
/// promised delay, while all other classes send what they can. (The source of each scheduler's
/// bound is given beside its `promise`. That the inner scheduler may take the outer promise for its
/// server: Le Boudec and Thiran 2001, chapter 1.)
#[test]
fn promises_compose_in_every_pair() {
    let mut closest = Vec::new();
    for (outer, inner) in pairs() {
        for seed in 0..6 {
            let nest = pair(outer, inner, (seed % 3 == 0, seed % 3 == 1));
            let mut random = Random::new(seed * 11 + 5);
            for class in [4, 5] {
                let Ok(promised) = nest.promised[class as usize].clone() else { continue };
                let burst = 1500 * (1 + random.below(2));
                let most = promised.delay(burst).unwrap();
                let waited = nest::longest_wait(&nest, class, promised.rate(), burst, &mut random, 8000);
                assert!(waited <= most, "{inner} in {outer}, class {class}, seed {seed}: {waited} of {most} ns");
                closest.push((waited as f64 / most as f64, outer, inner));
            }
        }
    }
    for seed in 0..80 {
        let mut random = Random::new(4000 + seed);
        let mut nest = Nest::new(RATE, random.pick(&names()));
        nest.grow(&mut random, 0, 3, seed % 2 == 0);
        let deepest = nest.leaves().into_iter().rev().find(|leaf| nest.promised[*leaf as usize].is_ok());
        let Some(class) = deepest else { continue };
        let promised = nest.promised[class as usize].clone().unwrap();
        let most = promised.delay(1500).unwrap();
        let waited = nest::longest_wait(&nest, class, promised.rate(), 1500, &mut random, 4000);
        assert!(waited <= most, "seed {seed}, class {class}: {waited} of {most} ns");
        closest.push((waited as f64 / most as f64, "three", "deep"));
    }
    closest.sort_by(|a, b| b.0.total_cmp(&a.0));
    println!("{} runs; nearest to the bound: {:.3?}", closest.len(), &closest[..3.min(closest.len())]);
    assert!(closest.len() >= 24, "{}", closest.len());
}
