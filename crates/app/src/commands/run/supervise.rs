//! `altq run --supervise`: a process that shapes nothing itself starts a worker, watches over it,
//! and sees to it that packets pass when the worker does not shape (docs/service.md).
//!
//! The worker is the same program, started anew with the same arguments: an `exec` gives it an
//! address space of its own, and none of the supervisor's descriptors but three. Its standard
//! output is a socket to the supervisor, on which it is told the policy, and beats
//! ([`heart`](super::heart)). Its standard input is the listening control socket. The third is the
//! memory of the history ([`memory`]). While no worker shapes, the supervisor
//! answers on the control socket itself.
//!
//! A worker that takes the place of another runs the same policy, whatever the file says by then:
//! it is read at the start, and when SIGHUP asks for it.
//!
//! Once everything is open, a worker gives up its rights ([`confined`](super::confined)). What it
//! may not do any more the supervisor does: it reads the policy again, and takes rules away.

mod kept;

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use altq_config::{Device, Link, Path as By};
use altq_control::change::{Question, Reply, Text};
use altq_control::client::Client;
use altq_control::journal::{Journal, give, locked};
use altq_control::line::Lines;
use altq_control::supervision::{Act, Supervision};
use altq_dataplane::bridge::{Bypass, Standby};
use altq_dataplane::signal::{Hangup, Watch};
use altq_engine::units::Nanos;
use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::away::Away;
use super::heart::{Begun, Told, answer};
use super::keep::Keeper;
use super::listen::Opened;
use super::memory::{self, Lent};
use super::{Args, choose, drift, reload};
use crate::exit::Exit;
use crate::notify::{Manager, Pulse, watchdog};

/// How long a worker may take to end when it is asked to.
const ENDING: Duration = Duration::from_secs(5);
/// How long a worker may take to read a policy.
const READING: Duration = Duration::from_secs(5);
/// The longest line of a worker, in bytes: a change has two policies in it.
const LONGEST: usize = 1 << 30;
/// How long a worker may be silent where nobody says another time.
pub const PATIENCE: Nanos = 150_000_000;
/// How much longer than `--for` workers may run together: one that ends by itself does so before.
const LATE: Nanos = 1_000_000_000;
/// The flag that makes a supervisor; a worker does not get it.
const FLAG: &str = "--supervise";

/// A worker.
struct Worker {
    child: Child,
    beats: UnixStream,
    lines: Lines,
    /// Takes what the worker is to be told.
    policies: mpsc::Sender<ToWorker>,
    /// Readable when it has ended.
    end: OwnedFd,
}

/// What a worker is told.
enum ToWorker {
    /// A policy.
    Policy(Told),
    /// The answer to a question.
    Kept(Reply),
}

/// A policy that was read, and the links of it that run.
struct Known {
    told: Told,
    files: drift::Files,
    links: Vec<Link>,
}

impl Known {
    fn links(&self) -> Vec<&Link> {
        self.links.iter().collect()
    }

    /// True if altq itself executes a link. Qdiscs of the kernel shape whoever runs.
    fn has_loops(&self) -> bool {
        self.links.iter().any(|link| link.path() != Some(By::Kernel))
    }
}

/// The supervisor.
struct Supervisor<'a> {
    args: &'a Args,
    /// What runs, and what the next worker is told.
    known: Known,
    /// What was read since, while the worker has not answered it.
    next: Option<Known>,
    /// How many policies were read.
    read: u64,
    socket: Option<&'a Opened>,
    began: Instant,
    watch: Supervision,
    worker: Option<Worker>,
    /// True if a worker has ever shaped.
    shaped: bool,
    /// When all ends, by `--for`.
    end: Option<Nanos>,
    /// What clients have changed.
    journal: Arc<Mutex<Journal>>,
    /// Keeps which policy runs, and which one comes back.
    keeper: Keeper,
    /// What the worker has begun to change the policy to.
    begun: Option<Text>,
    /// Since when a change should be taken back.
    overdue: Option<Nanos>,
    away: Option<Away>,
    /// Forwards what bridges get while no worker does.
    bypass: Option<Bypass>,
    /// Does so where there is no `bypass`.
    standby: Option<Standby>,
    manager: Manager,
    /// Sees what differs from what was asked for.
    drift: Option<drift::Watch>,
    /// The memory of the history, which outlives workers.
    history: Option<OwnedFd>,
}

