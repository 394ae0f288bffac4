//! Delay bounds of exact CBQ's classes at the link: docs/reference/cbq.md rule 9. A packet within
//! guarantee waits at most (bursts of higher and equal priorities and one packet of the link) over
//! (the link's rate less the rates of higher priorities).

use super::promise::{MAXBURST, PRIORITY, ROUNDING, even, wait};
use crate::queue;
use crate::schedule::promise::Bound;
use crate::settings::Settings;
use crate::spec::{ClassId, LinkSpec, QueueSpec, ROOT};
use crate::units::Rate;

/// The bounds by class, of those that the link's own scheduler serves; or why there is none.
pub fn bounds(link: &LinkSpec) -> Vec<Result<Bound, String>> {
    let rule = Rule9::new(link);
    (0..link.classes.len() as ClassId).map(|class| rule.bound(link, class).map_err(str::to_owned)).collect()
}

/// What the classes of a link may do.
struct Rule9 {
    leaves: Vec<bool>,
    /// What each leaf is guaranteed, bit/s.
    rates: Vec<u128>,
    by_priority: [Level; 8],
    total: u128,
}

/// What the classes of a priority may do.
#[derive(Clone, Copy, Default)]
struct Level {
    /// In bytes.
    bursts: u128,
    classes: u128,
    /// In bit/s.
    rate: u128,
    /// Not all rates are [`even`].
    uneven: bool,
}

impl Rule9 {
    /// Adds up what the classes of a link may do.
    fn new(link: &LinkSpec) -> Rule9 {
        let (children, n) = (link.children(), link.classes.len());
        let mut sums = Rule9 { leaves: vec![false; n], rates: vec![0; n], by_priority: Default::default(), total: 0 };
        for (id, holds) in link.holders().into_iter().enumerate() {
            let (class, spec) = (id as ClassId, &link.classes[id]);
            // A class that holds another scheduler is a leaf to the one that serves it. Packets of
            // an inner class wait in a leaf of its own that has what its children leave
            // (docs/reference/cbq.md rule 16).
            let leaf = holds || spec.scheduler.is_some();
            if !leaf || !link.served_by_root(class) {
                continue;
            }
            sums.leaves[id] = true;
            let rate = own_rate(link, class, &children[id]);
            let level = &mut sums.by_priority[priority(&spec.settings)];
            level.bursts += burst(link, &spec.settings) + guess(link, class);
            level.classes += 1;
            level.rate += rate;
            level.uneven |= rate > 0 && !even(rate);
            sums.total += rate;
            sums.rates[id] = rate;
        }
        sums
    }

    /// A class of higher priority may send one packet beyond its burst, that which exceeds it.
    fn bound(&self, link: &LinkSpec, class: ClassId) -> Result<Bound, &'static str> {
        let leaf = self.leaves[class as usize];
        if class == ROOT && !leaf {
            return Err("the root is the link: its classes have the bounds");
        }
        if !leaf {
            return Err("it holds no packets of its own");
        }
        let Ok(rate @ 1..) = u64::try_from(self.rates[class as usize]) else {
            return Err("it is guaranteed nothing, or nothing beyond what its children are");
        };
        let link_rate = u128::from(link.rate.as_bit_s());
        if self.total > link_rate {
            return Err("the classes are guaranteed more than the link has");
        }
        let settings = &link.classes[class as usize].settings;
        let own = priority(settings);
        let packet = u128::from(link.overhead.charge(link.mtu));
        let mut bytes = packet + self.by_priority[own].bursts;
        let mut left = link_rate;
        for level in &self.by_priority[own + 1..] {
            bytes += level.bursts + level.classes * packet;
            left = left.saturating_sub(level.rate);
        }
        let uneven = !even(link_rate) || self.by_priority[own..].iter().any(|level| level.uneven);
        let late = if uneven { u128::from(ROUNDING) * link_rate } else { 0 };
        let conforming = wait(late, bytes, left).ok_or("classes of higher priority are guaranteed the whole link")?;
        let packetsize = packetsize(link, settings);
        let burst = maxburst(settings).saturating_mul(packetsize);
        Ok(Bound { conforming, rate: Rate::bit_s(rate), burst, packetsize })
    }
}

/// How much longer than announced the next packet of a class may be, bytes: its deadline is that of
/// the packet that was announced.
fn guess(link: &LinkSpec, class: ClassId) -> u128 {
    let spec = &link.classes[class as usize];
    let announces = |queue: &QueueSpec| queue::find(queue.name).is_some_and(|entry| !entry.guesses());
    let known = spec.scheduler.is_none() && spec.queue.as_ref().is_none_or(announces);
    if known { 0 } else { u128::from(link.overhead.charge(link.mtu)) }
}

/// What a leaf is guaranteed, or an inner class beyond what its children are, in bit/s.
fn own_rate(link: &LinkSpec, class: ClassId, children: &[ClassId]) -> u128 {
    let of = |class: ClassId| link.guarantee(class).unwrap_or_default().as_bit_s();
    let holds = link.classes[class as usize].scheduler.is_some();
    let below = if holds { 0 } else { children.iter().map(|child| of(*child)).fold(0, u64::saturating_add) };
    u128::from(of(class).saturating_sub(below))
}

fn priority(class: &Settings) -> usize {
    class.int("priority").unwrap_or(PRIORITY).min(7) as usize
}

fn packetsize(link: &LinkSpec, class: &Settings) -> u64 {
    class.bytes("packetsize").unwrap_or(u64::from(link.mtu))
}

fn maxburst(class: &Settings) -> u64 {
    class.int("maxburst").unwrap_or(MAXBURST)
}

/// The burst of a class, in bytes on the wire.
pub fn burst(link: &LinkSpec, class: &Settings) -> u128 {
    let size = u32::try_from(packetsize(link, class)).unwrap_or(u32::MAX);
    // The credit is counted in the packets' own bytes or, if that is more, in bytes on the wire.
    u128::from(maxburst(class)) * u128::from(link.overhead.charge(size).max(size))
}
