//! Whether classes got what they are promised, and what they did in all.

use maud::{Markup, html};

use super::{QUARTER, SECOND};
use crate::html::element::{table, verdict};
use crate::html::text::{clock, figure, number, time};
use crate::recorded::{Class, Link, Point};

/// What a class may miss of what it could claim: time is that of the host's loop, which is late at
/// times.
const TOLERANCE: f64 = 0.02;
/// A class that could claim fewer bytes has not asked: ten packets are too few to judge by.
const LEAST: u64 = 15_000;
/// How much later a host may be than the bounds assume.
const LATE: u64 = SECOND / 1000;
/// Of more classes than this the tables have those with the most bytes, and all that fail.
const MOST_ROWS: usize = 200;

/// What came of a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was kept.
    Pass,
    /// It was not.
    Fail,
    /// The class did not ask for it.
    NotAsked,
    /// There is none, or it is not known what came of it.
    Nothing,
}

/// What came of the promises of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Its place.
    pub place: usize,
    /// What came of its guarantee.
    pub guarantee: Verdict,
    /// What came of the bound of its delay.
    pub delay: Verdict,
    /// What it did in all.
    sum: Point,
    /// The longest 99th percentile since the bound is what it is, in ns; 0 if nothing left.
    p99: u64,
}

/// From when on delays are judged by the bounds of now: what waited when the policy or the link's
/// rate was changed has left a little later. `altered`: when promises were changed last.
fn settled(link: &Link, altered: Option<u64>) -> Option<u64> {
    altered.max(link.rate_altered).map(|at| at.saturating_add(QUARTER))
}

/// A bound with what histograms and the host add: percentiles are within 1/32, and kept to 1/256.
fn allowed(bound: u64) -> u64 {
    bound.saturating_add(bound / 16).saturating_add(LATE)
}

/// Judges the classes without others below them. `altered`: when promises were changed last.
pub fn judge(link: &Link, altered: Option<u64>) -> Vec<Judged> {
    let mut sums = vec![(Point::default(), 0u64); link.classes.len()];
    let settled = settled(link, altered).unwrap_or(0);
    for slice in &link.slices {
        for (place, point) in &slice.points {
            let Some((sum, p99)) = sums.get_mut(*place) else { continue };
            sum.add(point);
            if slice.begin >= settled {
                *p99 = (*p99).max(point.p99);
            }
        }
    }
    let unknown = link.adapts || link.path == "kernel";
    let judged = |(place, (class, (sum, p99))): (usize, (&Class, (Point, u64)))| {
        let guarantee = match class.guaranteed {
            Some(_) if unknown => Verdict::Nothing,
            Some(_) if sum.promised < LEAST => Verdict::NotAsked,
            Some(_) if sum.missed as f64 <= TOLERANCE * sum.promised as f64 => Verdict::Pass,
            Some(_) => Verdict::Fail,
            None => Verdict::Nothing,
        };
        let delay = match class.bound.queue_full {
            Some(bound) if p99 > 0 && !unknown => {
                if p99 <= allowed(bound) {
                    Verdict::Pass
                } else {
                    Verdict::Fail
                }
            }
            _ => Verdict::Nothing,
        };
        Judged { place, guarantee, delay, sum, p99 }
    };
    let leaves = link.classes.iter().zip(sums).enumerate().skip(1).filter(|(_, (class, _))| !class.is_inner);
    leaves.map(judged).collect()
}

/// The places of at most [`MOST_ROWS`] values: the largest, in their order. Those that `stays` says
/// are there beside them.
fn largest(values: &[u64], stays: impl Fn(usize) -> bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(values.get(*at).copied().unwrap_or(0)));
    let (first, rest) = order.split_at(order.len().min(MOST_ROWS));
    let mut kept: Vec<usize> = first.iter().chain(rest.iter().filter(|at| stays(**at))).copied().collect();
    kept.sort_unstable();
    kept
}

fn shown(verdict_of: Verdict) -> Markup {
    html! {
        @match verdict_of {
            Verdict::Pass => { (verdict(true, true)) }
            Verdict::Fail => { (verdict(true, false)) }
            Verdict::NotAsked => { span.quiet { "not asked" } }
            Verdict::Nothing => { "–" }
        }
    }
}

fn rate(bit_s: Option<u64>) -> String {
    bit_s.map_or("–".into(), |rate| figure(rate as f64, "bit/s"))
}

fn bound(ns: Option<u64>) -> String {
    ns.map_or("–".into(), |ns| time(ns as f64))
}

fn left_out(all: usize, rows: usize, what: &str) -> Markup {
    html! {
        @if all > rows {
            p.quiet.small { "The table has " (rows) " of " (all) " classes: " (what) "." } "\n"
        }
    }
}

