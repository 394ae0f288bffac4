//! Reasons why the figures of a run cannot be trusted.

use std::time::Duration;

use altq_cases::case::{Case, Flow as CaseFlow};
use altq_cases::result::CaseResult;
use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::Rate;
use altq_simulator::sim;
use altq_traffic::clock;

use super::figures::nanos;
use super::generator::{Flow, Kind};
use super::measure::{Full, Run};
use super::prepared::Prepared;
use super::readings::Readings;

/// Share of the frames that may be lost outside altq's queues. If more are lost, the result says
/// more about the host than about the policy.
const LOST_OUTSIDE: f64 = 0.001;

/// If the link limits a bulk flow, its class is empty while no processor is idle for at most this
/// share of the time in which the flow sends.
const EMPTY: f64 = 0.02;

/// altq's loop may have no time left, and wait for a processor, for at most this share of a run.
const HELD: f64 = 0.02;

/// For so long after a loss or a mark the sender, not the host, may leave its class empty. CUBIC
/// takes cbrt(0.3 W / 0.4) s to return to its window W (RFC 9438 4.2): 2 s for 11 packets.
const REACTION: Duration = Duration::from_secs(2);

/// A link that a bulk flow should fill carries at least this share of its rate.
const FILLED: f64 = 0.99;

/// How often a class had no packets queued, as shares of the readings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Empty {
    /// Readings within [`REACTION`] after the class dropped or marked packets: its queue told the
    /// sender to slow down.
    pub told: f64,
    /// All others.
    pub untold: f64,
}

impl Empty {
    /// That of readings between two times. Each has its time, the packets queued, and the packets
    /// dropped or marked so far.
    pub fn of(readings: impl Iterator<Item = (Duration, u64, u64)>, from: Duration, to: Duration) -> Empty {
        let (mut before, mut signal, mut told, mut untold, mut all) = (None, None, 0u32, 0u32, 0u32);
        for (at, queued, signals) in readings.take_while(|(at, ..)| *at < to) {
            if before.replace(signals).is_some_and(|before| signals > before) {
                signal = Some(at);
            }
            if at < from {
                continue;
            }
            all += 1;
            match signal {
                _ if queued > 0 => {}
                Some(signal) if at.saturating_sub(signal) <= REACTION => told += 1,
                _ => untold += 1,
            }
        }
        let share = |count| f64::from(count) / f64::from(all.max(1));
        Empty { told: share(told), untold: share(untold) }
    }

    /// Why a class was empty, in words.
    fn why(&self, busy: f64) -> String {
        let busy = busy * 100.0;
        if self.told >= self.untold {
            format!("after its queue had dropped or marked packets, which slows TCP down (processors {busy:.0} % busy)")
        } else {
            format!(
                "though its queue had dropped and marked nothing: the hosts sent too little (processors {busy:.0} % \
                 busy)"
            )
        }
    }
}

/// What is said of a link that carried this share of its rate though a bulk flow should fill it.
fn unfilled(flow: &str, link: &str, share: f64, empty: Empty, busy: f64, late: Duration) -> Option<String> {
    if share >= FILLED {
        return None;
    }
    let nothing = empty.told + empty.untold;
    let why = if nothing > EMPTY / 4.0 {
        format!("no packet waited in {:.1} % of the readings, {}", nothing * 100.0, empty.why(busy))
    } else {
        format!("packets waited all the time, and altq's loop was up to {late:?} late")
    };
    Some(format!(
        "flow `{flow}` should fill link `{link}`, which carried only {:.1} % of its rate: {why}",
        share * 100.0
    ))
}

impl Full {
    /// How often a class was empty while no processor was idle, as shares of a time. `empty` tells
    /// how often it was in a part of that time.
    fn empty(&self, (from, to): (Duration, Duration), empty: impl Fn(Duration, Duration) -> Empty) -> Empty {
        let mut all = Empty::default();
        for (begin, end) in self.spans.iter().map(|(begin, end)| (from.max(*begin), to.min(*end))) {
            let length = end.saturating_sub(begin);
            if length > Duration::ZERO {
                let (found, part) = (empty(begin, end), length.as_secs_f64() / (to - from).as_secs_f64());
                all = Empty { told: all.told + part * found.told, untold: all.untold + part * found.untold };
            }
        }
        all
    }
}

