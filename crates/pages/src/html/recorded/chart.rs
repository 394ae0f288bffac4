//! Rates, delays, drops and backlog of a link's classes on one time axis, with the changes of the
//! policy as marks.

use maud::{Markup, html};

use super::{HOLE, QUARTER, SECOND};
use crate::html::element::{Sign, charts, legend};
use crate::html::measured::flows::{counts, if_any};
use crate::html::text::{clock, figure, time};
use crate::plot::{Axis, Chart, Mark, Panel, Side, Style, Unit};
use crate::recorded::{Change, Link, Point, Recorded};

/// So many classes have colours of their own. Where there are more, the last one is for all others.
const COLOURS: usize = 9;
/// About as many steps a chart has at most: more of them are narrower than a line.
const MOST_STEPS: u64 = 480;
/// For so long there are seconds.
const FINE: u64 = 300 * SECOND;
/// The least room between the labels of two changes, as a part of the axis.
const LABEL: f64 = 0.03;

/// A link over time.
pub fn section(link: &Link, recorded: &Recorded) -> Markup {
    let lines = Lines::of(link);
    let begin = link.slices.first().map_or(recorded.from, |slice| slice.begin.max(recorded.from));
    let end = link.slices.last().map_or(recorded.to, |slice| slice.end.max(recorded.to));
    // Whole seconds, as the axis has them.
    let whole = Axes { begin: begin / SECOND * SECOND, end, flags: flags(recorded) };
    let length = end.saturating_sub(whole.begin);
    let is_long = length > 2 * FINE;
    let step = if is_long { QUARTER * length.div_ceil(QUARTER * MOST_STEPS) } else { 0 };
    let fine = Axes { begin: end.saturating_sub(FINE) / SECOND * SECOND, ..whole.clone() };
    let draw = |axes: &Axes, step: u64, width: f64| lines.chart(axes, &lines.steps(axes, step), width).svg();
    html! {
        (legend(lines.names().enumerate().map(|(n, name)| (Style::nth(n), Sign::Line, name))))
        (charts(&[""], &|_, width| draw(&whole, step, width)))
        p.quiet.small {
            "Rates are of bytes as the link charges them, one class upon the other; dashed is the link's rate now. \
             Delay: the median time in the queue, and fainter the 99th percentile. Backlog: bytes that waited, on \
             average."
            @if is_long {
                " A step is " (time(step as f64)) " long, or shorter at gaps; its delays are the longest in it."
            }
            @if !recorded.changes.is_empty() { " Numbers are changes of the policy, which are listed below." }
        } "\n"
        @if is_long {
            h3 { "The last five minutes" } "\n"
            (charts(&[""], &|_, width| draw(&fine, 0, width)))
        }
    }
}

/// A change on the axis: when, its number in the list, and what it was.
type Flag = (u64, usize, String);

fn flags(recorded: &Recorded) -> Vec<Flag> {
    let flag = |(n, change): (usize, &Change)| {
        let what = format!("{} change {} {}", clock(change.unix_ns), change.number, change.what);
        (change.unix_ns, n + 1, what)
    };
    recorded.changes.iter().enumerate().map(flag).collect()
}

/// The time that a chart is about, in ns since 1970, and what was changed.
#[derive(Clone)]
struct Axes {
    begin: u64,
    end: u64,
    flags: Vec<Flag>,
}

impl Axes {
    /// A moment in seconds from the beginning on.
    fn x(&self, unix_ns: u64) -> f64 {
        (i128::from(unix_ns) - i128::from(self.begin)) as f64 / 1e9
    }

    fn length(&self) -> f64 {
        self.x(self.end).max(1.0)
    }

    /// The changes of this time as marks of a panel; with their numbers if they are `labelled`,
    /// where there is room.
    fn marks(&self, labelled: bool) -> Vec<Mark> {
        let mut free = 0.0;
        let mut marks = Vec::new();
        for (at, number, what) in self.flags.iter().filter(|(at, ..)| (self.begin..=self.end).contains(at)) {
            let x = self.x(*at);
            let mut label = String::new();
            if labelled && x >= free {
                label = number.to_string();
                free = x + LABEL * self.length();
            }
            marks.push(Mark::Flag(x, label, what.clone()));
        }
        marks
    }
}

/// One or several slices without a gap.
struct Step {
    begin: u64,
    end: u64,
    /// How often waiting packets were counted.
    seconds: u64,
    /// By line, what the classes did.
    points: Vec<Point>,
}

impl Step {
    fn each_second(&self, count: u64) -> f64 {
        count as f64 / ((self.end.saturating_sub(self.begin)) as f64 / 1e9).max(1e-3)
    }

