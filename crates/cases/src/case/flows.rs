//! Reads `[[flows]]`.

use std::collections::HashSet;

use altq_engine::units::Nanos;
use toml::Spanned;

use super::raw;
use super::table::Context;
use super::topology::Host;
use super::traffic::{Flow, Kind, Pace, Shape, Spans, Stack, Tcp, Udp};
use super::words::{Known, unique};
use super::wrong::{Result, bad, did_you_mean, unknown};
use crate::limits::LARGEST_PACKET;
use altq_config::literal;

/// Bytes of the IPv4 and UDP headers.
pub const LEAST_UDP_V4: u32 = 28;
/// Bytes of the IPv6 and UDP headers.
pub const LEAST_UDP_V6: u32 = 48;

/// Time between two pings where nothing else is said: 250 ms, as a link whose rate adapts sends
/// them to each reflector.
const PING_INTERVAL: Nanos = 250_000_000;

pub(super) fn flows(
    raw: &[Spanned<raw::Flow>],
    hosts: &[Host],
    duration: Nanos,
    context: &Context<'_>,
) -> Result<Vec<Flow>> {
    let mut names = HashSet::new();
    let mut flows = Vec::new();
    // Streams of datagrams beyond one a flow: each has a source port of its own.
    let mut more = 0u16;
    let known = Known::new("host", hosts.iter().map(|host| host.name.as_str()));
    for (at, flow) in raw.iter().enumerate() {
        let (place, flow) = (flow, flow.get_ref());
        unique(&mut names, &flow.name, "flow")?;
        let (from, to) = (known.find(&flow.from)?, known.find(&flow.to)?);
        if from == to {
            return bad(&flow.to, "a flow needs two different hosts");
        }
        let v6 = hosts[from].address.is_ipv6();
        if v6 != hosts[to].address.is_ipv6() {
            return bad(&flow.to, "one end speaks IPv4 and the other IPv6");
        }
        let kind = kind(place, flow, v6)?;
        let high = match &flow.high {
            Some(high) if *high.get_ref() && flow.kind.get_ref() != "udp" => {
                return bad(high, "only a flow of kind udp says so; for other kinds the headers decide");
            }
            high => high.as_ref().is_some_and(|high| *high.get_ref()),
        };
        let dscp = match &flow.dscp {
            None => 0,
            Some(word) => match dscp(word.get_ref()) {
                Ok(dscp) => dscp,
                Err(wrong) => return bad(word, wrong),
            },
        };
        let nth = u16::try_from(at).unwrap_or(u16::MAX);
        let tcp = kind.tcp().is_some();
        let sport = if tcp { 0 } else { 10_000u16.saturating_add(nth).saturating_add(more) };
        if !tcp {
            more = more.saturating_add(u16::try_from(kind.streams().saturating_sub(1)).unwrap_or(u16::MAX));
        }
        flows.push(Flow {
            name: flow.name.get_ref().clone(),
            from,
            to,
            class: flow.class.as_ref().map(|class| context.class(class)),
            sport: flow.sport.as_ref().map_or(sport, |p| *p.get_ref()),
            dport: flow.dport.as_ref().map_or(5_000u16.saturating_add(nth), |p| *p.get_ref()),
            dscp,
            high,
            active: active(flow, duration)?,
            kind,
        });
    }
    Ok(flows)
}

