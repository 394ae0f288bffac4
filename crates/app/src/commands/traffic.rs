//! `altq traffic`: load and latency between hosts (docs/traffic.md).

mod live;
mod server;
mod table;

use std::io::{self, IsTerminal};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use altq_config::literal;
use altq_dataplane::signal::Watch;
use altq_dataplane::stop::Stop;
use altq_engine::units::{Nanos, Rate};
use altq_traffic::client::{self, Flow, RunOptions, Session};
use altq_traffic::connect::Close;
use altq_traffic::plan::{Beat, Datagrams, Schedule, Work};
use altq_traffic::plan_file::{Family, FlowOptions, PlanFile, Ways, rrul};
use altq_traffic::result::TrafficResult;
use altq_traffic::server::PORT;
use altq_traffic::token::Token;
use altq_traffic::{Error, Refusal, socket};
use anyhow::Context as _;

use crate::exit::Exit;
use crate::output;

/// Options of `altq traffic`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  altq traffic server                                   on one host; it prints a token
  altq traffic bulk 192.0.2.1 --token secret.txt --both on another
  altq traffic rr 192.0.2.1 --udp --request 64 --response 64
  altq traffic udp 192.0.2.1 --rate 10Mbit/s --size 200 --dscp ef
  altq traffic mix 192.0.2.1 --duration 1min --json")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Serves clients that know its token, up to limits of rate, time and number
    Server(server::Args),
    /// Sends as much as TCP carries: up (to the server), down, or both ways
    #[command(after_help = "\
Examples:
  altq traffic bulk HOST                                 up for 10 s
  altq traffic bulk HOST --down --streams 4 --cc bbr     four streams down
  altq traffic bulk HOST --both -4 -6                    both ways, over IPv4 and IPv6 at once
  altq traffic bulk HOST --bytes 10Mbytes                how long ten megabytes take")]
    Bulk(Bulk),
    /// Sends a request, waits for the answer, and repeats: transactions a second, round trips
    #[command(after_help = "\
Examples:
  altq traffic rr HOST                                   one byte each way over TCP, as netperf TCP_RR
  altq traffic rr HOST --udp --request 1024 --response 64
  altq traffic rr HOST --udp --every 20ms --request 160 --response 160 --dscp ef")]
    Rr(Rr),
    /// Opens and closes connections: connections a second
    #[command(after_help = "\
Examples:
  altq traffic connect HOST --clients 16
  altq traffic connect HOST --close fin                  closes as programs do; ports wait for a minute")]
    Connect(Connect),
    /// Sends numbered datagrams at given times: loss, order, gaps, jitter
    #[command(after_help = "\
Examples:
  altq traffic udp HOST --rate 10Mbit/s --size 1500      sizes and rates are those of IP packets
  altq traffic udp HOST --every 20ms --size 200 --dscp ef --both
  altq traffic udp HOST --rate 5Mbit/s --size 1000 --on 1s --off 2s --random
  altq traffic udp HOST --rate 5Mbit/s --size 300,1500 --poisson")]
    Udp(Udp),
    /// Runs many flows at once: four bulk flows each way and round trips in three service classes,
    /// or a plan of your own
    #[command(after_help = "\
Examples:
  altq traffic mix HOST                                  like the test RRUL
  altq traffic mix HOST --plan plan.toml                 docs/traffic.md has the keys")]
    Mix(Mix),
}

