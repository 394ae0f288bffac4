//! Reads what `tc -s` prints, the kernel's output and ours, and checks the identities that it must
//! fulfil.

use std::collections::{BTreeMap, BTreeSet};

use altq_cases::case::{Links, Measure, Probe, Subject};
use altq_cases::stat::LinkStat;

use super::{Counts, Ids, print};

/// A block that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// True for a class, false for a qdisc.
    pub class: bool,
    /// Its kind: `htb`, `sfq`, …
    pub kind: String,
    /// Its handle or number.
    pub id: String,
    /// The class above; `None` for the root.
    pub parent: Option<String>,
    /// Its sums.
    pub counts: Counts,
    /// All other numbers that follow a word, by that word: `lended`, `prob_mark_head`, `limit`, …
    pub numbers: BTreeMap<String, i64>,
}

/// A line that is not one of tc's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {text:?} is no line of tc -s: {reason}")]
pub struct ReadError {
    /// The line, from 1.
    pub line: usize,
    /// The text of the line.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// Reads blocks of `tc -s qdisc` and `tc -s class`, however they are indented.
pub fn read(text: &str) -> Result<Vec<Read>, ReadError> {
    let mut blocks: Vec<Read> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let bad = |reason| ReadError { line: at + 1, text: line.to_owned(), reason };
        let words: Vec<&str> = line.split([' ', '\t', '(', ')', ',']).filter(|word| !word.is_empty()).collect();
        let Some(first) = words.first() else { continue };
        if matches!(*first, "qdisc" | "class") {
            let [_, kind, id, rest @ ..] = words.as_slice() else { return Err(bad("a kind and a number must follow")) };
            let mut block =
                Read { class: *first == "class", kind: (*kind).into(), id: (*id).into(), ..Read::default() };
            block.parent =
                rest.iter().position(|word| *word == "parent").and_then(|at| rest.get(at + 1)).map(|w| (*w).into());
            numbers(rest, &mut block.numbers);
            blocks.push(block);
            continue;
        }
        let Some(block) = blocks.last_mut() else { return Err(bad("no block has begun")) };
        let after = |word: &str| words.iter().position(|w| *w == word).and_then(|at| words.get(at + 1));
        if *first == "Sent" {
            let number = |word: Option<&&str>| word.and_then(|word| word.parse().ok());
            let figures =
                [words.get(1), words.get(3), after("dropped"), after("overlimits"), after("requeues")].map(number);
            let [Some(bytes), Some(packets), Some(dropped), Some(overlimits), Some(requeues)] = figures else {
                return Err(bad("bytes, packets, dropped, overlimits and requeues are numbers"));
            };
            block.counts = Counts { bytes, packets, dropped, overlimits, requeues, ..block.counts };
        } else if let Some(at) = words.iter().position(|word| *word == "backlog") {
            let bytes = words.get(at + 1).and_then(|word| size(word));
            let packets = words.get(at + 2).and_then(|word| word.strip_suffix('p')?.parse().ok());
            let (Some(bytes), Some(packets)) = (bytes, packets) else {
                return Err(bad("a backlog is bytes and packets"));
            };
            (block.counts.backlog_bytes, block.counts.backlog_packets) = (bytes, packets);
        } else {
            numbers(&words, &mut block.numbers);
        }
    }
    Ok(blocks)
}

/// Every word that a whole number follows.
fn numbers(words: &[&str], into: &mut BTreeMap<String, i64>) {
    for pair in words.windows(2) {
        if let Ok(number) = pair[1].parse() {
            into.insert(pair[0].trim_end_matches(':').to_owned(), number);
        }
    }
}

