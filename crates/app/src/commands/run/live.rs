//! What a running command knows of its links: shared by the thread that prints, and the one that
//! answers the control socket. The loops of the links never wait for either.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use altq_config::Link;
use altq_control::roster::reserved::Done as Reserved;
use altq_control::roster::{Changes, Roster};
use altq_dataplane::kernel::Done;
use altq_dataplane::shaper::Tuning;
use altq_dataplane::stats::Snapshot;
use altq_dataplane::{Error as LinkError, Reach};
use altq_engine::spec::SpecError;

use super::monitors::Monitors;
use super::reservations;
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
    /// Whether somebody watches what the classes do, and what is known of that.
    pub watches: bool,
    pub monitors: Monitors,
}

/// What may change.
pub struct State {
    /// The links as they are now, with the classes of subscribers and reservations.
    pub roster: Roster,
    links: Vec<Entry>,
}

struct Entry {
    name: String,
    /// As of the latest look at the link.
    shaped: Arc<Shaped>,
    latest: Option<Arc<Snapshot>>,
}

impl Live {
    /// These links run, and `reach` reaches their loops.
    ///
    /// # Errors
    /// That of a link that the engine refuses.
    pub fn new(links: &[&Link], reach: Reach, tuning: Tuning) -> Result<Live, SpecError> {
        let links: Vec<Arc<Link>> = links.iter().map(|link| Arc::new((*link).clone())).collect();
        let entry = |link: &Arc<Link>| Entry {
            name: link.name.clone(),
            shaped: Arc::new(Shaped::new(link.clone())),
            latest: None,
        };
        let entries = links.iter().map(entry).collect();
        let state = State { roster: Roster::new(links, tuning.room)?, links: entries };
        let (since, monitors) = (Instant::now(), Monitors::default());
        Ok(Live { state: Mutex::new(state), reach, tuning, since, watches: tuning.flows > 0, monitors })
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

    /// Other links of the same names follow these; those that are not named stay. There are no
    /// subscribers. What is returned is to be done behind the changes between the two policies.
    ///
    /// # Errors
    /// That of a link that the engine refuses.
    pub fn follow(&mut self, links: &[&Link], room: usize) -> Result<Reserved<()>, SpecError> {
        let follower = |entry: &Entry| match links.iter().find(|link| link.name == entry.name) {
            Some(link) => Some(Arc::new((*link).clone())),
            None => self.roster.written(&entry.name),
        };
        let links: Vec<Arc<Link>> = self.links.iter().filter_map(follower).collect();
        self.roster.follow(reservations::time(), links, room)
    }
}
