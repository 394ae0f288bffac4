//! The engine's contract, tested with fifo, which needs no clock: queues, nesting, changes, and
//! counters that add up.

use altq_engine::account::DropReason;
use altq_engine::classify::RuleSet;
use altq_engine::link::{Framing, Overhead};
use altq_engine::settings::{Limit, Settings};
use altq_engine::spec::{ClassSpec, LinkSpec, QueueSpec, ROOT, Regulator, SchedulerSpec};
use altq_engine::units::{Rate, SECOND};
use altq_engine::{Change, Engine, Packet};

fn fifo() -> SchedulerSpec {
    SchedulerSpec::new("fifo")
}

fn queue(name: &'static str, limit: Limit) -> Option<QueueSpec> {
    Some(QueueSpec::new(name, limit))
}

fn class(parent: u32, queue: Option<QueueSpec>, scheduler: Option<SchedulerSpec>) -> ClassSpec {
    ClassSpec { parent, settings: Settings::new(), queue, scheduler }
}

fn link(classes: Vec<ClassSpec>) -> LinkSpec {
    let mut all = vec![class(ROOT, None, None)];
    all.extend(classes);
    LinkSpec::new(Rate::mbit_s(10), fifo(), all)
}

fn sent(engine: &mut Engine) -> Vec<u32> {
    std::iter::from_fn(|| engine.dequeue(0)).map(|d| d.packet.handle).collect()
}

