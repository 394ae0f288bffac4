//! The figure of `altq sim CASE --plot FILE`: a column of charts for every column of the case.

use altq_cases::series::{Row, Series};
use altq_cases::statistics::percentile;

use super::{Axis, Bar, Chart, Figure, Mark, Panel, Side, Style, Unit, heaviest};

/// What a chart shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Rate over time.
    Rate,
    /// Packets dropped a second over time.
    Drops,
    /// The distribution of waits.
    Delay,
    /// The median wait over time.
    Wait,
    /// Each class's or flow's part of all bytes.
    Share,
}

/// The words of `--panels`.
pub const SHOWN: &[(&str, Shown)] = &[
    ("rate", Shown::Rate),
    ("drops", Shown::Drops),
    ("delay", Shown::Delay),
    ("wait", Shown::Wait),
    ("share", Shown::Share),
];

/// What the lines of a chart stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Each class: bytes and waits up to the hand-over to the wire.
    Class,
    /// Each flow: bytes that arrived, and the time from source to destination.
    Flow,
}

/// All columns as one, so that their lines are in the same charts. A line is named after its
/// column, and also after its class or flow if the column has several.
pub fn overlay(columns: &[Series]) -> Vec<Series> {
    let Some(first) = columns.first() else { return Vec::new() };
    let mut all = Series { column: None, bin: first.bin, bins: first.bins, ..Series::default() };
    for series in columns {
        let column = series.column.clone().unwrap_or_default();
        let named = |row: &Row, single: bool| {
            let name = if single { column.clone() } else { format!("{column} {}", row.name).trim().to_owned() };
            Row { name, ..row.clone() }
        };
        all.classes.extend(series.classes.iter().map(|row| named(row, series.classes.len() == 1)));
        all.flows.extend(series.flows.iter().map(|row| named(row, series.flows.len() == 1)));
    }
    vec![all]
}

/// The figure of a case's columns. `shown`: for each entry a row of charts, from top to bottom. If
/// it is empty: rate, drops if there were any, and delay.
pub fn figure(title: &str, columns: &[Series], shown: &[Shown], by: By) -> Figure {
    let columns: Vec<Column<'_>> = columns.iter().map(|series| Column::new(series, by)).collect();
    let mut legend: Vec<String> = Vec::new();
    for row in columns.iter().flat_map(|column| column.rows) {
        if !legend.contains(&row.name) {
            legend.push(row.name.clone());
        }
    }
    let (title, legend) = limited(title, legend, &columns, by);
    let dropped = columns.iter().flat_map(|column| column.rows).any(|row| row.drops.iter().any(|n| *n > 0));
    let usual = [Shown::Rate, Shown::Drops, Shown::Delay].into_iter().filter(|one| *one != Shown::Drops || dropped);
    let shown: Vec<Shown> = if shown.is_empty() { usual.collect() } else { shown.to_vec() };
    let charts = |what: Shown| match what {
        // The bars of all columns are in one chart.
        Shown::Share => vec![(String::new(), shares(&columns, &legend))],
        _ => {
            let panels: Vec<Panel> = columns.iter().map(|column| column.panel(what, &legend)).collect();
            let panels = same_heights(panels).into_iter().zip(&columns);
            panels.map(|(panel, column)| (column.name(), column.chart(what, panel))).collect()
        }
    };
    Figure { title, rows: shown.into_iter().map(charts).collect(), legend }
}

/// At most [`MOST_LINES`] names of the legend, those with the most bytes; and the title, which says
/// how many are left out.
fn limited(title: &str, legend: Vec<String>, columns: &[Column<'_>], by: By) -> (String, Vec<String>) {
    let bytes =
        |name: &String| columns.iter().filter_map(|column| column.row(name)).flat_map(|row| &row.bytes).sum::<u64>();
    let kept = heaviest(&legend.iter().map(bytes).collect::<Vec<u64>>());
    let (all, of) = (legend.len(), if by == By::Class { "classes" } else { "flows" });
    let legend: Vec<String> = legend.into_iter().zip(kept).filter(|(_, kept)| *kept).map(|(name, _)| name).collect();
    let left_out = all - legend.len();
    let title = match left_out {
        0 => title.to_owned(),
        _ => format!("{title}: the {} {of} with the most bytes, {left_out} are left out", legend.len()),
    };
    (title, legend)
}

/// Width of a chart.
const WIDTH: f64 = 530.0;
/// Height of a chart's area.
const HEIGHT: f64 = 144.0;

/// One column, with its classes or flows.
struct Column<'a> {
    series: &'a Series,
    rows: &'a [Row],
}

