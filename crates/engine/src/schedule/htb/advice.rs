//! What `altq check` says beside a class: the bursts with which it keeps its rate, and a quantum.
//!
//! A bucket that is full gains nothing. So what a class's rate brings while nobody asks for its
//! packets is lost, beyond the depth of the bucket. Between two ticks of a timer nobody asks, nor
//! while the host is late. With packets of `L` bytes a bucket of `B` lets B / L packets pass,
//! rounded down, and one more, because a packet may go as long as the bucket owes nothing. If the
//! class is served once in a time `T`, that is all it gets in it. A bucket of what the rate brings
//! in `T` loses nothing, whatever the lengths.

use std::collections::HashMap;

use super::words::{self, Defaults, Words};
use crate::schedule::check::View;
use crate::spec::{ClassId, SchedulerSpec, Timer};
use crate::units::{Nanos, Rate, SECOND, time_text};

/// How late a class may be served where timers are exact: `altq run` sees a frame up to so much
/// later (docs/language.md, Regulator).
const LATE: Nanos = 1_000_000;

/// What to say beside each class.
pub fn notes(view: &View<'_>) -> Vec<(ClassId, String)> {
    let quanta = Quanta::of(view);
    view.classes().filter_map(|class| Some((class, note(view, class, &quanta)?))).collect()
}

fn note(view: &View<'_>, class: ClassId, quanta: &Quanta) -> Option<String> {
    let packet = view.largest();
    let (late, tick) = match view.link.timer {
        Timer::Exact => (LATE, 1),
        Timer::Tick(tick) => (tick, tick),
    };
    let words = Words::read(view.settings(class), &Defaults { packet, tick }).ok()?;
    let mut needs = Vec::new();
    let mut least: Option<(u64, Rate)> = None;
    for (word, rate, has) in [("burst", words.rate, words.burst), ("cburst", words.ceil, words.cburst)] {
        let kept = kept(has, packet, late);
        if kept.as_bit_s() < rate {
            let need = Rate::bit_s(rate).bytes_in(late).max(packet);
            needs.push(format!("{word} {need}bytes"));
            // Of the two buckets the one that lets less pass says what the class gets.
            if least.is_none_or(|(_, least)| kept < least) {
                least = Some((has, kept));
            }
        }
    }
    let mut reasons = Vec::new();
    if let Some((has, kept)) = least {
        let late = time_text(late);
        reasons.push(format!("{has} bytes let {kept} pass if it is served {late} late, again and again"));
    }
    if let Some(quantum) = quanta.better(view, class) {
        needs.push(format!("quantum {quantum}"));
        reasons.push("the default quanta are not in proportion to the rates".to_owned());
    }
    (!needs.is_empty()).then(|| format!("{}: {}", needs.join("  "), reasons.join("; ")))
}

/// The rate that a bucket lets pass with largest packets, if its class is served once in a time.
fn kept(burst: u64, packet: u64, late: Nanos) -> Rate {
    let packets = u128::from(burst / packet.max(1)) + 1;
    let bits = packets * u128::from(packet) * 8 * u128::from(SECOND) / u128::from(late.max(1));
    Rate::bit_s(u64::try_from(bits).unwrap_or(u64::MAX))
}

/// The slowest class of each scheduler among those that borrow and have the quantum of r2q, and
/// whether the kernel's bounds change a quantum there. Schedulers are told apart by address.
struct Quanta(HashMap<*const SchedulerSpec, (u64, bool)>);

impl Quanta {
    fn of(view: &View<'_>) -> Quanta {
        let mut slowest = HashMap::new();
        for class in view.classes() {
            let Some((scheduler, words)) = borrower(view, class) else { continue };
            let r2q = words::r2q(&scheduler.settings);
            let bounded = words::unbounded(words.rate, r2q) != u64::from(words.quantum(r2q));
            let of = slowest.entry(std::ptr::from_ref(scheduler)).or_insert((words.rate, false));
            *of = (of.0.min(words.rate), of.1 || bounded);
        }
        Quanta(slowest)
    }

    /// The quantum that shares what is borrowed in proportion to the rates: that of the slowest
    /// class is the largest packet. `None` where the quanta of r2q do so too.
    fn better(&self, view: &View<'_>, class: ClassId) -> Option<u64> {
        let (scheduler, words) = borrower(view, class)?;
        let (slowest, bounded) = *self.0.get(&std::ptr::from_ref(scheduler))?;
        let better = u128::from(view.largest()) * u128::from(words.rate) / u128::from(slowest.max(1));
        bounded.then(|| u64::try_from(better).unwrap_or(u64::MAX).min(i32::MAX as u64))
    }
}

/// The scheduler and the words of a class that takes turns in borrowing by the quantum of r2q.
fn borrower<'v>(view: &View<'v>, class: ClassId) -> Option<(&'v SchedulerSpec, Words)> {
    let scheduler = view.scheduler(class)?;
    let leaf = !view.is_inner(class) || view.holds_scheduler(class);
    let words = Words::read(view.settings(class), &Defaults { packet: view.largest(), tick: 1 }).ok()?;
    (leaf && words.quantum.is_none() && words.rate > 0 && words.ceil > words.rate).then_some((scheduler, words))
}
