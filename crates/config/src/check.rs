//! Checks of a policy that are the same for every language: guarantees must fit into capacities,
//! words must not contradict each other, and rules must be able to match.

use std::collections::HashSet;

use altq_engine::Engine;
use altq_engine::schedule::check::{At, Finding, Severity, View};
use altq_engine::schedule::{self, Role};
use altq_engine::spec::{ClassId, ROOT, SpecError};
use altq_engine::units::Rate;

use crate::diagnostic::{Diagnostic, Findings, Span};
use crate::policy::Link;

mod adapt;
mod ceiling;
mod long_run;
mod meter;
mod queue;
mod reached;
mod reserved;
pub(crate) mod rules;
mod shadows;

/// Checks a link. Findings point to the places in `link.classes` and `link.rules`.
pub(crate) fn link(link: &Link, findings: &mut Findings) {
    let children = link.children();
    sums(link, &children, findings);
    let found = of_schedulers(link, |severity| severity != Severity::Advice);
    let with_errors: HashSet<ClassId> =
        found.iter().filter(|found| found.severity == Severity::Error).map(|found| found.at.class()).collect();
    let mut found = found.into_iter().peekable();
    for class in 0..link.classes.len() as ClassId {
        meter::class(link, class, !children[class as usize].is_empty(), findings);
        queue::class(link, class, findings);
        if !with_errors.contains(&class) {
            ceiling::class(link, class, &children[class as usize], findings);
        }
        while let Some(finding) = found.next_if(|finding| finding.at.class() <= class) {
            findings.push(diagnostic(link, finding));
        }
    }
    reserved::check(link, findings);
    rules::check(link, findings);
    shadows::check(link, findings);
    reached::check(link, &children, findings);
    adapt::regulated(link, findings);
    if link.spec.default.is_none() && (link.device.is_some() || !link.spec.rules.rules.is_empty()) {
        let message =
            format!("the link `{}` has no default class: packets that no rule matches are dropped", link.name);
        findings.push(Diagnostic::warning("no-default", link.span, message).help("write `default` in a class"));
    }
    // What the engine would refuse is refused here, where the place in the text is known.
    if !findings.has_errors() {
        match Engine::new(&link.spec) {
            Ok(mut engine) => adapt::bounds(link, &mut engine, findings),
            Err(error) => findings.push(refused(link, error)),
        }
    }
}

/// Advice on a link, which only `altq check` prints. The policy is correct without following it.
pub fn advice(link: &Link) -> Vec<Diagnostic> {
    let found = of_schedulers(link, |severity| severity == Severity::Advice);
    found.into_iter().map(|finding| diagnostic(link, finding)).chain(long_run::advice(link)).collect()
}

/// Notes of the schedulers on their classes, indexed by class number: which word should be replaced
/// by which, and why. Most classes have none.
pub fn notes(link: &Link) -> Vec<Option<String>> {
    let mut notes = vec![None; link.classes.len()];
    views(link, |view| {
        for (class, said) in (view.entry.notes)(view) {
            if let Some(note) = notes.get_mut(class as usize) {
                *note = Some(said);
            }
        }
    });
    notes
}