    fn point(&self, line: usize) -> Point {
        self.points.get(line).copied().unwrap_or_default()
    }
}

/// The lines of a chart.
struct Lines<'a> {
    link: &'a Link,
    /// The places of classes that have a line of their own, in their order.
    places: Vec<usize>,
    /// By place, the line; beyond the lines for a class that did nothing.
    line_of: Vec<usize>,
    /// How many classes the last line is for, if it is for several.
    others: usize,
    /// What that line is called.
    rest: String,
}

impl<'a> Lines<'a> {
    fn of(link: &'a Link) -> Lines<'a> {
        let mut bytes = vec![(0u64, false); link.classes.len()];
        for (place, point) in link.slices.iter().flat_map(|slice| &slice.points) {
            if let Some((sum, busy)) = bytes.get_mut(*place) {
                *sum = sum.saturating_add(point.wire);
                *busy = true;
            }
        }
        let mut places: Vec<usize> = (0..bytes.len()).filter(|place| bytes[*place].1).collect();
        let busy = places.len();
        if busy > COLOURS {
            places.sort_by_key(|place| std::cmp::Reverse(bytes[*place].0));
            places.truncate(COLOURS - 1);
            places.sort_unstable();
        }
        let others = busy - places.len();
        let last = if others > 0 { places.len() } else { usize::MAX };
        let mut line_of: Vec<usize> = bytes.iter().map(|(_, busy)| if *busy { last } else { usize::MAX }).collect();
        for (line, place) in places.iter().enumerate() {
            line_of[*place] = line;
        }
        Lines { link, places, line_of, others, rest: format!("{others} other classes") }
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let own = self.places.iter().filter_map(move |place| self.link.classes.get(*place));
        own.map(|class| class.name.as_str()).chain((self.others > 0).then_some(self.rest.as_str()))
    }

    fn count(&self) -> usize {
        self.places.len() + usize::from(self.others > 0)
    }

    /// The slices of this time, put together to steps of about `least` ns, but not across gaps.
    fn steps(&self, axes: &Axes, least: u64) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        for slice in self.link.slices.iter().filter(|slice| slice.end > axes.begin && slice.begin < axes.end) {
            // Slices are a little longer or shorter than they should be.
            let most = least.saturating_add(least / 20);
            let joins = |step: &Step| slice.begin <= step.end + HOLE && slice.end.saturating_sub(step.begin) <= most;
            if !steps.last().is_some_and(joins) {
                let points = vec![Point::default(); self.count()];
                steps.push(Step { begin: slice.begin, end: slice.end, seconds: 0, points });
            }
            let Some(step) = steps.last_mut() else { continue };
            step.end = slice.end;
            step.seconds += slice.seconds;
            for (place, point) in &slice.points {
                if let Some(sum) = self.line_of.get(*place).and_then(|line| step.points.get_mut(*line)) {
                    sum.add(point);
                }
            }
        }
        steps
    }

    fn chart(&self, axes: &Axes, steps: &[Step], width: f64) -> Chart {
        let (mut delays, mut drops, mut marked, mut backlog) = (vec![], vec![], vec![], vec![]);
        for line in 0..self.count() {
            let style = Style::nth(line);
            let each = |of: &dyn Fn(&Step, Point) -> f64| {
                let values: Vec<f64> = steps.iter().map(|step| of(step, step.point(line))).collect();
                Mark::Steps(style, stepped(axes, steps, &values))
            };
            drops.extend(if_any(each(&|step, point| step.each_second(point.dropped))));
            marked.extend(if_any(each(&|step, point| step.each_second(point.marked))));
            backlog.extend(if_any(each(&|step, point| point.waiting as f64 / 1e3 / step.seconds.max(1) as f64)));
            // The delays of several classes together say little.
            if line < self.places.len() {
                delays.extend(if_any(Mark::Line(style.faint(), line_of(axes, steps, |step| step.point(line).p99))));
                delays.extend(if_any(Mark::Line(style, line_of(axes, steps, |step| step.point(line).p50))));
            }
        }
        let mut panels = vec![Panel::new(170.0, Axis::new("rate", Unit::Rate), self.stacked(axes, steps))];
        if !delays.is_empty() {
            let y = Side::Values(Axis::log("delay", Unit::Time), None);
            panels.push(Panel { height: 130.0, y, marks: delays });
        }
        panels.extend(counts("drops", drops));
        panels.extend(counts("marks", marked));
        if !backlog.is_empty() {
            panels.push(Panel::new(90.0, Axis::new("backlog [kB]", Unit::Count), backlog));
        }
        for (n, panel) in panels.iter_mut().enumerate() {
            panel.marks.extend(axes.marks(n == 0));
        }
        let day = u32::try_from(axes.begin / SECOND % 86_400).unwrap_or(0);
        let title = "rate, delay, drops and backlog of each class over time".into();
        let x = Axis::new("time (UTC)", Unit::Clock(day));
        Chart { title, width, x, range: Some((0.0, axes.length())), panels }
    }

