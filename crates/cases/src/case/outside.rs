//! Values of a case that come from outside: a command line, a table, another program. They take the
//! place of the usual ones in `[values]`, whose types they must have.

use std::collections::BTreeMap;
use std::ops::Range;

use altq_config::suggest::nearest;
use serde::Deserialize;
use toml::{Spanned, Value};

use super::raw;
use super::template;
use super::wrong::Result;

/// Values from outside, by name, each as a text.
pub type Given = BTreeMap<String, String>;

/// Where the usual values stand.
#[derive(Deserialize)]
struct Places {
    #[serde(default)]
    values: BTreeMap<Spanned<String>, Spanned<Value>>,
}

impl Places {
    fn of(text: &str) -> Places {
        // The text was read before, so there is no error.
        toml::from_str(text).unwrap_or(Places { values: BTreeMap::new() })
    }

    /// The place of a name, and that of its value.
    fn find(&self, name: &str) -> Option<(Range<usize>, Range<usize>)> {
        let (key, value) = self.values.iter().find(|(key, _)| key.get_ref() == name)?;
        Some((key.span(), value.span()))
    }
}

/// Puts values from outside in the place of the usual ones.
pub fn put(head: &mut raw::Head, given: &Given, text: &str) -> Result<()> {
    if given.is_empty() {
        return Ok(());
    }
    let places = Places::of(text);
    let mut set = Vec::with_capacity(given.len());
    for (name, word) in given {
        let Some(usual) = head.values.get(name) else { return Err((None, unknown(head, name))) };
        let (key, place) = places.find(name).map_or((None, None), |(key, value)| (Some(key), Some(value)));
        if let Some(whose) = given_inside(head, name) {
            let message =
                format!("{whose} give {name} values of their own, so none can come from outside; leave {name} out");
            return Err((key, message));
        }
        if !text.contains(&format!("${{{name}}}")) {
            let message = format!(
                "{name} is given from outside, but nothing in the case uses it; write ${{{name}}} where it is meant"
            );
            return Err((key, message));
        }
        match typed(name, word, resolved(head, usual)) {
            Ok(value) => set.push((name.clone(), value)),
            Err(message) => return Err((place, message)),
        }
    }
    head.values.extend(set);
    Ok(())
}

/// The value that a usual value such as `"${other}"` stands for.
fn resolved<'h>(head: &'h raw::Head, usual: &'h Value) -> &'h Value {
    let name = usual.as_str().and_then(template::alone);
    name.and_then(|name| head.values.get(name)).unwrap_or(usual)
}

/// Who gives a name values of its own.
fn given_inside(head: &raw::Head, name: &str) -> Option<&'static str> {
    let sample = |column: &raw::HeadColumn| match column.samples.as_ref().map(|samples| samples.get_ref()) {
        Some(raw::Samples::Values(list)) => list.iter().any(|values| values.contains_key(name)),
        _ => false,
    };
    if head.rows.iter().any(|row| row.get_ref().values.contains_key(name)) {
        return Some("rows");
    }
    if head.columns.iter().any(|column| column.get_ref().values.contains_key(name)) {
        return Some("columns");
    }
    head.columns.iter().any(|column| sample(column.get_ref())).then_some("samples")
}

/// The message for a name that the case does not have.
fn unknown(head: &raw::Head, name: &str) -> String {
    let names: Vec<&str> = head.values.keys().map(String::as_str).collect();
    if names.is_empty() {
        return format!(
            "it has no values, so {name} cannot be given: write a usual value for it below [values], and ${{{name}}} \
             where it is meant"
        );
    }
    let hint = nearest(name, names.iter().copied()).map_or(".".into(), |near| format!("; did you mean {near:?}?"));
    format!("it has no value {name:?}{hint} [values] has: {}", names.join(", "))
}

/// A text as a value of the same type as the usual one.
fn typed(name: &str, word: &str, usual: &Value) -> std::result::Result<Value, String> {
    let kind = match usual {
        Value::String(_) => return Ok(Value::String(word.to_owned())),
        Value::Integer(_) => match word.trim().parse() {
            Ok(number) => return Ok(Value::Integer(number)),
            Err(_) => "a whole number without a unit",
        },
        Value::Float(_) => match word.trim().parse::<f64>() {
            Ok(number) if number.is_finite() => return Ok(Value::Float(number)),
            _ => "a number without a unit",
        },
        Value::Boolean(_) => match word.trim() {
            "true" => return Ok(Value::Boolean(true)),
            "false" => return Ok(Value::Boolean(false)),
            _ => return Err(format!("{name} is true or false, as its usual value here, and not {word:?}")),
        },
        Value::Array(_) | Value::Table(_) | Value::Datetime(_) => {
            return Err(format!("{name} can only be given from outside if its usual value is a text or a number"));
        }
    };
    Err(format!(
        "{name} is {kind}, as its usual value here, and not {word:?}; if it may have a unit, write the usual value \
         as a text"
    ))
}

