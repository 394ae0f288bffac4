//! A replay over a card with several transmit queues. Each queue has an engine of its own with the
//! link's policy, as each ring in DragonFly has a plain queue of its own (docs/reference/altq.md
//! 9). The engines fill the rings, and one wire serves the rings in turn ([`Rings`]).

use std::collections::VecDeque;

use altq_cases::report::Collector;
use altq_config::Link;
use altq_engine::account::Counters;
use altq_engine::drive::{self, Event};
use altq_engine::schedule;
use altq_engine::spec::{LinkSpec, Regulator};
use altq_engine::units::Nanos;
use altq_engine::{Departure, Engine, Packet};

use super::{Arrivals, Observer, Options, ReplayError, Report, finish};
use crate::rings::Rings;

/// An error if a link cannot be used with several transmit queues.
pub(crate) fn check(spec: &LinkSpec) -> Result<(), String> {
    if !schedule::find(spec.scheduler.name).is_some_and(|entry| entry.in_order) {
        return Err(format!(
            "scheduler {} has one queue to the card: what goes by another one would pass it by, so ALTQ's disciplines \
             use only the first (docs/reference/altq.md 9). Several transmit queues need scheduler {}",
            spec.scheduler.name,
            schedule::PLAIN.name
        ));
    }
    if !matches!(spec.regulator, Regulator::None | Regulator::Auto) {
        return Err("a regulator stands before one transmit queue, not before several; leave it out".into());
    }
    Ok(())
}

/// What the engine of each of several transmit queues is made from. None of them knows what the
/// others send, so the card's wire keeps the rate.
pub(crate) fn each(spec: &LinkSpec) -> LinkSpec {
    LinkSpec { regulator: Regulator::None, ..spec.clone() }
}

/// A packet that was handed over and is not reported to the observer yet.
struct Pending {
    /// When it was handed over.
    at: Nanos,
    departure: Departure,
    /// When its last bit left the wire, if it has.
    end: Option<Nanos>,
}

/// [`super::run`] through the rings of a card. With one ring the result is that of the wire.
pub(super) fn run(
    link: &Link,
    arrivals: &Arrivals,
    options: &Options,
    observer: &mut impl Observer,
) -> Result<Report, ReplayError> {
    let mut spec = link.spec.clone();
    spec.timer = options.timer;
    let queues = options.tx_queues;
    if queues > 1 {
        check(&spec).map_err(ReplayError::Queues)?;
        spec = each(&spec);
    }
    arrivals.check_queues(queues).map_err(ReplayError::Queues)?;
    let mut engines = (0..queues).map(|_| Engine::new(&spec)).collect::<Result<Vec<_>, _>>()?;
    for (seed, engine) in (options.seed..).zip(&mut engines) {
        engine.set_seed(seed);
    }
    let wire_rate = options.wire_rate.unwrap_or(spec.rate);
    let mut rings = Rings::new(wire_rate, queues, options.tx_ring, spec.overhead);
    let mut collector = Collector::new(spec.classes.len(), options.from, options.to.unwrap_or(Nanos::MAX));
    let mut timers: Vec<Option<Nanos>> = vec![None; queues];
    // Departures are reported in the order in which they were handed over. So each waits until
    // those before it have left.
    let mut pending: VecDeque<Pending> = VecDeque::new();
    let mut written = 0u32;
    let (mut next, mut last_end) = (0usize, 0);
    loop {
        let timer = timers.iter().flatten().min().copied();
        let Some((now, event)) = drive::first(rings.next_end(), timer, arrivals.time(next)) else { break };
        if collector.needs_counters(now) {
            collector.note_counters(now, &all_counters(&engines));
        }
        // A bit for each queue whose engine must be asked.
        let mut asked = 0u64;
        match event {
            Event::Complete => {
                if let Some(ended) = rings.complete() {
                    last_end = now;
                    asked = 1 << ended.queue;
                    if let Some(packet) = ended.packet
                        && let Some(done) = pending.get_mut(packet.before.wrapping_sub(written) as usize)
                    {
                        done.end = Some(now);
                    }
                    while let Some(done) = pending.pop_front_if(|done| done.end.is_some()) {
                        written = written.wrapping_add(1);
                        let end = done.end.unwrap_or(done.at);
                        observer.sent(done.at, done.departure.packet.handle as usize, &done.departure, end)?;
                    }
                }
            }
            Event::Timer => {
                let fires = timers.iter().enumerate().filter(|(_, at)| **at == Some(now));
                asked = fires.fold(0, |set, (queue, _)| set | 1 << queue);
            }
            Event::Arrival => {
                let packet = arrivals.descriptor(next);
                let (class, queue) = (arrivals.packet(next).0, arrivals.queue(next, queues));
                collector.arrived(now, class, packet.len);
                engines[queue].enqueue(now, class, Packet { handle: next as u32, ..packet });
                asked = 1 << queue;
                next += 1;
            }
        }
        for (queue, engine) in engines.iter_mut().enumerate().filter(|(queue, _)| asked & (1 << queue) != 0) {
            let filled = drive::fill(engine, now, &mut rings.ring(queue), |departure, _| {
                let packet = &departure.packet;
                collector.sent(now, departure.class, packet.len, packet.arrived);
                pending.push_back(Pending { at: now, departure, end: None });
                Ok::<_, ReplayError>(())
            });
            timers[queue] = filled?.wakeup(engine, now, options.timer);
            for drop in engine.drops() {
                if let Some(class) = drop.class {
                    collector.dropped(drop.at, class, drop.packet.len);
                }
                observer.dropped(drop.packet.handle as usize, &drop)?;
            }
        }
        rings.start(now)?;
    }
    engines.iter().for_each(|engine| observer.ended(last_end, engine));
    Ok(finish(link, arrivals, options, wire_rate, collector, &all_counters(&engines), last_end))
}

/// The sums of all engines' counters, by class.
pub(crate) fn all_counters<'a>(engines: impl IntoIterator<Item = &'a Engine>) -> Vec<Counters> {
    let mut sums: Vec<Counters> = Vec::new();
    for engine in engines {
        let counters = engine.all_counters();
        sums.resize(sums.len().max(counters.len()), Counters::default());
        sums.iter_mut().zip(counters).for_each(|(sum, more)| *sum += more);
    }
    sums
}
