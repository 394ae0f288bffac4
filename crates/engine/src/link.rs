//! What a link charges for a packet beyond the packet's own bytes.
//!
//! [`KEYWORDS`] is the table of CAKE's words for the usual links. The figures are those of
//! tc-cake(8) and of tc's source. They count from layer 3, as everything here does, so they include
//! the Ethernet header.

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

/// What a link charges for a packet: its length at layer 3 plus `bytes`, but at least `mpu`; to
/// that, the framing is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// Bytes added to every packet; may be negative, as with CAKE's `raw` on a device that counts
    /// its own header.
    pub bytes: i32,
    /// Minimum packet unit: the least length of a packet with `bytes` added, before framing.
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

    /// The overhead that a single word of [`KEYWORDS`] stands for; `None` if the word is not in the
    /// table.
    ///
    /// ```
    /// # use altq_engine::link::{Framing, Overhead};
    /// let ethernet = Overhead { bytes: 38, mpu: 84, framing: Framing::Plain };
    /// assert_eq!(Overhead::keyword("ethernet"), Some(ethernet));
    /// assert_eq!(Overhead::keyword("ethernett"), None);
    /// ```
    pub fn keyword(name: &str) -> Option<Overhead> {
        Overhead::NONE.and(name)
    }

    /// This overhead followed by one more word of [`KEYWORDS`], as in `pppoe-ptm ether-vlan`;
    /// `None` if the word is not in the table.
    pub fn and(self, name: &str) -> Option<Overhead> {
        let keyword = KEYWORDS.iter().find(|keyword| keyword.name == name)?;
        let before = if keyword.replaces { 0 } else { self.bytes };
        Some(Overhead {
            bytes: before.saturating_add(keyword.bytes),
            mpu: keyword.mpu.unwrap_or(self.mpu),
            framing: keyword.framing.unwrap_or(self.framing),
        })
    }

    /// The bytes charged for a GSO super-packet: `segments` packets of `len` bytes in all. All are
    /// taken as equally long, except that the last one may be shorter.
    #[inline]
    pub fn charge_segments(&self, len: u32, segments: u16) -> u32 {
        if *self == Overhead::NONE { len } else { self.charge_each(len, segments) }
    }

    fn charge_each(&self, len: u32, segments: u16) -> u32 {
        if segments <= 1 {
            return self.charge(len);
        }
        let n = u32::from(segments);
        let full = len.div_ceil(n);
        let last = len.saturating_sub(full.saturating_mul(n - 1));
        self.charge(full).saturating_mul(n - 1).saturating_add(self.charge(last))
    }
}

/// An overhead as the engine asks it of every packet: most links charge a packet its own bytes, and
/// one comparison says so.
#[derive(Clone, Copy, Default)]
pub(crate) struct Charges(Option<Overhead>);

impl Charges {
    pub(crate) fn new(overhead: Overhead) -> Charges {
        Charges((overhead != Overhead::NONE).then_some(overhead))
    }

    pub(crate) fn overhead(&self) -> Overhead {
        self.0.unwrap_or(Overhead::NONE)
    }

    /// [`Overhead::charge_segments`].
    #[inline]
    pub(crate) fn segments(&self, len: u32, segments: u16) -> u32 {
        match &self.0 {
            None => len,
            Some(overhead) => overhead.charge_each(len, segments),
        }
    }
}

/// A word for an overhead.
#[derive(Clone, Copy, Debug)]
pub struct Keyword {
    /// The word as written.
    pub name: &'static str,
    /// Bytes that it adds.
    pub bytes: i32,
    /// The `mpu` that it sets, if it sets one.
    pub mpu: Option<u32>,
    /// The framing that it sets, if it sets one.
    pub framing: Option<Framing>,
    /// True if it replaces the bytes of the words before it.
    pub replaces: bool,
    /// The link that it stands for, in a line.
    pub help: &'static str,
}

const fn atm(name: &'static str, bytes: i32, help: &'static str) -> Keyword {
    Keyword { name, bytes, mpu: None, framing: Some(Framing::Atm), replaces: false, help }
}

const fn ptm(name: &'static str, bytes: i32, help: &'static str) -> Keyword {
    Keyword { name, bytes, mpu: None, framing: Some(Framing::Ptm), replaces: false, help }
}

