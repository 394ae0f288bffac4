//! `regulator auto` is a wire of the link's rate: what leaves leaves when it would begin there,
//! whatever the ring of the device holds, under every scheduler. And a change that changes nothing
//! changes nothing, whatever the regulator.

use crate::support;
use crate::support::nest;
use crate::support::tree;
use crate::support::wire;

use altq_engine::shape::pacer::{LATE, SEEN_LATE};
use altq_engine::spec::{LinkSpec, Regulator, Timer};
use altq_engine::units::{Nanos, Rate, SECOND};
use altq_engine::{Change, Engine, Packet};

use nest::{Nest, What};
use support::{MS, Random};
use wire::{Arrival, Caller, Departure};

/// A seed that is another one in every run, and printed.
fn seed(test: &str) -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = since.as_nanos() as u64;
    println!("{test}: seed {seed}");
    seed
}

/// A tree of any schedulers, and packets for its leaves.
fn draw(random: &mut Random) -> (Nest, Vec<Arrival>) {
    let rate = random.pick(&[64_000, 2_000_000, 3_333_333, 45_000_000, 999_999_937]);
    let names = nest::names();
    let mut nest = Nest::new(rate, random.pick(&names));
    let depth = 1 + random.below(2) as u32;
    nest.grow(random, 0, depth, true);
    let load = 50 + random.below(100);
    let traffic = nest::traffic(random, &nest.leaves(), rate, load, 300);
    let arrival = |(at, what)| match what {
        What::Packet { class, bytes } => Arrival { at, class, bytes },
        What::Change(_) => unreachable!("traffic has no changes"),
    };
    (nest, traffic.into_iter().map(arrival).collect())
}

fn run(spec: &LinkSpec, regulator: Regulator, ring: usize, arrivals: &[Arrival]) -> Vec<(Nanos, u32)> {
    let mut engine = Engine::new(&LinkSpec { regulator, ..spec.clone() }).unwrap();
    let caller = Caller { rate: spec.rate, timer: Timer::Exact, ring };
    let left = wire::run(&mut engine, caller, Nanos::MAX, arrivals.iter().copied());
    left.into_iter().map(|Departure { at, id, .. }| (at, id)).collect()
}

#[test]
fn the_ring_of_the_device_makes_no_difference() {
    let mut random = Random::new(seed("rings"));
    let mut differs = 0;
    for round in 0..400 {
        let (nest, arrivals) = draw(&mut random);
        let wire = run(&nest.spec, Regulator::None, 1, &arrivals);
        assert!(!wire.is_empty());
        for ring in [1, 2, 64, usize::MAX] {
            let auto = run(&nest.spec, Regulator::Auto, ring, &arrivals);
            let first = auto.iter().zip(&wire).find(|(auto, wire)| auto != wire);
            assert!(auto == wire, "round {round}, a ring of {ring}: {first:?}, {:?}", nest.spec);
        }
        // Without a regulator it does.
        differs += u32::from(run(&nest.spec, Regulator::None, 64, &arrivals) != wire);
    }
    assert!(differs > 300, "{differs}");
}

#[test]
fn the_rate_is_kept_to_the_nanosecond_however_late_the_caller() {
    let mut random = Random::new(seed("late"));
    for rate in [64_000u64, 3_333_333, 100_000_000, 999_999_937, 40_000_000_007] {
        for (timer, late) in
            [(Timer::Exact, 0), (Timer::Exact, LATE), (Timer::Tick(10 * MS), 0), (Timer::Tick(3), LATE - 3)]
        {
            let spec = LinkSpec { regulator: Regulator::Auto, timer, ..tree::link(Rate::bit_s(rate), "fifo") };
            let spec = LinkSpec { classes: vec![tree::class(0, Default::default(), 10_000)], ..spec };
            let mut engine = Engine::new(&spec).unwrap();
            // Of such lengths that a packet takes 10 µs at least, and 2000 of them 2 s at least.
            let size = |random: &mut Random| (rate / 8_000).clamp(100, 60_000) as u32 - random.below(99) as u32;
            let lengths: Vec<u32> = (0..2000).map(|_| size(&mut random)).collect();
            for (n, bytes) in lengths.iter().enumerate() {
                engine.enqueue(0, 0, Packet::new(n as u32, *bytes));
            }
            let (mut now, mut sum, mut sent) = (0, 0u64, 0);
            while sent < lengths.len() {
                while let Some(departure) = engine.dequeue(now) {
                    // It begins when all before it have ended, and never sooner.
                    let begin = Rate::bit_s(rate).time_for(sum);
                    let tick = if let Timer::Tick(tick) = timer { tick } else { 0 };
                    assert!((begin..=begin + tick + late).contains(&now), "{rate} {timer:?} {late}: {begin} {now}");
                    sum += u64::from(departure.packet.len);
                    sent += 1;
                }
                let Some(at) = engine.next_wakeup() else { break };
                now = wire::rounded(at, timer) + if late > 0 { random.below(late + 1) } else { 0 };
            }
            assert_eq!(sent, 2000);
        }
    }
}

