//! Exact CBQ: shares of the link (design/cbq.md rules 1 to 4), on a wire in virtual time.

mod support;

use support::{Class, MS, S, Wire, link};

const SIZES: [u32; 7] = [32, 64, 160, 512, 576, 1024, 1500];
const MIX: [u32; 7] = [32, 1500, 64, 1024, 160, 576, 512];

fn mean(sizes: &[u32]) -> f64 {
    sizes.iter().map(|s| f64::from(*s)).sum::<f64>() / sizes.len() as f64
}

/// Time in which a class of `rate` sends 4,000 packets, at least 1 s.
fn span(rate: f64, sizes: &[u32]) -> u64 {
    (4000.0 * mean(sizes) * 8e9 / rate) as u64
}

fn within(got: f64, want: f64, tolerance: f64, what: &str) {
    assert!((got / want - 1.0).abs() <= tolerance, "{what}: {got:.0} bit/s, not {want:.0} ({:+.3} %)", (got / want - 1.0) * 100.0);
}

#[test]
fn twenty_eighty() {
    for borrow in [false, true] {
        let spec = link(10_000_000, &[Class::new(0, 2_000_000).borrows(borrow), Class::new(0, 8_000_000).borrows(borrow)], "share");
        let mut kinds: Vec<(Vec<u32>, Vec<u32>)> = vec![(MIX.to_vec(), MIX.to_vec())];
        for a in SIZES {
            kinds.extend(SIZES.iter().map(|b| (vec![a], vec![*b])));
        }
        for (a, b) in kinds {
            let mut wire = Wire::new(&spec);
            wire.greedy(1, &a);
            wire.greedy(2, &b);
            wire.run(S);
            let rates = wire.rates(S + span(2e6, &a).max(span(8e6, &b)));
            within(rates[1], 2e6, 0.005, &format!("20 % {a:?} {b:?} {borrow}"));
            within(rates[2], 8e6, 0.005, &format!("80 % {a:?} {b:?} {borrow}"));
        }
    }
}

#[test]
fn agencies() {
    let mut classes = vec![Class::new(0, 7_000_000).borrow(), Class::new(0, 3_000_000).borrow()];
    for (parent, total) in [(1, 7_000_000), (2, 3_000_000)] {
        classes.extend([50, 30, 20].map(|part| Class::new(parent, total * part / 100).borrow()));
    }
    let _ = MS;
    for excess in ["share", "priority"] {
        for active in 1u32..64 {
            let mut wire = Wire::new(&link(10_000_000, &classes, excess));
            for leaf in 0..6 {
                if active & 1 << leaf != 0 {
                    wire.greedy(3 + leaf, &[SIZES[(leaf * 5 + active) as usize % 7]]);
                }
            }
            wire.run(S);
            let rates = wire.rates(6 * S);
            let (a, b) = (rates[3] + rates[4] + rates[5], rates[6] + rates[7] + rates[8]);
            let (want_a, want_b) = match (active & 7, active >> 3) {
                (0, _) => (0.0, 10e6),
                (_, 0) => (10e6, 0.0),
                _ => (7e6, 3e6),
            };
            let slack = 2.0 * 1500.0 * 8.0 / 5.0 + 1500.0 * 8.0 / 5.0;
            for (got, want) in [(a, want_a), (b, want_b)] {
                assert!((got - want).abs() <= (want * 0.005_f64).max(slack), "{excess} {active:b}: agency {got} not {want}");
            }
        }
    }
}
