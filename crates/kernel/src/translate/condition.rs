//! Turns a rule into conditions that the kernel's filters can compare. A rule matches if one of its
//! conditions holds.
//!
//! A filter compares each field with one value, mask or range, and all fields must match. A rule
//! may have lists, ranges of any field, `!`, and keys that mean source or destination. So a rule
//! becomes the product of the alternatives of its terms.

use std::collections::HashSet;
use std::ops::{BitAnd, BitOr, BitXor};

use altq_engine::classify::{Address, Field, Rule, Term, Values};

/// The most conditions of one rule.
const MOST: usize = 4096;

/// The protocols with ports that the kernel's filters know: TCP, UDP, SCTP.
const WITH_PORTS: [u8; 3] = [6, 17, 132];
/// ESP and AH, which have an SPI.
pub(super) const ESP: u8 = 50;
pub(super) const AH: u8 = 51;
const TCP: u8 = 6;

/// The version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Fields of a packet, all of which must match. A field that is `None` may have any value, or be
/// missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Condition {
    /// The version of IP.
    pub family: Option<Family>,
    /// Source address: bits and mask, IPv4 in the low 32 bits.
    pub src: Option<(u128, u128)>,
    /// Destination address.
    pub dst: Option<(u128, u128)>,
    /// IP protocol.
    pub proto: Option<u8>,
    /// Source port, first and last.
    pub sport: Option<(u32, u32)>,
    /// Destination port, first and last.
    pub dport: Option<(u32, u32)>,
    /// TOS or traffic class: value and mask.
    pub tos: Option<(u32, u32)>,
    /// TCP flags: value and mask.
    pub tcp_flags: Option<(u32, u32)>,
    /// Length at layer 3, first and last.
    pub length: Option<(u32, u32)>,
    /// Firewall mark: value and mask.
    pub mark: Option<(u32, u32)>,
    /// The interface by which the packet came.
    pub indev: Option<String>,
    /// Identifier of the VLAN.
    pub vlan: Option<u32>,
    /// SPI of ESP or AH: value and mask.
    pub spi: Option<(u32, u32)>,
    /// IPv6 flow label: value and mask.
    pub label: Option<(u32, u32)>,
}

impl Condition {
    /// Whether only IP packets can match.
    pub fn is_ip(&self) -> bool {
        let Condition { family, src, dst, proto, sport, dport, tos, tcp_flags, length, spi, label, .. } = self;
        family.is_some()
            || src.is_some()
            || dst.is_some()
            || proto.is_some()
            || sport.is_some()
            || dport.is_some()
            || tos.is_some()
            || tcp_flags.is_some()
            || length.is_some()
            || spi.is_some()
            || label.is_some()
    }

    /// The condition that holds if both hold; `None` if they exclude each other.
    fn and(&self, other: &Condition) -> Option<Condition> {
        Some(Condition {
            family: same(self.family, other.family)?,
            src: masked(self.src, other.src)?,
            dst: masked(self.dst, other.dst)?,
            proto: same(self.proto, other.proto)?,
            sport: within(self.sport, other.sport)?,
            dport: within(self.dport, other.dport)?,
            tos: masked(self.tos, other.tos)?,
            tcp_flags: masked(self.tcp_flags, other.tcp_flags)?,
            length: within(self.length, other.length)?,
            mark: masked(self.mark, other.mark)?,
            indev: same(self.indev.clone(), other.indev.clone())?,
            vlan: same(self.vlan, other.vlan)?,
            spi: masked(self.spi, other.spi)?,
            label: masked(self.label, other.label)?,
        })
    }
}

/// The value that both ask for; `None` if they ask for different ones.
fn same<T: PartialEq>(one: Option<T>, other: Option<T>) -> Option<Option<T>> {
    match (one, other) {
        (Some(one), Some(other)) => (one == other).then_some(Some(one)),
        (one, other) => Some(one.or(other)),
    }
}

