//! `altq sim`: runs a case in virtual time (docs/cases.md).

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

use altq_cases::case::CaseFile;
use altq_cases::made;
use altq_cases::task::Progress;
use altq_pages::plot::case::{self as plot, By, SHOWN, Shown};
use altq_pages::stat::tc;
use altq_simulator::sim::{self, RunOptions, SimError, Watch};
use anyhow::Context as _;

use crate::case_result;
use crate::chosen::Chosen;
use crate::exit::Exit;
use crate::export::Export;
use crate::output;
use crate::progress::OnTerminal;
use crate::stat_format::Format;
use crate::values::Values;

/// Options of `altq sim`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The case: a TOML file, or the name of a case inside altq (`altq examples` lists them); `-`
    /// for standard input
    #[arg(value_name = "CASE")]
    case: PathBuf,
    /// Seed of every random choice [default: the case's own]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Only this row of the case
    #[arg(long, value_name = "NAME")]
    row: Option<String>,
    /// Only this column of a case with rows; without rows, the column that --flent writes
    #[arg(long, value_name = "NAME")]
    column: Option<String>,
    /// How many runs of a case with rows go at once [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
    /// Writes what the first link with a policy sends in the first column, as pcap with nanosecond
    /// times
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Prints JSON (altq.result/1) instead of tables
    #[arg(long)]
    json: bool,
    /// Prints the counters of every link with a policy as another tool would, instead of tables
    #[arg(long, value_name = "FORMAT", conflicts_with = "json")]
    stat: Option<Format>,
    /// Draws the run over time, as SVG
    #[arg(long, value_name = "FILE.svg", value_parser = svg)]
    plot: Option<PathBuf>,
    /// The plot's charts from top to bottom, out of rate, drops, delay, wait and share [default:
    /// rate, drops if there were any, delay]
    #[arg(long, value_name = "CHART,…", value_delimiter = ',', requires = "plot", value_parser = panel)]
    panels: Vec<Shown>,
    /// Plots flows instead of classes: bytes that arrived, and the time from source to destination
    #[arg(long, requires = "plot")]
    by_flow: bool,
    /// Draws the lines of all columns in the same charts
    #[arg(long, requires = "plot")]
    overlay: bool,
    #[command(flatten)]
    values: Values,
    #[command(flatten)]
    chosen: Chosen,
    #[command(flatten)]
    export: Export,
}

