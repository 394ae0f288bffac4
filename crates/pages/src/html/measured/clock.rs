//! The time axes of runs. Runs that were measured together share one axis, by their clocks of the
//! day, so that what a class did stands below what a flow felt.

use crate::html::text;
use crate::measured::{Measured, Shaping, Traffic};

/// When everything was measured.
pub struct Clock {
    /// The beginning of the first run, in ns since 1970, if it is known.
    began: Option<u64>,
    /// Set if all runs share an axis: its length, in ns.
    shared: Option<u64>,
}

/// The time axis of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// What is added to a time of the run in ns to get the time on the axis.
    add: i128,
    /// The end of the axis, in seconds.
    pub end: f64,
}

impl Span {
    /// A time of the run, in ns, as seconds on the axis.
    pub fn at(&self, ns: u64) -> f64 {
        (i128::from(ns) + self.add).max(0) as f64 / 1e9
    }
}

/// A run's own times, in ns: from, to, and what is added to them to get the time since 1970.
#[derive(Clone, Copy)]
struct Own {
    from: u64,
    to: u64,
    unix: Option<i128>,
}

fn of_traffic(run: &Traffic) -> Own {
    let of_line = run.lines.first().and_then(|line| Some(i128::from(line.unix_ns?) - i128::from(line.at_ns)));
    let of_result = run.result.as_ref().and_then(|result| result.began_unix_ns).map(i128::from);
    let last = run.lines.last().map(|line| line.at_ns);
    let to = last.or(run.result.as_ref().map(|result| result.ran_ns)).unwrap_or(0);
    Own { from: 0, to, unix: of_line.or(of_result) }
}

fn of_shaping(run: &Shaping) -> Own {
    let links = || run.lines.iter().flat_map(|line| &line.links);
    let from = links().next().map_or(0, |link| link.at_ns.saturating_sub(link.interval_ns));
    let to = links().last().map_or(0, |link| link.at_ns);
    Own { from, to, unix: links().next().and_then(|link| Some(i128::from(link.unix_ns?) - i128::from(link.at_ns))) }
}

impl Clock {
    /// The clock of these runs. They share an axis if each overlaps with another one, and none is
    /// shorter than half of the axis.
    pub fn of(measured: &Measured) -> Clock {
        let owns = measured.traffic.iter().map(of_traffic).chain(measured.shaping.iter().map(of_shaping));
        let owns: Vec<Own> = owns.collect();
        let day = |own: &Own| {
            let unix = own.unix?;
            Some((u64::try_from(unix + i128::from(own.from)).ok()?, u64::try_from(unix + i128::from(own.to)).ok()?))
        };
        let Some(mut days) = owns.iter().map(day).collect::<Option<Vec<(u64, u64)>>>().filter(|days| !days.is_empty())
        else {
            return Clock { began: None, shared: None };
        };
        days.sort_unstable();
        let began = days.first().map_or(0, |(from, _)| *from);
        let (mut end, mut together) = (began, true);
        for (from, to) in &days {
            together &= *from <= end;
            end = end.max(*to);
        }
        let shortest = days.iter().map(|(from, to)| to - from).min().unwrap_or(0);
        let shared = (together && shortest >= (end - began) / 2).then_some(end - began);
        Clock { began: Some(began), shared }
    }

    fn span(&self, own: Own) -> Span {
        match (self.began, self.shared, own.unix) {
            (Some(began), Some(length), Some(unix)) => Span { add: unix - i128::from(began), end: length as f64 / 1e9 },
            _ => Span { add: -i128::from(own.from), end: (own.to - own.from) as f64 / 1e9 },
        }
    }

    /// The axis of a run of `altq traffic`.
    pub fn traffic(&self, run: &Traffic) -> Span {
        self.span(of_traffic(run))
    }

    /// The axis of a run of `altq run`.
    pub fn shaping(&self, run: &Shaping) -> Span {
        self.span(of_shaping(run))
    }

    /// The beginning as a date: `2026-11-23 01:53:42 UTC`.
    pub fn date(&self) -> Option<String> {
        Some(text::date(self.began?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_overlap_share_an_axis() {
        let own = |from, to, unix| Own { from, to, unix };
        let clock = Clock { began: Some(1000), shared: Some(20_000_000_000) };
        // A host whose monotonic clock began at 500, and a run that began 3 s after the first.
        let span = clock.span(own(500, 20_000_000_500, Some(500)));
        assert_eq!((span.at(500), span.at(2_000_000_500), span.end), (0.0, 2.0, 20.0));
        assert_eq!(clock.span(own(0, 1, Some(3_000_001_000))).at(0), 3.0);
        // Without a time of the day a run has its own axis.
        assert_eq!(clock.span(own(7, 1_000_000_007, None)), Span { add: -7, end: 1.0 });
    }
}
