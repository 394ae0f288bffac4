//! Rules that a killed process has left, found by the names of their tables and chains, whatever
//! its policy was.

use super::program::{is_absent, run};
use super::{iptables, sweep};
use crate::error::Error;
use crate::lock::Lock;

/// An interface and a direction for which there are rules, but no process that shapes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Left {
    /// The interface.
    pub interface: String,
    /// True for what comes in there.
    pub ingress: bool,
}

/// All rules that were left in the network namespace of the calling thread.
///
/// # Errors
/// [`Error::NotPermitted`] or [`Error::Steering`] if a firewall does not tell what rules it has.
pub fn left() -> Result<Vec<Left>, Error> {
    let tables = match run("nft", &["list", "tables"], "") {
        Err(said) if is_absent(&said) => String::new(),
        tables => tables.map_err(unknown)?,
    };
    let tables = tables.lines().filter_map(|line| line.strip_prefix("table ")?.split_once(' ')).map(|(_, name)| name);
    let mut found: Vec<Left> = tables.filter_map(|name| read(&decoded(name))).collect();
    let chains = iptables::ours().map_err(unknown)?;
    // A link has a second chain, whose name is longer.
    let first = |chain: &&String| chain.strip_suffix(".w").is_none_or(|first| !chains.iter().any(|one| one == first));
    found.extend(chains.iter().filter(first).filter_map(|chain| read(chain)));
    found.sort();
    found.dedup();
    found.retain(|one| Lock::take(&one.interface, one.ingress).is_ok());
    Ok(found)
}

/// The error of a firewall that has said this instead of its rules.
fn unknown(said: String) -> Error {
    if ["not permitted", "Permission denied", "must be root"].iter().any(|words| said.contains(words)) {
        let source = std::io::Error::from_raw_os_error(libc::EPERM);
        return Error::NotPermitted { what: "reading the rules of the firewall", right: "CAP_NET_ADMIN", source };
    }
    Error::Steering(format!("whether rules were left is not known: {said}"))
}

/// Removes rules that were left, so that packets pass again.
///
/// # Errors
/// [`Error::Held`] if a process shapes there now, [`Error::Steering`] if the rules cannot be
/// removed.
pub fn lift(left: &Left) -> Result<(), Error> {
    let _lock = Lock::take(&left.interface, left.ingress)?;
    sweep(&left.interface, left.ingress)
}

/// The interface and the direction in the name of a table or a chain.
fn read(name: &str) -> Option<Left> {
    let (direction, interface) = name.strip_prefix("altq-")?.split_once('-')?;
    let ingress = match direction {
        "in" => true,
        "out" => false,
        _ => return None,
    };
    (!interface.is_empty()).then(|| Left { interface: interface.to_owned(), ingress })
}

/// Decodes the characters in the name of a table that nft does not allow in names.
fn decoded(name: &str) -> String {
    name.replace("_2b", "+").replace("_40", "@")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_read_from_names() {
        let left = |interface: &str, ingress| Some(Left { interface: interface.to_owned(), ingress });
        assert_eq!(read("altq-out-br-lan"), left("br-lan", false));
        assert_eq!(read(&decoded("altq-in-a_2bb")), left("a+b", true));
        for name in ["altq-ask", "altq-up-eth0", "fw4", "altq-in-"] {
            assert_eq!(read(name), None, "{name}");
        }
    }
}
