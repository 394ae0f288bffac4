//! The live table: a row per class, parents before children.

use altq_config::Link;
use altq_dataplane::stats::Snapshot;
use altq_engine::spec::ROOT;

use super::shaped::Shaped;
use crate::{output, tree};

/// Where the table is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Screen {
    /// A file or a pipe: tables follow one another.
    Plain,
    /// A terminal: each table is drawn over the previous one.
    Terminal {
        /// True if headings are printed bold.
        color: bool,
    },
}

/// The tables of all links as one text, at most `width` columns wide if that is possible. `last` is
/// true for the tables at the end, which show the whole run instead of an interval.
pub fn draw(links: &[(&Shaped, &Snapshot)], screen: Screen, last: bool, width: Option<usize>) -> String {
    let mut text = String::new();
    if matches!(screen, Screen::Terminal { .. }) {
        // The cursor goes to the top left. Every line ends with "clear to the end of the line", so
        // that nothing flickers.
        text.push_str("\x1b[H");
    }
    for (shaped, snapshot) in links {
        text.push_str(&heading(&shaped.link, snapshot, screen, last));
        text.push_str(&output::table_within(&rows(shaped, snapshot, last), width));
        text.push_str(&footer(snapshot, last));
        text.push('\n');
    }
    match screen {
        Screen::Plain => text,
        Screen::Terminal { .. } => text.replace('\n', "\x1b[K\n") + "\x1b[J",
    }
}

fn heading(link: &Link, snapshot: &Snapshot, screen: Screen, last: bool) -> String {
    let since = if last { snapshot.began } else { snapshot.since };
    let seconds = snapshot.at.saturating_sub(since) as f64 / 1e9;
    let what = if last { format!("over the whole {seconds:.1} s") } else { format!("over {seconds:.1} s") };
    let text = format!(
        "link {}: {} of {} {what}",
        link.name,
        output::rate(rates(snapshot, ROOT as usize, last).1),
        output::rate(link.spec.rate.as_bit_s()),
    );
    match screen {
        Screen::Terminal { color: true } => format!("\x1b[1m{text}\x1b[0m\n"),
        _ => text + "\n",
    }
}

fn rows(shaped: &Shaped, snapshot: &Snapshot, last: bool) -> Vec<Vec<String>> {
    let link = &shaped.link;
    let heads = ["class", "asked", "rate", "of link", "sent", "borrowed", "backlog", "dropped", "sojourn p50", "p99"];
    let mut rows = vec![heads.map(String::from).to_vec()];
    for (class, depth) in tree::of_link(link) {
        let named = link.classes.get(class).filter(|named| !named.name.is_empty());
        let (Some(stat), Some(named)) = (snapshot.classes.get(class), named) else { continue };
        let counters = &stat.counters;
        let asked = shaped.guaranteed.get(class).copied().flatten();
        // The last table covers the whole run.
        let sojourn = if last { &stat.sojourn_total } else { &stat.sojourn };
        let time =
            |per_cent| if sojourn.count() == 0 { "-".to_owned() } else { output::time(sojourn.percentile(per_cent)) };
        let dropped = counters.dropped_packets + if class == ROOT as usize { snapshot.unclassified.0 } else { 0 };
        let (rate, wire) = rates(snapshot, class, last);
        rows.push(vec![
            tree::name(&named.name, depth),
            asked.map_or("-".into(), |rate| output::rate(rate.as_bit_s())),
            output::rate(rate),
            output::percent(wire, link.spec.rate.as_bit_s()),
            bytes(counters.sent_bytes),
            bytes(counters.borrowed_bytes),
            format!("{}", counters.queued_packets),
            format!("{dropped}"),
            time(50.0),
            time(99.0),
        ]);
    }
    rows
}

/// Rates of a class in bit/s, in own bytes and in charged bytes: over the interval, or with `last`
/// over the whole run.
fn rates(snapshot: &Snapshot, class: usize, last: bool) -> (u64, u64) {
    let Some(stat) = snapshot.classes.get(class) else { return (0, 0) };
    if !last {
        return (stat.rate_bit_s, stat.wire_bit_s);
    }
    let time = u128::from(snapshot.at.saturating_sub(snapshot.began));
    let rate = |bytes: u64| (u128::from(bytes) * 8_000_000_000).checked_div(time).unwrap_or(0) as u64;
    (rate(stat.counters.sent_bytes), rate(stat.counters.sent_wire_bytes))
}

/// What happened outside the queues and, at the end, what the loop has cost.
fn footer(snapshot: &Snapshot, last: bool) -> String {
    let (edge, work) = (&snapshot.edge, &snapshot.work);
    let mut said = Vec::new();
    for (count, what) in [
        (edge.missed, "lost before altq saw them (receive buffer full)"),
        (edge.unreadable, "unreadable"),
        (edge.refused, "refused by the device (too long, or malformed)"),
        (edge.lost, "dropped by the device"),
    ] {
        if count > 0 {
            said.push(format!("{count} frames {what}"));
        }
    }
    let mut text = if said.is_empty() { String::new() } else { format!("outside the queues: {}\n", said.join(", ")) };
    if last {
        let mean = |sum: u64, count: u64| sum as f64 / count.max(1) as f64;
        text += &format!(
            "the loop: woken {} times, {} of them by a timer ({:.0} µs late on average, {:.0} µs at most); {:.1} \
             frames a receive call, {:.1} a send call\n",
            work.waits,
            work.timers,
            mean(work.late, work.timers) / 1e3,
            work.latest as f64 / 1e3,
            mean(edge.received, work.receives),
            mean(edge.sent, work.sends),
        );
    }
    text
}

fn bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.2} GB", count as f64 / 1e9),
    }
}
