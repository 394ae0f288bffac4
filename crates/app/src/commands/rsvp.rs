//! `altq rsvp`: what the RSVP daemon knows, and senders and receivers for whom it speaks
//! (docs/rsvp.md).

mod shown;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use altq_config::literal;
use altq_control::client::{Client, NoFields};
use altq_control::{Code, Fault};
use altq_engine::units::Rate;
use altq_reserve::Tspec;
use altq_rsvpd::document::{Changed, Neighbours, Paths, Reservations};
use altq_rsvpd::request::Fields;
use serde::de::DeserializeOwned;

use crate::exit::Exit;
use crate::output;
use crate::socket::{ask, fail};

/// The path where nobody says another one.
const USUAL: &str = "/run/altq/rsvp.sock";
/// The environment variable that has another path.
const VARIABLE: &str = "ALTQ_RSVP_SOCKET";

/// Options of `altq rsvp`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 done, 1 no daemon answers, 2 the request is wrong, 5 refused, 6 not permitted.

Examples:
  altq rsvp path
  altq rsvp resv --json | jq '.reservations[].class'
  altq rsvp sender add --from 10.0.1.1:4000 --to 10.0.2.2:5004 --rate 500kbit/s --burst 10kbytes
  altq rsvp receiver add --from 10.0.1.1:4000 --to 10.0.2.2:5004 --rate 500kbit/s --burst 10kbytes
  altq rsvp receiver del --to 10.0.2.2:5004")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

/// The socket of `altq rsvpd`.
#[derive(Clone, Debug, clap::Args)]
pub struct RsvpSocket {
    /// The socket of the RSVP daemon [default: $ALTQ_RSVP_SOCKET, or else /run/altq/rsvp.sock]
    #[arg(long, value_name = "PATH")]
    rsvp_socket: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Lists the paths: who sends to whom, how much, and by which way
    Path(Show),
    /// Lists the reservations that neighbours ask for, and what became of them
    Resv(Show),
    /// Lists the neighbours that were heard, and what was received, sent and refused
    Neighbours(Show),
    /// Announces a sender in place of its host, or takes that back
    Sender {
        #[command(subcommand)]
        what: Sender,
    },
    /// Asks for a reservation in place of a receiver, or gives it up. The link behind this router
    /// is not reserved
    Receiver {
        #[command(subcommand)]
        what: Receiver,
    },
}

#[derive(Debug, clap::Args)]
struct Show {
    #[command(flatten)]
    socket: RsvpSocket,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Sender {
    /// Announces a sender, or other traffic of it
    Add {
        /// The sender: its address and port, as `10.0.1.1:4000` or `[2001:db8::1]:4000`
        #[arg(long, value_name = "ADDRESS:PORT")]
        from: SocketAddr,
        #[command(flatten)]
        session: Session,
        #[command(flatten)]
        traffic: Traffic,
        #[command(flatten)]
        show: Show,
    },
    /// Takes back what was announced
    Del {
        /// The sender: its address and port
        #[arg(long, value_name = "ADDRESS:PORT")]
        from: SocketAddr,
        #[command(flatten)]
        session: Session,
        #[command(flatten)]
        show: Show,
    },
}

#[derive(Debug, clap::Subcommand)]
enum Receiver {
    /// Asks for a reservation, or for another one
    Add {
        /// A sender: its address and port. May be given several times
        #[arg(long, value_name = "ADDRESS:PORT", required = true)]
        from: Vec<SocketAddr>,
        /// The senders share one reservation (SE); otherwise each has its own (FF)
        #[arg(long)]
        shared: bool,
        #[command(flatten)]
        session: Session,
        #[command(flatten)]
        traffic: Traffic,
        #[command(flatten)]
        show: Show,
    },
    /// Gives up what was asked for, for all senders of a session
    Del {
        #[command(flatten)]
        session: Session,
        #[command(flatten)]
        show: Show,
    },
}

#[derive(Debug, clap::Args)]
struct Session {
    /// The receiver: its address and port, as `10.0.2.2:5004` or `[2001:db8::2]:5004`
    #[arg(long, value_name = "ADDRESS:PORT")]
    to: SocketAddr,
    /// The IP protocol, by name or number
    #[arg(long, value_name = "PROTOCOL", default_value = "udp", value_parser = protocol)]
    proto: u8,
}

/// A token bucket; sizes count from the IP header.
#[derive(Debug, clap::Args)]
struct Traffic {
    /// Its rate, such as 500kbit/s
    #[arg(long, value_name = "RATE", value_parser = literal::rate_with_unit)]
    rate: Rate,
    /// What it may send at once, such as 10kbytes
    #[arg(long, value_name = "SIZE", value_parser = literal::size)]
    burst: u64,
    /// Its peak rate [default: any]
    #[arg(long, value_name = "RATE", value_parser = literal::rate_with_unit)]
    peak: Option<Rate>,
    /// Smaller packets count as if they had so many bytes [default: 64]
    #[arg(long, value_name = "BYTES")]
    min_unit: Option<u32>,
    /// Its largest packet [default: 1500]
    #[arg(long, value_name = "BYTES")]
    max_packet: Option<u32>,
}

impl Traffic {
    fn tspec(&self) -> Tspec {
        Tspec {
            rate_bit_s: self.rate.as_bit_s(),
            burst_bytes: self.burst,
            peak_bit_s: self.peak.map(Rate::as_bit_s),
            min_unit_bytes: self.min_unit,
            max_packet_bytes: self.max_packet,
        }
    }
}

impl Session {
    fn fields(&self) -> Fields {
        Fields { to: Some(self.to), proto: Some(self.proto), ..Fields::default() }
    }
}

impl RsvpSocket {
    /// Its path.
    pub fn path(&self) -> PathBuf {
        let chosen = self.rsvp_socket.clone().or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from));
        chosen.filter(|path| path != Path::new("")).unwrap_or_else(|| PathBuf::from(USUAL))
    }

    fn connect(&self) -> Result<Client, Fault> {
        let path = self.path();
        Client::connect(&path).map_err(|fault| match fault.code {
            Code::Failed => Fault::new(Code::Failed, format!("no RSVP daemon answers at {}", path.display()))
                .help("start `altq rsvpd`, or say where its socket is with --rsvp-socket or ALTQ_RSVP_SOCKET"),
            _ => fault,
        })
    }
}

