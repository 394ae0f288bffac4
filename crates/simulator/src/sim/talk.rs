//! What the ends of a stream say: sources, questions and answers, TCP's programs.

use std::collections::VecDeque;

use altq_cases::case::{Kind, Shape};
use altq_cases::source::{Endpoint, Outbox};
use altq_engine::drive;
use altq_engine::units::Nanos;

use super::SimError;
use super::events::{Event, Rank};
use super::stream::{Load, NEVER, Talk};
use super::world::World;
use crate::tcp::{Flags, Socket};

/// Datagrams that ask and answer.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Lengths at layer 3 of a question and an answer.
    pub lens: [u32; 2],
    /// How long an answer is waited for.
    pub retry: Nanos,
    /// The question that is out.
    pub number: u64,
    /// When it was asked first.
    pub asked: Nanos,
    /// Whether one is out.
    pub open: bool,
}

/// Both ends of a connection, and the programs that use them.
pub struct TcpPair {
    /// The ends.
    pub sockets: [Socket; 2],
    /// What the programs do.
    pub program: Program,
    /// Bytes that have come to the far end, as far as they are counted.
    pub counted: u64,
    /// Whether the near program still begins anything.
    pub active: bool,
    /// Both hand super-packets to their card.
    pub tso: bool,
}

/// What an end hands to its host.
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

/// The largest super-packet: what IPv4's length can say.
const LARGEST: u32 = 65_535;

impl Parcel {
    /// One packet.
    pub fn new(len: u32, octet: u8, load: Load) -> Parcel {
        Parcel { len, segments: 1, octet, load }
    }

