//! `altq.top/1`: a frame as JSON. For each class it has what `altq.stat/1` has, and the rates,
//! flows and counts of the window, so that a frame can be drawn elsewhere.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use altq_engine::account::Counters;
use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::{Nanos, Rate};
use serde::{Deserialize, Serialize};

use crate::flow::FlowKey;
use crate::fold::{self, Folded, protocol_name};
use crate::frame::{Delay, Figures, Frame, Rates, Row};
use crate::monitor::Flows;
use crate::steps::Window;
use crate::summary::Counted;
use crate::tree::{self, Tree, TreeError};

/// The name of the format.
pub const SCHEMA: &str = "altq.top/1";

/// All links at one time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Top {
    /// [`SCHEMA`].
    pub schema: String,
    /// The links.
    pub links: Vec<Link>,
}

impl Top {
    /// A document about these links.
    pub fn new(links: Vec<Link>) -> Top {
        Top { schema: SCHEMA.to_owned(), links }
    }
}

/// A link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Link {
    /// Its name.
    pub name: String,
    /// `shaping`, `bypass` or `kernel`.
    pub state: String,
    /// How packets come to altq; absent if none are shaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Whether its rate follows the line; absent if none is shaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapts: Option<bool>,
    /// End of the window, on the loop's clock.
    pub at_ns: Nanos,
    /// The same moment in ns since 1970, if it is known.
    pub unix_ns: Option<u64>,
    /// The time that was watched in the window. Rates and delays cover it; counters cover the time
    /// since the start.
    pub interval_ns: Nanos,
    /// Beginning of the window.
    pub from_ns: Nanos,
    /// The window that was asked for, in seconds: 1, 10 or 60.
    pub window_s: u32,
    /// What altq itself needs.
    #[serde(rename = "self", default, skip_serializing_if = "Option::is_none")]
    pub own: Option<Own>,
    /// The classes; the first is the link itself.
    pub classes: Vec<Class>,
}

/// What altq itself needs: how late it is, and how much of a processor it takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Own {
    /// How late the loop's timers were in the last second, 99th percentile, within 1/32; null if no
    /// timer passed, and where the kernel executes the link.
    pub loop_p99_ns: Option<Nanos>,
    /// The time of one processor that it took in the last second, in percent.
    pub cpu_percent: Option<f64>,
}

/// A class, with all classes below it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Class {
    /// Its name.
    pub name: String,
    /// The class above; null for the link itself.
    pub parent: Option<String>,
    /// Packets that have arrived since the start.
    pub received_packets: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Packets that were sent since the start.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets dropped since the start, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Packets marked since the start.
    pub marked_packets: u64,
    /// Packets that wait.
    pub backlog_packets: u64,
    /// Their bytes.
    pub backlog_bytes: u64,
    /// Bytes since the start that its scheduler counts as borrowed.
    pub borrowed_bytes: u64,
    /// How often it was over its limit; null where its scheduler does not count that.
    pub overlimits: Option<u64>,
    /// How long packets waited in the window.
    pub sojourn_ns: Sojourn,
    /// The rate sent in the window, in bytes of layer 3.
    pub rate_bit_s: u64,
    /// What keeps it from sending more.
    pub limited_by: String,
    /// The rate that the policy guarantees it; null where it guarantees none.
    pub asked_bit_s: Option<u64>,
    /// The highest rate that the policy lets it reach, if that is known.
    pub ceiling_bit_s: Option<u64>,
    /// The rate that it got in the window, in charged bytes.
    pub got_bit_s: u64,
    /// The part of `got_bit_s` beyond guarantees: its own, or those of classes below it.
    pub borrowed_bit_s: u64,
    /// What others used of its guarantee, or of the guarantees of classes below it.
    pub lent_bit_s: u64,
    /// Counts of the window.
    pub window: Figures,
    /// The largest flows of the window, those first that have the most bytes for certain.
    pub flows: Vec<Flow>,
    /// Bytes of the window that are not certain to belong to a listed flow. These and the flows'
    /// `bytes_at_least` add up to the window's `sent_bytes`. Null if no flows were asked for.
    pub other_bytes: Option<u64>,
    /// Instead of `flows`, if that was asked for: the flows by what they have in common.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
    /// What it got in each of the last seconds, the oldest first, if that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub line_bit_s: Vec<u64>,
}

