//! SIGHUP: the policy is read again, and what runs is changed in place if it can be.

use altq_config::{Link, Path, Policy};
use altq_dataplane::changes;
use altq_dataplane::kernel::Done;
use altq_engine::Change;
use anyhow::Context as _;

use super::heart::Wire;
use super::live::{Live, State};
use super::reservations::carry_out;
use super::{Args, choose};
use crate::commands::check::refused_by_kernel;
use crate::policy::print_findings;

/// Reads the policy again, or is told it by the supervisor, and changes the links that run. If it
/// has errors, or differs in what only a new start can change, all links stay as they are. Either
/// is said on standard error, and to the supervisor.
pub fn reload(args: &Args, live: &Live, wire: Option<&Wire>) {
    let file = args.policy.file.display();
    let Some(wire) = wire else {
        if let Some(policy) = read(args) {
            change(args, live, &policy, None);
        }
        return;
    };
    let told = match wire.policy() {
        Ok(told) => told,
        Err(error) => {
            return eprintln!("altq run: SIGHUP: {file} is not told ({error}); the policy that runs stays");
        }
    };
    let taken = match told.policy() {
        Ok(policy) => change(args, live, &policy, Some(wire)),
        // The supervisor has read it without errors.
        Err(failed) => {
            print_findings(&failed.diagnostics, &failed.sources, false);
            eprintln!("altq run: SIGHUP: {file} is not understood; the policy that runs stays");
            false
        }
    };
    // Without a supervisor the worker is about to end.
    let _ = wire.answer(told.number, taken);
}

/// Changes the links, and says what has changed. False if the policy that ran stays.
fn change(args: &Args, live: &Live, policy: &Policy, wire: Option<&Wire>) -> bool {
    let file = args.policy.file.display();
    let followed = follow(args, live, policy, wire);
    match &followed {
        Err(message) => eprintln!("altq run: SIGHUP: {message}"),
        Ok(0) => eprintln!("altq run: SIGHUP: {file} asks for what runs already"),
        Ok(1) => eprintln!("altq run: SIGHUP: {file} is read, 1 thing has changed"),
        Ok(count) => eprintln!("altq run: SIGHUP: {file} is read, {count} things have changed"),
    }
    followed.is_ok()
}

/// The policy with which a worker begins: its supervisor tells it. `None`, after a message, if it
/// has errors.
///
/// # Errors
/// The supervisor tells none.
pub fn first(wire: &Wire) -> anyhow::Result<Option<Policy>> {
    let told = wire.policy().context("the supervisor does not tell the policy")?;
    Ok(told.policy().map_err(|failed| print_findings(&failed.diagnostics, &failed.sources, false)).ok())
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

/// Changes the links, and returns how many things have changed.
fn follow(args: &Args, live: &Live, policy: &Policy, wire: Option<&Wire>) -> Result<usize, String> {
    let stays = |message: String| format!("{message}; the policy that runs stays");
    let links = choose(policy, args.link.as_deref()).map_err(stays)?;
    let mut state = live.lock();
    if !state.roster.is_empty() {
        let count = state.roster.len();
        return Err(stays(format!("{count} subscribers have classes, which needs a new start")));
    }
    let plan = plan(&state, &links, live).map_err(stays)?;
    let mut count: usize = plan.iter().map(|(_, changes)| changes.len()).sum();
    // First what the kernel may refuse.
    let mut replaced: Vec<&Link> = Vec::new();
    for link in links.iter().filter(|link| link.path() == Some(Path::Kernel)) {
        match live.replace(link) {
            Ok(Done::Stood) => {}
            Ok(Done::Changed(classes)) => count += classes,
            Ok(Done::Built) => count += 1,
            Err(error) => {
                // Those before it stand as they are written now.
                let done = state.follow(&replaced, live.tuning.room).map_err(|error| error.to_string())?;
                carry_out(live, wire, done);
                return Err(format!("link `{}`: {error}; what stood there stays", link.name));
            }
        }
        replaced.push(link);
    }
    live.asks(policy, &links);
    // Names, promises and notes may differ where the engine's part does not.
    let mut done = state.follow(&links, live.tuning.room).map_err(|error| error.to_string())?;
    // The rules of reservations stand before those of the policy, which are set first: a loop gets
    // both at once.
    for (link, mut changes) in plan.into_iter().filter(|(_, changes)| !changes.is_empty()) {
        match done.changes.iter_mut().find(|(name, _)| *name == link) {
            Some((_, more)) => {
                changes.append(more);
                *more = changes;
            }
            None => done.changes.push((link, changes)),
        }
    }
    carry_out(live, wire, done);
    Ok(count)
}

/// For each link that runs, the changes that lead to the one that follows.
fn plan(state: &State, links: &[&Link], live: &Live) -> Result<Vec<(String, Vec<Change>)>, String> {
    let names = state.names();
    if let Some(link) = links.iter().find(|link| !names.contains(&link.name.as_str())) {
        return Err(format!("link `{}` is new, which needs a new start", link.name));
    }
    let follow = |name: &str| {
        let found = links.iter().find(|link| link.name == name);
        let (Some(link), Some(own)) = (found, state.roster.written(name)) else {
            return Err(format!("link `{name}` is gone, which needs a new start"));
        };
        let changes = changes(&own, link, live.tuning)
            .map_err(|what| format!("link `{name}`: only a new start can change this: {what}"))?;
        Ok((name.to_owned(), changes))
    };
    names.into_iter().map(follow).collect()
}
