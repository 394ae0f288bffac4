//! Reads back what a link has set up on the host, and reports what differs from what was asked for.
//!
//! The check runs in a separate process. From the shaping process it takes only what that process
//! asked for ([`SetUp`]). Firewall rules are compared line by line with the listing that the same
//! firewall program gives in an empty namespace. Qdiscs of the kernel are compared with the policy.

mod device;
mod steering;

use altq_config::{Device, Link, Path};

use crate::bridge::hook;
use crate::kernel;
use crate::nfqueue::steer::{Firewall, Steer};
use crate::sys::bpf;
use crate::sys::interface::Interface;

/// What a link has set up on the host when it began to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetUp {
    /// The rules that hand packets over; `None`: there are none.
    pub steered: Option<Steered>,
    /// The programs that keep frames from the kernel's own stack.
    pub guards: Vec<Guard>,
    /// Its interfaces as they were set then.
    pub devices: Vec<Settings>,
}

/// Rules that hand packets to a queue of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steered {
    /// What they are to do.
    pub steer: Steer,
    /// The firewall that has them.
    pub firewall: Firewall,
    /// The number of the netlink socket that listens at the queue; 0 if it is not known.
    pub owner: u32,
}

/// A program at the ingress hook of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The interface.
    pub interface: String,
    /// The program's name, as the kernel lists it.
    pub program: String,
}

impl Guard {
    /// The program that drops what comes in.
    pub const DROPS: &str = "altq_drop";
    /// The program that drops what comes in until a deadline, which altq keeps renewing, and
    /// forwards it after the deadline.
    pub const FORWARDS: &str = "altq_forward";
}

/// What somebody may set at an interface while links run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The interface.
    pub name: String,
    /// Packets that its own queue holds (txqueuelen); `None`: the kernel does not say it.
    pub queue_length: Option<u32>,
    /// Its offloads, by ethtool's words; those that it does not tell are left out.
    pub offloads: Vec<(String, bool)>,
}

/// Something that differs from what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What was looked at: one of [`Looked::checks`].
    pub check: &'static str,
    /// Where it is.
    pub place: String,
    /// What was asked for.
    pub expected: String,
    /// What is there.
    pub found: String,
    /// What puts it right.
    pub remedy: String,
}

/// The result of [`look`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// What was looked at.
    pub checks: Vec<&'static str>,
    /// What differs.
    pub differences: Vec<Difference>,
    /// What could not be looked at, and why.
    pub unchecked: Vec<(&'static str, String)>,
}

impl Looked {
    fn differs(
        &mut self,
        check: &'static str,
        place: impl Into<String>,
        [expected, found]: [String; 2],
        remedy: impl Into<String>,
    ) {
        let (place, remedy) = (place.into(), remedy.into());
        self.differences.push(Difference { check, place, expected, found, remedy });
    }
}

/// A new start of altq sets everything up anew.
const START_AGAIN: &str = "start altq again (`systemctl restart altq`, or end `altq run` and start it)";

/// How the interfaces of a link are set.
pub(crate) fn settings(link: &Link) -> Vec<Settings> {
    names(link).into_iter().filter_map(device::settings).collect()
}

/// The interfaces of a link.
fn names(link: &Link) -> Vec<&str> {
    match &link.device {
        Some(Device::Interface { name, .. }) => vec![name.as_str()],
        Some(Device::Bridge { from, to }) => vec![from.as_str(), to.as_str()],
        None => Vec::new(),
    }
}

/// Looks at what a link has on the host, in the network namespace of the calling thread. `set_up`
/// is what the process of the link reports to have set up; `None` if no process runs the link.
/// `apply` is the command that corrects the kernel's qdiscs.
pub fn look(link: &Link, set_up: Option<&SetUp>, apply: &str) -> Looked {
    let mut looked = Looked { checks: vec!["device", "rate"], ..Looked::default() };
    for name in names(link) {
        let before = set_up.and_then(|set_up| set_up.devices.iter().find(|settings| settings.name == name));
        device::look(name, link, before, &mut looked);
    }
    let gone = looked.differences.iter().any(|difference| difference.found == device::NONE);
    if let Some(steered) = set_up.and_then(|set_up| set_up.steered.as_ref()) {
        looked.checks.extend(["rules", "queue"]);
        steering::look(steered, &mut looked);
    }
    if let Some(set_up) = set_up.filter(|set_up| !set_up.guards.is_empty()) {
        looked.checks.push("bridge");
        set_up.guards.iter().for_each(|guard| look_at_guard(guard, &mut looked));
    }
    if let (Some(Path::Kernel), Some(Device::Interface { name, ingress })) = (link.path(), &link.device)
        && !gone
    {
        looked.checks.push("kernel");
        match kernel::drifted(name, *ingress, link) {
            Ok(lines) => lines.into_iter().for_each(|line| {
                looked.differs("kernel", name, ["what the policy asks for".to_owned(), line], apply);
            }),
            Err(error) => looked.unchecked.push(("kernel", error.to_string())),
        }
    }
    looked
}

/// Checks that a program is still the first one at the ingress hook of its interface.
fn look_at_guard(guard: &Guard, looked: &mut Looked) {
    let Guard { interface: name, program } = guard;
    // If the interface is gone, `device::look` has reported it already.
    let Ok(interface) = Interface::find(name) else { return };
    // The kernel asks the programs of BPF links first, if it has such links, then filters.
    let programs = match bpf::at_ingress_hook(interface.index) {
        Err(error) if program == Guard::FORWARDS && error.raw_os_error() == Some(libc::EINVAL) => Ok(Vec::new()),
        found => found.map_err(|error| error.to_string()),
    };
    let filters = hook::at(interface.index).map_err(|error| error.to_string());
    match programs.and_then(|first| Ok([first, filters?].concat())) {
        Ok(found) if found.first() == Some(program) => {}
        Ok(found) => {
            let found = if found.is_empty() { "no program".to_owned() } else { found.join(", ") };
            let expected = format!("the program {program}, before all others");
            looked.differs("bridge", format!("the ingress hook of {name}"), [expected, found], START_AGAIN);
        }
        Err(error) => looked.unchecked.push(("bridge", format!("the programs of {name} are not listed: {error}"))),
    }
}

#[cfg(test)]
mod tests;
