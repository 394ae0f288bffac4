//! `altq apply --schedule`: applies what the time of the week asks for, until it is ended.
//!
//! It asks as any other client does, so nothing of altq itself knows of schedules. What somebody
//! changes by hand meanwhile stays until the schedule asks for another policy.

use std::path::Path;
use std::time::Duration;

use altq_config::render;
use altq_control::client::{Client, NoFields};
use altq_control::request::change::{Applied, History, Running};
use altq_control::schedule::Schedule;
use altq_control::{Code, Fault};

use super::{Args, checked, too_long};
use crate::clock;
use crate::exit::Exit;
use crate::output;
use crate::policy::PolicyFile;
use crate::socket::{ask, fail};

/// How often it looks at the clock, which may be set, and whether altq has begun anew.
const LOOK: Duration = Duration::from_secs(10);

/// What was applied last.
struct Last {
    /// The policy, as the schedule calls it.
    policy: String,
    /// What ran then.
    text: String,
    /// The number of the latest change then.
    number: u64,
}

/// Runs `altq apply --schedule`.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let path = &args.policy.file;
    let read = std::fs::read_to_string(path).map_err(|error| format!(" {error}"));
    let schedule = match read.and_then(|text| Schedule::read(&text).map_err(|wrong| wrong.to_string())) {
        Ok(schedule) => schedule,
        // Behind the name of the file stands the number of the line, as everywhere.
        Err(wrong) => {
            eprintln!("altq apply: {}:{wrong}", path.display());
            return Ok(Exit::Usage);
        }
    };
    // What cannot be done is said now, and not in the night.
    if let Err(exit) = try_all(args, &schedule) {
        return Ok(exit);
    }
    if args.check {
        let week = schedule.week();
        output::print(&week.iter().map(|(at, policy)| format!("{at} {policy}\n")).collect::<String>())?;
        return Ok(Exit::Ok);
    }
    if let Err(why) = clock::local() {
        return Ok(fail("apply", &Fault::new(Code::Failed, why)));
    }
    // Nobody need read the log: no policy waits for that.
    crate::say::never_wait("altq apply");
    let (mut last, mut said, mut found) = (None, String::new(), String::new());
    loop {
        let now = match clock::local() {
            Ok(now) => now,
            Err(why) => {
                if why != said {
                    eprintln!("altq apply: {why}; it is asked again every {} s", LOOK.as_secs());
                }
                said = why;
                std::thread::sleep(LOOK);
                continue;
            }
        };
        match step(args, schedule.policy(now), last.as_ref(), &mut found) {
            Ok(None) => {}
            Ok(new) => (last, said) = (new, String::new()),
            Err(fault) => {
                let fault = format!("{}: {fault}", schedule.policy(now));
                if fault != said {
                    eprintln!("altq apply: {fault}; it is tried again every {} s", LOOK.as_secs());
                }
                said = fault;
            }
        }
        // An answer takes its time. Without a zone the next round says so.
        let until_next = clock::local().map_or(LOOK, |now| Duration::from_secs(schedule.until_next(now).into()));
        std::thread::sleep(LOOK.min(until_next));
    }
}

/// Reads all policies, and has altq say whether it can run them. Where none runs yet, that is found
/// out later, unless a check is all that is asked for.
fn try_all(args: &Args, schedule: &Schedule) -> Result<(), Exit> {
    let mut client = args.socket.connect();
    for policy in schedule.policies() {
        let Some(asked) = args.asked(&file(args, policy)) else { return Err(Exit::Usage) };
        let checked = match &mut client {
            Ok(client) => checked(client, &asked).map(drop),
            Err(fault) => Err(fault.clone()),
        };
        if let Err(fault) = checked
            && (args.check || fault.code != Code::Failed)
        {
            eprintln!("altq apply: {policy} cannot be applied");
            return Err(fail("apply", &too_long(fault, asked.text.len())));
        }
    }
    Ok(())
}

/// Applies a policy if it is not what was applied last. `None` if nothing is to be done. `said`:
/// what was found in a file last, which is not said again.
fn step(args: &Args, policy: &str, last: Option<&Last>, said: &mut String) -> Result<Option<Last>, Fault> {
    let mut client = args.socket.connect()?;
    if let Some(last) = last.filter(|last| last.policy == policy) {
        // If the text is another one and there was no change since, altq has begun anew, with its
        // own file. A later change was somebody's wish, which ends with a new start as well.
        let (text, number) = (running(&mut client)?, latest(&mut client)?);
        if text == last.text {
            return Ok(None);
        }
        if number > last.number {
            return Ok(Some(Last { policy: policy.to_owned(), text, number }));
        }
    }
    let mut found = String::new();
    let asked = args.asked_saying(&file(args, policy), &mut |findings, sources| {
        found += &render(findings, sources, false);
    });
    if found != *said {
        eprint!("{found}");
        *said = found;
    }
    let Some(asked) = asked else { return Err(Fault::usage("it is no policy")) };
    let applied: Applied = ask(&mut client, "apply", &asked).map_err(|fault| too_long(fault, asked.text.len()))?;
    eprintln!("altq apply: the time asks for {policy}");
    // A guard that does not hold brings the previous policy back, until the time asks for another
    // one.
    args.safely.done("apply", &mut client, &applied);
    let (text, number) = (running(&mut client)?, latest(&mut client)?);
    Ok(Some(Last { policy: policy.to_owned(), text, number }))
}

/// The text of the policy that runs.
fn running(client: &mut Client) -> Result<String, Fault> {
    ask::<Running>(client, "policy", &NoFields {}).map(|running| running.text)
}

/// The number of the latest change.
fn latest(client: &mut Client) -> Result<u64, Fault> {
    let history: History = ask(client, "history", &NoFields {})?;
    Ok(history.changes.last().map_or(0, |entry| entry.number))
}

/// The file of a policy: its name counts from the folder of the schedule.
fn file(args: &Args, policy: &str) -> PolicyFile {
    let folder = args.policy.file.parent().unwrap_or(Path::new(""));
    PolicyFile { file: folder.join(policy), language: args.policy.language }
}
