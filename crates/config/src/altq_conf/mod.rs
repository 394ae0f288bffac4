//! Reads CBQ's part of altq.conf(5), ALTQ's configuration, and of cbq.conf, its predecessor
//! (docs/reference/altq.md 10 and 12).
//!
//! A line is a command: interface, class or filter. Commands are executed one after the other, as
//! in altqd. So a class must follow its parent, and a filter its class. Commands that altqd refused
//! are refused. The control class and the token bucket, which altqd added by itself, are added.

mod class;
mod file;
mod filter;
mod lower;
mod words;

use std::collections::HashMap;

use altq_engine::settings::{Settings, Value};

use self::file::{DISCIPLINES, File, Interface, Words};
use crate::diagnostic::{Diagnostic, Findings, SourceId, Sources, Span};
use crate::policy::Link;
use crate::suggest::{did_you_mean, nearest};

/// Commands. One that is cut short stands for the first in this list that begins with it.
const COMMANDS: &[&str] = &["interface", "class", "filter", "filter6", "red", "rio", "conditioner"];
/// Commands that altqd accepts only on its console.
const CONSOLE: &[&str] = &["altq", "delete", "help", "?", "quit", "debug"];
/// Reads a text.
pub(crate) fn read(source: SourceId, sources: &Sources, findings: &mut Findings) -> Vec<Link> {
    // ALTQ 0.x to 1.x, whose file was cbq.conf, had no token bucket regulator. With one, the
    // published plateau of about 10 Mbit/s on 100baseT with a clock of 100 Hz would come out twice
    // as high.
    let named = sources.path(source).file_name().is_some_and(|name| name.to_string_lossy().contains("cbq"));
    let mut file = File { sources, findings, interfaces: Vec::new(), current: None, cbq_conf: named };
    for line in words::lines(source, sources, file.findings) {
        if file.findings.full() {
            break;
        }
        let mut words = Words { list: &line.words, at: 0, end: line.words.last().copied().unwrap_or_default() };
        file.command(&mut words);
    }
    if file.interfaces.is_empty() && !file.findings.has_errors() {
        let error = Diagnostic::error("no-link", Span { source, start: 0, end: 0 }, "this file names no interface");
        file.findings.push(error.help("as `interface em0 bandwidth 10M cbq`"));
    }
    file.finish()
}

