//! `altq subscriber`: classes of subscribers in a running altq (docs/service.md). It is made for
//! hooks of RADIUS, DHCP and PPP: repeating a command changes nothing.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use altq_config::literal;
use altq_control::client::{Client, NoFields};
use altq_control::document::Subscribers;
use altq_control::request::{BULK, WRITE_LINE, Written, WrittenPlace};
use altq_control::roster::Report;
use altq_control::{Code, Fault};
use anyhow::Context as _;
use serde::Serialize;

use crate::exit::Exit;
use crate::output;
use crate::socket::{Socket, ask, fail};

/// How long a request is repeated that cannot be carried out yet. Where workers keep ending, the
/// next one starts within ten seconds.
const PATIENCE: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(200);

/// Options of `altq subscriber`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Gives a subscriber its classes, or changes them
    Set {
        /// The subscriber, then `addr=ADDRESS[,PREFIX…]` and, for each link, `LINK[/CLASS]=RATE` or
        /// `LINK[/CLASS]=WORDS…`
        #[arg(value_name = "ID addr=… LINK=…", required_unless_present = "bulk", num_args = 1..)]
        words: Vec<String>,
        /// Reads subscribers from a file, or from standard input with `-`: one on each line, in the
        /// same words
        #[arg(long, value_name = "FILE", conflicts_with = "words")]
        bulk: Option<PathBuf>,
        #[command(flatten)]
        more: More,
    },
    /// Removes the classes of subscribers
    Del {
        /// The subscribers
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
        /// Only those that have this address or prefix: the end of a session, which may be told
        /// after the next one has begun
        #[arg(long, value_name = "ADDRESS")]
        addr: Option<String>,
        #[command(flatten)]
        more: More,
    },
    /// Lists the subscribers
    List {
        #[command(flatten)]
        more: More,
    },
}

#[derive(Debug, clap::Args)]
struct More {
    #[command(flatten)]
    socket: Socket,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Set<'a> {
    subscribers: &'a [Written],
}

#[derive(Serialize)]
struct Del<'a> {
    ids: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    addr: Option<&'a str>,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    match &args.what {
        What::Set { words, bulk, more } => {
            let subscribers = match bulk {
                None => read(words.iter().map(String::as_str)).map(|one| vec![one]),
                Some(path) => lines(&text(path)?),
            };
            match subscribers {
                Ok(subscribers) => told(more, all(more, &subscribers, set)),
                Err(message) => Ok(fail("subscriber", &Fault::usage(message))),
            }
        }
        What::Del { ids, addr, more } => {
            let addr = addr.as_deref();
            told(more, all(more, ids, |client, ids| ask(client, "subscriber.del", &Del { ids, addr })))
        }
        What::List { more } => list(more),
    }
}

fn list(more: &More) -> anyhow::Result<Exit> {
    let list = patiently(more, |client| ask::<Subscribers>(client, "subscriber.list", &NoFields {}));
    let list = match list {
        Ok(list) => list,
        Err(fault) => return Ok(fail("subscriber", &fault)),
    };
    if more.json {
        output::print_json(&list)?;
    } else {
        // The list has the format of `--bulk`.
        output::print(&list.subscribers.iter().map(written).collect::<String>())?;
    }
    Ok(Exit::Ok)
}

fn written(subscriber: &Written) -> String {
    let mut line = format!("{} addr={}", subscriber.id, subscriber.addr.join(","));
    for place in &subscriber.classes {
        let within = place.within.as_ref().map_or(String::new(), |class| format!("/{class}"));
        let gets = match (place.rate_bit_s, &place.words) {
            (Some(rate), _) => altq_engine::units::Rate::bit_s(rate).to_string(),
            (None, words) => words.clone().unwrap_or_default(),
        };
        line += &format!(" {}{within}={gets}", place.link);
    }
    line + "\n"
}

/// Sends all items, in requests of at most the allowed number.
fn all<T>(more: &More, items: &[T], one: impl Fn(&mut Client, &[T]) -> Result<Report, Fault>) -> Result<Report, Fault> {
    let mut sum = Report::default();
    for part in items.chunks(BULK) {
        let report = patiently(more, |client| one(client, part))?;
        sum.done += report.done;
        sum.unchanged += report.unchanged;
        sum.failed.extend(report.failed);
    }
    Ok(sum)
}

/// Asks again as long as no worker runs, or the new one does not have the subscribers of the one
/// before: whoever tells the beginning or the end of a session tells it once. Requests about
/// subscribers may be repeated.
fn patiently<T>(more: &More, mut one: impl FnMut(&mut Client) -> Result<T, Fault>) -> Result<T, Fault> {
    let (end, mut waited) = (Instant::now() + PATIENCE, false);
    loop {
        match more.socket.connect().and_then(|mut client| one(&mut client)) {
            // Who answered while no worker ran may have closed the connection since.
            Err(fault) if (fault.passes() || waited && fault.code == Code::Failed) && Instant::now() < end => {
                waited = true;
                std::thread::sleep(PAUSE);
            }
            answer => return answer,
        }
    }
}

