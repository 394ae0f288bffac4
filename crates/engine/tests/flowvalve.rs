//! Flowvalve, decision by decision against docs/reference/altq.md 7.3 written down again as it
//! stands there. Which packets RED drops is taken from the engine: `aqm_red.rs` checks that.

use crate::support::queue as support;

use altq_engine::settings::{Limit, Value};
use altq_engine::{Engine, Packet};
use support::{CLASS, Random, change, counter, link, queue};

const S: u64 = 1_000_000_000;

/// An entry: p in 2^-19, f in 2^-17.
#[derive(Clone)]
struct Entry {
    flow: [u16; 2],
    p: u64,
    f: u64,
    count: u32,
    last: u64,
    red: bool,
    dropped: u64,
}

/// The rules.
struct Model {
    /// The last one that was dropped first.
    list: Vec<Entry>,
    seq: u64,
    thmax: f64,
    /// 1/invpmax, in 2^-19.
    least: u64,
    alloc: u64,
    predrop: u64,
    pass: u64,
    escape: u64,
}

impl Model {
    fn new(thmax: u32, invpmax: u64) -> Model {
        let least = (1 << 19) / invpmax;
        Model { list: Vec::new(), seq: 1, thmax: thmax.into(), least, alloc: 0, predrop: 0, pass: 0, escape: 0 }
    }

    /// T(p), in 2^-17: entry floor(128 p) of 128.
    fn most(&self, p: u64) -> u64 {
        let entry = ((p as f64 / 524_288.0 * 128.0).floor() as u64).clamp(1, 127);
        let p = entry as f64 / 128.0;
        let loss = (3.0 * (6.0 * p / 8.0).sqrt()).min(1.0);
        let b = 1.0 / ((4.0 * p / 3.0).sqrt() + loss * p * (1.0 + 32.0 * p * p));
        (b / (self.thmax + 5.0) * 131_072.0).floor() as u64
    }

    fn expire(&mut self, second: u64) {
        self.list.retain(|entry| second - entry.dropped <= 3);
    }

    /// Whether the packet is dropped before RED sees it.
    fn arrival(&mut self, now: u64, flow: [u16; 2]) -> bool {
        let second = now / S;
        self.expire(second);
        if self.list.is_empty() {
            return false;
        }
        self.seq += 1;
        let Some(at) = self.list.iter().position(|entry| entry.flow == flow) else { return false };
        let mut entry = self.list[at].clone();
        entry.count += 1;
        if entry.count == 10 {
            entry.f = entry.f + 10 * 4096 / (self.seq - entry.last) - entry.f / 32;
            (entry.last, entry.count) = (self.seq, 0);
        }
        if !entry.red && entry.p > self.least && entry.f > self.most(entry.p) {
            entry.red = true;
        }
        if entry.red && second - entry.dropped > 1 {
            (entry.red, entry.p) = (false, 0);
            self.escape += 1;
        }
        if entry.red {
            entry.dropped = second;
            self.predrop += 1;
            self.list.remove(at);
            self.list.insert(0, entry);
            return true;
        }
        entry.p -= entry.p / 128;
        self.pass += 1;
        self.list[at] = entry;
        false
    }

    /// RED drops a packet.
    fn dropped(&mut self, now: u64, flow: [u16; 2]) {
        let second = now / S;
        let mut entry = match self.list.iter().position(|entry| entry.flow == flow) {
            Some(at) => self.list.remove(at),
            None => {
                self.alloc += 1;
                self.list.truncate(63);
                Entry { flow, p: 0, f: 0, count: 0, last: self.seq - 1, red: false, dropped: 0 }
            }
        };
        entry.p += 4096;
        entry.dropped = second;
        self.list.insert(0, entry);
    }

    fn counters(&self) -> [u64; 5] {
        [self.alloc, self.list.len() as u64, self.predrop, self.pass, self.escape]
    }
}

