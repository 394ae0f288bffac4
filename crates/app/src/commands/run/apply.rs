//! Replaces the running policy by another one (docs/apply.md). `altq apply`, the commands that
//! change one thing, SIGHUP, and taking a change back all do this.

mod make;
mod rates;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use altq_config::{Language, Policy, edit, edit_of};
use altq_control::change::{Answer, Ask, By, Guard, Text, What};
use altq_control::document::Changed;
use altq_control::reply::Body;
use altq_control::request::change::{Applied, Apply, Change, History, Running, Safe, hash};
use altq_control::rights::Peer;
use altq_control::{Code, Fault};
use altq_dataplane::stats::Snapshot;
use altq_engine::units::{Nanos, SECOND};

use super::answers::{document, who};
use super::course::Course;
use super::heart::Wire;
use super::keep::{first_error, placed, policy_of};
use super::live::{Live, State};
use super::reservations::time;
use super::runs;
use make::{carry, is_put_together, make, plan};
pub use rates::rate_again;
use rates::{keep_rates, rates_again, set_again};

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
        Change::Rollback { force } => document(&rolled_back(live, wire, force, peer)?),
        Change::History => match live.keep.ask(Ask::History)? {
            Answer::History { entries } => document(&History::of(entries, live.lock().course.guards())),
            _ => Err(no_answer()),
        },
        Change::Runs => document(&runs::runs(live)),
        Change::Policy => {
            let mut state = live.lock();
            live.learn(&mut state);
            document(&running(&state.course))
        }
        Change::Saved { hash } => document(&saved(live, &hash)),
    }
}

/// The policy that runs, for whoever saves it.
fn running(course: &Course) -> Running {
    let Text { name, language, text } = course.text.clone();
    let (schema, file, file_hash) = (Running::SCHEMA.to_owned(), course.path.clone(), course.file_hash());
    Running { schema, language, text, file, file_hash, put_together: is_put_together(&name) }
}

/// A client has written a text of this hash into the file of the start. It is of use only if that
/// is the text that runs.
fn saved(live: &Live, written: &str) -> Changed {
    let mut state = live.lock();
    let changed = hash(state.course.text.text.as_bytes()) == written;
    if changed {
        state.course.saved();
        live.forget_file();
        // The next worker must know it as well. If nobody takes it, this worker ends soon.
        let _ = live.keep.ask(Ask::Saved);
    }
    Changed { changed }
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
        state.course.read(of_file);
        live.forget_file();
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
    let (before, runs, known) = {
        let state = live.lock();
        (state.course.text.clone(), state.roster.written(link), state.course.warned())
    };
    if before.language != Language::Native.name() {
        let message =
            format!("the policy that runs is of the language {}, which is changed as a whole", before.language);
        let help = "`altq convert` prints it in the native language; apply that first";
        return Err(Fault::new(Code::Unsupported, message).help(help));
    }
    let changed = match &runs {
        Some(runs) => edit_of(&before.text, runs, change),
        None => edit(&before.text, link, change),
    };
    let changed = changed.map_err(|wrong| {
        let fault = Fault::usage(wrong.message);
        match wrong.help {
            Some(help) => fault.help(help),
            None => fault,
        }
    })?;
    let text = Text { text: changed, ..before.clone() };
    let policy = policy_of(&text).map_err(|failed| Fault::usage(first_error(&failed)))?;
    let warned = messages(&policy);
    let known = match warned.is_empty() {
        true => HashSet::new(),
        false => known.unwrap_or_else(|| policy_of(&before).map(|policy| messages(&policy)).unwrap_or_default()),
    };
    let warnings = new_warnings(&known, &policy);
    let Safe { confirm_ns, guards } = safe;
    let (what, by, name) = (What::Edited, by(peer), text.name.clone());
    let (wait_ns, based) = (confirm_ns, Some(before));
    let edited = text.clone();
    let wanted = Wanted { text, policy, link: None, evict: false, wait_ns, guards, what, by, based };
    let mut made = make(live, wire, wanted)?;
    made.notes.extend(warnings);
    let mut state = live.lock();
    state.course.warns(&edited, warned);
    said(&state, &format!("{name} is edited"), &made, peer);
    Ok(applied(&state, made))
}

