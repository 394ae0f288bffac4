//! UDP by the simulator's own sources, numbered and stamped: loss, order, gaps, jitter, and one-way
//! delay where both ends have one clock.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

use altq_cases::case::Udp;
use altq_cases::random::Random;
use altq_cases::source::{Endpoint, Outbox, Source};
use altq_dataplane::host::Ear;
use altq_engine::units::{Nanos, Rate};

use crate::bulk::waiting;
use crate::clock;
use crate::echo::put;
use crate::error::{Doing, Error};
use crate::run::Shared;
use crate::sequence::{Arrival, Sequence};

/// Bytes of a datagram's number, at its head, big-endian.
const NUMBER: usize = 4;

/// Bytes of the time at which it was sent (CLOCK_MONOTONIC, ns, big-endian), behind the number.
/// Datagrams too small for either go without.
const STAMP: usize = 8;

/// What a UDP flow sends: the same as in the simulator, by the same seed.
#[derive(Clone, Debug)]
pub struct Datagrams {
    /// Sizes and times.
    pub udp: Udp,
    /// Of what is drawn.
    pub seed: u64,
    /// The flow's place: its stream of what is drawn.
    pub stream: u64,
    /// Other rates, from these times of the run on (ns), in order.
    pub rates: Vec<(Nanos, Rate)>,
    /// It is on the host of the queue.
    pub local: Option<Local>,
}

/// A source that is on the host of the queue hears of each packet whether it was dropped there, and
/// sleeps then.
#[derive(Clone, Debug)]
pub struct Local {
    /// What it hears.
    pub ear: Arc<Ear>,
    /// It wakes up at multiples of this only, of the run's time, in ns; at least 1.
    pub tick: Nanos,
}

/// How long the host may take to say what became of a packet; then the source goes on.
const ANSWER: Duration = Duration::from_millis(20);

/// By less than this a local source is late because this host wakes threads up late, and it keeps
/// its pace; by more, it has slept longer.
const BEHIND: Nanos = 1_000_000;

/// Bytes of IP and UDP headers in a packet's length at layer 3.
pub fn headers(ipv4: bool) -> usize {
    if ipv4 { 28 } else { 48 }
}

/// Sends in the spans what the source says, when it says so, to the socket's peer. A sender that is
/// late sends at once what has become due, and notes how late it was in the part of the run of
/// which figures are given. Returns at the end of the last span.
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
        // The source lives in the run's time, and hears nothing of what was late here.
        let mut due = shared.epoch.since(*begin);
        let mut out = Outbox::default();
        loop {
            let moment = shared.epoch.at(due);
            if moment >= *end || !clock::sleep_unless(&shared.stop, moment) {
                source.stop();
                break;
            }
            if datagrams.local.is_some() && shared.now() > due.saturating_add(BEHIND) {
                // It sleeps and goes on: there is no schedule that it could be far behind of.
                due = shared.now();
            }
            while let Some((_, rate)) = changes.next_if(|(at, _)| *at <= due) {
                source.set_rate(*rate);
            }
            source.wake(due, &mut out);
            let mut sleep = None;
            for (size, _) in out.packets.drain(..) {
                let before = datagrams.local.as_ref().map(|local| local.ear.heard());
                match sender.put((size as usize).saturating_sub(headers), moment) {
                    Ok(true) => {
                        if let Some((local, before)) = datagrams.local.as_ref().zip(before)
                            && local.ear.wait(before.packets + 1, ANSWER).refused > before.refused
                        {
                            sleep = source.refused().map(|sleep| awake(due.saturating_add(sleep), local.tick));
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
    shared.meter.note_lateness(sender.lateness);
    result
}

/// The first tick at or after a time.
fn awake(at: Nanos, tick: Nanos) -> Nanos {
    at.checked_next_multiple_of(tick).unwrap_or(at)
}

struct Sender<'a> {
    socket: &'a UdpSocket,
    shared: &'a Shared,
    payload: Vec<u8>,
    lateness: clock::Lateness,
    number: u64,
}

impl Sender<'_> {
    /// Sends a datagram that was due at a moment; false when the run is over.
    fn put(&mut self, bytes: usize, due: Instant) -> Result<bool, Error> {
        let now = Instant::now();
        let since = self.shared.epoch.since(now);
        // What is over before anything is measured may be as late as it likes: a burst that fills a
        // queue beforehand takes its time.
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

/// What a receiver of datagrams is to make of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reception {
    /// Both ends have the same clock, so that stamps give the time on the way.
    pub one_clock: bool,
    /// Datagrams that are none of the flow's.
    pub skip: Option<fn(&[u8]) -> bool>,
}

/// Counts datagrams until the run is over.
///
/// # Errors
/// Those of the socket.
pub fn receive(socket: &UdpSocket, reception: Reception, shared: &Shared) -> Result<(), Error> {
    let mut buffer = vec![0; usize::from(u16::MAX)];
    let mut sequence = Sequence::default();
    while !shared.stopped() {
        let bytes = match socket.recv(&mut buffer) {
            Ok(bytes) => bytes,
            // What the kernel reports of an earlier datagram that went the other way.
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
        match numbered.map(|(number, _)| sequence.note(u32::from_be_bytes(*number))) {
            Some(Arrival::Again) => {
                meter.duplicated();
                continue;
            }
            Some(Arrival::Late) => meter.reordered(),
            Some(Arrival::InOrder) | None => {}
        }
        meter.arrived(now, bytes as u64);
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
