//! What every language's policy goes through after it was read.

use altq_engine::classify::{Field, Rule, Term, Values};
use altq_engine::spec::ClassId;

use crate::policy::Link;

/// The class with the word `control`.
pub fn control_class(link: &Link) -> Option<ClassId> {
    link.spec.classes.iter().position(|class| class.settings.flag("control")).map(|at| at as ClassId)
}

/// The rules that a control class gets, as altqd made them (altq.md 2.1): ICMP, IGMP and RSVP over IPv4; ICMPv6, IGMP and RSVP
/// over IPv6.
pub fn control_rules(class: ClassId) -> [Rule; 2] {
    let rule = |family: u32, icmp: u32| Rule {
        terms: [(Field::Family, vec![(family, family)]), (Field::Proto, vec![(icmp, icmp), (2, 2), (46, 46)])]
            .map(|(field, ranges)| Term { field, negated: false, values: Values::Ranges(ranges) })
            .to_vec(),
        class,
        number: 0,
    };
    [rule(4, 1), rule(6, 58)]
}

/// Adds the rules of the control class behind all others: what the user wrote goes first.
pub fn add_control_rules(link: &mut Link) {
    if let Some(class) = control_class(link) {
        let place = link.classes[class as usize].place("control");
        for rule in control_rules(class) {
            link.spec.rules.rules.push(rule);
            link.rules.push(place);
        }
    }
}
