//! The checks of a policy that only its scheduler can make: words that contradict each other,
//! classes that never send, shares that add up to too much. Each scheduler has its own checks
//! ([`Entry::check`]). A language adds where in the text each finding is.

use super::Entry;
use crate::settings::Settings;
use crate::spec::{ClassId, ClassSpec, LinkSpec, SchedulerSpec};
use crate::units::Rate;

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The policy is refused.
    Error,
    /// The policy is accepted, and the user is told.
    Warning,
    /// Like a warning, but told only to a user who asks what the policy promises.
    Advice,
}

/// Where in a policy a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// A class.
    Class(ClassId),
    /// A word of a class, `queue` and `scheduler` included; the class where it is not written.
    Word(ClassId, &'static str),
    /// A word of the scheduler that a class holds; the word `scheduler` where it is not written.
    Scheduler(ClassId, &'static str),
}

impl At {
    /// The class.
    pub const fn class(self) -> ClassId {
        let (At::Class(class) | At::Word(class, _) | At::Scheduler(class, _)) = self;
        class
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How serious it is.
    pub severity: Severity,
    /// A stable name for this kind of finding: `never-sends`, `small-burst`, …
    pub code: &'static str,
    /// Where it is.
    pub at: At,
    /// What is wrong, with the numbers.
    pub message: String,
    /// Other places that matter, each with a word on why.
    pub labels: Vec<(At, String)>,
    /// The way out.
    pub help: Option<String>,
}

impl Finding {
    /// An error.
    pub fn error(code: &'static str, at: At, message: impl Into<String>) -> Finding {
        Finding { severity: Severity::Error, code, at, message: message.into(), labels: Vec::new(), help: None }
    }

    /// A warning.
    pub fn warning(code: &'static str, at: At, message: impl Into<String>) -> Finding {
        Finding { severity: Severity::Warning, ..Finding::error(code, at, message) }
    }

    /// Advice.
    pub fn advice(code: &'static str, at: At, message: impl Into<String>) -> Finding {
        Finding { severity: Severity::Advice, ..Finding::error(code, at, message) }
    }

    /// Adds the way out.
    pub fn help(mut self, help: impl Into<String>) -> Finding {
        self.help = Some(help.into());
        self
    }

    /// Adds another place.
    pub fn label(mut self, at: At, text: impl Into<String>) -> Finding {
        self.labels.push((at, text.into()));
        self
    }
}

/// A link, as the check of one scheduler sees it.
pub struct View<'l> {
    /// The link.
    pub link: &'l LinkSpec,
    /// Names of its classes, by number.
    pub names: &'l [&'l str],
    /// The children of each class.
    pub children: &'l [Vec<ClassId>],
    /// Which classes hold packets of their own.
    pub holders: &'l [bool],
    /// The highest rate that the link may get while it runs; that of `link` is the one at the
    /// start.
    pub most: Rate,
    /// More may be guaranteed than there is.
    pub overcommit: bool,
    /// Of which scheduler this is the check.
    pub entry: &'static Entry,
}

impl<'l> View<'l> {
    /// The classes that the scheduler serves, in the order of their numbers.
    pub fn classes(&self) -> impl Iterator<Item = ClassId> + '_ {
        (1..self.link.classes.len() as ClassId).filter(|class| self.scheduler(*class).is_some())
    }

    /// The places at which the scheduler stands, with its own words: the link, or a class that
    /// holds it.
    pub fn places(&self) -> impl Iterator<Item = (ClassId, &'l Settings)> + '_ {
        (0..self.link.classes.len() as ClassId).filter_map(|holder| {
            let scheduler = self.link.scheduler_at(holder).filter(|scheduler| scheduler.name == self.entry.name)?;
            Some((holder, &scheduler.settings))
        })
    }

    /// What serves a class, if it is this scheduler.
    pub fn scheduler(&self, class: ClassId) -> Option<&'l SchedulerSpec> {
        self.link.serving(class).filter(|scheduler| scheduler.name == self.entry.name)
    }

    /// The name of a class.
    pub fn name(&self, class: ClassId) -> &'l str {
        self.names.get(class as usize).copied().unwrap_or("")
    }

    fn spec(&self, class: ClassId) -> &'l ClassSpec {
        // Numbers of classes come from this view.
        &self.link.classes[class as usize]
    }

    /// The words of a class.
    pub fn settings(&self, class: ClassId) -> &'l Settings {
        &self.spec(class).settings
    }

    /// The class above.
    pub fn parent(&self, class: ClassId) -> ClassId {
        self.spec(class).parent
    }

    /// The classes below a class, whoever serves them.
    pub fn children(&self, class: ClassId) -> &'l [ClassId] {
        self.children.get(class as usize).map_or(&[], Vec::as_slice)
    }

    /// True if the class has others below it.
    pub fn is_inner(&self, class: ClassId) -> bool {
        !self.children(class).is_empty()
    }

    /// True if the class holds packets of its own: it has none below it, or a rule or the default
    /// leads to it.
    pub fn holds_packets(&self, class: ClassId) -> bool {
        self.holders.get(class as usize).is_some_and(|holds| *holds)
    }

    /// True if the class holds a scheduler of its own.
    pub fn holds_scheduler(&self, class: ClassId) -> bool {
        self.spec(class).scheduler.is_some()
    }

    /// True if a queue is written for the class.
    pub fn has_queue(&self, class: ClassId) -> bool {
        self.spec(class).queue.is_some()
    }

    /// What a class is guaranteed, in words.
    pub fn guarantee(&self, class: ClassId) -> Rate {
        self.link.guarantee(class).unwrap_or_default()
    }

    /// The largest packet, in bytes on the wire.
    pub fn largest(&self) -> u64 {
        u64::from(self.link.overhead.charge(self.link.mtu))
    }
}