/// The table of promises.
pub fn section(link: &Link, judged: &[Judged], altered: Option<u64>) -> Markup {
    if judged.is_empty() {
        return html! { p { "The link has no classes, so no promise is judged." } "\n" };
    }
    let bytes: Vec<u64> = judged.iter().map(|one| one.sum.wire).collect();
    let failed =
        |at: usize| judged.get(at).is_some_and(|one| one.guarantee == Verdict::Fail || one.delay == Verdict::Fail);
    let rows = largest(&bytes, failed);
    let found = rows.iter().filter_map(|at| judged.get(*at));
    let listed: Vec<(&Judged, &Class)> = found.filter_map(|one| Some((one, class(link, one)?))).collect();
    html! {
        @if link.adapts {
            p { "The link's rate follows the line, so what classes are promised was not the same all the time, and is \
                 not judged." } "\n"
        }
        @if link.path == "kernel" {
            p { "The kernel executes this link. It does not tell for how long packets wait, so nothing is judged." }
            "\n"
        }
        div.scroll { table.promises {
            "\n" thead { tr {
                th { "class" } th { "guarantee" } th.text { "verdict" } th { "could claim" } th { "missed" }
                th { "longest P99" } th { "bound" } th.text { "verdict" } th { "bound, if it keeps to its guarantee" }
            } } "\n"
            tbody {
                "\n" @for (one, class) in &listed {
                    tr {
                        th scope="row" { (class.name) }
                        td data-of="guarantee" { (rate(class.guaranteed)) }
                        td.text { (shown(one.guarantee)) }
                        td data-of="could claim" { (claim(&one.sum)) }
                        td data-of="missed" { (missed(&one.sum)) }
                        td data-of="longest P99" { (bound(Some(one.p99).filter(|ns| *ns > 0))) }
                        td data-of="bound" { (bound(class.bound.queue_full)) }
                        td.text { (shown(one.delay)) }
                        td data-of="if it keeps to its guarantee" { (bound(class.bound.conforming)) }
                    } "\n"
                }
            }
        } } "\n"
        (left_out(judged.len(), rows.len(), "those with the most bytes, and all that fail"))
        p.quiet.small {
            "Guarantee: while packets of a class wait without a break, it can claim its rate, after the first tenth of \
             a second. PASS if it got all of that but " (number(TOLERANCE * 100.0)) " %; not asked if it could claim \
             less than " (number(LEAST as f64 / 1000.0)) " kB. Each second is judged by what was promised then, and a \
             class may be late by its latency. Bound: what altq check computes for the last packet of a full queue. \
             PASS if the longest 99th percentile of a second or of a quarter of a minute is no more than 1/16 and "
             (time(LATE as f64)) " above it: that much histograms and the host add"
            @if let Some(at) = settled(link, altered) {
                ". Delays count from " (clock(at)) " UTC on, because the policy or the link's rate was changed before"
            }
            ". It is about packets of the link's MTU: a queue that counts packets takes longer for super-packets."
        } "\n"
    }
}

fn class<'a>(link: &'a Link, judged: &Judged) -> Option<&'a Class> {
    link.classes.get(judged.place)
}

/// Charged bytes that a class could claim.
fn claim(sum: &Point) -> String {
    if sum.promised == 0 { "–".into() } else { megabytes(sum.promised) }
}

fn missed(sum: &Point) -> String {
    match sum.promised {
        0 => "–".into(),
        promised => figure(sum.missed as f64 / promised as f64, "fraction"),
    }
}

fn megabytes(bytes: u64) -> String {
    figure(bytes as f64 / 1e6, "MB")
}

