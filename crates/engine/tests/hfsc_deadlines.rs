//! HFSC: deadlines. The bound is theorem 1 of Stoica, Zhang and Ng (SIGCOMM 1997): while the
//! real-time curves add up to no more than the link, no packet's deadline is missed by more than a
//! packet of maximum length takes. Deadlines are worked out here from the paper's definition: the
//! least of the curves that began whenever the class became active.

use crate::support;
use crate::support::hfsc;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use altq_engine::shape::service_curve::ServiceCurve;
use altq_engine::units::Nanos;
use altq_engine::{Engine, Packet};
use hfsc::{Class, MBIT, bent, line, link, share};
use support::{MS, Random, S};

/// The deadline curve of a class by its definition.
struct Deadlines {
    curve: ServiceCurve,
    /// When it became active, and what it had been served by deadline until then, bytes.
    starts: Vec<(Nanos, u64)>,
}

impl Deadlines {
    /// When `bytes` of service by deadline in all are due, ns.
    fn due(&self, bytes: u64) -> f64 {
        self.starts.iter().map(|(at, had)| *at as f64 + self.time(bytes - had)).fold(0.0, f64::max)
    }

    /// The time after which the curve gives so many bytes.
    fn time(&self, bytes: u64) -> f64 {
        let (first, then) = (self.curve.first.as_bit_s() as f64, self.curve.then.as_bit_s() as f64);
        let until = self.curve.until as f64;
        let bits = bytes as f64 * 8e9;
        if bits <= first * until && (bytes == 0 || first > 0.0) {
            return if bytes == 0 { 0.0 } else { bits / first };
        }
        until + (bits - first * until) / then
    }

    /// Becomes active. Of starts whose first piece is over, only the latest line counts: they are
    /// parallel.
    fn start(&mut self, at: Nanos, had: u64) {
        let early = self.curve.first.as_bit_s() as f64 * self.curve.until as f64 / 8e9;
        let over = |start: &(Nanos, u64)| (had - start.1) as f64 > early;
        let line = |start: &(Nanos, u64)| start.0 as f64 - start.1 as f64 * 8e9 / self.curve.then.as_bit_s() as f64;
        let best = self.starts.iter().copied().filter(over).max_by(|a, b| line(a).total_cmp(&line(b)));
        self.starts.retain(|start| !over(start));
        self.starts.extend(best);
        self.starts.push((at, had));
    }
}

/// A link with sources that come in bursts.
struct Scene {
    rate: u64,
    classes: Vec<Class>,
    /// The largest packet, and of each class the least and the largest.
    largest: u32,
    sizes: Vec<(u32, u32)>,
    /// The mean time from packet to packet within a burst, and from burst to burst, of each class;
    /// 0 for none.
    gaps: Vec<(Nanos, Nanos)>,
}

/// What came out: packets, how many of them went by deadline, and the greatest lateness as a part
/// of the bound.
#[derive(Default, Debug)]
struct Outcome {
    packets: u64,
    by_deadline: u64,
    worst: f64,
}

