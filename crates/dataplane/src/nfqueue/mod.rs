//! A link on one interface of any router, host or bridge, without changes to its network: `device
//! IF` shapes what leaves by it, `device IF ingress` what comes in at it.
//!
//! A rule of the firewall hands each packet to a queue of the kernel ([`steer`]). The packet waits
//! there. altq receives its headers ([`message`]) and lets the engine decide. It sends a verdict
//! when the packet may go on or is dropped ([`edge`]). While no program listens, the rule lets
//! packets pass unshaped, or drops most of them ([`Fail`]).

pub mod edge;
#[cfg(test)]
mod faults;
pub mod marks;
pub mod message;
pub mod steer;
mod waiting;

use std::time::Duration;

use altq_config::Link;
use altq_engine::settings::{Limit, Value};
use altq_engine::spec::ClassSpec;
use altq_engine::units::Rate;

use crate::error::Error;
use crate::kernel;
use crate::lock::Lock;
use crate::running::{Starting, channel, find};
use crate::shaper::{self, Shaper, Tuning};
use crate::verify::Steered;
use edge::{Place, QueueEdge};
use steer::{Fail, Firewall, Steer, Steering};

/// From this rate on super-packets stay whole: one of 64 KB takes a millisecond at it. Below it the
/// kernel segments them before they are queued.
const WHOLE: Rate = Rate::bit_s(500_000_000);
/// At least this many bytes of packets may wait, even if the limits of the queues are lower.
const FEWEST: u64 = 8 << 20;
/// The most bytes of a super-packet.
const SUPER: u64 = 65_536;
/// How long a link that has let its packets through waits until the other links have done so too.
const TOGETHER: Duration = Duration::from_secs(1);

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
    kernel::make_way(name, ingress)?;
    let place = Place {
        interface: name,
        ingress,
        named: &link.spec.rules.interfaces,
        frames: shaper::frames(link, tuning, false),
        bytes: room(link, tuning),
        whole: whole(link),
        passes: !starting.fail.is_closed(),
        spin: starting.spin,
    };
    let stop = starting.stop.for_loop().map_err(|e| Error::of("event descriptors", e))?;
    let edge = QueueEdge::open(&place, stop.clone())?;
    let (queue, tracks) = (edge.queue(), edge.tracks());
    // On egress each packet tells by which interface it came; on ingress that is this one.
    let mut shaper = Shaper::new(link, if ingress { name } else { "" }, edge, tuning)?;
    channel(&mut starting.senders, link, stop, &mut shaper);
    let port = steer::is_port(name);
    let (interface, dscp, fail) = (name.to_owned(), dscps(link), starting.fail.clone());
    let mut steering = Steering::new(Steer { interface, ingress, port, queue, dscp, fail })?;
    if let Some(firewall) = steering.firewall() {
        let steered = Steered { steer: steering.steer().clone(), firewall, owner: shaper.edge().owner() };
        starting.set_up.entry(link.name.clone()).or_default().steered = Some(steered);
    }
    let (does, by) = (
        if ingress { "what comes in at" } else { "what leaves by" },
        match steering.firewall() {
            Some(Firewall::Iptables) => "iptables",
            _ => "nft",
        },
    );
    starting.notes.push(format!("link {}: {does} {name}, by queue {queue} of the kernel and rules of {by}", link.name));
    if let Some(why) = steering.uncleared() {
        let what = "rules that an earlier altq may have left in iptables are still there";
        starting.notes.push(format!("link {}: {what}: {why}", link.name));
    }
    if let Fail::Closed { except } = &starting.fail {
        let ports = except.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        starting.notes.push(format!(
            "link {}: it fails closed: while altq does not shape it, nothing passes except TCP and UDP of the ports \
             {ports}, ARP and neighbour discovery",
            link.name
        ));
    }
    match (steering.firewall(), ingress) {
        (Some(Firewall::Iptables), true) if !tracks => starting.notes.push(format!(
            "link {}: rules and queues see what comes in at {name} before its address is translated (NAT): this \
             kernel does not tell the address behind it (CONFIG_NETFILTER_NETLINK_GLUE_CT), and has no `queue` of \
             nftables",
            link.name
        )),
        (Some(Firewall::Iptables), true) => {}
        (Some(Firewall::Iptables), false) => starting.notes.extend(steer::reroutes(name)),
        // The rules of nftables see packets after the translation.
        _ => shaper.edge().track_no_more(),
    }
    if let Some(note) = unseen(name, port && !ingress, steering.firewall()) {
        starting.notes.push(format!("link {}: {note}", link.name));
    }
    starting.notes.extend(steer::bypasses(name));
    let direction = if ingress { '<' } else { '>' };
    let (stop, holding) = (starting.stop.clone(), starting.holding.one_more());
    // A loop may have ended because another one has failed.
    let leaves = starting.leave_rules || starting.fail.is_closed();
    starting.add(
        format!("altq {direction}{name}"),
        Box::new(move |report| {
            let _lock = lock;
            let result = shaper.edge().hold().and_then(|()| shaper.run(report));
            // First the packets are let through, here and in all other queues. Then the rules are
            // removed, and then the queue. Packets that come meanwhile pass at once.
            shaper.edge().release();
            stop.set();
            holding.wait_for_all(TOGETHER);
            if leaves {
                steering.leave();
            }
            let removed = steering.remove();
            drop(shaper);
            result.and(removed)
        }),
    );
    Ok(())
}

