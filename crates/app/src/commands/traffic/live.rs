//! Shows how a run of `altq traffic` goes: one line per interval, on stderr for people or as JSON
//! Lines on stdout.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use altq_engine::units::Nanos;
use altq_traffic::client::{Flow, FlowProgress, Progress};
use altq_traffic::plan::{Direction, Work};
use serde::Serialize;

use crate::output;

/// Prints the lines.
pub struct Live {
    flows: Vec<Flow>,
    how: How,
    duration: Nanos,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Json,
    Lines,
    Silent,
}

/// A line of JSON, schema `altq.traffic_live/1`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Line<'a> {
    schema: &'static str,
    at_ns: Nanos,
    /// The same moment by this host's clock of the day, in ns since 1970.
    unix_ns: Nanos,
    flows: Vec<FlowLine<'a>>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FlowLine<'a> {
    name: &'a str,
    /// Payload bytes received since the start; `rate_bit_s` is the rate over the last interval.
    bytes: u64,
    /// It is null if the server, which received them, did not report.
    rate_bit_s: Option<u64>,
    /// Datagrams, transactions or connections since the start; `per_second` is over the last
    /// interval.
    received: u64,
    per_second: Option<f64>,
    sent: u64,
    failed: u64,
    /// Datagrams since the start with numbers below the highest that has arrived, and which have
    /// not arrived.
    missing: Option<u64>,
    /// Round trips, or one-way delays that the client measures, over the last interval.
    p50_ns: Option<Nanos>,
    p99_ns: Option<Nanos>,
    tcp_rtt_ns: Option<Nanos>,
    retransmits: Option<u64>,
}

impl Live {
    /// Prints lines about these flows.
    pub fn new(flows: &[(Flow, bool, bool)], json: bool, quiet: bool, duration: Nanos) -> Live {
        let how = match (quiet, json) {
            (true, _) => How::Silent,
            (false, true) => How::Json,
            (false, false) => How::Lines,
        };
        Live { flows: flows.iter().map(|(flow, ..)| flow.clone()).collect(), how, duration }
    }

    /// Prints the line of an interval.
    pub fn show(&mut self, progress: &Progress) {
        match self.how {
            How::Silent => {}
            How::Json => {
                let line = self.json(progress);
                // If the reader of the pipe has gone, printing the result will report it.
                let _ = output::print_json(&line);
            }
            How::Lines => {
                let mut text = self.line(progress);
                let mut err = io::stderr().lock();
                if err.is_terminal()
                    && let Some(width) = width(&err)
                {
                    text = text.chars().take(width.saturating_sub(1).max(20)).collect();
                }
                let _ = writeln!(err, "{text}");
            }
        }
    }

    fn json<'a>(&'a self, progress: &Progress) -> Line<'a> {
        let flow = |(flow, now): (&'a Flow, &FlowProgress)| {
            let seen = |value: Nanos| (now.recent.count() > 0).then_some(value);
            FlowLine {
                name: &flow.spec.name,
                bytes: now.counts.bytes,
                rate_bit_s: now.rate_bit_s,
                received: now.counts.received,
                per_second: now.per_second,
                sent: now.counts.sent,
                failed: now.counts.failed,
                missing: matches!(flow.spec.work, Work::Udp(_)).then_some(now.counts.missing),
                p50_ns: seen(now.recent.percentile(50.0)),
                p99_ns: seen(now.recent.percentile(99.0)),
                tcp_rtt_ns: now.counts.tcp_rtt_ns,
                retransmits: now.counts.retransmits,
            }
        };
        let flows = self.flows.iter().zip(&progress.flows).map(flow).collect();
        Line { schema: "altq.traffic_live/1", at_ns: progress.at, unix_ns: progress.unix, flows }
    }

    /// The line for people: the rate in each direction over all flows, and the round trips.
    fn line(&self, progress: &Progress) -> String {
        let all = || self.flows.iter().zip(&progress.flows);
        let carried = |direction: Direction| {
            let of = all().filter(|(flow, _)| flow.spec.direction == direction && !flow.spec.work.has_round_trips());
            of.clone().next().map(|_| of.map(|(_, now)| now.rate_bit_s).sum::<Option<u64>>())
        };
        let mut parts = vec![format!("{:>5.1} of {:.0} s", progress.at as f64 / 1e9, self.duration as f64 / 1e9)];
        for (way, direction) in [("up", Direction::Up), ("down", Direction::Down)] {
            if let Some(rate) = carried(direction) {
                parts.push(format!("{way} {}", rate.map_or("?".into(), output::rate)));
            }
        }
        if all().any(|(flow, _)| flow.spec.work.has_round_trips()) {
            let sum: f64 = all()
                .filter(|(flow, _)| flow.spec.work.has_round_trips())
                .map(|(_, now)| now.per_second.unwrap_or(0.0))
                .sum();
            let mut times = altq_dataplane::sketch::Sketch::default();
            all().filter(|(flow, _)| flow.spec.work.has_round_trips()).for_each(|(_, now)| times.merge(&now.recent));
            parts.push(format!("{sum:.0}/s"));
            if times.count() > 0 {
                parts.push(format!("p50 {}", output::time(times.percentile(50.0))));
                parts.push(format!("p99 {}", output::time(times.percentile(99.0))));
            }
        }
        let failed: u64 = all().map(|(_, now)| now.counts.failed).sum();
        if failed > 0 {
            parts.push(format!("failed {failed}"));
        }
        if let Some(sent) = all()
            .filter(|(flow, _)| matches!(flow.spec.work, Work::TcpBulk { .. }))
            .map(|(_, now)| now.counts.retransmits)
            .reduce(|a, b| Some(a.unwrap_or(0) + b.unwrap_or(0)))
        {
            parts.push(format!("resent {}", sent.unwrap_or(0)));
        }
        parts.join("  ")
    }
}

