//! The work that is measured: a tree of classes, a flow for each leaf class, and packets that pass
//! through the engine.

use altq_engine::classify::{Address, BATCH, Field, Rule, RuleSet, Term, Values};
use altq_engine::headers::Key;
use altq_engine::queue;
use altq_engine::schedule::{self, Role};
use altq_engine::settings::{Kind, Limit, Settings, Value};
use altq_engine::shape::service_curve::ServiceCurve;
use altq_engine::spec::{ClassId, ClassSpec, LinkSpec, QueueSpec, ROOT, SchedulerSpec};
use altq_engine::units::{Nanos, Rate, SECOND};
use altq_engine::{Engine, Packet};
use anyhow::{Context, bail};

use super::metered::Meter;
use super::watched::{Watch, Watched};

/// Length of every packet, in bytes.
pub const PACKET: u32 = 512;

/// The link's rate in bit/s.
const RATE: u64 = 10_000_000_000;

/// The values of `--queue`.
pub fn queue_names() -> impl Iterator<Item = &'static str> {
    queue::all().map(|entry| entry.name)
}

/// The values of `--scheduler`: the names in the registry, each followed by the scheduler's
/// variants other than the default, such as `cbq-classic`.
pub fn scheduler_names() -> impl Iterator<Item = String> {
    schedulers().map(|(name, _)| name)
}

/// All schedulers and variants, with these names.
fn schedulers() -> impl Iterator<Item = (String, SchedulerSpec)> {
    let plain = schedule::all().map(|entry| (entry.name.to_owned(), SchedulerSpec::new(entry.name)));
    let variants = schedule::all().flat_map(|entry| {
        let word = entry.words.iter().find(|word| Some(word.name) == entry.variant);
        let choices = word.into_iter().flat_map(|word| match word.kind {
            Kind::Choice(choices) => {
                choices.iter().filter(|choice| **choice != word.default).map(|c| (word, *c)).collect()
            }
            _ => Vec::new(),
        });
        choices.map(|(word, choice)| {
            let settings = Settings::new().with(word.name, Value::Choice(choice));
            (format!("{}-{choice}", entry.name), SchedulerSpec { name: entry.name, settings })
        })
    });
    plain.chain(variants)
}

/// The configuration of a benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// The scheduler: one of [`scheduler_names`].
    pub scheduler: &'a str,
    /// The queue of every leaf class; `None` means the scheduler's own.
    pub queue: Option<&'a str>,
    /// True if there is one leaf class with `classes` flows, instead of `classes` leaf classes.
    pub flows: bool,
    /// Leaf classes, or flows.
    pub classes: u32,
    /// Levels of the tree, link and leaves included.
    pub depth: u32,
    /// What is kept of each packet for those who watch.
    pub watch: Watch,
    /// The meter of every leaf class.
    pub meter: Option<Meter>,
}

