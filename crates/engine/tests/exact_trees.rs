//! Exact CBQ against the ideal division, over random trees and changing sets of active classes
//! (docs/reference/cbq.md rules 2 to 6).

use crate::support;

use support::{Cbr, Class, Random, S, Wire, ideal_of, leaves, link, tree};

const SIZES: [&[u32]; 6] = [&[1500], &[64], &[576], &[1000, 160], &[32, 1500, 64, 1024], &[512, 1500]];

/// Classes without their ceilings if `excess` is `priority`. A ceiling paces a class of high
/// priority: between two of its packets its agency lends to a class of lower priority, and the
/// class with the ceiling borrows from further up instead. The ideal division knows no time between
/// packets, so it has the agency lend to the class of high priority.
fn for_ideal(mut classes: Vec<Class>, excess: &str) -> Vec<Class> {
    if excess == "priority" {
        classes.iter_mut().for_each(|class| class.ceiling = None);
    }
    classes
}

fn compare(rate: u64, classes: &[Class], excess: &'static str, got: &[f64], demand: &[f64], what: &str) -> f64 {
    let want = ideal_of(rate, classes, excess, demand);
    let mut worst = 0.0_f64;
    for class in 0..got.len() {
        let error = (got[class] - want[class]) / rate as f64;
        worst = worst.max(error.abs());
        assert!(
            error.abs() <= 0.005,
            "{excess} {what}: class {class} got {:.0}, ideal {:.0}: {error:+.4} of the link\ngot {got:.0?}\n\
             want {want:.0?}\ndemand {demand:.0?}\n{classes:#?}",
            got[class],
            want[class]
        );
    }
    worst
}

#[test]
fn sixty_random_trees() {
    for excess in ["share", "priority"] {
        let mut worst = 0.0_f64;
        for seed in 0..60 {
            let mut random = Random::new(seed);
            let rate = random.pick(&[10_000_000, 100_000_000]);
            let classes = for_ideal(tree(&mut random, rate), excess);
            let mut wire = Wire::new(&link(rate, &classes, excess));
            let mut demand = vec![0.0; classes.len() + 1];
            for leaf in leaves(&classes) {
                match random.below(4) {
                    0 => (),
                    1 => {
                        // Constant rate, from a tenth of its rate to three times it.
                        let size = random.pick(&[1500, 300]);
                        let offered =
                            (classes[leaf as usize - 1].rate * (10 + random.below(290)) / 100).max(rate / 200);
                        let interval = u64::from(size) * 8 * S / offered;
                        demand[leaf as usize] = f64::from(size) * 8e9 / interval as f64;
                        wire.cbr(Cbr { class: leaf, size, interval, start: random.below(interval), end: u64::MAX });
                    }
                    _ => {
                        demand[leaf as usize] = f64::INFINITY;
                        wire.greedy(leaf, random.pick(&SIZES));
                    }
                }
            }
            // The first tenth of the run is not measured.
            wire.run(S / 2);
            let got = wire.rates(5 * S);
            worst = worst.max(compare(rate, &classes, excess, &got, &demand, &format!("seed {seed}")));
        }
        println!("{excess}: worst {worst:.5} of the link");
    }
}

#[test]
fn sixty_random_changes_of_the_active_set() {
    for excess in ["share", "priority"] {
        let mut worst = 0.0_f64;
        for seed in 0..3 {
            let mut random = Random::new(1000 + seed);
            let rate = random.pick(&[10_000_000, 100_000_000]);
            let classes = for_ideal(tree(&mut random, rate), excess);
            let mut wire = Wire::new(&link(rate, &classes, excess));
            let mut demand = vec![0.0; classes.len() + 1];
            for phase in 0..20 {
                for leaf in leaves(&classes) {
                    let active = random.chance(55);
                    demand[leaf as usize] = if active { f64::INFINITY } else { 0.0 };
                    wire.greedy(leaf, if active { random.pick(&SIZES) } else { &[] });
                }
                let start = wire.now;
                wire.run(start + 4 * S / 10);
                let got = wire.rates(start + 4 * S);
                worst =
                    worst.max(compare(rate, &classes, excess, &got, &demand, &format!("seed {seed} phase {phase}")));
            }
        }
        println!("{excess}: worst {worst:.5} of the link");
    }
}
