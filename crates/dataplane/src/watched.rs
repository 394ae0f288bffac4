//! What the classes of a link do, second by second, for those who watch. The thread that adds up
//! the loop's counts makes it.
//!
//! A loop counts its classes a few at a time (`census.rs`). The counters, waiting times and flows
//! of one class are taken between the same two packets, so they agree exactly. Different classes
//! may be counted some turns of the loop apart.

use std::collections::BTreeMap;

use altq_engine::account::{Counters, DropReason};
use altq_engine::sketch::{Packed, Sketch};
use altq_engine::spec::ClassId;
use altq_engine::units::{Nanos, SECOND};
use altq_monitor::departures::COUNTERS;
use altq_monitor::{FlowKey, Summary};

use crate::stats::{Counts, Own, Report, Snapshot};

/// What the classes of a link did in about a second.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The link's name.
    pub link: String,
    /// When it began, on the loop's clock.
    pub from: Nanos,
    /// When it ended.
    pub to: Nanos,
    /// By class number: the counters since the start, including those of all classes below.
    pub counters: Vec<Counters>,
    /// For classes with drops: drops since the start by reason, including those of all classes
    /// below.
    pub dropped: BTreeMap<ClassId, Vec<(DropReason, u64)>>,
    /// By class number: how often a class was over its limit, if its scheduler counts that.
    pub overlimits: Vec<Option<u64>>,
    /// Packets dropped since the start because they had no class.
    pub unclassified: u64,
    /// For classes that sent packets: how long these waited, without packets of classes below.
    pub delays: Vec<(ClassId, Packed)>,
    /// The flows of the same packets.
    pub flows: Vec<(ClassId, Summary<FlowKey>)>,
    /// For how long packets of classes waited ([`Own::backlogged`]), of classes with such a time.
    pub backlogged: Vec<(ClassId, Nanos)>,
    /// How late the loop's timers were.
    pub late: Packed,
}

/// Makes seconds of the reports of one link's loop.
#[derive(Debug, Default)]
pub(crate) struct Seconds {
    /// When the last second ended.
    since: Option<Nanos>,
    /// When the last count began.
    counted: Nanos,
    delays: BTreeMap<ClassId, Vec<Packed>>,
    flows: BTreeMap<ClassId, Vec<Summary<FlowKey>>>,
    backlogged: BTreeMap<ClassId, Nanos>,
    late: Vec<Packed>,
}

impl Seconds {
    /// Takes a report of the loop. Returns a second when it is over.
    pub fn take(&mut self, report: &mut Report) -> Option<Seen> {
        match report {
            Report::Counts(counts) => self.take_counts(counts),
            Report::Whole(snapshot) => self.take_whole(snapshot),
        }
    }

    fn take_counts(&mut self, counts: &mut Counts) -> Option<Seen> {
        for class in &counts.removed {
            self.delays.remove(class);
            self.flows.remove(class);
            self.backlogged.remove(class);
        }
        for (class, own) in (0..).zip(&counts.classes) {
            if own.sojourn.count() > 0 {
                self.delays.entry(class).or_default().push(own.sojourn.clone());
            }
            if own.backlogged > 0 {
                *self.backlogged.entry(class).or_default() += own.backlogged;
            }
        }
        self.late.push(counts.late.clone());
        for (class, summary) in counts.flows.summaries() {
            self.flows.entry(class).or_default().push(summary);
        }
        let from = self.over(counts.began, counts.at, counts.last)?;
        let mut scratch = Sketch::default();
        let mut merged = |mut pieces: Vec<Packed>| match pieces.pop() {
            Some(only) if pieces.is_empty() => only,
            last => {
                scratch.clear();
                pieces.iter().chain(&last).for_each(|piece| scratch.merge_packed(piece));
                scratch.packed()
            }
        };
        let delays = std::mem::take(&mut self.delays).into_iter();
        let delays = delays.map(|(class, pieces)| (class, merged(pieces))).collect();
        let late = merged(std::mem::take(&mut self.late));
        let flows = std::mem::take(&mut self.flows).into_iter();
        let flows = flows.map(|(class, mut pieces)| match (pieces.len(), pieces.pop()) {
            (1, Some(only)) => (class, only),
            (_, last) => (class, Summary::merged(pieces.iter().chain(&last), COUNTERS)),
        });
        let flows = flows.collect();
        let (counters, dropped) = with_those_below(&counts.classes);
        Some(Seen {
            link: counts.link.clone(),
            from,
            to: counts.at,
            counters,
            dropped,
            overlimits: counts.classes.iter().map(|own| own.overlimits).collect(),
            unclassified: counts.unclassified.0,
            delays,
            flows,
            backlogged: std::mem::take(&mut self.backlogged).into_iter().collect(),
            late,
        })
    }

    /// Counts of a link that the kernel executes have neither flows nor waiting times.
    fn take_whole(&mut self, snapshot: &Snapshot) -> Option<Seen> {
        let from = self.over(snapshot.began, snapshot.at, snapshot.last)?;
        let dropped = (0..).zip(&snapshot.classes).filter(|(_, class)| !class.dropped.is_empty());
        Some(Seen {
            link: snapshot.link.clone(),
            from,
            to: snapshot.at,
            counters: snapshot.classes.iter().map(|class| class.counters).collect(),
            dropped: dropped.map(|(class, stat)| (class, stat.dropped.clone())).collect(),
            overlimits: snapshot.classes.iter().map(|class| class.overlimits).collect(),
            unclassified: snapshot.unclassified.0,
            ..Seen::default()
        })
    }