impl<'a> Load<'a> {
    /// A configuration with this many leaf classes and the scheduler's own queue.
    #[cfg(test)]
    pub fn new(scheduler: &'a str, classes: u32, depth: u32) -> Load<'a> {
        Load { scheduler, queue: None, flows: false, classes, depth, watch: Watch::Nothing, meter: None }
    }
}

/// A link with the leaf classes of `load`. With depth 2 the leaves are below the link; every
/// further level puts inner classes between. With n leaves, level k has n to the power of k /
/// (depth - 1) classes, so about the square root of n at depth 3. Half of the link's rate is
/// guaranteed, in equal parts. All classes borrow. Leaf i has priority i mod 8. Words that the
/// scheduler does not have are left out. If the scheduler takes no class below another, every inner
/// class holds a scheduler of the same kind.
pub fn link(load: &Load<'_>) -> anyhow::Result<LinkSpec> {
    let Load { scheduler, depth, .. } = *load;
    let classes = if load.flows { 1 } else { load.classes };
    let queue = load.queue.map(|name| {
        let entry = queue::find(name).with_context(|| format!("no queue is called {name}"))?;
        // The limit is so high that nothing is dropped: forwarding is measured, not dropping.
        let limit = Limit::Packets(if load.flows { load.classes.saturating_mul(64) } else { 0 }.max(1000));
        let mut settings = Settings::new();
        if load.flows {
            // Room for all flows, with about two places for each.
            let places = u64::from(load.classes).saturating_mul(2).next_power_of_two().max(1024);
            for word in entry.words.iter().filter(|word| ["flows", "divisor", "queues", "buckets"].contains(&word.name))
            {
                if let Kind::Int { min, max } = word.kind {
                    settings.set(word.name, Value::Int(places.clamp(min, max)));
                }
            }
            // With many flows a packet waits long for its turn. CoDel is to run its checks, but not
            // to drop it.
            let has = |word: &str| entry.words.iter().any(|known| known.name == word);
            if has("interval") {
                settings.set("target", Value::Time(100 * SECOND)).set("interval", Value::Time(3000 * SECOND));
            }
            if has("rtt") {
                settings.set("rtt", Value::Time(3000 * SECOND));
            }
        }
        anyhow::Ok(QueueSpec { name: entry.name, limit, settings })
    });
    let queue = queue.transpose()?;
    let (_, scheduler) = schedulers()
        .find(|(name, _)| name == scheduler)
        .with_context(|| format!("no scheduler is called {scheduler}"))?;
    let entry = schedule::find(scheduler.name).context("every scheduler has an entry")?;

    // The number of classes on each level, from the link down.
    let mut levels = vec![1];
    for level in 1..depth {
        let power = f64::from(level) / f64::from(depth - 1);
        levels.push(if level + 1 == depth { classes } else { f64::from(classes).powf(power).round().max(1.0) as u32 });
    }
    // The number of leaves below each class, computed from the leaves up.
    let parent =
        |level: usize, at: u32| (u64::from(at) * u64::from(levels[level - 1]) / u64::from(levels[level])) as u32;
    let mut below = vec![vec![1_u64; classes as usize]];
    for level in (1..levels.len()).rev() {
        let mut sums = vec![0; levels[level - 1] as usize];
        for (at, leaves) in below[0].iter().enumerate() {
            sums[parent(level, at as u32) as usize] += leaves;
        }
        below.insert(0, sums);
    }

    let rate = RATE / 2 / u64::from(classes);
    let mut specs = vec![ClassSpec { parent: ROOT, settings: Settings::new(), queue: None, scheduler: None }];
    let mut above = 0;
    for level in 1..levels.len() {
        let first = specs.len() as ClassId;
        for at in 0..levels[level] {
            let mut words = Settings::new();
            let (own, leaf) = (Rate::bit_s(rate * below[level][at as usize]), level + 1 == levels.len());
            for (word, role) in entry.roles {
                let value = match role {
                    Role::Guarantee => Value::Rate(own),
                    Role::Share => Value::Curve(ServiceCurve::linear(own)),
                    Role::Deadline if leaf => Value::Curve(ServiceCurve::linear(own)),
                    Role::Borrow => Value::Flag,
                    Role::CeilingOrGuarantee => Value::Rate(Rate::bit_s(RATE)),
                    Role::Priority if leaf => Value::Int(u64::from(at % 8)),
                    _ => continue,
                };
                words.set(word, value);
            }
            if let Some(meter) = load.meter.filter(|_| leaf) {
                meter.give(&mut words, Rate::bit_s(RATE / u64::from(classes)));
            }
            specs.push(ClassSpec {
                parent: above + parent(level, at),
                settings: words,
                queue: queue.clone().filter(|_| leaf),
                scheduler: None,
            });
        }
        above = first;
    }
    let inner = specs.len() - classes as usize;
    let mut spec = LinkSpec::new(Rate::bit_s(RATE), scheduler, specs);
    if inner > 1 && side_by_side(&spec) {
        for class in &mut spec.classes[1..inner] {
            class.scheduler = Some(spec.scheduler.clone());
        }
    }
    Ok(spec)
}

/// True if the scheduler takes no class below another.
pub fn is_flat(scheduler: &str) -> bool {
    let watch = Watch::Nothing;
    let load = Load { scheduler, queue: None, flows: false, classes: 4, depth: 3, watch, meter: None };
    link(&load).is_ok_and(|spec| spec.classes.iter().any(|class| class.scheduler.is_some()))
}

/// True if the link's scheduler takes no class below another. Tried with a tree of two levels: the
/// first class below the root, and the first class below that.
fn side_by_side(link: &LinkSpec) -> bool {
    let Some(below) = link.classes.iter().find(|class| class.parent == 1) else { return false };
    let mut spec = link.clone();
    spec.classes = vec![link.classes[0].clone(), link.classes[1].clone(), below.clone()];
    let alone = LinkSpec { classes: spec.classes[..2].to_vec(), ..spec.clone() };
    Engine::new(&alone).is_ok() && Engine::new(&spec).is_err()
}

/// The key of leaf `at`'s flow.
pub fn key(at: u32) -> Key {
    let (src, dst, sport) = fields(at);
    Key { src, dst, proto: 6, family: 4, tos: 0, tcp_flags: 0x10, length: PACKET, ..Key::default() }
        .with_ports(sport, 443)
}

/// The fields in which leaf `at`'s flow differs from others: addresses and source port.
#[inline]
fn fields(at: u32) -> (u128, u128, u16) {
    (u128::from(0x0a00_0000 | at & 0xff), u128::from(0x2000_0000 + at), 1024 + (at & 0x3fff) as u16)
}

/// A rule for each leaf, or for each of `flows` flows to the first leaf. Each names all five fields
/// of its flow.
pub fn rules(leaves: std::ops::Range<ClassId>, flows: Option<u32>) -> RuleSet {
    let address = |bits| Values::Addresses(vec![Address { v6: false, bits, mask: u128::from(u32::MAX) }]);
    let number = |n: Option<u16>| Values::Ranges(n.map(|n| (n.into(), n.into())).into_iter().collect());
    let rules = (0..flows.unwrap_or(leaves.end - leaves.start)).map(|at| {
        let class = if flows.is_some() { leaves.start } else { leaves.start + at };
        let key = key(at);
        let terms = [
            (Field::Src, address(key.src)),
            (Field::Dst, address(key.dst)),
            (Field::Proto, number(Some(key.proto.into()))),
            (Field::SrcPort, number(key.sport())),
            (Field::DstPort, number(key.dport())),
        ];
        let terms = terms.into_iter().map(|(field, values)| Term { field, negated: false, values }).collect();
        Rule { terms, class, number: 0 }
    });
    RuleSet { rules: rules.collect(), ..RuleSet::default() }
}

/// An engine and the packets that pass through it, at the rate of its link.
pub struct Work {
    engine: Engine,
    /// Number of leaf classes, or of flows in the single leaf class.
    flows: u32,
    leaves: std::ops::Range<ClassId>,
    /// Packets sent since the start; the current time is the time that they take on the wire.
    packets: u64,
    random: u64,
    keys: Vec<Key>,
    /// The flow of each key in `keys`.
    places: Vec<u32>,
    classes: Vec<Option<ClassId>>,
    watched: Option<Watched>,
}

/// A packet of flow `at`.
#[inline]
fn packet(at: u32) -> Packet {
    // Fibonacci hashing (Knuth 6.4): a flow's hash that differs from its neighbours' in all bits.
    let hash = at.wrapping_mul(0x9e37_79b1);
    Packet { flow: hash, hosts: [at as u16 & 0xff, (hash >> 16) as u16], ..Packet::new(at, PACKET) }
}

impl Work {
    /// Builds the engine, and classifies packets of all flows until the flow cache has them all.
    pub fn new(load: &Load<'_>) -> anyhow::Result<Work> {
        let mut spec = link(load)?;
        let end = spec.classes.len() as ClassId;
        let leaves = end - if load.flows { 1 } else { load.classes }..end;
        let flows = load.classes;
        spec.rules = rules(leaves.clone(), load.flows.then_some(flows));
        let engine = Engine::new(&spec).map_err(|error| anyhow::anyhow!("{error}"))?;
        let watched = Watched::new(load.watch, &engine, flows as usize);
        let mut work = Work {
            engine,
            flows,
            leaves,
            packets: 0,
            random: 0x2545_f491_4f6c_dd1d,
            keys: Vec::with_capacity(BATCH),
            places: Vec::with_capacity(BATCH),
            classes: Vec::with_capacity(BATCH),
            watched,
        };
        for _ in 0..16 {
            let before = work.engine.classifier().misses();
            for at in 0..flows {
                work.engine.classify(&key(at));
            }
            if work.engine.classifier().misses() == before {
                break;
            }
        }
        Ok(work)
    }

