//! `altq sim`: runs a case in virtual time, with hosts, links, traffic sources and replayed
//! captures, and measures what came out.
//!
//! Events at one instant run in this order: completed transmissions, timers, changes of the case,
//! arrivals and sending sources; events of one kind in the order in which they were made. Nothing
//! else decides, so the same case and seed give the same bytes on every machine.

mod adapt;
mod autorate;
mod capture;
mod carry;
mod change;
mod contradicted;
mod csma;
mod events;
mod fifo;
mod files;
mod flight;
mod frame;
mod limits;
mod lines;
mod onward;
mod port;
mod routes;
mod setup;
mod stream;
mod talk;
mod tally;
mod trace;
mod world;

use std::borrow::Cow;
use std::io::Write;
use std::sync::Arc;

use altq_config::{Failed, Promises};
use altq_engine::units::Nanos;

pub use capture::{Capture, CaptureError, Cut, Frame, Recorder};
pub use carry::encapsulate;
pub use fifo::{Fate, Fifo};
pub use flight::Flight;
pub use port::ChangePlanner;
pub use setup::flow_key;
pub use world::route;

use altq_cases::built_in;
use altq_cases::case::{Case, CaseError, Column, Kind, Measure, PolicyError, Probe, Subject};
use altq_cases::gaps::Gaps;
use altq_cases::report::rate;
use altq_cases::result::{CaseResult, ClassResult, FlowResult, Percentiles, RunSeries, Traffic, World as Place};
use altq_cases::series::{BINS, Series};
use altq_cases::standstill;
use altq_cases::stat::LinkStat;
pub use altq_cases::stat::ReadCounters;
use altq_cases::statistics::percentile;
use altq_cases::table::{self, ColumnResult};
use altq_cases::task::Progress;
pub use files::{RunOptions, check_file, run_file};
pub use limits::Limits;
use world::World;

/// Why a case could not be run.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The case's policy is refused.
    #[error("{0}")]
    Policy(#[from] Box<Failed>),
    /// Something in the case does not fit together.
    #[error("{0}")]
    Case(String),
    /// The case names a class that is not there, or that may be one of several; or an event that
    /// changes it is not possible.
    #[error("{0}")]
    Named(Box<CaseError>),
    /// The case makes sense in the lab only.
    #[error("this case runs in the lab only (`altq lab`): {0}")]
    Elsewhere(String),
    /// A capture cannot be read.
    #[error("{file}: {error}")]
    Capture {
        /// Its file.
        file: String,
        /// Why.
        error: CaptureError,
    },
    /// A wire is so slow that the end of a packet's transmission does not fit 64 bits of
    /// nanoseconds.
    #[error("a packet needs more than 584 years on its wire")]
    BeyondTime(#[from] crate::wire::BeyondTime),
    /// A file cannot be read or written.
    #[error("{file}: {error}")]
    Io {
        /// The file.
        file: String,
        /// Why.
        error: std::io::Error,
    },
    /// Someone set the stop flag ([`Limits::stop`]).
    #[error("the run was stopped before its end")]
    Stopped,
    /// It has more events than it may have ([`Limits::events`]).
    #[error("the run has more than {limit} events; it was ended after {at} ns of its time")]
    TooManyEvents {
        /// The limit.
        limit: u64,
        /// The time in the run.
        at: Nanos,
    },
    /// The case takes longer than it may ([`Limits::time`]).
    #[error("the case takes {duration} ns of its time, and may take {limit} ns")]
    TooLong {
        /// How long the case takes.
        duration: Nanos,
        /// The limit.
        limit: Nanos,
    },
}

/// What the handling of an event returns. In its box an error is as large as a register, which is
/// how the many functions return it through which every packet goes.
type Handled<T = ()> = Result<T, Box<SimError>>;

impl From<Box<SimError>> for SimError {
    fn from(error: Box<SimError>) -> SimError {
        *error
    }
}

impl From<crate::wire::BeyondTime> for Box<SimError> {
    fn from(error: crate::wire::BeyondTime) -> Box<SimError> {
        Box::new(error.into())
    }
}

impl From<PolicyError> for SimError {
    fn from(error: PolicyError) -> SimError {
        match error {
            PolicyError::Refused(failed) => SimError::Policy(failed),
            PolicyError::Text(text) => SimError::Case(text),
        }
    }
}

/// What a caller wants of a run in addition to its result; the run puts it here.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// The counters of every link with a policy at the end, by column and direction.
    pub stats: Vec<(Option<String>, LinkStat)>,
    /// What classes and flows did over time, one series per column; `None`: no series is kept.
    pub series: Option<Vec<Series>>,
    /// The most bins of a series; `None`: [`BINS`].
    pub bins: Option<u64>,
    /// Reads counters as `tc -s` prints them, for expectations about these.
    pub counters: Option<ReadCounters>,
    /// Number of events that were handled, in all columns.
    pub events: u64,
    /// Is told how far the runs are, in nanoseconds of virtual time.
    pub progress: Option<Arc<Progress>>,
    /// What ends a run before its time.
    pub limits: Limits,
}

