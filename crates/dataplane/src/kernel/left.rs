//! Qdiscs that a killed process has left, found by the handle of the switch.

use altq_kernel::ifb;

use super::{detached, find, index, open, sweep, switch};
use crate::error::Error;
use crate::lock::{Lock, held};
use crate::nfqueue::steer::left::Left;
use crate::sys::interface::names;

/// Qdiscs of altq's for which there is neither a process at their interface nor a link that `altq
/// run --detach` has set up.
#[derive(Debug, Default)]
pub struct Remains {
    /// What killed processes have left.
    pub left: Vec<Left>,
    /// Interfaces with qdiscs for what leaves by them that may be a process's: one of those in
    /// `away` may have this name now.
    pub unsure: Vec<String>,
    /// Interfaces of processes that shape what leaves by them, of which there is none of that name
    /// now: it was renamed or has gone.
    pub away: Vec<String>,
}

/// What stands so in the network namespace of the calling thread. Empty if the kernel does not show
/// it.
pub fn remains() -> Remains {
    standing().unwrap_or_default()
}

fn standing() -> Result<Remains, Error> {
    let mut ask = open()?;
    let devices = switch::devices(&mut ask)?;
    if devices.is_empty() {
        return Ok(Remains::default());
    }
    let names = names().map_err(|e| Error::of("listing interfaces", e))?;
    let made: Vec<String> = names.iter().map(|name| ifb(name)).collect();
    let held = held();
    // The ifbs of processes, also of those whose interface is away or has another name.
    let used: Vec<String> = held.iter().filter(|(_, ingress)| *ingress).map(|(name, _)| ifb(name)).collect();
    // What leaves by an interface that has another name now is still shaped by its process. Which
    // name that is, nothing here tells.
    let away = held.iter().filter(|(name, ingress)| !ingress && !names.contains(name));
    let away: Vec<String> = away.map(|(name, _)| name.clone()).collect();
    let (mut left, mut unsure) = (Vec::new(), Vec::new());
    for (name, made_for) in names.iter().zip(&made) {
        let shapes = |device: &String| find(device).is_ok_and(|found| devices.contains(&found.index));
        // What stands at an ifb is what comes in at its interface.
        if !made.contains(name) && !used.contains(name) && shapes(name) {
            match of_ifb(name) {
                Some(interface) => left.push(Left { interface: interface.to_owned(), ingress: true }),
                None if away.is_empty() => left.push(Left { interface: name.clone(), ingress: false }),
                None => unsure.push(name.clone()),
            }
        }
        if !used.contains(made_for) && index(&mut ask, made_for)?.is_some_and(|device| devices.contains(&device)) {
            left.push(Left { interface: name.clone(), ingress: true });
        }
    }
    let set_up = detached()?;
    let is_to_stay =
        |name: &str, ingress: bool| set_up.iter().any(|set| set.interface == name && set.ingress == ingress);
    let is_free = |name: &str, ingress: bool| !is_to_stay(name, ingress) && Lock::take(name, ingress).is_ok();
    left.retain(|one| is_free(&one.interface, one.ingress));
    unsure.retain(|name| is_free(name, false));
    Ok(Remains { left, unsure, away })
}

/// The interface, now away, for which an ifb of this name was made. `None` for other names, and for
/// those that were too long to be kept whole.
fn of_ifb(name: &str) -> Option<&str> {
    name.strip_prefix("ifb4").filter(|interface| !interface.is_empty() && ifb(interface) == name)
}

/// Removes qdiscs that were left, so that packets pass unshaped again.
///
/// # Errors
/// [`Error::Held`] if a process shapes there now, [`Error::Kernel`] if the kernel refuses it.
pub fn lift(left: &Left) -> Result<(), Error> {
    let _lock = Lock::take(&left.interface, left.ingress)?;
    sweep(&left.interface, left.ingress)
}
