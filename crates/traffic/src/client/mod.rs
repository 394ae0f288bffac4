//! The client: connects to servers, runs the flows, and combines the figures of both ends.

mod session;
mod view;

use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use altq_dataplane::sketch::Sketch;
use altq_engine::units::Nanos;

pub use self::session::{Session, printable};
use self::view::{Side, View};
use crate::clock::{self, Processors};
use crate::error::{Doing, Error};
use crate::meter::{Keep, Meter};
use crate::plan::{Direction, FlowSpec, GRACE, Work};
use crate::protocol::{ClientMessage, Datagram, Plan, Preamble, ServerMessage};
use crate::report::{FlowEnd, FlowReport};
use crate::run::{Epoch, Shared};
use crate::udp::{self, Reception};
use crate::{bulk, connect, echo, request, socket};

/// A flow of the client.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// What it does.
    pub spec: FlowSpec,
    /// The client's port of its first connection; further connections have the ports after it. 0:
    /// the system chooses.
    pub sport: u16,
}

/// Options of a run, for all its flows.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Figures begin this long after each flow's start.
    pub warmup: Nanos,
    /// Time between two progress reports.
    pub interval: Duration,
    /// Seed of the sources' random choices.
    pub seed: u64,
}

/// Progress of all flows at a moment.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Time since the start of the run.
    pub at: Nanos,
    /// The same moment by this host's clock of the day, in ns since 1970.
    pub unix: Nanos,
    /// The flows of all sessions, in order.
    pub flows: Vec<FlowProgress>,
}

/// Progress of a flow.
#[derive(Clone, Debug, Default)]
pub struct FlowProgress {
    /// The counters of both ends.
    pub counts: FlowReport,
    /// Rate of received payload over the interval, in bit/s. `None`: the server, which received it,
    /// did not report.
    pub rate_bit_s: Option<u64>,
    /// Datagrams, transactions or connections per second over the interval, as above.
    pub per_second: Option<f64>,
    /// Round trips in the interval, or one-way delays that the client has measured.
    pub recent: Sketch,
}

/// The outcome of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// For each flow, in the order of sessions: the figures of the client and of the server.
    pub flows: Vec<(FlowEnd, FlowEnd)>,
    /// Reasons why the figures cannot be trusted; empty if they can.
    pub invalid: Vec<String>,
    /// Remarks for the reader.
    pub notes: Vec<String>,
    /// How long the run took.
    pub ran: Nanos,
    /// When it began by this host's clock of the day, in ns since 1970.
    pub began: Nanos,
}

/// A flow that runs.
struct Running {
    session: usize,
    place: u16,
    flow: Flow,
    meter: Arc<Meter>,
    links: Mutex<Vec<Link>>,
    done: AtomicU32,
    error: Mutex<Option<String>>,
}

/// A connection or socket of a flow.
enum Link {
    Tcp(u32, TcpStream),
    Udp(u32, UdpSocket, Datagram),
    /// A short connection, which is opened during the run: its two addresses and its preamble.
    Later(SocketAddr, SocketAddr, Preamble),
}

/// Runs the flows of all sessions until they are done or `interrupted` returns true. `report` is
/// called with the progress.
///
/// # Errors
/// If a server refuses or is gone, a connection cannot be made, or this host lacks something.
pub fn run(
    sessions: &mut [(Session, Vec<Flow>)],
    options: RunOptions,
    interrupted: &dyn Fn() -> bool,
    report: &mut dyn FnMut(&Progress),
) -> Result<Outcome, Error> {
    for (session, flows) in sessions.iter_mut() {
        session.propose(Plan {
            flows: flows.iter().map(|flow| flow.spec.clone()).collect(),
            warmup_ns: options.warmup,
            interval_ns: options.interval.as_nanos() as u64,
            rtt_ns: session.rtt_ns,
            one_clock: session.one_clock,
            seed: options.seed,
        })?;
    }
    let mut running = Vec::new();
    for (at, (session, flows)) in sessions.iter_mut().enumerate() {
        for (place, flow) in flows.iter().enumerate() {
            let place = u16::try_from(place).map_err(|_| Error::Wrong("at most 65535 flows".into()))?;
            running.push(Arc::new(Running::connect(at, place, flow, options.warmup, session)?));
        }
        attach(session, &running, at)?;
    }
    for (session, _) in sessions.iter_mut() {
        session.send(&ClientMessage::Start)?;
    }
    for (session, _) in sessions.iter_mut() {
        while session.answer()? != ServerMessage::Started {}
    }
    drive(sessions, options, interrupted, report, &running)
}

