//! Translates a case into what the lab runs: the side of each host, the generator of each flow, and
//! the reasons why the lab cannot run a case.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use altq_cases::case::{
    Case, CaseFile, CaseLink, Flow as CaseFlow, Kind as CaseKind, Pace, Shape, Stack, Tcp, Tunnel, What,
};
use altq_cases::stat::ReadCounters;
use altq_cases::task::Progress;
use altq_engine::spec::Timer;
use altq_engine::units::{Nanos, SECOND};
use altq_traffic::request::Sizes;
use altq_traffic::socket::Tuning;
use altq_traffic::udp::{self, Local};
use anyhow::{Context, bail};

use super::generator::{Datagrams, Flood, Flow, Kind};
use super::path::{self, Path};
use super::topology::{self, Ecn, Side, Unsupported};
use crate::{BadCase, tunnel};

/// How to run a case, besides what the case says.
#[derive(Clone, Debug)]
pub struct Options {
    /// Congestion control of TCP flows that name none.
    pub congestion: Option<String>,
    /// SO_SNDBUF and SO_RCVBUF of TCP flows that name none, in bytes.
    pub buffers: Option<u32>,
    /// Hosts send super-packets (segmentation offload).
    pub offload: bool,
    /// Seed of all random choices.
    pub seed: u64,
    /// How often a run is repeated that the host disturbed: other machines took its processors, or
    /// its timers were late.
    pub again: u32,
    /// Is told how far the runs are, in nanoseconds of their durations.
    pub progress: Option<Arc<Progress>>,
    /// Reads counters as `tc -s` prints them, for expectations about them.
    pub counters: ReadCounters,
}

impl Options {
    /// The options for running a case file as it is written, without showing progress. `seed`
    /// replaces the file's own.
    pub fn of_case(file: &CaseFile, seed: Option<u64>, counters: ReadCounters) -> Options {
        let seed = seed.unwrap_or(file.seed);
        Options { seed, again: 0, congestion: None, buffers: None, offload: true, progress: None, counters }
    }
}

/// A case, translated for the lab.
pub struct Lowered<'a> {
    /// The shaped link.
    pub link: &'a CaseLink,
    /// Its index among the case's links.
    pub link_at: usize,
    /// Its MTU, in bytes.
    mtu: u32,
    /// The links and hosts that packets pass before and behind the queue: first for packets towards
    /// the sinks, then for those towards the sources.
    pub paths: [Path; 2],
    /// Seed of the paths' random choices.
    pub seed: u64,
    /// The hosts of both sides.
    pub hosts: topology::Plan,
    /// The flows, in the case's order.
    pub flows: Vec<Flow>,
    /// Remarks for the reader of the result.
    pub notes: Vec<String>,
}

/// The payload that full segments may have in the lab, in bytes: TCP_MAXSEG takes 88 to 32,767,
/// with the 12 bytes of timestamps.
const SEGMENTS: RangeInclusive<u32> = 76..=32_755;

/// Flows that last to the end of the run send this much longer, so that they still send during the
/// last reading.
const OVERTIME: Duration = Duration::from_secs(60);

/// Translates a case. `mtu` is the MTU of links that do not state one; `timer` says when timers on
/// the shaped link's host fire.
///
/// # Errors
/// [`Unsupported`] for what only the simulator can do: several shaped links, hosts that the shaped
/// link does not divide into two sides, captures, shared media.
pub fn lower<'a>(case: &'a Case, mtu: u32, timer: Timer, options: &Options) -> anyhow::Result<Lowered<'a>> {
    let mut shaped = case.links.iter().enumerate().filter(|(_, link)| link.policy.is_some() || link.reverse.is_some());
    let (link_at, link) = shaped.next().ok_or_else(|| only_simulated("no link of the case has a policy"))?;
    if let Some((_, other)) = shaped.next() {
        return Err(only_simulated(&format!("it has two links with a policy, `{}` and `{}`", link.name, other.name)));
    }
    let why = case.links.iter().find_map(path::only_simulated);
    if let Some(why) = why {
        return Err(only_simulated(&why));
    }
    let sides = sides(case, link_at)?;
    let mut notes = Vec::new();
    let paths = path::paths(case, link_at, &sides);
    let offload = options.offload && case.offload;
    // A tunnel puts a header before each packet, so the hosts must not send super-packets.
    let packets = paths.iter().any(Path::needs_packets) || link.tunnel.is_some();
    if offload && packets {
        notes.push("hosts send no super-packets, because links here delay, lose or tunnel single packets".into());
    }
    let mtu6 = mtu6(case, mtu);
    tunnel_fits(case, mtu6).map_err(|why| only_simulated(&why))?;
    let addresses =
        |side: Side| case.hosts.iter().zip(&sides).filter(|(_, s)| **s == side).map(|(host, _)| host.address).collect();
    let hosts = topology::Plan {
        sources: addresses(Side::Sources),
        sinks: addresses(Side::Sinks),
        // All wires of the lab have the smallest MTU of the case.
        mtu: case.links.iter().filter_map(|link| link.mtu).fold(mtu, u32::min),
        mtu6,
        offload: offload && !packets,
        ecn: ecn(case, &sides),
    };
    let flows = case.flows.iter().enumerate().map(|(at, flow)| {
        lower_flow(case, at, flow, &sides, timer, options).with_context(|| format!("flow `{}`", flow.name))
    });
    let flows = flows.collect::<anyhow::Result<Vec<Flow>>>()?;
    segments_fit(case, hosts.mtu)?;
    Ok(Lowered { link, link_at, mtu: link.mtu.unwrap_or(mtu), hosts, flows, paths, seed: options.seed, notes })
}

