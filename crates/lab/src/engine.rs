//! The cost of a link's engine: time per packet, stage by stage, and memory.
//!
//! Nothing is sent: packets of all leaf classes go through the engine in random order, a batch at a
//! time. Links are measured alternately, so that other load of the host affects all of them alike,
//! and the figure is the median over many batches.

use std::time::Instant;

use altq_cases::case::Measure;
use altq_config::Link;
use altq_engine::classify::{BATCH, Field, Rule, Values};
use altq_engine::headers::{self, Key};
use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::{Nanos, SECOND};
use altq_engine::{Engine, Packet};
use anyhow::{Context, bail};

/// Bytes of the packets at layer 3: 32 of payload behind IPv4 and UDP.
const PACKET: u32 = 60;

/// Number of measurements of every link, and of batches in each.
const ROUNDS: usize = 40;
const BATCHES: usize = 100;

/// Nanoseconds per packet for reading its headers (`key`), finding its class (`classify`), queueing
/// it (`enqueue`), taking it out (`dequeue`), and for all of these together (`packet`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    key: f64,
    classify: f64,
    enqueue: f64,
    dequeue: f64,
    packet: f64,
}

impl Times {
    /// The time that a measure asks for; `None` if it is no time of the engine.
    pub fn of(&self, measure: Measure) -> Option<f64> {
        match measure {
            Measure::KeyTime => Some(self.key),
            Measure::ClassifyTime => Some(self.classify),
            Measure::EnqueueTime => Some(self.enqueue),
            Measure::DequeueTime => Some(self.dequeue),
            Measure::PacketTime => Some(self.packet),
            _ => None,
        }
    }
}

/// Bytes that a link's engine holds after one packet has passed through each of its leaf classes.
///
/// # Errors
/// If the engine refuses the link, or no rule leads to a leaf class by addresses, ports, protocol
/// and DSCP.
pub fn memory(link: &Link) -> anyhow::Result<usize> {
    let mut work = Work::new(link)?;
    work.each()?;
    Ok(work.engine.memory())
}

/// Measures the time per packet in the engine of each link. The result is in the order of `links`.
///
/// # Errors
/// As [`memory`], and if no packet reaches a leaf class.
pub fn times(links: &[&Link]) -> anyhow::Result<Vec<Times>> {
    let mut all = links.iter().map(|link| Work::new(link)).collect::<anyhow::Result<Vec<_>>>()?;
    for work in &mut all {
        work.learn();
        if work.flows.is_empty() {
            bail!("no packet reaches a leaf");
        }
    }
    let mut samples: Vec<[Vec<f64>; 5]> = all.iter().map(|_| Default::default()).collect();
    for _ in 0..ROUNDS {
        for (work, samples) in all.iter_mut().zip(&mut samples) {
            // The first quarter warms the processor's caches and is not counted.
            for batch in 0..BATCHES + BATCHES / 4 {
                let times = work.batch()?;
                if batch >= BATCHES / 4 {
                    samples.iter_mut().zip(times).for_each(|(list, time)| list.push(time));
                }
            }
        }
    }
    let median = |list: &mut Vec<f64>| {
        list.sort_by(f64::total_cmp);
        list.get(list.len() / 2).copied().unwrap_or_default()
    };
    let of = |mut lists: [Vec<f64>; 5]| {
        let [key, classify, enqueue, dequeue, packet] = lists.each_mut().map(median);
        Times { key, classify, enqueue, dequeue, packet }
    };
    Ok(samples.into_iter().map(of).collect())
}

/// An engine, and a packet for each of its leaves.
struct Work {
    engine: Engine,
    flows: Vec<(ClassId, Vec<u8>)>,
    now: Nanos,
    /// Time that one packet takes on the wire.
    pace: Nanos,
    random: u64,
}

impl Work {
    fn new(link: &Link) -> anyhow::Result<Work> {
        let engine = Engine::new(&link.spec).map_err(|error| anyhow::anyhow!("link `{}`: {error}", link.name))?;
        let mut work = Work { engine, flows: Vec::new(), now: 0, pace: 0, random: 0x2545_f491_4f6c_dd1d };
        work.pace = (u64::from(PACKET) * 8 * SECOND).div_ceil(link.spec.rate.as_bit_s().max(1));
        let children = link.children();
        let is_leaf = |class: ClassId| children.get(class as usize).is_none_or(Vec::is_empty);
        let plain = Rule { terms: Vec::new(), class: link.spec.default.unwrap_or(ROOT), number: 0 };
        let mut known = vec![false; link.classes.len()];
        for rule in link.spec.rules.rules.iter().chain([&plain]).filter(|rule| is_leaf(rule.class)) {
            let Some(known) = known.get_mut(rule.class as usize).filter(|known| !**known) else { continue };
            let Some(key) = key(rule) else { continue };
            *known = true;
            work.flows.push((rule.class, frame(&key)));
        }
        if work.flows.is_empty() {
            bail!("link `{}`: no rule leads to a leaf by addresses, ports, protocol and DSCP", link.name);
        }
        Ok(work)
    }

    /// Sends one packet of each leaf class through the empty link.
    fn each(&mut self) -> anyhow::Result<()> {
        for at in 0..self.flows.len() {
            let Some((class, _)) = self.flows.get(at) else { continue };
            self.engine.enqueue(self.now, *class, packet(at));
            self.empty()?;
        }
        Ok(())
    }

    /// Fills the classifier's flow cache, and removes the flows that a rule other than their own
    /// classifies.
    fn learn(&mut self) {
        let Work { engine, flows, .. } = self;
        let class = |frame: &[u8], engine: &mut Engine| {
            engine.classify(&headers::parse_ethernet(frame, frame.len() as u32).key)
        };
        flows.retain(|(own, frame)| class(frame, engine) == Some(*own));
        // The cache forgets its flows when it grows, so they are classified again.
        for _ in 0..4 {
            for (_, frame) in flows.iter() {
                class(frame, engine);
            }
        }
    }

