//! What is wrong with a case, and where.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Why a case cannot be run: file, line, column, the line itself with a caret, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseError {
    /// The file.
    pub path: PathBuf,
    /// Line and column, from 1, and the line's text.
    pub place: Option<(usize, usize, String)>,
    /// What is wrong, and what could be written instead.
    pub message: String,
}

impl CaseError {
    /// An error about the file as a whole.
    pub(crate) fn plain(path: &Path, message: String) -> CaseError {
        CaseError { path: path.to_owned(), place: None, message }
    }

    /// An error about a stretch of its text.
    pub(crate) fn at(path: &Path, text: &str, span: Option<Range<usize>>, message: String) -> CaseError {
        let place = span.map(|span| {
            let start = (0..=span.start.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            let begin = text[..start].rfind('\n').map_or(0, |at| at + 1);
            let line: String = text[begin..].lines().next().unwrap_or("").chars().take(200).collect();
            (text[..start].matches('\n').count() + 1, text[begin..start].chars().count() + 1, line)
        });
        CaseError { path: path.to_owned(), place, message }
    }
}

impl fmt::Display for CaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            None => write!(f, "{}: {}", self.path.display(), self.message),
            Some((line, column, text)) => {
                writeln!(f, "{}:{line}:{column}: {}", self.path.display(), self.message)?;
                let number = line.to_string();
                // Tabs stay tabs, so that the caret stands below its letter.
                let before: String =
                    text.chars().take(column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
                write!(f, " {number} | {text}\n {:width$} | {before}^", "", width = number.len())
            }
        }
    }
}

impl std::error::Error for CaseError {}
