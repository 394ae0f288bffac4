//! The state blocks of RFC 2209: what a node keeps of a session.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::world::Police;
use crate::wire::{Adspec, Flow, Flowspec, RawObject, Sender, Style, Tspec};

/// In place of an interface's number: this node itself. A sender here has it as previous hop, a
/// receiver here as next hop.
pub(super) const LOCAL: u32 = 0;

/// The most bytes of POLICY_DATA and unknown objects that a Path or a Resv may carry along, and
/// that go upstream in one Resv: they are kept as long as the message's state.
pub(super) const MOST_PASSED_ON: usize = 4096;

/// Whether a message carries more objects along than are kept.
pub(super) fn carries_too_much(objects: &[RawObject]) -> bool {
    objects.iter().map(RawObject::size).sum::<usize>() > MOST_PASSED_ON
}

/// The previous hop of a path: where Resvs for its sender go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Phop {
    /// The interface by which its Paths come, or [`LOCAL`].
    pub(super) interface: u32,
    /// Its address.
    pub(super) address: IpAddr,
    /// Its logical interface handle, which it gets back.
    pub(super) handle: u32,
}

/// Path state of a sender (PSB). With multicast its key would hold the incoming interface too, and
/// `out` would be a set.
#[derive(Debug, Clone)]
pub(super) struct Psb {
    pub(super) previous: Phop,
    pub(super) tspec: Tspec,
    pub(super) adspec: Option<Adspec>,
    /// POLICY_DATA and unknown objects that go on.
    pub(super) passed_on: Vec<RawObject>,
    /// The session's flag that this node is the edge.
    pub(super) edge: bool,
    /// The IP TTL with which its Path came.
    pub(super) ttl: u8,
    /// A router without RSVP is between the previous hop and this node.
    pub(super) gap: bool,
    /// Where it goes: an interface, [`LOCAL`], or nowhere.
    pub(super) out: Option<u32>,
    /// The router that it goes to there, if the route has one.
    pub(super) gateway: Option<IpAddr>,
    /// This node is the receiver's proxy, and there was no room for the request that answers the
    /// Path.
    pub(super) unanswered: bool,
    /// For a sender here: what is reserved for it, so that a change is told once.
    pub(super) told: Option<Tspec>,
}

/// Names a reservation request (RSB): one for each next hop, and in FF for each sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RsbKey {
    /// The interface that the sender's packets leave by, or [`LOCAL`].
    pub(super) interface: u32,
    /// The next hop that asked.
    pub(super) next_hop: IpAddr,
    /// In FF, the sender.
    pub(super) filter: Option<Sender>,
}

impl RsbKey {
    /// The reservation that requests with this key make together.
    pub(super) fn installed(&self) -> TcKey {
        TcKey { interface: self.interface, filter: self.filter }
    }
}

/// What a next hop asked for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Wanted {
    pub(super) style: Style,
    /// Senders in order, with those that have no path state.
    pub(super) filters: Vec<Sender>,
    /// Controlled load.
    pub(super) tspec: Tspec,
    /// POLICY_DATA and unknown objects that go upstream. All requests of one Resv share them.
    pub(super) passed_on: Arc<[RawObject]>,
}

impl Wanted {
    pub(super) fn flow(&self) -> Flow {
        Flow { flowspec: Flowspec::ControlledLoad(self.tspec), filters: self.filters.clone() }
    }
}

/// A reservation request (RSB) that was granted.
#[derive(Debug, Clone)]
pub(super) struct Rsb {
    pub(super) wanted: Wanted,
    /// How long it lives without a refresh, nanoseconds.
    pub(super) lifetime: u64,
    /// The receiver that wants a confirmation, until it is passed on or answered.
    pub(super) confirm: Option<IpAddr>,
    /// When it was changed last.
    pub(super) changed: u64,
    /// A change that came too soon after the last one.
    pub(super) waiting: Option<Wanted>,
    /// The receiver that wants a confirmation of that change.
    pub(super) confirm_waiting: Option<IpAddr>,
    /// An application asked for it: a Path does not change it.
    pub(super) by_application: bool,
}

/// Names a reservation in traffic control (TCSB): one for each interface, and in FF for each
/// sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TcKey {
    pub(super) interface: u32,
    pub(super) filter: Option<Sender>,
}

/// A reservation that is made, or that is to be made.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Installed {
    /// Senders with path state, in order.
    pub(super) filters: Vec<Sender>,
    /// The smaller one of request and announced traffic.
    pub(super) tspec: Tspec,
    pub(super) police: Police,
}

/// What was sent to a previous hop.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Upstream {
    pub(super) style: Style,
    pub(super) flows: Vec<Flow>,
    /// POLICY_DATA and unknown objects of the requests.
    pub(super) passed_on: Vec<RawObject>,
}

/// A request that was refused upstream (BSB).
#[derive(Debug, Clone)]
pub(super) struct Blockade {
    pub(super) refused: Tspec,
}

/// A session.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    pub(super) paths: BTreeMap<Sender, Psb>,
    pub(super) requests: BTreeMap<RsbKey, Rsb>,
    pub(super) installed: BTreeMap<TcKey, Installed>,
    pub(super) upstream: BTreeMap<Phop, Upstream>,
    pub(super) blockades: BTreeMap<Sender, Blockade>,
    /// When a message about it was taken last, of those that go downstream and of those that go
    /// upstream.
    pub(super) heard: [Option<u64>; 2],
}

impl State {
    pub(super) fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.requests.is_empty() && self.installed.is_empty() && self.upstream.is_empty()
    }

    /// Whether there is path state for a sender whose packets leave by `interface`.
    pub(super) fn is_live(&self, interface: u32, sender: &Sender) -> bool {
        self.paths.get(sender).is_some_and(|psb| psb.out == Some(interface))
    }

    /// The style of the session's requests, if there are any.
    pub(super) fn style(&self) -> Option<Style> {
        self.requests.values().next().map(|rsb| rsb.wanted.style)
    }
}
