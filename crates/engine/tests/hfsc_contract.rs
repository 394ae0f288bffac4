//! HFSC: the contract of a scheduler: changes while packets wait, schedulers in one another,
//! timers, far times and odd rates.

use crate::support;
use crate::support::hfsc;

use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::spec::{ClassSpec, QueueSpec, SchedulerSpec};
use altq_engine::units::Rate;
use altq_engine::{Change, Engine, Packet};
use hfsc::{Class, MBIT, bent, line, link, share};
use support::{Cbr, MS, Random, S, Wire};

#[track_caller]
fn within(got: f64, want: f64, tolerance: f64) {
    assert!((got - want).abs() <= want * tolerance, "{got} bit/s, {want} expected");
}

fn scheduler(name: &'static str) -> Option<SchedulerSpec> {
    Some(SchedulerSpec::new(name))
}

fn queue(packets: u32) -> Option<QueueSpec> {
    Some(QueueSpec::new("drop_tail", Limit::Packets(packets)))
}

fn plain(parent: u32) -> ClassSpec {
    ClassSpec { parent, settings: Settings::new(), queue: None, scheduler: None }
}

fn random_class(random: &mut Random, parent: u32) -> Class {
    let mut class = share(parent, 1 + random.below(20 * MBIT));
    if random.chance(30) {
        class.share = Some(bent(random.below(20 * MBIT), 1 + random.below(20 * MS), 1 + random.below(20 * MBIT)));
    }
    if random.chance(40) {
        class.realtime = Some(match random.below(3) {
            0 => line(1 + random.below(5 * MBIT)),
            1 => bent(random.below(9 * MBIT), 1 + random.below(20 * MS), 1 + random.below(5 * MBIT)),
            _ => bent(0, 1 + random.below(20 * MS), 1 + random.below(5 * MBIT)),
        });
        if random.chance(20) {
            class.share = None;
        }
    }
    if random.chance(40) {
        class.limit = Some(match random.below(3) {
            0 => line(1 + random.below(9 * MBIT)),
            1 => bent(random.below(9 * MBIT), 1 + random.below(20 * MS), 1 + random.below(9 * MBIT)),
            _ => line(64_000),
        });
    }
    class
}

