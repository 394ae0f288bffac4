//! Replaces words of a class in a [`Link`] by what they stand for: a queue, or the rules of a
//! control class.

use altq_engine::classify::{Field, Rule, Term, Values};
use altq_engine::schedule::QueueWord;
use altq_engine::spec::ClassId;

use crate::diagnostic::{Diagnostic, Findings};
use crate::policy::Link;

/// Replaces words that stand for a queue, such as `maxdelay` of the classic estimator, by that
/// queue.
pub fn queues_from_words(link: &mut Link, findings: &mut Findings) {
    for id in 1..link.spec.classes.len() as ClassId {
        let Some(QueueWord { word, queue }) = link.entry_of(id).and_then(|entry| entry.queue_word) else { continue };
        let (rate, mtu) = (link.spec.measure(id), link.spec.mtu);
        let scheduler = link.spec.serving(id).map(|scheduler| &scheduler.settings);
        let made = scheduler.and_then(|words| queue(words, &link.spec.classes[id as usize].settings, rate, mtu));
        let Some(made) = made else { continue };
        let place = &link.classes[id as usize];
        let class = &mut link.spec.classes[id as usize];
        if class.queue.is_some() {
            let message = format!("`{word}` and `queue` both say how long the queue is");
            let error = Diagnostic::error("given-twice", place.place(word), message);
            findings.push(error.label(place.place("queue"), "the queue").help("leave one of them out"));
            continue;
        }
        class.queue = Some(made);
        class.settings.unset(word);
    }
}

/// The rules that a control class gets, as altqd made them (docs/reference/altq.md 2.1): ICMP, IGMP
/// and RSVP over IPv4; ICMPv6, IGMP and RSVP over IPv6.
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

/// Replaces the word `control` by the rules of a control class. They are added after the user's
/// rules, which are so tried first.
pub fn control_words(link: &mut Link, findings: &mut Findings) {
    let mut first = None;
    for id in 1..link.spec.classes.len() {
        if !link.spec.classes[id].settings.flag("control") {
            continue;
        }
        link.spec.classes[id].settings.unset("control");
        let place = link.classes[id].place("control");
        if let Some(first) = first {
            let error = Diagnostic::error("two-controls", place, "a link has one control class, this is the second");
            findings.push(error.label(first, "the first"));
            continue;
        }
        first = Some(place);
        for rule in control_rules(id as ClassId) {
            link.spec.rules.rules.push(rule);
            link.rules.push(place);
        }
    }
}
