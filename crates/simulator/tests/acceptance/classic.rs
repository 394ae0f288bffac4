//! `estimator classic` compared with the compiled BSD code: every figure of docs/reference/altq.md
//! 17 within 2 %.

use altq_cases::limits::tick;
use altq_engine::spec::Timer;
use altq_engine::units::SECOND;

use super::support::*;

/// In Mbit/s: the target rate; then the measured rates when the engine is polled (100 Hz), refilled
/// (100 Hz, 1000 Hz, exact timers), and refilled with the regulator (100 Hz, 1000 Hz).
const TABLE: [(f64, [f64; 6]); 7] = [
    (5.0, [4.95, 4.60, 4.92, 4.94, 4.80, 4.97]),
    (10.0, [9.89, 8.40, 9.77, 9.91, 9.20, 9.88]),
    (20.0, [20.0, 10.8, 19.8, 20.0, 17.0, 19.8]),
    (40.0, [40.0, 10.8, 38.6, 40.4, 21.6, 40.0]),
    (60.0, [60.6, 10.8, 54.0, 61.1, 21.6, 58.5]),
    (80.0, [80.3, 10.8, 54.0, 80.8, 21.6, 72.0]),
    (95.0, [95.9, 15.0, 60.0, 97.2, 30.0, 75.0]),
];

const COLUMNS: [(&str, bool, Option<u64>, bool); 6] = [
    ("polled 100 Hz", true, Some(100), false),
    ("refill 100 Hz", false, Some(100), false),
    ("refill 1000 Hz", false, Some(1000), false),
    ("refill exact", false, None, false),
    ("refill + TBR 100 Hz", false, Some(100), true),
    ("refill + TBR 1000 Hz", false, Some(1000), true),
];

fn timer(hz: Option<u64>) -> Timer {
    hz.map_or(Timer::Exact, |hz| tick(hz).unwrap_or_else(|message| panic!("{message}")))
}

/// Polled: packets of 1500 bytes at 100 Mbit/s. Refilled: half a second's worth of 1.3008 times the
/// target at once, again and again.
fn feed(class: u32, target: f64, polled: bool) -> Feed {
    let pace = if polled {
        Pace::Rate(100e6)
    } else {
        let rate = 1.3008 * target * 1e6;
        let n = (rate * 0.5 / 12_000.0).round();
        Pace::Bursts(n as u32, n * 12_000.0 / rate * 1e9)
    };
    Feed::new(class, &[1500], pace, (0, 11 * SECOND))
}

/// Classes with these rates, and an idle one. Targets of 80 and 20 leave the idle class no rate,
/// but it counts in the weights of the rounds.
fn policy(targets: &[f64], polled: bool, regulator: bool) -> altq_config::Link {
    let queue = if polled { "50packets" } else { "65000packets" };
    let regulator = if regulator { "regulator altq" } else { "" };
    let classes: String = targets
        .iter()
        .enumerate()
        .map(|(at, mbit)| format!("class c{at} {{ rate {}bit/s queue drop_head {{ limit {queue} }} }}\n", mbit * 1e6))
        .collect();
    let left = if targets.iter().sum::<f64>() < 100.0 { "1Mbit/s" } else { "0bit/s" };
    link(&format!(
        "link l {{ rate 100Mbit/s {regulator} scheduler cbq {{ estimator classic }} {classes} \
         class def {{ rate {left} default }} }}"
    ))
}

pub fn table(scope: Scope) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (at, (name, polled, hz, regulator)) in COLUMNS.into_iter().enumerate() {
        let mut figure = Figure::new(format!("classic, one class without borrowing, {name}: 2 %"));
        for (target, row) in scope.thin(&TABLE, 3) {
            let link = policy(&[target], polled, regulator);
            let report = got(&link, &[feed(1, target, polled)], &window(SECOND, 11 * SECOND, timer(hz)), 1);
            let measured = report.classes[1].rate_bit_s as f64 / 1e6;
            figure.judge(format!("{target} Mbit/s"), measured, row[at], row[at] * 0.02);
        }
        figures.push(figure);
    }
    let mut figure = Figure::new("classic, 80/20 without borrowing, both fed: 2 %");
    for (polled, hz, expected) in [
        (true, Some(100), [79.3, 19.8]),
        (true, Some(1000), [79.3, 19.8]),
        (true, None, [79.3, 19.8]),
        (false, Some(100), [56.6, 15.2]),
        (false, Some(1000), [75.9, 19.5]),
        (false, None, [79.4, 19.9]),
    ] {
        let link = policy(&[80.0, 20.0], polled, false);
        let feeds = [feed(1, 80.0, polled), feed(2, 20.0, polled)];
        let report = got(&link, &feeds, &window(SECOND, 11 * SECOND, timer(hz)), 1);
        for (c, expected) in expected.into_iter().enumerate() {
            let measured = report.classes[c + 1].rate_bit_s as f64 / 1e6;
            let how = if polled { "polled" } else { "refill" };
            figure.judge(format!("{how}, timer {hz:?}, class {c}"), measured, expected, expected * 0.02);
        }
    }
    figures.push(figure);
    figures
}
