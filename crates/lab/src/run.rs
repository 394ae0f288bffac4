//! One run of a column: with altq between the hosts, then with kernel HTB if asked for, then the
//! engine alone; and the column's result.

use std::borrow::Cow;
use std::cell::RefCell;
use std::time::Duration;

use altq_cases::case::{Case, Expectation, Measure, Probe, Subject};
use altq_cases::result::{CaseResult, ClassResult, FlowResult, PeerResult, PeerRow, World};
use altq_cases::standstill;
use altq_cases::stat::LinkStat;
use altq_cases::table::{self, ColumnResult};
use altq_config::{Link, Promises};
use altq_engine::Change;
use altq_engine::spec::{ClassId, Timer};
use anyhow::{Context, anyhow};

use super::figures::{self, Figures, nanos};
use super::generator::Kind;
use super::measure::{self, Run, TimedAction};
use super::prepared::{Prepared, of_engine};
use super::readings::Readings;
use super::shaper::{Around, Shaper};
use super::topology::{Side, Topology, Unsupported};
use super::{engine, kernel_htb, peer, prepared, series};
use crate::networked::{Direct, Network};

/// The result of a run with kernel HTB in altq's place.
struct Peer {
    /// Why its figures cannot be trusted.
    invalid: Vec<String>,
    /// As [`Run::disturbed`].
    disturbed: bool,
    result: PeerResult,
}

/// The readings of a run with altq between the hosts.
struct Middle {
    run: Run,
    readings: Vec<Readings>,
    /// The links' counters at the end of the run, if a probe asks for them.
    stats: Vec<LinkStat>,
}

/// The measured cost of a link's engine.
struct Measured<'a> {
    link: &'a Link,
    memory: Option<f64>,
    times: Option<engine::Times>,
}

