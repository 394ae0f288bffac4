//! HFSC's checks: the curves of classes add up to no more than the curve of the class above them
//! (Stoica, Zhang and Ng 1997; docs/reference/altq.md 3.1).

use crate::schedule::check::{At, Finding, View};
use crate::settings::Settings;
use crate::shape::service_curve::{ServiceCurve, excess};
use crate::spec::{ClassId, ROOT};
use crate::units::{Nanos, Rate, time_text};

/// Checks the classes of every `hfsc` of the policy.
pub fn check(view: &View<'_>, findings: &mut Vec<Finding>) {
    for (holder, _) in view.places() {
        place(view, holder, findings);
    }
}

/// A class's curve, unless it gives nothing in the long run.
fn curve(settings: &Settings, word: &str) -> Option<ServiceCurve> {
    settings.curve(word).filter(|curve| !curve.then.is_zero())
}

/// The classes of the scheduler that `holder` holds.
fn place(view: &View<'_>, holder: ClassId, findings: &mut Vec<Finding>) {
    let mut classes = Vec::new();
    let mut stack = vec![holder];
    while let Some(class) = stack.pop() {
        let below = view.children(class);
        let (mut shares, mut deadlines) = (Vec::new(), Vec::new());
        for child in below {
            let settings = view.settings(*child);
            shares.extend(curve(settings, "linkshare").map(|curve| (*child, curve)));
            deadlines.extend(curve(settings, "realtime").map(|curve| (*child, curve)));
            classes.push(*child);
            if !view.holds_scheduler(*child) {
                stack.push(*child);
            }
        }
        let (share, deadline) = if class == holder {
            (Some(whole(view, holder)), None)
        } else {
            let settings = view.settings(class);
            (curve(settings, "linkshare"), curve(settings, "realtime"))
        };
        match share {
            Some(share) => sum(view, "linkshare", class, &shares, &share, findings),
            None => {
                if let Some((child, _)) = shares.first() {
                    let (name, parent) = (view.name(*child), view.name(class));
                    let message = format!("`{name}` shares nothing: its parent `{parent}` has no `linkshare`");
                    let error = Finding::error("no-share", At::Word(*child, "linkshare"), message);
                    findings.push(error.label(At::Class(class), "its parent").help("give the parent one"));
                }
            }
        }
        if let Some(deadline) = deadline.filter(|_| !below.is_empty()) {
            sum(view, "realtime", class, &deadlines, &deadline, findings);
        }
    }
    classes.sort_unstable();
    // Deadlines are kept without regard to the tree, so the curves of all classes that hold packets
    // are added up too.
    let served = |class: ClassId| {
        let inner = view.is_inner(class) && !view.holds_scheduler(class);
        !inner || view.holds_packets(class)
    };
    let of = |class: ClassId| curve(view.settings(class), "realtime").map(|curve| (class, curve));
    let deadlines: Vec<_> = classes.iter().copied().filter(|class| served(*class)).filter_map(of).collect();
    sum(view, "realtime", holder, &deadlines, &whole(view, holder), findings);
    for class in classes {
        // The `realtime` of a class without packets bounds the sum of those below it.
        let below = view.children(class).iter().any(|child| of(*child).is_some());
        words(view, class, served(class) || below, findings);
    }
}

/// What the scheduler works with: the link, or what the class that holds it is guaranteed.
fn whole(view: &View<'_>, holder: ClassId) -> ServiceCurve {
    ServiceCurve::linear(Some(view.guarantee(holder)).filter(|rate| !rate.is_zero()).unwrap_or(view.link.rate))
}

