//! Wraps an edge: frames are delayed or dropped before the loop receives them, after the loop has
//! sent them, or both. This is how the lab emulates links before and behind the shaped link.
//!
//! Frames in transit are copied, so that the loop's slots are free at once, as after any other
//! send. A [`Network`] decides when a frame arrives: it stands for the links on its side.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use altq_dataplane::Error;
use altq_dataplane::edge::{BATCH, Edge, EdgeCounters, Sent, Want, Woken};
use altq_dataplane::pool::{HEAD_ROOM, Pool};
use altq_dataplane::segment::Super;
use altq_engine::units::Nanos;

/// What is known of a frame's transit so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onward {
    /// It arrives at the end, at this time.
    Arrives(Nanos),
    /// It comes to a link that it shares with other frames, at this time. The link decides only
    /// then, by another call of [`Network::onward`] with this ticket, because frames that left
    /// later may reach the link earlier.
    Meets(Nanos, u32),
    /// It is lost.
    Lost,
}

/// The emulated links on one side of an edge.
pub trait Network: Send {
    /// A frame enters the network. Returns the ticket for the first call of
    /// [`onward`](Network::onward). `head`: the frame's first bytes from layer 2 on; all bytes if
    /// the MTU is an ordinary one.
    fn enter(&mut self, head: &[u8]) -> u32;

    /// A frame is at the beginning of its route, or at a link where it [meets](Onward::Meets)
    /// others. Calls come in order of time. `len`: the frame's length, without the check sequence.
    fn onward(&mut self, now: Nanos, ticket: u32, len: usize) -> Onward;
}

/// No links: a frame arrives when its last bit has left.
pub struct Direct;

impl Network for Direct {
    fn enter(&mut self, _: &[u8]) -> u32 {
        0
    }

    fn onward(&mut self, now: Nanos, _: u32, _: usize) -> Onward {
        Onward::Arrives(now)
    }
}

/// The most frames in transit on one side: 98 ms of full frames at 1 Gbit/s. Further frames are
/// dropped and counted.
const MOST: usize = 1 << 13;

/// A frame in transit: the time of its next event, a serial number that orders events at the same
/// time, its slot, and its ticket if `onward` must be called then.
type UnderWay = (Nanos, u64, u32, Option<u32>);

/// All frames in transit on one side.
struct InTransit {
    network: Box<dyn Network>,
    pool: Pool,
    under_way: BinaryHeap<Reverse<UnderWay>>,
    serial: u64,
    /// Frames that have arrived, in order.
    arrived: VecDeque<u32>,
    refused: u64,
}

impl InTransit {
    fn new(network: Box<dyn Network>) -> InTransit {
        let (under_way, arrived) = (BinaryHeap::new(), VecDeque::with_capacity(BATCH));
        InTransit { network, pool: Pool::new(MOST, MOST), under_way, serial: 0, arrived, refused: 0 }
    }

    /// Copies a frame from the loop's pool; its transit begins at `at`.
    fn launch(&mut self, at: Nanos, pool: &Pool, frame: u32) {
        let Some(copy) = self.pool.take_large() else {
            self.refused += 1;
            return;
        };
        if self.pool.copy_from(copy, pool, frame) {
            let ticket = self.network.enter(pool.head(frame));
            self.proceed(copy, Onward::Meets(at, ticket));
        } else {
            self.pool.free(copy);
            self.refused += 1;
        }
    }

    fn proceed(&mut self, frame: u32, progress: Onward) {
        let (at, ticket) = match progress {
            Onward::Arrives(at) => (at, None),
            Onward::Meets(at, ticket) => (at, Some(ticket)),
            Onward::Lost => return self.pool.free(frame),
        };
        self.under_way.push(Reverse((at, self.serial, frame, ticket)));
        self.serial += 1;
    }

    /// Handles all events up to and including `now`, in order of time.
    fn advance(&mut self, now: Nanos) {
        while let Some(Reverse((at, _, frame, ticket))) =
            self.under_way.peek().copied().filter(|Reverse((at, ..))| *at <= now)
        {
            self.under_way.pop();
            match ticket {
                None => self.arrived.push_back(frame),
                Some(ticket) => {
                    let progress = self.network.onward(at, ticket, self.pool.len(frame));
                    self.proceed(frame, progress);
                }
            }
        }
    }

    /// The time of the next event.
    fn next(&self) -> Option<Nanos> {
        self.under_way.peek().map(|Reverse((at, ..))| *at)
    }
}

/// An edge with emulated links before and behind it.
pub struct Networked<E> {
    edge: E,
    before: Option<InTransit>,
    behind: Option<InTransit>,
    /// Frames of the current call; a field only to reuse its memory.
    batch: Vec<u32>,
}

