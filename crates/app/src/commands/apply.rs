//! `altq apply`, `altq confirm`, `altq rollback` and `altq history`: replace the running policy,
//! and take that back unless it is confirmed (docs/apply.md).

mod schedule;

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use altq_config::{Diagnostic, Language, STANDARD_INPUT, Sources, literal};
use altq_control::change::{Entry, Guard, Watched, What};
use altq_control::client::{Client, NoFields};
use altq_control::request::change::{Applied, Apply, History, Safe};
use altq_control::{Code, Fault};
use altq_engine::units::{Nanos, SECOND, time_text};
use serde::Serialize;

use crate::clock;
use crate::commands::check::refused_by_kernel;
use crate::exit::Exit;
use crate::output;
use crate::policy::{PolicyFile, print_findings, read};
use crate::socket::{Socket, ask, fail};

/// The default time for which guards are watched.
const WATCHED: Nanos = 10 * SECOND;
/// A change waits for the command's own confirmation this much longer than guards are watched.
const SPARE: Nanos = 30 * SECOND;
/// With --confirm, the command watches guards this much less than the change waits, so that there
/// is time to confirm it.
const LEFT: Nanos = 3 * SECOND;
/// Time between two checks whether a guard was broken.
const LOOK: Duration = Duration::from_millis(200);

/// Options of `altq apply`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    policy: PolicyFile,
    /// Applies this link of the policy only; the others stay as they are
    #[arg(long, value_name = "NAME")]
    link: Option<String>,
    /// Changes nothing, and tells whether the change is possible; with --diff the exit code is 3 if
    /// something would change
    #[arg(long, conflicts_with_all = ["at"])]
    check: bool,
    /// Prints the differences, one line each
    #[arg(long)]
    diff: bool,
    #[command(flatten)]
    safely: Safely,
    /// Removes the classes of subscribers and reservations that no longer fit
    #[arg(long)]
    evict: bool,
    /// Waits until this time of day, such as 03:00 or 03:00:30, or for this time, such as 90s
    #[arg(long, value_name = "TIME", value_parser = when)]
    at: Option<When>,
    /// POLICY is a schedule: lines such as `on weekdays 18:00-23:00 policy evening.altq`, and
    /// `otherwise policy day.altq`. Applies what the time asks for, again and again until it is
    /// ended; with --check it prints what a week asks for
    #[arg(long, conflicts_with_all = ["at", "confirm", "diff"])]
    schedule: bool,
    #[command(flatten)]
    socket: Socket,
}

/// How a change is taken back by itself.
#[derive(Debug, clap::Args)]
pub struct Safely {
    /// Takes the change back after this time, such as 60s, unless `altq confirm` comes before
    #[arg(long, value_name = "TIME", value_parser = wait)]
    confirm: Option<Nanos>,
    /// Takes the change back as soon as this does not hold, such as 'class NAME p99 < 20ms'; may be
    /// given several times
    #[arg(long, value_name = "GUARD", value_parser = guard)]
    guard: Vec<Guard>,
    /// Watches guards for this time before the command ends, or until all of them were measured;
    /// less than --confirm [default: 10s, or less if --confirm is short]
    #[arg(long, value_name = "TIME", requires = "guard", value_parser = wait)]
    guard_for: Option<Nanos>,
}

/// Options of `altq confirm`.
#[derive(Debug, clap::Args)]
pub struct Plain {
    #[command(flatten)]
    socket: Socket,
}

/// Options of `altq rollback`.
#[derive(Debug, clap::Args)]
pub struct Back {
    /// Goes one policy back even if the last change was taken back already
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    socket: Socket,
}

/// Options of `altq history`.
#[derive(Debug, clap::Args)]
pub struct Past {
    #[command(flatten)]
    socket: Socket,
    /// Prints JSON (altq.history/1)
    #[arg(long)]
    json: bool,
}

/// When a policy is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// After this time.
    In(Nanos),
    /// At this time of day, in seconds since midnight.
    Day(u32),
}

