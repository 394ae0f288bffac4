//! Flows as client and server exchange them, and the checks against a server's limits.

use altq_cases::case::{Pace, Shape, Spans, Udp};
use altq_engine::units::{Nanos, Rate, SECOND};
use serde::{Deserialize, Serialize};

use crate::connect::Close;
use crate::echo;
use crate::protocol::{Caps, Plan};
use crate::request::Sizes;
use crate::socket::Tuning;

/// A flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowSpec {
    /// Its name in the result.
    pub name: String,
    /// The direction of its load. Requests and connections always come from the client.
    pub direction: Direction,
    /// What it does.
    pub work: Work,
    /// When it begins, in ns from the start of the run.
    pub start_ns: Nanos,
    /// When it stops sending, in ns from the start of the run.
    pub stop_ns: Nanos,
    /// DSCP of its packets, 0 to 63.
    pub dscp: u8,
    /// Congestion control of both ends; `None`: each system's own.
    pub congestion: Option<String>,
    /// Socket buffers of both ends, in bytes; `None`: the kernels tune them.
    pub buffers: Option<u32>,
    /// The port of the server that it uses, one of those that the server listens on.
    pub port: u16,
}

/// The direction of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// What a flow does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Work {
    /// TCP at full speed.
    TcpBulk {
        /// Number of connections at once.
        streams: u32,
        /// Payload of each connection, in bytes; `None`: it sends until the flow stops.
        bytes: Option<u64>,
    },
    /// Requests and responses over TCP.
    TcpRr {
        /// Number of connections at once.
        streams: u32,
        /// Bytes of a request.
        request: u32,
        /// Bytes of a response.
        response: u32,
        /// Time from one request to the next, in ns; `None`: each is sent after the last answer.
        interval_ns: Option<Nanos>,
    },
    /// Short connections over TCP.
    TcpConnect {
        /// Number of clients at once.
        streams: u32,
        /// How the client closes them.
        close: Close,
    },
    /// Datagrams on a schedule.
    Udp(Datagrams),
    /// Requests and responses over UDP.
    UdpRr {
        /// Number of clients at once.
        streams: u32,
        /// Payload of a request.
        request: u32,
        /// Payload of a response.
        response: u32,
        /// Time from one request to the next, answered or not, in ns; `None`: each is sent after
        /// the last answer.
        interval_ns: Option<Nanos>,
    },
}

/// Datagrams on a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Datagrams {
    /// Packet sizes at layer 3, in bytes. If there are several, each packet's is chosen with equal
    /// probability.
    pub sizes: Vec<u32>,
    /// When they are sent.
    pub schedule: Schedule,
}

/// When datagrams are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Schedule {
    /// At a constant rate.
    Constant(Beat),
    /// As a Poisson process with this mean rate.
    Poisson(Beat),
    /// At a constant rate in on periods, silent in off periods.
    OnOff {
        /// The rate in on periods.
        beat: Beat,
        /// Length of an on period, in ns.
        on_ns: Nanos,
        /// Length of an off period, in ns.
        off_ns: Nanos,
        /// True if the lengths are means of exponential distributions.
        random: bool,
    },
    /// Bursts of packets sent at once.
    Bursts {
        /// Number of packets in a burst.
        packets: u32,
        /// Time from one burst to the next, in ns.
        every_ns: Nanos,
    },
}

/// A rate, or the time between packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Beat {
    /// Rate at layer 3, in bit/s.
    RateBitS(u64),
    /// Time from one packet to the next, in ns.
    IntervalNs(Nanos),
}

impl Beat {
    fn pace(self) -> Pace {
        match self {
            Beat::RateBitS(rate) => Pace::Rate(Rate::bit_s(rate)),
            Beat::IntervalNs(interval) => Pace::Interval(interval),
        }
    }

    /// The rate for packets of a size, in bit/s.
    fn rate(self, size: u32) -> u64 {
        match self {
            Beat::RateBitS(rate) => rate,
            Beat::IntervalNs(interval) => rate(size, 1, interval),
        }
    }
}

/// The rate of `packets` packets of `size` bytes in `time`, in bit/s.
fn rate(size: u32, packets: u32, time: Nanos) -> u64 {
    let bits = u128::from(size) * 8 * u128::from(packets) * u128::from(SECOND);
    u64::try_from(bits / u128::from(time.max(1))).unwrap_or(u64::MAX)
}

impl Datagrams {
    /// The same datagrams, described as a source of a case (`crates/cases`).
    pub fn udp(&self) -> Udp {
        let shape = match self.schedule {
            Schedule::Constant(beat) => Shape::Constant(beat.pace()),
            Schedule::Poisson(beat) => Shape::Poisson(beat.pace()),
            Schedule::OnOff { beat, on_ns, off_ns, random } => {
                let spans = if random { Spans::Exponential } else { Spans::Fixed };
                Shape::OnOff { pace: beat.pace(), on: on_ns, off: off_ns, spans }
            }
            Schedule::Bursts { packets, every_ns } => Shape::Bursts { packets, every: every_ns },
        };
        Udp { sizes: self.sizes.clone(), shape }
    }

