//! Executes `class DISCIPLINE IF NAME PARENT`, which options follow: what all disciplines have
//! alike, and the classes of CBQ.

use altq_engine::schedule::cbq;
use altq_engine::settings::{Settings, Value};
use altq_engine::spec::QueueSpec;
use altq_engine::units::Rate;

use super::file::{DISCIPLINES, Discipline, Draft, File, Words};
use super::{queues, words};
use crate::diagnostic::{Diagnostic, Span};
use crate::suggest::did_you_mean;

/// Options of a CBQ class.
const OPTIONS: &[&str] = &[
    "priority",
    "pbandwidth",
    "exactbandwidth",
    "borrow",
    "default",
    "control",
    "admission",
    "maxburst",
    "minburst",
    "maxdelay",
    "packetsize",
    "maxpacketsize",
    "red",
    "rio",
    "ecn",
    "flowvalve",
    "cleardscp",
];
/// The values of `admission`. libaltq treats all of these alike, except `none`
/// (docs/reference/altq.md 12).
const ADMISSIONS: &[&str] = &["none", "cntlload", "guaranteed", "predictive", "cntldelay"];
/// The share of the interface, in per cent, of the control class that altqd makes by itself.
const CONTROL_SHARE: u64 = 2;
/// The name of the control class that altqd makes. A class of this name is the control class.
const CONTROL_NAME: &str = "ctl_class";
/// The limits, in packets, of queues without `maxdelay`: a plain one, and one of red or rio.
const LIMIT: u32 = 30;
const LIMIT_RED: u32 = 60;