/// What is added to a message about a place where a value from outside stands.
pub fn note(given: &Given, name: Option<&str>) -> String {
    let word = name.and_then(|name| Some((name, given.get(name)?)));
    word.map_or(String::new(), |(name, word)| format!(" ({name} is {word:?}, given from outside)"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::case::{CaseFile, PolicySource};

    const CASE: &str = r#"name = "c"
description = "d"
duration = "${long}"
policy = "link l { rate ${rate} scheduler fifo }"
hosts = [{ name = "a" }, { name = "b" }]
links = [{ name = "l", from = "a", to = "b", policy = "l", rate = "${rate}" }]

[values]
rate = "10Mbit/s"
long = "2s"
size = 1000
part = 0.5
other = "${size}"
idle = 1
list = [1]

[[flows]]
name = "f"
kind = "udp"
from = "a"
to = "b"
size = "${other}"
rate = "1Mbit/s"
dport = "${list}"
"#;

    fn read(pairs: &[(&str, &str)]) -> std::result::Result<CaseFile, String> {
        let given = pairs.iter().map(|(name, word)| (name.to_string(), word.to_string())).collect();
        let text = CASE.replace("dport = \"${list}\"\n", "");
        CaseFile::parse_with(&text, Path::new("c.toml"), &given).map_err(|error| error.to_string())
    }

    #[test]
    fn values_take_the_place_of_the_usual_ones() {
        let file = read(&[("rate", "5Mbit/s"), ("long", "3s"), ("other", "700")]).unwrap();
        let case = &file.runs[0].case;
        assert_eq!(case.duration, 3_000_000_000);
        let PolicySource::Text(policy) = &case.columns[0].policy else { panic!("the policy is a text") };
        assert_eq!(policy, "link l { rate 5Mbit/s scheduler fifo }");
        // `other` has the type of what its usual value stands for, so it is a number here.
        assert!(format!("{:?}", case.flows[0].kind).contains("700"), "{:?}", case.flows[0].kind);
        assert_eq!(file.given.len(), 3);
    }

    #[test]
    fn what_cannot_be_given_is_said_with_a_way_out() {
        let wrong = |name: &str, word: &str| read(&[(name, word)]).unwrap_err();
        assert_eq!(
            wrong("rtae", "1"),
            "c.toml: it has no value \"rtae\"; did you mean \"rate\"? [values] has: idle, list, long, other, part, \
             rate, size"
        );
        assert_eq!(
            wrong("idle", "2"),
            "c.toml:14:1: idle is given from outside, but nothing in the case uses it; write ${idle} where it is \
             meant\n 14 | idle = 1\n    | ^"
        );
        assert_eq!(
            wrong("size", "1k"),
            "c.toml:11:8: size is a whole number without a unit, as its usual value here, and not \"1k\"; if it may \
             have a unit, write the usual value as a text\n 11 | size = 1000\n    |        ^"
        );
        let late = wrong("long", "soon");
        assert!(late.starts_with("c.toml:3:12: ") && late.contains("(long is \"soon\", given from outside)"), "{late}");
        let none = CaseFile::parse_with(
            "name = \"c\"\ndescription = \"d\"\n",
            Path::new("c.toml"),
            &Given::from([("x".to_owned(), "1".to_owned())]),
        );
        assert_eq!(
            none.unwrap_err().to_string(),
            "c.toml: it has no values, so x cannot be given: write a usual value for it below [values], and ${x} where \
             it is meant"
        );
    }

    #[test]
    fn lists_and_what_rows_give_do_not_come_from_outside() {
        let given = |name: &str| Given::from([(name.to_owned(), "1".to_owned())]);
        let list = CaseFile::parse_with(CASE, Path::new("c.toml"), &given("list")).unwrap_err().to_string();
        assert!(list.starts_with("c.toml:15:8: list can only be given from outside if"), "{list}");
        let rows = format!("rows = [{{ name = \"r\", values = {{ size = 5 }} }}]\n{CASE}");
        let row = CaseFile::parse_with(&rows, Path::new("c.toml"), &given("size")).unwrap_err().to_string();
        assert!(row.contains("rows give size values of their own"), "{row}");
    }
}
