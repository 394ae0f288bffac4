//! Which reservations are admitted, why others are not, and what would have fitted. Figures are
//! worked out by hand, and bounds compared with what `altq check` would print.

use crate::support;

use altq_config::{Class, Link, Promises};
use altq_engine::link::Overhead;
use altq_engine::schedule::Reserved;
use altq_engine::settings::Limit;
use altq_engine::spec::{ClassSpec, QueueSpec};
use altq_engine::units::Rate;
use altq_engine::{Change, Engine};
use altq_reserve::{Excess, Op, Request, Service};
use support::{Random, World, add, code, flow, of, tspec};

/// 2 Mbit/s for reservations on an Ethernet wire.
const WIRE: &str = "link l { rate 10Mbit/s overhead ethernet scheduler cbq
    class res  { rate 2Mbit/s  priority 6  reservations { buffer 64000bytes } }
    class rest { rate 8Mbit/s  borrow  default } }";

#[test]
fn rates_are_charged_at_small_packets_by_hand() {
    let mut world = World::new(WIRE);
    // 62,500 byte/s in packets of 128 bytes, which are 166 on the wire: 648,437.5 bit/s.
    let call = tspec(500_000, 10_000, 128, 1500);
    for n in 1..=3 {
        let answer = world.ask(&add(&format!("call{n}"), 5000 + n, call));
        assert!(answer.granted, "{answer:?}");
        assert_eq!((answer.charged_bit_s, answer.rate_bit_s), (Some(648_438), Some(500_000)));
        assert_eq!((answer.id, answer.class), (Some(u64::from(n)), Some(format!("res.{n}"))));
    }
    // 2,000,000 - 3 x 648,438 = 54,686 are left; 54,686 x 128 / 166 = 42,167.5.
    let answer = world.ask(&add("call4", 5004, call));
    assert_eq!((answer.granted, code(&answer)), (false, Some((1, 2))));
    assert_eq!((answer.bottleneck.as_deref(), answer.would_fit_bit_s), (Some("res"), Some(42_167)));
    assert_eq!((answer.id, answer.charged_bit_s), (None, Some(648_438)));
    // One more bit/s than what fits is refused.
    assert!(!world.ask(&add("call4", 5004, tspec(42_168, 10_000, 128, 1500))).granted);
    assert!(world.ask(&add("call4", 5004, tspec(42_167, 10_000, 128, 1500))).granted);
    // Not enough is left for 1 bit/s, which costs 2.
    let answer = world.ask(&add("call5", 5005, tspec(1, 1, 128, 1500)));
    assert_eq!((code(&answer), answer.would_fit_bit_s), (Some((1, 2)), Some(0)));
}

#[test]
fn a_change_counts_only_what_it_is_more() {
    let mut world = World::new(WIRE);
    // 2,000,000 x 128 / 166 = 1,542,168.67: so much may a single reservation have.
    assert!(world.ask(&add("a", 1, tspec(1_000_000, 10_000, 128, 1500))).granted);
    let more = |rate| Request { tspec: Some(tspec(rate, 10_000, 128, 1500)), ..of(Op::Modify, "a") };
    assert!(world.ask(&more(1_542_168)).granted);
    let (before, changes) = (world.table.save(0, 0), world.changes.len());
    let answer = world.ask(&more(1_542_169));
    assert_eq!((code(&answer), answer.would_fit_bit_s), (Some((1, 2)), Some(1_542_168)));
    assert_eq!((answer.id, answer.class.as_deref()), (Some(1), Some("res.1")));
    assert_eq!((world.table.save(0, 0), world.changes.len()), (before, changes));
    // The same key again is the same reservation.
    let answer = world.ask(&add("a", 2, tspec(1_000, 10_000, 128, 1500)));
    assert_eq!((answer.granted, answer.id, world.table.reservations().count()), (true, Some(1), 1));
    assert_eq!(world.table.get(1).unwrap().flows, [flow(2)]);
}

#[test]
fn a_change_of_the_rate_is_made_in_place() {
    let mut world = World::new(WIRE);
    assert!(world.ask(&add("a", 1, tspec(100_000, 10_000, 128, 1500))).granted);
    world.changes.clear();
    let other = Request { tspec: Some(tspec(200_000, 10_000, 128, 1500)), ..of(Op::Modify, "a") };
    assert!(world.ask(&other).granted);
    let made = world.changes.as_slice();
    assert!(matches!(made, [Change::SetClass { .. }, Change::SetQueue { .. }]), "{made:?}");
    // The same request again changes nothing, and is not an event.
    let events = world.table.events_since(0).1.count();
    assert!(world.ask(&other).granted);
    assert_eq!((world.changes.len(), world.table.events_since(0).1.count()), (2, events));
}

