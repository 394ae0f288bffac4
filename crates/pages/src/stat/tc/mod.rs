//! `tc -s qdisc` and `tc -s class`, as iproute2 prints them: [`Qdisc`] and [`Class`] are the
//! blocks, and [`print()`] prints those of a link.
//!
//! tc has numbers where we have names. The link's scheduler is qdisc `1:`, and the link itself
//! class `1:1`. Our class n is `1:(n+1)` in hexadecimal, and its queue is the qdisc of that number
//! with a 0 behind it (class `1:11`, queue `110:`); so is a scheduler in a class. With names, as
//! `tc -nm` prints them, a class is `voice#1:11`.
//!
//! HTB, and sfq with RED inside, are printed byte for byte as by iproute2 3.3. Schedulers and
//! queues that tc does not have, and counters that our qdiscs do not have, are printed in the same
//! form: kind, words, the line of sums, then a line with the counters by our own names.

mod check;
mod read;
mod unit;

use std::fmt::{self, Display, Formatter};

pub use check::check;
pub use read::{Read, ReadError, disagreements, identities, measured, names, printed, read};

use altq_cases::stat::{ClassStat, LinkStat};
use altq_engine::queue::Form;
use altq_engine::schedule::{self, TcForm};
use altq_engine::settings::{Limit, Settings, Value};
use altq_engine::spec::{QueueSpec, SchedulerSpec};

use super::{class_words, in_effect, queue_words};

/// Counters that every block has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes sent.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// How often something was over a limit: a class was held back, or a packet was marked or
    /// dropped before the queue was full.
    pub overlimits: u64,
    /// Packets that came back from the device. Ours never come back.
    pub requeues: u64,
    /// Bytes waiting.
    pub backlog_bytes: u64,
    /// Packets waiting.
    pub backlog_packets: u64,
}

/// A block of `tc -s qdisc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qdisc {
    /// Its handle, `110:`.
    pub handle: String,
    /// The class that holds it, `1:11`; `None`: it is the device's root.
    pub parent: Option<String>,
    /// tc's name for it.
    pub name: String,
    /// Its kind, with what is printed of it.
    pub kind: Kind,
    /// Its counters.
    pub counts: Counts,
}

/// The kind of a qdisc, with its words and its own counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// HTB.
    Htb {
        /// The ratio of rate to quantum.
        r2q: u64,
        /// The default class's number, as hexadecimal text; `0` for none.
        default: String,
        /// Packets that bypassed it.
        direct_packets: u64,
    },
    /// SFQ, possibly with RED in every flow.
    Sfq(Sfq),
    /// Any other qdisc.
    Other {
        /// Its words and their values.
        words: Vec<(String, String)>,
        /// Its own counters.
        told: Vec<(&'static str, i64)>,
    },
}

/// SFQ's words and counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sfq {
    /// The most packets that it holds.
    pub limit: u32,
    /// Bytes per round.
    pub quantum: u64,
    /// The most packets of one flow.
    pub depth: u64,
    /// True if it drops and marks at the head.
    pub headdrop: bool,
    /// Buckets of the hash.
    pub divisor: u64,
    /// Seconds between two changes of the hash; 0: never.
    pub perturb: u64,
    /// RED in every flow.
    pub red: Option<SfqRed>,
}

/// RED's part of SFQ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SfqRed {
    /// Weight of the average: 1 in 2^n.
    pub ewma: u64,
    /// Average in bytes below which nothing happens.
    pub min: u64,
    /// Average in bytes above which every packet is marked or dropped.
    pub max: u64,
    /// Probability at `max`, in billionths.
    pub probability: u32,
    /// True if packets that support ECN are marked.
    pub ecn: bool,
    /// True if even these are dropped above `max`.
    pub harddrop: bool,
    /// Arriving packets marked at random.
    pub prob_mark: u64,
    /// Packets at the head marked at random.
    pub prob_mark_head: u64,
    /// Packets dropped at random.
    pub prob_drop: u64,
    /// Arriving packets marked above `max`.
    pub forced_mark: u64,
    /// Packets at the head marked above `max`.
    pub forced_mark_head: u64,
    /// Packets dropped above `max`.
    pub forced_drop: u64,
}

/// A block of `tc -s class`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Its number, `1:11`.
    pub id: String,
    /// The class above; `None`: it is the qdisc's root.
    pub parent: Option<String>,
    /// The qdisc in it, `110:`.
    pub leaf: Option<String>,
    /// tc's name for the scheduler that serves it.
    pub name: String,
    /// Its kind, with what is printed of it.
    pub kind: ClassKind,
    /// Its counters.
    pub counts: Counts,
    /// Its rate, in bit/s and in packets per second.
    pub rate: (u64, u64),
}

