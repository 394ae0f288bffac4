//! What runs did over time: rates, delays, drops and marks on one axis; distributions of delays;
//! shares; how fast classes came back.

use std::fmt::Write;

use altq_cases::result::{CaseResult, ClassResult, RunSeries, SeriesRow};

use super::text::{figure, number, time};
use super::{beside, both, key, palette, table};
use crate::plot::sheet::{Mark, Panel, Sheet, Side};
use crate::plot::{Axis, Unit};

/// Percentiles that are said of a distribution, and of how many packets at least.
const SAID: [(f64, &str, u64); 4] = [(0.5, "P50", 1), (0.9, "P90", 10), (0.99, "P99", 100), (0.999, "P99.9", 1000)];

/// Runs of one row: a column each.
pub struct Group<'a> {
    /// The row, where the case has rows.
    pub row: Option<&'a str>,
    /// Its runs.
    pub runs: Vec<&'a RunSeries>,
    /// Rows of classes.
    pub classes: Vec<&'a ClassResult>,
}

/// The runs of a result, row by row.
pub fn groups(result: &CaseResult) -> Vec<Group<'_>> {
    let rows = result.series.iter().map(|run| run.row.as_deref()).chain(result.classes.iter().map(row_of));
    let mut names: Vec<Option<&str>> = Vec::new();
    for row in rows {
        if !names.contains(&row) {
            names.push(row);
        }
    }
    let group = |row: Option<&'_ str>| Group {
        row: result
            .series
            .iter()
            .map(|run| run.row.as_deref())
            .chain(result.classes.iter().map(row_of))
            .find(|r| *r == row)
            .flatten(),
        runs: result.series.iter().filter(|run| run.row.as_deref() == row).collect(),
        classes: result.classes.iter().filter(|class| row_of(class) == row).collect(),
    };
    names.into_iter().map(group).collect()
}

fn row_of(class: &ClassResult) -> Option<&str> {
    class.row.as_deref()
}

/// Names in the order in which they come first.
fn names<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names = Vec::new();
    for name in all {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Whose lines are drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Class,
    Flow,
}

impl By {
    fn rows(self, run: &RunSeries) -> &[SeriesRow] {
        match self {
            By::Class => &run.classes,
            By::Flow => &run.flows,
        }
    }
}

/// All that is shown of a group: `result` says how long it ran.
pub fn section(group: &Group<'_>, result: &CaseResult) -> String {
    let mut out = String::new();
    if group.runs.iter().any(|run| !run.classes.is_empty() || !run.flows.is_empty()) {
        let by = if group.runs.iter().any(|run| !run.classes.is_empty()) { By::Class } else { By::Flow };
        out += "<h3>Over time</h3>\n";
        out += &over_time(group, by, result);
        out += "<h3>Delays</h3>\n";
        out += &delays(group, by);
        if by == By::Class && group.row.is_none() && group.runs.iter().any(|run| !run.flows.is_empty()) {
            let _ = write!(
                out,
                "<details><summary>The same by flow: what arrived, and the time from source to destination</summary>\n\
                 {}{}</details>\n",
                over_time(group, By::Flow, result),
                delays(group, By::Flow)
            );
        }
        let left_out: u64 = group.runs.iter().map(|run| run.left_out).sum();
        if left_out > 0 {
            let _ = writeln!(
                out,
                "<p class=\"quiet small\">{left_out} more classes and flows were not kept over time.</p>"
            );
        }
    }
    out += &shares(group, result);
    out += &reclaims(group);
    out
}

/// A legend of names, each with the line that stands for it.
fn legend(names: &[&str]) -> String {
    let items: String = names.iter().enumerate().map(|(n, name)| key(palette(n), "line", name)).collect();
    format!("<ul class=\"legend\">{items}</ul>\n")
}

