//! The size of a reservation: the token bucket of RFC 2215 3.6, and what it costs on the link.

use altq_engine::link::{Framing, Overhead};
use serde::{Deserialize, Serialize};

/// The highest legal rate: 40 Tbyte/s (RFC 2215 3.6), in bit/s.
pub const MOST_RATE: u64 = 320_000_000_000_000;
/// The largest legal burst: 250 Gbyte (RFC 2215 3.6).
pub const MOST_BURST: u64 = 250_000_000_000;
/// The default of the minimum policed unit: a small packet.
const MIN_UNIT: u32 = 64;

/// A token bucket: at most rate · T + burst in any time T. Sizes count from the IP header. A packet
/// smaller than the minimum policed unit counts as one of that size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Tspec {
    /// r, in bit/s: 1 to 320 Tbit/s.
    pub rate_bit_s: u64,
    /// b, in bytes: 1 to 250 Gbyte.
    pub burst_bytes: u64,
    /// p, in bit/s; `None`: any. Admission ignores it.
    #[serde(default)]
    pub peak_bit_s: Option<u64>,
    /// m, in bytes, 1 to M; `None`: 64, or M if that is less.
    #[serde(default)]
    pub min_unit_bytes: Option<u32>,
    /// M, in bytes, up to the link's MTU; `None`: the MTU.
    #[serde(default)]
    pub max_packet_bytes: Option<u32>,
}

impl Tspec {
    /// M.
    pub fn largest(&self, mtu: u32) -> u32 {
        self.max_packet_bytes.unwrap_or(mtu)
    }

    /// m.
    pub fn least(&self, mtu: u32) -> u32 {
        self.min_unit_bytes.unwrap_or_else(|| MIN_UNIT.min(self.largest(mtu)))
    }

    /// Whether RFC 2215 3.6 allows the values.
    ///
    /// # Errors
    /// Which value is wrong.
    pub fn check(&self, mtu: u32) -> Result<(), String> {
        if !(1..=MOST_RATE).contains(&self.rate_bit_s) {
            return Err(format!("a rate is 1 to {MOST_RATE} bit/s, not {}", self.rate_bit_s));
        }
        if !(1..=MOST_BURST).contains(&self.burst_bytes) {
            return Err(format!("a burst is 1 to {MOST_BURST} bytes, not {}", self.burst_bytes));
        }
        if self.peak_bit_s.is_some_and(|peak| !(1..=MOST_RATE).contains(&peak)) {
            return Err(format!("a peak rate is 1 to {MOST_RATE} bit/s"));
        }
        let (least, largest) = (self.least(mtu), self.largest(mtu));
        if least < 1 || largest < least {
            return Err(format!(
                "the minimum unit, {least} bytes, is not from 1 byte to the largest packet, {largest}"
            ));
        }
        Ok(())
    }
}

/// The cost of bytes of layer 3 on the link, as a fraction: `wire` bytes for `own` bytes.
///
/// A source may send packets of any size from the minimum policed unit m to the largest packet M,
/// so the cost is that of the size at which a byte costs most. If the link adds the same to every
/// packet, that is m; with a negative overhead it may be M; with cells or blocks it may be any size
/// between them that just begins another cell or block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    wire: u32,
    own: u32,
}

impl Cost {
    /// The cost of a reservation on a link.
    ///
    /// ```
    /// use altq_engine::link::Overhead;
    /// use altq_reserve::{Cost, Tspec};
    ///
    /// let tspec = Tspec {
    ///     rate_bit_s: 500_000,
    ///     burst_bytes: 10_000,
    ///     peak_bit_s: None,
    ///     min_unit_bytes: Some(128),
    ///     max_packet_bytes: Some(1500),
    /// };
    /// // 166 bytes on the wire for 128: 648,437.5 bit/s, and 12,968.75 bytes.
    /// let cost = Cost::of(&Overhead::keyword("ethernet").unwrap(), &tspec, 1500);
    /// assert_eq!((cost.charge(500_000), cost.charge(10_000)), (648_438, 12_969));
    /// assert_eq!(cost.fits(648_437), 499_999);
    /// ```
    pub fn of(overhead: &Overhead, tspec: &Tspec, mtu: u32) -> Cost {
        let at = |own: u32| Cost { wire: overhead.charge(own), own: own.max(1) };
        // Packets above the MTU are refused, so larger sizes do not matter.
        let least = tspec.least(mtu);
        let largest = tspec.largest(mtu).min(mtu).max(least);
        match overhead.framing {
            // Up to the smallest charged length, the cost per byte falls with the size. From there
            // on it only falls, or with a negative overhead only rises. So the largest cost is at
            // one of the ends.
            Framing::Plain => at(least).dearer(at(largest)),
            // A size that begins another cell or block costs more per byte than the size before it.
            Framing::Atm | Framing::Ptm => (least..=largest).fold(at(least), |dearest, own| dearest.dearer(at(own))),
        }
    }

    /// The greater of the two fractions; if they are equal, `self`.
    fn dearer(self, other: Cost) -> Cost {
        // a/b > c/d if a·d > c·b.
        let is_more = u64::from(other.wire) * u64::from(self.own) > u64::from(self.wire) * u64::from(other.own);
        if is_more { other } else { self }
    }

