//! Classic CBQ under random changes: counters add up, no packet is stuck, nothing panics, and a
//! change that is refused changes nothing.

use crate::support::wire;

use std::collections::HashMap;

use altq_engine::link::{Framing, Overhead};
use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::spec::{ClassId, ClassSpec, LinkSpec, QueueSpec, ROOT, Regulator, SchedulerSpec, SpecError, Timer};
use altq_engine::units::{Nanos, Rate, SECOND};
use altq_engine::{Change, Engine, Packet};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use wire::{Arrival, Caller, Wire};

struct Dice(Pcg64Mcg);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

fn classic() -> Settings {
    Settings::new().with("estimator", Value::Choice("classic"))
}

fn scheduler(dice: &mut Dice) -> Settings {
    let mut words = classic();
    words.set("link-sharing", Value::Choice(dice.one_of(&["formal", "top-level", "ancestor-only"])));
    words.set("rounds", Value::Choice(dice.one_of(&["wrr", "wrr", "prr"])));
    if dice.below(6) == 0 {
        words.set("efficient", Value::Flag);
    }
    words
}

fn class_words(dice: &mut Dice) -> Settings {
    let mut words = Settings::new();
    words.set("rate", Value::Rate(Rate::kbit_s(dice.one_of(&[0, 100, 500, 1_000, 3_000, 8_000]))));
    words.set("priority", Value::Int(dice.below(8)));
    if dice.below(3) > 0 {
        words.set("borrow", Value::Flag);
    }
    if dice.below(4) == 0 {
        words.set("maxburst", Value::Int(dice.below(40) + 1));
    }
    words
}

fn queue(dice: &mut Dice) -> QueueSpec {
    let limit = match dice.below(4) {
        0 => Limit::Bytes(dice.below(60_000) as u32),
        _ => Limit::Packets(dice.below(60) as u32),
    };
    QueueSpec { name: dice.one_of(&["drop_head", "drop_tail"]), limit, settings: Settings::new() }
}

fn link(timer: Timer, rate: Rate, scheduler: Settings, classes: Vec<ClassSpec>) -> LinkSpec {
    let mut all = vec![ClassSpec::root()];
    all.extend(classes);
    LinkSpec { timer, ..LinkSpec::new(rate, SchedulerSpec { name: "cbq", settings: scheduler }, all) }
}

fn class(dice: &mut Dice, parent: ClassId) -> ClassSpec {
    let inner = match dice.below(8) {
        0 => Some(SchedulerSpec::new("fifo")),
        1 => Some(SchedulerSpec { name: "cbq", settings: scheduler(dice) }),
        _ => None,
    };
    ClassSpec { parent, settings: class_words(dice), queue: Some(queue(dice)), scheduler: inner }
}

/// Checks that the counters of every class and their sums agree with the packets enqueued.
/// `received` has these for each class, in packets and bytes.
fn check(engine: &Engine, classes: &[ClassId], received: &HashMap<ClassId, (u64, u64)>) {
    let all = engine.all_counters();
    let mut sums = vec![(0, 0); all.len()];
    for &class in classes {
        let own = engine.own_counters(class);
        let mut at = class;
        loop {
            sums[at as usize].0 += own.received_packets();
            sums[at as usize].1 += own.sent_bytes;
            match engine.parent(at) {
                Some(parent) => at = parent,
                None => break,
            }
        }
        assert!(own.sent_bytes >= own.borrowed_bytes);
    }
    for &class in classes {
        let c = &all[class as usize];
        assert_eq!((c.received_packets(), c.sent_bytes), sums[class as usize]);
        assert_eq!(*c, engine.counters(class));
        let (packets, bytes): (u64, u64) = engine.drop_reasons(class).fold((0, 0), |sum, r| (sum.0 + r.1, sum.1 + r.2));
        let own = engine.own_counters(class);
        assert_eq!((packets, bytes), (own.dropped_packets, own.dropped_bytes));
    }
    let given = received.values().fold((0, 0), |sum, r| (sum.0 + r.0, sum.1 + r.1));
    let root = engine.counters(ROOT);
    assert_eq!((root.received_packets(), root.received_bytes()), given);
    assert_eq!(root.queued_packets, u64::from(engine.backlog()));
    assert_eq!(root.borrowed_bytes, 0, "the root has no parent to borrow from");
}

