//! A link that the kernel itself executes: as qdiscs, classes and filters of its own.
//!
//! At the root of the device is a switch with two sides, which sends all packets to one of them. A
//! tree is built on the side that gets no packets, read back, and compared with what was asked for.
//! Then the switch is turned, and the tree on the other side is removed. So packets never meet half
//! a tree. If any request fails, the new tree is removed, and the old one goes on unchanged. If
//! only words of classes differ from the existing tree, these classes are changed, and everything
//! keeps its packets and counters.
//!
//! Packets that come in at an interface are redirected to a device of their own, an ifb, and shaped
//! as they leave it. The redirection is made last.
//!
//! A qdisc that altq did not make is named in an error and left alone. altq recognises its own
//! qdiscs by the handle of the switch.

mod detached;
mod left;
pub(crate) mod run;
mod switch;
#[cfg(test)]
mod tests;
mod totals;
mod tree;
pub mod wire;

use altq_config::Link;
use altq_kernel::message::{self, Found, Message};
use altq_kernel::{Handle, Host, ifb};

use crate::error::Error;
use crate::lock::Lock;
use crate::sys::interface::Interface;
pub use detached::{Detached, detach, detached, stop};
pub use left::{Remains, lift, remains};
pub use tree::{Counted, Done};
use wire::{Ask, Refused, Socket};

/// The qdisc for incoming packets, and its parent (`TC_H_INGRESS`).
pub(crate) const INGRESS: Handle = Handle::new(0xffff, 0);
pub(crate) const INGRESS_PARENT: Handle = Handle(0xffff_fff1);
/// To which device a filter redirects, as the kernel shows it, if that device is gone
/// (tcf_mirred_dump).
const GONE: u32 = 0;

/// Sets up a link on its interface, in place of what altq set up there before. It stays when the
/// process ends.
///
/// # Errors
/// [`Error::Link`] if the kernel cannot execute the link; [`Error::Foreign`] if somebody else's
/// qdisc is in the way; [`Error::Lacks`] if the kernel does not have a qdisc or classifier;
/// [`Error::Kernel`] if it refuses a request, or shows something else than was asked for. Then
/// everything is as before.
pub fn set_up(name: &str, ingress: bool, link: &Link) -> Result<Done, Error> {
    let interface = find(name)?;
    let mut ask = open()?;
    let host = host(&mut ask, name)?;
    tree::check(link, &host)?;
    if ingress {
        set_up_ingress(&mut ask, &interface, link, &host)
    } else {
        tree::set_up(&mut ask, interface.index, name, link, &host)
    }
}

/// Removes what altq set up on an interface. False if there was nothing.
///
/// # Errors
/// [`Error::Kernel`] if the kernel refuses it.
pub fn take_away(name: &str, ingress: bool) -> Result<bool, Error> {
    let mut ask = open()?;
    if !ingress {
        return tree::take_away(&mut ask, find(name)?.index, name);
    }
    let made = ifb(name);
    let device = index(&mut ask, &made)?;
    // Without the ifb, its redirection drops all that comes in.
    let to = device.unwrap_or(GONE);
    // The interface may have gone, and its redirection with it. If it has another name by now, it
    // still redirects.
    let mut now = match device {
        Some(device) => redirecting(&mut ask, device)?,
        None => Vec::new(),
    };
    let interface = now.pop().or(find(name).ok().map(|found| found.index));
    for other in now {
        let_go(&mut ask, other, device)?;
    }
    let own = match interface {
        Some(interface) if has_ingress(&mut ask, interface)?.as_deref() == Some("ingress") => {
            redirects(&mut ask, interface, Some(to))?.0.is_some()
        }
        _ => false,
    };
    let Some(device) = device else {
        if let Some(interface) = interface.filter(|_| own) {
            let_go(&mut ask, interface, Some(GONE))?;
        }
        return Ok(own);
    };
    if !own && switch::read(&mut ask, device, &made)?.is_none() {
        return Ok(false);
    }
    clear_ingress(&mut ask, interface, &made, true).map(|()| true)
}