    /// Its highest rate in bit/s, averaged over at least one burst and the time to the next.
    pub fn rate(&self) -> u64 {
        let largest = self.sizes.iter().copied().max().unwrap_or(0);
        match self.schedule {
            Schedule::Constant(beat) | Schedule::Poisson(beat) | Schedule::OnOff { beat, .. } => beat.rate(largest),
            Schedule::Bursts { packets, every_ns } => rate(largest, packets, every_ns),
        }
    }

    fn check(&self) -> Result<(), String> {
        if self.sizes.is_empty() || self.sizes.len() > 64 {
            return Err("a flow has one to 64 sizes".into());
        }
        if let Some(size) = self.sizes.iter().find(|size| !(29..=65_535).contains(*size)) {
            return Err(format!(
                "no packet has {size} bytes at layer 3: from 29 (IPv4 and UDP headers are 28; 48 with IPv6) to 65535"
            ));
        }
        let beat = |beat: Beat| match beat {
            Beat::RateBitS(0) => Err("a rate of 0".to_string()),
            Beat::IntervalNs(0) => Err("an interval of 0".to_string()),
            _ => Ok(()),
        };
        match self.schedule {
            Schedule::Constant(of) | Schedule::Poisson(of) => beat(of),
            Schedule::OnOff { on_ns: 0, .. } => Err("it is never on".into()),
            Schedule::OnOff { beat: of, .. } => beat(of),
            Schedule::Bursts { packets: 1..=10_000, every_ns: 1.. } => Ok(()),
            Schedule::Bursts { packets, .. } => {
                Err(format!("bursts of 1 to 10000 packets, not {packets}, with time between them"))
            }
        }
    }
}

impl Work {
    /// Its kind, as cases and plans name it.
    pub fn kind(&self) -> &'static str {
        match self {
            Work::TcpBulk { .. } => "tcp_bulk",
            Work::TcpRr { .. } => "tcp_rr",
            Work::TcpConnect { .. } => "tcp_connect",
            Work::Udp(_) => "udp",
            Work::UdpRr { .. } => "udp_rr",
        }
    }

    /// Number of connections or sockets at once.
    pub fn streams(&self) -> u32 {
        match self {
            Work::TcpBulk { streams, .. }
            | Work::TcpRr { streams, .. }
            | Work::TcpConnect { streams, .. }
            | Work::UdpRr { streams, .. } => *streams,
            Work::Udp(_) => 1,
        }
    }

    /// True for flows over UDP.
    pub fn is_udp(&self) -> bool {
        matches!(self, Work::Udp(_) | Work::UdpRr { .. })
    }

    /// True for flows of requests and responses, or short connections: they measure round trips.
    pub fn has_round_trips(&self) -> bool {
        matches!(self, Work::TcpRr { .. } | Work::TcpConnect { .. } | Work::UdpRr { .. })
    }

    /// Sizes of requests and responses.
    pub fn sizes(&self) -> Option<Sizes> {
        match self {
            Work::TcpRr { request, response, .. } | Work::UdpRr { request, response, .. } => {
                Some(Sizes { request: *request as usize, response: *response as usize })
            }
            _ => None,
        }
    }

    /// Time between requests.
    pub fn interval(&self) -> Option<std::time::Duration> {
        match self {
            Work::TcpRr { interval_ns, .. } | Work::UdpRr { interval_ns, .. } => {
                interval_ns.map(std::time::Duration::from_nanos)
            }
            _ => None,
        }
    }

    fn check(&self) -> Result<(), String> {
        let between = |what: &str, value: u32, most: u32| match value {
            0 => Err(format!("{what} of 0")),
            value if value > most => Err(format!("{what} of {value}: at most {most}")),
            _ => Ok(()),
        };
        between("streams", self.streams(), 65_535)?;
        if self.interval().is_some_and(|interval| interval.as_micros() < 100) {
            return Err(
                "requests at least 100us apart; without an interval they go as fast as they are answered".into()
            );
        }
        match self {
            Work::TcpBulk { bytes: Some(0), .. } => Err("a transfer of 0 bytes".into()),
            Work::TcpBulk { .. } | Work::TcpConnect { .. } => Ok(()),
            Work::TcpRr { request, response, .. } => {
                between("a request", *request, 1 << 24).and_then(|()| between("a response", *response, 1 << 24))
            }
            Work::UdpRr { request, response, interval_ns, .. } => {
                between("a request", *request, 65_487).and_then(|()| between("a response", *response, 65_487))?;
                let least = echo::LEAST_AT_INTERVALS as u32;
                if interval_ns.is_some() && (*request < least || *response < least) {
                    return Err(format!(
                        "requests and responses at an interval have at least {least} bytes, to be told apart"
                    ));
                }
                Ok(())
            }
            Work::Udp(datagrams) => datagrams.check(),
        }
    }
}