/// The number of columns of a terminal.
pub fn width(terminal: &impl AsFd) -> Option<usize> {
    rustix::termios::tcgetwinsize(terminal).ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

#[cfg(test)]
mod tests {
    use altq_traffic::plan::FlowSpec;

    use super::*;

    /// The line for people, 2.5 s after the start of 10 s.
    fn line(flows: Vec<(Direction, Work, FlowProgress)>) -> String {
        let (mut known, mut now) = (Vec::new(), Vec::new());
        for (direction, work, progress) in flows {
            let spec = FlowSpec {
                name: "f".into(),
                direction,
                work,
                start_ns: 0,
                stop_ns: 10_000_000_000,
                dscp: 0,
                congestion: None,
                buffers: None,
                port: 1,
            };
            known.push(Flow { spec, sport: 0 });
            now.push(progress);
        }
        let live = Live { flows: known, how: How::Lines, duration: 10_000_000_000 };
        live.line(&Progress { at: 2_500_000_000, unix: 0, flows: now })
    }

    #[test]
    fn a_line_has_the_rate_of_each_direction() {
        let bulk = |direction, rate_bit_s, retransmits| {
            let mut progress = FlowProgress { rate_bit_s, ..FlowProgress::default() };
            progress.counts.retransmits = retransmits;
            (direction, Work::TcpBulk { streams: 1, bytes: None }, progress)
        };
        let up = |rate| bulk(Direction::Up, rate, Some(2));
        let down = |rate| bulk(Direction::Down, rate, None);
        assert_eq!(line(vec![up(Some(3_000_000)), up(Some(4_000_000))]), "  2.5 of 10 s  up 7.00 Mbit/s  resent 4");
        assert_eq!(
            line(vec![up(Some(800_000)), down(Some(0))]),
            "  2.5 of 10 s  up 800 kbit/s  down 0 bit/s  resent 2"
        );
        // What the server did not report is not known, nor is a sum with it.
        assert_eq!(line(vec![up(None), down(Some(5))]), "  2.5 of 10 s  up ?  down 5 bit/s  resent 2");
        assert_eq!(line(vec![up(Some(3_000_000)), up(None)]), "  2.5 of 10 s  up ?  resent 4");
    }

    #[test]
    fn a_line_has_round_trips_and_failures() {
        let requests = |per_second, times: &[Nanos], failed| {
            let mut progress = FlowProgress { per_second, ..FlowProgress::default() };
            progress.counts.failed = failed;
            times.iter().for_each(|time| progress.recent.add(*time));
            (Direction::Up, Work::UdpRr { streams: 1, request: 8, response: 8, interval_ns: None }, progress)
        };
        let two = vec![requests(Some(99.6), &[7], 0), requests(Some(0.4), &[7], 2)];
        assert_eq!(line(two), "  2.5 of 10 s  100/s  p50 7 ns  p99 7 ns  failed 2");
        assert_eq!(line(vec![requests(None, &[], 0)]), "  2.5 of 10 s  0/s");
    }
}
