//! Network namespaces without a name: they live as long as somebody holds them, so nothing is left
//! when the process ends, even by SIGKILL.
//!
//! A namespace made with `ip netns add` is a bind mount under /run/netns and outlives whoever made
//! it. One that is only held by a descriptor goes with the last descriptor, thread and socket in
//! it, and the kernel then removes its interfaces and the peers of its veth pairs.

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
    /// Makes a new, empty one: no address, its loopback interface down.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_SYS_ADMIN; `InvalidInput` (EINVAL) where the kernel has no
    /// network namespaces.
    pub fn new() -> io::Result<Namespace> {
        // A thread of its own: unshare moves the calling thread, and nothing brings it back
        // reliably.
        on_a_thread(|| {
            // SAFETY: `unshare_unsafe` is unsafe for the sake of `UnshareFlags::FILES`, which would
            // give this thread descriptors that others cannot see. Only `NEWNET` is given:
            // descriptors stay shared, no memory is concerned.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET)? };
            Namespace::current()
        })?
    }

    /// The one that the calling thread is in.
    ///
    /// # Errors
    /// Those of opening a file, where /proc is not mounted.
    pub fn current() -> io::Result<Namespace> {
        Ok(Namespace { fd: File::open("/proc/thread-self/ns/net")?.into() })
    }

    /// Moves the calling thread into it. Sockets that it opens from now on, and programs that it
    /// starts, belong there; those that are open stay where they are.
    ///
    /// # Errors
    /// `PermissionDenied` without CAP_SYS_ADMIN.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Runs `work` in it, on a thread of its own, and waits for the result. The calling thread
    /// stays where it is.
    ///
    /// # Errors
    /// Those of [`enter`](Namespace::enter) and of starting a thread.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_a_thread(|| self.enter().map(|()| work()))?
    }

    /// A path by which other programs, `ip` among them, can name it while this value lives.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", process::id(), self.fd.as_raw_fd()))
    }
}

/// Runs `work` on a thread of its own; a panic in it goes on in the caller.
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
        // Empty: lo is all there is.
        let devices = namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/dev").unwrap()).unwrap();
        assert_eq!(
            devices.lines().skip(2).map(|line| line.split(':').next().unwrap_or("").trim()).collect::<Vec<_>>(),
            ["lo"]
        );
    }
}
