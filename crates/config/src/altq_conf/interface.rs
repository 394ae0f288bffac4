//! Executes `interface IF`, which a discipline and options follow in any order.

use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::spec::QueueSpec;

use super::conditioner::{LIMIT as LIMIT_CONDITIONER, UNSHAPED};
use super::file::{DISCIPLINES, Discipline, Draft, File, Interface, Words};
use super::queues::{self, BUILT_IN, Defaults, RIO, packets, probability};
use super::words;
use crate::diagnostic::{Diagnostic, Span};
use crate::suggest::did_you_mean;

/// Options of every interface.
const COMMON: &[&str] = &["bandwidth", "tbrsize"];
/// Options of an interface of RED, RIO and Blue.
const RED: &[&str] = &["qlimit", "packetsize", "weight", "thmin", "thmax", "invpmax", "ecn", "flowvalve"];
const RIO_WORDS: &[&str] = &[
    "qlimit",
    "packetsize",
    "weight",
    "lo_thmin",
    "lo_thmax",
    "lo_invpmax",
    "med_thmin",
    "med_thmax",
    "med_invpmax",
    "hi_thmin",
    "hi_thmax",
    "hi_invpmax",
    "ecn",
];
const BLUE: &[&str] = &["qlimit", "packetsize", "maxpmark", "holdtime", "ecn"];
const WFQ: &[&str] = &["nqueues", "qsize", "hash"];
/// What wfq's `hash` says here and in the native language.
const HASHES: &[(&str, &str)] = &[("dstaddr", "dst"), ("srcport", "sport"), ("full", "flow")];
/// Limits, in packets, of the queue of an interface without `qlimit`.
const LIMIT_FIFO: u32 = 50;
const LIMIT_ACTIVE: u32 = 60;
/// The limit of wfq, in bytes for all its queues (docs/reference/altq.md 8.1).
const LIMIT_WFQ: u32 = 65_536;
/// The packets of all classes of jobs together, and the most of them.
const LIMIT_JOBS: u32 = 200;
const MOST_JOBS: u32 = 10_000;
/// The most packets in the queue of an interface with blue, which searches it.
const MOST_BLUE: u32 = 10_000;
/// Blue's denominator of the probability, and its hold time in microseconds
/// (docs/reference/altq.md 7.4).
const MAXPMARK: u64 = 4000;
const HOLDTIME: u64 = 1000;

/// The options of one discipline.
fn options(discipline: Discipline) -> &'static [&'static str] {
    match discipline {
        // The last two are NetBSD's.
        Discipline::Cbq => &["efficient", "no-tbr", "no-control"],
        Discipline::Hfsc | Discipline::Priq | Discipline::Null => &[],
        Discipline::Fifo => &["qlimit"],
        Discipline::Red => RED,
        Discipline::Rio => RIO_WORDS,
        Discipline::Blue => BLUE,
        Discipline::Wfq => WFQ,
        Discipline::Jobs => &["qlimit", "separate"],
    }
}

