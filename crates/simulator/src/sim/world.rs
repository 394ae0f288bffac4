//! The world of a case: hosts, ports, flows, and the queue of events.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::Write;
use std::ops::Range;

use altq_config::{Link, Policy, Promises};
use altq_engine::classify::FlowHash;
use altq_engine::headers::Key;
use altq_engine::spec::ClassId;
use altq_engine::units::{Nanos, Rate};
use altq_engine::{Departure, Packet};

use super::capture::{Capture, Recorder};
use super::endpoint::{Endpoint, Outbox, Playback, Source};
use super::frame::UdpFlow;
use super::port::Port;
use super::random::Random;
use super::series::{Passed, Series};
use super::tally::{Cell, Segments, Tally};
use super::trace::{FlowGaps, Trace};
use super::{SimError, record_error};
use crate::case::{Case, Column, Kind, Measure, Probe, Subject, What};
use crate::nearest::nearest;
use crate::replay::round_up;
use crate::rings::Rings;

/// The order of events at one instant.
const COMPLETE: u8 = 0;
const TIMER: u8 = 1;
const CHANGE: u8 = 2;
const ARRIVAL: u8 = 3;

/// Of more flows than this, gaps between packets are kept only where something asks for them: they take 10 KB each.
const MOST_GAPS: usize = 64;

const BEYOND: &str = "a packet needs more than 584 years on its wire";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The packet on a port's wire has left.
    Complete(u32),
    /// A port's scheduler wanted to be asked.
    Timer(u32),
    /// The case's event of this place.
    Change(u32),
    /// A flow begins a span in which it sends.
    Start(u32),
    /// And ends it.
    Stop(u32),
    /// A flow's endpoint wanted to be woken.
    Wake(u32),
    /// A packet comes to a host.
    Arrive { host: u32, packet: u32 },
}

/// A packet on its way.
#[derive(Clone, Copy, Debug, Default)]
struct Travelling {
    flow: u32,
    len: u32,
    number: u64,
    sent: Nanos,
    /// DSCP and ECN as the last link left them; `None` before the first.
    octet: Option<u8>,
}

/// A flow while it runs.
pub struct FlowState {
    endpoint: Box<dyn Endpoint>,
    from: usize,
    to: usize,
    /// What its packets look like; `None` for a capture, which has its own.
    udp: Option<UdpFlow>,
    active: bool,
    /// When the endpoint is to be woken; an event of another time is void.
    wake: Option<Nanos>,
    /// Names of the classes that its packets met at the first governed port.
    classes: Vec<String>,
}

impl FlowState {
    /// The class of its packets, if it is one.
    pub fn class_name(&self) -> Option<String> {
        match self.classes.as_slice() {
            [one] => Some(one.clone()),
            _ => None,
        }
    }

    /// A class that is not the one wanted.
    pub fn stray(&self, wanted: Option<&str>) -> Option<&str> {
        self.classes.iter().map(String::as_str).find(|class| Some(*class) != wanted)
    }
}

/// Everything that a run of one column needs.
pub struct World<'a> {
    case: &'a Case,
    captures: &'a [Option<Capture>],
    /// One or two a link.
    pub ports: Vec<Port>,
    pub flows: Vec<FlowState>,
    /// The port towards each host, by host.
    routes: Vec<Vec<Option<usize>>>,
    packets: Vec<Travelling>,
    free: Vec<u32>,
    events: BinaryHeap<Reverse<(Nanos, u8, u64, Event)>>,
    made: u64,
    hash: FlowHash,
    pub segments: Segments,
    segment: usize,
    /// By port, then class.
    tallies: Vec<Tally>,
    pub flow_tally: Tally,
    recorded: Option<usize>,
    series: Option<Series>,
    /// Gaps between packets that arrive.
    pub gaps: FlowGaps,
    /// What probes want to know of single packets.
    traces: Vec<Trace>,
}

