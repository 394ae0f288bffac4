//! Measurements of real networks, as `altq traffic --json` and `altq run --json` print them.
//!
//! These programs are not linked here, so that a page needs only their files. What a page does not
//! show is left out of the types.

use serde::Deserialize;

/// A run of `altq traffic`: its live lines and its result (`altq.traffic_live/1` and
/// `altq.traffic/1`).
#[derive(Debug, Default)]
pub struct Traffic {
    /// The file.
    pub file: String,
    /// The lines over time; none if the client ran with `--quiet`.
    pub lines: Vec<LiveLine>,
    /// The result; `None` if the run did not come to its end.
    pub result: Option<TrafficResult>,
    /// Its JSON.
    pub json: String,
}

/// A run of `altq run`: its lines (`altq.stat/1`).
#[derive(Debug, Default)]
pub struct Shaping {
    /// The file.
    pub file: String,
    /// The lines, in order of time.
    pub lines: Vec<StatLine>,
    /// Their JSON.
    pub json: String,
}

/// `altq.traffic/1`.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs)] // The fields are those of the schema (docs/traffic.md).
pub struct TrafficResult {
    pub valid: bool,
    pub invalid: Vec<String>,
    pub notes: Vec<String>,
    pub version: String,
    pub command: String,
    pub server: String,
    #[serde(default)]
    pub began_unix_ns: Option<u64>,
    pub ran_ns: u64,
    pub warmup_ns: u64,
    pub seed: u64,
    pub flows: Vec<FlowResult>,
}

/// A flow of `altq.traffic/1`.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs)] // As above.
pub struct FlowResult {
    pub name: String,
    pub kind: String,
    pub direction: String,
    pub dscp: u8,
    pub streams: u32,
    pub goodput_bit_s: u64,
    pub bytes: u64,
    pub transactions_per_s: Option<f64>,
    pub failed: Option<u64>,
    pub rtt_ns: Option<Distribution>,
    pub delay_ns: Option<Distribution>,
    pub jitter_ns: Option<u64>,
    pub packets: Option<Packets>,
    pub connections: Vec<Connection>,
    pub error: Option<String>,
}

/// Round trips or delays, in ns.
#[derive(Clone, Copy, Debug, Deserialize)]
#[allow(missing_docs)] // As above.
pub struct Distribution {
    pub n: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
    pub max: u64,
}

/// Counts of datagrams.
#[derive(Clone, Copy, Debug, Deserialize)]
#[allow(missing_docs)] // As above.
pub struct Packets {
    pub sent: u64,
    pub lost: u64,
    pub loss: f64,
}

/// TCP_INFO of a connection.
#[derive(Clone, Copy, Debug, Deserialize)]
#[allow(missing_docs)] // As above.
pub struct Connection {
    pub retransmits: u64,
}

/// `altq.traffic_live/1`: the counters at the end of an interval.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs)] // As above.
pub struct LiveLine {
    pub at_ns: u64,
    #[serde(default)]
    pub unix_ns: Option<u64>,
    pub flows: Vec<LiveFlow>,
}

/// A flow of `altq.traffic_live/1`.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs)] // As above.
pub struct LiveFlow {
    pub name: String,
    pub bytes: u64,
    pub rate_bit_s: Option<u64>,
    pub failed: u64,
    #[serde(default)]
    pub missing: Option<u64>,
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub tcp_rtt_ns: Option<u64>,
    pub retransmits: Option<u64>,
}

/// `altq.stat/1`: the links at a moment.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs)] // As above.
pub struct StatLine {
    pub links: Vec<LinkStat>,
}

/// A link of `altq.stat/1`.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs)] // As above.
pub struct LinkStat {
    pub name: String,
    pub at_ns: u64,
    #[serde(default)]
    pub unix_ns: Option<u64>,
    pub interval_ns: u64,
    #[serde(default)]
    pub last: bool,
    pub device: Device,
    pub classes: Vec<ClassStat>,
}

/// Frames that no class lost.
#[derive(Clone, Copy, Debug, Deserialize)]
#[allow(missing_docs)] // As above.
pub struct Device {
    pub missed: u64,
    pub unreadable: u64,
    pub refused: u64,
    pub lost: u64,
}

/// A class of `altq.stat/1`.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs)] // As above.
pub struct ClassStat {
    pub name: String,
    pub parent: Option<String>,
    pub sent_bytes: u64,
    pub dropped: std::collections::BTreeMap<String, u64>,
    pub marked_packets: u64,
    pub backlog_packets: u64,
    pub borrowed_bytes: u64,
    pub sojourn_ns: Sojourn,
    pub rate_bit_s: u64,
    #[serde(default)]
    pub guaranteed_bit_s: Option<u64>,
    #[serde(default)]
    pub ceiling_bit_s: Option<u64>,
}

