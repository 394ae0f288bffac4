//! A history in memory that outlives the process that watches. It is written second by second, and
//! read by the next process.
//!
//! The memory has a fixed size and is divided into three rings: names of classes, seconds, and
//! quarters of a minute. A new record in a ring overwrites the oldest. A record is a head of 32
//! bytes (magic, length, number, hash) and a body, padded to a multiple of 32 bytes. The reader
//! looks for heads at multiples of 32 bytes and takes only records whose hash is right. So a record
//! that a killed process has left half written, or that is overwritten in part, is ignored.
//!
//! In a slice classes are numbers. So its record has the hash of the names that these numbers had.
//! Names are written when they change, and again before their ring overwrites them.

use std::collections::HashMap;
use std::sync::Arc;

use crate::slice::{Slice, SliceRef};

/// The fewest bytes that can hold a history.
pub const LEAST: usize = 1 << 16;
/// Every record begins at a multiple of this, and its head has this length.
const UNIT: usize = 32;
/// Another form of the records has another one, so a process of another version finds nothing.
const MAGIC: u32 = 0x414c_5453;

/// Where to write in the memory, and the bytes.
pub type Write = (u64, Vec<u8>);

/// What an earlier process has kept of a link: slices with the names that their classes had, the
/// oldest first.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// Seconds.
    pub seconds: Vec<(Slice, Arc<[String]>)>,
    /// Quarters of a minute.
    pub quarters: Vec<(Slice, Arc<[String]>)>,
}

/// A part of the memory in which new records overwrite the oldest.
#[derive(Clone, Copy, Debug, Default)]
struct Ring {
    from: usize,
    size: usize,
    /// Where the next record goes, counted from `from`.
    at: usize,
    /// The number of the next record.
    number: u64,
    /// Bytes written so far.
    written: u64,
}

/// The names of a link's classes, as they were written.
#[derive(Clone, Debug)]
struct Names {
    hash: u64,
    bytes: Vec<u8>,
    /// How many bytes had been written to their ring then.
    written: u64,
}

/// Where the next records go.
#[derive(Clone, Debug)]
pub struct Records {
    names: Ring,
    seconds: Ring,
    quarters: Ring,
    of_links: HashMap<String, Names>,
}

/// A record that was read: its number, and its body.
type Record<'a> = (u64, &'a [u8]);

impl Ring {
    /// Reads the records of this part of the memory, the oldest first. The next record will go
    /// after the newest one.
    fn read<'a>(&mut self, memory: &'a [u8]) -> Vec<Record<'a>> {
        let bytes = memory.get(self.from..self.from + self.size).unwrap_or(&[]);
        let (mut found, mut at) = (Vec::new(), 0);
        while let Some(head) = bytes.get(at..at + UNIT) {
            match record(head, bytes.get(at + UNIT..).unwrap_or(&[])) {
                Some((number, body)) => {
                    let end = at + UNIT + body.len().next_multiple_of(UNIT);
                    if number >= self.number {
                        (self.number, self.at) = (number.saturating_add(1), end.min(self.size));
                    }
                    found.push((number, body));
                    at = end;
                }
                None => at += UNIT,
            }
        }
        found.sort_unstable_by_key(|(number, _)| *number);
        found
    }

    /// The next record and its place; `None` if it is larger than the ring.
    fn put(&mut self, body: &[u8]) -> Option<Write> {
        let size = UNIT + body.len().next_multiple_of(UNIT);
        let length = u32::try_from(body.len()).ok().filter(|_| size <= self.size)?;
        if self.at + size > self.size {
            self.at = 0;
        }
        let mut bytes = Vec::with_capacity(size);
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend(length.to_le_bytes());
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(hash(self.number, body).to_le_bytes());
        bytes.resize(UNIT, 0);
        bytes.extend_from_slice(body);
        bytes.resize(size, 0);
        let place = (self.from + self.at) as u64;
        self.at += size;
        self.number += 1;
        self.written += size as u64;
        Some((place, bytes))
    }
}

/// FNV-1a (G. Fowler, L. C. Noll, K.-P. Vo). It only has to show whether a record is whole.
fn hash(number: u64, body: &[u8]) -> u64 {
    let number = number.to_le_bytes();
    number
        .iter()
        .chain(body)
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

fn number_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// The record with this head, if it is whole.
fn record<'a>(head: &[u8], rest: &'a [u8]) -> Option<Record<'a>> {
    let first = number_at(head, 0)?;
    if first as u32 != MAGIC {
        return None;
    }
    let body = rest.get(..(first >> 32) as usize)?;
    let number = number_at(head, 8)?;
    (number_at(head, 16)? == hash(number, body)).then_some((number, body))
}

