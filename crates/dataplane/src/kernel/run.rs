//! A link that the kernel executes, with a process: it is set up at the start, counted at
//! intervals, set up again where somebody has taken it away, and removed at the end.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use altq_config::Link;
use altq_engine::account::Counters;
use altq_engine::units::{Nanos, SECOND};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::totals::{self, Totals};
use super::{Done, counted, find, refuse_detached, set_up, take_away, take_away_from, take_away_renamed, vanished};
use crate::edge::EdgeCounters;
use crate::error::Error;
use crate::lock::Lock;
use crate::nfqueue::steer;
use crate::running::Starting;
use crate::shaper::Tuning;
use crate::stats::{ClassStat, Report, Snapshot, Work};
use crate::stop::Stop;
use crate::sys::wait::now;

/// How often to look whether the link still stands.
const LOOK: Nanos = SECOND / 2;

/// A link on an interface, which is removed when this is dropped.
struct Standing {
    name: String,
    ingress: bool,
    /// The interface's index when it was last seen. It stays when the interface is renamed.
    index: Option<u32>,
    /// True if it was removed already, or must stay.
    gone: bool,
}

impl Standing {
    fn take_away(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.gone, true) {
            return Ok(());
        }
        match take_away(&self.name, self.ingress) {
            // The interface has gone, and its qdiscs with it; or it has another name now.
            Err(Error::NoInterface { .. }) => self.index.map_or(Ok(()), take_away_renamed),
            // Somebody has put a qdisc of theirs in the place of altq's.
            Err(Error::Foreign(_)) if !self.ingress => Ok(()),
            done => done.map(drop),
        }
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if !self.gone {
            // Another link could not be started, and that error is shown.
            let _ = self.take_away();
        }
    }
}

/// Sets up a link, and adds the loop that counts and at the end removes it, or leaves it.
pub(crate) fn add(
    starting: &mut Starting,
    name: &str,
    ingress: bool,
    link: &Link,
    tuning: Tuning,
) -> Result<(), Error> {
    let lock = Lock::take(name, ingress)?;
    refuse_detached(name, ingress)?;
    set_up(name, ingress, link)?;
    let index = find(name).ok().map(|found| found.index);
    let mut standing = Standing { name: name.to_owned(), ingress, index, gone: starting.leave_rules };
    // Rules that a killed process has left, of another path, may hold packets back.
    starting.notes.extend(steer::sweep(name, ingress).err().map(|error| format!("link {}: {error}", link.name)));
    let does = if ingress { "what comes in at" } else { "what leaves by" };
    starting.notes.push(format!("link {}: {does} {name}, by the kernel's qdiscs", link.name));
    let stop = starting.stop.clone();
    let stands = Arc::new(Mutex::new(Stands::new(link)));
    starting.standing.insert(link.name.clone(), stands.clone());
    let direction = if ingress { '<' } else { '>' };
    starting.add(
        format!("altq {direction}{name}"),
        Box::new(move |report| {
            let _lock = lock;
            let result = watch(&mut standing, &stands, tuning, &stop, report);
            result.and(standing.take_away())
        }),
    );
    Ok(())
}

/// What stands at an interface.
#[derive(Debug)]
pub(crate) struct Stands {
    /// The link.
    pub link: Arc<Link>,
    /// How often a new tree has taken the place of another one. Its counters begin at 0.
    built: u64,
    totals: Totals,
}

impl Stands {
    fn new(link: &Link) -> Stands {
        Stands { link: Arc::new(link.clone()), built: 0, totals: Totals::default() }
    }

    /// Sets up a link in place of the one that stands.
    ///
    /// # Errors
    /// As [`set_up`]. Then the old link stays.
    pub fn replace(&mut self, name: &str, ingress: bool, link: &Link) -> Result<Done, Error> {
        // What the old tree has counted goes with it.
        if let Ok(counted) = counted(name, ingress, &self.link) {
            self.totals.add(&self.link, &counted, self.built);
        }
        let done = set_up(name, ingress, link)?;
        self.link = Arc::new(link.clone());
        self.built += u64::from(done == Done::Built);
        Ok(done)
    }

    /// Sets up the link again.
    fn again(&mut self, name: &str, ingress: bool) -> Result<(), Error> {
        let done = set_up(name, ingress, &self.link)?;
        self.built += u64::from(done == Done::Built);
        Ok(())
    }
}