/// Options that all clients have.
#[derive(Debug, clap::Args)]
struct Common {
    /// The server: HOST or HOST:PORT, an IPv6 address with a port in square brackets
    #[arg(value_name = "HOST")]
    server: String,
    /// The server's token: a file that holds it, or the token itself [default: $ALTQ_TOKEN]
    #[arg(long, value_name = "FILE|TEXT")]
    token: Option<String>,
    /// How long the flows send [default: 10s]
    #[arg(short = 't', long, value_name = "TIME", value_parser = literal::time_with_unit)]
    duration: Option<Nanos>,
    /// Time after each flow's start that the figures leave out [default: 0s]
    #[arg(long, value_name = "TIME", value_parser = literal::time_with_unit)]
    warmup: Option<Nanos>,
    /// Over IPv4 [default: the first address that HOST has]
    #[arg(short = '4', long)]
    ipv4: bool,
    /// Over IPv6; with -4 too, over both at once
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Address of this host to send from; may be given once for IPv4 and once for IPv6
    #[arg(long, value_name = "ADDR")]
    bind: Vec<IpAddr>,
    /// Prints JSON Lines on stdout: one per interval, and at last the result (altq.traffic/1)
    #[arg(long)]
    json: bool,
    /// Time between two lines of progress, such as 500ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = literal::time_with_unit)]
    interval: Nanos,
    /// Prints no lines of progress
    #[arg(short, long)]
    quiet: bool,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Options of a flow, or of two flows in opposite directions.
#[derive(Debug, clap::Args)]
struct Marks {
    /// DSCP of the packets that both ends send: a number, or ef, va, be, le, afXY, csX
    #[arg(long, default_value = "be", value_parser = literal::dscp)]
    dscp: u8,
    /// The server's port for the flow, one of those that it listens on [default: HOST's port]
    #[arg(long)]
    port: Option<u16>,
    /// This host's port of the first connection; further connections take the ports after it
    /// [default: the system chooses]
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    sport: u16,
}

#[derive(Debug, clap::Args)]
struct Tcp {
    /// Congestion control of both ends, one of net.ipv4.tcp_available_congestion_control
    #[arg(long, value_name = "NAME")]
    cc: Option<String>,
    /// Send and receive buffers of both ends, such as 56kbytes [default: the kernel tunes them]
    #[arg(long, value_name = "SIZE", value_parser = buffers)]
    buffers: Option<u32>,
}

fn buffers(text: &str) -> Result<u32, String> {
    let bytes = literal::size(text)?;
    u32::try_from(bytes).ok().filter(|bytes| (2048..=1 << 30).contains(bytes)).ok_or("2048 to 1073741824 bytes".into())
}

#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct Way {
    /// To the server (the default)
    #[arg(long)]
    up: bool,
    /// From the server
    #[arg(long)]
    down: bool,
    /// Both ways at once
    #[arg(long)]
    both: bool,
}

impl Way {
    fn ways(&self) -> Ways {
        match self {
            Way { both: true, .. } => Ways::Both,
            Way { down: true, .. } => Ways::Down,
            _ => Ways::Up,
        }
    }
}

#[derive(Debug, clap::Args)]
struct Bulk {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    way: Way,
    /// Connections at once in each direction
    #[arg(short = 'P', long, default_value_t = 1)]
    streams: u32,
    /// Bytes after which each connection ends, such as 10Mbytes; at the latest it ends with the run
    #[arg(long, value_name = "SIZE", value_parser = literal::size)]
    bytes: Option<u64>,
    #[command(flatten)]
    tcp: Tcp,
    #[command(flatten)]
    marks: Marks,
}

#[derive(Debug, clap::Args)]
struct Rr {
    #[command(flatten)]
    common: Common,
    /// Over UDP; a request without an answer after a second counts as failed
    #[arg(long)]
    udp: bool,
    /// Payload of a request
    #[arg(long, value_name = "BYTES", default_value_t = 1)]
    request: u32,
    /// Payload of an answer
    #[arg(long, value_name = "BYTES", default_value_t = 1)]
    response: u32,
    /// Clients side by side
    #[arg(short = 'P', long, default_value_t = 1)]
    clients: u32,
    /// Time from one request to the next; over UDP also if no answer came [default: the next
    /// request goes when the answer is here]
    #[arg(long = "every", value_name = "TIME", value_parser = literal::time_with_unit)]
    every: Option<Nanos>,
    #[command(flatten)]
    tcp: Tcp,
    #[command(flatten)]
    marks: Marks,
}

#[derive(Debug, clap::Args)]
struct Connect {
    #[command(flatten)]
    common: Common,
    /// Clients side by side
    #[arg(short = 'P', long, default_value_t = 1)]
    clients: u32,
    /// How the client closes a connection
    #[arg(long, default_value = "reset")]
    close: CloseWord,
    #[command(flatten)]
    tcp: Tcp,
    #[command(flatten)]
    marks: Marks,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum CloseWord {
    /// With a reset: the client's port is free at once
    Reset,
    /// With FIN, as programs do: the client's port is blocked for a minute (TIME-WAIT)
    Fin,
}

#[derive(Debug, clap::Args)]
struct Udp {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    way: Way,
    /// Rate in bits of IP packets, such as 10Mbit/s
    #[arg(long, value_parser = literal::rate_with_unit, conflicts_with = "every", required_unless_present = "every")]
    rate: Option<Rate>,
    /// Time from one packet to the next, such as 20ms, instead of a rate
    #[arg(long, value_name = "TIME", value_parser = literal::time_with_unit)]
    every: Option<Nanos>,
    /// Bytes of an IP packet, headers included; of several sizes one is chosen at random per packet
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "1500")]
    size: Vec<u32>,
    /// Random gaps (a Poisson process) with the given rate as the mean
    #[arg(long, conflicts_with_all = ["on", "off"])]
    poisson: bool,
    /// Time for which the flow sends before it pauses
    #[arg(long, value_name = "TIME", value_parser = literal::time_with_unit, requires = "off")]
    on: Option<Nanos>,
    /// Time for which the flow pauses
    #[arg(long, value_name = "TIME", value_parser = literal::time_with_unit, requires = "on")]
    off: Option<Nanos>,
    /// Makes --on and --off the means of exponential distributions
    #[arg(long, requires = "on")]
    random: bool,
    #[command(flatten)]
    marks: Marks,
}

