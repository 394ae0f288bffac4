//! The receiving half: what has come, in which order, and when that is acknowledged.

use std::collections::VecDeque;

use altq_engine::units::Nanos;

use super::config::{Config, DelayedAck};
use super::rto::wheel;
use super::segment::{Flags, Sack, Segment};

/// What has come and what is to be said about it.
#[derive(Debug, Default)]
pub struct Receiver {
    /// The next number expected.
    next: u64,
    /// The number of the peer's FIN.
    fin: Option<u64>,
    /// What came out of order: `[from, to)`, ascending, never touching.
    held: VecDeque<(u64, u64)>,
    /// What of `held` SACK reports: the block of the latest segment first (RFC 2018 4).
    recent: [(u64, u64); 4],
    /// A duplicate that the next acknowledgement reports (RFC 2883).
    duplicate: Option<(u64, u64)>,
    /// An acknowledgement goes at once.
    urgent: bool,
    /// It goes at this time, if nothing takes it along before.
    deadline: Option<Nanos>,
    /// The next number expected as last acknowledged, and segments since.
    last_acked: u64,
    segments: u32,
    /// So many acknowledgements go at once (DelayedAck::Modern).
    quick: u8,
    last: Nanos,
    /// The timestamp to echo (RFC 7323 4.3).
    stamp: Nanos,
    /// ECN: a mark came and the peer has not answered yet (RFC 3168 6.1.3).
    marked: bool,
}

impl Receiver {
    /// Nothing has come yet.
    pub fn new(config: &Config) -> Receiver {
        let quick = if let DelayedAck::Modern { quick, .. } = config.delayed_ack { quick } else { 0 };
        Receiver { quick, ..Receiver::default() }
    }

    /// The peer's SYN came.
    pub fn opened(&mut self, now: Nanos, segment: &Segment) {
        (self.next, self.last_acked, self.stamp, self.last) = (1, 1, segment.stamp, now);
    }

    /// The next number expected.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Bytes in order, as handed to the application.
    pub fn delivered(&self) -> u64 {
        self.next.saturating_sub(1 + u64::from(self.closed()))
    }

    /// All has come, the FIN included.
    pub fn closed(&self) -> bool {
        self.fin.is_some_and(|fin| self.next > fin)
    }

    /// The timestamp to echo.
    pub fn stamp(&self) -> Nanos {
        self.stamp
    }

    /// Whether the echo of a mark stands in what is sent.
    pub fn marked(&self) -> bool {
        self.marked
    }

    /// An acknowledgement must go now.
    pub fn urgent(&self, now: Nanos) -> bool {
        self.urgent || self.deadline.is_some_and(|at| at <= now)
    }

    /// When one must go.
    pub fn deadline(&self) -> Option<Nanos> {
        if self.urgent { Some(0) } else { self.deadline }
    }

    /// One is to go now, whatever has come.
    pub fn acknowledge_now(&mut self) {
        self.urgent = true;
    }

    /// Room of what is held, in bytes.
    pub fn memory(&self) -> usize {
        self.held.capacity() * size_of::<(u64, u64)>()
    }

