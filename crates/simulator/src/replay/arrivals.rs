//! The list of arrivals: a CSV file that is read in one pass and checked as a whole before anything
//! runs.

use std::fmt;
use std::io::{self, BufRead};

use altq_cases::limits::{LARGEST_PACKET, MOST_QUEUES};
use altq_config::Link;
use altq_config::suggest::nearest;
use altq_engine::Packet;
use altq_engine::spec::ClassId;
use altq_engine::units::Nanos;

/// The longest line that is accepted, in bytes.
const LONGEST_LINE: usize = 64 * 1024;

/// The arrivals, sorted by time, in 24 bytes per packet, or 28 if flows are given.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    pub(super) times: Vec<Nanos>,
    pub(super) classes: Vec<ClassId>,
    pub(super) bytes: Vec<u32>,
    pub(super) ids: Ids,
    /// Hashes of the flows' names; empty if the list has none.
    pub(super) flows: Vec<u32>,
    /// DSCP and ECN as in the octet of the IP header; empty if the list has neither.
    pub(super) tos: Vec<u8>,
    /// Whether the queue `two_level` serves the packet first; empty if the list does not say.
    pub(super) high: Vec<bool>,
    /// Hashes of the source's and the destination's name; empty if the list has neither.
    pub(super) hosts: Vec<[u16; 2]>,
    /// Number of packets on the wire that each entry stands for; empty if the list does not say.
    pub(super) segments: Vec<u16>,
    /// Transmit queues; empty if the list does not say.
    pub(super) queues: Vec<u8>,
    /// Where the file was cut short, if it was.
    pub cut: Option<Cut>,
    /// True if the last line has all its fields but no newline.
    pub open_end: bool,
}

/// The packets' ids, as they were written.
#[derive(Clone, Debug)]
pub(super) enum Ids {
    /// All ids are whole numbers.
    Numbers(Vec<u64>),
    /// Ids with any text, one after another, and the offset at which each one ends.
    Texts { text: String, ends: Vec<usize> },
}

impl Default for Ids {
    fn default() -> Ids {
        Ids::Numbers(Vec::new())
    }
}

impl Ids {
    fn push(&mut self, id: &str) {
        match self {
            Ids::Numbers(numbers) => match plain_number(id) {
                Some(number) => numbers.push(number),
                None => {
                    let mut text = String::new();
                    let mut ends = Vec::with_capacity(numbers.len() + 1);
                    for number in numbers.iter() {
                        text.push_str(&number.to_string());
                        ends.push(text.len());
                    }
                    *self = Ids::Texts { text, ends };
                    self.push(id);
                }
            },
            Ids::Texts { text, ends } => {
                text.push_str(id);
                ends.push(text.len());
            }
        }
    }
}

/// The number that a text stands for, if the number prints as that text.
fn plain_number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if digits { text.parse().ok() } else { None }
}

/// A file that ends within a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The line, from 1.
    pub line: u64,
    /// Where in the file that line begins, in bytes.
    pub byte: u64,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: the file is cut short within this line, which begins at byte {}", self.line, self.byte)
    }
}

/// Why a list of arrivals cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ArrivalsError {
    /// It cannot be read.
    #[error("line {line}: {error}")]
    Io {
        /// The line, from 1.
        line: u64,
        /// Why.
        error: io::Error,
    },
    /// A line is wrong.
    #[error("line {line}{}: {message}", column.as_ref().map(|c| format!(", {c}")).unwrap_or_default())]
    Line {
        /// The line, from 1.
        line: u64,
        /// The column's name.
        column: Option<&'static str>,
        /// What is wrong with it, and what could be written instead.
        message: String,
    },
}

/// The names of all columns that a list may have; the first [`REQUIRED`] must be there.
const COLUMNS: [&str; 12] =
    ["time_ns", "class", "bytes", "id", "flow", "dscp", "ecn", "high", "src", "dst", "segments", "tx_queue"];
