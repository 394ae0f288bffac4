//! `altq.stat/1` from the control socket (docs/run.md). The types have only what is shown. Fields
//! that an older altq does not have are optional.

use std::collections::{BTreeMap, HashMap};

use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::{Nanos, Rate};
use altq_monitor::tree::{self, Tree, TreeError};
use serde::Deserialize;

/// All links at one time.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Stat {
    /// The links, in the policy's order.
    pub links: Vec<Link>,
}

/// A link.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// What executes it: `nfqueue`, `bridge` or `kernel`.
    #[serde(default)]
    pub path: String,
    /// When its counters were read, on the loop's clock (CLOCK_MONOTONIC).
    pub at_ns: Nanos,
    /// The time since they were read before.
    #[serde(default)]
    pub interval_ns: Nanos,
    /// The same moment in ns since 1970.
    #[serde(default)]
    pub unix_ns: u64,
    /// What happened to frames outside the queues.
    #[serde(default)]
    pub device: Device,
    /// What the loop did.
    #[serde(default, rename = "loop")]
    pub work: Work,
    /// The classes; the first is the link itself. The figures of a class include those of the
    /// classes below it.
    pub classes: Vec<Class>,
}

/// What happened to frames outside the queues.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Device {
    /// Frames that were lost there.
    #[serde(default)]
    pub device_dropped: u64,
    /// The most that a timer was late, in ns.
    #[serde(default)]
    pub timer_late_max_ns: Nanos,
}

/// What the loop of a link did.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Work {
    /// How often the loop was woken by a timer.
    #[serde(default)]
    pub timers: u64,
    /// The sum of how late these timers were, in ns.
    #[serde(default)]
    pub timer_late_total_ns: Option<Nanos>,
    /// How late it was in the latest interval, 99th percentile, in ns.
    #[serde(default)]
    pub timer_late_p99_ns: Option<Nanos>,
}

/// A class, with all classes below it.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// The class above; `None` for the link itself.
    pub parent: Option<String>,
    /// Packets that have arrived since the start.
    pub received_packets: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Packets that were sent since the start.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// The bytes that the link charged for them.
    #[serde(default)]
    pub sent_wire_bytes: Option<u64>,
    /// Packets dropped since the start, by reason.
    #[serde(default)]
    pub dropped: BTreeMap<String, u64>,
    /// Packets marked since the start.
    pub marked_packets: u64,
    /// Packets that wait.
    pub backlog_packets: u64,
    /// Their bytes.
    pub backlog_bytes: u64,
    /// Bytes since the start that its scheduler counts as borrowed.
    pub borrowed_bytes: u64,
    /// How often it was over its limit, if its scheduler counts that.
    #[serde(default)]
    pub overlimits: Option<u64>,
    /// How long packets waited in the latest interval.
    pub sojourn_ns: Sojourn,
    /// How many packets waited how long since the start, if altq was asked for that and knows it.
    #[serde(default)]
    pub waited: Option<Waited>,
    /// Its rate in the latest interval.
    pub rate_bit_s: u64,
    /// What kept it from sending more.
    pub limited_by: String,
    /// The rate that the policy guarantees it.
    #[serde(default)]
    pub guaranteed_bit_s: Option<u64>,
    /// The highest rate that the policy lets it reach.
    #[serde(default)]
    pub ceiling_bit_s: Option<u64>,
    /// What serves its packets.
    #[serde(default)]
    pub scheduler: Option<String>,
    /// The longest that its packets may wait.
    #[serde(default)]
    pub delay_bound_ns: Bound,
}

/// How long packets waited, in ns.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Sojourn {
    /// The median.
    pub p50: Nanos,
    /// The 99th percentile.
    pub p99: Nanos,
    /// The longest.
    pub max: Nanos,
}

/// How many packets waited how long.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Waited {
    /// For how long all of them together have waited, in µs.
    pub sum_us: u64,
    /// By range of [`BOUNDS`](altq_monitor::waited::BOUNDS), how many.
    pub counts: Vec<u64>,
}

