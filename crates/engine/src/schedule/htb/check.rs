//! Errors and warnings for policies with HTB. The kernel accepts most of what is found here in
//! silence, or says it in its log.

use super::words::{self, Defaults, QUANTUM, Words};
use crate::schedule::check::{At, Finding, View};
use crate::spec::{ClassId, ROOT};

/// The checks of all classes.
pub fn check(view: &View<'_>, findings: &mut Vec<Finding>) {
    for class in view.classes() {
        one(view, class, findings);
    }
    quanta(view, findings);
}

fn one(view: &View<'_>, class: ClassId, findings: &mut Vec<Finding>) {
    let (settings, name, largest) = (view.settings(class), view.name(class), view.largest());
    let (inner, holds) = (view.is_inner(class), view.holds_packets(class));
    let rate = settings.rate("rate").unwrap_or_default();
    let ceil = settings.rate("ceil").unwrap_or(rate);
    if ceil < rate {
        let message = format!("the ceil {ceil} is below the rate {rate}");
        let help = "a ceil is at least the rate: raise the one or lower the other";
        findings.push(Finding::error("ceil-below-rate", At::Word(class, "ceil"), message).help(help));
    }
    let mut warn = |code, word: &'static str, message: String, help: &str| {
        findings.push(Finding::warning(code, At::Word(class, word), message).help(help));
    };
    if ceil.is_zero() && (holds || view.holds_scheduler(class)) {
        let message = format!("`{name}` never sends: its rate and its ceil are 0");
        warn("never-sends", "rate", message, "give it a rate or a ceil");
    }
    // The ceil of the link, or of the inner class above. The class that holds this scheduler is
    // served by another one.
    let parent = view.parent(class);
    let bounds = view.settings(parent);
    let above = match bounds.rate("ceil").or_else(|| bounds.rate("rate")) {
        Some(above) if parent != ROOT && !view.holds_scheduler(parent) => above,
        _ => view.most,
    };
    if settings.rate("ceil").is_some_and(|ceil| ceil > above) {
        let message = format!("`{name}` never has its ceil of {ceil}: what is above it has {above} at most");
        warn("no-effect", "ceil", message, "lower it to that");
    }
    for word in ["burst", "cburst"] {
        if let Some(bytes) = settings.bytes(word).filter(|bytes| *bytes < largest) {
            let message = format!(
                "the {word} of `{name}`, {bytes} bytes, is less than the largest packet, {largest} on the wire"
            );
            let help = "a class that has to wait for others loses what its bucket cannot hold: give it more";
            warn("small-burst", word, message, help);
        }
    }
    if let Some(quantum) = settings.bytes("quantum").filter(|quantum| *quantum < largest) {
        let message = format!(
            "the quantum of `{name}`, {quantum} bytes, is less than the largest packet, {largest} on the wire: a turn \
             is a packet"
        );
        let help = "shares of what is borrowed are those of the quanta only if none is less than a packet";
        warn("small-quantum", "quantum", message, help);
    }
    if inner && !holds {
        for word in ["prio", "quantum"].into_iter().filter(|word| settings.get(word).is_some()) {
            let message = format!("the {word} of `{name}` has no effect: only classes that hold packets take turns");
            warn("no-effect", word, message, "give it to the classes below");
        }
        if view.has_queue(class) {
            let message = format!("the queue of `{name}` holds nothing: no rule and no default leads to it");
            warn("no-effect", "queue", message, "give it to the classes below");
        }
    }
}

/// The quanta that r2q gives classes that borrow: bounded to 1000 to 200000 bytes as in the kernel,
/// which says so in its log. One warning a link.
fn quanta(view: &View<'_>, findings: &mut Vec<Finding>) {
    let defaults = Defaults { packet: view.largest(), tick: 1 };
    let mut found: Vec<(ClassId, u64, u32)> = Vec::new();
    for class in view.classes() {
        let Some(scheduler) = view.scheduler(class) else { continue };
        let leaf = !view.is_inner(class) || view.holds_scheduler(class);
        let Ok(words) = Words::read(view.settings(class), &defaults) else { continue };
        let r2q = words::r2q(&scheduler.settings);
        let wanted = words::unbounded(words.rate, r2q);
        let bounded = words.quantum(r2q);
        // Only classes that borrow share by quantum.
        if leaf && words.quantum.is_none() && words.ceil > words.rate && wanted != u64::from(bounded) {
            found.push((class, wanted, bounded));
        }
    }
    let Some((class, wanted, bounded)) = found.first().copied() else { return };
    let others = match found.len() - 1 {
        0 => String::new(),
        n => format!(", and those of {n} more are bounded so"),
    };
    let message = format!(
        "the quantum of `{}` would be {wanted} bytes by r2q: it is {bounded}{others}; what is borrowed is shared by \
         quantum, not by rate",
        view.name(class)
    );
    let (rate, least, most) = (view.guarantee(class), QUANTUM.start(), QUANTUM.end());
    let size = if wanted < u64::from(*least) { "smaller" } else { "larger" };
    let help = format!(
        "a {size} `r2q` or a `quantum` of its own; the kernel bounds it the same way ({rate} over r2q, {least} \
         to {most})"
    );
    findings.push(Finding::warning("bounded-quantum", At::Word(class, "rate"), message).help(help));
}
