//! A case as it is written: every key, none compared with others. Unknown keys are errors.

use std::collections::BTreeMap;
use std::path::PathBuf;

use altq_engine::units::{Nanos, Rate as EngineRate};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, de};
use toml::Spanned;

use super::template::Values;
use altq_config::literal;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub name: Spanned<String>,
    pub description: String,
    #[serde(default = "one")]
    pub seed: u64,
    pub duration: Spanned<Time>,
    #[serde(default)]
    pub warmup: Option<Spanned<Time>>,
    pub offload: Option<bool>,
    pub only: Option<Spanned<Only>>,
    pub overload: Option<bool>,
    pub turns: Option<Spanned<u32>>,
    pub policy: Option<Spanned<String>>,
    pub policy_file: Option<Spanned<PathBuf>>,
    pub language: Option<Spanned<String>>,
    pub timer: Option<Spanned<TimerWord>>,
    pub controller: Option<Spanned<String>>,
    #[serde(default)]
    pub columns: Vec<Spanned<Column>>,
    pub hosts: Spanned<Vec<Host>>,
    pub links: Spanned<Vec<Link>>,
    #[serde(default)]
    pub flows: Vec<Spanned<Flow>>,
    #[serde(default)]
    pub events: Vec<Spanned<Event>>,
    #[serde(default)]
    pub expect: Vec<Spanned<Expect>>,
    #[serde(default)]
    pub replace: Vec<Replace>,
    pub mtu: Option<Spanned<u32>>,
    pub overhead: Option<Spanned<i32>>,
    #[serde(default)]
    pub figures: Vec<Spanned<Figured>>,
    // What [`Head`] reads.
    #[serde(rename = "values")]
    _values: Option<IgnoredAny>,
    #[serde(rename = "rows")]
    _rows: Option<IgnoredAny>,
    #[serde(rename = "shape")]
    _shape: Option<IgnoredAny>,
    #[serde(rename = "not_reproduced")]
    _not_reproduced: Option<IgnoredAny>,
    #[serde(rename = "published_in")]
    _published_in: Option<IgnoredAny>,
}

/// The keys that say how often a case runs, and with which values. Everything else in the file may
/// depend on them.
#[derive(Debug, Deserialize)]
pub struct Head {
    pub name: Spanned<String>,
    pub description: String,
    #[serde(default = "one")]
    pub seed: u64,
    pub published_in: Option<Spanned<String>>,
    #[serde(default)]
    pub values: Values,
    #[serde(default)]
    pub columns: Vec<Spanned<HeadColumn>>,
    #[serde(default)]
    pub rows: Vec<Spanned<Row>>,
    #[serde(default)]
    pub shape: Vec<Spanned<Shape>>,
    #[serde(default)]
    pub not_reproduced: Vec<Spanned<NotReproduced>>,
}

#[derive(Debug, Deserialize)]
pub struct HeadColumn {
    pub name: Spanned<String>,
    pub samples: Option<Spanned<Samples>>,
    #[serde(default)]
    pub values: Values,
}

/// The number of seeds, or the values of each sample.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a number of seeds, or a list of values")]
pub enum Samples {
    Seeds(u32),
    Values(Vec<Values>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    pub name: Spanned<String>,
    #[serde(default)]
    pub values: Values,
    #[serde(default)]
    pub published: BTreeMap<Spanned<String>, Spanned<(f64, Number)>>,
    pub flows: Option<Spanned<Vec<Spanned<String>>>>,
    pub columns: Option<Spanned<Vec<Spanned<String>>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    pub name: Spanned<String>,
    pub figure: Spanned<String>,
    pub column: Option<Spanned<String>>,
    pub world: Option<Spanned<String>>,
    pub ratio: Option<Spanned<(Spanned<String>, Spanned<String>)>>,
    pub columns: Option<Spanned<(Spanned<String>, Spanned<String>)>>,
    pub monotone: Option<Spanned<String>>,
    pub rows: Option<Spanned<Vec<Spanned<String>>>>,
    pub expected: Option<Spanned<Figure>>,
    pub tolerance: Option<Spanned<Figure>>,
    pub bound: Option<Spanned<String>>,
    pub source: Spanned<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotReproduced {
    pub figure: Spanned<String>,
    pub column: Spanned<String>,
    pub rows: Option<Spanned<Vec<Spanned<String>>>>,
    pub reason: Spanned<String>,
}

/// The only world in which something makes sense, and the reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Only {
    pub world: Spanned<String>,
    pub reason: Spanned<String>,
}

/// Something measured in every row.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figured {
    pub name: Spanned<String>,
    pub measure: Option<Spanned<String>>,
    pub class: Option<Spanned<String>>,
    pub flow: Option<Spanned<String>>,
    pub of: Option<Spanned<String>>,
    pub from: Option<Spanned<Time>>,
    pub to: Option<Spanned<Time>>,
    pub level: Option<Spanned<Rate>>,
    pub over: Option<Spanned<Time>>,
    pub counter: Option<Spanned<String>>,
    pub ratio: Option<Spanned<(Spanned<String>, Spanned<String>)>>,
    pub unit: Option<Spanned<String>>,
    pub rows: Option<Spanned<Vec<Spanned<String>>>>,
}

