//! Emulates the links between the hosts, other than the shaped link's queue: rates and buffers,
//! propagation delay, jitter, loss and reordering, and the hosts' own delays.
//!
//! The arithmetic and the random numbers are the simulator's. A frame's source and destination
//! decide which links it passes. Links before the queue act when a frame comes in, links behind it
//! when the frame leaves.

use std::collections::{BTreeMap, HashMap};

use altq_cases::case::{Case, CaseLink, Loss, Medium, Tunnel, Way};
use altq_cases::random::Random;
use altq_engine::headers;
use altq_engine::link::Overhead;
use altq_engine::units::Nanos;
use altq_simulator::sim::{self, Fate, Fifo, flow_key};
use altq_simulator::wire::Wire;

use super::topology::Side;
use crate::networked::{Network, Onward};

/// Bytes of a frame before layer 3.
const ETHERNET: usize = 14;

/// Number of the first random generator of links; as in the simulator, the port's number is added.
const FLIGHTS: u64 = 1 << 32;

/// Address family, source and destination, as in the classifier's keys.
type Pair = (u8, u128, u128);

/// A link with state that all packets on it share: a queue or a random generator.
#[derive(Clone, Debug, PartialEq)]
struct SharedLink {
    way: Way,
    /// Its medium, which decides the length of a packet on the wire.
    medium: Option<Medium>,
    /// Packets that its driver's ring holds in addition to the FIFO.
    ring: usize,
}

/// A step of a route, as the case describes it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Hop {
    /// Links and hosts that delay every packet by the same time, in ns.
    Delay(Nanos),
    /// A link with state: the number of its port in the simulator, and the bytes that a tunnel adds
    /// to a packet there.
    Link(u64, u32),
}

/// All links that packets of one direction pass on one side of the queue.
#[derive(Clone, Debug, Default)]
pub struct Net {
    links: BTreeMap<u64, SharedLink>,
    routes: HashMap<Pair, Vec<Hop>>,
}

/// The links that packets from one side of the lab pass on their way to the other side.
#[derive(Clone, Debug, Default)]
pub struct Path {
    /// Before the queue.
    pub before: Net,
    /// Behind the queue; without a queue, the whole way.
    pub behind: Net,
}

impl Path {
    /// True if no packet is delayed or lost on it.
    pub fn is_short(&self) -> bool {
        self.before.is_short() && self.behind.is_short()
    }

    /// True if some of its links must see packets one by one, not super-packets.
    pub fn needs_packets(&self) -> bool {
        !self.before.links.is_empty() || !self.behind.links.is_empty()
    }
}

/// The paths from the sources and from the sinks. `shaped` is the index of the shaped link.
pub fn paths(case: &Case, shaped: usize, sides: &[Side]) -> [Path; 2] {
    let mut paths = [Path::default(), Path::default()];
    for (at, flow) in case.flows.iter().enumerate().filter(|(_, flow)| !flow.active.is_empty()) {
        let Some(key) = flow_key(case, at) else { continue };
        for (from, to, pair) in
            [(flow.from, flow.to, (key.family, key.src, key.dst)), (flow.to, flow.from, (key.family, key.dst, key.src))]
        {
            let [there, back] = &mut paths;
            let path = if sides.get(from) == Some(&Side::Sinks) { back } else { there };
            // Flows between the same hosts have the same route.
            if path.behind.routes.contains_key(&pair) {
                continue;
            }
            let Some(way) = sim::route(case, from, to) else { continue };
            let governed = |(link, back): &(usize, bool)| {
                *link == shaped
                    && case
                        .links
                        .get(*link)
                        .is_some_and(|link| if *back { &link.reverse } else { &link.policy }.is_some())
            };
            let (before, behind) = way.split_at(way.iter().position(governed).unwrap_or(0));
            for (net, part) in [(&mut path.before, before), (&mut path.behind, behind)] {
                let route = net.route(case, part, shaped, pair.0);
                net.routes.insert(pair, route);
            }
        }
    }
    paths
}

impl Net {
    fn is_short(&self) -> bool {
        self.routes.values().all(Vec::is_empty)
    }