impl FlowSpec {
    /// How its TCP sockets are tuned.
    pub fn tuning(&self) -> Tuning {
        Tuning {
            congestion: self.congestion.clone(),
            buffers: self.buffers,
            mss: None,
            no_delay: !matches!(self.work, Work::TcpBulk { .. }),
            dscp: self.dscp,
        }
    }

    /// Checks the flow by itself.
    ///
    /// # Errors
    /// What is wrong with the flow, as text.
    pub fn check(&self) -> Result<(), String> {
        if self.name.is_empty() || self.name.chars().count() > 64 || self.name.chars().any(char::is_control) {
            return Err("a flow's name has 1 to 64 characters that can be printed".into());
        }
        if self.start_ns >= self.stop_ns {
            return Err("it stops before it starts".into());
        }
        if self.dscp > 63 {
            return Err(format!("no DSCP is {}", self.dscp));
        }
        if self.direction == Direction::Down && self.work.has_round_trips() {
            return Err("requests and connections come from the client, so the flow has no direction".into());
        }
        if let Some(name) = &self.congestion {
            if self.work.is_udp() {
                return Err("UDP has no congestion control".into());
            }
            // The kernel's TCP_CA_NAME_MAX is 16, which includes the terminating NUL.
            if name.is_empty()
                || name.len() > 15
                || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
            {
                return Err("a congestion control has a name of 1 to 15 letters, digits, `_` and `-`".into());
            }
        }
        if self.buffers.is_some() && self.work.is_udp() {
            return Err("only TCP has `buffers`".into());
        }
        if self.buffers.is_some_and(|bytes| !(2048..=1 << 30).contains(&bytes)) {
            return Err("`buffers` takes 2048 to 1073741824 bytes".into());
        }
        self.work.check()
    }
}

/// Time after the last flow's stop in which packets on their way may still arrive.
pub const GRACE: Nanos = 5 * SECOND;

impl Plan {
    /// What the plan's flows of UDP send in a direction, in bit/s.
    pub fn udp_rate(&self, direction: Direction) -> u64 {
        let rates = self.flows.iter().filter(|flow| flow.direction == direction).map(|flow| match &flow.work {
            Work::Udp(datagrams) => datagrams.rate(),
            _ => 0,
        });
        rates.fold(0, u64::saturating_add)
    }

