//! `altq demo`.

use crate::exit::Exit;

/// Options of `altq demo`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs it.
pub fn run(_args: &Args) -> anyhow::Result<Exit> {
    anyhow::bail!("not built yet")
}