fn wait(word: &str) -> Result<Nanos, String> {
    match literal::time_with_unit(word)? {
        0 => Err("more than no time".to_owned()),
        time if time > altq_control::change::LONGEST => Err("a week at most".to_owned()),
        time => Ok(time),
    }
}

fn when(word: &str) -> Result<When, String> {
    if !word.contains(':') {
        return wait(word).map(When::In);
    }
    let wrong = || format!("{word:?} is no time of the day, as 03:00 or 23:59:30");
    let parts: Vec<&str> = word.split(':').collect();
    let number = |text: &str, below: u32| {
        let digits = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u32>().ok().filter(|number| digits && *number < below).ok_or_else(wrong)
    };
    match parts.as_slice() {
        [hours, minutes] => Ok(When::Day(number(hours, 24)? * 3600 + number(minutes, 60)? * 60)),
        [hours, minutes, seconds] => {
            Ok(When::Day(number(hours, 24)? * 3600 + number(minutes, 60)? * 60 + number(seconds, 60)?))
        }
        _ => Err(wrong()),
    }
}

/// Reads `class NAME p99 < 20ms`, where NAME may be LINK/CLASS.
fn guard(text: &str) -> Result<Guard, String> {
    let form = || "a guard is `class NAME p99 < TIME`, as 'class voice p99 < 20ms'".to_owned();
    let spaced = text.replace('<', " < ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let ["class", name, "p99", "<", time] = words.as_slice() else { return Err(form()) };
    let (link, class) = match name.split_once('/') {
        Some((link, class)) => (Some(link.to_owned()), class.to_owned()),
        None => (None, (*name).to_owned()),
    };
    Ok(Guard { link, class, p99_ns: literal::time_with_unit(time)? })
}

impl Args {
    /// The request that applies the policy of a file. `None`, after a message, if it is no policy
    /// that can run.
    fn asked(&self, file: &PolicyFile) -> Option<Apply> {
        self.asked_saying(file, &mut |findings, sources| print_findings(findings, sources, false))
    }

    /// As [`asked`](Args::asked). `say` gets what is found in the file.
    fn asked_saying(&self, file: &PolicyFile, say: &mut dyn FnMut(&[Diagnostic], &Sources)) -> Option<Apply> {
        let policy = match read(&file.file, file.language) {
            Ok(policy) => policy,
            Err(failed) => {
                say(&failed.diagnostics, &failed.sources);
                return None;
            }
        };
        say(&policy.warnings, &policy.sources);
        let refused = refused_by_kernel(&policy);
        if !refused.is_empty() {
            say(&refused, &policy.sources);
            return None;
        }
        let name = match file.file.as_path() {
            file if file == Path::new("-") => STANDARD_INPUT.to_owned(),
            file => std::path::absolute(file).unwrap_or_else(|_| file.to_owned()).display().to_string(),
        };
        let written = policy.sources.texts.first().map_or("", |(_, text)| text.as_str());
        let language = file.language.or_else(|| Language::of(&file.file, written));
        // A policy of several files is sent as one text.
        let text = if policy.includes() { altq_config::print(&policy).text } else { written.to_owned() };
        Some(Apply {
            name,
            language: language.unwrap_or(Language::Native).name().to_owned(),
            text,
            link: self.link.clone(),
            evict: self.evict,
            check: self.check,
            safe: self.safely.safe(),
        })
    }
}

/// Runs `altq apply`.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    if let Err(fault) = args.safely.check() {
        return Ok(fail("apply", &fault));
    }
    if args.schedule {
        return schedule::run(args);
    }
    let Some(asked) = args.asked(&args.policy) else { return Ok(Exit::Usage) };
    if let Some(at) = args.at {
        // If it is impossible, that is reported now, and not only at the given time.
        if let Err(fault) = args.socket.connect().and_then(|mut client| checked(&mut client, &asked)) {
            return Ok(fail("apply", &fault));
        }
        if let Err(fault) = sleep_until(at) {
            return Ok(fail("apply", &fault));
        }
    }
    let connected = args.socket.connect();
    let applied = connected.and_then(|mut client| Ok((ask::<Applied>(&mut client, "apply", &asked)?, client)));
    let (applied, mut client) = match applied {
        Ok(applied) => applied,
        Err(fault) => return Ok(fail("apply", &too_long(fault, asked.text.len()))),
    };
    if args.diff {
        output::print(&applied.differences.iter().map(|line| format!("{line}\n")).collect::<String>())?;
    }
    if args.check {
        let count = applied.differences.len();
        let what =
            if count == 0 { "nothing would change".to_owned() } else { format!("{} would change", things(count)) };
        eprintln!("altq apply: {what}");
        return Ok(if args.diff && count > 0 { Exit::Differs } else { Exit::Ok });
    }
    Ok(args.safely.done("apply", &mut client, &applied))
}

