//! `altq`: say who gets how much of a link, and see that it is so.

#[macro_use]
mod say;

mod aside;
#[cfg(feature = "experiments")]
mod captured;
#[cfg(feature = "experiments")]
mod case_result;
#[cfg(feature = "experiments")]
mod chosen;
mod clock;
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
#[cfg(all(test, feature = "sweep", feature = "web"))]
mod schemas;
mod socket;
#[cfg(feature = "experiments")]
mod stat_format;
#[cfg(all(test, feature = "experiments"))]
mod tests;
mod tree;
#[cfg(feature = "experiments")]
mod values;

use std::ffi::OsString;
use std::process::ExitCode;

#[cfg(any(test, feature = "manual"))]
use clap::CommandFactory as _;
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use crate::commands::{apply, check, convert, edit, link, reserve, stat, status, subscriber, tap};
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
    /// Checks a policy, and prints errors and what it promises; or checks a case. Runs and changes
    /// nothing
    Check(check::Args),
    /// Says which class a packet gets, by which rule, and within which limits
    Explain(commands::explain::Args),
    /// Prints a policy of any language in the native language, or as tc commands
    Convert(convert::Args),
    /// Runs a list of packets through a policy in virtual time
    #[cfg(feature = "experiments")]
    Replay(commands::replay::Args),
    /// Runs a case in virtual time
    #[cfg(feature = "experiments")]
    Sim(commands::sim::Args),
    /// Runs a case many times in virtual time: over values, seeds, processors and hosts
    #[cfg(feature = "sweep")]
    Sweep(commands::sweep::Args),
    /// Runs a case in network namespaces with the kernel's own TCP
    #[cfg(feature = "experiments")]
    Lab(commands::lab::Args),
    /// Runs the published cases, and writes results, pages and EXPERIMENTS.md
    #[cfg(feature = "experiments")]
    Experiments(commands::experiments::Args),
    /// Lists the cases and examples inside altq, prints them, or writes them to a folder
    #[cfg(feature = "experiments")]
    Examples(commands::examples::Args),
    /// Makes a self-contained HTML page of results
    #[cfg(feature = "experiments")]
    Report(commands::report::Args),
    /// Shapes traffic between real interfaces until stopped
    Run(commands::run::Args),
    /// Removes what `altq run --detach` set up, and rules and qdiscs that a killed altq has left
    Stop(commands::stop::Args),
    /// Shows whether a running altq shapes
    Status(status::Args),
    /// Reads back what runs and what stands on the host, and compares it with the policy
    Verify(commands::verify::Args),
    /// Prints the counters of a running altq
    Stat(stat::Args),
    /// Says what a policy would change: words, promises, who changes class, what each would get
    Plan(commands::plan::Args),
    /// Changes the policy of a running altq; packets that wait stay
    Apply(apply::Args),
    /// Keeps a change that waits to be confirmed
    Confirm(apply::Plain),
    /// Takes back a change that waits to be confirmed, or brings back the previous policy
    Rollback(apply::Back),
    /// Prints the changes of the policy: when, by whom, and what differed
    History(apply::Past),
    /// Changes, makes or removes a class of a running altq
    Class(edit::Class),
    /// Makes or removes a rule of a running altq
    Match(edit::Match),
    /// Writes the running policy to its file
    Save(edit::Save),
    /// Shows what the classes of a running altq do, and their flows; or watches an interface
    Top(commands::top::Args),
    /// Serves what a running altq does: a page for browsers, metrics for collectors
    #[cfg(feature = "web")]
    Web(commands::web::Args),
    /// Changes a link of a running altq
    Link(link::Args),
    /// Makes, changes and removes classes of subscribers in a running altq
    Subscriber(subscriber::Args),
    /// Reserves rates for flows in a running altq, as long as there is room
    Reserve(reserve::Args),
    /// Speaks RSVP (RFC 2205), and reserves in a running altq what neighbours ask for
    #[cfg(feature = "rsvp")]
    Rsvpd(commands::rsvpd::Args),
    /// Shows what the RSVP daemon knows, and speaks RSVP for hosts that do not
    #[cfg(feature = "rsvp")]
    Rsvp(commands::rsvp::Args),
    /// Copies the packets that leave a class of a running altq to a pcap file
    Tap(tap::Args),
    /// Makes load and measures latency between hosts: TCP and UDP, up and down
    #[cfg(feature = "traffic")]
    Traffic(commands::traffic::Args),
    /// Measures the speed of the engine and of the simulator
    #[cfg(feature = "experiments")]
    Bench(commands::bench::Args),
    /// Prints what a shell needs to complete commands and options
    #[cfg(feature = "manual")]
    Completions(commands::completions::Args),
    /// Prints the manual page of a command, or writes those of all
    #[cfg(feature = "manual")]
    Man(commands::man::Args),
}