fn active(flow: &raw::Flow, duration: Nanos) -> Result<Vec<(Nanos, Nanos)>> {
    if let Some(spans) = &flow.active {
        if let Some(at) = flow.start.as_ref().or(flow.stop.as_ref()) {
            return bad(at, "active already says when the flow sends");
        }
        let list: Vec<_> = spans.get_ref().iter().map(|(from, to)| (from.0, to.0.min(duration))).collect();
        let ordered = list.iter().all(|(from, to)| from < to) && list.windows(2).all(|pair| pair[0].1 <= pair[1].0);
        if !ordered || spans.get_ref().is_empty() {
            return bad(
                spans,
                "active is a list of [from, to], in order, none overlapping, none beyond the case's duration",
            );
        }
        return Ok(list);
    }
    let start = flow.start.as_ref().map_or(0, |t| t.get_ref().0);
    let stop = flow.stop.as_ref().map_or(duration, |t| t.get_ref().0);
    if let Some(at) = flow.start.as_ref().filter(|_| start >= duration) {
        return bad(at, "it starts when the case is over");
    }
    if let Some(at) = flow.stop.as_ref().filter(|_| stop <= start || stop > duration) {
        return bad(at, "it stops before it starts, or after the case is over");
    }
    Ok(vec![(start, stop)])
}

/// A DSCP, given as a number or a name.
fn dscp(word: &raw::Number) -> std::result::Result<u8, literal::Wrong> {
    match word {
        raw::Number::Whole(n) => literal::dscp(&n.to_string()),
        raw::Number::Text(text) => literal::dscp(text),
    }
}

/// Checks that a flow has no key that is unknown for its kind.
fn only(flow: &raw::Flow, kind: &str, known: &[&str]) -> Result<()> {
    macro_rules! keys {
        ($($key:ident)*) => { [$((stringify!($key), flow.$key.as_ref().map(|v| v.span()))),*] };
    }
    let keys = keys!(
        shape size rate interval on off random burst every alpha codec sleep streams congestion buffers stack mss ecn
        stagger tso request response msl retry file speed
    );
    for (key, span) in keys {
        if span.is_some() && !known.contains(&key) {
            return Err((span, format!("a flow of kind {kind} knows no {key}; its own keys: {}", known.join(", "))));
        }
    }
    Ok(())
}