impl File<'_> {
    fn command(&mut self, words: &mut Words<'_>) {
        let Some(span) = words.next() else { return };
        let word = self.slice(span);
        // This check comes first; the word would otherwise be taken for an abbreviation or a
        // misspelling of another command.
        if CONSOLE.contains(&word) {
            let message = format!("`{word}` is a command of altqd's console, not of its file");
            return self.error("unknown-word", span, message, None);
        }
        match COMMANDS.iter().find(|command| command.starts_with(word)) {
            Some(&"interface") => self.interface(words),
            Some(&"class") => self.class(words),
            Some(&"filter") => self.filter(words, span, false),
            Some(&"filter6") => self.filter(words, span, true),
            Some(other) => self.not_built(span, &format!("`{other}`")),
            None => {
                let help = did_you_mean(word, COMMANDS.iter().copied());
                self.error("unknown-word", span, format!("altq.conf has no command `{word}`"), help);
            }
        }
    }

    /// Executes `interface IF`, which a discipline and options follow in any order.
    fn interface(&mut self, words: &mut Words<'_>) {
        let Some(span) = words.next() else {
            return self.error("missing-value", words.end, "`interface` needs the name of an interface", None);
        };
        let name = self.slice(span);
        if let Some(first) = self.interfaces.iter().find(|interface| interface.name == name) {
            let error =
                Diagnostic::error("duplicate-name", span, format!("there are two lines for the interface `{name}`"));
            let error = error.label(first.span, "the first");
            return self.findings.push(error);
        }
        if name.len() > 15 || name.contains('/') {
            return self.error("bad-value", span, format!("`{name}` is no name of an interface"), None);
        }
        let mut interface = Interface {
            name: name.to_owned(),
            span,
            words: Vec::new(),
            rate: 100_000_000,
            mtu: file::mtu(name),
            scheduler: Settings::new().with("estimator", Value::Choice("classic")),
            tbrsize: None,
            classes: Vec::new(),
            names: HashMap::new(),
            default: None,
            control: None,
            reservations: None,
            filters: Vec::new(),
            notes: Vec::new(),
        };
        let mut discipline = None;
        let mut good = true;
        while let Some(at) = words.next() {
            let word = self.slice(at);
            match word {
                "bandwidth" => {
                    if !self.once(&mut interface.words, "rate", at) {
                        good = false;
                    }
                    match self.value(words, at, "a rate in bit/s, as 10M", words::rate) {
                        Some((0, span)) => {
                            self.error("out-of-range", span, "an interface of 0 bit/s carries nothing", None);
                            good = false;
                        }
                        Some((rate, _)) => interface.rate = rate,
                        None => good = false,
                    }
                }
                "tbrsize" => {
                    if !self.once(&mut interface.words, "regulator", at) {
                        good = false;
                    }
                    match self.value(words, at, "a number of bytes, as 12K", words::bytes) {
                        Some((depth, _)) if (1..=u64::from(u32::MAX)).contains(&depth) => {
                            interface.tbrsize = Some(depth as u32)
                        }
                        Some((_, span)) => {
                            self.error("out-of-range", span, "a token bucket holds 1 to 4294967295 bytes", None);
                            good = false;
                        }
                        None => good = false,
                    }
                }
                "efficient" => {
                    good &= self.once(&mut interface.words, "efficient", at);
                    interface.scheduler.set("efficient", Value::Flag);
                }
                "cbq" | "cbq-wrr" | "cbq-prr" => {
                    good &= self.once(&mut interface.words, "scheduler", at);
                    discipline = Some(at);
                    if word == "cbq-prr" {
                        interface.scheduler.set("rounds", Value::Choice("prr"));
                    }
                }
                _ if DISCIPLINES.contains(&word) => {
                    self.not_built(at, &format!("the discipline `{word}`"));
                    good = false;
                    discipline = Some(at);
                    // The options of that discipline are not known to altq.
                    break;
                }
                _ => {
                    let known = ["bandwidth", "tbrsize", "efficient", "cbq", "cbq-wrr", "cbq-prr"];
                    let help = nearest(word, known).map_or_else(
                        || format!("one of: {}", known.join(", ")),
                        |near| format!("did you mean `{near}`?"),
                    );
                    self.error("unknown-word", at, format!("an interface does not know `{word}`"), Some(help));
                    good = false;
                }
            }
        }
        if discipline.is_none() && good {
            let help = Some("write `cbq` behind it".to_owned());
            let message = format!("`{name}` has no discipline: that is for conditioners only, which are not built yet");
            self.error("not-built", span, message, help);
        }
        // An interface with an error is kept too, or each of its classes would be an error as well.
        self.current = Some(self.interfaces.len());
        self.interfaces.push(interface);
    }

    fn finish(mut self) -> Vec<Link> {
        let mut links = Vec::new();
        for interface in std::mem::take(&mut self.interfaces) {
            if self.findings.has_errors() {
                // No class may be found because the line of the class had an error.
                continue;
            }
            if interface.classes.is_empty() {
                let help = Some(format!("as `class cbq {} root_class NULL pbandwidth 100`", interface.name));
                let message = format!("the interface `{}` has no root class", interface.name);
                self.error("missing-word", interface.span, message, help);
                continue;
            }
            if interface.default.is_none() {
                let help = Some("write `default` behind one of its classes".to_owned());
                let message =
                    format!("the interface `{}` has no default class; altqd refuses to run without", interface.name);
                self.error("no-default", interface.span, message, help);
                continue;
            }
            links.push(interface.lower(self.cbq_conf));
        }
        links
    }
}
