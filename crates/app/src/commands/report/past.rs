//! `altq report --last`: a page of what a running altq has kept, as a client of its control socket
//! (docs/report.md).

use altq_control::change::{Entry, What};
use altq_control::client::{Client, NoFields};
use altq_control::document::Status;
use altq_control::request::change::History;
use altq_control::{Code, Fault};
use altq_engine::units::SECOND;
use altq_pages::html;
use altq_pages::recorded::{Change, Link, Recorded};
use serde::{Deserialize, Serialize};

use super::{Args, give};
use crate::commands::apply::user;
use crate::exit::Exit;
use crate::socket::{ask, fail};

/// The heading where nobody gives another one.
const TITLE: &str = "What altq did";

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
        links.push(link(client, name, seconds)?);
    }
    if links.iter().all(|link| link.slices.is_empty()) {
        return Err(Fault::new(Code::Failed, "nothing is known of this time").help("ask again in a second"));
    }
    let to = links.iter().map(|link| link.now).max().unwrap_or(0);
    let from = to.saturating_sub(seconds.saturating_mul(SECOND));
    let mut notes = Vec::new();
    let changes = match ask::<History>(client, "history", &NoFields {}) {
        Ok(history) => {
            let within = |entry: &Entry| (from..=to).contains(&entry.unix_ns);
            history.changes.into_iter().filter(within).map(change).collect()
        }
        Err(fault) => {
            notes.push(format!("What was changed of the policy is not known: {fault}."));
            Vec::new()
        }
    };
    let (command, version) = (command_line(), env!("CARGO_PKG_VERSION").to_owned());
    Ok(Recorded { links, changes, from, to, notes, command, version })
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
        alters: what != What::Confirmed,
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
        assert_eq!((applied.lines.len(), applied.more, applied.alters), (1, 2, true));
        // altq itself, and a confirmation, which changes nothing.
        let confirmed = change(entry(What::Confirmed, By::default(), ""));
        assert_eq!((confirmed.what.as_str(), confirmed.by.as_str(), confirmed.alters), ("confirmed", "", false));
    }
}