    fn now(&self) -> Nanos {
        now(self.packets)
    }

    /// Queues packets in every leaf, so many that none runs empty between the packets sent in one
    /// batch and the next batch of arrivals.
    pub fn fill(&mut self) -> anyhow::Result<()> {
        let each = (512 / self.flows).clamp(2, 48);
        let now = self.now();
        for at in 0..self.flows {
            let class = self.leaves.start + if self.leaves.len() == 1 { 0 } else { at };
            for _ in 0..each {
                if let Some(watched) = &mut self.watched {
                    watched.waits(at, &key(at));
                }
                self.engine.enqueue(now, class, packet(at));
            }
        }
        self.no_drops()
    }

    /// Sends `packets` packets while every leaf is backlogged: each packet that leaves is replaced
    /// by a new one of its class. Packets are classified in batches, as the data path does it.
    pub fn saturated(&mut self, packets: u64) -> anyhow::Result<()> {
        let mut left = packets;
        while left > 0 {
            let batch = left.min(BATCH as u64);
            left -= batch;
            self.empty_batch(batch as usize);
            for nth in 0..batch as usize {
                let departure = self.engine.dequeue(self.now());
                let Some(departure) = &departure else { bail!("every class is backlogged, and nothing was sent") };
                if let Some(watched) = &mut self.watched {
                    watched.leaves(now(self.packets), departure.class, &departure.packet);
                }
                self.expect(nth, departure.packet.handle);
                self.packets += 1;
            }
            self.classify_batch();
            let now = self.now();
            for at in 0..self.classes.len() {
                let Some(class) = self.classes[at] else { bail!("a flow has no class") };
                let place = self.places[at];
                if let Some(watched) = &mut self.watched {
                    watched.waits(place, &self.keys[at]);
                }
                self.engine.enqueue(now, class, packet(place));
            }
        }
        self.no_drops()
    }

