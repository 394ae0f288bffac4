//! The rules, prepared for matching, in the order in which they are tried.
//!
//! Rules that compare fields with exact values are found by an index ([`Shapes`]). All others are
//! tried one after the other.

use super::rule::{Address, Field, Order, Rule, RuleSet, Values};
use super::shapes::Shapes;
use crate::headers::Key;
use crate::spec::ClassId;

/// A prepared rule set.
pub(super) struct Matcher {
    /// The rules in the order in which they are tried.
    rules: Vec<Compiled>,
    tests: Vec<Test>,
    addresses: Vec<Address>,
    numbers: Vec<(u32, u32)>,
    shapes: Shapes,
    /// Indices of the rules that the index does not have, in order.
    others: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Compiled {
    /// Index of its first test. Its tests end where those of the next rule begin.
    tests: u32,
    class: ClassId,
    /// Its index in the rule set.
    written: u32,
}

/// A term. Its values are `from..to` of one of the two lists.
#[derive(Clone, Copy)]
struct Test {
    field: Field,
    negated: bool,
    kind: Kind,
    from: u32,
    to: u32,
}

#[derive(Clone, Copy)]
enum Kind {
    Addresses,
    Ranges,
    Masked,
}

impl RuleSet {
    /// Indices of the rules in the order in which they are tried.
    pub fn tried(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.rules.len() as u32).collect();
        if self.order == Order::Altq {
            // docs/reference/altq.md 10.1: hashed rules first, then the larger number, then the
            // later line.
            order.sort_by_key(|line| {
                let rule = &self.rules[*line as usize];
                (!hashed_by_altq(rule), std::cmp::Reverse((rule.number, *line)))
            });
        }
        order
    }
}

impl Matcher {
    pub(super) fn new(set: &RuleSet) -> Matcher {
        let order = set.tried();
        let rules: Vec<&Rule> = order.iter().filter_map(|written| set.rules.get(*written as usize)).collect();
        let (shapes, others) = Shapes::new(&rules);
        let mut matcher = Matcher {
            rules: Vec::with_capacity(order.len() + 1),
            tests: Vec::new(),
            addresses: Vec::new(),
            numbers: Vec::new(),
            shapes,
            others,
        };
        order.iter().zip(rules).for_each(|(written, rule)| matcher.push(*written, rule));
        matcher
    }

