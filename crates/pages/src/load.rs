//! Reads results that `altq sim --json` and `altq lab --json` printed.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use altq_cases::place::Place;
use altq_cases::result::CaseResult;
use serde_json::{Deserializer, Value};

use crate::html::Source;

/// The schema of results.
const SCHEMA: &str = "altq.result/1";

/// The way to get a result, for messages.
const PRINTED_BY: &str = "altq sim CASE --json and altq lab CASE --json print results";

/// A result, and the text that it was read from.
#[derive(Debug)]
pub struct Loaded {
    /// The result.
    pub result: CaseResult,
    /// Its JSON.
    pub json: String,
}

impl Loaded {
    /// The result as a page needs it.
    pub fn source(&self) -> Source<'_> {
        Source { result: &self.result, json: &self.json, file: None }
    }
}

/// Why a file gives no results, and where in the file the reason is. Displayed: file, line, column,
/// reason, and the line with a caret.
#[derive(Debug)]
pub struct LoadError {
    /// The file.
    pub path: PathBuf,
    /// Where in the file; `None`: the reason is about the file as a whole.
    pub place: Option<Place>,
    /// The reason.
    pub reason: Reason,
}

/// Why a file gives no results.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// The file cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(std::io::Error),
    /// The file is not UTF-8 from this byte on.
    #[error("byte {0} is not UTF-8 text: this is no result of altq sim --json or altq lab --json")]
    NotText(usize),
    /// The file is empty.
    #[error("there is nothing in it; {PRINTED_BY}")]
    Empty,
    /// The text is not JSON.
    #[error("this is no JSON{}: {why}", behind(*.results))]
    NotJson {
        /// True if there are results before it.
        results: bool,
        /// The parser's message.
        why: String,
    },
    /// The text ends within a value.
    #[error("the JSON is cut short{}: the command that wrote it did not end; run it again", behind(*.results))]
    CutShort {
        /// True if there are results before it.
        results: bool,
    },
    /// The value names no schema.
    #[error("this is no result: it has no \"schema\": {SCHEMA:?}; {PRINTED_BY}")]
    NoSchema,
    /// The value names a schema other than `altq.result`.
    #[error("the schema is {0:?}, not {SCHEMA:?}; {PRINTED_BY}")]
    OtherSchema(String),
    /// The value is of another version of `altq.result`.
    #[error("the schema is {0:?}, not {SCHEMA:?}; it is of another version of altq")]
    OtherVersion(String),
    /// The value does not have the form of the schema.
    #[error("{0}: the result was changed, or written by another version of altq")]
    Changed(String),
}

fn behind(results: bool) -> &'static str {
    if results { " behind the results before it" } else { "" }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, reason) = (self.path.display(), &self.reason);
        match &self.place {
            None => write!(f, "{path}: {reason}"),
            Some(place) => write!(f, "{path}:{}:{}: {reason}\n{place}", place.line, place.column),
        }
    }
}

impl std::error::Error for LoadError {}

/// Reads a file with one result or several, one after another; `-` reads stdin.
///
/// # Errors
/// If the file cannot be read, or contains anything but results.
pub fn load(path: &Path) -> Result<Vec<Loaded>, LoadError> {
    let error = |reason| LoadError { path: path.to_owned(), place: None, reason };
    let mut bytes = Vec::new();
    let read = match path.as_os_str() == "-" {
        true => std::io::stdin().read_to_end(&mut bytes).map(|_| ()),
        false => std::fs::read(path).map(|read| bytes = read),
    };
    read.map_err(|reason| error(Reason::Unreadable(reason)))?;
    let text = String::from_utf8(bytes).map_err(|not| error(Reason::NotText(not.utf8_error().valid_up_to())))?;
    parse(&text, path)
}