/// A piece of the policy's text, and what replaces it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replace {
    pub find: Spanned<String>,
    pub with: String,
    pub times: Option<Spanned<u32>>,
}

fn one() -> u64 {
    1
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    pub name: Spanned<String>,
    pub policy: Option<Spanned<String>>,
    pub policy_file: Option<Spanned<PathBuf>>,
    pub language: Option<Spanned<String>>,
    pub timer: Option<Spanned<TimerWord>>,
    pub controller: Option<Spanned<String>>,
    #[serde(default)]
    pub replace: Vec<Replace>,
    pub mtu: Option<Spanned<u32>>,
    pub overhead: Option<Spanned<i32>>,
    pub only: Option<Spanned<Only>>,
    // What [`Head`] reads.
    #[serde(rename = "samples")]
    _samples: Option<IgnoredAny>,
    #[serde(rename = "values")]
    _values: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    pub name: Spanned<String>,
    pub address: Option<Spanned<std::net::IpAddr>>,
    pub delay: Option<Time>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    pub name: Spanned<String>,
    pub from: Spanned<String>,
    pub to: Spanned<String>,
    pub rate: Option<Spanned<Rate>>,
    pub reverse_rate: Option<Spanned<Rate>>,
    pub delay: Option<Time>,
    pub reverse_delay: Option<Time>,
    pub jitter: Option<Time>,
    pub reverse_jitter: Option<Time>,
    pub keep_order: Option<bool>,
    pub loss: Option<Spanned<Loss>>,
    pub reverse_loss: Option<Spanned<Loss>>,
    pub reorder: Option<Spanned<Figure>>,
    pub reorder_delay: Option<Spanned<Time>>,
    pub medium: Option<Spanned<String>>,
    pub duplex: Option<Spanned<String>>,
    pub mtu: Option<Spanned<u32>>,
    pub tunnel: Option<Spanned<String>>,
    pub tunnel_addresses: Option<Spanned<[std::net::Ipv4Addr; 2]>>,
    pub policy: Option<String>,
    pub reverse: Option<String>,
    pub queue: Option<Spanned<String>>,
    pub reverse_queue: Option<Spanned<String>>,
    pub tx_ring: Option<Spanned<u32>>,
    pub tx_queues: Option<Spanned<u32>>,
    pub tx_buffer: Option<Spanned<u32>>,
    pub trace: Option<Spanned<PathBuf>>,
    pub reverse_trace: Option<Spanned<PathBuf>>,
}

