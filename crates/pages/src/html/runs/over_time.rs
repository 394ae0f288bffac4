//! Rates, waits, drops and marks over time, in panels one above another.

use altq_cases::result::{CaseResult, RunSeries, SeriesRow};
use maud::{Markup, html};

use super::{By, Runs, column};
use crate::html::text::time;
use crate::plot::{Axis, Chart, Mark, Panel, Side, Style, Unit};

/// The largest values of all runs, so that all charts have the same ranges.
struct Ranges {
    /// The highest rate, in bit/s.
    rate: f64,
    /// The most packets dropped per second.
    drops: f64,
    /// The most packets marked per second.
    marks: f64,
    /// The shortest delay above 0, in ns.
    shortest: u64,
    /// The longest delay, in ns.
    longest: u64,
    /// The end of the longest run, in s.
    end: f64,
}

impl Ranges {
    fn new(runs: Runs<'_>, result: &CaseResult) -> Ranges {
        let most = |list: &dyn Fn(&SeriesRow) -> &[u64]| {
            let of_run = |run: &&RunSeries| {
                let most = runs.of(run).iter().flat_map(list).max().copied().unwrap_or(0);
                most as f64 / (run.bin_ns as f64 / 1e9)
            };
            runs.runs.iter().map(of_run).fold(0.0, f64::max)
        };
        let delays = || runs.all().flat_map(|row| row.delay_p50_ns.iter().chain(&row.delay_p99_ns)).flatten().copied();
        Ranges {
            rate: most(&|row| &row.bytes) * 8.0,
            drops: most(&|row| &row.drops),
            marks: most(&|row| &row.marks),
            shortest: delays().filter(|delay| *delay > 0).min().unwrap_or(1),
            longest: delays().max().unwrap_or(0),
            end: result.duration_ns as f64 / 1e9,
        }
    }

    /// True if delays span more than two decades; they then have a logarithmic axis.
    fn log(&self) -> bool {
        self.longest / self.shortest.max(1) > 200
    }
}

/// The charts of all runs.
pub fn section(runs: Runs<'_>, result: &CaseResult) -> Markup {
    let (names, ranges) = (runs.names(), Ranges::new(runs, result));
    let draw = |run, width| chart(run, runs, &names, &ranges, width);
    let bin = runs.runs.first().map_or(String::new(), |run| time(run.bin_ns as f64));
    let (bytes, delay) = match runs.by {
        By::Class => ("Bytes that a class handed over", "Wait of packets in the link"),
        By::Flow => ("Bytes that arrived", "Time from source to destination, or the round trip of requests"),
    };
    html! {
        (runs.legend())
        (runs.charts(&draw))
        p.quiet.small {
            (bytes) ", in bins of " (bin) ". " (delay) ": the median, and fainter the 99th percentile of each bin."
            @if ranges.marks > 0.0 { " Marks: congestion experienced (ECN)." }
        } "\n"
    }
}

/// The bins of a run, in seconds.
struct Bins {
    width: f64,
    end: f64,
}

impl Bins {
    fn start(&self, n: usize) -> f64 {
        n as f64 * self.width
    }

    fn middle(&self, n: usize) -> f64 {
        (n as f64 + 0.5) * self.width
    }

    /// The count of a bin as a rate. The last bin may be shorter than the others.
    fn rate(&self, n: usize, count: u64) -> f64 {
        count as f64 / (self.end - self.start(n)).min(self.width).max(f64::MIN_POSITIVE)
    }

    /// Rates as steps, each as wide as its bin.
    fn steps(&self, style: Style, counts: &[u64], unit: f64) -> Mark {
        let rates = counts.iter().enumerate().map(|(n, count)| (self.start(n), self.rate(n, *count) * unit));
        let mut points: Vec<(f64, f64)> = rates.collect();
        points.extend(points.last().map(|(_, last)| (self.end, *last)));
        Mark::Steps(style, points)
    }

    /// Rates as needles, which are visible even in few bins; or as steps, if needles of several
    /// rows would hide one another.
    fn needles_or_steps(&self, style: Style, counts: &[u64], rows: usize) -> Mark {
        if rows > 1 && !counts.is_empty() {
            return self.steps(style, counts, 1.0);
        }
        Mark::Needles(
            style,
            counts.iter().enumerate().map(|(n, count)| (self.middle(n), self.rate(n, *count))).collect(),
        )
    }

    /// Delays in seconds. Values below `least`, also in seconds, are drawn at it.
    fn line(&self, style: Style, delays: &[Option<u64>], least: f64) -> Mark {
        let seconds = |delay: &Option<u64>| delay.map_or(f64::NAN, |delay| (delay as f64 / 1e9).max(least));
        Mark::Line(style, delays.iter().enumerate().map(|(n, delay)| (self.middle(n), seconds(delay))).collect())
    }
}

fn chart(run: &RunSeries, runs: Runs<'_>, names: &[&str], ranges: &Ranges, width: f64) -> Chart {
    let bins = Bins { width: run.bin_ns as f64 / 1e9, end: ranges.end };
    let rows = runs.of(run);
    let (shortest, longest) = (ranges.shortest as f64 / 1e9, ranges.longest as f64 / 1e9);
    // A logarithmic axis has no 0, so delays of 0 are drawn at its bottom.
    let least = if ranges.log() { shortest } else { 0.0 };
    let dropping = rows.iter().filter(|row| !row.drops.is_empty()).count();
    let marking = rows.iter().filter(|row| !row.marks.is_empty()).count();
    let (mut rates, mut waits, mut drops, mut marks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let style = Style::nth(names.iter().position(|name| *name == row.name).unwrap_or(0));
        rates.push(bins.steps(style, &row.bytes, 8.0));
        waits.push(bins.line(style.faint(), &row.delay_p99_ns, least));
        waits.push(bins.line(style, &row.delay_p50_ns, least));
        drops.push(bins.needles_or_steps(style, &row.drops, dropping));
        marks.push(bins.needles_or_steps(style, &row.marks, marking));
    }
    // The label of a low panel must be short.
    let wait = if runs.by == By::Class { "wait" } else { "one way" };
    let wait = if ranges.log() { Axis::log(wait, Unit::Time) } else { Axis::new(wait, Unit::Time) };
    let panel = |height, axis, range, marks| Panel { height, y: Side::Values(axis, Some(range)), marks };
    let mut panels = vec![
        panel(120.0, Axis::new("throughput", Unit::Rate), (0.0, ranges.rate), rates),
        panel(110.0, wait, (least, longest), waits),
    ];
    for (word, most, marks) in [("drops", ranges.drops, drops), ("marks", ranges.marks, marks)] {
        if most > 0.0 {
            panels.push(panel(70.0, Axis::new(word, Unit::PerSecond), (0.0, most), marks));
        }
    }
    let title = format!("{}: throughput, delay, drops and marks over time", column(run));
    let title = title.trim_start_matches(": ").to_owned();
    Chart { title, width, x: Axis::new("time", Unit::Time), range: Some((0.0, ranges.end)), panels }
}
