//! The requests that make a tree, in order, and the differences between a tree and what the kernel
//! shows.

use std::collections::{HashMap, HashSet};

use altq_engine::spec::ClassId;

use crate::handle::Handle;
use crate::message::{self, Found};
use crate::tree::{Class, Match, Qdisc, QdiscWords, Tree};

/// The requests that make the qdiscs and classes of a tree on an interface, parents first. The
/// tree's size table needs a request of its own.
pub fn requests(tree: &Tree, device: u32) -> Vec<Vec<u8>> {
    let mut requests = Vec::new();
    for qdisc in &tree.qdiscs {
        requests.push(message::new_qdisc(device, qdisc));
        requests.extend(qdisc.classes.iter().filter_map(|class| message::new_class(device, class)));
    }
    requests
}

/// The requests that make the filters of a tree. They come last, so that no packet is sent to a
/// class that does not exist yet.
pub fn filter_requests(tree: &Tree, device: u32) -> Vec<Vec<u8>> {
    let mut requests = Vec::new();
    let mut made = HashSet::new();
    for filter in tree.qdiscs.iter().flat_map(|qdisc| &qdisc.filters) {
        if made.insert((filter.parent, filter.table)) {
            requests.extend(message::new_table(device, filter));
        }
        requests.push(message::new_filter(device, filter));
    }
    requests
}

/// What the kernel shows for an interface.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// Its qdiscs.
    pub qdiscs: Vec<Found>,
    /// Its classes.
    pub classes: Vec<Found>,
    /// The filters of its qdiscs.
    pub filters: Vec<Found>,
}

/// A difference.
enum Difference<'a> {
    /// A class is in its place but has other words: the sentence about it, what was wanted, and
    /// what the kernel shows.
    Words(String, &'a Class, &'a Found),
    /// Anything else, as a sentence.
    Other(String),
}

/// The differences between a tree and what the kernel shows, one sentence each; an empty list if
/// there are none. `name` returns the name of a class of the policy.
///
/// Qdiscs, classes and filters outside of the tree do not count.
pub fn differences(tree: &Tree, device: u32, shown: &Shown, name: &dyn Fn(ClassId) -> String) -> Vec<String> {
    let line = |found: Difference<'_>| match found {
        Difference::Words(line, ..) | Difference::Other(line) => line,
    };
    compared(tree, device, shown, name).into_iter().map(line).collect()
}

/// A change of a class, and the request that undoes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassChange {
    /// The request that gives the class its new words.
    pub request: Vec<u8>,
    /// The request that restores the words that it has now.
    pub undo: Vec<u8>,
}

/// The changes of classes that turn what the kernel shows into a tree. `None` if changes of classes
/// are not enough: other qdiscs, classes or filters are needed, a word that the kernel sets only in
/// new classes, or the table of a RED, which depends on its class's rate and is not shown by the
/// kernel.
pub fn class_changes(tree: &Tree, device: u32, shown: &Shown) -> Option<Vec<ClassChange>> {
    let change = |found: Difference<'_>| match found {
        Difference::Other(_) => None,
        Difference::Words(_, class, found) => {
            let request = message::change_class(device, class)?;
            let (_, wanted) = message::sent(&request)?;
            let can = message::changeable(&wanted.kind, &wanted.options, &found.options);
            can.then(|| ClassChange { request, undo: message::restore_class(found) })
        }
    };
    let changes: Option<Vec<ClassChange>> =
        compared(tree, device, shown, &|_| String::new()).into_iter().map(change).collect();
    let tables = tree.qdiscs.iter().any(|qdisc| matches!(qdisc.words, QdiscWords::Red(_)));
    changes.filter(|changes| changes.is_empty() || !tables)
}

