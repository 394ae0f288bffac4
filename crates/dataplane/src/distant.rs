//! An edge whose other side is far away: frames that are sent come out later, or not at all.
//!
//! What the loop hands over is copied, so that its slots are free at once, as after any other send. Who decides when a frame arrives
//! is [`Beyond`]: what lies on the far side of the edge.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use altq_engine::units::Nanos;

use crate::edge::{BATCH, Edge, EdgeCounters, Sent, Want, Woken};
use crate::error::Error;
use crate::pool::Pool;

/// What lies behind an edge.
pub trait Beyond: Send {
    /// A frame leaves at `now`: when it arrives; `None`: it is lost on the way. `head`: its first bytes, from layer 2 on (of a frame of an
    /// ordinary MTU all of them), `len`: the bytes of all of it, without a check sequence.
    fn launch(&mut self, now: Nanos, head: &[u8], len: usize) -> Option<Nanos>;
}

/// Frames on their way at most, of full size 98 ms at 1 Gbit/s; what is sent beyond that is refused and counted.
const MOST: usize = 1 << 13;

/// An edge behind which frames take their time.
pub struct Distant<E> {
    near: E,
    beyond: Option<Box<dyn Beyond>>,
    pool: Pool,
    /// By time, then in the order in which they were sent.
    under_way: BinaryHeap<Reverse<(Nanos, u64, u32)>>,
    sent: u64,
    refused: u64,
    /// To be sent now, kept from call to call.
    due: Vec<u32>,
}

impl<E: Edge> Distant<E> {
    /// `None`: nothing is held, every call goes through.
    pub fn new(near: E, beyond: Option<Box<dyn Beyond>>) -> Distant<E> {
        let slots = if beyond.is_some() { MOST } else { 0 };
        Distant {
            near,
            beyond,
            pool: Pool::new(slots, slots),
            under_way: BinaryHeap::new(),
            sent: 0,
            refused: 0,
            due: Vec::with_capacity(BATCH),
        }
    }

    /// Frames and when they leave: keeps them until they arrive.
    fn hold(&mut self, from: &Pool, frames: impl ExactSizeIterator<Item = (u32, Nanos)>) -> Result<Sent, Error> {
        let Some(beyond) = &mut self.beyond else { return Ok(Sent { done: 0, blocked: None }) };
        let done = frames.len();
        for (frame, leaves) in frames {
            let Some(at) = beyond.launch(leaves, from.head(frame), from.len(frame)) else { continue };
            let Some(copy) = self.pool.take_large() else {
                self.refused += 1;
                continue;
            };
            if self.pool.copy_from(copy, from, frame) {
                self.under_way.push(Reverse((at, self.sent, copy)));
                self.sent += 1;
            } else {
                self.pool.free(copy);
                self.refused += 1;
            }
        }
        self.flush()?;
        Ok(Sent { done, blocked: None })
    }

    /// Gives out what has arrived by now.
    fn flush(&mut self) -> Result<(), Error> {
        if self.beyond.is_none() {
            return Ok(());
        }
        loop {
            let now = self.near.now();
            while self.due.len() < BATCH
                && let Some(Reverse((_, _, handle))) = self.under_way.peek().copied().filter(|Reverse((at, _, _))| *at <= now)
            {
                self.under_way.pop();
                self.due.push(handle);
            }
            if self.due.is_empty() {
                return Ok(());
            }
            let sent = self.near.send(&mut self.pool, &self.due)?;
            for handle in self.due.drain(..sent.done) {
                self.pool.free(handle);
            }
            if sent.blocked.is_some() {
                return Ok(());
            }
        }
    }
}

