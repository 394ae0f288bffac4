//! `altq sweep`: many runs of a case, over the processors of this host or the shards of many
//! (docs/sweeps.md).

mod plot;

use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use altq_cases::case::CaseFile;
use altq_cases::task::Progress;
use altq_config::literal;
use altq_dataplane::signal::Watch;
use altq_dataplane::stop::Stop;
use altq_engine::units::Nanos;
use altq_pages::stat::tc;
use altq_sweep::driver::{self, Options};
use altq_sweep::figures::Quantity;
use altq_sweep::gather::{self, Format, Summary};
use altq_sweep::grid::Axis;
use altq_sweep::run::Limit;
use altq_sweep::until::Until;
use altq_sweep::{Plan, Request, Shard, SweepError, table, worker};
use anyhow::Context as _;

use crate::exit::Exit;
use crate::output;
use crate::progress::OnTerminal;

/// Options of `altq sweep`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The case, a TOML file
    #[arg(value_name = "CASE", required_unless_present = "worker")]
    case: Option<PathBuf>,
    /// What a value of the case is to be: 2..20Mbit/s:10 are ten with equal steps,
    /// 1..100Mbit/s:3log three that multiply, a,b,c a list. Several values: all combinations
    #[arg(long, value_name = "NAME=VALUES", value_parser = Axis::parse)]
    set: Vec<Axis>,
    /// A CSV file whose header names values of the case; each line is a point
    #[arg(long, value_name = "FILE.csv")]
    table: Option<PathBuf>,
    /// Runs of each point, each with a seed of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    samples: u32,
    /// Ends a point early once its mean is known well enough, as in 'ci95(voice.p99) < 1%'; of
    /// several rules all must hold
    #[arg(long, value_name = "RULE", value_parser = Until::parse)]
    until: Vec<Until>,
    /// The folder of the results. What is there already is not run again
    #[arg(short, long, value_name = "DIR", required_unless_present = "worker")]
    out: Option<PathBuf>,
    /// Only a part of the work, on each of many hosts; then the whole command gathers it
    #[arg(long, value_name = "K/N", value_parser = Shard::parse)]
    shard: Option<Shard>,
    /// The seed of the first sample; each has the seed after that of the one before [default: the
    /// case's own]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Only this row of the case
    #[arg(long, value_name = "NAME")]
    row: Option<String>,
    /// Only this column of the case
    #[arg(long, value_name = "NAME")]
    column: Option<String>,
    /// The figures to keep, with * and ? [default: all]
    #[arg(long, value_name = "FIGURE,…", value_delimiter = ',')]
    figures: Vec<String>,
    /// The figures of the summary, with * and ? [default: those of the rules, or else the case's
    /// own]
    #[arg(long, value_name = "FIGURE,…", value_delimiter = ',')]
    show: Vec<String>,
    /// The longest that a run may take, such as 60s; an error stands in the row of one that takes
    /// longer
    #[arg(long, value_name = "TIME", value_parser = positive)]
    timeout: Option<Nanos>,
    /// Also does again what failed: runs that took too long or killed their process, say on a host
    /// with more memory
    #[arg(long)]
    again: bool,
    /// The most events of a run, at which it ends on every host
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    events: Option<u64>,
    /// How many runs go at once [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Runs that go to a process at once; rules are looked at after each such number of samples
    /// [default: 100, with --until 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    chunk: Option<u32>,
    /// The form of the table of all runs
    #[arg(long, value_enum, default_value_t = Form::Parquet)]
    format: Form,
    /// Draws the first four figures of the summary over a number in which the points differ, as
    /// SVG: means with their confidence intervals, and what the case says was published
    #[arg(long, value_name = "FILE.svg", value_parser = super::sim::svg, conflicts_with = "shard")]
    plot: Option<PathBuf>,
    /// Prints the summary as JSON (altq.sweep/1)
    #[arg(long)]
    json: bool,
    /// Takes runs from standard input, and answers on standard output
    #[arg(long, hide = true)]
    worker: bool,
}

/// The values of `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// table.parquet
    Parquet,
    /// table.csv
    Csv,
}

fn positive(word: &str) -> Result<Nanos, String> {
    match literal::time_with_unit(word) {
        Ok(0) => Err("a limit is above 0".into()),
        Ok(time) => Ok(time),
        Err(wrong) => Err(wrong.to_string()),
    }
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    if args.worker {
        worker::serve(io::BufReader::new(io::stdin()), io::stdout(), Some(tc::measured)).context("the driver")?;
        return Ok(Exit::Ok);
    }
    match sweep(args) {
        Ok(exit) => Ok(exit),
        Err(error) => {
            let exit = match &error {
                SweepError::Wrong(_) => Exit::Usage,
                _ => Exit::Failed,
            };
            match error {
                SweepError::Stopped => {
                    eprintln!("altq sweep: interrupted; the same command goes on where it was");
                }
                error => eprintln!("altq sweep: {error}"),
            }
            Ok(exit)
        }
    }
}