/// Throughput, delay, drops and marks, one above the other.
fn over_time(group: &Group<'_>, by: By, result: &CaseResult) -> String {
    let names = names(group.runs.iter().flat_map(|run| by.rows(run)).map(|row| row.name.as_str()));
    let most = |of: &dyn Fn(&SeriesRow, f64) -> f64| {
        let rows = group.runs.iter().flat_map(|run| by.rows(run).iter().map(|row| of(row, run.bin_ns as f64 / 1e9)));
        rows.fold(0.0, f64::max)
    };
    let peak = |list: &[u64], bin: f64| list.iter().max().map_or(0.0, |n| *n as f64 / bin);
    let rate = most(&|row, bin| peak(&row.bytes, bin) * 8.0);
    let (drops, marks) = (most(&|row, bin| peak(&row.drops, bin)), most(&|row, bin| peak(&row.marks, bin)));
    let delays = || {
        group
            .runs
            .iter()
            .flat_map(|run| by.rows(run))
            .flat_map(|row| row.delay_p50_ns.iter().chain(&row.delay_p99_ns))
            .flatten()
    };
    let (least, longest) =
        (delays().filter(|d| **d > 0).min().copied().unwrap_or(1), delays().max().copied().unwrap_or(0));
    let log = longest / least.max(1) > 200;
    let end = result.duration_ns as f64 / 1e9;
    let draw = |run: &RunSeries, width: f64| {
        let bin = run.bin_ns as f64 / 1e9;
        let series = |name: &str| palette(names.iter().position(|n| *n == name).unwrap_or(0));
        let starts = |n: usize| n as f64 * bin;
        let middle = |n: usize| (n as f64 + 0.5) * bin;
        let mut lines: [Vec<Mark>; 4] = Default::default();
        let of = |list: &dyn Fn(&SeriesRow) -> bool| by.rows(run).iter().filter(|row| list(row)).count();
        let (dropping, marking) = (of(&|row| !row.drops.is_empty()), of(&|row| !row.marks.is_empty()));
        for row in by.rows(run) {
            let own = series(&row.name);
            // The last bin may be shorter than the others.
            let span = |n: usize| (end - starts(n)).min(bin).max(f64::MIN_POSITIVE);
            let mut steps: Vec<(f64, f64)> =
                row.bytes.iter().enumerate().map(|(n, bytes)| (starts(n), *bytes as f64 * 8.0 / span(n))).collect();
            if let Some((_, last)) = steps.last().copied() {
                steps.push((end, last));
            }
            lines[0].push(Mark::Steps(own, steps));
            // What waited for no time at all lies at the bottom of an axis in decades.
            let shown = |delay: u64| if log { delay.max(least) } else { delay };
            let delay = |list: &[Option<u64>]| {
                list.iter()
                    .enumerate()
                    .map(|(n, d)| (middle(n), d.map_or(f64::NAN, |d| shown(d) as f64 / 1e9)))
                    .collect()
            };
            lines[1].push(Mark::Line(own.faint(), delay(&row.delay_p99_ns)));
            lines[1].push(Mark::Line(own, delay(&row.delay_p50_ns)));
            let counts = |list: &[u64], alone: bool| {
                let at = |n: usize| if alone { middle(n) } else { starts(n) };
                let mut points: Vec<(f64, f64)> =
                    list.iter().enumerate().map(|(n, count)| (at(n), *count as f64 / span(n))).collect();
                match points.last().copied() {
                    // Needles of several would hide one another.
                    Some((_, last)) if !alone => {
                        points.push((end, last));
                        Mark::Steps(own, points)
                    }
                    _ => Mark::Needles(own, points),
                }
            };
            lines[2].push(counts(&row.drops, dropping < 2));
            lines[3].push(counts(&row.marks, marking < 2));
        }
        let [rates, waits, dropped, marked] = lines;
        let limits = |most: f64| Some((0.0, most));
        // What stands beside a low panel is short.
        let word = if by == By::Class { "wait" } else { "one way" };
        let axis = if log { Axis::log(word, Unit::Time) } else { Axis::new(word, Unit::Time) };
        let span = if log { Some((least as f64 / 1e9, longest as f64 / 1e9)) } else { limits(longest as f64 / 1e9) };
        let mut panels = vec![
            Panel { height: 120.0, y: Side::Values(Axis::new("throughput", Unit::Rate), limits(rate)), marks: rates },
            Panel { height: 110.0, y: Side::Values(axis, span), marks: waits },
        ];
        for (most, word, marks) in [(drops, "drops", dropped), (marks, "marks", marked)] {
            if most > 0.0 {
                panels.push(Panel {
                    height: 70.0,
                    y: Side::Values(Axis::new(word, Unit::PerSecond), limits(most)),
                    marks,
                });
            }
        }
        let title = run.column.clone().unwrap_or_default();
        let title =
            format!("{title}: throughput, delay, drops and marks over time").trim_start_matches(": ").to_owned();
        Sheet { title, width, x: Axis::new("time", Unit::Time), range: limits(end), panels }.svg()
    };
    let bin = group.runs.first().map_or(String::new(), |run| time(run.bin_ns as f64));
    let mut out = legend(&names);
    out += &side_by_side(group, &draw);
    let what = match by {
        By::Class => "Bytes that a class handed over",
        By::Flow => "Bytes that arrived",
    };
    let delay = if by == By::Class {
        "Wait of packets in the link"
    } else {
        "Time from source to destination, or the round trip of requests"
    };
    let marked = if marks > 0.0 { " Marks: congestion experienced (ECN)." } else { "" };
    let _ = writeln!(
        out,
        "<p class=\"quiet small\">{what}, in bins of {bin}. {delay}: the median, and fainter the 99th percentile of \
         each bin.{marked}</p>"
    );
    out
}

