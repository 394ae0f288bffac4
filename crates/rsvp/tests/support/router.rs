//! One router with three interfaces, and neighbours that say what the test makes them say.
//!
//! ```text
//!  10.0.1.1 ── 10.0.1.2 [1] router [7] 10.0.12.1 ── 10.0.12.2 ── 10.0.2.2
//!  (sender)                 router [9] 10.0.13.1 ── 10.0.13.2 ──┘
//! ```

use std::net::IpAddr;

use altq_rsvp::node::{Arrived, Config, Event, Interface, Limits, Neighbour, Node, Output, Prefix, Route, Transmit};
use altq_rsvp::wire::{
    Flow, Flowspec, Hop, Message, Path, PathTear, Resv, ResvTear, Sender, Session, Style, Tspec, decode, encode,
};

use super::{Around, ip, tspec};

/// The interface of senders, the way to receivers, and another way.
pub const IN: u32 = 1;
pub const OUT: u32 = 7;
pub const OTHER: u32 = 9;

/// R of everybody, milliseconds.
pub const R: u32 = 30_000;

pub struct Router {
    pub node: Node,
    pub around: Around,
    pub now: u64,
    pub events: Vec<Event>,
}

/// An interface with one neighbour, without keys.
pub fn interface(id: u32, own: &str, neighbour: &str) -> Interface {
    Interface {
        id,
        name: format!("eth{id}"),
        addresses: vec![ip(own)],
        mtu: 1500,
        refresh_ms: R,
        neighbours: vec![Neighbour { prefix: Prefix::host(ip(neighbour)), keys: Vec::new(), handshake: false }],
        sign: None,
    }
}

/// The router of the picture.
pub fn config() -> Config {
    Config {
        interfaces: vec![
            interface(IN, "10.0.1.2", "10.0.1.1"),
            interface(OUT, "10.0.12.1", "10.0.12.2"),
            interface(OTHER, "10.0.13.1", "10.0.13.2"),
        ],
        receiver_proxy: Vec::new(),
        port_zero: false,
        first_sequence: 1,
        limits: Limits::default(),
    }
}

/// The session to 10.0.2.2 by UDP.
pub fn session(port: u16) -> Session {
    Session { address: ip("10.0.2.2"), protocol: 17, port }
}

/// A sender of 10.0.1.1.
pub fn sender(port: u16) -> Sender {
    Sender::new(ip("10.0.1.1"), port)
}

impl Router {
    pub fn new(config: Config, capacity: f64) -> Router {
        let otherwise = |to: IpAddr| if to == ip("10.0.1.1") { Route::Interface(IN) } else { Route::Interface(OUT) };
        let node = Node::new(config).unwrap();
        Router { node, around: Around::new(capacity, 1, Box::new(otherwise)), now: 0, events: Vec::new() }
    }

    /// The router with 1 Mbyte/s for reservations on each interface.
    pub fn plain() -> Router {
        Router::new(config(), 1e6)
    }

    /// A message arrives; what the node sends.
    pub fn hear(&mut self, interface: u32, source: &str, destination: &str, message: &[u8]) -> Vec<Transmit> {
        let ttl = message.get(4).copied().unwrap_or(0);
        let arrived = Arrived { interface, source: ip(source), destination: ip(destination), ttl, message };
        self.node.receive(self.now, &mut self.around.world(), &arrived);
        self.sent()
    }

    /// What the node wants sent. Events are kept, and the invariants are checked.
    pub fn sent(&mut self) -> Vec<Transmit> {
        self.node.invariants().unwrap();
        assert_eq!(self.around.ledger.faults, [] as [String; 0]);
        let mut sent = Vec::new();
        while let Some(output) = self.node.poll() {
            match output {
                Output::Send(transmit) => sent.push(transmit),
                Output::Event(event) => self.events.push(event),
            }
        }
        sent
    }

    /// Time passes, timer by timer; what the node sends.
    pub fn until(&mut self, then: u64) -> Vec<Transmit> {
        let mut sent = Vec::new();
        while let Some(at) = self.node.next_timeout().filter(|at| *at <= then) {
            self.now = self.now.max(at);
            self.node.handle_timeout(self.now, &mut self.around.world());
            sent.extend(self.sent());
        }
        self.now = then;
        sent
    }