/// The body of a record about a link: the hash of its classes' names, the length of the link's
/// name, that name, and `more`.
fn about(link: &str, names: u64, more: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(16 + link.len() + more.len());
    body.extend(names.to_le_bytes());
    body.extend((link.len() as u32).to_le_bytes());
    body.extend_from_slice(link.as_bytes());
    body.extend_from_slice(more);
    body
}

/// The parts of what [`about`] made: hash, link, and `more`.
fn read_about(body: &[u8]) -> Option<(u64, &str, &[u8])> {
    let length = u32::from_le_bytes(*body.get(8..)?.first_chunk()?) as usize;
    let rest = body.get(12..)?;
    let link = std::str::from_utf8(rest.get(..length)?).ok()?;
    Some((number_at(body, 0)?, link, rest.get(length..)?))
}

impl Records {
    /// Reads what the memory holds, by link. New records will go after it. Memory of zeros holds
    /// nothing.
    pub fn open(memory: &[u8]) -> (Records, HashMap<String, Kept>) {
        let unit = memory.len() / 8 / UNIT * UNIT;
        let ring = |from: usize, parts: usize| Ring { from: from * unit, size: parts * unit, ..Ring::default() };
        let (mut names, mut seconds, mut quarters) = (ring(0, 1), ring(1, 3), ring(4, 4));
        let mut known: HashMap<u64, Arc<[String]>> = HashMap::new();
        for (_, body) in names.read(memory) {
            let Some((hash, _, text)) = read_about(body) else { continue };
            let text = String::from_utf8_lossy(text);
            known.entry(hash).or_insert_with(|| text.split('\n').map(str::to_owned).collect());
        }
        let mut kept: HashMap<String, Kept> = HashMap::new();
        for (ring, coarse) in [(&mut seconds, false), (&mut quarters, true)] {
            for (_, body) in ring.read(memory) {
                let Some((hash, link, bytes)) = read_about(body) else { continue };
                let (Some(slice), Some(names)) = (Slice::decoded(bytes), known.get(&hash)) else { continue };
                let kept = kept.entry(link.to_owned()).or_default();
                let slices = if coarse { &mut kept.quarters } else { &mut kept.seconds };
                slices.push((slice, names.clone()));
            }
        }
        (Records { names, seconds, quarters, of_links: HashMap::new() }, kept)
    }

    /// Sets the names of a link's classes, and returns what to write. `None` if these names were
    /// set already, or if they do not fit; then the link's slices are not recorded.
    pub fn set_names(&mut self, link: &str, names: &[String]) -> Option<Write> {
        let bytes = names.join("\n").into_bytes();
        let hash = hash(0, &bytes);
        // The ring is small: the same list again would push out lists that older slices need.
        if self.of_links.get(link).is_some_and(|names| names.hash == hash) {
            return None;
        }
        // Without a list of their own, slices must not get the names of the list before.
        self.of_links.remove(link);
        let write = self.names.put(&about(link, hash, &bytes))?;
        self.of_links.insert(link.to_owned(), Names { hash, bytes, written: self.names.written });
        Some(write)
    }

    /// Records a second of a link, and returns what to write. `None` if the link's names were not
    /// set, or if it does not fit.
    pub fn second(&mut self, link: &str, slice: SliceRef<'_>) -> Option<Write> {
        let names = self.of_links.get(link)?;
        self.seconds.put(&about(link, names.hash, &slice.encoded()))
    }

