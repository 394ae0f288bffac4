//! The receiving half: puts what arrives into order, and decides when to acknowledge it.

use std::collections::VecDeque;

use altq_engine::units::Nanos;

use super::config::{Config, DelayedAck};
use super::rto::wheel;
use super::segment::{Flags, Sack, Segment};

/// The receiving half of a connection.
#[derive(Debug, Default)]
pub struct Receiver {
    /// The next sequence number expected.
    next: u64,
    /// The sequence number of the peer's FIN.
    fin: Option<u64>,
    /// What arrived out of order: ranges `[from, to)` in ascending order, with gaps between them.
    held: VecDeque<(u64, u64)>,
    /// The ranges of `held` that SACK reports: that of the latest segment first (RFC 2018 4).
    recent: [(u64, u64); 4],
    /// A duplicate that the next acknowledgement reports (RFC 2883 4).
    duplicate: Option<(u64, u64)>,
    /// An acknowledgement must be sent at once.
    urgent: bool,
    /// An acknowledgement must be sent at this time, unless a segment carries it before.
    deadline: Option<Nanos>,
    /// The number that was last acknowledged.
    last_acked: u64,
    /// Segments received since then.
    segments: u32,
    /// How many acknowledgements are still to be sent at once ([`DelayedAck::Modern`]).
    quick: u8,
    /// When the last segment arrived.
    last: Nanos,
    /// The timestamp to echo (RFC 7323 4.3).
    stamp: Nanos,
    /// ECN: a mark came, and the peer has not said yet that it reduced its window (RFC 3168 6.1.3).
    marked: bool,
}

impl Receiver {
    /// The state before the first segment.
    pub fn new(config: &Config) -> Receiver {
        let quick = if let DelayedAck::Modern { quick, .. } = config.delayed_ack { quick } else { 0 };
        Receiver { quick, ..Receiver::default() }
    }

    /// The peer's SYN has arrived.
    pub fn opened(&mut self, now: Nanos, segment: &Segment) {
        (self.next, self.last_acked, self.stamp, self.last) = (1, 1, segment.stamp, now);
    }

    /// The next sequence number expected.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Bytes received in order, which the application has.
    pub fn delivered(&self) -> u64 {
        self.next.saturating_sub(1 + u64::from(self.closed()))
    }

    /// Everything has arrived, up to the peer's FIN.
    pub fn closed(&self) -> bool {
        self.fin.is_some_and(|fin| self.next > fin)
    }

    /// The timestamp to echo.
    pub fn stamp(&self) -> Nanos {
        self.stamp
    }

    /// Whether segments that are sent carry the echo of a mark (ECE).
    pub fn marked(&self) -> bool {
        self.marked
    }

    /// Whether an acknowledgement must be sent now.
    pub fn urgent(&self, now: Nanos) -> bool {
        self.urgent || self.deadline.is_some_and(|at| at <= now)
    }

    /// When an acknowledgement must be sent; `Some(0)`: at once.
    pub fn deadline(&self) -> Option<Nanos> {
        if self.urgent { Some(0) } else { self.deadline }
    }

    /// Makes an acknowledgement go out now, whatever has arrived.
    pub fn acknowledge_now(&mut self) {
        self.urgent = true;
    }

    /// Memory that the list of ranges takes, in bytes.
    pub fn memory(&self) -> usize {
        self.held.capacity() * size_of::<(u64, u64)>()
    }

    /// A segment with payload or FIN has arrived. `marked`: its packet carried an ECN mark.
    /// `stamps`: timestamps are in use. After a pause longer than `rto` the first acknowledgements
    /// are sent at once again.
    #[inline(always)]
    pub fn received(&mut self, config: &Config, now: Nanos, segment: &Segment, marked: bool, stamps: bool, rto: Nanos) {
        let (from, to) = (segment.seq, segment.end());
        // RFC 7323 4.3: if one acknowledgement covers several segments, it echoes the timestamp of
        // the earliest one.
        if stamps && from <= self.last_acked && segment.stamp > self.stamp {
            self.stamp = segment.stamp;
        }
        // RFC 3168 6.1.3
        if segment.flags.has(Flags::CWR) {
            self.marked = false;
            self.urgent |= config.marks_hurry && to > from;
        }
        if marked {
            if !self.marked {
                self.urgent = true;
                self.quick = if config.marks_hurry { self.quick.max(2) } else { self.quick };
            }
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
            // What arrives a second time is reported (RFC 2883 4) and acknowledged at once (RFC
            // 9293 3.10.7.4).
            self.duplicate = Some((from, to));
            self.urgent = true;
            return;
        }
        if from > self.next {
            // RFC 5681 4.2: a segment out of order is acknowledged at once.
            self.hold(from, to);
            self.urgent = true;
            return;
        }
        self.next = to;
        self.segments += 1;
        if !self.held.is_empty() {
            // RFC 5681 4.2: so is one that fills a gap.
            self.release();
            self.urgent = true;
        }
        match config.delayed_ack {
            DelayedAck::Off => self.urgent = true,
            DelayedAck::Modern { wait, .. } => {
                // RFC 5681 4.2: at least every second full segment is acknowledged, and not later
                // than 500 ms.
                if self.quick > 0 || self.next - self.last_acked > u64::from(config.mss) {
                    self.urgent = true;
                }
                self.deadline = self.deadline.or_else(|| Some(wheel(config, now, now.saturating_add(wait))));
            }
            DelayedAck::Bsd { tick } => {
                // At once if the offered window can move by two segments, else at the next call of
                // the fast timer (TCP/IP Illustrated 2, chapters 26 and 25).
                if self.segments >= 2 {
                    self.urgent = true;
                }
                let next = (now / tick.max(1) + 1).saturating_mul(tick.max(1));
                self.deadline = self.deadline.or(Some(next));
            }
        }
        self.urgent |= self.closed();
    }

    /// Adds `[from, to)` to the ranges that arrived out of order.
    fn hold(&mut self, from: u64, to: u64) {
        let at = self.held.partition_point(|(_, end)| *end < from);
        let (mut low, mut up) = (from, to);
        match self.held.get(at).copied() {
            Some((start, end)) if start <= from && to <= end => self.duplicate = Some((from, to)),
            _ => {}
        }
        // Ranges that it touches are merged with it.
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

    /// Moves `next` past the ranges that follow it now.
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

    /// Whether an acknowledgement has SACK blocks. Without a gap and without a duplicate there is
    /// nothing to report.
    #[inline]
    pub fn has_sack(&self) -> bool {
        !self.held.is_empty() || self.duplicate.is_some()
    }

    /// The SACK blocks of an acknowledgement.
    pub fn sack(&self, stamps: bool) -> Sack {
        let mut sack = Sack::default();
        if let Some((from, to)) = self.duplicate {
            sack.push(self.next, from, to);
        }
        // Without a gap there is nothing else to report.
        if self.held.is_empty() {
            return sack;
        }
        for (from, to) in self.recent.iter().filter(|(from, to)| to > from) {
            if sack.len() < Sack::most(stamps) {
                sack.push(self.next, *from, *to);
            }
        }
        sack
    }

    /// A segment that acknowledges is sent.
    pub fn acknowledged(&mut self) {
        if self.next > self.last_acked {
            self.quick = self.quick.saturating_sub(1);
        }
        (self.last_acked, self.segments, self.urgent, self.deadline, self.duplicate) =
            (self.next, 0, false, None, None);
    }
}