impl<'a> Column<'a> {
    fn new(series: &'a Series, by: By) -> Column<'a> {
        let rows = match by {
            By::Class => &series.classes,
            By::Flow => &series.flows,
        };
        Column { series, rows }
    }

    fn name(&self) -> String {
        self.series.column.clone().unwrap_or_default()
    }

    /// The row with this name.
    fn row(&self, name: &str) -> Option<&'a Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// A panel with a line for each name of the legend, in the name's style.
    fn panel(&self, what: Shown, legend: &[String]) -> Panel {
        let bin = self.series.bin as f64 / 1e9;
        let at = |list: &[u64], n: usize| list.get(n).copied().unwrap_or(0) as f64;
        let over_time = |value: &dyn Fn(usize) -> f64| -> Vec<(f64, f64)> {
            (0..self.series.bins).map(|n| ((n as f64 + 0.5) * bin, value(n))).collect()
        };
        let points = |row: &Row| match what {
            Shown::Rate => over_time(&|n| at(&row.bytes, n) * 8.0 / bin),
            Shown::Drops => over_time(&|n| at(&row.drops, n) / bin),
            Shown::Wait => over_time(&|n| median(row, n)),
            Shown::Delay | Shown::Share => distribution(row),
        };
        let lines = legend.iter().enumerate().filter_map(|(n, name)| Some((Style::nth(n), self.row(name)?)));
        let marks = lines.map(|(style, row)| Mark::Line(style, points(row))).collect();
        let (label, unit) = match what {
            Shown::Rate => ("rate", Unit::Rate),
            Shown::Drops => ("drops", Unit::PerSecond),
            Shown::Wait => ("median delay", Unit::Time),
            Shown::Delay => ("packets", Unit::Part),
            Shown::Share => ("share", Unit::Part),
        };
        Panel::new(HEIGHT, Axis::new(label, unit), marks)
    }

    fn chart(&self, what: Shown, panel: Panel) -> Chart {
        let end = self.series.bins as f64 * self.series.bin as f64 / 1e9;
        let (x, range) = match what {
            Shown::Delay => (self.delay_axis(), None),
            _ => (Axis::new("time", Unit::Time), Some((0.0, end))),
        };
        Chart { title: self.name(), width: WIDTH, x, range, panels: vec![panel] }
    }

    /// Logarithmic if delays span more than two decades; on a linear axis the short ones would all
    /// be at 0.
    fn delay_axis(&self) -> Axis {
        let delays = || self.rows.iter().flat_map(|row| &row.delays).flatten().filter(|delay| **delay > 0);
        let (least, most) = (delays().min().copied().unwrap_or(1), delays().max().copied().unwrap_or(1));
        if most / least > 100 { Axis::log("delay", Unit::Time) } else { Axis::new("delay", Unit::Time) }
    }
}

/// Gives the panels of charts that are side by side the same range, so that heights can be
/// compared.
fn same_heights(mut panels: Vec<Panel>) -> Vec<Panel> {
    let heights = panels.iter().filter_map(|panel| panel.heights(false)).reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
    for panel in &mut panels {
        if let Side::Values(_, range) = &mut panel.y {
            *range = heights;
        }
    }
    panels
}

/// A bar for each class or flow of each column: its part of the column's bytes.
fn shares(columns: &[Column<'_>], legend: &[String]) -> Chart {
    let mut marks = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        let all: u64 = column.rows.iter().flat_map(|row| &row.bytes).sum();
        let height = 0.8 / legend.len().max(1) as f64;
        for (n, name) in legend.iter().enumerate() {
            let bytes: u64 = column.row(name).map_or(0, |row| row.bytes.iter().sum());
            let to = bytes as f64 / all.max(1) as f64;
            let row = at as f64 - 0.4 + (n as f64 + 0.5) * height;
            let title = format!("{name}: {:.2} %", to * 100.0);
            marks.push(Mark::Bar(Bar { style: Style::nth(n), row, height, from: 0.0, to, hatched: false, title }));
        }
    }
    let names = columns.iter().map(Column::name).collect();
    let panel = Panel { height: 12.0 + 16.0 * legend.len() as f64, ..Panel::names(names, marks) };
    let x = Axis::new("share", Unit::Part);
    Chart { title: "share".into(), width: WIDTH, x, range: Some((0.0, 1.0)), panels: vec![panel] }
}

/// The median delay of a bin in seconds; not a number if no packet passed.
fn median(row: &Row, bin: usize) -> f64 {
    let mut delays = row.delays.get(bin).cloned().unwrap_or_default();
    percentile(&mut delays, 50).map_or(f64::NAN, |delay| delay as f64 / 1e9)
}

/// For each hundredth of the packets, the delay in seconds that they do not exceed.
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

