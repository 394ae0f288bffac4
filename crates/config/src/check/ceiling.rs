//! Guarantees against what limits: a class that is guaranteed more than it may ever have, and a
//! ceiling that the class never reaches.

use altq_engine::schedule::Role;
use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::Rate;

use crate::diagnostic::{Diagnostic, Findings};
use crate::policy::Link;

/// Warns of a class whose own limit (a ceiling, a shaper, a policer, a meter that drops) is below
/// its guarantee, and of a meter of the link that is below the sum of what the classes are
/// guaranteed. `children` are those of the class.
pub fn class(link: &Link, class: ClassId, children: &[ClassId], findings: &mut Findings) {
    if class != ROOT {
        without_effect(link, class, findings);
    }
    let Some((most, limit)) = link.own_ceiling(class) else { return };
    let name = link.class_name(class);
    let place = link.classes[class as usize].place(limit);
    if class == ROOT {
        let sum: u128 =
            children.iter().map(|child| u128::from(link.guarantee(*child).unwrap_or_default().as_bit_s())).sum();
        if sum > u128::from(most.as_bit_s()) {
            let all = Rate::bit_s(u64::try_from(sum).unwrap_or(u64::MAX));
            let message =
                format!("the classes of `{name}` are guaranteed {all} together, and its `{limit}` lets {most} through");
            let warning = Diagnostic::warning("guarantee-above-ceiling", place, message);
            findings.push(warning.help(format!("let the {limit} pass {all}, or lower the guarantees")));
        }
        return;
    }
    let guarantee = link.guarantee(class).unwrap_or_default();
    // A word that lets nothing through is refused for that.
    if guarantee <= most || (most.is_zero() && limit != "meter") {
        return;
    }
    let roles = [Role::Guarantee, Role::Urgent, Role::Deadline, Role::Share];
    let entry = link.entry_of(class);
    let mut words = roles.into_iter().filter_map(|role| entry?.word_of(role));
    let written = &link.classes[class as usize].words;
    let word = words.find_map(|word| written.iter().find(|(known, _)| *known == word));
    let message = format!("`{name}` is guaranteed {guarantee}, and its `{limit}` lets {most} through");
    let warning = Diagnostic::warning("guarantee-above-ceiling", place, message);
    let warning = match word {
        Some((_, span)) => warning.label(*span, format!("guarantees {guarantee}")),
        None => warning,
    };
    findings
        .push(warning.help(format!(
            "it can count on {most}: raise the {limit} to {guarantee} at least, or lower the guarantee"
        )));
}

/// Warns of words that let a class have more than what is above it has: it never has that much. The
/// scheduler that bounds a class by its guarantee where such a word is not written says so itself.
fn without_effect(link: &Link, class: ClassId, findings: &mut Findings) {
    let (Some(spec), Some(entry)) = (link.spec.classes.get(class as usize), link.entry_of(class)) else { return };
    let mut above = link.ceiling(spec.parent);
    // What is bounded by the link alone has more when the link's rate rises.
    if let Some(adapt) = link.adapt.as_ref().filter(|_| above >= link.spec.rate) {
        above = above.max(adapt.to);
    }
    for word in [Role::Ceiling, Role::Shape].into_iter().flat_map(|role| entry.words_of(role)) {
        let Some(most) = spec.settings.rate(word).filter(|most| *most > above) else { continue };
        let name = link.class_name(class);
        let message = format!("`{name}` never has its {word} of {most}: what is above it has {above} at most");
        let warning = Diagnostic::warning("no-effect", link.classes[class as usize].place(word), message);
        findings.push(warning.help("lower it to that, or leave it out"));
    }
}
