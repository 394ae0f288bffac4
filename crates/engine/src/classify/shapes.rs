//! An index of rules: tuple space search (Srinivasan, Suri and Varghese 1999).
//!
//! Most rules compare some bits of a packet with exact values: `dst 10.1.2.0/24 dport 80` compares
//! 24 bits of an address and 16 of a port. Which bits these are is the rule's *shape* (the paper's
//! tuple). Rules of one shape are found by a hash of the values, so a lookup costs one hash for
//! each shape, however many rules there are. People write rules in a few ways, so there are few
//! shapes. A rule that is found so is then tested in full.
//!
//! The index leaves out rules without exact values, and shapes of too few rules to be worth a hash.
//! Those rules are tried one after the other.

use super::matcher::{host_bits, masked, numbers};
use super::rule::{Field, Rule, Values};
use crate::headers::Key;
use crate::random;

/// Up to so many rules trying them one after the other is as fast.
const MAX_TRIED_IN_TURN: usize = 16;

/// A shape of fewer rules than this is not worth a hash.
const MIN_RULES_OF_SHAPE: usize = 4;

/// A rule that compares fewer bits than this shares its hash with too many packets. Then one of its
/// lists or ranges is used as well: the rule is entered once for each value of it.
const MIN_BITS: u32 = 12;

/// The most values of such a list. A range of ports is at most 30 blocks.
const MAX_VALUES: usize = 64;

/// The bits of one field that a shape compares. Addresses of IPv4 and of IPv6 are different parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    field: Field,
    v6: bool,
    mask: u128,
}

/// The index. A rule's *place* is its index in the order in which rules are tried.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    /// The parts of each shape, and the first place of its rules, in the order of that place.
    shapes: Vec<(Vec<Part>, u32)>,
    /// By the top bits of the hash: the index of their first entry.
    starts: Vec<u32>,
    /// Hash and place of each entry, in the order of the hash's top bits, then of the place.
    entries: Vec<(u64, u32)>,
}

