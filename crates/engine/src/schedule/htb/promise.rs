//! What HTB promises a leaf: its rate, if its buckets can hold what it is owed while it waits. The
//! proof is in docs/promises.md.
//!
//! A leaf that is green is served before all that borrows, whatever the buckets of the classes
//! above it hold. Before it go the packet on the wire, the green leaves of higher priority, and
//! those of equal priority. Both are bounded by their buckets: in a time t a bucket lets `burst +
//! rate t` and one packet pass, because a packet may go as long as its bucket owes nothing (Cruz
//! 1991). Those of equal priority are bounded by their turns as well (Shreedhar and Varghese 1996,
//! lemma 2): while the leaf sends x bytes it has x / quantum + 2 turns at most, and in as many
//! turns an equal sends its quantum each, and one packet more. That bound holds for all time only
//! if the leaf's quantum brings it at least its rate; the smaller of the two bounds is taken.
//!
//! With a bucket that holds less than the leaf is owed while it waits, tokens are lost and the rate
//! is not kept. Then there is no promise, and not a smaller one.

use std::collections::BTreeMap;

use super::words::{self, Defaults, Words};
use crate::schedule::promise::{Bound, Member, Place, Promise};
use crate::spec::{ClassId, LinkSpec, ROOT};
use crate::units::{Nanos, Rate, SECOND};

/// The promises of the classes.
pub fn promises(place: &Place<'_>) -> Vec<Result<Promise, String>> {
    let all = Leaves::of(place);
    each(place, |member, own| all.as_ref().map_err(Clone::clone)?.promise(member, own).map(|promised| promised.promise))
}

/// The delay bounds of the classes that the link's own scheduler serves, by class. A source that
/// has kept to the rate from the beginning never puts its class in debt, if the buckets hold
/// enough. So its packets need not wait for a debt, as those of a class that has just overspent
/// may.
pub fn bounds(link: &LinkSpec) -> Vec<Result<Bound, String>> {
    let (children, holders) = (link.children(), link.holders());
    let served: Vec<ClassId> = (1..link.classes.len() as ClassId).filter(|class| link.served_by_root(*class)).collect();
    let mut at = vec![None; link.classes.len()];
    served.iter().enumerate().for_each(|(n, class)| at[*class as usize] = Some(n));
    let members: Vec<Member<'_>> = served
        .iter()
        .map(|class| {
            let spec = &link.classes[*class as usize];
            let holds = spec.scheduler.is_some();
            let leaf = holds || children[*class as usize].is_empty();
            let packets = leaf || holders[*class as usize];
            Member { parent: at[spec.parent as usize], settings: &spec.settings, leaf, packets, holds }
        })
        .collect();
    let place = Place {
        promised: Promise::new(0, link.rate),
        rate: link.rate,
        packet: link.overhead.charge(link.mtu),
        scheduler: &link.scheduler.settings,
        classes: &members,
    };
    let all = Leaves::of(&place);
    let found = each(&place, |member, own| {
        if holders[ROOT as usize] {
            return Err("packets go to the link itself as well, and these go before all classes".to_owned());
        }
        let promised = all.as_ref().map_err(Clone::clone)?.promise(member, own)?;
        let packet = u64::from(place.packet);
        let conforming = promised.never_in_debt.or_else(|| promised.promise.delay(packet));
        let conforming = conforming.ok_or(TOO_LATE)?;
        Ok(Bound { conforming, rate: promised.promise.rate(), burst: packet, packetsize: packet })
    });
    let mut bounds = vec![Err("the packets of the link itself are not held to a rate".to_owned()); at.len()];
    for (class, bound) in served.into_iter().zip(found) {
        bounds[class as usize] = bound;
    }
    bounds
}

const TOO_LATE: &str = "the bound does not fit into 64 bits of nanoseconds";

/// Reads the words (`rate`, `ceil`, `burst` and so on) of every class, and calls `one` with each. A
/// class whose words cannot be read has that error as its result.
fn each<T: Clone>(place: &Place<'_>, one: impl Fn(&Member<'_>, &Words) -> Result<T, String>) -> Vec<Result<T, String>> {
    let defaults = Defaults { packet: u64::from(place.packet), tick: 1 };
    let read = |member: &Member<'_>| Words::read(member.settings, &defaults).map_err(|error| error.message);
    place.classes.iter().map(|member| one(member, &read(member)?)).collect()
}