/// Waits until the server has assigned every connection to its flow. Meanwhile it sends proofs of
/// UDP addresses again, because they may get lost.
fn attach(session: &mut Session, running: &[Arc<Running>], at: usize) -> Result<(), Error> {
    let own = || running.iter().filter(|flow| flow.session == at);
    let wanted = |flow: &&Arc<Running>| !matches!(flow.flow.spec.work, Work::TcpConnect { .. });
    let mut missing: std::collections::BTreeSet<(u16, u32)> = own()
        .filter(wanted)
        .flat_map(|flow| (0..flow.flow.spec.work.streams()).map(|stream| (flow.place, stream)))
        .collect();
    let begin = Instant::now();
    let mut again = Instant::now() + Duration::from_millis(250);
    while !missing.is_empty() {
        if let Some(ServerMessage::Attached { flow, stream }) = session.receive()? {
            missing.remove(&(flow, stream));
            continue;
        }
        if again <= Instant::now() {
            again = Instant::now() + Duration::from_millis(250);
            for flow in own() {
                for link in flow.links.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                    if let Link::Udp(stream, socket, echo) = link
                        && missing.contains(&(flow.place, *stream))
                    {
                        let _ = socket.send(&echo.bytes());
                    }
                }
            }
        }
        if begin.elapsed() > Duration::from_secs(15) {
            return Err(Error::Ended(format!("{} of the connections have not reached the server", missing.len())));
        }
    }
    Ok(())
}

impl Running {
    /// Opens all connections of a flow.
    fn connect(session_at: usize, place: u16, flow: &Flow, warmup: Nanos, session: &Session) -> Result<Running, Error> {
        let spec = &flow.spec;
        let mut to = session.server;
        to.set_port(spec.port);
        let named = |error: Error| match error {
            Error::Io { doing, error } => Error::Io { doing: format!("flow `{}`: {doing}", spec.name), error },
            Error::Ended(why) => Error::Ended(format!("flow `{}`: {why}", spec.name)),
            Error::Unsupported(why) => Error::Unsupported(format!("flow `{}`: {why}", spec.name)),
            Error::NotPermitted(why) => Error::NotPermitted(format!("flow `{}`: {why}", spec.name)),
            error => error,
        };
        let mut links = Vec::new();
        for stream in 0..spec.work.streams() {
            let mut from = session.local;
            let port = if flow.sport == 0 { 0 } else { u32::from(flow.sport) + stream };
            let beyond = |_| Error::Wrong(format!("flow `{}`: source port {port} is over 65535", spec.name));
            from.set_port(u16::try_from(port).map_err(beyond)?);
            let preamble = session.preamble(place, stream);
            links.push(match spec.work {
                Work::TcpConnect { .. } => Link::Later(from, to, preamble),
                Work::TcpBulk { .. } | Work::TcpRr { .. } => {
                    let mut connection = socket::connect_tcp(from, to, &spec.tuning()).map_err(named)?;
                    std::io::Write::write_all(&mut connection, &preamble.bytes())
                        .doing(|| "opening a connection")
                        .map_err(named)?;
                    Link::Tcp(stream, connection)
                }
                Work::Udp(_) | Work::UdpRr { .. } => {
                    let socket = socket::udp(from, spec.dscp).map_err(named)?;
                    socket.connect(to).doing(|| format!("no way to {to}")).map_err(named)?;
                    let echo = session.prove(&socket, place, stream).map_err(named)?;
                    Link::Udp(stream, socket, echo)
                }
            });
        }
        Ok(Running {
            session: session_at,
            place,
            flow: flow.clone(),
            meter: Arc::new(Meter::new(Keep::Distribution, spec.start_ns.saturating_add(warmup)..spec.stop_ns)),
            links: Mutex::new(links),
            done: AtomicU32::new(0),
            error: Mutex::default(),
        })
    }

