//! Captures: reads pcap (draft-ietf-opsawg-pcap) and pcapng (draft-ietf-opsawg-pcapng, with packets
//! from enhanced, simple and the obsolete packet blocks), and writes pcap.
//!
//! Written by hand: a library would replace the framing of records and blocks, about 130 lines, and
//! needs as many for what it lacks. The errors of pcap-parser 0.17 do not say at which byte a file
//! is damaged nor why, and it reads no obsolete packet blocks.

use std::fmt;
use std::io::{self, Write};

use altq_engine::headers::{Key, parse_ethernet, parse_ip};
use altq_engine::units::Nanos;

/// A captured packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// When it was captured, counted from the capture's first packet.
    pub time: Nanos,
    /// The key by which it is classified, with its length at layer 3.
    pub key: Key,
    /// Whether a queue with two levels serves it first.
    pub high: bool,
    /// Its length on the medium, link layer included.
    pub len: u32,
    /// The range of [`Capture::bytes`] that was captured of it.
    data: (usize, usize),
    /// Whether the data begins with an Ethernet header.
    ethernet: bool,
}

/// The packets of a file.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    /// The packets, in order of time.
    pub frames: Vec<Frame>,
    /// The whole file.
    bytes: Vec<u8>,
    /// Where the file is cut short, if it is; `frames` has the packets before that place.
    pub cut: Option<Cut>,
    /// Number of packets that were older than the one before them in the file.
    pub disordered: usize,
}

/// Where a capture is cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The byte at which the incomplete packet or block begins.
    pub byte: usize,
    /// The size of the file in bytes.
    pub size: usize,
    /// The number of packets before it.
    pub packets: usize,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cut { byte, size, packets } = self;
        write!(
            f,
            "the capture is cut short: what begins at byte {byte}, behind {packets} packets, goes beyond its end at \
             byte {size}"
        )
    }
}

/// Why a capture cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    /// The file is of neither format.
    #[error("this is neither pcap nor pcapng: it begins with {0:02x?}")]
    Unknown(Vec<u8>),
    /// The file has a link type that is not supported.
    #[error("link type {0} at byte {1}; Ethernet (1) and raw IP (12, 14, 101, 228, 229) are read")]
    LinkType(u32, usize),
    /// A packet or block of the file makes no sense.
    #[error("byte {at}: {what}")]
    Bad {
        /// The byte at which it begins.
        at: usize,
        /// What is wrong.
        what: String,
    },
}

/// The largest packet in bytes; a longer one means that the file is damaged.
const LONGEST: u32 = 1 << 20;

/// Reads numbers of a file, in its byte order.
#[derive(Clone, Copy)]
struct Reader<'a> {
    bytes: &'a [u8],
    big: bool,
}

impl Reader<'_> {
    fn u16(&self, at: usize) -> Option<u16> {
        let b = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.big { u16::from_be_bytes(b) } else { u16::from_le_bytes(b) })
    }

    fn u32(&self, at: usize) -> Option<u32> {
        let b = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.big { u32::from_be_bytes(b) } else { u32::from_le_bytes(b) })
    }

    fn u64(&self, at: usize) -> Option<u64> {
        let b = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.big { u64::from_be_bytes(b) } else { u64::from_le_bytes(b) })
    }
}

/// Whether packets of a link type begin with an Ethernet header; `None` if it is not supported.
fn link_type(number: u32) -> Option<bool> {
    match number {
        1 => Some(true),
        12 | 14 | 101 | 228 | 229 => Some(false),
        _ => None,
    }
}

impl Capture {
    /// Reads a whole file. If it is cut short, everything before that place is read
    /// ([`cut`](Capture::cut)).
    pub fn read(bytes: Vec<u8>) -> Result<Capture, CaptureError> {
        let mut capture = Capture { bytes, ..Capture::default() };
        let magic: [u8; 4] = match capture.bytes.first_chunk() {
            Some(magic) => *magic,
            None if capture.bytes.is_empty() => return Err(CaptureError::Unknown(Vec::new())),
            None => {
                capture.cut_at(0);
                return Ok(capture);
            }
        };
        let mut times = Vec::new();
        match magic {
            [0xd4, 0xc3, 0xb2, 0xa1] => capture.pcap(false, 1_000, &mut times)?,
            [0xa1, 0xb2, 0xc3, 0xd4] => capture.pcap(true, 1_000, &mut times)?,
            [0x4d, 0x3c, 0xb2, 0xa1] => capture.pcap(false, 1, &mut times)?,
            [0xa1, 0xb2, 0x3c, 0x4d] => capture.pcap(true, 1, &mut times)?,
            [0x0a, 0x0d, 0x0d, 0x0a] => capture.pcapng(&mut times)?,
            other => return Err(CaptureError::Unknown(other.to_vec())),
        }
        capture.order(times);
        Ok(capture)
    }