    /// If a second is over with a count at `at`, when it began. A second ends with the count that
    /// is nearest to its end, so a count that comes a little early does not make it two seconds
    /// long.
    fn over(&mut self, began: Nanos, at: Nanos, last: bool) -> Option<Nanos> {
        let since = *self.since.get_or_insert(began);
        let step = at.saturating_sub(std::mem::replace(&mut self.counted, at).max(since));
        let over = at.saturating_sub(since).saturating_add(step / 2) >= SECOND || last && at > since;
        over.then(|| {
            self.since = Some(at);
            since
        })
    }
}

/// Packets dropped, by class and reason.
type Dropped = BTreeMap<ClassId, Vec<(DropReason, u64)>>;

/// Counters and drops of classes, including those of all classes below.
fn with_those_below(classes: &[Own]) -> (Vec<Counters>, Dropped) {
    let mut sums: Vec<Counters> = classes.iter().map(|own| own.counters).collect();
    let mut dropped = Dropped::new();
    for (class, own) in classes.iter().enumerate() {
        let mut above = own.parent;
        add_reasons(&mut dropped, class as ClassId, &own.dropped);
        // At most as many steps as there are classes: there are no circles.
        for _ in 0..classes.len() {
            let Some(parent) = above.filter(|parent| *parent as usize != class) else { break };
            let Some(sum) = sums.get_mut(parent as usize) else { break };
            *sum += own.counters;
            add_reasons(&mut dropped, parent, &own.dropped);
            above = classes.get(parent as usize).and_then(|own| own.parent);
        }
    }
    // If a scheduler counts what a class borrows, that already includes the classes below it.
    for (sum, own) in sums.iter_mut().zip(classes) {
        sum.borrowed_bytes = own.borrowed.unwrap_or(sum.borrowed_bytes);
    }
    (sums, dropped)
}

fn add_reasons(dropped: &mut BTreeMap<ClassId, Vec<(DropReason, u64)>>, class: ClassId, reasons: &[(DropReason, u64)]) {
    if reasons.is_empty() {
        return;
    }
    let sums = dropped.entry(class).or_default();
    for (reason, packets) in reasons {
        match sums.iter_mut().find(|(of, _)| of == reason) {
            Some((_, sum)) => *sum += packets,
            None => sums.push((*reason, *packets)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts of a link with a class `1` and, below it, `2`, which has sent so many packets.
    fn counts(at: Nanos, sent: u64, waited: &[Nanos]) -> Report {
        let mut sketch = Sketch::default();
        waited.iter().for_each(|time| sketch.add(*time));
        let own = |parent, sent_packets| Own {
            parent,
            counters: Counters { sent_packets, sent_bytes: sent_packets * 100, ..Counters::default() },
            ..Own::default()
        };
        let leaf = Own {
            sojourn: sketch.packed(),
            dropped: vec![(DropReason::QueueFull, 3)],
            // Some time for each packet, and a timer that was as late.
            backlogged: 1000 * waited.len() as Nanos,
            ..own(Some(1), sent)
        };
        let mut late = Sketch::default();
        waited.iter().for_each(|time| late.add(*time));
        Report::Counts(Counts {
            link: "wan".into(),
            at,
            began: 0,
            last: false,
            shown: true,
            classes: vec![own(None, 0), own(Some(0), 1), leaf],
            removed: Vec::new(),
            unclassified: (0, 0),
            edge: Default::default(),
            work: Default::default(),
            late: late.packed(),
            flows: Default::default(),
        })
    }

    #[test]
    fn counts_of_parts_of_a_second_are_one_second() {
        let mut seconds = Seconds::default();
        const MS: Nanos = 1_000_000;
        // Counts each 300 ms: 0.9 s is nearer to a second than 1.2 s.
        assert!(seconds.take(&mut counts(300 * MS, 5, &[10, 30])).is_none());
        assert!(seconds.take(&mut counts(600 * MS, 6, &[70])).is_none());
        let seen = seconds.take(&mut counts(900 * MS, 7, &[])).unwrap();
        assert_eq!((seen.from, seen.to), (0, 900 * MS));
        let sent: Vec<u64> = seen.counters.iter().map(|counters| counters.sent_packets).collect();
        assert_eq!(sent, [8, 8, 7]);
        let delays: Vec<_> = seen.delays.iter().map(|(class, delay)| (*class, delay.count(), delay.max())).collect();
        assert_eq!(delays, [(2, 3, 70)]);
        assert_eq!((&seen.backlogged, seen.late.count(), seen.late.max()), (&vec![(2, 3000)], 3, 70));
        for class in 0..3 {
            assert_eq!(seen.dropped.get(&class).map(Vec::as_slice), Some(&[(DropReason::QueueFull, 3)][..]));
        }
        // A count each second, some of them a little early.
        for (at, from) in [(1899, 900), (2901, 1899), (3900, 2901)] {
            let seen = seconds.take(&mut counts(at * MS, 7, &[])).unwrap();
            assert_eq!((seen.from, seen.to, seen.delays.len()), (from * MS, at * MS, 0));
            assert!(seen.backlogged.is_empty() && seen.late.count() == 0);
        }
    }
}
