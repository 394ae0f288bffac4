//! A policy, as every language is read into it.

use std::net::IpAddr;

use altq_engine::schedule::Entry;
use altq_engine::settings::Value;
use altq_engine::spec::{ClassId, LinkSpec, QueueSpec};
use altq_engine::units::{Nanos, Rate};

use crate::diagnostic::{Diagnostic, Sources, Span};
use crate::reservations::Reservations;

/// The longest name of a link or a class in the native language, in bytes.
pub const LONGEST_NAME: usize = 255;
/// The code of the warning about an `include` that names no file.
pub(crate) const NOTHING_INCLUDED: &str = "include-nothing";

/// A whole policy, read and checked. It has no errors.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Its links, at least one.
    pub links: Vec<Link>,
    /// Warnings: what the user should know, though it is not an error.
    pub warnings: Vec<Diagnostic>,
    /// The texts it was read from.
    pub sources: Sources,
}

impl Policy {
    /// The link of this name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// Whether its text names other files with `include`, even if none has such a name. Then the
    /// first text alone is not the policy.
    pub fn includes(&self) -> bool {
        self.sources.texts.len() > 1 || self.warnings.iter().any(|warning| warning.code == NOTHING_INCLUDED)
    }
}

/// A link: what the engine is built from, and the names and places that the engine does not know.
#[derive(Clone, Debug)]
pub struct Link {
    /// Its name: the link's in the native language, the interface's in altq.conf.
    pub name: String,
    /// The interfaces that it shapes; `None` for a link of a replay or a simulation.
    pub device: Option<Device>,
    /// What executes it there, if the word `path` says so; otherwise [`Link::path`] does.
    pub written_path: Option<Path>,
    /// How its rate follows the line; `None`: it stays what it is.
    pub adapt: Option<Adapt>,
    /// What the engine is built from. Its rate is the one at the start.
    pub spec: LinkSpec,
    /// Names and places of `spec.classes`, in the same order; the first is the root.
    pub classes: Vec<Class>,
    /// Places of `spec.rules.rules`, in the same order.
    pub rules: Vec<Span>,
    /// The class below which reservations go, if the policy has one.
    pub reservations: Option<Reservations>,
    /// Whether the word `overcommit` was written: guarantees may then exceed what there is.
    pub overcommit: bool,
    /// Where the link is named.
    pub span: Span,
    /// What the language implies without the user writing it, one line each: for example the MTU
    /// and the token bucket of an altq.conf.
    pub notes: Vec<String>,
}

impl Link {
    /// What executes the link on its device: what the word `path` says, or else altq itself, which
    /// keeps every word. `None` for a link without a device.
    pub fn path(&self) -> Option<Path> {
        let own = match self.device.as_ref()? {
            Device::Interface { .. } => Path::Nfqueue,
            Device::Bridge { .. } => Path::Bridge,
        };
        Some(self.written_path.unwrap_or(own))
    }

    /// The depth of its token bucket between scheduler and device, in bytes, if it has one.
    pub fn bucket(&self) -> Option<u32> {
        self.spec.regulator.depth(self.spec.rate, self.spec.mtu, self.spec.timer)
    }

    /// The class of this name.
    pub fn class(&self, name: &str) -> Option<ClassId> {
        self.classes.iter().position(|class| class.name == name).map(|at| at as ClassId)
    }

    /// The name of a class; empty for a number that no class has.
    pub fn class_name(&self, class: ClassId) -> &str {
        self.classes.get(class as usize).map_or("", |class| &class.name)
    }

    /// The children of each class, in the order in which they are written.
    pub fn children(&self) -> Vec<Vec<ClassId>> {
        self.spec.children()
    }

    /// For each class, whether it may hold packets of its own: it has no children, or a rule or
    /// `default` sends packets to it.
    pub fn holders(&self) -> Vec<bool> {
        self.spec.holders()
    }

    /// Whether a meter or a queue gives packets another DSCP.
    pub fn marks_dscp(&self) -> bool {
        // Of a meter's words only those of colours have whole numbers.
        let marks = |(word, value): (&str, Value)| word.starts_with("meter ") && matches!(value, Value::Int(_));
        let clears = |queue: &QueueSpec| queue.settings.flag("cleardscp");
        self.spec
            .classes
            .iter()
            .any(|class| class.settings.iter().any(marks) || class.queue.as_ref().is_some_and(clears))
    }

