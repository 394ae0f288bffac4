//! Finds rules that never decide because an earlier rule takes all that they match, and rules of
//! which an earlier one takes some of the addresses.
//!
//! A rule takes all that another matches if each of its terms follows from one of the other's
//! ([`covers`]). So it can be found by the values of any one of its terms: a later rule that it
//! covers has a term of the same field, and the values of that lie within. Each rule stands in an
//! [`Index`] under the values of one term, and a later rule is compared only with those that it
//! finds there. What no term can be found by (a range, an excluded value) is compared with all.

use std::collections::{HashMap, HashSet};

use altq_engine::classify::{Address, Field, Order, Rule, Term, Values};

use super::rules::{covers, either_end, follows};
use crate::diagnostic::{Diagnostic, Findings};
use crate::policy::Link;
use crate::print;

/// The most pairs of values that are compared. Beyond that only equal rules are found.
const MOST_WORK: u64 = 50_000_000;

/// The most masks of addresses that the index knows. Prefixes have 162 of them; other masks may be
/// any.
const MOST_MASKS: usize = 512;

/// The most addresses that are named, and the most rules that take them away.
const MOST_NAMED: usize = 3;

/// Warns of such rules of a link. Those of altq.conf are left alone: they were checked when they
/// were read, as altqd does it.
pub fn check(link: &Link, findings: &mut Findings) {
    let rules = &link.spec.rules.rules;
    if link.spec.rules.order != Order::First {
        return;
    }
    let mut search = Search { rules, index: Index::default(), work: 0 };
    let mut left_out = None;
    let mut seen: HashMap<&[Term], usize> = HashMap::new();
    for (at, (rule, place)) in rules.iter().zip(&link.rules).enumerate() {
        let first = *seen.entry(&rule.terms).or_insert(at);
        let equal = (first < at).then_some(first);
        let (mut whole, mut parts) = (equal, Vec::new());
        if equal.is_none() && search.work < MOST_WORK {
            whole = search.first(rule, None);
            if whole.is_none() {
                parts = search.parts(rule);
            }
        } else if equal.is_none() {
            left_out.get_or_insert(at);
        }
        // What a rule takes that an earlier one takes already is found there.
        if whole.is_none() {
            search.index.add(at, rule);
        }
        // Rules of a control class come after the user's on purpose, so that the user's are tried
        // first.
        let class = link.classes.get(rule.class as usize);
        if class.is_some_and(|class| class.words.contains(&("control", *place))) {
            continue;
        }
        match whole {
            Some(by) => {
                let to = link.class_name(rules[by].class);
                let message = format!("this rule never decides: every packet that it matches goes to `{to}` before");
                let warning = Diagnostic::warning("shadowed", *place, message).label(link.rules[by], "by this rule");
                findings.push(warning.help("put the narrower rule first"));
            }
            None => findings.extend(partly(link, at, &parts)),
        }
    }
    if let Some(at) = left_out {
        let message = format!(
            "rules from here on ({} of {}) were only looked through for equal ones, not for wider",
            rules.len() - at,
            rules.len()
        );
        findings.push(Diagnostic::warning("not-compared", link.rules[at], message));
    }
}

/// An address of a rule whose packets an earlier rule takes.
struct Part {
    /// The term in which the address stands.
    term: usize,
    address: Address,
    /// The earlier rule.
    by: usize,
}