fn sweep(args: &Args) -> Result<Exit, SweepError> {
    let (Some(case), Some(out)) = (&args.case, &args.out) else {
        return Err(SweepError::Wrong("name a case, and a folder with -o".into()));
    };
    let case = &CaseFile::find(case).map_err(|error| SweepError::Wrong(error.to_string()))?;
    let table = args.table.as_ref().map(|path| Ok((path.clone(), table::read(path)?))).transpose()?;
    let plan = Plan::new(Request {
        case: case.clone(),
        text: None,
        axes: args.set.clone(),
        table,
        samples: args.samples,
        seed: args.seed,
        chunk: args.chunk,
        until: args.until.clone(),
        figures: args.figures.clone(),
        limit: Limit { events: args.events, time: None },
        row: args.row.clone(),
        column: args.column.clone(),
    })?;
    let across = args.plot.as_ref().map(|_| plot::across(&plan)).transpose().map_err(SweepError::Wrong)?;
    // The program that runs, also if another one has taken its place on disk meanwhile.
    let worker = || {
        let mut command = Command::new("/proc/self/exe");
        command.args(["sweep", "--worker"]);
        command
    };
    let signals = |error| SweepError::Io { path: PathBuf::from("signals"), error };
    let stop = Stop::new().map_err(signals)?;
    Watch::new().and_then(|watch| watch.stop_on_signal(stop.clone())).map_err(signals)?;
    let progress = Arc::new(Progress::default());
    let shown = OnTerminal::of(progress.clone());
    let jobs = args.jobs.map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), usize::from);
    let done = driver::run(
        &plan,
        out,
        &Options {
            jobs,
            shard: args.shard,
            again: args.again,
            timeout: args.timeout.map(Duration::from_nanos),
            worker: &worker,
            progress: &progress,
            stopped: &|| stop.is_set(),
        },
    );
    drop(shown);
    let done = done?;
    if let Some(Shard { number, of }) = args.shard {
        let (tasks, there) = (done.tasks, done.tasks_there);
        eprintln!(
            "altq sweep: shard {number} of {of} is done: {tasks} tasks, of which {there} were there; {} of all shards \
             are missing",
            gather::missing(&plan, out)?
        );
        eprintln!("altq sweep: when none is, the same command without --shard writes the table");
        return Ok(Exit::Ok);
    }
    let format = match args.format {
        Form::Parquet => Format::Parquet,
        Form::Csv => Format::Csv,
    };
    let summary = gather::gather(&plan, out, format, &args.show)?;
    if let (Some(path), Some(across)) = (&args.plot, &across) {
        let file = CaseFile::load(case).map_err(|error| SweepError::Wrong(error.to_string()))?;
        let drawn = std::fs::write(path, plot::svg(&plan, &summary, across, &file));
        drawn.map_err(|error| SweepError::Io { path: path.clone(), error })?;
        let figures = summary.points.first().map_or(0, |point| point.figures.len());
        if figures > plot::MOST {
            let most = plot::MOST;
            eprintln!("altq sweep: the plot has the first {most} of {figures} figures; --show names which");
        }
    }
    let printed = if args.json { output::print_json(&summary) } else { output::print(&text(&plan, &summary)) };
    printed.map_err(|error| SweepError::Io { path: PathBuf::from("stdout"), error: io::Error::other(error) })?;
    let (runs, points, path) = (summary.runs, summary.points.len(), gather::table(out, format));
    for figure in &summary.missing {
        eprintln!("altq sweep: no run has a figure {figure:?}; the header of the table has the names of all");
    }
    let unmet = summary.points.iter().filter(|point| point.met == Some(false)).count();
    if unmet > 0 {
        let (rules, hold) = if args.until.len() == 1 { ("the rule", "does") } else { ("the rules", "do") };
        eprintln!("altq sweep: {rules} {hold} not hold at {unmet} of {points} points");
    }
    eprintln!("altq sweep: {runs} runs of {points} points are in {}", path.display());
    if let Some(first) = summary.first_error.as_ref() {
        eprintln!("altq sweep: {} of them failed; the table has the reasons. The first: {first}", summary.failed);
        return Ok(Exit::Differs);
    }
    Ok(Exit::Ok)
}

/// The summary as a table.
fn text(plan: &Plan, summary: &Summary) -> String {
    let mut header: Vec<String> = vec!["point".into(), "runs".into()];
    let any_failed = summary.failed > 0;
    if any_failed {
        header.push("failed".into());
    }
    let figures = summary.points.first().map_or(&[][..], |point| point.figures.as_slice());
    header.extend(figures.iter().map(|figure| figure.name.clone()));
    let mut rows = vec![header];
    for (point, own) in summary.points.iter().zip(&plan.points) {
        let name = match own.name() {
            name if name.is_empty() => summary.case.clone(),
            name => name,
        };
        let mut row = vec![name, point.samples.to_string()];
        if any_failed {
            row.push(point.failed.to_string());
        }
        row.extend(point.figures.iter().map(|figure| {
            let unit = plan.quantity(&figure.name);
            let Some(mean) = figure.mean else { return "nothing".into() };
            match figure.half_width {
                Some(half) => format!("{} ± {}", number(unit, mean), number(unit, half)),
                None => number(unit, mean),
            }
        }));
        rows.push(row);
    }
    output::table(&rows)
}

/// A figure for people.
fn number(unit: Quantity, value: f64) -> String {
    match unit {
        Quantity::Rate => output::rate(value.round() as u64),
        Quantity::Time => output::time(value.round() as u64),
        Quantity::Plain if value == 0.0 => "0".into(),
        // Four significant digits, and never fewer than those before the point.
        Quantity::Plain => {
            let digits = 3 - value.abs().log10().floor().clamp(-9.0, 3.0) as i32;
            format!("{value:.*}", digits.max(0) as usize)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_their_unit_and_four_digits() {
        assert_eq!(number(Quantity::Rate, 2_500_000.4), "2.50 Mbit/s");
        assert_eq!(number(Quantity::Time, 1_190_000.0), "1.19 ms");
        let plain = |value| number(Quantity::Plain, value);
        assert_eq!(
            [plain(0.0), plain(3.0), plain(12_345.6), plain(0.000_123_456)],
            ["0", "3.000", "12346", "0.0001235"]
        );
    }
}
