//! Reads the native language. docs/language.md is its reference.
//!
//! `token` splits a text into words, marks and groups in braces, and `include` puts in the texts of
//! other files. Then `link`, `adapt`, `class`, `meter` and `matches` read the words, with `reader`.
//! `words` has the words of the language itself; those of schedulers, queues and meters come from
//! the engine's registries.

mod adapt;
mod class;
mod draft;
mod edits;
mod include;
mod link;
mod matches;
mod meter;
mod reader;
mod token;
mod words;

use std::collections::HashMap;

use altq_engine::schedule;

use crate::diagnostic::{Diagnostic, Findings, SourceId, Sources, Span};
use crate::policy::Link;

use self::reader::{Cursor, Reader};
use self::token::What;

pub use self::edits::{Edit, edit, edit_of};
pub(crate) use self::include::Includes;
pub use self::words::all as words;
pub(crate) use self::words::{DEFAULT_MTU, KEYS};

/// Codes of errors after which the words of a text are not interpreted.
const BROKEN: &[&str] = &[
    "too-deep",
    "open-brace",
    "stray-brace",
    "open-quote",
    "cannot-read",
    "not-text",
    "include-cycle",
    "include-refused",
    "too-many-files",
];

/// Reads a text and the texts that it includes.
pub(crate) fn read(source: SourceId, includes: Includes, sources: &mut Sources, findings: &mut Findings) -> Vec<Link> {
    let trees = include::read(source, includes, sources, findings);
    // If a brace or a file is missing, most other errors would only be consequences of that.
    if findings.has(BROKEN) {
        return Vec::new();
    }
    let mut reader = Reader { sources, findings, sets: HashMap::new() };
    let mut cursor = Cursor::new(&trees);
    let mut heads = Vec::new();
    let known = |word: &str| words::FILE.contains(&word);
    // Links are read last, because a rule may name a set that is defined below it.
    while let Some(tree) = cursor.next() {
        let text = reader.slice(tree.span);
        let of = (text, tree.span);
        match text {
            "set" if matches!(tree.what, What::Word) => matches::read_set(&mut reader, &mut cursor, of),
            "link" if matches!(tree.what, What::Word) => match class::head(&mut reader, &mut cursor, of) {
                Some(head) => heads.extend(head),
                None => cursor.skip(&reader, known),
            },
            _ => reader.unknown(&mut cursor, tree, "a policy", words::FILE),
        }
    }
    let mut links = Vec::new();
    let none = heads.is_empty();
    for head in heads {
        let name = (reader.slice(head.name), head.name);
        links.extend(link::read(&mut reader, name, head.inside));
    }
    if none && !reader.findings.has_errors() {
        let span = Span { source, start: 0, end: 0 };
        let error = Diagnostic::error("no-link", span, "this policy has no link");
        let help = format!("as `link wan {{ rate 100Mbit/s scheduler {} … }}`", schedule::SCHEDULERS[0].name);
        reader.findings.push(error.help(help));
    }
    link::same_places(&links, &mut reader);
    links
}
