//! A case to run in a world, what came of it, and who watches while many of them run.

use std::sync::Arc;

use crate::case::CaseFile;
use crate::made;
use crate::result::{CaseResult, Made};
use crate::world::World;

/// A case to run in a world.
#[derive(Clone)]
pub struct Task {
    /// The case.
    pub file: Arc<CaseFile>,
    /// Where.
    pub world: World,
}

/// What came of a task.
pub enum Outcome {
    /// It ran.
    Done(Box<CaseResult>),
    /// This world cannot run it: why.
    Cannot(String),
    /// It failed: why.
    Failed(String),
}

/// Who watches while tasks run: hears of each that is over and of the progress, and may stop them.
pub trait Watcher {
    /// A task is over.
    fn finished(&mut self, task: Task, outcome: Outcome);

    /// So much of the work is done, of so much; what runs now, as text. Both in milliseconds,
    /// about.
    fn progress(&mut self, done: u64, whole: u64, running: &str);

    /// True when nothing more is to be begun, and what runs is not to be waited for.
    fn stopped(&self) -> bool;
}

/// What made a task's result, as the command `altq sim` or `altq lab` that runs this case alone.
pub fn command(file: &CaseFile, world: World, seed: Option<u64>) -> Made {
    let seed = seed.map_or(String::new(), |seed| format!(" --seed {seed}"));
    Made {
        command: format!("altq {} {} --json{seed}", world.name(), made::quoted(&file.path.to_string_lossy())),
        ..made::made(file)
    }
}