/// Runs every column of a case. `record` receives a capture of the packets that leave the first
/// link with a policy in the first column.
pub fn run(case: &Case, seed: u64, record: Option<&mut dyn Write>) -> Result<CaseResult, SimError> {
    run_watched(case, seed, record, &mut Watch::default())
}

/// As [`run`], and also keeps what `watch` asks for.
pub fn run_watched(
    case: &Case,
    seed: u64,
    record: Option<&mut dyn Write>,
    watch: &mut Watch,
) -> Result<CaseResult, SimError> {
    check_something_runs_here([case])?;
    let mut result = CaseResult::new(&case.name, Place::Sim, seed);
    result.describe(case);
    let ran = columns(case, seed, record, watch)?;
    table::collect(case, ran, &mut result);
    Ok(result)
}

/// An error if no column of these cases runs in the simulator.
fn check_something_runs_here<'a>(cases: impl IntoIterator<Item = &'a Case>) -> Result<(), SimError> {
    let mut why = None;
    for case in cases {
        for column in &case.columns {
            match case.elsewhere(column, Place::Sim) {
                None => return Ok(()),
                Some(reason) => why = why.or(Some(reason)),
            }
        }
    }
    why.map_or(Ok(()), |why| Err(SimError::Elsewhere(why.to_owned())))
}