const REQUIRED: usize = 4;
const TIME: usize = 0;
const CLASS: usize = 1;
const BYTES: usize = 2;
const ID: usize = 3;
const FLOW: usize = 4;
const DSCP: usize = 5;
const ECN: usize = 6;
const HIGH: usize = 7;
const SRC: usize = 8;
const DST: usize = 9;
const SEGMENTS: usize = 10;
const TX_QUEUE: usize = 11;

impl Arrivals {
    /// Room for `n` packets.
    pub fn with_capacity(n: usize) -> Arrivals {
        Arrivals {
            times: Vec::with_capacity(n),
            classes: Vec::with_capacity(n),
            bytes: Vec::with_capacity(n),
            ids: Ids::Numbers(Vec::with_capacity(n)),
            ..Arrivals::default()
        }
    }

    /// Adds an arrival at the end, and returns true. If it is earlier than the last one, it is not
    /// added, and the result is false.
    pub fn push(&mut self, time: Nanos, class: ClassId, bytes: u32, id: u64) -> bool {
        if self.times.last().is_some_and(|last| *last > time) {
            return false;
        }
        self.times.push(time);
        self.classes.push(class);
        self.bytes.push(bytes);
        match &mut self.ids {
            Ids::Numbers(numbers) => numbers.push(id),
            texts => texts.push(&id.to_string()),
        }
        true
    }

    /// The number of packets.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// When a packet arrives.
    #[inline]
    pub fn time(&self, at: usize) -> Option<Nanos> {
        self.times.get(at).copied()
    }

    /// Class, bytes, flow hash, and TOS octet of a packet.
    #[inline]
    pub fn packet(&self, at: usize) -> (ClassId, u32, u32, u8) {
        let flow = self.flows.get(at).copied().unwrap_or(0);
        (self.classes[at], self.bytes[at], flow, self.tos.get(at).copied().unwrap_or(0))
    }

    /// Whether the queue `two_level` serves a packet first.
    #[inline]
    pub fn high(&self, at: usize) -> bool {
        self.high.get(at).copied().unwrap_or(false)
    }

    /// Hashes of a packet's source and destination host.
    #[inline]
    pub fn hosts(&self, at: usize) -> [u16; 2] {
        self.hosts.get(at).copied().unwrap_or_default()
    }

    /// The engine's descriptor of a packet, without its handle.
    #[inline]
    pub fn descriptor(&self, at: usize) -> Packet {
        let (_, bytes, flow, tos) = self.packet(at);
        let segments = self.segments.get(at).copied().unwrap_or(1);
        Packet {
            flow,
            segments,
            dscp: tos >> 2,
            ecn: tos & 3,
            high: self.high(at),
            hosts: self.hosts(at),
            ..Packet::new(0, bytes)
        }
    }

    /// The transmit queue of a packet, of `of` queues: the one that the list names, or one chosen
    /// by its flow.
    pub fn queue(&self, at: usize, of: usize) -> usize {
        match self.queues.get(at) {
            Some(queue) => usize::from(*queue) % of.max(1),
            None => self.packet(at).2 as usize % of.max(1),
        }
    }

    /// An error if the list does not say by which of `queues` transmit queues each packet leaves.
    pub fn check_queues(&self, queues: usize) -> Result<(), String> {
        if let Some(wrong) = self.queues.iter().find(|queue| usize::from(**queue) >= queues) {
            return Err(format!("the list names transmit queue {wrong}, but there are {queues}, counted from 0"));
        }
        if self.queues.is_empty() && self.flows.is_empty() && !self.is_empty() {
            return Err(
                "the list must say which packet goes by which transmit queue: with a column tx_queue, or flow".into()
            );
        }
        Ok(())
    }

