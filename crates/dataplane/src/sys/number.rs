//! A number in memory that processes and BPF programs share.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::mapping::Mapping;

/// The number in a map of [`shared_number`](super::bpf::shared_number). Copies refer to the same
/// number.
#[derive(Clone, Debug)]
pub struct Number {
    at: NonNull<AtomicU64>,
    /// Keeps it mapped.
    _memory: Arc<Mapping>,
}

// SAFETY: the pointer is into a mapping that the value keeps, and what it points to is atomic.
unsafe impl Send for Number {}
// SAFETY: as above.
unsafe impl Sync for Number {}

impl Number {
    /// The number of a map.
    ///
    /// # Errors
    /// Those of mmap(2): it is no such map.
    pub fn of(map: impl AsFd) -> io::Result<Number> {
        let memory = Arc::new(Mapping::of(map.as_fd(), 0, size_of::<AtomicU64>())?);
        Ok(Number { at: memory.place(0, 1)?, _memory: memory })
    }

    /// Sets it.
    pub fn set(&self, value: u64) {
        // SAFETY: the mapping that the value keeps has room for it; programs only read it.
        unsafe { self.at.as_ref() }.store(value, Ordering::Release);
    }

    /// Reads it.
    #[cfg(test)]
    pub fn get(&self) -> u64 {
        // SAFETY: as in `set`.
        unsafe { self.at.as_ref() }.load(Ordering::Acquire)
    }
}

/// Takes over a descriptor that the process was started with. The process was told its number.
///
/// # Errors
/// EBADF: there is none, or it is one of the three that every process has.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    if number <= libc::STDERR_FILENO {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: F_SETFD changes a flag of a descriptor, or fails where there is none. rustix asks for
    // a descriptor that is known to be open.
    super::check(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: it is open, and nothing else in this process knows of it: whoever started the process
    // left it open for this call alone.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::bpf;

    #[test]
    fn copies_of_a_map_s_number_are_one() {
        let map = match bpf::shared_number() {
            Ok(map) => map,
            Err(error) => return eprintln!("SKIPPED: no such maps here ({error})"),
        };
        let (one, other) = (Number::of(&map).unwrap(), Number::of(&map).unwrap());
        assert_eq!(one.get(), 0);
        other.set(u64::MAX);
        assert_eq!(one.get(), u64::MAX);
    }

    #[test]
    fn a_descriptor_that_is_not_there_is_not_inherited() {
        for number in [-1, 0, 2, 1_000_000] {
            assert_eq!(inherited(number).unwrap_err().raw_os_error(), Some(libc::EBADF), "{number}");
        }
    }
}
