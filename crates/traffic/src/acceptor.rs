//! Accepts many connections on one thread. The first bytes that a client sends on a connection
//! decide what is done with it.
//!
//! A slow or silent client does not hold up others: it has a few seconds to send its first bytes,
//! and when too many connections are pending, the one that has waited longest is closed.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};
use rustix::time::Timespec;

use crate::error::{Doing, Error};

/// What happens to a connection whose first bytes have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is closed.
    Drop,
    /// The client is sent one byte, and the connection is kept until the client closes it.
    Answer(u8),
    /// The connection is handed to [`Admission::take`].
    Take,
}

/// Decides what happens to connections.
pub trait Admission {
    /// Decides about a connection by its first bytes and the address that it comes from.
    fn judge(&self, bytes: &[u8], from: SocketAddr) -> Verdict;

    /// Takes over a connection, which is in blocking mode again, with its first bytes.
    fn take(&self, connection: TcpStream, bytes: &[u8], from: SocketAddr);
}

/// How many connections may be pending, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Number of first bytes that a client sends.
    pub bytes: usize,
    /// The most connections at a time that have not sent all their first bytes yet, or that were
    /// answered and are not closed yet.
    pub pending: usize,
    /// Time that a client has to send its first bytes, and to close.
    pub patience: Duration,
}

/// The listener's number among epoll's events. The numbers of connections are indices in `slots`.
const LISTENER: u64 = u64::MAX;

/// A connection that has not sent all its first bytes, or that was answered and is not closed.
struct Pending {
    connection: OwnedFd,
    from: SocketAddr,
    bytes: Vec<u8>,
    answered: bool,
    /// Tells connections apart that used the same slot one after another.
    serial: u64,
}

/// Accepts connections until `stop` is set. The listener is made non-blocking.
///
/// # Errors
/// Those of epoll(7), and those of accept(2) that are not about a single connection.
pub fn serve(
    listener: &TcpListener,
    limits: Limits,
    admission: &dyn Admission,
    stop: &AtomicBool,
) -> Result<(), Error> {
    listener.set_nonblocking(true).doing(|| "listening")?;
    let epoll = epoll::create(CreateFlags::CLOEXEC).doing(|| "epoll")?;
    epoll::add(&epoll, listener, EventData::new_u64(LISTENER), EventFlags::IN).doing(|| "epoll")?;
    let mut acceptor = Acceptor {
        epoll,
        limits,
        admission,
        slots: Vec::new(),
        free: Vec::new(),
        queue: VecDeque::new(),
        count: 0,
        serial: 0,
    };
    let mut events = Vec::with_capacity(256);
    while !stop.load(Ordering::Relaxed) {
        events.clear();
        let patience = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        match epoll::wait(&acceptor.epoll, rustix::buffer::spare_capacity(&mut events), Some(&patience)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).doing(|| "epoll"),
        }
        for Event { data, .. } in events.drain(..) {
            match data.u64() {
                LISTENER => acceptor.accept(listener)?,
                place => acceptor.read(place as usize),
            }
        }
        acceptor.close_overdue(Instant::now());
    }
    Ok(())
}

/// The state of the loop.
struct Acceptor<'a> {
    epoll: OwnedFd,
    limits: Limits,
    admission: &'a dyn Admission,
    slots: Vec<Option<Pending>>,
    free: Vec<usize>,
    /// Connections in the order in which they were accepted: slot, serial number, and deadline.
    queue: VecDeque<(usize, u64, Instant)>,
    count: usize,
    serial: u64,
}

