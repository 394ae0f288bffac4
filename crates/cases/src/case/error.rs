//! Errors of a case, with their place in the file.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use altq_config::suggest::nearest;

use super::wrong::{Stretch, unknown};
use crate::place::Place;

/// Why a case cannot be run: file, line, column, the line itself with a caret, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseError {
    /// The file.
    pub path: PathBuf,
    /// Where in the file; `None`: the error is about the file as a whole.
    pub place: Option<Place>,
    /// What is wrong, and what could be written instead.
    pub message: String,
}

impl CaseError {
    /// An error about the file as a whole.
    pub fn plain(path: &Path, message: String) -> CaseError {
        CaseError { path: path.to_owned(), place: None, message }
    }

    /// An error about a piece of its text; without a piece: about the file as a whole.
    pub fn at(path: &Path, text: &str, span: Option<Range<usize>>, message: String) -> CaseError {
        CaseError { path: path.to_owned(), place: span.map(|span| Place::of(text, span.start)), message }
    }
}

/// Where and why the TOML reader refuses a text. Where that is a key that nobody knows, the message
/// names the known key that is most like it.
pub(super) fn explained(text: &str, error: &toml::de::Error) -> (Stretch, String) {
    let message = error.message();
    if let Some(field) = between(message, "missing field `", "`")
        && let Some((key, at)) = misspelt(text, field)
    {
        return (Some(at..at + key.len()), format!("unknown field `{key}`; did you mean {field:?}?"));
    }
    let message = match between(message, "unknown field `", "`") {
        Some(key) => {
            let known: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
            unknown(&format!("unknown field `{key}`"), key, "The fields here", known)
        }
        None => message.to_owned(),
    };
    (error.span(), message)
}

/// What stands between two pieces of a text.
fn between<'t>(text: &'t str, begin: &str, end: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(begin)?;
    Some(rest.split_once(end)?.0)
}

/// The first key at the top of a file that may have been meant as `field`, and where it begins.
fn misspelt<'t>(text: &'t str, field: &str) -> Option<(&'t str, usize)> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with('[') {
            return None;
        }
        let begin = at + line.len() - line.trim_start().len();
        at += line.len();
        let key = line.split_once('=').map(|(key, _)| key.trim()).filter(|key| *key != field);
        if let Some(key) = key.filter(|key| nearest(key, [field]).is_some()) {
            return Some((key, begin));
        }
    }
    None
}

impl fmt::Display for CaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, message) = (self.path.display(), &self.message);
        match &self.place {
            None => write!(f, "{path}: {message}"),
            Some(place) => write!(f, "{path}:{}:{}: {message}\n{place}", place.line, place.column),
        }
    }
}

impl std::error::Error for CaseError {}
