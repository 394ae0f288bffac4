//! Classic CBQ against measurements of the compiled BSD code (docs/reference/altq.md 17): every
//! figure of the tables within 2 %.

use crate::support::wire;

use altq_engine::Engine;
use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::spec::{ClassSpec, LinkSpec, QueueSpec, ROOT, Regulator, SchedulerSpec, Timer};
use altq_engine::units::{Nanos, Rate, SECOND};
use wire::{Arrival, Caller, rate_of};

const LINK: Rate = Rate::mbit_s(100);
const HZ100: Timer = Timer::Tick(SECOND / 100);
const HZ1000: Timer = Timer::Tick(SECOND / 1000);

fn class(rate: Rate, limit: u32) -> ClassSpec {
    ClassSpec {
        parent: ROOT,
        settings: Settings::new().with("rate", Value::Rate(rate)),
        queue: Some(QueueSpec::new("drop_head", Limit::Packets(limit))),
        scheduler: None,
    }
}

fn link(timer: Timer, regulator: Regulator, classes: Vec<ClassSpec>) -> LinkSpec {
    let mut all = vec![ClassSpec::root()];
    all.extend(classes);
    let settings = Settings::new().with("estimator", Value::Choice("classic"));
    LinkSpec { regulator, timer, ..LinkSpec::new(LINK, SchedulerSpec { name: "cbq", settings }, all) }
}

/// One packet of 1500 bytes for each class every 120 us.
fn polled(classes: &[u32], until: Nanos) -> Vec<Arrival> {
    (0..until / 120_000)
        .flat_map(|n| classes.iter().map(move |&class| Arrival { at: n * 120_000, class, bytes: 1500 }))
        .collect()
}

/// Bursts of half a second's worth of packets, at 1.3008 times the target rate.
fn refill(class: u32, target: Rate, until: Nanos) -> Vec<Arrival> {
    let fed = 1.3008 * target.as_bit_s() as f64;
    let n = (fed * 0.5 / 12000.0).round() as u64;
    let period = n as f64 * 12000.0 / fed;
    let bursts = (until as f64 / 1e9 / period).ceil() as u64;
    let at = |burst: u64| (burst as f64 * period * 1e9) as Nanos;
    (0..bursts).flat_map(|b| std::iter::repeat_n(Arrival { at: at(b), class, bytes: 1500 }, n as usize)).collect()
}

const END: Nanos = 11 * SECOND;

/// Rates of the classes over seconds 1 to 11, Mbit/s.
fn rates(timer: Timer, regulator: Regulator, targets: &[u64], fed: bool) -> Vec<f64> {
    let limit = if fed { 65_000 } else { 50 };
    let mut classes: Vec<ClassSpec> = targets.iter().map(|&t| class(Rate::mbit_s(t), limit)).collect();
    // The idle class `def`. Beside one class it has 1 Mbit/s, beside two what they leave: 0. Its
    // rate counts in the weights of the round robin.
    let left = if targets.len() == 1 { Rate::mbit_s(1) } else { Rate::ZERO };
    classes.push(class(left, limit));
    let mut engine = Engine::new(&link(timer, regulator, classes)).unwrap();
    let ids: Vec<u32> = (1..=targets.len() as u32).collect();
    let arrivals = if fed {
        let mut all: Vec<Arrival> =
            ids.iter().zip(targets).flat_map(|(&id, &t)| refill(id, Rate::mbit_s(t), END)).collect();
        all.sort_by_key(|a| a.at);
        all
    } else {
        polled(&ids, END)
    };
    let departures = wire::run(&mut engine, Caller { rate: LINK, timer, ring: 1 }, END, arrivals);
    ids.iter().map(|&id| rate_of(&departures, id, SECOND, END) / 1e6).collect()
}

/// The measured rates in Mbit/s. Each row has the target, then the columns polled at 100 Hz; refill
/// at 100 Hz, at 1000 Hz and with an exact timer; refill with a regulator (TBR) at 100 Hz and at
/// 1000 Hz.
const TABLE: [(u64, [f64; 6]); 7] = [
    (5, [4.95, 4.60, 4.92, 4.94, 4.80, 4.97]),
    (10, [9.89, 8.40, 9.77, 9.91, 9.20, 9.88]),
    (20, [20.0, 10.8, 19.8, 20.0, 17.0, 19.8]),
    (40, [40.0, 10.8, 38.6, 40.4, 21.6, 40.0]),
    (60, [60.6, 10.8, 54.0, 61.1, 21.6, 58.5]),
    (80, [80.3, 10.8, 54.0, 80.8, 21.6, 72.0]),
    (95, [95.9, 15.0, 60.0, 97.2, 30.0, 75.0]),
];

#[test]
fn one_class_alone() {
    let columns = [
        ("polled 100 Hz", HZ100, Regulator::None, false),
        ("refill 100 Hz", HZ100, Regulator::None, true),
        ("refill 1000 Hz", HZ1000, Regulator::None, true),
        ("refill exact", Timer::Exact, Regulator::None, true),
        ("TBR 100 Hz", HZ100, Regulator::Altq, true),
        ("TBR 1000 Hz", HZ1000, Regulator::Altq, true),
    ];
    let mut worst = 0.0f64;
    for (column, (name, timer, regulator, fed)) in columns.into_iter().enumerate() {
        for (target, published) in TABLE {
            let got = rates(timer, regulator, &[target], fed)[0];
            let error = got / published[column] - 1.0;
            println!(
                "{name:>15} {target:>3} Mbit/s: {got:8.3}, published {:5.2}, {:+.2} %",
                published[column],
                error * 100.0
            );
            worst = worst.max(error.abs());
        }
    }
    assert!(worst <= 0.02, "{worst}");
}

#[test]
fn two_classes() {
    let cases = [
        ("polled 100 Hz", HZ100, false, [79.3, 19.8]),
        ("polled 1000 Hz", HZ1000, false, [79.3, 19.8]),
        ("polled exact", Timer::Exact, false, [79.3, 19.8]),
        ("refill 100 Hz", HZ100, true, [56.6, 15.2]),
        ("refill 1000 Hz", HZ1000, true, [75.9, 19.5]),
        ("refill exact", Timer::Exact, true, [79.4, 19.9]),
    ];
    let mut worst = 0.0f64;
    for (name, timer, fed, published) in cases {
        let got = rates(timer, Regulator::None, &[80, 20], fed);
        for (got, published) in got.iter().zip(published) {
            let error = got / published - 1.0;
            println!("{name:>15}: {got:8.3}, published {published:5.2}, {:+.2} %", error * 100.0);
            worst = worst.max(error.abs());
        }
    }
    assert!(worst <= 0.02, "{worst}");
}