    /// Writes a packet's id as it was read.
    pub fn write_id(&self, at: usize, out: &mut Vec<u8>) {
        match &self.ids {
            Ids::Numbers(numbers) => super::csv::number(out, numbers.get(at).copied().unwrap_or(0)),
            Ids::Texts { text, ends } => {
                let start = if at == 0 { 0 } else { ends[at - 1] };
                super::csv::text(out, &text[start..ends[at]]);
            }
        }
    }

    /// Reads and checks a list for the classes of `link`. Lines end in LF or CRLF. The names in the
    /// header say which column is which.
    ///
    /// If the last line is cut short, [`cut`](Arrivals::cut) says so, and the lines before it are
    /// kept. A line counts as cut short if it has no newline, fields are missing, and the rest
    /// could be the beginning of a correct line. Anything else that is wrong is an error.
    pub fn read(mut input: impl BufRead, link: &Link) -> Result<Arrivals, ArrivalsError> {
        let mut arrivals = Arrivals::default();
        let names = Names::new(link);
        let mut header: Option<Vec<usize>> = None;
        let mut line = Vec::new();
        let (mut number, mut byte) = (0u64, 0u64);
        loop {
            line.clear();
            number += 1;
            let read = read_line(&mut input, &mut line).map_err(|error| ArrivalsError::Io { line: number, error })?;
            if read == 0 {
                break;
            }
            if line.len() > LONGEST_LINE {
                return Err(bad(number, None, format!("it is longer than {LONGEST_LINE} bytes")));
            }
            let ended = line.pop_if(|b| *b == b'\n').is_some();
            line.pop_if(|b| *b == b'\r');
            let text = match std::str::from_utf8(&line) {
                Ok(text) => text,
                Err(error) => {
                    return Err(bad(
                        number,
                        None,
                        format!("byte {} is not UTF-8 text", byte + error.valid_up_to() as u64),
                    ));
                }
            };
            match &header {
                None => {
                    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
                    header = Some(read_header(text)?);
                }
                Some(columns) => match arrivals.read_arrival(text, columns, &names, number) {
                    Ok(()) => arrivals.open_end = !ended,
                    Err(_) if !ended && arrivals.could_begin(text, columns, &names, number) => {
                        arrivals.cut = Some(Cut { line: number, byte });
                    }
                    Err(error) => return Err(error),
                },
            }
            byte += read as u64;
        }
        if header.is_none() {
            return Err(bad(
                1,
                None,
                format!("the file is empty; its first line names the columns: {}", COLUMNS[..REQUIRED].join(",")),
            ));
        }
        Ok(arrivals)
    }

    fn read_arrival(&mut self, text: &str, columns: &[usize], names: &Names, line: u64) -> Result<(), ArrivalsError> {
        let mut fields: [&str; COLUMNS.len()] = [""; COLUMNS.len()];
        let count = split(text, line, |at, field| {
            if let Some(column) = columns.get(at) {
                fields[*column] = field;
            }
        })?;
        if count != columns.len() {
            let found = match count {
                1 if text.is_empty() => "an empty line".to_string(),
                1 => "1 field".to_string(),
                n => format!("{n} fields"),
            };
            return Err(bad(line, None, format!("{found} where the header names {} columns", columns.len())));
        }
        let time = whole(fields[TIME], TIME, line, 0, u64::MAX)?;
        if let Some(last) = self.times.last().filter(|last| **last > time) {
            let message = format!("{time} is earlier than {last} on the line before; the list must be sorted by time");
            return Err(bad(line, Some("time_ns"), message));
        }
        let class = names.find(fields[CLASS]).ok_or_else(|| names.unknown(fields[CLASS], line))?;
        let bytes = whole(fields[BYTES], BYTES, line, 1, u64::from(LARGEST_PACKET))? as u32;
        if fields[ID].is_empty() {
            return Err(bad(line, Some("id"), "it is empty".into()));
        }
        let tos = if columns.iter().any(|c| *c == DSCP || *c == ECN) {
            let dscp = if columns.contains(&DSCP) { whole(fields[DSCP], DSCP, line, 0, 63)? } else { 0 };
            let ecn = if columns.contains(&ECN) { whole(fields[ECN], ECN, line, 0, 3)? } else { 0 };
            Some((dscp << 2 | ecn) as u8)
        } else {
            None
        };
        if columns.contains(&HIGH) {
            self.high.push(whole(fields[HIGH], HIGH, line, 0, 1)? == 1);
        }
        if columns.contains(&SEGMENTS) {
            let most = u64::from(bytes.min(u32::from(u16::MAX)));
            self.segments.push(whole(fields[SEGMENTS], SEGMENTS, line, 1, most)? as u16);
        }
        if columns.contains(&TX_QUEUE) {
            self.queues.push(whole(fields[TX_QUEUE], TX_QUEUE, line, 0, MOST_QUEUES as u64 - 1)? as u8);
        }
        self.times.push(time);
        self.classes.push(class);
        self.bytes.push(bytes);
        self.ids.push(fields[ID]);
        if columns.contains(&FLOW) {
            self.flows.push(flow_hash(fields[FLOW]));
        }
        if columns.contains(&SRC) || columns.contains(&DST) {
            self.hosts.push([fields[SRC], fields[DST]].map(|host| flow_hash(host) as u16));
        }
        self.tos.extend(tos);
        Ok(())
    }

