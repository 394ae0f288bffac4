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
    /// The language to print
    #[arg(long, default_value = "native", value_parser = ["native"])]
    to: String,
}

/// Runs the command: prints the policy on standard output. What the other language cannot say is
/// listed on standard error.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let Some(policy) = args.policy.load() else { return Ok(Exit::Usage) };
    let printed = print(&policy);
    output::print(&printed.text)?;
    for line in &printed.left_out {
        eprintln!("altq: not carried over: {line}");
    }
    Ok(Exit::Ok)
}