impl Prepared<'_> {
    /// True if the column also runs through kernel HTB: because `peer` asks for it, or because an
    /// expectation does.
    pub fn has_peer(&self, case: &Case, peer: bool) -> bool {
        peer || self.asked(case).any(|probe| probe.measure == Measure::HtbRatio)
    }

    /// Runs the column; with `peer` also through kernel HTB. A series over time has at most `bins`
    /// bins.
    pub fn run(&self, case: &Case, peer: bool, bins: u64) -> anyhow::Result<ColumnResult<'static>> {
        let mut own = CaseResult::new(&case.name, World::Lab, 0);
        let result = &mut own;
        // Reasons to distrust the figures are kept apart from the notes.
        let mut doubts = CaseResult::new(&case.name, World::Lab, 0);
        let title = match &self.column.name {
            Some(column) => format!("{}, {column}", case.name),
            None => case.name.clone(),
        };
        let classes = self.classes(case, &mut doubts)?;
        let tc = if self.has_peer(case, peer) {
            let plain = self.lowered.paths.iter().all(|path| path.is_short())
                && self.lowered.link.tunnel.is_none()
                && self.hosts.is_empty();
            if !self.changes.is_empty() || !plain {
                let why = "kernel HTB is measured beside a wire of the policy's rate without delays, losses, tunnels \
                    and changes only";
                return Err(Unsupported(why.into()).into());
            }
            Some(self.kernel_htb(&classes)?)
        } else {
            None
        };
        let Middle { run, readings, stats } = self.altq(case, &title, bins, result)?;
        self.distrust(case, &run, &readings, &mut doubts);
        if !case.overload {
            result.notes.extend(self.distrust_starved(case, &run, &readings, &classes, &mut doubts));
            result.notes.extend(self.unfilled(case, &run, &readings, &classes));
        }
        let links: Vec<(Link, Readings)> = self.grown.iter().cloned().zip(readings).collect();
        let wires: Vec<u64> = match self.hosts.is_empty() {
            true => links.iter().map(|(link, _)| link.spec.rate.as_bit_s()).collect(),
            false => self.hosts.iter().map(|host| host.rate.as_bit_s()).collect(),
        };
        let figures =
            Figures { case, flows: &self.lowered.flows, run: &run, links: &links, wires: &wires, framed: self.framed };
        let name = self.column.name.as_deref();
        result.flows.extend(figures.flow_rows(name, &classes));
        for ((link, readings), way) in links.iter().zip(&self.ways) {
            let (rows, promises) = (figures.class_rows(link, readings).into_iter(), Promises::new(link));
            result.classes.extend(rows.map(|report| {
                let charged_bytes = figures.charged_bytes(link, readings, &report.name);
                let row = ClassResult::new(name.map(str::to_string), way, report, (link, &promises), case);
                ClassResult { row: case.row.clone(), charged_bytes, ..row }
            }));
        }
        if !case.overload {
            let waited = |flow: &FlowResult| figures.longest_wait(flow);
            standstill::judge(case, &result.flows, waited).into_iter().for_each(|why| doubts.invalid(why));
        }
        let peer = match tc {
            Some(tc) => Some(self.against_htb(case, &figures, &tc, &title)?),
            None => None,
        };
        let rows = |of: fn(&PeerResult) -> &Vec<PeerRow>| peer.as_ref().map_or(&[][..], |peer| of(&peer.result));
        let engines = self.engines(case)?;
        let (policy, shaped) = (prepared::links(&self.policy), prepared::links(&self.links));
        let measure = |probe: &Probe| match (probe.measure, &probe.subject) {
            (measure, Subject::Class(class)) if of_engine(measure) => {
                let link = policy.find(&class.text).ok()?.0;
                let own = engines.iter().find(|engine| engine.link.name == policy.link_name(link))?;
                match measure {
                    Measure::Memory => own.memory,
                    Measure::ClassMemory => own.memory.map(|memory| memory / own.link.classes.len() as f64),
                    _ => own.times.as_ref()?.of(measure),
                }
            }
            (measure, Subject::Class(class)) if measure.of_the_end() => {
                let (at, _) = shaped.find(&class.text).ok()?;
                (self.counters)(stats.get(at)?, probe)
            }
            (Measure::HtbRatio, Subject::Flow(flow)) => rows(|peer| &peer.flows).get(*flow).and_then(|row| row.ratio),
            (Measure::HtbRatio, Subject::Class(class)) => {
                let (link, class) = shaped.find(&class.text).ok()?;
                let name = shaped.written(link, shaped.class((link, class)));
                rows(|peer| &peer.classes).iter().find(|row| row.name == name).and_then(|row| row.ratio)
            }
            _ => figures.measured(probe),
        };
        let measured_figures = table::figures(case, |probe| anyhow::Ok(measure(probe)))?;
        let one = |(expectation, here): &(&Expectation, bool)| match expectation.figure {
            _ if !here => None,
            Some(figure) => measured_figures.get(figure).copied().flatten(),
            None => measure(&expectation.probe),
        };
        let measured = self.expectations.iter().map(one).collect();
        let peer_disturbed = peer.as_ref().is_some_and(|peer| peer.disturbed);
        if let Some(peer) = peer {
            peer.invalid.into_iter().for_each(|reason| doubts.invalid(reason));
            result.peers.push(peer.result);
        }
        for (flow, meter) in self.lowered.flows.iter().zip(&run.meters) {
            let reordered = meter.read().reordered;
            if reordered > 0 {
                result.notes.push(format!("flow `{}`: {reordered} datagrams arrived after later ones", flow.name));
            }
        }
        for note in &self.lowered.notes {
            if !result.notes.contains(note) {
                result.notes.push(note.clone());
            }
        }
        Ok(ColumnResult {
            // Owned, because the result lives longer than the case.
            column: Cow::Owned(self.column.clone()),
            figures: measured_figures,
            measured,
            flows: own.flows,
            classes: own.classes,
            unjudged: self.unjudged.clone(),
            peers: own.peers,
            series: Some(series::of(&figures, name, bins)),
            notes: own.notes,
            invalid: doubts.notes,
            disturbed: !case.overload && (run.disturbed || peer_disturbed),
            left_out: false,
        })
    }

    /// Measures the engines of the links about which probes ask.
    fn engines(&self, case: &Case) -> anyhow::Result<Vec<Measured<'_>>> {
        let asked: Vec<&Probe> = self.asked(case).filter(|probe| of_engine(probe.measure)).collect();
        let policy = prepared::links(&self.policy);
        let is_of = |link: &Link, probe: &Probe| match &probe.subject {
            Subject::Class(class) => policy.find(&class.text).is_ok_and(|(at, _)| policy.link_name(at) == link.name),
            _ => false,
        };
        let mut all: Vec<Measured<'_>> = Vec::new();
        for link in self.policy.iter().filter(|link| asked.iter().any(|probe| is_of(link, probe))) {
            let space = asked.iter().any(|probe| is_of(link, probe) && !probe.measure.of_engine());
            let memory = if space { Some(engine::memory(link)? as f64) } else { None };
            all.push(Measured { link, memory, times: None });
        }
        let timed: Vec<usize> = (0..all.len())
            .filter(|at| asked.iter().any(|probe| is_of(all[*at].link, probe) && probe.measure.of_engine()))
            .collect();
        let times = engine::times(&timed.iter().map(|at| all[*at].link).collect::<Vec<_>>())?;
        for (at, times) in timed.into_iter().zip(times) {
            all[at].times = Some(times);
        }
        Ok(all)
    }

    /// One run with altq between the hosts.
    fn altq(&self, case: &Case, title: &str, bins: u64, result: &mut CaseResult) -> anyhow::Result<Middle> {
        let topology = Topology::new(&self.lowered.hosts)?;
        let [there, back] = &self.lowered.paths;
        let seed = self.lowered.seed;
        let ways = |side| {
            let path = if side == Side::Sources { there } else { back };
            let host = self.hosts.iter().find(|host| host.back == (side == Side::Sinks));
            let [before, behind] = [&path.before, &path.behind].map(|net| net.network(seed));
            // On the wire of an imitated host a frame is held until its last bit has left.
            let behind = behind.or_else(|| host.map(|_| Box::new(Direct) as Box<dyn Network>));
            Around { before, behind, tunnel: self.lowered.tunnel(side), host: host.cloned() }
        };
        let shaper = Shaper::start(&topology, &self.links, &ways)?;
        let happen = |(at, link, change): &(Duration, usize, Change)| {
            let (shaper, link, change) = (&shaper, *link, change.clone());
            TimedAction { at: *at, act: Box::new(move || shaper.change(link, change.clone())) }
        };
        let stats = RefCell::new(Vec::new());
        let mut actions: Vec<TimedAction<'_>> = self.changes.iter().map(happen).collect();
        if self.asked(case).any(|probe| probe.measure.of_the_end()) {
            let act = || {
                let links = self.links.iter().enumerate();
                *stats.borrow_mut() =
                    links.map(|(at, link)| shaper.stat(at, link, case.duration)).collect::<Result<_, _>>()?;
                Ok(())
            };
            actions.push(TimedAction { at: nanos(case.duration), act: Box::new(act) });
        }
        let check = || match shaper.failed() {
            true => Err(anyhow!("altq's bridge ended before the run was over")),
            false => Ok(()),
        };
        let moments = self.moments(case, series::moments(case, bins).chain(figures::deliveries(case)));
        let progress = self.progress.as_deref();
        progress.into_iter().for_each(|progress| progress.set_doing(title));
        let clock = (nanos(case.warmup), self.column.timer);
        let run = measure::run(&topology, &self.lowered.flows, &moments, clock, &check, &actions, progress);
        drop(actions);
        let epoch = run.as_ref().map_or_else(|_| std::time::Instant::now(), |run| run.epoch);
        result.notes.extend(shaper.notes().iter().cloned());
        // If the bridge failed, its error is returned first, because it explains those of the
        // flows.
        let readings = shaper.finish(epoch, &self.links)?;
        Ok(Middle { run: run?, readings, stats: stats.into_inner() })
    }

    /// True if the kernel's HTB can have the classes of the first link.
    fn is_htb(&self) -> bool {
        self.links.first().is_some_and(kernel_htb::fits)
    }

    /// Lines for tc that make the policy's classes if its scheduler is htb, else one class of the
    /// link's rate.
    fn kernel_htb(&self, classes: &[Option<(usize, ClassId)>]) -> anyhow::Result<String> {
        let link = self.links.first().context("a link is shaped")?;
        if self.is_htb() {
            kernel_htb::tc(link, &self.lowered.flows, classes)
        } else {
            Ok(peer::one_htb_class(link.spec.rate.as_bit_s()))
        }
    }

    /// Runs the same flows through kernel HTB, and compares the rates.
    fn against_htb(&self, case: &Case, altq: &Figures<'_>, tc: &str, title: &str) -> anyhow::Result<Peer> {
        let (link, own) = (self.links.first().context("a link is shaped")?, self.is_htb());
        let topology = Topology::new(&self.lowered.hosts)?;
        peer::join(&topology, Some(tc))?;
        let (from, to) = (nanos(case.warmup), nanos(case.duration));
        let meter = kernel_htb::Meter::new(topology.middle(), from, to);
        let check = || if own { meter.look() } else { Ok(()) };
        self.progress.iter().for_each(|progress| progress.set_doing(&format!("{title}, kernel HTB")));
        let run = measure::run(
            &topology,
            &self.lowered.flows,
            &self.moments(case, []),
            (nanos(case.warmup), Timer::Exact),
            &check,
            &[],
            self.progress.as_deref(),
        )?;
        let htb = Figures { case, flows: &self.lowered.flows, run: &run, links: &[], wires: &[], framed: false };
        let of = |figures: &Figures<'_>, flow: usize| figures.goodput(flow, from, to).unwrap_or(0);
        let bulk: Vec<usize> = (0..self.lowered.flows.len())
            .filter(|at| matches!(self.lowered.flows[*at].kind, Kind::Bulk { .. }))
            .collect();
        let sum = |figures: &Figures<'_>| bulk.iter().map(|flow| of(figures, *flow)).sum::<u64>();
        let all = PeerRow::new("bulk", sum(altq), sum(&htb));
        let flows = self.lowered.flows.iter().enumerate();
        let mut classes = Vec::new();
        if own {
            let known = prepared::links(&self.links);
            let name = |class: &str| known.written(0, class);
            for (id, name) in link.classes.iter().enumerate().skip(1).map(|(id, class)| (id as u32, name(&class.name)))
            {
                if let (Some(ours), Some(theirs)) = (altq.charged_rate(id, from, to), meter.rate(id)) {
                    classes.push(PeerRow::new(&name, ours, theirs));
                }
            }
        }
        Ok(Peer {
            disturbed: run.disturbed,
            invalid: run.invalid.iter().map(|reason| format!("kernel HTB: {reason}")).collect(),
            result: PeerResult {
                column: self.column.name.clone(),
                name: kernel_htb::NAME.into(),
                bulk_bit_s: all.bit_s,
                altq_bulk_bit_s: all.altq_bit_s,
                ratio: all.ratio,
                flows: flows.map(|(at, flow)| PeerRow::new(&flow.name, of(altq, at), of(&htb, at))).collect(),
                classes,
            },
        })
    }
}
