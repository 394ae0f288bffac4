//! Traces of the search: what every class sends, and small changes to it.

use altq_engine::spec::ClassId;
use altq_engine::units::Nanos;

use super::laws::Laws;
use super::random::Random;
use super::run::{Bucket, Event};

/// A trace has no more packets than this.
const MOST: usize = 400;
/// No packet comes later than this: some hours, as packets of 10 kbit/s take seconds.
const LAST: Nanos = 1 << 45;

/// What mutations need to know of a link.
pub struct Scale {
    /// The time of the largest packet on the link.
    pub packet: Nanos,
    pub classes: Vec<ClassId>,
    pub watched: ClassId,
    /// The time of the largest packet at the rate of the watched class.
    pub own: Nanos,
}

impl Scale {
    pub fn of(laws: &Laws, watched: ClassId) -> Scale {
        let wire = u64::from(laws.link.spec.overhead.charge(laws.link.spec.mtu));
        let rate = laws.classes[watched as usize].conforming.map_or(0, |(_, source)| source.rate).max(1);
        Scale {
            packet: laws.link.spec.rate.time_for(wire).max(1),
            classes: laws.holders(),
            watched,
            own: altq_engine::units::Rate::bit_s(rate).time_for(wire).clamp(1, LAST >> 8),
        }
    }
}

fn size(random: &Random) -> u32 {
    match random.below(10) {
        0..=4 => 1500,
        5 => 40,
        6 => 1 + random.below(1500) as u32,
        // Just more and just less than cells of 48 bytes, and the smallest.
        7 => (48 * (1 + random.below(31)) as u32 + random.below(4) as u32).min(1500),
        8 => random.pick(&[1, 2, 1499, 576, 1000]),
        _ => 64,
    }
}

/// Sizes of a row of packets: all alike, in turn, or at random.
fn sizes(random: &Random) -> impl Fn(&Random, u64) -> u32 + use<> {
    let (first, second, kind) = (size(random), size(random), random.below(4));
    let from = random.below(20);
    move |random, at| match kind {
        0 | 1 => first,
        2 => {
            if at == from {
                second
            } else {
                first
            }
        }
        _ => {
            if random.chance(50) {
                first
            } else {
                second
            }
        }
    }
}

/// What one class sends.
fn source(random: &Random, scale: &Scale, class: ClassId, anchors: &[Nanos], events: &mut Vec<Event>) {
    let size = sizes(random);
    let start = anchor(random, scale, anchors);
    let mut row = |random: &Random, from: Nanos, n: u64, gap: Nanos| {
        for at in 0..n {
            let time = from.saturating_add(gap.saturating_mul(at)).min(LAST);
            events.push(Event { at: time, class, bytes: size(random, at) });
        }
    };
    match random.below(6) {
        // A backlog, or a burst.
        0 | 1 => {
            let n = random.scale(120);
            row(random, start, n, 0);
        }
        // Bursts with silence between them.
        2 => {
            let gap = random.scale(64) * scale.packet + random.below(scale.packet);
            let (bursts, n) = (1 + random.below(6), random.scale(20));
            (0..bursts).for_each(|burst| row(random, start + burst * gap, n, 0));
        }
        // In step.
        3 => {
            let n = random.scale(60);
            let gap = random.scale(16) * scale.packet / (1 + random.below(16));
            row(random, start, n, gap);
        }
        // At the pace of the watched class.
        4 => {
            let n = random.scale(60);
            row(random, start, n, scale.own / (1 + random.below(4)));
        }
        _ => row(random, start, 1 + random.below(3), 0),
    }
}

/// A time: the beginning, one at which something happened, or any.
fn anchor(random: &Random, scale: &Scale, anchors: &[Nanos]) -> Nanos {
    let near = match random.below(6) {
        0 => 0,
        1 => scale.packet * random.below(8),
        2 => random.scale(scale.packet * 64),
        3 => scale.own.saturating_mul(random.below(16)),
        _ if !anchors.is_empty() => random.pick(anchors),
        _ => 1_000_000_000,
    };
    match random.below(4) {
        0 => near + 1,
        1 => near.saturating_sub(1),
        _ => near,
    }
    .min(LAST)
}