    fn failed(&self, error: &Error) {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| error.to_string());
    }

    fn serve(&self, link: Link, one_clock: bool, seed: u64, shared: &Shared) -> Result<(), Error> {
        let spec = &self.flow.spec;
        let (begin, end) = (shared.epoch.at(spec.start_ns), shared.epoch.at(spec.stop_ns));
        let down = spec.direction == Direction::Down;
        if let (Work::TcpBulk { .. }, true, Link::Tcp(_, connection)) = (&spec.work, down, &link) {
            let mut connection = connection.try_clone().doing(|| "a connection")?;
            if bulk::receive(&mut connection, None, shared) {
                self.done.fetch_add(1, Ordering::Relaxed);
            }
            return Ok(());
        }
        if let (Work::Udp(_), true, Link::Udp(_, socket, _)) = (&spec.work, down, &link) {
            return udp::receive(socket, Reception { one_clock, skip: Some(Datagram::is_one) }, shared);
        }
        if !clock::sleep_unless(&shared.stop, begin) {
            return Ok(());
        }
        match (&spec.work, link) {
            (Work::TcpBulk { bytes, .. }, Link::Tcp(stream, mut connection)) => {
                bulk::send(&mut connection, stream, end, bulk::Limits { bytes: *bytes, throttle: None }, shared)
            }
            (Work::TcpRr { .. }, Link::Tcp(_, mut connection)) => match spec.work.sizes() {
                Some(sizes) => request::ask(&mut connection, sizes, spec.work.interval(), end, shared),
                None => Ok(()),
            },
            (Work::UdpRr { .. }, Link::Udp(_, socket, _)) => match spec.work.sizes() {
                Some(sizes) => echo::ask(&socket, sizes, spec.work.interval(), end, shared),
                None => Ok(()),
            },
            (Work::TcpConnect { close, .. }, Link::Later(from, to, preamble)) => {
                connect::make(from, to, &spec.tuning(), &preamble.bytes(), *close, end, shared)
            }
            (Work::Udp(datagrams), Link::Udp(_, socket, _)) => {
                let source = udp::Datagrams {
                    udp: datagrams.udp(),
                    seed,
                    stream: u64::from(self.place),
                    rates: Vec::new(),
                    local: None,
                };
                udp::send(&socket, &source, &[(begin, end)], shared)
            }
            _ => Ok(()),
        }
    }

    /// True if the flow's threads end by themselves. A receiver of datagrams does not end by
    /// itself.
    fn ends(&self) -> bool {
        !(matches!(self.flow.spec.work, Work::Udp(_)) && self.flow.spec.direction == Direction::Down)
    }
}

/// Runs the flows, whose connections are open, and collects the outcome.
fn drive(
    sessions: &mut [(Session, Vec<Flow>)],
    options: RunOptions,
    interrupted: &dyn Fn() -> bool,
    report: &mut dyn FnMut(&Progress),
    running: &[Arc<Running>],
) -> Result<Outcome, Error> {
    let epoch = Epoch::after(Duration::ZERO);
    let began = clock::of_the_day();
    let stop = Arc::new(AtomicBool::new(false));
    let processors = Processors::now()?;
    let mut threads: Vec<(bool, JoinHandle<()>)> = Vec::new();
    for flow in running {
        let one_clock = sessions.get(flow.session).is_some_and(|(session, _)| session.one_clock);
        for link in std::mem::take(&mut *flow.links.lock().unwrap_or_else(PoisonError::into_inner)) {
            let (own, shared) = (flow.clone(), Shared { meter: flow.meter.clone(), stop: stop.clone(), epoch });
            let work = move || {
                if let Err(error) = own.serve(link, one_clock, options.seed, &shared)
                    && !shared.stopped()
                {
                    own.failed(&error);
                }
            };
            let thread = std::thread::Builder::new().name("flow".into()).spawn(work).doing(|| "starting a thread")?;
            threads.push((flow.ends(), thread));
        }
    }
    let view = View::new(began, options.interval.as_nanos() as u64, sessions.len(), sides(running));
    let mut shown = Shown { view, report };
    let (result, beat) = std::thread::scope(|scope| {
        let beat = scope.spawn(|| clock::metronome(&stop));
        let result = watch(sessions, options, interrupted, &mut shown, running, epoch, &threads);
        stop.store(true, Ordering::Relaxed);
        (result, beat.join().unwrap_or_default())
    });
    for (_, thread) in threads {
        // The counters of a thread that panicked are still there.
        let _ = thread.join();
    }
    if result.is_err() {
        shown.show(true);
    }
    result?;
    let ran = epoch.since(Instant::now());
    let mut outcome = Outcome { ran, began, ..Outcome::default() };
    let (busy, stolen) = Processors::now()?.since(&processors);
    if let Some(reason) = beat.broken() {
        outcome
            .invalid
            .push(format!("this host did not keep time: {reason}; its processors were {:.0} % busy", busy * 100.0));
    }
    if stolen > clock::STOLEN {
        outcome
            .invalid
            .push(format!("{:.0} % of this host's processors' time was taken by other machines", stolen * 100.0));
    }
    for (at, (session, flows)) in sessions.iter_mut().enumerate() {
        session.send(&ClientMessage::Stop)?;
        let (theirs, invalid, notes) = loop {
            match session.answer()? {
                ServerMessage::Result { flows, invalid, notes } => break (flows, invalid, notes),
                ServerMessage::Report { at_ns, flows } => shown.view.theirs(at, at_ns, flows),
                _ => {}
            }
        };
        if theirs.len() != flows.len() {
            return Err(Error::Protocol("its result has another number of flows".into()));
        }
        for (flow, theirs) in running.iter().filter(|flow| flow.session == at).zip(theirs) {
            let limited = matches!(flow.flow.spec.work, Work::TcpBulk { bytes: Some(_), .. });
            let done = limited && flow.done.load(Ordering::Relaxed) == flow.flow.spec.work.streams();
            let error = flow.error.lock().unwrap_or_else(PoisonError::into_inner).clone();
            outcome.flows.push((FlowEnd::of(&flow.meter, ran, done, error), theirs));
        }
        let clean = |lines: Vec<String>| lines.into_iter().map(|line| printable(&line)).collect::<Vec<_>>();
        outcome.invalid.extend(clean(invalid));
        for note in clean(notes) {
            if !outcome.notes.contains(&note) {
                outcome.notes.push(note);
            }
        }
    }
    shown.show(true);
    if interrupted() {
        outcome.notes.push(format!("stopped early, after {:.1} s", ran as f64 / 1e9));
    }
    Ok(outcome)
}

