//! `altq run`: shapes real interfaces until stopped (docs/run.md).

mod answers;
mod apply;
mod away;
pub(crate) mod confined;
mod course;
mod drift;
mod fail;
mod heart;
mod keep;
pub(crate) mod listen;
mod live;
mod memory;
mod monitors;
mod paper;
mod reload;
mod reservations;
mod runs;
mod shaped;
mod stat;
mod supervise;
mod table;
mod taps;
#[cfg(feature = "experiments")]
mod tool;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use altq_config::literal;
use altq_config::{Link, Path, Policy};
use altq_dataplane::bridge::{Claim, sweep_left};
use altq_dataplane::shaper::Tuning;
use altq_dataplane::signal::{Hangup, Watch};
use altq_dataplane::{Error as LinkError, Options, Running, Xdp};
use altq_engine::units::Nanos;
use anyhow::Context as _;
use rustix::process::getppid;

use crate::commands::check::refused_by_kernel;
use crate::exit::Exit;
use crate::notify::Manager;
use crate::output;
use crate::policy::{PolicyFile, print_findings};
use crate::socket::Socket;
use course::Course;
use heart::{Told, Wire};
use keep::Keep;
use listen::{Opened, Wanted};
use live::{Known, Live};
use paper::Paper;

/// A SIGHUP is answered within this time.
const LOOK: Duration = Duration::from_millis(250);

/// Time after which freed memory goes back to the kernel: policies and documents come and go.
const TIDY: Duration = Duration::from_secs(30);

/// Options of `altq run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    policy: PolicyFile,
    /// Name of the link to run [default: all links that have a device]
    #[arg(long, value_name = "NAME")]
    link: Option<String>,
    /// Prints one line of JSON (altq.stat/1) per interval instead of a table
    #[arg(long)]
    json: bool,
    /// Time between two tables or lines, such as 500ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Nanos,
    /// Stops after this time, such as 30s [default: at SIGINT or SIGTERM]
    #[arg(long = "for", value_name = "TIME", value_parser = literal::time_with_unit)]
    duration: Option<Nanos>,
    /// Sets up links with `path kernel` and ends; `altq stop` removes them
    #[arg(long, conflicts_with_all = ["json", "quiet", "interval", "duration", "subscribers", "supervise"])]
    #[arg(conflicts_with_all = ["socket", "no_socket", "group", "socket_mode"])]
    detach: bool,
    /// Runs with real-time priority (SCHED_FIFO) and keeps idle processors from sleeping: timers
    /// stay exact on a busy machine, and packets are handled at once on an idle one
    #[arg(long)]
    realtime: bool,
    /// The processors on which the loops run, counted from 0: each loop gets one of them, in turn
    /// [default: any]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    processors: Vec<usize>,
    /// Polls for packets for this time, at most 20us, before it sleeps: packets that follow each
    /// other closely are handled sooner, but the processor works more
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = spin)]
    spin: Nanos,
    /// Carries bridges by AF_XDP instead of packet sockets: with `auto` if the kernel and both
    /// interfaces can do it; with `on`, otherwise nothing runs
    #[arg(long, value_enum, value_name = "WHEN", default_value = "off")]
    xdp: Choice,
    /// Prints no tables: only what changes, on standard error
    #[arg(long, conflicts_with = "json")]
    quiet: bool,
    #[command(flatten)]
    socket: Socket,
    /// Makes no control socket
    #[arg(long, conflicts_with_all = ["socket", "group", "socket_mode"])]
    no_socket: bool,
    /// Group that may use the control socket, and change what runs [default: altq, if there is one]
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Mode of the control socket's file; with 0666 every user may read counters
    #[arg(long, value_name = "OCTAL", default_value = "0660", value_parser = mode)]
    socket_mode: u32,
    /// Reserves room for the classes of so many subscribers, with queues of 50 packets each
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=100_000))]
    subscribers: u32,
    /// Shapes in a separate process, which is watched and started again if it ends; prints no
    /// tables
    #[arg(long, conflicts_with = "json")]
    supervise: bool,
    /// With --supervise: kills a worker that is silent for this time, so that packets pass
    /// [default: 150ms]
    #[arg(long, value_name = "TIME", value_parser = patience)]
    watchdog: Option<Nanos>,
    /// With --supervise: the user that the worker becomes once everything is open [default: altq,
    /// if there is one]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// With --supervise: lets the worker keep all rights, open files and start programs
    #[arg(long, conflicts_with = "user")]
    unconfined: bool,
    #[command(flatten)]
    fail: fail::Args,
    /// Memory for the history of `altq top`, for all links together, such as 64Mbytes; with 0,
    /// classes and flows are not watched
    #[arg(long, value_name = "SIZE", default_value = "16Mbytes", value_parser = history)]
    history: u64,
    /// The descriptor of the history's memory (set by a supervisor)
    #[arg(long, hide = true, requires = "worker")]
    worker_history: Option<i32>,
    /// What the standard input of a worker is (set by a supervisor)
    #[arg(long, hide = true, value_parser = ["socket", "alone"])]
    worker: Option<String>,
    /// The descriptor by which a worker claims the frames of bridges (set by a supervisor)
    #[arg(long, hide = true, requires = "worker")]
    claim: Option<i32>,
    /// Folder in which altq keeps the policies that it may go back to [default: /var/lib/altq]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// A worker will be sent the subscribers and reservations of the previous one (set by a
    /// supervisor)
    #[arg(long, hide = true, requires = "worker")]
    awaits_changes: bool,
}

