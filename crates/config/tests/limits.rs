//! What keeps each class from sending more, under every scheduler: a scenario for each word that it
//! can say. The engine runs for two seconds on a wire of 10 Mbit/s; the words follow from the
//! policy and from what is offered, worked out by hand.

use altq_config::{Language, Link, Used, parse_str};
use altq_engine::schedule::SCHEDULERS;
use altq_engine::{Engine, Packet};

const SECOND: u64 = 1_000_000_000;
/// Bytes of a packet. One takes 0.4 ms at 10 Mbit/s.
const LEN: u64 = 500;

/// More than a class can send.
const ALL: u64 = u64::MAX;

/// The words of the named classes if they are offered so much, in Mbit/s, and the others nothing.
fn words(classes: &str, scheduler: &str, offered: &[(&str, u64)]) -> Vec<String> {
    let text = format!("link l {{ rate 10Mbit/s regulator none overcommit scheduler {scheduler} {classes} }}");
    let policy = parse_str(&text, "t", Language::Native).unwrap_or_else(|failed| panic!("{failed}"));
    let link = &policy.links[0];
    let used = run(link, offered);
    let limits = link.limited_by(&used);
    offered.iter().map(|(name, _)| limits[link.class(name).unwrap() as usize].text(link).to_owned()).collect()
}

/// What the classes did in the second of two seconds.
fn run(link: &Link, offered: &[(&str, u64)]) -> Vec<Used> {
    let mut engine = Engine::new(&link.spec).unwrap();
    let count = link.classes.len();
    let (mut now, mut handle) = (0, 0);
    let mut given = vec![0; offered.len()];
    let mut sent = vec![0_u64; count];
    while now < 2 * SECOND {
        for ((name, mbit), given) in offered.iter().zip(&mut given) {
            let class = link.class(name).unwrap();
            let due = |given: u64, queued: u64| match *mbit {
                ALL => queued < 30,
                mbit => u128::from(given * LEN * 8) * 1000 < u128::from(now) * u128::from(mbit),
            };
            while due(*given, engine.own_counters(class).queued_packets) {
                handle += 1;
                *given += 1;
                engine.enqueue(now, class, Packet::new(handle, LEN as u32));
                if engine.drops().count() > 0 {
                    break;
                }
            }
        }
        match engine.dequeue(now) {
            Some(out) => {
                let mut class = out.class as usize;
                if now >= SECOND {
                    sent[class] += LEN;
                    while class != 0 {
                        class = link.spec.classes[class].parent as usize;
                        sent[class] += LEN;
                    }
                }
                now += LEN * 8 * 100;
            }
            None => now = engine.next_wakeup().unwrap_or(u64::MAX).clamp(now + 1, now + 100_000),
        }
    }
    (0..count)
        .map(|class| Used { waits: engine.counters(class as u32).queued_packets > 1, wire_bit_s: sent[class] * 8 })
        .collect()
}

#[test]
fn cbq() {
    // `c` may not borrow, so `d` and `e` have 4 Mbit/s together.
    let classes = "class a { share 20% } class b { share 30% borrow ceiling 5Mbit/s } \
        class c { share 40% class d { share 20% borrow } class e { share 20% borrow } } \
        class f { share 10% borrow default }";
    let all = [("a", ALL), ("b", ALL), ("d", ALL), ("e", ALL), ("f", ALL)];
    assert_eq!(words(classes, "cbq", &all), ["guarantee", "link", "c", "c", "link"]);
    let some = [("a", 1), ("b", ALL), ("d", ALL), ("f", 0)];
    assert_eq!(words(classes, "cbq", &some), ["offered", "ceiling", "c", "offered"]);
    // Beyond the guarantees the highest priority goes first, if the policy says so.
    let two = "class a { share 10% borrow priority 7 } class b { share 10% borrow default }";
    let both = [("a", ALL), ("b", ALL)];
    assert_eq!(words(two, "cbq { excess priority }", &both), ["link", "priority"]);
    assert_eq!(words(two, "cbq", &both), ["link", "link"]);
    assert_eq!(words(two, "cbq { estimator classic }", &both), ["link", "priority"]);
    assert_eq!(words(two, "cbq { estimator classic }", &[("a", 2), ("b", 2)]), ["offered", "offered"]);
}

#[test]
fn htb() {
    let classes = "class a { rate 2Mbit/s } class b { rate 2Mbit/s ceil 4Mbit/s } \
        class c { rate 4Mbit/s class d { rate 2Mbit/s ceil 4Mbit/s } class e { rate 2Mbit/s ceil 4Mbit/s } } \
        class f { rate 1Mbit/s ceil 10Mbit/s default }";
    let all = [("a", ALL), ("d", ALL), ("e", ALL), ("f", ALL)];
    assert_eq!(words(classes, "htb", &all), ["guarantee", "c", "c", "link"]);
    assert_eq!(words(classes, "htb", &[("a", 1), ("b", ALL), ("f", 1)]), ["offered", "ceiling", "offered"]);
    let two = "class a { rate 1Mbit/s ceil 10Mbit/s } class b { rate 1Mbit/s ceil 10Mbit/s prio 1 default }";
    assert_eq!(words(two, "htb", &[("a", ALL), ("b", ALL)]), ["link", "priority"]);
    // A class within its rate does not borrow, so it goes before nobody's borrowing.
    assert_eq!(words(two, "htb", &[("a", 0), ("b", ALL)]), ["offered", "link"]);
}

