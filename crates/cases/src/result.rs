//! `altq.result/1`: what `altq sim` and `altq lab` write.

mod series;

use altq_config::{Link as PolicyLink, Promises};
use serde::{Deserialize, Serialize, Serializer};

use crate::case::{Bound, Case, Column, Expectation, Flow, Measure, What};
use crate::gaps::GapSummary;
use crate::report::ClassReport;
pub use crate::world::World;
pub(crate) use series::unless_zero;
pub use series::{Delays, QUANTILES, Reclaim, RunSeries, SeriesRow};

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// `altq.result/1`.
    pub schema: String,
    /// The case's name.
    pub case: String,
    /// Where it ran.
    pub world: World,
    /// False where the figures are not to be trusted; `notes` say why.
    pub valid: bool,
    /// The seed that it ran with.
    pub seed: u64,
    /// What the case shows, in its own words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// How long it ran, and from when on it was measured.
    #[serde(default)]
    pub duration_ns: u64,
    /// From when on it was measured, where an expectation says nothing else.
    #[serde(default)]
    pub warmup_ns: u64,
    /// By what, and from what, it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Made>,
    /// What had to come out, and what did.
    pub expectations: Vec<Outcome>,
    /// The case's figures, row by row and column by column, beside what was published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<FigureResult>,
    /// A row a flow, and a column where the case has several.
    pub flows: Vec<FlowResult>,
    /// A row a class, and a column where the case has several.
    pub classes: Vec<ClassResult>,
    /// What else stood in the link's place, and how it did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerResult>,
    /// What the reader must know of this result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What is at [`Delays::ns`] of `series`: [`QUANTILES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quantiles: Vec<f64>,
    /// Runs over time, where that was kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<RunSeries>,
}

/// How a result was made: all that is needed to make it again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Version of altq.
    pub version: String,
    /// The command line.
    pub command: String,
    /// The case file and the files that it names, each with the SHA-256 of its bytes.
    pub files: Vec<MadeFrom>,
    /// The kernel, where it took part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// When, where real time took part: seconds since 1970, UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_unix_s: Option<u64>,
    /// Whether hosts could send super-packets, where that is theirs to decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offload: Option<bool>,
}

/// A file that a result was made from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeFrom {
    /// Its name, as the command or the case has it.
    pub file: String,
    /// SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
}

impl CaseResult {
    /// A result without rows.
    pub fn new(case: &str, world: World, seed: u64) -> CaseResult {
        CaseResult {
            schema: "altq.result/1".into(),
            case: case.into(),
            world,
            valid: true,
            seed,
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

    /// Says which case it is of.
    pub fn describe(&mut self, case: &Case) {
        (self.description, self.duration_ns, self.warmup_ns) =
            (case.description.trim().to_owned(), case.duration, case.warmup);
    }

    /// Keeps a run over time.
    pub fn keep(&mut self, series: RunSeries) {
        self.quantiles = QUANTILES.to_vec();
        self.series.push(series);
    }

    /// Marks the result as not to be trusted.
    pub fn invalid(&mut self, why: impl Into<String>) {
        self.valid = false;
        self.notes.push(why.into());
    }

    /// True if every expectation passed and the result can be trusted.
    pub fn passed(&self) -> bool {
        self.valid && self.expectations.iter().all(|outcome| outcome.pass)
    }
}

/// An expectation, and what came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Its name; `CASE/COLUMN/NAME` where the case has columns.
    pub name: String,
    /// The column, where the case has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// The row, where the case has rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<String>,
    /// The figure of the case that is judged, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figure: Option<String>,
    /// What was measured.
    pub measure: Measure,
    /// The unit of the three numbers below: `fraction`, `bit/s`, `ns`, or empty for a count.
    #[serde(default)]
    pub unit: String,
    /// What it had to be, in the measure's unit: a fraction, bit/s, ns, or a count.
    #[serde(serialize_with = "number")]
    pub expected: f64,
    /// How far off it could be, in the same unit.
    #[serde(serialize_with = "number")]
    pub tolerance: f64,
    /// On which side.
    #[serde(default)]
    pub bound: Bound,
    /// What it was; `None` if there was nothing to measure.
    #[serde(serialize_with = "some_number")]
    pub measured: Option<f64>,
    /// Whether it did.
    pub pass: bool,
    /// Where the expected figure comes from.
    pub source: String,
    /// The expected figure is a published one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub published: bool,
}

impl Outcome {
    /// Judges a measured figure.
    pub fn judge(case: &Case, column: &Column, expectation: &Expectation, measured: Option<f64>) -> Outcome {
        let measure = expectation.probe.measure;
        Outcome {
            name: case.expectation_name(column, &expectation.name),
            column: column.name.clone(),
            row: case.row.clone(),
            figure: expectation.figure.and_then(|at| case.figures.get(at)).map(|figure| figure.name.clone()),
            measure,
            unit: measure.unit().name().into(),
            expected: expectation.expected,
            tolerance: expectation.tolerance,
            bound: expectation.bound,
            measured,
            pass: measured.is_some_and(|m| expectation.holds(m)),
            source: expectation.source.clone(),
            published: expectation.published,
        }
    }
}

/// A figure of the case's table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigureResult {
    /// The row, where the case has rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<String>,
    /// The column, where the case has columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// Its name.
    pub figure: String,
    /// The unit of all numbers here.
    pub unit: String,
    /// What came out, the mean of the samples (in the lab the median of turns); `None` if there was
    /// nothing to measure.
    #[serde(serialize_with = "some_number")]
    pub measured: Option<f64>,
    /// What came out of each sample, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Option<f64>>,
    /// What was published for the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<f64>,
    /// Where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Measured over published, less one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// Why the published figure does not come out in this column, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_reproduced: Option<String>,
}

