//! What is wrong with a policy, where, why, and the way out.

use std::path::PathBuf;

/// A place in a source text: bytes from `start` to `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Which text.
    pub source: SourceId,
    /// First byte.
    pub start: usize,
    /// Byte behind the last.
    pub end: usize,
}

/// A text's number in [`Sources`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceId(pub u32);

/// The texts that a policy was read from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Path as the user wrote it, and text.
    pub texts: Vec<(PathBuf, String)>,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The policy is refused.
    Error,
    /// It stands, and the user should know.
    Warning,
}

/// One finding.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// How bad.
    pub severity: Severity,
    /// A stable name for this kind of finding: `unknown-word`, `over-100-percent`, …
    pub code: &'static str,
    /// What is wrong, with the numbers.
    pub message: String,
    /// Where.
    pub span: Span,
    /// Other places that matter, each with a word on why.
    pub labels: Vec<(Span, String)>,
    /// The way out.
    pub help: Option<String>,
}
