//! What WFQ promises a class: rate and latency.
//!
//! Of WF2Q+'s kind all schedulers guarantee the rate weight / (sum of weights), late by at most
//! (what the class's packet takes at its rate + one packet of the link) (Bennett and Zhang 1997,
//! theorem 4; Stiliadis and Varma 1998). Here a tag is rounded: the packet's time to a power of two
//! and to an eighth (a slot) more, as in the proof of QFQ's bound (Checconi, Rizzo and Valente
//! 2013, section VI). The argument, for a packet with finish tag F that begins to wait at V(a): let
//! p be the last packet served before it whose tag is later than F. When p began, nobody with a tag
//! up to F had begun, so all that is served from then on up to F lies between V of that time and F:
//! at most (F - V) times the sum of weights, and p itself. V grows by no less than what is served.
//! So before our packet is through, at most p, the packet on the wire when ours came, and (F -
//! V(a)) of all weights go.

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
    // Its policer counts packets as they come. A scheduler inside may let them wait, and then go at
    // once with later ones, so nobody knows how much goes before the others.
    if place.classes.iter().zip(&all).any(|(member, words)| member.holds && matches!(words.kind, Kind::Urgent { .. })) {
        return none(place, "a low-latency class holds a scheduler, or a queue that may pass packets over");
    }
    // Low-latency classes: what they may send at once, and a packet each that came before
    // congestion did; by level.
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
            // In the order of arrival with the others of its level: what their bursts leave is its
            // own until its burst is through.
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
        // In `equal` the clock of the guarantees runs by all that the link carries.
        let of = if equal { capacity } else { left };
        let rate = of.saturating_mul(weight) / whole.max(1);
        // The packet's time in service of all, in 2^-16 bytes, as its tag has it: a power of two,
        // and an eighth of that for its slot.
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

/// A rate, as far as what the class is policed to lets anything through.
fn most(own: &Words, rate: Rate) -> Rate {
    own.police.map_or(rate, |(police, _)| rate.min(police))
}

/// Whether a class drops what arrives too fast.
pub fn polices(class: &Settings) -> bool {
    class.get("police").is_some() || class.get("low-latency").is_some()
}

/// What a source may send at once: a packet, as far as no policer drops it.
pub fn burst(link: &LinkSpec, class: &Settings) -> u64 {
    let packet = u64::from(link.overhead.charge(link.mtu));
    let Ok(words) = Words::read(class) else { return packet };
    let urgent = match words.kind {
        Kind::Urgent { burst, .. } => Some(burst),
        _ => None,
    };
    words.police.map(|(_, burst)| burst).into_iter().chain(urgent).fold(packet, u64::min)
}

/// The time after which `bytes` are through at `rate`, and before them `late` (bit/s times ns);
/// rounded up.
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
