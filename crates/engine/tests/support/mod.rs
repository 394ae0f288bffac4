//! A wire in virtual time for tests of the engine. It sends one packet at a time, without a
//! rounding error that adds up. The engine is asked at every arrival, when the wire is free, and at
//! the times of `next_wakeup`.

pub mod adversary;
pub mod altq_cbq;
pub mod hfsc;
pub mod nest;
pub mod queue;
pub mod tree;
pub mod wire;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use altq_engine::random::SplitMix64;
use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::spec::{ClassSpec, LinkSpec, QueueSpec, SchedulerSpec};
use altq_engine::units::{Nanos, Rate};
use altq_engine::{Departure, Engine, Packet};

pub const MS: Nanos = 1_000_000;
pub const S: Nanos = 1_000_000_000;

/// The words of a class of cbq.
#[derive(Clone, Debug)]
pub struct Class {
    pub parent: u32,
    pub rate: u64,
    pub borrow: bool,
    pub ceiling: Option<u64>,
    pub priority: u8,
    pub packetsize: Option<u32>,
    pub maxburst: Option<u32>,
    pub queue: Option<Limit>,
}

impl Class {
    pub fn new(parent: u32, rate: u64) -> Class {
        Class { parent, rate, borrow: false, ceiling: None, priority: 1, packetsize: None, maxburst: None, queue: None }
    }

    pub fn borrow(mut self) -> Class {
        self.borrow = true;
        self
    }

    pub fn borrows(mut self, borrow: bool) -> Class {
        self.borrow = borrow;
        self
    }

    pub fn ceiling(mut self, rate: u64) -> Class {
        self.ceiling = Some(rate);
        self
    }

    pub fn priority(mut self, priority: u8) -> Class {
        self.priority = priority;
        self
    }

    pub fn packetsize(mut self, bytes: u32) -> Class {
        self.packetsize = Some(bytes);
        self
    }

    pub fn settings(&self) -> Settings {
        let mut settings = Settings::new();
        settings.set("rate", Value::Rate(Rate::bit_s(self.rate)));
        if self.borrow {
            settings.set("borrow", Value::Flag);
        }
        if let Some(ceiling) = self.ceiling {
            settings.set("ceiling", Value::Rate(Rate::bit_s(ceiling)));
        }
        settings.set("priority", Value::Int(u64::from(self.priority)));
        if let Some(bytes) = self.packetsize {
            settings.set("packetsize", Value::Bytes(u64::from(bytes)));
        }
        if let Some(packets) = self.maxburst {
            settings.set("maxburst", Value::Int(u64::from(packets)));
        }
        settings
    }

    pub fn spec(&self) -> ClassSpec {
        ClassSpec {
            parent: self.parent,
            settings: self.settings(),
            queue: self.queue.map(|limit| QueueSpec::new("drop_tail", limit)),
            scheduler: None,
        }
    }
}

/// A link of cbq classes. Class 0 is the root, and the first of `classes` is class 1.
pub fn link(rate: u64, classes: &[Class], excess: &'static str) -> LinkSpec {
    let mut all = vec![ClassSpec::root()];
    all.extend(classes.iter().map(Class::spec));
    LinkSpec::new(
        Rate::bit_s(rate),
        SchedulerSpec { name: "cbq", settings: Settings::new().with("excess", Value::Choice(excess)) },
        all,
    )
}

/// Packets of one class that arrive at a constant rate: every `interval`, from `start` until `end`.
#[derive(Clone, Copy, Debug)]
pub struct Cbr {
    pub class: u32,
    pub size: u32,
    pub interval: Nanos,
    pub start: Nanos,
    pub end: Nanos,
}

/// A packet that was handed to the wire.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub at: Nanos,
    pub departure: Departure,
}

