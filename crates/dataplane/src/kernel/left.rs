//! Qdiscs that a killed process has left, found by the handle of the switch.

use altq_kernel::ifb;

use super::{detached, find, index, open, sweep, switch};
use crate::error::Error;
use crate::lock::{Lock, held};
use crate::nfqueue::steer::left::Left;
use crate::sys::interface::names;

/// All qdiscs of altq's in the network namespace of the calling thread for which there is neither a
/// process nor a link that `altq run --detach` has set up. Empty if the kernel does not show them.
pub fn left() -> Vec<Left> {
    standing().unwrap_or_default()
}

fn standing() -> Result<Vec<Left>, Error> {
    let mut ask = open()?;
    let devices = switch::devices(&mut ask)?;
    if devices.is_empty() {
        return Ok(Vec::new());
    }
    let names = names().map_err(|e| Error::of("listing interfaces", e))?;
    let made: Vec<String> = names.iter().map(|name| ifb(name)).collect();
    let held = held();
    // The ifbs of processes, also of those whose interface is away or has another name.
    let used: Vec<String> = held.iter().filter(|(_, ingress)| *ingress).map(|(name, _)| ifb(name)).collect();
    // What leaves by an interface that has another name now is still shaped by its process.
    let renamed = held.iter().any(|(name, ingress)| !ingress && !names.contains(name));
    let mut found = Vec::new();
    for (name, made_for) in names.iter().zip(&made) {
        let shapes = |device: &String| find(device).is_ok_and(|found| devices.contains(&found.index));
        // What stands at an ifb is what comes in at its interface.
        if !made.contains(name) && !used.contains(name) && shapes(name) {
            match of_ifb(name) {
                Some(interface) => found.push(Left { interface: interface.to_owned(), ingress: true }),
                None if !renamed => found.push(Left { interface: name.clone(), ingress: false }),
                None => {}
            }
        }
        if !used.contains(made_for) && index(&mut ask, made_for)?.is_some_and(|device| devices.contains(&device)) {
            found.push(Left { interface: name.clone(), ingress: true });
        }
    }
    let set_up = detached()?;
    let is_to_stay = |one: &Left| set_up.iter().any(|set| set.interface == one.interface && set.ingress == one.ingress);
    found.retain(|one| !is_to_stay(one) && Lock::take(&one.interface, one.ingress).is_ok());
    Ok(found)
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
