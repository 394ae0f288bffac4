//! Keeps which probes are due, and which are open (not answered yet). Time is an argument.

use std::collections::VecDeque;

use altq_adapt::{DEADLINE, PROBE_EVERY};
use altq_engine::units::Nanos;

/// The largest number of open probes of a reflector: four minutes of them. It must be less than the
/// number of ICMP's sequence numbers, 65,536.
const MOST_OPEN: usize = 1_000;

/// The probes of a link.
#[derive(Debug)]
pub struct Prober {
    reflectors: Vec<Reflector>,
}

#[derive(Debug)]
struct Reflector {
    /// When its next probe is due.
    due: Nanos,
    /// The sequence number of the next probe.
    sequence: u16,
    /// The open probes, the oldest first.
    open: VecDeque<Open>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    sequence: u16,
    sent: Nanos,
    given_up: bool,
}

impl Prober {
    /// The probes of this many reflectors, evenly spread in time from 0 on.
    pub fn new(reflectors: usize) -> Prober {
        let due = |at: usize| PROBE_EVERY * at as Nanos / reflectors.max(1) as Nanos;
        let reflector = |at| Reflector { due: due(at), sequence: 0, open: VecDeque::new() };
        Prober { reflectors: (0..reflectors).map(reflector).collect() }
    }

    /// When the next probe is due.
    pub fn next(&self) -> Nanos {
        self.reflectors.iter().map(|reflector| reflector.due).min().unwrap_or(Nanos::MAX)
    }

    /// The next probe that is due by now, as reflector and sequence number. It counts as sent.
    pub fn due(&mut self, now: Nanos) -> Option<(usize, u16)> {
        let at = self.reflectors.iter().position(|reflector| reflector.due <= now)?;
        let reflector = self.reflectors.get_mut(at)?;
        reflector.due = next_due(reflector.due, now);
        let sequence = reflector.sequence;
        reflector.sequence = sequence.wrapping_add(1);
        if reflector.open.len() >= MOST_OPEN {
            reflector.open.pop_front();
        }
        reflector.open.push_back(Open { sequence, sent: now, given_up: false });
        Some((at, sequence))
    }

    /// A probe that has waited for its answer for too long, as reflector and the time at which it
    /// was sent. Each probe is returned once. If its answer still comes, it counts.
    pub fn given_up(&mut self, now: Nanos) -> Option<(usize, Nanos)> {
        let before = now.checked_sub(DEADLINE)?;
        self.reflectors.iter_mut().enumerate().find_map(|(at, reflector)| {
            let open = reflector.open.iter_mut().find(|open| !open.given_up && open.sent <= before)?;
            open.given_up = true;
            Some((at, open.sent))
        })
    }

    /// When the probe with this sequence number was sent; `None` if it is not open. It is no longer
    /// open after that.
    pub fn answered(&mut self, reflector: usize, sequence: u16) -> Option<Nanos> {
        let reflector = self.reflectors.get_mut(reflector)?;
        let at = reflector.open.iter().position(|open| open.sequence == sequence)?;
        reflector.open.remove(at).map(|open| open.sent)
    }
}

/// When the next probe of a reflector is due, after one that was due at `due` and is sent `now`. It
/// keeps its place in time between the probes of the other reflectors. Otherwise, after a time in
/// which nothing was sent, all reflectors would be probed together for good, and all votes would be
/// equally old. But two probes of a reflector are at least half the usual interval apart.
fn next_due(due: Nanos, now: Nanos) -> Nanos {
    let missed = now.saturating_sub(due) / PROBE_EVERY;
    let next = due.saturating_add(PROBE_EVERY.saturating_mul(missed.saturating_add(1)));
    if next.saturating_sub(now) < PROBE_EVERY / 2 { next.saturating_add(PROBE_EVERY) } else { next }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    #[test]
    fn probes_are_spread_and_answered_once() {
        let mut prober = Prober::new(2);
        assert_eq!((prober.next(), prober.due(0), prober.due(0)), (0, Some((0, 0)), None));
        assert_eq!((prober.next(), prober.due(125 * MS)), (125 * MS, Some((1, 0))));
        // 10 ms late; the next one is due at 500 ms.
        assert_eq!((prober.due(260 * MS), prober.next()), (Some((0, 1)), 375 * MS));
        assert_eq!(prober.answered(0, 1), Some(260 * MS));
        assert_eq!((prober.answered(0, 1), prober.answered(1, 7), prober.answered(9, 0)), (None, None, None));
        // The first probes of both are a second old at 1,125 ms.
        assert_eq!(prober.given_up(999 * MS), None);
        assert_eq!([1_125 * MS; 3].map(|now| prober.given_up(now)), [Some((0, 0)), Some((1, 125 * MS)), None]);
        // A late answer counts.
        assert_eq!(prober.answered(1, 0), Some(125 * MS));
    }

    #[test]
    fn a_time_without_probes_does_not_bring_reflectors_together() {
        let mut prober = Prober::new(2);
        assert_eq!(prober.due(0), Some((0, 0)));
        // At 400 ms both are late. The second one's next place is at 625 ms. The first one's is at
        // 500 ms, which is too soon, so it is at 750 ms.
        assert_eq!([400 * MS; 3].map(|now| prober.due(now)), [Some((0, 1)), Some((1, 0)), None]);
        assert_eq!((prober.next(), prober.due(625 * MS), prober.next()), (625 * MS, Some((1, 1)), 750 * MS));
    }

    #[test]
    fn sequence_numbers_begin_anew_and_old_probes_are_forgotten() {
        let mut prober = Prober::new(1);
        let mut now = 0;
        for n in 0..70_000u32 {
            assert_eq!(prober.due(now), Some((0, n as u16)));
            now += PROBE_EVERY;
        }
        assert_eq!(prober.reflectors[0].open.len(), MOST_OPEN);
        // The last one is 69,999 - 65,536 = 4,463.
        assert_eq!(prober.answered(0, 4_463), Some(now - PROBE_EVERY));
        assert_eq!(prober.answered(0, 4_463), None);
    }
}
