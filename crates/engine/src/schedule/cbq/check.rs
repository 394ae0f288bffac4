//! What CBQ has to say to a policy: words of the other estimator, ceilings that hold nothing back,
//! classes that never send, and rates that classic's timers do not reach.

use super::is_classic;
use super::promise::MAXBURST;
use crate::schedule::check::{At, Finding, View};
use crate::spec::ClassId;

/// The checks of all places and classes.
pub fn check(view: &View<'_>, findings: &mut Vec<Finding>) {
    for (holder, scheduler) in view.places() {
        let mut wrong = |word: &'static str, message: String, help: &str| {
            findings.push(Finding::error("wrong-estimator", At::Scheduler(holder, word), message).help(help));
        };
        // Exact is formal, and knows no rounds.
        if is_classic(scheduler) {
            if scheduler.get("excess").is_some() {
                let message = "`excess` is a word of the exact estimator: classic shares by its rounds".to_owned();
                wrong("excess", message, "leave it out, or write `estimator exact`");
            }
            if scheduler.choice("link-sharing") == Some("ancestor-only") {
                findings.push(ancestor_only(holder));
            }
            continue;
        }
        if let Some(rule @ ("top-level" | "ancestor-only")) = scheduler.choice("link-sharing") {
            let message = format!("the exact estimator shares formally; `link-sharing {rule}` is classic's");
            wrong("link-sharing", message, "leave it out, or write `estimator classic`");
        }
        for word in ["rounds", "efficient"] {
            if scheduler.get(word).is_some() {
                let message = format!("`{word}` is a word of the classic estimator");
                wrong(word, message, "leave it out, or write `estimator classic`");
            }
        }
    }
    for class in view.classes() {
        one(view, class, findings);
    }
    timers(view, findings);
}

/// Said at each use: classic is ALTQ's code, and of ALTQ's this rule gives other shares than of
/// ns-2's, which measured what was published of it.
fn ancestor_only(holder: ClassId) -> Finding {
    let message = "`ancestor-only` is ALTQ's, not that of the published figures: the link is hardly ever over its \
                   limit and lends to whoever asks first, so classes of lower priority may get nothing, whatever their \
                   shares";
    Finding::warning("ancestor-only", At::Scheduler(holder, "link-sharing"), message)
        .help("write `link-sharing formal` or `top-level`, or `estimator exact`, which keep shares")
}

fn one(view: &View<'_>, class: ClassId, findings: &mut Vec<Finding>) {
    let (settings, name) = (view.settings(class), view.name(class));
    let classic = view.scheduler(class).is_some_and(|scheduler| is_classic(&scheduler.settings));
    let rate = settings.rate("rate").unwrap_or_default();
    let borrows = settings.flag("borrow");
    let mut error = |code, word: &'static str, message: String, help: &str| {
        findings.push(Finding::error(code, At::Word(class, word), message).help(help));
    };
    if let Some(ceiling) = settings.rate("ceiling") {
        if classic {
            let message = "the classic estimator knows no ceiling".to_owned();
            let help = "without `borrow` the rate is the ceiling; or write `estimator exact`";
            error("wrong-estimator", "ceiling", message, help);
        } else if ceiling < rate {
            let message = format!("the ceiling {ceiling} is below the guarantee {rate}");
            error("ceiling-below-rate", "ceiling", message, "a ceiling is at least the rate");
        } else if !borrows {
            let message = format!("a ceiling has no effect without `borrow`: `{name}` never has more than its {rate}");
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
    let mtu = u64::from(view.link.mtu);
    for word in ["packetsize", "maxpacketsize"] {
        if let Some(size) = settings.bytes(word).filter(|size| *size > mtu) {
            let message = format!("`{word} {size}` is more than the link's MTU of {mtu}");
            error("out-of-range", word, message, "raise the link's `mtu`");
        }
    }
    let mut warn = |code, word: &'static str, message: String, help: &str| {
        findings.push(Finding::warning(code, At::Word(class, word), message).help(help));
    };
    let (inner, holds) = (view.is_inner(class), view.holds_packets(class));
    if rate.is_zero() && !borrows && !inner {
        let message = format!("`{name}` never sends: it is guaranteed nothing and does not borrow");
        warn("never-sends", "rate", message, "give it a share, or `borrow`");
    }
    // docs/reference/altq.md 2.2: a packet's time at the class's rate is held in 31 bits of
    // nanoseconds.
    let largest = settings.bytes("maxpacketsize").unwrap_or(mtu).max(1);
    let slowest = (largest * 8_000_000_000).div_ceil(i32::MAX as u64);
    if classic && (1..slowest).contains(&rate.as_bit_s()) {
        let message = format!("`{name}` sends at up to {slowest}bit/s: the classic estimator knows no slower class");
        warn("too-slow", "rate", message, "lower `maxpacketsize`, or write `estimator exact`");
    }
    if inner && !classic && !holds {
        if settings.get("priority").is_some() {
            let message = format!(
                "the priority of `{name}` has no effect: only classes that hold packets are served by priority"
            );
            warn("no-effect", "priority", message, "give it to the classes below");
        }
        if view.has_queue(class) {
            let message = format!("the queue of `{name}` holds nothing: no rule and no default leads to it");
            warn("no-effect", "queue", message, "give it to the classes below");
        }
    }
}

