//! A link while it is read.

use std::collections::HashMap;

use altq_engine::spec::{ClassId, ROOT};

use super::reader::Reader;
use crate::diagnostic::Span;
use crate::lower;
use crate::policy::Link;

/// A link that is being read.
pub struct Draft {
    /// The part of it that has been read.
    pub link: Link,
    /// Its classes by name, with the root.
    pub names: HashMap<String, ClassId>,
    /// Where the word `default` is written.
    pub default: Option<Span>,
}

impl Draft {
    pub fn new(link: Link, default: Option<Span>) -> Draft {
        let names = HashMap::from([(link.name.clone(), ROOT)]);
        Draft { link, names, default }
    }

    pub fn finish(mut self, reader: &mut Reader<'_>) -> Link {
        lower::queues_from_words(&mut self.link, reader.findings);
        lower::control_words(&mut self.link, reader.findings);
        self.link
    }
}
