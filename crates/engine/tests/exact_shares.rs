//! Exact CBQ: shares of the link (docs/reference/cbq.md rules 1 to 4), on a wire in virtual time.

use crate::support;

use altq_engine::settings::Limit;
use support::{Class, MS, S, Wire, link};

const MBIT: u64 = 1_000_000;

const SIZES: [u32; 7] = [32, 64, 160, 512, 576, 1024, 1500];
const MIX: [u32; 7] = [32, 1500, 64, 1024, 160, 576, 512];

fn mean(sizes: &[u32]) -> f64 {
    sizes.iter().map(|s| f64::from(*s)).sum::<f64>() / sizes.len() as f64
}

/// Time in which a class of `rate` bit/s sends 4,000 packets of these sizes, ns.
fn span(rate: f64, sizes: &[u32]) -> u64 {
    (4000.0 * mean(sizes) * 8e9 / rate) as u64
}

fn within(got: f64, want: f64, tolerance: f64, what: &str) {
    assert!(
        (got / want - 1.0).abs() <= tolerance,
        "{what}: {got:.0} bit/s, not {want:.0} ({:+.3} %)",
        (got / want - 1.0) * 100.0
    );
}

#[test]
fn twenty_eighty() {
    for borrow in [false, true] {
        let spec = link(
            10_000_000,
            &[Class::new(0, 2_000_000).borrows(borrow), Class::new(0, 8_000_000).borrows(borrow)],
            "share",
        );
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
            // 0.5 %, or three packets in the 5 s.
            let slack = 2.0 * 1500.0 * 8.0 / 5.0 + 1500.0 * 8.0 / 5.0;
            for (got, want) in [(a, want_a), (b, want_b)] {
                assert!(
                    (got - want).abs() <= (want * 0.005_f64).max(slack),
                    "{excess} {active:b}: agency {got} not {want}"
                );
            }
        }
    }
}

/// A class that does not borrow keeps to its rate, alone and beside a class that takes all the
/// rest: to 0.1 %, one packet of the other class, and a hundredth of its own packet.
#[test]
fn without_borrow_a_class_stays_at_its_rate() {
    for percent in [5, 20, 50, 80, 95] {
        for size in [32, 160, 576, 1500] {
            for neighbour in [None, Some(1500), Some(64)] {
                let rate = 10 * MBIT * percent / 100;
                let classes = [Class::new(0, rate), Class::new(0, 10 * MBIT - rate).borrow()];
                let mut wire = Wire::new(&link(10 * MBIT, &classes, "share"));
                wire.greedy(1, &[size]);
                if let Some(size) = neighbour {
                    wire.greedy(2, &[size]);
                }
                wire.run(S);
                let time = span(rate as f64, &[size]).max(S);
                let got = wire.rates(S + time);
                let foreign = f64::from(neighbour.unwrap_or(0)) * 8e9 / time as f64;
                let own = f64::from(size) * 8e9 / time as f64;
                let allowed = rate as f64 * 0.001 + foreign + own * 0.01;
                assert!(
                    (got[1] - rate as f64).abs() <= allowed,
                    "{percent} % of {size} beside {neighbour:?}: {}",
                    got[1]
                );
                if neighbour.is_some() {
                    assert!(got[1] + got[2] > 9.99e6, "the link idles: {got:?}");
                }
            }
        }
    }
}

/// One leaf of 1 % in an agency of 30 %, all borrowing, nobody else: the whole link.
#[test]
fn one_borrower_alone_has_the_link() {
    for excess in ["share", "priority"] {
        for size in SIZES {
            let classes =
                [Class::new(0, 3 * MBIT).borrow(), Class::new(1, MBIT / 10).borrow(), Class::new(0, 2 * MBIT).borrow()];
            let mut wire = Wire::new(&link(10 * MBIT, &classes, excess));
            wire.greedy(2, &[size]);
            wire.run(S);
            let got = wire.rates(3 * S);
            assert!(got[2] >= 9.99e6, "{excess} {size}: {}", got[2]);
        }
    }
}

/// Shares of 5 % to 95 % on links of 1 Mbit/s to 10 Gbit/s. With `half` 1 the shares are
/// guaranteed. With 2 only half of each is guaranteed, and the other half of the link is excess,
/// divided in the same proportion.
#[test]
fn five_to_ninety_five_percent() {
    for mbit in [1u64, 10, 100, 1000, 10_000] {
        let rate = mbit * MBIT;
        for percent in (5..=95).step_by(5) {
            for (excess, half, borrow) in
                [("share", 1, false), ("share", 1, true), ("share", 2, true), ("priority", 2, true)]
            {
                let guarantee = |percent| rate * percent / 100 / half;
                let classes = [
                    Class::new(0, guarantee(percent)).borrows(borrow),
                    Class::new(0, guarantee(100 - percent)).borrows(borrow),
                ];
                let sizes: &[u32] = if percent % 10 == 0 { &MIX } else { &[1500] };
                let mut wire = Wire::new(&link(rate, &classes, excess));
                wire.greedy(1, sizes);
                wire.greedy(2, sizes);
                // A warm-up of 1 s would be some 10^6 packets at 10 Gbit/s. A steady state is
                // reached within the first hundred packets of the slower class.
                let slowest = rate as f64 * percent.min(100 - percent) as f64 / 100.0;
                let start = (span(slowest, sizes) / 40).min(S);
                wire.run(start);
                let got = wire.rates(start + span(slowest, sizes));
                for (class, percent) in [(1, percent), (2, 100 - percent)] {
                    let what = format!("{percent} % of {mbit} Mbit/s, {excess}, rates/{half}, borrow {borrow}");
                    within(got[class], rate as f64 * percent as f64 / 100.0, 0.005, &what);
                }
            }
        }
    }
}

/// Timers fire only every 1 or 10 ms. At a tick all that has become due since the last one is sent,
/// so rates hold (docs/reference/cbq.md rule 12).
#[test]
fn tick_timers() {
    for tick in [MS, 10 * MS] {
        for percent in [5, 20, 50, 95] {
            let rate = 100 * MBIT * percent / 100;
            // Alone, in an agency that does not borrow, and under a ceiling.
            let cases = [
                (vec![Class::new(0, rate)], 1),
                (vec![Class::new(0, rate), Class::new(1, rate / 2).borrow()], 2),
                (vec![Class::new(0, rate / 2).borrow().ceiling(rate)], 1),
                (vec![Class::new(0, rate / 2).borrow().ceiling(rate), Class::new(1, rate / 4).borrow()], 2),
            ];
            for (case, (mut classes, class)) in cases.into_iter().enumerate() {
                classes[class as usize - 1].queue = Some(Limit::Packets(200));
                let mut wire = Wire::new(&link(100 * MBIT, &classes, "share"));
                wire.tick = Some(tick);
                wire.depth = 200;
                wire.greedy(class, &[1500]);
                wire.run(S);
                // A whole number of ticks, and so many that one more or less does not matter.
                let got = wire.rates(S + span(rate as f64, &[1500]).div_ceil(4 * S) * 4 * S);
                within(got[class as usize], rate as f64, 0.005, &format!("tick {tick}, {percent} %, case {case}"));
            }
        }
    }
}