/// Times in a queue during an interval, in ns; all 0 if no packet left.
#[derive(Clone, Copy, Debug, Deserialize)]
#[allow(missing_docs)] // As above.
pub struct Sojourn {
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
}

impl ClassStat {
    /// All packets that it has dropped.
    pub fn drops(&self) -> u64 {
        self.dropped.values().sum()
    }
}

/// What was measured: the documents of some files, put together to runs.
#[derive(Debug, Default)]
pub struct Measured {
    /// Runs of `altq traffic`.
    pub traffic: Vec<Traffic>,
    /// Runs of `altq run`.
    pub shaping: Vec<Shaping>,
    /// What is not complete, for the reader of the page.
    pub gaps: Vec<String>,
}

/// A document of a measurement.
#[derive(Clone, Debug)]
pub enum Document {
    /// A live line of `altq traffic`.
    Live(LiveLine),
    /// A result of `altq traffic`.
    Result(TrafficResult),
    /// A line of `altq run`.
    Stat(StatLine),
}

impl Measured {
    /// True if nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.traffic.is_empty() && self.shaping.is_empty()
    }

    /// Adds the documents of a file, in their order, each with its JSON. A result ends a run of
    /// `altq traffic`, and a line with `last` one of `altq run`; so does a line whose time is not
    /// later than that of the line before.
    pub fn add(&mut self, file: &str, documents: impl IntoIterator<Item = (Document, String)>) {
        let (mut traffic, mut shaping): (Option<Traffic>, Option<Shaping>) = (None, None);
        for (document, json) in documents {
            match document {
                Document::Live(line) => {
                    let follows = |run: &Traffic| run.lines.last().is_none_or(|last| last.at_ns < line.at_ns);
                    if !traffic.as_ref().is_some_and(follows) {
                        self.end_traffic(traffic.take());
                    }
                    let run = traffic.get_or_insert_with(|| Traffic { file: file.to_owned(), ..Traffic::default() });
                    run.json += &(json + "\n");
                    run.lines.push(line);
                }
                Document::Result(result) => {
                    let run = traffic.take();
                    let mut run = run.unwrap_or_else(|| Traffic { file: file.to_owned(), ..Traffic::default() });
                    run.json += &(json + "\n");
                    run.result = Some(result);
                    self.end_traffic(Some(run));
                }
                Document::Stat(line) => {
                    let at = |line: &StatLine| line.links.first().map(|link| link.at_ns);
                    let follows = |run: &Shaping| run.lines.last().is_none_or(|last| at(last) < at(&line));
                    if !shaping.as_ref().is_some_and(follows) {
                        self.shaping.extend(shaping.take());
                    }
                    let run = shaping.get_or_insert_with(|| Shaping { file: file.to_owned(), ..Shaping::default() });
                    run.json += &(json + "\n");
                    let last = !line.links.is_empty() && line.links.iter().all(|link| link.last);
                    run.lines.push(line);
                    if last {
                        self.shaping.extend(shaping.take());
                    }
                }
            }
        }
        self.end_traffic(traffic);
        self.shaping.extend(shaping);
    }

    fn end_traffic(&mut self, run: Option<Traffic>) {
        let Some(run) = run else { return };
        if run.result.is_none() {
            self.gaps.push(format!("{}: a run of altq traffic has no result: it did not come to its end", run.file));
        }
        self.traffic.push(run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(at: u64) -> (Document, String) {
        (Document::Live(LiveLine { at_ns: at, unix_ns: None, flows: Vec::new() }), format!("live {at}"))
    }

    fn stat(at: u64, last: bool) -> (Document, String) {
        let text = format!(
            r#"{{"name":"l","at_ns":{at},"interval_ns":1,"last":{last},"classes":[],
               "device":{{"missed":0,"unreadable":0,"refused":0,"lost":0}}}}"#
        );
        (Document::Stat(StatLine { links: vec![serde_json::from_str(&text).unwrap()] }), format!("stat {at}"))
    }

    #[test]
    fn lines_become_runs() {
        let mut measured = Measured::default();
        // Two runs of each program in one file, line by line among one another; the first client
        // was stopped.
        measured.add("f", [live(1), stat(5, false), live(2), stat(6, true), live(1), stat(7, false), stat(8, false)]);
        let runs: Vec<_> = measured.traffic.iter().map(|run| run.json.as_str()).collect();
        assert_eq!(runs, ["live 1\nlive 2\n", "live 1\n"]);
        let runs: Vec<_> = measured.shaping.iter().map(|run| run.json.as_str()).collect();
        assert_eq!(runs, ["stat 5\nstat 6\n", "stat 7\nstat 8\n"]);
        assert_eq!(measured.gaps.len(), 2);
    }
}
