//! `altq run --supervise`: a process that shapes nothing itself starts a worker, watches over it,
//! and sees to it that packets pass when the worker does not shape (docs/service.md).
//!
//! The worker is the same program, started anew with the same arguments: an `exec` gives it an
//! address space of its own, and none of the supervisor's descriptors but two. Its standard output
//! is a socket to the supervisor, on which it beats, and is told another policy
//! ([`heart`](super::heart)). Its standard input is the listening control socket. While no worker
//! shapes, the supervisor answers there itself.
//!
//! Once everything is open, a worker gives up its rights ([`confined`](super::confined)). What it
//! may not do any more the supervisor does: it reads the policy again, and takes rules away.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use altq_config::{Device, Link, Path as By, print};
use altq_control::client::Client;
use altq_control::document::{BYPASS, KERNEL, LinkStatus, Status};
use altq_control::journal::Journal;
use altq_control::line::Lines;
use altq_control::reply::{Body, body};
use altq_control::request::WRITE_LINE;
use altq_control::rights::{Peer, Writers};
use altq_control::server::{Limits, Server, Service};
use altq_control::supervision::{Act, Supervision};
use altq_control::{Code, Fault, Request};
use altq_dataplane::bridge::Standby;
use altq_dataplane::signal::{Hangup, Watch};
use altq_dataplane::stop::Stop;
use altq_engine::units::Nanos;
use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::listen::{Opened, peer};
use super::{Args, reload};
use crate::exit::Exit;
use crate::notify::{Manager, watchdog};

/// How long a worker may take to end when it is asked to.
const ENDING: Duration = Duration::from_secs(5);
/// How long a worker may take to read a policy.
const READING: Duration = Duration::from_secs(5);
/// The flag that makes a supervisor; a worker does not get it.
const FLAG: &str = "--supervise";

/// A worker.
struct Worker {
    child: Child,
    beats: UnixStream,
    lines: Lines,
    /// Takes policies that the worker is to be told.
    policies: mpsc::Sender<String>,
    /// Readable when it has ended.
    end: OwnedFd,
}

/// The supervisor.
struct Supervisor<'a> {
    args: &'a Args,
    links: &'a [&'a Link],
    socket: Option<&'a Opened>,
    began: Instant,
    watch: Supervision,
    worker: Option<Worker>,
    /// True if a worker has ever shaped.
    shaped: bool,
    /// What clients have changed.
    journal: Journal,
    away: Option<Away>,
    standby: Option<Standby>,
    manager: Manager,
}

