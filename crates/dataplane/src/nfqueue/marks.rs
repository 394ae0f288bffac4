//! Bits of the firewall mark that tell the rules after the queue what to write into a packet.
//!
//! altq receives only a packet's headers, so it cannot change the packet: the kernel would take the
//! bytes that come with a verdict as the whole packet. So the verdict sets bits of the packet's
//! mark. Rules after the queue write DSCP and ECN by these bits, and clear them again. All other
//! bits stay as they were. A packet that has some of these bits on arrival loses them.

/// All bits that altq uses.
pub const ALL: u32 = 0xff00_0000;
/// The packet gets the ECN codepoint CE (RFC 3168 5).
pub const CE: u32 = 0x8000_0000;
/// The packet gets the DSCP in [`VALUE`].
pub const DSCP: u32 = 0x4000_0000;
/// Bits of the DSCP.
pub const VALUE: u32 = 0x3f00_0000;
/// Position of the lowest bit of the DSCP.
pub const SHIFT: u32 = 24;

/// The bits for a DSCP.
pub fn dscp(value: u8) -> u32 {
    DSCP | u32::from(value) << SHIFT & VALUE
}

/// The mark for the verdict on a packet that came with this mark and this octet of DSCP and ECN,
/// and is to leave with another octet. `None`: the mark stays as it is.
pub fn of(mark: u32, came: u8, leaves: u8) -> Option<u32> {
    let mut bits = 0;
    if leaves & 3 == 3 && came & 3 != 3 {
        bits |= CE;
    }
    if leaves >> 2 != came >> 2 {
        bits |= dscp(leaves >> 2);
    }
    let new = mark & !ALL | bits;
    (new != mark).then_some(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changes_is_marked_and_foreign_bits_stay() {
        // ECT(0) becomes CE; AF11 (10) becomes AF12 (12); then both at once.
        assert_eq!(of(0x2a, 2, 3), Some(0x8000_002a));
        assert_eq!(of(0x2a, 10 << 2 | 2, 12 << 2 | 2), Some(0x4c00_002a));
        assert_eq!(of(0, 10 << 2 | 1, 63 << 2 | 3), Some(0xff00_0000));
        // DSCP 0 is a value too.
        assert_eq!(of(7, 46 << 2, 0), Some(0x4000_0007));
        assert_eq!(of(0x2a, 3, 3), None);
        assert_eq!(of(0x00ff_ffff, 0, 0), None);
        // Bits on arrival that look like altq's are cleared.
        assert_eq!(of(0x8000_0001, 0, 0), Some(1));
    }
}
