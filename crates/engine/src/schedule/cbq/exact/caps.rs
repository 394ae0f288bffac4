//! Caps: the clocks of ceilings, and of inner classes whose rate is their limit.
//!
//! A cap's clock says from when on the next packet may go beyond guarantees. It belongs to the
//! class, and keeps its time through every change of the class: of its words, its rate, its place,
//! and from a leaf to an inner class and back. Otherwise frequent changes would be a way around the
//! limit.

use super::Exact;
use super::state::{CAP, Cap, NIL, NODE, nspb, span};
use super::words::Excess;
use crate::units::SECOND;

/// What a cap is to hold a class to.
pub struct Limit {
    /// In bit/s.
    pub rate: u64,
    /// What idleness earns, bytes.
    pub burst: u32,
    /// The rate is the class's guarantee too: what came late is owed.
    pub owed: bool,
}

impl Exact {
    /// Gives a node the cap that its words ask for. It has used its own rate up to `clock`.
    pub(super) fn set_node_cap(&mut self, node: u32, clock: u64) {
        let n = self.records.nodes[node as usize];
        let burst = n.words.burst;
        let limit = match n.words.ceiling {
            Some(rate) => Some(Limit { rate, burst, owed: false }),
            // In `excess priority` a class without `borrow` is not offered above, and its children
            // get no more than its own credit: it needs no cap.
            None if !n.words.borrow && n.words.rate > 0 && self.excess == Excess::Share => {
                Some(Limit { rate: n.words.rate, burst, owed: true })
            }
            None => None,
        };
        // A ceiling has a clock of its own.
        let from = if limit.as_ref().is_some_and(|limit| limit.owed) { clock } else { 0 };
        let cap = self.set_cap(n.cap, node | NODE, limit, from);
        let n = &mut self.records.nodes[node as usize];
        (n.cap, n.underlimit) = (cap, clock);
        for branch in n.branches {
            if branch != NIL {
                self.records.branches[branch as usize].cap = cap;
            }
        }
    }

    /// Up to when a node has used its own rate: its cap's clock while that rate is its limit, else
    /// `underlimit`.
    pub(super) fn own_clock(&self, node: u32) -> u64 {
        let n = &self.records.nodes[node as usize];
        match self.records.caps.get(n.cap as usize) {
            Some(cap) if cap.owed => cap.opens,
            _ => n.underlimit,
        }
    }

    /// Makes `cap`, or a new one for [`NIL`], hold `owner` to a limit; without a limit there is no
    /// cap. A new one begins at `clock`, and with a burst at most.
    pub(super) fn set_cap(&mut self, cap: u32, owner: u32, limit: Option<Limit>, clock: u64) -> u32 {
        let Some(Limit { rate, burst, owed }) = limit else {
            if cap != NIL {
                self.drop_cap(cap);
            }
            return NIL;
        };
        let per_byte = nspb(rate);
        let burst = span(per_byte, burst);
        let lag = if owed { burst.max(SECOND) } else { burst };
        let now = self.now;
        if let Some(had) = self.records.caps.get_mut(cap as usize) {
            had.owner = owner;
            if (had.rate, had.burst, had.owed) == (rate, burst, owed) {
                return cap;
            }
            // How late the ceiling's timer was is kept, beside the new burst.
            let late = if had.owed || owed { 0 } else { had.lag.saturating_sub(had.burst) };
            // What is left of its burst is kept in bytes.
            let opens = match had.opens > now {
                true => moved(had.opens, now, had.rate, rate),
                false => now.saturating_sub(scaled(now - had.opens, had.rate, rate)),
            };
            let refile = had.parked && opens != had.opens;
            if refile {
                self.wheel.unfile(&mut self.records, cap | CAP);
            }
            let had = &mut self.records.caps[cap as usize];
            (had.rate, had.nspb, had.burst, had.owed) = (rate, per_byte, burst, owed);
            (had.opens, had.rem, had.lag) = (opens, 0, lag + late);
            if refile {
                had.parked = false;
            }
            return cap;
        }
        let opens = clock.max(now.saturating_sub(burst));
        let new = Cap { owner, opens, nspb: per_byte, rem: 0, timer_next: NIL, rate, lag, burst, owed, parked: false };
        match self.free.caps.pop() {
            Some(at) => {
                self.records.caps[at as usize] = new;
                at
            }
            None => {
                self.records.caps.push(new);
                (self.records.caps.len() - 1) as u32
            }
        }
    }

    pub(super) fn drop_cap(&mut self, cap: u32) {
        if self.records.caps[cap as usize].parked {
            self.wheel.unfile(&mut self.records, cap | CAP);
        }
        self.free.caps.push(cap);
    }
}

/// A clock after its rate has changed from `old` to `new`. What was taken in advance is kept in
/// bytes, so that no sequence of changes gives it back. What is owed is kept in time.
pub fn moved(clock: u64, now: u64, old: u64, new: u64) -> u64 {
    if clock <= now || old == 0 || new == 0 || old == new {
        return clock;
    }
    now.saturating_add(scaled(clock - now, old, new))
}

/// The time that the bits take at the rate `new` that take `time` at the rate `old`, rounded up.
fn scaled(time: u64, old: u64, new: u64) -> u64 {
    let bits = u128::from(time) * u128::from(old);
    u64::try_from(bits.div_ceil(u128::from(new.max(1)))).unwrap_or(u64::MAX)
}
