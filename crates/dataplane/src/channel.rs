//! An edge in memory, whose clock moves only when a test moves it. A loop on it does the same in
//! every run.

use std::collections::VecDeque;

use altq_engine::units::Nanos;

use crate::edge::{BATCH, Blocked, Edge, EdgeCounters, Sent, Want, Woken};
use crate::error::Error;
use crate::pool::Pool;
use crate::segment;
use crate::vnet::Vnet;

/// A frame, and the time at which it arrives or leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed {
    /// When it arrives, or left.
    pub at: Nanos,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its virtio header: the checksum and segmentation that are left to the device.
    pub vnet: Vnet,
}

/// The edge. Time passes only in [`wait`](Edge::wait), which moves the clock to the next event.
#[derive(Debug, Default)]
pub struct Channel {
    now: Nanos,
    end: Nanos,
    inbox: VecDeque<Timed>,
    outbox: Vec<Timed>,
    /// Spans (from, to) in which the other side accepts nothing, in order.
    full: VecDeque<(Nanos, Nanos)>,
    /// The most frames that the other side accepts in one call.
    gulp: usize,
    /// True if checksums that are left to the device are filled in when frames are sent.
    complete: bool,
    /// What [`Edge::seen_late`] says.
    seen_late: Nanos,
    counters: EdgeCounters,
}

impl Channel {
    /// An edge at time 0. Its loop is told to stop at `end`.
    pub fn new(end: Nanos) -> Channel {
        Channel { end, gulp: BATCH, complete: true, ..Channel::default() }
    }

    /// Adds a frame that will arrive at its time. Frames must be added in order of time.
    pub fn arrive(&mut self, frame: Timed) {
        debug_assert!(self.inbox.back().is_none_or(|last| last.at <= frame.at));
        self.inbox.push_back(frame);
    }

    /// From `from` to `to` the other side accepts nothing.
    pub fn block(&mut self, from: Nanos, to: Nanos) {
        self.full.push_back((from, to));
    }

    /// The other side accepts at most this many frames in one call (at least 1).
    pub fn gulp(&mut self, frames: usize) {
        self.gulp = frames.max(1);
    }

    /// Sets how late frames may be received: the loop assumes that they came that much earlier. At
    /// first 0.
    pub fn seen_late(&mut self, time: Nanos) {
        self.seen_late = time;
    }

    /// The frames sent since the last call, in order.
    pub fn departed(&mut self) -> Vec<Timed> {
        std::mem::take(&mut self.outbox)
    }

    fn blocked_until(&mut self) -> Option<Nanos> {
        while self.full.front().is_some_and(|(_, to)| *to <= self.now) {
            self.full.pop_front();
        }
        self.full.front().filter(|(from, _)| *from <= self.now).map(|(_, to)| *to)
    }
}

impl Edge for Channel {
    fn now(&mut self) -> Nanos {
        self.now
    }

    fn seen_late(&self) -> Nanos {
        self.seen_late
    }

    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<u32>) -> Result<bool, Error> {
        for _ in 0..BATCH {
            if self.inbox.front().is_none_or(|frame| frame.at > self.now) {
                break;
            }
            let Some(handle) = pool.take_large() else { return Ok(!out.is_empty()) };
            let Some(frame) = self.inbox.pop_front() else { break };
            if !pool.fill(handle, &frame.bytes) {
                self.counters.unreadable += 1;
                pool.free(handle);
                continue;
            }
            *pool.vnet_mut(handle) = frame.vnet;
            self.counters.received += 1;
            self.counters.received_bytes += frame.bytes.len() as u64;
            out.push(handle);
        }
        Ok(true)
    }

    fn send(&mut self, pool: &mut Pool, frames: &[u32], _: &[Nanos]) -> Result<Sent, Error> {
        if self.blocked_until().is_some() {
            self.counters.blocked += 1;
            return Ok(Sent { done: 0, blocked: Some(Blocked::Full) });
        }
        let done = frames.len().min(self.gulp);
        for handle in &frames[..done] {
            if self.complete
                && pool.vnet(*handle).gso_type == crate::vnet::GSO_NONE
                && !segment::complete(pool, *handle)
            {
                self.counters.refused += 1;
                continue;
            }
            self.counters.sent += 1;
            self.outbox.push(Timed { at: self.now, bytes: pool.bytes(*handle), vnet: *pool.vnet(*handle) });
        }
        Ok(Sent { done, blocked: (done < frames.len()).then_some(Blocked::Until(self.now)) })
    }

    fn wait(&mut self, deadline: Option<Nanos>, want: Want) -> Result<Woken, Error> {
        let frame = self.inbox.front().map(|frame| frame.at).filter(|_| want.frames);
        let room = if want.room { Some(self.blocked_until().unwrap_or(self.now)) } else { None };
        let next = [frame, room, deadline].into_iter().flatten().min().unwrap_or(self.end).max(self.now);
        self.now = next.min(self.end);
        Ok(Woken { frames: frame.is_some_and(|at| at <= self.now), stop: next >= self.end })
    }

    fn stopped(&mut self) -> bool {
        self.now >= self.end
    }

    fn counters(&mut self) -> EdgeCounters {
        self.counters
    }
}
