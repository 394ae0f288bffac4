//! Flows as the user writes them, on the command line or in a plan's file, and their translation
//! into the form that client and server exchange.
//!
//! A plan is TOML. Its keys are those of a case's flows where they mean the same:
//!
//! ```toml
//! duration = "30s"
//! [[flows]]
//! name = "voice"
//! kind = "udp_rr"
//! request = 160
//! response = 160
//! interval = "20ms"
//! dscp = "ef"
//! ```

use std::path::Path;

use altq_cases::case::CaseError;
use altq_config::literal;
use altq_config::suggest::nearest;
use altq_engine::units::Nanos;
use serde::{Deserialize, Deserializer, de};
use toml::Spanned;

use crate::client::Flow;
use crate::connect::Close;
use crate::plan::{Beat, Datagrams, Direction, FlowSpec, Schedule, Work};

/// A flow as the user describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowOptions {
    /// Its name.
    pub name: String,
    /// What it does.
    pub work: Work,
    /// The directions of its load; ignored for requests and connections.
    pub ways: Ways,
    /// When it begins, in ns from the start of the run.
    pub start: Nanos,
    /// When it stops, in ns; `None`: at the end of the run.
    pub stop: Option<Nanos>,
    /// DSCP of its packets.
    pub dscp: u8,
    /// Congestion control; `None`: the system's own.
    pub congestion: Option<String>,
    /// Socket buffers in bytes; `None`: the kernel tunes them.
    pub buffers: Option<u32>,
    /// The server's port; `None`: the one given with the server's name.
    pub port: Option<u16>,
    /// The client's port of the first connection; 0: the system chooses.
    pub sport: u16,
    /// The only address family to use; `None`: all families of the run.
    pub family: Option<Family>,
}

/// The directions of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ways {
    /// From the client to the server.
    #[default]
    Up,
    /// From the server to the client.
    Down,
    /// Both, at the same time: two flows.
    Both,
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Family::Ipv4 => "ipv4",
            Family::Ipv6 => "ipv6",
        }
    }
}

impl FlowOptions {
    /// A flow with default options.
    pub fn new(name: &str, work: Work) -> FlowOptions {
        FlowOptions {
            name: name.into(),
            work,
            ways: Ways::Up,
            start: 0,
            stop: None,
            dscp: 0,
            congestion: None,
            buffers: None,
            port: None,
            sport: 0,
            family: None,
        }
    }

    /// The flows to run over one address family, one for each direction. `several`: the run uses
    /// the other family too, so names of flows get the family's name. `port`: the server's port;
    /// `duration`: that of the run.
    pub fn flows(&self, family: Family, several: bool, port: u16, duration: Nanos) -> Vec<Flow> {
        if self.family.is_some_and(|own| own != family) {
            return Vec::new();
        }
        let ways: &[(Direction, &str)] = match self.ways {
            _ if self.work.has_round_trips() => &[(Direction::Up, "")],
            Ways::Up => &[(Direction::Up, "")],
            Ways::Down => &[(Direction::Down, "")],
            Ways::Both => &[(Direction::Up, " up"), (Direction::Down, " down")],
        };
        let over = if several { format!(" {}", family.name()) } else { String::new() };
        let flow = |(direction, way): &(Direction, &str)| Flow {
            spec: FlowSpec {
                name: format!("{}{way}{over}", self.name),
                direction: *direction,
                work: self.work.clone(),
                start_ns: self.start,
                stop_ns: self.stop.unwrap_or(duration),
                dscp: self.dscp,
                congestion: self.congestion.clone(),
                buffers: self.buffers,
                port: self.port.unwrap_or(port),
            },
            // The flow of the other direction needs ports of its own.
            sport: match (self.sport, direction, self.ways) {
                (0, ..) => 0,
                (sport, Direction::Down, Ways::Both) => sport.saturating_add(self.work.streams().min(65_535) as u16),
                (sport, ..) => sport,
            },
        };
        ways.iter().map(flow).collect()
    }
}

