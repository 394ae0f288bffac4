//! A client's connection: what has come from the client, and what it has not received yet.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use super::Limits;
use super::site::{Answer, Site};
use crate::Body;
use crate::events::Cut;
use crate::frame::Frame;
use crate::http::request::{MOST_BYTES, read};
use crate::http::response::EVENTS;
use crate::http::{Asked, Response, Status};

/// A client.
pub(super) struct Connection {
    stream: TcpStream,
    state: State,
    opened: Instant,
    /// When it last sent or received something.
    active: Instant,
    broken: bool,
}

enum State {
    /// Its request is not complete.
    Asks(Vec<u8>),
    /// A response is being sent to it.
    Takes(Outgoing),
    /// It watches: the event that is being sent to it, the frame that it knows after that, and
    /// whether it wants parts.
    Watches(Option<Outgoing>, u64, Cut),
    /// It has received everything. What it still sends is thrown away for a while: if the
    /// connection were closed with unread bytes, the kernel would discard what the client has not
    /// read yet.
    Done(Instant),
}

/// Two parts, and how much of them has been received.
struct Outgoing {
    head: Vec<u8>,
    body: Body,
    taken: usize,
    begun: Instant,
}

impl Outgoing {
    fn rest(&self) -> &[u8] {
        match self.taken.checked_sub(self.head.len()) {
            None => self.head.get(self.taken..).unwrap_or_default(),
            Some(taken) => self.body.get(taken..).unwrap_or_default(),
        }
    }
}

/// Bytes that are read at a time.
const PIECE: usize = 4 << 10;

impl Connection {
    pub fn new(stream: TcpStream, now: Instant) -> Connection {
        Connection { stream, state: State::Asks(Vec::new()), opened: now, active: now, broken: false }
    }

    /// The events of the socket to wait for.
    pub fn wants(&self) -> PollFlags {
        match &self.state {
            State::Takes(_) | State::Watches(Some(_), ..) => PollFlags::OUT,
            State::Asks(_) | State::Watches(None, ..) | State::Done(_) => PollFlags::IN,
        }
    }

    /// When it will be dropped unless it does something before.
    pub fn deadline(&self, limits: &Limits) -> Option<Instant> {
        let whole = |outgoing: &Outgoing| (self.active + limits.stuck).min(outgoing.begun + limits.whole);
        match &self.state {
            State::Asks(_) => Some(self.opened + limits.asking),
            State::Takes(outgoing) | State::Watches(Some(outgoing), ..) => Some(whole(outgoing)),
            State::Watches(None, ..) => None,
            State::Done(since) => Some(*since + limits.lingering),
        }
    }

    /// True if the connection is to be closed.
    pub fn is_over(&self) -> bool {
        self.broken
    }

    pub fn is_asking(&self) -> bool {
        matches!(self.state, State::Asks(_))
    }

    pub fn is_watching(&self) -> bool {
        matches!(self.state, State::Watches(..))
    }

    pub fn opened(&self) -> Instant {
        self.opened
    }

    /// The body that it is receiving, and since when.
    pub fn waiting(&self) -> Option<(&Body, Instant)> {
        match &self.state {
            State::Takes(outgoing) | State::Watches(Some(outgoing), ..) => Some((&outgoing.body, outgoing.begun)),
            _ => None,
        }
    }

    /// Handles events. `room`: whether one more client may watch.
    pub fn work(&mut self, flags: PollFlags, now: Instant, site: &Site, room: bool) {
        if flags.is_empty() {
            return;
        }
        match &mut self.state {
            State::Asks(_) => self.receive(now, site, room),
            State::Takes(_) | State::Watches(Some(_), ..) => {
                if flags.intersects(PollFlags::ERR | PollFlags::HUP) {
                    // Nobody will receive the rest.
                    self.broken = true;
                } else {
                    self.send(now);
                }
            }
            State::Watches(None, ..) | State::Done(_) => self.discard(),
        }
    }

    /// Sends a client that watches the next event, if it has received the one before.
    pub fn tell(&mut self, frame: &Frame, now: Instant) {
        let State::Watches(outgoing @ None, known, cut) = &mut self.state else { return };
        if *known >= frame.seq {
            return;
        }
        // A client that has missed a frame gets everything, never a queue of missed events.
        let next = known.checked_add(1) == Some(frame.seq);
        let body = if next { frame.change(*cut) } else { frame.snapshot(*cut) };
        *known = frame.seq;
        *outgoing = Some(Outgoing { head: Vec::new(), body: body.clone(), taken: 0, begun: now });
        self.active = now;
        self.send(now);
    }

