use altq_config::{Language, parse_str};
use altq_engine::Engine;
use altq_engine::headers::Key;
use altq_engine::random::SplitMix64;
use altq_engine::units::Rate;
use altq_reserve::{Excess, Saved, Tspec};
use serde_json::Value;

use super::*;
use crate::fault::Code;
use crate::journal::Journal;
use crate::prefix::Prefix;
use crate::request::{Gets, Place as SubscriberPlace, Subscriber};

const POLICY: &str = "link down { rate 100Mbit/s  scheduler cbq
        class res { rate 20Mbit/s  priority 6  reservations { lifetime 100s  owner-most 30 } }
        class subscribers { share 50% }
        class rest { share 30%  default }
        match dport 5000 -> rest }
    link up { rate 20Mbit/s  scheduler cbq
        class res { rate 4Mbit/s  reservations }
        class rest { rate 16Mbit/s  default } }";

/// A roster, and the engines of its links, which get its changes.
pub struct World {
    pub roster: Roster,
    pub engines: Vec<(String, Engine)>,
    pub now: Nanos,
    /// The journal that a supervisor would have.
    journal: Journal,
}

pub fn links(text: &str) -> Vec<Arc<Link>> {
    let policy = parse_str(text, "test.altq", Language::Native).unwrap_or_else(|error| panic!("{error}"));
    policy.links.into_iter().map(Arc::new).collect()
}

impl World {
    pub fn new(text: &str) -> World {
        World::of(links(text))
    }

    fn of(links: Vec<Arc<Link>>) -> World {
        let engines = links.iter().map(|link| (link.name.clone(), Engine::new(&link.spec).unwrap())).collect();
        World { roster: Roster::new(links, 10_000).unwrap(), engines, now: SECOND, journal: Journal::default() }
    }

    /// The wall clock is an hour ahead of the loop's.
    pub fn at(&self) -> Time {
        Time { now: self.now, boot: self.now + 3600 * SECOND }
    }

    pub fn make(&mut self, changes: Changes) {
        for (name, changes) in changes {
            let (_, engine) = self.engines.iter_mut().find(|(link, _)| *link == name).unwrap();
            for change in changes {
                engine.apply(self.now, &change).unwrap_or_else(|error| panic!("{name}: {change:?}: {error}"));
            }
        }
        self.check();
    }

    pub fn done<T>(&mut self, done: Done<T>) -> T {
        assert!(done.said.is_empty(), "{:?}", done.said);
        done.notes.split_inclusive(|byte| *byte == b'\n').for_each(|line| self.journal.take(line));
        self.make(done.changes);
        done.result
    }

    fn said(&mut self, asked: &Request) -> Said {
        let done = self.roster.reserve(self.at(), asked).unwrap_or_else(|fault| panic!("{asked:?}: {fault}"));
        self.done(done)
    }

    pub fn ask(&mut self, asked: &Request) -> Answer {
        match self.said(asked) {
            Said::Answer(answer) => *answer,
            other => panic!("{asked:?}: {other:?}"),
        }
    }

    pub fn expire(&mut self) {
        let done = self.roster.expire(self.at());
        self.done(done);
    }

    pub fn table(&self, link: &str) -> &Table {
        self.roster.tables().find(|(there, _)| there.name == link).unwrap().1
    }

    /// Checks that the engines have the classes of the links, below the same parents and with the
    /// same words, and that packets of each reservation and subscriber go to its class.
    pub fn check(&mut self) {
        for (name, engine) in &mut self.engines {
            let link = self.roster.link(name).unwrap();
            for (id, class) in (0..).zip(&link.classes).skip(1) {
                let expected = (!class.name.is_empty()).then(|| link.spec.classes[id as usize].parent);
                assert_eq!(engine.parent(id), expected, "{name}: class {id} `{}`", class.name);
            }
            assert_eq!(link.rules.len(), link.spec.rules.rules.len());
            let tree = self.roster.links.iter().find(|tree| tree.link.name == *name).unwrap();
            let mut reserved = 0;
            for there in tree.reserved.iter().flat_map(|reserved| reserved.table.reservations()) {
                assert_eq!(link.class(&there.name), Some(there.class));
                assert_eq!(link.guarantee(there.class), Some(Rate::bit_s(there.charged())));
                reserved += 1;
            }
            assert_eq!(tree.booked.classes.len(), reserved);
            let held = tree.booked.classes.iter().map(|class| bytes(link.spec.classes[*class as usize].queue.as_ref()));
            assert_eq!(held.sum::<u64>(), tree.booked.held);
            assert!(tree.booked.held <= tree.booked.room);
            let (whole, _) = without_gaps(link);
            Engine::new(&whole.spec).unwrap();
        }
    }

