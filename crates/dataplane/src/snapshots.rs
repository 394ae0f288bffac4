//! The queue of snapshots between the loops and the thread that shows them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use crate::stats::Snapshot;

/// The limit of snapshots of a link that wait until somebody takes them is between these two.
const FEWEST: usize = 32;
const MOST: usize = 256;
/// Within that range, the limit of classes in all snapshots that wait.
const CLASSES: usize = 1 << 14;

/// The snapshots of all links, in the order in which they come. If nobody takes them, memory stays
/// bounded: when many of a link wait, the next ones are left out, except the last one.
#[derive(Debug)]
pub struct Snapshots(mpsc::Receiver<Waiting>);

/// The sender of a link's snapshots.
#[derive(Debug)]
pub(crate) struct Sender {
    send: mpsc::Sender<Waiting>,
    /// How many snapshots of the link wait.
    waiting: Arc<AtomicUsize>,
}

/// A snapshot that waits, and the number of waiting snapshots of its link.
#[derive(Debug)]
struct Waiting {
    snapshot: Snapshot,
    waiting: Arc<AtomicUsize>,
}

/// The two ends of the queue.
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
    /// A sender for another link.
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

    /// If the reader stops, as in `altq run | less`, memory stays bounded, the last snapshot comes
    /// nevertheless, and snapshots that are taken make room for others.
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
