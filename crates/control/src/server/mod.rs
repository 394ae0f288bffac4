//! Answers the clients of a control socket, all of them in one thread.
//!
//! No client can hold up another one, or the thread. Sockets do not block. A client has one request
//! in work: the next one is read when the reply has been received. So a client needs memory for one
//! line, and for one reply that other clients may share. A client that receives nothing of a reply
//! for [`Limits::patience`] is dropped. If replies that wait need more than [`Limits::memory`], the
//! client that has waited longest is dropped. If there are [`Limits::clients`] clients, a new one
//! takes the place of the one that has been silent longest; clients that may change things are
//! dropped last.
//!
//! A client that watches is sent news between its replies. The next news are read from the service
//! when the client has received those before. So a slow client needs little memory, but misses
//! news.

mod connection;

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::fault::{Code, Fault};
use crate::reply::{self, Body};
use crate::request::Request;
use crate::rights::{Peer, Right, Writers};
use crate::tap::Tap;
use connection::Connection;

/// What carries out the requests.
pub trait Service {
    /// Answers a request that its client has the right to make. The answer is JSON.
    ///
    /// # Errors
    /// Why the request is not carried out. The client is sent the fault.
    fn answer(&mut self, request: Request, peer: &Peer) -> Result<Body, Fault>;

    /// A client has sent a file along with the request that [`answer`](Service::answer) gets next,
    /// which begins a tap.
    fn given(&mut self, file: OwnedFd) {
        drop(file);
    }

    /// A client wants to watch. Returns the number of the next event.
    ///
    /// # Errors
    /// Why it cannot watch. The client is sent the fault.
    fn watch(&mut self) -> Result<u64, Fault> {
        Err(Fault::new(Code::Unsupported, "there is nothing to watch here"))
    }

    /// The events from number `from` on, as whole lines, not much more than `most` bytes; and the
    /// number of the event after them.
    fn news(&mut self, from: u64, most: usize) -> (Body, u64) {
        let _ = most;
        (Body::default(), from)
    }

    /// After how long [`work`](Service::work) must be called; `None`: only after requests.
    fn rests(&mut self) -> Option<Duration> {
        None
    }

    /// Does what is due without a request.
    fn work(&mut self) {}
}

/// The limits of what clients may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most clients at a time.
    pub clients: usize,
    /// How long a client may receive nothing of a reply.
    pub patience: Duration,
    /// The most bytes of replies that wait. A single reply may be larger.
    pub memory: usize,
}

impl Default for Limits {
    /// 128 clients, 10 seconds, 256 MB.
    fn default() -> Limits {
        Limits { clients: 128, patience: Duration::from_secs(10), memory: 256 << 20 }
    }
}

/// For this long after its last request, a client is not dropped for a new one.
const FRESH: Duration = Duration::from_secs(1);
/// How long no client is accepted after the process had no descriptor left.
const PAUSE: Duration = Duration::from_millis(100);
/// How often the server looks for events that another thread has made, if a client watches.
const LOOK: Duration = Duration::from_millis(100);

/// A server.
pub struct Server<F> {
    listener: UnixListener,
    writers: Writers,
    /// Asks the kernel who is at the other end.
    peer: F,
    limits: Limits,
    clients: Vec<Connection>,
    /// Until when no client is accepted.
    paused: Option<Instant>,
}

impl<F: Fn(&UnixStream) -> io::Result<Peer>> Server<F> {
    /// A server on a socket that listens. `peer` asks the kernel who is at the other end of a
    /// connection.
    ///
    /// # Errors
    /// That of setting the socket to not block.
    pub fn new(listener: UnixListener, writers: Writers, limits: Limits, peer: F) -> io::Result<Server<F>> {
        listener.set_nonblocking(true)?;
        Ok(Server { listener, writers, peer, limits, clients: Vec::new(), paused: None })
    }

    /// Answers clients until `stop` is readable.
    ///
    /// # Errors
    /// That of poll(2).
    pub fn run(&mut self, service: &mut dyn Service, stop: impl AsFd) -> io::Result<()> {
        while !self.turn(service, stop.as_fd())? {}
        Ok(())
    }

    /// Number of clients.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Waits until something happens, and handles it. True if `stop` is readable.
    ///
    /// # Errors
    /// That of poll(2).
    pub fn turn(&mut self, service: &mut dyn Service, stop: BorrowedFd<'_>) -> io::Result<bool> {
        let now = Instant::now();
        if self.paused.is_some_and(|until| until <= now) {
            self.paused = None;
        }
        let wait = self.wait(now).into_iter().chain(service.rests()).min();
        let timeout = wait.map(|wait| Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos() as _ });
        let listening = if self.paused.is_none() { PollFlags::IN } else { PollFlags::empty() };
        let mut watched = Vec::with_capacity(self.clients.len() + 2);
        watched.push(PollFd::from_borrowed_fd(stop, PollFlags::IN));
        watched.push(PollFd::from_borrowed_fd(self.listener.as_fd(), listening));
        watched.extend(self.clients.iter().map(|client| PollFd::from_borrowed_fd(client.as_fd(), client.wants())));
        match poll(&mut watched, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let happened: Vec<PollFlags> = watched.iter().map(PollFd::revents).collect();
        drop(watched);
        if happened.first().is_some_and(|flags| !flags.is_empty()) {
            return Ok(true);
        }
        service.work();
        let now = Instant::now();
        let mut flags = happened.iter().skip(2);
        for client in &mut self.clients {
            let flags = flags.next().copied().unwrap_or(PollFlags::empty());
            client.work(flags, now, &self.writers, service);
        }
        // Clients that watch are sent what the request of another client has caused.
        self.clients.iter_mut().for_each(|client| client.tell(now, service));
        let patience = self.limits.patience;
        self.clients.retain(|client| !client.is_over(now, patience));
        self.bound_memory();
        if happened.get(1).is_some_and(|flags| !flags.is_empty()) {
            self.accept(now);
        }
        Ok(false)
    }

