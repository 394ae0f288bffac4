//! `altq.traffic/1`: what `altq traffic` writes.

use altq_cases::gaps::GapSummary;
use altq_engine::units::Nanos;
use serde::Serialize;

use crate::client::{Flow, Outcome, printable};
use crate::plan::{Direction, Work};
use crate::report::{Connection, Distribution, FlowEnd, bit_s, per_second};

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct TrafficResult {
    /// `altq.traffic/1`.
    pub schema: &'static str,
    /// False where the figures are not to be trusted; `invalid` says why.
    pub valid: bool,
    /// Why not.
    pub invalid: Vec<String>,
    /// What the reader must know.
    pub notes: Vec<String>,
    /// The program's version.
    pub version: &'static str,
    /// What was typed, without the token.
    pub command: String,
    /// The server as it was named.
    pub server: String,
    /// How long it ran.
    pub ran_ns: Nanos,
    /// Figures count from so long after each flow's start.
    pub warmup_ns: Nanos,
    /// Of what sources drew.
    pub seed: u64,
    /// Flow by flow.
    pub flows: Vec<FlowResult>,
}

/// What came of a flow.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FlowResult {
    /// Its name.
    pub name: String,
    /// As in cases: `tcp_bulk`, `tcp_rr`, `tcp_connect`, `udp`, `udp_rr`.
    pub kind: &'static str,
    /// `up`, `down`; `both` for what asks.
    pub direction: &'static str,
    /// `ipv4` or `ipv6`.
    pub family: &'static str,
    /// Of its packets.
    pub dscp: u8,
    /// Connections side by side.
    pub streams: u32,
    /// As asked for; `None`: the system's own.
    pub congestion: Option<String>,
    /// The time of which figures are given.
    pub window_ns: Nanos,
    /// Payload that the receiver's program has read, in bit/s; of requests only, where it asks.
    pub goodput_bit_s: u64,
    /// The same in bytes.
    pub bytes: u64,
    /// Requests answered, or connections made and closed, a second.
    pub transactions_per_s: Option<f64>,
    /// Requests without an answer, connections that were not made; over the whole run.
    pub failed: Option<u64>,
    /// Round trips as the program sees them; of a connection: made, a few bytes and one back,
    /// closed.
    pub rtt_ns: Option<Distribution>,
    /// From end to end, where both have one clock.
    pub delay_ns: Option<Distribution>,
    /// RFC 3550 6.4.1.
    pub jitter_ns: Option<Nanos>,
    /// Of datagrams, over the whole run.
    pub packets: Option<Packets>,
    /// Between datagrams, at the receiver.
    pub gaps: Option<GapSummary>,
    /// What the sender's kernel knew of its connections (TCP_INFO).
    pub connections: Vec<Connection>,
    /// What went wrong.
    pub error: Option<String>,
}

/// Datagrams, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Packets {
    /// Sent.
    pub sent: u64,
    /// Received, each number once.
    pub received: u64,
    /// Sent and not received.
    pub lost: u64,
    /// The same as a fraction of those sent.
    pub loss: f64,
    /// Behind one with a higher number (RFC 4737).
    pub reordered: u64,
    /// A second time.
    pub duplicates: u64,
}

impl TrafficResult {
    /// Puts together what both ends know. `flows` are those of all sessions, in their order, each
    /// with true for IPv4 and true where both ends have one clock.
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
            let received = receiver.counts.received;
            let lost = sent.saturating_sub(received);
            let loss = if sent == 0 { 0.0 } else { lost as f64 / sent as f64 };
            Packets { sent, received, lost, loss, reordered: receiver.reordered, duplicates: receiver.duplicates }
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
