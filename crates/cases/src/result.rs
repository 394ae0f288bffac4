//! `altq.result/1`: what `altq sim` and `altq lab` write.

mod series;

use std::collections::HashMap;

use altq_config::{Link as PolicyLink, Promises};
use serde::{Deserialize, Serialize, Serializer};

use crate::case::{Bound, Case, Column, Expectation, Flow, Governed, Measure, Subject, full_name};
use crate::gaps::GapSummary;
use crate::report::ClassReport;
use crate::standstill::Standstill;
pub use crate::world::World;
pub(crate) use series::unless_zero;
pub use series::{Delays, QUANTILES, RateChange, Reclaim, RunSeries, SeriesRow};

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CaseResult {
    /// `altq.result/1`.
    pub schema: String,
    /// The case's name.
    pub case: String,
    /// The world in which it ran.
    pub world: World,
    /// False if the figures cannot be trusted; `notes` has the reasons.
    pub valid: bool,
    /// The seed that it ran with.
    pub seed: u64,
    /// All seeds, if the case ran at several; figures and expectations are then about the means.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seeds: Vec<u64>,
    /// The description in the case.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Duration of the run.
    #[serde(default)]
    pub duration_ns: u64,
    /// The time from which on things are measured, unless an expectation says otherwise.
    #[serde(default)]
    pub warmup_ns: u64,
    /// The program and the files with which it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Made>,
    /// The expectations, with what came out.
    pub expectations: Vec<Outcome>,
    /// The case's figures, row by row and column by column, with what was published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<FigureResult>,
    /// A row for each flow, and for each column if the case has several.
    pub flows: Vec<FlowResult>,
    /// A row for each class, and for each column if the case has several.
    pub classes: Vec<ClassResult>,
    /// Results of the same traffic through something else in the link's place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerResult>,
    /// Remarks for the reader of the result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The quantiles that [`Delays::ns`] of `series` has: [`QUANTILES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quantiles: Vec<f64>,
    /// The runs over time, if that was kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<RunSeries>,
}

/// How a result was made: everything that is needed to make it again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Made {
    /// Version of altq.
    pub version: String,
    /// The command line.
    pub command: String,
    /// The case file and the files that it names, each with the SHA-256 of its bytes.
    pub files: Vec<MadeFrom>,
    /// The kernel, if the run used it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The time of the run in seconds since 1970, UTC, if it ran in real time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_unix_s: Option<u64>,
    /// Whether hosts could send super-packets, in the lab.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offload: Option<bool>,
}

/// A file that a result was made from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MadeFrom {
    /// Its name in the command or in the case.
    pub file: String,
    /// SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
}

impl CaseResult {
    /// A result without any rows.
    pub fn new(case: &str, world: World, seed: u64) -> CaseResult {
        CaseResult {
            schema: "altq.result/1".into(),
            case: case.into(),
            world,
            valid: true,
            seed,
            seeds: Vec::new(),
            description: String::new(),
            duration_ns: 0,
            warmup_ns: 0,
            made: None,
            expectations: Vec::new(),
            figures: Vec::new(),
            flows: Vec::new(),
            classes: Vec::new(),
            peers: Vec::new(),
            notes: Vec::new(),
            quantiles: Vec::new(),
            series: Vec::new(),
        }
    }

    /// Fills in the case that it is about.
    pub fn describe(&mut self, case: &Case) {
        (self.description, self.duration_ns, self.warmup_ns) =
            (case.description.trim().to_owned(), case.duration, case.warmup);
    }

    /// Adds a run over time.
    pub fn keep(&mut self, series: RunSeries) {
        self.quantiles = QUANTILES.to_vec();
        self.series.push(series);
    }

    /// Marks the result as one that cannot be trusted.
    pub fn invalid(&mut self, why: impl Into<String>) {
        self.valid = false;
        self.notes.push(why.into());
    }

