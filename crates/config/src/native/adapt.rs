//! Reads `adapt { … }` behind the rate of a link.

use std::net::IpAddr;

use altq_engine::units::{Nanos, Rate, SECOND};

use super::reader::{Cursor, Reader, Spanned};
use super::token::{Tree, What};
use super::words;
use crate::diagnostic::{Diagnostic, Span, short};
use crate::literal::policy;
use crate::policy::Adapt;

/// The most reflectors of a link: each is probed four times a second.
const MOST: usize = 32;

/// The way out where something is missing.
const EXAMPLE: &str = "as `adapt { from 5Mbit/s to 60Mbit/s  target 30ms  reflectors { 1.1.1.1 8.8.8.8 9.9.9.9 } }`";

/// Reads the words in the braces. `rate`: that of the link, and where it is written.
pub fn read(reader: &mut Reader<'_>, cursor: &mut Cursor<'_>, at: Span, rate: (Rate, Span)) -> Option<Adapt> {
    let Some((inside, ..)) = cursor.group() else {
        reader.error("missing-braces", at, "`adapt` needs braces", Some(EXAMPLE.to_owned()));
        return None;
    };
    let errors = reader.findings.errors();
    let (mut bounds, mut target, mut reflectors) = (None, None, None);
    let mut seen = Vec::new();
    let known = |word: &str| words::ADAPT.contains(&word);
    let mut cursor = Cursor::new(inside);
    while let Some(tree) = cursor.next() {
        let text = reader.slice(tree.span);
        let word = match tree.what {
            What::Word => words::ADAPT.iter().find(|word| **word == text).copied(),
            _ => None,
        };
        let Some(word) = word else {
            reader.unknown(&mut cursor, tree, "`adapt`", words::ADAPT);
            continue;
        };
        if !reader.once(&mut seen, word, tree.span) {
            cursor.skip(reader, known);
            continue;
        }
        let of = (text, tree.span);
        let read = match word {
            "from" => read_bounds(reader, &mut cursor, of, rate).map(|value| bounds = Some(value)),
            "target" => read_target(reader, &mut cursor, of).map(|value| target = Some(value)),
            _ => read_reflectors(reader, &mut cursor, of).map(|value| reflectors = Some(value)),
        };
        if read.is_none() {
            cursor.skip(reader, known);
        }
    }
    if reader.findings.errors() > errors {
        return None;
    }
    match (bounds, reflectors) {
        (Some((from, to)), Some(reflectors)) => {
            Some(Adapt { from, to, target: target.unwrap_or(Adapt::TARGET), reflectors })
        }
        (bounds, _) => {
            let missing = match bounds {
                None => "has no bounds: `from` and `to`",
                Some(_) => "has no `reflectors`, the hosts whose answers show the delay",
            };
            reader.error("missing-word", at, format!("this `adapt` {missing}"), Some(EXAMPLE.to_owned()));
            None
        }
    }
}

/// Reads `from R to R`.
fn read_bounds(
    reader: &mut Reader<'_>,
    cursor: &mut Cursor<'_>,
    of: Spanned<'_>,
    (rate, rate_at): (Rate, Span),
) -> Option<(Rate, Rate)> {
    let (from, from_at) = bound(reader, cursor, of)?;
    let Some(word) = cursor.eat(reader, "to") else {
        let at = cursor.peek_word(reader).map_or(from_at, |(_, at)| at);
        let help = Some("as `from 5Mbit/s to 60Mbit/s`".to_owned());
        reader.error("missing-value", at, "behind the lowest rate stand `to` and the highest one", help);
        return None;
    };
    let (to, to_at) = bound(reader, cursor, ("to", word))?;
    if to < from {
        reader.error("out-of-range", to_at, format!("the highest rate {to} is less than the lowest, {from}"), None);
        return None;
    }
    if rate < from || to < rate {
        let message = format!("the rate {rate} is not among those from {from} to {to}");
        let help = "it is where an unused link returns to, so it lies between them";
        let error = Diagnostic::error("out-of-range", rate_at, message).help(help);
        reader.findings.push(error.label(from_at.to(to_at), "the bounds"));
        return None;
    }
    Some((from, to))
}

/// Reads one of the bounds: a rate of more than 0 bit/s.
fn bound(reader: &mut Reader<'_>, cursor: &mut Cursor<'_>, of: Spanned<'_>) -> Option<(Rate, Span)> {
    let (text, at) = reader.value(cursor, of, "a rate, as 5Mbit/s")?;
    if text.ends_with('%') || text.ends_with("cells/s") {
        let help = Some("as `from 5Mbit/s to 60Mbit/s`".to_owned());
        reader.error("bad-value", at, "a bound of a link's rate is written in bit/s", help);
        return None;
    }
    let rate = reader.literal(policy::rate(&text), at)?;
    if rate.is_zero() {
        reader.error("out-of-range", at, "a link of 0 bit/s carries nothing", None);
        return None;
    }
    Some((rate, at))
}

/// Reads the delay that is tolerated: 1 ms to 1 s.
fn read_target(reader: &mut Reader<'_>, cursor: &mut Cursor<'_>, of: Spanned<'_>) -> Option<Nanos> {
    let (text, at) = reader.value(cursor, of, "a time, as 30ms")?;
    let target = reader.literal(policy::time(&text), at)?;
    if (SECOND / 1000..=SECOND).contains(&target) {
        return Some(target);
    }
    let help = "by how much longer than usual answers may take; 30ms suit most lines".to_owned();
    reader.error("out-of-range", at, format!("`target` takes 1ms to 1s, not {text}"), Some(help));
    None
}

/// Reads `{ ADDRESS … }`.
fn read_reflectors(reader: &mut Reader<'_>, cursor: &mut Cursor<'_>, of: Spanned<'_>) -> Option<Vec<IpAddr>> {
    let Some((inside, ..)) = cursor.group() else {
        let help = Some("as `reflectors { 1.1.1.1 8.8.8.8 9.9.9.9 }`".to_owned());
        reader.error("missing-braces", of.1, "`reflectors` needs addresses in braces", help);
        return None;
    };
    let mut found: Vec<(IpAddr, Span)> = Vec::new();
    let mut good = true;
    for tree in inside {
        match reflector(reader, tree, &found) {
            Some(address) => found.push((address, tree.span)),
            None => good = false,
        }
    }
    if good && found.is_empty() {
        let help = Some("three or more, so that the others can outvote one that is wrong".to_owned());
        reader.error("missing-value", of.1, "there is no reflector in the braces", help);
        return None;
    }
    if let Some((_, at)) = found.get(MOST) {
        reader.error("out-of-range", *at, format!("a link has {MOST} reflectors at most"), None);
        return None;
    }
    good.then(|| found.into_iter().map(|(address, _)| address).collect())
}

/// Reads an address that none of the others has.
fn reflector(reader: &mut Reader<'_>, tree: &Tree, others: &[(IpAddr, Span)]) -> Option<IpAddr> {
    let text = reader.slice(tree.span);
    let address = match tree.what {
        What::Word => text.parse::<IpAddr>().ok(),
        _ => None,
    };
    let Some(address) = address else {
        let help = Some("IPv4 or IPv6, as 9.9.9.9 or 2620:fe::9; names are not looked up".to_owned());
        reader.error("bad-value", tree.span, format!("`{}` is not an address", short(text)), help);
        return None;
    };
    if let Some((_, first)) = others.iter().find(|(other, _)| *other == address) {
        let error = Diagnostic::error("given-twice", tree.span, format!("the reflector {address} is given twice"));
        reader.findings.push(error.label(*first, "first here"));
        return None;
    }
    Some(address)
}
