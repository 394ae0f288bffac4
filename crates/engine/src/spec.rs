//! What a link is made of: the checked description from which an [`Engine`](crate::Engine) is
//! built.
//!
//! Every language is turned into these types. The engine knows classes by number only; their names
//! stay in the policy.

use crate::classify::RuleSet;
use crate::link::Overhead;
use crate::queue;
use crate::schedule::{self, Entry};
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
    /// The link's rate: shares are parts of it, and the regulator keeps to it.
    pub rate: Rate,
    /// The largest packet at layer 3, in bytes.
    pub mtu: u32,
    /// What is charged for a packet beyond its own bytes.
    pub overhead: Overhead,
    /// What keeps the backlog in the scheduler's queues, out of the device's.
    pub regulator: Regulator,
    /// When the caller's timers can fire.
    pub timer: Timer,
    /// The scheduler of the root.
    pub scheduler: SchedulerSpec,
    /// The classes, parents before children. The first is the root; its `parent` is not used.
    pub classes: Vec<ClassSpec>,
    /// Which packet belongs to which class.
    pub rules: RuleSet,
    /// Where packets go that no rule matches; without one they are dropped (reason `no_class`).
    pub default: Option<ClassId>,
}

impl LinkSpec {
    /// A link of this rate with this scheduler and these classes. It has an MTU of 1500 bytes, no
    /// overhead, no regulator, exact timers, no rules, and no default class.
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

    /// The children of each class, in the order in which they are written.
    pub fn children(&self) -> Vec<Vec<ClassId>> {
        let mut children = vec![Vec::new(); self.classes.len()];
        for (id, class) in self.classes.iter().enumerate().skip(1) {
            if let Some(list) = children.get_mut(class.parent as usize) {
                list.push(id as ClassId);
            }
        }
        children
    }

    /// Which classes hold packets of their own: those without children, and those that a rule or
    /// the default leads to.
    pub fn holders(&self) -> Vec<bool> {
        let mut holders: Vec<bool> = self.children().iter().map(Vec::is_empty).collect();
        for class in self.rules.rules.iter().map(|rule| rule.class).chain(self.default) {
            if let Some(holds) = holders.get_mut(class as usize) {
                *holds = true;
            }
        }
        holders
    }

    /// The scheduler that stands at a class: the link's at the root.
    pub fn scheduler_at(&self, class: ClassId) -> Option<&SchedulerSpec> {
        match class {
            ROOT => Some(&self.scheduler),
            _ => self.classes.get(class as usize)?.scheduler.as_ref(),
        }
    }

    /// The scheduler that serves a class: that of the nearest class above that holds one. For the
    /// root its own.
    pub fn serving(&self, class: ClassId) -> Option<&SchedulerSpec> {
        let mut at = class;
        while at != ROOT {
            at = self.classes.get(at as usize)?.parent;
            if let Some(scheduler) = &self.classes.get(at as usize)?.scheduler {
                return Some(scheduler);
            }
        }
        Some(&self.scheduler)
    }

    /// True if the link's own scheduler serves a class, and not one that a class holds.
    pub fn served_by_root(&self, class: ClassId) -> bool {
        self.serving(class).is_some_and(|scheduler| std::ptr::eq(scheduler, &self.scheduler))
    }

    /// The registry's entry of the scheduler that serves a class.
    pub fn entry_of(&self, class: ClassId) -> Option<&'static Entry> {
        schedule::find(self.serving(class)?.name)
    }

    /// The rate that a class is guaranteed by its words; `None` if its scheduler guarantees none.
    /// The root has the link's rate.
    pub fn guarantee(&self, class: ClassId) -> Option<Rate> {
        match class {
            ROOT => Some(self.rate),
            _ => (self.entry_of(class)?.guarantee)(&self.classes.get(class as usize)?.settings),
        }
    }

    /// The rate that the classes below a class share: what it is shaped to, or else guaranteed. The
    /// root has the link's rate.
    pub fn capacity(&self, class: ClassId) -> Option<Rate> {
        match class {
            ROOT => Some(self.rate),
            _ => self.entry_of(class)?.capacity(&self.classes.get(class as usize)?.settings),
        }
    }

    /// The rate of which a class's share is a part. With the link's own scheduler it is the link's
    /// rate. With a scheduler that a class holds it is the rate to which that class is shaped, or
    /// which it is guaranteed; if that is 0, it is the rate of which that class's own share is a
    /// part.
    pub fn measure(&self, class: ClassId) -> Rate {
        let mut at = class;
        while let Some(parent) = self.classes.get(at as usize).map(|spec| spec.parent).filter(|_| at != ROOT) {
            at = parent;
            let holds = self.classes.get(at as usize).is_some_and(|spec| spec.scheduler.is_some());
            if holds && let Some(rate) = self.capacity(at).filter(|rate| !rate.is_zero()) {
                return rate;
            }
        }
        self.rate
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

    /// The scheduler that tells no classes apart: [`schedule::PLAIN`].
    pub const fn plain() -> SchedulerSpec {
        SchedulerSpec { name: schedule::PLAIN.name, settings: Settings::new() }
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

    /// The queue that drops the arriving packet when it is full: [`queue::PLAIN`].
    pub const fn plain(limit: Limit) -> QueueSpec {
        QueueSpec { name: queue::PLAIN.name, limit, settings: Settings::new() }
    }
}

/// What keeps packets in the scheduler's queues, and out of the device's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Regulator {
    /// None: the device takes what it wants.
    #[default]
    None,
    /// One packet after another, as on a wire of the link's rate: [`Pacer`](crate::shape::pacer).
    Auto,
    /// A [token bucket](crate::shape::token_bucket) of ALTQ's depth for the link's rate: 1 MTU up
    /// to 1 Mbit/s, 4 up to 10, 8 up to 200, 24 above; with a tick timer at least what the rate
    /// brings in a tick (docs/reference/altq.md 1.3).
    Altq,
    /// A token bucket of this depth in bytes.
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

/// Why a description or a change is refused: the class, the word, the reason, and a way out.
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

    /// Names the class, unless one is named already.
    pub fn of(mut self, class: ClassId) -> SpecError {
        self.class.get_or_insert(class);
        self
    }
}
