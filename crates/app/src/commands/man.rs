//! `altq man`: manual pages, from the same source as `--help`.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Command;
use clap_mangen::Man;

use crate::exit::Exit;
use crate::output;

/// Options of `altq man`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A command, such as `check` or `link set` [default: altq itself]
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    command: Vec<String>,
    /// Writes the pages of all commands into this folder instead, which is made if it is not there
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs the command. A page on standard output is for `man -l -`. `altq` is the whole command line.
pub fn run(args: &Args, altq: Command) -> anyhow::Result<Exit> {
    // `altq help COMMAND` is `altq COMMAND --help`, and would have a page for each command again.
    let mut altq = altq.disable_help_subcommand(true);
    // The commands below learn their whole names, such as `altq link set`.
    altq.build();
    if let Some(folder) = &args.out {
        std::fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        let written = clap_mangen::generate_to(altq, folder);
        written.with_context(|| format!("{} cannot be written", folder.display()))?;
        return Ok(Exit::Ok);
    }
    let mut command = &altq;
    for name in &args.command {
        let Some(found) = command.find_subcommand(name) else {
            eprintln!("altq man: there is no command `{}`; `altq --help` lists them", args.command.join(" "));
            return Ok(Exit::Usage);
        };
        command = found;
    }
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    output::print(&String::from_utf8(page)?)?;
    Ok(Exit::Ok)
}
