//! A running link is changed to another policy: what the engine then has is what it would have had
//! from the start, and what only a new start can change is said.

use altq_config::{Language, Link, changes, parse_str, renumbered, transition};
use altq_engine::packet::Packet;
use altq_engine::{Change, Engine};
use proptest::prelude::*;

fn link(text: &str) -> Link {
    let policy = parse_str(text, "test.altq", Language::Native).unwrap_or_else(|error| panic!("{text}\n{error}"));
    policy.links.into_iter().next().unwrap()
}

/// Departures of a burst of 40 packets in each class: when, and of which class.
fn departures(engine: &mut Engine, classes: u32) -> Vec<(u64, u32)> {
    for n in 0..40 {
        for class in 1..=classes {
            engine.enqueue(0, class, Packet { len: 500, handle: n * classes + class, ..Packet::default() });
        }
    }
    let (mut now, mut sent) = (0, Vec::new());
    for _ in 0..100_000 {
        match engine.dequeue(now) {
            Some(departure) => sent.push((now, departure.class)),
            None => match engine.next_wakeup() {
                Some(at) => now = at.max(now + 1),
                None => break,
            },
        }
    }
    sent
}

const OTHERS: [(&str, &str); 6] = [
    ("rate 10Mbit/s", "rate 20Mbit/s"),
    ("share 30%", "share 60%"),
    ("limit 50packets", "limit 20packets"),
    ("match dport 5060 -> voice", "match dport 80 -> voice"),
    ("borrow", ""),
    ("regulator auto", "regulator 3000bytes"),
];

const POLICY: &str = "link wan { rate 10Mbit/s  regulator auto  scheduler cbq
    class voice { share 30%  queue drop_tail { limit 50packets } }
    class bulk { share 40%  borrow }
    class rest { share 30%  default }
    match dport 5060 -> voice }";

#[test]
fn each_difference_is_one_change() {
    let from = link(POLICY);
    assert!(changes(&from, &from).unwrap().is_empty());
    // `share 30%` stands in two classes; `replacen` changes the first.
    for (before, after) in [OTHERS[2], OTHERS[3], OTHERS[4], OTHERS[5]] {
        let found = changes(&from, &link(&POLICY.replacen(before, after, 1))).unwrap();
        assert_eq!(found.len(), 1, "{before} to {after}: {found:?}");
    }
    let adapts = "rate 10Mbit/s adapt { from 1Mbit/s to 90Mbit/s  reflectors { 9.9.9.9 } }";
    let adapts = link(&POLICY.replacen("rate 10Mbit/s", adapts, 1));
    assert_eq!(changes(&from, &adapts).unwrap_err(), "how its rate adapts");
    // With another rate, all shares are other rates.
    assert_eq!(changes(&from, &link(&POLICY.replace("10Mbit/s", "20Mbit/s"))).unwrap().len(), 4);
}

/// Without `queue`, a class has that of its scheduler.
#[test]
fn a_queue_that_is_not_written_any_more_is_changed_too() {
    let text = "link wan { rate 10Mbit/s  scheduler jobs { limit 200 }
        class a { priority 0  queue red { limit 50packets } }  class b { priority 1  default } }";
    let queues = |after: &str| {
        let to = link(after);
        let found = changes(&link(text), &to).unwrap();
        let queues = found.into_iter().filter_map(|change| match change {
            Change::SetQueue { class, queue } => Some((class, queue)),
            _ => None,
        });
        (queues.collect::<Vec<_>>(), to)
    };
    let (found, to) = queues(&text.replace("queue red { limit 50packets }", ""));
    assert_eq!(found, [(1, to.queue(1).unwrap())]);
    let (found, to) = queues(&text.replace("limit 200", "limit 1000"));
    assert_eq!(found, [(2, to.queue(2).unwrap())]);
}

#[test]
fn what_needs_a_new_start_is_said() {
    let from = link(POLICY);
    for (before, after, what) in [
        ("rate 10Mbit/s", "rate 10Mbit/s  mtu 1400", "its mtu"),
        ("rate 10Mbit/s", "rate 10Mbit/s  overhead 18 bytes", "its overhead"),
        ("match dport 5060 -> voice", "match interface eth0 -> voice", "which interfaces its rules name"),
    ] {
        let refused = changes(&from, &link(&POLICY.replace(before, after))).unwrap_err();
        assert!(refused.contains(what), "{before} to {after}: {refused}");
    }
    let drr = "link wan { rate 10Mbit/s  scheduler drr  class a { default }  class b { } }";
    let wfq = drr.replace("drr", "wfq");
    assert_eq!(changes(&link(drr), &link(&wfq)).unwrap_err(), "the scheduler of the link");
}

/// Packets of a class in each class, ten of them.
fn fill(engine: &mut Engine, link: &Link) {
    for (class, named) in (0..).zip(&link.classes).skip(1) {
        for handle in 0..10 {
            assert!(!named.name.is_empty());
            engine.enqueue(0, class, Packet { len: 500, handle, ..Packet::default() });
        }
    }
}

/// What waits in each class after a change from one policy to another, by name.
fn waits(from: &str, to: &str) -> Vec<(String, u64)> {
    let (from, to) = (link(from), link(to));
    let mut engine = Engine::new(&from.spec).unwrap();
    fill(&mut engine, &from);
    let mut trial = Engine::new(&from.spec).unwrap();
    let found = transition(&mut trial, &from, &to).unwrap();
    for change in &found.changes {
        engine.apply(0, change).unwrap();
    }
    let whole = engine.counters(0);
    let sent = whole.sent_packets + whole.dropped_packets + whole.queued_packets;
    assert_eq!(sent, 10 * (from.classes.len() as u64 - 1), "every packet is accounted for");
    let names = to.classes.iter().zip(&found.numbers).skip(1);
    names.map(|(class, number)| (class.name.clone(), engine.own_counters(*number).queued_packets)).collect()
}

