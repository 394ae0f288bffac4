//! Waits for descriptors. For a given time the thread polls them before it sleeps.

use altq_engine::units::{Nanos, SECOND};
use rustix::event::{PollFd, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

use crate::error::Error;

/// The time by CLOCK_MONOTONIC.
pub fn now() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as Nanos * SECOND + time.tv_nsec as Nanos
}

/// Waits until a descriptor is ready, or until the time `until`. For the first `spin` nanoseconds
/// after `now` the thread polls instead of sleeping: where the processor goes to sleep too, waking
/// takes longer than that. A signal ends the wait.
///
/// With a timer slack of 1 ns, ppoll wakes as exactly as a timerfd would, and takes one system call
/// instead of three.
///
/// # Errors
/// Those of ppoll(2).
pub fn wait(watched: &mut [PollFd<'_>], now: Nanos, until: Nanos, spin: Nanos) -> Result<(), Error> {
    let (awake_until, mut sleeps_from) = (now.saturating_add(spin), now);
    while sleeps_from < awake_until {
        if look(watched, 0)? || sleeps_from >= until {
            return Ok(());
        }
        std::hint::spin_loop();
        sleeps_from = self::now();
    }
    look(watched, until.saturating_sub(sleeps_from)).map(drop)
}

/// Waits for at most `most` nanoseconds. True if a descriptor is ready, or a signal came.
fn look(watched: &mut [PollFd<'_>], most: Nanos) -> Result<bool, Error> {
    let timeout = Timespec { tv_sec: (most / SECOND) as i64, tv_nsec: (most % SECOND) as _ };
    match poll(watched, Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(error) => Err(Error::of("waiting", error.into())),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::event::PollFlags;

    use super::*;

    /// Whether the thread spins or not, it returns for a descriptor that is ready and at the end.
    #[test]
    fn a_wait_ends_with_a_descriptor_or_in_time() {
        let (near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
        for spin in [0, 20_000, 50_000_000] {
            let mut watched = [PollFd::new(&near, PollFlags::IN)];
            let start = now();
            wait(&mut watched, start, start + 5_000_000, spin).unwrap();
            assert!(watched[0].revents().is_empty() && now() >= start + 5_000_000, "spin {spin}");
            // A time in the past is not waited for.
            wait(&mut watched, start, start, spin).unwrap();
        }
        far.write_all(b"x").unwrap();
        for spin in [0, 20_000] {
            let mut watched = [PollFd::new(&near, PollFlags::IN)];
            let start = now();
            wait(&mut watched, start, Nanos::MAX, spin).unwrap();
            assert_eq!(watched[0].revents(), PollFlags::IN);
        }
    }
}
