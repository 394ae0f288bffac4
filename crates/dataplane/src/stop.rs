//! A signal that asks loops to end, and wakes one that waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

/// A request to end, for all loops that hold a copy of it. Once set, it stays set.
///
/// A loop polls its copy's descriptor. Plain copies share one. A copy [for a loop](Stop::for_loop)
/// has its own, so that this loop can be woken alone.
#[derive(Clone, Debug)]
pub struct Stop {
    all: Arc<All>,
    /// Becomes readable when the signal is set, or when the loop is woken.
    own: Arc<OwnedFd>,
}

#[derive(Debug)]
struct All {
    set: AtomicBool,
    /// The descriptors of all copies.
    events: Mutex<Vec<Arc<OwnedFd>>>,
}

fn event() -> io::Result<Arc<OwnedFd>> {
    Ok(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
}

fn raise(event: &OwnedFd) {
    // Cannot fail: it would take 2^64 calls to fill the counter.
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

impl Stop {
    /// A signal that is not set.
    ///
    /// # Errors
    /// Those of eventfd(2).
    pub fn new() -> io::Result<Stop> {
        let own = event()?;
        let events = Mutex::new(vec![own.clone()]);
        Ok(Stop { all: Arc::new(All { set: AtomicBool::new(false), events }), own })
    }

    /// The same signal for a loop that can be [woken](Stop::wake).
    ///
    /// # Errors
    /// Those of eventfd(2).
    pub fn for_loop(&self) -> io::Result<Stop> {
        let own = event()?;
        self.all.events.lock().unwrap_or_else(PoisonError::into_inner).push(own.clone());
        // If the signal was set meanwhile, `set` may not have raised the new descriptor.
        if self.is_set() {
            raise(&own);
        }
        Ok(Stop { all: self.all.clone(), own })
    }

    /// Sets the signal.
    pub fn set(&self) {
        self.all.set.store(true, Ordering::Release);
        let events = self.all.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.iter().for_each(|event| raise(event));
    }

    /// Wakes the loops that poll this copy, without asking them to end.
    pub fn wake(&self) {
        raise(&self.own);
    }

    /// True if the signal is set.
    pub fn is_set(&self) -> bool {
        self.all.set.load(Ordering::Acquire)
    }

    /// Tells a loop whose descriptor is readable why: true if it is to end. False if it was only
    /// woken; the descriptor is then no longer readable.
    pub fn ends(&self) -> bool {
        if !self.is_set() {
            let _ = rustix::io::read(&self.own, &mut [0u8; 8]);
        }
        // `set` stores before it raises. So if the read has taken what `set` raised, the signal is
        // set by now.
        self.is_set()
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.own.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn readable(stop: &Stop) -> bool {
        let mut watched = [PollFd::new(stop, PollFlags::IN)];
        poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
    }

    #[test]
    fn one_loop_is_woken_and_all_are_stopped() {
        let stop = Stop::new().unwrap();
        let (first, second) = (stop.for_loop().unwrap(), stop.for_loop().unwrap());
        first.clone().wake();
        first.wake();
        assert_eq!([readable(&first), readable(&second), readable(&stop)], [true, false, false]);
        assert!(!first.ends() && !readable(&first), "it goes on");
        second.set();
        let late = stop.for_loop().unwrap();
        for copy in [&first, &second, &stop, &late] {
            assert!(readable(copy) && copy.ends() && readable(copy), "it stays set");
        }
    }
}