/// Numbers of the interface's own queue, as they are written.
struct Queue {
    limit: Option<u32>,
    weight: Option<u64>,
    ecn: Option<Span>,
    flowvalve: bool,
    levels: Defaults,
    maxpmark: u64,
    holdtime: u64,
    /// Of wfq.
    nqueues: Option<u64>,
    qsize: u32,
    hash: Option<&'static str>,
    places: Vec<(&'static str, Span)>,
}

impl Queue {
    fn new(levels: Defaults) -> Queue {
        Queue {
            limit: None,
            weight: None,
            ecn: None,
            flowvalve: false,
            levels,
            maxpmark: MAXPMARK,
            holdtime: HOLDTIME,
            nqueues: None,
            qsize: LIMIT_WFQ,
            hash: None,
            places: Vec::new(),
        }
    }
}

impl File<'_> {
    pub(super) fn interface(&mut self, words: &mut Words<'_>) {
        let Some(span) = words.next() else {
            return self.error("missing-value", words.end, "`interface` needs the name of an interface", None);
        };
        let name = self.slice(span);
        if let Some(first) = self.interfaces.iter().find(|interface| interface.device == name || interface.name == name)
        {
            let error =
                Diagnostic::error("duplicate-name", span, format!("there are two lines for the interface `{name}`"));
            let error = error.label(first.span, "the first");
            return self.findings.push(error);
        }
        if name.len() > 15 || name.contains(|c: char| !c.is_ascii_alphanumeric() && !"_.-".contains(c)) {
            let help = Some("a name is of up to 15 letters, digits, `_`, `.` and `-`".to_owned());
            return self.error("bad-value", span, format!("`{name}` is no name of an interface"), help);
        }
        let mut interface = Interface::new(name, span);
        // The discipline says which options there are, and may stand behind them.
        let written = words.rest().iter().copied().find(|at| DISCIPLINES.contains(&self.slice(*at)));
        let good = match written.and_then(|at| Discipline::of(self.slice(at))) {
            Some(discipline) => {
                interface.discipline = Some(discipline);
                self.interface_options(words, &mut interface, discipline)
            }
            None => {
                // With a name that is misspelt, the word that is not known says so.
                let good = self.interface_options(words, &mut interface, Discipline::Null);
                interface.discipline = Some(Discipline::Null);
                good
            }
        };
        if !good {
            // Its classes and filters cannot be read without it, and each would be an error as
            // well.
            interface.discipline = None;
        }
        // An interface with an error is kept too, or each of its classes would be an error as well.
        self.current = Some(self.interfaces.len());
        self.interfaces.push(interface);
    }

    /// Where the conditioners of an interface are: the interface itself if it has no discipline,
    /// else the same interface once more, for what arrives there.
    pub(super) fn input_of(&mut self, at: usize) -> usize {
        let own = &self.interfaces[at];
        if own.discipline == Some(Discipline::Null) {
            return at;
        }
        if let Some(input) = own.input {
            return input;
        }
        let mut name = format!("{}-in", own.name);
        while self.interfaces.iter().any(|interface| interface.name == name) {
            name.push_str("-in");
        }
        let mut input = Interface::new(&name, own.span);
        (input.device, input.mtu, input.discipline) = (own.device.clone(), own.mtu, Some(Discipline::Null));
        self.root(&mut input, Discipline::Null, Queue::new(self.defaults));
        self.interfaces.push(input);
        let input = self.interfaces.len() - 1;
        self.interfaces[at].input = Some(input);
        input
    }