    /// The seeds at which this case alone would have failed, each with the number of expectations
    /// that it does not meet. Empty if it ran at one seed.
    pub fn seeds_that_fail(&self) -> Vec<(u64, usize)> {
        let failures = |seed| self.expectations.iter().filter(|outcome| outcome.fails_at.contains(seed)).count();
        self.seeds.iter().map(|seed| (*seed, failures(seed))).filter(|(_, failures)| *failures > 0).collect()
    }

    /// True if every expectation passed and the result can be trusted.
    pub fn passed(&self) -> bool {
        self.valid && self.expectations.iter().all(|outcome| outcome.pass)
    }
}

/// An expectation, and what came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Outcome {
    /// Its name; `CASE/COLUMN/NAME` if the case has columns.
    pub name: String,
    /// The column, if the case has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// The row, if the case has rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<String>,
    /// The name of the case's figure that is judged, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figure: Option<String>,
    /// The class of which something was measured, as the case names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The flow of which something was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<String>,
    /// The measure.
    pub measure: Measure,
    /// The unit of the three numbers below: `fraction`, `bit/s`, `ns`, or empty for a count.
    #[serde(default)]
    pub unit: String,
    /// The expected value.
    #[serde(serialize_with = "number")]
    pub expected: f64,
    /// How far the measured value may be from it.
    #[serde(serialize_with = "number")]
    pub tolerance: f64,
    /// On which side it may be.
    #[serde(default)]
    pub bound: Bound,
    /// The measured value; `None` if there was nothing to measure. Of several seeds it is the mean.
    #[serde(serialize_with = "some_number")]
    pub measured: Option<f64>,
    /// Why there is no measured value, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// The value at each seed, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Option<f64>>,
    /// Half the width of the 95 % confidence interval of that mean, if there are several seeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_width: Option<f64>,
    /// The seeds at which the value alone does not meet the expectation, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fails_at: Vec<u64>,
    /// True if the measured value meets the expectation.
    pub pass: bool,
    /// Where the expected figure comes from.
    pub source: String,
    /// True if the expected value is a published one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub published: bool,
}

/// Why a counter has no value.
const NO_COUNTER: &str = "no such counter";

impl Outcome {
    /// The measured value as `show` writes it; without one the reason.
    pub fn shown(&self, show: impl FnOnce(f64) -> String) -> String {
        match (self.measured, &self.missing) {
            (Some(measured), _) => show(measured),
            (None, Some(why)) => why.clone(),
            (None, None) => "nothing".to_owned(),
        }
    }

    /// Judges a measured figure.
    pub fn judge(case: &Case, column: &Column, expectation: &Expectation, measured: Option<f64>) -> Outcome {
        let measure = expectation.probe.measure;
        Outcome {
            name: case.expectation_name(column, &expectation.name),
            column: column.name.clone(),
            row: case.row.clone(),
            figure: expectation.figure.and_then(|at| case.figures.get(at)).map(|figure| figure.name.clone()),
            class: match &expectation.probe.subject {
                Subject::Class(name) => Some(name.text.clone()),
                _ => None,
            },
            flow: match expectation.probe.subject {
                Subject::Flow(flow) => case.flows.get(flow).map(|flow| flow.name.clone()),
                _ => None,
            },
            measure,
            unit: measure.unit().name().into(),
            expected: expectation.expected,
            tolerance: expectation.tolerance,
            bound: expectation.bound,
            measured,
            missing: (measured.is_none() && measure == Measure::Counter).then(|| NO_COUNTER.to_owned()),
            samples: Vec::new(),
            half_width: None,
            fails_at: Vec::new(),
            pass: measured.is_some_and(|m| expectation.holds(m)),
            source: expectation.source.clone(),
            published: expectation.published,
        }
    }
}

/// A figure of the case's table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FigureResult {
    /// The row, if the case has rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<String>,
    /// The column, if the case has columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// Its name.
    pub figure: String,
    /// The unit of all numbers here.
    pub unit: String,
    /// The measured value: the mean of the samples, or in the lab the median of the turns; `None`
    /// if there was nothing to measure.
    #[serde(serialize_with = "some_number")]
    pub measured: Option<f64>,
    /// Why there is no measured value, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// The value of each sample, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Option<f64>>,
    /// Half the width of the 95 % confidence interval of the mean over several seeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_width: Option<f64>,
    /// The value that was published for the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<f64>,
    /// Where it was published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Measured divided by published, minus 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// Why the published value does not come out in this column, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_reproduced: Option<String>,
}

