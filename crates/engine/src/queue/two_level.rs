//! Two levels (DragonFly BSD, 2013; docs/reference/altq.md 9): packets that open TCP connections,
//! and acknowledgements without data, do not wait behind data.
//!
//! There is a high and a normal list. The normal one is served when the high one is empty. The
//! limits, in packets and in bytes, hold for both together. Without the high list,
//! acknowledgements behind a deep queue of data would slow down TCP in the other direction, and new
//! connections would open late. Each packet says whether it is high ([`Packet::high`], from
//! [`Headers::high`](crate::headers::Headers::high)).
//!
//! At a full queue, a high packet drops the head of the normal list, as long as the high list is
//! below half of both limits. Any other packet is dropped itself. So the high list takes at most
//! half of a full queue from the normal one.

use super::{Context, Entry, List, Policy, Queue, Store, Taken};
use crate::account::DropReason;
use crate::packet::Packet;
use crate::settings::{Kind, Limit, Word};
use crate::spec::{QueueSpec, SpecError};
use crate::units::Nanos;

/// The registry's entry. The default limit is that of DragonFly's interface queue, 50 packets,
/// without the packets that its processors hold back to enqueue them in batches.
pub const ENTRY: Entry = Entry {
    words: &[
        Word {
            name: "bytes",
            kind: Kind::Bytes { min: 1, max: u32::MAX as u64 },
            help: "the most bytes, besides a limit in packets",
            default: "2048 a packet of the limit",
        },
        Word {
            name: "prio_synack",
            kind: Kind::Choice(&["on", "off"]),
            help: "serves TCP's SYN, SYN/ACK and ACK without data first",
            default: "on",
        },
    ],
    ..Entry::new(
        "two_level",
        "two lists: TCP packets that open connections or only acknowledge go first",
        Limit::Packets(50),
        |_, spec| Ok(Policy::Stateful(Box::new(TwoLevel::new(Words::read(spec)?)))),
    )
};

/// The bytes of an mbuf cluster. DragonFly's limit in bytes is its limit in packets times this.
const CLUSTER: u32 = 2048;

#[derive(Clone, Copy)]
struct Words {
    packets: u32,
    bytes: u32,
    prio: bool,
}

impl Words {
    fn read(spec: &QueueSpec) -> Result<Words, SpecError> {
        let written = spec.settings.bytes("bytes").map(|bytes| bytes as u32);
        let (packets, bytes) = match (spec.limit, written) {
            (Limit::Packets(packets), bytes) => (packets, bytes.unwrap_or(packets.saturating_mul(CLUSTER))),
            (Limit::Bytes(bytes), None) => (u32::MAX, bytes),
            (Limit::Bytes(_), Some(bytes)) => {
                return Err(SpecError::word("bytes", "the limit is in bytes already")
                    .help(format!("leave it out, or write limit 50packets bytes {bytes}")));
            }
        };
        Ok(Words { packets, bytes, prio: spec.settings.choice("prio_synack") != Some("off") })
    }
}

struct TwoLevel {
    words: Words,
    high: List,
    normal: List,
    /// Normal packets dropped to make room for high ones.
    thrown_out: u64,
    /// High packets queued, of all time.
    high_queued: u64,
}

impl TwoLevel {
    fn new(words: Words) -> TwoLevel {
        TwoLevel { words, high: List::NEW, normal: List::NEW, thrown_out: 0, high_queued: 0 }
    }

    fn fits(&self, packet: &Packet) -> bool {
        let (packets, bytes) = self.backlog();
        packets < self.words.packets && u64::from(bytes) + u64::from(packet.len) <= u64::from(self.words.bytes)
    }

    fn over(&self) -> bool {
        let (packets, bytes) = self.backlog();
        packets > self.words.packets || bytes > self.words.bytes
    }
}

impl Queue for TwoLevel {
    fn enqueue(&mut self, _: Nanos, packet: &mut Packet, store: &mut Store<'_>) -> Result<(), DropReason> {
        let high = packet.high && self.words.prio;
        if !self.fits(packet) {
            let below = self.high.packets() < self.words.packets / 2 && self.high.bytes() < self.words.bytes / 2;
            // The packet must fit once the normal list is empty; otherwise normal packets would be
            // dropped for one that is dropped as well.
            let enough = u64::from(self.high.bytes()) + u64::from(packet.len) <= u64::from(self.words.bytes);
            if !(high && below && enough) || self.normal.is_empty() {
                return Err(DropReason::QueueFull);
            }
            // One drop is enough as a rule; it takes more where the limit in bytes is reached and
            // the packets dropped are shorter than the arriving one.
            while !self.fits(packet) {
                let Some(head) = store.pop(&mut self.normal) else { break };
                store.lose(head, DropReason::HeadDropped);
                self.thrown_out += 1;
            }
        }
        self.high_queued += u64::from(high);
        store.push(if high { &mut self.high } else { &mut self.normal }, packet);
        Ok(())
    }

    fn dequeue(&mut self, _: Nanos, store: &mut Store<'_>) -> Option<Taken> {
        self.take(store)
    }

    fn peek(&self) -> Option<u32> {
        self.high.peek().or_else(|| self.normal.peek())
    }

    fn backlog(&self) -> (u32, u32) {
        (self.high.packets() + self.normal.packets(), self.high.bytes() + self.normal.bytes())
    }

    fn take(&mut self, store: &mut Store<'_>) -> Option<Taken> {
        if self.high.is_empty() { store.pop(&mut self.normal) } else { store.pop(&mut self.high) }
    }

    fn change(&mut self, _: Nanos, _: &Context, spec: &QueueSpec, store: &mut Store<'_>) -> Result<(), SpecError> {
        self.words = Words::read(spec)?;
        while self.over() {
            let Some(packet) = store.pop(&mut self.normal).or_else(|| store.pop(&mut self.high)) else { break };
            store.lose(packet, DropReason::LimitLowered);
        }
        Ok(())
    }

    fn report_counters(&self, counter: &mut dyn FnMut(&'static str, u64)) {
        counter("high_packets", u64::from(self.high.packets()));
        counter("high_bytes", u64::from(self.high.bytes()));
        counter("high_queued", self.high_queued);
        counter("thrown_out", self.thrown_out);
    }

    fn memory(&self) -> usize {
        size_of::<TwoLevel>()
    }
}
