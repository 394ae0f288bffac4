//! What exact CBQ promises a class: its rate, and a latency that makes docs/reference/cbq.md rule 9
//! the delay of a conforming packet.

use std::collections::BTreeMap;

use super::exact::stall;
use crate::schedule::promise::{Member, Place, Promise, none};
use crate::units::{Nanos, Rate, SECOND};

/// Packets that idleness earns when nothing is written (docs/reference/cbq.md rule 10).
pub const MAXBURST: u64 = 2;
/// Priority of a class that states none.
pub const PRIORITY: u64 = 1;

/// The promises of the classes. Rule 9: a packet within guarantee waits at most (bursts of higher
/// and equal priorities and one packet of the link) over (what the place has less the rates of
/// higher priorities); a class of higher priority may send one packet beyond its burst, that which
/// exceeds it.
pub fn promises(place: &Place<'_>) -> Vec<Result<Promise, String>> {
    if place.scheduler.choice("estimator") == Some("classic") {
        return none(place, "the classic estimator guarantees no delay");
    }
    let rates = own_rates(place);
    let mut levels: BTreeMap<u64, Level> = BTreeMap::new();
    for (member, rate) in place.classes.iter().zip(&rates).filter(|(_, rate)| **rate > 0) {
        let level = levels.entry(priority(member)).or_default();
        level.bursts += burst(place, member);
        // The deadline is that of the packet that was announced.
        level.bursts += if member.holds { u128::from(place.packet) } else { 0 };
        level.classes += 1;
        level.rate += rate;
    }
    let whole = rates.iter().sum::<u128>();
    let (capacity, packet) = (u128::from(place.promised.rate().as_bit_s()), u128::from(place.packet));
    // The wait of a priority, from the highest on: what goes before it, and what that leaves.
    let (mut bytes, mut left) = (packet, capacity);
    let mut waits = BTreeMap::new();
    for (priority, level) in levels.iter().rev() {
        waits.insert(*priority, span(bytes + level.bursts, left));
        bytes += level.bursts + level.classes * packet;
        left = left.saturating_sub(level.rate);
    }
    // Inside a class the turn may come so late that it is taken for a stall (docs/reference/cbq.md
    // rule 14).
    let forgets = place.promised.latency > stall(true, place.rate.as_bit_s(), place.packet);
    let one = |(member, rate): (&Member<'_>, &u128)| {
        if *rate == 0 {
            return Err("it is guaranteed nothing, or nothing beyond what its children are".to_owned());
        }
        if forgets {
            return Err("its turn may come so late that it forgets what it is owed".to_owned());
        }
        if member.holds && member.settings.bytes("packetsize").is_some_and(|size| size < u64::from(place.packet)) {
            return Err("its next packet is a guess and may be longer than its `packetsize`: leave that out".to_owned());
        }
        if whole > capacity {
            return Err("the classes are guaranteed more than there is".to_owned());
        }
        let Some(wait) = waits.get(&priority(member)).copied().flatten() else {
            return Err("classes of higher priority are guaranteed all there is".to_owned());
        };
        // The bound holds for a packet that is within guarantee when it arrives; one that waits for
        // its credit goes at the rate. So the class is served at its rate, at most the wait later.
        // A class that holds a scheduler is promised a curve from whatever moment it begins to
        // wait. Its own next packet may be shorter than announced, and its deadline too late by so
        // much; and its clock may be one packet ahead of that moment.
        let own = if member.holds { span(2 * packet, *rate) } else { Some(0) };
        let latency = own.and_then(|own| wait.checked_add(place.promised.latency)?.checked_add(own));
        let latency = latency.ok_or("the bound does not fit into 64 bits of nanoseconds")?;
        Ok(Promise::new(latency, Rate::bit_s(u64::try_from(*rate).unwrap_or(u64::MAX))))
    };
    place.classes.iter().zip(&rates).map(one).collect()
}

/// What the classes of a priority may do.
#[derive(Clone, Copy, Default)]
struct Level {
    /// In bytes.
    bursts: u128,
    classes: u128,
    /// In bit/s.
    rate: u128,
}

/// What each class is guaranteed beyond what its children are (docs/reference/cbq.md rule 16).
fn own_rates(place: &Place<'_>) -> Vec<u128> {
    let of = |member: &Member<'_>| u128::from(member.settings.rate("rate").unwrap_or_default().as_bit_s());
    let mut rates: Vec<u128> = place.classes.iter().map(of).collect();
    let mut below = vec![0; rates.len()];
    for member in place.classes {
        if let Some(sum) = member.parent.and_then(|parent| below.get_mut(parent)) {
            *sum += of(member);
        }
    }
    rates.iter_mut().zip(below).for_each(|(rate, below)| *rate = rate.saturating_sub(below));
    rates
}

fn priority(member: &Member<'_>) -> u64 {
    member.settings.int("priority").unwrap_or(PRIORITY)
}

fn burst(place: &Place<'_>, member: &Member<'_>) -> u128 {
    let size = member.settings.bytes("packetsize").unwrap_or(u64::from(place.packet));
    u128::from(member.settings.int("maxburst").unwrap_or(MAXBURST)) * u128::from(size)
}

pub fn span(bytes: u128, rate: u128) -> Option<Nanos> {
    if rate == 0 {
        return None;
    }
    Nanos::try_from((bytes * 8 * u128::from(SECOND)).div_ceil(rate)).ok()
}