    /// The bytes that were captured of a packet.
    pub fn data(&self, frame: &Frame) -> &[u8] {
        self.bytes.get(frame.data.0..frame.data.1).unwrap_or(&[])
    }

    /// The packet as an Ethernet frame. A packet that was captured without an Ethernet header gets
    /// one.
    pub fn ethernet(&self, frame: &Frame) -> Vec<u8> {
        let data = self.data(frame);
        if frame.ethernet {
            return data.to_vec();
        }
        let kind = if frame.key.family == 6 { [0x86, 0xdd] } else { [0x08, 0x00] };
        [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0][..], &kind, data].concat()
    }

    fn cut_at(&mut self, byte: usize) {
        self.cut = Some(Cut { byte, size: self.bytes.len(), packets: self.frames.len() });
    }

    /// Sets the frames' times, counted from the earliest, and sorts the frames by time.
    fn order(&mut self, times: Vec<i128>) {
        let first = times.iter().copied().min().unwrap_or(0);
        self.disordered = times.windows(2).filter(|pair| pair[1] < pair[0]).count();
        for (frame, time) in self.frames.iter_mut().zip(times) {
            frame.time = Nanos::try_from(time - first).unwrap_or(Nanos::MAX);
        }
        self.frames.sort_by_key(|frame| frame.time);
    }

    /// Adds a frame.
    fn frame(&mut self, data: (usize, usize), len: u32, ethernet: bool) {
        let bytes = self.bytes.get(data.0..data.1).unwrap_or(&[]);
        let headers = if ethernet { parse_ethernet(bytes, len) } else { parse_ip(bytes, len) };
        self.frames.push(Frame { time: 0, key: headers.key, high: headers.high(), len, data, ethernet });
    }

    /// Reads the packets of a pcap file. `unit`: the unit of its fractions of seconds, in
    /// nanoseconds.
    fn pcap(&mut self, big: bool, unit: i128, times: &mut Vec<i128>) -> Result<(), CaptureError> {
        if self.bytes.len() < 24 {
            self.cut_at(0);
            return Ok(());
        }
        let mut at = 24;
        let number = Reader { bytes: &self.bytes, big }.u32(20).unwrap_or(0) & 0x0fff_ffff;
        let ethernet = link_type(number).ok_or(CaptureError::LinkType(number, 20))?;
        while at < self.bytes.len() {
            let r = Reader { bytes: &self.bytes, big };
            let (Some(seconds), Some(part), Some(kept), Some(len)) =
                (r.u32(at), r.u32(at + 4), r.u32(at + 8), r.u32(at + 12))
            else {
                self.cut_at(at);
                return Ok(());
            };
            if kept > LONGEST || len > LONGEST || kept > len {
                return Err(CaptureError::Bad {
                    at,
                    what: format!("a packet of {len} bytes of which {kept} were captured"),
                });
            }
            let data = (at + 16, at + 16 + kept as usize);
            if data.1 > self.bytes.len() {
                self.cut_at(at);
                return Ok(());
            }
            times.push(i128::from(seconds) * 1_000_000_000 + i128::from(part) * unit);
            self.frame(data, len, ethernet);
            at = data.1;
        }
        Ok(())
    }

    /// Reads the packets of a pcapng file.
    fn pcapng(&mut self, times: &mut Vec<i128>) -> Result<(), CaptureError> {
        let (mut at, mut big) = (0, false);
        let mut interfaces: Vec<Interface> = Vec::new();
        while at < self.bytes.len() {
            let bad = |what: String| CaptureError::Bad { at, what };
            let plain = Reader { bytes: &self.bytes, big };
            // The type of a section header is the same in both byte orders; the field after its
            // length shows the byte order.
            let section = plain.u32(at) == Some(0x0a0d_0d0a);
            if section {
                big = match (Reader { bytes: &self.bytes, big: true }).u32(at + 8) {
                    Some(0x1a2b_3c4d) => true,
                    Some(0x4d3c_2b1a) => false,
                    Some(other) => return Err(bad(format!("the section's byte order mark is {other:08x}"))),
                    None => {
                        self.cut_at(at);
                        return Ok(());
                    }
                };
                interfaces.clear();
            }
            let r = Reader { bytes: &self.bytes, big };
            let (Some(kind), Some(total)) = (r.u32(at), r.u32(at + 4)) else {
                self.cut_at(at);
                return Ok(());
            };
            if total < 12 || total % 4 != 0 || total > 1 << 28 {
                return Err(bad(format!("a block says that it is {total} bytes long")));
            }
            let end = at + total as usize;
            if end > self.bytes.len() {
                self.cut_at(at);
                return Ok(());
            }
            if r.u32(end - 4) != Some(total) {
                return Err(bad("a block's two lengths differ".into()));
            }
            let body = at + 8;
            let inside =
                |needed: usize| if body + needed <= end - 4 { Ok(()) } else { Err(bad("a block is too short".into())) };
            let packet = match kind {
                1 => {
                    inside(8)?;
                    interfaces.push(Interface::read(r, body, end - 4));
                    None
                }
                // An enhanced packet block, or a packet block, which it replaced.
                6 | 2 => {
                    inside(20)?;
                    let interface = if kind == 6 { r.u32(body) } else { r.u16(body).map(u32::from) };
                    let time = u64::from(r.u32(body + 4).unwrap_or(0)) << 32 | u64::from(r.u32(body + 8).unwrap_or(0));
                    let (kept, len) = (r.u32(body + 12).unwrap_or(0), r.u32(body + 16).unwrap_or(0));
                    Some((interface.unwrap_or(0), Some(time), kept, len, body + 20))
                }
                // A simple packet block has no time, so it gets that of the packet before. The
                // captured bytes end at the snap length.
                3 => {
                    inside(4)?;
                    let len = r.u32(body).unwrap_or(0);
                    let snap = interfaces.first().map_or(0, |i| i.snap);
                    let room = (end - 4 - body - 4) as u32;
                    let kept = if snap > 0 { len.min(snap) } else { len };
                    Some((0, None, kept.min(room), len, body + 4))
                }
                _ => None,
            };
            if let Some((number, time, kept, len, start)) = packet {
                let Some(interface) = interfaces.get(number as usize) else {
                    return Err(bad(format!("a packet of interface {number}, which the section does not describe")));
                };
                let ethernet = link_type(interface.link).ok_or(CaptureError::LinkType(interface.link, interface.at))?;
                if kept > LONGEST || len > LONGEST || kept > len || start + kept as usize > end - 4 {
                    return Err(bad(format!("a packet of {len} bytes of which {kept} were captured")));
                }
                times.push(match time {
                    Some(time) => interface.nanos(time),
                    None => times.last().copied().unwrap_or(0),
                });
                self.frame((start, start + kept as usize), len, ethernet);
            }
            at = end;
        }
        Ok(())
    }
}

