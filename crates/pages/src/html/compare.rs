//! Published beside classic beside altq: the figures of a case, row by row, as a table and as
//! plots.

use std::fmt::Write;

use altq_cases::case::Bound;
use altq_cases::result::{CaseResult, FigureResult, Outcome, World};

use super::promises::verdict;
use super::text::{deviation, escaped, number};
use super::{PUBLISHED, Source, column_series, key};
use crate::plot::sheet::{Mark, Panel, Series, Sheet, Side};
use crate::plot::{Axis, Unit};

/// A figure over the rows of a case: what was published, and what came out by column.
pub struct Comparison<'a> {
    /// Its name.
    pub figure: &'a str,
    /// The unit of all its numbers.
    pub unit: &'a str,
    /// Names of the columns, in order; of several worlds with the world.
    pub columns: Vec<String>,
    /// Row by row.
    pub rows: Vec<Line<'a>>,
}

/// A row of a comparison.
pub struct Line<'a> {
    /// Its name; empty where the case has no rows.
    pub row: &'a str,
    /// What was published, and where.
    pub published: Option<(f64, &'a str)>,
    /// By column.
    pub cells: Vec<Option<Cell<'a>>>,
}

/// What came out of a row in a column.
pub struct Cell<'a> {
    /// The figure; `None` if there was nothing to measure.
    pub measured: Option<f64>,
    /// The least and the greatest of its samples.
    pub samples: Option<(f64, f64)>,
    /// Measured over published, less one; of columns that are to be as published.
    pub error: Option<f64>,
    /// What it had to be, in the figure's unit, and whether it was.
    pub judged: Option<Judged>,
    /// Why what was published does not come out here.
    pub not_reproduced: Option<&'a str>,
    /// The result can be trusted.
    pub valid: bool,
}

/// What a figure had to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    /// The least and the greatest that would do; infinite where nothing holds it on a side.
    pub from: f64,
    /// The greatest.
    pub to: f64,
    /// What was expected, where that is not what was published.
    pub own: Option<f64>,
    /// Whether it was.
    pub pass: bool,
}

impl Judged {
    /// The room that it had, where that has two ends.
    fn room(&self) -> Option<(f64, f64)> {
        (self.from.is_finite() && self.to.is_finite()).then_some((self.from, self.to))
    }
}

/// What is said of a case in a summary.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Rows.
    pub rows: usize,
    /// Published figures.
    pub published: usize,
    /// Expectations that hold.
    pub passed: usize,
    /// Expectations of the column `altq`, or of a case without columns: those that hold, and all.
    pub altq: (usize, usize),
    /// The worst error of the column `classic`, and of which row, those left out that are known not
    /// to come out.
    pub worst: Option<(f64, String)>,
    /// Published figures that do not come out in the column `classic`: row, figure, why.
    pub not_reproduced: Vec<(String, String, String)>,
}

/// Counts a result.
pub fn summary(result: &CaseResult) -> Summary {
    let mut rows: Vec<&str> = result.figures.iter().filter_map(|figure| figure.row.as_deref()).collect();
    rows.sort_unstable();
    rows.dedup();
    let mut published: Vec<(Option<&str>, &str)> = result
        .figures
        .iter()
        .filter(|f| f.published.is_some())
        .map(|f| (f.row.as_deref(), f.figure.as_str()))
        .collect();
    published.sort_unstable();
    published.dedup();
    let classic = || result.figures.iter().filter(|figure| figure.column.as_deref() == Some("classic"));
    let errors = classic()
        .filter(|figure| figure.not_reproduced.is_none())
        .filter_map(|figure| Some((figure.error?, named(figure))));
    let ours = |outcome: &&Outcome| matches!(outcome.column.as_deref(), None | Some("altq"));
    let altq = result.expectations.iter().filter(ours);
    Summary {
        rows: rows.len(),
        published: published.len(),
        passed: result.expectations.iter().filter(|outcome| outcome.pass).count(),
        altq: (altq.clone().filter(|outcome| outcome.pass).count(), altq.count()),
        worst: errors.max_by(|(a, _), (b, _)| a.abs().total_cmp(&b.abs())),
        not_reproduced: classic()
            .filter_map(|f| Some((f.row.clone().unwrap_or_default(), f.figure.clone(), f.not_reproduced.clone()?)))
            .collect(),
    }
}

