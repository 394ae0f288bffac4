//! From runs to a result: the measured values of every row, column and sample are judged, and put
//! beside what was published. The same for both worlds.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::case::{Case, CaseFile, Column, Expectation, Figured, Judged, Probe, Run, Unit};
use crate::result::{CaseResult, ClassResult, FigureResult, FlowResult, Outcome, PeerResult, RunSeries, World};

/// The outcome of a run of a column.
pub struct ColumnResult<'a> {
    /// The column.
    pub column: Cow<'a, Column>,
    /// By the case's figures: the measured value, in the measure's unit.
    pub figures: Vec<Option<f64>>,
    /// By the case's expectations: the measured value; `None` if the expectation is not about this
    /// column.
    pub measured: Vec<Option<f64>>,
    /// Indices of the expectations that this world cannot judge; they are left out.
    pub unjudged: Vec<usize>,
    /// A row for each flow.
    pub flows: Vec<FlowResult>,
    /// A row for each class.
    pub classes: Vec<ClassResult>,
    /// Results of the same traffic through something else in the link's place.
    pub peers: Vec<PeerResult>,
    /// The run over time, if that was kept.
    pub series: Option<RunSeries>,
    /// Remarks for the reader.
    pub notes: Vec<String>,
    /// Why the figures cannot be trusted.
    pub invalid: Vec<String>,
    /// True if the host is among the reasons: other machines took its processors, or its timers
    /// were late.
    pub disturbed: bool,
    /// The run is a turn whose figures are left out, because they cannot be trusted.
    pub left_out: bool,
}

/// The figures of a case. `measure` returns the value of a probe.
pub fn figures<E>(
    case: &Case,
    mut measure: impl FnMut(&Probe) -> Result<Option<f64>, E>,
) -> Result<Vec<Option<f64>>, E> {
    let mut figures: Vec<Option<f64>> = Vec::with_capacity(case.figures.len());
    for figure in &case.figures {
        let value = match &figure.what {
            _ if !figure.here => None,
            Figured::Probe(probe) => measure(probe)?,
            Figured::Ratio(over, under) => ratio(figures[*over], figures[*under]),
        };
        figures.push(value);
    }
    Ok(figures)
}

/// The ratio of two figures, if there is one.
pub fn ratio(over: Option<f64>, under: Option<f64>) -> Option<f64> {
    Some(over? / under.filter(|under| *under != 0.0)?)
}

/// Adds the outcomes of all runs of a file to its result.
pub fn assemble<'a>(file: &'a CaseFile, runs: Vec<(&'a Run, Vec<ColumnResult<'a>>)>, result: &mut CaseResult) {
    if !file.is_table() {
        for (run, ran) in runs {
            collect(&run.case, ran, result);
        }
        return;
    }
    let turns = result.world == World::Lab && file.turns() > 1;
    let mut cells = Cells { turns, ..Cells::default() };
    for (run, ran) in runs {
        for ran in ran {
            notes(run, &ran, result);
            cells.add(run, ran, result);
        }
    }
    cells.finish(file, result);
    compare(file, &cells, result);
}

fn notes(run: &Run, ran: &ColumnResult<'_>, result: &mut CaseResult) {
    let row = run.case.row.as_ref().map_or(String::new(), |row| format!("row {row}, "));
    let column = ran.column.name.as_ref().map_or(String::new(), |column| format!("column {column}, "));
    let whose = if run.row.is_some() || run.column.is_some() {
        format!("{row}{column}").replace(", ", ": ")
    } else {
        String::new()
    };
    for note in &ran.notes {
        let note = format!("{whose}{note}");
        if !result.notes.contains(&note) {
            result.notes.push(note);
        }
    }
    for why in &ran.invalid {
        let why = format!("{whose}{why}");
        if !result.notes.contains(&why) {
            result.invalid(why);
        }
        result.valid = false;
    }
}

/// Adds the outcomes of the columns of a single case to its result.
pub fn collect(case: &Case, ran: Vec<ColumnResult<'_>>, result: &mut CaseResult) {
    for ran in ran {
        let missing = |why: Option<String>, measured: Option<f64>| match measured {
            None if ran.left_out => Some("this turn was left out".to_owned()),
            _ => why,
        };
        for (at, (expectation, measured)) in case.expectations.iter().zip(&ran.measured).enumerate() {
            if expectation.concerns(&ran.column, result.world) && !ran.unjudged.contains(&at) {
                let outcome = Outcome::judge(case, &ran.column, expectation, *measured);
                result.expectations.push(Outcome { missing: missing(outcome.missing, *measured), ..outcome });
            }
        }
        for (figure, measured) in case.figures.iter().zip(&ran.figures) {
            result.figures.push(FigureResult {
                row: None,
                column: ran.column.name.clone(),
                figure: figure.name.clone(),
                unit: figure.unit.name.into(),
                measured: measured.map(|m| m / figure.unit.factor),
                missing: missing(None, *measured),
                samples: Vec::new(),
                half_width: None,
                published: None,
                source: None,
                error: None,
                not_reproduced: None,
            });
        }
        for why in &ran.invalid {
            result.invalid(why.clone());
        }
        result.notes.extend(ran.notes);
        result.flows.extend(ran.flows);
        result.classes.extend(ran.classes);
        result.peers.extend(ran.peers);
        ran.series.into_iter().for_each(|series| result.keep(series));
    }
}

