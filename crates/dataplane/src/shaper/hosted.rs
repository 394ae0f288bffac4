//! The loop before a transmitter of its own: what was due happens at its time.
//!
//! The engine is asked when a packet has arrived, when one has left the wire, and when a timer
//! fires, as in the simulator, and at no other turn of the loop. A loop wakes up late; but ends of
//! packets are known ahead, so what was due before this turn happens at its own time and in its
//! order, before anything that came meanwhile. So a ring of one packet keeps the link's rate
//! however late the loop is, as long as packets wait: what can be made good is bounded by what
//! waited. What has come meanwhile comes now.

use altq_engine::Departure;
use altq_engine::headers::Key;
use altq_engine::packet::Packet;
use altq_engine::spec::{ClassId, Timer};
use altq_engine::units::{Nanos, Rate};

use super::{Next, Shaper, octet_of};
use crate::edge::{BATCH, Blocked, Edge, Want};
use crate::error::Error;
use crate::host::Host;
use crate::remark::remark;

/// A host, and what the loop keeps of it.
pub(super) struct Hosted {
    host: Host,
    /// When the timer that is set fires.
    wakeup: Option<Nanos>,
    /// When the last bit of each packet in `leaving` will have left.
    ends: Vec<Nanos>,
    /// By class: bytes on the wire of what it sent itself.
    pub(super) wire: Vec<u64>,
}

impl Hosted {
    pub(super) fn new(host: Host, classes: usize) -> Hosted {
        Hosted { host, wakeup: None, ends: Vec::with_capacity(BATCH), wire: vec![0; classes] }
    }

    pub(super) fn set_rate(&mut self, rate: Rate) {
        self.host.transmitter.set_rate(rate);
    }

    /// Tells the program that sent a packet, if one on this host did, what became of it. True if
    /// one did.
    fn tell(&self, key: &Key, refused: bool) -> bool {
        let program = self.host.programs.iter().find(|program| program.sent(key));
        program.inspect(|program| program.ear.tell(refused)).is_some()
    }

    /// The first time at or after `at` at which a timer can fire.
    fn round_up(&self, at: Nanos) -> Option<Nanos> {
        match self.host.timer {
            Timer::Exact => Some(at),
            Timer::Tick(tick) => at.checked_next_multiple_of(tick),
        }
    }
}

impl<E: Edge> Shaper<E> {
    /// All that was due by now. At equal times packets leave before timers fire.
    pub(super) fn advance(&mut self, now: Nanos) {
        while let Some(hosted) = &mut self.hosted {
            let end = hosted.host.transmitter.next_end().filter(|at| *at <= now);
            let timer = hosted.wakeup.filter(|at| *at <= now);
            match (end, timer) {
                (Some(end), timer) if timer.is_none_or(|timer| end <= timer) => {
                    hosted.host.transmitter.complete();
                    self.ask(end);
                }
                (_, Some(timer)) => {
                    hosted.wakeup = None;
                    self.ask(timer);
                }
                (_, None) => return,
            }
        }
    }

    /// A turn of the loop, after [`advance`](Shaper::advance) to the same time.
    pub(super) fn turn_on_host(&mut self, now: Nanos, frames: bool) -> Result<Next, Error> {
        if frames || self.starved {
            self.starved = !self.edge.receive(&mut self.pool, &mut self.arrived)?;
        }
        let full_batch = self.arrived.len() >= BATCH;
        for at in 0..self.arrived.len() {
            self.admit(now, self.arrived[at]);
            if !std::mem::take(&mut self.silent) {
                self.ask(now);
            }
        }
        self.arrived.clear();
        let Some(hosted) = &mut self.hosted else { return Ok(Next::Again) };
        while !self.leaving.is_empty() {
            let sent = self.edge.send_at(&mut self.pool, &self.leaving, &hosted.ends)?;
            for handle in self.leaving.drain(..sent.done) {
                self.pool.free(handle);
            }
            hosted.ends.drain(..sent.done);
            self.blocked = sent.blocked;
            if sent.blocked.is_some() {
                break;
            }
        }
        if full_batch {
            return Ok(Next::Again);
        }
        // Somebody is waiting for the wire, or for time to pass. With neither, what ends meanwhile
        // can be seen later.
        let waiting = self.engine.next_wakeup().is_some();
        let end = hosted.host.transmitter.next_end().filter(|_| waiting);
        let again = match self.blocked {
            Some(Blocked::Until(at)) if !self.leaving.is_empty() => Some(at),
            _ => None,
        };
        let deadline = [end, hosted.wakeup, again, self.next_snapshot].into_iter().flatten().min();
        if deadline.is_some_and(|at| at <= now) {
            return Ok(Next::Again);
        }
        let room = !self.leaving.is_empty() && self.blocked == Some(Blocked::Full);
        Ok(Next::Wait(deadline, Want { frames: !self.starved, room }))
    }

    /// A packet has been put into a queue, or dropped there: whoever sent it from this host hears
    /// of it. A drop there does not make the scheduler run.
    pub(super) fn told(&mut self, key: &Key, refused: bool) {
        if let Some(hosted) = &self.hosted {
            self.silent = hosted.tell(key, refused) && refused;
        }
    }

    /// Takes from the engine what there is room for at a time. Without a host there is nothing to
    /// do.
    pub(super) fn ask(&mut self, now: Nanos) {
        if self.hosted.is_none() {
            return;
        }
        while let Some(hosted) = &mut self.hosted {
            if !hosted.host.transmitter.has_room() {
                hosted.wakeup = None;
                break;
            }
            let Some(Departure { class, packet }) = self.engine.dequeue(now) else {
                hosted.host.transmitter.rest();
                hosted.wakeup = self.engine.next_wakeup().and_then(|at| hosted.round_up(at.max(now + 1)));
                break;
            };
            match hosted.host.transmitter.take(now, &packet) {
                Some((end, bytes)) => {
                    if let Some(wire) = hosted.wire.get_mut(class as usize) {
                        *wire += u64::from(bytes);
                    }
                    hosted.ends.push(end);
                    self.depart(now, class, &packet);
                }
                // It would never leave.
                None => self.pool.free(packet.handle),
            }
        }
        if self.engine.has_drops() {
            for drop in self.engine.drops() {
                self.pool.free(drop.packet.handle);
            }
        }
    }

    /// A packet has come from the engine: how long it waited, its marks, and into the list of what
    /// leaves.
    #[inline]
    pub(super) fn depart(&mut self, now: Nanos, class: ClassId, packet: &Packet) {
        if let Some([recent, _]) = self.sojourn.get_mut(class as usize) {
            recent.add(now.saturating_sub(packet.arrived));
        }
        // A meter or a queue has marked it: the frame says so too.
        if self.octets.get(packet.handle as usize).is_some_and(|octet| *octet != octet_of(packet)) {
            remark(self.pool.head_mut(packet.handle), packet.dscp, packet.ecn);
        }
        self.leaving.push(packet.handle);
    }
}
