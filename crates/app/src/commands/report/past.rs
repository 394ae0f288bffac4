//! `altq report --last`: a page of what a running altq has kept, as a client of its control socket
//! (docs/report.md).

use altq_control::change::{Entry, What};
use altq_control::client::{Client, NoFields};
use altq_control::document::Status;
use altq_control::request::change::History;
use altq_control::{Code, Fault};
use altq_engine::units::SECOND;
use altq_monitor::history::QUARTER;
use altq_pages::html;
use altq_pages::recorded::{Change, Link, Recorded};
use serde::{Deserialize, Serialize};

use super::{Args, give};
use crate::commands::apply::user;
use crate::exit::Exit;
use crate::socket::{ask, fail};

/// The heading where nobody gives another one.
const TITLE: &str = "What altq did";

/// For so long, in seconds, delays may be those of promises that are no more: a slice is as long at
/// most.
const SLICE_S: u64 = QUARTER as u64;

/// What is asked of the control socket.
#[derive(Serialize)]
struct Fields<'a> {
    link: &'a str,
    ago_s: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_ns: Option<u64>,
}

/// Of an answer, where the next one goes on.
#[derive(Deserialize)]
struct Next {
    next_ns: Option<u64>,
}

/// Makes the page of the last so many seconds.
pub fn run(args: &Args, seconds: u64) -> anyhow::Result<Exit> {
    let recorded = args.socket.connect().and_then(|mut client| recorded(args, &mut client, seconds));
    match recorded {
        Ok(recorded) => give(args, &html::recorded_page(args.title.as_deref().unwrap_or(TITLE), &recorded)),
        Err(fault) => Ok(fail("report", &fault)),
    }
}

/// Asks for all that the page has.
fn recorded(args: &Args, client: &mut Client, seconds: u64) -> Result<Recorded, Fault> {
    let names: Vec<String> = match &args.link {
        Some(name) => vec![name.clone()],
        None => {
            let status: Status = ask(client, "status", &NoFields {})?;
            status.links.into_iter().map(|link| link.name).collect()
        }
    };
    let mut links = Vec::with_capacity(names.len());
    for name in &names {
        // What the link's rate was just before this time matters as well.
        links.push(link(client, name, seconds.saturating_add(SLICE_S))?);
    }
    let to = links.iter().map(|link| link.now).max().unwrap_or(0);
    let from = to.saturating_sub(seconds.saturating_mul(SECOND));
    for link in &mut links {
        link.slices.retain(|slice| slice.end > from);
    }
    if links.iter().all(|link| link.slices.is_empty()) {
        return Err(Fault::new(Code::Failed, "nothing is known of this time").help("ask again in a second"));
    }
    let mut notes = Vec::new();
    let entries = match ask::<History>(client, "history", &NoFields {}) {
        Ok(history) => history.changes,
        Err(fault) => {
            notes.push(format!("What was changed of the policy is not known: {fault}."));
            Vec::new()
        }
    };
    let altered = altered(&entries, from, to);
    let within = |entry: &Entry| (from..=to).contains(&entry.unix_ns);
    let changes = entries.into_iter().filter(within).map(change).collect();
    let (command, version) = (command_line(), env!("CARGO_PKG_VERSION").to_owned());
    Ok(Recorded { links, changes, altered, from, to, notes, command, version })
}

/// When promises may have been changed last, if that matters from `from` on. A confirmation changes
/// none.
fn altered(entries: &[Entry], from: u64, to: u64) -> Option<u64> {
    let least = from.saturating_sub(SLICE_S.saturating_mul(SECOND));
    let times = entries.iter().filter(|entry| entry.what != What::Confirmed).map(|entry| entry.unix_ns);
    times.filter(|at| (least..=to).contains(at)).max()
}

/// What is kept of a link, in as many answers as it takes.
fn link(client: &mut Client, name: &str, ago_s: u64) -> Result<Link, Fault> {
    let unreadable = |why: String| Fault::new(Code::Failed, format!("altq's answer cannot be read ({why})"));
    let (mut documents, mut after_ns) = (Vec::new(), None);
    loop {
        let json = client.ask("past", &Fields { link: name, ago_s, after_ns })?;
        let Next { next_ns } = serde_json::from_str(&json).map_err(|error| unreadable(error.to_string()))?;
        documents.push(json);
        // An answer that does not go on would be asked for again and again.
        match next_ns.filter(|next| after_ns.is_none_or(|after| *next > after)) {
            Some(next) => after_ns = Some(next),
            None => return Link::read(&documents).map_err(unreadable),
        }
    }
}

/// A change as the page shows it.
fn change(entry: Entry) -> Change {
    let Entry { number, unix_ns, what, by, name, lines, more } = entry;
    Change {
        number,
        unix_ns,
        what: format!("{} {name}", what.name()).trim_end().to_owned(),
        by: by.uid.map(user).unwrap_or_default(),
        lines,
        more,
    }
}

/// The command line as it was typed.
fn command_line() -> String {
    let words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    format!("altq {}", words.join(" "))
}

#[cfg(test)]
mod tests {
    use altq_control::change::By;

    use super::*;

    #[test]
    fn changes_are_shown_with_user_and_difference() {
        let by = By { uid: Some(4_000_000_001), pid: Some(7) };
        let entry = |what, by, name: &str| Entry {
            number: 3,
            unix_ns: 5,
            what,
            by,
            name: name.to_owned(),
            lines: vec!["class a: gone".to_owned()],
            more: 2,
        };
        let applied = change(entry(What::Applied, by, "/etc/p.altq"));
        assert_eq!((applied.what.as_str(), applied.by.as_str()), ("applied /etc/p.altq", "user 4000000001"));
        assert_eq!((applied.lines.len(), applied.more), (1, 2));
        // altq itself.
        let confirmed = change(entry(What::Confirmed, By::default(), ""));
        assert_eq!((confirmed.what.as_str(), confirmed.by.as_str()), ("confirmed", ""));
    }

    #[test]
    fn a_change_just_before_the_time_is_waited_out_as_well() {
        let entry = |what, second: u64| Entry {
            number: 3,
            unix_ns: second * SECOND,
            what,
            by: By::default(),
            name: String::new(),
            lines: Vec::new(),
            more: 0,
        };
        let last = |entries: &[Entry]| altered(entries, 1000 * SECOND, 2000 * SECOND).map(|at| at / SECOND);
        assert_eq!(last(&[entry(What::Applied, 984), entry(What::Applied, 2001)]), None);
        assert_eq!(last(&[entry(What::Applied, 984), entry(What::Edited, 986)]), Some(986));
        // A confirmation changes nothing.
        let changes = [entry(What::Edited, 986), entry(What::Reverted, 1500), entry(What::Confirmed, 1600)];
        assert_eq!(last(&changes), Some(1500));
    }
}
