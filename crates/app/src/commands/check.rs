//! `altq check`: prints the errors of a policy, and what it promises; or the errors of a case.

#[cfg(feature = "experiments")]
mod case;
mod human;

use std::path::Path;

#[cfg(feature = "experiments")]
use altq_cases::case::CaseFile;
use altq_config::document::CheckReport;
use altq_config::{Diagnostic, Link, Path as Way, Policy, Severity, advice};
#[cfg(feature = "experiments")]
use altq_config::{Language, STANDARD_INPUT, parse_bytes};
use altq_kernel::fits;

use crate::exit::Exit;
use crate::policy::{PolicyFile, print_findings, read, shown};
use crate::{output, pattern};
use human::View;

/// Options of `altq check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    policy: PolicyFile,
    /// Prints JSON, findings included (altq.check/1)
    #[arg(long)]
    json: bool,
    /// Prints of the classes only this one, what is below it, and what stands above it; * stands
    /// for any text and ? for any letter, LINK/NAME for a class of that link. May be given several
    /// times
    #[arg(long = "class", value_name = "NAME", conflicts_with = "json")]
    classes: Vec<String>,
    /// Prints each class and each warning. Otherwise classes that are alike are printed once, and
    /// of more than 20 warnings the first ones
    #[arg(long, conflicts_with = "json")]
    all: bool,
}

/// Runs the command. The exit code is 2 if the policy has errors.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    #[cfg(feature = "experiments")]
    if args.policy.language.is_none() && case::is_one(&args.policy.file) {
        return case::run(args, CaseFile::named(&args.policy.file));
    }
    let loaded = match (args.policy.file == Path::new("-"), args.policy.language) {
        // No name tells what comes from standard input.
        #[cfg(feature = "experiments")]
        (true, None) => {
            let bytes = altq_config::read_standard_input();
            if bytes.as_ref().is_ok_and(|bytes| case::is_text_of_one(bytes)) {
                return case::run(args, CaseFile::read(bytes, Path::new(STANDARD_INPUT)));
            }
            parse_bytes(bytes, STANDARD_INPUT, Language::Native)
        }
        (_, language) => read(&args.policy.file, language),
    };
    let (policy, mut findings, sources) = match loaded {
        Ok(policy) => {
            let (warnings, sources) = (policy.warnings.clone(), policy.sources.clone());
            (Some(policy), warnings, sources)
        }
        Err(failed) => (None, failed.diagnostics, failed.sources),
    };
    if let Some(policy) = &policy {
        findings.extend(policy.links.iter().flat_map(advice));
        findings.extend(refused_by_run(policy));
        findings.extend(refused_by_kernel(policy));
    }
    if let Some(wrong) = policy.as_ref().and_then(|policy| unknown_class(args, policy)) {
        eprintln!("altq check: {wrong}");
        return Ok(Exit::Usage);
    }
    let wrong = findings.iter().any(|finding| finding.severity == Severity::Error);
    if args.json {
        output::print_json(&CheckReport::of(policy.as_ref(), &findings, &sources, fits))?;
    } else {
        print_findings(&findings, &sources, args.all);
        if let Some(policy) = &policy {
            output::print(&human::report(policy, &View { classes: &args.classes, all: args.all }))?;
        }
    }
    Ok(if wrong { Exit::Usage } else { Exit::Ok })
}

/// What the kernel cannot keep of links that it is to execute.
pub fn refused_by_kernel(policy: &Policy) -> Vec<Diagnostic> {
    let links = policy.links.iter().filter(|link| link.path() == Some(Way::Kernel));
    links.filter_map(|link| fits(link).err()).flatten().collect()
}

/// What is wrong if `--class` names a class that the policy does not have.
fn unknown_class(args: &Args, policy: &Policy) -> Option<String> {
    let of_link = |link: &Link| -> Vec<(String, String)> {
        link.classes.iter().map(|class| (link.name.clone(), class.name.clone())).collect()
    };
    let known: Vec<(String, String)> = policy.links.iter().flat_map(of_link).collect();
    pattern::unknown(&args.classes, &known, &shown(&args.policy.file))
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

/// The JSON Schema of `altq.check/1`.
#[cfg(test)]
pub fn schema(generator: &schemars::generate::SchemaGenerator) -> schemars::Schema {
    generator.clone().into_root_schema_for::<CheckReport<'_>>()
}
