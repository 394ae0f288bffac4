//! Runs a sweep on the processors of this host: worker processes, so that a run that kills its
//! process costs a row and not the sweep.
//!
//! Each worker has a lane, a thread that hands it the runs of a task and takes the answers. If the
//! worker dies, the run that it was at is tried again alone, in a fresh process. If that dies too
//! often, the run becomes a row with an error, and the others go on. A run that takes too long is
//! treated in the same way. What is done is written task by task, so whoever runs the same sweep
//! again goes on from there.

mod lane;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use altq_cases::task::Progress;

use crate::plan::{Plan, Shard, Task};
use crate::points::Points;
use crate::{SweepError, store};
use lane::{Lane, Talk};

/// Locks, also what a thread that panicked has held.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often deadlines and the wish to stop are looked at.
const TICK: Duration = Duration::from_millis(20);

/// How a sweep runs here. Nothing of it changes the results, but for `timeout`.
pub struct Options<'a> {
    /// Worker processes.
    pub jobs: usize,
    /// Only this part of the tasks; `None`: all.
    pub shard: Option<Shard>,
    /// True if tasks in which runs failed are done again.
    pub again: bool,
    /// The longest that a run may take in real time.
    pub timeout: Option<Duration>,
    /// The command of a worker, which calls [`crate::worker::serve`].
    pub worker: &'a (dyn Fn() -> Command + Sync),
    /// Is told how many runs are done.
    pub progress: &'a Progress,
    /// True once the sweep is to stop.
    pub stopped: &'a (dyn Fn() -> bool + Sync),
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Tasks that this call was to do.
    pub tasks: usize,
    /// Of these, the tasks whose results were there already.
    pub there: usize,
}

/// Does what is missing of a sweep.
///
/// # Errors
/// If it was stopped, if results cannot be written, if workers cannot be started, or if a rule
/// names a figure that no run has.
pub fn run(plan: &Plan, folder: &Path, options: &Options<'_>) -> Result<Done, SweepError> {
    let tasks = plan.tasks();
    let there = store::there(folder)?;
    let points = Points::new(plan);
    let mut done = Done::default();
    let (mut open, mut whole) = (Vec::new(), 0);
    for (at, task) in tasks.iter().enumerate() {
        if options.shard.is_some_and(|shard| !plan.is_of(task, shard)) {
            continue;
        }
        done.tasks += 1;
        whole += runs(task);
        if there.contains(&task.id) && !(options.again && has_failed(folder, task)?) {
            done.there += 1;
            points.read(plan, folder, task)?;
            options.progress.add(runs(task));
        } else {
            open.push(at);
        }
    }
    options.progress.set_whole(whole);
    options.progress.set_doing(&plan.name);
    // First samples first, so that few runs are in vain where points end early.
    if !plan.until.is_empty() {
        open.sort_by_key(|at| (tasks.get(*at).and_then(|task| task.pieces.first()).map_or(0, |piece| piece.from), *at));
    }
    open.reverse();
    let work = Work { plan, folder, options, tasks: &tasks, open: Mutex::new(open), points, failed: Mutex::new(None) };
    work.all()?;
    Ok(done)
}

/// True if a run of a task that is done failed.
fn has_failed(folder: &Path, task: &Task) -> Result<bool, SweepError> {
    let errors = store::read(&store::part(folder, task), |name| name == "error")?;
    let errors = errors.column("error").and_then(|cells| cells.texts()).unwrap_or_default();
    Ok(errors.iter().any(Option::is_some))
}

/// The number of runs of a task.
fn runs(task: &Task) -> u64 {
    task.pieces.iter().map(|piece| u64::from(piece.to - piece.from)).sum()
}

/// What lanes share.
struct Work<'a> {
    plan: &'a Plan,
    folder: &'a Path,
    options: &'a Options<'a>,
    tasks: &'a [Task],
    /// Tasks that nobody has begun, the next one last.
    open: Mutex<Vec<usize>>,
    points: Points,
    /// The first error. Then all lanes end.
    failed: Mutex<Option<SweepError>>,
}

impl Work<'_> {
    fn all(&self) -> Result<(), SweepError> {
        let count = self.options.jobs.clamp(1, 1024).min(lock(&self.open).len());
        let lanes: Vec<Lane> = (0..count).map(|_| Lane::default()).collect();
        let (ends, left) = (AtomicBool::new(false), std::sync::atomic::AtomicUsize::new(count));
        thread::scope(|scope| {
            for lane in &lanes {
                let (ends, left) = (&ends, &left);
                scope.spawn(move || {
                    let mut talk = None;
                    if let Err(error) = self.lane(lane, &mut talk, ends) {
                        lock(&self.failed).get_or_insert(error);
                        ends.store(true, Ordering::Relaxed);
                    }
                    lane.close(&mut talk);
                    left.fetch_sub(1, Ordering::Release);
                });
            }
            while left.load(Ordering::Acquire) > 0 {
                if (self.options.stopped)() {
                    ends.store(true, Ordering::Relaxed);
                }
                let ending = ends.load(Ordering::Relaxed);
                let now = Instant::now();
                for lane in &lanes {
                    let in_vain = |task: usize| self.tasks.get(task).is_some_and(|task| self.points.is_in_vain(task));
                    lane.watch(now, ending, &in_vain);
                }
                thread::park_timeout(TICK);
            }
        });
        // Workers that were killed to stop are no error.
        match lock(&self.failed).take() {
            _ if (self.options.stopped)() => Err(SweepError::Stopped),
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Does tasks until there is none left.
    fn lane(&self, lane: &Lane, talk: &mut Option<Talk>, ends: &AtomicBool) -> Result<(), SweepError> {
        loop {
            let Some(at) = lock(&self.open).pop() else { return Ok(()) };
            let Some(task) = self.tasks.get(at).filter(|_| !ends.load(Ordering::Relaxed)) else { return Ok(()) };
            if self.points.is_in_vain(task) {
                self.options.progress.add(runs(task));
                continue;
            }
            lane.begin(at);
            let told = std::cell::Cell::new(0);
            let table = lane.run(talk, self.plan, task, self.options, ends, &|| {
                told.set(told.get() + 1);
                self.options.progress.add(1);
            })?;
            lane.end();
            // What was not run is not waited for either.
            self.options.progress.add(runs(task).saturating_sub(told.get()));
            match table {
                Some(table) => {
                    store::put(self.folder, task, &table)?;
                    self.points.add(self.plan, task, &table)?;
                }
                // Its worker was killed, or is about to be.
                None => lane.close(talk),
            }
        }
    }
}