/// The Realtime Response Under Load test (RRUL) of the bufferbloat project, with one server: four
/// bulk flows in each direction with four DSCPs, and three UDP latency flows with three DSCPs. The
/// original also measures latency by ICMP.
pub fn rrul() -> Vec<FlowOptions> {
    let bulk = |(name, dscp): (&str, u8)| FlowOptions {
        ways: Ways::Both,
        dscp,
        ..FlowOptions::new(&format!("bulk {name}"), Work::TcpBulk { streams: 1, bytes: None })
    };
    let ask = |(name, dscp): (&str, u8)| FlowOptions {
        dscp,
        ..FlowOptions::new(
            &format!("latency {name}"),
            Work::UdpRr { streams: 1, request: 64, response: 64, interval_ns: Some(20_000_000) },
        )
    };
    let mut flows: Vec<FlowOptions> = [("be", 0), ("cs1", 8), ("cs5", 40), ("ef", 46)].into_iter().map(bulk).collect();
    flows.extend([("be", 0), ("cs1", 8), ("ef", 46)].into_iter().map(ask));
    flows
}

/// A plan's file.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanFile {
    /// Duration of the run, if the file gives it.
    pub duration: Option<Nanos>,
    /// Time after each flow's start that the figures leave out.
    pub warmup: Option<Nanos>,
    /// The flows, at least one.
    pub flows: Vec<FlowOptions>,
}

impl PlanFile {
    /// Reads a plan.
    ///
    /// # Errors
    /// If the file cannot be read or has an error; with its place.
    pub fn load(path: &Path) -> Result<PlanFile, CaseError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| CaseError::plain(path, format!("cannot be read: {error}")))?;
        PlanFile::parse(&text, path)
    }

    /// Reads a plan's text.
    ///
    /// # Errors
    /// If the text has an error; with its place.
    pub fn parse(text: &str, path: &Path) -> Result<PlanFile, CaseError> {
        let error = |(span, message)| CaseError::at(path, text, span, message);
        let raw: RawPlan = toml::from_str(text).map_err(|e| error((e.span(), e.message().to_string())))?;
        read(raw).map_err(error)
    }
}

/// A place in the text, and what is wrong there.
type Wrong = (Option<std::ops::Range<usize>>, String);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPlan {
    duration: Option<Spanned<Time>>,
    warmup: Option<Spanned<Time>>,
    #[serde(default)]
    flows: Vec<Spanned<RawFlow>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFlow {
    name: Spanned<String>,
    kind: Spanned<String>,
    direction: Option<Spanned<Ways>>,
    family: Option<Spanned<Family>>,
    start: Option<Spanned<Time>>,
    stop: Option<Spanned<Time>>,
    dscp: Option<Spanned<Dscp>>,
    port: Option<Spanned<u16>>,
    sport: Option<Spanned<u16>>,
    congestion: Option<Spanned<String>>,
    buffers: Option<Spanned<u32>>,
    streams: Option<Spanned<u32>>,
    bytes: Option<Spanned<u64>>,
    request: Option<Spanned<u32>>,
    response: Option<Spanned<u32>>,
    interval: Option<Spanned<Time>>,
    close: Option<Spanned<Close>>,
    size: Option<Spanned<Sizes>>,
    rate: Option<Spanned<Rate>>,
    shape: Option<Spanned<String>>,
    on: Option<Spanned<Time>>,
    off: Option<Spanned<Time>>,
    random: Option<Spanned<bool>>,
    burst: Option<Spanned<u32>>,
    every: Option<Spanned<Time>>,
}

#[derive(Clone, Copy, Debug)]
struct Time(Nanos);

#[derive(Clone, Copy, Debug)]
struct Rate(u64);

#[derive(Clone, Copy, Debug)]
struct Dscp(u8);

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a size in bytes, or a list of them")]
enum Sizes {
    One(u32),
    Several(Vec<u32>),
}

/// Text, or a whole number.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a text or a whole number")]
enum Number {
    Whole(u64),
    Text(String),
}

macro_rules! literals {
    ($($name:ident: $whole:expr, $text:expr;)*) => { $(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                match Number::deserialize(deserializer)? {
                    Number::Whole(value) => $whole(value).map($name).map_err(de::Error::custom),
                    Number::Text(text) => $text(&text).map($name).map_err(de::Error::custom),
                }
            }
        }
    )* };
}