/// Reports curves that add up to more than `whole`, the curve of `parent`.
fn sum(
    view: &View<'_>,
    word: &'static str,
    parent: ClassId,
    curves: &[(ClassId, ServiceCurve)],
    whole: &ServiceCurve,
    findings: &mut Vec<Finding>,
) {
    let only: Vec<ServiceCurve> = curves.iter().map(|(_, curve)| *curve).collect();
    let Some(at) = excess(&only, whole) else { return };
    // The first class with which the sum is too much.
    let over = (1..=only.len()).find(|n| excess(&only[..*n], whole).is_some()).unwrap_or(only.len());
    let Some((class, _)) = curves.get(over.saturating_sub(1)) else { return };
    let (have, need) = match at {
        Nanos::MAX => (whole.then, total(&only, |curve| curve.then)),
        at => (mean(whole, at), only.iter().map(|curve| mean(curve, at)).fold(Rate::ZERO, add)),
    };
    let when = match at {
        Nanos::MAX => String::new(),
        at => format!(" in the first {}", time_text(at)),
    };
    let (code, of) = match parent {
        ROOT => ("over-100-percent", "the link".to_owned()),
        _ => ("over-parent", format!("`{}`", view.name(parent))),
    };
    let message = format!("the `{word}` curves below {of} add up to {need}{when}; it has {have}");
    let place = At::Word(*class, word);
    let finding = if view.overcommit {
        let help = "when all of them have traffic, some get less than their curve; a class for which `altq check` \
                    prints a delay still gets its own";
        Finding::warning(code, place, message).help(help)
    } else {
        Finding::error(code, place, message).help("lower a curve, or write `overcommit` in the link")
    };
    let whose = At::Word(parent, if parent == ROOT { "rate" } else { word });
    findings.push(finding.label(whose, format!("{of} has {have}{when}")));
}

fn add(a: Rate, b: Rate) -> Rate {
    Rate::bit_s(a.as_bit_s().saturating_add(b.as_bit_s()))
}

fn total(curves: &[ServiceCurve], of: impl Fn(&ServiceCurve) -> Rate) -> Rate {
    curves.iter().map(of).fold(Rate::ZERO, add)
}

/// The mean rate of a curve over its first `time`.
fn mean(curve: &ServiceCurve, time: Nanos) -> Rate {
    let early = u128::from(curve.first.as_bit_s()) * u128::from(time.min(curve.until));
    let late = u128::from(curve.then.as_bit_s()) * u128::from(time.saturating_sub(curve.until));
    Rate::bit_s(u64::try_from(early.saturating_add(late) / u128::from(time.max(1))).unwrap_or(u64::MAX))
}

/// Checks the words of one class against each other. `deadlines`: its `realtime` has an effect.
fn words(view: &View<'_>, class: ClassId, deadlines: bool, findings: &mut Vec<Finding>) {
    let (settings, name) = (view.settings(class), view.name(class));
    let realtime = curve(settings, "realtime");
    if realtime.is_some() && !deadlines {
        let message =
            format!("the `realtime` of `{name}` has no effect: only classes that hold packets are served by deadline");
        let warning = Finding::warning("no-effect", At::Word(class, "realtime"), message);
        findings.push(warning.help("give it to the classes below"));
    }
    let Some(limit) = settings.curve("upperlimit") else { return };
    let place = At::Word(class, "upperlimit");
    if curve(settings, "linkshare").is_none() {
        let message =
            format!("the `upperlimit` of `{name}` has no effect: without `linkshare` it is served by deadline only");
        findings.push(Finding::error("no-effect", place, message).help("write `linkshare`, or leave the limit out"));
    }
    if limit.first.max(limit.then) > view.most {
        let message = format!("the `upperlimit` of `{name}` is more than the link's {}", view.most);
        findings.push(Finding::error("out-of-range", place, message).help("leave it out: the link is a limit to all"));
    }
    // pfctl refuses this as well (docs/reference/altq.md 3.1): a limit does not hold back what is
    // served by deadline.
    if let Some(realtime) = realtime.filter(|realtime| limit.then < realtime.then) {
        let message =
            format!("the `upperlimit` of `{name}`, {}, is below its `realtime`, {}", limit.then, realtime.then);
        let error = Finding::error("limit-below-realtime", place, message);
        findings.push(error.help("a limit is at least what is promised; it does not hold back what goes by deadline"));
    }
}
