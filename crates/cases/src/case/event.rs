//! What changes while a case runs.

use altq_engine::units::{Nanos, Rate};

/// Something that changes on the way.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedEvent {
    /// When.
    pub at: Nanos,
    /// What.
    pub what: What,
}

/// What changes.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// The link's rate, and that of its wire. Classes keep the rates that they have.
    LinkRate {
        /// Which, as a place in [`Case::links`](super::Case::links).
        link: usize,
        /// The new rate.
        rate: Rate,
    },
    /// Words of a class; words not given stay.
    SetClass {
        /// Which.
        class: String,
        /// Another parent.
        parent: Option<String>,
        /// The words.
        set: Vec<(String, WordValue)>,
    },
    /// A new class. Packets of `flows` go there.
    AddClass {
        /// Its name.
        class: String,
        /// The class above; `None`: the link.
        parent: Option<String>,
        /// Its words.
        set: Vec<(String, WordValue)>,
        /// Flows whose packets go there, as places in [`Case::flows`](super::Case::flows).
        flows: Vec<usize>,
    },
    /// A class goes, and the rules that lead to it.
    RemoveClass {
        /// Which.
        class: String,
        /// Who gets its packets; `None`: they are dropped.
        heir: Option<String>,
    },
    /// A flow starts or stops sending, whatever its times say.
    FlowActive {
        /// Which, as a place in [`Case::flows`](super::Case::flows).
        flow: usize,
        /// True: it sends from now on.
        active: bool,
    },
    /// A UDP flow's pace.
    FlowRate {
        /// Which, as a place in [`Case::flows`](super::Case::flows).
        flow: usize,
        /// The new rate.
        rate: Rate,
    },
}

/// A word's value in a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WordValue {
    /// With its unit, or a word.
    Text(String),
    /// A number.
    Number(u64),
    /// A flag that is set, or not.
    Flag(bool),
}