    /// The class to which the engine of a link sends UDP packets to a host and port.
    pub fn class_of(&mut self, link: &str, dst: u32, dport: u16) -> String {
        let (_, engine) = self.engines.iter_mut().find(|(name, _)| name == link).unwrap();
        let dst = u128::from(dst);
        let key = Key { family: 4, src: 7, dst, proto: 17, ..Key::default() }.with_ports(9, dport);
        let class = engine.classify(&key).unwrap();
        self.roster.link(link).unwrap().class_name(class).to_owned()
    }

    pub fn set(&mut self, id: &str, address: &str, rate: u64) -> usize {
        let classes = vec![SubscriberPlace { link: "down".into(), within: None, gets: Gets::Rate(rate) }];
        let addresses = vec![Prefix::read(address).unwrap()];
        let (report, changes) = self.roster.set(vec![Subscriber { id: id.into(), addresses, classes }]);
        self.make(changes);
        report.done
    }
}

pub fn tspec(rate: u64) -> Tspec {
    let (min_unit_bytes, max_packet_bytes) = (Some(1500), Some(1500));
    Tspec { rate_bit_s: rate, burst_bytes: 3000, peak_bit_s: None, min_unit_bytes, max_packet_bytes }
}

pub fn of(op: Op, key: &str) -> Request {
    Request { key: Some(key.to_owned()), ..Request::new(op) }
}

pub fn add(key: &str, port: u16, rate: u64) -> Request {
    let flow = format!("proto=udp dport={port}").parse().unwrap();
    let within_class = Some("down/res".to_owned());
    Request { flows: Some(vec![flow]), tspec: Some(tspec(rate)), within_class, ..of(Op::Add, key) }
}

