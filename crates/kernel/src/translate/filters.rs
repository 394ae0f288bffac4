//! Turns conditions into filters of the kernel, with the priorities (`pref` of tc) in whose order
//! the kernel tries them.
//!
//! flower uses the kernel's flow dissector. It skips VLAN tags, IP options and extension headers.
//! Filters of one priority that compare the same fields are kept in a hash table. u32 compares
//! words at fixed offsets from the network header. It is used for what flower does not have
//! (lengths, marks with other fields, SPI, flow labels, masks with gaps), and for everything if the
//! kernel has no flower.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::condition::{AH, Condition, Family, prefixes};
use super::{Host, tables};
use crate::handle::Handle;
use crate::tree::{Filter, FlowerKeys, Key, Match, Protocol, Target};

/// The most u32 filters that share one priority. Within one priority u32 gives its filters ids of
/// 0x800 to 0xfff, in order: 2048 of them (`gen_new_kid` in net/sched/cls_u32.c).
const BLOCK: u32 = 2048;
/// The most priorities with u32 filters in one qdisc. Each needs a hash table, whose handle has 11
/// bits (`gen_new_htid` in net/sched/cls_u32.c).
const TABLES: u32 = 2046;

/// Why a rule with a VLAN is refused where the kernel has no flower.
const NO_FLOWER: &str = "only flower compares VLANs, and this kernel has no cls_flower";

/// The filters that together compare a condition: a packet must match one of them.
///
/// # Errors
/// Why no filter can compare it, as the end of a sentence about the rule.
pub fn matches(condition: &Condition, host: &Host) -> Result<Vec<(Protocol, Match)>, String> {
    let flower = host.flower;
    let Condition { mark, vlan, indev, .. } = condition;
    let with_vlan = || match flower {
        true => {
            "the kernel has no filter for a VLAN together with a mark, a length, an SPI, a flow label or an address \
             mask with gaps"
        }
        false => NO_FLOWER,
    };
    if !condition.is_ip() {
        return match (vlan, mark) {
            (Some(_), Some(_)) => Err(with_vlan().to_owned()),
            (Some(vlan), None) if flower => {
                let keys = FlowerKeys { vlan: Some(*vlan as u16), indev: indev.clone(), ..FlowerKeys::default() };
                Ok(vec![(Protocol::Vlan, Match::Flower(Box::new(keys)))])
            }
            (Some(_), None) => Err(NO_FLOWER.to_owned()),
            // fw has no filter for the value 0.
            (None, Some((value, mask))) if host.fw && indev.is_none() && *value != 0 => {
                Ok(vec![(Protocol::All, Match::Mark { value: *value, mask: *mask })])
            }
            (None, mark) => {
                let keys = vec![Key { offset: 0, value: 0, mask: 0 }];
                Ok(vec![(Protocol::All, Match::U32 { keys, mark: *mark, indev: indev.clone() })])
            }
        };
    }
    let mut found = Vec::new();
    let families = condition.family.map_or(vec![Family::V4, Family::V6], |family| vec![family]);
    for family in families {
        let protocol = match (vlan, family) {
            (Some(_), _) => Protocol::Vlan,
            (None, Family::V4) => Protocol::Ip,
            (None, Family::V6) => Protocol::Ipv6,
        };
        if let Some(keys) = flower_keys(condition, family).filter(|_| flower) {
            found.push((protocol, Match::Flower(Box::new(keys))));
        } else if vlan.is_some() {
            return Err(with_vlan().to_owned());
        } else {
            found.extend(u32_matches(condition, family).into_iter().map(|found| (protocol, found)));
        }
    }
    Ok(found)
}

