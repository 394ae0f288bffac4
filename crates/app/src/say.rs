//! `eprint!` and `eprintln!` as the standard library has them, but without its panic where nothing
//! can be written to standard error: because a disk is full, or the reader of a pipe has gone. A
//! service must not end for want of its log.
//!
//! It must not wait for it either. If standard error is a pipe that nobody reads, a write blocks as
//! soon as it is full, for good. So a service calls [`never_wait`]: then what has no room is left
//! out, and counted. A pipe is opened a second time for that, because O_NONBLOCK would hold for all
//! processes that have the first descriptor.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::net::{SendFlags, send};

macro_rules! eprint {
    ($($text:tt)*) => {
        $crate::say::say(format_args!($($text)*))
    };
}

macro_rules! eprintln {
    ($($text:tt)*) => {
        eprint!("{}\n", format_args!($($text)*))
    };
}

/// A pipe that polls as writable has room for so many bytes (POSIX, PIPE_BUF of pipe(7)).
const PIPE_BUF: usize = 4096;

/// Where lines go that nobody waits for. `None`: standard error, as it is.
static LOG: Mutex<Option<Log>> = Mutex::new(None);

fn log() -> MutexGuard<'static, Option<Log>> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a text to standard error. What the macros do.
pub fn say(text: fmt::Arguments<'_>) {
    // In one piece, it does not mix with what another process writes.
    let text = text.to_string();
    match &mut *log() {
        Some(log) => log.say(&text),
        None => _ = io::stderr().write_all(text.as_bytes()),
    }
}

/// From now on no thread of this process waits until somebody reads standard error, if that is a
/// pipe or a socket. A file and a terminal are written as before. `who` stands before what is said
/// of lines that were lost.
pub fn never_wait(who: &'static str) {
    // Without a copy of the descriptor it stays as it was.
    let Some(found) = Log::of(io::stderr().as_fd(), who).ok().flatten() else { return };
    *log() = Some(found);
    // A thread that waits to say why it panics would take nothing back.
    std::panic::set_hook(Box::new(move |panic| eprintln!("{who}: {panic}")));
}

/// A pipe or a socket that is written without waiting.
struct Log {
    to: File,
    how: How,
    who: &'static str,
    /// How many lines had no room since the last one that had.
    lost: usize,
    /// Only a part of the last line could be written.
    torn: bool,
}

/// How to write without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// The descriptor does not block, and is this process's own.
    Open,
    /// A pipe that could not be opened again: it belongs to another user. It is asked first whether
    /// it has room. Another process may take that in between.
    Ask,
    /// A socket is told with each call.
    Socket,
}

impl Log {
    /// A log on the other end of a descriptor; `None` if that is neither a pipe nor a socket.
    ///
    /// # Errors
    /// Those of copying a descriptor.
    fn of(to: BorrowedFd<'_>, who: &'static str) -> io::Result<Option<Log>> {
        let (to, how) = match FileType::from_raw_mode(fstat(to)?.st_mode) {
            FileType::Fifo => {
                let again = format!("/proc/self/fd/{}", to.as_raw_fd());
                match open(again, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()) {
                    Ok(own) => (own, How::Open),
                    Err(_) => (to.try_clone_to_owned()?, How::Ask),
                }
            }
            FileType::Socket => (to.try_clone_to_owned()?, How::Socket),
            _ => return Ok(None),
        };
        Ok(Some(Log { to: File::from(to), how, who, lost: 0, torn: false }))
    }

    /// Writes a text, or counts its lines as lost.
    fn say(&mut self, text: &str) {
        if self.lost > 0 {
            // What is written now must not continue half a line.
            let end = if self.torn { "\n" } else { "" };
            let lines = if self.lost == 1 { "line" } else { "lines" };
            let why = "because standard error was not read";
            if self.put(format!("{end}{}: {} {lines} lost {why}\n", self.who, self.lost).as_bytes()) {
                (self.lost, self.torn) = (0, false);
            }
        }
        if self.lost > 0 || !self.put(text.as_bytes()) {
            self.lost += text.lines().count();
        }
    }

