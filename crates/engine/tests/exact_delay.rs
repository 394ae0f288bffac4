//! Exact CBQ: delay of conforming sources (docs/reference/cbq.md rules 8 to 10).

use crate::support;

use altq_engine::link::{Framing, Overhead};
use altq_engine::schedule;
use altq_engine::settings::Limit;
use altq_engine::spec::QueueSpec;
use support::{Cbr, Class, MS, Random, S, Sent, Wire, leaves, link, tree};

fn percentile(delays: &mut [u64], percent: usize) -> u64 {
    delays.sort_unstable();
    delays[(delays.len() * percent).div_ceil(100).saturating_sub(1)]
}

/// A voice class of 5 % sends 160 bytes every 2.84 ms, beside 19 backlogged classes of 5 % each
/// with packets of 1500 bytes, on 10 Mbit/s. The 99th percentile of its waits is at most 1.25 ms; a
/// packet of 1500 bytes that is on the wire takes 1.2 ms of that.
#[test]
fn voice_beside_nineteen_backlogged_classes() {
    for excess in ["share", "priority"] {
        for priority in 0..8 {
            for (borrow, packetsize) in [(false, None), (true, None), (false, Some(160)), (true, Some(160))] {
                // With a burst of two short packets, and a priority not above the others', voice
                // may have to wait for the others' bursts.
                if packetsize.is_some() && priority == 0 {
                    continue;
                }
                let mut classes = vec![Class::new(0, 500_000).borrows(borrow).priority(priority)];
                classes[0].packetsize = packetsize;
                let other = |n| if n % 2 == 0 && packetsize.is_none() { priority } else { 0 };
                classes.extend((0..19).map(|n| Class::new(0, 500_000).borrow().priority(other(n))));
                let mut wire = Wire::new(&link(10_000_000, &classes, excess));
                for class in 2..=20 {
                    wire.greedy(class, &[1500]);
                }
                wire.cbr(Cbr { class: 1, size: 160, interval: 2_840_000, start: 0, end: u64::MAX });
                wire.run(S);
                wire.log = Some(Vec::new());
                wire.run(21 * S);
                let mut delays: Vec<u64> = wire
                    .log
                    .take()
                    .into_iter()
                    .flatten()
                    .filter(|sent| sent.departure.class == 1)
                    .map(|sent| sent.at - sent.departure.packet.arrived)
                    .collect();
                assert!(delays.len() > 6900);
                let p99 = percentile(&mut delays, 99);
                assert!(p99 <= 1_250_000, "{excess} priority {priority} borrow {borrow} {packetsize:?}: p99 {p99} ns");
            }
        }
    }
}

/// Rule 9: a packet of a source that keeps to its guarantee waits at most (bursts of higher and
/// equal priorities + one packet of the link) / (link rate - rates of higher priorities), whatever
/// the others do. A burst is what rule 10 lets pass beyond the rate: `maxburst` packets and one.
#[test]
fn the_promise_of_a_conforming_source() {
    let mut closest = 0.0_f64;
    for seed in 0..60 {
        let mut random = Random::new(7000 + seed);
        let rate = random.pick(&[10_000_000u64, 100_000_000]);
        let mut classes = tree(&mut random, rate);
        for class in &mut classes {
            if random.chance(30) {
                class.packetsize = Some(random.pick(&[200, 600, 1500]));
            }
        }
        let excess = random.pick(&["share", "priority"]);
        let all = leaves(&classes);
        let mut wire = Wire::new(&link(rate, &classes, excess));
        wire.log = Some(Vec::new());
        let mut conforming = vec![false; classes.len() + 1];
        for leaf in &all {
            let class = &classes[*leaf as usize - 1];
            let packetsize = class.packetsize.unwrap_or(1500);
            if class.rate > 0 && random.chance(60) {
                // The source uses a token bucket of its guarantee and `maxburst` packets in full:
                // it empties the bucket at once, goes on at the rate, and pauses until the bucket
                // is full; then it begins again.
                conforming[*leaf as usize] = true;
                let size = random.pick(&[packetsize, packetsize, packetsize / 2, 64]).min(packetsize);
                let interval = (u64::from(size) * 8 * S).div_ceil(class.rate);
                let full = 2 * u64::from(packetsize) * 8 * S / class.rate + interval;
                let mut start = random.below(3) * 50 * MS;
                while start < 4 * S {
                    let run = start + random.below(30) * interval;
                    let at_once = (2 * packetsize / size).max(1);
                    for _ in 0..at_once {
                        wire.cbr(Cbr { class: *leaf, size, interval: S, start, end: start + 1 });
                    }
                    wire.cbr(Cbr {
                        class: *leaf,
                        size,
                        interval,
                        start: start + interval,
                        end: run.max(start + interval + 1),
                    });
                    start = run + full + 2 * interval + random.below(20) * MS;
                }
            } else if random.chance(80) {
                wire.greedy(*leaf, &[packetsize.min(random.pick(&[1500, 1500, 300]))]);
            }
        }
        wire.run(5 * S);
        let burst = |class: &Class| f64::from(3 * class.packetsize.unwrap_or(1500)) * 8.0;
        let bound = |of: &Class| {
            let rated = || all.iter().map(|leaf| &classes[*leaf as usize - 1]).filter(|class| class.rate > 0);
            // The implicit leaves of inner classes send nothing here, so they are not among these.
            let bursts: f64 = rated().filter(|class| class.priority >= of.priority).map(burst).sum();
            let above: f64 = rated().filter(|class| class.priority > of.priority).map(|class| class.rate as f64).sum();
            ((bursts + 12_000.0) / (rate as f64 - above) * 1e9).ceil() as u64
        };
        for sent in wire.log.take().into_iter().flatten() {
            let class = sent.departure.class;
            if conforming[class as usize] {
                let wait = sent.at - sent.departure.packet.arrived;
                let promised = bound(&classes[class as usize - 1]);
                closest = closest.max(wait as f64 / promised as f64);
                assert!(
                    wait <= promised,
                    "seed {seed} {excess} class {class}: waited {wait} ns of {promised} at {}\n{classes:#?}",
                    sent.at
                );
            }
        }
    }
    println!("the longest wait was {closest:.3} of its bound");
}