/// The fields for flower; `None` if flower cannot compare one of them.
fn flower_keys(condition: &Condition, family: Family) -> Option<FlowerKeys> {
    let Condition { proto, sport, dport, tos, tcp_flags, length, mark, indev, vlan, spi, label, .. } = condition;
    if length.is_some() || mark.is_some() || spi.is_some() || label.is_some() {
        return None;
    }
    let width = if family == Family::V4 { 32 } else { 128 };
    let prefix = |end: Option<(u128, u128)>| match end {
        None => Some(None),
        Some((bits, mask)) => {
            let len = mask.count_ones().min(width);
            // The mask of a prefix: `len` bits from the first on, without a gap.
            let whole = u128::MAX.checked_shl(width - len).unwrap_or(0) & (u128::MAX >> (128 - width));
            (whole == mask).then_some(Some((bits, len as u8)))
        }
    };
    let ports = |range: Option<(u32, u32)>| range.map(|(from, to)| (from as u16, to as u16));
    let octet = |masked: Option<(u32, u32)>| masked.map(|(value, mask)| (value as u8, mask as u8));
    Some(FlowerKeys {
        proto: *proto,
        src: prefix(condition.src)?,
        dst: prefix(condition.dst)?,
        sport: ports(*sport),
        dport: ports(*dport),
        tos: octet(*tos),
        tcp_flags: octet(*tcp_flags),
        vlan: vlan.map(|vlan| vlan as u16),
        inner_v6: vlan.map(|_| family == Family::V6),
        indev: indev.clone(),
    })
}

/// Words of a packet by their offset: value and mask.
#[derive(Clone, Default)]
struct Words(BTreeMap<u16, (u32, u32)>);

impl Words {
    fn add(&mut self, offset: u16, value: u32, mask: u32) {
        let word = self.0.entry(offset).or_default();
        (word.0, word.1) = (word.0 | value & mask, word.1 | mask);
    }

    /// Copies every set of words once for each (value, mask), and adds that value at `offset`.
    fn each(all: Vec<Words>, offset: u16, shift: u32, values: &[(u32, u32)]) -> Vec<Words> {
        let with = |words: &Words, (value, mask): (u32, u32)| {
            let mut words = words.clone();
            words.add(offset, value << shift, mask << shift);
            words
        };
        all.iter().flat_map(|words| values.iter().map(|value| with(words, *value))).collect()
    }
}

/// The words that u32 compares (RFC 791 3.1, RFC 8200 3, RFC 9293 3.1). What follows the IP header
/// is compared only if the IP header has no options or extensions and the packet is not a later
/// fragment.
fn u32_matches(condition: &Condition, family: Family) -> Vec<Match> {
    let Condition { src, dst, proto, sport, dport, tos, tcp_flags, length, mark, indev, spi, label, .. } = condition;
    let deep = sport.is_some() || dport.is_some() || tcp_flags.is_some() || spi.is_some();
    let mut words = Words::default();
    let v4 = family == Family::V4;
    // Where the header of IP ends.
    let behind = if v4 { 20 } else { 40 };
    for (end, place) in [(src, if v4 { 12 } else { 8 }), (dst, if v4 { 16 } else { 24 })] {
        let Some((bits, mask)) = end else { continue };
        let parts: &[u32] = if v4 { &[0] } else { &[96, 64, 32, 0] };
        for (at, shift) in parts.iter().enumerate() {
            let mask = (mask >> shift) as u32;
            if mask != 0 {
                words.add(place + 4 * at as u16, (bits >> shift) as u32, mask);
            }
        }
    }
    if let Some((value, mask)) = tos {
        let shift = if v4 { 16 } else { 20 };
        words.add(0, value << shift, mask << shift);
    }
    if let Some(proto) = proto {
        let (place, shift) = if v4 { (8, 16) } else { (4, 8) };
        words.add(place, u32::from(*proto) << shift, 0xff << shift);
    }
    if let Some((value, mask)) = label {
        words.add(0, *value, *mask);
    }
    if deep && v4 {
        // A header of 20 bytes, and a fragment offset of 0.
        words.add(0, 0x0500_0000, 0x0f00_0000);
        words.add(4, 0, 0x1fff);
    }
    if let Some((value, mask)) = tcp_flags {
        words.add(behind + 12, value << 16, mask << 16);
    }
    if let Some((value, mask)) = spi {
        let place = if *proto == Some(AH) { behind + 4 } else { behind };
        words.add(place, *value, *mask);
    }
    let mut all = vec![words];
    if let Some((from, to)) = sport {
        all = Words::each(all, behind, 16, &prefixes(*from, *to, 16));
    }
    if let Some((from, to)) = dport {
        all = Words::each(all, behind, 0, &prefixes(*from, *to, 16));
    }
    if let Some((from, to)) = length {
        // IPv6's length field counts only what follows its 40-byte header.
        let (place, shift, less) = if v4 { (0, 0, 0) } else { (4, 16, 40) };
        if *to < less {
            return Vec::new();
        }
        all = Words::each(all, place, shift, &prefixes(from.saturating_sub(less), *to - less, 16));
    }
    let match_of = |words: Words| {
        let keys = words.0.into_iter().map(|(offset, (value, mask))| Key { offset, value, mask });
        let mut keys: Vec<Key> = keys.collect();
        if keys.is_empty() {
            keys.push(Key { offset: 0, value: 0, mask: 0 });
        }
        Match::U32 { keys, mark: *mark, indev: indev.clone() }
    };
    all.into_iter().map(match_of).collect()
}