    /// The longest time to wait for events.
    fn wait(&self, now: Instant) -> Option<Duration> {
        if self.clients.iter().any(Connection::is_ready) {
            return Some(Duration::ZERO);
        }
        let stuck = self.clients.iter().filter_map(Connection::stuck_since).min();
        let dropped = stuck.map(|since| since + self.limits.patience);
        let look = self.clients.iter().any(Connection::watches).then(|| now + LOOK);
        let next = dropped.into_iter().chain(self.paused).chain(look).min()?;
        // A millisecond more, so that the deadline has passed for certain.
        Some(next.saturating_duration_since(now) + Duration::from_millis(1))
    }

    /// Accepts the clients that wait.
    fn accept(&mut self, now: Instant) {
        // At most as many in a turn as there may be clients, so that others do not wait for long.
        for _ in 0..self.limits.clients.max(1) {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // No descriptors or no memory: polling the listener again would return at once.
                Err(_) => {
                    self.paused = Some(now + PAUSE);
                    return;
                }
            };
            // If the kernel does not know the other end, the client has closed the connection
            // already.
            let Ok(peer) = (self.peer)(&stream) else { continue };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let may_write = self.writers.include(&peer);
            if self.clients.len() >= self.limits.clients && !self.make_room(now, may_write) {
                let full =
                    Fault::refused(format!("{} clients are connected, and none of them gives way", self.clients.len()));
                Connection::refuse(stream, &reply::fault(None, &full.help("try again later")));
                continue;
            }
            self.clients.push(Connection::new(stream, peer, may_write, now));
        }
    }

    /// Drops the client that has been silent longest, if there is a silent one. Clients that may
    /// change things are dropped last, and only for another of them.
    fn make_room(&mut self, now: Instant, for_writer: bool) -> bool {
        let silent = |client: &Connection| {
            let fresh = client.asked().is_some_and(|at| now.saturating_duration_since(at) < FRESH);
            !fresh && !client.is_ready() && (for_writer || !client.may_write())
        };
        let all = self.clients.iter().enumerate().filter(|(_, client)| silent(client));
        let Some((at, _)) = all.min_by_key(|(_, client)| (client.may_write(), client.active())) else { return false };
        self.clients.swap_remove(at);
        true
    }

    /// Drops clients, those that have waited longest first, until the replies that wait fit into
    /// the memory limit.
    fn bound_memory(&mut self) {
        loop {
            let mut seen: HashSet<*const u8> = HashSet::new();
            let waiting = self.clients.iter().filter_map(Connection::body).filter(|body| !body.is_empty());
            // A document for which several clients wait is counted once.
            let (mut bytes, mut documents) = (0_usize, 0_usize);
            for body in waiting {
                if seen.insert(Arc::as_ptr(body).cast()) {
                    bytes = bytes.saturating_add(body.len());
                    documents += 1;
                }
            }
            if bytes <= self.limits.memory || documents < 2 {
                return;
            }
            let stuck = self.clients.iter().enumerate().filter_map(|(at, client)| Some((at, client.stuck_since()?)));
            match stuck.min_by_key(|(_, since)| *since) {
                Some((at, _)) => _ = self.clients.swap_remove(at),
                None => return,
            }
        }
    }
}

/// The fault for a line that is too long. Lines of clients that may only read must be shorter.
fn too_long(most: usize, peer: &Peer, writers: &Writers) -> Fault {
    match writers.check(peer, Right::Write) {
        Ok(()) => {
            Fault::usage(format!("a line has at most {most} bytes")).help("send more subscribers in several requests")
        }
        Err(fault) => Fault { message: format!("{}: a line has at most {most} bytes", fault.message), ..fault },
    }
}

/// The longest line that a client may send, in bytes.
fn longest(may_write: bool) -> usize {
    if may_write { crate::request::WRITE_LINE } else { crate::request::READ_LINE }
}

/// An answer; and if its client watches from now on, the number of the next event.
type Answer = (Body, Option<u64>);

/// Answers a line. `given` is the file that came along with it, if there was one.
fn answer(
    line: &[u8],
    given: &mut Option<OwnedFd>,
    peer: &Peer,
    writers: &Writers,
    service: &mut dyn Service,
) -> (Option<u64>, Result<Answer, Fault>) {
    match crate::request::read(line) {
        Err((id, fault)) => (id, Err(fault)),
        Ok(asked) => {
            let needs: Right = asked.request.needs();
            let result = writers.check(peer, needs).and_then(|()| match &asked.request {
                Request::Tap(Tap::Begin { .. }) => {
                    let file = given.take().ok_or_else(|| {
                        Fault::usage("no file came along with the request").help("send its descriptor by SCM_RIGHTS")
                    })?;
                    service.given(file);
                    Ok((service.answer(asked.request, peer)?, None))
                }
                Request::Reserve(reserve) if reserve.watches() => {
                    let from = service.watch()?;
                    Ok((Body::from(format!("{{\"from\":{from}}}").into_bytes()), Some(from)))
                }
                _ => Ok((service.answer(asked.request, peer)?, None)),
            });
            (asked.id, result)
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod watching;