/// Calls `each` once for every kind of scheduler that the link uses, with a view of the link.
fn views(link: &Link, mut each: impl FnMut(&View<'_>)) {
    let (children, holders) = (link.children(), link.holders());
    let names: Vec<&str> = link.classes.iter().map(|class| class.name.as_str()).collect();
    let stand: HashSet<&str> = (0..link.spec.classes.len() as ClassId)
        .filter_map(|class| link.spec.scheduler_at(class))
        .map(|scheduler| scheduler.name)
        .collect();
    for entry in schedule::all().filter(|entry| stand.contains(entry.name)) {
        let (names, children, holders) = (&names, &children, &holders);
        let most = link.adapt.as_ref().map_or(link.spec.rate, |adapt| adapt.to);
        each(&View { link: &link.spec, names, children, holders, most, overcommit: link.overcommit, entry });
    }
}

/// The findings of the schedulers of a link, in the order of the classes.
fn of_schedulers(link: &Link, wanted: fn(Severity) -> bool) -> Vec<Finding> {
    let mut found = Vec::new();
    views(link, |view| (view.entry.check)(view, &mut found));
    found.retain(|finding| wanted(finding.severity));
    found.sort_by_key(|finding| finding.at.class());
    found
}

/// A finding of a scheduler, with its places in the text.
fn diagnostic(link: &Link, finding: Finding) -> Diagnostic {
    let place = |at: At| {
        let class = link.classes.get(at.class() as usize);
        class.map_or(link.span, |class| match at {
            At::Class(_) => class.span,
            At::Word(_, word) => class.place(word),
            At::Scheduler(_, word) => class.scheduler_place(word),
        })
    };
    let made = match finding.severity {
        Severity::Error => Diagnostic::error(finding.code, place(finding.at), finding.message),
        Severity::Warning | Severity::Advice => Diagnostic::warning(finding.code, place(finding.at), finding.message),
    };
    finding.labels.into_iter().fold(made.help_if(finding.help), |made, (at, text)| made.label(place(at), text))
}

/// An error of the engine, at the place of the word that it names.
fn refused(link: &Link, error: SpecError) -> Diagnostic {
    let class = link.classes.get(error.class.unwrap_or(ROOT) as usize);
    let span = match (class, error.word) {
        (None, _) => link.span,
        (Some(class), None) => class.span,
        (Some(class), Some(word)) => {
            let mut places = class.words.iter().chain(&class.scheduler_words).chain(&class.queue_words);
            places.find(|(name, _)| *name == word).map_or(class.span, |(_, span)| *span)
        }
    };
    Diagnostic::error("refused", span, error.message).help_if(error.help)
}

/// The guarantees of children must not exceed the capacity of their parent. With `overcommit` that
/// is a warning instead of an error.
fn sums(link: &Link, children: &[Vec<ClassId>], findings: &mut Findings) {
    for (parent, children) in children.iter().enumerate() {
        let entry = children.first().and_then(|child| link.entry_of(*child));
        if entry.is_some_and(|entry| entry.adds_up_itself) {
            continue;
        }
        let Some(whole) = link.capacity(parent as ClassId) else { continue };
        let mut sum: u128 = 0;
        let mut over = None;
        for child in children {
            sum += u128::from(link.guarantee(*child).unwrap_or_default().as_bit_s());
            if over.is_none() && sum > u128::from(whole.as_bit_s()) {
                over = Some(*child);
            }
        }
        let Some(over) = over else { continue };
        let total = u64::try_from(sum).map_or_else(|_| format!("{sum}bit/s"), |sum| Rate::bit_s(sum).to_string());
        let parent = parent as ClassId;
        let (code, of) = match parent {
            ROOT => ("over-100-percent", "the link's".to_owned()),
            _ => ("over-parent", format!("its parent `{}`'s", link.class_name(parent))),
        };
        let arithmetic = arithmetic(link, children);
        let message = if parent == ROOT {
            format!("the classes guarantee {total} of the link's {whole}: {arithmetic}")
        } else {
            format!("the children of `{}` guarantee {total} of its {whole}: {arithmetic}", link.class_name(parent))
        };
        let span = guarantee_place(link, over);
        let diagnostic = if link.overcommit {
            let help = "when all of them have traffic, some get less than their guarantee; a class for which \
                        `altq check` prints a delay still gets its own";
            Diagnostic::warning(code, span, message).help(help)
        } else {
            Diagnostic::error(code, span, message).help("lower a share, or write `overcommit` in the link")
        };
        findings.push(diagnostic.label(guarantee_place(link, parent), format!("{of} {whole}")));
    }
}

/// The place of the word that gives a class its guarantee or its capacity.
fn guarantee_place(link: &Link, class: ClassId) -> Span {
    let place = &link.classes[class as usize];
    if class == ROOT {
        return place.place("rate");
    }
    let roles = [Role::Shape, Role::Guarantee, Role::Urgent];
    let words =
        link.entry_of(class).into_iter().flat_map(|entry| roles.into_iter().flat_map(|role| entry.words_of(role)));
    let mut places = words.filter_map(|word| place.words.iter().find(|(name, _)| *name == word));
    places.next().map_or(place.span, |(_, span)| *span)
}

/// The sum of the children's guarantees as text: `voice 5Mbit/s + data 6Mbit/s`, at most eight
/// terms.
fn arithmetic(link: &Link, children: &[ClassId]) -> String {
    let mut terms: Vec<String> = children
        .iter()
        .take(8)
        .map(|child| format!("{} {}", link.class_name(*child), link.guarantee(*child).unwrap_or_default()))
        .collect();
    if children.len() > 8 {
        terms.push(format!("{} more", children.len() - 8));
    }
    terms.join(" + ")
}
