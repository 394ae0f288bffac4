//! The class below which reservations go, and what the policy allows them: how it is kept, and how
//! it is checked.
//!
//! In altq.conf it is the class with `admission cntlload`, in the native language the class with
//! `reservations`. The classes of the reservations themselves are made while the link runs; no
//! policy has them.

use altq_engine::schedule::Entry;
use altq_engine::settings::{Kind, Limit, Settings, Word};
use altq_engine::spec::ClassId;
use altq_engine::units::{Nanos, Rate};

use crate::diagnostic::{Diagnostic, Findings, Span};
use crate::policy::Link;
use crate::promise::Promises;

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

    fn place(&self, word: &str) -> Span {
        self.words.iter().find(|(name, _)| *name == word).map_or(self.span, |(_, span)| *span)
    }
}

impl Link {
    /// What the bursts of all reservations may add up to, in bytes at layer 3: as written, or what
    /// the queue of their class holds. 0 for a link without a class for reservations.
    pub fn reservation_buffer(&self) -> u64 {
        let Some(reservations) = &self.reservations else { return 0 };
        reservations.settings.bytes("buffer").unwrap_or_else(|| {
            match self.queue(reservations.class).map(|queue| queue.limit) {
                Some(Limit::Packets(packets)) => u64::from(packets) * u64::from(self.spec.mtu),
                Some(Limit::Bytes(bytes)) => u64::from(bytes),
                None => 0,
            }
        })
    }

    /// What all reservations may be guaranteed together: what their class can count on, less what
    /// the policy's own classes below it are guaranteed. 0 for a link without a class for
    /// reservations.
    pub fn reservable(&self) -> Rate {
        let Some(reservations) = &self.reservations else { return Rate::ZERO };
        let whole = Promises::new(self).guaranteed(reservations.class).unwrap_or_default().as_bit_s();
        let children = self.children();
        let below = children.get(reservations.class as usize).into_iter().flatten();
        let taken = below.map(|child| self.guarantee(*child).unwrap_or_default().as_bit_s());
        Rate::bit_s(whole.saturating_sub(taken.fold(0, u64::saturating_add)))
    }
}

/// Checks the class for reservations: its scheduler must take them, and must be the link's own.
/// Then it must promise what the words ask for.
pub(crate) fn check(link: &Link, findings: &mut Findings) {
    let Some(reservations) = &link.reservations else { return };
    let class = reservations.class;
    let name = link.class_name(class);
    let entry: Option<&Entry> = link.entry_of(class);
    let mut error = |code, span, message: String, help: &str| {
        findings.push(Diagnostic::error(code, span, message).help(help));
    };
    let holds = link.spec.classes.get(class as usize).is_some_and(|spec| spec.scheduler.is_some());
    if holds || !link.spec.served_by_root(class) {
        let message = format!("reservations below `{name}` would be served by a scheduler inside a class");
        return error("wrong-class", reservations.span, message, "write it in a class of the link's own scheduler");
    }
    let Some(entry) = entry.filter(|entry| entry.reservation.is_some()) else {
        let takes: Vec<&str> =
            altq_engine::schedule::all().filter(|e| e.reservation.is_some()).map(|e| e.name).collect();
        let message = format!("{} takes no reservations", entry.map_or("its scheduler", |entry| entry.name));
        return error("wrong-scheduler", reservations.span, message, &format!("these do: {}", takes.join(", ")));
    };
    if reservations.delay().is_some() {
        let why = (entry.no_bound)(&link.spec.scheduler.settings);
        if let Some(why) = why {
            return error("no-bound", reservations.place("delay"), why.to_owned(), "leave `delay` out");
        }
        if reservations.delay() == Some(0) {
            let message = "no packet waits for no time".to_owned();
            return error("out-of-range", reservations.place("delay"), message, "as `delay 50ms`");
        }
    }
    if reservations.lifetime() == Some(0) {
        let message = "a reservation of no time is none".to_owned();
        return error("out-of-range", reservations.place("lifetime"), message, "as `lifetime 600s`");
    }
    if link.reservable().is_zero() {
        let message = format!("nothing can be reserved below `{name}`: it has no rate that no class below it has");
        let warning = Diagnostic::warning("nothing-to-reserve", reservations.span, message);
        findings.push(warning.help("give the class a share, or leave `reservations` out"));
    }
}