/// An interface description block.
struct Interface {
    /// The byte at which its body begins.
    at: usize,
    /// The link type.
    link: u32,
    /// The snap length; 0: no limit.
    snap: u32,
    /// if_tsresol: the unit of times is 10 to the power of minus this, or with the upper bit set 2
    /// to the power of minus the other bits. Microseconds if the option is missing.
    resolution: u8,
    /// if_tsoffset in seconds.
    offset: i64,
}

impl Interface {
    fn read(r: Reader<'_>, body: usize, end: usize) -> Interface {
        let link = u32::from(r.u16(body).unwrap_or(0));
        let mut interface = Interface { at: body, link, snap: r.u32(body + 4).unwrap_or(0), resolution: 6, offset: 0 };
        let mut at = body + 8;
        while at + 4 <= end {
            let (code, len) = (r.u16(at).unwrap_or(0), usize::from(r.u16(at + 2).unwrap_or(0)));
            if at + 4 + len > end {
                break;
            }
            match (code, len) {
                (0, _) => break,
                (9, 1) => interface.resolution = r.bytes.get(at + 4).copied().unwrap_or(6),
                (14, 8) => interface.offset = r.u64(at + 4).unwrap_or(0) as i64,
                _ => {}
            }
            at += 4 + len.next_multiple_of(4);
        }
        interface
    }

