//! The traffic of streams: sources, requests and answers in datagrams, and the programs at the ends
//! of TCP connections.

use std::collections::VecDeque;

use altq_adapt::{Answer, DEADLINE};
use altq_cases::case::{Kind, Shape};
use altq_cases::source::{Endpoint, Outbox};
use altq_engine::drive;
use altq_engine::units::Nanos;

use super::Handled;
use super::events::{Event, Rank};
use super::stream::{Load, NEVER, Talk};
use super::world::World;
use crate::tcp::{Flags, Segment, Socket};

/// Requests and answers in datagrams, one at a time.
#[derive(Clone, Debug)]
pub struct Requests {
    /// Lengths at layer 3 of a request and an answer.
    pub lens: [u32; 2],
    /// Time without an answer after which the request is sent again.
    pub retry: Nanos,
    /// The number of the present request.
    pub number: u64,
    /// When it was first sent.
    pub asked: Nanos,
    /// True if a request waits for its answer.
    pub open: bool,
}

/// Pings, one after another at a constant interval.
#[derive(Clone, Debug)]
pub struct Pings {
    /// Length of a ping at layer 3, and of its answer.
    size: u32,
    /// Time from one to the next.
    interval: Nanos,
    /// The number of the next one.
    number: u64,
    /// Those that have not been answered: number, when it was sent, and whether it was given up.
    open: VecDeque<(u64, Nanos, bool)>,
}

/// The most pings whose answers are waited for: those of four minutes at the usual interval.
const MOST_OPEN: usize = 1_000;

impl Pings {
    /// Pings of this size at this interval.
    pub fn new(size: u32, interval: Nanos) -> Pings {
        Pings { size, interval, number: 0, open: VecDeque::new() }
    }

    /// Sends the next one. Returns its number.
    fn send(&mut self, now: Nanos) -> u64 {
        let number = self.number;
        self.number += 1;
        if self.open.len() >= MOST_OPEN {
            self.open.pop_front();
        }
        self.open.push_back((number, now, false));
        number
    }

    /// The first one that was sent at or before this time and is neither answered nor given up, is
    /// given up. Returns when it was sent.
    fn give_up(&mut self, before: Nanos) -> Option<Nanos> {
        let (_, sent, given_up) = self.open.iter_mut().find(|(_, sent, given_up)| !*given_up && *sent <= before)?;
        *given_up = true;
        Some(*sent)
    }

    /// One is answered. Returns when it was sent; `None` if nobody waits for the answer any more.
    fn answered(&mut self, number: u64) -> Option<Nanos> {
        let at = self.open.iter().position(|(open, ..)| *open == number)?;
        self.open.remove(at).map(|(_, sent, _)| sent)
    }
}

/// Both ends of a connection, and the programs that use them.
pub struct TcpPair {
    /// The ends.
    pub sockets: [Socket; 2],
    /// What the programs do.
    pub program: Program,
    /// Bytes delivered at the far end that have been counted.
    pub counted: u64,
    /// True if the near program still begins transfers or requests.
    pub active: bool,
    /// True if both ends hand super-packets to their cards (TCP segmentation offload).
    pub tso: bool,
}

/// A packet that an end hands to its host.
#[derive(Clone, Copy, Debug)]
pub struct Parcel {
    /// Length at layer 3.
    pub len: u32,
    /// Packets on the wire.
    pub segments: u16,
    /// DSCP and ECN.
    pub octet: u8,
    /// What it carries.
    pub load: Load,
}

/// The largest super-packet: the most that IPv4's length field can express.
const LARGEST: u32 = 65_535;

impl Parcel {
    /// One packet.
    pub fn new(len: u32, octet: u8, load: Load) -> Parcel {
        Parcel { len, segments: 1, octet, load }
    }

    /// Merges the next packet into this one, to make a super-packet. Possible only if a card can
    /// cut it into the same packets again: their data is contiguous, and all segments have the same
    /// length except the last, which may be shorter. Returns false if it is not possible.
    fn merge(&mut self, next: &Parcel) -> bool {
        let (Load::Segment(first), Load::Segment(second)) = (&mut self.load, &next.load) else { return false };
        let each = first.len.div_ceil(u32::from(self.segments));
        let plain = |flags: Flags| flags.0 & !Flags::PSH.0 == Flags::ACK.0;
        let follows = first.end() == second.seq && first.ack == second.ack && self.octet == next.octet;
        let whole = first.len == each * u32::from(self.segments);
        let fits = whole && second.len > 0 && second.len <= each && self.len + next.len <= LARGEST;
        if !(follows && fits && plain(first.flags) && plain(second.flags)) {
            return false;
        }
        first.len += second.len;
        first.flags = first.flags.with(second.flags);
        self.len += next.len;
        self.segments += 1;
        true
    }
}