/// Sets some subscribers. A request that would be too long is divided into halves.
fn set(client: &mut Client, subscribers: &[Written]) -> Result<Report, Fault> {
    let fields = Set { subscribers };
    let size = serde_json::to_vec(&fields).map_err(|error| Fault::new(Code::Failed, error.to_string()))?.len();
    // 100 bytes are for the other fields of the request.
    if size + 100 <= WRITE_LINE || subscribers.len() < 2 {
        return ask(client, "subscriber.set", &fields);
    }
    let (first, second) = subscribers.split_at(subscribers.len() / 2);
    let mut sum = set(client, first)?;
    let more = set(client, second)?;
    sum.done += more.done;
    sum.unchanged += more.unchanged;
    sum.failed.extend(more.failed);
    Ok(sum)
}

/// Prints the outcome of a request.
fn told(more: &More, asked: Result<Report, Fault>) -> anyhow::Result<Exit> {
    let report = match asked {
        Ok(report) => report,
        Err(fault) => return Ok(fail("subscriber", &fault)),
    };
    if more.json {
        output::print_json(&report)?;
    }
    for failure in &report.failed {
        eprintln!("altq subscriber: {}: {}", failure.id, failure.error);
    }
    let Report { done, unchanged, failed } = &report;
    eprintln!("altq subscriber: {done} changed, {unchanged} as before, {} refused", failed.len());
    Ok(failed.first().map_or(Exit::Ok, |failure| Exit::of_fault(failure.error.code)))
}

/// The text of a file, or of standard input.
fn text(path: &Path) -> anyhow::Result<String> {
    if path != Path::new("-") {
        return std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()));
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("standard input cannot be read")?;
    Ok(text)
}

/// Reads a subscriber from each line. Empty lines, and text after `#`, are ignored. All are checked
/// before the first is sent.
fn lines(text: &str) -> Result<Vec<Written>, String> {
    let mut subscribers = Vec::new();
    // The line of each subscriber.
    let mut places: HashMap<String, usize> = HashMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split_once('#').map_or(line, |(before, _)| before);
        if !line.trim().is_empty() {
            let one = read(line.split_whitespace()).map_err(|message| format!("line {number}: {message}"))?;
            if let Some(before) = places.insert(one.id.clone(), number) {
                return Err(format!("line {number}: {} is in line {before} already", one.id));
            }
            subscribers.push(one);
        }
    }
    if subscribers.is_empty() { Err("there are no subscribers".to_owned()) } else { Ok(subscribers) }
}

/// Reads a subscriber from words. A word without `=` belongs to the value before it.
fn read<'a>(words: impl Iterator<Item = &'a str>) -> Result<Written, String> {
    let mut words = words.flat_map(str::split_whitespace);
    let id = words.next().filter(|id| !id.contains('=')).ok_or("the name of the subscriber comes first")?;
    let mut values: Vec<(&str, String)> = Vec::new();
    for word in words {
        match (word.split_once('='), values.last_mut()) {
            (Some((key, value)), _) => values.push((key, value.to_owned())),
            (None, Some((_, value))) => {
                value.push(' ');
                value.push_str(word);
            }
            (None, None) => return Err(format!("{id}: write addr=ADDRESS, or LINK=RATE, not `{word}`")),
        }
    }
    let mut subscriber = Written { id: id.to_owned(), addr: Vec::new(), classes: Vec::new() };
    for (key, value) in values {
        if key == "addr" {
            let addresses = value.split([',', ' ']).filter(|address| !address.is_empty());
            subscriber.addr.extend(addresses.map(str::to_owned));
        } else {
            subscriber.classes.push(place(key, &value).map_err(|message| format!("{id}: {key}={value}: {message}"))?);
        }
    }
    for (missing, what) in [
        (subscriber.addr.is_empty(), "addr=ADDRESS is missing"),
        (subscriber.classes.is_empty(), "LINK=RATE is missing, for at least one link"),
    ] {
        if missing {
            return Err(format!("{id}: {what}"));
        }
    }
    subscriber.check().map_err(|fault| fault.to_string())?;
    Ok(subscriber)
}

