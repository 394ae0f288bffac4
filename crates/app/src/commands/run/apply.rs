//! Replaces the running policy by another one (docs/apply.md). `altq apply`, the commands that
//! change one thing, SIGHUP, and taking a change back all do this.

use std::collections::HashSet;
use std::sync::Arc;

use altq_config::{Language, Link, Path, Policy, differences, edit, print};
use altq_control::change::{Answer, Ask, By, Guard, Text, What};
use altq_control::journal::note;
use altq_control::reply::Body;
use altq_control::request::change::{Applied, Apply, Change, History, Running, Safe};
use altq_control::rights::Peer;
use altq_control::{Code, Fault, Request};
use altq_dataplane::fits;
use altq_dataplane::kernel::Done;
use altq_dataplane::stats::Snapshot;
use altq_engine::units::{Nanos, SECOND};

use super::answers::{document, who};
use super::choose;
use super::heart::Wire;
use super::keep::{first_error, placed, policy_of};
use super::live::{Live, State};
use super::reservations::{carry_out, time};
use super::runs;
use crate::commands::check::refused_by_kernel;

/// How long altq waits before it tries again to take a change back.
const AGAIN: Nanos = 10 * SECOND;
/// The most warnings that the answer to a change has.
const WARNINGS: usize = 20;

/// A change that is asked for.
struct Wanted {
    text: Text,
    policy: Policy,
    /// This link only.
    link: Option<String>,
    evict: bool,
    wait_ns: Option<Nanos>,
    guards: Vec<Guard>,
    what: What,
    by: By,
    /// The policy of which the text is an edited copy. If another one runs by then, the change is
    /// refused.
    based: Option<Text>,
}

/// A change that was made.
pub struct Made {
    /// The number of the change; `None` if nothing was changed.
    pub number: Option<u64>,
    /// How many things have changed.
    pub changed: usize,
    /// The differences, one line each.
    pub lines: Vec<String>,
    /// Other remarks.
    pub notes: Vec<String>,
}

/// Who asks, in the form in which it is kept.
fn by(peer: &Peer) -> By {
    By { uid: Some(peer.uid), pid: (peer.pid > 0).then_some(peer.pid) }
}

/// Answers a client.
///
/// # Errors
/// What is refused, and why.
pub fn answer(live: &Live, wire: Option<&Wire>, change: Change, peer: &Peer) -> Result<Body, Fault> {
    match change {
        Change::Apply(asked) => document(&asked_for(live, wire, *asked, peer)?),
        Change::Edit { link, edit, safe } => document(&edited(live, wire, (&link, &edit), safe, peer)?),
        Change::Confirm => document(&confirmed(live, peer)?),
        Change::Rollback => document(&rolled_back(live, wire, peer)?),
        Change::History => match live.keep.ask(Ask::History)? {
            Answer::History { entries } => document(&History::of(entries)),
            _ => Err(no_answer()),
        },
        Change::Runs => document(&runs::runs(live)),
        Change::Policy => {
            let state = live.lock();
            let Text { language, text, .. } = state.course.text.clone();
            let (schema, file) = (Running::SCHEMA.to_owned(), state.course.path.clone());
            document(&Running { schema, language, text, file })
        }
    }
}

fn no_answer() -> Fault {
    Fault::new(Code::Failed, "the answer of the process that keeps changes does not fit")
}

/// `apply`.
fn asked_for(live: &Live, wire: Option<&Wire>, asked: Apply, peer: &Peer) -> Result<Applied, Fault> {
    let Apply { name, language, text, link, evict, check, safe } = asked;
    let text = Text { name, language, text };
    let policy = policy_of(&text).map_err(|failed| Fault::usage(first_error(&failed)))?;
    let Safe { confirm_ns, guards } = safe;
    let (what, by, wait_ns) = (What::Applied, by(peer), confirm_ns);
    let wanted = Wanted { text, policy, link, evict, wait_ns, guards, what, by, based: None };
    if check {
        let mut state = live.lock();
        let plan = plan(live, &mut state, &wanted)?;
        state.roster.abandon(plan.prepared);
        let (number, confirm_s, notes) = (None, None, Vec::new());
        return Ok(Applied { schema: Applied::SCHEMA.to_owned(), number, differences: plan.lines, confirm_s, notes });
    }
    let (name, whole) = (wanted.text.name.clone(), wanted.link.is_none());
    let of_file = wanted.text.clone();
    let made = make(live, wire, wanted)?;
    let mut state = live.lock();
    if whole && state.course.path == name {
        let State { roster, course, .. } = &mut *state;
        course.read(of_file);
        course.compare(roster);
    }
    said(&state, &format!("{name} is applied"), &made, peer);
    Ok(applied(&state, made))
}

