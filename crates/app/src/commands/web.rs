//! `altq web`: what a running altq does, as a page and as metrics (docs/web.md).

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use altq_config::literal;
use altq_web::board::Board;
use altq_web::feed::Feed;
use altq_web::http::Hosts;
use altq_web::server::site::Site;
use altq_web::server::{Limits, Server};
use anyhow::Context as _;

use crate::exit::Exit;
use crate::socket::Socket;

/// Options of `altq web`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    socket: Socket,
    /// Where browsers and collectors connect. Whoever reaches this address can read all counters,
    /// names and flows: there is no login
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8017")]
    listen: SocketAddr,
    /// A further name of this server, in addition to `localhost` and its address
    #[arg(long = "host", value_name = "NAME", value_parser = name)]
    hosts: Vec<String>,
    /// Shows no flows, which have addresses, and no rules, which have them as well
    #[arg(long)]
    no_flows: bool,
    /// Leaves histograms of how long packets waited out of the metrics: 22 series for each class
    #[arg(long)]
    no_histograms: bool,
    /// Memory for the history, such as 64Mbytes
    #[arg(long, value_name = "SIZE", default_value = "64Mbytes", value_parser = memory)]
    history: usize,
}

/// The smallest memory of a history: a minute of a hundred classes.
const LEAST: u64 = 1_000_000;
/// The largest memory of a history.
const MOST: u64 = 4_000_000_000;

fn memory(text: &str) -> Result<usize, String> {
    let size = literal::size(text).map_err(|wrong| wrong.to_string())?;
    if !(LEAST..=MOST).contains(&size) {
        return Err("a history has 1Mbytes to 4000Mbytes".to_owned());
    }
    usize::try_from(size).map_err(|_| "this is more than this host can address".to_owned())
}

fn name(text: &str) -> Result<String, String> {
    let fits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:[]".contains(&b));
    if fits { Ok(text.to_owned()) } else { Err("a name of a host, without port, such as shaper.example".to_owned()) }
}

/// Runs the command, until it is ended.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let listener = match TcpListener::bind(args.listen) {
        Ok(listener) => listener,
        Err(error) => {
            let (exit, help) = match error.kind() {
                ErrorKind::AddrInUse => (Exit::Refused, "; another program listens there, say another port"),
                ErrorKind::AddrNotAvailable => (Exit::Usage, "; no interface of this host has this address"),
                ErrorKind::PermissionDenied => (Exit::NotPermitted, "; ports below 1024 are for root"),
                _ => (Exit::Failed, ""),
            };
            eprintln!("altq web: cannot listen at {}: {error}{help}", args.listen);
            return Ok(exit);
        }
    };
    let address = listener.local_addr().context("the address of the socket")?;
    let (path, _) = args.socket.path();
    let (board, woken) = Board::new().context("a pair of sockets")?;
    let board = Arc::new(board);
    let site = Site::new(board.clone(), Hosts::new(&args.hosts));
    let site = if args.no_flows { site.without_flows() } else { site };
    let mut server = Server::new(listener, site, woken, Limits::default()).context("the listening socket")?;
    let mut feed = Feed::new(path.clone(), args.history, !args.no_histograms);
    // Nobody need read the log: no client waits for that.
    crate::say::never_wait("altq web");
    crate::aside::stand_aside("altq web");
    eprintln!("altq web: http://{address}/ shows what the altq at {} does", path.display());
    if !address.ip().is_loopback() {
        let flows = if args.no_flows { "" } else { ", and addresses of flows and in rules (--no-flows)" };
        eprintln!("altq web: whoever reaches {address} can read all names and counters{flows}; there is no login");
    }
    // altq is asked once before clients are answered. If it does not run yet, it is asked again
    // later.
    if let Some(fault) = feed.look(&board) {
        eprintln!("altq web: {fault}; it is asked again every second");
    }
    let asker = std::thread::Builder::new().name("feed".to_owned()).spawn({
        let board = board.clone();
        move || {
            feed.run(&board);
        }
    });
    asker.context("a thread that asks altq")?;
    server.run().context("waiting for clients")?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read() {
        assert_eq!(memory("64Mbytes"), Ok(64_000_000));
        for wrong in ["", "1", "5Gbytes", "x", "-1"] {
            assert!(memory(wrong).is_err(), "{wrong}");
        }
        assert!(name("shaper.example").is_ok() && name("[2001:db8::1]").is_ok());
        for wrong in ["", "a b", "a/b", "http://x"] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
    }
}