/// Hashes of the messages of a policy's warnings. A long policy may have a warning for each class.
fn messages(policy: &Policy) -> HashSet<u64> {
    policy.warnings.iter().map(|found| hashed(&found.message)).collect()
}

fn hashed(message: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    message.hash(&mut hasher);
    hasher.finish()
}

/// The warnings of an edited policy that it did not have before, each with its place. Whoever
/// changes one thing has read the others when the policy was started.
fn new_warnings(known: &HashSet<u64>, policy: &Policy) -> Vec<String> {
    let new = policy.warnings.iter().filter(|found| !known.contains(&hashed(&found.message)));
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
fn rolled_back(live: &Live, wire: Option<&Wire>, force: bool, peer: &Peer) -> Result<Applied, Fault> {
    if live.lock().course.left().is_some() {
        let made = take_back(live, wire, &format!("rolled back by user {}", peer.uid))?;
        return Ok(applied(&live.lock(), made));
    }
    let Answer::Policy { text } = live.keep.ask(Ask::Previous { force })? else { return Err(no_answer()) };
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

/// Whether all that the worker before had is here.
pub fn is_complete(live: &Live) -> bool {
    live.lock().roster.all_there(time().now).is_ok()
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
    state.course.read(of_file);
    live.forget_file();
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
    let done = take_back(live, wire, &why);
    let mut state = live.lock();
    // If it could not be taken back, it may have been confirmed or taken back meanwhile.
    if done.is_ok() || state.course.left().is_none() {
        state.try_again = None;
    } else if let Err(fault) = done {
        drop(state);
        eprintln!("altq run: the change is to be taken back ({why}), and cannot: {fault}");
    }
}

/// Brings the policy back that ran before the change that waits.
fn take_back(live: &Live, wire: Option<&Wire>, why: &str) -> Result<Made, Fault> {
    let mut state = live.lock();
    if state.course.left().is_none() {
        return Err(Fault::refused("no change waits to be confirmed"));
    }
    let (text, rates) = match live.keep.ask(Ask::Old) {
        Ok(Answer::Old { text, rates }) => (text, rates),
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
    let rates = rates_again(&state, &policy, &rates);
    let (what, by, guards) = (What::Reverted, By::default(), Vec::new());
    // Subscribers and reservations that do not fit lose their classes: that is better than being
    // locked out.
    let wanted = Wanted { text, policy, link: None, evict: true, wait_ns: None, guards, what, by, based: None };
    let plan = plan(live, &mut state, &wanted)?;
    let mut made = carry(live, wire, &mut state, plan)?;
    state.follow(wanted.text);
    state.course.settled();
    made.notes.extend(set_again(live, &mut state, rates));
    let Answer::Done { number, note } = live.keep.ask(Ask::Reverted { why: why.to_owned() })? else {
        return Err(no_answer());
    };
    made.number = Some(number);
    made.notes.extend(note);
    eprintln!("altq run: change {number} is taken back: {why}");
    keep_rates(&state, wire);
    Ok(made)
}

#[cfg(test)]
mod tests {
    mod waits;

    use super::*;

    fn read(text: &Text) -> Policy {
        policy_of(text).unwrap_or_else(|failed| panic!("{failed}"))
    }

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
            new_warnings(&messages(&read(&before)), &read(&text(after)))
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
        let said = new_warnings(&messages(&read(&text(""))), &read(&text("match all -> b")));
        assert_eq!(said.len(), WARNINGS + 1);
        assert!(said[WARNINGS].starts_with("and 10 more warnings"), "{said:?}");
    }
}
