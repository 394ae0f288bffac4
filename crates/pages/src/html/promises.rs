//! What had to come out, and what did: a table with PASS and FAIL, and a gauge for each.

use std::fmt::Write;

use altq_cases::case::{Bound, Unit};
use altq_cases::result::{CaseResult, Outcome};

use super::text::{deviation, escaped, figure};

/// The table of a result's expectations; names without what all of them begin with.
pub fn section(result: &CaseResult) -> String {
    if result.expectations.is_empty() {
        return "<p class=\"quiet\">The case expects nothing in this world.</p>\n".into();
    }
    let mut out = String::from(
        "<div class=\"scroll\"><table>\n<thead><tr><th>promise</th><th \
         class=\"text\">verdict</th><th>measured</th><th>expected</th><th>off by</th><th \
         class=\"text\">tolerance</th><th class=\"text\">source</th></tr></thead>\n<tbody>\n",
    );
    let prefix = format!("{}/", result.case);
    for outcome in &result.expectations {
        let name = outcome.name.strip_prefix(&prefix).unwrap_or(&outcome.name);
        let unit = unit(outcome);
        let (sign, side) = match outcome.bound {
            Bound::Within => ("", "±"),
            Bound::AtMost => ("≤ ", "+"),
            Bound::AtLeast => ("≥ ", "−"),
        };
        let tolerance = if outcome.tolerance > 0.0 {
            format!(" {side} {}", figure(outcome.tolerance, unit))
        } else {
            String::new()
        };
        let off = outcome
            .measured
            .filter(|_| outcome.expected != 0.0)
            .map_or("–".into(), |m| deviation(m / outcome.expected - 1.0));
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td \
             class=\"text\">{}</td><td>{}</td><td>{sign}{}{tolerance}</td><td>{off}</td><td class=\"text\">{}</td><td \
             class=\"wrap\">{}</td></tr>",
            escaped(name),
            verdict(result.valid, outcome.pass),
            outcome.measured.map_or("nothing".into(), |m| figure(m, unit)),
            figure(outcome.expected, unit),
            bullet(outcome),
            escaped(&outcome.source),
        );
    }
    out + "</tbody></table></div>\n"
}

/// A verdict as a word.
pub fn verdict(valid: bool, pass: bool) -> &'static str {
    match (valid, pass) {
        (false, _) => "<span class=\"invalid\"><span class=\"word\">INVALID</span><span class=\"sign\">?</span></span>",
        (true, true) => "<span class=\"pass\"><span class=\"word\">PASS</span><span class=\"sign\">✓</span></span>",
        (true, false) => "<span class=\"fail\"><span class=\"word\">FAIL</span><span class=\"sign\">✗</span></span>",
    }
}

/// The unit of an outcome's numbers, as `figure` wants it.
pub fn unit(outcome: &Outcome) -> &'static str {
    match outcome.measure.unit() {
        Unit::Fraction => "fraction",
        Unit::Rate => "bit/s",
        Unit::Time => "ns",
        Unit::Count => "",
    }
}

/// A gauge: what the tolerance allows, the expected figure, and where the measured one lies.
fn bullet(outcome: &Outcome) -> String {
    let Some(measured) = outcome.measured.filter(|m| m.is_finite()) else { return String::new() };
    let (width, height) = (108.0, 16.0);
    let off = measured - outcome.expected;
    // The expected figure stands in the middle; the tolerance takes half of the width.
    let reach = match outcome.tolerance {
        t if t > 0.0 => t * 2.0,
        _ => off.abs().max(outcome.expected.abs() * 0.01) * 1.25,
    };
    let place = |value: f64| (width / 2.0 + value / reach.max(f64::MIN_POSITIVE) * width / 2.0).clamp(4.0, width - 4.0);
    let (from, to) = match outcome.bound {
        Bound::Within => (place(-outcome.tolerance) - 0.5, place(outcome.tolerance) + 0.5),
        Bound::AtMost => (0.0, place(outcome.tolerance)),
        Bound::AtLeast => (place(-outcome.tolerance), width),
    };
    let (wide, at, middle) = (to - from, place(off), width / 2.0);
    let class = if outcome.pass { "is" } else { "is off" };
    let shape = if outcome.pass {
        format!("<circle class=\"{class}\" cx=\"{at:.1}\" cy=\"8\" r=\"4\"/>")
    } else {
        format!("<path class=\"{class}\" d=\"M{at:.1} 3l4 5l-4 5l-4 -5Z\"/>")
    };
    format!(
        "<svg class=\"bullet\" viewBox=\"0 0 {width:.0} {height:.0}\" aria-hidden=\"true\"><rect class=\"out\" y=\"6\" \
         width=\"{width:.0}\" height=\"4\"/>\
         <rect class=\"room\" x=\"{from:.1}\" y=\"3\" width=\"{wide:.1}\" height=\"10\"/><path class=\"goal\" \
         d=\"M{middle:.1} 1V15\"/>{shape}</svg>"
    )
}
