//! `altq convert`.

use std::fmt::Write as _;

use altq_config::{Device, Policy, print};
use altq_dataplane::kernel::host_of;
use altq_kernel::{Host, Place, assumed, script, translate};

use crate::exit::Exit;
use crate::output;
use crate::policy::{PolicyFile, print_findings};

/// Options of `altq convert`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    policy: PolicyFile,
    /// The language to print: native, or tc for a script of tc commands
    #[arg(long, default_value = "native", value_parser = ["native", "tc"])]
    to: String,
}

/// Runs the command: prints the policy on standard output. What the native language cannot say is
/// listed on standard error. What the kernel cannot keep is an error of `--to tc`.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let Some(policy) = args.policy.load() else { return Ok(Exit::Usage) };
    if args.to == "tc" {
        return to_tc(&policy);
    }
    let printed = print(&policy);
    output::print(&printed.text)?;
    for line in &printed.left_out {
        eprintln!("altq: not carried over: {line}");
    }
    Ok(Exit::Ok)
}

/// Prints the links as a script of tc commands. Nothing is printed if the kernel cannot keep all of
/// them.
fn to_tc(policy: &Policy) -> anyhow::Result<Exit> {
    let (mut out, mut wrong) = ("#!/bin/sh\nset -e\n".to_owned(), Vec::new());
    for link in &policy.links {
        let name = match &link.device {
            Some(Device::Interface { name, .. }) => name.as_str(),
            _ => "",
        };
        let asked = host_of(name);
        match translate(link, &asked.unwrap_or_default(), Place::ROOT) {
            Ok(tree) => {
                writeln!(out, "\n# link {}", link.name)?;
                let header = assumed(link, &tree).map(|assumed| match asked {
                    Some(Host { header, .. }) => {
                        format!("of the header of {name} on this host the kernel counts {header} bytes by itself")
                    }
                    None => assumed,
                });
                for note in tree.notes.iter().chain(&header) {
                    writeln!(out, "# note: {note}")?;
                }
                for line in script(link, &tree) {
                    writeln!(out, "{line}")?;
                }
            }
            Err(errors) => wrong.extend(errors),
        }
    }
    if !wrong.is_empty() {
        print_findings(&wrong, &policy.sources, false);
        return Ok(Exit::Usage);
    }
    output::print(&out)?;
    Ok(Exit::Ok)
}
