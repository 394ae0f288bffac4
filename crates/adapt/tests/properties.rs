//! Properties that hold for any answers and any load.

mod support;

use altq_adapt::{Adaptive, Answer, Controller, Decision, LEAST_GAP, Load, Sample, Settings};
use altq_engine::units::{Nanos, Rate};
use proptest::prelude::*;
use support::{MS, mbit, usual};

/// One thing that a controller is told.
#[derive(Clone, Debug)]
enum Told {
    Probe(usize),
    Answer(usize, i64),
    Lost(usize),
    /// Bytes since the last load, and whether packets wait.
    Load(u64, bool),
}

fn told() -> impl Strategy<Value = (Nanos, Told)> {
    // Up to 400 ms between two; now and then much longer.
    let wait = prop_oneof![20 => 0..400 * MS, 1 => 0..30_000 * MS];
    let what = prop_oneof![
        1 => (0..4usize).prop_map(Told::Probe),
        1 => (0..4usize, prop_oneof![3 => -100_000_000..500_000_000i64, 1 => any::<i64>()])
            .prop_map(|(at, delay)| Told::Answer(at, delay)),
        1 => (0..4usize).prop_map(Told::Lost),
        2 => (prop_oneof![3 => 0..2_000_000u64, 1 => any::<u64>()], any::<bool>())
            .prop_map(|(bytes, waits)| Told::Load(bytes, waits)),
    ];
    (wait, what)
}

/// Tells a controller all of it, and returns the decisions.
fn tell(controller: &mut Adaptive, all: &[(Nanos, Told)]) -> Vec<Decision> {
    let (mut now, mut sent_bytes, mut decisions) = (0, 0u64, Vec::new());
    for (wait, what) in all {
        now += wait;
        match what {
            Told::Probe(reflector) => controller.probed(now, *reflector),
            Told::Answer(reflector, delay) => {
                let answer = Answer::After(*delay);
                controller.heard(Sample { at: now, reflector: *reflector, sent: now.saturating_sub(40 * MS), answer });
            }
            Told::Lost(reflector) => {
                let sent = now.saturating_sub(1_000 * MS);
                controller.heard(Sample { at: now, reflector: *reflector, sent, answer: Answer::Lost });
            }
            Told::Load(bytes, backlogged) => {
                // Beyond 2^64 the link begins anew.
                sent_bytes = sent_bytes.wrapping_add(*bytes);
                decisions.extend(controller.decide(Load { at: now, sent_bytes, backlogged: *backlogged }));
            }
        }
    }
    decisions
}