/// How long packets waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sojourn {
    /// Number of packets.
    pub count: u64,
    /// The median.
    pub p50: Nanos,
    /// The 99th percentile.
    pub p99: Nanos,
    /// The longest.
    pub max: Nanos,
}

/// A flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Flow {
    /// Source address; null for packets that are not IP.
    pub src: Option<core::net::IpAddr>,
    /// Source port; null where there is none.
    pub sport: Option<u16>,
    /// Destination address.
    pub dst: Option<core::net::IpAddr>,
    /// Destination port.
    pub dport: Option<u16>,
    /// Name of the protocol, or its number; null for packets that are not IP.
    pub proto: Option<String>,
    /// DSCP.
    pub dscp: u8,
    /// Bytes that it has sent for certain.
    pub bytes_at_least: u64,
    /// Bytes that it may have sent beyond that, at most.
    pub error_bytes: u64,
    /// Packets that it has sent for certain.
    pub packets_at_least: u64,
    /// Packets that it may have sent beyond that, at most.
    pub error_packets: u64,
}

impl Flow {
    /// A flow of a summary.
    pub fn of(counted: &Counted<FlowKey>) -> Flow {
        let key = &counted.key;
        let port = |port: u16| (port > 0).then_some(port);
        let number = key.protocol();
        Flow {
            src: key.src(),
            sport: port(key.sport()),
            dst: key.dst(),
            dport: port(key.dport()),
            proto: (key.family() > 0)
                .then(|| protocol_name(number).map_or_else(|| number.to_string(), |name| name.to_owned())),
            dscp: key.dscp(),
            bytes_at_least: counted.at_least.bytes,
            error_bytes: counted.error.bytes,
            packets_at_least: counted.at_least.packets,
            error_packets: counted.error.packets,
        }
    }
}

/// Flows that have something in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Group {
    /// What they have in common: a host, a prefix, a protocol with a port, or a DSCP.
    pub name: String,
    /// Bytes that they have sent for certain.
    pub bytes_at_least: u64,
    /// Packets that they have sent for certain.
    pub packets_at_least: u64,
}

impl Group {
    /// A group of a summary.
    pub fn of(group: &fold::Group) -> Group {
        let fold::Group { label, at_least } = group;
        Group { name: label.to_string(), bytes_at_least: at_least.bytes, packets_at_least: at_least.packets }
    }
}

/// What a document says of a class beyond what a frame has.
#[derive(Clone, Debug, Default)]
pub struct More {
    /// Drops since the start, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// How often it was over its limit, if that is counted.
    pub overlimits: Option<u64>,
    /// Its flows; `None` where they were not asked for.
    pub flows: Option<Flows>,
    /// Its flows by what they have in common, where they were asked for in that way.
    pub folded: Option<Folded>,
    /// What it got in each of the last seconds.
    pub line_bit_s: Vec<u64>,
}

impl Link {
    /// A document about a frame, in the order of the classes' numbers. `counters` are those since
    /// the start, by class ([`Monitor::counters`](crate::Monitor::counters)); `more` is called once
    /// for each class. The state is `shaping`. The caller may set state, path, time of day and
    /// altq's own figures.
    pub fn of(frame: &Frame, counters: &[Counters], mut more: impl FnMut(ClassId) -> More) -> Link {
        let classes = (0..).zip(&frame.rows).map(|(class, row)| {
            let counters = counters.get(class as usize).copied().unwrap_or_default();
            Class::of(frame, class, row, &counters, more(class))
        });
        Link {
            name: frame.tree.name(ROOT).to_owned(),
            state: "shaping".to_owned(),
            path: None,
            adapts: None,
            at_ns: frame.to,
            unix_ns: None,
            interval_ns: frame.time,
            from_ns: frame.from,
            window_s: match frame.window {
                Window::Second => 1,
                Window::Ten => 10,
                Window::Minute => 60,
            },
            own: None,
            classes: classes.collect(),
        }
    }

