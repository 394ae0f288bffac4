//! A whole checked configuration.

use altq_engine::schedule::Entry;
use altq_engine::spec::{ClassId, LinkSpec};
use altq_engine::units::Rate;

use crate::diagnostic::{Diagnostic, Sources, Span};

/// A whole checked configuration. It exists only without errors.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Its links, at least one.
    pub links: Vec<Link>,
    /// What the user should know.
    pub warnings: Vec<Diagnostic>,
    /// The texts it was read from.
    pub sources: Sources,
}

impl Policy {
    /// The link of a name.
    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }
}

/// A link: what the engine needs, and the names that it does not know.
#[derive(Clone, Debug)]
pub struct Link {
    /// Its name: of the link in the native language, of the interface in altq.conf.
    pub name: String,
    /// Where it is; `None` for replay and simulation.
    pub device: Option<Device>,
    /// What the engine is built from.
    pub spec: LinkSpec,
    /// Names and places of `spec.classes`, in the same order; the first is the root.
    pub classes: Vec<Class>,
    /// Places of `spec.rules.rules`, in the same order.
    pub rules: Vec<Span>,
    /// `overcommit` was written.
    pub overcommit: bool,
    /// Where the link is named.
    pub span: Span,
    /// What the language it was read from brings along and the user has not written, a line each.
    pub notes: Vec<String>,
}

impl Link {
    /// The class of a name.
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

    /// Which classes hold packets of their own: those without children, and those that a rule or
    /// `default` leads to.
    pub fn holders(&self) -> Vec<bool> {
        self.spec.holders()
    }

    /// Whether a meter gives packets another DSCP.
    pub fn marks_dscp(&self) -> bool {
        let marks = |colour: &str| altq_engine::shape::meter::setting(colour);
        let words = altq_engine::shape::meter::COLOURS.map(marks);
        self.spec.classes.iter().any(|class| words.iter().flatten().any(|word| class.settings.int(word).is_some()))
    }

    /// The scheduler that serves a class: that of the nearest class above that holds one. For the
    /// root its own.
    pub fn scheduler_of(&self, class: ClassId) -> &'static str {
        self.spec.serving(class).map_or("", |scheduler| scheduler.name)
    }

    /// The registry's entry of the scheduler that serves a class.
    pub fn entry_of(&self, class: ClassId) -> Option<&'static Entry> {
        self.spec.entry_of(class)
    }

    /// What the classes below a class share: what it is shaped to, or else guaranteed.
    pub fn capacity(&self, class: ClassId) -> Option<Rate> {
        self.spec.capacity(class)
    }

    /// What a class is guaranteed by its words: nothing (`None`) where its scheduler guarantees
    /// nothing. The root has the link.
    pub fn guarantee(&self, class: ClassId) -> Option<Rate> {
        self.spec.guarantee(class)
    }
}

/// A class's name and place.
#[derive(Clone, Debug, Default)]
pub struct Class {
    /// Its name, unique in its link.
    pub name: String,
    /// Where it is named.
    pub span: Span,
    /// Where its words are written. Of the root: the words of the link.
    pub words: Vec<(&'static str, Span)>,
    /// Where the words of the scheduler that it holds are written.
    pub scheduler_words: Vec<(&'static str, Span)>,
    /// Where the words of its queue stand.
    pub queue_words: Vec<(&'static str, Span)>,
    /// Not written by the user: the control class that altqd makes.
    pub made: bool,
}

impl Class {
    /// Where a word of the class is written; where the class is named if it is not.
    pub fn place(&self, word: &str) -> Span {
        self.words.iter().find(|(name, _)| *name == word).map_or(self.span, |(_, span)| *span)
    }

    /// Where a word of the scheduler that it holds stands; else where that scheduler does.
    pub fn scheduler_place(&self, word: &str) -> Span {
        self.scheduler_words.iter().find(|(name, _)| *name == word).map_or(self.place("scheduler"), |(_, span)| *span)
    }
}

/// Where a link is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    /// What leaves by, or comes in at, an interface.
    Interface {
        /// Its name.
        name: String,
        /// What comes in, instead of what leaves.
        ingress: bool,
    },
    /// What comes in at one interface and leaves by the other.
    Bridge {
        /// Where it comes in.
        from: String,
        /// Where it leaves.
        to: String,
    },
}
