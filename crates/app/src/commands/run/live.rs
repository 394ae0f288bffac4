//! The running links, shared by the thread that prints and the one that answers the control socket.
//! The loops of the links never wait for either.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use altq_config::{Link, Policy};
use altq_control::change::Text;
use altq_control::document::BYPASS;
use altq_control::request::Place;
use altq_control::roster::{Changes, Roster};
use altq_control::stat::Stat;
use altq_dataplane::kernel::Done;
use altq_dataplane::shaper::Tuning;
use altq_dataplane::stats::Snapshot;
use altq_dataplane::tap::{Tapping, Wanted};
use altq_dataplane::{Error as LinkError, Fail, Reach};
use altq_engine::spec::SpecError;
use altq_engine::units::Nanos;

use super::course::Course;
use super::drift::{self, Files, Found, Latest, Unshaped, Watch};
use super::keep::Keep;
use super::monitors::Monitors;
use super::shaped::Shaped;

/// A link, and its latest snapshot.
pub type Shown = (Arc<Shaped>, Arc<Snapshot>);

/// The links that run.
pub struct Live {
    state: Mutex<State>,
    reach: Reach,
    /// How the loops were started.
    pub tuning: Tuning,
    /// When the loops were started.
    pub since: Instant,
    /// What differs from the policy, as found by the thread or the supervisor that checks.
    seen: Arc<Mutex<Latest>>,
    /// The thread that checks; `None`: a supervisor checks, or nobody.
    watch: OnceLock<Watch>,
    /// Where it is kept which policy runs.
    pub keep: Keep,
    /// The only link that runs, if `--link` has chosen one.
    pub only: Option<String>,
    /// Whether what the classes do is watched.
    pub watches: bool,
    pub monitors: Monitors,
}

/// What is known about the policy when the links begin to run.
pub struct Known {
    /// The policy.
    pub course: Course,
    /// Where it is kept which policy runs.
    pub keep: Keep,
    /// The only link that runs, if `--link` has chosen one.
    pub only: Option<String>,
}

/// The state that changes while the links run.
pub struct State {
    /// The links as they are now, with the classes of subscribers and reservations.
    pub roster: Roster,
    /// The policy that runs.
    pub course: Course,
    /// Before this time, by the loops' clock, taking a change back is not tried again.
    pub try_again: Option<Nanos>,
    links: Vec<Entry>,
}

struct Entry {
    name: String,
    /// The link at the start, for which room was made.
    started: Arc<Link>,
    /// What is shown of the link, computed when it was last asked for.
    shaped: Arc<Shaped>,
    latest: Option<Arc<Snapshot>>,
}

impl Live {
    /// The state of these links. `reach` gives access to their loops.
    ///
    /// # Errors
    /// That of a link that the engine refuses.
    pub fn new(links: &[&Link], reach: Reach, tuning: Tuning, known: Known) -> Result<Live, SpecError> {
        let Known { course, keep, only } = known;
        let links: Vec<Arc<Link>> = links.iter().map(|link| Arc::new((*link).clone())).collect();
        let entry = |link: &Arc<Link>| Entry {
            name: link.name.clone(),
            started: link.clone(),
            shaped: Arc::new(Shaped::new(link.clone())),
            latest: None,
        };
        let entries = links.iter().map(entry).collect();
        let roster = Roster::new(links, tuning.room)?;
        let state = State { roster, course, try_again: None, links: entries };
        let (since, seen, watch) = (Instant::now(), Arc::default(), OnceLock::new());
        let (watches, monitors) = (tuning.flows > 0, Monitors::default());
        Ok(Live { state: Mutex::new(state), reach, tuning, since, seen, watch, keep, only, watches, monitors })
    }

    /// Starts a thread that checks what differs from the policy. `fail`: what rules do while nobody
    /// listens.
    ///
    /// # Errors
    /// That of starting it.
    pub fn watch(&self, policy: &Policy, links: &[&Link], fail: Fail) -> io::Result<()> {
        if self.watch.get().is_none() {
            let seen = self.seen.clone();
            let tell = move |found| see(&seen, found);
            let watch = Watch::start(fail, tell)?;
            watch.shapes(&drift::files(policy), links.iter().copied());
            let _ = self.watch.set(watch);
        }
        Ok(())
    }

    /// Nothing is checked any more, and no rules are set again.
    pub fn rest(&self) {
        if let Some(watch) = self.watch.get() {
            watch.rests();
        }
    }

    /// From now on the links follow a policy of these files.
    pub fn asks(&self, files: &Files, links: &[Link]) {
        if let Some(watch) = self.watch.get() {
            watch.asks(files, links);
        }
    }

    /// Takes the differences that a supervisor has found.
    pub fn see(&self, found: Found) {
        see(&self.seen, found);
    }

    /// The differences that were found for a link of this policy.
    pub fn seen(&self, link: &str, course: &Course) -> Vec<String> {
        self.latest().of(link, |file| course.knows(file))
    }