pub fn events(roster: &Roster, from: u64) -> Vec<Value> {
    let (body, _) = roster.news(from, usize::MAX);
    body.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

#[test]
fn a_reservation_comes_changes_and_ends() {
    let mut world = World::new(POLICY);
    assert_eq!(world.set("one", "10.0.0.1", 1_000_000), 1);
    assert_eq!(world.class_of("down", 0x0a00_0001, 5000), "one");
    let answer = world.ask(&add("a", 5000, 500_000));
    assert_eq!((answer.granted, answer.id, answer.class.as_deref()), (true, Some(1), Some("res.1")));
    let down = world.roster.link("down").unwrap();
    let class = down.class("res.1").unwrap();
    assert_eq!(down.class_name(down.spec.classes[class as usize].parent), "res");
    // Rules of reservations are tried before those of subscribers, and both before the policy's.
    assert_eq!(world.class_of("down", 0x0a00_0001, 5000), "res.1");
    assert_eq!(world.class_of("down", 0x0a00_0001, 5001), "one");
    assert_eq!(world.class_of("down", 9, 5001), "rest");
    // A subscriber that comes leaves it where it is.
    assert_eq!(world.set("two", "10.0.0.2", 1_000_000), 1);
    assert_eq!(world.class_of("down", 0x0a00_0002, 5000), "res.1");
    // A change keeps the same class; a change that is refused changes nothing.
    let more = Request { tspec: Some(tspec(900_000)), ..of(Op::Modify, "a") };
    assert!(world.ask(&more).granted);
    assert_eq!(world.roster.link("down").unwrap().guarantee(class), Some(Rate::kbit_s(900)));
    let refused = world.ask(&Request { tspec: Some(tspec(20_000_001)), ..of(Op::Modify, "a") });
    assert_eq!((refused.granted, refused.rsvp_code, refused.rsvp_value), (false, Some(1), Some(2)));
    assert_eq!(refused.would_fit_bit_s, Some(20_000_000));
    assert_eq!(world.roster.link("down").unwrap().guarantee(class), Some(Rate::kbit_s(900)));
    // The policy lets it last for 100 s; `expire` has something to do then.
    assert_eq!(world.roster.due(), Some(101 * SECOND));
    world.now = 51 * SECOND;
    assert_eq!(world.ask(&of(Op::Refresh, "a")).expires_s, Some(100.0));
    world.now = 151 * SECOND;
    world.expire();
    assert_eq!((world.roster.reservations(), world.roster.due()), (0, None));
    assert_eq!(world.class_of("down", 0x0a00_0002, 5000), "two");
    assert!(world.roster.link("down").unwrap().class("res.1").is_none());
    let told = events(&world.roster, 0);
    let happened: Vec<&str> = told.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(happened, ["granted", "changed", "expired"]);
    assert_eq!(
        (&told[2]["seq"], &told[2]["link"], &told[2]["schema"]),
        (&2.into(), &"down".into(), &"altq.reserve-event/1".into())
    );
    // A client that watches from now on gets none of the earlier events.
    assert_eq!(world.roster.coming(), 3);
    assert!(events(&world.roster, 3).is_empty());
    assert_eq!(world.roster.news(0, 1).1, 1, "one line, and on from there");
}

#[test]
fn the_link_of_a_request_follows_from_its_class_or_its_key() {
    let mut world = World::new(POLICY);
    let why = |world: &mut World, asked: &Request| {
        let answer = world.ask(asked);
        assert!(!answer.granted);
        answer.reason.unwrap()
    };
    let open = |asked: Request| Request { within_class: None, ..asked };
    let up = |key: &str, port, rate| Request { within_class: Some("up/res".into()), ..add(key, port, rate) };
    assert_eq!(
        why(&mut world, &open(add("a", 1, 1000))),
        "several classes take reservations: `within_class` says which of `down/res`, `up/res`"
    );
    let elsewhere = Request { within_class: Some("down/rest".into()), ..add("a", 1, 1000) };
    assert_eq!(why(&mut world, &elsewhere), "no reservations go below `down/rest`; they go below `down/res`, `up/res`");
    assert!(why(&mut world, &Request { within_class: Some("res".into()), ..add("a", 1, 1000) }).starts_with("several"));
    // Each link has numbers and flows of its own.
    assert_eq!(world.ask(&add("a", 1, 1000)).id, Some(1));
    assert_eq!(world.ask(&up("b", 1, 2000)).id, Some(1));
    assert_eq!(world.ask(&of(Op::Refresh, "b")).rate_bit_s, Some(2000));
    assert_eq!(why(&mut world, &of(Op::Del, "c")), "there is no such reservation");
    assert!(why(&mut world, &Request { id: Some(1), ..Request::new(Op::Del) }).starts_with("several"));
    let of_up = Request { id: Some(1), within_class: Some("up/res".into()), ..Request::new(Op::Del) };
    assert_eq!(world.ask(&of_up).key.as_deref(), Some("b"));
    let Said::Places(all) = world.said(&Request::new(Op::List)) else { panic!("a list") };
    let counts: Vec<(&str, usize)> = all.places.iter().map(|of| (of.link.as_str(), of.reservations.len())).collect();
    assert_eq!(counts, [("down", 1), ("up", 0)]);
    // Events are numbered across all links.
    let told = events(&world.roster, 0);
    let told: Vec<(u64, &str)> =
        told.iter().map(|event| (event["seq"].as_u64().unwrap(), event["link"].as_str().unwrap())).collect();
    assert_eq!(told, [(0, "down"), (1, "up"), (2, "up")]);
}

/// A key names one reservation, whichever link it is in.
#[test]
fn a_key_of_another_link_is_refused() {
    let mut world = World::new(POLICY);
    let up = |port, rate| Request { within_class: Some("up/res".into()), ..add("a", port, rate) };
    assert!(world.ask(&Request { ttl_s: Some(20.0), ..add("a", 1, 1000) }).granted);
    let answer = world.ask(&up(2, 2000));
    assert!(!answer.granted);
    let why = answer.reason.unwrap();
    assert!(why.starts_with("link `down` has a reservation with the key `a` already"), "{why}");
    assert_eq!(world.table("up").reservations().count(), 0);
    // In its own link the same request changes it.
    assert_eq!(world.ask(&add("a", 1, 3000)).rate_bit_s, Some(3000));
    assert!(world.ask(&Request { ttl_s: Some(20.0), ..add("a", 1, 3000) }).granted);
    // One whose time is over is in nobody's way, even before it is removed.
    world.now += 21 * SECOND;
    assert!(world.ask(&up(2, 2000)).granted);
    world.expire();
    assert_eq!((world.table("down").reservations().count(), world.table("up").reservations().count()), (0, 1));
    // When the reservation is ended, the key is free for every link.
    assert!(world.ask(&of(Op::Del, "a")).granted && world.ask(&add("a", 1, 1000)).granted);
}

#[test]
fn without_a_class_or_in_a_link_of_the_kernel_the_reason_is_said() {
    let mut world = World::new("link l { rate 1Mbit/s scheduler cbq class all { share 10% default } }");
    let any = Request { within_class: None, ..add("a", 1, 1000) };
    assert!(world.ask(&any).reason.unwrap().contains("write `reservations` in a class"));
    let Said::Places(all) = world.said(&Request::new(Op::List)) else { panic!("a list") };
    assert!(all.places.is_empty());
    let text = "link k { device eth0  path kernel  rate 9Mbit/s  scheduler htb  class all { rate 9Mbit/s default } }
        link l { rate 10Mbit/s scheduler cbq class res { share 10% reservations } class all { share 10% default } }";
    let mut world = World::new(text);
    let answer = world.ask(&Request { within_class: Some("k/all".into()), ..add("a", 1, 1000) });
    assert!(!answer.granted);
    assert!(answer.reason.unwrap().contains("the kernel executes link `k`, so it takes no reservations"));
}

/// ALTQ tries rules with a full-host destination before all others, wherever they are in the file.
#[test]
fn reservations_go_first_in_an_altq_conf_too() {
    let text = "interface em0 bandwidth 10M cbq
class cbq em0 root NULL pbandwidth 100
class cbq em0 res root pbandwidth 40 admission cntlload
class cbq em0 host root pbandwidth 10
class cbq em0 def root pbandwidth 50 default
filter em0 host 10.0.0.9 0 0 0 0
";
    let policy = parse_str(text, "t.conf", Language::Altq).unwrap_or_else(|error| panic!("{error}"));
    let mut world = World::of(policy.links.into_iter().map(Arc::new).collect());
    let host = 0x0a00_0009;
    assert_eq!(world.class_of("em0", host, 5000), "host");
    let any = Request { within_class: None, ..add("a", 5000, 64_000) };
    assert!(world.ask(&any).granted);
    assert_eq!((world.class_of("em0", host, 5000), world.class_of("em0", host, 5001)), ("res.1".into(), "host".into()));
    assert!(world.ask(&of(Op::Del, "a")).granted);
    // Without reservations the rules are the policy's again, in its own order.
    assert_eq!(world.roster.link("em0").unwrap().spec.rules.order, Order::Altq);
    assert_eq!(world.class_of("em0", host, 5000), "host");
}

#[test]
fn queues_that_have_no_room_are_refused_and_leave_nothing() {
    let text = "link l { rate 10Mbit/s scheduler cbq
        class res { rate 4Mbit/s reservations { buffer 6000bytes } } class all { share 10% default } }";
    let mut world = World::new(text);
    // 2 x 6000 + 6000 + 1500 bytes. A burst of 100 bytes with packets of 1500 holds 1600 and more.
    let small = |key: &str, port| {
        let bucket = Tspec { burst_bytes: 100, ..tspec(1000) };
        Request { tspec: Some(bucket), within_class: None, ..add(key, port, 1000) }
    };
    let mut granted = 0;
    let refused = loop {
        let answer = world.ask(&small(&granted.to_string(), granted + 1));
        if !answer.granted {
            break answer;
        }
        granted += 1;
    };
    assert_eq!((granted, refused.rsvp_code), (12, Some(22)));
    assert!(refused.reason.unwrap().contains("there is room for 19500"));
    assert!(world.ask(&of(Op::Del, "3")).granted && world.ask(&small("new", 100)).granted);
}

