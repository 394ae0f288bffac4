//! Builds a tree beside the existing one, and switches to it.

use std::collections::HashMap;

use altq_config::Link;
use altq_engine::spec::ClassId;
use altq_kernel::message::{self, Counters, Message};
use altq_kernel::plan::{self, ClassChange, Shown};
use altq_kernel::{Handle, Host, Tree, translate};

use super::switch::{self, Side, Switch};
use super::wire::{Ask, Refused};
use super::{asked, filters, qdiscs, refused};
use crate::error::Error;

/// How a link was set up on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It was there already.
    Stood,
    /// So many classes got other words. Everything else stayed, with its counters.
    Changed(usize),
    /// Its tree was built.
    Built,
}

/// Refuses a link that the kernel cannot execute.
///
/// # Errors
/// [`Error::Link`].
pub fn check(link: &Link, host: &Host) -> Result<(), Error> {
    tree(link, host, Side::One).map(drop)
}

/// Sets up a link on a device, in place of what altq set up there before.
///
/// # Errors
/// As [`super::set_up`].
pub fn set_up(ask: &mut dyn Ask, device: u32, name: &str, link: &Link, host: &Host) -> Result<Done, Error> {
    let mut now = switch::read(ask, device, name)?;
    if let Some(switch) = now
        && !switch::whole(ask, device, switch.kind)?
    {
        switch::remove(ask, device)?;
        now = None;
    }
    if let Some(switch) = now
        && let Some(done) = in_place(ask, device, link, host, &switch)?
    {
        return Ok(done);
    }
    // A new switch leads to its first side, which does not shape, until the tree in the second side
    // is complete.
    let before = match now {
        Some(switch) => switch,
        None => switch::make(ask, device)?,
    };
    let spare = before.side.other();
    let done = build(ask, device, link, host, spare).and_then(|tree| {
        let to = Switch { side: spare, sizes: tree.sizes, ..before };
        switch::turn(ask, device, &to)?;
        if now.is_some() { clear(ask, device, before.side) } else { Ok(()) }
    });
    let Err(error) = done else { return Ok(Done::Built) };
    let undone = if now.is_some() { back(ask, device, &before) } else { switch::remove(ask, device) };
    match undone {
        Ok(()) => Err(error),
        Err(undone) => Err(Error::Kernel(format!("{error}; and {undone}"))),
    }
}

/// Turns the switch back to the old tree, and removes the new one.
fn back(ask: &mut dyn Ask, device: u32, before: &Switch) -> Result<(), Error> {
    switch::turn(ask, device, before)?;
    clear(ask, device, before.side.other())
}

/// Removes the tree. False if there was none.
///
/// # Errors
/// As [`super::take_away`].
pub fn take_away(ask: &mut dyn Ask, device: u32, name: &str) -> Result<bool, Error> {
    if switch::read(ask, device, name)?.is_none() {
        return Ok(false);
    }
    switch::remove(ask, device).map(|()| true)
}

/// Changes classes in place if nothing else differs from the existing tree. `None` if more differs.
fn in_place(ask: &mut dyn Ask, device: u32, link: &Link, host: &Host, now: &Switch) -> Result<Option<Done>, Error> {
    let (tree, shown) = standing(ask, device, link, host, now)?;
    if tree.sizes != now.sizes {
        return Ok(None);
    }
    let Some(changes) = plan::class_changes(&tree, device, &shown) else { return Ok(None) };
    for (at, change) in changes.iter().enumerate() {
        if let Err(error) = asked(ask, &change.request, "to change a class") {
            // The failed change is undone too, because it may have been made and only its answer
            // lost.
            return Err(undone(ask, &changes[..=at], error));
        }
    }
    if !changes.is_empty() {
        let found = shown_of(ask, device, &tree).and_then(|shown| same(&tree, device, link, &shown));
        if let Err(error) = found {
            return Err(undone(ask, &changes, error));
        }
    }
    Ok(Some(if changes.is_empty() { Done::Stood } else { Done::Changed(changes.len()) }))
}

/// Undoes changes, and returns the error that is the reason.
fn undone(ask: &mut dyn Ask, changes: &[ClassChange], error: Error) -> Error {
    for change in changes.iter().rev() {
        if let Err(more) = asked(ask, &change.undo, "to undo the change of a class") {
            return Error::Kernel(format!("{error}; and {more}"));
        }
    }
    error
}