fn columns<'a>(
    case: &'a Case,
    seed: u64,
    mut record: Option<&mut dyn Write>,
    watch: &mut Watch,
) -> Result<Vec<ColumnResult<'a>>, SimError> {
    // Every column is checked before the first one runs.
    let here = case.columns.iter().filter(|column| case.elsewhere(column, Place::Sim).is_none());
    let policies = here.map(|column| Ok((column, column.load(case)?))).collect::<Result<Vec<_>, PolicyError>>()?;
    let (captures, notes, invalid) = captures(case)?;
    for (column, policy) in &policies {
        World::new(case, column, policy, &captures, seed, false)?.rehearse()?;
    }
    let mut all = Vec::new();
    for (column, policy) in &policies {
        let recorder = record
            .take()
            .map(|to| Recorder::new(Box::new(to) as Box<dyn Write + '_>))
            .transpose()
            .map_err(record_error)?;
        let mut world = World::new(case, column, policy, &captures, seed, recorder.is_some())?;
        world.counters = watch.counters;
        world.progress = watch.progress.clone();
        if watch.series.is_some() {
            world.keep_series(Series::new(column.name.clone(), case.duration, watch.bins.unwrap_or(BINS)));
        }
        let mut kept: Option<RunSeries> = None;
        world.run(recorder, &watch.limits)?;
        watch.events += world.events_run();
        watch
            .stats
            .extend(world.ports.iter().filter_map(|port| Some((column.name.clone(), port.stat(case.duration)?))));
        if let (Some(all), Some(mut series)) = (&mut watch.series, world.take_series()) {
            let rates = world.take_rates();
            kept = Some(RunSeries { rates, ..series.kept(case.warmup, case.duration, case.row.clone()) });
            all.push(series);
        }
        let mut ran = report(case, column, world)?;
        ran.series = kept;
        if all.is_empty() {
            ran.notes.splice(0..0, notes.iter().cloned());
            ran.invalid.splice(0..0, invalid.iter().cloned());
        }
        all.push(ran);
    }
    Ok(all)
}

/// Checks a case without running it: that its policies can be read, and that what its flows,
/// events and expectations name is there. Of columns that make sense in the lab only, the policies
/// are read.
fn check(case: &Case, seed: u64) -> Result<(), SimError> {
    let policies =
        case.columns.iter().map(|column| Ok((column, column.load(case)?))).collect::<Result<Vec<_>, PolicyError>>()?;
    let (captures, ..) = captures(case)?;
    for (column, policy) in policies.iter().filter(|(column, _)| case.elsewhere(column, Place::Sim).is_none()) {
        let mut world = World::new(case, column, policy, &captures, seed, false)?;
        world.compare_classes()?;
        world.rehearse()?;
    }
    Ok(())
}

fn record_error(error: std::io::Error) -> SimError {
    SimError::Io { file: "the capture of what left the link".into(), error }
}

/// The capture of each flow, notes on them, and notes that make the result invalid.
type Captures = (Vec<Option<Capture>>, Vec<String>, Vec<String>);

/// Reads the captures that flows replay.
fn captures(case: &Case) -> Result<Captures, SimError> {
    let (mut captures, mut notes, mut invalid) = (Vec::new(), Vec::new(), Vec::new());
    for flow in &case.flows {
        let Kind::Pcap { file, .. } = &flow.kind else {
            captures.push(None);
            continue;
        };
        let path = case.folder.join(file);
        let file = path.display().to_string();
        let bytes = built_in::read(&path).map_err(|error| SimError::Io { file: file.clone(), error })?;
        let capture = Capture::read(bytes).map_err(|error| SimError::Capture { file: file.clone(), error })?;
        if let Some(cut) = capture.cut {
            invalid.push(format!("{CUT_SHORT}: {file}: {cut}; what came before it was replayed"));
        }
        if capture.disordered > 0 {
            let n = capture.disordered;
            notes.push(format!("{file}: {n} packets are older than the one before; they were put in order of time"));
        }
        captures.push(Some(capture));
    }
    Ok((captures, notes, invalid))
}

/// The first words of a note on a capture that is cut short.
pub const CUT_SHORT: &str = "cut short";

fn report<'a>(case: &'a Case, column: &'a Column, mut world: World<'_>) -> Result<ColumnResult<'a>, SimError> {
    let figures = table::figures(case, |probe| measure(probe, &world))?;
    let mut measured = Vec::with_capacity(case.expectations.len());
    for expectation in &case.expectations {
        measured.push(match expectation.figure {
            _ if !expectation.concerns(column, Place::Sim) => None,
            Some(figure) => figures[figure],
            None => measure(&expectation.probe, &world)?,
        });
    }
    let (mut flows, mut classes, mut notes, mut invalid) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let whole = world.segments.window(case.warmup, case.duration);
    let name = world.class_names();
    for (at, flow) in case.flows.iter().enumerate().filter(|(_, flow)| !flow.active.is_empty()) {
        let mut cell = world.flow_tally.sum(whole.clone(), &[at as u32]);
        let earlier = world.flow_tally.sum(world.segments.window(0, case.warmup), &[at as u32]);
        let before = earlier.sent - earlier.received - earlier.lost;
        let class = world.flows[at].class().map(&name);
        if let Some(wanted) = world.wanted_class(at)?
            && let Some(other) = world.flows[at].stray(wanted)
        {
            let (other, wanted) = (name(other), name(wanted));
            invalid.push(format!("packets of flow {} went to class {other}, not only to {wanted}", flow.name));
        }
        flows.push(FlowResult {
            row: case.row.clone(),
            column: column.name.clone(),
            name: flow.name.clone(),
            class,
            goodput_bit_s: rate(cell.charged, case.duration - case.warmup),
            transactions_per_s: has_transactions(&flow.kind)
                .then(|| cell.transactions as f64 * 1e9 / (case.duration - case.warmup) as f64),
            rtt_ns: Percentiles::of(&mut cell.rtts),
            delay_ns: Percentiles::of(&mut cell.delays),
            sent_packets: Some(cell.sent),
            received_packets: Some(cell.received),
            lost_packets: Some(cell.lost),
            under_way_packets: Some(before + cell.sent - cell.received - cell.lost),
            under_way_before_packets: before,
            traffic: Some(Traffic::of(case, flow)),
            gaps: world.gaps.of(at, case.warmup, case.duration).and_then(Gaps::summary),
            standstill: world.standstill(at),
        });
    }
    drop(name);
    let ways = case.governed();
    for at in 0..world.ports.len() {
        let charged = world.charged(at, whole.clone());
        let port = &mut world.ports[at];
        let Some(governed) = port.policy.take() else { continue };
        let counters = governed.counters(&port.engine);
        let rows = governed.collector.rows(&governed.rows, &counters, case.duration);
        let Some(way) = ways.iter().find(|way| (way.link, way.back) == (port.link, port.back)) else { continue };
        let promises = Promises::new(&governed.link);
        let many = rows.len() > MANY;
        let listed = rows.into_iter().zip(charged).filter(|(report, _)| !many || report.arrived_packets > 0);
        classes.extend(listed.map(|(report, charged)| ClassResult {
            charged_bytes: Some(charged),
            row: case.row.clone(),
            ..ClassResult::new(column.name.clone(), way, report, (&governed.link, &promises), case)
        }));
        if port.wire.rate() < port.engine.rate() {
            let (wire, rate) = (port.wire.rate(), port.engine.rate());
            let link = &case.links[port.link];
            let back = port.back && link.ways[0].rate == link.ways[1].rate;
            let way_out = if back { "; write reverse_rate, the rate of this direction" } else { "" };
            notes.push(format!(
                "link {}: the wire ({wire}) is slower than the policy's link {} ({rate}){way_out}",
                link.name, way.name
            ));
        }
    }
    invalid.extend(standstill::judge(case, &flows, |flow| {
        let at = case.flows.iter().position(|own| own.name == flow.name);
        at.map_or(0, |at| world.longest_delay(at as u32))
    }));
    Ok(ColumnResult {
        column: Cow::Borrowed(column),
        figures,
        measured,
        unjudged: Vec::new(),
        flows,
        classes,
        peers: Vec::new(),
        series: None,
        notes,
        invalid,
        disturbed: false,
        left_out: false,
    })
}