    fn nanos(&self, time: u64) -> i128 {
        let time = i128::from(time);
        let power = u32::from(self.resolution & 0x7f);
        let since = if self.resolution & 0x80 != 0 {
            if power < 64 { (time * 1_000_000_000) >> power } else { 0 }
        } else if power <= 9 {
            time * 10i128.pow(9 - power)
        } else {
            time / 10i128.pow((power - 9).min(30))
        };
        since + i128::from(self.offset) * 1_000_000_000
    }
}

/// Writes a pcap file of Ethernet frames with times in nanoseconds, little-endian on every machine.
pub struct Recorder<W: Write>(W);

impl<W: Write> Recorder<W> {
    /// Writes the file's header.
    pub fn new(mut out: W) -> io::Result<Recorder<W>> {
        let mut header = Vec::with_capacity(24);
        header.extend(0xa1b2_3c4d_u32.to_le_bytes());
        header.extend([2, 0, 4, 0]);
        header.extend([0; 8]);
        header.extend(LONGEST.to_le_bytes());
        header.extend(1u32.to_le_bytes());
        out.write_all(&header)?;
        Ok(Recorder(out))
    }

    /// Writes a packet: the bytes that are known of it, and its length on the medium.
    pub fn write(&mut self, time: Nanos, data: &[u8], len: u32) -> io::Result<()> {
        let mut header = [0; 16];
        header[..4].copy_from_slice(&((time / 1_000_000_000) as u32).to_le_bytes());
        header[4..8].copy_from_slice(&((time % 1_000_000_000) as u32).to_le_bytes());
        header[8..12].copy_from_slice(&(data.len() as u32).to_le_bytes());
        header[12..].copy_from_slice(&len.max(data.len() as u32).to_le_bytes());
        self.0.write_all(&header)?;
        self.0.write_all(data)
    }

