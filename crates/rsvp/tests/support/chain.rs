//! Five nodes in a row: a host, three routers, a host. Messages take a millisecond from node to
//! node, and may be lost. Link k is between nodes k and k + 1, which have the addresses 10.0.k.1
//! and 10.0.k.2 there (fd00:0:0:k::1 and ::2), as their interfaces 2 and 1.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use altq_rsvp::integrity::Key;
use altq_rsvp::node::{Arrived, Config, Event, Interface, Limits, Neighbour, Node, Output, Prefix, Route, Transmit};
use altq_rsvp::wire::{Sender, Session, Style, Tspec};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::{Around, MS};

pub const LEFT: u32 = 1;
pub const RIGHT: u32 = 2;
pub const LAST: usize = 4;

pub struct Chain {
    pub now: u64,
    pub nodes: Vec<Node>,
    pub around: Vec<Around>,
    pub events: Vec<Vec<Event>>,
    /// Messages lost of 1000.
    pub loss: u64,
    /// A node that neither hears nor speaks.
    pub dead: Option<usize>,
    /// Messages under way: when and in which order they arrive, where, and by which interface.
    flying: BTreeMap<(u64, u64), (usize, u32, Transmit)>,
    count: u64,
    random: Pcg64Mcg,
}

/// The address of a node's end of a link: `end` 1 is the left node's.
pub fn address(v6: bool, link: usize, end: u8) -> IpAddr {
    let link = u8::try_from(link).unwrap();
    if v6 {
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, u16::from(link), 0, 0, 0, u16::from(end)))
    } else {
        IpAddr::V4(Ipv4Addr::new(10, 0, link, end))
    }
}

/// The link that an address is on, and the end.
fn place(address: IpAddr) -> (usize, u8) {
    match address {
        IpAddr::V4(v4) => (usize::from(v4.octets()[2]), v4.octets()[3]),
        IpAddr::V6(v6) => (usize::from(v6.segments()[3]), v6.octets()[15]),
    }
}

fn route(node: usize, to: IpAddr) -> Route {
    let (link, end) = place(to);
    let owner = link + usize::from(end) - 1;
    match owner.cmp(&node) {
        std::cmp::Ordering::Equal => Route::Local,
        std::cmp::Ordering::Less => Route::Interface(LEFT),
        std::cmp::Ordering::Greater => Route::Interface(RIGHT),
    }
}

/// An interface of a node in the row.
fn interface(node: usize, id: u32, key: Option<&Key>) -> Interface {
    let (link, own, other) = if id == LEFT { (node - 1, 2, 1) } else { (node, 1, 2) };
    let keys: Vec<Key> = key.into_iter().cloned().collect();
    let neighbour =
        |v6| Neighbour { prefix: Prefix::host(address(v6, link, other)), keys: keys.clone(), handshake: true };
    Interface {
        id,
        name: format!("eth{id}"),
        addresses: vec![address(false, link, own), address(true, link, own)],
        mtu: 1500,
        refresh_ms: 30_000,
        neighbours: vec![neighbour(false), neighbour(true)],
        sign: key.cloned(),
    }
}

impl Chain {
    /// The row with `capacity` bytes/s on each interface, and every message signed if there is a
    /// key.
    pub fn new(capacity: f64, seed: u64, key: Option<&Key>) -> Chain {
        Chain::with_k(capacity, seed, key, 3)
    }

    /// The same with another K.
    pub fn with_k(capacity: f64, seed: u64, key: Option<&Key>, k: u32) -> Chain {
        let config = |node: usize| {
            let ids: &[u32] = match node {
                0 => &[RIGHT],
                LAST => &[LEFT],
                _ => &[LEFT, RIGHT],
            };
            Config {
                interfaces: ids.iter().map(|id| interface(node, *id, key)).collect(),
                receiver_proxy: Vec::new(),
                port_zero: false,
                first_sequence: 1000,
                limits: Limits { k, ..Limits::default() },
            }
        };
        let around = |node: usize| Around::new(capacity, seed + node as u64, Box::new(move |to| route(node, to)));
        Chain {
            now: 0,
            nodes: (0..=LAST).map(|node| Node::new(config(node)).unwrap()).collect(),
            around: (0..=LAST).map(around).collect(),
            events: vec![Vec::new(); LAST + 1],
            loss: 0,
            dead: None,
            flying: BTreeMap::new(),
            count: 0,
            random: Pcg64Mcg::seed_from_u64(seed),
        }
    }