    /// Checks that a plan makes sense, and that it is within a server's limits.
    ///
    /// # Errors
    /// What is wrong, as text with the figures; the flag is true if a limit is exceeded.
    pub fn check(&self, caps: &Caps) -> Result<(), (bool, String)> {
        let wrong = |why: String| Err((false, why));
        let cap = |why: String| Err((true, why));
        if self.flows.is_empty() {
            return wrong("a plan without flows".into());
        }
        if self.flows.len() > caps.flows as usize {
            return cap(format!(
                "{} flows, but the server accepts {} of a client (--max-flows)",
                self.flows.len(),
                caps.flows
            ));
        }
        for flow in &self.flows {
            flow.check().or_else(|why| wrong(format!("flow `{}`: {why}", flow.name)))?;
        }
        let streams: u64 = self.flows.iter().map(|flow| u64::from(flow.work.streams())).sum();
        if streams > u64::from(caps.streams) {
            return cap(format!(
                "{streams} connections, but the server accepts {} of a client (--max-streams)",
                caps.streams
            ));
        }
        let end = self.flows.iter().map(|flow| flow.stop_ns).max().unwrap_or(0);
        if end > caps.duration_ns {
            let seconds = |time: u64| time as f64 / SECOND as f64;
            let (asked, most) = (seconds(end), seconds(caps.duration_ns));
            return cap(format!("{asked} s, and the server runs for {most} s at most (--max-duration)"));
        }
        for (way, direction) in [("up", Direction::Up), ("down", Direction::Down)] {
            let sum = self.udp_rate(direction);
            let most = Rate::bit_s(caps.rate_bit_s);
            if sum > caps.rate_bit_s {
                return cap(format!("{} of UDP {way}, but the server allows {most} (--max-rate)", Rate::bit_s(sum)));
            }
            // Requests go up, and their responses down.
            let goes = |flow: &FlowSpec| flow.direction == direction || flow.work.has_round_trips();
            if sum == caps.rate_bit_s && self.flows.iter().any(|flow| !flow.work.is_udp() && goes(flow)) {
                return cap(format!(
                    "UDP {way} takes all of the {most} that the server allows, and leaves TCP nothing"
                ));
            }
        }
        if !(10_000_000..=60 * SECOND).contains(&self.interval_ns) {
            return wrong("reports come every 10ms to 1min".into());
        }
        if self.rtt_ns > 10 * SECOND {
            return wrong("a round trip of more than 10 s".into());
        }
        if self.flows.iter().any(|flow| self.warmup_ns >= flow.stop_ns - flow.start_ns) {
            return wrong("the warm-up is as long as a flow".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPS: Caps = Caps { rate_bit_s: 1_000_000_000, duration_ns: 60 * SECOND, clients: 1, flows: 4, streams: 16 };

    fn flow(work: Work) -> FlowSpec {
        FlowSpec {
            name: "a".into(),
            direction: Direction::Up,
            work,
            start_ns: 0,
            stop_ns: SECOND,
            dscp: 0,
            congestion: None,
            buffers: None,
            port: 1,
        }
    }

    fn plan(flows: Vec<FlowSpec>) -> Plan {
        Plan { flows, warmup_ns: 0, interval_ns: SECOND, rtt_ns: 0, one_clock: false, seed: 1 }
    }

    fn udp(rate: u64) -> Work {
        Work::Udp(Datagrams { sizes: vec![1000], schedule: Schedule::Constant(Beat::RateBitS(rate)) })
    }

    #[test]
    fn caps_hold_for_the_sum() {
        let bulk = |streams| flow(Work::TcpBulk { streams, bytes: None });
        assert_eq!(plan(vec![bulk(16)]).check(&CAPS), Ok(()));
        for (flows, word) in [
            (vec![bulk(16), bulk(1)], "17 connections"),
            (vec![bulk(1); 5], "5 flows"),
            (vec![flow(udp(600_000_000)), flow(udp(400_000_001))], "--max-rate"),
            (vec![FlowSpec { stop_ns: 61 * SECOND, ..bulk(1) }], "61 s"),
        ] {
            let (cap, why) = plan(flows).check(&CAPS).unwrap_err();
            assert!(cap && why.contains(word), "{why}");
        }
        // The limit of the rate holds for each direction separately.
        let down = FlowSpec { direction: Direction::Down, ..flow(udp(1_000_000_000)) };
        assert_eq!(plan(vec![flow(udp(1_000_000_000)), down]).check(&CAPS), Ok(()));
        // 10 packets of 1000 bytes every ms are 80 Mbit/s; an interval of 1 us is 8 Gbit/s.
        let bursts = Datagrams { sizes: vec![1000], schedule: Schedule::Bursts { packets: 10, every_ns: 1_000_000 } };
        assert_eq!(bursts.rate(), 80_000_000);
        assert_eq!(
            Datagrams { sizes: vec![1000], schedule: Schedule::Poisson(Beat::IntervalNs(1_000)) }.rate(),
            8_000_000_000
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let rr = |request, response, interval_ns| flow(Work::UdpRr { streams: 1, request, response, interval_ns });
        for (wrong, word) in [
            (flow(udp(0)), "rate of 0"),
            (
                flow(Work::Udp(Datagrams { sizes: vec![28], schedule: Schedule::Constant(Beat::RateBitS(1)) })),
                "28 bytes",
            ),
            (flow(Work::Udp(Datagrams { sizes: vec![], schedule: Schedule::Constant(Beat::RateBitS(1)) })), "sizes"),
            (rr(0, 1, None), "request of 0"),
            (rr(1, 70_000, None), "70000"),
            (rr(1, 1, Some(SECOND)), "at least 4"),
            (rr(4, 4, Some(1)), "100us"),
            (FlowSpec { direction: Direction::Down, ..rr(1, 1, None) }, "no direction"),
            (FlowSpec { congestion: Some("reno".into()), ..flow(udp(1)) }, "no congestion"),
            (FlowSpec { congestion: Some("../x".into()), ..flow(Work::TcpBulk { streams: 1, bytes: None }) }, "name"),
            (FlowSpec { stop_ns: 0, ..flow(udp(1)) }, "stops before"),
            (FlowSpec { dscp: 64, ..flow(udp(1)) }, "DSCP"),
            (FlowSpec { name: "a\x1b[2J".into(), ..flow(udp(1)) }, "printed"),
        ] {
            let (cap, why) = plan(vec![wrong]).check(&CAPS).unwrap_err();
            assert!(!cap && why.contains(word), "{word}: {why}");
        }
        assert!(plan(vec![]).check(&CAPS).is_err());
        assert!(Plan { warmup_ns: SECOND, ..plan(vec![flow(udp(1))]) }.check(&CAPS).is_err());
    }
}
