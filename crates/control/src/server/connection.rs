//! A client's connection: what has come from the client, and what it has not received yet.

use std::io::{ErrorKind, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recv, recvmsg};

use super::{Service, answer, longest, too_long};
use crate::line::Lines;
use crate::reply::{self, Body};
use crate::rights::{Peer, Writers};

/// Bytes that are read at a time.
const PIECE: usize = 16 << 10;
/// About the most bytes of news that are sent at a time.
const NEWS: usize = 64 << 10;

/// A client.
pub(super) struct Connection {
    stream: UnixStream,
    peer: Peer,
    may_write: bool,
    lines: Lines,
    /// The file that it has sent along last. Kept only if the client may change things.
    given: Option<OwnedFd>,
    /// A reply that it has not received completely.
    reply: Option<Waiting>,
    /// When it last sent or received something.
    active: Instant,
    /// When it sent its last request.
    asked: Option<Instant>,
    /// The number of the next event that it will be sent, if it watches.
    watching: Option<u64>,
    /// True if nothing more comes from it.
    ended: bool,
    /// True if it is gone.
    broken: bool,
}

/// A reply of three parts, and how much of it has been received.
struct Waiting {
    head: Vec<u8>,
    body: Body,
    tail: &'static [u8],
    taken: usize,
}

impl Waiting {
    /// What is still to be sent of the current part.
    fn rest(&self) -> &[u8] {
        let mut from = self.taken;
        for part in [&self.head[..], &self.body[..], self.tail] {
            if from < part.len() {
                return part.get(from..).unwrap_or_default();
            }
            from -= part.len();
        }
        &[]
    }
}

impl Connection {
    pub fn new(stream: UnixStream, peer: Peer, may_write: bool, now: Instant) -> Connection {
        let (lines, given, reply, active, asked, watching) = (Lines::default(), None, None, now, None, None);
        let (ended, broken) = (false, false);
        Connection { stream, peer, may_write, lines, given, reply, active, asked, watching, ended, broken }
    }

    /// Sends a line to a client that is not accepted. The line fits into the socket's buffer, which
    /// is empty.
    pub fn refuse(mut stream: UnixStream, line: &[u8]) {
        let _ = stream.write(line);
    }

    /// The events of the socket to wait for.
    pub fn wants(&self) -> PollFlags {
        if self.reply.is_some() {
            PollFlags::OUT
        } else if self.ended || self.lines.has_line() {
            PollFlags::empty()
        } else {
            PollFlags::IN
        }
    }

    /// True if there is something to do without an event: a request has been read already.
    pub fn is_ready(&self) -> bool {
        self.reply.is_none() && self.lines.has_line()
    }

    /// Since when it has received nothing of a reply that waits.
    pub fn stuck_since(&self) -> Option<Instant> {
        self.reply.as_ref().map(|_| self.active)
    }

    /// The document for which it waits.
    pub fn body(&self) -> Option<&Body> {
        self.reply.as_ref().map(|reply| &reply.body)
    }

    pub fn active(&self) -> Instant {
        self.active
    }

    pub fn asked(&self) -> Option<Instant> {
        self.asked
    }

    pub fn may_write(&self) -> bool {
        self.may_write
    }

    /// True if it watches.
    pub fn watches(&self) -> bool {
        self.watching.is_some()
    }

    /// True if the connection is to be closed.
    pub fn is_over(&self, now: Instant, patience: Duration) -> bool {
        let stuck = self.stuck_since().is_some_and(|since| now.saturating_duration_since(since) >= patience);
        // A client that watches may have ended its own side of the connection.
        let ended = self.ended && self.watching.is_none();
        self.broken || stuck || (ended && self.reply.is_none() && !self.lines.has_line())
    }

    /// Handles events: reads what has come, answers at most one request, and sends.
    pub fn work(&mut self, flags: PollFlags, now: Instant, writers: &Writers, service: &mut dyn Service) {
        if self.reply.is_some() {
            if flags.intersects(PollFlags::ERR | PollFlags::HUP) {
                // Nobody will receive the rest.
                self.broken = true;
            } else if flags.contains(PollFlags::OUT) {
                self.send(now);
            }
            return;
        }
        let watches_only = self.ended && self.watches() && !self.lines.has_line();
        if watches_only && flags.intersects(PollFlags::ERR | PollFlags::HUP) {
            // The client has closed the connection.
            self.broken = true;
            return;
        }
        if !self.ended && !self.lines.has_line() && !flags.is_empty() {
            self.receive(now);
        }
        self.handle(writers, service);
        if self.reply.is_some() {
            (self.active, self.asked) = (now, Some(now));
            self.send(now);
        }
    }

    /// Sends news to a client that watches, if it has received everything before.
    pub fn tell(&mut self, now: Instant, service: &mut dyn Service) {
        let Some(from) = self.watching.filter(|_| self.reply.is_none() && !self.broken) else { return };
        let (body, next) = service.news(from, NEWS);
        self.watching = Some(next);
        if !body.is_empty() {
            self.active = now;
            self.reply = Some(Waiting { head: Vec::new(), body, tail: &[], taken: 0 });
            self.send(now);
        }
    }

    fn receive(&mut self, now: Instant) {
        let mut piece = [0; PIECE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut along = RecvAncillaryBuffer::new(&mut space);
        // There is room for one file only; the kernel closes further ones.
        let got = if self.may_write {
            let parts = &mut [IoSliceMut::new(&mut piece)];
            recvmsg(&self.stream, parts, &mut along, RecvFlags::CMSG_CLOEXEC).map(|got| got.bytes)
        } else {
            // The kernel drops the files of one that may only read. Closing one here might wait:
            // for the process of a FUSE file system, which may be the client's own.
            recv(&self.stream, &mut piece, RecvFlags::empty()).map(|(count, _)| count)
        };
        for message in along.drain() {
            // A file that is not kept is closed here.
            if let RecvAncillaryMessage::ScmRights(files) = message
                && let Some(file) = files.last().filter(|_| self.may_write)
            {
                self.given = Some(file);
            }
        }
        match got {
            Ok(0) => self.ended = true,
            Ok(count) => {
                self.active = now;
                self.lines.push(piece.get(..count).unwrap_or_default());
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.broken = true,
        }
    }

    /// Answers the next request, if a whole one has come.
    fn handle(&mut self, writers: &Writers, service: &mut dyn Service) {
        let most = longest(self.may_write);
        let (id, result) = match self.lines.take(most) {
            Ok(None) => return,
            // An empty line is not a request.
            Ok(Some(line)) if line.iter().all(u8::is_ascii_whitespace) => return,
            Ok(Some(line)) => answer(&line, &mut self.given, &self.peer, writers, service),
            Err(_) => (None, Err(too_long(most, &self.peer, writers))),
        };
        self.reply = Some(match result {
            Ok((body, watching)) => {
                self.watching = watching.or(self.watching);
                let (head, tail) = reply::around(id, true);
                Waiting { head, body, tail, taken: 0 }
            }
            Err(fault) => Waiting { head: reply::fault(id, &fault), body: Body::default(), tail: &[], taken: 0 },
        });
    }

    fn send(&mut self, now: Instant) {
        while let Some(reply) = &mut self.reply {
            if reply.rest().is_empty() {
                self.reply = None;
                return;
            }
            match self.stream.write(reply.rest()) {
                Ok(0) => return,
                Ok(count) => {
                    reply.taken += count;
                    self.active = now;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.broken = true;
                    return;
                }
            }
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
