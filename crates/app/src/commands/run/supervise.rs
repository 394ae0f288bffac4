//! `altq run --supervise`: a process that shapes nothing itself starts a worker, watches over it,
//! and makes sure that packets pass while no worker shapes (docs/service.md).
//!
//! The worker is the same program, started with the same arguments: an `exec` gives it an address
//! space of its own, and only three of the supervisor's descriptors. Its standard output is a
//! socket to the supervisor, on which it receives the policy and sends beats
//! ([`heart`](super::heart)). Its standard input is the listening control socket. The third one is
//! the memory of the history ([`memory`]). While no worker shapes, the supervisor answers on the
//! control socket itself.
//!
//! A worker that replaces another one runs the same policy, even if the file has changed: the file
//! is read only at the start and at SIGHUP.
//!
//! Once everything is open, a worker gives up its rights ([`confined`](super::confined)). The
//! supervisor does what the worker can no longer do: it reads the policy again, and removes rules.

mod allocator;
mod kept;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use altq_config::{Device, Link, Path as By};
use altq_control::Code;
use altq_control::change::{Question, Reply, Text, What};
use altq_control::client::Client;
use altq_control::journal::{Journal, give, locked, that_is_all};
use altq_control::line::Lines;
use altq_control::supervision::{Act, Supervision};
use altq_dataplane::Error as LinkError;
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

/// The most pieces of 64 KiB that are read from the worker at a time.
const PIECES: usize = 256;

/// How long a worker may take to end after it was asked to.
const ENDING: Duration = Duration::from_secs(5);
/// Time until a worker that could not be sent the changes of clients is sent them again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a worker may take to read a policy.
const READING: Duration = Duration::from_secs(5);
/// The longest line of a worker, in bytes: a change contains two policies.
const LONGEST: usize = 1 << 30;
/// How long a worker may be silent, by default.
pub const PATIENCE: Nanos = 150_000_000;
/// How much longer than `--for` all workers together may run. A worker ends by itself before that.
const LATE: Nanos = 1_000_000_000;
/// The flag that makes a supervisor. It is not passed on to the worker.
const FLAG: &str = "--supervise";

/// A worker.
struct Worker {
    child: Child,
    beats: UnixStream,
    lines: Lines,
    /// Takes what is sent to the worker.
    policies: mpsc::Sender<ToWorker>,
    /// Becomes readable when the worker has ended.
    end: OwnedFd,
    /// Exists as long as this does. `None` if the worker does not wait for changes of clients.
    awaits: Option<Arc<()>>,
}

/// What is sent to a worker.
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

    /// True if altq itself executes a link. Links that the kernel executes are shaped even without
    /// a worker.
    fn has_loops(&self) -> bool {
        self.links.iter().any(|link| link.path() != Some(By::Kernel))
    }
}

/// The supervisor.
struct Supervisor<'a> {
    args: &'a Args,
    /// What runs, and what the next worker is sent.
    known: Known,
    /// A policy that was read since and that the worker has not answered yet.
    next: Option<Known>,
    /// The policy that ran last, if what is known was read while no worker ran, and has not run
    /// yet.
    unproven: Option<(Text, BTreeMap<String, u64>)>,
    /// How many policies were read.
    read: u64,
    socket: Option<&'a Opened>,
    began: Instant,
    watch: Supervision,
    worker: Option<Worker>,
    /// True if a worker has ever shaped.
    shaped: bool,
    /// The end by `--for`.
    end: Option<Nanos>,
    /// The changes of clients.
    journal: Arc<Mutex<Journal>>,
    /// Keeps which policy runs, and which one comes back.
    keeper: Keeper,
    /// The policy to which the worker has begun to change, and by what.
    begun: Option<(Text, What)>,
    /// Whether the worker has made a change since `next` was read.
    made_since: bool,
    /// Since when a change that waits is overdue: it should have been taken back.
    overdue: Option<Nanos>,
    away: Option<Away>,
    /// Forwards the frames of bridges while no worker does.
    bypass: Option<Bypass>,
    /// Why there is none. It is told once a worker shapes: if none can, it has said why itself.
    no_bypass: Option<LinkError>,
    /// Does so if there is no `bypass`.
    standby: Option<Standby>,
    manager: Manager,
    /// Watches what differs from the policy.
    drift: Option<drift::Watch>,
    /// The memory of the history, which outlives workers.
    history: Option<OwnedFd>,
}

