//! The JSON documents with which the daemon answers `altq rsvp` (docs/rsvp.md).

use std::collections::BTreeMap;
use std::net::IpAddr;

use altq_rsvp::node::{NeighbourView, Node, PathView, ReservationView};
use altq_rsvp::wire::{self, LATENCY_UNKNOWN, Sender, Session, Style, parameter, service};
use serde::{Deserialize, Serialize};

/// All path state: `altq.rsvp-paths/1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Paths {
    /// The name of this form of the document.
    pub schema: String,
    /// The paths, by session and sender.
    pub paths: Vec<Path>,
}

/// The path of a sender.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Path {
    /// The session.
    #[serde(flatten)]
    pub session: Destination,
    /// The sender.
    #[serde(flatten)]
    pub sender: Source,
    /// What it sends.
    pub tspec: Tspec,
    /// The previous hop (PHOP); None for a sender on this host.
    pub previous_hop: Option<IpAddr>,
    /// The interface that it comes by; None for a sender here.
    pub incoming: Option<String>,
    /// The interface that it leaves by; None if it ends here.
    pub outgoing: Option<String>,
    /// Whether a router without RSVP is before this one.
    pub gap: bool,
    /// Routers with RSVP before this one, by the Adspec.
    pub hops: Option<u32>,
    /// The smallest bandwidth before this router that can be reserved, bit/s, by the Adspec.
    pub bandwidth_bit_s: Option<u64>,
    /// The smallest latency before this router, microseconds, by the Adspec.
    pub latency_us: Option<u32>,
    /// The smallest MTU before this router, bytes, by the Adspec.
    pub mtu: Option<u32>,
    /// Seconds until it goes unless it is refreshed; None for a sender here.
    pub expires_s: Option<f64>,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Destination {
    /// The destination.
    pub dst: IpAddr,
    /// Its port.
    pub dport: u16,
    /// The IP protocol, by name or number.
    pub proto: String,
}

/// A sender.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Source {
    /// The source.
    pub src: IpAddr,
    /// Its port.
    pub sport: u16,
}

/// A token bucket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Tspec {
    /// r, bit/s.
    pub rate_bit_s: u64,
    /// b, bytes.
    pub burst_bytes: u64,
    /// p, bit/s; None if it is infinite.
    pub peak_bit_s: Option<u64>,
    /// m, bytes.
    pub min_unit_bytes: u32,
    /// M, bytes.
    pub max_packet_bytes: u32,
}

/// All reservation requests: `altq.rsvp-reservations/1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reservations {
    /// The name of this form of the document.
    pub schema: String,
    /// The requests, by session.
    pub reservations: Vec<Reservation>,
}

/// A reservation request, and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reservation {
    /// The session.
    #[serde(flatten)]
    pub session: Destination,
    /// `ff`: one reservation for each sender; `se`: the senders share one.
    pub style: String,
    /// The senders.
    pub senders: Vec<Source>,
    /// What the next hop asked for.
    pub asked: Tspec,
    /// What is reserved here: no more than the senders announced. None for a receiver here, for
    /// whom nothing is reserved behind this router.
    pub reserved: Option<Tspec>,
    /// The class, as `altq stat` names it.
    pub class: Option<String>,
    /// The reservation's key in `altq reserve list`; None for a receiver here.
    pub key: Option<String>,
    /// The next hop; None for a receiver here.
    pub next_hop: Option<IpAddr>,
    /// The interface that the packets leave by; None for a receiver here.
    pub interface: Option<String>,
    /// Whether a change of the reservation waits until it may be made.
    pub changing: bool,
    /// Seconds until it goes unless it is refreshed; None for a receiver here.
    pub expires_s: Option<f64>,
}

/// The neighbours, and the message counters: `altq.rsvp-neighbours/1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Neighbours {
    /// The name of this form of the document.
    pub schema: String,
    /// Sessions in all.
    pub sessions: usize,
    /// Neighbours that have sent a message about a session that is known.
    pub neighbours: Vec<Neighbour>,
    /// Messages that were accepted, by type.
    pub received: BTreeMap<String, u64>,
    /// Messages that were sent, by type.
    pub sent: BTreeMap<String, u64>,
    /// Messages between other nodes that this node forwarded.
    pub passed_on: u64,
    /// Messages that could not be sent.
    pub unsent: u64,
    /// What was refused, by reason.
    pub refused: BTreeMap<String, u64>,
}

/// A neighbour.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Neighbour {
    /// The interface.
    pub interface: String,
    /// Its address.
    pub address: IpAddr,
    /// Seconds since its last message.
    pub heard_s: f64,
    /// How many reservations it asks for.
    pub reservations: usize,
}

/// The answer to a request that changes something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// False if there was nothing to change.
    pub changed: bool,
}

impl Destination {
    /// A session.
    pub fn of(session: &Session) -> Destination {
        let number = session.protocol;
        let name = altq_config::protocol_name(number).map_or_else(|| number.to_string(), str::to_owned);
        Destination { dst: session.address, dport: session.port, proto: name }
    }
}

