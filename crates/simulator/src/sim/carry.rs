//! Moves packets from host to host: through routes, classes, queues, wires and media.

use std::net::Ipv6Addr;

use altq_cases::case::Tunnel;
use altq_cases::series::Passed;
use altq_engine::drive::{Step, Taken};
use altq_engine::headers::Key;
use altq_engine::spec::ClassId;
use altq_engine::units::Nanos;
use altq_engine::{Departure, Drop as Dropped, Packet};

use super::csma::Outcome;
use super::events::{Event, Rank};
use super::fifo::Fate;
use super::stream::{Load, Travelling};
use super::talk::{Parcel, high};
use super::world::{NO_PORT, World};
use super::{Handled, frame, onward, record_error};

/// The protocol number of IPv6 in IPv4 (RFC 4213 3.5).
const IPV6: u8 = 41;

impl World<'_> {
    /// Sends a packet from an end of a stream. True if the first port dropped it at once.
    pub(super) fn send(&mut self, now: Nanos, place: usize, end: usize, parcel: &Parcel) -> Handled<bool> {
        let stream = &self.streams[place];
        let (way, life, flow) = (stream.ends[end].way, stream.life, stream.flow as usize);
        // Built directly in its slot: copying a segment would take as long as the rest of this
        // function.
        let travelling = || Travelling {
            sent: now,
            stream: place as u32,
            life,
            len: parcel.len,
            segments: parcel.segments,
            hop: way + 1,
            end: end as u8,
            octet: parcel.octet,
            load: parcel.load,
        };
        let packet = match self.free_packets.pop() {
            Some(packet) => {
                self.packets[packet as usize] = travelling();
                packet
            }
            None => {
                self.packets.push(travelling());
                (self.packets.len() - 1) as u32
            }
        };
        if end == 0 {
            self.flow_tally.cell(self.segment, flow).sent += u64::from(parcel.segments);
            self.watches[flow].entered(now);
        }
        // Set-up has checked that there is a route, and hosts do not send to themselves.
        self.enter(now, self.hops[way as usize] as usize, packet)
    }

    /// Lets a host handle a packet: the host delivers it, or sends it on.
    pub(super) fn handle(&mut self, now: Nanos, packet: u32) -> Handled {
        self.handle_inline(now, packet)
    }

    /// The same, as part of the loop over events: most of these are arrivals at hosts that send the
    /// packet on through a plain FIFO.
    #[inline(always)]
    pub(super) fn handle_inline(&mut self, now: Nanos, packet: u32) -> Handled {
        let travelling = &mut self.packets[packet as usize];
        match self.hops[travelling.hop as usize] {
            NO_PORT => self.delivered(now, packet),
            port => {
                travelling.hop += 1;
                self.enter(now, port as usize, packet).map(|_| ())
            }
        }
    }

    /// The key by which a packet is classified.
    #[inline]
    fn key(&self, packet: u32) -> Key {
        let travelling = &self.packets[packet as usize];
        let stream = &self.streams[travelling.stream as usize];
        let key = &stream.ends[usize::from(travelling.end)].key;
        let (tos, length) = (travelling.octet, travelling.len);
        match &travelling.load {
            Load::Segment(segment) => {
                // Rules are about packets as they are on the wire, not about super-packets.
                let length = length.div_ceil(u32::from(travelling.segments.max(1)));
                Key { tos, tcp_flags: segment.flags.0, length, ..*key }
            }
            // RFC 792: an ICMP message has no ports.
            Load::Echo { .. } => Key { tos, length, ..*key },
            Load::Number(number) => match self.frame(stream.flow as usize, *number) {
                Some(frame) => Key { tos, ..frame.key },
                None => Key { tos, length, ..*key },
            },
        }
    }

    /// Whether the queue `two_level` serves a datagram or a captured packet first.
    #[inline(never)]
    fn is_high(&self, flow: usize, end: usize, number: u64) -> bool {
        match self.frame(flow, number) {
            Some(frame) => frame.high,
            None => end == 0 && self.case.flows.get(flow).is_some_and(|flow| flow.high),
        }
    }

    /// Puts a packet into a port. True if it was dropped there at once.
    #[inline(always)]
    fn enter(&mut self, now: Nanos, at: usize, packet: u32) -> Handled<bool> {
        let port = &mut self.ports[at];
        if port.fifo.is_none() {
            return self.enter_engine(now, at, packet);
        }
        match onward::pass(port, &self.streams, now, &self.packets[packet as usize]) {
            Fate::Leaves(end) => self.launch(end, at, packet).map(|()| false),
            Fate::Full => {
                self.flow_dropped(now, packet);
                Ok(true)
            }
            Fate::BeyondTime(error) => Err(error.into()),
        }
    }

    /// The part of [`enter`](World::enter) that is about a port with an engine.
    #[inline(never)]
    fn enter_engine(&mut self, now: Nanos, at: usize, packet: u32) -> Handled<bool> {
        let travelling = &self.packets[packet as usize];
        let (place, end) = (travelling.stream as usize, usize::from(travelling.end & 1));
        let (mut len, segments, octet) = (travelling.len, travelling.segments, travelling.octet);
        let stream = &self.streams[place];
        let (flow, own) = (stream.flow as usize, &stream.ends[end]);
        let (mut hash, mut hosts, mut sport) = (own.flow, own.hosts, own.key.sport);
        let (captured, high) = match &travelling.load {
            Load::Segment(segment) => (false, high(segment.flags, segment.len)),
            Load::Echo { .. } => (false, false),
            Load::Number(number) => (self.flows[flow].key.is_none(), self.is_high(flow, end, *number)),
        };
        let port = &self.ports[at];
        let class = match port.engine.class_without_rules() {
            // Nobody looks at the packet's key.
            Some(class) if port.tunnel.is_none() && !captured => class,
            _ => {
                let mut key = self.key(packet);
                if captured {
                    (hash, hosts) = (self.hash.flow(&key), self.hash.hosts(&key));
                    sport = key.sport;
                }
                let port = &mut self.ports[at];
                if let Some(tunnel) = port.tunnel.filter(|_| key.family == 6) {
                    key = encapsulate(tunnel, &key, port.back);
                    len += Tunnel::HEADER * u32::from(segments);
                    (hash, hosts) = (self.hash.flow(&key), self.hash.hosts(&key));
                    sport = key.sport;
                }
                port.engine.classify(&key)
            }
        };
        let (dscp, ecn) = (octet >> 2, octet & 3);
        let descriptor = Packet { flow: hash, hosts, sport, segments, dscp, ecn, high, ..Packet::new(packet, len) };
        let port = &mut self.ports[at];
        if let Some(governed) = &mut port.policy {
            if governed.collector.needs_counters(now) {
                governed.note_counters(now, &port.engine);
            }
            if let Some(row) = class.map(|class| governed.row(class)) {
                governed.collector.arrived(now, row, len);
                // Only packets from end 0 (the source of the flow) count, because answers and
                // acknowledgements may belong to other classes.
                if end == 0 && self.flows[flow].last != Some((at, row)) {
                    self.flows[flow].last = Some((at, row));
                    let seen = &mut self.flows[flow].classes;
                    if !seen.contains(&(at, row)) {
                        seen.push((at, row));
                    }
                }
            }
        }
        let queue = port.rings.as_ref().map_or(0, |rings| descriptor.flow as usize % rings.queues());
        // A class that does not exist makes the engine drop the packet, with the reason `no_class`.
        let engine = port.engine.of(queue);
        engine.enqueue(now, class.unwrap_or(ClassId::MAX), descriptor);
        let refused = engine.has_drops();
        // Often nothing follows from an arrival: the packet waits behind others.
        if !refused && self.series.is_none() && port.is_full() {
            port.wakeup = None;
            return Ok(false);
        }
        if self.series.is_some()
            && let Some(class) = class
            && let Some(row) = self.ports[at].policy.as_ref().map(|policy| policy.row(class))
            && let Some(series) = self.series_of(at, row)
        {
            series.arrived(now, at, row);
        }
        if refused && self.flows[flow].local {
            self.collect_drops(at);
            return Ok(true);
        }
        self.run_scheduler(now, at).map(|()| refused)
    }

    /// Frees the slot of a packet that is lost.
    fn gone(&mut self, now: Nanos, packet: u32) {
        let travelling = &self.packets[packet as usize];
        if travelling.end == 0 {
            self.watches[self.streams[travelling.stream as usize].flow as usize].left(now);
        }
        self.free_packets.push(packet);
    }

    /// Counts a lost packet for its flow, and frees its slot.
    pub(super) fn lost(&mut self, now: Nanos, packet: u32) {
        let travelling = &self.packets[packet as usize];
        if travelling.end == 0 {
            let flow = self.streams[travelling.stream as usize].flow as usize;
            self.flow_tally.cell(self.segment, flow).lost += u64::from(travelling.segments);
        }
        self.gone(now, packet);
    }

    /// Counts a packet that a queue dropped for its flow, and frees its slot.
    #[inline(never)]
    pub(super) fn flow_dropped(&mut self, now: Nanos, packet: u32) {
        let travelling = &self.packets[packet as usize];
        if travelling.end == 0 {
            let flow = self.streams[travelling.stream as usize].flow as usize;
            self.flow_tally.cell(self.segment, flow).dropped += u64::from(travelling.segments);
        }
        if let Some(series) = &mut self.series {
            let travelling = &self.packets[packet as usize];
            let flow = self.streams[travelling.stream as usize].flow;
            let bin = series.at(now);
            if travelling.end == 0
                && let Some(row) = series.flows.get_mut(flow as usize)
            {
                row.dropped(bin);
            }
        }
        self.lost(now, packet);
    }

    /// Lets a port's engine send all that may leave now.
    #[inline(never)]
    pub(super) fn run_scheduler(&mut self, now: Nanos, at: usize) -> Handled {
        let port = &mut self.ports[at];
        if port.fifo.is_some() {
            return Ok(());
        }
        if let Some(governed) = &mut port.policy
            && governed.collector.needs_counters(now)
        {
            governed.note_counters(now, &port.engine);
        }
        if port.is_full() {
            port.wakeup = None;
        } else {
            self.fill(now, at)?;
        }
        if self.ports[at].engine.has_drops() {
            self.collect_drops(at);
        }
        Ok(())
    }

    /// Counts what a port's engines have dropped.
    fn collect_drops(&mut self, at: usize) {
        let mut lost: Vec<Dropped> = std::mem::take(&mut self.lost);
        for engine in self.ports[at].engine.iter_mut().filter(|engine| engine.has_drops()) {
            lost.extend(engine.drops());
        }
        for drop in lost.drain(..) {
            let port = &mut self.ports[at];
            if let (Some(governed), Some(class)) = (&mut port.policy, drop.class) {
                let row = governed.row(class);
                governed.collector.dropped(drop.at, row, drop.packet.len);
                let cell = self.tallies[at].cell(self.segment, row as usize);
                cell.dropped += 1;
                cell.dropped_wait += u128::from(drop.at.saturating_sub(drop.packet.arrived));
                if let Some(series) = self.series_of(at, row) {
                    series.dropped(drop.at, at, row);
                }
            }
            self.count_wait(drop.packet.handle, drop.at.saturating_sub(drop.packet.arrived), false);
            self.flow_dropped(drop.at, drop.packet.handle);
        }
        self.lost = lost;
    }

    /// Counts for a flow how long its packet waited in a queue, and whether it was marked there.
    /// Only needed if an expectation or figure asks for that.
    #[inline(always)]
    fn count_wait(&mut self, packet: u32, waited: Nanos, marked: bool) {
        if !self.queues_of_flows {
            return;
        }
        let travelling = &self.packets[packet as usize];
        if travelling.end != 0 {
            return;
        }
        let flow = self.streams[travelling.stream as usize].flow as usize;
        let cell = self.flow_tally.cell(self.segment, flow);
        cell.waited += u128::from(waited) * u128::from(travelling.segments);
        cell.marked += u64::from(marked) * u64::from(travelling.segments);
    }

    /// Sets the port's timer to `wakeup`, unless it is set to that time already.
    #[inline(always)]
    fn set_timer(&mut self, at: usize, wakeup: Option<Nanos>) {
        let port = &mut self.ports[at];
        if wakeup != port.wakeup {
            port.wakeup = wakeup;
            if let Some(time) = wakeup {
                self.schedule(time, Rank::Timer, Event::Timer(at as u32));
            }
        }
    }

    /// Hands packets from a port's engine to its wire, its rings or its station, and sets the
    /// events that follow.
    #[inline(always)]
    fn fill(&mut self, now: Nanos, at: usize) -> Handled {
        if !self.ports[at].has_plain_wire() {
            return self.fill_others(now, at);
        }
        let wakeup = loop {
            match self.ports[at].step_wire(now)? {
                Step::Sent(departure, taken) => {
                    self.departed(now, at, &departure, taken)?;
                    // Most wires have room for one packet.
                    if !self.ports[at].wire.has_room() {
                        break None;
                    }
                }
                Step::Ended(filled) => break self.ports[at].wakeup_after(filled, now, 0),
            }
        };
        self.set_timer(at, wakeup);
        Ok(())
    }

    /// The part of [`fill`](World::fill) that is about rings and stations.
    #[inline(never)]
    fn fill_others(&mut self, now: Nanos, at: usize) -> Handled {
        let mut wakeup = None;
        for queue in 0..self.ports[at].queues() {
            let other = self.fill_queue(now, at, queue)?;
            wakeup = wakeup.into_iter().chain(other).min();
        }
        self.begin_transmission(now, at)?;
        self.set_timer(at, wakeup);
        Ok(())
    }

    /// The part of [`fill`](World::fill) that is about one transmit queue of rings, or about a
    /// station. Returns the time for which the port's timer must be set.
    fn fill_queue(&mut self, now: Nanos, at: usize, queue: usize) -> Handled<Option<Nanos>> {
        loop {
            match self.ports[at].step(now, queue)? {
                Step::Sent(departure, taken) => self.departed(now, at, &departure, taken)?,
                Step::Ended(filled) => return Ok(self.ports[at].wakeup_after(filled, now, queue)),
            }
        }
    }

    /// Counts a packet that has left the engine. If the end of its transmission is known already,
    /// sets the events for that end and for its arrival.
    #[inline(never)]
    fn departed(&mut self, now: Nanos, at: usize, departure: &Departure, taken: Taken) -> Handled {
        self.count_departure(now, at, departure, taken.bytes)?;
        if let Some(end) = taken.end {
            self.schedule(end, Rank::Complete, Event::Complete(at as u32));
            self.launch(end, at, departure.packet.handle)?;
        }
        Ok(())
    }

    /// Begins the next transmission from a card's rings or a station's ring, if none is under way.
    fn begin_transmission(&mut self, now: Nanos, at: usize) -> Handled {
        let port = &mut self.ports[at];
        if let Some(rings) = &mut port.rings {
            let before = rings.next_end();
            rings.start(now)?;
            if let Some(end) = rings.next_end().filter(|_| before.is_none()) {
                self.schedule(end, Rank::Complete, Event::Complete(at as u32));
            }
        } else if let Some(station) = &mut port.station
            && !station.offered
            && let Some((_, bytes)) = station.ring.front().copied()
        {
            station.offered = true;
            let medium = station.medium;
            self.offer_to_medium(now, at, medium, bytes);
        }
        Ok(())
    }

    /// Offers a station's next frame to the medium.
    fn offer_to_medium(&mut self, now: Nanos, at: usize, medium: usize, bytes: u32) {
        // The medium adds the gap between frames itself.
        let bytes = bytes.saturating_sub(super::port::ETHERNET_GAP);
        self.media[medium].offer(now, at & 1, bytes);
        self.set_medium_event(medium);
    }

    /// Sets the event for a medium's next step.
    fn set_medium_event(&mut self, medium: usize) {
        let next = self.media[medium].next();
        let time = next.map(|(time, _)| time);
        if time != self.medium_events[medium] {
            self.medium_events[medium] = time;
            if let Some((time, complete)) = next {
                let rank = if complete { Rank::Complete } else { Rank::Timer };
                self.schedule(time, rank, Event::Medium(medium as u32));
            }
        }
    }

    /// Handles a medium's event: the medium's next step.
    pub(super) fn medium(&mut self, now: Nanos, medium: usize) -> Handled {
        if self.medium_events[medium] != Some(now) {
            return Ok(());
        }
        self.medium_events[medium] = None;
        let outcome = self.media[medium].step(now);
        if let Outcome::Sent(side) | Outcome::GivenUp(side) = outcome {
            let at = self.shared[medium] + side;
            let sent = self.ports[at].station.as_mut().and_then(|station| {
                station.offered = false;
                station.ring.pop_front()
            });
            match (sent, outcome) {
                (Some((packet, _)), Outcome::Sent(_)) => self.launch(now, at, packet)?,
                (Some((packet, _)), _) => self.flow_dropped(now, packet),
                (None, _) => {}
            }
            self.run_scheduler(now, at)?;
        }
        self.set_medium_event(medium);
        Ok(())
    }

    /// Handles the end of a transmission of a port.
    #[inline(always)]
    pub(super) fn complete(&mut self, now: Nanos, at: usize) -> Handled {
        let port = &mut self.ports[at];
        match &mut port.rings {
            // With rings a packet leaves for the far end with its last segment.
            Some(rings) => {
                if let Some(packet) = rings.complete().and_then(|ended| ended.packet) {
                    self.launch(now, at, packet.handle)?;
                }
            }
            None => port.wire.complete(),
        }
        self.run_scheduler(now, at)
    }

    /// Counts a packet that a port's engine has handed over, and that takes `on_wire` bytes on the
    /// wire.
    #[inline(always)]
    fn count_departure(&mut self, now: Nanos, at: usize, departure: &Departure, on_wire: u32) -> Handled {
        let packet = &departure.packet;
        let octet = &mut self.packets[packet.handle as usize].octet;
        let marked = packet.ecn & 3 == 3 && *octet & 3 != 3;
        *octet = packet.dscp << 2 | packet.ecn & 3;
        self.ports[at].charged += u64::from(packet.wire);
        if let Some(governed) = &mut self.ports[at].policy {
            let waited = now - packet.arrived;
            let row = governed.row(departure.class);
            governed.collector.sent(now, row, packet.len, packet.arrived);
            let cell = self.tallies[at].cell(self.segment, row as usize);
            cell.sent += 1;
            cell.bytes += u64::from(packet.len);
            cell.charged += u64::from(packet.wire);
            cell.wire += u64::from(on_wire);
            cell.marked += u64::from(marked);
            cell.delays.push(waited);
            if !self.traces.is_empty() {
                self.traces.iter_mut().for_each(|t| t.class(now, at, row, packet.wire));
            }
            if self.series.is_some()
                && let Some(series) = self.series_of(at, row)
            {
                let passed = Passed { bytes: packet.len, charged: packet.wire, delay: waited, marked };
                series.passed(now, at, row, &passed);
            }
            self.count_wait(packet.handle, waited, marked);
        }
        if self.recorded == Some(at) {
            self.record(now, at, packet)?;
        }
        Ok(())
    }

    /// Writes a packet to the capture of what leaves the recorded port.
    fn record(&mut self, now: Nanos, at: usize, packet: &Packet) -> Handled {
        let Some(mut recorder) = self.recorder.take() else { return Ok(()) };
        let travelling = &self.packets[packet.handle as usize];
        let stream = &self.streams[travelling.stream as usize];
        let flow = stream.flow as usize;
        let written = match (&travelling.load, self.capture(flow)) {
            (Load::Number(number), Some(capture)) => match capture.frames.get(*number as usize) {
                Some(captured) => recorder.write(now, &capture.ethernet(captured), captured.len),
                None => Ok(()),
            },
            (load, _) => {
                let end = usize::from(travelling.end);
                let key = Key { tos: travelling.octet, length: travelling.len, ..stream.ends[end].key };
                let hosts = [stream.ends[end].host, stream.ends[1 - end].host];
                let tunnel = self.ports[at].tunnel.filter(|_| key.family == 6);
                let outer = tunnel.map(|tunnel| encapsulate(tunnel, &key, self.ports[at].back));
                let bytes = frame::ethernet(&key, hosts, load, outer.as_ref());
                recorder.write(now, &bytes, bytes.len() as u32)
            }
        };
        self.recorder = Some(recorder);
        Ok(written.map_err(record_error)?)
    }
}

