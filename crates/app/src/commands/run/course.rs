//! The running policy as text, how it differs from its file, and the change that waits to be
//! confirmed.

use std::collections::{BTreeMap, HashSet};

use altq_config::{Link, differences};
use altq_control::change::{Guard, Text, Watched};
use altq_control::request::change::hash;
use altq_control::roster::Roster;
use altq_dataplane::stats::Snapshot;
use altq_engine::sketch::Sketch;
use altq_engine::units::{Nanos, time_text};

use super::drift::{OfFile, Print};
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
    /// The prints of the policy that runs, and of the file.
    prints: (Print, Option<Print>),
    /// Why another policy than that of the file has run since the start.
    instead: Option<String>,
    waits: Option<Waits>,
    /// By link, how the policy differs from the file. `None`: nobody has asked yet since one of
    /// them changed. Reading a long file again takes longer than a change may.
    drift: Option<BTreeMap<String, Vec<String>>>,
    /// Hashes of the messages of the policy's warnings. `None`: it was not edited yet.
    warned: Option<HashSet<u64>>,
}

/// A change that waits to be confirmed.
struct Waits {
    /// Its deadline, since the boot.
    until: Nanos,
    guards: Vec<Looked>,
    /// When the change was made, by the loops' clock.
    since: Nanos,
}

/// A guard, and the waiting times of packets of its class since it was last checked.
struct Looked {
    watched: Watched,
    waited: Sketch,
}

fn print(text: &Text) -> Print {
    Print::of(text.text.as_bytes())
}

impl Waits {
    fn new(until: Nanos, guards: Vec<Guard>, since: Nanos) -> Waits {
        let looked = |guard| Looked { watched: Watched { guard, intervals: 0, checks: 0 }, waited: Sketch::default() };
        let guards = guards.into_iter().map(looked).collect();
        Waits { until, guards, since }
    }
}

impl Course {
    /// The policy with which altq begins.
    pub fn new(told: Told, now: Nanos) -> Course {
        let Begun { path, file, instead, until_ns, guards } = told.begun;
        let waits = until_ns.map(|until| Waits::new(until, guards, now));
        let prints = (print(&told.text), file.as_ref().map(print));
        Course { text: told.text, path, file, prints, instead, waits, drift: None, warned: None }
    }

    /// Another policy runs now.
    pub fn follow(&mut self, text: Text) {
        (self.text, self.instead) = (text, None);
        self.prints.0 = print(&self.text);
        (self.drift, self.warned) = (None, None);
    }

    /// The file was read, with this text. The reason why another policy runs is no longer reported.
    pub fn read(&mut self, text: Text) {
        self.prints.1 = Some(print(&text));
        (self.file, self.instead, self.drift) = (Some(text), None, None);
    }

    /// The file has the text that runs.
    pub fn saved(&mut self) {
        self.text.name.clone_from(&self.path);
        self.read(self.text.clone());
    }

    /// True if the file has the text that runs, and that is not known yet.
    pub fn is_saved(&self, file: &OfFile) -> bool {
        file.path == self.path && file.print == self.prints.0 && self.prints.1 != Some(file.print)
    }

    /// True if a file has the text that runs, or the one that was read last.
    pub fn knows(&self, file: &OfFile) -> bool {
        file.print == self.prints.0 || file.path == self.path && self.prints.1 == Some(file.print)
    }

    /// The hash of the file's text when it was last read.
    pub fn file_hash(&self) -> Option<String> {
        self.file.as_ref().map(|file| hash(file.text.as_bytes()))
    }

    /// A change waits to be confirmed until then, in ns since the boot.
    pub fn wait(&mut self, until: Nanos, guards: Vec<Guard>, now: Nanos) {
        self.waits = Some(Waits::new(until, guards, now));
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
        waits.guards.iter_mut().find_map(|Looked { watched, waited }| {
            let guard = &watched.guard;
            let of_link = guard.link.as_ref().is_none_or(|name| *name == link.name);
            let class = link.class(&guard.class).filter(|_| of_link)?;
            watched.intervals += 1;
            waited.merge_packed(&snapshot.classes.get(class as usize)?.sojourn);
            if waited.count() < ENOUGH {
                return None;
            }
            watched.checks += 1;
            let p99 = waited.packed().percentile(99.0);
            waited.clear();
            (p99 >= guard.p99_ns).then(|| {
                let (class, link, most) = (&guard.class, &link.name, time_text(guard.p99_ns));
                format!("class {class} of link {link} has a p99 of {}, which was to be below {most}", time_text(p99))
            })
        })
    }

    /// The guards of the change that waits.
    pub fn guards(&self) -> Vec<Watched> {
        self.waits.iter().flat_map(|waits| &waits.guards).map(|looked| looked.watched.clone()).collect()
    }

    /// How the policy of a link differs from the file, one sentence each.
    pub fn drift(&mut self, link: &str, roster: &Roster) -> Vec<String> {
        let Course { text, file, drift, instead, .. } = self;
        let drift = drift.get_or_insert_with(|| {
            let differs = |file: &&Text| file.text != text.text;
            file.as_ref().filter(differs).map(|file| compared(file, roster)).unwrap_or_default()
        });
        instead.iter().chain(drift.get(link).into_iter().flatten()).cloned().collect()
    }