#[derive(Debug, clap::Args)]
struct Mix {
    #[command(flatten)]
    common: Common,
    /// The flows as a TOML file, which docs/traffic.md describes
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    #[command(flatten)]
    tcp: Tcp,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    socket::more_descriptors();
    let (common, flows) = match &args.command {
        Command::Server(args) => return server::run(args),
        Command::Bulk(bulk) => (&bulk.common, vec![bulk.options()]),
        Command::Rr(rr) => match rr.options() {
            Ok(flow) => (&rr.common, vec![flow]),
            Err(why) => return usage(&why),
        },
        Command::Connect(connect) => (&connect.common, vec![connect.options()]),
        Command::Udp(udp) => (&udp.common, vec![udp.options()]),
        Command::Mix(mix) => return mix.run(),
    };
    client(common, &flows, 10_000_000_000, 0)
}

impl Bulk {
    fn options(&self) -> FlowOptions {
        let work = Work::TcpBulk { streams: self.streams, bytes: self.bytes };
        self.marks.on(self.tcp.on(FlowOptions { ways: self.way.ways(), ..FlowOptions::new("bulk", work) }))
    }
}

impl Rr {
    fn options(&self) -> Result<FlowOptions, String> {
        let (streams, request, response, interval_ns) = (self.clients, self.request, self.response, self.every);
        if self.udp && (self.tcp.cc.is_some() || self.tcp.buffers.is_some()) {
            return Err("--cc and --buffers are options of TCP; --udp has neither".into());
        }
        let work = match self.udp {
            false => Work::TcpRr { streams, request, response, interval_ns },
            true => Work::UdpRr { streams, request, response, interval_ns },
        };
        Ok(self.marks.on(self.tcp.on(FlowOptions::new("rr", work))))
    }
}

impl Connect {
    fn options(&self) -> FlowOptions {
        let close = match self.close {
            CloseWord::Reset => Close::Reset,
            CloseWord::Fin => Close::Fin,
        };
        self.marks.on(self.tcp.on(FlowOptions::new("connect", Work::TcpConnect { streams: self.clients, close })))
    }
}

impl Udp {
    fn options(&self) -> FlowOptions {
        let beat = match (self.rate, self.every) {
            (Some(rate), _) => Beat::RateBitS(rate.as_bit_s()),
            (None, every) => Beat::IntervalNs(every.unwrap_or(0)),
        };
        let schedule = match (self.on, self.off) {
            (Some(on_ns), Some(off_ns)) => Schedule::OnOff { beat, on_ns, off_ns, random: self.random },
            _ if self.poisson => Schedule::Poisson(beat),
            _ => Schedule::Constant(beat),
        };
        let work = Work::Udp(Datagrams { sizes: self.size.clone(), schedule });
        self.marks.on(FlowOptions { ways: self.way.ways(), ..FlowOptions::new("udp", work) })
    }
}

impl Mix {
    fn run(&self) -> anyhow::Result<Exit> {
        let plan = match &self.plan {
            None => PlanFile { duration: None, warmup: None, flows: rrul() },
            Some(path) => match PlanFile::load(path) {
                Ok(plan) => plan,
                Err(error) => {
                    eprintln!("altq traffic: {error}");
                    return Ok(Exit::Usage);
                }
            },
        };
        let flows: Vec<FlowOptions> = plan.flows.into_iter().map(|flow| self.tcp.on(flow)).collect();
        client(&self.common, &flows, plan.duration.unwrap_or(10_000_000_000), plan.warmup.unwrap_or(0))
    }
}

impl Tcp {
    /// Sets what the flow does not set itself from the command line.
    fn on(&self, flow: FlowOptions) -> FlowOptions {
        if flow.work.is_udp() {
            return flow;
        }
        FlowOptions {
            congestion: flow.congestion.or_else(|| self.cc.clone()),
            buffers: flow.buffers.or(self.buffers),
            ..flow
        }
    }
}

impl Marks {
    fn on(&self, flow: FlowOptions) -> FlowOptions {
        FlowOptions { dscp: self.dscp, port: self.port, sport: self.sport, ..flow }
    }
}

