//! Classes of JoBS: `class jobs IF NAME NULL`, which options follow (docs/reference/altq.md 8.3).

use altq_engine::settings::{ONE, Settings, Value};
use altq_engine::units::Rate;

use super::file::{Draft, File, Words};
use super::words;
use crate::diagnostic::{Diagnostic, Span};
use crate::suggest::did_you_mean;

/// Options of a class.
const OPTIONS: &[&str] = &["priority", "adc", "alc", "arc", "rdc", "rlc", "default"];
/// The greatest priority.
const MOST: u64 = 15;

/// What a number says: a value, or `None` where it turns the option off.
type Read = fn(&str) -> Option<Option<Value>>;

/// What stands behind an option.
fn number(option: &str) -> (&'static str, Read) {
    match option {
        "priority" => {
            ("a number from 0 to 15", |word| words::integer(word).filter(|n| *n <= MOST).map(|n| Some(Value::Int(n))))
        }
        "adc" => ("microseconds, or -1 for none", |word| {
            let time = |n: u64| Some(Value::Time(n * 1000));
            unless_off(word, words::integer(word).filter(|n| (1..=60_000_000).contains(n)).map(time))
        }),
        "alc" => ("a part of one, as 0.01, or -1 for none", |word| {
            let part = word.parse::<f64>().ok().filter(|part| (0.0..=1.0).contains(part));
            unless_off(word, part.map(|part| Some(Value::Fraction((part * f64::from(ONE)).round() as u32))))
        }),
        "arc" => ("a rate in bit/s, as 1.5M, or -1 for none", |word| {
            unless_off(word, words::rate(word).map(|rate| Some(Value::Rate(Rate::bit_s(rate)))))
        }),
        _ => ("a number from 1 to 1000, or -1 for none", |word| {
            unless_off(word, words::integer(word).filter(|n| (1..=1000).contains(n)).map(|n| Some(Value::Int(n))))
        }),
    }
}

fn unless_off(word: &str, value: Option<Option<Value>>) -> Option<Option<Value>> {
    if word == "-1" { Some(None) } else { value }
}

impl File<'_> {
    /// Makes a class whose name is read and new.
    pub(super) fn jobs_class(&mut self, words: &mut Words<'_>, at: usize, name: Span) {
        let (mut given, mut settings, mut default, mut good) = (Vec::new(), Settings::new(), false, true);
        while let Some(span) = words.next() {
            let word = self.slice(span);
            let Some(option) = OPTIONS.iter().find(|option| **option == word).copied() else {
                let help = did_you_mean(word, OPTIONS.iter().copied());
                self.error("unknown-word", span, format!("a class of jobs does not know `{word}`"), help);
                good = false;
                continue;
            };
            good &= self.once(&mut given, option, span);
            if option == "default" {
                default = true;
                continue;
            }
            let (what, read) = number(option);
            match self.value(words, span, what, read) {
                Some((Some(value), _)) => _ = settings.set(option, value),
                Some((None, _)) => {}
                None => good = false,
            }
        }
        if !good || !self.one_default(at, name, default) {
            return;
        }
        let Some(priority) = settings.int("priority") else {
            let help = Some("write `priority 0` for the first one, up to 15".to_owned());
            return self.error("missing-word", name, "a class of jobs needs its priority; ALTQ took any", help);
        };
        let classes = &self.interfaces[at].classes;
        let taken = classes.iter().skip(1).find(|class| class.settings.int("priority") == Some(priority));
        if let Some(first) = taken {
            let place = given.iter().find(|(word, _)| *word == "priority").map_or(name, |(_, span)| *span);
            let message = format!("`{}` has the priority {priority} already: ALTQ has one class each", first.name);
            let error = Diagnostic::error("given-twice", place, message).label(first.span, "the first");
            return self.findings.push(error.help("write another priority, 0 to 15"));
        }
        let class = self.push_class(
            at,
            Draft {
                name: self.slice(name).to_owned(),
                span: name,
                parent: Some(0),
                bandwidth: 0,
                allocated: 0,
                settings,
                queue: None,
                words: given,
                queue_words: Vec::new(),
                made: false,
            },
        );
        if default {
            self.interfaces[at].default = Some(class);
        }
    }
}
