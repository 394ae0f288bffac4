//! Walks through the words of a text, and reads values by the tables of the engine's registries.

use std::borrow::Cow;
use std::collections::HashMap;

use altq_engine::classify::Address;
use altq_engine::settings::{Kind, Settings, Value, Word};
use altq_engine::shape::service_curve::ServiceCurve;
use altq_engine::units::Rate;

use super::token::{Tree, What};
use crate::diagnostic::{Diagnostic, Findings, Sources, Span, short};
use crate::literal::{Wrong, policy};
use crate::suggest::did_you_mean;

/// The way out where `include` stands inside of something.
const INCLUDE: &str = "`include` stands at the top of a file, beside the links and sets: what it reads are whole \
    links and sets, not parts of a link";

/// What every part of the parser needs.
pub struct Reader<'a> {
    /// The texts.
    pub sources: &'a Sources,
    /// Where errors and warnings go.
    pub findings: &'a mut Findings,
    /// The addresses of each `set`, and where it is named.
    pub sets: HashMap<String, (Span, Vec<Address>)>,
}

/// A place in a list of trees.
pub struct Cursor<'t> {
    trees: &'t [Tree],
    at: usize,
}

/// A word and its place.
pub type Spanned<'a> = (&'a str, Span);

impl<'t> Cursor<'t> {
    pub fn new(trees: &'t [Tree]) -> Cursor<'t> {
        Cursor { trees, at: 0 }
    }

    pub fn peek(&self) -> Option<&'t Tree> {
        self.trees.get(self.at)
    }

    pub fn next(&mut self) -> Option<&'t Tree> {
        let tree = self.trees.get(self.at)?;
        self.at += 1;
        Some(tree)
    }

    /// The next tree if it stands on the same line as the one before.
    pub fn peek_same_line(&self) -> Option<&'t Tree> {
        self.peek().filter(|tree| self.at == 0 || !tree.starts_line)
    }

    /// The next word, if it stands on the same line. It is not taken.
    pub fn peek_word<'a>(&self, reader: &Reader<'a>) -> Option<Spanned<'a>> {
        self.peek_same_line()
            .filter(|tree| matches!(tree.what, What::Word))
            .map(|tree| (reader.slice(tree.span), tree.span))
    }

    /// Takes the next word, if it stands on the same line.
    pub fn word<'a>(&mut self, reader: &Reader<'a>) -> Option<Spanned<'a>> {
        let word = self.peek_word(reader)?;
        self.at += 1;
        Some(word)
    }

    /// Takes the next word, if it stands on the same line and is this one.
    pub fn eat(&mut self, reader: &Reader<'_>, word: &str) -> Option<Span> {
        let (found, span) = self.peek_word(reader)?;
        (found == word).then(|| {
            self.at += 1;
            span
        })
    }

    /// Takes the next group in braces, on this line or a later one: what is inside, and the places
    /// of its braces.
    pub fn group(&mut self) -> Option<(&'t [Tree], Span, Span)> {
        match self.peek() {
            Some(Tree { what: What::Group { inside, close }, span, .. }) => {
                self.at += 1;
                Some((inside, *span, *close))
            }
            _ => None,
        }
    }

    /// Skips the rest after an error: up to the next known word, or to the next line.
    pub fn skip(&mut self, reader: &Reader<'_>, known: impl Fn(&str) -> bool) {
        while let Some(tree) = self.peek_same_line() {
            if matches!(tree.what, What::Word) && known(reader.slice(tree.span)) {
                return;
            }
            self.at += 1;
        }
        // A group in braces belongs to the word before it, even if it stands on a line of its own.
        while matches!(self.peek(), Some(Tree { what: What::Group { .. }, .. })) {
            self.at += 1;
        }
    }
}