    /// True if the line could be the beginning of a correct one: fields are missing at its end, and
    /// those that are there are correct, the last one as far as it goes.
    fn could_begin(&self, text: &str, columns: &[usize], names: &Names, line: u64) -> bool {
        let mut good = true;
        let mut last = (0, "");
        let count = split(text, line, |at, field| {
            if at > 0 {
                good &= columns.get(last.0).is_some_and(|c| self.good_field(*c, last.1, names, line));
            }
            last = (at, field);
        });
        let Ok(count) = count else { return text.contains('"') && good };
        let Some(column) = columns.get(last.0) else { return false };
        let prefix = last.1.is_empty()
            || match *column {
                CLASS => names.sorted.iter().any(|(name, _)| name.starts_with(last.1)),
                // The time may have lost its last digits.
                TIME => last.1.bytes().all(|b| b.is_ascii_digit()),
                column => self.good_field(column, last.1, names, line),
            };
        good && prefix && (count < columns.len() || last.1.is_empty())
    }

    fn good_field(&self, column: usize, field: &str, names: &Names, line: u64) -> bool {
        match column {
            TIME => whole(field, TIME, line, self.times.last().copied().unwrap_or(0), u64::MAX).is_ok(),
            CLASS => names.find(field).is_some(),
            BYTES => whole(field, BYTES, line, 1, u64::from(LARGEST_PACKET)).is_ok(),
            ID => !field.is_empty(),
            DSCP => whole(field, DSCP, line, 0, 63).is_ok(),
            ECN => whole(field, ECN, line, 0, 3).is_ok(),
            HIGH => whole(field, HIGH, line, 0, 1).is_ok(),
            SEGMENTS => whole(field, SEGMENTS, line, 1, u64::from(u16::MAX)).is_ok(),
            TX_QUEUE => whole(field, TX_QUEUE, line, 0, MOST_QUEUES as u64 - 1).is_ok(),
            _ => true,
        }
    }
}

/// A flow's hash from its name: FNV-1a, which gives the same value on every machine and in every
/// version.
pub fn flow_hash(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Reads up to the newline and including it, but at most [`LONGEST_LINE`] bytes.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        let buffer = match input.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if buffer.is_empty() {
            return Ok(line.len());
        }
        let (used, ended) = match buffer.iter().position(|b| *b == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), false),
        };
        line.extend_from_slice(&buffer[..used]);
        input.consume(used);
        if ended || line.len() > LONGEST_LINE {
            return Ok(line.len());
        }
    }
}

