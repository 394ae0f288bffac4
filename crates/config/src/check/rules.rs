//! How rules relate to each other and to packets: rules that no packet can match, and rules of
//! which one takes all packets of the other.

use altq_engine::classify::{Field, Rule, Term, Values};

use crate::diagnostic::{Diagnostic, Findings};
use crate::policy::Link;

/// Reports rules that no packet can match.
pub fn check(link: &Link, findings: &mut Findings) {
    let rules = &link.spec.rules.rules;
    for (rule, span) in rules.iter().zip(&link.rules) {
        if let Some(why) = nothing(rule) {
            let message = format!("no packet can match this rule: {why}");
            findings.push(Diagnostic::error("match-nothing", *span, message));
        }
    }
}

/// True if every packet that `b` matches is matched by `a`.
pub fn covers(a: &Rule, b: &Rule) -> bool {
    a.terms.iter().all(|a| b.terms.iter().any(|b| follows(b, a)))
}

/// True if every packet that fulfils `narrow` also fulfils `wide`. False if that is not certain.
pub fn follows(narrow: &Term, wide: &Term) -> bool {
    if narrow.field != wide.field {
        // An end that is among the values makes it so that one of both ends is.
        let either = either_end(narrow.field) == Some(wide.field) && !narrow.negated && !wide.negated;
        return either && within(&narrow.values, &wide.values);
    }
    match (narrow.negated, wide.negated) {
        (false, false) => within(&narrow.values, &wide.values),
        (true, true) => within(&wide.values, &narrow.values),
        // A value in A is not in B if the two are disjoint. `host` and `port` have two values, one
        // of which may be in B.
        (false, true) => !matches!(narrow.field, Field::Host | Field::Port) && disjoint(&narrow.values, &wide.values),
        (true, false) => false,
    }
}

/// The field that has one of the two ends of a field of one end.
pub fn either_end(field: Field) -> Option<Field> {
    match field {
        Field::Src | Field::Dst => Some(Field::Host),
        Field::SrcPort | Field::DstPort => Some(Field::Port),
        _ => None,
    }
}

/// How the sets of packets that two rules match relate to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// No packet matches both.
    Disjoint,
    /// The first rule matches all packets that the second matches.
    Covers,
    /// The second rule matches all packets that the first matches, and more.
    Within,
    /// Some packets match both rules, and each rule matches some that the other does not.
    Overlap,
    /// As [`Relation::Overlap`], where only ports differ: one rule names the port of one end, the
    /// other that of the other end.
    OverlapInPorts,
}

/// How two rules of altq.conf relate. Their terms are never negated, and no field has more than
/// one.
pub fn relation(first: &Rule, second: &Rule) -> Relation {
    let family = |rule: &Rule| {
        let families = rule.terms.iter().filter_map(family);
        families.fold((true, true), |left, (v4, v6)| (left.0 && v4, left.1 && v6))
    };
    let ((a4, a6), (b4, b6)) = (family(first), family(second));
    let same = |a: &Term, b: &Term| a.field == b.field;
    let apart = first.terms.iter().any(|a| second.terms.iter().any(|b| same(a, b) && disjoint(&a.values, &b.values)));
    if apart || !(a4 && b4 || a6 && b6) {
        return Relation::Disjoint;
    }
    // Families were compared above.
    let asks = |a: &Rule, b: &Rule| -> Vec<Field> {
        let terms = a.terms.iter().filter(|a| a.field != Field::Family);
        terms.filter(|a| !b.terms.iter().any(|b| follows(b, a))).map(|a| a.field).collect()
    };
    let (first_asks, second_asks) = (asks(first, second), asks(second, first));
    match (first_asks.is_empty(), second_asks.is_empty()) {
        (true, _) => Relation::Covers,
        (false, true) => Relation::Within,
        (false, false) => {
            let port = |field: &Field| matches!(field, Field::SrcPort | Field::DstPort);
            let ports = first_asks.iter().chain(&second_asks).all(port);
            if ports { Relation::OverlapInPorts } else { Relation::Overlap }
        }
    }
}

fn within(narrow: &Values, wide: &Values) -> bool {
    match (narrow, wide) {
        (Values::Addresses(narrow), Values::Addresses(wide)) => narrow
            .iter()
            .all(|n| wide.iter().any(|w| n.v6 == w.v6 && n.mask & w.mask == w.mask && n.bits & w.mask == w.bits)),
        (Values::Ranges(narrow), Values::Ranges(wide)) => {
            let wide = merged(wide);
            narrow.iter().all(|(from, to)| wide.iter().any(|(f, t)| f <= from && to <= t))
        }
        (Values::Masked(narrow), Values::Masked(wide)) => {
            narrow.iter().all(|(nv, nm)| wide.iter().any(|(wv, wm)| nm & wm == *wm && nv & wm == *wv))
        }
        _ => false,
    }
}

fn disjoint(a: &Values, b: &Values) -> bool {
    match (a, b) {
        (Values::Addresses(a), Values::Addresses(b)) => {
            a.iter().all(|a| b.iter().all(|b| a.v6 != b.v6 || (a.bits ^ b.bits) & a.mask & b.mask != 0))
        }
        (Values::Ranges(a), Values::Ranges(b)) => a.iter().all(|a| b.iter().all(|b| a.1 < b.0 || b.1 < a.0)),
        (Values::Masked(a), Values::Masked(b)) => a.iter().all(|a| b.iter().all(|b| (a.0 ^ b.0) & a.1 & b.1 != 0)),
        _ => false,
    }
}

