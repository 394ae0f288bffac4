//! Finds classes to which no packet goes: no rule leads to them, and they are not the default.

use altq_engine::classify::Order;
use altq_engine::spec::ClassId;

use crate::diagnostic::{Diagnostic, Findings};
use crate::policy::Link;

/// The class below which subscribers go, if nobody says another one.
const SUBSCRIBERS: &str = "subscribers";

/// Warns of each class without children to which neither a rule nor `default` leads. A link without
/// a device whose author wrote no rule at all is left alone: its packets come classified, as in
/// `altq replay`. So is such an interface of an altq.conf, whose filters a program may add while
/// altqd runs, and so are the classes below which reservations and subscribers go: their children
/// come while the link runs. `children` are those of each class.
pub fn check(link: &Link, children: &[Vec<ClassId>], findings: &mut Findings) {
    let classified = link.device.is_none() || link.spec.rules.order == Order::Altq;
    if classified && !(0..link.spec.rules.rules.len()).any(|rule| written(link, rule)) {
        return;
    }
    let mut reached = vec![false; link.classes.len()];
    for class in link.spec.rules.rules.iter().map(|rule| rule.class).chain(link.spec.default) {
        if let Some(reached) = reached.get_mut(class as usize) {
            *reached = true;
        }
    }
    for (id, class) in link.classes.iter().enumerate().skip(1) {
        let leaf = children.get(id).is_none_or(Vec::is_empty);
        let reserves = link.reservations.as_ref().is_some_and(|found| found.class as usize == id);
        if reached[id] || !leaf || class.made || reserves || class.name == SUBSCRIBERS {
            continue;
        }
        let name = &class.name;
        let message = format!("no rule leads to `{name}` and it is not the default, so it gets no packets");
        let way = match link.spec.rules.order {
            Order::First => format!(
                "write a `match … -> {name}`, or leave the class out; if subscribers are to have their classes below \
                 it, all is well"
            ),
            Order::Altq => format!("write a `filter` for `{name}`, or leave the class out"),
        };
        findings.push(Diagnostic::warning("never-reached", class.span, message).help(way));
    }
}

/// Whether the author of the policy wrote a rule. The others are those of a control class, which
/// have the place of the word `control` or of the class.
fn written(link: &Link, rule: usize) -> bool {
    let class = link.spec.rules.rules.get(rule).and_then(|rule| link.classes.get(rule.class as usize));
    let (Some(class), Some(place)) = (class, link.rules.get(rule)) else { return false };
    !class.made && class.span != *place && !class.words.contains(&("control", *place))
}