/// Says what a policy would change, and changes nothing.
fn checked(client: &mut Client, asked: &Apply) -> Result<Applied, Fault> {
    ask(client, "apply", &Apply { check: true, safe: Safe::default(), ..asked.clone() })
}

/// The fault for a policy that is too long for a request.
fn too_long(fault: Fault, bytes: usize) -> Fault {
    if bytes < altq_control::request::WRITE_LINE / 2 || fault.code != Code::Usage {
        return fault;
    }
    fault
        .help("a policy of about a megabyte or more is read from its file: write it there, and send SIGHUP to altq run")
}

fn things(count: usize) -> String {
    if count == 1 { "1 thing".to_owned() } else { format!("{count} things") }
}

/// Waits until a policy is to be applied. The clock is looked at again and again: it may be set,
/// summer time may begin, and the host may sleep.
fn sleep_until(at: When) -> Result<(), Fault> {
    let said = |seconds: u64| {
        eprintln!("altq apply: the policy can be applied; that happens in {}", time_text(seconds * SECOND));
    };
    let second = match at {
        When::In(wait) => {
            said(wait / SECOND);
            std::thread::sleep(Duration::from_nanos(wait));
            return Ok(());
        }
        When::Day(second) => second,
    };
    let unknown =
        |why: String| Fault::new(Code::Failed, why).help("--at with a time from now, such as 90s, needs no time zone");
    let mut offset = clock::offset().map_err(unknown)?;
    let begun = clock::unix().saturating_add(offset);
    let due = clock::next(begun, second);
    said(due.saturating_sub(begun).unsigned_abs());
    let wall = || {
        // If the zone cannot be asked for once, it is still the one before.
        offset = clock::offset().unwrap_or(offset);
        clock::unix().saturating_add(offset)
    };
    wait_for(due, wall, std::thread::sleep);
    Ok(())
}

/// Sleeps until the clock on the wall has come to this time or is past it, however it is set.
fn wait_for(due: i64, mut wall: impl FnMut() -> i64, mut sleep: impl FnMut(Duration)) {
    loop {
        let left = due.saturating_sub(wall());
        if left <= 0 {
            return;
        }
        sleep(Duration::from_secs(left.min(10).unsigned_abs()));
    }
}

impl Safely {
    /// How the change has to be confirmed. With guards but without --confirm, the command itself
    /// confirms it.
    pub fn safe(&self) -> Safe {
        let own = (!self.guard.is_empty()).then(|| self.watched() + SPARE);
        Safe { confirm_ns: self.confirm.or(own), guards: self.guard.clone() }
    }

    /// Whether the options go together: a change is not taken back before the guards were watched.
    ///
    /// # Errors
    ///
    /// They do not.
    pub fn check(&self) -> Result<(), Fault> {
        match (self.guard_for, self.confirm) {
            (Some(watched), Some(confirm)) if watched >= confirm => {
                let why = "--guard-for is not shorter than --confirm, so the change would be taken back before it ends";
                Err(Fault::usage(why).help("give --confirm some seconds more, in which you can confirm the change"))
            }
            _ => Ok(()),
        }
    }

