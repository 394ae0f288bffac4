//! Findings about a policy: what is wrong, where, why, and what helps.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// A place in a source text: bytes from `start` to `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The text.
    pub source: SourceId,
    /// Its first byte.
    pub start: usize,
    /// The byte behind its last.
    pub end: usize,
}

impl Span {
    /// From the start of this place to the end of another. The place itself if the other is in
    /// another text.
    pub fn to(self, other: Span) -> Span {
        if self.source == other.source { Span { end: other.end.max(self.end), ..self } } else { self }
    }
}

/// A text's number in [`Sources`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceId(pub u32);

/// The texts that a policy was read from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Each text, with its path as the user wrote it.
    pub texts: Vec<(PathBuf, String)>,
}

impl Sources {
    /// Adds a text.
    pub fn add(&mut self, path: PathBuf, text: String) -> SourceId {
        self.texts.push((path, text));
        SourceId((self.texts.len() - 1) as u32)
    }

    /// A text; empty for a number that no text has.
    pub fn text(&self, source: SourceId) -> &str {
        self.texts.get(source.0 as usize).map_or("", |(_, text)| text)
    }

    /// The path of a text.
    pub fn path(&self, source: SourceId) -> &Path {
        self.texts.get(source.0 as usize).map_or(Path::new(""), |(path, _)| path)
    }

    /// The text at a place; empty for a place outside of its text.
    pub fn slice(&self, span: Span) -> &str {
        self.text(span.source).get(span.start..span.end).unwrap_or("")
    }

    /// Line and column of a place, both counted from 1, the column in characters.
    pub fn line_column(&self, span: Span) -> (usize, usize) {
        let text = self.text(span.source);
        let before = text.get(..span.start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        (before.bytes().filter(|byte| *byte == b'\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The policy is refused.
    Error,
    /// The policy is accepted, but the user should know.
    Warning,
}

impl Severity {
    /// `error` or `warning`.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

/// One finding.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// A stable name for this kind of finding: `unknown-word`, `over-100-percent`, …
    pub code: &'static str,
    /// What is wrong, with the numbers.
    pub message: String,
    /// Where it is wrong.
    pub span: Span,
    /// Other places that matter, and why each does.
    pub labels: Vec<(Span, String)>,
    /// What the user can do about it.
    pub help: Option<String>,
}

impl Diagnostic {
    /// An error.
    pub fn error(code: &'static str, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Error, code, message: message.into(), span, labels: Vec::new(), help: None }
    }

    /// A warning.
    pub fn warning(code: &'static str, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(code, span, message) }
    }

    /// Adds what the user can do about it.
    pub fn help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help = Some(help.into());
        self
    }

    /// Sets what the user can do about it, if anything.
    pub fn help_if(mut self, help: Option<String>) -> Diagnostic {
        self.help = help;
        self
    }

    /// Adds another place, and why it matters.
    pub fn label(mut self, span: Span, text: impl Into<String>) -> Diagnostic {
        self.labels.push((span, text.into()));
        self
    }
}

/// A word for a message: no more than its first 40 characters.
pub(crate) fn short(word: &str) -> Cow<'_, str> {
    match word.char_indices().nth(40) {
        Some((at, _)) => Cow::Owned(format!("{}…", &word[..at])),
        None => Cow::Borrowed(word),
    }
}

/// The most errors that are shown of a policy.
pub const MOST_ERRORS: usize = 20;
/// The most warnings that are kept of a policy.
pub const MOST_WARNINGS: usize = 1000;

/// Collects findings, up to [`MOST_ERRORS`] errors and [`MOST_WARNINGS`] warnings. One more finding
/// says that there are more.
#[derive(Default)]
pub(crate) struct Findings {
    list: Vec<Diagnostic>,
    errors: usize,
    warnings: usize,
}

impl Findings {
    pub fn push(&mut self, diagnostic: Diagnostic) {
        let (count, most) = match diagnostic.severity {
            Severity::Error => (&mut self.errors, MOST_ERRORS),
            Severity::Warning => (&mut self.warnings, MOST_WARNINGS),
        };
        *count += 1;
        if *count <= most {
            self.list.push(diagnostic);
        } else if *count == most + 1 {
            let name = diagnostic.severity.name();
            let message = format!("there are more {name}s; the first {most} are shown");
            self.list.push(Diagnostic { message, code: "too-many", labels: Vec::new(), help: None, ..diagnostic });
        }
    }

    pub fn extend(&mut self, diagnostics: impl IntoIterator<Item = Diagnostic>) {
        diagnostics.into_iter().for_each(|diagnostic| self.push(diagnostic));
    }

    pub fn has_errors(&self) -> bool {
        self.errors > 0
    }

    pub fn errors(&self) -> usize {
        self.errors
    }

    /// Whether a finding has one of these codes.
    pub fn has(&self, codes: &[&str]) -> bool {
        self.list.iter().any(|found| codes.contains(&found.code))
    }

    /// Whether no further error would be shown, so that a parser may stop.
    pub fn full(&self) -> bool {
        self.errors > MOST_ERRORS
    }

    /// All findings in the order of their places. The one that says that there are more comes last.
    pub fn into_list(mut self) -> Vec<Diagnostic> {
        self.list.sort_by_key(|found| (found.code == "too-many", found.span.source.0, found.span.start));
        self.list
    }
}
