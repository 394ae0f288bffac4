//! Delay bounds of exact CBQ's classes at the link: docs/reference/cbq.md rule 9. A packet within
//! guarantee waits at most (bursts of higher and equal priorities and one packet of the link) over
//! (the link's rate less the rates of higher priorities).

use super::promise::{MAXBURST, PRIORITY, ROUNDING, even, wait};
use crate::link::Overhead;
use crate::queue;
use crate::schedule::promise::{Bound, Kept, Leaf};
use crate::settings::Settings;
use crate::spec::{ClassId, LinkSpec, QueueSpec, ROOT};
use crate::units::Rate;

/// The bounds by class, of those that the link's own scheduler serves; or why there is none.
pub fn bounds(link: &LinkSpec) -> Vec<Result<Bound, String>> {
    let leaves = leaves(link);
    let rule = Rule9::new(link, &leaves);
    let of = |(class, leaf): (usize, &Option<Leaf<'_>>)| match leaf {
        Some(leaf) => rule.bound_of(*leaf).map_err(str::to_owned),
        None if class == ROOT as usize => Err("the root is the link: its classes have the bounds".to_owned()),
        None => Err("it holds no packets of its own".to_owned()),
    };
    leaves.iter().enumerate().map(of).collect()
}

/// The bounds of a link whose classes come and go.
pub fn kept(link: &LinkSpec) -> Box<dyn Kept> {
    Box::new(Rule9::new(link, &leaves(link)))
}

/// For each class: what it may do, if it holds packets and the link's own scheduler serves it.
fn leaves(link: &LinkSpec) -> Vec<Option<Leaf<'_>>> {
    let children = link.children();
    let one = |(id, holds): (usize, bool)| {
        let (class, spec) = (id as ClassId, &link.classes[id]);
        // A class that holds another scheduler is a leaf to the one that serves it. Packets of an
        // inner class wait in a leaf of its own that has what its children leave
        // (docs/reference/cbq.md rule 16).
        if !(holds || spec.scheduler.is_some()) || !link.served_by_root(class) {
            return None;
        }
        let rate = own_rate(link, class, &children[id]);
        Some(Leaf {
            settings: &spec.settings,
            rate: Rate::bit_s(rate),
            guesses: guesses(link, class),
            holds: spec.scheduler.is_some(),
        })
    };
    link.holders().into_iter().enumerate().map(one).collect()
}

/// What the classes of a link may do together.
struct Rule9 {
    /// Of the link, in bit/s.
    rate: u128,
    mtu: u32,
    overhead: Overhead,
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
    /// Classes whose rate is not [`even`].
    uneven: u128,
}

