//! What a class is owed, and how much of it is forgotten (docs/reference/cbq.md rules 12 and 14).
//!
//! While a class has packets its clocks stand still until it is served, so it makes up for service
//! that came late. That is bounded: what a class lacked in an hour on a wire slower than the link's
//! rate must not be made up for during another hour. On a wire of the link's rate there is a latest
//! time at which a class is served, whatever others send. Of lateness beyond that only
//! [`Exact::stall`] is made up for; the rest is forgotten. So nothing is ever forgotten on a wire
//! of the link's rate: docs/promises.md has the proof.

use super::Exact;
use super::state::{Leaf, span};
use crate::units::SECOND;

/// Sums over the leaves of a priority that have a rate.
#[derive(Clone, Copy, Default)]
pub struct Level {
    /// Sum of their bursts, bytes.
    bursts: u64,
    /// How many.
    leaves: u64,
    /// Sum of their rates, bit/s.
    rate: u128,
}

/// How late the turn of a scheduler inside a class may come, in packets of the largest size at its
/// rate. Another scheduler decides when it comes, and may promise it late.
const NESTED_PACKETS: u64 = 1000;

/// How much of a stall is made up for, in ns: a second, or, inside a class, the time of
/// [`NESTED_PACKETS`] at its rate if that is longer.
pub fn stall(nested: bool, rate: u64, packet: u32) -> u64 {
    let bits = u128::from(NESTED_PACKETS * u64::from(packet)) * 8 * u128::from(SECOND);
    let turn = u64::try_from(bits / u128::from(rate.max(1))).unwrap_or(u64::MAX);
    if nested { SECOND.max(turn) } else { SECOND }
}

impl Exact {
    /// Adds a leaf to the sums of its priority, or takes it out.
    pub(super) fn count_leaf(&mut self, leaf: &Leaf, there: bool) {
        if leaf.rate == 0 {
            return;
        }
        let level = &mut self.levels[usize::from(leaf.priority) % 8];
        let (burst, rate) = (u64::from(leaf.burst), u128::from(leaf.rate));
        if there {
            *level = Level { bursts: level.bursts + burst, leaves: level.leaves + 1, rate: level.rate + rate };
        } else {
            *level = Level { bursts: level.bursts - burst, leaves: level.leaves - 1, rate: level.rate - rate };
        }
    }

    /// How late packets within guarantee of a priority may be on a wire of the link's rate, ns
    /// after their deadlines (docs/reference/cbq.md rule 9). Before them may go the packet on the
    /// wire, and for each leaf of this priority and of higher ones its burst and one packet. For a
    /// leaf of the same priority that is one packet that is longer than was announced. 0 where
    /// nothing is promised.
    fn competition(&self, priority: u8) -> u64 {
        let own = usize::from(priority) % 8;
        let (above, packet) = (&self.levels[own + 1..], u128::from(self.packet));
        let rate = u128::from(self.records.nodes[0].words.rate);
        let higher = above.iter().map(|level| level.rate).sum::<u128>();
        if self.levels.iter().map(|level| level.rate).sum::<u128>() > rate || higher >= rate {
            return 0;
        }
        let bursts = |level: &Level| u128::from(level.bursts) + u128::from(level.leaves) * packet;
        let bursts = bursts(&self.levels[own]) + above.iter().map(bursts).sum::<u128>();
        let time = (packet + bursts).saturating_mul(8 * u128::from(SECOND)) / (rate - higher);
        u64::try_from(time).unwrap_or(u64::MAX)
    }

    /// Bounds what a leaf is owed that is about to be charged for a packet within guarantee. What
    /// is too much is taken from all leaves of its priority: their clocks are moved on by the same
    /// time, so that they keep their proportions while the wire is slower than the guarantees.
    #[inline(always)]
    pub(super) fn bound_owed(&mut self, slot: u32) {
        let leaf = &self.records.leaves[slot as usize];
        if self.now.saturating_sub(self.records.leaf_due(leaf)) > SECOND {
            self.forget(slot);
        }
    }

    #[cold]
    fn forget(&mut self, slot: u32) {
        let leaf = self.records.leaves[slot as usize];
        // How late the leaf may be on a wire of the link's rate: its credit, the time until the
        // packet's deadline, and how late others may make it. The deadline counts as that of the
        // largest packet: if a scheduler inside has guessed the packet, the one that is sent may be
        // shorter.
        let explained = span(leaf.nspb, leaf.burst)
            .saturating_add(span(leaf.nspb, self.packet))
            .saturating_add(self.competition(leaf.priority));
        let oldest = self.now.saturating_sub(explained.saturating_add(self.stall));
        let due = self.records.leaf_due(&leaf);
        self.records.slip[usize::from(leaf.priority) % 8] += oldest.saturating_sub(due);
    }

    /// How far the clock of an inner class's rate may lie behind the present while something below
    /// it waits, where a byte takes `nspb`: the bursts of all leaves may go first, and two packets
    /// of each class.
    #[cold]
    fn inner_owed(&self, nspb: u64) -> u64 {
        let bursts = self.levels.iter().map(|level| level.bursts).sum::<u64>();
        let packets = self.records.nodes.len() as u64 + u64::from(self.leaf_count) + 1;
        let bytes = bursts.saturating_add(packets.saturating_mul(2 * u64::from(self.packet)));
        span(nspb, u32::try_from(bytes).unwrap_or(u32::MAX)).saturating_add(self.stall)
    }

    /// The clock of an inner class's rate, with a bound on how far it is behind. Up to `lag` it is
    /// left alone, without computing the bound.
    #[inline(always)]
    pub(super) fn bound_inner(&self, clock: u64, lag: u64, nspb: u64) -> u64 {
        let near = self.now.saturating_sub(lag);
        if clock >= near { clock } else { clock.max(near.min(self.now.saturating_sub(self.inner_owed(nspb)))) }
    }
}