/// When AF_XDP carries bridges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Choice {
    Off,
    Auto,
    On,
}

impl From<Choice> for Xdp {
    fn from(choice: Choice) -> Xdp {
        match choice {
            Choice::Off => Xdp::Off,
            Choice::Auto => Xdp::Auto,
            Choice::On => Xdp::On,
        }
    }
}

/// The longest time to poll for packets: waking up takes about as long.
const SPIN: Nanos = 20_000;

fn spin(word: &str) -> Result<Nanos, String> {
    match literal::time_with_unit(word)? {
        time if time > SPIN => Err("at most 20us: then sleeping costs less".into()),
        time => Ok(time),
    }
}

/// The packets for which each subscriber gets room in each link.
const QUEUE: usize = 50;

fn patience(word: &str) -> Result<Nanos, String> {
    match literal::time_with_unit(word)? {
        time if time < 100_000_000 => Err("at least 100ms: a worker beats every 25 ms".into()),
        time => Ok(time),
    }
}

/// The range of the memory for the history, in bytes. Five minutes of 10,000 busy classes take 60
/// MB.
const HISTORY: std::ops::RangeInclusive<u64> = 100_000..=4_000_000_000;

fn history(word: &str) -> Result<u64, String> {
    match literal::size(word)? {
        0 => Ok(0),
        size if HISTORY.contains(&size) => Ok(size),
        _ => Err("100kbytes to 4000Mbytes, or 0".into()),
    }
}

fn mode(word: &str) -> Result<u32, String> {
    match u32::from_str_radix(word, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("an octal number up to 0777, such as 0660".to_owned()),
    }
}

