//! A program for what comes in at an interface, which stays when the process that set it ends,
//! however it ends.
//!
//! It is a filter of the interface (tc-bpf(8), direct action): `tc filter show dev IF ingress`
//! shows it, and only a request removes it. What it needs stays too: the qdisc for incoming
//! packets, which holds filters, and promiscuous mode, without which a card would filter out frames
//! for other hosts. The handle of the filter says which of the two altq has set. So another process
//! than the one that set it can leave everything as it was.

use std::os::fd::{AsRawFd, BorrowedFd};

use altq_kernel::Handle;
use altq_kernel::message::{self, Found, INCOMING, Message};

use crate::error::Error;
use crate::kernel::wire::{Ask, Socket};
use crate::kernel::{INGRESS, INGRESS_PARENT, asked, filters, open, qdiscs};
use crate::lock::Lock;
use crate::running::find;
use crate::sys::interface::{Interface, names};
use crate::verify::Guard;

/// The kind of a qdisc for incoming packets that altq makes.
const KIND: &str = "ingress";
/// The handle of the filter, without the bits for what altq has set.
const HANDLE: u32 = 0x0a17_0000;
/// The qdisc for incoming packets is altq's.
const QDISC: u32 = 1;
/// Promiscuous mode is altq's.
const PROMISCUOUS: u32 = 2;

/// A program that is set. Dropping it removes it, with what it needed.
pub(super) struct Hook {
    device: u32,
    handle: Handle,
    /// It has taken the place of one that a killed process had left.
    pub was_left: bool,
    /// In the network namespace of the interface.
    socket: Socket,
    /// While it is held, somebody looks after the program.
    _lock: Lock,
}

impl std::fmt::Debug for Hook {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Hook").field("device", &self.device).field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl Hook {
    /// Sets a program at an interface of the calling thread's network namespace, in place of one
    /// that a killed process has left. Between the two no frame is missed.
    ///
    /// # Errors
    /// [`Error::Held`] if another process has one there; [`Error::NotPermitted`] without
    /// CAP_NET_ADMIN; [`Error::Lacks`], [`Error::Kernel`] if the kernel cannot or does not do it.
    pub fn set(interface: &Interface, program: BorrowedFd<'_>) -> Result<Hook, Error> {
        let lock = Lock::take_hook(&interface.name)?;
        let mut socket = open()?;
        let (handle, was_left) = place(&mut socket, interface, program)?;
        Ok(Hook { device: interface.index, handle, was_left, socket, _lock: lock })
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        // An error means that the interface has gone, or that somebody has removed it.
        let _ = remove(&mut self.socket, self.device, self.handle);
    }
}

/// Sets a program. If that fails, nothing new is left. True if it takes the place of one that was
/// left.
fn place(ask: &mut dyn Ask, interface: &Interface, program: BorrowedFd<'_>) -> Result<(Handle, bool), Error> {
    let device = interface.index;
    let (qdisc, left) = (qdisc(ask, device)?, own(ask, device)?);
    let mut handle = left.unwrap_or(Handle(HANDLE));
    if !interface.is_promiscuous() {
        handle.0 |= PROMISCUOUS;
    }
    // A qdisc `ingress` without filters does nothing: a killed process may have left it.
    if qdisc.as_ref().is_none_or(|found| found.kind == KIND) && filters(ask, device, INCOMING)?.is_empty() {
        handle.0 |= QDISC;
    }
    if qdisc.is_none() {
        asked(ask, &message::ingress_qdisc(device), "for the qdisc `ingress` (CONFIG_NET_SCH_INGRESS)")?;
    }
    let request = message::program(device, handle, program.as_raw_fd() as u32, Guard::FORWARDS);
    if let Err(error) = asked(ask, &request, "to run a program for what comes in (CONFIG_NET_CLS_BPF)") {
        if qdisc.is_none() {
            // The error that is told is the first one.
            let _ = asked(ask, &message::delete_qdisc(device, INGRESS_PARENT, INGRESS), "to take the qdisc away");
        }
        return Err(error);
    }
    let rest = |ask: &mut dyn Ask| {
        if let Some(left) = left.filter(|left| *left != handle) {
            asked(ask, &message::delete_program(device, left), "to take the program away that was left")?;
        }
        match handle.0 & PROMISCUOUS {
            0 => Ok(()),
            _ => asked(ask, &message::promiscuous(device, true), "for promiscuous mode").map(drop),
        }
    };
    let done = rest(ask);
    // A program in whose place it was put is gone, so that it stays.
    if done.is_err() && left != Some(handle) {
        let _ = remove(ask, device, handle);
    }
    done.map(|()| (handle, left.is_some()))
}