/// The fields of a line, separated by commas. A field may stand in double quotes, as in RFC 4180 2,
/// if it contains none itself.
fn split<'a>(text: &'a str, line: u64, mut field: impl FnMut(usize, &'a str)) -> Result<usize, ArrivalsError> {
    let mut count = 0;
    let mut rest = text;
    loop {
        if let Some(quoted) = rest.strip_prefix('"') {
            let Some(end) = quoted.find('"') else {
                return Err(bad(line, None, "a quote is not closed".into()));
            };
            field(count, &quoted[..end]);
            count += 1;
            match quoted[end + 1..].strip_prefix(',') {
                Some(more) => rest = more,
                None if quoted.len() == end + 1 => return Ok(count),
                None => return Err(bad(line, None, "text follows a closing quote".into())),
            }
            continue;
        }
        match rest.split_once(',') {
            Some((one, more)) => {
                field(count, one);
                rest = more;
            }
            None => {
                field(count, rest);
                return Ok(count + 1);
            }
        }
        count += 1;
    }
}

fn read_header(text: &str) -> Result<Vec<usize>, ArrivalsError> {
    let mut columns: Vec<usize> = Vec::new();
    let mut wrong = None;
    split(text, 1, |_, name| match COLUMNS.iter().position(|c| *c == name) {
        Some(at) if columns.contains(&at) => wrong = Some(format!("the column {name} is named twice")),
        Some(at) => columns.push(at),
        None => {
            let name: String = name.chars().take(40).collect();
            let hint =
                nearest(&name, COLUMNS.iter().copied()).map(|c| format!("; did you mean {c}?")).unwrap_or_default();
            wrong.get_or_insert(format!(
                "there is no column {name:?}{hint}. The first line names the columns: {}",
                COLUMNS.join(",")
            ));
        }
    })?;
    if let Some(message) = wrong {
        return Err(bad(1, None, message));
    }
    if let Some(missing) = (0..REQUIRED).find(|c| !columns.contains(c)) {
        return Err(bad(1, None, format!("the column {} is missing", COLUMNS[missing])));
    }
    Ok(columns)
}

fn bad(line: u64, column: Option<&'static str>, message: String) -> ArrivalsError {
    ArrivalsError::Line { line, column, message }
}

fn whole(field: &str, column: usize, line: u64, min: u64, max: u64) -> Result<u64, ArrivalsError> {
    let digits = !field.is_empty() && field.bytes().all(|b| b.is_ascii_digit());
    match field.parse::<u64>() {
        Ok(value) if digits && (min..=max).contains(&value) => Ok(value),
        _ => {
            let field: String = field.chars().take(40).collect();
            let range = if max == u64::MAX { format!("from {min}") } else { format!("from {min} to {max}") };
            Err(bad(line, Some(COLUMNS[column]), format!("{field:?} is not a whole number {range}")))
        }
    }
}

/// The classes' names, sorted.
struct Names<'a> {
    sorted: Vec<(&'a str, ClassId)>,
}

impl<'a> Names<'a> {
    fn new(link: &'a Link) -> Names<'a> {
        let mut sorted: Vec<_> =
            link.classes.iter().enumerate().map(|(id, class)| (class.name.as_str(), id as ClassId)).collect();
        // If several classes have the same name, the first one is meant.
        sorted.sort();
        sorted.dedup_by_key(|(name, _)| *name);
        Names { sorted }
    }

    fn find(&self, name: &str) -> Option<ClassId> {
        self.sorted.binary_search_by_key(&name, |(name, _)| name).ok().map(|at| self.sorted[at].1)
    }

    fn unknown(&self, name: &str, line: u64) -> ArrivalsError {
        let shown: String = name.chars().take(40).collect();
        let hint = match nearest(&shown, self.sorted.iter().map(|(name, _)| *name)) {
            Some(name) => format!("; did you mean {name:?}?"),
            None => String::new(),
        };
        bad(line, Some("class"), format!("the link has no class {shown:?}{hint}"))
    }
}