/// The kind of a class, with its words and counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClassKind {
    /// HTB.
    Htb(HtbClass),
    /// A class of any other scheduler.
    Other {
        /// The class's words.
        words: Vec<(String, String)>,
        /// The counters that the scheduler keeps for it.
        told: Vec<(&'static str, i64)>,
    },
}

/// A class of HTB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HtbClass {
    /// Its priority; only leaves have one.
    pub prio: Option<u64>,
    /// Rate, in bit/s.
    pub rate: u64,
    /// Ceiling, in bit/s.
    pub ceil: u64,
    /// Bytes of unused rate that may be saved up.
    pub burst: u64,
    /// Bytes of unused ceiling that may be saved up.
    pub cburst: u64,
    /// Packets sent on its own tokens.
    pub lended: u64,
    /// Packets sent on the tokens of a class above.
    pub borrowed: u64,
    /// Packets longer than the kernel's tables. Ours has no tables.
    pub giants: u64,
    /// Its tokens and those of its ceiling, in ticks of 64 ns; negative if it is in debt. `None`:
    /// not known.
    pub tokens: Option<(i64, i64)>,
}

impl Display for Counts {
    /// The line of sums.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Counts { bytes, packets, dropped, overlimits, requeues, .. } = self;
        writeln!(
            f,
            " Sent {bytes} bytes {packets} pkt (dropped {dropped}, overlimits {overlimits} requeues {requeues}) "
        )
    }
}

impl Display for Qdisc {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "qdisc {} {} ", self.name, self.handle)?;
        match &self.parent {
            Some(parent) => write!(f, "parent {parent} ")?,
            None => write!(f, "root refcnt 2 ")?,
        }
        match &self.kind {
            Kind::Htb { r2q, default, direct_packets } => {
                writeln!(f, "r2q {r2q} default {default} direct_packets_stat {direct_packets}")?;
            }
            Kind::Sfq(sfq) => sfq.fmt(f)?,
            Kind::Other { words, .. } => {
                pairs(f, words)?;
                writeln!(f)?;
            }
        }
        let Counts { backlog_bytes, backlog_packets, requeues, .. } = self.counts;
        write!(f, "{}", self.counts)?;
        writeln!(f, " backlog {} {backlog_packets}p requeues {requeues} ", unit::size(backlog_bytes))?;
        if let Kind::Other { told, .. } = &self.kind {
            counted(f, told)?;
        }
        Ok(())
    }
}

impl Display for Sfq {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "limit {}p quantum {} depth {} ", self.limit, unit::size(self.quantum), self.depth)?;
        if self.headdrop {
            write!(f, "headdrop ")?;
        }
        write!(f, "divisor {} ", self.divisor)?;
        if self.perturb > 0 {
            write!(f, "perturb {}sec ", self.perturb)?;
        }
        writeln!(f)?;
        let Some(red) = &self.red else { return Ok(()) };
        let (min, max, probability) = (unit::size(red.min), unit::size(red.max), unit::fraction(red.probability));
        write!(f, " ewma {} min {min} max {max} probability {probability} ", red.ewma)?;
        if red.ecn {
            write!(f, "ecn ")?;
        }
        if red.harddrop {
            write!(f, "harddrop ")?;
        }
        writeln!(f)?;
        writeln!(f, " prob_mark {} prob_mark_head {} prob_drop {}", red.prob_mark, red.prob_mark_head, red.prob_drop)?;
        writeln!(
            f,
            " forced_mark {} forced_mark_head {} forced_drop {}",
            red.forced_mark, red.forced_mark_head, red.forced_drop
        )
    }
}