    /// Sends a batch of packets through the link. Returns nanoseconds per packet, of each stage and
    /// of all.
    fn batch(&mut self) -> anyhow::Result<[f64; 5]> {
        let flows = self.flows.len() as u64;
        let places: [usize; BATCH] = std::array::from_fn(|_| {
            // Marsaglia 2003: xorshift64.
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            (((self.random >> 32) * flows) >> 32) as usize
        });
        // Copies are made now, so that the frames are in the processor's cache, as just received.
        let frames: Vec<Vec<u8>> = places.iter().filter_map(|at| Some(self.flows.get(*at)?.1.clone())).collect();
        let (mut keys, mut classes) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
        let begin = Instant::now();
        keys.extend(frames.iter().map(|frame| headers::parse_ethernet(frame, frame.len() as u32).key));
        let read = Instant::now();
        self.engine.classify_batch(&keys, &mut classes);
        let found = Instant::now();
        for (at, class) in places.iter().zip(&classes) {
            let Some(class) = class else { bail!("a packet has no class") };
            self.engine.enqueue(self.now, *class, packet(*at));
        }
        let queued = Instant::now();
        self.empty()?;
        let end = Instant::now();
        self.now += self.pace * BATCH as u64;
        if self.engine.has_drops() {
            bail!("the engine dropped a packet of an empty link");
        }
        let each = |from: Instant, to: Instant| (to - from).as_nanos() as f64 / BATCH as f64;
        Ok([each(begin, read), each(read, found), each(found, queued), each(queued, end), each(begin, end)])
    }

    /// Takes all packets out, at the times at which their classes may send.
    fn empty(&mut self) -> anyhow::Result<()> {
        while self.engine.backlog() > 0 {
            if self.engine.dequeue(self.now).is_none() {
                let next = self.engine.next_wakeup().filter(|at| *at > self.now);
                self.now = next.context("packets are queued, and nothing is to be sent")?;
            }
        }
        Ok(())
    }
}

/// A packet of the flow with number `at`.
fn packet(at: usize) -> Packet {
    // Fibonacci hashing (Knuth 6.4): a flow's hash that differs from its neighbours' in all bits.
    let hash = (at as u32).wrapping_mul(0x9e37_79b1);
    Packet { flow: hash, hosts: [at as u16, (hash >> 16) as u16], ..Packet::new(at as u32, PACKET) }
}

/// Header fields that match a rule; `None` if the rule needs others than addresses, ports, protocol
/// and DSCP of IPv4.
fn key(rule: &Rule) -> Option<Key> {
    let mut key = Key { src: 0x0a00_0001, dst: 0x0a00_0002, proto: 17, family: 4, ..Key::default() }.with_ports(0, 0);
    for term in rule.terms.iter().filter(|term| !term.negated) {
        match (&term.values, term.field) {
            (Values::Addresses(list), field) => {
                let address = list.first().filter(|address| !address.v6)?;
                match field {
                    Field::Src => key.src = address.bits,
                    Field::Dst | Field::Host => key.dst = address.bits,
                    _ => return None,
                }
            }
            (Values::Ranges(list), field) => {
                let (first, _) = list.first()?;
                match field {
                    Field::SrcPort => key = key.with_sport(Some(u16::try_from(*first).ok()?)),
                    Field::DstPort | Field::Port => key = key.with_dport(Some(u16::try_from(*first).ok()?)),
                    Field::Proto => key.proto = u8::try_from(*first).ok()?,
                    Field::Dscp => key.tos = u8::try_from(*first << 2).ok()?,
                    _ => return None,
                }
            }
            _ => return None,
        }
    }
    Some(key)
}

/// An Ethernet frame with these header fields.
fn frame(key: &Key) -> Vec<u8> {
    let mut frame = vec![0; 14 + PACKET as usize];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(place) = frame.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    put(12, &[8, 0, 0x45, key.tos]);
    put(16, &(PACKET as u16).to_be_bytes());
    put(22, &[64, key.proto]);
    put(26, &(key.src as u32).to_be_bytes());
    put(30, &(key.dst as u32).to_be_bytes());
    put(34, &key.sport.to_be_bytes());
    put(36, &key.dport.to_be_bytes());
    // TCP: a header of 20 bytes, ACK.
    if key.proto == 6 {
        put(46, &[0x50, 0x10]);
    } else {
        put(38, &(PACKET as u16 - 20).to_be_bytes());
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(text: &str) -> Vec<Link> {
        let policy =
            altq_config::parse_str(text, "p", altq_config::Language::Native).unwrap_or_else(|error| panic!("{error}"));
        policy.links
    }

    #[test]
    fn every_leaf_with_rules_is_measured() {
        let text = "link a { rate 1Gbit/s scheduler cbq class x { share 1% class y { share 1% } class z { borrow } } \
            class rest { borrow default }\n\
                    match dst 10.1.0.0/16 dport 7 proto tcp -> y match dscp ef -> z }";
        let links = links(text);
        let mut work = Work::new(&links[0]).unwrap();
        work.learn();
        let classes: Vec<&str> = work.flows.iter().map(|(class, _)| links[0].class_name(*class)).collect();
        assert_eq!(classes, ["y", "z", "rest"]);
        let times = times(&[&links[0], &links[0]]).unwrap();
        for time in times {
            let sum = time.key + time.classify + time.enqueue + time.dequeue;
            assert!(time.key > 0.0 && sum < 3.0 * time.packet && time.packet < 3.0 * sum, "{time:?}");
        }
        assert!(memory(&links[0]).unwrap() > 0);
    }
}
