//! What a client of `altq traffic` measured: a table of its flows, and charts over time.

use maud::{Markup, html};

use super::clock::{Clock, Span};
use super::{left_out, shown, steps};
use crate::html::element::{Sign, charts, legend, table};
use crate::html::text::{figure, number, time};
use crate::measured::{Distribution, FlowResult, LiveFlow, Traffic};
use crate::plot::{Axis, Bar, Chart, Mark, Panel, Side, Style, Unit};

/// All about a run.
pub fn section(run: &Traffic, clock: &Clock) -> Markup {
    let names: Vec<&str> = match (&run.result, run.lines.first()) {
        (Some(result), _) => result.flows.iter().map(|flow| flow.name.as_str()).collect(),
        (None, Some(line)) => line.flows.iter().map(|flow| flow.name.as_str()).collect(),
        (None, None) => Vec::new(),
    };
    let lines = Lines { run, span: clock.traffic(run), shown: shown(&bytes(run, names.len())) };
    let named = lines.shown.iter().enumerate().filter_map(|(n, place)| Some((n, *names.get(*place)?)));
    let signs = named.map(|(n, name)| (Style::nth(n), Sign::Line, name));
    let warnings = run.result.iter().flat_map(|result| result.invalid.iter().map(move |why| (result.valid, why)));
    html! {
        @if let Some(result) = &run.result {
            p {
                "To " code { (result.server) } ", " (time(result.ran_ns as f64))
                @if result.warmup_ns > 0 { ", figures from " (time(result.warmup_ns as f64)) " on" } "."
            } "\n"
        }
        @for (_, why) in warnings { div.notes.warning { p.invalid { "INVALID: " (why) } } "\n" }
        @for note in run.result.iter().flat_map(|result| &result.notes) { div.notes { p { (note) } } "\n" }
        @if let Some(result) = &run.result { (summary(&result.flows)) }
        @if !run.lines.is_empty() {
            h3 { "Over time" } "\n"
            (legend(signs))
            (charts(&[""], &|_, width| lines.chart(width).svg()))
            p.quiet.small {
                "Payload that the receiver's program has read in each interval. Round trip of requests, or one-way \
                 delay: the median, and fainter the 99th percentile of each interval. TCP rtt: the kernel's smoothed \
                 round trip. Lost: datagrams that have not arrived although later ones have, and requests without an \
                 answer. Resent: segments of TCP."
            } "\n"
        }
        (left_out(names.len(), lines.shown.len(), "flows"))
        @if let Some(result) = &run.result { (distributions(&result.flows)) }
    }
}

/// The bytes of each flow.
fn bytes(run: &Traffic, count: usize) -> Vec<u64> {
    let of_result = |n: usize| Some(run.result.as_ref()?.flows.get(n)?.bytes);
    let of_line = |n: usize| Some(run.lines.last()?.flows.get(n)?.bytes);
    (0..count).map(|n| of_line(n).or(of_result(n)).unwrap_or(0)).collect()
}

/// The table of all flows, with the columns that any of them has.
fn summary(flows: &[FlowResult]) -> Markup {
    type Column<'a> = (&'a str, &'a dyn Fn(&FlowResult) -> Option<String>);
    let times = |flow: &FlowResult| flow.rtt_ns.or(flow.delay_ns);
    let quantile = |flow: &FlowResult, of: &dyn Fn(&Distribution) -> u64, least: u64| {
        times(flow).filter(|times| times.n >= least).map(|times| time(of(&times) as f64))
    };
    let resent = |flow: &FlowResult| flow.connections.iter().map(|connection| connection.retransmits).sum::<u64>();
    let columns: [Column<'_>; 10] = [
        ("way", &|flow| Some(flow.direction.clone())),
        ("goodput", &|flow| flow.transactions_per_s.is_none().then(|| figure(flow.goodput_bit_s as f64, "bit/s"))),
        ("a second", &|flow| flow.transactions_per_s.map(number)),
        ("delay P50", &|flow| quantile(flow, &|times| times.p50, 1)),
        ("P90", &|flow| quantile(flow, &|times| times.p90, 10)),
        ("P99", &|flow| quantile(flow, &|times| times.p99, 100)),
        ("P99.9", &|flow| quantile(flow, &|times| times.p99_9, 1000)),
        ("jitter", &|flow| flow.jitter_ns.map(|jitter| time(jitter as f64))),
        ("lost", &|flow| match (&flow.packets, flow.failed) {
            (Some(packets), _) => {
                let loss = figure(packets.loss, "fraction");
                Some(format!("{} of {} ({loss})", number(packets.lost as f64), number(packets.sent as f64)))
            }
            (None, Some(failed)) => Some(number(failed as f64)),
            (None, None) => None,
        }),
        ("resent", &|flow| (!flow.connections.is_empty()).then(|| number(resent(flow) as f64))),
    ];
    let used: Vec<&Column<'_>> =
        columns.iter().filter(|(_, cell)| flows.iter().any(|flow| cell(flow).is_some())).collect();
    let head: Vec<&str> = std::iter::once("flow").chain(used.iter().map(|(name, _)| *name)).collect();
    let rows: Vec<Vec<String>> = flows
        .iter()
        .map(|flow| {
            let cells = used.iter().map(|(_, cell)| cell(flow).unwrap_or_else(|| "–".into()));
            std::iter::once(flow.name.clone()).chain(cells).collect()
        })
        .collect();
    html! {
        (table(&head, &rows))
        p.quiet.small {
            "Delay: the round trip of requests, or the one-way delay of datagrams where both ends have one clock. A \
             percentile is given only if there are enough of them: P99.9 from 1000 on."
        } "\n"
        @for flow in flows {
            @if let Some(error) = &flow.error { div.notes.warning { p { (flow.name) ": " (error) } } "\n" }
        }
    }
}