impl Shapes {
    /// Makes the index of rules that are in the order in which they are tried. Returns it with the
    /// places of the rules that it does not have.
    pub(super) fn new(rules: &[&Rule]) -> (Shapes, Vec<u32>) {
        if rules.len() <= MAX_TRIED_IN_TURN {
            return (Shapes::default(), (0..rules.len() as u32).collect());
        }
        let exact: Vec<Vec<ExactValues>> = rules.iter().map(|rule| exact_values(rule)).collect();
        // Every shape, and how many entries it has.
        let mut names: Vec<&Vec<Part>> =
            exact.iter().flatten().map(|one| &one.parts).filter(|parts| !parts.is_empty()).collect();
        names.sort_unstable();
        let mut known: Vec<(&Vec<Part>, usize)> = Vec::new();
        for parts in names {
            match known.last_mut() {
                Some((last, count)) if *last == parts => *count += 1,
                _ => known.push((parts, 1)),
            }
        }
        let worth = |one: &ExactValues| {
            known
                .binary_search_by(|(parts, _)| (*parts).cmp(&one.parts))
                .is_ok_and(|at| known.get(at).is_some_and(|k| k.1 >= MIN_RULES_OF_SHAPE))
        };
        let mut shapes: Vec<(Vec<Part>, u32)> = Vec::new();
        let (mut entries, mut others): (Vec<(u64, u32)>, Vec<u32>) = Default::default();
        // The number of each of the `known` shapes, once an entry of it is made.
        let mut numbers: Vec<Option<usize>> = vec![None; known.len()];
        for (place, exact) in exact.iter().enumerate() {
            let place = place as u32;
            if exact.is_empty() || !exact.iter().all(worth) {
                others.push(place);
                continue;
            }
            for one in exact {
                let Ok(name) = known.binary_search_by(|(parts, _)| (*parts).cmp(&one.parts)) else { continue };
                let Some(number) = numbers.get_mut(name) else { continue };
                let shape = *number.get_or_insert_with(|| {
                    shapes.push((one.parts.clone(), place));
                    shapes.len() - 1
                });
                let hash = one.values.iter().fold(start(shape), |hash, value| mix_in(hash, *value));
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

    /// The first place below `before` of a rule that the index finds for the key and that
    /// `matches`.
    pub(super) fn first(&self, key: &Key, before: u32, matches: impl Fn(u32) -> bool) -> Option<u32> {
        let bits = (self.starts.len().max(2) - 1).trailing_zeros();
        let mut best = None;
        for (number, (parts, first)) in self.shapes.iter().enumerate() {
            let before = best.unwrap_or(before);
            // Shapes are in the order of their first rule: no later shape has an earlier rule.
            if *first >= before {
                break;
            }
            let hash = parts.iter().try_fold(start(number), |hash, part| Some(mix_in(hash, part.of(key)?)));
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
    /// How many bits of a packet it compares.
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

    /// The value that a key has in these bits; `None` if it does not have the field.
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

/// Exact values that a matching packet may have: the parts of a shape and a value for each, both in
/// the order of the parts.
struct ExactValues {
    parts: Vec<Part>,
    values: Vec<u128>,
}

/// The exact values of a rule: a packet that matches the rule has one of these. Empty if the rule
/// has none.
fn exact_values(rule: &Rule) -> Vec<ExactValues> {
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
    let list = lists.into_iter().max_by_key(|list| bits(list)).filter(|_| whole < MIN_BITS);
    let one = |more: Option<(Part, u128)>| {
        let mut all: Vec<(Part, u128)> =
            single.iter().copied().chain(more).filter(|(part, _)| part.mask != 0).collect();
        // Sorted, so that the order of a rule's terms does not matter.
        all.sort_unstable();
        let (parts, values) = all.into_iter().unzip();
        ExactValues { parts, values }
    };
    let exact: Vec<ExactValues> = match list {
        Some(list) => list.into_iter().map(|value| one(Some(value))).collect(),
        None => vec![one(None)],
    };
    if exact.iter().any(|one| one.parts.is_empty()) { Vec::new() } else { exact }
}

/// The exact values that a term accepts. `None` if there are none or too many, or if the term looks
/// at two fields.
fn alternatives(field: Field, values: &Values) -> Option<Vec<(Part, u128)>> {
    let is_address = matches!(field, Field::Src | Field::Dst);
    let list: Vec<(Part, u128)> = match values {
        // These accept either address or either port: a packet has two values.
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
                    blocks.len() <= MAX_VALUES
                });
            }
            blocks
        }
    };
    (1..=MAX_VALUES).contains(&list.len()).then_some(list)
}

/// Splits a range into blocks of a power of two, each a value and a mask, and calls `each` with
/// them until it returns false.
fn split(first: u32, last: u32, each: &mut impl FnMut(u32, u32) -> bool) {
    let (mut from, last) = (u64::from(first), u64::from(last));
    while from <= last {
        // The largest block that begins here and ends in the range.
        let begins = if from == 0 { 32 } else { from.trailing_zeros().min(32) };
        let fits = (last - from + 1).ilog2();
        let size = 1u64 << begins.min(fits);
        let mask = !(size - 1) as u32;
        if !each(from as u32, mask) {
            return;
        }
        from += size;
    }
}

/// The beginning of a hash: the shape's number. This hash has no secret: only the operator writes
/// rules, and rules that collide are compared.
fn start(shape: usize) -> u64 {
    (shape as u64 + 1).wrapping_mul(random::GOLDEN_GAMMA)
}

fn mix_in(hash: u64, value: u128) -> u64 {
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
        // Either port is no exact one, and one rule alone is no shape.
        assert_eq!(others, [3000, 3001]);
        assert_eq!(shapes.shapes.len(), 3);
        assert_eq!(shapes.entries.len(), 4000);
        let key = Key { family: 4, proto: 6, dst: 0x0a00_0507, ..Key::default() }.with_ports(163, 443);
        assert_eq!(shapes.first(&key, u32::MAX, |_| true), Some(1005));
        assert_eq!(shapes.first(&key, u32::MAX, |place| place > 2000), Some(2010));
        assert_eq!(shapes.first(&key, 1005, |_| true), None);
        assert_eq!(shapes.first(&Key { family: 6, ..key }, u32::MAX, |_| true), Some(2010));
    }
}