impl<E: Edge> Networked<E> {
    /// Frames that come in pass `before`, frames that are sent pass `behind`. `None`: no links on
    /// that side.
    pub fn new(edge: E, before: Option<Box<dyn Network>>, behind: Option<Box<dyn Network>>) -> Networked<E> {
        Networked {
            edge,
            before: before.map(InTransit::new),
            behind: behind.map(InTransit::new),
            batch: Vec::with_capacity(BATCH),
        }
    }

    /// Sends the frames that have arrived behind the edge by now.
    fn flush(&mut self) -> Result<(), Error> {
        let Some(behind) = &mut self.behind else { return Ok(()) };
        loop {
            behind.advance(self.edge.now());
            self.batch.clear();
            self.batch.extend(behind.arrived.iter().take(BATCH));
            if self.batch.is_empty() {
                return Ok(());
            }
            let sent = self.edge.send(&mut behind.pool, &self.batch, &[])?;
            for handle in behind.arrived.drain(..sent.done) {
                behind.pool.free(handle);
            }
            if sent.blocked.is_some() {
                return Ok(());
            }
        }
    }
}

impl<E: Edge> Edge for Networked<E> {
    fn now(&mut self) -> Nanos {
        self.edge.now()
    }

    fn seen_late(&self) -> Nanos {
        self.edge.seen_late()
    }

    fn pool(&mut self, heads: usize, bodies: usize) -> Pool {
        self.edge.pool(heads, bodies)
    }

    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<u32>) -> Result<bool, Error> {
        self.flush()?;
        let Some(before) = &mut self.before else { return self.edge.receive(pool, out) };
        self.batch.clear();
        let had_room = self.edge.receive(pool, &mut self.batch)?;
        let now = self.edge.now();
        for frame in self.batch.drain(..) {
            before.launch(now, pool, frame);
            pool.free(frame);
        }
        before.advance(now);
        while out.len() < BATCH
            && let Some(frame) = before.arrived.front().copied()
        {
            let slot = if before.pool.len(frame) <= HEAD_ROOM { pool.take() } else { pool.take_large() };
            let Some(slot) = slot else { return Ok(false) };
            pool.copy_from(slot, &before.pool, frame);
            before.arrived.pop_front();
            before.pool.free(frame);
            out.push(slot);
        }
        Ok(had_room)
    }

    fn send(&mut self, pool: &mut Pool, frames: &[u32], ends: &[Nanos]) -> Result<Sent, Error> {
        let Some(behind) = &mut self.behind else { return self.edge.send(pool, frames, ends) };
        if ends.is_empty() {
            let now = self.edge.now();
            frames.iter().for_each(|frame| behind.launch(now, pool, *frame));
        } else {
            frames.iter().zip(ends).for_each(|(frame, end)| behind.launch(*end, pool, *frame));
        }
        self.flush()?;
        Ok(Sent { done: frames.len(), blocked: None })
    }

    fn segments(&self, whole: &Super) -> bool {
        self.edge.segments(whole)
    }

    fn refuse(&mut self, handle: u32) {
        self.edge.refuse(handle);
    }

    fn wait(&mut self, deadline: Option<Nanos>, want: Want) -> Result<Woken, Error> {
        if self.before.is_none() && self.behind.is_none() {
            return self.edge.wait(deadline, want);
        }
        self.flush()?;
        loop {
            let held = self.behind.as_ref().is_some_and(|behind| !behind.arrived.is_empty());
            let behind = match held {
                false => self.behind.as_ref().and_then(InTransit::next),
                // The device is full: the next try is when it reports room, or after 50 µs.
                true => Some(self.edge.now() + 50_000),
            };
            let before = self.before.as_ref().filter(|_| want.frames);
            // If frames have arrived already, the wait ends at once.
            let before = before.and_then(|before| if before.arrived.is_empty() { before.next() } else { Some(0) });
            let first = [deadline, behind, before].into_iter().flatten().min();
            let mut woken = self.edge.wait(first, Want { room: want.room || held, ..want })?;
            self.flush()?;
            let now = self.edge.now();
            if let Some(before) = self.before.as_mut().filter(|_| want.frames) {
                before.advance(now);
                woken.frames |= !before.arrived.is_empty();
            }
            if woken.frames || woken.stop || deadline.is_some_and(|at| now >= at) {
                return Ok(woken);
            }
        }
    }

    fn stopped(&mut self) -> bool {
        self.edge.stopped()
    }

    fn counters(&mut self) -> EdgeCounters {
        let mut counters = self.edge.counters();
        counters.refused += self.behind.as_ref().map_or(0, |behind| behind.refused);
        counters.missed += self.before.as_ref().map_or(0, |before| before.refused);
        counters
    }
}

#[cfg(test)]
mod tests {
    use altq_dataplane::channel::{Channel, Timed};
    use altq_dataplane::vnet::Vnet;

    use super::*;