literals! {
    Time: Ok::<u64, String>, literal::time;
    Rate: Ok::<u64, String>, |text: &str| literal::rate(text).map(|rate| rate.as_bit_s());
    Dscp: |value: u64| literal::dscp(&value.to_string()), literal::dscp;
}

const KINDS: [&str; 5] = ["tcp_bulk", "tcp_rr", "tcp_connect", "udp", "udp_rr"];
const SHAPES: [&str; 4] = ["constant", "poisson", "on_off", "bursts"];

fn read(raw: RawPlan) -> Result<PlanFile, Wrong> {
    if raw.flows.is_empty() {
        return Err((None, "a plan without flows: write [[flows]]".into()));
    }
    let mut flows: Vec<FlowOptions> = Vec::new();
    for raw in &raw.flows {
        let flow = flow_options(raw)?;
        if flows.iter().any(|other| other.name == flow.name) {
            return Err((Some(raw.get_ref().name.span()), format!("a second flow `{}`", flow.name)));
        }
        flows.push(flow);
    }
    if let Some(duration) = raw.duration.as_ref().filter(|duration| duration.get_ref().0 == 0) {
        return Err((Some(duration.span()), "a run of 0 s".into()));
    }
    Ok(PlanFile {
        duration: raw.duration.map(|time| time.get_ref().0),
        warmup: raw.warmup.map(|time| time.get_ref().0),
        flows,
    })
}

fn flow_options(spanned: &Spanned<RawFlow>) -> Result<FlowOptions, Wrong> {
    let flow = spanned.get_ref();
    let kind = flow.kind.get_ref().as_str();
    if !KINDS.contains(&kind) {
        return Err((Some(flow.kind.span()), unknown("kind of flow", kind, &KINDS)));
    }
    only(flow, kind)?;
    let streams = flow.streams.as_ref().map_or(1, |streams| *streams.get_ref());
    let interval_ns = flow.interval.as_ref().map(|time| time.get_ref().0);
    let size = |size: &Option<Spanned<u32>>| size.as_ref().map_or(1, |size| *size.get_ref());
    let (request, response) = (size(&flow.request), size(&flow.response));
    let work = match kind {
        "tcp_bulk" => Work::TcpBulk { streams, bytes: flow.bytes.as_ref().map(|bytes| *bytes.get_ref()) },
        "tcp_rr" => Work::TcpRr { streams, request, response, interval_ns },
        "tcp_connect" => {
            Work::TcpConnect { streams, close: flow.close.as_ref().map(|close| *close.get_ref()).unwrap_or_default() }
        }
        "udp" => Work::Udp(datagrams(spanned)?),
        _ => Work::UdpRr { streams, request, response, interval_ns },
    };
    let flow = FlowOptions {
        name: flow.name.get_ref().clone(),
        work,
        ways: flow.direction.as_ref().map(|way| *way.get_ref()).unwrap_or_default(),
        start: flow.start.as_ref().map_or(0, |time| time.get_ref().0),
        stop: flow.stop.as_ref().map(|time| time.get_ref().0),
        dscp: flow.dscp.as_ref().map_or(0, |dscp| dscp.get_ref().0),
        congestion: flow.congestion.as_ref().map(|name| name.get_ref().clone()),
        buffers: flow.buffers.as_ref().map(|bytes| *bytes.get_ref()),
        port: flow.port.as_ref().map(|port| *port.get_ref()),
        sport: flow.sport.as_ref().map_or(0, |port| *port.get_ref()),
        family: flow.family.as_ref().map(|family| *family.get_ref()),
    };
    // Errors that depend on the run's duration are found later.
    for checked in flow.flows(flow.family.unwrap_or(Family::Ipv4), false, 1, flow.start.saturating_add(1)) {
        checked.spec.check().map_err(|why| (Some(spanned.span()), why))?;
    }
    Ok(flow)
}

