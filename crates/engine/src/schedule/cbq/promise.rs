//! What exact CBQ promises a class: its rate, and a latency that makes rule 9 of the design the delay of a conforming packet.

use crate::schedule::promise::{Member, Place, Promise};
use crate::units::{Nanos, Rate, SECOND};

/// Packets that idleness earns when nothing is written (design rule 10).
const MAXBURST: u64 = 2;
/// Priority of a class that states none.
const PRIORITY: u64 = 1;

/// The promise of one class. Rule 9: a packet within guarantee waits at most (bursts of higher and equal priorities and one packet of
/// the link) over (what the place has less the rates of higher priorities); a class of higher priority may send one packet beyond
/// its burst, that which exceeds it.
pub fn promise(place: &Place<'_>, class: usize) -> Result<Promise, String> {
    if place.scheduler.choice("estimator") == Some("classic") {
        return Err("the classic estimator guarantees no delay".to_owned());
    }
    let rates: Vec<u128> = (0..place.classes.len()).map(|at| own_rate(place, at)).collect();
    let Some(&rate) = rates.get(class) else { return Err("there is no such class".to_owned()) };
    if rate == 0 {
        return Err("it is guaranteed nothing, or nothing beyond what its children are".to_owned());
    }
    let capacity = u128::from(place.promised.rate().as_bit_s());
    if rates.iter().sum::<u128>() > capacity {
        return Err("the classes are guaranteed more than there is".to_owned());
    }
    let own = priority(&place.classes[class]);
    let (mut bytes, mut left) = (u128::from(place.packet), capacity);
    for (member, rate) in place.classes.iter().zip(&rates).filter(|(_, rate)| **rate > 0) {
        match priority(member) {
            higher if higher > own => {
                bytes += burst(place, member) + u128::from(place.packet);
                left -= rate;
            }
            equal if equal == own => bytes += burst(place, member),
            _ => {}
        }
    }
    let Some(wait) = span(bytes, left) else {
        return Err("classes of higher priority are guaranteed all there is".to_owned());
    };
    // The bound holds for a packet that is within guarantee when it arrives; one that waits for its credit goes at the rate. So the
    // class is served at its rate, at most the wait later.
    let latency = wait.checked_add(place.promised.latency).ok_or("the bound is beyond all time")?;
    Ok(Promise::new(latency, Rate::bit_s(u64::try_from(rate).unwrap_or(u64::MAX))))
}

/// What a class is guaranteed beyond what its children are (rule 16).
fn own_rate(place: &Place<'_>, at: usize) -> u128 {
    let of = |member: &Member<'_>| u128::from(member.settings.rate("rate").unwrap_or_default().as_bit_s());
    let below: u128 = place.classes.iter().filter(|member| member.parent == Some(at)).map(of).sum();
    of(&place.classes[at]).saturating_sub(below)
}

fn priority(member: &Member<'_>) -> u64 {
    member.settings.int("priority").unwrap_or(PRIORITY)
}

fn burst(place: &Place<'_>, member: &Member<'_>) -> u128 {
    let size = member.settings.bytes("packetsize").unwrap_or(u64::from(place.packet));
    u128::from(member.settings.int("maxburst").unwrap_or(MAXBURST)) * u128::from(size)
}

fn span(bytes: u128, rate: u128) -> Option<Nanos> {
    if rate == 0 {
        return None;
    }
    Nanos::try_from((bytes * 8 * u128::from(SECOND)).div_ceil(rate)).ok()
}
