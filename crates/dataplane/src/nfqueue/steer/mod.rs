//! Rules of the firewall that hand packets to a queue, and write what the marks on them say.
//!
//! nftables comes first; iptables' target NFQUEUE is used where nft is missing or the kernel lacks
//! its `queue` statement. All rules of a link stand in a table, or in chains, with the link's
//! interface and direction in the name: they are put there in one transaction, replace what a
//! killed process left, and are taken away together. No other rule is touched. All rules let
//! packets pass where no program listens (`bypass`), unless the link is to fail closed ([`Fail`]).

mod iptables;
pub mod left;
mod nft;
pub(crate) mod program;
mod ruleset;

use crate::error::Error;
pub(crate) use ruleset::{Ruleset, expected, read, ruleset};

/// What becomes of packets while no program listens at the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fail {
    /// They pass unshaped.
    #[default]
    Open,
    /// They are dropped, but for IPv6's neighbour discovery and for these.
    Closed {
        /// Packets of TCP and UDP from or to these ports pass. While a program listens, they are
        /// queued as all others are.
        except: Vec<u16>,
    },
}

impl Fail {
    /// True if packets are dropped while no program listens.
    pub fn is_closed(&self) -> bool {
        matches!(self, Fail::Closed { .. })
    }
}

/// What the rules are to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steer {
    /// The interface.
    pub interface: String,
    /// True for the packets that come in at it, false for those that leave by it.
    pub ingress: bool,
    /// True if the interface is a port of a bridge.
    pub port: bool,
    /// The queue.
    pub queue: u16,
    /// Every DSCP that the link may write.
    pub dscp: Vec<u8>,
    /// What becomes of packets while no program listens.
    pub fail: Fail,
}

impl Steer {
    fn direction(&self) -> &'static str {
        if self.ingress { "in" } else { "out" }
    }
}

/// The firewall that has the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firewall {
    /// nftables.
    Nft,
    /// iptables and ip6tables.
    Iptables,
}

/// Rules that are in place. Dropping it takes them away.
pub struct Steering {
    steer: Steer,
    firewall: Option<Firewall>,
    /// True if rules that hold packets back stood there before: they do not go because a start has
    /// failed.
    stood: bool,
}

impl Steering {
    /// Puts the rules in place, in the network namespace of the calling thread, where they must be
    /// taken away as well.
    ///
    /// # Errors
    /// [`Error::Steering`] if no firewall can do it; it says what each answered. Nothing is left
    /// then.
    pub fn new(steer: Steer) -> Result<Steering, Error> {
        if let Some(odd) = steer.interface.chars().find(|c| !(c.is_ascii_alphanumeric() || "._-+@".contains(*c))) {
            return Err(Error::Link(format!(
                "interface `{}`: a rule cannot name it, because of the `{odd}`; rename it with `ip link set dev NAME \
                 name OTHER`",
                steer.interface
            )));
        }
        let stood = steer.fail.is_closed() && (nft::is_there(&steer) || iptables::is_there(&steer));
        let mut steering = Steering { steer, firewall: Some(Firewall::Nft), stood };
        let nft = match nft::set(&steering.steer) {
            Ok(()) => {
                // A process that had to use iptables may have left its rules.
                let _ = iptables::remove(&steering.steer);
                return Ok(steering);
            }
            Err(error) => error,
        };
        steering.firewall = Some(Firewall::Iptables);
        match iptables::set(&steering.steer) {
            Ok(()) => Ok(steering),
            // What was put in place before the error is taken away when `steering` is dropped.
            Err(iptables) => Err(Error::Steering(format!(
                "no rule could hand packets to altq (nft: {nft}; iptables: {iptables}); install nftables, or iptables, \
                 and use a kernel with CONFIG_NFT_QUEUE or CONFIG_NETFILTER_XT_TARGET_NFQUEUE"
            ))),
        }
    }

    /// What the rules are to do.
    pub fn steer(&self) -> &Steer {
        &self.steer
    }

    /// The firewall that has the rules.
    pub fn firewall(&self) -> Option<Firewall> {
        self.firewall
    }

    /// Leaves the rules where they are, for another process to take away ([`sweep`]). What they do
    /// where nobody listens, [`Fail`] says.
    pub fn leave(&mut self) {
        self.firewall = None;
    }

    /// Takes the rules away.
    ///
    /// # Errors
    /// [`Error::Steering`] with the firewall's answer.
    pub fn remove(&mut self) -> Result<(), Error> {
        match self.firewall.take() {
            None => Ok(()),
            Some(Firewall::Nft) => nft::remove(&self.steer),
            Some(Firewall::Iptables) => iptables::remove(&self.steer),
        }
        .map_err(|error| {
            Error::Steering(format!("the rules for {} could not be taken away: {error}", self.steer.interface))
        })
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        if !self.stood {
            let _ = self.remove();
        }
    }
}

