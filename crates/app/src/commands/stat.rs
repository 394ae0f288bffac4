//! `altq stat`: the counters of a running altq (docs/service.md).

use altq_control::document::Text;
use serde::Serialize;

use crate::exit::Exit;
use crate::output;
use crate::socket::{Socket, ask, fail};

/// Options of `altq stat`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// This link only
    #[arg(value_name = "LINK")]
    link: Option<String>,
    #[command(flatten)]
    socket: Socket,
    /// Prints JSON (altq.stat/1)
    #[arg(long)]
    json: bool,
    /// Prints the counters as another tool would: tc, tc-names, altqstat or tbrconfig
    #[arg(long, value_name = "FORMAT", conflicts_with = "json")]
    stat: Option<String>,
}

/// The fields of the request.
#[derive(Serialize)]
struct Fields<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<&'a str>,
    format: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    width: Option<u16>,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let link = args.link.as_deref();
    let mut client = match args.socket.connect() {
        Ok(client) => client,
        Err(fault) => return Ok(fail("stat", &fault)),
    };
    if args.json {
        // It is printed as it comes, because a document about many classes is large.
        return match client.ask("stat", &Fields { link, format: "json", width: None }) {
            Ok(json) => output::print(&(json + "\n")).map(|()| Exit::Ok),
            Err(fault) => Ok(fail("stat", &fault)),
        };
    }
    let table = Fields { link, format: "table", width: output::width().and_then(|width| u16::try_from(width).ok()) };
    let fields = args.stat.as_deref().map_or(table, |format| Fields { link, format, width: None });
    match ask::<Text>(&mut client, "stat", &fields) {
        Ok(text) => {
            output::print(&text.text)?;
            if let Some(legend) = text.legend {
                eprintln!("altq stat: {legend}");
            }
            Ok(Exit::Ok)
        }
        Err(fault) => Ok(fail("stat", &fault)),
    }
}
