//! A run over time, in the same bins as the simulator's results, for plots.

use std::time::Duration;

use altq_cases::case::Case;
use altq_cases::report::names;
use altq_cases::result::{Delays, QUANTILES, RunSeries, SeriesRow};
use altq_cases::series::Series;
use altq_cases::statistics::percentile;
use altq_dataplane::sketch::Sketch;
use altq_engine::units::Nanos;

use super::figures::{Figures, nanos};
use super::generator::Kind;
use super::prepared::links;
use super::readings::Readings;

/// The most classes, and most flows, that have a series; as in the simulator.
const MOST: usize = 64;

/// The edges of the bins of a run, with the beginning and the end of the run.
pub fn edges(case: &Case, bins: u64) -> Vec<Nanos> {
    let width = Series::width(case.duration, bins);
    (0..=case.duration.div_ceil(width)).map(|n| (n * width).min(case.duration)).collect()
}

/// The series of a run, in at most `bins` bins.
pub fn of(figures: &Figures<'_>, column: Option<&str>, bins: u64) -> RunSeries {
    let case = figures.case;
    let (edges, bin_ns) = (edges(case, bins), Series::width(case.duration, bins));
    let mut left_out = 0;
    let mut classes = Vec::new();
    let known = links(figures.links.iter().map(|(link, _)| link));
    for (at, (link, readings)) in figures.links.iter().enumerate() {
        let children = link.children();
        let idle = |id: usize| {
            let last = readings.last().and_then(|last| last.classes.get(id)).map(|class| &class.counters);
            last.is_none_or(|last| last.sent_packets + last.dropped_packets == 0)
        };
        for (id, (name, _)) in names(link).into_iter().enumerate() {
            // An inner class's counters are the sums of its children's, so it has no series.
            if idle(id) || !children.get(id).is_none_or(Vec::is_empty) {
                continue;
            }
            if classes.len() == MOST {
                left_out += 1;
                continue;
            }
            let row = class(readings, id, known.written(at, &name), &edges, case.warmup);
            classes.push(SeriesRow { link: Some(link.name.clone()), ..row });
        }
    }
    let mut flows = Vec::new();
    for (at, own) in figures.flows.iter().enumerate().filter(|(_, own)| !own.active.is_empty()) {
        if flows.len() < MOST {
            flows.push(flow(figures, at, own.name.clone(), &edges, bin_ns));
        } else {
            left_out += 1;
        }
    }
    RunSeries {
        column: column.map(str::to_owned),
        row: case.row.clone(),
        bin_ns,
        classes,
        flows,
        reclaims: Vec::new(),
        rates: Vec::new(),
        left_out,
    }
}

/// The series of a class, from its link's readings.
fn class(readings: &Readings, id: usize, name: String, edges: &[Nanos], warmup: Nanos) -> SeriesRow {
    let mut row = SeriesRow { name, ..SeriesRow::default() };
    let (mut all, mut marks, mut drops) = (Sketch::default(), Vec::new(), Vec::new());
    for (from, to) in edges.iter().zip(edges.iter().skip(1)) {
        let window = readings.window(nanos(*from), nanos(*to));
        let counts = window.as_ref().and_then(|window| {
            let (begin, end) = window.edges(id)?;
            Some((begin.counters, end.counters, window.sojourn(id)))
        });
        // A bin without a reading at both edges stays empty.
        let (begin, end, sojourn) = counts.unwrap_or_default();
        row.bytes.push(end.sent_bytes.saturating_sub(begin.sent_bytes));
        row.packets.push(end.sent_packets.saturating_sub(begin.sent_packets));
        drops.push(end.dropped_packets.saturating_sub(begin.dropped_packets));
        marks.push(end.marked_packets.saturating_sub(begin.marked_packets));
        let seen = |value: u64| (sojourn.count() > 0).then_some(value);
        row.delay_mean_ns.push(seen(sojourn.mean()));
        row.delay_p50_ns.push(seen(sojourn.percentile(50.0)));
        row.delay_p99_ns.push(seen(sojourn.percentile(99.0)));
        if *from >= warmup {
            all.merge(&sojourn);
        }
    }
    (row.drops, row.marks) = (unless_zero(drops), unless_zero(marks));
    let ns = QUANTILES.iter().filter(|_| all.count() > 0).map(|q| all.percentile(q * 100.0)).collect();
    row.delays = Delays { count: all.count(), ns };
    row
}

/// The series of a flow, from its meter.
fn flow(figures: &Figures<'_>, at: usize, name: String, edges: &[Nanos], bin: Nanos) -> SeriesRow {
    let reading = |edge: &Nanos| {
        figures.run.at(nanos(*edge)).and_then(|sample| sample.flows.get(at)).copied().unwrap_or_default()
    };
    let readings: Vec<_> = edges.iter().map(reading).collect();
    let steps = || readings.iter().zip(readings.iter().skip(1));
    let own = &figures.flows[at];
    let round_trips = own.kind.has_round_trips();
    let mut bins: Vec<Vec<Nanos>> = vec![Vec::new(); edges.len().saturating_sub(1)];
    if let Some(meter) = figures.run.meters.get(at) {
        meter.each_time(|now, time| {
            if let Some(bin) = bins.get_mut((now / bin.max(1)) as usize) {
                bin.push(time);
            }
        });
    }
    let first = edges.iter().position(|edge| *edge >= figures.case.warmup).unwrap_or(0);
    let mut all: Vec<Nanos> = bins.iter().skip(first).flatten().copied().collect();
    let mean = |times: &Vec<Nanos>| {
        let sum: u128 = times.iter().map(|time| u128::from(*time)).sum();
        sum.checked_div(times.len() as u128).map(|mean| mean as u64)
    };
    let delay_mean_ns = bins.iter().map(mean).collect();
    let counted = matches!(own.kind, Kind::Datagrams(_)) || round_trips;
    SeriesRow {
        name,
        bytes: steps().map(|(begin, end)| end.bytes.saturating_sub(begin.bytes)).collect(),
        packets: if counted {
            steps().map(|(begin, end)| end.received.saturating_sub(begin.received)).collect()
        } else {
            Vec::new()
        },
        round_trips,
        delay_mean_ns,
        delay_p50_ns: bins.iter_mut().map(|times| percentile(times, 50)).collect(),
        delay_p99_ns: bins.iter_mut().map(|times| percentile(times, 99)).collect(),
        delays: Delays::of(&mut all),
        ..SeriesRow::default()
    }
}

/// The list, or an empty one if all its numbers are 0.
fn unless_zero(list: Vec<u64>) -> Vec<u64> {
    if list.iter().any(|n| *n > 0) { list } else { Vec::new() }
}

/// The moments at which the meters must be read for the series.
pub fn moments(case: &Case, bins: u64) -> impl Iterator<Item = Duration> {
    edges(case, bins).into_iter().map(nanos)
}
