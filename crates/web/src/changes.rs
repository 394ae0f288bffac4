//! Changes, as marks on the time axis: those of the policy that altq remembers, and what else is
//! found by comparing two successive frames.

use std::collections::HashMap;

use altq_control::change::Entry;
use altq_control::document::{BYPASS, LinkStatus};
use altq_engine::units::Rate;
use altq_monitor::tree::Class;

use crate::frame::Classes;

/// The most marks that are kept.
pub const MARKS: usize = 50;
/// The most classes that a mark names; of more it gives only the number.
const NAMED: usize = 3;
/// The most characters that a mark has of a change of the policy: every event has all marks.
const LONG: usize = 200;

/// What changed, and when.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mark {
    /// When it was made, or else when it was seen, in ms since 1970.
    pub unix_ms: u64,
    /// The link.
    pub link: String,
    /// The change in words.
    pub what: String,
}

/// What changed between two states of a link, in words.
pub fn of_state(old: &LinkStatus, new: &LinkStatus) -> Option<String> {
    if old.state == new.state {
        return None;
    }
    let why = new.reason.as_ref().map_or(String::new(), |why| format!(": {why}"));
    Some(if new.state == BYPASS {
        format!("BYPASS, packets pass unshaped{why}")
    } else {
        format!("{}{why}", new.state)
    })
}

/// A change of the policy in words: what was done, and the first things that differed.
pub fn of_entry(entry: &Entry) -> String {
    let mut said = format!("change {}, {} {}", entry.number, entry.what.name(), entry.name).trim_end().to_owned();
    let mut lines: Vec<String> = entry.lines.iter().take(NAMED).cloned().collect();
    let more = entry.more.saturating_add(entry.lines.len().saturating_sub(NAMED));
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    if !lines.is_empty() {
        said = format!("{said}: {}", lines.join("; "));
    }
    if said.chars().count() > LONG {
        said = said.chars().take(LONG - 1).chain(['…']).collect();
    }
    said
}

/// What changed between two sets of classes, in words; nothing if only their order did.
pub fn of_classes(old: &Classes, new: &Classes) -> Option<String> {
    let mut said = Vec::new();
    let (of_old, of_new) = (old.tree.classes(), new.tree.classes());
    if let (Some(old), Some(new)) = (of_old.first(), of_new.first())
        && old.asked != new.asked
    {
        said.push(format!("rate {}, before {}", rate(new.asked), rate(old.asked)));
    }
    let (olds, news) = (by_name(of_old), by_name(of_new));
    let come = names(of_new, |class| !olds.contains_key(class.name.as_str()));
    let gone = names(of_old, |class| !news.contains_key(class.name.as_str()));
    if !come.is_empty() {
        said.push(format!("new: {}", list(&come)));
    }
    if !gone.is_empty() {
        said.push(format!("gone: {}", list(&gone)));
    }
    let other = |of: fn(&Class) -> Option<Rate>| -> Vec<String> {
        let others = of_new.iter().skip(1).filter_map(|class| {
            let before = olds.get(class.name.as_str())?;
            let (before, now) = (of(before), of(class));
            (before != now).then(|| format!("{} {}, before {}", class.name, rate(now), rate(before)))
        });
        others.collect()
    };
    for (what, others) in [("guarantee", other(|class| class.asked)), ("ceiling", other(|class| class.ceiling))] {
        if !others.is_empty() {
            said.push(format!("{what}: {}", list(&others)));
        }
    }
    (!said.is_empty()).then(|| said.join("; "))
}

/// The classes below the link.
fn by_name(classes: &[Class]) -> HashMap<&str, &Class> {
    classes.iter().skip(1).map(|class| (class.name.as_str(), class)).collect()
}

fn names(classes: &[Class], is: impl Fn(&Class) -> bool) -> Vec<String> {
    classes.iter().skip(1).filter(|class| is(class)).map(|class| class.name.clone()).collect()
}

