//! What classes of `hfsc` must keep to: curves under curves (Stoica, Zhang and Ng 1997, section 4;
//! docs/reference/altq.md 3.1).

use altq_engine::settings::Settings;
use altq_engine::shape::service_curve::{ServiceCurve, excess};
use altq_engine::spec::{ClassId, ROOT};
use altq_engine::units::{Nanos, Rate};

use crate::diagnostic::{Diagnostic, Findings};
use crate::policy::Link;
use crate::print::time;

/// A curve that gives something.
fn curve(settings: &Settings, word: &str) -> Option<ServiceCurve> {
    settings.curve(word).filter(|curve| !curve.then.is_zero())
}

/// The classes of the scheduler that `holder` holds, which is `hfsc`.
pub fn scheduler(link: &Link, holder: ClassId, children: &[Vec<ClassId>], holders: &[bool], findings: &mut Findings) {
    let mut classes = Vec::new();
    let mut stack = vec![holder];
    while let Some(class) = stack.pop() {
        let below = children.get(class as usize).map_or(&[][..], Vec::as_slice);
        let (mut shares, mut deadlines) = (Vec::new(), Vec::new());
        for child in below {
            let settings = &link.spec.classes[*child as usize].settings;
            shares.extend(curve(settings, "linkshare").map(|curve| (*child, curve)));
            deadlines.extend(curve(settings, "realtime").map(|curve| (*child, curve)));
            classes.push(*child);
            if link.spec.classes[*child as usize].scheduler.is_none() {
                stack.push(*child);
            }
        }
        let (share, deadline) = if class == holder {
            (Some(whole(link, holder)), None)
        } else {
            let settings = &link.spec.classes[class as usize].settings;
            (curve(settings, "linkshare"), curve(settings, "realtime"))
        };
        match share {
            Some(share) => sum(link, "linkshare", class, &shares, &share, findings),
            None => {
                if let Some((child, _)) = shares.first() {
                    let (name, parent) = (link.class_name(*child), link.class_name(class));
                    let message = format!("`{name}` shares nothing: its parent `{parent}` has no `linkshare`");
                    let error =
                        Diagnostic::error("no-share", link.classes[*child as usize].place("linkshare"), message);
                    findings
                        .push(error.label(link.classes[class as usize].span, "its parent").help("give the parent one"));
                }
            }
        }
        if let Some(deadline) = deadline.filter(|_| !below.is_empty()) {
            sum(link, "realtime", class, &deadlines, &deadline, findings);
        }
    }
    classes.sort_unstable();
    // Deadlines are the link's affair, whatever the tree: those of classes that hold packets.
    let served = |class: &ClassId| {
        let inner = !children[*class as usize].is_empty() && link.spec.classes[*class as usize].scheduler.is_none();
        !inner || holders[*class as usize]
    };
    let of =
        |class: &ClassId| curve(&link.spec.classes[*class as usize].settings, "realtime").map(|curve| (*class, curve));
    let deadlines: Vec<_> = classes.iter().filter(|class| served(class)).filter_map(of).collect();
    sum(link, "realtime", holder, &deadlines, &whole(link, holder), findings);
    for class in classes {
        // Of a class without packets it says what those below it may have.
        let below = children[class as usize].iter().any(|child| of(child).is_some());
        words(link, class, served(&class) || below, findings);
    }
}

/// What the scheduler works with: the link, or what the class that holds it is guaranteed.
fn whole(link: &Link, holder: ClassId) -> ServiceCurve {
    ServiceCurve::linear(link.guarantee(holder).filter(|rate| !rate.is_zero()).unwrap_or(link.spec.rate))
}

/// Curves that add up to more than there is.
fn sum(
    link: &Link,
    word: &'static str,
    parent: ClassId,
    curves: &[(ClassId, ServiceCurve)],
    whole: &ServiceCurve,
    findings: &mut Findings,
) {
    let only: Vec<ServiceCurve> = curves.iter().map(|(_, curve)| *curve).collect();
    let Some(at) = excess(&only, whole) else { return };
    // The first that is too much.
    let over = (1..=only.len()).find(|n| excess(&only[..*n], whole).is_some()).unwrap_or(only.len());
    let Some((class, _)) = curves.get(over.saturating_sub(1)) else { return };
    let (have, need) = match at {
        Nanos::MAX => (whole.then, total(&only, |curve| curve.then)),
        at => (mean(whole, at), only.iter().map(|curve| mean(curve, at)).fold(Rate::ZERO, add)),
    };
    let when = match at {
        Nanos::MAX => String::new(),
        at => format!(" in the first {}", time(at)),
    };
    let (code, of) = match parent {
        ROOT => ("over-100-percent", "the link".to_owned()),
        _ => ("over-parent", format!("`{}`", link.class_name(parent))),
    };
    let message = format!("the `{word}` curves below {of} add up to {need}{when}; it has {have}");
    let place = link.classes[*class as usize].place(word);
    let diagnostic = if link.overcommit {
        let help = "where all of them have traffic none can count on its curve";
        Diagnostic::warning(code, place, message).help(help)
    } else {
        Diagnostic::error(code, place, message).help("lower a curve, or write `overcommit` in the link")
    };
    let whose = link.classes[parent as usize].place(if parent == ROOT { "rate" } else { word });
    findings.push(diagnostic.label(whose, format!("{of} has {have}{when}")));
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

/// Words of one class against each other; `deadlines` if its `realtime` means something.
fn words(link: &Link, id: ClassId, deadlines: bool, findings: &mut Findings) {
    let class = &link.classes[id as usize];
    let settings = &link.spec.classes[id as usize].settings;
    let (name, realtime) = (&class.name, curve(settings, "realtime"));
    if realtime.is_some() && !deadlines {
        let message =
            format!("the `realtime` of `{name}` has no effect: only classes that hold packets are served by deadline");
        let warning = Diagnostic::warning("no-effect", class.place("realtime"), message);
        findings.push(warning.help("give it to the classes below"));
    }
    let Some(limit) = settings.curve("upperlimit") else { return };
    let place = class.place("upperlimit");
    if curve(settings, "linkshare").is_none() {
        let message =
            format!("the `upperlimit` of `{name}` has no effect: without `linkshare` it is served by deadline only");
        findings.push(Diagnostic::error("no-effect", place, message).help("write `linkshare`, or leave the limit out"));
    }
    if limit.first.max(limit.then) > link.spec.rate {
        let message = format!("the `upperlimit` of `{name}` is more than the link's {}", link.spec.rate);
        findings
            .push(Diagnostic::error("out-of-range", place, message).help("leave it out: the link is a limit to all"));
    }
    // pfctl refuses this as well (docs/reference/altq.md 3.1): what goes by deadline is not held
    // back.
    if let Some(realtime) = realtime.filter(|realtime| limit.then < realtime.then) {
        let message =
            format!("the `upperlimit` of `{name}`, {}, is below its `realtime`, {}", limit.then, realtime.then);
        let error = Diagnostic::error("limit-below-realtime", place, message);
        findings.push(error.help("a limit is at least what is promised; it does not hold back what goes by deadline"));
    }
}
