//! What a class of `htb` should keep to. The kernel takes most of this without a word, or says it
//! in its log.

use altq_engine::schedule::htb::words::{self, Defaults, QUANTUM, Words};
use altq_engine::spec::ClassId;
use altq_engine::units::Rate;

use crate::diagnostic::{Diagnostic, Findings};
use crate::policy::Link;

pub fn class(link: &Link, id: ClassId, (inner, holds): (bool, bool), findings: &mut Findings) {
    let class = &link.classes[id as usize];
    let spec = &link.spec.classes[id as usize];
    let settings = &spec.settings;
    let (name, largest) = (&class.name, u64::from(link.spec.overhead.charge(link.spec.mtu)));
    let rate = settings.rate("rate").unwrap_or_default();
    let ceil = settings.rate("ceil").unwrap_or(rate);
    if ceil < rate {
        let message = format!("the ceil {ceil} is below the rate {rate}");
        let help = "a ceil is at least the rate: raise the one or lower the other";
        findings.push(Diagnostic::error("ceil-below-rate", class.place("ceil"), message).help(help));
    }
    let mut warn = |code, word: &str, message: String, help: &str| {
        findings.push(Diagnostic::warning(code, class.place(word), message).help(help));
    };
    if ceil.is_zero() && (holds || spec.scheduler.is_some()) {
        warn(
            "never-sends",
            "rate",
            format!("`{name}` never sends: its rate and its ceil are 0"),
            "give it a rate or a ceil",
        );
    }
    // The ceil of the link, or of the inner class above; what holds another scheduler has its own
    // bounds.
    let parent = &link.spec.classes[spec.parent as usize];
    let above = match parent.settings.rate("ceil").or_else(|| parent.settings.rate("rate")) {
        Some(above) if spec.parent != 0 && parent.scheduler.is_none() => above,
        _ => link.spec.rate,
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
            warn(
                "small-burst",
                word,
                message,
                "a class that has to wait for others loses what its bucket cannot hold: give it more",
            );
        }
    }
    if let Some(quantum) = settings.bytes("quantum").filter(|quantum| *quantum < largest) {
        let message = format!(
            "the quantum of `{name}`, {quantum} bytes, is less than the largest packet, {largest} on the wire: a turn \
             is a packet"
        );
        warn(
            "small-quantum",
            "quantum",
            message,
            "shares of what is borrowed are those of the quanta only if none is less than a packet",
        );
    }
    if inner && !holds {
        for word in ["prio", "quantum"].into_iter().filter(|word| settings.get(word).is_some()) {
            let message = format!("the {word} of `{name}` has no effect: only classes that hold packets take turns");
            warn("no-effect", word, message, "give it to the classes below");
        }
        if spec.queue.is_some() {
            let message = format!("the queue of `{name}` holds nothing: no rule and no default leads to it");
            warn("no-effect", "queue", message, "give it to the classes below");
        }
    }
}

/// The quanta that r2q gives classes that borrow: bounded to 1000 to 200000 bytes as in the kernel,
/// which says so in its log. One warning a link.
pub fn quanta(link: &Link, children: &[Vec<ClassId>], findings: &mut Findings) {
    let largest = link.spec.overhead.charge(link.spec.mtu);
    let defaults = Defaults { packet: u64::from(largest), tick: 1 };
    let mut found: Vec<(ClassId, u64, u32)> = Vec::new();
    for (id, spec) in link.spec.classes.iter().enumerate().skip(1) {
        let class = id as ClassId;
        let Some(scheduler) = link.serving(class).filter(|scheduler| scheduler.name == "htb") else { continue };
        let leaf = children[id].is_empty() || spec.scheduler.is_some();
        let Ok(words) = Words::read(&spec.settings, &defaults) else { continue };
        let r2q = words::r2q(&scheduler.settings);
        let wanted = words::unbounded(words.rate, r2q);
        let bounded = words.quantum(r2q);
        // Only who borrows shares by quantum.
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
        link.class_name(class)
    );
    let rate = link.guarantee(class).unwrap_or(Rate::ZERO);
    let help = if wanted < u64::from(*QUANTUM.start()) {
        format!(
            "a smaller `r2q` or a `quantum` of its own; the kernel bounds it the same way ({rate} over r2q, {} to {})",
            QUANTUM.start(),
            QUANTUM.end()
        )
    } else {
        format!(
            "a larger `r2q` or a `quantum` of its own; the kernel bounds it the same way ({rate} over r2q, {} to {})",
            QUANTUM.start(),
            QUANTUM.end()
        )
    };
    findings
        .push(Diagnostic::warning("bounded-quantum", link.classes[class as usize].place("rate"), message).help(help));
}