/// Where each flow's counters are.
fn sides(running: &[Arc<Running>]) -> Vec<Side> {
    let side = |flow: &Arc<Running>| Side {
        session: flow.session,
        place: usize::from(flow.place),
        received_there: flow.flow.spec.direction == Direction::Up && !flow.flow.spec.work.has_round_trips(),
    };
    running.iter().map(side).collect()
}

/// The progress reports, and who is told.
struct Shown<'a> {
    view: View,
    report: &'a mut dyn FnMut(&Progress),
}

impl Shown<'_> {
    /// Reports the intervals of which everything is known; with `over`, all that are left.
    fn show(&mut self, over: bool) {
        while let Some(progress) = self.view.next(over) {
            (self.report)(&progress);
        }
    }
}

/// Longest wait for a message, after which the flows are looked at.
const POLL: Duration = Duration::from_millis(20);

/// Reads the servers' messages and reports progress until the flows are done.
fn watch(
    sessions: &mut [(Session, Vec<Flow>)],
    options: RunOptions,
    interrupted: &dyn Fn() -> bool,
    shown: &mut Shown<'_>,
    running: &[Arc<Running>],
    epoch: Epoch,
    threads: &[(bool, JoinHandle<()>)],
) -> Result<(), Error> {
    let rtt = sessions.iter().map(|(session, _)| session.rtt_ns).max().unwrap_or(0);
    let stop = |datagrams: bool| {
        let flows = running.iter().filter(|flow| !datagrams || flow.flow.spec.work.is_udp());
        flows.map(|flow| flow.flow.spec.stop_ns).max().unwrap_or(0)
    };
    // Time for the last datagrams to arrive.
    let linger = if running.iter().any(|flow| flow.flow.spec.work.is_udp()) {
        stop(true) + (4 * rtt).max(200_000_000)
    } else {
        0
    };
    let last = stop(false) + GRACE;
    let mut due = epoch.start() + options.interval;
    loop {
        for (at, (session, _)) in sessions.iter_mut().enumerate() {
            let wait = due.saturating_duration_since(Instant::now()).min(POLL);
            if let Some(ServerMessage::Report { at_ns, flows }) = session.receive_within(wait)? {
                shown.view.theirs(at, at_ns, flows);
            }
            // It sends a report in each interval.
            let most = crate::server::SILENCE.max(options.interval * 2);
            if session.silence() > most {
                return Err(Error::Ended(format!("the server has sent nothing for {} s", most.as_secs())));
            }
        }
        let now = Instant::now();
        let since = epoch.since(now);
        if now >= due {
            let flows = running.iter().map(|flow| (FlowReport::of(&flow.meter), flow.meter.recent())).collect();
            shown.view.own(epoch.since(due), since, flows);
            due += options.interval;
        }
        shown.show(false);
        let ended = threads.iter().all(|(ends, thread)| !ends || thread.is_finished());
        if (ended && since >= linger) || since >= last || interrupted() {
            return Ok(());
        }
    }
}