/// A new worker gets what the journal has, and answers no client before.
#[test]
fn a_worker_gets_the_reservations_of_the_one_before() {
    let mut world = World::new(POLICY);
    assert!(world.ask(&add("a", 1, 500_000)).granted);
    assert!(world.ask(&Request { ttl_s: Some(20.0), excess: Some(Excess::Default), ..add("b", 2, 600_000) }).granted);
    assert!(world.ask(&Request { ttl_s: Some(5.0), ..add("c", 3, 700_000) }).granted);
    assert!(world.ask(&add("d", 4, 700_000)).granted && world.ask(&of(Op::Del, "d")).granted);
    world.now += 3 * SECOND;
    assert!(world.ask(&of(Op::Refresh, "b")).granted);
    assert!(!world.journal.is_empty());
    let saved: Vec<Saved> = world.table("down").reservations().map(|there| there.saved(0, 0)).collect();
    let state = world.table("down").save(world.now, world.at().boot);
    let mut next = World::new(POLICY);
    // Its clock continues, because it is the host's; six seconds have passed.
    next.now = world.now + 6 * SECOND;
    next.roster.await_those_before(next.now + 10 * SECOND);
    let fault = next.roster.reserve(next.at(), &add("a", 1, 1_000)).unwrap_err();
    assert_eq!((fault.code, fault.to_string().contains("ask again")), (Code::Failed, true));
    let done = next.roster.restore(next.at(), Some(&state), false);
    let again = next.done(done);
    assert_eq!(again, Again { restored: 2, expired: 1, refused: Vec::new() });
    assert!(next.roster.reserve(next.at(), &Request::new(Op::List)).is_err(), "more may come");
    // The same again, because the answer was lost.
    let done = next.roster.restore(next.at(), Some(&state), false);
    assert_eq!(next.done(done), Again { restored: 0, expired: 1, refused: Vec::new() });
    let done = next.roster.restore(next.at(), None, true);
    next.done(done);
    // The same key means the same reservation, with its deadline; no number is used twice.
    let same = next.ask(&Request { tspec: Some(tspec(500_000)), ..of(Op::Modify, "b") });
    assert_eq!((same.id, same.expires_s), (Some(2), Some(14.0)));
    assert_eq!(next.ask(&add("new", 9, 1_000)).id, Some(5));
    let there: Vec<Saved> = next.table("down").reservations().map(|there| there.saved(0, 0)).collect();
    assert_eq!((there[0].id, &there[0].flows, there.len()), (1, &saved[0].flows, 3));
    assert_eq!(there[1].excess, Excess::Default);
    // A worker that never gets them answers after a while.
    let mut alone = World::new(POLICY);
    alone.roster.await_those_before(alone.now + SECOND);
    // As long as some come, it waits for more.
    alone.roster.await_more(alone.now + 5 * SECOND);
    alone.now += 4 * SECOND;
    assert!(alone.roster.reserve(alone.at(), &add("a", 1, 1_000)).is_err_and(|fault| fault.passes()));
    alone.now += SECOND;
    assert!(alone.ask(&add("a", 1, 1_000)).granted);
    // For a link that no longer exists the journal forgets them.
    let gone = State { link: "lan".into(), ..state };
    let done = alone.roster.restore(alone.at(), Some(&gone), true);
    let lines = done.notes.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!((done.result.refused.len(), lines), (3, 3));
}

