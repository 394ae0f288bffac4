//! Where altq runs: the network namespace that is looked at, and the rights that it takes.

use altq_control::{Code, Fault};
use altq_dataplane::netns::Namespace;
use rustix::thread::{CapabilitySet, capabilities};

/// Whether this process may list rules of the firewall, and make a namespace to compare them in.
///
/// # Errors
/// It may not.
pub fn may_look() -> Result<(), Fault> {
    let needed = CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN;
    // Where the kernel does not tell it, what follows fails with its own message.
    match capabilities(None) {
        Ok(sets) if !sets.effective.contains(needed) => {
            let message = "to list rules and programs, and to compare them, needs CAP_NET_ADMIN and CAP_SYS_ADMIN";
            Err(Fault::new(Code::NotPermitted, message).help("run it with sudo"))
        }
        _ => Ok(()),
    }
}

/// Moves this thread into the network namespace of a process, unless it is there. 0: a process that
/// is not known; then the namespace is taken to be the same.
///
/// # Errors
/// It is another one, which this process may not enter.
pub fn enter(process: i32) -> Result<(), Fault> {
    let name = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/net")).ok();
    let theirs = name(&process.to_string());
    if process <= 0 || theirs.is_none() || theirs == name("thread-self") {
        return Ok(());
    }
    Namespace::of(process).and_then(|namespace| namespace.enter()).map_err(|error| {
        let message = format!("altq runs in another network namespace, which cannot be entered: {error}");
        let help = format!("as root: nsenter --net=/proc/{process}/ns/net altq verify");
        Fault::new(Code::NotPermitted, message).help(help)
    })
}
