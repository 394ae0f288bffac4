//! From what is written to a checked case.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::path::{Path, PathBuf};

use altq_config::Language;
use altq_engine::settings::Limit;
use altq_engine::spec::Timer;
use altq_engine::units::Nanos;
use toml::Spanned;

use super::file::Context;
use super::{Case, CaseLink, Column, Flow, Host, Kind, Pace, PolicySource, Shape, TimedEvent, Udp, What, WordValue};
use super::{expect, raw};
use crate::literal;
use crate::nearest::nearest;
use crate::replay::{LARGEST_PACKET, tick};
use crate::rings::MOST_QUEUES;

type Place = Option<Range<usize>>;
pub type Result<T> = std::result::Result<T, (Place, String)>;

/// IPv4 and UDP headers.
pub const LEAST_UDP_V4: u32 = 28;
/// IPv6 and UDP headers.
pub const LEAST_UDP_V6: u32 = 48;

pub fn bad<T, U>(at: &Spanned<T>, message: impl Into<String>) -> Result<U> {
    Err((Some(at.span()), message.into()))
}

pub fn check(raw: raw::Case, path: &Path, context: &Context<'_>) -> Result<Case> {
    let (name, duration) = (raw.name.get_ref().clone(), raw.duration.get_ref().0);
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if name.is_empty() || !name.chars().all(plain) {
        return bad(&raw.name, "a case's name is made of letters, digits, - _ . and /");
    }
    if duration == 0 {
        return bad(&raw.duration, "a case that takes no time shows nothing");
    }
    let warmup = raw.warmup.as_ref().map_or(0, |w| w.get_ref().0);
    if let Some(warmup) = raw.warmup.as_ref().filter(|_| warmup >= duration) {
        return bad(warmup, "the warm-up is not shorter than the case");
    }
    let hosts = hosts(&raw.hosts)?;
    let links = links(&raw.links, &hosts)?;
    let columns = columns(&raw, context.column)?;
    let mut flows = flows(&raw.flows, &hosts, duration)?;
    for flow in &mut flows {
        if context.flows.is_some_and(|names| !names.contains(&flow.name)) {
            flow.active.clear();
        }
    }
    let events = events(&raw.events, &links, &flows, duration)?;
    let mut case = Case {
        name,
        description: raw.description,
        seed: raw.seed,
        duration,
        warmup,
        offload: raw.offload.unwrap_or(true),
        hosts,
        links,
        columns,
        flows,
        events,
        expectations: Vec::new(),
        figures: Vec::new(),
        row: context.row.map(|row| row.name.clone()),
        folder: path.parent().map(PathBuf::from).unwrap_or_default(),
    };
    case.figures = expect::figures(&raw.figures, &case)?;
    case.expectations = expect::expectations(&raw.expect, &case, context)?;
    Ok(case)
}

/// Names given once each, and not empty.
pub fn unique(seen: &mut HashSet<String>, name: &Spanned<String>, what: &str) -> Result<()> {
    if name.get_ref().is_empty() {
        return bad(name, format!("a {what} needs a name"));
    }
    if !seen.insert(name.get_ref().clone()) {
        return bad(name, format!("there are two {what}s called {:?}", name.get_ref()));
    }
    Ok(())
}

/// The place of a name among others.
pub fn find<'a>(name: &Spanned<String>, what: &str, names: impl Iterator<Item = &'a str> + Clone) -> Result<usize> {
    match names.clone().position(|n| n == name.get_ref()) {
        Some(at) => Ok(at),
        None => {
            let hint = nearest(name.get_ref(), names).map(|n| format!("; did you mean {n:?}?")).unwrap_or_default();
            bad(name, format!("there is no {what} called {:?}{hint}", name.get_ref()))
        }
    }
}

fn hosts(raw: &Spanned<Vec<raw::Host>>) -> Result<Vec<Host>> {
    let (mut names, mut addresses) = (HashSet::new(), HashSet::new());
    let mut hosts = Vec::new();
    if raw.get_ref().len() < 2 {
        return bad(raw, "a case needs two hosts at least");
    }
    if raw.get_ref().len() > 250 {
        return bad(raw, "a case may have 250 hosts at most");
    }
    for (at, host) in raw.get_ref().iter().enumerate() {
        unique(&mut names, &host.name, "host")?;
        let address = match &host.address {
            Some(address) => *address.get_ref(),
            None => IpAddr::V4(Ipv4Addr::new(10, 0, 0, at as u8 + 1)),
        };
        if !addresses.insert(address) {
            let message = format!("two hosts have the address {address}");
            return match &host.address {
                Some(at) => bad(at, message),
                None => bad(&host.name, message),
            };
        }
        hosts.push(Host { name: host.name.get_ref().clone(), address });
    }
    Ok(hosts)
}