/// What iptables does not see of what leaves by a port of a bridge (`port`).
fn unseen(name: &str, port: bool, firewall: Option<Firewall>) -> Option<String> {
    (port && firewall == Some(Firewall::Iptables)).then(|| {
        format!(
            "iptables sees only what the bridge forwards from port to port: what is routed to hosts at {name}, and \
             what this host sends itself, passes unshaped; nftables with its `queue` statement (CONFIG_NFT_QUEUE) \
             sees all of it"
        )
    })
}

/// True if super-packets stay whole on a link. If the rate adapts, its lowest rate decides, because
/// it may be reached at any time and nobody segments super-packets later. Where a class has a meter
/// none stays whole: each packet on the wire has its own colour.
fn whole(link: &Link) -> bool {
    let coloured = link.spec.classes.iter().any(|class| shaper::colours_packets(&class.settings));
    !coloured && link.adapt.as_ref().map_or(link.spec.rate, |adapt| adapt.from) >= WHOLE
}

/// What only a new start can change from one link to another, in addition to what holds for all
/// paths.
pub(crate) fn fixed(from: &Link, to: &Link, tuning: Tuning) -> Option<&'static str> {
    if whole(from) != whole(to) {
        return Some("whether the kernel segments super-packets: it does below 500 Mbit/s, and for meters");
    }
    if room(to, tuning) > room(from, tuning) {
        return Some("how many bytes its queues hold together, for which there is room since the start");
    }
    let written = dscps(from);
    dscps(to).iter().any(|dscp| !written.contains(dscp)).then_some("which DSCP the firewall's rules write")
}

/// How many bytes of a link's packets may wait: the sum of what its queues can hold, including
/// classes to come, so that no queue is full because of another; but at most the memory for them.
fn room(link: &Link, tuning: Tuning) -> u64 {
    let to_come = (tuning.room as u64).saturating_mul(longest(link));
    bytes(link).saturating_add(to_come).clamp(FEWEST, (tuning.memory as u64).max(FEWEST))
}

/// The longest packet of a link, in bytes. A queue counts a super-packet as one packet.
fn longest(link: &Link) -> u64 {
    if whole(link) { SUPER } else { u64::from(link.spec.mtu) }
}

/// The bytes in all queues of the link when they are full, including queues of reservations.
fn bytes(link: &Link) -> u64 {
    let longest = longest(link);
    let limits = link.spec.classes.iter().filter_map(|class| class.queue.as_ref()).map(|queue| match queue.limit {
        Limit::Packets(packets) => u64::from(packets).saturating_mul(longest),
        Limit::Bytes(bytes) => u64::from(bytes),
    });
    limits.fold(link.reservation_room(), u64::saturating_add)
}