    /// Sends `packets` packets one at a time through an empty link, to leaves in random order.
    /// Packets are classified in batches, as the data path does it.
    pub fn one_at_a_time(&mut self, packets: u64) -> anyhow::Result<()> {
        let mut left = packets;
        while left > 0 {
            let batch = left.min(BATCH as u64);
            left -= batch;
            self.random_batch(batch as usize);
            self.classify_batch();
            for at in 0..self.classes.len() {
                let Some(class) = self.classes[at] else { bail!("a flow has no class") };
                let now = now(self.packets);
                let place = self.places[at];
                if let Some(watched) = &mut self.watched {
                    watched.waits(place, &self.keys[at]);
                }
                self.engine.enqueue(now, class, packet(place));
                // The departure is read where it was written; copying it first would cost time.
                let departure = self.engine.dequeue(now);
                let Some(departure) = &departure else { bail!("a packet alone on the link was held back") };
                if departure.packet.handle != place {
                    bail!("packet {place} went in, packet {} came out", departure.packet.handle);
                }
                if let Some(watched) = &mut self.watched {
                    watched.leaves(now, departure.class, &departure.packet);
                }
                self.packets += 1;
            }
        }
        self.no_drops()
    }

    /// Makes `packets` packets as `one_at_a_time` does, and gives them to nobody: what is counted
    /// here is the workload's own part in the other counts.
    pub fn generate(&mut self, packets: u64) {
        let mut left = packets;
        while left > 0 {
            let batch = left.min(BATCH as u64);
            left -= batch;
            self.random_batch(batch as usize);
            std::hint::black_box(&self.keys);
            for &place in &self.places {
                std::hint::black_box((now(self.packets), packet(place)));
                self.packets += 1;
            }
        }
    }

    /// Makes a batch of packets of random flows.
    #[inline]
    fn random_batch(&mut self, packets: usize) {
        let flows = u64::from(self.flows);
        self.empty_batch(packets);
        for nth in 0..packets {
            // Marsaglia 2003: xorshift64.
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let place = (((self.random >> 32) * flows) >> 32) as u32;
            self.expect(nth, place);
        }
    }

    /// Makes a batch of equal packets; `expect` then sets the fields that tell flows apart.
    fn empty_batch(&mut self, packets: usize) {
        self.keys.resize_with(packets, || key(0));
        self.places.resize(packets, 0);
    }

    /// Makes packet `nth` of the batch one of flow `place`.
    #[inline]
    fn expect(&mut self, nth: usize, place: u32) {
        if let (Some(slot), Some(kept)) = (self.keys.get_mut(nth), self.places.get_mut(nth)) {
            (slot.src, slot.dst, slot.sport) = fields(place);
            *kept = place;
        }
    }

    fn classify_batch(&mut self) {
        self.classes.clear();
        self.engine.classify_batch(&self.keys, &mut self.classes);
    }