/// Reads a class: a rate, which begins with a digit, or words.
fn place(key: &str, value: &str) -> Result<WrittenPlace, String> {
    let (link, within) = match key.split_once('/') {
        Some((link, within)) => (link, Some(within.to_owned())),
        None => (key, None),
    };
    let is_rate = value.starts_with(|c: char| c.is_ascii_digit());
    let rate = is_rate.then(|| literal::rate_with_unit(value).map_err(|wrong| wrong.to_string())).transpose()?;
    let words = if is_rate { None } else { Some(value.to_owned()) };
    Ok(WrittenPlace { link: link.to_owned(), within, rate_bit_s: rate.map(|rate| rate.as_bit_s()), words })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A hook that is called while no worker runs: first a supervisor answers, which then closes
    /// the next connection, and then the new worker.
    #[test]
    fn a_request_waits_for_a_worker_that_has_everything() {
        #[derive(clap::Parser)]
        struct Given {
            #[command(flatten)]
            more: More,
        }
        let path = std::env::temp_dir().join(format!("altq-subscriber-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let words: [OsString; 3] = ["altq".into(), "--socket".into(), path.clone().into()];
        let Given { more } = <Given as clap::Parser>::parse_from(words);
        let answers = [
            r#"{"id":1,"ok":false,"error":{"code":1,"message":"no worker runs","help":"ask again in a moment: x"}}"#,
            "",
            r#"{"id":1,"ok":true,"result":{"done":1,"unchanged":0,"failed":[]}}"#,
            r#"{"id":1,"ok":false,"error":{"code":1,"message":"it cannot"}}"#,
        ];
        let altq = std::thread::spawn(move || {
            let answer = |text: &str| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                if !text.is_empty() {
                    stream.write_all(format!("{text}\n").as_bytes()).unwrap();
                }
                line
            };
            answers.map(answer)
        });
        let ids = ["bob".to_owned()];
        let end = |client: &mut Client, ids: &[String]| {
            ask::<Report>(client, "subscriber.del", &Del { ids, addr: Some("10.64.0.17") })
        };
        let report = all(&more, &ids, end).unwrap();
        assert_eq!((report.done, report.failed.len()), (1, 0));
        assert_eq!(all(&more, &ids, end).unwrap_err().message, "it cannot", "this does not pass");
        for line in altq.join().unwrap() {
            let line: serde_json::Value = serde_json::from_str(&line).unwrap();
            assert_eq!((&line["ids"][0], &line["addr"]), (&"bob".into(), &"10.64.0.17".into()));
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn words_make_a_subscriber() {
        let text = "4711 addr=10.64.0.17,2001:db8:17::/56 down=50Mbit/s up/homes=rate 2Mbit/s ceil 10Mbit/s";
        let one = read(text.split(' ')).unwrap();
        assert_eq!((one.id.as_str(), one.addr.join(" ").as_str()), ("4711", "10.64.0.17 2001:db8:17::/56"));
        let place = |link: &str, within: Option<&str>, rate_bit_s, words: Option<&str>| WrittenPlace {
            link: link.to_owned(),
            within: within.map(str::to_owned),
            rate_bit_s,
            words: words.map(str::to_owned),
        };
        let up = place("up", Some("homes"), None, Some("rate 2Mbit/s ceil 10Mbit/s"));
        assert_eq!(one.classes, [place("down", None, Some(50_000_000), None), up]);
        // Quoted in a shell, as in the list, and as a line of `--bulk`.
        assert_eq!(read(["4711", text.split_once(' ').unwrap().1].into_iter()).unwrap(), one);
        assert_eq!(written(&one), format!("{text}\n"));
        assert_eq!(lines(&format!("# all of them\n\n{text} # the first\n")).unwrap(), [one]);
    }

    #[test]
    fn what_is_missing_or_wrong_is_said_with_its_line() {
        for (line, why) in [
            ("addr=10.0.0.1 down=1Mbit/s", "line 1: the name of the subscriber comes first"),
            ("a 10.0.0.1", "line 1: a: write addr=ADDRESS, or LINK=RATE, not `10.0.0.1`"),
            ("a addr=10.0.0.1", "line 1: a: LINK=RATE is missing"),
            ("a down=1Mbit/s", "line 1: a: addr=ADDRESS is missing"),
            ("a addr=10.0.0.1 down=5", "line 1: a: down=5: 5 of what?"),
            ("a addr=10.0.0.1 down=5mbps", "two ways"),
            ("# nobody", "there are no subscribers"),
            ("a addr=10.0.0.300 down=1Mbit/s", "line 1: subscriber a: `10.0.0.300` is no IPv4 or IPv6 address"),
            ("a addr=10.0.0.1,10.0.0.1 down=1Mbit/s", "10.0.0.1 is given twice"),
            ("a addr=::1 l=1Mbit/s\n\nb addr=::2 l=1Mbit/s\na addr=::3 l=1Mbit/s", "line 4: a is in line 1 already"),
        ] {
            let said = lines(line).unwrap_err();
            assert!(said.contains(why), "{line}: {said}");
        }
    }
}
