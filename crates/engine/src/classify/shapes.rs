//! An index of rules: tuple-space search (Srinivasan, Suri and Varghese 1999).
//!
//! What a rule demands exactly (`dst 10.1.2.0/24 dport 80`: 24 bits of an address, 16 of a port) is
//! its shape and its values. Rules of one shape are found by a hash of those bits, so a lookup
//! costs a hash a shape, however many rules there are; of shapes there are few, as people write
//! rules in a few ways. What else a rule says is tested afterwards. A rule that demands nothing
//! exactly is left to be walked through, and so are shapes of which there are too few rules to be
//! worth a hash.

use super::matcher::{host_bits, masked, numbers};
use super::rule::{Field, Rule, Values};
use crate::headers::Key;
use crate::random;

/// Below so many rules a walk is as fast.
const FEW: usize = 16;

/// Rules of a shape that are worth a hash.
const WORTH: usize = 4;

/// A rule that demands fewer bits than these would share its hash with many: then one of its lists
/// or ranges counts, each of its values.
const ENOUGH: u32 = 12;

/// Values of such a list at most. A range of ports is 30 blocks at most.
const VALUES: usize = 64;

/// A field under a mask. Addresses of both families differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    field: Field,
    v6: bool,
    mask: u128,
}

/// Rules by what they demand exactly.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    /// Each shape's parts, and the first place of its rules; by that place.
    shapes: Vec<(Vec<Part>, u32)>,
    /// Where the entries of a hash's top bits begin.
    starts: Vec<u32>,
    /// Hashes and the rules' places, by the hash's top bits, then by place.
    entries: Vec<(u64, u32)>,
}

impl Shapes {
    /// An index of rules in the order in which they are tried, and the places of those that are not
    /// in it.
    pub(super) fn new(rules: &[&Rule]) -> (Shapes, Vec<u32>) {
        if rules.len() <= FEW {
            return (Shapes::default(), (0..rules.len() as u32).collect());
        }
        let demands: Vec<Vec<Demand>> = rules.iter().map(|rule| demands(rule)).collect();
        // Every shape, and how many rules are of it.
        let mut names: Vec<&Vec<Part>> =
            demands.iter().flatten().map(|demand| &demand.parts).filter(|parts| !parts.is_empty()).collect();
        names.sort_unstable();
        let mut known: Vec<(&Vec<Part>, usize)> = Vec::new();
        for parts in names {
            match known.last_mut() {
                Some((last, count)) if *last == parts => *count += 1,
                _ => known.push((parts, 1)),
            }
        }
        let worth = |demand: &Demand| {
            known
                .binary_search_by(|(parts, _)| (*parts).cmp(&demand.parts))
                .is_ok_and(|at| known.get(at).is_some_and(|k| k.1 >= WORTH))
        };
        let mut shapes: Vec<(Vec<Part>, u32)> = Vec::new();
        let (mut entries, mut others): (Vec<(u64, u32)>, Vec<u32>) = Default::default();
        // By the sorted names: which shape it has become.
        let mut numbers: Vec<Option<usize>> = vec![None; known.len()];
        for (place, demands) in demands.iter().enumerate() {
            let place = place as u32;
            if demands.is_empty() || !demands.iter().all(worth) {
                others.push(place);
                continue;
            }
            for demand in demands {
                let Ok(name) = known.binary_search_by(|(parts, _)| (*parts).cmp(&demand.parts)) else { continue };
                let Some(number) = numbers.get_mut(name) else { continue };
                let shape = *number.get_or_insert_with(|| {
                    shapes.push((demand.parts.clone(), place));
                    shapes.len() - 1
                });
                let hash = demand.values.iter().fold(start(shape), |hash, value| stir(hash, *value));
                entries.push((random::mix(hash), place));
            }
        }
        let bits = entries.len().max(1).next_power_of_two().trailing_zeros().clamp(1, 31);
        entries.sort_unstable_by_key(|(hash, place)| (hash >> (64 - bits), *place));
        let mut starts = vec![0u32; (1 << bits) + 1];
        for (hash, _) in &entries {
            if let Some(count) = starts.get_mut((hash >> (64 - bits)) as usize + 1) {
                *count += 1;
            }
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        (Shapes { shapes, starts, entries }, others)
    }

    /// The first place, below `before`, of a rule whose demands the key may meet and that
    /// `matches`.
    pub(super) fn first(&self, key: &Key, before: u32, matches: impl Fn(u32) -> bool) -> Option<u32> {
        let bits = (self.starts.len().max(2) - 1).trailing_zeros();
        let mut best = None;
        for (number, (parts, first)) in self.shapes.iter().enumerate() {
            let before = best.unwrap_or(before);
            // Shapes stand by their first rule: none that follows has an earlier one.
            if *first >= before {
                break;
            }
            let hash = parts.iter().try_fold(start(number), |hash, part| Some(stir(hash, part.of(key)?)));
            let Some(hash) = hash.map(random::mix) else { continue };
            let bucket = (hash >> (64 - bits)) as usize;
            let (Some(from), Some(to)) = (self.starts.get(bucket), self.starts.get(bucket + 1)) else { continue };
            let entries = self.entries.get(*from as usize..*to as usize).unwrap_or_default();
            let places = entries.iter().take_while(|(_, place)| *place < before).filter(|(own, _)| *own == hash);
            best = places.map(|(_, place)| *place).find(|place| matches(*place)).or(best);
        }
        best
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        let parts: usize = self.shapes.iter().map(|(parts, _)| parts.capacity() * size_of::<Part>()).sum();
        parts
            + self.shapes.capacity() * size_of::<(Vec<Part>, u32)>()
            + self.starts.capacity() * 4
            + self.entries.capacity() * size_of::<(u64, u32)>()
    }
}

impl Part {
    /// How many bits of a packet it demands.
    fn bits(&self) -> u32 {
        let width = match self.field {
            Field::Src | Field::Dst | Field::Host => 128,
            Field::Mark | Field::Spi => 32,
            Field::FlowLabel => 20,
            Field::SrcPort | Field::DstPort | Field::Port | Field::Length => 16,
            Field::Vlan => 12,
            Field::Proto | Field::Tos | Field::TcpFlags => 8,
            Field::Dscp => 6,
            Field::Ecn | Field::Interface | Field::Family => 2,
        };
        self.mask.count_ones().min(width)
    }