impl Acceptor<'_> {
    fn accept(&mut self, listener: &TcpListener) -> Result<(), Error> {
        // At most 64 in a row, so that pending connections are read in between.
        for _ in 0..64 {
            let connection = match accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(connection) => connection,
                Err(Errno::AGAIN) => return Ok(()),
                // Out of descriptors or memory: the oldest pending connection is closed to make
                // room.
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    if !self.close_oldest() {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    return Ok(());
                }
                // The listening socket itself is broken.
                Err(Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::FAULT) => {
                    return Err(Error::Ended("the listening socket is gone".into()));
                }
                // Any other error is about the new connection only (accept(2)).
                Err(_) => continue,
            };
            let Ok(from) = rustix::net::getpeername(&connection) else { continue };
            let Some(from) = from.and_then(|from| SocketAddr::try_from(from).ok()) else { continue };
            // Closing sends a reset, so that no port waits in TIME_WAIT.
            let _ = rustix::net::sockopt::set_socket_linger(&connection, Some(Duration::ZERO));
            if self.count >= self.limits.pending {
                self.close_oldest();
            }
            self.add(connection, from);
        }
        Ok(())
    }

    fn add(&mut self, connection: OwnedFd, from: SocketAddr) {
        let place = self.free.pop().unwrap_or(self.slots.len());
        if epoll::add(&self.epoll, &connection, EventData::new_u64(place as u64), EventFlags::IN | EventFlags::RDHUP)
            .is_err()
        {
            if place < self.slots.len() {
                self.free.push(place);
            }
            return;
        }
        self.serial += 1;
        self.queue.push_back((place, self.serial, Instant::now() + self.limits.patience));
        let bytes = Vec::with_capacity(self.limits.bytes);
        let pending = Some(Pending { connection, from, bytes, answered: false, serial: self.serial });
        match self.slots.get_mut(place) {
            Some(empty) => *empty = pending,
            None => self.slots.push(pending),
        }
        self.count += 1;
        // Most connections have sent their first bytes by now.
        self.read(place);
    }

    fn read(&mut self, place: usize) {
        let Some(Some(pending)) = self.slots.get_mut(place) else { return };
        let mut buffer = [0; 64];
        let room =
            if pending.answered { buffer.len() } else { (self.limits.bytes - pending.bytes.len()).min(buffer.len()) };
        let bytes = match recv(&pending.connection, buffer.get_mut(..room).unwrap_or_default(), RecvFlags::DONTWAIT) {
            Ok((0, _)) => {
                if pending.answered {
                    // A client that closes with FIN gets one as well: the port that waits is its
                    // own.
                    let _ = rustix::net::sockopt::set_socket_linger(&pending.connection, None);
                }
                return drop(self.remove(place));
            }
            Ok((count, _)) => buffer.get(..count).unwrap_or_default(),
            Err(Errno::AGAIN | Errno::INTR) => return,
            Err(_) => return drop(self.remove(place)),
        };
        if pending.answered {
            // After the answer, anything that the client does ends the connection.
            return drop(self.remove(place));
        }
        pending.bytes.extend_from_slice(bytes);
        if pending.bytes.len() < self.limits.bytes {
            // epoll is level-triggered: it reports the connection again when there is more to read.
            return;
        }
        match self.admission.judge(&pending.bytes, pending.from) {
            Verdict::Drop => drop(self.remove(place)),
            Verdict::Answer(byte) => {
                pending.answered = true;
                let sent = send(&pending.connection, &[byte], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
                if sent.is_err() {
                    drop(self.remove(place));
                }
            }
            Verdict::Take => {
                let Some(pending) = self.remove(place) else { return };
                let _ = epoll::delete(&self.epoll, pending.connection.as_fd());
                let connection = TcpStream::from(pending.connection);
                if connection.set_nonblocking(false).is_ok() {
                    self.admission.take(connection, &pending.bytes, pending.from);
                }
            }
        }
    }

    /// Closes connections whose deadline has passed.
    fn close_overdue(&mut self, now: Instant) {
        while let Some((place, serial, until)) = self.queue.front().copied() {
            let there = self.is_there(place, serial);
            if there && until > now {
                return;
            }
            self.queue.pop_front();
            if there {
                drop(self.remove(place));
            }
        }
    }

    /// Closes the connection that has waited longest; false if none is pending.
    fn close_oldest(&mut self) -> bool {
        while let Some((place, serial, _)) = self.queue.pop_front() {
            if self.is_there(place, serial) {
                drop(self.remove(place));
                return true;
            }
        }
        false
    }

    fn is_there(&self, place: usize, serial: u64) -> bool {
        self.slots.get(place).is_some_and(|pending| pending.as_ref().is_some_and(|pending| pending.serial == serial))
    }

    fn remove(&mut self, place: usize) -> Option<Pending> {
        let pending = self.slots.get_mut(place)?.take()?;
        self.free.push(place);
        self.count -= 1;
        Some(pending)
    }
}
