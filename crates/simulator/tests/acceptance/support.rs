//! Traffic, runs and verdicts for all parts of the acceptance.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;

use altq_cases::random::Random;
use altq_config::{Language, Link, parse_str};
use altq_engine::spec::Timer;
use altq_engine::units::{Nanos, SECOND};
use altq_simulator::replay::{Arrivals, Observer, Options, Report, run};

/// How much of the acceptance is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A representative share of it, for `cargo test`.
    #[allow(dead_code)]
    Part,
    /// All of it.
    #[allow(dead_code)]
    Whole,
}

impl Scope {
    /// For `Part` every `step`-th element of a list, for `Whole` all elements.
    pub fn thin<T: Clone>(self, list: &[T], step: usize) -> Vec<T> {
        match self {
            Scope::Whole => list.to_vec(),
            Scope::Part => list.iter().step_by(step).cloned().collect(),
        }
    }
}

/// A line of the acceptance with its verdict: the worst of many runs.
#[derive(Clone, Debug)]
pub struct Figure {
    pub name: String,
    pub judged: usize,
    /// The largest ratio of an error to what is allowed; at most 1 passes.
    pub worst: f64,
    /// The run that had it, and its figures.
    pub at: String,
    pub failures: Vec<String>,
}

impl Figure {
    pub fn new(name: impl Into<String>) -> Figure {
        Figure { name: name.into(), judged: 0, worst: 0.0, at: String::new(), failures: Vec::new() }
    }

    /// Compares a measured figure with the expected one.
    pub fn judge(&mut self, what: impl fmt::Display, measured: f64, expected: f64, allowed: f64) {
        self.bound(format!("{what}: {measured:.5} against {expected:.5}"), (measured - expected).abs(), allowed);
    }

    /// Compares an error with what is allowed.
    pub fn bound(&mut self, what: impl fmt::Display, error: f64, allowed: f64) {
        self.judged += 1;
        let ratio = if error <= 0.0 { 0.0 } else { error / allowed };
        let text = format!("{what} (off by {error:.5}, allowed {allowed:.5})");
        if ratio.is_nan() || ratio > 1.0 {
            self.failures.push(text.clone());
        }
        if ratio.is_nan() || ratio >= self.worst {
            (self.worst, self.at) = (ratio, text);
        }
    }

    pub fn passed(&self) -> bool {
        self.failures.is_empty() && self.judged > 0
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.passed() { "PASS" } else { "FAIL" };
        write!(
            f,
            "{verdict}  {}\n      {} figures, worst {:.0} % of what is allowed: {}",
            self.name,
            self.judged,
            self.worst * 100.0,
            self.at
        )?;
        if !self.failures.is_empty() {
            write!(f, "\n      {} failures", self.failures.len())?;
            for failure in self.failures.iter().take(8) {
                write!(f, "\n        {failure}")?;
            }
        }
        Ok(())
    }
}

/// The only link of a native policy.
pub fn link(text: &str) -> Link {
    match parse_str(text, "acceptance.altq", Language::Native) {
        Ok(mut policy) => policy.links.remove(0),
        Err(failed) => panic!("{failed}\n{text}"),
    }
}

/// A source of packets for a class.
#[derive(Clone, Debug)]
pub struct Feed {
    pub class: u32,
    /// Sizes of packets; of several, each packet's is chosen at random.
    pub sizes: Vec<u32>,
    pub pace: Pace,
    /// Spans in which it sends.
    pub active: Vec<(Nanos, Nanos)>,
    /// Time from the start of a span to the first packet.
    pub phase: Nanos,
    /// Time that is added to every arrival.
    pub late: Nanos,
}

#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// A rate in bit/s.
    Rate(f64),
    /// A packet at every multiple of this time.
    Every(Nanos),
    /// This number of packets at once, at these intervals (in ns, not necessarily whole).
    Bursts(u32, f64),
}

impl Feed {
    pub fn new(class: u32, sizes: &[u32], pace: Pace, active: (Nanos, Nanos)) -> Feed {
        Feed { class, sizes: sizes.to_vec(), pace, active: vec![active], phase: 0, late: 0 }
    }
}

/// The arrivals of all feeds, merged by time.
pub fn arrivals(feeds: &[Feed], seed: u64) -> Arrivals {
    let mut list = Arrivals::default();
    let mut random = Random::new(seed, 1);
    let mut id = 0;
    let mut heap = BinaryHeap::new();
    for (at, feed) in feeds.iter().enumerate() {
        for (span, (from, _)) in feed.active.iter().enumerate() {
            heap.push(Reverse((from + feed.phase, at, span, 0u64)));
        }
    }
    // The exact time of the next packet of a feed, by span.
    let mut exact: Vec<Vec<f64>> =
        feeds.iter().map(|f| f.active.iter().map(|(from, _)| (from + f.phase) as f64).collect()).collect();
    while let Some(Reverse((now, at, span, count))) = heap.pop() {
        let feed = &feeds[at];
        if now >= feed.active[span].1 {
            continue;
        }
        let packets = if let Pace::Bursts(n, _) = feed.pace { n } else { 1 };
        let mut size = 0;
        for _ in 0..packets {
            size = feed.sizes[random.below(feed.sizes.len() as u32) as usize];
            assert!(
                list.push(now + feed.late, feed.class, size, id),
                "feeds with `late` must not overtake one another"
            );
            id += 1;
        }
        let next = match feed.pace {
            Pace::Every(span) => now + span,
            Pace::Rate(rate) => {
                exact[at][span] += f64::from(size) * 8e9 / rate;
                exact[at][span] as Nanos
            }
            Pace::Bursts(_, every) => {
                exact[at][span] += every;
                exact[at][span] as Nanos
            }
        };
        heap.push(Reverse((next, at, span, count + 1)));
    }
    list
}

/// What each class got in a window, by class number, in bytes of its own packets; for inner classes
/// the sum over all classes below.
pub fn got(link: &Link, feeds: &[Feed], options: &Options, seed: u64) -> Report {
    replay(link, &arrivals(feeds, seed), options, &mut ())
}

pub fn replay(link: &Link, arrivals: &Arrivals, options: &Options, observer: &mut impl Observer) -> Report {
    run(link, arrivals, options, observer).unwrap_or_else(|error| panic!("{error}"))
}

/// Options with this window and timer.
pub fn window(from: Nanos, to: Nanos, timer: Timer) -> Options {
    Options { from, to: Some(to), timer, ..Options::default() }
}

/// Seconds as nanoseconds.
pub fn s(seconds: f64) -> Nanos {
    (seconds * SECOND as f64) as Nanos
}

/// The tolerance of the acceptance: `relative` of the expected bytes, or two of the class's own
/// packets plus one MTU, whichever is larger.
pub fn allowed(expected_bytes: f64, relative: f64, largest: u32, mtu: u32) -> f64 {
    (expected_bytes * relative).max(f64::from(2 * largest + mtu))
}

/// The mean of these sizes.
pub fn mean(sizes: &[u32]) -> f64 {
    sizes.iter().map(|s| f64::from(*s)).sum::<f64>() / sizes.len() as f64
}

/// A window, after a second of warm-up, in which a class of this rate sends at least 4,000 packets
/// of these sizes. For `Part` a quarter of that; then the tolerance is two packets and the MTU.
pub fn long_enough(bit_s: f64, sizes: &[u32], scope: Scope) -> (Nanos, Nanos) {
    let packets = if scope == Scope::Whole { 4_050.0 } else { 1_000.0 };
    (SECOND, SECOND + s(packets * mean(sizes) * 8.0 / bit_s).max(SECOND / 100))
}
