//! Runs several cases in the lab, as many runs at a time as the host can carry (`plan.rs`). A
//! case's result is reported as soon as all its runs are over.

mod plan;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use altq_cases::case::CaseFile;
use altq_cases::result::CaseResult;
use altq_cases::stat::ReadCounters;
use altq_cases::table::ColumnResult;
use altq_cases::task::{Outcome, Task, Watcher, command};
use altq_cases::world::World;
use anyhow::anyhow;
pub use plan::Bound;
use plan::{Job, Plan};

use crate::file::repeat_note;
use crate::topology::{NotPermitted, Unsupported};
use crate::{Need, Options, Part};

/// Time that a run needs in addition to its traffic, in ms: to make and to remove namespaces and
/// wires.
const SETUP: u64 = 200;

/// Least time between the starts of two runs.
const APART: Duration = Duration::from_millis(200);

/// A case of which some runs are not over.
struct OpenCase {
    task: Task,
    /// The runs that are possible in the lab.
    file: Arc<CaseFile>,
    options: Options,
    /// Why other runs were left out.
    notes: Vec<String>,
    ran: Vec<(Part, ColumnResult<'static>)>,
    /// Number of its jobs that are not over.
    left: usize,
    /// True if a run failed and the case was reported; results of its other runs are then ignored.
    failed: bool,
}

/// What a job of the plan runs.
#[derive(Clone)]
struct Work {
    /// Index of its case.
    case: usize,
    /// The run; `None`: the whole case, because it has `turns`.
    part: Option<Part>,
    /// Why it ran before.
    again: Again,
}

/// The result of a job.
enum JobResult {
    Part(Box<ColumnResult<'static>>),
    Whole(Box<CaseResult>),
}

/// Planned runs of cases in the lab.
pub struct InLab {
    cases: Vec<OpenCase>,
    work: Vec<Work>,
    plan: Plan,
    seed: Option<u64>,
}

impl InLab {
    /// Plans the runs of `tasks`. Cases that have errors, or that cannot run here, go to `finished`
    /// at once. `seed` replaces the cases' own seeds; `again` is that of
    /// [`Options`].
    pub fn new(
        tasks: Vec<Task>,
        seed: Option<u64>,
        again: u32,
        bound: Bound,
        counters: ReadCounters,
        mut finished: impl FnMut(Task, Outcome),
    ) -> InLab {
        let (mut cases, mut work, mut jobs) = (Vec::new(), Vec::new(), Vec::new());
        for task in tasks {
            let mut file = (*task.file).clone();
            let options = Options { again, ..Options::of_case(&file, seed, counters) };
            let left_out = crate::retain_possible(&mut file, &options);
            if file.runs.is_empty() {
                finished(task, Outcome::Cannot(left_out.reasons.join("; ")));
                continue;
            }
            let own = match jobs_of(&file, &options) {
                Ok(own) => own,
                Err(error) => {
                    finished(task, outcome(error));
                    continue;
                }
            };
            let case = cases.len();
            let left = own.len();
            for (part, job) in own {
                work.push(Work { case, part, again: Again::default() });
                jobs.push(job);
            }
            let (file, notes) = (Arc::new(file), left_out.notes);
            cases.push(OpenCase { task, file, options, notes, ran: Vec::new(), left, failed: false });
        }
        InLab { cases, work, plan: Plan::new(jobs, bound), seed }
    }

    /// Estimate of the time for all runs, in ms.
    pub fn time(&self) -> u64 {
        self.plan.left(|_| 0)
    }

