//! One run: a case with its values and a seed; and the runs of a task.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use altq_cases::case::{Case, CaseFile};
use altq_config::wildcard::fits;
use altq_engine::units::Nanos;
use altq_simulator::sim::{self, Limits, ReadCounters, SimError, Watch};
use serde::{Deserialize, Serialize};

use crate::figures::{self, Figures};
use crate::plan::{self, Plan, Point, Task};
use crate::rows::Table;

/// Limits of a run that do not depend on the host, so that what passes them is the same everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// The most events of a run.
    pub events: Option<u64>,
    /// The longest duration of a case, in nanoseconds of its own time.
    pub time: Option<Nanos>,
}

/// Everything that a run needs beside its point and its seed. A worker is sent it first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The case's path: files that it names are looked for in its folder.
    pub path: PathBuf,
    /// The case's text.
    pub text: String,
    /// The figures to keep; none: all.
    pub figures: Vec<String>,
    /// Limits of a run.
    pub limit: Limit,
}

impl Job {
    /// The job of a plan.
    pub fn of(plan: &Plan) -> Job {
        Job { path: plan.path.clone(), text: plan.text.clone(), figures: plan.figures.clone(), limit: plan.limit }
    }
}

/// The figures of a run, or why it has none.
pub type Outcome = Result<Figures, String>;

/// What became of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// The sample of its point.
    pub sample: u32,
    /// Its seed.
    pub seed: u64,
    /// Its figures, or why it has none.
    pub outcome: Outcome,
}

/// Runs of a point, one after another, as a worker is asked for them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runs {
    /// The point.
    pub point: Point,
    /// The seed of the first run; each has the seed after that of the one before.
    pub seed: u64,
    /// How many.
    pub count: u32,
}

/// What a case says with some values.
type Read = (Vec<(String, String)>, Result<CaseFile, String>);

/// Runs points of a job, one after another. A case that was read is kept for the next run.
pub struct Runner {
    job: Job,
    counters: Option<ReadCounters>,
    stop: Arc<AtomicBool>,
    read: Option<Read>,
    case: Option<(Point, Result<Case, String>)>,
}

impl Runner {
    /// A runner. `counters` reads counters as `tc -s` prints them, for expectations about these.
    /// Once `stop` is set, a run ends without a result within 100 ms.
    pub fn new(job: Job, counters: Option<ReadCounters>, stop: Arc<AtomicBool>) -> Runner {
        Runner { job, counters, stop, read: None, case: None }
    }

    /// Runs a point with a seed.
    ///
    /// # Errors
    /// `None` if it was stopped; else why it has no figures. The words are the same on every host.
    pub fn run(&mut self, point: &Point, seed: u64) -> Result<Figures, Option<String>> {
        self.prepare(point);
        let case = match &self.case {
            Some((_, Ok(case))) => case,
            Some((_, Err(why))) => return Err(Some(why.clone())),
            None => return Err(Some("there is no case".into())),
        };
        let limits = Limits { stop: Some(self.stop.clone()), events: self.job.limit.events, time: self.job.limit.time };
        let mut watch = Watch { counters: self.counters, limits, ..Watch::default() };
        let result = match sim::run_watched(case, seed, None, &mut watch) {
            Ok(result) => result,
            Err(SimError::Stopped) => return Err(None),
            Err(error) => return Err(Some(self.plain(error.to_string()))),
        };
        if !result.valid {
            return Err(Some(self.plain(format!("INVALID: {}", result.notes.join("; ")))));
        }
        let kept = |name: &str| self.job.figures.is_empty() || self.job.figures.iter().any(|form| fits(form, name));
        figures::of(case, &result, &kept).map_err(Some)
    }

    fn prepare(&mut self, point: &Point) {
        if self.case.as_ref().is_some_and(|(own, _)| own == point) {
            return;
        }
        if self.read.as_ref().is_none_or(|(values, _)| *values != point.values) {
            let file = CaseFile::parse_with(&self.job.text, &self.job.path, &point.given());
            self.read = Some((point.values.clone(), file.map_err(|error| self.plain(error.to_string()))));
        }
        let case = match &self.read {
            Some((_, Ok(file))) => plan::case_of(file, point).ok_or("the case has no such row and column".to_owned()),
            Some((_, Err(why))) => Err(why.clone()),
            None => Err("there is no case".into()),
        };
        self.case = Some((point.clone(), case));
    }

    /// A message without the folder of the case, which is another one on other hosts.
    fn plain(&self, message: String) -> String {
        match self.job.path.parent().map(|folder| folder.display().to_string()) {
            Some(folder) if !folder.is_empty() => without(&message, &format!("{folder}/")),
            _ => message,
        }
    }
}

/// A message without a folder where a path begins with it. The same letters elsewhere are part of
/// a longer path, or of a word: `./` in `../a`, `t/` in `kbit/s`.
fn without(message: &str, folder: &str) -> String {
    let mut out = String::with_capacity(message.len());
    let mut rest = 0;
    for (at, _) in message.match_indices(folder) {
        let before = message.get(..at).and_then(|before| before.chars().next_back());
        if before.is_some_and(|before| before.is_alphanumeric() || "/._-~+@".contains(before)) {
            continue;
        }
        out.push_str(message.get(rest..at).unwrap_or_default());
        rest = at + folder.len();
    }
    out.push_str(message.get(rest..).unwrap_or_default());
    out
}

/// Runs a task of a plan in this process. `None` if it was stopped.
pub fn run_task(plan: &Plan, task: &Task, runner: &mut Runner) -> Option<Table> {
    let mut outcomes = Vec::new();
    for runs in plan.runs_of(task) {
        for at in 0..runs.count {
            match runner.run(&runs.point, runs.seed.wrapping_add(u64::from(at))) {
                Ok(figures) => outcomes.push(Ok(figures)),
                Err(Some(why)) => outcomes.push(Err(why)),
                Err(None) => return None,
            }
        }
    }
    Some(plan.table(task, outcomes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_folder_of_the_case_is_left_out() {
        for (message, folder, plain) in [
            ("./../nope.altq cannot be read", "./", "../nope.altq cannot be read"),
            ("./k.toml:3:2: no ./x", "./", "k.toml:3:2: no x"),
            ("t/a.altq:1:2: 5 kbit/s is not a rate", "t/", "a.altq:1:2: 5 kbit/s is not a rate"),
            ("t/t/a.altq, \"t/b\" and u/t/c", "t/", "t/a.altq, \"b\" and u/t/c"),
            ("/tmp/x/a.altq (/tmp/x/b)", "/tmp/x/", "a.altq (b)"),
            ("no path", "/tmp/x/", "no path"),
        ] {
            assert_eq!(without(message, folder), plain, "{message}");
        }
    }
}