/// Builds a tree on a side, and compares it with what the kernel then shows. If the kernel lacks a
/// classifier that another one can replace, the tree is built again with the other one.
fn build(ask: &mut dyn Ask, device: u32, link: &Link, host: &Host, side: Side) -> Result<Tree, Error> {
    let mut host = *host;
    let mut made = false;
    'again: loop {
        let tree = tree(link, &host, side)?;
        if !made {
            clear(ask, device, side)?;
            for request in plan::requests(&tree, device) {
                ask.ask(&request).map_err(|error| refused_of(&request, error))?;
            }
        }
        for (at, request) in plan::filter_requests(&tree, device).iter().enumerate() {
            let Err(error) = ask.ask(request) else { continue };
            let kind = message::sent(request).map(|(_, found)| found.kind).unwrap_or_default();
            let less = host.without(&kind).filter(|less| lacks(&error) && check(link, less).is_ok());
            let Some(less) = less else { return Err(refused_of(request, error)) };
            host = less;
            // Qdiscs and classes are the same, so they stay if no filter leads to them yet.
            made = at == 0;
            continue 'again;
        }
        let shown = shown_of(ask, device, &tree)?;
        same(&tree, device, link, &shown)?;
        return Ok(tree);
    }
}

/// The error of a request about a part of a tree.
fn refused_of(request: &[u8], error: Refused) -> Error {
    let (kind, found) = message::sent(request).unwrap_or_default();
    let what = match kind {
        message::RTM_NEWQDISC => format!("for the qdisc `{}`", found.kind),
        message::RTM_NEWTCLASS => format!("for the class {} of `{}`", found.handle, found.kind),
        _ => format!("for a filter `{}`", found.kind),
    };
    refused(&what, error)
}

/// Whether the kernel does not know what it was asked for.
fn lacks(error: &Refused) -> bool {
    error.error.raw_os_error() == Some(libc::ENOENT)
}

/// Checks that the kernel shows the tree as it was asked for.
fn same(tree: &Tree, device: u32, link: &Link, shown: &Shown) -> Result<(), Error> {
    let differ = plan::differences(tree, device, shown, &|class| link.class_name(class).to_owned());
    match differ.first() {
        None => Ok(()),
        Some(first) => Err(Error::Kernel(format!(
            "the kernel shows something else than it was asked for: {first}{}",
            if differ.len() > 1 { format!(", and {} more", differ.len() - 1) } else { String::new() }
        ))),
    }
}

/// Removes what is on a side: an old tree, or a part that a process left that was killed while it
/// built one.
fn clear(ask: &mut dyn Ask, device: u32, side: Side) -> Result<(), Error> {
    let Some(handle) = on(ask, device, side)? else { return Ok(()) };
    let gone = message::delete_qdisc(device, side.place().parent, handle);
    let done = asked(ask, &gone, &format!("to take the qdisc {handle} away"));
    if done.is_err() && on(ask, device, side)?.is_none() {
        // The kernel has done it, but its answer was lost.
        return Ok(());
    }
    done.map(drop)
}

/// The handle of the qdisc on a side.
fn on(ask: &mut dyn Ask, device: u32, side: Side) -> Result<Option<Handle>, Error> {
    let parent = side.place().parent;
    let found = qdiscs(ask, device)?;
    let found = found.into_iter().find(|found| found.parent == parent && found.handle != Handle::default());
    Ok(found.map(|found| found.handle))
}

fn tree(link: &Link, host: &Host, side: Side) -> Result<Tree, Error> {
    translate(link, host, side.place()).map_err(|errors| {
        let first = errors.first().map_or("the kernel cannot keep it", |error| error.message.as_str());
        Error::Link(format!("link `{}`: {first}", link.name))
    })
}

/// The qdiscs and classes that the kernel shows of a device.
fn without_filters(ask: &mut dyn Ask, device: u32) -> Result<Shown, Error> {
    let mut shown = Shown { qdiscs: qdiscs(ask, device)?, ..Shown::default() };
    for found in asked(ask, &message::get_classes(device), "for its classes")? {
        if let Message::Class(found) = found
            && found.device == device
        {
            shown.classes.push(found);
        }
    }
    Ok(shown)
}

