//! `altq completions`: what a shell needs to complete altq's commands and options.

use clap::Command;
use clap_complete::Shell;

use crate::exit::Exit;
use crate::output;

/// Options of `altq completions`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Runs the command: prints the script on standard output. `altq` is the whole command line.
pub fn run(args: &Args, mut altq: Command) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut altq, "altq", &mut script);
    output::print(&String::from_utf8(script)?)?;
    Ok(Exit::Ok)
}
