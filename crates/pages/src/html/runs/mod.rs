//! The section of a page about the runs of a case.
//!
//! ```text
//!  over_time   rates, waits, drops and marks      delays     distributions of delays
//!  shares      what classes had of the link       reclaims   how fast classes came back
//! ```

mod delays;
mod over_time;
mod reclaims;
mod shares;

use altq_cases::result::{CaseResult, ClassResult, RunSeries, SeriesRow};
use maud::{Markup, html};

use super::element::{Sign, charts, legend};
use crate::plot::{Chart, MOST_LINES, Style, heaviest};

/// A row of a case: a run for each column.
pub struct Row<'a> {
    /// Its name, if the case has rows.
    pub name: Option<&'a str>,
    /// Its runs over time.
    runs: Vec<&'a RunSeries>,
    /// The counters of its classes.
    classes: Vec<&'a ClassResult>,
}

/// The rows of a result, in order.
pub fn rows(result: &CaseResult) -> Vec<Row<'_>> {
    let of_runs = result.series.iter().map(|run| run.row.as_deref());
    let names = distinct(of_runs.chain(result.classes.iter().map(|class| class.row.as_deref())));
    let row = |name| Row {
        name,
        runs: result.series.iter().filter(|run| run.row.as_deref() == name).collect(),
        classes: result.classes.iter().filter(|class| class.row.as_deref() == name).collect(),
    };
    names.into_iter().map(row).collect()
}

/// Each value once, in the order in which the values appear first.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for one in all {
        if !distinct.contains(&one) {
            distinct.push(one);
        }
    }
    distinct
}

/// What the lines of a chart stand for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Class,
    Flow,
}

/// The runs of a row, with their lines by class or by flow.
#[derive(Clone, Copy)]
struct Runs<'a> {
    runs: &'a [&'a RunSeries],
    by: By,
}

impl<'a> Runs<'a> {
    /// The classes or flows of a run.
    fn of(self, run: &'a RunSeries) -> &'a [SeriesRow] {
        match self.by {
            By::Class => &run.classes,
            By::Flow => &run.flows,
        }
    }

    /// The classes or flows of all runs.
    fn all(self) -> impl Iterator<Item = &'a SeriesRow> {
        self.runs.iter().flat_map(move |run| self.of(run))
    }

    /// Their names, each once.
    fn names(self) -> Vec<&'a str> {
        distinct(self.all().map(|row| row.name.as_str()))
    }

    /// The runs with only the classes or flows that a chart has lines for: [`MOST_LINES`] at most,
    /// those with the most bytes in all runs together.
    fn drawn(self) -> Vec<RunSeries> {
        let names = self.names();
        let bytes = |name: &&str| self.all().filter(|row| row.name == *name).flat_map(|row| &row.bytes).sum::<u64>();
        let kept = heaviest(&names.iter().map(bytes).collect::<Vec<u64>>());
        let one = |run: &'a RunSeries| {
            let of_run = self.of(run).iter();
            let is_kept = |row: &&SeriesRow| names.iter().zip(&kept).any(|(name, kept)| *kept && row.name == **name);
            let rows: Vec<SeriesRow> = of_run.filter(is_kept).cloned().collect();
            let (classes, flows) = match self.by {
                By::Class => (rows, Vec::new()),
                By::Flow => (Vec::new(), rows),
            };
            RunSeries { column: run.column.clone(), bin_ns: run.bin_ns, classes, flows, ..RunSeries::default() }
        };
        self.runs.iter().copied().map(one).collect()
    }

    /// A legend with a line for each name.
    fn legend(self) -> Markup {
        legend(self.names().into_iter().enumerate().map(|(n, name)| (Style::nth(n), Sign::Line, name)))
    }

    /// A chart for each run.
    fn charts(self, draw: &dyn Fn(&'a RunSeries, f64) -> Chart) -> Markup {
        let captions: Vec<&str> = self.runs.iter().map(|run| column(run)).collect();
        charts(&captions, &|n, width| self.runs.get(n).map_or_else(Markup::default, |run| draw(run, width).svg()))
    }
}

/// The name of a run's column; empty if it has none.
fn column(run: &RunSeries) -> &str {
    run.column.as_deref().unwrap_or("")
}

/// Runs with the classes of one link only, and without flows.
fn of_link(runs: &[&RunSeries], link: &str) -> Vec<RunSeries> {
    let own = |run: &&RunSeries| {
        let classes = run.classes.iter().filter(|class| class.link.as_deref() == Some(link)).cloned();
        RunSeries { column: run.column.clone(), bin_ns: run.bin_ns, classes: classes.collect(), ..RunSeries::default() }
    };
    runs.iter().map(own).filter(|run| !run.classes.is_empty()).collect()
}

/// Everything that is shown about a row.
pub fn section(row: &Row<'_>, result: &CaseResult) -> Markup {
    let classes = Runs { runs: &row.runs, by: By::Class };
    let flows = Runs { by: By::Flow, ..classes };
    let (has_classes, has_flows) = (classes.all().next().is_some(), flows.all().next().is_some());
    let links = distinct(classes.all().filter_map(|class| class.link.as_deref()));
    let left_out: u64 = row.runs.iter().map(|run| run.left_out).sum();
    html! {
        @if has_classes || has_flows {
            @if links.len() > 1 {
                // Each link has its own axes: their rates may differ much.
                @for link in links {
                    @let own = of_link(&row.runs, link);
                    @let runs: Vec<&RunSeries> = own.iter().collect();
                    @let shown = Runs { runs: &runs, by: By::Class };
                    (time_and_delays(shown, &format!(": {link}"), result))
                }
            } @else {
                @let shown = if has_classes { classes } else { flows };
                (time_and_delays(shown, "", result))
            }
            @if has_classes && has_flows && row.name.is_none() {
                details {
                    summary { "The same by flow: what arrived, and the time from source to destination" } "\n"
                    (time_and_delays(flows, " of flows", result))
                } "\n"
            }
            @if left_out > 0 {
                p.quiet.small { (left_out) " more classes and flows were not kept over time." } "\n"
            }
        }
        (shares::section(&row.classes, result))
        (reclaims::section(&row.runs))
    }
}

/// The charts over time and of delays, with lines for those with the most bytes, and the table of
/// all delays. `whose` stands behind the headings.
fn time_and_delays(all: Runs<'_>, whose: &str, result: &CaseResult) -> Markup {
    let drawn = all.drawn();
    let drawn: Vec<&RunSeries> = drawn.iter().collect();
    let shown = Runs { runs: &drawn, by: all.by };
    let (count, of) = (all.names().len(), if all.by == By::Class { "classes" } else { "flows" });
    html! {
        h3 { "Over time" (whose) } "\n"
        @if count > MOST_LINES {
            p.quiet.small {
                "The charts have lines for the " (MOST_LINES) " " (of) " with the most bytes, and leave "
                (count - MOST_LINES) " out."
            } "\n"
        }
        (over_time::section(shown, result))
        h3 { "Delays" (whose) } "\n"
        (delays::section(shown, all))
    }
}