    fn push(&mut self, written: u32, rule: &Rule) {
        self.rules.push(Compiled { tests: self.tests.len() as u32, class: rule.class, written });
        for term in &rule.terms {
            let (kind, list) = match &term.values {
                Values::Addresses(addresses) => {
                    let from = self.addresses.len();
                    self.addresses.extend(addresses.iter().map(masked));
                    (Kind::Addresses, from..self.addresses.len())
                }
                Values::Ranges(numbers) | Values::Masked(numbers) => {
                    let from = self.numbers.len();
                    self.numbers.extend(numbers);
                    let kind = if matches!(term.values, Values::Ranges(_)) { Kind::Ranges } else { Kind::Masked };
                    (kind, from..self.numbers.len())
                }
            };
            let (from, to) = (list.start as u32, list.end as u32);
            self.tests.push(Test { field: term.field, negated: term.negated, kind, from, to });
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The first rule that matches: its index in the rule set, and its class.
    pub(super) fn first(&self, key: &Key) -> Option<(usize, ClassId)> {
        let other = self.others.iter().copied().find(|place| self.matches(*place, key));
        let earlier = self.shapes.first(key, other.unwrap_or(u32::MAX), |place| self.matches(place, key));
        let rule = self.rules.get(earlier.or(other)? as usize)?;
        Some((rule.written as usize, rule.class))
    }

    /// All rules that match, in the order in which they are tried: index in the rule set, and
    /// class.
    pub(super) fn all(&self, key: &Key) -> impl Iterator<Item = (usize, ClassId)> {
        let matching = (0..self.rules.len() as u32).filter(|place| self.matches(*place, key));
        matching.map(|place| &self.rules[place as usize]).map(|rule| (rule.written as usize, rule.class))
    }

    fn matches(&self, place: u32, key: &Key) -> bool {
        let place = place as usize;
        let from = self.rules[place].tests as usize;
        let to = self.rules.get(place + 1).map_or(self.tests.len(), |next| next.tests as usize);
        self.tests[from..to].iter().all(|test| self.holds(test, key) != test.negated)
    }

    /// True if the packet's field is one of the values, whether or not the test is negated.
    fn holds(&self, test: &Test, key: &Key) -> bool {
        let range = test.from as usize..test.to as usize;
        match test.kind {
            Kind::Addresses => {
                let addresses = &self.addresses[range];
                let among =
                    |bits| addresses.iter().any(|a| key.family == if a.v6 { 6 } else { 4 } && bits & a.mask == a.bits);
                match test.field {
                    Field::Src => among(key.src),
                    Field::Dst => among(key.dst),
                    Field::Host => among(key.src) || among(key.dst),
                    _ => false,
                }
            }
            Kind::Ranges => {
                let among = |n| self.numbers[range.clone()].iter().any(|(first, last)| (*first..=*last).contains(&n));
                numbers(test.field, key).into_iter().flatten().any(among)
            }
            Kind::Masked => {
                let among = |n| self.numbers[range.clone()].iter().any(|(value, mask)| n & mask == *value);
                numbers(test.field, key).into_iter().flatten().any(among)
            }
        }
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.rules.capacity() * size_of::<Compiled>()
            + self.tests.capacity() * size_of::<Test>()
            + self.addresses.capacity() * size_of::<Address>()
            + self.numbers.capacity() * size_of::<(u32, u32)>()
            + self.shapes.memory()
            + self.others.capacity() * 4
    }
}

/// The values of a numeric field in a packet: none, one, or for [`Field::Port`] both ports.
#[inline]
pub(super) fn numbers(field: Field, key: &Key) -> [Option<u32>; 2] {
    let ip = key.family == 4 || key.family == 6;
    let port = |port: Option<u16>| port.map(u32::from);
    let one = match field {
        Field::Src | Field::Dst | Field::Host => None,
        Field::SrcPort => port(key.sport()),
        Field::DstPort => port(key.dport()),
        Field::Port => return [port(key.sport()), port(key.dport())],
        Field::Proto => ip.then_some(u32::from(key.proto)),
        Field::Dscp => ip.then_some(u32::from(key.dscp())),
        Field::Ecn => ip.then_some(u32::from(key.ecn())),
        Field::Tos => ip.then_some(u32::from(key.tos)),
        // Protocol 6 is TCP. A TCP packet without ports is a later fragment, or cut short.
        Field::TcpFlags => (key.proto == 6 && key.sport().is_some()).then_some(u32::from(key.tcp_flags)),
        Field::Length => Some(key.length),
        Field::Mark => Some(key.mark),
        Field::Vlan => port(key.vlan()),
        Field::Interface => Some(u32::from(key.interface)),
        Field::Family => ip.then_some(u32::from(key.family)),
        Field::Spi => (key.spi != 0).then_some(key.spi),
        Field::FlowLabel => (key.family == 6).then_some(key.flow_label),
    };
    [one, None]
}

pub(super) fn host_bits(bits: u128, family: u8) -> u128 {
    if family == 6 { bits } else { bits & u128::from(u32::MAX) }
}

/// An address with all bits outside its mask cleared.
pub(super) fn masked(address: &Address) -> Address {
    let mask = if address.v6 { address.mask } else { address.mask & u128::from(u32::MAX) };
    Address { v6: address.v6, bits: address.bits & mask, mask }
}

/// The destination host of a rule that names exactly one, with a full mask.
fn full_destination(rule: &Rule) -> Option<Address> {
    rule.terms.iter().find_map(|term| match (&term.values, term.field, term.negated) {
        (Values::Addresses(addresses), Field::Dst, false) => match addresses[..] {
            [address] if masked(&address).mask == if address.v6 { u128::MAX } else { u128::from(u32::MAX) } => {
                Some(masked(&address))
            }
            _ => None,
        },
        _ => None,
    })
}

/// docs/reference/altq.md 10.1: ALTQ hashes IPv4 filters with a full-host destination by that host,
/// and IPv6 filters with a flow label by the label.
fn hashed_by_altq(rule: &Rule) -> bool {
    let flow_label = rule.terms.iter().any(|term| term.field == Field::FlowLabel && !term.negated);
    flow_label || full_destination(rule).is_some_and(|host| !host.v6)
}
