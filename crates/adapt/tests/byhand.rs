//! Decisions whose figures are worked out by hand.

mod support;

use altq_adapt::{Adaptive, Answer, Controller, Decision, Health, Load, Noticed, Reason, Sample, Settings};
use altq_engine::units::{Nanos, Rate};
use support::{MS, mbit, usual};

/// Tells a controller of `reflectors` that all answers take `delay` ms, every 250 ms from `from` to
/// `to` ms, and that the link sends `sent` all the time. Returns the decisions.
fn told(
    controller: &mut Adaptive,
    reflectors: usize,
    (from, to): (u64, u64),
    delay: i64,
    (sent, backlogged): (Rate, bool),
) -> Vec<Decision> {
    let mut decisions = Vec::new();
    for at in (from..to).step_by(50) {
        if at % 250 == 0 {
            for reflector in 0..reflectors {
                let answer = Answer::After(delay * 1_000_000);
                controller.heard(Sample { at: at * MS, reflector, sent: at * MS, answer });
            }
        }
        let sent_bytes = sent.as_bit_s() / 8 * at / 1000;
        decisions.extend(controller.decide(Load { at: at * MS, sent_bytes, backlogged }));
    }
    decisions
}

fn rates(decisions: &[Decision]) -> Vec<(Nanos, u64, Reason)> {
    decisions.iter().map(|one| (one.at / MS, one.after.as_bit_s() / 1000, one.reason)).collect()
}

/// 18 Mbit/s and no backlog: less than three quarters of any rate above 24 Mbit/s, so such a link
/// counts as not used.
const BELOW: (Rate, bool) = (Rate::mbit_s(18), false);

#[test]
fn up_by_a_sixteenth_while_used_and_calm() {
    let mut controller = Adaptive::new(usual(), 3);
    // Each reflector has answered twice at 250 ms. 20 · 17/16 = 21.25; 21.25 · 17/16 = 22.578125,
    // in whole kbit/s.
    let decisions = told(&mut controller, 3, (0, 600), 40, (mbit(20), true));
    assert_eq!(rates(&decisions), [(250, 21_250, Reason::Used), (500, 22_578, Reason::Used)]);
}

#[test]
fn the_first_cut() {
    // At the base of 20 Mbit/s a packet of 1500 bytes takes 0.6 ms, so 30.6 ms are allowed.
    let settings = Settings::new(mbit(20), mbit(5), mbit(20), 30 * MS);
    let mut controller = Adaptive::new(settings, 3);
    assert!(told(&mut controller, 3, (0, 2_000), 40, (mbit(20), true)).is_empty(), "it cannot rise above 20");
    // The second late answer of each reflector comes at 2,250 ms. Both late answers have raised the
    // usual delay by a 256th of 64 ms each, to 40.5 ms. So the smaller of the two is 140 - 40.5 =
    // 99.5 ms longer than usual, which exceeds what is allowed by 68.9 ms. The cut is 100 + 229
    // thousandths of 20 Mbit/s.
    let decisions = told(&mut controller, 3, (2_000, 2_300), 140, (mbit(20), true));
    assert_eq!(rates(&decisions), [(2_250, 13_420, Reason::Late)]);
    let first = decisions[0];
    assert_eq!((first.excess, first.late, first.counted), (99_500_000, 3, 3));
    assert_eq!((first.before, first.sent), (mbit(20), mbit(20)));
}

#[test]
fn a_delay_that_does_not_fall_is_cut_by_half_and_half_again() {
    let mut controller = Adaptive::new(usual(), 3);
    told(&mut controller, 3, (0, 250), 40, (mbit(20), true));
    // 2 s are far beyond the target, so each cut is by half: first of the 20 Mbit/s that are sent,
    // then, 300 ms later, of the rate, which is lower than what is sent by now. That is the lowest
    // rate. At 250 ms the smaller of each reflector's two answers is still 40 ms, so the rate rises
    // once more.
    let decisions = told(&mut controller, 3, (250, 2_000), 2_040, (mbit(20), true));
    let expected = [(250, 21_250, Reason::Used), (500, 10_000, Reason::Late), (800, 5_000, Reason::Late)];
    assert_eq!(rates(&decisions), expected);
}