/// The filters of one rule in the order that needs the fewest priorities: those that can share one
/// follow each other. A packet is compared with each priority in turn. All filters of a rule lead
/// to one class, so it does not matter which of them is tried first.
pub fn gathered(found: Vec<(Protocol, Match)>) -> Vec<(Protocol, Match)> {
    let mut groups: Vec<Vec<(Protocol, Match)>> = Vec::new();
    let mut places = HashMap::new();
    for (protocol, matches) in found {
        let shape = shape(&matches);
        let place = match shape {
            Shape::Alone => groups.len(),
            _ => *places.entry((protocol, shape)).or_insert(groups.len()),
        };
        if place == groups.len() {
            groups.push(Vec::new());
        }
        groups[place].push((protocol, matches));
    }
    groups.into_iter().flatten().collect()
}

/// What filters of one priority have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Shape {
    U32,
    /// The mask.
    Mark(u32),
    /// The fields and masks. Filters that compare the same fields with different values exclude
    /// each other.
    Flower(Box<FlowerKeys>),
    /// A filter that shares its priority with no other.
    Alone,
}

/// The filters of a qdisc that are being made. Their priorities grow in the order of the rules.
/// Filters that follow each other share a priority if the kernel keeps their order then, or if they
/// exclude each other.
pub struct Filters {
    parent: Handle,
    next: u16,
    /// For each protocol the priority that may still get filters (the open one), its shape, and how
    /// many filters it has.
    open: Vec<(Protocol, u16, Shape, u32)>,
    /// How many priorities hold u32 filters.
    tables: u32,
    seen: HashSet<(u16, Match)>,
    filters: Vec<Filter>,
}

impl Filters {
    /// An empty list for this qdisc.
    pub fn new(parent: Handle) -> Filters {
        Filters { parent, next: 1, open: Vec::new(), tables: 0, seen: HashSet::new(), filters: Vec::new() }
    }

