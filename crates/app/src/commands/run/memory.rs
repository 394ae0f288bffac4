//! The memory of the history, which outlives a worker: the supervisor makes it and hands each
//! worker the descriptor. Its size is fixed, but it takes pages only for what was written.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use altq_monitor::history::SliceRef;
use altq_monitor::records::{Kept, LEAST, Records, Write};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};

/// Makes the memory, for a supervisor. Its size cannot be changed.
///
/// # Errors
/// Those of memfd_create(2).
pub fn make(size: u64) -> io::Result<OwnedFd> {
    let memory = memfd_create("altq history", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&memory, size.max(LEAST as u64))?;
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(memory)
}

/// A descriptor that is inherited by programs that are started while this exists.
pub struct Lent<'a>(BorrowedFd<'a>);

impl<'a> Lent<'a> {
    /// Makes it inheritable.
    ///
    /// # Errors
    /// That of fcntl(2).
    pub fn new(lent: &'a impl AsFd) -> io::Result<Lent<'a>> {
        fcntl_setfd(lent, FdFlags::empty())?;
        Ok(Lent(lent.as_fd()))
    }

    /// Its number, which is the same in the started program.
    pub fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        // If this fails, other programs that the supervisor starts inherit it as well, and ignore
        // it.
        let _ = fcntl_setfd(self.0, FdFlags::CLOEXEC);
    }
}

/// The memory, and what an earlier worker has kept there.
pub struct Memory {
    file: File,
    records: Records,
    kept: HashMap<String, Kept>,
}

impl Memory {
    /// The memory that the supervisor has handed over under this number.
    ///
    /// # Errors
    /// It cannot be opened or read.
    pub fn inherited(number: i32) -> io::Result<Memory> {
        let file = File::options().read(true).write(true).open(format!("/proc/self/fd/{number}"))?;
        Memory::of(file)
    }

    fn of(file: File) -> io::Result<Memory> {
        let size = usize::try_from(rustix::fs::fstat(file.as_fd())?.st_size).unwrap_or(0);
        let mut bytes = vec![0; size];
        file.read_exact_at(&mut bytes, 0)?;
        let (records, kept) = Records::open(&bytes);
        Ok(Memory { file, records, kept })
    }

    /// Takes what was kept of a link.
    pub fn kept(&mut self, link: &str) -> Option<Kept> {
        self.kept.remove(link)
    }

    /// Sets the names of a link's classes.
    pub fn set_names(&mut self, link: &str, names: &[String]) {
        let writes = self.records.set_names(link, names);
        self.write(writes);
    }

    /// Writes a second of a link.
    pub fn second(&mut self, link: &str, slice: SliceRef<'_>) {
        let writes = self.records.second(link, slice);
        self.write(writes);
    }

    /// Writes a quarter of a minute of a link.
    pub fn quarter(&mut self, link: &str, slice: SliceRef<'_>) {
        let writes = self.records.quarter(link, slice);
        self.write(writes);
    }

    /// If the kernel has no page left, only the history lacks something.
    fn write(&self, writes: impl IntoIterator<Item = Write>) {
        for (at, bytes) in writes {
            let _ = self.file.write_all_at(&bytes, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use altq_monitor::history::{Point, Slice};

    use super::*;

    #[test]
    fn what_one_process_keeps_the_next_one_finds() {
        let memory = make(0).unwrap();
        let open = || Memory::inherited(memory.as_raw_fd()).unwrap();
        let mut first = open();
        assert!(first.kept("wan").is_none());
        let point = Point { sent_packets: 3, ..Point::default() };
        let slice = |second: u64| Slice::new(second, second + 1, 1, [(1, point)]);
        first.second("wan", slice(0).view());
        first.set_names("wan", &["link".to_owned(), "a".to_owned()]);
        first.second("wan", slice(1).view());
        first.quarter("wan", slice(1).view());
        let kept = open().kept("wan").unwrap();
        assert_eq!((kept.seconds.len(), kept.quarters.len()), (1, 1));
        assert_eq!((&kept.seconds[0].0, &*kept.seconds[0].1), (&slice(1), &["link".to_owned(), "a".to_owned()][..]));
        // Its size stays that with which it was made.
        assert!(ftruncate(&memory, 1 << 20).is_err());
        let lent = Lent::new(&memory).unwrap();
        assert_eq!(lent.number(), memory.as_raw_fd());
    }
}