/// The result of the same traffic through something else at the link's rate, in the same run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PeerResult {
    /// The column, if the case has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// The name of what took altq's place: `htb`.
    pub name: String,
    /// Payload of all bulk TCP flows delivered through it from the warm-up on, in bit/s.
    pub bulk_bit_s: u64,
    /// The same through altq.
    pub altq_bulk_bit_s: u64,
    /// altq's rate divided by the peer's; `None` if the peer delivered nothing.
    #[serde(serialize_with = "some_number")]
    pub ratio: Option<f64>,
    /// The payload of each flow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<PeerRow>,
    /// The charged bytes of each class, if the peer has the policy's classes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<PeerRow>,
}

/// A flow or class through the peer and through altq, from the warm-up on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PeerRow {
    /// Its name.
    pub name: String,
    /// The rate through the peer, in bit/s.
    pub bit_s: u64,
    /// The rate through altq, in bit/s.
    pub altq_bit_s: u64,
    /// altq's rate divided by the peer's; `None` if the peer delivered nothing.
    #[serde(serialize_with = "some_number")]
    pub ratio: Option<f64>,
}

impl PeerRow {
    /// A row with its ratio.
    pub fn new(name: &str, altq_bit_s: u64, bit_s: u64) -> PeerRow {
        let ratio = (bit_s > 0).then(|| altq_bit_s as f64 / bit_s as f64);
        PeerRow { name: name.into(), bit_s, altq_bit_s, ratio }
    }
}

/// For links with more classes than this, results do not contain what the policy promises to
/// classes.
const MANY: usize = 1000;

/// A class's row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClassResult {
    /// The row of the case, if it has rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<String>,
    /// The column, if the case has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// Its link: that of the policy. If one link of the policy governs several directions, that of
    /// the case, with ` reverse` after it for the direction back.
    pub link: String,
    /// The same row as in `altq replay`.
    #[serde(flatten)]
    pub report: ClassReport,
    /// The rate that the policy guarantees it when the case begins. `None` if an event changes it,
    /// or if the link has more than 1,000 classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guaranteed_bit_s: Option<u64>,
    /// The highest rate that it may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_bit_s: Option<u64>,
    /// Bytes that the link charged for what it sent in the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged_bytes: Option<u64>,
}

impl ClassResult {
    /// A row for a class of this direction, with what the policy's link promises the class.
    pub fn new(
        column: Option<String>,
        way: &Governed<'_>,
        report: ClassReport,
        (policy, promises): (&PolicyLink, &Promises<'_>),
        case: &Case,
    ) -> ClassResult {
        let changed = case.events.iter().any(|event| event.what.changes(way, &report.name));
        // The promises depend on all classes, so computing them takes time for many classes.
        let class = policy.class(&report.name).filter(|_| !changed && policy.classes.len() <= MANY);
        ClassResult {
            row: None,
            column,
            link: way.name.clone(),
            guaranteed_bit_s: class.map(|class| promises.guaranteed(class).unwrap_or_default().as_bit_s()),
            ceiling_bit_s: class.map(|class| policy.ceiling(class).as_bit_s()),
            charged_bytes: None,
            report,
        }
    }
}

/// A row, a column and the name of a class.
type ClassOfRun<'a> = (Option<&'a str>, Option<&'a str>, &'a str);

/// The names by which the classes of a result are known.
pub struct ClassNames<'a> {
    /// The link that has a class of this name; `None`: several have one.
    links: HashMap<ClassOfRun<'a>, Option<&'a str>>,
}

