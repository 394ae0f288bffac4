//! `altq tap`: copies the packets that leave a class of a running altq to a pcap file
//! (docs/service.md).

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use altq_config::literal;
use altq_control::client::Client;
use altq_control::tap::{SNAPLEN, Tapped};
use altq_control::{Code, Fault};
use altq_dataplane::signal::Watch;
use altq_engine::units::Nanos;
use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use crate::exit::Exit;
use crate::socket::{Socket, ask, fail};

/// Time between two requests for the tap's state.
const LOOK: Duration = Duration::from_millis(200);
/// How long writing the rest may take at the end.
const REST: Duration = Duration::from_secs(5);

/// Options of `altq tap`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The link, or LINK/CLASS: the class, with all below it
    #[arg(value_name = "LINK[/CLASS]")]
    of: String,
    /// The file; `-` is standard output
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Ends when the file has this size, such as 500kB, 10MB or 1GB (powers of 1000)
    #[arg(long, value_name = "SIZE", default_value = "10MB", value_parser = size)]
    size: u64,
    /// The most bytes to keep of each packet. With `device IF`, altq itself sees only the first 192
    /// bytes
    #[arg(long, value_name = "N", default_value_t = 256)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(SNAPLEN)))]
    snaplen: u32,
    /// Ends after this time, such as 30s [default: at SIGINT or SIGTERM]
    #[arg(long = "for", value_name = "TIME", value_parser = literal::time_with_unit)]
    duration: Option<Nanos>,
    #[command(flatten)]
    socket: Socket,
}

fn size(word: &str) -> Result<u64, String> {
    let units = [("kB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000_u64)];
    let unit = units.into_iter().find_map(|(unit, bytes)| Some((word.strip_suffix(unit)?.trim(), bytes)));
    let size = match unit {
        Some((number, bytes)) => number.parse::<u64>().ok().and_then(|number| number.checked_mul(bytes)),
        None => literal::size(word).ok(),
    };
    size.ok_or_else(|| "a whole number and its unit, such as 500kB, 10MB or 1GB".to_owned())
}

/// The fields of the request `tap.begin`.
#[derive(Serialize)]
pub struct Begin<'a> {
    /// The link.
    pub link: &'a str,
    /// The class; `None`: all of the link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<&'a str>,
    /// The most bytes of the file.
    pub size_bytes: u64,
    /// The most bytes of each packet.
    pub snaplen: u32,
}

/// The fields of `tap.look` and `tap.end`.
#[derive(Serialize)]
pub struct Which<'a> {
    /// The link.
    pub link: &'a str,
}

/// Runs the command: opens the file, hands it over, and waits until the tap has ended.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let to_stdout = args.file == Path::new("-");
    if to_stdout && io::stdout().is_terminal() {
        eprintln!("altq tap: this would write a pcap file to the terminal; add `| tcpdump -r -`, or name a file");
        return Ok(Exit::Usage);
    }
    let watch = Watch::new().context("signals cannot be watched")?;
    let (link, class) = match args.of.split_once('/') {
        Some((link, class)) => (link, Some(class)),
        None => (args.of.as_str(), None),
    };
    let mut client = match args.socket.connect() {
        Ok(client) => client,
        Err(fault) => return Ok(fail("tap", &fault)),
    };
    let (file, place): (OwnedFd, Place) = if to_stdout {
        (io::stdout().as_fd().try_clone_to_owned().context("stdout cannot be used")?, Place::There)
    } else {
        open(&args.file).with_context(|| format!("{} cannot be written", args.file.display()))?
    };
    let fields = Begin { link, class, size_bytes: args.size, snaplen: args.snaplen };
    if let Err(fault) = client.ask_with("tap.begin", &fields, Some(file.as_fd())) {
        place.leave();
        return Ok(fail("tap", &fault));
    }
    place.take().with_context(|| format!("{} cannot be replaced", args.file.display()))?;
    // From now on only altq writes to the file.
    drop(file);
    Ok(match follow(&mut client, link, &watch, args.duration.map(Duration::from_nanos)) {
        Ok(tapped) => ended(&tapped),
        Err(fault) => fail("tap", &fault),
    })
}

/// Where the file of a tap is before the tap begins.
enum Place {
    /// Where it stays: it is no regular file, such as a pipe.
    There,
    /// Where it stays, but it was not there before.
    New(PathBuf),
    /// Beside a file that it replaces. That one keeps what it has if the tap is refused.
    Beside(PathBuf, PathBuf),
}

impl Place {
    /// The tap has begun.
    fn take(&self) -> io::Result<()> {
        match self {
            Place::There | Place::New(_) => Ok(()),
            Place::Beside(beside, file) => std::fs::rename(beside, file).inspect_err(|_| self.leave()),
        }
    }

    /// The tap has not begun.
    fn leave(&self) {
        if let Place::New(made) | Place::Beside(made, _) = self {
            let _ = std::fs::remove_file(made);
        }
    }
}