    /// Takes over that the file has the text that runs, if that was found.
    pub fn learn(&self, state: &mut State) {
        if self.latest().file().is_some_and(|file| state.course.is_saved(file)) {
            state.course.saved();
        }
    }

    /// The file was read or written, so what was found of it before no longer holds.
    pub fn forget_file(&self) {
        self.latest().forget_file();
    }

    fn latest(&self) -> MutexGuard<'_, Latest> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when packets of a link pass unshaped although its loop runs, and why; `None` if they
    /// do not.
    pub fn unshaped(&self, link: &str) -> Option<Unshaped> {
        self.latest().unshaped(link)
    }

    /// Writes into a document which links are not shaped.
    pub fn mark<C>(&self, stat: &mut Stat<C>) {
        for link in stat.links.iter_mut().filter(|link| self.unshaped(&link.name).is_some()) {
            link.state = BYPASS.into();
        }
    }

    /// Locks the state. If a thread panicked while it had the lock, the state is still consistent.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands changes to the loops, which make them between two packets.
    pub fn make(&self, changes: Changes) {
        for (link, changes) in changes {
            // If the loop has ended, all others end soon, which is reported then.
            self.reach.change(&link, changes);
        }
    }

    /// Sets up a link that the kernel executes in place of the one with the same name.
    ///
    /// # Errors
    /// Those of the kernel. Then the old qdiscs stay.
    pub fn replace(&self, link: &Link) -> Result<Done, LinkError> {
        self.reach.replace(link)
    }

    /// What differs between a link that the kernel executes and what the kernel shows, one sentence
    /// each; nothing for other links.
    pub fn drift(&self, link: &str) -> Vec<String> {
        self.reach.drift(link)
    }

    /// Taps a link into a file; `None` if it has no loop.
    ///
    /// # Errors
    /// There can be no thread for it.
    pub fn tap(&self, link: &str, wanted: Wanted, file: File) -> Result<Option<Tapping>, LinkError> {
        self.reach.tap(link, wanted, file)
    }

    /// Access to the loops.
    pub fn reach(&self) -> &Reach {
        &self.reach
    }
}

/// Takes what was found, and prints what is new.
fn see(seen: &Mutex<Latest>, found: Found) {
    let said = seen.lock().unwrap_or_else(PoisonError::into_inner).take(found);
    for line in said {
        eprintln!("altq run: {line}");
    }
}

impl State {
    /// Takes a snapshot of a link.
    pub fn take(&mut self, snapshot: Snapshot) {
        if let Some(entry) = self.links.iter_mut().find(|entry| entry.name == snapshot.link) {
            entry.latest = Some(Arc::new(snapshot));
        }
    }

    /// All links with their latest snapshots; `None` until each has one.
    pub fn shown(&mut self) -> Option<Vec<Shown>> {
        let mut shown = Vec::with_capacity(self.links.len());
        for entry in &mut self.links {
            let snapshot = entry.latest.clone()?;
            // Promises are computed again only if the link has changed.
            if let Some(link) = self.roster.link(&entry.name)
                && !Arc::ptr_eq(link, &entry.shaped.link)
            {
                entry.shaped = Arc::new(Shaped::new(link.clone()));
            }
            shown.push((entry.shaped.clone(), snapshot));
        }
        Some(shown)
    }

    /// What clients have set in a link in addition to the policy, one sentence each.
    pub fn set_beside(&self, name: &str) -> Vec<String> {
        let mut lines = Vec::new();
        if let (Some(runs), Some(written)) = (self.roster.link(name), self.roster.written(name))
            && runs.spec.rate != written.spec.rate
        {
            let (runs, written) = (runs.spec.rate, written.spec.rate);
            lines.push(format!("its rate was set to {runs} while it runs; the policy says {written}"));
        }
        let within = |place: &Place| place.link == name;
        match self.roster.subscribers().filter(|one| one.classes.iter().any(within)).count() {
            0 => {}
            1 => lines.push("a subscriber has a class that the policy does not have".to_owned()),
            count => lines.push(format!("{count} subscribers have classes that the policy does not have")),
        }
        lines
    }

    /// By link, how the policy differs from the file, one sentence each.
    pub fn drift(&mut self) -> BTreeMap<String, Vec<String>> {
        let State { roster, course, links, .. } = self;
        links.iter().map(|entry| (entry.name.clone(), course.drift(&entry.name, roster))).collect()
    }

    /// The names of the links, in the policy's order.
    pub fn names(&self) -> Vec<&str> {
        self.links.iter().map(|entry| entry.name.as_str()).collect()
    }

    /// A link as it was at the start.
    pub fn started(&self, name: &str) -> Option<Arc<Link>> {
        self.links.iter().find(|entry| entry.name == name).map(|entry| entry.started.clone())
    }

    /// Another policy runs now.
    pub fn follow(&mut self, text: Text) {
        self.course.follow(text);
    }
}
