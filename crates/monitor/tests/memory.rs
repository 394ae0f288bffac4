//! The memory of a monitor: little for idle classes, and never more than its limits.

use std::borrow::Cow;

use altq_engine::account::Counters;
use altq_engine::headers::Key;
use altq_engine::sketch::Sketch;
use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::{Rate, SECOND};
use altq_monitor::{Class, Departures, FlowKey, Limits, Monitor, Second, Tree, Window};

/// So many classes directly below a link, each with the same guarantee.
fn tree(classes: u32) -> Tree {
    let class = |at: u32| Class {
        name: format!("c{at}"),
        parent: ROOT,
        asked: Some(Rate::kbit_s(if at == 0 { u64::from(classes) * 100 } else { 100 })),
        ceiling: None,
    };
    Tree::new((0..=classes).map(class).collect()).unwrap()
}

/// Runs a monitor for some seconds, in which the classes up to `busy` send ten packets of 1,000
/// bytes each, in `flows` flows, and wait for different times.
fn run(limits: Limits, classes: u32, busy: u32, flows: u32, seconds: u64) -> Monitor {
    let mut monitor = Monitor::new(tree(classes), limits, None);
    let mut departures = Departures::new(classes as usize + 1, limits.flows, 5);
    let mut counters = vec![Counters::default(); classes as usize + 1];
    for second in 0..seconds {
        let mut delays = Vec::new();
        for class in 1..=busy {
            let mut sketch = Sketch::default();
            for packet in 0..10 {
                let flow = Key { src: u128::from(packet % flows), family: 4, proto: 17, ..Key::default() };
                departures.add(class, &FlowKey::of(&flow), 1000);
                sketch.add(u64::from(packet * packet + class) * 10_000);
            }
            for at in [ROOT, class] {
                let counters = &mut counters[at as usize];
                counters.sent_packets += 10;
                counters.sent_bytes += 10_000;
                counters.sent_wire_bytes += 10_000;
            }
            delays.push((class, sketch.packed()));
        }
        let mut taken = Vec::new();
        departures.take(&mut taken);
        monitor.second(Second {
            from: second * SECOND,
            to: (second + 1) * SECOND,
            counters: &counters,
            unclassified: 0,
            delays,
            flows: taken.iter().map(|(class, counters)| (*class, counters.summary())).collect(),
            limited_by: vec![Cow::Borrowed("offered"); classes as usize + 1],
            ..Second::default()
        });
        departures.give_back(taken.into_iter().map(|(_, counters)| counters));
    }
    monitor
}

#[test]
fn an_idle_class_takes_some_250_bytes() {
    let idle = run(Limits::default(), 100_000, 0, 1, 3).memory();
    assert!(idle <= 100_000 * 300, "{} bytes a class", idle / 100_000);
    // A hundred busy classes with ten packets in three flows each second: a full minute of delays
    // and flows, and 70 seconds of history, take less than 12 kB for each of them.
    let busy = run(Limits::default(), 100_000, 100, 3, 70).memory();
    assert!(busy - idle <= 100 * 12_000, "{} bytes a busy class", (busy - idle) / 100);
}

#[test]
fn limits_are_kept_and_frames_still_add_up() {
    let limits = Limits { history: 1 << 20, delays: 50, flows: 20 };
    let monitor = run(limits, 2000, 2000, 3, 100);
    assert!(monitor.history().memory() <= limits.history, "{}", monitor.history().memory());
    assert!(monitor.memory() <= (1 << 20) + 2000 * 300 + 50 * 5_000 + 20 * 10_000, "{}", monitor.memory());
    let frame = monitor.frame(Window::Minute).unwrap();
    frame.check().unwrap();
    // The window is as long as the history reaches back.
    let seconds = frame.time / SECOND;
    assert!((2..60).contains(&seconds), "{seconds}");
    assert_eq!(frame.rows[0].total.sent_bytes, seconds * 2000 * 10_000);
    let flows = |class: ClassId| monitor.flows(&frame, class);
    let with = (1..=2000).filter(|class| !flows(*class).listed().is_empty()).count();
    assert_eq!(with, 20);
    for class in [1, 2000] {
        let flows = flows(class);
        let listed: u64 = flows.listed().iter().map(|counted| counted.at_least.bytes).sum();
        assert_eq!(listed + flows.others.bytes, frame.rows[class as usize].total.sent_bytes, "{class}");
    }
}