/// The ceiling that classic's timers put on a class (docs/reference/altq.md 2.9): where only its
/// own timer wakes it, a class sends a burst every two ticks.
fn timers(view: &View<'_>, findings: &mut Vec<Finding>) {
    const TICK_S: f64 = 0.01;
    let mut slow = Vec::new();
    for class in view.classes() {
        if !view.scheduler(class).is_some_and(|scheduler| is_classic(&scheduler.settings)) {
            continue;
        }
        let settings = view.settings(class);
        let rate = view.guarantee(class).as_bit_s() as f64;
        let size = settings.bytes("packetsize").unwrap_or(u64::from(view.link.mtu));
        // docs/reference/altq.md 2.2: what a packet takes longer at the class's rate than at the
        // link's decides the default.
        let wait = size as f64 * 8.0 * (1.0 / rate - 1.0 / view.link.rate.as_bit_s() as f64);
        let maxburst = settings.int("maxburst").unwrap_or(if wait > 0.01 { 4 } else { 16 });
        let most = (maxburst * size * 8) as f64 / (2.0 * TICK_S);
        if rate > most {
            slow.push((class, maxburst, size, most));
        }
    }
    let Some((class, maxburst, size, most)) = slow.first().copied() else { return };
    let others = match slow.len() - 1 {
        0 => String::new(),
        n => format!(", and {n} more"),
    };
    let message = format!(
        "with timers of 100 Hz `{}`{others} may not reach its rate: maxburst {maxburst} x {size} bytes in two ticks is \
         {:.1} Mbit/s",
        view.name(class),
        most / 1e6
    );
    let help = "timers of 1000 Hz give ten times as much, and arrivals and transmissions wake the scheduler as well; \
                `estimator exact` has no such ceiling";
    findings.push(Finding::advice("timer-ceiling", At::Word(class, "rate"), message).help(help));
}

/// What `altq check` says beside an inner class with a ceiling of exact CBQ: the `maxburst` with
/// which it reaches the ceiling (docs/schedulers/cbq.md, "Ceilings of inner classes").
///
/// A ceiling is a clock that runs at its rate and, while the class has packets, is at most
/// `maxburst` packets behind the present. Guarantees go first, so a class waits for a packet of
/// every other leaf wherever the guarantees of many leaves come due at once; what its ceiling would
/// have let pass in that time is lost beyond the burst. So the classes may stand at their ceilings
/// while the link idles, with less than their ceilings each. A burst of a packet for each leaf is
/// about what is lost.
pub fn notes(view: &View<'_>) -> Vec<(ClassId, String)> {
    let leaves = leaves(view);
    view.classes().filter_map(|class| Some((class, note(view, class, &leaves)?))).collect()
}

fn note(view: &View<'_>, class: ClassId, leaves: &[u64]) -> Option<String> {
    let settings = view.settings(class);
    let classic = view.scheduler(class).is_some_and(|scheduler| is_classic(&scheduler.settings));
    let inner = view.is_inner(class) && !view.holds_scheduler(class);
    let ceiling = settings.rate("ceiling").filter(|ceiling| *ceiling < view.link.measure(class))?;
    let packetsize = settings.bytes("packetsize").unwrap_or(u64::from(view.link.mtu)).max(1);
    let has = settings.int("maxburst").unwrap_or(MAXBURST);
    let below = leaves.get(class as usize).copied()?;
    let needs = below.saturating_mul(u64::from(view.link.mtu)).div_ceil(packetsize).min(65535);
    (inner && !classic && has < needs).then(|| {
        format!(
            "maxburst {needs}: a packet for each of the {below} leaves below; with {has} it may stay below its \
             ceiling of {ceiling} although the link idles"
        )
    })
}

/// The number of leaves below each class. A class that holds a scheduler is one, and so are an
/// inner class's own packets.
fn leaves(view: &View<'_>) -> Vec<u64> {
    let mut leaves = vec![0_u64; view.link.classes.len()];
    // Parents stand before their children.
    for class in (1..leaves.len() as ClassId).rev() {
        let inner = view.is_inner(class) && !view.holds_scheduler(class);
        let own = u64::from(!inner || view.holds_packets(class));
        let below = if inner { leaves[class as usize] } else { 0 };
        leaves[class as usize] = own + below;
        if let Some(above) = leaves.get_mut(view.parent(class) as usize) {
            *above += own + below;
        }
    }
    leaves
}