/// `class.set` and the others.
fn edited(
    live: &Live,
    wire: Option<&Wire>,
    (link, change): (&str, &altq_config::Edit),
    safe: Safe,
    peer: &Peer,
) -> Result<Applied, Fault> {
    let before = live.lock().course.text.clone();
    if before.language != Language::Native.name() {
        let message =
            format!("the policy that runs is of the language {}, which is changed as a whole", before.language);
        let help = "`altq convert` prints it in the native language; apply that first";
        return Err(Fault::new(Code::Unsupported, message).help(help));
    }
    let changed = edit(&before.text, link, change).map_err(|wrong| {
        let fault = Fault::usage(wrong.message);
        match wrong.help {
            Some(help) => fault.help(help),
            None => fault,
        }
    })?;
    let text = Text { text: changed, ..before.clone() };
    let policy = policy_of(&text).map_err(|failed| Fault::usage(first_error(&failed)))?;
    let warnings = new_warnings(&before, &policy);
    let Safe { confirm_ns, guards } = safe;
    let (what, by, name) = (What::Edited, by(peer), text.name.clone());
    let (wait_ns, based) = (confirm_ns, Some(before));
    let wanted = Wanted { text, policy, link: None, evict: false, wait_ns, guards, what, by, based };
    let mut made = make(live, wire, wanted)?;
    made.notes.extend(warnings);
    let state = live.lock();
    said(&state, &format!("{name} is edited"), &made, peer);
    Ok(applied(&state, made))
}

/// The warnings of an edited policy that it did not have before, each with its place. Whoever
/// changes one thing has read the others when the policy was started.
fn new_warnings(before: &Text, policy: &Policy) -> Vec<String> {
    let before = policy_of(before).map(|policy| policy.warnings).unwrap_or_default();
    let known: HashSet<&str> = before.iter().map(|found| found.message.as_str()).collect();
    let new = policy.warnings.iter().filter(|found| !known.contains(found.message.as_str()));
    let mut lines: Vec<String> = new.map(|found| format!("warning: {}", placed(found, &policy.sources))).collect();
    let more = lines.len().saturating_sub(WARNINGS);
    lines.truncate(WARNINGS);
    if more > 0 {
        lines.push(format!("and {more} more warnings: `altq check` prints them of the file that `altq save` writes"));
    }
    lines
}

/// `confirm`.
fn confirmed(live: &Live, peer: &Peer) -> Result<Applied, Fault> {
    let mut state = live.lock();
    let answer = live.keep.ask(Ask::Confirm { by: by(peer) })?;
    let Answer::Done { number, .. } = answer else { return Err(no_answer()) };
    state.course.settled();
    eprintln!("altq run: change {number} is confirmed; asked by {}", who(peer));
    let (differences, confirm_s, notes) = (Vec::new(), None, Vec::new());
    Ok(Applied { schema: Applied::SCHEMA.to_owned(), number: Some(number), differences, confirm_s, notes })
}

/// `rollback`.
fn rolled_back(live: &Live, wire: Option<&Wire>, peer: &Peer) -> Result<Applied, Fault> {
    if live.lock().course.left().is_some() {
        let made = take_back(live, wire, &format!("rolled back by user {}", peer.uid))?;
        return Ok(applied(&live.lock(), made));
    }
    let Answer::Policy { text } = live.keep.ask(Ask::Previous)? else { return Err(no_answer()) };
    let policy = policy_of(&text).map_err(|failed| Fault::refused(first_error(&failed)))?;
    let name = text.name.clone();
    let (what, by, guards) = (What::RolledBack, by(peer), Vec::new());
    let wanted = Wanted { text, policy, link: None, evict: false, wait_ns: None, guards, what, by, based: None };
    let made = make(live, wire, wanted)?;
    let state = live.lock();
    said(&state, &format!("{name} is back"), &made, peer);
    Ok(applied(&state, made))
}