    /// Adds a filter that is tried after all others.
    ///
    /// # Errors
    /// The kernel has no more priorities, or no more tables of u32.
    pub fn add(&mut self, protocol: Protocol, matches: Match, to: Target, rule: Option<u32>) -> Result<(), String> {
        let shape = shape(&matches);
        // If another protocol's open priority may match the same packets, close it. Otherwise a
        // later filter could join it and be tried before this one.
        self.open.retain(|(open, ..)| *open == protocol || (*open != Protocol::All && protocol != Protocol::All));
        let at = self.open.iter().position(|(open, ..)| *open == protocol);
        let fits = at.filter(|at| {
            let (_, _, open, count) = &self.open[*at];
            *open == shape && shape != Shape::Alone && (shape != Shape::U32 || *count < BLOCK)
        });
        let prio = match fits {
            Some(at) => self.open[at].1,
            None => {
                let prio = self.next;
                self.next = prio
                    .checked_add(1)
                    .ok_or("its link would need more than 65534 filter priorities (`pref` of tc)")?;
                if shape == Shape::U32 {
                    self.tables += 1;
                    if self.tables > TABLES {
                        return Err(format!("its link would need more than {TABLES} tables of u32"));
                    }
                }
                if let Some(at) = at {
                    self.open.remove(at);
                }
                self.open.push((protocol, prio, shape.clone(), 0));
                prio
            }
        };
        // The kernel refuses a second filter with the same keys; the first one decides.
        if matches!(shape, Shape::Flower(_) | Shape::Mark(_)) && !self.seen.insert((prio, matches.clone())) {
            return Ok(());
        }
        if let Some(open) = self.open.iter_mut().find(|(open, ..)| *open == protocol) {
            open.3 += 1;
        }
        self.filters.push(Filter { parent: self.parent, prio, protocol, matches, to, table: 0, rule });
        Ok(())
    }

    /// All filters.
    pub fn done(self) -> Vec<Filter> {
        tables::in_tables(self.filters)
    }
}

