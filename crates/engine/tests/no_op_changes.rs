//! A change that changes nothing changes no departure. Schedulers with random values for all the
//! words of their classes, alone at the link and in a class of another; at random times every
//! class, scheduler, rate and regulator is set to what it is.

use crate::support;
use crate::support::nest;
use crate::support::tree;

use altq_engine::schedule::{self, Entry};
use altq_engine::settings::{Kind, Limit, ONE, Settings, Value, Word};
use altq_engine::shape::service_curve::ServiceCurve;
use altq_engine::spec::{LinkSpec, Regulator, SchedulerSpec};
use altq_engine::units::{Nanos, Rate};
use altq_engine::{Change, Engine};
use nest::{Left, Rules, What, run, traffic};
use support::{MS, Random, S};

const RATE: u64 = 10_000_000;

/// The schedulers that are tried, in one another too.
const SCHEDULERS: [&str; 8] = ["cbq", "wfq", "drr", "priq", "fifo", "hfsc", "htb", "fairq"];

/// A value of a word's kind; rates up to `rate`.
fn value(random: &mut Random, word: &Word, rate: u64) -> Value {
    let some = |random: &mut Random| Rate::bit_s(1 + random.below(rate));
    match word.kind {
        Kind::Flag => Value::Flag,
        Kind::Rate => Value::Rate(some(random)),
        Kind::Curve => {
            let (first, then) = (some(random), some(random));
            let until = random.pick(&[0, 5 * MS, 40 * MS]);
            Value::Curve(ServiceCurve { first, until, then })
        }
        Kind::Int { min, max } => Value::Int(min + random.below((max - min).min(20) + 1)),
        Kind::Bytes { min, max } => Value::Bytes((min + random.below(6000)).min(max)),
        Kind::Time => Value::Time(random.below(50 * MS)),
        Kind::Limit => Value::Limit(Limit::Packets(1 + random.below(60) as u32)),
        Kind::Fraction => Value::Fraction(random.below(u64::from(ONE)) as u32),
        Kind::Percent => Value::Percent(random.below(u64::from(ONE / 3)) as u32),
        Kind::Choice(all) => Value::Choice(random.pick(all)),
    }
}

/// Words for a class of a place of `rate`, each there or not: what the scheduler refuses is tried
/// again with fewer.
fn words(random: &mut Random, entry: &Entry, scheduler: &Settings, rate: u64) -> Settings {
    for tries in 0..300 {
        let mut settings = Settings::new();
        for word in entry.class_words {
            if random.chance(60 - tries / 5) {
                settings.set(word.name, value(random, word, rate / 3));
            }
        }
        // hfsc's classes are nothing without a curve; others take what is there.
        let mut spec = tree::link(Rate::bit_s(RATE), entry.name);
        spec.scheduler.settings = scheduler.clone();
        spec.classes.push(tree::class(0, settings.clone(), 40));
        if Engine::new(&spec).is_ok() {
            return settings;
        }
    }
    panic!("no words for a class of {}", entry.name)
}

/// A link of `entry`, with words of its own, classes one below the other where it takes that; in
/// the class `nested` of another scheduler if one is named.
fn random_link(random: &mut Random, entry: &'static Entry, outer: Option<&str>) -> LinkSpec {
    let mut own = Settings::new();
    for word in entry.words.iter().filter(|word| word.name != "estimator") {
        let mut with = own.clone();
        with.set(word.name, value(random, word, RATE));
        let mut spec = tree::link(Rate::bit_s(RATE), entry.name);
        spec.scheduler.settings = with.clone();
        if random.chance(50) && Engine::new(&spec).is_ok() {
            own = with;
        }
    }
    let mut spec = tree::link(Rate::bit_s(RATE), outer.unwrap_or(entry.name));
    let mut top = 0;
    match outer {
        None => spec.scheduler.settings = own.clone(),
        Some(outer) => {
            let mut holder = tree::class(0, nest::words(outer, 0, RATE, 60, random.chance(50)), 40);
            holder.scheduler = Some(SchedulerSpec { name: entry.name, settings: own.clone() });
            spec.classes.push(holder);
            spec.classes.push(tree::class(0, nest::words(outer, 1, RATE, 40, false), 40));
            top = 1;
        }
    }
    let first = spec.classes.len() as u32;
    for n in 0..3 + random.below(4) {
        let parent = if n == 0 || random.chance(50) { top } else { first + random.below(n) as u32 };
        for parent in [parent, top] {
            let mut with = spec.clone();
            with.classes.push(tree::class(parent, words(random, entry, &own, RATE), 40));
            if Engine::new(&with).is_ok() {
                spec = with;
                break;
            }
        }
    }
    spec
}

