//! A calendar against its children's tags, with random children that come, go and are served.

use super::*;
use crate::random::SplitMix64;
use crate::schedule::cbq::exact::state::{Leaf, nspb, span};
use crate::units::SECOND;

const CHILDREN: usize = 12;

/// The child at the front. It is one that can take a packet, and none of those has a tag in an
/// earlier slot.
fn front(calendar: &mut Calendar, records: &mut Records) -> Option<u32> {
    let front = calendar.front(records);
    let least = records.leaves.iter().filter(|leaf| leaf.has(AVAIL)).map(|leaf| leaf.start).min();
    assert_eq!(front.is_some(), least.is_some());
    if let (Some(front), Some(least)) = (front, least) {
        assert!(records.leaves[front as usize].has(AVAIL));
        assert!(records.tag(front) >> calendar.shift <= least >> calendar.shift);
    }
    front
}

/// Lets a child take packets. It starts where the child at the front is, or later.
fn enable(calendar: &mut Calendar, records: &mut Records, id: u32) {
    let present = calendar.present(records);
    let first = front(calendar, records).map_or(0, |front| records.tag(front));
    let leaf = &mut records.leaves[id as usize];
    leaf.start = leaf.start.max(present).max(first);
    let (linked, nspb) = (leaf.has(LINKED), leaf.nspb);
    leaf.flags |= AVAIL | LINKED;
    calendar.avail += 1;
    if !linked {
        calendar.admit(records, nspb);
        calendar.insert(records, id);
    }
}

#[test]
fn nobody_goes_before_an_earlier_slot() {
    for seed in 0..60 {
        let mut random = SplitMix64::new(seed);
        let rates = [&[1_000, 64_000, 1_000_000_000][..], &[900_000, 1_000_000, 3_000_000]][seed as usize % 2];
        let mut records = Records { leaves: vec![Leaf::NONE; CHILDREN], ..Records::default() };
        for leaf in &mut records.leaves {
            leaf.nspb = nspb(rates[random.bits() as usize % rates.len()]);
        }
        let mut calendar = Calendar::new();
        for _ in 0..4000 {
            let id = (random.bits() % CHILDREN as u64) as u32;
            let leaf = records.leaves[id as usize];
            let time = span(leaf.nspb, 64 + (random.bits() % 1437) as u32);
            match random.bits() % 16 {
                0 | 1 if !leaf.has(AVAIL) => enable(&mut calendar, &mut records, id),
                0 if leaf.has(AVAIL) => {
                    records.leaves[id as usize].flags &= !AVAIL;
                    calendar.avail -= 1;
                }
                2 if leaf.has(LINKED) => {
                    calendar.unlink(&mut records, id);
                    calendar.avail -= u32::from(leaf.has(AVAIL));
                    records.leaves[id as usize].flags &= !AVAIL;
                }
                3..6 => {
                    let tag = calendar.serve_early(leaf.start, time, SECOND, leaf.has(AVAIL));
                    records.leaves[id as usize].start = tag;
                }
                _ => {
                    let Some(id) = front(&mut calendar, &mut records) else { continue };
                    let leaf = &mut records.leaves[id as usize];
                    leaf.start = calendar.serve_front(leaf.start, span(leaf.nspb, 1000), SECOND);
                    let tag = leaf.start;
                    // Some are left for the calendar to move.
                    if random.chance(9, 10) {
                        calendar.move_on(&mut records, id, tag);
                    }
                }
            }
        }
        front(&mut calendar, &mut records);
        let mut all = calendar.drain(&mut records);
        all.sort_unstable();
        let linked: Vec<u32> = (0..CHILDREN as u32).filter(|id| records.leaves[*id as usize].has(LINKED)).collect();
        assert_eq!(all, linked, "seed {seed}");
    }
}

#[test]
fn a_child_moves_on_from_the_front_only() {
    let mut records = Records { leaves: vec![Leaf { nspb: nspb(1_000_000), ..Leaf::NONE }; 2], ..Records::default() };
    let mut calendar = Calendar::new();
    enable(&mut calendar, &mut records, 0);
    enable(&mut calendar, &mut records, 1);
    assert_eq!(front(&mut calendar, &mut records), Some(0));
    // Child 1 stands behind child 0: its entry stays where it is, and is moved when it is found.
    records.leaves[1].start = 20 * SECOND;
    calendar.move_on(&mut records, 1, 20 * SECOND);
    assert_eq!(front(&mut calendar, &mut records), Some(0));
    // 1500 bytes take 12 ms: a slot is 2^19 ns wide. Within it child 0 stays at the front.
    records.leaves[0].start = (1 << 19) - 1;
    calendar.move_on(&mut records, 0, (1 << 19) - 1);
    assert_eq!((front(&mut calendar, &mut records), calendar.likely_front()), (Some(0), 0));
    records.leaves[0].start = 30 * SECOND;
    calendar.move_on(&mut records, 0, 30 * SECOND);
    assert_eq!(front(&mut calendar, &mut records), Some(1));
}