    /// What a key has there; `None` if it does not have the field.
    fn of(&self, key: &Key) -> Option<u128> {
        let address =
            |bits| (key.family == if self.v6 { 6 } else { 4 }).then(|| host_bits(bits, key.family) & self.mask);
        match self.field {
            Field::Src => address(key.src),
            Field::Dst => address(key.dst),
            field => numbers(field, key)[0].map(|n| u128::from(n) & self.mask),
        }
    }
}

/// One of the ways in which a rule can be met: its exact parts and their values, both in the order
/// of the parts.
struct Demand {
    parts: Vec<Part>,
    values: Vec<u128>,
}

/// The ways in which a rule can be met; none if it demands nothing exactly.
fn demands(rule: &Rule) -> Vec<Demand> {
    let mut single: Vec<(Part, u128)> = Vec::new();
    let mut lists: Vec<Vec<(Part, u128)>> = Vec::new();
    for term in rule.terms.iter().filter(|term| !term.negated) {
        match alternatives(term.field, &term.values) {
            Some(list) if list.len() == 1 => single.extend(list),
            Some(list) => lists.push(list),
            None => {}
        }
    }
    let bits = |list: &[(Part, u128)]| list.iter().map(|(part, _)| part.bits()).min().unwrap_or(0);
    let whole: u32 = single.iter().map(|(part, _)| part.bits()).sum();
    let list = lists.into_iter().max_by_key(|list| bits(list)).filter(|_| whole < ENOUGH);
    let demand = |more: Option<(Part, u128)>| {
        let mut all: Vec<(Part, u128)> =
            single.iter().copied().chain(more).filter(|(part, _)| part.mask != 0).collect();
        // Two rules that say the same in another order are of one shape.
        all.sort_unstable();
        let (parts, values) = all.into_iter().unzip();
        Demand { parts, values }
    };
    let demands: Vec<Demand> = match list {
        Some(list) => list.into_iter().map(|value| demand(Some(value))).collect(),
        None => vec![demand(None)],
    };
    if demands.iter().any(|demand| demand.parts.is_empty()) { Vec::new() } else { demands }
}

/// The exact values of a term, any of which it accepts; `None` if they are too many, none at all,
/// or not of one field.
fn alternatives(field: Field, values: &Values) -> Option<Vec<(Part, u128)>> {
    let is_address = matches!(field, Field::Src | Field::Dst);
    let list: Vec<(Part, u128)> = match values {
        // Either address, either port: a key has two values.
        _ if matches!(field, Field::Host | Field::Port) => return None,
        Values::Addresses(list) if is_address => {
            list.iter().map(masked).map(|a| (Part { field, v6: a.v6, mask: a.mask }, a.bits)).collect()
        }
        Values::Addresses(_) => return None,
        _ if is_address => return None,
        Values::Masked(list) => {
            let whole = list.iter().filter(|(value, mask)| value & mask == *value);
            whole.map(|(value, mask)| (Part { field, v6: false, mask: (*mask).into() }, (*value).into())).collect()
        }
        Values::Ranges(list) => {
            let mut blocks = Vec::new();
            for (first, last) in list {
                split(*first, *last, &mut |value, mask| {
                    blocks.push((Part { field, v6: false, mask: mask.into() }, value.into()));
                    blocks.len() <= VALUES
                });
            }
            blocks
        }
    };
    (1..=VALUES).contains(&list.len()).then_some(list)
}

/// A range as blocks of a power of two, each a value under a mask, as long as `tell` wants more.
fn split(first: u32, last: u32, tell: &mut impl FnMut(u32, u32) -> bool) {
    let (mut from, last) = (u64::from(first), u64::from(last));
    while from <= last {
        // The largest block that begins here and ends in the range.
        let begins = if from == 0 { 32 } else { from.trailing_zeros().min(32) };
        let fits = (last - from + 1).ilog2();
        let size = 1u64 << begins.min(fits);
        let mask = !(size - 1) as u32;
        if !tell(from as u32, mask) {
            return;
        }
        from += size;
    }
}

/// The hash of a shape's number, before its values. Rules are the operator's: nobody else chooses
/// what meets in a bucket, and what does is compared.
fn start(shape: usize) -> u64 {
    (shape as u64 + 1).wrapping_mul(random::GOLDEN_GAMMA)
}

fn stir(hash: u64, value: u128) -> u64 {
    let fold = (value as u64) ^ ((value >> 64) as u64).rotate_left(32);
    (hash ^ fold).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(29)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::{Address, Term};

    #[test]
    fn ranges_are_blocks() {
        let blocks = |first, last| {
            let mut blocks = Vec::new();
            split(first, last, &mut |value, mask| {
                blocks.push((value, mask));
                true
            });
            blocks
        };
        assert_eq!(blocks(5, 5), [(5, u32::MAX)]);
        // 1000 to 1007, 1023, 1535, 1791, 1919, 1983, 1999.
        let by_hand = [(1000, !7), (1008, !15), (1024, !511), (1536, !255), (1792, !127), (1920, !63), (1984, !15)];
        assert_eq!(blocks(1000, 1999), by_hand);
        assert_eq!(blocks(0, u32::MAX), [(0, 0)]);
        assert_eq!(blocks(1, 6), [(1, u32::MAX), (2, !1), (4, !1), (6, u32::MAX)]);
        assert_eq!(blocks(7, 3), []);
        // The worst of 16 bits: 1 to 65534.
        assert_eq!(blocks(1, 65534).len(), 30);
        for (first, last) in [(1, 6), (1000, 1999), (443, 444), (u32::MAX - 1, u32::MAX)] {
            let sum: u64 = blocks(first, last).iter().map(|(_, mask)| u64::from(!mask) + 1).sum();
            assert_eq!(sum, u64::from(last - first) + 1);
        }
    }
    fn rule(terms: &[(Field, Values)]) -> Rule {
        let term = |(field, values): &(Field, Values)| Term { field: *field, negated: false, values: values.clone() };
        Rule { terms: terms.iter().map(term).collect(), class: 1, number: 0 }
    }

    fn nets(n: u128) -> Values {
        Values::Addresses(vec![Address { v6: false, bits: 0x0a00_0000 + (n << 8), mask: 0xffff_ff00 }])
    }

    #[test]
    fn what_is_demanded_exactly_is_found_by_it() {
        let number = |n| Values::Ranges(vec![(n, n)]);
        let ranges = |n: u32| Values::Ranges(vec![(16 * n, 16 * n + 15), (40000, 40000)]);
        let mut rules: Vec<Rule> =
            (0..1000).map(|n| rule(&[(Field::Dst, nets(n)), (Field::DstPort, number(80))])).collect();
        // The same said in another order, lists of ports, and ranges beside something that would be
        // one value for all.
        rules.extend((0..1000).map(|n| rule(&[(Field::DstPort, number(443)), (Field::Dst, nets(n))])));
        rules.extend((0..1000).map(|n| rule(&[(Field::Proto, number(6)), (Field::SrcPort, ranges(n as u32))])));
        rules.push(rule(&[(Field::Port, number(53))]));
        rules.push(rule(&[(Field::Length, number(40))]));
        let (shapes, others) = Shapes::new(&rules.iter().collect::<Vec<_>>());
        // Either port is no exact demand, and one rule alone is no shape.
        assert_eq!(others, [3000, 3001]);
        assert_eq!(shapes.shapes.len(), 3);
        assert_eq!(shapes.entries.len(), 4000);
        let key = Key { family: 4, proto: 6, dst: 0x0a00_0507, dport: Some(443), sport: Some(163), ..Key::default() };
        assert_eq!(shapes.first(&key, u32::MAX, |_| true), Some(1005));
        assert_eq!(shapes.first(&key, u32::MAX, |place| place > 2000), Some(2010));
        assert_eq!(shapes.first(&key, 1005, |_| true), None);
        assert_eq!(shapes.first(&Key { family: 6, ..key }, u32::MAX, |_| true), Some(2010));
    }
}
