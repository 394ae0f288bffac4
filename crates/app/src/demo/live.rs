//! The demo's third part: its policy on real packets of the kernel's TCP in network namespaces, as
//! in `altq lab`.

use std::path::Path;
use std::sync::Arc;

use altq_cases::case::Case;
use altq_cases::task::Progress;
use altq_lab::{self as lab, Options};
use altq_pages::stat::tc;

use super::share::POLICY;
use crate::exit::Exit;
use crate::progress::OnTerminal;

/// The outcome of the run.
pub enum Live {
    /// This host cannot run it. The text says why, and what to do about it.
    Skipped(String),
    /// A row for each class.
    Measured(Vec<Row>),
    /// The result is not valid because the host did not keep time. The texts say why.
    Invalid(Vec<String>),
}

/// The result of a class.
pub struct Row {
    /// The class's name.
    pub class: String,
    /// The rate that it got, in bit/s.
    pub got: u64,
    /// The part of that rate that it borrowed, in bit/s.
    pub borrowed: u64,
    /// How long its packets waited, in ns: the median and the 99th percentile.
    pub delay: (Option<u64>, Option<u64>),
    /// The traffic that sent its packets.
    pub sent_by: &'static str,
}

/// What sends the packets of each class.
const SENT_BY: [(&str, &str); 5] = [
    ("phone", "UDP, 0.4 Mbit/s"),
    ("orders", "1 TCP connection"),
    ("backup", "4 TCP connections"),
    ("web", "1 TCP connection"),
    ("video", "1 TCP connection"),
];

/// The case: the demo's policy, with more traffic in every class than the line carries, except for
/// the phone.
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

/// Runs the case, which takes about four seconds.
pub fn run() -> anyhow::Result<Live> {
    let case = Case::parse(&format!("policy = '''\n{POLICY}'''\n{CASE}"), Path::new("demo.toml"))?;
    let progress = Arc::new(Progress::default());
    progress.set_whole(case.duration);
    let options = Options {
        congestion: None,
        buffers: None,
        offload: true,
        seed: 1,
        again: 0,
        progress: Some(progress.clone()),
        counters: tc::measured,
    };
    let shown = OnTerminal::of(progress);
    let result = lab::run_case(&case, &options, false);
    drop(shown);
    let result = match result {
        Ok(result) => result,
        Err(error) => match Exit::of(&error) {
            Exit::NotPermitted | Exit::Unsupported => return Ok(Live::Skipped(error.to_string())),
            _ => return Err(error),
        },
    };
    if !result.valid {
        return Ok(Live::Invalid(result.notes));
    }
    let window = (case.duration - case.warmup).max(1);
    let rows = SENT_BY.iter().filter_map(|(class, sent_by)| {
        let report = &result.classes.iter().find(|row| row.report.name == *class)?.report;
        Some(Row {
            class: class.to_string(),
            got: report.rate_bit_s,
            borrowed: altq_cases::report::rate(report.borrowed_bytes, window),
            delay: (report.delay_ns.p50, report.delay_ns.p99),
            sent_by,
        })
    });
    Ok(Live::Measured(rows.collect()))
}