/// All that the kernel shows of the qdiscs of a tree.
fn shown_of(ask: &mut dyn Ask, device: u32, tree: &Tree) -> Result<Shown, Error> {
    let mut shown = without_filters(ask, device)?;
    let there: Vec<Handle> = shown.qdiscs.iter().map(|found| found.handle).collect();
    for qdisc in tree.qdiscs.iter().filter(|qdisc| !qdisc.classes.is_empty() && there.contains(&qdisc.handle)) {
        shown.filters.append(&mut filters(ask, device, qdisc.handle)?);
    }
    Ok(shown)
}

/// What the kernel shows of a link, and the tree of the link that differs least from it. There are
/// several possible trees, depending on the kernel's classifiers.
fn standing(ask: &mut dyn Ask, device: u32, link: &Link, host: &Host, now: &Switch) -> Result<(Tree, Shown), Error> {
    let first = tree(link, host, now.side)?;
    let shown = shown_of(ask, device, &first)?;
    let differ = |tree: &Tree| plan::differences(tree, device, &shown, &|_| String::new()).len();
    let mut best = (differ(&first), first);
    for variant in host.variants().iter().skip(1) {
        if best.0 == 0 {
            break;
        }
        // Without a classifier the link may be impossible.
        let Ok(tree) = tree(link, variant, now.side) else { continue };
        let differs = differ(&tree);
        if differs < best.0 {
            best = (differs, tree);
        }
    }
    Ok((best.1, shown))
}

/// What differs between a link and its device, one sentence each.
///
/// # Errors
/// [`Error::Kernel`] if the kernel does not show it.
pub fn drift(ask: &mut dyn Ask, device: u32, name: &str, link: &Link, host: &Host) -> Result<Vec<String>, Error> {
    let Some(now) = switch::read(ask, device, name)? else {
        return Ok(vec![format!("{name} has no qdiscs of altq's")]);
    };
    let (tree, shown) = standing(ask, device, link, host, &now)?;
    let mut lines = plan::differences(&tree, device, &shown, &|class| link.class_name(class).to_owned());
    if tree.sizes != now.sizes {
        lines.push("the overhead is another one".to_owned());
    }
    Ok(lines)
}

/// The counters of a link's classes.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// By class number, the counters of each class. Those of a leaf are of its queue, except what
    /// the class itself borrowed.
    pub classes: Vec<(ClassId, Counters)>,
    /// Whether the kernel's bytes include the link's overhead, because there is a size table.
    pub with_overhead: bool,
    /// Without a size table: the bytes of the header below layer 3 that the kernel's bytes include.
    pub header: u32,
}

/// The counters of each class of a link.
///
/// # Errors
/// [`Error::Kernel`] if the kernel does not show it, or nothing is set up.
pub fn counters(ask: &mut dyn Ask, device: u32, name: &str, link: &Link, host: &Host) -> Result<Counted, Error> {
    let Some(now) = switch::read(ask, device, name)? else {
        return Err(Error::Kernel(format!("{name} has no qdiscs of altq's")));
    };
    let tree = tree(link, host, now.side)?;
    let shown = without_filters(ask, device)?;
    let classes: HashMap<Handle, Counters> = shown.classes.iter().map(|found| (found.handle, found.counters)).collect();
    let queues: HashMap<Handle, Counters> = shown.qdiscs.iter().map(|found| (found.handle, found.counters)).collect();
    let mut counted: HashMap<ClassId, Counters> = HashMap::new();
    for class in tree.qdiscs.iter().flat_map(|qdisc| &qdisc.classes) {
        counted.insert(class.id, classes.get(&class.handle).copied().unwrap_or_default());
    }
    for qdisc in &tree.qdiscs {
        if let (Some(id), Some(found)) = (qdisc.holds, queues.get(&qdisc.handle)) {
            let Counters { borrowed, overlimits, .. } = counted.get(&id).copied().unwrap_or_default();
            counted.insert(id, Counters { borrowed, overlimits, ..*found });
        }
    }
    let mut classes: Vec<(ClassId, Counters)> = counted.into_iter().collect();
    classes.sort_by_key(|(class, _)| *class);
    Ok(Counted { classes, with_overhead: tree.sizes.is_some(), header: host.header })
}

#[cfg(test)]
mod tests;
