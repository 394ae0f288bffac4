//! altq.conf(5) of ALTQ, and cbq.conf before it, as far as CBQ goes (docs/reference/altq.md 10 and
//! 12).
//!
//! A line is a command: interface, class, filter. Each is looked at in its turn, as altqd did, so a
//! class stands behind its parent and a filter behind its class. What altqd refused is refused;
//! what it made by itself (the control class, a token bucket) is made.

mod class;
mod filter;
mod words;

use std::collections::HashMap;

use altq_engine::classify::{Order, Rule, RuleSet};
use altq_engine::link::Overhead;
use altq_engine::settings::{Settings, Value};
use altq_engine::spec::{ClassId, ClassSpec, LinkSpec, QueueSpec, ROOT, Regulator, SchedulerSpec, Timer};
use altq_engine::units::Rate;

use crate::diagnostic::{Diagnostic, Findings, SourceId, Sources, Span};
use crate::policy::{Class, Device, Link};
use crate::suggest::{did_you_mean, nearest};

/// The language states no MTU, and altqd asked the interface; Ethernet's stands in.
const MTU: u32 = 1500;
/// That of ALTQ's own ATM interfaces, `pvc0` and so on (RFC 2225).
const ATM_MTU: u32 = 9180;

/// Commands, in the order in which an abbreviation finds them.
const COMMANDS: &[&str] = &["interface", "class", "filter", "filter6", "red", "rio", "conditioner"];
/// altqd's console.
const CONSOLE: &[&str] = &["altq", "delete", "help", "?", "quit", "debug"];
/// Disciplines.
const DISCIPLINES: &[&str] =
    &["blue", "cbq", "cbq-wrr", "cbq-prr", "fifoq", "hfsc", "jobs", "priq", "red", "rio", "wfq"];

/// Reads a text.
pub(crate) fn read(source: SourceId, sources: &Sources, findings: &mut Findings) -> Vec<Link> {
    // ALTQ 0.x to 1.x, whose file was cbq.conf, had no token bucket regulator: with one, what was
    // published of it (a plateau of about 10 Mbit/s on 100baseT with a clock of 100 Hz) would come
    // out twice as high.
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

/// ALTQ's interface of an ATM PVC.
fn is_pvc(name: &str) -> bool {
    name.strip_prefix("pvc")
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The words of a line, one after the other.
struct Words<'w> {
    list: &'w [Span],
    at: usize,
    end: Span,
}

impl Words<'_> {
    fn next(&mut self) -> Option<Span> {
        let span = *self.list.get(self.at)?;
        self.at += 1;
        Some(span)
    }

    fn peek(&self, ahead: usize) -> Option<Span> {
        self.list.get(self.at + ahead).copied()
    }
}

/// A file that is being read.
struct File<'a> {
    sources: &'a Sources,
    findings: &'a mut Findings,
    interfaces: Vec<Interface>,
    /// The interface named last: a command may leave it out.
    current: Option<usize>,
    /// It is of the age of cbq.conf: by its name, or by the old form `borrow PARENT`.
    cbq_conf: bool,
}

struct Interface {
    name: String,
    span: Span,
    words: Vec<(&'static str, Span)>,
    rate: u64,
    mtu: u32,
    scheduler: Settings,
    tbrsize: Option<u32>,
    classes: Vec<Draft>,
    names: HashMap<String, usize>,
    default: Option<usize>,
    control: Option<usize>,
    reservations: Option<usize>,
    filters: Vec<Filter>,
    notes: Vec<String>,
}

/// A class, as altqd keeps it.
struct Draft {
    name: String,
    span: Span,
    parent: Option<usize>,
    bandwidth: u64,
    /// What its children have of it.
    allocated: u64,
    settings: Settings,
    queue: QueueSpec,
    words: Vec<(&'static str, Span)>,
    made: bool,
}

struct Filter {
    rule: Rule,
    /// The class, as a place in the interface's list.
    class: usize,
    span: Span,
    name: Option<String>,
    quiet: bool,
    made: bool,
}

impl<'a> File<'a> {
    fn slice(&self, span: Span) -> &'a str {
        self.sources.slice(span)
    }

    fn error(&mut self, code: &'static str, span: Span, message: impl Into<String>, help: Option<String>) {
        self.findings.push(Diagnostic::error(code, span, message).help_if(help));
    }

    fn not_built(&mut self, span: Span, what: &str) {
        let help = "of altq.conf, CBQ is read: interface, class cbq, filter, filter6".to_owned();
        self.error("not-built", span, format!("{what} is known, but not built yet"), Some(help));
    }