    /// A segment with payload or FIN has come, marked or not. `rto` is a span after which a pause
    /// is a silence.
    pub fn received(&mut self, config: &Config, now: Nanos, segment: &Segment, marked: bool, stamps: bool, rto: Nanos) {
        let (from, to) = (segment.seq, segment.end());
        // RFC 7323 4.3: of several segments that one acknowledgement covers, the earliest one's.
        if stamps && from <= self.last_acked && segment.stamp > self.stamp {
            self.stamp = segment.stamp;
        }
        // RFC 3168 6.1.3
        if segment.flags.has(Flags::CWR) {
            self.marked = false;
        }
        if marked {
            self.urgent |= !self.marked;
            self.marked = true;
        }
        if let DelayedAck::Modern { quick, .. } = config.delayed_ack
            && now.saturating_sub(self.last) > rto
        {
            self.quick = quick;
        }
        self.last = now;
        if segment.flags.has(Flags::FIN) {
            self.fin = Some(to - 1);
        }
        if to <= self.next {
            // RFC 2883 4: what came twice is reported; RFC 9293 3.10.7.4: and acknowledged at once.
            self.duplicate = Some((from, to));
            self.urgent = true;
            return;
        }
        if from > self.next {
            // RFC 5681 4.2: out of order, at once.
            self.hold(from, to);
            self.urgent = true;
            return;
        }
        self.next = to;
        self.segments += 1;
        if !self.held.is_empty() {
            // RFC 5681 4.2: so too when a gap is filled.
            self.release();
            self.urgent = true;
        }
        match config.delayed_ack {
            DelayedAck::Off => self.urgent = true,
            DelayedAck::Modern { wait, .. } => {
                // RFC 5681 4.2: at least for every second full segment, and not later than 500 ms.
                if self.quick > 0 || self.next - self.last_acked > u64::from(config.mss) {
                    self.urgent = true;
                }
                self.deadline = self.deadline.or_else(|| Some(wheel(config, now, now.saturating_add(wait))));
            }
            DelayedAck::Bsd { tick } => {
                // TCP/IP Illustrated 2, 28.4: the flag of a delayed acknowledgement is set: now;
                // else at the fast timer's next call.
                if self.segments >= 2 {
                    self.urgent = true;
                }
                let next = (now / tick.max(1) + 1).saturating_mul(tick.max(1));
                self.deadline = self.deadline.or(Some(next));
            }
        }
        self.urgent |= self.closed();
    }

    /// Keeps what came out of order.
    fn hold(&mut self, from: u64, to: u64) {
        let at = self.held.partition_point(|(_, end)| *end < from);
        let (mut low, mut up) = (from, to);
        match self.held.get(at).copied() {
            Some((start, end)) if start <= from && to <= end => self.duplicate = Some((from, to)),
            _ => {}
        }
        // What it touches becomes one with it.
        let mut end = at;
        while let Some((start, stop)) = self.held.get(end).copied().filter(|(start, _)| *start <= up) {
            (low, up) = (low.min(start), up.max(stop));
            end += 1;
        }
        match self.held.get_mut(at).filter(|_| end > at) {
            Some(first) => {
                *first = (low, up);
                self.held.drain(at + 1..end);
            }
            None => self.held.insert(at, (low, up)),
        }
        // RFC 2018 4: the block of this segment first, then those reported last.
        let mut next = [(0, 0); 4];
        next[0] = (low, up);
        let others = self.recent.iter().filter(|(start, stop)| stop > start && (*stop < low || *start > up));
        for (slot, block) in next[1..].iter_mut().zip(others) {
            *slot = *block;
        }
        self.recent = next;
    }

    /// Takes what follows `next` from what is held.
    fn release(&mut self) {
        while let Some((_, to)) = self.held.front().copied().filter(|(from, _)| *from <= self.next) {
            self.next = self.next.max(to);
            self.held.pop_front();
        }
        let mut at = 0;
        for index in 0..self.recent.len() {
            let block = self.recent[index];
            if block.1 > self.next {
                self.recent[at] = block;
                at += 1;
            }
        }
        self.recent[at..].fill((0, 0));
    }

    /// What an acknowledgement reports beside its number.
    pub fn sack(&self, stamps: bool) -> Sack {
        let mut sack = Sack::default();
        if let Some((from, to)) = self.duplicate {
            sack.push(self.next, from, to);
        }
        for (from, to) in self.recent.iter().filter(|(from, to)| to > from) {
            if sack.len() < Sack::most(stamps) {
                sack.push(self.next, *from, *to);
            }
        }
        sack
    }

    /// A segment that acknowledges goes.
    pub fn acknowledged(&mut self) {
        if self.next > self.last_acked {
            self.quick = self.quick.saturating_sub(1);
        }
        (self.last_acked, self.segments, self.urgent, self.deadline, self.duplicate) =
            (self.next, 0, false, None, None);
    }
}