/// A chart for each run.
fn side_by_side(group: &Group<'_>, draw: &dyn Fn(&RunSeries, f64) -> String) -> String {
    let captions: Vec<&str> = group.runs.iter().map(|run| run.column.as_deref().unwrap_or("")).collect();
    beside(&captions, &|n, width| group.runs.get(n).map_or(String::new(), |run| draw(run, width)))
}

/// Distributions of delays, and their percentiles as a table.
fn delays(group: &Group<'_>, by: By) -> String {
    let names = names(group.runs.iter().flat_map(|run| by.rows(run)).map(|row| row.name.as_str()));
    let all = || group.runs.iter().flat_map(|run| by.rows(run)).flat_map(|row| &row.delays.ns).filter(|ns| **ns > 0);
    let (Some(least), Some(most)) = (all().min(), all().max()) else {
        let any = group.runs.iter().flat_map(|run| by.rows(run)).any(|row| row.delays.count > 0);
        let what = if any { "No packet waited: each went at once." } else { "No packet's delay was measured." };
        return format!("<p class=\"quiet\">{what}</p>\n");
    };
    // An axis in decades has no 0: what did not wait lies at its left edge.
    let none = group.runs.iter().flat_map(|run| by.rows(run)).flat_map(|row| &row.delays.ns).any(|ns| *ns == 0);
    let below = 10f64.powf((*least as f64).log10().ceil() - 1.0).max(1.0);
    let (least, most) = (if none { below } else { *least as f64 }, *most as f64);
    let range = Some((least / 1e9, most.max(least * 1.01) / 1e9));
    let draw = |run: &RunSeries, width: f64| {
        let mut marks = Vec::new();
        for row in by.rows(run) {
            let own = palette(names.iter().position(|n| *n == row.name).unwrap_or(0));
            let points: Vec<(f64, f64)> = altq_cases::result::QUANTILES
                .iter()
                .zip(&row.delays.ns)
                .map(|(q, ns)| ((*ns as f64).max(least) / 1e9, *q))
                .collect();
            marks.push(Mark::Line(own, points));
            let dots = SAID.iter().filter(|(_, _, n)| row.delays.count >= *n).filter_map(|(q, word, _)| {
                let ns = row.delays.quantile(*q)?;
                Some(((ns as f64).max(least) / 1e9, *q, format!("{} {word} = {}", row.name, time(ns as f64))))
            });
            marks.push(Mark::Dots(own, dots.collect()));
        }
        let y = Side::Values(Axis::new("packets", Unit::Part), Some((0.0, 1.0)));
        let word = if by == By::Class { "wait in the link" } else { "one-way delay" };
        let title = format!("{} distribution of delays", run.column.as_deref().unwrap_or("")).trim().to_owned();
        let panels = vec![Panel { height: 170.0, y, marks }];
        Sheet { title, width, x: Axis::log(word, Unit::Time), range, panels }.svg()
    };
    let mut out = legend(&names);
    out += &side_by_side(group, &draw);
    if none {
        out += "<p class=\"quiet small\">At the left edge: what did not wait at all.</p>\n";
    }
    let mut rows = vec![vec![
        String::new(),
        "n".into(),
        "P50".into(),
        "P90".into(),
        "P99".into(),
        "P99.9".into(),
        "longest".into(),
    ]];
    for run in &group.runs {
        for row in by.rows(run) {
            let of = |(q, _, least): &(f64, &str, u64)| match row.delays.quantile(*q) {
                Some(ns) if row.delays.count >= *least => time(ns as f64),
                _ => "–".into(),
            };
            let name = run.column.as_ref().map_or(row.name.clone(), |column| format!("{column}: {}", row.name));
            let mut cells = vec![name, number(row.delays.count as f64)];
            cells.extend(SAID.iter().map(of));
            cells.push(row.delays.quantile(1.0).map_or("–".into(), |ns| time(ns as f64)));
            rows.push(cells);
        }
    }
    out += &table(&rows);
    out
}

