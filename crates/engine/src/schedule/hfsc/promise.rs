//! What hfsc promises a class.
//!
//! *By deadline*: its real-time curve, late by at most one packet of the link (paper, theorem 1),
//! if the curves of all classes add up to no more than there is. *By share*: every node of the tree
//! is start-time fair queueing. Let n children share a server of rate C that is at most d late; a
//! child with the part r of C then gets a server of rate r that is at most d + n packets / C late
//! (Goyal, Vin and Cheng 1997, their bounds on delay and for hierarchies). The rate of the root's
//! server is what real-time curves leave. docs/promises.md has the proofs.

use crate::schedule::promise::{Member, Place, Promise, none};
use crate::shape::service_curve::{ServiceCurve, excess};
use crate::units::{Nanos, Rate, SECOND};

/// The promises of the classes.
pub fn promises(place: &Place<'_>) -> Vec<Result<Promise, String>> {
    let held: Vec<ServiceCurve> = place.classes.iter().filter_map(realtime).collect();
    let whole = place.promised.curve;
    if excess(&held, &whole).is_some() {
        return none(place, "the real-time curves add up to more than there is");
    }
    let tree = Tree::new(place);
    let one = |(class, member): (usize, &Member<'_>)| {
        let Some(curve) = realtime(member) else { return promise_by_share(place, &tree, class) };
        let slowest = if whole.until > 0 { whole.first.min(whole.then) } else { whole.then };
        let packet = u64::from(place.packet);
        // Where the length of the next packet is a guess, its deadline is that of the largest.
        let pace = if curve.until > 0 && !curve.first.is_zero() { curve.first.min(curve.then) } else { curve.then };
        let guess = if member.holds { pace.time_for(packet) } else { 0 };
        let latency =
            slowest.time_for(packet).checked_add(place.promised.latency).and_then(|wait| wait.checked_add(guess));
        let latency = latency.filter(|latency| *latency < Nanos::MAX).ok_or("the place guarantees nothing at first")?;
        Ok(Promise { latency, curve })
    };
    place.classes.iter().enumerate().map(one).collect()
}

/// What counts in the shares of all classes.
struct Tree {
    /// By class: what is served by deadline counts in the share that its children divide. That is
    /// a class below it with a real-time curve, or packets of its own that go by one.
    deadlines_below: Vec<bool>,
    /// Of the children of each class, and of the place's own: how many of them may have a packet
    /// before another one, the sum of their shares in bit/s, and whether one of these is bent.
    children: Vec<Children>,
    top: Children,
    /// What deadlines take: bit/s, and bytes at once.
    rates: u128,
    bytes: u128,
}

#[derive(Clone, Copy, Default)]
struct Children {
    n: u128,
    sum: u128,
    bent: bool,
}

impl Tree {
    fn new(place: &Place<'_>) -> Tree {
        let classes = place.classes;
        let (children, top) = (vec![Children::default(); classes.len()], Children::default());
        let mut tree = Tree { deadlines_below: vec![false; classes.len()], children, top, rates: 0, bytes: 0 };
        for (class, member) in classes.iter().enumerate() {
            // A packet of an inner class itself may be on the wire when one of its children begins
            // to wait.
            if let Some(children) = tree.children.get_mut(class).filter(|_| member.packets && !member.leaf) {
                children.n += 1;
            }
            if let Some(curve) = realtime(member) {
                let (first, then) = (u128::from(curve.first.as_bit_s()), u128::from(curve.then.as_bit_s()));
                let burst =
                    first.saturating_sub(then).saturating_mul(u128::from(curve.until)).div_ceil(8 * u128::from(SECOND));
                tree.rates += then;
                tree.bytes = tree.bytes.saturating_add(burst).saturating_add(u128::from(place.packet));
                let mut above = if member.leaf { member.parent } else { Some(class) };
                // Whoever has been marked, so have those above.
                while let Some((at, known)) = above.and_then(|at| Some((at, tree.deadlines_below.get_mut(at)?)))
                    && !std::mem::replace(known, true)
                {
                    above = classes.get(at).and_then(|member| member.parent);
                }
            }
            if let Some(curve) = share(member) {
                let siblings = match member.parent {
                    Some(parent) => tree.children.get_mut(parent),
                    None => Some(&mut tree.top),
                };
                let Some(siblings) = siblings else { continue };
                siblings.n += 1;
                siblings.sum += u128::from(curve.then.as_bit_s());
                siblings.bent |= curve.until > 0 && curve.first != curve.then;
            }
        }
        tree
    }
}

pub(super) fn share(member: &Member<'_>) -> Option<ServiceCurve> {
    member.settings.curve("linkshare").filter(|curve| !curve.then.is_zero())
}

/// A real-time curve counts where packets are.
pub(super) fn realtime(member: &Member<'_>) -> Option<ServiceCurve> {
    member.settings.curve("realtime").filter(|curve| member.packets && !curve.then.is_zero())
}

fn promise_by_share(place: &Place<'_>, tree: &Tree, class: usize) -> Result<Promise, String> {
    let classes = place.classes;
    if !classes[class].leaf {
        return Err("its own packets go when no class below it has any".to_owned());
    }
    // From the top down to the class.
    let mut path = vec![class];
    while let Some(parent) = path.last().and_then(|at| classes.get(*at)).and_then(|member| member.parent) {
        path.push(parent);
    }
    path.reverse();
    if path.iter().any(|at| classes[*at].settings.curve("upperlimit").is_some()) {
        return Err("no wait is worked out under an upper limit".to_owned());
    }
    if place.promised.curve.until > 0 {
        return Err("shares of a curve of two pieces are not worked out".to_owned());
    }
    if path.iter().any(|at| tree.deadlines_below[*at]) {
        return Err("deadlines of other classes count in the share of a class above it".to_owned());
    }
    // What deadlines take: the rates, and at once what the first pieces give and a packet each.
    let whole = u128::from(place.promised.rate().as_bit_s());
    let mut rate = whole.saturating_sub(tree.rates);
    let late = tree
        .bytes
        .saturating_add(whole.saturating_mul(u128::from(place.promised.latency)).div_ceil(8 * u128::from(SECOND)));
    let nothing = || "deadlines of other classes may take all there is".to_owned();
    let mut wait = span(late, rate).ok_or_else(nothing)?;
    let mut siblings = &tree.top;
    for at in path {
        if siblings.bent {
            return Err("shares by curves of two pieces are not worked out".to_owned());
        }
        let Some(own) = share(&classes[at]).map(|curve| u128::from(curve.then.as_bit_s())) else {
            return Err("it has no share, or a class above it has none".to_owned());
        };
        let packets = span(siblings.n.saturating_mul(u128::from(place.packet)), rate).ok_or_else(nothing)?;
        wait = wait.checked_add(packets).ok_or("the bound does not fit into 64 bits of nanoseconds")?;
        rate = rate * own / siblings.sum;
        siblings = &tree.children[at];
    }
    if rate == 0 {
        return Err("its share is less than 1 bit/s".to_owned());
    }
    Ok(Promise::new(wait, Rate::bit_s(u64::try_from(rate).unwrap_or(u64::MAX))))
}

fn span(bytes: u128, rate: u128) -> Option<Nanos> {
    if rate == 0 {
        return None;
    }
    Nanos::try_from(bytes.checked_mul(8 * u128::from(SECOND))?.div_ceil(rate)).ok()
}