/// Two engines through the same arrivals and changes, one of them asked far more often while
/// nothing may leave: the same packets leave at the same times, nothing before `next_wakeup`,
/// something at it; and every packet is accounted for.
#[test]
fn any_changes_while_packets_wait() {
    let mut random = Random::new(0xC0DE);
    for round in 0..150 {
        let mut classes: Vec<Class> = Vec::new();
        for n in 0..2 + random.below(9) {
            let parent = if random.chance(50) { random.below(n + 1) as u32 } else { 0 };
            classes.push(random_class(&mut random, parent));
        }
        let rate = 10 * MBIT;
        let spec = link(rate, &classes);
        let mut engines = [Engine::new(&spec).unwrap(), Engine::new(&spec).unwrap()];
        // Class numbers in use, with their parents.
        let mut parents: Vec<Option<u32>> =
            std::iter::once(Some(0)).chain(classes.iter().map(|class| Some(class.parent))).collect();
        let (mut now, mut free, mut handle, mut arrived) = (0, 0, 0_u32, 0_u64);
        let mut left = [0_u64; 2];
        for _ in 0..600 {
            // Something is done.
            let ids: Vec<u32> = (0..parents.len() as u32).filter(|id| parents[*id as usize].is_some()).collect();
            let id = random.pick(&ids);
            let leaf = id != 0 && !parents.contains(&Some(id));
            let change = match random.below(40) {
                0 => Some(Change::AddClass(random_class(&mut random, id).spec())),
                1 | 2 if id != 0 => {
                    let parent = if random.chance(50) { parents[id as usize].unwrap_or(0) } else { random.pick(&ids) };
                    Some(Change::SetClass { class: id, parent, settings: random_class(&mut random, 0).settings() })
                }
                3 if leaf && ids.len() > 3 => {
                    let heir = random.pick(&ids);
                    Some(Change::RemoveClass { class: id, heir: (heir != id && random.chance(50)).then_some(heir) })
                }
                4 if leaf => Some(Change::SetQueue { class: id, queue: queue(random.below(10) as u32 + 1).unwrap() }),
                5 => Some(Change::SetRate(Rate::bit_s(rate / 2 + random.below(rate)))),
                _ => None,
            };
            match change {
                Some(change) => {
                    let answers = engines.each_mut().map(|engine| engine.apply(now, &change));
                    assert_eq!(answers[0], answers[1]);
                    match (&change, &answers[0]) {
                        (Change::AddClass(spec), Ok(Some(new))) => {
                            parents.resize(parents.len().max(*new as usize + 1), None);
                            parents[*new as usize] = Some(spec.parent);
                        }
                        (Change::SetClass { class, parent, .. }, Ok(_)) => parents[*class as usize] = Some(*parent),
                        (Change::RemoveClass { class, .. }, Ok(_)) => parents[*class as usize] = None,
                        _ => {}
                    }
                }
                None => {
                    for _ in 0..=random.below(3) {
                        handle += 1;
                        arrived += 1;
                        let size = 40 + random.below(1461) as u32;
                        engines.iter_mut().for_each(|engine| engine.enqueue(now, id, Packet::new(handle, size)));
                    }
                }
            }
            // And a while passes, in which the wire takes what there is.
            let until = now + random.below(3 * MS);
            while now < until {
                now = now.max(free);
                let wakes = engines.each_mut().map(|engine| engine.next_wakeup().map(|at| at.max(now)));
                assert_eq!(wakes[0], wakes[1]);
                let Some(wake) = wakes[0] else { break };
                if wake > now {
                    for _ in 0..random.below(4) {
                        let early = now + random.below(wake - now);
                        assert!(engines[1].dequeue(early).is_none(), "something left {} ns early", wake - early);
                        now = early;
                    }
                }
                if wake >= until {
                    break;
                }
                now = wake;
                let sent = engines.each_mut().map(|engine| engine.dequeue(now));
                assert_eq!(sent[0], sent[1], "round {round}, at {now}");
                let Some(sent) = sent[0] else { panic!("round {round}: woken at {now} for nothing") };
                left[0] += 1;
                free = now + u64::from(sent.packet.len) * 8 * S / rate;
            }
            now = until.max(now);
            for engine in &mut engines {
                left[1] = engine.drops().count() as u64;
            }
            let total = engines[0].counters(0);
            assert_eq!(total.received_packets(), arrived);
            assert_eq!(total.sent_packets, left[0]);
            assert_eq!(total.queued_packets, u64::from(engines[0].backlog()));
            assert_eq!(engines[0].all_counters(), engines[1].all_counters());
        }
        // All that may ever go goes.
        while let Some(wake) = engines[0].next_wakeup() {
            now = now.max(wake).max(free);
            let sent = engines[0].dequeue(now).expect("woken for a packet");
            free = now + u64::from(sent.packet.len) * 8 * S / rate;
        }
        let stuck = engines[0].backlog();
        if stuck > 0 {
            // Only below a class without a share can a packet wait for ever: `check` refuses that.
            let queued: Vec<u32> =
                (0..parents.len() as u32).filter(|id| engines[0].own_counters(*id).queued_packets > 0).collect();
            assert!(queued.iter().all(|id| *id != 0), "{queued:?}");
        }
    }
}

/// A change that says what is said already changes no departure: what is owed stays owed.
#[test]
fn the_same_words_again_change_nothing() {
    let classes = [
        share(0, 30 * MBIT).realtime(bent(20 * MBIT, 10 * MS, 5 * MBIT)),
        share(0, 40 * MBIT).limit(25 * MBIT),
        share(0, 30 * MBIT),
    ];
    let mut shares = Vec::new();
    for again in [false, true] {
        let mut wire = Wire::new(&link(100 * MBIT, &classes));
        (1..=3).for_each(|class| wire.greedy(class, &[1500, 700]));
        for n in 1..=1000 {
            wire.run(n * MS);
            if again {
                let class = (n % 3) as u32;
                let change =
                    Change::SetClass { class: class + 1, parent: 0, settings: classes[class as usize].settings() };
                wire.engine.apply(wire.now, &change).unwrap();
            }
        }
        shares.push(wire.bytes.clone());
    }
    for (a, b) in shares[0].iter().zip(&shares[1]).skip(1) {
        assert!(a.abs_diff(*b) <= 3000, "{shares:?}");
    }
    within(shares[1][2] as f64 * 8.0, 25e6, 0.002);
}

