//! A tap: copies of the packets that leave a link, as a pcap file with times in nanoseconds
//! (draft-ietf-opsawg-pcap).
//!
//! The loop copies packets as records into a buffer. A buffer that is full, or has waited for some
//! time, goes to a writer thread, and an empty one comes back. All buffers are made before the
//! first packet. While the writer is late and there is no empty buffer, packets are counted instead
//! of copied. The loop never waits for the writer, and allocates nothing.

use std::fs::File;
use std::io::{ErrorKind, Seek, Write};
use std::mem::take;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use altq_engine::headers::Encapsulation;
use altq_engine::spec::ClassId;
use altq_engine::units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::error::Error;
use crate::running::Handle;
use crate::sys::wait::now;

/// The most bytes of a packet that a tap keeps.
pub const MOST: usize = 65_535;
/// Bytes of a buffer: at least one packet fits.
const PIECE: usize = 128 << 10;
/// The number of buffers that go between the loop and the writer.
const PIECES: usize = 32;
/// Bytes of a file's header, and of that of a record.
const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;
/// Kinds of links (LINKTYPE_ETHERNET and LINKTYPE_RAW of the draft's registry).
const ETHERNET: u32 = 1;
const RAW: u32 = 101;
/// A buffer that is not full goes to the writer after this time.
const WAITED: Duration = Duration::from_millis(100);
/// A tap ends if nobody asks about it for this long.
const LEASE: Duration = Duration::from_secs(10);

/// What a tap must copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// By class number: whether its packets are copied; `None`: those of all classes.
    pub classes: Option<Vec<bool>>,
    /// The most bytes of each packet, at most [`MOST`].
    pub snaplen: usize,
    /// The most bytes of the file.
    pub size: u64,
    /// True if the loop has invented the header before layer 3. Then that header is not copied.
    pub made_up: bool,
}

/// What a tap has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tapped {
    /// Packets that were written.
    pub packets: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Packets that were not copied, because the writer was late.
    pub missed: u64,
    /// Why it has ended; `None` while it runs.
    pub ended: Option<Ended>,
}

/// Why a tap has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Somebody asked for it, or the link has ended.
    Asked,
    /// The file has reached its size.
    Full,
    /// Nobody reads the output any more.
    Closed,
    /// Nobody has asked about it for long.
    Left,
    /// The file could not be written, and why.
    Failed(String),
}

/// The loop's end of a tap.
pub(crate) struct Tap {
    classes: Option<Vec<bool>>,
    snaplen: usize,
    made_up: bool,
    /// What is added to the loop's time to get the time since 1970.
    offset: u64,
    buffer: Vec<u8>,
    /// When the first record came into the buffer.
    since: Nanos,
    filled: SyncSender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
    missed: Arc<AtomicU64>,
    /// True if the writer has gone.
    gone: bool,
}

