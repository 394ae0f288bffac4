//! Classic CBQ against a second, simple implementation of docs/reference/altq.md 2. On random trees
//! and traffic, all departures are equal to the nanosecond, and so are ALTQ's statistics.

use crate::support::altq_cbq;
use crate::support::wire;

use altq_cbq::{Altq, Config, Link, Rule};
use altq_engine::Engine;
use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::spec::{ClassSpec, LinkSpec, QueueSpec, SchedulerSpec, Timer};
use altq_engine::units::{Rate, SECOND};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use wire::{Arrival, Caller};

const RUNS: u64 = 400;

struct Dice(Pcg64Mcg);

impl Dice {
    /// Uniform in 0..n.
    fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// A random tree. Each class's rate is at most its parent's, but siblings may have more together.
fn tree(dice: &mut Dice, link: u64) -> Vec<Config> {
    let mut rates = vec![link as f64];
    let mut tree = Vec::new();
    for _ in 0..dice.below(14) + 2 {
        // A class with a low number is more likely to become a parent.
        let parent = (dice.below(rates.len() as u64) * dice.below(3) / 2) as usize % rates.len();
        let rate = (rates[parent] * dice.one_of(&[0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0])).floor();
        // For a slower class ALTQ's numbers overflow, which is an error.
        let rate = if rate > 0.0 { rate.max(40_000.0) } else { rate };
        rates.push(rate);
        let mut maybe = |percent, values: &[u32]| dice.chance(percent).then(|| dice.one_of(values));
        let config = Config {
            parent,
            borrow: false,
            priority: 0,
            rate,
            packetsize: maybe(30, &[64, 200, 576, 1500]),
            maxpacketsize: maybe(20, &[576, 1500]),
            maxburst: maybe(30, &[1, 2, 4, 8, 32]),
            minburst: maybe(30, &[1, 2, 4, 8, 32]),
            limit: 0,
        };
        let same = dice.chance(60);
        tree.push(Config {
            borrow: dice.chance(65),
            priority: if same { 1 } else { dice.below(8) as usize },
            limit: dice.one_of(&[1, 3, 10, 50, 200]),
            ..config
        });
    }
    tree
}

/// Random traffic, also for inner classes and the root: constant rates, bursts and gaps, with many
/// packets at the same times.
fn traffic(dice: &mut Dice, link: u64, classes: usize, until: u64) -> Vec<(u64, usize, u32)> {
    let mut all = Vec::new();
    for class in 0..classes {
        if !dice.chance(if class == 0 { 15 } else { 75 }) {
            continue;
        }
        let size = dice.one_of(&[40, 64, 190, 500, 576, 1000, 1500]);
        let mixed = dice.chance(30);
        let load = dice.one_of(&[0.02, 0.1, 0.3, 0.6, 1.0, 1.5]);
        let gap = f64::from(size) * 8e9 / (link as f64 * load);
        let burst = dice.one_of(&[1u64, 1, 1, 3, 20, 60]);
        // Multiples of a packet's time or of a tick, so that events coincide.
        let grid = dice.one_of(&[1, 1, 1000, 120_000, 1_000_000]);
        let mut at = dice.below(until / 4) as f64;
        while (at as u64) < until {
            let time = at as u64 / grid * grid;
            for _ in 0..burst {
                let bytes = if mixed { dice.below(1460) as u32 + 40 } else { size };
                all.push((time, class, bytes));
            }
            at += gap * burst as f64;
            if dice.chance(1) {
                // A pause, rarely so long that the class counts as new.
                at += dice.one_of(&[0.01, 0.1, 2.5]) * 1e9;
            }
        }
    }
    all.sort_by_key(|a| a.0);
    all
}

fn engine(link: u64, timer: Timer, rule: Rule, wrr: bool, efficient: bool, tree: &[Config]) -> Engine {
    let mut settings = Settings::new().with("estimator", Value::Choice("classic"));
    settings.set("rounds", Value::Choice(if wrr { "wrr" } else { "prr" }));
    let sharing = match rule {
        Rule::TopLevel => "top-level",
        Rule::AncestorOnly => "ancestor-only",
        Rule::Formal => "formal",
    };
    settings.set("link-sharing", Value::Choice(sharing));
    if efficient {
        settings.set("efficient", Value::Flag);
    }
    let mut classes = vec![ClassSpec::root()];
    for c in tree {
        let mut words = Settings::new().with("rate", Value::Rate(Rate::bit_s(c.rate as u64)));
        words.set("priority", Value::Int(c.priority as u64));
        if c.borrow {
            words.set("borrow", Value::Flag);
        }
        for (word, value) in [("packetsize", c.packetsize), ("maxpacketsize", c.maxpacketsize)] {
            if let Some(n) = value {
                words.set(word, Value::Bytes(n.into()));
            }
        }
        for (word, value) in [("maxburst", c.maxburst), ("minburst", c.minburst)] {
            if let Some(n) = value {
                words.set(word, Value::Int(n.into()));
            }
        }
        let queue = QueueSpec::new("drop_head", Limit::Packets(c.limit as u32));
        classes.push(ClassSpec { parent: c.parent as u32, settings: words, queue: Some(queue), scheduler: None });
    }
    Engine::new(&LinkSpec {
        timer,
        ..LinkSpec::new(Rate::bit_s(link), SchedulerSpec { name: "cbq", settings }, classes)
    })
    .unwrap()
}

/// One random run. Returns the number of departures.
fn compare(seed: u64, rule: Rule) -> usize {
    let mut dice = Dice(Pcg64Mcg::seed_from_u64(seed));
    let link = dice.one_of(&[1_500_000, 10_000_000, 25_000_000, 100_000_000, 999_999_937]);
    let tree = tree(&mut dice, link);
    let timer = dice.one_of(&[Timer::Exact, Timer::Tick(SECOND / 100), Timer::Tick(SECOND / 1000)]);
    let (wrr, efficient) = (dice.chance(75), dice.chance(15));
    let ring = dice.one_of(&[1, 1, 1, 2, 8]);
    // About the same number of packets on every link.
    let until = 60_000_000 * SECOND / link.max(5_000_000);
    let arrivals = traffic(&mut dice, link, tree.len() + 1, until);
    let tick = match timer {
        Timer::Exact => 0,
        Timer::Tick(tick) => tick,
    };

    let mut altq = Altq::new(Link { rate: link, mtu: 1500, rule, wrr, efficient, tick, ring }, &tree);
    altq.run(&arrivals, until * 2);

    let mut engine = engine(link, timer, rule, wrr, efficient, &tree);
    let to_come = arrivals.iter().map(|&(at, class, bytes)| Arrival { at, class: class as u32, bytes });
    let caller = Caller { rate: Rate::bit_s(link), timer, ring };
    let departures = wire::run(&mut engine, caller, until * 2, to_come);

    let what = format!(
        "seed {seed}, {rule:?}: {link} bit/s, {timer:?}, ring {ring}, wrr {wrr}, efficient {efficient}, {tree:#?}"
    );
    for (n, d) in departures.iter().enumerate() {
        assert_eq!(altq.left.get(n).copied(), Some((d.at, d.class as usize, d.id)), "packet {n} of {what}");
    }
    assert_eq!(departures.len(), altq.left.len(), "{what}");
    for class in 0..=tree.len() {
        let theirs = altq.counts(class);
        let ours = engine.own_counters(class as u32);
        assert_eq!((ours.dropped_packets, ours.queued_packets), (theirs.drops, altq.queued(class) as u64), "{what}");
        assert_eq!(engine.counters(class as u32).borrowed_bytes, theirs.borrowed_bytes, "{what}");
        let expected = [
            ("over", theirs.over),
            ("overactions", theirs.overactions),
            ("delays", theirs.delays),
            ("borrows", theirs.borrows),
        ];
        assert_eq!(engine.scheduler_counters(class as u32)[..4], expected, "class {class} of {what}");
    }
    departures.len()
}

#[test]
fn departures_are_altqs() {
    let packets: usize = (0..RUNS).map(|seed| compare(seed, Rule::TopLevel)).sum();
    println!("{packets} departures in {RUNS} runs");
    assert!(packets > 1_000_000);
}

#[test]
fn other_rules_are_as_defined() {
    let mut packets = 0;
    for seed in 0..RUNS / 4 {
        packets += compare(seed, Rule::AncestorOnly) + compare(seed, Rule::Formal);
    }
    println!("{packets} departures in {} runs", RUNS / 2);
    assert!(packets > 500_000);
}
