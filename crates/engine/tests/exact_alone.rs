//! Exact CBQ does not file a leaf whose packet is the only one in the scheduler (`alone` in
//! `crates/engine/src/schedule/cbq/exact/mod.rs`). Packets must leave as if it did.

use crate::support;

use altq_engine::{Change, Engine, Packet};
use support::{Class, S, link};

const RATE: u64 = 10_000_000;
const SIZE: u32 = 1000;
/// A packet's time on the wire.
const TIME: u64 = SIZE as u64 * 8 * S / RATE;

/// Two agencies, 1 and 2, with one leaf each: 3 below 1, and 4 below 2. Each class has half of the
/// link, and borrows.
fn two() -> Vec<Class> {
    let half = RATE / 2;
    vec![
        Class::new(0, half).borrow(),
        Class::new(0, half).borrow(),
        Class::new(1, half).borrow(),
        Class::new(2, half).borrow(),
    ]
}

/// Leaf 3 sends on an idle link, one packet at a time. That costs it nothing later and earns it
/// nothing: once leaf 4 has packets too, both get the same. Start-time fair queueing divides to a
/// packet of each (Goyal et al. 1996, theorem 1). Leaf 4 was idle, so a burst of two packets is
/// within its guarantee (docs/reference/cbq.md rule 10).
#[test]
fn a_leaf_that_was_alone_shares_once_another_has_packets() {
    for alone in [1, 2, 7, 1000] {
        let mut engine = Engine::new(&link(RATE, &two(), "share")).unwrap();
        let mut now = S;
        for n in 0..alone {
            engine.enqueue(now, 3, Packet::new(n, SIZE));
            assert_eq!(engine.next_wakeup(), Some(now));
            assert_eq!(engine.dequeue(now).unwrap().packet.handle, n);
            assert!(engine.dequeue(now).is_none());
            now += TIME;
        }
        for n in 0..3 {
            engine.enqueue(now, 3, Packet::new(n, SIZE));
            engine.enqueue(now, 4, Packet::new(n, SIZE));
        }
        let mut lead = 0i32;
        for turn in 0..200 {
            let class = engine.dequeue(now).unwrap().class;
            lead += if class == 4 { 1 } else { -1 };
            assert!(lead.abs() <= 4, "after {alone} packets alone, packet {turn}: {lead} packets apart");
            engine.enqueue(now, class, Packet::new(turn, SIZE));
            now += TIME;
        }
    }
}

/// A packet that is alone keeps to the rules whatever happens before it is sent: another leaf gets
/// a packet within guarantee, its class may not borrow any more, time passes, its class is removed.
#[test]
fn a_packet_that_is_alone_keeps_to_the_rules() {
    // The packet is beyond guarantee. One within guarantee that arrives after it goes first
    // (docs/reference/cbq.md rule 8).
    let engine = || {
        let mut engine = Engine::new(&link(RATE, &two(), "share")).unwrap();
        for n in 0..20 {
            engine.enqueue(S, 3, Packet::new(n, SIZE));
            engine.dequeue(S).unwrap();
        }
        engine.enqueue(S, 3, Packet::new(100, SIZE));
        engine
    };
    let mut first = engine();
    first.enqueue(S, 4, Packet::new(101, SIZE));
    assert_eq!(first.dequeue(S).unwrap().class, 4);
    assert_eq!(first.dequeue(S).unwrap().class, 3);

    // Its class may not borrow any more, so the packet waits until it is within guarantee. Of the
    // twenty packets before it four were within guarantee: the burst of 3000 bytes, and one packet
    // more (docs/reference/cbq.md rule 10). Sixteen were borrowed. So it is due after the time of
    // one packet at the class's rate.
    let mut held = engine();
    let settings = Class::new(1, RATE / 2).settings();
    held.apply(S, &Change::SetClass { class: 3, parent: 1, settings }).unwrap();
    let due = S + u64::from(SIZE) * 8 * S / (RATE / 2);
    assert!(held.dequeue(due - 1).is_none());
    assert_eq!(held.next_wakeup(), Some(due));
    assert_eq!(held.dequeue(due).unwrap().class, 3);

    // Asked for only when that time is over, the packet goes by its guarantee: nothing is borrowed.
    let mut late = engine();
    let borrowed = late.own_counters(3).borrowed_bytes;
    assert_eq!(late.dequeue(due).unwrap().class, 3);
    assert_eq!(late.own_counters(3).borrowed_bytes, borrowed);

    let mut gone = engine();
    gone.apply(S, &Change::RemoveClass { class: 3, heir: None }).unwrap();
    assert_eq!((gone.drops().count(), gone.backlog()), (1, 0));
    assert!(gone.dequeue(2 * S).is_none());
    gone.enqueue(2 * S, 4, Packet::new(0, SIZE));
    assert_eq!(gone.dequeue(2 * S).unwrap().class, 4);
}
