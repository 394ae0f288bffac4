//! A packet's way in pieces: `cargo bench -p altq-engine`. The whole, at many sizes, is
//! `altq bench engine`; what a change must hold is `benches/instructions`.

use std::hint::black_box;

use altq_engine::classify::{Address, BATCH, Classifier, Field, FlowHash, Rule, RuleSet, Term, Values};
use altq_engine::headers::{Key, parse_ethernet};
use altq_engine::schedule;
use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::spec::{ClassId, ClassSpec, LinkSpec, QueueSpec, ROOT, SchedulerSpec};
use altq_engine::units::Rate;
use altq_engine::{Engine, Packet};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const FLOWS: u32 = 1000;

fn frame(kind: &[u8], rest: &[&[u8]]) -> Vec<u8> {
    let mut frame = [&[2; 12], kind, &rest.concat()[..]].concat();
    frame.resize(128, 0);
    frame
}

fn parse(c: &mut Criterion) {
    let ports = [0x9c, 0x40, 1, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10];
    let v4 = |proto| [0x45, 0, 0, 100, 0, 0, 0x40, 0, 64, proto, 0, 0, 10, 0, 0, 1, 192, 0, 2, 1];
    let v6 = |next| {
        let mut header = [0; 40];
        (header[0], header[5], header[6], header[7]) = (0x60, 60, next, 64);
        header
    };
    let frames = [
        ("ipv4-udp", frame(&[8, 0], &[&v4(17), &ports])),
        ("ipv4-tcp", frame(&[8, 0], &[&v4(6), &ports])),
        ("vlan-ipv4-udp", frame(&[0x81, 0, 0, 7, 8, 0], &[&v4(17), &ports])),
        ("ipv6-tcp", frame(&[0x86, 0xdd], &[&v6(6), &ports])),
        (
            "ipv6-two-extensions-udp",
            frame(&[0x86, 0xdd], &[&v6(0), &[60, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0, 0], &ports]),
        ),
    ];
    let mut group = c.benchmark_group("parse");
    group.throughput(Throughput::Elements(1));
    for (name, frame) in &frames {
        group.bench_function(*name, |b| {
            b.iter(|| black_box(&parse_ethernet(black_box(frame), frame.len() as u32)).key.length)
        });
    }
}

fn key(at: u32) -> Key {
    let (src, dst) = (0x0a00_0001, 0x2000_0000 + u128::from(at));
    Key { src, dst, proto: 6, family: 4, length: 512, ..Key::default() }.with_ports(40_000, 443)
}

/// Flow `at` to class `first + at`, by all five fields.
fn rules(first: ClassId) -> RuleSet {
    let address = |bits| Values::Addresses(vec![Address { v6: false, bits, mask: u128::from(u32::MAX) }]);
    let number = |n| Values::Ranges(vec![(n, n)]);
    let rule = |at: u32| {
        let terms = [
            (Field::Src, address(key(at).src)),
            (Field::Dst, address(key(at).dst)),
            (Field::Proto, number(6)),
            (Field::SrcPort, number(40_000)),
            (Field::DstPort, number(443)),
        ];
        let terms = terms.into_iter().map(|(field, values)| Term { field, negated: false, values }).collect();
        Rule { terms, class: first + at, number: 0 }
    };
    RuleSet { rules: (0..FLOWS).map(rule).collect(), ..RuleSet::default() }
}

fn classify(c: &mut Criterion) {
    let mut classifier = Classifier::new(&rules(0), None);
    let keys: Vec<Key> = (0..FLOWS).map(key).collect();
    let mut classes = Vec::with_capacity(BATCH);
    let mut group = c.benchmark_group("classify");
    group.throughput(Throughput::Elements(1));
    let mut at = 0;
    group.bench_function("hit", |b| {
        b.iter(|| {
            at = (at + 1) % keys.len();
            classifier.classify(black_box(&keys[at]))
        })
    });
    group.bench_function("flow-hash", |b| b.iter(|| FlowHash::new(7).flow(black_box(&keys[0]))));
    group.throughput(Throughput::Elements(BATCH as u64));
    group.bench_function("hits-in-a-batch", |b| {
        b.iter(|| {
            at = (at + BATCH) % (keys.len() - BATCH);
            classes.clear();
            classifier.classify_batch(black_box(&keys[at..at + BATCH]), &mut classes);
        })
    });
}