proptest! {
    /// The rate never leaves its bounds, decisions report it truly, and two changes are never
    /// closer together than the least gap.
    #[test]
    fn bounds_and_gaps(
        base in 1..100_000_000u64,
        from in 1..100_000_000u64,
        to in 1..100_000_000u64,
        target in 1..200 * MS,
        all in prop::collection::vec(told(), 0..400),
    ) {
        let settings = Settings::new(Rate::bit_s(base), Rate::bit_s(from), Rate::bit_s(to), target);
        let mut controller = Adaptive::new(settings, 3);
        let (mut rate, mut last) = (controller.rate(), None::<Nanos>);
        prop_assert_eq!(rate, settings.base());
        for decision in tell(&mut controller, &all) {
            prop_assert_eq!(decision.before, rate);
            prop_assert!(decision.after != rate);
            prop_assert!(settings.from() <= decision.after && decision.after <= settings.to());
            if let Some(last) = last {
                prop_assert!(decision.at >= last + LEAST_GAP);
            }
            (rate, last) = (decision.after, Some(decision.at));
        }
        prop_assert_eq!(controller.rate(), rate);
    }

    /// The same samples give the same decisions.
    #[test]
    fn the_same_again(all in prop::collection::vec(told(), 0..300)) {
        let (mut first, mut second) = (Adaptive::new(usual(), 3), Adaptive::new(usual(), 3));
        prop_assert_eq!(tell(&mut first, &all), tell(&mut second, &all));
    }

    /// Two controllers have had the same history. The one whose next answers are later never has
    /// the higher rate.
    #[test]
    fn later_answers_never_raise_the_rate(
        history in prop::collection::vec((30_000_000..130_000_000i64, any::<bool>()), 2..60),
        // All answers take at least 64 ms longer than usual, so that they raise the usual delays by
        // the same amount.
        (one, more) in (200_000_000..900_000_000i64, 0..900_000_000i64),
        waits in any::<bool>(),
    ) {
        let mut sooner = Adaptive::new(usual(), 3);
        let mut now = 0;
        let hear = |controller: &mut Adaptive, now: Nanos, delay: i64| {
            for reflector in 0..3 {
                controller.heard(Sample { at: now, reflector, sent: now, answer: Answer::After(delay) });
            }
        };
        let decide = |controller: &mut Adaptive, now: Nanos, backlogged: bool| {
            controller.decide(Load { at: now, sent_bytes: now / 1000, backlogged });
        };
        for (delay, backlogged) in &history {
            hear(&mut sooner, now, *delay);
            decide(&mut sooner, now, *backlogged);
            now += 300 * MS;
        }
        let mut later = sooner.clone();
        for (controller, delay) in [(&mut sooner, one), (&mut later, one + more)] {
            hear(controller, now, delay);
            hear(controller, now + 250 * MS, delay);
            decide(controller, now + 250 * MS, waits);
        }
        prop_assert!(later.rate() <= sooner.rate(), "{} and {}", later.rate(), sooner.rate());
    }

    /// Two honest reflectors that agree decide alone: whatever a third one says, every decision has
    /// the same time and the same rate.
    #[test]
    fn a_liar_changes_nothing(
        delays in prop::collection::vec((30_000_000..400_000_000i64, any::<bool>()), 2..200),
        lies in prop::collection::vec(prop_oneof![Just(None), any::<i64>().prop_map(Some)], 200),
    ) {
        let run = |lies: Option<&[Option<i64>]>| -> Vec<(Nanos, Rate)> {
            let mut controller = Adaptive::new(usual(), 3);
            let mut rates = Vec::new();
            for (n, (delay, backlogged)) in delays.iter().enumerate() {
                let at = n as u64 * 250 * MS;
                for reflector in 0..2 {
                    controller.heard(Sample { at, reflector, sent: at, answer: Answer::After(*delay) });
                }
                if let Some(lie) = lies.and_then(|lies| lies.get(n)) {
                    let answer = lie.map_or(Answer::Lost, Answer::After);
                    controller.heard(Sample { at, reflector: 2, sent: at, answer });
                }
                let load = Load { at, sent_bytes: at / 500, backlogged: *backlogged };
                rates.extend(controller.decide(load).map(|one| (one.at, one.after)));
            }
            rates
        };
        prop_assert_eq!(run(None), run(Some(lies.as_slice())));
    }
}

/// Without any answer, a link that is used is at its lowest rate within three seconds: 1 s of
/// silence, then cuts by half every 350 ms (300 ms, rounded up to the next call): 60, 30, 15, 7.5,
/// 5 Mbit/s. After a minute of silence the rate is on its way back to the base.
#[test]
fn all_reflectors_are_dead() {
    let settings = Settings::new(mbit(20), mbit(5), mbit(60), 30 * MS);
    let mut controller = Adaptive::new(settings, 3);
    let mut now = 0;
    while now < 10_000 * MS {
        if now.is_multiple_of(250 * MS) {
            for reflector in 0..3 {
                let answer = Answer::After(40_000_000);
                controller.heard(Sample { at: now, reflector, sent: now, answer });
            }
        }
        controller.decide(Load { at: now, sent_bytes: now / 100, backlogged: true });
        now += 50 * MS;
    }
    assert_eq!(controller.rate(), mbit(60));
    while now < 13_000 * MS {
        controller.decide(Load { at: now, sent_bytes: now / 100, backlogged: true });
        now += 50 * MS;
    }
    assert_eq!(controller.rate(), mbit(5));
    while now < 70_000 * MS {
        controller.decide(Load { at: now, sent_bytes: now / 100, backlogged: true });
        now += 50 * MS;
    }
    // The rate has risen by at least 49 steps: 5 · (65/64)^49 = 10.7.
    assert!(controller.rate() >= mbit(10) && controller.rate() <= mbit(20), "{}", controller.rate());
}
