//! Any sequence of calls on any tree of schedulers: every packet that goes in comes out once, as a
//! departure or as a drop with a reason; counters add up at every step; an idle link stays idle
//! until the time that it names.

#![no_main]

use std::collections::HashMap;

use altq_engine::classify::{Field, Rule, RuleSet, Term, Values};
use altq_engine::headers::Key;
use altq_engine::link::{Framing, Overhead};
use altq_engine::queue::QUEUES;
use altq_engine::schedule::{self, SCHEDULERS};
use altq_engine::settings::{Kind, Limit, ONE, Settings, Value, Word};
use altq_engine::shape::service_curve::ServiceCurve;
use altq_engine::spec::{ClassId, ClassSpec, LinkSpec, QueueSpec, ROOT, Regulator, SchedulerSpec, Timer};
use altq_engine::units::{Nanos, Rate};
use altq_engine::{Change, Engine, Packet};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

fn rate(u: &mut Unstructured) -> Result<Rate> {
    Ok(match u.int_in_range(0..=9)? {
        0 => Rate::ZERO,
        1 => Rate::bit_s(u.arbitrary::<u64>()?),
        2 => Rate::bit_s(u.int_in_range(1..=100)?),
        _ => Rate::kbit_s(u.int_in_range(1..=20_000)?),
    })
}

/// Any of a table's words, each with a value that its kind allows.
fn settings(u: &mut Unstructured, words: &[Word], often: bool) -> Result<Settings> {
    let mut settings = Settings::new();
    for word in words {
        if !u.ratio(if often { 2 } else { 1 }, 4)? {
            continue;
        }
        let within = |u: &mut Unstructured, min: u64, max: u64| {
            Ok(if u.ratio(1, 4)? {
                u.int_in_range(min..=max)?
            } else {
                u.int_in_range(min..=max.min(min.saturating_add(3000)))?
            })
        };
        let value = match word.kind {
            Kind::Flag => Value::Flag,
            Kind::Rate => Value::Rate(rate(u)?),
            Kind::Curve => {
                let until = if u.arbitrary()? { 0 } else { u.int_in_range(0..=100_000_000)? };
                let then = rate(u)?;
                Value::Curve(ServiceCurve { first: if until == 0 { then } else { rate(u)? }, until, then })
            }
            Kind::Int { min, max } => Value::Int(within(u, min, max)?),
            Kind::Bytes { min, max } => Value::Bytes(within(u, min, max)?),
            Kind::Time => Value::Time(if u.ratio(1, 8)? { u.arbitrary()? } else { u.int_in_range(0..=200_000_000)? }),
            Kind::Limit => Value::Limit(limit(u)?),
            Kind::Fraction => Value::Fraction(u.int_in_range(0..=ONE)?),
            Kind::Percent => Value::Percent(u.int_in_range(0..=ONE)?),
            Kind::Choice(choices) => Value::Choice(u.choose(choices)?),
        };
        settings.set(word.name, value);
    }
    Ok(settings)
}

fn scheduler(u: &mut Unstructured) -> Result<SchedulerSpec> {
    // CBQ is chosen more often than others, because it has the most rules.
    let entry = if u.ratio(1, 3)? { &altq_engine::schedule::cbq::ENTRY } else { *u.choose(SCHEDULERS)? };
    Ok(SchedulerSpec { name: entry.name, settings: settings(u, entry.words, true)? })
}

fn words(u: &mut Unstructured, scheduler: &str) -> Result<Settings> {
    let often = u.arbitrary()?;
    settings(u, schedule::find(scheduler).map_or(&[], |entry| entry.class_words), often)
}

fn limit(u: &mut Unstructured) -> Result<Limit> {
    Ok(if u.arbitrary()? { Limit::Packets(u.int_in_range(0..=20)?) } else { Limit::Bytes(u.int_in_range(0..=9000)?) })
}

fn queue(u: &mut Unstructured) -> Result<QueueSpec> {
    let entry = *u.choose(QUEUES)?;
    let words = if u.ratio(1, 4)? { &[] } else { entry.words };
    let limit = if u.ratio(1, 4)? { entry.limit } else { limit(u)? };
    Ok(QueueSpec { name: entry.name, limit, settings: settings(u, words, false)? })
}

/// A class below another one, which holds or is served by `scheduler`.
fn class(u: &mut Unstructured, parent: ClassId, scheduler: &str) -> Result<ClassSpec> {
    Ok(ClassSpec {
        parent,
        settings: words(u, scheduler)?,
        queue: if u.arbitrary()? { Some(queue(u)?) } else { None },
        scheduler: if u.ratio(1, 5)? { Some(self::scheduler(u)?) } else { None },
    })
}

fn rules(u: &mut Unstructured, classes: u32) -> Result<RuleSet> {
    let mut rules = Vec::new();
    for _ in 0..u.int_in_range(0..=3)? {
        let port = u.int_in_range(0..=3)?;
        let terms =
            vec![Term { field: Field::DstPort, negated: u.arbitrary()?, values: Values::Ranges(vec![(port, port)]) }];
        rules.push(Rule { terms, class: u.int_in_range(0..=classes)?, number: 0 });
    }
    Ok(RuleSet { rules, ..RuleSet::default() })
}