/// What classes had of the link, against what they are promised.
fn shares(group: &Group<'_>, result: &CaseResult) -> String {
    let span = result.duration_ns.saturating_sub(result.warmup_ns) as f64 / 1e9;
    let columns = names(group.classes.iter().map(|class| class.column.as_deref().unwrap_or("")));
    let useful = |class: &&&ClassResult| class.charged_bytes.is_some() && class.report.parent.is_some();
    if span <= 0.0 || !group.classes.iter().any(|class| useful(&class)) {
        return String::new();
    }
    let rate = |class: &ClassResult| class.charged_bytes.unwrap_or(0) as f64 * 8.0 / span;
    // Where the link's rate stays, all is a part of it.
    let whole = |class: &ClassResult| {
        let root = group
            .classes
            .iter()
            .find(|c| c.report.parent.is_none() && c.link == class.link && c.column == class.column);
        root.and_then(|root| root.guaranteed_bit_s).filter(|rate| *rate > 0).map(|rate| rate as f64)
    };
    let parts = group.classes.iter().filter(useful).all(|class| whole(class).is_some());
    let (unit, label) = if parts { (Unit::Part, "of the link's rate") } else { (Unit::Rate, "bytes charged") };
    let of = |class: &ClassResult, value: f64| if parts { value / whole(class).unwrap_or(1.0) } else { value };
    let ends = group.classes.iter().filter(useful).flat_map(|class| {
        let ceiling = class.ceiling_bit_s.map_or(0.0, |rate| of(class, rate as f64));
        [of(class, rate(class)), ceiling, class.guaranteed_bit_s.map_or(0.0, |rate| of(class, rate as f64))]
    });
    let most = ends.fold(0.0, f64::max);
    let draw = |column: &str, width: f64| {
        let rows: Vec<&ClassResult> = group
            .classes
            .iter()
            .filter(useful)
            .filter(|class| class.column.as_deref().unwrap_or("") == column)
            .copied()
            .collect();
        let several = names(rows.iter().map(|class| class.link.as_str())).len() > 1;
        let mut marks = Vec::new();
        let mut labels = Vec::new();
        for (n, class) in rows.iter().enumerate() {
            let (at, own, report) = (n as f64, palette(0), &class.report);
            let has = rate(class);
            // Schedulers that do not count what is borrowed: what goes beyond the guarantee.
            let counted = report.borrowed_bytes as f64 / (report.sent_bytes.max(1)) as f64 * has;
            let beyond = class.guaranteed_bit_s.map_or(0.0, |rate| (has - rate as f64).max(0.0));
            let borrowed = if report.borrowed_bytes > 0 { counted.min(has) } else { beyond };
            let tells = format!(
                "{}: {} charged, of it {} borrowed",
                report.name,
                figure(has, "bit/s"),
                figure(borrowed, "bit/s")
            );
            marks.push(Mark::Bar(own, at, 0.0, of(class, has - borrowed), false, tells.clone()));
            marks.push(Mark::Bar(own, at, of(class, has - borrowed), of(class, has), true, tells));
            if let Some(rate) = class.guaranteed_bit_s {
                marks.push(Mark::Tick(
                    "guarantee",
                    at,
                    of(class, rate as f64),
                    format!("guaranteed {}", figure(rate as f64, "bit/s")),
                ));
            }
            if let Some(rate) = class.ceiling_bit_s {
                marks.push(Mark::Tick(
                    "ceiling",
                    at,
                    of(class, rate as f64),
                    format!("ceiling {}", figure(rate as f64, "bit/s")),
                ));
            }
            let depth = depth(&rows, class);
            let link = if several { format!("{}/", class.link) } else { String::new() };
            labels.push(format!("{}{link}{}", "· ".repeat(depth), report.name));
        }
        let panels = vec![Panel::names(labels, marks)];
        let title = format!("{column} what classes had of the link").trim().to_owned();
        Sheet { title, width, x: Axis::new(label, unit), range: Some((0.0, most * 1.02)), panels }.svg()
    };
    let mut out = String::from("<h3>Shares</h3>\n<ul class=\"legend\">");
    out += &key(palette(0), "bar", "own");
    let any = |of: &dyn Fn(&ClassResult) -> bool| group.classes.iter().filter(useful).any(|class| of(class));
    let beyond = |class: &ClassResult| class.guaranteed_bit_s.is_some_and(|rate_bit_s| rate(class) > rate_bit_s as f64);
    if any(&|class| class.report.borrowed_bytes > 0 || beyond(class)) {
        out += &key(palette(0), "hatched", "borrowed");
    }
    if any(&|class| class.guaranteed_bit_s.is_some()) {
        out += &key(palette(0), "guarantee", "guarantee");
    }
    if any(&|class| class.ceiling_bit_s.is_some()) {
        out += &key(palette(0), "ceiling", "ceiling");
    }
    out += "</ul>\n";
    out += &beside(&columns, &|n, width| columns.get(n).map_or(String::new(), |column| draw(column, width)));
    let _ = writeln!(
        out,
        "<p class=\"quiet small\">Bytes that the link charged from the warm-up on. Guarantees and ceilings are the \
         policy's as the case begins.</p>"
    );
    out
}

