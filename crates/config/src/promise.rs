//! What a policy promises: the most that a class may have, and how long its packets wait at most.

use altq_engine::schedule;
use altq_engine::settings::Limit;
use altq_engine::spec::{ClassId, QueueSpec, ROOT};
use altq_engine::units::{Nanos, Rate, SECOND};

use crate::check::is_classic;
use crate::policy::Link;

/// Packets that idleness earns in the exact estimator when nothing is written (rule 10).
const MAXBURST: u64 = 2;
/// Priority of a class that states none.
const PRIORITY: u64 = 1;

impl Link {
    /// The most that a class can have: the rate of the nearest class from here up that does not borrow, or a ceiling (of htb: a ceil) on
    /// the way, whichever is less; else the link's.
    pub fn ceiling(&self, class: ClassId) -> Rate {
        let mut most = self.spec.rate;
        let mut at = class;
        while at != ROOT {
            let Some(spec) = self.spec.classes.get(at as usize) else { break };
            for word in ["ceiling", "shape", "police"] {
                most = spec.settings.rate(word).map_or(most, |ceiling| most.min(ceiling));
            }
            if let Some(limit) = spec.settings.curve("upperlimit") {
                most = most.min(limit.then);
            }
            if self.scheduler_of(at) == "htb" {
                most = most.min(spec.settings.rate("ceil").unwrap_or(self.guarantee(at).unwrap_or_default()));
            }
            // Only CBQ's classes are held to their guarantee.
            if self.scheduler_of(at) == "cbq" && !spec.settings.flag("borrow") {
                most = most.min(self.guarantee(at).unwrap_or_default());
            }
            at = spec.parent;
        }
        most
    }

    /// The queue of a class: its own, or the one that its scheduler gives.
    pub fn queue(&self, class: ClassId) -> Option<QueueSpec> {
        if let Some(queue) = &self.spec.classes.get(class as usize)?.queue {
            return Some(queue.clone());
        }
        let serving = self.serving(class)?;
        Some(schedule::find(serving.name)?.queue(&serving.settings, &self.spec.classes.get(class as usize)?.settings))
    }
}

/// How long a packet of a class waits at most, until its last bit has left, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayBound {
    /// Of a source that keeps to the class's guarantee.
    pub conforming: Option<Nanos>,
    /// The last packet of a full queue.
    pub queue_full: Option<Nanos>,
    /// What holds for the figures, or why there are none.
    pub assumes: String,
}

/// The delay bounds of a link's classes.
pub struct Promises<'l> {
    link: &'l Link,
    leaves: Vec<bool>,
    /// What each leaf is guaranteed, bit/s.
    rates: Vec<u128>,
    /// By priority: bytes of bursts, classes, bit/s.
    by_priority: [(u128, u128, u128); 8],
    total: u128,
}