/// Supervises a worker until a signal comes, or until the worker ends normally.
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
    // Signals are blocked before any thread starts. A child process does not inherit that.
    let ending = Watch::new().context("signals cannot be watched")?;
    let hangup = Hangup::new().context("signals cannot be watched")?;
    Standby::sweep(links);
    let (bypass, no_bypass) = match bypass(args, links) {
        Ok(bypass) => (bypass, None),
        Err(error @ LinkError::Held { .. }) => {
            eprintln!("altq run: {error}");
            return Ok(Exit::of_link(&error));
        }
        Err(error) => (None, Some(error)),
    };
    let links = links.iter().map(|link| (*link).clone()).collect();
    let mut supervisor = Supervisor::new(args, Known { told, files, links }, keeper, socket)?;
    (supervisor.bypass, supervisor.no_bypass) = (bypass, no_bypass);
    let exit = supervisor.run(&ending, &hangup);
    supervisor.manager.tell("STOPPING=1");
    let clean = supervisor.end();
    let links = std::mem::take(&mut supervisor.known.links);
    drop(supervisor);
    // Rules that hold packets back stay unless the end was asked for.
    let (closed, asked) = (args.fail.is_closed(), matches!(exit, Ok(Exit::Ok)));
    let goes = |link: &&Link| !closed || asked || link.path() == Some(By::Kernel);
    // A confined worker cannot remove rules.
    if (!clean || !args.unconfined || closed)
        && let Err(error) = altq_dataplane::sweep(&links.iter().filter(goes).collect::<Vec<&Link>>())
    {
        eprintln!("altq run: {error}");
    }
    exit
}