/// CAKE's words, and `none`. A word adds its bytes to those of the words before it, or replaces
/// them. An `mpu` or a framing that it does not set stays as it was.
pub const KEYWORDS: &[Keyword] = &[
    Keyword {
        name: "none",
        bytes: 0,
        mpu: Some(0),
        framing: Some(Framing::Plain),
        replaces: true,
        help: "layer 3 only",
    },
    // CAKE's `raw` takes the length that the device reports. The engine's lengths are those of
    // layer 3 on every device, so `raw` adds nothing.
    Keyword {
        name: "raw",
        bytes: 0,
        mpu: None,
        framing: Some(Framing::Plain),
        replaces: true,
        help: "no compensation (0 bytes; altq counts from layer 3 on every device)",
    },
    Keyword {
        name: "conservative",
        bytes: 48,
        mpu: None,
        framing: Some(Framing::Atm),
        replaces: true,
        help: "more than any usual link takes: 48 bytes atm",
    },
    atm("pppoa-vcmux", 10, "ADSL, PPPoA VC-Mux: 10 bytes atm"),
    atm("pppoa-llc", 14, "ADSL, PPPoA LLC: 14 bytes atm"),
    atm("pppoe-vcmux", 32, "ADSL, PPPoE VC-Mux: 32 bytes atm"),
    atm("pppoe-llcsnap", 40, "ADSL, PPPoE LLC/SNAP: 40 bytes atm"),
    atm("bridged-vcmux", 24, "ADSL, bridged Ethernet VC-Mux: 24 bytes atm"),
    atm("bridged-llcsnap", 32, "ADSL, bridged Ethernet LLC/SNAP: 32 bytes atm"),
    atm("ipoa-vcmux", 8, "ADSL, IP VC-Mux: 8 bytes atm"),
    atm("ipoa-llcsnap", 16, "ADSL, IP LLC/SNAP: 16 bytes atm"),
    // In bytes: 8 of PPPoE and PPP, 14 of Ethernet, 4 of its check sequence, 4 of PTM.
    ptm("pppoe-ptm", 30, "VDSL2, PPPoE: 30 bytes ptm"),
    ptm("bridged-ptm", 22, "VDSL2, Ethernet: 22 bytes ptm"),
    // The cable head-end counts the Ethernet frame with its check sequence, without preamble and
    // gap.
    Keyword {
        name: "docsis",
        bytes: 18,
        mpu: Some(64),
        framing: Some(Framing::Plain),
        replaces: false,
        help: "cable: 18 bytes mpu 64",
    },
    // IEEE 802.3, in bytes: 8 of preamble, 14 of header, 4 of check sequence, 12 of gap. A frame
    // has at least 64 bytes with its check sequence.
    Keyword {
        name: "ethernet",
        bytes: 38,
        mpu: Some(84),
        framing: None,
        replaces: false,
        help: "an Ethernet wire, with preamble, check sequence and gap: 38 bytes mpu 84",
    },
    Keyword {
        name: "ether-vlan",
        bytes: 4,
        mpu: None,
        framing: None,
        replaces: false,
        help: "one IEEE 802.1Q tag more: 4 bytes; may be repeated",
    },
    // tc keeps it for old scripts. It has had no effect since CAKE finds out by itself whether the
    // device counts its header.
    Keyword {
        name: "via-ethernet",
        bytes: 0,
        mpu: None,
        framing: None,
        replaces: false,
        help: "accepted, no effect, as in tc",
    },
    atm("atm", 0, "ATM cells: 48 bytes of payload to 53"),
    ptm("ptm", 0, "PTM, 64b/65b: one byte more for every 64"),
    Keyword {
        name: "noatm",
        bytes: 0,
        mpu: None,
        framing: Some(Framing::Plain),
        replaces: false,
        help: "bytes as they are: neither ATM nor PTM",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn charge(words: &str, len: u32) -> u32 {
        let overhead = words.split(' ').fold(Overhead::NONE, |sum, word| sum.and(word).expect("a keyword"));
        overhead.charge(len)
    }

    #[test]
    fn published_arithmetic() {
        // ADSL with PPPoE over LLC/SNAP: 1500 + 40 is 33 cells (32 hold 1536), 33 x 53 = 1749.
        assert_eq!(charge("pppoe-llcsnap", 1500), 1749);
        // An acknowledgement of 40 bytes: 80 bytes, two cells; over PPPoA VC-Mux 50 bytes, two as
        // well; 38 bytes fit in one.
        assert_eq!(charge("pppoe-llcsnap", 40), 106);
        assert_eq!(charge("pppoa-vcmux", 40), 106);
        assert_eq!(charge("pppoa-vcmux", 38), 53);
        assert_eq!(charge("ipoa-vcmux", 40), 53);
        // The smallest Ethernet packet on the wire: 64 bytes, 8 of preamble, 12 of gap; 1500 bytes
        // are 1538.
        assert_eq!(charge("ethernet", 46), 84);
        assert_eq!(charge("ethernet", 20), 84);
        assert_eq!(charge("ethernet", 1500), 1538);
        assert_eq!(charge("ethernet ether-vlan ether-vlan", 1500), 1546);
        // DOCSIS counts 64 to 1518.
        assert_eq!(charge("docsis", 40), 64);
        assert_eq!(charge("docsis", 1500), 1518);
        // PTM: 1492 + 30 = 1522 bytes are 24 blocks of 64 (23 hold 1472).
        assert_eq!(charge("pppoe-ptm", 1492), 1522 + 24);
        assert_eq!(charge("bridged-ptm", 42), 64 + 1);
        assert_eq!(charge("bridged-ptm", 43), 65 + 2);
        assert_eq!(charge("conservative", 1500), 33 * 53);
        assert_eq!(charge("raw", 1500), 1500);
        assert_eq!(charge("none", 1500), 1500);
    }

    #[test]
    fn the_table_of_tc_cake() {
        // Bytes, mpu and framing as printed in tc-cake(8).
        let published = [
            ("conservative", 48, 0, Framing::Atm),
            ("pppoa-vcmux", 10, 0, Framing::Atm),
            ("pppoa-llc", 14, 0, Framing::Atm),
            ("pppoe-vcmux", 32, 0, Framing::Atm),
            ("pppoe-llcsnap", 40, 0, Framing::Atm),
            ("bridged-vcmux", 24, 0, Framing::Atm),
            ("bridged-llcsnap", 32, 0, Framing::Atm),
            ("ipoa-vcmux", 8, 0, Framing::Atm),
            ("ipoa-llcsnap", 16, 0, Framing::Atm),
            ("pppoe-ptm", 30, 0, Framing::Ptm),
            ("bridged-ptm", 22, 0, Framing::Ptm),
            ("docsis", 18, 64, Framing::Plain),
            ("ethernet", 38, 84, Framing::Plain),
        ];
        for (name, bytes, mpu, framing) in published {
            assert_eq!(Overhead::keyword(name), Some(Overhead { bytes, mpu, framing }), "{name}");
        }
        for (at, keyword) in KEYWORDS.iter().enumerate() {
            assert!(KEYWORDS[..at].iter().all(|other| other.name != keyword.name), "{} twice", keyword.name);
        }
    }

    #[test]
    fn order_of_words() {
        // `raw` and `conservative` set the bytes, the others add to them.
        assert_eq!(charge("ether-vlan raw", 100), 100);
        assert_eq!(charge("raw ether-vlan", 100), 104);
        assert_eq!(charge("pppoe-llcsnap noatm", 100), 140);
    }

    #[test]
    fn extremes() {
        let less = Overhead { bytes: -200, ..Overhead::NONE };
        assert_eq!(less.charge(100), 0);
        assert_eq!(less.charge(300), 100);
        assert_eq!(Overhead { framing: Framing::Atm, ..Overhead::NONE }.charge(u32::MAX), u32::MAX);
    }

    #[test]
    fn segments() {
        let ethernet = Overhead { bytes: 38, mpu: 84, framing: Framing::Plain };
        // 44 segments of 1500 bytes cost what 44 packets cost.
        assert_eq!(ethernet.charge_segments(44 * 1500, 44), 44 * 1538);
        // The last one may be shorter: the sum is the same.
        assert_eq!(ethernet.charge_segments(43 * 1500 + 700, 44), 43 * 1500 + 700 + 44 * 38);
        assert_eq!(ethernet.charge_segments(1500, 0), 1538);
    }
}
