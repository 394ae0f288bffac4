//! An engine with random traffic, watched for 70 seconds: every frame adds up, and agrees with an
//! independent count.

mod world;

use std::sync::Arc;

use altq_engine::account::Counters;
use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::SECOND;
use altq_monitor::document::{Link, More, SCHEMA, Top};
use altq_monitor::history::{History, Slice, SliceRef};
use altq_monitor::{Limits, Monitor, Second, Tree, Window};
use proptest::prelude::*;
use world::{CLASSES, Left, World, engine, tree};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_frame_adds_up_and_is_what_was_counted(
        seed: u64,
        phases in prop::collection::vec(prop::array::uniform7(0u64..90), 7),
    ) {
        let mut world = World::new(seed);
        for second in 0..70 {
            let mut loads = phases[second / 10];
            // Inner classes and the link itself get few packets; class 5 is idle.
            (loads[0], loads[1], loads[2], loads[5]) = (loads[0] / 20, loads[1] / 20, loads[2] / 20, 0);
            world.second(loads);
            for window in Window::ALL {
                let frame = world.monitor.frame(window).unwrap();
                prop_assert_eq!(frame.check(), Ok(()));
                if second % 9 == 4 || second > 67 {
                    world.check(&frame)?;
                }
            }
        }
        prop_assert_eq!(world.engine.unclassified().0, world.unclassified);
        // The 70 seconds of the history, and its four quarters of a minute, have what left.
        let history = world.monitor.history();
        prop_assert_eq!((history.seconds().len(), history.quarters().len()), (70, 4));
        for class in 0..7 {
            let wire = |seconds: &[Left]| seconds.iter().map(|left| left.wire[class as usize]).sum::<u64>();
            let of_slice = |slice: SliceRef<'_>| slice.point(class).map_or(0, |point| point.wire_bytes);
            let fine: u64 = history.seconds().map(of_slice).sum();
            let coarse: u64 = history.quarters().map(of_slice).sum();
            prop_assert_eq!((fine, coarse), (wire(&world.seconds), wire(&world.seconds[..60])));
        }
        // In every slice, lent equals borrowed.
        for slice in history.seconds().chain(history.quarters()) {
            let borrowed: u64 = slice.points().map(|(_, point)| point.borrowed_bytes).sum();
            let lent: u64 = slice.points().map(|(_, point)| point.lent_bytes).sum();
            prop_assert_eq!(borrowed, lent + slice.lent_by_idle);
        }
        // The link's line is what it got each second.
        let series = world.monitor.series(&[ROOT, 1], 70);
        for (second, left) in world.seconds.iter().enumerate() {
            prop_assert_eq!(series[0][second], left.wire.iter().sum::<u64>() * 8);
            prop_assert_eq!(series[1][second], [1, 2, 3, 6].map(|at: usize| left.wire[at]).iter().sum::<u64>() * 8);
        }
    }
}

#[test]
fn a_document_is_the_frame_that_it_was_made_of() {
    let mut world = World::new(5);
    assert!(world.monitor.frame(Window::Second).is_none());
    for second in 0..20 {
        world.second([1, 1, 1, 60, if second < 10 { 80 } else { 5 }, 0, 40]);
    }
    let frame = world.monitor.frame(Window::Ten).unwrap();
    let more = |class| More { flows: Some(world.monitor.flows(&frame, class)), ..More::default() };
    let top = Top::new(vec![Link::of(&frame, world.monitor.counters(), more)]);
    let text = serde_json::to_string(&top).unwrap();
    assert!(text.starts_with(&format!("{{\"schema\":\"{SCHEMA}\",\"links\":[{{\"name\":\"link\"")), "{text}");
    let back: Top = serde_json::from_str(&text).unwrap();
    assert_eq!(back, top);
    let again = back.links[0].frame().unwrap();
    again.check().unwrap();
    assert_eq!((&again.rows, &again.tree), (&frame.rows, &frame.tree));
    assert_eq!((again.window, again.from, again.to, again.time), (frame.window, frame.from, frame.to, frame.time));
    for class in &top.links[0].classes {
        let listed: u64 = class.flows.iter().map(|flow| flow.bytes_at_least).sum();
        assert_eq!(listed + class.other_bytes.unwrap(), class.window.sent_bytes, "{}", class.name);
    }
    let web = &top.links[0].classes[2];
    assert_eq!((web.name.as_str(), web.parent.as_deref(), web.asked_bit_s), ("web", Some("agency"), Some(3_000_000)));
}