/// Supervises a worker until a signal comes, or until the worker ends as it should.
///
/// # Errors
/// Signals cannot be watched, or no worker can be started.
pub fn supervise(args: &Args, links: &[&Link], socket: Option<&Opened>) -> anyhow::Result<Exit> {
    // Signals are blocked before any thread starts. A child gets none of that.
    let ending = Watch::new().context("signals cannot be watched")?;
    let hangup = Hangup::new().context("signals cannot be watched")?;
    Standby::sweep(links);
    let (began, manager) = (Instant::now(), Manager::of_environment());
    let watch = Supervision::new(0, args.watchdog);
    let (worker, shaped, journal, away, standby) = (None, false, Journal::default(), None, None);
    let mut supervisor =
        Supervisor { args, links, socket, began, watch, worker, shaped, journal, away, standby, manager };
    let exit = supervisor.run(&ending, &hangup);
    supervisor.manager.tell("STOPPING=1");
    let clean = supervisor.end();
    drop(supervisor);
    // A confined worker takes no rules away.
    if (!clean || !args.unconfined)
        && let Err(error) = altq_dataplane::sweep(links)
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
        let watchdog = watchdog().map(|time| time / 3);
        loop {
            // What was said while this process itself was held up counts first.
            self.listen();
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
            let mut wait = Duration::from_nanos(self.watch.deadline().saturating_sub(self.now()));
            if let Some(time) = watchdog {
                self.manager.tell("WATCHDOG=1");
                wait = wait.min(time);
            }
            self.wait(ending, hangup, wait)?;
            if hangup.seen() {
                self.reload();
            }
            if ending.seen() {
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
        // altq's own bridge takes over: for a moment nothing passes.
        self.standby = None;
        let (beats, heart) = UnixStream::pair()?;
        // This very program, also where its file was replaced since.
        let mut command = Command::new("/proc/self/exe");
        command.args(std::env::args_os().skip(1).filter(|argument| argument != FLAG));
        command.stdout(Stdio::from(OwnedFd::from(heart)));
        if !self.args.unconfined {
            // Without this some C libraries look for the number of processors in a file, and
            // backtraces are read from files.
            command.env("MALLOC_ARENA_MAX", "8").env("RUST_BACKTRACE", "0");
        }
        // A terminal's Ctrl-C reaches the supervisor alone, which asks the worker to end.
        command.process_group(0);
        match self.socket {
            Some(socket) => {
                let listener = OwnedFd::from(socket.listener.try_clone()?);
                command.args(["--worker", "socket"]).stdin(Stdio::from(listener));
                if self.journal.has_reservations() {
                    command.arg("--awaits-reservations");
                }
            }
            None => {
                command.args(["--worker", "alone"]).stdin(Stdio::null());
            }
        }
        let mut child = command.spawn()?;
        // The worker alone has the other end of the socket.
        drop(command);
        let end = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).inspect_err(|_| {
            let _ = child.kill();
            let _ = child.wait();
        })?;
        let (policies, told) = mpsc::channel();
        let telling = beats.try_clone().and_then(|beats| tell(beats, end.try_clone()?, told));
        self.worker = Some(Worker { child, beats, lines: Lines::default(), policies, end });
        if telling.is_err() {
            self.kill();
        }
        telling
    }

    /// Reads the policy again, and tells the worker.
    fn reload(&mut self) {
        let Some(policy) = reload::read(self.args) else { return };
        self.journal.forget_rates();
        // A worker that has ended reads the file when it starts.
        let told = self.worker.as_ref().map(|worker| worker.policies.send(print(&policy).text));
        if let Some(Err(_)) = told {
            eprintln!("altq run: SIGHUP: the worker is not told; the policy that runs stays");
        }
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
        let mut beats = 0;
        // A note is as long as the request that it is about, or a little longer.
        while let Ok(Some(line)) = worker.lines.take(2 * WRITE_LINE) {
            if line.is_empty() {
                beats += 1;
            } else {
                self.journal.take(&line);
            }
        }
        if beats > 0 && self.watch.beat(now) {
            self.up();
        }
    }

    /// A worker shapes.
    fn up(&mut self) {
        self.away = None;
        if self.shaped {
            eprintln!("altq run: packets are shaped again");
            self.give_again();
        }
        self.manager.tell("READY=1\nSTATUS=shaping");
        self.shaped = true;
    }

    /// Gives a new worker what clients have changed, in a thread: the worker notes it here anew.
    fn give_again(&self) {
        let Some(path) = self.socket.and_then(Opened::path).map(Path::to_owned) else { return };
        if self.journal.is_empty() {
            return;
        }
        let journal = self.journal.clone();
        let work = move || match Client::connect(&path).and_then(|mut client| journal.give(&mut client)) {
            Ok(()) => eprintln!("altq run: what was changed since the start is changed again"),
            Err(fault) => eprintln!("altq run: what was changed since the start is not whole again: {fault}"),
        };
        if let Err(error) = std::thread::Builder::new().name("altq journal".to_owned()).spawn(work) {
            eprintln!("altq run: what was changed since the start is lost: {error}");
        }
    }

    /// A worker has ended.
    fn down(&mut self, reason: &str) {
        let wait = self.watch.ended(self.now(), reason);
        let next = match wait {
            0 => "at once".to_owned(),
            wait => format!("in {:.1} s", wait as f64 / 1e9),
        };
        let told = format!("{reason}{}", self.bridges(wait > 0));
        eprintln!("altq run: BYPASS: packets pass unshaped: {told}; the next worker starts {next}");
        self.manager.tell(&format!("STATUS=BYPASS: packets pass unshaped: {told}"));
        match (&self.away, self.socket) {
            (Some(away), _) => away.tell(&told),
            (None, Some(socket)) => match Away::start(socket, self.links, &told) {
                Ok(away) => self.away = Some(away),
                Err(error) => eprintln!("altq run: nobody answers on the control socket meanwhile: {error}"),
            },
            (None, None) => {}
        }
    }

    /// Hands bridges to the kernel if the next worker does not start at once: setting one up takes
    /// as long as a worker takes. Says what becomes of them.
    fn bridges(&mut self, waits: bool) -> String {
        if !self.links.iter().any(|link| matches!(link.device, Some(Device::Bridge { .. }))) {
            return String::new();
        }
        if !waits {
            return ", but for bridges, which forward nothing until the next worker begins".to_owned();
        }
        match Standby::new(self.links) {
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
fn tell(mut to: UnixStream, worker: OwnedFd, policies: mpsc::Receiver<String>) -> io::Result<()> {
    to.set_write_timeout(Some(READING))?;
    let work = move || {
        for text in policies {
            // A text may be longer than what a socket holds, so the worker is to read meanwhile.
            let line = serde_json::Value::String(text).to_string() + "\n";
            let _ = pidfd_send_signal(&worker, Signal::HUP);
            if to.write_all(line.as_bytes()).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("altq policy".to_owned()).spawn(work).map(drop)
}

/// The exit code of a worker as that of the command.
fn exit_of(code: i32) -> Exit {
    let all = [Exit::Usage, Exit::Differs, Exit::Bypassed, Exit::Refused, Exit::NotPermitted, Exit::Unsupported];
    all.into_iter().find(|exit| *exit as i32 == code).unwrap_or(Exit::Failed)
}

/// Answers clients while no worker shapes. Dropping it ends that.
struct Away {
    reason: Arc<Mutex<String>>,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Away {
    fn start(socket: &Opened, links: &[&Link], reason: &str) -> io::Result<Away> {
        let stop = Stop::new()?;
        let reason = Arc::new(Mutex::new(reason.to_owned()));
        let names = links.iter().map(|link| (link.name.clone(), link.path().unwrap_or(By::Bridge))).collect();
        let mut answers = AwayAnswers { names, since: Instant::now(), reason: reason.clone() };
        let mut server = server(socket.listener.try_clone()?, socket.writers)?;
        let stopped = stop.clone();
        let work = move || {
            if let Err(error) = server.run(&mut answers, &stopped) {
                eprintln!("altq run: nobody answers on the control socket: {error}");
            }
        };
        let thread = std::thread::Builder::new().name("altq control".to_owned()).spawn(work)?;
        Ok(Away { reason, stop, thread: Some(thread) })
    }

    fn tell(&self, reason: &str) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason.to_owned();
    }
}

fn server(listener: UnixListener, writers: Writers) -> io::Result<Server<impl Fn(&UnixStream) -> io::Result<Peer>>> {
    Server::new(listener, writers, Limits::default(), peer)
}

impl Drop for Away {
    fn drop(&mut self) {
        self.stop.set();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct AwayAnswers {
    names: Vec<(String, By)>,
    since: Instant,
    reason: Arc<Mutex<String>>,
}

impl Service for AwayAnswers {
    fn answer(&mut self, request: Request, _: &Peer) -> Result<Body, Fault> {
        if request != Request::Status {
            return Err(self.fault());
        }
        let reason = self.reason();
        let since_s = self.since.elapsed().as_secs();
        let link = |(name, by): &(String, By)| {
            // Qdiscs of the kernel shape whoever runs.
            let (state, reason) = match by {
                By::Kernel => (KERNEL, None),
                By::Nfqueue | By::Bridge => (BYPASS, Some(reason.clone())),
            };
            let (name, path, state) = (name.clone(), by.name().to_owned(), state.to_owned());
            LinkStatus { name, path, state, since_s, reason, drift: None }
        };
        body(&Status::of(self.names.iter().map(link).collect()))
            .map_err(|error| Fault::new(Code::Failed, error.to_string()))
    }

    fn watch(&mut self) -> Result<u64, Fault> {
        Err(self.fault())
    }
}

impl AwayAnswers {
    fn reason(&self) -> String {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What everything but the status is answered with.
    fn fault(&self) -> Fault {
        let fault = Fault::new(Code::Failed, format!("packets pass unshaped: {}", self.reason()));
        fault.help("ask again when `altq status` says that they are shaped")
    }
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
