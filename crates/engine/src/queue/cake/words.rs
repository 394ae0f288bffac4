//! What a cake is told.

use super::super::Context;
use super::super::flows::MOST;
use super::WAYS;
use super::cobalt::Law;
use crate::packet::Packet;
use crate::settings::Settings;
use crate::spec::SpecError;
use crate::units::{Nanos, SECOND};

/// What makes a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Apart {
    Flows,
    Pairs,
    Sources,
    Destinations,
    Nothing,
}

pub struct Words {
    apart: Apart,
    /// Hosts have even parts, at this end.
    pub by_source: bool,
    pub by_destination: bool,
    pub queues: u32,
    rtt: Nanos,
    pub law: Law,
    /// Bytes a flow and round.
    pub quantum: u32,
}

const MODES: [(&str, Apart, bool, bool); 8] = [
    ("triple-isolate", Apart::Flows, true, true),
    ("dual-srchost", Apart::Flows, true, false),
    ("dual-dsthost", Apart::Flows, false, true),
    ("flows", Apart::Flows, false, false),
    ("hosts", Apart::Pairs, false, false),
    ("srchost", Apart::Sources, false, false),
    ("dsthost", Apart::Destinations, false, false),
    ("flowblind", Apart::Nothing, false, false),
];

impl Words {
    pub fn read(context: &Context, settings: &Settings) -> Result<Words, SpecError> {
        let mut given = MODES.iter().filter(|(word, ..)| settings.flag(word));
        let (first, apart, by_source, by_destination) = *given.next().unwrap_or(&MODES[0]);
        if let Some((second, ..)) = given.next() {
            return Err(SpecError::word(second, format!("{first} and {second} both say what is kept apart"))
                .help("leave one out"));
        }
        let queues = settings.int("queues").unwrap_or(1024).clamp(8, MOST) as u32;
        if !queues.is_multiple_of(WAYS) {
            let message = format!("the queues are in sets of {WAYS}, which {queues} are not");
            return Err(
                SpecError::word("queues", message).help(format!("write queues {}", queues.next_multiple_of(WAYS)))
            );
        }
        let rtt = settings.time("rtt").unwrap_or(100_000_000);
        if !(20..=3600 * SECOND).contains(&rtt) {
            return Err(SpecError::word("rtt", "a round trip takes 20 ns to an hour").help("write rtt 100ms"));
        }
        let law = Law { target: 0, interval: 0, packet: 0 };
        let mut words = Words { apart, by_source, by_destination, queues, rtt, law, quantum: 0 };
        words.tune(context);
        Ok(words)
    }

    /// What depends on the rate: a quantum of 1/4096 s between 300 bytes and a packet, a target of
    /// at least one packet and a half, and an interval that grows with it (as sch_cake.c has it).
    pub fn tune(&mut self, context: &Context) {
        let full = context.overhead.charge(context.mtu).max(300);
        let packet = context.rate.time_for(u64::from(full));
        self.quantum = u32::try_from(context.rate.as_bit_s() >> 15).unwrap_or(u32::MAX).clamp(300, full);
        let asked = self.rtt / 20;
        let target = asked.max(packet.saturating_add(packet / 2)).clamp(1, 3600 * SECOND);
        let interval = (self.rtt + target).saturating_sub(asked).max(2 * target);
        self.law = Law { target, interval, packet: packet.min(3600 * SECOND) };
    }

    /// What makes the queues other ones.
    pub fn keeps_apart(&self) -> (bool, bool, u32, u8) {
        (self.by_source, self.by_destination, self.queues, self.apart as u8)
    }

    /// What a packet's flow goes by.
    pub fn tag(&self, packet: &Packet) -> u32 {
        let [source, destination] = packet.hosts.map(u32::from);
        match self.apart {
            Apart::Flows => packet.flow,
            Apart::Pairs => source << 16 | destination,
            Apart::Sources => source,
            Apart::Destinations => destination,
            Apart::Nothing => 0,
        }
    }
}
