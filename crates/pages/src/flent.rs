//! Writes results as `.flent.gz`, the data format of flent, version 4 (`flent/resultset.py`: JSON
//! with `metadata`, `version`, `x_values`, `results`, `raw_values`, compressed). So flent can open,
//! print and plot them.
//!
//! Series have the names of flent's own tests. Throughput is in Mbit/s of bytes that arrived,
//! delays are in ms. A "ping" is the median round trip of the flows of requests, or without such
//! flows the median time from source to destination.

use std::collections::BTreeMap;
use std::io::Write;

use altq_cases::result::{CaseResult, FlowResult, RunSeries, SeriesRow, World};
use flate2::{Compression, GzBuilder};
use serde::Serialize;
use serde_json::{Value, json};

/// The version of flent's data format.
const FORMAT: u32 = 4;

/// The flent test as which a file is written; flent opens the file with this test's plots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// N uploads and a ping
    TcpNup,
    /// Up and down in four classes of service, and pings
    Rrul,
    /// Backlog, drops, marks and delay of a link's queues
    QdiscStats,
}

impl Test {
    fn name(self) -> &'static str {
        match self {
            Test::TcpNup => "tcp_nup",
            Test::Rrul => "rrul",
            Test::QdiscStats => "qdisc-stats",
        }
    }
}

/// The contents of a flent file, with flent's field names.
#[derive(Serialize)]
struct File {
    metadata: BTreeMap<&'static str, Value>,
    version: u32,
    x_values: Vec<f64>,
    results: BTreeMap<String, Vec<Option<f64>>>,
    raw_values: BTreeMap<String, Vec<Value>>,
}

/// The name of a run: its column and row, if it has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a> {
    /// Its column.
    pub column: Option<&'a str>,
    /// Its row.
    pub row: Option<&'a str>,
}

impl std::fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words = [("--column", self.column), ("--row", self.row)];
        let options: Vec<String> =
            words.iter().filter_map(|(word, name)| Some(format!("{word} {}", (*name)?))).collect();
        f.write_str(&options.join(" "))
    }
}

/// Why it is not clear which run goes into a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// The result has no series over time.
    #[error("the result has no run over time: altq sim CASE --json and altq lab CASE --json keep it")]
    NoSeries,
    /// A name was given, but the only run has none.
    #[error("there is no such run ({0}): the case has one, without a name")]
    NoNames(String),
    /// No run has the name; the names of all runs follow.
    #[error("there is no such run; runs: {0}")]
    Unknown(String),
    /// Several runs have the name; their full names follow.
    #[error("a flent file takes one run; say which: {0}")]
    Several(String),
}

/// The index of the run with the wanted name.
///
/// # Errors
/// If no run has the name, or several have it.
pub fn choose(runs: &[Name<'_>], wanted: Name<'_>) -> Result<usize, ChoiceError> {
    let fits = |name: &Name<'_>| {
        (wanted.column.is_none() || name.column == wanted.column) && (wanted.row.is_none() || name.row == wanted.row)
    };
    let list = |names: &mut dyn Iterator<Item = &Name<'_>>| names.map(Name::to_string).collect::<Vec<_>>().join(", ");
    let found: Vec<usize> = (0..runs.len()).filter(|n| runs.get(*n).is_some_and(fits)).collect();
    match found.as_slice() {
        [one] => Ok(*one),
        [] => match list(&mut runs.iter()) {
            names if names.trim().is_empty() => Err(ChoiceError::NoNames(wanted.to_string())),
            names => Err(ChoiceError::Unknown(names)),
        },
        _ => Err(ChoiceError::Several(list(&mut runs.iter().filter(|name| fits(name))))),
    }
}

/// The run of a result with this column and row.
///
/// # Errors
/// If the result has no such run, or several.
pub fn run<'a>(result: &'a CaseResult, column: Option<&str>, row: Option<&str>) -> Result<&'a RunSeries, ChoiceError> {
    let names: Vec<Name<'_>> =
        result.series.iter().map(|run| Name { column: run.column.as_deref(), row: run.row.as_deref() }).collect();
    if names.is_empty() {
        return Err(ChoiceError::NoSeries);
    }
    result.series.get(choose(&names, Name { column, row })?).ok_or(ChoiceError::NoSeries)
}

