//! The lab: a case with the kernel's own TCP, in network namespaces of its own.
//!
//! ```text
//!  topology    namespaces and wires            generator   kernel TCP and UDP, threads in the namespaces
//!  shaper      altq between the wires          path        what lies behind its queue: delay, jitter, loss
//!  peer        the kernel's own bridge and HTB instead
//!  kernel_htb  a policy of htb in tc's words
//!  measure     one run, readings in time       figures     from readings to rows and expectations
//!  series      a run over time, for plots      engine      what the engine takes, without traffic
//! ```

mod engine;
mod figures;
pub mod generator;
mod kernel_htb;
mod lower;
mod measure;
mod path;
mod peer;
mod series;
mod shaper;
pub mod topology;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use altq_config::{Link, Promises};
use altq_engine::headers::Key;
use altq_engine::spec::{ROOT, Timer};
use altq_engine::{Change, Engine};
use altq_simulator::case::{
    Case, CaseFile, Column, Expectation, Measure, PolicyError, Probe, Run as CaseRun, Subject, TimedEvent, What,
};
use altq_simulator::result::{CaseResult, ClassResult, PeerResult, PeerRow, World};
use altq_simulator::sim::{self, Shadow, flow_key};
use altq_simulator::table::{self, Ran};
use altq_traffic::clock;
use anyhow::{Context, anyhow};

use figures::{Figures, nanos};
use generator::{Flow, Kind};
use lower::Lowered;
use lower::SIMULATED;
pub use lower::Wishes;
use measure::{Happening, Run};
use shaper::{Readings, Shaper};
use topology::{Side, Topology, Unsupported};

/// Share of the frames that may be lost on the way to altq's queues before a result is no longer one of its policy.
const LOST_OUTSIDE: f64 = 0.001;

/// From this share of the processors' time on, the host may be what holds a flow back.
const BUSY: f64 = 0.97;

/// A bulk flow's class is empty at no more than this share of the readings, while it is the link that holds the flow back.
const EMPTY: f64 = 0.02;

/// Of links with more classes than this only those that had packets have rows.
const MANY: usize = 1000;

/// A policy that a case names cannot be used; the diagnostics are what to print.
#[derive(Debug)]
pub struct BadPolicy(pub Box<altq_config::Failed>);

impl std::fmt::Display for BadPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for BadPolicy {}

/// A case that names what its policy does not have.
#[derive(Debug)]
pub struct BadCase(pub String);

impl std::fmt::Display for BadCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadCase {}

