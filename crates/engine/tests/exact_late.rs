//! Exact CBQ where packets are late by seconds: beside bursts of a higher priority that take
//! seconds, and on a link where one packet takes seconds. A guarantee holds as long as the wire has
//! the link's rate, however late a class is served (docs/reference/cbq.md rules 9, 10, 12 and 14).
//! And the burst of the link's own packets.

use crate::support;

use altq_engine::settings::Limit;
use support::{Cbr, Class, MS, S, Sent, Wire, link};

const MANY: Option<Limit> = Some(Limit::Packets(100_000));

/// How long the packets of a class waited until their last bit had left, ns, in order.
fn waits(wire: &mut Wire, class: u32) -> Vec<u64> {
    let rate = wire.rate;
    let wait = |sent: &Sent| {
        let bits = u64::from(sent.departure.packet.wire) * 8;
        sent.at + (bits * S).div_ceil(rate) - sent.departure.packet.arrived
    };
    wire.log.iter().flatten().filter(|sent| sent.departure.class == class).map(wait).collect()
}

/// v has the higher priority and may send 200 packets at once. They take 2.4 s, in which x and y
/// get nothing. x sends one packet every 60 ms, which is its rate. By rule 9 a packet of x waits at
/// most for this: the bursts of x and y (6000 bytes), the packet on the wire, v's burst (300,000
/// bytes) and one packet more of v. These 309,000 bytes take 4.944 s at the 500 kbit/s that v
/// leaves.
#[test]
fn service_that_is_late_by_seconds_is_made_up_for() {
    let mut v = Class::new(0, 500_000).priority(7);
    v.maxburst = Some(200);
    let mut classes = [v, Class::new(0, 200_000), Class::new(0, 300_000)];
    classes.iter_mut().for_each(|class| class.queue = MANY);
    for excess in ["share", "priority"] {
        let mut wire = Wire::new(&link(1_000_000, &classes, excess));
        wire.log = Some(Vec::new());
        for (class, interval) in [(2, 60 * MS), (3, 40 * MS)] {
            wire.cbr(Cbr { class, size: 1500, interval, start: 0, end: 62_400 * MS });
        }
        for start in [4800 * MS, 14_400 * MS, 24_000 * MS, 33_600 * MS] {
            (0..200).for_each(|_| wire.cbr(Cbr { class: 1, size: 1500, interval: S, start, end: start + 1 }));
        }
        wire.run(70 * S);
        let waited = waits(&mut wire, 2);
        assert_eq!(waited.len(), 1040);
        let most = waited.iter().max().unwrap();
        assert!(*most <= 4944 * MS, "{excess}: x waited {most} ns");
        // At the end nothing is late any more: x's last packet waits for two others at most.
        let last = waited.last().unwrap();
        assert!(*last <= 3 * 12 * MS, "{excess}: x's last packet waited {last} ns");
    }
}

/// A link of 1 kbit/s, where a packet takes 12 s. a sends at half its rate; b and c always have
/// packets. No class borrows, so b and c get their rates, and the link is idle in the time that a
/// does not use.
#[test]
fn rates_hold_on_a_link_of_1_kbit_s() {
    for excess in ["share", "priority"] {
        let mut classes = [Class::new(0, 103), Class::new(0, 175), Class::new(0, 721)];
        classes.iter_mut().for_each(|class| class.queue = MANY);
        let mut wire = Wire::new(&link(1000, &classes, excess));
        wire.cbr(Cbr { class: 1, size: 1500, interval: 230_769_230_769, start: 0, end: u64::MAX });
        wire.greedy(2, &[1500]);
        wire.greedy(3, &[1500]);
        let end = 12_000 * S;
        wire.run(end);
        // A class is at most one packet behind its rate, and at most three packets ahead of it: its
        // burst of two, and one (docs/reference/cbq.md rule 10).
        for (class, rate) in [(2, 175), (3, 721)] {
            let (got, want) = (wire.bytes[class] * 8, rate * end / S);
            assert!(got + 12_000 >= want && got <= want + 3 * 12_000, "{excess}: class {class}: {got} of {want} bits");
        }
    }
}

/// The link's own packets have the rate that its classes leave, 1 Mbit/s, and the burst of a class
/// that states none: two packets. They wait at most for both bursts and one packet: 7500 bytes,
/// which take 6 ms at 10 Mbit/s.
#[test]
fn packets_of_the_link_itself_have_their_burst() {
    let mut wire = Wire::new(&link(10_000_000, &[Class::new(0, 9_000_000).borrow()], "share"));
    wire.log = Some(Vec::new());
    wire.greedy(1, &[1500]);
    // Two at once, then one every 12 ms: a token bucket of 3000 bytes and 1 Mbit/s.
    for _ in 0..2 {
        wire.cbr(Cbr { class: 0, size: 1500, interval: S, start: S, end: S + 1 });
    }
    wire.cbr(Cbr { class: 0, size: 1500, interval: 12 * MS, start: S + 12 * MS, end: S + 100 * MS });
    wire.run(2 * S);
    let waited = waits(&mut wire, 0);
    assert_eq!(waited.len(), 10);
    let most = waited.iter().max().unwrap();
    assert!(*most <= 6 * MS, "waited {most} ns");
}
