//! Shows traffic that nobody shapes: the largest protocols and hosts of an interface or a capture.

use std::hash::{BuildHasher, Hasher, RandomState};
#[cfg(feature = "top")]
use std::sync::atomic::{AtomicU32, Ordering};

use altq_dataplane::lookout::Lookout;
use altq_engine::units::SECOND;
use altq_monitor::fold::Label;
use altq_monitor::frame::rate;
use altq_monitor::summary::Counted;
use altq_monitor::watch::{Largest, What};
use altq_monitor::{Watch, Window};
#[cfg(feature = "top")]
use anyhow::Context as _;
use serde::Serialize;

use super::{Args, Form};
use crate::exit::Exit;
use crate::output;

/// The most hosts and protocols of a document.
const MOST: usize = 100;

/// The traffic as JSON.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Document {
    schema: &'static str,
    of: String,
    /// The number of seconds that it covers.
    seconds: u64,
    bytes: u64,
    packets: u64,
    protocols: Vec<Entry>,
    /// Bytes that are not certain to belong to one of the protocols.
    other_protocols_bytes: u64,
    /// Hosts as senders and receivers, so all hosts together have twice the bytes of the IP
    /// packets.
    hosts: Vec<Entry>,
    other_hosts_bytes: u64,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Entry {
    name: String,
    bytes_at_least: u64,
    error_bytes: u64,
    packets_at_least: u64,
    rate_bit_s: u64,
}

fn entries(largest: &Largest) -> (Vec<Entry>, u64) {
    let time = largest.seconds.max(1) * SECOND;
    let entry = |counted: &Counted<Label>| Entry {
        name: counted.key.to_string(),
        bytes_at_least: counted.at_least.bytes,
        error_bytes: counted.error.bytes,
        packets_at_least: counted.at_least.packets,
        rate_bit_s: rate(counted.at_least.bytes, time),
    };
    let left_out: u64 = largest.listed.iter().skip(MOST).map(|counted| counted.at_least.bytes).sum();
    (largest.listed.iter().take(MOST).map(entry).collect(), largest.others.bytes + left_out)
}

fn document(of: &str, watch: &Watch, window: Option<Window>) -> Option<Document> {
    let largest = |what: What| match window {
        Some(window) => watch.largest(what, window),
        None => Some(watch.overall(what)),
    };
    let (protocols, hosts) = (largest(What::Protocols)?, largest(What::Hosts)?);
    let (seconds, total) = (protocols.seconds, protocols.total);
    let (protocols, other_protocols_bytes) = entries(&protocols);
    let (hosts, other_hosts_bytes) = entries(&hosts);
    Some(Document {
        schema: "altq.watch/1",
        of: of.to_owned(),
        seconds,
        bytes: total.bytes,
        packets: total.packets,
        protocols,
        other_protocols_bytes,
        hosts,
        other_hosts_bytes,
    })
}

/// A secret seed: strangers choose the packets, so they must not know it.
pub fn secret() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn window(seconds: u32) -> Window {
    match seconds {
        60 => Window::Minute,
        10 => Window::Ten,
        _ => Window::Second,
    }
}

/// Watches an interface. With `--once` for as many seconds as the window has.
pub fn interface(args: &Args, interface: &str) -> anyhow::Result<Exit> {
    let mut lookout = Lookout::new(interface)?;
    shown(args, interface, move |show| {
        let mut watch = Watch::new(secret());
        let (mut end, mut seconds) = (Lookout::now(), 0);
        watch.begin(end);
        loop {
            end += SECOND;
            lookout.until(end, |at, key, bytes| watch.packet(at, key, bytes))?;
            seconds += 1;
            let last = args.once && seconds >= args.window;
            if last {
                watch.finish();
            } else {
                watch.advance(Lookout::now());
            }
            if !show(&watch, last)? || last {
                match lookout.missed() {
                    0 => {}
                    lost => eprintln!("altq top: {lost} frames came faster than they were read, and are not counted"),
                }
                return Ok(());
            }
        }
    })
}

/// Shows what a watch has seen. It is called each second, with whether that is the last time. It
/// returns false if nobody looks any more.
type Show<'a> = &'a mut dyn FnMut(&Watch, bool) -> anyhow::Result<bool>;

/// Shows what `feed` sees.
pub fn shown(args: &Args, of: &str, feed: impl FnOnce(Show<'_>) -> anyhow::Result<()> + Send) -> anyhow::Result<Exit> {
    // With `--once`: everything that was seen.
    let chosen = |seconds: u32| (!args.once).then(|| window(seconds));
    match args.form() {
        Form::Json => feed(&mut |watch, last| match document(of, watch, chosen(args.window)) {
            Some(document) if last || !args.once => output::line(&serde_json::to_string(&document)?),
            _ => Ok(true),
        })?,
        Form::Table => table(args, of, feed)?,
        Form::Screen => screen(args, of, feed)?,
    }
    Ok(Exit::Ok)
}

#[cfg(feature = "top")]
fn table(args: &Args, of: &str, feed: impl FnOnce(Show<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
    use altq_top::traffic::{Traffic, table};
    let screen = super::screen::screen(args);
    feed(&mut |watch, last| {
        let window = (!args.once).then(|| window(args.window));
        match Traffic::of(of, watch, window) {
            Some(traffic) if last || !args.once => output::line(&table(&screen, &traffic, super::screen::width())),
            _ => Ok(true),
        }
    })
}

#[cfg(feature = "top")]
fn screen(args: &Args, of: &str, feed: impl FnOnce(Show<'_>) -> anyhow::Result<()> + Send) -> anyhow::Result<()> {
    use altq_top::terminal::{News, show};
    use altq_top::traffic::Traffic;
    let mut screen = super::screen::screen(args);
    let seconds = AtomicU32::new(args.window);
    let signals = altq_dataplane::signal::Watch::new().context("signals cannot be watched")?;
    let ended = || signals.seen();
    std::thread::scope(|scope| {
        let (news, received) = std::sync::mpsc::channel();
        let seconds = &seconds;
        let feeding = scope.spawn(move || {
            let result = feed(&mut |watch, _| {
                let traffic = Traffic::of(of, watch, Some(window(seconds.load(Ordering::Relaxed))));
                Ok(traffic.is_none_or(|traffic| news.send(News::Traffic(Box::new(traffic))).is_ok()))
            });
            if let Err(error) = &result {
                let _ = news.send(News::Trouble(error.to_string()));
            }
            result
        });
        let shown = show(&mut screen, &received, ended, |screen| {
            let window = [1, 10, 60].into_iter().find(|seconds| window(*seconds) == screen.window);
            seconds.store(window.unwrap_or(1), Ordering::Relaxed);
        });
        drop(received);
        shown.context("the terminal cannot be used")?;
        match feeding.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

#[cfg(not(feature = "top"))]
fn table(_: &Args, _: &str, _: impl FnOnce(Show<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
    Ok(())
}

#[cfg(not(feature = "top"))]
fn screen(_: &Args, _: &str, _: impl FnOnce(Show<'_>) -> anyhow::Result<()> + Send) -> anyhow::Result<()> {
    Ok(())
}
