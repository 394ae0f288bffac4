//! `altq traffic server`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use altq_config::literal;
use altq_dataplane::signal::Watch;
use altq_dataplane::stop::Stop;
use altq_engine::units::{Nanos, Rate};
use altq_traffic::protocol::Caps;
use altq_traffic::server::{CAPS, Options, PORT, Server};
use altq_traffic::token::Token;
use anyhow::Context as _;

use super::{refused, token, usage};
use crate::exit::Exit;
use crate::output;

/// Options of `altq traffic server`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
It serves only clients that know the token, and sends only to addresses that have proved that its packets reach them.

Examples:
  altq traffic server                                    on port 2587 of all addresses; prints a random token
  altq traffic server --token secret.txt --max-rate 100Mbit/s
  altq traffic server --listen 192.0.2.1:5001 --listen 192.0.2.1:5002   two ports, for rules that tell flows by port")]
pub struct Args {
    /// Address to listen on, TCP and UDP: ADDR or ADDR:PORT, an IPv6 address with a port in square
    /// brackets; port 0 takes a free one [default: port 2587 of all addresses]
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen)]
    listen: Vec<SocketAddr>,
    /// The token that clients must know: a file that holds it, or the token itself [default:
    /// $ALTQ_TOKEN, or a random one]
    #[arg(long, value_name = "FILE|TEXT")]
    token: Option<String>,
    /// Highest rate of all flows of one client together, in each direction
    #[arg(long, value_name = "RATE", default_value = "1Gbit/s", value_parser = literal::rate_with_unit)]
    max_rate: Rate,
    /// Longest run of a client
    #[arg(long, value_name = "TIME", default_value = "5min", value_parser = literal::time_with_unit)]
    max_duration: Nanos,
    /// The most clients at a time
    #[arg(long, value_name = "N", default_value_t = CAPS.clients)]
    max_clients: u32,
    /// The most flows of a client at a time
    #[arg(long, value_name = "N", default_value_t = CAPS.flows)]
    max_flows: u32,
    /// The most connections of all flows of a client
    #[arg(long, value_name = "N", default_value_t = CAPS.streams)]
    max_streams: u32,
    /// Stops after this time [default: at SIGINT or SIGTERM]
    #[arg(long = "for", value_name = "TIME", value_parser = literal::time_with_unit)]
    duration: Option<Nanos>,
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    match (text.parse(), bare.parse::<IpAddr>()) {
        (Ok(address), _) => Ok(address),
        (_, Ok(address)) => Ok(SocketAddr::new(address, PORT)),
        _ => Err("an address of this host, with or without a port: 192.0.2.1:5001, [2001:db8::1]:5001, 0.0.0.0".into()),
    }
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let given = match token(args.token.as_deref()) {
        Ok(given) => given,
        Err(why) => return usage(&why),
    };
    let (max_rate, max_duration) = (args.max_rate.as_bit_s(), args.max_duration);
    if max_rate < 1_000 || max_duration == 0 || args.max_clients == 0 || args.max_flows == 0 || args.max_streams == 0 {
        return usage("a limit is too low: --max-rate takes at least 1kbit/s, the others more than 0");
    }
    let random = given.is_none();
    let token = match given {
        Some(token) => token,
        None => Token::random()?,
    };
    let caps = Caps {
        rate_bit_s: max_rate,
        duration_ns: max_duration,
        clients: args.max_clients,
        flows: args.max_flows.min(u32::from(u16::MAX)),
        streams: args.max_streams,
    };
    // Signals must be blocked before any thread starts, because threads inherit the mask.
    let watch = Watch::new().context("signals cannot be watched")?;
    let stop = Stop::new().context("signals cannot be watched")?;
    // Nobody need read the log: no client waits for that.
    crate::say::never_wait("altq traffic server");
    let server = match start(&args.listen, &token, caps) {
        Ok(server) => server,
        Err(error) => return Ok(refused(&error, None)),
    };
    watch.stop_on_signal(stop.clone()).context("signals cannot be watched")?;
    let mut text = String::new();
    for address in server.addresses() {
        text += &format!("listening {address}\n");
    }
    if random {
        text += &format!("token {}\n", token.text());
    }
    output::print(&text)?;
    let seconds = max_duration as f64 / 1e9;
    eprintln!(
        "altq traffic server: a client may have {} each way, {seconds} s, {} flows, {} connections; {} clients at a \
         time",
        args.max_rate, caps.flows, caps.streams, caps.clients
    );
    let end = args.duration.map(|time| Instant::now() + Duration::from_nanos(time));
    while !stop.is_set() && !server.failed() && end.is_none_or(|end| Instant::now() < end) {
        std::thread::sleep(Duration::from_millis(50));
    }
    match server.stop() {
        Ok(()) => Ok(Exit::Ok),
        Err(error) => Ok(refused(&error, None)),
    }
}

/// Starts the server on these addresses, or without any on all addresses of the host.
fn start(listen: &[SocketAddr], token: &Token, caps: Caps) -> Result<Server, altq_traffic::Error> {
    let with = |listen: Vec<SocketAddr>| {
        let log = Box::new(|what: &str| eprintln!("altq traffic server: {what}"));
        Server::start(Options { listen, token: token.clone(), caps }, log)
    };
    if !listen.is_empty() {
        return with(listen.to_vec());
    }
    let four = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
    let six = SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT));
    // A host may have no IPv6.
    match std::net::UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)) {
        Ok(_) => with(vec![four, six]),
        Err(_) => with(vec![four]),
    }
}