fn named(figure: &FigureResult) -> String {
    match &figure.row {
        Some(row) => format!("{row} {}", figure.figure),
        None => figure.figure.clone(),
    }
}

/// The comparisons of a case, from its results of one or both worlds.
pub fn comparisons<'a>(sources: &[&'a Source<'a>]) -> Vec<Comparison<'a>> {
    let mut all: Vec<Comparison<'a>> = Vec::new();
    for source in sources {
        let result = source.result;
        for figure in &result.figures {
            let column = figure.column.as_deref().unwrap_or("altq");
            let column = match (sources.len(), result.world) {
                (1, _) => column.to_owned(),
                (_, World::Sim) => format!("{column}, sim"),
                (_, World::Lab) => format!("{column}, lab"),
            };
            let at = all.iter().position(|c| c.figure == figure.figure && c.unit == figure.unit).unwrap_or_else(|| {
                all.push(Comparison {
                    figure: &figure.figure,
                    unit: &figure.unit,
                    columns: Vec::new(),
                    rows: Vec::new(),
                });
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
        let row = figure.row.as_deref().unwrap_or("");
        let at = self.rows.iter().position(|line| line.row == row).unwrap_or_else(|| {
            self.rows.push(Line { row, published: None, cells: Vec::new() });
            self.rows.len() - 1
        });
        let line = &mut self.rows[at];
        line.published =
            line.published.or(figure.published.map(|value| (value, figure.source.as_deref().unwrap_or(""))));
        while line.cells.len() <= place {
            line.cells.push(None);
        }
        let samples = figure.samples.iter().flatten().copied();
        let samples = samples
            .fold(None, |range: Option<(f64, f64)>, v| Some(range.map_or((v, v), |(a, b)| (a.min(v), b.max(v)))));
        line.cells[place] = Some(Cell {
            measured: figure.measured,
            samples,
            error: figure.error.filter(|_| reproduces(figure, result)),
            judged: judged(figure, result),
            not_reproduced: figure.not_reproduced.as_deref(),
            valid: result.valid,
        });
    }

    /// Rows as numbers, if some are and rise; what is none (such as `off`) has no place among them.
    fn numbers(&self) -> Option<Vec<Option<f64>>> {
        let numbers: Vec<Option<f64>> = self.rows.iter().map(|line| line.row.parse().ok()).collect();
        let (known, others) = (numbers.iter().flatten().count(), numbers.iter().filter(|n| n.is_none()).count());
        (known > 2 && others < 3 && numbers.iter().flatten().is_sorted()).then_some(numbers)
    }

    fn series(&self, column: usize) -> Series {
        let name = self.columns.get(column).map_or("", |name| name.as_str());
        match name.split_once(", ") {
            Some((name, "lab")) => Series::new(column_series(name, column).number + 4),
            Some((name, _)) => column_series(name, column),
            None => column_series(name, column),
        }
    }

    fn legend(&self) -> String {
        let mut out = String::from("<ul class=\"legend\">");
        if self.rows.iter().any(|line| line.published.is_some()) {
            out += &key(PUBLISHED, "both", "published");
        }
        for (n, column) in self.columns.iter().enumerate() {
            out += &key(self.series(n), "both", column);
        }
        out + "</ul>\n"
    }

    fn chart(&self, width: f64) -> String {
        let title = format!("{}: published beside {}", self.figure, self.columns.join(", "));
        let label = if self.unit.is_empty() || self.unit == self.figure {
            self.figure.to_owned()
        } else {
            format!("{} [{}]", self.figure, self.unit)
        };
        let axis = Axis::new(&label, Unit::Count);
        let tell = |line: &Line<'_>, who: &str, value: f64| {
            format!("{} {who}: {} {}", line.row, number(value), self.unit).trim().to_owned()
        };
        match self.numbers() {
            Some(xs) => {
                let mut marks = Vec::new();
                let known: Vec<f64> = xs.iter().flatten().copied().collect();
                for n in 0..self.columns.len() {
                    let band = self.rows.iter().zip(&xs).filter_map(|(line, x)| {
                        let x = x.as_ref()?;
                        let (low, high) = line.cells.get(n)?.as_ref()?.judged?.room()?;
                        Some((*x, low, high))
                    });
                    marks.push(Mark::Band(self.series(n), band.collect()));
                }
                // What has no place on the axis is a level beside it.
                for line in self.rows.iter().zip(&xs).filter(|(_, x)| x.is_none()).map(|(line, _)| line) {
                    if let Some((value, _)) = line.published {
                        marks.push(Mark::Level(PUBLISHED, value, format!("{}, published", line.row)));
                        continue;
                    }
                    // Levels that cannot be told apart have one name.
                    let mut levels: Vec<(usize, f64, String)> = Vec::new();
                    for (n, column) in self.columns.iter().enumerate() {
                        let Some(value) = line.cells.get(n).and_then(|cell| cell.as_ref()?.measured) else { continue };
                        match levels
                            .iter_mut()
                            .find(|(_, other, _)| (value - *other).abs() <= 0.06 * value.abs().max(other.abs()))
                        {
                            Some((_, _, name)) => *name += &format!(" and {column}"),
                            None => levels.push((n, value, format!("{}, {column}", line.row))),
                        }
                    }
                    marks.extend(levels.into_iter().map(|(n, value, name)| Mark::Level(self.series(n), value, name)));
                }
                let published = self.rows.iter().zip(&xs).filter_map(|(line, x)| {
                    let value = line.published?.0;
                    Some(((*x)?, value, tell(line, "published", value)))
                });
                let published: Vec<_> = published.collect();
                marks.push(Mark::Line(PUBLISHED.faint(), published.iter().map(|(x, y, _)| (*x, *y)).collect()));
                for (n, column) in self.columns.iter().enumerate() {
                    let points = self.rows.iter().zip(&xs).filter_map(|(line, x)| {
                        let x = x.as_ref()?;
                        let measured = line.cells.get(n)?.as_ref()?.measured?;
                        Some((*x, measured, tell(line, column, measured)))
                    });
                    let points: Vec<_> = points.collect();
                    marks.push(Mark::Line(self.series(n), points.iter().map(|(x, y, _)| (*x, *y)).collect()));
                    marks.push(Mark::Dots(self.series(n), points));
                }
                marks.push(Mark::Dots(PUBLISHED, published));
                let panels = vec![Panel {
                    height: if width > 500.0 { 300.0 } else { 230.0 },
                    y: Side::Values(axis, Some((0.0, 0.0))),
                    marks,
                }];
                Sheet {
                    title,
                    width,
                    x: Axis::new("row", Unit::Count),
                    range: known.first().copied().zip(known.last().copied()),
                    panels,
                }
                .svg()
            }
            None => {
                let mut marks = Vec::new();
                // What was published, and each column, has a lane of its own, so that none hides
                // another.
                let has_published = self.rows.iter().any(|line| line.published.is_some());
                let first = usize::from(has_published);
                let lanes = first + self.columns.len();
                let lane = |at: f64, n: usize| at + ((n as f64 + 0.5) / lanes.max(1) as f64 - 0.5) * 0.84;
                for (at, line) in self.rows.iter().enumerate() {
                    let row = at as f64;
                    for (n, column) in self.columns.iter().enumerate() {
                        let at = lane(row, first + n);
                        let Some(cell) = line.cells.get(n).and_then(Option::as_ref) else { continue };
                        if let Some((low, high)) = cell.judged.and_then(|judged| judged.room()) {
                            marks.push(Mark::Span(self.series(n), at, low, high));
                        }
                        if let Some(measured) = cell.measured {
                            marks.push(Mark::Dots(self.series(n), vec![(measured, at, tell(line, column, measured))]));
                        }
                    }
                    if let Some((value, _)) = line.published {
                        marks.push(Mark::Dots(PUBLISHED, vec![(value, lane(row, 0), tell(line, "published", value))]));
                    }
                }
                let names = self
                    .rows
                    .iter()
                    .map(|line| if line.row.is_empty() { self.figure.to_owned() } else { line.row.to_owned() })
                    .collect();
                let figures = |line: &Line<'_>| {
                    let cells = line.cells.iter().flatten();
                    cells.filter_map(|c| c.measured).chain(line.published.map(|p| p.0)).fold(0.0, f64::max)
                };
                let most = self.rows.iter().map(figures).fold(0.0, f64::max);
                let rooms = self.rows.iter().flat_map(|line| line.cells.iter().flatten());
                let room = rooms.filter_map(|cell| Some(cell.judged?.room()?.1)).fold(0.0, f64::max);
                // The room of a tolerance is seen whole, unless it is so wide that nothing else
                // would be.
                let end = (most * 1.04).max(room.min(most * 1.5) * 1.01);
                let panels = vec![Panel { height: 10.0 + 8.0 * lanes as f64, ..Panel::names(names, marks) }];
                Sheet { title, width, x: axis, range: Some((0.0, end)), panels }.svg()
            }
        }
    }
}

/// True of a figure of a column that is to be as published: classic, and every one of which that is
/// expected somewhere.
fn reproduces(figure: &FigureResult, result: &CaseResult) -> bool {
    let expected = |outcome: &Outcome| outcome.published && outcome.column == figure.column;
    figure.column.as_deref().is_none_or(|column| column == "classic") || result.expectations.iter().any(expected)
}

/// What a figure had to be, in its own unit.
fn judged(figure: &FigureResult, result: &CaseResult) -> Option<Judged> {
    let about = |outcome: &&Outcome| {
        outcome.figure.as_deref() == Some(&figure.figure)
            && outcome.row == figure.row
            && outcome.column == figure.column
    };
    let all = || result.expectations.iter().filter(about);
    // Of several the published one is shown; all of them must hold.
    let outcome = all().find(|outcome| outcome.published).or(all().next())?;
    let pass = all().all(|outcome| outcome.pass);
    // Expectations are in the measure's unit; the figure's own is a multiple of it.
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

/// The plots and the table; nothing where the case has no figures.
pub fn section(sources: &[&Source<'_>]) -> String {
    let all = comparisons(sources);
    let Some(first) = all.first() else { return String::new() };
    let has_published = all.iter().any(|c| c.rows.iter().any(|line| line.published.is_some()));
    let title = if has_published { "Published and measured" } else { "Figures" };
    let mut out = format!("<h2>{title}</h2>\n{}", first.legend());
    let captions: Vec<&str> = all.iter().map(|c| c.figure).collect();
    out += &super::beside(&captions, &|n, width| all.get(n).map_or(String::new(), |c| c.chart(width)));
    out += "<p class=\"quiet small\">Shaded, or as a level stroke: what the tolerance allows.";
    if has_published {
        out += " Errors are against what was published; of a column that is not to be as published, against what it is \
            to be.";
    }
    out += "</p>\n";
    out += &table(&all, has_published);
    out
}

fn table(all: &[Comparison<'_>], has_published: bool) -> String {
    let mut columns: Vec<&str> = Vec::new();
    for column in all.iter().flat_map(|c| &c.columns) {
        if !columns.contains(&column.as_str()) {
            columns.push(column);
        }
    }
    // Figures stand below one another, and so do errors and verdicts beside them, where a column
    // has any.
    let cells = |column: &str| {
        let at = move |c: &&Comparison<'_>| c.columns.iter().position(|name| name == column);
        all.iter()
            .filter_map(move |c| Some((c, at(&c)?)))
            .flat_map(|(c, n)| c.rows.iter().filter_map(move |line| line.cells.get(n)?.as_ref()))
            .collect::<Vec<_>>()
    };
    let rooms: Vec<Rooms> = columns.iter().map(|column| Rooms::of(&cells(column))).collect();
    let heads: String = columns
        .iter()
        .zip(&rooms)
        .map(|(column, room)| {
            format!(
                "<th class=\"column\" style=\"--after:{:.1}rem\">{}</th>",
                room.error + room.verdict,
                escaped(column)
            )
        })
        .collect();
    let mut out = format!(
        "<div class=\"scroll\"><table class=\"compare\">\n<thead><tr><th>row</th>{}{heads}{}</tr></thead>\n<tbody>\n",
        if has_published { "<th>published</th>" } else { "" },
        if has_published { "<th class=\"text\">where</th>" } else { "" },
    );
    let mut reasons: Vec<&str> = Vec::new();
    for comparison in all {
        let unit = if comparison.unit.is_empty() || comparison.unit == comparison.figure {
            String::new()
        } else {
            format!(" [{}]", comparison.unit)
        };
        let span = columns.len() + 3;
        let _ = writeln!(
            out,
            "<tr class=\"part\"><th colspan=\"{span}\">{}{}</th></tr>",
            escaped(comparison.figure),
            escaped(&unit)
        );
        for line in &comparison.rows {
            let _ = write!(
                out,
                "<tr><th scope=\"row\">{}</th>",
                escaped(if line.row.is_empty() { comparison.figure } else { line.row })
            );
            if has_published {
                let _ = write!(out, "<td>{}</td>", line.published.map_or("–".into(), |(value, _)| number(value)));
            }
            for (column, room) in columns.iter().zip(&rooms) {
                let place = comparison.columns.iter().position(|c| c == column);
                match place.and_then(|n| line.cells.get(n)).and_then(Option::as_ref) {
                    Some(cell) => out += &cell.markup(room, &mut reasons),
                    None => out += &room.around("–", "", ""),
                }
            }
            if has_published {
                let _ = write!(
                    out,
                    "<td class=\"text quiet\">{}</td>",
                    escaped(line.published.map_or("", |(_, source)| source))
                );
            }
            out += "</tr>\n";
        }
    }
    out += "</tbody></table></div>\n";
    if !reasons.is_empty() {
        out += "<p class=\"small\">Published figures that do not come out, and why:</p>\n<ol class=\"small\">\n";
        for reason in reasons {
            let _ = writeln!(out, "<li>{}</li>", escaped(reason));
        }
        out += "</ol>\n";
    }
    out
}

/// How much a column's errors and verdicts take, in rem.
struct Rooms {
    error: f64,
    verdict: f64,
}

impl Rooms {
    fn of(cells: &[&Cell<'_>]) -> Rooms {
        let longest = cells.iter().map(|cell| cell.off().chars().count()).max().unwrap_or(0);
        let judged = cells.iter().any(|cell| cell.judged.is_some());
        let error = if longest == 0 { 0.0 } else { longest as f64 * 0.44 + 0.6 };
        Rooms { error, verdict: if judged { 3.4 } else { 0.0 } }
    }

    /// A cell of the table.
    fn around(&self, figure: &str, error: &str, verdict: &str) -> String {
        let mut out = format!("<td><span class=\"cell\"><span>{figure}</span>");
        for (room, class, what) in [(self.error, "error", error), (self.verdict, "judged", verdict)] {
            if room > 0.0 {
                let _ = write!(out, "<span class=\"{class}\" style=\"--room:{room:.1}rem\">{what}</span>");
            }
        }
        out + "</span></td>"
    }
}

impl<'a> Cell<'a> {
    /// How far off it is: of what was published, or of what it is to be.
    fn off(&self) -> String {
        match (self.judged.and_then(|judged| judged.own), self.measured) {
            _ if self.not_reproduced.is_some() => self.error.map_or(String::new(), deviation),
            // What is not to be as published is set beside what it is to be.
            (Some(own), Some(measured)) if own != 0.0 => {
                format!("{} of {}", deviation(measured / own - 1.0), number(own))
            }
            _ => self.error.map_or(String::new(), deviation),
        }
    }

    /// Its cell in the table: the figure, how far it is off, the verdict. `reasons`: those that
    /// notes below the table give.
    fn markup(&self, room: &Rooms, reasons: &mut Vec<&'a str>) -> String {
        let mut figure = self.measured.map_or("–".into(), number);
        if let Some(reason) = self.not_reproduced {
            let n = reasons.iter().position(|r| *r == reason).unwrap_or_else(|| {
                reasons.push(reason);
                reasons.len() - 1
            });
            let _ = write!(figure, "<sup>{}</sup>", n + 1);
        }
        let samples = self.samples.filter(|(low, high)| low < high);
        let error = match samples {
            Some((low, high)) => {
                format!("<span title=\"samples from {} to {}\">{}</span>", number(low), number(high), self.off())
            }
            None => self.off(),
        };
        let verdict = self.judged.map_or(String::new(), |judged| {
            let room = match (judged.from.is_finite(), judged.to.is_finite()) {
                (true, true) => format!("from {} to {}", number(judged.from), number(judged.to)),
                (true, false) => format!("at least {}", number(judged.from)),
                (false, true) => format!("at most {}", number(judged.to)),
                (false, false) => String::new(),
            };
            format!("<span title=\"{room}\">{}</span>", verdict(self.valid, judged.pass))
        });
        room.around(&figure, &error, &verdict)
    }
}
