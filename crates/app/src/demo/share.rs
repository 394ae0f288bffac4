//! The demo's first part: the same packets through a FIFO and through altq, in virtual time.

use altq_cases::statistics::percentile;
use altq_config::{Language, Link, parse_str};
use altq_engine::spec::ROOT;
use altq_engine::units::{Nanos, SECOND};
use altq_engine::{Departure, Drop};
use altq_simulator::replay::{self, Arrivals, Observer, Options};
use anyhow::Context;

use super::traffic::{Arrival, END, PAUSE, STREAMS, arrivals};

/// The policy, as a user would write it.
pub const POLICY: &str = include_str!("line.altq");

/// The same line without classes: one queue for all packets.
const FIFO: &str = include_str!("plain.altq");

/// Packets that the FIFO holds, as `plain.altq` says.
pub const FIFO_LIMIT: u32 = 100;

/// The windows of the two acts (all send; video pauses), each without its first second.
pub const ACTS: [(Nanos, Nanos); 2] = [(SECOND, PAUSE), (PAUSE + SECOND, END)];

/// The counts of a stream in an act.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Bytes that arrived.
    pub offered: u64,
    /// Bytes that left.
    pub sent: u64,
    /// Packets that arrived.
    pub packets: u64,
    /// Packets that were dropped.
    pub lost: u64,
    /// Bytes that the class borrowed; always 0 in a FIFO.
    pub borrowed: u64,
    delays: Vec<Nanos>,
}

impl Counts {
    /// This percentile of the delays, in ns.
    pub fn delay(&self, percent: u32) -> Option<Nanos> {
        percentile(&mut self.delays.clone(), percent)
    }
}

/// The counts of both acts, for each stream.
pub type Acts = [Vec<Counts>; 2];

/// The results of the first part.
pub struct Shares {
    /// The policy's link.
    pub link: Link,
    /// The guarantee of each of its classes, in bit/s.
    pub asked: Vec<u64>,
    /// Counts of the run through the FIFO.
    pub fifo: Acts,
    /// Counts of the run through the policy.
    pub altq: Acts,
}

/// Runs the packets through both.
pub fn run() -> anyhow::Result<Shares> {
    let link = read(POLICY)?;
    let fifo = read(FIFO)?;
    let packets = arrivals();
    let all = fifo.class("all").context("the FIFO has its class")?;
    let through_fifo = through(&fifo, &packets, |_| Some(all))?;
    let through_altq = through(&link, &packets, |stream| link.class(STREAMS.get(stream)?.class))?;
    let asked = (0..).zip(&link.classes).map(|(id, _)| link.guarantee(id).map_or(0, |rate| rate.as_bit_s())).collect();
    Ok(Shares { link, asked, fifo: through_fifo, altq: through_altq })
}

fn read(text: &str) -> anyhow::Result<Link> {
    let policy = parse_str(text, "line.altq", Language::Native)?;
    policy.links.into_iter().next().context("the policy has a link")
}

fn through(link: &Link, packets: &[Arrival], class: impl Fn(usize) -> Option<u32>) -> anyhow::Result<Acts> {
    let mut list = Arrivals::with_capacity(packets.len());
    for (id, packet) in packets.iter().enumerate() {
        list.push(packet.at, class(packet.stream).unwrap_or(ROOT), packet.bytes, id as u64);
    }
    let mut acts = Acts::default();
    for (act, window) in acts.iter_mut().zip(ACTS) {
        let mut watch = Watch { packets, window, counts: vec![Counts::default(); STREAMS.len()] };
        let options = Options { from: window.0, to: Some(window.1), ..Options::default() };
        let report = replay::run(link, &list, &options, &mut watch)?;
        for packet in packets.iter().filter(|packet| (window.0..window.1).contains(&packet.at)) {
            let counts = &mut watch.counts[packet.stream];
            counts.packets += 1;
            counts.offered += u64::from(packet.bytes);
        }
        for (counts, stream) in watch.counts.iter_mut().zip(&STREAMS) {
            counts.borrowed =
                report.classes.iter().find(|row| row.name == stream.class).map_or(0, |row| row.borrowed_bytes);
        }
        *act = watch.counts;
    }
    Ok(acts)
}

/// Counts by stream what leaves and what is lost in a window. (The report counts by class, and in
/// the FIFO all streams are one class.)
struct Watch<'a> {
    packets: &'a [Arrival],
    window: (Nanos, Nanos),
    counts: Vec<Counts>,
}

impl Watch<'_> {
    fn counts(&mut self, at: Nanos, packet: usize) -> Option<&mut Counts> {
        if !(self.window.0..self.window.1).contains(&at) {
            return None;
        }
        self.counts.get_mut(self.packets.get(packet)?.stream)
    }
}

impl Observer for Watch<'_> {
    fn sent(&mut self, now: Nanos, at: usize, departure: &Departure, wire_end: Nanos) -> std::io::Result<()> {
        if let Some(counts) = self.counts(now, at) {
            counts.sent += u64::from(departure.packet.len);
            // The delay lasts until the last bit has left the wire, as it does for the receiver.
            counts.delays.push(wire_end - departure.packet.arrived);
        }
        Ok(())
    }

    fn dropped(&mut self, at: usize, drop: &Drop) -> std::io::Result<()> {
        if let Some(counts) = self.counts(drop.at, at) {
            counts.lost += 1;
        }
        Ok(())
    }
}
