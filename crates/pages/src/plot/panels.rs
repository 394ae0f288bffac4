//! The plots of a case: what `altq sim CASE --plot FILE` draws, a column of charts for every column
//! of the case.

use altq_cases::series::{Row, Series};
use altq_cases::statistics::percentile;

use super::{Axis, Chart, Data, Figure, Unit};

/// A kind of chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Panel {
    /// Rate over time.
    Rate,
    /// Packets dropped a second over time.
    Drops,
    /// Which part of the packets waited at most so long.
    Delay,
    /// The median wait over time.
    Wait,
    /// Each one's part of all bytes, a bar each.
    Share,
}

/// Their words.
pub const PANELS: &[(&str, Panel)] = &[
    ("rate", Panel::Rate),
    ("drops", Panel::Drops),
    ("delay", Panel::Delay),
    ("wait", Panel::Wait),
    ("share", Panel::Share),
];

/// Whose lines are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Those of classes: bytes and waits up to the hand-over to the wire.
    Class,
    /// Those of flows: bytes that arrived, and the time from source to destination.
    Flow,
}

/// All columns in one, its lines named by column, and by class or flow where a column has several:
/// to be seen side by side.
pub fn overlay(columns: &[Series]) -> Vec<Series> {
    let Some(first) = columns.first() else { return Vec::new() };
    let mut all = Series { column: None, bin: first.bin, bins: first.bins, ..Series::default() };
    for series in columns {
        let column = series.column.clone().unwrap_or_default();
        let named = |row: &Row, alone: bool| {
            let name = if alone { column.clone() } else { format!("{column} {}", row.name).trim().to_owned() };
            Row { name, ..row.clone() }
        };
        all.classes.extend(series.classes.iter().map(|row| named(row, series.classes.len() == 1)));
        all.flows.extend(series.flows.iter().map(|row| named(row, series.flows.len() == 1)));
    }
    vec![all]
}

/// A case's figure. `panels`: from top to bottom; none: rate, drops where there were any, and
/// delay.
pub fn figure(title: &str, columns: &[Series], panels: &[Panel], by: By) -> Figure {
    let rows = |series: &'_ Series| -> Vec<Row> {
        match by {
            By::Class => series.classes.clone(),
            By::Flow => series.flows.clone(),
        }
    };
    // One colour for one name, in all columns.
    let mut legend: Vec<String> = Vec::new();
    for row in columns.iter().flat_map(rows) {
        if !legend.contains(&row.name) {
            legend.push(row.name);
        }
    }
    let dropped = columns.iter().flat_map(rows).any(|row| row.drops.iter().any(|n| *n > 0));
    let usual = [Panel::Rate, Panel::Drops, Panel::Delay];
    let wanted: Vec<Panel> = match panels {
        [] => usual.into_iter().filter(|panel| *panel != Panel::Drops || dropped).collect(),
        panels => panels.to_vec(),
    };
    let chart = |panel: Panel, series: &Series| {
        let rows = rows(series);
        let of = |name: &String| rows.iter().find(|row| row.name == *name);
        let lines = |points: &dyn Fn(&Row) -> Vec<(f64, f64)>| {
            Data::Lines(legend.iter().map(|name| of(name).map(points).unwrap_or_default()).collect())
        };
        let bin = series.bin as f64 / 1e9;
        let middle = |n: usize| (n as f64 + 0.5) * bin;
        let over = |value: &dyn Fn(&Row, usize) -> f64| {
            lines(&|row| (0..series.bins).map(|n| (middle(n), value(row, n))).collect())
        };
        let time = Axis::new("time", Unit::Time);
        let whole: u64 = rows.iter().flat_map(|row| &row.bytes).sum();
        let at = |list: &[u64], n: usize| list.get(n).copied().unwrap_or(0) as f64;
        let (x, y, data) = match panel {
            Panel::Rate => (time, Axis::new("rate", Unit::Rate), over(&|row, n| at(&row.bytes, n) * 8.0 / bin)),
            Panel::Drops => (time, Axis::new("drops", Unit::PerSecond), over(&|row, n| at(&row.drops, n) / bin)),
            Panel::Wait => (time, Axis::new("median delay", Unit::Time), over(&|row, n| median(row, n))),
            Panel::Delay => {
                let data = lines(&distribution);
                // Over more than two decades the short ones would all lie on the axis.
                let values = || rows.iter().flat_map(|row| &row.delays).flatten().filter(|delay| **delay > 0);
                let (least, most) = (values().min().copied().unwrap_or(1), values().max().copied().unwrap_or(1));
                let x =
                    if most / least > 100 { Axis::log("delay", Unit::Time) } else { Axis::new("delay", Unit::Time) };
                (x, Axis::new("packets", Unit::Part), data)
            }
            Panel::Share => {
                let part = |name: &String| {
                    of(name).map_or(0.0, |row| row.bytes.iter().sum::<u64>() as f64 / whole.max(1) as f64)
                };
                let bars = vec![(series.column.clone().unwrap_or_default(), legend.iter().map(part).collect())];
                (Axis::new("", Unit::Count), Axis::new("share", Unit::Part), Data::Bars(bars))
            }
        };
        Chart { title: series.column.clone().unwrap_or_default(), x, y, data }
    };
    let rows = wanted.into_iter().map(|panel| {
        let mut charts: Vec<Chart> = columns.iter().map(|series| chart(panel, series)).collect();
        // Bars of all columns stand side by side in one chart.
        if panel == Panel::Share {
            let all = charts.iter().flat_map(|chart| match &chart.data {
                Data::Bars(groups) => groups.clone(),
                Data::Lines(_) => Vec::new(),
            });
            let data = Data::Bars(all.collect());
            charts.truncate(1);
            charts.iter_mut().for_each(|chart| (chart.title, chart.data) = (String::new(), data.clone()));
        }
        charts
    });
    Figure { title: title.to_owned(), rows: rows.collect(), legend: legend.clone() }
}