/// A row in a column, with all its samples.
#[derive(Default)]
struct Cell<'a> {
    run: Option<&'a Run>,
    /// The values by figure and sample.
    figures: Vec<Vec<Option<f64>>>,
    /// The values by expectation and sample.
    measured: Vec<Vec<Option<f64>>>,
    /// Indices of the expectations that are left out.
    unjudged: Vec<usize>,
    /// The number of its runs, and of those whose figures are left out.
    runs: usize,
    left_out: usize,
}

impl Cell<'_> {
    /// Why it has no figures, if all of its runs are left out.
    fn missing(&self) -> Option<String> {
        (self.runs > 0 && self.left_out == self.runs).then(|| format!("all {} turns were left out", self.runs))
    }

    /// The mean over the samples, if each of them has a value; a ratio is that of the means. With
    /// turns it is the median; a ratio is then the median of the ratios of the turns.
    fn figure(&self, at: usize, turns: bool) -> Option<f64> {
        let case = &self.run?.case;
        match &case.figures.get(at)?.what {
            _ if turns => median(self.figures.get(at)?),
            Figured::Ratio(over, under) => ratio(self.figure(*over, turns), self.figure(*under, turns)),
            Figured::Probe(_) => mean(self.figures.get(at)?),
        }
    }
}

/// The median of the existing values; of an even number the mean of the two in the middle.
fn median(samples: &[Option<f64>]) -> Option<f64> {
    let mut known: Vec<f64> = samples.iter().flatten().copied().collect();
    known.sort_by(f64::total_cmp);
    let half = known.len() / 2;
    match known.len() % 2 {
        1 => known.get(half).copied(),
        _ => Some((known.get(half.checked_sub(1)?)? + known.get(half)?) / 2.0),
    }
}

fn mean(samples: &[Option<f64>]) -> Option<f64> {
    let sum: f64 = samples.iter().copied().sum::<Option<f64>>()?;
    (!samples.is_empty()).then(|| sum / samples.len() as f64)
}

/// All cells of a table, by row and column.
#[derive(Default)]
struct Cells<'a> {
    cells: BTreeMap<(usize, usize), Cell<'a>>,
    /// True if the samples are turns of the lab, of which the median counts.
    turns: bool,
}

impl<'a> Cells<'a> {
    fn add(&mut self, run: &'a Run, ran: ColumnResult<'_>, result: &mut CaseResult) {
        let cell = self.cells.entry((run.row.unwrap_or(0), run.column.unwrap_or(0))).or_default();
        if cell.run.is_none() {
            cell.run = Some(run);
            cell.figures = vec![Vec::new(); ran.figures.len()];
            cell.measured = vec![Vec::new(); ran.measured.len()];
            cell.unjudged = ran.unjudged;
            result.flows.extend(ran.flows);
            result.classes.extend(ran.classes);
            result.peers.extend(ran.peers);
            ran.series.into_iter().for_each(|series| result.keep(series));
        }
        cell.runs += 1;
        cell.left_out += usize::from(ran.left_out);
        cell.figures.iter_mut().zip(ran.figures).for_each(|(list, one)| list.push(one));
        cell.measured.iter_mut().zip(ran.measured).for_each(|(list, one)| list.push(one));
    }

    fn figure(&self, row: usize, column: usize, figure: usize) -> Option<f64> {
        self.cells.get(&(row, column))?.figure(figure, self.turns)
    }

    /// The ratio of a figure in two cells; with turns the median of the ratios of the turns.
    fn ratio(&self, over: (usize, usize), under: (usize, usize), figure: usize) -> Option<f64> {
        if !self.turns {
            return ratio(self.figure(over.0, over.1, figure), self.figure(under.0, under.1, figure));
        }
        let samples = |place| self.cells.get(&place)?.figures.get(figure);
        let pairs = samples(over)?.iter().zip(samples(under)?);
        median(&pairs.map(|(over, under)| ratio(*over, *under)).collect::<Vec<_>>())
    }

