//! SIGINT and SIGTERM as something to wait for.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};

use super::check;
use crate::stop::Stop;

/// SIGINT and SIGTERM, kept from ending the process.
#[derive(Debug)]
pub struct Watch(OwnedFd);

impl Watch {
    /// From now on the two no longer end the process. To be made before other threads are started: they inherit it.
    ///
    /// # Errors
    /// Those of sigprocmask(2) and signalfd(2).
    pub fn new() -> io::Result<Watch> {
        // SAFETY: `set` is a plain value that sigemptyset initialises before any other use, and outlives the calls, which keep no
        // pointer; the descriptor is new and nobody else's. Neither std nor rustix changes signal masks or makes a signalfd.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            check(libc::sigemptyset(&mut set))?;
            check(libc::sigaddset(&mut set, libc::SIGINT))?;
            check(libc::sigaddset(&mut set, libc::SIGTERM))?;
            let error = libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            let fd = check(libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?;
            Ok(Watch(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// Sets `stop` at the first of them, on a thread that ends with the process..
    ///
    /// # Errors
    /// That of starting a thread.
    pub fn stop_on_signal(self, stop: Stop) -> io::Result<()> {
        let wait = move || {
            let mut watched = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
            while poll(&mut watched, None).is_err() {}
            stop.set();
        };
        std::thread::Builder::new().name("altq signals".into()).spawn(wait)?;
        Ok(())
    }
}