    /// How long guards that were not measured yet are waited for.
    fn longest(&self) -> Nanos {
        let watched = self.watched();
        let confirm = self.confirm.unwrap_or_else(|| watched.saturating_add(SPARE));
        watched.max(confirm - LEFT.min(confirm / 2))
    }

    fn watched(&self) -> Nanos {
        let most = self.confirm.map_or(Nanos::MAX, |confirm| confirm - LEFT.min(confirm / 2));
        self.guard_for.unwrap_or(WATCHED.min(most))
    }

    /// Prints what has been done, and waits while guards are watched.
    pub fn done(&self, command: &str, client: &mut Client, applied: &Applied) -> Exit {
        for note in &applied.notes {
            eprintln!("altq {command}: {note}");
        }
        let Some(number) = applied.number else {
            eprintln!("altq {command}: it is what runs already");
            return Exit::Ok;
        };
        eprintln!("altq {command}: change {number} is made, {} changed", things(applied.differences.len()));
        if let (Some(seconds), true) = (applied.confirm_s, self.confirm.is_some()) {
            eprintln!("altq {command}: it is taken back in {seconds} s unless `altq confirm` comes before");
        }
        if self.guard.is_empty() {
            return Exit::Ok;
        }
        match self.watch(command, client, number) {
            Ok(exit) => exit,
            Err(fault) => fail(command, &fault),
        }
    }

    /// Waits while guards are watched. At the end it confirms the change, unless the user must do
    /// that, or a guard was not looked at.
    fn watch(&self, command: &str, client: &mut Client, number: u64) -> Result<Exit, Fault> {
        let (watched, longest) = (Duration::from_nanos(self.watched()), Duration::from_nanos(self.longest()));
        let begun = std::time::Instant::now();
        let mut guards: Vec<Watched> = Vec::new();
        loop {
            let until = if all_measured(&guards) { watched } else { longest };
            let left = until.saturating_sub(begun.elapsed());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(LOOK.min(left));
            let history: History = ask(client, "history", &NoFields {})?;
            let reverted = |entry: &&Entry| entry.number == number && entry.what == What::Reverted;
            if let Some(entry) = history.changes.iter().rev().find(reverted) {
                let why = entry.lines.first().map_or("it was taken back", String::as_str);
                eprintln!("altq {command}: change {number} is taken back: {why}");
                return Ok(Exit::Refused);
            }
            if history.changes.iter().any(|entry| entry.number == number && entry.what == What::Confirmed) {
                eprintln!("altq {command}: change {number} was confirmed by somebody, and stays");
                return Ok(Exit::Ok);
            }
            guards = history.guards;
        }
        if !all_measured(&guards) {
            let why = "the guards were not measured: no whole --interval of `altq run` has passed since the change";
            if self.confirm.is_some() {
                eprintln!("altq {command}: {why}; without `altq confirm` it is taken back");
            } else {
                let _: Applied = ask(client, "rollback", &NoFields {})?;
                eprintln!("altq {command}: {why}, so it is taken back");
            }
            return Ok(Exit::Refused);
        }
        let silent = silent(&guards);
        if self.confirm.is_some() {
            eprintln!("altq {command}: the guards have held{silent}; `altq confirm` keeps the change");
            return Ok(Exit::Ok);
        }
        let _: Applied = ask(client, "confirm", &NoFields {})?;
        eprintln!("altq {command}: the guards have held{silent}, and the change stays");
        Ok(Exit::Ok)
    }
}

/// True if each guard was looked at in at least one interval after the change.
fn all_measured(guards: &[Watched]) -> bool {
    !guards.is_empty() && guards.iter().all(|one| one.intervals > 0)
}

/// A remark about classes that have sent too few packets for a percentile. That breaks no guard.
fn silent(guards: &[Watched]) -> String {
    let few: Vec<&str> = guards.iter().filter(|one| one.checks == 0).map(|one| one.guard.class.as_str()).collect();
    if few.is_empty() { String::new() } else { format!(" (too few packets to measure in {})", few.join(", ")) }
}