/// A warning of a rule of which `parts` are taken by earlier rules. `None` where these send them to
/// the same class.
fn partly(link: &Link, at: usize, parts: &[Part]) -> Option<Diagnostic> {
    let rules = &link.spec.rules.rules;
    let rule = &rules[at];
    let of_term = |term: usize| parts.iter().filter(move |part| part.term == term);
    let all = |term: usize| match &rule.terms[term].values {
        Values::Addresses(addresses) => addresses.len() == of_term(term).count(),
        Values::Ranges(_) | Values::Masked(_) => false,
    };
    // A rule needs one address of each term, so it is dead where all addresses of one term are.
    let dead = parts.iter().map(|part| part.term).find(|term| all(*term));
    let told: Vec<&Part> = match dead {
        Some(term) => of_term(term).collect(),
        None => parts.iter().filter(|part| rules[part.by].class != rule.class).collect(),
    };
    // The rules that take them away, each with what it takes.
    let mut takers: Vec<(usize, Vec<&Part>)> = Vec::new();
    let mut known: HashMap<usize, usize> = HashMap::new();
    for part in told {
        let place = *known.entry(part.by).or_insert(takers.len());
        match takers.get_mut(place) {
            Some((_, taken)) => taken.push(part),
            None => takers.push((part.by, vec![part])),
        }
    }
    let more = takers.len().saturating_sub(MOST_NAMED);
    takers.truncate(MOST_NAMED);
    if takers.is_empty() {
        return None;
    }
    let says: Vec<String> = takers
        .iter()
        .map(|(by, taken)| {
            let from = taken.first().map_or("from", |part| direction(rule.terms[part.term].field));
            let mut names: Vec<String> =
                taken.iter().take(MOST_NAMED).map(|part| print::address(&part.address)).collect();
            if taken.len() > MOST_NAMED {
                names.push(format!("{} more", taken.len() - MOST_NAMED));
            }
            format!("packets {from} {} go to `{}` before", names.join(", "), link.class_name(rules[*by].class))
        })
        .collect();
    let more = if more > 0 { format!("; and {more} rules more") } else { String::new() };
    let (code, what) =
        if dead.is_some() { ("shadowed", "this rule") } else { ("partly-shadowed", "a part of this rule") };
    let message = format!("{what} never decides: {}{more}", says.join("; "));
    let warning = Diagnostic::warning(code, link.rules[at], message);
    let warning = takers.iter().fold(warning, |warning, (by, _)| warning.label(link.rules[*by], "by this rule"));
    Some(warning.help("put the narrower rule first, or take the address out of one of them"))
}

fn direction(field: Field) -> &'static str {
    match field {
        Field::Dst => "to",
        Field::Host => "from or to",
        _ => "from",
    }
}

/// What a rule is found by.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Address { field: Field, v6: bool, mask: u128, bits: u128 },
    Number { field: Field, value: u32 },
}

/// Rules by the values of one of their terms.
#[derive(Default)]
struct Index {
    keyed: HashMap<Key, Vec<usize>>,
    /// The masks under which addresses stand in it, each with field and family.
    masks: HashSet<(Field, bool, u128)>,
    /// Rules that no value finds.
    others: Vec<usize>,
}

impl Index {
    fn add(&mut self, at: usize, rule: &Rule) {
        let crowd = |keys: &Vec<Key>| keys.iter().filter_map(|key| self.keyed.get(key)).map(Vec::len).max();
        // The term whose values the fewest other rules have.
        let best = rule.terms.iter().filter_map(|term| self.keys(term)).min_by_key(|keys| crowd(keys).unwrap_or(0));
        let Some(keys) = best else { return self.others.push(at) };
        for key in keys {
            if let Key::Address { field, v6, mask, .. } = key {
                self.masks.insert((field, v6, mask));
            }
            self.keyed.entry(key).or_default().push(at);
        }
    }

    /// What a rule can be found by if it has this term; `None` if by nothing.
    fn keys(&self, term: &Term) -> Option<Vec<Key>> {
        let field = term.field;
        let keys: Vec<Key> = match &term.values {
            Values::Addresses(addresses) => {
                addresses.iter().map(|a| Key::Address { field, v6: a.v6, mask: a.mask, bits: a.bits }).collect()
            }
            Values::Ranges(ranges) if ranges.iter().all(|(from, to)| from == to) => {
                ranges.iter().map(|(value, _)| Key::Number { field, value: *value }).collect()
            }
            Values::Ranges(_) | Values::Masked(_) => return None,
        };
        let fits = |key: &Key| match key {
            Key::Address { field, v6, mask, .. } => self.masks.contains(&(*field, *v6, *mask)),
            Key::Number { .. } => true,
        };
        let room = self.masks.len() + keys.len() <= MOST_MASKS || keys.iter().all(fits);
        (!term.negated && !keys.is_empty() && room).then_some(keys)
    }