/// The key of an IPv6 packet after it is put into IPv4. `back`: it goes from the link's `to` to its
/// `from`. DSCP and the ECN field are copied to the outer header (RFC 2983 3.1, the uniform model;
/// RFC 6040 4.1).
pub fn encapsulate(tunnel: Tunnel, inner: &Key, back: bool) -> Key {
    let [src, dst] = tunnel.ends(Ipv6Addr::from_bits(inner.src), Ipv6Addr::from_bits(inner.dst), back);
    let outer = Key {
        src: u128::from(src.to_bits()),
        dst: u128::from(dst.to_bits()),
        proto: IPV6,
        family: 4,
        tos: inner.tos,
        length: inner.length.saturating_add(Tunnel::HEADER),
        mark: inner.mark,
        interface: inner.interface,
        ..Key::default()
    };
    outer.with_vlan(inner.vlan())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_tunnels() {
        // RFC 3056 2: 2002:c000:0204::/48 is the site of 192.0.2.4. Any other address is behind the
        // relay of RFC 3068 2.4.
        let (site, other) = ("2002:c000:204::1".parse().unwrap(), "2001:db8::1".parse().unwrap());
        let (home, relay) = ([192, 0, 2, 4].into(), [192, 88, 99, 1].into());
        assert_eq!(Tunnel::SixToFour.ends(site, other, false), [home, relay]);
        assert_eq!(Tunnel::SixToFour.ends(other, site, true), [relay, home]);
        let configured = Tunnel::Configured([home, relay]);
        assert_eq!(configured.ends(other, site, false), [home, relay]);
        assert_eq!(configured.ends(site, other, true), [relay, home]);
    }
}
