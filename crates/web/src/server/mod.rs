//! Answers browsers and collectors, all of them in one thread.
//!
//! No client can hold up another one, or make the process grow. Sockets do not block. A client has
//! one request, of bounded length and time, and one response, whose body others may share. A client
//! that watches is sent the newest event when it has received the one before. So a slow client
//! misses events, and one that receives nothing for [`Limits::stuck`] is dropped.

mod connection;
pub mod site;

use std::collections::HashSet;
use std::io::{self, ErrorKind, Read};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use connection::Connection;
use site::Site;

/// The limits of what clients may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most connections at a time.
    pub connections: usize,
    /// The most clients that watch.
    pub watching: usize,
    /// How long a request may take to come.
    pub asking: Duration,
    /// How long a client may receive nothing of what it is sent.
    pub stuck: Duration,
    /// How long one response or event may take in all.
    pub whole: Duration,
    /// How long a connection stays open after its response, for what the client still sends.
    pub lingering: Duration,
    /// The most bytes of responses that wait. A single response may be larger.
    pub memory: usize,
}

impl Default for Limits {
    /// 64 connections, 16 of them watching; 5 s for a request, 10 s without progress, 60 s in all;
    /// 256 MB.
    fn default() -> Limits {
        Limits {
            connections: 64,
            watching: 16,
            asking: Duration::from_secs(5),
            stuck: Duration::from_secs(10),
            whole: Duration::from_secs(60),
            lingering: Duration::from_secs(1),
            memory: 256 << 20,
        }
    }
}

/// How long no client is accepted after the process had no descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

/// A server.
pub struct Server {
    listener: TcpListener,
    site: Site,
    limits: Limits,
    clients: Vec<Connection>,
    /// Becomes readable when there is a new frame.
    woken: UnixStream,
    /// Until when no client is accepted.
    paused: Option<Instant>,
}

impl Server {
    /// A server on a socket that listens. `woken` is that of the board that the site shows.
    ///
    /// # Errors
    /// That of setting the socket to not block.
    pub fn new(listener: TcpListener, site: Site, woken: UnixStream, limits: Limits) -> io::Result<Server> {
        listener.set_nonblocking(true)?;
        Ok(Server { listener, site, limits, clients: Vec::new(), woken, paused: None })
    }

    /// Answers clients for ever.
    ///
    /// # Errors
    /// That of poll(2).
    pub fn run(&mut self) -> io::Result<()> {
        loop {
            self.turn(None)?;
        }
    }

    /// Number of connections.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Waits until something happens, at most for `most`, and handles it.
    ///
    /// # Errors
    /// That of poll(2).
    pub fn turn(&mut self, most: Option<Duration>) -> io::Result<()> {
        let now = Instant::now();
        if self.paused.is_some_and(|until| until <= now) {
            self.paused = None;
        }
        let rests = self.clients.iter().filter_map(|client| client.rests(&self.limits, now));
        let paused = self.paused.map(|until| until.saturating_duration_since(now));
        let wait = rests.chain(paused).chain(most).min();
        let timeout = wait.map(|wait| Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos() as _ });
        let listening = if self.paused.is_none() { PollFlags::IN } else { PollFlags::empty() };
        let mut watched = Vec::with_capacity(self.clients.len() + 2);
        watched.push(PollFd::from_borrowed_fd(self.woken.as_fd(), PollFlags::IN));
        watched.push(PollFd::from_borrowed_fd(self.listener.as_fd(), listening));
        watched.extend(self.clients.iter().map(|client| PollFd::from_borrowed_fd(client.as_fd(), client.wants())));
        match poll(&mut watched, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let happened: Vec<PollFlags> = watched.iter().map(PollFd::revents).collect();
        drop(watched);
        self.drain();
        let now = Instant::now();
        let mut watching = self.clients.iter().filter(|client| client.is_watching()).count();
        for (client, flags) in self.clients.iter_mut().zip(happened.iter().skip(2)) {
            let before = client.is_watching();
            client.work(*flags, now, &self.site, watching < self.limits.watching);
            watching += usize::from(client.is_watching() && !before);
        }
        let frame = self.site.frame();
        for client in &mut self.clients {
            client.tell(&frame, now);
            if client.deadline(&self.limits).is_some_and(|deadline| deadline <= now) {
                client.expire(now);
            }
        }
        self.clients.retain(|client| !client.is_over());
        self.bound_memory();
        if happened.get(1).is_some_and(|flags| !flags.is_empty()) {
            self.accept(now);
        }
        Ok(())
    }

    /// Reads all wake-ups.
    fn drain(&mut self) {
        let mut piece = [0; 64];
        while matches!(self.woken.read(&mut piece), Ok(count) if count > 0) {}
    }

    /// Accepts the clients that wait.
    fn accept(&mut self, now: Instant) {
        // At most as many in a turn as there may be connections, so that others do not wait for
        // long.
        for _ in 0..self.limits.connections.max(1) {
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
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            // Events are small and are sent at once. If this fails, they only come a little later.
            let _ = stream.set_nodelay(true);
            if self.clients.len() >= self.limits.connections && !self.make_room() {
                // It is closed.
                continue;
            }
            self.clients.push(Connection::new(stream, now));
        }
    }

    /// Drops the client whose request has been incomplete for longest, if there is one.
    fn make_room(&mut self) -> bool {
        let asking = self.clients.iter().enumerate().filter(|(_, client)| client.is_asking());
        let Some((at, _)) = asking.min_by_key(|(_, client)| client.opened()) else { return false };
        self.clients.swap_remove(at);
        true
    }

    /// Drops clients, those that have waited longest first, until the responses that wait fit into
    /// the memory limit.
    fn bound_memory(&mut self) {
        loop {
            let mut seen: HashSet<*const u8> = HashSet::new();
            let (mut bytes, mut bodies) = (0_usize, 0_usize);
            for (body, _) in self.clients.iter().filter_map(Connection::waiting) {
                // A body for which several clients wait is counted once.
                if seen.insert(Arc::as_ptr(body).cast()) {
                    bytes = bytes.saturating_add(body.len());
                    bodies += 1;
                }
            }
            if bytes <= self.limits.memory || bodies < 2 {
                return;
            }
            let waiting = self.clients.iter().enumerate().filter_map(|(at, client)| Some((at, client.waiting()?.1)));
            match waiting.min_by_key(|(_, since)| *since) {
                Some((at, _)) => _ = self.clients.swap_remove(at),
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests;