/// A run as a flent file, compressed. The same run gives the same bytes.
///
/// # Errors
/// If the file cannot be written as JSON, or not be compressed.
pub fn file(result: &CaseResult, run: &RunSeries, test: Test) -> std::io::Result<Vec<u8>> {
    let bin = run.bin_ns as f64 / 1e9;
    let bins = run.classes.iter().chain(&run.flows).map(|row| row.bytes.len()).max().unwrap_or(0);
    let mut series = match test {
        Test::TcpNup => uploads(result, run, bins),
        Test::Rrul => rrul(result, run, bins),
        Test::QdiscStats => qdisc(run, bins),
    };
    let start = result.made.as_ref().and_then(|made| made.at_unix_s).unwrap_or(0);
    let x_values: Vec<f64> = (0..bins).map(|n| n as f64 * bin).collect();
    let mut raw_values: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (name, values) in series.results.iter().filter(|(name, _)| !series.derived.contains(name)) {
        let points = x_values
            .iter()
            .zip(values)
            .filter_map(|(x, value)| Some(json!({ "t": start as f64 + x, "val": (*value)? })));
        raw_values.insert(name.clone(), points.collect());
    }
    if let Some(raw) = series.raw.take() {
        let points = raw.into_iter().enumerate().map(|(n, mut point)| {
            point["t"] = json!(start as f64 + n as f64 * bin);
            point
        });
        raw_values.insert("qdisc-stats".into(), points.collect());
    }
    let metas: BTreeMap<&String, Value> =
        series.results.keys().map(|name| (name, meta(name, &series.results[name], result, test))).collect();
    let column = [run.column.as_deref(), run.row.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(" ");
    let title = format!("{} {column}", result.case).trim().to_owned();
    let length = result.duration_ns as f64 / 1e9;
    let time = utc(start);
    let note = format!(
        "Made by altq {} ({}), not measured by flent. {}",
        result.made.as_ref().map_or("", |made| made.version.as_str()),
        if result.world == World::Sim { "simulated" } else { "in network namespaces" },
        series.notes.join(" ")
    );
    let metadata = BTreeMap::from([
        ("NAME", json!(test.name())),
        ("TITLE", json!(title)),
        ("NOTE", json!(note.trim())),
        ("TIME", json!(time)),
        ("T0", json!(time)),
        ("HOST", json!(series.host)),
        ("HOSTS", json!([series.host])),
        ("LOCAL_HOST", json!(series.local)),
        ("LENGTH", json!(length)),
        ("TOTAL_LENGTH", json!(length)),
        ("STEP_SIZE", json!(bin)),
        (
            "TEST_PARAMETERS",
            json!({
                "upload_streams": series.streams.to_string(),
                "altq_case": result.case,
                "altq_seed": result.seed.to_string(),
            }),
        ),
        ("FLENT_VERSION", json!("2.2.0")),
        ("IP_VERSION", json!(4)),
        ("BATCH_NAME", Value::Null),
        ("BATCH_TIME", Value::Null),
        ("BATCH_TITLE", Value::Null),
        ("BATCH_UUID", Value::Null),
        ("DATA_FILENAME", json!(format!("{}-{}.flent.gz", test.name(), title.replace(['/', ' '], "_")))),
        ("HTTP_GETTER_URLLIST", Value::Null),
        ("HTTP_GETTER_DNS", Value::Null),
        ("HTTP_GETTER_WORKERS", Value::Null),
        ("SERIES_META", json!(metas)),
    ]);
    let file = File { metadata, version: FORMAT, x_values, results: series.results, raw_values };
    let mut out = GzBuilder::new().mtime(0).write(Vec::new(), Compression::default());
    out.write_all(&serde_json::to_vec(&file)?)?;
    out.finish()
}

/// The series of a test.
#[derive(Default)]
struct Series {
    results: BTreeMap<String, Vec<Option<f64>>>,
    /// The names of the series that flent computes from others.
    derived: Vec<String>,
    /// Points of the runner `tc`, without their time.
    raw: Option<Vec<Value>>,
    streams: usize,
    host: String,
    local: String,
    notes: Vec<String>,
}

/// Mbit/s by bin.
fn throughput(row: &SeriesRow, run: &RunSeries, bins: usize) -> Vec<Option<f64>> {
    (0..bins).map(|n| row.bytes.get(n).map(|bytes| *bytes as f64 * 8e3 / run.bin_ns as f64)).collect()
}

/// Milliseconds by bin.
fn delay(row: &SeriesRow, bins: usize) -> Vec<Option<f64>> {
    (0..bins).map(|n| row.delay_p50_ns.get(n).copied().flatten().map(|ns| ns as f64 / 1e6)).collect()
}

fn each(list: &[Vec<Option<f64>>], bins: usize, of: impl Fn(&[f64]) -> f64) -> Vec<Option<f64>> {
    let at = |n: usize| list.iter().filter_map(|values| values.get(n).copied().flatten()).collect::<Vec<f64>>();
    (0..bins).map(|n| Some(at(n)).filter(|values| !values.is_empty()).map(|values| of(&values))).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Jain's index.
fn fairness(values: &[f64]) -> f64 {
    let (sum, squares): (f64, f64) = (values.iter().sum(), values.iter().map(|v| v * v).sum());
    if squares > 0.0 { sum * sum / (values.len() as f64 * squares) } else { 1.0 }
}

/// The flows of a run, each with its row in the result if there is one.
fn flows<'a>(result: &'a CaseResult, run: &'a RunSeries) -> Vec<(&'a SeriesRow, Option<&'a FlowResult>)> {
    let known = |row: &SeriesRow| {
        result.flows.iter().find(|flow| flow.name == row.name && flow.column == run.column && flow.row == run.row)
    };
    run.flows.iter().map(|row| (row, known(row))).collect()
}

fn kind<'a>(flow: &Option<&'a FlowResult>) -> &'a str {
    flow.and_then(|flow| flow.traffic.as_ref()).map_or("", |traffic| traffic.kind.as_str())
}