impl Tap {
    /// Copies a packet of a class that leaves at this time: the parts of its frame, and the frame's
    /// length.
    pub fn copy(&mut self, now: Nanos, class: ClassId, head: &[u8], body: &[u8], len: usize) {
        if self.classes.as_ref().is_some_and(|classes| !classes.get(class as usize).is_some_and(|copied| *copied)) {
            return;
        }
        let skipped = if self.made_up { Encapsulation::read(head).layer3 } else { 0 };
        let head = head.get(skipped..).unwrap_or_default();
        if self.made_up && !matches!(head.first().map(|first| first >> 4), Some(4 | 6)) {
            // A file without link headers cannot hold packets that are not IP.
            return;
        }
        let first = head.len().min(self.snaplen);
        let rest = body.len().min(self.snaplen - first);
        if self.buffer.len() + RECORD_HEADER + first + rest > self.buffer.capacity() && !self.hand_over() {
            self.missed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if self.buffer.is_empty() {
            self.since = now;
        }
        let at = now.wrapping_add(self.offset);
        let (seconds, nanos) = (at / 1_000_000_000, at % 1_000_000_000);
        let fields = [seconds as u32, nanos as u32, (first + rest) as u32, len.saturating_sub(skipped) as u32];
        fields.iter().for_each(|field| self.buffer.extend_from_slice(&field.to_le_bytes()));
        self.buffer.extend_from_slice(head.get(..first).unwrap_or_default());
        self.buffer.extend_from_slice(body.get(..rest).unwrap_or_default());
    }

    /// Hands over a buffer that has waited. False if the writer has gone.
    pub fn turn(&mut self, now: Nanos) -> bool {
        if !self.buffer.is_empty() && u128::from(now.saturating_sub(self.since)) >= WAITED.as_nanos() {
            self.hand_over();
        }
        !self.gone
    }

    /// Hands over the buffer, and takes an empty one. False if there is none.
    fn hand_over(&mut self) -> bool {
        match self.empty.try_recv() {
            Ok(empty) => {
                let full = std::mem::replace(&mut self.buffer, empty);
                // There is room for all buffers.
                self.gone = self.filled.try_send(full).is_err();
                !self.gone
            }
            Err(TryRecvError::Empty) => false,
            Err(TryRecvError::Disconnected) => {
                self.gone = true;
                false
            }
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        // The last buffer needs none in return.
        let _ = self.filled.try_send(take(&mut self.buffer));
    }
}

/// A tap that writes, or has ended.
pub struct Tapping(Arc<State>);

struct State {
    missed: Arc<AtomicU64>,
    done: Mutex<(Tapped, Instant)>,
    handle: Handle,
}

impl State {
    fn done(&self) -> MutexGuard<'_, (Tapped, Instant)> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Taps a loop into a file, in a thread of its own.
///
/// # Errors
/// [`Error::Io`] if there can be no thread.
pub(crate) fn start(handle: &Handle, wanted: Wanted, file: File) -> Result<Tapping, Error> {
    // One more than there are buffers, because the last one is sent without another in return.
    let (filled, to_write) = mpsc::sync_channel(PIECES + 1);
    let (written, empty) = mpsc::sync_channel(PIECES + 1);
    for _ in 1..PIECES {
        let _ = written.try_send(Vec::with_capacity(PIECE));
    }
    let missed = Arc::new(AtomicU64::new(0));
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let Wanted { classes, snaplen, size, made_up } = wanted;
    let snaplen = snaplen.min(MOST);
    let tap = Tap {
        classes,
        snaplen,
        made_up,
        offset: since_1970.wrapping_sub(now()),
        buffer: Vec::with_capacity(PIECE),
        since: 0,
        filled,
        empty,
        missed: missed.clone(),
        gone: false,
    };
    let state = State { missed, done: Mutex::new((Tapped::default(), Instant::now())), handle: handle.clone() };
    let state = Arc::new(state);
    let tapping = Tapping(state.clone());
    let write = move || {
        let header = header(snaplen, if made_up { RAW } else { ETHERNET });
        // A pipe has no position (lseek(2)).
        let waits = (&file).stream_position().is_err();
        let ended = Writer { file, waits, size, state: &state }.run(&header, &to_write, &written);
        // The loop drops its end before another tap can begin.
        state.handle.untap();
        state.done().0.ended = Some(ended);
    };
    let spawned = Builder::new().name("altq tap".to_owned()).spawn(write);
    spawned.map_err(|source| Error::Io { what: "starting a thread", source })?;
    handle.tap(Box::new(tap));
    Ok(tapping)
}

impl Tapping {
    /// What it has done so far. Each call keeps it running for ten seconds more.
    pub fn tapped(&self) -> Tapped {
        let mut done = self.0.done();
        done.1 = Instant::now();
        Tapped { missed: self.0.missed.load(Ordering::Relaxed), ..done.0.clone() }
    }

    /// Ends the tap. What was copied is still written; [`tapped`](Tapping::tapped) shows when that
    /// is done.
    pub fn end(&self) {
        self.0.handle.untap();
    }
}

impl Drop for Tapping {
    fn drop(&mut self) {
        self.end();
    }
}

/// The header of a file, little-endian on every machine.
fn header(snaplen: usize, kind: u32) -> [u8; FILE_HEADER] {
    let mut header = [0; FILE_HEADER];
    let fields: [&[u8]; 6] = [
        &0xa1b2_3c4d_u32.to_le_bytes(),
        &2_u16.to_le_bytes(),
        &4_u16.to_le_bytes(),
        // Reserved.
        &[0; 8],
        &(snaplen as u32).to_le_bytes(),
        &kind.to_le_bytes(),
    ];
    for (to, from) in header.iter_mut().zip(fields.concat()) {
        *to = from;
    }
    header
}

/// Bytes that a pipe takes at once when it takes any (PIPE_BUF, pipe(7)).
const AT_ONCE: usize = 4096;

struct Writer<'a> {
    file: File,
    /// Whether a reader who stands still makes a write wait: it is a pipe.
    waits: bool,
    size: u64,
    state: &'a State,
}

impl Writer<'_> {
    /// Writes buffers until the tap ends, and returns why it has ended.
    fn run(mut self, header: &[u8], to_write: &Receiver<Vec<u8>>, written: &SyncSender<Vec<u8>>) -> Ended {
        if let Err(ended) = self.write(header, 0) {
            return ended;
        }
        loop {
            match to_write.recv_timeout(WAITED) {
                Ok(mut buffer) => {
                    if let Err(ended) = self.records(&buffer) {
                        return ended;
                    }
                    buffer.clear();
                    // If the loop has ended, it needs no buffer.
                    let _ = written.try_send(buffer);
                }
                // Wakes the loop, so that it hands over what it has.
                Err(RecvTimeoutError::Timeout) => self.state.handle.wake(),
                Err(RecvTimeoutError::Disconnected) => return Ended::Asked,
            }
            if self.state.done().1.elapsed() > LEASE {
                return Ended::Left;
            }
        }
    }

    /// Writes the records of a buffer, as many as the file has room for.
    fn records(&mut self, buffer: &[u8]) -> Result<(), Ended> {
        let room = self.size.saturating_sub(self.state.done().0.bytes);
        let (mut end, mut count) = (0, 0);
        while let Some(kept) = buffer.get(end + 8..end + 12).and_then(|bytes| bytes.first_chunk::<4>()) {
            let next = end + RECORD_HEADER + u32::from_le_bytes(*kept) as usize;
            if next as u64 > room {
                self.write(buffer.get(..end).unwrap_or_default(), count)?;
                return Err(Ended::Full);
            }
            (end, count) = (next, count + 1);
        }
        self.write(buffer.get(..end).unwrap_or_default(), count)
    }

    fn write(&mut self, bytes: &[u8], packets: u64) -> Result<(), Ended> {
        let most = if self.waits { AT_ONCE } else { usize::MAX };
        for piece in bytes.chunks(most) {
            if self.waits {
                self.wait()?;
            }
            self.file.write_all(piece).map_err(|error| match error.kind() {
                ErrorKind::BrokenPipe => Ended::Closed,
                _ => Ended::Failed(error.to_string()),
            })?;
        }
        let mut done = self.state.done();
        done.0.packets += packets;
        done.0.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Waits until the file takes bytes, at most until whoever has tapped is gone.
    fn wait(&self) -> Result<(), Ended> {
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(WAITED.subsec_nanos()) as _ };
        loop {
            let mut watched = [PollFd::new(&self.file, PollFlags::OUT)];
            match poll(&mut watched, Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => {}
                // An error is one of the write as well.
                _ => return Ok(()),
            }
            if self.state.done().1.elapsed() > LEASE {
                return Err(Ended::Left);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    mod stuck;

    use super::*;

    /// The loop's end of a tap, with the test as the writer.
    fn ends(wanted: &Wanted, pieces: usize) -> (Tap, Receiver<Vec<u8>>, SyncSender<Vec<u8>>) {
        let (filled, to_write) = mpsc::sync_channel(PIECES + 1);
        let (written, empty) = mpsc::sync_channel(PIECES + 1);
        for _ in 1..pieces {
            written.try_send(Vec::with_capacity(100)).unwrap();
        }
        let tap = Tap {
            classes: wanted.classes.clone(),
            snaplen: wanted.snaplen,
            made_up: wanted.made_up,
            offset: 5_000_000_000,
            buffer: Vec::with_capacity(100),
            since: 0,
            filled,
            empty,
            missed: Arc::default(),
            gone: false,
        };
        (tap, to_write, written)
    }

    const ALL: Wanted = Wanted { classes: None, snaplen: 30, size: 1000, made_up: false };

    #[test]
    fn records_are_those_of_the_draft() {
        let (mut tap, filled, _written) = ends(&ALL, 2);
        tap.copy(1_000_000_007, 3, b"head", b"body", 1500);
        assert!(tap.turn(1_099_999_999) && filled.try_recv().is_err(), "it waits for more");
        assert!(tap.turn(1_100_000_007));
        // Time 6 s and 7 ns; 8 of 1500 bytes are kept.
        let record = [&[6, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0, 0xdc, 5, 0, 0][..], b"headbody"].concat();
        assert_eq!(filled.try_recv().unwrap(), record);
        let header = header(30, RAW);
        assert_eq!(header[..8], [0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0]);
        assert_eq!(header[8..], [0, 0, 0, 0, 0, 0, 0, 0, 30, 0, 0, 0, 101, 0, 0, 0]);
    }

    #[test]
    fn what_does_not_fit_is_counted_and_not_waited_for() {
        let (mut tap, filled, written) = ends(&ALL, 2);
        // Two records of 46 bytes fit into a buffer of 100, and there are two of these.
        for n in 0..7 {
            tap.copy(n, 0, &[n as u8; 40], &[], 40);
        }
        assert_eq!(tap.missed.load(Ordering::Relaxed), 3);
        let mut first = filled.try_recv().unwrap();
        assert_eq!((first.len(), first[16], first[62]), (92, 0, 1));
        first.clear();
        written.try_send(first).unwrap();
        tap.copy(7, 0, &[7; 40], &[], 40);
        assert_eq!(tap.missed.load(Ordering::Relaxed), 3);
        // At the end nothing is lost, and no buffer has grown.
        drop(tap);
        let rest: Vec<Vec<u8>> = filled.try_iter().collect();
        assert_eq!(rest.iter().map(|one| (one.len(), one.capacity())).collect::<Vec<_>>(), [(92, 100), (46, 100)]);
        assert_eq!((rest[0][16], rest[1][16]), (2, 7));
    }

    #[test]
    fn classes_and_made_up_headers_are_left_out() {
        let wanted = Wanted { classes: Some(vec![false, true]), made_up: true, ..ALL };
        let (mut tap, filled, _written) = ends(&wanted, 2);
        let frame = |version: u8| [&[0; 12][..], &[8, 0, version << 4 | 5, 9]].concat();
        for (class, version) in [(0, 4), (1, 4), (2, 4), (1, 0)] {
            tap.copy(0, class, &frame(version), &[], 64);
        }
        drop(tap);
        let records = filled.try_recv().unwrap();
        assert_eq!((records.len(), &records[8..]), (18, &[2, 0, 0, 0, 50, 0, 0, 0, 0x45, 9][..]));
    }

    #[test]
    fn without_a_writer_a_tap_ends() {
        let (mut tap, filled, written) = ends(&ALL, 1);
        drop((filled, written));
        tap.copy(0, 0, b"x", &[], 1);
        assert!(!tap.turn(SECOND));
    }

    const SECOND: Nanos = 1_000_000_000;
}
