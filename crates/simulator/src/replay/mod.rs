//! `altq replay`: sends a list of packets whose classes are given through the engine of one link,
//! in virtual time.
//!
//! The wire sends one packet at a time. The engine runs on every arrival, whenever a packet has
//! left the wire, and at the times that [`Engine::next_wakeup`] gives. At one instant the order is:
//! transmissions complete, timers, arrivals (docs/replay.md). After the last arrival the replay
//! goes on until the link is empty or nothing more can happen.

mod arrivals;
mod columns;
mod csv;
mod output;
pub(crate) mod queues;

use altq_config::Link;
use altq_engine::account::Counters;
use altq_engine::drive::{self, Event};
use altq_engine::spec::{SpecError, Timer};
use altq_engine::units::{Nanos, Rate};
use altq_engine::{Departure, Drop, Engine, Packet};
use serde::{Deserialize, Serialize};

pub use arrivals::{Arrivals, ArrivalsError, Cut, flow_hash};
pub use columns::{ColumnError, Columns};
pub use output::CsvOutput;

use altq_cases::report::{ClassReport, Collector, names};

use crate::wire::{BeyondTime, Wire};

#[cfg(test)]
mod tests;

/// How a replay is run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The wire's rate; `None`: the link's.
    pub wire_rate: Option<Rate>,
    /// When timers can fire. See [`tick`](altq_cases::limits::tick).
    pub timer: Timer,
    /// Packets that the driver's ring holds, the one on the wire included. At least 1.
    pub tx_ring: usize,
    /// Transmit queues of the card, each with a ring of that size, 1 to
    /// [`MOST_QUEUES`](altq_cases::limits::MOST_QUEUES).
    pub tx_queues: usize,
    /// When the window begins in which packets are counted.
    pub from: Nanos,
    /// When that window ends; `None`: when the last packet has left the wire.
    pub to: Option<Nanos>,
    /// The seed of the queues' random numbers.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { wire_rate: None, timer: Timer::Exact, tx_ring: 1, tx_queues: 1, from: 0, to: None, seed: 1 }
    }
}

/// Is called for every packet that leaves or is dropped.
pub trait Observer {
    /// The packet at place `at` of the list was handed over at `now`; its last bit leaves at
    /// `wire_end`.
    fn sent(&mut self, now: Nanos, at: usize, departure: &Departure, wire_end: Nanos) -> std::io::Result<()>;

    /// The packet at place `at` was dropped.
    fn dropped(&mut self, at: usize, drop: &Drop) -> std::io::Result<()>;

    /// The replay is over: the last packet left the wire after `span`. `engine` is that of the
    /// link; with several transmit queues this is called once for each one's engine.
    fn ended(&mut self, _span: Nanos, _engine: &Engine) {}
}

/// An observer that does nothing.
impl Observer for () {
    fn sent(&mut self, _: Nanos, _: usize, _: &Departure, _: Nanos) -> std::io::Result<()> {
        Ok(())
    }

    fn dropped(&mut self, _: usize, _: &Drop) -> std::io::Result<()> {
        Ok(())
    }
}

/// The result of a replay: `altq.replay/1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// `altq.replay/1`.
    pub schema: String,
    /// When the window begins.
    pub from_ns: Nanos,
    /// When the window ends; that instant is not part of it.
    pub to_ns: Nanos,
    /// A row for each class, that of the link first.
    pub classes: Vec<ClassReport>,
    /// Reservations about this result: `wire_slower_than_link`, `cut_short`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<String>,
}

/// The mark of a result whose wire is slower than the policy's link: guarantees may not hold
/// (docs/reference/cbq.md rule 14).
pub const WIRE_SLOWER: &str = "wire_slower_than_link";

/// The mark of a result whose list of packets ends within a line.
pub const CUT_SHORT: &str = "cut_short";

/// Why a replay failed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The link cannot be built.
    #[error("{0}")]
    Spec(#[from] SpecError),
    /// What was observed could not be written.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The wire is so slow that the end of a transmission does not fit 64 bits of nanoseconds.
    #[error("the packets need more than 584 years on a wire of {0}")]
    BeyondTime(Rate),
    /// The list has more packets than a handle of 32 bits can tell apart.
    #[error("the list has {0} packets; at most 4294967295 can be replayed at once")]
    TooMany(usize),
    /// The link or the list cannot be used with several transmit queues.
    #[error("{0}")]
    Queues(String),
}

impl From<BeyondTime> for ReplayError {
    fn from(BeyondTime { rate }: BeyondTime) -> ReplayError {
        ReplayError::BeyondTime(rate)
    }
}

/// Runs the list through the link's engine.
pub fn run(
    link: &Link,
    arrivals: &Arrivals,
    options: &Options,
    observer: &mut impl Observer,
) -> Result<Report, ReplayError> {
    if arrivals.len() > u32::MAX as usize {
        return Err(ReplayError::TooMany(arrivals.len()));
    }
    if options.tx_queues > 1 {
        return queues::run(link, arrivals, options, observer);
    }
    let mut spec = link.spec.clone();
    spec.timer = options.timer;
    let mut engine = Engine::new(&spec)?;
    engine.set_seed(options.seed);
    let wire_rate = options.wire_rate.unwrap_or(spec.rate);
    let mut wire = Wire::new(wire_rate, options.tx_ring);
    let mut collector = Collector::new(spec.classes.len(), options.from, options.to.unwrap_or(Nanos::MAX));
    let (mut next, mut timer, mut last_end) = (0usize, None::<Nanos>, 0);
    while let Some((now, event)) = drive::first(wire.next_end(), timer, arrivals.time(next)) {
        if collector.needs_counters(now) {
            collector.note_counters(now, &engine.all_counters());
        }
        match event {
            Event::Complete => wire.complete(),
            Event::Timer => {}
            Event::Arrival => {
                let (class, packet) = (arrivals.packet(next).0, arrivals.descriptor(next));
                collector.arrived(now, class, packet.len);
                engine.enqueue(now, class, Packet { handle: next as u32, ..packet });
                next += 1;
            }
        }
        let filled = drive::fill(&mut engine, now, &mut wire, |departure, taken| {
            let packet = &departure.packet;
            last_end = taken.end.unwrap_or(now);
            collector.sent(now, departure.class, packet.len, packet.arrived);
            observer.sent(now, packet.handle as usize, &departure, last_end).map_err(ReplayError::Io)
        });
        timer = filled?.wakeup(&mut engine, now, options.timer);
        if engine.has_drops() {
            for drop in engine.drops() {
                if let Some(class) = drop.class {
                    collector.dropped(drop.at, class, drop.packet.len);
                }
                observer.dropped(drop.packet.handle as usize, &drop)?;
            }
        }
    }
    observer.ended(last_end, &engine);
    Ok(finish(link, arrivals, options, wire_rate, collector, &engine.all_counters(), last_end))
}

/// The report of a run that is over.
fn finish(
    link: &Link,
    arrivals: &Arrivals,
    options: &Options,
    wire_rate: Rate,
    collector: Collector,
    counters: &[Counters],
    last_end: Nanos,
) -> Report {
    let to = options.to.unwrap_or(last_end);
    let classes = collector.rows(&names(link), counters, to);
    let mut marks = Vec::new();
    if wire_rate < link.spec.rate {
        marks.push(WIRE_SLOWER.to_string());
    }
    if arrivals.cut.is_some() {
        marks.push(CUT_SHORT.to_string());
    }
    Report { schema: "altq.replay/1".into(), from_ns: options.from, to_ns: to, classes, marks }
}
