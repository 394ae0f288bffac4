//! The world of a case: hosts, ports, flows, and the loop over its events.

use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use altq_cases::case::{Case, ClassName, Column, Links, Measure, Probe, Subject, What};
use altq_cases::random::Random;
use altq_cases::result::World as Place;
use altq_cases::series::Series;
use altq_cases::source::Outbox;
use altq_cases::standstill::{Standstill, Watch};
use altq_cases::stat::ReadCounters;
use altq_cases::task::Progress;
use altq_config::suggest::nearest;
use altq_config::{Link, Policy, Promises};
use altq_engine::Drop as Dropped;
use altq_engine::classify::FlowHash;
use altq_engine::random::GOLDEN_GAMMA;
use altq_engine::spec::{ClassId, Timer};
use altq_engine::units::{Nanos, Rate};

use super::adapt::Adapting;
use super::capture::{Capture, Frame, Recorder};
use super::csma::Csma;
use super::events::{Event, Events, Rank};
use super::limits::{Guard, Limits};
use super::port::{Port, Surroundings};
use super::routes::Routes;
use super::setup::{self, FlowState};
use super::stream::{Stream, Travelling};
use super::tally::{Cell, Segments, Tally};
use super::trace::{FlowGaps, Trace};
use super::{Handled, SimError};

/// With more flows than this, gaps between packets are kept only for flows whose gaps an
/// expectation or figure asks for, because they take 10 KB per flow.
const MOST_GAPS: usize = 64;

/// The end of a way in [`World::hops`].
pub const NO_PORT: u32 = u32::MAX;

/// The state of one column's run.
pub struct World<'a> {
    pub(super) case: &'a Case,
    pub(super) column: &'a Column,
    captures: &'a [Option<Capture>],
    /// The two ports of each link; those of link n have the numbers 2n and 2n + 1.
    pub ports: Vec<Port>,
    pub flows: Vec<FlowState>,
    pub(super) streams: Vec<Stream>,
    /// Indices of free slots in `streams`.
    pub(super) free_streams: Vec<u32>,
    /// By host and destination host: the port to take.
    pub(super) routes: Routes,
    /// The ways of packets, two for each flow: the ports in order, then [`NO_PORT`]. So a host on
    /// the way need not look for the route of each packet.
    pub(super) hops: Vec<u32>,
    /// By port: true if packets pass from the link before it into its FIFO without an event
    /// ([`join_ports`](World::join_ports)).
    pub(super) joined: Vec<bool>,
    /// The packets in the network.
    pub(super) packets: Vec<Travelling>,
    /// Indices of free slots in `packets`.
    pub(super) free_packets: Vec<u32>,
    pub(super) events: Events,
    pub(super) hash: FlowHash,
    /// The media that two stations share.
    pub(super) media: Vec<Csma>,
    /// The first of the two ports of each medium.
    pub(super) shared: Vec<usize>,
    /// The time of the event that is set for each medium.
    pub(super) medium_events: Vec<Option<Nanos>>,
    /// When the column's timers can fire.
    pub(super) timer: Timer,
    /// The time of the run, cut at the ends of all windows that are measured.
    pub segments: Segments,
    /// The segment of the present time.
    pub(super) segment: usize,
    /// When that segment ends.
    segment_ends: Nanos,
    /// What is to be measured.
    probes: Vec<&'a Probe>,
    /// Counts of the classes of each port, by row.
    pub(super) tallies: Vec<Tally>,
    /// Counts of the flows.
    pub flow_tally: Tally,
    /// The port whose packets are recorded.
    pub(super) recorded: Option<usize>,
    /// The writer of the capture.
    pub(super) recorder: Option<Recorder<Box<dyn Write + 'a>>>,
    /// What classes and flows do over time, if it is kept.
    pub(super) series: Option<Series>,
    /// Reads counters as another tool prints them.
    pub(super) counters: Option<ReadCounters>,
    /// Gaps between the packets of flows that arrive.
    pub gaps: FlowGaps,
    /// Whether flows of TCP stand still.
    pub(super) watches: Vec<Watch>,
    /// The links whose rates adapt.
    pub(super) adapting: Vec<Adapting>,
    /// The classes and flows that are traced until they reach a rate.
    pub(super) traces: Vec<Trace>,
    /// True if an expectation or figure asks for the time that a flow's packets wait, or for marks.
    pub(super) queues_of_flows: bool,
    /// Buffers that are reused, so that nothing is allocated per packet: what a source sends,
    /// and what was dropped.
    pub(super) out: Outbox,
    pub(super) lost: Vec<Dropped>,
    /// Is told how far the run is, in nanoseconds.
    pub(super) progress: Option<Arc<Progress>>,
}