    /// Reads the options of an interface. False after an error.
    fn interface_options(&mut self, words: &mut Words<'_>, interface: &mut Interface, discipline: Discipline) -> bool {
        let mut queue = Queue::new(self.defaults);
        let mut good = true;
        while let Some(at) = words.next() {
            let word = self.slice(at);
            if Discipline::of(word).is_some() {
                good &= self.once(&mut interface.words, "scheduler", at);
                if word == "cbq-prr" {
                    interface.scheduler.set("rounds", Value::Choice("prr"));
                }
                continue;
            }
            let own = options(discipline);
            let Some(option) = COMMON.iter().chain(own).copied().find(|option| *option == word) else {
                let known = COMMON.iter().chain(own).copied().chain(DISCIPLINES.iter().copied());
                let help = did_you_mean(word, known);
                let message = match interface.discipline {
                    Some(_) => format!("an interface of `{}` does not know `{word}`", discipline.name()),
                    None => format!("an interface does not know `{word}`"),
                };
                self.error("unknown-word", at, message, help);
                good = false;
                continue;
            };
            let place = match option {
                "bandwidth" => "rate",
                "tbrsize" => "regulator",
                "qlimit" => "queue",
                other => other,
            };
            good &= self.once(&mut interface.words, place, at);
            good &= match option {
                "bandwidth" => match self.value(words, at, "a rate in bit/s, as 10M", words::rate) {
                    Some((0, span)) => {
                        self.error("out-of-range", span, "an interface of 0 bit/s carries nothing", None);
                        false
                    }
                    Some((rate, _)) => {
                        interface.rate = rate;
                        true
                    }
                    None => false,
                },
                "tbrsize" => match self.value(words, at, "a number of bytes, as 12K", words::bytes) {
                    Some((depth, _)) if (1..=u64::from(u32::MAX)).contains(&depth) => {
                        interface.tbrsize = Some(depth as u32);
                        true
                    }
                    Some((_, span)) => {
                        self.error("out-of-range", span, "a token bucket holds 1 to 4294967295 bytes", None);
                        false
                    }
                    None => false,
                },
                "efficient" => {
                    interface.scheduler.set("efficient", Value::Flag);
                    true
                }
                "separate" => {
                    interface.scheduler.set("separate", Value::Flag);
                    true
                }
                "no-tbr" => {
                    interface.no_tbr = true;
                    true
                }
                "no-control" => {
                    interface.no_control = true;
                    true
                }
                _ => self.queue_option(words, option, at, &mut queue),
            };
        }
        if discipline == Discipline::Cbq {
            interface.scheduler.set("estimator", Value::Choice("classic"));
        }
        if let (Discipline::Jobs, Some(limit)) = (discipline, queue.limit.filter(|limit| *limit != LIMIT_JOBS)) {
            if limit > MOST_JOBS {
                let place = interface.words.iter().find(|(word, _)| *word == "queue");
                let at = place.map_or(interface.span, |(_, at)| *at);
                self.error("out-of-range", at, format!("jobs holds at most {MOST_JOBS} packets"), None);
                good = false;
            }
            interface.scheduler.set("limit", Value::Int(limit.into()));
        }
        if discipline == Discipline::Blue && queue.limit.is_some_and(|limit| limit > MOST_BLUE) {
            let place = interface.words.iter().find(|(word, _)| *word == "queue");
            let at = place.map_or(interface.span, |(_, at)| *at);
            let help = Some("lower `qlimit`".to_owned());
            self.error("out-of-range", at, format!("blue holds at most {MOST_BLUE} packets"), help);
            good = false;
        }
        if interface.no_tbr
            && let Some((_, size)) = interface.words.iter().find(|(word, _)| *word == "regulator")
        {
            let message = "`tbrsize` has no effect: `no-tbr` is written too";
            self.findings.push(Diagnostic::warning("no-effect", *size, message).help("leave one of them out"));
        }
        if good {
            self.root(interface, discipline, queue);
        }
        good
    }

    /// Reads an option of the interface's own queue. False after an error.
    fn queue_option(&mut self, words: &mut Words<'_>, option: &'static str, at: Span, queue: &mut Queue) -> bool {
        let positive = |most: u64| move |word: &str| words::integer(word).filter(|n| (1..=most).contains(n));
        let natural = |most: u64| move |word: &str| words::integer(word).filter(|n| *n <= most);
        let mut taken = |file: &mut Self, what: &str, most: u64| file.value(words, at, what, positive(most));
        match option {
            "qlimit" => match taken(self, "a number of packets, at least 1", 1_000_000) {
                Some((n, _)) => queue.limit = Some(n as u32),
                None => return false,
            },
            "packetsize" => {
                if taken(self, "a number of bytes", 65_535).is_none() {
                    return false;
                }
                let message = "`packetsize` of an interface has no effect: altqd never gave it to the kernel";
                self.findings.push(Diagnostic::warning("no-effect", at, message).help("leave it out"));
            }
            "weight" => match taken(self, "a power of two up to 65536", 65_536) {
                Some((n, span)) => {
                    queue.weight = Some(n);
                    queue.places.push(("weight", span));
                }
                None => return false,
            },
            "maxpmark" => match taken(self, "a number from 8 to 1000000000", 1_000_000_000) {
                Some((n, span)) if n < 8 => {
                    let message = "`maxpmark` is at least 8: the probability rises by an eighth of it";
                    self.error("out-of-range", span, message, None);
                    return false;
                }
                Some((n, span)) => {
                    queue.maxpmark = n;
                    queue.places.push(("maxpmark", span));
                }
                None => return false,
            },
            "holdtime" => match taken(self, "microseconds, up to 1000000", 1_000_000) {
                Some((n, span)) => {
                    queue.holdtime = n;
                    queue.places.push(("holdtime", span));
                }
                None => return false,
            },
            "ecn" => queue.ecn = Some(at),
            "nqueues" | "qsize" | "hash" => return self.wfq_option(words, option, at, queue),
            "flowvalve" => queue.flowvalve = true,
            _ => return self.threshold(words, option, at, natural(65_535), queue),
        }
        true
    }