/// Classes beside one another under the link, half of which they are guaranteed.
fn engine(scheduler: &'static str, classes: u32) -> Option<Engine> {
    let words = |at: u32| {
        Settings::new()
            .with("rate", Value::Rate(Rate::bit_s(5_000_000_000 / u64::from(classes))))
            .with("borrow", Value::Flag)
            .with("priority", Value::Int(u64::from(at % 8)))
    };
    let class = |settings| ClassSpec { parent: ROOT, settings, queue: None, scheduler: None };
    let spec = LinkSpec::new(
        Rate::mbit_s(10_000),
        SchedulerSpec::new(scheduler),
        std::iter::once(class(Settings::new())).chain((0..classes).map(|at| class(words(at)))).collect(),
    );
    Engine::new(&spec).ok()
}

fn enqueue_dequeue(c: &mut Criterion) {
    let mut group = c.benchmark_group("enqueue-dequeue");
    group.throughput(Throughput::Elements(1));
    for scheduler in [schedule::PLAIN.name, schedule::SCHEDULERS[0].name] {
        for classes in [10, 1000] {
            let Some(mut engine) = engine(scheduler, classes) else { continue };
            let (mut now, mut class) = (0, 0);
            group.bench_function(BenchmarkId::new(format!("{scheduler}-one-at-a-time"), classes), |b| {
                b.iter(|| {
                    now += 410;
                    class = class % classes + 1;
                    engine.enqueue(now, class, Packet::new(0, 512));
                    engine.dequeue(now)
                })
            });
            for class in 1..=classes {
                engine.enqueue(now, class, Packet::new(0, 512));
                engine.enqueue(now, class, Packet::new(0, 512));
            }
            group.bench_function(BenchmarkId::new(format!("{scheduler}-saturated"), classes), |b| {
                b.iter(|| {
                    now += 410;
                    if let Some(departure) = engine.dequeue(now) {
                        engine.enqueue(now, departure.class, departure.packet);
                    }
                })
            });
        }
    }
}

/// ALTQ's hashed queues and its conditioner, and what they are measured against: drr with ten
/// classes.
fn beside_drr(c: &mut Criterion) {
    let link = |scheduler, classes: Vec<ClassSpec>| {
        let spec = LinkSpec::new(Rate::mbit_s(10_000), SchedulerSpec::new(scheduler), classes);
        Engine::new(&spec).expect("a link")
    };
    let class = |settings, queue| ClassSpec { parent: ROOT, settings, queue, scheduler: None };
    let root = || class(Settings::new(), None);
    let all = |settings: &Settings| {
        let classes = (0..10).map(|_| class(settings.clone(), None));
        link("fifo", std::iter::once(root()).chain(classes).collect())
    };
    let rate = |mbit| Value::Rate(Rate::mbit_s(mbit));
    let bucket = Settings::new()
        .with("meter", Value::Choice("bucket"))
        .with("meter cir", rate(100))
        .with("meter cbs", Value::Bytes(15_000))
        .with("meter red", Value::Int(10));
    let trtcm = Settings::new()
        .with("meter", Value::Choice("trtcm"))
        .with("meter cir", rate(100))
        .with("meter cbs", Value::Bytes(15_000))
        .with("meter pir", rate(300))
        .with("meter pbs", Value::Bytes(30_000))
        .with("meter yellow", Value::Int(12))
        .with("meter red", Value::Int(14));
    let tswtcm = Settings::new()
        .with("meter", Value::Choice("tswtcm"))
        .with("meter cir", rate(100))
        .with("meter pir", rate(300))
        .with("meter yellow", Value::Int(12))
        .with("meter red", Value::Int(14));
    let settings = Settings::new().with("hash", Value::Choice("flow"));
    let hashed = QueueSpec { name: "hashed_wfq", limit: Limit::Bytes(1 << 20), settings };
    let plain = || (0..10).map(|_| class(Settings::new(), None));
    let engines = [
        ("drr", link("drr", std::iter::once(root()).chain(plain()).collect())),
        ("fifo", all(&Settings::new())),
        ("hashed", link("fifo", vec![root(), class(Settings::new(), Some(hashed))])),
        ("bucket", all(&bucket)),
        ("trtcm", all(&trtcm)),
        ("tswtcm", all(&tswtcm)),
    ];
    let mut group = c.benchmark_group("beside-drr");
    group.throughput(Throughput::Elements(1));
    for (name, mut engine) in engines {
        let (classes, mut now) = (engine.numbers() as u32 - 1, 0);
        // Ten packets wait, of ten classes or of ten flows.
        for at in 0..10 {
            engine.enqueue(now, 1 + at % classes, Packet { flow: at, ..Packet::new(at, 512) });
        }
        group.bench_function(name, |b| {
            b.iter(|| {
                now += 410;
                if let Some(departure) = engine.dequeue(now) {
                    engine.enqueue(now, departure.class, departure.packet);
                }
            })
        });
    }
}

criterion_group!(benches, parse, classify, enqueue_dequeue, beside_drr);
criterion_main!(benches);
