//! The traffic of the published link-sharing scenarios (Floyd and Jacobson 1995, figures 10 to 13,
//! as measured with ns-2 in docs/reference/cbq.md 22). In each window the division is compared with
//! the ideal one, worked out by hand from the level rule, and with the measured one.

use altq_config::Link;
use altq_engine::spec::Timer;
use altq_engine::units::{Nanos, Rate};
use altq_simulator::replay::{Arrivals, Options};

use super::support::*;

const RATE: f64 = 1.5e6;

/// A window (seconds), its ideal division by flow, and the measured division where altq should be
/// near it.
type Window = (f64, f64, [f64; 4], [f64; 4]);

/// Flat tree: audio .03 and video .32 of priority 1 (served first), data .65 of priority 2.
/// Columns: audio, video, data. By hand: when all three are busy, their shares sum to 1. What data
/// leaves (4-8) goes to both classes of the higher priority in proportion, 3:32. What video leaves
/// (12-18) goes to audio, then the only busy class of the higher priority; what audio leaves
/// (20-24) goes to video.
const WRR: [Window; 7] = [
    (0.0, 4.0, [0.03, 0.32, 0.65, 0.0], [0.031, 0.324, 0.646, 0.0]),
    (4.0, 8.0, [0.03 / 0.35, 0.32 / 0.35, 0.0, 0.0], [0.088, 0.911, 0.0, 0.0]),
    (8.0, 12.0, [0.03, 0.32, 0.65, 0.0], [0.031, 0.323, 0.646, 0.0]),
    (12.0, 18.0, [0.35, 0.0, 0.65, 0.0], [0.351, 0.0, 0.649, 0.0]),
    (18.0, 20.0, [0.03, 0.32, 0.65, 0.0], [0.030, 0.322, 0.647, 0.0]),
    (20.0, 24.0, [0.0, 0.35, 0.65, 0.0], [0.001, 0.357, 0.641, 0.0]),
    (24.0, 28.0, [0.03, 0.32, 0.65, 0.0], [0.031, 0.323, 0.646, 0.0]),
];

/// Two agencies: A .7 with video .3 (flow 1) and data .4 (flow 2), B .3 with video .1 (flow 3) and
/// data .2 (flow 4). By hand: when all are busy, their shares sum to 1. What a leaf leaves goes
/// first to the other leaf of its agency.
const IDEAL: [(f64, f64, [f64; 4]); 10] = [
    (0.0, 4.0, [0.3, 0.4, 0.1, 0.2]),
    (4.0, 8.0, [0.3, 0.4, 0.0, 0.3]),
    (8.0, 12.0, [0.3, 0.4, 0.1, 0.2]),
    (12.0, 16.0, [0.0, 0.7, 0.1, 0.2]),
    (16.0, 20.0, [0.3, 0.4, 0.1, 0.2]),
    (20.0, 24.0, [0.7, 0.0, 0.1, 0.2]),
    (24.0, 28.0, [0.3, 0.4, 0.1, 0.2]),
    (28.0, 32.0, [0.3, 0.4, 0.3, 0.0]),
    (32.0, 36.0, [0.3, 0.4, 0.1, 0.2]),
    (36.0, 40.0, [0.0, 0.7, 0.0, 0.3]),
];

// Measured shares. Some happen to be near a mathematical constant.
#[allow(clippy::approx_constant)]
const FORMAL: [[f64; 4]; 10] = [
    [0.299, 0.398, 0.103, 0.200],
    [0.308, 0.405, 0.000, 0.285],
    [0.300, 0.398, 0.102, 0.200],
    [0.000, 0.687, 0.108, 0.204],
    [0.300, 0.395, 0.103, 0.201],
    [0.646, 0.000, 0.151, 0.203],
    [0.300, 0.396, 0.103, 0.201],
    [0.314, 0.405, 0.280, 0.000],
    [0.299, 0.395, 0.104, 0.203],
    [0.000, 0.698, 0.000, 0.303],
];

