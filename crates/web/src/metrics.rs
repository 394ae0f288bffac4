//! Metrics for Prometheus and others, as OpenMetrics 1.0 or in Prometheus' older text form.
//!
//! Labels are names of links and classes, reasons and the like, never a flow or an address. So the
//! number of time series grows only with that of the classes. The figures of a class include those
//! of the classes below it; to add classes up, select leaves by `altq_class_info{leaf="true"}`.

use std::collections::HashSet;
use std::fmt::{self, Write};

use altq_control::document::{BLOCKED, BYPASS, KERNEL};
use altq_engine::units::Nanos;
use altq_monitor::waited::BOUNDS;

use crate::frame::Frame;
use crate::stat::{Class, Link};

/// The format of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Text,
}

impl Form {
    /// The format for a client that accepts these types: the older one unless it asks for
    /// OpenMetrics.
    pub fn accepted(accept: Option<&str>) -> Form {
        let asks = accept.is_some_and(|accept| {
            accept.split(',').any(|one| one.split(';').next().is_some_and(|kind| kind.trim() == OPEN))
        });
        if asks { Form::OpenMetrics } else { Form::Text }
    }

    /// The type of the text.
    pub fn content_type(self) -> &'static str {
        match self {
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Form::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

const OPEN: &str = "application/openmetrics-text";

/// What a family of metrics is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Info,
    Summary,
    Histogram,
}

/// Writes families.
struct Writer {
    form: Form,
    out: String,
}

/// The value of a sample.
#[derive(Clone, Copy, Debug)]
enum Number {
    Whole(u64),
    /// Nanoseconds, which are written as seconds.
    Time(Nanos),
    /// Microseconds, which are written as seconds.
    Micros(u64),
    /// Bits, which are written as bytes.
    Bits(u64),
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Number::Whole(number) => write!(f, "{number}"),
            Number::Time(time) => write!(f, "{}.{:09}", time / 1_000_000_000, time % 1_000_000_000),
            Number::Micros(time) => write!(f, "{}.{:06}", time / 1_000_000, time % 1_000_000),
            // An eighth has at most three decimals.
            Number::Bits(bits) if bits.is_multiple_of(8) => write!(f, "{}", bits / 8),
            Number::Bits(bits) => write!(f, "{}.{:03}", bits / 8, bits % 8 * 125),
        }
    }
}

impl Writer {
    /// Begins a family. `name` is without `_total` and `_info`.
    fn family(&mut self, name: &str, kind: Kind, unit: &str, help: &str) {
        let (name, word) = match (self.form, kind) {
            (Form::OpenMetrics, Kind::Counter) => (name.to_owned(), "counter"),
            (Form::Text, Kind::Counter) => (format!("{name}_total"), "counter"),
            (_, Kind::Gauge) => (name.to_owned(), "gauge"),
            (_, Kind::Summary) => (name.to_owned(), "summary"),
            (_, Kind::Histogram) => (name.to_owned(), "histogram"),
            (Form::OpenMetrics, Kind::Info) => (name.to_owned(), "info"),
            // The older format does not have this kind: it is written as a gauge that is always 1.
            (Form::Text, Kind::Info) => (format!("{name}_info"), "gauge"),
        };
        _ = writeln!(self.out, "# TYPE {name} {word}");
        if self.form == Form::OpenMetrics && !unit.is_empty() {
            _ = writeln!(self.out, "# UNIT {name} {unit}");
        }
        _ = writeln!(self.out, "# HELP {name} {help}");
    }

    /// A sample. `labels` are written with their braces.
    fn sample(&mut self, name: impl fmt::Display, labels: impl fmt::Display, number: Number) {
        _ = writeln!(self.out, "{name}{labels} {number}");
    }
}

/// A label's value: backslash, quote and newline are escaped; other control characters become
/// U+FFFD (names do not have them).
pub fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}

