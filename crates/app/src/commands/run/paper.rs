//! Standard output, on which a table or line appears per interval. Shaping never depends on it.

use std::io::{self, ErrorKind, Write};

/// Where tables or lines are printed.
pub struct Paper<W> {
    to: W,
    /// Only a part of the last text could be written.
    torn: bool,
    /// The last text could not be written, which was said.
    failing: bool,
}

impl<W: Write> Paper<W> {
    /// Prints on `to`.
    pub fn new(to: W) -> Paper<W> {
        Paper { to, torn: false, failing: false }
    }

    /// Prints a text. If that fails, such as on a full disk, it says so once and leaves the text
    /// out.
    ///
    /// # Errors
    /// [`ErrorKind::BrokenPipe`]: the reader has gone.
    pub fn print(&mut self, text: &[u8]) -> io::Result<()> {
        match self.put(text) {
            Ok(()) => self.failing = false,
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Err(error),
            Err(error) => {
                if !self.failing {
                    eprintln!(
                        "altq run: stdout cannot be written ({error}); packets are shaped all the same, and output is \
                         left out until it can be written again"
                    );
                }
                self.failing = true;
            }
        }
        Ok(())
    }

    fn put(&mut self, text: &[u8]) -> io::Result<()> {
        if self.torn {
            // What is printed now must not continue half a line.
            self.to.write_all(b"\n")?;
            self.torn = false;
        }
        let mut rest = text;
        while !rest.is_empty() {
            match self.to.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            self.torn = !rest.is_empty();
        }
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with room for so many bytes.
    struct Disk {
        room: usize,
        written: Vec<u8>,
        full: ErrorKind,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room);
            if count == 0 {
                return Err(self.full.into());
            }
            self.room -= count;
            self.written.extend(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_is_no_end_and_lines_stay_whole_after_it() {
        let mut paper = Paper::new(Disk { room: 7, written: Vec::new(), full: ErrorKind::StorageFull });
        for line in ["one\n", "two two\n", "three\n"] {
            paper.print(line.as_bytes()).unwrap();
        }
        assert!(paper.failing);
        paper.to.room = 100;
        paper.print(b"four\n").unwrap();
        paper.print(b"five\n").unwrap();
        assert_eq!(String::from_utf8_lossy(&paper.to.written), "one\ntwo\nfour\nfive\n");
        assert!(!paper.failing);
    }

    #[test]
    fn a_reader_that_has_gone_is_the_end() {
        let mut paper = Paper::new(Disk { room: 0, written: Vec::new(), full: ErrorKind::BrokenPipe });
        assert_eq!(paper.print(b"one\n").unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
}