impl<'l> Promises<'l> {
    /// Adds up what the classes of a link may do.
    pub fn new(link: &'l Link) -> Promises<'l> {
        let children = link.children();
        let mut promises = Promises {
            link,
            leaves: vec![false; children.len()],
            rates: vec![0; children.len()],
            by_priority: [(0, 0, 0); 8],
            total: 0,
        };
        let holders = link.holders();
        for (id, holds) in holders.iter().enumerate() {
            let class = id as ClassId;
            // A class that holds another scheduler is a leaf to the one that serves it. Packets of an inner class wait in a leaf of
            // its own that has what its children leave (rule 16).
            let leaf = *holds || link.spec.classes[id].scheduler.is_some();
            if !leaf || !link.served_by_root(class) {
                continue;
            }
            promises.leaves[id] = true;
            let rate = own_rate(link, class, &children);
            let at = &mut promises.by_priority[priority(link, class)];
            at.0 += burst(link, class);
            at.1 += 1;
            at.2 += rate;
            promises.total += rate;
            promises.rates[id] = rate;
        }
        promises
    }

    /// The bounds of a class: at most (bursts of higher and equal priorities and one packet of the link) over (the link's rate
    /// less the rates of higher priorities). A class of higher priority may send one packet beyond its burst, that which exceeds it.
    pub fn delay_bound(&self, class: ClassId) -> DelayBound {
        let none = |why: &str| DelayBound { conforming: None, queue_full: None, assumes: why.to_owned() };
        let link = self.link;
        let Some(spec) = link.spec.classes.get(class as usize) else { return none("there is no such class") };
        if class == ROOT && !self.leaves[ROOT as usize] {
            return none("the root is the link: its classes have the bounds");
        }
        if !link.served_by_root(class) {
            return none("it is served inside of another scheduler, and the bound of that is not worked out");
        }
        let scheduler = link.scheduler_of(class);
        if scheduler != "cbq" {
            return none(&format!("{scheduler} guarantees nothing"));
        }
        if is_classic(link, class) {
            return none("the classic estimator guarantees no delay");
        }
        if !self.leaves[class as usize] {
            return none("it holds no packets of its own");
        }
        let Ok(rate @ 1..) = u64::try_from(self.rates[class as usize]) else {
            return none("it is guaranteed nothing, or nothing beyond what its children are");
        };
        let link_rate = u128::from(link.spec.rate.as_bit_s());
        if self.total > link_rate {
            return none("the classes are guaranteed more than the link has");
        }
        let own = priority(link, class);
        let packet = u128::from(link.spec.overhead.charge(link.spec.mtu));
        let mut bytes = packet + self.by_priority[own].0;
        let mut left = link_rate;
        for (burst, classes, rate) in &self.by_priority[own + 1..] {
            bytes += burst + classes * packet;
            left = left.saturating_sub(*rate);
        }
        let Some(conforming) = span(bytes, left) else {
            return none("classes of higher priority are guaranteed the whole link");
        };
        let size = packetsize(link, class);
        let burst = maxburst(link, class).saturating_mul(size);
        let mtu = u64::from(link.spec.mtu);
        let mut assumes = format!(
            "the source sends at most {} and bursts of {burst} bytes, counted on the wire, in packets of at most {size} bytes",
            Rate::bit_s(rate)
        );
        if spec.scheduler.is_some() {
            let assumes = format!("{assumes}; the wait inside of its own scheduler comes on top");
            return DelayBound { conforming: Some(conforming), queue_full: None, assumes };
        }
        // The last packet of a full queue: all of the queue, and one packet that may just have been sent, at the class's rate.
        let packets = match link.queue(class).map(|queue| queue.limit) {
            Some(Limit::Packets(n)) => u128::from(n),
            Some(Limit::Bytes(n)) => u128::from(u64::from(n).div_ceil(mtu.max(1))),
            None => 0,
        };
        let queue_full = span((packets + 1) * packet, u128::from(rate)).and_then(|wait| wait.checked_add(conforming));
        assumes.push_str(&format!("; a full queue is of packets of {mtu} bytes; timers are exact"));
        DelayBound { conforming: Some(conforming), queue_full, assumes }
    }
}

/// What a leaf is guaranteed, or an inner class beyond what its children are, in bit/s.
fn own_rate(link: &Link, class: ClassId, children: &[Vec<ClassId>]) -> u128 {
    let of = |class: ClassId| link.guarantee(class).unwrap_or_default().as_bit_s();
    let holds = link.spec.classes[class as usize].scheduler.is_some();
    let below = if holds { 0 } else { children[class as usize].iter().map(|child| of(*child)).fold(0, u64::saturating_add) };
    u128::from(of(class).saturating_sub(below))
}

/// The time of `bytes` at a rate, rounded up; `None` at rate 0 or beyond what counts.
fn span(bytes: u128, rate: u128) -> Option<Nanos> {
    if rate == 0 {
        return None;
    }
    Nanos::try_from((bytes * 8 * u128::from(SECOND)).div_ceil(rate)).ok()
}

fn priority(link: &Link, class: ClassId) -> usize {
    link.spec.classes[class as usize].settings.int("priority").unwrap_or(PRIORITY).min(7) as usize
}

fn packetsize(link: &Link, class: ClassId) -> u64 {
    link.spec.classes[class as usize].settings.bytes("packetsize").unwrap_or(u64::from(link.spec.mtu))
}

fn maxburst(link: &Link, class: ClassId) -> u64 {
    link.spec.classes[class as usize].settings.int("maxburst").unwrap_or(MAXBURST)
}

/// The burst of a class, in bytes on the wire.
fn burst(link: &Link, class: ClassId) -> u128 {
    let size = u32::try_from(packetsize(link, class)).unwrap_or(u32::MAX);
    // The credit is counted in the packets' own bytes or, if that is more, in bytes on the wire.
    u128::from(maxburst(link, class)) * u128::from(link.spec.overhead.charge(size).max(size))
}

#[cfg(test)]
mod tests {
    use crate::{Language, parse_str};

    use super::*;

    fn bound(text: &str, class: &str) -> DelayBound {
        let policy = parse_str(text, "t.altq", Language::Native).unwrap_or_else(|failed| panic!("{failed}"));
        let link = &policy.links[0];
        Promises::new(link).delay_bound(link.class(class).unwrap())
    }

    #[test]
    fn the_formula_by_hand() {
        // Rule 9: voice's own burst 2 x 160, one packet of 1500: 1820 bytes at 10 Mbit/s.
        let text = "link l { rate 10Mbit/s scheduler cbq
            class voice { share 5% priority 7 packetsize 160 queue drop_tail { limit 10packets } }
            class a { share 45% borrow }  class b { share 50% borrow default } }";
        let voice = bound(text, "voice");
        assert_eq!(voice.conforming, Some(1820 * 8 * 100));
        // Ten packets of 1500 and one more at 500 kbit/s.
        assert_eq!(voice.queue_full, Some(1820 * 8 * 100 + 11 * 1500 * 8 * 2000));
        // Of a: bursts of a and b 2 x 1500 each, one packet, and of voice 320 and one packet; 9.5 Mbit/s are left.
        let bytes = 3000 + 3000 + 1500 + 320 + 1500;
        assert_eq!(bound(text, "a").conforming, Some((bytes * 8 * 1_000_000_000_u64).div_ceil(9_500_000)));
    }

    #[test]
    fn nothing_is_promised_where_nothing_holds() {
        for (text, class, why) in [
            ("link l { rate 1Mbit/s scheduler fifo class a { default } }", "a", "fifo guarantees nothing"),
            ("link l { rate 1Mbit/s scheduler cbq { estimator classic } class a { share 5% default } }", "a", "no delay"),
            ("link l { rate 1Mbit/s scheduler cbq class a { borrow default } }", "a", "guaranteed nothing"),
            ("link l { rate 1Mbit/s scheduler cbq class a { share 5% class b { share 1% default } } }", "a", "no packets"),
            (
                "link l { rate 1Mbit/s overcommit scheduler cbq class a { share 80% default } class b { share 80% } }",
                "a",
                "more than",
            ),
            (
                "link l { rate 1Mbit/s scheduler cbq class a { share 0% borrow default } class b { share 100% priority 7 } }",
                "a",
                "nothing",
            ),
        ] {
            let bound = bound(text, class);
            assert_eq!((bound.conforming, bound.queue_full), (None, None), "{text}");
            assert!(bound.assumes.contains(why), "{}", bound.assumes);
        }
    }
}
