//! Space-Saving and its merging, compared with an exact count.

use std::collections::HashMap;

use altq_engine::classify::Mix;
use altq_engine::headers::Key;
use altq_engine::random::SplitMix64;
use altq_monitor::amount::Amount;
use altq_monitor::departures::{COUNTERS, Departures};
use altq_monitor::fold::{By, Side, fold};
use altq_monitor::space_saving::SpaceSaving;
use altq_monitor::{FlowKey, Summary};
use proptest::prelude::*;

/// A number from 0 to less than 1.
fn unit(random: &mut SplitMix64) -> f64 {
    (random.bits() >> 11) as f64 / (1u64 << 53) as f64
}

/// Packets `(flow, bytes)`: the larger `skew`, the more of them belong to few flows.
fn stream(seed: u64, flows: u32, skew: i32, packets: usize) -> Vec<(u32, u32)> {
    let mut random = SplitMix64::new(seed);
    (0..packets)
        .map(|_| {
            let flow = (unit(&mut random).powi(skew) * f64::from(flows)) as u32;
            let bytes = 40 + (unit(&mut random) * 1461.0) as u32;
            (flow, bytes)
        })
        .collect()
}

fn exact(stream: &[(u32, u32)]) -> HashMap<u32, Amount> {
    let mut exact: HashMap<u32, Amount> = HashMap::new();
    for (flow, bytes) in stream {
        *exact.entry(*flow).or_default() += Amount::new(u64::from(*bytes), 1);
    }
    exact
}

/// The summary of a stream, counted with so many counters. Hashes are bad on purpose: four keys
/// share each hash.
fn counted(stream: &[(u32, u32)], counters: usize) -> Summary<u32> {
    let mut counts = SpaceSaving::new(counters);
    for (flow, bytes) in stream {
        counts.add(flow, (*flow / 4).wrapping_mul(0x9e37_79b9), *bytes);
    }
    let total: Amount = exact(stream).values().copied().sum();
    assert_eq!(counts.total(), total);
    counts.summary()
}

fn within(least: Amount, true_amount: Amount, most: Amount) -> bool {
    least.bytes <= true_amount.bytes
        && least.packets <= true_amount.packets
        && true_amount.bytes <= most.bytes
        && true_amount.packets <= most.packets
}

