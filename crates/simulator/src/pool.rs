//! Runs many cases in virtual time, several at once on several processors.

use std::collections::VecDeque;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use altq_cases::case::{Case, CaseFile};
use altq_cases::result::{CaseResult, World};
use altq_cases::task::{Outcome, Task, Watcher, command};

use crate::sim::{self, ReadCounters, SimError, Watch};

/// Estimate of the time that a task takes, in ms: a tenth of its virtual time. It only decides the
/// order of the tasks and what the progress bar shows.
pub fn time(file: &CaseFile) -> u64 {
    let of = |case: &Case| case.duration / 1_000_000 * case.columns.len() as u64;
    (file.runs.iter().map(|run| of(&run.case)).sum::<u64>() / 10).max(1)
}

/// A message from a worker.
enum Message {
    Began(String),
    Ended(Task, Outcome),
}

/// Runs tasks, `workers` at a time. `seed` replaces the seeds of the cases. Returns true if the
/// watcher stopped it early; then workers are not waited for, because the process is about to end.
pub fn run(
    mut tasks: Vec<Task>,
    workers: usize,
    seed: Option<u64>,
    counters: ReadCounters,
    watcher: &mut dyn Watcher,
) -> bool {
    // The longest task is first, so that it does not run alone at the end.
    tasks.sort_by_key(|task| std::cmp::Reverse(time(&task.file)));
    let whole: u64 = tasks.iter().map(|task| time(&task.file)).sum();
    let (mut open, mut done) = (tasks.len(), 0);
    let queue = Arc::new(Mutex::new(VecDeque::from(tasks)));
    let (sender, messages) = mpsc::channel();
    for _ in 0..workers.clamp(1, open.max(1)) {
        let (queue, sender) = (queue.clone(), sender.clone());
        std::thread::spawn(move || work(&queue, &sender, seed, counters));
    }
    drop(sender);
    let mut running: Vec<String> = Vec::new();
    while open > 0 {
        match messages.recv_timeout(Duration::from_millis(100)) {
            Ok(Message::Began(name)) => running.push(name),
            Ok(Message::Ended(task, outcome)) => {
                open -= 1;
                running.retain(|name| *name != task.file.name);
                done += time(&task.file);
                watcher.finished(task, outcome);
            }
            Err(RecvTimeoutError::Timeout) if watcher.stopped() => return true,
            Err(RecvTimeoutError::Timeout) => {}
            // All workers have ended. If they panicked, they have printed why.
            Err(RecvTimeoutError::Disconnected) => break,
        }
        watcher.progress(done, whole, &running.join(", "));
        if watcher.stopped() {
            return true;
        }
    }
    false
}

fn work(queue: &Mutex<VecDeque<Task>>, sender: &Sender<Message>, seed: Option<u64>, counters: ReadCounters) {
    loop {
        let task = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(task) = task else { return };
        let began = sender.send(Message::Began(task.file.name.clone()));
        let outcome = simulate(&task.file, seed, counters);
        if began.is_err() || sender.send(Message::Ended(task, outcome)).is_err() {
            return;
        }
    }
}

fn simulate(file: &CaseFile, seed: Option<u64>, counters: ReadCounters) -> Outcome {
    let options = sim::RunOptions { seed, jobs: Some(1), ..sim::RunOptions::default() };
    let mut watch = Watch { series: Some(Vec::new()), counters: Some(counters), ..Watch::default() };
    match sim::run_file(file, &options, None, &mut watch) {
        Ok(result) => Outcome::Done(Box::new(CaseResult { made: Some(command(file, World::Sim, seed)), ..result })),
        Err(SimError::Elsewhere(why)) => Outcome::Cannot(why),
        Err(error) => Outcome::Failed(error.to_string()),
    }
}
