//! Trees in which any scheduler may be inside any other, and a wire that runs them and checks the
//! engine's contract.
use altq_engine::schedule::{self, promise};
use altq_engine::settings::{Kind, Settings, Value};
use altq_engine::shape::service_curve::ServiceCurve;
use altq_engine::spec::{ClassSpec, LinkSpec, SchedulerSpec};
use altq_engine::units::{Nanos, Rate};
use altq_engine::{Change, Engine, Packet};

use super::Random;
use super::tree;

/// Names of all schedulers.
pub fn names() -> Vec<&'static str> {
    schedule::SCHEDULERS.iter().map(|entry| entry.name).collect()
}

/// The words of one class under `scheduler`. `at` is its index among its siblings, which divide
/// `rate` bit/s among themselves; `percent` of that is its share. With `limited` it may have no
/// more than its share, where the scheduler can limit a class. A scheduler that is not in this
/// table gets the share through its words for rates.
pub fn words(scheduler: &str, at: usize, rate: u64, percent: u64, limited: bool) -> Settings {
    let part = Value::Rate(Rate::bit_s((rate * percent / 100).max(1)));
    let all = Value::Rate(Rate::bit_s(rate));
    let settings = Settings::new();
    match scheduler {
        "fifo" => settings,
        "drr" => settings.with("quantum", Value::Bytes(1500 + 30 * percent)),
        "priq" => settings.with("priority", Value::Int(15 - (at as u64).min(15))),
        "cbq" if limited => settings.with("rate", part),
        "cbq" => settings.with("rate", part).with("borrow", Value::Flag),
        "hfsc" => {
            let curve = Value::Curve(ServiceCurve::linear(Rate::bit_s((rate * percent / 100).max(1))));
            let settings = if at.is_multiple_of(2) { settings.with("realtime", curve) } else { settings };
            let settings = settings.with("linkshare", curve);
            if limited { settings.with("upperlimit", curve) } else { settings }
        }
        other => {
            let entry = schedule::find(other).expect("a registered scheduler");
            let has = |word: &str| entry.class_words.iter().any(|known| known.name == word && known.kind == Kind::Rate);
            let mut settings = settings;
            for word in ["rate", "bandwidth"] {
                if has(word) {
                    settings.set(word, part);
                }
            }
            for word in ["ceil", "shape"] {
                if has(word) && (limited || word == "ceil") {
                    settings.set(word, if limited { part } else { all });
                }
            }
            settings
        }
    }
}

/// Whether this scheduler can limit a class, so that the link may idle while the class has packets.
pub fn limits(scheduler: &str) -> bool {
    !matches!(scheduler, "fifo" | "drr" | "priq" | "fairq" | "jobs")
}

/// Whether this scheduler is work-conserving if none of its classes is limited or below another.
/// htb is not: such classes have no parent from which to borrow.
pub fn conserves(scheduler: &str) -> bool {
    scheduler != "htb"
}

/// A tree of classes, built from the link downwards.
#[derive(Clone)]
pub struct Nest {
    pub spec: LinkSpec,
    /// What each class is promised, or why nothing; for the root, the link's rate.
    pub promised: Vec<Result<promise::Promise, String>>,
    /// The rate, in bit/s, that the classes inside each class divide among themselves.
    pub rate: Vec<u64>,
    /// True if the link must never idle while packets wait.
    pub conserving: bool,
}

impl Nest {
    pub fn new(rate: u64, scheduler: &str) -> Nest {
        let spec = tree::link(Rate::bit_s(rate), scheduler);
        let promised = vec![Ok(promise::Promise::new(0, spec.rate))];
        Nest { spec, promised, rate: vec![rate], conserving: true }
    }

    /// The scheduler inside a class, or of the link for class 0.
    pub fn held(&self, class: u32) -> Option<SchedulerSpec> {
        if class == 0 { Some(self.spec.scheduler.clone()) } else { self.spec.classes[class as usize].scheduler.clone() }
    }

