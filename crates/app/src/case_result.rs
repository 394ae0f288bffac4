//! Formats the result of a case as text, whether the case ran in the simulator or in the lab.

use std::collections::HashSet;

use altq_cases::case::{Bound, Unit};
use altq_cases::result::{CaseResult, ClassNames, FlowResult};

use crate::chosen::{Chosen, Shown};
use crate::{output, tree};

/// The whole text: tables of expectations, figures, classes, flows and kernel schedulers. Of the
/// classes those that are chosen.
pub fn text(description: &str, result: &CaseResult, chosen: &Chosen) -> String {
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
            let tolerance =
                if outcome.tolerance > 0.0 { format!(" ± {}", unit(outcome.tolerance)) } else { String::new() };
            rows.push(vec![
                outcome.name.clone(),
                format!("{sign}{}{tolerance}", unit(outcome.expected)),
                outcome.shown(unit),
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
    out += &table(result);
    // A case with many rows has too many classes and flows to print; --json has them.
    let is_table = result.figures.iter().any(|figure| figure.row.is_some()) && chosen.all();
    let (classes, flows) =
        if is_table { (&[][..], &[][..]) } else { (result.classes.as_slice(), result.flows.as_slice()) };
    let mut rows = vec![row(&["class", "sent", "borrowed", "p50", "p99", "drops"])];
    let (shown, left_out) = chosen.trees(classes);
    for Shown { class, depth, .. } in &shown {
        let report = &class.report;
        let delay = |value: Option<u64>| value.map_or("-".into(), output::time);
        let name = match report.parent {
            Some(_) => report.name.clone(),
            None => run_of(class.row.as_deref(), class.column.as_deref(), &class.link),
        };
        let borrowed =
            if report.sent_bytes == 0 { "-".into() } else { output::percent(report.borrowed_bytes, report.sent_bytes) };
        rows.push(vec![
            tree::name(&name, *depth),
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
    if left_out > 0 {
        out += &format!("{} of {} classes are shown\n", shown.len(), shown.len() + left_out);
    }
    // With --class only the flows of these classes.
    let names = ClassNames::of(classes);
    let of: HashSet<_> = shown
        .iter()
        .filter(|shown| shown.wanted)
        .map(|shown| (shown.class.row.as_deref(), shown.class.column.as_deref(), names.name(shown.class)))
        .collect();
    let belongs = |flow: &&FlowResult| {
        let class = flow.class.clone().unwrap_or_default();
        !chosen.by_name() || of.contains(&(flow.row.as_deref(), flow.column.as_deref(), class))
    };
    // Columns that are shown only if a flow of the case has them.
    let any = |has: fn(&FlowResult) -> bool| result.flows.iter().any(has);
    let has_requests = any(|flow| flow.transactions_per_s.is_some());
    let has_losses = any(|flow| flow.lost_packets.is_some());
    let has_under_way = any(|flow| flow.under_way_packets.is_some_and(|count| count > 0));
    let mut rows = vec![row(&["flow", "class", "goodput", "delay p50", "p99", "rtt p50", "p99"])];
    rows[0].extend(has_requests.then(|| "requests/s".to_string()));
    rows[0].extend(has_losses.then(|| "lost".to_string()));
    rows[0].extend(has_under_way.then(|| "under way".to_string()));
    for flow in flows.iter().filter(belongs) {
        let time = |value: Option<u64>| value.map_or("-".into(), output::time);
        rows.push(vec![
            run_of(flow.row.as_deref(), flow.column.as_deref(), &flow.name),
            flow.class.clone().unwrap_or("-".into()),
            output::rate(flow.goodput_bit_s),
            time(flow.delay_ns.p50),
            time(flow.delay_ns.p99),
            time(flow.rtt_ns.p50),
            time(flow.rtt_ns.p99),
        ]);
        let lost = match (flow.lost_packets, flow.received_packets) {
            (Some(lost), Some(received)) => output::percent(lost, lost + received),
            _ => "-".into(),
        };
        if let Some(cells) = rows.last_mut() {
            cells.extend(has_requests.then(|| flow.transactions_per_s.map_or("-".into(), |n| format!("{n:.0}"))));
            cells.extend(has_losses.then_some(lost));
            let under_way = || flow.under_way_packets.map_or("-".into(), |count| count.to_string());
            cells.extend(has_under_way.then(under_way));
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
            out += &format!(
                "\n{column}bulk TCP through altq {ours}, through kernel {name} {theirs}: ratio {}\n",
                ratio(peer.ratio)
            );
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

/// What is printed of a link or flow of a run: `row, column: name`.
fn run_of(row: Option<&str>, column: Option<&str>, name: &str) -> String {
    let whose: Vec<&str> = row.into_iter().chain(column).collect();
    if whose.is_empty() { name.to_owned() } else { format!("{}: {name}", whose.join(", ")) }
}

/// The table of the case's figures: the published value, and what was measured in each column with
/// its relative error.
fn table(result: &CaseResult) -> String {
    if result.figures.is_empty() {
        return String::new();
    }
    fn unique<'a>(names: impl Iterator<Item = Option<&'a str>>) -> Vec<Option<&'a str>> {
        let mut seen = Vec::new();
        for name in names {
            if !seen.contains(&name) {
                seen.push(name);
            }
        }
        seen
    }
    let columns = unique(result.figures.iter().map(|f| f.column.as_deref()));
    let lines = unique(result.figures.iter().map(|f| f.row.as_deref()));
    let names = unique(result.figures.iter().map(|f| Some(f.figure.as_str())));
    let mut rows = vec![row(&["row", "figure", "published"])];
    rows[0].extend(columns.iter().map(|column| column.unwrap_or("measured").to_owned()));
    for line in lines {
        for name in &names {
            let of_line =
                || result.figures.iter().filter(|f| f.row.as_deref() == line && Some(f.figure.as_str()) == *name);
            let Some(any) = of_line().next() else { continue };
            let published = of_line().find_map(|f| f.published).map_or("-".into(), digits);
            let unit = if any.unit.is_empty() { String::new() } else { format!(", {}", any.unit) };
            let mut cells = vec![line.unwrap_or("").to_owned(), format!("{}{unit}", any.figure), published];
            for column in &columns {
                let cell = of_line().find(|f| f.column.as_deref() == *column);
                cells.push(match cell.map(|f| (f.measured, f.error, &f.not_reproduced)) {
                    None | Some((None, _, _)) => cell.and_then(|f| f.missing.clone()).unwrap_or("-".into()),
                    Some((Some(value), None, _)) => digits(value),
                    Some((Some(value), Some(error), None)) => format!("{} ({:+.1} %)", digits(value), error * 100.0),
                    Some((Some(value), Some(error), Some(_))) => {
                        format!("{} ({:+.1} %, not reproduced)", digits(value), error * 100.0)
                    }
                });
            }
            rows.push(cells);
        }
    }
    let mut out = "\n".to_owned() + &output::table(&rows);
    let mut reasons: Vec<String> = Vec::new();
    for figure in &result.figures {
        let Some(reason) = &figure.not_reproduced else { continue };
        let column = figure.column.as_ref().map_or(String::new(), |column| format!(", {column}"));
        let line = format!("not reproduced ({}{column}): {reason}\n", figure.figure);
        if !reasons.contains(&line) {
            reasons.push(line);
        }
    }
    out += &reasons.concat();
    out
}

/// A figure with about four significant digits, as in published tables.
fn digits(value: f64) -> String {
    match value.abs() {
        1000.0.. => format!("{value:.0}"),
        100.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| cell.to_string()).collect()
}

/// A figure in its measure's unit. It has four significant digits, so that a narrow failure of an
/// expectation shows.
fn figure(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Fraction => format!("{value:.4}"),
        Unit::Rate => output::rate_with(value.round() as u64, 4),
        Unit::Time => output::time_with(value.round() as u64, 4),
        Unit::Count if value.fract() == 0.0 => format!("{value:.0}"),
        Unit::Count => format!("{value:.3}"),
    }
}
