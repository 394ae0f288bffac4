//! A lane: a worker process, and the thread that talks to it.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::lock;
use crate::SweepError;
use crate::run::{Job, Outcome, Runs};
use crate::worker::{Names, READY};

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

/// What a lane is asked for beside runs.
pub(super) struct Ask<'a> {
    /// What a worker is told first.
    pub(super) job: &'a Job,
    /// The longest that a run may take in real time.
    pub(super) timeout: Option<Duration>,
    /// The command of a worker.
    pub(super) worker: &'a (dyn Fn() -> Command + Sync),
    /// True once all is to end: then no worker is started.
    pub(super) ends: &'a AtomicBool,
}

/// The two ends of the worker's pipes.
pub(super) struct Talk {
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

/// Takes what became of runs, one after another.
pub(super) trait Sink {
    /// A line of the worker. False if it makes no sense.
    fn answer(&mut self, line: &str) -> bool;

    /// A run has no figures, for this reason.
    fn failed(&mut self, why: String);

    /// The runs of the next point follow.
    fn next(&mut self) {}
}

/// Outcomes of runs.
#[derive(Default)]
pub(super) struct Outcomes {
    names: Names,
    pub(super) all: Vec<Outcome>,
}

impl Sink for Outcomes {
    fn answer(&mut self, line: &str) -> bool {
        let outcome = serde_json::from_str(line).ok().and_then(|one| self.names.outcome(one));
        outcome.map(|outcome| self.all.push(outcome)).is_some()
    }

    fn failed(&mut self, why: String) {
        self.all.push(Err(why));
    }
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

    /// Does runs, and tells what became of each, in their order. False if it was stopped, or if the
    /// task is in vain.
    pub(super) fn run(
        &self,
        talk: &mut Option<Talk>,
        ask: &Ask<'_>,
        all: &[Runs],
        sink: &mut dyn Sink,
    ) -> Result<bool, SweepError> {
        for runs in all {
            sink.next();
            let (mut at, mut deaths, mut delays) = (0, 0, 0);
            while at < runs.count {
                // A run that has killed a worker is alone in the next one.
                let alone = deaths + delays > 0;
                let count = if alone { 1 } else { runs.count - at };
                let some = Runs { point: runs.point.clone(), seed: runs.seed.wrapping_add(u64::from(at)), count };
                let (answered, ended) = self.ask(talk, ask, &some, sink)?;
                if answered > 0 {
                    (at, deaths, delays) = (at + answered, 0, 0);
                }
                if ask.ends.load(Ordering::Relaxed) || lock(&self.state).in_vain {
                    return Ok(false);
                }
                let Some(end) = ended else { continue };
                let why = match end {
                    End::Overdue => {
                        delays += 1;
                        let limit = ask.timeout.unwrap_or_default();
                        (delays >= DELAYS).then(|| format!("it took longer than {} s", limit.as_secs_f64()))
                    }
                    End::Dead(how) => {
                        deaths += 1;
                        (deaths >= DEATHS).then(|| format!("it killed its worker process {DEATHS} times: {how}"))
                    }
                };
                if let Some(why) = why {
                    sink.failed(why);
                    (at, deaths, delays) = (at + 1, 0, 0);
                }
            }
        }
        Ok(true)
    }

    /// Asks the worker for runs, and hands on what it answers. Returns how many answers came, and
    /// how the worker ended if it did.
    fn ask(
        &self,
        kept: &mut Option<Talk>,
        ask: &Ask<'_>,
        runs: &Runs,
        sink: &mut dyn Sink,
    ) -> Result<(u32, Option<End>), SweepError> {
        if kept.is_none() {
            *kept = self.start(ask)?;
        }
        let Some(talk) = kept else { return Ok((0, None)) };
        let asked = send(&mut talk.to, runs);
        let mut left = if asked.is_ok() { runs.count } else { 0 };
        let mut line = String::new();
        while left > 0 {
            self.limit(ask.timeout);
            line.clear();
            // The end of the pipe, half a line, or a line that makes no sense: the worker is lost.
            let read = talk.from.read_line(&mut line).is_ok_and(|length| length > 0) && line.ends_with('\n');
            if !(read && sink.answer(&line)) {
                break;
            }
            left -= 1;
        }
        self.limit(None);
        let answered = if asked.is_ok() { runs.count - left } else { 0 };
        if asked.is_ok() && left == 0 {
            return Ok((answered, None));
        }
        *kept = None;
        Ok((answered, Some(self.bury())))
    }

    /// Starts a worker that is ready for runs. None if all is to end: a worker that was killed for
    /// that is not started again.
    fn start(&self, ask: &Ask<'_>) -> Result<Option<Talk>, SweepError> {
        let mut last = None;
        for _ in 0..STARTS {
            if ask.ends.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let mut talk = self.start_once(ask)?;
            let mut line = String::new();
            if talk.from.read_line(&mut line).is_ok() && line == READY {
                return Ok(Some(talk));
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
    fn start_once(&self, ask: &Ask<'_>) -> Result<Talk, SweepError> {
        let mut command = (ask.worker)();
        // In a group of its own, so that Ctrl-C reaches the driver alone, which then ends it.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(SweepError::Worker)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let Some((mut to, from)) = pipes else {
            return Err(SweepError::Worker(io::Error::other("it has no pipes")));
        };
        let mut state = lock(&self.state);
        // What became of the worker before says nothing about this one.
        (state.child, state.overdue) = (Some(child), false);
        drop(state);
        // If it cannot be told, it is found dead at the first question.
        let _ = send(&mut to, ask.job);
        Ok(Talk { to, from: BufReader::new(from) })
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