/// Supervises a worker until a signal comes, or until the worker ends as it should.
///
/// # Errors
/// Signals cannot be watched, or no worker can be started.
pub fn supervise(
    args: &Args,
    (told, keeper): (Told, Keeper),
    files: drift::Files,
    links: &[&Link],
    socket: Option<&Opened>,
) -> anyhow::Result<Exit> {
    // Signals are blocked before any thread starts. A child gets none of that.
    let ending = Watch::new().context("signals cannot be watched")?;
    let hangup = Hangup::new().context("signals cannot be watched")?;
    Standby::sweep(links);
    let links = links.iter().map(|link| (*link).clone()).collect();
    let mut supervisor = Supervisor {
        args,
        known: Known { told, files, links },
        next: None,
        read: 0,
        socket,
        began: Instant::now(),
        watch: Supervision::new(0, args.watchdog.unwrap_or(PATIENCE)),
        worker: None,
        shaped: false,
        end: None,
        journal: Arc::default(),
        keeper,
        begun: None,
        overdue: None,
        away: None,
        bypass: None,
        standby: None,
        manager: Manager::of_environment(),
        drift: socket.and_then(Opened::path).map(drift::Watch::telling).transpose()?,
        history: history(args.history),
    };
    let exit = supervisor.run(&ending, &hangup);
    supervisor.manager.tell("STOPPING=1");
    let clean = supervisor.end();
    let links = std::mem::take(&mut supervisor.known.links);
    drop(supervisor);
    // What holds packets back stays unless the end was asked for.
    let (closed, asked) = (args.fail.is_closed(), matches!(exit, Ok(Exit::Ok)));
    let goes = |link: &&Link| !closed || asked || link.path() == Some(By::Kernel);
    // A confined worker takes no rules away.
    if (!clean || !args.unconfined || closed)
        && let Err(error) = altq_dataplane::sweep(&links.iter().filter(goes).collect::<Vec<&Link>>())
    {
        eprintln!("altq run: {error}");
    }
    exit
}