fn kind(place: &Spanned<raw::Flow>, flow: &raw::Flow, v6: bool) -> Result<Kind> {
    let streams = match &flow.streams {
        Some(n) if !(1..=10_000).contains(n.get_ref()) => return bad(n, "streams are 1 to 10000"),
        Some(n) => *n.get_ref(),
        None => 1,
    };
    let bytes = |n: &Option<Spanned<u32>>| match n {
        Some(n) if !(1..=1_000_000_000).contains(n.get_ref()) => bad(n, "1 to 1000000000 bytes"),
        Some(n) => Ok(*n.get_ref()),
        None => Ok(1),
    };
    match flow.kind.get_ref().as_str() {
        "udp" => udp(place, flow, v6).map(Kind::Udp),
        "tcp_bulk" => {
            only(flow, "tcp_bulk", &["streams", "congestion", "buffers", "stack", "mss", "ecn", "stagger", "tso"])?;
            Ok(Kind::TcpBulk { streams, tcp: tcp(flow)? })
        }
        "tcp_rr" => {
            let own =
                ["streams", "request", "response", "congestion", "buffers", "stack", "mss", "ecn", "stagger", "tso"];
            only(flow, "tcp_rr", &own)?;
            Ok(Kind::TcpRr {
                streams,
                request: bytes(&flow.request)?,
                response: bytes(&flow.response)?,
                tcp: tcp(flow)?,
            })
        }
        "tcp_connect" => {
            let own = [
                "streams",
                "request",
                "response",
                "msl",
                "congestion",
                "buffers",
                "stack",
                "mss",
                "ecn",
                "stagger",
                "tso",
            ];
            only(flow, "tcp_connect", &own)?;
            // RFC 9293 3.4.2 says two minutes; systems use half a minute.
            let msl = flow.msl.as_ref().map_or(30_000_000_000, |msl| msl.get_ref().0);
            let (request, response) = (bytes(&flow.request)?, bytes(&flow.response)?);
            Ok(Kind::TcpConnect { streams, request, response, msl, tcp: tcp(flow)? })
        }
        "udp_rr" => {
            only(flow, "udp_rr", &["streams", "request", "response", "retry"])?;
            let (request, response) = (bytes(&flow.request)?, bytes(&flow.response)?);
            let most = LARGEST_PACKET - if v6 { LEAST_UDP_V6 } else { LEAST_UDP_V4 };
            for (bytes, at) in [(request, &flow.request), (response, &flow.response)] {
                if let Some(at) = at.as_ref().filter(|_| bytes > most) {
                    return bad(at, format!("a datagram carries {most} bytes at most"));
                }
            }
            let retry = match &flow.retry {
                Some(retry) if retry.get_ref().0 == 0 => return bad(retry, "an answer takes some time"),
                Some(retry) => retry.get_ref().0,
                None => 1_000_000_000,
            };
            Ok(Kind::UdpRr { streams, request, response, retry })
        }
        "ping" => {
            only(flow, "ping", &["size", "interval"])?;
            // An echo request has a header of 8 bytes, as a datagram of UDP.
            let least = if v6 { LEAST_UDP_V6 } else { LEAST_UDP_V4 };
            let size = match &flow.size {
                // ping(8) sends 56 bytes of data.
                None => least + 56,
                Some(size) => match size.get_ref() {
                    raw::Sizes::One(one) if (least..=LARGEST_PACKET).contains(one) => *one,
                    _ => return bad(size, format!("a ping has one size, {least} to {LARGEST_PACKET} bytes")),
                },
            };
            let interval = match &flow.interval {
                Some(interval) if interval.get_ref().0 == 0 => return bad(interval, "an interval is longer than 0"),
                Some(interval) => interval.get_ref().0,
                None => PING_INTERVAL,
            };
            Ok(Kind::Ping { size, interval })
        }
        "pcap" => {
            only(flow, "pcap", &["file", "speed"])?;
            let Some(file) = &flow.file else { return bad(place, "a flow of kind pcap needs its file") };
            let speed = match &flow.speed {
                Some(s) if !(s.get_ref().is_finite() && (1e-6..=1e6).contains(s.get_ref())) => {
                    return bad(s, "a speed is 0.000001 to 1000000");
                }
                Some(s) => *s.get_ref(),
                None => 1.0,
            };
            Ok(Kind::Pcap { file: file.get_ref().clone(), speed })
        }
        other => {
            let kinds = ["udp", "udp_rr", "ping", "tcp_bulk", "tcp_rr", "tcp_connect", "pcap"];
            bad(&flow.kind, unknown(&format!("there is no kind {other:?}"), other, "Kinds", kinds))
        }
    }
}

/// Reads the options of the ends of a TCP connection.
fn tcp(flow: &raw::Flow) -> Result<Tcp> {
    let buffers = match &flow.buffers {
        // The values that the kernel takes unchanged: smaller ones are raised to its minimum, and
        // larger ones do not fit a signed 32-bit number.
        Some(n) if !(2048..=1 << 30).contains(n.get_ref()) => return bad(n, "buffers are 2048 to 1073741824 bytes"),
        Some(n) => Some(*n.get_ref()),
        None => None,
    };
    let stack = match flow.stack.as_ref().map(|word| (word, word.get_ref().as_str())) {
        None | Some((_, "linux")) => Stack::Linux,
        Some((_, "linux-2012")) => Stack::LinuxOf2012,
        Some((_, "bsd")) => Stack::Bsd,
        Some((at, other)) => {
            let hint = did_you_mean(other, ["linux", "linux-2012", "bsd"]);
            let known = "a stack is \"linux\", \"linux-2012\" or \"bsd\" (of 1997)";
            return bad(at, format!("{known}{hint}"));
        }
    };
    let mss = match &flow.mss {
        Some(n) if !(1..=65_000).contains(n.get_ref()) => return bad(n, "a segment carries 1 to 65000 bytes"),
        mss => mss.as_ref().map(|n| *n.get_ref()),
    };
    Ok(Tcp {
        congestion: flow.congestion.as_ref().map(|c| c.get_ref().clone()),
        buffers,
        stack,
        mss,
        ecn: flow.ecn.as_ref().is_some_and(|ecn| *ecn.get_ref()),
        stagger: flow.stagger.as_ref().map_or(0, |t| t.get_ref().0),
        tso: flow.tso.as_ref().is_some_and(|tso| *tso.get_ref()),
    })
}

