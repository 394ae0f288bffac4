//! Fills in `${x}` in a case's text: the values that differ from row to row and from column to
//! column.
//!
//! A placeholder may stand wherever a text may. A text that is nothing but `${x}` becomes the value
//! itself, with its type, so that the file is valid TOML before and after. Places in the filled
//! text are mapped back to the file, for errors.

use std::collections::BTreeMap;
use std::ops::Range;

/// Values by their names.
pub type Values = BTreeMap<String, toml::Value>;

/// A text with its values filled in.
pub struct Filled {
    /// The text.
    pub text: String,
    /// The replacements: the place in the filled text, the place in the file, and the value's name.
    pieces: Vec<(Range<usize>, Range<usize>, String)>,
}

impl Filled {
    /// The place in the file of a piece of the text.
    pub fn original(&self, span: &Range<usize>) -> Range<usize> {
        let start = self.place(span.start, false);
        start..self.place(span.end, true).max(start)
    }

    /// The name of the value that stands in a piece of the text, if the piece is of one line.
    pub fn value_in(&self, span: &Range<usize>) -> Option<&str> {
        self.text.get(span.clone()).filter(|piece| !piece.contains('\n'))?;
        let meets = |now: &Range<usize>| now.start < span.end.max(span.start + 1) && span.start < now.end;
        self.pieces.iter().find(|(now, ..)| meets(now)).map(|(.., name)| name.as_str())
    }

    fn place(&self, at: usize, end: bool) -> usize {
        let mut shift: (usize, usize) = (0, 0);
        for (now, before, _) in &self.pieces {
            if at < now.start || end && at == now.start {
                break;
            }
            if at < now.end || end && at == now.end {
                return if end { before.end } else { before.start };
            }
            shift = (now.end, before.end);
        }
        shift.1 + (at - shift.0)
    }
}

/// The name in a text that is nothing but `${name}`.
pub fn alone(text: &str) -> Option<&str> {
    text.strip_prefix("${")?.strip_suffix('}')
}

/// Replaces values that are nothing but `${x}` by the value of x. So a column may use a value that
/// its rows give.
pub fn look_up(values: &mut Values) {
    let plain = values.clone();
    for value in values.values_mut() {
        if let Some(other) = value.as_str().and_then(alone).and_then(|name| plain.get(name)) {
            *value = other.clone();
        }
    }
}

/// Fills the values in. The place of an error is that in the file.
pub fn fill(text: &str, values: &Values) -> Result<Filled, (Range<usize>, String)> {
    let mut out = String::with_capacity(text.len());
    let mut pieces = Vec::new();
    let mut done = 0;
    while let Some(found) = text[done..].find("${") {
        let start = done + found;
        let Some(length) = text[start..].find('}') else {
            return Err((start..start + 2, "${ without its }".into()));
        };
        let end = start + length + 1;
        let name = &text[start + 2..end - 1];
        let Some(value) = values.get(name) else {
            let hint = altq_config::suggest::nearest(name, values.keys().map(String::as_str));
            let hint = hint.map(|n| format!("; did you mean ${{{n}}}?")).unwrap_or_default();
            return Err((start..end, format!("there is no value {name:?}{hint}")));
        };
        // A text that is the placeholder alone: a quote, the placeholder, a quote, and neither
        // quote is part of several quotes in a row.
        let bytes = text.as_bytes();
        let quote = |at: Option<usize>| at.and_then(|at| bytes.get(at)).copied().filter(|b| matches!(b, b'"' | b'\''));
        let whole = quote(start.checked_sub(1)).is_some_and(|q| {
            quote(Some(end)) == Some(q) && quote(start.checked_sub(2)) != Some(q) && quote(Some(end + 1)) != Some(q)
        });
        let (from, to) = if whole { (start - 1, end + 1) } else { (start, end) };
        out += &text[done..from];
        let begin = out.len();
        match value {
            toml::Value::String(plain) if !whole => {
                if plain.contains(['"', '\'', '\\', '\n', '\r']) {
                    let message = format!(
                        "the value of {name} has quotes, backslashes or line ends; it can only be a text of its own"
                    );
                    return Err((start..end, message));
                }
                out += plain;
            }
            other => out += &other.to_string(),
        }
        pieces.push((begin..out.len(), from..to, name.to_owned()));
        done = to;
    }
    out += &text[done..];
    Ok(Filled { text: out, pieces })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_other_values() {
        let mut values =
            values(&[("slots", "${ring}".into()), ("ring", toml::Value::Integer(12)), ("odd", "${none}".into())]);
        look_up(&mut values);
        assert_eq!(values["slots"], toml::Value::Integer(12));
        assert_eq!(values["odd"], toml::Value::from("${none}"));
    }

    fn values(pairs: &[(&str, toml::Value)]) -> Values {
        pairs.iter().map(|(name, value)| (name.to_string(), value.clone())).collect()
    }

    #[test]
    fn a_whole_text_becomes_the_value_and_places_are_kept() {
        let values = values(&[("n", 1500.into()), ("class", "slow".into())]);
        let text = "size = \"${n}\"\nname = \"the ${class} one\"\npolicy = '''${n}'''\nend = 1";
        let filled = fill(text, &values).unwrap();
        assert_eq!(filled.text, "size = 1500\nname = \"the slow one\"\npolicy = '''1500'''\nend = 1");
        for word in ["size", "name", "the ", " one", "policy", "end"] {
            let (now, before) = (filled.text.find(word).unwrap(), text.find(word).unwrap());
            assert_eq!(filled.original(&(now..now + word.len())), before..before + word.len(), "{word}");
        }
        let at = filled.text.find("1500").unwrap();
        assert_eq!(&text[filled.original(&(at..at + 4))], "\"${n}\"");
    }

    #[test]
    fn what_cannot_stand_is_refused() {
        let values = values(&[("mtu", 1500.into()), ("text", "a\"b".into())]);
        assert!(fill("x = \"${mtv}\"", &values).err().unwrap().1.contains("did you mean ${mtu}?"));
        assert!(fill("x = \"${mtu\"", &values).err().unwrap().1.contains("without its }"));
        assert!(fill("x = \"a ${text}\"", &values).err().unwrap().1.contains("quotes"));
        assert_eq!(fill("x = \"${text}\"", &values).unwrap().text, "x = 'a\"b'");
    }
}