/// What a filter must have in common with the one before it to share its priority.
fn shape(matches: &Match) -> Shape {
    match matches {
        Match::U32 { .. } => Shape::U32,
        Match::Mark { mask, .. } => Shape::Mark(*mask),
        Match::Flower(keys) => {
            let range = |range: Option<(u16, u16)>| range.is_some_and(|(from, to)| from != to);
            if range(keys.sport) || range(keys.dport) {
                return Shape::Alone;
            }
            Shape::Flower(Box::new(FlowerKeys {
                proto: keys.proto.map(|_| 0),
                src: keys.src.map(|(_, len)| (0, len)),
                dst: keys.dst.map(|(_, len)| (0, len)),
                sport: keys.sport.map(|_| (0, 0)),
                dport: keys.dport.map(|_| (0, 0)),
                tos: keys.tos.map(|(_, mask)| (0, mask)),
                tcp_flags: keys.tcp_flags.map(|(_, mask)| (0, mask)),
                vlan: keys.vlan.map(|_| 0),
                inner_v6: keys.inner_v6.map(|_| false),
                indev: keys.indev.clone(),
            }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_headers() {
        // RFC 791: the protocol is the second octet of the third word; source and destination are
        // the fourth and fifth. Ports are the first word after 20 bytes.
        let condition = Condition {
            src: Some((0x0a00_0000, 0xff00_0000)),
            proto: Some(17),
            dport: Some((53, 53)),
            tos: Some((0xb8, 0xfc)),
            ..Condition::default()
        };
        let found = u32_matches(&condition, Family::V4);
        let keys = vec![
            Key { offset: 0, value: 0x05b8_0000, mask: 0x0ffc_0000 },
            Key { offset: 4, value: 0, mask: 0x1fff },
            Key { offset: 8, value: 0x0011_0000, mask: 0x00ff_0000 },
            Key { offset: 12, value: 0x0a00_0000, mask: 0xff00_0000 },
            Key { offset: 20, value: 53, mask: 0xffff },
        ];
        assert_eq!(found, [Match::U32 { keys, mark: None, indev: None }]);
        // RFC 8200: the traffic class is the bits 4 to 11 of the first word, the next header the
        // third octet of the second word.
        let condition = Condition { src: None, ..condition };
        let keys = vec![
            Key { offset: 0, value: 0x0b80_0000, mask: 0x0fc0_0000 },
            Key { offset: 4, value: 0x1100, mask: 0xff00 },
            Key { offset: 40, value: 53, mask: 0xffff },
        ];
        assert_eq!(u32_matches(&condition, Family::V6), [Match::U32 { keys, mark: None, indev: None }]);
    }

    #[test]
    fn an_ipv6_length_is_the_length_behind_the_header() {
        let condition = Condition { length: Some((0, 103)), ..Condition::default() };
        let keys = vec![Key { offset: 4, value: 0, mask: 0xffc0_0000 }];
        assert_eq!(u32_matches(&condition, Family::V6), [Match::U32 { keys, mark: None, indev: None }]);
        let short = Condition { length: Some((0, 39)), ..Condition::default() };
        assert!(u32_matches(&short, Family::V6).is_empty());
    }

    fn numbers(conditions: &[Condition]) -> Vec<u16> {
        let mut filters = Filters::new(Handle::new(1, 0));
        for condition in conditions {
            for (protocol, found) in matches(condition, &Host::default()).unwrap() {
                filters.add(protocol, found, Target::Drop, None).unwrap();
            }
        }
        filters.done().iter().map(|filter| filter.prio).collect()
    }

    #[test]
    fn filters_that_exclude_each_other_share_a_number() {
        let to = |address: u128, len: u32| Condition {
            family: Some(Family::V4),
            dst: Some((address, u128::from(u32::MAX << (32 - len)))),
            ..Condition::default()
        };
        let mark = |value: u32| Condition { mark: Some((value, 0xff)), ..Condition::default() };
        // Two hosts, then a network that contains both, then a host again.
        assert_eq!(
            numbers(&[to(0x0a000001, 32), to(0x0a000002, 32), to(0x0a000000, 24), to(0x0a000003, 32)]),
            [1, 1, 2, 3]
        );
        // The same host twice: the second is never reached.
        assert_eq!(numbers(&[to(0x0a000001, 32), to(0x0a000001, 32)]), [1]);
        // A mark is tried between the two.
        assert_eq!(numbers(&[to(0x0a000001, 32), mark(1), mark(2), to(0x0a000002, 32)]), [1, 2, 2, 3]);
        // IPv4 and IPv6 exclude each other, so the priorities of both stay open.
        let dscp = Condition { tos: Some((0xb8, 0xfc)), ..Condition::default() };
        let other = Condition { tos: Some((0x88, 0xfc)), ..Condition::default() };
        // The list is in the order of the priorities, IPv4's first.
        assert_eq!(numbers(&[dscp, other]), [1, 1, 2, 2]);
    }

    /// By hand: a rule about a port at either end needs one table for the source and one for the
    /// destination, of IPv4 and of IPv6, however many ports and protocols it names. In the order in
    /// which they are written each of its 24 filters would have a priority of its own.
    #[test]
    fn filters_of_a_rule_share_numbers_whatever_their_order() {
        let mut found = Vec::new();
        for port in [5001, 5003] {
            for proto in [6, 17, 132] {
                let of = Condition { proto: Some(proto), ..Condition::default() };
                for condition in [
                    Condition { sport: Some((port, port)), ..of.clone() },
                    Condition { dport: Some((port, port)), ..of },
                ] {
                    found.extend(matches(&condition, &Host::default()).unwrap());
                }
            }
        }
        let count = |found: Vec<(Protocol, Match)>| {
            let mut filters = Filters::new(Handle::new(1, 0));
            for (protocol, matches) in found {
                filters.add(protocol, matches, Target::Drop, None).unwrap();
            }
            let filters = filters.done();
            (filters.len(), filters.iter().map(|filter| filter.prio).collect::<HashSet<_>>().len())
        };
        assert_eq!([count(found.clone()), count(gathered(found))], [(24, 24), (24, 4)]);
    }

    /// Ranges of ports are compared in order, so each has a priority of its own, and none is lost.
    #[test]
    fn what_shares_no_number_is_kept() {
        let range = |from| Condition { proto: Some(6), dport: Some((from, from + 9)), ..Condition::default() };
        let found: Vec<_> =
            [range(10), range(30)].iter().flat_map(|range| matches(range, &Host::default()).unwrap()).collect();
        let kept = gathered(found.clone());
        assert_eq!(kept, found);
    }
}