#[allow(clippy::approx_constant)]
const ANCESTOR_ONLY: [[f64; 4]; 10] = [
    [0.347, 0.353, 0.104, 0.195],
    [0.318, 0.401, 0.000, 0.282],
    [0.344, 0.358, 0.104, 0.195],
    [0.000, 0.638, 0.164, 0.198],
    [0.348, 0.352, 0.105, 0.195],
    [0.653, 0.000, 0.149, 0.198],
    [0.346, 0.355, 0.106, 0.194],
    [0.320, 0.390, 0.289, 0.002],
    [0.350, 0.349, 0.106, 0.194],
    [0.000, 0.684, 0.000, 0.317],
];

#[allow(clippy::approx_constant)]
const TOP_LEVEL: [[f64; 4]; 10] = [
    [0.310, 0.386, 0.105, 0.200],
    [0.311, 0.402, 0.000, 0.286],
    [0.311, 0.387, 0.103, 0.200],
    [0.000, 0.670, 0.127, 0.203],
    [0.313, 0.383, 0.105, 0.200],
    [0.670, 0.000, 0.126, 0.204],
    [0.312, 0.386, 0.103, 0.200],
    [0.315, 0.398, 0.286, 0.002],
    [0.312, 0.383, 0.104, 0.201],
    [0.000, 0.684, 0.000, 0.315],
];

/// A flow's packets as they arrive at the link, over an access link of 10 Mbit/s and 5 ms.
fn feed(class: u32, size: u32, every_ms: u64, active: &[(f64, f64)]) -> Feed {
    let late = 5_000_000 + u64::from(size) * 800;
    let active = active.iter().map(|(from, to)| (s(*from), s(*to))).collect();
    Feed { active, late, ..Feed::new(class, &[size], Pace::Every(every_ms * 1_000_000), (0, 1)) }
}

/// The arrivals of several flows. The time over the access link is added at the end, and then
/// packets are sorted, because flows with different packet sizes overtake one another.
fn traffic(feeds: &[Feed]) -> Arrivals {
    let mut list: Vec<(Nanos, u32, u32)> = Vec::new();
    for feed in feeds {
        let Pace::Every(every) = feed.pace else { panic!("constant rates only") };
        for (from, to) in &feed.active {
            list.extend(
                (0..)
                    .map(|k| from + k * every)
                    .take_while(|at| at < to)
                    .map(|at| (at + feed.late, feed.class, feed.sizes[0])),
            );
        }
    }
    list.sort_by_key(|(at, ..)| *at);
    let mut arrivals = Arrivals::with_capacity(list.len());
    for (id, (at, class, size)) in list.into_iter().enumerate() {
        assert!(arrivals.push(at, class, size, id as u64));
    }
    arrivals
}

const FLAT: &str = "link l { rate 1500kbit/s scheduler cbq { excess priority }
    class audio { share 3%  priority 7 borrow queue drop_tail { limit 19packets } }
    class video { share 32% priority 7 borrow queue drop_tail { limit 19packets } }
    class data  { share 65% priority 6 borrow queue drop_tail { limit 19packets } } }";

const AGENCIES: &str = "link l { rate 1500kbit/s scheduler cbq { WORDS }
    class A { share 70% borrow
        class vidA  { share 30% priority 7 borrow queue drop_tail { limit 19packets } }
        class dataA { share 40% priority 6 borrow queue drop_tail { limit 19packets } } }
    class B { share 30% borrow
        class vidB  { share 10% priority 7 borrow queue drop_tail { limit 19packets } }
        class dataB { share 20% priority 6 borrow queue drop_tail { limit 19packets } } } }";

/// The tree with which ancestor-only was measured: the root at .97, A at .69, B at .29, so that the
/// ancestors are over their limits at times.
const LOWERED: &str =
    "link l { rate 1455kbit/s overcommit scheduler cbq { estimator classic link-sharing ancestor-only }
    class A { rate 1035kbit/s borrow
        class vidA  { rate 450kbit/s priority 7 borrow queue drop_tail { limit 19packets } }
        class dataA { rate 600kbit/s priority 6 borrow queue drop_tail { limit 19packets } } }
    class B { rate 435kbit/s borrow
        class vidB  { rate 150kbit/s priority 7 borrow queue drop_tail { limit 19packets } }
        class dataB { rate 300kbit/s priority 6 borrow queue drop_tail { limit 19packets } } } }";

