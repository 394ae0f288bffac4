//! The switch at the root of a device, which sends all packets to one of two trees.
//!
//! It is a prio with two bands and no filters. If the kernel has no prio, it is an htb with two
//! classes, whose rates are far above that of any device, and one filter, which leads to the second
//! class while it exists. One request turns the switch. It also has the size table of the tree to
//! which it leads, because the kernel allows size tables only at the root.

use altq_kernel::message::{self, Found, Message};
use altq_kernel::{
    Class, ClassWords, Filter, Handle, Key, Match, Place, Protocol, Qdisc, QdiscWords, SizeTable, Target,
};

use super::wire::Ask;
use super::{asked, filters, qdiscs};
use crate::error::Error;

/// The handle of the switch, by which altq recognises its own qdiscs.
pub const SWITCH: Handle = Handle::new(0x0a17, 0);
/// Priority of the filter of an htb, which leads to the second class.
const NUMBER: u16 = 1;
/// Rate of the classes of an htb, bytes a second: 1 Tbit/s. Their burst, bytes, is what passes in
/// 134 µs.
const RATE: u64 = 125_000_000_000;
const BURST: u64 = 1 << 24;

/// A side of the switch, which can have a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The first side.
    One,
    /// The second side.
    Two,
}

impl Side {
    /// The other side.
    pub fn other(self) -> Side {
        match self {
            Side::One => Side::Two,
            Side::Two => Side::One,
        }
    }

    /// The class of the switch, and the first handle of a tree in it. The handles of the two sides
    /// are different.
    pub fn place(self) -> Place {
        match self {
            Side::One => Place { parent: Handle::new(SWITCH.major(), 1), first: 0x1000 },
            Side::Two => Place { parent: Handle::new(SWITCH.major(), 2), first: 0x4800 },
        }
    }
}

/// The kind of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A prio.
    Prio,
    /// An htb.
    Htb,
}

/// A switch, and where it leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// Its kind.
    pub kind: Kind,
    /// The side to which it leads.
    pub side: Side,
    /// Its size table.
    pub sizes: Option<SizeTable>,
}

/// The qdisc of a switch that leads to a side. In an htb the filter decides where it leads.
fn qdisc(kind: Kind, side: Side) -> Qdisc {
    let words = match kind {
        Kind::Prio => QdiscWords::Prio { bands: 2, default: if side == Side::One { 0 } else { 1 } },
        Kind::Htb => QdiscWords::Htb { default: Side::One.place().parent.minor() },
    };
    Qdisc { handle: SWITCH, parent: Handle::ROOT, words, classes: Vec::new(), filters: Vec::new(), holds: None }
}

/// A class of an htb.
fn class(side: Side) -> Class {
    let words = ClassWords::Htb {
        rate: RATE,
        ceil: RATE,
        burst: BURST,
        cburst: BURST,
        prio: 0,
        quantum: 200_000,
        overhead: 0,
        mpu: 0,
        atm: false,
    };
    Class { handle: side.place().parent, parent: SWITCH, words: Some(words), id: 0 }
}

/// The filter of an htb.
fn filter() -> Filter {
    let keys = vec![Key { offset: 0, value: 0, mask: 0 }];
    Filter {
        parent: SWITCH,
        prio: NUMBER,
        protocol: Protocol::All,
        matches: Match::U32 { keys, mark: None, indev: None },
        to: Target::Class(Side::Two.place().parent),
        table: 0,
        rule: None,
    }
}

/// The qdisc at the root of a device, if it has a handle: the kernel's own has none.
fn root(ask: &mut dyn Ask, device: u32) -> Result<Option<Found>, Error> {
    let found = qdiscs(ask, device)?.into_iter().find(|found| found.parent == Handle::ROOT);
    Ok(found.filter(|found| found.handle != Handle::default()))
}

/// The kind of switch that a qdisc is, if it is one.
fn kind(root: &Found) -> Option<Kind> {
    let kinds = [Kind::Prio, Kind::Htb];
    let same = |kind: &Kind| qdisc(*kind, Side::One).words.kind() == root.kind;
    if root.handle == SWITCH { kinds.into_iter().find(same) } else { None }
}

/// The devices that have a switch, by index.
///
/// # Errors
/// [`Error::Kernel`] if the kernel does not show it.
pub fn devices(ask: &mut dyn Ask) -> Result<Vec<u32>, Error> {
    let found = asked(ask, &message::get_qdiscs(), "for the qdiscs of all devices")?;
    let has = |found: Message| match found {
        Message::Qdisc(found) if found.parent == Handle::ROOT && kind(&found).is_some() => Some(found.device),
        _ => None,
    };
    Ok(found.into_iter().filter_map(has).collect())
}

