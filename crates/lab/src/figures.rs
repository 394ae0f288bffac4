//! Computes a result's rows and measured values from the readings of a run.

use std::time::Duration;

use altq_cases::case::{Case, ClassName, Links, Measure, Probe, Subject};
use altq_cases::report::{ClassReport, names, rate};
use altq_cases::result::{FlowResult, Percentiles, Traffic};
use altq_cases::standstill::{Standstill, Watch};
use altq_cases::statistics::{Delay, percentile};
use altq_config::Link;
use altq_engine::spec::ClassId;
use altq_traffic::meter::Reading;
use altq_traffic::udp;

use super::generator::{Flow, Kind};
use super::measure::Run;
use super::prepared::links;
use super::readings::{Readings, Window};

/// The readings of a run, with what is needed to interpret them.
pub struct Figures<'a> {
    /// The case.
    pub case: &'a Case,
    /// Its flows, as the generators ran them.
    pub flows: &'a [Flow],
    /// Readings of the flows' meters.
    pub run: &'a Run,
    /// The shaped links and their readings; empty if the kernel's HTB stood in altq's place.
    pub links: &'a [(Link, Readings)],
    /// Rates of the links' wires in bit/s, in the order of `links`.
    pub wires: &'a [u64],
    /// True if the length that a packet has on the shaped wire, with framing, is known.
    pub framed: bool,
}

/// How often meters are read to know when something was delivered.
const OFTEN: Duration = Duration::from_millis(250);

/// The moments at which meters must be read so that a flow that stands still is told from one that
/// does not: what is found is at most [`OFTEN`] longer than what was.
pub fn deliveries(case: &Case) -> impl Iterator<Item = Duration> {
    let end = nanos(case.duration);
    (1_u32..).map_while(move |at| OFTEN.checked_mul(at).filter(|moment| *moment < end))
}