    fn frame(at: Nanos, number: u8) -> Timed {
        // An Ethernet frame of unknown type, so that no checksum is expected in it.
        let mut bytes = vec![0; 60];
        (bytes[12], bytes[13], bytes[59]) = (0x88, 0xb5, number);
        Timed { at, bytes, vnet: Vnet::default() }
    }

    /// A network whose function decides by time, length and number of a frame when the frame
    /// arrives.
    struct By<F>(F);

    impl<F: FnMut(Nanos, usize, u32) -> Option<Nanos> + Send> Network for By<F> {
        fn enter(&mut self, head: &[u8]) -> u32 {
            u32::from(head[59])
        }

        fn onward(&mut self, now: Nanos, ticket: u32, len: usize) -> Onward {
            (self.0)(now, len, ticket).map_or(Onward::Lost, Onward::Arrives)
        }
    }

    fn by(behind: impl FnMut(Nanos, usize, u32) -> Option<Nanos> + Send + 'static) -> Option<Box<dyn Network>> {
        Some(Box::new(By(behind)))
    }

    /// Passes frames through an edge with these networks. Returns the times and numbers of the
    /// frames that come out.
    fn pass(
        before: Option<Box<dyn Network>>,
        behind: Option<Box<dyn Network>>,
        frames: &[(Nanos, u8)],
    ) -> Vec<(Nanos, u8)> {
        let mut channel = Channel::new(1_000_000);
        frames.iter().for_each(|(at, number)| channel.arrive(frame(*at, *number)));
        let mut edge = Networked::new(channel, before, behind);
        let mut pool = Pool::new(256, 256);
        let mut here = Vec::new();
        while !edge.stopped() {
            edge.receive(&mut pool, &mut here).unwrap();
            let sent = edge.send(&mut pool, &here, &[]).unwrap();
            here.drain(..sent.done).for_each(|handle| pool.free(handle));
            edge.wait(None, Want { frames: true, room: false }).unwrap();
        }
        assert_eq!(pool.free_heads(), 256, "all slots are free again");
        edge.edge.departed().iter().map(|frame| (frame.at, frame.bytes[59])).collect()
    }

    #[test]
    fn frames_come_out_when_they_arrive() {
        let frames = [(0, 1), (100, 2), (50_000, 3)];
        let out = pass(None, by(|at, _, _| Some(at + 20_000)), &frames);
        assert_eq!(out, [(20_000, 1), (20_100, 2), (70_000, 3)]);
        // The same before the loop instead of behind it, and then on both sides.
        let out = pass(by(|at, _, _| Some(at + 20_000)), None, &frames);
        assert_eq!(out, [(20_000, 1), (20_100, 2), (70_000, 3)]);
        let out = pass(by(|at, _, _| Some(at + 20_000)), by(|at, _, _| Some(at + 1_000)), &frames);
        assert_eq!(out, [(21_000, 1), (21_100, 2), (71_000, 3)]);
    }

    #[test]
    fn some_are_lost_and_some_pass_others() {
        let behind = |at: Nanos, bytes: usize, number: u32| {
            assert_eq!(bytes, 60);
            match number {
                1 => Some(at + 30_000),
                2 => None,
                _ => Some(at + 1_000),
            }
        };
        let frames = [(0, 1), (10, 2), (20, 3)];
        assert_eq!(pass(None, by(behind), &frames), [(1_020, 3), (30_000, 1)]);
        assert_eq!(pass(by(behind), None, &frames), [(1_020, 3), (30_000, 1)]);
    }

    /// Odd frames have a long way to a wire on which a frame takes 5 µs, even frames a short one.
    struct Wire(Nanos);

    /// Added to the ticket of a frame that has reached the wire.
    const THERE: u32 = 256;

    impl Network for Wire {
        fn enter(&mut self, head: &[u8]) -> u32 {
            u32::from(head[59])
        }

        fn onward(&mut self, now: Nanos, ticket: u32, len: usize) -> Onward {
            assert_eq!(len, 60);
            match ticket {
                0..THERE => Onward::Meets(now + if ticket % 2 == 1 { 10_000 } else { 1_000 }, ticket + THERE),
                _ if ticket == THERE + 5 => Onward::Lost,
                _ => {
                    self.0 = self.0.max(now) + 5_000;
                    Onward::Arrives(self.0)
                }
            }
        }
    }

    #[test]
    fn who_comes_first_is_served_first() {
        // Frame 1 reaches the wire at 10 µs, 2 at 7, 3 at 16, 4 at 8 and 5 at 19. The wire sends 2
        // until 12 µs, 4 until 17, 1 until 22 and so on.
        let frames = [(0, 1), (6_000, 2), (6_000, 3), (7_000, 4), (9_000, 5)];
        let out = [(12_000, 2), (17_000, 4), (22_000, 1), (27_000, 3)];
        assert_eq!(pass(None, Some(Box::new(Wire(0))), &frames), out);
        assert_eq!(pass(Some(Box::new(Wire(0))), None, &frames), out);
    }
}
