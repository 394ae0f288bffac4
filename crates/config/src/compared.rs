//! Describes for readers how two links differ: one line for each difference.

use std::collections::{HashMap, HashSet};
use std::fmt;

use altq_engine::spec::{ClassId, ROOT};

use crate::policy::{Device, Link};
use crate::print::{class_words, link_words, rule_lines};

/// A thing that differs from one link to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differs {
    /// The thing: `link wan`, `class voice`, `rule match dport 7 -> voice`, or `rules`.
    pub what: String,
    /// The settings that only the first link has; `None` if there are none.
    pub before: Option<String>,
    /// The settings that only the other link has; `None` if there are none.
    pub now: Option<String>,
    /// `before` and `now` as text, such as `rate 2Mbit/s, before rate 1Mbit/s`.
    said: String,
}

impl Differs {
    fn new(what: String, before: Option<String>, now: Option<String>, said: String) -> Differs {
        Differs { what, before, now, said }
    }
}

impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.said)
    }
}

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
    compared(from, to).iter().map(Differs::to_string).collect()
}

/// As [`differences`], with the settings of both links for each difference.
pub fn compared(from: &Link, to: &Link) -> Vec<Differs> {
    let mut found = Vec::new();
    let of_link = || format!("link {}", to.name);
    if from.device != to.device {
        let said = "another device".to_owned();
        found.push(Differs::new(of_link(), Some(device(from)), Some(device(to)), said));
    }
    if from.path() != to.path() {
        let path = |link: &Link| link.path().map(|path| format!("path {}", path.name()));
        found.push(Differs::new(of_link(), path(from), path(to), "another path".to_owned()));
    }
    found.extend(changed(of_link(), &link_words(from), &link_words(to)));
    let named = |link: &Link| -> HashMap<String, ClassId> {
        let classes = link.classes.iter().enumerate().skip(1);
        classes.map(|(at, class)| (class.name.clone(), at as ClassId)).collect()
    };
    let (old, new) = (named(from), named(to));
    for (at, class) in to.classes.iter().enumerate().skip(1) {
        let id = at as ClassId;
        let what = format!("class {}", class.name);
        let Some(before) = old.get(&class.name).copied() else {
            let words = described(to, id);
            let said = format!("new, {words}");
            found.push(Differs::new(what, None, Some(words), said));
            continue;
        };
        if same(from, before, to, id) {
            continue;
        }
        let words = |link: &Link, id| {
            let mut words = class_words(link, id);
            words.insert(0, below(link, id));
            words
        };
        found.extend(changed(what, &words(from, before), &words(to, id)));
    }
    for (at, class) in from.classes.iter().enumerate().skip(1).filter(|(_, class)| !new.contains_key(&class.name)) {
        let before = Some(described(from, at as ClassId));
        found.push(Differs::new(format!("class {}", class.name), before, None, "gone".to_owned()));
    }
    let names = from.classes.iter().map(|class| &class.name).eq(to.classes.iter().map(|class| &class.name));
    if !names || from.spec.rules != to.spec.rules {
        found.extend(rules(&rule_lines(from), &rule_lines(to)));
    }
    found
}

/// True if two classes of one name have the same words in the same place. Printing the words of
/// each class of a long policy takes much longer.
fn same(from: &Link, before: ClassId, to: &Link, now: ClassId) -> bool {
    let (Some(old), Some(new)) = (from.spec.classes.get(before as usize), to.spec.classes.get(now as usize)) else {
        return false;
    };
    let is_default = |link: &Link, id| link.spec.default == Some(id);
    let reserves = |link: &Link, id| link.reservations.as_ref().is_some_and(|reserved| reserved.class == id);
    (&old.settings, &old.queue, &old.scheduler) == (&new.settings, &new.queue, &new.scheduler)
        && from.class_name(old.parent) == to.class_name(new.parent)
        && is_default(from, before) == is_default(to, now)
        && !reserves(from, before)
        && !reserves(to, now)
}

/// The words of a link's device.
fn device(link: &Link) -> String {
    match &link.device {
        Some(Device::Interface { name, ingress: false }) => format!("device {name}"),
        Some(Device::Interface { name, ingress: true }) => format!("device {name} ingress"),
        Some(Device::Bridge { from, to }) => format!("device bridge {from} {to}"),
        None => "no device".to_owned(),
    }
}

/// Compares two lists of settings. `None` if they hold the same ones.
fn changed(what: String, before: &[String], now: &[String]) -> Option<Differs> {
    let other = |list: &[String], than: &[String]| -> Vec<String> {
        let than: HashSet<&String> = than.iter().collect();
        list.iter().filter(|word| !than.contains(word)).cloned().collect()
    };
    let joined = |words: Vec<String>| (!words.is_empty()).then(|| words.join("  "));
    let (less, more) = (joined(other(before, now)), joined(other(now, before)));
    let said = match (&less, &more) {
        (None, None) => return None,
        (None, Some(more)) => format!("{more}, which is new"),
        (Some(less), None) => format!("no longer {less}"),
        (Some(less), Some(more)) => format!("{more}, before {less}"),
    };
    Some(Differs::new(what, less, more, said))
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
fn rules(before: &[String], now: &[String]) -> Vec<Differs> {
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
        let (order, other) = ("one order".to_owned(), "another order".to_owned());
        return vec![Differs::new("rules".to_owned(), Some(order), Some(other.clone()), other)];
    }
    let new = |line: String| Differs::new(format!("rule {line}"), None, Some(line), "new".to_owned());
    let gone = |line: String| Differs::new(format!("rule {line}"), Some(line), None, "gone".to_owned());
    more.into_iter().map(new).chain(less.into_iter().map(gone)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Language, parse_str};

    fn link(text: &str) -> Link {
        let policy = parse_str(text, "test.altq", Language::Native).unwrap_or_else(|error| panic!("{error}"));
        policy.links.into_iter().next().unwrap()
    }

    #[test]
    fn what_either_link_says_stands_beside_the_other() {
        let before = link(
            "link wan { device a  rate 10Mbit/s  scheduler htb
                class voice { rate 1Mbit/s }  class old { rate 1Mbit/s }  class rest { rate 4Mbit/s  default }
                match dport 7 -> voice  match dport 8 -> voice }",
        );
        let now = link(
            "link wan { device a ingress  rate 10Mbit/s  scheduler htb
                class voice { rate 2Mbit/s }  class new { rate 1Mbit/s }  class rest { rate 4Mbit/s  default }
                match dport 8 -> voice  match dport 9 -> new }",
        );
        let found = compared(&before, &now);
        let said = |at: usize| {
            let Differs { what, before, now, .. } = &found[at];
            [what.as_str(), before.as_deref().unwrap_or("-"), now.as_deref().unwrap_or("-")]
        };
        assert_eq!(said(0), ["link wan", "device a", "device a ingress"]);
        assert_eq!(said(1), ["class voice", "rate 1Mbit/s", "rate 2Mbit/s"]);
        let (new, old) = (said(2), said(3));
        assert!(new[..2] == ["class new", "-"] && new[2].starts_with("below the link  rate 1Mbit/s"), "{new:?}");
        assert!(old[0] == "class old" && old[1].starts_with("below the link  rate 1Mbit/s") && old[2] == "-");
        assert_eq!(said(4), ["rule match dport 9 -> new", "-", "match dport 9 -> new"]);
        assert_eq!(said(5), ["rule match dport 7 -> voice", "match dport 7 -> voice", "-"]);
        assert_eq!(found.len(), 6);
        assert_eq!(differences(&before, &now)[1], "class voice: rate 2Mbit/s, before rate 1Mbit/s");
    }
}
