//! Reads `meter KIND { … }` of a class or a link.

use altq_engine::settings::{Settings, Value};
use altq_engine::shape::meter::{COLOURS, DEEPEST, KINDS, MeterSpec, Path, WORDS};

use super::reader::{Base, Cursor, Reader, Spanned};
use super::token::What;
use crate::diagnostic::short;
use crate::literal::policy;
use crate::suggest::did_you_mean;

/// Reads a meter's kind and words, and the meters inside it, into the settings of its class.
pub fn read(
    reader: &mut Reader<'_>,
    cursor: &mut Cursor<'_>,
    of: Spanned<'_>,
    base: &Base,
    into: &mut Settings,
) -> Option<()> {
    let errors = reader.findings.errors();
    let words = read_at(reader, cursor, of, base, Path::ROOT)?;
    if reader.findings.errors() == errors {
        words.iter().for_each(|(word, value)| _ = into.set(word, value));
    }
    Some(())
}

/// Reads the kind and words of the meter at a place. `None` if its braces could not be found.
fn read_at(
    reader: &mut Reader<'_>,
    cursor: &mut Cursor<'_>,
    of: Spanned<'_>,
    base: &Base,
    path: Path,
) -> Option<Settings> {
    let Some((name, span)) = cursor.word(reader) else {
        reader.error(
            "missing-value",
            of.1,
            "`meter` needs a kind, as `meter bucket { cir 1Mbit/s cbs 15000bytes red drop }`",
            None,
        );
        return None;
    };
    let Some(kind) = KINDS.iter().find(|kind| **kind == name) else {
        let help =
            did_you_mean(name, KINDS.iter().copied()).or_else(|| Some(format!("there are {}", KINDS.join(", "))));
        reader.error("unknown-word", span, format!("no meter is called `{}`", short(name)), help);
        return None;
    };
    let Some((inside, ..)) = cursor.group() else {
        let help = Some(format!("as `meter {kind} {{ cir 1Mbit/s  cbs 15000bytes  red drop }}`"));
        reader.error("missing-braces", span, format!("`meter {kind}` needs braces"), help);
        return None;
    };
    let errors = reader.findings.errors();
    let mut words = Settings::new();
    let Some(whole) = path.setting("kind").filter(|_| path.exists()) else {
        let help = Some("put one of them into the class above".to_owned());
        reader.error("too-deep", of.1, format!("a chain has at most {DEEPEST} meters"), help);
        return Some(words);
    };
    words.set(whole, Value::Choice(kind));
    let mut places = Vec::new();
    let mut cursor = Cursor::new(inside);
    let known = |word: &str| WORDS.iter().any(|entry| entry.name == word) || COLOURS.contains(&word);
    while let Some(tree) = cursor.next() {
        let text = reader.slice(tree.span);
        let of = (text, tree.span);
        let word = path.setting(text).filter(|_| matches!(tree.what, What::Word) && known(text));
        let Some(word) = word else {
            let help = did_you_mean(text, WORDS.iter().map(|entry| entry.name).chain(COLOURS));
            reader.error("unknown-word", tree.span, format!("a meter does not know `{}`", short(text)), help);
            cursor.skip(reader, known);
            continue;
        };
        let fresh = reader.once(&mut places, word, tree.span);
        let value = match WORDS.iter().find(|entry| entry.name == text) {
            Some(entry) => reader.registry_value(&mut cursor, entry, of, base),
            None => action(reader, &mut cursor, of),
        };
        let value = match (value, COLOURS.iter().position(|colour| *colour == text)) {
            (Some(value @ Value::Choice("meter")), Some(colour)) => {
                let of = ("meter", tree.span);
                read_at(reader, &mut cursor, of, base, path.below(colour)).map(|inner| {
                    inner.iter().for_each(|(word, value)| _ = words.set(word, value));
                    value
                })
            }
            (value, _) => value,
        };
        match value {
            Some(value) if fresh => _ = words.set(word, value),
            Some(_) => {}
            None => cursor.skip(reader, known),
        }
    }
    if reader.findings.errors() > errors {
        return Some(words);
    }
    if let Err(error) = MeterSpec::read_at(&words, path) {
        // The error points to the word that it names, if that is written.
        let named = places
            .iter()
            .find(|(word, _)| word.rsplit(' ').next().is_some_and(|word| error.message.contains(&format!("`{word}"))));
        reader.error("bad-meter", named.map_or(span, |(_, span)| *span), error.message, error.help);
    }
    Some(words)
}

/// Reads what happens to packets of a colour: `pass`, `drop`, `dscp` and a codepoint, or `meter`,
/// which the other meter follows.
fn action(reader: &mut Reader<'_>, cursor: &mut Cursor<'_>, of: Spanned<'_>) -> Option<Value> {
    let (text, span) = reader.value(cursor, of, "`pass`, `drop`, `dscp af12` or `meter`")?;
    match &*text {
        "pass" => Some(Value::Choice("pass")),
        "drop" => Some(Value::Choice("drop")),
        "meter" => Some(Value::Choice("meter")),
        "dscp" => {
            let (text, span) = reader.value(cursor, ("dscp", span), "a codepoint, as af12")?;
            let dscp = reader.literal(policy::dscp(&text), span)?;
            Some(Value::Int(u64::from(dscp)))
        }
        _ => {
            let help = did_you_mean(&text, ["pass", "drop", "dscp", "meter"]);
            reader.error("unknown-word", span, format!("`{}` does not know `{}`", of.0, short(&text)), help);
            None
        }
    }
}
