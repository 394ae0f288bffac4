//! `altq convert`.

use altq_config::print;

use crate::exit::Exit;
use crate::output;
use crate::policy::PolicyFile;

/// Options of `altq convert`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    policy: PolicyFile,
    /// The language to print it in
    #[arg(long, default_value = "native", value_parser = ["native"])]
    to: String,
}

/// Runs it: the policy on standard output, what could not be carried over on standard error as
/// well.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let Some(policy) = args.policy.load() else { return Ok(Exit::Usage) };
    let printed = print(&policy);
    output::print(&printed.text)?;
    for line in &printed.left_out {
        eprintln!("altq: not carried over: {line}");
    }
    Ok(Exit::Ok)
}
