use altq_engine::packet::Packet;
use altq_engine::random::SplitMix64;
use altq_engine::units::SECOND;
use altq_reserve::{FORM, Op, State, Tspec};

use super::*;
use crate::fault::Code;
use crate::roster::reserved::tests::{World, add, links, of, tspec};

const POLICY: &str = "link down { rate 100Mbit/s  scheduler cbq
    class subscribers { share 40% }
    class res { rate 10Mbit/s  priority 6  reservations { lifetime 100s } }
    class bulk { share 20%  borrow }
    class rest { share 20%  default }
    match dport 5000 -> bulk }";

fn engine(world: &mut World) -> &mut altq_engine::Engine {
    &mut world.engines[0].1
}

/// Packets that wait in a class.
fn queued(world: &mut World, name: &str) -> u64 {
    let class = world.roster.link("down").unwrap().class(name).unwrap();
    engine(world).own_counters(class).queued_packets
}

fn arrive(world: &mut World, name: &str, count: u32) {
    let class = world.roster.link("down").unwrap().class(name).unwrap();
    let now = world.now;
    for handle in 0..count {
        engine(world).enqueue(now, class, Packet { len: 100, handle, ..Packet::default() });
    }
}

/// The names of all classes of the link, in the order of their numbers.
fn names_of(world: &World) -> Vec<String> {
    world.roster.link("down").unwrap().classes.iter().map(|class| class.name.clone()).collect()
}

fn follow(world: &mut World, text: &str) {
    let done = world.roster.follow(world.at(), links(text), false).unwrap_or_else(|fault| panic!("{text}: {fault}"));
    world.done(done);
}

fn refused(world: &mut World, text: &str) -> Fault {
    let before = names_of(world);
    let at = world.at();
    let fault = world.roster.follow(at, links(text), false).err().unwrap_or_else(|| panic!("{text}"));
    assert_eq!(fault.code, Code::Refused);
    assert_eq!(names_of(world), before);
    world.check();
    fault
}

#[test]
fn packets_of_subscribers_reservations_and_classes_stay_with_their_class() {
    let mut world = World::new(POLICY);
    assert_eq!((world.set("a", "10.0.0.1", 1_000_000), world.set("b", "10.0.0.2", 2_000_000)), (1, 1));
    assert!(world.ask(&add("k", 7, 3_000_000)).granted);
    for (class, count) in [("a", 3), ("b", 4), ("res.1", 2), ("bulk", 5), ("rest", 6)] {
        arrive(&mut world, class, count);
    }
    // `bulk` is gone and its packets are in the new default class. The other classes have another
    // order, another parent and other words.
    let other = "link down { rate 80Mbit/s  scheduler cbq
        class home { share 90%
            class left { share 15%  default }
            class subscribers { share 50%  borrow }
            class res { rate 8Mbit/s  priority 5  reservations { lifetime 100s } } }
        class rest { share 5% }
        match dport 5000 -> rest }";
    follow(&mut world, other);
    for (class, count) in [("a", 3), ("b", 4), ("res.1", 2), ("left", 5), ("rest", 6)] {
        assert_eq!(queued(&mut world, class), count, "{class}");
    }
    let (default, res) = (world.class_of("down", 99, 9), world.class_of("down", 99, 7));
    assert_eq!((default.as_str(), res.as_str()), ("left", "res.1"));
    assert_eq!(world.class_of("down", 0x0a00_0001, 5000), "a", "rules of subscribers go first");
    assert_eq!(world.class_of("down", 99, 5000), "rest");
    let link = world.roster.link("down").unwrap();
    assert_eq!(link.class_name(link.spec.classes[link.class("res").unwrap() as usize].parent), "home");
    // Nothing is lost, and what comes later gets the same numbers in the loop and in the trial.
    let drops = engine(&mut world).drops().count();
    assert_eq!(drops, 0);
    assert_eq!(world.set("c", "10.0.0.3", 1_000_000), 1);
    assert!(world.ask(&add("l", 8, 1_000_000)).granted);
    follow(&mut world, POLICY);
    assert_eq!((queued(&mut world, "a"), queued(&mut world, "res.1")), (3, 2));
    assert!(world.ask(&of(Op::Del, "k")).granted);
    assert_eq!(world.class_of("down", 99, 7), "rest");
}

