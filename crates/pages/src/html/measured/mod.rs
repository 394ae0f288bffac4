//! The page of a measurement: runs of `altq traffic` and `altq run`.
//!
//! ```text
//!  flows   what a client of `altq traffic` measured     clock   one time axis for all runs
//!  links   what the classes of a link did
//! ```

mod clock;
pub(super) mod flows;
mod links;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use maud::{Markup, html};

use self::clock::Clock;
use super::text::slug;
use crate::measured::Measured;

/// A policy's file, for the page.
#[derive(Clone, Copy, Debug)]
pub struct PolicyText<'a> {
    /// Its name.
    pub name: &'a str,
    /// What is in it.
    pub text: &'a str,
}

/// Of more lines than this, charts show those with the most bytes.
const MOST_LINES: usize = 12;

/// Raw data of more bytes than this are not put into the page.
const MOST_RAW: usize = 2_000_000;

/// The section of all that was measured. `notes` say what could not be read.
pub(super) fn section(measured: &Measured, policy: Option<PolicyText<'_>>, notes: &[String]) -> Markup {
    let clock = Clock::of(measured);
    let several = |count: usize, n: usize| if count > 1 { format!(" {}", n + 1) } else { String::new() };
    let results = || measured.traffic.iter().filter_map(|run| run.result.as_ref());
    let gaps = || notes.iter().chain(&measured.gaps);
    html! {
        ul.tags {
            @for result in results() {
                @if result.valid { li.tag.pass { "valid" } } @else { li.tag.invalid { "INVALID" } }
            }
            @if gaps().next().is_some() { li.tag.invalid { "not complete" } }
            @if let Some(date) = clock.date() { li.tag { (date) } }
        } "\n"
        @for note in gaps() { div.notes.warning { p { (note) } } "\n" }
        @for (n, run) in measured.traffic.iter().enumerate() {
            h2 { "Flows" (several(measured.traffic.len(), n)) } "\n"
            (flows::section(run, &clock))
        }
        @for (n, run) in measured.shaping.iter().enumerate() {
            (links::section(run, &clock, &several(measured.shaping.len(), n)))
        }
        @if let Some(policy) = policy {
            h2 { "Policy" } "\n"
            details open { summary { (policy.name) } "\n" pre { (policy.text) } } "\n"
        }
        h2 { "How it was made" } "\n"
        dl.facts {
            "\n" @for result in results() {
                dt { "altq " (result.version) } dd { code { (result.command) } ", seed " (result.seed) } "\n"
            }
            @for run in &measured.traffic { (raw("traffic", &run.file, &run.json)) }
            @for run in &measured.shaping { (raw("run", &run.file, &run.json)) }
        } "\n"
    }
}

/// The JSON of a run, to be saved from the page.
pub(super) fn raw(what: &str, file: &str, json: &str) -> Markup {
    let stem = file.rsplit('/').next().unwrap_or(file);
    let name = format!("{what}-{}", slug(if stem == "-" { "stdin.json" } else { stem }));
    let size = format!("{} kB", json.len().div_ceil(1000));
    html! {
        dt { "altq " (what) } dd {
            @if json.len() > MOST_RAW {
                (file) " (" (size) ", not in this page)"
            } @else {
                a download=(name) href={ "data:application/json;base64," (BASE64.encode(json)) } { (file) }
                " (" (size) ", in this page)"
            }
        } "\n"
    }
}

/// The indices into `bytes` of the lines that are shown, in ascending order: all, or those of the
/// [`MOST_LINES`] largest.
fn shown(bytes: &[u64]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..bytes.len()).collect();
    if places.len() > MOST_LINES {
        places.sort_by_key(|place| std::cmp::Reverse(bytes.get(*place).copied().unwrap_or(0)));
        places.truncate(MOST_LINES);
        places.sort_unstable();
    }
    places
}

/// If a chart leaves lines out, says how many it shows and how many there are.
fn left_out(all: usize, shown: usize, what: &str) -> Markup {
    html! {
        @if all > shown {
            p.quiet.small {
                "The charts show the " (shown) " " (what) " with the most bytes; the table has all " (all) "."
            } "\n"
        }
    }
}

/// Values of intervals as steps: (begin, end, value).
fn steps(intervals: impl Iterator<Item = (f64, f64, f64)>) -> Vec<(f64, f64)> {
    let (mut points, mut last) = (Vec::new(), None);
    for (begin, end, value) in intervals {
        points.push((begin, value));
        last = Some((end, value));
    }
    points.extend(last);
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_shown_in_their_order() {
        let bytes: Vec<u64> = (0..20).map(|n| if n % 2 == 0 { 100 + n } else { n }).collect();
        assert_eq!(shown(&bytes), [0, 2, 4, 6, 8, 10, 12, 14, 16, 17, 18, 19]);
        assert_eq!(shown(&bytes[..3]), [0, 1, 2]);
    }
}
