//! Class-based queueing (Floyd and Jacobson 1995): guarantees, priorities, and borrowing along a
//! tree.
//!
//! Two estimators under one scheduler: `exact` keeps the promises that CBQ was designed for,
//! `classic` is ALTQ's to the letter.

mod classic;
mod exact;
pub mod ideal;
mod promise;

pub use classic::queue_limit as classic_queue_limit;

use super::Entry;
use crate::settings::{Kind, Limit, Settings, Word};
use crate::spec::QueueSpec;

/// The registry's entry.
pub const ENTRY: Entry = Entry {
    name: "cbq",
    about: "class-based queueing: guarantees, priorities, borrowing along the tree",
    words: &[
        Word {
            name: "estimator",
            kind: Kind::Choice(&["exact", "classic"]),
            help: "exact promises, or ALTQ's behaviour to the letter",
            default: "exact",
        },
        Word {
            name: "link-sharing",
            kind: Kind::Choice(&["formal", "top-level", "ancestor-only"]),
            help: "who may borrow; other than formal only with the classic estimator",
            default: "formal (exact), top-level (classic)",
        },
        Word {
            name: "rounds",
            kind: Kind::Choice(&["wrr", "prr"]),
            help: "weighted or packet-by-packet round robin; classic only",
            default: "wrr",
        },
        Word {
            name: "excess",
            kind: Kind::Choice(&["share", "priority"]),
            help: "who gets what others leave: all in proportion, or priorities first; exact only",
            default: "share",
        },
        Word {
            name: "efficient",
            kind: Kind::Flag,
            help: "send a borrower's packet rather than idle, over every limit; classic only",
            default: "off",
        },
    ],
    class_words: &[
        Word {
            name: "rate",
            kind: Kind::Rate,
            help: "guarantee, weight and, without borrow, ceiling (share N% sets it too)",
            default: "0bit/s",
        },
        Word { name: "borrow", kind: Kind::Flag, help: "may use what others leave", default: "off" },
        Word { name: "ceiling", kind: Kind::Rate, help: "most that it may have with borrowing", default: "none" },
        Word {
            name: "priority",
            kind: Kind::Int { min: 0, max: 7 },
            help: "who goes first within guarantee, 7 first",
            default: "1",
        },
        Word {
            name: "packetsize",
            kind: Kind::Bytes { min: 1, max: 65535 },
            help: "usual packet size, bytes: unit of maxburst",
            default: "the link's MTU",
        },
        Word {
            name: "maxpacketsize",
            kind: Kind::Bytes { min: 1, max: 65535 },
            help: "largest packet, bytes; classic only",
            default: "the link's MTU",
        },
        Word {
            name: "maxburst",
            kind: Kind::Int { min: 1, max: 65535 },
            help: "packets that idleness earns",
            default: "2 (exact), 16 or 4 (classic)",
        },
        Word {
            name: "minburst",
            kind: Kind::Int { min: 1, max: 65535 },
            help: "steady burst, packets; classic only",
            default: "2",
        },
        Word {
            name: "maxdelay",
            kind: Kind::Time,
            help: "sets the queue's limit from a delay; classic only",
            default: "none",
        },
        Word { name: "control", kind: Kind::Flag, help: "gets ICMP, IGMP and RSVP; classic only", default: "off" },
    ],
    default_queue: |scheduler: &Settings| QueueSpec {
        name: if scheduler.choice("estimator") == Some("classic") { "drop_head" } else { "drop_tail" },
        limit: Limit::Packets(50),
        settings: Settings::new(),
    },
    guarantee: |class: &Settings| Some(class.rate("rate").unwrap_or_default()),
    promises: promise::promises,
    build: |context, settings| match settings.choice("estimator") {
        Some("classic") => classic::build(context, settings),
        _ => exact::build(context, settings),
    },
};