/// The value and mask that ask for both; `None` if they differ in a bit that both compare.
fn masked<T>(one: Option<(T, T)>, other: Option<(T, T)>) -> Option<Option<(T, T)>>
where
    T: Copy + Default + PartialEq + BitAnd<Output = T> + BitOr<Output = T> + BitXor<Output = T>,
{
    match (one, other) {
        (Some((one, mask)), Some((other, other_mask))) => {
            let differ = (one ^ other) & mask & other_mask;
            (differ == T::default()).then_some(Some((one | other, mask | other_mask)))
        }
        (one, other) => Some(one.or(other)),
    }
}

/// The range that two ranges have in common; `None` if they have none.
fn within(one: Option<(u32, u32)>, other: Option<(u32, u32)>) -> Option<Option<(u32, u32)>> {
    match (one, other) {
        (Some((from, to)), Some((other_from, other_to))) => {
            let both = (from.max(other_from), to.min(other_to));
            (both.0 <= both.1).then_some(Some(both))
        }
        (one, other) => Some(one.or(other)),
    }
}

/// The conditions of a rule, one of which must hold. The list is empty if no packet can match.
///
/// # Errors
/// What the kernel's filters cannot compare, as the end of a sentence about the rule.
pub fn conditions(rule: &Rule, interfaces: &[String]) -> Result<Vec<Condition>, String> {
    let mut all = vec![Condition::default()];
    for term in &rule.terms {
        all = product(&all, &alternatives(term, interfaces)?)?;
    }
    Ok(all)
}

fn product(ones: &[Condition], others: &[Condition]) -> Result<Vec<Condition>, String> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    for one in ones {
        for both in others.iter().filter_map(|other| one.and(other)) {
            if seen.insert(both.clone()) {
                found.push(both);
            }
            if found.len() > MOST {
                return Err(format!("it would need more than {MOST} filters"));
            }
        }
    }
    Ok(found)
}

