//! `altq link`: changes a link of a running altq (docs/service.md).

use altq_config::literal;
use altq_control::document::Changed;
use altq_engine::units::Rate;
use serde::Serialize;

use crate::exit::Exit;
use crate::socket::{Socket, ask, fail};

/// Options of `altq link`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Gives a link another rate; classes keep the rates that they have
    Set {
        /// The link
        #[arg(value_name = "NAME")]
        name: String,
        /// The word `rate`
        #[arg(value_name = "rate", value_parser = ["rate"])]
        word: String,
        /// The rate, such as 20Mbit/s
        #[arg(value_name = "RATE", value_parser = literal::rate_with_unit)]
        rate: Rate,
        #[command(flatten)]
        socket: Socket,
    },
}

/// The fields of the request.
#[derive(Serialize)]
struct Fields<'a> {
    link: &'a str,
    rate_bit_s: u64,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let What::Set { name, word: _, rate, socket } = &args.what;
    let fields = Fields { link: name, rate_bit_s: rate.as_bit_s() };
    let asked = socket.connect().and_then(|mut client| ask::<Changed>(&mut client, "link.set", &fields));
    Ok(match asked {
        Ok(Changed { changed: true }) => {
            eprintln!("altq link: {name} has the rate {rate}");
            Exit::Ok
        }
        Ok(Changed { changed: false }) => {
            eprintln!("altq link: {name} had the rate {rate} already");
            Exit::Ok
        }
        Err(fault) => fail("link", &fault),
    })
}