    /// Adds classes with these words inside the class `holder`, which holds a scheduler, and works
    /// out what they are promised. `holds` names the scheduler inside each new class, if any.
    /// Returns the numbers of the new classes.
    pub fn divide(&mut self, holder: u32, settings: &[Settings], holds: &[Option<&'static str>]) -> Vec<u32> {
        let Some(scheduler) = self.held(holder) else { panic!("class {holder} holds no scheduler") };
        let members: Vec<promise::Member<'_>> = settings
            .iter()
            .zip(holds)
            .map(|(settings, holds)| promise::Member {
                parent: None,
                settings,
                leaf: true,
                packets: true,
                holds: holds.is_some(),
            })
            .collect();
        let entry = schedule::find(scheduler.name).expect("a registered scheduler");
        let mut ids = Vec::new();
        for (at, (settings, holds)) in settings.iter().zip(holds).enumerate() {
            let promised = self.promised[holder as usize].clone().and_then(|promised| {
                let place = promise::Place {
                    promised: promised.steady(),
                    rate: Rate::bit_s(self.rate[holder as usize]),
                    packet: self.spec.overhead.charge(self.spec.mtu),
                    scheduler: &scheduler.settings,
                    classes: &members,
                };
                (entry.promises)(&place).swap_remove(at)
            });
            let rate = (entry.guarantee)(settings).map_or(0, Rate::as_bit_s);
            self.rate.push(if rate > 0 { rate } else { self.rate[holder as usize] });
            self.promised.push(promised);
            ids.push(self.spec.classes.len() as u32);
            let scheduler = holds.map(SchedulerSpec::new);
            self.spec.classes.push(ClassSpec { scheduler, ..tree::class(holder, settings.clone(), 40) });
        }
        ids
    }

    /// Adds random classes inside `holder`, `depth` levels deep. With `limited` some of them are
    /// limited.
    pub fn grow(&mut self, random: &mut Random, holder: u32, depth: u32, limited: bool) {
        let Some(scheduler) = self.held(holder) else { return };
        let n = 2 + random.below(3) as usize;
        let percent = 100 / n as u64;
        let mut settings = Vec::new();
        for at in 0..n {
            let limit = limited && limits(scheduler.name) && random.chance(40);
            self.conserving &= !limit && conserves(scheduler.name);
            settings.push(words(scheduler.name, at, self.rate[holder as usize], percent, limit));
        }
        let all = names();
        let holds: Vec<Option<&'static str>> =
            (0..n).map(|at| (depth > 1 && (at == 0 || random.chance(30))).then(|| random.pick(&all))).collect();
        for (id, holds) in self.divide(holder, &settings, &holds).into_iter().zip(holds) {
            if holds.is_some() {
                self.grow(random, id, depth - 1, limited);
            }
        }
    }

    /// Classes that hold no scheduler.
    pub fn leaves(&self) -> Vec<u32> {
        (1..self.spec.classes.len() as u32).filter(|id| self.spec.classes[*id as usize].scheduler.is_none()).collect()
    }
}

/// An event: a packet arrives, or a change is made.
#[derive(Clone, Debug)]
pub enum What {
    Packet { class: u32, bytes: u32 },
    Change(Change),
}

/// A packet that left: when, its class, its handle, and its delay from its arrival until its last
/// bit had left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    pub at: Nanos,
    pub class: u32,
    pub id: u32,
    pub wait: Nanos,
}

/// How the wire runs an engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// Calls `dequeue` also between the times at which it is due.
    pub extra: bool,
    /// Fails if the link idles while packets wait.
    pub conserving: bool,
}

/// Runs an engine until no event is left or `until` has come, and checks its contract: no packet
/// leaves before `next_wakeup`; a call at that time sends a packet or gives a later `next_wakeup`;
/// every packet comes out once.
pub fn run(engine: &mut Engine, rate: Rate, events: &[(Nanos, What)], rules: Rules, until: Nanos) -> Vec<Left> {
    let (mut out, mut lost) = (Vec::new(), 0u64);
    let (mut came, mut start, mut bytes) = (0u32, 0, 0u64);
    let mut busy: Option<Nanos> = None;
    let mut wake: Option<Nanos> = None;
    let mut random = Random::new(7);
    let mut next = 0;
    loop {
        let event = events.get(next).map(|(at, _)| *at);
        let Some(now) = [busy, wake.filter(|_| busy.is_none()), event].into_iter().flatten().min() else { break };
        if now > until {
            break;
        }
        if busy == Some(now) {
            busy = None;
        } else if event == Some(now) && wake.filter(|_| busy.is_none()) != Some(now) {
            next += 1;
            match &events[next - 1].1 {
                What::Packet { class, bytes } => {
                    engine.enqueue(now, *class, Packet::new(came, *bytes));
                    came += 1;
                }
                What::Change(change) => {
                    // A change that is refused, such as the removal of a class that has children,
                    // changes nothing.
                    let _ = engine.apply(now, change);
                }
            }
            lost += engine.drops().count() as u64;
        }
        if busy.is_some() {
            continue;
        }
        let due = wake.take() == Some(now);
        match engine.dequeue(now) {
            Some(departure) => {
                if start + rate.time_for(bytes) < now {
                    (start, bytes) = (now, 0);
                }
                bytes += u64::from(departure.packet.wire);
                let end = start + rate.time_for(bytes);
                busy = Some(end);
                let wait = end - departure.packet.arrived;
                out.push(Left { at: now, class: departure.class, id: departure.packet.handle, wait });
            }
            None => {
                if rules.conserving && engine.backlog() > 0 {
                    let waiting: Vec<u64> = (0..6).map(|class| engine.own_counters(class).queued_packets).collect();
                    panic!(
                        "the link idles at {now} though packets wait, in classes 0 to 5: {waiting:?}; next_wakeup {:?}",
                        engine.next_wakeup()
                    );
                }
                wake = engine.next_wakeup();
                assert!(
                    wake.is_none_or(|at| at > now),
                    "dequeue at {now} (due: {due}) sends nothing, but next_wakeup is {wake:?}"
                );
                if rules.extra {
                    let event = events.get(next).map_or(until, |(at, _)| *at);
                    let before = wake.unwrap_or(until).min(event);
                    let mut at = now;
                    for _ in 0..3 {
                        assert!(
                            engine.dequeue(at).is_none(),
                            "a packet leaves at {at}, though next_wakeup was {wake:?}"
                        );
                        let again = engine.next_wakeup();
                        assert!(
                            again >= wake || wake.is_none() && again.is_none(),
                            "a call at {at} moved next_wakeup from {wake:?} back to {again:?}"
                        );
                        if before > at + 1 {
                            at += random.below(before - at);
                        }
                    }
                }
            }
        }
    }
    let waiting = u64::from(engine.backlog());
    assert_eq!(u64::from(came), out.len() as u64 + lost + waiting, "arrived = sent + dropped + waiting");
    let total = engine.counters(0);
    assert_eq!(
        (total.received_packets() + engine.unclassified().0, total.sent_packets),
        (u64::from(came), out.len() as u64)
    );
    let mut ids: Vec<u32> = out.iter().map(|left| left.id).collect();
    ids.sort_unstable();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "a packet left twice");
    out
}