/// The queue holds the burst, a packet, and what comes in the agreed delay; without one, in the
/// time in which 64,000 bytes are sent at 2 Mbit/s: 256 ms.
#[test]
fn queues_by_hand() {
    let mut world = World::new(WIRE);
    assert!(world.ask(&add("a", 1, tspec(500_000, 10_000, 128, 1500))).granted);
    let strict = Request { delay_ns: Some(40_000_000), ..add("b", 2, tspec(500_000, 10_000, 128, 1500)) };
    assert!(world.ask(&strict).granted);
    let limits: Vec<Limit> = world
        .changes
        .iter()
        .filter_map(|change| match change {
            Change::AddClass(class) => class.queue.as_ref().map(|queue| queue.limit),
            _ => None,
        })
        .collect();
    assert_eq!(limits, [Limit::Bytes(10_000 + 1_500 + 16_000), Limit::Bytes(10_000 + 1_500 + 2_500)]);
}

#[test]
fn bursts_add_up_to_the_buffer_by_hand() {
    let mut world = World::new(WIRE);
    assert!(world.ask(&add("a", 1, tspec(1_000, 30_000, 128, 1500))).granted);
    // 64,000 - 30,000.
    let answer = world.ask(&add("b", 2, tspec(1_000, 34_001, 128, 1500)));
    assert_eq!((code(&answer), answer.would_fit_bit_s), (Some((1, 2)), Some(0)));
    assert!(answer.reason.unwrap().contains("34000 bytes left of the buffer"));
    assert!(world.ask(&add("b", 2, tspec(1_000, 34_000, 128, 1500))).granted);
    // Without `buffer`, the buffer is what the class's queue holds: 50 packets of 1500 bytes.
    let plain = WIRE.replace("{ buffer 64000bytes }", "");
    let mut world = World::new(&plain);
    assert!(!world.ask(&add("a", 1, tspec(1_000, 75_001, 128, 1500))).granted);
    assert!(world.ask(&add("a", 1, tspec(1_000, 75_000, 128, 1500))).granted);
}

#[test]
fn services_packets_and_token_buckets_that_are_refused() {
    let mut world = World::new(WIRE);
    let answer = world.ask(&add("a", 1, tspec(1_000, 3_000, 128, 1501)));
    assert_eq!((code(&answer), answer.bottleneck.as_deref()), (Some((1, 3)), Some("l")));
    let guaranteed = Request { service: Some(Service::Guaranteed), ..add("a", 1, tspec(1_000, 3_000, 128, 1500)) };
    assert_eq!(code(&world.ask(&guaranteed)), Some((21, 2)));
    assert_eq!(code(&world.ask(&add("a", 1, tspec(0, 3_000, 128, 1500)))), Some((21, 3)));
    assert_eq!(code(&world.ask(&add("a", 1, tspec(1_000, 3_000, 1500, 128)))), Some((21, 3)));
    // More packets of 64 bytes than a class may send at once.
    let mut wide = World::new(&WIRE.replace("64000bytes", "1000000000bytes"));
    let answer = wide.ask(&add("a", 1, tspec(1_000, 64 * 65_536, 64, 64)));
    assert_eq!((code(&answer), answer.would_fit_bit_s), (Some((1, 2)), Some(0)));
    assert!(world.changes.is_empty() && wide.changes.is_empty());
}

#[test]
fn requests_about_nothing_or_about_others_are_refused() {
    let mut world = World::new(WIRE);
    let small = tspec(1_000, 3_000, 128, 1500);
    let refused = |world: &mut World, request: &Request, why: &str| {
        let answer = world.ask(request);
        let reason = answer.reason.clone().unwrap_or_default();
        assert!(!answer.granted && reason.contains(why), "{request:?}: {answer:?}");
        assert_eq!(code(&answer), None);
    };
    for op in [Op::Modify, Op::Refresh, Op::Del] {
        refused(&mut world, &of(op, "nobody"), "no such reservation");
        refused(&mut world, &Request { id: Some(7), ..Request::new(op) }, "no such reservation");
    }
    refused(&mut world, &of(Op::Add, "a"), "needs `flows` and `tspec`");
    let elsewhere = Request { within_class: Some("rest".into()), ..add("a", 1, small) };
    refused(&mut world, &elsewhere, "go below `res`");
    let within = Request { within_class: Some("l/res".into()), owner: Some("pbx".into()), ..add("a", 1, small) };
    assert!(world.ask(&within).granted);
    refused(&mut world, &add("b", 1, small), "has reservation 1 already");
    refused(&mut world, &Request { owner: Some("other".into()), ..of(Op::Del, "a") }, "another owner");
    assert!(world.ask(&Request { owner: Some("pbx".into()), ..of(Op::Del, "a") }).granted);
    assert_eq!(world.table.reservations().count(), 0);
}

