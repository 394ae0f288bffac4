//! Reads results that `altq sim --json` and `altq lab --json` printed, and measurements of
//! `altq traffic --json` and `altq run --json`.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use altq_cases::place::Place;
use altq_cases::result::CaseResult;
use serde_json::Deserializer;

use crate::html::Source;
use crate::measured::Document;

/// The schema of results.
const SCHEMA: &str = "altq.result/1";

/// The schemas of measurements: live lines and the result of `altq traffic`, lines of `altq run`.
const LIVE: &str = "altq.traffic_live/1";
const TRAFFIC: &str = "altq.traffic/1";
const STAT: &str = "altq.stat/1";

/// The way to get a result, for messages.
const PRINTED_BY: &str = "altq sim CASE --json and altq lab CASE --json print results; altq traffic --json and altq \
                          run --json print measurements";

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
    #[error("byte {0} is not UTF-8 text: this is no output of altq with --json")]
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
    #[error("this is no result: it has no \"schema\", such as {SCHEMA:?}; {PRINTED_BY}")]
    NoSchema,
    /// The value names another schema.
    #[error("the schema is {0:?}, not {SCHEMA:?}, {TRAFFIC:?}, {LIVE:?} or {STAT:?}; {PRINTED_BY}")]
    OtherSchema(String),
    /// The value is of another version of a known schema.
    #[error("the schema is {0:?}, not {1:?}; it is of another version of altq")]
    OtherVersion(String, &'static str),
    /// The value is a measurement where a result of a case is wanted.
    #[error("the schema is {0:?}, not {SCHEMA:?}: this is a measurement and no result of a case")]
    Measurement(String),
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

/// What a file holds.
#[derive(Debug, Default)]
pub struct Contents {
    /// Results of cases.
    pub results: Vec<Loaded>,
    /// Documents of measurements, in their order, each with its JSON.
    pub measured: Vec<(Document, String)>,
    /// Why the rest of the file cannot be read, if so. What came before is there.
    pub error: Option<LoadError>,
}

/// Reads a file of results and measurements, one after another; `-` reads stdin. If a place in it
/// cannot be read, what comes before is kept if it is of a measurement, which is useful without its
/// end.
///
/// # Errors
/// If the file cannot be read, holds nothing of use, or has results of cases before the place that
/// cannot be read.
pub fn contents(path: &Path) -> Result<Contents, LoadError> {
    contents_of(&text(path)?, path)
}

/// Reads a text, as [`contents`] does. `path` is the text's name in errors.
///
/// # Errors
/// As [`contents`].
pub fn contents_of(text: &str, path: &Path) -> Result<Contents, LoadError> {
    let mut contents = Contents::default();
    let error = read(text, path, &mut |document, json| {
        match document {
            Value::Result(result) => contents.results.push(Loaded { result: *result, json: json.to_owned() }),
            Value::Measured(document) => contents.measured.push((*document, json.to_owned())),
        }
        None
    });
    match error {
        Err(error) if contents.measured.is_empty() || !contents.results.is_empty() => Err(error),
        error => Ok(Contents { error: error.err(), ..contents }),
    }
}

/// Reads a file with one result or several, one after another; `-` reads stdin.
///
/// # Errors
/// If the file cannot be read, or contains anything but results.
pub fn load(path: &Path) -> Result<Vec<Loaded>, LoadError> {
    parse(&text(path)?, path)
}

/// Reads the results in a text, as [`load`] does. `path` is the text's name in errors.
///
/// # Errors
/// If the text contains anything but results.
pub fn parse(text: &str, path: &Path) -> Result<Vec<Loaded>, LoadError> {
    let mut found: Vec<Loaded> = Vec::new();
    read(text, path, &mut |document, json| match document {
        Value::Result(result) => {
            found.push(Loaded { result: *result, json: json.to_owned() });
            None
        }
        Value::Measured(document) => Some(Reason::Measurement(
            match *document {
                Document::Live(_) => LIVE,
                Document::Result(_) => TRAFFIC,
                Document::Stat(_) => STAT,
            }
            .to_owned(),
        )),
    })?;
    Ok(found)
}

/// The text of a file.
fn text(path: &Path) -> Result<String, LoadError> {
    let error = |reason| LoadError { path: path.to_owned(), place: None, reason };
    let mut bytes = Vec::new();
    let read = match path.as_os_str() == "-" {
        true => std::io::stdin().read_to_end(&mut bytes).map(|_| ()),
        false => std::fs::read(path).map(|read| bytes = read),
    };
    read.map_err(|reason| error(Reason::Unreadable(reason)))?;
    String::from_utf8(bytes).map_err(|not| error(Reason::NotText(not.utf8_error().valid_up_to())))
}

/// A value of a file.
enum Value {
    Result(Box<CaseResult>),
    Measured(Box<Document>),
}

/// Calls `take` with each value and its JSON, until there is one that cannot be read or that `take`
/// refuses.
fn read(text: &str, path: &Path, take: &mut dyn FnMut(Value, &str) -> Option<Reason>) -> Result<(), LoadError> {
    let error = |place, reason| LoadError { path: path.to_owned(), place, reason };
    // A result is one long line.
    let at = |byte: usize, reason| error(Some(Place::in_long_line(text, byte)), reason);
    let (mut begin, mut results) = (0, false);
    while let Some(skip) = text[begin..].find(|c: char| !c.is_whitespace()) {
        begin += skip;
        let mut values = Deserializer::from_str(&text[begin..]).into_iter::<serde_json::Value>();
        let value = match values.next() {
            Some(Ok(value)) => value,
            Some(Err(not)) => {
                return Err(match not.is_eof() {
                    true => at(text.len(), Reason::CutShort { results }),
                    false => at(begin + offset(&text[begin..], &not), Reason::NotJson { results, why: why(&not) }),
                });
            }
            None => break,
        };
        let end = begin + values.byte_offset();
        let json = &text[begin..end];
        let value = value_of(json, &value).map_err(|(byte, reason)| at(begin + byte, reason))?;
        if let Some(reason) = take(value, json) {
            return Err(at(begin, reason));
        }
        (begin, results) = (end, true);
    }
    if results { Ok(()) } else { Err(error(None, Reason::Empty)) }
}

/// A value by its schema; or why it is none, and at which byte of its JSON.
fn value_of(json: &str, value: &serde_json::Value) -> Result<Value, (usize, Reason)> {
    fn typed<T: serde::de::DeserializeOwned>(json: &str) -> Result<T, (usize, Reason)> {
        serde_json::from_str(json).map_err(|not| (offset(json, &not), Reason::Changed(why(&not))))
    }
    let measured = |document| Value::Measured(Box::new(document));
    let Some(schema) = value.get("schema").and_then(serde_json::Value::as_str) else {
        return Err((0, Reason::NoSchema));
    };
    match schema {
        SCHEMA => typed(json).map(|result| Value::Result(Box::new(result))),
        LIVE => typed(json).map(|line| measured(Document::Live(line))),
        TRAFFIC => typed(json).map(|result| measured(Document::Result(result))),
        STAT => typed(json).map(|line| measured(Document::Stat(line))),
        other => {
            let byte = json.find(&format!("\"{other}\"")).unwrap_or(0);
            let name = |schema: &str| schema.split('/').next().map(str::to_owned);
            let known = [SCHEMA, LIVE, TRAFFIC, STAT].into_iter().find(|known| name(known) == name(other));
            Err((
                byte,
                match known {
                    Some(known) => Reason::OtherVersion(other.to_owned(), known),
                    None => Reason::OtherSchema(other.to_owned()),
                },
            ))
        }
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
                "r.json:1:11: the schema is \"altq.check/1\", not \"altq.result/1\", \"altq.traffic/1\", \
                 \"altq.traffic_live/1\" or \"altq.stat/1\"; altq sim",
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