    /// Runs all cases and reports their results to the watcher. Returns true if the watcher stopped
    /// it. Then it does not wait for the runs that are not over: the caller must end the process,
    /// which removes their namespaces.
    pub fn run(mut self, watcher: &mut dyn Watcher) -> bool {
        descriptors();
        let (sender, said) = mpsc::channel();
        let mut running: BTreeMap<usize, Instant> = BTreeMap::new();
        let begun = Instant::now();
        let mut message = String::new();
        let (mut left, mut next) = ((Instant::now(), self.time()), Instant::now());
        let ms = |since: &Instant| since.elapsed().as_millis() as u64;
        while !self.plan.is_over() {
            let mut news = false;
            // Runs start one after another, because making namespaces disturbs those that run.
            if next <= Instant::now()
                && let Some(job) = self.plan.next()
            {
                running.insert(job, Instant::now());
                self.begin(job, &sender);
                (news, next) = (true, Instant::now() + APART);
            }
            match said.recv_timeout(Duration::from_millis(100)) {
                Ok((job, got)) => {
                    running.remove(&job);
                    let beside = self.plan.ended(job);
                    if let Some((task, outcome)) = self.ended(job, got, beside) {
                        watcher.finished(task, outcome);
                    }
                    news = true;
                }
                Err(RecvTimeoutError::Timeout) => {}
                // Cannot happen: `sender` is alive.
                Err(RecvTimeoutError::Disconnected) => return false,
            }
            if watcher.stopped() {
                return true;
            }
            if news {
                left = (Instant::now(), self.plan.left(|job| running.get(&job).map_or(0, ms)));
                message = self.message(running.keys().copied());
            }
            let whole = (ms(&begun) + left.1.saturating_sub(ms(&left.0))).max(1);
            watcher.progress(ms(&begun), whole, &message);
        }
        false
    }

    /// The text of the progress bar: which runs are under way.
    fn message(&self, running: impl Iterator<Item = usize>) -> String {
        let name = |job: usize| {
            let work = self.work.get(job)?;
            let open = self.cases.get(work.case)?;
            let part = work.part.map(|part| part.name(&open.file)).filter(|name| !name.is_empty());
            Some(part.map_or_else(|| open.file.name.clone(), |part| format!("{}/{part}", open.file.name)))
        };
        let names: Vec<String> = running.filter_map(name).collect();
        format!("{} run: {}", names.len(), names.join(", "))
    }

    fn begin(&self, job: usize, sender: &Sender<(usize, anyhow::Result<JobResult>)>) {
        let Some(work) = self.work.get(job).cloned() else { return };
        let Some(open) = self.cases.get(work.case) else { return };
        let (file, options, told) = (open.file.clone(), open.options.clone(), sender.clone());
        let run = move || match work.part {
            Some(part) => Ok(JobResult::Part(Box::new(part.run(&file, &options)?))),
            None => Ok(JobResult::Whole(Box::new(crate::run_file(&file, &options, false)?))),
        };
        let thread = move || {
            // A panic has printed its message, and other runs go on. AssertUnwindSafe holds because
            // the state of the panicked run is not used again.
            let got = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(anyhow!("it panicked")));
            // There is no receiver any more if the watcher has stopped all runs.
            drop(told.send((job, got)));
        };
        if let Err(error) = std::thread::Builder::new().name(format!("run {job}")).spawn(thread) {
            drop(sender.send((job, Err(anyhow!("cannot start a thread: {error}")))));
        }
    }

    /// Takes the result of a job. Returns the outcome of its case if that was its last job.
    /// `beside`: the highest number of runs that went beside it.
    fn ended(&mut self, job: usize, got: anyhow::Result<JobResult>, beside: usize) -> Option<(Task, Outcome)> {
        let work = self.work.get_mut(job)?;
        let open = self.cases.get_mut(work.case)?;
        open.left = open.left.saturating_sub(1);
        let (case, mut whole) = (work.case, None);
        match got {
            _ if open.failed => return None,
            Err(error) => {
                open.failed = true;
                let of = |job: usize| self.work.get(job).is_some_and(|work| work.case == case);
                self.plan.forget(of);
                return Some((open.task.clone(), outcome(error)));
            }
            Ok(JobResult::Whole(result)) => whole = Some(*result),
            Ok(JobResult::Part(mut ran)) => {
                if let Some(again) = work.again.next((&ran.invalid, ran.disturbed), beside, open.options.again) {
                    work.again = again;
                    open.left += 1;
                    self.plan.again(job);
                    return None;
                }
                ran.notes.extend(work.again.note());
                open.ran.extend(work.part.map(|part| (part, *ran)));
            }
        }
        if open.left > 0 {
            return None;
        }
        let ran = std::mem::take(&mut open.ran);
        let mut result = whole.unwrap_or_else(|| crate::assemble(&open.file, open.options.seed, ran));
        result.notes.append(&mut open.notes);
        let offload = open.file.runs.iter().all(|run| run.case.offload);
        result.made = Some(crate::made::in_lab(command(&open.task.file, World::Lab, self.seed), offload));
        Some((open.task.clone(), Outcome::Done(Box::new(result))))
    }
}

/// Raises this process's limit of open files to the allowed maximum. A run needs about twenty open
/// files, and two for each connection.
fn descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let own = getrlimit(Resource::Nofile);
    // If this fails, runs that lack descriptors say so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: own.maximum, ..own });
}

