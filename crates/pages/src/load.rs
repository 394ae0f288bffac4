//! Reads results that `altq sim --json` and `altq lab --json` printed.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use altq_cases::result::CaseResult;

use crate::html::Source;

/// The schema that is read.
const SCHEMA: &str = "altq.result/1";

/// A result, and the text that it was read from.
#[derive(Debug)]
pub struct Loaded {
    /// The result.
    pub result: CaseResult,
    /// Its JSON.
    pub json: String,
}

impl Loaded {
    /// As a page wants it.
    pub fn source(&self) -> Source<'_> {
        Source { result: &self.result, json: &self.json, file: None }
    }
}

/// Why a file gives no results.
#[derive(Debug, PartialEq, Eq)]
pub struct LoadError {
    path: PathBuf,
    /// Line and column, from 1, and what stands around it with the offset of its place.
    place: Option<(usize, usize, String, usize)>,
    message: String,
}

impl LoadError {
    /// An error about a file as a whole.
    fn plain(path: &Path, message: impl Into<String>) -> LoadError {
        LoadError { path: path.to_owned(), place: None, message: message.into() }
    }

    /// An error about a byte of its text.
    fn at(path: &Path, text: &str, byte: usize, message: impl Into<String>) -> LoadError {
        let byte = (0..=byte.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let begin = text[..byte].rfind('\n').map_or(0, |at| at + 1);
        let (line, column) = (text[..begin].matches('\n').count() + 1, text[begin..byte].chars().count() + 1);
        // Results stand on one long line: what is around the place is enough.
        let before: String = text[begin..byte].chars().rev().take(50).collect::<Vec<_>>().into_iter().rev().collect();
        let after: String = text[byte..].chars().take_while(|c| *c != '\n').take(30).collect();
        let offset = before.chars().count();
        LoadError {
            path: path.to_owned(),
            place: Some((line, column, before + &after, offset)),
            message: message.into(),
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            None => write!(f, "{}: {}", self.path.display(), self.message),
            Some((line, column, text, offset)) => {
                writeln!(f, "{}:{line}:{column}: {}", self.path.display(), self.message)?;
                let number = line.to_string();
                write!(f, " {number} | {text}\n {:width$} | {:offset$}^", "", "", width = number.len())
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// Reads a file of one result or of several, one after the other; `-` is what comes on stdin.
pub fn load(path: &Path) -> Result<Vec<Loaded>, LoadError> {
    let mut bytes = Vec::new();
    let read = match path.as_os_str() == "-" {
        true => std::io::stdin().read_to_end(&mut bytes).map(|_| ()),
        false => std::fs::read(path).map(|read| bytes = read),
    };
    read.map_err(|error| LoadError::plain(path, format!("it cannot be read: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        LoadError::plain(
            path,
            format!("byte {at} is not UTF-8 text: this is no result of altq sim --json or altq lab --json"),
        )
    })?;
    parse(&text, path)
}

/// [`load`] of a text.
pub fn parse(text: &str, path: &Path) -> Result<Vec<Loaded>, LoadError> {
    let mut found = Vec::new();
    let mut begin = 0;
    while let Some(skip) = text[begin..].find(|c: char| !c.is_whitespace()) {
        begin += skip;
        let mut values = serde_json::Deserializer::from_str(&text[begin..]).into_iter::<serde_json::Value>();
        let value = match values.next() {
            Some(Ok(value)) => value,
            Some(Err(error)) => return Err(broken(path, text, begin, &error, found.is_empty())),
            None => break,
        };
        let end = begin + values.byte_offset();
        let json = &text[begin..end];
        check_schema(path, text, begin, json, &value)?;
        let result: CaseResult = serde_json::from_str(json).map_err(|error| {
            let at = begin + offset(json, error.line(), error.column());
            LoadError::at(
                path,
                text,
                at,
                format!("{}: the result was changed, or written by another version of altq", reason(&error)),
            )
        })?;
        found.push(Loaded { result, json: json.to_owned() });
        begin = end;
    }
    if found.is_empty() {
        return Err(LoadError::plain(
            path,
            "there is nothing in it; altq sim CASE --json and altq lab CASE --json print results",
        ));
    }
    Ok(found)
}

fn check_schema(path: &Path, text: &str, begin: usize, json: &str, value: &serde_json::Value) -> Result<(), LoadError> {
    let way = "altq sim CASE --json and altq lab CASE --json print results";
    match value.get("schema").and_then(|schema| schema.as_str()) {
        Some(SCHEMA) => Ok(()),
        Some(other) => {
            let at = json.find(&format!("\"{other}\"")).unwrap_or(0);
            let hint = if other.starts_with("altq.result/") {
                "it is of another version of altq".to_owned()
            } else {
                way.to_owned()
            };
            Err(LoadError::at(path, text, begin + at, format!("the schema is {other:?}, not {SCHEMA:?}; {hint}")))
        }
        None => {
            Err(LoadError::at(path, text, begin, format!("this is no result: it has no \"schema\": {SCHEMA:?}; {way}")))
        }
    }
}

/// JSON that is none, or is cut short.
fn broken(path: &Path, text: &str, begin: usize, error: &serde_json::Error, first: bool) -> LoadError {
    let at = begin + offset(&text[begin..], error.line(), error.column());
    let what = if first { "" } else { " behind the results before it" };
    match error.is_eof() {
        true => LoadError::at(
            path,
            text,
            text.len(),
            format!("the JSON is cut short{what}: the command that wrote it did not end; run it again"),
        ),
        false => LoadError::at(path, text, at, format!("this is no JSON{what}: {}", reason(error))),
    }
}

/// serde's reason without the place that we say better.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or(&text).to_owned()
}

/// The byte of a line and column as serde counts them: lines from 1, columns in bytes, of the last
/// byte read.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let begin: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    begin + column.saturating_sub(1)
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
            // The parser tells the word's end, or the character behind it, as the features are with
            // which it was built.
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
