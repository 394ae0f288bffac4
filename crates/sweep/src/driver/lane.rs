//! A lane: a worker process, and the thread that talks to it.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Options, lock};
use crate::SweepError;
use crate::figures::Figures;
use crate::plan::{Plan, Point, Task};
use crate::rows::{self, Table};
use crate::run::{Job, Ran};
use crate::worker::{Names, READY, Runs};

/// How many workers a run may kill before it counts as one that kills them. The machine, or a user,
/// may kill a worker too.
const DEATHS: u32 = 3;
/// How often a run may take too long.
const DELAYS: u32 = 2;

/// How many workers in a row may end before they are ready.
const STARTS: u32 = 10;

/// What the main thread sees of a lane.
#[derive(Default)]
pub(super) struct Lane {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    child: Option<Child>,
    /// The task that it is at.
    task: Option<usize>,
    /// When the run that it is at must be over.
    deadline: Option<Instant>,
    /// True if the worker was killed because the deadline had passed.
    overdue: bool,
    /// True if the worker was killed because its task is in vain.
    in_vain: bool,
}

/// The two ends of the worker's pipes.
pub(super) struct Talk {
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    names: Names,
}

impl Lane {
    /// Notes the task that the lane begins.
    pub(super) fn begin(&self, task: usize) {
        let mut state = lock(&self.state);
        (state.task, state.in_vain) = (Some(task), false);
    }

    /// Notes that no task is being done.
    pub(super) fn end(&self) {
        lock(&self.state).task = None;
    }

    /// Kills the worker if its time is over, if its task is in vain, or if all is to end.
    pub(super) fn watch(&self, now: Instant, ending: bool, in_vain: &dyn Fn(usize) -> bool) {
        let mut state = lock(&self.state);
        let late = state.deadline.is_some_and(|deadline| now >= deadline);
        let vain = state.task.is_some_and(in_vain);
        if !(late || vain || ending) {
            return;
        }
        state.deadline = None;
        state.overdue |= late;
        state.in_vain |= vain;
        if let Some(child) = &mut state.child {
            // It may have ended already.
            let _ = child.kill();
        }
    }

