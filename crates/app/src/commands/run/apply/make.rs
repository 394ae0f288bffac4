//! How the running policy is replaced: the steps are computed and tried first, then written down,
//! then made.

use std::sync::Arc;

use altq_config::{Language, Link, Path, differences, print};
use altq_control::Fault;
use altq_control::change::{Answer, Ask, Guard, Text, What};
use altq_dataplane::fits;
use altq_dataplane::kernel::Done;

use super::super::choose;
use super::super::heart::Wire;
use super::super::keep::{first_error, policy_of};
use super::super::live::{Live, State};
use super::super::reservations::{carry_out, time};
use super::rates::{keep_rates, set_rates};
use super::{Made, Wanted, no_answer};
use crate::commands::check::refused_by_kernel;

/// A change whose steps are known, and already made in the trials.
pub struct Plan {
    pub prepared: altq_control::roster::followed::Prepared,
    /// The links that the kernel executes.
    by_kernel: Vec<Arc<Link>>,
    /// What runs afterwards.
    text: Text,
    pub lines: Vec<String>,
}

/// Computes the steps of a change. Only the trials are changed.
pub fn plan(live: &Live, state: &mut State, wanted: &Wanted) -> Result<Plan, Fault> {
    let refused = refused_by_kernel(&wanted.policy);
    if let Some(first) = refused.first() {
        return Err(Fault::usage(first.message.clone()));
    }
    let (text, links) = match &wanted.link {
        None => {
            let links = choose(&wanted.policy, live.only.as_deref()).map_err(Fault::refused)?;
            (wanted.text.clone(), links.into_iter().cloned().collect::<Vec<Link>>())
        }
        Some(name) => one_link(state, wanted, name)?,
    };
    // A loop knows the interfaces of rules by their places in the list of the start.
    let in_order = |link: Link| match state.started(&link.name) {
        Some(start) => link.with_interfaces(&start.spec.rules.interfaces),
        None => link,
    };
    let links: Vec<Link> = links.into_iter().map(in_order).collect();
    same_links(state, &links, wanted.link.is_some())?;
    known_classes(state, &links, &wanted.guards)?;
    let mut lines = Vec::new();
    // Whoever changes one thing, or takes a change back, says nothing of the rate that the line has
    // now. A whole policy is applied as it is written.
    let keeps_rates = matches!(wanted.what, What::Edited | What::Reverted);
    for link in &links {
        if let Some(start) = state.started(&link.name) {
            fits(&start, link, live.tuning).map_err(|what| {
                let message = format!("link `{}`: only a new start can change this: {what}", link.name);
                Fault::refused(message).help("stop altq and start it with this policy; packets pass unshaped meanwhile")
            })?;
        }
        if let Some(runs) = state.roster.written(&link.name) {
            lines.extend(differences(&runs, link));
        }
        let rate = state.roster.link(&link.name).map(|link| link.spec.rate);
        if !keeps_rates
            && let (Some(rate), Some(written)) = (rate, state.roster.written(&link.name))
            && written.spec.rate == link.spec.rate
            && rate != link.spec.rate
        {
            lines.push(format!("link {}: rate {}, before rate {rate}", link.name, link.spec.rate));
        }
    }
    let links: Vec<Arc<Link>> = links.into_iter().map(Arc::new).collect();
    let by_kernel = links.iter().filter(|link| link.path() == Some(Path::Kernel)).cloned().collect();
    let prepared = match keeps_rates {
        true => state.roster.prepare_keeping_rates(links, wanted.evict)?,
        false => state.roster.prepare(links, wanted.evict)?,
    };
    if wanted.wait_ns.is_some()
        && let Err(fault) = state.roster.can_return(&prepared)
    {
        state.roster.abandon(prepared);
        return Err(fault);
    }
    Ok(Plan { prepared, by_kernel, text, lines })
}

/// The running links with one of them replaced by that of a policy.
fn one_link(state: &State, wanted: &Wanted, name: &str) -> Result<(Text, Vec<Link>), Fault> {
    let Some(link) = wanted.policy.link(name) else {
        return Err(Fault::usage(format!("the policy has no link `{name}`")));
    };
    let mut policy = policy_of(&state.course.text).map_err(|failed| Fault::refused(first_error(&failed)))?;
    match policy.links.iter_mut().find(|there| there.name == name) {
        Some(there) => *there = link.clone(),
        None => return Err(Fault::refused(format!("no link `{name}` runs here"))),
    }
    let name = put_together(&wanted.text.name, name);
    let text = Text { name, language: Language::Native.name().to_owned(), text: print(&policy).text };
    Ok((text, vec![link.clone()]))
}

/// The name of a policy in which one link is that of another policy.
fn put_together(name: &str, link: &str) -> String {
    format!("{name} (link {link})")
}

/// Whether a policy has such a name.
pub fn is_put_together(name: &str) -> bool {
    name.ends_with(')') && name.contains(" (link ")
}

/// Checks that there will be packets to watch for each guard: a class of that name in the new
/// policy, or of a subscriber or reservation, in a link that altq itself executes.
fn known_classes(state: &State, links: &[Link], guards: &[Guard]) -> Result<(), Fault> {
    for guard in guards {
        let is_meant = |link: &Link| {
            guard.link.as_ref().is_none_or(|name| *name == link.name) && link.path() != Some(Path::Kernel)
        };
        let in_policy = |link: &Link| is_meant(link) && link.class(&guard.class).is_some();
        let other = |name: &str| links.iter().all(|link| link.name != name);
        let runs = |name: &str| {
            let (Some(runs), Some(written)) = (state.roster.link(name), state.roster.written(name)) else {
                return false;
            };
            let beside = other(name) || written.class(&guard.class).is_none();
            beside && in_policy(runs)
        };
        if !links.iter().any(in_policy) && !state.names().into_iter().any(runs) {
            let message = format!("no link that altq itself executes has the class `{}` of a guard", guard.class);
            return Err(Fault::usage(message).help("a guard is 'class NAME p99 < TIME', or with LINK/NAME"));
        }
    }
    Ok(())
}

