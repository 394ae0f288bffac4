//! Classes of PRIQ: `class priq IF NAME NULL`, which options follow (docs/reference/altq.md 4).

use altq_engine::settings::{Settings, Value};

use super::file::{Draft, File, Words};
use super::hfsc::LIMIT;
use super::{queues, words};
use crate::diagnostic::{Diagnostic, Span};
use crate::suggest::did_you_mean;

/// Options of a class.
const OPTIONS: &[&str] = &["priority", "qlimit", "default", "red", "rio", "ecn", "cleardscp"];
/// The greatest priority.
const MOST: u64 = 15;

impl File<'_> {
    /// Makes a class whose name is read and new.
    pub(super) fn priq_class(&mut self, words: &mut Words<'_>, at: usize, name: Span) {
        let (mut given, mut queue, mut limit, mut default) = (Vec::new(), queues::Kind::default(), None, false);
        // Without the word altqd's priority is 0.
        let mut priority = 0;
        let mut good = true;
        while let Some(span) = words.next() {
            let word = self.slice(span);
            let Some(option) = OPTIONS.iter().find(|option| **option == word).copied() else {
                let help = did_you_mean(word, OPTIONS.iter().copied());
                self.error("unknown-word", span, format!("a class of priq does not know `{word}`"), help);
                good = false;
                continue;
            };
            good &= self.once(&mut given, option, span);
            good &= match option {
                "priority" => {
                    let read = |word: &str| words::integer(word).filter(|n| *n <= MOST);
                    match self.value(words, span, "a number from 0 to 15", read) {
                        Some((n, _)) => {
                            priority = n;
                            true
                        }
                        None => false,
                    }
                }
                _ => self.leaf_option(words, option, span, &mut queue, &mut limit, &mut default),
            };
        }
        good &= self.red_or_rio(&queue);
        if !good || !self.one_default(at, name, default) {
            return;
        }
        let interface = &self.interfaces[at];
        let taken = interface.classes.iter().skip(1).find(|class| class.settings.int("priority") == Some(priority));
        if let Some(first) = taken {
            let place = given.iter().find(|(word, _)| *word == "priority").map_or(name, |(_, span)| *span);
            let message = format!("`{}` has the priority {priority} already: ALTQ has one class each", first.name);
            let error = Diagnostic::error("given-twice", place, message).label(first.span, "the first");
            return self.findings.push(error.help("write another priority, 0 to 15"));
        }
        let mtu = u64::from(interface.mtu);
        let mut settings = Settings::new().with("priority", Value::Int(priority));
        queue.clear(&mut settings, &mut given);
        let class = self.push_class(
            at,
            Draft {
                name: self.slice(name).to_owned(),
                span: name,
                parent: Some(0),
                bandwidth: 0,
                allocated: 0,
                settings,
                queue: Some(queue.queue("drop_tail", limit.unwrap_or(LIMIT), mtu, &self.defaults)),
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
