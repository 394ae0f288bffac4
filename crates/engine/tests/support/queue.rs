//! A link with one class, for tests of the decisions of its queue.
use altq_engine::random::{self, SplitMix64};
use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::spec::{ClassSpec, LinkSpec, QueueSpec, ROOT, SchedulerSpec, SpecError};
use altq_engine::units::Rate;
use altq_engine::{Change, Engine, Packet};

/// The class.
pub const CLASS: u32 = 1;

/// A queue with these words.
pub fn queue(name: &'static str, limit: Limit, words: &[(&'static str, Value)]) -> QueueSpec {
    let mut settings = Settings::new();
    for (word, value) in words {
        settings.set(word, *value);
    }
    QueueSpec { name, limit, settings }
}

/// A link of `rate` bit/s with the scheduler fifo, and one class that has this queue.
pub fn link(rate: u64, queue: QueueSpec) -> Result<Engine, SpecError> {
    let class = |queue| ClassSpec { parent: ROOT, settings: Settings::new(), queue, scheduler: None };
    Engine::new(&LinkSpec::new(Rate::bit_s(rate), SchedulerSpec::new("fifo"), vec![class(None), class(Some(queue))]))
}

/// Enqueues a packet. `None` if it was queued, else why it was dropped.
pub fn arrive(engine: &mut Engine, now: u64, packet: Packet) -> Option<&'static str> {
    engine.enqueue(now, CLASS, packet);
    let drops: Vec<_> = engine.drops().collect();
    drops.iter().find(|drop| drop.packet.handle == packet.handle).map(|drop| drop.reason.name())
}

/// The queue's counter of this name.
#[track_caller]
pub fn counter(engine: &Engine, name: &str) -> u64 {
    let all = engine.queue_counters(CLASS);
    all.iter().find(|(word, _)| *word == name).unwrap_or_else(|| panic!("{name} is not in {all:?}")).1
}

/// Gives the queue other words.
pub fn change(engine: &mut Engine, now: u64, queue: QueueSpec) -> Result<(), SpecError> {
    engine.apply(now, &Change::SetQueue { class: CLASS, queue }).map(|_| ())
}

/// How far the counts of k equally likely cases are from equal: the deviation of chi-square from
/// its mean k - 1, in standard deviations (its variance is 2 (k - 1)).
pub fn uneven(counts: &[u64]) -> f64 {
    let cases = counts.len() as f64;
    let mean = counts.iter().sum::<u64>() as f64 / cases;
    let square: f64 = counts.iter().map(|n| (*n as f64 - mean).powi(2) / mean).sum();
    (square - (cases - 1.0)) / (2.0 * (cases - 1.0)).sqrt()
}

/// The random numbers of a test's traffic, or those that a queue draws.
#[derive(Clone)]
pub struct Random(SplitMix64);

impl Random {
    /// A generator of this seed.
    pub fn new(seed: u64) -> Random {
        Random(SplitMix64::new(seed))
    }

    /// The generator of the queue of [`CLASS`] after `set_seed(seed)`.
    pub fn of_class(seed: u64) -> Random {
        Random::new(random::mix(seed ^ (u64::from(CLASS) + 1).wrapping_mul(random::GOLDEN_GAMMA)))
    }

    /// A number from 0 to below 1.
    pub fn fraction(&mut self) -> f64 {
        (self.0.bits() >> 11) as f64 * 2.0f64.powi(-53)
    }

    /// An integer below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        (self.fraction() * n as f64) as u64
    }
}

/// An arrival, or a moment at which the wire takes a packet.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Arrival(u64, Packet),
    Departure(u64),
}

/// Traffic in phases of overload, light load and silence, over a wire whose rate changes. Sojourn
/// times range from none to seconds.
pub fn traffic(seed: u64, steps: u32) -> Vec<Step> {
    let mut random = Random::new(seed);
    let (mut now, mut all, mut handle) = (0u64, Vec::new(), 0);
    let (mut share, mut pace) = (50, 1_000_000);
    for step in 0..steps {
        if step % 400 == 0 {
            share = [30, 48, 52, 55, 60, 70, 90][random.below(7) as usize];
            pace = [50_000, 300_000, 1_000_000, 3_000_000][random.below(4) as usize];
            if random.below(3) == 0 {
                now += random.below(3_000_000_000);
            }
        }
        now += random.below(2 * pace);
        if random.below(100) < share {
            let len = [40, 300, 1000, 1500][random.below(4) as usize];
            all.push(Step::Arrival(now, Packet { ecn: random.below(4) as u8, ..Packet::new(handle, len) }));
            handle += 1;
        } else {
            all.push(Step::Departure(now));
        }
    }
    all
}

/// What became of a packet: when, its handle, and 's' for sent, 'm' for sent with a mark or 'd' for
/// dropped.
pub type Fate = (u64, u32, char);

/// Runs traffic through an engine. What became of each packet, in order of time.
pub fn fates(engine: &mut Engine, traffic: &[Step]) -> Vec<Fate> {
    let mut all = Vec::new();
    for step in traffic {
        let now = match *step {
            Step::Arrival(now, packet) => {
                engine.enqueue(now, CLASS, packet);
                now
            }
            Step::Departure(now) => {
                if let Some(departure) = engine.dequeue(now) {
                    let mark = if departure.packet.ecn == 3 { 'm' } else { 's' };
                    all.push((now, departure.packet.handle, mark));
                }
                now
            }
        };
        all.extend(engine.drops().map(|drop| (now, drop.packet.handle, 'd')));
    }
    all.sort_unstable();
    all
}