/// Checks that the policy has the same links as those that run.
fn same_links(state: &State, links: &[Link], one: bool) -> Result<(), Fault> {
    let names = state.names();
    let help = "stop altq and start it with this policy";
    if let Some(link) = links.iter().find(|link| !names.contains(&link.name.as_str())) {
        return Err(Fault::refused(format!("link `{}` is new, which needs a new start", link.name)).help(help));
    }
    match names.iter().find(|name| !one && links.iter().all(|link| link.name != **name)) {
        Some(name) => Err(Fault::refused(format!("link `{name}` is gone, which needs a new start")).help(help)),
        None => Ok(()),
    }
}

/// Makes a change. If it has to be confirmed, it is first written to disk.
pub fn make(live: &Live, wire: Option<&Wire>, wanted: Wanted) -> Result<Made, Fault> {
    let mut state = live.lock();
    // Subscribers, reservations and rates that are still on their way from the worker before would
    // not be counted, and then be refused or forgotten.
    state.roster.all_there(time().now)?;
    if state.course.left().is_some() {
        let fault = Fault::refused("a change waits to be confirmed");
        return Err(fault.help("`altq confirm` keeps it, `altq rollback` takes it back"));
    }
    if wanted.based.as_ref().is_some_and(|based| *based != state.course.text) {
        return Err(Fault::refused("another policy runs since this was asked for").help("ask again"));
    }
    let plan = plan(live, &mut state, &wanted)?;
    let same = plan.lines.is_empty() && plan.text.text == state.course.text.text;
    if same && plan.prepared.changes() == 0 {
        // The kernel's qdiscs may differ from the policy, so they are set up even without a
        // difference.
        return carry(live, wire, &mut state, plan);
    }
    let Wanted { wait_ns, guards, what, by, .. } = wanted;
    let (text, before) = (plan.text.clone(), state.course.text.clone());
    let begin = Ask::Begin { text, before, wait_ns, guards: guards.clone(), what, by, lines: plan.lines.clone() };
    // The rates that were set come back with the policy, even if this process ends.
    let rates = set_rates(&state);
    let told = match wait_ns {
        Some(_) if !rates.is_empty() => live.keep.ask(Ask::Rates { rates }).map(drop),
        _ => Ok(()),
    };
    // Its time runs from here, as it does for the process that keeps it on disk.
    let asked_at = time().boot;
    let number = match told.and_then(|()| live.keep.ask(begin)) {
        Ok(Answer::Done { number, .. }) => number,
        Ok(_) => {
            state.roster.abandon(plan.prepared);
            return Err(no_answer());
        }
        Err(fault) => {
            state.roster.abandon(plan.prepared);
            // The answer may still come, too late: then the change must not count.
            let _ = live.keep.ask(Ask::Abort);
            return Err(fault);
        }
    };
    let text = plan.text.clone();
    let mut made = match carry(live, wire, &mut state, plan) {
        Ok(made) => made,
        Err(fault) => {
            let _ = live.keep.ask(Ask::Abort);
            return Err(fault);
        }
    };
    state.follow(text);
    if let Some(wait) = wait_ns {
        state.course.wait(asked_at.saturating_add(wait), guards, time().now);
        // What was tried in vain was another change.
        state.try_again = None;
    }
    made.number = Some(number);
    match live.keep.ask(Ask::Made) {
        Ok(Answer::Done { note, .. }) => made.notes.extend(note),
        Ok(_) => {}
        Err(fault) => made.notes.push(fault.to_string()),
    }
    keep_rates(&state, wire);
    Ok(made)
}

/// Makes the planned changes in the loops and in the kernel.
pub fn carry(live: &Live, wire: Option<&Wire>, state: &mut State, plan: Plan) -> Result<Made, Fault> {
    let Plan { prepared, by_kernel, lines, .. } = plan;
    // The kernel comes first, because it may refuse.
    let (mut replaced, mut set): (Vec<Arc<Link>>, usize) = (Vec::new(), 0);
    for link in &by_kernel {
        match live.replace(link) {
            Ok(Done::Stood) => {}
            Ok(Done::Changed(classes)) => set += classes,
            Ok(Done::Built) => set += 1,
            Err(error) => {
                let mut message = format!("link `{}`: {error}; its old qdiscs stay", link.name);
                for before in &replaced {
                    if let Err(error) = live.replace(before) {
                        message += &format!("; the old qdiscs of link `{}` cannot be restored: {error}", before.name);
                    }
                }
                state.roster.abandon(prepared);
                return Err(Fault::refused(message));
            }
        }
        replaced.extend(state.roster.link(&link.name).cloned());
    }
    let steps = prepared.changes();
    let done = state.roster.commit(time(), prepared);
    let notes = done.said.clone();
    carry_out(live, wire, done);
    let changed = if lines.is_empty() { set + usize::from(steps > 0) } else { lines.len() };
    Ok(Made { number: None, changed, lines, notes })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A policy of several texts is known by its name, also after a new start.
    #[test]
    fn a_policy_that_was_put_together_is_known_by_its_name() {
        assert!(is_put_together(&put_together("/etc/altq/p.altq", "wan")));
        for name in ["/etc/altq/p.altq", "/etc/altq/p (link).altq", "-"] {
            assert!(!is_put_together(name), "{name}");
        }
    }
}
