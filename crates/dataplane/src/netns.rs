//! Network namespaces without a name. They exist as long as a descriptor refers to them, so nothing
//! is left when the process ends, even by SIGKILL.
//!
//! A namespace made with `ip netns add` is a bind mount under /run/netns, which outlives the
//! process that made it. A namespace without a mount is removed with the last descriptor, thread
//! and socket that refers to it, with its interfaces and their veth peers.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::{io, process, thread};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// A network namespace, held by a descriptor.
#[derive(Debug)]
pub struct Namespace {
    fd: OwnedFd,
}

impl Namespace {
    /// Makes an empty namespace: no addresses, its loopback interface down.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_SYS_ADMIN; `InvalidInput` (EINVAL) where the kernel has no
    /// network namespaces.
    pub fn new() -> io::Result<Namespace> {
        // On a thread of its own, because unshare moves the calling thread to the new namespace.
        on_a_thread(|| {
            // SAFETY: `unshare_unsafe` is unsafe because of `UnshareFlags::FILES`, which would give
            // this thread descriptors that other threads do not have. Only `NEWNET` is given here,
            // so descriptors stay shared. No memory is concerned.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET)? };
            Namespace::current()
        })?
    }

    /// The calling thread's namespace.
    ///
    /// # Errors
    /// Those of opening a file, if /proc is not mounted.
    pub fn current() -> io::Result<Namespace> {
        Ok(Namespace { fd: File::open("/proc/thread-self/ns/net")?.into() })
    }

    /// The namespace of the main thread of a process.
    ///
    /// # Errors
    /// `NotFound` if there is no such process; `PermissionDenied` if it is another user's.
    pub fn of(process: i32) -> io::Result<Namespace> {
        Ok(Namespace { fd: File::open(format!("/proc/{process}/ns/net"))?.into() })
    }

    /// Moves the calling thread into this namespace. Sockets that it opens and programs that it
    /// starts from now on belong there; open sockets stay in theirs.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_SYS_ADMIN.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Runs `work` on a new thread in this namespace and waits for its result. The calling thread
    /// does not move.
    ///
    /// # Errors
    /// Those of [`enter`](Namespace::enter) and of starting a thread.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_a_thread(|| self.enter().map(|()| work()))?
    }

    /// A path by which other programs, such as `ip`, can refer to it while this value lives.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", process::id(), self.fd.as_raw_fd()))
    }
}

/// Runs `work` on a new thread and waits for it. A panic is passed on to the caller.
fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let worker = thread::Builder::new().name("netns".into()).spawn_scoped(scope, work)?;
        worker.join().map_err(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's name of the namespace that the calling thread is in.
    fn name() -> PathBuf {
        std::fs::read_link("/proc/thread-self/ns/net").unwrap()
    }

    #[test]
    fn a_new_one_is_another_and_the_caller_stays() {
        let here = name();
        let namespace = match Namespace::new() {
            Ok(namespace) => namespace,
            Err(error) => return eprintln!("SKIPPED: no network namespace here: {error}"),
        };
        let there = namespace.run(name).unwrap();
        assert_ne!(here, there);
        assert_eq!(here, name());
        assert_eq!(std::fs::read_link(namespace.path()).unwrap(), there);
        // A new namespace has no interface but lo.
        let devices = namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/dev").unwrap()).unwrap();
        assert_eq!(
            devices.lines().skip(2).map(|line| line.split(':').next().unwrap_or("").trim()).collect::<Vec<_>>(),
            ["lo"]
        );
    }
}