impl Figures<'_> {
    /// A flow's readings at the edges of a window, and the time between them.
    fn edges(&self, flow: usize, from: Duration, to: Duration) -> Option<(Reading, Reading, Duration)> {
        let (begin, end) = (self.run.at(from)?, self.run.at(to)?);
        Some((*begin.flows.get(flow)?, *end.flows.get(flow)?, end.at.checked_sub(begin.at)?))
    }

    /// Payload that a flow delivered in a window, in bit/s.
    pub fn goodput(&self, flow: usize, from: Duration, to: Duration) -> Option<u64> {
        let (begin, end, time) = self.edges(flow, from, to)?;
        Some(rate(end.bytes - begin.bytes, time.as_nanos() as u64))
    }

    fn transactions(&self, flow: usize, from: Duration, to: Duration) -> Option<f64> {
        let (begin, end, time) = self.edges(flow, from, to)?;
        Some((end.received - begin.received) as f64 / time.as_secs_f64())
    }

    fn times(&self, flow: usize, from: Duration, to: Duration) -> Vec<u64> {
        self.run
            .meters
            .get(flow)
            .map(|meter| meter.times(from.as_nanos() as u64, to.as_nanos() as u64))
            .unwrap_or_default()
    }

    fn datagrams(&self, flow: usize) -> bool {
        matches!(self.flows.get(flow).map(|flow| &flow.kind), Some(Kind::Datagrams(_)))
    }

    fn has_round_trips(&self, flow: usize) -> bool {
        self.flows.get(flow).is_some_and(|flow| flow.kind.has_round_trips())
    }

    /// The longest time for which a flow had something to send and nothing of it was delivered.
    /// Deliveries are known by the readings ([`deliveries`]); the last one before a reading is
    /// known to the nanosecond.
    fn standstill(&self, at: usize, flow: &Flow) -> Option<Standstill> {
        let mut watch = Watch::default();
        let span = |time: Duration| time.as_nanos() as u64;
        for (begin, end) in &flow.active {
            let end = span((*end).min(nanos(self.case.duration)));
            watch.begins(span(*begin));
            let mut before = (0, 0);
            for sample in &self.run.samples {
                let Some(reading) = sample.flows.get(at) else { continue };
                let counts = (reading.bytes, reading.received);
                if std::mem::replace(&mut before, counts) != counts && (span(*begin)..end).contains(&reading.last) {
                    watch.delivered(reading.last);
                }
            }
            watch.ends(end);
        }
        watch.longest()
    }

    /// The longest time that a packet of a flow's class waited in the whole run; of any class where
    /// the flow's is not known. If the class held packets while the flow stood still, and sent
    /// none, they waited for their turn all that time.
    pub fn longest_wait(&self, flow: &FlowResult) -> u64 {
        let stood = flow.standstill.map(|stood| (nanos(stood.from_ns), nanos(stood.to_ns)));
        let mut longest = 0;
        for (link, readings) in self.links {
            let window = readings.window(Duration::ZERO, nanos(self.case.duration));
            let still = stood.and_then(|(from, to)| readings.window(from, to));
            let own = flow.class.as_deref().map(|name| link.class(name));
            for id in (0..link.classes.len()).filter(|id| own.is_none_or(|own| own == Some(*id as u32))) {
                let held = still.as_ref().and_then(|still| still.edges(id)).is_some_and(|(begin, end)| {
                    end.counters.sent_packets == begin.counters.sent_packets && end.counters.queued_packets > 0
                });
                let waited = window.as_ref().map_or(0, |window| window.sojourn(id).max());
                let held = flow.standstill.filter(|_| held).map_or(0, |stood| stood.length());
                longest = longest.max(waited).max(held);
            }
        }
        longest
    }

    /// One row per flow.
    pub fn flow_rows(&self, column: Option<&str>, classes: &[Option<(usize, ClassId)>]) -> Vec<FlowResult> {
        let names = self.classes();
        let (from, to) = (nanos(self.case.warmup), nanos(self.case.duration));
        let row = |(at, flow): (usize, &Flow)| {
            let mut times = self.times(at, from, to);
            let times = Percentiles::of(&mut times);
            let asks = self.has_round_trips(at);
            let counts =
                self.edges(at, from, to).filter(|_| self.datagrams(at)).map(|(begin, end, _)| end.fates(&begin));
            FlowResult {
                row: self.case.row.clone(),
                column: column.map(str::to_string),
                name: flow.name.clone(),
                class: classes.get(at).copied().flatten().map(|(link, class)| {
                    let name = names.class((link, class as usize));
                    names.written(link, name)
                }),
                goodput_bit_s: self.goodput(at, from, to).unwrap_or(0),
                rtt_ns: if asks { times } else { Percentiles::default() },
                transactions_per_s: if asks { self.transactions(at, from, to) } else { None },
                delay_ns: if counts.is_some() { times } else { Percentiles::default() },
                sent_packets: counts.map(|fates| fates.sent),
                received_packets: counts.map(|fates| fates.received),
                lost_packets: counts.map(|fates| fates.lost),
                under_way_packets: counts.map(|fates| fates.under_way),
                under_way_before_packets: counts.map_or(0, |fates| fates.under_way_before),
                traffic: self.case.flows.get(at).map(|flow| Traffic::of(self.case, flow)),
                gaps: self.run.meters.get(at).and_then(|meter| meter.gaps()),
                standstill: if self.datagrams(at) { None } else { self.standstill(at, flow) },
            }
        };
        self.flows.iter().enumerate().map(row).collect()
    }

    /// One row per class of a link.
    pub fn class_rows(&self, link: &Link, readings: &Readings) -> Vec<ClassReport> {
        let Some(window) = readings.window(nanos(self.case.warmup), nanos(self.case.duration)) else {
            return Vec::new();
        };
        let names = names(link);
        let row = |(id, (name, parent)): (usize, &(String, Option<ClassId>))| {
            let (begin, end) = window.edges(id)?;
            let (begin, end) = (&begin.counters, &end.counters);
            if names.len() > super::MANY && end.received_packets() == begin.received_packets() {
                return None;
            }
            let sent_bytes = end.sent_bytes - begin.sent_bytes;
            let sojourn = window.sojourn(id);
            let seen = |value: u64| (sojourn.count() > 0).then_some(value);
            Some(ClassReport {
                name: name.clone(),
                parent: parent.and_then(|parent| names.get(parent as usize)).map(|(name, _)| name.clone()),
                arrived_packets: end.received_packets() - begin.received_packets(),
                arrived_bytes: end.received_bytes() - begin.received_bytes(),
                sent_packets: end.sent_packets - begin.sent_packets,
                sent_bytes,
                dropped_packets: end.dropped_packets - begin.dropped_packets,
                dropped_bytes: end.dropped_bytes - begin.dropped_bytes,
                queued_packets: end.queued_packets,
                rate_bit_s: rate(sent_bytes, window.length().as_nanos() as u64),
                borrowed_bytes: end.borrowed_bytes - begin.borrowed_bytes,
                delay_ns: Delay {
                    mean: seen(sojourn.mean()),
                    p50: seen(sojourn.percentile(50.0)),
                    p99: seen(sojourn.percentile(99.0)),
                    max: seen(sojourn.max()),
                },
            })
        };
        names.iter().enumerate().filter_map(row).collect()
    }

    /// Rate at which the first link charged a class in a window, in bit/s.
    pub fn charged_rate(&self, class: u32, from: Duration, to: Duration) -> Option<u64> {
        let window = self.links.first()?.1.window(from, to)?;
        Some(rate(charged(&window, class as usize)?, window.length().as_nanos() as u64))
    }

    /// The classes of the links.
    fn classes(&self) -> Links<'_> {
        links(self.links.iter().map(|(link, _)| link))
    }

    /// A class that the case names, and its link, by their places.
    fn find(&self, name: &ClassName) -> Option<(usize, usize)> {
        self.classes().find(&name.text).ok()
    }

    /// Bytes that its link charged a class from the end of the warm-up to the end of the run.
    pub fn charged_bytes(&self, link: &Link, readings: &Readings, class: &str) -> Option<u64> {
        let window = readings.window(nanos(self.case.warmup), nanos(self.case.duration))?;
        charged(&window, link.class(class)? as usize)
    }

    /// The measured value of a probe, in its measure's unit; `None` if there was nothing to
    /// measure.
    pub fn measured(&self, probe: &Probe) -> Option<f64> {
        let (from, to) = (nanos(probe.from), nanos(probe.to));
        match &probe.subject {
            Subject::Class(name) => self.of_class(name, probe, from, to),
            // A flow that does not run in this row has no figures.
            Subject::Flow(flow) if self.case.flows.get(*flow).is_none_or(|flow| flow.active.is_empty()) => None,
            Subject::Flow(flow) => self.of_flow(*flow, probe, from, to),
            Subject::Figures => None,
        }
    }

    fn of_class(&self, name: &ClassName, probe: &Probe, from: Duration, to: Duration) -> Option<f64> {
        let (place, class) = self.find(name)?;
        let (link, readings) = self.links.get(place)?;
        let window = readings.window(from, to)?;
        let (begin, end) = window.edges(class)?;
        let delay = |per_cent: f64| {
            Some(window.sojourn(class)).filter(|s| s.count() > 0).map(|s| s.percentile(per_cent) as f64)
        };
        match probe.measure {
            Measure::Share => {
                let whole = match &probe.of {
                    Some(of) => {
                        let (link, class) = self.find(of)?;
                        charged(&self.links.get(link)?.1.window(from, to)?, class)? as f64
                    }
                    None => link.spec.rate.as_bit_s() as f64 * window.length().as_secs_f64() / 8.0,
                };
                (whole > 0.0).then(|| charged(&window, class).map(|own| own as f64 / whole))?
            }
            Measure::Rate => {
                let sent = end.counters.sent_bytes - begin.counters.sent_bytes;
                Some(rate(sent, window.length().as_nanos() as u64) as f64)
            }
            Measure::Packets => {
                Some((end.counters.sent_packets - begin.counters.sent_packets) as f64 / window.length().as_secs_f64())
            }
            Measure::Marked => {
                let marked = end.counters.marked_packets - begin.counters.marked_packets;
                let sent = end.counters.sent_packets - begin.counters.sent_packets;
                (sent > 0).then(|| marked as f64 / sent as f64)
            }
            Measure::Queue => window.queued(class),
            Measure::AnswerMax => window.longest().map(|longest| longest.as_nanos() as f64),
            Measure::Reach => {
                let (level, over) = (probe.level.as_bit_s(), nanos(probe.over));
                Some(readings.reached(class, (from, to), level, over)?.as_nanos() as f64)
            }
            Measure::WireRate | Measure::Cells | Measure::WireShare if self.framed => {
                let bits = (end.wire_bytes - begin.wire_bytes) as f64 * 8.0 / window.length().as_secs_f64();
                Some(match probe.measure {
                    Measure::Cells => bits / 424.0,
                    Measure::WireShare => bits / *self.wires.get(place)? as f64,
                    _ => bits,
                })
            }
            Measure::Drops => Some((end.counters.dropped_packets - begin.counters.dropped_packets) as f64),
            Measure::Loss => {
                let dropped = end.counters.dropped_packets - begin.counters.dropped_packets;
                let offered = dropped + end.counters.sent_packets - begin.counters.sent_packets;
                (offered > 0).then(|| dropped as f64 / offered as f64)
            }
            Measure::DelayP50 => delay(50.0),
            Measure::DelayP99 => delay(99.0),
            Measure::DelayMax => Some(window.sojourn(class)).filter(|s| s.count() > 0).map(|s| s.max() as f64),
            _ => None,
        }
    }

    fn of_flow(&self, flow: usize, probe: &Probe, from: Duration, to: Duration) -> Option<f64> {
        let measure = probe.measure;
        if !measured(measure, self.flows.get(flow)?, (probe.from, probe.to) == (self.case.warmup, self.case.duration)) {
            return None;
        }
        let gaps = || self.run.meters.get(flow).and_then(|meter| meter.gaps());
        // Modes of the gaps, the one with the largest share first.
        let mode = |nth: usize| {
            let mut modes = gaps()?.modes;
            modes.sort_by(|a, b| b.share.total_cmp(&a.share));
            modes.into_iter().nth(nth)
        };
        let times = |percent: u32| percentile(&mut self.times(flow, from, to), percent).map(|time| time as f64);
        match measure {
            Measure::Goodput => self.goodput(flow, from, to).map(|rate| rate as f64),
            Measure::Packets => {
                let (begin, end, time) = self.edges(flow, from, to)?;
                Some((end.received - begin.received) as f64 / time.as_secs_f64())
            }
            Measure::Offered => {
                let (begin, end, time) = self.edges(flow, from, to)?;
                Some((end.sent - begin.sent) as f64 / time.as_secs_f64())
            }
            Measure::Rate => {
                let (begin, end, time) = self.edges(flow, from, to)?;
                let headers = udp::headers(self.flows.get(flow)?.from.is_ipv4()) as u64;
                let bytes = end.bytes - begin.bytes + headers * (end.received - begin.received);
                Some(rate(bytes, time.as_nanos() as u64) as f64)
            }
            Measure::GapMean => gaps().map(|gaps| gaps.mean_ns as f64),
            Measure::GapDeviation => gaps().map(|gaps| gaps.deviation_ns as f64),
            Measure::GapMode => mode(0).map(|mode| mode.at_ns as f64),
            Measure::GapModeShare => mode(0).map(|mode| mode.share),
            Measure::GapSecondMode => mode(1).map(|mode| mode.at_ns as f64),
            Measure::Transactions if self.has_round_trips(flow) => self.transactions(flow, from, to),
            Measure::RttP50 if self.has_round_trips(flow) => times(50),
            Measure::RttP95 if self.has_round_trips(flow) => times(95),
            Measure::RttP99 if self.has_round_trips(flow) => times(99),
            Measure::DelayP50 if self.datagrams(flow) => times(50),
            Measure::DelayP99 if self.datagrams(flow) => times(99),
            Measure::DelayMax if self.datagrams(flow) => times(100),
            Measure::Loss if self.datagrams(flow) => {
                let (begin, end, _) = self.edges(flow, from, to)?;
                end.fates(&begin).loss()
            }
            _ => None,
        }
    }
}

