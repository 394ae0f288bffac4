//! One direction of a bridge by AF_XDP: a frame stays where the kernel has put it until it has
//! left.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use altq_engine::shape::pacer::SEEN_LATE;
use altq_engine::units::Nanos;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::super::edge::RETRY;
use super::super::ends::Ends;
use crate::edge::{BATCH, Blocked, Edge, EdgeCounters, Sent, Want, Woken};
use crate::error::Error;
use crate::lock::Lock;
use crate::partial::complete;
use crate::pool::{HEAD, Pool};
use crate::stop::Stop;
use crate::sys::interface::Interface;
use crate::sys::mapping::Part;
use crate::sys::wait::{now, wait};
use crate::sys::xsk::{Descriptor, Incoming, Outgoing, QUEUES};

/// Bytes of an Ethernet header, and of one with a VLAN tag.
const ETHERNET: usize = 14;
const TAGGED: usize = 18;

/// What is held while a direction runs: descriptors of the program that hands frames over, of its
/// map of sockets and of promiscuous mode, and the lock of the direction.
pub(super) type Held = ([OwnedFd; 3], Lock);

/// One direction of a bridge.
///
/// Each direction has its own rings and slots: it receives from the queues of one interface and
/// sends by a queue of the other. So each ring is used by one thread only, and this process copies
/// no frame.
pub struct RingWay {
    ends: Ends,
    incoming: Vec<Incoming>,
    /// For each queue, how many slots it has: empty ones, and ones with a frame that was not
    /// received yet.
    with_queue: Vec<u32>,
    /// The queue from which to receive first; it changes in turn.
    first: usize,
    outgoing: Outgoing,
    /// How many of the first frames that the loop wants to send are already in the send ring, but
    /// not yet taken by the device.
    offered: usize,
    /// The pool over this direction's slots, until the loop takes it.
    pool: Option<Pool>,
    /// Where the slots begin in the shared memory, in bytes.
    base: u64,
    /// The longest frame that the outgoing interface can send, in bytes.
    longest: usize,
    zero_copy: bool,
    stop: Stop,
    counters: EdgeCounters,
    /// How many frames the device had dropped before the start.
    dropped_before: u64,
    spin: Nanos,
    _held: Option<Held>,
}

impl RingWay {
    /// The direction from the queues of `from` to a queue of `to`. Its slots are `slots`; the
    /// queues get some of them for incoming frames.
    ///
    /// # Errors
    /// [`Error::Interface`]: it is down or gone.
    pub(super) fn new(
        (from, to): (Interface, Interface),
        (incoming, outgoing): (Vec<Incoming>, Outgoing),
        slots: Part,
        zero_copy: bool,
        (stop, spin): (Stop, Nanos),
    ) -> Result<RingWay, Error> {
        let dropped_before = to.dropped_on_sending().unwrap_or(0);
        let longest = longest(&to).unwrap_or(usize::MAX);
        let base = slots.offset() as u64;
        let mut pool = Pool::shared(slots);
        let mut way = RingWay {
            ends: Ends::new(from, to),
            with_queue: vec![0; incoming.len()],
            incoming,
            first: 0,
            outgoing,
            offered: 0,
            base,
            pool: None,
            longest,
            zero_copy,
            stop,
            counters: EdgeCounters::default(),
            dropped_before,
            spin,
            _held: None,
        };
        way.refill(&mut pool)?;
        way.pool = Some(pool);
        Ok(way)
    }

    /// The signal that ends its loop, and wakes it.
    pub(in super::super) fn stopper(&self) -> Stop {
        self.stop.clone()
    }

    /// The interface at which frames come in.
    pub(super) fn input(&self) -> &Interface {
        &self.ends.from
    }