fn datagrams(spanned: &Spanned<RawFlow>) -> Result<Datagrams, Wrong> {
    let flow = spanned.get_ref();
    let whole = |why: &str| (Some(spanned.span()), why.to_string());
    let sizes = match flow.size.as_ref().map(Spanned::get_ref) {
        None => return Err(whole("`size` is missing: bytes at layer 3")),
        Some(Sizes::One(size)) => vec![*size],
        Some(Sizes::Several(sizes)) => sizes.clone(),
    };
    let beat = || match (&flow.rate, &flow.interval) {
        (Some(rate), None) => Ok(Beat::RateBitS(rate.get_ref().0)),
        (None, Some(interval)) => Ok(Beat::IntervalNs(interval.get_ref().0)),
        (Some(_), Some(interval)) => Err((Some(interval.span()), "either `rate` or `interval`".to_string())),
        (None, None) => Err(whole("`rate` is missing, or `interval`")),
    };
    let time = |key: &Option<Spanned<Time>>, name: &str| match key {
        Some(time) => Ok(time.get_ref().0),
        None => Err(whole(&format!("`{name}` is missing"))),
    };
    let shape = flow.shape.as_ref().map_or("constant", |shape| shape.get_ref().as_str());
    let allowed: &[&str] = match shape {
        "constant" | "poisson" => &["rate", "interval"],
        "on_off" => &["rate", "interval", "on", "off", "random"],
        "bursts" => &["burst", "every"],
        _ => {
            let span = flow.shape.as_ref().map(Spanned::span);
            return Err((span, unknown("shape", shape, &SHAPES)));
        }
    };
    let shaping = ["rate", "interval", "on", "off", "random", "burst", "every"];
    if let Some((key, span)) = keys(flow).into_iter().find(|(key, _)| shaping.contains(key) && !allowed.contains(key)) {
        return Err((Some(span), format!("the shape `{shape}` has no key `{key}`")));
    }
    let schedule = match shape {
        "constant" => Schedule::Constant(beat()?),
        "poisson" => Schedule::Poisson(beat()?),
        "on_off" => Schedule::OnOff {
            beat: beat()?,
            on_ns: time(&flow.on, "on")?,
            off_ns: time(&flow.off, "off")?,
            random: flow.random.as_ref().is_some_and(|random| *random.get_ref()),
        },
        _ => Schedule::Bursts {
            packets: flow.burst.as_ref().map(|burst| *burst.get_ref()).ok_or_else(|| whole("`burst` is missing"))?,
            every_ns: time(&flow.every, "every")?,
        },
    };
    Ok(Datagrams { sizes, schedule })
}

/// The keys in the text that only some kinds of flow have, with their places.
fn keys(flow: &RawFlow) -> Vec<(&'static str, std::ops::Range<usize>)> {
    macro_rules! written {
        ($($key:ident)*) => { [$((stringify!($key), flow.$key.as_ref().map(Spanned::span))),*] };
    }
    let all = written!(
        direction congestion buffers streams bytes request response interval close
        size rate shape on off random burst every
    );
    all.into_iter().filter_map(|(key, span)| Some((key, span?))).collect()
}

fn only(flow: &RawFlow, kind: &str) -> Result<(), Wrong> {
    let known: &[&str] = match kind {
        "tcp_bulk" => &["direction", "congestion", "buffers", "streams", "bytes"],
        "tcp_rr" => &["congestion", "buffers", "streams", "request", "response", "interval"],
        "tcp_connect" => &["congestion", "buffers", "streams", "close"],
        "udp" => &["direction", "size", "rate", "shape", "interval", "on", "off", "random", "burst", "every"],
        _ => &["streams", "request", "response", "interval"],
    };
    match keys(flow).into_iter().find(|(key, _)| !known.contains(key)) {
        Some((key, span)) => {
            Err((Some(span), format!("a flow of kind {kind} has no key `{key}`; it has {}", known.join(", "))))
        }
        None => Ok(()),
    }
}