/// New curves hold at once, with packets queued; a class under another parent has its share there.
#[test]
fn new_curves_hold_at_once() {
    let classes =
        [share(0, 50 * MBIT), share(0, 50 * MBIT), share(1, 10 * MBIT), share(1, 40 * MBIT), share(2, 50 * MBIT)];
    let mut wire = Wire::new(&link(100 * MBIT, &classes));
    (3..=5).for_each(|class| wire.greedy(class, &[1500]));
    let mut expect = |change: Option<(u32, Class)>, expected: [f64; 3]| {
        if let Some((class, words)) = change {
            let change = Change::SetClass { class, parent: words.parent, settings: words.settings() };
            wire.engine.apply(wire.now, &change).unwrap();
        }
        let got = wire.rates(wire.now + S);
        for (got, expected) in got[3..].iter().zip(expected) {
            within(*got, expected * 1e6, 0.005);
        }
    };
    expect(None, [10.0, 40.0, 50.0]);
    expect(Some((3, share(1, 40 * MBIT))), [25.0, 25.0, 50.0]);
    expect(Some((3, share(1, 40 * MBIT).limit(8 * MBIT))), [8.0, 42.0, 50.0]);
    expect(Some((3, share(2, 50 * MBIT))), [25.0, 50.0, 25.0]);
    expect(Some((1, share(0, 10 * MBIT))), [50.0 * 5.0 / 6.0, 100.0 / 6.0, 50.0 * 5.0 / 6.0]);
    expect(Some((3, share(0, 40 * MBIT))), [40.0, 10.0, 50.0]);
}

/// hfsc inside of a class of cbq that is held to its rate, and cbq with its own limit inside of a
/// class of hfsc: the packets' wake-ups and shares compose. The wire asks at no other time than
/// arrivals, completions and `next_wakeup`, and is never woken for nothing.
#[test]
fn schedulers_in_one_another() {
    let rate = |rate: u64| Settings::new().with("rate", Value::Rate(Rate::bit_s(rate)));
    // cbq: 1 without borrowing has 20 Mbit/s and holds hfsc with 3 and 4; 2 borrows.
    let mut spec = link(100 * MBIT, &[]);
    spec.scheduler.name = "cbq";
    spec.classes.push(ClassSpec { settings: rate(20 * MBIT), scheduler: scheduler("hfsc"), ..plain(0) });
    spec.classes.push(ClassSpec { settings: rate(80 * MBIT).with("borrow", Value::Flag), ..plain(0) });
    spec.classes.push(share(1, 15 * MBIT).spec());
    spec.classes.push(share(1, 5 * MBIT).limit(3 * MBIT).spec());
    for (active, expected) in
        [(&[2, 3, 4][..], [80.0, 17.0, 3.0]), (&[4], [0.0, 0.0, 3.0]), (&[3, 2], [80.0, 20.0, 0.0])]
    {
        let mut wire = Wire::new(&spec);
        wire.extra = 1;
        active.iter().for_each(|class| wire.greedy(*class, &[1500]));
        wire.run(S / 5);
        let got = wire.rates(S / 5 + 2 * S);
        for (got, expected) in got[2..].iter().zip(expected) {
            within(*got, expected * 1e6, 0.005);
        }
    }
    // hfsc: 1 holds cbq with 3, which is held to 5 Mbit/s, and 4; 2 stands beside it, 5 in it has a
    // limit and holds drr.
    let mut spec = link(100 * MBIT, &[share(0, 60 * MBIT), share(0, 40 * MBIT)]);
    spec.classes[1].scheduler = scheduler("cbq");
    spec.classes.push(ClassSpec { settings: rate(5 * MBIT), ..plain(1) });
    spec.classes.push(ClassSpec { settings: rate(20 * MBIT), ..plain(1) });
    spec.classes.push(ClassSpec { scheduler: scheduler("drr"), ..share(2, 40 * MBIT).limit(10 * MBIT).spec() });
    spec.classes.push(plain(5));
    spec.classes.push(ClassSpec { settings: Settings::new().with("quantum", Value::Bytes(4500)), ..plain(5) });
    for (active, expected) in [
        (&[3, 4, 6, 7][..], [5.0, 20.0, 2.5, 7.5]),
        (&[3], [5.0, 0.0, 0.0, 0.0]),
        (&[3, 6], [5.0, 0.0, 10.0, 0.0]),
        (&[6, 7], [0.0, 0.0, 2.5, 7.5]),
    ] {
        let mut wire = Wire::new(&spec);
        wire.depth = 10;
        wire.extra = 1;
        active.iter().for_each(|class| wire.greedy(*class, &[1500]));
        wire.run(S / 5);
        let got = wire.rates(S / 5 + 2 * S);
        for (got, expected) in [got[3], got[4], got[6], got[7]].into_iter().zip(expected) {
            within(got, expected * 1e6, 0.01);
        }
    }
}

