//! `altq reserve`: reservations in a running altq (docs/reserve.md).

mod shown;

use std::io::{self, ErrorKind, Write};

use altq_config::literal;
use altq_control::client::{Client, NoFields};
use altq_control::reservations::{Fields, name};
use altq_control::{Code, Fault};
use altq_engine::units::{Nanos, Rate};
use altq_reserve::{Excess, Flow, Op, Request, Service, Tspec};
use anyhow::Context as _;
use serde::Serialize;

use crate::exit::Exit;
use crate::output;
use crate::socket::{Socket, fail};
use shown::{Answered, Listed};

/// Options of `altq reserve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A reservation is a rate and a burst for some flows, below the class of the policy that has the word
`reservations`. Packets of others do not delay its packets, and what it does not use goes to others.

Exit codes: 0 done, 1 no altq answers, 2 the request is wrong, 5 refused, 6 not permitted.

Examples:
  altq reserve add --flow 'proto=udp src=10.0.1.1 dst=10.0.2.2 dport=5004' --rate 500kbit/s \\
      --burst 10kbytes --min-unit 128 --for 10m --key call4
  altq reserve modify --key call4 --rate 800kbit/s
  altq reserve refresh --key call4
  altq reserve list
  altq reserve watch | jq -r .event")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Makes a reservation; if one with this key exists, changes it
    #[command(after_help = "\
If it is refused, nothing has changed; the reason, what is in the way and what would fit are
printed, and the exit code is 5.

Examples:
  altq reserve add --flow 'proto=udp dst=10.0.2.2 dport=5004' --rate 64kbit/s --burst 1kbytes
  altq reserve add --flow 'proto=tcp dport=873' --flow 'proto=tcp sport=873' --rate 5Mbit/s \\
      --burst 30kbytes --excess borrow --key backup --for 2h")]
    Add(Add),
    /// Changes a reservation in place; if that is refused, it stays as it is
    Modify(Modify),
    /// Starts the time to live of a reservation anew
    Refresh(Refresh),
    /// Ends a reservation
    Del(Del),
    /// Lists the reservations, and what room is left
    List(List),
    /// Prints events from now on, one line of JSON each (altq.reserve-event/1): granted, changed,
    /// expired, deleted, preempted
    Watch(Watch),
}

#[derive(Debug, clap::Args)]
struct Add {
    /// Packets that belong to it, such as `proto=udp src=10.0.1.1 dst=10.0.2.2 dport=5004`. May be
    /// given up to 64 times: the flows share the reservation
    #[arg(long = "flow", value_name = "FLOW", required = true)]
    flows: Vec<Flow>,
    /// Its rate, such as 500kbit/s, counted from the IP header on
    #[arg(long, value_name = "RATE", value_parser = literal::rate_with_unit)]
    rate: Rate,
    /// What it may send at once, such as 10kbytes
    #[arg(long, value_name = "SIZE", value_parser = literal::size)]
    burst: u64,
    #[command(flatten)]
    packets: Packets,
    /// Its service (RFC 2211); guaranteed service (RFC 2212) is refused
    #[arg(long, value_enum, value_name = "SERVICE")]
    service: Option<ServiceWord>,
    #[command(flatten)]
    terms: Terms,
    /// The name that you give it: by this name it can be changed
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    #[command(flatten)]
    more: More,
}

#[derive(Debug, clap::Args)]
struct Modify {
    #[command(flatten)]
    which: Which,
    /// The packets that belong to it from now on; may be given up to 64 times
    #[arg(long = "flow", value_name = "FLOW")]
    flows: Vec<Flow>,
    /// Its new rate, such as 800kbit/s
    #[arg(long, value_name = "RATE", value_parser = literal::rate_with_unit)]
    rate: Option<Rate>,
    /// What it may send at once from now on, such as 10kbytes
    #[arg(long, value_name = "SIZE", value_parser = literal::size)]
    burst: Option<u64>,
    #[command(flatten)]
    packets: Packets,
    #[command(flatten)]
    terms: Terms,
    #[command(flatten)]
    more: More,
}