/// How deep a class lies below the link's own classes.
fn depth(rows: &[&ClassResult], class: &ClassResult) -> usize {
    let (mut at, mut depth) = (class, 0);
    while let Some(above) =
        rows.iter().find(|c| Some(&c.report.name) == at.report.parent.as_ref() && c.link == class.link)
    {
        depth += 1;
        at = above;
        if depth > rows.len() {
            break;
        }
    }
    depth
}

/// A time until something.
fn after(ns: u64) -> String {
    if ns == 0 { "at once".into() } else { time(ns as f64) }
}

/// How long classes that came back waited for their share.
fn reclaims(group: &Group<'_>) -> String {
    let all: Vec<(&RunSeries, &altq_cases::result::Reclaim)> =
        group.runs.iter().flat_map(|run| run.reclaims.iter().map(move |r| (*run, r))).collect();
    if all.is_empty() {
        return String::new();
    }
    let columns = names(group.runs.iter().map(|run| run.column.as_deref().unwrap_or("")));
    let mut places: Vec<(&str, u64)> = Vec::new();
    for (_, reclaim) in &all {
        // The same comeback in several columns is one line.
        if !places.iter().any(|(class, at)| *class == reclaim.class && at.abs_diff(reclaim.at_ns) < reclaim.window_ns) {
            places.push((&reclaim.class, reclaim.at_ns));
        }
    }
    places.sort_by_key(|(_, at)| *at);
    places.truncate(40);
    let place = |reclaim: &altq_cases::result::Reclaim| {
        places.iter().position(|(class, at)| *class == reclaim.class && at.abs_diff(reclaim.at_ns) < reclaim.window_ns)
    };
    let longest = all.iter().filter_map(|(_, r)| r.within_ns).max().unwrap_or(0).max(1_000_000) as f64 / 1e9;
    let never = longest * 1.15;
    let draw = |width: f64| {
        let mut marks = Vec::new();
        for (n, column) in columns.iter().enumerate() {
            let own = if columns.len() > 1 { super::column_series(column, n) } else { palette(0) };
            let dots = all.iter().filter(|(run, _)| run.column.as_deref().unwrap_or("") == *column).filter_map(
                |(_, reclaim)| {
                    let tells = match reclaim.within_ns {
                        Some(ns) => format!("{column} {}: {}", reclaim.class, time(ns as f64)),
                        None => format!("{column} {}: not while it was watched", reclaim.class),
                    };
                    Some((
                        reclaim.within_ns.map_or(never, |ns| ns as f64 / 1e9),
                        place(reclaim)? as f64,
                        tells.trim().to_owned(),
                    ))
                },
            );
            marks.push(Mark::Dots(own, dots.collect()));
        }
        if all.iter().any(|(_, reclaim)| reclaim.within_ns.is_none()) {
            marks.insert(0, Mark::Across(never, "not while it was watched".into()));
        }
        let names = places.iter().map(|(class, at)| format!("{class} at {}", time(*at as f64))).collect();
        let title = "time until a class that came back had its share".to_owned();
        Sheet {
            title,
            width,
            x: Axis::new("until it has its share", Unit::Time),
            range: Some((0.0, never)),
            panels: vec![Panel::names(names, marks)],
        }
        .svg()
    };
    let mut out = String::from("<h3>Time to reclaim a share</h3>\n");
    if columns.len() > 1 && all.iter().any(|(_, reclaim)| reclaim.within_ns != Some(0)) {
        let items: String =
            columns.iter().enumerate().map(|(n, column)| key(super::column_series(column, n), "dot", column)).collect();
        let _ = writeln!(out, "<ul class=\"legend\">{items}</ul>");
    }
    // One alone is said by the table, and so is that nobody had to wait.
    if places.len() * columns.len() > 1 && all.iter().any(|(_, reclaim)| reclaim.within_ns != Some(0)) {
        let _ = writeln!(out, "<figure>{}</figure>", both(&draw));
    }
    let mut rows = vec![vec!["class".to_owned(), "came back at".into()]];
    rows[0].extend(
        columns
            .iter()
            .map(|column| if column.is_empty() { "had its share after".to_owned() } else { (*column).to_owned() }),
    );
    for (class, at) in &places {
        let mut cells = vec![(*class).to_owned(), time(*at as f64)];
        for column in &columns {
            let found = all.iter().find(|(run, r)| {
                run.column.as_deref().unwrap_or("") == *column
                    && r.class == *class
                    && at.abs_diff(r.at_ns) < r.window_ns
            });
            cells.push(match found {
                Some((_, reclaim)) => reclaim.within_ns.map_or("not while watched".into(), after),
                None => "–".into(),
            });
        }
        rows.push(cells);
    }
    out += &table(&rows);
    out += "<p class=\"quiet small\">From the first packet that had to wait until the first window in which the class \
        got 95 % of its guarantee; a window serves 20 packets of the MTU at the guarantee and lasts 20 ms at least. \
        Only classes that had lacked nothing for such a window, and whose packets then waited that long, are seen to \
        come back.</p>\n";
    out
}
