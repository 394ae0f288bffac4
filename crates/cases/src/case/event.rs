//! Changes while a case runs.

use altq_engine::units::{Nanos, Rate};

/// A change during the run.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedEvent {
    /// The time of the change.
    pub at: Nanos,
    /// The change.
    pub what: What,
}

/// Kinds of changes.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// The link's rate, and that of its wire. Classes keep the rates that they have.
    LinkRate {
        /// The index of the link in [`Case::links`](super::Case::links).
        link: usize,
        /// The new rate.
        rate: Rate,
    },
    /// Words of a class. Words that are not given stay as they are.
    SetClass {
        /// The class.
        class: String,
        /// Its new parent; `None`: it stays where it is.
        parent: Option<String>,
        /// The new words.
        set: Vec<(String, WordValue)>,
    },
    /// A new class, to which the packets of `flows` go.
    AddClass {
        /// Its name.
        class: String,
        /// The class above; `None`: the link.
        parent: Option<String>,
        /// Its words.
        set: Vec<(String, WordValue)>,
        /// Indices in [`Case::flows`](super::Case::flows) of the flows whose packets go there.
        flows: Vec<usize>,
    },
    /// A class is removed, with the rules that lead to it.
    RemoveClass {
        /// The class.
        class: String,
        /// The class that gets its packets; `None`: they are dropped.
        heir: Option<String>,
    },
    /// A flow starts or stops sending, whatever its times say.
    FlowActive {
        /// The index of the flow in [`Case::flows`](super::Case::flows).
        flow: usize,
        /// True if it sends from now on.
        active: bool,
    },
    /// The rate of a UDP flow.
    FlowRate {
        /// The index of the flow in [`Case::flows`](super::Case::flows).
        flow: usize,
        /// The new rate.
        rate: Rate,
    },
}

/// The value of a word in a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WordValue {
    /// A text: a number with its unit, or a word.
    Text(String),
    /// A number.
    Number(u64),
    /// A flag: true if it is set.
    Flag(bool),
}