/// The programs at the ends of a connection.
#[derive(Clone, Debug)]
pub enum Program {
    /// The near end sends, the far end reads.
    Bulk,
    /// The near end sends requests, the far end answers.
    RequestResponse {
        /// Bytes of a request.
        request: u64,
        /// Bytes of an answer.
        response: u64,
        /// When the present request was sent.
        asked: Option<Nanos>,
        /// Requests whose answers have arrived.
        done: u64,
        /// Answers that the far end has sent.
        answered: u64,
        /// The time at which this connection was opened, if each connection carries one request.
        once: Option<Nanos>,
    },
}

/// What a flow needs to open its streams.
#[derive(Clone, Debug, Default)]
pub struct Opener {
    /// Source ports that no connection uses.
    pub ports: VecDeque<u16>,
    /// Number of streams that should be open.
    pub wanted: u32,
    /// Number of streams that are open.
    pub open: u32,
}

impl World<'_> {
    /// Begins a span in which a flow sends.
    pub(super) fn start(&mut self, now: Nanos, at: usize) -> Handled {
        let kind = &self.case.flows[at].kind;
        self.flows[at].active = true;
        match kind.tcp() {
            None => {
                for stream in self.flows[at].streams.clone() {
                    self.wake_end(now, stream as usize, 0)?;
                }
            }
            Some(tcp) => {
                self.watches[at].begins(now);
                let n = u64::from(kind.streams());
                self.flows[at].opener.wanted = kind.streams();
                for k in 0..n {
                    let after = (u128::from(tcp.stagger) * u128::from(k) / u128::from(n)) as Nanos;
                    match after {
                        0 => self.open(now, at)?,
                        _ => self.schedule(now.saturating_add(after), Rank::Arrival, Event::Open(at as u32)),
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends a span in which a flow sends. Packets in the network are still delivered, and so is
    /// what the program of a connection has written.
    pub(super) fn stop(&mut self, now: Nanos, at: usize) -> Handled {
        self.flows[at].active = false;
        self.watches[at].ends(now);
        (self.flows[at].opener.wanted, self.flows[at].opener.open) = (0, 0);
        for stream in std::mem::take(&mut self.flows[at].streams) {
            let place = stream as usize;
            match &mut self.streams[place].talk {
                Talk::Source(source) => source.stop(),
                Talk::Playback(playback) => playback.stop(),
                Talk::Requests(ask) => ask.open = false,
                Talk::Pings(_) => {}
                Talk::Tcp(pair) => {
                    pair.active = false;
                    // A program that waits for an answer stops after the answer.
                    if matches!(pair.program, Program::Bulk) {
                        pair.sockets[0].close();
                    }
                    self.run_program(now, place, 0)?;
                    continue;
                }
                Talk::Over => continue,
            }
            self.streams[place].ends[0].wake = NEVER;
            self.flows[at].streams.push(stream);
        }
        Ok(())
    }

    /// Opens a connection of a flow, if another one is wanted and a source port is free.
    pub(super) fn open(&mut self, now: Nanos, at: usize) -> Handled {
        let opener = &mut self.flows[at].opener;
        if opener.open >= opener.wanted {
            return Ok(());
        }
        let Some(port) = opener.ports.pop_front() else { return Ok(()) };
        opener.open += 1;
        let stream = self.connect(at, port);
        let place = stream as usize;
        let case = self.case;
        if !matches!(case.flows[at].kind, Kind::TcpConnect { .. }) {
            self.flows[at].streams.push(stream);
        }
        if let Talk::Tcp(pair) = &mut self.streams[place].talk {
            match &mut pair.program {
                Program::Bulk => pair.sockets[0].write(u64::MAX),
                Program::RequestResponse { once: Some(opened), .. } => *opened = now,
                Program::RequestResponse { .. } => {}
            }
        }
        self.transmit(now, place, 0)
    }

    /// Handles a wake-up event of an end. The event is ignored if it is not the valid one, and set
    /// again if the end must be woken later.
    pub(super) fn wake(&mut self, now: Nanos, place: usize, end: usize) -> Handled {
        let Some(e) = self.streams.get_mut(place).and_then(|s| s.ends.get_mut(end)) else { return Ok(()) };
        if e.armed != now {
            return Ok(());
        }
        e.armed = NEVER;
        if e.wake > now {
            let wake = e.wake;
            self.arm(place, end, wake);
            return Ok(());
        }
        e.wake = NEVER;
        self.wake_end(now, place, end)
    }

    /// Sets the time at which an end must be woken.
    #[inline(always)]
    pub(super) fn arm(&mut self, place: usize, end: usize, wake: Nanos) {
        let stream = &mut self.streams[place];
        let tcp = matches!(stream.talk, Talk::Tcp(_));
        let e = &mut stream.ends[end];
        e.wake = wake;
        if wake < e.armed && wake < self.case.duration {
            e.armed = wake;
            let rank = if tcp { Rank::Timer } else { Rank::Arrival };
            self.schedule(wake, rank, Event::Wake((place * 2 + end) as u32));
        }
    }

    /// Wakes an end: a source sends, a request is sent again, a socket's timer expires.
    fn wake_end(&mut self, now: Nanos, place: usize, end: usize) -> Handled {
        let stream = &mut self.streams[place];
        let flow = stream.flow as usize;
        match &mut stream.talk {
            Talk::Tcp(pair) => {
                pair.sockets[end].timeout(now);
                return self.run_program(now, place, end);
            }
            Talk::Requests(_) => return self.send_question(now, place),
            Talk::Pings(_) => return self.send_ping(now, place),
            _ if !self.flows[flow].active => return Ok(()),
            Talk::Source(source) => source.wake(now, &mut self.out),
            Talk::Playback(playback) => playback.wake(now, &mut self.out),
            Talk::Over => return Ok(()),
        }
        let mut out = std::mem::take(&mut self.out);
        let sent = self.send_from_source(now, place, &mut out);
        if let Some(wake) = out.wake.take() {
            self.arm(place, 0, wake);
        }
        out.packets.clear();
        self.out = out;
        sent
    }

    /// Sends the packets that a source has made.
    fn send_from_source(&mut self, now: Nanos, place: usize, out: &mut Outbox) -> Handled {
        for (len, number) in &out.packets {
            let octet = match &self.streams[place].talk {
                Talk::Playback(_) => {
                    self.frame(self.streams[place].flow as usize, *number).map_or(0, |frame| frame.key.tos)
                }
                _ => self.streams[place].ends[0].key.tos,
            };
            let refused = self.send(now, place, 0, &Parcel::new(*len, octet, Load::Number(*number)))?;
            if refused
                && let Talk::Source(source) = &mut self.streams[place].talk
                && let Some(sleep) = source.refused()
            {
                let until = now.saturating_add(sleep);
                out.wake = Some(drive::round_up(until, self.timer).unwrap_or(until));
            }
        }
        Ok(())
    }

    /// Sends a new request, or repeats the present one.
    fn send_question(&mut self, now: Nanos, place: usize) -> Handled {
        let stream = &mut self.streams[place];
        let active = self.flows[stream.flow as usize].active;
        let Talk::Requests(ask) = &mut stream.talk else { return Ok(()) };
        if !active {
            ask.open = false;
            return Ok(());
        }
        if !ask.open {
            (ask.open, ask.asked) = (true, now);
        }
        let (len, number, retry) = (ask.lens[0], ask.number, ask.retry);
        let octet = stream.ends[0].key.tos;
        self.arm(place, 0, now.saturating_add(retry));
        self.send(now, place, 0, &Parcel::new(len, octet, Load::Number(number))).map(|_| ())
    }

    /// Sends a ping, unless the flow is over, and gives up those that are too old.
    fn send_ping(&mut self, now: Nanos, place: usize) -> Handled {
        let stream = &mut self.streams[place];
        let flow = stream.flow as usize;
        let Talk::Pings(pings) = &mut stream.talk else { return Ok(()) };
        let mut lost = Vec::new();
        if let Some(before) = now.checked_sub(DEADLINE) {
            lost.extend(std::iter::from_fn(|| pings.give_up(before)));
        }
        let active = self.flows[flow].active;
        let sends = active.then(|| (pings.send(now), pings.size, pings.interval));
        let octet = stream.ends[0].key.tos;
        for sent in lost {
            self.heard(now, flow, sent, Answer::Lost)?;
        }
        let Some((number, size, interval)) = sends else { return Ok(()) };
        self.probed(now, flow);
        self.arm(place, 0, now.saturating_add(interval));
        self.send(now, place, 0, &Parcel::new(size, octet, Load::Echo { number, answer: false })).map(|_| ())
    }

    /// Handles a packet that has arrived at its destination.
    #[inline(never)]
    pub(super) fn delivered(&mut self, now: Nanos, packet: u32) -> Handled {
        let travelling = &self.packets[packet as usize];
        let (place, end, len) = (travelling.stream as usize, 1 - usize::from(travelling.end & 1), travelling.len);
        let stream = &mut self.streams[place];
        let (late, octet) = (travelling.life != stream.life, travelling.octet);
        let flow = stream.flow as usize;
        self.free_packets.push(packet);
        if end == 1 {
            self.watches[flow].left(now);
            let cell = self.flow_tally.cell(self.segment, flow);
            cell.received += u64::from(travelling.segments);
            cell.bytes += u64::from(len);
            cell.delays.push(now - travelling.sent);
            self.gaps.arrived(now, flow);
            if let Some(series) = &mut self.series {
                let bin = series.at(now);
                if let Some(row) = series.flows.get_mut(flow) {
                    row.passed(bin, len, now - travelling.sent);
                }
            }
        }
        if late {
            return Ok(());
        }
        let family = stream.ends[0].key.family;
        let payload = || u64::from(len.saturating_sub(if family == 6 { 48 } else { 28 }));
        match (&mut stream.talk, &travelling.load) {
            (Talk::Tcp(pair), Load::Segment(segment)) => {
                pair.sockets[end].received(now, segment, octet & 3 == 3);
                if end == 1 {
                    let gained = pair.sockets[1].delivered() - pair.counted;
                    pair.counted += gained;
                    if gained > 0 {
                        self.watches[flow].delivered(now);
                    }
                    self.count_payload(now, flow, gained);
                }
                return self.run_program(now, place, end);
            }
            (Talk::Requests(ask), Load::Number(number)) => {
                let number = *number;
                if end == 1 {
                    let answer = ask.lens[1];
                    let octet = stream.ends[1].key.tos;
                    self.count_payload(now, flow, payload());
                    return self.send(now, place, 1, &Parcel::new(answer, octet, Load::Number(number))).map(|_| ());
                }
                if ask.open && ask.number == number {
                    let cell = self.flow_tally.cell(self.segment, flow);
                    cell.transactions += 1;
                    let took = now - ask.asked;
                    cell.rtts.push(took);
                    if let Some(series) = &mut self.series {
                        series.answered(now, flow, took);
                    }
                    ask.number += 1;
                    ask.open = false;
                    return self.send_question(now, place);
                }
            }
            (Talk::Pings(_), Load::Echo { number, answer: false }) => {
                let octet = stream.ends[1].key.tos;
                let answer = Load::Echo { number: *number, answer: true };
                self.count_payload(now, flow, payload());
                return self.send(now, place, 1, &Parcel::new(len, octet, answer)).map(|_| ());
            }
            (Talk::Pings(pings), Load::Echo { number, answer: true }) => {
                let Some(sent) = pings.answered(*number) else { return Ok(()) };
                let took = now - sent;
                let cell = self.flow_tally.cell(self.segment, flow);
                cell.transactions += 1;
                cell.rtts.push(took);
                if let Some(series) = &mut self.series {
                    series.answered(now, flow, took);
                }
                let delay = i64::try_from(took).unwrap_or(i64::MAX);
                return self.heard(now, flow, sent, Answer::After(delay));
            }
            (Talk::Source(_), _) => self.count_payload(now, flow, payload()),
            (Talk::Playback(_), _) => self.count_payload(now, flow, u64::from(len)),
            _ => {}
        }
        Ok(())
    }

    /// Counts payload that was delivered in order.
    #[inline(always)]
    fn count_payload(&mut self, now: Nanos, flow: usize, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.flow_tally.cell(self.segment, flow).charged += bytes;
        if !self.traces.is_empty() {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            self.traces.iter_mut().for_each(|t| t.flow(now, flow, bytes));
        }
    }

    /// Runs the program of an end, and then sends what its socket may send.
    #[inline(always)]
    fn run_program(&mut self, now: Nanos, place: usize, end: usize) -> Handled {
        let stream = &mut self.streams[place];
        let Talk::Tcp(pair) = &mut stream.talk else { return Ok(()) };
        let TcpPair { sockets: [_, far], program, .. } = &mut **pair;
        match program {
            Program::Bulk => {
                if end == 1 && far.peer_closed() {
                    far.close();
                }
                self.transmit(now, place, end)
            }
            Program::RequestResponse { .. } => self.run_requests(now, place, end),
        }
    }

    /// Runs the program of an end that asks or answers.
    #[inline(never)]
    fn run_requests(&mut self, now: Nanos, place: usize, end: usize) -> Handled {
        let stream = &mut self.streams[place];
        let flow = stream.flow as usize;
        let Talk::Tcp(pair) = &mut stream.talk else { return Ok(()) };
        let TcpPair { sockets: [near, far], program, active, .. } = &mut **pair;
        match program {
            Program::Bulk => {}
            Program::RequestResponse { request, response, asked, done, answered, once } => {
                if end == 1 {
                    while far.delivered() >= (*answered + 1) * *request {
                        *answered += 1;
                        far.write(*response);
                    }
                    if far.peer_closed() {
                        far.close();
                    }
                } else {
                    if let Some(since) = *asked
                        && near.delivered() >= (*done + 1) * *response
                    {
                        let cell = self.flow_tally.cell(self.segment, flow);
                        cell.transactions += 1;
                        let took = now - once.unwrap_or(since);
                        self.watches[flow].delivered(now);
                        cell.rtts.push(took);
                        if let Some(series) = &mut self.series {
                            series.answered(now, flow, took);
                        }
                        *done += 1;
                        *asked = None;
                    }
                    let finished = once.is_some() && *done > 0;
                    if asked.is_none() && near.is_established() {
                        if *active && !finished {
                            *asked = Some(now);
                            near.write(*request);
                        } else {
                            near.close();
                            if finished && std::mem::take(active) {
                                // The client opens its next connection while this one closes.
                                self.transmit(now, place, end)?;
                                let opener = &mut self.flows[flow].opener;
                                opener.open = opener.open.saturating_sub(1);
                                return self.open(now, flow);
                            }
                        }
                    }
                }
            }
        }
        self.transmit(now, place, end)
    }

    /// Sends what a socket has to send, and sets its timer.
    #[inline(never)]
    fn transmit(&mut self, now: Nanos, place: usize, end: usize) -> Handled {
        let mut whole: Option<Parcel> = None;
        let mut parcel = Parcel::new(0, 0, Load::Segment(Segment::default()));
        loop {
            let stream = &mut self.streams[place];
            let Talk::Tcp(pair) = &mut stream.talk else { return Ok(()) };
            let (tso, socket) = (pair.tso, &mut pair.sockets[end]);
            let Load::Segment(segment) = &mut parcel.load else { break };
            let Some(ecn) = socket.transmit(now, segment) else { break };
            (parcel.len, parcel.octet) = (segment.bytes, stream.ends[end].key.tos | ecn & 3);
            if !tso {
                self.send(now, place, end, &parcel)?;
            } else if !whole.as_mut().is_some_and(|whole| whole.merge(&parcel))
                && let Some(full) = whole.replace(parcel)
            {
                self.send(now, place, end, &full)?;
            }
        }
        if let Some(rest) = &whole {
            self.send(now, place, end, rest)?;
        }
        let Talk::Tcp(pair) = &self.streams[place].talk else { return Ok(()) };
        let wake = pair.sockets[end].poll_timeout();
        if pair.sockets.iter().all(Socket::is_closed) {
            return self.release(now, place);
        }
        // The end is not woken at this instant again.
        self.arm(place, end, wake.map_or(NEVER, |wake| wake.max(now + 1)));
        Ok(())
    }

    /// Frees the slot and the source port of a connection that is over at both ends.
    fn release(&mut self, now: Nanos, place: usize) -> Handled {
        let stream = &mut self.streams[place];
        let flow = stream.flow as usize;
        let Talk::Tcp(pair) = std::mem::replace(&mut stream.talk, Talk::Over) else { return Ok(()) };
        stream.life = stream.life.wrapping_add(1);
        stream.ends.iter_mut().for_each(|end| end.wake = NEVER);
        if let Some(port) = stream.ends[0].key.sport() {
            self.flows[flow].opener.ports.push_back(port);
        }
        self.flows[flow].streams.retain(|s| *s as usize != place);
        self.free_streams.push(place as u32);
        let client = matches!(pair.program, Program::RequestResponse { once: Some(_), .. });
        if pair.active {
            // The program did not end the connection: it was reset, or given up.
            self.flows[flow].opener.open = self.flows[flow].opener.open.saturating_sub(1);
        }
        if client { self.open(now, flow) } else { Ok(()) }
    }
}

/// Whether the queue `two_level` serves a segment first: a SYN, or an ACK without data and without
/// FIN or RST (docs/reference/altq.md 9).
pub fn high(flags: Flags, len: u32) -> bool {
    if flags.has(Flags::FIN) || flags.has(Flags::RST) {
        return false;
    }
    flags.has(Flags::SYN) || len == 0 && flags.has(Flags::ACK)
}

/// Whether a source is a program on the host that has the queue.
pub fn is_local(kind: &Kind) -> bool {
    matches!(kind, Kind::Udp(udp) if matches!(udp.shape, Shape::Local { .. }))
}
