//! Where points end: the rules of a sweep, looked at after each task of a point, in the order of
//! its samples. A point also ends after a task in which every run failed: more of the same tell
//! nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use altq_config::suggest::did_you_mean;
use altq_config::wildcard::fits;

use crate::driver::lock;
use crate::plan::{Plan, Task};
use crate::rows::Table;
use crate::until::Until;
use crate::{SweepError, store};

/// The points of a sweep with rules. Without rules no point ends early, and nothing is kept.
pub struct Points {
    rules: Vec<Until>,
    points: Mutex<BTreeMap<usize, Point>>,
    wanted: Mutex<Wanted>,
}

/// Figures that are asked for, of which it is told early if no run has them. Some points may lack a
/// figure that others have, so each point must have had a good run first.
#[derive(Debug, Default)]
struct Wanted {
    /// Their names, with `*` and `?`, as long as no run has had one.
    forms: Vec<String>,
    /// By point: whether one of its runs went well. Empty where points have a single task: nothing
    /// would be left to save, and the summary tells it.
    good: Vec<bool>,
    /// How many points had such a run.
    count: usize,
}

/// By rule: the samples of its figure.
type Samples = Vec<Vec<Option<f64>>>;

/// What is known of a point.
#[derive(Debug, Default)]
struct Point {
    /// The samples in order, as far as all before them are there.
    samples: Samples,
    /// How many these are.
    count: u32,
    /// What came too early, by its first sample: its end, and the samples.
    early: BTreeMap<u32, (u32, Samples)>,
    /// The number of samples after which it ended.
    ended: Option<u32>,
}

impl Points {
    /// Those of a plan, none of whose results are there.
    pub fn new(plan: &Plan) -> Points {
        let rules = plan.until.clone();
        let forms: Vec<String> = plan.asked_for().map(str::to_owned).collect();
        let points = if forms.is_empty() || plan.samples <= plan.chunk { 0 } else { plan.points.len() };
        let wanted = Mutex::new(Wanted { forms, good: vec![false; points], count: 0 });
        Points { rules, points: Mutex::default(), wanted }
    }

    /// Takes in the results of a task that are there already.
    pub fn read(&self, folder: &Path, task: &Task) -> Result<(), SweepError> {
        if self.rules.is_empty() {
            return Ok(());
        }
        let wanted = |name: &str| name == "error" || self.rules.iter().any(|rule| rule.figure == name);
        let table = store::read(&store::part(folder, task), wanted)?;
        self.keep(task, &table);
        Ok(())
    }

    /// Takes in the results of a task that was done now.
    ///
    /// # Errors
    /// If each point has had a good run, and none of these has a figure that is asked for.
    pub fn add(&self, plan: &Plan, task: &Task, table: &Table) -> Result<(), SweepError> {
        self.look_for(plan, task, table)?;
        self.keep(task, table);
        Ok(())
    }

    fn look_for(&self, plan: &Plan, task: &Task, table: &Table) -> Result<(), SweepError> {
        let mut wanted = lock(&self.wanted);
        if wanted.good.is_empty() || all_failed(table) {
            return Ok(());
        }
        wanted.forms.retain(|form| !table.columns.iter().any(|(name, _)| fits(form, name)));
        for piece in &task.pieces {
            let before = wanted.good.get_mut(piece.point).map(|good| std::mem::replace(good, true));
            wanted.count += usize::from(before == Some(false));
        }
        match wanted.forms.first() {
            Some(form) if wanted.count == wanted.good.len() => Err(SweepError::Wrong(unknown(plan, form, table))),
            _ => Ok(()),
        }
    }