/// A packet and how late the caller is at the next time that the engine names.
#[derive(Clone, Copy, Debug)]
struct Step {
    gap: Nanos,
    class: u32,
    bytes: u32,
    late: Nanos,
}

/// Runs steps through an engine before a device that takes all. Returns the worst of all spans: how
/// much more has left than the rate brought in it, without its last packet, as time.
fn burst(spec: &LinkSpec, seen_late: Nanos, steps: &[Step]) -> f64 {
    let mut engine = Engine::new(spec).unwrap();
    engine.set_seen_late(seen_late);
    let rate = i128::from(spec.rate.as_bit_s());
    let (mut now, mut at, mut next) = (0, 0, 0);
    let mut wake: Option<Nanos> = None;
    // Bits that have left times SECOND, less what the rate brought; and the least so far.
    let (mut sum, mut least, mut worst) = (0i128, i128::MAX, 0i128);
    loop {
        let arrival = steps.get(next).map(|step| at + step.gap);
        let Some(event) = [wake, arrival].into_iter().flatten().min() else { return worst as f64 / rate as f64 };
        // A late caller looks at what came meanwhile at its own time.
        now = event.max(now);
        if arrival == Some(event) && wake != Some(event) {
            let step = steps[next];
            (at, next) = (at + step.gap, next + 1);
            engine.enqueue(now, step.class, Packet::new(next as u32, step.bytes));
            engine.drops().for_each(drop);
        }
        while let Some(departure) = engine.dequeue(now) {
            let beyond = sum - i128::from(now) * rate;
            least = least.min(beyond);
            worst = worst.max(beyond - least);
            sum += i128::from(departure.packet.wire) * 8 * i128::from(SECOND);
        }
        let late = steps.get(next).map_or(0, |step| step.late);
        wake = engine.next_wakeup().map(|at| at.max(now + 1).saturating_add(late));
        if now > 1000 * SECOND {
            return worst as f64 / rate as f64;
        }
    }
}

/// An adversary that mutates traffic and the caller's lateness towards the bound.
#[test]
fn no_span_of_time_carries_more_than_the_rule_says() {
    let mut random = Random::new(seed("bursts"));
    // How late a packet may be seen, how late the caller may be, and the bound.
    for (seen_late, late, bound) in
        [(0, 0, 0), (SEEN_LATE, 0, SEEN_LATE), (0, 20 * MS, LATE), (SEEN_LATE, 20 * MS, LATE)]
    {
        let mut nearest = 0.0f64;
        for _ in 0..40 {
            let (nest, arrivals) = draw(&mut random);
            let spec = LinkSpec { regulator: Regulator::Auto, ..nest.spec.clone() };
            let mut last = 0;
            let mut steps: Vec<Step> = arrivals
                .iter()
                .map(|arrival| {
                    let gap = arrival.at - std::mem::replace(&mut last, arrival.at);
                    Step { gap, class: arrival.class, bytes: arrival.bytes, late: 0 }
                })
                .collect();
            let leaves = nest.leaves();
            let mut best = burst(&spec, seen_late, &steps);
            for _ in 0..60 {
                let mut tried = steps.clone();
                for _ in 0..1 + random.below(8) {
                    let at = random.below(tried.len() as u64) as usize;
                    let step = &mut tried[at];
                    match random.below(4) {
                        0 => step.gap = if random.chance(50) { 0 } else { random.below(20 * MS) },
                        1 => step.bytes = random.pick(&[1, 40, 1500]),
                        2 => step.class = random.pick(&leaves),
                        _ => step.late = if late > 0 { random.below(late) } else { 0 },
                    }
                }
                let found = burst(&spec, seen_late, &tried);
                if found >= best {
                    (best, steps) = (found, tried);
                }
            }
            // What is less than a nanosecond is rounding: a packet begins at a whole one.
            assert!(best <= bound as f64 + 1.0, "{best} of {bound} ns: {:?}\n{steps:?}", nest.spec);
            nearest = nearest.max(best);
        }
        println!("seen {seen_late} ns late, asked {late} ns late: {nearest} of {bound} ns");
        assert!(nearest >= 0.9 * bound as f64, "{nearest} of {bound}");
    }
}