fn panel(word: &str) -> Result<Shown, String> {
    let names = || SHOWN.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    SHOWN
        .iter()
        .find(|(name, _)| *name == word)
        .map(|(_, panel)| *panel)
        .ok_or_else(|| format!("a chart is one of {}", names()))
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let given = args.values.given();
    let loaded = given.and_then(|given| CaseFile::named_with(&args.case, &given).map_err(|error| error.to_string()));
    let file = match loaded {
        Ok(file) => file,
        Err(error) => {
            eprintln!("altq sim: {error}");
            return Ok(Exit::Usage);
        }
    };
    if let Err(error) = tc::check(&file) {
        eprintln!("altq sim: {error}");
        return Ok(Exit::Usage);
    }
    let options = match options(&file, args) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("altq sim: {}: {message}", file.path.display());
            return Ok(Exit::Usage);
        }
    };
    let create = |path: &PathBuf| File::create(path).with_context(|| format!("{} cannot be written", path.display()));
    let mut pcap = args.pcap.as_ref().map(create).transpose()?.map(BufWriter::new);
    let record = pcap.as_mut().map(|file| file as &mut dyn Write);
    let progress = Arc::new(Progress::default());
    let mut watch = Watch {
        series: (args.plot.is_some() || args.json || args.export.flent.is_some()).then(Vec::new),
        counters: Some(tc::measured),
        progress: Some(progress.clone()),
        ..Watch::default()
    };
    let shown = OnTerminal::of(progress);
    let ran = sim::run_file(&file, &options, record, &mut watch);
    drop(shown);
    let mut result = match ran {
        Ok(result) => result,
        Err(error) => {
            match &error {
                // It has the case's name, and the place in it.
                SimError::Named(named) => eprintln!("altq sim: {named}"),
                error => eprintln!("altq sim: {}: {error}", file.path.display()),
            }
            return Ok(match error {
                SimError::Io { .. } | SimError::Stopped | SimError::TooManyEvents { .. } | SimError::TooLong { .. } => {
                    Exit::Failed
                }
                SimError::Elsewhere(_) => Exit::Unsupported,
                SimError::Policy(_)
                | SimError::Case(_)
                | SimError::Named(_)
                | SimError::BeyondTime(_)
                | SimError::Capture { .. } => Exit::Usage,
            });
        }
    };
    result.made = Some(made::made(&file));
    if let (Some(path), Some(series)) = (&args.plot, &watch.series) {
        let by = if args.by_flow { By::Flow } else { By::Class };
        let title = file.name.rsplit('/').next().unwrap_or(&file.name);
        let over = if args.overlay { plot::overlay(series) } else { series.clone() };
        let svg = plot::figure(title, &over, &args.panels, by).svg();
        std::fs::write(path, svg).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    args.export.write(&result, args.column.as_deref(), args.row.as_deref())?;
    if args.json {
        output::print_json(&result)?;
    } else if let Some(format) = args.stat {
        for (column, stat) in &watch.stats {
            // Forms of other tools do not name the link.
            let several = watch.stats.iter().filter(|(other, _)| other == column).count() > 1;
            let link = several.then(|| format!("link {}", stat.name));
            let head: Vec<&str> = column.as_deref().into_iter().chain(link.as_deref()).collect();
            let head = if head.is_empty() { String::new() } else { format!("# {}\n", head.join(", ")) };
            output::print(&(head + &format.text(stat)))?;
            if let Some(legend) = format.legend(stat) {
                eprintln!("altq sim: {legend}");
            }
        }
    } else {
        output::print(&case_result::text(&file.description, &result, &args.chosen))?;
    }
    for note in &result.notes {
        eprintln!("altq sim: {note}");
    }
    // The figures hold for the packets before the cut, but the case did not run as it is written.
    if result.notes.iter().any(|note| note.starts_with(sim::CUT_SHORT)) {
        return Ok(Exit::Failed);
    }
    Ok(if result.passed() { Exit::Ok } else { Exit::Differs })
}

/// The runs of a case that the options ask for.
fn options(file: &CaseFile, args: &Args) -> Result<RunOptions, String> {
    let known = |names: &mut dyn Iterator<Item = &str>| names.collect::<Vec<_>>().join(", ");
    let row = match &args.row {
        None => None,
        Some(_) if file.rows.is_empty() => return Err("--row: the case has no rows".into()),
        Some(name) => Some(file.row(name).ok_or_else(|| {
            format!(
                "--row: there is no row {name:?}; rows: {}",
                known(&mut file.rows.iter().map(|row| row.name.as_str()))
            )
        })?),
    };
    let column = match &args.column {
        None => None,
        // All columns run, and `--flent` writes this one.
        Some(_) if !file.is_table() && args.export.flent.is_some() => None,
        Some(_) if !file.is_table() => {
            return Err("--column: the case has no rows; all its columns run together".into());
        }
        Some(name) => Some(file.column(name).ok_or_else(|| {
            format!(
                "--column: there is no column {name:?}; columns: {}",
                known(&mut file.columns.iter().map(String::as_str))
            )
        })?),
    };
    args.export
        .check(file, args.column.as_deref(), args.row.as_deref())
        .map_err(|message| format!("--flent: {message}"))?;
    if file.rows.len() > 1 && row.is_none() && (args.plot.is_some() || args.stat.is_some()) {
        return Err("--plot and --stat show one row; name it with --row".into());
    }
    let runs = file.runs.iter().filter(|run| row.is_none_or(|row| run.row == Some(row)));
    args.chosen.check(file, runs)?;
    Ok(RunOptions { seed: args.seed, row, column, jobs: args.jobs.map(usize::from) })
}

/// The name of a plot's file. A name that promises another format than SVG is refused.
pub(super) fn svg(name: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(name);
    match path.extension().and_then(|extension| extension.to_str()) {
        Some(extension) if !extension.eq_ignore_ascii_case("svg") => {
            Err(format!("plots are SVG, not {extension}; name it {}", path.with_extension("svg").display()))
        }
        _ => Ok(path),
    }
}
