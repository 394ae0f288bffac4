//! What differs between two links, a line for each thing, for people.

use std::collections::{HashMap, HashSet};

use altq_engine::spec::{ClassId, ROOT};

use crate::policy::Link;
use crate::print::{class_words, link_words, rule_lines};

/// What differs from one link to another, a line each: the link's own words, then classes in the
/// order of the new link, classes that are gone, and rules. Empty if the links say the same.
///
/// Both are links of policies: none of their classes has an empty name.
///
/// ```
/// use altq_config::{Language, differences, parse_str};
///
/// let link = |rate: &str| {
///     let text = format!("link wan {{ rate 10Mbit/s  scheduler htb
///         class voice {{ rate {rate}  ceil 5Mbit/s }}  class rest {{ rate 4Mbit/s  default }} }}");
///     parse_str(&text, "doc.altq", Language::Native).unwrap().links.remove(0)
/// };
/// let found = differences(&link("1Mbit/s"), &link("2Mbit/s"));
/// assert!(found.len() == 1 && found[0].starts_with("class voice: "), "{found:?}");
/// assert!(differences(&link("1Mbit/s"), &link("1Mbit/s")).is_empty());
/// ```
pub fn differences(from: &Link, to: &Link) -> Vec<String> {
    let mut found = Vec::new();
    if from.device != to.device {
        found.push(format!("link {}: another device", to.name));
    }
    if from.path() != to.path() {
        found.push(format!("link {}: another path", to.name));
    }
    let words = changed(&link_words(from), &link_words(to));
    found.extend(words.map(|words| format!("link {}: {words}", to.name)));
    let named = |link: &Link| -> HashMap<String, ClassId> {
        let classes = link.classes.iter().enumerate().skip(1);
        classes.map(|(at, class)| (class.name.clone(), at as ClassId)).collect()
    };
    let (old, new) = (named(from), named(to));
    for (at, class) in to.classes.iter().enumerate().skip(1) {
        let id = at as ClassId;
        let Some(before) = old.get(&class.name).copied() else {
            found.push(format!("class {}: new, {}", class.name, described(to, id)));
            continue;
        };
        let words = |link: &Link, id| {
            let mut words = class_words(link, id);
            words.insert(0, below(link, id));
            words
        };
        let words = changed(&words(from, before), &words(to, id));
        found.extend(words.map(|words| format!("class {}: {words}", class.name)));
    }
    let gone = from.classes.iter().skip(1).filter(|class| !new.contains_key(&class.name));
    found.extend(gone.map(|class| format!("class {}: gone", class.name)));
    found.extend(rules(&rule_lines(from), &rule_lines(to)));
    found
}

/// What differs in two lists of words: what is said now, and what was said before.
fn changed(before: &[String], now: &[String]) -> Option<String> {
    let other = |list: &[String], than: &[String]| -> Vec<String> {
        let than: HashSet<&String> = than.iter().collect();
        list.iter().filter(|word| !than.contains(word)).cloned().collect()
    };
    let (less, more) = (other(before, now), other(now, before));
    match (less.is_empty(), more.is_empty()) {
        (true, true) => None,
        (true, false) => Some(format!("{}, which is new", more.join("  "))),
        (false, true) => Some(format!("no longer {}", less.join("  "))),
        (false, false) => Some(format!("{}, before {}", more.join("  "), less.join("  "))),
    }
}

fn below(link: &Link, id: ClassId) -> String {
    match link.spec.classes.get(id as usize).map(|spec| spec.parent) {
        Some(parent) if parent != ROOT => format!("below {}", link.class_name(parent)),
        _ => "below the link".to_owned(),
    }
}

fn described(link: &Link, id: ClassId) -> String {
    let mut words = vec![below(link, id)];
    words.extend(class_words(link, id));
    words.join("  ")
}

/// What differs in the rules: those that are new, those that are gone, and otherwise their order.
fn rules(before: &[String], now: &[String]) -> Vec<String> {
    if before == now {
        return Vec::new();
    }
    let counts = |list: &[String]| {
        let mut counts: HashMap<String, usize> = HashMap::new();
        list.iter().for_each(|line| *counts.entry(line.clone()).or_default() += 1);
        counts
    };
    let beyond = |list: &[String], mut than: HashMap<String, usize>| -> Vec<String> {
        let more = |line: &&String| match than.get_mut(*line) {
            Some(count) if *count > 0 => {
                *count -= 1;
                false
            }
            _ => true,
        };
        list.iter().filter(more).cloned().collect()
    };
    let (less, more) = (beyond(before, counts(now)), beyond(now, counts(before)));
    if less.is_empty() && more.is_empty() {
        return vec!["rules: another order".to_owned()];
    }
    let more = more.iter().map(|line| format!("rule {line}: new"));
    more.chain(less.iter().map(|line| format!("rule {line}: gone"))).collect()
}
