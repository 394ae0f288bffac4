//! A link on one interface, of any router, host or bridge as it is: `device IF` shapes what leaves
//! by it, `device IF ingress` what comes in at it.
//!
//! A rule of the firewall hands each packet to a queue of the kernel ([`steer`]). The packet waits
//! there. altq receives its headers ([`message`]), lets the engine decide, and answers with a
//! verdict when the packet may go on, or is dropped ([`edge`]). While no program listens, the rule
//! lets packets pass unshaped.

pub mod edge;
pub mod marks;
pub mod message;
pub mod steer;
mod waiting;

use altq_config::Link;
use altq_engine::settings::{Limit, Value};
use altq_engine::units::Rate;

use crate::error::Error;
use crate::lock::Lock;
use crate::running::{Starting, channel, find};
use crate::shaper::{self, Shaper, Tuning};
use edge::{Place, QueueEdge};
use steer::{Firewall, Steer, Steering};

/// From this rate on super-packets stay whole. A super-packet of 64 KB takes a millisecond at it;
/// below, the kernel segments them before they are queued.
const WHOLE: Rate = Rate::bit_s(500_000_000);
/// The fewest bytes of packets that may wait, whatever the limits of the queues are.
const FEWEST: u64 = 8 << 20;

/// Adds the loop of a link.
pub(crate) fn add(
    starting: &mut Starting,
    name: &str,
    ingress: bool,
    link: &Link,
    tuning: Tuning,
) -> Result<(), Error> {
    find(name)?;
    let lock = Lock::take(name, ingress)?;
    let place = Place {
        interface: name,
        named: &link.spec.rules.interfaces,
        frames: shaper::frames(link, tuning.memory),
        bytes: bytes(link).clamp(FEWEST, (tuning.memory as u64).max(FEWEST)),
        whole: link.spec.rate >= WHOLE,
    };
    let edge = QueueEdge::open(&place, starting.stop.clone())?;
    let queue = edge.queue();
    // Each packet tells by which interface it came; on ingress it is this one.
    let mut shaper = Shaper::new(link, if ingress { name } else { "" }, edge, tuning)?;
    shaper.listen(channel(&mut starting.senders, link));
    let port = std::path::Path::new("/sys/class/net").join(name).join("brport").exists();
    let mut steering = Steering::new(Steer { interface: name.to_owned(), ingress, port, queue, dscp: dscps(link) })?;
    let (does, by) = (
        if ingress { "what comes in at" } else { "what leaves by" },
        match steering.firewall() {
            Some(Firewall::Iptables) => "iptables",
            _ => "nft",
        },
    );
    starting.notes.push(format!("link {}: {does} {name}, by queue {queue} of the kernel and rules of {by}", link.name));
    starting.notes.extend(steer::bypasses(name));
    let direction = if ingress { '<' } else { '>' };
    starting.add(
        format!("altq {direction}{name}"),
        Box::new(move |snapshots| {
            let _lock = lock;
            let result = shaper.run(snapshots);
            // First the rules go, then the queue: what arrives meanwhile waits in the queue, and is
            // let go with it.
            let removed = steering.remove();
            drop(shaper);
            result.and(removed)
        }),
    );
    Ok(())
}

/// What only a new start can change from one link to another, besides what holds for all paths.
pub(crate) fn fixed(from: &Link, to: &Link) -> Option<&'static str> {
    if (from.spec.rate >= WHOLE) != (to.spec.rate >= WHOLE) {
        return Some("whether the kernel segments super-packets, which it does below 500 Mbit/s");
    }
    let written = dscps(from);
    dscps(to).iter().any(|dscp| !written.contains(dscp)).then_some("which DSCP the firewall's rules write")
}

/// Bytes that the link's queues hold together when all are full.
fn bytes(link: &Link) -> u64 {
    let mtu = u64::from(link.spec.mtu);
    let limits = link.spec.classes.iter().filter_map(|class| class.queue.as_ref()).map(|queue| match queue.limit {
        Limit::Packets(packets) => u64::from(packets).saturating_mul(mtu),
        Limit::Bytes(bytes) => u64::from(bytes),
    });
    limits.fold(0, u64::saturating_add)
}

/// Every DSCP that a meter of the link may write: the numbers among its words.
fn dscps(link: &Link) -> Vec<u8> {
    let words = link.spec.classes.iter().flat_map(|class| class.settings.iter());
    let mut found: Vec<u8> = words
        .filter(|(word, _)| word.starts_with("meter "))
        .filter_map(|(_, value)| match value {
            Value::Int(dscp) => u8::try_from(dscp).ok().filter(|dscp| *dscp < 64),
            _ => None,
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use altq_config::{Language, parse_str};

    use super::*;

    #[test]
    fn what_may_wait_and_what_may_be_written_follow_from_the_classes() {
        let text = "link wan { device eth0  rate 10Mbit/s  scheduler fifo  mtu 1000
            class all { default  queue drop_tail { limit 30packets }
                meter trtcm { cir 1Mbit/s  cbs 5000bytes  pir 2Mbit/s  pbs 5000bytes
                    green dscp af11  yellow dscp af12  red drop } } }";
        let policy = parse_str(text, "test.altq", Language::Native).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((dscps(&policy.links[0]), bytes(&policy.links[0])), (vec![10, 12], 30_000));
    }
}
