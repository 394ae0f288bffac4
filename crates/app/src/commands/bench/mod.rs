//! `altq bench`.

mod against;
mod measure;
mod metered;
mod simulator;
mod watched;
mod workload;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use altq_engine::schedule;
use clap::builder::PossibleValuesParser;
use clap::{Subcommand, ValueEnum};
use serde::Serialize;

use self::measure::Mode;
use self::metered::Meter;
use self::watched::Watch;
use self::workload::{Load, PACKET, Work};
use crate::exit::Exit;

/// Options of `altq bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Measures classification, enqueue and dequeue on one core, in CPU time of the thread
    Engine(EngineArgs),
    /// Measures the simulator on a dumbbell: the bottleneck's packets per second of CPU time, and
    /// bytes of memory per flow
    Sim(simulator::Args),
    /// Does a fixed amount of work without timing it, for tools that count instructions
    #[command(hide = true)]
    Work(WorkArgs),
}

#[derive(Debug, clap::Args)]
struct EngineArgs {
    #[command(flatten)]
    tree: Tree,
    /// Leaf classes [default: 10, 100, 1000, 10000 and 100000 in turn]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    classes: Option<u32>,
    /// In which pattern packets arrive
    #[arg(long, default_value = "all")]
    mode: Modes,
    /// Number of runs; the median is printed
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(5..=1000))]
    runs: u32,
    /// Runs another build of altq in turn with this one, and prints the ratios of their times
    #[arg(long, value_name = "PROGRAM")]
    against: Option<PathBuf>,
    /// How many times each of the two programs is run for each configuration
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=1000))]
    #[arg(requires = "against")]
    rounds: u32,
    /// Prints one JSON line for each configuration
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Tree {
    /// The scheduler; `cbq` has the exact estimator, `cbq-classic` ALTQ's
    #[arg(long, value_name = "S", default_value = schedule::SCHEDULERS[0].name)]
    #[arg(value_parser = PossibleValuesParser::new(workload::scheduler_names()))]
    scheduler: String,
    /// The queue of every leaf class [default: the scheduler's]
    #[arg(long, value_name = "Q", value_parser = PossibleValuesParser::new(workload::queue_names()))]
    queue: Option<String>,
    /// Makes --classes flows of a single leaf class, for queues that keep flows apart
    #[arg(long)]
    flows: bool,
    /// Levels of the tree, link and leaves included; with 3, about sqrt(N) agencies stand between
    /// them [default: 3, or 2 for schedulers whose classes cannot be nested]
    #[arg(long, value_name = "D", value_parser = clap::value_parser!(u32).range(2..=8))]
    depth: Option<u32>,
    /// What is kept of each packet for those who watch
    #[arg(long, value_enum, value_name = "WHAT", default_value = "nothing")]
    watch: Watch,
    /// A meter in every leaf class, which marks packets and drops none
    #[arg(long, value_enum, value_name = "KIND")]
    meter: Option<Meter>,
}

impl Tree {
    /// The number of levels. If the scheduler takes no class below another and more levels are
    /// asked for, every agency holds a scheduler of the same kind.
    fn depth(&self) -> u32 {
        self.depth.unwrap_or_else(|| if workload::is_flat(&self.scheduler) { 2 } else { 3 })
    }

    fn load(&self, classes: u32) -> Load<'_> {
        Load {
            scheduler: &self.scheduler,
            queue: self.queue.as_deref(),
            flows: self.flows,
            classes,
            depth: self.depth(),
            watch: self.watch,
            meter: self.meter,
        }
    }
}

/// The values of `--mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Modes {
    /// Every leaf is backlogged
    Saturated,
    /// One packet in, one packet out, the leaves in random order
    OneAtATime,
    /// Both
    All,
}

impl Modes {
    fn each(self) -> &'static [Mode] {
        match self {
            Modes::Saturated => &[Mode::Saturated],
            Modes::OneAtATime => &[Mode::OneAtATime],
            Modes::All => &[Mode::Saturated, Mode::OneAtATime],
        }
    }
}

#[derive(Debug, clap::Args)]
struct WorkArgs {
    /// Which part of the work
    part: Part,
    #[command(flatten)]
    tree: Tree,
    /// Leaf classes
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    classes: u32,
    /// Number of packets
    #[arg(long)]
    packets: u64,
}

/// The parts of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Parse,
    Classify,
    /// The packets alone, without the engine
    Generate,
    Saturated,
    OneAtATime,
    Sim,
}

/// A line of `--json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Line<'a> {
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
    classify: bool,
    ns_per_packet: f64,
    packets_per_s: u64,
    bytes_per_class: f64,
    runs: u32,
    fastest_ns_per_packet: f64,
    slowest_ns_per_packet: f64,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    match &args.what {
        What::Engine(args) => engine(args),
        What::Sim(args) => simulator::run(args),
        What::Work(args) => work(args),
    }
}