#[test]
fn fifo_keeps_the_order_of_arrival_across_nested_classes() {
    // Class 1 holds a scheduler for 2 and 3; class 4 is beside it.
    let spec =
        link(vec![class(0, None, Some(fifo())), class(1, None, None), class(1, None, None), class(0, None, None)]);
    let mut engine = Engine::new(&spec).unwrap();
    for (handle, class) in [2, 4, 3, 1, 4, 2, 0].into_iter().enumerate() {
        engine.enqueue(0, class, Packet::new(handle as u32, 100));
    }
    assert_eq!(engine.next_wakeup(), Some(0));
    assert_eq!(sent(&mut engine), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(engine.next_wakeup(), None);
    let total = engine.counters(ROOT);
    assert_eq!((total.sent_packets, total.sent_bytes, total.queued_packets), (7, 700, 0));
    assert_eq!(engine.counters(1).sent_packets, 4);
}

#[test]
fn drop_tail_refuses_and_drop_head_makes_room() {
    let spec = link(vec![
        class(0, queue("drop_tail", Limit::Packets(2)), None),
        class(0, queue("drop_head", Limit::Packets(2)), None),
        class(0, queue("drop_tail", Limit::Bytes(250)), None),
        class(0, queue("drop_head", Limit::Bytes(250)), None),
    ]);
    let mut engine = Engine::new(&spec).unwrap();
    let mut lost = Vec::new();
    for class in 1..=4 {
        for n in 0..4 {
            engine.enqueue(0, class, Packet::new(class * 10 + n, 100));
            lost.extend(engine.drops().map(|d| (d.packet.handle, d.reason)));
        }
    }
    use DropReason::{HeadDropped as Head, QueueFull as Full};
    let expected = [(12, Full), (13, Full), (20, Head), (21, Head), (32, Full), (33, Full), (40, Head), (41, Head)];
    assert_eq!(lost, expected);
    assert_eq!(sent(&mut engine), [10, 11, 22, 23, 30, 31, 42, 43]);
    // A packet larger than the whole queue drops no others.
    engine.enqueue(0, 4, Packet::new(1, 100));
    engine.enqueue(0, 4, Packet::new(2, 300));
    assert_eq!(engine.drops().map(|d| d.packet.handle).collect::<Vec<_>>(), [2]);
    assert_eq!(engine.drop_reasons(4).collect::<Vec<_>>(), [(Full, 1, 300), (Head, 2, 200)]);
}

#[test]
fn a_packet_without_a_class_is_a_drop_with_its_reason() {
    let mut engine = Engine::new(&link(vec![])).unwrap();
    engine.enqueue(5, 77, Packet::new(9, 60));
    engine.receive(6, &Default::default(), Packet::new(10, 61));
    let drops: Vec<_> = engine.drops().map(|d| (d.at, d.class, d.packet.handle, d.reason)).collect();
    assert_eq!(drops, [(5, None, 9, DropReason::NoClass), (6, None, 10, DropReason::NoClass)]);
    assert_eq!(engine.unclassified(), (2, 121));
}

#[test]
fn the_regulator_holds_the_wire_rate_with_overhead() {
    // On ATM 1000 + 8 bytes are 21 cells, 1113 bytes. At 10 Mbit/s that is 1123.1 packets in a
    // second, and those for which the bucket held tokens.
    let mut spec = link(vec![class(0, queue("drop_tail", Limit::Packets(5000)), None)]);
    spec.overhead = Overhead { bytes: 8, mpu: 0, framing: Framing::Atm };
    spec.regulator = Regulator::Depth(2000);
    let mut engine = Engine::new(&spec).unwrap();
    for n in 0..5000 {
        engine.enqueue(0, 1, Packet::new(n, 1000));
    }
    let (mut now, mut count) = (0, 0);
    while now <= SECOND {
        match engine.dequeue(now) {
            Some(d) => {
                assert_eq!(d.packet.wire, 1113);
                count += 1;
            }
            None => {
                let next = engine.next_wakeup().unwrap();
                assert!(next > now, "no packet left at {now}, but next_wakeup is {next}");
                now = next;
            }
        }
    }
    assert!((1124..=1126).contains(&count), "{count}");
}

#[test]
fn a_removed_class_leaves_no_packet_behind() {
    let spec = link(vec![class(0, None, None), class(0, queue("drop_tail", Limit::Packets(3)), None)]);
    let mut engine = Engine::new(&spec).unwrap();
    for n in 0..4 {
        engine.enqueue(0, 1, Packet::new(n, 100));
    }
    engine.enqueue(0, 2, Packet::new(10, 100));
    // Two packets fit beside the one in the heir's queue.
    engine.apply(1, &Change::RemoveClass { class: 1, heir: Some(2) }).unwrap();
    assert_eq!(engine.drops().map(|d| (d.packet.handle, d.class)).collect::<Vec<_>>(), [(2, Some(2)), (3, Some(2))]);
    engine.apply(2, &Change::RemoveClass { class: 2, heir: None }).unwrap();
    assert_eq!(engine.drops().filter(|d| d.reason == DropReason::ClassRemoved).count(), 3);
    assert_eq!(engine.backlog(), 0);
    let total = engine.counters(ROOT);
    assert_eq!((total.received_packets(), total.dropped_packets), (5, 5));
    // What they did is counted once, in the class above.
    assert_eq!(engine.all_counters()[1..], [Default::default(); 2]);
    // A new class gets the number of a removed one, but not its counters.
    let id = engine.apply(3, &Change::AddClass(class(0, None, None))).unwrap().unwrap();
    assert!(id == 1 || id == 2);
    assert_eq!(engine.own_counters(id), Default::default());
    engine.enqueue(3, id, Packet::new(20, 100));
    assert_eq!(sent(&mut engine), [20]);
}

#[test]
fn what_cannot_be_changed_changes_nothing() {
    let spec = link(vec![class(0, None, Some(fifo())), class(1, None, None)]);
    let mut engine = Engine::new(&spec).unwrap();
    engine.enqueue(0, 2, Packet::new(1, 100));
    let settings = Settings::new();
    for change in [
        Change::RemoveClass { class: 0, heir: None },
        Change::RemoveClass { class: 1, heir: None },
        Change::RemoveClass { class: 2, heir: Some(2) },
        Change::RemoveClass { class: 2, heir: Some(9) },
        Change::RemoveClass { class: 9, heir: None },
        Change::SetClass { class: 1, parent: 2, settings: settings.clone() },
        Change::SetClass { class: 2, parent: 0, settings: settings.clone() },
        Change::SetClass { class: 0, parent: 0, settings: settings.clone() },
        Change::SetScheduler { class: 2, settings: settings.clone() },
        Change::SetRate(Rate::ZERO),
        Change::SetRules { rules: RuleSet::default(), default: Some(9) },
        Change::AddClass(class(9, None, None)),
        Change::AddClass(class(0, queue("no_such", Limit::Packets(1)), None)),
    ] {
        assert!(engine.apply(0, &change).is_err(), "{change:?}");
        assert!(!engine.has_drops());
    }
    assert_eq!(sent(&mut engine), [1]);
}

#[test]
fn a_lowered_limit_drops_where_the_queue_drops() {
    let mut spec = link(vec![]);
    for name in ["drop_tail", "drop_head"] {
        spec.classes.push(class(0, queue(name, Limit::Packets(9)), None));
    }
    let mut engine = Engine::new(&spec).unwrap();
    for n in 0..8 {
        engine.enqueue(0, 1 + n % 2, Packet::new(n, 100));
    }
    for id in [1, 2] {
        let name = if id == 1 { "drop_tail" } else { "drop_head" };
        engine.apply(1, &Change::SetQueue { class: id, queue: queue(name, Limit::Packets(2)).unwrap() }).unwrap();
    }
    let drops: Vec<_> = engine.drops().map(|d| (d.packet.handle, d.reason)).collect();
    use DropReason::LimitLowered as Low;
    assert_eq!(drops, [(6, Low), (4, Low), (1, Low), (3, Low)]);
    assert_eq!(sent(&mut engine), [0, 2, 5, 7]);
}

#[test]
fn schedulers_stand_eight_deep_and_no_deeper() {
    let mut spec = link(vec![]);
    for depth in 0..7 {
        spec.classes.push(class(depth, None, Some(fifo())));
    }
    let mut engine = Engine::new(&spec).unwrap();
    engine.enqueue(0, 7, Packet::new(1, 100));
    assert_eq!(sent(&mut engine), [1]);
    let error = engine.apply(0, &Change::AddClass(class(7, None, Some(fifo())))).unwrap_err();
    assert!(error.message.contains("8 deep"), "{error}");
}
