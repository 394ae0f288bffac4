//! A file of altq.conf(5) while it is read: its interfaces, classes and filters as altqd keeps
//! them, and how commands read the words of their lines.

use std::collections::HashMap;

use altq_engine::classify::Rule;
use altq_engine::settings::Settings;
use altq_engine::spec::QueueSpec;

use super::queues::Defaults;
use crate::diagnostic::{Diagnostic, Findings, Sources, Span};

/// The disciplines that ALTQ has for an interface.
pub const DISCIPLINES: &[&str] =
    &["blue", "cbq", "cbq-wrr", "cbq-prr", "fifoq", "hfsc", "jobs", "priq", "red", "rio", "wfq"];

/// A discipline that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    Cbq,
    Hfsc,
    Priq,
    Fifo,
    Red,
    Rio,
    Blue,
    Wfq,
    Jobs,
    /// None: the interface has conditioners only.
    Null,
}

impl Discipline {
    /// The discipline that a word names.
    pub fn of(word: &str) -> Option<Discipline> {
        Some(match word {
            "cbq" | "cbq-wrr" | "cbq-prr" => Discipline::Cbq,
            "hfsc" => Discipline::Hfsc,
            "priq" => Discipline::Priq,
            "fifoq" => Discipline::Fifo,
            "red" => Discipline::Red,
            "rio" => Discipline::Rio,
            "blue" => Discipline::Blue,
            "wfq" => Discipline::Wfq,
            "jobs" => Discipline::Jobs,
            _ => return None,
        })
    }

    /// Its name in altq.conf.
    pub fn name(self) -> &'static str {
        match self {
            Discipline::Cbq => "cbq",
            Discipline::Hfsc => "hfsc",
            Discipline::Priq => "priq",
            Discipline::Fifo => "fifoq",
            Discipline::Red => "red",
            Discipline::Rio => "rio",
            Discipline::Blue => "blue",
            Discipline::Wfq => "wfq",
            Discipline::Jobs => "jobs",
            Discipline::Null => "null",
        }
    }

    /// The scheduler of the engine that serves the interface.
    pub fn scheduler(self) -> &'static str {
        match self {
            Discipline::Cbq => "cbq",
            Discipline::Hfsc => "hfsc",
            Discipline::Priq => "priq",
            Discipline::Jobs => "jobs",
            _ => "fifo",
        }
    }

    /// Whether an interface of it has classes.
    pub fn has_classes(self) -> bool {
        matches!(self, Discipline::Cbq | Discipline::Hfsc | Discipline::Priq | Discipline::Jobs)
    }
}

/// The MTU of an interface, in bytes. The language states none, and altqd asked the interface; here
/// it is that of Ethernet, or for ALTQ's ATM interfaces, `pvc0` and so on, that of RFC 2225, 7.
pub fn mtu(interface: &str) -> u32 {
    let number = interface.strip_prefix("pvc").unwrap_or("");
    if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) { ATM_MTU } else { 1500 }
}

/// The MTU of an ATM interface, in bytes.
pub const ATM_MTU: u32 = 9180;

/// The words of a line, one after the other.
pub struct Words<'w> {
    /// All words of the line.
    pub list: &'w [Span],
    /// The index of the next word.
    pub at: usize,
    /// The place of the last word, for errors about missing words.
    pub end: Span,
}

impl Words<'_> {
    pub fn next(&mut self) -> Option<Span> {
        let span = *self.list.get(self.at)?;
        self.at += 1;
        Some(span)
    }

    pub fn peek(&self, ahead: usize) -> Option<Span> {
        self.list.get(self.at + ahead).copied()
    }

    /// The words that have not been taken.
    pub fn rest(&self) -> &[Span] {
        self.list.get(self.at..).unwrap_or(&[])
    }
}

/// A file that is being read.
pub struct File<'a> {
    pub sources: &'a Sources,
    pub findings: &'a mut Findings,
    pub interfaces: Vec<Interface>,
    /// The interface that was named last. Commands that name none are about this one.
    pub current: Option<usize>,
    /// Whether it is a cbq.conf: by its name, or because the old form `borrow PARENT` is in it.
    pub cbq_conf: bool,
    /// The numbers of queues made from here on.
    pub defaults: Defaults,
}

