//! A signal that asks loops to end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// A signal to all loops that hold a copy of it. Once set, it stays set.
#[derive(Clone, Debug)]
pub struct Stop(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    set: AtomicBool,
    /// Becomes readable when the signal is set, so that a loop can poll it.
    event: OwnedFd,
}

impl Stop {
    /// A signal that is not set.
    ///
    /// # Errors
    /// Those of eventfd(2).
    pub fn new() -> io::Result<Stop> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Stop(Arc::new(Inner { set: AtomicBool::new(false), event })))
    }

    /// Sets it.
    pub fn set(&self) {
        self.0.set.store(true, Ordering::Release);
        // Cannot fail: it would take 2^64 calls to fill the counter.
        let _ = rustix::io::write(&self.0.event, &1u64.to_ne_bytes());
    }

    /// True if it is set.
    pub fn is_set(&self) -> bool {
        self.0.set.load(Ordering::Acquire)
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }
}