#[test]
fn who_would_not_fit_is_named_and_stays_or_goes() {
    let mut world = World::new(POLICY);
    world.set("a", "10.0.0.1", 10_000_000);
    world.set("b", "10.0.0.2", 20_000_000);
    for (key, port) in [("k", 7), ("l", 8)] {
        assert!(world.ask(&add(key, port, 3_000_000)).granted);
    }
    // In 15 Mbit/s there is room for the first subscriber only.
    let smaller = POLICY.replace("share 40%", "share 15%");
    let fault = refused(&mut world, &smaller);
    assert!(
        fault.message.contains("subscriber b: the classes below `subscribers` would be guaranteed 30000000"),
        "{fault}"
    );
    assert!(!fault.message.contains("subscriber a"), "{fault}");
    assert!(fault.help.unwrap().contains("--evict"));
    let fault = refused(&mut world, &POLICY.replace("class bulk", "class a").replace("-> bulk", "-> a"));
    assert!(fault.message.contains("subscriber a: the policy has a class of this name"), "{fault}");
    let fault = refused(&mut world, &POLICY.replace("rate 10Mbit/s", "rate 4Mbit/s"));
    assert!(fault.message.contains("reservation 2 of link down: "), "{fault}");
    let without = POLICY.replace("reservations { lifetime 100s }", "");
    let fault = refused(&mut world, &without);
    assert!(fault.message.contains("reservation 1 of link down: the policy has no class"), "{fault}");
    // If only a new start can make the change, all of them stay as they are.
    let fault = refused(&mut world, &POLICY.replace("match dport 5000", "match interface eth0"));
    assert!(fault.message.contains("link `down`: only a new start can change this: which interfaces"), "{fault}");
    // With `evict` they go.
    let at = world.at();
    let text = without.replace("share 40%", "share 15%");
    let done = world.roster.follow(at, links(&text), true).unwrap();
    assert_eq!(done.said, ["subscriber b does not fit into the policy, and has no class any more"]);
    let notes = String::from_utf8(done.notes.clone()).unwrap();
    assert!(notes.contains(r#""op":"subscriber.del","ids":["b"]"#), "{notes}");
    assert!(notes.contains(r#""gone":1"#) && notes.contains(r#""gone":2"#), "{notes}");
    world.make(done.changes);
    assert_eq!((world.roster.len(), world.roster.reservations()), (1, 0));
    assert_eq!(
        (world.class_of("down", 0x0a00_0001, 1), world.class_of("down", 0x0a00_0002, 7)),
        ("a".into(), "rest".into())
    );
    assert_eq!(world.set("c", "10.0.0.9", 5_000_000), 1);
}

fn rate_of(world: &World) -> u64 {
    world.roster.link("down").unwrap().spec.rate.as_bit_s()
}

/// A rate that was set while the link runs stays, unless the policy writes another one.
#[test]
fn a_rate_that_was_set_stays_until_a_policy_writes_another() {
    let mut world = World::new(POLICY);
    world.set("a", "10.0.0.1", 1_000_000);
    let changes = world.roster.set_rate("down", Rate::bit_s(50_000_000)).unwrap();
    world.make(changes);
    let edited = POLICY.replace("class bulk { share 20%", "class bulk { share 10%");
    let prepared = world.roster.prepare_keeping_rates(links(&edited), false).unwrap();
    world.roster.can_return(&prepared).unwrap();
    let done = world.roster.commit(world.at(), prepared);
    let sets_rate = |change: &altq_engine::Change| matches!(change, altq_engine::Change::SetRate(_));
    assert!(!done.changes.iter().any(|(_, changes)| changes.iter().any(sets_rate)), "{:?}", done.changes);
    world.done(done);
    assert_eq!(rate_of(&world), 50_000_000);
    assert_eq!(world.roster.written("down").unwrap().spec.rate.as_bit_s(), 100_000_000);
    // The way back keeps it too, but not a policy with another rate, and the way back from that.
    let slower = POLICY.replace("rate 100Mbit/s", "rate 80Mbit/s");
    for (text, rate) in [(POLICY, 50_000_000), (&slower, 80_000_000), (POLICY, 100_000_000)] {
        let prepared = world.roster.prepare_keeping_rates(links(text), false).unwrap();
        let done = world.roster.commit(world.at(), prepared);
        world.done(done);
        assert_eq!(rate_of(&world), rate);
    }
    // A file that is read again has the last word.
    let changes = world.roster.set_rate("down", Rate::bit_s(50_000_000)).unwrap();
    world.make(changes);
    follow(&mut world, POLICY);
    assert_eq!(rate_of(&world), 100_000_000);
}

/// A number names one reservation for as long as altq runs, also if the policy has no class for
/// reservations in between.
#[test]
fn numbers_of_reservations_are_never_given_again() {
    let without = POLICY.replace("reservations { lifetime 100s }", "");
    let mut world = World::new(POLICY);
    assert_eq!(world.ask(&add("k", 7, 1_000_000)).id, Some(1));
    assert_eq!(world.ask(&add("l", 8, 1_000_000)).id, Some(2));
    let done = world.roster.follow(world.at(), links(&without), true).unwrap();
    world.done(done);
    follow(&mut world, POLICY);
    assert_eq!(world.ask(&add("k", 7, 1_000_000)).id, Some(3));
    // The same where none is left that would have to end.
    assert!(world.ask(&of(Op::Del, "k")).granted);
    follow(&mut world, &without);
    follow(&mut world, POLICY);
    assert_eq!(world.ask(&add("k", 7, 1_000_000)).id, Some(4));
    // All end, because a class of the policy has the name of a reservation's.
    let named = POLICY.replace("class bulk", "class res.4").replace("-> bulk", "-> res.4");
    let done = world.roster.follow(world.at(), links(&named), true).unwrap();
    world.done(done);
    assert_eq!(world.roster.reservations(), 0);
    assert_eq!(world.ask(&add("k", 7, 1_000_000)).id, Some(5));
    // From now on the kernel executes the link, so there is no table.
    let kernel = "link down { device eth0  path kernel  rate 100Mbit/s  scheduler htb
        class all { rate 9Mbit/s  default } }";
    let at = world.at();
    let _ = world.roster.follow(at, links(kernel), true).unwrap();
    assert_eq!(world.roster.links[0].next, 6);
    // A new worker begins with a policy that has no class for reservations.
    let mut next = World::new(&without);
    let state = State { form: FORM, link: "down".into(), next_id: 9, reservations: Vec::new() };
    let done = next.roster.restore(next.at(), Some(&state), true);
    next.done(done);
    follow(&mut next, POLICY);
    assert_eq!(next.ask(&add("k", 7, 1_000_000)).id, Some(9));
}

#[test]
fn what_was_prepared_can_be_taken_back() {
    let mut world = World::new(POLICY);
    world.set("a", "10.0.0.1", 1_000_000);
    assert!(world.ask(&add("k", 7, 3_000_000)).granted);
    let other = POLICY.replace("class bulk { share 20%  borrow }", "class x { share 5% class y { share 1% } }");
    let other = other.replace("-> bulk", "-> y");
    for _ in 0..3 {
        let prepared = world.roster.prepare(links(&other), false).unwrap();
        assert!(prepared.changes() >= 5);
        world.roster.can_return(&prepared).unwrap();
        world.roster.abandon(prepared);
        // The trial gives the numbers that the loop gives.
        assert_eq!(world.set("b", "10.0.0.2", 1_000_000), 1);
        let (_, changes) = world.roster.delete(&["b".to_owned()]);
        world.make(changes);
    }
    follow(&mut world, &other);
    assert_eq!(world.class_of("down", 99, 5000), "y");
}

/// Random policies one after another, with subscribers and reservations that come and go between
/// them. The loop's engine always has what the roster has, and every packet is accounted for.
#[test]
fn any_policy_follows_any_other() {
    for seed in 0..60 {
        let mut random = SplitMix64::new(seed);
        let mut below = |n: u64| random.bits() % n;
        let mut world = World::new(POLICY);
        let (mut arrived, mut handle) = (0, 0);
        for _ in 0..25 {
            match below(5) {
                0 => {
                    _ = world.set(&format!("s{}", below(4)), &format!("10.0.0.{}", below(6)), 100_000 + below(9) * 1000)
                }
                1 => _ = world.ask(&add(&format!("k{}", below(4)), 1 + below(5) as u16, 100_000)),
                2 => {
                    let (_, changes) = world.roster.delete(&[format!("s{}", below(4))]);
                    world.make(changes);
                }
                _ => {
                    let text = policy(&mut below);
                    let at = world.at();
                    let before = names_of(&world);
                    match world.roster.follow(at, links(&text), false) {
                        Ok(done) => world.done(done),
                        Err(_) => assert_eq!(names_of(&world), before),
                    }
                    world.check();
                }
            }
            // Packets for every class.
            let link = world.roster.link("down").unwrap().clone();
            let now = world.now;
            for (class, named) in (0..).zip(&link.classes).skip(1) {
                if !named.name.is_empty() && below(3) == 0 {
                    handle += 1;
                    engine(&mut world).enqueue(now, class, Packet { len: 100, handle, ..Packet::default() });
                    arrived += 1;
                }
            }
            let root = engine(&mut world).counters(0);
            assert_eq!(root.received_packets(), arrived, "seed {seed}");
        }
    }
}

/// The reservations that there are: numbers, rates, classes.
fn reserved(world: &World) -> Vec<(u64, Tspec, String)> {
    let list = world.table("down").list(world.now);
    list.reservations.iter().map(|there| (there.id, there.tspec, there.class.clone())).collect()
}

/// Reservations come, change and end, and policies follow that have more or less room for them. The
/// sum never exceeds what the class has, in the table and in the link; and what is refused leaves
/// the old reservation, or all of them, as they were.
#[test]
fn the_sum_of_reservations_never_exceeds_the_class() {
    let (mut refused, mut evicted) = (0, 0);
    for seed in 0..40 {
        let mut random = SplitMix64::new(seed);
        let mut below = |n: u64| random.bits() % n;
        let mut world = World::new(POLICY);
        let mut room = 10_000_000;
        for _ in 0..100 {
            let key = format!("k{}", below(12));
            let before = reserved(&world);
            match below(8) {
                0..=2 => _ = world.ask(&add(&key, 1 + below(20) as u16, 100_000 + below(4_000_000))),
                3 | 4 => {
                    let tspec = Some(tspec(100_000 + below(6_000_000)));
                    if !world.ask(&altq_reserve::Request { tspec, ..of(Op::Modify, &key) }).granted {
                        refused += 1;
                        assert_eq!(reserved(&world), before, "seed {seed}");
                    }
                }
                5 => _ = world.ask(&of(Op::Del, &key)),
                6 => {
                    world.now += below(40) * SECOND;
                    world.expire();
                }
                _ => {
                    let new = (2 + below(12)) * 1_000_000;
                    let text = POLICY.replace("rate 10Mbit/s", &format!("rate {new}bit/s"));
                    let (at, evict) = (world.at(), below(2) == 0);
                    match world.roster.follow(at, links(&text), evict) {
                        Ok(done) => {
                            world.done(done);
                            evicted += before.len() - reserved(&world).len();
                            room = new;
                        }
                        Err(_) => assert_eq!(reserved(&world), before, "seed {seed}"),
                    }
                }
            }
            let charged = world.table("down").list(world.now).charged_bit_s;
            assert!(charged <= room, "seed {seed}: {charged} of {room}");
            let link = world.roster.link("down").unwrap();
            let res = link.class("res").unwrap();
            let classes = (0..).zip(&link.spec.classes).filter(|(_, spec)| spec.parent == res);
            let sum: u64 = classes.map(|(class, _)| link.guarantee(class).map_or(0, |rate| rate.as_bit_s())).sum();
            assert_eq!(sum, charged, "seed {seed}");
        }
    }
    assert!(refused > 50 && evicted > 20, "{refused} {evicted}");
}

/// A policy of up to six classes in two levels, some of them with a scheduler of their own.
fn policy(below: &mut impl FnMut(u64) -> u64) -> String {
    let mut text = "link down { rate 100Mbit/s  scheduler cbq
        class subscribers { share 30% }
        class res { rate 10Mbit/s  priority 6  reservations { lifetime 100s } }\n"
        .to_owned();
    let (mut rules, first) = (String::new(), below(6));
    for n in 0..3 {
        let name = (first + n) % 6;
        let default = if n == 0 { "default" } else { "" };
        let inner = ["", "scheduler drr", "scheduler wfq"][below(3) as usize];
        let children = match inner {
            "" if below(2) == 0 => {
                format!("class x{name} {{ share 1% }} class y{} {{ share {}% }}", below(6), 1 + below(3))
            }
            "" => String::new(),
            "scheduler drr" => format!("class x{name} {{ }}"),
            _ => format!("class x{name} {{ weight {} }}", 1 + below(9)),
        };
        // Two classes `y` would be an error in the policy.
        let children = if n > 0 { children.split(" class y").next().unwrap_or_default().to_owned() } else { children };
        text += &format!("class c{name} {{ share {}%  {default} {inner} {children} }}\n", 5 + below(8));
        rules += &format!("match dport {} -> c{name}\n", 100 + n);
    }
    if below(2) == 0 {
        rules.clear();
    }
    format!("{text}{rules}}}")
}
