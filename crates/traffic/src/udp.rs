//! UDP datagrams with numbers and time stamps, sent on the schedules of cases' sources. They
//! measure loss, reordering, gaps and jitter, and one-way delay if both ends have one clock.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

use altq_cases::case::Udp;
use altq_cases::random::Random;
use altq_cases::source::{Endpoint, Outbox, Source};
use altq_engine::drive::round_up;
use altq_engine::spec::Timer;
use altq_engine::units::{Nanos, Rate};

use crate::bulk::waiting;
use crate::clock;
use crate::echo::put;
use crate::error::{Doing, Error};
use crate::local::SendResults;
use crate::run::Shared;
use crate::sequence::{Arrival, Sequence};

/// Bytes of a datagram's number, at its beginning, big-endian.
const NUMBER: usize = 4;

/// Bytes of the time at which it was sent (CLOCK_MONOTONIC, ns, big-endian), after the number.
/// Datagrams that are too small for number or stamp have none.
const STAMP: usize = 8;

/// What a UDP flow sends: the same as in the simulator with the same seed.
#[derive(Clone, Debug)]
pub struct Datagrams {
    /// Sizes and times.
    pub udp: Udp,
    /// Seed of random choices.
    pub seed: u64,
    /// Number of the flow's random generator: the flow's index.
    pub stream: u64,
    /// Changes of the rate, in order of time: the time in the run (ns), and the rate from then on.
    pub rates: Vec<(Nanos, Rate)>,
    /// Set if the source runs on the queue's host.
    pub local: Option<Local>,
}

/// A source on the queue's host. It learns of each packet whether the queue dropped it, and sleeps
/// after a drop.
#[derive(Clone, Debug)]
pub struct Local {
    /// Where it learns what happened to its packets.
    pub results: Arc<SendResults>,
    /// When it can wake up, in time of the run.
    pub timer: Timer,
}

/// Longest time that a source waits to learn what happened to a packet.
const ANSWER: Duration = Duration::from_millis(20);

/// A local source that is late by at most this, in ns, keeps its schedule, because the host just
/// woke it up late. If it is later, its schedule is moved.
const BEHIND: Nanos = 1_000_000;

/// Bytes of IP and UDP headers in a packet's length at layer 3.
pub fn headers(ipv4: bool) -> usize {
    if ipv4 { 28 } else { 48 }
}

/// Sends to the socket's peer in the spans, on the source's schedule. A sender that is late sends
/// at once what is due, and records its lateness if the window of the figures has begun. Returns at
/// the end of the last span.
///
/// # Errors
/// Those of the socket.
pub fn send(
    socket: &UdpSocket,
    datagrams: &Datagrams,
    spans: &[(Instant, Instant)],
    shared: &Shared,
) -> Result<(), Error> {
    clock::precise();
    let headers = headers(socket.peer_addr().doing(|| "sending")?.is_ipv4());
    let mut sender = Sender {
        socket,
        shared,
        payload: vec![0x55; usize::from(u16::MAX)],
        lateness: clock::Lateness::default(),
        number: 0,
    };
    let mut source = Source::new(datagrams.udp.clone(), Random::new(datagrams.seed, datagrams.stream));
    let mut changes = datagrams.rates.iter().peekable();
    let mut result = Ok(());
    'spans: for (begin, end) in spans {
        // The source computes its times from the schedule, so that lateness does not shift them.
        let mut due = shared.epoch.since(*begin);
        let mut out = Outbox::default();
        loop {
            let moment = shared.epoch.at(due);
            if moment >= *end || !clock::sleep_unless(&shared.stop, moment) {
                source.stop();
                break;
            }
            if datagrams.local.is_some() && shared.now() > due.saturating_add(BEHIND) {
                // A local source has no schedule to keep.
                due = shared.now();
            }
            while let Some((_, rate)) = changes.next_if(|(at, _)| *at <= due) {
                source.set_rate(*rate);
            }
            source.wake(due, &mut out);
            let mut sleep = None;
            for (size, _) in out.packets.drain(..) {
                let before = datagrams.local.as_ref().map(|local| local.results.counts());
                match sender.put((size as usize).saturating_sub(headers), moment) {
                    Ok(true) => {
                        if let Some((local, before)) = datagrams.local.as_ref().zip(before)
                            && local.results.wait(before.packets + 1, ANSWER).refused > before.refused
                        {
                            sleep = source.refused().map(|sleep| awake(due.saturating_add(sleep), local.timer));
                        }
                    }
                    Ok(false) => break 'spans,
                    Err(error) => {
                        result = Err(error);
                        break 'spans;
                    }
                }
            }
            match sleep.or(out.wake.take()) {
                Some(next) => due = next,
                None => break,
            }
        }
    }
    shared.meter.note_lateness(&sender.lateness);
    result
}

