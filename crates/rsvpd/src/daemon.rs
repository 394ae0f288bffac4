//! The loop: what comes by sockets goes into the state machine with the time, and what comes out of
//! it is sent.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use altq_control::reply;
use altq_control::rights::Right;
use altq_control::{Code, Fault};
use altq_dataplane::Error;
use altq_dataplane::routes::{Kernel, Notices, Way};
use altq_rsvp::node::{Event, Node, Output, ProxyError, Route, Routes, World};
use altq_rsvp::wire::{Sender, Session, Tspec, error_name};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Serialize;

use crate::clients::Clients;
use crate::document::{Changed, Context};
use crate::log::{Log, Say};
use crate::ports::{Failed, Ports, Which, look};
use crate::receivers::Receivers;
use crate::request::{self, Request};
use crate::reserve::Altq;
use crate::settings::{Present, Settings};

/// Packets that are taken from a socket in a turn of the loop, so that a flood at one interface
/// does not keep others waiting.
const TURN: usize = 64;
/// How long after a look at routes and addresses the next one comes at the earliest.
const LOOK: Duration = Duration::from_secs(1);
/// How often a connection to altq is tried.
const CONNECT: Duration = Duration::from_millis(500);

/// The daemon.
pub struct Daemon {
    settings: Settings,
    /// altq's control socket.
    altq_socket: PathBuf,
    ways: Ways,
    notices: Notices,
    present: Vec<Present>,
    ports: Ports,
    altq: Altq,
    node: Node,
    begun: Instant,
    /// The senders that this daemon announces, which it does again when interfaces have changed.
    announced: BTreeMap<(Session, Sender), Tspec>,
    /// What receivers here have asked for, which is asked for again when their paths come again.
    receivers: Receivers,
    /// When routes and addresses are looked at, after a notice.
    look_at: Option<Instant>,
    looked: Instant,
    connect_at: Instant,
    say: Say,
    log: Log,
    unsent: u64,
}

/// The kernel's routes.
struct Ways(Kernel);

impl Routes for Ways {
    fn route(&mut self, to: IpAddr) -> Route {
        match self.0.way(to) {
            Way::Interface(index) => Route::Interface(index),
            Way::Gateway(index, gateway) => Route::Gateway(index, gateway),
            Way::Local => Route::Local,
            Way::Nowhere => Route::Nowhere,
        }
    }
}

/// What a look at the host makes.
type Opened = (Vec<Present>, Ports, Altq, Node);

impl Daemon {
    /// Opens all sockets but those to altq. After that it needs no right but CAP_NET_RAW, and that
    /// for interfaces that come anew. What it has to say goes to `say`, which is to return at once.
    ///
    /// # Errors
    /// An interface that is not there or has no address, a right that is missing, a kernel that has
    /// no router alert.
    pub fn open(settings: Settings, altq_socket: PathBuf, say: Say) -> Result<Daemon, Error> {
        let mut ways = Ways(Kernel::open().map_err(|error| of("asking for routes", error))?);
        let notices = Notices::open().map_err(|error| of("asking for changes of routes", error))?;
        let (present, ports, altq, node) = opened(&settings, &altq_socket, say, &mut ways.0)?;
        let now = Instant::now();
        Ok(Daemon {
            settings,
            altq_socket,
            ways,
            notices,
            present,
            ports,
            altq,
            node,
            begun: now,
            announced: BTreeMap::new(),
            receivers: Receivers::default(),
            look_at: None,
            looked: now,
            connect_at: now,
            say,
            log: Log::new(say),
            unsent: 0,
        })
    }

    /// Speaks RSVP, and answers clients, until `stop` is readable. Reservations stay in altq then,
    /// up to their deadlines, so that a daemon that comes soon finds them.
    ///
    /// # Errors
    /// That of waiting; an interface that has gone.
    pub fn run(&mut self, clients: &mut Clients, stop: impl AsFd) -> Result<(), Error> {
        while !self.turn(clients, stop.as_fd())? {}
        Ok(())
    }