fn udp(place: &Spanned<raw::Flow>, flow: &raw::Flow, v6: bool) -> Result<Udp> {
    let least = if v6 { LEAST_UDP_V6 } else { LEAST_UDP_V4 };
    let voice = voice(flow, least)?;
    let sizes = match flow.size.as_ref() {
        None if voice.is_some() => voice.iter().map(|voice| voice.size).collect(),
        None => return bad(place, "a flow of kind udp needs the size of its packets at layer 3, in bytes"),
        Some(sizes) => {
            let list = match sizes.get_ref() {
                raw::Sizes::One(size) => vec![*size],
                raw::Sizes::Several(list) => list.clone(),
            };
            if list.is_empty() || list.iter().any(|s| !(least..=LARGEST_PACKET).contains(s)) {
                let message = format!("sizes are {least} (IP and UDP headers) to {LARGEST_PACKET} bytes at layer 3");
                return bad(sizes, message);
            }
            list
        }
    };
    let pace = || match (&flow.rate, &flow.interval) {
        (Some(_), Some(interval)) => bad(interval, "the rate already says how fast it sends"),
        (Some(rate), None) if rate.get_ref().0.is_zero() => bad(rate, "a source at 0 bit/s sends nothing"),
        (Some(rate), None) => Ok(Pace::Rate(rate.get_ref().0)),
        (None, Some(interval)) if interval.get_ref().0 == 0 => bad(interval, "an interval is longer than 0"),
        (None, Some(interval)) => Ok(Pace::Interval(interval.get_ref().0)),
        (None, None) => bad(place, "how fast does it send? Write rate or interval"),
    };
    let time = |key: &Option<Spanned<raw::Time>>, name: &str| match key {
        Some(t) if t.get_ref().0 == 0 => bad(t, format!("{name} takes some time")),
        Some(t) => Ok(t.get_ref().0),
        None => bad(place, format!("this shape needs {name}")),
    };
    let shape = flow.shape.as_ref().map_or("constant", |s| s.get_ref().as_str());
    let shape = match shape {
        "constant" => {
            only(flow, "udp, shape constant,", &["shape", "size", "rate", "interval"])?;
            Shape::Constant(pace()?)
        }
        "poisson" => {
            only(flow, "udp, shape poisson,", &["shape", "size", "rate", "interval"])?;
            Shape::Poisson(pace()?)
        }
        "on_off" => {
            only(flow, "udp, shape on_off,", &["shape", "size", "rate", "interval", "on", "off", "random"])?;
            let random = flow.random.as_ref().is_some_and(|r| *r.get_ref());
            let spans = if random { Spans::Exponential } else { Spans::Fixed };
            Shape::OnOff { pace: pace()?, on: time(&flow.on, "on")?, off: time(&flow.off, "off")?, spans }
        }
        "pareto" => {
            only(flow, "udp, shape pareto,", &["shape", "size", "rate", "interval", "on", "off", "alpha"])?;
            let alpha = match &flow.alpha {
                Some(alpha) if !(1.01..=100.0).contains(alpha.get_ref()) => {
                    return bad(alpha, "alpha is 1.01 to 100: at 1 and below the spans have no mean");
                }
                Some(alpha) => *alpha.get_ref(),
                None => 1.5,
            };
            Shape::OnOff {
                pace: pace()?,
                on: time(&flow.on, "on")?,
                off: time(&flow.off, "off")?,
                spans: Spans::Pareto(alpha),
            }
        }
        "voice" => {
            only(flow, "udp, shape voice,", &["shape", "codec", "on", "off"])?;
            let Some(voice) = voice else { return bad(place, "this shape needs codec") };
            let or = |key: &Option<Spanned<raw::Time>>, name: &str, usual: Nanos| match key {
                None => Ok(usual),
                key => time(key, name),
            };
            // ITU-T P.59 (03/93), table 1: talk spurts of 1.004 s and pauses of 1.587 s on average.
            let (on, off) = (or(&flow.on, "on", 1_004_000_000)?, or(&flow.off, "off", 1_587_000_000)?);
            Shape::OnOff { pace: Pace::Interval(voice.interval), on, off, spans: Spans::Exponential }
        }
        "local" => {
            only(flow, "udp, shape local,", &["shape", "size", "interval", "sleep"])?;
            // ttcp: select() for 18 ms when a send fails because no buffers are free.
            let sleep = flow.sleep.as_ref().map_or(18_000_000, |t| t.get_ref().0);
            Shape::Local { gap: time(&flow.interval, "interval")?, sleep }
        }
        "bursts" => {
            only(flow, "udp, shape bursts,", &["shape", "size", "burst", "every"])?;
            let packets = match &flow.burst {
                Some(n) if *n.get_ref() == 0 => return bad(n, "a burst has at least one packet"),
                Some(n) => *n.get_ref(),
                None => return bad(place, "this shape needs burst, a number of packets"),
            };
            Shape::Bursts { packets, every: time(&flow.every, "every")? }
        }
        other => {
            let shapes = ["constant", "on_off", "poisson", "pareto", "voice", "local", "bursts"];
            let message = unknown(&format!("there is no shape {other:?}"), other, "Shapes", shapes);
            return match &flow.shape {
                Some(at) => bad(at, message),
                None => bad(place, message),
            };
        }
    };
    Ok(Udp { sizes, shape })
}

