//! Sets up a case's flows: their keys, ports, connections and sources.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use altq_cases::case::{self, Case, Kind, Stack, Tunnel};
use altq_cases::random::Random;
use altq_cases::source::{Playback, Source};
use altq_config::suggest::nearest;
use altq_engine::headers::Key;
use altq_engine::units::Nanos;

use super::SimError;
use super::events::{Event, Rank};
use super::stream::{End, Stream, Talk};
use super::talk::{Opener, Pings, Program, Requests, TcpPair, is_local};
use super::world::{NO_PORT, World, bad};
use crate::tcp::{Algorithm, Config, HyStart, Socket};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// The ports that Linux gives to sockets that do not choose one (net.ipv4.ip_local_port_range).
const EPHEMERAL: std::ops::RangeInclusive<u16> = 32_768..=60_999;

/// The congestion controls of the simulator, by the names that a case gives them.
const ALGORITHMS: [&str; 5] = ["tahoe", "reno", "newreno", "cubic", "bbr"];

/// A flow while it runs.
#[derive(Default)]
pub struct FlowState {
    /// Whether it is in a span in which it sends.
    pub active: bool,
    /// The indices of its streams: of a source, or of the open connections of TCP.
    pub(super) streams: Vec<u32>,
    /// Where the ways there and back begin in [`World::hops`].
    ways: [u32; 2],
    /// The fields that all packets from its near end have in common; `None` for a capture.
    pub(super) key: Option<Key>,
    /// What it needs to open further connections.
    pub(super) opener: Opener,
    /// The settings of its connections' ends.
    config: Option<Arc<Config>>,
    /// True if its source is a program on the host that has the queue: a dropped packet then does
    /// not make the scheduler run.
    pub(super) local: bool,
    /// The port and the row of the class of its last packet.
    pub(super) last: Option<(usize, u32)>,
    /// The port and the row of each class that its packets had.
    pub(super) classes: Vec<(usize, u32)>,
}

impl FlowState {
    /// The port and the row of the class of its packets, if all had the same.
    pub fn class(&self) -> Option<(usize, u32)> {
        match self.classes.as_slice() {
            [one] => Some(*one),
            _ => None,
        }
    }

    /// A class of its packets at the wanted one's port that is not the wanted one.
    pub fn stray(&self, wanted: (usize, u32)) -> Option<(usize, u32)> {
        self.classes.iter().copied().find(|class| class.0 == wanted.0 && class.1 != wanted.1)
    }
}

/// Makes the flows of a world, and sets the events for their spans.
pub fn flows(world: &mut World<'_>, seed: u64) -> Result<(), SimError> {
    let case = world.case;
    let mut taken = Taken::default();
    for flow in &case.flows {
        taken.entry(pair(flow)).or_default().0 += 1;
    }
    for (at, flow) in case.flows.iter().enumerate() {
        let ways = [world.routes.port(flow.from, flow.to), world.routes.port(flow.to, flow.from)];
        if ways.contains(&None) {
            let (from, to) = (&case.hosts[flow.from].name, &case.hosts[flow.to].name);
            return Err(bad(format!("flow {}: no links lead from {from} to {to}", flow.name)));
        }
        let made = state(world, at, &mut taken)?;
        world.flows.push(made);
        world.flows[at].ways = [way(world, flow.from, flow.to), way(world, flow.to, flow.from)];
        source(world, at, seed);
        for (start, stop) in &flow.active {
            world.schedule(*start, Rank::Arrival, Event::Start(at as u32));
            world.schedule(*stop, Rank::Change, Event::Stop(at as u32));
        }
    }
    Ok(())
}

/// The fields that all packets of a flow from `from` to `to` have in common; `None` for a capture.
pub fn flow_key(case: &Case, at: usize) -> Option<Key> {
    let flow = case.flows.get(at)?;
    (!matches!(flow.kind, Kind::Pcap { .. })).then(|| key(case, flow))
}

/// The key of the packets that a flow's near end sends.
fn key(case: &Case, flow: &case::Flow) -> Key {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    let (from, to) = (case.hosts[flow.from].address, case.hosts[flow.to].address);
    let tcp = flow.kind.tcp().is_some();
    if matches!(flow.kind, Kind::Ping { .. }) {
        let (proto, family) = if from.is_ipv6() { (ICMPV6, 6) } else { (ICMP, 4) };
        return Key { src: bits(from), dst: bits(to), proto, family, tos: flow.dscp << 2, ..Key::default() };
    }
    // Several connections have different ports.
    let sport = (flow.kind.streams() == 1 && flow.sport > 0).then_some(flow.sport);
    let key = Key {
        src: bits(from),
        dst: bits(to),
        proto: if tcp { TCP } else { UDP },
        family: if from.is_ipv6() { 6 } else { 4 },
        tos: flow.dscp << 2,
        ..Key::default()
    };
    key.with_sport(sport).with_dport(Some(flow.dport))
}