fn red(limit: u32, words: &[(&'static str, Value)]) -> Engine {
    let words = [words, &[("flowvalve", Value::Flag)]].concat();
    link(8_000_000, queue("red", Limit::Packets(limit), &words)).unwrap()
}

fn counters(engine: &Engine) -> [u64; 5] {
    ["alloc", "flows", "predrop", "pass", "escape"].map(|name| counter(engine, &format!("flowvalve_{name}")))
}

#[test]
fn decision_by_decision() {
    let mut total = [0; 5];
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let (invpmax, part) = [(10, 100_000_000), (50, 20_000_000), (200, 5_000_000)][seed as usize % 3];
        let max = [6, 15, 30][seed as usize / 3 % 3];
        let flows = [5, 40, 300][seed as usize / 9 % 3];
        let variant = ["paper", "altq", "altq-interface"][random.below(3) as usize];
        let packets = |n| Value::Limit(Limit::Packets(n));
        let mut words = vec![("min", packets(2)), ("max", packets(max)), ("probability", Value::Fraction(part))];
        words.extend([("variant", Value::Choice(variant)), ("weight", Value::Int(16))]);
        if random.below(2) == 0 {
            words.push(("ecn", Value::Flag));
        }
        let mut engine = red(60, &words);
        engine.set_seed(seed);
        assert!(engine.keeps_flows());
        let mut model = Model::new(max, invpmax);
        let (mut now, mut handle) = (0, 0);
        for step in 0..6000 {
            // Overload, then a load that fits; now and then silence.
            now += random.below(2_000_000);
            if random.below(1500) == 0 {
                now += random.below(6 * S);
            }
            if random.below(100) >= [65, 40][step / 1000 % 2] {
                engine.dequeue(now);
                continue;
            }
            // Flow 1 sends a third of all.
            let flow = if random.below(3) == 0 { 1 } else { 2 + random.below(flows) as u16 };
            let hosts = if random.below(50) == 0 { [0, 0] } else { [flow, 7] };
            let packet = Packet { hosts, ecn: random.below(4) as u8, ..Packet::new(handle, 1000) };
            engine.enqueue(now, CLASS, packet);
            let drops = engine.drops().count();
            if model.arrival(now, hosts) {
                assert_eq!(drops, 1, "seed {seed}, packet {handle}: a packet of a red flow");
            } else if drops == 1 && hosts != [0, 0] {
                model.dropped(now, hosts);
            }
            assert_eq!(counters(&engine), model.counters(), "seed {seed}, packet {handle}");
            handle += 1;
        }
        total.iter_mut().zip(model.counters()).for_each(|(all, one)| *all += one);
    }
    let [alloc, _, predrop, pass, escape] = total;
    assert!(alloc > 1000 && predrop > 1000 && pass > 10_000 && escape > 20, "{total:?}");
}

/// A flow that never gives way becomes red, stays so as long as it sends, and is free when it has
/// been silent for more than a whole second of the clock.
#[test]
fn a_flow_that_does_not_give_way() {
    let packets = |n| Value::Limit(Limit::Packets(n));
    let mut engine = red(
        20,
        &[("min", packets(2)), ("max", packets(6)), ("weight", Value::Int(1)), ("variant", Value::Choice("altq"))],
    );
    // Twice what the link carries, of one flow, for 1.5 s; the queue fills.
    let mut send = |from: u64, until: u64| {
        let mut all = 0;
        for now in (from..until).step_by(500_000) {
            engine.enqueue(now, CLASS, Packet { hosts: [1, 2], ..Packet::new(0, 1000) });
            all += u32::from(engine.drops().count() == 0);
            if now % 1_000_000 == 0 {
                engine.dequeue(now);
            }
        }
        all
    };
    send(0, 3 * S / 2);
    assert_eq!(send(3 * S / 2, 9 * S / 2), 0, "it is red, and each packet is its last drop");
    // Silent from 4.5 s to 5.9 s: seconds 4 and 5 differ by one only.
    assert_eq!(send(59 * S / 10, 59 * S / 10 + 10_000_000), 0);
    // Seconds 5 and 7 differ by two.
    assert!(send(7 * S, 7 * S + 10_000_000) > 0);
    assert_eq!(counters(&engine)[4], 1);
}

/// Flows stay listed when words change, and are forgotten without the word.
#[test]
fn changes() {
    let packets = |n| Value::Limit(Limit::Packets(n));
    let words = |max| [("min", packets(2)), ("max", packets(max)), ("flowvalve", Value::Flag)];
    let mut engine = red(4, &words(3)[..2]);
    for handle in 0..20 {
        engine.enqueue(0, CLASS, Packet { hosts: [1, handle as u16 + 1], ..Packet::new(handle, 1000) });
    }
    let listed = counters(&engine)[1];
    assert_eq!((listed, engine.drops().count()), (16, 16));
    change(&mut engine, 0, queue("red", Limit::Packets(10), &words(4))).unwrap();
    assert_eq!(counters(&engine)[1], listed);
    change(&mut engine, 0, queue("red", Limit::Packets(10), &words(4)[..2])).unwrap();
    assert!(!engine.keeps_flows());
    change(&mut engine, 0, queue("red", Limit::Packets(10), &words(4))).unwrap();
    assert_eq!(counters(&engine), [0; 5]);
    let error = change(&mut engine, 0, queue("red", Limit::Bytes(9000), &[("flowvalve", Value::Flag)])).unwrap_err();
    assert_eq!(error.word, Some("flowvalve"));
}
