//! The requests that make a tree, in order, and what differs between a tree and what the kernel
//! shows.

use std::collections::HashMap;

use crate::handle::Handle;
use crate::message::{self, Found};
use crate::tree::Tree;

/// The requests that make a tree on an interface: qdiscs and classes, parents first, then filters.
pub fn requests(tree: &Tree, device: u32) -> Vec<Vec<u8>> {
    let mut requests = Vec::new();
    for qdisc in &tree.qdiscs {
        requests.push(message::new_qdisc(device, qdisc, false));
        requests.extend(qdisc.classes.iter().filter_map(|class| message::new_class(device, class)));
    }
    for qdisc in &tree.qdiscs {
        requests.extend(qdisc.filters.iter().map(|filter| message::new_filter(device, filter)));
    }
    requests
}

/// What the kernel shows of an interface.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// Its qdiscs.
    pub qdiscs: Vec<Found>,
    /// Its classes.
    pub classes: Vec<Found>,
    /// The filters of its qdiscs.
    pub filters: Vec<Found>,
}

/// What differs between a tree and what the kernel shows, a sentence each; nothing if they are the
/// same. `name` gives the name of a class of the policy.
///
/// Of what the kernel shows only that counts which stands in a qdisc or class of the tree.
pub fn differences(tree: &Tree, device: u32, shown: &Shown, name: &dyn Fn(u32) -> String) -> Vec<String> {
    let mut lines = Vec::new();
    let ours = |major: u16| tree.qdiscs.iter().any(|qdisc| qdisc.handle.major() == major);
    let mut qdiscs: HashMap<Handle, &Found> = HashMap::new();
    for found in shown.qdiscs.iter().filter(|found| ours(found.handle.major())) {
        qdiscs.insert(found.handle, found);
    }
    let mut classes: HashMap<Handle, &Found> = HashMap::new();
    for found in shown.classes.iter().filter(|found| ours(found.handle.major())) {
        classes.insert(found.handle, found);
    }
    for qdisc in &tree.qdiscs {
        let what = match qdisc.holds {
            Some(class) => format!("the queue of `{}` ({} {})", name(class), qdisc.words.kind(), qdisc.handle),
            None => format!("the qdisc {} {}", qdisc.words.kind(), qdisc.handle),
        };
        compare(
            &what,
            &message::new_qdisc(device, qdisc, false),
            qdiscs.get(&qdisc.handle).copied(),
            false,
            &mut lines,
        );
        for class in &qdisc.classes {
            let Some(wanted) = message::new_class(device, class) else { continue };
            let what = format!("the class `{}` ({})", name(class.id), class.handle);
            compare(&what, &wanted, classes.remove(&class.handle), true, &mut lines);
        }
        // The bands of prio and the flows of other queues are classes too, which nobody made.
        // A class of the number 0 is the qdisc itself, which hfsc shows.
        let made = qdisc.classes.iter().any(|class| class.words.is_some());
        let own = |handle: Handle| handle.major() == qdisc.handle.major() && handle.minor() != 0;
        let mut more: Vec<&Handle> = classes.keys().filter(|handle| made && own(**handle)).collect();
        more.sort();
        lines.extend(more.iter().map(|handle| format!("the class {handle} is not of this policy")));
        filters(qdisc.handle, &qdisc.filters, device, shown, &mut lines);
    }
    lines
}

/// Compares a qdisc or a class with what was asked for.
fn compare(what: &str, wanted: &[u8], found: Option<&Found>, class: bool, lines: &mut Vec<String>) {
    let Some((_, wanted)) = message::sent(wanted) else { return };
    let Some(found) = found else {
        lines.push(format!("{what} is gone"));
        return;
    };
    // The kernel shows a class below its qdisc as one of the root.
    let top = class && wanted.parent.minor() == 0;
    if found.kind != wanted.kind {
        lines.push(format!("{what} is a {}", found.kind));
    } else if found.parent != wanted.parent && !(top && found.parent == Handle::ROOT) {
        lines.push(format!("{what} stands in {}, not in {}", found.parent, wanted.parent));
    } else if !message::same(&wanted.kind, class, &wanted.options, &found.options) {
        lines.push(format!("{what} has other words"));
    }
}

/// Compares the filters of a qdisc with those that were asked for: the same, in the same order.
fn filters(qdisc: Handle, wanted: &[crate::tree::Filter], device: u32, shown: &Shown, lines: &mut Vec<String>) {
    let wanted: Vec<Found> = wanted
        .iter()
        .filter_map(|filter| message::sent(&message::new_filter(device, filter)))
        .map(|(_, found)| found)
        .collect();
    // A dump has an entry for each number and for each table, which are no filters.
    let mut found: Vec<&Found> = shown
        .filters
        .iter()
        .filter(|found| found.parent == qdisc && message::leads(&found.kind, &found.options))
        .collect();
    // Within a number the kernel keeps the order of u32. Other filters have none there.
    found.sort_by_key(|found| found.info >> 16);
    let mut left: Vec<Option<&Found>> = found.into_iter().map(Some).collect();
    for (at, wanted) in wanted.iter().enumerate() {
        let same = |found: &Found| {
            found.info == wanted.info
                && found.kind == wanted.kind
                && message::same_filter(&wanted.kind, &wanted.options, &found.options)
        };
        match left.iter_mut().find(|found| found.is_some_and(same)) {
            Some(found) => *found = None,
            None => lines.push(format!("filter {} of {qdisc} is gone or has other words", at + 1)),
        }
    }
    let more = left.iter().flatten().count();
    if more > 0 {
        lines.push(format!("{qdisc} has {more} filters that are not of this policy"));
    }
}
