//! `include "PATTERN"` puts the texts of other files at its place, in the order of their names. The
//! pattern is relative to the folder of the file that includes them.

use std::path::{Path, PathBuf};

use super::token::{self, Tree, What};
use crate::diagnostic::{Diagnostic, Findings, SourceId, Sources, Span};
use crate::policy::NOTHING_INCLUDED;
use crate::text;
use crate::wildcard::fits;

/// The most texts that one policy may consist of.
const MOST_TEXTS: usize = 10_000;

/// Whether a text may include others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Includes {
    /// It may.
    Allowed,
    /// It is the whole policy: an `include` is an error, and no file is opened.
    Refused,
}

/// Reads a text, and the texts it includes in place of each `include`.
pub fn read(source: SourceId, includes: Includes, sources: &mut Sources, findings: &mut Findings) -> Vec<Tree> {
    match includes {
        Includes::Allowed => {
            let mut open = vec![canonical(sources.path(source))];
            read_one(source, sources, findings, &mut open)
        }
        Includes::Refused => {
            let trees = token::read(sources.text(source), source, findings);
            let first = trees.iter().find(|tree| is_include(tree, sources));
            if let Some(tree) = first {
                let message = "this policy is one text from a client, so it includes no files";
                let error = Diagnostic::error("include-refused", tree.span, message);
                findings.push(error.help("`altq convert` prints a policy and what it includes as one text"));
            }
            trees
        }
    }
}

fn is_include(tree: &Tree, sources: &Sources) -> bool {
    matches!(tree.what, What::Word) && sources.slice(tree.span) == "include"
}

fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn read_one(source: SourceId, sources: &mut Sources, findings: &mut Findings, open: &mut Vec<PathBuf>) -> Vec<Tree> {
    let trees = token::read(sources.text(source), source, findings);
    let mut out = Vec::with_capacity(trees.len());
    let mut trees = trees.into_iter().peekable();
    while let Some(tree) = trees.next() {
        if !is_include(&tree, sources) {
            out.push(tree);
            continue;
        }
        let Some(pattern) = trees.next_if(|tree| matches!(tree.what, What::Text)) else {
            // That a closing quote is missing was reported already.
            if !findings.has(&["open-quote"]) {
                let error = Diagnostic::error("missing-value", tree.span, "`include` needs a name in quotes");
                findings.push(error.help("as `include \"sites/*.altq\"`"));
            }
            continue;
        };
        for path in paths(&pattern, source, sources, findings) {
            if sources.texts.len() >= MOST_TEXTS {
                findings.push(Diagnostic::error(
                    "too-many-files",
                    pattern.span,
                    format!("more than {MOST_TEXTS} files are included"),
                ));
                return out;
            }
            let real = canonical(&path);
            if open.contains(&real) {
                let message = format!("{} includes itself", path.display());
                findings.push(Diagnostic::error("include-cycle", pattern.span, message));
                continue;
            }
            // No file includes itself, so a chain of includes ends. But a long one would exhaust
            // the stack.
            if open.len() >= 64 {
                findings.push(Diagnostic::error(
                    "too-deep",
                    pattern.span,
                    "files include one another more than 64 deep",
                ));
                continue;
            }
            if let Some(included) = text::read(&path, sources, findings, Some(pattern.span)) {
                open.push(real);
                out.extend(read_one(included, sources, findings, open));
                open.pop();
            }
        }
    }
    out
}

/// The files that a pattern names, sorted.
fn paths(pattern: &Tree, source: SourceId, sources: &Sources, findings: &mut Findings) -> Vec<PathBuf> {
    let text = sources.slice(pattern.span);
    let base = sources.path(source).parent().unwrap_or(Path::new("")).to_owned();
    if text.is_empty() {
        findings.push(Diagnostic::error("missing-value", quoted(pattern.span), "this name is empty"));
        return Vec::new();
    }
    if !text.contains(['*', '?']) {
        return vec![base.join(text)];
    }
    let mut found = vec![if text.starts_with('/') { PathBuf::from("/") } else { base }];
    for part in text.split('/').filter(|part| !part.is_empty()) {
        let mut next = Vec::new();
        for directory in found {
            if !part.contains(['*', '?']) {
                next.push(directory.join(part));
                continue;
            }
            let listed = if directory.as_os_str().is_empty() { Path::new(".") } else { &directory };
            let Ok(entries) = std::fs::read_dir(listed) else { continue };
            let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            // As in a shell, a pattern leaves out names that begin with a point.
            next.extend(
                names.filter(|name| !name.starts_with('.') && fits(part, name)).map(|name| directory.join(name)),
            );
        }
        found = next;
    }
    found.retain(|path| path.exists());
    found.sort();
    if found.is_empty() {
        let warning = Diagnostic::warning(NOTHING_INCLUDED, pattern.span, format!("no file is called {text}"));
        findings.push(warning);
    }
    found
}

fn quoted(span: Span) -> Span {
    Span { start: span.start.saturating_sub(1), end: span.end + 1, ..span }
}
