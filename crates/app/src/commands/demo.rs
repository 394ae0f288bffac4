//! `altq demo`: the first minute.

use crate::demo::live::{self, Live};
use crate::demo::screen::Screen;
use crate::demo::{share, then};
use crate::exit::Exit;
use crate::output;

/// Options of `altq demo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Prints the demo's policy instead, as a file to start from
    #[arg(long)]
    policy: bool,
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    if args.policy {
        output::print(share::POLICY)?;
        return Ok(Exit::Ok);
    }
    let screen = Screen::here();
    output::print(&(screen.shares(&share::run()?) + "\n"))?;
    output::print(&(screen.then(&then::run()?) + "\n"))?;
    // Last, because it takes seconds of real time.
    let live = match live::run() {
        Ok(live) => live,
        Err(error) => Live::Skipped(format!("{error:#}")),
    };
    output::print(&(screen.live(&live) + "\n" + &screen.next()))?;
    Ok(Exit::Ok)
}