impl Display for Class {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "class {} {} ", self.name, self.id)?;
        match &self.parent {
            Some(parent) => write!(f, "parent {parent} ")?,
            None => write!(f, "root ")?,
        }
        if let Some(leaf) = &self.leaf {
            write!(f, "leaf {leaf} ")?;
        }
        match &self.kind {
            ClassKind::Htb(class) => {
                if let Some(prio) = class.prio {
                    write!(f, "prio {prio} ")?;
                }
                write!(f, "rate {} ceil {} ", unit::rate(class.rate), unit::rate(class.ceil))?;
                writeln!(f, "burst {} cburst {} ", unit::size(class.burst), unit::size(class.cburst))?;
            }
            ClassKind::Other { words, .. } => {
                pairs(f, words)?;
                writeln!(f)?;
            }
        }
        let (counts, (rate, packets)) = (&self.counts, self.rate);
        write!(f, "{counts} rate {} {packets}pps ", unit::rate(rate))?;
        writeln!(
            f,
            "backlog {} {}p requeues {} ",
            unit::size(counts.backlog_bytes),
            counts.backlog_packets,
            counts.requeues
        )?;
        match &self.kind {
            ClassKind::Htb(class) => {
                writeln!(f, " lended: {} borrowed: {} giants: {}", class.lended, class.borrowed, class.giants)?;
                match class.tokens {
                    Some((tokens, ctokens)) => writeln!(f, " tokens: {tokens} ctokens: {ctokens}")?,
                    None => writeln!(f, " tokens: - ctokens: -")?,
                }
            }
            ClassKind::Other { told, .. } => counted(f, told)?,
        }
        writeln!(f)
    }
}

/// Words and values, each followed by a space.
fn pairs(f: &mut Formatter<'_>, words: &[(String, String)]) -> fmt::Result {
    for (word, value) in words {
        match value.is_empty() {
            true => write!(f, "{word} ")?,
            false => write!(f, "{word} {value} ")?,
        }
    }
    Ok(())
}

/// The line of a qdisc's own counters.
fn counted(f: &mut Formatter<'_>, told: &[(&'static str, i64)]) -> fmt::Result {
    if told.is_empty() {
        return Ok(());
    }
    write!(f, " ")?;
    for (name, count) in told {
        write!(f, " {name} {count}")?;
    }
    writeln!(f)
}

/// The output of `tc -s qdisc` for a link, an empty line, and the output of `tc -s class`. `names`:
/// with the names of classes, as `tc -nm`.
pub fn print(link: &LinkStat, names: bool) -> String {
    let mut text = String::new();
    for qdisc in qdiscs(link, names) {
        text += &qdisc.to_string();
    }
    text.push('\n');
    for class in classes(link, names) {
        text += &class.to_string();
    }
    text
}

/// The qdiscs of a link: its scheduler, the schedulers in classes, and the queues of classes that
/// can hold packets.
pub fn qdiscs(link: &LinkStat, names: bool) -> Vec<Qdisc> {
    let ids = Ids::new(link, names);
    let mut all = Vec::new();
    if let Some(root) = link.classes.first() {
        let kind = scheduler(link, 0, &link.scheduler);
        let mut counts = sums(root, overlimits(link, 0));
        counts.dropped += link.unclassified.0;
        all.push(Qdisc { handle: "1:".into(), parent: None, name: link.scheduler.name.into(), kind, counts });
    }
    for (at, class) in link.classes.iter().enumerate() {
        let (parent, handle) = (ids.class(at), ids.leaf(at));
        // The link's own scheduler is printed first; its queue here has only the link's own
        // packets.
        if let Some(held) = class.holds.as_ref().filter(|_| at > 0) {
            let counts = sums(class, overlimits(link, at));
            let kind = scheduler(link, at, held);
            all.push(Qdisc { handle, parent: Some(parent), name: held.name.into(), kind, counts });
        } else if class.queues()
            && let Some(queue) = &class.queue
        {
            let entry = altq_engine::queue::find(queue.name);
            let form = entry.map_or(Form::Words, |entry| entry.form);
            let name = entry.map_or(queue.name, |entry| entry.tc_name(queue.limit));
            let kind = self::queue(class, queue, form, u64::from(link.packet));
            let early = match &kind {
                Kind::Sfq(Sfq { red: Some(red), .. }) => {
                    red.prob_mark
                        + red.prob_mark_head
                        + red.prob_drop
                        + red.forced_mark
                        + red.forced_mark_head
                        + red.forced_drop
                }
                Kind::Other { told, .. } => {
                    let early =
                        told.iter().filter(|(name, _)| matches!(*name, "marked" | "early" | "ecn_mark" | "prob_drop"));
                    early.map(|(_, count)| unsigned(*count)).sum()
                }
                _ => class.own.marked_packets,
            };
            let counts = Counts {
                bytes: class.own.sent_bytes,
                packets: class.own.sent_packets,
                dropped: class.own.dropped_packets,
                overlimits: early,
                requeues: 0,
                backlog_bytes: class.own.queued_bytes,
                backlog_packets: class.own.queued_packets,
            };
            all.push(Qdisc { handle, parent: Some(parent), name: name.into(), kind, counts });
        }
    }
    all
}

