//! Memory that is mapped from the kernel, and parts of it.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// Memory mapped from the kernel. It is unmapped when the value is dropped.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread. The value itself reads and writes
// nothing there; whoever does answers for it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed memory of this process alone, aligned to a page.
    ///
    /// # Errors
    /// Those of mmap(2); EINVAL for a size of 0.
    pub fn new(size: usize) -> io::Result<Mapping> {
        Mapping::map(size, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// Memory that a descriptor stands for, from byte `offset` on, shared with the kernel.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn of(fd: BorrowedFd<'_>, offset: u64, size: usize) -> io::Result<Mapping> {
        // Where file offsets have 32 bits, the rings of AF_XDP cannot be mapped: their offsets are
        // larger.
        let offset = libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        Mapping::map(size, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset)
    }

    fn map(size: usize, flags: libc::c_int, fd: libc::c_int, offset: libc::off_t) -> io::Result<Mapping> {
        // SAFETY: a new mapping at an address chosen by the kernel overlaps no memory in use.
        let start = unsafe { libc::mmap(null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        match NonNull::new(start.cast::<u8>()) {
            Some(start) => Ok(Mapping { start, size }),
            None => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Number of bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The address of `count` values of type `T` from byte `at` on.
    ///
    /// # Errors
    /// EINVAL if they do not lie in the mapping, or are not aligned.
    pub fn place<T>(&self, at: u64, count: usize) -> io::Result<NonNull<T>> {
        let bytes = size_of::<T>().checked_mul(count);
        let at = usize::try_from(at).ok().filter(|at| at.is_multiple_of(align_of::<T>()));
        match (at, bytes) {
            (Some(at), Some(bytes)) if at.checked_add(bytes).is_some_and(|end| end <= self.size) => {
                // SAFETY: `at` lies within the mapping, so the address does too.
                Ok(unsafe { self.start.add(at) }.cast())
            }
            _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is a whole mapping that `map` made. What refers to it keeps it in an `Arc`,
        // so nobody uses it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.size) };
    }
}

/// A part of a mapping that one thread uses, divided into slots. The kernel may write to slots that
/// were handed to it, so bytes are lent slot by slot: no reference covers a slot that the kernel
/// has.
#[derive(Debug)]
pub struct Part {
    of: Arc<Mapping>,
    from: usize,
    size: usize,
}

impl Part {
    /// Divides memory into two parts, of which the first has `first` bytes. The memory is divided
    /// only once, so that each part has one user.
    pub fn halves(of: &Arc<Mapping>, first: usize) -> [Part; 2] {
        let first = first.min(of.size());
        [Part { of: of.clone(), from: 0, size: first }, Part { of: of.clone(), from: first, size: of.size() - first }]
    }

    /// All of a mapping.
    pub fn whole(of: Mapping) -> Part {
        let size = of.size();
        Part { of: Arc::new(of), from: 0, size }
    }

    /// Where it begins in the mapping, in bytes.
    pub fn offset(&self) -> usize {
        self.from
    }

    /// Number of bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The address of byte `at`, of which `count` are used. Panics beyond the part, as a slice
    /// does.
    fn at(&self, at: usize, count: usize) -> *mut u8 {
        assert!(at.checked_add(count).is_some_and(|end| end <= self.size), "{count} bytes at {at} of {}", self.size);
        // SAFETY: checked above to lie within this part, which lies within the mapping.
        unsafe { self.of.start().add(self.from + at) }.as_ptr()
    }

    /// `count` bytes from byte `at` on, in slots that the kernel does not have.
    pub fn bytes(&self, at: usize, count: usize) -> &[u8] {
        // SAFETY: `at` checks that the bytes lie in this part, whose memory is mapped as long as
        // this value lives and which no other value has. `&self` keeps it from being written here;
        // the kernel writes only to slots that were handed to it, which its user leaves alone.
        unsafe { std::slice::from_raw_parts(self.at(at, count), count) }
    }

    /// The same for writing.
    pub fn bytes_mut(&mut self, at: usize, count: usize) -> &mut [u8] {
        // SAFETY: as in `bytes`; `&mut self` keeps everybody else in this process away.
        unsafe { std::slice::from_raw_parts_mut(self.at(at, count), count) }
    }

    /// Copies bytes to byte `to`, as `slice::copy_within` does.
    pub fn copy_within(&mut self, from: Range<usize>, to: usize) {
        let count = from.len();
        let (from, to) = (self.at(from.start, count), self.at(to, count));
        // SAFETY: both lie in this part, which `&mut self` has alone; they may overlap.
        unsafe { std::ptr::copy(from, to, count) };
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn parts_are_apart_and_end_where_they_end() {
        let memory = Arc::new(Mapping::new(10_000).unwrap());
        let [mut first, mut second] = Part::halves(&memory, 4096);
        assert_eq!((first.offset(), first.size(), second.offset(), second.size()), (0, 4096, 4096, 5904));
        first.bytes_mut(4000, 96).fill(1);
        second.bytes_mut(0, 4).copy_from_slice(&[2, 3, 4, 5]);
        second.copy_within(0..4, 2);
        assert_eq!(second.bytes(0, 7), [2, 3, 2, 3, 4, 5, 0]);
        assert!(first.bytes(4000, 96).iter().all(|byte| *byte == 1) && first.bytes(0, 4000).iter().all(|b| *b == 0));
        for (at, count) in [(4095, 2), (4097, 0), (usize::MAX, 2)] {
            assert!(catch_unwind(AssertUnwindSafe(|| first.bytes(at, count).len())).is_err(), "{at} {count}");
        }
    }

    #[test]
    fn a_place_lies_in_the_mapping_and_is_aligned() {
        let memory = Mapping::new(64).unwrap();
        let places = [(0, 8, true), (56, 1, true), (56, 2, false), (4, 1, false), (u64::MAX - 7, 1, false)];
        for (at, count, there) in places {
            assert_eq!(memory.place::<u64>(at, count).is_ok(), there, "{at} {count}");
        }
    }
}