/// Every DSCP that a meter of the link may write, which are the numbers among its words, and 0
/// where a queue clears it.
pub(crate) fn dscps(link: &Link) -> Vec<u8> {
    let words = link.spec.classes.iter().flat_map(|class| class.settings.iter());
    let mut found: Vec<u8> = words
        .filter(|(word, _)| word.starts_with("meter "))
        .filter_map(|(_, value)| match value {
            Value::Int(dscp) => u8::try_from(dscp).ok().filter(|dscp| *dscp < 64),
            _ => None,
        })
        .collect();
    let clears = |class: &ClassSpec| class.queue.as_ref().is_some_and(|queue| queue.settings.flag("cleardscp"));
    found.extend(link.spec.classes.iter().any(clears).then_some(0));
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
        let link = |text: &str| {
            let policy = parse_str(text, "test.altq", Language::Native).unwrap_or_else(|error| panic!("{error}"));
            policy.links.into_iter().next().unwrap()
        };
        let slow = link(text);
        let within = |memory| Tuning { memory, ..Tuning::default() };
        assert_eq!((dscps(&slow), bytes(&slow), room(&slow, within(1 << 30))), (vec![10, 12], 30_000, 8 << 20));
        let clears = link(
            "link wan { device eth0  rate 10Mbit/s  scheduler fifo  class all { default  queue rio { cleardscp } } }",
        );
        assert_eq!(dscps(&clears), [0]);
        let to_come = Tuning { room: 20_000, ..within(1 << 30) };
        assert_eq!(room(&slow, to_come), 30_000 + 20_000 * 1000);
        // Super-packets of 64 KB stay whole: 30 of them, and 1000 of them limited by a memory of 16
        // MB.
        let fast = text.replace("rate 10Mbit/s", "rate 600Mbit/s");
        // A meter sees packets as they are on the wire.
        assert_eq!((whole(&link(&fast)), bytes(&link(&fast))), (false, 30_000));
        let (without_meter, _) = fast.split_once("meter").unwrap();
        let fast = format!("{without_meter} }} }}");
        assert!(whole(&link(&fast)));
        assert_eq!(bytes(&link(&fast)), 30 << 16);
        let adapts = |from: &str| {
            let words = format!("adapt {{ from {from} to 900Mbit/s  reflectors {{ 192.0.2.1 }} }}");
            whole(&link(&fast.replace("rate 600Mbit/s", &format!("rate 600Mbit/s {words}"))))
        };
        assert_eq!((adapts("499Mbit/s"), adapts("500Mbit/s")), (false, true));
        let longer = fast.replace("30packets", "1000packets");
        let rooms = [1 << 30, 16 << 20].map(|memory| room(&link(&longer), within(memory)));
        assert_eq!(rooms, [1000 << 16, 16 << 20]);
        // Room is made at the start.
        let refused = fixed(&link(&fast), &link(&longer), within(1 << 30));
        assert!(refused.is_some_and(|why| why.starts_with("how many bytes")), "{refused:?}");
        assert_eq!(fixed(&link(&longer), &link(&fast), within(1 << 30)), None);
    }

    /// A frame that is routed to a port does not pass the hook FORWARD as a bridged one (`physdev
    /// --physdev-is-bridged`, iptables-extensions(8)).
    #[test]
    fn what_iptables_does_not_see_at_a_port_is_said() {
        let said = unseen("lan1", true, Some(Firewall::Iptables)).unwrap();
        assert!(said.contains("routed to hosts at lan1") && said.contains("passes unshaped"), "{said}");
        assert_eq!(unseen("lan1", true, Some(Firewall::Nft)), None);
        assert_eq!(unseen("eth0", false, Some(Firewall::Iptables)), None);
    }

    #[test]
    fn links_have_numbers_of_queues_of_their_own() {
        let numbers = ["eth0", "eth1", "wan", "ppp0", "br-lan"]
            .map(|name| [false, true].map(|ingress| edge::first_queue(name, ingress)));
        let mut numbers = numbers.concat();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 10);
        assert!(numbers.iter().all(|number| (24_000..64_000).contains(number)));
    }
}
