//! One worker process of this host, for a program that hands out the tasks of a sweep by itself,
//! over a cluster for example. A run that kills its process costs a row, as in [`super::run`].

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::TICK;
use super::lane::{Ask, Lane, Sink, Talk};
use crate::SweepError;
use crate::run::{Job, Runs};
use crate::worker::Answer;

/// Answers as they came, as a text for each point. Whoever reads them finds out whether they make
/// sense.
#[derive(Default)]
struct Lines(Vec<String>);

impl Sink for Lines {
    fn answer(&mut self, line: &str) -> bool {
        self.0.last_mut().map(|text| text.push_str(line)).is_some()
    }

    fn failed(&mut self, why: String) {
        // Texts have a form in JSON, so this cannot fail.
        let line = serde_json::to_string(&Answer::error(why)).unwrap_or_default();
        if let Some(text) = self.0.last_mut() {
            text.push_str(&line);
            text.push('\n');
        }
    }

    fn next(&mut self) {
        self.0.push(String::new());
    }
}

/// A worker process that is started when it is needed, and again when it has died.
pub struct Hand {
    job: Job,
    lane: Lane,
    talk: Option<Talk>,
}

impl Hand {
    /// One that does runs of this job. No process is started yet.
    pub fn new(job: Job) -> Hand {
        Hand { job, lane: Lane::default(), talk: None }
    }

    /// The job whose runs it does.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Does runs. Returns a text for each of `runs`, with a line for each run: an [`Answer`] as
    /// JSON, which [`crate::worker::Names`] makes an outcome of. `timeout`: the longest that a run
    /// may take in real time. `worker`: the command of a worker, which calls
    /// [`crate::worker::serve`]. `stopped` is asked every 20 ms.
    ///
    /// # Errors
    /// If it was stopped, or if no worker can be started.
    pub fn run(
        &mut self,
        runs: &[Runs],
        timeout: Option<Duration>,
        worker: &(dyn Fn() -> Command + Sync),
        stopped: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<String>, SweepError> {
        let Hand { job, lane, talk } = self;
        let (ends, over) = (AtomicBool::new(false), AtomicBool::new(false));
        let lane = &*lane;
        let done = thread::scope(|scope| {
            let (ends, over) = (&ends, &over);
            let watcher = thread::current();
            let doing = scope.spawn(move || {
                let ask = Ask { job, timeout, worker, ends };
                let mut lines = Lines::default();
                let done = lane.run(talk, &ask, runs, &mut lines);
                over.store(true, Ordering::Release);
                watcher.unpark();
                done.map(|done| done.then_some(lines.0))
            });
            while !over.load(Ordering::Acquire) && !doing.is_finished() {
                let ending = ends.load(Ordering::Relaxed) || stopped();
                ends.store(ending, Ordering::Relaxed);
                lane.watch(Instant::now(), ending, &|_| false);
                thread::park_timeout(TICK);
            }
            doing.join()
        });
        match done {
            Ok(Ok(Some(lines))) => Ok(lines),
            Ok(Err(error)) => Err(error),
            Ok(Ok(None)) | Err(_) => {
                self.lane.close(&mut self.talk);
                Err(SweepError::Stopped)
            }
        }
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        self.lane.close(&mut self.talk);
    }
}
