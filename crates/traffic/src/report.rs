//! A flow's figures as each end knows them, and how the two are combined.

use altq_cases::gaps::GapSummary;
use altq_dataplane::TcpInfo;
use altq_dataplane::sketch::Sketch;
use altq_engine::units::{Nanos, SECOND};
use serde::{Deserialize, Serialize};

use crate::meter::Meter;

/// A flow's counters so far, at one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FlowReport {
    /// Payload received so far, in bytes.
    pub bytes: u64,
    /// Datagrams received, or transactions or connections completed, so far.
    pub received: u64,
    /// Datagrams or requests sent so far.
    pub sent: u64,
    /// The number after the highest of a datagram received so far.
    #[serde(default)]
    pub next: u64,
    /// Requests without an answer, or connections that were not made, so far.
    pub failed: u64,
    /// Datagrams whose numbers are below the highest that has arrived, and which have not arrived
    /// so far.
    pub missing: u64,
    /// Mean over the connections of the smoothed round trip in the sender's kernel.
    pub tcp_rtt_ns: Option<Nanos>,
    /// Segments retransmitted so far.
    pub retransmits: Option<u64>,
}

impl FlowReport {
    /// Reads a meter.
    pub fn of(meter: &Meter) -> FlowReport {
        let reading = meter.read();
        let connections = meter.connections();
        let count = connections.len() as u64;
        FlowReport {
            bytes: reading.bytes,
            received: reading.received,
            sent: reading.sent,
            next: reading.next,
            failed: reading.failed,
            missing: reading.missing,
            tcp_rtt_ns: connections.values().map(|info| u64::from(info.rtt_us) * 1000).sum::<u64>().checked_div(count),
            retransmits: (count > 0).then(|| connections.values().map(|info| u64::from(info.retransmits)).sum()),
        }
    }

    /// Combines the counters of both ends: each end knows a part of them.
    pub fn with(self, other: FlowReport) -> FlowReport {
        FlowReport {
            bytes: self.bytes.max(other.bytes),
            received: self.received.max(other.received),
            sent: self.sent.max(other.sent),
            next: self.next.max(other.next),
            failed: self.failed.max(other.failed),
            missing: self.missing.max(other.missing),
            tcp_rtt_ns: self.tcp_rtt_ns.or(other.tcp_rtt_ns),
            retransmits: self.retransmits.or(other.retransmits),
        }
    }
}

/// A flow's final figures, at one end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FlowEnd {
    /// The counters at the end.
    pub counts: FlowReport,
    /// Datagrams that arrived after one with a higher number.
    pub reordered: u64,
    /// Datagrams that arrived a second time.
    pub duplicates: u64,
    /// Payload received in the window, in bytes.
    pub window_bytes: u64,
    /// Datagrams, transactions or connections in the window.
    pub window_received: u64,
    /// The window's length, in ns: shorter than planned if a transfer of given length ended before.
    pub window_ns: Nanos,
    /// Round trips, or one-way delays.
    pub times: Option<Distribution>,
    /// Interarrival jitter (RFC 3550 6.4.1).
    pub jitter_ns: Option<Nanos>,
    /// Gaps between datagrams.
    pub gaps: Option<GapSummary>,
    /// TCP_INFO of the connections on which this end was the sender.
    pub connections: Vec<Connection>,
    /// How far this end's sender was behind its schedule, if it exceeded the bound.
    pub late: Option<String>,
    /// The first error, if there was one.
    pub error: Option<String>,
}

/// A summary of round trips or delays, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Distribution {
    /// Number of values.
    pub n: u64,
    /// Their mean.
    pub mean: Nanos,
    /// The median; like all percentiles within 1/32.
    pub p50: Nanos,
    /// The 90th percentile.
    pub p90: Nanos,
    /// The 99th percentile.
    pub p99: Nanos,
    /// The 99.9th percentile.
    pub p99_9: Nanos,
    /// The longest.
    pub max: Nanos,
}

