//! Exact CBQ: a leaf whose packet comes alone on an idle link is not linked anywhere. Nobody may
//! see that.

mod support;

use altq_engine::{Change, Engine, Packet};
use support::{Class, S, link};

const RATE: u64 = 10_000_000;
const SIZE: u32 = 1000;
/// A packet's time on the wire.
const TIME: u64 = SIZE as u64 * 8 * S / RATE;

/// 1 and 2 are agencies, 3 is a leaf of the first, 4 of the second; all are equal and borrow.
fn two() -> Vec<Class> {
    let half = RATE / 2;
    vec![
        Class::new(0, half).borrow(),
        Class::new(0, half).borrow(),
        Class::new(1, half).borrow(),
        Class::new(2, half).borrow(),
    ]
}

/// Who used an idle link alone, one packet at a time, neither owes for it nor has a claim: from the
/// moment when another comes they share. Start-time fair queueing divides to a packet of each
/// (Goyal et al. 1996, theorem 1); a burst of two packets is the other's by guarantee, whose clock
/// was idle (docs/reference/cbq.md rule 10).
#[test]
fn who_was_alone_shares_from_the_first_packet_on() {
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
            assert!(lead.abs() <= 4, "after {alone} alone, turn {turn}: {lead} packets apart");
            engine.enqueue(now, class, Packet::new(turn, SIZE));
            now += TIME;
        }
    }
}

/// Whatever happens between its coming and its going, the packet goes by the rules: a guarantee
/// that comes before it, a change of its class, the class's end.
#[test]
fn what_comes_between_finds_it_in_its_place() {
    // Beyond its guarantee, and then another's guarantee comes first (docs/reference/cbq.md rule
    // 8).
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

    // It may not borrow any more: it waits until its guarantee has come. Its burst was three of its
    // packets, and one more (docs/reference/cbq.md rule 10); the sixteen after them were borrowed.
    // So the next is due when one packet's time at half the link's rate is over.
    let mut held = engine();
    let settings = Class::new(1, RATE / 2).settings();
    held.apply(S, &Change::SetClass { class: 3, parent: 1, settings }).unwrap();
    let due = S + u64::from(SIZE) * 8 * S / (RATE / 2);
    assert!(held.dequeue(due - 1).is_none());
    assert_eq!(held.next_wakeup(), Some(due));
    assert_eq!(held.dequeue(due).unwrap().class, 3);

    // Waited for longer than that, it goes by its guarantee: nothing is borrowed.
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
