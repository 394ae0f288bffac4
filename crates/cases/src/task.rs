//! A case to run in a world, its outcome, and the interface for watching many of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::case::CaseFile;
use crate::made;
use crate::result::{CaseResult, Made};
use crate::world::World;

/// A case to run in a world.
#[derive(Clone)]
pub struct Task {
    /// The case.
    pub file: Arc<CaseFile>,
    /// The world.
    pub world: World,
}

/// The outcome of a task.
pub enum Outcome {
    /// It ran.
    Done(Box<CaseResult>),
    /// This world cannot run it, for this reason.
    Cannot(String),
    /// It failed, for this reason.
    Failed(String),
}

/// Watches tasks while they run: is told of each that is over and of the progress, and may stop
/// them.
pub trait Watcher {
    /// A task is over.
    fn finished(&mut self, task: Task, outcome: Outcome);

    /// `done` of `whole` milliseconds of work are done, both estimated; `running` is a text about
    /// the tasks that run now.
    fn progress(&mut self, done: u64, whole: u64, running: &str);

    /// True if no more tasks must begin, and running ones must not be waited for.
    fn stopped(&self) -> bool;
}

/// How far one case is. Who runs it counts, and who shows it reads, in another thread.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    whole: AtomicU64,
    doing: Mutex<String>,
}

impl Progress {
    /// Sets all the work that is to be done, in any unit.
    pub fn set_whole(&self, whole: u64) {
        self.whole.store(whole, Ordering::Relaxed);
    }

    /// Counts work that is done now.
    pub fn add(&self, done: u64) {
        self.done.fetch_add(done, Ordering::Relaxed);
    }

    /// Says what is done now.
    pub fn set_doing(&self, text: &str) {
        text.clone_into(&mut self.doing.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The work that is done, all the work, and what is done now.
    pub fn read(&self) -> (u64, u64, String) {
        let doing = self.doing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let whole = self.whole.load(Ordering::Relaxed);
        (self.done.load(Ordering::Relaxed).min(whole), whole, doing)
    }
}

/// How a task's result was made: by the command `altq sim` or `altq lab` that runs this case alone.
pub fn command(file: &CaseFile, world: World, seed: Option<u64>) -> Made {
    let seed = seed.map_or(String::new(), |seed| format!(" --seed {seed}"));
    Made {
        command: format!("altq {} {} --json{seed}", world.name(), made::quoted(&file.path.to_string_lossy())),
        ..made::made(file)
    }
}

/// How the means of several seeds were made: by `altq experiments` on this case alone.
pub fn sampled(file: &CaseFile, samples: usize, seed: Option<u64>) -> Made {
    let seed = seed.map_or(String::new(), |seed| format!(" --seed {seed}"));
    let path = made::quoted(&file.path.to_string_lossy());
    Made { command: format!("altq experiments run --samples {samples}{seed} --cases {path}"), ..made::made(file) }
}
