//! `altq status`: whether a running altq shapes (docs/service.md).

use altq_control::client::NoFields;
use altq_control::document::{BLOCKED, BYPASS, LinkStatus, Status};

use crate::exit::Exit;
use crate::output;
use crate::socket::{Socket, ask, fail};

/// Options of `altq status`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    socket: Socket,
    /// Prints JSON (altq.status/1)
    #[arg(long)]
    json: bool,
}

/// Runs the command. The exit code is 4 if packets of a link pass unshaped, or do not pass.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let asked = args.socket.connect().and_then(|mut client| ask::<Status>(&mut client, "status", &NoFields {}));
    let status = match asked {
        Ok(status) => status,
        Err(fault) => return Ok(fail("status", &fault)),
    };
    if args.json {
        output::print_json(&status)?;
    } else {
        let waits = status.confirm_pending_s.map_or(String::new(), |seconds| {
            format!("a change waits: without `altq confirm` it is taken back in {seconds} s\n")
        });
        output::print(&(status.links.iter().map(line).collect::<String>() + &waits))?;
    }
    Ok(if status.is_degraded() { Exit::Bypassed } else { Exit::Ok })
}

fn line(link: &LinkStatus) -> String {
    let state = match link.state.as_str() {
        BYPASS => "BYPASS: packets pass unshaped,",
        BLOCKED => "BLOCKED: packets do not pass,",
        state => state,
    };
    let why = link.reason.as_ref().map_or(String::new(), |why| format!(": {why}"));
    let drift = link.drift.iter().map(|what| format!("    differs: {what}\n")).collect::<String>();
    format!("link {}: {state} since {} by {}{why}\n{drift}", link.name, ago(link.since_s), link.path)
}

/// How long something lasts: in the largest unit, and the next one.
fn ago(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min {} s", seconds % 60),
        3600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_is_not_shaped_is_said_loudly() {
        let link = |state: &str, reason: Option<&str>, drift: Vec<String>| LinkStatus {
            name: "up".to_owned(),
            path: "nfqueue".to_owned(),
            state: state.to_owned(),
            since_s: 3725,
            reason: reason.map(str::to_owned),
            drift,
            set_by_clients: 0,
        };
        assert_eq!(line(&link("shaping", None, Vec::new())), "link up: shaping since 1 h 2 min by nfqueue\n");
        let bypass = link("bypass", Some("the worker was killed"), vec!["no rules".to_owned()]);
        let expected = "link up: BYPASS: packets pass unshaped, since 1 h 2 min by nfqueue: the worker was killed\n    \
                        differs: no rules\n";
        assert_eq!(line(&bypass), expected);
        let blocked = line(&link("blocked", None, Vec::new()));
        assert_eq!(blocked, "link up: BLOCKED: packets do not pass, since 1 h 2 min by nfqueue\n");
        assert_eq!([ago(59), ago(60), ago(90_000)], ["59 s", "1 min 0 s", "1 d 1 h"]);
    }
}