fn applied(state: &State, made: Made) -> Applied {
    let confirm_s = state.course.left().map(|left| left.div_ceil(SECOND));
    let Made { number, lines: differences, notes, .. } = made;
    Applied { schema: Applied::SCHEMA.to_owned(), number, differences, confirm_s, notes }
}

fn said(state: &State, what: &str, made: &Made, peer: &Peer) {
    let things = match made.changed {
        0 => "it is what ran before".to_owned(),
        1 => "1 thing has changed".to_owned(),
        count => format!("{count} things have changed"),
    };
    let waits = state.course.left().map_or(String::new(), |left| {
        format!("; without `altq confirm` it is taken back in {} s", left.div_ceil(SECOND))
    });
    eprintln!("altq run: {what}, {things}{waits}; asked by {}", who(peer));
}

/// Takes the policy of a file that was read again.
///
/// # Errors
/// Why it cannot run. The running policy stays.
pub fn read_again(live: &Live, wire: Option<&Wire>, text: Text, policy: Policy) -> Result<usize, Fault> {
    let (what, by, guards) = (What::Hangup, By::default(), Vec::new());
    let of_file = text.clone();
    let wanted = Wanted { text, policy, link: None, evict: false, wait_ns: None, guards, what, by, based: None };
    let made = make(live, wire, wanted)?;
    let mut state = live.lock();
    let State { roster, course, .. } = &mut *state;
    course.read(of_file);
    course.compare(roster);
    for note in &made.notes {
        eprintln!("altq run: {note}");
    }
    Ok(made.changed)
}

/// Takes a change back whose time is over, or whose guard does not hold. Must be called at
/// intervals.
pub fn tick(live: &Live, wire: Option<&Wire>, snapshot: Option<&Snapshot>) {
    let mut state = live.lock();
    let why = match state.course.left() {
        None => return,
        Some(0) => "nobody confirmed it in time".to_owned(),
        Some(_) => {
            let State { roster, course, .. } = &mut *state;
            let broken = snapshot.and_then(|snapshot| course.broken(snapshot, roster));
            let Some(broken) = broken else { return };
            format!("a guard does not hold: {broken}")
        }
    };
    if state.try_again.is_some_and(|at| time().now < at) {
        return;
    }
    state.try_again = Some(time().now.saturating_add(AGAIN));
    drop(state);
    match take_back(live, wire, &why) {
        Ok(_) => live.lock().try_again = None,
        // It was confirmed or taken back meanwhile.
        Err(_) if live.lock().course.left().is_none() => {}
        Err(fault) => eprintln!("altq run: the change is to be taken back ({why}), and cannot: {fault}"),
    }
}

/// Brings the policy back that ran before the change that waits.
fn take_back(live: &Live, wire: Option<&Wire>, why: &str) -> Result<Made, Fault> {
    let mut state = live.lock();
    if state.course.left().is_none() {
        return Err(Fault::refused("no change waits to be confirmed"));
    }
    let text = match live.keep.ask(Ask::Old) {
        Ok(Answer::Policy { text }) => text,
        Ok(_) => return Err(no_answer()),
        Err(fault) => {
            // The keeper knows of none: its answer to a confirmation came too late.
            if fault.code == Code::Refused {
                state.course.settled();
            }
            return Err(fault);
        }
    };
    let policy = policy_of(&text).map_err(|failed| Fault::new(Code::Failed, first_error(&failed)))?;
    let (what, by, guards) = (What::Reverted, By::default(), Vec::new());
    // Subscribers and reservations that do not fit lose their classes: that is better than being
    // locked out.
    let wanted = Wanted { text, policy, link: None, evict: true, wait_ns: None, guards, what, by, based: None };
    let plan = plan(live, &mut state, &wanted)?;
    let mut made = carry(live, wire, &mut state, plan)?;
    state.follow(wanted.text);
    state.course.settled();
    let Answer::Done { number, note } = live.keep.ask(Ask::Reverted { why: why.to_owned() })? else {
        return Err(no_answer());
    };
    made.number = Some(number);
    made.notes.extend(note);
    eprintln!("altq run: change {number} is taken back: {why}");
    Ok(made)
}