/// What a leaf is promised.
struct Promised {
    /// What holds whatever the leaf has sent before, so also when its bucket is in debt.
    promise: Promise,
    /// The longest wait of its packets if its source sends at most its rate and bursts of a packet,
    /// and has never sent more. `None` if its buckets are too small for it.
    never_in_debt: Option<Nanos>,
}

/// How much the leaves of one priority whose rate is not 0 may send before another leaf: sums over
/// these leaves.
#[derive(Clone, Copy, Default)]
struct Level {
    /// By their buckets at once, each with a packet beyond its burst; bytes.
    bursts: u128,
    /// By their buckets in the long run, bit/s.
    rates: u128,
    /// In a turn of each, bytes.
    turns: u128,
    /// Beyond their turns, however many these are; bytes.
    beyond: u128,
}

/// What all leaves may do, by priority.
struct Leaves {
    r2q: u64,
    /// The largest packet, bytes.
    packet: u128,
    /// The rate promised to the place, which is where the scheduler works: the link, or the class
    /// that holds the scheduler; bit/s.
    capacity: u128,
    /// How long the place itself may serve nothing.
    late: Nanos,
    /// Of each priority: the sums of all higher ones, and its own.
    levels: BTreeMap<u8, (Level, Level)>,
}

impl Leaves {
    /// Adds up what the leaves of a place may do. An error if nothing is promised to any.
    fn of(place: &Place<'_>) -> Result<Leaves, String> {
        let defaults = Defaults { packet: u64::from(place.packet), tick: 1 };
        // If the curve that is promised to the place begins with a slower piece, that piece counts
        // as no service at all.
        let (curve, latency) = (place.promised.curve, place.promised.latency);
        let late = if curve.first < curve.then { latency.saturating_add(curve.until) } else { latency };
        let mut leaves = Leaves {
            r2q: words::r2q(place.scheduler),
            packet: u128::from(place.packet),
            capacity: u128::from(place.promised.rate().as_bit_s()),
            late,
            levels: BTreeMap::new(),
        };
        for member in place.classes {
            let words = Words::read(member.settings, &defaults).map_err(|error| error.message)?;
            // A class of rate 0 only borrows, as inner classes do: after all green leaves.
            if member.leaf && words.rate > 0 {
                let one = leaves.level(&words);
                leaves.levels.entry(words.prio).or_default().1.add(&one);
            }
        }
        let mut higher = Level::default();
        for (before, level) in leaves.levels.values_mut() {
            *before = higher;
            higher.add(level);
        }
        if higher.rates > leaves.capacity {
            return Err("the classes are guaranteed more than there is".to_owned());
        }
        Ok(leaves)
    }

    /// What one leaf may do. A packet counts on the wire for no more than its bucket is charged, so
    /// `overhead` and `mpu` of others need not be looked at. A turn with a quantum below the
    /// largest packet is a packet.
    fn level(&self, words: &Words) -> Level {
        let quantum = u128::from(words.quantum(self.r2q));
        Level {
            bursts: u128::from(words.burst) + self.packet,
            rates: u128::from(words.rate),
            turns: quantum.max(self.packet),
            beyond: quantum.min(self.packet),
        }
    }

