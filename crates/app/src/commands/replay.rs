//! `altq replay`: a list of packets through the scheduler of one link, in virtual time
//! (docs/replay.md).

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use altq_cases::limits::MOST_QUEUES;
use altq_cases::stat::LinkStat;
use altq_config::literal;
use altq_config::{Link, Policy};
use altq_engine::spec::Timer;
use altq_engine::units::{Nanos, Rate};
use altq_engine::{Departure, Drop, Engine};
use altq_simulator::replay::{self, Arrivals, CsvOutput, Observer, Options, ReplayError, Report};
use anyhow::Context as _;

use crate::exit::Exit;
use crate::policy::{PolicyFile, shown};
use crate::stat_format::Format;
use crate::{output, tree};

/// Options of `altq replay`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    policy: PolicyFile,
    /// The packets: a CSV file sorted by time, with the header time_ns,class,bytes,id, to which
    /// flow, dscp and ecn may be added; - reads stdin
    #[arg(long, value_name = "FILE")]
    arrivals: PathBuf,
    /// Name of the link to run, if the policy has several
    #[arg(long, value_name = "NAME")]
    link: Option<String>,
    /// Rate of the wire, such as 100Mbit/s [default: the link's rate]
    #[arg(long, value_name = "RATE", value_parser = literal::rate_with_unit)]
    wire_rate: Option<Rate>,
    /// When timers fire: at any nanosecond (exact), or at ticks, this many per second
    #[arg(long, value_name = "exact|HZ", default_value = "exact", value_parser = timer)]
    timer: Timer,
    /// Size of the driver's transmit ring in packets, the one on the wire included
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    tx_ring: u32,
    /// Transmit queues of the card, each with its own ring and its own instance of the policy; the
    /// wire takes packets from them in turn
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MOST_QUEUES as i64))]
    tx_queues: u32,
    /// Beginning of the time window that is counted, such as 1s
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = literal::time_with_unit)]
    from: Nanos,
    /// End of that window [default: when the last packet has left the wire]
    #[arg(long, value_name = "TIME", value_parser = literal::time_with_unit)]
    to: Option<Nanos>,
    /// Writes the departures to this file, as CSV time_ns,class,bytes,id,wire_end_ns
    #[arg(long, value_name = "FILE")]
    departures: Option<PathBuf>,
    /// Writes the drops to this file, as CSV time_ns,class,bytes,id,reason
    #[arg(long, value_name = "FILE")]
    drops: Option<PathBuf>,
    /// Seed of the random choices of queues such as red
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Prints JSON (altq.replay/1) instead of a table
    #[arg(long)]
    json: bool,
    /// Prints the counters of the whole run as another tool would, instead of a table
    #[arg(long, value_name = "FORMAT", conflicts_with = "json")]
    stat: Option<Format>,
}

/// Writes the files during the run, and keeps the counters of its end.
struct Watch<'a, O> {
    files: O,
    link: &'a Link,
    stat: Option<LinkStat>,
}

impl<O: Observer> Observer for Watch<'_, O> {
    fn sent(&mut self, now: Nanos, at: usize, departure: &Departure, wire_end: Nanos) -> io::Result<()> {
        self.files.sent(now, at, departure, wire_end)
    }

    fn dropped(&mut self, at: usize, drop: &Drop) -> io::Result<()> {
        self.files.dropped(at, drop)
    }

    fn ended(&mut self, span: Nanos, engine: &Engine) {
        let stat = LinkStat::of(self.link, engine, span);
        match &mut self.stat {
            Some(sum) => sum.add(&stat),
            None => self.stat = Some(stat),
        }
    }
}

fn timer(word: &str) -> Result<Timer, String> {
    if word == "exact" {
        return Ok(Timer::Exact);
    }
    match word.parse() {
        Ok(hz) => altq_cases::limits::tick(hz),
        Err(_) => Err("a timer is `exact` or a number of ticks a second".into()),
    }
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    if args.policy.file == Path::new("-") && args.arrivals == Path::new("-") {
        eprintln!("altq replay: only one of policy and arrivals comes from standard input; name a file for the other");
        return Ok(Exit::Usage);
    }
    let Some(policy) = args.policy.load() else { return Ok(Exit::Usage) };
    let Some(link) = choose(&policy, args.link.as_deref()) else { return Ok(Exit::Usage) };
    if args.to.is_some_and(|to| to <= args.from) {
        eprintln!("altq replay: --to must be later than --from");
        return Ok(Exit::Usage);
    }
    if args.wire_rate.is_some_and(Rate::is_zero) {
        eprintln!("altq replay: a wire of 0 bit/s carries nothing; leave --wire-rate out for the link's rate");
        return Ok(Exit::Usage);
    }
    if let Some(why) = overwritten(args, &policy) {
        eprintln!("altq replay: {why}");
        return Ok(Exit::Usage);
    }
    let arrivals = match read(&args.arrivals, link) {
        Ok(arrivals) => arrivals,
        Err(reason) => {
            eprintln!("altq replay: {}: {reason}", shown(&args.arrivals));
            return Ok(Exit::Usage);
        }
    };
    if arrivals.open_end {
        eprintln!("altq replay: {}: the last line has no newline; it was taken as it stands", shown(&args.arrivals));
    }
    let options = Options {
        wire_rate: args.wire_rate,
        timer: args.timer,
        tx_ring: args.tx_ring as usize,
        tx_queues: args.tx_queues as usize,
        from: args.from,
        to: args.to,
        seed: args.seed,
    };
    let files = CsvOutput::new(link, &arrivals, create(&args.departures)?, create(&args.drops)?)?;
    let mut watch = Watch { files, link, stat: None };
    let report = match replay::run(link, &arrivals, &options, &mut watch) {
        Ok(report) => report,
        Err(
            error @ (ReplayError::Spec(_)
            | ReplayError::BeyondTime(_)
            | ReplayError::TooMany(_)
            | ReplayError::Queues(_)),
        ) => {
            eprintln!("altq replay: {error}");
            return Ok(Exit::Usage);
        }
        Err(error) => return Err(error).context("a file of departures or drops cannot be written"),
    };
    let Watch { files, stat, .. } = watch;
    files.finish().context("a file of departures or drops cannot be written")?;
    // When the last packet leaves the wire is known only now.
    if args.from > 0 && report.to_ns <= report.from_ns {
        let (from, end) = (output::time(args.from), output::time(report.to_ns));
        eprintln!(
            "altq replay: nothing is counted from {from} on: the last packet leaves the wire at {end}; write an \
             earlier --from"
        );
        return Ok(Exit::Usage);
    }
    if report.marks.iter().any(|mark| mark == replay::WIRE_SLOWER) {
        let wire = args.wire_rate.unwrap_or(link.spec.rate);
        eprintln!(
            "altq replay: warning: the wire ({wire}) is slower than the link ({}), so guarantees cannot all be kept; \
             the result is marked {}",
            link.spec.rate,
            replay::WIRE_SLOWER
        );
    }
    if args.json {
        output::print_json(&report)?;
    } else if let (Some(format), Some(stat)) = (args.stat, &stat) {
        output::print(&format.text(stat))?;
        if let Some(legend) = format.legend(stat) {
            eprintln!("altq replay: {legend}");
        }
    } else {
        output::print(&table(link, &report))?;
    }
    if let Some(cut) = &arrivals.cut {
        let kept = arrivals.len();
        eprintln!("altq replay: {}: {cut}; the {kept} packets before it were replayed", shown(&args.arrivals));
        return Ok(Exit::Failed);
    }
    Ok(Exit::Ok)
}

