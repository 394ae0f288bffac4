//! Queues: the buffer of a class, and who is dropped when it is full.
//!
//! To add one: a file that opens with its paper and idea and states an [`Entry`]; then one line in [`QUEUES`].

mod drop_head;
mod drop_tail;

use crate::settings::{Settings, Word};
use crate::spec::SpecError;

/// All queues.
pub const QUEUES: &[&Entry] = &[&drop_tail::ENTRY, &drop_head::ENTRY];

/// The queue of a name.
pub fn find(name: &str) -> Option<&'static Entry> {
    QUEUES.iter().copied().find(|entry| entry.name == name)
}

/// What the registry knows of a queue. Every queue takes `limit` as well.
pub struct Entry {
    /// Its name in policies.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// Its own words, besides `limit`.
    pub words: &'static [Word],
    /// Makes one.
    pub build: fn(&Settings) -> Result<Policy, SpecError>,
}

/// What a queue does when a packet does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The arriving packet is dropped.
    DropTail,
    /// Packets at the head are dropped until the new one fits.
    DropHead,
}