/// Commands that this program may be built without, each with the feature that has it, and whether
/// it is there.
const OPTIONAL: &[(&str, &str, bool)] = &[
    ("demo", "experiments", cfg!(feature = "experiments")),
    ("replay", "experiments", cfg!(feature = "experiments")),
    ("sim", "experiments", cfg!(feature = "experiments")),
    ("sweep", "sweep", cfg!(feature = "sweep")),
    ("lab", "experiments", cfg!(feature = "experiments")),
    ("experiments", "experiments", cfg!(feature = "experiments")),
    ("examples", "experiments", cfg!(feature = "experiments")),
    ("report", "experiments", cfg!(feature = "experiments")),
    ("web", "web", cfg!(feature = "web")),
    ("rsvpd", "rsvp", cfg!(feature = "rsvp")),
    ("rsvp", "rsvp", cfg!(feature = "rsvp")),
    ("traffic", "traffic", cfg!(feature = "traffic")),
    ("bench", "experiments", cfg!(feature = "experiments")),
    ("completions", "manual", cfg!(feature = "manual")),
    ("man", "manual", cfg!(feature = "manual")),
];

/// The command that these arguments name, and the feature that has it, if this program is built
/// without it.
fn lacking(mut words: impl Iterator<Item = OsString>) -> Option<(&'static str, &'static str)> {
    // `altq help COMMAND` names one as well.
    let word = words.find(|word| word != "help")?;
    let found = OPTIONAL.iter().find(|(command, _, there)| word == *command && !there);
    found.map(|(command, feature, _)| (*command, *feature))
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let unknown = error.kind() == ErrorKind::InvalidSubcommand;
            let Some((command, feature)) = lacking(std::env::args_os().skip(1)).filter(|_| unknown) else {
                error.exit()
            };
            eprintln!("altq {command}: this altq is built without this command; the feature `{feature}` has it");
            return ExitCode::from(Exit::Unsupported as u8);
        }
    };
    match run(cli.command) {
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
        Command::Explain(args) => commands::explain::run(&args),
        Command::Convert(args) => convert::run(&args),
        #[cfg(feature = "experiments")]
        Command::Replay(args) => commands::replay::run(&args),
        #[cfg(feature = "experiments")]
        Command::Sim(args) => commands::sim::run(&args),
        #[cfg(feature = "sweep")]
        Command::Sweep(args) => commands::sweep::run(&args),
        #[cfg(feature = "experiments")]
        Command::Lab(args) => commands::lab::run(&args),
        #[cfg(feature = "experiments")]
        Command::Experiments(args) => commands::experiments::run(&args),
        #[cfg(feature = "experiments")]
        Command::Examples(args) => commands::examples::run(&args),
        #[cfg(feature = "experiments")]
        Command::Report(args) => commands::report::run(&args),
        Command::Run(args) => commands::run::run(&args),
        Command::Stop(args) => commands::stop::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Verify(args) => commands::verify::run(&args),
        Command::Stat(args) => stat::run(&args),
        Command::Plan(args) => commands::plan::run(&args),
        Command::Apply(args) => apply::run(&args),
        Command::Confirm(args) => apply::confirm(&args),
        Command::Rollback(args) => apply::rollback(&args),
        Command::History(args) => apply::history(&args),
        Command::Class(args) => edit::class(&args),
        Command::Match(args) => edit::matches(&args),
        Command::Save(args) => edit::save(&args),
        Command::Top(args) => commands::top::run(&args),
        #[cfg(feature = "web")]
        Command::Web(args) => commands::web::run(&args),
        Command::Link(args) => link::run(&args),
        Command::Subscriber(args) => subscriber::run(&args),
        Command::Reserve(args) => reserve::run(&args),
        #[cfg(feature = "rsvp")]
        Command::Rsvpd(args) => commands::rsvpd::run(&args),
        #[cfg(feature = "rsvp")]
        Command::Rsvp(args) => commands::rsvp::run(&args),
        Command::Tap(args) => tap::run(&args),
        #[cfg(feature = "traffic")]
        Command::Traffic(args) => commands::traffic::run(&args),
        #[cfg(feature = "experiments")]
        Command::Bench(args) => commands::bench::run(&args),
        #[cfg(feature = "manual")]
        Command::Completions(args) => commands::completions::run(&args, Cli::command()),
        #[cfg(feature = "manual")]
        Command::Man(args) => commands::man::run(&args, Cli::command()),
    }
}

#[cfg(test)]
mod optional {
    use super::*;

    #[test]
    fn a_command_is_there_or_named_with_its_feature() {
        let altq = Cli::command();
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>().into_iter();
        for &(command, feature, there) in OPTIONAL {
            assert_eq!(altq.find_subcommand(command).is_some(), there, "{command}");
            let expected = (!there).then_some((command, feature));
            assert_eq!(lacking(words(command)), expected);
            assert_eq!(lacking(words(&format!("help {command} set"))), expected);
            // A word of another command.
            assert_eq!(lacking(words(&format!("link {command}"))), None);
        }
    }
}
