//! Drop-head: when the queue is full, packets at the head are dropped to make room for the arriving
//! one.
//!
//! What ALTQ's CBQ queues do (docs/reference/altq.md 2.3): the sender notices the loss sooner, by
//! the time that packets spend in the queue, and the packets that are delivered are recent ones.

use super::{Entry, Policy};
use crate::settings::Limit;

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    in_order: true,
    tc_names: [Some("pfifo_head_drop"), None],
    ..Entry::new("drop_head", "drops from the head to make room for the arriving packet", Limit::Packets(50), |_, _| {
        Ok(Policy::DropHead)
    })
};
