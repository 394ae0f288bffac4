//! Snapshots of a link, which its loop takes at intervals.

use altq_engine::account::{Counters, DropReason};
use altq_engine::units::Nanos;

use crate::edge::EdgeCounters;
use crate::sketch::Sketch;

/// The state of a link at one moment. All counters are since the start; a rate follows from the
/// difference of two snapshots.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The link's name.
    pub link: String,
    /// Time of the snapshot, on the loop's clock (CLOCK_MONOTONIC on real interfaces).
    pub at: Nanos,
    /// Time at which the loop began.
    pub began: Nanos,
    /// Time of the previous snapshot.
    pub since: Nanos,
    /// True for the last snapshot of a loop.
    pub last: bool,
    /// Its classes, in the policy's order; the first is the root.
    pub classes: Vec<ClassStat>,
    /// Packets and bytes (layer 3) dropped because no rule gave them a class. The root's drops
    /// include them.
    pub unclassified: (u64, u64),
    /// Counters of the edge, outside the engine.
    pub edge: EdgeCounters,
    /// Counters of the loop itself.
    pub work: Work,
}

/// The state of a class at one moment, with all classes below it.
#[derive(Clone, Debug, Default)]
pub struct ClassStat {
    /// Its counters.
    pub counters: Counters,
    /// Its drops by reason.
    pub dropped: Vec<(DropReason, u64)>,
    /// Rate since the snapshot before, of layer 3 bytes, in bit/s.
    pub rate_bit_s: u64,
    /// The same for the bytes that the link charged, in bit/s.
    pub wire_bit_s: u64,
    /// Bytes that it has sent on the wire: those that the link charged or, on an emulated host,
    /// those of the host's wire.
    pub wire_bytes: u64,
    /// How often it was over its limit, if its scheduler counts that.
    pub overlimits: Option<u64>,
    /// Time in the queue of packets that left since the snapshot before.
    pub sojourn: Sketch,
    /// The same since the start.
    pub sojourn_total: Sketch,
}

/// Counters of a loop: super-packets, iterations, lateness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Super-packets received.
    pub supers: u64,
    /// Super-packets that were cut.
    pub cut: u64,
    /// Parts that they were cut into.
    pub parts: u64,
    /// Super-packets that were sent whole because there was no slot to cut them.
    pub uncut: u64,
    /// Iterations of the loop.
    pub turns: u64,
    /// How often it waited, and was woken by a frame, by a timer or by a device with room.
    pub waits: u64,
    /// How often a timer had passed when it was woken.
    pub timers: u64,
    /// How late it was then, in ns, all times together.
    pub late: Nanos,
    /// The most that it was late for a timer, in ns.
    pub latest: Nanos,
    /// Calls that received at least one frame.
    pub receives: u64,
    /// Calls that sent frames.
    pub sends: u64,
    /// Changes that the engine refused.
    pub unchanged: u64,
}

impl Snapshot {
    /// The rate in bit/s (layer 3) at which a class has sent since an earlier snapshot; 0 if no
    /// time has passed.
    pub fn rate_since(&self, earlier: &Snapshot, class: usize) -> u64 {
        let sent = |snapshot: &Snapshot| snapshot.classes.get(class).map_or(0, |class| class.counters.sent_bytes);
        let time = u128::from(self.at.saturating_sub(earlier.at));
        let bits = u128::from(sent(self).saturating_sub(sent(earlier))) * 8 * 1_000_000_000;
        bits.checked_div(time).unwrap_or(0) as u64
    }
}