fn hosts(series: &mut Series, all: &[(&SeriesRow, Option<&FlowResult>)]) {
    if let Some(traffic) = all.iter().find_map(|(_, flow)| flow.and_then(|flow| flow.traffic.as_ref())) {
        (series.local, series.host) = (traffic.from.clone(), traffic.to.clone());
    }
}

/// The delays that serve as ping; adds a note that says which they are.
fn pings(all: &[(&SeriesRow, Option<&FlowResult>)], bins: usize, notes: &mut Vec<String>) -> Vec<Option<f64>> {
    let asks: Vec<_> = all.iter().filter(|(row, _)| row.round_trips).map(|(row, _)| delay(row, bins)).collect();
    if asks.is_empty() {
        notes.push("Ping: the median time from source to destination of all flows, one way.".into());
        let one_way: Vec<_> = all.iter().map(|(row, _)| delay(row, bins)).collect();
        return each(&one_way, bins, mean);
    }
    notes.push("Ping: the median round trip of the flows of requests.".into());
    each(&asks, bins, mean)
}

/// The test `tcp_nup`: what each flow of TCP delivers, or without TCP each flow of UDP.
fn uploads(result: &CaseResult, run: &RunSeries, bins: usize) -> Series {
    let mut series = Series::default();
    let all = flows(result, run);
    hosts(&mut series, &all);
    let tcp = all.iter().any(|(_, flow)| kind(flow) == "tcp_bulk");
    let wanted = |flow: &Option<&FlowResult>| {
        if tcp { kind(flow) == "tcp_bulk" } else { !matches!(kind(flow), "tcp_rr" | "udp_rr" | "tcp_connect") }
    };
    let bulk: Vec<&SeriesRow> = all.iter().filter(|(_, flow)| wanted(flow)).map(|(row, _)| *row).collect();
    if !tcp {
        series.notes.push("No flow of the case is bulk TCP: the uploads are its UDP flows.".into());
    }
    let names: Vec<String> = bulk.iter().enumerate().map(|(n, row)| format!("{} = {}", n + 1, row.name)).collect();
    series.notes.push(format!("Uploads: {}.", names.join(", ")));
    let rates: Vec<_> = bulk.iter().map(|row| throughput(row, run, bins)).collect();
    series.streams = rates.len();
    let sum = |values: &[f64]| values.iter().sum();
    let derived = [
        ("avg", each(&rates, bins, mean)),
        ("sum", each(&rates, bins, sum)),
        ("fairness", each(&rates, bins, fairness)),
    ];
    for (word, values) in derived {
        series.results.insert(format!("TCP upload {word}"), values);
        series.derived.push(format!("TCP upload {word}"));
    }
    for (n, values) in rates.into_iter().enumerate() {
        series.results.insert(format!("TCP upload::{}", n + 1), values);
    }
    let ping = pings(&all, bins, &mut series.notes);
    series.results.insert("Ping (ms) ICMP".into(), ping);
    series
}

