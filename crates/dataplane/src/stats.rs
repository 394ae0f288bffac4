//! What a loop tells about its link, now and then.

use altq_engine::account::{Counters, DropReason};
use altq_engine::units::Nanos;

use crate::edge::EdgeCounters;
use crate::sketch::Sketch;

/// A link at one instant. All counters are since the start; a rate over a time is the difference of
/// two snapshots.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The link's name.
    pub link: String,
    /// When, on the loop's clock (CLOCK_MONOTONIC on real interfaces).
    pub at: Nanos,
    /// When the loop was made.
    pub began: Nanos,
    /// Since the snapshot before.
    pub since: Nanos,
    /// True for the last one of a loop.
    pub last: bool,
    /// Its classes, in the policy's order; the first is the root.
    pub classes: Vec<ClassStat>,
    /// Packets and bytes (layer 3) without a class, dropped for it; among the root's drops.
    pub unclassified: (u64, u64),
    /// What happened outside the engine.
    pub edge: EdgeCounters,
    /// What the loop did with super-packets.
    pub work: Work,
}

/// A class at one instant, with everything below it.
#[derive(Clone, Debug, Default)]
pub struct ClassStat {
    /// Its counters.
    pub counters: Counters,
    /// Its drops by reason.
    pub dropped: Vec<(DropReason, u64)>,
    /// Rate since the snapshot before, of own bytes (layer 3), in bit/s.
    pub rate_bit_s: u64,
    /// The same of the bytes that the link charged.
    pub wire_bit_s: u64,
    /// Bytes that it has had on the wire: what the link charged, or, on a host of its own, what
    /// they are there.
    pub wire_bytes: u64,
    /// Times that it was found over its limit, where its scheduler counts them.
    pub overlimits: Option<u64>,
    /// How long packets that left since the snapshot before had waited.
    pub sojourn: Sketch,
    /// The same since the start.
    pub sojourn_total: Sketch,
}

/// What a loop did with super-packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Super-packets that came in.
    pub supers: u64,
    /// Of them, those that were cut.
    pub cut: u64,
    /// The parts they became.
    pub parts: u64,
    /// Super-packets that should have been cut, for which there was no slot; they went as they
    /// were.
    pub uncut: u64,
    /// Turns of the loop.
    pub turns: u64,
    /// The most that the loop was late for a deadline.
    pub latest: Nanos,
    /// Changes that the engine refused.
    pub unchanged: u64,
}

impl Snapshot {
    /// The rate in bit/s (layer 3) at which a class has sent since an earlier snapshot; 0 if none
    /// of the time has passed.
    pub fn rate_since(&self, earlier: &Snapshot, class: usize) -> u64 {
        let sent = |snapshot: &Snapshot| snapshot.classes.get(class).map_or(0, |class| class.counters.sent_bytes);
        let time = u128::from(self.at.saturating_sub(earlier.at));
        let bits = u128::from(sent(self).saturating_sub(sent(earlier))) * 8 * 1_000_000_000;
        bits.checked_div(time).unwrap_or(0) as u64
    }
}
