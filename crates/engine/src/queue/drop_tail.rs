//! Drop-tail: the arriving packet is dropped when the queue is full.
//!
//! The plain FIFO of every system. What waits is never lost, so sojourn is bounded by the limit
//! over the rate, and a full queue keeps its oldest packets.

use super::{Entry, Policy};
use crate::settings::Limit;

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    name: "drop_tail",
    about: "drops the arriving packet when full",
    limit: Limit::Packets(50),
    words: &[],
    build: |_, _| Ok(Policy::DropTail),
};