fn interval(word: &str) -> Result<Nanos, String> {
    match literal::time_with_unit(word)? {
        time if time < 10_000_000 => Err("at least 10ms: each table or line costs a walk over all classes".into()),
        time => Ok(time),
    }
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    if args.worker.is_some() {
        crate::say::never_wait("altq run");
    }
    if let Some(why) = misplaced(args) {
        eprintln!("altq run: {why}");
        return Ok(Exit::Usage);
    }
    let parent = getppid();
    let wire = args.worker.is_some().then(Wire::new).transpose().context("the supervisor cannot be told")?;
    let begun = match &wire {
        None if args.detach => args.policy.load().map(|policy| (Told::new(0, &args.policy, &policy), policy, None)),
        None => keep::begin(args).map(|(policy, told, keeper)| (told, policy, Some(keeper))),
        Some(wire) => reload::first(wire)?.map(|(policy, told)| (told, policy, None)),
    };
    let Some((told, policy, keeper)) = begun else { return Ok(Exit::Usage) };
    let links = match choose(&policy, args.link.as_deref()) {
        Ok(links) => links,
        Err(message) => {
            eprintln!("altq run: {message}");
            return Ok(Exit::Usage);
        }
    };
    let refused = refused_by_kernel(&policy);
    if !refused.is_empty() {
        print_findings(&refused, &policy.sources, false);
        return Ok(Exit::Usage);
    }
    if args.worker.is_none() {
        said_of_links(args, &policy, &links);
    }
    if args.detach {
        return Ok(detach(&links));
    }
    // Nobody need read the log from now on: neither what shapes nor what watches over it waits for
    // that.
    crate::say::never_wait("altq run");
    if args.supervise {
        let socket = match socket(args) {
            Ok(socket) => socket,
            Err(exit) => return Ok(exit),
        };
        let Some(keeper) = keeper else { return Ok(Exit::Usage) };
        return supervise::supervise(args, (told, keeper), drift::files(&policy), &links, socket.as_ref());
    }
    if args.worker.is_none() {
        for name in sweep_left() {
            eprintln!("altq run: the bridge {name} that a killed altq has left is gone");
        }
    }
    // Signals must be blocked before the loops start, because the loops' threads inherit the mask.
    let watch = Watch::new().context("signals cannot be watched")?;
    let hangup = Hangup::new().context("signals cannot be watched")?;
    let room = args.subscribers as usize * QUEUE;
    let watched = monitors::watched(args.history);
    let flows = if watched.is_some() { monitors::FLOWS } else { 0 };
    let tuning = Tuning { interval: Some(args.interval), room, flows, ..Tuning::default() };
    let (see, seen) = watched.unzip();
    let (processors, xdp) = (args.processors.clone(), args.xdp.into());
    // A confined worker cannot start programs, so the supervisor removes the rules.
    let leave_rules = args.worker.is_some() && !args.unconfined;
    let patience = args.watchdog.unwrap_or(supervise::PATIENCE);
    let claim = args.claim.map(|number| Claim::inherited(number, patience)).transpose();
    let claim = claim.context("the frames of bridges cannot be claimed")?;
    let (realtime, spin, fail) = (args.realtime, args.spin, args.fail.fail());
    let options =
        Options { tuning, realtime, spin, processors, xdp, leave_rules, fail, claim: claim.clone(), seen: see };
    let failed = |error: LinkError| {
        eprintln!("altq run: {error}");
        Exit::of_link(&error)
    };
    let ready = match altq_dataplane::open(&links, options) {
        Ok(ready) => ready,
        Err(error) => return Ok(failed(error)),
    };
    let socket = match socket(args) {
        Ok(socket) => socket,
        Err(exit) => return Ok(exit),
    };
    // It must be opened before the worker is confined.
    let kept = args.worker_history.and_then(monitors::inherited);
    reservations::note_owner();
    if args.worker.is_some() {
        answers::note_supervisor();
    }
    if leave_rules && let Err(exit) = confined::give_up(&links, args.user.as_deref(), args.realtime, parent) {
        return Ok(exit);
    }
    if args.worker.is_some() && args.unconfined {
        confined::go_on_for_the_end();
    }
    let running = match ready.start() {
        Ok(running) => running,
        Err(error) => return Ok(failed(error)),
    };
    watch.stop_on_signal(running.stopper()).context("signals cannot be watched")?;
    for note in running.notes() {
        eprintln!("altq run: {note}");
    }
    let keep = match (&wire, keeper) {
        (None, Some(mut keeper)) => {
            keeper.started(&told.text);
            Keep::Here(Box::new(Mutex::new(keeper)))
        }
        (Some(wire), _) => Keep::There(wire.clone()),
        (None, None) => return Ok(Exit::Usage),
    };
    let known = Known { course: Course::new(told, reservations::time().now), keep, only: args.link.clone() };
    let live = Live::new(&links, running.reach().clone(), tuning, known);
    let live = Arc::new(live.map_err(|error| LinkError::Spec { link: links[0].name.clone(), error })?);
    if args.awaits_changes {
        reservations::await_those_before(&live);
    }
    if let Some(seen) = seen {
        monitors::start(live.clone(), seen, args.history, kept).context("classes cannot be watched")?;
    }
    let stop = running.stopper();
    if args.worker.is_none() && socket.is_some() {
        live.watch(&policy, &links, args.fail.fail()).context("no thread can be started")?;
    }
    let answering = socket.as_ref().map(|socket| listen::answer(socket, live.clone(), wire.clone(), &stop));
    let answering = answering.transpose().context("the control socket cannot be used")?;
    let manager = args.worker.is_none().then(Manager::of_environment);
    if let Some(wire) = wire.clone() {
        heart::start(wire, running.reach().clone(), claim, stop).context("the supervisor cannot be told")?;
    }
    if let Some(manager) = &manager {
        manager.tell("READY=1");
    }
    if args.worker.is_none() {
        // Whoever reads standard output may stop reading, and then `show` waits.
        let ticking = live.clone();
        let tick = move || {
            loop {
                std::thread::sleep(LOOK);
                apply::tick(&ticking, None, None);
            }
        };
        let thread = std::thread::Builder::new().name("altq tick".to_owned()).spawn(tick);
        thread.context("no thread can be started")?;
    }
    let tidy = || {
        loop {
            std::thread::sleep(TIDY);
            altq_dataplane::give_back();
        }
    };
    let thread = std::thread::Builder::new().name("altq memory".to_owned()).spawn(tidy);
    thread.context("no thread can be started")?;
    let printed = show(args, &live, &running, &hangup, wire.as_ref());
    if let Some(manager) = &manager {
        manager.tell("STOPPING=1");
    }
    drop(answering);
    // Rules that the loops take away stay away.
    live.rest();
    running.stop();
    if let Err(error) = running.wait().and_then(|()| args.fail.lift(&links, args.worker.is_some())) {
        eprintln!("altq run: {error}");
        return Ok(Exit::of_link(&error));
    }
    match printed {
        // The reader of the pipe has gone, which is not an error.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Exit::Ok),
        printed => printed.map(|()| Exit::Ok).context("stdout cannot be written"),
    }
}