    /// Writes bytes. False if there was no room for all of them.
    fn put(&mut self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.write(rest) {
                Ok(count @ 1..) => rest = rest.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.torn |= rest.len() < bytes.len();
                    return false;
                }
                // The reader has gone: nobody misses it.
                Ok(_) | Err(_) => return true,
            }
        }
        true
    }

    /// Writes the first bytes, as many as there is room for now.
    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.how {
            How::Open => (&self.to).write(bytes),
            How::Ask => {
                let mut watched = [PollFd::new(&self.to, PollFlags::OUT)];
                if poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? == 0 {
                    return Err(ErrorKind::WouldBlock.into());
                }
                (&self.to).write(bytes.get(..PIPE_BUF).unwrap_or(bytes))
            }
            How::Socket => Ok(send(&self.to, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use rustix::io::ioctl_fionread;

    use super::*;

    const WHO: &str = "altq run";
    const LOST: &str = "lost because standard error was not read";

    /// A pipe whose descriptor is this process's own, or is asked for room.
    fn pipe(how: How) -> (PipeReader, Log) {
        let (reader, writer) = io::pipe().unwrap();
        let mut log = Log::of(writer.as_fd(), WHO).unwrap().unwrap();
        assert_eq!(log.how, How::Open);
        if how == How::Ask {
            log = Log { to: File::from(OwnedFd::from(writer)), how, who: WHO, lost: 0, torn: false };
        }
        (reader, log)
    }

    /// Reads what is there.
    fn there(reader: &mut (impl Read + AsFd)) -> String {
        let (count, mut text) = (ioctl_fionread(&*reader).unwrap(), String::new());
        reader.take(count).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn what_has_no_room_in_a_pipe_is_left_out_and_counted() {
        for how in [How::Open, How::Ask] {
            let (mut reader, mut log) = pipe(how);
            // They fill pages, so that nothing shorter has room when they have none.
            let line = format!("{}\n", "x".repeat(63));
            let mut said = 0;
            while log.lost < 3 {
                log.say(&line);
                said += 1;
            }
            log.say("two\nlines\n");
            // Whole lines only.
            assert_eq!(there(&mut reader), line.repeat(said - 3), "{how:?}");
            log.say("again\n");
            log.say("and again\n");
            assert_eq!(there(&mut reader), format!("altq run: 5 lines {LOST}\nagain\nand again\n"));
        }
    }

    #[test]
    fn half_a_line_is_ended_before_the_next() {
        for how in [How::Open, How::Ask] {
            let (mut reader, mut log) = pipe(how);
            let long = format!("{}\n", "x".repeat(4 << 20));
            log.say(&long);
            let part = there(&mut reader);
            assert!(!part.is_empty() && long.starts_with(&part) && part.len() < long.len(), "{how:?}");
            log.say("next\n");
            assert_eq!(there(&mut reader), format!("\naltq run: 1 line {LOST}\nnext\n"));
        }
    }

    /// Other processes, which write with it, may want to wait.
    #[test]
    fn the_descriptor_of_others_stays_as_it_was() {
        let (_reader, writer) = io::pipe().unwrap();
        let mut log = Log::of(writer.as_fd(), WHO).unwrap().unwrap();
        log.say("a line\n");
        let is_nonblocking = |fd: BorrowedFd<'_>| rustix::fs::fcntl_getfl(fd).unwrap().contains(OFlags::NONBLOCK);
        assert!(!is_nonblocking(writer.as_fd()) && is_nonblocking(log.to.as_fd()));
    }

    #[test]
    fn a_socket_is_no_reason_to_wait_either() {
        let (mut reader, writer) = UnixStream::pair().unwrap();
        let mut log = Log::of(writer.as_fd(), WHO).unwrap().unwrap();
        assert_eq!(log.how, How::Socket);
        let line = format!("{}\n", "x".repeat(999));
        let mut said = 0;
        while log.lost < 2 {
            log.say(&line);
            said += 1;
        }
        let mut read = String::new();
        while read.len() < (said - 2) * line.len() {
            read += &there(&mut reader);
        }
        log.say("again\n");
        assert_eq!(there(&mut reader), format!("altq run: 2 lines {LOST}\nagain\n"));
    }

    #[test]
    fn files_are_written_as_before_and_a_reader_that_has_gone_is_no_error() {
        let file = File::options().write(true).open("/dev/null").unwrap();
        assert!(Log::of(file.as_fd(), WHO).unwrap().is_none());
        for how in [How::Open, How::Ask] {
            let (reader, mut log) = pipe(how);
            drop(reader);
            log.say("a line\n");
            assert_eq!(log.lost, 0);
        }
    }
}
