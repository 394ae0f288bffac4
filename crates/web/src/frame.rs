//! What is shown at one time: all links with their classes and figures.

use std::sync::{Arc, OnceLock};

use altq_control::Fault;
use altq_control::document::{LinkStatus, Status};
use altq_engine::spec::ClassId;
use altq_engine::units::Nanos;
use altq_monitor::tree::Tree;

use crate::Body;
use crate::changes::Mark;
use crate::stat::{Bound, Stat};
use crate::{events, metrics};

/// The classes of a link, by number. The first is the link itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    /// Names, places, guarantees and ceilings.
    pub tree: Tree,
    /// What else is known of each.
    pub more: Vec<More>,
}

/// What is known of a class beside its place.
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
    /// What it got of the link, in bit/s as the link charges.
    pub got_bit_s: u64,
    /// What of that was lent by classes outside of it.
    pub borrowed_bit_s: u64,
    /// What classes outside of it used of its guarantee.
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
    /// The classes whose figures are others than in the frame before.
    pub changed: Vec<ClassId>,
    /// The time that the figures are about, in ns.
    pub step: Nanos,
    /// The moment of the figures, in ms since 1970.
    pub unix_ms: u64,
}

/// How many reservations stand below a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The link.
    pub link: String,
    /// The class for reservations.
    pub class: String,
    /// How many there are.
    pub active: u64,
}

/// What is shown at one time.
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
    /// True if other classes are shown than in the frame before.
    pub whole: bool,
    /// The latest changes of the policy, the oldest first.
    pub marks: Vec<Mark>,
    /// What altq says of its links; `None` if it cannot be asked.
    pub status: Option<Status>,
    /// The document behind the figures; `None` if there is none.
    pub stat: Option<Stat>,
    /// The same as it came.
    pub stat_json: Option<Body>,
    /// Reservations; `None` if that is not known.
    pub reserved: Option<Vec<Reserved>>,
    pub(crate) made: Made,
}

/// What is made of a frame when somebody asks for it, once.
#[derive(Debug, Default)]
pub(crate) struct Made {
    snapshot: OnceLock<Body>,
    change: OnceLock<Body>,
    open_metrics: OnceLock<Body>,
    text_metrics: OnceLock<Body>,
}

impl Frame {
    /// The event with all that is known, for a client that is new or late.
    pub fn snapshot(&self) -> &Body {
        self.made.snapshot.get_or_init(|| events::snapshot(self).into_bytes().into())
    }

    /// The event with what has changed since the frame before; all that is known where other
    /// classes are shown.
    pub fn change(&self) -> &Body {
        if self.whole {
            return self.snapshot();
        }
        self.made.change.get_or_init(|| events::change(self).into_bytes().into())
    }

    /// The metrics, in one of two forms.
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