/// The message for a case with expectations about the output of `tc -s` if no reader of counters
/// was given.
const NO_COUNTERS: &str =
    "an expectation is about counters as `tc -s` prints them, but this program does not read these";

/// If a link has more classes than this, its result leaves out those without packets.
const MANY: usize = 1000;

/// Whether a flow has transactions: requests that are answered.
pub(super) fn has_transactions(kind: &Kind) -> bool {
    matches!(kind, Kind::TcpRr { .. } | Kind::TcpConnect { .. } | Kind::UdpRr { .. } | Kind::Ping { .. })
}

/// The figure that a probe measures; `None` if there was nothing to measure.
fn measure(probe: &Probe, world: &World<'_>) -> Result<Option<f64>, SimError> {
    let span = probe.to - probe.from;
    let window = world.segments.window(probe.from, probe.to);
    let per_second = |count: u64| count as f64 * 1e9 / span as f64;
    let bits = |bytes: u64| per_second(bytes) * 8.0;
    let time = |delays: &mut Vec<Nanos>, percent| percentile(delays, percent).map(|t| t as f64);
    let mut place = None;
    let mut cell = match &probe.subject {
        // A row without a policy has no classes.
        Subject::Class(_) if !world.is_governed() => return Ok(None),
        Subject::Class(name) => {
            let (port, class) = world.class(name)?;
            place = Some(port);
            world.class_cell(port, class, window.clone())
        }
        Subject::Flow(flow) if world.is_silent(*flow) => return Ok(None),
        Subject::Flow(flow) => world.flow_tally.sum(window.clone(), &[*flow as u32]),
        Subject::Figures => return Ok(None),
    };
    let gaps = || match &probe.subject {
        Subject::Flow(flow) => world.gaps.of(*flow, probe.from, probe.to).and_then(Gaps::summary),
        _ => None,
    };
    // The modes of the gaps, the one with the largest share first.
    let mode = |nth: usize| {
        let mut modes = gaps()?.modes;
        modes.sort_by(|a, b| b.share.total_cmp(&a.share));
        modes.into_iter().nth(nth)
    };
    Ok(match probe.measure {
        Measure::Share => match &probe.of {
            Some(of) => {
                let (port, class) = world.class(of)?;
                let whole = world.class_cell(port, class, window).charged;
                (whole > 0).then(|| cell.charged as f64 / whole as f64)
            }
            None => place.map(|port| bits(cell.charged) / world.link_rate(port).as_bit_s() as f64),
        },
        Measure::Rate => Some(bits(cell.bytes)),
        Measure::Goodput => Some(bits(cell.charged)),
        Measure::DelayP50 => time(&mut cell.delays, 50),
        Measure::DelayP99 => time(&mut cell.delays, 99),
        Measure::DelayMax => time(&mut cell.delays, 100),
        Measure::Drops => Some(cell.dropped as f64),
        Measure::Loss if place.is_some() => {
            let offered = cell.sent + cell.dropped;
            (offered > 0).then(|| cell.dropped as f64 / offered as f64)
        }
        Measure::Marked => (cell.sent > 0).then(|| cell.marked as f64 / cell.sent as f64),
        // Packets under way are neither lost nor delivered.
        Measure::Loss => {
            let ended = cell.lost + cell.received;
            (ended > 0).then(|| cell.lost as f64 / ended as f64)
        }
        Measure::WireShare => place.map(|port| bits(cell.wire) / world.ports[port].wire.rate().as_bit_s() as f64),
        Measure::WireRate => Some(bits(cell.wire)),
        Measure::Cells => Some(per_second(cell.wire) / 53.0),
        Measure::Packets if place.is_some() => Some(per_second(cell.sent)),
        Measure::Packets => Some(per_second(cell.received)),
        Measure::Queue if place.is_none() => Some(cell.waited as f64 / span as f64),
        Measure::Counter | Measure::Identities | Measure::Disagreements => {
            let read = world.counters.ok_or_else(|| SimError::Case(NO_COUNTERS.into()))?;
            place.and_then(|port| read(&world.ports.get(port)?.stat(world.duration())?, probe))
        }
        // Little's law: the mean queue is the packets per second times the seconds that each waits,
        // whether it is then sent or dropped.
        Measure::Queue => {
            let waited = cell.delays.iter().map(|d| u128::from(*d)).sum::<u128>() + cell.dropped_wait;
            Some(waited as f64 / span as f64)
        }
        Measure::GapMean => gaps().map(|g| g.mean_ns as f64),
        Measure::GapDeviation => gaps().map(|g| g.deviation_ns as f64),
        Measure::GapMode => mode(0).map(|m| m.at_ns as f64),
        Measure::GapModeShare => mode(0).map(|m| m.share),
        Measure::GapSecondMode => mode(1).map(|m| m.at_ns as f64),
        Measure::Reach => world.reached(probe),
        Measure::RttP50 => time(&mut cell.rtts, 50),
        Measure::RttP95 => time(&mut cell.rtts, 95),
        Measure::RttP99 => time(&mut cell.rtts, 99),
        Measure::Transactions => Some(per_second(cell.transactions)),
        Measure::Offered => Some(per_second(cell.sent)),
        Measure::Memory => place.map(|port| world.ports[port].engine.memory()),
        Measure::ClassMemory => place.and_then(|port| {
            let classes = world.ports[port].policy.as_ref()?.count();
            Some(world.ports[port].engine.memory() / classes as f64)
        }),
        _ => None,
    })
}