    /// Takes what a node wants sent, and puts it on the wire.
    pub fn collect(&mut self, from: usize) {
        self.nodes[from].invariants().unwrap();
        assert_eq!(self.around[from].ledger.faults, [] as [String; 0]);
        while let Some(output) = self.nodes[from].poll() {
            match output {
                Output::Event(event) => self.events[from].push(event),
                Output::Send(transmit) => self.fly(from, transmit),
            }
        }
    }

    fn fly(&mut self, from: usize, transmit: Transmit) {
        let (to, by) = if transmit.interface == LEFT { (from - 1, RIGHT) } else { (from + 1, LEFT) };
        let lost = self.random.next_u64() % 1000 < self.loss;
        if lost || self.dead == Some(from) || self.dead == Some(to) {
            return;
        }
        self.count += 1;
        self.flying.insert((self.now + MS, self.count), (to, by, transmit));
    }

    /// Lets time pass.
    pub fn until(&mut self, then: u64) {
        loop {
            let arrival = self.flying.keys().next().map(|(at, _)| *at);
            let alive = (0..=LAST).filter(|node| self.dead != Some(*node));
            let timer = alive.filter_map(|node| Some((self.nodes[node].next_timeout()?, node))).min();
            let next = arrival.into_iter().chain(timer.map(|(at, _)| at)).min();
            let Some(at) = next.filter(|at| *at <= then) else {
                break;
            };
            self.now = self.now.max(at);
            if arrival == Some(at) {
                let (_, (to, interface, transmit)) = self.flying.pop_first().unwrap();
                let arrived = Arrived {
                    interface,
                    source: transmit.source,
                    destination: transmit.destination,
                    ttl: transmit.ttl,
                    message: &transmit.message,
                };
                self.nodes[to].receive(self.now, &mut self.around[to].world(), &arrived);
                self.collect(to);
            } else if let Some((_, node)) = timer {
                self.nodes[node].handle_timeout(self.now, &mut self.around[node].world());
                self.collect(node);
            }
        }
        self.now = then;
    }

    /// Lets time pass.
    pub fn pass(&mut self, time: u64) {
        self.until(self.now + time);
    }

    /// The session to the last node.
    pub fn session(v6: bool, port: u16) -> Session {
        Session { address: address(v6, LAST - 1, 2), protocol: 17, port }
    }

    /// A sender of the first node.
    pub fn sender(v6: bool, port: u16) -> Sender {
        Sender::new(address(v6, 0, 1), port)
    }

    /// The first node announces a sender.
    pub fn announce(&mut self, session: Session, sender: Sender, tspec: Tspec) {
        self.nodes[0].announce(self.now, &mut self.around[0].world(), session, sender, tspec).unwrap();
        self.collect(0);
    }

    /// The last node asks for a reservation.
    pub fn reserve(&mut self, session: Session, sender: Sender, tspec: Tspec) {
        let (style, filters) = (Style::Fixed, [sender]);
        let mut world = self.around[LAST].world();
        self.nodes[LAST].reserve(self.now, &mut world, session, (style, &filters), (tspec, true)).unwrap();
        self.collect(LAST);
    }

    /// A reservation for one sender, made from end to end.
    pub fn reserved(&mut self, v6: bool, port: u16, tspec: Tspec) {
        let (session, sender) = (Chain::session(v6, port), Chain::sender(v6, port));
        self.announce(session, sender, tspec);
        self.pass(10 * MS);
        self.reserve(session, sender, tspec);
        self.pass(20 * MS);
    }

    /// How many reservations each of the first four nodes has, on its way to the right.
    pub fn held(&mut self) -> [usize; LAST] {
        let now = self.now;
        std::array::from_fn(|node| self.around[node].ledger.at(now))
    }
}
