//! Runs a trace through an engine as `altq replay` does, and holds it to the laws.

use altq_engine::account::DropReason;
use altq_engine::spec::{ClassId, ROOT, Timer};
use altq_engine::units::Nanos;
use altq_engine::{Change, Engine, Packet, drive};

use super::laws::{Laws, Source};

/// A packet that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub at: Nanos,
    pub class: ClassId,
    pub bytes: u32,
}

/// How near a run came to a bound, and what it broke.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Of the watched class: the greatest wait of a conforming packet over its bound.
    pub nearest: f64,
    /// The class of each packet that left, its number, when it was handed over.
    pub left: Vec<(ClassId, u32, Nanos)>,
    /// When something ended on the wire or a timer fired.
    pub times: Vec<Nanos>,
    pub broken: Option<String>,
}

/// The tokens of a source.
pub struct Bucket {
    source: Source,
    tokens: u128,
    filled: Nanos,
}

/// Tokens of a byte: bits times nanoseconds a second.
const BYTE: u128 = 8_000_000_000;

impl Bucket {
    pub fn new(source: Source) -> Bucket {
        Bucket { source, tokens: u128::from(source.burst) * BYTE, filled: 0 }
    }

    fn at(&self, now: Nanos) -> u128 {
        let more = u128::from(now.saturating_sub(self.filled)) * u128::from(self.source.rate);
        (self.tokens + more).min(u128::from(self.source.burst) * BYTE)
    }

    /// The time from `now` on at which a packet of `bytes` on the wire conforms; `None`: never.
    pub fn when(&self, now: Nanos, bytes: u32) -> Option<Nanos> {
        let cost = u128::from(bytes) * BYTE;
        if cost > u128::from(self.source.burst) * BYTE || self.source.rate == 0 {
            return None;
        }
        let missing = cost.saturating_sub(self.at(now));
        now.checked_add(Nanos::try_from(missing.div_ceil(u128::from(self.source.rate))).ok()?)
    }

    /// Takes a packet's tokens. False if there are too few, or the packet is too long.
    pub fn take(&mut self, now: Nanos, own: u32, bytes: u32) -> bool {
        let (has, cost) = (self.at(now), u128::from(bytes) * BYTE);
        if u64::from(own) > self.source.packet || has < cost {
            return false;
        }
        (self.tokens, self.filled) = (has - cost, now);
        true
    }
}

/// What is followed of a class during a run.
struct Watch {
    bucket: Option<Bucket>,
    waiting: u32,
    /// When what has gone was due at the promised rate, in nanoseconds times that rate.
    due: u128,
    /// What is in the bucket of its ceiling, and when that was.
    level: u128,
    level_at: Nanos,
}