impl Supervisor<'_> {
    fn now(&self) -> Nanos {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }

    fn run(&mut self, ending: &Watch, hangup: &Hangup) -> anyhow::Result<Exit> {
        // A worker ends by itself, after a time.
        let ends = self.args.duration.is_some();
        let mut pulse = watchdog().map(Pulse::new);
        loop {
            // What was said while this process itself was held up counts first.
            self.listen();
            self.overdue();
            match self.watch.due(self.now()) {
                Act::Start => match self.start() {
                    Ok(()) => {}
                    Err(error) if self.shaped => {
                        self.down(&format!("a worker cannot be started: {error}"));
                        continue;
                    }
                    Err(error) => return Err(error).context("a worker cannot be started"),
                },
                Act::Kill(reason) => {
                    self.kill();
                    self.down(&reason);
                    continue;
                }
                Act::Nothing => {}
            }
            let mut until = self.watch.deadline().min(self.end.unwrap_or(Nanos::MAX));
            if let Some(wait) = self.until_overdue() {
                until = until.min(self.now().saturating_add(wait.as_nanos() as Nanos));
            }
            if let Some(pulse) = &mut pulse {
                if pulse.due(self.now()) {
                    self.manager.tell("WATCHDOG=1");
                }
                until = until.min(pulse.next());
            }
            self.wait(ending, hangup, Duration::from_nanos(until.saturating_sub(self.now())))?;
            if hangup.seen() {
                self.reload();
            }
            // Workers that were replaced have begun their time anew.
            if ending.seen() || self.end.is_some_and(|end| end <= self.now()) {
                return Ok(Exit::Ok);
            }
            // What it has said before its end.
            self.listen();
            if let Some(status) = self.ended()? {
                self.worker = None;
                match status.code() {
                    Some(0) if ends => return Ok(Exit::Ok),
                    Some(0) => self.down("the worker was asked to end"),
                    // What keeps the first worker from shaping keeps the others too.
                    Some(code) if !self.shaped => return Ok(exit_of(code)),
                    Some(code) => self.down(&format!("the worker ended with code {code}")),
                    None => self.down(&format!("the worker was ended by signal {}", status.signal().unwrap_or(0))),
                }
            }
        }
    }

    /// Waits until something happens, but no longer than `most`.
    fn wait(&self, ending: &Watch, hangup: &Hangup, most: Duration) -> io::Result<()> {
        let mut watched = vec![PollFd::new(ending, PollFlags::IN), PollFd::new(hangup, PollFlags::IN)];
        if let Some(worker) = &self.worker {
            watched.push(PollFd::new(&worker.beats, PollFlags::IN));
            watched.push(PollFd::new(&worker.end, PollFlags::IN));
        }
        let timeout = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos() as _ };
        match poll(&mut watched, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Starts a worker.
    fn start(&mut self) -> io::Result<()> {
        // altq's own bridge takes over. From a bridge of the kernel's it does so with a gap.
        self.standby = None;
        if !self.args.fail.is_closed() && !self.bypass.as_ref().is_some_and(|bypass| bypass.fits(&self.known.links())) {
            self.bypass = None;
            // Whatever keeps it from being is found again, and said, when the worker does without.
            self.bypass = Bypass::new(&self.known.links()).unwrap_or(None);
            // Before the first worker has shaped, another process may be at work on the same pair.
            if let Some(bypass) = self.bypass.as_ref().filter(|_| self.shaped) {
                bypass.forward();
            }
        }
        let (beats, heart) = UnixStream::pair()?;
        // This very program, also where its file was replaced since.
        let mut command = Command::new("/proc/self/exe");
        let mut given = std::env::args_os().skip(1);
        // Right behind the command's name: what stands behind `--` is no option.
        command.args(given.next());
        command.args(["--worker", if self.socket.is_some() { "socket" } else { "alone" }]);
        if locked(&self.journal).has_reservations() {
            command.arg("--awaits-reservations");
        }
        // What the worker gets of the supervisor's, for as long as it takes to start it.
        let claim = self.bypass.as_ref().map(Lent::new).transpose()?;
        if let Some(claim) = &claim {
            command.arg("--claim").arg(claim.number().to_string());
        }
        let lent = self.history.as_ref().map(Lent::new).transpose()?;
        if let Some(lent) = &lent {
            command.arg("--worker-history").arg(lent.number().to_string());
        }
        command.args(given.filter(|argument| argument != FLAG));
        command.stdout(Stdio::from(OwnedFd::from(heart)));
        if !self.args.unconfined {
            // Without this some C libraries look for the number of processors in a file, and at how
            // the kernel lends memory (/proc/sys/vm/overcommit_memory) when a thread's arena is to
            // become smaller: no arena has so much to give back. Backtraces are read from files.
            command.env("MALLOC_ARENA_MAX", "8").env("MALLOC_TRIM_THRESHOLD_", "1073741824");
            command.env("RUST_BACKTRACE", "0");
        }
        // A terminal's Ctrl-C reaches the supervisor alone, which asks the worker to end.
        command.process_group(0);
        command.stdin(match self.socket {
            Some(socket) => Stdio::from(OwnedFd::from(socket.listener.try_clone()?)),
            None => Stdio::null(),
        });
        let mut child = command.spawn()?;
        drop(lent);
        // The worker alone has the other end of the socket.
        drop((command, claim));
        let end = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).inspect_err(|_| {
            let _ = child.kill();
            let _ = child.wait();
        })?;
        let (policies, told) = mpsc::channel();
        // It stays there until it is taken.
        let known = &self.known.told;
        let _ = policies.send(ToWorker::Policy(Told { begun: self.keeper.of_worker(&known.begun), ..known.clone() }));
        let telling = beats.try_clone().and_then(|beats| tell(beats, end.try_clone()?, told));
        self.worker = Some(Worker { child, beats, lines: Lines::default(), policies, end });
        if telling.is_err() {
            self.kill();
        }
        telling
    }

    /// Reads the policy again. A worker that shapes is told it; without one, the next worker begins
    /// with it.
    fn reload(&mut self) {
        let Some(policy) = reload::read(self.args) else { return };
        let links = match choose(&policy, self.args.link.as_deref()) {
            Ok(links) => links.into_iter().cloned().collect(),
            Err(message) => return eprintln!("altq run: SIGHUP: {message}; the policy that runs stays"),
        };
        if self.keeper.waits().is_some() {
            return eprintln!("altq run: SIGHUP: a change waits to be confirmed; the policy that runs stays");
        }
        self.read += 1;
        let told = Told::new(self.read, &self.args.policy, &policy);
        let begun = Begun { file: Some(told.text.clone()), instead: None, ..self.known.told.begun.clone() };
        self.next = Some(Known { told: Told { begun, ..told }, files: drift::files(&policy), links });
        if self.worker.is_none() {
            self.take_next();
        }
        self.tell();
    }

    /// Tells the worker what was read, once it shapes. Before that it does not know SIGHUP, which
    /// would end it.
    fn tell(&self) {
        if let (Some(worker), Some(next)) = (&self.worker, &self.next)
            && self.watch.shaping_since().is_some()
            && worker.policies.send(ToWorker::Policy(next.told.clone())).is_err()
        {
            eprintln!("altq run: SIGHUP: the worker is not told; the policy that runs stays");
        }
    }

    /// What was read takes the place of what was known before, while no worker runs.
    fn take_next(&mut self) {
        let Some(next) = self.next.take() else { return };
        eprintln!("altq run: SIGHUP: {} is read; the next worker runs it", self.args.policy.file.display());
        let before = std::mem::replace(&mut self.known, next);
        let text = self.known.told.text.clone();
        self.note_read(&text, &before.told.text);
        locked(&self.journal).forget_rates();
        // What stands on an interface that is not shaped so any more.
        let place = |link: &Link| (link.device.clone(), link.path());
        let now: Vec<_> = self.known.links.iter().map(place).collect();
        let gone: Vec<&Link> = before.links.iter().filter(|link| !now.contains(&place(link))).collect();
        if let Err(error) = altq_dataplane::sweep(&gone) {
            eprintln!("altq run: {error}");
        }
        // Whoever answers meanwhile answers about the links of that policy.
        if self.away.take().is_some()
            && let Some(bypass) = self.watch.bypass()
        {
            self.away = self.answer_meanwhile(&bypass.reason);
        }
    }

    /// Answers on the control socket while no worker does.
    fn answer_meanwhile(&self, reason: &str) -> Option<Away> {
        let away = Away::start(self.socket?, &self.known.links, reason, self.args.fail.is_closed());
        away.inspect_err(|error| eprintln!("altq run: nobody answers on the control socket meanwhile: {error}")).ok()
    }

    /// Reads what the worker has said.
    fn listen(&mut self) {
        let now = self.now();
        let Some(worker) = &mut self.worker else { return };
        let mut watched = [PollFd::new(&worker.beats, PollFlags::IN)];
        let there = poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        if !there.is_ok_and(|count| count > 0) {
            return;
        }
        let mut bytes = [0; 64 << 10];
        // The end of the stream is that of the worker, which the other descriptor tells.
        let count = worker.beats.read(&mut bytes).unwrap_or(0);
        worker.lines.push(bytes.get(..count).unwrap_or_default());
        let (mut beats, mut read, mut questions) = (0, false, Vec::new());
        // A note is as long as the request that it is about, or a little longer.
        while let Ok(Some(line)) = worker.lines.take(LONGEST) {
            if line.is_empty() {
                beats += 1;
            } else if line.starts_with(b"{\"keep\":") {
                questions.extend(serde_json::from_slice::<Question>(&line).ok());
            } else if let Some((number, taken)) = answer(&line) {
                // What it has refused nobody is told again.
                let next = self.next.take_if(|next| next.told.number == number);
                if let Some(next) = next.filter(|_| taken) {
                    self.known = next;
                    locked(&self.journal).forget_rates();
                    read = true;
                }
            } else {
                locked(&self.journal).take(&line);
            }
        }
        if beats > 0 && self.watch.beat(now) {
            self.up();
        } else if let Some(drift) = self.drift.as_ref().filter(|_| read) {
            drift.asks(&self.known.files, &self.known.links);
        }
        for question in questions {
            self.question(question);
        }
    }

    /// A worker shapes.
    fn up(&mut self) {
        self.away = None;
        if let Some(drift) = &self.drift {
            drift.shapes(&self.known.files, &self.known.links);
        }
        if self.shaped {
            let what = if self.known.has_loops() { "packets are shaped again" } else { "a worker runs again" };
            eprintln!("altq run: {what}");
            self.give_again();
        } else if let Some(time) = self.args.duration {
            self.end = Some(self.now().saturating_add(time).saturating_add(LATE));
        }
        self.manager.tell("READY=1\nSTATUS=shaping");
        if !self.shaped {
            self.keeper.started(&self.known.told.text);
        }
        self.shaped = true;
        self.tell();
    }

    /// Gives a new worker what clients have changed, in a thread: the worker notes it here anew.
    fn give_again(&self) {
        let Some(path) = self.socket.and_then(Opened::path).map(Path::to_owned) else { return };
        if locked(&self.journal).is_empty() {
            return;
        }
        let journal = self.journal.clone();
        let work = move || match Client::connect(&path).and_then(|mut client| give(&journal, &mut client)) {
            Ok(()) => eprintln!("altq run: what was changed since the start is changed again"),
            Err(fault) => eprintln!("altq run: what was changed since the start is not whole again: {fault}"),
        };
        if let Err(error) = std::thread::Builder::new().name("altq journal".to_owned()).spawn(work) {
            eprintln!("altq run: what was changed since the start is lost: {error}");
        }
    }

    /// A worker has ended.
    fn down(&mut self, reason: &str) {
        if let Some(bypass) = &self.bypass {
            bypass.forward();
        }
        if let Some(drift) = &self.drift {
            drift.rests();
        }
        self.forget_begun();
        if self.watch.shaping_since().is_none() {
            // Perhaps it is what was wrong with the one before.
            self.take_next();
        } else if self.next.take().is_some() {
            eprintln!("altq run: SIGHUP: the worker has ended before it took the policy; the one before stays");
        }
        let wait = self.watch.ended(self.now(), reason);
        let next = match wait {
            0 => "at once".to_owned(),
            wait => format!("in {:.1} s", wait as f64 / 1e9),
        };
        let told = format!("{reason}{}", self.bridges(wait > 0));
        let by_kernel = self.known.links.iter().any(|link| link.path() == Some(By::Kernel));
        let what = self.args.fail.without_worker(self.known.has_loops(), by_kernel);
        eprintln!("altq run: {what}: {told}; the next worker starts {next}");
        self.manager.tell(&format!("STATUS={what}: {told}"));
        match &self.away {
            Some(away) => away.tell(&told),
            None => self.away = self.answer_meanwhile(&told),
        }
    }

    /// Says what becomes of bridges. Without programs that forward, they are handed to a bridge of
    /// the kernel's if the next worker does not start at once: setting one up takes as long as a
    /// worker takes.
    fn bridges(&mut self, waits: bool) -> String {
        if self.bypass.is_some() {
            return String::new();
        }
        if !self.known.links.iter().any(|link| matches!(link.device, Some(Device::Bridge { .. }))) {
            return String::new();
        }
        if self.args.fail.is_closed() {
            return "; bridges forward nothing at all".to_owned();
        }
        if !waits {
            return ", but for bridges, which forward nothing until the next worker begins".to_owned();
        }
        match Standby::new(&self.known.links()) {
            Ok(standby) => {
                self.standby = Some(standby);
                ", bridges by the kernel".to_owned()
            }
            Err(error) => format!(", but for bridges, which forward nothing until the next worker begins: {error}"),
        }
    }

    /// Whether the worker has ended, and how.
    fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        match &mut self.worker {
            Some(worker) => worker.child.try_wait(),
            None => Ok(None),
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(worker) = &self.worker {
            // It may have ended meanwhile.
            let _ = pidfd_send_signal(&worker.end, signal);
        }
    }

    /// Kills the worker, stopped or not, and waits for its end.
    fn kill(&mut self) {
        if let Some(mut worker) = self.worker.take() {
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }

    /// Asks the worker to end. True if it has ended as it should, and so has taken its rules away.
    fn end(&mut self) -> bool {
        self.signal(Signal::TERM);
        let Some(worker) = &mut self.worker else { return false };
        let end = Instant::now() + ENDING;
        loop {
            let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).unwrap_or_default();
            // Whether it ended, was too slow, or a signal came meanwhile: what follows finds out.
            let _ = poll(&mut [PollFd::new(&worker.end, PollFlags::IN)], Some(&left));
            if let Ok(Some(status)) = worker.child.try_wait() {
                self.worker = None;
                return status.success();
            }
            if Instant::now() >= end {
                break;
            }
        }
        eprintln!("altq run: the worker did not end within {} s, and is killed", ENDING.as_secs());
        self.kill();
        false
    }
}

