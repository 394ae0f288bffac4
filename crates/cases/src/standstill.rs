//! TCP flows that stand still: they have something to send, and for long nothing of it is
//! delivered.
//!
//! A flow that waits for a retransmission or for a timeout is normal. A flow that waits for very
//! long is none that a result may be built on: either its TCP is broken, or the host stood still,
//! or the network loses so much that chance decides. [`most`] says what "very long" is. A flow
//! whose packets wait for their turn at a link does not stand still.

use altq_engine::units::{Nanos, SECOND};
use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::result::FlowResult;

/// The longest time without a delivery that is never judged.
const LONG: Nanos = 5 * SECOND;

/// Round trips without a delivery that are not judged: through a deep queue a round trip takes
/// seconds, and a timeout or two take several of them.
const ROUND_TRIPS: u64 = 10;

/// The shortest time without a delivery that a result shows.
const SHOWN: Nanos = SECOND;

/// A time for which a flow had something to send and nothing of it was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Standstill {
    /// When something was delivered before, or when the flow began; from the start of the run.
    pub from_ns: Nanos,
    /// When something was delivered again, or when the flow or the run ended.
    pub to_ns: Nanos,
}

impl Standstill {
    /// How long it lasted.
    pub fn length(&self) -> Nanos {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// Watches what is delivered of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    since: Option<Nanos>,
    longest: Option<Standstill>,
    /// Packets of the flow that are in the network, where that is known.
    inside: u32,
    /// When the network got the first of these, or gave one up last.
    turn: Nanos,
    /// The longest time since the last delivery for which the network held packets of the flow and
    /// gave none up.
    waited: Nanos,
}

impl Watch {
    /// The flow has something to send from now on.
    pub fn begins(&mut self, now: Nanos) {
        self.since = self.since.or(Some(now));
    }

    /// A packet of it enters the network.
    #[inline]
    pub fn entered(&mut self, now: Nanos) {
        if self.inside == 0 {
            self.turn = now;
        }
        self.inside += 1;
    }

    /// A packet of it arrives, or is lost.
    #[inline]
    pub fn left(&mut self, now: Nanos) {
        self.waited = self.waited.max(self.waiting(now));
        self.inside = self.inside.saturating_sub(1);
        self.turn = now;
    }

    /// For how long the network has held packets of the flow and given none up.
    fn waiting(&self, now: Nanos) -> Nanos {
        let since = self.turn.max(self.since.unwrap_or(now));
        if self.inside > 0 { now.saturating_sub(since) } else { 0 }
    }

    /// Something of it is delivered.
    #[inline]
    pub fn delivered(&mut self, now: Nanos) {
        let Some(since) = self.since else { return };
        // Nearly all times are shorter than what is shown.
        if now.saturating_sub(since) >= SHOWN {
            self.stood(Standstill { from_ns: since, to_ns: now });
        }
        (self.since, self.waited) = (Some(now.max(since)), 0);
    }

    /// Nothing was delivered for a time that is long enough to be shown.
    fn stood(&mut self, stood: Standstill) {
        // A flow whose packets wait for their turn at a link does not stand still.
        let waited = self.waited.max(self.waiting(stood.to_ns));
        let own = waited < stood.length().div_ceil(2);
        if own && self.longest.is_none_or(|longest| stood.length() > longest.length()) {
            self.longest = Some(stood);
        }
    }

    /// The flow has nothing more to send, or the run ends.
    pub fn ends(&mut self, now: Nanos) {
        self.delivered(now);
        self.since = None;
    }

    /// The longest time without a delivery, if it is at least a second.
    pub fn longest(&self) -> Option<Standstill> {
        self.longest
    }
}

/// The longest time without a delivery that does not make a result invalid, for a flow whose round
/// trip takes this long.
pub fn most(round_trip: Nanos) -> Nanos {
    LONG.max(round_trip.saturating_mul(ROUND_TRIPS))
}

/// Why the result of a run is invalid: a sentence for each flow that stood still for too long.
/// `waited` gives the longest time that a flow's packets took to their destination, or waited in
/// its class, in the whole run.
///
/// A round trip is taken to be as long as it was at worst: the delays of all links there and back,
/// and that time. So a flow whose packets waited for their turn at a link is not blamed.
pub fn judge(case: &Case, flows: &[FlowResult], waited: impl Fn(&FlowResult) -> Nanos) -> Vec<String> {
    let ways = case.links.iter().flat_map(|link| &link.ways);
    let delays = ways.map(|way| way.delay.saturating_add(way.jitter)).fold(0, Nanos::saturating_add);
    let hosts = case.hosts.iter().fold(0, |sum: Nanos, host| sum.saturating_add(host.delay.saturating_mul(2)));
    let judged = flows.iter().filter_map(|flow| {
        let stood = flow.standstill?;
        let most = most(delays.saturating_add(hosts).saturating_add(waited(flow)));
        (stood.length() > most).then(|| {
            format!(
                "flow {} had something to send, and nothing of it was delivered for {:.1} s from {:.1} s on (at most \
                 {:.1} s: 5 s or {ROUND_TRIPS} round trips); if it is meant to lose so much, give it more `streams`",
                flow.name,
                seconds(stood.length()),
                seconds(stood.from_ns),
                seconds(most)
            )
        })
    });
    judged.collect()
}

fn seconds(time: Nanos) -> f64 {
    time as f64 / SECOND as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_time_without_a_delivery() {
        let mut watch = Watch::default();
        // Before it begins nothing counts.
        watch.delivered(SECOND);
        assert_eq!(watch.longest(), None);
        watch.begins(2 * SECOND);
        watch.delivered(3 * SECOND);
        watch.delivered(5 * SECOND);
        watch.delivered(6 * SECOND);
        assert_eq!(watch.longest(), Some(Standstill { from_ns: 3 * SECOND, to_ns: 5 * SECOND }));
        // What it still waits for when it ends counts, a pause does not.
        watch.ends(9 * SECOND);
        assert_eq!(watch.longest(), Some(Standstill { from_ns: 6 * SECOND, to_ns: 9 * SECOND }));
        watch.begins(20 * SECOND);
        watch.ends(21 * SECOND);
        assert_eq!(watch.longest().map(|longest| longest.length()), Some(3 * SECOND));
        // Less than a second is not shown.
        let mut quick = Watch::default();
        (0..10).for_each(|n| {
            quick.begins(0);
            quick.delivered(n * SECOND / 2);
        });
        assert_eq!(quick.longest(), None);
    }

    #[test]
    fn who_waits_for_a_turn_does_not_stand_still() {
        // Four seconds behind others, then a delivery: not counted. Then packets come and go, and
        // nothing is delivered for three seconds.
        let mut watch = Watch::default();
        watch.begins(0);
        watch.entered(0);
        watch.entered(SECOND);
        watch.left(4 * SECOND);
        watch.delivered(4 * SECOND);
        assert_eq!(watch.longest(), None);
        for n in 4..7 {
            watch.entered(n * SECOND);
            watch.left(n * SECOND + SECOND / 2);
        }
        watch.left(7 * SECOND);
        watch.delivered(7 * SECOND);
        assert_eq!(watch.longest(), Some(Standstill { from_ns: 4 * SECOND, to_ns: 7 * SECOND }));
    }

    #[test]
    fn five_seconds_or_ten_round_trips() {
        assert_eq!((most(0), most(SECOND / 2), most(SECOND)), (5 * SECOND, 5 * SECOND, 10 * SECOND));
        assert_eq!(most(Nanos::MAX), Nanos::MAX);
    }
}