/// The packets that a codec makes.
struct Voice {
    size: u32,
    interval: Nanos,
}

/// Reads a codec: samples, 12 bytes of RTP (RFC 3550 5.1), UDP and IP. `None` for other shapes.
fn voice(flow: &raw::Flow, headers: u32) -> Result<Option<Voice>> {
    if flow.shape.as_ref().is_none_or(|shape| shape.get_ref() != "voice") {
        return Ok(None);
    }
    // RFC 3551 4.5: 64 and 8 kbit/s, packets of 20 ms.
    let samples = match flow.codec.as_ref().map(|codec| (codec, codec.get_ref().as_str())) {
        None | Some((_, "g711")) => 160,
        Some((_, "g729")) => 20,
        Some((at, _)) => return bad(at, "a codec is \"g711\" or \"g729\""),
    };
    Ok(Some(Voice { size: samples + 12 + headers, interval: 20_000_000 }))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::case::CaseFile;

    /// Each stream of datagrams has a socket of its own, also at one host.
    #[test]
    fn streams_of_datagrams_do_not_share_a_port() {
        let flow = |name: &str, words: &str| format!("[[flows]]\nname = '{name}'\nfrom = 'a'\nto = 'b'\n{words}\n");
        let text = format!(
            "name = 'ports'\ndescription = 'ports'\nduration = '1s'\n\
             policy = 'link l {{ rate 1Mbit/s  scheduler fifo  class all {{ default }} }}'\n\
             hosts = [{{ name = 'a' }}, {{ name = 'b' }}]\n\
             links = [{{ name = 'l', from = 'a', to = 'b', policy = 'l' }}]\n{}{}{}{}",
            flow("four", "kind = 'udp_rr'\nstreams = 4"),
            flow("tcp", "kind = 'tcp_bulk'\nstreams = 8"),
            flow("two", "kind = 'udp_rr'\nstreams = 2"),
            flow("last", "kind = 'udp'\nsize = 100\nrate = '8kbit/s'")
        );
        let file = CaseFile::parse(&text, Path::new("ports.toml")).unwrap_or_else(|error| panic!("{error}"));
        let ports: Vec<u16> = file.runs[0].case.flows.iter().map(|flow| flow.sport).collect();
        // 10000 to 10003; chosen by the system; 10005 and 10006; 10007.
        assert_eq!(ports, [10_000, 0, 10_005, 10_007]);
    }
}