/// The key of packets in the other direction.
fn back(key: &Key) -> Key {
    Key { src: key.dst, dst: key.src, ..*key }.with_sport(key.dport()).with_dport(key.sport())
}

fn state(world: &World<'_>, at: usize, taken: &mut Taken) -> Result<FlowState, SimError> {
    let case = world.case;
    let flow = &case.flows[at];
    let key = flow_key(case, at);
    let mut state = FlowState { key, local: is_local(&flow.kind), ..FlowState::default() };
    if let Some(tcp) = flow.kind.tcp() {
        let mtu = mtu(world, flow.from, flow.to).min(mtu(world, flow.to, flow.from));
        let msl = match &flow.kind {
            Kind::TcpConnect { msl, .. } => Some(*msl),
            _ => None,
        };
        let config = config(tcp, mtu, case.hosts[flow.from].address.is_ipv6(), msl);
        state.config = Some(Arc::new(config.map_err(|why| bad(format!("flow {}: {why}", flow.name)))?));
        state.opener.ports = ports(flow, taken);
    }
    Ok(state)
}

/// By two hosts and a destination port: the number of flows, and the number of source ports that
/// are taken.
type Taken = HashMap<(usize, usize, u16), (usize, usize)>;

fn pair(flow: &case::Flow) -> (usize, usize, u16) {
    (flow.from, flow.to, flow.dport)
}

/// Source ports for a flow's connections: from the port that the flow names on. Flows without one,
/// between the same hosts and to the same port, get different ports.
fn ports(flow: &case::Flow, taken: &mut Taken) -> std::collections::VecDeque<u16> {
    let streams = flow.kind.streams();
    let connects = matches!(flow.kind, Kind::TcpConnect { .. });
    if flow.sport > 0 {
        return (flow.sport..=u16::MAX).take(if connects { usize::MAX } else { streams as usize }).collect();
    }
    let (rivals, before) = taken.entry(pair(flow)).or_default();
    let (rivals, all) = ((*rivals).max(1), EPHEMERAL.clone().cycle().skip(*before % EPHEMERAL.len()));
    *before += streams as usize;
    match connects {
        // If it is the only flow, it gets all ports.
        true if rivals == 1 => all.take(EPHEMERAL.len()).collect(),
        _ => all.take((streams as usize).max(if connects { EPHEMERAL.len() / rivals } else { 0 })).collect(),
    }
}

/// Adds the way from host to host to [`World::hops`], and returns where it begins.
fn way(world: &mut World<'_>, from: usize, to: usize) -> u32 {
    let (mut host, begin) = (from, world.hops.len() as u32);
    while host != to
        && let Some(at) = world.routes.port(host, to)
    {
        world.hops.push(at as u32);
        host = world.ports[at].to;
    }
    world.hops.push(NO_PORT);
    begin
}

/// The largest packet that fits all links from host to host, before a tunnel's header is added.
fn mtu(world: &World<'_>, from: usize, to: usize) -> u32 {
    let v6 = world.case.hosts.get(from).is_some_and(|host| host.address.is_ipv6());
    let (mut host, mut least) = (from, u32::MAX);
    while host != to {
        let Some(at) = world.routes.port(host, to) else { break };
        let port = &world.ports[at];
        let tunnel = if v6 && port.tunnel.is_some() { Tunnel::HEADER } else { 0 };
        least = least.min(port.mtu.saturating_sub(tunnel));
        host = port.to;
    }
    least
}

/// The settings of a connection's ends.
fn config(tcp: &case::Tcp, mtu: u32, v6: bool, msl: Option<Nanos>) -> Result<Config, String> {
    let mut config = match tcp.stack {
        Stack::Linux => Config::linux(),
        Stack::LinuxOf2012 => Config { marks_hurry: false, ..Config::linux() },
        // 16 KB: net.inet.tcp.sendspace of FreeBSD 2.2.
        Stack::Bsd => Config::bsd_1997(tcp.buffers.unwrap_or(16_384)),
    };
    if let Some(buffers) = tcp.buffers {
        (config.send_buffer, config.receive_buffer) = (buffers, buffers);
    }
    if let Some(name) = &tcp.congestion {
        config.congestion = match name.as_str() {
            "tahoe" => Algorithm::Tahoe,
            // Linux's `reno` is RFC 6582 with SACK.
            "reno" if tcp.stack != Stack::Bsd => Algorithm::NewReno,
            "reno" => Algorithm::Reno,
            "newreno" => Algorithm::NewReno,
            "cubic" => Algorithm::Cubic,
            "bbr" => Algorithm::Bbr,
            other => {
                return Err(format!(
                    "the simulator has no congestion control {other:?}{}; it has {}",
                    nearest(other, ALGORITHMS).map(|near| format!(" (did you mean {near:?}?)")).unwrap_or_default(),
                    ALGORITHMS.join(", ")
                ));
            }
        };
    }
    // HyStart is part of Linux's CUBIC. With other algorithms slow start ends by a loss.
    if config.congestion != Algorithm::Cubic {
        config.hystart = HyStart::Off;
    }
    config.headers = if v6 { 60 } else { 40 };
    config.ecn = tcp.ecn;
    if let Some(msl) = msl {
        config.time_wait = msl.saturating_mul(2);
    }
    let config = config.with_mtu(mtu.min(u32::from(u16::MAX)) as u16);
    match tcp.mss {
        Some(mss) if mss > u32::from(config.mss) => Err(format!(
            "segments of {mss} bytes do not fit packets of {mtu}, the smallest `mtu` on the path; segments of {} do",
            config.mss
        )),
        Some(mss) => Ok(Config { mss: mss as u16, ..config }),
        None => Ok(config),
    }
}

