//! HFSC: fairness of link-sharing. The bound is theorem 1 of Goyal, Vin and Cheng (Start-Time Fair
//! Queueing, ToN 5(5), 1997): over any interval in which two siblings have packets, their service
//! divided by their weights differs by at most L1/r1 + L2/r2.

use crate::support;
use crate::support::hfsc;

use altq_engine::schedule::cbq::ideal::{Offer, Sharing, ideal};
use altq_engine::units::Rate;
use hfsc::{Class, MBIT, link, share};
use support::{Random, S, Wire};

const SIZES: [&[u32]; 6] = [&[1500], &[64], &[40, 1500], &[300, 700, 1100], &[9000, 64], &[1]];

/// A random tree: every class has a share, siblings' add up to at most their parent's.
fn tree(random: &mut Random, rate: u64) -> Vec<Class> {
    fn grow(random: &mut Random, classes: &mut Vec<Class>, parent: u32, rate: u64, depth: u32) {
        let children = 2 + random.below(4);
        let mut left = rate;
        for child in 0..children {
            let part = if child + 1 == children { left } else { (left * (1 + random.below(60)) / 100).max(1) };
            left -= part.min(left);
            classes.push(share(parent, part.max(1)));
            let id = classes.len() as u32;
            if depth < 3 && random.chance(40) {
                grow(random, classes, id, part, depth + 1);
            }
        }
    }
    let mut classes = Vec::new();
    grow(random, &mut classes, 0, rate, 0);
    classes
}

fn leaves(classes: &[Class]) -> Vec<u32> {
    (1..=classes.len() as u32).filter(|id| !classes.iter().any(|class| class.parent == *id)).collect()
}

/// For each pair of siblings the spread of (service of one / weight - service of the other /
/// weight): its range over all times is the greatest difference over any interval.
#[derive(Clone, Copy)]
struct Pair {
    a: u32,
    b: u32,
    least: f64,
    most: f64,
}

/// All leaves are backlogged throughout, so all siblings are, leaf and inner.
#[test]
fn siblings_stay_within_the_published_bound() {
    let mut random = Random::new(0x5F0);
    let (mut packets, mut worst) = (0, 0.0_f64);
    while packets < 300_000 {
        let rate = random.pick(&[MBIT, 10 * MBIT, 1000 * MBIT, 100_000 * MBIT]);
        let classes = tree(&mut random, rate);
        let mut wire = Wire::new(&link(rate, &classes));
        wire.log = Some(Vec::new());
        let mut largest = vec![0_u32; classes.len() + 1];
        for leaf in leaves(&classes) {
            let sizes = random.pick(&SIZES);
            wire.greedy(leaf, sizes);
            let mut at = leaf;
            while at != 0 {
                largest[at as usize] = largest[at as usize].max(sizes.iter().copied().max().unwrap_or(0));
                at = classes[at as usize - 1].parent;
            }
        }
        let mut pairs = Vec::new();
        for a in 1..=classes.len() as u32 {
            for b in a + 1..=classes.len() as u32 {
                if classes[a as usize - 1].parent == classes[b as usize - 1].parent {
                    pairs.push(Pair { a, b, least: 0.0, most: 0.0 });
                }
            }
        }
        // Enough for some thousand packets.
        wire.run((4000 * 8 * 1500 * u128::from(S) / u128::from(rate)) as u64);
        let weight = |class: u32| classes[class as usize - 1].share.map_or(0.0, |curve| curve.then.as_bit_s() as f64);
        let mut served = vec![0_u64; classes.len() + 1];
        for sent in wire.log.take().unwrap_or_default() {
            packets += 1;
            let mut at = sent.departure.class;
            while at != 0 {
                served[at as usize] += u64::from(sent.departure.packet.len);
                at = classes[at as usize - 1].parent;
            }
            for pair in &mut pairs {
                let of = |class: u32| served[class as usize] as f64 / weight(class);
                let difference = of(pair.a) - of(pair.b);
                pair.least = pair.least.min(difference);
                pair.most = pair.most.max(difference);
            }
        }
        for pair in pairs {
            let bound = f64::from(largest[pair.a as usize]) / weight(pair.a)
                + f64::from(largest[pair.b as usize]) / weight(pair.b);
            let spread = pair.most - pair.least;
            assert!(
                spread <= bound * (1.0 + 1e-9),
                "{} and {}: {} of {bound}\n{classes:?}",
                pair.a,
                pair.b,
                spread / bound
            );
            worst = worst.max(spread / bound);
        }
    }
    assert!(worst > 0.5, "the bound is nearly reached: {worst}");
}

