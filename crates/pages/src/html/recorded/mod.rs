//! The page of what a running altq has kept: whether promises were kept, the links over time, and
//! what was changed meanwhile.
//!
//! ```text
//!  promises   verdicts, and sums of all classes     chart   rates, delays, drops and backlog
//! ```

mod chart;
mod promises;

use maud::{Markup, html};

use self::promises::{Judged, Verdict};
use super::measured::raw;
use super::text::{clock, date, time};
use crate::recorded::{Change, Link, Recorded};

/// A second, in ns.
const SECOND: u64 = 1_000_000_000;
/// The longest slices that there are: what is known of a time is at most so much too long.
const QUARTER: u64 = 15 * SECOND;
/// Between slices that are further apart nothing was counted.
const HOLE: u64 = SECOND;
/// Of more gaps than this only the number is said.
const MOST_GAPS: usize = 5;

/// All that was recorded.
pub(super) fn section(recorded: &Recorded) -> Markup {
    let judged: Vec<Vec<Judged>> = recorded.links.iter().map(|link| promises::judge(link, recorded.altered)).collect();
    let all = || judged.iter().flatten();
    let count = |verdict: Verdict| {
        let guarantees = all().filter(|one| one.guarantee == verdict).count();
        guarantees + all().filter(|one| one.delay == verdict).count()
    };
    let counts = [
        (count(Verdict::Pass), "tag pass", "PASS"),
        (count(Verdict::Fail), "tag fail", "FAIL"),
        (count(Verdict::NotAsked), "tag", "not asked"),
    ];
    html! {
        ul.tags {
            @for (n, class, word) in counts.into_iter().filter(|(n, ..)| *n > 0) {
                li class=(class) { (word) ": " (n) }
            }
            li.tag { (date(recorded.from)) " to " (clock(recorded.to)) }
        } "\n"
        @for note in &recorded.notes { div.notes.warning { p { (note) } } "\n" }
        @for (link, judged) in recorded.links.iter().zip(&judged) {
            h2 { "Link " (link.name) } "\n"
            (of_link(link, judged, recorded))
        }
        @if !recorded.changes.is_empty() {
            h2 { "Changes of the policy" } "\n"
            (changes(&recorded.changes))
        }
        h2 { "How it was made" } "\n"
        pre { (recorded.command) } "\n"
        dl.facts {
            "\n" dt { "altq" } dd { (recorded.version) } "\n"
            @for link in &recorded.links { (raw("past", &format!("{}.json", link.name), &link.json)) }
        } "\n"
    }
}

fn of_link(link: &Link, judged: &[Judged], recorded: &Recorded) -> Markup {
    if link.slices.is_empty() {
        return html! { p.quiet { "Nothing is known of this time." } "\n" };
    }
    html! {
        @if let Some(begins) = link.begins.filter(|begins| *begins > recorded.from.saturating_add(QUARTER)) {
            div.notes.warning { p {
                "The last " (span(recorded.to.saturating_sub(recorded.from))) " were asked for, and the history of \
                 this link begins at " (date(begins)) ". At most six hours are kept, as far as they fit into the \
                 memory of " code { "altq run --history" } ", and nothing of the time before altq was started."
            } } "\n"
        }
        (gaps(link))
        h3 { "Promises" } "\n"
        (promises::section(link, judged, recorded.altered))
        h3 { "Over time" } "\n"
        (chart::section(link, recorded))
        h3 { "Classes" } "\n"
        (promises::summary(link))
    }
}

/// A time that somebody has asked for, which is some seconds, minutes or hours.
fn span(ns: u64) -> String {
    match ns / SECOND {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

/// The times in which nothing was counted.
fn gaps(link: &Link) -> Markup {
    let pairs = link.slices.iter().zip(link.slices.iter().skip(1));
    let gaps: Vec<(u64, u64)> =
        pairs.filter(|(one, next)| next.begin > one.end + HOLE).map(|(one, next)| (one.end, next.begin)).collect();
    let total: u64 = gaps.iter().map(|(from, to)| to - from).sum();
    html! {
        @if !gaps.is_empty() {
            div.notes.warning { p {
                "Nothing was counted for " (time(total as f64)) ", because no altq shaped this link: "
                @for (n, (from, to)) in gaps.iter().take(MOST_GAPS).enumerate() {
                    @if n > 0 { ", " } (clock(*from)) " to " (clock(*to))
                }
                @if gaps.len() > MOST_GAPS { ", and " (gaps.len() - MOST_GAPS) " more times" }
                " (UTC). The charts have gaps there."
            } } "\n"
        }
    }
}

/// What was changed, with the numbers that the charts have.
fn changes(changes: &[Change]) -> Markup {
    html! {
        ol {
            "\n" @for change in changes {
                li {
                    (date(change.unix_ns)) ": change " (change.number) " " (change.what)
                    @if !change.by.is_empty() { " by " (change.by) }
                    @if !change.lines.is_empty() {
                        ul {
                            @for line in &change.lines { li { (line) } }
                            @if change.more > 0 { li { "and " (change.more) " more" } }
                        }
                    }
                } "\n"
            }
        } "\n"
    }
}
