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
        && let Some((key, at)) = misspelt(text, error.span().map_or(0, |span| span.start), field)
    {
        return (Some(at..at + key.len()), format!("unknown field `{key}`; did you mean {field:?}?"));
    }
    let message = match between(message, "unknown field `", "`") {
        Some(key) => {
            let known: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
            unknown(&format!("unknown field `{key}`"), key, "The fields here", known)
        }
        None => plain(message),
    };
    (error.span(), message)
}

/// A message of the TOML reader in words that say nothing of its types.
fn plain(message: &str) -> String {
    let kinds = [("u8", u64::from(u8::MAX)), ("u16", u16::MAX.into()), ("u32", u32::MAX.into()), ("u64", u64::MAX)];
    let wanted = message.rsplit_once("expected ").and_then(|(_, kind)| kinds.iter().find(|(name, _)| *name == kind));
    if let (Some((_, most)), Some(number)) = (wanted, between(message, "integer `", "`")) {
        return format!("{number} is no whole number from 0 to {most}");
    }
    if message.contains("recursion") {
        return "more brackets and braces stand in each other than a case can have".to_owned();
    }
    message.to_owned()
}

/// What stands between two pieces of a text.
fn between<'t>(text: &'t str, begin: &str, end: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(begin)?;
    Some(rest.split_once(end)?.0)
}

/// The first key of a table that may have been meant as `field`, and where it begins. `start` is
/// where the table begins: at its header in brackets, at its brace, or at the top of the file.
fn misspelt<'t>(text: &'t str, start: usize, field: &str) -> Option<(&'t str, usize)> {
    let own = text.get(start..)?;
    let header = if own.starts_with('[') { own.find('\n').unwrap_or(own.len()) } else { 0 };
    let is_key = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    // Braces that are open, the text that is, and whether a key may begin here.
    let (mut depth, mut quote, mut begins) = (0, None, true);
    let (mut at, inline) = (header, own.starts_with('{'));
    while let Some(c) = own.get(at..)?.chars().next() {
        let rest = own.get(at..)?;
        match (quote, c) {
            (Some(end), _) if rest.starts_with(end) => {
                quote = None;
                at += str::len(end);
                continue;
            }
            // What an escape stands for does not end the text.
            (Some("\"" | "\"\"\""), '\\') => at += rest.chars().nth(1).map_or(0, char::len_utf8),
            (Some(_), _) => {}
            (None, '"' | '\'') => {
                let marks = ["\"\"\"", "'''", "\"", "'"];
                let mark = marks.into_iter().find(|mark| rest.starts_with(mark))?;
                (quote, begins) = (Some(mark), false);
                at += mark.len();
                continue;
            }
            (None, '#') => {
                at += rest.find('\n').unwrap_or(rest.len());
                continue;
            }
            // The next table begins.
            (None, '[') if begins && !inline && depth == 0 => return None,
            (None, '{' | '[') => (depth, begins) = (depth + 1, true),
            (None, '}' | ']') => (depth, begins) = (depth - 1, false),
            (None, '\n' | ',') => begins = true,
            (None, ' ' | '\t' | '\r') => {}
            (None, _) if begins && depth == i32::from(inline) => {
                let key = rest.split(|c| !is_key(c)).next().unwrap_or("");
                let is_followed = rest.get(key.len()..)?.trim_start().starts_with('=');
                if is_followed && key != field && nearest(key, [field]).is_some() {
                    return Some((key, start + at));
                }
                begins = false;
                at += key.len().max(c.len_utf8());
                continue;
            }
            (None, _) => begins = false,
        }
        if inline && depth == 0 {
            return None;
        }
        at += c.len_utf8();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn found<'t>(text: &'t str, table: &str, field: &str) -> Option<&'t str> {
        misspelt(text, text.find(table).unwrap(), field).map(|(key, at)| {
            assert_eq!(text.get(at..at + key.len()), Some(key));
            key
        })
    }

    #[test]
    fn messages_name_no_types() {
        let of = |text: &str| {
            #[derive(Debug, serde::Deserialize)]
            #[allow(dead_code)] // Only its errors count.
            struct Port {
                dport: u16,
            }
            explained(text, &toml::from_str::<Port>(text).unwrap_err()).1
        };
        assert_eq!(of("dport = 70000"), "70000 is no whole number from 0 to 65535");
        assert_eq!(of("dport = -1"), "-1 is no whole number from 0 to 65535");
        let deep = of(&format!("x = {}", "[".repeat(1000)));
        assert_eq!(deep, "more brackets and braces stand in each other than a case can have");
    }

    #[test]
    fn a_misspelt_key_is_looked_for_in_its_own_table_only() {
        let text = "nmae = 'c'\npolicy = \"\"\"\ndescriptoin = 1\n[[x]]\n\"\"\"\n\
                    hosts = [\n  { nam = 'a', at = [1] },\n\
                    ]\n\
                    descripton = 'd' # name\n[[columns]]\nnaem = 'e'\n[[flows]]\nname = 'f'\nexpeted = 1\n";
        assert_eq!(found(text, "nmae", "name"), Some("nmae"));
        assert_eq!(found(text, "nmae", "description"), Some("descripton"));
        assert_eq!(found(text, "[[columns", "name"), Some("naem"));
        assert_eq!(found(text, "[[flows", "expected"), Some("expeted"));
        assert_eq!(found(text, "{ nam", "name"), Some("nam"));
        assert_eq!(found(text, "{ nam", "description"), None);
        assert_eq!(found(text, "[[columns", "expected"), None);
        assert_eq!(found("name = 'ä\nb", "name", "description"), None);
    }
}
