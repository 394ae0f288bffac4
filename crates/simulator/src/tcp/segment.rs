//! Segments: the fields of TCP's header that matter here.

use altq_engine::units::Nanos;

/// The flag bits of a TCP header, with their values there (RFC 9293 3.1, RFC 3168 6.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// The sender has no more data.
    pub const FIN: Flags = Flags(0x01);
    /// Opens a connection.
    pub const SYN: Flags = Flags(0x02);
    /// Ends a connection at once.
    pub const RST: Flags = Flags(0x04);
    /// The sender has nothing more to send at the moment.
    pub const PSH: Flags = Flags(0x08);
    /// The acknowledgement number is valid.
    pub const ACK: Flags = Flags(0x10);
    /// The echo of an ECN mark.
    pub const ECE: Flags = Flags(0x40);
    /// Congestion window reduced.
    pub const CWR: Flags = Flags(0x80);

    /// Whether all bits of `other` are set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// These bits and those of `other`.
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// A bit for each option. In a SYN they are the options offered, in later segments those in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options(pub u8);

impl Options {
    /// Selective acknowledgements (RFC 2018 2).
    pub const SACK: u8 = 1;
    /// Timestamps (RFC 7323 3).
    pub const STAMPS: u8 = 2;
    /// Window scale (RFC 7323 2).
    pub const SCALE: u8 = 4;

    /// Whether `bit` is set.
    pub const fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }
}

/// SACK blocks: up to four ranges `[from, to)`, stored relative to the segment's acknowledgement
/// number.
///
/// A first block that is not above that number reports a duplicate (D-SACK, RFC 2883 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sack {
    blocks: [(i32, i32); 4],
    len: u8,
}

impl Sack {
    /// The most blocks without and with timestamps (RFC 2018 3).
    pub(super) const fn most(stamps: bool) -> usize {
        if stamps { 3 } else { 4 }
    }

    pub(super) fn push(&mut self, ack: u64, from: u64, to: u64) {
        // Buffers are at most 1 GB, so the distance to `ack` fits.
        let near = |x: u64| (x.wrapping_sub(ack) as i64).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
        if let Some(slot) = self.blocks.get_mut(usize::from(self.len)) {
            *slot = (near(from), near(to));
            self.len += 1;
        }
    }

    /// Number of blocks.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// No block at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// One segment without its payload: the fields of its TCP header, and the length of its packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// The sequence number of the first byte, or of the SYN or FIN if there is none.
    pub seq: u64,
    /// The next number that the sender of this segment expects; valid if ACK is set.
    pub ack: u64,
    /// The timestamp; valid if [`Options::STAMPS`] is set.
    pub stamp: Nanos,
    /// The echo of the peer's timestamp; valid if [`Options::STAMPS`] is set.
    pub echo: Nanos,
    /// Payload in bytes.
    pub len: u32,
    /// Length of the packet at layer 3 in bytes: IP and TCP headers, options, payload.
    pub bytes: u32,
    /// The window offered, in bytes (the scale has been applied).
    pub window: u32,
    /// SACK blocks.
    pub sack: Sack,
    /// The most payload that the sender accepts in one segment; valid if SYN is set.
    pub mss: u16,
    /// Flag bits.
    pub flags: Flags,
    /// Options in use, or offered if SYN is set.
    pub options: Options,
}

impl Segment {
    /// The number after this segment's last: SYN and FIN take one each (RFC 9293 3.4).
    pub fn end(&self) -> u64 {
        self.seq + u64::from(self.len) + u64::from(self.flags.has(Flags::SYN)) + u64::from(self.flags.has(Flags::FIN))
    }

    /// The SACK blocks, `[from, to)`, the first one first.
    pub fn sack_blocks(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let far = |x: i32| self.ack.saturating_add_signed(i64::from(x));
        self.sack.blocks.iter().take(self.sack.len()).map(move |(from, to)| (far(*from), far(*to)))
    }
}
