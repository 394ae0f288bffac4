//! Classic CBQ shows the defects measured in ALTQ's CBQ: docs/reference/altq.md 2.9, 2.10 and 14.

use crate::support::wire;

use altq_engine::Engine;
use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::spec::{ClassSpec, LinkSpec, QueueSpec, SchedulerSpec, Timer};
use altq_engine::units::{Nanos, Rate, SECOND};
use wire::{Arrival, Caller, Departure};

const HZ100: Timer = Timer::Tick(SECOND / 100);
const HZ1000: Timer = Timer::Tick(SECOND / 1000);
const END: Nanos = 11 * SECOND;

/// A class with its parent, its rate in Mbit/s, and more words.
fn class(parent: u32, mbit: f64, words: &[(&'static str, Value)]) -> ClassSpec {
    let mut settings = Settings::new().with("rate", Value::Rate(Rate::bit_s((mbit * 1e6) as u64)));
    for &(word, value) in words {
        settings.set(word, value);
    }
    let queue = QueueSpec::new("drop_head", Limit::Packets(50));
    ClassSpec { parent, settings, queue: Some(queue), scheduler: None }
}

const BORROW: (&str, Value) = ("borrow", Value::Flag);

fn priority(n: u64) -> (&'static str, Value) {
    ("priority", Value::Int(n))
}

/// How packets arrive. Polled: one by one, at the wire's rate. Refill: in bursts of half a second's
/// worth, so that between bursts only timers make the engine send.
#[derive(Clone, Copy)]
enum Feed {
    Polled,
    Refill,
}

#[derive(Clone, Copy)]
struct Case {
    /// The rate of the root and that of the wire, in Mbit/s.
    link: f64,
    wire: f64,
    timer: Timer,
    efficient: bool,
    /// By how many nanoseconds the packets of class 2 arrive later than those of class 1.
    offset: Nanos,
    end: Nanos,
}

impl Case {
    fn new(link: f64, timer: Timer) -> Case {
        Case { link, wire: link, timer, efficient: false, offset: 0, end: END }
    }

    /// Runs these classes. `fed` lists those that get packets: the class, the packets' bytes, and
    /// for `Refill` a rate in Mbit/s, of which they get 1.3008 times as much.
    fn run(&self, mut classes: Vec<ClassSpec>, feed: Feed, fed: &[(u32, u32, f64)]) -> Vec<Departure> {
        if let Feed::Refill = feed {
            for class in &mut classes {
                class.queue.as_mut().unwrap().limit = Limit::Packets(65_000);
            }
        }
        let mut all = vec![ClassSpec::root()];
        all.extend(classes);
        let mut settings = Settings::new().with("estimator", Value::Choice("classic"));
        if self.efficient {
            settings.set("efficient", Value::Flag);
        }
        let bit_s = |mbit: f64| Rate::bit_s((mbit * 1e6) as u64);
        let mut engine = Engine::new(&LinkSpec {
            timer: self.timer,
            ..LinkSpec::new(bit_s(self.link), SchedulerSpec { name: "cbq", settings }, all)
        })
        .unwrap();
        let mut arrivals = Vec::new();
        for &(class, bytes, mbit) in fed {
            let bits = f64::from(bytes) * 8.0;
            match feed {
                Feed::Polled => {
                    let every = bits / (self.wire * 1e6) * 1e9;
                    arrivals.extend((0..(self.end as f64 / every) as u64).map(|n| Arrival {
                        at: (n as f64 * every) as u64,
                        class,
                        bytes,
                    }));
                }
                Feed::Refill => {
                    let rate = 1.3008 * mbit * 1e6;
                    let n = (rate * 0.5 / bits).round() as usize;
                    let every = n as f64 * bits / rate * 1e9;
                    for burst in 0..(self.end as f64 / every).ceil() as u64 {
                        arrivals.extend(std::iter::repeat_n(
                            Arrival { at: (burst as f64 * every) as u64, class, bytes },
                            n,
                        ));
                    }
                }
            }
        }
        for arrival in arrivals.iter_mut().filter(|a| a.class == 2) {
            arrival.at += self.offset;
        }
        arrivals.sort_by_key(|a| a.at);
        wire::run(&mut engine, Caller { rate: bit_s(self.wire), timer: self.timer, ring: 1 }, self.end, arrivals)
    }
}

fn mbit(departures: &[Departure], class: u32) -> f64 {
    wire::rate_of(departures, class, SECOND, END) / 1e6
}

/// Prints a figure beside the published one, and checks that it is within 2 %.
fn expect(what: &str, got: f64, published: f64) {
    let error = got / published - 1.0;
    println!("{what}: {got:.2}, published {published}, {:+.1} %", error * 100.0);
    assert!(error.abs() <= 0.02, "{what}: {got} is not {published}");
}

/// The rate of a class of `mbit_s` Mbit/s on a link of 100 Mbit/s, beside an idle class of 1
/// Mbit/s.
fn alone(mbit_s: f64, words: &[(&'static str, Value)], timer: Timer, feed: Feed, bytes: u32) -> f64 {
    let classes = vec![class(0, mbit_s, words), class(0, 1.0, &[])];
    mbit(&Case::new(100.0, timer).run(classes, feed, &[(1, bytes, mbit_s)]), 1)
}

#[test]
fn ceilings_of_coarse_timers() {
    // 2.9: at 100 Hz every share from 15 to 85 % gets 18 packets in two ticks, 10.8 Mbit/s. At 1000
    // Hz, shares above 54 Mbit/s get 54.
    for share in [15.0, 33.0, 50.0, 70.0, 85.0] {
        expect(&format!("{share} at 100 Hz"), alone(share, &[], HZ100, Feed::Refill, 1500), 10.8);
    }
    expect("90 at 100 Hz", alone(90.0, &[], HZ100, Feed::Refill, 1500), 12.0);
    expect("95 at 100 Hz", alone(95.0, &[], HZ100, Feed::Refill, 1500), 15.0);
    expect("85 at 1000 Hz", alone(85.0, &[], HZ1000, Feed::Refill, 1500), 54.0);
    // 14.1: a larger maxburst helps, but not beyond 32.
    for maxburst in [32, 64, 128] {
        let got = alone(20.0, &[("maxburst", Value::Int(maxburst))], HZ100, Feed::Refill, 1500);
        expect(&format!("maxburst {maxburst}"), got, 14.7);
    }
}

#[test]
fn minburst_costs_throughput() {
    // 14.2, with an exact timer.
    let with = |minburst, maxburst| {
        let words = [("minburst", Value::Int(minburst)), ("maxburst", Value::Int(maxburst))];
        alone(20.0, &words, Timer::Exact, Feed::Refill, 1500)
    };
    expect("minburst 8", with(8, 16), 18.4);
    expect("minburst 32", with(32, 32), 13.0);
    expect("minburst 32, capped at maxburst 16", with(32, 16), 16.5);
}

#[test]
fn small_packets() {
    // 14.3
    expect("64 bytes, saturated", alone(10.0, &[], HZ100, Feed::Polled, 64), 6.6);
    expect("64 bytes, timer only", alone(10.0, &[], HZ100, Feed::Refill, 64), 2.2);
    expect("200 bytes", alone(10.0, &[], HZ100, Feed::Polled, 200), 8.5);
    expect("576 bytes", alone(10.0, &[], HZ100, Feed::Polled, 576), 9.5);
    let declared = [("packetsize", Value::Bytes(64))];
    expect("declared 64, good clock", alone(10.0, &declared, Timer::Exact, Feed::Refill, 1500), 10.0);
    expect("declared 64, 100 Hz", alone(10.0, &declared, HZ100, Feed::Refill, 1500), 1.2);
}

#[test]
fn high_rates() {
    // 14.4: a class of half of the link's rate.
    for (link, published) in [(1000.0, 533.0), (2500.0, 1600.0), (5000.0, 3000.0)] {
        let case = Case { end: 3 * SECOND, ..Case::new(link, Timer::Exact) };
        let d = case.run(vec![class(0, link / 2.0, &[]), class(0, 1.0, &[])], Feed::Polled, &[(1, 1500, 0.0)]);
        expect(&format!("half of {link} Mbit/s"), wire::rate_of(&d, 1, SECOND, 3 * SECOND) / 1e6, published);
    }
}

#[test]
fn excess_goes_by_rounds_and_priority() {
    // 14.5. The source does not state the rate of the idle third class, on which the weights of the
    // round robin depend. With 5 % the results are as published.
    let d = Case::new(100.0, HZ100).run(
        vec![class(0, 10.0, &[BORROW]), class(0, 58.0, &[BORROW]), class(0, 5.0, &[])],
        Feed::Polled,
        &[(1, 1500, 0.0), (2, 1500, 0.0)],
    );
    expect("10 beside 58", mbit(&d, 1), 17.4);
    expect("58 beside 10", mbit(&d, 2), 82.6);
    // 14.7: a higher priority takes the excess and no more. Packets of the two classes arrive
    // alternately.
    let case = Case { offset: 60_000, ..Case::new(100.0, HZ100) };
    let classes = vec![class(0, 10.0, &[BORROW, priority(7)]), class(0, 80.0, &[BORROW, priority(0)])];
    let d = case.run(classes, Feed::Polled, &[(1, 1500, 0.0), (2, 1500, 0.0)]);
    expect("10 of priority 7", mbit(&d, 1), 19.7);
    expect("80 of priority 0", mbit(&d, 2), 80.3);
}

#[test]
fn agencies_hold() {
    // 14.6: with continuous arrivals, each agency's total is within 1 % of its rate.
    for timer in [Timer::Exact, HZ1000, HZ100] {
        let leaves = [(1, 60.0), (1, 10.0), (2, 20.0), (2, 10.0)];
        let mut classes = vec![class(0, 70.0, &[BORROW]), class(0, 30.0, &[BORROW])];
        classes.extend(leaves.map(|(parent, share)| class(parent, share, &[BORROW])));
        let d = Case::new(100.0, timer).run(classes, Feed::Polled, &[3, 4, 5, 6].map(|c| (c, 1500, 0.0)));
        let totals = [mbit(&d, 3) + mbit(&d, 4), mbit(&d, 5) + mbit(&d, 6)];
        println!("agencies {timer:?}: {totals:.2?}");
        assert!((totals[0] - 70.0).abs() <= 0.7 && (totals[1] - 30.0).abs() <= 0.3);
    }
}

#[test]
fn efficient_makes_limits_moot() {
    // 14.8 and 2.10: with a root of 50 Mbit/s on a wire of 100, `efficient` lets classes exceed the
    // root's rate.
    let classes = || vec![class(0, 10.0, &[BORROW]), class(0, 39.0, &[BORROW]), class(0, 1.0, &[])];
    let case = Case { wire: 100.0, ..Case::new(50.0, HZ1000) };
    let fed = [(1, 1500, 0.0), (2, 1500, 0.0)];
    let d = Case { efficient: true, ..case }.run(classes(), Feed::Polled, &fed);
    expect("10, efficient", mbit(&d, 1), 48.0);
    expect("39, efficient", mbit(&d, 2), 52.0);
    let d = case.run(classes(), Feed::Polled, &fed);
    expect("without, in all", mbit(&d, 1) + mbit(&d, 2), 50.0);
}
