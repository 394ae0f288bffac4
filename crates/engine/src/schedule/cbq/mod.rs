//! Class-based queueing (Floyd and Jacobson 1995): guarantees, priorities, and borrowing along a
//! tree.
//!
//! Two estimators under one scheduler: `exact` keeps the promises that CBQ was designed for,
//! `classic` is ALTQ's to the letter.

mod bounds;
mod check;
mod classic;
mod exact;
pub mod ideal;
mod promise;
mod reservation;

pub use classic::queue_limit as classic_queue_limit;

use super::{AltqstatForm, Entry, Order, OwnPackets, QueueWord, Rank, Role};
use crate::settings::{Kind, Limit, Settings, Word};
use crate::spec::QueueSpec;
use crate::units::Rate;

/// The registry's entry.
pub const ENTRY: Entry = Entry {
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
    roles: &[
        ("rate", Role::Guarantee),
        ("ceiling", Role::Ceiling),
        ("borrow", Role::Borrow),
        ("priority", Role::Priority),
    ],
    rank: |scheduler, class| {
        let by_priority =
            scheduler.choice("excess") == Some("priority") || scheduler.choice("estimator") == Some("classic");
        by_priority.then(|| Rank::Beyond(7_u64.saturating_sub(class.int("priority").unwrap_or(1))))
    },
    foreign: &[
        ("bandwidth", "share 5%` or `rate 5Mbit/s"),
        ("guarantee", "share 5%` or `rate 5Mbit/s"),
        ("ceil", "ceiling"),
        ("limit", "queue drop_tail { limit 50packets }"),
        ("qlimit", "queue drop_tail { limit 50packets }"),
        ("prio", "priority"),
    ],
    variant: Some("estimator"),
    order: Order::Priority(|scheduler| match (is_classic(scheduler), scheduler.choice("excess")) {
        (true, _) => "what is left goes to borrowers by priority, then in weighted rounds",
        (_, Some("priority")) => "what is left goes to the nearest borrowers, by priority, then in proportion to rates",
        _ => "what is left goes to all borrowers in proportion to their rates",
    }),
    // Classic goes round in the order in which classes were made.
    order_of_making: is_classic,
    unregulated: is_classic,
    queue: |scheduler, _| QueueSpec {
        name: if is_classic(scheduler) { "drop_head" } else { "drop_tail" },
        limit: Limit::Packets(LIMIT),
        settings: Settings::new(),
    },
    queue_word: Some(QueueWord { word: "maxdelay", queue: queue_of_delay }),
    guarantee: |class| Some(class.rate("rate").unwrap_or_default()),
    promises: promise::promises,
    no_bound: |scheduler| is_classic(scheduler).then_some("the classic estimator guarantees no delay"),
    bounds: Some(bounds::bounds),
    kept_bounds: |link| if is_classic(&link.scheduler.settings) { None } else { Some(bounds::kept(link)) },
    reservation: Some(reservation::words),
    burst: |link, class| u64::try_from(bounds::burst(link, class)).unwrap_or(u64::MAX),
    own_packets: OwnPackets::Rest,
    check: check::check,
    notes: check::notes,
    altqstat: AltqstatForm::Tree,
    ..Entry::new(
        "cbq",
        "class-based queueing: guarantees, priorities, borrowing along the tree",
        |context, settings| {
            if is_classic(settings) { classic::build(context, settings) } else { exact::build(context, settings) }
        },
    )
};

/// Packets that a class's queue holds.
const LIMIT: u32 = 50;

/// Whether the scheduler works by the classic estimator.
fn is_classic(scheduler: &Settings) -> bool {
    scheduler.choice("estimator") == Some("classic")
}

/// The classic estimator's `maxdelay` says how long the queue is (docs/reference/altq.md 2.2).
fn queue_of_delay(scheduler: &Settings, class: &Settings, rate: Rate, mtu: u32) -> Option<QueueSpec> {
    class.get("maxdelay").filter(|_| is_classic(scheduler))?;
    let limit = Limit::Packets(classic_queue_limit(rate, mtu, class, LIMIT));
    Some(QueueSpec { name: "drop_head", limit, settings: Settings::new() })
}