    /// Classifies `packets` packets, and does nothing else with them.
    pub fn classify(&mut self, packets: u64) {
        let flows = u64::from(self.flows);
        for packet in 0..packets {
            std::hint::black_box(self.engine.classify(&key((packet % flows) as u32)));
        }
    }

    /// Packets whose waits, and whose flows, were counted.
    #[cfg(test)]
    pub fn counted(&mut self) -> (u64, u64) {
        self.watched.as_mut().map_or((0, 0), |watched| watched.packets(&self.engine))
    }

    fn no_drops(&mut self) -> anyhow::Result<()> {
        match self.engine.drops().next() {
            Some(drop) => bail!("class {:?} dropped a packet: {}", drop.class, drop.reason.name()),
            None => Ok(()),
        }
    }
}

/// The time at which the wire has sent `packets` packets.
fn now(packets: u64) -> Nanos {
    (packets * u64::from(PACKET) * 8).div_ceil(RATE / 1_000_000_000)
}

/// Bytes of memory of an engine with these classes, after a packet has gone through each. Packets,
/// flows and rules are not counted.
pub fn memory(load: &Load<'_>) -> anyhow::Result<usize> {
    let spec = link(load)?;
    let mut engine = Engine::new(&spec).map_err(|error| anyhow::anyhow!("{error}"))?;
    let end = spec.classes.len() as ClassId;
    for at in 0..load.classes {
        engine.enqueue(0, if load.flows { end - 1 } else { end - load.classes + at }, packet(at));
    }
    let mut now = 0;
    while engine.backlog() > 0 {
        now = match engine.dequeue(now) {
            Some(_) => now,
            None => {
                engine.next_wakeup().filter(|at| *at > now).context("packets are queued, and nothing is to be sent")?
            }
        };
    }
    Ok(engine.memory())
}

/// Four frames as a network has them: TCP over IPv4, UDP over IPv4 with a VLAN tag, TCP over IPv6,
/// UDP over IPv6 with two extension headers.
pub fn frames() -> [Vec<u8>; 4] {
    fn ethernet(kind: &[u8], rest: &[&[u8]]) -> Vec<u8> {
        let mut frame = [&[2; 12], kind, &rest.concat()[..]].concat();
        frame.resize(128, 0);
        frame
    }
    let v4 = |proto| [0x45, 0, 0, 100, 0, 0, 0x40, 0, 64, proto, 0, 0, 10, 0, 0, 1, 192, 0, 2, 1];
    let mut v6 = [0; 40];
    (v6[0], v6[5], v6[7], v6[8], v6[24]) = (0x60, 60, 64, 0x20, 0x20);
    let with_next = |next| {
        let mut header = v6;
        header[6] = next;
        header
    };
    let ports = [0x9c, 0x40, 1, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10];
    [
        ethernet(&[8, 0], &[&v4(6), &ports]),
        ethernet(&[0x81, 0, 0, 7, 8, 0], &[&v4(17), &ports]),
        ethernet(&[0x86, 0xdd], &[&with_next(6), &ports]),
        ethernet(&[0x86, 0xdd], &[&with_next(0), &[60, 0, 0, 0, 0, 0, 0, 0], &[17, 0, 0, 0, 0, 0, 0, 0], &ports]),
    ]
}

/// Reads the headers of `packets` frames.
pub fn parse(packets: u64) {
    let frames = frames();
    for packet in 0..packets {
        let frame = std::hint::black_box(&frames[packet as usize % frames.len()]);
        std::hint::black_box(&altq_engine::headers::parse_ethernet(frame, frame.len() as u32));
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn the_tree_is_as_written() {
        for (n, agencies) in [(1, 1), (10, 3), (100, 10), (1000, 32), (10_000, 100)] {
            let spec = &link(&Load::new("cbq", n, 3)).unwrap();
            assert_eq!(spec.classes.len() as u32, 1 + agencies + n);
            let rate = |at: usize| spec.classes[at].settings.rate("rate").unwrap_or_default().as_bit_s();
            let children = |of: u32| (1..spec.classes.len()).filter(move |at| spec.classes[*at].parent == of);
            // Half of the link's rate is guaranteed, and every agency has the sum of its leaves'
            // rates.
            assert_eq!(children(0).map(rate).sum::<u64>(), RATE / 2 / u64::from(n) * u64::from(n));
            for agency in 1..=agencies {
                assert!(children(agency).next().is_some(), "agency {agency} of {agencies} has no leaf");
                assert_eq!(children(agency).map(rate).sum::<u64>(), rate(agency as usize));
            }
            let leaves = &spec.classes[1 + agencies as usize..];
            assert!(spec.classes[1..].iter().all(|class| class.settings.flag("borrow")));
            for priority in 0..8_u64.min(n.into()) {
                assert!(leaves.iter().any(|leaf| leaf.settings.int("priority") == Some(priority)));
            }
        }
        assert_eq!(link(&Load::new("fifo", 7, 2)).unwrap().classes.len(), 8);
        for flat in ["priq", "drr"] {
            let spec = link(&Load::new(flat, 10, 3)).unwrap();
            assert!(
                spec.classes[1..4]
                    .iter()
                    .all(|agency| agency.scheduler.as_ref().is_some_and(|inner| inner.name == flat))
            );
            assert!(spec.classes[4..].iter().all(|leaf| leaf.scheduler.is_none()));
            let mut work = Work::new(&Load::new(flat, 10, 3)).unwrap();
            work.one_at_a_time(100).unwrap();
            work.fill().unwrap();
            work.saturated(100).unwrap();
        }
        assert_eq!(link(&Load::new("fifo", 1000, 4)).unwrap().classes.len(), 1 + 10 + 100 + 1000);
    }

    #[test]
    fn packets_go_through_every_queue() {
        for queue in queue_names() {
            for flows in [false, true] {
                let load = Load { queue: Some(queue), flows, ..Load::new("fifo", 100, 2) };
                assert_eq!(link(&load).unwrap().classes.len(), if flows { 2 } else { 101 });
                let mut work = Work::new(&load).unwrap();
                work.one_at_a_time(1000).unwrap_or_else(|error| panic!("{queue}: {error}"));
                work.fill().unwrap_or_else(|error| panic!("{queue}: {error}"));
                work.saturated(1000).unwrap_or_else(|error| panic!("{queue}: {error}"));
            }
        }
    }

    #[test]
    fn half_of_the_packets_are_green() {
        for meter in Meter::value_variants() {
            for classes in [1, 10] {
                let mut work = Work::new(&Load { meter: Some(*meter), ..Load::new("drr", classes, 2) }).unwrap();
                work.fill().unwrap();
                // The average of tswtcm begins at 0 and rises to the rate R as R (1 - exp(-t/w)),
                // with a window w of 0.5 s. All packets are green until it is R/2, at 0.35 s. Then
                // the part is R/2 to the average: together 0.667 of the packets of 2.05 s. The
                // buckets of the others are full at first.
                let (packets, expected) = match meter {
                    Meter::Tswtcm => (5_000_000, 0.667),
                    _ => (50_000, 0.5 + 64.0 / (50_000 / classes) as f64),
                };
                work.saturated(packets).unwrap();
                let counted = work.engine.scheduler_counters(1);
                let count =
                    |name: &str| counted.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count);
                let all = count("green") + count("yellow") + count("red");
                let green = count("green") as f64 / all as f64;
                assert!((green - expected).abs() < 0.01, "{meter:?}, {classes} classes: {green} in {counted:?}");
                assert!(count("red") > 0, "{meter:?}, {classes} classes: {counted:?}");
                let chained = count("red_green") + count("red_red");
                assert_eq!(chained, if *meter == Meter::Chain { count("red") } else { 0 });
            }
        }
    }

    #[test]
    fn packets_go_through() {
        for mode in [Work::saturated, Work::one_at_a_time] {
            let mut work = Work::new(&Load::new("fifo", 100, 3)).unwrap();
            work.fill().unwrap();
            mode(&mut work, 0).unwrap();
            let mut work = Work::new(&Load::new("fifo", 100, 3)).unwrap();
            work.one_at_a_time(1000).unwrap();
            work.fill().unwrap();
            work.saturated(1000).unwrap();
        }
        // A packet is in the link already, so the first that comes out is not the first that goes
        // in.
        let mut work = Work::new(&Load::new("fifo", 100, 3)).unwrap();
        work.fill().unwrap();
        assert!(work.one_at_a_time(10).is_err());
        assert!(Work::new(&Load::new("fifo", 10, 3)).unwrap().saturated(1).is_err());
    }
}