/// A change of something to what it is.
fn no_change(random: &mut Random, spec: &LinkSpec) -> Change {
    let class = random.below(spec.classes.len() as u64) as u32;
    let of = &spec.classes[class as usize];
    match &of.scheduler {
        _ if class == 0 && random.chance(30) => Change::SetRate(spec.rate),
        _ if class == 0 && random.chance(30) => Change::SetRegulator(spec.regulator),
        _ if class == 0 => Change::SetScheduler { class, settings: spec.scheduler.settings.clone() },
        Some(held) if random.chance(40) => Change::SetScheduler { class, settings: held.settings.clone() },
        _ => Change::SetClass { class, parent: of.parent, settings: of.settings.clone() },
    }
}

/// The first departure that differs between two runs over the same packets, the second with
/// changes that change nothing.
fn differs(random: &mut Random, spec: &LinkSpec, often: u64) -> Option<(Option<Left>, Option<Left>)> {
    let classes: Vec<u32> = (1..spec.classes.len() as u32).collect();
    let load = random.pick(&[60, 120, 300]);
    let packets = traffic(random, &classes, RATE, load, 600);
    let last = packets.last().map_or(0, |(at, _)| *at);
    let mut changes: Vec<(Nanos, What)> =
        (0..last / often).map(|_| (random.below(last), What::Change(no_change(random, spec)))).collect();
    changes.extend(packets.iter().cloned());
    changes.sort_by_key(|(at, what)| (*at, matches!(what, What::Change(_))));
    let go = |events: &[(Nanos, What)]| {
        let mut engine = Engine::new(spec).expect("a valid link");
        run(&mut engine, Rate::bit_s(RATE), events, Rules::default(), last + 20 * S)
    };
    // The wire asks after every event, and classic CBQ minds how often it is asked: the plain run
    // has changes of a class that is not there, which are refused.
    let nobody = Change::RemoveClass { class: u32::MAX, heir: None };
    let refused: Vec<(Nanos, What)> = changes
        .iter()
        .map(|(at, what)| match what {
            What::Change(_) => (*at, What::Change(nobody.clone())),
            packet => (*at, packet.clone()),
        })
        .collect();
    let (plain, changed) = (go(&refused), go(&changes));
    let at = (0..plain.len().max(changed.len())).find(|at| plain.get(*at) != changed.get(*at))?;
    Some((plain.get(at).copied(), changed.get(at).copied()))
}

/// The first trial of a link of this scheduler in which a change that changes nothing shows.
fn broken(entry: &'static Entry, seeds: std::ops::Range<u64>) -> Option<String> {
    for seed in seeds {
        let mut random = Random::new(seed * 31 + 7);
        let outer = if seed % 3 == 2 { Some(random.pick(&SCHEDULERS)) } else { None };
        let mut spec = random_link(&mut random, entry, outer);
        spec.regulator = random.pick(&[Regulator::None, Regulator::Auto, Regulator::Depth(20_000)]);
        if entry.name == "cbq" && seed % 4 == 1 && outer.is_none() {
            // Classic has words of its own; a link that has words of exact stays as it is.
            let mut classic = spec.clone();
            classic.scheduler.settings = Settings::new().with("estimator", Value::Choice("classic"));
            for class in &mut classic.classes {
                class.settings.unset("ceiling");
            }
            if Engine::new(&classic).is_ok() {
                spec = classic;
            }
        }
        let often = random.pick(&[MS, 20 * MS]);
        if let Some((plain, changed)) = differs(&mut random, &spec, often) {
            return Some(format!("seed {seed}: {plain:?} became {changed:?}\n{spec:#?}"));
        }
    }
    None
}

#[test]
fn a_change_that_changes_nothing_changes_no_departure() {
    let mut wrong = Vec::new();
    for name in SCHEDULERS {
        let Some(entry) = schedule::find(name) else { continue };
        if let Some(what) = broken(entry, 0..600) {
            wrong.push(format!("{name}: {what}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
