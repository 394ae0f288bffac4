//! An error in the text of a case: where, and what.

use std::ops::Range;

use altq_config::suggest::nearest;
use toml::Spanned;

/// A piece of the case's text; `None`: the case as a whole.
pub type Stretch = Option<Range<usize>>;

/// A value that was read, or the place of an error and its message.
pub type Result<T> = std::result::Result<T, (Stretch, String)>;

/// An error about a value, at its place.
pub fn bad<T, U>(at: &Spanned<T>, message: impl Into<String>) -> Result<U> {
    Err((Some(at.span()), message.into()))
}

/// The end of a message about a word that is not known: `; did you mean "X"?`, or nothing.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map(|near| format!("; did you mean {near:?}?")).unwrap_or_default()
}