#[derive(Debug, clap::Args)]
struct Refresh {
    #[command(flatten)]
    which: Which,
    /// It ends after this time, such as 10m, unless it is refreshed [default: as before]
    #[arg(long = "for", value_name = "TIME", value_parser = span)]
    ttl: Option<f64>,
    #[command(flatten)]
    more: More,
}

#[derive(Debug, clap::Args)]
struct Del {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    more: More,
}

#[derive(Debug, clap::Args)]
struct List {
    /// Only reservations below this class of the policy, CLASS or LINK/CLASS
    #[arg(long, value_name = "CLASS")]
    within: Option<String>,
    #[command(flatten)]
    socket: Socket,
    /// Prints JSON, one line for each class (altq.reservations/1)
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Watch {
    #[command(flatten)]
    socket: Socket,
    /// Has no effect: it always prints JSON
    #[arg(long, hide = true)]
    json: bool,
}

/// The parts of a token bucket other than rate and burst.
#[derive(Debug, clap::Args)]
struct Packets {
    /// Its peak rate, which is ignored
    #[arg(long, value_name = "RATE", value_parser = literal::rate_with_unit)]
    peak: Option<Rate>,
    /// Smaller packets are charged as if they had so many bytes [default: 64]
    #[arg(long, value_name = "BYTES", value_parser = packet)]
    min_unit: Option<u32>,
    /// Its largest packet [default: the MTU of the link]
    #[arg(long, value_name = "BYTES", value_parser = packet)]
    max_packet: Option<u32>,
}

impl Packets {
    fn tspec(&self, rate: Rate, burst: u64) -> Tspec {
        Tspec {
            rate_bit_s: rate.as_bit_s(),
            burst_bytes: burst,
            peak_bit_s: self.peak.map(Rate::as_bit_s),
            min_unit_bytes: self.min_unit,
            max_packet_bytes: self.max_packet,
        }
    }
}

impl Modify {
    /// The token bucket that is asked for: what is not given stays as it is. `None` if nothing of
    /// it is given, or if there is no such reservation, which the answer says.
    fn tspec(&self) -> Result<Option<Tspec>, Fault> {
        let Packets { peak, min_unit, max_packet } = &self.packets;
        let of_packets = peak.is_some() || min_unit.is_some() || max_packet.is_some();
        if self.rate.is_none() && self.burst.is_none() && !of_packets {
            return Ok(None);
        }
        let fields = OfClass { within_class: self.more.within.as_deref() };
        let json = self.more.socket.connect()?.ask(name(Op::List), &fields)?;
        let found = read::<Listed>(&json)?.tspecs(self.which.key.as_deref(), self.which.id);
        match found.as_slice() {
            [] => Ok(None),
            [old] => Ok(Some(self.changed(*old))),
            _ => Err(Fault::usage("several classes have such a reservation; --within says which is meant")),
        }
    }

    fn changed(&self, old: Tspec) -> Tspec {
        Tspec {
            rate_bit_s: self.rate.map_or(old.rate_bit_s, Rate::as_bit_s),
            burst_bytes: self.burst.unwrap_or(old.burst_bytes),
            peak_bit_s: self.packets.peak.map(Rate::as_bit_s).or(old.peak_bit_s),
            min_unit_bytes: self.packets.min_unit.or(old.min_unit_bytes),
            max_packet_bytes: self.packets.max_packet.or(old.max_packet_bytes),
        }
    }
}

/// The other values of a reservation.
#[derive(Debug, clap::Args)]
struct Terms {
    /// What becomes of packets beyond rate and burst: with `borrow` they wait in the same queue for
    /// bandwidth that others leave, so packets stay in order; with `default` they go to the default
    /// class at once [default: borrow]
    #[arg(long, value_enum, value_name = "WHERE")]
    excess: Option<ExcessWord>,
    /// The longest that packets within rate and burst may wait, such as 20ms [default: the policy's
    /// delay]
    #[arg(long, value_name = "TIME", value_parser = literal::time_with_unit)]
    delay: Option<Nanos>,
    /// It ends after this time, such as 10m, unless it is refreshed [default: as long as the policy
    /// allows]
    #[arg(long = "for", value_name = "TIME", value_parser = span)]
    ttl: Option<f64>,
}

/// Which reservation.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// The reservation, by the name that it was given
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// The reservation, by its number
    #[arg(long, value_name = "N")]
    id: Option<u64>,
}

