//! Values from a table: a CSV file whose header names values of the case. Each line is a point.

use std::path::Path;

use altq_cases::place::Place;

use crate::grid::check_name;
use crate::{Point, SweepError};

/// A line of a table, as a point of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its number in the file, from 1.
    pub number: usize,
    /// Names and values, in the order of the header.
    pub values: Vec<(String, String)>,
}

/// Reads a table.
///
/// # Errors
/// If the file cannot be read, or is no table: with line, column and the reason.
pub fn read(path: &Path) -> Result<Vec<Line>, SweepError> {
    let text = std::fs::read(path).map_err(SweepError::io(path))?;
    let text = String::from_utf8(text).map_err(|error| {
        let byte = error.utf8_error().valid_up_to();
        SweepError::Wrong(format!("{}: byte {byte} is not UTF-8 text", path.display()))
    })?;
    parse(&text).map_err(|(byte, why)| {
        let place = Place::in_long_line(&text, byte);
        SweepError::Wrong(format!("{}:{}:{}: {why}\n{place}", path.display(), place.line, place.column))
    })
}

/// Reads the text of a table. An error has the byte at which it is.
fn parse(text: &str) -> Result<Vec<Line>, (usize, String)> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).flexible(true).from_reader(text.as_bytes());
    let byte_of = |error: &csv::Error| error.position().map_or(0, |position| position.byte() as usize);
    let header = reader.headers().map_err(|error| (byte_of(&error), error.to_string()))?.clone();
    if header.iter().all(str::is_empty) {
        return Err((0, "a table begins with a line that names values of the case, as in rate,subscribers".into()));
    }
    for (at, name) in header.iter().enumerate() {
        let place = || field(text, 0, at);
        check_name(name).map_err(|why| (place(), why))?;
        if header.iter().take(at).any(|other| other == name) {
            return Err((place(), format!("the header has {name} twice")));
        }
    }
    let mut lines = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| (byte_of(&error), error.to_string()))?;
        let (byte, number) =
            record.position().map_or((0, 0), |position| (position.byte() as usize, position.line() as usize));
        // A position is where the reader was before it skipped empty lines.
        let skipped = text.get(byte..).map_or(0, |rest| rest.len() - rest.trim_start_matches(['\r', '\n']).len());
        let empty = text.get(byte..byte + skipped).map_or(0, |ends| ends.matches('\n').count());
        let (byte, number) = (byte + skipped, number + empty);
        if record.len() != header.len() {
            let why = format!("this line has {} values, and the header has {}", record.len(), header.len());
            return Err((byte, why));
        }
        if let Some((at, (name, _))) = header.iter().zip(&record).enumerate().find(|(_, (_, value))| value.is_empty()) {
            return Err((field(text, byte, at), format!("{name} is empty here; write a value in every line")));
        }
        let values = header.iter().zip(&record).map(|(name, value)| (name.to_owned(), value.to_owned()));
        lines.push(Line { number, values: values.collect() });
    }
    match lines.is_empty() {
        true => Err((text.len(), "the table has no line below its header".into())),
        false => Ok(lines),
    }
}

/// The byte at which a field of the line that begins at `from` begins. Commas in quotes are part of
/// a field.
fn field(text: &str, from: usize, at: usize) -> usize {
    let (mut quoted, mut left) = (false, at);
    let rest = text.get(from..).unwrap_or("");
    for (byte, c) in rest.char_indices() {
        match c {
            _ if left == 0 && !c.is_whitespace() => return from + byte,
            '"' => quoted = !quoted,
            ',' if !quoted => left = left.saturating_sub(1),
            '\n' if !quoted => return from + byte,
            _ => {}
        }
    }
    text.len()
}

impl Line {
    /// The line as a point.
    pub fn point(&self) -> Point {
        Point { values: self.values.clone(), row: None, column: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> (usize, usize, String) {
        let (byte, why) = parse(text).unwrap_err();
        let place = Place::of(text, byte);
        (place.line, place.column, why)
    }

    #[test]
    fn lines_are_points() {
        let lines = parse("rate,mix\n5Mbit/s ,\"a, b\"\n\n10Mbit/s,c\n").unwrap();
        let values = |rate: &str, mix: &str| vec![("rate".into(), rate.into()), ("mix".into(), mix.into())];
        assert_eq!(lines[0], Line { number: 2, values: values("5Mbit/s", "a, b") });
        assert_eq!(lines[1], Line { number: 4, values: values("10Mbit/s", "c") });
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn what_is_no_table_is_said_with_its_place() {
        let begin = "a table begins with a line that names values of the case, as in rate,subscribers";
        assert_eq!(wrong(""), (1, 1, begin.into()));
        assert_eq!(wrong("rate\n"), (2, 1, "the table has no line below its header".into()));
        assert_eq!(wrong("rate,rate\n1,2\n"), (1, 6, "the header has rate twice".into()));
        assert_eq!(wrong("rate,a b\n1,2\n"), (1, 6, "\"a b\" is no name of a value: letters, digits, - and _".into()));
        assert_eq!(wrong("a,b\n1,2\n3\n"), (3, 1, "this line has 1 values, and the header has 2".into()));
        assert_eq!(wrong("a,b\n1,2\n\n3,,\n"), (4, 1, "this line has 3 values, and the header has 2".into()));
        assert_eq!(wrong("a,b,c\n1, ,2\n"), (2, 4, "b is empty here; write a value in every line".into()));
    }
}