/// The table of all classes, with those below them, over the whole time.
pub fn summary(link: &Link) -> Markup {
    let mut sums = vec![Point::default(); link.classes.len()];
    for (place, point) in link.slices.iter().flat_map(|slice| &slice.points) {
        if let Some(sum) = sums.get_mut(*place) {
            sum.add(point);
        }
    }
    // Every class stands behind the one above it.
    for place in (1..sums.len()).rev() {
        let own = sums[place];
        let above = link.classes.get(place).and_then(|class| class.parent).and_then(|above| sums.get_mut(above));
        if let Some(above) = above {
            above.add(&own);
        }
    }
    let counted: u64 = link.slices.iter().map(|slice| slice.end.saturating_sub(slice.begin)).sum();
    let seconds = link.slices.iter().map(|slice| slice.seconds).sum::<u64>().max(1);
    let bytes: Vec<u64> = sums.iter().map(|sum| sum.wire).collect();
    let places = largest(&bytes, |_| false);
    let row = |(class, sum): (&Class, &Point)| {
        vec![
            "· ".repeat(class.depth.min(32)) + &class.name,
            rate(class.guaranteed),
            rate(class.ceiling),
            figure(sum.wire as f64 * 8e9 / counted.max(1) as f64, "bit/s"),
            megabytes(sum.bytes),
            megabytes(sum.borrowed),
            megabytes(sum.lent),
            number(sum.dropped as f64),
            number(sum.marked as f64),
            figure(sum.waiting as f64 / seconds as f64 / 1e3, "kB"),
            bound(Some(sum.p99).filter(|ns| *ns > 0)),
        ]
    };
    let head = [
        "class",
        "guarantee",
        "ceiling",
        "mean rate",
        "sent",
        "borrowed",
        "lent",
        "dropped",
        "marked",
        "mean backlog",
        "longest P99",
    ];
    let listed = places.iter().filter_map(|place| Some((link.classes.get(*place)?, sums.get(*place)?)));
    let rows: Vec<Vec<String>> = listed.map(row).collect();
    html! {
        (table(&head, &rows))
        (left_out(link.classes.len(), rows.len(), "those with the most bytes"))
        p.quiet.small {
            "Over " (time(counted as f64)) ". Rates are of bytes as the link charges them; guarantees and ceilings are \
             those of now. Lent: what others used of the class's guarantee, where the class sent something itself."
        } "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::{Bound, Slice};

    fn link(points: [Point; 4]) -> Link {
        let class = |name: &str, parent: Option<usize>, is_inner: bool| Class {
            name: name.into(),
            parent,
            depth: usize::from(parent.is_some()),
            is_inner,
            guaranteed: Some(8_000_000),
            ceiling: None,
            bound: Bound { conforming: None, queue_full: Some(16_000_000) },
        };
        let classes = ["a", "b", "c", "d"].map(|name| class(name, Some(0), false));
        let classes = [class("wan", None, true)].into_iter().chain(classes).collect();
        let slices = (0..2).map(|n| Slice {
            begin: (100 + n * 20) * SECOND,
            end: (101 + n * 20) * SECOND,
            seconds: 1,
            points: (1..).zip(points).collect(),
        });
        Link { name: "wan".into(), path: "bridge".into(), classes, slices: slices.collect(), ..Link::default() }
    }

    fn verdicts(judged: &[Judged]) -> Vec<(Verdict, Verdict)> {
        judged.iter().map(|one| (one.guarantee, one.delay)).collect()
    }

    #[test]
    fn promises_are_judged_where_they_were_asked_for() {
        use Verdict::{Fail, NotAsked, Nothing, Pass};
        let claims = |promised, missed, p99| Point { promised, missed, p99, wire: 1, ..Point::default() };
        // Two slices each. 2 % of 2,000,000 bytes are 40,000; 16 ms, a 16th of it and 1 ms are
        // 18 ms.
        let link = link([
            claims(1_000_000, 20_000, 18_000_000),
            claims(1_000_000, 20_001, 18_000_001),
            claims(7_499, 7_499, 0),
            claims(0, 0, 1),
        ]);
        let expected = [(Pass, Pass), (Fail, Fail), (NotAsked, Nothing), (NotAsked, Pass)];
        assert_eq!(verdicts(&judge(&link, None)), expected);
        // After a change of the policy 3 s after the first slice began, only the second slice
        // counts for delays; after one later than that none. A rate that a client has set is the
        // same.
        let change = |second: u64| Some(second * SECOND);
        let mut first_late = link.clone();
        first_late.slices[0].points[0].1.p99 = 50_000_000;
        assert_eq!(judge(&first_late, None)[0].delay, Fail);
        assert_eq!(judge(&first_late, change(103))[0].delay, Pass);
        assert_eq!(judge(&first_late, change(106))[0].delay, Nothing);
        let slower = Link { rate_altered: change(101), ..first_late };
        assert_eq!(judge(&slower, None)[0].delay, Pass);
        assert_eq!(judge(&slower, change(106))[0].delay, Nothing);
        // What follows the line, or is the kernel's, is not judged.
        for (adapts, path) in [(true, "bridge"), (false, "kernel")] {
            let other = Link { adapts, path: path.into(), ..link.clone() };
            assert!(verdicts(&judge(&other, None)).iter().all(|pair| *pair == (Nothing, Nothing)), "{path}");
        }
        let page = section(&link, &judge(&link, None), change(103)).into_string();
        assert!(page.contains("Delays count from 00:01:58 UTC on"), "{page}");
        assert!(page.contains("<td data-of=\"missed\">2 %</td>") && page.contains(">not asked<"), "{page}");
        assert!(page.contains("no more than 1/16 and 1 ms above it"), "{page}");
    }

    #[test]
    fn sums_are_those_of_the_classes_below() {
        let sent = |wire: u64| Point { wire, bytes: wire, waiting: 3000, p99: wire, ..Point::default() };
        let page = summary(&link([sent(1_000_000), sent(500_000), sent(0), sent(0)])).into_string();
        // Two slices of a second: 1.5 MB in each, 12 Mbit/s; of 4 classes 3 kB each wait.
        let row = page.split("<th scope=\"row\">wan</th>").nth(1).unwrap().split("</tr>").next().unwrap();
        let cells: Vec<&str> = row.split("<td>").skip(1).map(|cell| cell.split('<').next().unwrap()).collect();
        let expected = ["8 Mbit/s", "–", "12 Mbit/s", "3 MB", "0 MB", "0 MB", "0", "0", "12 kB", "1 ms"];
        assert_eq!(cells, expected);
        assert!(page.contains("<th scope=\"row\">· a</th>") && !page.contains("The table has"));
    }

    #[test]
    fn long_tables_have_the_largest_and_what_failed() {
        let values: Vec<u64> = (0..1000).collect();
        let places = largest(&values, |at| at == 5);
        assert_eq!((places.len(), places[0], places[1], places[200]), (201, 5, 800, 999));
        assert_eq!(largest(&values[..3], |_| false), [0, 1, 2]);
    }
}
