//! What the thread that asks altq passes to the thread that answers browsers: the latest frame, the
//! history of each link, the flows of classes that somebody looks at, and the policy if somebody
//! asks about packets.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::explain::Asked;
use crate::flows::Flows;
use crate::frame::Frame;
use crate::history::Past;

/// The latest frame and the histories.
#[derive(Debug, Default)]
pub struct Known {
    /// The latest frame.
    pub frame: Arc<Frame>,
    /// The history of each link.
    pub pasts: BTreeMap<String, Past>,
    /// The flows of classes that somebody looks at.
    pub flows: Flows,
    /// The policy that runs.
    pub policy: Asked,
}

/// The data that both threads share.
#[derive(Debug)]
pub struct Board {
    known: Mutex<Known>,
    wake: UnixStream,
}

impl Board {
    /// A board, and a socket that becomes readable when there is a new frame.
    ///
    /// # Errors
    /// That of making a pair of sockets.
    pub fn new() -> std::io::Result<(Board, UnixStream)> {
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        Ok((Board { known: Mutex::default(), wake }, woken))
    }

    /// Locks the data. If a thread panicked while it had the lock, they are still consistent.
    pub fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The latest frame.
    pub fn frame(&self) -> Arc<Frame> {
        self.lock().frame.clone()
    }

    /// Shows a frame.
    pub fn show(&self, frame: Frame) {
        self.lock().frame = Arc::new(frame);
        // If this cannot be written, wake-ups already wait, and one more is not needed.
        let _ = (&self.wake).write(&[1]);
    }
}
