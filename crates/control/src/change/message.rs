//! The data of changes: policies as text, who asked and when, and the questions of a worker to the
//! process that keeps the changes (the supervisor, or the worker itself).

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use altq_engine::units::Nanos;
use serde::{Deserialize, Serialize};

use crate::fault::Fault;

/// A policy as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Text {
    /// What messages call it: the path of its file.
    pub name: String,
    /// Its language, by the name that `--language` takes.
    pub language: String,
    /// The text.
    pub text: String,
}

impl Text {
    /// A hash of the text: it differs if texts differ.
    pub fn fingerprint(&self) -> u64 {
        // Another build may compute another hash. Then a text that was taken back is tried again.
        let mut hasher = DefaultHasher::new();
        (&self.language, &self.text).hash(&mut hasher);
        hasher.finish()
    }
}

/// The time of two clocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Clock {
    /// The wall clock, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// Nanoseconds since the boot, including time in which the host slept.
    pub boot_ns: u64,
    /// The kernel's name of this boot.
    pub boot_id: String,
}

/// Who asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct By {
    /// The user; `None`: altq itself.
    pub uid: Option<u32>,
    /// The process, if it is known.
    pub pid: Option<i32>,
}

/// How the policy was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// A policy was applied.
    Applied,
    /// The file was read again at SIGHUP.
    Hangup,
    /// A class or a rule was changed.
    Edited,
    /// The previous policy was brought back.
    RolledBack,
    /// A change was confirmed.
    Confirmed,
    /// A change was taken back.
    Reverted,
}

impl What {
    /// A word for people.
    pub const fn name(self) -> &'static str {
        match self {
            What::Applied => "applied",
            What::Hangup => "read again",
            What::Edited => "edited",
            What::RolledBack => "rolled back",
            What::Confirmed => "confirmed",
            What::Reverted => "reverted",
        }
    }
}

/// A change that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Entry {
    /// The number of the change. Its confirmation, or its end, has the same.
    pub number: u64,
    /// When, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// What happened.
    pub what: What,
    /// Who asked.
    pub by: By,
    /// The name of the policy.
    pub name: String,
    /// The differences, one line each.
    pub lines: Vec<String>,
    /// How many more lines there were.
    pub more: usize,
}

/// What must hold for a class while a change waits: of the packets that it sends in an interval, 99
/// of 100 have waited less than `p99_ns`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Guard {
    /// The link; `None`: any that has a class of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// The class.
    pub class: String,
    /// The bound of the 99th percentile of waiting times, in nanoseconds.
    pub p99_ns: Nanos,
}

/// A guard of the change that waits, and how often it was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Watched {
    /// The guard.
    pub guard: Guard,
    /// How many intervals were looked at, all of them after the change.
    pub intervals: u64,
    /// How often the class had sent enough packets in them to be measured.
    pub checks: u64,
}

/// What a worker asks the process that keeps the changes.
#[allow(clippy::large_enum_variant, reason = "one at a time, on its way")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Ask {
    /// The rates that clients have set, which come back if the change that begins next is taken
    /// back.
    Rates {
        /// By link, in bit/s.
        rates: BTreeMap<String, u64>,
    },
    /// A change is to be made.
    Begin {
        /// The new policy.
        text: Text,
        /// The one that runs.
        before: Text,
        /// For how long it waits.
        wait_ns: Option<Nanos>,
        /// What must hold meanwhile.
        guards: Vec<Guard>,
        /// How the change came about.
        what: What,
        /// Who asks.
        by: By,
        /// The differences, one line each.
        lines: Vec<String>,
    },
    /// The change that was begun is made.
    Made,
    /// The change that was begun is not made.
    Abort,
    /// The change that waits is confirmed.
    Confirm {
        /// Who asks.
        by: By,
    },
    /// What comes back if the change that waits is taken back.
    Old,
    /// The policy that ran before the one that runs.
    Previous {
        /// Also if the last change was taken back already.
        force: bool,
    },
    /// The change that waited was taken back by the one who asks.
    Reverted {
        /// Why.
        why: String,
    },
    /// The file of the start was given the text that runs.
    Saved,
    /// What was changed.
    History,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Answer {
    /// It is done. A change has this number.
    Done {
        /// The number.
        number: u64,
        /// What could not be done in addition, for people.
        note: Option<String>,
    },
    /// It is not done.
    Refused {
        /// Why.
        fault: Fault,
    },
    /// A policy.
    Policy {
        /// The policy.
        text: Text,
    },
    /// What comes back if the change that waits is taken back.
    Old {
        /// The policy.
        text: Text,
        /// By link, the rates that clients had set, in bit/s.
        rates: BTreeMap<String, u64>,
    },
    /// What was changed, the latest last.
    History {
        /// The list.
        entries: Vec<Entry>,
    },
}

/// A question of a worker, with its number. As JSON it begins with `{"keep":`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Its number.
    pub keep: u64,
    /// What is asked.
    pub ask: Ask,
}

/// The answer to the question of this number. As JSON it begins with `{"kept":`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The number.
    pub kept: u64,
    /// The answer.
    pub answer: Answer,
}