/// The conditions of a term, one of which must hold.
fn alternatives(term: &Term, interfaces: &[String]) -> Result<Vec<Condition>, String> {
    let Term { field, negated, values } = term;
    let (field, negated) = (*field, *negated);
    let none = Condition::default;
    match (field, values) {
        (Field::Src | Field::Dst | Field::Host, Values::Addresses(addresses)) => {
            of_addresses(field, negated, addresses)
        }
        // A value of the wrong kind matches nothing, and negated it matches everything.
        (Field::Src | Field::Dst | Field::Host, _) | (_, Values::Addresses(_)) => {
            Ok(if negated { vec![none()] } else { Vec::new() })
        }
        (Field::Dscp, _) => Ok(tos(masks(values, negated, 6), 2)),
        (Field::Ecn, _) => Ok(tos(masks(values, negated, 2), 0)),
        (Field::Tos, _) => Ok(tos(masks(values, negated, 8), 0)),
        (Field::Mark, _) => {
            let of = |(value, mask): (u32, u32)| Condition { mark: (mask != 0).then_some((value, mask)), ..none() };
            Ok(masks(values, negated, 32).into_iter().map(of).collect())
        }
        (Field::Length, _) => {
            let of = |range| Condition { length: Some(range), ..none() };
            Ok(ranges(values, negated, 16).ok_or_else(unordered)?.into_iter().map(of).collect())
        }
        (Field::Family, Values::Ranges(families)) => {
            let is = |family: u32| families.iter().any(|(from, to)| (*from..=*to).contains(&family)) != negated;
            let both = [(4, Family::V4), (6, Family::V6)];
            let of = |(_, family): (u32, Family)| Condition { family: Some(family), ..none() };
            Ok(both.into_iter().filter(|(number, _)| is(*number)).map(of).collect())
        }
        _ if negated => Err("the kernel's filters have no `!` for this key: they cannot tell a packet that has \
                             another value from one that does not have the field"
            .to_owned()),
        (Field::SrcPort | Field::DstPort | Field::Port, _) => {
            let mut found = Vec::new();
            for range in ranges(values, false, 16).ok_or_else(unordered)? {
                for proto in WITH_PORTS {
                    let of = Condition { proto: Some(proto), ..none() };
                    if field != Field::DstPort {
                        found.push(Condition { sport: Some(range), ..of.clone() });
                    }
                    if field != Field::SrcPort {
                        found.push(Condition { dport: Some(range), ..of });
                    }
                }
            }
            Ok(found)
        }
        (Field::Proto, _) => {
            let of = |proto: u32| Condition { proto: Some(proto as u8), ..none() };
            let ranges = ranges(values, false, 8).ok_or_else(unordered)?;
            Ok(ranges.into_iter().flat_map(|(from, to)| from..=to).map(of).collect())
        }
        (Field::TcpFlags, _) => {
            let of = |(value, mask): (u32, u32)| Condition {
                proto: Some(TCP),
                tcp_flags: (mask != 0).then_some((value, mask)),
                ..none()
            };
            Ok(masks(values, false, 8).into_iter().map(of).collect())
        }
        (Field::Vlan, _) => {
            let of = |vlan: u32| Condition { vlan: Some(vlan), ..none() };
            let ranges = ranges(values, false, 12).ok_or_else(unordered)?;
            Ok(ranges.into_iter().flat_map(|(from, to)| from..=to).map(of).collect())
        }
        (Field::Interface, _) => {
            let numbers = ranges(values, false, 16).ok_or_else(unordered)?.into_iter().flat_map(|(from, to)| from..=to);
            let named = numbers.filter_map(|number| interfaces.get(number as usize));
            Ok(named.map(|name| Condition { indev: Some(name.clone()), ..none() }).collect())
        }
        (Field::Spi, _) => {
            let mut found = Vec::new();
            for (value, mask) in masks(values, false, 32) {
                let spi = (mask != 0).then_some((value, mask));
                found.extend([ESP, AH].map(|proto| Condition { proto: Some(proto), spi, ..none() }));
            }
            Ok(found)
        }
        (Field::FlowLabel, _) => {
            let of = |(value, mask): (u32, u32)| Condition {
                family: Some(Family::V6),
                label: (mask != 0).then_some((value, mask)),
                ..none()
            };
            Ok(masks(values, false, 20).into_iter().map(of).collect())
        }
        (Field::Family, Values::Masked(_)) => {
            Err("the kernel's filters cannot compare a family under a mask".to_owned())
        }
    }
}

fn unordered() -> String {
    "the kernel's filters cannot compare this key under a mask with gaps".to_owned()
}

/// Conditions on the TOS octet, from values and masks of the field that begins `shift` bits from
/// its end.
fn tos(masks: Vec<(u32, u32)>, shift: u32) -> Vec<Condition> {
    let of = |(value, mask): (u32, u32)| match mask {
        // Any value matches, but only in IP packets.
        0 => [Family::V4, Family::V6].map(|family| Condition { family: Some(family), ..Condition::default() }).to_vec(),
        _ => vec![Condition { tos: Some((value << shift, mask << shift)), ..Condition::default() }],
    };
    masks.into_iter().flat_map(of).collect()
}