/// The largest IPv6 packet that passes all links; a tunnel's header leaves less room. `mtu` is the
/// MTU of links that do not state one.
fn mtu6(case: &Case, mtu: u32) -> u32 {
    let own = |link: &CaseLink| {
        let header = if link.tunnel.is_some() { Tunnel::HEADER } else { 0 };
        link.mtu.unwrap_or(mtu).saturating_sub(header)
    };
    case.links.iter().map(own).fold(mtu, u32::min)
}

/// The MTU that IPv6 requires of every link, in bytes (RFC 8200 5).
const IPV6_MTU: u32 = 1280;

/// Checks that the kernel can send the case's IPv6 packets through its tunnels. The error says why
/// not.
fn tunnel_fits(case: &Case, mtu6: u32) -> Result<(), String> {
    if case.links.iter().all(|link| link.tunnel.is_none()) {
        return Ok(());
    }
    if mtu6 < IPV6_MTU {
        return Err(format!("a tunnel leaves {mtu6} bytes for IPv6, which needs {IPV6_MTU} (RFC 8200 5)"));
    }
    for flow in case.flows.iter().filter(|flow| case.hosts.get(flow.from).is_some_and(|host| host.address.is_ipv6())) {
        if let CaseKind::Udp(udp) = &flow.kind
            && let Some(size) = udp.sizes.iter().find(|size| **size > mtu6)
        {
            return Err(format!(
                "flow `{}`: a tunnel leaves {mtu6} bytes for IPv6, and packets of {size} would be fragmented",
                flow.name
            ));
        }
    }
    Ok(())
}

/// Checks that the segments that flows ask for fit packets of `mtu` bytes, the smallest MTU of the
/// case: the kernel would make smaller ones and say nothing.
fn segments_fit(case: &Case, mtu: u32) -> anyhow::Result<()> {
    for flow in case.flows.iter().filter(|flow| !flow.active.is_empty()) {
        let Some(mss) = flow.kind.tcp().and_then(|tcp| tcp.mss) else { continue };
        let v4 = case.hosts.get(flow.from).is_some_and(|host| host.address.is_ipv4());
        // IP and TCP headers and timestamps.
        let room = mtu.saturating_sub(if v4 { 52 } else { 72 });
        if mss > room {
            let why = format!("segments of {mss} bytes do not fit packets of {mtu}; segments of {room} do");
            return Err(BadCase(format!("case {}: flow `{}`: {why}", case.name, flow.name)).into());
        }
    }
    Ok(())
}

impl Lowered<'_> {
    /// The tunnel around the queue for packets from one side. `None` if that direction has no
    /// policy: then the header only counts in the packet's length on the wire.
    pub fn tunnel(&self, side: Side) -> Option<tunnel::Tunnel> {
        let back = side == Side::Sinks;
        let governed = if back { &self.link.reverse } else { &self.link.policy };
        let tunnel = self.link.tunnel.filter(|_| governed.is_some())?;
        Some(tunnel::Tunnel { ends: Box::new(move |src, dst| tunnel.ends(src, dst, back)), mtu: self.mtu })
    }
}

/// How the message of [`Unsupported`] begins where only the simulator can run the case.
pub const SIMULATED: &str = "this case runs in the simulator only (`altq sim`): ";

