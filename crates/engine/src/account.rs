//! Counters, and why packets are dropped.
//!
//! Two identities hold at every instant, for every class and for the tree, in packets and in bytes:
//! `received = sent + dropped + queued`; and a class's total is its own figure plus the totals of
//! its children.

use std::ops::AddAssign;

/// Why a packet was dropped. Counters, traces and metrics use the same reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DropReason {
    /// The queue was full.
    QueueFull,
    /// It was at the head of a full queue, and was dropped to make room for a newer packet.
    HeadDropped,
    /// Its class was removed.
    ClassRemoved,
    /// No rule matched and there is no default class.
    NoClass,
    /// The queue's limit was lowered below what it held.
    LimitLowered,
    /// A policer or a meter dropped it: it exceeded the rate of its class.
    Policed,
    /// Active queue management (RED, CoDel, PIE, …) dropped it before the queue was full, as a
    /// signal to the sender.
    Early,
}

impl DropReason {
    /// All reasons.
    pub const ALL: [DropReason; 7] = [
        DropReason::QueueFull,
        DropReason::HeadDropped,
        DropReason::ClassRemoved,
        DropReason::NoClass,
        DropReason::LimitLowered,
        DropReason::Policed,
        DropReason::Early,
    ];

    /// Its name in counters, traces and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::QueueFull => "queue_full",
            DropReason::HeadDropped => "head_dropped",
            DropReason::ClassRemoved => "class_removed",
            DropReason::NoClass => "no_class",
            DropReason::LimitLowered => "limit_lowered",
            DropReason::Policed => "policed",
            DropReason::Early => "early",
        }
    }
}

/// What a class has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets handed to the device.
    pub sent_packets: u64,
    /// Their own bytes.
    pub sent_bytes: u64,
    /// The bytes that the link charged for them.
    pub sent_wire_bytes: u64,
    /// Packets dropped.
    pub dropped_packets: u64,
    /// Their own bytes.
    pub dropped_bytes: u64,
    /// Own bytes of packets that were sent on borrowed bandwidth: beyond the class's guarantee, or
    /// lent by another class.
    pub borrowed_bytes: u64,
    /// Packets marked instead of dropped.
    pub marked_packets: u64,
    /// Packets waiting.
    pub queued_packets: u64,
    /// Their own bytes.
    pub queued_bytes: u64,
}

impl Counters {
    /// Packets that have arrived.
    pub fn received_packets(&self) -> u64 {
        self.sent_packets + self.dropped_packets + self.queued_packets
    }

    /// Their own bytes.
    pub fn received_bytes(&self) -> u64 {
        self.sent_bytes + self.dropped_bytes + self.queued_bytes
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Counters) {
        self.sent_packets += other.sent_packets;
        self.sent_bytes += other.sent_bytes;
        self.sent_wire_bytes += other.sent_wire_bytes;
        self.dropped_packets += other.dropped_packets;
        self.dropped_bytes += other.dropped_bytes;
        self.borrowed_bytes += other.borrowed_bytes;
        self.marked_packets += other.marked_packets;
        self.queued_packets += other.queued_packets;
        self.queued_bytes += other.queued_bytes;
    }
}
