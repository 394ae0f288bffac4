//! A whole checked configuration.

use altq_engine::spec::{ClassId, LinkSpec};

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

/// A link: what the engine needs, and the names that it does not know.
#[derive(Clone, Debug)]
pub struct Link {
    /// Its name.
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
}

impl Link {
    /// The class of a name.
    pub fn class(&self, name: &str) -> Option<ClassId> {
        self.classes.iter().position(|class| class.name == name).map(|at| at as ClassId)
    }
}

/// A class's name and place.
#[derive(Clone, Debug)]
pub struct Class {
    /// Its name, unique in its link.
    pub name: String,
    /// Where it is named.
    pub span: Span,
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