#[test]
fn hfsc() {
    let classes = "class a { realtime 2Mbit/s } class b { linkshare 30% upperlimit 4Mbit/s } \
        class c { linkshare 30% upperlimit 2Mbit/s class d { linkshare 10% } class e { linkshare 10% } } \
        class f { linkshare 20% default }";
    let all = [("a", ALL), ("d", ALL), ("e", ALL), ("f", ALL)];
    assert_eq!(words(classes, "hfsc", &all), ["guarantee", "c", "c", "link"]);
    assert_eq!(words(classes, "hfsc", &[("a", 1), ("b", ALL), ("f", 1)]), ["offered", "ceiling", "offered"]);
}

#[test]
fn wfq() {
    let classes = "class a { bandwidth 20% shape 3Mbit/s } class b { bandwidth 20% } class c { low-latency 2Mbit/s } \
        class d { bandwidth 10% police 1Mbit/s } class e { default }";
    assert_eq!(words(classes, "wfq", &[("a", ALL), ("b", ALL)]), ["ceiling", "link"]);
    // What goes beyond the policer is dropped, so nothing waits.
    assert_eq!(words(classes, "wfq", &[("b", 1), ("d", 3)]), ["offered", "ceiling"]);
    assert_eq!(words(classes, "wfq", &[("c", ALL), ("b", ALL)]), ["guarantee", "priority"]);
    assert_eq!(words(classes, "wfq", &[("c", 1), ("b", 1)]), ["offered", "offered"]);
    let nested = "class a { bandwidth 20% shape 3Mbit/s scheduler wfq class b { } class c { } } class d { default }";
    assert_eq!(words(nested, "wfq", &[("b", ALL), ("c", ALL), ("d", 5)]), ["a", "a", "offered"]);
}

/// Schedulers with limits of their own, each with a test above.
const OWN: [&str; 4] = ["cbq", "htb", "hfsc", "wfq"];
/// The others: a scheduler, words of a class that goes first if one does, and of the other class,
/// and what limits these if the first is offered little and the other one all. With fifo the
/// packets of the first class wait behind all those of the other one.
const OTHERS: [[&str; 5]; 5] = [
    ["priq", "priority 7", "priority 1", "offered", "priority"],
    ["fairq", "priority 7", "priority 1", "offered", "priority"],
    ["drr", "", "", "offered", "link"],
    ["jobs", "", "", "offered", "link"],
    ["fifo", "", "", "link", "link"],
];

/// No scheduler of the registry is left out, here or on the page.
#[test]
fn every_scheduler_is_tested_and_on_the_page() {
    let mut tested: Vec<&str> = OWN.into_iter().chain(OTHERS.map(|[scheduler, ..]| scheduler)).collect();
    let mut all: Vec<&str> = SCHEDULERS.iter().map(|entry| entry.name).collect();
    tested.sort_unstable();
    all.sort_unstable();
    assert_eq!(tested, all);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stat.md");
    let text = std::fs::read_to_string(path).expect("docs/stat.md");
    let (_, part) = text.split_once("## What limits a class").expect("the part about limits");
    let missing: Vec<&str> = all.into_iter().filter(|name| !part.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/stat.md says of these schedulers not what limits a class: {missing:?}");
}

/// Schedulers without limits of their own: what is above a class, a meter, those that go before it,
/// the link.
#[test]
fn schedulers_without_limits() {
    for [scheduler, high, low, first, says] in OTHERS {
        let two = format!("class a {{ {high} }} class b {{ {low} default }}");
        assert_eq!(words(&two, scheduler, &[("a", 2), ("b", ALL)]), [first, says], "{scheduler}");
        assert_eq!(words(&two, scheduler, &[("a", 1), ("b", 1)]), ["offered", "offered"], "{scheduler}");
        assert_eq!(words(&two, scheduler, &[("a", 0), ("b", ALL)]), ["offered", "link"], "{scheduler}");
        let nested = format!(
            "class x {{ rate 3Mbit/s scheduler {scheduler} class a {{ {high} }} class b {{ {low} }} }} \
             class y {{ rate 7Mbit/s default }}"
        );
        let seen = words(&nested, "cbq", &[("a", 1), ("b", ALL), ("y", ALL)]);
        assert_eq!(seen[1..], ["x", "guarantee"], "{scheduler}");
        let metered = format!(
            "class a {{ {high} meter bucket {{ cir 2Mbit/s cbs 5000bytes red drop }} }} class b {{ {low} default }}"
        );
        assert_eq!(words(&metered, scheduler, &[("a", 5), ("b", 1)]), ["ceiling", "offered"], "{scheduler}");
    }
}

/// Queues that keep flows apart change nothing in what limits their class.
#[test]
fn queues_of_flows() {
    for queue in ["cake", "fq_codel", "sfq", "fairq", "hashed_wfq"] {
        let classes = format!("class a {{ queue {queue} }} class b {{ queue {queue} default }}");
        assert_eq!(words(&classes, "drr", &[("a", 1), ("b", ALL)]), ["offered", "link"], "{queue}");
    }
}
