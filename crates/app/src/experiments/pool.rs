//! Runs cases: in virtual time side by side, then in namespaces ([`InLab`]).

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use altq_dataplane::stop::Stop;
use altq_simulator::case::{Case, CaseFile};
use altq_simulator::result::{CaseResult, Made, World};
use altq_simulator::sim::{self, SimError, Watch};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::in_lab::InLab;
use super::plan::Bound;
use crate::lab::{self, LeftOut, Wishes};
use crate::made;

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
    /// This world cannot run it.
    Cannot(String),
    /// It failed.
    Failed(String),
}

/// How tasks are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many at once in virtual time.
    pub jobs: usize,
    /// How much at once in namespaces.
    pub lab: Bound,
    /// Another seed than the cases' own.
    pub seed: Option<u64>,
}

/// How long a task takes in virtual time, about: a tenth of a ms for a ms of it. Only the order of
/// the tasks and the bar depend on it.
fn cost(task: &Task) -> u64 {
    let of = |case: &Case| case.duration / 1_000_000 * case.columns.len() as u64;
    (task.file.runs.iter().map(|run| of(&run.case)).sum::<u64>() / 10).max(1)
}

/// Leaves of a case what the lab runs of it, with as many samples as virtual time takes: what is
/// promised of a mean is judged by one.
pub fn possible(file: &mut CaseFile, wishes: &Wishes) -> LeftOut {
    lab::retain_possible(file, wishes)
}

/// How the lab runs it.
pub fn wishes(file: &CaseFile, seed: Option<u64>) -> Wishes {
    Wishes { seed: seed.unwrap_or(file.seed), congestion: None, buffers: None, offload: true, quiet: true }
}

/// Runs all tasks and hands over what came of each as soon as it is there. True if `stop` ended it
/// before its time: what has not finished then is lost.
pub fn run(tasks: Vec<Task>, options: &Options, stop: &Stop, mut finished: impl FnMut(Task, Outcome)) -> bool {
    let (mut simulated, in_lab): (Vec<Task>, Vec<Task>) = tasks.into_iter().partition(|task| task.world == World::Sim);
    // The longest first, so that none is left alone at the end.
    simulated.sort_by_key(|task| std::cmp::Reverse(cost(task)));
    let in_lab = InLab::new(in_lab, options.seed, options.lab, &mut finished);
    let bar = bar(simulated.iter().map(cost).sum::<u64>() + in_lab.time());
    let workers = options.jobs.clamp(1, simulated.len().max(1));
    let stopped =
        drain(simulated, workers, options, stop, &bar, &mut finished) || in_lab.run(stop, &bar, &mut finished);
    bar.finish_and_clear();
    stopped
}

/// A bar on stderr, if a person looks at it.
fn bar(whole: u64) -> ProgressBar {
    let target =
        if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(whole), target);
    if let Ok(style) =
        ProgressStyle::with_template("{bar:20} {percent:>3} %  {elapsed_precise}, {eta} left  {wide_msg}")
    {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// A message from a worker.
enum Said {
    Began(String),
    Ended(Task, Outcome),
}

/// Works the tasks of virtual time off. Workers are not waited for when `stop` is set: the process
/// ends.
fn drain(
    tasks: Vec<Task>,
    workers: usize,
    options: &Options,
    stop: &Stop,
    bar: &ProgressBar,
    finished: &mut impl FnMut(Task, Outcome),
) -> bool {
    let mut open = tasks.len();
    let queue = Arc::new(Mutex::new(VecDeque::from(tasks)));
    let (sender, said) = mpsc::channel();
    for _ in 0..workers.min(open) {
        let (queue, sender, seed) = (queue.clone(), sender.clone(), options.seed);
        std::thread::spawn(move || work(&queue, &sender, seed));
    }
    drop(sender);
    let mut running: Vec<String> = Vec::new();
    while open > 0 {
        match said.recv_timeout(Duration::from_millis(100)) {
            Ok(Said::Began(name)) => running.push(name),
            Ok(Said::Ended(task, outcome)) => {
                open -= 1;
                running.retain(|name| *name != task.file.name);
                bar.inc(cost(&task));
                bar.suspend(|| finished(task, outcome));
            }
            Err(RecvTimeoutError::Timeout) if stop.is_set() => return true,
            Err(RecvTimeoutError::Timeout) => {}
            // A worker that panics has said why; the others go on.
            Err(RecvTimeoutError::Disconnected) => break,
        }
        bar.set_message(running.join(", "));
        if stop.is_set() {
            return true;
        }
    }
    false
}

fn work(queue: &Mutex<VecDeque<Task>>, sender: &Sender<Said>, seed: Option<u64>) {
    loop {
        let task = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(task) = task else { return };
        let told = sender.send(Said::Began(task.file.name.clone()));
        let outcome = simulate(&task.file, seed);
        if told.is_err() || sender.send(Said::Ended(task, outcome)).is_err() {
            return;
        }
    }
}

/// In virtual time.
fn simulate(file: &CaseFile, seed: Option<u64>) -> Outcome {
    let wishes = sim::Wishes { seed, jobs: Some(1), ..sim::Wishes::default() };
    let mut watch = Watch { series: Some(Vec::new()), ..Watch::default() };
    match sim::run_file(file, &wishes, None, &mut watch) {
        Ok(result) => Outcome::Done(Box::new(CaseResult { made: Some(command(file, "sim", seed)), ..result })),
        Err(SimError::Elsewhere(why)) => Outcome::Cannot(why),
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

/// What made a result: as the command that runs this case alone.
pub fn command(file: &CaseFile, world: &str, seed: Option<u64>) -> Made {
    let seed = seed.map_or(String::new(), |seed| format!(" --seed {seed}"));
    Made {
        command: format!("altq {world} {} --json{seed}", made::quoted(&file.path.to_string_lossy())),
        ..made::made(file)
    }
}