/// Traffic of all classes.
pub fn fresh(random: &Random, laws: &Laws, scale: &Scale) -> Vec<Event> {
    let mut events = Vec::new();
    let anchors = [anchor(random, scale, &[]), anchor(random, scale, &[])];
    for class in &scale.classes {
        if *class != scale.watched && random.chance(85) {
            for _ in 0..1 + random.below(2) {
                source(random, scale, *class, &anchors, &mut events);
            }
        }
    }
    for _ in 0..1 + random.below(3) {
        source(random, scale, scale.watched, &anchors, &mut events);
    }
    settle(laws, scale, &mut events);
    events
}

/// A small change. `times` are those at which something happened when it ran.
pub fn mutate(random: &Random, laws: &Laws, scale: &Scale, events: &mut Vec<Event>, times: &[Nanos]) {
    let n = events.len() as u64;
    if n == 0 {
        return source(random, scale, scale.watched, times, events);
    }
    let at = random.below(n) as usize;
    let class = if random.chance(40) { scale.watched } else { events[at].class };
    match random.below(12) {
        // A row of packets moves.
        0..=2 => {
            let from = events[at].at;
            let to = anchor(random, scale, times);
            let until = if random.chance(50) { Nanos::MAX } else { from + random.scale(scale.packet * 16) };
            for event in events.iter_mut().filter(|event| event.class == class) {
                if event.at >= from && event.at < until {
                    event.at = (event.at - from).saturating_add(to).min(LAST);
                }
            }
        }
        // By a little.
        3 => {
            let by = random.scale(scale.packet * 2);
            let later = random.chance(50);
            let from = events[at].at;
            for event in events.iter_mut().filter(|event| event.class == class && event.at >= from) {
                event.at = if later { (event.at + by).min(LAST) } else { event.at.saturating_sub(by) };
            }
        }
        4 => events[at].at = anchor(random, scale, times),
        5 => events[at].bytes = size(random),
        6 => {
            let bytes = size(random);
            events.iter_mut().filter(|event| event.class == class).for_each(|event| event.bytes = bytes);
        }
        7 => {
            let copy = events[at];
            let copies = random.scale(16) as usize;
            events.splice(at..at, std::iter::repeat_n(copy, copies));
        }
        8 => {
            let many = random.scale(16) as usize;
            events.drain(at..(at + many).min(n as usize));
        }
        // Ties.
        9 => {
            let other = (at + 1 + random.below(3) as usize) % n as usize;
            let time = events[at].at;
            events[other].at = time;
            events.swap(at, other);
        }
        10 => {
            events.retain(|event| event.class != class);
            source(random, scale, class, times, events);
        }
        _ => {
            let class = random.pick(&scale.classes);
            source(random, scale, class, times, events);
        }
    }
    settle(laws, scale, events);
}

/// Sorts by time, cuts what is too much, and delays packets of the watched class until they
/// conform.
pub fn settle(laws: &Laws, scale: &Scale, events: &mut Vec<Event>) {
    let law = &laws.classes[scale.watched as usize];
    if let Some((_, source)) = law.conforming {
        events.sort_by_key(|event| event.at);
        let mut bucket = Bucket::new(source);
        let mut last = 0;
        events.retain_mut(|event| {
            if event.class != scale.watched {
                return true;
            }
            event.bytes = event.bytes.min(source.packet as u32).max(1);
            let wire = laws.link.spec.overhead.charge(event.bytes);
            let Some(at) = bucket.when(event.at.max(last), wire).filter(|at| *at <= LAST) else { return false };
            (event.at, last) = (at, at);
            bucket.take(at, event.bytes, wire)
        });
    }
    events.sort_by_key(|event| event.at);
    events.truncate(MOST);
}