impl Source {
    /// A sender. One that is told apart by a flow label has port 0.
    pub fn of(sender: &Sender) -> Source {
        Source { src: sender.address, sport: sender.port().unwrap_or(0) }
    }
}

impl Tspec {
    /// A token bucket as it is on the wire.
    pub fn of(tspec: &wire::Tspec) -> Tspec {
        // The conversion takes what is out of range to the nearest number that is in range.
        let whole = |value: f64| value.ceil() as u64;
        Tspec {
            rate_bit_s: whole(f64::from(tspec.rate) * 8.0),
            burst_bytes: whole(f64::from(tspec.burst)),
            peak_bit_s: tspec.peak.is_finite().then(|| whole(f64::from(tspec.peak) * 8.0)),
            min_unit_bytes: tspec.min_unit,
            max_packet_bytes: tspec.max_packet,
        }
    }
}

/// Names and the time that the documents need and the node does not know.
pub struct Context<'a> {
    /// The time, on the clock that the node uses.
    pub now: u64,
    /// The name of an interface.
    pub name: &'a dyn Fn(u32) -> String,
    /// The class of a reservation, by its key.
    pub class: &'a dyn Fn(&str) -> Option<String>,
}

impl Context<'_> {
    fn left(&self, expires: Option<u64>) -> Option<f64> {
        expires.map(|at| seconds(at.saturating_sub(self.now)))
    }

    /// All path state of a node.
    pub fn paths(&self, node: &Node) -> Paths {
        let path = |view: PathView| {
            let general = |id: u8| view.adspec.as_ref().and_then(|adspec| adspec.word(service::GENERAL, id));
            let bandwidth = general(parameter::BANDWIDTH).map(f32::from_bits);
            Path {
                session: Destination::of(&view.session),
                sender: Source::of(&view.sender),
                tspec: Tspec::of(&view.tspec),
                previous_hop: view.previous_hop,
                incoming: view.incoming.map(self.name),
                outgoing: view.outgoing.map(self.name),
                gap: view.gap,
                hops: general(parameter::HOPS),
                bandwidth_bit_s: bandwidth.map(|rate| (f64::from(rate) * 8.0) as u64),
                latency_us: general(parameter::LATENCY).filter(|latency| *latency != LATENCY_UNKNOWN),
                mtu: general(parameter::MTU),
                expires_s: self.left(view.expires),
            }
        };
        Paths { schema: "altq.rsvp-paths/1".to_owned(), paths: node.paths().into_iter().map(path).collect() }
    }

    /// All requests of a node.
    pub fn reservations(&self, node: &Node) -> Reservations {
        let reservation = |view: ReservationView| Reservation {
            session: Destination::of(&view.session),
            style: match view.style {
                Style::Fixed => "ff",
                Style::Shared => "se",
                Style::Wildcard => "wf",
            }
            .to_owned(),
            senders: view.senders.iter().map(Source::of).collect(),
            asked: Tspec::of(&view.asked),
            reserved: view.reserved.as_ref().map(Tspec::of),
            class: (self.class)(&view.key),
            key: view.interface.map(|_| view.key),
            next_hop: view.next_hop,
            interface: view.interface.map(self.name),
            changing: view.changing,
            expires_s: self.left(view.expires),
        };
        let reservations = node.reservations().into_iter().map(reservation).collect();
        Reservations { schema: "altq.rsvp-reservations/1".to_owned(), reservations }
    }

    /// Neighbours and counters of a node.
    pub fn neighbours(&self, node: &Node, unsent: u64) -> Neighbours {
        let neighbour = |view: NeighbourView| Neighbour {
            interface: (self.name)(view.interface),
            address: view.address,
            heard_s: seconds(self.now.saturating_sub(view.heard)),
            reservations: view.requests,
        };
        let counters = node.counters();
        let by_type = |counts: &BTreeMap<&'static str, u64>| {
            counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
        };
        Neighbours {
            schema: "altq.rsvp-neighbours/1".to_owned(),
            sessions: node.sessions(),
            neighbours: node.neighbours().into_iter().map(neighbour).collect(),
            received: by_type(&counters.received),
            sent: by_type(&counters.sent),
            passed_on: counters.passed_on,
            unsent,
            refused: counters.refused.iter().map(|(why, count)| (why.reason().to_owned(), *count)).collect(),
        }
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_bucket_is_in_bits_and_whole_bytes() {
        let tspec =
            wire::Tspec { rate: 62_500.0, burst: 10_000.5, peak: f32::INFINITY, min_unit: 128, max_packet: 1500 };
        let expected = Tspec {
            rate_bit_s: 500_000,
            burst_bytes: 10_001,
            peak_bit_s: None,
            min_unit_bytes: 128,
            max_packet_bytes: 1500,
        };
        assert_eq!(Tspec::of(&tspec), expected);
        let session = Session { address: [10, 0, 2, 2].into(), protocol: 17, port: 5004 };
        assert_eq!(
            serde_json::to_string(&Destination::of(&session)).unwrap(),
            r#"{"dst":"10.0.2.2","dport":5004,"proto":"udp"}"#
        );
        assert_eq!(Destination::of(&Session { protocol: 253, ..session }).proto, "253");
    }
}