impl<'a> Reader<'a> {
    pub fn slice(&self, span: Span) -> &'a str {
        self.sources.slice(span)
    }

    pub fn error(&mut self, code: &'static str, span: Span, message: impl Into<String>, help: Option<String>) {
        self.findings.push(Diagnostic::error(code, span, message).help_if(help));
    }

    /// Reports a name that no interface can have (`dev_valid_name` in net/core/dev.c). False then.
    pub fn good_interface(&mut self, name: &str, span: Span) -> bool {
        let bad = |c: char| c.is_whitespace() || matches!(c, '/' | ':');
        if !name.is_empty() && name.len() <= 15 && !name.contains(bad) && name != "." && name != ".." {
            return true;
        }
        let help = "1 to 15 characters, no `/` and no `:`, as the kernel has it".to_owned();
        self.error("bad-value", span, format!("`{}` is no name of an interface", short(name)), Some(help));
        false
    }

    /// Reports a word that has no meaning here, and skips to one that has.
    pub fn unknown(&mut self, cursor: &mut Cursor<'_>, tree: &Tree, place: &str, words: &[&str]) {
        let known = |word: &str| words.contains(&word);
        match &tree.what {
            What::Word => {
                let text = self.slice(tree.span);
                let help = match text {
                    "include" => Some(INCLUDE.to_owned()),
                    _ => did_you_mean(text, words.iter().copied()),
                };
                self.error("unknown-word", tree.span, format!("{place} does not know `{}`", short(text)), help);
            }
            What::Group { .. } => {
                self.error("unexpected", tree.span, "a brace here belongs to no word", None);
            }
            _ => {
                let text = self.slice(tree.span);
                self.error(
                    "unexpected",
                    tree.span,
                    format!("{place} expects a word here, not `{}`", short(text)),
                    None,
                );
            }
        }
        cursor.skip(self, known);
    }

    /// Notes that a word is written. An error, and false, if it was written before.
    pub fn once(&mut self, words: &mut Vec<(&'static str, Span)>, word: &'static str, span: Span) -> bool {
        match words.iter().find(|(name, _)| *name == word) {
            Some((_, first)) => {
                let written = self.slice(span);
                let error = Diagnostic::error("given-twice", span, format!("`{written}` is given twice"));
                let text = if self.slice(*first) == written { "first here" } else { "this word says the same" };
                self.findings.push(error.label(*first, text));
                false
            }
            None => {
                words.push((word, span));
                true
            }
        }
    }

    /// Takes a value: the next word on the line, and its unit if a space separates them.
    pub fn value(&mut self, cursor: &mut Cursor<'_>, of: Spanned<'_>, what: &str) -> Option<(Cow<'a, str>, Span)> {
        let Some((word, span)) = cursor.word(self) else {
            self.error("missing-value", of.1, format!("`{}` needs {what}", of.0), None);
            return None;
        };
        if word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
            && let Some((unit, end)) = cursor.peek_word(self).filter(|(unit, _)| UNITS.contains(unit))
        {
            cursor.next();
            return Some((Cow::Owned(format!("{word}{unit}")), span.to(end)));
        }
        Some((Cow::Borrowed(word), span))
    }

    /// The value of a literal. Reports one that is wrong.
    pub fn literal<T>(&mut self, result: Result<T, Wrong>, span: Span) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(wrong) => {
                self.error("bad-value", span, wrong.message, wrong.help);
                None
            }
        }
    }

    /// Reads a rate, or a percentage of the rate of the link or the parent.
    pub fn rate(&mut self, cursor: &mut Cursor<'_>, of: Spanned<'_>, base: &Base) -> Option<Rate> {
        let (word, span) = self.value(cursor, of, "a rate, as 5Mbit/s, or a percentage")?;
        let Some(percent) = policy::percent(&word) else {
            if of.0 == "share" {
                let help = if policy::rate(&word).is_ok() {
                    format!("write `rate {word}`, or `share 5%`")
                } else {
                    "as `share 5%`".to_owned()
                };
                self.error("bad-value", span, "a share is a percentage", Some(help));
                return None;
            }
            return self.literal(policy::rate(&word), span);
        };
        let percent = self.literal(percent, span)?;
        let mut whole = base.link;
        let mut end = span;
        if let Some(of) = cursor.eat(self, "of") {
            match cursor.word(self) {
                Some(("parent", at)) => (whole, end) = (base.parent, at),
                Some(("link", at)) => end = at,
                other => {
                    let at = other.map_or(of, |(_, at)| at);
                    self.error("bad-value", at, "a percentage is `of link` or `of parent`", None);
                    return None;
                }
            }
        }
        let Some(whole) = whole else {
            self.error("no-base", span.to(end), "the parent guarantees no rate that a part could be taken of", None);
            return None;
        };
        if percent.is_over_100() {
            let help = "a class cannot have more than all of it".to_owned();
            self.error("over-100-percent", span.to(end), format!("{word} is more than 100 %"), Some(help));
            return None;
        }
        percent.percent_of(whole.as_bit_s()).map(Rate::bit_s)
    }

    /// Reads a service curve: a rate, or `R1 for T then R2`.
    fn curve(&mut self, cursor: &mut Cursor<'_>, of: Spanned<'_>, base: &Base) -> Option<ServiceCurve> {
        let first = self.rate(cursor, of, base)?;
        let Some(word) = cursor.eat(self, "for") else { return Some(ServiceCurve::linear(first)) };
        let (text, span) = self.value(cursor, ("for", word), "a time, as 5ms")?;
        let until = self.literal(policy::time(&text), span)?;
        if until == 0 {
            self.error("out-of-range", span, "the first piece of a curve takes longer than no time", None);
            return None;
        }
        let Some(then) = cursor.eat(self, "then") else {
            let help = Some(format!("as `{} 2Mbit/s for 5ms then 1Mbit/s`", of.0));
            let at = cursor.peek_word(self).map_or(span, |(_, at)| at);
            self.error("missing-value", at, "behind the time stands `then` and the rate from there on", help);
            return None;
        };
        let then = self.rate(cursor, ("then", then), base)?;
        Some(ServiceCurve { first, until, then })
    }

    /// Reads the value of a word by its entry in a registry.
    pub fn registry_value(
        &mut self,
        cursor: &mut Cursor<'_>,
        word: &Word,
        of: Spanned<'_>,
        base: &Base,
    ) -> Option<Value> {
        let between = |reader: &mut Self, n: u64, min: u64, max: u64, span: Span| {
            if (min..=max).contains(&n) {
                return Some(n);
            }
            reader.error("out-of-range", span, format!("`{}` takes {min} to {max}, not {n}", of.0), None);
            None
        };
        Some(match word.kind {
            Kind::Flag => Value::Flag,
            Kind::Rate => Value::Rate(self.rate(cursor, of, base)?),
            Kind::Curve => Value::Curve(self.curve(cursor, of, base)?),
            Kind::Int { min, max } => {
                let (text, span) = self.value(cursor, of, "a number")?;
                let n = self.literal(policy::int(&text), span)?;
                Value::Int(between(self, n, min, max, span)?)
            }
            Kind::Bytes { min, max } => {
                let (text, span) = self.value(cursor, of, "a number of bytes")?;
                let n = self.literal(policy::bytes(&text), span)?;
                Value::Bytes(between(self, n, min, max, span)?)
            }
            Kind::Time => {
                let (text, span) = self.value(cursor, of, "a time, as 50ms")?;
                Value::Time(self.literal(policy::time(&text), span)?)
            }
            Kind::Limit => {
                let (text, span) = self.value(cursor, of, "a limit, as 50packets or 64000bytes")?;
                Value::Limit(self.literal(policy::limit(&text), span)?)
            }
            Kind::Fraction => {
                let (text, span) = self.value(cursor, of, "a part of one, as 0.02")?;
                Value::Fraction(self.literal(policy::fraction(&text), span)?)
            }
            Kind::Percent => {
                let (text, span) = self.value(cursor, of, "a percentage, as 30%")?;
                Value::Percent(self.literal(policy::percentage(&text), span)?)
            }
            Kind::Choice(words) => {
                let (text, span) = self.value(cursor, of, &format!("one of {}", words.join(", ")))?;
                match words.iter().find(|choice| **choice == text) {
                    Some(choice) => Value::Choice(choice),
                    None => {
                        let help = did_you_mean(&text, words.iter().copied());
                        self.error("unknown-word", span, format!("`{}` does not know `{}`", of.0, short(&text)), help);
                        return None;
                    }
                }
            }
        })
    }

    /// Reads the words of a scheduler in its braces, and where each is written.
    pub fn settings(
        &mut self,
        trees: &[Tree],
        table: &'static [Word],
        of: &str,
        base: &Base,
    ) -> (Settings, Vec<(&'static str, Span)>) {
        let mut cursor = Cursor::new(trees);
        let (mut settings, mut places) = (Settings::new(), Vec::new());
        while let Some(tree) = cursor.next() {
            let text = self.slice(tree.span);
            let known = |word: &str| table.iter().any(|entry| entry.name == word);
            match table.iter().find(|entry| matches!(tree.what, What::Word) && entry.name == text) {
                Some(entry) => {
                    let fresh = self.once(&mut places, entry.name, tree.span);
                    if let Some(value) = self.registry_value(&mut cursor, entry, (text, tree.span), base) {
                        if fresh {
                            settings.set(entry.name, value);
                        }
                    } else {
                        cursor.skip(self, known);
                    }
                }
                None => {
                    let help = did_you_mean(text, table.iter().map(|entry| entry.name));
                    let help = help.or_else(|| Some(format!("{of} takes no words of its own")));
                    self.error("unknown-word", tree.span, format!("{of} does not know `{}`", short(text)), help);
                    cursor.skip(self, known);
                }
            }
        }
        (settings, places)
    }
}

/// The rates to which percentages refer; `None` where there is none.
#[derive(Clone, Copy, Debug)]
pub struct Base {
    pub link: Option<Rate>,
    pub parent: Option<Rate>,
}

/// Units that a space may separate from their number.
const UNITS: &[&str] =
    &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "cells/s", "bytes", "packets", "%", "ns", "us", "ms", "s"];