/// The test `rrul`: four classes of service both ways.
fn rrul(result: &CaseResult, run: &RunSeries, bins: usize) -> Series {
    const CLASSES: [(&str, u8); 4] = [("BE", 0), ("BK", 8), ("CS5", 40), ("EF", 46)];
    let mut series = Series::default();
    let all = flows(result, run);
    hosts(&mut series, &all);
    let nothing = || vec![None; bins];
    let mut rates: BTreeMap<String, Vec<Vec<Option<f64>>>> = BTreeMap::new();
    let mut others = Vec::new();
    for (row, flow) in all.iter().filter(|(_, flow)| matches!(kind(flow), "tcp_bulk" | "udp" | "pcap")) {
        let Some(traffic) = flow.and_then(|flow| flow.traffic.as_ref()) else { continue };
        let way = if traffic.from == series.local { "upload" } else { "download" };
        let class = CLASSES.iter().find(|(_, dscp)| *dscp == traffic.dscp).map(|(class, _)| *class);
        if class.is_none() {
            others.push(format!("{} (DSCP {})", row.name, traffic.dscp));
        }
        rates.entry(format!("TCP {way} {}", class.unwrap_or("BE"))).or_default().push(throughput(row, run, bins));
    }
    if !others.is_empty() {
        series.notes.push(format!("Of other classes of service, counted as best effort: {}.", others.join(", ")));
    }
    let sum = |list: &[Vec<Option<f64>>]| each(list, bins, |values| values.iter().sum());
    let mut totals = Vec::new();
    for way in ["upload", "download"] {
        let mut of_way = Vec::new();
        for (class, _) in CLASSES {
            let name = format!("TCP {way} {class}");
            let values = rates.get(&name).map_or_else(nothing, |list| sum(list));
            if rates.contains_key(&name) {
                of_way.push(values.clone());
            }
            series.results.insert(name, values);
        }
        series.results.insert(format!("TCP {way} avg"), each(&of_way, bins, mean));
        series.results.insert(format!("TCP {way} sum"), sum(&of_way));
        series.derived.extend([format!("TCP {way} avg"), format!("TCP {way} sum")]);
        totals.extend(of_way);
    }
    series.results.insert("TCP totals".into(), sum(&totals));
    series.derived.push("TCP totals".into());
    let mut pinged = Vec::new();
    for (class, dscp) in [("EF", 46), ("BK", 8), ("BE", 0)] {
        let own: Vec<_> = all
            .iter()
            .filter(|(row, flow)| {
                row.round_trips && flow.and_then(|f| f.traffic.as_ref()).is_some_and(|t| t.dscp == dscp)
            })
            .map(|(row, _)| delay(row, bins))
            .collect();
        let values = if own.is_empty() { nothing() } else { each(&own, bins, mean) };
        pinged.extend((!own.is_empty()).then(|| values.clone()));
        series.results.insert(format!("Ping (ms) UDP {class}"), values);
    }
    let icmp = pings(&all, bins, &mut series.notes);
    pinged.push(icmp.clone());
    series.results.insert("Ping (ms) ICMP".into(), icmp);
    series.results.insert("Ping (ms) avg".into(), each(&pinged, bins, mean));
    series.derived.push("Ping (ms) avg".into());
    series.streams = 4;
    series
}

