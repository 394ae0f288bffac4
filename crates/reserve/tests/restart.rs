//! Reservations over restarts, changes of the policy, and refusals of the engine.

use crate::support;

use altq_engine::spec::SpecError;
use altq_engine::{Change, Engine, Packet};
use altq_reserve::{Happened, Op, Place, Request, Restored, State, Table};
use support::{World, add, code, link, of, tspec};

const POLICY: &str = "link l { rate 10Mbit/s scheduler cbq
    class res  { rate 2Mbit/s  priority 6  reservations }
    class rest { rate 8Mbit/s  borrow  default } }";
const SECOND: u64 = 1_000_000_000;

fn rate(rate: u64) -> altq_reserve::Tspec {
    tspec(rate, 3_000, 1500, 1500)
}

fn timed(key: &str, port: u16, bit_s: u64, ttl_s: f64) -> Request {
    Request { ttl_s: Some(ttl_s), ..add(key, port, rate(bit_s)) }
}

fn restore(world: &mut World, unix_ns: u64, state: &State) -> Result<Restored, String> {
    let World { table, engine, now, .. } = world;
    table.restore(*now, unix_ns, state, &mut |change: &Change| engine.apply(*now, change))
}

fn happened(table: &Table) -> Vec<(Happened, u64)> {
    table.events_since(0).1.map(|event| (event.event, event.id)).collect()
}

#[test]
fn deadlines_are_kept_over_a_restart() {
    let mut world = World::new(POLICY);
    world.now = 5 * SECOND;
    assert!(world.ask(&timed("short", 1, 100_000, 10.0)).granted);
    assert!(world.ask(&timed("long", 2, 200_000, 100.0)).granted);
    assert!(world.ask(&add("open", 3, rate(300_000))).granted);
    world.now = 7 * SECOND;
    // 8 s and 98 s are left.
    let state = world.table.save(world.now, 1_000 * SECOND);
    let text = serde_json::to_string(&state).unwrap();
    let state: State = serde_json::from_str(&text).unwrap();
    let deadlines: Vec<_> = state.reservations.iter().map(|saved| saved.deadline_boot_ns).collect();
    assert_eq!(deadlines, [Some(1_008 * SECOND), Some(1_098 * SECOND), None]);
    // Nine seconds later, on a clock that began anew.
    let mut after = World::new(POLICY);
    let restored = restore(&mut after, 1_009 * SECOND, &state).unwrap();
    assert_eq!(restored, Restored { restored: 2, expired: 1, refused: Vec::new() });
    assert_eq!(after.table.next_deadline(), Some(89 * SECOND));
    assert_eq!(happened(&after.table), [(Happened::Expired, 1), (Happened::Granted, 2), (Happened::Granted, 3)]);
    // The classes and rules exist again, and numbers are not used twice.
    assert_eq!(after.table.get(2).unwrap().name, "res.2");
    assert_eq!(after.table.list(0).charged_bit_s, 500_000);
    assert_eq!(after.ask(&add("new", 4, rate(1_000))).id, Some(4));
    // Even if the wall clock was set back, none lasts longer than its time to live.
    let mut back = World::new(POLICY);
    restore(&mut back, 1, &state).unwrap();
    assert_eq!(back.table.next_deadline(), Some(10 * SECOND));
}

#[test]
fn a_restart_with_a_smaller_class_keeps_the_older_reservations() {
    let mut world = World::new(POLICY);
    for (port, bit_s) in [(1_u16, 1_000_000), (2, 900_000), (3, 50_000)] {
        assert!(world.ask(&add(&port.to_string(), port, rate(bit_s))).granted);
    }
    let state = world.table.save(0, 0);
    let smaller = POLICY.replace("2Mbit/s", "1100kbit/s");
    let mut after = World::new(&smaller);
    let restored = restore(&mut after, 0, &state).unwrap();
    assert_eq!((restored.restored, restored.refused.len(), restored.refused[0].0), (2, 1, 2));
    assert_eq!(happened(&after.table), [(Happened::Preempted, 2), (Happened::Granted, 1), (Happened::Granted, 3)]);
    // The same holds while altq runs.
    let World { table, engine, .. } = &mut world;
    let place = Place::of(&link(&smaller)).unwrap();
    table.set_place(0, place, &mut |change: &Change| engine.apply(0, change)).unwrap();
    let there: Vec<u64> = table.reservations().map(|there| there.id).collect();
    assert_eq!(there, [1, 3]);
    assert_eq!(happened(table)[3..], [(Happened::Preempted, 2)]);
    assert_eq!(table.list(0).charged_bit_s, 1_050_000);
    // Its key and its flow are free again, but its rate is not.
    assert_eq!(code(&world.ask(&add("2", 2, rate(60_000)))), Some((1, 2)));
    assert!(world.ask(&add("2", 2, rate(50_000))).granted);
}

