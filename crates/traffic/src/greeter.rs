//! Taking many connections on one thread: each says a few bytes first, which decide what becomes of
//! it.
//!
//! Nobody who is slow or silent holds up another: a guest has a few seconds to say its bytes, and
//! when there are too many, the one that waits longest goes.

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

/// What becomes of a guest that has said its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is thrown out.
    Drop,
    /// It gets one byte, and is watched until it closes.
    Answer(u8),
    /// Somebody else goes on with it: [`Host::take`].
    Take,
}

/// Who decides.
pub trait Host {
    /// What becomes of a guest that has said `bytes`.
    fn judge(&self, bytes: &[u8], from: SocketAddr) -> Verdict;

    /// Goes on with a guest. The connection blocks again.
    fn take(&self, connection: TcpStream, bytes: &[u8], from: SocketAddr);
}

/// How many, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes that a guest says first.
    pub bytes: usize,
    /// Guests at a time that have not said them, or have had their answer and have not closed.
    pub guests: usize,
    /// How long each may take for either.
    pub patience: Duration,
}

const LISTENER: u64 = u64::MAX;

struct Guest {
    connection: OwnedFd,
    from: SocketAddr,
    said: Vec<u8>,
    answered: bool,
    /// Tells guests apart that have had the same place.
    serial: u64,
}

/// Takes connections of a listener, which is made non-blocking, until `stop`.
///
/// # Errors
/// Those of epoll(7), and of accepting but for what the guest did.
pub fn serve(listener: &TcpListener, limits: Limits, host: &dyn Host, stop: &AtomicBool) -> Result<(), Error> {
    listener.set_nonblocking(true).doing(|| "listening")?;
    let epoll = epoll::create(CreateFlags::CLOEXEC).doing(|| "epoll")?;
    epoll::add(&epoll, listener, EventData::new_u64(LISTENER), EventFlags::IN).doing(|| "epoll")?;
    let mut house = House {
        epoll,
        limits,
        host,
        guests: Vec::new(),
        free: Vec::new(),
        queue: VecDeque::new(),
        inside: 0,
        serial: 0,
    };
    let mut events = Vec::with_capacity(256);
    while !stop.load(Ordering::Relaxed) {
        events.clear();
        let patience = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        match epoll::wait(&house.epoll, rustix::buffer::spare_capacity(&mut events), Some(&patience)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).doing(|| "epoll"),
        }
        for Event { data, .. } in events.drain(..) {
            match data.u64() {
                LISTENER => house.accept(listener)?,
                place => house.hear(place as usize),
            }
        }
        house.send_away(Instant::now());
    }
    Ok(())
}

struct House<'a> {
    epoll: OwnedFd,
    limits: Limits,
    host: &'a dyn Host,
    guests: Vec<Option<Guest>>,
    free: Vec<usize>,
    /// Who came when: place, serial, and the end of patience.
    queue: VecDeque<(usize, u64, Instant)>,
    inside: usize,
    serial: u64,
}

impl House<'_> {
    fn accept(&mut self, listener: &TcpListener) -> Result<(), Error> {
        // So many at once at most: those inside want to be heard as well.
        for _ in 0..64 {
            let connection = match accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(connection) => connection,
                Err(Errno::AGAIN) => return Ok(()),
                // Out of descriptors or memory for now: whoever waits longest makes room.
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    if !self.oldest_goes() {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                    return Ok(());
                }
                // Errors of the new connection itself, as accept(2) lists them: the next one is
                // another.
                Err(Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::FAULT) => {
                    return Err(Error::Ended("the listening socket is gone".into()));
                }
                Err(_) => continue,
            };
            let Ok(from) = rustix::net::getpeername(&connection) else { continue };
            let Some(from) = from.and_then(|from| SocketAddr::try_from(from).ok()) else { continue };
            // Closed with a reset, whoever closes first: nothing waits for minutes.
            let _ = rustix::net::sockopt::set_socket_linger(&connection, Some(Duration::ZERO));
            if self.inside >= self.limits.guests {
                self.oldest_goes();
            }
            self.enter(connection, from);
        }
        Ok(())
    }

    fn enter(&mut self, connection: OwnedFd, from: SocketAddr) {
        let place = self.free.pop().unwrap_or(self.guests.len());
        if epoll::add(&self.epoll, &connection, EventData::new_u64(place as u64), EventFlags::IN | EventFlags::RDHUP)
            .is_err()
        {
            if place < self.guests.len() {
                self.free.push(place);
            }
            return;
        }
        self.serial += 1;
        self.queue.push_back((place, self.serial, Instant::now() + self.limits.patience));
        let said = Vec::with_capacity(self.limits.bytes);
        let guest = Some(Guest { connection, from, said, answered: false, serial: self.serial });
        match self.guests.get_mut(place) {
            Some(empty) => *empty = guest,
            None => self.guests.push(guest),
        }
        self.inside += 1;
        // Most have said their bytes by now.
        self.hear(place);
    }

    fn hear(&mut self, place: usize) {
        let Some(Some(guest)) = self.guests.get_mut(place) else { return };
        let mut buffer = [0; 64];
        let room = if guest.answered { buffer.len() } else { (self.limits.bytes - guest.said.len()).min(buffer.len()) };
        let said = match recv(&guest.connection, buffer.get_mut(..room).unwrap_or_default(), RecvFlags::DONTWAIT) {
            Ok((0, _)) => return drop(self.leave(place)),
            Ok((count, _)) => buffer.get(..count).unwrap_or_default(),
            Err(Errno::AGAIN | Errno::INTR) => return,
            Err(_) => return drop(self.leave(place)),
        };
        if guest.answered {
            // It has nothing more to say.
            return drop(self.leave(place));
        }
        guest.said.extend_from_slice(said);
        if guest.said.len() < self.limits.bytes {
            // The rest may be there already, and another event would come only if more arrived (it
            // is level-triggered: it will).
            return;
        }
        match self.host.judge(&guest.said, guest.from) {
            Verdict::Drop => drop(self.leave(place)),
            Verdict::Answer(byte) => {
                guest.answered = true;
                let sent = send(&guest.connection, &[byte], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
                if sent.is_err() {
                    drop(self.leave(place));
                }
            }
            Verdict::Take => {
                let Some(guest) = self.leave(place) else { return };
                let _ = epoll::delete(&self.epoll, guest.connection.as_fd());
                let connection = TcpStream::from(guest.connection);
                if connection.set_nonblocking(false).is_ok() {
                    self.host.take(connection, &guest.said, guest.from);
                }
            }
        }
    }

    /// Those whose time is over go.
    fn send_away(&mut self, now: Instant) {
        while let Some((place, serial, until)) = self.queue.front().copied() {
            let there = self.is_there(place, serial);
            if there && until > now {
                return;
            }
            self.queue.pop_front();
            if there {
                drop(self.leave(place));
            }
        }
    }

    fn oldest_goes(&mut self) -> bool {
        while let Some((place, serial, _)) = self.queue.pop_front() {
            if self.is_there(place, serial) {
                drop(self.leave(place));
                return true;
            }
        }
        false
    }

    fn is_there(&self, place: usize, serial: u64) -> bool {
        self.guests.get(place).is_some_and(|guest| guest.as_ref().is_some_and(|guest| guest.serial == serial))
    }

    fn leave(&mut self, place: usize) -> Option<Guest> {
        let guest = self.guests.get_mut(place)?.take()?;
        self.free.push(place);
        self.inside -= 1;
        Some(guest)
    }
}