    fn keep(&self, task: &Task, table: &Table) {
        // Of a task with several points each is complete, so there is nothing to end.
        let (false, [piece]) = (self.rules.is_empty(), task.pieces.as_slice()) else { return };
        let samples: Samples = match all_failed(table) {
            // No rule holds of nothing; this is how it is told that all of them failed.
            true => vec![Vec::new(); self.rules.len()],
            false => {
                let of = |rule: &Until| {
                    let cells = table.column(&rule.figure).and_then(|cells| cells.numbers());
                    // A figure that this point does not have has no value in any of its runs.
                    cells.map_or_else(|| vec![None; table.len()], <[Option<f64>]>::to_vec)
                };
                self.rules.iter().map(of).collect()
            }
        };
        let mut points = lock(&self.points);
        let point = points.entry(piece.point).or_default();
        if point.samples.is_empty() {
            point.samples = vec![Vec::new(); self.rules.len()];
        }
        point.early.insert(piece.from, (piece.to, samples));
        point.go_on(&self.rules);
    }

    /// True if a task's samples lie behind the end of their point.
    pub fn is_in_vain(&self, task: &Task) -> bool {
        match (self.rules.is_empty(), task.pieces.as_slice()) {
            (false, [piece]) => self.end(piece.point).is_some_and(|end| piece.from >= end),
            _ => false,
        }
    }

    /// The number of samples after which a point ended.
    pub fn end(&self, point: usize) -> Option<u32> {
        lock(&self.points).get(&point)?.ended
    }
}

impl Point {
    /// Goes on as far as samples are there without a gap, or to the end.
    fn go_on(&mut self, rules: &[Until]) {
        while self.ended.is_none()
            && let Some((to, samples)) = self.early.remove(&self.count)
        {
            self.count = to;
            let failed = samples.iter().all(Vec::is_empty);
            self.samples.iter_mut().zip(samples).for_each(|(own, more)| own.extend(more));
            if failed || rules.iter().zip(&self.samples).all(|(rule, samples)| rule.holds(samples)) {
                self.ended = Some(to);
            }
        }
        if self.ended.is_some() {
            self.early.clear();
        }
    }
}

/// Whether no run of a task has figures.
fn all_failed(table: &Table) -> bool {
    let errors = table.column("error").and_then(|cells| cells.texts()).unwrap_or_default();
    errors.iter().all(Option::is_some)
}

/// The message about a figure that is asked for and that no run has.
fn unknown(plan: &Plan, form: &str, table: &Table) -> String {
    let figures = table.columns.iter().map(|(name, _)| name.as_str()).filter(|name| name.contains('.'));
    let hint = did_you_mean(form, figures).map_or(String::new(), |hint| format!("; {hint}"));
    format!("{}: its runs have no figure {form:?}{hint}", plan.path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(tasks: &[(u32, &[f64])]) -> (Option<u32>, u32) {
        let rules = [Until::parse("ci95(a.p99) < 10%").unwrap()];
        let mut point = Point { samples: vec![Vec::new()], ..Point::default() };
        for (from, samples) in tasks {
            let to = from + 2;
            point.early.insert(*from, (to, vec![samples.iter().copied().map(Some).collect()]));
            point.go_on(&rules);
        }
        (point.ended, point.count)
    }

    #[test]
    fn a_point_ends_at_the_same_sample_in_any_order() {
        // 10 and 12: mean 11, half width 12.706 * 1.4142 / sqrt(2) = 12.706. Then 11, 11: mean 11,
        // deviation 0.8165, half width 3.182 * 0.8165 / 2 = 1.299, which is 11.8 %. Then 11, 11:
        // deviation 0.6325, 2.571 * 0.6325 / sqrt(6) = 0.664, which is 6.0 %.
        let tasks: [(u32, &[f64]); 4] = [(0, &[10.0, 12.0]), (2, &[11.0, 11.0]), (4, &[11.0, 11.0]), (6, &[0.0, 99.0])];
        assert_eq!(point(&tasks), (Some(6), 6));
        assert_eq!(point(&tasks[..2]), (None, 4));
        for order in [[3, 2, 1, 0], [0, 3, 1, 2], [2, 0, 3, 1]] {
            assert_eq!(point(&order.map(|at| tasks[at])), (Some(6), 6), "{order:?}");
        }
        // A gap: nothing is known yet.
        assert_eq!(point(&[tasks[0], tasks[2]]), (None, 2));
        // Every run of the second task failed.
        assert_eq!(point(&[tasks[0], (2, &[]), tasks[2]]), (Some(4), 4));
    }
}
