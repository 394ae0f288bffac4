//! How long it took until classes with new packets had their guarantee back.

use altq_cases::result::{Reclaim, RunSeries};
use maud::{Markup, html};

use super::{column, distinct};
use crate::html::element::{Sign, charts, column_style, legend, table};
use crate::html::text::time;
use crate::plot::{Axis, Chart, Mark, Panel, Style, Unit};

/// The most comebacks that are shown.
const MOST: usize = 40;

/// The comebacks of all columns. The same comeback in several columns counts once.
struct Comebacks<'a> {
    /// Each comeback with its column.
    all: Vec<(&'a str, &'a Reclaim)>,
    columns: Vec<&'a str>,
    /// The comebacks that are shown: class and time, by time.
    shown: Vec<(&'a str, u64)>,
}

/// Whether a reclaim belongs to this comeback.
fn is(reclaim: &Reclaim, (class, at_ns): (&str, u64)) -> bool {
    class == reclaim.class && at_ns.abs_diff(reclaim.at_ns) < reclaim.window_ns
}

impl<'a> Comebacks<'a> {
    fn new(runs: &[&'a RunSeries]) -> Comebacks<'a> {
        let all: Vec<(&str, &Reclaim)> =
            runs.iter().flat_map(|run| run.reclaims.iter().map(|reclaim| (column(run), reclaim))).collect();
        let mut shown: Vec<(&str, u64)> = Vec::new();
        for (_, reclaim) in &all {
            if !shown.iter().any(|comeback| is(reclaim, *comeback)) {
                shown.push((&reclaim.class, reclaim.at_ns));
            }
        }
        shown.sort_by_key(|(_, at)| *at);
        shown.truncate(MOST);
        Comebacks { all, columns: distinct(runs.iter().map(|run| column(run))), shown }
    }

    fn style(&self, n: usize) -> Style {
        if self.columns.len() > 1 { column_style(self.columns.get(n).unwrap_or(&""), n) } else { Style::nth(0) }
    }

    /// True if a class had to wait for its guarantee.
    fn any_waited(&self) -> bool {
        self.all.iter().any(|(_, reclaim)| reclaim.within_ns != Some(0))
    }

    fn chart(&self, width: f64) -> Chart {
        let longest = self.all.iter().filter_map(|(_, reclaim)| reclaim.within_ns).max().unwrap_or(0);
        // A class that did not get its guarantee while it was watched is drawn on a line behind the
        // longest time.
        let never = longest.max(1_000_000) as f64 / 1e9 * 1.15;
        let mut marks = Vec::new();
        if self.all.iter().any(|(_, reclaim)| reclaim.within_ns.is_none()) {
            marks.push(Mark::Across(never, "not while it was watched".into()));
        }
        for (n, column) in self.columns.iter().enumerate() {
            let dots = self.all.iter().filter(|(own, _)| own == column).filter_map(|(_, reclaim)| {
                let row = self.shown.iter().position(|comeback| is(reclaim, *comeback))? as f64;
                let x = reclaim.within_ns.map_or(never, |ns| ns as f64 / 1e9);
                let within = reclaim.within_ns.map_or("not while it was watched".into(), |ns| time(ns as f64));
                Some((x, row, format!("{column} {}: {within}", reclaim.class).trim().to_owned()))
            });
            marks.push(Mark::Dots(self.style(n), dots.collect()));
        }
        let names = self.shown.iter().map(|(class, at)| format!("{class} at {}", time(*at as f64))).collect();
        Chart {
            title: "time until a class that came back had its share".into(),
            width,
            x: Axis::new("until it has its share", Unit::Time),
            range: Some((0.0, never)),
            panels: vec![Panel::names(names, marks)],
        }
    }

    fn table(&self) -> Markup {
        let mut head = vec!["class", "came back at"];
        head.extend(self.columns.iter().map(|column| if column.is_empty() { "had its share after" } else { *column }));
        let row = |comeback: &(&str, u64)| {
            let mut cells = vec![comeback.0.to_owned(), time(comeback.1 as f64)];
            cells.extend(self.columns.iter().map(|column| {
                match self.all.iter().find(|(own, reclaim)| own == column && is(reclaim, *comeback)) {
                    Some((_, reclaim)) => reclaim.within_ns.map_or("not while watched".into(), |ns| match ns {
                        0 => "at once".into(),
                        ns => time(ns as f64),
                    }),
                    None => "–".into(),
                }
            }));
            cells
        };
        table(&head, &self.shown.iter().map(row).collect::<Vec<_>>())
    }
}

/// A chart and a table; empty if there were no comebacks.
pub fn section(runs: &[&RunSeries]) -> Markup {
    let comebacks = Comebacks::new(runs);
    if comebacks.all.is_empty() {
        return Markup::default();
    }
    // The table is enough for a single comeback, or if no class had to wait.
    let (waited, several) = (comebacks.any_waited(), comebacks.columns.len() > 1);
    let names = comebacks.columns.iter().enumerate();
    html! {
        h3 { "Time to reclaim a share" } "\n"
        @if waited && several {
            (legend(names.map(|(n, column)| (comebacks.style(n), Sign::Dot, *column))))
        }
        @if waited && comebacks.shown.len() * comebacks.columns.len() > 1 {
            (charts(&[""], &|_, width| comebacks.chart(width).svg()))
        }
        (comebacks.table())
        p.quiet.small {
            "From the first packet that had to wait until the first window in which the class got 95 % of its \
             guarantee; a window serves 20 packets of the MTU at the guarantee and lasts 20 ms at least. Only classes \
             that had lacked nothing for such a window, and whose packets then waited that long, are seen to come back."
        } "\n"
    }
}
