//! The words of cake, checked.

use super::super::Context;
use super::super::flows::MOST;
use super::WAYS;
use super::cobalt::Parameters;
use crate::packet::Packet;
use crate::settings::Settings;
use crate::spec::SpecError;
use crate::units::{Nanos, SECOND};

/// What packets of one flow have in common.
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
    /// Hosts get equal shares, as sources and as destinations.
    pub by_source: bool,
    pub by_destination: bool,
    pub queues: u32,
    rtt: Nanos,
    pub parameters: Parameters,
    /// Bytes that a flow may send in a round if its host has no other bulk flow.
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
            let message = format!("queues is a multiple of {WAYS}, which {queues} is not");
            return Err(
                SpecError::word("queues", message).help(format!("write queues {}", queues.next_multiple_of(WAYS)))
            );
        }
        let rtt = settings.time("rtt").unwrap_or(100_000_000);
        if !(20..=3600 * SECOND).contains(&rtt) {
            return Err(SpecError::word("rtt", "a round trip takes 20 ns to an hour").help("write rtt 100ms"));
        }
        let parameters = Parameters { target: 0, interval: 0, packet: 0 };
        let mut words = Words { apart, by_source, by_destination, queues, rtt, parameters, quantum: 0 };
        words.tune(context);
        Ok(words)
    }

    /// Sets what depends on the rate, as in sch_cake.c: a quantum of 1/4096 s at the rate, from 300
    /// bytes to a full packet; a target of rtt/20, and of at least the time of a packet and a half;
    /// an interval of rtt, and more where the target is more than rtt/20.
    pub fn tune(&mut self, context: &Context) {
        let full = context.overhead.charge(context.mtu).max(300);
        let packet = context.rate.time_for(u64::from(full));
        self.quantum = u32::try_from(context.rate.as_bit_s() >> 15).unwrap_or(u32::MAX).clamp(300, full);
        let asked = self.rtt / 20;
        let target = asked.max(packet.saturating_add(packet / 2)).clamp(1, 3600 * SECOND);
        let interval = (self.rtt + target).saturating_sub(asked).max(2 * target);
        self.parameters = Parameters { target, interval, packet: packet.min(3600 * SECOND) };
    }

    /// The words by which flows have other buckets or hosts when they change.
    pub fn keeps_apart(&self) -> (bool, bool, u32, u8) {
        (self.by_source, self.by_destination, self.queues, self.apart as u8)
    }

    /// The number of a packet's flow, before it is hashed into a bucket.
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
