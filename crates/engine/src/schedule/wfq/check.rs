//! What the classes of one `wfq` must keep to together.

use crate::schedule::check::{At, Finding, View};
use crate::settings::ONE;
use crate::spec::ClassId;

/// Words that say what a class gets, of which one scheduler's classes use one kind.
const KINDS: [&str; 3] = ["bandwidth", "bandwidth remaining", "weight"];

/// The checks of all places.
pub fn check(view: &View<'_>, findings: &mut Vec<Finding>) {
    for (holder, _) in view.places() {
        let below = view.children(holder);
        if !below.is_empty() {
            mixed(view, below, findings);
            remaining(view, below, findings);
            bursts(view, below, findings);
            fair_queues(view, below, findings);
            nothing_left(view, holder, below, findings);
        }
    }
}

/// Guarantees, parts of the rest and plain weights cannot be compared: IOS refuses them beside each
/// other in one policy map as well.
fn mixed(view: &View<'_>, classes: &[ClassId], findings: &mut Vec<Finding>) {
    let kind = |class: ClassId| KINDS.into_iter().find(|word| view.settings(class).get(word).is_some());
    let mut kinds = classes.iter().filter_map(|class| kind(*class).map(|kind| (*class, kind)));
    let Some((first, one)) = kinds.next() else { return };
    let Some((second, other)) = kinds.find(|(_, kind)| *kind != one) else { return };
    let message = format!("`{other}` beside `{one}`: what the classes of one wfq get is said in one way");
    let error = Finding::error("mixed-bandwidth", At::Word(second, other), message);
    let help = format!("write `{one}` here as well; low-latency classes may stand beside either");
    findings.push(error.label(At::Word(first, one), format!("`{}` has `{one}`", view.name(first))).help(help));
}

/// No more than all can be remaining.
fn remaining(view: &View<'_>, classes: &[ClassId], findings: &mut Vec<Finding>) {
    let word = "bandwidth remaining";
    let mut sum = 0_u64;
    for class in classes {
        let Some(part) = view.settings(*class).percent(word) else { continue };
        sum += u64::from(part);
        if sum > u64::from(ONE) {
            let parts = classes.iter().filter_map(|class| {
                let part = view.settings(*class).percent(word)?;
                Some(format!("{} {}%", view.name(*class), f64::from(part) / 1e7))
            });
            let message =
                format!("more than 100 % of what remains is given away: {}", parts.collect::<Vec<_>>().join(" + "));
            let error = Finding::error("over-100-percent", At::Word(*class, word), message);
            findings.push(error.help("lower a part; `weight` takes numbers that need not add up"));
            return;
        }
    }
}

/// A packet longer than the bucket never conforms.
fn bursts(view: &View<'_>, classes: &[ClassId], findings: &mut Vec<Finding>) {
    let largest = view.largest();
    for class in classes {
        let settings = view.settings(*class);
        let low_latency = settings.rate("low-latency").filter(|rate| !rate.is_zero()).map(|rate| {
            let burst = settings.bytes("low-latency burst").unwrap_or_else(|| rate.bytes_in(200_000_000));
            ("low-latency", burst, "under congestion ")
        });
        let police = settings.bytes("police burst").map(|burst| ("police", burst, ""));
        for (word, burst, when) in low_latency.into_iter().chain(police).filter(|(_, burst, _)| *burst < largest) {
            let message = format!(
                "the burst of `{}`, {burst} bytes, is less than the largest packet, {largest} on the wire: \
                 {when}longer ones are dropped",
                view.name(*class)
            );
            let warning = Finding::warning("small-burst", At::Word(*class, word), message);
            findings.push(warning.help(format!("fine where its packets are small; else `{word} … burst {largest}`")));
        }
    }
}

/// `fair-queue` is a kind of queue.
fn fair_queues(view: &View<'_>, classes: &[ClassId], findings: &mut Vec<Finding>) {
    for class in classes.iter().copied().filter(|class| view.settings(*class).flag("fair-queue")) {
        let at = At::Word(class, "fair-queue");
        if view.has_queue(class) {
            let error = Finding::error("given-twice", at, "`fair-queue` and `queue` both say which queue it is");
            let help = "leave one of them out; `fair-queue` is an sfq";
            findings.push(error.label(At::Word(class, "queue"), "the queue").help(help));
        } else if view.holds_scheduler(class) {
            let message = format!("`fair-queue` has no effect: `{}` holds a scheduler", view.name(class));
            findings.push(Finding::warning("no-effect", at, message).help("give it to the classes below"));
        }
    }
}

/// Warns of a class that says nothing where the whole link is reserved: it gets a thousandth.
fn nothing_left(view: &View<'_>, holder: ClassId, classes: &[ClassId], findings: &mut Vec<Finding>) {
    let Some(whole) = view.link.capacity(holder) else { return };
    let given = |class: &ClassId| u128::from(view.guarantee(*class).as_bit_s());
    let sum: u128 = classes.iter().map(given).sum();
    let silent =
        |class: &ClassId| KINDS.iter().chain(&["low-latency"]).all(|word| view.settings(*class).get(word).is_none());
    let Some(class) = classes.iter().copied().find(silent) else { return };
    if sum > 0 && sum >= u128::from(whole.as_bit_s()) {
        let message = format!("nothing is left for `{}`: the others reserve all of {whole}", view.name(class));
        let warning = Finding::warning("nothing-left", At::Class(class), message);
        findings.push(warning.help("under congestion it has a thousandth; give it `bandwidth`, or lower the others"));
    }
}