    /// Waits until something happens, and handles it. True if `stop` is readable.
    fn turn(&mut self, clients: &mut Clients, stop: BorrowedFd<'_>) -> Result<bool, Error> {
        let Some(ready) = self.wait(clients, stop)? else { return Ok(true) };
        for which in ready {
            self.receive(which);
        }
        if self.node.next_timeout().is_some_and(|at| at <= self.now()) {
            self.act(|node, now, world| node.handle_timeout(now, world));
        }
        self.follow_altq();
        if self.notices.seen() && self.look_at.is_none() {
            self.look_at = Some(self.looked + LOOK);
        }
        if self.look_at.is_some_and(|at| at <= Instant::now()) {
            self.look()?;
        }
        clients.work(&mut |line, may| self.answer(line, may));
        self.reserve_again();
        self.log.flush();
        Ok(false)
    }

    /// Waits. The sockets at which something has come; None if it is to end.
    fn wait(&self, clients: &Clients, stop: BorrowedFd<'_>) -> Result<Option<Vec<Which>>, Error> {
        let (ports, answered) = (self.ports.watched(), clients.watched());
        let mut watched = vec![
            PollFd::from_borrowed_fd(stop, PollFlags::IN),
            PollFd::from_borrowed_fd(self.notices.as_fd(), PollFlags::IN),
        ];
        watched.extend(ports.iter().map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        watched.extend(answered.iter().map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)));
        watched.extend(self.altq.told().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let wait = self.rests(clients);
        let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos() as _ };
        match poll(&mut watched, Some(&timeout)) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Some(Vec::new())),
            Err(error) => return Err(of("waiting", error.into())),
        }
        let happened = |at: usize| watched.get(at).is_some_and(|watched| !watched.revents().is_empty());
        if happened(0) {
            return Ok(None);
        }
        let ready = ports.iter().enumerate().filter(|(at, _)| happened(at + 2));
        Ok(Some(ready.map(|(_, (which, _))| *which).collect()))
    }

    /// How long there is nothing to do unless something comes.
    fn rests(&self, clients: &Clients) -> Duration {
        let now = Instant::now();
        let timer = self.node.next_timeout().map(|at| Duration::from_nanos(at.saturating_sub(self.now())));
        let look = self.look_at.map(|at| at.saturating_duration_since(now));
        let connect = self.altq.told().is_none().then(|| self.connect_at.saturating_duration_since(now));
        let times = [timer, look, connect, clients.rests(), self.log.rests()];
        times.into_iter().flatten().min().unwrap_or(Duration::from_secs(3600))
    }

    /// The time as the state machine has it.
    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Calls the state machine, and does what it wants done.
    fn act<R>(&mut self, act: impl FnOnce(&mut Node, u64, &mut World<'_>) -> R) -> R {
        let now = self.now();
        let mut random = random;
        let mut world = World { routes: &mut self.ways, admission: &mut self.altq, random: &mut random };
        let result = act(&mut self.node, now, &mut world);
        self.flush();
        result
    }

    /// Takes the packets that have come at a socket, as many as one turn allows.
    fn receive(&mut self, which: Which) {
        for _ in 0..TURN {
            let now = self.now();
            let Daemon { ports, node, ways, altq, .. } = self;
            let there = ports.receive(which, &mut |arrived| {
                let mut random = random;
                let mut world = World { routes: &mut *ways, admission: &mut *altq, random: &mut random };
                node.receive(now, &mut world, arrived);
            });
            self.flush();
            if !there {
                return;
            }
        }
    }

    /// Sends and tells what the state machine wants sent and told.
    fn flush(&mut self) {
        while let Some(output) = self.node.poll() {
            match output {
                Output::Send(transmit) => {
                    if let Err(error) = self.ports.send(&transmit) {
                        self.unsent += 1;
                        self.log.say(format!("a message to {} cannot be sent: {error}", transmit.destination));
                    }
                }
                Output::Event(event) => {
                    if let Event::Path { session, .. } = &event {
                        self.receivers.hear(*session);
                    }
                    if let Some(text) = self.said(&event) {
                        self.log.say(text);
                    }
                }
            }
        }
    }

    /// What is said of an event; None for those that come and go with every refresh of routes.
    fn said(&self, event: &Event) -> Option<String> {
        let rate = |tspec: &Tspec| format!("{} bit/s", crate::document::Tspec::of(tspec).rate_bit_s);
        let error = |code: u8, value: u16| format!("{} ({code:02}/{value:02})", error_name(code, value));
        Some(match event {
            Event::Reserved { session, interface, tspec, class, .. } => {
                format!("{session}: {} are reserved at {}, class {class}", rate(tspec), self.name(*interface))
            }
            Event::Released { session, interface } => {
                format!("{session}: the reservation at {} is over", self.name(*interface))
            }
            Event::Refused { session, code, value, reason, kept, .. } => {
                let kept = if *kept { "; the reservation before stands" } else { "" };
                format!("{session}: refused, {}: {reason}{kept}", error(*code, *value))
            }
            Event::SenderReserved { session, sender, tspec: Some(tspec) } => {
                format!("{session}: {} are reserved for the sender {sender}", rate(tspec))
            }
            Event::SenderReserved { session, sender, tspec: None } => {
                format!("{session}: nothing is reserved for the sender {sender} any more")
            }
            Event::Confirmed { session, by } => format!("{session}: confirmed by {by}"),
            Event::PathError { session, sender, error: told } => {
                format!(
                    "{session}: the path of {sender} met an error at {}: {}",
                    told.node,
                    error(told.code, told.value)
                )
            }
            Event::ResvError { session, error: told } => {
                format!("{session}: refused at {}: {}", told.node, error(told.code, told.value))
            }
            _ => return None,
        })
    }

    /// The name of an interface.
    fn name(&self, index: u32) -> String {
        let found = self.settings.interfaces.iter().zip(&self.present).find(|(_, present)| present.index == index);
        found.map_or_else(|| index.to_string(), |(listed, _)| listed.name.clone())
    }

    /// Takes what altq tells, and connects to it where that is not so.
    fn follow_altq(&mut self) {
        for gone in self.altq.take() {
            self.act(|node, now, world| node.withdrawn(now, world, &gone.key, gone.code, 0));
        }
        let now = Instant::now();
        if self.altq.told().is_some() || now < self.connect_at {
            return;
        }
        self.connect_at = now + CONNECT;
        if let Some(keys) = self.altq.missing() {
            let is_there = |key: &str| keys.contains(key);
            self.act(|node, now, world| node.reinstall(now, world, &is_there));
        }
    }

    /// Looks at interfaces and routes after a notice. Where a listed interface has changed, all
    /// begins anew: neighbours bring the state back by their refreshes, and altq keeps the
    /// reservations meanwhile.
    fn look(&mut self) -> Result<(), Error> {
        (self.look_at, self.looked) = (None, Instant::now());
        let present = match look(&self.settings.interfaces, &mut self.ways.0) {
            Ok(present) => present,
            // An interface without an address may have another one in a moment.
            Err((_, error)) if Errno::from_io_error(&error).is_none() => {
                self.look_at = Some(self.looked + LOOK);
                return Ok(());
            }
            Err(error) => return Err(failed(error)),
        };
        if present == self.present {
            self.act(|node, now, world| node.routes_changed(now, world));
            return Ok(());
        }
        self.log.say("interfaces have changed: state is learned anew".to_owned());
        (self.present, self.ports, self.altq, self.node) =
            opened(&self.settings, &self.altq_socket, self.say, &mut self.ways.0)?;
        for ((session, sender), tspec) in self.announced.clone() {
            // What is not possible any more was said to whoever asks for it.
            let _ = self.act(|node, now, world| node.announce(now, world, session, sender, tspec));
        }
        Ok(())
    }

    /// Asks again for what receivers here have asked for, where a path has come.
    fn reserve_again(&mut self) {
        for (session, (style, senders, tspec)) in self.receivers.again() {
            // Where a path is still missing, this is refused, and done when that comes too.
            let _ = self.act(|node, now, world| node.reserve(now, world, session, (style, &senders), (tspec, false)));
        }
    }

    /// Answers a line of a client.
    fn answer(&mut self, line: &[u8], may: &dyn Fn(Right) -> Result<(), Fault>) -> Vec<u8> {
        let (id, asked) = match request::read(line) {
            Ok(asked) => asked,
            Err((id, fault)) => return reply::fault(id, &fault),
        };
        let done = may(asked.needs()).and_then(|()| self.ask(asked));
        match done {
            Ok(body) => {
                let (mut line, end) = reply::around(id, true);
                line.extend(body);
                line.extend_from_slice(end);
                line
            }
            Err(fault) => reply::fault(id, &fault),
        }
    }

    fn ask(&mut self, asked: Request) -> Result<Vec<u8>, Fault> {
        let refused = |error: ProxyError| Fault::refused(error.to_string());
        match asked {
            Request::Paths => json(&self.context(|context| context.paths(&self.node))),
            Request::Reservations => json(&self.context(|context| context.reservations(&self.node))),
            Request::Neighbours => json(&self.context(|context| context.neighbours(&self.node, self.unsent))),
            Request::Announce(session, sender, tspec) => {
                self.act(|node, now, world| node.announce(now, world, session, sender, tspec)).map_err(refused)?;
                let changed = self.announced.insert((session, sender), tspec) != Some(tspec);
                json(&Changed { changed })
            }
            Request::Renounce(session, sender) => {
                self.announced.remove(&(session, sender));
                json(&Changed { changed: self.act(|node, now, world| node.renounce(now, world, session, sender)) })
            }
            Request::Reserve { session, style, senders, tspec } => {
                if !self.receivers.has_room(&session, self.settings.limits.sessions) {
                    return Err(refused(ProxyError::Limit));
                }
                self.act(|node, now, world| node.reserve(now, world, session, (style, &senders), (tspec, true)))
                    .map_err(refused)?;
                self.receivers.keep(session, (style, senders, tspec));
                json(&Changed { changed: true })
            }
            Request::Release(session) => {
                let was_asked = self.receivers.forget(&session);
                let changed = self.act(|node, now, world| node.release(now, world, session)) || was_asked;
                json(&Changed { changed })
            }
        }
    }

    fn context<R>(&self, make: impl FnOnce(&Context<'_>) -> R) -> R {
        let name = |index: u32| self.name(index);
        let class = |key: &str| self.altq.class(key).map(str::to_owned);
        make(&Context { now: self.now(), name: &name, class: &class })
    }
}

/// Looks at the host, and opens what belongs to its interfaces.
fn opened(settings: &Settings, altq_socket: &std::path::Path, say: Say, kernel: &mut Kernel) -> Result<Opened, Error> {
    let present = look(&settings.interfaces, kernel).map_err(failed)?;
    let ports = Ports::open(&settings.interfaces, &present).map_err(failed)?;
    let classes = settings.interfaces.iter().zip(&present).map(|(listed, there)| (there.index, listed.class.clone()));
    let altq = Altq::new(altq_socket.to_owned(), classes.collect(), say);
    // Numbers of INTEGRITY grow from one start to the next as the clock does (RFC 2747 3), if no
    // more than a message a nanosecond is sent.
    let first_sequence = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let first_sequence = u64::try_from(first_sequence).unwrap_or(0);
    let node = Node::new(settings.config(&present, first_sequence)).map_err(|error| Error::Link(error.to_string()))?;
    Ok((present, ports, altq, node))
}

/// 64 random bits of the kernel.
fn random() -> u64 {
    let mut bytes = [0_u8; 8];
    // The kernel gives so few bytes at once, as soon as it has any.
    let _ = getrandom(bytes.as_mut_slice(), GetRandomFlags::empty());
    u64::from_ne_bytes(bytes)
}

/// An interface that cannot be used.
fn failed((name, error): Failed) -> Error {
    match Errno::from_io_error(&error) {
        Some(Errno::NODEV) => Error::NoInterface { name },
        None => Error::Interface { name, state: "has no address: `ip address add` gives it one" },
        Some(_) => of("raw sockets with router alert", error),
    }
}

/// A system call that failed.
fn of(what: &'static str, source: io::Error) -> Error {
    match Errno::from_io_error(&source) {
        Some(Errno::PERM | Errno::ACCESS) => Error::NotPermitted { what, right: "CAP_NET_RAW", source },
        Some(Errno::NOPROTOOPT | Errno::AFNOSUPPORT | Errno::PROTONOSUPPORT | Errno::OPNOTSUPP) => {
            Error::Unsupported { what, source }
        }
        _ => Error::Io { what, source },
    }
}

fn json(document: &impl Serialize) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(document).map_err(|error| Fault::new(Code::Failed, error.to_string()))
}
