//! Drop-tail: the arriving packet is dropped when the queue is full.
//!
//! The plain FIFO of every system. What waits is never lost, so sojourn is bounded by the limit
//! over the rate, and a full queue keeps its oldest packets.

use super::{Entry, Policy};
use crate::settings::Limit;

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    in_order: true,
    tc_names: [Some("pfifo"), Some("bfifo")],
    ..Entry::new("drop_tail", "drops the arriving packet when full", Limit::Packets(50), |_, _| Ok(Policy::DropTail))
};
