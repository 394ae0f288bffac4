//! `altq.stat/1`: what the classes of each link have done. `altq stat --json` prints it once, `altq
//! run --json` a line of it each interval (docs/run.md). Unless a field says otherwise, counters
//! count since the start, and rates and times are those of the interval before `at_ns`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The name of this form of the document.
pub const SCHEMA: &str = "altq.stat/1";

/// The state of all links at one time.
// C: what writes or reads the classes of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Stat"))]
pub struct Stat<C = Vec<ClassStat>> {
    /// [`SCHEMA`].
    pub schema: Cow<'static, str>,
    /// The links, in the policy's order.
    pub links: Vec<LinkStat<C>>,
}

/// A link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "LinkStat"))]
pub struct LinkStat<C = Vec<ClassStat>> {
    /// Its name.
    pub name: String,
    /// As in [`crate::document::LinkStatus`].
    pub state: Cow<'static, str>,
    /// What executes the link: `nfqueue`, `bridge` or `kernel`.
    pub path: Cow<'static, str>,
    /// When, by CLOCK_MONOTONIC, in ns.
    pub at_ns: u64,
    /// The same moment by the wall clock, in ns since 1970.
    pub unix_ns: u64,
    /// How long the interval was, in ns.
    pub interval_ns: u64,
    /// True if the link ends with this interval.
    pub last: bool,
    /// What happened outside the queues.
    pub device: DeviceStat,
    /// What the loop has done.
    #[serde(rename = "loop")]
    pub work: LoopStat,
    /// The classes, the link itself first.
    pub classes: C,
}

/// What the loop of a link has done since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoopStat {
    /// How often it waited and was woken.
    pub wake_ups: u64,
    /// How often it was woken by a timer.
    pub timers: u64,
    /// How late timers were on average, in ns.
    pub timer_late_mean_ns: u64,
    /// How late they were together, in ns.
    pub timer_late_total_ns: u64,
    /// How late it was in the last interval, 99th percentile; null if none had passed.
    pub timer_late_p99_ns: Option<u64>,
    /// Calls that received frames.
    pub receive_calls: u64,
    /// Calls that sent frames.
    pub send_calls: u64,
}

/// What happened to frames outside the queues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DeviceStat {
    /// Frames that came.
    pub received_frames: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames that went.
    pub sent_frames: u64,
    /// All frames that were lost here. The next four fields divide them by cause.
    pub device_dropped: u64,
    /// Of these: lost before altq read them.
    pub missed: u64,
    /// Of these: too short or too long to be read.
    pub unreadable: u64,
    /// Of these: the device did not take them.
    pub refused: u64,
    /// Of these: all others.
    pub lost: u64,
    /// How often the device was full, so that frames had to wait for it.
    pub blocked: u64,
    /// Super-packets that came.
    pub super_packets: u64,
    /// Of these: cut into packets.
    pub super_packets_cut: u64,
    /// The latest that a timer was, in ns.
    pub timer_late_max_ns: u64,
}

/// A class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClassStat {
    /// Its name.
    pub name: String,
    /// The class above it; null for the link itself.
    pub parent: Option<String>,
    /// Packets that came to it.
    pub received_packets: u64,
    /// Their bytes at layer 3.
    pub received_bytes: u64,
    /// Packets that it sent.
    pub sent_packets: u64,
    /// Their bytes at layer 3.
    pub sent_bytes: u64,
    /// The bytes that the link charged for them, the unit of guarantees.
    pub sent_wire_bytes: u64,
    /// Packets that it lost, by reason.
    pub dropped: BTreeMap<Cow<'static, str>, u64>,
    /// Packets that its queue marked (ECN).
    pub marked_packets: u64,
    /// Packets that wait.
    pub backlog_packets: u64,
    /// Their bytes at layer 3.
    pub backlog_bytes: u64,
    /// Bytes that it sent beyond its guarantee.
    pub borrowed_bytes: u64,
    /// How often its scheduler or queue held it back, as `tc` counts it; null where nothing counts.
    pub overlimits: Option<u64>,
    /// How long packets that left in the interval had waited.
    pub sojourn_ns: Sojourn,
    /// How many packets waited how long since the start; only where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited: Option<Waited>,
    /// Its rate in the interval, at layer 3.
    pub rate_bit_s: u64,
    /// What kept it from sending more, in words.
    pub limited_by: String,
    /// The rate that the policy guarantees it; null where it guarantees none.
    pub guaranteed_bit_s: Option<u64>,
    /// The highest rate that the policy lets it reach.
    pub ceiling_bit_s: Option<u64>,
    /// What serves its packets.
    pub scheduler: Cow<'static, str>,
    /// The longest that its packets may wait, as `altq check` computes it.
    pub delay_bound_ns: Bound,
}

/// Bounds on how long packets wait, in ns; null where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bound {
    /// While the class keeps to what it is guaranteed.
    pub conforming: Option<u64>,
    /// Behind a full queue.
    pub queue_full: Option<u64>,
}

/// How long packets waited, in ns; 0 without packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sojourn {
    /// The median, within 1/32.
    pub p50: u64,
    /// The 99th percentile, within 1/32.
    pub p99: u64,
    /// The longest.
    pub max: u64,
}

/// How many packets waited how long. With the packets of classes below, which stay here when such a
/// class is removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Waited {
    /// For how long all of them together have waited, in µs.
    pub sum_us: u64,
    /// How many waited at most 10 µs, how many of the others at most 25 µs, then 50, 100, 250 and
    /// 500 µs, the same in ms and once more in s up to 10 s; the last of the 20 numbers is of those
    /// that waited longer. Times are known within 1/32.
    pub counts: Vec<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_read_again_as_it_was_written() {
        let class = ClassStat {
            name: "voice".into(),
            parent: Some("wan".into()),
            received_packets: 3,
            received_bytes: 300,
            sent_packets: 2,
            sent_bytes: 200,
            sent_wire_bytes: 228,
            dropped: BTreeMap::from([("queue_full".into(), 1)]),
            marked_packets: 0,
            backlog_packets: 0,
            backlog_bytes: 0,
            borrowed_bytes: 28,
            overlimits: None,
            sojourn_ns: Sojourn { p50: 1, p99: 2, max: 3 },
            waited: Some(Waited { sum_us: 3, counts: vec![0, 2] }),
            rate_bit_s: 1600,
            limited_by: "its queue".into(),
            guaranteed_bit_s: None,
            ceiling_bit_s: Some(u64::MAX),
            scheduler: "cbq".into(),
            delay_bound_ns: Bound { conforming: Some(7), queue_full: None },
        };
        let link = LinkStat {
            name: "wan".into(),
            state: crate::document::SHAPING.into(),
            path: "bridge".into(),
            at_ns: 1,
            unix_ns: 2,
            interval_ns: 3,
            last: false,
            device: DeviceStat { lost: 4, ..DeviceStat::default() },
            work: LoopStat { wake_ups: 5, ..LoopStat::default() },
            classes: vec![class],
        };
        let stat = Stat { schema: SCHEMA.into(), links: vec![link] };
        let text = serde_json::to_string(&stat).unwrap();
        assert!(text.contains("\"loop\":{\"wake_ups\":5,"), "{text}");
        assert_eq!(serde_json::from_str::<Stat>(&text).unwrap(), stat);
    }
}