fn size(word: &str) -> Option<u64> {
    let end = word.find(|c: char| !c.is_ascii_digit())?;
    let (digits, unit) = word.split_at(end);
    let scale = match unit {
        "b" => 1,
        "Kb" => 1 << 10,
        "Mb" => 1 << 20,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(scale)
}

/// Where the blocks of one reading contradict one another; empty if they do not. The identities are
/// those of the published blocks: what the root has sent and holds is the sum of its leaves; a
/// class's packets were sent on its own tokens or on borrowed ones; what classes borrowed, a class
/// above has lent or borrowed itself; RED's overlimits are its marks and drops.
pub fn disagreements(blocks: &[Read]) -> Vec<String> {
    let mut found = Vec::new();
    compare(blocks, &mut |what, left, right| {
        if left != right {
            found.push(format!("{what}: {left} is not {right}"));
        }
    });
    found
}

/// The number of identities that [`disagreements`] checks.
pub fn identities(blocks: &[Read]) -> usize {
    let mut count = 0;
    compare(blocks, &mut |_, _, _| count += 1);
    count
}

/// The number that `tc -s` prints under this name for a class or for the qdisc in it: `bytes`,
/// `packets`, `dropped`, `overlimits`, `backlog_bytes`, `backlog_packets` of the qdisc, or the
/// number after a word (`prob_mark_head`, `lended`, …), first the qdisc's, then the class's. `None`
/// if nothing is printed under that name.
pub fn printed(link: &LinkStat, class: &str, name: &str) -> Option<f64> {
    let at = link.classes.iter().position(|c| c.name == class)?;
    let ids = Ids::new(link, false);
    let (class, leaf) = (ids.class(at), if at == 0 { "1:".into() } else { ids.leaf(at) });
    let blocks = read(&print(link, false)).ok()?;
    let block = |is_class: bool, id: &str| blocks.iter().find(move |block| block.class == is_class && block.id == id);
    let (qdisc, class) = (block(false, &leaf), block(true, &class));
    let counts = qdisc.or(class)?.counts;
    let count = match name {
        "bytes" => counts.bytes,
        "packets" => counts.packets,
        "dropped" => counts.dropped,
        "overlimits" => counts.overlimits,
        "backlog_bytes" => counts.backlog_bytes,
        "backlog_packets" => counts.backlog_packets,
        _ => {
            return [qdisc, class]
                .into_iter()
                .flatten()
                .find_map(|block| block.numbers.get(name))
                .map(|number| *number as f64);
        }
    };
    Some(count as f64)
}

/// The names under which `tc -s` prints numbers for a class and for the qdisc in it: those that
/// [`printed`] finds, and words that may have a number at another time. Empty for a class that the
/// link does not have.
pub fn names(link: &LinkStat, class: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let Some(at) = link.classes.iter().position(|c| c.name == class) else { return names };
    let ids = Ids::new(link, false);
    let own = [(false, if at == 0 { "1:".into() } else { ids.leaf(at) }), (true, ids.class(at))];
    let Ok(blocks) = read(&print(link, false)) else { return names };
    let of_class = |block: &&Read| own.contains(&(block.class, block.id.clone()));
    for block in blocks.iter().filter(of_class) {
        names.extend(block.numbers.keys().cloned());
        names.extend(COUNTS.map(str::to_owned));
        // Where tokens are not known, `-` is printed.
        if block.numbers.contains_key("lended") {
            names.extend(["tokens", "ctokens"].map(str::to_owned));
        }
    }
    names
}

/// The names of the sums that every block has.
const COUNTS: [&str; 6] = ["bytes", "packets", "dropped", "overlimits", "backlog_bytes", "backlog_packets"];

/// The value that a probe asks for in the output of `tc -s` for a link at the end of a run. This is
/// a [`ReadCounters`](altq_cases::stat::ReadCounters).
pub fn measured(stat: &LinkStat, probe: &Probe) -> Option<f64> {
    let Subject::Class(class) = &probe.subject else { return None };
    let classes = Links::new(vec![(&stat.name, stat.classes.iter().map(|class| class.name.as_str()).collect())]);
    let class = classes.class(classes.find(&class.text).ok()?);
    let blocks = || read(&print(stat, false)).ok();
    match (probe.measure, &probe.counter) {
        (Measure::Counter, Some(counter)) => printed(stat, class, &counter.text),
        (Measure::Identities, _) => Some(identities(&blocks()?) as f64),
        (Measure::Disagreements, _) => Some(disagreements(&blocks()?).len() as f64),
        _ => None,
    }
}

/// Compares both sides of each identity.
fn compare(blocks: &[Read], same: &mut dyn FnMut(String, u64, u64)) {
    let qdiscs = || blocks.iter().filter(|block| !block.class);
    // The kernel has a scheduler prio, which we do not have.
    let is_scheduler = |kind: &str| altq_engine::schedule::find(kind).is_some() || kind == "prio";
    if let Some(root) = qdiscs().find(|qdisc| qdisc.parent.is_none()) {
        let leaves =
            || qdiscs().filter(|qdisc| qdisc.parent.is_some() && !is_scheduler(&qdisc.kind)).map(|leaf| leaf.counts);
        let direct = root.numbers.get("direct_packets_stat").copied().unwrap_or(0);
        if direct == 0 {
            same("bytes of the root and of its leaves".into(), root.counts.bytes, sum(leaves().map(|leaf| leaf.bytes)));
            same(
                "packets of the root and of its leaves".into(),
                root.counts.packets,
                sum(leaves().map(|leaf| leaf.packets)),
            );
        }
        let waiting = sum(leaves().map(|leaf| leaf.backlog_packets));
        same("backlog of the root and of its leaves".into(), root.counts.backlog_packets, waiting);
    }
    for qdisc in qdiscs() {
        let number = |name: &str| qdisc.numbers.get(name).map(|n| n.unsigned_abs());
        let names = ["prob_mark", "prob_mark_head", "prob_drop", "forced_mark", "forced_mark_head", "forced_drop"];
        let early: Option<Vec<u64>> = names.iter().map(|name| number(name)).collect();
        if let Some(early) = early {
            same(
                format!("overlimits of {} and its marks and drops", qdisc.id),
                qdisc.counts.overlimits,
                sum(early.into_iter()),
            );
        }
    }
    let classes = || blocks.iter().filter(|block| block.class);
    for class in classes() {
        let children = || classes().filter(|child| child.parent.as_deref() == Some(&class.id));
        let leaf = children().next().is_none();
        if !leaf {
            // An inner class of ours may have had packets of its own, which passed its queue.
            let queue =
                || qdiscs().filter(|qdisc| qdisc.parent.as_deref() == Some(&class.id) && !is_scheduler(&qdisc.kind));
            let bytes = sum(children().chain(queue()).map(|part| part.counts.bytes));
            same(format!("bytes of {} and its children", class.id), class.counts.bytes, bytes);
            let packets = sum(children().chain(queue()).map(|part| part.counts.packets));
            same(format!("packets of {} and its children", class.id), class.counts.packets, packets);
        }
        // The kernel counts both in 32 bits.
        let went = |class: &Read| Some((*class.numbers.get("lended")?, *class.numbers.get("borrowed")?));
        let Some((lended, borrowed)) = went(class) else { continue };
        let wrapped = |n: i64| u64::from(n as u32);
        if leaf {
            let packets = u64::from(class.counts.packets as u32);
            same(
                format!("packets of {}, and lended and borrowed", class.id),
                packets,
                wrapped(lended.wrapping_add(borrowed)),
            );
        } else {
            let lent = children().filter_map(went).fold(0i64, |sum, (_, borrowed)| sum.wrapping_add(borrowed));
            same(
                format!("lended and borrowed of {}, and borrowed below it", class.id),
                wrapped(lended.wrapping_add(borrowed)),
                wrapped(lent),
            );
        }
    }
}

/// The figures may be anything; a sum that is too large wraps.
fn sum(figures: impl Iterator<Item = u64>) -> u64 {
    figures.fold(0, u64::wrapping_add)
}