fn usage(why: &str) -> anyhow::Result<Exit> {
    eprintln!("altq traffic: {why}");
    Ok(Exit::Usage)
}

/// The token from the command line, or else from the environment.
fn token(given: Option<&str>) -> Result<Option<Token>, String> {
    let said = |error: Error| error.to_string();
    let Some(given) = given else {
        return match std::env::var("ALTQ_TOKEN") {
            Ok(text) => Token::new(&text).map(Some).map_err(|error| format!("ALTQ_TOKEN: {error}")),
            Err(_) => Ok(None),
        };
    };
    match std::fs::read_to_string(given) {
        Ok(text) => Token::new(&text).map(Some).map_err(|error| format!("{given}: {error}")),
        // A text with a slash is meant as a path.
        Err(error) if given.contains('/') || error.kind() != io::ErrorKind::NotFound => {
            Err(format!("{given}: {error}"))
        }
        Err(_) => Token::new(given).map(Some).map_err(said),
    }
}

/// Runs flows against a server.
fn client(common: &Common, flows: &[FlowOptions], duration: Nanos, warmup: Nanos) -> anyhow::Result<Exit> {
    let duration = common.duration.unwrap_or(duration);
    let warmup = common.warmup.unwrap_or(warmup);
    if duration == 0 {
        return usage("--duration must be longer than 0, such as 10s");
    }
    if warmup >= duration {
        let (warmup, duration) = (output::time(warmup), output::time(duration));
        return usage(&format!("--warmup {warmup} leaves nothing of the {duration} of the run"));
    }
    if !(10_000_000..=60_000_000_000).contains(&common.interval) {
        return usage("--interval: 10ms to 1min");
    }
    let prepared = prepare(common, flows, duration);
    let (token, places) = match prepared {
        Ok(prepared) => prepared,
        Err(Trouble::Usage(why)) => return usage(&why),
        Err(Trouble::Name(why)) => {
            eprintln!("altq traffic: {why}");
            return Ok(Exit::Failed);
        }
    };
    // Signals must be blocked before any thread starts, because threads inherit the mask.
    let watch = Watch::new().context("signals cannot be watched")?;
    let stop = Stop::new().context("signals cannot be watched")?;
    watch.stop_on_signal(stop.clone()).context("signals cannot be watched")?;
    let mut sessions: Vec<(Session, Vec<Flow>)> = Vec::new();
    for place in places {
        match Session::open(place.server, place.from, &token) {
            Ok(session) => sessions.push((session, place.flows)),
            Err(error) => return Ok(refused(&error, Some(place.server))),
        }
    }
    let rows: Vec<(Flow, bool, bool)> = sessions
        .iter()
        .flat_map(|(session, flows)| {
            flows.iter().map(|flow| (flow.clone(), session.server.is_ipv4(), session.one_clock))
        })
        .collect();
    let course = RunOptions { warmup, interval: Duration::from_nanos(common.interval), seed: common.seed };
    let mut live = live::Live::new(&rows, common.json, common.quiet, duration);
    let outcome = client::run(&mut sessions, course, &|| stop.is_set(), &mut |progress| live.show(progress));
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => return Ok(refused(&error, None)),
    };
    let result = TrafficResult::new(common.server.clone(), command_line(), warmup, common.seed, &rows, outcome);
    if common.json {
        output::print_json(&result)?;
    } else {
        let width = if io::stdout().is_terminal() { live::width(&io::stdout()) } else { None };
        output::print(&table::text(&result, width))?;
    }
    for why in &result.invalid {
        eprintln!("altq traffic: INVALID: {why}");
    }
    for note in &result.notes {
        eprintln!("altq traffic: {note}");
    }
    Ok(if result.valid { Exit::Ok } else { Exit::Differs })
}

/// Why the run did not begin.
enum Trouble {
    Usage(String),
    Name(String),
}

/// A server's address, the address to send from, and the flows that go there.
struct Place {
    server: SocketAddr,
    from: SocketAddr,
    flows: Vec<Flow>,
}