    /// Judges each row in each column, and makes the table.
    fn finish(&self, file: &CaseFile, result: &mut CaseResult) {
        for ((row, place), cell) in &self.cells {
            let Some(run) = cell.run else { continue };
            let (case, Some(column)) = (&run.case, run.case.columns.first()) else { continue };
            let judged =
                |(at, e): &(usize, &Expectation)| e.concerns(column, result.world) && !cell.unjudged.contains(at);
            for (at, expectation) in case.expectations.iter().enumerate().filter(judged) {
                let measured = match expectation.figure {
                    Some(figure) => cell.figure(figure, self.turns),
                    None if self.turns => cell.measured.get(at).and_then(|samples| median(samples)),
                    None => cell.measured.get(at).and_then(|samples| mean(samples)),
                };
                let outcome = Outcome::judge(case, column, expectation, measured);
                let missing = cell.missing().filter(|_| measured.is_none()).or(outcome.missing);
                result.expectations.push(Outcome { missing, ..outcome });
            }
            for (at, figure) in case.figures.iter().enumerate() {
                let measured = cell.figure(at, self.turns).map(|m| m / figure.unit.factor);
                let published = run.row.and_then(|row| file.rows[row].published.get(&figure.name));
                let missing = cell.missing().filter(|_| measured.is_none() && figure.here);
                // A figure without a measured and without a published value does not belong to this
                // row.
                if measured.is_none() && published.is_none() && missing.is_none() {
                    continue;
                }
                let samples = cell.figures.get(at).filter(|s| s.len() > 1);
                result.figures.push(FigureResult {
                    row: case.row.clone(),
                    column: column.name.clone(),
                    figure: figure.name.clone(),
                    unit: figure.unit.name.into(),
                    measured,
                    missing,
                    samples: samples.into_iter().flatten().map(|s| s.map(|s| s / figure.unit.factor)).collect(),
                    half_width: None,
                    published: published.map(|p| p.value),
                    source: published.map(|p| p.source.clone()),
                    error: ratio(measured, published.map(|p| p.value)).map(|r| r - 1.0),
                    not_reproduced: file.excuse(*row, *place, &figure.name).map(str::to_owned),
                });
            }
        }
    }
}

/// Judges the conditions on several rows or columns together.
fn compare(file: &CaseFile, cells: &Cells<'_>, result: &mut CaseResult) {
    for comparison in file.comparisons.iter().filter(|own| own.world.is_none_or(|world| world == result.world)) {
        let Some(figure) = file.figures().iter().position(|f| f.name == comparison.figure) else { continue };
        let columns = |of: &Option<usize>| of.map_or_else(|| (0..file.columns.len().max(1)).collect(), |one| vec![one]);
        let mut judge = |column: Option<usize>, row: Option<usize>, measured: Option<f64>| {
            let column = column.and_then(|c| file.columns.get(c)).cloned();
            let row = row.and_then(|r| file.rows.get(r)).map(|r| r.name.clone());
            let parts = [Some(file.name.clone()), column.clone(), row.clone(), Some(comparison.name.clone())];
            result.expectations.push(Outcome {
                name: parts.into_iter().flatten().collect::<Vec<_>>().join("/"),
                column,
                row,
                figure: None,
                class: None,
                flow: None,
                measure: comparison.measure(),
                unit: if comparison.measure().unit() == Unit::Fraction { "fraction".into() } else { String::new() },
                expected: comparison.expected,
                tolerance: comparison.tolerance,
                bound: comparison.bound,
                measured,
                missing: cells.cells.values().find_map(Cell::missing).filter(|_| measured.is_none()),
                samples: Vec::new(),
                half_width: None,
                fails_at: Vec::new(),
                pass: measured.is_some_and(|m| comparison.holds(m)),
                source: comparison.source.clone(),
                published: false,
            });
        };
        let ran = |row: usize, column: usize| cells.cells.contains_key(&(row, column));
        match &comparison.judged {
            // Cells that did not run are not judged.
            Judged::Rows(of, over, under) => {
                for column in columns(of).into_iter().filter(|c| ran(*over, *c) && ran(*under, *c)) {
                    judge(Some(column), None, cells.ratio((*over, column), (*under, column), figure));
                }
            }
            Judged::Columns(over, under, rows) => {
                for row in rows.iter().copied().filter(|r| ran(*r, *over) && ran(*r, *under)) {
                    judge(Some(*over), Some(row), cells.ratio((row, *over), (row, *under), figure));
                }
            }
            Judged::Monotone(of, rising, rows) => {
                for column in columns(of) {
                    if rows.iter().filter(|row| ran(**row, column)).count() < 2 {
                        continue;
                    }
                    let series: Vec<Option<f64>> = rows
                        .iter()
                        .filter(|row| ran(**row, column))
                        .map(|row| cells.figure(*row, column, figure))
                        .collect();
                    let steps = series.windows(2).map(|pair| {
                        let step = ratio(pair[1], pair[0])? - 1.0;
                        Some(if *rising { step } else { -step }.min(0.0))
                    });
                    let worst = steps.reduce(|a, b| Some(a?.min(b?))).flatten();
                    judge(Some(column), None, worst);
                }
            }
        }
    }
}