fn of_addresses(field: Field, negated: bool, addresses: &[Address]) -> Result<Vec<Condition>, String> {
    let family = |v6: bool| Some(if v6 { Family::V6 } else { Family::V4 });
    let at = |source: bool, v6: bool, bits: u128, mask: u128| {
        let end = (mask != 0).then_some((bits, mask));
        let (src, dst) = if source { (end, None) } else { (None, end) };
        Condition { family: family(v6), src, dst, ..Condition::default() }
    };
    let ends: &[bool] = match field {
        Field::Src => &[true],
        Field::Dst => &[false],
        _ => &[true, false],
    };
    if !negated {
        let mut found = Vec::new();
        for address in addresses {
            found.extend(ends.iter().map(|end| at(*end, address.v6, address.bits, address.mask)));
        }
        return Ok(found);
    }
    // Each end of the packet must lie outside of all addresses. Outside of an address are all that
    // differ in a bit of its mask, and all packets of the other family.
    let mut all = vec![Condition::default()];
    for end in ends {
        for address in addresses {
            let other = Condition { family: family(!address.v6), ..Condition::default() };
            let mut outside = vec![other];
            outside.extend(differing(address.bits, address.mask).map(|(bits, mask)| at(*end, address.v6, bits, mask)));
            all = product(&all, &outside)?;
        }
    }
    Ok(all)
}

/// All values that differ from `bits` in a bit of `mask`, as values and masks: for each bit, those
/// that differ in it and are the same in the higher bits.
fn differing(bits: u128, mask: u128) -> impl Iterator<Item = (u128, u128)> {
    let places = (0..128).rev().map(|place| 1u128 << place).filter(move |bit| mask & bit != 0);
    places.map(move |bit| {
        let above = mask & !(bit | (bit - 1));
        (bits & above | !bits & bit, above | bit)
    })
}

/// The values as values and masks of `width` bits; if negated, all other values.
fn masks(values: &Values, negated: bool, width: u32) -> Vec<(u32, u32)> {
    match values {
        Values::Addresses(_) => Vec::new(),
        Values::Ranges(_) => {
            let ranges = ranges(values, negated, width).unwrap_or_default();
            ranges.into_iter().flat_map(|(from, to)| prefixes(from, to, width)).collect()
        }
        Values::Masked(list) => {
            // A value with bits outside of its mask matches nothing.
            let list = list.iter().copied().filter(|(value, mask)| value & !mask == 0);
            if !negated {
                return list.collect();
            }
            let mut all: Vec<(u32, u32)> = vec![(0, 0)];
            for (value, mask) in list {
                let others = differing(u128::from(value), u128::from(mask));
                let others: Vec<(u32, u32)> = others.map(|(value, mask)| (value as u32, mask as u32)).collect();
                let both = |one: (u32, u32), other: (u32, u32)| masked(Some(one), Some(other)).flatten();
                all = all.iter().flat_map(|one| others.iter().filter_map(move |other| both(*one, *other))).collect();
            }
            all
        }
    }
}

/// The values as ranges of numbers of `width` bits; if negated, all other numbers. `None` for a
/// mask whose numbers are not a range.
fn ranges(values: &Values, negated: bool, width: u32) -> Option<Vec<(u32, u32)>> {
    let most = u32::MAX >> (32 - width);
    let mut found: Vec<(u32, u32)> = match values {
        Values::Addresses(_) => Vec::new(),
        Values::Ranges(ranges) => ranges
            .iter()
            .filter(|(from, to)| from <= to && *from <= most)
            .map(|(from, to)| (*from, *to.min(&most)))
            .collect(),
        Values::Masked(list) => {
            let mut found = Vec::new();
            for (value, mask) in list.iter().filter(|(value, mask)| value & !mask == 0) {
                let free = most & !mask;
                if !(free + 1).is_power_of_two() {
                    return None;
                }
                found.push((value & most, value & most | free));
            }
            found
        }
    };
    if negated {
        found.sort_unstable();
        let (mut others, mut from) = (Vec::new(), 0u64);
        for (first, last) in found {
            if u64::from(first) > from {
                others.push((from as u32, first - 1));
            }
            from = from.max(u64::from(last) + 1);
        }
        if from <= u64::from(most) {
            others.push((from as u32, most));
        }
        found = others;
    }
    Some(found)
}

