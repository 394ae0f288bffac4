//! A result as text.

use std::collections::HashMap;
use std::fmt::Write as _;

use altq_simulator::case::{Bound, Case, Unit};
use altq_simulator::result::{CaseResult, Outcome};

use crate::output::{rate, table, time};

/// The whole result. A result that cannot be trusted says so first, and none of its expectations is called passed.
pub fn text(case: &Case, result: &CaseResult) -> String {
    let mut out = format!("{}: {}\n", result.case, case.description.split_whitespace().collect::<Vec<_>>().join(" "));
    if !result.valid {
        out += "INVALID: the figures below say nothing about the policy\n";
    }
    for note in &result.notes {
        let _ = writeln!(out, "  {note}");
    }
    if !result.expectations.is_empty() {
        let units = units(case);
        let mut rows = vec![head(&["expectation", "expected", "measured", ""])];
        rows.extend(result.expectations.iter().map(|outcome| {
            let unit = units.get(outcome.name.as_str()).copied().unwrap_or(Unit::Count);
            let verdict = match (result.valid, outcome.pass) {
                (false, _) => "INVALID",
                (true, true) => "PASS",
                (true, false) => "FAIL",
            };
            let measured = outcome.measured.map_or("-".into(), |value| figure(value, unit));
            vec![outcome.name.clone(), expected(outcome, unit), measured, verdict.into()]
        }));
        let _ = write!(out, "\n{}", table(&rows));
    }
    let columns = result.flows.iter().any(|flow| flow.column.is_some());
    let name = |column: &Option<String>, name: &str| match column {
        Some(column) if columns => format!("{column}/{name}"),
        _ => name.to_string(),
    };
    if !result.flows.is_empty() {
        let mut rows = vec![head(&["flow", "class", "goodput", "p50", "p99", "", "requests/s", "lost"])];
        rows.extend(result.flows.iter().map(|flow| {
            let (times, what) = if flow.rtt_ns.p50.is_some() { (flow.rtt_ns, "round trip") } else { (flow.delay_ns, "one way") };
            let shown = |value: Option<u64>| value.map_or("-".into(), time);
            let lost = match (flow.sent_packets, flow.received_packets) {
                (Some(sent), Some(received)) if sent > 0 => {
                    format!("{:.2} %", (sent.saturating_sub(received)) as f64 * 100.0 / sent as f64)
                }
                _ => "-".into(),
            };
            vec![
                name(&flow.column, &flow.name),
                flow.class.clone().unwrap_or("-".into()),
                rate(flow.goodput_bit_s),
                shown(times.p50),
                shown(times.p99),
                if times.p50.is_some() { what.into() } else { String::new() },
                flow.transactions_per_s.map_or("-".into(), |n| format!("{n:.0}")),
                lost,
            ]
        }));
        let _ = write!(out, "\n{}", table(&rows));
    }
    if !result.classes.is_empty() {
        let mut rows = vec![head(&["class", "rate", "borrowed", "packets", "dropped", "delay p50", "p99"])];
        let parents: HashMap<(&Option<String>, &str), Option<&str>> =
            result.classes.iter().map(|row| ((&row.column, row.report.name.as_str()), row.report.parent.as_deref())).collect();
        rows.extend(result.classes.iter().map(|row| {
            let report = &row.report;
            let mut depth = 0;
            let mut above = report.parent.as_deref();
            while let Some(parent) = above {
                depth += 1;
                above = parents.get(&(&row.column, parent)).copied().flatten();
            }
            let shown = |value: Option<u64>| value.map_or("-".into(), time);
            vec![
                format!("{:indent$}{}", "", name(&row.column, &report.name), indent = 2 * depth),
                rate(report.rate_bit_s),
                crate::output::percent(report.borrowed_bytes, report.sent_bytes),
                report.sent_packets.to_string(),
                report.dropped_packets.to_string(),
                shown(report.delay_ns.p50),
                shown(report.delay_ns.p99),
            ]
        }));
        let _ = write!(out, "\n{}", table(&rows));
    }
    for peer in &result.peers {
        let ratio = peer.ratio.map_or("-".into(), |ratio| format!("{ratio:.3}"));
        let (ours, theirs) = (rate(peer.altq_bulk_bit_s), rate(peer.bulk_bit_s));
        let _ =
            writeln!(out, "\nbulk TCP through altq {ours}, through kernel {} {theirs}: ratio {ratio}", peer.name.to_uppercase());
    }
    out
}

fn head(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| word.to_string()).collect()
}

/// The unit of each expectation, by the name that a result gives it.
fn units(case: &Case) -> HashMap<String, Unit> {
    let mut units = HashMap::new();
    for column in &case.columns {
        for expectation in &case.expectations {
            units.insert(case.expectation_name(column, &expectation.name), expectation.measure.unit());
        }
    }
    units
}

fn expected(outcome: &Outcome, unit: Unit) -> String {
    let value = figure(outcome.expected, unit);
    match (outcome.bound, outcome.tolerance) {
        (Bound::Within, tolerance) => format!("{value} +- {}", figure(tolerance, unit)),
        (Bound::AtMost, tolerance) => format!("at most {}", figure(outcome.expected + tolerance, unit)),
        (Bound::AtLeast, tolerance) => format!("at least {}", figure(outcome.expected - tolerance, unit)),
    }
}

fn figure(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Fraction => format!("{:.2} %", value * 100.0),
        Unit::Rate => rate(value.max(0.0) as u64),
        Unit::Time => time(value.max(0.0) as u64),
        Unit::Count if value.fract() == 0.0 => format!("{value:.0}"),
        Unit::Count => format!("{value:.3}"),
    }
}
