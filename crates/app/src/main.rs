//! `altq`: say who gets how much of a link, and see that it is so.

#[cfg(feature = "experiments")]
mod case_result;
#[cfg(feature = "experiments")]
mod chosen;
mod commands;
#[cfg(feature = "experiments")]
mod demo;
mod exit;
#[cfg(feature = "experiments")]
mod export;
mod notify;
mod output;
mod pattern;
mod policy;
#[cfg(feature = "experiments")]
mod progress;
mod socket;
#[cfg(feature = "experiments")]
mod stat_format;
#[cfg(all(test, feature = "experiments"))]
mod tests;
mod tree;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands::{check, convert, link, reserve, rsvp, rsvpd, stat, status, subscriber};
use crate::exit::Exit;

/// Allocates from large pages, so that the records of many classes need few TLB entries.
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
    /// Shows in a minute what altq does: the same traffic through a FIFO and through altq
    #[cfg(feature = "experiments")]
    Demo(commands::demo::Args),
    /// Reads a policy, and prints what is wrong with it and what it promises; or a case, and prints
    /// what is wrong with it. Runs and changes nothing
    Check(check::Args),
    /// Prints a policy of any language in the native language, or as tc commands
    Convert(convert::Args),
    /// Runs a list of packets through a policy in virtual time
    #[cfg(feature = "experiments")]
    Replay(commands::replay::Args),
    /// Runs a case in virtual time
    #[cfg(feature = "experiments")]
    Sim(commands::sim::Args),
    /// Runs a case in network namespaces with the kernel's own TCP
    #[cfg(feature = "experiments")]
    Lab(commands::lab::Args),
    /// Runs the published cases, and writes results, pages and EXPERIMENTS.md
    #[cfg(feature = "experiments")]
    Experiments(commands::experiments::Args),
    /// Makes a self-contained HTML page of results
    #[cfg(feature = "experiments")]
    Report(commands::report::Args),
    /// Shapes traffic between real interfaces until stopped
    Run(commands::run::Args),
    /// Takes away what `altq run --detach` set up
    Stop(commands::stop::Args),
    /// Says whether a running altq shapes
    Status(status::Args),
    /// Prints the counters of a running altq
    Stat(stat::Args),
    /// Changes a link of a running altq
    Link(link::Args),
    /// Gives subscribers their classes in a running altq, changes them, and takes them away
    Subscriber(subscriber::Args),
    /// Reserves rates for flows in a running altq, as long as there is room
    Reserve(reserve::Args),
    /// Speaks RSVP (RFC 2205), and reserves in a running altq what neighbours ask for
    Rsvpd(rsvpd::Args),
    /// Shows what the RSVP daemon knows, and speaks RSVP for hosts that do not
    Rsvp(rsvp::Args),
    /// Makes load and measures latency between hosts: TCP and UDP, up and down
    Traffic(commands::traffic::Args),
    /// Measures the speed of the engine and of the simulator
    #[cfg(feature = "experiments")]
    Bench(commands::bench::Args),
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(error) => {
            eprintln!("altq: {error:#}");
            ExitCode::from(Exit::of(&error) as u8)
        }
    }
}

fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        #[cfg(feature = "experiments")]
        Command::Demo(args) => commands::demo::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Convert(args) => convert::run(&args),
        #[cfg(feature = "experiments")]
        Command::Replay(args) => commands::replay::run(&args),
        #[cfg(feature = "experiments")]
        Command::Sim(args) => commands::sim::run(&args),
        #[cfg(feature = "experiments")]
        Command::Lab(args) => commands::lab::run(&args),
        #[cfg(feature = "experiments")]
        Command::Experiments(args) => commands::experiments::run(&args),
        #[cfg(feature = "experiments")]
        Command::Report(args) => commands::report::run(&args),
        Command::Run(args) => commands::run::run(&args),
        Command::Stop(args) => commands::stop::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Stat(args) => stat::run(&args),
        Command::Link(args) => link::run(&args),
        Command::Subscriber(args) => subscriber::run(&args),
        Command::Reserve(args) => reserve::run(&args),
        Command::Rsvpd(args) => rsvpd::run(&args),
        Command::Rsvp(args) => rsvp::run(&args),
        Command::Traffic(args) => commands::traffic::run(&args),
        #[cfg(feature = "experiments")]
        Command::Bench(args) => commands::bench::run(&args),
    }
}