/// Runs a trace. `watched` is the class whose approach to its bound is told; `changes` come before
/// the packets of their time.
pub fn run(laws: &Laws, events: &[Event], changes: &[(Nanos, Change)], watched: ClassId) -> Outcome {
    let mut out = Outcome { broken: laws.broken.clone(), ..Outcome::default() };
    let Ok(mut engine) = Engine::new(&laws.link.spec) else { return out };
    let rate = laws.link.spec.rate;
    let new = |law: &super::laws::Law| Watch {
        bucket: law.conforming.map(|(_, source)| Bucket::new(source)),
        waiting: 0,
        due: 0,
        level: 0,
        level_at: 0,
    };
    let mut watch: Vec<Watch> = laws.classes.iter().map(new).collect();
    let mut conforms = vec![false; events.len()];
    let (mut start, mut bits, mut busy) = (0, 0_u64, None::<Nanos>);
    let (mut timer, mut next, mut change, mut lost) = (None::<Nanos>, 0, 0, 0_u32);
    loop {
        let arrival = events.get(next).map(|event| event.at);
        let due_change = changes.get(change).map(|(at, _)| *at);
        let coming = [arrival, due_change].into_iter().flatten().min();
        let Some((now, event)) = drive::first(busy, timer, coming) else { break };
        match event {
            drive::Event::Complete => {
                busy = None;
                out.times.push(now);
            }
            drive::Event::Timer => out.times.push(now),
            drive::Event::Arrival if due_change == Some(now) => {
                change += 1;
                if let Err(error) = engine.apply(now, &changes[change - 1].1) {
                    out.broken.get_or_insert_with(|| format!("a change is refused: {error}"));
                }
            }
            drive::Event::Arrival => {
                let Event { class, bytes, .. } = events[next];
                let wire = laws.link.spec.overhead.charge(bytes);
                let one = &mut watch[class as usize];
                if let Some(bucket) = &mut one.bucket {
                    conforms[next] = bucket.take(now, bytes, wire);
                    if !conforms[next] {
                        one.bucket = None;
                    }
                }
                one.waiting += 1;
                engine.enqueue(now, class, Packet::new(next as u32, bytes));
                next += 1;
            }
        }
        lost += take_drops(&mut engine, &mut watch, &conforms, &mut out);
        if busy.is_some() {
            timer = None;
            continue;
        }
        let Some(departure) = engine.dequeue(now) else {
            let at = engine.next_wakeup();
            if at.is_some_and(|at| at <= now) {
                out.broken.get_or_insert_with(|| format!("nothing leaves at {now}, and the wake-up is {at:?}"));
            }
            lost += take_drops(&mut engine, &mut watch, &conforms, &mut out);
            timer = drive::Filled::Waiting.wakeup(&mut engine, now, Timer::Exact);
            continue;
        };
        timer = None;
        let (packet, class) = (departure.packet, departure.class);
        if start + rate.time_for(bits) < now || bits == 0 {
            (start, bits) = (now, 0);
        }
        bits += u64::from(packet.wire);
        let end = start.saturating_add(rate.time_for(bits));
        busy = Some(end);
        out.left.push((class, packet.handle, now));
        let (law, at) = (&laws.classes[class as usize], packet.handle as usize);
        let wait = end - packet.arrived;
        if let Some((bound, _)) = law.conforming.filter(|_| conforms[at]) {
            let near = wait as f64 / bound.max(1) as f64;
            if class == watched {
                out.nearest = out.nearest.max(near);
            }
            if wait > bound {
                let text = format!("packet {at} of c{class} conforms, waits {wait} ns of {bound}: {near:.4}");
                out.broken.get_or_insert(text);
            }
        }
        if let Some(bound) = law.queue_full.filter(|bound| wait > *bound) {
            let text = format!("packet {at} of c{class} waits {wait} ns, of a full queue {bound}");
            out.broken.get_or_insert(text);
        }
        let one = &mut watch[class as usize];
        one.waiting -= 1;
        // The clock of a guaranteed rate (Goyal, Lam and Vin 1995): a packet is due at the rate
        // after the one before it, or after its own arrival.
        if let Some(promise) = law.promise.filter(|promise| promise.curve.until == 0) {
            let rate = u128::from(promise.rate().as_bit_s());
            one.due = one.due.max(u128::from(packet.arrived) * rate) + u128::from(packet.wire) * BYTE;
            if u128::from(end.saturating_sub(promise.latency)) * rate > one.due + rate {
                let due = (one.due / rate) as Nanos + promise.latency;
                out.broken.get_or_insert_with(|| {
                    format!("packet {at} of c{class} is through at {end}; at the promised rate it is due at {due}")
                });
            }
        }
        let mut above = class;
        while above != ROOT {
            if let Some((rate, burst)) = laws.classes[above as usize].ceiling {
                let one = &mut watch[above as usize];
                let gone = u128::from(now - one.level_at) * u128::from(rate.as_bit_s());
                one.level = one.level.saturating_sub(gone) + u128::from(packet.wire) * BYTE;
                one.level_at = now;
                if one.level > burst * BYTE {
                    let above_ceiling = one.level / BYTE;
                    out.broken.get_or_insert_with(|| format!(
                        "c{above} is above its ceiling {rate} at {now}: {above_ceiling} bytes at once, {burst} allowed"
                    ));
                }
            }
            above = laws.link.spec.classes[above as usize].parent;
        }
    }
    lost += take_drops(&mut engine, &mut watch, &conforms, &mut out);
    identities(&mut engine, next as u64, lost, &mut out);
    out
}

/// Takes what was dropped off the classes, and says how many packets that were.
fn take_drops(engine: &mut Engine, watch: &mut [Watch], conforms: &[bool], out: &mut Outcome) -> u32 {
    let mut lost = 0;
    for drop in engine.drops() {
        lost += 1;
        let at = drop.packet.handle as usize;
        let Some(class) = drop.class else { continue };
        watch[class as usize].waiting -= 1;
        if conforms[at] && drop.reason == DropReason::Policed {
            out.broken.get_or_insert_with(|| format!("packet {at} of c{class} conforms and is policed"));
        }
    }
    lost
}

/// Every packet came out once, or still waits.
fn identities(engine: &mut Engine, came: u64, lost: u32, out: &mut Outcome) {
    let total = engine.counters(ROOT);
    let sum = out.left.len() as u64 + u64::from(lost) + u64::from(engine.backlog());
    if sum != came || total.sent_packets != out.left.len() as u64 || total.received_packets() != came {
        out.broken
            .get_or_insert_with(|| format!("{came} packets came, and {sum} left, were dropped or wait: {total:?}"));
    }
    let mut seen = vec![false; came as usize];
    for (_, handle, _) in &out.left {
        if std::mem::replace(&mut seen[*handle as usize], true) {
            out.broken.get_or_insert_with(|| format!("packet {handle} left twice"));
        }
    }
}
