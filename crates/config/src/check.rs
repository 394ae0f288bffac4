//! What a policy must hold whatever its language: guarantees against capacity, words that go
//! together, rules that can match.

use altq_engine::Engine;
use altq_engine::spec::{ClassId, ROOT, SpecError};
use altq_engine::units::Rate;

use crate::diagnostic::{Diagnostic, Findings, Span};
use crate::policy::{Class, Link};

mod drr;
mod fairq;
mod hfsc;
mod htb;
mod meter;
pub(crate) mod rules;
mod wfq;

/// Checks a link. Its places are those of `link.classes` and `link.rules`.
pub(crate) fn link(link: &Link, findings: &mut Findings) {
    let (children, holders) = (link.children(), link.holders());
    sums(link, &children, findings);
    for class in 0..link.classes.len() as ClassId {
        schedulers(link, class, findings);
        meter::class(link, class, findings);
        if holds_hfsc(link, class) {
            hfsc::scheduler(link, class, &children, &holders, findings);
        }
        match link.scheduler_of(class) {
            _ if class == ROOT => {}
            "cbq" => cbq_class(link, class, (!children[class as usize].is_empty(), holders[class as usize]), findings),
            "drr" => drr::class(link, class, findings),
            "fairq" => fairq::class(link, class, findings),
            "htb" => htb::class(link, class, (!children[class as usize].is_empty(), holders[class as usize]), findings),
            _ => {}
        }
    }
    htb::quanta(link, &children, findings);
    wfq::places(link, &children, findings);
    rules::check(link, findings);
    if link.spec.default.is_none() && (link.device.is_some() || !link.spec.rules.rules.is_empty()) {
        let message =
            format!("the link `{}` has no default class: packets that no rule matches are dropped", link.name);
        findings.push(Diagnostic::warning("no-default", link.span, message).help("write `default` in a class"));
    }
    // The engine has the last word: what it would refuse is refused here, with its place.
    if !findings.has_errors()
        && let Err(error) = Engine::new(&link.spec)
    {
        findings.push(refused(link, error));
    }
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

/// What children guarantee may not be more than what their parent has. `overcommit` makes it a
/// warning.
fn sums(link: &Link, children: &[Vec<ClassId>], findings: &mut Findings) {
    for (parent, children) in children.iter().enumerate() {
        // Curves have sums of their own.
        if children.first().is_some_and(|child| link.scheduler_of(*child) == "hfsc") {
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
        let place = &link.classes[over as usize];
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
        let span = guarantee_place(place);
        let diagnostic = if link.overcommit {
            let help = "where all of them have traffic none can count on its guarantee";
            Diagnostic::warning(code, span, message).help(help)
        } else {
            Diagnostic::error(code, span, message).help("lower a share, or write `overcommit` in the link")
        };
        findings.push(diagnostic.label(guarantee_place(&link.classes[parent as usize]), format!("{of} {whole}")));
    }
}

fn holds_hfsc(link: &Link, class: ClassId) -> bool {
    let held = match class {
        ROOT => Some(&link.spec.scheduler),
        _ => link.spec.classes[class as usize].scheduler.as_ref(),
    };
    held.is_some_and(|scheduler| scheduler.name == "hfsc")
}

/// Where it is written what a class is guaranteed, or what those below it share.
fn guarantee_place(class: &Class) -> Span {
    let words = ["rate", "shape", "bandwidth", "low-latency"];
    let mut places = words.iter().filter_map(|word| class.words.iter().find(|(name, _)| name == word));
    places.next().map_or(class.span, |(_, span)| *span)
}

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

/// Whether the scheduler that serves a class works by the classic estimator.
pub(crate) fn is_classic(link: &Link, class: ClassId) -> bool {
    link.serving(class).is_some_and(|scheduler| scheduler.settings.choice("estimator") == Some("classic"))
}

/// Words of a scheduler that do not go together: what is classic's or exact's alone
/// (docs/reference/cbq.md rule 7: exact is formal, and knows no rounds).
fn schedulers(link: &Link, class: ClassId, findings: &mut Findings) {
    let spec = match (class, &link.spec.classes[class as usize].scheduler) {
        (ROOT, _) => &link.spec.scheduler,
        (_, Some(spec)) => spec,
        _ => return,
    };
    if spec.name != "cbq" {
        return;
    }
    let settings = &spec.settings;
    let classic = settings.choice("estimator") == Some("classic");
    let place = |word: &str| link.classes[class as usize].scheduler_place(word);
    let mut wrong = |word: &str, message: String, help: &str| {
        findings.push(Diagnostic::error("wrong-estimator", place(word), message).help(help));
    };
    if classic {
        if settings.get("excess").is_some() {
            let message = "`excess` is a word of the exact estimator: classic shares by its rounds".to_owned();
            wrong("excess", message, "leave it out, or write `estimator exact`");
        }
        return;
    }
    if let Some(rule @ ("top-level" | "ancestor-only")) = settings.choice("link-sharing") {
        let message = format!("the exact estimator shares formally; `link-sharing {rule}` is classic's");
        wrong("link-sharing", message, "leave it out, or write `estimator classic`");
    }
    for word in ["rounds", "efficient"] {
        if settings.get(word).is_some() {
            let message = format!("`{word}` is a word of the classic estimator");
            wrong(word, message, "leave it out, or write `estimator classic`");
        }
    }
}

fn cbq_class(link: &Link, id: ClassId, (inner, holds): (bool, bool), findings: &mut Findings) {
    let class = &link.classes[id as usize];
    let spec = &link.spec.classes[id as usize];
    let settings = &spec.settings;
    let classic = is_classic(link, id);
    let rate = settings.rate("rate").unwrap_or_default();
    let borrows = settings.flag("borrow");
    let mut error = |code, word: &str, message: String, help: &str| {
        findings.push(Diagnostic::error(code, class.place(word), message).help(help));
    };
    if let Some(ceiling) = settings.rate("ceiling") {
        if classic {
            let message = "the classic estimator knows no ceiling".to_owned();
            error(
                "wrong-estimator",
                "ceiling",
                message,
                "without `borrow` the rate is the ceiling; or write `estimator exact`",
            );
        } else if ceiling < rate {
            let message = format!("the ceiling {ceiling} is below the guarantee {rate}");
            error("ceiling-below-rate", "ceiling", message, "a ceiling is at least the rate");
        } else if !borrows {
            let message =
                format!("a ceiling has no effect without `borrow`: `{}` never has more than its {rate}", class.name);
            error("ceiling-without-borrow", "ceiling", message, "write `borrow`, or leave the ceiling out");
        }
    }
    if !classic {
        for word in ["minburst", "maxdelay", "maxpacketsize"] {
            if settings.get(word).is_some() {
                let message = format!("`{word}` is a word of the classic estimator");
                error("wrong-estimator", word, message, "leave it out, or write `estimator classic`");
            }
        }
    }
    for word in ["packetsize", "maxpacketsize"] {
        if let Some(size) = settings.bytes(word).filter(|size| *size > u64::from(link.spec.mtu)) {
            let message = format!("`{word} {size}` is more than the link's MTU of {}", link.spec.mtu);
            error("out-of-range", word, message, "raise the link's `mtu`");
        }
    }
    let warn = |code, word: &str, message: String, help: &str| {
        Diagnostic::warning(code, class.place(word), message).help(help.to_owned())
    };
    if rate.is_zero() && !borrows && !inner {
        let message = format!("`{}` never sends: it is guaranteed nothing and does not borrow", class.name);
        findings.push(warn("never-sends", "rate", message, "give it a share, or `borrow`"));
    }
    // docs/reference/altq.md 2.2: a packet's time at the class's rate is held in 31 bits of
    // nanoseconds.
    let largest = settings.bytes("maxpacketsize").unwrap_or(u64::from(link.spec.mtu)).max(1);
    let slowest = (largest * 8_000_000_000).div_ceil(i32::MAX as u64);
    if classic && (1..slowest).contains(&rate.as_bit_s()) {
        let message =
            format!("`{}` sends at up to {slowest}bit/s: the classic estimator knows no slower class", class.name);
        findings.push(warn("too-slow", "rate", message, "lower `maxpacketsize`, or write `estimator exact`"));
    }
    if inner && !classic && settings.get("priority").is_some() && !holds {
        let message = format!(
            "the priority of `{}` has no effect: only classes that hold packets are served by priority",
            class.name
        );
        findings.push(warn("no-effect", "priority", message, "give it to the classes below"));
    }
    if inner && !classic && spec.queue.is_some() && !holds {
        let message = format!("the queue of `{}` holds nothing: no rule and no default leads to it", class.name);
        findings.push(warn("no-effect", "queue", message, "give it to the classes below"));
    }
}

/// What `altq check` says beyond what is wrong: the ceiling that classic's timers put on a class
/// (docs/reference/altq.md 2.9). Where only its own timer wakes it, a class sends a burst every two
/// ticks.
pub fn advice(link: &Link) -> Vec<Diagnostic> {
    const TICK_S: f64 = 0.01;
    let mut slow = Vec::new();
    for (id, spec) in link.spec.classes.iter().enumerate().skip(1) {
        let class = id as ClassId;
        if link.scheduler_of(class) != "cbq" || !is_classic(link, class) {
            continue;
        }
        let rate = link.guarantee(class).unwrap_or_default().as_bit_s() as f64;
        let size = spec.settings.bytes("packetsize").unwrap_or(u64::from(link.spec.mtu));
        // docs/reference/altq.md 2.2: what a packet takes longer at the class's rate than at the
        // link's decides the default.
        let wait = size as f64 * 8.0 * (1.0 / rate - 1.0 / link.spec.rate.as_bit_s() as f64);
        let maxburst = spec.settings.int("maxburst").unwrap_or(if wait > 0.01 { 4 } else { 16 });
        let most = (maxburst * size * 8) as f64 / (2.0 * TICK_S);
        if rate > most {
            slow.push((class, maxburst, size, most));
        }
    }
    let Some((class, maxburst, size, most)) = slow.first().copied() else { return Vec::new() };
    let place = link.classes[class as usize].place("rate");
    let others = match slow.len() - 1 {
        0 => String::new(),
        n => format!(", and {n} more"),
    };
    let message = format!(
        "with timers of 100 Hz `{}`{others} may not reach its rate: maxburst {maxburst} x {size} bytes in two ticks is \
         {:.1} Mbit/s",
        link.class_name(class),
        most / 1e6
    );
    let help = "timers of 1000 Hz give ten times as much, and arrivals and transmissions wake the scheduler as well; \
                `estimator exact` has no such ceiling";
    vec![Diagnostic::warning("timer-ceiling", place, message).help(help)]
}