fn links(raw: &Spanned<Vec<raw::Link>>, hosts: &[Host]) -> Result<Vec<CaseLink>> {
    let mut names = HashSet::new();
    let mut links = Vec::new();
    if raw.get_ref().is_empty() {
        return bad(raw, "a case needs a link at least");
    }
    for link in raw.get_ref() {
        unique(&mut names, &link.name, "link")?;
        let host = |name| find(name, "host", hosts.iter().map(|h| h.name.as_str()));
        let (from, to) = (host(&link.from)?, host(&link.to)?);
        if from == to {
            return bad(&link.to, "a link needs two ends");
        }
        if link.rate.is_none() && link.policy.is_none() && link.reverse.is_none() {
            return bad(&link.name, "a link without a policy needs a rate");
        }
        if let Some(rate) = link.rate.as_ref().filter(|rate| rate.get_ref().0.is_zero()) {
            return bad(rate, "a link at 0 bit/s carries nothing");
        }
        let queue = match &link.queue {
            None => Limit::Packets(1000),
            Some(text) => match limit(text.get_ref()) {
                Some(limit) => limit,
                None => return bad(text, "a limit is written as \"50packets\" or \"64000bytes\""),
            },
        };
        let tx_ring = match &link.tx_ring {
            Some(n) if *n.get_ref() == 0 => return bad(n, "the driver holds one packet at least: the one on the wire"),
            Some(n) => *n.get_ref() as usize,
            None => 1,
        };
        let tx_queues = match &link.tx_queues {
            Some(n) if !(1..=MOST_QUEUES as u32).contains(n.get_ref()) => {
                return bad(n, format!("a card has 1 to {MOST_QUEUES} transmit queues"));
            }
            Some(n) => *n.get_ref() as usize,
            None => 1,
        };
        links.push(CaseLink {
            name: link.name.get_ref().clone(),
            from,
            to,
            rate: link.rate.as_ref().map(|rate| rate.get_ref().0),
            delay: link.delay.map_or(0, |delay| delay.0),
            // An empty name: none. A row or column says so by a value.
            policy: link.policy.clone().filter(|name| !name.is_empty()),
            reverse: link.reverse.clone().filter(|name| !name.is_empty()),
            queue,
            tx_ring,
            tx_queues,
        });
    }
    Ok(links)
}

fn limit(text: &str) -> Option<Limit> {
    let text = text.trim();
    if let Some(n) = text.strip_suffix("packets") {
        return n.trim().parse().ok().filter(|n| *n > 0).map(Limit::Packets);
    }
    literal::size(text).ok().and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0).map(Limit::Bytes)
}

