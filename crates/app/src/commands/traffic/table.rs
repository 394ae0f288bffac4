//! The result for people.

use altq_traffic::report::Distribution;
use altq_traffic::result::{FlowResult, TrafficResult};

use crate::output;

/// The result as a table; if the table is wider than `width`, as one paragraph per flow.
pub fn text(result: &TrafficResult, width: Option<usize>) -> String {
    let rows: Vec<Vec<(&str, String)>> = result.flows.iter().map(row).collect();
    let mut heads: Vec<&str> = Vec::new();
    // The columns in this order, without those that no flow has.
    for head in HEADS {
        if rows.iter().any(|row| row.iter().any(|(name, _)| *name == head)) {
            heads.push(head);
        }
    }
    let cell = |row: &[(&str, String)], head: &str| {
        row.iter().find(|(name, _)| *name == head).map_or_else(String::new, |(_, text)| text.clone())
    };
    let mut cells = vec![heads.iter().map(|head| head.to_string()).collect::<Vec<_>>()];
    cells.extend(rows.iter().map(|row| heads.iter().map(|head| cell(row, head)).collect()));
    let mut text = output::table_within(&cells, None);
    let lines: String = result.flows.iter().map(gaps).collect();
    if width.is_some_and(|width| text.lines().any(|line| line.chars().count() > width)) {
        text = String::new();
        for (row, flow) in rows.iter().zip(&result.flows) {
            for (at, (head, value)) in row.iter().filter(|(_, value)| !value.is_empty()).enumerate() {
                text += &if at == 0 { format!("{value}\n") } else { format!("  {head} {value}\n") };
            }
            for words in gap_words(flow) {
                text += &format!("  gaps: {words}\n");
            }
        }
    } else {
        text += &lines;
    }
    if !result.valid {
        text += "INVALID: the figures are not to be trusted\n";
    }
    text
}

const HEADS: [&str; 15] = [
    "flow",
    "way",
    "goodput",
    "a second",
    "rtt p50",
    "p90",
    "p99",
    "p99.9",
    "delay p50",
    "delay p99",
    "jitter",
    "lost",
    "under way",
    "failed",
    "TCP: rtt, resent, cwnd",
];

fn row(flow: &FlowResult) -> Vec<(&'static str, String)> {
    let mut row = vec![("flow", flow.name.clone()), ("way", flow.direction.to_string())];
    match flow.transactions_per_s {
        None => row.push(("goodput", output::rate(flow.goodput_bit_s))),
        Some(rate) => row.push(("a second", format!("{rate:.1}"))),
    }
    if let Some(rtt) = &flow.rtt_ns {
        row.extend(times(rtt));
    }
    if let Some(delay) = &flow.delay_ns {
        row.push(("delay p50", output::time(delay.p50)));
        row.push(("delay p99", output::time(delay.p99)));
    }
    if let Some(jitter) = flow.jitter_ns {
        row.push(("jitter", output::time(jitter)));
    }
    if let Some(packets) = &flow.packets {
        let mut lost = format!("{} of {} ({:.2} %)", packets.lost, packets.sent, packets.loss * 100.0);
        if packets.reordered + packets.duplicates > 0 {
            lost += &format!(", {} late, {} twice", packets.reordered, packets.duplicates);
        }
        row.push(("lost", lost));
        if packets.under_way > 0 {
            row.push(("under way", packets.under_way.to_string()));
        }
    }
    if let Some(failed) = flow.failed.filter(|failed| *failed > 0) {
        row.push(("failed", failed.to_string()));
    }
    if !flow.connections.is_empty() {
        let count = flow.connections.len() as u64;
        let rtt = flow.connections.iter().map(|c| c.rtt_ns).sum::<u64>() / count;
        let resent: u64 = flow.connections.iter().map(|c| u64::from(c.retransmits)).sum();
        let cwnd: u64 = flow.connections.iter().map(|c| u64::from(c.cwnd_segments)).sum::<u64>() / count;
        row.push(("TCP: rtt, resent, cwnd", format!("{}, {resent}, {cwnd}", output::time(rtt))));
    }
    row
}

fn times(of: &Distribution) -> [(&'static str, String); 4] {
    [
        ("rtt p50", output::time(of.p50)),
        ("p90", output::time(of.p90)),
        ("p99", output::time(of.p99)),
        ("p99.9", output::time(of.p99_9)),
    ]
}

/// A line about the gaps between the datagrams of a flow.
fn gaps(flow: &FlowResult) -> String {
    let words = gap_words(flow);
    if words.is_empty() { String::new() } else { format!("{}: gaps {}\n", flow.name, words.join(", ")) }
}

fn gap_words(flow: &FlowResult) -> Vec<String> {
    let Some(gaps) = &flow.gaps else { return Vec::new() };
    let mut words = vec![
        format!("mean {}", output::time(gaps.mean_ns)),
        format!("deviation {}", output::time(gaps.deviation_ns)),
        format!("longest {}", output::time(gaps.max_ns)),
    ];
    let mode = |(n, mode): (usize, &altq_cases::gaps::Mode)| {
        let head = if n == 0 { "modes " } else { "" };
        format!("{head}{} ({:.0} %)", output::time(mode.at_ns), mode.share * 100.0)
    };
    words.extend(gaps.modes.iter().enumerate().map(mode));
    words
}