#[test]
fn a_policy_that_is_read_again_keeps_what_it_has_room_for() {
    let mut world = World::new(POLICY);
    for (key, port, rate) in [("a", 1_u16, 9_000_000), ("b", 2, 7_000_000), ("c", 3, 1_000_000)] {
        assert!(world.ask(&add(key, port, rate)).granted);
    }
    assert!(world.ask(&of(Op::Del, "a")).granted && world.ask(&add("d", 4, 2_000_000)).granted);
    let follow = |world: &mut World, text: &str| {
        let done = world.roster.follow(world.at(), links(text), true).unwrap();
        world.done(done);
    };
    follow(&mut world, POLICY);
    assert_eq!(world.table("down").list(0).charged_bit_s, 10_000_000);
    // 9 Mbit/s have room for the second and the third.
    let smaller = POLICY
        .replace("rate 20Mbit/s  priority 6", "rate 9Mbit/s  priority 5")
        .replace("lifetime 100s", "lifetime 50s");
    follow(&mut world, &smaller);
    let there: Vec<(u64, Option<Nanos>)> =
        world.table("down").reservations().map(|one| (one.id, one.deadline)).collect();
    assert_eq!(there, [(2, Some(51 * SECOND)), (3, Some(51 * SECOND))]);
    // Clients are sent the new deadlines of the others.
    let told = events(&world.roster, 5);
    let of = |what: &str| told.iter().filter(|event| event["event"] == what).count();
    assert_eq!((of("preempted"), of("changed")), (1, told.len() - 1), "{told:?}");
    assert_eq!((world.class_of("down", 7, 2), world.class_of("down", 7, 4)), ("res.2".into(), "rest".into()));
    let there = world.roster.link("down").unwrap();
    let words = &there.spec.classes[there.class("res.2").unwrap() as usize].settings;
    assert_eq!(words.int("priority"), Some(5));
    // Classes that come now have the same numbers in the loop.
    assert!(world.ask(&add("e", 5, 1000)).granted);
    assert_eq!(world.class_of("down", 7, 5), "res.5");
    // Without a class for reservations all of them end.
    follow(&mut world, &smaller.replace("reservations { lifetime 50s  owner-most 30 }", ""));
    assert_eq!((world.roster.reservations(), world.class_of("down", 7, 2)), (0, "rest".into()));
    assert!(!world.ask(&add("f", 6, 1000)).granted);
}

