//! Prints a link's counters in the form of well-known tools: pure functions from counters to text.
//!
//! - [`tc`]: `tc -s qdisc` and `tc -s class`, as iproute2 prints them.
//! - [`altqstat`]: ALTQ's `altqstat` and `tbrconfig` (docs/reference/altq.md 13).
//!
//! Each has two layers: the block that the tool prints, as a struct whose `Display` gives the
//! tool's text byte for byte, and the translation of a [`LinkStat`](altq_cases::stat::LinkStat)
//! into such blocks. A value that our engine does not have is never invented; it is printed as `-`.

pub mod altqstat;
pub mod tc;

use altq_engine::settings::{Limit, Settings, Value, Word};
use altq_engine::{queue, schedule};

/// The words of a table with their values: the given ones, or else the defaults as the table prints
/// them.
pub(crate) fn in_effect<'s>(
    table: &'static [Word],
    given: &'s Settings,
) -> impl Iterator<Item = (&'static Word, Option<Value>)> + use<'s> {
    table.iter().map(|word| (word, given.get(word.name)))
}

/// The words of a queue; none if the registry has no queue of that name.
pub(crate) fn queue_words(name: &str) -> &'static [Word] {
    queue::find(name).map_or(&[], |entry| entry.words)
}

/// The words of a class under this scheduler.
pub(crate) fn class_words(scheduler: &str) -> &'static [Word] {
    schedule::find(scheduler).map_or(&[], |entry| entry.class_words)
}

/// The limit of a queue in packets; `None` if it counts bytes.
pub(crate) fn packets(limit: Limit) -> Option<u32> {
    match limit {
        Limit::Packets(packets) => Some(packets),
        Limit::Bytes(_) => None,
    }
}
