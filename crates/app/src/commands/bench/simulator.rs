//! `altq bench sim`: how many packets of a bottleneck the simulator carries per second of CPU time,
//! and how much memory a flow takes.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use altq_cases::case::Case;
use altq_engine::queue;
use altq_engine::schedule::{self, Entry, Role};
use altq_engine::units::SECOND;
use altq_simulator::sim::{self, Watch};
use anyhow::{Context, anyhow};
use clap::builder::PossibleValuesParser;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::exit::Exit;

/// A dumbbell with up to five sources and five sinks; each flow goes from one source to one sink,
/// and flows beyond the fifth share them
#[derive(Debug, clap::Args)]
pub struct Args {
    /// TCP flows
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    tcp: u32,
    /// UDP flows, which together send a tenth of the bottleneck's rate
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=1000))]
    udp: u32,
    /// Rates of the bottleneck in Mbit/s
    #[arg(long, value_name = "RATE", value_delimiter = ',', default_value = "10,100",
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    mbit: Vec<u64>,
    /// Simulated time
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// The bottleneck's scheduler
    #[arg(long, value_name = "S", default_value = schedule::PLAIN.name)]
    #[arg(value_parser = PossibleValuesParser::new(names()))]
    scheduler: String,
    /// One JSON line for each rate
    #[arg(long)]
    json: bool,
}

/// The word of a class that states its guaranteed rate.
const RATE: &str = "rate";

/// The values of `--scheduler`: the one that has a single queue for all classes, and those whose
/// classes can have a guaranteed rate.
fn names() -> impl Iterator<Item = &'static str> {
    let rates = schedule::all().filter(|entry| has_rate(entry)).map(|entry| entry.name);
    std::iter::once(schedule::PLAIN.name).chain(rates)
}

fn has_rate(entry: &Entry) -> bool {
    entry.roles.contains(&(RATE, Role::Guarantee))
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Line<'a> {
    schema: &'static str,
    scheduler: &'a str,
    tcp: u32,
    udp: u32,
    rate_bit_s: u64,
    simulated_s: u64,
    cpu_s: f64,
    bottleneck_packets: u64,
    packets_per_cpu_s: u64,
    events: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_flow: Option<u64>,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut out = std::io::stdout().lock();
    if !args.json {
        let (tcp, udp, seconds) = (args.tcp, args.udp, args.seconds);
        writeln!(out, "dumbbell, {tcp} TCP and {udp} UDP flows, {seconds} simulated seconds, {}", args.scheduler)?;
        writeln!(
            out,
            "{:>8} {:>9} {:>10} {:>12} {:>10} {:>11}",
            "Mbit/s", "CPU s", "packets", "packets/s", "events", "bytes/flow"
        )?;
    }
    for mbit in &args.mbit {
        // The memory of a flow is the growth of the process's peak memory from one flow to all,
        // divided by the number of flows.
        let before = (args.tcp >= 100).then(|| once(args, 1, *mbit, 1).and_then(|_| peak())).transpose()?;
        let (cpu, packets, events) = once(args, args.tcp, *mbit, args.seconds)?;
        let bytes = match before {
            Some(before) => Some(peak()?.saturating_sub(before) / u64::from(args.tcp)),
            None => None,
        };
        let rate = (packets as f64 / cpu) as u64;
        if args.json {
            let line = Line {
                schema: "altq.bench_simulator/1",
                scheduler: &args.scheduler,
                tcp: args.tcp,
                udp: args.udp,
                rate_bit_s: mbit * 1_000_000,
                simulated_s: args.seconds,
                cpu_s: cpu,
                bottleneck_packets: packets,
                packets_per_cpu_s: rate,
                events,
                bytes_per_flow: bytes,
            };
            writeln!(out, "{}", serde_json::to_string(&line)?)?;
        } else {
            let bytes = bytes.map_or("-".to_string(), |bytes| bytes.to_string());
            writeln!(out, "{mbit:>8} {cpu:>9.3} {packets:>10} {rate:>12} {events:>10} {bytes:>11}")?;
        }
    }
    Ok(Exit::Ok)
}

