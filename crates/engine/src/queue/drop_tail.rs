//! Drop-tail: the arriving packet is dropped when the queue is full.
//!
//! The default queue of most systems. A queued packet is never dropped. So the sojourn time is at
//! most the limit over the rate, and a full queue keeps its oldest packets.

use super::{Entry, Policy};
use crate::settings::Limit;

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    in_order: true,
    tc_names: [Some("pfifo"), Some("bfifo")],
    ..Entry::new("drop_tail", "drops the arriving packet when full", Limit::Packets(50), |_, _| Ok(Policy::DropTail))
};
