//! `altq`: say who gets how much of a link, and see that it is so.

mod case_result;
mod commands;
mod demo;
mod exit;
mod export;
mod output;
mod policy;
mod stat_format;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands::{bench, check, convert, replay, run, sim};

/// Records of many classes lie in large pages.
#[global_allocator]
static MEMORY: altq_dataplane::LargePages = altq_dataplane::LargePages;

/// Class-based queueing for Linux: say who gets how much of a link, and see that it is so.
#[derive(Debug, Parser)]
#[command(name = "altq", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The first minute: the same traffic through a FIFO and through altq, side by side
    Demo(commands::demo::Args),
    /// Reads a policy, says what is wrong with it and what it promises; changes nothing
    Check(check::Args),
    /// Prints a policy of any language in the native one
    Convert(convert::Args),
    /// Runs a list of packets through a policy in virtual time
    Replay(replay::Args),
    /// Runs a case in virtual time
    Sim(sim::Args),
    /// Runs a case in network namespaces with the kernel's own TCP
    Lab(commands::lab::Args),
    /// Runs the published cases, all at once; writes results, pages and EXPERIMENTS.md
    Experiments(commands::experiments::Args),
    /// Makes a self-contained HTML page of results
    Report(commands::report::Args),
    /// Shapes real interfaces until stopped
    Run(run::Args),
    /// Load and latency between hosts: TCP and UDP, up and down
    Traffic(commands::traffic::Args),
    /// Measures the engine, and the simulator
    Bench(bench::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo(args) => commands::demo::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Lab(args) => commands::lab::run(&args),
        Command::Experiments(args) => commands::experiments::run(&args),
        Command::Report(args) => commands::report::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Traffic(args) => commands::traffic::run(&args),
        Command::Bench(args) => bench::run(&args),
    };
    match result {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(error) => {
            eprintln!("altq: {error:#}");
            ExitCode::from(exit::Exit::Failed as u8)
        }
    }
}