fn unknown(what: &str, word: &str, valid: &[&str]) -> String {
    let meant =
        nearest(word, valid.iter().copied()).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    let word: String = word.chars().take(40).collect();
    format!("there is no {what} `{word}`{meant} There are {}", valid.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = r#"
duration = "30s"
warmup = "2s"

[[flows]]
name = "bulk"
kind = "tcp_bulk"
direction = "both"
streams = 4
congestion = "reno"
sport = 7000

[[flows]]
name = "voice"
kind = "udp"
size = 200
interval = "20ms"
dscp = "ef"
family = "ipv6"
stop = "10s"
"#;

    #[test]
    fn a_plan_is_read() {
        let plan = PlanFile::parse(PLAN, Path::new("p.toml")).unwrap();
        assert_eq!((plan.duration, plan.warmup, plan.flows.len()), (Some(30_000_000_000), Some(2_000_000_000), 2));
        let flows: Vec<Flow> =
            plan.flows.iter().flat_map(|flow| flow.flows(Family::Ipv6, true, 2587, 30_000_000_000)).collect();
        let names: Vec<&str> = flows.iter().map(|flow| flow.spec.name.as_str()).collect();
        assert_eq!(names, ["bulk up ipv6", "bulk down ipv6", "voice ipv6"]);
        assert_eq!((flows[0].sport, flows[1].sport, flows[0].spec.port), (7000, 7004, 2587));
        assert_eq!(flows[1].spec.direction, Direction::Down);
        assert_eq!((flows[2].spec.dscp, flows[2].spec.stop_ns), (46, 10_000_000_000));
        let udp = Datagrams { sizes: vec![200], schedule: Schedule::Constant(Beat::IntervalNs(20_000_000)) };
        assert_eq!(flows[2].spec.work, Work::Udp(udp));
        // Flows for IPv6 only do not go over IPv4.
        assert_eq!(plan.flows.iter().flat_map(|flow| flow.flows(Family::Ipv4, false, 1, 1)).count(), 2);
    }

    #[test]
    fn errors_have_their_place() {
        let flow = |keys: &str| format!("[[flows]]\nname = \"a\"\n{keys}\n");
        for (text, line, word) in [
            (String::new(), None, "without flows"),
            (flow("kind = \"tcp_bluk\""), Some(3), "did you mean `tcp_bulk`"),
            (flow("kind = \"tcp_bulk\"\nsize = 3"), Some(4), "has no key `size`"),
            (flow("kind = \"udp\"\nsize = 200"), Some(1), "`rate` is missing"),
            (flow("kind = \"udp\"\nsize = 200\nrate = \"10mbps\""), Some(5), "Mbit/s"),
            (flow("kind = \"udp\"\nsize = 200\nrate = 1\nshape = \"bursts\""), Some(5), "has no key `rate`"),
            (flow("kind = \"udp\"\nsize = 20\nrate = \"1Mbit/s\""), Some(1), "20 bytes"),
            (flow("kind = \"udp_rr\"\ndscp = \"af44\""), Some(4), "DSCP"),
            (flow("kind = \"udp_rr\"\nnonsense = 1"), Some(4), "nonsense"),
            (flow("kind = \"tcp_rr\"\nstart = \"2s\"\nstop = \"1s\""), Some(1), "stops before"),
            (flow("kind = \"tcp_rr\"") + &flow("kind = \"udp_rr\""), Some(5), "a second flow"),
        ] {
            let error = PlanFile::parse(&text, Path::new("p.toml")).unwrap_err();
            assert_eq!(error.place.as_ref().map(|place| place.line), line, "{text}: {error}");
            assert!(error.message.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn rrul_is_four_up_four_down_and_three_to_and_fro() {
        let flows: Vec<Flow> = rrul().iter().flat_map(|flow| flow.flows(Family::Ipv4, false, 1, 1)).collect();
        let count = |direction, kind: &str| {
            flows.iter().filter(|flow| flow.spec.direction == direction && flow.spec.work.kind() == kind).count()
        };
        assert_eq!(
            (count(Direction::Up, "tcp_bulk"), count(Direction::Down, "tcp_bulk"), count(Direction::Up, "udp_rr")),
            (4, 4, 3)
        );
        for flow in &flows {
            assert_eq!(flow.spec.check(), Ok(()), "{flow:?}");
        }
    }
}
