//! What a link is made of: the checked description from which an [`Engine`](crate::Engine) is
//! built.
//!
//! Languages lower to these types; the engine knows classes by number only, names stay with the
//! policy.

use crate::classify::RuleSet;
use crate::link::Overhead;
use crate::settings::{Limit, Settings};
use crate::units::{Nanos, Rate};

/// A class's number in its link: its place in [`LinkSpec::classes`], and for classes added later
/// the number that [`Engine::apply`](crate::Engine::apply) returned. Freed numbers are used again.
pub type ClassId = u32;

/// The root: the link itself.
pub const ROOT: ClassId = 0;

/// A link and everything below it.
#[derive(Clone, Debug)]
pub struct LinkSpec {
    /// The rate by which shares are measured, and that of the regulator.
    pub rate: Rate,
    /// The largest packet at layer 3, in bytes.
    pub mtu: u32,
    /// What is charged for a packet beyond its own bytes.
    pub overhead: Overhead,
    /// What keeps the backlog on our side of the device.
    pub regulator: Regulator,
    /// When the caller's timers can fire.
    pub timer: Timer,
    /// The scheduler of the root.
    pub scheduler: SchedulerSpec,
    /// The classes, parents before children. The first is the root; its `parent` is not looked at.
    pub classes: Vec<ClassSpec>,
    /// Which packet belongs to which class.
    pub rules: RuleSet,
    /// Where packets go that no rule matches; without one they are dropped (reason `no_class`).
    pub default: Option<ClassId>,
}

impl LinkSpec {
    /// A link by what every link has. The rest is plain: an MTU of 1500 bytes, no overhead, no
    /// regulator, exact timers, no rules, no default class.
    pub fn new(rate: Rate, scheduler: SchedulerSpec, classes: Vec<ClassSpec>) -> LinkSpec {
        LinkSpec {
            rate,
            mtu: 1500,
            overhead: Overhead::NONE,
            regulator: Regulator::None,
            timer: Timer::Exact,
            scheduler,
            classes,
            rules: RuleSet::default(),
            default: None,
        }
    }
}

/// A scheduler, by its name in the [registry](crate::schedule::SCHEDULERS), and its own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerSpec {
    /// Its name: `cbq`, `fifo`, …
    pub name: &'static str,
    /// Words behind its name, in braces in the native language.
    pub settings: Settings,
}

impl SchedulerSpec {
    /// A scheduler without words of its own.
    pub const fn new(name: &'static str) -> SchedulerSpec {
        SchedulerSpec { name, settings: Settings::new() }
    }
}

/// A class.
#[derive(Clone, Debug)]
pub struct ClassSpec {
    /// The class above.
    pub parent: ClassId,
    /// The words of the scheduler that serves this class: that of the nearest class above that
    /// holds one.
    pub settings: Settings,
    /// The buffer for packets of its own; `None`: the scheduler's default.
    pub queue: Option<QueueSpec>,
    /// A scheduler for what is below this class. `None`: the classes below belong to the scheduler
    /// of this class.
    pub scheduler: Option<SchedulerSpec>,
}

impl ClassSpec {
    /// A class with its scheduler's default queue, and without a scheduler of its own.
    pub const fn new(parent: ClassId, settings: Settings) -> ClassSpec {
        ClassSpec { parent, settings, queue: None, scheduler: None }
    }

    /// The root, without words of its own.
    pub const fn root() -> ClassSpec {
        ClassSpec::new(ROOT, Settings::new())
    }
}

/// A queue, by its name in the [registry](crate::queue::QUEUES), its limit and its own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSpec {
    /// Its name: `drop_tail`, `drop_head`, …
    pub name: &'static str,
    /// How much it holds.
    pub limit: Limit,
    /// Its own words.
    pub settings: Settings,
}

impl QueueSpec {
    /// A queue without words of its own.
    pub const fn new(name: &'static str, limit: Limit) -> QueueSpec {
        QueueSpec { name, limit, settings: Settings::new() }
    }
}

/// The token bucket between scheduler and device (docs/reference/altq.md 1.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Regulator {
    /// None: the device takes what it wants.
    #[default]
    None,
    /// A bucket of ALTQ's depth for the link's rate: 1, 4, 8 or 24 MTU up to 1, 10, 200 Mbit/s and
    /// above; under a tick timer at least what the rate brings in a tick.
    Auto,
    /// A bucket of this depth in bytes.
    Depth(u32),
}

/// When the caller's timers can fire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timer {
    /// At any nanosecond.
    #[default]
    Exact,
    /// At multiples of this many nanoseconds only.
    Tick(Nanos),
}

/// Why a description or a change cannot be: which class, which word, the reason, and a way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SpecError {
    /// The class it is about.
    pub class: Option<ClassId>,
    /// The word it is about.
    pub word: Option<&'static str>,
    /// What is wrong, with the numbers.
    pub message: String,
    /// What could be written instead.
    pub help: Option<String>,
}

impl SpecError {
    /// An error about a link or a class as a whole.
    pub fn new(message: impl Into<String>) -> SpecError {
        SpecError { class: None, word: None, message: message.into(), help: None }
    }

    /// An error about one word.
    pub fn word(word: &'static str, message: impl Into<String>) -> SpecError {
        SpecError { word: Some(word), ..SpecError::new(message) }
    }

    /// Adds the way out.
    pub fn help(mut self, help: impl Into<String>) -> SpecError {
        self.help = Some(help.into());
        self
    }

    /// Says which class it is.
    pub fn of(mut self, class: ClassId) -> SpecError {
        self.class.get_or_insert(class);
        self
    }
}
