//! Waiting for SIGINT, SIGTERM and SIGHUP.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};

use super::check;
use crate::stop::Stop;

/// Receives SIGINT and SIGTERM, which then no longer end the process.
#[derive(Debug)]
pub struct Watch(OwnedFd);

/// True if a signal has come since the last call. Does not wait.
fn taken(signals: &OwnedFd) -> bool {
    // The kernel keeps one signal of a kind; several that came count as one.
    rustix::io::read(signals, &mut [0u8; size_of::<libc::signalfd_siginfo>()]).is_ok()
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Watch {
    /// Whether one of the signals has come since the last call. Does not wait.
    pub fn seen(&self) -> bool {
        taken(&self.0)
    }

    /// Blocks both signals. Must be called before other threads start, because they inherit the
    /// signal mask.
    ///
    /// # Errors
    /// Those of sigprocmask(2) and signalfd(2).
    pub fn new() -> io::Result<Watch> {
        block(&ENDING).map(Watch)
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
            let _ = mask(libc::SIG_UNBLOCK, &set(&ENDING));
            loop {
                std::thread::park();
            }
        };
        std::thread::Builder::new().name("altq signals".into()).spawn(wait)?;
        Ok(())
    }
}

/// Receives SIGHUP, which then no longer ends the process.
#[derive(Debug)]
pub struct Hangup(OwnedFd);

impl Hangup {
    /// Blocks the signal. Must be called before other threads start, because they inherit the
    /// signal mask.
    ///
    /// # Errors
    /// Those of sigprocmask(2) and signalfd(2).
    pub fn new() -> io::Result<Hangup> {
        block(&[libc::SIGHUP]).map(Hangup)
    }

    /// Whether the signal has come since the last call. Does not wait.
    pub fn seen(&self) -> bool {
        taken(&self.0)
    }
}

impl AsFd for Hangup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The signals that end a command.
const ENDING: [libc::c_int; 2] = [libc::SIGINT, libc::SIGTERM];

/// Blocks signals, and makes a descriptor from which they can be read.
fn block(signals: &[libc::c_int]) -> io::Result<OwnedFd> {
    let set = set(signals);
    mask(libc::SIG_BLOCK, &set)?;
    // SAFETY: `set` outlives the call; the descriptor is new and nobody else's. Neither std nor
    // rustix makes a signalfd.
    unsafe {
        let fd = check(libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

fn set(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: `set` is plain old data that sigemptyset initialises before any other use; the calls
    // keep no pointer to it, and cannot fail for numbers of signals that exist.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
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