fn only_simulated(why: &str) -> anyhow::Error {
    Unsupported(format!("{SIMULATED}{why}")).into()
}

/// Which TCP connections offer ECN. If all do, it is a setting of the namespaces; if some do, it is
/// set on the routes to their ports.
fn ecn(case: &Case, sides: &[Side]) -> Ecn {
    let tcp = || {
        case.flows.iter().filter_map(|flow| Some((flow, flow.kind.tcp()?))).filter(|(flow, _)| !flow.active.is_empty())
    };
    let address = |host: usize| case.hosts.get(host).map(|host| host.address);
    if tcp().all(|(_, tcp)| tcp.ecn) {
        return Ecn::All;
    }
    let some = tcp().filter(|(_, tcp)| tcp.ecn).filter_map(|(flow, _)| {
        let to = SocketAddr::new(address(flow.to)?, flow.dport);
        Some((*sides.get(flow.from)?, address(flow.from)?, to))
    });
    Ecn::Some(some.collect())
}

/// On which side of the shaped link each host is.
fn sides(case: &Case, shaped: usize) -> anyhow::Result<Vec<Side>> {
    let mut sides: Vec<Option<Side>> = vec![None; case.hosts.len()];
    let link = case.links.get(shaped).context("the shaped link has its place")?;
    let mut reach = vec![(link.from, Side::Sources), (link.to, Side::Sinks)];
    while let Some((host, side)) = reach.pop() {
        let Some(seen) = sides.get_mut(host) else { continue };
        match seen {
            Some(other) if *other == side => continue,
            Some(_) => return Err(only_simulated(&format!("there is a way around the link `{}`", link.name))),
            None => *seen = Some(side),
        }
        for (at, link) in case.links.iter().enumerate() {
            if at != shaped && link.from == host {
                reach.push((link.to, side));
            }
            if at != shaped && link.to == host {
                reach.push((link.from, side));
            }
        }
    }
    let place = |(host, side): (usize, Option<Side>)| {
        let name = case.hosts.get(host).map_or("", |host| host.name.as_str());
        side.ok_or_else(|| only_simulated(&format!("no link leads to host `{name}`")))
    };
    sides.into_iter().enumerate().map(place).collect()
}

fn lower_flow(
    case: &Case,
    at: usize,
    flow: &CaseFlow,
    sides: &[Side],
    timer: Timer,
    options: &Options,
) -> anyhow::Result<Flow> {
    let host = |at: usize| case.hosts.get(at).context("the host has its place");
    let (from, to) = (host(flow.from)?.address, host(flow.to)?.address);
    let side = *sides.get(flow.from).context("the host has its side")?;
    if sides.get(flow.to) == Some(&side) {
        return Err(only_simulated("its path does not cross the shaped link"));
    }
    let tuning = |tcp: &Tcp, no_delay| Tuning {
        // The default is cubic in both worlds, whatever the host's own default is. It is set on
        // each socket, because a namespace's default may only be one that the host allows to all
        // users.
        congestion: tcp.congestion.clone().or_else(|| options.congestion.clone()).or_else(|| Some("cubic".into())),
        buffers: tcp.buffers.or(options.buffers),
        mss: tcp.mss,
        no_delay,
        dscp: flow.dscp,
    };
    // A flow that does not run in this row is not checked.
    let runs = !flow.active.is_empty();
    if let Some(tcp) = flow.kind.tcp().filter(|_| runs) {
        if tcp.stack == Stack::Bsd {
            return Err(only_simulated("the lab uses this kernel's TCP, not BSD's of 1997"));
        }
        if let Some(mss) = tcp.mss.filter(|mss| !SEGMENTS.contains(mss)) {
            let (least, most) = (SEGMENTS.start(), SEGMENTS.end());
            return Err(only_simulated(&format!("Linux makes segments of {least} to {most} bytes, not of {mss}")));
        }
    }
    if flow.high && runs {
        return Err(only_simulated("the lab's queues see packets only, and nothing in a UDP packet says `high`"));
    }
    let local = matches!(&flow.kind, CaseKind::Udp(udp) if matches!(udp.shape, Shape::Local { .. }));
    let queue = |link: &CaseLink| {
        (link.policy.is_some() && link.from == flow.from) || (link.reverse.is_some() && link.to == flow.from)
    };
    if local && runs && !case.links.iter().any(queue) {
        return Err(only_simulated("it is `local`, but its host has no queue of altq"));
    }
    let kind = match &flow.kind {
        CaseKind::TcpBulk { streams, tcp } => Kind::Bulk { streams: *streams, tuning: tuning(tcp, false) },
        CaseKind::TcpRr { streams, request, response, tcp } => Kind::Request {
            streams: *streams,
            sizes: Sizes { request: *request as usize, response: *response as usize },
            tuning: tuning(tcp, true),
        },
        CaseKind::TcpConnect { streams, request, response, tcp, .. } => {
            if runs && (*request, *response) != (1, 1) {
                return Err(only_simulated("the lab's short connections carry one byte each way"));
            }
            Kind::Connect { streams: *streams, tuning: tuning(tcp, true) }
        }
        CaseKind::UdpRr { streams, request, response, .. } => {
            Kind::Echo { streams: *streams, sizes: Sizes { request: *request as usize, response: *response as usize } }
        }
        CaseKind::Udp(udp) => {
            let rates = case.events.iter().filter_map(|event| match event.what {
                What::FlowRate { flow, rate } if flow == at => Some((event.at, rate)),
                _ => None,
            });
            let local = (local && runs).then(|| Local { results: Arc::default(), timer });
            Kind::Datagrams(Datagrams {
                udp: udp.clone(),
                seed: options.seed,
                stream: at as u64,
                rates: rates.collect(),
                local,
            })
        }
        CaseKind::Ping { .. } => return Err(only_simulated("the lab sends no pings; `udp_rr` is like them")),
        CaseKind::Pcap { .. } => return Err(only_simulated("the lab does not send captured packets")),
    };
    Ok(Flow {
        name: flow.name.clone(),
        side,
        from: SocketAddr::new(from, flow.sport),
        to: SocketAddr::new(to, flow.dport),
        active: active(case, at, flow)?,
        stagger: Duration::from_nanos(flow.kind.tcp().map_or(0, |tcp| tcp.stagger)),
        dscp: flow.dscp,
        kind,
        flood: flood(case, at, flow, from.is_ipv4()),
    })
}

