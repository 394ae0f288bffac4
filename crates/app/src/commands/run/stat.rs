//! The JSON lines of `altq run --json`, schema `altq.stat/1`: what the classes of each link have
//! done.

use std::collections::BTreeMap;

use altq_config::{LimitedBy, Link, Path, Used};
use altq_control::document::{KERNEL, SHAPING};
use altq_dataplane::stats::{ClassStat, Snapshot};
use altq_engine::spec::{ClassId, ROOT};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::shaped::Shaped;

/// One line: the state of all links at one time.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Stat {
    schema: &'static str,
    links: Vec<LinkStat>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LinkStat {
    name: String,
    state: &'static str,
    /// What executes the link: `nfqueue`, `bridge` or `kernel`.
    path: &'static str,
    at_ns: u64,
    /// The same moment by the wall clock, in ns since 1970.
    unix_ns: u64,
    interval_ns: u64,
    last: bool,
    device: DeviceStat,
    #[serde(rename = "loop")]
    work: LoopStat,
    classes: Vec<Class>,
}

/// What the loop of a link has done since the start.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LoopStat {
    /// How often it waited and was woken.
    wake_ups: u64,
    /// How often it was woken by a timer, and how late that was on average.
    timers: u64,
    timer_late_mean_ns: u64,
    timer_late_total_ns: u64,
    /// How late it was in the last interval, 99th percentile; null if none had passed.
    timer_late_p99_ns: Option<u64>,
    /// Calls that received or sent frames.
    receive_calls: u64,
    send_calls: u64,
}

/// What happened to frames outside the queues.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DeviceStat {
    received_frames: u64,
    received_bytes: u64,
    sent_frames: u64,
    /// All frames that were lost here. The next four fields divide them by cause.
    device_dropped: u64,
    missed: u64,
    unreadable: u64,
    refused: u64,
    lost: u64,
    /// How often the device was full, so that frames had to wait for it.
    blocked: u64,
    super_packets: u64,
    super_packets_cut: u64,
    timer_late_max_ns: u64,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Class {
    name: String,
    parent: Option<String>,
    received_packets: u64,
    received_bytes: u64,
    sent_packets: u64,
    sent_bytes: u64,
    /// The bytes that the link charged for them, the unit of guarantees.
    sent_wire_bytes: u64,
    dropped: BTreeMap<&'static str, u64>,
    marked_packets: u64,
    backlog_packets: u64,
    backlog_bytes: u64,
    borrowed_bytes: u64,
    overlimits: Option<u64>,
    sojourn_ns: Sojourn,
    rate_bit_s: u64,
    limited_by: String,
    /// The rate that the policy guarantees it; null where it guarantees none.
    guaranteed_bit_s: Option<u64>,
    /// The highest rate that the policy lets it reach.
    ceiling_bit_s: Option<u64>,
    /// What serves its packets.
    scheduler: &'static str,
    /// The longest that its packets may wait, as `altq check` computes it.
    delay_bound_ns: Bound,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Bound {
    conforming: Option<u64>,
    queue_full: Option<u64>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Sojourn {
    p50: u64,
    p99: u64,
    max: u64,
}

impl Stat {
    /// A line about these links. Rates and sojourn times are those of the last interval, counters
    /// those since the start.
    pub fn of(links: &[(&Shaped, &Snapshot)]) -> Stat {
        Stat { schema: "altq.stat/1", links: links.iter().map(|(link, snapshot)| of_link(link, snapshot)).collect() }
    }
}

fn of_link(shaped: &Shaped, snapshot: &Snapshot) -> LinkStat {
    let link = &shaped.link;
    let (edge, work) = (&snapshot.edge, &snapshot.work);
    let used = |stat: &ClassStat| Used { waits: stat.counters.queued_packets > 1, wire_bit_s: stat.wire_bit_s };
    let limits = link.limited_by(&snapshot.classes.iter().map(used).collect::<Vec<_>>());
    LinkStat {
        name: link.name.clone(),
        state: state(link),
        path: path(link),
        at_ns: snapshot.at,
        unix_ns: unix(snapshot.at),
        interval_ns: snapshot.at - snapshot.since,
        last: snapshot.last,
        device: DeviceStat {
            received_frames: edge.received,
            received_bytes: edge.received_bytes,
            sent_frames: edge.sent,
            device_dropped: edge.dropped(),
            missed: edge.missed,
            unreadable: edge.unreadable,
            refused: edge.refused,
            lost: edge.lost,
            blocked: edge.blocked,
            super_packets: work.supers,
            super_packets_cut: work.cut,
            timer_late_max_ns: work.latest,
        },
        work: LoopStat {
            wake_ups: work.waits,
            timers: work.timers,
            timer_late_mean_ns: work.late.checked_div(work.timers).unwrap_or(0),
            timer_late_total_ns: work.late,
            timer_late_p99_ns: (snapshot.late.count() > 0).then(|| snapshot.late.percentile(99.0)),
            receive_calls: work.receives,
            send_calls: work.sends,
        },
        classes: (0..link.classes.len()).filter_map(|class| of_class(shaped, snapshot, &limits, class)).collect(),
    }
}

/// What executes a link.
pub fn path(link: &Link) -> &'static str {
    link.path().unwrap_or(Path::Bridge).name()
}

/// The state of a link that runs.
pub fn state(link: &Link) -> &'static str {
    if link.path() == Some(Path::Kernel) { KERNEL } else { SHAPING }
}