/// A class with a real-time curve that holds a scheduler: its packets have the curve's deadlines,
/// whichever class inside they are of.
#[test]
fn deadlines_of_what_stands_inside() {
    for inner in ["fifo", "drr", "priq", "hfsc"] {
        let mut spec = link(100 * MBIT, &[share(0, MBIT).realtime(line(10 * MBIT)), share(0, 99 * MBIT)]);
        spec.classes[1].scheduler = scheduler(inner);
        for _ in 0..2 {
            spec.classes.push(if inner == "hfsc" { share(1, MBIT).spec() } else { plain(1) });
        }
        let mut wire = Wire::new(&spec);
        wire.greedy(2, &[1500]);
        wire.cbr(Cbr { class: 3, size: 500, interval: 800_000, start: 0, end: u64::MAX });
        wire.cbr(Cbr { class: 4, size: 500, interval: 800_000, start: 7, end: u64::MAX });
        wire.log = Some(Vec::new());
        wire.run(S);
        // Two classes of 5 Mbit/s each in one of 10: at most both packets' time at 10 Mbit/s, and
        // one packet of the link. The inner scheduler's next packet is guessed to be the largest,
        // which makes its deadline later by a thousand bytes.
        for sent in wire.log.take().unwrap_or_default().iter().filter(|sent| sent.departure.class > 2) {
            let wait = sent.at - sent.departure.packet.arrived;
            assert!(wait <= 800_000 + 120_000 + 800_000, "{inner}: {wait} ns");
        }
    }
}

/// A timer that fires on ticks only: limits and deadlines hold their rates all the same, as long as
/// a queue holds what passes in a tick.
#[test]
fn rates_hold_under_ticks() {
    for hz in [100, 1000] {
        let tick = S / hz;
        let mut deadline = Class { realtime: Some(line(20 * MBIT)), ..Class::default() };
        deadline.packets = Some(400);
        for classes in [[share(0, 10 * MBIT).limit(20 * MBIT).packets(400), share(0, MBIT)], [deadline, share(0, MBIT)]]
        {
            let mut spec = link(100 * MBIT, &classes);
            spec.timer = altq_engine::spec::Timer::Tick(tick);
            let mut wire = Wire::new(&spec);
            wire.tick = Some(tick);
            wire.depth = 300;
            wire.greedy(1, &[1500]);
            wire.run(S);
            let got = wire.rates(5 * S);
            within(got[1], 20e6, 0.003);
        }
    }
}

/// Rates from 1 bit/s to 100 Gbit/s, for decades: packet n of a class under a limit, or served by
/// deadline alone, goes when n packets have passed, to the nanosecond, so nothing drifts; and two
/// siblings stay within a packet of each other.
#[test]
fn nothing_drifts() {
    const YEAR: u64 = 31_557_600 * S;
    for rate in [1, 3, 7, 64_000, 999_983, 12_345_678_901, 99_999_999_977] {
        for by_deadline in [false, true] {
            let mut class = share(0, 5).limit(rate).packets(10);
            if by_deadline {
                class = Class { realtime: Some(line(rate)), packets: Some(10), ..Class::default() };
            }
            let mut engine = Engine::new(&link(100_000 * MBIT, &[class])).unwrap();
            let (mut n, mut now, mut bits) = (0_u64, 0, 0_u128);
            (0..3).for_each(|_| engine.enqueue(0, 1, Packet::new(0, 1500)));
            while n < 100_000 && now < 100 * YEAR {
                now = engine.next_wakeup().unwrap().max(now);
                assert_eq!(
                    u128::from(now),
                    (bits * u128::from(S)).div_ceil(u128::from(rate)),
                    "packet {n} at {rate} bit/s"
                );
                assert!(engine.dequeue(now).is_some(), "packet {n} at {now}");
                bits += 12_000;
                n += 1;
                engine.enqueue(now, 1, Packet::new(0, 1500));
            }
            assert!(n == 100_000 || now >= 100 * YEAR);
        }
    }
    // Shares of 1 bit/s and of 100 Gbit/s side by side, and of two odd ones.
    for (a, b) in [(1, 100_000 * MBIT), (999_983, 1_000_003), (1, 1), (1, 2)] {
        let mut engine = Engine::new(&link(100_000 * MBIT, &[share(0, a), share(0, b)])).unwrap();
        let mut sent = [0_u64; 3];
        for class in [1, 2, 1, 2] {
            engine.enqueue(0, class, Packet::new(0, 1500));
        }
        for n in 0..400_000 {
            let departure = engine.dequeue(n * 120).unwrap();
            sent[departure.class as usize] += 1;
            engine.enqueue(n * 120, departure.class, Packet::new(0, 1500));
            let difference = sent[1] as f64 / a as f64 - sent[2] as f64 / b as f64;
            assert!(difference.abs() <= 1.0 / a as f64 + 1.0 / b as f64, "{sent:?} of {a}:{b}");
        }
    }
}