impl Prepared<'_> {
    /// Adds to the result the reasons why the run's figures cannot be trusted.
    pub fn distrust(&self, case: &Case, run: &Run, readings: &[Readings], result: &mut CaseResult) {
        for reason in run.invalid.iter().filter(|_| !case.overload) {
            result.invalid(reason.clone());
        }
        for (link, readings) in self.links.iter().zip(readings) {
            // Losses during the warm-up count as well, because they leave a shorter queue behind.
            let Some(window) = readings.window(Duration::ZERO, nanos(case.duration)) else {
                result.invalid(format!("link `{}`: its loop gave no readings", link.name));
                continue;
            };
            let (lost, came) = window.outside();
            if case.overload {
                continue;
            }
            if lost as f64 > LOST_OUTSIDE * came as f64 {
                result.invalid(format!(
                    "link `{}`: the host did not keep up: {lost} of {} frames were lost before or behind altq's queues",
                    link.name,
                    came + lost
                ));
            }
            let late = readings.last().map_or(Duration::ZERO, |last| nanos(last.work.latest));
            if late > clock::BOUND.max {
                result.invalid(format!(
                    "link `{}`: its loop ran {late:?} late (at most {:?})",
                    link.name,
                    clock::BOUND.max
                ));
            }
            // A router has a processor for its loop; here the hosts may have taken it.
            let held = readings.held(nanos(case.warmup), nanos(case.duration)).unwrap_or(0.0);
            if held > HELD {
                result.invalid(format!(
                    "link `{}`: for {:.0} % of the time its loop had no time left and waited for a processor, which \
                     the hosts had (processors {:.0} % busy)",
                    link.name,
                    held * 100.0,
                    run.busy * 100.0
                ));
            }
        }
    }

    /// Adds to the result each bulk flow that the host limited instead of the link. Bulk TCP keeps
    /// its class backlogged unless its queue tells it to slow down, or the host is too busy. Then
    /// the class is empty, other classes borrow its share, and the figures say more about the host
    /// than about the policy. Returns notes about classes that their queues emptied.
    pub fn distrust_starved(
        &self,
        case: &Case,
        run: &Run,
        readings: &[Readings],
        classes: &[Option<(usize, ClassId)>],
        result: &mut CaseResult,
    ) -> Vec<String> {
        let mut notes = Vec::new();
        if run.full.spans.is_empty() {
            return notes;
        }
        let flows = self.lowered.flows.iter().zip(&case.flows).zip(classes);
        for ((flow, own), class) in flows.filter(|((flow, _), _)| matches!(flow.kind, Kind::Bulk { .. })) {
            let Some((place, id)) = *class else { continue };
            let (Some(link), Some(readings)) = (self.links.get(place), readings.get(place)) else { continue };
            if self.is_behind_a_slower_link(case, own, link.spec.rate) {
                continue;
            }
            for (begin, end) in &flow.active {
                let (from, to) = ((*begin).max(nanos(case.warmup)), (*end).min(nanos(case.duration)));
                let empty = run.full.empty((from, to), |from, to| readings.empty(id as usize, from, to));
                let (name, share) = (&flow.name, (empty.told + empty.untold) * 100.0);
                let what = || format!("flow `{name}`: its class was empty {share:.0} % of the time");
                if empty.untold > EMPTY {
                    result.invalid(format!(
                        "{} while no processor was idle ({:.0} % busy in the whole run): the host held it back, not \
                         the link",
                        what(),
                        run.busy * 100.0
                    ));
                } else if empty.told + empty.untold > EMPTY {
                    notes.push(format!("{}, {}", what(), empty.why(run.busy)));
                }
            }
        }
        notes
    }

    /// Notes about links that did not carry their rate though a bulk flow should fill them, with
    /// the reason as far as the readings show it.
    pub fn unfilled(
        &self,
        case: &Case,
        run: &Run,
        readings: &[Readings],
        classes: &[Option<(usize, ClassId)>],
    ) -> Vec<String> {
        // Where the rate changes, or another wire limits it, the policy's rate says nothing.
        if !self.changes.is_empty() || !self.hosts.is_empty() {
            return Vec::new();
        }
        let (from, to) = (nanos(case.warmup), nanos(case.duration));
        let mut notes = Vec::new();
        for (place, (link, readings)) in self.links.iter().zip(readings).enumerate() {
            let flows = self.lowered.flows.iter().zip(&case.flows).zip(classes);
            let fills = |((flow, own), class): &((&Flow, &CaseFlow), &Option<(usize, ClassId)>)| {
                matches!(flow.kind, Kind::Bulk { .. })
                    && class.is_some_and(|(at, id)| at == place && link.ceiling(id) >= link.spec.rate)
                    && flow.active.iter().any(|(begin, end)| *begin <= from && *end >= to)
                    && !self.is_behind_a_slower_link(case, own, link.spec.rate)
            };
            let Some(((flow, _), _)) = flows.into_iter().find(fills) else { continue };
            let Some(window) = readings.window(from, to) else { continue };
            let Some((begin, end)) = window.edges(ROOT as usize) else { continue };
            let bits = (end.counters.sent_wire_bytes - begin.counters.sent_wire_bytes) as f64 * 8.0;
            let could = link.spec.rate.as_bit_s() as f64 * window.length().as_secs_f64();
            let late = readings.last().map_or(Duration::ZERO, |last| nanos(last.work.latest));
            let empty = readings.empty(ROOT as usize, from, to);
            notes.extend(unfilled(&flow.name, &link.name, bits / could.max(1.0), empty, run.busy, late));
        }
        notes
    }

    /// Whether a slower link of its path limits a flow, so that it does not fill this rate.
    fn is_behind_a_slower_link(&self, case: &Case, flow: &CaseFlow, rate: Rate) -> bool {
        let slower = |(link_at, back): &(usize, bool)| {
            let own = case.links.get(*link_at).and_then(|link| link.ways[usize::from(*back)].rate);
            *link_at != self.lowered.link_at && own.is_some_and(|own| own < rate)
        };
        sim::route(case, flow.from, flow.to).is_some_and(|way| way.iter().any(slower))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flow sends for ten seconds, in three of which no processor is idle. In one of these its
    /// class is always empty, in the others half of the time.
    #[test]
    fn a_class_is_starved_while_no_processor_is_idle() {
        let s = Duration::from_secs;
        let full = Full { spans: vec![(s(0), s(1)), (s(3), s(4)), (s(6), s(8))], ..Full::default() };
        let empty = |from: Duration, _: Duration| Empty { told: 0.0, untold: if from == s(3) { 1.0 } else { 0.5 } };
        assert_eq!(full.empty((s(2), s(12)), empty), Empty { told: 0.0, untold: 0.2 });
        assert_eq!(full.empty((s(8), s(12)), empty), Empty::default());
        assert_eq!(Full::default().empty((s(2), s(12)), empty), Empty::default());
    }

    /// Readings every 10 ms for 10 s: packets queued, and packets dropped so far.
    fn readings(queued: fn(u64) -> u64, signals: fn(u64) -> u64) -> Empty {
        let readings = (0..1000).map(|n| (Duration::from_millis(10 * n), queued(10 * n), signals(10 * n)));
        Empty::of(readings, Duration::from_secs(2), Duration::from_secs(10))
    }

    #[test]
    fn a_queue_that_drops_empties_its_class_itself() {
        // Empty for 200 ms of every second. A queue that drops just before tells the sender to slow
        // down; where nothing is dropped, the sender had nothing, or could not send it.
        let gaps = |ms: u64| u64::from(ms % 1000 >= 200);
        assert_eq!(readings(gaps, |ms| ms / 1000), Empty { told: 0.2, untold: 0.0 });
        assert_eq!(readings(gaps, |_| 7), Empty { told: 0.0, untold: 0.2 });
        // Drops at 2, 3 and 4 s explain the gaps, of 20 readings each, of 2, 3, 4 and 5 s, and the
        // reading at 6 s.
        let few = readings(gaps, |ms| (ms / 1000).min(4));
        assert!((few.told - 81.0 / 800.0).abs() < 1e-9 && (few.told + few.untold - 0.2).abs() < 1e-9, "{few:?}");
        assert_eq!(readings(|_| 5, |_| 0), Empty::default());
    }

    #[test]
    fn a_link_that_is_not_filled_is_remarked_with_the_reason() {
        let late = Duration::from_millis(3);
        let said = |share, told, untold| unfilled("f", "wan", share, Empty { told, untold }, 0.5, late);
        assert_eq!(said(0.995, 0.0, 0.0), None);
        let text = said(0.975, 0.03, 0.0).unwrap();
        assert!(text.starts_with("flow `f` should fill link `wan`, which carried only 97.5 % of its rate"), "{text}");
        assert!(text.contains("in 3.0 % of the readings, after its queue had dropped or marked packets"), "{text}");
        assert!(said(0.975, 0.0, 0.03).unwrap().contains("the hosts sent too little (processors 50 % busy)"));
        assert!(
            said(0.975, 0.0, 0.001)
                .unwrap()
                .contains("packets waited all the time, and altq's loop was up to 3ms late")
        );
    }
}