/// Removes what altq set up for what leaves by an interface that may have another name by now. What
/// somebody else has set up there, by its new name, stays.
fn take_away_renamed(index: u32) -> Result<(), Error> {
    // There is none any more.
    let Some(name) = Interface::name_of(index) else { return Ok(()) };
    // A confined worker can take no locks and read no notes, but it knows what it has set up.
    let _lock = match Lock::take(&name, false) {
        Err(Error::Held { .. }) => return Ok(()),
        lock => lock.ok(),
    };
    if detached::on(&name, false).unwrap_or_default().is_some() {
        return Ok(());
    }
    match tree::take_away(&mut open()?, index, &name) {
        Err(Error::Foreign(_)) => Ok(()),
        done => done.map(drop),
    }
}

/// Removes what altq set up at an interface whose name another one has now. The ifb stays, for that
/// one.
fn take_away_from(index: u32, name: &str, ingress: bool) -> Result<(), Error> {
    if !ingress {
        return take_away_renamed(index);
    }
    if Interface::name_of(index).is_none() {
        return Ok(());
    }
    let mut ask = open()?;
    let Some(device) = self::index(&mut ask, &ifb(name))? else { return Ok(()) };
    match redirects(&mut ask, index, Some(device))?.0 {
        Some(_) => let_go(&mut ask, index, Some(device)),
        None => Ok(()),
    }
}

/// Removes what a killed process has left on an interface, but not what `altq run --detach` has set
/// up there.
///
/// # Errors
/// [`Error::Kernel`] if the kernel refuses it; [`Error::Io`] and others if it is not known what
/// `altq run --detach` has set up, and then everything stays.
pub(crate) fn sweep(name: &str, ingress: bool) -> Result<(), Error> {
    if detached::on(name, ingress)?.is_some() {
        return Ok(());
    }
    match take_away(name, ingress) {
        // The interface has gone, and its qdiscs with it.
        Err(Error::NoInterface { .. }) => Ok(()),
        done => done.map(drop),
    }
}

/// What differs between a link and what the kernel has, one sentence each.
///
/// # Errors
/// [`Error::NoInterface`]; [`Error::Kernel`] if the kernel does not show it.
pub fn drifted(name: &str, ingress: bool, link: &Link) -> Result<Vec<String>, Error> {
    let interface = find(name)?;
    let mut ask = open()?;
    let host = host(&mut ask, name)?;
    let (device, shapes) = place(&mut ask, name, ingress)?;
    let mut lines = tree::drift(&mut ask, device, &shapes, link, &host)?;
    if ingress && redirects(&mut ask, interface.index, Some(device))?.0.is_none() {
        lines.push(format!("what comes in at {name} is not redirected to {shapes}"));
    }
    Ok(lines)
}

/// The counters of each class of a link.
///
/// # Errors
/// [`Error::Kernel`] if the kernel does not show it.
pub fn counted(name: &str, ingress: bool, link: &Link) -> Result<Counted, Error> {
    let mut ask = open()?;
    let host = host(&mut ask, name)?;
    let (device, name) = place(&mut ask, name, ingress)?;
    tree::counters(&mut ask, device, &name, link, &host)
}

/// Whether an interface has qdiscs of altq. False if the kernel does not show them.
fn stands(name: &str, ingress: bool) -> bool {
    let read = || -> Result<bool, Error> {
        let mut ask = open()?;
        let (device, name) = place(&mut ask, name, ingress)?;
        Ok(switch::read(&mut ask, device, &name)?.is_some())
    };
    read().unwrap_or(false)
}