fn columns(raw: &raw::Case, only: Option<&str>) -> Result<Vec<Column>> {
    let timer = |word: &Option<Spanned<raw::TimerWord>>| match word {
        None => Ok(Timer::Exact),
        Some(word) => match word.get_ref() {
            raw::TimerWord::Word(text) if text == "exact" => Ok(Timer::Exact),
            raw::TimerWord::Word(_) => bad(word, "a timer is \"exact\" or a number of ticks a second"),
            raw::TimerWord::Hz(hz) => tick(*hz).or_else(|message| bad(word, message)),
        },
    };
    let language = |word: &Option<Spanned<String>>| match word {
        None => Ok(None),
        Some(word) => word.get_ref().parse::<Language>().map(Some).or_else(|message| bad(word, message)),
    };
    let policy = |text: &Option<Spanned<String>>, file: &Option<Spanned<PathBuf>>| match (text, file) {
        (Some(_), Some(file)) => bad(file, "there is a policy and a policy_file; only one can hold"),
        (Some(text), None) => Ok(Some(PolicySource::Text(text.get_ref().clone()))),
        (None, Some(file)) => Ok(Some(PolicySource::File(file.get_ref().clone()))),
        (None, None) => Ok(None),
    };
    let top = policy(&raw.policy, &raw.policy_file)?;
    if raw.columns.is_empty() {
        let Some(policy) = top else {
            return bad(&raw.name, "the case has no policy: write policy, policy_file, or [[columns]]");
        };
        let replace = replacements(&raw.replace)?;
        let (mtu, overhead) = (mtu(&raw.mtu)?, overhead(&raw.overhead)?);
        let (language, timer) = (language(&raw.language)?, timer(&raw.timer)?);
        return Ok(vec![Column { name: None, policy, language, timer, replace, mtu, overhead }]);
    }
    let mut names = HashSet::new();
    let mut columns = Vec::new();
    for column in &raw.columns {
        let c = column.get_ref();
        unique(&mut names, &c.name, "column")?;
        if only.is_some_and(|only| only != c.name.get_ref()) {
            continue;
        }
        let Some(policy) = policy(&c.policy, &c.policy_file)?.or_else(|| top.clone()) else {
            return bad(&c.name, "the column has no policy, and there is none at the case's top");
        };
        let word = if c.language.is_some() { &c.language } else { &raw.language };
        let tick = if c.timer.is_some() { &c.timer } else { &raw.timer };
        // Replacements belong to a text: a column with a policy of its own has only its own.
        let own = c.policy.is_some() || c.policy_file.is_some();
        let mut replace = if own { Vec::new() } else { replacements(&raw.replace)? };
        replace.extend(replacements(&c.replace)?);
        columns.push(Column {
            name: Some(c.name.get_ref().clone()),
            policy,
            language: language(word)?,
            timer: timer(tick)?,
            replace,
            mtu: mtu(if c.mtu.is_some() { &c.mtu } else { &raw.mtu })?,
            overhead: overhead(if c.overhead.is_some() { &c.overhead } else { &raw.overhead })?,
        });
    }
    Ok(columns)
}

fn replacements(raw: &[raw::Replace]) -> Result<Vec<(String, String)>> {
    let one = |r: &raw::Replace| match r.find.get_ref().is_empty() {
        true => bad(&r.find, "what is to be replaced?"),
        false => Ok((r.find.get_ref().clone(), r.with.clone())),
    };
    raw.iter().map(one).collect()
}

fn mtu(raw: &Option<Spanned<u32>>) -> Result<Option<u32>> {
    match raw {
        Some(mtu) if !(68..=65_535).contains(mtu.get_ref()) => bad(mtu, "an MTU is 68 to 65535 bytes"),
        mtu => Ok(mtu.as_ref().map(|mtu| *mtu.get_ref())),
    }
}

fn overhead(raw: &Option<Spanned<i32>>) -> Result<Option<i32>> {
    match raw {
        Some(bytes) if !(-64..=256).contains(bytes.get_ref()) => bad(bytes, "an overhead is -64 to 256 bytes"),
        bytes => Ok(bytes.as_ref().map(|bytes| *bytes.get_ref())),
    }
}

