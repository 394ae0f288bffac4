//! Controllers in front of lines that change. The limits of the tests follow from the rules, with
//! some room: how long it takes until two of the three reflectors show a change, and by how much a
//! cut lowers the rate.

mod support;

use altq_adapt::{Adaptive, Controller, Health, Noticed, Reason};
use altq_engine::units::{Nanos, SECOND};
use support::{Line, MS, mbit, three};

/// The 95th percentile of the queue's delay over time, in ms.
fn p95(seen: &[(Nanos, u64, Nanos)]) -> Nanos {
    let mut waits: Vec<Nanos> = seen.iter().map(|(_, _, wait)| *wait).collect();
    waits.sort_unstable();
    waits[waits.len() * 95 / 100] / MS
}

fn since(line: &Line<impl Controller>, at: Nanos) -> &[(Nanos, u64, Nanos)] {
    &line.seen[line.seen.partition_point(|(time, ..)| *time < at)..]
}

/// On a constant line the rate stays near the capacity. It rises to a 16th above the rate at which
/// answers became late, by 6 % a second. The votes lag by half a second, and the cut after that is
/// two or three tenths.
#[test]
fn a_constant_line() {
    for capacity in [6, 12, 30, 55] {
        let mut line = Line::new(three(), 3);
        line.busy(20 * SECOND, mbit(capacity));
        let before = line.carried;
        line.busy(60 * SECOND, mbit(capacity));
        let (all, seen) = (mbit(capacity).as_bit_s(), since(&line, 20 * SECOND));
        let carried = line.carried - before;
        assert!(carried >= all * 60 * 85 / 100, "{capacity}: {carried} bit");
        assert!(p95(seen) <= 100, "{capacity}: {} ms", p95(seen));
        for (at, rate, _) in seen {
            assert!((all * 45 / 100..=all * 125 / 100).contains(rate), "{capacity}: {rate} at {at}");
        }
    }
}

/// A line above the upper bound is used up to the bound, without a single cut.
#[test]
fn a_line_faster_than_the_bound() {
    let mut line = Line::new(three(), 3);
    line.busy(30 * SECOND, mbit(1_000));
    assert_eq!(line.controller.rate(), mbit(60));
    assert!(line.decisions.iter().all(|one| one.reason == Reason::Used), "{:?}", line.decisions);
    // 20 · (17/16)^n is 60 at n = 18.1: nineteen rises, 250 ms apart. The first comes when each
    // reflector has answered twice.
    assert_eq!(line.decisions.len(), 19);
}

/// A line that falls to a fifth. After 0.3 s two probes are overdue by twice the target. Then the
/// rate is cut every 0.3 s, first by one or two tenths, then three times by half: 41, 36, 18, 9, 5
/// Mbit/s. So the rate is below the capacity within two seconds. The queue grows by 4.1 s per
/// second at first, and to 2.8 s in all. Then 5 of 8 Mbit/s come in, and it drains within 8 s.
#[test]
fn a_line_that_falls() {
    let mut line = Line::new(three(), 3);
    line.busy(20 * SECOND, mbit(40));
    line.busy(20 * SECOND, mbit(8));
    let below = line.seen.iter().find(|(at, rate, _)| *at > 20 * SECOND && *rate < 8_000_000).expect("it falls");
    assert!(below.0 <= 22 * SECOND, "below the line at {} ms", below.0 / MS);
    assert!(line.seen.iter().all(|(_, _, wait)| *wait <= 3_500 * MS));
    assert!(since(&line, 34 * SECOND).iter().all(|(_, _, wait)| *wait <= 250 * MS), "the queue has drained");
}

/// A line that is dead: nothing passes for five seconds. The rate soon falls to the lowest one.
/// After that the queue of what was sent meanwhile drains, and the rate rises by 27 % a second.
#[test]
fn a_cut() {
    let mut line = Line::new(three(), 3);
    line.busy(20 * SECOND, mbit(30));
    // The line carries one bit per millisecond, so that delays are finite.
    line.run(5 * SECOND, |_| 1_000, u64::MAX, |_, _, _| None);
    assert_eq!(line.controller.rate(), mbit(5));
    let lowest = line.decisions.iter().find(|one| one.after == mbit(5)).expect("cut");
    assert!(lowest.at <= 23 * SECOND, "{lowest:?}");
    line.busy(25 * SECOND, mbit(30));
    assert!(since(&line, 40 * SECOND).iter().any(|(_, rate, _)| *rate >= 25_000_000), "it comes back");
    assert!(since(&line, 40 * SECOND).iter().all(|(_, _, wait)| *wait <= 250 * MS));
}