    /// Ends the worker, if there is one.
    pub(super) fn close(&self, talk: &mut Option<Talk>) {
        *talk = None;
        if let Some(mut child) = lock(&self.state).child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Does a task. `None` if it was stopped, or if the task is in vain. `told` is called for each
    /// run that is over.
    pub(super) fn run(
        &self,
        talk: &mut Option<Talk>,
        plan: &Plan,
        task: &Task,
        options: &Options<'_>,
        ends: &AtomicBool,
        told: &dyn Fn(),
    ) -> Result<Option<Table>, SweepError> {
        let mut all: Vec<(&Point, Ran)> = Vec::new();
        for piece in &task.pieces {
            let Some(point) = plan.points.get(piece.point) else { continue };
            let (mut sample, mut deaths, mut delays) = (piece.from, 0, 0);
            while sample < piece.to {
                // A run that has killed a worker is alone in the next one.
                let alone = deaths + delays > 0;
                let count = if alone { 1 } else { piece.to - sample };
                let mut answered = 0;
                let ended = self.ask(talk, plan, point, sample, count, options, &mut |outcome| {
                    all.push((point, Ran { sample: sample + answered, seed: plan.seed(sample + answered), outcome }));
                    answered += 1;
                    told();
                })?;
                if answered > 0 {
                    (sample, deaths, delays) = (sample + answered, 0, 0);
                }
                if ends.load(Ordering::Relaxed) || lock(&self.state).in_vain {
                    return Ok(None);
                }
                let Some(end) = ended else { continue };
                let why = match end {
                    End::Overdue => {
                        delays += 1;
                        let limit = options.timeout.unwrap_or_default();
                        (delays >= DELAYS).then(|| format!("it took longer than {} s", limit.as_secs_f64()))
                    }
                    End::Dead(how) => {
                        deaths += 1;
                        (deaths >= DEATHS).then(|| format!("it killed its worker process {DEATHS} times: {how}"))
                    }
                };
                if let Some(why) = why {
                    all.push((point, Ran { sample, seed: plan.seed(sample), outcome: Err(why) }));
                    told();
                    (sample, deaths, delays) = (sample + 1, 0, 0);
                }
            }
        }
        Ok(Some(rows::table(&plan.names, &all)))
    }

    /// Asks the worker for runs, and hands on what it answers. Returns how the worker ended if it
    /// did.
    #[expect(clippy::too_many_arguments, reason = "what is asked, of whom, and where the answers go")]
    fn ask(
        &self,
        kept: &mut Option<Talk>,
        plan: &Plan,
        point: &Point,
        sample: u32,
        count: u32,
        options: &Options<'_>,
        answer: &mut dyn FnMut(Result<Figures, String>),
    ) -> Result<Option<End>, SweepError> {
        if kept.is_none() {
            *kept = Some(self.start(plan, options)?);
        }
        let Some(talk) = kept else { return Ok(None) };
        let runs = Runs { point: point.clone(), seed: plan.seed(sample), count };
        let asked = send(&mut talk.to, &runs);
        let mut left = if asked.is_ok() { count } else { 0 };
        let mut line = String::new();
        while left > 0 {
            self.limit(options.timeout);
            line.clear();
            // The end of the pipe, half a line, or a line that makes no sense: the worker is lost.
            let read = talk.from.read_line(&mut line).is_ok_and(|length| length > 0) && line.ends_with('\n');
            let outcome = read.then(|| serde_json::from_str(&line).ok()).flatten();
            let Some(outcome) = outcome.and_then(|one| talk.names.outcome(one)) else { break };
            answer(outcome);
            left -= 1;
        }
        self.limit(None);
        if asked.is_ok() && left == 0 {
            return Ok(None);
        }
        *kept = None;
        Ok(Some(self.bury()))
    }

    /// Starts a worker that is ready for runs.
    fn start(&self, plan: &Plan, options: &Options<'_>) -> Result<Talk, SweepError> {
        let mut last = None;
        for _ in 0..STARTS {
            let mut talk = self.start_once(plan, options)?;
            let mut line = String::new();
            if talk.from.read_line(&mut line).is_ok() && line == READY {
                return Ok(talk);
            }
            drop(talk);
            last = Some(self.bury());
        }
        let how = match last {
            Some(End::Dead(how)) => how,
            _ => "nobody knows how".into(),
        };
        Err(SweepError::Worker(io::Error::other(format!("it ends before it is ready: {how}"))))
    }

    /// Starts a worker and tells it the job.
    fn start_once(&self, plan: &Plan, options: &Options<'_>) -> Result<Talk, SweepError> {
        let mut command = (options.worker)();
        // In a group of its own, so that Ctrl-C reaches the driver alone, which then ends it.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(SweepError::Worker)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let Some((mut to, from)) = pipes else {
            return Err(SweepError::Worker(io::Error::other("it has no pipes")));
        };
        lock(&self.state).child = Some(child);
        // If it cannot be told, it is found dead at the first question.
        let _ = send(&mut to, &Job::of(plan));
        Ok(Talk { to, from: BufReader::new(from), names: Names::default() })
    }

    /// Sets when the next answer must be there.
    fn limit(&self, timeout: Option<Duration>) {
        lock(&self.state).deadline = timeout.map(|timeout| Instant::now() + timeout);
    }

    /// What became of a worker that no longer answers. The next question starts another one.
    fn bury(&self) -> End {
        let mut state = lock(&self.state);
        let status = state.child.take().map(|mut child| {
            let _ = child.kill();
            child.wait()
        });
        let overdue = std::mem::take(&mut state.overdue);
        drop(state);
        match status {
            _ if overdue => End::Overdue,
            Some(Ok(status)) => End::Dead(how(status)),
            _ => End::Dead("nobody knows how".into()),
        }
    }
}

/// How a worker ended.
enum End {
    /// A run took longer than it may.
    Overdue,
    /// It died: how.
    Dead(String),
}

/// How a process ended, in words that are the same each time.
fn how(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("signal {signal}"),
        (None, Some(code)) => format!("exit code {code}"),
        (None, None) => "no exit code".into(),
    }
}

/// Writes a value as a line.
fn send(to: &mut ChildStdin, value: &impl serde::Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    to.write_all(&line).and_then(|()| to.flush())
}
