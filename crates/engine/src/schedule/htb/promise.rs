//! What HTB promises a leaf: its rate, if its bursts are large enough for the longest wait; derived
//! in docs/schedulers/htb.md.
//!
//! A leaf that is green is served before all that borrows, whatever its parents' buckets say. It
//! waits at most D: for the packet on the wire, for what the buckets of the leaves of higher and
//! equal priority let pass meanwhile (Cruz 1991: a bucket lets `burst + rate t` and, because one
//! token is enough, one packet pass) or, of equal priority, for one turn of each (Shreedhar and
//! Varghese 1996). A bucket that holds less than `rate D` overflows in that wait, and what flows
//! over is lost: then the rate is not kept, which is why this is an error here and not a smaller
//! promise.

use std::collections::BTreeMap;

use super::words::{self, Defaults, Words};
use crate::schedule::promise::{Member, Place, Promise, none};
use crate::units::{Nanos, Rate, SECOND};

/// The promises of the classes.
pub fn promises(place: &Place<'_>) -> Vec<Result<Promise, String>> {
    let defaults = Defaults { packet: u64::from(place.packet), tick: 1 };
    let r2q = words::r2q(place.scheduler);
    let all = place.classes.iter().map(|member| Words::read(member.settings, &defaults)).collect::<Result<Vec<_>, _>>();
    let all = match all {
        Ok(all) => all,
        Err(error) => return none(place, error.message),
    };
    let packet = u128::from(place.packet);
    let leaves = || {
        place.classes.iter().zip(&all).filter(|(member, words)| member.leaf && words.rate > 0).map(|(_, words)| words)
    };
    let mut levels: BTreeMap<_, Level> = BTreeMap::new();
    for words in leaves() {
        let level = levels.entry(words.prio).or_default();
        level.bursts += u128::from(words.burst) + packet;
        level.rates += u128::from(words.rate);
        level.turns += u128::from(words.quantum(r2q)) + packet;
    }
    let sum: u128 = levels.values().map(|level| level.rates).sum();
    // Of each priority, what goes before it: bursts in bytes, and rates.
    let (mut before, mut rates) = (0, 0);
    let mut above = BTreeMap::new();
    for (prio, level) in &levels {
        above.insert(*prio, (before, rates, *level));
        before += level.bursts;
        rates += level.rates;
    }
    let capacity = u128::from(place.promised.rate().as_bit_s());
    let one = |(member, own): (&Member<'_>, &Words)| {
        if !member.leaf {
            return Err("what an inner class has beyond its children is shared, not promised".to_owned());
        }
        let Some((before, rates, level)) = above.get(&own.prio).filter(|_| own.rate > 0) else {
            return Err("its rate is 0: it only borrows".to_owned());
        };
        if sum > capacity {
            return Err("the classes are guaranteed more than there is".to_owned());
        }
        // Its equals, by their buckets and by their turns.
        let (burst, turn) = (u128::from(own.burst) + packet, u128::from(own.quantum(r2q)) + packet);
        let equal_rates = level.rates - u128::from(own.rate);
        // The packet on the wire and its own.
        let bytes = 2 * packet + before;
        let by_buckets = span(bytes + level.bursts - burst, capacity - rates - equal_rates);
        let by_turns = span(bytes + level.turns - turn, capacity - rates);
        // What the place is promised in a first, slower piece is not counted on.
        let curve = place.promised.curve;
        let late = if curve.first < curve.then {
            place.promised.latency.saturating_add(curve.until)
        } else {
            place.promised.latency
        };
        let wait = by_buckets.into_iter().chain(by_turns).min().and_then(|wait| wait.checked_add(late));
        let Some(mut wait) = wait else { return Err("the bound is beyond all time".to_owned()) };
        if own.ceil > own.rate {
            // What it borrowed last may still be owed to its ceil.
            wait = wait.saturating_add(span(packet, u128::from(own.ceil)).unwrap_or(Nanos::MAX));
        }
        let needed = Rate::bit_s(own.rate).bytes_in(wait).saturating_add(1);
        if let Some((word, has)) =
            [("burst", own.burst), ("cburst", own.cburst)].into_iter().find(|(_, has)| *has < needed)
        {
            return Err(format!(
                "it may wait {wait} ns, in which its {word} of {has} bytes overflows: {needed} bytes would keep its \
                 rate whatever others do"
            ));
        }
        // It may begin to wait with its bucket in debt by a packet.
        let debt = Rate::bit_s(own.rate).time_for(u64::from(place.packet));
        let latency = wait.checked_add(debt).ok_or("the bound is beyond all time")?;
        Ok(Promise::new(latency, Rate::bit_s(own.rate)))
    };
    place.classes.iter().zip(&all).map(one).collect()
}

