//! From link to link: when a packet that has left a link arrives, and which hosts it passes without
//! an event.
//!
//! If all packets of a plain FIFO come from one link that keeps their order, they enter the FIFO in
//! the order in which they leave that link, and nothing else has a say in when they leave the FIFO.
//! So that time is known as soon as they leave the link before, and the host between needs no
//! event. Of two packets that arrive at one instant, the one that was sent on first, by the last
//! host that had an event for it, is first (docs/cases.md).

use altq_cases::case::Tunnel;
use altq_engine::units::Nanos;

use super::Handled;
use super::events::{Event, Events, Rank};
use super::fifo::Fate;
use super::port::Port;
use super::world::{NO_PORT, World};

impl World<'_> {
    /// Finds the ports into whose FIFOs packets pass without an event.
    pub(super) fn join_ports(&mut self) {
        // By port, the one before it on the ways of flows; `NO_PORT`: its packets are made at its
        // host.
        let mut before: Vec<Option<u32>> = vec![None; self.ports.len()];
        let mut several = vec![false; self.ports.len()];
        let mut last = NO_PORT;
        for at in &self.hops {
            if let Some(known) = before.get_mut(*at as usize) {
                several[*at as usize] |= *known.get_or_insert(last) != last;
            }
            last = *at;
        }
        for at in 0..self.ports.len() {
            let only = before[at].filter(|_| !several[at]);
            let in_order = only.and_then(|only| self.ports.get(only as usize)).is_some_and(|only| only.in_order);
            let port = &mut self.ports[at];
            // A loss counts when the packet enters the link, so it needs an event then.
            port.joined = in_order && port.fifo.is_some() && port.flight.is_lossless();
        }
    }

    /// Puts a packet into the FIFO of a port. `None` if the port has an engine.
    #[inline(always)]
    pub(super) fn pass(&mut self, now: Nanos, at: usize, packet: u32) -> Option<Fate> {
        let port = &mut self.ports[at];
        let fifo = port.fifo.as_mut()?;
        let travelling = &self.packets[packet as usize];
        let mut len = travelling.len;
        if port.tunnel.is_some() && self.streams[travelling.stream as usize].ends[0].key.family == 6 {
            len += Tunnel::HEADER * u32::from(travelling.segments);
        }
        let charged = port.wire.bytes_of(len, travelling.segments);
        Some(fifo.take(now, len, charged, &mut port.wire))
    }

    /// The last bit of a packet leaves a port at `end`: sets when it arrives at the far end of the
    /// port, or of the [joined](World::join_ports) ports behind it, if that is before the end of
    /// the run.
    #[inline(always)]
    pub(super) fn launch(&mut self, mut end: Nanos, mut at: usize, packet: u32) -> Handled {
        let until = self.case.duration;
        loop {
            let port = &mut self.ports[at];
            let Some(arrival) = port.flight.launch(end) else {
                self.lost(end, packet);
                return Ok(());
            };
            let handled = arrival.saturating_add(port.handling);
            let travelling = &mut self.packets[packet as usize];
            let next = self.hops[travelling.hop as usize] as usize;
            if self.ports.get(next).is_none_or(|next| !next.joined) {
                if arrival < until {
                    add_arrival(&mut self.ports[at], &mut self.events, at, packet, arrival);
                }
                return Ok(());
            }
            if handled >= until {
                return Ok(());
            }
            travelling.hop += 1;
            match self.pass(handled, next, packet) {
                Some(Fate::Leaves(later)) => (end, at) = (later, next),
                Some(Fate::BeyondTime(error)) => return Err(error.into()),
                Some(Fate::Full) | None => {
                    self.schedule(handled, Rank::Arrival, Event::Refused(packet));
                    return Ok(());
                }
            }
        }
    }
}

/// Adds the arrival of a packet at the far end of a port.
#[inline(always)]
fn add_arrival(port: &mut Port, events: &mut Events, at: usize, packet: u32, arrival: Nanos) {
    if !port.in_order {
        events.push(arrival, Rank::Arrival, Event::ArriveUnordered(packet));
        return;
    }
    let number = events.number();
    if port.flying {
        port.line.push_back((arrival, number, packet));
    } else {
        port.flying = true;
        let line = *port.numbered.get_or_insert_with(|| events.add_line(at as u32));
        events.push_first(line, packet, arrival, number);
    }
}