/// Opens the file of a tap.
fn open(path: &Path) -> io::Result<(OwnedFd, Place)> {
    let Ok(found) = std::fs::metadata(path) else {
        return Ok((File::create(path)?.into(), Place::New(path.to_owned())));
    };
    // Who may not write to a file must not replace it either.
    let there = File::options().write(true).open(path)?;
    if !found.is_file() {
        return Ok((there.into(), Place::There));
    }
    let path = path.canonicalize()?;
    let mut beside = path.clone().into_os_string();
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let file = File::options().write(true).create_new(true).mode(0o600).open(&beside)?;
    let place = Place::Beside(beside, path);
    // Only root may give a file away. Otherwise it belongs to whoever taps.
    let _ = fchown(&file, Some(found.uid()), Some(found.gid()));
    file.set_permissions(found.permissions()).inspect_err(|_| place.leave())?;
    Ok((file.into(), place))
}

/// Waits until the tap has ended. Asks it to end after `most`, or at a signal.
fn follow(client: &mut Client, link: &str, watch: &Watch, most: Option<Duration>) -> Result<Tapped, Fault> {
    let begun = Instant::now();
    let mut end: Option<Instant> = None;
    loop {
        let tapped: Tapped = ask(client, "tap.look", &Which { link })?;
        if !tapped.running {
            return Ok(tapped);
        }
        if end.is_some_and(|end| end.elapsed() >= REST) {
            return Err(Fault::new(Code::Failed, "what was copied last is not written yet").help(
                "the reader of the output does not read; the tap ends when it reads again or closes the output",
            ));
        }
        let left = most.map_or(LOOK, |most| most.saturating_sub(begun.elapsed()));
        let wait = left.min(LOOK).max(Duration::from_millis(1));
        let timeout = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos() as _ };
        // A signal that comes meanwhile is seen below.
        let _ = poll(&mut [PollFd::new(watch, PollFlags::IN)], Some(&timeout));
        let over = most.is_some_and(|most| begun.elapsed() >= most);
        if end.is_none() && (over || watch.seen()) {
            ask::<Tapped>(client, "tap.end", &Which { link })?;
            end = Some(Instant::now());
        }
    }
}

/// Prints how much the tap has copied and why it has ended, and returns the exit code.
fn ended(tapped: &Tapped) -> Exit {
    let count = |count: u64| if count == 1 { "1 packet".to_owned() } else { format!("{count} packets") };
    let why = match tapped.ended.as_deref() {
        Some("size") => ", the size limit",
        Some("closed") => ", and nobody reads any more",
        _ => "",
    };
    eprintln!("altq tap: {} in {} bytes{why}", count(tapped.packets), tapped.bytes);
    if tapped.missed > 0 {
        eprintln!("altq tap: {} were not copied, because the file was written too slowly", count(tapped.missed));
    }
    match tapped.ended.as_deref() {
        Some("asked" | "size" | "closed") | None => Exit::Ok,
        Some(why) => {
            eprintln!("altq tap: it has ended early: {why}");
            Exit::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn sizes_have_units_of_a_thousand() {
        let read = |word: &str| size(word).ok();
        assert_eq!([read("10MB"), read("500 kB"), read("1GB")], [Some(10_000_000), Some(500_000), Some(1_000_000_000)]);
        assert_eq!([read("1500bytes"), read("64kbytes")], [Some(1500), Some(64_000)]);
        assert_eq!([read("MB"), read("-1MB"), read("1.5MB"), read("99999999999GB"), read("ten")], [None; 5]);
    }

    #[test]
    fn a_file_keeps_what_it_has_until_the_tap_begins() {
        let folder = std::env::temp_dir().join(format!("altq-tap-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (old, new) = (folder.join("old.pcap"), folder.join("new.pcap"));
        std::fs::write(&old, "yesterday").unwrap();
        let there = || std::fs::read_dir(&folder).unwrap().count();
        let begin = |path: &Path| {
            let (file, place) = open(path).unwrap();
            File::from(file).write_all(b"today").unwrap();
            place
        };
        begin(&old).leave();
        begin(&new).leave();
        assert_eq!((std::fs::read_to_string(&old).unwrap().as_str(), there()), ("yesterday", 1));
        begin(&old).take().unwrap();
        begin(&new).take().unwrap();
        for file in [&old, &new] {
            assert_eq!(std::fs::read_to_string(file).unwrap(), "today");
        }
        assert_eq!(there(), 2);
        assert!(matches!(open(Path::new("/dev/null")).unwrap().1, Place::There));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn an_end_by_an_error_is_one() {
        let tapped = |ended: Option<&str>| Tapped { ended: ended.map(str::to_owned), ..Tapped::default() };
        for (why, exit) in [(Some("asked"), 0), (Some("size"), 0), (Some("closed"), 0), (Some("left"), 1)] {
            assert_eq!(ended(&tapped(why)) as u8, exit, "{why:?}");
        }
        assert_eq!(ended(&tapped(Some("No space left on device"))) as u8, 1);
    }
}