/// One run. Returns its CPU time in seconds, the packets that the bottleneck sent, and the
/// simulator's events.
fn once(args: &Args, tcp: u32, mbit: u64, seconds: u64) -> anyhow::Result<(f64, u64, u64)> {
    let text = case(args, tcp, mbit, seconds);
    let case = Case::parse(&text, Path::new("dumbbell")).map_err(|error| anyhow!("{error}"))?;
    let before = cpu();
    let mut watch = Watch::default();
    let result = sim::run_watched(&case, 1, None, &mut watch)?;
    let took = cpu() - before;
    let link = result.classes.first().context("the bottleneck has a policy")?;
    Ok((took, link.report.sent_packets, watch.events))
}

/// Runs the default dumbbell at 100 Mbit/s for as long as its bottleneck needs to send this many
/// packets of 1500 bytes.
pub fn work(packets: u64) -> anyhow::Result<()> {
    let args =
        Args { tcp: 4, udp: 1, mbit: vec![100], seconds: 1, scheduler: schedule::PLAIN.name.into(), json: false };
    let mut case = Case::parse(&case(&args, 4, 100, 1), Path::new("dumbbell")).map_err(|error| anyhow!("{error}"))?;
    let was = std::mem::replace(&mut case.duration, packets * 120_000);
    for (_, stop) in case.flows.iter_mut().flat_map(|flow| &mut flow.active).filter(|(_, stop)| *stop == was) {
        *stop = case.duration;
    }
    sim::run(&case, 1, None)?;
    Ok(())
}

/// The case as text: access links of ten times the bottleneck's rate with 5 ms of delay each, and a
/// bottleneck with 10 ms, so that a round trip takes 40 ms.
fn case(args: &Args, tcp: u32, mbit: u64, seconds: u64) -> String {
    let pairs = (tcp + args.udp).clamp(1, 5);
    let queue = (mbit * 1_000_000 / 8 * 40 / 1000 / 1500).max(10);
    let mut text = format!("name = 'dumbbell'\ndescription = 'altq bench sim'\nduration = '{seconds}s'\n");
    let limit = format!("queue {} {{ limit {queue}packets }}", queue::PLAIN.name);
    let words = match schedule::find(&args.scheduler).filter(|entry| has_rate(entry)) {
        None => format!("class all {{ {limit} default }}"),
        Some(entry) => {
            let borrow = entry.word_of(Role::Borrow).unwrap_or("");
            format!(
                "class bulk {{ {RATE} 80% {borrow} {limit} default }} class rest {{ {RATE} 20% {borrow} }} \
                 match proto udp -> rest"
            )
        }
    };
    let _ = write!(text, "policy = 'link wan {{ rate {mbit}Mbit/s scheduler {} {words} }}'\nhosts = [", args.scheduler);
    for n in 0..pairs {
        let _ = write!(text, "{{ name = 's{n}' }}, {{ name = 'd{n}' }}, ");
    }
    text += "{ name = 'l' }, { name = 'r' }]\nlinks = [{ name = 'wan', from = 'l', to = 'r', policy = 'wan', delay = \
        '10ms' }, ";
    let access = mbit * 10;
    for n in 0..pairs {
        let _ = write!(text, "{{ name = 's{n}', from = 's{n}', to = 'l', rate = '{access}Mbit/s', delay = '5ms' }}, ");
        let _ = write!(text, "{{ name = 'd{n}', from = 'r', to = 'd{n}', rate = '{access}Mbit/s', delay = '5ms' }}, ");
    }
    text += "]\n";
    // The flows of one pair of hosts are written as one flow with several streams.
    for n in 0..pairs.min(tcp) {
        let streams = tcp / pairs.min(tcp) + u32::from(n < tcp % pairs.min(tcp));
        let _ = writeln!(
            text,
            "[[flows]]\nname = 'tcp{n}'\nkind = 'tcp_bulk'\nfrom = 's{n}'\nto = 'd{n}'\nstreams = {streams}\n\
             stagger = '100ms'"
        );
    }
    for n in 0..args.udp {
        let at = (tcp + n) % pairs;
        let rate = mbit * 100_000 / u64::from(args.udp);
        let _ = writeln!(
            text,
            "[[flows]]\nname = 'udp{n}'\nkind = 'udp'\nfrom = 's{at}'\nto = 'd{at}'\nsize = 1000\nrate = '{rate}bit/s'"
        );
    }
    text
}

/// CPU time of this thread, in seconds.
fn cpu() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / SECOND as f64
}

/// The peak memory of this process, in bytes.
fn peak() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status cannot be read")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("/proc/self/status has no VmHWM")?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse().context("VmHWM is a number of kB")?;
    Ok(kilobytes * 1024)
}