    /// The cost of `own` (bytes, or bit/s), rounded up; at least 1.
    pub fn charge(&self, own: u64) -> u64 {
        let wire = (u128::from(own) * u128::from(self.wire)).div_ceil(u128::from(self.own));
        u64::try_from(wire).unwrap_or(u64::MAX).max(1)
    }

    /// The largest value that costs no more than `wire`: `charge(fits(wire)) <= wire`, but
    /// `charge(fits(wire) + 1) > wire`. 0 if even 1 costs more; at most the highest legal rate.
    pub fn fits(&self, wire: u64) -> u64 {
        if wire == 0 {
            return 0;
        }
        // For a whole limit, ceil(own · wire / unit) <= limit exactly if own · wire <= limit ·
        // unit.
        let own = (u128::from(wire) * u128::from(self.own)).checked_div(u128::from(self.wire));
        own.map_or(MOST_RATE, |own| u64::try_from(own).unwrap_or(u64::MAX).min(MOST_RATE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tspec(min: u32, max: u32) -> Tspec {
        let (min_unit_bytes, max_packet_bytes) = (Some(min), Some(max));
        Tspec { rate_bit_s: 1, burst_bytes: 1, peak_bit_s: None, min_unit_bytes, max_packet_bytes }
    }

    #[test]
    fn costs_by_hand() {
        let cost = |overhead: &Overhead, min, max| Cost::of(overhead, &tspec(min, max), 1500);
        // Without overhead a byte costs a byte.
        assert_eq!(cost(&Overhead::NONE, 128, 1500).charge(500_000), 500_000);
        // 40 bytes in PPPoE over ATM are two cells: 106 bytes.
        let atm = Overhead::keyword("pppoe-llcsnap").unwrap();
        assert_eq!(cost(&atm, 40, 40).charge(40_000), 106_000);
        // But 57 bytes are 97 with the overhead, which need three cells: 159 bytes, 2.79 for each
        // byte instead of 2.65. From 58 bytes on it is less: 2.74, and 2.02 for the 105 bytes that
        // need four cells.
        assert_eq!(cost(&atm, 40, 1500).charge(57_000), 159_000);
        assert_eq!(cost(&atm, 58, 1500).charge(58_000), 159_000);
        // 98 bytes over PTM with an overhead of 30 are two blocks of 64: 128 + 2 = 130 bytes, 1.327
        // for each byte. 99 bytes begin a third block: 129 + 3 = 132, which is 4/3.
        let ptm = Overhead::keyword("pppoe-ptm").unwrap();
        assert_eq!(cost(&ptm, 98, 1492).charge(99_000), 132_000);
        // A damaged state may have any value: sizes above the MTU are ignored.
        assert_eq!(cost(&atm, 40, u32::MAX), cost(&atm, 40, 1500));
        // With an overhead of -4, a packet of 60 bytes counts 56 and one of 1500 counts 1496. Large
        // packets cost more per byte.
        let less = Overhead { bytes: -4, ..Overhead::NONE };
        assert_eq!(cost(&less, 60, 1500).charge(1_500_000), 1_496_000);
        // Even if a packet costs nothing, at least 1 is charged.
        let nothing = Overhead { bytes: -64, ..Overhead::NONE };
        assert_eq!((cost(&nothing, 64, 64).charge(1_000), cost(&nothing, 64, 64).fits(1)), (1, MOST_RATE));
    }

    #[test]
    fn what_fits_is_the_most() {
        let ethernet = Overhead::keyword("ethernet").unwrap();
        for (min, wire) in [(46, 1_u64), (46, 1_000_000), (128, 648_437), (128, 648_438), (1500, 7), (1, 83), (1, 84)] {
            let cost = Cost::of(&ethernet, &tspec(min, 1500), 1500);
            let most = cost.fits(wire);
            assert!(most == 0 || cost.charge(most) <= wire, "{min} {wire}: {most}");
            assert!(cost.charge(most + 1) > wire, "{min} {wire}: {most}");
        }
        assert_eq!(Cost::of(&ethernet, &tspec(128, 1500), 1500).fits(0), 0);
    }

    #[test]
    fn what_no_token_bucket_is() {
        let legal = tspec(64, 1500);
        assert_eq!(legal.check(1500), Ok(()));
        for (wrong, why) in [
            (Tspec { rate_bit_s: 0, ..legal }, "rate"),
            (Tspec { rate_bit_s: MOST_RATE + 1, ..legal }, "rate"),
            (Tspec { burst_bytes: 0, ..legal }, "burst"),
            (Tspec { burst_bytes: MOST_BURST + 1, ..legal }, "burst"),
            (Tspec { peak_bit_s: Some(0), ..legal }, "peak"),
            (tspec(0, 1500), "minimum unit"),
            (tspec(1500, 1499), "minimum unit"),
            (tspec(0, 0), "minimum unit"),
        ] {
            assert!(wrong.check(1500).unwrap_err().contains(why), "{wrong:?}");
        }
        // The defaults: 64 bytes or less, and the MTU.
        let open = Tspec { min_unit_bytes: None, max_packet_bytes: None, ..legal };
        assert_eq!((open.least(1500), open.largest(1500), open.least(40)), (64, 1500, 40));
    }
}
