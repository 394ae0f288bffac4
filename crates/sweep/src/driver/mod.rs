//! Runs a sweep on the processors of this host: worker processes, so that a run that kills its
//! process costs a row and not the sweep.
//!
//! Each worker has a lane, a thread that hands it the runs of a task and takes the answers. If the
//! worker dies, the run that it was at is tried again alone, in a fresh process. If that dies too
//! often, the run becomes a row with an error, and the others go on. A run that takes too long is
//! treated in the same way. What is done is written task by task, so whoever runs the same sweep
//! again goes on from there.

mod hand;
mod lane;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use altq_cases::task::Progress;

use crate::SweepError;
use crate::left::{Counts, Left};
use crate::plan::{Plan, Shard};
use crate::run::Job;
pub use hand::Hand;
use lane::{Ask, Lane, Outcomes, Sink, Talk};

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

/// Does what is missing of a sweep. Returns how much there was to do.
///
/// # Errors
/// If it was stopped, if results cannot be written, if workers cannot be started, or if no run has
/// a figure that is asked for and there is more to do.
pub fn run(plan: &Plan, folder: &Path, options: &Options<'_>) -> Result<Counts, SweepError> {
    let left = Left::new(plan, folder, options.shard, options.again)?;
    let counts = left.counts();
    options.progress.add(counts.runs_there);
    options.progress.set_whole(counts.runs);
    options.progress.set_doing(&plan.name);
    let job = Job::of(plan);
    Work { plan, folder, options, job: &job, left, failed: Mutex::new(None) }.all()?;
    Ok(counts)
}

/// Counts the outcomes that it takes.
struct Counted<'a> {
    outcomes: Outcomes,
    progress: &'a Progress,
}

impl Sink for Counted<'_> {
    fn answer(&mut self, line: &str) -> bool {
        let good = self.outcomes.answer(line);
        self.progress.add(u64::from(good));
        good
    }

    fn failed(&mut self, why: String) {
        self.outcomes.failed(why);
        self.progress.add(1);
    }
}

/// What lanes share.
struct Work<'a> {
    plan: &'a Plan,
    folder: &'a Path,
    options: &'a Options<'a>,
    job: &'a Job,
    left: Left,
    /// The first error. Then all lanes end.
    failed: Mutex<Option<SweepError>>,
}

impl Work<'_> {
    fn all(&self) -> Result<(), SweepError> {
        let count = self.options.jobs.clamp(1, 1024).min(self.left.open());
        let lanes: Vec<Lane> = (0..count).map(|_| Lane::default()).collect();
        let ends = &AtomicBool::new(false);
        thread::scope(|scope| {
            let threads: Vec<_> = lanes.iter().map(|lane| scope.spawn(move || self.work(lane, ends))).collect();
            while !threads.iter().all(|thread| thread.is_finished()) {
                if (self.options.stopped)() {
                    ends.store(true, Ordering::Relaxed);
                }
                let ending = ends.load(Ordering::Relaxed);
                let now = Instant::now();
                for lane in &lanes {
                    lane.watch(now, ending, &|task| self.left.is_in_vain(task));
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

    /// Does tasks with a worker of its own. The first error ends all lanes.
    fn work(&self, lane: &Lane, ends: &AtomicBool) {
        let mut talk = None;
        if let Err(error) = self.lane(lane, &mut talk, ends) {
            lock(&self.failed).get_or_insert(error);
            ends.store(true, Ordering::Relaxed);
        }
        lane.close(&mut talk);
    }

    /// Does tasks until there is none left.
    fn lane(&self, lane: &Lane, talk: &mut Option<Talk>, ends: &AtomicBool) -> Result<(), SweepError> {
        let ask = Ask { job: self.job, timeout: self.options.timeout, worker: self.options.worker, ends };
        loop {
            let Some(at) = self.left.next().filter(|_| !ends.load(Ordering::Relaxed)) else { return Ok(()) };
            let Some(task) = self.left.task(at) else { return Ok(()) };
            if self.left.is_in_vain(at) {
                self.options.progress.add(task.runs());
                continue;
            }
            lane.begin(at);
            let mut sink = Counted { outcomes: Outcomes::default(), progress: self.options.progress };
            let done = lane.run(talk, &ask, &self.plan.runs_of(task), &mut sink)?;
            lane.end();
            let outcomes = sink.outcomes.all;
            // What was not run is not waited for either.
            self.options.progress.add(task.runs().saturating_sub(outcomes.len() as u64));
            match done {
                true => self.left.put(self.plan, self.folder, at, outcomes)?,
                // Its worker was killed, or is about to be.
                false => lane.close(talk),
            }
        }
    }
}