/// Whether what altq has set up on an interface is gone, with nothing of somebody else's in its
/// place.
///
/// # Errors
/// [`Error::Foreign`] if somebody else's qdisc is there; [`Error::NoInterface`];
/// [`Error::Kernel`] if the kernel does not show it.
fn vanished(name: &str, ingress: bool) -> Result<bool, Error> {
    let interface = find(name)?.index;
    let mut ask = open()?;
    if ingress {
        let kind = has_ingress(&mut ask, interface)?;
        let made = ifb(name);
        let device = index(&mut ask, &made)?;
        let (Some("ingress"), Some(device)) = (kind.as_deref(), device) else {
            return Ok(kind.is_none_or(|kind| kind == "ingress"));
        };
        let redirects = redirects(&mut ask, interface, Some(device))?.0.is_some();
        return Ok(!redirects || switch::read(&mut ask, device, &made)?.is_none());
    }
    Ok(switch::read(&mut ask, interface, name)?.is_none())
}

/// Refuses an interface if a link that `altq run --detach` has set up there shapes the same
/// packets.
///
/// # Errors
/// [`Error::Foreign`].
pub(crate) fn refuse_detached(name: &str, ingress: bool) -> Result<(), Error> {
    let set_up = detached::on(name, ingress).unwrap_or_default();
    let Some(Detached { link, .. }) = set_up.filter(|_| stands(name, ingress)) else { return Ok(()) };
    Err(Error::Foreign(format!(
        "`altq run --detach` has set link `{link}` up on {name}, which shapes the same packets; `altq stop {link}` \
         takes it away"
    )))
}

/// As [`refuse_detached`]. It also removes qdiscs that a killed process has left, because they
/// shape the same packets, and nothing else would remove them.
///
/// # Errors
/// [`Error::Foreign`]; [`Error::Kernel`] if they cannot be removed.
pub(crate) fn make_way(name: &str, ingress: bool) -> Result<(), Error> {
    refuse_detached(name, ingress)?;
    if stands(name, ingress) { take_away(name, ingress).map(drop) } else { Ok(()) }
}

/// The device that shapes: the interface, or the ifb for incoming packets.
fn place(ask: &mut dyn Ask, name: &str, ingress: bool) -> Result<(u32, String), Error> {
    if !ingress {
        return Ok((find(name)?.index, name.to_owned()));
    }
    let made = ifb(name);
    match index(ask, &made)? {
        Some(device) => Ok((device, made)),
        None => Err(Error::NoInterface { name: made }),
    }
}

/// Shapes incoming packets: makes an ifb with the tree, then the redirection to it.
fn set_up_ingress(ask: &mut dyn Ask, interface: &Interface, link: &Link, host: &Host) -> Result<Done, Error> {
    let made = ifb(&interface.name);
    let before = index(ask, &made)?;
    let mut kind = has_ingress(ask, interface.index)?;
    // The ifb was taken away, and its redirection drops all that comes in.
    if before.is_none()
        && kind.as_deref() == Some("ingress")
        && redirects(ask, interface.index, Some(GONE))?.0.is_some()
    {
        let_go(ask, interface.index, Some(GONE))?;
        kind = has_ingress(ask, interface.index)?;
    }
    let (own, others) = match kind.as_deref() {
        Some("ingress") => {
            let (own, others) = redirects(ask, interface.index, before)?;
            (own.is_some(), others)
        }
        _ => (false, false),
    };
    if let Some(device) = before.filter(|_| !own)
        && switch::read(ask, device, &made)?.is_none()
    {
        return Err(Error::Foreign(format!(
            "the device {made} is there without qdiscs of altq's; `ip link del {made}` takes it away"
        )));
    }
    if let Some(kind) = &kind
        && (kind != "ingress" || before.is_none() || others && !own)
    {
        return Err(Error::Foreign(format!(
            "{} has the qdisc `{kind} ffff:` of somebody else for what comes in; `tc qdisc del dev {} {kind}` takes \
             it away",
            interface.name, interface.name
        )));
    }
    // A process that was killed may have left the qdisc without its filter.
    let there = (kind.is_some(), own);
    let error = match build_ingress(ask, interface.index, &made, there, link, host) {
        Ok(done) => return Ok(done),
        Err(error) => error,
    };
    // What existed before stays.
    let new = kind.is_none().then_some(interface.index);
    match clear_ingress(ask, new, &made, before.is_none()) {
        Ok(()) => Err(error),
        Err(more) => Err(Error::Kernel(format!("{error}; and {more}"))),
    }
}