#[test]
fn calls_without_a_reason_change_nothing() {
    let mut random = Random::new(seed("calls"));
    for round in 0..200 {
        let (nest, arrivals) = draw(&mut random);
        let events: Vec<_> = arrivals
            .iter()
            .map(|arrival| (arrival.at, What::Packet { class: arrival.class, bytes: arrival.bytes }))
            .collect();
        let spec = LinkSpec { regulator: Regulator::Auto, ..nest.spec.clone() };
        let once = |extra| {
            let rules = nest::Rules { extra, ..nest::Rules::default() };
            nest::run(&mut Engine::new(&spec).unwrap(), Rate::mbit_s(100_000), &events, rules, Nanos::MAX / 2)
        };
        assert_eq!(once(true), once(false), "round {round}: {spec:?}");
    }
}

#[test]
fn a_change_that_changes_nothing_changes_nothing() {
    let mut random = Random::new(seed("changes"));
    for regulator in [Regulator::Auto, Regulator::Altq, Regulator::Depth(700), Regulator::Depth(20_000)] {
        for _ in 0..30 {
            let rate = Rate::bit_s(100_000 + random.below(20_000_000));
            let spec = LinkSpec { regulator, ..tree::link(rate, "fifo") };
            let spec = LinkSpec { classes: vec![tree::class(0, Default::default(), 10_000)], ..spec };
            let traffic = nest::traffic(&mut random, &[0], rate.as_bit_s(), 90, 300);
            let arrivals: Vec<Arrival> = traffic
                .into_iter()
                .filter_map(|(at, what)| match what {
                    What::Packet { class, bytes } => Some(Arrival { at, class, bytes }),
                    What::Change(_) => None,
                })
                .collect();
            let caller = Caller { rate: Rate::mbit_s(100_000), timer: Timer::Exact, ring: 64 };
            // Every question is an occasion for ALTQ's bucket to forgive a debt or not: the same
            // ones are asked without the changes.
            let every = 1 + random.below(10 * MS);
            let run = |changes: bool| {
                let mut engine = Engine::new(&spec).unwrap();
                let end = arrivals.last().unwrap().at;
                wire::run_with(&mut engine, caller, Nanos::MAX, arrivals.iter().copied(), |engine, now| {
                    if changes {
                        engine.apply(now, &Change::SetRate(rate)).unwrap();
                        engine.apply(now, &Change::SetRegulator(regulator)).unwrap();
                    }
                    (now < end).then_some(now + every)
                })
            };
            assert!(run(true) == run(false), "{regulator:?} at {rate}");
        }
    }
}

#[test]
fn another_rate_holds_from_the_next_packet_on() {
    // 8 Mbit/s: a byte a microsecond. From 2.5 ms on it is 4 Mbit/s: the packet that began at 2 ms
    // ends at 3, the next ones take 2 ms each.
    let spec = LinkSpec { regulator: Regulator::Auto, ..tree::link(Rate::mbit_s(8), "fifo") };
    let spec = LinkSpec { classes: vec![tree::class(0, Default::default(), 100)], ..spec };
    let mut engine = Engine::new(&spec).unwrap();
    let arrivals = (0..6).map(|_| Arrival { at: 0, class: 0, bytes: 1000 });
    let caller = Caller { rate: Rate::mbit_s(100_000), timer: Timer::Exact, ring: 64 };
    let left = wire::run_with(&mut engine, caller, SECOND, arrivals, |engine, now| {
        if now > 0 {
            engine.apply(now, &Change::SetRate(Rate::mbit_s(4))).unwrap();
        }
        (now == 0).then_some(2_500_000)
    });
    assert_eq!(left.iter().map(|left| left.at).collect::<Vec<_>>(), [0, 1, 2, 3, 5, 7].map(|ms| ms * MS));
}