/// An interface, with its classes and filters in the order in which they were written.
pub struct Interface {
    /// The name of its link.
    pub name: String,
    /// The name of the interface itself.
    pub device: String,
    pub span: Span,
    /// `None` after an error in its line.
    pub discipline: Option<Discipline>,
    pub words: Vec<(&'static str, Span)>,
    pub rate: u64,
    pub mtu: u32,
    pub scheduler: Settings,
    pub tbrsize: Option<u32>,
    /// NetBSD's `no-tbr`: altqd puts no token bucket in.
    pub no_tbr: bool,
    /// NetBSD's `no-control`: altqd makes no control class.
    pub no_control: bool,
    pub classes: Vec<Draft>,
    pub names: HashMap<String, usize>,
    pub default: Option<usize>,
    pub control: Option<usize>,
    pub reservations: Option<usize>,
    pub filters: Vec<Filter>,
    /// The interface once more, with its conditioners, if it has a discipline as well.
    pub input: Option<usize>,
    pub notes: Vec<String>,
}

impl Interface {
    /// An interface without words.
    pub fn new(name: &str, span: Span) -> Interface {
        Interface {
            name: name.to_owned(),
            device: name.to_owned(),
            span,
            discipline: None,
            words: Vec::new(),
            rate: 100_000_000,
            mtu: mtu(name),
            scheduler: Settings::new(),
            tbrsize: None,
            no_tbr: false,
            no_control: false,
            classes: Vec::new(),
            names: HashMap::new(),
            default: None,
            control: None,
            reservations: None,
            filters: Vec::new(),
            input: None,
            notes: Vec::new(),
        }
    }
}

/// A class, as altqd keeps it. Classes are numbered by their places in the interface's list.
pub struct Draft {
    pub name: String,
    pub span: Span,
    pub parent: Option<usize>,
    pub bandwidth: u64,
    /// The sum of its children's bandwidths, in bit/s.
    pub allocated: u64,
    pub settings: Settings,
    /// `None` for a class that holds no packets.
    pub queue: Option<QueueSpec>,
    pub words: Vec<(&'static str, Span)>,
    pub queue_words: Vec<(&'static str, Span)>,
    pub made: bool,
}

/// A filter.
pub struct Filter {
    pub rule: Rule,
    /// The number of its class.
    pub class: usize,
    pub span: Span,
    pub name: Option<String>,
    pub quiet: bool,
    pub made: bool,
}

impl<'a> File<'a> {
    pub fn slice(&self, span: Span) -> &'a str {
        self.sources.slice(span)
    }

    pub fn error(&mut self, code: &'static str, span: Span, message: impl Into<String>, help: Option<String>) {
        self.findings.push(Diagnostic::error(code, span, message).help_if(help));
    }

    /// Notes that a word is written. An error, and false, if it was written before.
    pub fn once(&mut self, words: &mut Vec<(&'static str, Span)>, word: &'static str, span: Span) -> bool {
        match words.iter().find(|(name, _)| *name == word) {
            Some((_, first)) => {
                let error = Diagnostic::error("given-twice", span, format!("`{}` is given twice", self.slice(span)));
                self.findings.push(error.label(*first, "first here"));
                false
            }
            None => {
                words.push((word, span));
                true
            }
        }
    }

    /// Takes the value that follows a word. `None` after an error.
    pub fn value<T>(
        &mut self,
        words: &mut Words<'_>,
        of: Span,
        what: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Option<(T, Span)> {
        let name = self.slice(of);
        let Some(span) = words.next() else {
            self.error("missing-value", of, format!("`{name}` needs {what}"), None);
            return None;
        };
        let word = self.slice(span);
        match read(word) {
            Some(value) => Some((value, span)),
            None => {
                self.error("bad-value", span, format!("`{name}` needs {what}, not `{word}`"), None);
                None
            }
        }
    }

    /// The interface of a command: the one that the next word names, or else the one named last.
    pub fn interface_of(&mut self, words: &mut Words<'_>, command: Span) -> Option<usize> {
        if let Some(word) = words.peek(0).map(|span| self.slice(span))
            && let Some(at) = self.interfaces.iter().position(|interface| interface.device == word)
        {
            words.next();
            self.current = Some(at);
            return Some(at);
        }
        if self.current.is_none() {
            let span = words.peek(0).unwrap_or(command);
            let help = Some("as `interface em0 bandwidth 10M cbq`, above its classes".to_owned());
            self.error("unknown-interface", span, format!("no interface is called `{}`", self.slice(span)), help);
        }
        self.current
    }
}