/// Packets of a class that has children, and of the link itself, go when nothing below has any;
/// none is lost.
#[test]
fn packets_of_inner_classes_go_last() {
    let mut engine =
        Engine::new(&link(10 * MBIT, &[share(0, 5 * MBIT), share(0, 5 * MBIT), share(1, 5 * MBIT)])).unwrap();
    for class in [0, 1, 0, 1, 3, 2, 3] {
        engine.enqueue(0, class, Packet::new(class, 1000));
    }
    let order: Vec<u32> = std::iter::from_fn(|| engine.dequeue(0)).map(|sent| sent.class).collect();
    let last: Vec<u32> = order[5..].to_vec();
    assert_eq!((order.len(), last), (7, vec![0, 0]), "{order:?}");
    assert!(order.iter().position(|class| *class == 1) > order.iter().rposition(|class| *class == 3), "{order:?}");
}

/// Hours of idleness earn no more than a moment's, and neither do hours behind a limit.
#[test]
fn idleness_earns_nothing() {
    let classes = [share(0, 50 * MBIT), share(0, 50 * MBIT), share(0, 50 * MBIT).limit(10 * MBIT)];
    let mut wire = Wire::new(&link(100 * MBIT, &classes));
    wire.greedy(1, &[1500]);
    wire.greedy(3, &[1500]);
    wire.run(100 * S);
    wire.greedy(2, &[1500]);
    let got = wire.rates(100 * S + 100 * MS);
    within(got[1], 45e6, 0.01);
    within(got[2], 45e6, 0.01);
    within(got[3], 10e6, 0.03);
}

#[test]
fn what_cannot_be_is_refused() {
    let refused =
        |class: Class| Engine::new(&link(10 * MBIT, &[class])).err().map(|error| error.to_string()).unwrap_or_default();
    let none = Class::default();
    assert!(refused(none).contains("`linkshare` or `realtime`"));
    assert!(refused(share(0, 0)).contains("`linkshare` or `realtime`"));
    assert!(refused(share(0, MBIT).limit(0)).contains("0bit/s"));
    assert!(refused(share(0, MBIT).realtime(bent(MBIT, MS, 0))).contains("never again"));
    assert!(refused(share(0, MBIT).realtime(bent(u64::MAX, u64::MAX, 1))).contains("too small"));
    assert_eq!(refused(share(0, MBIT).realtime(line(0))), "");
    // On an error nothing has changed.
    let mut engine = Engine::new(&link(10 * MBIT, &[share(0, MBIT)])).unwrap();
    engine.enqueue(0, 1, Packet::new(1, 100));
    let change = Change::SetClass { class: 1, parent: 0, settings: Settings::new() };
    assert!(engine.apply(0, &change).is_err());
    assert_eq!(engine.dequeue(0).map(|sent| sent.packet.handle), Some(1));
}

/// The example of tc-hfsc(7): on 10 Mbit/s a class of 2 Mbit/s for 100 ms and then 7, and a second
/// later one of 7 Mbit/s for 100 ms and then 2. Both could not be kept if the first were not served
/// ahead of its curve while it was alone.
#[test]
fn a_convex_curve_is_served_ahead() {
    let (slow, fast) = (bent(2 * MBIT, 100 * MS, 7 * MBIT), bent(7 * MBIT, 100 * MS, 2 * MBIT));
    for load in [false, true] {
        let deadline = |curve| Class { realtime: Some(curve), ..Class::default() };
        let classes = [deadline(slow), deadline(fast), share(0, 10 * MBIT)];
        let mut wire = Wire::new(&link(10 * MBIT, &classes));
        wire.log = Some(Vec::new());
        wire.greedy(1, &[1000]);
        if load {
            wire.greedy(3, &[1500]);
        }
        wire.run(S);
        let begun = wire.now;
        wire.greedy(2, &[1000]);
        wire.run(2 * S);
        let packet = 1_200_000;
        for (class, curve, from) in [(1, slow, 0), (2, fast, begun)] {
            let mut bytes = 0;
            let log = wire.log.as_deref().unwrap_or_default();
            for sent in log.iter().filter(|sent| sent.departure.class == class) {
                bytes += 1000;
                let (end, due) = (sent.at + 800_000, from + curve.time_for(bytes).unwrap());
                assert!(end <= due + packet, "class {class}: {} ns late at {end}", end - due);
            }
            let promised = curve.bytes_in(2 * S - from - packet);
            assert!(bytes + 1000 >= promised, "class {class}: {bytes} of {promised} bytes");
        }
    }
}
