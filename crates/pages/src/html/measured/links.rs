//! What the classes of the links of a run of `altq run` did: a table, and charts over time.

use maud::{Markup, html};

use super::clock::{Clock, Span};
use super::flows::{counts, if_any, times};
use super::{left_out, shown, steps};
use crate::html::element::{Sign, charts, legend, table};
use crate::html::text::{figure, number, time};
use crate::measured::{ClassStat, LinkStat, Shaping};
use crate::plot::{Axis, Bar, Chart, Mark, Panel, Style, Unit};

/// All links of a run.
pub fn section(run: &Shaping, clock: &Clock, number: &str) -> Markup {
    let mut names: Vec<&str> = Vec::new();
    for link in run.lines.iter().flat_map(|line| &line.links) {
        if !names.contains(&link.name.as_str()) {
            names.push(&link.name);
        }
    }
    let span = clock.shaping(run);
    let links = names.iter().map(|name| {
        let stats = run.lines.iter().flat_map(|line| line.links.iter().filter(|link| link.name == *name)).collect();
        Link { stats, span }
    });
    html! {
        @for (name, link) in names.iter().zip(links) {
            h2 { "Link " (name) (number) } "\n"
            (link.section())
        }
    }
}

/// A link over time.
struct Link<'a> {
    stats: Vec<&'a LinkStat>,
    span: Span,
}

/// An interval of a class: when it began and ended, and its counters before and after.
struct Interval<'a> {
    begin: f64,
    end: f64,
    had: Option<&'a ClassStat>,
    now: &'a ClassStat,
}

impl Interval<'_> {
    /// A counter's increase as a rate per second.
    fn rate(&self, of: impl Fn(&ClassStat) -> u64) -> f64 {
        let (now, had) = (of(self.now), self.had.map_or(0, of));
        // A class that was made anew, under the same name, has begun at 0.
        let grown = now.checked_sub(had).unwrap_or(now);
        grown as f64 / (self.end - self.begin).max(1e-9)
    }

    /// A time in the queue in seconds; none if no packet left.
    fn wait(&self, ns: u64) -> f64 {
        let left = self.now.sent_bytes > self.had.map_or(0, |had| had.sent_bytes);
        if left { ns as f64 / 1e9 } else { f64::NAN }
    }

    fn middle(&self) -> f64 {
        (self.begin + self.end) / 2.0
    }
}