fn overhead(u: &mut Unstructured) -> Result<Overhead> {
    Ok(match u.int_in_range(0..=3)? {
        0 => Overhead { bytes: u.int_in_range(-64..=256)?, mpu: u.int_in_range(0..=256)?, framing: Framing::Atm },
        1 => Overhead { bytes: 38, mpu: 84, framing: Framing::Plain },
        _ => Overhead::NONE,
    })
}

fn at(below: &[&'static str], class: ClassId) -> &'static str {
    below.get(class as usize).copied().unwrap_or(schedule::PLAIN.name)
}

fn classic(scheduler: &SchedulerSpec) -> bool {
    scheduler.settings.choice("estimator") == Some("classic")
}

fn holds_classic(class: &ClassSpec) -> bool {
    class.scheduler.as_ref().is_some_and(classic)
}

/// Prints each call, if ALTQ_FUZZ_TRACE is set.
macro_rules! tell {
    ($($what:tt)*) => {
        if std::env::var_os("ALTQ_FUZZ_TRACE").is_some() {
            eprintln!($($what)*);
        }
    };
}

/// An engine, with the test's own account of the packets.
struct Watch {
    engine: Engine,
    now: Nanos,
    /// The bytes of each packet in the engine, by handle.
    inside: HashMap<u32, u32>,
    next: u32,
    /// Packets and bytes that went in, came out, and were dropped.
    taken: [(u64, u64); 3],
    /// Set when a dequeue gave nothing: before this time no packet may come out.
    idle_until: Option<Nanos>,
    /// True if that can be checked: timers fire at any nanosecond, and no scheduler is ALTQ's. With
    /// tick timers the engine names the next tick, but may send before it when it is asked; and
    /// ALTQ's scheduler, when it is polled, sends packets of classes that are still asleep
    /// (docs/reference/altq.md 2.8).
    idles: bool,
}

impl Watch {
    fn packet(&mut self, len: u32, segments: u16, kind: u32) -> Packet {
        let handle = self.next;
        self.next += 1;
        self.inside.insert(handle, len);
        self.taken[0].0 += 1;
        self.taken[0].1 += u64::from(len);
        self.idle_until = None;
        let [flow, fields, src, dst] = kind.to_le_bytes();
        let (ecn, dscp, high) = (fields & 3, fields >> 2 & 31, fields & 1 << 7 != 0);
        Packet {
            segments,
            flow: flow.into(),
            ecn,
            dscp,
            high,
            hosts: [src.into(), dst.into()],
            ..Packet::new(handle, len)
        }
    }

    fn out(&mut self, which: usize, packet: &Packet) {
        let len = self.inside.remove(&packet.handle).expect("a packet came out that is not inside");
        assert_eq!(len, packet.len);
        self.taken[which].0 += 1;
        self.taken[which].1 += u64::from(len);
    }

    fn dequeue(&mut self) {
        let departure = self.engine.dequeue(self.now);
        tell!(
            "{}: dequeue: {:?}, then at {:?}",
            self.now,
            departure.map(|d| (d.class, d.packet.handle)),
            self.engine.next_wakeup()
        );
        match departure {
            Some(departure) => {
                assert!(self.idle_until.is_none_or(|until| until <= self.now), "it sent before the time that it named");
                assert!(departure.packet.arrived <= self.now);
                self.out(1, &departure.packet);
                self.idle_until = None;
            }
            None if !self.idles => self.idle_until = None,
            None => self.idle_until = Some(self.engine.next_wakeup().unwrap_or(Nanos::MAX)),
        }
    }

    fn check(&mut self) {
        let drops: Vec<_> = self.engine.drops().collect();
        for drop in drops {
            self.out(2, &drop.packet);
        }
        let all = self.engine.all_counters();
        let total = &all[ROOT as usize];
        let lost = self.engine.unclassified();
        let [taken, out, dropped] = self.taken;
        assert_eq!((total.received_packets() + lost.0, total.received_bytes() + lost.1), taken);
        assert_eq!((total.sent_packets, total.sent_bytes), out);
        assert_eq!((total.dropped_packets + lost.0, total.dropped_bytes + lost.1), dropped);
        assert_eq!(total.queued_packets, self.inside.len() as u64);
        assert_eq!(u64::from(self.engine.backlog()), total.queued_packets);
        let wakeup = self.engine.next_wakeup();
        assert!(total.queued_packets > 0 || wakeup.is_none(), "an empty link wants to be woken");
    }
}

fn go(u: &mut Unstructured) -> Result<()> {
    let scheduler = scheduler(u)?;
    // The scheduler of what is below each class.
    let mut below = vec![scheduler.name];
    let mut classes = vec![ClassSpec { parent: ROOT, settings: Settings::new(), queue: None, scheduler: None }];
    for at in 1..=u.int_in_range(0..=8)? {
        let parent: ClassId = u.int_in_range(0..=at - 1)?;
        let made = class(u, parent, below[parent as usize])?;
        below.push(made.scheduler.as_ref().map_or(below[parent as usize], |scheduler| scheduler.name));
        classes.push(made);
    }
    let mut count = classes.len() as ClassId;
    let spec = LinkSpec {
        rate: rate(u)?,
        mtu: 1500,
        overhead: overhead(u)?,
        regulator: *u.choose(&[
            Regulator::None,
            Regulator::None,
            Regulator::Auto,
            Regulator::Altq,
            Regulator::Depth(3000),
        ])?,
        timer: *u.choose(&[Timer::Exact, Timer::Tick(1_000_000), Timer::Tick(10_000_000)])?,
        scheduler,
        classes,
        rules: rules(u, count - 1)?,
        default: if u.arbitrary()? { Some(u.int_in_range(0..=count - 1)?) } else { None },
    };
    tell!("{spec:#?}");
    let Ok(engine) = Engine::new(&spec) else { return Ok(()) };
    let mut w = Watch {
        engine,
        now: 0,
        inside: HashMap::new(),
        next: 0,
        taken: [(0, 0); 3],
        idle_until: None,
        idles: spec.timer == Timer::Exact && !classic(&spec.scheduler) && !spec.classes.iter().any(holds_classic),
    };
    let mut calls = 0;
    while !u.is_empty() && calls < 400 {
        calls += 1;
        match u.int_in_range(0..=15)? {
            0..=4 => {
                let len = if u.ratio(1, 10)? { u.int_in_range(0..=65_535)? } else { u.int_in_range(1..=1500)? };
                let segments = if u.ratio(1, 10)? { u.arbitrary()? } else { 1 };
                let class = u.int_in_range(0..=count)?;
                let packet = w.packet(len, segments, u.arbitrary()?);
                tell!("{}: {} of {len} x {segments} for {class}", w.now, packet.handle);
                w.engine.enqueue(w.now, class, packet);
            }
            5 => {
                let key = Key { proto: 17, family: 4, ..Key::default() }.with_dport(Some(u.int_in_range(0..=3)?));
                let packet = w.packet(100, 1, 0);
                w.engine.receive(w.now, &key, packet);
            }
            6..=9 => w.dequeue(),
            10 => w.now += u.int_in_range(0..=10_000_000)?,
            11 => w.now = w.now.saturating_add(u.int_in_range(0..=1_u64 << 42)?),
            // Goes to the time that the engine named, as its callers do.
            12 | 13 => {
                if let Some(at) = w.engine.next_wakeup() {
                    // Only if that is within about 70 years.
                    if at > w.now && at < 1 << 61 {
                        w.now = at;
                    }
                }
                w.dequeue();
            }
            _ => {
                let of = u.int_in_range(0..=count)?;
                let change = match u.int_in_range(0..=8)? {
                    0 => Change::AddClass(class(u, of, at(&below, of))?),
                    1 | 2 => Change::SetClass {
                        class: of,
                        parent: u.int_in_range(0..=count)?,
                        settings: words(u, at(&below, of))?,
                    },
                    3 => Change::RemoveClass {
                        class: of,
                        heir: if u.arbitrary()? { Some(u.int_in_range(0..=count)?) } else { None },
                    },
                    4 => Change::SetQueue { class: of, queue: queue(u)? },
                    5 => {
                        let entry = schedule::find(at(&below, of)).map_or(&[][..], |entry| entry.words);
                        Change::SetScheduler { class: of, settings: settings(u, entry, true)? }
                    }
                    6 => Change::SetRate(rate(u)?),
                    7 => Change::SetRegulator(*u.choose(&[
                        Regulator::None,
                        Regulator::Auto,
                        Regulator::Altq,
                        Regulator::Depth(100),
                    ])?),
                    _ => Change::SetRules {
                        rules: rules(u, count)?,
                        default: if u.arbitrary()? { Some(of) } else { None },
                    },
                };
                w.idle_until = None;
                w.idles &= !matches!(&change, Change::AddClass(class) if holds_classic(class));
                let done = w.engine.apply(w.now, &change);
                tell!("{}: {change:?}: {done:?}", w.now);
                if let (Ok(Some(new)), Change::AddClass(class)) = (done, &change) {
                    count = count.max(new + 1);
                    below.resize(count as usize, schedule::PLAIN.name);
                    below[new as usize] =
                        class.scheduler.as_ref().map_or(at(&below, class.parent), |scheduler| scheduler.name);
                }
            }
        }
        w.check();
    }
    // The remaining packets come out, or wait in classes that have no rate.
    for turn in 0..2000 {
        w.dequeue();
        if turn % 100 == 0 {
            w.check();
        }
        if w.inside.is_empty() {
            break;
        }
        if let Some(until) = w.engine.next_wakeup() {
            if until >= 1 << 61 {
                break;
            }
            w.now = w.now.max(until);
        }
    }
    w.check();
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    let _ = go(&mut Unstructured::new(bytes));
});