fn of_class(shaped: &Shaped, snapshot: &Snapshot, limits: &[LimitedBy], class: usize) -> Option<Class> {
    let link = &shaped.link;
    // A number without a class has no name.
    let name = link.classes.get(class).map(|class| class.name.clone()).filter(|name| !name.is_empty())?;
    let stat = snapshot.classes.get(class)?;
    let counters = &stat.counters;
    let mut dropped: BTreeMap<&'static str, u64> = stat.dropped.iter().map(|(reason, n)| (reason.name(), *n)).collect();
    if class == ROOT as usize && snapshot.unclassified.0 > 0 {
        *dropped.entry("no_class").or_default() += snapshot.unclassified.0;
    }
    let waits = shaped.waits.get(class).copied().unwrap_or_default();
    Some(Class {
        name,
        parent: parent(link, class).and_then(|parent| Some(link.classes.get(parent)?.name.clone())),
        received_packets: counters.received_packets(),
        received_bytes: counters.received_bytes(),
        sent_packets: counters.sent_packets,
        sent_bytes: counters.sent_bytes,
        sent_wire_bytes: counters.sent_wire_bytes,
        dropped,
        marked_packets: counters.marked_packets,
        backlog_packets: counters.queued_packets,
        backlog_bytes: counters.queued_bytes,
        borrowed_bytes: counters.borrowed_bytes,
        overlimits: stat.overlimits,
        sojourn_ns: Sojourn {
            p50: stat.sojourn.percentile(50.0),
            p99: stat.sojourn.percentile(99.0),
            max: stat.sojourn.max(),
        },
        rate_bit_s: stat.rate_bit_s,
        limited_by: limits.get(class).map_or("", |limit| limit.text(link)).to_owned(),
        guaranteed_bit_s: shaped.guaranteed.get(class).copied().flatten().map(|rate| rate.as_bit_s()),
        ceiling_bit_s: shaped.ceiling.get(class).map(|rate| rate.as_bit_s()),
        scheduler: link.scheduler_of(class as ClassId),
        delay_bound_ns: Bound { conforming: waits.conforming, queue_full: waits.queue_full },
    })
}

/// A time of CLOCK_MONOTONIC as a time of the wall clock, in ns since 1970.
pub fn unix(at: u64) -> u64 {
    let read = |id| {
        let time = clock_gettime(id);
        i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
    };
    let moment = i128::from(at) + read(ClockId::Realtime) - read(ClockId::Monotonic);
    u64::try_from(moment).unwrap_or(0)
}

/// The class above this one; none for the link itself.
pub fn parent(link: &Link, class: usize) -> Option<usize> {
    (class != ROOT as usize).then(|| link.spec.classes.get(class).map(|spec| spec.parent as ClassId as usize))?
}