/// `there`: whether the interface has the qdisc for what comes in, and the filter that redirects.
fn build_ingress(
    ask: &mut dyn Ask,
    interface: u32,
    made: &str,
    there: (bool, bool),
    link: &Link,
    host: &Host,
) -> Result<Done, Error> {
    if index(ask, made)?.is_none() {
        asked(ask, &message::new_ifb(made), "for an ifb (CONFIG_IFB)")?;
    }
    let device = index(ask, made)?.ok_or_else(|| Error::NoInterface { name: made.to_owned() })?;
    // An ifb carries packets with the header of the interface at which they came in.
    let done = tree::set_up(ask, device, made, link, host)?;
    if !there.0 {
        asked(ask, &message::ingress_qdisc(interface), "for the qdisc `ingress` (CONFIG_NET_SCH_INGRESS)")?;
    }
    if !there.1 {
        let what = "to redirect what comes in (CONFIG_NET_CLS_U32, CONFIG_NET_ACT_MIRRED)";
        asked(ask, &message::redirect(interface, device), what)?;
    }
    Ok(done)
}

/// Removes what shapes incoming packets: the qdisc with the redirection of this interface, and
/// then, if `away` is set, the ifb of this name. It is not an error if they do not exist.
fn clear_ingress(ask: &mut dyn Ask, interface: Option<u32>, made: &str, away: bool) -> Result<(), Error> {
    let device = index(ask, made)?;
    if let Some(interface) = interface {
        let_go(ask, interface, device)?;
    }
    let Some(device) = device.filter(|_| away) else { return Ok(()) };
    let done = asked(ask, &message::delete_link(device), &format!("to take {made} away"));
    if done.is_err() && index(ask, made)?.is_none() {
        return Ok(());
    }
    done.map(drop)
}

/// Ends the redirection of incoming packets to the device `to`. The qdisc for incoming packets goes
/// as well, unless somebody else has filters there.
fn let_go(ask: &mut dyn Ask, interface: u32, to: Option<u32>) -> Result<(), Error> {
    if has_ingress(ask, interface)?.as_deref() != Some("ingress") {
        return Ok(());
    }
    let (own, others) = redirects(ask, interface, to)?;
    let gone = match (own, others) {
        (None, true) => return Ok(()),
        (Some(own), true) => message::delete_redirect(interface, own),
        (_, false) => message::delete_qdisc(interface, INGRESS_PARENT, INGRESS),
    };
    let done = asked(ask, &gone, "to let go what comes in");
    if done.is_ok() || has_ingress(ask, interface)?.is_none() {
        return Ok(());
    }
    // Without others the whole qdisc should be gone.
    if others && redirects(ask, interface, to)?.0.is_none() { Ok(()) } else { done.map(drop) }
}

/// The kind of a device's qdisc for incoming packets, if it has one.
fn has_ingress(ask: &mut dyn Ask, device: u32) -> Result<Option<String>, Error> {
    let found = qdiscs(ask, device)?.into_iter().find(|found| found.parent == INGRESS_PARENT);
    Ok(found.map(|found| found.kind))
}

/// The interfaces whose incoming packets are redirected to the device `to`, whatever their names
/// are.
fn redirecting(ask: &mut dyn Ask, to: u32) -> Result<Vec<u32>, Error> {
    let mut all = Vec::new();
    for found in asked(ask, &message::get_qdiscs(), "for the qdiscs of all devices")? {
        let Message::Qdisc(found) = found else { continue };
        let takes_in = found.parent == INGRESS_PARENT && found.kind == "ingress";
        if takes_in && redirects(ask, found.device, Some(to))?.0.is_some() {
            all.push(found.device);
        }
    }
    Ok(all)
}

/// The handle of the filter that redirects the incoming packets of a device to the device `to`, if
/// there is one, and whether there are other filters, which altq has not made.
fn redirects(ask: &mut dyn Ask, device: u32, to: Option<u32>) -> Result<(Option<Handle>, bool), Error> {
    let (mut own, mut others) = (None, false);
    for found in filters(ask, device, INGRESS)? {
        if !message::leads(&found.kind, &found.options) {
            continue;
        }
        if to.is_some() && message::redirected(&found.kind, &found.options) == to {
            own = Some(found.handle);
        } else {
            others = true;
        }
    }
    Ok((own, others))
}