/// Goodput as bars, and percentiles of delays as dots.
fn distributions(flows: &[FlowResult]) -> Markup {
    let bytes: Vec<u64> = flows.iter().map(|flow| flow.bytes).collect();
    let places = shown(&bytes);
    let style = |flow: &FlowResult| {
        let place = places.iter().position(|place| flows.get(*place).is_some_and(|other| other.name == flow.name));
        Style::nth(place.unwrap_or(places.len()))
    };
    let carrying: Vec<&FlowResult> = flows.iter().filter(|flow| flow.transactions_per_s.is_none()).collect();
    let times = |flow: &FlowResult| flow.rtt_ns.or(flow.delay_ns);
    let timed: Vec<(&FlowResult, Distribution)> =
        flows.iter().filter_map(|flow| Some((flow, times(flow).filter(|times| times.p50 > 0)?))).collect();
    let rates = |width: f64| {
        let bar = |(n, flow): (usize, &&FlowResult)| {
            let to = flow.goodput_bit_s as f64;
            let title = format!("{} {}", flow.name, figure(to, "bit/s"));
            Mark::Bar(Bar { style: style(flow), row: n as f64, height: 0.6, from: 0.0, to, hatched: false, title })
        };
        let names = carrying.iter().map(|flow| flow.name.clone()).collect();
        let panels = vec![Panel::names(names, carrying.iter().enumerate().map(bar).collect())];
        let x = Axis::new("goodput", Unit::Rate);
        Chart { title: "goodput of each flow".into(), width, x, range: None, panels }
    };
    let delays = |width: f64| {
        let mut marks = Vec::new();
        for (n, (flow, times)) in timed.iter().enumerate() {
            let seconds = |ns: u64| ns as f64 / 1e9;
            marks.push(Mark::Span(style(flow), n as f64, seconds(times.p50), seconds(times.max)));
            let percentiles =
                [("P50", times.p50, 1), ("P90", times.p90, 10), ("P99", times.p99, 100), ("P99.9", times.p99_9, 1000)];
            let dots = percentiles.into_iter().filter(|(.., least)| times.n >= *least);
            let dots =
                dots.map(|(word, ns, _)| (seconds(ns), n as f64, format!("{} {word} {}", flow.name, time(ns as f64))));
            marks.push(Mark::Dots(style(flow), dots.collect()));
        }
        let panels = vec![Panel::names(timed.iter().map(|(flow, _)| flow.name.clone()).collect(), marks)];
        Chart { title: "delays of each flow".into(), width, x: Axis::log("delay", Unit::Time), range: None, panels }
    };
    let (rates, delays): (&dyn Fn(f64) -> Chart, &dyn Fn(f64) -> Chart) = (&rates, &delays);
    let mut drawn: Vec<(&str, &dyn Fn(f64) -> Chart)> = Vec::new();
    if !carrying.is_empty() {
        drawn.push(("Goodput over the whole run", rates));
    }
    if !timed.is_empty() {
        drawn.push(("Delays: P50, P90, P99 and P99.9 as dots, a line up to the longest", delays));
    }
    let captions: Vec<&str> = drawn.iter().map(|(caption, _)| *caption).collect();
    html! {
        @if !drawn.is_empty() {
            h3 { "Over the whole run" } "\n"
            (charts(&captions, &|n, width| drawn.get(n).map_or_else(Markup::default, |(_, draw)| draw(width).svg())))
        }
    }
}

