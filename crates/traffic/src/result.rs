//! The result that `altq traffic` writes, in the schema `altq.traffic/1`.

use altq_cases::gaps::GapSummary;
use altq_engine::units::Nanos;
use serde::Serialize;

use crate::client::{Flow, Outcome, printable};
use crate::meter::Reading;
use crate::plan::{Direction, Work};
use crate::report::{Connection, Distribution, FlowEnd, bit_s, per_second};

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TrafficResult {
    /// `altq.traffic/1`.
    pub schema: &'static str,
    /// False if the figures cannot be trusted; `invalid` says why.
    pub valid: bool,
    /// Reasons why the figures cannot be trusted.
    pub invalid: Vec<String>,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// The program's version.
    pub version: &'static str,
    /// The command line, without the token.
    pub command: String,
    /// The server, as named on the command line.
    pub server: String,
    /// When the run began, by the client's clock of the day, in ns since 1970.
    pub began_unix_ns: Nanos,
    /// Duration of the run.
    pub ran_ns: Nanos,
    /// Figures begin this long after each flow's start.
    pub warmup_ns: Nanos,
    /// Seed of the sources' random choices.
    pub seed: u64,
    /// The flows' figures.
    pub flows: Vec<FlowResult>,
}

/// A flow's figures.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlowResult {
    /// Its name.
    pub name: String,
    /// As in cases: `tcp_bulk`, `tcp_rr`, `tcp_connect`, `udp`, `udp_rr`.
    pub kind: &'static str,
    /// `up` or `down`; `both` for requests and connections.
    pub direction: &'static str,
    /// `ipv4` or `ipv6`.
    pub family: &'static str,
    /// DSCP of its packets.
    pub dscp: u8,
    /// Number of connections at once.
    pub streams: u32,
    /// Congestion control that was asked for; `None`: the system's own.
    pub congestion: Option<String>,
    /// Length of the part of the run that the figures are about.
    pub window_ns: Nanos,
    /// Payload that the receiving program read, in bit/s; for requests and responses, that of
    /// requests.
    pub goodput_bit_s: u64,
    /// The same payload in bytes.
    pub bytes: u64,
    /// Requests answered, or connections made and closed, per second.
    pub transactions_per_s: Option<f64>,
    /// Requests without an answer, or connections that were not made, in the whole run.
    pub failed: Option<u64>,
    /// Round trips as the program sees them; of a short connection, the time from opening to
    /// closing it.
    pub rtt_ns: Option<Distribution>,
    /// One-way delays, if both ends have one clock.
    pub delay_ns: Option<Distribution>,
    /// Interarrival jitter (RFC 3550 6.4.1).
    pub jitter_ns: Option<Nanos>,
    /// Counts of datagrams, in the whole run.
    pub packets: Option<Packets>,
    /// Gaps between datagrams at the receiver.
    pub gaps: Option<GapSummary>,
    /// TCP_INFO of the sender's connections.
    pub connections: Vec<Connection>,
    /// The first error, if there was one.
    pub error: Option<String>,
}

/// Counts of datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Packets {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams received, each number once.
    pub received: u64,
    /// Datagrams that did not arrive though a later one did; all, if none arrived.
    pub lost: u64,
    /// Lost datagrams as a fraction of those lost or received.
    pub loss: f64,
    /// Datagrams sent after the last that arrived: `sent = received + lost + under_way`.
    pub under_way: u64,
    /// Datagrams that arrived after one with a higher number (RFC 4737, 3.3).
    pub reordered: u64,
    /// Datagrams that arrived a second time.
    pub duplicates: u64,
}

impl TrafficResult {
    /// Combines the figures of both ends. `flows` are those of all sessions, in order, each with
    /// two flags: it is IPv4, and both ends have one clock.
    pub fn new(
        server: String,
        command: String,
        warmup_ns: Nanos,
        seed: u64,
        flows: &[(Flow, bool, bool)],
        outcome: Outcome,
    ) -> TrafficResult {
        let mut invalid = outcome.invalid;
        let mut rows = Vec::new();
        for ((flow, ipv4, one_clock), (ours, theirs)) in flows.iter().zip(outcome.flows) {
            let name = &flow.spec.name;
            for end in [&ours, &theirs] {
                if let Some(late) = &end.late {
                    invalid.push(format!("the source of flow `{name}` was behind its schedule: {}", printable(late)));
                }
            }
            let row = FlowResult::new(flow, *ipv4, *one_clock, ours, theirs);
            if let Some(error) = &row.error {
                invalid.push(format!("flow `{name}`: {error}"));
            }
            rows.push(row);
        }
        let mut notes = outcome.notes;
        if flows.iter().any(|(flow, _, one_clock)| matches!(flow.spec.work, Work::Udp(_)) && !one_clock) {
            notes.push(
                "client and server have different clocks: datagrams have no one-way delay (requests have round trips)"
                    .into(),
            );
        }
        TrafficResult {
            schema: "altq.traffic/1",
            valid: invalid.is_empty(),
            invalid,
            notes,
            version: env!("CARGO_PKG_VERSION"),
            command,
            server,
            began_unix_ns: outcome.began,
            ran_ns: outcome.ran,
            warmup_ns,
            seed,
            flows: rows,
        }
    }
}

impl FlowResult {
    fn new(flow: &Flow, ipv4: bool, one_clock: bool, ours: FlowEnd, theirs: FlowEnd) -> FlowResult {
        let spec = &flow.spec;
        let asks = spec.work.has_round_trips();
        let error = ours.error.clone().or_else(|| theirs.error.as_deref().map(printable));
        let (sender, receiver) = match spec.direction {
            _ if asks => (&theirs, &ours),
            Direction::Up => (&ours, &theirs),
            Direction::Down => (&theirs, &ours),
        };
        let sent = sender.counts.sent.max(receiver.counts.sent);
        let packets = matches!(spec.work, Work::Udp(_)).then(|| {
            let (received, next) = (receiver.counts.received, receiver.counts.next);
            let fates = Reading { sent, received, next, ..Reading::default() }.fates(&Reading::default());
            Packets {
                sent,
                received,
                lost: fates.lost,
                loss: fates.loss().unwrap_or(0.0),
                under_way: fates.under_way,
                reordered: receiver.reordered,
                duplicates: receiver.duplicates,
            }
        });
        FlowResult {
            name: spec.name.clone(),
            kind: spec.work.kind(),
            direction: match spec.direction {
                _ if asks => "both",
                Direction::Up => "up",
                Direction::Down => "down",
            },
            family: if ipv4 { "ipv4" } else { "ipv6" },
            dscp: spec.dscp,
            streams: spec.work.streams(),
            congestion: spec.congestion.clone(),
            window_ns: receiver.window_ns,
            goodput_bit_s: bit_s(receiver.window_bytes, receiver.window_ns),
            bytes: receiver.window_bytes,
            transactions_per_s: asks.then(|| per_second(receiver.window_received, receiver.window_ns)),
            failed: asks.then_some(receiver.counts.failed),
            rtt_ns: if asks { receiver.times } else { None },
            delay_ns: if asks || !one_clock { None } else { receiver.times },
            jitter_ns: if packets.is_some() { receiver.jitter_ns } else { None },
            packets,
            gaps: if packets.is_some() { receiver.gaps.clone() } else { None },
            connections: sender.connections.clone(),
            error,
        }
    }
}