/// Checks everything that the algorithm promises.
fn check(summary: &Summary<u32>, exact: &HashMap<u32, Amount>, counters: usize) -> Result<(), TestCaseError> {
    let total: Amount = exact.values().copied().sum();
    prop_assert_eq!(summary.total(), total);
    prop_assert!(summary.listed().len() <= counters);
    let listed: Amount = summary.listed().iter().map(|counted| counted.at_least).sum();
    // Nothing saturates: the listed flows never have more than the total.
    prop_assert!(listed.bytes <= total.bytes && listed.packets <= total.packets);
    prop_assert_eq!(listed + summary.others(), total);
    let m = counters as u64;
    prop_assert!(summary.floor().bytes * m <= total.bytes, "floor {:?} of {:?}", summary.floor(), total);
    for counted in summary.listed() {
        let true_amount = exact.get(&counted.key).copied().unwrap_or_default();
        prop_assert!(within(counted.at_least, true_amount, counted.at_most()), "{:?}: {:?}", counted, true_amount);
        prop_assert!(counted.error.bytes * m <= total.bytes, "{:?} of {:?}", counted, total);
    }
    let names: Vec<u32> = summary.listed().iter().map(|counted| counted.key).collect();
    for (flow, amount) in exact {
        if !names.contains(flow) {
            prop_assert!(within(Amount::default(), *amount, summary.floor()), "{}: {:?}", flow, amount);
            prop_assert!(amount.bytes * m <= total.bytes, "{} has {:?} of {:?} and is not listed", flow, amount, total);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn bounds_hold_for_every_flow(
        seed: u64,
        flows in 1u32..3000,
        skew in 1i32..8,
        packets in 0usize..8000,
        counters in 1usize..100,
    ) {
        let stream = stream(seed, flows, skew, packets);
        check(&counted(&stream, counters), &exact(&stream), counters)?;
    }

    /// Seconds are merged into steps, steps into minutes, classes into the class above.
    #[test]
    fn bounds_hold_for_merged_summaries(
        seed: u64,
        flows in 1u32..3000,
        skew in 1i32..8,
        packets in 1usize..8000,
        counters in 1usize..100,
        parts in 1usize..20,
        at_once in 2usize..6,
    ) {
        let stream = stream(seed, flows, skew, packets);
        let part = packets.div_ceil(parts);
        let mut summaries: Vec<Summary<u32>> = stream.chunks(part).map(|part| counted(part, counters)).collect();
        while summaries.len() > 1 {
            summaries = summaries.chunks(at_once).map(|some| Summary::merged(some, counters)).collect();
        }
        check(&summaries[0], &exact(&stream), counters)?;
    }
}

/// A flow whose four fields are made from a number.
fn flow(at: u32) -> FlowKey {
    let key = Key {
        src: u128::from(0x0a00_0000 + at / 7),
        dst: u128::from(0xc000_0200 + at % 5),
        proto: if at.is_multiple_of(3) { 17 } else { 6 },
        family: 4,
        tos: (at % 4 * 8) as u8,
        ..Key::default()
    };
    FlowKey::of(&key.with_ports((40_000 + at % 20_000) as u16, 443))
}

/// Five flows have 18, 16, 14, 12 and 10 percent, and 20,000 others the rest. The five differ by
/// more than the error, 1/64 of all, so the five largest are those of a full count, in the same
/// order.
#[test]
fn the_five_largest_are_those_of_a_full_count() {
    for seed in 0..20 {
        let mut random = SplitMix64::new(seed);
        let (mut departures, mut exact) = (Departures::new(2, 1, seed), HashMap::<FlowKey, u64>::new());
        for _ in 0..200_000 {
            let at = match (unit(&mut random) * 100.0) as u32 {
                0..18 => 1,
                18..34 => 2,
                34..48 => 3,
                48..60 => 4,
                60..70 => 5,
                _ => 100 + (unit(&mut random) * 20_000.0) as u32,
            };
            let bytes = 200 + (unit(&mut random) * 1000.0) as u32;
            departures.add(1, &flow(at), bytes);
            *exact.entry(flow(at)).or_default() += u64::from(bytes);
        }
        let mut taken = Vec::new();
        departures.take(&mut taken);
        let summary = taken[0].1.summary();
        assert_eq!(summary.total().bytes, exact.values().sum::<u64>());
        let mut all: Vec<(FlowKey, u64)> = exact.into_iter().collect();
        all.sort_unstable_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let largest: Vec<FlowKey> = summary.listed().iter().map(|counted| counted.key).take(5).collect();
        assert_eq!(largest, all[..5].iter().map(|(flow, _)| *flow).collect::<Vec<_>>(), "seed {seed}");
        for (counted, (_, bytes)) in summary.listed().iter().zip(&all[..5]) {
            assert!(counted.at_least.bytes <= *bytes && *bytes <= counted.at_most().bytes, "seed {seed}: {counted:?}");
        }
        // Whatever flows are folded by, groups and others add up to the total.
        for by in [By::Host(Side::Source), By::Prefix(Side::Destination, 10), By::Port, By::Dscp, By::Protocol] {
            let folded = fold(&summary, by);
            let known: Amount = folded.groups.iter().map(|group| group.at_least).sum();
            assert_eq!(known + folded.others, summary.total(), "{by:?}");
        }
    }
}

/// A flood in which every packet is a new flow does not push out a flow that has more than 1/64 of
/// all bytes, and its packets go to a fixed number of chains.
#[test]
fn a_flood_of_new_flows_leaves_large_ones_listed() {
    let mix = Mix::new(3);
    let mut counters = SpaceSaving::new(COUNTERS);
    for at in 0..300_000u32 {
        let key = if at.is_multiple_of(20) { flow(7) } else { flow(at.wrapping_mul(2_654_435_761) | 1 << 31) };
        counters.add(&key, key.hash(&mix), 64);
    }
    let summary = counters.summary();
    // 15,000 of 300,000 packets.
    let first = summary.listed()[0];
    assert_eq!(first.key, flow(7));
    assert!(first.at_least.bytes <= 15_000 * 64 && first.at_most().bytes >= 15_000 * 64, "{first:?}");
    assert_eq!(counters.memory(), SpaceSaving::<FlowKey>::new(COUNTERS).memory());
}