/// A change whose steps are known, and already made in the trials.
struct Plan {
    prepared: altq_control::roster::followed::Prepared,
    /// The links that the kernel executes.
    by_kernel: Vec<Arc<Link>>,
    /// What runs afterwards.
    text: Text,
    lines: Vec<String>,
}

/// Computes the steps of a change. Only the trials are changed.
fn plan(live: &Live, state: &mut State, wanted: &Wanted) -> Result<Plan, Fault> {
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
    let name = format!("{} (link {name})", wanted.text.name);
    let text = Text { name, language: Language::Native.name().to_owned(), text: print(&policy).text };
    Ok((text, vec![link.clone()]))
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
fn make(live: &Live, wire: Option<&Wire>, wanted: Wanted) -> Result<Made, Fault> {
    let mut state = live.lock();
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
    let number = match live.keep.ask(begin) {
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
        state.course.wait(wait, guards, time().now);
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

/// Reports the rates that clients have set, and that still hold, to the supervisor again: it has
/// forgotten all of them with the policy before.
fn keep_rates(state: &State, wire: Option<&Wire>) {
    let Some(wire) = wire else { return };
    for name in state.names() {
        if let (Some(runs), Some(written)) = (state.roster.link(name), state.roster.written(name))
            && runs.spec.rate != written.spec.rate
        {
            let set = Request::SetLink { link: name.to_owned(), rate_bit_s: runs.spec.rate.as_bit_s() };
            // If the supervisor is gone, this worker ends soon.
            let _ = wire.say(&note(&set));
        }
    }
}

/// Makes the planned changes in the loops and in the kernel.
fn carry(live: &Live, wire: Option<&Wire>, state: &mut State, plan: Plan) -> Result<Made, Fault> {
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

    /// What one changed thing makes wrong is said; what was so before is not said again.
    #[test]
    fn a_change_of_one_thing_says_what_it_makes_wrong() {
        let text = |text: String| Text { name: "p.altq".to_owned(), language: "native".to_owned(), text };
        let of = |words: &str, rules: &str| {
            format!(
                "link wan {{ rate 10Mbit/s  scheduler cbq
class a {{ {words} }}
class b {{ borrow  default }}
class idle {{ priority 1 }}
{rules} }}"
            )
        };
        let said = |after: String| {
            let before = text(of("share 5%", "match dport 80 -> idle"));
            new_warnings(&before, &policy_of(&text(after)).unwrap_or_else(|failed| panic!("{failed}")))
        };
        let rule = "match dport 80 -> idle  match dport 22 -> a";
        assert_eq!(said(of("share 5%", rule)), [""; 0]);
        let never = said(of("priority 3", rule));
        assert_eq!(never.len(), 1, "{never:?}");
        assert!(never[0].starts_with("warning: p.altq:2:") && never[0].contains("`a` never sends"), "{never:?}");
        let shadowed = said(of("share 5%", "match all -> a  match dport 80 -> idle"));
        assert!(shadowed.iter().any(|line| line.contains("this rule never decides")), "{shadowed:?}");
        assert!(!shadowed.iter().any(|line| line.contains("`idle` never sends")), "{shadowed:?}");
    }

    #[test]
    fn many_new_warnings_are_counted() {
        let text = |first: &str| {
            let rules: String = (1..=30).map(|port| format!("match dport {port} -> a\n")).collect();
            let text = format!(
                "link wan {{ rate 10Mbit/s  scheduler cbq
class a {{ share 5% }}
class b {{ borrow  default }}
{first} {rules} }}"
            );
            Text { name: "p.altq".to_owned(), language: "native".to_owned(), text }
        };
        let after = policy_of(&text("match all -> b")).unwrap_or_else(|failed| panic!("{failed}"));
        let said = new_warnings(&text(""), &after);
        assert_eq!(said.len(), WARNINGS + 1);
        assert!(said[WARNINGS].starts_with("and 10 more warnings"), "{said:?}");
    }
}
