//! `altq sim`: a case in virtual time. Hosts, links with their propagation delay, sources, captures replayed, and what came out.
//!
//! Events at one instant: transmission complete, timers, changes, arrivals and what sources send; then the order in which they
//! were made. Nothing else decides, so the same case and seed give the same bytes on every machine.

mod capture;
mod comeback;
mod endpoint;
mod frame;
mod port;
mod random;
mod series;
mod tally;
mod world;

use std::io::Write;

use altq_config::{Failed, Promises};
use altq_engine::units::Nanos;

pub use capture::{Capture, CaptureError, Cut, Frame, Recorder};
pub use endpoint::{Endpoint, Outbox, Playback, Source};
pub use frame::UdpFlow;
pub use random::Random;
pub use series::{BINS, Row, Series};

use crate::case::{Case, Column, Expectation, Kind, Measure, Subject};
use crate::report::rate;
use crate::result::{CaseResult, ClassResult, FlowResult, Outcome, Percentiles, Traffic, World as Place};
use crate::stat::LinkStat;
use crate::stats::percentile;
use world::World;

/// Why a case could not be run.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// Its policy is refused.
    #[error("{0}")]
    Policy(#[from] Box<Failed>),
    /// Something in it does not fit together.
    #[error("{0}")]
    Case(String),
    /// It needs a TCP.
    #[error("flow {0}: a TCP for the simulator is not there yet; use altq lab")]
    NoTcp(String),
    /// A capture cannot be read.
    #[error("{file}: {error}")]
    Capture {
        /// Its file.
        file: String,
        /// Why.
        error: CaptureError,
    },
    /// A file cannot be read or written.
    #[error("{file}: {error}")]
    Io {
        /// The file.
        file: String,
        /// Why.
        error: std::io::Error,
    },
}

/// What is kept of a run besides its result.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// The counters of every link with a policy at the end, by column and direction.
    pub stats: Vec<(Option<String>, LinkStat)>,
    /// What classes and flows did over time, a column each, if it is kept.
    pub series: Option<Vec<Series>>,
}

/// Runs every column of a case. `record`: where the packets of the first column go that leave the first link with a policy.
pub fn run(case: &Case, seed: u64, record: Option<&mut dyn Write>) -> Result<CaseResult, SimError> {
    run_watched(case, seed, record, &mut Watch::default())
}

/// [`run`], and what `watch` asks for.
pub fn run_watched(case: &Case, seed: u64, mut record: Option<&mut dyn Write>, watch: &mut Watch) -> Result<CaseResult, SimError> {
    let mut result = CaseResult::new(&case.name, Place::Sim, seed);
    result.describe(case);
    // Everything is checked before anything runs.
    let policies = case.columns.iter().map(|column| column.load(case)).collect::<Result<Vec<_>, _>>()?;
    for flow in &case.flows {
        if matches!(flow.kind, Kind::TcpBulk { .. } | Kind::TcpRr { .. }) {
            return Err(SimError::NoTcp(flow.name.clone()));
        }
    }
    let captures = captures(case, &mut result)?;
    for (column, policy) in case.columns.iter().zip(&policies) {
        World::new(case, column, policy, &captures, seed)?.rehearse()?;
    }
    for (column, policy) in case.columns.iter().zip(&policies) {
        let mut world = World::new(case, column, policy, &captures, seed)?;
        if watch.series.is_some() {
            world.keep_series(Series::new(column.name.clone(), case.duration, BINS));
        }
        world.run(&mut record.take().map(Recorder::new).transpose().map_err(record_error)?)?;
        watch.stats.extend(world.ports.iter().filter_map(|port| Some((column.name.clone(), port.stat(case.duration)?))));
        if let (Some(all), Some(mut series)) = (&mut watch.series, world.take_series()) {
            result.keep(series.kept(case.warmup, case.duration, None));
            all.push(series);
        }
        report(case, column, world, &mut result)?;
    }
    Ok(result)
}

fn record_error(error: std::io::Error) -> SimError {
    SimError::Io { file: "the capture of what left the link".into(), error }
}

/// Reads the captures that flows replay: by flow.
fn captures(case: &Case, result: &mut CaseResult) -> Result<Vec<Option<Capture>>, SimError> {
    let mut captures = Vec::new();
    for flow in &case.flows {
        let Kind::Pcap { file, .. } = &flow.kind else {
            captures.push(None);
            continue;
        };
        let path = case.folder.join(file);
        let file = path.display().to_string();
        let bytes = std::fs::read(&path).map_err(|error| SimError::Io { file: file.clone(), error })?;
        let capture = Capture::read(bytes).map_err(|error| SimError::Capture { file: file.clone(), error })?;
        if let Some(cut) = capture.cut {
            result.invalid(format!("{CUT_SHORT}: {file}: {cut}; what came before it was replayed"));
        }
        if capture.disordered > 0 {
            let n = capture.disordered;
            result.notes.push(format!("{file}: {n} packets are older than the one before; they were put in order of time"));
        }
        captures.push(Some(capture));
    }
    Ok(captures)
}