    /// The frame that a document is about. If several classes have the same name, a `parent` of
    /// that name means the first of them.
    ///
    /// # Errors
    /// If its classes are no tree.
    pub fn frame(&self) -> Result<Frame, TreeError> {
        let mut numbers: HashMap<&str, ClassId> = HashMap::new();
        for (class, at) in self.classes.iter().zip(0..) {
            numbers.entry(class.name.as_str()).or_insert(at);
        }
        let described = |class: &Class| tree::Class {
            name: class.name.clone(),
            parent: class.parent.as_deref().map_or(ROOT, |name| numbers.get(name).copied().unwrap_or(ClassId::MAX)),
            asked: class.asked_bit_s.map(Rate::bit_s),
            ceiling: class.ceiling_bit_s.map(Rate::bit_s),
        };
        let tree = Tree::new(self.classes.iter().map(described).collect())?;
        let rows: Vec<Row> = self.classes.iter().map(Class::row).collect();
        let mut own: Vec<(Figures, Rates)> = rows.iter().map(|row| (row.total, row.rates)).collect();
        for (class, row) in (0..).zip(&rows) {
            if let Some(above) = tree.parent(class).and_then(|above| own.get_mut(above as usize)) {
                above.0.subtract(&row.total);
                above.1.subtract(&row.rates);
            }
        }
        let rows = rows.into_iter().zip(own).map(|(row, (own, own_rates))| Row { own, own_rates, ..row }).collect();
        Ok(Frame {
            tree: Arc::new(tree),
            window: match self.window_s {
                60 => Window::Minute,
                10 => Window::Ten,
                _ => Window::Second,
            },
            from: self.from_ns,
            to: self.at_ns,
            time: self.interval_ns,
            rows,
        })
    }
}

impl Class {
    fn of(frame: &Frame, class: ClassId, row: &Row, counters: &Counters, more: More) -> Class {
        let described = frame.tree.classes().get(class as usize);
        Class {
            name: frame.tree.name(class).to_owned(),
            parent: frame.tree.parent(class).map(|parent| frame.tree.name(parent).to_owned()),
            received_packets: counters.received_packets(),
            received_bytes: counters.received_bytes(),
            sent_packets: counters.sent_packets,
            sent_bytes: counters.sent_bytes,
            dropped: more.dropped,
            marked_packets: counters.marked_packets,
            backlog_packets: row.total.backlog_packets,
            backlog_bytes: row.total.backlog_bytes,
            borrowed_bytes: counters.borrowed_bytes,
            overlimits: more.overlimits,
            sojourn_ns: Sojourn { count: row.delay.count, p50: row.delay.p50, p99: row.delay.p99, max: row.delay.max },
            rate_bit_s: row.rates.sent,
            limited_by: row.limited_by.clone().into_owned(),
            asked_bit_s: described.and_then(|class| class.asked).map(Rate::as_bit_s),
            ceiling_bit_s: described.and_then(|class| class.ceiling).map(Rate::as_bit_s),
            got_bit_s: row.rates.got,
            borrowed_bit_s: row.rates.borrowed,
            lent_bit_s: row.rates.lent,
            window: row.total,
            other_bytes: match (&more.flows, &more.folded) {
                (Some(flows), _) => Some(flows.others.bytes),
                (None, folded) => folded.as_ref().map(|folded| folded.others.bytes),
            },
            groups: more.folded.map(|folded| folded.groups.iter().map(Group::of).collect()).unwrap_or_default(),
            flows: more.flows.map(|flows| flows.listed().iter().map(Flow::of).collect()).unwrap_or_default(),
            line_bit_s: more.line_bit_s,
        }
    }

    /// Its row. The row's own figures still include those of all classes below it.
    fn row(&self) -> Row {
        let rates =
            Rates { sent: self.rate_bit_s, got: self.got_bit_s, borrowed: self.borrowed_bit_s, lent: self.lent_bit_s };
        let Sojourn { count, p50, p99, max } = self.sojourn_ns;
        Row {
            own: self.window,
            total: self.window,
            own_rates: rates,
            rates,
            delay: Delay { count, p50, p99, max },
            limited_by: Cow::Owned(self.limited_by.clone()),
        }
    }
}