/// Runs `altq confirm`.
pub fn confirm(args: &Plain) -> anyhow::Result<Exit> {
    let asked = args.socket.connect().and_then(|mut client| ask::<Applied>(&mut client, "confirm", &NoFields {}));
    Ok(match asked {
        Ok(applied) => {
            eprintln!("altq confirm: change {} stays", applied.number.unwrap_or_default());
            Exit::Ok
        }
        Err(fault) => fail("confirm", &fault),
    })
}

/// Runs `altq rollback`.
pub fn rollback(args: &Back) -> anyhow::Result<Exit> {
    #[derive(Serialize)]
    struct Fields {
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        force: bool,
    }
    let fields = Fields { force: args.force };
    let asked = args.socket.connect().and_then(|mut client| ask::<Applied>(&mut client, "rollback", &fields));
    Ok(match asked {
        Ok(applied) => {
            for note in &applied.notes {
                eprintln!("altq rollback: {note}");
            }
            eprintln!("altq rollback: the policy before runs again, {} changed", things(applied.differences.len()));
            Exit::Ok
        }
        Err(fault) => fail("rollback", &fault),
    })
}

/// Runs `altq history`.
pub fn history(args: &Past) -> anyhow::Result<Exit> {
    let asked = args.socket.connect().and_then(|mut client| ask::<History>(&mut client, "history", &NoFields {}));
    let history = match asked {
        Ok(history) => history,
        Err(fault) => return Ok(fail("history", &fault)),
    };
    if args.json {
        output::print_json(&history)?;
        return Ok(Exit::Ok);
    }
    let mut out = io::stdout().lock();
    for entry in &history.changes {
        out.write_all(shown(entry).as_bytes())?;
    }
    Ok(Exit::Ok)
}

/// A change for people: a line, and one for each thing that differed.
fn shown(entry: &Entry) -> String {
    let by = match entry.by.uid {
        Some(uid) => format!(" by {}", user(uid)),
        None => String::new(),
    };
    let name = if entry.name.is_empty() { String::new() } else { format!(" {}", entry.name) };
    let at = clock::utc(entry.unix_ns / SECOND);
    let mut text = format!("{at} change {}: {}{name}{by}\n", entry.number, entry.what.name());
    for line in &entry.lines {
        text += &format!("    {line}\n");
    }
    if entry.more > 0 {
        text += &format!("    and {} more\n", entry.more);
    }
    text
}

