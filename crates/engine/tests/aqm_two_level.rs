//! The queue `two_level` against DragonFly's rule (docs/reference/altq.md 9): cases worked out by
//! hand, and random ones against a simple model.

use crate::support::queue as support;

use std::collections::VecDeque;

use altq_engine::settings::{Limit, Value};
use altq_engine::{Engine, Packet};
use support::{change, counter, link, queue};

fn two_level(limit: Limit, words: &[(&'static str, Value)]) -> Engine {
    link(8_000_000, queue("two_level", limit, words)).unwrap()
}

/// Enqueues packets: handle, length, high. Returns the packets dropped, and why.
fn give(engine: &mut Engine, packets: &[(u32, u32, bool)]) -> Vec<(u32, &'static str)> {
    for (handle, len, high) in packets {
        engine.enqueue(0, 1, Packet { high: *high, ..Packet::new(*handle, *len) });
    }
    engine.drops().map(|drop| (drop.packet.handle, drop.reason.name())).collect()
}

fn all(engine: &mut Engine) -> Vec<u32> {
    std::iter::from_fn(|| engine.dequeue(0)).map(|departure| departure.packet.handle).collect()
}

const N: bool = false;
const H: bool = true;

#[test]
fn high_goes_first() {
    let mut engine = two_level(Limit::Packets(50), &[]);
    assert_eq!(give(&mut engine, &[(1, 1500, N), (2, 40, H), (3, 1500, N), (4, 40, H)]), []);
    assert_eq!(all(&mut engine), [2, 4, 1, 3]);
}

#[test]
fn a_full_queue_by_packets() {
    let mut engine = two_level(Limit::Packets(4), &[]);
    give(&mut engine, &[(1, 100, N), (2, 100, N), (3, 100, N), (4, 100, N)]);
    // A normal packet is dropped itself.
    assert_eq!(give(&mut engine, &[(5, 100, N)]), [(5, "queue_full")]);
    // A high packet drops the head of the normal list. After two of them the high list is at half
    // of the limit, and the third is dropped itself.
    assert_eq!(give(&mut engine, &[(6, 40, H)]), [(1, "head_dropped")]);
    assert_eq!(give(&mut engine, &[(7, 40, H)]), [(2, "head_dropped")]);
    assert_eq!(give(&mut engine, &[(8, 40, H)]), [(8, "queue_full")]);
    assert_eq!(
        (counter(&engine, "high_packets"), counter(&engine, "high_bytes"), counter(&engine, "thrown_out")),
        (2, 80, 2)
    );
    assert_eq!(all(&mut engine), [6, 7, 3, 4]);
    // High packets may fill the whole queue if it is empty. Half is only what they may take from
    // normal packets.
    assert_eq!(give(&mut engine, &[(1, 40, H), (2, 40, H), (3, 40, H), (4, 40, H), (5, 40, H)]), [(5, "queue_full")]);
    assert_eq!(all(&mut engine), [1, 2, 3, 4]);
}

#[test]
fn a_full_queue_by_bytes() {
    // With limits of 8 packets and 4000 bytes, that in bytes is reached first.
    let mut engine = two_level(Limit::Packets(8), &[("bytes", Value::Bytes(4000))]);
    give(&mut engine, &[(1, 1500, N), (2, 1500, N), (3, 1000, N)]);
    assert_eq!(give(&mut engine, &[(4, 40, N)]), [(4, "queue_full")]);
    assert_eq!(give(&mut engine, &[(5, 40, H)]), [(1, "head_dropped")]);
    // With 40 + 1460 + 500 bytes the high list is at half of 4000: no more normal packets are
    // dropped for high ones.
    assert_eq!(give(&mut engine, &[(6, 1460, H)]), []);
    assert_eq!(give(&mut engine, &[(7, 500, H)]), [(2, "head_dropped")]);
    assert_eq!(counter(&engine, "high_bytes"), 2000);
    assert_eq!(give(&mut engine, &[(8, 1500, N), (9, 1500, H)]), [(8, "queue_full"), (9, "queue_full")]);
    assert_eq!(all(&mut engine), [5, 6, 7, 3]);
    // A high packet drops several normal ones if they are shorter, but none if it would not fit
    // even then.
    let mut engine = two_level(Limit::Bytes(3000), &[]);
    give(&mut engine, &[(1, 1000, N), (2, 1000, N), (3, 1000, N)]);
    assert_eq!(give(&mut engine, &[(4, 1200, H)]), [(1, "head_dropped"), (2, "head_dropped")]);
    assert_eq!(give(&mut engine, &[(5, 1900, H)]), [(5, "queue_full")]);
    assert_eq!(all(&mut engine), [4, 3]);
    // With a limit in packets alone, the limit in bytes is 2048 for each, as in DragonFly.
    let mut engine = two_level(Limit::Packets(2), &[]);
    assert_eq!(give(&mut engine, &[(1, 4096, N), (2, 1, N)]), [(2, "queue_full")]);
}

#[test]
fn prio_synack_can_be_off() {
    let off = [("prio_synack", Value::Choice("off"))];
    let mut engine = two_level(Limit::Packets(2), &off);
    assert_eq!(give(&mut engine, &[(1, 1500, N), (2, 40, H), (3, 40, H)]), [(3, "queue_full")]);
    assert_eq!(all(&mut engine), [1, 2]);
    // The word is changed while packets wait: those in the high list stay there.
    let mut engine = two_level(Limit::Packets(50), &[]);
    give(&mut engine, &[(1, 1500, N), (2, 40, H)]);
    change(&mut engine, 0, queue("two_level", Limit::Packets(50), &off)).unwrap();
    give(&mut engine, &[(3, 40, H)]);
    assert_eq!(all(&mut engine), [2, 1, 3]);
    // A lower limit drops from the normal list first.
    let mut engine = two_level(Limit::Packets(50), &[]);
    give(&mut engine, &[(1, 1500, N), (2, 40, H), (3, 1500, N), (4, 40, H)]);
    change(&mut engine, 0, queue("two_level", Limit::Packets(1), &[])).unwrap();
    let lost: Vec<_> = engine.drops().map(|drop| (drop.packet.handle, drop.reason.name())).collect();
    assert_eq!(lost, [(1, "limit_lowered"), (3, "limit_lowered"), (2, "limit_lowered")]);
    assert!(
        link(8, queue("two_level", Limit::Bytes(9), &[("bytes", Value::Bytes(9))]))
            .is_err_and(|e| e.word == Some("bytes"))
    );
}

/// The model: two lists of (handle, length).
#[derive(Default)]
struct Model {
    lists: [VecDeque<(u32, u32)>; 2],
}

impl Model {
    fn sums(&self, of: std::ops::Range<usize>) -> (usize, u32) {
        let packets = self.lists[of].iter().flatten();
        (packets.clone().count(), packets.map(|(_, len)| len).sum())
    }

    fn full(&self, len: u32, packets: usize, bytes: u32) -> bool {
        let (n, sum) = self.sums(0..2);
        n + 1 > packets || sum + len > bytes
    }

    fn arrive(&mut self, (handle, len, high): (u32, u32, bool), packets: usize, bytes: u32) -> Vec<u32> {
        let mut lost = Vec::new();
        if self.full(len, packets, bytes) {
            let (n, sum) = self.sums(1..2);
            if !high || n >= packets / 2 || sum >= bytes / 2 || self.lists[0].is_empty() || sum + len > bytes {
                return vec![handle];
            }
            while self.full(len, packets, bytes) {
                lost.push(self.lists[0].pop_front().unwrap().0);
            }
        }
        self.lists[usize::from(high)].push_back((handle, len));
        lost
    }

    fn leave(&mut self) -> Option<u32> {
        self.lists[1].pop_front().or_else(|| self.lists[0].pop_front()).map(|(handle, _)| handle)
    }
}

#[test]
fn as_the_model_has_it() {
    for seed in 1..=20u64 {
        let mut state = seed;
        let mut draw = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let (packets, bytes) = (2 + draw(20) as u32, 3000 + draw(20_000) as u32);
        let mut engine = two_level(Limit::Packets(packets), &[("bytes", Value::Bytes(bytes.into()))]);
        let mut model = Model::default();
        let mut thrown = 0;
        for handle in 0..5000 {
            if draw(100) < 53 {
                let (len, high) = ([40, 52, 576, 1500][draw(4) as usize], draw(100) < 35);
                engine.enqueue(0, 1, Packet { high, ..Packet::new(handle, len) });
                let lost: Vec<u32> = engine.drops().map(|drop| drop.packet.handle).collect();
                thrown += lost.iter().filter(|lost| **lost != handle).count();
                assert_eq!(lost, model.arrive((handle, len, high), packets as usize, bytes));
            } else {
                assert_eq!(engine.dequeue(0).map(|departure| departure.packet.handle), model.leave());
            }
        }
        assert!(thrown > 20, "{thrown} for {packets} packets, {bytes} bytes");
    }
}
