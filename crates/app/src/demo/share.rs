//! The same packets through a FIFO and through altq, in virtual time.

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

/// What the same line does without a policy: one queue for all.
const FIFO: &str = include_str!("plain.altq");

/// Packets that the FIFO holds, as written above.
pub const FIFO_LIMIT: u32 = 100;

/// The two acts, each without its first second.
pub const ACTS: [(Nanos, Nanos); 2] = [(SECOND, PAUSE), (PAUSE + SECOND, END)];

/// What a stream got in an act.
#[derive(Clone, Debug, Default)]
pub struct Got {
    /// Bytes that came.
    pub offered: u64,
    /// Bytes that left.
    pub sent: u64,
    /// Packets that came.
    pub packets: u64,
    /// Of them, those that were dropped.
    pub lost: u64,
    /// Bytes beyond the class's own share; a FIFO knows none.
    pub borrowed: u64,
    delays: Vec<Nanos>,
}

impl Got {
    /// The delay that so many of 100 packets did not exceed.
    pub fn delay(&self, percent: u32) -> Option<Nanos> {
        percentile(&mut self.delays.clone(), percent)
    }
}

/// Both acts, a [`Got`] a stream.
pub type Acts = [Vec<Got>; 2];

/// What came out.
pub struct Shown {
    /// The policy's link.
    pub link: Link,
    /// What each of its classes asked for, in bit/s.
    pub asked: Vec<u64>,
    /// Through the FIFO.
    pub fifo: Acts,
    /// Through the policy.
    pub altq: Acts,
}

/// Runs both.
pub fn run() -> anyhow::Result<Shown> {
    let link = read(POLICY)?;
    let fifo = read(FIFO)?;
    let packets = arrivals();
    let all = fifo.class("all").context("the FIFO has its class")?;
    let through_fifo = through(&fifo, &packets, |_| Some(all))?;
    let through_altq = through(&link, &packets, |stream| link.class(STREAMS.get(stream)?.class))?;
    let asked = (0..).zip(&link.classes).map(|(id, _)| link.guarantee(id).map_or(0, |rate| rate.as_bit_s())).collect();
    Ok(Shown { link, asked, fifo: through_fifo, altq: through_altq })
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
        let mut watch = Watch { packets, window, got: vec![Got::default(); STREAMS.len()] };
        let options = Options { from: window.0, to: Some(window.1), ..Options::default() };
        let report = replay::run(link, &list, &options, &mut watch)?;
        for packet in packets.iter().filter(|packet| (window.0..window.1).contains(&packet.at)) {
            let got = &mut watch.got[packet.stream];
            got.packets += 1;
            got.offered += u64::from(packet.bytes);
        }
        for (got, stream) in watch.got.iter_mut().zip(&STREAMS) {
            got.borrowed =
                report.classes.iter().find(|row| row.name == stream.class).map_or(0, |row| row.borrowed_bytes);
        }
        *act = watch.got;
    }
    Ok(acts)
}

/// Notes what leaves and what is lost in a window, by stream: in a FIFO all streams are one class.
struct Watch<'a> {
    packets: &'a [Arrival],
    window: (Nanos, Nanos),
    got: Vec<Got>,
}

impl Watch<'_> {
    fn got(&mut self, at: Nanos, packet: usize) -> Option<&mut Got> {
        if !(self.window.0..self.window.1).contains(&at) {
            return None;
        }
        self.got.get_mut(self.packets.get(packet)?.stream)
    }
}

impl Observer for Watch<'_> {
    fn sent(&mut self, now: Nanos, at: usize, departure: &Departure, wire_end: Nanos) -> std::io::Result<()> {
        if let Some(got) = self.got(now, at) {
            got.sent += u64::from(departure.packet.len);
            // Until its last bit is on the wire: what the receiver waits for.
            got.delays.push(wire_end - departure.packet.arrived);
        }
        Ok(())
    }

    fn dropped(&mut self, at: usize, drop: &Drop) -> std::io::Result<()> {
        if let Some(got) = self.got(drop.at, at) {
            got.lost += 1;
        }
        Ok(())
    }
}
