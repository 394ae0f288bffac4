//! HTB packet by packet against a plain implementation of its rules: it counts tokens in bits and
//! looks at every class for every packet, without bitmaps and timers. And the contract of
//! schedulers: wake-ups are exact, and extra calls change nothing.

use crate::support;
use crate::support::wire;

use std::collections::VecDeque;

use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::spec::{ClassSpec, LinkSpec, QueueSpec, SchedulerSpec};
use altq_engine::units::{Nanos, Rate};
use altq_engine::{Engine, Packet};
use support::Random;
use wire::Wire;

/// Rates at which a byte takes whole nanoseconds, so that both count exactly.
const RATES: [u64; 12] = [
    100_000, 500_000, 1_000_000, 1_600_000, 2_000_000, 4_000_000, 5_000_000, 8_000_000, 10_000_000, 20_000_000,
    40_000_000, 50_000_000,
];
const LINK: u64 = 50_000_000;

#[derive(Clone, Debug)]
struct Class {
    parent: usize,
    rate: u64,
    ceil: u64,
    burst: u64,
    cburst: u64,
    prio: usize,
    quantum: i64,
    overhead: u64,
    mpu: u64,
}

/// Tokens in bits times 10^9, as of a time.
#[derive(Clone, Copy, Debug)]
struct Tokens {
    rate: i128,
    most: i128,
    now: i128,
    at: Nanos,
}

impl Tokens {
    fn new(rate: u64, bytes: u64) -> Tokens {
        let most = i128::from(bytes) * 8_000_000_000;
        Tokens { rate: rate.into(), most, now: most, at: 0 }
    }

    fn at(&self, now: Nanos) -> i128 {
        self.now + self.rate * i128::from(now - self.at)
    }

    fn charge(&mut self, now: Nanos, bytes: u64) {
        self.now = self.at(now).min(self.most) - i128::from(bytes) * 8_000_000_000;
        self.at = now;
    }

    /// The first nanosecond at which there are not less than 0 tokens.
    fn clear(&self) -> Nanos {
        let missing = (-self.now).max(0) as u128;
        if missing == 0 {
            return self.at;
        }
        if self.rate == 0 { Nanos::MAX } else { self.at + missing.div_ceil(self.rate as u128) as Nanos }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Red,
    Yellow,
    Green,
}

/// The plain implementation. Class 0 is the link; siblings are in the order of their numbers.
struct Plain {
    classes: Vec<Class>,
    children: Vec<Vec<usize>>,
    level: Vec<usize>,
    rate: Vec<Tokens>,
    ceil: Vec<Tokens>,
    queues: Vec<VecDeque<(u32, u32)>>,
    deficit: Vec<[i64; 8]>,
    /// Whose turn it is among the members of a class, by priority: place 0 is its own packets, then
    /// its children.
    feed: Vec<[usize; 8]>,
    /// Whose turn it is in a level.
    row: [[usize; 8]; 8],
}

impl Plain {
    fn new(classes: &[Class]) -> Plain {
        // The link: a bucket twice as deep as that of the regulator, which at 50 Mbit/s has 8
        // packets of 1500.
        let link = Class {
            parent: usize::MAX,
            rate: LINK,
            ceil: LINK,
            burst: 24_000,
            cburst: 24_000,
            prio: 0,
            quantum: 0,
            overhead: 0,
            mpu: 0,
        };
        let classes: Vec<Class> = std::iter::once(link).chain(classes.iter().cloned()).collect();
        let children: Vec<Vec<usize>> =
            (0..classes.len()).map(|at| (1..classes.len()).filter(|c| classes[*c].parent == at).collect()).collect();
        let depth = |mut at: usize| {
            let mut depth = 0;
            while at != 0 {
                (at, depth) = (classes[at].parent, depth + 1);
            }
            depth
        };
        let level =
            (0..classes.len()).map(|at| if at > 0 && children[at].is_empty() { 0 } else { 7 - depth(at) }).collect();
        Plain {
            level,
            rate: classes
                .iter()
                .map(|class| Tokens::new(class.rate, if class.rate == 0 { 0 } else { class.burst }))
                .collect(),
            ceil: classes.iter().map(|class| Tokens::new(class.ceil, class.cburst)).collect(),
            queues: vec![VecDeque::new(); classes.len()],
            deficit: vec![[0; 8]; classes.len()],
            feed: vec![[0; 8]; classes.len()],
            row: [[0; 8]; 8],
            children,
            classes,
        }
    }

    fn mode(&self, at: usize, now: Nanos) -> Mode {
        if self.ceil[at].at(now) < 0 {
            Mode::Red
        } else if self.classes[at].rate > 0 && self.rate[at].at(now) >= 0 {
            Mode::Green
        } else if at == 0 {
            Mode::Red
        } else {
            Mode::Yellow
        }
    }

    fn inner(&self, at: usize) -> bool {
        at == 0 || !self.children[at].is_empty()
    }