/// The median delay of a bin, seconds; not a number where no packet went.
fn median(row: &Row, bin: usize) -> f64 {
    let mut delays = row.delays.get(bin).cloned().unwrap_or_default();
    percentile(&mut delays, 50).map_or(f64::NAN, |delay| delay as f64 / 1e9)
}

/// For each per cent of the packets the delay that they do not exceed.
fn distribution(row: &Row) -> Vec<(f64, f64)> {
    let mut delays: Vec<u64> = row.delays.iter().flatten().copied().collect();
    delays.sort_unstable();
    let step = |percent: usize| {
        let at = (delays.len() * percent).div_ceil(100).max(1) - 1;
        delays.get(at).map(|delay| (*delay as f64 / 1e9, percent as f64 / 100.0))
    };
    (0..=100).filter_map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, bytes: Vec<u64>, delays: Vec<Vec<u64>>) -> Row {
        Row { name: name.into(), drops: vec![0; bytes.len()], bytes, delays, ..Row::default() }
    }

    fn series(column: &str, classes: Vec<Row>) -> Series {
        Series { column: Some(column.into()), bin: 500_000_000, bins: 2, classes, ..Series::default() }
    }

    #[test]
    fn one_colour_a_name_and_a_column_a_column() {
        let one = series("one", vec![row("a", vec![125, 250], vec![vec![3_000_000, 1_000_000, 2_000_000], vec![]])]);
        let two = series(
            "two",
            vec![row("b", vec![100, 200], vec![vec![], vec![]]), row("a", vec![25, 75], vec![vec![], vec![]])],
        );
        let figure = figure("t", &[one, two], &[Panel::Rate, Panel::Wait, Panel::Share], By::Class);
        assert_eq!(figure.legend, ["a", "b"]);
        assert_eq!(figure.rows.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
        // 125 bytes in half a second are 2 kbit/s.
        assert_eq!(figure.rows[0][0].data, Data::Lines(vec![vec![(0.25, 2000.0), (0.75, 4000.0)], vec![]]));
        assert_eq!(
            figure.rows[0][1].data,
            Data::Lines(vec![vec![(0.25, 400.0), (0.75, 1200.0)], vec![(0.25, 1600.0), (0.75, 3200.0)]])
        );
        let Data::Lines(waits) = &figure.rows[1][0].data else { panic!() };
        assert_eq!(waits[0][0], (0.25, 0.002));
        assert!(waits[0][1].1.is_nan());
        let bars = [("one".to_owned(), vec![1.0, 0.0]), ("two".to_owned(), vec![0.25, 0.75])];
        assert_eq!(figure.rows[2][0].data, Data::Bars(bars.to_vec()));
    }

    #[test]
    fn columns_lie_over_one_another() {
        let one = series("one", vec![row("a", vec![1, 1], vec![vec![], vec![]])]);
        let two =
            series("two", vec![row("b", vec![1, 1], vec![vec![], vec![]]), row("a", vec![1, 1], vec![vec![], vec![]])]);
        let both = overlay(&[one, two]);
        let names: Vec<_> = both[0].classes.iter().map(|row| row.name.as_str()).collect();
        assert_eq!((both.len(), names), (1, vec!["one", "two b", "two a"]));
        assert!(overlay(&[]).is_empty());
    }

    #[test]
    fn a_distribution_by_hand() {
        // Of ten packets of 1 to 10 ms: 10 % at most 1 ms, half at most 5, all at most 10.
        let delays = (1..=10).rev().map(|ms| ms * 1_000_000).collect();
        let points = distribution(&row("a", vec![0], vec![delays]));
        assert_eq!((points[10], points[50], points[100]), ((0.001, 0.1), (0.005, 0.5), (0.01, 1.0)));
        assert_eq!(points.len(), 101);
        assert!(distribution(&row("a", vec![0], vec![vec![]])).is_empty());
    }

    #[test]
    fn drops_are_shown_where_there_are_some() {
        let mut one = series("one", vec![row("a", vec![1, 1], vec![vec![5], vec![700]])]);
        assert_eq!(figure("t", &[one.clone()], &[], By::Class).rows.len(), 2);
        one.classes[0].drops[1] = 3;
        let drawn = figure("t", &[one], &[], By::Class);
        assert_eq!(drawn.rows[1][0].data, Data::Lines(vec![vec![(0.25, 0.0), (0.75, 6.0)]]));
        // From 5 to 700 ns: decades.
        assert!(drawn.rows[2][0].x.log);
    }
}