/// The lines of a run that a chart shows.
struct Lines<'a> {
    run: &'a Traffic,
    span: Span,
    shown: Vec<usize>,
}

impl Lines<'_> {
    /// The intervals of a flow: when each began and ended, and its counters before and after.
    fn intervals(&self, place: usize) -> impl Iterator<Item = (f64, f64, Option<&LiveFlow>, &LiveFlow)> {
        let lines = &self.run.lines;
        lines.iter().enumerate().filter_map(move |(n, line)| {
            let before = n.checked_sub(1).and_then(|n| lines.get(n));
            let begin = self.span.at(before.map_or(0, |line| line.at_ns));
            let had = before.and_then(|line| line.flows.get(place));
            Some((begin, self.span.at(line.at_ns), had, line.flows.get(place)?))
        })
    }

    /// A counter's increase as a rate per second.
    fn rate(&self, place: usize, of: impl Fn(&LiveFlow) -> Option<u64>) -> Vec<(f64, f64)> {
        steps(self.intervals(place).map(|(begin, end, had, now)| {
            let grown = of(now).unwrap_or(0).saturating_sub(had.and_then(&of).unwrap_or(0));
            (begin, end, grown as f64 / (end - begin).max(1e-9))
        }))
    }

    fn line(&self, place: usize, of: impl Fn(&LiveFlow) -> Option<u64>) -> Vec<(f64, f64)> {
        let value = |flow: &LiveFlow| of(flow).map_or(f64::NAN, |ns| ns as f64 / 1e9);
        self.intervals(place).map(|(begin, end, _, now)| ((begin + end) / 2.0, value(now))).collect()
    }

    fn chart(&self, width: f64) -> Chart {
        let (mut rates, mut delays, mut kernel, mut lost, mut resent) = (vec![], vec![], vec![], vec![], vec![]);
        for (n, place) in self.shown.iter().enumerate() {
            let (style, place) = (Style::nth(n), *place);
            let goodput = |now: &LiveFlow| now.rate_bit_s.map_or(f64::NAN, |rate| rate as f64);
            let points = self.intervals(place).map(|(begin, end, _, now)| (begin, end, goodput(now)));
            rates.push(Mark::Steps(style, steps(points)));
            delays.push(Mark::Line(style.faint(), self.line(place, |flow| flow.p99_ns)));
            delays.push(Mark::Line(style, self.line(place, |flow| flow.p50_ns)));
            kernel.push(Mark::Line(style, self.line(place, |flow| flow.tcp_rtt_ns)));
            let gone = self.rate(place, |flow| Some(flow.failed + flow.missing.unwrap_or(0)));
            lost.extend(if_any(Mark::Steps(style, gone)));
            resent.extend(if_any(Mark::Steps(style, self.rate(place, |flow| flow.retransmits))));
        }
        let mut panels = vec![Panel::new(150.0, Axis::new("throughput", Unit::Rate), rates)];
        panels.extend(times("delay", 120.0, delays));
        panels.extend(times("TCP rtt", 90.0, kernel));
        panels.extend(counts("lost", lost));
        panels.extend(counts("resent", resent));
        let title = "throughput, delay and loss of each flow over time".into();
        Chart { title, width, x: Axis::new("time", Unit::Time), range: Some((0.0, self.span.end)), panels }
    }
}

/// A panel of times, if there are any. Its axis is logarithmic if they span more than two decades.
pub(super) fn times(label: &str, height: f64, marks: Vec<Mark>) -> Option<Panel> {
    let values = || marks.iter().flat_map(Mark::ys).filter(|y| y.is_finite() && *y > 0.0);
    let (least, most) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
    let axis = if most / least > 200.0 { Axis::log(label, Unit::Time) } else { Axis::new(label, Unit::Time) };
    Some(Panel { height, y: Side::Values(axis, None), marks })
}

/// A line, if it has a value above 0. Lines of classes and flows to which nothing happened would
/// hide one another.
pub(in crate::html) fn if_any(mark: Mark) -> Option<Mark> {
    mark.ys().into_iter().any(|y| y > 0.0).then_some(mark)
}

/// A low panel of counts per second, if there are any.
pub(in crate::html) fn counts(label: &str, marks: Vec<Mark>) -> Option<Panel> {
    (!marks.is_empty()).then(|| Panel::new(70.0, Axis::new(label, Unit::PerSecond), marks))
}
