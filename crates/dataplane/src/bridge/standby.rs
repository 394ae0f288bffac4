//! The kernel's own bridge between two interfaces, for the time in which no loop forwards their
//! frames.

use std::path::Path;

use altq_config::Link;

use crate::nfqueue::steer::program::run;
use crate::ways::{Way, ways};

/// With what the names of these bridges begin.
const PREFIX: &str = "altqbr";
/// With what their aliases begin; the number of the process follows.
const ALIAS: &str = "altq-";

/// Bridges of the kernel in place of altq's. Dropping it removes them.
#[derive(Debug)]
pub struct Standby {
    names: Vec<String>,
}

impl Standby {
    /// Makes a bridge of the kernel for each pair of interfaces that the links bridge, in the
    /// network namespace of the calling thread. No loop may forward between them. Without such
    /// links nothing is done.
    ///
    /// # Errors
    /// Why the kernel cannot bridge a pair: `ip` is missing, or an interface is gone or belongs to
    /// another bridge. Then nothing is left.
    pub fn new(links: &[&Link]) -> Result<Standby, String> {
        let mut standby = Standby { names: Vec::new() };
        for (from, to) in pairs(links) {
            let name = name(from, to);
            let _ = remove(&name);
            for interface in [from, to] {
                let shown = run("ip", &["-d", "link", "show", "dev", interface], "")?;
                if shown.split_whitespace().any(|word| word == "master") {
                    return Err(format!("{interface} belongs to another device"));
                }
            }
            standby.names.push(name.clone());
            run("ip", &["-batch", "-"], &commands(&name, from, to))?;
        }
        Ok(standby)
    }

    /// Removes what a killed process has left.
    pub fn sweep(links: &[&Link]) {
        for (from, to) in pairs(links) {
            // An error usually means that there is none.
            let _ = remove(&name(from, to));
        }
    }
}

/// Removes the bridges that processes which are no more have left in the network namespace of the
/// calling thread, and returns their names.
pub fn sweep_left() -> Vec<String> {
    let bridges = run("ip", &["-o", "link", "show", "type", "bridge"], "").unwrap_or_default();
    let left = left(&bridges, |process| Path::new("/proc").join(process).exists());
    left.into_iter().filter(|name| remove(name).is_ok()).map(str::to_owned).collect()
}

/// The names of altq's bridges in the output of `ip -o link show`, without those whose process, in
/// the alias of the bridge, is there. A line is `5: NAME: <…> … alias altq-PROCESS`.
fn left(text: &str, is_there: impl Fn(&str) -> bool) -> Vec<&str> {
    let of = |line: &str| -> Option<bool> {
        let process = line.split(ALIAS).nth(1)?.split_whitespace().next()?;
        Some(is_there(process))
    };
    let named = text.lines().filter_map(|line| Some((line.split(": ").nth(1)?, line)));
    let ours = named.filter(|(name, line)| name.starts_with(PREFIX) && of(line) != Some(true));
    ours.map(|(name, _)| name).collect()
}

impl Drop for Standby {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = remove(name);
        }
    }
}

/// The pairs of interfaces that links bridge, each once.
fn pairs<'a>(links: &[&'a Link]) -> Vec<(&'a str, &'a str)> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for way in ways(links).unwrap_or_default() {
        if let Way::Bridge { from, to, .. } = way
            && !pairs.contains(&(to, from))
        {
            pairs.push((from, to));
        }
    }
    pairs
}

/// The name of the bridge of a pair: 14 characters with a hash (FNV-1a). The kernel allows 15.
fn name(from: &str, to: &str) -> String {
    let bytes = from.bytes().chain([0]).chain(to.bytes());
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{PREFIX}{hash:08x}")
}

/// The bridge has no spanning tree and no multicast snooping, so it forwards at once, and
/// everything that altq forwards. It has no address, so the host cannot be reached by it.
fn commands(name: &str, from: &str, to: &str) -> String {
    let process = std::process::id();
    format!(
        "link add name {name} type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n\
         link set dev {name} addrgenmode none\nlink set dev {name} alias {ALIAS}{process}\n\
         link set dev {from} master {name}\nlink set dev {to} master {name}\n\
         link set dev {name} up\n"
    )
}

fn remove(name: &str) -> Result<(), String> {
    run("ip", &["link", "del", "dev", name], "").map(drop)
}

#[cfg(test)]
mod tests {
    use altq_config::{Language, Policy, parse_str};

    use super::*;
    use crate::netns::Namespace;

    fn policy(devices: &[&str]) -> Policy {
        let link = |(at, device): (usize, &&str)| {
            format!("link l{at} {{ {device}  rate 1Mbit/s  scheduler fifo  class all {{ default }} }}\n")
        };
        let text: String = devices.iter().enumerate().map(link).collect();
        parse_str(&text, "test.altq", Language::Native).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_pair_is_bridged_once_whatever_its_directions() {
        let policy = policy(&["device bridge a b", "device bridge b a", "device bridge c d", "device eth0"]);
        let links: Vec<&Link> = policy.links.iter().collect();
        assert_eq!(pairs(&links), [("a", "b"), ("c", "d")]);
        assert!(name("a", "b") != name("ab", "") && name("fifteen-letters", "another-fifteen").len() <= 15);
    }

    #[test]
    fn the_kernel_takes_a_pair_and_gives_it_back() {
        let Ok(namespace) = Namespace::new() else { return eprintln!("SKIPPED: no network namespaces here") };
        let test = || {
            let wires = "link add name a type veth peer name pa\nlink add name b type veth peer name pb\n";
            if let Err(error) = run("ip", &["-batch", "-"], wires) {
                return eprintln!("SKIPPED: no veth here ({error})");
            }
            let policy = policy(&["device bridge a b"]);
            let links: Vec<&Link> = policy.links.iter().collect();
            let standby = match Standby::new(&links) {
                Ok(standby) => standby,
                Err(error) => return eprintln!("SKIPPED: no bridges here ({error})"),
            };
            let show = || run("ip", &["-d", "link", "show"], "").unwrap();
            let name = name("a", "b");
            assert_eq!(show().matches(&format!("master {name}")).count(), 2, "{}", show());
            // It is not left as long as this process is there.
            assert!(sweep_left().is_empty(), "{}", show());
            let bridges = run("ip", &["-o", "link", "show", "type", "bridge"], "").unwrap();
            assert_eq!(left(&bridges, |_| false), [name.as_str()], "{bridges}");
            drop(standby);
            assert!(!show().contains(&name), "{}", show());
            // A port of another bridge is left there.
            run("ip", &["-batch", "-"], "link add name other type bridge\nlink set dev b master other\n").unwrap();
            let refused = Standby::new(&links).unwrap_err();
            assert!(refused.contains("b belongs to another device"), "{refused}");
            assert!(!show().contains(&name), "{}", show());
        };
        if let Err(error) = namespace.run(test) {
            eprintln!("SKIPPED: {error}");
        }
    }
}
