//! A case's expectations and their outcomes: a table with a verdict and a gauge for each.

use altq_cases::case::Bound;
use altq_cases::result::{CaseResult, Outcome};
use maud::{Markup, html};

use super::element::verdict;
use super::text::{deviation, figure};

/// The table of a result's expectations. Their names are shown without the case's name.
pub fn section(result: &CaseResult) -> Markup {
    if result.expectations.is_empty() {
        return html! { p.quiet { "The case expects nothing in this world." } "\n" };
    }
    let prefix = format!("{}/", result.case);
    html! {
        div.scroll { table.promises {
            "\n" thead { tr {
                th { "promise" } th.text { "verdict" } th { "measured" } th { "expected" } th { "off by" }
                th.text { "tolerance" } th.text { "source" }
            } } "\n"
            tbody {
                "\n" @for outcome in &result.expectations {
                    @let unit = outcome.measure.unit().name();
                    tr {
                        th scope="row" { (outcome.name.strip_prefix(&prefix).unwrap_or(&outcome.name)) }
                        td.text { (verdict(result.valid, outcome.pass)) }
                        td data-of="measured" { (outcome.shown(|measured| figure(measured, unit))) }
                        td data-of="expected" { (expected(outcome)) }
                        td data-of="off by" { (off_by(outcome)) }
                        td.text { (gauge(outcome)) }
                        td.wrap { (outcome.source) }
                    } "\n"
                }
            }
        } } "\n"
    }
}

/// The expected figure with its bound and its tolerance: `≥ 20 % − 1 %`.
fn expected(outcome: &Outcome) -> String {
    let unit = outcome.measure.unit().name();
    let (sign, side) = match outcome.bound {
        Bound::Within => ("", "±"),
        Bound::AtMost => ("≤ ", "+"),
        Bound::AtLeast => ("≥ ", "−"),
    };
    let expected = figure(outcome.expected, unit);
    match outcome.tolerance {
        tolerance if tolerance > 0.0 => format!("{sign}{expected} {side} {}", figure(tolerance, unit)),
        _ => format!("{sign}{expected}"),
    }
}

fn off_by(outcome: &Outcome) -> String {
    let measured = outcome.measured.filter(|_| outcome.expected != 0.0);
    measured.map_or("–".into(), |measured| deviation(measured / outcome.expected - 1.0))
}

/// A gauge: the range that the tolerance allows, with the expected value in the middle and a mark
/// at the measured value.
fn gauge(outcome: &Outcome) -> Markup {
    const WIDTH: f64 = 108.0;
    const MIDDLE: f64 = WIDTH / 2.0;
    let Some(measured) = outcome.measured.filter(|measured| measured.is_finite()) else { return Markup::default() };
    let off = measured - outcome.expected;
    // The tolerance takes half of the gauge's width.
    let reach = match outcome.tolerance {
        tolerance if tolerance > 0.0 => tolerance * 2.0,
        _ => off.abs().max(outcome.expected.abs() * 0.01) * 1.25,
    };
    let place = |value: f64| (MIDDLE + value / reach.max(f64::MIN_POSITIVE) * MIDDLE).clamp(4.0, WIDTH - 4.0);
    let (from, to) = match outcome.bound {
        Bound::Within => (place(-outcome.tolerance) - 0.5, place(outcome.tolerance) + 0.5),
        Bound::AtMost => (0.0, place(outcome.tolerance)),
        Bound::AtLeast => (place(-outcome.tolerance), WIDTH),
    };
    let at = place(off);
    html! {
        svg.bullet viewBox=(format!("0 0 {WIDTH:.0} 16")) aria-hidden="true" {
            rect.out y="6" width=(format!("{WIDTH:.0}")) height="4" {}
            rect.room x=(format!("{from:.1}")) y="3" width=(format!("{:.1}", to - from)) height="10" {}
            path.goal d=(format!("M{MIDDLE:.1} 1V15")) {}
            @if outcome.pass {
                circle.is cx=(format!("{at:.1}")) cy="8" r="4" {}
            } @else {
                path.is.off d=(format!("M{at:.1} 3l4 5l-4 5l-4 -5Z")) {}
            }
        }
    }
}
