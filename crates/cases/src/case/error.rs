//! Errors of a case, with their place in the file.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

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
