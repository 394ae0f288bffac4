//! Rules of the firewall that hand packets to a queue, and write DSCP and ECN by the packets'
//! marks.
//!
//! nftables comes first; iptables' target NFQUEUE is used where nft is missing or the kernel lacks
//! its `queue` statement. All rules of a link are in one table, or in chains, with the link's
//! interface and direction in the name. They are set in one transaction, replace what a killed
//! process left, and are removed together. No other rule is touched. All rules let packets pass
//! while no program listens (`bypass`), unless the link must fail closed ([`Fail`]).

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
    /// They are dropped, except IPv6's neighbour discovery and these.
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

/// What the rules must do.
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

/// Rules that are set. Dropping it removes them.
pub struct Steering {
    steer: Steer,
    firewall: Option<Firewall>,
    /// True if rules that hold packets back existed before: then they stay even if this start
    /// fails.
    stood: bool,
    /// Why rules of the other firewall that were left may still be there.
    uncleared: Option<String>,
}

impl Steering {
    /// Sets the rules in the network namespace of the calling thread. They must be removed there as
    /// well.
    ///
    /// # Errors
    /// [`Error::Steering`] with the answers of all firewalls, if none can do it. Then no rules are
    /// left.
    pub fn new(steer: Steer) -> Result<Steering, Error> {
        nameable(&steer.interface)?;
        let stood = steer.fail.is_closed() && (nft::is_there(&steer) || iptables::is_there(&steer));
        let mut steering = Steering { steer, firewall: Some(Firewall::Nft), stood, uncleared: None };
        let nft = match nft::set(&steering.steer) {
            Ok(()) => {
                // An earlier process may have left rules in iptables. What shapes must not fail for
                // another program that is at work there.
                steering.uncleared = iptables::clear(&steering.steer).err();
                return Ok(steering);
            }
            Err(error) => error,
        };
        steering.firewall = Some(Firewall::Iptables);
        match iptables::set(&steering.steer) {
            Ok(()) => Ok(steering),
            // Rules that were set before the error are removed when `steering` is dropped.
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

    /// What iptables has said if it did not remove the rules that an earlier process may have left
    /// there.
    pub fn uncleared(&self) -> Option<&str> {
        self.uncleared.as_deref()
    }

    /// The firewall that has the rules.
    pub fn firewall(&self) -> Option<Firewall> {
        self.firewall
    }

    /// Leaves the rules, for another process to remove ([`sweep`]). [`Fail`] decides what they do
    /// while nobody listens.
    pub fn leave(&mut self) {
        self.firewall = None;
    }

    /// Removes the rules.
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

/// Refuses an interface that rules cannot name.
///
/// # Errors
/// [`Error::Link`].
pub fn nameable(interface: &str) -> Result<(), Error> {
    match interface.chars().find(|c| !(c.is_ascii_alphanumeric() || "._-+@".contains(*c))) {
        None => Ok(()),
        Some(odd) => Err(Error::Link(format!(
            "interface `{interface}`: a rule cannot name it, because of the `{odd}`; rename it with `ip link set dev \
             NAME name OTHER`"
        ))),
    }
}

/// Sets rules again that another program has removed, in the network namespace of the calling
/// thread. The process that shapes the link removes them when it ends, as if it had set them.
///
/// # Errors
/// What the firewall's program says.
pub(crate) fn set_again(steer: &Steer, by: Firewall) -> Result<(), String> {
    match by {
        Firewall::Nft => nft::set(steer),
        Firewall::Iptables => iptables::set(steer),
    }
}

/// Removes what [`set_again`] has set.
///
/// # Errors
/// What the firewall's program says.
pub(crate) fn unset(steer: &Steer, by: Firewall) -> Result<(), String> {
    match by {
        Firewall::Nft => nft::remove(steer),
        Firewall::Iptables => iptables::remove(steer),
    }
}

/// Removes the rules that a killed process has left for an interface and direction, if any, in the
/// network namespace of the calling thread.
///
/// # Errors
/// [`Error::Steering`] if there are rules that cannot be removed, or a firewall is kept from
/// telling whether there are any.
pub fn sweep(interface: &str, ingress: bool) -> Result<(), Error> {
    let mut left = Vec::new();
    // It is no longer known whether the interface was a port when the rules were made.
    for port in [false, true] {
        let (interface, dscp, fail) = (interface.to_owned(), Vec::new(), Fail::Open);
        let steer = Steer { interface, ingress, port, queue: 0, dscp, fail };
        left.extend(nft::clear(&steer).err());
        if !port {
            // The chains of iptables have the same names in both cases.
            left.extend(iptables::clear(&steer).err());
        }
    }
    match left.first() {
        None => Ok(()),
        Some(error) => Err(Error::Steering(format!("the rules for {interface} could not be taken away: {error}"))),
    }
}

/// True if the interface is a port of a bridge.
pub fn is_port(interface: &str) -> bool {
    // /sys may show the interfaces of another network namespace; `ip` asks in this one. BusyBox's
    // `ip` does not show details.
    match program::run("ip", &["-d", "link", "show", "dev", interface], "") {
        Ok(text) => text.split_whitespace().any(|word| word == "bridge_slave"),
        Err(_) => std::path::Path::new("/sys/class/net").join(interface).join("brport").exists(),
    }
}

/// A line if local packets whose DSCP or ECN is written may take another route, because with
/// iptables they are routed again when their mark changes.
pub fn reroutes(interface: &str) -> Option<String> {
    iptables::reroutes(interface)
}

/// What makes packets of an interface bypass the rules, one line each.
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

    /// Whichever program fails while rules are set or replaced, either all rules exist afterwards
    /// or none. If removing them fails, that is reported.
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
                        // nft may have failed, and iptables set the rules.
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
            // Rules that hold packets back stay even if the next start fails.
            let closed = Steer { fail: Fail::Closed { except: vec![22] }, ..steer };
            let mut first = Steering::new(closed.clone()).unwrap();
            let whole = rules();
            assert!(whole.contains("22"), "{whole}");
            first.leave();
            drop(first);
            drop(Steering::new(closed).unwrap());
            assert_eq!(rules(), whole);
            let found = left::left().unwrap();
            assert_eq!(found, [left::Left { interface: "wan".to_owned(), ingress: false }]);
            // Whichever program fails while they are removed, that is said.
            for call in 0..4 {
                UNTIL_FAULT.set(call);
                let lifted = left::lift(&found[0]);
                UNTIL_FAULT.set(-1);
                assert!(lifted.is_err_and(|error| error.to_string().contains("a fault")), "call {call}");
            }
            UNTIL_FAULT.set(0);
            assert!(left::left().is_err_and(|error| error.to_string().contains("a fault")));
            UNTIL_FAULT.set(-1);
            left::lift(&found[0]).unwrap();
            assert!(!rules().contains("altq") && left::left().unwrap().is_empty(), "{}", rules());
        };
        if let Err(error) = namespace.run(test) {
            eprintln!("SKIPPED: {error}");
        }
    }
}
