//! Qdiscs that a killed process has left, found by the handle of the switch.

use altq_kernel::ifb;

use super::{detached, find, index, open, sweep, switch};
use crate::error::Error;
use crate::lock::Lock;
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
    let mut found = Vec::new();
    for (name, made_for) in names.iter().zip(&made) {
        // What stands at an ifb is what comes in at its interface.
        if !made.iter().any(|made| made == name) && find(name).is_ok_and(|found| devices.contains(&found.index)) {
            found.push(Left { interface: name.clone(), ingress: false });
        }
        if index(&mut ask, made_for)?.is_some_and(|device| devices.contains(&device)) {
            found.push(Left { interface: name.clone(), ingress: true });
        }
    }
    let set_up = detached()?;
    let is_to_stay = |one: &Left| set_up.iter().any(|set| set.interface == one.interface && set.ingress == one.ingress);
    found.retain(|one| !is_to_stay(one) && Lock::take(&one.interface, one.ingress).is_ok());
    Ok(found)
}

/// Removes qdiscs that were left, so that packets pass unshaped again.
///
/// # Errors
/// [`Error::Held`] if a process shapes there now, [`Error::Kernel`] if the kernel refuses it.
pub fn lift(left: &Left) -> Result<(), Error> {
    let _lock = Lock::take(&left.interface, left.ingress)?;
    sweep(&left.interface, left.ingress)
}