/// Makes the streams of a flow that opens no connections.
fn source(world: &mut World<'_>, at: usize, seed: u64) {
    let case = world.case;
    let flow = &case.flows[at];
    let talk = match &flow.kind {
        Kind::Udp(udp) => Talk::Source(Source::new(udp.clone(), Random::new(seed, at as u64))),
        Kind::Pcap { speed, .. } => {
            let frames = world.capture(at).map_or(&[][..], |c| &c.frames);
            Talk::Playback(Playback::new(
                frames.iter().map(|f| ((f.time as f64 / speed) as Nanos, f.key.length)).collect(),
            ))
        }
        Kind::UdpRr { streams, request, response, retry } => {
            let headers = if case.hosts[flow.from].address.is_ipv6() { 48 } else { 28 };
            let ask = Requests {
                lens: [request + headers, response + headers],
                retry: *retry,
                number: 0,
                asked: 0,
                open: false,
            };
            for k in 0..*streams {
                let sport = flow.sport.wrapping_add(k as u16);
                world.add(at, Some(sport), Talk::Requests(ask.clone()));
            }
            return;
        }
        Kind::Ping { size, interval } => {
            world.add(at, None, Talk::Pings(Pings::new(*size, *interval)));
            return;
        }
        Kind::TcpBulk { .. } | Kind::TcpRr { .. } | Kind::TcpConnect { .. } => return,
    };
    world.add(at, Some(flow.sport), talk);
}

impl World<'_> {
    /// Adds a stream to a flow.
    fn add(&mut self, at: usize, sport: Option<u16>, talk: Talk) {
        let place = self.place(at, sport, talk);
        self.flows[at].streams.push(place);
    }

    /// Puts a new stream into a free slot, and returns its index.
    fn place(&mut self, at: usize, sport: Option<u16>, talk: Talk) -> u32 {
        let flow = &self.case.flows[at];
        let key = self.flows[at].key.unwrap_or_default().with_sport(sport);
        let [there, home] = self.flows[at].ways;
        let ends = [End::new(flow.from, there, key, &self.hash), End::new(flow.to, home, back(&key), &self.hash)];
        match self.free_streams.pop() {
            Some(place) => {
                let stream = &mut self.streams[place as usize];
                (stream.flow, stream.talk) = (at as u32, talk);
                for (old, mut new) in stream.ends.iter_mut().zip(ends) {
                    // An event that wakes the slot's earlier stream may still come; it then counts
                    // for this stream.
                    new.armed = old.armed;
                    *old = new;
                }
                place
            }
            None => {
                self.streams.push(Stream { flow: at as u32, life: 0, ends, talk });
                (self.streams.len() - 1) as u32
            }
        }
    }

    /// Makes a new connection of a flow, and returns its index.
    pub(super) fn connect(&mut self, at: usize, sport: u16) -> u32 {
        let config = self.flows[at].config.clone().unwrap_or_else(|| Arc::new(Config::linux()));
        let ask = |request: u32, response: u32, once| Program::RequestResponse {
            request: u64::from(request),
            response: u64::from(response),
            asked: None,
            done: 0,
            answered: 0,
            once,
        };
        let program = match &self.case.flows[at].kind {
            Kind::TcpRr { request, response, .. } => ask(*request, *response, None),
            Kind::TcpConnect { request, response, .. } => ask(*request, *response, Some(0)),
            _ => Program::Bulk,
        };
        let sockets = [Socket::connect(config.clone()), Socket::listen(config)];
        let tso = self.case.flows[at].kind.tcp().is_some_and(|tcp| tcp.tso);
        let pair = TcpPair { sockets, program, counted: 0, active: true, tso };
        self.place(at, Some(sport), Talk::Tcp(Box::new(pair)))
    }
}