impl<E: Edge> Edge for Distant<E> {
    fn now(&mut self) -> Nanos {
        self.near.now()
    }

    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<u32>) -> Result<bool, Error> {
        self.flush()?;
        self.near.receive(pool, out)
    }

    fn send(&mut self, pool: &mut Pool, frames: &[u32]) -> Result<Sent, Error> {
        if self.beyond.is_none() {
            return self.near.send(pool, frames);
        }
        let now = self.near.now();
        self.hold(pool, frames.iter().map(|frame| (*frame, now)))
    }

    fn send_at(&mut self, pool: &mut Pool, frames: &[u32], ends: &[Nanos]) -> Result<Sent, Error> {
        if self.beyond.is_none() {
            return self.near.send_at(pool, frames, ends);
        }
        self.hold(pool, frames.iter().copied().zip(ends.iter().copied()))
    }

    fn wait(&mut self, deadline: Option<Nanos>, want: Want) -> Result<Woken, Error> {
        if self.beyond.is_none() {
            return self.near.wait(deadline, want);
        }
        self.flush()?;
        loop {
            let arrives = match self.due.is_empty() {
                true => self.under_way.peek().map(|Reverse((at, _, _))| *at),
                // The other side was full: it says when it is not, or is tried again soon.
                false => Some(self.near.now() + 50_000),
            };
            let first = match (deadline, arrives) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            let woken = self.near.wait(first, Want { room: want.room || !self.due.is_empty(), ..want })?;
            self.flush()?;
            let over = deadline.is_some_and(|at| self.near.now() >= at);
            if woken.frames || woken.stop || over {
                return Ok(woken);
            }
        }
    }

    fn stopped(&mut self) -> bool {
        self.near.stopped()
    }

    fn counters(&mut self) -> EdgeCounters {
        let mut counters = self.near.counters();
        counters.refused += self.refused;
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::{Channel, Timed};
    use crate::vnet::Vnet;

    fn frame(at: Nanos, number: u8) -> Timed {
        // An Ethernet frame of nothing known, so that no checksum is looked for.
        let mut bytes = vec![0; 60];
        (bytes[12], bytes[13], bytes[59]) = (0x88, 0xb5, number);
        Timed { at, bytes, vnet: Vnet::default() }
    }

    /// What tells by time, length and number of a frame when it arrives.
    struct By<F>(F);

    impl<F: FnMut(Nanos, usize, u8) -> Option<Nanos> + Send> Beyond for By<F> {
        fn launch(&mut self, now: Nanos, head: &[u8], len: usize) -> Option<Nanos> {
            (self.0)(now, len, head[59])
        }
    }

    /// Passes what comes through an edge with this behind it; times and numbers of what came out.
    fn pass(beyond: impl FnMut(Nanos, usize, u8) -> Option<Nanos> + Send + 'static, frames: &[(Nanos, u8)]) -> Vec<(Nanos, u8)> {
        let mut channel = Channel::new(1_000_000);
        frames.iter().for_each(|(at, number)| channel.arrive(frame(*at, *number)));
        let mut edge = Distant::new(channel, Some(Box::new(By(beyond))));
        let mut pool = Pool::new(256, 256);
        let mut here = Vec::new();
        while !edge.stopped() {
            edge.receive(&mut pool, &mut here).unwrap();
            let sent = edge.send(&mut pool, &here).unwrap();
            here.drain(..sent.done).for_each(|handle| pool.free(handle));
            edge.wait(None, Want { frames: true, room: false }).unwrap();
        }
        edge.near.departed().iter().map(|frame| (frame.at, frame.bytes[59])).collect()
    }

    #[test]
    fn frames_come_out_when_they_arrive() {
        let frames = [(0, 1), (100, 2), (50_000, 3)];
        let out = pass(|at, _, _| Some(at + 20_000), &frames);
        assert_eq!(out, [(20_000, 1), (20_100, 2), (70_000, 3)]);
    }

    #[test]
    fn some_are_lost_and_some_pass_others() {
        let beyond = |at: Nanos, bytes: usize, number: u8| {
            assert_eq!(bytes, 60);
            match number {
                1 => Some(at + 30_000),
                2 => None,
                _ => Some(at + 1_000),
            }
        };
        assert_eq!(pass(beyond, &[(0, 1), (10, 2), (20, 3)]), [(1_020, 3), (30_000, 1)]);
    }
}
