//! `altq lab`: runs a case in network namespaces with the kernel's own TCP (docs/lab.md).

use std::path::PathBuf;
use std::sync::Arc;

use altq_cases::case::CaseFile;
use altq_cases::made;
use altq_cases::task::Progress;
use altq_lab::{self as lab, BadCase, BadPolicy, Options};
use altq_pages::stat::tc;

use crate::case_result;
use crate::chosen::Chosen;
use crate::exit::Exit;
use crate::export::Export;
use crate::output;
use crate::progress::OnTerminal;
use crate::values::Values;

/// Options of `altq lab`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The case: a TOML file, as docs/cases.md describes it, or the name of a case inside altq
    /// (`altq examples` lists them); `-` for standard input
    case: PathBuf,
    /// Prints the result as JSON
    #[arg(long)]
    json: bool,
    /// Runs the same traffic through this as well, afterwards, and prints the ratio of the rates
    #[arg(long, value_name = lab::PEER)]
    peer: Option<Peer>,
    /// Congestion control of TCP flows that name none, one of
    /// net.ipv4.tcp_available_congestion_control [default: cubic]
    #[arg(long, value_name = "NAME")]
    cc: Option<String>,
    /// Send and receive buffers of TCP flows that name none, in bytes [default: the kernel tunes
    /// them]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(2048..=1 << 30))]
    buffers: Option<u32>,
    /// Hosts send no super-packets, as if their network cards had no segmentation offload
    #[arg(long)]
    no_offload: bool,
    /// Seed of the sources' random choices [default: the case's own]
    #[arg(long)]
    seed: Option<u64>,
    /// How often a run is repeated that the host disturbed: other machines took its processors, or
    /// its timers were late
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=100))]
    again: u32,
    /// Only this row of the case
    #[arg(long, value_name = "NAME")]
    row: Option<String>,
    /// Only this column of the case
    #[arg(long, value_name = "NAME")]
    column: Option<String>,
    #[command(flatten)]
    values: Values,
    #[command(flatten)]
    chosen: Chosen,
    #[command(flatten)]
    export: Export,
}

/// The values of `--peer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Peer {
    /// The kernel's HTB: with the policy's classes if the policy's scheduler is `htb`, else with
    /// one class at the link's rate.
    Htb,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let given = args.values.given();
    let loaded = given.and_then(|given| CaseFile::named_with(&args.case, &given).map_err(|error| error.to_string()));
    let mut file = match loaded {
        Ok(file) => file,
        Err(error) => {
            eprintln!("altq lab: {error}");
            return Ok(Exit::Usage);
        }
    };
    if let Err(error) = tc::check(&file) {
        eprintln!("altq lab: {error}");
        return Ok(Exit::Usage);
    }
    if let Err(message) = chosen(&mut file, args) {
        eprintln!("altq lab: {}: {message}", file.path.display());
        return Ok(Exit::Usage);
    }
    let progress = Arc::new(Progress::default());
    let options = Options {
        congestion: args.cc.clone(),
        buffers: args.buffers,
        offload: !args.no_offload,
        seed: args.seed.unwrap_or(file.seed),
        again: args.again,
        progress: Some(progress.clone()),
        counters: tc::measured,
    };
    let whole = file.clone();
    let left_out = lab::retain_possible(&mut file, &options);
    if file.runs.is_empty() {
        // The lab can run nothing of the case. The case is kept whole, so that the first run states
        // the reason.
        file = whole;
    }
    let shown = OnTerminal::of(progress);
    let ran = lab::run_file(&file, &options, args.peer == Some(Peer::Htb));
    drop(shown);
    let mut result = match ran {
        Ok(result) => result,
        Err(error) => return refused(error),
    };
    result.notes.extend(left_out.notes);
    let made = made::made(&file);
    let offload = file.runs.iter().all(|run| run.case.offload) && options.offload;
    result.made = Some(lab::made::in_lab(made, offload));
    args.export.write(&result, args.column.as_deref(), args.row.as_deref())?;
    if args.json {
        output::print_json(&result)?;
    } else {
        output::print(&case_result::text(&file.description, &result, &args.chosen))?;
    }
    for note in &result.notes {
        eprintln!("altq lab: {note}");
    }
    Ok(if result.passed() { Exit::Ok } else { Exit::Differs })
}

/// Removes from a case the runs that the options do not ask for.
fn chosen(file: &mut CaseFile, args: &Args) -> Result<(), String> {
    let among = |word: &str, name: &str, names: Vec<&str>| match names.as_slice() {
        [] => Err(format!("--{word}: the case has no {word}s")),
        names if names.contains(&name) => Ok(()),
        names => Err(format!("--{word}: there is no {word} {name:?}; {word}s: {}", names.join(", "))),
    };
    if let Some(row) = &args.row {
        among("row", row, file.rows.iter().map(|row| row.name.as_str()).collect())?;
        file.runs.retain(|run| run.case.row.as_ref() == Some(row));
    }
    if let Some(column) = &args.column {
        among("column", column, file.columns.iter().map(String::as_str).collect())?;
        for run in &mut file.runs {
            run.case.columns.retain(|own| own.name.as_ref() == Some(column));
        }
        file.runs.retain(|run| !run.case.columns.is_empty());
    }
    args.chosen.check(file, file.runs.iter())?;
    args.export
        .check(file, args.column.as_deref(), args.row.as_deref())
        .map_err(|message| format!("--flent: {message}"))
}

/// Prints why a case did not run, and returns the exit code for it.
fn refused(error: anyhow::Error) -> anyhow::Result<Exit> {
    let exit = Exit::of(&error);
    if let Exit::NotPermitted | Exit::Unsupported = exit {
        eprintln!("altq lab: {error:#}");
        return Ok(exit);
    }
    if let Some(BadPolicy(failed)) = error.downcast_ref() {
        eprintln!("{failed}");
        return Ok(Exit::Usage);
    }
    if let Some(bad) = error.downcast_ref::<BadCase>() {
        eprintln!("altq lab: {bad}");
        return Ok(Exit::Usage);
    }
    Err(error)
}