fn flows(raw: &[Spanned<raw::Flow>], hosts: &[Host], duration: Nanos) -> Result<Vec<Flow>> {
    let mut names = HashSet::new();
    let mut flows = Vec::new();
    for (at, flow) in raw.iter().enumerate() {
        let (place, flow) = (flow, flow.get_ref());
        unique(&mut names, &flow.name, "flow")?;
        let host = |name| find(name, "host", hosts.iter().map(|h| h.name.as_str()));
        let (from, to) = (host(&flow.from)?, host(&flow.to)?);
        if from == to {
            return bad(&flow.to, "a flow to where it comes from meets no link");
        }
        let v6 = hosts[from].address.is_ipv6();
        if v6 != hosts[to].address.is_ipv6() {
            return bad(&flow.to, "one end speaks IPv4 and the other IPv6");
        }
        let kind = kind(place, flow, v6)?;
        let high = match &flow.high {
            Some(high) if *high.get_ref() && flow.kind.get_ref() != "udp" => {
                return bad(high, "only a flow of kind udp says so; what goes first of other kinds is told by their headers");
            }
            high => high.as_ref().is_some_and(|high| *high.get_ref()),
        };
        let dscp = match &flow.dscp {
            None => 0,
            Some(word) => match dscp(word.get_ref()) {
                Some(dscp) => dscp,
                None => return bad(word, "a DSCP is a number from 0 to 63, or ef, va, be, le, afXY, csX"),
            },
        };
        let nth = u16::try_from(at).unwrap_or(u16::MAX);
        let tcp = matches!(kind, Kind::TcpBulk { .. } | Kind::TcpRr { .. });
        flows.push(Flow {
            name: flow.name.get_ref().clone(),
            from,
            to,
            class: flow.class.clone(),
            sport: flow.sport.as_ref().map_or(if tcp { 0 } else { 10_000u16.saturating_add(nth) }, |p| *p.get_ref()),
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
            return bad(spans, "active is a list of [from, to], in order, none overlapping, none beyond the case's duration");
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

/// DSCP by number or by name: RFC 2474 (cs), 2597 (af), 3246 (ef), 5865 (va), 8622 (le).
fn dscp(word: &raw::Number) -> Option<u8> {
    let text = match word {
        raw::Number::Whole(n) => return u8::try_from(*n).ok().filter(|n| *n < 64),
        raw::Number::Text(text) => text.as_str(),
    };
    let digit = |c: Option<char>, most: u32| c.and_then(|c| c.to_digit(10)).filter(|d| *d <= most);
    match text {
        "ef" => Some(46),
        "va" => Some(44),
        "be" => Some(0),
        "le" => Some(1),
        _ => {
            let mut letters = text.chars();
            let value = match (letters.next()?, letters.next()?) {
                ('c', 's') => digit(letters.next(), 7)? * 8,
                ('a', 'f') => {
                    let (class, drop) = (digit(letters.next(), 4)?, digit(letters.next(), 3)?);
                    if class == 0 || drop == 0 {
                        return None;
                    }
                    class * 8 + drop * 2
                }
                _ => return None,
            };
            letters.next().is_none().then_some(value as u8)
        }
    }
}

/// Keys that a kind of flow does not know.
fn only(flow: &raw::Flow, kind: &str, known: &[&str]) -> Result<()> {
    macro_rules! keys {
        ($($key:ident)*) => { [$((stringify!($key), flow.$key.as_ref().map(|v| v.span()))),*] };
    }
    let keys = keys!(shape size rate interval on off random burst every streams congestion buffers request response file speed);
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
    match flow.kind.get_ref().as_str() {
        "udp" => udp(place, flow, v6).map(Kind::Udp),
        "tcp_bulk" => {
            only(flow, "tcp_bulk", &["streams", "congestion", "buffers"])?;
            let buffers = match &flow.buffers {
                // What the kernel takes as it is written: less is raised to its least, more is beyond a signed 32-bit number.
                Some(n) if !(2048..=1 << 30).contains(n.get_ref()) => return bad(n, "buffers are 2048 to 1073741824 bytes"),
                Some(n) => Some(*n.get_ref()),
                None => None,
            };
            Ok(Kind::TcpBulk { streams, congestion: flow.congestion.as_ref().map(|c| c.get_ref().clone()), buffers })
        }
        "tcp_rr" => {
            only(flow, "tcp_rr", &["streams", "request", "response"])?;
            let bytes = |n: &Option<Spanned<u32>>| match n {
                Some(n) if !(1..=1_000_000_000).contains(n.get_ref()) => bad(n, "1 to 1000000000 bytes"),
                Some(n) => Ok(*n.get_ref()),
                None => Ok(1),
            };
            Ok(Kind::TcpRr { streams, request: bytes(&flow.request)?, response: bytes(&flow.response)? })
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
            let kinds = ["udp", "tcp_bulk", "tcp_rr", "pcap"];
            let hint = nearest(other, kinds.into_iter()).map(|k| format!("; did you mean {k:?}?")).unwrap_or_default();
            bad(&flow.kind, format!("there is no kind {other:?}{hint} Kinds: {}", kinds.join(", ")))
        }
    }
}

fn udp(place: &Spanned<raw::Flow>, flow: &raw::Flow, v6: bool) -> Result<Udp> {
    let least = if v6 { LEAST_UDP_V6 } else { LEAST_UDP_V4 };
    let sizes = match flow.size.as_ref() {
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
        (None, Some(interval)) if interval.get_ref().0 == 0 => bad(interval, "an interval of no time never ends"),
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
            Shape::OnOff { pace: pace()?, on: time(&flow.on, "on")?, off: time(&flow.off, "off")?, random }
        }
        "bursts" => {
            only(flow, "udp, shape bursts,", &["shape", "size", "burst", "every"])?;
            let packets = match &flow.burst {
                Some(n) if *n.get_ref() == 0 => return bad(n, "a burst of no packets is none"),
                Some(n) => *n.get_ref(),
                None => return bad(place, "this shape needs burst, a number of packets"),
            };
            Shape::Bursts { packets, every: time(&flow.every, "every")? }
        }
        other => {
            let shapes = ["constant", "on_off", "poisson", "bursts"];
            let hint = nearest(other, shapes.into_iter()).map(|k| format!("; did you mean {k:?}?")).unwrap_or_default();
            let message = format!("there is no shape {other:?}{hint} Shapes: {}", shapes.join(", "));
            return match &flow.shape {
                Some(at) => bad(at, message),
                None => bad(place, message),
            };
        }
    };
    Ok(Udp { sizes, shape })
}

fn events(raw: &[Spanned<raw::Event>], links: &[CaseLink], flows: &[Flow], duration: Nanos) -> Result<Vec<TimedEvent>> {
    let mut events = Vec::new();
    for event in raw {
        let (place, event) = (event, event.get_ref());
        let at = event.at.get_ref().0;
        if at >= duration {
            return bad(&event.at, "the case is over by then");
        }
        macro_rules! only {
            ($($key:ident)*; $known:expr) => {
                for (key, span) in [$((stringify!($key), event.$key.as_ref().map(|v| v.span()))),*] {
                    if span.is_some() && !$known.contains(&key) {
                        return Err((span, format!("{key} does not go with {}", $known.first().unwrap_or(&"this event"))));
                    }
                }
            };
        }
        let only = |known: &[&str]| -> Result<()> {
            only!(link flow class add remove rate active parent heir flows set; known);
            Ok(())
        };
        let text = |key: &Option<Spanned<String>>| key.as_ref().map(|k| k.get_ref().clone());
        let set = || {
            let words = event.set.as_ref().map(|set| set.get_ref().iter()).into_iter().flatten();
            words
                .map(|(word, value)| {
                    let value = match value {
                        raw::Word::Flag(flag) => WordValue::Flag(*flag),
                        raw::Word::Number(n) => WordValue::Number(*n),
                        raw::Word::Text(text) => WordValue::Text(text.clone()),
                    };
                    (word.clone(), value)
                })
                .collect::<Vec<_>>()
        };
        let what = if let Some(class) = &event.class {
            only(&["class", "parent", "set"])?;
            if event.set.is_none() && event.parent.is_none() {
                return bad(place, "what changes about the class? Write set or parent");
            }
            What::SetClass { class: class.get_ref().clone(), parent: text(&event.parent), set: set() }
        } else if let Some(class) = &event.add {
            only(&["add", "parent", "set", "flows"])?;
            let names = event.flows.iter().flat_map(|list| list.get_ref().iter());
            let flows = names.map(|f| find(f, "flow", flows.iter().map(|f| f.name.as_str()))).collect::<Result<_>>()?;
            What::AddClass { class: class.get_ref().clone(), parent: text(&event.parent), set: set(), flows }
        } else if let Some(class) = &event.remove {
            only(&["remove", "heir"])?;
            What::RemoveClass { class: class.get_ref().clone(), heir: text(&event.heir) }
        } else if let Some(link) = &event.link {
            only(&["link", "rate"])?;
            let link = find(link, "link", links.iter().map(|l| l.name.as_str()))?;
            match &event.rate {
                Some(rate) if rate.get_ref().0.is_zero() => return bad(rate, "a link at 0 bit/s carries nothing"),
                Some(rate) => What::LinkRate { link, rate: rate.get_ref().0 },
                None => return bad(place, "what changes about the link? Write rate"),
            }
        } else if let Some(name) = &event.flow {
            only(&["flow", "rate", "active"])?;
            let flow = find(name, "flow", flows.iter().map(|f| f.name.as_str()))?;
            match (&event.rate, &event.active) {
                (Some(rate), None) if rate.get_ref().0.is_zero() => return bad(rate, "write active = false instead"),
                (Some(rate), None) => {
                    let paced = matches!(&flows[flow].kind, Kind::Udp(udp) if !matches!(udp.shape, Shape::Bursts { .. }));
                    if !paced {
                        return bad(rate, "only UDP flows with a pace have a rate");
                    }
                    What::FlowRate { flow, rate: rate.get_ref().0 }
                }
                (None, Some(active)) => What::FlowActive { flow, active: *active.get_ref() },
                _ => return bad(place, "what changes about the flow? Write rate or active, one of them"),
            }
        } else {
            return bad(place, "what changes? Write one of class, add, remove, link, flow");
        };
        events.push(TimedEvent { at, what });
    }
    // Those of one time stay in the order in which they were written.
    events.sort_by_key(|event| event.at);
    Ok(events)
}