    /// Whether a class wants to send at a priority, by itself or for those below that may borrow
    /// from it.
    fn wants(&self, at: usize, prio: usize, now: Nanos) -> bool {
        let own = at != 0 && !self.queues[at].is_empty() && self.classes[at].prio == prio;
        own || self.inner(at)
            && self.children[at].iter().any(|c| self.wants(*c, prio, now) && self.mode(*c, now) == Mode::Yellow)
    }

    /// Members of an inner class that borrow from it, by their places.
    fn members(&self, at: usize, prio: usize, now: Nanos) -> Vec<usize> {
        let mut members = Vec::new();
        if at != 0 && !self.queues[at].is_empty() && self.classes[at].prio == prio {
            members.push(0);
        }
        let borrowers = self.children[at]
            .iter()
            .enumerate()
            .filter(|(_, c)| self.wants(**c, prio, now) && self.mode(**c, now) == Mode::Yellow);
        members.extend(borrowers.map(|(place, _)| place + 1));
        members
    }

    fn turn(hand: usize, among: &[usize]) -> Option<usize> {
        among.iter().find(|at| **at >= hand).or(among.first()).copied()
    }

    fn choose(&self, now: Nanos) -> Option<(usize, usize, usize)> {
        for level in 0..8 {
            for prio in 0..8 {
                let green: Vec<usize> = (0..self.classes.len())
                    .filter(|at| {
                        self.level[*at] == level && self.mode(*at, now) == Mode::Green && self.wants(*at, prio, now)
                    })
                    .collect();
                let Some(mut at) = Plain::turn(self.row[level][prio], &green) else { continue };
                while self.inner(at) {
                    match Plain::turn(self.feed[at][prio], &self.members(at, prio, now)) {
                        Some(0) => return Some((at, level, prio)),
                        Some(place) => at = self.children[at][place - 1],
                        None => unreachable!("an inner class that wants to send has somebody who does"),
                    }
                }
                return Some((at, level, prio));
            }
        }
        None
    }

    fn dequeue(&mut self, now: Nanos) -> Option<(u32, u32)> {
        if let Some(direct) = self.queues[0].pop_front() {
            return Some(direct);
        }
        let (leaf, level, prio) = self.choose(now)?;
        let (handle, bytes) = self.queues[leaf].pop_front()?;
        self.deficit[leaf][level] -= i64::from(bytes);
        if self.deficit[leaf][level] < 0 {
            self.deficit[leaf][level] += self.classes[leaf].quantum;
            // The packet itself still counts as waiting while the rounds go on.
            self.queues[leaf].push_front((handle, bytes));
            let (mut at, mut place) = (leaf, 0);
            let mut lender = leaf;
            if level > 0 {
                if !self.inner(leaf) {
                    (at, place) = self.above(leaf);
                }
                loop {
                    lender = at;
                    if self.members(at, prio, now).into_iter().any(|member| member > place) {
                        self.feed[at][prio] = place + 1;
                        lender = usize::MAX;
                        break;
                    }
                    self.feed[at][prio] = 0;
                    if self.level[at] == level {
                        break;
                    }
                    (at, place) = self.above(at);
                }
            }
            if lender != usize::MAX {
                self.row[level][prio] = lender + 1;
            }
            self.queues[leaf].pop_front();
        }
        let mut at = leaf;
        loop {
            let class = &self.classes[at];
            let charged = (u64::from(bytes) + class.overhead).max(class.mpu);
            self.ceil[at].charge(now, charged);
            if self.level[at] >= level {
                self.rate[at].charge(now, charged);
            }
            if at == 0 {
                break;
            }
            at = class.parent;
        }
        Some((leaf as u32, handle))
    }

    fn above(&self, at: usize) -> (usize, usize) {
        let parent = self.classes[at].parent;
        (parent, 1 + self.children[parent].iter().position(|c| *c == at).expect("a child of its parent"))
    }

    /// The first time at which somebody may send: tried at every change of a mode.
    fn wakeup(&self, now: Nanos) -> Option<Nanos> {
        let mut times: Vec<Nanos> =
            self.rate.iter().chain(&self.ceil).map(Tokens::clear).filter(|at| *at > now && *at < Nanos::MAX).collect();
        times.sort_unstable();
        times.into_iter().find(|at| self.choose(*at).is_some())
    }
}

fn tree(random: &mut Random) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    let n = 1 + random.below(9) as usize;
    while classes.len() < n {
        let parent = random.below(classes.len() as u64 + 1) as usize;
        let mut depth = 1;
        let mut at = parent;
        while at != 0 {
            (at, depth) = (classes[at - 1].parent, depth + 1);
        }
        if depth > 7 {
            continue;
        }
        let ceil = random.pick(&RATES);
        let rate = if random.chance(10) { 0 } else { random.pick(&RATES).min(ceil) };
        classes.push(Class {
            parent,
            rate,
            ceil,
            burst: random.pick(&[1, 300, 1600, 6000, 30_000]),
            cburst: random.pick(&[1, 300, 1600, 6000, 30_000]),
            prio: random.below(3) as usize,
            quantum: random.pick(&[1, 500, 1500, 4000, 20_000]),
            overhead: random.pick(&[0, 0, 24]),
            mpu: random.pick(&[0, 0, 200]),
        });
    }
    classes
}