    /// The hops of a route. Links that are not in the net yet are added to it.
    fn route(&mut self, case: &Case, way: &[(usize, bool)], shaped: usize, family: u8) -> Vec<Hop> {
        let mut hops = Vec::new();
        let mut delay = 0;
        for (place, back) in way {
            let Some(link) = case.links.get(*place) else { continue };
            let mut way = link.ways[usize::from(*back)].clone();
            // The wire behind the queue is emulated by altq's loop, at the policy's rate.
            let governed = *place == shaped && if *back { &link.reverse } else { &link.policy }.is_some();
            way.rate = way.rate.filter(|_| !governed);
            if way.rate.is_some() || way.jitter > 0 || way.loss != Loss::None || way.reorder > 0.0 {
                if delay > 0 {
                    hops.push(Hop::Delay(std::mem::take(&mut delay)));
                }
                let port = 2 * *place as u64 + u64::from(*back);
                let more = if link.tunnel.is_some() && family == 6 { Tunnel::HEADER } else { 0 };
                hops.push(Hop::Link(port, more));
                self.links.insert(port, SharedLink { way, medium: link.medium, ring: link.tx_ring });
            } else {
                delay = delay.saturating_add(way.delay);
            }
            let far = if *back { link.from } else { link.to };
            delay = delay.saturating_add(case.hosts.get(far).map_or(0, |host| host.delay));
        }
        if delay > 0 {
            hops.push(Hop::Delay(delay));
        }
        hops
    }

    /// The emulation of this net; `None` if it has no links that do anything.
    pub fn network(&self, seed: u64) -> Option<Box<dyn Network>> {
        if self.is_short() {
            return None;
        }
        let mut net = NetState { links: Vec::new(), steps: vec![Step::End], routes: HashMap::new() };
        let mut places = BTreeMap::new();
        for (port, link) in &self.links {
            let overhead = link.medium.map_or(Overhead::NONE, Medium::overhead);
            let wire = link.way.rate.map(|rate| (Fifo::new(link.way.queue, link.ring), Wire::new(rate, usize::MAX)));
            let flight = sim::Flight::new(link.way.clone(), Random::new(seed, FLIGHTS + port));
            places.insert(*port, net.links.len());
            net.links.push(LinkState { wire, overhead, flight });
        }
        for (pair, route) in &self.routes {
            net.routes.insert(*pair, net.steps.len() as u32);
            let step = |hop: &Hop| match hop {
                Hop::Delay(delay) => Some(Step::Delay(*delay)),
                Hop::Link(port, more) => places.get(port).map(|at| Step::Link(*at, *more)),
            };
            net.steps.extend(route.iter().filter_map(step).chain([Step::End]));
        }
        Some(Box::new(net))
    }
}

/// A link's state while the lab runs.
struct LinkState {
    wire: Option<(Fifo, Wire)>,
    overhead: Overhead,
    flight: sim::Flight,
}

impl LinkState {
    /// Returns when a packet of `len` bytes (layer 3) that reaches the link at `now` arrives at its
    /// other end; `None` if it is lost.
    fn pass(&mut self, now: Nanos, len: u32) -> Option<Nanos> {
        let end = match &mut self.wire {
            None => now,
            Some((fifo, wire)) => match fifo.take(now, len, self.overhead.charge(len), wire) {
                Fate::Leaves(end) => end,
                Fate::Full | Fate::BeyondTime(_) => return None,
            },
        };
        self.flight.launch(end)
    }
}

#[derive(Clone, Copy)]
enum Step {
    Delay(Nanos),
    /// A link by its place in `links`, and the bytes that a tunnel adds there.
    Link(usize, u32),
    End,
}

/// A net while the lab runs.
struct NetState {
    links: Vec<LinkState>,
    /// The steps of all routes, one route after another. The first route is empty; frames that
    /// belong to no flow take it.
    steps: Vec<Step>,
    routes: HashMap<Pair, u32>,
}

impl Network for NetState {
    fn enter(&mut self, head: &[u8]) -> u32 {
        let key = headers::parse_ethernet(head, head.len() as u32).key;
        // Frames that belong to no flow, such as ICMP errors from a router, take the empty route.
        self.routes.get(&(key.family, key.src, key.dst)).copied().unwrap_or(0)
    }

