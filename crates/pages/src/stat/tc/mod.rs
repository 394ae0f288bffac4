//! `tc -s qdisc` and `tc -s class`, as iproute2 prints them: [`Qdisc`] and [`Class`] are blocks,
//! [`print()`] makes them of a link.
//!
//! tc numbers what we name: the link's scheduler is qdisc `1:`, the link itself class `1:1`, our
//! class n is `1:(n+1)` in hexadecimal, its queue the qdisc of that number with a 0 behind it
//! (class `1:11`, queue `110:`), a scheduler in a class likewise. With names, as `tc -nm` prints
//! them, a class is `voice#1:11`.
//!
//! HTB and the sfq with RED inside are printed to the byte as of iproute2 3.3. What tc has no qdisc
//! for (and what its qdiscs count and ours do not) keeps the shape: kind, words, the line of sums,
//! then a line of what it counts, by its own names.

mod read;
mod unit;

use std::fmt::{self, Display, Formatter};

pub use read::{Read, ReadError, disagreements, identities, measured, printed, read};

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
    /// Times that something was over a limit: a class held back, a packet marked or dropped before
    /// its time.
    pub overlimits: u64,
    /// Packets that came back from the device. Ours never do.
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
    /// The class that it stands in, `1:11`; `None`: it is the device's root.
    pub parent: Option<String>,
    /// What tc calls it.
    pub name: String,
    /// What is printed of it.
    pub kind: Kind,
    /// Its counters.
    pub counts: Counts,
}

/// What is printed of a qdisc, with its words and its own counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// HTB.
    Htb {
        /// Rate to quantum.
        r2q: u64,
        /// The default class's number, as hexadecimal text; `0` for none.
        default: String,
        /// Packets that passed it by.
        direct_packets: u64,
    },
    /// SFQ, with RED in every flow where there is one.
    Sfq(Sfq),
    /// Anything else.
    Other {
        /// Its words and their values.
        words: Vec<(String, String)>,
        /// What it counts.
        told: Vec<(&'static str, i64)>,
    },
}

/// SFQ's words and counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sfq {
    /// Packets that it holds.
    pub limit: u32,
    /// Bytes a round.
    pub quantum: u64,
    /// Packets of one flow.
    pub depth: u64,
    /// Drops and marks at the head.
    pub headdrop: bool,
    /// Buckets of the hash.
    pub divisor: u64,
    /// Seconds between two hashes; 0: never.
    pub perturb: u64,
    /// RED in every flow.
    pub red: Option<SfqRed>,
}

/// RED's part of SFQ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SfqRed {
    /// Weight of the average: 1 in 2^n.
    pub ewma: u64,
    /// Below this many bytes nothing happens.
    pub min: u64,
    /// Above it every packet is marked or dropped.
    pub max: u64,
    /// Probability at `max`, in billionths.
    pub probability: u32,
    /// Marks what understands it.
    pub ecn: bool,
    /// Drops even that above `max`.
    pub harddrop: bool,
    /// Arriving packets marked by chance.
    pub prob_mark: u64,
    /// Packets at the head marked by chance.
    pub prob_mark_head: u64,
    /// Packets dropped by chance.
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
    /// What tc calls what serves it.
    pub name: String,
    /// What is printed of it.
    pub kind: ClassKind,
    /// Its counters.
    pub counts: Counts,
    /// Its rate, bit/s and packets a second.
    pub rate: (u64, u64),
}

/// What is printed of a class, with its words and counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClassKind {
    /// HTB.
    Htb(HtbClass),
    /// Anything else.
    Other {
        /// The class's words.
        words: Vec<(String, String)>,
        /// What the scheduler counts for it.
        told: Vec<(&'static str, i64)>,
    },
}

/// A class of HTB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HtbClass {
    /// Who goes first; leaves have it.
    pub prio: Option<u64>,
    /// Rate, bit/s.
    pub rate: u64,
    /// Ceiling, bit/s.
    pub ceil: u64,
    /// Bytes that the rate saves up.
    pub burst: u64,
    /// Bytes that the ceiling saves up.
    pub cburst: u64,
    /// Packets that went on its own tokens.
    pub lended: u64,
    /// Packets that went on those of a class above.
    pub borrowed: u64,
    /// Packets longer than its tables. Ours have none.
    pub giants: u64,
    /// Tokens and those of the ceiling, in ticks of 64 ns; negative in debt. `None`: not known.
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

/// Words and values, each with a space behind it.
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

/// What `tc -s qdisc` prints of a link, an empty line, and what `tc -s class` prints. `names`: with
/// classes' names, as `tc -nm`.
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

/// The qdiscs of a link: its scheduler, those in classes, and the queues of those that hold
/// packets.
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
        // The link's own scheduler stands above: only its own packets are in a queue of this place.
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

/// tc's numbers.
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

/// The counters of a class with all below it.
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

/// How often a scheduler found a class over its limit.
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

/// In which form tc prints a scheduler.
fn tc_form(scheduler: &str) -> TcForm {
    schedule::find(scheduler).map_or(TcForm::Words, |entry| entry.tc)
}

/// A queue as a qdisc. `packet`: the link's largest, charged.
fn queue(class: &ClassStat, spec: &QueueSpec, form: Form, packet: u64) -> Kind {
    let told = |name: &str| class.queue_says(&[name]).map_or(0, unsigned);
    let given = &spec.settings;
    if let (Form::Flows, Limit::Packets(limit)) = (form, spec.limit) {
        // Where there is a limit of a flow there is RED, and what is not written follows from it
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
        // The kernel's words: what RED dropped, and what found the queue full.
        let early = told("prob_drop") + told("forced_drop");
        let full = class.own.dropped_packets.saturating_sub(early);
        let marked = told("prob_mark") + told("forced_mark");
        counted = vec![("marked", marked as i64), ("early", early as i64), ("pdrop", full as i64), ("other", 0)];
    } else if class.queue_says(&["ecn_mark"]).is_none() && class.own.marked_packets > 0 {
        counted.push(("ecn_mark", class.own.marked_packets as i64));
    }
    Kind::Other { words: all, told: counted }
}

/// The number that a queue's table prints as a word's default; 0 where that is no number.
fn default_of(queue: &str, word: &str) -> u64 {
    let default = queue_words(queue).iter().find(|known| known.name == word).map_or("", |known| known.default);
    let digits = default.find(|c: char| !c.is_ascii_digit()).map_or(default, |end| &default[..end]);
    digits.parse().unwrap_or(0)
}

/// Words with their values: those given in tc's units, the others as their table has them; flags
/// only if they were given.
fn words(table: &'static [altq_engine::settings::Word], given: &Settings) -> Vec<(String, String)> {
    in_effect(table, given)
        .filter_map(|(word, value)| match (value, word.kind) {
            (Some(value), _) => Some((word.name.to_owned(), unit::value(value))),
            (None, altq_engine::settings::Kind::Flag) => None,
            // A default that is a sentence ("the link's MTU") is no value.
            (None, _) if word.default.contains(' ') || word.default == "none" => None,
            (None, _) => Some((word.name.to_owned(), word.default.replace("bit/s", "bit"))),
        })
        .collect()
}

/// A class with what serves it.
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
    // The engine tells what it works with; where nothing is written that is tc's least burst, or a
    // packet.
    let bytes = |word: &str| match (given.get(word), class.says(&[word])) {
        (Some(Value::Bytes(bytes)), _) => bytes,
        (_, Some(bytes)) => unsigned(bytes),
        _ => u64::from(link.mtu.max(1600)),
    };
    // A tick of tc's tokens is 64 ns.
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
