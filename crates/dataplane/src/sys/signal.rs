//! SIGINT and SIGTERM as something to wait for.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use super::check;

/// Keeps SIGINT and SIGTERM from ending the process, and gives a descriptor that becomes readable when one comes. To be called
/// before other threads are started: they inherit it.
///
/// # Errors
/// Those of sigprocmask(2) and signalfd(2).
pub fn block_and_watch() -> io::Result<OwnedFd> {
    // SAFETY: `set` is a plain value that sigemptyset initialises before any other use, and outlives the calls, which keep no pointer.
    // Neither std nor rustix changes signal masks or makes a signalfd.
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
        // The descriptor is new and nobody else's.
        Ok(OwnedFd::from_raw_fd(fd))
    }
}
