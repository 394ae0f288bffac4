//! What a link's counters say, in the words of the tools that people know: pure functions from
//! counters to text.
//!
//! - [`tc`]: `tc -s qdisc` and `tc -s class`, as iproute2 prints them.
//! - [`altqstat`]: ALTQ's `altqstat` and `tbrconfig` (docs/reference/altq.md 13).
//!
//! Each has two layers: the block that the tool prints, as a struct whose `Display` is the text to
//! the byte, and the way from a [`LinkStat`](altq_cases::stat::LinkStat) to such blocks. A figure
//! that our engine does not keep is never made up: `-` stands in its place.

pub mod altqstat;
pub mod tc;

use altq_engine::settings::{Limit, Settings, Value, Word};
use altq_engine::{queue, schedule};

/// A table's words with the values that hold: those given, or else the defaults as the table prints
/// them.
pub(crate) fn in_effect<'s>(
    table: &'static [Word],
    given: &'s Settings,
) -> impl Iterator<Item = (&'static Word, Option<Value>)> + use<'s> {
    table.iter().map(|word| (word, given.get(word.name)))
}

/// A queue's words by its name; none for a name that is not in the registry.
pub(crate) fn queue_words(name: &str) -> &'static [Word] {
    queue::find(name).map_or(&[], |entry| entry.words)
}

/// The words of a class by its scheduler's name.
pub(crate) fn class_words(scheduler: &str) -> &'static [Word] {
    schedule::find(scheduler).map_or(&[], |entry| entry.class_words)
}

/// How much a queue holds, in packets; `None` where it counts bytes.
pub(crate) fn packets(limit: Limit) -> Option<u32> {
    match limit {
        Limit::Packets(packets) => Some(packets),
        Limit::Bytes(_) => None,
    }
}