    /// Hashes of the messages of the running policy's warnings, if they are known.
    pub fn warned(&self) -> Option<HashSet<u64>> {
        self.warned.clone()
    }

    /// Notes the warnings of this text, if it still runs.
    pub fn warns(&mut self, text: &Text, warned: HashSet<u64>) {
        if self.text == *text {
            self.warned = Some(warned);
        }
    }
}

/// By link, how what runs differs from a file.
fn compared(file: &Text, roster: &Roster) -> BTreeMap<String, Vec<String>> {
    let Ok(policy) = policy_of(file) else { return BTreeMap::new() };
    let of_link = |link: &Link| {
        let runs = roster.written(&link.name)?;
        let found = differences(link, &runs);
        let more = found.len().saturating_sub(SAID);
        let mut said: Vec<String> =
            found.into_iter().take(SAID).map(|what| format!("{what} (the file says otherwise)")).collect();
        if more > 0 {
            said.push(format!("and {more} more things (the file says otherwise)"));
        }
        Some((link.name.clone(), said))
    };
    policy.links.iter().filter_map(of_link).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use altq_dataplane::edge::EdgeCounters;
    use altq_dataplane::stats::{ClassStat, Work};
    use altq_engine::units::SECOND;

    use super::*;

    const POLICY: &str = "link wan { rate 10Mbit/s  scheduler cbq
        class calls { share 20% }  class rest { share 40%  default } }";

    fn text(text: &str) -> Text {
        Text { name: "/p.altq".to_owned(), language: "native".to_owned(), text: text.to_owned() }
    }

    /// A policy that runs, whose file is the same one.
    fn begun() -> (Course, Roster) {
        let links = policy_of(&text(POLICY)).unwrap_or_else(|failed| panic!("{failed}")).links;
        let roster = Roster::new(links.into_iter().map(Arc::new), 0).unwrap();
        let begun = Begun { path: "/p.altq".to_owned(), file: Some(text(POLICY)), ..Begun::default() };
        (Course::new(Told { number: 0, text: text(POLICY), begun }, 0), roster)
    }

    /// The counters of an interval in which `calls` sent so many packets, each of which had waited
    /// for 1 ms.
    fn interval(since: Nanos, packets: usize) -> Snapshot {
        let mut waited = Sketch::default();
        (0..packets).for_each(|_| waited.add(SECOND / 1000));
        let calls = ClassStat { sojourn: waited.packed(), ..ClassStat::default() };
        Snapshot {
            link: "wan".to_owned(),
            at: since + SECOND,
            began: 0,
            since,
            last: false,
            classes: vec![ClassStat::default(), calls, ClassStat::default()],
            unclassified: (0, 0),
            edge: EdgeCounters::default(),
            work: Work::default(),
            late: Default::default(),
        }
    }

    /// An interval that began before the change tells nothing, and few packets are no percentile.
    #[test]
    fn what_guards_have_looked_at_is_counted() {
        let (mut course, roster) = begun();
        let guard = Guard { link: None, class: "calls".to_owned(), p99_ns: SECOND / 50 };
        course.wait(boot_ns() + 60 * SECOND, vec![guard.clone()], 10 * SECOND);
        let mut counts = |since: Nanos, packets: usize| {
            assert_eq!(course.broken(&interval(since, packets), &roster), None);
            let guards = course.guards();
            assert_eq!((guards.len(), &guards[0].guard), (1, &guard));
            (guards[0].intervals, guards[0].checks)
        };
        assert_eq!(counts(9 * SECOND, 100), (0, 0));
        assert_eq!(counts(10 * SECOND, 9), (1, 0));
        assert_eq!(counts(11 * SECOND, 1), (2, 1));
        assert_eq!(counts(12 * SECOND, 0), (3, 1));
        course.settled();
        assert!(course.guards().is_empty());
    }

    /// The file is what altq has read, and what runs once it was saved or applied.
    #[test]
    fn a_file_that_has_what_runs_is_no_difference() {
        let (mut course, _) = begun();
        let edited = POLICY.replace("20%", "25%");
        let file = |text: &str| OfFile { print: Print::of(text.as_bytes()), path: "/p.altq".to_owned() };
        let read = course.file_hash();
        course.follow(text(&edited));
        assert!(course.knows(&file(POLICY)), "the policy differs, the file is as it was read");
        assert!(course.is_saved(&file(&edited)) && !course.is_saved(&file(POLICY)));
        let elsewhere = OfFile { path: "/q.altq".to_owned(), ..file(&edited) };
        assert!(!course.is_saved(&elsewhere));
        course.saved();
        assert!(course.knows(&file(&edited)) && !course.knows(&file(POLICY)) && !course.is_saved(&file(&edited)));
        assert!(course.file_hash() != read && course.file_hash() == Some(hash(edited.as_bytes())));
        // The next edit differs from what was saved.
        course.follow(text(POLICY));
        assert!(course.knows(&file(&edited)) && !course.knows(&file("")));
    }
}