/// The test `qdisc-stats`: the queues of all classes together.
fn qdisc(run: &RunSeries, bins: usize) -> Series {
    let sum = |of: fn(&SeriesRow) -> &Vec<u64>, n: usize| {
        run.classes.iter().map(|row| of(row).get(n).copied().unwrap_or(0)).sum::<u64>()
    };
    let bin = run.bin_ns as f64;
    // By Little's law: the packets that leave in a bin, multiplied by how long each waited, give
    // the average number that waits.
    let waiting = |of: fn(&SeriesRow) -> &Vec<u64>, n: usize| {
        let wait = |row: &SeriesRow| row.delay_mean_ns.get(n).copied().flatten().unwrap_or(0) as f64;
        run.classes.iter().map(|row| of(row).get(n).copied().unwrap_or(0) as f64 * wait(row)).sum::<f64>()
    };
    let mut series = Series { host: "link".into(), local: "altq".into(), ..Series::default() };
    series.notes.push("Backlog: by Little's law, from how long what left had waited. Delay: the mean wait.".into());
    let mut columns: [Vec<Option<f64>>; 5] = Default::default();
    let mut raw = Vec::new();
    for n in 0..bins {
        let (packets, weighted) = (sum(|row| &row.packets, n), waiting(|row| &row.packets, n));
        let values = [
            Some(weighted / bin),
            Some(waiting(|row| &row.bytes, n) / bin),
            Some(sum(|row| &row.drops, n) as f64),
            Some(sum(|row| &row.marks, n) as f64),
            (packets > 0).then(|| weighted / packets as f64 / 1e6),
        ];
        let words = ["backlog_pkts", "backlog_bytes", "dropped", "ecn_mark", "delay"];
        raw.push(
            words
                .iter()
                .zip(values)
                .filter_map(|(word, value)| Some((word.to_string(), json!(value?))))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        );
        columns.iter_mut().zip(values).for_each(|(column, value)| column.push(value));
    }
    for (word, values) in ["backlog_pkts", "backlog_bytes", "dropped", "ecn_mark", "delay"].into_iter().zip(columns) {
        series.results.insert(format!("qdisc-stats::{word}"), values);
        series.derived.push(format!("qdisc-stats::{word}"));
    }
    series.results.insert("qdisc-stats".into(), vec![None; bins]);
    series.derived.push("qdisc-stats".into());
    series.raw = Some(raw);
    series
}

/// What flent states about a series in addition to its values.
fn meta(name: &str, values: &[Option<f64>], result: &CaseResult, test: Test) -> Value {
    let known: Vec<f64> = values.iter().flatten().copied().collect();
    let units = match name {
        _ if name.ends_with("fairness") => "Idx",
        _ if name.starts_with("TCP") => "Mbits/s",
        _ if name.ends_with("bytes") => "bytes",
        _ if test == Test::QdiscStats && !name.ends_with("delay") => "packets",
        _ => "ms",
    };
    let mut meta = json!({ "UNITS": units, "IDX": 0, "COUNT": known.len(), "CASE": result.case });
    if !known.is_empty() {
        meta["MEAN_VALUE"] = json!(mean(&known));
    }
    meta
}

/// A time as flent writes it, in UTC. (The days are computed by H. Hinnant's `civil_from_days`.)
fn utc(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400 + 719_468, unix_s % 86_400);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.000000Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_date_prints_them() {
        // The expected texts are those of `date -u -d @N`.
        assert_eq!(utc(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(utc(951_782_400), "2000-02-29T00:00:00.000000Z");
        assert_eq!(utc(1_795_323_661), "2026-11-22T05:01:01.000000Z");
    }

    #[test]
    fn jain() {
        assert_eq!((fairness(&[1.0, 1.0]), fairness(&[1.0, 0.0]), fairness(&[0.0])), (1.0, 0.5, 1.0));
    }
}
