//! Progress reports: the counters of both ends for the same interval.
//!
//! The server reports its counters once an interval, over the control connection. On a loaded link
//! a report waits in the same queue as the traffic, and comes late by as much. So the client notes
//! its own counters when an interval ends, and shows the interval when the server's report about it
//! has come: late, but never without the server's counters.

use std::collections::VecDeque;

use altq_dataplane::sketch::Sketch;
use altq_engine::units::Nanos;

use super::{FlowProgress, Progress};
use crate::report::{FlowReport, bit_s, per_second};

/// What progress reports are computed from.
pub(super) struct View {
    /// When the run began, in ns since 1970.
    began: Nanos,
    /// Time between two progress reports, in ns.
    interval: Nanos,
    flows: Vec<Side>,
    /// The server's reports of each session, oldest first.
    sessions: Vec<VecDeque<Theirs>>,
    /// The ends of intervals that are not shown yet, oldest first.
    waiting: VecDeque<Own>,
    /// When the interval before began, by the client's clock, and the client's counters then.
    before: (Nanos, Vec<FlowReport>),
}

/// Where a flow's counters are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    /// Its session.
    pub session: usize,
    /// Its place among the session's flows.
    pub place: usize,
    /// True if the server is the receiver.
    pub received_there: bool,
}

/// A report of the server.
struct Theirs {
    at: Nanos,
    flows: Vec<FlowReport>,
}

/// The client's counters at the end of an interval.
struct Own {
    /// The end of the interval as planned, in ns since the start.
    due: Nanos,
    /// When the counters were read.
    at: Nanos,
    flows: Vec<(FlowReport, Sketch)>,
}

impl View {
    /// Nothing has been counted yet. `sessions` is their number.
    pub fn new(began: Nanos, interval: Nanos, sessions: usize, flows: Vec<Side>) -> View {
        let none = vec![FlowReport::default(); flows.len()];
        let start = |count: &usize| Theirs { at: 0, flows: vec![FlowReport::default(); *count] };
        let counts = (0..sessions).map(|session| flows.iter().filter(|flow| flow.session == session).count());
        let sessions = counts.map(|count| VecDeque::from([start(&count)])).collect();
        View { began, interval: interval.max(1), flows, sessions, waiting: VecDeque::new(), before: (0, none) }
    }

    /// Takes a report of the server: its counters `at` ns after its start.
    pub fn theirs(&mut self, session: usize, at: Nanos, flows: Vec<FlowReport>) {
        if let Some(reports) = self.sessions.get_mut(session)
            && reports.back().is_none_or(|last| last.at <= at)
        {
            reports.push_back(Theirs { at, flows });
        }
    }

    /// Takes the client's counters, read at `at` for the interval that ends at `due`. The sketches
    /// are the times of that interval.
    pub fn own(&mut self, due: Nanos, at: Nanos, flows: Vec<(FlowReport, Sketch)>) {
        self.waiting.push_back(Own { due, at, flows });
    }