/// The first time at or after `at` at which a timer fires.
fn awake(at: Nanos, timer: Timer) -> Nanos {
    round_up(at, timer).unwrap_or(at)
}

struct Sender<'a> {
    socket: &'a UdpSocket,
    shared: &'a Shared,
    payload: Vec<u8>,
    lateness: clock::Lateness,
    number: u64,
}

impl Sender<'_> {
    /// Sends a datagram that was due at `due`; false if the run is over.
    fn put(&mut self, bytes: usize, due: Instant) -> Result<bool, Error> {
        let now = Instant::now();
        let since = self.shared.epoch.since(now);
        // Lateness before the window does not matter, for example while a burst fills a queue.
        if since >= self.shared.meter.window().start {
            self.lateness.note(due, now);
        }
        let stamp = self.shared.epoch.stamp(since).to_be_bytes();
        self.payload[..NUMBER].copy_from_slice(&(self.number as u32).to_be_bytes());
        self.payload[NUMBER..NUMBER + STAMP].copy_from_slice(&stamp);
        let bytes = bytes.min(self.payload.len());
        if !put(self.socket, &self.payload[..bytes], self.shared)? {
            return Ok(false);
        }
        self.number += 1;
        self.shared.meter.sent(self.number);
        Ok(true)
    }
}

/// How a receiver treats datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reception {
    /// True if both ends have one clock, so that time stamps give one-way delays.
    pub one_clock: bool,
    /// Returns true for datagrams that do not belong to the flow and are ignored.
    pub skip: Option<fn(&[u8]) -> bool>,
}

/// Receives and counts datagrams until the run is over.
///
/// # Errors
/// Those of the socket.
pub fn receive(socket: &UdpSocket, reception: Reception, shared: &Shared) -> Result<(), Error> {
    let mut buffer = vec![0; usize::from(u16::MAX)];
    let mut sequence = Sequence::default();
    while !shared.stopped() {
        let bytes = match socket.recv(&mut buffer) {
            Ok(bytes) => bytes,
            // ConnectionRefused is the kernel's report on an earlier datagram in the other
            // direction.
            Err(error) if waiting(&error) || error.kind() == std::io::ErrorKind::ConnectionRefused => continue,
            Err(error) => return Err(error).doing(|| "receiving"),
        };
        let datagram = buffer.get(..bytes).unwrap_or_default();
        if reception.skip.is_some_and(|skip| skip(datagram)) {
            continue;
        }
        let now = shared.now();
        let meter = &shared.meter;
        let numbered = datagram.split_first_chunk::<NUMBER>();
        let number = numbered.map(|(number, _)| u32::from_be_bytes(*number));
        match number.map(|number| sequence.note(number)) {
            Some(Arrival::Again) => {
                meter.duplicated();
                continue;
            }
            Some(Arrival::Late) => meter.reordered(),
            Some(Arrival::InOrder) | None => {}
        }
        meter.missing(sequence.missing());
        meter.arrived(now, bytes as u64);
        number.into_iter().for_each(|number| meter.reached(u64::from(number)));
        meter.completed(now);
        meter.spaced(now);
        let stamp = numbered.and_then(|(_, rest)| rest.first_chunk::<STAMP>());
        if let Some(stamp) = stamp {
            let transit = i128::from(shared.epoch.stamp(now)) - i128::from(u64::from_be_bytes(*stamp));
            meter.transit(now, transit);
            if reception.one_clock {
                meter.took(now, u64::try_from(transit).unwrap_or(0));
            }
        }
    }
    Ok(())
}