#[derive(Debug, clap::Args)]
struct More {
    /// Its owner; only root, and the user that runs altq, may name others [default: uid:N, the user
    /// who asks]
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// The class of the policy below which it is, CLASS or LINK/CLASS [default: the only one]
    #[arg(long, value_name = "CLASS")]
    within: Option<String>,
    #[command(flatten)]
    socket: Socket,
    /// Prints JSON (altq.reserve/1)
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ServiceWord {
    ControlledLoad,
    Guaranteed,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ExcessWord {
    Borrow,
    Default,
}

/// A time in seconds. As in timeout(1), `10m` are minutes and `2h` hours.
fn span(word: &str) -> Result<f64, String> {
    let long = [("m", 60), ("h", 3600)].into_iter().find_map(|(unit, each)| {
        let count: u32 = word.strip_suffix(unit)?.parse().ok()?;
        Some(f64::from(count) * f64::from(each))
    });
    match long {
        Some(seconds) => Ok(seconds),
        None => Ok(literal::time_with_unit(word)? as f64 / 1e9),
    }
}

/// The size of a packet.
fn packet(word: &str) -> Result<u32, String> {
    u32::try_from(literal::size(word)?).map_err(|_| format!("no packet has {word}"))
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    match &args.what {
        What::Add(add) => {
            let service = add.service.map(|word| match word {
                ServiceWord::ControlledLoad => Service::ControlledLoad,
                ServiceWord::Guaranteed => Service::Guaranteed,
            });
            let flows = Some(add.flows.clone());
            let tspec = Some(add.packets.tspec(add.rate, add.burst));
            let asked = Request { key: add.key.clone(), service, flows, tspec, ..Request::new(Op::Add) };
            one(under(asked, &add.terms), &add.more)
        }
        What::Modify(modify) => {
            let flows = (!modify.flows.is_empty()).then(|| modify.flows.clone());
            let tspec = match modify.tspec() {
                Ok(tspec) => tspec,
                Err(fault) => return Ok(fail("reserve", &fault)),
            };
            one(under(Request { flows, tspec, ..of(Op::Modify, &modify.which) }, &modify.terms), &modify.more)
        }
        What::Refresh(refresh) => one(Request { ttl_s: refresh.ttl, ..of(Op::Refresh, &refresh.which) }, &refresh.more),
        What::Del(del) => one(of(Op::Del, &del.which), &del.more),
        What::List(list) => self::list(list),
        What::Watch(watch) => self::watch(watch),
    }
}

fn of(op: Op, which: &Which) -> Request {
    Request { key: which.key.clone(), id: which.id, ..Request::new(op) }
}

fn under(asked: Request, terms: &Terms) -> Request {
    let excess = terms.excess.map(|word| match word {
        ExcessWord::Borrow => Excess::Borrow,
        ExcessWord::Default => Excess::Default,
    });
    Request { excess, delay_ns: terms.delay, ttl_s: terms.ttl, ..asked }
}

/// Asks about one reservation, and prints the answer.
fn one(asked: Request, more: &More) -> anyhow::Result<Exit> {
    let asked = Request { owner: more.owner.clone(), within_class: more.within.clone(), ..asked };
    if let Err(wrong) = asked.check() {
        return Ok(fail("reserve", &Fault::usage(wrong)));
    }
    let answer = more.socket.connect().and_then(|mut client| client.ask(name(asked.op), &Fields::from(&asked)));
    let json = match answer {
        Ok(json) => json,
        Err(fault) => return Ok(fail("reserve", &fault)),
    };
    let answer: Answered = match read(&json) {
        Ok(answer) => answer,
        Err(fault) => return Ok(fail("reserve", &fault)),
    };
    if more.json {
        output::print(&(json + "\n"))?;
    } else if answer.granted {
        output::print(&answer.granted_text(asked.op))?;
    }
    if answer.granted {
        return Ok(Exit::Ok);
    }
    if !more.json {
        eprintln!("altq reserve: {}", answer.refused_text());
    }
    Ok(Exit::Refused)
}

fn read<'a, T: serde::Deserialize<'a>>(json: &'a str) -> Result<T, Fault> {
    serde_json::from_str(json)
        .map_err(|error| Fault::new(Code::Failed, format!("altq's answer cannot be read ({error})")))
}

/// The fields of a list.
#[derive(Serialize)]
struct OfClass<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    within_class: Option<&'a str>,
}

fn list(list: &List) -> anyhow::Result<Exit> {
    let fields = OfClass { within_class: list.within.as_deref() };
    let asked = list.socket.connect().and_then(|mut client| client.ask(name(Op::List), &fields));
    let read = asked.and_then(|json| Ok((read::<Listed>(&json)?, json)));
    let (listed, json) = match read {
        Ok(read) => read,
        Err(fault) => return Ok(fail("reserve", &fault)),
    };
    if list.json {
        // They are printed unchanged, because a later altq may have more fields.
        let whole: serde_json::Value = serde_json::from_str(&json)?;
        for place in whole["places"].as_array().into_iter().flatten() {
            output::print_json(place)?;
        }
    } else if listed.places.is_empty() {
        eprintln!("altq reserve: no link that runs has a class for reservations");
    } else {
        output::print(&listed.text(output::width()))?;
    }
    Ok(Exit::Ok)
}

fn watch(watch: &Watch) -> anyhow::Result<Exit> {
    let asked = watch.socket.connect().and_then(|mut client| {
        client.ask(name(Op::Watch), &NoFields {})?;
        Ok(client)
    });
    let mut client: Client = match asked {
        Ok(client) => client,
        Err(fault) => return Ok(fail("reserve", &fault)),
    };
    let mut out = io::stdout().lock();
    loop {
        let mut line = match client.next_line() {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(fail("reserve", &Fault::new(Code::Failed, "altq has closed the connection"))),
            Err(error) => return Err(error).context("the connection to altq is lost"),
        };
        line.push(b'\n');
        match out.write_all(&line).and_then(|()| out.flush()) {
            // The reader of the pipe has gone, which is not an error.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(Exit::Ok),
            written => written.context("stdout cannot be written")?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_people() {
        for (word, seconds) in
            [("10m", 600.0), ("2h", 7200.0), ("1.5h", 5400.0), ("10min", 600.0), ("157.5s", 157.5), ("500ms", 0.5)]
        {
            assert_eq!(span(word), Ok(seconds), "{word}");
        }
        for word in ["10", "m", "-1m", "1d"] {
            assert!(span(word).is_err(), "{word}");
        }
        assert_eq!((packet("128"), packet("1500bytes")), (Ok(128), Ok(1500)));
        assert!(packet("5000Mbytes").is_err());
    }

    /// `altq reserve modify`, as it is typed.
    #[derive(clap::Parser)]
    struct Typed {
        #[command(flatten)]
        modify: Modify,
    }

    #[test]
    fn what_is_not_given_stays_as_it_is() {
        use clap::Parser as _;
        let (rate_bit_s, burst_bytes, peak_bit_s) = (500_000, 10_000, Some(900_000));
        let (min_unit_bytes, max_packet_bytes) = (Some(128), Some(1000));
        let old = Tspec { rate_bit_s, burst_bytes, peak_bit_s, min_unit_bytes, max_packet_bytes };
        for (words, new) in [
            ("--rate 800kbit/s", Tspec { rate_bit_s: 800_000, ..old }),
            ("--burst 20kbytes", Tspec { burst_bytes: 20_000, ..old }),
            ("--rate 1Mbit/s --burst 6000", Tspec { rate_bit_s: 1_000_000, burst_bytes: 6000, ..old }),
            ("--peak 2Mbit/s", Tspec { peak_bit_s: Some(2_000_000), ..old }),
            ("--min-unit 64", Tspec { min_unit_bytes: Some(64), ..old }),
            ("--max-packet 1500", Tspec { max_packet_bytes: Some(1500), ..old }),
        ] {
            let typed = Typed::try_parse_from("modify --key a".split(' ').chain(words.split(' '))).unwrap();
            assert_eq!(typed.modify.changed(old), new, "{words}");
        }
    }
}