/// An engine that begins anew counts from 0. Then all that it has counted is new, even if a class
/// has more than the old engine had counted.
#[test]
fn an_engine_that_begins_anew() {
    let mut monitor = Monitor::new(tree(), Limits::default(), None);
    let mut second = |at: u64, bulk: u64, rest: u64| {
        let mut counters = vec![Counters::default(); CLASSES.len()];
        for (class, packets) in [(0, bulk + rest), (1, bulk), (3, bulk), (4, rest)] {
            let bytes = packets * 100;
            counters[class] =
                Counters { sent_packets: packets, sent_bytes: bytes, sent_wire_bytes: bytes, ..Counters::default() };
        }
        let (from, to) = (at * SECOND, (at + 1) * SECOND);
        monitor.second(Second { from, to, counters: &counters, ..Second::default() });
    };
    second(0, 1000, 5);
    // The link has sent less than before, but the last class more.
    second(1, 100, 50);
    let frame = monitor.frame(Window::Second).unwrap();
    frame.check().unwrap();
    let own = |class: usize| frame.rows[class].own.sent_packets;
    assert_eq!([0, 1, 3, 4].map(own), [0, 0, 100, 50]);
}

/// Charged bytes of a class's own packets in all seconds of the history.
fn in_history(monitor: &Monitor, class: ClassId) -> u64 {
    monitor.history().seconds().filter_map(|slice| slice.point(class)).map(|point| point.wire_bytes).sum()
}

#[test]
fn a_history_goes_on_in_another_process_and_under_another_policy() {
    let mut world = World::new(9);
    (0..20).for_each(|_| world.second([0, 0, 0, 50, 50, 0, 0]));
    let sent = |world: &World, class: usize| world.seconds.iter().map(|left| left.wire[class]).sum::<u64>();
    let history = world.monitor.history();
    let names: Arc<[String]> = history.names().into();
    let kept = |slice: SliceRef<'_>| (Slice::decoded(&slice.encoded()).unwrap(), names.clone());
    let (seconds, quarters) = (history.seconds().map(kept).collect(), history.quarters().map(kept).collect());
    let kept = History::restored(names.to_vec(), 1 << 20, seconds, quarters);
    world.monitor = Monitor::new(tree(), Limits::default(), Some(kept));
    // A new monitor takes all that the engine has counted as one second. Here the engine begins
    // anew as well.
    (world.engine, world.flows) = (engine(), Vec::new());
    (0..25).for_each(|_| world.second([0, 0, 0, 50, 50, 0, 0]));
    for class in [3, 4] {
        assert_eq!(in_history(&world.monitor, class), sent(&world, class as usize));
        // The quarters have 15 seconds, then the five that were left, and 15 of the new process.
        let quarters: Vec<u32> = world.monitor.history().quarters().map(|slice| slice.seconds).collect();
        assert_eq!(quarters, [15, 5, 15]);
    }
    // Class 3 is gone from the policy: its history is the link's.
    let mut classes = tree().classes().to_vec();
    classes.remove(3);
    classes[5].parent = 2;
    world.monitor.set_tree(Tree::new(classes).unwrap());
    let of = |class: ClassId| in_history(&world.monitor, class);
    assert_eq!((of(ROOT), of(3)), (sent(&world, 3), sent(&world, 4)));
}