/// What the leaves of a priority that are guaranteed something may do: bytes of buckets, bit/s,
/// bytes of turns.
#[derive(Clone, Copy, Default)]
struct Level {
    bursts: u128,
    rates: u128,
    turns: u128,
}

fn span(bytes: u128, rate: u128) -> Option<Nanos> {
    if rate == 0 {
        return None;
    }
    Nanos::try_from((bytes * 8 * u128::from(SECOND)).div_ceil(rate)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Settings, Value};

    fn class(rate: u64, ceil: u64, prio: u64, burst: u64) -> Settings {
        let mut settings = Settings::new();
        settings.set("rate", Value::Rate(Rate::bit_s(rate))).set("ceil", Value::Rate(Rate::bit_s(ceil)));
        settings.set("prio", Value::Int(prio)).set("burst", Value::Bytes(burst)).set("cburst", Value::Bytes(burst));
        settings.set("quantum", Value::Bytes(1500));
        settings
    }

    fn promised(classes: &[Settings], at: usize) -> Result<Promise, String> {
        let members: Vec<Member<'_>> =
            classes.iter().map(|settings| Member { parent: None, settings, leaf: true, holds: false }).collect();
        let place = Place {
            promised: Promise::new(0, Rate::mbit_s(10)),
            rate: Rate::mbit_s(10),
            packet: 1500,
            scheduler: &Settings::new(),
            classes: &members,
        };
        promises(&place)[at].clone()
    }

    #[test]
    fn the_formula_by_hand() {
        let classes = [
            class(1_000_000, 1_000_000, 0, 3000),
            class(2_000_000, 2_000_000, 1, 9000),
            class(3_000_000, 3_000_000, 1, 9000),
        ];
        // The first: two packets at 10 Mbit/s, 2.4 ms; and its debt, a packet at 1 Mbit/s, 12 ms.
        assert_eq!(promised(&classes, 0), Ok(Promise::new(14_400_000, Rate::mbit_s(1))));
        // The second: two packets, 4500 of the first, and a turn of the third (3000) at 9 Mbit/s,
        // which is less than its 10500 at 6 Mbit/s. 10500 bytes at 9 Mbit/s are 9.333 ms; its debt
        // 6 ms.
        assert_eq!(promised(&classes, 1), Ok(Promise::new(15_333_334, Rate::mbit_s(2))));
    }

    #[test]
    fn nothing_where_nothing_holds() {
        let small = [class(8_000_000, 8_000_000, 0, 1600), class(2_000_000, 2_000_000, 0, 1600)];
        // A wait for three and a half packets' turn: two packets and a turn of 3000 are 4.8 ms,
        // 4800 bytes at 8 Mbit/s.
        let said = promised(&small, 0).unwrap_err();
        assert!(said.contains("4801 bytes would keep its rate"), "{said}");
        assert!(promised(&[class(0, 1_000_000, 0, 1600)], 0).unwrap_err().contains("only borrows"));
        assert!(
            promised(&[class(9_000_000, 9_000_000, 0, 1), class(9_000_000, 9_000_000, 0, 1)], 0)
                .unwrap_err()
                .contains("more than")
        );
    }
}