/// The classes of a link, the link itself first.
pub fn classes(link: &LinkStat, names: bool) -> Vec<Class> {
    let ids = Ids::new(link, names);
    let made = link.classes.iter().enumerate().map(|(at, class)| Class {
        id: ids.class(at),
        parent: class.parent.map(|parent| ids.class(parent)),
        leaf: (class.holds.is_some() && at > 0 || class.queues()).then(|| ids.leaf(at)),
        name: class.scheduler.into(),
        kind: served(link, class),
        counts: sums(class, class.says(&["overlimits", "over"]).map_or(0, unsigned)),
        rate: (class.rate(link.span), class.packet_rate(link.span)),
    });
    made.collect()
}

/// The numbers that tc uses.
struct Ids<'l> {
    link: &'l LinkStat,
    names: bool,
}

impl<'l> Ids<'l> {
    fn new(link: &'l LinkStat, names: bool) -> Ids<'l> {
        Ids { link, names }
    }

    fn class(&self, at: usize) -> String {
        match self.link.classes.get(at).filter(|_| self.names) {
            Some(class) => format!("{}#1:{:x}", class.name, at + 1),
            None => format!("1:{:x}", at + 1),
        }
    }

    fn leaf(&self, at: usize) -> String {
        format!("{:x}0:", at + 1)
    }
}

fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

/// The counters of a class and all classes below it.
fn sums(class: &ClassStat, overlimits: u64) -> Counts {
    let counters = &class.counters;
    Counts {
        bytes: counters.sent_bytes,
        packets: counters.sent_packets,
        dropped: counters.dropped_packets,
        overlimits,
        requeues: 0,
        backlog_bytes: counters.queued_bytes,
        backlog_packets: counters.queued_packets,
    }
}

/// How often a scheduler found one of its classes over the limit.
fn overlimits(link: &LinkStat, holder: usize) -> u64 {
    let of = |at: usize| link.classes[at].says(&["overlimits", "over"]).map_or(0, unsigned);
    let mut open: Vec<usize> = link.children(holder).collect();
    let mut sum = if holder == 0 { of(0) } else { 0 };
    while let Some(at) = open.pop() {
        sum += of(at);
        if link.classes[at].holds.is_none() {
            open.extend(link.children(at));
        }
    }
    sum
}

/// A scheduler as a qdisc.
fn scheduler(link: &LinkStat, at: usize, spec: &SchedulerSpec) -> Kind {
    let default = link.default.map_or("0".into(), |default| format!("{:x}", default + 1));
    if tc_form(spec.name) == TcForm::Tokens {
        let direct = link.classes[at].says(&["direct_packets"]).map_or(0, unsigned);
        // tc's own default is 10 (tc-htb(8)).
        return Kind::Htb { r2q: spec.settings.int("r2q").unwrap_or(10), default, direct_packets: direct };
    }
    let table = schedule::find(spec.name).map_or(&[][..], |entry| entry.words);
    let mut words = words(table, &spec.settings);
    words.push(("default".into(), default));
    Kind::Other { words, told: Vec::new() }
}

/// The form in which tc prints a scheduler.
fn tc_form(scheduler: &str) -> TcForm {
    schedule::find(scheduler).map_or(TcForm::Words, |entry| entry.tc)
}

/// A queue as a qdisc. `packet`: the charged length of the link's largest packet.
fn queue(class: &ClassStat, spec: &QueueSpec, form: Form, packet: u64) -> Kind {
    let told = |name: &str| class.queue_says(&[name]).map_or(0, unsigned);
    let given = &spec.settings;
    if let (Form::Flows, Limit::Packets(limit)) = (form, spec.limit) {
        // If there is a limit per flow, there is RED, and values that are not given follow from it
        // (tc-sfq(8)).
        let red = given.bytes("redflowlimit").map(|flow| (flow, given.bytes("max").unwrap_or(flow / 4)));
        let red = red.map(|(_, max)| SfqRed {
            ewma: told("ewma"),
            min: given.bytes("min").unwrap_or(max / 3),
            max,
            probability: given.fraction("probability").unwrap_or(20_000_000),
            ecn: given.flag("ecn"),
            harddrop: given.flag("harddrop"),
            prob_mark: told("prob_mark"),
            prob_mark_head: told("prob_mark_head"),
            prob_drop: told("prob_drop"),
            forced_mark: told("forced_mark"),
            forced_mark_head: told("forced_mark_head"),
            forced_drop: told("forced_drop"),
        });
        return Kind::Sfq(Sfq {
            limit,
            quantum: given.bytes("quantum").unwrap_or(packet),
            depth: given.int("depth").unwrap_or_else(|| default_of(spec.name, "depth")),
            headdrop: given.flag("headdrop"),
            divisor: given.int("divisor").unwrap_or_else(|| default_of(spec.name, "divisor")),
            perturb: given.time("perturb").unwrap_or(0) / 1_000_000_000,
            red,
        });
    }
    let mut all = vec![("limit".into(), unit::limit(spec.limit))];
    all.extend(words(queue_words(spec.name), given));
    let mut counted = class.queue_told.clone();
    if form == Form::Average {
        // The kernel distinguishes packets that RED dropped from those that found the queue full.
        let early = told("prob_drop") + told("forced_drop");
        let full = class.own.dropped_packets.saturating_sub(early);
        let marked = told("prob_mark") + told("forced_mark");
        counted = vec![("marked", marked as i64), ("early", early as i64), ("pdrop", full as i64), ("other", 0)];
    } else if class.queue_says(&["ecn_mark"]).is_none() && class.own.marked_packets > 0 {
        counted.push(("ecn_mark", class.own.marked_packets as i64));
    }
    Kind::Other { words: all, told: counted }
}

/// The number that a queue's table has as a word's default; 0 if the default is not a number.
fn default_of(queue: &str, word: &str) -> u64 {
    let default = queue_words(queue).iter().find(|known| known.name == word).map_or("", |known| known.default);
    let digits = default.find(|c: char| !c.is_ascii_digit()).map_or(default, |end| &default[..end]);
    digits.parse().unwrap_or(0)
}

/// Words with their values: given ones in tc's units, others as their table has them; flags only if
/// they were given.
fn words(table: &'static [altq_engine::settings::Word], given: &Settings) -> Vec<(String, String)> {
    in_effect(table, given)
        .filter_map(|(word, value)| match (value, word.kind) {
            (Some(value), _) => Some((word.name.to_owned(), unit::value(value))),
            (None, altq_engine::settings::Kind::Flag) => None,
            // A default that is a sentence ("the link's MTU") is not a value.
            (None, _) if word.default.contains(' ') || word.default == "none" => None,
            (None, _) => Some((word.name.to_owned(), word.default.replace("bit/s", "bit"))),
        })
        .collect()
}

/// The kind of a class, by the scheduler that serves it.
fn served(link: &LinkStat, class: &ClassStat) -> ClassKind {
    let given = &class.settings;
    let other = |words| ClassKind::Other { words, told: class.told.clone() };
    match (tc_form(class.scheduler), class.parent) {
        (TcForm::Tokens, _) => {}
        (_, None) => return other(vec![("rate".into(), unit::rate(link.rate.as_bit_s()))]),
        (TcForm::Words, _) => return other(words(class_words(class.scheduler), given)),
        (TcForm::Renamed(names), _) => {
            let given = |(ours, theirs): &(&str, &str)| Some(((*theirs).to_owned(), unit::value(given.get(ours)?)));
            return other(names.iter().filter_map(given).collect());
        }
    }
    let rate = match class.parent {
        Some(_) => given.rate("rate").unwrap_or_default(),
        None => link.rate,
    };
    let ceil = given.rate("ceil").unwrap_or(rate);
    // The engine has the values in effect. If no value is given, that is tc's smallest burst, or a
    // packet.
    let bytes = |word: &str| match (given.get(word), class.says(&[word])) {
        (Some(Value::Bytes(bytes)), _) => bytes,
        (_, Some(bytes)) => unsigned(bytes),
        _ => u64::from(link.mtu.max(1600)),
    };
    // tc counts tokens in ticks of 64 ns.
    let tokens = |name: &str| class.says(&[name]).map(|ns| ns / 64);
    ClassKind::Htb(HtbClass {
        prio: class.leaf.then(|| given.int("prio").unwrap_or(0)),
        rate: rate.as_bit_s(),
        ceil: ceil.as_bit_s(),
        burst: bytes("burst"),
        cburst: bytes("cburst"),
        lended: class.says(&["lends", "lended"]).map_or(0, unsigned),
        borrowed: class.says(&["borrows", "borrowed"]).map_or(0, unsigned),
        giants: 0,
        tokens: tokens("tokens").zip(tokens("ctokens")),
    })
}

#[cfg(test)]
mod tests;