/// Rule 10: what a class that does not borrow sends in any interval is at most rate * t + maxburst
/// packets + one packet.
#[test]
fn bursts_are_bounded() {
    for (size, maxburst) in [(1500, 1), (1500, 2), (300, 2), (1500, 16)] {
        let mut class = Class::new(0, 1_000_000);
        class.maxburst = Some(maxburst);
        class.packetsize = Some(size);
        let mut wire = Wire::new(&link(10_000_000, &[class, Class::new(0, 9_000_000).borrow()], "share"));
        wire.log = Some(Vec::new());
        wire.greedy(2, &[1500]);
        // Bursts far beyond the rate, at odd times.
        for (n, start) in [0, 500, 900, 1700, 1733, 2500].into_iter().enumerate() {
            wire.cbr(Cbr {
                class: 1,
                size,
                interval: 10_000,
                start: start * MS,
                end: start * MS + 300_000 * (n as u64 + 1),
            });
        }
        wire.run(4 * S);
        let sent: Vec<u64> =
            wire.log.take().into_iter().flatten().filter(|s| s.departure.class == 1).map(|s| s.at).collect();
        assert!(sent.len() > 50);
        for (n, from) in sent.iter().enumerate() {
            for (k, to) in sent.iter().enumerate().skip(n) {
                let bits = (k - n + 1) as f64 * f64::from(size) * 8.0;
                let most = (to - from) as f64 / 1e3 + f64::from((maxburst + 1) * size) * 8.0;
                assert!(bits <= most + 1.0, "{} packets from {from} to {to}", k - n + 1);
            }
        }
    }
}

/// A CoDel queue may drop its first packet when it is asked for it, and send a longer one that
/// stood behind. Here c1's deadline is that of a packet of 913 bytes, and one of 1500 bytes goes
/// before c4's packet. So the bounds of classes of the same priority count one packet more of c1
/// (docs/promises.md).
#[test]
fn beside_a_queue_that_drops_as_it_sends() {
    const RATE: u64 = 256_128;
    let mut classes = [
        Class::new(0, 1876).borrow(),
        Class::new(0, 109_403).borrow().priority(0).packetsize(1333),
        Class::new(0, 9382),
        Class::new(3, 9382).packetsize(1000),
    ];
    classes[0].maxburst = Some(8);
    let mut spec = link(RATE, &classes, "share");
    spec.overhead = Overhead { bytes: 8, mpu: 200, framing: Framing::Plain };
    spec.classes[1].queue = Some(QueueSpec::new("codel", Limit::Packets(1000)));
    let bounds = schedule::find("cbq").and_then(|entry| entry.bounds).expect("cbq has bounds")(&spec);
    let promised = bounds[4].as_ref().expect("a bound").conforming;
    // The bursts of c1 and c4, 8 x 1508 and 2 x 1008 bytes on the wire; one packet more of c1; one
    // packet of the link. Three nanoseconds are for rounding.
    assert_eq!(promised, ((12_064 + 2016 + 1508 + 1508) * 8 * S).div_ceil(RATE) + 3);
    let mut wire = Wire::new(&spec);
    wire.log = Some(Vec::new());
    let mut send = |at, class, sizes: &[u32]| {
        sizes.iter().for_each(|size| wire.cbr(Cbr { class, size: *size, interval: S, start: at, end: at + 1 }));
    };
    send(0, 2, &[1500]);
    send(1, 4, &[1000, 722]);
    send(24_264, 1, &[1500]);
    send(23_293_890, 1, &[913, 1500, 1500, 913, 913, 913, 1500, 913, 913, 913, 913, 913, 913, 1500]);
    send(268_757_159, 1, &[913]);
    wire.run(S);
    let of_c4 = wire.log.iter().flatten().filter(|sent| sent.departure.class == 4);
    let wait = |sent: &Sent| {
        sent.at + (u64::from(sent.departure.packet.wire) * 8 * S).div_ceil(RATE) - sent.departure.packet.arrived
    };
    let waited = of_c4.map(wait).max().expect("c4 has sent");
    let without = ((12_064 + 2016 + 1508) * 8 * S).div_ceil(RATE);
    assert!(waited > without && waited <= promised, "waited {waited} ns: more than {without} and at most {promised}");
}