fn engine(args: &EngineArgs) -> anyhow::Result<Exit> {
    const ALL: [u32; 5] = [10, 100, 1_000, 10_000, 100_000];
    let all = args.classes.as_ref().map_or(&ALL[..], std::slice::from_ref);
    if let Some(other) = &args.against {
        return against::run(args, other, all);
    }
    let scheduler = args.tree.scheduler.as_str();
    let depth = args.tree.depth();
    let load = |classes| args.tree.load(classes);
    let mut out = std::io::stdout().lock();
    let progress = Progress::new();
    progress.say(&format!("{scheduler}: bytes a class"));
    let bytes = measure::bytes_per_class(&load(1))?;
    progress.clear();
    if !args.json {
        writeln!(
            out,
            "{scheduler}, depth {depth}: packets of {PACKET} bytes, 10 Gbit/s, half of it guaranteed, all borrow, 8 \
             priorities"
        )?;
        writeln!(
            out,
            "a packet is classified (a hit on its 5-tuple), {}enqueued and dequeued{}; CPU time, median of {} runs",
            args.tree.meter.map_or("", |_| "metered, "),
            args.tree.watch.words(),
            args.runs
        )?;
        writeln!(out, "a class takes {bytes:.0} bytes\n")?;
        writeln!(
            out,
            "{:>9}  {:<14} {:>9}  {:>15}  {:>12}",
            "classes", "mode", "ns/packet", "fastest-slowest", "Mpackets/s"
        )?;
    }
    for classes in all {
        for mode in args.mode.each() {
            let what = format!("{scheduler}, {classes} classes, {}", mode.name());
            progress.say(&format!("{what}: building"));
            let mut work = mode.prepare(&load(*classes))?;
            let timing = measure::time(&mut work, *mode, *classes, args.runs, |run| match run {
                0 => progress.say(&format!("{what}: warming up")),
                _ => progress.say(&format!("{what}: run {run} of {}", args.runs)),
            })?;
            progress.clear();
            let (median, (fastest, slowest)) = (timing.median(), timing.range());
            if args.json {
                let line = Line {
                    schema: "altq.bench/1",
                    scheduler,
                    queue: args.tree.queue.as_deref(),
                    flows: args.tree.flows,
                    watch: args.tree.watch.name(),
                    meter: args.tree.meter.map(Meter::name),
                    classes: *classes,
                    depth,
                    mode: mode.name(),
                    classify: true,
                    ns_per_packet: tenths(median),
                    packets_per_s: (1e9 / median).round() as u64,
                    bytes_per_class: tenths(bytes),
                    runs: args.runs,
                    fastest_ns_per_packet: tenths(fastest),
                    slowest_ns_per_packet: tenths(slowest),
                };
                writeln!(out, "{}", serde_json::to_string(&line)?)?;
            } else {
                let range = format!("{fastest:.1}-{slowest:.1}");
                let mpps = 1e3 / median;
                writeln!(out, "{classes:>9}  {:<14} {median:>9.1}  {range:>15}  {mpps:>12.1}", mode.name())?;
            }
            out.flush()?;
        }
    }
    Ok(Exit::Ok)
}

fn work(args: &WorkArgs) -> anyhow::Result<Exit> {
    let load = args.tree.load(args.classes);
    let prepare = |mode: Mode| mode.prepare(&load);
    match args.part {
        Part::Parse => workload::parse(args.packets),
        Part::Classify => Work::new(&load)?.classify(args.packets),
        Part::Generate => Work::new(&load)?.generate(args.packets),
        Part::Saturated => prepare(Mode::Saturated)?.saturated(args.packets)?,
        Part::OneAtATime => prepare(Mode::OneAtATime)?.one_at_a_time(args.packets)?,
        Part::Sim => simulator::work(args.packets)?,
    }
    Ok(Exit::Ok)
}

fn tenths(n: f64) -> f64 {
    (n * 10.0).round() / 10.0
}

/// A line on the terminal that says what is being measured.
struct Progress {
    shown: bool,
}

impl Progress {
    fn new() -> Progress {
        Progress { shown: std::io::stderr().is_terminal() }
    }

    fn say(&self, what: &str) {
        if self.shown {
            // Erases to the end of the line (ECMA-48), so that nothing of a longer text stays.
            eprint!("\r{what} …\x1b[K");
        }
    }

    fn clear(&self) {
        if self.shown {
            eprint!("\r\x1b[K");
        }
    }
}

/// The JSON Schemas of `altq.bench/1`, `altq.bench_against/1` and `altq.bench_simulator/1`.
#[cfg(test)]
pub fn schemas(generator: &schemars::generate::SchemaGenerator) -> [schemars::Schema; 3] {
    let generator = || generator.clone();
    [
        generator().into_root_schema_for::<Line<'_>>(),
        generator().into_root_schema_for::<against::Line<'_>>(),
        generator().into_root_schema_for::<simulator::Line<'_>>(),
    ]
}