impl File<'_> {
    pub(super) fn class(&mut self, words: &mut Words<'_>) {
        let Some(discipline) = words.next() else {
            return self.error("missing-value", words.end, "`class` needs a discipline, as `class cbq`", None);
        };
        let word = self.slice(discipline);
        let of = match Discipline::of(word) {
            Some(of) if of.has_classes() => of,
            Some(_) => {
                let message = format!("`{word}` has no classes: it is the one queue of its interface");
                let help = Some("its words stand behind `interface`".to_owned());
                return self.error("wrong-class", discipline, message, help);
            }
            None => {
                let help = did_you_mean(word, DISCIPLINES.iter().copied());
                return self.error("unknown-word", discipline, format!("no discipline is called `{word}`"), help);
            }
        };
        let Some(interface) = self.interface_of(words, discipline) else { return };
        match self.interfaces[interface].discipline {
            // The line of the interface had an error; what its classes mean is not known.
            None => return,
            Some(Discipline::Null) => {
                let name = self.interfaces[interface].name.clone();
                let message = format!("this is a class of `{word}`, and the interface `{name}` has no discipline");
                let error = Diagnostic::error("wrong-class", discipline, message);
                let error = error.label(self.interfaces[interface].span, "the interface");
                return self.findings.push(error.help(format!("write `{word}` behind the interface's name")));
            }
            Some(its) if its != of => {
                let (name, its) = (self.interfaces[interface].name.clone(), its.name());
                let message = format!("this is a class of `{word}`, and the interface `{name}` is of `{its}`");
                let error = Diagnostic::error("wrong-class", discipline, message);
                let error = error.label(self.interfaces[interface].span, "the interface");
                return self.findings.push(error.help(format!("write `class {its}`, or change the interface's line")));
            }
            Some(_) => {}
        }
        let (Some(name), Some(parent)) = (words.next(), words.next()) else {
            let help = Some("as `class cbq em0 voice root_class pbandwidth 5`".to_owned());
            return self.error("missing-value", words.end, "a class needs a name and a parent", help);
        };
        // The first word may name an interface that no line above defines.
        let is_root = |word: &str| matches!(word, "NULL" | "null");
        let known = |file: &Self, span: Span| {
            is_root(file.slice(span)) || file.interfaces[interface].names.contains_key(file.slice(span))
        };
        if !known(self, parent) && words.peek(0).is_some_and(|next| known(self, next)) {
            let names: Vec<String> = self.interfaces.iter().map(|interface| interface.name.clone()).collect();
            let help = did_you_mean(self.slice(name), names.iter().map(String::as_str));
            return self.error(
                "unknown-interface",
                name,
                format!("no interface is called `{}`", self.slice(name)),
                help,
            );
        }
        let parent_at = match self.slice(parent) {
            word if is_root(word) && of == Discipline::Hfsc => {
                let message = "the root class of hfsc is there by itself, with the name `root`";
                let help = Some("leave this line out, or write `root` as the parent".to_owned());
                return self.error("two-roots", parent, message, help);
            }
            word if is_root(word) => None,
            word if matches!(of, Discipline::Priq | Discipline::Jobs) => {
                let message = format!("classes of {} stand side by side; this one is below `{word}`", of.name());
                return self.error("wrong-class", parent, message, Some("write NULL as the parent".to_owned()));
            }
            word => match self.interfaces[interface].names.get(word) {
                Some(at) => Some(*at),
                None => {
                    let names: Vec<String> = self.interfaces[interface].names.keys().cloned().collect();
                    let help = did_you_mean(word, names.iter().map(String::as_str));
                    let help = help.or_else(|| {
                        Some("a parent is defined before its children; the root's parent is NULL".to_owned())
                    });
                    return self.error(
                        "unknown-class",
                        parent,
                        format!("there is no class `{word}` to be the parent"),
                        help,
                    );
                }
            },
        };
        if !self.new_name(interface, name, of) {
            return;
        }
        match (of, parent_at) {
            (Discipline::Priq, _) => self.priq_class(words, interface, name),
            (Discipline::Jobs, _) => self.jobs_class(words, interface, name),
            (Discipline::Hfsc, Some(parent)) => self.hfsc_class(words, interface, name, parent),
            _ => self.cbq_class(words, interface, name, parent_at),
        }
    }

    /// Whether a class may have this name.
    pub(super) fn new_name(&mut self, at: usize, name: Span, of: Discipline) -> bool {
        let text = self.slice(name);
        if let Some(first) = self.interfaces[at].names.get(text) {
            let first = self.interfaces[at].classes[*first].span;
            let error = Diagnostic::error("duplicate-name", name, format!("there are two classes `{text}`"));
            let error = error.label(first, "the first").help_if(match of {
                Discipline::Cbq if text == CONTROL_NAME => {
                    Some("altqd makes it with the default class: put yours before the default class".to_owned())
                }
                Discipline::Hfsc if text == "root" => Some("the root class is there by itself".to_owned()),
                _ => None,
            });
            self.findings.push(error);
            return false;
        }
        if let Some(c) = text.chars().find(|c| !c.is_ascii_alphanumeric() && !"_.-".contains(*c)) {
            let help = Some("a name is of letters, digits, `_`, `.` and `-`".to_owned());
            self.error("bad-name", name, format!("`{text}` holds `{c}`"), help);
            return false;
        }
        true
    }

    /// Reports a second default class. False if it is one.
    pub(super) fn one_default(&mut self, at: usize, name: Span, default: bool) -> bool {
        let interface = &self.interfaces[at];
        if let (true, Some(first)) = (default, interface.default) {
            let error =
                Diagnostic::error("two-defaults", name, "an interface has one default class, this is the second");
            let error = error.label(interface.classes[first].span, "the first");
            self.findings.push(error);
            return false;
        }
        true
    }

    /// Reports a class with red and rio, which is an error and false, and `ecn` without effect.
    pub(super) fn red_or_rio(&mut self, queue: &queues::Kind) -> bool {
        if let Some(span) = queue.cleardscp.filter(|_| queue.is_active() && queue.rio.is_none()) {
            let message = "`cleardscp` has no effect here: ALTQ's red does not clear it";
            self.findings.push(Diagnostic::warning("no-effect", span, message).help("leave it out"));
        }
        let Some(rio) = queue.rio else { return true };
        if let Some(ecn) = queue.ecn {
            let message = "`ecn` has no effect here: ALTQ's rio never marks";
            self.findings.push(Diagnostic::warning("no-effect", ecn, message).help("write `red` for marks"));
        }
        let help = Some("leave one of them out".to_owned());
        if queue.red {
            self.error("wrong-class", rio, "a class has red or rio, not both", help);
        } else if let Some(flowvalve) = queue.flowvalve {
            self.error("wrong-class", flowvalve, "`flowvalve` is of red, and a class has red or rio, not both", help);
        }
        !queue.red && queue.flowvalve.is_none()
    }

    /// Reads an option that classes of hfsc and priq have alike. False after an error.
    pub(super) fn leaf_option(
        &mut self,
        words: &mut Words<'_>,
        option: &'static str,
        span: Span,
        queue: &mut queues::Kind,
        limit: &mut Option<u32>,
        default: &mut bool,
    ) -> bool {
        match option {
            "qlimit" => {
                let read = |word: &str| words::integer(word).filter(|n| (1..=1_000_000).contains(n));
                match self.value(words, span, "a number of packets, at least 1", read) {
                    Some((n, _)) => *limit = Some(n as u32),
                    None => return false,
                }
            }
            "default" => *default = true,
            "red" => queue.red = true,
            "rio" => queue.rio = Some(span),
            "ecn" => queue.ecn = Some(span),
            _ => queue.cleardscp = Some(span),
        }
        true
    }

    /// Notes the class below which reservations go. An interface has one.
    pub(super) fn reservations(&mut self, at: usize, class: usize, span: Span) {
        match self.interfaces[at].reservations {
            Some(first) => {
                let first = self.interfaces[at].classes[first].span;
                let message = "an interface has one class for reservations, this is the second";
                let error = Diagnostic::error("given-twice", span, message);
                self.findings.push(error.label(first, "the first"));
            }
            None => {
                let text = self.interfaces[at].classes[class].name.clone();
                self.interfaces[at].reservations = Some(class);
                let interface = &self.interfaces[at];
                let takes = interface.discipline == Some(Discipline::Cbq) && interface.classes[class].parent.is_some();
                let note = if takes {
                    format!("`{text}` is the class below which reservations go")
                } else {
                    format!("`admission` of `{text}` has no effect: reservations go below a class of cbq, not the root")
                };
                self.interfaces[at].notes.push(note);
            }
        }
    }

    /// Adds a class, and returns its number.
    pub(super) fn push_class(&mut self, at: usize, draft: Draft) -> usize {
        let interface = &mut self.interfaces[at];
        interface.names.insert(draft.name.clone(), interface.classes.len());
        interface.classes.push(draft);
        interface.classes.len() - 1
    }

    fn cbq_class(&mut self, words: &mut Words<'_>, at: usize, name: Span, parent: Option<usize>) {
        if parent.is_none() && !self.interfaces[at].classes.is_empty() {
            let first = self.interfaces[at].classes[0].span;
            let error = Diagnostic::error("two-roots", name, "an interface has one root class, this is the second");
            return self.findings.push(error.label(first, "the first"));
        }
        let Some(options) = self.options(words, at, parent) else { return };
        self.admit(at, name, parent, options);
    }

    /// Makes a class, after the checks that altqd makes. With the default class it also makes the
    /// control class, if there is none.
    fn admit(&mut self, at: usize, name: Span, parent: Option<usize>, mut options: Options) {
        let text = self.slice(name);
        if !self.one_default(at, name, options.default.is_some()) {
            return;
        }
        let interface = &self.interfaces[at];
        let rate = interface.rate;
        let control = options.control || text == CONTROL_NAME;
        if let (true, Some(first)) = (control, interface.control) {
            let error =
                Diagnostic::error("two-controls", name, "an interface has one control class, this is the second");
            let error = error.label(interface.classes[first].span, "the first");
            return self.findings.push(error);
        }
        // NetBSD's root class may be the default class; altqd could split no control class off it.
        let root_is_default = parent.is_none() && options.default.is_some() && !control;
        let roles = [options.default.is_some(), control, parent.is_none()].iter().filter(|is| **is).count();
        if roles > 1 && !(root_is_default && interface.no_control) {
            let mut help = "write another class below the root".to_owned();
            if root_is_default {
                help.push_str(", or, as in NetBSD, `no-control` behind the interface's discipline");
            }
            return self.error("wrong-class", name, "a class is at most one of root, default and control", Some(help));
        }
        if parent.is_none() && options.bandwidth == 0 {
            let help = Some("write `pbandwidth 100`".to_owned());
            return self.error("missing-word", name, "the root class has no bandwidth to give", help);
        }
        let (above, above_name, above_span) = match parent {
            Some(parent) => {
                let parent = &interface.classes[parent];
                (parent.bandwidth.saturating_sub(parent.allocated), parent.name.clone(), parent.span)
            }
            None => (rate, interface.name.clone(), interface.span),
        };
        if options.bandwidth > above {
            let place = options.bandwidth_at.unwrap_or(name);
            let (wants, left) = (Rate::bit_s(options.bandwidth), Rate::bit_s(above));
            let message = format!("`{text}` wants {wants}, and `{above_name}` has {left} left");
            let error = Diagnostic::error("over-parent", place, message).label(above_span, "its parent");
            return self.findings.push(error.help("altqd refuses this class; give it less, or the others"));
        }
        // docs/reference/altq.md 2.1: without a control class altqd splits one off the default
        // class.
        let share = rate / 100 * CONTROL_SHARE;
        let makes_control = options.default.is_some() && interface.control.is_none() && !interface.no_control;
        if makes_control && options.bandwidth < share {
            let place = options.bandwidth_at.unwrap_or(name);
            let (has, share) = (Rate::bit_s(options.bandwidth), Rate::bit_s(share));
            let message = format!(
                "the default class has {has}; altqd takes {CONTROL_SHARE} % of the interface, {share}, from it for \
                 `ctl_class`"
            );
            let help = "give it more, or put a control class of your own before it";
            return self.findings.push(Diagnostic::error("no-control", place, message).help(help));
        }
        let mut control_options = makes_control.then(|| options.clone());
        if let Some(control) = &mut control_options {
            options.bandwidth -= share;
            control.bandwidth = share;
            control.priority = Some(6);
            control.default = None;
            control.control = true;
            // altqd copies sizes and times, and neither RED nor RIO nor what clears the DSCP.
            control.active = queues::Kind::default();
            let note = format!(
                "`ctl_class` with {} (2 % of the interface, from `{text}`) gets ICMP, IGMP and RSVP: made as altqd did",
                Rate::bit_s(share)
            );
            self.interfaces[at].notes.push(note);
        }
        let (default, reserves) = (options.default.is_some(), options.reserves);
        let class = self.add(at, text, name, parent, options, false);
        if default {
            self.interfaces[at].default = Some(class);
        }
        if let Some(span) = reserves {
            self.reservations(at, class, span);
        }
        if control {
            self.interfaces[at].control = Some(class);
            self.control_filters(at, class, name);
        }
        if let Some(options) = control_options {
            if let Some(first) = self.interfaces[at].names.get(CONTROL_NAME) {
                let first = self.interfaces[at].classes[*first].span;
                let error = Diagnostic::error("duplicate-name", first, "`ctl_class` is the name of the control class");
                return self.findings.push(error);
            }
            let class = self.add(at, CONTROL_NAME, name, parent, options, true);
            self.interfaces[at].control = Some(class);
            self.control_filters(at, class, name);
        }
    }

    fn add(&mut self, at: usize, name: &str, span: Span, parent: Option<usize>, options: Options, made: bool) -> usize {
        let (rate, mtu) = (Rate::bit_s(self.interfaces[at].rate), self.interfaces[at].mtu);
        let mut settings = Settings::new().with("rate", Value::Rate(Rate::bit_s(options.bandwidth)));
        if options.borrow {
            settings.set("borrow", Value::Flag);
        }
        if let Some(priority) = options.priority {
            settings.set("priority", Value::Int(priority));
        }
        for (word, value) in &options.sizes {
            settings.set(word, *value);
        }
        let mut places = options.words.clone();
        options.active.clear(&mut settings, &mut places);
        // The limit of the queue follows from the words that altqd would give the kernel.
        let mut timed = settings.clone();
        if let Some(maxdelay) = options.maxdelay {
            timed.set("maxdelay", Value::Time(maxdelay));
        }
        let queue = Some(options.queue(rate, mtu, &timed, &self.defaults));
        if let Some(parent) = parent {
            self.interfaces[at].classes[parent].allocated += options.bandwidth;
        }
        let draft = Draft {
            name: name.to_owned(),
            span,
            parent,
            bandwidth: options.bandwidth,
            allocated: 0,
            settings,
            queue,
            words: places,
            queue_words: Vec::new(),
            made,
        };
        self.push_class(at, draft)
    }

    fn options(&mut self, words: &mut Words<'_>, at: usize, parent: Option<usize>) -> Option<Options> {
        let mut options = Options::default();
        let mtu = u64::from(self.interfaces[at].mtu);
        let mut percent = None;
        let mut exact = None;
        let mut good = true;
        while let Some(span) = words.next() {
            let word = self.slice(span);
            let Some(option) = OPTIONS.iter().find(|option| **option == word).copied() else {
                let help = did_you_mean(word, OPTIONS.iter().copied());
                self.error("unknown-word", span, format!("a class of cbq does not know `{word}`"), help);
                good = false;
                continue;
            };
            let place = match option {
                "pbandwidth" | "exactbandwidth" => "rate",
                other => other,
            };
            if place != "rate" && !self.once(&mut options.words, place, span) {
                good = false;
            }
            let number = |most: u64| move |word: &str| words::integer(word).filter(|n| *n <= most);
            match option {
                "priority" => match self.value(words, span, "a number from 0 to 7", number(7)) {
                    Some((n, _)) => options.priority = Some(n),
                    None => good = false,
                },
                "pbandwidth" => match self.value(words, span, "whole per cent of the interface, 0 to 100", number(100))
                {
                    Some((n, value)) if percent.is_none() => percent = Some((n, value)),
                    Some((_, _)) => {
                        self.error("given-twice", span, "`pbandwidth` is given twice", None);
                        good = false;
                    }
                    None => good = false,
                },
                "exactbandwidth" => match self.value(words, span, "a rate in bit/s, as 1.5M", words::rate) {
                    Some((n, value)) if exact.is_none() => exact = Some((n, value)),
                    Some((_, _)) => {
                        self.error("given-twice", span, "`exactbandwidth` is given twice", None);
                        good = false;
                    }
                    None => good = false,
                },
                "borrow" => good &= self.borrow(words, at, span, parent, &mut options),
                "default" => options.default = Some(span),
                "control" => options.control = true,
                "admission" => {
                    let what = format!("one of {}", ADMISSIONS.join(", "));
                    match self.value(words, span, &what, |word| ADMISSIONS.iter().find(|known| **known == word)) {
                        Some((&"none", _)) => {}
                        Some((_, span)) => options.reserves = Some(span),
                        None => good = false,
                    }
                }
                "maxburst" | "minburst" => {
                    match self.value(words, span, "a number of packets from 1 to 65535", number(65535)) {
                        Some((0, value)) => {
                            self.error("out-of-range", value, format!("`{word}` is at least 1"), None);
                            good = false;
                        }
                        Some((n, _)) => options.sizes.push((option, Value::Int(n))),
                        None => good = false,
                    }
                }
                "maxdelay" => match self.value(words, span, "milliseconds", number(1_000_000)) {
                    Some((n, _)) => options.maxdelay = Some(n * 1_000_000),
                    None => good = false,
                },
                "packetsize" | "maxpacketsize" => match self.value(words, span, "a number of bytes", words::bytes) {
                    Some((n, value)) if n > mtu => {
                        let message = format!("`{word} {n}` is more than the MTU; altqd takes the MTU, {mtu}");
                        self.findings.push(Diagnostic::warning("over-mtu", value, message));
                        options.sizes.push((option, Value::Bytes(mtu)));
                    }
                    Some((0, value)) => {
                        self.error("out-of-range", value, format!("`{word}` is at least 1"), None);
                        good = false;
                    }
                    Some((n, _)) => options.sizes.push((option, Value::Bytes(n))),
                    None => good = false,
                },
                "red" => options.active.red = true,
                "rio" => options.active.rio = Some(span),
                "ecn" => options.active.ecn = Some(span),
                "flowvalve" => options.active.flowvalve = Some(span),
                _ => options.active.cleardscp = Some(span),
            }
        }
        good &= self.red_or_rio(&options.active);
        // If both are written, exactbandwidth counts and not pbandwidth. A class with neither has a
        // rate of 0, and sends only by borrowing.
        let rate = self.interfaces[at].rate;
        let (bandwidth, place) = match (exact, percent) {
            (Some((rate, place)), _) => (rate, Some(place)),
            (None, Some((percent, place))) => (rate / 100 * percent, Some(place)),
            (None, None) => (0, None),
        };
        if let (Some((_, exact)), Some((_, percent))) = (exact, percent) {
            let warning =
                Diagnostic::warning("given-twice", percent, "`exactbandwidth` is given as well, and goes before this");
            self.findings.push(warning.label(exact, "this holds"));
        }
        options.bandwidth = bandwidth;
        options.bandwidth_at = place;
        options.words.extend(place.map(|place| ("rate", place)));
        if parent.is_none() && good {
            for (word, span) in &options.words {
                let idle = match *word {
                    "priority" => options.priority.is_some_and(|priority| priority != 0),
                    "maxburst" | "minburst" | "packetsize" | "maxpacketsize" => true,
                    _ => false,
                };
                if idle {
                    let message = format!("`{word}` of the root class has no effect here: the root is the link");
                    self.findings.push(Diagnostic::warning("no-effect", *span, message));
                }
            }
        }
        good.then_some(options)
    }

    /// Reads `borrow`, which is `borrow PARENT` in cbq.conf. False after an error.
    fn borrow(
        &mut self,
        words: &mut Words<'_>,
        at: usize,
        span: Span,
        parent: Option<usize>,
        options: &mut Options,
    ) -> bool {
        options.borrow = true;
        let next = words.peek(0);
        let lender = next.and_then(|next| self.interfaces[at].names.get(self.slice(next)).copied());
        if let (Some(next), Some(lender)) = (next, lender) {
            // A class may have the name of an option. The next word is taken as the lender then
            // only if it is the parent's name.
            if Some(lender) == parent || !OPTIONS.contains(&self.slice(next)) {
                words.next();
                self.cbq_conf = true;
                if Some(lender) != parent {
                    let message = format!("a class borrows from its parent only, and `{}` is not", self.slice(next));
                    self.error("wrong-class", next, message, Some("write `borrow` alone".to_owned()));
                    return false;
                }
            }
        }
        if parent.is_none() {
            self.error("wrong-class", span, "the root class has nobody to borrow from", None);
            return false;
        }
        true
    }
}

/// The options of a class.
#[derive(Clone, Default)]
struct Options {
    words: Vec<(&'static str, Span)>,
    bandwidth: u64,
    bandwidth_at: Option<Span>,
    borrow: bool,
    priority: Option<u64>,
    default: Option<Span>,
    control: bool,
    /// Where an `admission` other than none is written: reservations go below this class.
    reserves: Option<Span>,
    maxdelay: Option<u64>,
    sizes: Vec<(&'static str, Value)>,
    active: queues::Kind,
}

impl Options {
    /// The queue that altqd asked for: drop-head, or RED or RIO with ALTQ's parameters for classes
    /// (docs/reference/altq.md 2.2, 2.10).
    fn queue(&self, rate: Rate, mtu: u32, settings: &Settings, defaults: &queues::Defaults) -> QueueSpec {
        let most = if self.active.is_active() { LIMIT_RED } else { LIMIT };
        let limit = cbq::classic_queue_limit(rate, mtu, settings, most);
        let size = settings.bytes("packetsize").unwrap_or(u64::from(mtu));
        self.active.queue("drop_head", limit, size, defaults)
    }
}
