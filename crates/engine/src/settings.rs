//! The words that schedulers and queues understand, and their values.
//!
//! Each scheduler and queue lists its words in a table ([`Word`]). A parser reads values by this
//! table and hands them over as [`Settings`], from which the scheduler or queue takes each value by
//! its word. So a new scheduler needs no change in a parser. `--help` prints the same tables.

use crate::shape::service_curve::ServiceCurve;
use crate::units::{Nanos, Rate};

/// A word that a scheduler, a class or a queue understands.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// The word as written.
    pub name: &'static str,
    /// What stands behind it.
    pub kind: Kind,
    /// What it does, in a line; with its unit.
    pub help: &'static str,
    /// What holds when it is not written.
    pub default: &'static str,
}

/// What value a word takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// None: the word stands alone.
    Flag,
    /// A rate, or a percentage of the link or of the parent, which the language turns into a rate.
    Rate,
    /// A service curve: a rate, or one rate for a time and then another.
    Curve,
    /// A whole number within bounds, both included.
    Int {
        /// The least.
        min: u64,
        /// The greatest.
        max: u64,
    },
    /// A size in bytes, within bounds, both included.
    Bytes {
        /// The least.
        min: u64,
        /// The greatest.
        max: u64,
    },
    /// A span of time.
    Time,
    /// A number of packets or of bytes.
    Limit,
    /// A part of one, from 0 to 1, as `0.02`.
    Fraction,
    /// A percentage, from 0% to 100%, as `30%`.
    Percent,
    /// One of these words.
    Choice(&'static [&'static str]),
}

/// One, in the billionths of [`Value::Fraction`].
pub const ONE: u32 = 1_000_000_000;

/// A value given to a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// The word was written.
    Flag,
    /// A rate.
    Rate(Rate),
    /// A service curve.
    Curve(ServiceCurve),
    /// A whole number.
    Int(u64),
    /// Bytes.
    Bytes(u64),
    /// Nanoseconds.
    Time(Nanos),
    /// A number of packets or of bytes.
    Limit(Limit),
    /// A part of one, in billionths: at most [`ONE`].
    Fraction(u32),
    /// A percentage, as the part of one in billionths: at most [`ONE`].
    Percent(u32),
    /// One of the table's words.
    Choice(&'static str),
}

/// How much a queue holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// At most this many packets.
    Packets(u32),
    /// At most this many bytes of the packets' own (layer 3).
    Bytes(u32),
}

impl Limit {
    /// Whether both count packets, or both count bytes.
    pub fn same_unit(self, other: Limit) -> bool {
        matches!(self, Limit::Bytes(_)) == matches!(other, Limit::Bytes(_))
    }

    /// Whether so many packets of so many bytes together are more than this.
    #[inline]
    pub fn is_exceeded(self, packets: u32, bytes: u32) -> bool {
        match self {
            Limit::Packets(most) => packets > most,
            Limit::Bytes(most) => bytes > most,
        }
    }
}

/// The words given, with their values. At most one value a word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(Vec<(&'static str, Value)>);

impl Settings {
    /// No words.
    pub const fn new() -> Settings {
        Settings(Vec::new())
    }

    /// Gives a word its value, in place of one given before.
    pub fn set(&mut self, word: &'static str, value: Value) -> &mut Settings {
        match self.0.iter_mut().find(|(w, _)| *w == word) {
            Some(entry) => entry.1 = value,
            None => self.0.push((word, value)),
        }
        self
    }

    /// [`set`](Settings::set) for building in one expression.
    pub fn with(mut self, word: &'static str, value: Value) -> Settings {
        self.set(word, value);
        self
    }

    /// Takes a word out.
    pub fn unset(&mut self, word: &str) {
        self.0.retain(|(w, _)| *w != word);
    }

    /// The value of a word, if it was given.
    pub fn get(&self, word: &str) -> Option<Value> {
        self.0.iter().find(|(w, _)| *w == word).map(|(_, v)| *v)
    }

    /// All words given, in the order in which they were given.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Value)> {
        self.0.iter().copied()
    }

    /// True if the flag was written.
    pub fn flag(&self, word: &str) -> bool {
        matches!(self.get(word), Some(Value::Flag))
    }

    /// The rate given.
    pub fn rate(&self, word: &str) -> Option<Rate> {
        match self.get(word) {
            Some(Value::Rate(rate)) => Some(rate),
            _ => None,
        }
    }

    /// The service curve given.
    pub fn curve(&self, word: &str) -> Option<ServiceCurve> {
        match self.get(word) {
            Some(Value::Curve(curve)) => Some(curve),
            _ => None,
        }
    }

    /// The number given.
    pub fn int(&self, word: &str) -> Option<u64> {
        match self.get(word) {
            Some(Value::Int(n)) => Some(n),
            _ => None,
        }
    }

    /// The bytes given.
    pub fn bytes(&self, word: &str) -> Option<u64> {
        match self.get(word) {
            Some(Value::Bytes(n)) => Some(n),
            _ => None,
        }
    }

    /// The time given.
    pub fn time(&self, word: &str) -> Option<Nanos> {
        match self.get(word) {
            Some(Value::Time(t)) => Some(t),
            _ => None,
        }
    }

    /// The limit given.
    pub fn limit(&self, word: &str) -> Option<Limit> {
        match self.get(word) {
            Some(Value::Limit(limit)) => Some(limit),
            _ => None,
        }
    }

    /// The part of one given, in billionths.
    pub fn fraction(&self, word: &str) -> Option<u32> {
        match self.get(word) {
            Some(Value::Fraction(billionths)) => Some(billionths),
            _ => None,
        }
    }

    /// The percentage given, in billionths of one.
    pub fn percent(&self, word: &str) -> Option<u32> {
        match self.get(word) {
            Some(Value::Percent(billionths)) => Some(billionths),
            _ => None,
        }
    }

    /// The word chosen.
    pub fn choice(&self, word: &str) -> Option<&'static str> {
        match self.get(word) {
            Some(Value::Choice(c)) => Some(c),
            _ => None,
        }
    }
}
