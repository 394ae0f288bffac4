//! The words of the native language itself. Those of schedulers, queues and meters are in the
//! engine's registries.

use altq_engine::classify::Field;
use altq_engine::shape::meter;

use crate::reservations;

/// Words outside all braces.
pub const FILE: &[&str] = &["include", "set", "link"];

/// The words of a link.
pub const LINK: &[&str] = &[
    "device",
    "path",
    "rate",
    "mtu",
    "overhead",
    "regulator",
    "overcommit",
    "scheduler",
    "queue",
    "meter",
    "default",
    "class",
    "match",
];

/// The words of `adapt`, behind the rate of a link. `to` stands behind the value of `from`.
pub const ADAPT: &[&str] = &["from", "target", "reflectors"];

/// Words of every class, whatever its scheduler. `share` comes with a scheduler that knows `rate`.
pub const CLASS: &[&str] = &["class", "queue", "scheduler", "meter", "default", "reservations"];

/// Words of Cisco's MQC about a class's queue, and what is written here. Those that a scheduler has
/// other words for stand with the scheduler.
pub const FOREIGN: &[(&str, &str)] = &[
    ("random-detect", "queue red"),
    ("fair-queue", "queue fq_codel"),
    ("queue-limit", "queue drop_tail { limit 64packets }"),
];

/// The keys of a rule, and the field of a packet that each compares.
pub const KEYS: &[(&str, Field)] = &[
    ("src", Field::Src),
    ("dst", Field::Dst),
    ("host", Field::Host),
    ("sport", Field::SrcPort),
    ("dport", Field::DstPort),
    ("port", Field::Port),
    ("proto", Field::Proto),
    ("dscp", Field::Dscp),
    ("ecn", Field::Ecn),
    ("tos", Field::Tos),
    ("tcp-flags", Field::TcpFlags),
    ("length", Field::Length),
    ("mark", Field::Mark),
    ("vlan", Field::Vlan),
    ("interface", Field::Interface),
    ("family", Field::Family),
    ("spi", Field::Spi),
    ("flow-label", Field::FlowLabel),
];

/// MTU of a link that states none, in bytes.
pub const DEFAULT_MTU: u32 = 1500;

/// All words of the language itself: those of a file, of a link, of every class, of meters, of
/// reservations, and the keys of rules.
pub fn all() -> impl Iterator<Item = &'static str> {
    let meters = meter::WORDS.iter().map(|word| word.name).chain(meter::KINDS.iter().copied()).chain(meter::COLOURS);
    let keys = KEYS.iter().map(|(key, _)| *key);
    let reservations = reservations::WORDS.iter().map(|word| word.name);
    let own = [FILE, LINK, CLASS].into_iter().flatten().copied();
    let adapt = ADAPT.iter().copied().chain(["adapt", "to"]);
    let own = own.chain(meters).chain(reservations).chain(["pass", "drop"]).chain(keys);
    own.chain(adapt).chain(["share", "limit", "all"])
}