fn bad(message: impl Into<String>) -> SimError {
    SimError::Case(message.into())
}

impl<'a> World<'a> {
    pub fn new(
        case: &'a Case,
        column: &Column,
        policy: &Policy,
        captures: &'a [Option<Capture>],
        seed: u64,
    ) -> Result<World<'a>, SimError> {
        let governs = |name: &Option<String>| -> Result<Option<Link>, SimError> {
            let Some(name) = name else { return Ok(None) };
            let hint = || nearest(name, policy.links.iter().map(|l| l.name.as_str())).map(|n| format!("; did you mean {n:?}?"));
            match policy.link(name) {
                Some(link) => Ok(Some(link.clone())),
                None => Err(bad(format!("the policy has no link {name:?}{}", hint().unwrap_or_default()))),
            }
        };
        let mut ports = Vec::new();
        for (place, link) in case.links.iter().enumerate() {
            let both = [governs(&link.policy)?, governs(&link.reverse)?];
            // A way without a rate of its own takes that of the way that has a policy.
            let rate = link.rate.or_else(|| both.iter().flatten().next().map(|p| p.spec.rate));
            let link = crate::case::CaseLink { rate, ..link.clone() };
            for (back, policy) in both.iter().enumerate() {
                let made = Port::new(place, &link, back == 1, policy.as_ref(), column.timer, (case.warmup, case.duration));
                let mut made = made.map_err(|e| bad(e.to_string()))?;
                // Each way draws lots of its own.
                made.engine.set_seed(seed.wrapping_add((ports.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
                ports.push(made);
            }
        }
        let mut cuts = vec![case.warmup, case.duration];
        cuts.extend(case.probes().flat_map(|(_, probe)| [probe.from, probe.to]));
        let segments = Segments::new(cuts);
        let tallies = ports.iter().map(|p| Tally::new(segments.len(), p.policy.as_ref().map_or(0, |g| g.names.len()))).collect();
        let mut world = World {
            case,
            captures,
            routes: routes(case),
            recorded: ports.iter().position(|p| p.policy.is_some()).or((!ports.is_empty()).then_some(0)),
            ports,
            flows: Vec::new(),
            packets: Vec::new(),
            free: Vec::new(),
            events: BinaryHeap::new(),
            made: 0,
            hash: FlowHash::new(seed),
            segment: 0,
            tallies,
            series: None,
            gaps: FlowGaps::new(case.flows.len()),
            traces: Vec::new(),
            flow_tally: Tally::new(segments.len(), case.flows.len()),
            segments,
        };
        for (at, flow) in case.flows.iter().enumerate() {
            if world.routes[flow.from][flow.to].is_none() {
                let (from, to) = (&case.hosts[flow.from].name, &case.hosts[flow.to].name);
                return Err(bad(format!("flow {}: no way leads from {from} to {to}", flow.name)));
            }
            let made = world.flow(at, seed)?;
            world.flows.push(made);
            for (start, stop) in &flow.active {
                world.schedule(*start, ARRIVAL, Event::Start(at as u32));
                world.schedule(*stop, CHANGE, Event::Stop(at as u32));
            }
        }
        for (at, event) in case.events.iter().enumerate() {
            world.schedule(event.at, CHANGE, Event::Change(at as u32));
        }
        let about = case.expectations.iter().filter(|e| e.concerns(column)).map(|e| (&e.name, &e.probe));
        for (name, probe) in about.chain(case.figures.iter().filter_map(|f| Some((&f.name, f.probe()?)))) {
            // A class that an event adds is known only then.
            let added = |name: &str| case.events.iter().any(|e| matches!(&e.what, What::AddClass { class, .. } if class == name));
            let subject = match &probe.subject {
                // In a row without a policy there are no classes.
                crate::case::Subject::Class(name) if world.is_governed() || case.row.is_none() => Some(name),
                _ => None,
            };
            for class in subject.into_iter().chain(&probe.of).filter(|name| !added(name)) {
                world.class(class).map_err(|e| bad(format!("{name}: {e}")))?;
            }
            world.watch(probe);
        }
        if case.flows.len() <= MOST_GAPS {
            (0..case.flows.len()).for_each(|flow| world.gaps.keep(flow, case.warmup, case.duration));
        }
        Ok(world)
    }

    fn flow(&self, at: usize, seed: u64) -> Result<FlowState, SimError> {
        let flow = &self.case.flows[at];
        let host = |place: usize| (self.case.hosts[place].address, place);
        let (endpoint, udp): (Box<dyn Endpoint>, _) = match &flow.kind {
            Kind::Udp(udp) => {
                let key =
                    UdpFlow { src: host(flow.from), dst: host(flow.to), sport: flow.sport, dport: flow.dport, dscp: flow.dscp };
                (Box::new(Source::new(udp.clone(), Random::new(seed, at as u64))), Some(key))
            }
            Kind::Pcap { speed, .. } => {
                let frames = self.captures.get(at).and_then(|c| c.as_ref()).map_or(&[][..], |c| &c.frames);
                let list = frames.iter().map(|f| ((f.time as f64 / speed) as Nanos, f.key.length)).collect();
                (Box::new(Playback::new(list)), None)
            }
            Kind::TcpBulk { .. } | Kind::TcpRr { .. } => return Err(SimError::NoTcp(flow.name.clone())),
        };
        Ok(FlowState { endpoint, from: flow.from, to: flow.to, udp, active: false, wake: None, classes: Vec::new() })
    }

    /// Keeps from now on what classes and flows do.
    pub fn keep_series(&mut self, mut series: Series) {
        series.flows(self.case.flows.iter().map(|flow| flow.name.as_str()));
        self.series = Some(series);
    }

    /// What was kept: of classes those that had packets.
    pub fn take_series(&mut self) -> Option<Series> {
        let mut series = self.series.take()?;
        series.classes.retain(|row| row.bytes.iter().chain(&row.drops).any(|n| *n > 0));
        // In the order of the policy, not in that of the first packets.
        let governed = self.ports.iter().filter_map(|port| port.policy.as_ref());
        let names: Vec<&str> = governed.flat_map(|policy| policy.names.iter().flatten().map(|(name, _)| name.as_str())).collect();
        series.classes.sort_by_key(|row| names.iter().position(|name| *name == row.name));
        Some(series)
    }

    /// What is kept, if anything is, with a row for a class of a port.
    fn series_of(&mut self, at: usize, class: ClassId) -> Option<&mut Series> {
        let series = self.series.as_mut()?;
        if series.is_new(at, class) {
            let policy = self.ports[at].policy.as_ref()?;
            let (name, _) = policy.names.get(class as usize)?.as_ref()?;
            let guarantee = Promises::new(&policy.link).guaranteed(class).unwrap_or_default().as_bit_s();
            series.class(at, class, &policy.link.name, name, guarantee, policy.link.spec.mtu);
        }
        Some(series)
    }

    fn schedule(&mut self, at: Nanos, rank: u8, event: Event) {
        self.made += 1;
        self.events.push(Reverse((at, rank, self.made, event)));
    }

    /// Applies the case's events to links that carry nothing, so that what cannot be is found before anything runs.
    pub fn rehearse(mut self) -> Result<(), SimError> {
        for at in 0..self.case.events.len() {
            self.change(0, at)?;
        }
        Ok(())
    }

    /// Runs until the case's duration is over.
    pub fn run(&mut self, recorder: &mut Option<Recorder<&mut dyn Write>>) -> Result<(), SimError> {
        while let Some(Reverse((now, _, _, event))) = self.events.pop() {
            if now >= self.case.duration {
                break;
            }
            self.segment = self.segments.find(now, self.segment);
            match event {
                Event::Complete(port) => {
                    if self.ports[port as usize].rings.is_some() {
                        self.segment_ended(now, port as usize);
                    } else {
                        self.ports[port as usize].wire.complete();
                    }
                    self.ask(now, port as usize, recorder)?;
                }
                Event::Timer(port) => {
                    if self.ports[port as usize].wakeup == Some(now) {
                        self.ports[port as usize].wakeup = None;
                        self.ask(now, port as usize, recorder)?;
                    }
                }
                Event::Change(at) => {
                    self.change(now, at as usize)?;
                    for port in 0..self.ports.len() {
                        self.ask(now, port, recorder)?;
                    }
                }
                Event::Start(flow) => {
                    self.flows[flow as usize].active = true;
                    self.wake(now, flow as usize, recorder)?;
                }
                Event::Stop(flow) => self.stop(flow as usize),
                Event::Wake(flow) => {
                    if self.flows[flow as usize].wake == Some(now) {
                        self.wake(now, flow as usize, recorder)?;
                    }
                }
                Event::Arrive { host, packet } => self.arrive(now, host as usize, packet, recorder)?,
            }
        }
        if let Some(recorder) = recorder.take() {
            recorder.finish().map_err(record_error)?;
        }
        Ok(())
    }

    fn stop(&mut self, flow: usize) {
        let flow = &mut self.flows[flow];
        (flow.active, flow.wake) = (false, None);
        flow.endpoint.stop();
    }

    fn wake(&mut self, now: Nanos, at: usize, recorder: &mut Option<Recorder<&mut dyn Write>>) -> Result<(), SimError> {
        let mut out = Outbox::default();
        let flow = &mut self.flows[at];
        flow.wake = None;
        if flow.active {
            flow.endpoint.wake(now, &mut out);
        }
        self.deliver(now, at, out, recorder)
    }

    /// Does what an endpoint asked for.
    fn deliver(
        &mut self,
        now: Nanos,
        at: usize,
        out: Outbox,
        recorder: &mut Option<Recorder<&mut dyn Write>>,
    ) -> Result<(), SimError> {
        if let Some(wake) = out.wake {
            self.flows[at].wake = Some(wake);
            self.schedule(wake, ARRIVAL, Event::Wake(at as u32));
        }
        let from = self.flows[at].from;
        for (len, number) in out.packets {
            let travelling = Travelling { flow: at as u32, len, number, sent: now, octet: None };
            let packet = match self.free.pop() {
                Some(place) => {
                    self.packets[place as usize] = travelling;
                    place
                }
                None => {
                    self.packets.push(travelling);
                    (self.packets.len() - 1) as u32
                }
            };
            self.flow_tally.cell(self.segment, at).sent += 1;
            self.arrive(now, from, packet, recorder)?;
        }
        Ok(())
    }

    /// A packet is at a host: it is there, or goes on.
    fn arrive(
        &mut self,
        now: Nanos,
        host: usize,
        packet: u32,
        recorder: &mut Option<Recorder<&mut dyn Write>>,
    ) -> Result<(), SimError> {
        let Travelling { flow, len, number, sent, octet } = self.packets[packet as usize];
        let state = &mut self.flows[flow as usize];
        if host == state.to {
            let headers = state.udp.as_ref().map_or(0, UdpFlow::headers);
            let cell = self.flow_tally.cell(self.segment, flow as usize);
            cell.received += 1;
            cell.bytes += u64::from(len);
            cell.charged += u64::from(len.saturating_sub(headers));
            cell.delays.push(now - sent);
            self.gaps.arrived(now, flow as usize);
            if !self.traces.is_empty() {
                self.traces.iter_mut().for_each(|t| t.flow(now, flow as usize, len.saturating_sub(headers)));
            }
            if let Some(series) = &mut self.series {
                let bin = series.at(now);
                if let Some(row) = series.flows.get_mut(flow as usize) {
                    row.passed(bin, len, now - sent);
                }
            }
            self.free.push(packet);
            let mut out = Outbox::default();
            state.endpoint.received(now, len, number, &mut out);
            return self.deliver(now, flow as usize, out, recorder);
        }
        // `new` made sure that there is a way from the source, and every host on it is nearer.
        let Some(at) = self.routes[host][state.to] else { return Ok(()) };
        let mut key = self.key(flow as usize, len, number);
        key.tos = octet.unwrap_or(key.tos);
        let descriptor = Packet {
            flow: self.hash.flow(&key),
            hosts: self.hash.hosts(&key),
            dscp: key.dscp(),
            ecn: key.ecn(),
            high: self.case.flows[flow as usize].high || self.frame(flow as usize, number).is_some_and(|frame| frame.high),
            ..Packet::new(packet, len)
        };
        let port = &mut self.ports[at];
        let class = port.engine.classify(&key);
        if let Some(governed) = &mut port.policy {
            let counters = governed.collector.turns(now).then(|| port.engine.all_counters());
            if let Some(counters) = counters {
                governed.collector.turn(now, &counters);
            }
            if let Some(class) = class {
                governed.collector.arrived(now, class, len);
                let name = governed.names.get(class as usize).and_then(|n| n.as_ref()).map_or("", |(name, _)| name.as_str());
                let seen = &mut self.flows[flow as usize].classes;
                if seen.last().is_none_or(|last| last != name) && !seen.iter().any(|c| c == name) {
                    seen.push(name.to_string());
                }
            }
        }
        // A class that does not exist makes the engine drop the packet, with the reason `no_class`.
        let queue = port.rings.as_ref().map_or(0, |rings| descriptor.flow as usize % rings.queues());
        port.engine.of(queue).enqueue(now, class.unwrap_or(ClassId::MAX), descriptor);
        if let Some(class) = class
            && let Some(series) = self.series_of(at, class)
        {
            series.arrived(now, at, class);
        }
        self.ask(now, at, recorder)
    }

    fn key(&self, flow: usize, len: u32, number: u64) -> Key {
        match &self.flows[flow].udp {
            Some(udp) => udp.key(len),
            None => self.frame(flow, number).map_or(Key::default(), |f| f.key),
        }
    }

    fn frame(&self, flow: usize, number: u64) -> Option<&super::capture::Frame> {
        self.captures.get(flow)?.as_ref()?.frames.get(usize::try_from(number).ok()?)
    }

    /// Asks a port's scheduler for all that may go now.
    fn ask(&mut self, now: Nanos, at: usize, recorder: &mut Option<Recorder<&mut dyn Write>>) -> Result<(), SimError> {
        let port = &mut self.ports[at];
        if let Some(governed) = &mut port.policy
            && governed.collector.turns(now)
        {
            governed.collector.turn(now, &port.engine.all_counters());
        }
        if self.ports[at].rings.is_some() {
            self.fill_rings(now, at, recorder)?;
        } else {
            self.fill_wire(now, at, recorder)?;
        }
        let mut lost = Vec::new();
        for engine in self.ports[at].engine.iter_mut().filter(|engine| engine.has_drops()) {
            lost.extend(engine.drops());
        }
        for drop in lost {
            let port = &mut self.ports[at];
            if let (Some(governed), Some(class)) = (&mut port.policy, drop.class) {
                governed.collector.dropped(drop.at, class, drop.packet.len);
                self.tallies[at].cell(self.segment, class as usize).dropped += 1;
                if let Some(series) = self.series_of(at, class) {
                    series.dropped(drop.at, at, class);
                }
            }
            if let Some(series) = &mut self.series {
                let (flow, bin) = (self.packets[drop.packet.handle as usize].flow, series.at(drop.at));
                if let Some(row) = series.flows.get_mut(flow as usize) {
                    row.dropped(bin);
                }
            }
            self.free.push(drop.packet.handle);
        }
        Ok(())
    }

    /// Sets the port's timer.
    fn set_timer(&mut self, at: usize, wakeup: Option<Nanos>) {
        let port = &mut self.ports[at];
        if wakeup != port.wakeup {
            port.wakeup = wakeup;
            if let Some(time) = wakeup.filter(|time| *time < self.case.duration) {
                self.schedule(time, TIMER, Event::Timer(at as u32));
            }
        }
    }

    fn fill_wire(&mut self, now: Nanos, at: usize, recorder: &mut Option<Recorder<&mut dyn Write>>) -> Result<(), SimError> {
        loop {
            let port = &mut self.ports[at];
            if !port.wire.has_room() {
                port.wakeup = None;
                return Ok(());
            }
            let Some(departure) = port.engine.of(0).dequeue(now) else {
                port.wire.rest();
                let wakeup = port.engine.of(0).next_wakeup().and_then(|time| round_up(time.max(now + 1), port.timer));
                self.set_timer(at, wakeup);
                return Ok(());
            };
            let packet = departure.packet;
            let Some(end) = port.wire.take(now, packet.wire) else { return Err(bad(BEYOND)) };
            let (delay, to) = (port.delay, port.to);
            self.handed_over(now, at, &departure, recorder)?;
            self.schedule(end, COMPLETE, Event::Complete(at as u32));
            let arrival = end.saturating_add(delay);
            self.schedule(arrival, ARRIVAL, Event::Arrive { host: to as u32, packet: packet.handle });
        }
    }

    /// Fills the rings of a card with several transmit queues, each from its own engine, and sends what is next.
    fn fill_rings(&mut self, now: Nanos, at: usize, recorder: &mut Option<Recorder<&mut dyn Write>>) -> Result<(), SimError> {
        let mut wakeup: Option<Nanos> = None;
        for queue in 0..self.ports[at].rings.as_ref().map_or(0, Rings::queues) {
            loop {
                let port = &mut self.ports[at];
                let Some(rings) = port.rings.as_mut().filter(|rings| rings.has_room(queue)) else { break };
                let engine = port.engine.of(queue);
                let Some(departure) = engine.dequeue(now) else {
                    let time = engine.next_wakeup().and_then(|time| round_up(time.max(now + 1), port.timer));
                    wakeup = [wakeup, time].into_iter().flatten().min();
                    break;
                };
                rings.take(queue, departure.packet.handle, &departure.packet, &engine.overhead());
                self.handed_over(now, at, &departure, recorder)?;
            }
        }
        self.set_timer(at, wakeup);
        let Some(rings) = &mut self.ports[at].rings else { return Ok(()) };
        let before = rings.next_end();
        rings.start(now).map_err(|_| bad(BEYOND))?;
        if let Some(end) = rings.next_end().filter(|_| before.is_none()) {
            self.schedule(end, COMPLETE, Event::Complete(at as u32));
        }
        Ok(())
    }

    /// A segment has left by a port with several transmit queues. A packet is on its way to the far end when its last one has.
    fn segment_ended(&mut self, now: Nanos, at: usize) {
        let port = &mut self.ports[at];
        let (delay, to) = (port.delay, port.to);
        if let Some(packet) = port.rings.as_mut().and_then(Rings::complete).and_then(|ended| ended.packet) {
            self.schedule(now.saturating_add(delay), ARRIVAL, Event::Arrive { host: to as u32, packet });
        }
    }

    /// The ECN bits with which a packet came.
    fn ecn_of(&self, packet: u32) -> u8 {
        let Travelling { flow, len, number, octet, .. } = self.packets[packet as usize];
        octet.unwrap_or_else(|| self.key(flow as usize, len, number).tos) & 3
    }

    /// Counts a packet that a port's engine has handed over.
    fn handed_over(
        &mut self,
        now: Nanos,
        at: usize,
        departure: &Departure,
        recorder: &mut Option<Recorder<&mut dyn Write>>,
    ) -> Result<(), SimError> {
        let packet = &departure.packet;
        let marked = self.series.is_some() && packet.ecn & 3 == 3 && self.ecn_of(packet.handle) != 3;
        self.packets[packet.handle as usize].octet = Some(packet.dscp << 2 | packet.ecn & 3);
        if let Some(governed) = &mut self.ports[at].policy {
            governed.collector.sent(now, departure.class, packet.len, packet.arrived);
            let cell = self.tallies[at].cell(self.segment, departure.class as usize);
            cell.sent += 1;
            cell.bytes += u64::from(packet.len);
            cell.charged += u64::from(packet.wire);
            cell.wire += u64::from(packet.wire);
            if !self.traces.is_empty() {
                self.traces.iter_mut().for_each(|t| t.class(now, at, departure.class, packet.wire));
            }
            cell.delays.push(now - packet.arrived);
            if let Some(series) = self.series_of(at, departure.class) {
                let passed = Passed { bytes: packet.len, charged: packet.wire, delay: now - packet.arrived, marked };
                series.passed(now, at, departure.class, &passed);
            }
        }
        if self.recorded == Some(at)
            && let Some(recorder) = recorder
        {
            self.record(now, packet, recorder)?;
        }
        Ok(())
    }

    fn record(&self, now: Nanos, packet: &Packet, recorder: &mut Recorder<&mut dyn Write>) -> Result<(), SimError> {
        let Travelling { flow, len, number, .. } = self.packets[packet.handle as usize];
        match &self.flows[flow as usize].udp {
            Some(udp) => {
                let marked = UdpFlow { dscp: packet.dscp, ..udp.clone() };
                let frame = marked.frame(len, number, packet.ecn);
                recorder.write(now, &frame, frame.len() as u32)
            }
            None => match (self.captures[flow as usize].as_ref(), self.frame(flow as usize, number)) {
                (Some(capture), Some(frame)) => recorder.write(now, &capture.ethernet(frame), frame.len),
                _ => Ok(()),
            },
        }
        .map_err(record_error)
    }

    fn change(&mut self, now: Nanos, at: usize) -> Result<(), SimError> {
        let case = self.case;
        let what = &case.events[at].what;
        match what {
            What::LinkRate { link, rate } => {
                for port in self.ports.iter_mut().filter(|port| port.link == *link) {
                    port.wire.set_rate(*rate);
                    port.rings.iter_mut().for_each(|rings| rings.set_rate(*rate));
                    port.engine.apply(now, &altq_engine::Change::SetRate(*rate)).map_err(|e| bad(e.to_string()))?;
                }
            }
            What::FlowRate { flow, rate } => self.flows[*flow].endpoint.set_rate(*rate),
            What::FlowActive { flow, active: false } => self.stop(*flow),
            What::FlowActive { flow, active: true } => self.schedule(now, ARRIVAL, Event::Start(*flow as u32)),
            What::SetClass { class, .. } | What::AddClass { class, .. } | What::RemoveClass { class, .. } => {
                let keys: Vec<Key> = match what {
                    What::AddClass { flows, .. } => {
                        flows.iter().filter_map(|f| self.flows[*f].udp.as_ref()).map(|u| u.key(0)).collect()
                    }
                    _ => Vec::new(),
                };
                let mut found = false;
                for port in &mut self.ports {
                    if port.concerns(what) {
                        found = true;
                        port.change(now, what, &keys).map_err(|e| bad(format!("event at {} ns: {e}", case.events[at].at)))?;
                    }
                }
                if !found {
                    self.class(class).map_err(|e| bad(format!("event at {} ns: {e}", case.events[at].at)))?;
                    return Err(bad(format!("event at {} ns: no link has the parent of class {class}", case.events[at].at)));
                }
            }
        }
        Ok(())
    }

    /// The class of a name: the first governed port that has it.
    pub fn class(&self, name: &str) -> Result<(usize, ClassId), SimError> {
        let governed = || self.ports.iter().enumerate().filter_map(|(at, port)| port.policy.as_ref().map(|p| (at, p)));
        if let Some(found) = governed().find_map(|(at, policy)| policy.class(name).map(|class| (at, class))) {
            return Ok(found);
        }
        let names = governed().flat_map(|(_, p)| p.names.iter().flatten().map(|(name, _)| name.as_str()));
        let hint = nearest(name, names).map(|n| format!("; did you mean {n:?}?")).unwrap_or_default();
        Err(bad(format!("no link of the case has a class {name:?}{hint}")))
    }

    /// What a port charged for each class and those below it, by number.
    pub fn charged(&self, port: usize, window: Range<usize>) -> Vec<u64> {
        let names = self.ports[port].policy.as_ref().map_or(&[][..], |policy| &policy.names);
        let own = self.tallies[port].charged(window);
        let mut sums = vec![0; names.len()];
        for (class, charged) in own.iter().enumerate() {
            let mut at = Some(class);
            while let Some(class) = at {
                let Some(Some((_, parent))) = names.get(class) else { break };
                sums[class] += charged;
                at = parent.map(|parent| parent as usize);
            }
        }
        sums
    }

    /// What a class and those below it did.
    pub fn class_cell(&self, port: usize, class: ClassId, window: Range<usize>) -> Cell {
        let below = self.ports[port].policy.as_ref().map(|p| p.below(class)).unwrap_or_default();
        self.tallies[port].sum(window, &below)
    }

    /// Keeps from now on what this probe asks of single packets.
    fn watch(&mut self, probe: &Probe) {
        match &probe.subject {
            Subject::Flow(flow) if probe.measure.of_gaps() => self.gaps.keep(*flow, probe.from, probe.to),
            Subject::Flow(flow) if probe.measure == Measure::Reach => self.traces.push(Trace::new(probe, None, vec![*flow as u32])),
            Subject::Class(name) if probe.measure == Measure::Reach => {
                // A class that comes later is not followed.
                if let Ok((port, class)) = self.class(name) {
                    let below = self.ports[port].policy.as_ref().map(|p| p.below(class)).unwrap_or_default();
                    self.traces.push(Trace::new(probe, Some(port), below));
                }
            }
            _ => {}
        }
    }

    /// How long it took until what the probe follows had its level; `None`: never.
    pub fn reached(&self, probe: &Probe) -> Option<f64> {
        self.traces.iter().find(|trace| trace.probe == *probe).and_then(Trace::reached)
    }

    /// True if a policy governs a link.
    pub fn is_governed(&self) -> bool {
        self.ports.iter().any(|port| port.policy.is_some())
    }

    /// True if a flow does not run at all in this row.
    pub fn is_silent(&self, flow: usize) -> bool {
        self.case.flows.get(flow).is_none_or(|flow| flow.active.is_empty())
    }

    /// The rate by which shares of a port are measured: its policy's.
    pub fn link_rate(&self, port: usize) -> Rate {
        self.ports[port].policy.as_ref().map_or(self.ports[port].wire.rate(), |p| p.link.spec.rate)
    }
}

/// For every pair of hosts the port to take: the way of fewest links, and of several the one that comes first in the file.
fn routes(case: &Case) -> Vec<Vec<Option<usize>>> {
    let n = case.hosts.len();
    let mut routes = vec![vec![None; n]; n];
    // Ports that lead to each host: (port, from).
    let mut into: Vec<Vec<(usize, usize)>> = vec![Vec::new(); n];
    for (at, link) in case.links.iter().enumerate() {
        into[link.to].push((2 * at, link.from));
        into[link.from].push((2 * at + 1, link.to));
    }
    for to in 0..n {
        let mut seen = vec![false; n];
        seen[to] = true;
        let mut open = VecDeque::from([to]);
        while let Some(host) = open.pop_front() {
            for (port, from) in &into[host] {
                if !std::mem::replace(&mut seen[*from], true) {
                    routes[*from][to] = Some(*port);
                    open.push_back(*from);
                }
            }
        }
    }
    routes
}