fn prepare(common: &Common, flows: &[FlowOptions], duration: Nanos) -> Result<(Token, Vec<Place>), Trouble> {
    let usage = |why: String| Err(Trouble::Usage(why));
    let token = match token(common.token.as_deref()) {
        Ok(Some(token)) => token,
        Ok(None) => {
            return usage(
                "the server's token is needed (`altq traffic server` prints it): --token FILE or TEXT, or ALTQ_TOKEN"
                    .into(),
            );
        }
        Err(why) => return usage(why),
    };
    // Also the families that single flows of a plan ask for.
    let named = |family| flows.iter().any(|flow| flow.family == Some(family));
    let servers = resolve(&common.server, common.ipv4 || named(Family::Ipv4), common.ipv6 || named(Family::Ipv6))?;
    let several = servers.len() > 1;
    let mut places = Vec::new();
    for server in servers {
        let family = if server.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 };
        let port = server.port();
        let flows: Vec<Flow> = flows.iter().flat_map(|flow| flow.flows(family, several, port, duration)).collect();
        for flow in &flows {
            if let Err(why) = flow.spec.check() {
                return usage(format!("flow `{}`: {why}", flow.spec.name));
            }
        }
        let from = common.bind.iter().find(|address| address.is_ipv4() == server.is_ipv4());
        if !common.bind.is_empty() && from.is_none() {
            return usage(format!("--bind: none of the addresses is of {}", family.name()));
        }
        let any: IpAddr = if server.is_ipv4() { [0, 0, 0, 0].into() } else { [0u16; 8].into() };
        if !flows.is_empty() {
            places.push(Place { server, from: SocketAddr::new(from.copied().unwrap_or(any), 0), flows });
        }
    }
    Ok((token, places))
}

/// The addresses of a server: one of each family that is asked for, or else the first one found.
fn resolve(name: &str, ipv4: bool, ipv6: bool) -> Result<Vec<SocketAddr>, Trouble> {
    // An IPv6 address without a port has colons of its own.
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let found: Vec<SocketAddr> = if let Ok(address) = bare.parse::<IpAddr>() {
        vec![SocketAddr::new(address, PORT)]
    } else {
        let found =
            if name.rsplit_once(':').is_some() { name.to_socket_addrs() } else { (name, PORT).to_socket_addrs() };
        if name.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_err()) {
            return Err(Trouble::Usage(format!(
                "{name}: after the colon comes a port from 1 to 65535; an IPv6 address with a port is written in [ ]"
            )));
        }
        found.map_err(|error| Trouble::Name(format!("{name}: {error}")))?.collect()
    };
    let first = |four: bool| found.iter().find(|address| address.is_ipv4() == four).copied();
    let wanted = |four: bool| {
        let family = if four { "IPv4" } else { "IPv6" };
        first(four).ok_or_else(|| {
            Trouble::Usage(format!(
                "{name} has no {family} address; without -4 and -6 the first address that it has is taken"
            ))
        })
    };
    match (ipv4, ipv6) {
        (true, true) => Ok(vec![wanted(true)?, wanted(false)?]),
        (true, false) => Ok(vec![wanted(true)?]),
        (false, true) => Ok(vec![wanted(false)?]),
        (false, false) => match found.first() {
            Some(address) => Ok(vec![*address]),
            None => Err(Trouble::Name(format!("{name} has no address"))),
        },
    }
}

/// Prints why a run did not come to its end, and returns the exit code for it.
fn refused(error: &Error, server: Option<SocketAddr>) -> Exit {
    let exit = Exit::of_traffic(error);
    let hint = match error {
        Error::Refused { why: Refusal::Token, .. } => " (--token, or ALTQ_TOKEN)",
        Error::Io { .. } if exit == Exit::NotPermitted => {
            ": run it with sudo, or see whether a firewall of this host forbids it"
        }
        Error::Io { .. } if exit == Exit::Unsupported => ": this host's kernel lacks it",
        Error::Io { error, .. } if server.is_some() => match error.kind() {
            io::ErrorKind::ConnectionRefused => ": does `altq traffic server` run there?",
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
                ": is it there, and does a firewall let this port through?"
            }
            _ => "",
        },
        _ => "",
    };
    match error {
        Error::Refused { .. } => eprintln!("altq traffic: the server refuses: {error}{hint}"),
        _ => eprintln!("altq traffic: {error}{hint}"),
    }
    exit
}

/// The command line as it was typed, without the token.
fn command_line() -> String {
    let mut words = Vec::new();
    let mut hide = false;
    for word in std::env::args().skip(1) {
        let word = match std::mem::take(&mut hide) {
            true => "…".to_string(),
            false if word.starts_with("--token=") => "--token=…".into(),
            false => word,
        };
        hide = word == "--token";
        words.push(word);
    }
    format!("altq {}", words.join(" "))
}

/// The JSON Schema of `altq.traffic_live/1`.
#[cfg(test)]
pub fn schemas(generator: &schemars::generate::SchemaGenerator) -> [schemars::Schema; 1] {
    [generator.clone().into_root_schema_for::<live::Line<'_>>()]
}