    /// Flushes and gives the file back.
    pub fn finish(mut self) -> io::Result<W> {
        self.0.flush()?;
        Ok(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{frame, stream::Load};
    use super::*;

    fn frames() -> Vec<Vec<u8>> {
        let flow = Key { src: 0x0a000001, dst: 0x0a000002, proto: 17, family: 4, ..Key::default() }.with_ports(1, 2);
        let frame =
            |(n, len): (u64, &u32)| frame::ethernet(&Key { length: *len, ..flow }, [0, 1], &Load::Number(n), None);
        (0..).zip(&[60, 1500, 41]).map(frame).collect()
    }

    const TIMES: [u64; 3] = [5_000_000_123, 5_000_000_999, 7_123_456_789];

    fn pcap() -> Vec<u8> {
        let mut recorder = Recorder::new(Vec::new()).unwrap();
        for (time, frame) in TIMES.iter().zip(frames()) {
            recorder.write(*time, &frame, frame.len() as u32).unwrap();
        }
        recorder.finish().unwrap()
    }

    /// A pcapng file in big-endian order with times in units of 2^-20 s, offset by 100 s.
    fn pcapng() -> Vec<u8> {
        let block = |kind: u32, body: &[u8]| {
            let len = (body.len().next_multiple_of(4) + 12) as u32;
            let mut b = [kind.to_be_bytes(), len.to_be_bytes()].concat();
            b.extend(body);
            b.resize(len as usize - 4, 0);
            b.extend(len.to_be_bytes());
            b
        };
        let mut file = block(0x0a0d_0d0a, &[&0x1a2b_3c4d_u32.to_be_bytes()[..], &[0, 1, 0, 0], &[0xff; 8]].concat());
        let mut interface = vec![0, 1, 0, 0, 0, 0, 0xff, 0xff];
        interface.extend([0, 9, 0, 1, 0x80 | 20, 0, 0, 0, 0, 14, 0, 8]);
        interface.extend(100i64.to_be_bytes());
        interface.extend([0, 0, 0, 0]);
        file.extend(block(1, &interface));
        for (n, frame) in frames().iter().enumerate() {
            // 0, 1.5 and 3 s.
            let time = (n as u64 * 3) << 19;
            let mut body =
                [0u32.to_be_bytes(), ((time >> 32) as u32).to_be_bytes(), (time as u32).to_be_bytes()].concat();
            body.extend((frame.len() as u32).to_be_bytes());
            body.extend((frame.len() as u32).to_be_bytes());
            body.extend(frame);
            file.extend(block(6, &body));
            // A block of unknown type, which must be skipped.
            file.extend(block(0x0bad_cafe, &[1, 2, 3]));
        }
        file
    }

    #[test]
    fn written_and_read_back() {
        let capture = Capture::read(pcap()).unwrap();
        assert_eq!((capture.cut, capture.disordered), (None, 0));
        let first = TIMES[0];
        for ((frame, time), bytes) in capture.frames.iter().zip(TIMES).zip(frames()) {
            assert_eq!((frame.time, capture.data(frame)), (time - first, bytes.as_slice()));
            assert_eq!(frame.key.length, bytes.len() as u32 - 14);
        }
        assert_eq!(capture.frames.len(), 3);
    }

    #[test]
    fn pcapng_with_its_own_clock() {
        let capture = Capture::read(pcapng()).unwrap();
        let times: Vec<u64> = capture.frames.iter().map(|f| f.time).collect();
        assert_eq!(times, [0, 1_500_000_000, 3_000_000_000]);
        assert!(capture.frames.iter().zip(frames()).all(|(frame, bytes)| capture.data(frame) == bytes));
    }

    #[test]
    fn cut_anywhere_it_says_where_and_keeps_the_rest() {
        for file in [pcap(), pcapng()] {
            let whole = Capture::read(file.clone()).unwrap().frames.len();
            let mut kept = 0;
            for end in 1..=file.len() {
                let capture = Capture::read(file[..end].to_vec()).unwrap();
                assert!(capture.frames.len() >= kept && capture.frames.len() <= whole);
                kept = capture.frames.len();
                match capture.cut {
                    Some(cut) => assert!(cut.byte < end && cut.size == end && cut.packets == kept, "{cut:?} of {end}"),
                    // The file was cut between two packets, which cannot be seen.
                    None => assert!(end >= 24),
                }
            }
            assert_eq!(kept, whole);
        }
    }

    #[test]
    fn nonsense_is_an_error_not_a_panic() {
        assert!(matches!(Capture::read(Vec::new()), Err(CaptureError::Unknown(_))));
        assert!(matches!(Capture::read(b"GIF89a".to_vec()), Err(CaptureError::Unknown(_))));
        let mut wifi = pcap();
        wifi[20] = 105;
        assert_eq!(Capture::read(wifi).unwrap_err(), CaptureError::LinkType(105, 20));
        let mut long = pcap();
        long[35] = 0x7f;
        assert!(matches!(Capture::read(long), Err(CaptureError::Bad { at: 24, .. })));
        // Every byte changed, in turn, to a few values.
        for file in [pcap(), pcapng()] {
            for at in 0..file.len().min(400) {
                for value in [0, 1, 0x7f, 0xff] {
                    let mut bad = file.clone();
                    bad[at] = value;
                    let _ = Capture::read(bad);
                }
            }
        }
    }

    /// Frames of a PPPoE session (RFC 2516 4) and with a label (RFC 3032 2.1) are classified and
    /// counted as the IP packets in them, and handed on as they were captured.
    #[test]
    fn sessions_and_labels_are_seen_through() {
        let bare = frames().swap_remove(1);
        let session = [&bare[..12], &[0x88, 0x64, 0x11, 0, 0, 1, 0x05, 0xde, 0, 0x21], &bare[14..]].concat();
        let label = [&bare[..12], &[0x88, 0x47, 0, 1, 1, 64], &bare[14..]].concat();
        let mut recorder = Recorder::new(Vec::new()).unwrap();
        for frame in [&bare, &session, &label] {
            recorder.write(0, frame, frame.len() as u32).unwrap();
        }
        let capture = Capture::read(recorder.finish().unwrap()).unwrap();
        let [plain, session_read, label_read] = &capture.frames[..] else { panic!("three frames") };
        assert_eq!((plain.key.length, plain.key.dport()), (1500, Some(2)));
        assert_eq!((session_read.key, label_read.key), (plain.key, plain.key));
        assert_eq!((session_read.len, label_read.len), (plain.len + 8, plain.len + 4));
        assert_eq!((capture.ethernet(session_read), capture.ethernet(label_read)), (session, label));
    }

    #[test]
    fn older_packets_are_put_in_order() {
        let mut recorder = Recorder::new(Vec::new()).unwrap();
        for (time, frame) in [3_000, 1_000, 2_000].iter().zip(frames()) {
            recorder.write(*time, &frame, frame.len() as u32).unwrap();
        }
        let capture = Capture::read(recorder.finish().unwrap()).unwrap();
        assert_eq!(capture.frames.iter().map(|f| f.time).collect::<Vec<_>>(), [0, 1_000, 2_000]);
        assert_eq!(capture.disordered, 1);
    }
}