fn expect(found: &[(String, u64)], expected: &[(&str, u64)]) {
    let found: Vec<(&str, u64)> = found.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    assert_eq!(found, expected);
}

#[test]
fn packets_move_with_their_class_by_name() {
    // Another order, another parent, a new class; `c` is gone, and its packets are in the default
    // class of the new policy.
    let from = "link l { rate 10Mbit/s  scheduler cbq
        class a { share 30%  class b { share 10% } }  class c { share 20% }  class d { share 40%  default } }";
    let to = "link l { rate 10Mbit/s  scheduler cbq
        class d { share 30%  default }  class e { share 40%  class b { share 20% }  class a { share 5% } } }";
    expect(&waits(from, to), &[("d", 20), ("e", 0), ("b", 10), ("a", 10)]);
    // Without a default class what is gone is dropped, and counted.
    expect(&waits(from, "link l { rate 10Mbit/s  scheduler cbq  class a { share 5% } }"), &[("a", 10)]);
    // A class that another scheduler serves now is made anew, and so is one that holds another one;
    // their packets move.
    let wfq = "link l { rate 10Mbit/s  scheduler cbq
        class a { share 30%  scheduler wfq  class b { weight 1 } }  class c { share 20%  default } }";
    let drr = wfq.replace("wfq", "drr").replace("weight 1", "quantum 1500");
    expect(&waits(wfq, &drr), &[("a", 10), ("b", 10), ("c", 10)]);
    let out = "link l { rate 10Mbit/s  scheduler cbq
        class a { share 30%  scheduler wfq }  class b { share 1% }  class c { share 20%  default } }";
    expect(&waits(wfq, out), &[("a", 10), ("b", 10), ("c", 10)]);
    // What does not fit is a drop: the default class has room for 15.
    let small = to.replace("default", "default queue drop_tail { limit 15packets }");
    expect(&waits(from, &small), &[("d", 15), ("e", 0), ("b", 10), ("a", 10)]);
}

#[test]
fn a_change_that_is_taken_back_leaves_the_engine_as_it_was() {
    let from = link(POLICY);
    let to = link(
        "link wan { rate 20Mbit/s  regulator auto  scheduler cbq
        class bulk { share 40% }  class new { share 10% }  class rest { share 30%  default } }",
    );
    let mut engine = Engine::new(&from.spec).unwrap();
    let found = transition(&mut engine, &from, &to).unwrap();
    for change in &found.undo {
        engine.apply(0, change).unwrap();
    }
    // As at first: the same way leads there again, with the same numbers.
    let again = transition(&mut engine, &from, &to).unwrap();
    assert_eq!(again.numbers, found.numbers);
    assert_eq!(again.changes.len(), found.changes.len());
    let now = renumbered(&to, &again.numbers, engine.numbers());
    for (class, named) in (0..).zip(&now.classes).skip(1) {
        let parent = (!named.name.is_empty()).then(|| now.spec.classes[class as usize].parent);
        assert_eq!(engine.parent(class), parent, "{}", named.name);
    }
    // And back, from a link that has numbers without a class.
    let back = transition(&mut engine, &now, &from).unwrap();
    assert_eq!(back.numbers.len(), from.classes.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// An engine that was changed before its first packet sends as one that was built so. Not so
    /// under `htb` and `cbq`, whose classes keep the time that their bursts are worth: a change is
    /// no refill, and what was full at one rate is not full at another.
    #[test]
    fn a_changed_engine_is_as_one_that_was_built_so(
        shares in prop::collection::vec((1u32..=100, 1u32..=100), 2..6),
        rates in (1u32..=100, 1u32..=100),
        limits in (1u32..=60, 1u32..=60),
        scheduler in prop::sample::select(vec!["wfq", "hfsc"]),
    ) {
        let text = |of: &dyn Fn(&(u32, u32)) -> u32, rate: u32, limit: u32| {
            let sum: u32 = shares.iter().map(of).sum();
            let classes: String = (0..).zip(&shares).map(|(at, share)| {
                let (kbit, default) = (u64::from(of(share)) * u64::from(rate) * 1000 / u64::from(sum),
                    if at == 0 { "default" } else { "" });
                let words = match scheduler {
                    "wfq" => format!("bandwidth {kbit}kbit/s"),
                    _ => format!("linkshare {kbit}kbit/s"),
                };
                format!("class c{at} {{ {words}  queue drop_tail {{ limit {limit}packets }} {default} }}\n")
            }).collect();
            format!("link wan {{ rate {rate}Mbit/s  scheduler {scheduler}\n{classes} }}")
        };
        let from = link(&text(&|share| share.0, rates.0, limits.0));
        let to = link(&text(&|share| share.1, rates.1, limits.1));
        let found = changes(&from, &to).map_err(TestCaseError::fail)?;
        let mut changed = Engine::new(&from.spec).unwrap();
        for change in &found {
            prop_assert!(changed.apply(0, change).is_ok());
        }
        let rules = found.iter().filter(|change| matches!(change, Change::SetRules { .. })).count();
        prop_assert_eq!(rules, 0);
        let mut built = Engine::new(&to.spec).unwrap();
        let classes = shares.len() as u32;
        prop_assert_eq!(departures(&mut changed, classes), departures(&mut built, classes));
    }
}