/// One run: random packets and changes, then no more until all packets have left. Returns the
/// number of packets sent and of changes accepted.
fn churn(seed: u64) -> (u64, u64) {
    let mut dice = Dice(Pcg64Mcg::seed_from_u64(seed));
    let timer = dice.one_of(&[Timer::Exact, Timer::Tick(SECOND / 100), Timer::Tick(SECOND / 1000)]);
    let mut spec = link(timer, Rate::mbit_s(10), scheduler(&mut dice), Vec::new());
    if dice.below(3) == 0 {
        spec.overhead = Overhead { bytes: 22, mpu: 64, framing: Framing::Atm };
    }
    spec.regulator = dice.one_of(&[Regulator::None, Regulator::Auto, Regulator::Altq, Regulator::Depth(1500)]);
    let mut engine = Engine::new(&spec).unwrap();
    let mut classes = vec![ROOT];
    let mut received: HashMap<ClassId, (u64, u64)> = HashMap::new();
    let mut wire = Wire::new(Rate::mbit_s(10));
    let (mut now, mut drops, mut changes) = (0, 0, 0);
    for step in 0..4000u32 {
        now += dice.one_of(&[0, 1, 900, 40_000, 1_200_000, 10_000_000]);
        while wire.next_end().is_some_and(|end| end <= now) {
            wire.complete();
        }
        if dice.below(12) == 0 {
            let class_at = dice.one_of(&classes);
            let parent = dice.one_of(&classes);
            let change = match dice.below(12) {
                0..=4 if classes.len() < 30 => Change::AddClass(class(&mut dice, parent)),
                0..=5 => Change::SetClass { class: class_at, parent, settings: class_words(&mut dice) },
                6 | 7 => Change::RemoveClass { class: class_at, heir: (dice.below(2) == 0).then_some(parent) },
                8 => Change::SetQueue { class: class_at, queue: queue(&mut dice) },
                9 => Change::SetScheduler { class: class_at, settings: scheduler(&mut dice) },
                10 => Change::SetRate(Rate::kbit_s(dice.below(20_000) + 500)),
                _ => {
                    let all = [Regulator::None, Regulator::Auto, Regulator::Altq, Regulator::Depth(3000)];
                    Change::SetRegulator(dice.one_of(&all))
                }
            };
            let before = engine.backlog();
            match engine.apply(now, &change) {
                Ok(made) => {
                    changes += 1;
                    classes.extend(made);
                    if let Change::RemoveClass { class, .. } = change {
                        classes.retain(|c| *c != class);
                    }
                }
                Err(SpecError { message, .. }) => {
                    assert!(!message.is_empty());
                    assert_eq!(engine.backlog(), before);
                }
            }
        } else if dice.below(3) > 0 {
            let class = dice.one_of(&classes);
            for _ in 0..dice.one_of(&[1, 1, 1, 5, 30]) {
                let bytes = dice.below(1460) as u32 + 40;
                let sum = received.entry(class).or_default();
                *sum = (sum.0 + 1, sum.1 + u64::from(bytes));
                engine.enqueue(now, class, Packet::new(step, bytes));
            }
        }
        drops += engine.drops().count() as u64;
        while wire.held() == 0 {
            let Some(d) = engine.dequeue(now) else { break };
            wire.send(now, d.packet.wire);
        }
        if step % 50 == 0 {
            check(&engine, &classes, &received);
        }
    }
    // No more arrivals: all packets must leave, by calls at `next_wakeup` alone.
    let end = now + 10_000 * SECOND;
    while engine.backlog() > 0 {
        match wire.next_end() {
            Some(at) => {
                now = now.max(at);
                wire.complete();
            }
            None => {
                let at = engine
                    .next_wakeup()
                    .unwrap_or_else(|| panic!("seed {seed}: packets wait, but next_wakeup is None"));
                now = wire::rounded(at, timer).max(now + 1);
            }
        }
        assert!(now < end, "packets are stuck: {}", engine.backlog());
        if let Some(d) = engine.dequeue(now) {
            wire.send(now, d.packet.wire);
        }
    }
    assert_eq!(engine.dequeue(now), None);
    assert_eq!(engine.next_wakeup(), None);
    check(&engine, &classes, &received);
    assert_eq!(engine.counters(ROOT).dropped_packets, drops);
    (engine.counters(ROOT).sent_packets, changes)
}

#[test]
fn everything_adds_up_while_everything_changes() {
    let (mut packets, mut changes) = (0, 0);
    for seed in 0..100 {
        let (p, c) = churn(seed);
        (packets, changes) = (packets + p, changes + c);
    }
    println!("{packets} packets left, {changes} changes");
    assert!(packets > 50_000 && changes > 10_000);
}

fn plain(parent: ClassId, mbit: u64, borrow: bool) -> ClassSpec {
    let mut settings = Settings::new().with("rate", Value::Rate(Rate::mbit_s(mbit)));
    if borrow {
        settings.set("borrow", Value::Flag);
    }
    ClassSpec { parent, settings, queue: None, scheduler: None }
}

