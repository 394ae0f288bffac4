//! `altq demo`: what altq does, shown in three short runs.

use crate::demo::live::{self, Live};
use crate::demo::screen::Screen;
use crate::demo::{conf_1997, share};
use crate::exit::Exit;
use crate::output;

/// Options of `altq demo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Prints the demo's policy instead, as a file to start from
    #[arg(long)]
    policy: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    if args.policy {
        output::print(share::POLICY)?;
        return Ok(Exit::Ok);
    }
    let screen = Screen::of_stdout();
    output::print(&(screen.shares(&share::run()?) + "\n"))?;
    output::print(&(screen.conf_1997(&conf_1997::run()?) + "\n"))?;
    // The live part is last because it takes seconds of real time.
    let live = match live::run() {
        Ok(live) => live,
        Err(error) => Live::Skipped(format!("{error:#}")),
    };
    output::print(&(screen.live(&live) + "\n" + &screen.next()))?;
    Ok(Exit::Ok)
}
