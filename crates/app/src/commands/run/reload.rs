//! SIGHUP: reads the policy again, and changes the running links in place if that is possible.

use altq_config::{Link, Policy};
use altq_control::change::Text;
use anyhow::Context as _;

use super::heart::{Told, Wire};
use super::keep::text_of;
use super::live::Live;
use super::{Args, apply, choose, drift};
use crate::commands::check::refused_by_kernel;
use crate::policy::print_findings;

/// Reads the policy again, or gets it from the supervisor, and changes the running links. If it has
/// errors, or differs in what only a new start can change, all links stay as they are. The outcome
/// is printed on standard error and reported to the supervisor.
pub fn reload(args: &Args, live: &Live, wire: Option<&Wire>) {
    let file = args.policy.file.display();
    let Some(wire) = wire else {
        if let Some(policy) = read(args) {
            change(args, live, text_of(&args.policy, &policy), policy, None);
        }
        return;
    };
    let told = match wire.policy() {
        Ok(told) => told,
        Err(error) => {
            return eprintln!(
                "altq run: SIGHUP: the supervisor did not send the policy of {file} ({error}); the policy that runs \
                 stays"
            );
        }
    };
    let taken = match told.policy() {
        Ok(policy) => change(args, live, told.text, policy, Some(wire)),
        // Not expected: the supervisor has read the same text without errors.
        Err(failed) => {
            print_findings(&failed.diagnostics, &failed.sources, false);
            eprintln!("altq run: SIGHUP: {file} is not understood; the policy that runs stays");
            false
        }
    };
    // The error is ignored: if the supervisor is gone, this worker ends soon.
    let _ = wire.answer(told.number, taken);
}

/// Changes the links, and prints how many things have changed. False if the policy that ran stays.
fn change(args: &Args, live: &Live, text: Text, policy: Policy, wire: Option<&Wire>) -> bool {
    let file = args.policy.file.display();
    let (files, only) = (drift::files(&policy), args.link.as_deref());
    let links: Vec<Link> = choose(&policy, only).map(|links| links.into_iter().cloned().collect()).unwrap_or_default();
    let followed = apply::read_again(live, wire, text, policy);
    if followed.is_ok() {
        live.asks(&files, &links);
    }
    match &followed {
        Err(fault) => eprintln!("altq run: SIGHUP: {}; the policy that runs stays", fault.message),
        Ok(0) => eprintln!("altq run: SIGHUP: {file} asks for what runs already"),
        Ok(1) => eprintln!("altq run: SIGHUP: {file} is read, 1 thing has changed"),
        Ok(count) => eprintln!("altq run: SIGHUP: {file} is read, {count} things have changed"),
    }
    followed.is_ok()
}

/// The policy with which a worker begins, as sent by its supervisor. `None`, after a message, if it
/// has errors.
///
/// # Errors
/// The supervisor does not send one.
pub fn first(wire: &Wire) -> anyhow::Result<Option<(Policy, Told)>> {
    let told = wire.policy().context("the supervisor does not send the policy")?;
    let policy = told.policy().map_err(|failed| print_findings(&failed.diagnostics, &failed.sources, false)).ok();
    Ok(policy.map(|policy| (policy, told)))
}

/// Reads the policy again. `None`, after a message, if it has errors.
pub fn read(args: &Args) -> Option<Policy> {
    let policy = args.policy.load().filter(|policy| {
        let refused = refused_by_kernel(policy);
        print_findings(&refused, &policy.sources, false);
        refused.is_empty()
    });
    if policy.is_none() {
        eprintln!("altq run: SIGHUP: {} has errors; the policy that runs stays", args.policy.file.display());
    }
    policy
}