/// A range of numbers of `width` bits as values and masks.
pub(super) fn prefixes(from: u32, to: u32, width: u32) -> Vec<(u32, u32)> {
    let (mut at, end) = (u64::from(from), u64::from(to));
    let all = (1u64 << width) - 1;
    let mut found = Vec::new();
    while at <= end {
        // The largest block that begins here and does not go beyond the end.
        let mut size = if at == 0 { all + 1 } else { at & at.wrapping_neg() };
        while at + (size - 1) > end {
            size /= 2;
        }
        found.push((at as u32, (all & !(size - 1)) as u32));
        at += size;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(field: Field, negated: bool, values: Values) -> Rule {
        Rule { terms: vec![Term { field, negated, values }], class: 1, number: 0 }
    }

    fn of(rule: &Rule) -> Vec<Condition> {
        conditions(rule, &[]).unwrap()
    }

    #[test]
    fn a_range_is_a_few_values_under_masks() {
        // By hand: 1000 to 1007 is a block of eight, and 1008 is alone.
        assert_eq!(prefixes(1000, 1008, 16), [(1000, 0xfff8), (1008, 0xffff)]);
        assert_eq!(prefixes(0, 65535, 16), [(0, 0)]);
        assert_eq!(prefixes(1, 3, 8), [(1, 0xff), (2, 0xfe)]);
        assert_eq!(prefixes(0, u32::MAX, 32), [(0, 0)]);
    }

    /// A number of a small field matches the masks of a range exactly if it lies in the range.
    #[test]
    fn masks_hold_what_ranges_say() {
        for (from, to) in [(0, 63), (5, 5), (1, 62), (10, 40), (32, 63)] {
            for negated in [false, true] {
                let masks = masks(&Values::Ranges(vec![(from, to)]), negated, 6);
                for n in 0..64 {
                    let held = masks.iter().filter(|(value, mask)| n & mask == *value).count();
                    let wanted = usize::from((from..=to).contains(&n) != negated);
                    assert_eq!(held, wanted, "{n} in {from}-{to}, negated {negated}: {masks:?}");
                }
            }
        }
    }

    #[test]
    fn outside_of_a_prefix_is_a_prefix_a_bit_and_the_other_family() {
        // 192.0.0.0/2 begins with the bits 11. Outside are 0… and 10….
        let address = Address { v6: false, bits: 0xc000_0000, mask: 0xc000_0000 };
        let found = of(&term(Field::Src, true, Values::Addresses(vec![address])));
        let families: Vec<_> = found.iter().map(|condition| (condition.family, condition.src)).collect();
        assert_eq!(
            families,
            [
                (Some(Family::V6), None),
                (Some(Family::V4), Some((0, 0x8000_0000))),
                (Some(Family::V4), Some((0x8000_0000, 0xc000_0000))),
            ]
        );
    }

    #[test]
    fn either_end_and_each_protocol_with_ports() {
        let found = of(&term(Field::Port, false, Values::Ranges(vec![(53, 53)])));
        assert_eq!(found.len(), 6);
        let none = of(&Rule {
            terms: vec![
                Term { field: Field::Proto, negated: false, values: Values::Ranges(vec![(17, 17)]) },
                Term { field: Field::DstPort, negated: false, values: Values::Ranges(vec![(53, 53), (123, 123)]) },
            ],
            class: 1,
            number: 0,
        });
        let shown: Vec<_> = none.iter().map(|condition| (condition.proto, condition.dport)).collect();
        assert_eq!(shown, [(Some(17), Some((53, 53))), (Some(17), Some((123, 123)))]);
    }

    #[test]
    fn what_excludes_itself_is_no_condition() {
        let proto = |n: u32| Term { field: Field::Proto, negated: false, values: Values::Ranges(vec![(n, n)]) };
        assert!(of(&Rule { terms: vec![proto(6), proto(17)], class: 1, number: 0 }).is_empty());
        assert!(conditions(&term(Field::DstPort, true, Values::Ranges(vec![(22, 22)])), &[]).is_err());
    }
}