    /// The rates, one upon the other, and the link's.
    fn stacked(&self, axes: &Axes, steps: &[Step]) -> Vec<Mark> {
        let (mut marks, mut tops) = (Vec::new(), Vec::new());
        let mut below = vec![0.0; steps.len()];
        for line in 0..self.count() {
            let style = Style::nth(line);
            let rate = |step: &Step| step.each_second(step.point(line).wire.saturating_mul(8));
            let above: Vec<f64> = below.iter().zip(steps).map(|(below, step)| below + rate(step)).collect();
            for piece in pieces(steps) {
                let corners = piece.flat_map(|n| {
                    let (begin, end) = (axes.x(steps[n].begin), axes.x(steps[n].end));
                    [(begin, below[n], above[n]), (end, below[n], above[n])]
                });
                marks.push(Mark::Band(style, corners.collect()));
            }
            // Where a class has sent nothing, its line would hide the one below it.
            let top = |(below, above): (&f64, &f64)| if above > below { *above } else { f64::NAN };
            let values: Vec<f64> = below.iter().zip(&above).map(top).collect();
            tops.push(Mark::Steps(style, stepped(axes, steps, &values)));
            below = above;
        }
        marks.append(&mut tops);
        if let Some(rate) = self.link.classes.first().and_then(|link| link.guaranteed) {
            let rate = rate as f64;
            marks.push(Mark::Level(Style::PUBLISHED, rate, figure(rate, "bit/s")));
        }
        marks
    }
}

/// The places of steps that follow one another without a gap.
fn pieces(steps: &[Step]) -> Vec<std::ops::Range<usize>> {
    let mut pieces: Vec<std::ops::Range<usize>> = Vec::new();
    for (n, step) in steps.iter().enumerate() {
        let follows = n.checked_sub(1).and_then(|n| steps.get(n)).is_some_and(|before| step.begin <= before.end + HOLE);
        match pieces.last_mut().filter(|_| follows) {
            Some(piece) => piece.end = n + 1,
            None => pieces.push(n..n + 1),
        }
    }
    pieces
}

/// A line in steps, which ends at gaps and where a value is none.
fn stepped(axes: &Axes, steps: &[Step], values: &[f64]) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    // Where the step before ended, and its value.
    let mut open: Option<(u64, f64)> = None;
    for (step, value) in steps.iter().zip(values) {
        let goes_on = value.is_finite() && open.is_some_and(|(end, _)| step.begin <= end + HOLE);
        if !goes_on && let Some((end, last)) = open.take() {
            points.extend([(axes.x(end), last), (axes.x(end), f64::NAN)]);
        }
        if value.is_finite() {
            points.push((axes.x(step.begin), *value));
            open = Some((step.end, *value));
        }
    }
    points.extend(open.map(|(end, last)| (axes.x(end), last)));
    points
}