/// A fraction of packets, or the four probabilities of Gilbert's and Elliott's model.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a share, or { enter, leave } with good and bad")]
pub enum Loss {
    Share(Figure),
    Bursts(LossBursts),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossBursts {
    pub enter: Figure,
    pub leave: Figure,
    pub good: Option<Figure>,
    pub bad: Option<Figure>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    pub name: Spanned<String>,
    pub kind: Spanned<String>,
    pub from: Spanned<String>,
    pub to: Spanned<String>,
    pub class: Option<Spanned<String>>,
    pub sport: Option<Spanned<u16>>,
    pub dport: Option<Spanned<u16>>,
    pub dscp: Option<Spanned<Number>>,
    pub high: Option<Spanned<bool>>,
    pub start: Option<Spanned<Time>>,
    pub stop: Option<Spanned<Time>>,
    pub active: Option<Spanned<Vec<(Time, Time)>>>,
    pub shape: Option<Spanned<String>>,
    pub size: Option<Spanned<Sizes>>,
    pub rate: Option<Spanned<Rate>>,
    pub interval: Option<Spanned<Time>>,
    pub on: Option<Spanned<Time>>,
    pub off: Option<Spanned<Time>>,
    pub random: Option<Spanned<bool>>,
    pub burst: Option<Spanned<u32>>,
    pub every: Option<Spanned<Time>>,
    pub alpha: Option<Spanned<f64>>,
    pub codec: Option<Spanned<String>>,
    pub sleep: Option<Spanned<Time>>,
    pub stack: Option<Spanned<String>>,
    pub mss: Option<Spanned<u32>>,
    pub ecn: Option<Spanned<bool>>,
    pub stagger: Option<Spanned<Time>>,
    pub tso: Option<Spanned<bool>>,
    pub msl: Option<Spanned<Time>>,
    pub retry: Option<Spanned<Time>>,
    pub streams: Option<Spanned<u32>>,
    pub congestion: Option<Spanned<String>>,
    pub buffers: Option<Spanned<u32>>,
    pub request: Option<Spanned<u32>>,
    pub response: Option<Spanned<u32>>,
    pub file: Option<Spanned<PathBuf>>,
    pub speed: Option<Spanned<f64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    pub at: Spanned<Time>,
    pub link: Option<Spanned<String>>,
    pub flow: Option<Spanned<String>>,
    pub class: Option<Spanned<String>>,
    pub add: Option<Spanned<String>>,
    pub remove: Option<Spanned<String>>,
    pub rate: Option<Spanned<Rate>>,
    pub reverse_rate: Option<Spanned<Rate>>,
    pub active: Option<Spanned<bool>>,
    pub parent: Option<Spanned<String>>,
    pub heir: Option<Spanned<String>>,
    pub flows: Option<Spanned<Vec<Spanned<String>>>>,
    pub set: Option<Spanned<BTreeMap<String, Word>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    pub name: Option<Spanned<String>>,
    pub figure: Option<Spanned<String>>,
    pub rows: Option<Spanned<Vec<Spanned<String>>>>,
    pub level: Option<Spanned<Rate>>,
    pub over: Option<Spanned<Time>>,
    pub counter: Option<Spanned<String>>,
    pub measure: Option<Spanned<String>>,
    pub class: Option<Spanned<String>>,
    pub flow: Option<Spanned<String>>,
    pub of: Option<Spanned<String>>,
    pub from: Option<Spanned<Time>>,
    pub to: Option<Spanned<Time>>,
    pub expected: Spanned<Figure>,
    pub tolerance: Option<Spanned<Figure>>,
    pub bound: Option<Spanned<String>>,
    pub column: Option<Spanned<String>>,
    pub world: Option<Spanned<String>>,
    pub source: Option<Spanned<String>>,
}

/// A time: text with a unit, or nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Time(pub Nanos);

/// A rate: text with a unit, or bit/s.
#[derive(Clone, Copy, Debug)]
pub struct Rate(pub EngineRate);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
        match Number::deserialize(deserializer)? {
            Number::Text(text) => literal::time_with_unit(&text).map(Time).map_err(de::Error::custom),
            Number::Whole(value) => Ok(Time(value)),
        }
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rate, D::Error> {
        match Number::deserialize(deserializer)? {
            Number::Text(text) => literal::rate_with_unit(&text).map(Rate).map_err(de::Error::custom),
            Number::Whole(value) => Ok(Rate(EngineRate::bit_s(value))),
        }
    }
}

/// A text or a whole number.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a text or a whole number")]
pub enum Number {
    Whole(u64),
    Text(String),
}

/// `exact`, or a number of ticks per second.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "\"exact\" or a number of ticks a second")]
pub enum TimerWord {
    Hz(u64),
    Word(String),
}

/// One size, or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a size in bytes, or a list of them")]
pub enum Sizes {
    One(u32),
    Several(Vec<u32>),
}

/// A word's value.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a text, a whole number, true or false")]
pub enum Word {
    Flag(bool),
    Number(u64),
    Text(String),
}

/// A figure: a number, or text with a unit.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a number, or a text with a unit")]
pub enum Figure {
    Number(f64),
    Text(String),
}
