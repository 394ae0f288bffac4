use super::super::store::Backing;
use super::*;
use crate::random::SplitMix64;

/// Random packets come to 50 flows and leave; after each step the fattest flow is compared with
/// all.
fn crowd<R: Rank>(seed: u64, measure: fn(&List) -> u32, least: fn(u32) -> u32) {
    let mut backing = Backing::default();
    let mut flows = Flows::<u32, R>::new(50);
    let mut random_bits = SplitMix64::new(seed);
    let mut random = |n: u64| random_bits.bits() % n;
    for step in 0..20_000u32 {
        let bucket = random(50) as u32;
        let grow = random(100) < if step / 2000 % 2 == 0 { 60 } else { 35 };
        match flows.find(bucket) {
            Some(at) if !grow => {
                if flows.pop(at, &mut backing.store()).is_none() {
                    flows.close(at);
                }
            }
            at => {
                let at = at.unwrap_or_else(|| flows.open(bucket));
                if flows.get(at).list.packets() < 127 {
                    flows.push(at, &Packet::new(step, random(1500) as u32), &mut backing.store());
                }
            }
        }
        let all = (0..50).filter_map(|bucket| flows.find(bucket)).map(|at| flows.get(at));
        let most = all.filter(|flow| !flow.list.is_empty()).map(|flow| measure(&flow.list)).max();
        let found = flows.fattest().map(|at| measure(&flows.get(at).list));
        assert_eq!(found.is_some(), most.is_some());
        if let (Some(found), Some(most)) = (found, most) {
            assert!(found <= most && found >= least(most), "{found} of {most}");
        }
    }
    assert!(flows.records() <= 50);
}

#[test]
fn the_fattest_is_known() {
    for seed in 0..5 {
        crowd::<ByPackets>(seed, List::packets, |most| most);
        crowd::<ByBytes>(seed, List::bytes, |most| (u64::from(most) * 4 / 5) as u32);
    }
}

#[test]
fn ranks_by_bytes_grow_by_a_quarter_of_an_octave() {
    let mut backing = Backing::default();
    let rank = |bytes: u32, backing: &mut Backing| {
        let mut list = List::NEW;
        backing.store().push(&mut list, &Packet::new(0, bytes));
        ByBytes::of(&list)
    };
    // By hand: 0 to 3 bytes have a rank each; then each of 4..8, 8..16, … has four: 4, 5, 6, 7,
    // 8-9, 10-11, 12-13, 14-15, 16-19, …
    let ranks: Vec<usize> =
        [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 15, 16, 19, 20].map(|bytes| rank(bytes, &mut backing)).to_vec();
    assert_eq!(ranks, [1, 2, 3, 4, 5, 6, 8, 9, 9, 10, 12, 13, 13, 14]);
    assert_eq!(rank(u32::MAX, &mut backing), 124);
    assert_eq!(ByBytes::of(&List::NEW), 0);
}

#[test]
fn records_are_used_again() {
    let mut flows = Flows::<u64, ByBytes>::new(4);
    let (a, b) = (flows.open(0), flows.open(1));
    flows.close(a);
    assert_eq!((flows.find(0), flows.find(1), flows.open_flows()), (None, Some(b), 1));
    assert_eq!(flows.open(3), a);
    assert_eq!(flows.records(), 2);
}

#[test]
fn buckets_are_met_evenly() {
    // The flows 0 to 99,999, as a file of arrivals may number them, into 1024 buckets. The sum of
    // the squares of the buckets' counts is at most 2 % above that of a uniform hash, n +
    // n(n-1)/1024.
    for seed in 0..10 {
        let hash = Hash::new(seed);
        let mut counts = [0u64; 1024];
        (0..100_000).for_each(|flow| counts[hash.bucket(flow, 1024) as usize] += 1);
        let squares: u64 = counts.iter().map(|n| n * n).sum();
        let even = 100_000 + 100_000 * 99_999 / 1024;
        assert!(squares < even + even / 50, "{squares} of {even}");
    }
}
