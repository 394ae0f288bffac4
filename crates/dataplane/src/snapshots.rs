//! The way of snapshots from the loops to whoever shows them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use crate::stats::Snapshot;

/// The fewest and the most snapshots of a link that wait until somebody takes them.
const FEWEST: usize = 32;
const MOST: usize = 256;
/// Between these bounds: the classes that the snapshots which wait have together.
const CLASSES: usize = 1 << 14;

/// The snapshots of all links, as they come. Where nobody takes them they do not fill the memory:
/// when many of a link wait, the next ones are left out, but not the last one.
#[derive(Debug)]
pub struct Snapshots(mpsc::Receiver<Waiting>);

/// What hands over the snapshots of links.
#[derive(Debug)]
pub(crate) struct Sender {
    send: mpsc::Sender<Waiting>,
    /// How many of the link's wait.
    waiting: Arc<AtomicUsize>,
}

/// A snapshot that waits, and how many of its link do.
#[derive(Debug)]
struct Waiting {
    snapshot: Snapshot,
    waiting: Arc<AtomicUsize>,
}

/// The two ends.
pub(crate) fn channel() -> (Sender, Snapshots) {
    let (send, received) = mpsc::channel();
    (Sender { send, waiting: Arc::default() }, Snapshots(received))
}

impl Waiting {
    fn taken(self) -> Snapshot {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.snapshot
    }
}

impl Snapshots {
    /// The next snapshot.
    ///
    /// # Errors
    /// None has come within `most`, or all loops have ended.
    pub fn recv_timeout(&self, most: Duration) -> Result<Snapshot, RecvTimeoutError> {
        self.0.recv_timeout(most).map(Waiting::taken)
    }

    /// The snapshots that wait.
    pub fn try_iter(&self) -> impl Iterator<Item = Snapshot> {
        self.0.try_iter().map(Waiting::taken)
    }

    /// All snapshots until the loops have ended.
    pub fn iter(&self) -> impl Iterator<Item = Snapshot> {
        self.0.iter().map(Waiting::taken)
    }
}

impl Sender {
    /// For the thread of another link.
    pub fn of_link(&self) -> Sender {
        Sender { send: self.send.clone(), waiting: Arc::default() }
    }

    /// Hands a snapshot over, or leaves it out.
    pub fn offer(&self, snapshot: Snapshot) {
        let most = (CLASSES / snapshot.classes.len().max(1)).clamp(FEWEST, MOST);
        if self.waiting.load(Ordering::Relaxed) < most || snapshot.last {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            // If nobody receives them any more, the loop goes on.
            let _ = self.send.send(Waiting { snapshot, waiting: self.waiting.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use altq_engine::units::Nanos;

    use super::*;
    use crate::edge::EdgeCounters;
    use crate::stats::{ClassStat, Work};

    fn snapshot(at: Nanos, last: bool, classes: usize) -> Snapshot {
        Snapshot {
            link: "wan".to_owned(),
            at,
            began: 0,
            since: 0,
            last,
            classes: vec![ClassStat::default(); classes],
            unclassified: (0, 0),
            edge: EdgeCounters::default(),
            work: Work::default(),
            late: Default::default(),
        }
    }

    /// Somebody stops reading, as `altq run | less` does: memory stays bounded, the last snapshot
    /// comes nevertheless, and what is taken makes room for others.
    #[test]
    fn snapshots_that_nobody_takes_do_not_pile_up() {
        for (classes, most) in [(1, 256), (128, 128), (1024, 32)] {
            let (send, snapshots) = channel();
            for _ in 0..2 {
                for at in 0..500 {
                    send.offer(snapshot(at, at == 499, classes));
                }
                let mut expected: Vec<Nanos> = (0..most).collect();
                expected.push(499);
                let seen: Vec<Nanos> = snapshots.try_iter().map(|one| one.at).collect();
                assert_eq!(seen, expected, "{classes} classes");
            }
            // Another link has room of its own.
            let other = send.of_link();
            (0..500).for_each(|at| send.offer(snapshot(at, false, classes)));
            other.offer(snapshot(0, false, classes));
            assert_eq!(snapshots.try_iter().count() as Nanos, most + 1, "{classes} classes");
            drop((send, other));
            assert_eq!(snapshots.recv_timeout(Duration::ZERO).map(|one| one.at), Err(RecvTimeoutError::Disconnected));
        }
    }
}
