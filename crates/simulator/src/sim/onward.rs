//! From link to link: when a packet that has left a link arrives, and which hosts it passes without
//! an event.
//!
//! If all packets of a plain FIFO come from one link that keeps their order, they enter the FIFO in
//! the order in which they leave that link, and nothing else has a say in when they leave the FIFO.
//! So that time is known as soon as they leave the link before, and the host between needs no
//! event. Arrivals at one instant come in the order in which their events were made
//! (docs/reference/published-models.md 1): here that is when a packet entered the last link whose
//! host had an event for it, and not when it entered the FIFO.

use altq_cases::case::Tunnel;
use altq_engine::units::Nanos;

use super::Handled;
use super::events::{Event, Events, Rank};
use super::fifo::Fate;
use super::port::Port;
use super::stream::{Stream, Travelling};
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
        let joins = |(at, port): (usize, &Port)| {
            let only = before[at].filter(|_| !several[at]).and_then(|only| self.ports.get(only as usize));
            // A loss counts when the packet enters the link, so it needs an event then.
            only.is_some_and(|only| only.in_order) && port.fifo.is_some() && port.flight.is_lossless()
        };
        self.joined = self.ports.iter().enumerate().map(joins).collect();
    }

    /// The last bit of a packet leaves a port at `end`: sets when it arrives at the far end of the
    /// port, or of the [joined](World::join_ports) ports behind it, if that is before the end of
    /// the run.
    #[inline(always)]
    pub(super) fn launch(&mut self, mut end: Nanos, mut at: usize, packet: u32) -> Handled {
        let until = self.case.duration;
        let travelling = &mut self.packets[packet as usize];
        let mut port = &mut self.ports[at];
        loop {
            let Some(arrival) = port.flight.launch(end) else {
                self.lost(end, packet);
                return Ok(());
            };
            if arrival >= until {
                return Ok(());
            }
            let next = self.hops[travelling.hop as usize] as usize;
            if !self.joined.get(next).is_some_and(|joined| *joined) {
                add_arrival(port, &mut self.events, at, packet, arrival);
                return Ok(());
            }
            let handled = arrival.saturating_add(port.handling);
            if handled >= until {
                return Ok(());
            }
            travelling.hop += 1;
            (at, port) = (next, &mut self.ports[next]);
            match pass(port, &self.streams, handled, travelling) {
                Fate::Leaves(later) => end = later,
                Fate::Full => {
                    // It counts as dropped when it comes to the FIFO.
                    self.events.push(handled, Rank::Arrival, Event::Refused(packet));
                    return Ok(());
                }
                Fate::BeyondTime(error) => return Err(error.into()),
            }
        }
    }
}

/// Puts a packet into the FIFO of a port, which there must be.
#[inline(always)]
pub(super) fn pass(port: &mut Port, streams: &[Stream], now: Nanos, travelling: &Travelling) -> Fate {
    let Some(fifo) = &mut port.fifo else { return Fate::Full };
    let mut len = travelling.len;
    if port.tunnel.is_some() && streams[travelling.stream as usize].ends[0].key.family == 6 {
        len += Tunnel::HEADER * u32::from(travelling.segments);
    }
    let charged = port.wire.bytes_of(len, travelling.segments);
    fifo.take(now, len, charged, &mut port.wire)
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use altq_cases::case::Case;

    use super::super::limits::Limits;
    use super::*;

    /// Runs a case with and without joined ports. Returns how many ports are joined, how many
    /// packets were dropped, and the numbers of events.
    fn both(case: &Case, seed: u64) -> (usize, u64, [u64; 2]) {
        let column = &case.columns[0];
        let policy = column.load(case).unwrap();
        let captures: Vec<_> = case.flows.iter().map(|_| None).collect();
        let run = |joined: bool| {
            let mut world = World::new(case, column, &policy, &captures, seed, false).unwrap();
            let ports = world.joined.iter().filter(|joined| **joined).count();
            if !joined {
                world.joined.fill(false);
            }
            world.run(None, &Limits::default()).unwrap();
            let flows = || 0..case.flows.len() as u32;
            let of = |from, to, flow| world.flow_tally.sum(world.segments.window(from, to), &[flow]);
            let spans = [(0, case.warmup), (case.warmup, case.duration)];
            let cells = spans.map(|(from, to)| flows().map(|flow| of(from, to, flow)).collect::<Vec<_>>());
            let dropped = flows().map(|flow| of(0, case.duration, flow).dropped).sum();
            let classes: Vec<_> = world.ports.iter().map(|port| port.engine.all_counters()).collect();
            (format!("{cells:?} {classes:?}"), ports, dropped, world.events_run())
        };
        let (fast, ports, dropped, few) = run(true);
        let (slow, .., many) = run(false);
        assert_eq!(fast, slow);
        (ports, dropped, [few, many])
    }

    /// A chain of links to the hosts b and c, with a policy on its second link. The link `tail`
    /// comes before b.
    fn chain(tail: &str, delay: &str) -> Case {
        let text = format!(
            "name = 't'\ndescription = 'd'\nduration = '4s'\nwarmup = '1700ms'\n\
             policy = 'link wan {{ rate 10Mbit/s scheduler fifo class all {{ default }} }}'\n\
             hosts = [{{ name = 'a' }}, {{ name = 'x' }}, {{ name = 'y', delay = '{delay}' }}, {{ name = 'z' }}, \
             {{ name = 'b' }}, {{ name = 'c' }}]\n\
             links = [{{ name = 'ax', from = 'a', to = 'x', rate = '99Mbit/s', delay = '1001us' }}, \
             {{ name = 'wan', from = 'x', to = 'y', policy = 'wan', delay = '3007us', jitter = '211us' }}, \
             {{ name = 'yz', from = 'y', to = 'z', rate = '7301kbit/s', queue = '9packets', delay = '503us' }}, \
             {{ name = 'zb', from = 'z', to = 'b', {tail} }}, \
             {{ name = 'yc', from = 'y', to = 'c', rate = '31Mbit/s', delay = '707us' }}]\n\
             [[flows]]\nname = 'tcp'\nkind = 'tcp_bulk'\nfrom = 'a'\nto = 'b'\nstreams = 3\n\
             [[flows]]\nname = 'udp'\nkind = 'udp'\nfrom = 'a'\nto = 'c'\nsize = 333\nrate = '1531kbit/s'\n\
             [[flows]]\nname = 'rr'\nkind = 'udp_rr'\nfrom = 'a'\nto = 'b'\nrequest = 100\nresponse = 700\n"
        );
        Case::parse(&text, Path::new("t.toml")).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn packets_do_the_same_as_with_an_event_at_every_host() {
        // There, all packets of y-z and y-c come from x-y, and those of z-b from y-z. Back, all of
        // z-y come from b-z, and those of x-a from y-x. Those of y-x come from two links.
        let tails = [
            ("rate = '5Mbit/s', queue = '4500bytes', delay = '2ms'", 5),
            ("rate = '50Mbit/s', delay = '2ms', jitter = '3ms', keep_order = false", 4),
            ("rate = '50Mbit/s', reorder = '5%', reorder_delay = '9ms'", 4),
            ("rate = '50Mbit/s', loss = '1%'", 4),
        ];
        for (tail, joined) in tails {
            for (seed, delay) in [(1, "0s"), (2, "37us")] {
                let (ports, dropped, [few, many]) = both(&chain(tail, delay), seed);
                assert_eq!(ports, joined, "{tail}");
                assert!(dropped > 10 && few < many * 4 / 5, "{tail}: {dropped} dropped, {few} and {many} events");
            }
        }
    }
}