    fn command(&mut self, words: &mut Words<'_>) {
        let Some(span) = words.next() else { return };
        let word = self.slice(span);
        // A console's word is no abbreviation of ours, so it is looked for first.
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

    /// `interface IF [discipline] { option }`, the words in any order.
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
            mtu: if is_pvc(name) { ATM_MTU } else { MTU },
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
                    // Its options are not ours to judge.
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
        // Even a bad one is known from here on, so that its classes are not reported as strangers.
        self.current = Some(self.interfaces.len());
        self.interfaces.push(interface);
    }

    /// Notes that a word was written; an error if it was before.
    fn once(&mut self, words: &mut Vec<(&'static str, Span)>, word: &'static str, span: Span) -> bool {
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

    /// The value behind a word.
    fn value<T>(
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

    /// The interface of a command: the next word if it names one, else the one named last.
    fn interface_of(&mut self, words: &mut Words<'_>, command: Span) -> Option<usize> {
        if let Some(word) = words.peek(0).map(|span| self.slice(span))
            && let Some(at) = self.interfaces.iter().position(|interface| interface.name == word)
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

    fn finish(mut self) -> Vec<Link> {
        let mut links = Vec::new();
        for interface in std::mem::take(&mut self.interfaces) {
            if self.findings.has_errors() {
                // What is missing may be what could not be read.
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

impl Interface {
    /// The link of an interface. The root class is the link itself where it has all of it;
    /// otherwise a class below.
    fn lower(self, cbq_conf: bool) -> Link {
        let Interface { name, rate, mtu, mut notes, .. } = self;
        let whole = self.classes.first().is_none_or(|root| root.bandwidth >= rate / 100 * 100);
        let regulator = match (self.tbrsize, cbq_conf) {
            (Some(depth), _) => Regulator::Depth(depth),
            (None, true) => {
                notes.push("no token bucket: a cbq.conf is of ALTQ 0.x to 1.x, which had none".to_owned());
                Regulator::None
            }
            (None, false) => {
                notes.push("the token bucket is the one that altqd puts in by itself".to_owned());
                Regulator::Auto
            }
        };
        let whose = if mtu == ATM_MTU { "that of ATM interfaces is taken" } else { "that of Ethernet is taken" };
        notes.push(format!("MTU {mtu}: this language states none and altqd asked the interface; {whose}"));
        let root = ClassSpec { parent: ROOT, settings: Settings::new(), queue: None, scheduler: None };
        let mut classes = Vec::with_capacity(self.classes.len() + 1);
        let mut specs = vec![root];
        let mut root_words = self.words;
        if !whole {
            classes.push(Class {
                name: name.clone(),
                span: self.span,
                words: std::mem::take(&mut root_words),
                ..Class::default()
            });
        }
        let shift = usize::from(!whole);
        for (at, draft) in self.classes.into_iter().enumerate() {
            let is_link = whole && at == 0;
            classes.push(Class {
                name: draft.name,
                span: draft.span,
                words: if is_link { std::mem::take(&mut root_words) } else { draft.words },
                scheduler_words: Vec::new(),
                queue_words: Vec::new(),
                made: draft.made,
            });
            if !is_link {
                specs.push(ClassSpec {
                    parent: draft.parent.map_or(0, |parent| parent + shift) as ClassId,
                    settings: draft.settings,
                    queue: Some(draft.queue),
                    scheduler: None,
                });
            } else if let Some(root) = specs.first_mut() {
                // Packets of the root's own wait in a queue like any other class's.
                root.queue = Some(draft.queue);
            }
        }
        let (mut rules, mut places) = (Vec::new(), Vec::new());
        for filter in self.filters {
            rules.push(Rule { class: (filter.class + shift) as ClassId, ..filter.rule });
            places.push(filter.span);
        }
        Link {
            name: name.clone(),
            device: Some(Device::Interface { name, ingress: false }),
            spec: LinkSpec {
                rate: Rate::bit_s(rate),
                mtu,
                overhead: Overhead::NONE,
                regulator,
                timer: Timer::Exact,
                scheduler: SchedulerSpec { name: "cbq", settings: self.scheduler },
                classes: specs,
                rules: RuleSet { rules, order: Order::Altq, interfaces: Vec::new() },
                default: self.default.map(|at| (at + shift) as ClassId),
            },
            classes,
            rules: places,
            overcommit: false,
            span: self.span,
            notes,
        }
    }
}
