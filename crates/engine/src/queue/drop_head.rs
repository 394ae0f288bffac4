//! Drop-head: packets at the head make room for the arriving one.
//!
//! What ALTQ's CBQ queues do (docs/reference/altq.md 2.3): the sender learns of the loss one queue
//! earlier, and what is delivered is fresh.

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