fn link(classes: &[Class]) -> LinkSpec {
    let queue = || QueueSpec::new("drop_tail", Limit::Packets(100_000));
    let mut all = vec![ClassSpec { parent: 0, settings: Settings::new(), queue: Some(queue()), scheduler: None }];
    all.extend(classes.iter().map(|class| {
        let mut settings = Settings::new();
        settings.set("rate", Value::Rate(Rate::bit_s(class.rate))).set("ceil", Value::Rate(Rate::bit_s(class.ceil)));
        settings.set("burst", Value::Bytes(class.burst)).set("cburst", Value::Bytes(class.cburst));
        settings.set("prio", Value::Int(class.prio as u64)).set("quantum", Value::Bytes(class.quantum as u64));
        settings.set("overhead", Value::Bytes(class.overhead)).set("mpu", Value::Bytes(class.mpu));
        ClassSpec { parent: class.parent as u32, settings, queue: Some(queue()), scheduler: None }
    }));
    LinkSpec::new(Rate::bit_s(LINK), SchedulerSpec::new("htb"), all)
}

/// Random trees, packets and wires: the engine and the plain implementation send the same packet at
/// the same time and give the same wake-up, also if the engine gets extra calls.
#[test]
fn as_the_rules_say() {
    let mut random = Random::new(77);
    let mut packets = 0;
    for _ in 0..120 {
        let classes = tree(&mut random);
        let spec = link(&classes);
        let (mut engine, mut bothered) = (Engine::new(&spec).unwrap(), Engine::new(&spec).unwrap());
        let mut plain = Plain::new(&classes);
        let rate = LINK * random.pick(&[1, 1, 3, 100]);
        let mut wire = Wire::new(Rate::bit_s(rate));
        let (mut now, mut wake, mut next) = (0, None::<Nanos>, 0);
        let pace = random.pick(&[20_000, 200_000, 2_000_000]);
        for handle in 0.. {
            // To the next of: arrival, end of a packet, wake-up.
            let at = [Some(next).filter(|_| handle < 100_000), wire.next_end(), wake].into_iter().flatten().min();
            let Some(at) = at.filter(|at| *at < 250_000_000) else { break };
            // Between events nothing leaves, however often one asks.
            for _ in 0..random.below(3) {
                let between = now + random.below((at - now).max(1));
                if between < at && between >= now && wire.held() == 0 {
                    assert!(bothered.dequeue(between).is_none(), "{classes:?}: it left before its time");
                    now = between;
                    bothered.next_wakeup();
                }
            }
            now = at;
            if wire.next_end() == Some(at) {
                wire.complete();
            } else if wake != Some(at) {
                for _ in 0..1 + random.below(4) {
                    // Mostly leaves and inner classes; sometimes the link itself.
                    let class = if random.chance(98) { 1 + random.below(classes.len() as u64) as u32 } else { 0 };
                    let bytes = 40 + random.below(1461) as u32;
                    engine.enqueue(now, class, Packet::new(handle, bytes));
                    bothered.enqueue(now, class, Packet::new(handle, bytes));
                    plain.queues[class as usize].push_back((if class == 0 { 0 } else { handle }, bytes));
                }
                next = now + 1 + random.below(pace);
            }
            let woken = wake == Some(at);
            wake = None;
            if wire.held() > 0 {
                continue;
            }
            let direct = !plain.queues[0].is_empty();
            let expected =
                if direct { plain.queues[0].pop_front().map(|(_, bytes)| (0, bytes)) } else { plain.dequeue(now) };
            let sent = engine.dequeue(now);
            let also = bothered.dequeue(now).map(|d| (d.class, d.packet.handle));
            let given = sent.as_ref().map(|d| (d.class, if direct { d.packet.len } else { d.packet.handle }));
            assert_eq!(given, expected, "at {now}, {classes:?}");
            assert_eq!(also, sent.as_ref().map(|d| (d.class, d.packet.handle)), "at {now}, bothered, {classes:?}");
            assert!(!woken || sent.is_some(), "woken for nothing at {now}");
            match sent {
                Some(departure) => {
                    wire.send(now, departure.packet.wire);
                    packets += 1;
                }
                None => {
                    wake = plain.wakeup(now);
                    assert_eq!(engine.next_wakeup(), wake, "at {now}, {classes:?}");
                    assert_eq!(bothered.next_wakeup(), wake, "at {now}, bothered, {classes:?}");
                }
            }
        }
    }
    assert!(packets > 20_000, "{packets}");
}
