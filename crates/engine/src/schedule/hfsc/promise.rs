//! What hfsc promises a class.
//!
//! *By deadline*: its real-time curve, late by at most one packet of the link (paper, theorem 1), if the curves of all classes add up
//! to no more than there is. *By share*: a node of the tree is start-time fair queueing, so of a server of rate C that is at most d
//! late, shared by n children, a child with the part r of C gets a server of rate r that is at most d + n packets / C late (Goyal,
//! Vin and Cheng 1997, theorems 4 and 5); what real-time curves may take comes off the root's.

use crate::schedule::promise::{Member, Place, Promise};
use crate::shape::service_curve::{ServiceCurve, excess};
use crate::units::{Nanos, Rate, SECOND};

/// The promise of one class.
pub fn promise(place: &Place<'_>, class: usize) -> Result<Promise, String> {
    let Some(member) = place.classes.get(class) else { return Err("there is no such class".to_owned()) };
    let held: Vec<ServiceCurve> = place.classes.iter().filter_map(realtime).collect();
    let whole = place.promised.curve;
    if excess(&held, &whole).is_some() {
        return Err("the real-time curves add up to more than there is".to_owned());
    }
    if let Some(curve) = realtime(member) {
        let slowest = if whole.until > 0 { whole.first.min(whole.then) } else { whole.then };
        let packet = u64::from(place.packet);
        // Of what stands inside the class only a guess at the next packet is known: at worst its deadline is that of the largest.
        let pace = if curve.until > 0 && !curve.first.is_zero() { curve.first.min(curve.then) } else { curve.then };
        let guess = if member.holds { pace.time_for(packet) } else { 0 };
        let latency = slowest.time_for(packet).checked_add(place.promised.latency).and_then(|wait| wait.checked_add(guess));
        let latency = latency.filter(|latency| *latency < Nanos::MAX).ok_or("the place guarantees nothing at first")?;
        return Ok(Promise { latency, curve });
    }
    by_share(place, class)
}

/// A real-time curve counts where packets are.
fn realtime(member: &Member<'_>) -> Option<ServiceCurve> {
    member.settings.curve("realtime").filter(|curve| member.leaf && !curve.then.is_zero())
}

fn by_share(place: &Place<'_>, class: usize) -> Result<Promise, String> {
    let classes = place.classes;
    // From the top down to the class.
    let mut path = vec![class];
    while let Some(parent) = path.last().and_then(|at| classes.get(*at)).and_then(|member| member.parent) {
        path.push(parent);
    }
    path.reverse();
    for at in &path {
        if classes[*at].settings.curve("upperlimit").is_some() {
            return Err("no wait is worked out under an upper limit".to_owned());
        }
    }
    if place.promised.curve.until > 0 {
        return Err("shares of a curve of two pieces are not worked out".to_owned());
    }
    let above = |at: usize, mut below: usize| loop {
        match classes[below].parent {
            Some(parent) if parent == at => break true,
            Some(parent) => below = parent,
            None => break false,
        }
    };
    // What deadlines take: the rates, and at once what the first pieces give and a packet each.
    let (mut rate, mut late) = (u128::from(place.promised.rate().as_bit_s()), 0_u128);
    let whole = rate;
    for (at, member) in classes.iter().enumerate() {
        let Some(curve) = realtime(member) else { continue };
        if path.iter().any(|on| above(*on, at)) {
            return Err("deadlines of other classes count in the share of a class above it".to_owned());
        }
        let (first, then) = (u128::from(curve.first.as_bit_s()), u128::from(curve.then.as_bit_s()));
        let burst = first.saturating_sub(then).saturating_mul(u128::from(curve.until)).div_ceil(8 * u128::from(SECOND));
        rate -= then.min(rate);
        late = late.saturating_add(burst).saturating_add(u128::from(place.packet));
    }
    late = late.saturating_add(whole.saturating_mul(u128::from(place.promised.latency)).div_ceil(8 * u128::from(SECOND)));
    let nothing = || "deadlines of other classes may take all there is".to_owned();
    let mut wait = span(late, rate).ok_or_else(nothing)?;
    let mut parent = None;
    for at in path {
        let siblings = classes.iter().filter(|member| member.parent == parent);
        let (mut n, mut sum, mut own) = (0_u128, 0_u128, 0_u128);
        for member in siblings {
            let Some(curve) = member.settings.curve("linkshare").filter(|curve| !curve.then.is_zero()) else { continue };
            if curve.until > 0 && curve.first != curve.then {
                return Err("shares by curves of two pieces are not worked out".to_owned());
            }
            n += 1;
            sum += u128::from(curve.then.as_bit_s());
            if std::ptr::eq(member, &classes[at]) {
                own = u128::from(curve.then.as_bit_s());
            }
        }
        if own == 0 {
            return Err("it has no share, or a class above it has none".to_owned());
        }
        let packets = span(n.saturating_mul(u128::from(place.packet)), rate).ok_or_else(nothing)?;
        wait = wait.checked_add(packets).ok_or("the bound is beyond all time")?;
        rate = rate * own / sum;
        parent = Some(at);
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
