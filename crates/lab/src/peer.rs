//! Puts the kernel in altq's place, for comparison: its bridge, alone or with one of its queueing
//! disciplines on the outgoing interface.

use anyhow::Context;

use super::topology::{self, INSIDE, OUTSIDE, Topology, Unsupported};

/// Joins the two wires of the middle namespace with the kernel's bridge. `tc`, if given, holds
/// lines for `tc -batch` that make a queueing discipline on the interface towards the sinks; `$DEV`
/// stands for that interface.
///
/// # Errors
/// [`Unsupported`] if the kernel lacks the bridge or the discipline, or `tc` is missing.
pub fn join(topology: &Topology, tc: Option<&str>) -> anyhow::Result<()> {
    // Without spanning tree and multicast snooping the bridge forwards from the first packet on,
    // and sends no packets of its own.
    let batch = format!(
        "link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n\
         link set dev br0 addrgenmode none up\n\
         link set dev {INSIDE} master br0\n\
         link set dev {OUTSIDE} master br0\n"
    );
    topology::ip(topology.middle(), &batch).map_err(|error| lacking(error, "a bridge (CONFIG_BRIDGE)"))?;
    if let Some(lines) = tc {
        topology::tc(topology.middle(), &lines.replace("$DEV", OUTSIDE))
            .map_err(|error| lacking(error, "this queueing discipline"))
            .context("the peer's tc lines")?;
    }
    Ok(())
}

fn lacking(error: anyhow::Error, what: &str) -> anyhow::Error {
    let text = error.to_string();
    if ["Unknown device type", "not supported", "kind is unknown"].iter().any(|said| text.contains(said)) {
        return Unsupported(format!("this kernel lacks {what}: {text}")).into();
    }
    error
}

/// Lines for `tc` that make one HTB class of this rate for all traffic. The kernel charges packets
/// with their Ethernet header.
pub fn one_htb_class(rate_bit_s: u64) -> String {
    format!(
        "qdisc add dev $DEV root handle 1: htb default 1\n\
         class add dev $DEV parent 1: classid 1:1 htb rate {rate_bit_s}bit quantum 60000\n"
    )
}