    /// Packets reach a link by different routes, so the link decides about a packet only when it
    /// gets there.
    fn onward(&mut self, now: Nanos, mut at: u32, len: usize) -> Onward {
        let len = len.saturating_sub(ETHERNET) as u32;
        let mut time = now;
        loop {
            match self.steps.get(at as usize).copied().unwrap_or(Step::End) {
                Step::End => return Onward::Arrives(time),
                Step::Delay(delay) => time = time.saturating_add(delay),
                Step::Link(..) if time > now => return Onward::Meets(time, at),
                Step::Link(link, more) => match self.links.get_mut(link).and_then(|link| link.pass(time, len + more)) {
                    Some(end) => time = end,
                    None => return Onward::Lost,
                },
            }
            at += 1;
        }
    }
}

/// Why the lab cannot emulate a link; `None` if it can.
pub fn only_simulated(link: &CaseLink) -> Option<String> {
    let name = &link.name;
    if link.half_duplex {
        return Some(format!("link `{name}` is a half-duplex medium (CSMA/CD)"));
    }
    if link.tx_queues > 1 {
        return Some(format!("link `{name}` has several transmit queues"));
    }
    None
}

#[cfg(test)]
mod tests {
    use std::path::Path as File;

    use super::*;

    /// Paths of a case with these links and flows, and with hosts `a` and `c` on the sources' side.
    fn of(links: &str, flows: &[(&str, &str)]) -> [Path; 2] {
        let flows: String = flows
            .iter()
            .enumerate()
            .map(|(n, (from, to))| {
                format!("[[flows]]\nname = 'f{n}'\nkind = 'tcp_bulk'\nfrom = '{from}'\nto = '{to}'\n")
            })
            .collect();
        let text = format!(
            "name = 't'\ndescription = 'd'\nduration = '1s'\n\
             policy = 'link wan {{ rate 1Mbit/s scheduler fifo class all {{ default }} }}'\n\
             hosts = [{{ name = 'a', address = '10.0.0.1' }}, {{ name = 'c', address = '2001:db8::1' }}, \
             {{ name = 'l' }}, {{ name = 'r', delay = '7us' }}, {{ name = 'x' }}, \
             {{ name = 'b', address = '10.0.0.2' }}, {{ name = 'd', address = '2001:db8::2' }}]\n\
             links = [{{ name = 'wan', from = 'l', to = 'r', policy = 'wan' }}, {links}]\n{flows}"
        );
        let case = Case::parse(&text, File::new("t.toml")).unwrap_or_else(|error| panic!("{error}"));
        let sides: Vec<Side> = case
            .hosts
            .iter()
            .map(|host| if "aclx".contains(&host.name) { Side::Sources } else { Side::Sinks })
            .collect();
        paths(&case, 0, &sides)
    }