/// A line of times in ns through the middles of steps, which ends at gaps and where nothing left.
fn line_of(axes: &Axes, steps: &[Step], of: impl Fn(&Step) -> u64) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    let mut before: Option<u64> = None;
    for step in steps {
        let middle = (axes.x(step.begin) + axes.x(step.end)) / 2.0;
        if before.is_some_and(|end| step.begin > end + HOLE) {
            points.push((axes.x(step.begin), f64::NAN));
        }
        let value = of(step);
        points.push((middle, if value > 0 { value as f64 / 1e9 } else { f64::NAN }));
        before = Some(step.end);
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::{Class, Slice};

    /// A link with so many classes, each of which sends 1000 bytes in each second from 1000 s on,
    /// but in none of those that are left out.
    fn link(classes: usize, seconds: u64, left_out: std::ops::Range<u64>) -> Link {
        let class = |n: usize| Class { name: format!("c{n}"), parent: (n > 0).then_some(0), ..Class::default() };
        let point = Point { wire: 1000, bytes: 1000, waiting: 500, p50: 1000, p99: 2000, ..Point::default() };
        let slice = |n: u64| Slice {
            begin: (1000 + n) * SECOND,
            end: (1001 + n) * SECOND,
            seconds: 1,
            points: (1..=classes).map(|place| (place, point)).collect(),
        };
        let slices = (0..seconds).filter(|n| !left_out.contains(n)).map(slice).collect();
        Link { classes: (0..=classes).map(class).collect(), slices, ..Link::default() }
    }

    fn axes(from: u64, to: u64, flags: Vec<Flag>) -> Axes {
        Axes { begin: from * SECOND, end: to * SECOND, flags }
    }

    #[test]
    fn steps_end_at_gaps() {
        let link = link(2, 100, 40..50);
        let (lines, axes) = (Lines::of(&link), axes(1000, 1100, Vec::new()));
        let times = |least: u64| -> Vec<(u64, u64, u64, u64)> {
            let steps = lines.steps(&axes, least * SECOND);
            let all = steps.iter().map(|s| (s.begin / SECOND, s.end / SECOND, s.seconds, s.points[1].wire));
            all.collect()
        };
        assert_eq!(times(0).len(), 90);
        let expected = [
            (1000, 1015, 15, 15_000),
            (1015, 1030, 15, 15_000),
            (1030, 1040, 10, 10_000),
            (1050, 1065, 15, 15_000),
            (1065, 1080, 15, 15_000),
            (1080, 1095, 15, 15_000),
            (1095, 1100, 5, 5_000),
        ];
        assert_eq!(times(15), expected);
        let steps = lines.steps(&axes, 15 * SECOND);
        assert_eq!(pieces(&steps), [0..3, 3..7]);
        // The line has a gap from 40 to 50, and another one where there is no value.
        let drawn = stepped(&axes, &steps, &[1.0, f64::NAN, 2.0, 3.0, 3.0, 3.0, 4.0]);
        let gap = |x: f64| drawn.iter().any(|(at, y)| *at == x && y.is_nan());
        assert!(gap(15.0) && gap(40.0) && !gap(100.0), "{drawn:?}");
        assert_eq!(drawn.iter().filter(|(_, y)| y.is_nan()).count(), 2);
        assert_eq!(drawn.last(), Some(&(100.0, 4.0)));
        let times = line_of(&axes, &steps, |step| step.point(0).p50);
        assert_eq!((times[0], times.iter().filter(|(_, y)| y.is_nan()).count()), ((7.5, 1e-6), 1));
    }

    #[test]
    fn rates_stand_upon_one_another() {
        let link = link(3, 2, 0..0);
        let lines = Lines::of(&link);
        let axes = axes(1000, 1002, Vec::new());
        let marks = lines.stacked(&axes, &lines.steps(&axes, 0));
        let bands: Vec<(f64, f64)> = marks
            .iter()
            .filter_map(|mark| if let Mark::Band(_, points) = mark { Some((points[0].1, points[0].2)) } else { None })
            .collect();
        // 8 kbit/s each.
        assert_eq!(bands, [(0.0, 8000.0), (8000.0, 16_000.0), (16_000.0, 24_000.0)]);
    }

    #[test]
    fn more_classes_than_colours_have_one_line_together() {
        let link = link(20, 2, 0..0);
        let lines = Lines::of(&link);
        let names: Vec<&str> = lines.names().collect();
        assert_eq!(names, ["c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "12 other classes"]);
        let axes = axes(1000, 1002, Vec::new());
        assert_eq!(lines.steps(&axes, 0)[0].points[8].wire, 12_000);
        // The link itself has sent nothing.
        assert_eq!(lines.line_of[0], usize::MAX);
    }

    #[test]
    fn changes_are_marked_once_in_each_panel() {
        let link = link(1, 1000, 0..0);
        let change = |second: u64, number: u64| Change {
            unix_ns: second * SECOND,
            number,
            what: "applied <b>".into(),
            ..Change::default()
        };
        let recorded = Recorded {
            changes: vec![change(500, 1), change(1500, 2), change(1505, 3), change(1990, 4)],
            from: 900 * SECOND,
            to: 2000 * SECOND,
            ..Recorded::default()
        };
        let page = section(&link, &recorded).into_string();
        // Two charts, the whole time and the last five minutes, each for wide and narrow screens,
        // with three panels: rate, delay, backlog. The first change was before.
        let marked = |what: &str| page.matches(what).count();
        assert_eq!(marked("change 1 applied"), 0);
        assert_eq!(marked("change 2 applied &lt;b&gt;"), 2 * 3);
        assert_eq!(marked("change 4 applied"), 4 * 3);
        // There is no room for the number of the third beside that of the second.
        let marks = Axes { flags: flags(&recorded), ..axes(1000, 2000, Vec::new()) }.marks(true);
        let label = |mark: &Mark| if let Mark::Flag(_, label, _) = mark { label.clone() } else { String::new() };
        assert_eq!(marks.iter().map(label).collect::<Vec<_>>(), ["2", "", "4"]);
        assert!(page.contains(">00:25</text>") && page.contains("A step is 15 s long"), "{page}");
    }
}