    fn promise(&self, member: &Member<'_>, own: &Words) -> Result<Promised, String> {
        if !member.leaf {
            return Err("what an inner class has beyond its children is shared, not promised".to_owned());
        }
        let Some((higher, level)) = self.levels.get(&own.prio).filter(|_| own.rate > 0) else {
            return Err("its rate is 0: it only borrows".to_owned());
        };
        if own.overhead > 0 || own.mpu > 1 {
            return Err("its `overhead` and `mpu` charge its buckets more than its packets take on the wire, so its \
                        rate there depends on how long they are: write the overhead in the link"
                .to_owned());
        }
        let mut equals = *level;
        equals.subtract(&self.level(own));
        // The packet on the wire, and what the higher priorities have saved up.
        let before = self.packet + higher.bursts;
        let left = self.capacity - higher.rates;
        let packet = self.packet;
        // Two bounds, each a pair: how far the class is at most behind its rate, and when its first
        // packet is through at the latest.
        let by_buckets = self.span(before + equals.bursts, packet, left - equals.rates);
        let quantum = u128::from(own.quantum(self.r2q));
        // While the class sends its quantum, all together send this.
        let round = quantum + equals.turns;
        let fast = quantum >= packet && u128::from(own.rate) * round <= left * quantum;
        let by_turns = fast.then(|| {
            let own_turns = (packet * round).div_ceil(quantum);
            self.span(before + equals.beyond + 2 * equals.turns, own_turns, left)
        });
        let smaller = by_buckets.into_iter().chain(by_turns.flatten()).min();
        let (late, first) = smaller.ok_or(TOO_LATE)?;
        let rate = Rate::bit_s(own.rate);
        // A leaf that has just borrowed may owe its ceil's bucket a packet. Until that is paid it
        // may not send, while tokens already come into its rate's bucket.
        let borrows = own.ceil > own.rate || own.cburst > own.burst;
        let owed = if borrows { Rate::bit_s(own.ceil).time_for(self.packet as u64) } else { 0 };
        let needs = |wait: Nanos| rate.bytes_in(wait).saturating_add(1);
        for (word, has, wait) in [("burst", own.burst, late.saturating_add(owed)), ("cburst", own.cburst, late)] {
            if has < needs(wait) {
                return Err(format!(
                    "it may wait {wait} ns, in which its {word} of {has} bytes overflows: {} bytes would keep its \
                     rate whatever others do",
                    needs(wait)
                ));
            }
        }
        // It may begin to wait with its bucket in debt by a packet.
        let debt = rate.time_for(self.packet as u64);
        let latency = late.checked_add(debt).ok_or(TOO_LATE)?;
        let enough = needs(first).saturating_add(self.packet as u64);
        let never_in_debt = (own.burst.min(own.cburst) >= enough).then_some(first);
        Ok(Promised { promise: Promise::new(latency, rate), never_in_debt })
    }

    /// The time after which `others` bytes are through at `rate` bit/s, and that after which `own`
    /// are through behind them. Both rounded up.
    fn span(&self, others: u128, own: u128, rate: u128) -> Option<(Nanos, Nanos)> {
        // The tokens of others come in while the place serves nothing, too.
        let late = u128::from(self.late) * self.capacity;
        let time = |bytes: u128| {
            let work = bytes.checked_mul(8 * u128::from(SECOND))?.checked_add(late)?;
            Nanos::try_from(work.div_ceil(Some(rate).filter(|rate| *rate > 0)?)).ok()
        };
        Some((time(others)?, time(others + own)?))
    }
}

impl Level {
    fn add(&mut self, other: &Level) {
        self.bursts += other.bursts;
        self.rates += other.rates;
        self.turns += other.turns;
        self.beyond += other.beyond;
    }

    fn subtract(&mut self, other: &Level) {
        self.bursts -= other.bursts;
        self.rates -= other.rates;
        self.turns -= other.turns;
        self.beyond -= other.beyond;
    }
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
        let members: Vec<Member<'_>> = classes
            .iter()
            .map(|settings| Member { parent: None, settings, leaf: true, packets: true, holds: false })
            .collect();
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
        // The first: the packet on the wire at 10 Mbit/s, 1.2 ms; and its debt, a packet at 1
        // Mbit/s, 12 ms.
        assert_eq!(promised(&classes, 0), Ok(Promise::new(13_200_000, Rate::mbit_s(1))));
        // The second: the packet on the wire, 4500 bytes of the first, and two turns of the third
        // and a packet beyond (4500) at 9 Mbit/s: 10500 bytes, 9.333 ms; its debt 6 ms. By its
        // bucket the third has 10500 bytes, and 6 Mbit/s are left.
        assert_eq!(promised(&classes, 1), Ok(Promise::new(15_333_334, Rate::mbit_s(2))));
    }

    #[test]
    fn nothing_where_nothing_holds() {
        let small = [class(8_000_000, 8_000_000, 0, 1600), class(2_000_000, 2_000_000, 0, 1600)];
        // Equal quanta bring the first 5 Mbit/s, so only buckets count: the packet on the wire and
        // 3100 bytes of the other at 8 Mbit/s are 4.6 ms, 4600 bytes at 8 Mbit/s.
        let said = promised(&small, 0).unwrap_err();
        assert!(said.contains("4601 bytes would keep its rate"), "{said}");
        assert!(promised(&[class(0, 1_000_000, 0, 1600)], 0).unwrap_err().contains("only borrows"));
        assert!(
            promised(&[class(9_000_000, 9_000_000, 0, 1), class(9_000_000, 9_000_000, 0, 1)], 0)
                .unwrap_err()
                .contains("more than")
        );
    }
}
