//! Results as HTML pages. A page is one file: it loads nothing and runs no script. The style sheet
//! adapts it to light and dark, wide and narrow screens.
//!
//! ```text
//!  case       all of one case                     compare   published, classic and altq
//!  promises   expectations: verdicts and gauges   worlds    the simulator and the lab
//!  runs       over time, delays, shares           made      how a result was made
//!  element    tables, legends, charts             text      figures, paragraphs, names of files
//!  measured   runs of altq traffic and altq run
//!  recorded   what a running altq has kept of its links
//! ```

mod case;
mod compare;
mod element;
mod made;
mod measured;
mod promises;
mod recorded;
mod runs;
pub mod text;
mod worlds;

use altq_cases::result::CaseResult;
pub use compare::{Summary, summary};
use maud::{Markup, PreEscaped, html};
pub use measured::PolicyText;
use text::{deviation, slug};
pub use worlds::{Difference, difference};

use crate::measured::Measured;
use crate::plot::{CHART_STYLE, COLOURS, STYLES};
use crate::recorded::Recorded;

/// A result, and the JSON from which it was read.
pub struct Source<'a> {
    /// The result.
    pub result: &'a CaseResult,
    /// Its JSON, which is part of the page.
    pub json: &'a str,
    /// The name of its file, if the file is in the page's folder.
    pub file: Option<&'a str>,
}

/// The style sheet of pages, without charts and colours.
const STYLE: &str = include_str!("style.css");