/// The index of a device; `None` if there is none of this name.
fn index(ask: &mut dyn Ask, name: &str) -> Result<Option<u32>, Error> {
    Ok(device(ask, name)?.map(|(index, _)| index))
}

/// The index of a device, and its kind of header (linux/if_arp.h).
fn device(ask: &mut dyn Ask, name: &str) -> Result<Option<(u32, u16)>, Error> {
    match ask.ask(&message::get_link(name)) {
        Ok(found) => Ok(found.into_iter().find_map(|found| match found {
            Message::Link(index, kind) => Some((index, kind)),
            _ => None,
        })),
        Err(refusal) if refusal.error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        Err(refusal) => Err(refused("for a device", refusal)),
    }
}

/// The qdiscs of a device.
pub(crate) fn qdiscs(ask: &mut dyn Ask, device: u32) -> Result<Vec<Found>, Error> {
    let found = asked(ask, &message::get_qdiscs(), "for its qdiscs")?;
    Ok(found
        .into_iter()
        .filter_map(|found| match found {
            Message::Qdisc(found) if found.device == device => Some(found),
            _ => None,
        })
        .collect())
}

/// The filters of a qdisc.
pub(crate) fn filters(ask: &mut dyn Ask, device: u32, qdisc: Handle) -> Result<Vec<Found>, Error> {
    let found = asked(ask, &message::get_filters(device, qdisc), "for its filters")?;
    Ok(found
        .into_iter()
        .filter_map(|found| match found {
            Message::Filter(found) if found.device == device => Some(found),
            _ => None,
        })
        .collect())
}

/// Sends a request; `what` ends the sentence "the kernel was asked …".
pub(crate) fn asked(ask: &mut dyn Ask, request: &[u8], what: &str) -> Result<Vec<Message>, Error> {
    ask.ask(request).map_err(|refusal| refused(what, refusal))
}

/// The error of a request that the kernel refused.
fn refused(what: &str, refusal: Refused) -> Error {
    let Refused { error, said } = refusal;
    let why = if said.is_empty() { error.to_string() } else { format!("{said}; {error}") };
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            Error::NotPermitted { what: "setting up qdiscs", right: "CAP_NET_ADMIN", source: error }
        }
        // The kernel's answer for a kind that it does not know (`qdisc_create` and `tc_new_tfilter`
        // in net/sched).
        Some(libc::ENOENT | libc::EOPNOTSUPP) => {
            Error::Lacks(format!("this kernel lacks what it was asked {what} ({why})"))
        }
        _ => Error::Kernel(format!("the kernel was asked {what}: {why}")),
    }
}

pub(crate) fn open() -> Result<Socket, Error> {
    Socket::open().map_err(|error| Error::of("rtnetlink", error))
}

fn find(name: &str) -> Result<Interface, Error> {
    crate::running::find(name)
}

/// What the translation must know about an interface.
fn host(ask: &mut dyn Ask, name: &str) -> Result<Host, Error> {
    Ok(with_header(device(ask, name)?.map(|(_, kind)| kind)))
}

/// A host whose interface has this kind of header: the kernel counts the Ethernet header
/// (ARPHRD_ETHER, 1; the loopback interface, ARPHRD_LOOPBACK, 772, has one too), but no header of
/// PPP and tunnels.
fn with_header(kind: Option<u16>) -> Host {
    Host { header: if matches!(kind, Some(1 | 772)) { 14 } else { 0 }, ..Host::default() }
}

/// What the translation must know about an interface of this host. `None` if there is none of this
/// name, or the kernel does not say. It needs no rights.
pub fn host_of(name: &str) -> Option<Host> {
    let (_, kind) = device(&mut open().ok()?, name).ok()??;
    Some(with_header(Some(kind)))
}
