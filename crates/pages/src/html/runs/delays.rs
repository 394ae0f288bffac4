//! Distributions of delays, and their percentiles as a table.

use altq_cases::result::{QUANTILES, RunSeries, SeriesRow};
use maud::{Markup, html};

use super::{By, Runs, column};
use crate::html::element::table;
use crate::html::text::{number, time};
use crate::plot::{Axis, Chart, Mark, Panel, Side, Style, Unit};

/// The percentiles of the table, and the least number of packets for which each is shown.
const PERCENTILES: [(f64, &str, u64); 4] =
    [(0.5, "P50", 1), (0.9, "P90", 10), (0.99, "P99", 100), (0.999, "P99.9", 1000)];

/// Tables with more rows than this are folded away.
const MOST_ROWS: usize = 24;

/// The charts of the runs `runs`, and the table of `all`, which may have more classes or flows.
pub fn section(runs: Runs<'_>, all: Runs<'_>) -> Markup {
    let delays = || runs.all().flat_map(|row| &row.delays.ns).copied();
    let waited = || delays().filter(|ns| *ns > 0).map(|ns| ns as f64);
    let (Some(least), Some(most)) = (waited().reduce(f64::min), waited().reduce(f64::max)) else {
        let any = runs.all().any(|row| row.delays.count > 0);
        let what = if any { "No packet waited: each went at once." } else { "No packet's delay was measured." };
        return html! { p.quiet { (what) } "\n" };
    };
    // A logarithmic axis has no 0, so delays of 0 are drawn at its left edge, a decade further
    // down.
    let at_once = delays().any(|ns| ns == 0);
    let least = if at_once { 10f64.powf(least.log10().ceil() - 1.0).max(1.0) } else { least };
    let range = (least / 1e9, most.max(least * 1.01) / 1e9);
    let names = runs.names();
    let mut rows = Vec::new();
    for (run, row) in all.runs.iter().flat_map(|run| all.of(run).iter().map(move |row| (run, row))) {
        let name = run.column.as_ref().map_or(row.name.clone(), |column| format!("{column}: {}", row.name));
        let mut cells = vec![name, number(row.delays.count as f64)];
        cells.extend(PERCENTILES.iter().map(|one| percentile(row, one).map_or("–".into(), |ns| time(ns as f64))));
        cells.push(row.delays.quantile(1.0).map_or("–".into(), |ns| time(ns as f64)));
        rows.push(cells);
    }
    html! {
        (runs.legend())
        (runs.charts(&|run, width| chart(run, runs, &names, range, width)))
        @if at_once { p.quiet.small { "At the left edge: what did not wait at all." } "\n" }
        @let table = table(&["", "n", "P50", "P90", "P99", "P99.9", "longest"], &rows);
        @if rows.len() > MOST_ROWS {
            details { summary { "All " (rows.len()) " rows" } "\n" (table) } "\n"
        } @else {
            (table)
        }
    }
}

/// A percentile, if there were enough packets for it.
fn percentile(row: &SeriesRow, (quantile, _, packets): &(f64, &str, u64)) -> Option<u64> {
    row.delays.quantile(*quantile).filter(|_| row.delays.count >= *packets)
}

fn chart(run: &RunSeries, runs: Runs<'_>, names: &[&str], range: (f64, f64), width: f64) -> Chart {
    let mut marks = Vec::new();
    for row in runs.of(run) {
        let style = Style::nth(names.iter().position(|name| *name == row.name).unwrap_or(0));
        let seconds = |ns: u64| (ns as f64 / 1e9).max(range.0);
        let points = QUANTILES.iter().zip(&row.delays.ns).map(|(quantile, ns)| (seconds(*ns), *quantile));
        marks.push(Mark::Line(style, points.collect()));
        let dots = PERCENTILES.iter().filter_map(|one| {
            let ns = percentile(row, one)?;
            Some((seconds(ns), one.0, format!("{} {} = {}", row.name, one.1, time(ns as f64))))
        });
        marks.push(Mark::Dots(style, dots.collect()));
    }
    let y = Side::Values(Axis::new("packets", Unit::Part), Some((0.0, 1.0)));
    let x = Axis::log(if runs.by == By::Class { "wait in the link" } else { "one-way delay" }, Unit::Time);
    let title = format!("{} distribution of delays", column(run)).trim().to_owned();
    Chart { title, width, x, range: Some(range), panels: vec![Panel { height: 170.0, y, marks }] }
}