fn protocol(word: &str) -> Result<u8, String> {
    altq_config::protocol(word).ok_or_else(|| format!("there is no protocol `{word}`"))
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    match &args.what {
        What::Path(show) => print::<Paths>(show, "rsvp.path", |paths| shown::paths(paths, output::width())),
        What::Resv(show) => {
            print::<Reservations>(show, "rsvp.resv", |found| shown::reservations(found, output::width()))
        }
        What::Neighbours(show) => {
            print::<Neighbours>(show, "rsvp.neighbours", |found| shown::neighbours(found, output::width()))
        }
        What::Sender { what: Sender::Add { from, session, traffic, show } } => {
            let fields = Fields { from: vec![*from], tspec: Some(traffic.tspec()), ..session.fields() };
            change(show, "rsvp.announce", &fields, ("announced", "announced before"))
        }
        What::Sender { what: Sender::Del { from, session, show } } => {
            let fields = Fields { from: vec![*from], ..session.fields() };
            change(show, "rsvp.renounce", &fields, ("not announced any more", "no such sender was announced here"))
        }
        What::Receiver { what: Receiver::Add { from, shared, session, traffic, show } } => {
            let tspec = Some(traffic.tspec());
            let fields = Fields { from: from.clone(), tspec, shared: Some(*shared), ..session.fields() };
            change(
                show,
                "rsvp.reserve",
                &fields,
                ("asked for; `altq rsvp resv` on the way shows what became of it", ""),
            )
        }
        What::Receiver { what: Receiver::Del { session, show } } => {
            change(show, "rsvp.release", &session.fields(), ("given up", "nothing was asked for here"))
        }
    }
}

/// Asks for a document, and prints it.
fn print<T: DeserializeOwned>(show: &Show, op: &str, text: impl Fn(&T) -> String) -> anyhow::Result<Exit> {
    let asked = show.socket.connect().and_then(|mut client| client.ask(op, &NoFields {}));
    let json = match asked {
        Ok(json) => json,
        Err(fault) => return Ok(fail("rsvp", &fault)),
    };
    if show.json {
        // As it came: a later daemon may say more.
        output::print(&(json + "\n"))?;
        return Ok(Exit::Ok);
    }
    match serde_json::from_str(&json) {
        Ok(found) => output::print(&text(&found))?,
        Err(error) => {
            let fault = Fault::new(Code::Failed, format!("the daemon's answer cannot be read ({error})"));
            return Ok(fail("rsvp", &fault));
        }
    }
    Ok(Exit::Ok)
}

/// Asks for a change, and says whether there was something to change.
fn change(show: &Show, op: &str, fields: &Fields, (done, nothing): (&str, &str)) -> anyhow::Result<Exit> {
    let asked = show.socket.connect().and_then(|mut client| ask::<Changed>(&mut client, op, fields));
    match asked {
        Err(fault) => return Ok(fail("rsvp", &fault)),
        Ok(changed) if show.json => output::print_json(&changed)?,
        Ok(changed) => output::print(&format!("{}\n", if changed.changed { done } else { nothing }))?,
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_have_names_and_numbers() {
        assert_eq!((protocol("udp"), protocol("132")), (Ok(17), Ok(132)));
        assert!(protocol("upd").unwrap_err().contains("upd"));
    }
}