pub struct Wire {
    pub engine: Engine,
    pub rate: u64,
    pub tick: Option<Nanos>,
    pub now: Nanos,
    /// For each class that always has packets: their sizes, which repeat, and how many there were.
    greedy: Vec<Option<(Vec<u32>, usize)>>,
    /// How many packets of such a class are kept in its queue.
    pub depth: u32,
    queued: Vec<u32>,
    sources: Vec<Cbr>,
    arrivals: BinaryHeap<Reverse<(Nanos, usize)>>,
    busy_from: Nanos,
    bits: u128,
    busy_until: Option<Nanos>,
    /// Bytes handed to the wire, by class.
    pub bytes: Vec<u64>,
    /// The packets handed to the wire, if they are to be recorded.
    pub log: Option<Vec<Sent>>,
    /// Extra calls of `dequeue` while the wire is idle, per event.
    pub extra: u32,
    pub next_handle: u32,
    pub drops: u64,
    /// Calls of `dequeue`, without the extra ones.
    pub polls: u64,
}

impl Wire {
    pub fn new(spec: &LinkSpec) -> Wire {
        let n = spec.classes.len();
        Wire {
            engine: Engine::new(spec).expect("a valid link"),
            rate: spec.rate.as_bit_s(),
            tick: None,
            now: 0,
            greedy: vec![None; n],
            depth: 3,
            queued: vec![0; n],
            sources: Vec::new(),
            arrivals: BinaryHeap::new(),
            busy_from: 0,
            bits: 0,
            busy_until: None,
            bytes: vec![0; n],
            log: None,
            extra: 0,
            next_handle: 0,
            drops: 0,
            polls: 0,
        }
    }

    /// Makes room for a class of this number.
    pub fn room(&mut self, class: u32) {
        let n = (class as usize + 1).max(self.bytes.len());
        self.greedy.resize(n, None);
        self.queued.resize(n, 0);
        self.bytes.resize(n, 0);
    }

    /// Keeps the class's queue filled from now on, with packets of these sizes, which repeat.
    /// Without sizes, stops that.
    pub fn greedy(&mut self, class: u32, sizes: &[u32]) {
        self.room(class);
        self.greedy[class as usize] = (!sizes.is_empty()).then(|| (sizes.to_vec(), 0));
        self.fill(class);
    }

    /// Stops filling the queue of a class, which has been removed.
    pub fn forget(&mut self, class: u32) {
        self.greedy[class as usize] = None;
        self.queued[class as usize] = 0;
    }

    pub fn cbr(&mut self, source: Cbr) {
        self.arrivals.push(Reverse((source.start, self.sources.len())));
        self.sources.push(source);
    }

    pub fn enqueue(&mut self, class: u32, size: u32) {
        self.next_handle = self.next_handle.wrapping_add(1);
        self.engine.enqueue(self.now, class, Packet::new(self.next_handle, size));
        self.queued[class as usize] += 1;
        for drop in self.engine.drops().collect::<Vec<_>>() {
            self.drops += 1;
            if let Some(class) = drop.class {
                self.queued[class as usize] -= 1;
            }
        }
    }

    fn fill(&mut self, class: u32) {
        while self.queued[class as usize] < self.depth {
            let Some((sizes, at)) = &mut self.greedy[class as usize] else { return };
            let size = sizes[*at % sizes.len()];
            *at += 1;
            let drops = self.drops;
            self.enqueue(class, size);
            assert_eq!(self.drops, drops, "the queue holds fewer packets than are to be kept in it");
        }
    }

    fn ask(&mut self) {
        while self.busy_until.is_none() {
            self.polls += 1;
            let Some(departure) = self.engine.dequeue(self.now) else {
                for _ in 0..self.extra {
                    assert!(self.engine.dequeue(self.now).is_none());
                }
                return;
            };
            if self.bits == 0 {
                self.busy_from = self.now;
            }
            self.bits += u128::from(departure.packet.wire) * 8;
            let time = (self.bits * u128::from(S)).div_ceil(u128::from(self.rate));
            self.busy_until = Some(self.busy_from + time as u64);
            self.bytes[departure.class as usize] += u64::from(departure.packet.len);
            self.queued[departure.class as usize] -= 1;
            if let Some(log) = &mut self.log {
                log.push(Sent { at: self.now, departure });
            }
            self.fill(departure.class);
        }
    }