/// What is done now and then, between events.
struct Ticker {
    /// When the next segment begins, or progress is to be told: one comparison for each event.
    due: Nanos,
    /// The time up to which progress was told, and after which span it is told again.
    told: Nanos,
    step: Nanos,
}

/// The error for a case in which something does not fit together.
pub fn bad(message: impl Into<String>) -> SimError {
    SimError::Case(message.into())
}

/// Number of the first random generator of links, which have one per port. Those of flows begin at
/// 0.
const FLIGHTS: u64 = 1 << 32;
/// Number of the first random generator of shared media, which have one per link.
const MEDIA: u64 = 1 << 33;

impl<'a> World<'a> {
    /// The world of a case's column before its first event. `record`: true if [`run`](World::run)
    /// will be given a recorder, which then gets the packets of the first port with a policy.
    pub fn new(
        case: &'a Case,
        column: &'a Column,
        policy: &Policy,
        captures: &'a [Option<Capture>],
        seed: u64,
        record: bool,
    ) -> Result<World<'a>, SimError> {
        let governs = |name: &Option<String>| -> Result<Option<Link>, SimError> {
            let Some(name) = name else { return Ok(None) };
            let hint = || {
                nearest(name, policy.links.iter().map(|l| l.name.as_str())).map(|n| format!("; did you mean {n:?}?"))
            };
            match policy.link(name) {
                Some(link) => Ok(Some(link.clone())),
                None => Err(bad(format!("the policy has no link {name:?}{}", hint().unwrap_or_default()))),
            }
        };
        let governed = case.links.iter().flat_map(|link| [&link.policy, &link.reverse]);
        let recorded = record.then(|| governed.clone().position(Option::is_some).unwrap_or(0));
        let mut ports: Vec<Port> = Vec::new();
        let (mut media, mut shared) = (Vec::new(), Vec::new());
        for (place, link) in case.links.iter().enumerate() {
            let both = [governs(&link.policy)?, governs(&link.reverse)?];
            let rerated = case.events.iter().any(|e| matches!(e.what, What::LinkRate { link, .. } if link == place));
            for (back, policy) in both.iter().enumerate() {
                let number = ports.len() as u64;
                let rate = link.rate(back == 1, both.each_ref().map(|policy| policy.as_ref().map(|p| p.spec.rate)));
                let around = Surroundings {
                    link,
                    place,
                    back: back == 1,
                    rate: rate.unwrap_or(Rate::ZERO),
                    timer: column.timer,
                    window: (case.warmup, case.duration),
                    random: Random::new(seed, FLIGHTS + number),
                    medium: link.half_duplex.then_some(media.len()),
                    steady: !rerated && recorded != Some(ports.len()),
                };
                let mut made = Port::new(around, policy.as_ref()).map_err(|e| bad(e.to_string()))?;
                // Each direction has random numbers of its own.
                made.engine.set_seed(seed.wrapping_add(number.wrapping_mul(GOLDEN_GAMMA)));
                made.handling = case.hosts.get(made.to).map_or(0, |host| host.delay);
                ports.push(made);
            }
            if link.half_duplex {
                let rate = ports.last().map_or(Rate::ZERO, |port| port.wire.rate());
                media.push(Csma::new(rate, Random::new(seed, MEDIA + place as u64)));
                shared.push(ports.len() - 2);
            }
        }
        for way in case.governed() {
            let port = ports.get_mut(2 * way.link + usize::from(way.back));
            if let Some(policy) = port.and_then(|port| port.policy.as_mut()) {
                policy.name = way.name;
            }
        }
        let mut cuts = vec![case.warmup, case.duration];
        cuts.extend(case.probes().flat_map(|(_, probe)| [probe.from, probe.to]));
        let segments = Segments::new(cuts);
        let classes = |port: &Port| port.policy.as_ref().map_or(0, |g| g.rows.len());
        let mut world = World {
            case,
            column,
            captures,
            routes: Routes::new(case),
            hops: Vec::new(),
            joined: Vec::new(),
            recorded,
            recorder: None,
            tallies: ports.iter().map(|port| Tally::new(segments.len(), classes(port))).collect(),
            ports,
            flows: Vec::new(),
            streams: Vec::new(),
            free_streams: Vec::new(),
            packets: Vec::new(),
            free_packets: Vec::new(),
            events: Events::default(),
            hash: FlowHash::new(seed),
            medium_events: vec![None; media.len()],
            media,
            shared,
            timer: column.timer,
            segment: 0,
            segment_ends: 0,
            probes: Vec::new(),
            series: None,
            counters: None,
            gaps: FlowGaps::new(case.flows.len()),
            watches: vec![Watch::default(); case.flows.len()],
            adapting: Vec::new(),
            traces: Vec::new(),
            flow_tally: Tally::new(segments.len(), case.flows.len()),
            segments,
            queues_of_flows: false,
            out: Outbox::default(),
            lost: Vec::new(),
            progress: None,
        };
        setup::flows(&mut world, seed)?;
        world.join_ports();
        world.set_up_adapting()?;
        for (at, event) in case.events.iter().enumerate() {
            world.schedule(event.at, Rank::Change, Event::Change(at as u32));
        }
        let about = case.expectations.iter().filter(|e| e.concerns(column, Place::Sim)).map(|e| &e.probe);
        let probes: Vec<&Probe> = about.chain(case.figures.iter().filter_map(|f| f.probe())).collect();
        probes.iter().for_each(|probe| world.prepare_probe(probe));
        world.probes = probes;
        if case.flows.len() <= MOST_GAPS {
            (0..case.flows.len()).for_each(|flow| world.gaps.keep(flow, case.warmup, case.duration));
        }
        Ok(world)
    }

    /// The longest time for which a flow of TCP had something to send and nothing of it was
    /// delivered.
    pub fn standstill(&self, flow: usize) -> Option<Standstill> {
        let mut watch = *self.watches.get(flow)?;
        watch.ends(self.case.duration);
        watch.longest()
    }

    /// The longest delay of a flow's packets in the whole run.
    pub fn longest_delay(&self, flow: u32) -> Nanos {
        self.flow_tally.longest_delay(flow)
    }

    /// Keeps in `series` what classes and flows do from now on.
    pub fn keep_series(&mut self, mut series: Series) {
        let flows = self.case.flows.iter();
        series.flows(flows.map(|flow| (flow.name.as_str(), super::has_transactions(&flow.kind))));
        self.series = Some(series);
    }

    /// Takes the series that was kept, without the classes that had no packets.
    pub fn take_series(&mut self) -> Option<Series> {
        let mut series = self.series.take()?;
        series.classes.retain(|row| row.bytes.iter().chain(&row.drops).any(|n| *n > 0));
        // Classes are put in the order of the policy; they were added with their first packets.
        series.classes.sort_by_key(|row| row.class);
        let name = self.class_names();
        series.classes.iter_mut().for_each(|row| row.name = name(row.class));
        Some(series)
    }

    /// The series that is kept, if any, with a row for this class of a port.
    pub(super) fn series_of(&mut self, at: usize, class: ClassId) -> Option<&mut Series> {
        let series = self.series.as_mut()?;
        if series.is_new(at, class) {
            let policy = self.ports[at].policy.as_ref()?;
            let (name, _) = policy.rows.get(class as usize)?;
            let guarantee = Promises::new(&policy.link).guaranteed(class).unwrap_or_default().as_bit_s();
            series.class(at, class, &policy.name, name, guarantee, policy.link.spec.mtu);
        }
        Some(series)
    }

    /// Adds an event.
    #[inline]
    pub(super) fn schedule(&mut self, at: Nanos, rank: Rank, event: Event) {
        // Events after the end of the run are not needed.
        if at < self.case.duration {
            self.events.push(at, rank, event);
        }
    }

    /// Applies the case's changes to links without traffic, and looks up all classes that the case
    /// names, so that what is not possible, not there, or not clear is an error before anything
    /// runs.
    pub fn rehearse(mut self) -> Result<(), SimError> {
        for at in 0..self.case.events.len() {
            self.change(0, at)?;
        }
        // A row without a policy has no classes.
        if !self.is_governed() && self.case.row.is_some() {
            return Ok(());
        }
        for probe in &self.probes {
            let subject = match &probe.subject {
                Subject::Class(name) => Some(name),
                _ => None,
            };
            for name in subject.into_iter().chain(&probe.of) {
                self.class(name)?;
            }
        }
        (0..self.case.flows.len()).try_for_each(|flow| self.wanted_class(flow).map(|_| ()))
    }

    /// Runs the events until the case's duration is over.
    pub fn run(&mut self, recorder: Option<Recorder<Box<dyn Write + 'a>>>, limits: &Limits) -> Result<(), SimError> {
        let mut guard = Guard::begin(limits, self.case.duration)?;
        self.recorder = recorder;
        let mut ticker = Ticker { due: 0, told: 0, step: (self.case.duration / 1000).max(1) };
        loop {
            // Most events are arrivals.
            if let Some(now) = self.events.next_arrival() {
                guard.check(self.events.taken(), now)?;
                if now >= ticker.due {
                    self.tick(now, &mut ticker);
                }
                self.arrive_first_in_line(now)?;
                continue;
            }
            let Some(now) = self.events.next_other() else { break };
            guard.check(self.events.taken(), now)?;
            if now >= ticker.due {
                self.tick(now, &mut ticker);
            }
            let Some(event) = self.events.take() else { break };
            self.happen(now, event)?;
        }
        self.progress.iter().for_each(|progress| progress.add(self.case.duration - ticker.told));
        if let Some(recorder) = self.recorder.take() {
            recorder.finish().map_err(super::record_error)?;
        }
        Ok(())
    }

    /// Begins the next segment, and tells how far the run is, if it is time for that.
    #[cold]
    fn tick(&mut self, now: Nanos, ticker: &mut Ticker) {
        if now >= self.segment_ends {
            self.segment = self.segments.find(now, self.segment);
            self.segment_ends = self.segments.end(self.segment);
        }
        if now - ticker.told >= ticker.step {
            self.progress.iter().for_each(|progress| progress.add(now - ticker.told));
            ticker.told = now;
        }
        ticker.due = ticker.told.saturating_add(ticker.step).min(self.segment_ends);
    }

    /// Handles an event that is not the arrival of the first packet in a line.
    #[inline(always)]
    fn happen(&mut self, now: Nanos, event: Event) -> Handled {
        match event {
            Event::Complete(port) => self.complete(now, port as usize),
            Event::Timer(port) => {
                if self.ports[port as usize].wakeup == Some(now) {
                    self.ports[port as usize].wakeup = None;
                    self.run_scheduler(now, port as usize)?;
                }
                Ok(())
            }
            Event::Medium(medium) => self.medium(now, medium as usize),
            Event::Change(at) => {
                self.change(now, at as usize)?;
                (0..self.ports.len()).try_for_each(|port| self.run_scheduler(now, port))
            }
            Event::Start(flow) => self.start(now, flow as usize),
            Event::Stop(flow) => self.stop(now, flow as usize),
            Event::Open(flow) => self.open(now, flow as usize),
            Event::Wake(end) => self.wake(now, end as usize / 2, end as usize & 1),
            Event::ArriveUnordered(packet) => {
                let last = self.packets[packet as usize].hop as usize - 1;
                match self.ports[self.hops[last] as usize].handling {
                    0 => self.handle(now, packet),
                    delay => self.handle_later(now, delay, packet),
                }
            }
            Event::Handle(packet) => self.handle(now, packet),
            Event::Refused(packet) => {
                self.flow_dropped(now, packet);
                Ok(())
            }
            Event::Adapt(link) => self.ask_again(now, link as usize),
        }
    }

    /// Lets the first packet of a port's line arrive at the host behind the port, which handles it
    /// after the host's delay, and adds the event of the next packet.
    #[inline(always)]
    fn arrive_first_in_line(&mut self, now: Nanos) -> Handled {
        let (at, packet) = self.events.arrival();
        let port = &mut self.ports[at as usize];
        let following = port.line.pop_front();
        port.flying = following.is_some();
        self.events.take_arrival(following);
        match port.handling {
            0 => self.handle_inline(now, packet),
            delay => self.handle_later(now, delay, packet),
        }
    }

    /// Lets a host handle a packet after its delay.
    fn handle_later(&mut self, now: Nanos, delay: Nanos, packet: u32) -> Handled {
        self.schedule(now.saturating_add(delay), Rank::Arrival, Event::Handle(packet));
        Ok(())
    }

    /// How long the case runs.
    pub fn duration(&self) -> Nanos {
        self.case.duration
    }

    /// Number of events so far.
    pub fn events_run(&self) -> u64 {
        self.events.taken()
    }

    /// A packet of a flow's capture.
    pub(super) fn frame(&self, flow: usize, number: u64) -> Option<&Frame> {
        self.captures.get(flow)?.as_ref()?.frames.get(usize::try_from(number).ok()?)
    }

    /// The capture of a flow.
    pub(super) fn capture(&self, flow: usize) -> Option<&'a Capture> {
        self.captures.get(flow)?.as_ref()
    }

    /// The policy's links that govern ports, with the names of their classes.
    pub(super) fn policies(&self) -> Links<'_> {
        let mut links: Vec<(&str, Vec<&str>)> = Vec::new();
        for policy in self.ports.iter().filter_map(|port| port.policy.as_ref()) {
            // Where one governs several ports, all of them have the same classes.
            if links.iter().all(|(known, _)| *known != policy.link.name) {
                links.push((&policy.link.name, policy.names()));
            }
        }
        Links::new(links)
    }

    /// Some ports, by their places, and the names of their classes.
    fn links<'w>(&'w self, among: impl Iterator<Item = usize>) -> (Vec<usize>, Links<'w>) {
        let governed = among.filter_map(|at| Some((at, self.ports.get(at)?.policy.as_ref()?)));
        let (ports, links) = governed.map(|(at, policy)| (at, (policy.name.as_str(), policy.names()))).unzip();
        (ports, Links::new(links))
    }

    /// The port and the row of a class that the case names.
    pub fn class(&self, name: &ClassName) -> Result<(usize, ClassId), SimError> {
        self.class_among(name, self.links(0..self.ports.len()))
    }

    fn class_among(
        &self,
        name: &ClassName,
        (ports, links): (Vec<usize>, Links<'_>),
    ) -> Result<(usize, ClassId), SimError> {
        let (link, row) = links.find(&name.text).map_err(|why| self.wrong(name, &why))?;
        Ok((ports[link], row as ClassId))
    }

    /// The port and the row of the class in which a flow's packets must be. It is one of the links
    /// on the flow's way. `None`: the case does not say, or no policy governs any of them.
    pub fn wanted_class(&self, flow: usize) -> Result<Option<(usize, ClassId)>, SimError> {
        let Some(flow) = self.case.flows.get(flow) else { return Ok(None) };
        let Some(name) = &flow.class else { return Ok(None) };
        let Some(way) = walk(&self.routes, self.case, flow.from, flow.to) else { return Ok(None) };
        let ports = way.iter().map(|(link, back)| 2 * link + usize::from(*back));
        if ports.clone().all(|at| self.ports[at].policy.is_none()) {
            return Ok(None);
        }
        let (ports, links) = self.links(ports);
        self.class_among(name, (ports, links.of_a_flow())).map(Some)
    }

    /// The names by which classes, each a port and a row, are known: `LINK/CLASS` where several
    /// links have a class of that name.
    pub fn class_names(&self) -> impl Fn((usize, ClassId)) -> String {
        let (ports, links) = self.links(0..self.ports.len());
        move |(port, row)| {
            let link = ports.iter().position(|own| *own == port).unwrap_or(usize::MAX);
            links.written(link, links.class((link, row as usize)))
        }
    }

    /// The error about a class that the case names.
    pub(super) fn wrong(&self, name: &ClassName, why: &str) -> SimError {
        SimError::Named(Box::new(self.case.wrong(self.column, name, why)))
    }

    /// The bytes that a port charged for each class and those below it, by row.
    pub fn charged(&self, port: usize, window: Range<usize>) -> Vec<u64> {
        let rows = self.ports[port].policy.as_ref().map_or(&[][..], |policy| &policy.rows);
        let own = self.tallies[port].charged(window);
        let mut sums = vec![0; rows.len()];
        for (class, charged) in own.iter().enumerate() {
            let mut at = Some(class);
            while let Some(class) = at {
                let Some((_, parent)) = rows.get(class) else { break };
                sums[class] += charged;
                at = parent.map(|parent| parent as usize);
            }
        }
        sums
    }

    /// The counts of a class and those below it.
    pub fn class_cell(&self, port: usize, class: ClassId, window: Range<usize>) -> Cell {
        let below = self.ports[port].policy.as_ref().map(|p| p.below(class)).unwrap_or_default();
        self.tallies[port].sum(window, &below)
    }

    /// Prepares what this probe needs beyond the counts by window: gaps, waiting times, or a trace.
    fn prepare_probe(&mut self, probe: &Probe) {
        match &probe.subject {
            Subject::Flow(flow) if probe.measure.of_gaps() => self.gaps.keep(*flow, probe.from, probe.to),
            Subject::Flow(_) if matches!(probe.measure, Measure::Queue | Measure::Marked) => {
                self.queues_of_flows = true
            }
            Subject::Flow(flow) if probe.measure == Measure::Reach => {
                self.traces.push(Trace::new(probe, None, vec![*flow as u32]))
            }
            Subject::Class(name) if probe.measure == Measure::Reach => {
                // A class that an event adds is not traced.
                if let Ok((port, class)) = self.class(name) {
                    let below = self.ports[port].policy.as_ref().map(|p| p.below(class)).unwrap_or_default();
                    self.traces.push(Trace::new(probe, Some(port), below));
                }
            }
            _ => {}
        }
    }

    /// The time until the class or flow of the probe reached the probe's level, in nanoseconds;
    /// `None` if it never did.
    pub fn reached(&self, probe: &Probe) -> Option<f64> {
        self.traces.iter().find(|trace| trace.probe == *probe).and_then(Trace::reached)
    }

    /// True if any link has a policy.
    pub fn is_governed(&self) -> bool {
        self.ports.iter().any(|port| port.policy.is_some())
    }

    /// True if a flow does not run in this row.
    pub fn is_silent(&self, flow: usize) -> bool {
        self.case.flows.get(flow).is_none_or(|flow| flow.active.is_empty())
    }

    /// The rate by which shares of a port are measured: its policy's.
    pub fn link_rate(&self, port: usize) -> Rate {
        self.ports[port].policy.as_ref().map_or(self.ports[port].wire.rate(), |p| p.link.spec.rate)
    }
}

/// The route from host to host: the indices of its links, each with true if it is passed from its
/// `to` to its `from`. `None` if there is no route.
pub fn route(case: &Case, from: usize, to: usize) -> Option<Vec<(usize, bool)>> {
    walk(&Routes::new(case), case, from, to)
}

/// As [`route`], by the case's routes, which take longer to work out than to follow.
fn walk(routes: &Routes, case: &Case, from: usize, to: usize) -> Option<Vec<(usize, bool)>> {
    let (mut host, mut way) = (from, Vec::new());
    while host != to {
        let port = routes.port(host, to)?;
        let (link, back) = (port / 2, port % 2 == 1);
        way.push((link, back));
        let link = case.links.get(link)?;
        host = if back { link.from } else { link.to };
    }
    Some(way)
}
