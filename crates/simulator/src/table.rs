//! From runs to a result: what was measured in every row, column and sample, judged and set beside what was published. The same for
//! both worlds.

use std::collections::BTreeMap;

use crate::case::{Case, CaseFile, Column, Figured, Judged, Probe, Run, Unit};
use crate::result::{CaseResult, ClassResult, FigureResult, FlowResult, Outcome, PeerResult, RunSeries};

/// What a run of a column gave.
pub struct Ran<'a> {
    /// The column.
    pub column: &'a Column,
    /// By the case's figures: what was measured, in the measure's unit.
    pub figures: Vec<Option<f64>>,
    /// By the case's expectations; of those that are not about this column nothing.
    pub measured: Vec<Option<f64>>,
    /// A row a flow.
    pub flows: Vec<FlowResult>,
    /// A row a class.
    pub classes: Vec<ClassResult>,
    /// What stood in the link's place afterwards.
    pub peers: Vec<PeerResult>,
    /// The run over time, where it was kept.
    pub series: Option<RunSeries>,
    /// What the reader must know.
    pub notes: Vec<String>,
    /// Why the figures cannot be trusted.
    pub invalid: Vec<String>,
}

/// The figures of a case, where `measure` says what came out for a probe.
pub fn figures<E>(case: &Case, mut measure: impl FnMut(&Probe) -> Result<Option<f64>, E>) -> Result<Vec<Option<f64>>, E> {
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

/// Puts what all runs of a file gave into its result.
pub fn assemble<'a>(file: &'a CaseFile, runs: Vec<(&'a Run, Vec<Ran<'a>>)>, result: &mut CaseResult) {
    if !file.is_table() {
        for (run, ran) in runs {
            collect(&run.case, ran, result);
        }
        return;
    }
    let mut cells = Cells::default();
    for (run, ran) in runs {
        for ran in ran {
            notes(run, &ran, result);
            cells.add(run, ran, result);
        }
    }
    cells.finish(file, result);
    compare(file, &cells, result);
}

