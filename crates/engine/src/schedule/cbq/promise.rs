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
/// What whole nanoseconds cost: a clock may be one early, a deadline another, and the wire one
/// late. Nothing where all rates are [`even`].
pub const ROUNDING: Nanos = 3;

/// Whether a byte at this rate, in bit/s, takes a whole number of nanoseconds.
pub fn even(rate: u128) -> bool {
    rate > 0 && (8 * u128::from(SECOND)).is_multiple_of(rate)
}

/// The promises of the classes. Rule 9: a packet within guarantee waits at most (bursts of higher
/// and equal priorities, one packet of the link, and what the place gives in the time that it may
/// be late) over (what the place has less the rates of higher priorities). A class of higher
/// priority may send one packet beyond its burst, that which exceeds it. The proof is in
/// docs/promises.md.
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
        level.uneven |= !even(*rate);
    }
    let whole = rates.iter().sum::<u128>();
    let (capacity, packet) = (u128::from(place.promised.rate().as_bit_s()), u128::from(place.packet));
    // The wait of a priority, from the highest on: what goes before it, and what that leaves. And
    // how much of it is for the place's being late: while it serves nothing, the higher priorities
    // earn as much as ever. So that counts like bytes that go first, here in bit/s times ns.
    let (mut bytes, mut left, mut uneven) = (packet, capacity, !even(capacity));
    let mut waits = BTreeMap::new();
    for (priority, level) in levels.iter().rev() {
        uneven |= level.uneven;
        let late = place.promised.latency.saturating_add(if uneven { ROUNDING } else { 0 });
        let late = u128::from(late) * capacity;
        waits.insert(*priority, (wait(late, bytes + level.bursts, left), wait(late, 0, left)));
        bytes += level.bursts + level.classes * packet;
        left = left.saturating_sub(level.rate);
    }
    // Inside a class the turn may come so late that it is taken for a stall (docs/reference/cbq.md
    // rule 14).
    let stall = stall(true, place.rate.as_bit_s(), place.packet);
    let one = |(member, rate): (&Member<'_>, &u128)| {
        if *rate == 0 {
            return Err("it is guaranteed nothing, or nothing beyond what its children are".to_owned());
        }
        if whole > capacity {
            return Err("the classes are guaranteed more than there is".to_owned());
        }
        let Some((Some(latency), Some(of_place))) = waits.get(&priority(member)).copied() else {
            return Err("classes of higher priority are guaranteed all there is".to_owned());
        };
        if of_place > stall {
            return Err("its turn may come so late that it forgets what it is owed".to_owned());
        }
        // The bound holds for a packet that is within guarantee when it arrives; one that waits for
        // its credit goes at the rate. So the class is served at its rate, at most the wait later.
        // A class that holds a scheduler is promised a curve from whatever moment it begins to
        // wait. Its own next packet may be shorter than announced, and its deadline too late by so
        // much; and its clock may be one packet ahead of that moment.
        let own = if member.holds { wait(0, 2 * packet, *rate) } else { Some(0) };
        let latency =
            own.and_then(|own| latency.checked_add(own)).ok_or("the bound does not fit into 64 bits of nanoseconds")?;
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
    /// Not all rates are [`even`].
    uneven: bool,
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

/// What idleness earns a class, in bytes on the wire.
fn burst(place: &Place<'_>, member: &Member<'_>) -> u128 {
    let size = member.settings.bytes("packetsize").unwrap_or(u64::from(place.packet));
    u128::from(member.settings.int("maxburst").unwrap_or(MAXBURST)) * u128::from(size)
}

/// The time after which `bytes` are through at `rate`, and before them `late` (bit/s times ns);
/// rounded up.
pub fn wait(late: u128, bytes: u128, rate: u128) -> Option<Nanos> {
    if rate == 0 {
        return None;
    }
    let work = late.saturating_add(bytes.saturating_mul(8 * u128::from(SECOND)));
    Nanos::try_from(work.div_ceil(rate)).ok()
}