/// How a note on a capture that is cut short begins.
pub const CUT_SHORT: &str = "cut short";

fn report(case: &Case, column: &Column, mut world: World<'_>, result: &mut CaseResult) -> Result<(), SimError> {
    for expectation in &case.expectations {
        let here = expectation.column.is_none() || expectation.column == column.name;
        if !here || expectation.simulated == Some(false) {
            continue;
        }
        let measured = measure(expectation, &world)?;
        let name = case.expectation_name(column, &expectation.name);
        result.expectations.push(Outcome::judge(name, expectation, measured));
    }
    let whole = world.segments.window(case.warmup, case.duration);
    for (at, flow) in case.flows.iter().enumerate() {
        let mut cell = world.flow_tally.sum(whole.clone(), &[at as u32]);
        let class = world.flows[at].class_name();
        if let (Some(wanted), Some(other)) = (&flow.class, world.flows[at].stray(flow.class.as_deref())) {
            result.invalid(format!("packets of flow {} went to class {other}, not only to {wanted}", flow.name));
        }
        result.flows.push(FlowResult {
            column: column.name.clone(),
            name: flow.name.clone(),
            class,
            goodput_bit_s: rate(cell.charged, case.duration - case.warmup),
            rtt_ns: Percentiles::default(),
            transactions_per_s: None,
            delay_ns: Percentiles::of(&mut cell.delays),
            sent_packets: Some(cell.sent),
            received_packets: Some(cell.received),
            traffic: Some(Traffic::of(case, flow)),
        });
    }
    for at in 0..world.ports.len() {
        let charged = world.charged(at, whole.clone());
        let port = &mut world.ports[at];
        let Some(governed) = port.policy.take() else { continue };
        let rows = governed.collector.rows(&governed.names, &port.engine.all_counters(), case.duration);
        let link = case.links[port.link].name.clone();
        let promises = Promises::new(&governed.link);
        // Rows are those of the classes that exist, in the order of their numbers.
        let existing = governed.names.iter().zip(charged).filter(|(name, _)| name.is_some());
        result.classes.extend(rows.into_iter().zip(existing).map(|(report, (_, charged))| ClassResult {
            charged_bytes: Some(charged),
            ..ClassResult::new(column.name.clone(), &link, report, (&governed.link, &promises), case)
        }));
        if port.wire.rate() < port.engine.rate() {
            let (wire, rate) = (port.wire.rate(), port.engine.rate());
            result.notes.push(format!("link {link}: the wire ({wire}) is slower than the policy's link ({rate})"));
        }
    }
    Ok(())
}

/// What an expectation is about. `None`: nothing was there to measure.
fn measure(expectation: &Expectation, world: &World<'_>) -> Result<Option<f64>, SimError> {
    let span = expectation.to - expectation.from;
    let window = world.segments.window(expectation.from, expectation.to);
    let per_second = |bytes: u64| bytes as f64 * 8e9 / span as f64;
    let time = |delays: &mut Vec<Nanos>, percent| percentile(delays, percent).map(|t| t as f64);
    let mut cell = match &expectation.subject {
        Subject::Class(name) => {
            let (port, class) = world.class(name)?;
            world.class_cell(port, class, window.clone())
        }
        Subject::Flow(flow) => world.flow_tally.sum(window.clone(), &[*flow as u32]),
    };
    Ok(match expectation.measure {
        Measure::Share => match &expectation.of {
            Some(of) => {
                let (port, class) = world.class(of)?;
                let whole = world.class_cell(port, class, window).charged;
                (whole > 0).then(|| cell.charged as f64 / whole as f64)
            }
            None => {
                let Subject::Class(name) = &expectation.subject else { return Ok(None) };
                let (port, _) = world.class(name)?;
                Some(per_second(cell.charged) / world.link_rate(port).as_bit_s() as f64)
            }
        },
        Measure::Rate => Some(per_second(cell.bytes)),
        Measure::Goodput => Some(per_second(cell.charged)),
        Measure::DelayP50 => time(&mut cell.delays, 50),
        Measure::DelayP99 => time(&mut cell.delays, 99),
        Measure::DelayMax => time(&mut cell.delays, 100),
        Measure::Drops => Some(cell.dropped as f64),
        Measure::Loss => (cell.sent > 0).then(|| cell.sent.saturating_sub(cell.received) as f64 / cell.sent as f64),
        Measure::RttP50 | Measure::RttP99 | Measure::Transactions | Measure::HtbRatio => None,
    })
}
