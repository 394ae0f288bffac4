//! The summary of a sweep, `altq.sweep/1`: for each point the means of some figures, with their
//! 95 % confidence intervals by Student's t.

use std::collections::BTreeMap;

use altq_cases::samples::Mean;
use altq_config::wildcard::fits;
use serde::Serialize;

use crate::plan::{Plan, Task};
use crate::rows::Table;

/// The summary of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Summary {
    /// `altq.sweep/1`.
    pub schema: String,
    /// The case's name.
    pub case: String,
    /// The version of altq.
    pub version: String,
    /// Rows of the table.
    pub runs: u64,
    /// Rows with an error.
    pub failed: u64,
    /// The first of these errors; `None` if there is none.
    pub first_error: Option<String>,
    /// Figures that were asked for (to keep, or by rules) and that no run has.
    pub missing: Vec<String>,
    /// The points, in order.
    pub points: Vec<PointSummary>,
}

/// A point.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PointSummary {
    /// The values that the case was given.
    pub values: BTreeMap<String, String>,
    /// The case's row, if it has rows.
    pub row: Option<String>,
    /// The case's column, if it has columns.
    pub column: Option<String>,
    /// Its runs. Fewer than were asked for, if it ended early.
    pub samples: u64,
    /// Those that failed.
    pub failed: u64,
    /// Whether the rules hold of its runs; `None` without rules.
    pub met: Option<bool>,
    /// The figures.
    pub figures: Vec<Shown>,
}

/// A figure of a point.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Shown {
    /// Its name.
    pub name: String,
    /// The mean over the runs that have it; `None` if none has.
    pub mean: Option<f64>,
    /// Half the width of the mean's 95 % confidence interval; `None` of fewer than two runs.
    pub half_width: Option<f64>,
    /// How many runs have it.
    pub samples: u64,
}

/// Adds up the rows of a table, point by point.
pub struct Sums<'a> {
    plan: &'a Plan,
    names: Vec<String>,
    summary: Summary,
    point: Option<Open>,
}

/// The point that is being added up.
struct Open {
    point: usize,
    runs: u64,
    failed: u64,
    /// By figure that is shown.
    samples: Vec<Vec<Option<f64>>>,
    /// By rule, those of its figure.
    of_rules: Vec<Vec<Option<f64>>>,
}

impl<'a> Sums<'a> {
    /// Sums of the figures that `show` means.
    pub fn new(plan: &'a Plan, figures: &[String], show: &[String], missing: Vec<String>) -> Sums<'a> {
        let names = match show.is_empty() {
            false => figures.iter().filter(|name| show.iter().any(|form| fits(form, name))).cloned().collect(),
            true => usual(plan, figures),
        };
        let summary = Summary {
            schema: "altq.sweep/1".into(),
            case: plan.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            runs: 0,
            failed: 0,
            first_error: None,
            missing,
            points: Vec::new(),
        };
        Sums { plan, names, summary, point: None }
    }

    /// Adds the rows of a task.
    pub fn add(&mut self, part: &Table, task: &Task) {
        let errors = part.column("error").and_then(|cells| cells.texts()).unwrap_or_default();
        let of = |name: &String| part.column(name).and_then(|cells| cells.numbers());
        let cells: Vec<Option<&[Option<f64>]>> = self.names.iter().map(of).collect();
        let rules: Vec<Option<&[Option<f64>]>> = self.plan.until.iter().map(|rule| of(&rule.figure)).collect();
        let mut row = 0;
        for piece in &task.pieces {
            if self.point.as_ref().is_none_or(|open| open.point != piece.point) {
                self.close();
                let samples = vec![Vec::new(); cells.len()];
                let of_rules = vec![Vec::new(); rules.len()];
                self.point = Some(Open { point: piece.point, runs: 0, failed: 0, samples, of_rules });
            }
            let Some(open) = &mut self.point else { continue };
            for at in row..row + (piece.to - piece.from) as usize {
                open.runs += 1;
                if let Some(Some(error)) = errors.get(at) {
                    open.failed += 1;
                    self.summary.first_error.get_or_insert_with(|| error.clone());
                }
                let own = open.samples.iter_mut().zip(&cells);
                for (own, cells) in own.chain(open.of_rules.iter_mut().zip(&rules)) {
                    own.extend(cells.and_then(|cells| cells.get(at)).filter(|value| value.is_some()));
                }
            }
            row += (piece.to - piece.from) as usize;
        }
    }

    fn close(&mut self) {
        let Some(Open { point, runs, failed, samples, of_rules }) = self.point.take() else { return };
        let Some(point) = self.plan.points.get(point) else { return };
        let figures = self.names.iter().zip(samples).map(|(name, samples)| {
            let mean = Mean::of(&samples);
            Shown {
                name: name.clone(),
                mean: mean.map(|mean| mean.mean),
                half_width: mean.and_then(|mean| mean.half_width),
                samples: samples.len() as u64,
            }
        });
        let rules = &self.plan.until;
        let holds = || rules.iter().zip(&of_rules).all(|(rule, samples)| rule.holds(samples));
        self.summary.runs += runs;
        self.summary.failed += failed;
        self.summary.points.push(PointSummary {
            values: point.given(),
            row: point.row.clone(),
            column: point.column.clone(),
            samples: runs,
            failed,
            met: (!rules.is_empty()).then(holds),
            figures: figures.collect(),
        });
    }

    /// The summary.
    pub fn finish(mut self) -> Summary {
        self.close();
        self.summary
    }
}

/// The figures that are shown if nothing else is asked for.
fn usual(plan: &Plan, figures: &[String]) -> Vec<String> {
    let rules: Vec<String> = plan.until.iter().map(|rule| rule.figure.clone()).collect();
    if !rules.is_empty() {
        return rules;
    }
    let of = |begin: &str| figures.iter().filter(|name| name.starts_with(begin)).cloned().collect::<Vec<_>>();
    let rates = || {
        let is_rate = |name: &&String| name.ends_with(".rate") && !name.starts_with("flow.");
        figures.iter().filter(is_rate).cloned().collect()
    };
    [of("figure."), of("expect.")].into_iter().find(|list| !list.is_empty()).unwrap_or_else(rates)
}