fn compared<'a>(
    tree: &'a Tree,
    device: u32,
    shown: &'a Shown,
    name: &dyn Fn(ClassId) -> String,
) -> Vec<Difference<'a>> {
    let mut found = Vec::new();
    let qdiscs: HashMap<Handle, &Found> = shown.qdiscs.iter().map(|found| (found.handle, found)).collect();
    // The classes that the kernel shows, by qdisc and handle.
    let mut classes: HashMap<u16, HashMap<Handle, &'a Found>> = HashMap::new();
    for class in &shown.classes {
        classes.entry(class.handle.major()).or_default().insert(class.handle, class);
    }
    let mut filters: HashMap<Handle, Vec<&Found>> = HashMap::new();
    // A dump also has an entry for each priority and for each hash table, which are not filters.
    for filter in shown.filters.iter().filter(|found| message::leads(&found.kind, &found.options)) {
        filters.entry(filter.parent).or_default().push(filter);
    }
    for qdisc in &tree.qdiscs {
        let what = match qdisc.holds {
            Some(class) => format!("the queue of `{}` ({} {})", name(class), qdisc.words.kind(), qdisc.handle),
            None => format!("the qdisc {} {}", qdisc.words.kind(), qdisc.handle),
        };
        let there = qdiscs.get(&qdisc.handle).copied();
        match compare(&message::new_qdisc(device, qdisc), there, false) {
            Compared::Same => {}
            Compared::OtherWords(_) => found.push(Difference::Other(format!("{what} has other words"))),
            Compared::Other(why) => found.push(Difference::Other(format!("{what} {why}"))),
        }
        let mut own = classes.remove(&qdisc.handle.major()).unwrap_or_default();
        for class in &qdisc.classes {
            let Some(wanted) = message::new_class(device, class) else { continue };
            let what = format!("the class `{}` ({})", name(class.id), class.handle);
            match compare(&wanted, own.remove(&class.handle), true) {
                Compared::Same => {}
                Compared::OtherWords(there) => {
                    found.push(Difference::Words(format!("{what} has other words"), class, there));
                }
                Compared::Other(why) => found.push(Difference::Other(format!("{what} {why}"))),
            }
        }
        // The kernel shows as classes also the bands of prio and the flows of other queues, which
        // nobody made, and for hfsc the qdisc itself, with the minor number 0.
        let made = qdisc.classes.iter().any(|class| class.words.is_some());
        let mut more: Vec<&Handle> = own.keys().filter(|handle| made && handle.minor() != 0).collect();
        more.sort();
        found.extend(more.iter().map(|handle| Difference::Other(format!("the class {handle} is not of this policy"))));
        let there = filters.remove(&qdisc.handle).unwrap_or_default();
        found.extend(compare_filters(qdisc, device, &there).into_iter().map(Difference::Other));
    }
    found
}

/// How a qdisc or class differs from what was wanted.
enum Compared<'a> {
    Same,
    OtherWords(&'a Found),
    /// The end of a sentence about it.
    Other(String),
}

fn compare<'a>(wanted: &[u8], found: Option<&'a Found>, class: bool) -> Compared<'a> {
    let Some((_, wanted)) = message::sent(wanted) else { return Compared::Same };
    let Some(found) = found else { return Compared::Other("is gone".to_owned()) };
    // The kernel shows a class that is directly below its qdisc as one of the root.
    let top = class && wanted.parent.minor() == 0;
    if found.kind != wanted.kind {
        Compared::Other(format!("is a {}", found.kind))
    } else if found.parent != wanted.parent && !(top && found.parent == Handle::ROOT) {
        Compared::Other(format!("stands in {}, not in {}", found.parent, wanted.parent))
    } else if message::same(&wanted.kind, class, &wanted.options, &found.options) {
        Compared::Same
    } else {
        Compared::OtherWords(found)
    }
}

/// What identifies a group of filters in a qdisc: priority and protocol, for fw the mark, and for
/// u32 the table.
fn place(of: &Found) -> (u32, u32) {
    let mark = if of.kind == "fw" { of.handle.0 } else { 0 };
    (of.info, mark | u32::from(message::table_of(&of.kind, &of.options)))
}

/// Compares the filters of a qdisc with those that were wanted. Filters of one priority must be in
/// the same order, unless they exclude each other.
fn compare_filters(qdisc: &Qdisc, device: u32, there: &[&Found]) -> Vec<String> {
    let (mut lines, mut more) = (Vec::new(), 0);
    let mut left: HashMap<(u32, u32), Vec<&Found>> = HashMap::new();
    // In reverse order, because they are taken from the end below.
    for found in there.iter().rev() {
        left.entry(place(found)).or_default().push(found);
    }
    for (at, filter) in qdisc.filters.iter().enumerate() {
        let Some((_, wanted)) = message::sent(&message::new_filter(device, filter)) else { continue };
        let same = |found: &&Found| {
            found.kind == wanted.kind && message::same_filter(&wanted.kind, &wanted.options, &found.options)
        };
        // The kernel shows u32 filters in their order, and most others as well.
        let group = left.get_mut(&place(&wanted));
        let found = group.and_then(|group| Some((group.iter().rposition(same)?, group)));
        match found {
            // Filters before this one in the group are not of this policy.
            Some((place, group)) if matches!(filter.matches, Match::U32 { .. }) => {
                more += group.len() - 1 - place;
                group.truncate(place);
            }
            Some((place, group)) => drop(group.remove(place)),
            None => lines.push(format!("filter {} of {} is gone or has other words", at + 1, qdisc.handle)),
        }
    }
    more += left.values().map(Vec::len).sum::<usize>();
    if more > 0 {
        lines.push(format!("{} has {more} filters that are not of this policy", qdisc.handle));
    }
    lines
}