fn random_scene(random: &mut Random) -> Scene {
    let rate = random.pick(&[2 * MBIT, 10 * MBIT, 100 * MBIT, 1000 * MBIT]);
    let (n, inner) = (2 + random.below(8), random.below(4));
    let mut classes: Vec<Class> = Vec::new();
    for at in 0..inner {
        classes.push(share(
            if at > 0 && random.chance(40) { random.below(at) as u32 + 1 } else { 0 },
            1 + random.below(rate / 8),
        ));
    }
    // First pieces of the same length that fill the link, second pieces that do: tight at every
    // time. Or different ones.
    let until = (1 + random.below(40)) * MS;
    let parts = |random: &mut Random| {
        let weights: Vec<u64> = (0..n).map(|_| random.below(100)).collect();
        let sum = weights.iter().sum::<u64>().max(1);
        weights.into_iter().map(|w| rate / sum * w).collect::<Vec<u64>>()
    };
    let (first, then) = (parts(random), parts(random));
    let alike = random.chance(60);
    for at in 0..n as usize {
        let parent = random.below(inner + 1) as u32;
        let mut class = if random.chance(80) {
            share(parent, 1 + random.below(rate / 4))
        } else {
            Class { parent, ..Class::default() }
        };
        let (a, b) = if alike { (first[at], then[at]) } else { (then[at], then[at]) };
        let curve = match (alike, a, b) {
            // Half of the link each in the first piece and in the second, whenever they come.
            (false, _, b) if b > 1 && random.chance(60) => {
                let lower = random.below(b / 2) + 1;
                if random.chance(70) {
                    bent(b, (1 + random.below(50)) * MS, lower)
                } else {
                    bent(0, random.below(50) * MS + 1, b)
                }
            }
            (_, _, 0) => line(0),
            // Convex curves begin at 0 here: those that do not have three pieces once they begin
            // again while ahead.
            (_, a, b) if a < b => bent(0, until, b),
            (_, a, b) => bent(a, until, b),
        };
        if !curve.then.is_zero() {
            class.realtime = Some(curve);
        } else if class.share.is_none() {
            class.share = Some(line(rate / 10));
        }
        classes.push(class.packets(200));
    }
    let largest = random.pick(&[1500, 1500, 9000, 300]);
    let (mut sizes, mut gaps) = (Vec::new(), Vec::new());
    for (at, class) in classes.iter().enumerate() {
        let leaf = at >= inner as usize;
        let small = random.chance(30);
        let most = if small { 40 + random.below(200) as u32 } else { largest };
        let most = most.min(largest);
        sizes.push((40.min(most), most));
        let own = class.realtime.or(class.share).map_or(1, |curve| curve.then.as_bit_s()).max(1);
        let packet = (u64::from(most) * 8 * S / own).clamp(1, S / 4);
        let load = random.pick(&[25, 100, 100, 300, 1000]);
        let burst = random.pick(&[1, 5, 30]);
        gaps.push(if leaf { (packet * 100 / load / 10 + 1, packet * 100 / load * burst + 1) } else { (0, 0) });
    }
    Scene { rate, classes, largest, sizes, gaps }
}

/// Lets packets through until so many have left, and holds each against its deadline.
fn play(scene: &Scene, random: &mut Random, packets: u64, polls: bool) -> Outcome {
    let mut spec = link(scene.rate, &scene.classes);
    spec.mtu = scene.largest;
    let mut engine = Engine::new(&spec).expect("a valid link");
    let n = scene.classes.len() + 1;
    let mut deadlines: Vec<Option<Deadlines>> = std::iter::once(None)
        .chain(scene.classes.iter().map(|class| class.realtime.map(|curve| Deadlines { curve, starts: Vec::new() })))
        .collect();
    let (mut queued, mut served) = (vec![0_u32; n], vec![0_u64; n]);
    let mut arrivals: BinaryHeap<Reverse<(Nanos, u32)>> = BinaryHeap::new();
    for (at, (gap, _)) in scene.gaps.iter().enumerate().filter(|(_, gaps)| gaps.0 > 0) {
        arrivals.push(Reverse((random.below(50 * gap), at as u32 + 1)));
    }
    let packet_time = f64::from(scene.largest) * 8e9 / scene.rate as f64;
    let mut out = Outcome::default();
    let (mut now, mut free, mut busy_from, mut bits) = (0, None::<Nanos>, 0, 0_u128);
    while out.packets < packets {
        let wake = if free.is_none() { engine.next_wakeup().map(|at| at.max(now)) } else { None };
        let arrival = arrivals.peek().map(|Reverse((at, _))| *at);
        let next = [free, wake, arrival].into_iter().flatten().min().expect("sources never end");
        if polls && free.is_none() && next > now + 1 && random.chance(20) {
            // Between two events nothing leaves.
            let at = now + 1 + random.below(next - now - 1);
            assert!(engine.dequeue(at).is_none(), "something left at {at}, {} ns before its time", next - at);
        }
        let woken = free != Some(next) && wake == Some(next) && arrival != Some(next);
        now = next;
        if free == Some(now) {
            free = None;
        } else if !woken && let Some(Reverse((_, class))) = arrivals.pop() {
            let (least, most) = scene.sizes[class as usize - 1];
            let size = least + random.below(u64::from(most - least) + 1) as u32;
            engine.enqueue(now, class, Packet::new(0, size));
            if engine.drops().count() == 0 {
                queued[class as usize] += 1;
                if let Some(deadlines) = deadlines[class as usize].as_mut().filter(|_| queued[class as usize] == 1) {
                    deadlines.start(now, served[class as usize]);
                }
            }
            let (gap, burst) = scene.gaps[class as usize - 1];
            let mean = if random.chance(20) { burst } else { gap };
            arrivals.push(Reverse((now + 1 + random.below(2 * mean), class)));
        }
        if free.is_some() {
            continue;
        }
        let Some(sent) = engine.dequeue(now) else {
            assert!(!woken, "woken at {now} for nothing");
            continue;
        };
        if bits == 0 || busy_from + (bits * u128::from(S)).div_ceil(u128::from(scene.rate)) as u64 != now {
            (busy_from, bits) = (now, 0);
        }
        let (class, size) = (sent.class as usize, sent.packet.len);
        bits += u128::from(size) * 8;
        let end = busy_from + (bits * u128::from(S)).div_ceil(u128::from(scene.rate)) as u64;
        free = Some(end);
        queued[class] -= 1;
        out.packets += 1;
        let Some(deadline) = &deadlines[class] else { continue };
        let due = deadline.due(served[class] + u64::from(size));
        let late = (end as f64 - due) / packet_time;
        // Two nanoseconds are what rounding is worth.
        assert!(
            end as f64 <= due + packet_time + 2.0,
            "class {class} at {now}: late by {late} packets\n{:#?}",
            scene.classes
        );
        out.worst = out.worst.max(late);
        let counted = engine.scheduler_counters(sent.class).first().map_or(0, |(_, bytes)| *bytes);
        if counted > served[class] {
            assert_eq!(counted, served[class] + u64::from(size));
            out.by_deadline += 1;
            if deadline.curve.first >= deadline.curve.then || deadline.curve.until == 0 {
                // Not before what has been served is due: until then it goes by its share.
                let eligible = deadline.due(served[class]);
                assert!(now as f64 >= eligible - 2.0, "served {} ns before it was eligible", eligible - now as f64);
            }
            served[class] = counted;
        }
    }
    out
}