/// A policy that lets reservations last for 60 s also holds for those that were made without an
/// end.
#[test]
fn a_shorter_lifetime_holds_for_the_reservations_that_are_there() {
    let mut world = World::new(POLICY);
    world.now = 10 * SECOND;
    assert!(world.ask(&add("open", 1, rate(100_000))).granted);
    assert!(world.ask(&timed("long", 2, 100_000, 500.0)).granted);
    assert!(world.ask(&timed("short", 3, 100_000, 20.0)).granted);
    let state = world.table.save(world.now, 0);
    let shorter = POLICY.replace("reservations", "reservations { lifetime 60s }");
    let mut after = World::new(&shorter);
    assert_eq!(restore(&mut after, 0, &state).unwrap().restored, 3);
    let World { table, engine, now, .. } = &mut world;
    let place = Place::of(&link(&shorter)).unwrap();
    table.set_place(*now, place, &mut |change: &Change| engine.apply(*now, change)).unwrap();
    let deadlines = |table: &Table| -> Vec<_> { table.reservations().map(|there| there.deadline).collect() };
    assert_eq!(deadlines(&after.table), [Some(60 * SECOND), Some(60 * SECOND), Some(20 * SECOND)]);
    assert_eq!(deadlines(&world.table), [Some(70 * SECOND), Some(70 * SECOND), Some(30 * SECOND)]);
    assert_eq!(world.table.next_deadline(), Some(30 * SECOND));
    // There are events for the two that now end sooner.
    assert_eq!(happened(&world.table)[3..], [(Happened::Changed, 1), (Happened::Changed, 2)]);
    // They end by themselves, and a refresh gives no more than 60 s.
    world.now = 69 * SECOND;
    assert_eq!(world.ask(&of(Op::Refresh, "open")).expires_s, Some(60.0));
    world.now = 70 * SECOND;
    assert!(!world.ask(&of(Op::Refresh, "long")).granted);
    assert_eq!(world.table.next_deadline(), Some(129 * SECOND));
}

#[test]
fn a_spoilt_state_spoils_only_itself() {
    let mut world = World::new(POLICY);
    assert!(world.ask(&add("a", 1, rate(1_000))).granted && world.ask(&add("b", 2, rate(1_000))).granted);
    let mut state = world.table.save(0, 0);
    state.reservations.push(state.reservations[0].clone());
    state.reservations[1].tspec.rate_bit_s = 0;
    let mut after = World::new(POLICY);
    let restored = restore(&mut after, 0, &state).unwrap();
    let numbers: Vec<u64> = restored.refused.iter().map(|(id, _)| *id).collect();
    assert_eq!((restored.restored, numbers), (1, vec![2, 1]));
    // Numbers so high that there would be none for new reservations.
    let wrong = State { next_id: u64::MAX, ..state.clone() };
    assert!(restore(&mut World::new(POLICY), 0, &wrong).unwrap_err().contains("next reservation"));
    state.reservations[0].id = u64::MAX;
    let mut after = World::new(POLICY);
    let restored = restore(&mut after, 0, &state).unwrap();
    assert_eq!((restored.restored, restored.refused[0].0), (1, u64::MAX));
    assert!(after.ask(&add("new", 9, rate(1_000))).granted);
    state.form = 2;
    assert!(restore(&mut World::new(POLICY), 0, &state).unwrap_err().contains("form 1"));
}

/// A refusal of the engine at any change leaves table and engine as they were.
#[test]
fn what_the_engine_refuses_is_taken_back() {
    let refuse = || SpecError::new("not now");
    let changed = Request { flows: Some(vec![support::flow(8)]), ..add("a", 8, tspec(400_000, 6_000, 1500, 1500)) };
    for (request, changes) in [(add("new", 9, rate(100_000)), 2), (changed, 3), (of(Op::Del, "a"), 1)] {
        for at in 0..changes {
            let mut world = World::new(POLICY);
            assert!(world.ask(&add("a", 1, rate(200_000))).granted);
            let (saved, events) = (world.table.save(0, 0), happened(&world.table));
            let before = world.changes.len();
            let (mut count, mut taken_back) = (0, 0);
            let World { table, engine, .. } = &mut world;
            let reply = table.handle(0, &request, &mut |change: &Change| {
                count += 1;
                if count == at + 1 {
                    return Err(refuse());
                }
                taken_back += u32::from(count > at + 1);
                engine.apply(0, change)
            });
            let altq_reserve::Reply::Answer(answer) = reply else { panic!("{reply:?}") };
            assert_eq!((answer.granted, code(&answer)), (false, Some((22, 0))), "{request:?} {at}");
            assert_eq!((table.save(0, 0), happened(table)), (saved, events), "{request:?} {at}");
            assert_eq!(taken_back, at, "{request:?}");
            assert_eq!(world.changes.len(), before);
            // The engine still agrees with the table.
            assert!(world.ask(&add("later", 10, rate(100_000))).granted);
            assert!(world.ask(&of(Op::Del, "a")).granted);
        }
    }
}

