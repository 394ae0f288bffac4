//! What WFQ promises a class: a rate and a latency.
//!
//! WF2Q+ guarantees a class its weight / (sum of weights) of the rate. It is late by at most the
//! time of the class's packet at that rate, and one packet of the link (Bennett and Zhang 1997;
//! Stiliadis and Varma 1998).
//!
//! Here finish tags are rounded: the virtual time of a packet is rounded up to a power of two, and
//! a tag may be later by an eighth of that, the width of a slot. The argument is that of QFQ's
//! bound (Checconi, Rizzo and Valente 2013). Take a packet that begins to wait at virtual time V(a)
//! and has the finish tag F. Let p be the last packet with a tag later than F that is served before
//! it. When p was chosen, no packet with a tag up to F was eligible. So all packets with tags up to
//! F that are served after p lie between the virtual time V of that choice and F: at most (F - V)
//! times the sum of weights. Virtual time grows by no less than what is served. So until our packet
//! has been sent, at most this is served: p, the packet that was on the wire when ours came, and
//! (F - V(a)) times the sum of weights.

use super::fair::{FINE, log2_up};
use super::words::{self, Excess, Kind, Sums, Words};
use crate::schedule::promise::{Place, Promise, none};
use crate::settings::Settings;
use crate::shape::service_curve::ServiceCurve;
use crate::spec::LinkSpec;
use crate::units::{Nanos, Rate, SECOND};

/// The promises of the classes.
pub fn promises(place: &Place<'_>) -> Vec<Result<Promise, String>> {
    let all = match place.classes.iter().map(|member| Words::read(member.settings)).collect::<Result<Vec<_>, _>>() {
        Ok(all) => all,
        Err(error) => return none(place, error.message),
    };
    let capacity = u128::from(place.promised.rate().as_bit_s());
    let packet = u128::from(place.packet);
    let sums = Sums::of(place.rate, all.iter().map(|words| words.kind));
    if sums.urgent + sums.reserved > capacity {
        return none(place, "the classes are guaranteed more than there is");
    }
    // The policer of a low-latency class counts packets when they arrive. A scheduler inside the
    // class may hold them back and send them together with later ones. Then no bound is known on
    // what goes before the other classes.
    if place.classes.iter().zip(&all).any(|(member, words)| member.holds && matches!(words.kind, Kind::Urgent { .. })) {
        return none(place, "a low-latency class holds a scheduler, or a queue that may pass packets over");
    }
    // Of the low-latency classes, by level: their bursts, each with a packet that came before
    // congestion began, and their rates.
    let (mut bursts, mut rates) = ([0_u128; 2], [0_u128; 2]);
    for words in &all {
        if let Kind::Urgent { rate, burst, level } = words.kind {
            bursts[usize::from(level)] += u128::from(burst) + packet;
            rates[usize::from(level)] += u128::from(rate.as_bit_s());
        }
    }
    let late = u128::from(place.promised.latency) * capacity;
    let left = capacity - rates[0] - rates[1];
    let equal = words::scheduler(place.scheduler) == Excess::Equal;
    let weight = |kind| if equal { sums.guarantee(kind) } else { sums.share(kind) };
    let whole = if equal { sums.whole() } else { all.iter().map(|words| weight(words.kind)).sum() };
    let one = |own: &Words| {
        if let Kind::Urgent { rate, burst, level } = own.kind {
            let before = if level == 0 { bursts[0] } else { bursts[0] + bursts[1] };
            let higher = if level == 0 { 0 } else { rates[0] };
            let own_burst = u128::from(burst) + packet;
            let own_rate = u128::from(rate.as_bit_s());
            // Classes of one level are served in the order of arrival. Until its own burst has been
            // sent the class gets what the rates of the other classes of its level, and of the
            // level before it, leave.
            let beside = higher + rates[usize::from(level)] - own_rate;
            let first = capacity.saturating_sub(beside);
            let latency =
                wait(late, before - own_burst + packet, first).ok_or("low-latency classes take all there is")?;
            let until = wait(0, own_burst, first).ok_or("low-latency classes take all there is")?;
            let then = most(own, rate);
            return Ok(Promise { latency, curve: ServiceCurve { first: clip(first).max(then), until, then } });
        }
        let weight = weight(own.kind);
        if weight == 0 || own.kind == Kind::Bandwidth(Rate::ZERO) {
            return Err("it is guaranteed nothing: the excess goes in equal parts".to_owned());
        }
        // With `excess equal` the clock of the guarantees advances with all that the link carries.
        let of = if equal { capacity } else { left };
        let rate = of.saturating_mul(weight) / whole.max(1);
        // The virtual time of the packet, as bytes that all classes together send in it, in 2^-16
        // bytes: rounded up to a power of two, and an eighth of that more for the slot.
        let exact = (packet << 16).saturating_mul(whole.max(weight)) / weight;
        let span = 1_u128 << log2_up(u64::try_from(exact).unwrap_or(u64::MAX)).min(100);
        let tag = (span + (span >> FINE)) >> 16;
        let bytes = 2 * packet + tag + bursts[0] + bursts[1];
        let latency = wait(late, bytes, left).ok_or("low-latency classes take all there is")?;
        let rate = most(own, clip(rate));
        let Some(shape) = own.shape else { return Ok(Promise::new(latency, rate)) };
        if latency > words::shape_credit(shape, place.packet) {
            return Err("its turn may come later than its shaper makes up for: give it more bandwidth".to_owned());
        }
        let latency = latency.saturating_add(shape.time_for(u64::from(place.packet)));
        Ok(Promise::new(latency, rate.min(shape)))
    };
    all.iter().map(one).collect()
}

/// The lesser of a rate and the rate to which the class is policed.
fn most(own: &Words, rate: Rate) -> Rate {
    own.police.map_or(rate, |(police, _)| rate.min(police))
}

/// Whether a class drops what arrives too fast.
pub fn polices(class: &Settings) -> bool {
    class.get("police").is_some() || class.get("low-latency").is_some()
}

/// The burst of a source that the promise is about, bytes: one packet, or less if a policer of the
/// class lets less through at once.
pub fn burst(link: &LinkSpec, class: &Settings) -> u64 {
    let packet = u64::from(link.overhead.charge(link.mtu));
    let Ok(words) = Words::read(class) else { return packet };
    let urgent = match words.kind {
        Kind::Urgent { burst, .. } => Some(burst),
        _ => None,
    };
    words.police.map(|(_, burst)| burst).into_iter().chain(urgent).fold(packet, u64::min)
}

/// The time in which first `late` (bit/s times ns) and then `bytes` pass at `rate`, rounded up;
/// `None` if they never do.
fn wait(late: u128, bytes: u128, rate: u128) -> Option<Nanos> {
    if rate == 0 {
        return None;
    }
    let work = late.saturating_add(bytes.saturating_mul(8 * u128::from(SECOND)));
    Nanos::try_from(work.div_ceil(rate)).ok()
}

fn clip(rate: u128) -> Rate {
    Rate::bit_s(u64::try_from(rate).unwrap_or(u64::MAX))
}
