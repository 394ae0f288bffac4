//! Drop-head: packets at the head make room for the arriving one.
//!
//! What ALTQ's CBQ queues do (docs/reference/altq.md 2.3): the sender learns of the loss one queue
//! earlier, and what is delivered is fresh.

use super::{Entry, Policy};
use crate::settings::Limit;

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    name: "drop_head",
    about: "drops from the head to make room for the arriving packet",
    limit: Limit::Packets(50),
    words: &[],
    build: |_, _| Ok(Policy::DropHead),
};
