//! Makes what broke a law small, and writes it as input of `altq check` and `altq replay`.

use std::fmt::Write;

use super::laws::Laws;
use super::run::{Event, run};
use super::{Change, Nanos, Violation};

/// The same law broken by fewer packets: pieces are left out as long as something is broken, halves
/// first (Zeller and Hildebrandt 2002).
pub fn minimise(mut violation: Violation) -> Violation {
    let Some(laws) = Laws::read(violation.policy.clone()) else { return violation };
    let kind = kind(&violation.what);
    let breaks = |events: &[Event], changes: &[(Nanos, Change)]| {
        let outcome = run(&laws, events, changes, 0);
        let what = outcome.broken.clone().or_else(|| {
            let without = run(&laws, events, &[], 0);
            let same = changes.is_empty() || without.left == outcome.left;
            (!same).then(|| "changes that change nothing change a departure".to_owned())
        })?;
        (self::kind(&what) == kind).then_some(what)
    };
    if violation.what != laws.broken.clone().unwrap_or_default() {
        fewer(&mut violation.events, |events| breaks(events, &violation.changes).is_some());
        let events = violation.events.clone();
        fewer(&mut violation.changes, |changes| breaks(&events, changes).is_some());
        // Times begin at the first packet if that is as good.
        if let Some(what) = breaks(&violation.events, &violation.changes) {
            violation.what = what;
        }
    } else {
        (violation.events, violation.changes) = (Vec::new(), Vec::new());
    }
    violation.path = path(&laws, &violation);
    violation
}

/// The schedulers above the class that a violation is about: the one that is named first, or that
/// of the change.
fn path(laws: &Laws, violation: &Violation) -> Vec<&'static str> {
    let named = violation.what.split([' ', ':']).find_map(|word| word.strip_prefix('c')?.parse::<u32>().ok());
    let changed = violation.changes.iter().find_map(|(_, change)| match change {
        Change::SetClass { class, .. } | Change::SetScheduler { class, .. } => Some(*class),
        _ => None,
    });
    match named.or(changed).filter(|class| (*class as usize) < laws.classes.len()) {
        Some(class) => laws.path(class),
        None => violation.path.clone(),
    }
}

/// Which law a message is about: its words without numbers.
fn kind(what: &str) -> String {
    what.split_whitespace().filter(|word| !word.contains(|c: char| c.is_ascii_digit())).take(4).collect()
}

fn fewer<T: Clone>(list: &mut Vec<T>, breaks: impl Fn(&[T]) -> bool) {
    let mut piece = list.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        while at < list.len() {
            let mut without = list.clone();
            without.drain(at..(at + piece).min(list.len()));
            if breaks(&without) {
                *list = without;
            } else {
                at += piece;
            }
        }
        if piece == 1 {
            return;
        }
        piece = piece.div_ceil(2);
    }
}

impl Violation {
    /// The policy, with what is wrong and the changes as comments.
    pub fn policy_text(&self) -> String {
        let mut text = format!("# {}\n", self.what);
        for (at, change) in &self.changes {
            let _ = writeln!(text, "# at {at} ns: {change:?}");
        }
        text + &self.policy
    }

    /// The trace, as `altq replay --arrivals` takes it.
    pub fn trace(&self) -> String {
        let mut text = "time_ns,class,bytes,id\n".to_owned();
        for (id, event) in self.events.iter().enumerate() {
            let class = if event.class == 0 { "l".to_owned() } else { format!("c{}", event.class) };
            let _ = writeln!(text, "{},{class},{},{id}", event.at, event.bytes);
        }
        text
    }
}