    /// Makes one super-packet of this and the next, if a card could cut it into them again: data
    /// that follows on, all segments alike but for a last one that is shorter.
    fn takes(&mut self, next: &Parcel) -> bool {
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
    /// One sends, the other reads.
    Bulk,
    /// One asks, the other answers.
    Ask {
        /// Bytes of a question.
        request: u64,
        /// Bytes of an answer.
        response: u64,
        /// When the present question was asked.
        asked: Option<Nanos>,
        /// Questions answered.
        done: u64,
        /// Answers given.
        given: u64,
        /// One question a connection; when it was opened.
        once: Option<Nanos>,
    },
}

/// What a flow needs to open its streams.
#[derive(Clone, Debug, Default)]
pub struct Opener {
    /// Source ports that no connection has.
    pub ports: VecDeque<u16>,
    /// How many streams are to be open.
    pub wanted: u32,
    /// How many are.
    pub open: u32,
}

impl World<'_> {
    /// A flow begins a span in which it sends.
    pub(super) fn start(&mut self, now: Nanos, at: usize) -> Result<(), SimError> {
        let kind = &self.case.flows[at].kind;
        self.flows[at].active = true;
        match kind.tcp() {
            None => {
                for stream in self.flows[at].streams.clone() {
                    self.woken(now, stream as usize, 0)?;
                }
            }
            Some(tcp) => {
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

    /// And ends it. What it has sent goes on its way; a connection that sends delivers what its
    /// program has written by now.
    pub(super) fn stop(&mut self, now: Nanos, at: usize) -> Result<(), SimError> {
        self.flows[at].active = false;
        (self.flows[at].opener.wanted, self.flows[at].opener.open) = (0, 0);
        for stream in std::mem::take(&mut self.flows[at].streams) {
            let place = stream as usize;
            match &mut self.streams[place].talk {
                Talk::Source(source) => source.stop(),
                Talk::Playback(playback) => playback.stop(),
                Talk::Ask(ask) => ask.open = false,
                Talk::Tcp(pair) => {
                    pair.active = false;
                    // A program that asks hears the answer first, as one that is told to stop
                    // between two questions.
                    if matches!(pair.program, Program::Bulk) {
                        pair.sockets[0].close();
                    }
                    self.progress(now, place, 0)?;
                    continue;
                }
                Talk::Over => continue,
            }
            self.streams[place].ends[0].wake = NEVER;
            self.flows[at].streams.push(stream);
        }
        Ok(())
    }

    /// A stream of a flow opens a connection, if one is wanted and a port is free.
    pub(super) fn open(&mut self, now: Nanos, at: usize) -> Result<(), SimError> {
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
                Program::Ask { once: Some(opened), .. } => *opened = now,
                Program::Ask { .. } => {}
            }
        }
        self.pump(now, place, 0)
    }

    /// An end's time has come, or so it seems.
    pub(super) fn wake(&mut self, now: Nanos, place: usize, end: usize) -> Result<(), SimError> {
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
        self.woken(now, place, end)
    }

    /// Wakes an end at a time, and not before.
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

    fn woken(&mut self, now: Nanos, place: usize, end: usize) -> Result<(), SimError> {
        let stream = &mut self.streams[place];
        let flow = stream.flow as usize;
        match &mut stream.talk {
            Talk::Tcp(pair) => {
                pair.sockets[end].timeout(now);
                return self.progress(now, place, end);
            }
            Talk::Ask(_) => return self.ask_datagram(now, place),
            _ if !self.flows[flow].active => return Ok(()),
            Talk::Source(source) => source.wake(now, &mut self.out),
            Talk::Playback(playback) => playback.wake(now, &mut self.out),
            Talk::Over => return Ok(()),
        }
        let mut out = std::mem::take(&mut self.out);
        let sent = self.emit(now, place, &mut out);
        if let Some(wake) = out.wake.take() {
            self.arm(place, 0, wake);
        }
        out.packets.clear();
        self.out = out;
        sent
    }

    /// Sends what a source has put out.
    fn emit(&mut self, now: Nanos, place: usize, out: &mut Outbox) -> Result<(), SimError> {
        for (len, number) in &out.packets {
            let octet = match &self.streams[place].talk {
                Talk::Playback(_) => {
                    self.frame(self.streams[place].flow as usize, *number).map_or(0, |frame| frame.key.tos)
                }
                _ => self.streams[place].ends[0].key.tos,
            };
            let refused = self.send(now, place, 0, Parcel::new(*len, octet, Load::Number(*number)))?;
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

    fn ask_datagram(&mut self, now: Nanos, place: usize) -> Result<(), SimError> {
        let stream = &mut self.streams[place];
        let active = self.flows[stream.flow as usize].active;
        let Talk::Ask(ask) = &mut stream.talk else { return Ok(()) };
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
        self.send(now, place, 0, Parcel::new(len, octet, Load::Number(number))).map(|_| ())
    }

    /// A packet has come to where it goes.
    pub(super) fn delivered(&mut self, now: Nanos, packet: u32) -> Result<(), SimError> {
        self.free.push(packet);
        let travelling = &self.packets[packet as usize];
        let (place, end, len) = (travelling.stream as usize, 1 - usize::from(travelling.end & 1), travelling.len);
        let (late, octet) = (travelling.life != self.streams[place].life, travelling.octet);
        let stream = &mut self.streams[place];
        let flow = stream.flow as usize;
        if end == 1 {
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
        let headers = if stream.ends[0].key.family == 6 { 48 } else { 28 };
        match (&mut stream.talk, &travelling.load) {
            (Talk::Tcp(pair), Load::Segment(segment)) => {
                pair.sockets[end].received(now, segment, octet & 3 == 3);
                if end == 1 {
                    let gained = pair.sockets[1].delivered() - pair.counted;
                    pair.counted += gained;
                    self.paid(now, flow, gained);
                }
                return self.progress(now, place, end);
            }
            (Talk::Ask(ask), Load::Number(number)) => {
                let number = *number;
                if end == 1 {
                    let answer = ask.lens[1];
                    let octet = stream.ends[1].key.tos;
                    self.paid(now, flow, u64::from(len.saturating_sub(headers)));
                    return self.send(now, place, 1, Parcel::new(answer, octet, Load::Number(number))).map(|_| ());
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
                    return self.ask_datagram(now, place);
                }
            }
            (Talk::Source(_), _) => self.paid(now, flow, u64::from(len.saturating_sub(headers))),
            (Talk::Playback(_), _) => self.paid(now, flow, u64::from(len)),
            _ => {}
        }
        Ok(())
    }

    /// Payload has come to where it goes, in order.
    fn paid(&mut self, now: Nanos, flow: usize, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.flow_tally.cell(self.segment, flow).charged += bytes;
        if !self.traces.is_empty() {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            self.traces.iter_mut().for_each(|t| t.flow(now, flow, bytes));
        }
    }

    /// The program of an end looks whether there is something to do, and its socket sends what it
    /// may.
    fn progress(&mut self, now: Nanos, place: usize, end: usize) -> Result<(), SimError> {
        let stream = &mut self.streams[place];
        let flow = stream.flow as usize;
        let Talk::Tcp(pair) = &mut stream.talk else { return Ok(()) };
        let TcpPair { sockets: [near, far], program, active, .. } = &mut **pair;
        match program {
            Program::Bulk => {
                if end == 1 && far.peer_closed() {
                    far.close();
                }
            }
            Program::Ask { request, response, asked, done, given, once } => {
                if end == 1 {
                    while far.delivered() >= (*given + 1) * *request {
                        *given += 1;
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
                                self.pump(now, place, end)?;
                                let opener = &mut self.flows[flow].opener;
                                opener.open = opener.open.saturating_sub(1);
                                return self.open(now, flow);
                            }
                        }
                    }
                }
            }
        }
        self.pump(now, place, end)
    }

    /// Sends what a socket has to send, and sets its timer.
    fn pump(&mut self, now: Nanos, place: usize, end: usize) -> Result<(), SimError> {
        let mut whole: Option<Parcel> = None;
        loop {
            let stream = &mut self.streams[place];
            let Talk::Tcp(pair) = &mut stream.talk else { return Ok(()) };
            let (tso, socket) = (pair.tso, &mut pair.sockets[end]);
            let Some((segment, ecn)) = socket.poll_transmit(now) else { break };
            let octet = stream.ends[end].key.tos | ecn & 3;
            let parcel = Parcel::new(segment.bytes, octet, Load::Segment(segment));
            if !tso {
                self.send(now, place, end, parcel)?;
            } else if !whole.as_mut().is_some_and(|whole| whole.takes(&parcel))
                && let Some(full) = whole.replace(parcel)
            {
                self.send(now, place, end, full)?;
            }
        }
        if let Some(rest) = whole {
            self.send(now, place, end, rest)?;
        }
        let Talk::Tcp(pair) = &self.streams[place].talk else { return Ok(()) };
        let wake = pair.sockets[end].poll_timeout();
        if pair.sockets.iter().all(Socket::is_closed) {
            return self.release(now, place);
        }
        // Never at this very instant again.
        self.arm(place, end, wake.map_or(NEVER, |wake| wake.max(now + 1)));
        Ok(())
    }

    /// A connection is over at both ends: its place and its port are free.
    fn release(&mut self, now: Nanos, place: usize) -> Result<(), SimError> {
        let stream = &mut self.streams[place];
        let flow = stream.flow as usize;
        let Talk::Tcp(pair) = std::mem::replace(&mut stream.talk, Talk::Over) else { return Ok(()) };
        stream.life = stream.life.wrapping_add(1);
        stream.ends.iter_mut().for_each(|end| end.wake = NEVER);
        if let Some(port) = stream.ends[0].key.sport {
            self.flows[flow].opener.ports.push_back(port);
        }
        self.flows[flow].streams.retain(|s| *s as usize != place);
        self.idle.push(place as u32);
        let client = matches!(pair.program, Program::Ask { once: Some(_), .. });
        if pair.active {
            // It ended otherwise than its program meant it to: given up, or reset.
            self.flows[flow].opener.open = self.flows[flow].opener.open.saturating_sub(1);
        }
        if client { self.open(now, flow) } else { Ok(()) }
    }
}

/// True for what a queue of two levels serves first: SYN, and ACK without data; not with FIN or RST
/// (docs/reference/altq.md 9).
pub fn high(flags: Flags, len: u32) -> bool {
    if flags.has(Flags::FIN) || flags.has(Flags::RST) {
        return false;
    }
    flags.has(Flags::SYN) || len == 0 && flags.has(Flags::ACK)
}

/// Whether a source is a program on the host of the queue.
pub fn is_local(kind: &Kind) -> bool {
    matches!(kind, Kind::Udp(udp) if matches!(udp.shape, Shape::Local { .. }))
}