    /// Calls `each` with the rules that have a value in which this one lies.
    fn around(&self, field: Field, value: Value<'_>, mut each: impl FnMut(usize)) {
        match value {
            Value::Address(address) => {
                let wider = |(f, v6, mask): &&(Field, bool, u128)| {
                    *f == field && *v6 == address.v6 && address.mask & mask == *mask
                };
                for (_, v6, mask) in self.masks.iter().filter(wider) {
                    let key = Key::Address { field, v6: *v6, mask: *mask, bits: address.bits & mask };
                    self.keyed.get(&key).into_iter().flatten().for_each(|at| each(*at));
                }
            }
            Value::Number(value) => {
                self.keyed.get(&Key::Number { field, value }).into_iter().flatten().for_each(|at| each(*at));
            }
        }
    }
}

/// A value of a term.
#[derive(Clone, Copy)]
enum Value<'t> {
    Address(&'t Address),
    Number(u32),
}

/// The first value of a term, unless it excludes its values.
fn first_value(term: &Term) -> Option<Value<'_>> {
    match &term.values {
        _ if term.negated => None,
        Values::Addresses(addresses) => addresses.first().map(Value::Address),
        Values::Ranges(ranges) => ranges.first().map(|(from, _)| Value::Number(*from)),
        Values::Masked(_) => None,
    }
}

/// The number of values of a rule.
fn size(rule: &Rule) -> u64 {
    let of = |term: &Term| match &term.values {
        Values::Addresses(addresses) => addresses.len(),
        Values::Ranges(numbers) | Values::Masked(numbers) => numbers.len(),
    };
    rule.terms.iter().map(|term| of(term) as u64).sum::<u64>().max(1)
}

/// The search for earlier rules.
struct Search<'r> {
    rules: &'r [Rule],
    /// The rules before the one that is looked at.
    index: Index,
    /// Pairs of values that were compared.
    work: u64,
}

impl Search<'_> {
    /// The first rule that takes all packets of a rule; with `one` of those that it would match if
    /// this term stood in place of that number.
    fn first(&mut self, rule: &Rule, one: Option<(usize, &Term)>) -> Option<usize> {
        let terms: Vec<&Term> = rule
            .terms
            .iter()
            .enumerate()
            .map(|(at, term)| one.filter(|(place, _)| *place == at).map_or(term, |(_, one)| one))
            .collect();
        let mut candidates = self.index.others.clone();
        for term in &terms {
            let Some(value) = first_value(term) else { continue };
            for field in std::iter::once(term.field).chain(either_end(term.field)) {
                self.index.around(field, value, |at| candidates.push(at));
            }
        }
        candidates.sort_unstable();
        candidates.dedup();
        self.work += (self.index.masks.len() + candidates.len() / 8) as u64;
        let size_of_rule = if one.is_some() { rule.terms.len() as u64 } else { size(rule) };
        for at in candidates {
            let earlier = self.rules.get(at)?;
            self.work += size(earlier).saturating_mul(size_of_rule);
            let all = match one {
                None => covers(earlier, rule),
                Some(_) => earlier.terms.iter().all(|wide| terms.iter().any(|narrow| follows(narrow, wide))),
            };
            if all {
                return Some(at);
            }
        }
        None
    }

    /// The addresses of a rule whose packets earlier rules take.
    fn parts(&mut self, rule: &Rule) -> Vec<Part> {
        let mut parts = Vec::new();
        for (place, term) in rule.terms.iter().enumerate() {
            let Values::Addresses(addresses) = &term.values else { continue };
            if term.negated || addresses.len() < 2 {
                continue;
            }
            for address in addresses {
                let one = Term { field: term.field, negated: false, values: Values::Addresses(vec![*address]) };
                if self.work < MOST_WORK
                    && let Some(by) = self.first(rule, Some((place, &one)))
                {
                    parts.push(Part { term: place, address: *address, by });
                }
            }
        }
        parts
    }
}