/// If the rate of the link falls or subscribers come, there is less room; delays that were granted
/// are kept.
#[test]
fn tables_follow_what_changes_in_their_links() {
    let text = "link down { rate 10Mbit/s  scheduler cbq
        class res { rate 2Mbit/s  priority 6  reservations { buffer 20000bytes } }
        class subscribers { rate 4Mbit/s }
        class rest { rate 2Mbit/s  default } }";
    let mut world = World::new(text);
    let within = |delay| Request { delay_ns: Some(delay), ..add("a", 1, 500_000) };
    // A burst of two packets and a packet of another class take 3.6 ms at 10 Mbit/s, and 4.5 ms at
    // 8 Mbit/s.
    assert!(!world.ask(&within(3_500_000)).granted);
    let answer = world.ask(&within(4_000_000));
    assert!(answer.granted, "{answer:?}");
    let changes = world.roster.set_rate("down", Rate::mbit_s(8)).unwrap();
    world.make(changes);
    assert_eq!(world.roster.due(), Some(0), "the table is to follow");
    world.expire();
    let told = events(&world.roster, 1);
    assert_eq!(told[0]["event"], "preempted");
    assert!(told[0]["reason"].as_str().unwrap().contains("would wait up to"), "{told:?}");
    assert_eq!((world.roster.due(), world.roster.reservations()), (None, 0));
}

/// Random requests for reservations and subscribers in any order. The loops' engines agree with the
/// roster (`World::check`), the sums stay within the class, and the journal has the present
/// reservations.
#[test]
fn random_requests_of_both_kinds() {
    for seed in 0..20 {
        let mut random = SplitMix64::new(seed);
        let mut below = |n: u64| random.bits() % n;
        let mut world = World::new(POLICY);
        for _ in 0..150 {
            let key = format!("k{}", below(12));
            let rate = 100_000 + below(6_000_000);
            let port = 1 + below(20) as u16;
            match below(8) {
                0 | 1 => _ = world.ask(&add(&key, port, rate)),
                2 => _ = world.ask(&Request { tspec: Some(tspec(rate)), ..of(Op::Modify, &key) }),
                3 => _ = world.ask(&Request { ttl_s: Some(1.0 + below(50) as f64), ..of(Op::Refresh, &key) }),
                4 => _ = world.ask(&of(Op::Del, &key)),
                5 => {
                    world.now += below(20) * SECOND;
                    world.expire();
                }
                6 => {
                    _ = world.set(
                        &format!("s{}", below(6)),
                        &format!("10.0.0.{}", below(9)),
                        1_000_000 + below(9) * 100,
                    )
                }
                _ => {
                    let (_, changes) = world.roster.delete(&[format!("s{}", below(6))]);
                    world.make(changes);
                }
            }
            let list = world.table("down").list(world.now);
            assert!(list.charged_bit_s <= 20_000_000, "seed {seed}");
            let flows: Vec<(u16, String)> = (1..=20).map(|port| (port, world.class_of("down", 7, port))).collect();
            for there in &list.reservations {
                let flow = serde_json::to_value(&there.flows[0]).unwrap();
                let port = flow["dport"].as_u64().unwrap() as u16;
                assert!(flows.contains(&(port, there.class.clone())), "seed {seed}: {there:?} {flows:?}");
            }
        }
    }
}