/// Whether the lab can measure this of a flow. `whole`: the window is the whole run after the
/// warm-up.
pub fn measured(measure: Measure, flow: &Flow, whole: bool) -> bool {
    let (datagrams, numbered) = (matches!(flow.kind, Kind::Datagrams(_)), flow.flood.is_none());
    match measure {
        Measure::Goodput | Measure::HtbRatio => true,
        Measure::Transactions | Measure::RttP50 | Measure::RttP95 | Measure::RttP99 => flow.kind.has_round_trips(),
        // The lab does not count the segments of TCP.
        Measure::Rate | Measure::Packets | Measure::Offered | Measure::Loss => datagrams,
        Measure::DelayP50 | Measure::DelayP99 | Measure::DelayMax => datagrams && numbered,
        measure if measure.of_gaps() => datagrams && numbered && whole,
        _ => false,
    }
}

/// Bytes that the link charged a class for what it sent in a window.
fn charged(window: &Window<'_>, class: usize) -> Option<u64> {
    let (begin, end) = window.edges(class)?;
    Some(end.counters.sent_wire_bytes - begin.counters.sent_wire_bytes)
}

/// A case's time, in nanoseconds, as a `Duration`.
pub fn nanos(time: u64) -> Duration {
    Duration::from_nanos(time)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use altq_cases::case::CaseFile;

    use super::*;

    const CASE: &str = "name = 'c'\ndescription = 'd'\nduration = '120s'\n\
        policy = 'link wan { rate 2Mbit/s  scheduler fifo  class x { default } }'\n\
        hosts = [{ name = 'a' }, { name = 'b' }]\n\
        links = [{ name = 'wan', from = 'a', to = 'b', policy = 'wan' }]\n\
        flows = [{ name = 'f', kind = 'tcp_bulk', from = 'a', to = 'b' }]\n";

    /// What is found of a flow to which something is delivered every 100 ms, but for a time.
    fn found(case: &Case, silent: (u64, u64)) -> Option<u64> {
        let (mut watch, tenth) = (Watch::default(), 100_000_000);
        watch.begins(0);
        let (mut last, mut before) = (0, 0);
        for moment in deliveries(case).map(|moment| moment.as_nanos() as u64) {
            let delivered = (0..=moment / tenth).map(|n| n * tenth);
            let reading = delivered.filter(|at| !(silent.0 + 1..silent.1).contains(at)).max().unwrap_or(0);
            last = reading.max(last);
            if std::mem::replace(&mut before, last) != last {
                watch.delivered(last);
            }
        }
        watch.ends(case.duration);
        watch.longest().map(|stood| stood.length())
    }

    #[test]
    fn who_stands_still_is_told_from_who_does_not() {
        let file = CaseFile::parse(CASE, Path::new("c.toml")).unwrap_or_else(|error| panic!("{error}"));
        let case = &file.runs[0].case;
        assert_eq!(found(case, (0, 0)), None);
        // From 30 s to 36 s: as long as it was, or up to 250 ms longer.
        let length = found(case, (30_000_000_000, 36_000_000_000)).unwrap();
        assert!((6_000_000_000..=6_250_000_000).contains(&length), "{length}");
    }
}
