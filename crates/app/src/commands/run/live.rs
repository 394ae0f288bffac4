//! What a running command knows of its links: shared by the thread that prints, and the one that
//! answers the control socket. The loops of the links never wait for either.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use altq_config::Link;
use altq_control::change::Text;
use altq_control::roster::{Changes, Roster};
use altq_dataplane::kernel::Done;
use altq_dataplane::shaper::Tuning;
use altq_dataplane::stats::Snapshot;
use altq_dataplane::{Error as LinkError, Reach};
use altq_engine::spec::SpecError;
use altq_engine::units::Nanos;

use super::course::Course;
use super::keep::Keep;
use super::shaped::Shaped;

/// A link, and its latest snapshot.
pub type Shown = (Arc<Shaped>, Arc<Snapshot>);

/// The links that run.
pub struct Live {
    state: Mutex<State>,
    reach: Reach,
    /// How the loops were started.
    pub tuning: Tuning,
    /// When they were.
    pub since: Instant,
    /// Who keeps which policy runs.
    pub keep: Keep,
    /// The only link of the policy that runs, if `--link` has chosen one.
    pub only: Option<String>,
}

/// What is known of the policy when the links begin to run.
pub struct Known {
    /// The policy.
    pub course: Course,
    /// Who keeps which one runs.
    pub keep: Keep,
    /// The only link that runs, if `--link` has chosen one.
    pub only: Option<String>,
}

/// What may change.
pub struct State {
    /// The links as they are now, with the classes of subscribers and reservations.
    pub roster: Roster,
    /// The policy that runs.
    pub course: Course,
    /// Before this time, by the loops' clock, no change is taken back again.
    pub try_again: Option<Nanos>,
    links: Vec<Entry>,
}

struct Entry {
    name: String,
    /// As it was at the start, when room was made for it.
    started: Arc<Link>,
    /// As of the latest look at the link.
    shaped: Arc<Shaped>,
    latest: Option<Arc<Snapshot>>,
}

impl Live {
    /// These links run, and `reach` reaches their loops.
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
        let mut state = State { roster, course, try_again: None, links: entries };
        state.course.compare(&state.roster);
        Ok(Live { state: Mutex::new(state), reach, tuning, since: Instant::now(), keep, only })
    }

    /// The state, for this thread alone. What panicked with it has left it whole.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands changes to the loops, which make them between two packets.
    pub fn make(&self, changes: Changes) {
        for (link, changes) in changes {
            // A loop that has ended is about to end all others, which is said then.
            self.reach.change(&link, changes);
        }
    }

    /// Sets a link that the kernel executes up in place of the one of its name.
    ///
    /// # Errors
    /// Those of the kernel; what stood before stays.
    pub fn replace(&self, link: &Link) -> Result<Done, LinkError> {
        self.reach.replace(link)
    }

    /// What differs between a link that the kernel executes and what the kernel shows, a sentence
    /// each; nothing for other links.
    pub fn drift(&self, link: &str) -> Vec<String> {
        self.reach.drift(link)
    }

    /// Reaches the loops.
    #[cfg(feature = "experiments")]
    pub fn reach(&self) -> &Reach {
        &self.reach
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
            // What is promised is worked out again when the link has changed, and is asked for.
            if let Some(link) = self.roster.link(&entry.name)
                && !Arc::ptr_eq(link, &entry.shaped.link)
            {
                entry.shaped = Arc::new(Shaped::new(link.clone()));
            }
            shown.push((entry.shaped.clone(), snapshot));
        }
        Some(shown)
    }

    /// The names of the links, in the policy's order.
    pub fn names(&self) -> Vec<&str> {
        self.links.iter().map(|entry| entry.name.as_str()).collect()
    }

    /// A link as it was at the start.
    pub fn started(&self, name: &str) -> Option<Arc<Link>> {
        self.links.iter().find(|entry| entry.name == name).map(|entry| entry.started.clone())
    }

    /// How the rate of a link differs from that of the policy, in a sentence.
    pub fn rate_drift(&self, name: &str) -> Option<String> {
        let (runs, written) = (self.roster.link(name)?.spec.rate, self.roster.written(name)?.spec.rate);
        (runs != written).then(|| format!("its rate is {runs}, and the policy says {written}"))
    }

    /// Another policy runs.
    pub fn follow(&mut self, text: Text) {
        self.course.follow(text, &self.roster);
    }
}