    /// The sockets of its queues, in order.
    pub(super) fn sockets(&self) -> impl ExactSizeIterator<Item = BorrowedFd<'_>> {
        self.incoming.iter().map(|queue| queue.socket.as_fd())
    }

    /// Takes over what must be held while the direction runs.
    pub(super) fn hold(&mut self, held: Held) {
        self._held = Some(held);
    }

    /// The slot at an address in the shared memory: its handle, and the offset in it. `None` for an
    /// address that does not belong to this direction.
    fn slot(&self, pool: &Pool, address: u64) -> Option<(u32, usize)> {
        let at = usize::try_from(address.checked_sub(self.base)?).ok()?;
        let handle = at / HEAD;
        (handle < pool.heads()).then_some((handle as u32, at % HEAD))
    }

    /// Takes back the slots of frames that the device has sent.
    fn take_back(&mut self, pool: &mut Pool) {
        while let Some(address) = self.outgoing.done.pop() {
            if let Some((handle, _)) = self.slot(pool, address) {
                pool.give_back(handle);
            }
        }
        self.outgoing.done.release();
    }

    /// Takes an incoming frame.
    fn arrive(&mut self, pool: &mut Pool, frame: Descriptor, out: &mut Vec<u32>) {
        let len = frame.len as usize;
        self.counters.received += 1;
        self.counters.received_bytes += len as u64;
        let Some((handle, start)) = self.slot(pool, frame.addr) else {
            self.counters.unreadable += 1;
            return;
        };
        if len < ETHERNET || !pool.place(handle, start, len) {
            self.counters.unreadable += 1;
            pool.free(handle);
        } else if len > self.longest {
            // The kernel does not check the length when it sends from here.
            self.counters.refused += 1;
            pool.free(handle);
        } else {
            complete(pool.head_mut(handle));
            out.push(handle);
        }
    }

    /// Gives the queues empty slots. False if a queue has none left.
    fn refill(&mut self, pool: &mut Pool) -> Result<bool, Error> {
        let mut all = true;
        for (queue, with_queue) in self.incoming.iter_mut().zip(&mut self.with_queue) {
            let before = *with_queue;
            while *with_queue < queue.fill.size() {
                let Some(handle) = pool.take() else { break };
                if !queue.fill.push(self.base + u64::from(handle) * HEAD as u64) {
                    pool.free(handle);
                    break;
                }
                *with_queue += 1;
            }
            if *with_queue > before {
                queue.fill.publish();
                match queue.wake().map_err(|error| (error.raw_os_error(), error)) {
                    Ok(()) | Err((Some(libc::EAGAIN | libc::EBUSY | libc::EINTR | libc::ENOBUFS), _)) => {}
                    // `wait` reports it.
                    Err((Some(libc::EOPNOTSUPP), _)) => {}
                    // The slots are in the ring. The device takes them when it is up again.
                    Err((Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV), _)) => _ = self.ends.down()?,
                    Err((_, error)) => return Err(Error::of("receiving by AF_XDP", error)),
                }
            }
            all &= *with_queue > 0;
        }
        Ok(all)
    }

    /// Makes the kernel take frames from the send ring, as many as it can. Returns when to try
    /// again if the interface is down.
    fn hand_over(&mut self) -> Result<Option<Nanos>, Error> {
        let mut left = self.outgoing.frames.pending();
        // A driver with zero-copy takes frames by itself, and indicates if it must be woken.
        // Otherwise the kernel takes some frames with each call.
        while left > 0 && (!self.zero_copy || self.outgoing.frames.needs_wakeup()) {
            match self.outgoing.wake() {
                // EBUSY: the device dropped one, which its own statistics count.
                Ok(()) | Err(Errno::AGAIN | Errno::BUSY | Errno::INTR | Errno::NOBUFS | Errno::NOMEM) => {}
                Err(Errno::NETDOWN | Errno::NXIO | Errno::NODEV) => return self.ends.down().map(Some),
                Err(error) => return Err(Error::of("sending by AF_XDP", error.into())),
            }
            let still = self.outgoing.frames.pending();
            if still >= left {
                break;
            }
            left = still;
        }
        Ok(None)
    }

    /// At intervals, checks whether the interfaces still carry frames, and up to which length.
    fn look_if_due(&mut self, now: Nanos) -> Result<(), Error> {
        if self.ends.look_if_due(now)?
            && let Some(longest) = longest(&self.ends.to)
        {
            self.longest = longest;
        }
        Ok(())
    }
}

/// The longest frame that an interface sends, as `is_skb_forwardable` of net/core/dev.c counts it:
/// with one VLAN tag. `None` if it is gone.
fn longest(interface: &Interface) -> Option<usize> {
    interface.mtu().ok().map(|mtu| mtu as usize + TAGGED)
}

