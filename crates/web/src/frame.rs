//! What is shown at a time: all links with their classes and figures.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use altq_control::Fault;
use altq_control::document::{LinkStatus, Status};
use altq_engine::spec::ClassId;
use altq_engine::units::Nanos;
use altq_monitor::tree::Tree;

use crate::Body;
use crate::changes::Mark;
use crate::events::Cut;
use crate::stat::{Bound, Stat};
use crate::{events, metrics};

/// The classes of a link, by number. The first is the link itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    /// Names, places, guarantees and ceilings.
    pub tree: Tree,
    /// Other facts about each class.
    pub more: Vec<More>,
}

/// Facts about a class that are not in the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct More {
    /// What serves its packets; empty if that is not known.
    pub scheduler: String,
    /// The longest that its packets may wait.
    pub bound: Bound,
}

/// What a class did in the last step, with all classes below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// What arrived, in bit/s of own bytes.
    pub received_bit_s: u64,
    /// What it got of the link, in bit/s of charged bytes.
    pub got_bit_s: u64,
    /// The part of `got_bit_s` that classes outside of it lent.
    pub borrowed_bit_s: u64,
    /// The part of its guarantee that classes outside of it used.
    pub lent_bit_s: u64,
    /// The median time in the queue, in ns, in the latest interval of altq.
    pub p50: Nanos,
    /// The 99th percentile.
    pub p99: Nanos,
    /// Packets dropped in the step.
    pub drops: u64,
    /// Packets marked in the step.
    pub marks: u64,
    /// Packets that wait.
    pub backlog_packets: u64,
    /// Their bytes.
    pub backlog_bytes: u64,
    /// What kept it from sending more (docs/stat.md).
    pub limited_by: String,
}

/// A link.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Whether it is shaped, since when, and why not.
    pub status: LinkStatus,
    /// Its classes; `None` while there are no figures.
    pub classes: Option<Arc<Classes>>,
    /// Their figures.
    pub rows: Vec<Row>,
    /// The classes whose figures have changed since the previous frame.
    pub changed: Vec<ClassId>,
    /// The length of the step that the figures cover, in ns.
    pub step: Nanos,
    /// The moment of the figures, in ms since 1970.
    pub unix_ms: u64,
}

/// How many reservations are below a class, and how many requests for some were refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The link.
    pub link: String,
    /// The class for reservations.
    pub class: String,
    /// How many there are.
    pub active: u64,
    /// How many requests were refused, by reason.
    pub refused: BTreeMap<String, u64>,
}

/// What is shown at a time.
#[derive(Debug, Default)]
pub struct Frame {
    /// The number of the frame, from 1; 0 is the one before altq was asked.
    pub seq: u64,
    /// When it was made, in ms since 1970.
    pub unix_ms: u64,
    /// Why there are no figures.
    pub fault: Option<Fault>,
    /// The links, in the policy's order.
    pub links: Vec<Shown>,
    /// True if the classes have changed since the previous frame.
    pub whole: bool,
    /// The latest changes of the policy, the oldest first.
    pub marks: Vec<Mark>,
    /// altq's answer to `status`; `None` if it did not answer.
    pub status: Option<Status>,
    /// The document from which the figures come; `None` if there is none.
    pub stat: Option<Stat>,
    /// The same document as altq sent it.
    pub stat_json: Option<Body>,
    /// Reservations; `None` if that is not known.
    pub reserved: Option<Vec<Reserved>>,
    /// Whether the last change of the policy holds: it may have been taken back. `None` if that is
    /// not known.
    pub applied: Option<bool>,
    /// By link, whether its rate follows the line, as far as that is known.
    pub adapts: BTreeMap<String, bool>,
    pub(crate) made: Made,
}

/// The texts of a frame. Each is made at most once, when it is needed.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// By [`Cut`].
    snapshot: [OnceLock<Body>; 2],
    /// By [`Cut`].
    change: [OnceLock<Body>; 2],
    open_metrics: OnceLock<Body>,
    text_metrics: OnceLock<Body>,
}

impl Frame {
    /// The event with everything, for a client that is new or late.
    pub fn snapshot(&self, cut: Cut) -> &Body {
        let [whole, parts] = &self.made.snapshot;
        made(cut, whole, parts).get_or_init(|| events::snapshot(self, cut).into_bytes().into())
    }

    /// The event with what has changed since the previous frame; everything if the classes have
    /// changed.
    pub fn change(&self, cut: Cut) -> &Body {
        if self.whole {
            return self.snapshot(cut);
        }
        let [whole, parts] = &self.made.change;
        made(cut, whole, parts).get_or_init(|| events::change(self, cut).into_bytes().into())
    }

    /// The metrics, in one of two text formats.
    pub fn metrics(&self, form: metrics::Form) -> &Body {
        let made = match form {
            metrics::Form::OpenMetrics => &self.made.open_metrics,
            metrics::Form::Text => &self.made.text_metrics,
        };
        made.get_or_init(|| metrics::text(self, form).into_bytes().into())
    }

    /// A link by its name.
    pub fn link(&self, name: &str) -> Option<&Shown> {
        self.links.iter().find(|link| link.status.name == name)
    }
}

fn made<'a>(cut: Cut, whole: &'a OnceLock<Body>, parts: &'a OnceLock<Body>) -> &'a OnceLock<Body> {
    match cut {
        Cut::Whole => whole,
        Cut::Parts => parts,
    }
}