fn list(all: &[String]) -> String {
    if all.len() <= NAMED { all.join(", ") } else { format!("{} classes", all.len()) }
}

fn rate(rate: Option<Rate>) -> String {
    rate.map_or("nothing".to_owned(), |rate| rate.to_string())
}

#[cfg(test)]
mod tests {
    use altq_control::change::{By, What};
    use altq_monitor::tree::Tree;

    use super::*;

    fn classes(described: &[(&str, u64)]) -> Classes {
        let class = |(name, rate): &(&str, u64)| Class {
            name: (*name).to_owned(),
            parent: 0,
            asked: (*rate > 0).then(|| Rate::bit_s(*rate)),
            ceiling: Some(Rate::bit_s(1_000_000)),
        };
        let tree = Tree::new(described.iter().map(class).collect()).unwrap();
        Classes { more: Vec::new(), tree }
    }

    #[test]
    fn what_changed_is_said_in_words() {
        let old = classes(&[("wan", 1_000_000), ("a", 300_000), ("b", 0)]);
        assert_eq!(of_classes(&old, &old), None);
        assert_eq!(of_classes(&old, &classes(&[("wan", 1_000_000), ("b", 0), ("a", 300_000)])), None);
        let new = classes(&[("wan", 2_000_000), ("a", 400_000), ("c", 0)]);
        let said = of_classes(&old, &new).unwrap();
        let expected = "rate 2Mbit/s, before 1Mbit/s; new: c; gone: b; guarantee: a 400kbit/s, before 300kbit/s";
        assert_eq!(said, expected);
        let nothing = classes(&[("wan", 1_000_000), ("a", 0), ("b", 0)]);
        assert_eq!(of_classes(&old, &nothing).unwrap(), "guarantee: a nothing, before 300kbit/s");
        let many = classes(&[("wan", 1_000_000), ("a", 300_000), ("b", 0), ("c", 0), ("d", 0), ("e", 0), ("f", 0)]);
        assert_eq!(of_classes(&old, &many).unwrap(), "new: 4 classes");
    }

    #[test]
    fn a_change_of_the_policy_is_said_with_its_first_lines() {
        let entry = |name: &str, lines: &[&str], more| Entry {
            number: 8,
            unix_ns: 5,
            what: What::Edited,
            by: By::default(),
            name: name.to_owned(),
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
            more,
        };
        assert_eq!(of_entry(&entry("", &[], 0)), "change 8, edited");
        let both = entry("p.altq", &["class web: delay 5ms, which is new", "rules: one more"], 0);
        let said = "change 8, edited p.altq: class web: delay 5ms, which is new; rules: one more";
        assert_eq!(of_entry(&both), said);
        let many = entry("p.altq", &["a", "b", "c", "d"], 2);
        assert_eq!(of_entry(&many), "change 8, edited p.altq: a; b; c; and 3 more");
        let long = of_entry(&entry("p.altq", &["ä".repeat(400).as_str()], 0));
        assert!(long.chars().count() == LONG && long.ends_with("ä…"), "{long}");
    }

    #[test]
    fn a_bypass_is_said_with_its_reason() {
        let link = |state: &str, reason: Option<&str>| LinkStatus {
            name: "wan".to_owned(),
            path: "nfqueue".to_owned(),
            state: state.to_owned(),
            since_s: 0,
            reason: reason.map(str::to_owned),
            drift: Vec::new(),
            set_by_clients: 0,
        };
        let (shaping, bypass) = (link("shaping", None), link(BYPASS, Some("the worker was killed")));
        assert_eq!(of_state(&shaping, &shaping), None);
        let said = "BYPASS, packets pass unshaped: the worker was killed";
        assert_eq!(of_state(&shaping, &bypass).as_deref(), Some(said));
        assert_eq!(of_state(&bypass, &shaping).as_deref(), Some("shaping"));
    }
}