#[cfg(test)]
mod tests {
    use altq_config::{Language, parse_str};

    use super::*;
    use crate::message::sent;
    use crate::{Host, Place, translate};

    /// A tree, and what the kernel shows if everything is as wanted.
    fn tree() -> (Tree, Shown) {
        let text = "link wan { device eth0  rate 8Mbit/s  scheduler htb
            class a { rate 1Mbit/s }  class b { rate 7Mbit/s  default }
            match length 0-99 -> a  match length 100-199 -> b  match length 200-299 -> a
            match mark 3 -> a  match mark 4 -> b }";
        let policy = parse_str(text, "test.altq", Language::Native).unwrap_or_else(|error| panic!("{error}"));
        let tree = translate(&policy.links[0], &Host::default(), Place::ROOT).unwrap();
        let mut shown = Shown::default();
        for request in requests(&tree, 7).into_iter().chain(filter_requests(&tree, 7)) {
            let (kind, found) = sent(&request).unwrap();
            match kind {
                message::RTM_NEWQDISC => shown.qdiscs.push(found),
                message::RTM_NEWTCLASS => shown.classes.push(found),
                _ => shown.filters.push(found),
            }
        }
        (tree, shown)
    }

    fn lines(tree: &Tree, shown: &Shown) -> Vec<String> {
        differences(tree, 7, shown, &|class| format!("class{class}"))
    }

    #[test]
    fn what_is_as_it_was_asked_for_does_not_differ() {
        let (tree, mut shown) = tree();
        assert_eq!(lines(&tree, &shown), Vec::<String>::new());
        assert_eq!(class_changes(&tree, 7, &shown), Some(Vec::new()));
        // Marks exclude each other, and the kernel shows them in an order of its own.
        let mark = |found: &Found| found.kind == "fw";
        let first = shown.filters.iter().position(mark).unwrap();
        shown.filters.swap(first, first + 1);
        assert_eq!(lines(&tree, &shown), Vec::<String>::new());
    }

    /// u32 filters are tried in order. Cases: one is missing, there is one more, two are exchanged.
    #[test]
    fn filters_differ_by_words_and_by_order() {
        let (tree, shown) = tree();
        assert!(shown.filters.iter().filter(|found| found.kind == "u32").count() > 6);
        let mut less = shown.clone();
        less.filters.remove(0);
        assert_eq!(lines(&tree, &less), ["filter 1 of 1: is gone or has other words"]);
        let mut more = shown.clone();
        more.filters.insert(0, shown.filters[1].clone());
        assert_eq!(lines(&tree, &more), ["1: has 1 filters that are not of this policy"]);
        let mut exchanged = shown.clone();
        exchanged.filters.swap(0, 1);
        assert!(!lines(&tree, &exchanged).is_empty());
        let mut other = shown;
        let mark = other.filters.iter_mut().find(|found| found.kind == "fw").unwrap();
        mark.handle = Handle(99);
        assert_eq!(lines(&tree, &other).len(), 2);
    }

    #[test]
    fn a_class_that_differs_is_changed_and_others_are_named() {
        let (tree, mut shown) = tree();
        let class = shown.classes.iter_mut().find(|found| found.handle == Handle::new(1, 1)).unwrap();
        // After the attribute's header come cells, link layer, overhead, alignment and mpu, then
        // the rate.
        class.options[4 + 8] ^= 1;
        assert_eq!(lines(&tree, &shown), ["the class `class1` (1:1) has other words"]);
        let changes = class_changes(&tree, 7, &shown).unwrap();
        assert_eq!(changes.len(), 1);
        let (_, wanted) = sent(&changes[0].request).unwrap();
        let (_, undone) = sent(&changes[0].undo).unwrap();
        let there = shown.classes.iter().find(|found| found.handle == Handle::new(1, 1)).unwrap();
        assert_eq!((wanted.handle, undone.handle), (there.handle, there.handle));
        assert!(undone.options == there.options && wanted.options != there.options);
        let more = Found { handle: Handle::new(1, 77), ..there.clone() };
        shown.classes.push(more);
        assert_eq!(lines(&tree, &shown).len(), 2);
        assert_eq!(class_changes(&tree, 7, &shown), None);
    }
}