/// The given options that concern altq's own loops.
fn of_loops(args: &Args) -> impl Iterator<Item = &'static str> {
    let given = [
        ("--realtime", args.realtime),
        ("--spin", args.spin > 0),
        ("--processors", !args.processors.is_empty()),
        ("--xdp", args.xdp != Choice::Off),
        ("--fail closed", args.fail.is_closed()),
    ];
    given.into_iter().filter(|(_, given)| *given).map(|(option, _)| option)
}

/// Why an option does not fit to the others.
fn misplaced(args: &Args) -> Option<String> {
    if args.policy.file.as_os_str() == "-" {
        let why = "the policy is read again at SIGHUP, which standard input cannot be";
        return Some(format!("{why}; write it to a file (`altq check -` takes it as it is)"));
    }
    if args.detach
        && let Some(option) = of_loops(args).next()
    {
        return Some(format!(
            "{option} concerns altq's own loops, but with --detach the kernel alone executes the links; leave one \
             of the two out"
        ));
    }
    if let Some(why) = args.fail.misplaced() {
        return Some(why);
    }
    let of_workers =
        [("--watchdog", args.watchdog.is_some()), ("--user", args.user.is_some()), ("--unconfined", args.unconfined)];
    let (option, _) = of_workers.into_iter().find(|(_, given)| *given)?;
    let supervised = args.supervise || args.worker.is_some();
    (!supervised).then(|| format!("{option} concerns a worker, and there is none without --supervise; write that too"))
}

/// Prints which links are left out, and which options have no effect.
fn said_of_links(args: &Args, policy: &Policy, links: &[&Link]) {
    if args.link.is_none() && links.iter().all(|link| link.device.is_some()) {
        for link in policy.links.iter().filter(|link| link.device.is_none()) {
            eprintln!("altq run: link {} has no device, so it is left out", link.name);
        }
    }
    // --realtime also helps the kernel, because processors stay awake. --xdp is reported where
    // bridges are opened.
    let idle = of_loops(args).find(|option| ["--spin", "--processors"].contains(option));
    if let Some(option) = idle
        && links.iter().all(|link| link.path() == Some(Path::Kernel))
    {
        eprintln!("altq run: the kernel executes all links, so {option} makes no packet faster");
    }
}

/// Sets up links that the kernel executes, and leaves them.
fn detach(links: &[&Link]) -> Exit {
    if let Some(link) = links.iter().find(|link| link.path() != Some(Path::Kernel)) {
        eprintln!(
            "altq run: link `{}` needs a process, because altq itself executes it; write `path kernel` in it, or leave \
             --detach out",
            link.name
        );
        return Exit::Usage;
    }
    match altq_dataplane::kernel::detach(links) {
        Ok(set) => {
            for one in set {
                let does = if one.ingress { "what comes in at" } else { "what leaves by" };
                eprintln!("altq run: link {}: {does} {}; `altq stop {}` ends it", one.link, one.interface, one.link);
            }
            Exit::Ok
        }
        Err(error) => {
            eprintln!("altq run: {error}");
            Exit::of_link(&error)
        }
    }
}

