//! SIGHUP: the policy is read again, and what runs is changed in place if it can be.

use altq_config::{Link, Path};
use altq_dataplane::kernel::Done;
use altq_dataplane::shaper::Tuning;
use altq_dataplane::{Running, changes};
use altq_engine::Change;

use super::{Args, Shaped, choose};
use crate::commands::check::refused_by_kernel;
use crate::policy::print_findings;

/// Reads the policy again and changes the links that run. If it has errors, or differs in what only
/// a new start can change, all links stay as they are. Either is said on standard error.
pub fn reload(args: &Args, tuning: Tuning, shaped: &mut [Shaped], running: &Running) {
    let file = args.policy.file.display();
    let Some(policy) = args.policy.load() else {
        return eprintln!("altq run: SIGHUP: {file} has errors; the policy that runs stays");
    };
    let refused = refused_by_kernel(&policy);
    if !refused.is_empty() {
        print_findings(&refused, &policy.sources, false);
        return eprintln!("altq run: SIGHUP: {file} has errors; the policy that runs stays");
    }
    let found = choose(&policy, args.link.as_deref()).and_then(|links| plan(shaped, &links, tuning));
    match found {
        Err(message) => eprintln!("altq run: SIGHUP: {message}; the policy that runs stays"),
        Ok(plan) => {
            let mut all: usize = plan.iter().map(|(_, changes)| changes.len()).sum();
            // First what the kernel may refuse.
            for (link, _) in plan.iter().filter(|(link, _)| link.path() == Some(Path::Kernel)) {
                match running.replace(link) {
                    Ok(Done::Stood) => {}
                    Ok(Done::Changed(classes)) => all += classes,
                    Ok(Done::Built) => all += 1,
                    Err(error) => {
                        return eprintln!("altq run: SIGHUP: link `{}`: {error}; what stood there stays", link.name);
                    }
                }
                if let Some(own) = shaped.iter_mut().find(|own| own.link.name == link.name) {
                    *own = Shaped::new(link);
                }
            }
            for (own, (link, changes)) in shaped.iter_mut().zip(plan) {
                // Names, promises and notes may differ where the engine's part does not.
                *own = Shaped::new(link);
                if !changes.is_empty() {
                    // A loop that has ended is about to end all others, which is said then.
                    running.reach().change(&link.name, changes);
                }
            }
            match all {
                0 => eprintln!("altq run: SIGHUP: {file} asks for what runs already"),
                1 => eprintln!("altq run: SIGHUP: {file} is read, 1 thing has changed"),
                n => eprintln!("altq run: SIGHUP: {file} is read, {n} things have changed"),
            }
        }
    }
}

/// For each link that runs, the one that follows, and the changes that lead to it.
fn plan<'a>(shaped: &[Shaped], links: &[&'a Link], tuning: Tuning) -> Result<Vec<(&'a Link, Vec<Change>)>, String> {
    if let Some(link) = links.iter().find(|link| shaped.iter().all(|own| own.link.name != link.name)) {
        return Err(format!("link `{}` is new, which needs a new start", link.name));
    }
    let follow = |own: &Shaped| {
        let name = &own.link.name;
        let link = *links
            .iter()
            .find(|link| link.name == *name)
            .ok_or_else(|| format!("link `{name}` is gone, which needs a new start"))?;
        let changes = changes(&own.link, link, tuning)
            .map_err(|what| format!("link `{name}`: only a new start can change this: {what}"))?;
        Ok((link, changes))
    };
    shaped.iter().map(follow).collect()
}