fn three() -> Vec<Feed> {
    vec![
        feed(1, 190, 1, &[(0.0, 20.0), (24.0, 28.0)]),
        feed(2, 500, 2, &[(0.0, 12.0), (18.0, 28.0)]),
        feed(3, 1000, 5, &[(0.0, 4.0), (8.0, 28.0)]),
    ]
}

fn four() -> Vec<Feed> {
    vec![
        feed(2, 190, 1, &[(0.0, 12.0), (16.0, 36.0)]),
        feed(3, 1000, 5, &[(0.0, 20.0), (24.0, 40.1)]),
        feed(5, 500, 2, &[(0.0, 4.0), (8.0, 36.0)]),
        feed(6, 1000, 5, &[(0.0, 28.0), (32.0, 40.1)]),
    ]
}

/// Each flow's share of the link in a window, without the window's first half second.
fn shares(link: &Link, list: &Arrivals, classes: &[usize], from: f64, to: f64) -> [f64; 4] {
    let options = Options { wire_rate: Some(Rate::bit_s(RATE as u64)), ..window(s(from + 0.5), s(to), Timer::Exact) };
    let report = replay(link, list, &options, &mut ());
    let mut got = [0.0; 4];
    for (share, class) in got.iter_mut().zip(classes) {
        *share = report.classes[*class].sent_bytes as f64 * 8.0 / (to - from - 0.5) / RATE;
    }
    got
}

pub fn scenarios() -> Vec<Figure> {
    let mut ideal = Figure::new("link-sharing scenarios: every class within 0.02 of the link of the ideal division");
    let mut measured =
        Figure::new("link-sharing scenarios WRR, FORMAL and TL: every class within 0.06 of the measured");
    let flat = link(FLAT);
    let list = traffic(&three());
    for (from, to, hand, ns) in WRR {
        let got = shares(&flat, &list, &[1, 2, 3], from, to);
        for flow in 0..3 {
            ideal.judge(format!("WRR {from}-{to} s, flow {}", flow + 1), got[flow], hand[flow], 0.02);
            measured.judge(format!("WRR {from}-{to} s, flow {}", flow + 1), got[flow], ns[flow], 0.06);
        }
    }
    let agencies = link(&AGENCIES.replace("WORDS", "excess priority"));
    let list = traffic(&four());
    for (at, (from, to, hand)) in IDEAL.into_iter().enumerate() {
        let got = shares(&agencies, &list, &[2, 3, 5, 6], from, to);
        for flow in 0..4 {
            ideal.judge(format!("FORMAL, AO, TL {from}-{to} s, flow {}", flow + 1), got[flow], hand[flow], 0.02);
            for (name, table) in [("FORMAL", FORMAL), ("TL", TOP_LEVEL)] {
                measured.judge(format!("{name} {from}-{to} s, flow {}", flow + 1), got[flow], table[at][flow], 0.06);
            }
        }
    }
    vec![ideal, measured]
}

/// The three link-sharing rules of classic on the traffic of AO, beside exact, the ideal, and what
/// ns-2's ancestor-only measured. This is a table for readers; none of its figures is judged.
pub fn side_by_side() -> String {
    let list = traffic(&four());
    let columns = [
        ("exact", "excess priority"),
        ("formal", "estimator classic link-sharing formal"),
        ("top-level", "estimator classic link-sharing top-level"),
        ("ancestor-only", "estimator classic link-sharing ancestor-only"),
    ];
    let mut out = format!("{:7}{:25}", "window", "ideal");
    columns.iter().for_each(|(name, _)| out += &format!("{name:25}"));
    out += "a.-only, root .97        a.-only, ns-2\n";
    let text = |row: [f64; 4]| format!("{:25}", row.map(|v| format!("{v:.3}")).join(" "));
    let mut links: Vec<Link> = columns.iter().map(|(_, words)| link(&AGENCIES.replace("WORDS", words))).collect();
    links.push(link(LOWERED));
    for (at, (from, to, hand)) in IDEAL.into_iter().enumerate() {
        out += &format!("{:7}{}", format!("{from}-{to}"), text(hand));
        for link in &links {
            out += &text(shares(link, &list, &[2, 3, 5, 6], from, to));
        }
        out += &text(ANCESTOR_ONLY[at]);
        out = out.trim_end().to_string() + "\n";
    }
    out
}