impl<'a> Supervisor<'a> {
    /// One that has no worker yet, and nothing that forwards frames meanwhile.
    ///
    /// # Errors
    /// The thread that watches what differs from the policy cannot be started.
    fn new(args: &'a Args, known: Known, keeper: Keeper, socket: Option<&'a Opened>) -> io::Result<Supervisor<'a>> {
        let path = socket.and_then(Opened::path);
        let drift = path.map(|path| drift::Watch::telling(path, args.fail.fail()));
        Ok(Supervisor {
            args,
            known,
            next: None,
            unproven: None,
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
            made_since: false,
            overdue: None,
            away: None,
            bypass: None,
            no_bypass: None,
            standby: None,
            manager: Manager::of_environment(),
            drift: drift.transpose()?,
            history: history(args.history),
        })
    }

    fn now(&self) -> Nanos {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }

    fn run(&mut self, ending: &Watch, hangup: &Hangup) -> anyhow::Result<Exit> {
        // With `--for` a worker ends by itself.
        let ends = self.args.duration.is_some();
        let mut pulse = watchdog().map(Pulse::new);
        loop {
            // First read what the worker sent while this process itself was held up.
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
            let now = self.now();
            self.watch.woke(now, now.saturating_sub(until));
            // Each new worker counts its `--for` from its own start, so the end is checked here.
            if ending.seen() || self.end.is_some_and(|end| end <= self.now()) {
                return Ok(Exit::Ok);
            }
            // Read what the worker sent before its end.
            self.listen();
            if let Some(status) = self.ended()? {
                // And what it sent in between.
                self.listen();
                self.worker = None;
                match status.code() {
                    Some(0) if ends => return Ok(Exit::Ok),
                    Some(0) => self.down("the worker was asked to end"),
                    // What kept the first worker from shaping would keep the next ones as well.
                    Some(code) if !self.shaped => return Ok(exit_of(code)),
                    Some(code) => {
                        self.forget_unproven(code);
                        self.down(&format!("the worker ended with code {code}"));
                    }
                    None => self.down(&format!("the worker was ended by signal {}", status.signal().unwrap_or(0))),
                }
            }
            // A policy that is read now is for the next worker if this one has ended already.
            if hangup.seen() {
                self.reload();
            }
        }
    }

    /// Waits until something happens, at most for `most`.
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
        if self.shaped {
            self.take_back_at_start();
        }
        // altq's own bridge takes over. After a bridge of the kernel there is a gap.
        self.standby = None;
        if self.bypass.as_ref().is_some_and(|bypass| !bypass.fits(&self.known.links())) {
            self.bypass = None;
        }
        if self.bypass.is_none() {
            // If an interface is gone, the worker says so.
            self.bypass = bypass(self.args, &self.known.links()).unwrap_or(None);
            // The worker that had claimed the frames has ended.
            if let Some(bypass) = self.bypass.as_ref().filter(|_| self.shaped) {
                bypass.forward();
            }
        }
        let (beats, heart) = UnixStream::pair()?;
        // This very program, even if its file was replaced since.
        let mut command = Command::new("/proc/self/exe");
        let mut given = std::env::args_os().skip(1);
        // Options go directly after the command's name: what comes after `--` is not an option.
        command.args(given.next());
        command.args(["--worker", if self.socket.is_some() { "socket" } else { "alone" }]);
        let has_path = self.socket.is_some_and(|socket| socket.path().is_some());
        let awaits = (has_path && !locked(&self.journal).is_empty()).then(Arc::default);
        if awaits.is_some() {
            command.arg("--awaits-changes");
        }
        // The descriptors that the worker inherits are inheritable only while it is started.
        let claim = self.bypass.as_ref().map(Lent::new).transpose()?;
        if let Some(claim) = &claim {
            command.arg("--claim").arg(claim.number().to_string());
        }
        let lent = self.history.as_ref().map(Lent::new).transpose()?;
        if let Some(lent) = &lent {
            command.arg("--worker-history").arg(lent.number().to_string());
        }
        command.args(given.filter(|argument| argument != FLAG));
        allocator::set(&mut command, !self.args.unconfined);
        command.stdout(Stdio::from(OwnedFd::from(heart)));
        if !self.args.unconfined {
            // They are read from files, and a confined worker can open none.
            command.env("RUST_BACKTRACE", "0");
        }
        // A terminal's Ctrl-C must reach only the supervisor, which asks the worker to end.
        command.process_group(0);
        command.stdin(match self.socket {
            Some(socket) => Stdio::from(OwnedFd::from(socket.listener.try_clone()?)),
            None => Stdio::null(),
        });
        let mut child = command.spawn()?;
        drop(lent);
        // From now on only the worker has the other end of the socket.
        drop((command, claim));
        let end = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).inspect_err(|_| {
            let _ = child.kill();
            let _ = child.wait();
        })?;
        let (policies, told) = mpsc::channel();
        // The policy stays in the socket until the worker reads it.
        let known = &self.known.told;
        let _ = policies.send(ToWorker::Policy(Told { begun: self.keeper.of_worker(&known.begun), ..known.clone() }));
        let telling = beats.try_clone().and_then(|beats| tell(beats, end.try_clone()?, told));
        self.worker = Some(Worker { child, beats, lines: Lines::default(), policies, end, awaits });
        if telling.is_err() {
            self.kill();
        }
        telling
    }

    /// Reads the policy again. It is sent to the worker if that shapes; otherwise the next worker
    /// begins with it.
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
        self.made_since = false;
        if self.worker.is_none() {
            self.take_next();
        }
        self.tell();
    }

    /// Sends the worker what was read, once it shapes. Before that it does not handle SIGHUP, which
    /// would end it.
    fn tell(&self) {
        if let (Some(worker), Some(next)) = (&self.worker, &self.next)
            && self.watch.shaping_since().is_some()
            && worker.policies.send(ToWorker::Policy(next.told.clone())).is_err()
        {
            eprintln!("altq run: SIGHUP: the policy cannot be sent to the worker; the policy that runs stays");
        }
    }

    /// While no worker runs, replaces the known policy by the one that was read.
    fn take_next(&mut self) {
        let Some(next) = self.next.take() else { return };
        if let Err(fault) = self.what_came_fits(&next.links) {
            return eprintln!("altq run: SIGHUP: {}; the policy that runs stays", fault.message);
        }
        eprintln!("altq run: SIGHUP: {} is read; the next worker runs it", self.args.policy.file.display());
        let before = std::mem::replace(&mut self.known, next);
        // It is noted once it runs: perhaps it cannot.
        let rates = locked(&self.journal).rates().clone();
        self.unproven.get_or_insert_with(|| (before.told.text.clone(), rates));
        locked(&self.journal).forget_rates();
        // Removes what is set up for interfaces that the new policy does not shape in the same way.
        let place = |link: &Link| (link.device.clone(), link.path());
        let now: Vec<_> = self.known.links.iter().map(place).collect();
        let gone: Vec<&Link> = before.links.iter().filter(|link| !now.contains(&place(link))).collect();
        if let Err(error) = altq_dataplane::sweep(&gone) {
            eprintln!("altq run: {error}");
        }
        // The thread that answers meanwhile must answer about the links of the new policy.
        let since = self.away.take().map(|away| away.since());
        if let (Some(since), Some(bypass)) = (since, self.watch.bypass()) {
            self.away = self.answer_meanwhile(&bypass.reason, since);
        }
    }

    /// Answers on the control socket while no worker does, which began at `since`.
    fn answer_meanwhile(&self, reason: &str, since: Instant) -> Option<Away> {
        let (closed, until) = (self.args.fail.is_closed(), self.keeper.until());
        let away = Away::start(self.socket?, &self.known.links, (since, reason), closed, until);
        away.inspect_err(|error| eprintln!("altq run: nobody answers on the control socket meanwhile: {error}")).ok()
    }

    /// Reads what the worker has sent. An answer to a question may take longer than a worker may be
    /// silent, so what came meanwhile is read as well.
    fn listen(&mut self) {
        while self.hear() {}
    }

    /// Reads what the worker has sent so far. True if it has asked something, which is answered.
    fn hear(&mut self) -> bool {
        let now = self.now();
        let Some(worker) = &mut self.worker else { return false };
        let mut bytes = [0; 64 << 10];
        // Everything that is there, which is not much: a socket holds some hundred kilobytes.
        for _ in 0..PIECES {
            let mut watched = [PollFd::new(&worker.beats, PollFlags::IN)];
            let there = poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
            if !there.is_ok_and(|count| count > 0) {
                break;
            }
            // The stream ends when the worker ends, which the other descriptor reports.
            let count = worker.beats.read(&mut bytes).unwrap_or(0);
            if count == 0 {
                break;
            }
            worker.lines.push(bytes.get(..count).unwrap_or_default());
        }
        let (mut beats, mut read, mut questions) = (0, false, Vec::new());
        // A note is as long as the request that it is about, or a little longer.
        while let Ok(Some(line)) = worker.lines.take(LONGEST) {
            if line.is_empty() {
                beats += 1;
            } else if line.starts_with(b"{\"keep\":") {
                questions.extend(serde_json::from_slice::<Question>(&line).ok());
            } else if let Some((number, taken)) = answer(&line) {
                // A policy that the worker has refused is not sent again.
                let next = self.next.take_if(|next| next.told.number == number);
                if let Some(next) = next.filter(|_| taken) {
                    if self.made_since {
                        // It was told of already, and perhaps of what was made after it.
                        self.known.files = next.files;
                        self.known.told.number = next.told.number;
                        self.known.told.begun.file = next.told.begun.file;
                    } else {
                        self.known = next;
                        locked(&self.journal).forget_rates();
                    }
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
        let asked = !questions.is_empty();
        for question in questions {
            self.question(question);
        }
        asked
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
        } else if let Some(time) = self.args.duration {
            self.end = Some(self.now().saturating_add(time).saturating_add(LATE));
        }
        if let Some(error) = self.no_bypass.take().filter(|_| self.bypass.is_none()) {
            eprintln!(
                "altq run: {}: {error}",
                match self.args.fail.is_closed() {
                    true => "a program that a killed altq may have left cannot be removed",
                    false => "the kernel cannot forward for bridges while no worker shapes",
                }
            );
        }
        self.give_again();
        self.manager.tell("READY=1\nSTATUS=shaping");
        let unproven = self.unproven.take();
        if !self.shaped {
            self.keeper.started(&self.known.told.text);
        } else if let Some((before, _)) = unproven {
            let text = self.known.told.text.clone();
            self.note_read(&text, &before);
        }
        self.shaped = true;
        self.tell();
    }

    /// Sends a new worker the changes of clients, in a thread, until it has them or ends. The
    /// worker sends notes of them again.
    fn give_again(&self) {
        let Some(path) = self.socket.and_then(Opened::path).map(Path::to_owned) else { return };
        let Some(awaits) = self.worker.as_ref().and_then(|worker| worker.awaits.as_ref()) else { return };
        let (awaits, journal) = (Arc::downgrade(awaits), self.journal.clone());
        let work = move || {
            while awaits.strong_count() > 0 && !given(&journal, &path) {
                std::thread::sleep(AGAIN);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("altq journal".to_owned()).spawn(work) {
            eprintln!("altq run: the changes since the start are lost: {error}");
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
            // Perhaps the previous policy was the reason.
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
            None => self.away = self.answer_meanwhile(&told, Instant::now()),
        }
    }

    /// Returns what becomes of bridges, for the log. Without programs that forward, bridges of the
    /// kernel are set up if the next worker does not start at once: setting one up takes as long as
    /// starting a worker.
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
            // An error means that it has ended meanwhile.
            let _ = pidfd_send_signal(&worker.end, signal);
        }
    }

    /// Kills the worker, stopped or not, and waits for its end.
    fn kill(&mut self) {
        let Some(worker) = &mut self.worker else { return };
        let _ = worker.child.kill();
        let _ = worker.child.wait();
        // Clients know of changes that it has reported, so they must not be lost.
        self.listen();
        self.worker = None;
    }

    /// Asks the worker to end. True if it has ended normally, which means that it has removed its
    /// rules.
    fn end(&mut self) -> bool {
        self.signal(Signal::TERM);
        // One that is stopped would hold its packets until it is killed.
        self.signal(Signal::CONT);
        let Some(worker) = &mut self.worker else { return false };
        let end = Instant::now() + ENDING;
        loop {
            let left = Timespec::try_from(end.saturating_duration_since(Instant::now())).unwrap_or_default();
            // Whether it ended, was too slow, or a signal came is found out below.
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

/// Sends a new worker the changes of clients. False if that must be tried again: the worker does
/// not know that it has them all.
fn given(journal: &Mutex<Journal>, path: &Path) -> bool {
    let sent = Client::connect(path).map(|mut client| {
        let (refused, given) = give(journal, &mut client);
        (refused, given, that_is_all(&mut client))
    });
    let (refused, given, ended) = match sent {
        Ok(sent) => sent,
        Err(fault) => (Vec::new(), Ok(()), Err(fault)),
    };
    for one in &refused {
        eprintln!("altq run: subscriber {} is not there any more: {}", one.id, one.error);
    }
    let again = matches!(&ended, Err(fault) if fault.code == Code::Failed);
    match given.and(ended) {
        Ok(()) if refused.is_empty() => eprintln!("altq run: the changes since the start are made again"),
        Ok(()) => eprintln!("altq run: the other changes since the start are made again"),
        Err(fault) => eprintln!("altq run: not all changes since the start could be made again: {fault}"),
    }
    !again
}

/// Sends a worker policies and answers, in a thread, so that nothing else waits for it.
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
            // The worker waits for the first policy, and for answers. For other policies SIGHUP
            // tells it to read, because a text may be longer than a socket's buffer.
            if at > 0 && policy {
                let _ = pidfd_send_signal(&worker, Signal::HUP);
            }
            if to.write_all(&line).is_err() {
                // Half a line may have gone, and nothing after it could be read. The next worker
                // gets another socket.
                let _ = pidfd_send_signal(&worker, Signal::KILL);
                return;
            }
        }
    };
    std::thread::Builder::new().name("altq policy".to_owned()).spawn(work).map(drop)
}

/// Makes the kernel forward the frames of bridges while no worker does, unless nothing may pass
/// then.
///
/// # Errors
/// Another process runs one of the bridges, or the kernel cannot do it.
fn bypass(args: &Args, links: &[&Link]) -> Result<Option<Bypass>, LinkError> {
    if args.fail.is_closed() { Bypass::sweep(links).map(|()| None) } else { Bypass::new(links) }
}

/// The memory of the history. Without it the next worker begins with an empty history.
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
    mod worker;

    use super::*;

    #[test]
    fn a_worker_s_exit_code_is_the_command_s() {
        for (code, exit) in [(1, 1), (2, 2), (5, 5), (6, 6), (7, 7), (101, 1)] {
            assert_eq!(exit_of(code) as i32, exit);
        }
    }
}
