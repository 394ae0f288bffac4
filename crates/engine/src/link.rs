//! What a packet costs on the link's wire beyond its own bytes.

/// Link-layer framing that packs packets into cells or blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// Bytes as they are.
    #[default]
    Plain,
    /// ATM: 48 bytes of payload to a cell of 53 (ITU-T I.363.5).
    Atm,
    /// PTM, 64b/65b: one byte more for every 64 or part of it (IEEE 802.3 clause 61).
    Ptm,
}

/// What a link charges for a packet: its length at layer 3, plus `bytes`, at least `mpu`, then framed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// Bytes added to every packet; may be negative, as with CAKE's `raw` on a device that counts its own header.
    pub bytes: i32,
    /// Least size of a packet with `bytes` added, before framing.
    pub mpu: u32,
    /// How it is framed.
    pub framing: Framing,
}

impl Overhead {
    /// Nothing beyond the packet's own bytes.
    pub const NONE: Overhead = Overhead { bytes: 0, mpu: 0, framing: Framing::Plain };

    /// The bytes charged for one packet of `len` bytes at layer 3.
    pub fn charge(&self, len: u32) -> u32 {
        let padded = (i64::from(len) + i64::from(self.bytes)).max(i64::from(self.mpu)).max(0) as u64;
        let framed = match self.framing {
            Framing::Plain => padded,
            Framing::Atm => padded.div_ceil(48) * 53,
            Framing::Ptm => padded + padded.div_ceil(64),
        };
        framed.min(u64::from(u32::MAX)) as u32
    }

    /// The bytes charged for a super-packet: `segments` packets that hold `len` bytes together, all but the last of equal size.
    pub fn charge_segments(&self, len: u32, segments: u16) -> u32 {
        if *self == Overhead::NONE {
            return len;
        }
        if segments <= 1 {
            return self.charge(len);
        }
        let n = u32::from(segments);
        let full = len.div_ceil(n);
        let last = len.saturating_sub(full.saturating_mul(n - 1));
        self.charge(full).saturating_mul(n - 1).saturating_add(self.charge(last))
    }
}