#[test]
fn quotas_of_owners() {
    let text = WIRE.replace("buffer 64000bytes", "owner-rate 1Mbit/s owner-most 2 most 3");
    let mut world = World::new(&text);
    let by = |owner: &str, key: &str, port, rate| Request {
        owner: Some(owner.to_owned()),
        ..add(key, port, tspec(rate, 3_000, 1500, 1500))
    };
    // 1500 bytes are 1538 on the wire, so 1 Mbit/s on the wire has room for 975,292 bit/s.
    let answer = world.ask(&by("pbx", "a", 1, 975_293));
    assert_eq!((code(&answer), answer.bottleneck.as_deref()), (Some((2, 0)), Some("pbx")));
    assert_eq!(answer.would_fit_bit_s, Some(975_292));
    assert!(world.ask(&by("pbx", "a", 1, 500_000)).granted && world.ask(&by("pbx", "b", 2, 1_000)).granted);
    let answer = world.ask(&by("pbx", "c", 3, 1_000));
    assert_eq!((code(&answer), answer.would_fit_bit_s), (Some((2, 0)), None));
    assert!(world.ask(&by("tv", "c", 3, 975_292)).granted);
    let answer = world.ask(&by("web", "d", 4, 1_000));
    assert_eq!((code(&answer), answer.bottleneck.as_deref()), (Some((2, 0)), Some("res")));
}

/// docs/reference/cbq.md rule 9: the bursts of the reservations and one packet of 1500 bytes, at 10
/// Mbit/s.
#[test]
fn delays_by_hand() {
    let text = "link l { rate 10Mbit/s scheduler cbq
        class res  { rate 5Mbit/s  priority 7  reservations { delay 5ms } }
        class rest { rate 5Mbit/s  borrow  default } }";
    let mut world = World::new(text);
    let bucket = |burst| tspec(1_000_000, burst, 1500, 1500);
    assert!(world.ask(&add("a", 1, bucket(3000))).granted);
    assert_eq!(world.table.wait(1), Some(4500 * 800));
    // 7500 bytes are 6 ms.
    let answer = world.ask(&add("b", 2, bucket(3000)));
    assert_eq!((code(&answer), answer.would_fit_bit_s), (Some((1, 1)), Some(0)));
    assert_eq!(answer.bottleneck.as_deref(), Some("res"));
    assert!(answer.reason.unwrap().contains("6ms, more than 5ms"));
    assert!(world.ask(&add("b", 2, bucket(1500))).granted);
    assert_eq!((world.table.wait(1), world.table.wait(2)), (Some(6000 * 800), Some(6000 * 800)));
    // The delay that an owner was granted is kept when others come later: 1500 bytes more add 1.2
    // ms.
    let mut world = World::new(&text.replace("{ delay 5ms }", ""));
    let strict = Request { delay_ns: Some(4_000_000), ..add("a", 1, bucket(3000)) };
    assert!(world.ask(&strict).granted);
    assert_eq!(code(&world.ask(&add("b", 2, bucket(1500)))), Some((1, 1)));
    assert!(world.ask(&of(Op::Del, "a")).granted && world.ask(&add("b", 2, bucket(1500))).granted);
    assert_eq!(code(&world.ask(&strict)), Some((1, 1)));
}

