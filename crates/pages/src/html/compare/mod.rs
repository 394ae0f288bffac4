//! Published, classic and altq: the figures of a case, row by row, as charts and in a table.
//!
//! ```text
//!  chart    a figure over the rows     table    all figures with errors and verdicts
//! ```

mod chart;
mod table;

use altq_cases::case::Bound;
use altq_cases::result::{CaseResult, FigureResult, Outcome};
use maud::{Markup, html};

use super::Source;
use super::element::{Sign, charts, column_style, legend};
use crate::plot::Style;

/// A figure over the rows of a case: the published values, and the measured ones by column.
struct Comparison<'a> {
    /// The figure's name.
    figure: &'a str,
    /// The unit of all its numbers.
    unit: &'a str,
    /// The columns' names, in order; with the world if there are two.
    columns: Vec<String>,
    /// The rows, in order.
    rows: Vec<Row<'a>>,
}

/// A row of a comparison.
struct Row<'a> {
    /// Its name; empty if the case has no rows.
    name: &'a str,
    /// The published value and its source.
    published: Option<(f64, &'a str)>,
    /// The measured values, by column.
    cells: Vec<Option<Cell<'a>>>,
}

/// The measured value of a row in a column.
struct Cell<'a> {
    /// The value; `None` if there was nothing to measure.
    measured: Option<f64>,
    /// Why there is none, if that is known.
    missing: Option<&'a str>,
    /// The smallest and the largest of its samples.
    samples: Option<(f64, f64)>,
    /// Measured divided by published, minus 1; only for columns that should give the published
    /// values.
    error: Option<f64>,
    /// The expectation about it, and whether it held.
    judged: Option<Judged>,
    /// Why the published value does not come out here, if that is known.
    not_reproduced: Option<&'a str>,
    /// True if the result can be trusted.
    valid: bool,
}

/// The expectation about a figure, in the figure's own unit.
#[derive(Clone, Copy)]
struct Judged {
    /// The smallest value that passes; minus infinity if there is none.
    from: f64,
    /// The largest value that passes; infinity if there is none.
    to: f64,
    /// The expected value, if it is not the published one.
    own: Option<f64>,
    /// True if it passed.
    pass: bool,
}

impl Judged {
    /// The range that passes, if it has two ends.
    fn range(&self) -> Option<(f64, f64)> {
        (self.from.is_finite() && self.to.is_finite()).then_some((self.from, self.to))
    }
}

/// A case in a few numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Number of rows.
    pub rows: usize,
    /// Number of published figures.
    pub published: usize,
    /// Number of expectations that hold.
    pub passed: usize,
    /// For the expectations of the column `altq`, or of a case without columns: how many hold, and
    /// how many there are.
    pub altq: (usize, usize),
    /// The largest error of the column `classic`, with its row and figure. Figures that are known
    /// not to come out are left out.
    pub worst: Option<Worst>,
    /// Published figures that do not come out in the column `classic`: row, figure, reason.
    pub not_reproduced: Vec<(String, String, String)>,
}

/// An error against a published figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Worst {
    /// Measured divided by published, minus 1.
    pub error: f64,
    /// Half the width of its 95 % confidence interval, if there are several seeds.
    pub half_width: Option<f64>,
    /// Row and figure.
    pub name: String,
}

/// The summary of a result.
pub fn summary(result: &CaseResult) -> Summary {
    let distinct = |mut all: Vec<(Option<&str>, &str)>| {
        all.sort_unstable();
        all.dedup();
        all.len()
    };
    let figures = || result.figures.iter();
    let row = |figure: &FigureResult| figure.row.clone();
    let published = figures().filter(|f| f.published.is_some());
    let classic = || figures().filter(|figure| figure.column.as_deref() == Some("classic"));
    let errors = classic().filter(|figure| figure.not_reproduced.is_none()).filter_map(|figure| {
        let name = row(figure).map_or(String::new(), |row| format!("{row} ")) + &figure.figure;
        let half_width = figure.half_width.zip(figure.published).map(|(half, published)| (half / published).abs());
        Some(Worst { error: figure.error?, half_width, name })
    });
    let of_altq = |outcome: &&Outcome| matches!(outcome.column.as_deref(), None | Some("altq"));
    let altq = result.expectations.iter().filter(of_altq);
    Summary {
        rows: distinct(figures().filter(|f| f.row.is_some()).map(|f| (f.row.as_deref(), "")).collect()),
        published: distinct(published.map(|f| (f.row.as_deref(), f.figure.as_str())).collect()),
        passed: result.expectations.iter().filter(|outcome| outcome.pass).count(),
        altq: (altq.clone().filter(|outcome| outcome.pass).count(), altq.count()),
        worst: errors.max_by(|a, b| a.error.abs().total_cmp(&b.error.abs())),
        not_reproduced: classic()
            .filter_map(|f| Some((row(f).unwrap_or_default(), f.figure.clone(), f.not_reproduced.clone()?)))
            .collect(),
    }
}