/// Runs a case, and after it the same traffic through kernel HTB (see `kernel_htb` for policies of htb) where `peer` asks for it or an expectation speaks of it.
///
/// # Errors
/// [`Unsupported`] for what this host or the lab cannot do; [`BadPolicy`] and [`BadCase`] before anything is started.
pub fn run_case(case: &Case, wishes: &Wishes, peer: bool) -> anyhow::Result<CaseResult> {
    let columns = case.columns.iter().map(|column| Prepared::new(case, column, wishes)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut result = CaseResult::new(&case.name, World::Lab, wishes.seed);
    result.describe(case);
    let ran = columns.iter().map(|column| column.run(case, peer, sim::BINS)).collect::<anyhow::Result<Vec<_>>>()?;
    table::collect(case, ran, &mut result);
    Ok(result)
}

/// Runs a case file: its rows one after another, in each its columns, in each its samples; where the case asks for turns all of that
/// so often, so that what is compared runs close together. `ended` is told of each run when it is over. As [`run_case`] otherwise.
///
/// # Errors
/// As [`run_case`]; everything is checked before anything is started.
pub fn run_file(file: &CaseFile, wishes: &Wishes, peer: bool, ended: &mut dyn FnMut(&Case)) -> anyhow::Result<CaseResult> {
    let mut prepared = Vec::new();
    for run in &file.runs {
        let seed = wishes.seed.wrapping_add(u64::from(run.sample));
        let wishes = Wishes { seed, ..wishes.clone() };
        let columns = run.case.columns.iter().map(|column| Prepared::new(&run.case, column, &wishes));
        prepared.push((run, columns.collect::<anyhow::Result<Vec<_>>>()?));
    }
    let mut result = CaseResult::new(&file.name, World::Lab, wishes.seed);
    file.runs.first().iter().for_each(|run| result.describe(&run.case));
    let mut all = Vec::new();
    let bins = sim::bins(prepared.len());
    let (turns, mut spoilt) = (file.turns(), vec![Spoilt::default(); prepared.len()]);
    for turn in 0..turns {
        for row in order(&prepared, turn) {
            for at in row {
                let Some((run, columns)) = prepared.get(at) else { continue };
                let mut ran = columns.iter().map(|column| column.run(&run.case, peer, bins)).collect::<anyhow::Result<Vec<_>>>()?;
                if turns > 1
                    && let Some(spoilt) = spoilt.get_mut(at)
                {
                    spoilt.look(&mut ran);
                }
                all.push((*run, ran));
                ended(&run.case);
            }
        }
    }
    table::assemble(file, all, &mut result);
    for ((run, columns), spoilt) in prepared.iter().zip(spoilt) {
        let names = [run.case.row.as_deref(), columns.first().and_then(|own| own.column.name.as_deref())];
        spoilt.tell(turns, &names.into_iter().flatten().collect::<Vec<_>>().join(", "), &mut result);
    }
    Ok(result)
}

/// The places of the runs of each row, in the order in which they run in a turn: in every other one the other way round, so that neither of
/// two columns always comes first.
fn order<P>(prepared: &[(&CaseRun, P)], turn: u32) -> Vec<Vec<usize>> {
    let mut rows: Vec<(Option<usize>, Vec<usize>)> = Vec::new();
    for (at, (run, _)) in prepared.iter().enumerate() {
        match rows.last_mut() {
            Some((row, places)) if *row == run.row => places.push(at),
            _ => rows.push((run.row, vec![at])),
        }
    }
    let turned = |(_, mut places): (_, Vec<usize>)| {
        if turn % 2 == 1 {
            places.reverse();
        }
        places
    };
    rows.into_iter().map(turned).collect()
}

/// Turns of a run whose figures cannot be trusted: they are left out, as long as those that can are more.
#[derive(Clone, Debug, Default)]
struct Spoilt {
    turns: u32,
    why: Vec<String>,
}

impl Spoilt {
    fn look(&mut self, ran: &mut [Ran<'_>]) {
        if ran.iter().all(|ran| ran.invalid.is_empty()) {
            return;
        }
        self.turns += 1;
        for ran in ran {
            self.why.append(&mut ran.invalid);
            ran.figures.iter_mut().chain(&mut ran.measured).for_each(|figure| *figure = None);
        }
    }

    fn tell(self, turns: u32, place: &str, result: &mut CaseResult) {
        let Some(why) = self.why.first() else { return };
        let said = format!("{place}: {} of {turns} turns were left out, the first because {why}", self.turns);
        if self.turns * 2 < turns { result.notes.push(said) } else { result.invalid(said) }
    }
}

/// What the lab cannot run of a case file.
#[derive(Clone, Debug, Default)]
pub struct LeftOut {
    /// Where in the table, and why; one a reason.
    pub notes: Vec<String>,
    /// The reasons alone.
    pub reasons: Vec<String>,
}

/// Leaves of a case file what the lab can run here, and says why it cannot run the rest. What is wrong with it stays, and is said when it runs.
pub fn retain_possible(file: &mut CaseFile, wishes: &Wishes) -> LeftOut {
    // A reason, the first place where it holds, and in how many more it does.
    let mut said: Vec<(String, String, usize)> = Vec::new();
    for run in &mut file.runs {
        let case = run.case.clone();
        run.case.columns.retain(|column| match Prepared::new(&case, column, wishes) {
            Err(error) if error.is::<Unsupported>() => {
                // The cause alone: what it is about is said by its place.
                let reason = error.root_cause().to_string();
                let reason = reason.strip_prefix(SIMULATED).unwrap_or(&reason).to_owned();
                let row = case.row.as_ref().map_or(String::new(), |row| format!("row {row}, "));
                let name = column.name.as_ref().map_or(String::new(), |name| format!("column {name}"));
                match said.iter_mut().find(|(known, ..)| *known == reason) {
                    Some((_, _, more)) => *more += 1,
                    None => said.push((reason, format!("{row}{name}"), 0)),
                }
                false
            }
            _ => true,
        });
    }
    file.runs.retain(|run| !run.case.columns.is_empty());
    let note = |(reason, place, more): &(String, String, usize)| match (place.trim_end_matches(", "), more) {
        ("", _) => format!("not in the lab: {reason}"),
        (place, 0) => format!("{place}: not in the lab: {reason}"),
        (place, more) => format!("{place} (and {more} more): not in the lab: {reason}"),
    };
    let notes = said.iter().map(note).collect();
    LeftOut { notes, reasons: said.into_iter().map(|(reason, ..)| reason).collect() }
}

/// What came of a run with the kernel in the middle.
struct Peer {
    /// Why its figures cannot be trusted.
    invalid: Vec<String>,
    result: PeerResult,
}

/// A column, checked and ready to run.
struct Prepared<'a> {
    column: &'a Column,
    lowered: Lowered<'a>,
    /// The shaped links, as the bridge runs them.
    links: Vec<Link>,
    /// The same with the classes that come on the way.
    grown: Vec<Link>,
    /// What changes in them, by their places, in order of time.
    changes: Vec<(Duration, usize, Change)>,
    /// The case's expectations, and whether each is about this column in this world.
    expectations: Vec<(&'a Expectation, bool)>,
    /// All links of the policy: of those that stand in no wire the engine can be measured.
    policy: Vec<Link>,
    /// Places of those that the lab cannot judge.
    unjudged: Vec<usize>,
    /// What a packet is on the shaped wire is what the link charges for it.
    framed: bool,
    /// How far a run is is told to nobody.
    quiet: bool,
}

impl<'a> Prepared<'a> {
    fn new(case: &'a Case, column: &'a Column, wishes: &Wishes) -> anyhow::Result<Prepared<'a>> {
        if let Some(why) = case.elsewhere(column, World::Lab) {
            return Err(Unsupported(why.to_owned()).into());
        }
        let policy = column.load(case).map_err(|error| match error {
            PolicyError::Refused(failed) => anyhow::Error::from(BadPolicy(failed)),
            PolicyError::Text(text) => BadCase(text).into(),
        })?;
        if column.timer != Timer::Exact {
            return Err(Unsupported(format!("{SIMULATED}a timer of ticks, as hosts of 1997 had")).into());
        }
        let named = |name: &Option<String>| match name {
            None => Ok(None),
            Some(name) => match policy.links.iter().find(|link| link.name == *name) {
                Some(link) => Ok(Some(link)),
                None => Err(BadCase(format!("case {}: the policy has no link `{name}`", case.name))),
            },
        };
        let mtu = policy.links.first().map_or(1500, |link| link.spec.mtu);
        let mut lowered = lower::lower(case, mtu, wishes)?;
        let (link, reverse) = (named(&lowered.link.policy)?, named(&lowered.link.reverse)?);
        let shaped = lowered.link;
        for way in [link, reverse].into_iter().flatten() {
            if let Some(rate) = shaped.ways[0].rate.filter(|rate| *rate != way.spec.rate) {
                let own = way.spec.rate;
                lowered.notes.push(format!("link `{}`: the lab's wire has the policy's rate of {own}, not {rate}", shaped.name));
            }
        }
        for (way, side) in [(link, Side::Sources), (reverse, Side::Sinks)] {
            if let Some(flow) = lowered.flows.iter().find(|flow| way.is_none() && flow.side == side) {
                lowered.notes.push(format!("flow `{}` goes the way of the link that no policy governs: unshaped here", flow.name));
            }
        }
        let links = shaper::wires(link, reverse);
        let (grown, changes) = changes(case, lowered.link_at, &links)?;
        let framed = shaped.medium.is_none_or(|medium| links.iter().all(|link| link.spec.overhead == medium.overhead()));
        let mut unjudged = Vec::new();
        for (at, e) in case.expectations.iter().enumerate().filter(|(_, e)| e.concerns(column, World::Lab)) {
            if !lab_measures(case, &lowered.flows, framed, &e.probe) {
                let name = case.expectation_name(column, &e.name);
                lowered.notes.push(format!("{name}: left out, the lab does not measure it"));
                unjudged.push(at);
            }
        }
        let here = |(at, e): (usize, &'a Expectation)| (e, e.concerns(column, World::Lab) && !unjudged.contains(&at));
        let expectations: Vec<(&Expectation, bool)> = case.expectations.iter().enumerate().map(here).collect();
        let asked = expectations.iter().filter(|(_, here)| *here).map(|(e, _)| (&e.name, &e.probe));
        for (name, probe) in asked.chain(case.figures.iter().filter_map(|f| Some((&f.name, f.probe()?)))) {
            let of = probe.of.iter().map(String::as_str);
            let subject = match &probe.subject {
                Subject::Class(class) => Some(class.as_str()),
                _ => None,
            };
            let known = if of_engine(probe.measure) { &policy.links } else { &grown };
            if let Some(class) = subject.into_iter().chain(of).find(|class| !known.iter().any(|link| link.class(class).is_some())) {
                return Err(BadCase(format!("case {}: `{name}`: no shaped link has a class `{class}`", case.name)).into());
            }
        }
        Ok(Prepared {
            column,
            lowered,
            links,
            grown,
            changes,
            expectations,
            policy: policy.links,
            unjudged,
            framed,
            quiet: wishes.quiet,
        })
    }

    fn run(&self, case: &Case, peer: bool, bins: u64) -> anyhow::Result<Ran<'a>> {
        let mut own = CaseResult::new(&case.name, World::Lab, 0);
        let result = &mut own;
        let title = match &self.column.name {
            Some(column) => format!("{}, {column}", case.name),
            None => case.name.clone(),
        };
        let classes = self.classes(case, result)?;
        let speaks_of_peer = self.asked(case).any(|probe| probe.measure == Measure::HtbRatio);
        let tc = if peer || speaks_of_peer {
            if !self.changes.is_empty() || self.lowered.paths.iter().any(|path| !path.is_short()) {
                return Err(
                    Unsupported("kernel HTB is measured beside a wire without delays, losses and changes only".into()).into()
                );
            }
            Some(self.kernel_htb(&classes)?)
        } else {
            None
        };
        let (run, readings) = self.altq(case, &title, bins, result)?;
        self.distrust(case, &run, &readings, result);
        if !case.overload {
            self.distrust_starved(case, &run, &readings, &classes, result);
        }
        let links: Vec<(Link, Readings)> = self.grown.iter().cloned().zip(readings).collect();
        let figures = Figures { case, flows: &self.lowered.flows, run: &run, links: &links, framed: self.framed };
        let name = self.column.name.as_deref();
        result.flows.extend(figures.flow_rows(name, &classes));
        for (link, readings) in &links {
            let (rows, promises) = (figures.class_rows(link, readings).into_iter(), Promises::new(link));
            result.classes.extend(rows.map(|report| {
                let charged_bytes = figures.charged_bytes(&report.name);
                let row = ClassResult::new(name.map(str::to_string), &self.lowered.link.name, report, (link, &promises), case);
                ClassResult { row: case.row.clone(), charged_bytes, ..row }
            }));
        }
        let peer = match tc {
            Some(tc) => Some(self.against_htb(case, &figures, &tc, &title)?),
            None => None,
        };
        let rows = |of: fn(&PeerResult) -> &Vec<PeerRow>| peer.as_ref().map_or(&[][..], |peer| of(&peer.result));
        let engines = self.engines(case)?;
        let measure = |probe: &Probe| match (probe.measure, &probe.subject) {
            (measure, Subject::Class(class)) if of_engine(measure) => {
                let own = engines.iter().find(|engine| engine.link.class(class).is_some())?;
                match measure {
                    Measure::Memory => own.memory,
                    Measure::ClassMemory => own.memory.map(|memory| memory / own.link.classes.len() as f64),
                    _ => own.times.as_ref()?.of(measure),
                }
            }
            (Measure::HtbRatio, Subject::Flow(flow)) => rows(|peer| &peer.flows).get(*flow).and_then(|row| row.ratio),
            (Measure::HtbRatio, Subject::Class(class)) => {
                rows(|peer| &peer.classes).iter().find(|row| row.name == *class).and_then(|row| row.ratio)
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
        if let Some(peer) = peer {
            peer.invalid.into_iter().for_each(|reason| result.invalid(reason));
            result.peers.push(peer.result);
        }
        for (flow, meter) in self.lowered.flows.iter().zip(&run.meters) {
            let reordered = meter.read().reordered;
            if reordered > 0 {
                result.notes.push(format!("flow `{}`: {reordered} datagrams came behind later ones", flow.name));
            }
        }
        for note in &self.lowered.notes {
            if !result.notes.contains(note) {
                result.notes.push(note.clone());
            }
        }
        let (notes, invalid) = if own.valid { (own.notes, Vec::new()) } else { (Vec::new(), own.notes) };
        Ok(Ran {
            column: self.column,
            figures: measured_figures,
            measured,
            flows: own.flows,
            classes: own.classes,
            unjudged: self.unjudged.clone(),
            peers: own.peers,
            series: Some(series::of(&figures, name, bins)),
            notes,
            invalid,
        })
    }

    /// What is asked of the engines of links, without traffic.
    fn engines(&self, case: &Case) -> anyhow::Result<Vec<Measured<'_>>> {
        let asked: Vec<&Probe> = self.asked(case).filter(|probe| of_engine(probe.measure)).collect();
        let is_of = |link: &Link, probe: &Probe| matches!(&probe.subject, Subject::Class(class) if link.class(class).is_some());
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

    /// All that is asked of this column in the lab.
    fn asked<'b>(&'b self, case: &'b Case) -> impl Iterator<Item = &'b Probe> {
        let expectations = self.expectations.iter().filter(|(_, here)| *here).map(|(e, _)| &e.probe);
        expectations.chain(case.figures.iter().filter_map(|figure| figure.probe()))
    }

    /// One run with altq in the middle.
    fn altq(&self, case: &Case, title: &str, bins: u64, result: &mut CaseResult) -> anyhow::Result<(Run, Vec<Readings>)> {
        let topology = Topology::new(&self.lowered.hosts)?;
        let [there, back] = &self.lowered.paths;
        let seed = self.lowered.seed;
        let flight = |side| match side {
            Side::Sources => there.flight(seed),
            Side::Sinks => back.flight(seed),
        };
        let shaper = Shaper::start(&topology, &self.links, &flight)?;
        let happen = |(at, link, change): &(Duration, usize, Change)| {
            let (shaper, link, change) = (&shaper, *link, change.clone());
            Happening { at: *at, act: Box::new(move || shaper.change(link, change.clone())) }
        };
        let happenings: Vec<Happening<'_>> = self.changes.iter().map(happen).collect();
        let check = || match shaper.failed() {
            true => Err(anyhow!("altq's bridge ended before its time")),
            false => Ok(()),
        };
        let moments = self.moments(case, series::moments(case, bins));
        let title = (!self.quiet).then_some(title);
        let run = measure::run(&topology, &self.lowered.flows, &moments, nanos(case.warmup), &check, &happenings, title);
        drop(happenings);
        let epoch = run.as_ref().map_or_else(|_| std::time::Instant::now(), |run| run.epoch);
        result.notes.extend(shaper.notes().iter().cloned());
        // What ended the bridge explains more than what its end did to the flows.
        let readings = shaper.finish(epoch, &self.links)?;
        Ok((run?, readings))
    }

    /// All moments at which somebody wants the meters' readings.
    fn moments(&self, case: &Case, also: impl IntoIterator<Item = Duration>) -> Vec<Duration> {
        let mut times = BTreeSet::from([nanos(case.warmup), nanos(case.duration)]);
        times.extend(self.asked(case).flat_map(|probe| [nanos(probe.from), nanos(probe.to)]));
        times.extend(also);
        times.into_iter().collect()
    }

    /// True if the first link's own scheduler is htb, so that the kernel can have its classes.
    fn is_htb(&self) -> bool {
        self.links.first().is_some_and(|link| link.spec.scheduler.name == "htb")
    }

    /// Lines for tc: the policy's classes where it is one of htb, else one class of the link's rate.
    fn kernel_htb(&self, classes: &[Option<String>]) -> anyhow::Result<String> {
        let link = self.links.first().context("a link is shaped")?;
        if self.is_htb() {
            kernel_htb::tc(link, &self.lowered.flows, classes)
        } else {
            Ok(peer::one_htb_class(link.spec.rate.as_bit_s()))
        }
    }

    /// The same flows through the kernel's HTB.
    fn against_htb(&self, case: &Case, altq: &Figures<'_>, tc: &str, title: &str) -> anyhow::Result<Peer> {
        let (link, own) = (self.links.first().context("a link is shaped")?, self.is_htb());
        let topology = Topology::new(&self.lowered.hosts)?;
        peer::join(&topology, Some(tc))?;
        let (from, to) = (nanos(case.warmup), nanos(case.duration));
        let meter = kernel_htb::Meter::new(topology.middle(), from, to);
        let check = || if own { meter.look() } else { Ok(()) };
        let run = measure::run(
            &topology,
            &self.lowered.flows,
            &self.moments(case, []),
            nanos(case.warmup),
            &check,
            &[],
            (!self.quiet).then_some(format!("{title}, kernel HTB")).as_deref(),
        )?;
        let htb = Figures { case, flows: &self.lowered.flows, run: &run, links: &[], framed: false };
        let of = |figures: &Figures<'_>, flow: usize| figures.goodput(flow, from, to).unwrap_or(0);
        let bulk: Vec<usize> =
            (0..self.lowered.flows.len()).filter(|at| matches!(self.lowered.flows[*at].kind, Kind::Bulk { .. })).collect();
        let sum = |figures: &Figures<'_>| bulk.iter().map(|flow| of(figures, *flow)).sum::<u64>();
        let all = PeerRow::new("bulk", sum(altq), sum(&htb));
        let flows = self.lowered.flows.iter().enumerate();
        let mut classes = Vec::new();
        if own {
            for (id, name) in link.classes.iter().enumerate().skip(1).map(|(id, class)| (id as u32, &class.name)) {
                if let (Some(ours), Some(theirs)) = (altq.charged_rate(id, from, to), meter.rate(id)) {
                    classes.push(PeerRow::new(name, ours, theirs));
                }
            }
        }
        Ok(Peer {
            invalid: run.invalid.iter().map(|reason| format!("kernel HTB: {reason}")).collect(),
            result: PeerResult {
                column: self.column.name.clone(),
                name: "htb".into(),
                bulk_bit_s: all.bit_s,
                altq_bulk_bit_s: all.altq_bit_s,
                ratio: all.ratio,
                flows: flows.map(|(at, flow)| PeerRow::new(&flow.name, of(altq, at), of(&htb, at))).collect(),
                classes,
            },
        })
    }

    /// Why the run's figures cannot be trusted, into the result.
    fn distrust(&self, case: &Case, run: &Run, readings: &[Readings], result: &mut CaseResult) {
        for reason in run.invalid.iter().filter(|_| !case.overload) {
            result.invalid(reason.clone());
        }
        for (link, readings) in self.links.iter().zip(readings) {
            let Some(window) = readings.window(nanos(case.warmup), nanos(case.duration)) else {
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
                result.invalid(format!("link `{}`: its loop ran {late:?} late (at most {:?})", link.name, clock::BOUND.max));
            }
        }
    }

    /// Bulk TCP asks for whatever its class may have, unless the host is too busy to run it. Then the class stands empty, others
    /// borrow its share, and the figures are the host's.
    fn distrust_starved(&self, case: &Case, run: &Run, readings: &[Readings], classes: &[Option<String>], result: &mut CaseResult) {
        if run.busy < BUSY {
            return;
        }
        for (flow, class) in self.lowered.flows.iter().zip(classes).filter(|(flow, _)| matches!(flow.kind, Kind::Bulk { .. })) {
            let Some(class) = class else { continue };
            let place = self.links.iter().zip(readings).find_map(|(link, readings)| Some((link.class(class)?, readings)));
            let Some((id, readings)) = place else { continue };
            for (begin, end) in &flow.active {
                let (from, to) = ((*begin).max(nanos(case.warmup)), (*end).min(nanos(case.duration)));
                let empty = readings.empty(id as usize, from, to);
                if empty > EMPTY {
                    result.invalid(format!(
                        "flow `{}`: its class was empty {:.0} % of the time while the processors were {:.0} % busy: the host held it \
                         back, not the link",
                        flow.name,
                        empty * 100.0,
                        run.busy * 100.0
                    ));
                }
            }
        }
    }

    /// The class that the rules give each flow; one that is not the case's own makes the result invalid.
    fn classes(&self, case: &Case, result: &mut CaseResult) -> anyhow::Result<Vec<Option<String>>> {
        let mut names = Vec::new();
        for (flow, wanted) in self.lowered.flows.iter().zip(&case.flows) {
            // `wires` names the ways in this order; a flow from the sinks meets the one back.
            let way = match flow.side {
                Side::Sources => self.lowered.link.policy.as_ref(),
                Side::Sinks => self.lowered.link.reverse.as_ref(),
            };
            let name = match way.and_then(|way| self.links.iter().find(|link| link.name == *way)) {
                None => None,
                Some(link) => {
                    let mut engine = Engine::new(&link.spec).map_err(|error| BadCase(format!("link `{}`: {error}", link.name)))?;
                    engine.classify(&key(flow)).and_then(|class| link.classes.get(class as usize)).map(|class| class.name.clone())
                }
            };
            if let Some(wanted) = wanted.class.as_ref().filter(|wanted| name.as_ref() != Some(*wanted)) {
                let found = name.as_deref().map_or("no class".to_string(), |name| format!("class `{name}`"));
                result.invalid(format!("flow `{}` is for class `{wanted}`, and the rules give it {found}", flow.name));
            }
            names.push(name);
        }
        // A class that comes on the way has rules of its own in front of all others.
        for event in &case.events {
            if let What::AddClass { class, flows, .. } = &event.what {
                for flow in flows {
                    if let Some(name) = names.get_mut(*flow) {
                        *name = Some(class.clone());
                    }
                }
            }
        }
        Ok(names)
    }
}

/// What the case's events do to the links, and the links with the classes that come by them.
#[allow(clippy::type_complexity)]
fn changes(case: &Case, shaped: usize, links: &[Link]) -> anyhow::Result<(Vec<Link>, Vec<(Duration, usize, Change)>)> {
    let (mut grown, mut changes) = (links.to_vec(), Vec::new());
    let wrong = |event: &TimedEvent, why: String| BadCase(format!("case {}: event at {} ns: {why}", case.name, event.at));
    let mut shadows = links.iter().map(Shadow::new).collect::<Result<Vec<_>, _>>().map_err(|why| BadCase(why.to_string()))?;
    for event in &case.events {
        match &event.what {
            What::FlowActive { .. } | What::FlowRate { .. } => continue,
            What::LinkRate { link, .. } if *link != shaped => {
                return Err(Unsupported(
                    "this case runs in the simulator only (`altq sim`): a link without a policy changes its rate".into(),
                )
                .into());
            }
            _ => {}
        }
        let keys: Vec<Key> = match &event.what {
            What::AddClass { flows, .. } => flows.iter().filter_map(|flow| flow_key(case, *flow)).collect(),
            _ => Vec::new(),
        };
        let before = changes.len();
        for (at, shadow) in shadows.iter_mut().enumerate() {
            let made = shadow.changes(event.at, &event.what, &keys).map_err(|why| wrong(event, why))?;
            changes.extend(made.into_iter().map(|change| (nanos(event.at), at, change)));
        }
        if changes.len() == before {
            return Err(wrong(event, "no shaped link has this class, or its parent".into()).into());
        }
    }
    for (link, shadow) in grown.iter_mut().zip(&shadows) {
        for name in shadow.names().iter().skip(link.classes.len()) {
            let (Some((name, parent)), Some(mut spec), Some(mut class)) =
                (name, link.spec.classes.last().cloned(), link.classes.last().cloned())
            else {
                continue;
            };
            (spec.parent, spec.queue, spec.scheduler) = (parent.unwrap_or(ROOT), None, None);
            class.name = name.clone();
            link.spec.classes.push(spec);
            link.classes.push(class);
        }
    }
    Ok((grown, changes))
}

/// Whether something is measured of a link's engine, without traffic.
fn of_engine(measure: Measure) -> bool {
    measure.of_engine() || matches!(measure, Measure::Memory | Measure::ClassMemory)
}

/// An engine as it was measured.
struct Measured<'a> {
    link: &'a Link,
    memory: Option<f64>,
    times: Option<engine::Times>,
}

/// Whether the lab can measure something.
fn lab_measures(case: &Case, flows: &[Flow], framed: bool, probe: &Probe) -> bool {
    let whole = (probe.from, probe.to) == (case.warmup, case.duration);
    match (&probe.subject, probe.measure) {
        (Subject::Flow(at), measure) => flows.get(*at).is_some_and(|flow| figures::measured(measure, flow, whole)),
        (Subject::Class(_), Measure::WireRate | Measure::Cells | Measure::WireShare) => framed,
        (Subject::Class(_), Measure::Counter | Measure::Identities | Measure::Disagreements) => false,
        _ => true,
    }
}

/// What a classifier sees of a flow's packets.
fn key(flow: &Flow) -> Key {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    };
    Key {
        src: bits(flow.from.ip()),
        dst: bits(flow.to.ip()),
        sport: Some(flow.from.port()),
        dport: Some(flow.to.port()),
        proto: if flow.kind.is_udp() { 17 } else { 6 },
        family: if flow.from.is_ipv4() { 4 } else { 6 },
        tos: flow.dscp << 2,
        length: 1500,
        ..Key::default()
    }
}