/// The switch of a device; `None` if altq has not set up anything there.
///
/// # Errors
/// [`Error::Foreign`] if the device has a qdisc that somebody else made.
pub fn read(ask: &mut dyn Ask, device: u32, name: &str) -> Result<Option<Switch>, Error> {
    let Some(root) = root(ask, device)? else { return Ok(None) };
    let Some(kind) = kind(&root) else {
        return Err(Error::Foreign(format!(
            "{name} has the qdisc `{} {}` of somebody else; `tc qdisc del dev {name} root` takes it away",
            root.kind, root.handle
        )));
    };
    let second = match kind {
        // struct tc_prio_qopt: the number of bands, then the band of each priority.
        Kind::Prio => root.options.get(4).copied().unwrap_or(0) != 0,
        Kind::Htb => has_filter(ask, device)?,
    };
    Ok(Some(Switch { kind, side: if second { Side::Two } else { Side::One }, sizes: root.sizes }))
}

/// Makes a switch that leads to the first side, which has a queue of the kernel that does not
/// shape. After an error there is no switch.
///
/// # Errors
/// As [`super::set_up`].
pub fn make(ask: &mut dyn Ask, device: u32) -> Result<Switch, Error> {
    let made = match prio(ask, device) {
        Err(Error::Lacks(_)) => htb(ask, device),
        made => made,
    };
    match made {
        Ok(kind) => Ok(Switch { kind, side: Side::One, sizes: None }),
        Err(error) => match remove(ask, device) {
            Ok(()) => Err(error),
            Err(more) => Err(Error::Kernel(format!("{error}; and {more}"))),
        },
    }
}

fn prio(ask: &mut dyn Ask, device: u32) -> Result<Kind, Error> {
    let request = message::new_qdisc(device, &qdisc(Kind::Prio, Side::One));
    asked(ask, &request, "for the qdisc `prio` (CONFIG_NET_SCH_PRIO)").map(|_| Kind::Prio)
}

fn htb(ask: &mut dyn Ask, device: u32) -> Result<Kind, Error> {
    let what = "for the qdisc `prio` or `htb` (CONFIG_NET_SCH_PRIO, CONFIG_NET_SCH_HTB)";
    asked(ask, &message::new_qdisc(device, &qdisc(Kind::Htb, Side::One)), what)?;
    for side in [Side::One, Side::Two] {
        if let Some(request) = message::new_class(device, &class(side)) {
            asked(ask, &request, "for a class of `htb`")?;
        }
    }
    Ok(Kind::Htb)
}

/// Turns a switch to a side and gives it a size table, wherever it leads now.
///
/// # Errors
/// [`Error::Kernel`] if the kernel refuses it.
pub fn turn(ask: &mut dyn Ask, device: u32, to: &Switch) -> Result<(), Error> {
    let what = "to switch to the new tree";
    let whole = qdisc(to.kind, to.side);
    if to.kind == Kind::Prio {
        return asked(ask, &message::change_qdisc(device, &whole, true, to.sizes.as_ref()), what).map(drop);
    }
    asked(ask, &message::change_qdisc(device, &whole, false, to.sizes.as_ref()), what)?;
    match (to.side, has_filter(ask, device)?) {
        (Side::Two, false) => asked(ask, &message::new_filter(device, &filter()), "for a filter `u32`").map(drop),
        (Side::One, true) => {
            asked(ask, &message::delete_filters(device, SWITCH, NUMBER, Protocol::All), what).map(drop)
        }
        _ => Ok(()),
    }
}

/// Whether an htb has its filter.
fn has_filter(ask: &mut dyn Ask, device: u32) -> Result<bool, Error> {
    Ok(filters(ask, device, SWITCH)?.iter().any(|found| message::leads(&found.kind, &found.options)))
}

/// Whether a switch is complete. A killed process may have left an htb without its classes.
///
/// # Errors
/// [`Error::Kernel`] if the kernel does not show it.
pub fn whole(ask: &mut dyn Ask, device: u32, kind: Kind) -> Result<bool, Error> {
    if kind == Kind::Prio {
        return Ok(true);
    }
    let mut left = vec![Side::One.place().parent, Side::Two.place().parent];
    for found in asked(ask, &message::get_classes(device), "for its classes")? {
        if let Message::Class(found) = found
            && found.device == device
        {
            left.retain(|handle| *handle != found.handle);
        }
    }
    Ok(left.is_empty())
}

/// Removes the switch of a device, with the trees. It is not an error if there is none.
///
/// # Errors
/// [`Error::Kernel`] if the kernel refuses it, and the switch is still there.
pub fn remove(ask: &mut dyn Ask, device: u32) -> Result<(), Error> {
    if !stands(ask, device)? {
        return Ok(());
    }
    let gone = message::delete_qdisc(device, Handle::ROOT, SWITCH);
    let done = asked(ask, &gone, &format!("to take the qdisc {SWITCH} away"));
    if done.is_err() && !stands(ask, device)? {
        // The kernel has done it, but its answer was lost.
        return Ok(());
    }
    done.map(drop)
}

/// Whether a device has a switch.
fn stands(ask: &mut dyn Ask, device: u32) -> Result<bool, Error> {
    Ok(root(ask, device)?.as_ref().and_then(kind).is_some())
}
