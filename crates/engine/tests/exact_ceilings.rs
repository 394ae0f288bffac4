//! Exact CBQ: inner classes with ceilings leave no time of the link unused if their `maxburst` has
//! a packet for each leaf, as `altq check` advises (docs/schedulers/cbq.md, "Ceilings of inner
//! classes"; docs/reference/cbq.md rule 15).

use crate::support;

use support::{Class, S, Wire, link};

/// Three classes may have 40 of 100 Mbit/s each, so together more than the link. Each has 30 leaves
/// that always have packets: the link is full, and equal classes share it equally.
#[test]
fn a_packet_of_burst_for_each_leaf_fills_the_link() {
    for rate in [200_000, 500_000, 1_000_000] {
        let mut classes = Vec::new();
        for _ in 0..3 {
            let mut class = Class::new(0, 33_000_000).borrow().ceiling(40_000_000);
            class.maxburst = Some(30);
            classes.push(class);
        }
        classes.extend((0..90).map(|n| Class::new(1 + n % 3, rate).borrow()));
        let mut wire = Wire::new(&link(100_000_000, &classes, "share"));
        let leaves = 4..94;
        leaves.clone().for_each(|leaf| wire.greedy(leaf, &[1500]));
        wire.run(4 * S);
        let sent = |class: u32| wire.bytes[class as usize] * 8;
        let each: Vec<u64> =
            (0..3).map(|of| leaves.clone().filter(|leaf| (leaf - 4) % 3 == of).map(sent).sum()).collect();
        let all: u64 = each.iter().sum();
        // 100 Mbit/s for 4 s, less a packet or two at the end.
        assert!(all >= 399_900_000, "leaves of {rate} bit/s: {all} bits, {each:?}");
        for part in &each {
            let off = (*part as f64 / (all as f64 / 3.0) - 1.0).abs();
            assert!(off < 0.02, "leaves of {rate} bit/s: {each:?}");
        }
    }
}