    /// Reads an option of wfq. False after an error.
    fn wfq_option(&mut self, words: &mut Words<'_>, option: &'static str, at: Span, queue: &mut Queue) -> bool {
        match option {
            "nqueues" => match self.value(words, at, "a number from 1 to 2048", words::integer) {
                Some((n @ 1..=2048, _)) => queue.nqueues = Some(n),
                Some((_, span)) => {
                    let message = "wfq has 1 to 2048 queues; for other numbers ALTQ silently took 256";
                    self.error("out-of-range", span, message, Some("write `nqueues 256`".to_owned()));
                    return false;
                }
                None => return false,
            },
            "qsize" => match self.value(words, at, "a number of bytes, as 64K", words::bytes) {
                // 0 asks for the kernel's own number.
                Some((0, _)) => {}
                Some((n @ 1500..=0xffff_ffff, _)) => queue.qsize = n as u32,
                Some((_, span)) => {
                    let message = "`qsize` is the bytes of all queues together: 0 for 65536, or at least 1500";
                    self.error("out-of-range", span, message, None);
                    return false;
                }
                None => return false,
            },
            _ => {
                let read = |word: &str| HASHES.iter().find(|(name, _)| *name == word).map(|(_, native)| *native);
                match self.value(words, at, "dstaddr, srcport or full", read) {
                    Some((hash, _)) => queue.hash = Some(hash),
                    None => return false,
                }
            }
        }
        true
    }

    /// Reads a threshold or an inverse probability; 0 asks for the built-in one. False after an
    /// error.
    fn threshold(
        &mut self,
        words: &mut Words<'_>,
        option: &'static str,
        at: Span,
        read: impl Fn(&str) -> Option<u64>,
        queue: &mut Queue,
    ) -> bool {
        let Some((n, _)) = self.value(words, at, "a whole number, 0 for the built-in one", read) else {
            return false;
        };
        let (level, bare) = match option.split_once('_') {
            Some(("lo", bare)) => (Some(0), bare),
            Some(("med", bare)) => (Some(1), bare),
            Some((_, bare)) => (Some(2), bare),
            None => (None, option),
        };
        let index = usize::from(bare == "thmax") + 2 * usize::from(bare == "invpmax");
        let row = level.map_or(&mut queue.levels.red, |level: usize| &mut queue.levels.rio[level]);
        if n > 0 {
            row[index] = n as u32;
        }
        let word = level.map_or(["min", "max", "probability"][index], |level| RIO[level][index]);
        queue.places.push((word, at));
        true
    }

