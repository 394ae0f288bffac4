//! What the classes of each link have done, as the document that `altq run --json` and `altq stat`
//! print.

use std::borrow::Cow;
use std::collections::BTreeMap;

use altq_config::{LimitedBy, Link, Path, Used};
use altq_control::document::{KERNEL, SHAPING};
use altq_control::stat::{Bound, ClassStat, DeviceStat, LinkStat, LoopStat, SCHEMA, Sojourn, Stat, Waited};
use altq_dataplane::stats::{ClassStat as Kept, Snapshot};
use altq_engine::spec::{ClassId, ROOT};
use rustix::time::{ClockId, clock_gettime};
use serde::{Serialize, Serializer};

use super::shaped::Shaped;

/// The classes of a link, each of which is read where it is written: 100,000 of them are much.
pub struct Classes<'a> {
    shaped: &'a Shaped,
    snapshot: &'a Snapshot,
    limits: Vec<LimitedBy>,
    waited: bool,
}

impl Serialize for Classes<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let all = 0..self.shaped.link.classes.len();
        to.collect_seq(all.filter_map(|class| self.of_class(class)))
    }
}

/// The state of these links. Rates and sojourn times are those of the last interval, counters those
/// since the start. If `waited` is true, also how many packets waited how long.
pub fn of<'a>(links: &[(&'a Shaped, &'a Snapshot)], waited: bool) -> Stat<Classes<'a>> {
    let links = links.iter().map(|(link, snapshot)| of_link(link, snapshot, waited));
    Stat { schema: SCHEMA.into(), links: links.collect() }
}

fn of_link<'a>(shaped: &'a Shaped, snapshot: &'a Snapshot, waited: bool) -> LinkStat<Classes<'a>> {
    let link = &shaped.link;
    let (edge, work) = (&snapshot.edge, &snapshot.work);
    let used = |stat: &Kept| Used { waits: stat.counters.queued_packets > 1, wire_bit_s: stat.wire_bit_s };
    let limits = link.limited_by(&snapshot.classes.iter().map(used).collect::<Vec<_>>());
    LinkStat {
        name: link.name.clone(),
        state: state(link).into(),
        path: path(link).into(),
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
        classes: Classes { shaped, snapshot, limits, waited },
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

impl Classes<'_> {
    /// What a class has done; none for a number without a class.
    fn of_class(&self, class: usize) -> Option<ClassStat> {
        let Classes { shaped, snapshot, limits, waited } = self;
        let link = &shaped.link;
        // A number without a class has no name.
        let name = link.classes.get(class).map(|class| class.name.clone()).filter(|name| !name.is_empty())?;
        let stat = snapshot.classes.get(class)?;
        let counters = &stat.counters;
        let mut dropped: BTreeMap<Cow<'static, str>, u64> =
            stat.dropped.iter().map(|(reason, n)| (reason.name().into(), *n)).collect();
        if class == ROOT as usize && snapshot.unclassified.0 > 0 {
            *dropped.entry("no_class".into()).or_default() += snapshot.unclassified.0;
        }
        let waits = shaped.waits.get(class).copied().unwrap_or_default();
        Some(ClassStat {
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
            // The kernel does not tell.
            waited: (*waited && link.path() != Some(Path::Kernel)).then(|| Waited {
                sum_us: u64::try_from(stat.waited.sum() / 1000).unwrap_or(u64::MAX),
                counts: stat.waited.counts().into(),
            }),
            rate_bit_s: stat.rate_bit_s,
            limited_by: limits.get(class).map_or("", |limit| limit.text(link)).to_owned(),
            guaranteed_bit_s: shaped.guaranteed.get(class).copied().flatten().map(|rate| rate.as_bit_s()),
            ceiling_bit_s: shaped.ceiling.get(class).map(|rate| rate.as_bit_s()),
            scheduler: link.scheduler_of(class as ClassId).into(),
            delay_bound_ns: Bound { conforming: waits.conforming, queue_full: waits.queue_full },
        })
    }
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