/// The longest that packets may wait; `None` if nothing is promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Bound {
    /// A packet of a source that keeps to the class's guarantee.
    #[serde(default)]
    pub conforming: Option<Nanos>,
    /// The last packet of a full queue.
    #[serde(default)]
    pub queue_full: Option<Nanos>,
}

impl Class {
    /// The charged bytes of what was sent; the sent bytes themselves if altq does not report
    /// charged ones.
    pub fn wire_bytes(&self) -> u64 {
        self.sent_wire_bytes.unwrap_or(self.sent_bytes)
    }

    /// Packets dropped since the start, for all reasons.
    pub fn drops(&self) -> u64 {
        self.dropped.values().fold(0, |sum: u64, count| sum.saturating_add(*count))
    }
}

impl Link {
    /// Its classes as a tree. If several classes have the same name, a `parent` of that name means
    /// the first of them.
    ///
    /// # Errors
    /// If they are no tree.
    pub fn tree(&self) -> Result<Tree, TreeError> {
        let mut numbers: HashMap<&str, ClassId> = HashMap::with_capacity(self.classes.len());
        for (class, at) in self.classes.iter().zip(0..) {
            numbers.entry(class.name.as_str()).or_insert(at);
        }
        let described = |class: &Class| tree::Class {
            name: class.name.clone(),
            parent: class.parent.as_deref().map_or(ROOT, |name| numbers.get(name).copied().unwrap_or(ClassId::MAX)),
            asked: class.guaranteed_bit_s.map(Rate::bit_s),
            ceiling: class.ceiling_bit_s.map(Rate::bit_s),
        };
        Tree::new(self.classes.iter().map(described).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of `altq run --json` of an older altq, without fields that were added since.
    const LINE: &str = r#"{"schema":"altq.stat/1","links":[{"name":"up","state":"shaping","at_ns":36729728481726,
        "unix_ns":1795398822337366913,"interval_ns":500156617,"last":false,"device":{"device_dropped":3,
        "timer_late_max_ns":156027},"classes":[
        {"name":"up","parent":null,"received_packets":5,"received_bytes":500,"sent_packets":2,"sent_bytes":200,
        "dropped":{"queue_full":1,"early":2},"marked_packets":0,"backlog_packets":0,"backlog_bytes":0,
        "borrowed_bytes":0,"overlimits":null,"sojourn_ns":{"p50":0,"p99":0,"max":0},"rate_bit_s":0,
        "limited_by":"offered","guaranteed_bit_s":20000000,"ceiling_bit_s":20000000,"unknown":[1]},
        {"name":"voice","parent":"up","received_packets":5,"received_bytes":500,"sent_packets":2,"sent_bytes":200,
        "dropped":{},"marked_packets":0,"backlog_packets":0,"backlog_bytes":0,"borrowed_bytes":0,"overlimits":null,
        "sojourn_ns":{"p50":0,"p99":0,"max":0},"rate_bit_s":0,"limited_by":"offered"}]}]}"#;

    #[test]
    fn documents_of_older_programs_are_read() {
        let stat: Stat = serde_json::from_str(LINE).unwrap();
        let link = &stat.links[0];
        assert_eq!((link.device.device_dropped, link.work.timers, link.work.timer_late_total_ns), (3, 0, None));
        let up = &link.classes[0];
        assert_eq!((up.drops(), up.wire_bytes(), up.delay_bound_ns), (3, 200, Bound::default()));
        let tree = link.tree().unwrap();
        assert_eq!((tree.children(0), tree.classes()[1].asked), (&[1][..], None));
    }

    #[test]
    fn what_is_no_tree_is_an_error() {
        let class = |name: &str, parent: Option<&str>| Class {
            name: name.to_owned(),
            parent: parent.map(str::to_owned),
            ..Class::default()
        };
        let link = |classes| Link { classes, ..Link::default() };
        assert!(link(vec![class("l", None), class("a", Some("gone"))]).tree().is_err());
        assert!(link(Vec::new()).tree().is_err());
        // A class that has the name of its link.
        assert!(link(vec![class("l", None), class("l", Some("l")), class("b", Some("l"))]).tree().is_ok());
    }
}