    /// The points of the lines of a chart.
    fn lines(chart: &Chart) -> Vec<Vec<(f64, f64)>> {
        let line = |mark: &Mark| match mark {
            Mark::Line(_, points) => points.clone(),
            other => panic!("{other:?}"),
        };
        chart.panels[0].marks.iter().map(line).collect()
    }

    #[test]
    fn one_colour_a_name_and_a_column_a_column() {
        let one = series("one", vec![row("a", vec![125, 250], vec![vec![3_000_000, 1_000_000, 2_000_000], vec![]])]);
        let two = series(
            "two",
            vec![row("b", vec![100, 200], vec![vec![], vec![]]), row("a", vec![25, 75], vec![vec![], vec![]])],
        );
        let figure = figure("t", &[one, two], &[Shown::Rate, Shown::Wait, Shown::Share], By::Class);
        assert_eq!(figure.legend, ["a", "b"]);
        assert_eq!(figure.rows.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
        // 125 bytes in half a second are 2 kbit/s.
        let (heading, first) = &figure.rows[0][0];
        assert_eq!((heading.as_str(), lines(first)), ("one", vec![vec![(0.25, 2000.0), (0.75, 4000.0)]]));
        let second = &figure.rows[0][1].1;
        assert_eq!(lines(second), [[(0.25, 400.0), (0.75, 1200.0)], [(0.25, 1600.0), (0.75, 3200.0)]]);
        assert!(matches!(second.panels[0].marks[0], Mark::Line(style, _) if style == Style::nth(0)));
        // Both charts have the range of the larger one.
        for (_, chart) in &figure.rows[0] {
            assert!(matches!(chart.panels[0].y, Side::Values(_, Some((400.0, 4000.0)))));
        }
        let waits = lines(&figure.rows[1][0].1);
        assert_eq!(waits[0][0], (0.25, 0.002));
        assert!(waits[0][1].1.is_nan());
        let share = |mark: &Mark| match mark {
            Mark::Bar(bar) => bar.to,
            other => panic!("{other:?}"),
        };
        let panel = &figure.rows[2][0].1.panels[0];
        assert_eq!(panel.marks.iter().map(share).collect::<Vec<_>>(), [1.0, 0.0, 0.25, 0.75]);
        assert!(matches!(&panel.y, Side::Names(names) if *names == ["one", "two"]));
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
    fn of_many_lines_those_with_the_most_bytes_are_drawn() {
        // Class n has n * n bytes; the first of all has the most.
        let mut rows: Vec<Row> = (0..30).map(|n| row(&format!("c{n}"), vec![n * n, 0], vec![vec![], vec![]])).collect();
        rows[0].bytes[1] = 10_000;
        let drawn = figure("t", &[series("one", rows)], &[Shown::Rate], By::Class);
        let expected: Vec<String> = std::iter::once(0).chain(21..30).map(|n| format!("c{n}")).collect();
        assert_eq!(drawn.legend, expected);
        assert_eq!(lines(&drawn.rows[0][0].1).len(), 10);
        assert_eq!(drawn.title, "t: the 10 classes with the most bytes, 20 are left out");
    }

    #[test]
    fn a_distribution_by_hand() {
        // Ten packets with 1 to 10 ms: 10 % have at most 1 ms, half at most 5 ms, all at most 10
        // ms.
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
        assert_eq!(lines(&drawn.rows[1][0].1), [[(0.25, 0.0), (0.75, 6.0)]]);
        // From 5 to 700 ns are more than two decades.
        assert!(drawn.rows[2][0].1.x.log);
    }
}