    /// Records a quarter of a minute. The link's names are written again if their ring would soon
    /// overwrite them.
    pub fn quarter(&mut self, link: &str, slice: SliceRef<'_>) -> Vec<Write> {
        let Some(names) = self.of_links.get_mut(link) else { return Vec::new() };
        let quarter = self.quarters.put(&about(link, names.hash, &slice.encoded()));
        let old = self.names.written.saturating_sub(names.written) > self.names.size as u64 / 4;
        let again = old.then(|| self.names.put(&about(link, names.hash, &names.bytes))).flatten();
        if again.is_some() {
            names.written = self.names.written;
        }
        quarter.into_iter().chain(again).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slice::Point;

    fn slice(second: u64) -> Slice {
        let point = Point { sent_packets: second + 1, sent_bytes: second * 1000 + 1, ..Point::default() };
        Slice::new(second, second + 1, 1, (0..20).map(|class| (class, point)))
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    fn put(memory: &mut [u8], writes: impl IntoIterator<Item = Write>) {
        for (at, bytes) in writes {
            memory[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
        }
    }

    #[test]
    fn the_latest_comes_back_whatever_was_cut_off() {
        let mut memory = vec![0u8; LEAST];
        let (mut records, kept) = Records::open(&memory);
        assert!(kept.is_empty());
        put(&mut memory, records.set_names("wan", &names(&["link", "a"])));
        put(&mut memory, records.set_names("lan", &names(&["other"])));
        for second in 0..500 {
            put(&mut memory, records.second("wan", slice(second).view()));
            if second % 15 == 14 {
                put(&mut memory, records.quarter("wan", slice(second).view()));
            }
        }
        put(&mut memory, records.second("lan", slice(7).view()));
        assert!(records.second("unknown", slice(7).view()).is_none());
        let (mut again, mut kept) = Records::open(&memory);
        let wan = kept.remove("wan").unwrap();
        // Three eighths of 65,536 bytes hold some 60 seconds of 20 classes. All quarters of a
        // minute fit.
        let count = wan.seconds.len() as u64;
        assert!((30..100).contains(&count), "{count}");
        let seconds: Vec<Slice> = wan.seconds.iter().map(|(slice, _)| slice.clone()).collect();
        assert_eq!(seconds, (500 - count..500).map(slice).collect::<Vec<_>>());
        assert_eq!(wan.quarters.len(), 33);
        assert!(wan.seconds.iter().all(|(_, of)| **of == names(&["link", "a"])));
        let (only, of) = &kept["lan"].seconds[0];
        assert_eq!((only, &**of, kept["lan"].seconds.len()), (&slice(7), &names(&["other"])[..], 1));
        // The next process goes on after them. Its last record is cut off in the middle.
        put(&mut memory, again.set_names("wan", &names(&["link", "b"])));
        put(&mut memory, again.second("wan", slice(500).view()));
        let (at, mut bytes) = again.second("wan", slice(501).view()).unwrap();
        bytes.truncate(bytes.len() / 2);
        put(&mut memory, [(at, bytes)]);
        let (_, kept) = Records::open(&memory);
        let (last, of) = kept["wan"].seconds.last().unwrap();
        assert_eq!((last, &**of), (&slice(500), &names(&["link", "b"])[..]));
        let (before, of) = &kept["wan"].seconds[kept["wan"].seconds.len() - 2];
        assert_eq!((before.clone(), &**of), (slice(499), &names(&["link", "a"])[..]));
    }

    #[test]
    fn a_list_is_written_once_and_one_that_does_not_fit_ends_the_record() {
        let memory = vec![0u8; LEAST];
        let (mut records, _) = Records::open(&memory);
        assert!(records.set_names("wan", &names(&["link", "a"])).is_some());
        assert!(records.set_names("wan", &names(&["link", "a"])).is_none());
        assert!(records.second("wan", slice(0).view()).is_some());
        // Longer than all of the memory.
        let long = "x".repeat(LEAST);
        assert!(records.set_names("wan", &names(&["link", &long])).is_none());
        assert!(records.second("wan", slice(1).view()).is_none());
        assert!(records.set_names("wan", &names(&["link", "a"])).is_some());
    }

    #[test]
    fn names_are_there_as_long_as_slices_need_them() {
        let mut memory = vec![0u8; LEAST];
        let (mut records, _) = Records::open(&memory);
        put(&mut memory, records.set_names("wan", &names(&["link", "a"])));
        // Another link has new classes again and again.
        for second in 0..2000u64 {
            put(&mut memory, records.set_names("lan", &names(&["l", &format!("c{second}")])));
            put(&mut memory, records.quarter("wan", slice(second).view()));
        }
        let (_, kept) = Records::open(&memory);
        assert_eq!(kept["wan"].quarters.last().unwrap().0, slice(1999));
    }

    #[test]
    fn noise_is_no_record_and_what_is_too_large_is_left_out() {
        let noise: Vec<u8> = (0..LEAST as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        assert!(Records::open(&noise).1.is_empty());
        assert!(Records::open(&[]).1.is_empty());
        let (mut records, _) = Records::open(&noise);
        let many: Vec<String> = (0..10_000).map(|n| format!("class-{n}")).collect();
        assert!(records.set_names("wan", &many).is_none());
        assert!(records.second("wan", slice(1).view()).is_none());
    }
}