/// Siblings come and go: over the times in which both have packets the bound holds all the same.
#[test]
fn also_when_classes_come_and_go() {
    let mut random = Random::new(77);
    for _ in 0..60 {
        let n = 2 + random.below(5) as u32;
        let classes: Vec<Class> = (0..n).map(|_| share(0, MBIT + random.below(20) * MBIT)).collect();
        let mut wire = Wire::new(&link(200 * MBIT, &classes));
        let sizes: Vec<&[u32]> = (0..n).map(|_| random.pick(&SIZES)).collect();
        let mut on = vec![false; n as usize + 1];
        // Of each pair, since both have packets: the least and the most of the difference.
        let pairs: Vec<(u32, u32)> = (1..=n).flat_map(|a| (a + 1..=n).map(move |b| (a, b))).collect();
        let mut ranges: Vec<Option<(f64, f64)>> = vec![None; pairs.len()];
        let weight = |class: u32| classes[class as usize - 1].share.map_or(1.0, |curve| curve.then.as_bit_s() as f64);
        for _ in 0..400 {
            if random.chance(30) {
                let class = 1 + random.below(u64::from(n)) as u32;
                on[class as usize] = !on[class as usize];
                wire.greedy(class, if on[class as usize] { sizes[class as usize - 1] } else { &[] });
            }
            // One packet at a time, so that nothing happens unseen.
            let next = wire.now + 1 + random.below(40_000);
            wire.run(next);
            for ((a, b), range) in pairs.iter().zip(&mut ranges) {
                if !(on[*a as usize] && on[*b as usize]) {
                    *range = None;
                    continue;
                }
                let difference =
                    wire.bytes[*a as usize] as f64 / weight(*a) - wire.bytes[*b as usize] as f64 / weight(*b);
                let (least, most) = range
                    .map_or((difference, difference), |(least, most)| (least.min(difference), most.max(difference)));
                *range = Some((least, most));
                let largest = |class: u32| f64::from(sizes[class as usize - 1].iter().copied().max().unwrap_or(0));
                let bound = largest(*a) / weight(*a) + largest(*b) / weight(*b);
                assert!(most - least <= bound * (1.0 + 1e-9), "{a} and {b}: {} of {bound}", most - least);
            }
        }
    }
}

/// Random trees with limits, some leaves idle: each has what progressive filling in proportion to
/// shares gives (the referee that CBQ's tests use: with every class borrowing, a ceiling is an
/// upper limit).
#[test]
fn random_trees_have_the_ideal_shares() {
    let mut random = Random::new(0xA17);
    for round in 0..60 {
        let rate = 100 * MBIT;
        let mut classes = tree(&mut random, rate);
        for class in &mut classes {
            let own = class.share.map_or(0, |curve| curve.then.as_bit_s());
            // Shares so small that a packet takes seconds are not looked at here.
            if own < MBIT / 2 {
                class.share = Some(hfsc::line(MBIT / 2));
            }
            if random.chance(25) {
                *class = class.limit(MBIT + random.below(60) * MBIT);
            }
        }
        let mut demand = vec![0.0; classes.len() + 1];
        let mut wire = Wire::new(&link(rate, &classes));
        for leaf in leaves(&classes) {
            if random.chance(75) {
                demand[leaf as usize] = 1e9;
                wire.greedy(leaf, random.pick(&[&[1500][..], &[500, 1500], &[1000]]));
            }
        }
        let root = Offer { parent: 0, rate: Rate::bit_s(rate), borrow: true, ceiling: None, priority: 1, demand: 0.0 };
        let offers: Vec<Offer> = std::iter::once(root)
            .chain(classes.iter().zip(&demand[1..]).map(|(class, demand)| Offer {
                parent: class.parent as usize,
                rate: class.share.map_or(Rate::ZERO, |curve| curve.then),
                borrow: true,
                ceiling: class.limit.map(|curve| curve.then),
                priority: 1,
                demand: *demand,
            }))
            .collect();
        let expected = ideal(&offers, Sharing::Share);
        wire.run(S);
        let got = wire.rates(5 * S);
        for leaf in leaves(&classes) {
            let (got, expected) = (got[leaf as usize], expected[leaf as usize]);
            // Two packets more or less in four seconds, and a part in 200.
            assert!(
                (got - expected).abs() <= expected * 0.005 + 6000.0,
                "round {round}, leaf {leaf}: {got}, ideal {expected}\n{classes:#?}"
            );
        }
    }
}
