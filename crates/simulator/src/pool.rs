//! Runs many cases in virtual time, several at once on several processors.

use std::collections::VecDeque;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use altq_cases::case::{Case, CaseFile};
use altq_cases::result::{CaseResult, World};
use altq_cases::samples;
use altq_cases::task::{Outcome, Task, Watcher, command, sampled};

use crate::sim::{self, ReadCounters, SimError, Watch};

/// Estimate of the time that a task takes, in ms: a tenth of its virtual time. It only decides the
/// order of the tasks and what the progress bar shows.
pub fn time(file: &CaseFile) -> u64 {
    let of = |case: &Case| case.duration / 1_000_000 * case.columns.len() as u64;
    (file.runs.iter().map(|run| of(&run.case)).sum::<u64>() / 10).max(1)
}

/// How often each case runs, and with which seeds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seeds {
    /// The first seed; `None`: each case's own.
    pub first: Option<u64>,
    /// Runs of each case, each with a seed of its own; 0 counts as 1. Of several runs the result is
    /// [the means](samples::combine).
    pub samples: u32,
}

impl Seeds {
    fn count(self) -> usize {
        self.samples.max(1) as usize
    }

    /// The seed of the sample `at` of a case; `None`: the case's own. A table that takes several
    /// samples by itself uses as many seeds in a row.
    fn seed(self, file: &CaseFile, at: usize) -> Option<u64> {
        if at == 0 {
            return self.first;
        }
        let first = self.first.unwrap_or(file.seed);
        let own = file.runs.iter().map(|run| u64::from(run.sample) + 1).max().unwrap_or(1);
        Some(first.wrapping_add(own.wrapping_mul(at as u64)))
    }
}

/// A sample of a task.
type Sample = (usize, usize);

/// A message from a worker.
enum Message {
    Began(Sample),
    Ended(Sample, Outcome),
}

/// What workers share.
struct Work {
    tasks: Vec<Task>,
    left: Mutex<VecDeque<Sample>>,
    seeds: Seeds,
    counters: ReadCounters,
}

/// Runs tasks, `workers` samples at a time. Returns true if the watcher stopped it early; then
/// workers are not waited for, because the process is about to end.
pub fn run(
    mut tasks: Vec<Task>,
    workers: usize,
    seeds: Seeds,
    counters: ReadCounters,
    watcher: &mut dyn Watcher,
) -> bool {
    // The longest task is first, so that it does not run alone at the end.
    tasks.sort_by_key(|task| std::cmp::Reverse(time(&task.file)));
    let each = seeds.count();
    let whole: u64 = tasks.iter().map(|task| time(&task.file)).sum::<u64>() * each as u64;
    let all: VecDeque<Sample> = (0..tasks.len()).flat_map(|task| (0..each).map(move |at| (task, at))).collect();
    let (mut open, mut done) = (tasks.len(), 0);
    let mut ended: Vec<Vec<Option<Outcome>>> =
        tasks.iter().map(|_| std::iter::repeat_with(|| None).take(each).collect()).collect();
    let (sender, messages) = mpsc::channel();
    let workers = workers.clamp(1, all.len().max(1));
    let work = Arc::new(Work { tasks, left: Mutex::new(all), seeds, counters });
    for _ in 0..workers {
        let (work, sender) = (work.clone(), sender.clone());
        std::thread::spawn(move || work.run(&sender));
    }
    drop(sender);
    let mut running: Vec<Sample> = Vec::new();
    let name = |(task, at): &Sample| match each {
        1 => work.tasks[*task].file.name.clone(),
        _ => format!("{} {} of {each}", work.tasks[*task].file.name, at + 1),
    };
    while open > 0 {
        match messages.recv_timeout(Duration::from_millis(100)) {
            Ok(Message::Began(sample)) => running.push(sample),
            Ok(Message::Ended(sample, outcome)) => {
                running.retain(|other| *other != sample);
                let (task, at) = sample;
                done += time(&work.tasks[task].file);
                ended[task][at] = Some(outcome);
                if ended[task].iter().all(Option::is_some) {
                    open -= 1;
                    let outcomes = std::mem::take(&mut ended[task]).into_iter().flatten().collect();
                    watcher.finished(work.tasks[task].clone(), together(&work.tasks[task].file, outcomes, seeds));
                }
            }
            Err(RecvTimeoutError::Timeout) if watcher.stopped() => return true,
            Err(RecvTimeoutError::Timeout) => {}
            // All workers have ended. If they panicked, they have printed why.
            Err(RecvTimeoutError::Disconnected) => break,
        }
        watcher.progress(done, whole, &running.iter().map(name).collect::<Vec<_>>().join(", "));
        if watcher.stopped() {
            return true;
        }
    }
    false
}

/// The outcome of a task from those of its samples.
fn together(file: &CaseFile, outcomes: Vec<Outcome>, seeds: Seeds) -> Outcome {
    let mut results = Vec::new();
    for outcome in outcomes {
        match outcome {
            Outcome::Done(result) => results.push(*result),
            other => return other,
        }
    }
    let made = match results.len() {
        0 | 1 => command(file, World::Sim, seeds.first),
        n => sampled(file, n, seeds.first),
    };
    match samples::combine(results) {
        Some(whole) => Outcome::Done(Box::new(CaseResult { made: Some(made), ..whole })),
        None => Outcome::Failed("its expectations are not the same at all seeds".into()),
    }
}

impl Work {
    fn run(&self, sender: &Sender<Message>) {
        loop {
            let next = self.left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(sample) = next else { return };
            let began = sender.send(Message::Began(sample));
            let outcome = self.simulate(sample);
            if began.is_err() || sender.send(Message::Ended(sample, outcome)).is_err() {
                return;
            }
        }
    }

    fn simulate(&self, (task, at): Sample) -> Outcome {
        let file = &self.tasks[task].file;
        let seed = self.seeds.seed(file, at);
        let options = sim::RunOptions { seed, jobs: Some(1), ..sim::RunOptions::default() };
        // Series are kept of the first sample only.
        let series = (at == 0).then(Vec::new);
        let mut watch = Watch { series, counters: Some(self.counters), ..Watch::default() };
        match sim::run_file(file, &options, None, &mut watch) {
            Ok(result) => Outcome::Done(Box::new(result)),
            Err(SimError::Elsewhere(why)) => Outcome::Cannot(why),
            Err(error) => Outcome::Failed(error.to_string()),
        }
    }
}
