//! `altq replay`.

use crate::exit::Exit;

/// Options of `altq replay`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs it.
pub fn run(_args: &Args) -> anyhow::Result<Exit> {
    anyhow::bail!("not built yet")
}
