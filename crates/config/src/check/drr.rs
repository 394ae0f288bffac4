//! What a class of `drr` should keep to.

use altq_engine::spec::ClassId;

use crate::diagnostic::{Diagnostic, Findings};
use crate::policy::Link;

/// With a quantum of at least the largest packet every turn sends something (Shreedhar and Varghese
/// 1996): constant time.
pub fn class(link: &Link, id: ClassId, findings: &mut Findings) {
    let class = &link.classes[id as usize];
    let largest = u64::from(link.spec.overhead.charge(link.spec.mtu));
    if let Some(quantum) = link.spec.classes[id as usize].settings.bytes("quantum").filter(|quantum| *quantum < largest)
    {
        let message = format!(
            "the quantum of `{}`, {quantum} bytes, is less than the largest packet, {largest} on the wire: a packet \
             may take {} rounds",
            class.name,
            largest.div_ceil(quantum.max(1)),
        );
        let help = format!("it works, but takes longer; quanta of at least {largest} in the same proportions do not");
        findings.push(Diagnostic::warning("small-quantum", class.place("quantum"), message).help(help));
    }
}