    /// Runs to `end`.
    pub fn run(&mut self, end: Nanos) {
        self.ask();
        loop {
            let wake = match self.busy_until {
                Some(_) => None,
                None => self.engine.next_wakeup().map(|at| {
                    let at = at.max(self.now);
                    self.tick.map_or(at, |tick| at.div_ceil(tick) * tick)
                }),
            };
            let arrival = self.arrivals.peek().map(|Reverse((at, _))| *at);
            let Some(next) = [self.busy_until, wake, arrival].into_iter().flatten().min() else { break };
            if next > end {
                break;
            }
            let before = self.now;
            self.now = next;
            if self.busy_until == Some(next) {
                self.busy_until = None;
                self.ask();
                if self.busy_until.is_none() {
                    // The busy period is over.
                    self.bits = 0;
                }
            } else if wake == Some(next) {
                self.ask();
                assert!(next > before || self.busy_until.is_some(), "next_wakeup was {next}, but no packet left then");
            } else if let Some(Reverse((at, n))) = self.arrivals.pop() {
                let source = self.sources[n];
                self.enqueue(source.class, source.size);
                if at + source.interval < source.end {
                    self.arrivals.push(Reverse((at + source.interval, n)));
                }
                self.ask();
            }
        }
        self.now = self.now.max(end);
    }

    /// Runs to `end`. The rate of each class from now to then in bit/s, counting packets handed to
    /// the wire.
    pub fn rates(&mut self, end: Nanos) -> Vec<f64> {
        let (from, before) = (self.now, self.bytes.clone());
        self.run(end);
        self.bytes.iter().zip(before).map(|(b, a)| (b - a) as f64 * 8e9 / (end - from) as f64).collect()
    }
}

/// Random numbers of a test, the same on every machine.
pub struct Random(SplitMix64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(SplitMix64::new(seed))
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.0.bits() % n
    }

    /// True in `percent` of 100.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// A random tree of classes, with leaves at several depths, with and without `borrow`, with
/// ceilings and rates of 0. The rates of siblings add up to at most their parent's.
pub fn tree(random: &mut Random, rate: u64) -> Vec<Class> {
    let mut classes = Vec::new();
    grow(random, &mut classes, 0, rate, 0);
    classes
}

fn grow(random: &mut Random, classes: &mut Vec<Class>, parent: u32, rate: u64, depth: u32) {
    let children = 2 + random.below(3);
    let mut left = if random.chance(50) { rate } else { rate * (60 + random.below(40)) / 100 };
    for child in 0..children {
        let part = if child + 1 == children { left } else { left * (10 + random.below(60)) / 100 };
        let zero = random.chance(8);
        let part = if zero { 0 } else { part };
        left -= part;
        let mut class = Class::new(parent, part).borrows(random.chance(75) || zero).priority(random.below(8) as u8);
        if class.borrow && !zero && random.chance(20) {
            class.ceiling = Some(part + part * random.below(150) / 100);
        }
        classes.push(class);
        let id = classes.len() as u32;
        if depth < 3 && !zero && part > rate / 20 && random.chance(40) {
            grow(random, classes, id, part, depth + 1);
        }
    }
}

/// The numbers of classes without children.
pub fn leaves(classes: &[Class]) -> Vec<u32> {
    (1..=classes.len() as u32).filter(|id| !classes.iter().any(|class| class.parent == *id)).collect()
}

/// The rates that the ideal allocation (`schedule/cbq/ideal.rs`) gives to each class, by number,
/// for these demands in bit/s.
pub fn ideal_of(rate: u64, classes: &[Class], excess: &str, demand: &[f64]) -> Vec<f64> {
    use altq_engine::schedule::cbq::ideal::{Offer, Sharing, ideal};
    let root =
        Offer { parent: 0, rate: Rate::bit_s(rate), borrow: true, ceiling: None, priority: 1, demand: demand[0] };
    let offers: Vec<Offer> = std::iter::once(root)
        .chain(classes.iter().zip(&demand[1..]).map(|(class, demand)| Offer {
            parent: class.parent as usize,
            rate: Rate::bit_s(class.rate),
            borrow: class.borrow,
            ceiling: class.ceiling.map(Rate::bit_s),
            priority: class.priority,
            demand: *demand,
        }))
        .collect();
    ideal(&offers, if excess == "share" { Sharing::Share } else { Sharing::Priority })
}