/// `count` packets or a few more for random classes, with bursts and pauses; `load` percent of the
/// rate on average.
pub fn traffic(random: &mut Random, classes: &[u32], rate: u64, load: u64, count: usize) -> Vec<(Nanos, What)> {
    let (mut now, mut out) = (0, Vec::new());
    while out.len() < count {
        let class = random.pick(classes);
        let burst = if random.chance(20) { 1 + random.below(12) } else { 1 };
        let mut bytes_sent = 0;
        for _ in 0..burst {
            let bytes = random.pick(&[40, 576, 1500, 1500, 1000]);
            bytes_sent += u64::from(bytes);
            out.push((now, What::Packet { class, bytes }));
        }
        now += random.below(2 * bytes_sent * 8 * 1_000_000_000 * 100 / (rate * load)) + 1;
    }
    out
}

/// The longest delay of a packet of `class` until its last bit has left. Its source keeps to a
/// token bucket of `rate` and `burst` bytes, while all other leaves have packets most of the time.
/// Runs until `packets` packets of all classes have left.
pub fn longest_wait(nest: &Nest, class: u32, rate: Rate, burst: u64, random: &mut Random, packets: usize) -> Nanos {
    const SECOND: u128 = 1_000_000_000;
    let mut engine = Engine::new(&nest.spec).expect("a valid link");
    let others: Vec<u32> = nest.leaves().into_iter().filter(|leaf| *leaf != class).collect();
    let full = u128::from(burst) * 8 * SECOND;
    let (mut tokens, mut filled) = (full, 0);
    // Begins after a second of idle time, in which a scheduler may allow a class a burst.
    let (mut now, mut next) = (1_000_000_000, 1_000_000_000);
    let mut size = 1500;
    let (mut start, mut bytes, mut free) = (now, 0u64, now);
    let (mut sent, mut worst, mut handle) = (0, 0, 0u32);
    while sent < packets {
        while next <= now {
            tokens = (tokens + u128::from(next - filled) * u128::from(rate.as_bit_s())).min(full);
            filled = next;
            let cost = u128::from(size) * 8 * SECOND;
            if tokens < cost {
                next += (cost - tokens).div_ceil(u128::from(rate.as_bit_s())) as Nanos;
                continue;
            }
            tokens -= cost;
            handle += 1;
            engine.enqueue(next, class, Packet::new(handle, size as u32));
            size = if random.chance(70) { 1500 } else { 1 + random.below(1500) };
            if random.chance(8) {
                next += random.below(100_000_000);
            }
        }
        for other in &others {
            // Now and then a class runs empty, and comes back with a burst.
            while engine.counters(*other).queued_packets < 3 && random.chance(97) {
                let size = if random.chance(60) { 1500 } else { 1 + random.below(1500) as u32 };
                engine.enqueue(now, *other, Packet::new(0, size));
            }
        }
        assert!(!engine.has_drops());
        if free <= now
            && let Some(departure) = engine.dequeue(now)
        {
            if free < now {
                (start, bytes) = (now, 0);
            }
            bytes += u64::from(departure.packet.wire);
            free = start + nest.spec.rate.time_for(bytes);
            sent += 1;
            if departure.class == class {
                worst = worst.max(free - departure.packet.arrived);
            }
        }
        let event = if free > now { free } else { engine.next_wakeup().unwrap_or(Nanos::MAX).max(now + 1) };
        now = event.min(next.max(now + 1));
    }
    worst
}
