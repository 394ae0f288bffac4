//! Waiting for SIGINT and SIGTERM.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};

use super::check;
use crate::stop::Stop;

/// Receives SIGINT and SIGTERM, which then no longer end the process.
#[derive(Debug)]
pub struct Watch(OwnedFd);

impl Watch {
    /// Blocks both signals. Must be called before other threads start, because they inherit the
    /// signal mask.
    ///
    /// # Errors
    /// Those of sigprocmask(2) and signalfd(2).
    pub fn new() -> io::Result<Watch> {
        let set = both();
        mask(libc::SIG_BLOCK, &set)?;
        // SAFETY: `set` outlives the call; the descriptor is new and nobody else's. Neither std nor
        // rustix makes a signalfd.
        unsafe {
            let fd = check(libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?;
            Ok(Watch(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// Sets `stop` at the first signal. A second signal ends the process.
    ///
    /// # Errors
    /// That of starting a thread.
    pub fn stop_on_signal(self, stop: Stop) -> io::Result<()> {
        let wait = move || {
            let mut watched = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
            while poll(&mut watched, None).is_err() {}
            stop.set();
            // Reads the signal and unblocks both signals in this thread, so that the next one ends
            // the process.
            let _ = rustix::io::read(&self.0, &mut [0u8; size_of::<libc::signalfd_siginfo>()]);
            let _ = mask(libc::SIG_UNBLOCK, &both());
            loop {
                std::thread::park();
            }
        };
        std::thread::Builder::new().name("altq signals".into()).spawn(wait)?;
        Ok(())
    }
}

fn both() -> libc::sigset_t {
    // SAFETY: `set` is plain old data that sigemptyset initialises before any other use; the calls
    // keep no pointer to it, and cannot fail for these numbers.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGINT);
        libc::sigaddset(&mut set, libc::SIGTERM);
        set
    }
}

/// Changes the calling thread's signal mask.
fn mask(how: libc::c_int, set: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: the kernel only reads `set`, which outlives the call. Neither std nor rustix changes
    // signal masks.
    match unsafe { libc::pthread_sigmask(how, set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