/// The qdisc for incoming packets of a device. `None` as well where the kernel has no qdiscs.
fn qdisc(ask: &mut dyn Ask, device: u32) -> Result<Option<Found>, Error> {
    match qdiscs(ask, device) {
        Ok(found) => Ok(found.into_iter().find(|found| found.parent == INGRESS_PARENT)),
        Err(Error::Lacks(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The name of the BPF program of a filter, or the kind of another filter. `None`: it is an entry
/// without one.
fn name(found: &Found) -> Option<String> {
    let program = message::program_name(&found.kind, &found.options);
    program.or_else(|| message::leads(&found.kind, &found.options).then(|| found.kind.clone()))
}

/// The names of the BPF programs that are filters for what comes in at an interface, in the order
/// in which they run; for other filters their kind.
///
/// # Errors
/// [`Error::Kernel`] if the kernel does not show them.
pub fn at(device: u32) -> Result<Vec<String>, Error> {
    let mut ask = open()?;
    match qdisc(&mut ask, device)? {
        Some(_) => Ok(filters(&mut ask, device, INCOMING)?.iter().filter_map(name).collect()),
        None => Ok(Vec::new()),
    }
}

/// True if a filter is altq's.
fn is_own(found: &Found) -> bool {
    let ours = found.handle.0 & !(QDISC | PROMISCUOUS) == HANDLE;
    ours && message::program_name(&found.kind, &found.options).as_deref() == Some(Guard::FORWARDS)
}

/// The handle of altq's filter at a device, if there is one.
fn own(ask: &mut dyn Ask, device: u32) -> Result<Option<Handle>, Error> {
    if qdisc(ask, device)?.is_none() {
        return Ok(None);
    }
    Ok(filters(ask, device, INCOMING)?.iter().find(|found| is_own(found)).map(|found| found.handle))
}

/// Removes a filter, and what altq has set for it. The qdisc stays if somebody else has filters
/// there, or has put another one in its place.
fn remove(ask: &mut dyn Ask, device: u32, handle: Handle) -> Result<(), Error> {
    if handle.0 & PROMISCUOUS != 0 {
        asked(ask, &message::promiscuous(device, false), "to end promiscuous mode")?;
    }
    let same = qdisc(ask, device)?.is_some_and(|found| found.kind == KIND);
    let there = filters(ask, device, INCOMING)?;
    let others = there.iter().any(|found| name(found).is_some() && !is_own(found));
    let request = match handle.0 & QDISC != 0 && same && there.iter().any(is_own) && !others {
        true => message::delete_qdisc(device, INGRESS_PARENT, INGRESS),
        false => message::delete_program(device, handle),
    };
    asked(ask, &request, "to take the program for what comes in away").map(drop)
}

/// The interfaces at which a killed process has left its program, in the network namespace of the
/// calling thread. None if the kernel does not show them.
pub fn left_hooks() -> Vec<String> {
    standing().unwrap_or_default()
}

fn standing() -> Result<Vec<String>, Error> {
    let mut ask = open()?;
    // Those of all devices are asked for at once.
    let found = asked(&mut ask, &message::get_qdiscs(), "for the qdiscs of all devices")?;
    let device = |found: Message| match found {
        Message::Qdisc(found) if found.parent == INGRESS_PARENT => Some(found.device),
        _ => None,
    };
    let devices: Vec<u32> = found.into_iter().filter_map(device).collect();
    if devices.is_empty() {
        return Ok(Vec::new());
    }
    let mut left = names().map_err(|error| Error::of("listing interfaces", error))?;
    left.retain(|name| {
        let index = find(name).ok().map(|found| found.index).filter(|index| devices.contains(index));
        let has = index.is_some_and(|index| matches!(own(&mut ask, index), Ok(Some(_))));
        has && Lock::take_hook(name).is_ok()
    });
    left.sort();
    Ok(left)
}

/// Removes the program that a killed process has left at an interface: what comes in there is no
/// longer handed on. False if there is none.
///
/// # Errors
/// [`Error::Held`] if a process looks after it; [`Error::NoInterface`]; [`Error::Kernel`] if the
/// kernel refuses it.
pub fn lift_hook(interface: &str) -> Result<bool, Error> {
    take_over(interface).map(|(_, was_there)| was_there)
}

/// Removes what a killed process has left at an interface, if nobody looks after it.
///
/// # Errors
/// [`Error::Kernel`] if the kernel refuses it.
pub(crate) fn sweep(interface: &str) -> Result<(), Error> {
    match lift_hook(interface) {
        Err(Error::Held { .. } | Error::NoInterface { .. }) => Ok(()),
        done => done.map(drop),
    }
}

/// As [`lift_hook`], and keeps others from setting one, for as long as the lock is held.
pub(crate) fn take_over(interface: &str) -> Result<(Lock, bool), Error> {
    let lock = Lock::take_hook(interface)?;
    let (device, mut ask) = (find(interface)?.index, open()?);
    // Without rights the kernel still shows what there is, so the error is that of removing it.
    let left = own(&mut ask, device)?;
    if let Some(handle) = left {
        remove(&mut ask, device, handle)?;
    }
    Ok((lock, left.is_some()))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;
    use crate::netns::Namespace;
    use crate::nfqueue::steer::program::run;
    use crate::sys::bpf;

    /// With a device `a` in a namespace of its own, and a program that forwards to `pa`.
    fn with_device(test: impl FnOnce(&Interface, BorrowedFd<'_>) + Send) {
        let Ok(namespace) = Namespace::new() else { return eprintln!("SKIPPED: no network namespaces here") };
        let test = || {
            if let Err(error) = run("ip", &["-batch", "-"], "link add name a type veth peer name pa\n") {
                return eprintln!("SKIPPED: no veth here ({error})");
            }
            let (interface, to) = (find("a").unwrap(), find("pa").unwrap().index);
            let program = bpf::shared_number().and_then(|until| bpf::forward_program(to, until.as_fd()));
            match program {
                Ok(program) => test(&interface, program.as_fd()),
                Err(error) => eprintln!("SKIPPED: no BPF programs here ({error})"),
            }
        };
        if let Err(error) = namespace.run(test) {
            eprintln!("SKIPPED: {error}");
        }
    }

    /// What there is at `a`: programs, whether it is promiscuous, whether it has a qdisc for what
    /// comes in.
    fn there() -> (Vec<String>, bool, bool) {
        let interface = find("a").unwrap();
        let qdisc = qdisc(&mut open().unwrap(), interface.index).unwrap().is_some();
        let programs = if qdisc { at(interface.index).unwrap() } else { Vec::new() };
        (programs, interface.is_promiscuous(), qdisc)
    }

    fn set(interface: &Interface, program: BorrowedFd<'_>) -> Option<Hook> {
        match Hook::set(interface, program) {
            Ok(hook) => Some(hook),
            Err(Error::Lacks(why)) => {
                eprintln!("SKIPPED: {why}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    const OURS: &str = Guard::FORWARDS;

    #[test]
    fn it_leaves_an_interface_as_it_was() {
        with_device(|interface, program| {
            assert_eq!(there(), (vec![], false, false));
            let Some(hook) = set(interface, program) else { return };
            assert_eq!(there(), (vec![OURS.to_owned()], true, true));
            drop(hook);
            assert_eq!(there(), (vec![], false, false));
            // What somebody else has set stays.
            run("ip", &["link", "set", "dev", "a", "promisc", "on"], "").unwrap();
            let hook = set(interface, program).unwrap();
            assert_eq!(there(), (vec![OURS.to_owned()], true, true));
            drop(hook);
            assert_eq!(there(), (vec![], true, false));
            let mut ask = open().unwrap();
            asked(&mut ask, &message::ingress_qdisc(interface.index), "").unwrap();
            let other = message::program(interface.index, Handle(1), program.as_raw_fd() as u32, "other");
            asked(&mut ask, &other, "").unwrap();
            let hook = set(interface, program).unwrap();
            assert_eq!(there().0, [OURS, "other"], "it comes first");
            drop(hook);
            assert_eq!(there(), (vec!["other".to_owned()], true, true));
        });
    }

    #[test]
    fn one_that_was_left_is_found_replaced_and_removed() {
        with_device(|interface, program| {
            let Some(hook) = set(interface, program) else { return };
            assert!(left_hooks().is_empty(), "somebody looks after it");
            assert!(matches!(lift_hook("a"), Err(Error::Held { .. })));
            drop(hook);
            // As a killed process leaves it.
            let leave = || place(&mut open().unwrap(), interface, program).unwrap();
            leave();
            assert_eq!(left_hooks(), ["a"]);
            assert_eq!(there(), (vec![OURS.to_owned()], true, true));
            // The next one knows what the first has set, also if promiscuous mode was ended since.
            let hook = set(interface, program).unwrap();
            assert_eq!(there(), (vec![OURS.to_owned()], true, true));
            drop(hook);
            assert_eq!(there(), (vec![], false, false));
            leave();
            run("ip", &["link", "set", "dev", "a", "promisc", "off"], "").unwrap();
            drop(set(interface, program).unwrap());
            assert_eq!(there(), (vec![], false, false));
            leave();
            // Somebody has added a filter: the qdisc stays for it.
            let other = message::program(interface.index, Handle(1), program.as_raw_fd() as u32, "other");
            asked(&mut open().unwrap(), &other, "").unwrap();
            assert!(lift_hook("a").unwrap());
            assert_eq!(there(), (vec!["other".to_owned()], false, true));
            assert!(!lift_hook("a").unwrap());
            assert!(left_hooks().is_empty());
        });
    }
}