/// A policy with classes above and below the reservations in priority, and random requests. A
/// reservation is granted if and only if the link with its class keeps all bounds, and its bound is
/// that of `check`.
#[test]
fn bounds_are_those_of_check() {
    let mut random = Random::new(9);
    let (mut granted, mut refused) = (0, 0);
    for round in 0..40 {
        let overhead = ["none", "ethernet", "pppoe-llcsnap"][round % 3];
        let own = ["", "match dport 9 -> res"][round % 2];
        let text = format!(
            "link l {{ rate 10Mbit/s overhead {overhead} scheduler cbq
            class high {{ rate 1Mbit/s priority 7 packetsize 200 }}
            class res  {{ rate 4Mbit/s priority 5 reservations {{ delay 30ms buffer 1000000bytes }} }}
            class same {{ rate 700kbit/s priority 5 maxburst 3 }}
            class rest {{ rate 4Mbit/s borrow default }} {own} }}"
        );
        let mut world = World::new(&text);
        let res = world.link.class("res").unwrap();
        let mut candidate = world.link.clone();
        for n in 0..40_u16 {
            let max = 100 + random.below(1400) as u32;
            let min = 40 + random.below(u64::from(max) - 60) as u32;
            let (rate, burst) = (1 + random.below(200_000), 1 + random.below(4_000));
            let answer = world.ask(&add(&n.to_string(), n + 1, tspec(rate, burst, min, max)));
            let (charged, wire) = charges(&world.link.spec.overhead, rate, burst, min, max);
            let mut with = candidate.clone();
            push(&mut with, res, Rate::bit_s(charged), wire, (burst, max));
            let children = with.children();
            let rates = children[res as usize].iter().map(|child| with.guarantee(*child).unwrap_or_default());
            let sum: u64 = rates.map(Rate::as_bit_s).sum();
            let last = with.spec.classes.len() as u32 - 1;
            let bound = Promises::new(&with).delay_bound(last).conforming;
            let fits = sum <= 4_000_000 && bound.is_some_and(|wait| wait <= 30_000_000);
            assert_eq!(answer.granted, fits, "{text} {sum} {bound:?} {answer:?}");
            if fits {
                assert_eq!(world.table.wait(answer.id.unwrap()), bound, "{text}");
                candidate = with;
                granted += 1;
            } else {
                refused += 1;
            }
        }
        assert!(Engine::new(&candidate.spec).is_ok());
    }
    assert!(granted > 200 && refused > 200, "{granted} {refused}");
}

/// The highest cost of a rate and a burst, in packets of one size from `min` to `max` bytes.
fn charges(overhead: &Overhead, rate: u64, burst: u64, min: u32, max: u32) -> (u64, u64) {
    let at = |n: u64, size: u32| (u128::from(n) * u128::from(overhead.charge(size))).div_ceil(u128::from(size)) as u64;
    let most = |n: u64| (min..=max).map(|size| at(n, size)).max().unwrap_or(0);
    (most(rate), most(burst))
}

/// Adds the class of a reservation to a policy's link.
fn push(link: &mut Link, parent: u32, rate: Rate, burst: u64, (own, packet): (u64, u32)) {
    let words = link.entry_of(parent).unwrap().reservation.unwrap();
    let of = link.spec.classes[parent as usize].settings.clone();
    let settings = words(&Reserved { parent: &of, rate, burst, packet, borrows: true }).unwrap();
    let queue = Some(QueueSpec::plain(Limit::Bytes(own as u32 + packet)));
    link.spec.classes.push(ClassSpec { queue, ..ClassSpec::new(parent, settings) });
    link.classes.push(Class { name: format!("res.{}", link.classes.len()), ..Class::default() });
}

/// Packets that do not conform go to the default class, or wait in the same queue.
#[test]
fn excess_in_the_same_queue_or_in_the_default_class() {
    let mut world = World::new(WIRE);
    let bucket = tspec(8_000, 1_000, 500, 500);
    let aside = Request { excess: Some(Excess::Default), ..add("a", 1, bucket) };
    assert!(world.ask(&aside).granted && world.ask(&add("b", 2, bucket)).granted);
    let classes: Vec<u32> = world.table.reservations().map(|there| there.class).collect();
    let rest = world.link.class("rest").unwrap();
    for (port, class) in [(1, classes[0]), (2, classes[1])] {
        for handle in 0..3 {
            let key = altq_engine::headers::Key { family: 4, proto: 17, ..Default::default() }.with_dport(Some(port));
            world.engine.receive(0, &key, altq_engine::Packet::new(handle, 500));
        }
        // The burst has room for two packets of 500 bytes.
        let queued = |class: u32| world.engine.counters(class).queued_packets;
        let expected = if port == 1 { (2, 1) } else { (3, 1) };
        assert_eq!((queued(class), queued(rest)), expected);
    }
}