impl<'a> Link<'a> {
    /// The state at the end.
    fn last(&self) -> Option<&'a LinkStat> {
        self.stats.last().copied()
    }

    /// The class of this name, which at the end is at `place`. Where classes were removed or made
    /// since, it was some places away.
    fn class(stat: &'a LinkStat, place: usize, of: &ClassStat) -> Option<&'a ClassStat> {
        let same = |class: &&ClassStat| class.name == of.name && class.parent.is_none() == of.parent.is_none();
        let at = |place: Option<usize>| stat.classes.get(place?).filter(same);
        let away = |away: usize| at(place.checked_sub(away)).or_else(|| at(place.checked_add(away)));
        (0..=stat.classes.len().max(place)).find_map(away)
    }

    /// The intervals of a class. The one at the end is left out of the charts if it is much shorter
    /// than the others, because its rates say little.
    fn intervals(&self, place: usize) -> Vec<Interval<'a>> {
        let longest = self.stats.iter().map(|stat| stat.interval_ns).max().unwrap_or(0);
        let mut before: Option<&LinkStat> = None;
        let mut intervals = Vec::new();
        let Some(of) = self.last().and_then(|last| last.classes.get(place)) else { return intervals };
        for stat in &self.stats {
            let had = before.and_then(|stat| Link::class(stat, place, of));
            let short = stat.last && stat.interval_ns < longest / 4;
            if let Some(now) = Link::class(stat, place, of).filter(|_| !short) {
                let begin = self.span.at(stat.at_ns.saturating_sub(stat.interval_ns));
                intervals.push(Interval { begin, end: self.span.at(stat.at_ns), had, now });
            }
            before = Some(stat);
        }
        intervals
    }

    /// The places of classes without classes below them.
    fn leaves(last: &LinkStat) -> Vec<usize> {
        let inner = |name: &str| last.classes.iter().any(|class| class.parent.as_deref() == Some(name));
        let leaves: Vec<usize> =
            last.classes.iter().enumerate().filter(|(_, class)| !inner(&class.name)).map(|(n, _)| n).collect();
        leaves
    }

    /// The length of the run, in seconds.
    fn seconds(&self) -> f64 {
        let first = self.stats.first().map_or(0, |stat| stat.at_ns.saturating_sub(stat.interval_ns));
        self.stats.last().map_or(0.0, |stat| stat.at_ns.saturating_sub(first) as f64 / 1e9)
    }

    fn section(&self) -> Markup {
        let Some(last) = self.last() else { return Markup::default() };
        let leaves = Link::leaves(last);
        let bytes: Vec<u64> =
            leaves.iter().map(|place| last.classes.get(*place).map_or(0, |class| class.sent_bytes)).collect();
        let lines: Vec<usize> = shown(&bytes).into_iter().filter_map(|n| leaves.get(n).copied()).collect();
        let name = |place: usize| last.classes.get(place).map_or("", |class| class.name.as_str());
        let device = last.device;
        let outside: Vec<String> = [
            (device.missed, "missed: the receive buffer was full"),
            (device.unreadable, "unreadable"),
            (device.refused, "refused by the device"),
            (device.lost, "lost by the device"),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} frames {what}", number(count as f64)))
        .collect();
        html! {
            (self.summary(last))
            @if !outside.is_empty() { div.notes.warning { p { "Outside the queues: " (outside.join(", ")) "." } } "\n" }
            h3 { "Over time" } "\n"
            (legend(lines.iter().enumerate().map(|(n, place)| (Style::nth(n), Sign::Line, name(*place)))))
            (charts(&[""], &|_, width| self.chart(&lines, width).svg()))
            p.quiet.small {
                "What each class sent, at layer 3, and the part of it beyond its own rate (borrowed). Backlog: packets \
                 that waited at the end of the interval. Wait in the queue: the median, and fainter the 99th \
                 percentile of each interval."
            } "\n"
            (left_out(leaves.len(), lines.len(), "classes"))
            h3 { "Over the whole run" } "\n"
            (charts(&[""], &|_, width| self.shares(last, &lines, width).svg()))
            p.quiet.small {
                "Mean rates; hatched is what was borrowed. A thick stroke is the guarantee, a dotted one the ceiling."
            } "\n"
        }
    }

    /// The table of all classes, parents before children.
    fn summary(&self, last: &LinkStat) -> Markup {
        let seconds = self.seconds().max(1e-9);
        let rate = |rate: Option<u64>| rate.map_or("–".into(), |rate| figure(rate as f64, "bit/s"));
        let data = |bytes: u64| figure(bytes as f64 / 1e6, "MB");
        let row = |(place, class): (usize, &ClassStat)| {
            let intervals = self.intervals(place);
            let worst = |of: &dyn Fn(&Interval<'_>) -> f64| {
                let most = intervals.iter().map(of).filter(|value| value.is_finite()).reduce(f64::max);
                most.map_or("–".into(), |seconds| time(seconds * 1e9))
            };
            let mut medians: Vec<f64> = intervals.iter().map(|one| one.wait(one.now.sojourn_ns.p50)).collect();
            medians.retain(|value| value.is_finite());
            medians.sort_by(f64::total_cmp);
            let median = medians.get(medians.len() / 2).map_or("–".into(), |seconds| time(seconds * 1e9));
            let waiting = intervals.iter().map(|one| one.now.backlog_packets).max().unwrap_or(0);
            vec![
                "· ".repeat(depth(last, class)) + &class.name,
                rate(class.guaranteed_bit_s),
                rate(class.ceiling_bit_s),
                figure(class.sent_bytes as f64 * 8.0 / seconds, "bit/s"),
                data(class.sent_bytes),
                data(class.borrowed_bytes),
                number(class.drops() as f64),
                number(class.marked_packets as f64),
                number(waiting as f64),
                median,
                worst(&|one| one.wait(one.now.sojourn_ns.p99)),
                worst(&|one| one.wait(one.now.sojourn_ns.max)),
            ]
        };
        let head = [
            "class",
            "guarantee",
            "ceiling",
            "mean rate",
            "sent",
            "borrowed",
            "dropped",
            "marked",
            "most waiting",
            "wait P50",
            "worst P99",
            "longest",
        ];
        let classes = ordered(last).into_iter().filter_map(|n| Some((n, last.classes.get(n)?)));
        let rows: Vec<Vec<String>> = classes.map(row).collect();
        html! {
            (table(&head, &rows))
            p.quiet.small {
                "Over " (time(seconds * 1e9)) ". Wait P50: the median of the intervals' medians; worst P99: the \
                 highest of the intervals."
            } "\n"
        }
    }

    fn chart(&self, lines: &[usize], width: f64) -> Chart {
        let (mut rates, mut borrowed, mut backlog, mut waits) = (vec![], vec![], vec![], vec![]);
        let (mut drops, mut marked) = (vec![], vec![]);
        for (n, place) in lines.iter().enumerate() {
            let (style, intervals) = (Style::nth(n), self.intervals(*place));
            let per_second = |of: &dyn Fn(&ClassStat) -> u64, unit: f64| {
                let points = intervals.iter().map(|one| (one.begin, one.end, one.rate(of) * unit));
                Mark::Steps(style, steps(points))
            };
            let line = |style, of: &dyn Fn(&Interval<'_>) -> f64| {
                Mark::Line(style, intervals.iter().map(|one| (one.middle(), of(one))).collect())
            };
            rates.push(per_second(&|class| class.sent_bytes, 8.0));
            borrowed.extend(if_any(per_second(&|class| class.borrowed_bytes, 8.0)));
            let waiting = intervals.iter().map(|one| (one.end, one.now.backlog_packets as f64)).collect();
            backlog.extend(if_any(Mark::Line(style, waiting)));
            waits.push(line(style.faint(), &|one| one.wait(one.now.sojourn_ns.p99)));
            waits.push(line(style, &|one| one.wait(one.now.sojourn_ns.p50)));
            drops.extend(if_any(per_second(&ClassStat::drops, 1.0)));
            marked.extend(if_any(per_second(&|class| class.marked_packets, 1.0)));
        }
        let mut panels = vec![Panel::new(150.0, Axis::new("rate", Unit::Rate), rates)];
        if !borrowed.is_empty() {
            panels.push(Panel::new(100.0, Axis::new("borrowed", Unit::Rate), borrowed));
        }
        panels.extend(times("wait", 120.0, waits));
        if !backlog.is_empty() {
            panels.push(Panel::new(90.0, Axis::new("backlog", Unit::Count), backlog));
        }
        panels.extend(counts("drops", drops));
        panels.extend(counts("marks", marked));
        let title = "rate, borrowed rate, wait, backlog and drops of each class over time".into();
        Chart { title, width, x: Axis::new("time", Unit::Time), range: Some((0.0, self.span.end)), panels }
    }

    /// The mean rate of each class of `lines` beside its guarantee and its ceiling.
    fn shares(&self, last: &LinkStat, lines: &[usize], width: f64) -> Chart {
        let seconds = self.seconds().max(1e-9);
        let (mut marks, mut names) = (Vec::new(), Vec::new());
        for (n, class) in lines.iter().filter_map(|place| last.classes.get(*place)).enumerate() {
            let row = n as f64;
            let rate = class.sent_bytes as f64 * 8.0 / seconds;
            let own = rate - (class.borrowed_bytes as f64 * 8.0 / seconds).min(rate);
            for (from, to, hatched, word) in [(0.0, own, false, "own"), (own, rate, true, "borrowed")] {
                if to > from {
                    let title = format!("{} {word} {}", class.name, figure(to - from, "bit/s"));
                    marks.push(Mark::Bar(Bar { style: Style::nth(n), row, height: 0.6, from, to, hatched, title }));
                }
            }
            for (kind, word, at) in
                [("guarantee", "guaranteed", class.guaranteed_bit_s), ("ceiling", "ceiling", class.ceiling_bit_s)]
            {
                if let Some(at) = at {
                    let title = format!("{word} {}", figure(at as f64, "bit/s"));
                    marks.push(Mark::Tick(kind, row, at as f64, title));
                }
            }
            names.push(class.name.clone());
        }
        let x = Axis::new("mean rate", Unit::Rate);
        Chart { title: "mean rates of classes".into(), width, x, range: None, panels: vec![Panel::names(names, marks)] }
    }
}

/// How many classes stand above a class, at most 32.
fn depth(link: &LinkStat, class: &ClassStat) -> usize {
    let above = |class: &&ClassStat| link.classes.iter().find(|other| Some(&other.name) == class.parent.as_ref());
    std::iter::successors(Some(class), above).take(32).count() - 1
}

/// The places of all classes: each class is followed by those below it.
fn ordered(link: &LinkStat) -> Vec<usize> {
    let place = |name: &str| link.classes.iter().position(|class| class.name == name);
    let mut below: Vec<Vec<usize>> = vec![Vec::new(); link.classes.len()];
    let mut order = Vec::new();
    let mut todo = Vec::new();
    for (n, class) in link.classes.iter().enumerate().rev() {
        match class.parent.as_deref().and_then(place) {
            Some(parent) if parent != n => below[parent].push(n),
            _ => todo.push(n),
        }
    }
    while let Some(n) = todo.pop() {
        order.push(n);
        todo.append(&mut below[n]);
    }
    order
}
