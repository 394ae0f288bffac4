//! Reasons why the figures of a run cannot be trusted.

use std::time::Duration;

use altq_cases::case::Case;
use altq_cases::result::CaseResult;
use altq_engine::spec::ClassId;
use altq_simulator::sim;
use altq_traffic::clock;

use super::figures::nanos;
use super::generator::Kind;
use super::measure::Run;
use super::prepared::Prepared;
use super::shaper::Readings;

/// Share of the frames that may be lost outside altq's queues. If more are lost, the result says
/// more about the host than about the policy.
const LOST_OUTSIDE: f64 = 0.001;

/// If the processors were busy for at least this share of the time, the host may have limited a
/// flow.
const BUSY: f64 = 0.97;

/// If the link limits a bulk flow, the flow's class is empty in at most this share of the readings.
const EMPTY: f64 = 0.02;

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
        }
    }

    /// Adds to the result each bulk flow that the host limited instead of the link. Bulk TCP keeps
    /// its class backlogged unless the host is too busy. Then the class is empty, other classes
    /// borrow its share, and the figures say more about the host than about the policy.
    pub fn distrust_starved(
        &self,
        case: &Case,
        run: &Run,
        readings: &[Readings],
        classes: &[Option<(usize, ClassId)>],
        result: &mut CaseResult,
    ) {
        if run.busy < BUSY {
            return;
        }
        let flows = self.lowered.flows.iter().zip(&case.flows).zip(classes);
        for ((flow, own), class) in flows.filter(|((flow, _), _)| matches!(flow.kind, Kind::Bulk { .. })) {
            let Some((place, id)) = *class else { continue };
            let (Some(link), Some(readings)) = (self.links.get(place), readings.get(place)) else { continue };
            // A flow that is limited by a slower link of its path does not fill this one.
            let slower = |(link_at, back): &(usize, bool)| {
                let rate = case.links.get(*link_at).and_then(|link| link.ways[usize::from(*back)].rate);
                *link_at != self.lowered.link_at && rate.is_some_and(|rate| rate < link.spec.rate)
            };
            if sim::route(case, own.from, own.to).is_some_and(|way| way.iter().any(slower)) {
                continue;
            }
            for (begin, end) in &flow.active {
                let (from, to) = ((*begin).max(nanos(case.warmup)), (*end).min(nanos(case.duration)));
                let empty = readings.empty(id as usize, from, to);
                if empty > EMPTY {
                    result.invalid(format!(
                        "flow `{}`: its class was empty {:.0} % of the time while the processors were {:.0} % busy: \
                         the host held it back, not the link",
                        flow.name,
                        empty * 100.0,
                        run.busy * 100.0
                    ));
                }
            }
        }
    }
}