/// Takes away the rules that a killed process has left for an interface and direction, in the
/// network namespace of the calling thread. Nothing happens if there are none.
///
/// # Errors
/// [`Error::Steering`] if rules are there and stay.
pub fn sweep(interface: &str, ingress: bool) -> Result<(), Error> {
    let mut left = Vec::new();
    // Whether it was a port when the rules were made is not known any more.
    for port in [false, true] {
        let (interface, dscp, fail) = (interface.to_owned(), Vec::new(), Fail::Open);
        let steer = Steer { interface, ingress, port, queue: 0, dscp, fail };
        if nft::is_there(&steer) {
            left.extend(nft::remove(&steer).err());
        }
        if !port {
            // The chains of iptables have the same names for both. Without iptables there are none.
            let _ = iptables::remove(&steer);
        }
    }
    match left.first() {
        None => Ok(()),
        Some(error) => Err(Error::Steering(format!("the rules for {interface} could not be taken away: {error}"))),
    }
}

/// True if the interface is a port of a bridge.
pub fn is_port(interface: &str) -> bool {
    // /sys may show the interfaces of another network namespace; `ip` asks in this one. That of
    // BusyBox has no details.
    match program::run("ip", &["-d", "link", "show", "dev", interface], "") {
        Ok(text) => text.split_whitespace().any(|word| word == "bridge_slave"),
        Err(_) => std::path::Path::new("/sys/class/net").join(interface).join("brport").exists(),
    }
}

/// A line if local packets whose DSCP or ECN is written may take another way, because iptables has
/// them routed again when their mark changes.
pub fn reroutes(interface: &str) -> Option<String> {
    iptables::reroutes(interface)
}

/// What would carry packets of an interface past the rules, one line each.
pub fn bypasses(interface: &str) -> Vec<String> {
    let mut notes = nft::flow_tables(interface);
    notes.extend(iptables::flow_offload());
    notes
}

#[cfg(test)]
mod tests {
    use super::program::{UNTIL_FAULT, run};
    use super::*;
    use crate::netns::Namespace;

    /// All rules of the namespace, without counters.
    fn rules() -> String {
        let lists: [(&str, &[&str]); 3] = [
            ("iptables", &["-t", "mangle", "-S"]),
            ("ip6tables", &["-t", "mangle", "-S"]),
            ("nft", &["list", "ruleset"]),
        ];
        lists.map(|(program, arguments)| run(program, arguments, "").unwrap_or_default()).concat()
    }

    /// Whichever program fails while rules are put in place or replaced, either all of them stand,
    /// or none does. Where the failure is in taking them away, it is said.
    #[test]
    fn a_fault_at_any_call_leaves_nothing_half_set_up() {
        let Ok(namespace) = Namespace::new() else { return eprintln!("SKIPPED: no network namespaces here") };
        let test = || {
            let (interface, dscp, fail) = ("wan".into(), vec![10], Fail::Open);
            let steer = Steer { interface, ingress: false, port: false, queue: 24000, dscp, fail };
            let Ok(mut first) = Steering::new(steer.clone()) else {
                return eprintln!("SKIPPED: no firewall here hands packets to a queue");
            };
            let whole = rules();
            first.remove().unwrap();
            let clean = rules();
            assert!(whole.contains("altq-out-wan") && !clean.contains("altq"), "{whole}\n{clean}");
            let mut failed = 0;
            for call in 0.. {
                UNTIL_FAULT.set(call);
                let steering = Steering::new(steer.clone());
                let reached = UNTIL_FAULT.get() < 0;
                UNTIL_FAULT.set(-1);
                match steering {
                    Ok(mut steering) => {
                        // nft may have failed where iptables then did it.
                        assert!(rules().contains("altq-out-wan"), "call {call}");
                        steering.remove().unwrap();
                    }
                    Err(error) => {
                        failed += 1;
                        assert!(error.to_string().contains("a fault"), "{error}");
                    }
                }
                assert!(!rules().contains("altq"), "call {call}: {}", rules());
                if !reached {
                    break;
                }
            }
            eprintln!("{failed} starts failed");
            let mut last = Steering::new(steer.clone()).unwrap();
            UNTIL_FAULT.set(0);
            let said = last.remove().unwrap_err().to_string();
            UNTIL_FAULT.set(-1);
            assert!(said.contains("could not be taken away: a fault"), "{said}");
            // The next start of the link replaces what is left.
            Steering::new(steer.clone()).unwrap().remove().unwrap();
            assert!(!rules().contains("altq"));
            // What holds packets back stays where it stood before, also if the next start fails.
            let closed = Steer { fail: Fail::Closed { except: vec![22] }, ..steer };
            let mut first = Steering::new(closed.clone()).unwrap();
            let whole = rules();
            assert!(whole.contains("22"), "{whole}");
            first.leave();
            drop(first);
            drop(Steering::new(closed).unwrap());
            assert_eq!(rules(), whole);
            let found = left::left();
            assert_eq!(found, [left::Left { interface: "wan".to_owned(), ingress: false }]);
            left::lift(&found[0]).unwrap();
            assert!(!rules().contains("altq") && left::left().is_empty(), "{}", rules());
        };
        if let Err(error) = namespace.run(test) {
            eprintln!("SKIPPED: {error}");
        }
    }
}