    /// Drops a client that was too slow. If it has sent a part of a request, it gets a response
    /// first.
    pub fn expire(&mut self, now: Instant) {
        match &self.state {
            State::Asks(bytes) if !bytes.is_empty() => {
                self.respond(&Response::error(Status::TooLate, ""), false, now);
            }
            _ => self.broken = true,
        }
    }

    fn receive(&mut self, now: Instant, site: &Site, room: bool) {
        let State::Asks(bytes) = &mut self.state else { return };
        let mut piece = [0; PIECE];
        let most = PIECE.min(MOST_BYTES.saturating_sub(bytes.len()));
        match self.stream.read(piece.get_mut(..most).unwrap_or_default()) {
            Ok(0) => self.broken = true,
            Ok(count) => {
                self.active = now;
                bytes.extend_from_slice(piece.get(..count).unwrap_or_default());
                // RFC 9110 9.3.2: an answer to HEAD has no content, whatever is wrong with the
                // rest.
                let head = bytes.starts_with(b"HEAD ");
                match read(bytes) {
                    Asked::Partly => {}
                    Asked::Wrong(status) => self.respond(&Response::error(status, ""), head, now),
                    Asked::Whole(request) => {
                        let local = self.stream.local_addr().map_or(Ipv4Addr::UNSPECIFIED.into(), |local| local.ip());
                        match site.answer(&request, local) {
                            Answer::Response(response) => self.respond(&response, request.head, now),
                            Answer::Events(_) if request.head => self.head_of_events(now),
                            Answer::Events(cut) if room => self.watch(&site.frame(), cut, now),
                            Answer::Events(_) => {
                                let why = "too many clients watch already; try again later";
                                self.respond(&Response::error(Status::Unavailable, why), false, now);
                            }
                        }
                    }
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.broken = true,
        }
    }

    fn respond(&mut self, response: &Response, without_body: bool, now: Instant) {
        let body = if without_body { Body::from([0_u8; 0]) } else { response.body.clone() };
        self.state = State::Takes(Outgoing { head: response.head(true), body, taken: 0, begun: now });
        self.send(now);
    }

    /// Answers HEAD: events have no length (RFC 9110 8.6).
    fn head_of_events(&mut self, now: Instant) {
        let empty = Body::from([0_u8; 0]);
        let head = Response::ok(EVENTS, empty.clone()).head(false);
        self.state = State::Takes(Outgoing { head, body: empty, taken: 0, begun: now });
        self.send(now);
    }

    fn watch(&mut self, frame: &Frame, cut: Cut, now: Instant) {
        let body = frame.snapshot(cut).clone();
        let mut head = Response::ok(EVENTS, body.clone()).head(false);
        head.extend_from_slice(b"retry: 1000\n\n");
        self.state = State::Watches(Some(Outgoing { head, body, taken: 0, begun: now }), frame.seq, cut);
        self.send(now);
    }

    fn send(&mut self, now: Instant) {
        loop {
            let outgoing = match &mut self.state {
                State::Takes(outgoing) | State::Watches(Some(outgoing), ..) => outgoing,
                _ => return,
            };
            if outgoing.rest().is_empty() {
                break;
            }
            match self.stream.write(outgoing.rest()) {
                Ok(0) => return,
                Ok(count) => {
                    outgoing.taken += count;
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
        match &mut self.state {
            State::Watches(outgoing, ..) => *outgoing = None,
            _ => {
                self.broken |= self.stream.shutdown(Shutdown::Write).is_err();
                self.state = State::Done(now);
            }
        }
    }

    /// Throws away what a client still sends after its request.
    fn discard(&mut self) {
        let mut piece = [0; PIECE];
        match self.stream.read(&mut piece) {
            Ok(0) => self.broken = true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.broken = true,
        }
    }

    /// How long the client may still do nothing.
    pub fn rests(&self, limits: &Limits, now: Instant) -> Option<Duration> {
        // A millisecond more, so that the deadline has passed for certain.
        Some(self.deadline(limits)?.saturating_duration_since(now) + Duration::from_millis(1))
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
