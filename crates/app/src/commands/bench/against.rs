//! `altq bench engine --against`: this program beside another build of altq.
//!
//! A machine that others use, or that changes its clock, has two builds run at two speeds. So both
//! are run in turn, one configuration at a time, and what is compared is the least time of each:
//! whatever disturbs a run makes it slower, never faster.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::measure::Mode;
use super::metered::Meter;
use super::{EngineArgs, Progress, tenths};
use crate::exit::Exit;

/// A line of `--json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Line<'a> {
    schema: &'static str,
    scheduler: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    flows: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    watch: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meter: Option<&'static str>,
    classes: u32,
    depth: u32,
    mode: &'static str,
    rounds: u32,
    this: Side,
    against: Side,
    least_ratio: f64,
    median_ratio: f64,
}

/// What one program took, in nanoseconds a packet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Side {
    least_ns_per_packet: f64,
    median_ns_per_packet: f64,
}

/// The fields that are read of a program's own `--json` (`altq.bench/1`).
#[derive(Debug, Deserialize)]
struct Measured {
    schema: String,
    ns_per_packet: f64,
    fastest_ns_per_packet: f64,
}

/// Measures each configuration in both programs, and prints the ratio of this one to the other.
pub fn run(args: &EngineArgs, other: &Path, all: &[u32]) -> anyhow::Result<Exit> {
    let this = std::env::current_exe().context("this program's own path is not known")?;
    let mut out = std::io::stdout().lock();
    let progress = Progress::new();
    let (scheduler, depth) = (args.tree.scheduler.as_str(), args.tree.depth());
    if !args.json {
        writeln!(out, "{scheduler}, depth {depth}: this program beside {}", other.display())?;
        writeln!(
            out,
            "{} rounds, the two in turn; ns a packet, CPU time; the ratio is this to the other\n",
            args.rounds
        )?;
        writeln!(
            out,
            "{:>9}  {:<14} {:>9} {:>9} {:>7}  {:>9} {:>9} {:>7}",
            "classes", "mode", "least", "other's", "ratio", "median", "other's", "ratio"
        )?;
    }
    for &classes in all {
        for &mode in args.mode.each() {
            let mut sides = [Vec::new(), Vec::new()];
            for round in 0..args.rounds {
                progress.say(&format!("{scheduler}, {classes} classes, {}: round {}", mode.name(), round + 1));
                // Who goes first changes with each round, so that neither always follows the other.
                let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
                for side in order {
                    let program = if side == 0 { this.as_path() } else { other };
                    sides[side].push(measure(program, args, classes, mode)?);
                }
            }
            progress.clear();
            let [this, against] = sides.map(|runs| summary(&runs));
            let line = Line {
                schema: "altq.bench_against/1",
                scheduler,
                queue: args.tree.queue.as_deref(),
                flows: args.tree.flows,
                watch: args.tree.watch.name(),
                meter: args.tree.meter.map(Meter::name),
                classes,
                depth,
                mode: mode.name(),
                rounds: args.rounds,
                this,
                against,
                least_ratio: thousandths(this.least_ns_per_packet / against.least_ns_per_packet),
                median_ratio: thousandths(this.median_ns_per_packet / against.median_ns_per_packet),
            };
            if args.json {
                writeln!(out, "{}", serde_json::to_string(&line)?)?;
            } else {
                writeln!(
                    out,
                    "{classes:>9}  {:<14} {:>9.1} {:>9.1} {:>7.3}  {:>9.1} {:>9.1} {:>7.3}",
                    mode.name(),
                    this.least_ns_per_packet,
                    against.least_ns_per_packet,
                    line.least_ratio,
                    this.median_ns_per_packet,
                    against.median_ns_per_packet,
                    line.median_ratio
                )?;
            }
            out.flush()?;
        }
    }
    Ok(Exit::Ok)
}

