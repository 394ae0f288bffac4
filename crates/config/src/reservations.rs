//! The class below which reservations go, and what the policy allows them. Its checks are in
//! `check/reserved.rs`.
//!
//! In altq.conf it is the class with `admission cntlload`, in the native language the class with
//! `reservations`. The classes of the reservations themselves are made while the link runs; no
//! policy has them.

use altq_engine::settings::{Kind, Settings, Word};
use altq_engine::spec::ClassId;
use altq_engine::units::{Nanos, Rate};

use crate::diagnostic::Span;

/// The words in the braces of `reservations`.
pub(crate) const WORDS: &[Word] = &[
    Word {
        name: "buffer",
        kind: Kind::Bytes { min: 1, max: u32::MAX as u64 },
        help: "bursts of all reservations together, bytes",
        default: "what the class's queue holds",
    },
    Word {
        name: "delay",
        kind: Kind::Time,
        help: "the longest that a packet of a reservation may wait",
        default: "any",
    },
    Word { name: "lifetime", kind: Kind::Time, help: "the longest between two refreshes", default: "any" },
    Word {
        name: "most",
        kind: Kind::Int { min: 1, max: 1_000_000 },
        help: "reservations at the same time",
        default: "1000000",
    },
    Word { name: "owner-rate", kind: Kind::Rate, help: "reserved for one owner together", default: "all" },
    Word {
        name: "owner-most",
        kind: Kind::Int { min: 1, max: 1_000_000 },
        help: "reservations of one owner at the same time",
        default: "all",
    },
];

/// The most reservations of a link where the policy does not say it.
const MOST: u64 = 1_000_000;

/// The class below which reservations go, and what the policy allows them.
#[derive(Clone, Debug)]
pub struct Reservations {
    /// The class.
    pub class: ClassId,
    /// The words that are written.
    pub settings: Settings,
    /// Where `reservations` is written; in altq.conf, where the interface is named.
    pub span: Span,
    /// Where each word is written.
    pub words: Vec<(&'static str, Span)>,
}

impl Reservations {
    /// A class without further words.
    pub(crate) fn new(class: ClassId, span: Span) -> Reservations {
        Reservations { class, settings: Settings::new(), span, words: Vec::new() }
    }

    /// The longest that a packet of a reservation may wait, in nanoseconds; `None`: any time.
    pub fn delay(&self) -> Option<Nanos> {
        self.settings.time("delay")
    }

    /// The longest time between two refreshes, in nanoseconds; `None`: any time.
    pub fn lifetime(&self) -> Option<Nanos> {
        self.settings.time("lifetime")
    }

    /// How many reservations there may be at the same time.
    pub fn most(&self) -> u64 {
        self.settings.int("most").unwrap_or(MOST)
    }

    /// What one owner may have reserved at the same time, as the link charges it; `None`: all.
    pub fn owner_rate(&self) -> Option<Rate> {
        self.settings.rate("owner-rate")
    }

    /// How many reservations one owner may have at the same time; `None`: all.
    pub fn owner_most(&self) -> Option<u64> {
        self.settings.int("owner-most")
    }

    /// Where a word is written, or the whole where it is not.
    pub(crate) fn place(&self, word: &str) -> Span {
        self.words.iter().find(|(name, _)| *name == word).map_or(self.span, |(_, span)| *span)
    }
}