/// The name of a user, or else the number.
pub fn user(uid: u32) -> String {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut lines = users.lines().map(|line| line.split(':').collect::<Vec<&str>>());
    let found = lines.find(|fields| fields.get(2).is_some_and(|field| field.parse() == Ok(uid)));
    found.and_then(|fields| fields.first().map(|name| (*name).to_owned())).unwrap_or_else(|| format!("user {uid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_and_times_are_read() {
        let voice = Guard { link: None, class: "voice".to_owned(), p99_ns: 20_000_000 };
        for text in ["class voice p99 < 20ms", "class voice p99<20ms"] {
            assert_eq!(guard(text), Ok(voice.clone()));
        }
        let of_link = guard("class wan/voice p99 < 1s").unwrap();
        assert_eq!((of_link.link.as_deref(), of_link.class.as_str()), (Some("wan"), "voice"));
        for text in ["", "class voice", "class voice p50 < 1ms", "voice p99 < 1ms", "class voice p99 < 20"] {
            assert!(guard(text).is_err(), "{text}");
        }
        assert_eq!(when("03:00"), Ok(When::Day(3 * 3600)));
        assert_eq!(when("23:59:30"), Ok(When::Day(86_370)));
        assert_eq!(when("90s"), Ok(When::In(90 * SECOND)));
        for text in ["24:00", "3:00", "03:60", "03:00:00:00", "later", "0s"] {
            assert!(when(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_change_is_shown_with_time_user_and_difference() {
        let by = altq_control::change::By { uid: Some(0), pid: Some(7) };
        let (what, name, lines) = (What::Applied, "/etc/altq/p.altq".to_owned(), vec!["class a: gone".to_owned()]);
        let entry = Entry { number: 3, unix_ns: 86_399 * SECOND, what, by, name, lines, more: 2 };
        let text = shown(&entry);
        assert!(text.starts_with("1970-01-01T23:59:59Z change 3: applied /etc/altq/p.altq by "), "{text}");
        assert!(text.ends_with("\n    class a: gone\n    and 2 more\n"), "{text}");
    }

    #[test]
    fn guards_are_watched_while_the_change_can_be_confirmed() {
        let safely = |confirm: Option<u64>, guard_for: Option<u64>| Safely {
            confirm: confirm.map(|seconds| seconds * SECOND),
            guard: vec![guard("class voice p99 < 20ms").unwrap()],
            guard_for: guard_for.map(|seconds| seconds * SECOND),
        };
        for (confirm, guard_for) in [(5, 5), (5, 3600)] {
            let refused = safely(Some(confirm), Some(guard_for)).check();
            assert!(refused.is_err_and(|fault| fault.code == Code::Usage), "{confirm} {guard_for}");
        }
        for (confirm, guard_for) in [(Some(5), Some(4)), (Some(5), None), (None, Some(3600)), (None, None)] {
            assert!(safely(confirm, guard_for).check().is_ok(), "{confirm:?} {guard_for:?}");
        }
        let watched = |confirm, guard_for| safely(confirm, guard_for).watched();
        for (confirm, seconds) in [(60, 10), (13, 10), (10, 7), (5, 3), (2, 1)] {
            let most = watched(Some(confirm), None);
            assert!(most < confirm * SECOND && most.abs_diff(seconds * SECOND) < SECOND, "{confirm}: {most}");
        }
        assert_eq!(watched(Some(60), Some(40)), 40 * SECOND);
        assert_eq!((watched(None, None), watched(None, Some(3600))), (10 * SECOND, 3600 * SECOND));
        // A guard that was not measured is waited for while the change can still be confirmed.
        for (confirm, guard_for, seconds) in [(Some(60), None, 57), (Some(4), Some(3), 3), (None, None, 37)] {
            assert_eq!(safely(confirm, guard_for).longest(), seconds * SECOND, "{confirm:?} {guard_for:?}");
        }
    }

    #[test]
    fn guards_that_were_not_looked_at_have_not_held() {
        let watched = |class: &str, intervals: u64, checks: u64| Watched {
            guard: guard(&format!("class {class} p99 < 20ms")).unwrap(),
            intervals,
            checks,
        };
        // An altq that tells none has looked at none.
        assert!(!all_measured(&[]));
        assert!(!all_measured(&[watched("voice", 1, 1), watched("games", 0, 0)]));
        let held = [watched("voice", 3, 1), watched("games", 3, 0)];
        assert!(all_measured(&held));
        assert_eq!(silent(&held), " (too few packets to measure in games)");
        assert_eq!(silent(&held[..1]), "");
    }

    /// It is noon, and a policy is due at one.
    #[test]
    fn a_clock_that_is_set_far_does_not_mislead() {
        let (noon, due) = (43_200, 46_800);
        for (set, sleeps) in [(noon + 13 * 3600, 1), (due, 1), (due - 1, 2), (noon - 13 * 3600, 5041)] {
            let (now, mut slept) = (std::cell::Cell::new(noon), 0);
            let sleep = |time: Duration| {
                slept += 1;
                now.set(if slept == 1 { set } else { now.get() + time.as_secs() as i64 });
            };
            wait_for(due, || now.get(), sleep);
            assert!(now.get() >= due, "{set}");
            assert_eq!(slept, sleeps, "{set}");
        }
    }
}