impl Rule9 {
    /// Adds up what the classes of a link may do.
    fn new(link: &LinkSpec, leaves: &[Option<Leaf<'_>>]) -> Rule9 {
        let mut sums = Rule9 {
            rate: u128::from(link.rate.as_bit_s()),
            mtu: link.mtu,
            overhead: link.overhead,
            by_priority: Default::default(),
            total: 0,
        };
        for leaf in leaves.iter().flatten() {
            sums.add(*leaf);
        }
        sums
    }

    /// The largest packet, in bytes on the wire.
    fn packet(&self) -> u128 {
        u128::from(self.overhead.charge(self.mtu))
    }

    /// What a leaf adds to the sums of its priority.
    fn level(&self, leaf: Leaf<'_>) -> Level {
        let rate = u128::from(leaf.rate.as_bit_s());
        // How much longer than announced the next packet of a class may be: its deadline is that of
        // the packet that was announced.
        let guess = if leaf.guesses { self.packet() } else { 0 };
        Level {
            bursts: burst_of(&self.overhead, self.mtu, leaf.settings) + guess,
            classes: 1,
            rate,
            uneven: u128::from(rate > 0 && !even(rate)),
        }
    }

    /// A class of higher priority may send one packet beyond its burst, that which exceeds it.
    fn bound_of(&self, leaf: Leaf<'_>) -> Result<Bound, &'static str> {
        if leaf.rate.is_zero() {
            return Err("it is guaranteed nothing, or nothing beyond what its children are");
        }
        if self.total > self.rate {
            return Err("the classes are guaranteed more than the link has");
        }
        let own = priority(leaf.settings);
        let packet = self.packet();
        let mut bytes = packet + self.by_priority[own].bursts;
        let mut left = self.rate;
        for level in &self.by_priority[own + 1..] {
            bytes += level.bursts + level.classes * packet;
            left = left.saturating_sub(level.rate);
        }
        let uneven = !even(self.rate) || self.by_priority[own..].iter().any(|level| level.uneven > 0);
        let late = if uneven { u128::from(ROUNDING) * self.rate } else { 0 };
        let conforming = wait(late, bytes, left).ok_or("classes of higher priority are guaranteed the whole link")?;
        // Its own next packet may be shorter than announced, and its deadline too late by so much.
        // The clock of a class that holds a scheduler may also be one packet ahead when the class
        // begins to wait anew (promise.rs).
        let guessed = u128::from(leaf.guesses) + u128::from(leaf.holds);
        let own = if guessed > 0 { wait(0, guessed * packet, u128::from(leaf.rate.as_bit_s())) } else { Some(0) };
        let own = own.and_then(|own| conforming.checked_add(own));
        let conforming = own.ok_or("the bound does not fit into 64 bits of nanoseconds")?;
        let packetsize = packetsize(self.mtu, leaf.settings);
        let burst = maxburst(leaf.settings).saturating_mul(packetsize);
        Ok(Bound { conforming, rate: leaf.rate, burst, packetsize })
    }
}

impl Kept for Rule9 {
    fn add(&mut self, leaf: Leaf<'_>) {
        let more = self.level(leaf);
        let level = &mut self.by_priority[priority(leaf.settings)];
        level.bursts += more.bursts;
        level.classes += more.classes;
        level.rate += more.rate;
        level.uneven += more.uneven;
        self.total += more.rate;
    }

    fn remove(&mut self, leaf: Leaf<'_>) {
        let less = self.level(leaf);
        let level = &mut self.by_priority[priority(leaf.settings)];
        level.bursts = level.bursts.saturating_sub(less.bursts);
        level.classes = level.classes.saturating_sub(less.classes);
        level.rate = level.rate.saturating_sub(less.rate);
        level.uneven = level.uneven.saturating_sub(less.uneven);
        self.total = self.total.saturating_sub(less.rate);
    }

    fn bound(&self, leaf: Leaf<'_>) -> Result<Bound, String> {
        self.bound_of(leaf).map_err(str::to_owned)
    }
}

/// Whether the scheduler can only guess how long the next packet of a class is.
fn guesses(link: &LinkSpec, class: ClassId) -> bool {
    let spec = &link.classes[class as usize];
    let announces = |queue: &QueueSpec| queue::find(queue.name).is_some_and(|entry| !entry.guesses());
    spec.scheduler.is_some() || !spec.queue.as_ref().is_none_or(announces)
}

/// What a leaf is guaranteed, or an inner class beyond what its children are, in bit/s.
fn own_rate(link: &LinkSpec, class: ClassId, children: &[ClassId]) -> u64 {
    let of = |class: ClassId| link.guarantee(class).unwrap_or_default().as_bit_s();
    let holds = link.classes[class as usize].scheduler.is_some();
    let below = if holds { 0 } else { children.iter().map(|child| of(*child)).fold(0, u64::saturating_add) };
    of(class).saturating_sub(below)
}

fn priority(class: &Settings) -> usize {
    class.int("priority").unwrap_or(PRIORITY).min(7) as usize
}

fn packetsize(mtu: u32, class: &Settings) -> u64 {
    class.bytes("packetsize").unwrap_or(u64::from(mtu))
}

fn maxburst(class: &Settings) -> u64 {
    class.int("maxburst").unwrap_or(MAXBURST)
}

/// The burst of a class, in bytes on the wire.
pub fn burst(link: &LinkSpec, class: &Settings) -> u128 {
    burst_of(&link.overhead, link.mtu, class)
}

fn burst_of(overhead: &Overhead, mtu: u32, class: &Settings) -> u128 {
    let size = u32::try_from(packetsize(mtu, class)).unwrap_or(u32::MAX);
    // The credit is counted in the packets' own bytes or, if that is more, in bytes on the wire.
    u128::from(maxburst(class)) * u128::from(overhead.charge(size).max(size))
}