/// The charts and the table; empty if the case has no figures.
pub fn section(sources: &[&Source<'_>]) -> Markup {
    let all = comparisons(sources);
    let Some(first) = all.first() else { return Markup::default() };
    let published = all.iter().any(Comparison::has_published);
    let captions: Vec<&str> = all.iter().map(|comparison| comparison.figure).collect();
    html! {
        h2 { @if published { "Published and measured" } @else { "Figures" } } "\n"
        (first.legend())
        (charts(&captions, &|n, width| all.get(n).map_or_else(Markup::default, |one| one.chart(width).svg())))
        p.quiet.small {
            "Shaded, or as a level stroke: what the tolerance allows."
            @if published {
                " Errors are against what was published; of a column that is not to be as published, against what it \
                 is to be."
            }
        } "\n"
        (table::table(&all, published))
    }
}

/// The comparisons of a case, from its results of one or both worlds.
fn comparisons<'a>(sources: &[&'a Source<'a>]) -> Vec<Comparison<'a>> {
    let mut all: Vec<Comparison<'a>> = Vec::new();
    for source in sources {
        let result = source.result;
        for figure in &result.figures {
            let column = figure.column.as_deref().unwrap_or("altq");
            let column = match sources.len() {
                1 => column.to_owned(),
                _ => format!("{column}, {}", result.world.name()),
            };
            let at = all.iter().position(|c| c.figure == figure.figure && c.unit == figure.unit).unwrap_or_else(|| {
                let (figure, unit) = (figure.figure.as_str(), figure.unit.as_str());
                all.push(Comparison { figure, unit, columns: Vec::new(), rows: Vec::new() });
                all.len() - 1
            });
            all[at].add(column, figure, result);
        }
    }
    all
}

impl<'a> Comparison<'a> {
    fn add(&mut self, column: String, figure: &'a FigureResult, result: &'a CaseResult) {
        let place = self.columns.iter().position(|c| *c == column).unwrap_or_else(|| {
            self.columns.push(column);
            self.columns.len() - 1
        });
        let name = figure.row.as_deref().unwrap_or("");
        let at = self.rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            self.rows.push(Row { name, published: None, cells: Vec::new() });
            self.rows.len() - 1
        });
        let row = &mut self.rows[at];
        row.published = row.published.or(figure.published.map(|value| (value, figure.source.as_deref().unwrap_or(""))));
        row.cells.resize_with(row.cells.len().max(place + 1), || None);
        let samples = figure.samples.iter().flatten().copied();
        let samples = samples
            .fold(None, |range: Option<(f64, f64)>, v| Some(range.map_or((v, v), |(a, b)| (a.min(v), b.max(v)))));
        row.cells[place] = Some(Cell {
            measured: figure.measured,
            missing: figure.missing.as_deref(),
            samples,
            error: figure.error.filter(|_| is_to_be_as_published(figure, result)),
            judged: judged(figure, result),
            not_reproduced: figure.not_reproduced.as_deref(),
            valid: result.valid,
        });
    }

    fn has_published(&self) -> bool {
        self.rows.iter().any(|row| row.published.is_some())
    }

    /// The unit, unless the figure's name says it already.
    fn unit(&self) -> Option<&str> {
        Some(self.unit).filter(|unit| !unit.is_empty() && *unit != self.figure)
    }

    fn style(&self, column: usize) -> Style {
        let name = self.columns.get(column).map_or("", |name| name.as_str());
        match name.split_once(", ") {
            Some((name, "lab")) => Style::new(column_style(name, column).number + 4),
            Some((name, _)) => column_style(name, column),
            None => column_style(name, column),
        }
    }

    fn legend(&self) -> Markup {
        let published = self.has_published().then_some((Style::PUBLISHED, Sign::LineAndDot, "published"));
        let columns = self.columns.iter().enumerate();
        legend(published.into_iter().chain(columns.map(|(n, name)| (self.style(n), Sign::LineAndDot, name.as_str()))))
    }
}

/// Whether a figure's column should give the published values: `classic`, and every column whose
/// expectations are published figures.
fn is_to_be_as_published(figure: &FigureResult, result: &CaseResult) -> bool {
    let expected = |outcome: &Outcome| outcome.published && outcome.column == figure.column;
    figure.column.as_deref().is_none_or(|column| column == "classic") || result.expectations.iter().any(expected)
}

/// The expectation about a figure, if there is one.
fn judged(figure: &FigureResult, result: &CaseResult) -> Option<Judged> {
    let about = |outcome: &&Outcome| {
        outcome.figure.as_deref() == Some(&figure.figure)
            && outcome.row == figure.row
            && outcome.column == figure.column
    };
    let all = || result.expectations.iter().filter(about);
    // If there are several expectations, the published one is shown; all of them must hold.
    let outcome = all().find(|outcome| outcome.published).or(all().next())?;
    let pass = all().all(|outcome| outcome.pass);
    // Expectations are in the measure's unit; the figure's own unit is a multiple of it.
    let factor = match (outcome.measured, figure.measured) {
        (Some(theirs), Some(own)) if own != 0.0 && theirs != 0.0 => theirs / own,
        _ => f64::NAN,
    };
    let (low, high) =
        ((outcome.expected - outcome.tolerance) / factor, (outcome.expected + outcome.tolerance) / factor);
    let (from, to) = match outcome.bound {
        Bound::Within => (low, high),
        Bound::AtMost => (f64::NEG_INFINITY, high),
        Bound::AtLeast => (low, f64::INFINITY),
    };
    let own = Some(outcome.expected / factor).filter(|own| !outcome.published && own.is_finite());
    Some(Judged { from, to, own, pass })
}
