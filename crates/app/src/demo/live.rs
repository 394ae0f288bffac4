//! The demo's policy on real packets: kernel TCP in network namespaces, as `altq lab` runs any
//! case.

use std::path::Path;

use altq_cases::case::Case;
use altq_lab::topology::Unsupported;
use altq_lab::{self as lab, Options};
use altq_pages::stat::tc;

use super::share::POLICY;

/// What came of it.
pub enum Live {
    /// This host cannot: why, and the way out.
    Skipped(String),
    /// A row a class.
    Measured(Vec<Row>),
    /// The host could not keep time: why.
    Invalid(Vec<String>),
}

/// A class.
pub struct Row {
    /// Its name.
    pub class: String,
    /// What it got, in bit/s.
    pub got: u64,
    /// Of that, what it borrowed.
    pub borrowed: u64,
    /// How long its packets waited, in ns: the median, and what one in a hundred exceeded.
    pub delay: (Option<u64>, Option<u64>),
    /// What was sent.
    pub with: &'static str,
}

/// What each class is sent.
const WITH: [(&str, &str); 5] = [
    ("phone", "UDP, 0.4 Mbit/s"),
    ("orders", "1 TCP connection"),
    ("backup", "4 TCP connections"),
    ("web", "1 TCP connection"),
    ("video", "1 TCP connection"),
];

/// The case: the demo's policy, and more traffic than the line carries in every class but the
/// phone's.
const CASE: &str = r#"
name = "demo"
description = "the demo's policy on kernel TCP"
duration = "4s"
warmup = "1s"
hosts = [{ name = "here" }, { name = "there" }]
links = [{ name = "line", from = "here", to = "there", policy = "line" }]

[[flows]]
name = "phone"
kind = "udp"
size = 200
interval = "4ms"
from = "here"
to = "there"
dport = 5060
class = "phone"

[[flows]]
name = "orders"
kind = "tcp_bulk"
from = "here"
to = "there"
dport = 443
class = "orders"

[[flows]]
name = "backup"
kind = "tcp_bulk"
streams = 4
from = "here"
to = "there"
dport = 873
class = "backup"

[[flows]]
name = "web"
kind = "tcp_bulk"
from = "here"
to = "there"
dport = 80
class = "web"

[[flows]]
name = "video"
kind = "tcp_bulk"
from = "here"
to = "there"
dport = 554
class = "video"
"#;

/// Runs it: about four seconds.
pub fn run() -> anyhow::Result<Live> {
    let case = Case::parse(&format!("policy = '''\n{POLICY}'''\n{CASE}"), Path::new("demo.toml"))?;
    let options =
        Options { congestion: None, buffers: None, offload: true, seed: 1, quiet: false, counters: tc::measured };
    let result = match lab::run_case(&case, &options, false) {
        Ok(result) => result,
        Err(error) => match error.downcast_ref::<Unsupported>() {
            Some(lacking) => return Ok(Live::Skipped(lacking.to_string())),
            None => return Err(error),
        },
    };
    if !result.valid {
        return Ok(Live::Invalid(result.notes));
    }
    let window = (case.duration - case.warmup).max(1);
    let rows = WITH.iter().filter_map(|(class, with)| {
        let report = &result.classes.iter().find(|row| row.report.name == *class)?.report;
        Some(Row {
            class: class.to_string(),
            got: report.rate_bit_s,
            borrowed: altq_cases::report::rate(report.borrowed_bytes, window),
            delay: (report.delay_ns.p50, report.delay_ns.p99),
            with,
        })
    });
    Ok(Live::Measured(rows.collect()))
}