    /// A frame of 1000 bytes at layer 3 of the flow from `a` to `b`, or with `v6` from `c` to `d`;
    /// `back`: in the other direction.
    fn frame(v6: bool, back: bool) -> Vec<u8> {
        let mut frame = vec![0; 1014];
        let (mut source, mut target) = (1, 2);
        if back {
            (source, target) = (2, 1);
        }
        if v6 {
            frame[12..16].copy_from_slice(&[0x86, 0xdd, 0x60, 0]);
            frame[18..20].copy_from_slice(&960u16.to_be_bytes());
            for (at, host) in [(22, source), (38, target)] {
                frame[at..at + 4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
                frame[at + 15] = host;
            }
        } else {
            frame[12..15].copy_from_slice(&[0x08, 0, 0x45]);
            frame[16..18].copy_from_slice(&1000u16.to_be_bytes());
            frame[26..34].copy_from_slice(&[10, 0, 0, source, 10, 0, 0, target]);
        }
        frame
    }

    /// When frames that leave at these times arrive, in the order in which they were given.
    fn pass(net: &Net, frames: &[(Nanos, Vec<u8>)]) -> Vec<Option<Nanos>> {
        let mut network = net.network(1).unwrap();
        // Calls of `onward` that are due, by time and order: the frame and its ticket.
        let mut asks: BTreeMap<(Nanos, usize), (usize, u32)> = BTreeMap::new();
        for (n, (at, bytes)) in frames.iter().enumerate() {
            asks.insert((*at, n), (n, network.enter(bytes)));
        }
        let (mut out, mut asked) = (vec![None; frames.len()], frames.len());
        while let Some(((now, _), (n, ticket))) = asks.pop_first() {
            match network.onward(now, ticket, frames[n].1.len()) {
                Onward::Arrives(at) => out[n] = Some(at),
                Onward::Meets(at, ticket) => _ = asks.insert((at, asked), (n, ticket)),
                Onward::Lost => {}
            }
            asked += 1;
        }
        out
    }

    const BEFORE: &str = "{ name = 'a', from = 'a', to = 'l', rate = '8Mbit/s', delay = '1ms' }";

    #[test]
    fn times_by_hand() {
        let behind = "{ name = 'b', from = 'r', to = 'b', rate = '8Mbit/s', delay = '2ms' }";
        let [there, back] = of(&format!("{BEFORE}, {behind}"), &[("a", "b")]);
        assert!(there.needs_packets());
        // 1000 bytes at layer 3 take 1 ms on the wire before the queue, and the link's delay is 1
        // ms. Behind the queue there are 7 µs for the router, 1 ms on the wire and 2 ms of delay.
        let two = [(0, frame(false, false)), (0, frame(false, false))];
        assert_eq!(pass(&there.before, &two), [Some(2_000_000), Some(3_000_000)]);
        assert_eq!(pass(&there.behind, &two), [Some(3_007_000), Some(4_007_000)]);
        // In the other direction nothing is shaped.
        assert!(back.before.is_short());
        let one = [(0, frame(false, true))];
        assert_eq!(pass(&back.behind, &one), [Some(1_000_000 + 2_000_000 + 7_000 + 1_000_000 + 1_000_000)]);
        // Frames that belong to no flow pass without delay.
        assert_eq!(pass(&there.behind, &[(5, frame(true, false)), (6, vec![0; 60])]), [Some(5), Some(6)]);
    }

    fn link(from: &str, to: &str, words: &str) -> String {
        format!("{{ name = '{from}{to}', from = '{from}', to = '{to}', {words} }}")
    }

    #[test]
    fn every_flow_has_its_own_way() {
        let links = [
            link("a", "l", "delay = '1ms', rate = '8Gbit/s'"),
            link("c", "l", "delay = '5ms', rate = '8Gbit/s'"),
            link("r", "b", "delay = '2ms', rate = '8Mbit/s'"),
            link("r", "d", "delay = '3ms', rate = '4Mbit/s'"),
        ];
        let [there, back] = of(&links.join(", "), &[("a", "b"), ("d", "c")]);
        let both = |back| [(0, frame(false, back)), (0, frame(true, back)), (0, frame(false, back))];
        assert_eq!(pass(&there.before, &both(false)), [Some(1_001_000), Some(5_001_000), Some(1_002_000)]);
        // At 8 Gbit/s a packet takes 1 µs; on a wire of its own it takes 1 or 2 ms.
        assert_eq!(pass(&there.behind, &both(false)), [Some(3_007_000), Some(5_007_000), Some(4_007_000)]);
        assert_eq!(pass(&back.behind, &both(true)), [Some(4_008_000), Some(10_008_000), Some(5_008_000)]);
    }

    #[test]
    fn a_shared_link_serves_who_comes_first() {
        // From `d` it takes 9 ms to the router, from `b` 1 ms. Both flows go on over the same link
        // to `x`, on which a packet takes 1 ms.
        let links = [
            link("r", "b", "delay = '1ms', rate = '8Gbit/s'"),
            link("r", "d", "delay = '9ms', rate = '8Gbit/s'"),
            link("l", "x", "rate = '8Mbit/s'"),
            link("x", "a", "rate = '8Gbit/s'"),
            link("x", "c", "rate = '8Gbit/s'"),
        ];
        let [_, back] = of(&links.join(", "), &[("a", "b"), ("c", "d")]);
        let frames = [(0, true), (6_000_000, false), (7_500_000, false), (8_100_000, false)]
            .map(|(at, v6)| (at, frame(v6, true)));
        // They reach that link 8 µs after 9, 7, 8.5 and 9.1 ms. There the first waits for the
        // third, and the last for both.
        let out = [10_509_000, 8_009_000, 9_509_000, 11_509_000];
        assert_eq!(pass(&back.behind, &frames), out.map(Some));
    }
}