/// Lets a program measure one configuration in a process of its own.
fn measure(program: &Path, args: &EngineArgs, classes: u32, mode: Mode) -> anyhow::Result<Measured> {
    let mut command = Command::new(program);
    command.args(["bench", "engine", "--json", "--mode", mode.name(), "--scheduler", &args.tree.scheduler]);
    command.args(["--classes", &classes.to_string(), "--depth", &args.tree.depth().to_string()]);
    command.args(["--runs", &args.runs.to_string()]);
    if let Some(queue) = &args.tree.queue {
        command.args(["--queue", queue]);
    }
    if args.tree.flows {
        command.arg("--flows");
    }
    if let Some(watch) = args.tree.watch.name() {
        command.args(["--watch", watch]);
    }
    if let Some(meter) = args.tree.meter {
        command.args(["--meter", meter.name()]);
    }
    let shown = || program.display();
    let out = command.stdin(Stdio::null()).output().with_context(|| format!("{} could not be started", shown()))?;
    if !out.status.success() {
        bail!(
            "{} {} ended with {}: {}",
            shown(),
            command.get_args().collect::<Vec<_>>().join(OsStr::new(" ")).display(),
            out.status,
            String::from_utf8_lossy(&out.stderr).trim()
        );
    }
    read(&out.stdout).with_context(|| format!("{} does not measure as `altq bench engine --json` does", shown()))
}

/// Reads the one line that a configuration gives.
fn read(printed: &[u8]) -> anyhow::Result<Measured> {
    let measured: Measured = serde_json::from_slice(printed)?;
    if measured.schema != "altq.bench/1" {
        bail!("its schema is {}, and altq.bench/1 is wanted", measured.schema);
    }
    if !(measured.fastest_ns_per_packet > 0.0 && measured.ns_per_packet > 0.0) {
        bail!("it says that packets take no time");
    }
    Ok(measured)
}

/// The least time of all rounds, and the median of the rounds' medians (of an even number, the mean
/// of the middle two).
fn summary(runs: &[Measured]) -> Side {
    let least = runs.iter().map(|run| run.fastest_ns_per_packet).fold(f64::INFINITY, f64::min);
    let mut medians: Vec<f64> = runs.iter().map(|run| run.ns_per_packet).collect();
    medians.sort_by(f64::total_cmp);
    let middle = medians.len() / 2;
    let median = if medians.len() % 2 == 1 { medians[middle] } else { (medians[middle - 1] + medians[middle]) / 2.0 };
    Side { least_ns_per_packet: tenths(least), median_ns_per_packet: tenths(median) }
}

fn thousandths(n: f64) -> f64 {
    (n * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(median: f64, fastest: f64) -> Measured {
        let line = format!(r#"{{"schema":"altq.bench/1","ns_per_packet":{median},"fastest_ns_per_packet":{fastest}}}"#);
        read(line.as_bytes()).expect("as `altq bench engine --json` prints")
    }

    #[test]
    fn least_of_all_rounds_and_median_of_medians() {
        let side = summary(&[run(50.0, 40.0), run(70.0, 45.0), run(60.0, 38.0)]);
        assert_eq!(side, Side { least_ns_per_packet: 38.0, median_ns_per_packet: 60.0 });
        let side = summary(&[run(50.0, 40.0), run(70.0, 45.0)]);
        assert_eq!(side, Side { least_ns_per_packet: 40.0, median_ns_per_packet: 60.0 });
    }

    #[test]
    fn what_another_program_prints_is_not_believed() {
        for printed in [
            "",
            "hello",
            "{}",
            r#"{"schema":"altq.bench/2","ns_per_packet":1.0,"fastest_ns_per_packet":1.0}"#,
            r#"{"schema":"altq.bench/1","ns_per_packet":0.0,"fastest_ns_per_packet":0.0}"#,
        ] {
            assert!(read(printed.as_bytes()).is_err(), "{printed}");
        }
    }
}