/// The earlier runs of a job, whose figures could not be trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Again {
    /// How many there were.
    times: u32,
    /// How often of these the host disturbed the job while nothing else of ours ran.
    alone: u32,
    /// The highest number of runs that went beside the first one, and what was wrong with it.
    first: Option<(usize, String)>,
}

impl Again {
    /// What is known before the job runs once more, alone; `None` if it does not. It does if its
    /// figures cannot be trusted (why not, and whether the host is among the reasons) and other
    /// runs went beside it; or if the host disturbed it, up to `most` times. Its figures have no
    /// part in this.
    fn next(&self, (invalid, disturbed): (&[String], bool), beside: usize, most: u32) -> Option<Again> {
        let why = invalid.first()?;
        let disturbed = beside == 0 && disturbed;
        if beside == 0 && !(disturbed && self.alone < most) {
            return None;
        }
        let first = self.first.clone().unwrap_or_else(|| (beside, why.clone()));
        Some(Again { times: self.times + 1, alone: self.alone + u32::from(disturbed), first: Some(first) })
    }

    /// The note on why it ran before.
    fn note(&self) -> Option<String> {
        let (beside, why) = self.first.as_ref()?;
        Some(match beside {
            0 => repeat_note(self.times, why),
            beside => format!(
                "these figures are from a run alone, after {} that could not be trusted; the first, with up to \
                 {beside} beside it: {why}",
                self.times
            ),
        })
    }
}

/// The jobs of a case. A case with `turns` is a single job, because its runs are to be close
/// together in time.
fn jobs_of(file: &CaseFile, options: &Options) -> anyhow::Result<Vec<(Option<Part>, Job)>> {
    let parts = Part::all(file, options)?;
    let time = |part: &Part| part.time(file) + SETUP;
    if file.turns() > 1 {
        let all = parts.iter().map(|(part, _)| time(part)).sum::<u64>() * u64::from(file.turns());
        return Ok(vec![(None, Job { need: Need::Alone, time: all })]);
    }
    Ok(parts.into_iter().map(|(part, need)| (Some(part), Job { need, time: time(&part) })).collect())
}

/// Estimate of the time that the lab needs for a case by itself, in ms; 0 if nothing of it can run
/// or it is wrong.
pub fn time(file: &CaseFile, options: &Options) -> u64 {
    jobs_of(file, options).map_or(0, |jobs| jobs.iter().map(|(_, job)| job.time).sum())
}

/// The outcome of a case that ended with an error.
fn outcome(error: anyhow::Error) -> Outcome {
    match (error.downcast_ref::<Unsupported>(), error.downcast_ref::<NotPermitted>()) {
        (Some(Unsupported(lacking)), _) | (_, Some(NotPermitted(lacking))) => Outcome::Cannot(lacking.clone()),
        _ => Outcome::Failed(format!("{error:#}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_others_or_the_host_disturbed_is_repeated() {
        let whys = ["its loop ran 200ms late".to_owned(), "the host held it back".to_owned()];
        let (late, starved) = ((&whys[..1], true), (&whys[1..], false));
        let none = Again::default();
        assert_eq!(none.note(), None);
        // Beside others: once more, whatever was wrong.
        let second = none.next(starved, 3, 0).unwrap();
        let note = second.note().unwrap();
        assert!(note.contains("up to 3 beside it: the host held it back"), "{note}");
        // Alone: only if it was the host, and so often as is allowed.
        assert_eq!(second.next(starved, 0, 3), None);
        assert_eq!(second.next(late, 0, 0), None);
        let third = second.next(late, 0, 1).unwrap();
        assert_eq!((third.times, third.next(late, 0, 1)), (2, None));
        // What can be trusted is not repeated.
        assert_eq!(none.next((&[], false), 3, 3), None);
        let note = none.next(late, 0, 3).unwrap().note().unwrap();
        assert_eq!(
            note,
            "these figures are from a second run; the host disturbed those before, the first because its loop ran \
             200ms late"
        );
    }
}