/// The flood that a flow is, if the case has `overload` and the flow is datagrams of one size at a
/// constant rate.
fn flood(case: &Case, at: usize, flow: &CaseFlow, ipv4: bool) -> Option<Flood> {
    let CaseKind::Udp(udp) = &flow.kind else { return None };
    let changes = case.events.iter().any(|event| matches!(event.what, What::FlowRate { flow, .. } if flow == at));
    let (Shape::Constant(pace), [size]) = (&udp.shape, &udp.sizes[..]) else { return None };
    let nanos = match pace {
        Pace::Interval(interval) => *interval,
        Pace::Rate(rate) => (u64::from(*size) * 8 * SECOND).checked_div(rate.as_bit_s())?,
    };
    let payload = (*size as usize).checked_sub(udp::headers(ipv4)).filter(|bytes| *bytes > 0)?;
    (case.overload && !changes).then_some(Flood { payload, interval: Duration::from_nanos(nanos) })
}

/// The spans of time in which a flow sends, with the events of the case that start and stop it.
fn active(case: &Case, at: usize, flow: &CaseFlow) -> anyhow::Result<Vec<(Duration, Duration)>> {
    let mut spans = flow.active.clone();
    for event in &case.events {
        match &event.what {
            What::FlowActive { flow, active } if *flow == at => {
                let time = event.at;
                if *active {
                    // It sends from this time to the end, so later spans are part of that.
                    spans.retain(|(begin, _)| *begin < time);
                    match spans.last_mut() {
                        Some((_, end)) if *end >= time => *end = case.duration,
                        _ => spans.push((time, case.duration)),
                    }
                } else {
                    spans.retain(|(begin, _)| *begin < time);
                    if let Some((_, end)) = spans.last_mut() {
                        *end = (*end).min(time);
                    }
                }
            }
            What::RemoveClass { class, .. } => {
                return Err(only_simulated(&format!("class `{}` is removed during the run", class.text)));
            }
            _ => {}
        }
    }
    if spans.is_empty() && !flow.active.is_empty() {
        bail!("it never sends");
    }
    // A span that lasts to the end of the run is longer, so that the flow sends during the last
    // reading.
    let end = |end: Nanos| Duration::from_nanos(end) + if end == case.duration { OVERTIME } else { Duration::ZERO };
    Ok(spans.into_iter().map(|(begin, last)| (Duration::from_nanos(begin), end(last))).collect())
}