fn many(scenes: u64, packets: u64, seed: u64) -> Outcome {
    let mut random = Random::new(seed);
    let mut total = Outcome::default();
    for _ in 0..scenes {
        let scene = random_scene(&mut random);
        let polls = random.chance(50);
        let out = play(&scene, &mut random, packets, polls);
        total.packets += out.packets;
        total.by_deadline += out.by_deadline;
        total.worst = total.worst.max(out.worst);
    }
    total
}

#[test]
fn deadlines_in_random_trees() {
    let out = many(60, 3000, 11);
    assert!(out.by_deadline > out.packets / 10, "{out:?}");
    assert!(out.worst > 0.5, "{out:?}");
    println!("{out:?}");
}

/// `cargo test -p altq-engine --test all hfsc_deadlines -- --ignored --nocapture`
#[test]
#[ignore = "a million packets"]
fn deadlines_of_a_million_packets() {
    let out = many(200, 5000, 12);
    println!("{out:?}");
    assert!(out.by_deadline > out.packets / 10, "{out:?}");
}

/// The bound cannot be less: a packet of maximum length has just been begun by its share when all
/// classes with deadlines become active, with curves that fill the link; the last of them is late
/// by that packet.
#[test]
fn a_worst_case_reaches_the_bound() {
    for n in [1_u64, 4, 10] {
        let rate = 10 * MBIT;
        let mut classes: Vec<Class> = (0..n).map(|_| share(0, MBIT).realtime(line(rate / n))).collect();
        classes.push(share(0, 10 * MBIT));
        let mut engine = Engine::new(&link(rate, &classes)).unwrap();
        let time = |bytes: u64| bytes * 8 * S / rate;
        engine.enqueue(0, n as u32 + 1, Packet::new(0, 1500));
        assert!(engine.dequeue(0).is_some());
        for class in 1..=n as u32 {
            engine.enqueue(1, class, Packet::new(0, 1000));
        }
        let mut now = time(1500);
        for _ in 0..n {
            assert!(engine.dequeue(now).is_some());
            now += time(1000);
        }
        // Due at 1 + n times 1000 bytes; 1500 bytes and a nanosecond too late.
        let late = now - (1 + n * time(1000));
        assert!(late as f64 >= 0.99 * time(1500) as f64, "{late} of {}", time(1500));
        assert!(late <= time(1500));
    }
}