/// A line that becomes faster: the rate follows. From 12 to 50 Mbit/s it takes 23.5 rises of a 16th
/// (5.9 s), and 2 s for the slow part around 12 Mbit/s.
#[test]
fn a_line_that_rises() {
    let mut line = Line::new(three(), 3);
    line.busy(20 * SECOND, mbit(12));
    line.busy(15 * SECOND, mbit(50));
    let found = line.seen.iter().find(|(at, rate, _)| *at > 20 * SECOND && *rate >= 45_000_000).expect("it rises");
    assert!(found.0 <= 31 * SECOND, "{} ms", found.0 / MS);
}

/// An idle link: the rate returns to the base and stays there, whatever the line does.
#[test]
fn an_idle_line() {
    let mut line = Line::new(three(), 3);
    line.busy(20 * SECOND, mbit(50));
    line.run(120 * SECOND, |_| 50_000_000, 100_000, |_, _, delay| Some(delay));
    assert_eq!(line.controller.rate(), mbit(20));
    let asked = line.decisions.len();
    line.run(60 * SECOND, |_| 8_000_000, 100_000, |_, _, delay| Some(delay));
    assert_eq!((line.decisions.len(), line.controller.rate()), (asked, mbit(20)));
}

/// One of three reflectors lies, in several ways: the rates are those with honest reflectors.
#[test]
fn a_liar_changes_no_rate() {
    let capacity = |at: Nanos| if at < 20 * SECOND { 30_000_000 } else { 12_000_000 };
    let mut honest = Line::new(three(), 3);
    // All three are probed, but the third does not answer. Whatever it answers below, the rates
    // must be like these.
    honest.run(60 * SECOND, capacity, u64::MAX, |at, _, delay| (at < 2).then_some(delay));
    let lies: [fn(Nanos, i64) -> Option<i64>; 5] = [
        |_, _| Some(1_000_000),
        |_, _| Some(3_000_000_000),
        |at, delay| Some(delay + if (at / SECOND).is_multiple_of(2) { 500_000_000 } else { 0 }),
        |at, delay| Some(delay + at as i64 / 10),
        |at, delay| (at < 30 * SECOND).then_some(delay),
    ];
    for (nth, lie) in lies.into_iter().enumerate() {
        let mut line = Line::new(three(), 3);
        line.run(60 * SECOND, capacity, u64::MAX, |at, now, delay| if at == 2 { lie(now, delay) } else { Some(delay) });
        let last = line.seen.last().expect("some").1;
        let of_honest = honest.seen.last().expect("some").1;
        assert!(last.abs_diff(of_honest) <= 6_000_000, "lie {nth}: {last}, honest {of_honest}");
        assert!(p95(since(&line, 30 * SECOND)) <= 120, "lie {nth}: {} ms", p95(since(&line, 30 * SECOND)));
        let after: u64 = since(&line, 30 * SECOND).iter().map(|(_, rate, _)| *rate).sum();
        assert!(after / since(&line, 30 * SECOND).len() as u64 >= 8_500_000, "lie {nth}");
    }
}

/// A reflector whose answers swing by 0.9 s is dropped, and a notice reports it.
#[test]
fn a_liar_is_dropped() {
    let mut line = Line::new(three(), 3);
    // Its answers always take 200 ms more: that is its usual delay, so it agrees.
    line.run(
        60 * SECOND,
        |_| 30_000_000,
        u64::MAX,
        |at, _, delay| Some(if at == 1 { delay + 200_000_000 } else { delay }),
    );
    let dropped = |line: &mut Line<Adaptive>| {
        let notices = line.controller.notices();
        notices.iter().any(|one| one.what == Noticed::Reflector(1, Health::Dropped))
    };
    assert!(!dropped(&mut line));
    line.run(
        60 * SECOND,
        |_| 30_000_000,
        u64::MAX,
        |at, now, delay| Some(if at == 1 && now / SECOND % 20 >= 5 { delay + 900_000_000 } else { delay }),
    );
    assert!(dropped(&mut line));
}