/// Reads the results in a text, as [`load`] does. `path` is the text's name in errors.
///
/// # Errors
/// If the text contains anything but results.
pub fn parse(text: &str, path: &Path) -> Result<Vec<Loaded>, LoadError> {
    let error = |place, reason| LoadError { path: path.to_owned(), place, reason };
    // A result is one long line.
    let at = |byte: usize, reason| error(Some(Place::in_long_line(text, byte)), reason);
    let mut found: Vec<Loaded> = Vec::new();
    let mut begin = 0;
    while let Some(skip) = text[begin..].find(|c: char| !c.is_whitespace()) {
        begin += skip;
        let mut values = Deserializer::from_str(&text[begin..]).into_iter::<Value>();
        let value = match values.next() {
            Some(Ok(value)) => value,
            Some(Err(not)) => {
                let results = !found.is_empty();
                return Err(match not.is_eof() {
                    true => at(text.len(), Reason::CutShort { results }),
                    false => at(begin + offset(&text[begin..], &not), Reason::NotJson { results, why: why(&not) }),
                });
            }
            None => break,
        };
        let end = begin + values.byte_offset();
        let json = &text[begin..end];
        if let Some((byte, reason)) = not_a_result(json, &value) {
            return Err(at(begin + byte, reason));
        }
        let result: CaseResult =
            serde_json::from_str(json).map_err(|not| at(begin + offset(json, &not), Reason::Changed(why(&not))))?;
        found.push(Loaded { result, json: json.to_owned() });
        begin = end;
    }
    if found.is_empty() { Err(error(None, Reason::Empty)) } else { Ok(found) }
}

/// Why a value's schema is not that of a result, and at which byte of its JSON.
fn not_a_result(json: &str, value: &Value) -> Option<(usize, Reason)> {
    match value.get("schema").and_then(Value::as_str) {
        Some(SCHEMA) => None,
        Some(other) => {
            let byte = json.find(&format!("\"{other}\"")).unwrap_or(0);
            let version = other.starts_with("altq.result/");
            let reason = if version { Reason::OtherVersion } else { Reason::OtherSchema };
            Some((byte, reason(other.to_owned())))
        }
        None => Some((0, Reason::NoSchema)),
    }
}

/// serde's message without the place, which [`LoadError`] adds.
fn why(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or(&text).to_owned()
}

/// The byte of a text that an error is about. serde counts lines from 1, and columns in bytes up to
/// the last byte that it has read.
fn offset(text: &str, error: &serde_json::Error) -> usize {
    let begin: usize = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    begin + error.column().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse(text, Path::new("r.json")).unwrap_err().to_string()
    }

    const RESULT: &str = concat!(
        r#"{"schema":"altq.result/1","case":"c","world":"sim","valid":true,"seed":1,"#,
        r#""expectations":[],"flows":[],"classes":[]}"#
    );

    #[test]
    fn one_or_several() {
        assert_eq!(parse(RESULT, Path::new("r")).unwrap().len(), 1);
        let two = parse(&format!("\n{RESULT}\n {RESULT}\n"), Path::new("r")).unwrap();
        assert_eq!((two.len(), two[1].json.as_str(), two[1].result.case.as_str()), (2, RESULT, "c"));
    }

    #[test]
    fn what_is_no_result_has_a_place_and_a_way_out() {
        for (text, wanted) in [
            ("", "r.json: there is nothing in it; altq sim CASE --json"),
            ("hello\n", "r.json:1:1: this is no JSON: expected value\n 1 | hello\n   | ^"),
            ("{\"a\":\n [1,}", "r.json:2:5: this is no JSON: expected value\n 2 |  [1,}\n   |     ^"),
            (r#"{"a":1}"#, "r.json:1:1: this is no result: it has no \"schema\""),
            (
                r#"{"schema":"altq.check/1"}"#,
                "r.json:1:11: the schema is \"altq.check/1\", not \"altq.result/1\"; altq sim",
            ),
            (r#"{"schema":"altq.result/2"}"#, "not \"altq.result/1\"; it is of another version of altq"),
            // The parser gives the end of the word, or the character behind it, depending on the
            // features with which it was built.
            (&RESULT.replace("\"sim\"", "\"moon\""), "unknown variant `moon`, expected `sim` or `lab`"),
            (&RESULT.replace("\"sim\"", "\"moon\""), "r.json:1:5"),
            (&RESULT[..60], "r.json:1:61: the JSON is cut short: the command"),
            (
                &format!("{RESULT}\n{}", &RESULT[..20]),
                "r.json:2:21: the JSON is cut short behind the results before it",
            ),
        ] {
            let said = error(text);
            assert!(said.starts_with(wanted) || said.contains(wanted), "{said}\n  is not\n{wanted}");
        }
    }
}