impl Distribution {
    /// The summary of a sketch; `None` if it is empty.
    pub fn of(sketch: &Sketch) -> Option<Distribution> {
        (sketch.count() > 0).then(|| Distribution {
            n: sketch.count(),
            mean: sketch.mean(),
            p50: sketch.percentile(50.0),
            p90: sketch.percentile(90.0),
            p99: sketch.percentile(99.0),
            p99_9: sketch.percentile(99.9),
            max: sketch.max(),
        })
    }
}

/// TCP_INFO of a connection at the end of its sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Connection {
    /// Its number in its flow.
    pub stream: u32,
    /// Smoothed round trip.
    pub rtt_ns: Nanos,
    /// The shortest round trip.
    pub min_rtt_ns: Nanos,
    /// Congestion window, in segments.
    pub cwnd_segments: u32,
    /// Payload of a full segment.
    pub mss: u32,
    /// Segments retransmitted.
    pub retransmits: u32,
    /// Payload retransmitted, in bytes.
    pub retransmitted_bytes: u64,
    /// Payload acknowledged, in bytes.
    pub acked_bytes: u64,
    /// The latest measure of the delivery rate.
    pub delivery_rate_bit_s: u64,
    /// Time in which there was data to send, in ns.
    pub busy_ns: Nanos,
    /// Part of it in which the receiver's window limited the sender, in ns.
    pub window_limited_ns: Nanos,
    /// Part of it in which the send buffer limited the sender, in ns.
    pub buffer_limited_ns: Nanos,
}

impl Connection {
    fn of(stream: u32, info: &TcpInfo) -> Connection {
        let nanos = |us: u64| us.saturating_mul(1000);
        Connection {
            stream,
            rtt_ns: nanos(info.rtt_us.into()),
            // The kernel's value for "not measured yet" is the largest number.
            min_rtt_ns: if info.min_rtt_us == u32::MAX { 0 } else { nanos(info.min_rtt_us.into()) },
            cwnd_segments: info.cwnd,
            mss: info.mss,
            retransmits: info.retransmits,
            retransmitted_bytes: info.retransmitted_bytes,
            acked_bytes: info.acked_bytes,
            delivery_rate_bit_s: info.delivery_rate.saturating_mul(8),
            busy_ns: nanos(info.busy_us),
            window_limited_ns: nanos(info.window_limited_us),
            buffer_limited_ns: nanos(info.buffer_limited_us),
        }
    }
}

impl FlowEnd {
    /// Reads a meter at `now`, in ns since the start of the run. `done`: all payload has arrived,
    /// so the window ends when the last of it arrived.
    pub fn of(meter: &Meter, now: Nanos, done: bool, error: Option<String>) -> FlowEnd {
        let reading = meter.read();
        let window = meter.window();
        let end = if done { reading.last } else { now }.clamp(window.start, window.end);
        FlowEnd {
            counts: FlowReport::of(meter),
            reordered: reading.reordered,
            duplicates: reading.duplicates,
            window_bytes: reading.window_bytes,
            window_received: reading.window_received,
            window_ns: end - window.start,
            times: Distribution::of(&meter.distribution()),
            jitter_ns: meter.jitter(),
            gaps: meter.gaps(),
            connections: meter.connections().iter().map(|(stream, info)| Connection::of(*stream, info)).collect(),
            late: meter.lateness().broken(),
            error,
        }
    }
}

/// `count` in a time (ns), as a rate per second.
pub fn per_second(count: u64, time: Nanos) -> f64 {
    if time == 0 { 0.0 } else { count as f64 * SECOND as f64 / time as f64 }
}

/// Bytes in a time (ns), as bit/s, rounded down.
pub fn bit_s(bytes: u64, time: Nanos) -> u64 {
    u64::try_from(u128::from(bytes) * 8 * u128::from(SECOND) / u128::from(time.max(1))).unwrap_or(u64::MAX)
}