/// Counts at intervals until it must stop. `stands` is the link, which may be replaced by another
/// one. While the link does not stand, nothing is counted. That does not end the loop, because the
/// other links of the process would end with it.
fn watch(
    standing: &mut Standing,
    stands: &Mutex<Stands>,
    tuning: Tuning,
    stop: &Stop,
    report: &mut dyn FnMut(Report),
) -> Result<(), Error> {
    let began = now();
    let (name, ingress) = (standing.name.clone(), standing.ingress);
    let mut before = None::<Snapshot>;
    // An interface that comes back after it vanished has another index.
    let mut index = standing.index;
    let mut next = tuning.interval.map(|interval| began.saturating_add(interval));
    let mut look = began.saturating_add(LOOK);
    loop {
        let wait = next.map_or(look, |next| next.min(look)).saturating_sub(now());
        let timeout = Timespec { tv_sec: (wait / SECOND) as i64, tv_nsec: (wait % SECOND) as _ };
        let mut watched = [PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
        match poll(&mut watched, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::of("waiting", error.into())),
        }
        let (last, at) = (stop.is_set(), now());
        let counts = last || next.is_some_and(|next| next <= at);
        let looks = !last && look <= at;
        let shot = {
            // The tree must not change while it is counted.
            let mut stands = stands.lock().unwrap_or_else(PoisonError::into_inner);
            if looks {
                index = back(&name, ingress, &mut stands, (index, standing.index));
                standing.index = index.or(standing.index);
                look = now().saturating_add(LOOK);
            }
            // An error here means that the link does not stand: `altq status` says why.
            index
                .filter(|_| counts)
                .and_then(|_| snapshot(&name, ingress, &mut stands, began, before.as_ref(), last).ok())
        };
        if let Some(shot) = shot {
            report(Report::Whole(shot.clone()));
            before = Some(shot);
        }
        if last {
            return Ok(());
        }
        if counts {
            next = next.zip(tuning.interval).map(|(next, interval)| next.saturating_add(interval).max(now()));
        }
    }
}

/// The index of an interface on which the link stands. The link is set up again if the interface
/// has another index than before, because it has come back after it vanished, and if somebody has
/// taken the qdiscs away. `None` if the link does not stand: there is no interface, or somebody
/// else's qdisc is in the way. `before`: the index at the last look, `known`: the last that there
/// was.
fn back(name: &str, ingress: bool, stands: &mut Stands, (before, known): (Option<u32>, Option<u32>)) -> Option<u32> {
    let now = find(name).ok()?.index;
    if let Some(old) = known.filter(|old| *old != now) {
        // If it is there under another name, it must not be shaped any more. If that fails, it is
        // tried again at the next look.
        take_away_from(old, name, ingress).ok()?;
    }
    if before == Some(now) && !vanished(name, ingress).unwrap_or(false) {
        return before;
    }
    stands.again(name, ingress).is_ok().then_some(now)
}

/// What the classes have done since the loop began.
fn snapshot(
    name: &str,
    ingress: bool,
    stands: &mut Stands,
    began: Nanos,
    before: Option<&Snapshot>,
    last: bool,
) -> Result<Snapshot, Error> {
    let Stands { link, built, totals } = stands;
    let mut classes = vec![ClassStat::default(); link.classes.len()];
    let children = link.children();
    totals.add(link, &counted(name, ingress, link)?, *built);
    for (class, stat) in classes.iter_mut().enumerate() {
        let Some(total) = totals.of(class) else { continue };
        stat.overlimits = Some(total.overlimits);
        // The kernel counts a packet in each class above its own.
        if children.get(class).is_none_or(|children| children.is_empty()) {
            (stat.counters, stat.dropped) = (total.counters, total.dropped.clone());
        }
    }
    // Children come after their parents, so each is added to its parent, beginning with the last
    // one.
    for class in (1..classes.len()).rev() {
        let Some(parent) = link.spec.classes.get(class).map(|spec| spec.parent as usize) else { continue };
        let (counters, dropped) = (classes[class].counters, classes[class].dropped.clone());
        let above = &mut classes[parent];
        above.counters += counters;
        dropped.into_iter().for_each(|(reason, packets)| totals::add(&mut above.dropped, reason, packets));
    }
    let at = now();
    let since = before.map_or(began, |before| before.at);
    for (class, stat) in classes.iter_mut().enumerate() {
        let earlier = before.and_then(|before| before.classes.get(class)).map(|stat| stat.counters);
        let earlier = earlier.unwrap_or_default();
        let rate = |bytes: u64, earlier: u64| {
            let bits = u128::from(bytes.saturating_sub(earlier)) * 8 * u128::from(SECOND);
            bits.checked_div(u128::from(at.saturating_sub(since))).unwrap_or(0) as u64
        };
        stat.rate_bit_s = rate(stat.counters.sent_bytes, earlier.sent_bytes);
        stat.wire_bit_s = rate(stat.counters.sent_wire_bytes, earlier.sent_wire_bytes);
        stat.wire_bytes = stat.counters.sent_wire_bytes;
    }
    let root = classes.first().map_or_else(Counters::default, |root| root.counters);
    Ok(Snapshot {
        link: link.name.clone(),
        at,
        began,
        since,
        last,
        classes,
        unclassified: (0, 0),
        edge: EdgeCounters { received: root.received_packets(), sent: root.sent_packets, ..EdgeCounters::default() },
        work: Work::default(),
        late: Default::default(),
    })
}
