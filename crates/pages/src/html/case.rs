//! The section of a page about one case.

use altq_cases::result::{CaseResult, World};
use maud::{Markup, html};

use super::element::table;
use super::text::{figure, paragraphs};
use super::{Source, compare, made, promises, runs, worlds};

/// With more promises than this, the table is folded away.
const MOST_PROMISES: usize = 24;

/// The section of a case: one result, or one of each world.
pub fn section(name: &str, sources: &[&Source<'_>]) -> Markup {
    // Headings name the world if there are two results.
    let world = |result: &CaseResult| match sources.len() {
        0 | 1 => String::new(),
        _ => format!(" ({})", result.world.name()),
    };
    html! {
        h1 { (name) } "\n"
        ul.tags { @for source in sources { (tags(source.result)) } } "\n"
        @if let Some(first) = sources.first() { (paragraphs(&first.result.description)) }
        @for source in sources { (notes(source.result, &world(source.result))) }
        (compare::section(sources))
        (worlds::section(sources))
        @for source in sources {
            @let (result, world) = (source.result, world(source.result));
            h2 { "Promises" (world) } "\n"
            @if result.expectations.len() > MOST_PROMISES {
                details open[!result.passed()] {
                    summary { "All " (result.expectations.len()) " promises" } "\n"
                    (promises::section(result))
                } "\n"
            } @else {
                (promises::section(result))
            }
            (what_happened(result, &world))
            (peers(result))
            h2 { "How it was made" (world) } "\n"
            (made::section(source))
        }
    }
}

/// World and verdict of a result.
fn tags(result: &CaseResult) -> Markup {
    let all = result.expectations.len();
    let kept = result.expectations.iter().filter(|outcome| outcome.pass).count();
    let (class, verdict) = match (result.valid, result.passed()) {
        (false, _) => ("invalid", "INVALID".to_owned()),
        (_, true) if all == 0 => ("quiet", "no promises in this world".to_owned()),
        (_, true) => ("pass", format!("PASS: {kept} of {kept} promises hold")),
        (_, false) => ("fail", format!("FAIL: {kept} of {all} promises hold")),
    };
    let world = match result.world {
        World::Sim => "sim: virtual time",
        World::Lab => "lab: kernel TCP in namespaces",
    };
    html! { li.tag { (world) } li class={ "tag " (class) } { (verdict) } }
}

/// The remarks for the reader of a result.
fn notes(result: &CaseResult, world: &str) -> Markup {
    html! {
        @if !result.valid || !result.notes.is_empty() {
            div.notes.warning[!result.valid] {
                @if !result.valid { p.invalid { "INVALID" (world) ": these figures are not to be trusted." } }
                @for note in &result.notes { p { (note) } }
            } "\n"
        }
    }
}

/// The runs of a result, row by row. If there are several rows, only the middle one is unfolded.
fn what_happened(result: &CaseResult, world: &str) -> Markup {
    let rows = runs::rows(result);
    let shown: Vec<(Option<&str>, Markup)> = rows
        .iter()
        .map(|row| (row.name, runs::section(row, result)))
        .filter(|(_, section)| !section.0.is_empty())
        .collect();
    html! {
        @if !shown.is_empty() { h2 { "What happened" (world) } "\n" }
        @for (n, (row, section)) in shown.iter().enumerate() {
            @match row {
                None => (section)
                Some(row) => {
                    details open[n == shown.len() / 2] { summary { "row " (row) } "\n" (section) } "\n"
                }
            }
        }
    }
}

/// altq compared with what took its place in the same run.
fn peers(result: &CaseResult) -> Markup {
    html! {
        @for peer in &result.peers {
            @let name = peer.name.to_uppercase();
            h2 { @if let Some(column) = &peer.column { (column) ": " } "altq beside the kernel’s " (name) } "\n"
            @let rate = |bit_s: u64| figure(bit_s as f64, "bit/s");
            @let classes = peer.classes.iter().map(|row| ("class", row));
            @let rows: Vec<Vec<String>> = classes.chain(peer.flows.iter().map(|row| ("flow", row))).map(|(what, row)| {
                let ratio = row.ratio.map_or("–".into(), |ratio| format!("{ratio:.3}"));
                vec![format!("{what} {}", row.name), rate(row.altq_bit_s), rate(row.bit_s), ratio]
            }).collect();
            (table(&["", "altq", &format!("kernel {name}"), "ratio"], &rows))
        }
    }
}
