//! Rules of the firewall that hand packets to a queue, and write what the marks on them say.
//!
//! nftables comes first; iptables' target NFQUEUE is used where nft is missing or the kernel lacks
//! its `queue` statement. All rules of a link stand in a table, or in chains, with the link's
//! interface and direction in the name: they are put there in one transaction, replace what a
//! killed process left, and are taken away together. No other rule is touched. All rules let
//! packets pass where no program listens (`bypass`).

mod iptables;
mod nft;
mod program;

use crate::error::Error;

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
        let mut steering = Steering { steer, firewall: Some(Firewall::Nft) };
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

    /// The firewall that has the rules.
    pub fn firewall(&self) -> Option<Firewall> {
        self.firewall
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
        let _ = self.remove();
    }
}

/// What would carry packets of an interface past the rules, one line each.
pub fn bypasses(interface: &str) -> Vec<String> {
    let mut notes = nft::flow_tables(interface);
    notes.extend(iptables::flow_offload());
    notes
}