/// The links to run: the one with this name, or all that have a device. If none has one, all of
/// them, which are then refused with the reason.
fn choose<'a>(policy: &'a Policy, name: Option<&str>) -> Result<Vec<&'a Link>, String> {
    let Some(name) = name else {
        let with_device: Vec<&Link> = policy.links.iter().filter(|link| link.device.is_some()).collect();
        return Ok(if with_device.is_empty() { policy.links.iter().collect() } else { with_device });
    };
    match policy.links.iter().find(|link| link.name == name) {
        Some(link) => Ok(vec![link]),
        None => {
            let names: Vec<&str> = policy.links.iter().map(|link| link.name.as_str()).collect();
            Err(format!("no link `{name}` in this policy; it has {}", names.join(", ")))
        }
    }
}

/// Makes the control socket, or takes the supervisor's. If it cannot be made at the default path,
/// that is printed, and altq runs without it.
fn socket(args: &Args) -> Result<Option<Opened>, Exit> {
    let (path, chosen) = args.socket.path();
    let wanted = Wanted { path: &path, group: args.group.as_deref(), mode: args.socket_mode };
    let opened = match args.worker.as_deref() {
        None if args.no_socket => return Ok(None),
        None => listen::open(&wanted),
        Some("socket") => listen::inherited(&wanted),
        Some(_) => return Ok(None),
    };
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(problem) if chosen || args.group.is_some() => {
            eprintln!("altq run: {}", problem.message);
            Err(problem.exit)
        }
        Err(problem) => {
            eprintln!("altq run: it runs without a control socket: {}", problem.message);
            Ok(None)
        }
    }
}

/// Prints the loops' snapshots until the loops end or the time is over, and reads the policy again
/// after SIGHUP. An error means that the reader of the output has gone.
fn show(args: &Args, live: &Live, running: &Running, hangup: &Hangup, wire: Option<&Wire>) -> io::Result<()> {
    let end = args.duration.map(|time| Instant::now() + Duration::from_nanos(time));
    let out = io::stdout().lock();
    let screen = if args.json || !out.is_terminal() {
        table::Screen::Plain
    } else {
        table::Screen::Terminal { color: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) }
    };
    let mut paper = Paper::new(out);
    let links = live.lock().names().len();
    // The number of snapshots since the last table.
    let mut news = 0;
    loop {
        let asked = hangup.seen();
        // A worker is sent the policy. SIGHUP may also come from somebody else. The policy waits
        // until what the worker before had is here.
        let comes = wire.map_or(asked, |wire| wire.has_policy() && apply::is_complete(live));
        if comes {
            reload::reload(args, live, wire);
        }
        for line in running.said().try_iter() {
            eprintln!("altq run: {line}");
        }
        let wait = end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
        match running.snapshots().recv_timeout(wait.min(LOOK)) {
            Ok(snapshot) => {
                news += 1;
                apply::tick(live, wire, Some(&snapshot));
                live.lock().take(snapshot);
            }
            Err(RecvTimeoutError::Timeout) => {
                apply::tick(live, wire, None);
                if end.is_some_and(|end| end <= Instant::now()) {
                    running.stop();
                }
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        if args.quiet || args.worker.is_some() || news < links {
            continue;
        }
        let Some(shown) = live.lock().shown() else { continue };
        news = 0;
        let shown: Vec<_> = shown.iter().map(|(shaped, snapshot)| (&**shaped, &**snapshot)).collect();
        if args.json {
            let mut counted = stat::of(&shown, false);
            live.mark(&mut counted);
            let mut line = serde_json::to_vec(&counted).map_err(io::Error::from)?;
            line.push(b'\n');
            paper.print(&line)?;
        } else {
            let last = shown.iter().all(|(_, snapshot)| snapshot.last);
            paper.print(table::draw(&shown, screen, last, output::width()).as_bytes())?;
        }
    }
}