/// If the engine keeps a class, the class still has its guarantee, so its room is not given to
/// others. The reservation has ended all the same, and each request tries again to remove the
/// class.
#[test]
fn a_class_that_the_engine_keeps_holds_its_room() {
    let mut world = World::new(POLICY);
    assert!(world.ask(&add("a", 1, rate(1_500_000))).granted);
    let World { table, engine, .. } = &mut world;
    let mut keeps = |change: &Change| match change {
        Change::RemoveClass { .. } => Err(SpecError::new("not now")),
        other => engine.apply(0, other),
    };
    let mut ask = |request: &Request| match table.handle(0, request, &mut keeps) {
        altq_reserve::Reply::Answer(answer) => *answer,
        other => panic!("{other:?}"),
    };
    assert!(ask(&of(Op::Del, "a")).granted);
    // Of 2 Mbit/s 500 kbit/s are left. The key and the flow are free.
    let answer = ask(&add("a", 1, rate(600_000)));
    assert_eq!((code(&answer), answer.would_fit_bit_s), (Some((1, 2)), Some(500_000)));
    assert!(ask(&add("a", 1, rate(500_000))).granted);
    assert_eq!((table.unremoved(), table.list(0).charged_bit_s), (1, 2_000_000));
    let expected = [(Happened::Granted, 1), (Happened::Deleted, 1), (Happened::Granted, 2)];
    assert_eq!(happened(table), expected);
    // Now the engine removes it.
    assert!(world.ask(&add("b", 2, rate(1_500_000))).granted);
    assert_eq!((world.table.unremoved(), world.table.list(0).charged_bit_s), (0, 2_000_000));
}

/// Changes that the engine refuses after a change of the policy are tried again.
#[test]
fn words_that_the_engine_refuses_are_asked_for_again() {
    let mut world = World::new(POLICY);
    assert!(world.ask(&add("a", 1, rate(1_000_000))).granted);
    let place = Place::of(&link(&POLICY.replace("priority 6", "priority 5"))).unwrap();
    let World { table, engine, .. } = &mut world;
    let refused = table.set_place(0, place, &mut |change: &Change| match change {
        Change::SetClass { .. } => Err(SpecError::new("not now")),
        other => engine.apply(0, other),
    });
    assert!(refused.is_err());
    assert_eq!(table.list(0).charged_bit_s, 1_000_000);
    world.changes.clear();
    assert!(world.ask(&of(Op::Modify, "a")).granted);
    assert!(matches!(world.changes.as_slice(), [Change::SetClass { .. }]), "{:?}", world.changes);
    // It is done once, and not again.
    assert!(world.ask(&of(Op::Modify, "a")).granted);
    assert_eq!(world.changes.len(), 1);
}

/// A refresh that prolongs is not an event. An earlier deadline is an event, however it came about.
#[test]
fn an_end_that_comes_sooner_is_an_event() {
    let mut world = World::new(POLICY);
    assert!(world.ask(&timed("a", 1, 1_000, 100.0)).granted);
    world.now = 10 * SECOND;
    // It ends at 100 s, then at 110, at 60, at 60 again, and at 70 s.
    for (ttl, events) in [(100.0, 1), (50.0, 2), (50.0, 2), (60.0, 2)] {
        let refresh = Request { ttl_s: Some(ttl), ..of(Op::Refresh, "a") };
        assert!(world.ask(&refresh).granted);
        assert_eq!(happened(&world.table).len(), events, "{ttl} s");
    }
    assert!(world.ask(&Request { ttl_s: Some(1.0), ..of(Op::Modify, "a") }).granted);
    let last = world.table.events_since(2).1.next().unwrap();
    assert_eq!((last.event, last.expires_s), (Happened::Changed, Some(1.0)));
}

/// Packets that wait in a class when its reservation ends move to the default class.
#[test]
fn packets_outlive_their_reservation() {
    let mut world = World::new(POLICY);
    assert!(world.ask(&add("a", 1, tspec(8_000, 9_000, 1500, 1500))).granted);
    let class = world.table.get(1).unwrap().class;
    (0..7).for_each(|handle| world.engine.enqueue(0, class, Packet::new(handle, 1500)));
    assert!(world.ask(&of(Op::Del, "a")).granted);
    let queued = |engine: &Engine, class| engine.counters(class).queued_packets;
    assert_eq!(queued(&world.engine, world.link.class("rest").unwrap()), 7);
    assert_eq!((world.engine.backlog(), world.engine.has_drops()), (7, false));
}