/// The same traffic through something else at the link's rate, in the same run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerResult {
    /// The column, where the case has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// What it was: `htb`.
    pub name: String,
    /// Payload of all bulk TCP flows delivered through it from the warm-up on, in bit/s.
    pub bulk_bit_s: u64,
    /// The same through altq.
    pub altq_bulk_bit_s: u64,
    /// altq's to the peer's; `None` where the peer delivered nothing.
    #[serde(serialize_with = "some_number")]
    pub ratio: Option<f64>,
    /// Flow by flow: payload.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<PeerRow>,
    /// Class by class, where the peer has the policy's classes: bytes charged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<PeerRow>,
}

/// A flow or class through the peer and through altq, from the warm-up on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerRow {
    /// Its name.
    pub name: String,
    /// Through the peer, in bit/s.
    pub bit_s: u64,
    /// Through altq.
    pub altq_bit_s: u64,
    /// altq's to the peer's; `None` where the peer delivered nothing.
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

/// Of links with more classes than this results do not hold what is promised to classes.
const MANY: usize = 1000;

/// A class's row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassResult {
    /// The row of the case, where it has rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<String>,
    /// The column, where the case has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// The case's link.
    pub link: String,
    /// As in `altq replay`.
    #[serde(flatten)]
    pub report: ClassReport,
    /// What the policy guarantees it, as the case begins; `None` where an event changes it, and
    /// with more than 1,000 classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guaranteed_bit_s: Option<u64>,
    /// The most that it may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_bit_s: Option<u64>,
    /// Bytes that the link charged for what it sent in the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged_bytes: Option<u64>,
}

impl ClassResult {
    /// A row, and what the policy's link promises the class.
    pub fn new(
        column: Option<String>,
        link: &str,
        report: ClassReport,
        (policy, promises): (&PolicyLink, &Promises<'_>),
        case: &Case,
    ) -> ClassResult {
        let changed = case.events.iter().any(|event| match &event.what {
            What::SetClass { class, .. } | What::AddClass { class, .. } | What::RemoveClass { class, .. } => {
                *class == report.name
            }
            What::LinkRate { .. } => true,
            _ => false,
        });
        // What is promised depends on all classes, and takes time accordingly.
        let class = policy.class(&report.name).filter(|_| !changed && policy.classes.len() <= MANY);
        ClassResult {
            row: None,
            column,
            link: link.to_owned(),
            guaranteed_bit_s: class.map(|class| promises.guaranteed(class).unwrap_or_default().as_bit_s()),
            ceiling_bit_s: class.map(|class| policy.ceiling(class).as_bit_s()),
            charged_bytes: None,
            report,
        }
    }
}

/// A flow's row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowResult {
    /// The row of the case, where it has rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<String>,
    /// The column, where the case has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// Its name.
    pub name: String,
    /// The class of its packets; `None` where they met none, or several.
    pub class: Option<String>,
    /// Payload delivered from the warm-up on, in bit/s.
    pub goodput_bit_s: u64,
    /// Round trips.
    pub rtt_ns: Percentiles,
    /// Requests answered a second.
    #[serde(serialize_with = "some_number")]
    pub transactions_per_s: Option<f64>,
    /// From source to destination.
    #[serde(default)]
    pub delay_ns: Percentiles,
    /// Packets sent; `None` where that is not known.
    #[serde(default)]
    pub sent_packets: Option<u64>,
    /// Packets that arrived.
    #[serde(default)]
    pub received_packets: Option<u64>,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
    /// The gaps between the packets that arrived, from the warm-up on; `None` where there were
    /// none, or too many flows to keep them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gaps: Option<GapSummary>,
}

/// What a flow is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Its kind in the case.
    pub kind: String,
    /// The host that sends (of requests: that asks).
    pub from: String,
    /// The host that receives.
    pub to: String,
    /// DSCP of its packets.
    pub dscp: u8,
    /// Connections side by side.
    pub streams: u32,
}

impl Traffic {
    /// That of a case's flow.
    pub fn of(case: &Case, flow: &Flow) -> Traffic {
        let host = |at: usize| case.hosts.get(at).map_or(String::new(), |host| host.name.clone());
        let (kind, streams) = (flow.kind.word().to_owned(), flow.kind.streams());
        Traffic { kind, from: host(flow.from), to: host(flow.to), dscp: flow.dscp, streams }
    }
}

/// Two percentiles; `None` where nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// The median.
    pub p50: Option<u64>,
    /// The 99th percentile.
    pub p99: Option<u64>,
}

impl Percentiles {
    /// Those of `samples`, whose order is lost.
    pub fn of(samples: &mut [u64]) -> Percentiles {
        Percentiles { p50: crate::statistics::percentile(samples, 50), p99: crate::statistics::percentile(samples, 99) }
    }
}

/// Whole numbers are written as such: rates in bit/s, times in ns.
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
