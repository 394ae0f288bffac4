//! A case's result as people read it, whichever world it ran in.

use altq_simulator::case::{Bound, Unit};
use altq_simulator::result::CaseResult;

use crate::output;

/// Tables: what had to come out, classes, flows.
pub fn text(description: &str, result: &CaseResult) -> String {
    let mut out = format!("{}: {}\n", result.case, description.trim());
    if !result.valid {
        out += "INVALID: these figures are not to be trusted\n";
    }
    if !result.expectations.is_empty() {
        let mut rows = vec![row(&["expectation", "expected", "measured", ""])];
        for outcome in &result.expectations {
            let unit = |value| figure(outcome.measure.unit(), value);
            let sign = match outcome.bound {
                Bound::Within => "",
                Bound::AtMost => "<= ",
                Bound::AtLeast => ">= ",
            };
            let tolerance = if outcome.tolerance > 0.0 { format!(" ± {}", unit(outcome.tolerance)) } else { String::new() };
            rows.push(vec![
                outcome.name.clone(),
                format!("{sign}{}{tolerance}", unit(outcome.expected)),
                outcome.measured.map_or("nothing".into(), unit),
                match outcome.pass {
                    _ if !result.valid => "INVALID".into(),
                    true => "PASS".into(),
                    false => "FAIL".into(),
                },
            ]);
        }
        out += "\n";
        out += &output::table(&rows);
    }
    let mut rows = vec![row(&["class", "sent", "borrowed", "p50", "p99", "drops"])];
    for class in &result.classes {
        let report = &class.report;
        let delay = |value: Option<u64>| value.map_or("-".into(), output::time);
        let name = match (&class.column, &report.parent) {
            (Some(column), None) => format!("{column}: {}", report.name),
            (None, None) => report.name.clone(),
            (_, Some(_)) => format!("  {}", report.name),
        };
        let borrowed = if report.sent_bytes == 0 { "-".into() } else { output::percent(report.borrowed_bytes, report.sent_bytes) };
        rows.push(vec![
            name,
            output::rate(report.rate_bit_s),
            borrowed,
            delay(report.delay_ns.p50),
            delay(report.delay_ns.p99),
            report.dropped_packets.to_string(),
        ]);
    }
    if rows.len() > 1 {
        out += "\n";
        out += &output::table(&rows);
    }
    // Columns that only some kinds of flows have.
    let (asks, counts) = (
        result.flows.iter().any(|flow| flow.transactions_per_s.is_some()),
        result.flows.iter().any(|flow| flow.sent_packets.is_some() && flow.received_packets.is_some()),
    );
    let mut rows = vec![row(&["flow", "class", "goodput", "delay p50", "p99", "rtt p50", "p99"])];
    rows[0].extend(asks.then(|| "requests/s".to_string()));
    rows[0].extend(counts.then(|| "lost".to_string()));
    for flow in &result.flows {
        let time = |value: Option<u64>| value.map_or("-".into(), output::time);
        rows.push(vec![
            flow.column.as_ref().map_or(flow.name.clone(), |column| format!("{column}: {}", flow.name)),
            flow.class.clone().unwrap_or("-".into()),
            output::rate(flow.goodput_bit_s),
            time(flow.delay_ns.p50),
            time(flow.delay_ns.p99),
            time(flow.rtt_ns.p50),
            time(flow.rtt_ns.p99),
        ]);
        let lost = match (flow.sent_packets, flow.received_packets) {
            (Some(sent), Some(received)) => output::percent(sent.saturating_sub(received), sent),
            _ => "-".into(),
        };
        if let Some(cells) = rows.last_mut() {
            cells.extend(asks.then(|| flow.transactions_per_s.map_or("-".into(), |n| format!("{n:.0}"))));
            cells.extend(counts.then_some(lost));
        }
    }
    if rows.len() > 1 {
        out += "\n";
        out += &output::table(&rows);
    }
    for peer in &result.peers {
        let column = peer.column.as_ref().map_or(String::new(), |column| format!("{column}: "));
        let (name, ratio) =
            (peer.name.to_uppercase(), |ratio: Option<f64>| ratio.map_or("none".into(), |ratio| format!("{ratio:.3}")));
        if peer.bulk_bit_s > 0 {
            let (ours, theirs) = (output::rate(peer.altq_bulk_bit_s), output::rate(peer.bulk_bit_s));
            out +=
                &format!("\n{column}bulk TCP through altq {ours}, through kernel {name} {theirs}: ratio {}\n", ratio(peer.ratio));
        }
        for (what, all) in [("class, charged", &peer.classes), ("flow, payload", &peer.flows)] {
            let mut rows = vec![row(&[what, "altq", &format!("kernel {name}"), "ratio"])];
            rows.extend(all.iter().map(|one| {
                let (ours, theirs) = (output::rate(one.altq_bit_s), output::rate(one.bit_s));
                vec![format!("{column}{}", one.name), ours, theirs, ratio(one.ratio)]
            }));
            if rows.len() > 1 {
                out += "\n";
                out += &output::table(&rows);
            }
        }
    }
    out
}

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| cell.to_string()).collect()
}

/// A figure in its measure's unit.
fn figure(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Fraction => format!("{value:.4}"),
        Unit::Rate => output::rate(value.round() as u64),
        Unit::Time => output::time(value.round() as u64),
        Unit::Count if value.fract() == 0.0 => format!("{value:.0}"),
        Unit::Count => format!("{value:.3}"),
    }
}
