//! What is left to do of a sweep: its tasks are handed out one after another, and their results
//! come back in any order.

use std::path::Path;
use std::sync::Mutex;

use crate::driver::lock;
use crate::plan::{Plan, Shard, Task};
use crate::points::Points;
use crate::rows::Table;
use crate::run::Outcome;
use crate::{SweepError, store};

/// The tasks of a sweep that nobody has begun, and what is known of its points. Several threads may
/// take tasks of it.
pub struct Left {
    tasks: Vec<Task>,
    /// Tasks that nobody has begun, the next one last.
    open: Mutex<Vec<usize>>,
    points: Points,
    counts: Counts,
}

/// How much there is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tasks of the sweep, or of the shard.
    pub tasks: usize,
    /// Of these, the tasks whose results are there already.
    pub tasks_there: usize,
    /// Runs of all these tasks.
    pub runs: u64,
    /// Of these, the runs whose results are there already.
    pub runs_there: u64,
}

impl Left {
    /// What is left of a plan, or of a shard of it, with the results that are in `folder` already.
    /// `again`: tasks in which runs failed are done again.
    ///
    /// # Errors
    /// If results cannot be read.
    pub fn new(plan: &Plan, folder: &Path, shard: Option<Shard>, again: bool) -> Result<Left, SweepError> {
        let tasks = plan.tasks();
        let there = store::there(folder)?;
        let points = Points::new(plan);
        let (mut open, mut counts) = (Vec::new(), Counts::default());
        let own = shard.map(|shard| plan.of_shard(&tasks, shard));
        for (at, task) in tasks.iter().enumerate() {
            if own.as_ref().is_some_and(|own| own.get(at) != Some(&true)) {
                continue;
            }
            counts.tasks += 1;
            counts.runs += task.runs();
            if there.contains(&task.id) && !(again && has_failed(folder, task)?) {
                counts.tasks_there += 1;
                counts.runs_there += task.runs();
                points.read(folder, task)?;
            } else {
                open.push(at);
            }
        }
        // First samples first, so that few runs are in vain where points end early, or where no run
        // has a figure that is asked for.
        if !plan.until.is_empty() || !plan.figures.is_empty() {
            let first = |at: usize| tasks.get(at).and_then(|task| task.pieces.first()).map_or(0, |piece| piece.from);
            open.sort_by_key(|at| (first(*at), *at));
        }
        open.reverse();
        Ok(Left { tasks, open: Mutex::new(open), points, counts })
    }

    /// How much there was to do at the beginning.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// How many tasks nobody has begun.
    pub fn open(&self) -> usize {
        lock(&self.open).len()
    }

    /// The next task, as a place for [`Left::task`]. It may be [in vain](Left::is_in_vain).
    pub fn next(&self) -> Option<usize> {
        lock(&self.open).pop()
    }

    /// A task, by its place.
    pub fn task(&self, at: usize) -> Option<&Task> {
        self.tasks.get(at)
    }

    /// True if the samples of a task lie behind the end of their point, so that nobody needs them.
    pub fn is_in_vain(&self, at: usize) -> bool {
        self.tasks.get(at).is_some_and(|task| self.points.is_in_vain(task))
    }

    /// Keeps the results of a task: what became of each of its runs, in their order.
    ///
    /// # Errors
    /// If they cannot be written, or if each point has had a good run, and none of these has a
    /// figure that is asked for.
    pub fn put(&self, plan: &Plan, folder: &Path, at: usize, outcomes: Vec<Outcome>) -> Result<(), SweepError> {
        let Some(task) = self.tasks.get(at) else { return Ok(()) };
        let table = plan.table(task, outcomes);
        store::put(folder, task, &table)?;
        self.points.add(plan, task, &table)
    }
}

/// True if a run of a task that is done failed.
fn has_failed(folder: &Path, task: &Task) -> Result<bool, SweepError> {
    let errors: Table = store::read(&store::part(folder, task), |name| name == "error")?;
    let errors = errors.column("error").and_then(|cells| cells.texts()).unwrap_or_default();
    Ok(errors.iter().any(Option::is_some))
}
