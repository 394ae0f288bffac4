//! The packets that links of a running altq send, recorded for a while by taps (docs/service.md).

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use altq_control::client::Client;
use altq_control::tap::Tapped;
use altq_control::{Code, Fault};
use altq_simulator::sim::Capture;

use crate::commands::tap::{Begin, Which};
use crate::socket::ask;

/// The most bytes that are kept of each link.
const MOST: u64 = 100_000_000;
/// The most bytes of a packet: all headers that rules look at.
const SNAPLEN: u32 = 192;
/// altq ends a tap about which nobody asks for ten seconds.
const LOOK: Duration = Duration::from_secs(1);

/// Records what links send, all of them at the same time.
///
/// # Errors
/// That of altq: without the right to change things there are no taps, nor of links that the kernel
/// executes. When this process ends, so do its taps.
pub fn record(client: &mut Client, links: &[&str], time: Duration) -> Result<Vec<Capture>, Fault> {
    let failed = |error: io::Error| Fault::new(Code::Failed, format!("nothing can be recorded: {error}"));
    let mut bytes: Vec<JoinHandle<io::Result<Vec<u8>>>> = Vec::new();
    for link in links {
        let (mut from, to) = io::pipe().map_err(failed)?;
        let begin = Begin { link, class: None, size_bytes: MOST, snaplen: SNAPLEN };
        client.ask_with("tap.begin", &begin, Some(to.as_fd()))?;
        let read = move || {
            let mut bytes = Vec::new();
            from.read_to_end(&mut bytes).map(|_| bytes)
        };
        bytes.push(thread::Builder::new().spawn(read).map_err(failed)?);
    }
    let begun = Instant::now();
    while let Some(left) = time.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
        thread::sleep(left.min(LOOK));
        for link in links {
            ask::<Tapped>(client, "tap.look", &Which { link })?;
        }
    }
    for link in links {
        ask::<Tapped>(client, "tap.end", &Which { link })?;
    }
    let mut captures = Vec::new();
    for (link, bytes) in links.iter().zip(bytes) {
        // altq closes the pipe when everything is written.
        let bytes = bytes.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())).map_err(failed)?;
        let tapped: Tapped = ask(client, "tap.look", &Which { link })?;
        if tapped.missed > 0 {
            eprintln!("altq plan: link {link}: {} packets were not recorded", tapped.missed);
        }
        match tapped.ended.as_deref() {
            Some("asked") | None => {}
            Some("size") => {
                let (packets, most) = (tapped.packets, MOST / 1_000_000);
                eprintln!("altq plan: link {link}: only the first {packets} packets were recorded ({most} MB)");
            }
            Some(why) => eprintln!("altq plan: link {link}: the recording has ended early: {why}"),
        }
        let capture = Capture::read(bytes);
        captures.push(capture.map_err(|error| Fault::new(Code::Failed, format!("link {link}: {error}")))?);
    }
    Ok(captures)
}