/// One page with all these results; those of the same case are put together.
pub fn page(title: &str, sources: &[Source<'_>]) -> String {
    document(title, &body(title, sources))
}

/// One page with measurements, and below them results of cases, if there are any. `notes` say what
/// could not be read.
pub fn measured_page(
    title: &str,
    measured: &Measured,
    policy: Option<PolicyText<'_>>,
    notes: &[String],
    sources: &[Source<'_>],
) -> String {
    document(
        title,
        &html! {
            h1 { (title) } "\n"
            (measured::section(measured, policy, notes))
            @if !sources.is_empty() { (body("Cases", sources)) }
        },
    )
}

/// One page of what a running altq has kept.
pub fn recorded_page(title: &str, recorded: &Recorded) -> String {
    document(
        title,
        &html! {
            h1 { (title) } "\n"
            (recorded::section(recorded))
        },
    )
}

fn body(title: &str, sources: &[Source<'_>]) -> Markup {
    let cases = cases(sources);
    html! {
            @if cases.len() > 1 {
                h1 { (title) } "\n"
                (overview(sources, &|case| format!("#{}", slug(case))))
            }
            @for (name, sources) in &cases {
                section.case id=(slug(name)) { "\n" (case::section(name, sources)) } "\n"
            }
    }
}

/// A page with links to the pages of cases. `link` returns the name of a case's page.
pub fn index(title: &str, sources: &[Source<'_>], link: &dyn Fn(&str) -> String) -> String {
    document(title, &html! { h1 { (title) } "\n" (overview(sources, link)) })
}

/// The results by case, in the order in which the cases appear first.
pub fn cases<'a, 'b>(sources: &'b [Source<'a>]) -> Vec<(&'a str, Vec<&'b Source<'a>>)> {
    let mut cases: Vec<(&str, Vec<&Source<'_>>)> = Vec::new();
    for source in sources {
        match cases.iter_mut().find(|(name, _)| *name == source.result.case) {
            Some((_, list)) => list.push(source),
            None => cases.push((&source.result.case, vec![source])),
        }
    }
    cases
}

/// A table of all results, each with a link to its case.
fn overview(sources: &[Source<'_>], link: &dyn Fn(&str) -> String) -> Markup {
    let count = |of: &dyn Fn(&CaseResult) -> bool| sources.iter().filter(|source| of(source.result)).count();
    let (invalid, passed) = (count(&|result| !result.valid), count(&|result| result.passed()));
    let failed = sources.len() - invalid - passed;
    let verdicts = [(passed, "pass", "PASS"), (failed, "fail", "FAIL"), (invalid, "invalid", "INVALID")];
    let mut versions: Vec<&str> =
        sources.iter().filter_map(|s| s.result.made.as_ref()).map(|made| made.version.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    let or_dash = |n: usize| if n == 0 { "–".into() } else { n.to_string() };
    html! {
        ul.tags {
            @for (n, class, word) in verdicts.into_iter().filter(|(n, ..)| *n > 0) {
                li class={ "tag " (class) } { (word) ": " (n) " of " (sources.len()) " results" }
            }
            @if !versions.is_empty() { li.tag { "altq " (versions.join(", ")) } }
        } "\n"
        p.quiet.small {
            "Published: figures of the document that a case is taken from. Off by at most: the worst error of the \
             column classic against them, without those that the case says do not come out, and why."
        } "\n"
        div.scroll { table {
            "\n" thead { tr {
                th { "case" } th.text { "verdict" } th.text { "world" } th { "promises kept" } th { "rows" }
                th { "published" } th { "classic off by at most" }
            } } "\n"
            tbody {
                "\n" @for source in sources {
                    @let (result, sum) = (source.result, summary(source.result));
                    tr {
                        td { a href=(link(&result.case)) { (result.case) } }
                        td.text { (element::verdict(result.valid, result.passed())) }
                        td.text { (result.world.name()) }
                        td { (sum.passed) " of " (result.expectations.len()) }
                        td { (or_dash(sum.rows)) }
                        td { (or_dash(sum.published)) }
                        td {
                            @match &sum.worst {
                                Some(worst) => { (deviation(worst.error)) " " span.error { (worst.name) } }
                                None => "–"
                            }
                        }
                    } "\n"
                }
            }
        } } "\n"
    }
}

/// A whole document.
fn document(title: &str, body: &Markup) -> String {
    let page = html! {
        (PreEscaped("<!doctype html>\n"))
        html lang="en" {
            "\n" head {
                "\n" meta charset="utf-8"; "\n"
                meta name="viewport" content="width=device-width, initial-scale=1"; "\n"
                meta name="color-scheme" content="light dark"; "\n"
                link rel="icon" href="data:,"; "\n"
                title { (title) } "\n"
                style { "\n" (PreEscaped(COLOURS)) (PreEscaped(CHART_STYLE)) (PreEscaped(STYLE)) } "\n"
            } "\n"
            body { "\n" (hatches()) "\n" (body) } "\n"
        } "\n"
    };
    page.into_string()
}

/// The patterns with which hatched bars are filled.
fn hatches() -> Markup {
    html! {
        svg width="0" height="0" style="position:absolute" aria-hidden="true" {
            defs {
                @for n in 0..STYLES {
                    pattern id={ "hatch" (n) } width="6" height="6" patternUnits="userSpaceOnUse"
                        patternTransform="rotate(45)" {
                        path d="M0 0V6" style={ "stroke:var(--c" (n) ");stroke-width:4;fill:none" } {}
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::plot::Style;

    /// What the style sheets say about a line of these classes: the last rule for each property
    /// counts, because all rules name two classes at most.
    fn look(classes: &str) -> String {
        let sheet = format!("{CHART_STYLE}{STYLE}");
        let has = |selector: &str| {
            let mut names = selector.trim().split('.').skip(1).peekable();
            selector.trim().starts_with('.')
                && names.peek().is_some()
                && names.all(|name| name == "line" || classes.split(' ').any(|class| class == name))
        };
        let mut said: [(usize, &str); 3] = [(0, ""); 3];
        let without_comments: String = sheet.split("/*").map(|piece| piece.rsplit("*/").next().unwrap_or("")).collect();
        for rule in without_comments.split('}') {
            let Some((selectors, body)) = rule.split_once('{') else { continue };
            let matching = selectors.split(',').filter(|selector| has(selector));
            let Some(specific) = matching.map(|selector| selector.matches('.').count()).max() else { continue };
            for (n, property) in ["color", "stroke-dasharray", "stroke-width"].into_iter().enumerate() {
                for (name, value) in body.split(';').filter_map(|line| line.split_once(':')) {
                    if name.trim() == property && specific >= said[n].0 {
                        said[n] = (specific, value);
                    }
                }
            }
        }
        said.map(|(_, value)| value.trim().to_owned()).join(" ")
    }

    #[test]
    fn thirty_six_lines_look_different() {
        let looks: BTreeSet<String> = (0..36).map(|n| look(&Style::nth(n).class())).collect();
        assert_eq!(looks.len(), 36, "{looks:#?}");
        assert!(look("s0").starts_with("var(--c0)"), "{}", look("s0"));
    }
}