#[test]
fn a_queue_that_drains_needs_no_second_cut() {
    let (mut controller, busy) = (Adaptive::new(usual(), 3), (mbit(20), true));
    told(&mut controller, 3, (0, 250), 40, busy);
    let decisions = told(&mut controller, 3, (250, 750), 140, busy);
    // The cut is as in `the_first_cut`, of the 20 Mbit/s that are sent. 12,000 bits at 21.25 Mbit/s
    // take 0.56 ms.
    assert_eq!(rates(&decisions), [(250, 21_250, Reason::Used), (500, 13_420, Reason::Late)]);
    // 300 ms after the cut the last answers take 59 ms longer than usual, no longer 99 ms: the
    // queue drains.
    assert!(told(&mut controller, 3, (750, 1_000), 100, busy).is_empty());
    // 19 ms are less than the target, but more than half of it: nothing changes.
    assert!(told(&mut controller, 3, (1_000, 1_250), 60, busy).is_empty());
    // Answers are calm, so the rate rises by a 16th: 13.42 · 17/16 = 14.25875.
    assert_eq!(rates(&told(&mut controller, 3, (1_250, 1_300), 40, busy)), [(1_250, 14_258, Reason::Used)]);
}

#[test]
fn slowly_around_the_rate_at_which_answers_became_late() {
    let (mut controller, busy) = (Adaptive::new(usual(), 3), (mbit(20), true));
    told(&mut controller, 3, (0, 250), 40, busy);
    told(&mut controller, 3, (250, 750), 140, busy);
    let decisions = told(&mut controller, 3, (750, 4_300), 40, busy);
    // 13,420 · 17/16, and so on, rounded down each time, up to 15/16 of 20 Mbit/s; from there by a
    // 64th. Answers are calm from 750 ms on, 250 ms after the cut.
    let expected = [14_258, 15_149, 16_095, 17_100, 18_168, 18_750, 19_042, 19_339, 19_641, 19_947];
    let found: Vec<u64> = rates(&decisions).iter().map(|one| one.1).take(expected.len()).collect();
    assert_eq!(found, expected);
    assert_eq!(decisions[0].at, 750 * MS);
}

#[test]
fn an_unused_link_goes_back_to_its_base_by_a_64th_a_second() {
    let mut controller = Adaptive::new(usual(), 3);
    told(&mut controller, 3, (0, 1_050), 40, (mbit(20), true));
    let top = controller.rate();
    // 250, 500, 750 and 1000 ms: 20 · (17/16)^4, rounded down to kbit/s each time: 21,250, 22,578,
    // 23,989, 25,488.
    assert_eq!(top, Rate::kbit_s(25_488));
    let decisions = told(&mut controller, 3, (1_050, 3_100), 40, BELOW);
    // A second after the last change, and again: 25,488 - 398.25 and 25,089 - 392.016, rounded
    // down.
    assert_eq!(rates(&decisions), [(2_000, 25_089, Reason::Unused), (3_000, 24_696, Reason::Unused)]);
}

#[test]
fn a_delay_that_is_not_the_links_own_changes_nothing() {
    let mut controller = Adaptive::new(usual(), 3);
    let little = (mbit(4), false);
    told(&mut controller, 3, (0, 1_000), 40, little);
    // Less than the lowest rate is sent, so no rate within the bounds would help. The rate is the
    // base already.
    assert!(told(&mut controller, 3, (1_000, 10_000), 240, little).is_empty());
    assert_eq!(controller.rate(), mbit(20));
}

#[test]
fn a_longer_route_is_accepted_while_the_link_is_quiet() {
    let mut controller = Adaptive::new(usual(), 3);
    let (quiet, busy) = ((mbit(1), false), (mbit(20), true));
    told(&mut controller, 3, (0, 1_000), 40, quiet);
    // The route becomes 100 ms longer. 4 times a second an eighth of the difference is added, of
    // which at most 64 ms count. After 20 steps (5 s) the difference is 8.1 ms: 5 steps of 8 ms
    // bring it to 60 ms, and 15 steps of an eighth to 60 · (7/8)^15.
    told(&mut controller, 3, (1_000, 6_000), 140, quiet);
    let decisions = told(&mut controller, 3, (6_000, 7_000), 140, busy);
    assert!(!decisions.is_empty() && decisions.iter().all(|one| one.reason == Reason::Used), "{decisions:?}");
}

