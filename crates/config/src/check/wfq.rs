//! What the classes of one `wfq` must keep to together.

use altq_engine::settings::{ONE, Settings};
use altq_engine::spec::{ClassId, ROOT};

use crate::diagnostic::{Diagnostic, Findings};
use crate::policy::Link;

/// Words that say what a class gets, of which one scheduler's classes use one kind.
const KINDS: [&str; 3] = ["bandwidth", "bandwidth remaining", "weight"];

/// Checks every place where `wfq` works.
pub fn places(link: &Link, children: &[Vec<ClassId>], findings: &mut Findings) {
    for (holder, below) in children.iter().enumerate() {
        let scheduler = match (holder as ClassId, &link.spec.classes[holder].scheduler) {
            (ROOT, _) => &link.spec.scheduler,
            (_, Some(scheduler)) => scheduler,
            _ => continue,
        };
        if scheduler.name == "wfq" && !below.is_empty() {
            mixed(link, below, findings);
            remaining(link, below, findings);
            bursts(link, below, findings);
            fair_queues(link, below, findings);
            nothing_left(link, holder as ClassId, below, findings);
        }
    }
}

fn words(link: &Link, class: ClassId) -> &Settings {
    &link.spec.classes[class as usize].settings
}

/// Guarantees, parts of the rest and plain weights cannot be compared: IOS refuses them beside each
/// other in one policy map as well.
fn mixed(link: &Link, classes: &[ClassId], findings: &mut Findings) {
    let kind = |class: ClassId| KINDS.into_iter().find(|word| words(link, class).get(word).is_some());
    let mut kinds = classes.iter().filter_map(|class| kind(*class).map(|kind| (*class, kind)));
    let Some((first, one)) = kinds.next() else { return };
    let Some((second, other)) = kinds.find(|(_, kind)| *kind != one) else { return };
    let (place, before) = (&link.classes[second as usize], &link.classes[first as usize]);
    let message = format!("`{other}` beside `{one}`: what the classes of one wfq get is said in one way");
    let error = Diagnostic::error("mixed-bandwidth", place.place(other), message);
    let help = format!("write `{one}` here as well; low-latency classes may stand beside either");
    findings.push(error.label(before.place(one), format!("`{}` has `{one}`", before.name)).help(help));
}

/// No more than all can be remaining.
fn remaining(link: &Link, classes: &[ClassId], findings: &mut Findings) {
    let mut sum = 0_u64;
    for class in classes {
        let Some(part) = words(link, *class).percent("bandwidth remaining") else { continue };
        sum += u64::from(part);
        if sum > u64::from(ONE) {
            let parts = classes.iter().filter_map(|class| {
                let part = words(link, *class).percent("bandwidth remaining")?;
                Some(format!("{} {}%", link.class_name(*class), f64::from(part) / 1e7))
            });
            let message =
                format!("more than 100 % of what remains is given away: {}", parts.collect::<Vec<_>>().join(" + "));
            let error = Diagnostic::error(
                "over-100-percent",
                link.classes[*class as usize].place("bandwidth remaining"),
                message,
            );
            findings.push(error.help("lower a part; `weight` takes numbers that need not add up"));
            return;
        }
    }
}

/// A packet longer than the bucket never conforms.
fn bursts(link: &Link, classes: &[ClassId], findings: &mut Findings) {
    let largest = u64::from(link.spec.overhead.charge(link.spec.mtu));
    for class in classes {
        let place = &link.classes[*class as usize];
        let settings = words(link, *class);
        let low_latency = settings.rate("low-latency").filter(|rate| !rate.is_zero()).map(|rate| {
            let burst = settings.bytes("low-latency burst").unwrap_or_else(|| rate.bytes_in(200_000_000));
            ("low-latency", burst, "under congestion ")
        });
        let police = settings.bytes("police burst").map(|burst| ("police", burst, ""));
        for (word, burst, when) in low_latency.into_iter().chain(police).filter(|(_, burst, _)| *burst < largest) {
            let message = format!(
                "the burst of `{}`, {burst} bytes, is less than the largest packet, {largest} on the wire: \
                 {when}longer ones are dropped",
                place.name
            );
            let warning = Diagnostic::warning("small-burst", place.place(word), message);
            findings.push(warning.help(format!("fine where its packets are small; else `{word} … burst {largest}`")));
        }
    }
}

/// `fair-queue` is a kind of queue.
fn fair_queues(link: &Link, classes: &[ClassId], findings: &mut Findings) {
    for class in classes.iter().filter(|class| words(link, **class).flag("fair-queue")) {
        let (place, spec) = (&link.classes[*class as usize], &link.spec.classes[*class as usize]);
        let span = place.place("fair-queue");
        if spec.queue.is_some() {
            let error = Diagnostic::error("given-twice", span, "`fair-queue` and `queue` both say which queue it is");
            findings.push(
                error.label(place.place("queue"), "the queue").help("leave one of them out; `fair-queue` is an sfq"),
            );
        } else if spec.scheduler.is_some() {
            let message = format!("`fair-queue` has no effect: `{}` holds a scheduler", place.name);
            findings.push(Diagnostic::warning("no-effect", span, message).help("give it to the classes below"));
        }
    }
}

/// Where all is reserved, a class that says nothing has a thousandth.
fn nothing_left(link: &Link, holder: ClassId, classes: &[ClassId], findings: &mut Findings) {
    let Some(whole) = link.capacity(holder) else { return };
    let given = |class: &ClassId| u128::from(link.guarantee(*class).unwrap_or_default().as_bit_s());
    let sum: u128 = classes.iter().map(given).sum();
    let silent =
        |class: &ClassId| KINDS.iter().chain(&["low-latency"]).all(|word| words(link, *class).get(word).is_none());
    let Some(class) = classes.iter().copied().find(silent) else { return };
    if sum > 0 && sum >= u128::from(whole.as_bit_s()) {
        let place = &link.classes[class as usize];
        let message = format!("nothing is left for `{}`: the others reserve all of {whole}", place.name);
        let warning = Diagnostic::warning("nothing-left", place.span, message);
        findings.push(warning.help("under congestion it has a thousandth; give it `bandwidth`, or lower the others"));
    }
}