/// A class that is written, with its labels without braces.
struct Row<'a> {
    class: &'a Class,
    labels: String,
    leaf: bool,
    /// False where the kernel shapes, which does not tell how long packets waited.
    timed: bool,
}

/// The classes of all links. If two classes of a link have the same name, only the first one is
/// written, so that no time series appears twice.
fn rows(links: &[Link]) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for link in links {
        let parents: HashSet<&str> = link.classes.iter().filter_map(|class| class.parent.as_deref()).collect();
        let mut seen = HashSet::new();
        let of_link = escaped(&link.name);
        for class in link.classes.iter().filter(|class| seen.insert(class.name.as_str())) {
            let labels = format!("link=\"{of_link}\",class=\"{}\"", escaped(&class.name));
            let (leaf, timed) = (!parents.contains(class.name.as_str()), link.path != KERNEL);
            rows.push(Row { class, labels, leaf, timed });
        }
    }
    rows
}

/// All metrics of a frame.
pub fn text(frame: &Frame, form: Form) -> String {
    let mut writer = Writer { form, out: String::new() };
    writer.family("altq_build", Kind::Info, "", "The altq web that answers.");
    writer.sample("altq_build_info", format_args!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")), Number::Whole(1));
    writer.family("altq_control_up", Kind::Gauge, "", "1 if altq answers on its control socket.");
    writer.sample("altq_control_up", "", Number::Whole(u64::from(frame.status.is_some())));
    status(&mut writer, frame);
    if let Some(reserved) = &frame.reserved {
        writer.family("altq_reservation_active", Kind::Gauge, "", "The number of reservations below a class.");
        for place in reserved {
            let labels = format!("{{link=\"{}\",class=\"{}\"}}", escaped(&place.link), escaped(&place.class));
            writer.sample("altq_reservation_active", labels, Number::Whole(place.active));
        }
        let name = "altq_reservation_refused";
        writer.family(name, Kind::Counter, "", "Requests for reservations, or for changes of them, that were refused.");
        for place in reserved {
            for (reason, count) in &place.refused {
                let (link, class, reason) = (escaped(&place.link), escaped(&place.class), escaped(reason));
                let labels = format!("{{link=\"{link}\",class=\"{class}\",reason=\"{reason}\"}}");
                writer.sample("altq_reservation_refused_total", labels, Number::Whole(*count));
            }
        }
    }
    if let Some(stat) = &frame.stat {
        loops(&mut writer, &stat.links);
        let rows = rows(&stat.links);
        counters(&mut writer, &rows);
        gauges(&mut writer, &rows);
        waits(&mut writer, &rows);
        promises(&mut writer, &rows);
    }
    writer.out.push_str("# EOF\n");
    writer.out
}

fn status(writer: &mut Writer, frame: &Frame) {
    let Some(status) = &frame.status else { return };
    writer.family("altq_bypass_active", Kind::Gauge, "", "1 if the packets of the link pass unshaped.");
    for link in &status.links {
        let labels = format!("{{link=\"{}\"}}", escaped(&link.name));
        writer.sample("altq_bypass_active", labels, Number::Whole(u64::from(link.state == BYPASS)));
    }
    writer.family("altq_blocked_active", Kind::Gauge, "", "1 if no packets of the link pass.");
    for link in &status.links {
        let labels = format!("{{link=\"{}\"}}", escaped(&link.name));
        writer.sample("altq_blocked_active", labels, Number::Whole(u64::from(link.state == BLOCKED)));
    }
    writer.family(
        "altq_config_drift",
        Kind::Gauge,
        "",
        "In how many places the link differs from its policy, but for what clients have set.",
    );
    for link in &status.links {
        let labels = format!("{{link=\"{}\"}}", escaped(&link.name));
        // What clients set is meant to be so.
        let drift = link.drift.len().saturating_sub(link.set_by_clients);
        writer.sample("altq_config_drift", labels, Number::Whole(drift as u64));
    }
    let name = "altq_link_adapts";
    writer.family(name, Kind::Gauge, "", "1 if the rate of the link follows the line, and so do its guarantees.");
    for (link, adapts) in &frame.adapts {
        writer.sample(name, format_args!("{{link=\"{}\"}}", escaped(link)), Number::Whole(u64::from(*adapts)));
    }
    if let Some(applied) = frame.applied {
        let name = "altq_config_last_apply_success";
        writer.family(name, Kind::Gauge, "", "0 if the last change of the policy was taken back.");
        writer.sample(name, "", Number::Whole(u64::from(applied)));
    }
}

/// What the loops of links did.
fn loops(writer: &mut Writer, links: &[Link]) {
    let name = "altq_timer_late_seconds";
    writer.family(
        name,
        Kind::Summary,
        "seconds",
        "How late the timers of the link's loop were; quantile 0.99 in the latest interval, 1 the most.",
    );
    for link in links {
        let of_link = escaped(&link.name);
        if let Some(p99) = link.work.timer_late_p99_ns {
            writer.sample(name, format_args!("{{link=\"{of_link}\",quantile=\"0.99\"}}"), Number::Time(p99));
        }
        let most = Number::Time(link.device.timer_late_max_ns);
        writer.sample(name, format_args!("{{link=\"{of_link}\",quantile=\"1.0\"}}"), most);
        if let Some(total) = link.work.timer_late_total_ns {
            writer.sample(format_args!("{name}_sum"), format_args!("{{link=\"{of_link}\"}}"), Number::Time(total));
            let count = Number::Whole(link.work.timers);
            writer.sample(format_args!("{name}_count"), format_args!("{{link=\"{of_link}\"}}"), count);
        }
    }
    let name = "altq_link_device_drops";
    writer.family(name, Kind::Counter, "", "Frames that were lost outside the queues.");
    for link in links {
        let labels = format!("{{link=\"{}\"}}", escaped(&link.name));
        writer.sample(format_args!("{name}_total"), labels, Number::Whole(link.device.device_dropped));
    }
}

/// Name, unit, help, and the number of a class, if it has one.
type Family = (&'static str, &'static str, &'static str, fn(&Class) -> Option<Number>);

fn whole(number: u64) -> Option<Number> {
    Some(Number::Whole(number))
}

fn families(writer: &mut Writer, kind: Kind, rows: &[Row<'_>], families: &[Family]) {
    let end = if kind == Kind::Counter { "_total" } else { "" };
    for (name, unit, help, of) in families {
        writer.family(name, kind, unit, help);
        for row in rows {
            if let Some(number) = of(row.class) {
                writer.sample(format_args!("{name}{end}"), format_args!("{{{}}}", row.labels), number);
            }
        }
    }
}

fn counters(writer: &mut Writer, rows: &[Row<'_>]) {
    families(
        writer,
        Kind::Counter,
        rows,
        &[
            ("altq_class_bytes", "bytes", "Bytes sent, of layer 3.", |class| whole(class.sent_bytes)),
            ("altq_class_wire_bytes", "bytes", "Bytes that the link charged for what was sent.", |class| {
                class.sent_wire_bytes.map(Number::Whole)
            }),
            ("altq_class_packets", "", "Packets sent.", |class| whole(class.sent_packets)),
            ("altq_class_received_bytes", "bytes", "Bytes that arrived.", |class| whole(class.received_bytes)),
            ("altq_class_received_packets", "", "Packets that arrived.", |class| whole(class.received_packets)),
            ("altq_class_ecn_marks", "", "Packets marked.", |class| whole(class.marked_packets)),
            ("altq_class_borrowed_bytes", "bytes", "Bytes that the scheduler counts as borrowed.", |class| {
                whole(class.borrowed_bytes)
            }),
            ("altq_class_overlimits", "", "How often the class was over its limit.", |class| {
                class.overlimits.map(Number::Whole)
            }),
        ],
    );
    writer.family("altq_class_drops", Kind::Counter, "", "Packets dropped, by reason.");
    for row in rows {
        for (reason, count) in &row.class.dropped {
            let labels = format!("{{{},reason=\"{}\"}}", row.labels, escaped(reason));
            writer.sample("altq_class_drops_total", labels, Number::Whole(*count));
        }
    }
}

fn gauges(writer: &mut Writer, rows: &[Row<'_>]) {
    families(
        writer,
        Kind::Gauge,
        rows,
        &[
            ("altq_class_backlog_bytes", "bytes", "Bytes that wait.", |class| whole(class.backlog_bytes)),
            ("altq_class_backlog_packets", "", "Packets that wait.", |class| whole(class.backlog_packets)),
        ],
    );
}

/// [`BOUNDS`] as label values in seconds, written as OpenMetrics writes them.
const UP_TO: [&str; BOUNDS.len()] = [
    "1e-05", "2.5e-05", "5e-05", "0.0001", "0.00025", "0.0005", "0.001", "0.0025", "0.005", "0.01", "0.025", "0.05",
    "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0",
];

/// How long packets waited.
fn waits(writer: &mut Writer, rows: &[Row<'_>]) {
    let rows = || rows.iter().filter(|row| row.timed);
    let name = "altq_class_sojourn_recent_seconds";
    let help = "How long packets waited in altq's latest interval; quantile 1 is the longest.";
    writer.family(name, Kind::Summary, "seconds", help);
    for row in rows() {
        let times = row.class.sojourn_ns;
        for (quantile, time) in [("0.5", times.p50), ("0.99", times.p99), ("1.0", times.max)] {
            writer.sample(name, format_args!("{{{},quantile=\"{quantile}\"}}", row.labels), Number::Time(time));
        }
    }
    let name = "altq_class_sojourn_seconds";
    writer.family(name, Kind::Histogram, "seconds", "How long packets waited since the start, within 1/32.");
    for row in rows() {
        let Some(waited) = row.class.waited.as_ref().filter(|waited| waited.counts.len() > BOUNDS.len()) else {
            continue;
        };
        let labels = &row.labels;
        let mut sum = 0u64;
        for (bound, count) in UP_TO.into_iter().chain(["+Inf"]).zip(&waited.counts) {
            sum = sum.saturating_add(*count);
            writer.sample(
                format_args!("{name}_bucket"),
                format_args!("{{{labels},le=\"{bound}\"}}"),
                Number::Whole(sum),
            );
        }
        let seconds = Number::Micros(waited.sum_us);
        writer.sample(format_args!("{name}_sum"), format_args!("{{{labels}}}"), seconds);
        writer.sample(format_args!("{name}_count"), format_args!("{{{labels}}}"), Number::Whole(sum));
    }
}

/// The metrics of what the policy promises to classes.
fn promises(writer: &mut Writer, rows: &[Row<'_>]) {
    families(
        writer,
        Kind::Gauge,
        rows,
        &[
            ("altq_class_guarantee_bytes_per_second", "bytes_per_second", "What the policy guarantees.", |class| {
                class.guaranteed_bit_s.map(Number::Bits)
            }),
            (
                "altq_class_ceiling_bytes_per_second",
                "bytes_per_second",
                "The highest rate that the policy allows.",
                |class| class.ceiling_bit_s.map(Number::Bits),
            ),
            (
                "altq_class_delay_bound_seconds",
                "seconds",
                "The longest wait of the last packet of a full queue.",
                |class| class.delay_bound_ns.queue_full.map(Number::Time),
            ),
        ],
    );
    writer.family("altq_class", Kind::Info, "", "The class above, and the scheduler; leaf: no class is below it.");
    for row in rows {
        let parent = escaped(row.class.parent.as_deref().unwrap_or_default());
        let scheduler = escaped(row.class.scheduler.as_deref().unwrap_or_default());
        let labels = &row.labels;
        let leaf = row.leaf;
        let labels = format!("{{{labels},parent=\"{parent}\",leaf=\"{leaf}\",scheduler=\"{scheduler}\"}}");
        writer.sample("altq_class_info", labels, Number::Whole(1));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use altq_control::document::{LinkStatus, Status};

    use super::*;
    use crate::frame::Reserved;
    use crate::stat::{Bound, Device, Sojourn, Stat, Waited, Work};

    fn frame() -> Frame {
        let link = Class {
            name: "wan".to_owned(),
            sent_bytes: 300,
            sent_packets: 3,
            guaranteed_bit_s: Some(1001),
            ..Class::default()
        };
        let class = Class {
            name: "a\"b\\\n".to_owned(),
            parent: Some("wan".to_owned()),
            sent_bytes: 300,
            sent_wire_bytes: Some(338),
            sent_packets: 3,
            dropped: BTreeMap::from([("early".to_owned(), 2), ("queue_full".to_owned(), 1)]),
            backlog_bytes: 9,
            overlimits: Some(4),
            sojourn_ns: Sojourn { p50: 1, p99: 2_500_000_000, max: 3_000_000_001 },
            waited: Some(Waited { sum_us: 5_500_001, counts: [vec![1], vec![0; 17], vec![1, 1]].concat() }),
            ceiling_bit_s: Some(8000),
            scheduler: Some("s".to_owned()),
            delay_bound_ns: Bound { conforming: Some(1), queue_full: Some(7_000_000) },
            ..Class::default()
        };
        let twin = Class { name: "wan".to_owned(), parent: Some("wan".to_owned()), sent_bytes: 7, ..Class::default() };
        let link = Link {
            name: "wan".to_owned(),
            device: Device { device_dropped: 5, timer_late_max_ns: 1500 },
            work: Work { timers: 2, timer_late_total_ns: Some(2000), timer_late_p99_ns: Some(1400) },
            classes: vec![link, class, twin],
            ..Link::default()
        };
        let status = |name: &str, state: &str, drift: &[&str]| LinkStatus {
            name: name.to_owned(),
            path: "nfqueue".to_owned(),
            state: state.to_owned(),
            since_s: 1,
            reason: None,
            drift: drift.iter().map(|what| (*what).to_owned()).collect(),
            set_by_clients: 0,
        };
        let links = vec![status("wan", "bypass", &[]), status("k", "kernel", &["one", "two"])];
        Frame {
            status: Some(Status::of(links)),
            stat: Some(Stat { links: vec![link] }),
            reserved: Some(vec![Reserved {
                link: "wan".to_owned(),
                class: "res".to_owned(),
                active: 6,
                refused: [("bandwidth".to_owned(), 2)].into(),
            }]),
            applied: Some(false),
            adapts: BTreeMap::from([("wan".to_owned(), true)]),
            ..Frame::default()
        }
    }

    #[test]
    fn samples_have_the_names_that_collectors_rely_on() {
        let text = text(&frame(), Form::OpenMetrics);
        for line in [
            "# TYPE altq_class_bytes counter",
            "# UNIT altq_class_bytes bytes",
            "# TYPE altq_class info",
            "# TYPE altq_class_sojourn_recent_seconds summary",
            "# TYPE altq_class_sojourn_seconds histogram",
            "altq_control_up 1",
            r#"altq_bypass_active{link="wan"} 1"#,
            r#"altq_bypass_active{link="k"} 0"#,
            r#"altq_blocked_active{link="wan"} 0"#,
            r#"altq_config_drift{link="k"} 2"#,
            r#"altq_link_adapts{link="wan"} 1"#,
            "altq_config_last_apply_success 0",
            r#"altq_reservation_active{link="wan",class="res"} 6"#,
            r#"altq_reservation_refused_total{link="wan",class="res",reason="bandwidth"} 2"#,
            r#"altq_timer_late_seconds{link="wan",quantile="0.99"} 0.000001400"#,
            r#"altq_timer_late_seconds{link="wan",quantile="1.0"} 0.000001500"#,
            r#"altq_timer_late_seconds_sum{link="wan"} 0.000002000"#,
            r#"altq_timer_late_seconds_count{link="wan"} 2"#,
            r#"altq_link_device_drops_total{link="wan"} 5"#,
            r#"altq_class_bytes_total{link="wan",class="wan"} 300"#,
            r#"altq_class_wire_bytes_total{link="wan",class="a\"b\\\n"} 338"#,
            r#"altq_class_drops_total{link="wan",class="a\"b\\\n",reason="early"} 2"#,
            r#"altq_class_overlimits_total{link="wan",class="a\"b\\\n"} 4"#,
            r#"altq_class_sojourn_recent_seconds{link="wan",class="a\"b\\\n",quantile="0.99"} 2.500000000"#,
            r#"altq_class_sojourn_recent_seconds{link="wan",class="a\"b\\\n",quantile="1.0"} 3.000000001"#,
            r#"altq_class_sojourn_seconds_bucket{link="wan",class="a\"b\\\n",le="1e-05"} 1"#,
            r#"altq_class_sojourn_seconds_bucket{link="wan",class="a\"b\\\n",le="5.0"} 1"#,
            r#"altq_class_sojourn_seconds_bucket{link="wan",class="a\"b\\\n",le="10.0"} 2"#,
            r#"altq_class_sojourn_seconds_bucket{link="wan",class="a\"b\\\n",le="+Inf"} 3"#,
            r#"altq_class_sojourn_seconds_sum{link="wan",class="a\"b\\\n"} 5.500001"#,
            r#"altq_class_sojourn_seconds_count{link="wan",class="a\"b\\\n"} 3"#,
            r#"altq_class_guarantee_bytes_per_second{link="wan",class="wan"} 125.125"#,
            r#"altq_class_ceiling_bytes_per_second{link="wan",class="a\"b\\\n"} 1000"#,
            r#"altq_class_delay_bound_seconds{link="wan",class="a\"b\\\n"} 0.007000000"#,
            r#"altq_class_info{link="wan",class="wan",parent="",leaf="false",scheduler=""} 1"#,
            r#"altq_class_info{link="wan",class="a\"b\\\n",parent="wan",leaf="true",scheduler="s"} 1"#,
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("\n# EOF\n"));
        assert_eq!(UP_TO.map(|bound| (bound.parse::<f64>().unwrap() * 1e9).round() as Nanos), BOUNDS);
        // Unknown figures are left out, and no time series appears twice.
        assert!(!text.contains(r#"altq_class_wire_bytes_total{link="wan",class="wan"}"#), "{text}");
        assert!(!text.contains(r#"altq_class_sojourn_seconds_count{link="wan",class="wan"}"#), "{text}");
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let series: HashSet<&str> = samples.iter().filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
        assert_eq!(series.len(), samples.len());
    }

    #[test]
    fn where_the_kernel_shapes_no_waits_are_told() {
        let mut frame = frame();
        frame.stat.as_mut().unwrap().links[0].path = KERNEL.to_owned();
        let text = text(&frame, Form::OpenMetrics);
        assert!(text.contains("\naltq_class_bytes_total{") && !text.contains("\naltq_class_sojourn"), "{text}");
    }

    #[test]
    fn the_older_form_has_its_own_types() {
        let text = text(&frame(), Form::Text);
        for line in ["# TYPE altq_class_bytes_total counter", "# TYPE altq_class_info gauge"] {
            assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("# UNIT"));
        assert_eq!(Form::accepted(None), Form::Text);
        assert_eq!(Form::accepted(Some("*/*")), Form::Text);
        let scraper = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Form::accepted(Some(scraper)), Form::OpenMetrics);
    }

    #[test]
    fn without_altq_there_is_still_an_answer() {
        let text = text(&Frame::default(), Form::OpenMetrics);
        assert!(text.contains("\naltq_control_up 0\n") && !text.contains("altq_class"), "{text}");
        assert_eq!(escaped("\u{1b}[31m\r"), "\u{fffd}[31m\u{fffd}");
    }
}