    /// The name of the scheduler that serves a class: the one that the nearest class above it
    /// holds. For the root it is the root's own.
    pub fn scheduler_of(&self, class: ClassId) -> &'static str {
        self.spec.serving(class).map_or("", |scheduler| scheduler.name)
    }

    /// The registry's entry of the scheduler that serves a class.
    pub fn entry_of(&self, class: ClassId) -> Option<&'static Entry> {
        self.spec.entry_of(class)
    }

    /// The rate that the classes below a class share: the one to which the class is shaped, or else
    /// its guarantee.
    pub fn capacity(&self, class: ClassId) -> Option<Rate> {
        self.spec.capacity(class)
    }

    /// The rate that its words guarantee a class. `None` where its scheduler guarantees nothing.
    /// The root is guaranteed the rate of the link.
    pub fn guarantee(&self, class: ClassId) -> Option<Rate> {
        self.spec.guarantee(class)
    }
}

/// How the rate of a link follows a line whose capacity changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adapt {
    /// The lowest rate, at most that of the link.
    pub from: Rate,
    /// The highest rate, at least that of the link.
    pub to: Rate,
    /// By how much longer than usual answers may take, in nanoseconds: 1 ms to 1 s.
    pub target: Nanos,
    /// The hosts whose answers show the delay: at least one, none twice.
    pub reflectors: Vec<IpAddr>,
}

impl Adapt {
    /// The target if none is written: 30 ms, as of cake-autorate (`owd_delta_delay_thr_ms`).
    pub const TARGET: Nanos = 30_000_000;
}

/// The name of a class, and where it and its words are written.
#[derive(Clone, Debug, Default)]
pub struct Class {
    /// Its name, unique in its link.
    pub name: String,
    /// Where it is named.
    pub span: Span,
    /// Where each of its words is written. The root has the words of the link.
    pub words: Vec<(&'static str, Span)>,
    /// Where each word of the scheduler that it holds is written.
    pub scheduler_words: Vec<(&'static str, Span)>,
    /// Where each word of its queue is written.
    pub queue_words: Vec<(&'static str, Span)>,
    /// True for a class that the user did not write: the control class that altqd makes by itself.
    pub made: bool,
}

impl Class {
    /// Where a word of the class is written; where the class is named if it is not.
    pub fn place(&self, word: &str) -> Span {
        self.words.iter().find(|(name, _)| *name == word).map_or(self.span, |(_, span)| *span)
    }

    /// Where a word of the scheduler that it holds is written; where that scheduler is named if it
    /// is not.
    pub fn scheduler_place(&self, word: &str) -> Span {
        self.scheduler_words.iter().find(|(name, _)| *name == word).map_or(self.place("scheduler"), |(_, span)| *span)
    }
}

/// The interfaces that a link shapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    /// Packets that leave by one interface, or that come in at it.
    Interface {
        /// Its name.
        name: String,
        /// True for the packets that come in.
        ingress: bool,
    },
    /// Packets that come in at one interface and leave by another.
    Bridge {
        /// The interface at which they come in.
        from: String,
        /// The interface by which they leave.
        to: String,
    },
}

/// What executes a link on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// altq, on packets that wait in a queue of the kernel's firewall.
    Nfqueue,
    /// The kernel, by qdiscs of its own.
    Kernel,
    /// altq, between two interfaces.
    Bridge,
}

impl Path {
    /// All of them.
    pub const ALL: [Path; 3] = [Path::Nfqueue, Path::Kernel, Path::Bridge];

    /// Its word behind `path`.
    pub const fn name(self) -> &'static str {
        match self {
            Path::Nfqueue => "nfqueue",
            Path::Kernel => "kernel",
            Path::Bridge => "bridge",
        }
    }

    /// Whether it executes links on such a device.
    pub const fn takes(self, device: &Device) -> bool {
        matches!(
            (self, device),
            (Path::Nfqueue | Path::Kernel, Device::Interface { .. }) | (Path::Bridge, Device::Bridge { .. })
        )
    }
}
