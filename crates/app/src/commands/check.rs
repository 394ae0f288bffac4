//! `altq check`.

use crate::exit::Exit;
use crate::policy::PolicyFile;

/// Options of `altq check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    policy: PolicyFile,
}

/// Runs it.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let Some(policy) = args.policy.load() else { return Ok(Exit::Usage) };
    for link in &policy.links {
        println!("link {}: {}, {} classes", link.name, link.spec.rate, link.classes.len());
    }
    Ok(Exit::Ok)
}