#[test]
fn asking_an_idle_link_changes_nothing() {
    // With an exact timer, calls of `dequeue` between the events return nothing and do not change
    // the departures.
    for seed in 0..20 {
        let mut dice = Dice(Pcg64Mcg::seed_from_u64(seed));
        let words = scheduler(&mut dice);
        let classes = vec![plain(0, 3, false), plain(0, 5, true), plain(2, 2, true), plain(2, 3, false)];
        let arrivals: Vec<Arrival> = {
            let mut at = 0;
            let next = |_| {
                at += dice.below(2_500_000);
                Arrival { at, class: dice.below(5) as u32, bytes: dice.below(1460) as u32 + 40 }
            };
            (0..4000).map(next).collect()
        };
        let caller = Caller { rate: Rate::mbit_s(10), timer: Timer::Exact, ring: 1 };
        let spec = link(Timer::Exact, Rate::mbit_s(10), words, classes);
        let quiet = wire::run(&mut Engine::new(&spec).unwrap(), caller, 100 * SECOND, arrivals.iter().copied());
        let mut asked = 0;
        let restless = wire::run_with(&mut Engine::new(&spec).unwrap(), caller, 100 * SECOND, arrivals, |_, now| {
            asked += 1;
            (now < 8 * SECOND).then(|| now + 1 + dice.below(300_000))
        });
        assert!(asked > 10_000);
        assert_eq!(quiet, restless, "seed {seed}");
    }
}

#[test]
fn words_of_exact_are_errors() {
    let build = |words: Settings, class: Settings| {
        let spec = link(
            Timer::Exact,
            Rate::mbit_s(10),
            words,
            vec![ClassSpec { parent: ROOT, settings: class, queue: None, scheduler: None }],
        );
        Engine::new(&spec).map(|_| ()).unwrap_err()
    };
    let error = build(classic().with("excess", Value::Choice("share")), Settings::new());
    assert_eq!(error.word, Some("excess"));
    let error = build(classic(), Settings::new().with("ceiling", Value::Rate(Rate::mbit_s(1))));
    assert_eq!((error.word, error.class), (Some("ceiling"), Some(1)));
    assert!(error.help.is_some());
}

#[test]
fn rates_that_overflow_are_errors_and_change_nothing() {
    let mut engine = Engine::new(&link(Timer::Exact, Rate::mbit_s(100), classic(), vec![plain(0, 50, false)])).unwrap();
    for change in [
        Change::SetRate(Rate::mbit_s(8_001)),
        Change::AddClass(plain(0, 8_001, false)),
        Change::SetClass { class: 1, parent: 0, settings: plain(0, 9_000, false).settings },
        Change::SetScheduler { class: 0, settings: Settings::new().with("estimator", Value::Choice("exact")) },
    ] {
        let error = engine.apply(0, &change).unwrap_err();
        assert!(error.help.is_some(), "{error}");
        assert_eq!(engine.rate(), Rate::mbit_s(100));
    }
    // Three classes of 8 Gbit/s in one priority have more than 2^31 bytes/s together, which
    // overflows (docs/reference/altq.md 2.4).
    let mut engine = Engine::new(&link(Timer::Exact, Rate::mbit_s(8_000), classic(), vec![])).unwrap();
    for n in 1..=2 {
        assert_eq!(engine.apply(0, &Change::AddClass(plain(0, 8_000, false))), Ok(Some(n)));
    }
    let error = engine.apply(0, &Change::AddClass(plain(0, 8_000, false))).unwrap_err();
    assert_eq!(error.word, Some("rate"));
    // Another priority has room.
    let mut other = plain(0, 8_000, false);
    other.settings.set("priority", Value::Int(5));
    assert_eq!(engine.apply(0, &Change::AddClass(other)), Ok(Some(3)));
}

/// The rate of a class in Mbit/s in the last of three seconds from `from`, while it always has
/// packets.
fn rate_after(engine: &mut Engine, from: Nanos, class: u32) -> f64 {
    let arrivals = (0..30_000).map(|n| Arrival { at: from + n * 100_000, class, bytes: 1500 });
    let caller = Caller { rate: Rate::mbit_s(100), timer: Timer::Exact, ring: 1 };
    let departures = wire::run(engine, caller, from + 3 * SECOND, arrivals);
    wire::rate_of(&departures, class, from + 2 * SECOND, from + 3 * SECOND) / 1e6
}

#[test]
fn new_words_hold_at_once() {
    let mut engine = Engine::new(&link(Timer::Exact, Rate::mbit_s(100), classic(), vec![plain(0, 20, false)])).unwrap();
    assert!((rate_after(&mut engine, 0, 1) / 20.0 - 1.0).abs() < 0.02);
    engine
        .apply(3 * SECOND, &Change::SetClass { class: 1, parent: 0, settings: plain(0, 40, false).settings })
        .unwrap();
    assert!((rate_after(&mut engine, 4 * SECOND, 1) / 40.0 - 1.0).abs() < 0.02);
    engine.apply(7 * SECOND, &Change::SetClass { class: 1, parent: 0, settings: plain(0, 40, true).settings }).unwrap();
    assert!(rate_after(&mut engine, 8 * SECOND, 1) > 99.0);
    // With a link of 50 Mbit/s the class may borrow up to that. Beyond its own 40 it borrows some
    // of the time, and sleeps the rest.
    engine.apply(11 * SECOND, &Change::SetRate(Rate::mbit_s(50))).unwrap();
    let rate = rate_after(&mut engine, 12 * SECOND, 1);
    assert!((39.2..=51.0).contains(&rate), "{rate}");
}