    /// A Path of 10.0.1.1 for `session`.
    pub fn path(&mut self, session: Session, sender: Sender, tspec: Tspec) -> Vec<Transmit> {
        let message = encode(&path(session, sender, tspec), 64).unwrap();
        self.hear(IN, "10.0.1.1", &session.address.to_string(), &message)
    }

    /// A Resv of the neighbour on [`OUT`] or [`OTHER`].
    pub fn resv(
        &mut self,
        interface: u32,
        session: Session,
        style: Style,
        flows: &[(Tspec, &[Sender])],
    ) -> Vec<Transmit> {
        let flow = |(tspec, filters): &(Tspec, &[Sender])| Flow {
            flowspec: Flowspec::ControlledLoad(*tspec),
            filters: filters.to_vec(),
        };
        self.resv_flows(interface, session, style, flows.iter().map(flow).collect())
    }

    /// The same with any flow descriptors.
    pub fn resv_flows(&mut self, interface: u32, session: Session, style: Style, flows: Vec<Flow>) -> Vec<Transmit> {
        let (neighbour, own) = next_hop(interface);
        let message = Message::Resv(Resv {
            session,
            hop: Hop { address: ip(neighbour), handle: interface },
            refresh_ms: R,
            confirm: None,
            scope: Vec::new(),
            style,
            flows,
            passed_on: Vec::new(),
        });
        self.hear(interface, neighbour, own, &encode(&message, 64).unwrap())
    }

    /// A PathTear of 10.0.1.1.
    pub fn path_tear(&mut self, session: Session, sender: Sender) -> Vec<Transmit> {
        let hop = Hop { address: ip("10.0.1.1"), handle: 3 };
        let message = encode(&Message::PathTear(PathTear { session, hop, sender }), 64).unwrap();
        self.hear(IN, "10.0.1.1", &session.address.to_string(), &message)
    }

    /// A ResvTear of the neighbour on [`OUT`] or [`OTHER`].
    pub fn resv_tear(&mut self, interface: u32, session: Session, style: Style, filters: &[Sender]) -> Vec<Transmit> {
        let (neighbour, own) = next_hop(interface);
        let hop = Hop { address: ip(neighbour), handle: interface };
        let tear = ResvTear { session, hop, scope: Vec::new(), style, filters: filters.to_vec() };
        self.hear(interface, neighbour, own, &encode(&Message::ResvTear(tear), 64).unwrap())
    }

    /// What is reserved on an interface: r of each reservation, by key.
    pub fn rates(&self, interface: u32) -> Vec<f32> {
        let held = self.around.ledger.held.values().filter(|(held, _)| held.interface == interface);
        held.map(|(held, _)| held.tspec.rate).collect()
    }

    /// How often something was refused.
    pub fn refused(&self, why: altq_rsvp::node::Refusal) -> u64 {
        self.node.counters().refused(why)
    }
}

/// The neighbour on an interface, and the router's address there.
fn next_hop(interface: u32) -> (&'static str, &'static str) {
    match interface {
        IN => ("10.0.1.1", "10.0.1.2"),
        OUT => ("10.0.12.2", "10.0.12.1"),
        _ => ("10.0.13.2", "10.0.13.1"),
    }
}

/// A Path of 10.0.1.1, whose handle is 3.
pub fn path(session: Session, sender: Sender, tspec: Tspec) -> Message {
    Message::Path(Path {
        session,
        session_flags: 0,
        hop: Hop { address: ip("10.0.1.1"), handle: 3 },
        refresh_ms: R,
        sender,
        tspec,
        adspec: None,
        passed_on: Vec::new(),
    })
}

/// The message in a datagram.
pub fn read(transmit: &Transmit) -> Message {
    decode(&transmit.message).unwrap().message
}

/// A router with one sender of 62,500 bytes/s, and a reservation of it.
pub fn reserved() -> Router {
    let mut router = Router::plain();
    router.path(session(5004), sender(4000), tspec(62_500.0, 10_000.0));
    router.resv(OUT, session(5004), Style::Fixed, &[(tspec(62_500.0, 10_000.0), &[sender(4000)])]);
    assert_eq!(router.rates(OUT), [62_500.0_f32]);
    router
}