/// The ranges in rising order, with those that overlap or touch made one.
fn merged(ranges: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    let mut out: Vec<(u32, u32)> = Vec::with_capacity(sorted.len());
    for (from, to) in sorted {
        match out.last_mut() {
            Some(last) if from <= last.1.saturating_add(1) => last.1 = last.1.max(to),
            _ => out.push((from, to)),
        }
    }
    out
}

/// Why no packet can match a rule. `None` if one can, or if that is not certain.
fn nothing(rule: &Rule) -> Option<String> {
    for (at, a) in rule.terms.iter().enumerate() {
        for b in &rule.terms[at + 1..] {
            if a.field == b.field && !a.negated && b.negated && within(&a.values, &b.values) {
                return Some("what it asks for it excludes as well".to_owned());
            }
        }
    }
    let families = rule.terms.iter().filter(|term| !term.negated).filter_map(family);
    let left = families.fold((true, true), |left, (v4, v6)| (left.0 && v4, left.1 && v6));
    if left == (false, false) {
        return Some("its addresses are of both families".to_owned());
    }
    let asks = |field: Field| rule.terms.iter().find(|term| term.field == field && !term.negated);
    if let (Some(_), Some(Term { values: Values::Ranges(ranges), .. })) = (asks(Field::TcpFlags), asks(Field::Proto))
        && !ranges.iter().any(|(from, to)| (*from..=*to).contains(&6))
    {
        return Some("only packets of TCP have tcp-flags".to_owned());
    }
    let ported = |term: &Term| matches!(term.field, Field::SrcPort | Field::DstPort | Field::Port);
    if rule.terms.iter().any(|term| ported(term) && !term.negated) {
        let portless = |ranges: &[(u32, u32)]| {
            ranges.iter().all(|(from, to)| from == to && matches!(from, 1 | 2 | 46 | 47 | 50 | 51 | 58 | 89))
        };
        if let Some(Term { values: Values::Ranges(ranges), .. }) = asks(Field::Proto)
            && !ranges.is_empty()
            && portless(ranges)
        {
            return Some("packets of this protocol have no ports".to_owned());
        }
    }
    None
}

/// Whether packets of IPv4, and of IPv6, can fulfil a term. `None` if it does not ask for a family.
fn family(term: &Term) -> Option<(bool, bool)> {
    match &term.values {
        Values::Addresses(addresses) => {
            Some((addresses.iter().any(|address| !address.v6), addresses.iter().any(|address| address.v6)))
        }
        Values::Ranges(ranges) if term.field == Field::Family => {
            Some((ranges.contains(&(4, 4)), ranges.contains(&(6, 6))))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(terms: Vec<Term>) -> Rule {
        Rule { terms, class: 1, number: 0 }
    }

    fn term(field: Field, negated: bool, ranges: &[(u32, u32)]) -> Term {
        Term { field, negated, values: Values::Ranges(ranges.to_vec()) }
    }

    #[test]
    fn coverage() {
        let wide = rule(vec![term(Field::DstPort, false, &[(80, 90), (91, 100)])]);
        let narrow = rule(vec![term(Field::Proto, false, &[(6, 6)]), term(Field::DstPort, false, &[(85, 95)])]);
        assert!(covers(&wide, &narrow));
        assert!(!covers(&narrow, &wide));
        assert!(covers(&rule(vec![]), &wide));
        let not = rule(vec![term(Field::DstPort, true, &[(443, 443)])]);
        assert!(covers(&not, &wide));
        assert!(!covers(&wide, &not));
        // `port` matches if either end has it, so the destination may have another.
        let either = rule(vec![term(Field::Port, false, &[(80, 95)])]);
        assert!(!covers(&wide, &either));
        assert!(covers(&either, &narrow));
        // Neither port is 443, or the destination's is not: the first asks for more.
        assert!(!covers(&rule(vec![term(Field::Port, true, &[(443, 443)])]), &not));
    }

    #[test]
    fn contradictions() {
        assert!(
            nothing(&rule(vec![term(Field::Proto, false, &[(1, 1)]), term(Field::DstPort, false, &[(80, 80)])]))
                .is_some()
        );
        assert!(
            nothing(&rule(vec![term(Field::Proto, false, &[(6, 6)]), term(Field::DstPort, false, &[(80, 80)])]))
                .is_none()
        );
        assert!(
            nothing(&rule(vec![term(Field::DstPort, false, &[(80, 80)]), term(Field::DstPort, true, &[(1, 99)])]))
                .is_some()
        );
        // Flags of TCP in packets of UDP.
        for (protos, possible) in [(&[(17, 17)][..], false), (&[(6, 6), (17, 17)], true), (&[(0, 255)], true)] {
            let found =
                nothing(&rule(vec![term(Field::TcpFlags, false, &[(2, 2)]), term(Field::Proto, false, protos)]));
            assert_eq!(found.is_none(), possible, "{protos:?}");
        }
    }
}