impl Edge for RingWay {
    fn now(&mut self) -> Nanos {
        now()
    }

    fn seen_late(&self) -> Nanos {
        SEEN_LATE
    }

    fn pool(&mut self, _: usize, _: usize) -> Pool {
        // If it is called a second time, the pool is empty.
        self.pool.take().unwrap_or_else(|| Pool::new(0, 0))
    }

    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<u32>) -> Result<bool, Error> {
        self.take_back(pool);
        let (before, queues) = (out.len(), self.incoming.len());
        for turn in 0..queues {
            let at = (self.first + turn) % queues;
            while out.len() - before < BATCH
                && let Some(frame) = self.incoming[at].frames.pop()
            {
                self.with_queue[at] = self.with_queue[at].saturating_sub(1);
                self.arrive(pool, frame, out);
            }
            self.incoming[at].frames.release();
        }
        self.first = (self.first + 1) % queues.max(1);
        self.refill(pool)
    }

    fn send(&mut self, pool: &mut Pool, frames: &[u32], _: &[Nanos]) -> Result<Sent, Error> {
        self.take_back(pool);
        if !self.ends.carrier {
            self.look_if_due(now())?;
        }
        if !self.ends.carrier {
            // The kernel takes frames all the same, and drops them.
            self.counters.blocked += 1;
            return Ok(Sent { done: 0, blocked: Some(Blocked::Until(self.ends.look_at())) });
        }
        while let Some(handle) = frames.get(self.offered) {
            let (at, len) = pool.span(*handle);
            let frame = Descriptor { addr: self.base + at as u64, len: len as u32, options: 0 };
            if !self.outgoing.frames.push(frame) {
                break;
            }
            pool.lend(*handle);
            self.offered += 1;
        }
        self.outgoing.frames.publish();
        let down = self.hand_over()?;
        // The loop keeps frames that the kernel has not taken yet, and offers them again, so that
        // the backlog stays in the queues. A driver with zero-copy takes everything in the ring.
        let left = if self.zero_copy { 0 } else { self.outgoing.frames.pending() as usize };
        let done = self.offered.saturating_sub(left);
        self.offered -= done;
        self.counters.sent += done as u64;
        if done == frames.len() {
            return Ok(Sent { done, blocked: None });
        }
        self.counters.blocked += 1;
        let now = now();
        self.look_if_due(now)?;
        Ok(Sent { done, blocked: Some(Blocked::Until(down.unwrap_or(now + RETRY))) })
    }

    fn wait(&mut self, deadline: Option<Nanos>, want: Want) -> Result<Woken, Error> {
        let now = now();
        self.look_if_due(now)?;
        if self.zero_copy {
            self.hand_over()?;
        }
        let (count, until) = (self.incoming.len().min(QUEUES), deadline.unwrap_or(Nanos::MAX).min(self.ends.look_at()));
        let frames = if want.frames { PollFlags::IN } else { PollFlags::empty() };
        let mut watched: [PollFd<'_>; QUEUES + 1] = std::array::from_fn(|at| match self.incoming.get(at) {
            Some(queue) if at < count => PollFd::from_borrowed_fd(queue.socket.as_fd(), frames),
            _ => PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
        });
        wait(&mut watched[..=count], now, until, self.spin)?;
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let stop = is_ready(&watched[count]) && self.stop.ends();
        Ok(Woken { frames: watched[..count].iter().any(is_ready), stop })
    }

    fn stopped(&mut self) -> bool {
        self.stop.is_set()
    }

    fn counters(&mut self) -> EdgeCounters {
        let lost = self.incoming.iter().map(|queue| queue.lost(self.zero_copy));
        let (missed, too_long) = lost.fold((0_u64, 0_u64), |sum, one| (sum.0 + one.missed, sum.1 + one.too_long));
        self.counters.missed = missed;
        if let Some(dropped) = self.ends.to.dropped_on_sending() {
            self.counters.lost = dropped.saturating_sub(self.dropped_before);
        }
        EdgeCounters { unreadable: self.counters.unreadable + too_long, ..self.counters }
    }
}

#[cfg(test)]
mod tests;