impl<'a> ClassNames<'a> {
    /// Those of these classes.
    pub fn of(classes: impl IntoIterator<Item = &'a ClassResult>) -> ClassNames<'a> {
        let mut links = HashMap::new();
        for class in classes {
            let link = links.entry(ClassNames::key(class)).or_insert(Some(class.link.as_str()));
            if *link != Some(class.link.as_str()) {
                *link = None;
            }
        }
        ClassNames { links }
    }

    /// The name of a class: its own, or `LINK/CLASS` if several links have a class of that name.
    /// The row of a link has the link's name.
    pub fn name(&self, class: &ClassResult) -> String {
        if class.report.parent.is_none() {
            return class.link.clone();
        }
        match self.links.get(&ClassNames::key(class)) {
            Some(None) => full_name(&class.link, &class.report.name),
            _ => class.report.name.clone(),
        }
    }

    fn key(class: &ClassResult) -> (Option<&str>, Option<&str>, &str) {
        (class.row.as_deref(), class.column.as_deref(), &class.report.name)
    }
}

/// A flow's row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlowResult {
    /// The row of the case, if it has rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<String>,
    /// The column, if the case has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// Its name.
    pub name: String,
    /// The class of its packets, as `LINK/CLASS` if several links have a class of that name; `None`
    /// if they had none, or several.
    pub class: Option<String>,
    /// Payload delivered from the warm-up on, in bit/s.
    pub goodput_bit_s: u64,
    /// Round trips.
    pub rtt_ns: Percentiles,
    /// Requests answered per second.
    #[serde(serialize_with = "some_number")]
    pub transactions_per_s: Option<f64>,
    /// The times from source to destination.
    #[serde(default)]
    pub delay_ns: Percentiles,
    /// Packets sent; `None` if that is not known.
    #[serde(default)]
    pub sent_packets: Option<u64>,
    /// Packets that arrived.
    #[serde(default)]
    pub received_packets: Option<u64>,
    /// Packets lost. For these counts, all of the time from the warm-up on,
    /// `under_way_before + sent = received + lost + under_way`.
    #[serde(default)]
    pub lost_packets: Option<u64>,
    /// Packets that were in queues or on links at the end of the run. In the lab: those sent after
    /// the last that arrived.
    #[serde(default)]
    pub under_way_packets: Option<u64>,
    /// Packets that were in queues or on links at the end of the warm-up.
    #[serde(default)]
    pub under_way_before_packets: u64,
    /// The kind of its traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
    /// The gaps between the packets that arrived, from the warm-up on; `None` if there were none,
    /// or too many flows to keep them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gaps: Option<GapSummary>,
    /// For TCP the longest time of at least a second for which the flow had something to send and
    /// nothing of it was delivered, over the whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standstill: Option<Standstill>,
}

/// The kind of traffic of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Traffic {
    /// Its kind in the case.
    pub kind: String,
    /// The host that sends; for requests, the one that asks.
    pub from: String,
    /// The host that receives.
    pub to: String,
    /// DSCP of its packets.
    pub dscp: u8,
    /// Number of connections at once.
    pub streams: u32,
}

impl Traffic {
    /// The traffic of a case's flow.
    pub fn of(case: &Case, flow: &Flow) -> Traffic {
        let host = |at: usize| case.hosts.get(at).map_or(String::new(), |host| host.name.clone());
        let (kind, streams) = (flow.kind.word().to_owned(), flow.kind.streams());
        Traffic { kind, from: host(flow.from), to: host(flow.to), dscp: flow.dscp, streams }
    }
}

/// Two percentiles; `None` if nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Percentiles {
    /// The median.
    pub p50: Option<u64>,
    /// The 99th percentile.
    pub p99: Option<u64>,
}

impl Percentiles {
    /// The percentiles of `samples`, whose order is changed.
    pub fn of(samples: &mut [u64]) -> Percentiles {
        let both = crate::statistics::percentiles(samples, [50, 99]);
        Percentiles { p50: both.map(|[p50, _]| p50), p99: both.map(|[_, p99]| p99) }
    }
}

/// Serializes a whole number without a decimal point: rates in bit/s, times in ns.
fn number<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.fract() == 0.0 && value.abs() < 9e15 {
        serializer.serialize_i64(*value as i64)
    } else {
        serializer.serialize_f64(*value)
    }
}

fn some_number<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => number(value, serializer),
        None => serializer.serialize_none(),
    }
}