#[test]
fn nobody_answers() {
    let mut controller = Adaptive::new(usual(), 2);
    told(&mut controller, 2, (0, 550), 40, (mbit(20), true));
    let rate = controller.rate();
    assert_eq!(rate, Rate::kbit_s(22_578));
    // The last answers came at 500 ms. The rate rises as long as they are at most half a second
    // old. After a second they do not count, and the link is used, so the rate is cut: to half of
    // the 20 Mbit/s that are sent, then to half of the rate.
    let decisions = told(&mut controller, 0, (550, 10_450), 0, (mbit(20), true));
    let (used, silent) = (Reason::Used, Reason::Silent);
    let expected = [(750, 23_989, used), (1_000, 25_488, used), (1_500, 10_000, silent), (1_800, 5_000, silent)];
    assert_eq!(rates(&decisions), expected);
    let notices = controller.notices();
    assert!(notices.iter().any(|one| one.what == Noticed::Silence && one.at == 1_500 * MS), "{notices:?}");
    // After ten seconds the rate returns towards the base: 5 + 5/64 = 5.078125.
    let blind = told(&mut controller, 0, (10_450, 11_000), 0, (mbit(20), true));
    assert_eq!(rates(&blind), [(10_500, 5_078, Reason::Blind)]);
    // Each second a 64th: after 120 s it would be 5 · (65/64)^120 = 32, so the base is reached.
    let blind = told(&mut controller, 0, (11_000, 130_000), 0, (mbit(20), true));
    assert!(blind.iter().all(|one| one.reason == Reason::Blind));
    assert_eq!(controller.rate(), mbit(20));
}

#[test]
fn an_unused_link_without_answers_keeps_its_rate_for_ten_seconds() {
    let mut controller = Adaptive::new(usual(), 2);
    told(&mut controller, 2, (0, 550), 40, (mbit(20), true));
    assert!(told(&mut controller, 0, (550, 10_450), 0, (Rate::ZERO, false)).is_empty());
    assert_eq!(controller.rate(), Rate::kbit_s(22_578));
}

#[test]
fn after_a_long_silence_it_begins_at_the_base_at_most() {
    let mut controller = Adaptive::new(usual(), 1);
    told(&mut controller, 1, (0, 1_050), 40, (mbit(20), true));
    assert_eq!(controller.rate(), Rate::kbit_s(25_488));
    // The process is suspended for a minute: no calls come. Two answers are needed after that,
    // those of 61.25 and 61.5 s.
    let decisions = told(&mut controller, 1, (61_000, 61_550), 40, BELOW);
    assert_eq!(rates(&decisions), [(61_500, 20_000, Reason::Again)]);
}

#[test]
fn a_reflector_that_disagrees_is_dropped_and_taken_back() {
    let mut controller = Adaptive::new(usual(), 3);
    let mut health = Vec::new();
    let mut step = |controller: &mut Adaptive, at: u64, odd: i64| {
        for reflector in 0..3 {
            let delay = if reflector == 2 { odd } else { 40 };
            let answer = Answer::After(delay * 1_000_000);
            controller.heard(Sample { at: at * MS, reflector, sent: at * MS, answer });
        }
        controller.decide(Load { at: at * MS, sent_bytes: 1_250 * at, backlogged: false });
        health.extend(controller.notices().into_iter().filter_map(|notice| match notice.what {
            Noticed::Reflector(2, health) => Some((notice.at / MS, health)),
            _ => None,
        }));
    };
    (0..4).for_each(|n| step(&mut controller, n * 250, 40));
    // The late answer of 1,000 ms alone does not change its vote. It disagrees at 1,250, 1,500, …,
    // and for the 20th time at 6,000 ms.
    (4..40).for_each(|n| step(&mut controller, n * 250, 540));
    assert_eq!(controller.rate(), mbit(20));
    // Up to 9,750 ms it has disagreed 35 times. So it must agree 35 times, from 10,000 ms on.
    (40..100).for_each(|n| step(&mut controller, n * 250, 40));
    assert_eq!(health, [(0, Health::Good), (6_000, Health::Dropped), (18_500, Health::Good)]);
}

#[test]
fn bounds_that_do_not_fit_are_moved() {
    let settings = Settings::new(mbit(1), mbit(5), mbit(3), 0);
    assert_eq!([settings.base(), settings.from(), settings.to()], [mbit(5); 3]);
    assert_eq!((settings.target(), Settings::new(Rate::ZERO, Rate::ZERO, Rate::ZERO, 1).from()), (1, Rate::bit_s(1)));
}
