//! The stream that a viewer reads: random traffic on the engine, and for each second and window a
//! document, written as JSON and read back. In every one of them a class has what its own packets
//! were and what the classes below it have, lent equals borrowed, and flows with the rest are what
//! the class sent.

mod world;

use altq_engine::random::SplitMix64;
use altq_engine::units::SECOND;
use altq_monitor::amount::Amount;
use altq_monitor::document::{Class, Link, More, SCHEMA, Top};
use altq_monitor::{Monitor, Window};
use proptest::prelude::*;
use world::{CLASSES, Left, World};

/// Flows of a class in a document.
const FLOWS: usize = 10;

/// What a class's own packets were in one second, counted beside the monitor.
#[derive(Clone, Copy, Debug, Default)]
struct Own {
    /// Charged bytes.
    wire: u64,
    /// Own bytes, and packets.
    sent: Amount,
}

fn counted(left: &Left) -> [Own; 7] {
    let mut own = [Own::default(); 7];
    for (own, wire) in own.iter_mut().zip(left.wire) {
        own.wire = wire;
    }
    for ((class, _), amount) in &left.flows {
        own[*class as usize].sent += *amount;
    }
    own
}

/// What is told of a window.
fn document(monitor: &Monitor, window: Window) -> String {
    let frame = monitor.frame(window).unwrap();
    let more = |class| More { flows: Some(monitor.flows(&frame, class).shortened(FLOWS)), ..More::default() };
    serde_json::to_string(&Top::new(vec![Link::of(&frame, monitor.counters(), more)])).unwrap()
}

/// Checks what a viewer has read. `seconds` is the count of all seconds up to now.
fn check(link: &Link, seconds: &[[Own; 7]]) -> Result<(), TestCaseError> {
    let watched = (link.interval_ns / SECOND) as usize;
    prop_assert!((1..=seconds.len()).contains(&watched) && watched <= 60, "{} seconds", watched);
    let watched = &seconds[seconds.len() - watched..];
    prop_assert_eq!(link.classes.len(), CLASSES.len());
    let root = &link.classes[0];
    prop_assert_eq!(root.borrowed_bit_s, root.lent_bit_s);
    prop_assert_eq!(root.window.borrowed_bytes, root.window.lent_bytes);
    for (at, class) in link.classes.iter().enumerate() {
        let is_below = |other: &&Class| other.parent.as_deref() == Some(class.name.as_str());
        let below: Vec<&Class> = link.classes.iter().filter(is_below).collect();
        let sum = |figure: fn(&Class) -> u64| below.iter().map(|child| figure(child)).sum::<u64>();
        let wire: u64 = watched.iter().map(|second| second[at].wire).sum();
        let sent: Amount = watched.iter().map(|second| second[at].sent).sum();

        let window = &class.window;
        prop_assert_eq!(window.wire_bytes, wire + sum(|child| child.window.wire_bytes), "{:?}", class);
        prop_assert_eq!(window.sent_bytes, sent.bytes + sum(|child| child.window.sent_bytes), "{:?}", class);
        prop_assert_eq!(window.sent_packets, sent.packets + sum(|child| child.window.sent_packets), "{:?}", class);
        // Every packet that was sent has waited.
        prop_assert_eq!(class.sojourn_ns.count, window.sent_packets, "{:?}", class);
        // A class without packets of its own has the rates of those below it.
        if sent.packets == 0 {
            prop_assert_eq!(class.rate_bit_s, sum(|child| child.rate_bit_s), "{:?}", class);
            prop_assert_eq!(class.got_bit_s, sum(|child| child.got_bit_s), "{:?}", class);
        }
        // It may have figures of its own beside these.
        let figures: [fn(&Class) -> u64; 10] = [
            |class| class.rate_bit_s,
            |class| class.got_bit_s,
            |class| class.borrowed_bit_s,
            |class| class.lent_bit_s,
            |class| class.window.borrowed_bytes,
            |class| class.window.lent_bytes,
            |class| class.window.dropped_packets,
            |class| class.window.backlog_packets,
            |class| class.window.backlog_bytes,
            |class| class.sent_bytes,
        ];
        for figure in figures {
            prop_assert!(sum(figure) <= figure(class), "{:?}", class);
        }

        prop_assert!(class.flows.len() <= FLOWS);
        let listed: u64 = class.flows.iter().map(|flow| flow.bytes_at_least).sum();
        prop_assert_eq!(class.other_bytes, window.sent_bytes.checked_sub(listed), "{:?}", class);
        let packets: u64 = class.flows.iter().map(|flow| flow.packets_at_least).sum();
        prop_assert!(packets <= window.sent_packets, "{:?}", class);
    }
    Ok(())
}

/// Watches so many seconds of traffic whose load is another one every 1 to 30 seconds.
fn watch(seed: u64, seconds: u64) -> Result<(), TestCaseError> {
    let (mut world, mut random) = (World::new(seed), SplitMix64::new(!seed));
    let (mut loads, mut left, mut all) = ([0; 7], 0, Vec::new());
    for second in 0..seconds {
        if left == 0 {
            left = 1 + random.bits() % 30;
            // At times nobody sends.
            let idle = random.chance(1, 6);
            loads = std::array::from_fn(|class| match class {
                _ if idle => 0,
                5 => 0,
                0..=2 => random.bits() % 5,
                _ => random.bits() % 90,
            });
        }
        left -= 1;
        world.second(loads);
        all.extend(world.seconds.last().map(counted));
        // No window is longer than a minute.
        if world.seconds.len() > 60 {
            world.seconds.remove(0);
        }
        for window in Window::ALL {
            let told: Top = serde_json::from_str(&document(&world.monitor, window)).unwrap();
            prop_assert_eq!(told.schema.as_str(), SCHEMA);
            let link = &told.links[0];
            check(link, &all)?;
            let frame = link.frame().unwrap();
            prop_assert_eq!(frame.check(), Ok(()));
            // Each flow and each percentile beside the count.
            if second % 61 == 60 {
                world.check(&world.monitor.frame(window).unwrap())?;
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn two_minutes_of_the_stream_add_up(seed: u64) {
        watch(seed, 130)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2))]

    #[test]
    #[ignore = "half a minute of work: cargo test -p altq-monitor --test stream -- --ignored"]
    fn an_hour_of_the_stream_adds_up(seed: u64) {
        watch(seed, 3600)?;
    }
}
