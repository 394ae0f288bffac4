//! Reads altq.conf(5), ALTQ's configuration, and cbq.conf, its predecessor
//! (docs/reference/altq.md 10 and 12).
//!
//! A line is a command: interface, class or filter. Commands are executed one after the other, as
//! in altqd. So a class must follow its parent, and a filter its class. Commands that altqd refused
//! are refused. The control class and the token bucket, which altqd added by itself, are added.

mod class;
mod conditioner;
mod defaults;
mod file;
mod filter;
mod hfsc;
mod interface;
mod jobs;
mod lower;
mod priq;
mod queues;
mod words;

use self::file::{Discipline, File, Words};
use crate::diagnostic::{Diagnostic, Findings, SourceId, Sources, Span};
use crate::policy::Link;
use crate::suggest::did_you_mean;

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
    let mut file =
        File { sources, findings, interfaces: Vec::new(), current: None, cbq_conf: named, defaults: queues::BUILT_IN };
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
            Some(&"red") => self.defaults(words, span, false),
            Some(&"rio") => self.defaults(words, span, true),
            Some(_) => self.conditioner(words, span),
            None => {
                let help = did_you_mean(word, COMMANDS.iter().copied());
                self.error("unknown-word", span, format!("altq.conf has no command `{word}`"), help);
            }
        }
    }

    fn finish(mut self) -> Vec<Link> {
        let mut links = Vec::new();
        for interface in std::mem::take(&mut self.interfaces) {
            if self.findings.has_errors() {
                // No class may be found because the line of the class had an error.
                continue;
            }
            // Only a line without errors has a discipline.
            let Some(discipline) = interface.discipline else { continue };
            if interface.classes.is_empty() {
                let help = Some(format!("as `class cbq {} root_class NULL pbandwidth 100`", interface.name));
                let message = format!("the interface `{}` has no root class", interface.name);
                self.error("missing-word", interface.span, message, help);
                continue;
            }
            let Some(default) = interface.default else {
                let help = Some("write `default` behind one of its classes".to_owned());
                let message =
                    format!("the interface `{}` has no default class; altqd refuses to run without", interface.name);
                self.error("no-default", interface.span, message, help);
                continue;
            };
            if discipline == Discipline::Null && interface.classes.len() == 1 {
                let help = Some("write its discipline behind it, as `cbq`, or conditioners below it".to_owned());
                let message = format!("`{}` has no discipline and no conditioner", interface.name);
                self.error("missing-word", interface.span, message, help);
                continue;
            }
            let parent = |class: &file::Draft| class.parent == Some(default);
            if let (Discipline::Hfsc, Some(child)) = (discipline, interface.classes.iter().find(|class| parent(class)))
            {
                let class = &interface.classes[default];
                let message = format!("the default class `{}` has classes below it", class.name);
                let error = Diagnostic::error("wrong-class", class.span, message).label(child.span, "one of them");
                self.findings.push(error.help("write `default` behind a class without others below it"));
                continue;
            }
            let cleared = |at: usize| {
                let inside = interface.classes.iter().any(|class| class.parent == Some(at));
                interface.classes[at].settings.choice("meter").filter(|_| inside)
            };
            if let Some(at) = (0..interface.classes.len()).find(|at| cleared(*at).is_some()) {
                let class = &interface.classes[at];
                let message = format!("`cleardscp` of `{}` would be of the classes below it as well", class.name);
                let help = Some("write it behind the classes that have no others below them".to_owned());
                self.error("not-built", class.span, message, help);
                continue;
            }
            for filter in &interface.filters {
                let below = interface.classes.iter().find(|class| class.parent == Some(filter.class));
                if let (Discipline::Hfsc, Some(child)) = (discipline, below) {
                    let (name, default) = (&interface.classes[filter.class].name, &interface.classes[default].name);
                    let message =
                        format!("these packets go to the default class `{default}`: `{name}` has classes below it");
                    let warning = Diagnostic::warning("inner-class", filter.span, message);
                    let warning = warning.label(child.span, "one of them");
                    self.findings.push(warning.help("ALTQ did so too; name a class without others below it"));
                }
            }
            links.push(interface.lower(self.cbq_conf));
        }
        links
    }
}