impl Drop for Supervisor<'_> {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Tells a worker policies, in a thread: nothing else waits for it.
fn tell(mut to: UnixStream, worker: OwnedFd, policies: mpsc::Receiver<ToWorker>) -> io::Result<()> {
    to.set_write_timeout(Some(READING))?;
    let work = move || {
        for (at, told) in policies.into_iter().enumerate() {
            let (line, policy) = match &told {
                ToWorker::Policy(told) => (serde_json::to_vec(told), true),
                ToWorker::Kept(reply) => (serde_json::to_vec(reply), false),
            };
            let Ok(mut line) = line else { return };
            line.push(b'\n');
            // A worker waits for the first one, and for answers. A text may be longer than what a
            // socket holds, so it is to read the others meanwhile.
            if at > 0 && policy {
                let _ = pidfd_send_signal(&worker, Signal::HUP);
            }
            if to.write_all(&line).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("altq policy".to_owned()).spawn(work).map(drop)
}

/// The memory of the history. Without it the next worker knows nothing of what was before.
fn history(size: u64) -> Option<OwnedFd> {
    let make =
        || memory::make(size).inspect_err(|error| eprintln!("altq run: the history ends with a worker: {error}"));
    (size > 0).then(make)?.ok()
}

/// The exit code of a worker as that of the command.
fn exit_of(code: i32) -> Exit {
    let all = [Exit::Usage, Exit::Differs, Exit::Bypassed, Exit::Refused, Exit::NotPermitted, Exit::Unsupported];
    all.into_iter().find(|exit| *exit as i32 == code).unwrap_or(Exit::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_s_exit_code_is_the_command_s() {
        for (code, exit) in [(1, 1), (2, 2), (5, 5), (6, 6), (7, 7), (101, 1)] {
            assert_eq!(exit_of(code) as i32, exit);
        }
    }
}
