//! `altq check`: prints the errors of a policy, and what it promises.

mod human;
mod json;

use altq_config::{Diagnostic, Policy, advice, load};

use crate::exit::Exit;
use crate::output;
use crate::policy::{PolicyFile, print_findings};

/// Options of `altq check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    policy: PolicyFile,
    /// Prints JSON, findings included (altq.check/1)
    #[arg(long)]
    json: bool,
}

/// Runs the command. The exit code is 2 if the policy has errors.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let (policy, mut findings, sources) = match load(&args.policy.file, args.policy.language) {
        Ok(policy) => {
            let (warnings, sources) = (policy.warnings.clone(), policy.sources.clone());
            (Some(policy), warnings, sources)
        }
        Err(failed) => (None, failed.diagnostics, failed.sources),
    };
    if let Some(policy) = &policy {
        findings.extend(policy.links.iter().flat_map(advice));
        findings.extend(refused_by_run(policy));
    }
    if args.json {
        output::print(&(json::report(policy.as_ref(), &findings, &sources)? + "\n"))?;
    } else {
        print_findings(&findings, &sources);
        if let Some(policy) = &policy {
            output::print(&human::report(policy))?;
        }
    }
    Ok(if policy.is_some() { Exit::Ok } else { Exit::Usage })
}

/// A warning at the first link that `altq run` would refuse beside those before it.
fn refused_by_run(policy: &Policy) -> Option<Diagnostic> {
    let links: Vec<_> = policy.links.iter().filter(|link| link.device.is_some()).collect();
    let (at, error) = (1..=links.len()).find_map(|count| {
        let error = altq_dataplane::check(links.get(..count)?).err()?;
        Some((count - 1, error))
    })?;
    let link = links.get(at)?;
    let place = link.classes.first().map_or(link.span, |root| root.place("device"));
    Some(Diagnostic::warning("refused-by-run", place, format!("`altq run` refuses this: {error}")))
}