fn notes(run: &Run, ran: &Ran<'_>, result: &mut CaseResult) {
    let row = run.case.row.as_ref().map_or(String::new(), |row| format!("row {row}, "));
    let column = ran.column.name.as_ref().map_or(String::new(), |column| format!("column {column}, "));
    let whose =
        if run.row.is_some() || run.column.is_some() { format!("{row}{column}").replace(", ", ": ") } else { String::new() };
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

/// Puts what the columns of a single case gave into its result.
pub fn collect(case: &Case, ran: Vec<Ran<'_>>, result: &mut CaseResult) {
    for ran in ran {
        for (expectation, measured) in case.expectations.iter().zip(&ran.measured).filter(|(e, _)| e.concerns(ran.column)) {
            result.expectations.push(Outcome::judge(case, ran.column, expectation, *measured));
        }
        for (figure, measured) in case.figures.iter().zip(&ran.figures) {
            result.figures.push(FigureResult {
                row: None,
                column: ran.column.name.clone(),
                figure: figure.name.clone(),
                unit: figure.unit.name.into(),
                measured: measured.map(|m| m / figure.unit.factor),
                samples: Vec::new(),
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

/// A row in a column: all its samples.
#[derive(Default)]
struct Cell<'a> {
    run: Option<&'a Run>,
    /// By figure, then sample.
    figures: Vec<Vec<Option<f64>>>,
    /// By expectation, then sample.
    measured: Vec<Vec<Option<f64>>>,
}

impl Cell<'_> {
    /// The mean over the samples, if all of them have a figure. A ratio is that of the means.
    fn figure(&self, at: usize) -> Option<f64> {
        let case = &self.run?.case;
        match &case.figures.get(at)?.what {
            Figured::Ratio(over, under) => ratio(self.figure(*over), self.figure(*under)),
            Figured::Probe(_) => mean(self.figures.get(at)?),
        }
    }
}

fn mean(samples: &[Option<f64>]) -> Option<f64> {
    let sum: f64 = samples.iter().copied().sum::<Option<f64>>()?;
    (!samples.is_empty()).then(|| sum / samples.len() as f64)
}

/// All of a table, by row and column.
#[derive(Default)]
struct Cells<'a>(BTreeMap<(usize, usize), Cell<'a>>);

impl<'a> Cells<'a> {
    fn add(&mut self, run: &'a Run, ran: Ran<'_>, result: &mut CaseResult) {
        let cell = self.0.entry((run.row.unwrap_or(0), run.column.unwrap_or(0))).or_default();
        if cell.run.is_none() {
            cell.run = Some(run);
            cell.figures = vec![Vec::new(); ran.figures.len()];
            cell.measured = vec![Vec::new(); ran.measured.len()];
            result.flows.extend(ran.flows);
            result.classes.extend(ran.classes);
            result.peers.extend(ran.peers);
            ran.series.into_iter().for_each(|series| result.keep(series));
        }
        cell.figures.iter_mut().zip(ran.figures).for_each(|(list, one)| list.push(one));
        cell.measured.iter_mut().zip(ran.measured).for_each(|(list, one)| list.push(one));
    }

    fn figure(&self, row: usize, column: usize, figure: usize) -> Option<f64> {
        self.0.get(&(row, column))?.figure(figure)
    }

    /// Judges each row in each column, and writes the table.
    fn finish(&self, file: &CaseFile, result: &mut CaseResult) {
        for ((row, place), cell) in &self.0 {
            let Some(run) = cell.run else { continue };
            let (case, Some(column)) = (&run.case, run.case.columns.first()) else { continue };
            for (at, expectation) in case.expectations.iter().enumerate().filter(|(_, e)| e.concerns(column)) {
                let measured = match expectation.figure {
                    Some(figure) => cell.figure(figure),
                    None => cell.measured.get(at).and_then(|samples| mean(samples)),
                };
                result.expectations.push(Outcome::judge(case, column, expectation, measured));
            }
            for (at, figure) in case.figures.iter().enumerate() {
                let measured = cell.figure(at).map(|m| m / figure.unit.factor);
                let published = run.row.and_then(|row| file.rows[row].published.get(&figure.name));
                // A figure of what does not run in this row, and of which nothing was published, is none of its figures.
                if measured.is_none() && published.is_none() {
                    continue;
                }
                let samples = cell.figures.get(at).filter(|s| s.len() > 1);
                result.figures.push(FigureResult {
                    row: case.row.clone(),
                    column: column.name.clone(),
                    figure: figure.name.clone(),
                    unit: figure.unit.name.into(),
                    measured,
                    samples: samples.into_iter().flatten().map(|s| s.map(|s| s / figure.unit.factor)).collect(),
                    published: published.map(|p| p.value),
                    source: published.map(|p| p.source.clone()),
                    error: ratio(measured, published.map(|p| p.value)).map(|r| r - 1.0),
                    not_reproduced: file.excuse(*row, *place, &figure.name).map(str::to_owned),
                });
            }
        }
    }
}

/// Judges what must be true of several rows or columns together.
fn compare(file: &CaseFile, cells: &Cells<'_>, result: &mut CaseResult) {
    for comparison in &file.comparisons {
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
                measure: comparison.measure(),
                unit: if comparison.measure().unit() == Unit::Fraction { "fraction".into() } else { String::new() },
                expected: comparison.expected,
                tolerance: comparison.tolerance,
                bound: comparison.bound,
                measured,
                pass: measured.is_some_and(|m| comparison.holds(m)),
                source: comparison.source.clone(),
                published: false,
            });
        };
        let ran = |row: usize, column: usize| cells.0.contains_key(&(row, column));
        match &comparison.judged {
            // What was not asked to run is not judged.
            Judged::Rows(of, over, under) => {
                for column in columns(of).into_iter().filter(|c| ran(*over, *c) && ran(*under, *c)) {
                    let pair = (cells.figure(*over, column, figure), cells.figure(*under, column, figure));
                    judge(Some(column), None, ratio(pair.0, pair.1));
                }
            }
            Judged::Columns(over, under, rows) => {
                for row in rows.iter().copied().filter(|r| ran(*r, *over) && ran(*r, *under)) {
                    let pair = (cells.figure(row, *over, figure), cells.figure(row, *under, figure));
                    judge(Some(*over), Some(row), ratio(pair.0, pair.1));
                }
            }
            Judged::Monotone(of, rising, rows) => {
                for column in columns(of) {
                    if rows.iter().filter(|row| ran(**row, column)).count() < 2 {
                        continue;
                    }
                    let series: Vec<Option<f64>> =
                        rows.iter().filter(|row| ran(**row, column)).map(|row| cells.figure(*row, column, figure)).collect();
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