    /// Makes the class of the link itself, and the queue of an interface that has no other classes.
    fn root(&mut self, interface: &mut Interface, discipline: Discipline, mut words: Queue) {
        // An error about a threshold that is not written is about the other one of its pair.
        for [min, max, _] in RIO.into_iter().chain([["min", "max", ""]]) {
            let place = |word| words.places.iter().find(|(name, _)| *name == word).map(|(_, place)| *place);
            match (place(min), place(max)) {
                (Some(place), None) => words.places.push((max, place)),
                (None, Some(place)) => words.places.push((min, place)),
                _ => {}
            }
        }
        let queue = match discipline {
            Discipline::Cbq => return,
            Discipline::Hfsc | Discipline::Priq | Discipline::Jobs => None,
            Discipline::Null => {
                for (word, place) in &interface.words {
                    let message = format!(
                        "`{}` has no effect: nothing is held back without a discipline",
                        match *word {
                            "rate" => "bandwidth",
                            _ => "tbrsize",
                        }
                    );
                    self.findings.push(Diagnostic::warning("no-effect", *place, message).help("leave it out"));
                }
                (interface.rate, interface.tbrsize) = (UNSHAPED, None);
                Some(QueueSpec::plain(Limit::Packets(LIMIT_CONDITIONER)))
            }
            Discipline::Fifo => Some(QueueSpec::plain(Limit::Packets(words.limit.unwrap_or(LIMIT_FIFO)))),
            Discipline::Wfq => {
                let mut queue = QueueSpec::new("hashed_wfq", Limit::Bytes(words.qsize));
                if let Some(n) = words.nqueues {
                    queue.settings.set("queues", Value::Int(n));
                }
                if let Some(hash) = words.hash {
                    queue.settings.set("hash", Value::Choice(hash));
                }
                interface.notes.push(
                    "which flows share a queue of wfq is decided by a hash with a secret seed; ALTQ's could be foreseen"
                        .to_owned(),
                );
                Some(queue)
            }
            _ => Some(self.own_queue(discipline, &words)),
        };
        // docs/reference/altq.md 10: the root class of hfsc is there by itself, and has this name.
        // Classes of priq and jobs have none above them.
        let name = if discipline == Discipline::Hfsc { "root" } else { interface.name.as_str() }.to_owned();
        interface.names.insert(name.clone(), 0);
        interface.classes.push(Draft {
            name,
            span: interface.span,
            parent: None,
            bandwidth: interface.rate,
            allocated: 0,
            settings: Settings::new(),
            words: Vec::new(),
            queue_words: words.places,
            made: true,
            queue,
        });
        if !matches!(discipline, Discipline::Hfsc | Discipline::Priq | Discipline::Jobs) {
            interface.default = Some(0);
        }
    }

    /// The queue of an interface of RED, RIO or Blue (docs/reference/altq.md 7).
    fn own_queue(&mut self, discipline: Discipline, words: &Queue) -> QueueSpec {
        let limit = Limit::Packets(words.limit.unwrap_or(LIMIT_ACTIVE));
        let mut queue = QueueSpec { name: discipline.name(), limit, settings: Settings::new() };
        let settings = &mut queue.settings;
        if discipline == Discipline::Blue {
            settings.set("variant", Value::Choice("altq"));
            if words.maxpmark != MAXPMARK {
                settings.set("maxpmark", Value::Int(words.maxpmark));
            }
            if words.holdtime != HOLDTIME {
                settings.set("holdtime", Value::Time(words.holdtime * 1000));
            }
        } else {
            settings.set("variant", Value::Choice("altq-interface"));
            if let Some(weight) = words.weight {
                settings.set("weight", Value::Int(weight));
            }
        }
        match discipline {
            Discipline::Red => {
                let [min, max, inverse] = words.levels.red;
                settings.set("min", packets(min)).set("max", packets(max));
                if inverse != BUILT_IN.red[2] {
                    settings.set("probability", probability(inverse));
                }
            }
            Discipline::Rio => queues::rio(&mut queue, &words.levels),
            _ => {}
        }
        match words.ecn {
            Some(at) if discipline == Discipline::Rio => {
                let message = "`ecn` has no effect here: ALTQ's rio never marks";
                self.findings.push(Diagnostic::warning("no-effect", at, message).help("write `red` for marks"));
            }
            Some(_) => {
                queue.settings.set("ecn", Value::Flag);
            }
            None => {}
        }
        if words.flowvalve {
            queue.settings.set("flowvalve", Value::Flag);
        }
        queue
    }
}
