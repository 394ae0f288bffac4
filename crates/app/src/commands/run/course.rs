//! The running policy as text, how it differs from its file, and the change that waits to be
//! confirmed.

use std::collections::BTreeMap;

use altq_config::differences;
use altq_control::change::{Guard, Text};
use altq_control::roster::Roster;
use altq_dataplane::stats::Snapshot;
use altq_engine::sketch::Sketch;
use altq_engine::units::{Nanos, time_text};

use super::heart::{Begun, Told};
use super::keep::{boot_ns, policy_of};

/// The most differences from the file that are listed.
const SAID: usize = 5;
/// A guard is checked each time the class has sent so many packets.
const ENOUGH: u64 = 10;

/// The policy that runs.
pub struct Course {
    /// Its text.
    pub text: Text,
    /// The absolute path of the file with which altq was started.
    pub path: String,
    /// The file's text when it was last read; `None`: it had errors.
    file: Option<Text>,
    /// Why another policy than that of the file has run since the start.
    instead: Option<String>,
    waits: Option<Waits>,
    /// By link, how the policy differs from the file.
    drift: BTreeMap<String, Vec<String>>,
}

/// A change that waits to be confirmed.
struct Waits {
    /// Its deadline, since the boot.
    until: Nanos,
    guards: Vec<Watched>,
    /// When the change was made, by the loops' clock.
    since: Nanos,
}

/// A guard, and the waiting times of packets of its class since it was last checked.
struct Watched {
    guard: Guard,
    waited: Sketch,
}

impl Waits {
    fn new(wait: Nanos, guards: Vec<Guard>, since: Nanos) -> Waits {
        let guards = guards.into_iter().map(|guard| Watched { guard, waited: Sketch::default() }).collect();
        Waits { until: boot_ns().saturating_add(wait), guards, since }
    }
}

impl Course {
    /// The policy with which altq begins.
    pub fn new(told: Told, now: Nanos) -> Course {
        let Begun { path, file, instead, waits_ns, guards } = told.begun;
        let waits = waits_ns.map(|left| Waits::new(left, guards, now));
        Course { text: told.text, path, file, instead, waits, drift: BTreeMap::new() }
    }

    /// Another policy runs now.
    pub fn follow(&mut self, text: Text, roster: &Roster) {
        (self.text, self.instead) = (text, None);
        self.compare(roster);
    }

    /// The file was read, with this text. The reason why another policy runs is no longer reported.
    pub fn read(&mut self, text: Text) {
        (self.file, self.instead) = (Some(text), None);
    }

    /// A change waits to be confirmed.
    pub fn wait(&mut self, wait: Nanos, guards: Vec<Guard>, now: Nanos) {
        self.waits = Some(Waits::new(wait, guards, now));
    }

    /// No change waits any more.
    pub fn settled(&mut self) {
        (self.waits, self.instead) = (None, None);
    }

    /// How long a change still waits, in nanoseconds: 0 if its time is over.
    pub fn left(&self) -> Option<Nanos> {
        self.waits.as_ref().map(|waits| waits.until.saturating_sub(boot_ns()))
    }

    /// The guard that a link's last interval has broken, as a sentence.
    pub fn broken(&mut self, snapshot: &Snapshot, roster: &Roster) -> Option<String> {
        let waits = self.waits.as_mut().filter(|waits| snapshot.since >= waits.since)?;
        let link = roster.link(&snapshot.link)?;
        waits.guards.iter_mut().find_map(|Watched { guard, waited }| {
            let of_link = guard.link.as_ref().is_none_or(|name| *name == link.name);
            let class = link.class(&guard.class).filter(|_| of_link)?;
            waited.merge_packed(&snapshot.classes.get(class as usize)?.sojourn);
            if waited.count() < ENOUGH {
                return None;
            }
            let p99 = waited.packed().percentile(99.0);
            waited.clear();
            (p99 >= guard.p99_ns).then(|| {
                let (class, link, most) = (&guard.class, &link.name, time_text(guard.p99_ns));
                format!("class {class} of link {link} has a p99 of {}, which was to be below {most}", time_text(p99))
            })
        })
    }

    /// How the policy of a link differs from the file, one sentence each.
    pub fn drift(&self, link: &str) -> impl Iterator<Item = &String> {
        self.instead.iter().chain(self.drift.get(link).into_iter().flatten())
    }

    /// Computes how the policy differs from the file.
    pub fn compare(&mut self, roster: &Roster) {
        self.drift.clear();
        let Some(file) = self.file.as_ref().filter(|file| file.text != self.text.text) else { return };
        let Ok(policy) = policy_of(file) else { return };
        for link in &policy.links {
            let Some(runs) = roster.written(&link.name) else { continue };
            let found = differences(link, &runs);
            let more = found.len().saturating_sub(SAID);
            let mut said: Vec<String> =
                found.into_iter().take(SAID).map(|what| format!("{what} (the file says otherwise)")).collect();
            if more > 0 {
                said.push(format!("and {more} more things (the file says otherwise)"));
            }
            if !said.is_empty() {
                self.drift.insert(link.name.clone(), said);
            }
        }
    }
}