/// The link to run, chosen by `--link`. Prints what is wrong on stderr.
fn choose<'a>(policy: &'a Policy, name: Option<&str>) -> Option<&'a Link> {
    let names = || policy.links.iter().map(|link| link.name.as_str()).collect::<Vec<_>>().join(", ");
    match (name, policy.links.as_slice()) {
        (None, [link]) => Some(link),
        (None, _) => {
            eprintln!("altq replay: the policy has several links; say which with --link: {}", names());
            None
        }
        (Some(name), _) => {
            let link = policy.link(name);
            if link.is_none() {
                eprintln!("altq replay: the policy has no link {name:?}; its links: {}", names());
            }
            link
        }
    }
}

fn read(path: &Path, link: &Link) -> Result<Arrivals, String> {
    let input: Box<dyn BufRead> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(BufReader::with_capacity(1 << 18, File::open(path).map_err(|error| error.to_string())?))
    };
    Arrivals::read(input, link).map_err(|error| error.to_string())
}

fn create(path: &Option<PathBuf>) -> anyhow::Result<Option<impl Write + use<>>> {
    path.as_ref()
        .map(|path| File::create(path).with_context(|| format!("{} cannot be written", path.display())))
        .transpose()
}

/// What is wrong if a file that is to be written is one that is read, or is to be written twice.
fn overwritten(args: &Args, policy: &Policy) -> Option<String> {
    let mut taken: Vec<(&Path, &str)> =
        policy.sources.texts.iter().map(|(path, _)| (path.as_path(), "the policy")).collect();
    taken.push((args.arrivals.as_path(), "the list of packets"));
    taken.push((Path::new("/dev/stdin"), "what is read from standard input"));
    for (option, path) in [("--departures", &args.departures), ("--drops", &args.drops)] {
        let Some(path) = path else { continue };
        let file = identity(path);
        let same = |other: &Path| match file {
            Some(_) => identity(other) == file,
            // A file that does not exist yet.
            None => other == path.as_path() && !path.exists(),
        };
        if let Some((_, what)) = taken.iter().find(|&&(other, _)| same(other)) {
            return Some(format!("{option} {} would overwrite {what}; name another file", path.display()));
        }
        taken.push((path.as_path(), "the departures"));
    }
    None
}

/// Which file a path names: its device and its number there. `None` if there is none, or if it is
/// no regular file, such as `/dev/null`.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let file = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    Some((file.dev(), file.ino()))
}

/// The table for people: one row per class, with children below their parent and indented.
fn table(link: &Link, report: &Report) -> String {
    let window = format!("{} to {}", output::time(report.from_ns), output::time(report.to_ns));
    let mut text = format!("link {} at {}, packets handed over from {window}\n\n", link.name, link.spec.rate);
    let head = ["class", "asked", "got", "of link", "borrowed", "p50", "p99", "drops", "waiting"];
    let mut rows = vec![head.map(str::to_string).to_vec()];
    let total = link.spec.rate.as_bit_s();
    for (id, depth) in tree::of_link(link) {
        let row = &report.classes[id];
        let delay = |value: Option<u64>| value.map_or("-".into(), output::time);
        let borrowed =
            if row.sent_bytes == 0 { "-".into() } else { output::percent(row.borrowed_bytes, row.sent_bytes) };
        rows.push(vec![
            tree::name(&row.name, depth),
            link.guarantee(id as u32).map_or("-".into(), |rate| output::rate(rate.as_bit_s())),
            output::rate(row.rate_bit_s),
            output::percent(row.rate_bit_s, total),
            borrowed,
            delay(row.delay_ns.p50),
            delay(row.delay_ns.p99),
            row.dropped_packets.to_string(),
            row.queued_packets.to_string(),
        ]);
    }
    text += &output::table(&rows);
    text
}