    /// The next interval that can be shown: the server has reported about it. With `over`, no more
    /// reports come, and every interval is shown with what is known.
    pub fn next(&mut self, over: bool) -> Option<Progress> {
        let due = self.waiting.front()?.due;
        let begins = due.saturating_sub(self.interval / 2);
        // A session without flows reports nothing.
        let come =
            |reports: &VecDeque<Theirs>| reports.back().is_some_and(|last| last.at >= begins || last.flows.is_empty());
        if !over && !self.sessions.iter().all(come) {
            return None;
        }
        let own = self.waiting.pop_front()?;
        for reports in &mut self.sessions {
            // The last report before the interval's own is the one that it is compared with.
            while reports.get(1).is_some_and(|second| second.at < begins) {
                reports.pop_front();
            }
        }
        let (since, had) =
            std::mem::replace(&mut self.before, (own.at, own.flows.iter().map(|(now, _)| *now).collect()));
        let mut flows = Vec::with_capacity(self.flows.len());
        for ((side, (ours, recent)), had) in self.flows.iter().zip(own.flows).zip(had) {
            let reports = self.sessions.get(side.session);
            let report = |n: usize| Some((reports?.get(n)?.at, *reports?.get(n)?.flows.get(side.place)?));
            let (old, new) = (report(0), report(1));
            // From when to when, and the receiver's counters then.
            let counted = match side.received_there {
                true => old.zip(new),
                false => Some(((since, had), (own.at, ours))),
            };
            let counted = counted.filter(|((from, _), (to, _))| to > from);
            flows.push(FlowProgress {
                counts: ours.with(new.or(old).map_or(FlowReport::default(), |(_, counts)| counts)),
                rate_bit_s: counted
                    .map(|((from, old), (to, new))| bit_s(new.bytes.saturating_sub(old.bytes), to - from)),
                per_second: counted
                    .map(|((from, old), (to, new))| per_second(new.received.saturating_sub(old.received), to - from)),
                recent,
            });
        }
        Some(Progress { at: own.due, unix: self.began.saturating_add(own.due), flows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    fn bytes(bytes: u64) -> FlowReport {
        FlowReport { bytes, ..FlowReport::default() }
    }

    fn view() -> View {
        let side = |received_there, place| Side { session: 0, place, received_there };
        View::new(0, 1000 * MS, 1, vec![side(true, 0), side(false, 1)])
    }

    /// The rates of both flows of the next interval, in bit/s, and its end in ms.
    fn shown(view: &mut View, over: bool) -> Option<(u64, Vec<Option<u64>>)> {
        view.next(over).map(|progress| (progress.at / MS, progress.flows.iter().map(|flow| flow.rate_bit_s).collect()))
    }

    fn own(view: &mut View, second: u64, received: u64) {
        let flows = vec![(bytes(0), Sketch::default()), (bytes(received), Sketch::default())];
        view.own(second * 1000 * MS, second * 1000 * MS, flows);
    }

    /// Reports come half a second late, as through a full queue: every interval has both rates.
    #[test]
    fn a_late_report_is_waited_for() {
        let mut view = view();
        own(&mut view, 1, 250);
        assert_eq!(shown(&mut view, false), None, "the server has not reported yet");
        own(&mut view, 2, 500);
        view.theirs(0, 1010 * MS, vec![bytes(1010), bytes(0)]);
        assert_eq!(shown(&mut view, false), Some((1000, vec![Some(8000), Some(2000)])));
        assert_eq!(shown(&mut view, false), None);
        view.theirs(0, 2005 * MS, vec![bytes(1010 + 1990), bytes(0)]);
        // 1990 bytes in 995 ms, by the server's own clock.
        assert_eq!(shown(&mut view, false), Some((2000, vec![Some(16_000), Some(2000)])));
        assert_eq!(shown(&mut view, true), None);
    }

    /// A server that was held up reports about two intervals at once: both have the mean rate.
    #[test]
    fn a_report_that_is_missing_leaves_no_gap() {
        let mut view = view();
        (1..=3).for_each(|second| own(&mut view, second, 250 * second));
        view.theirs(0, 1000 * MS, vec![bytes(1000), bytes(0)]);
        view.theirs(0, 3000 * MS, vec![bytes(5000), bytes(0)]);
        let rates: Vec<_> = (0..3).map(|_| shown(&mut view, false).unwrap().1[0].unwrap()).collect();
        assert_eq!(rates, [8000, 16_000, 16_000]);
    }

    /// At the end, what the server did not report is unknown, and not 0.
    #[test]
    fn without_a_report_a_rate_is_unknown() {
        let mut view = view();
        own(&mut view, 1, 250);
        view.theirs(0, 1000 * MS, vec![bytes(1000), bytes(0)]);
        own(&mut view, 2, 500);
        assert_eq!(shown(&mut view, true), Some((1000, vec![Some(8000), Some(2000)])));
        let last = view.next(true).unwrap();
        assert_eq!((last.flows[0].rate_bit_s, last.flows[0].counts.bytes), (None, 1000));
        assert_eq!((last.flows[1].rate_bit_s, last.flows[1].counts.bytes), (Some(2000), 500));
    }
}
