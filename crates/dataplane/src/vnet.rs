//! The virtio network header before a frame: which checksum and segmentation are left to the
//! device.
//!
//! With PACKET_VNET_HDR a packet socket receives and sends TCP and UDP super-packets whole, and
//! frames whose checksum is left to the device (virtio 1.2, section 5.1.6).

/// The header's length on packet sockets, in bytes.
pub const LEN: usize = 10;

/// Flag: the checksum over the bytes from `csum_start` on must be written at
/// `csum_start + csum_offset`. Until then the field holds the pseudo-header's sum.
pub const NEEDS_CSUM: u8 = 1;

/// Not a super-packet.
pub const GSO_NONE: u8 = 0;
/// TCP over IPv4.
pub const GSO_TCPV4: u8 = 1;
/// TCP over IPv6.
pub const GSO_TCPV6: u8 = 4;
/// UDP over either IP version; every segment is a datagram.
pub const GSO_UDP_L4: u8 = 5;
/// Set in `gso_type` if the first segment has CWR (RFC 3168 6.1.2).
pub const GSO_ECN: u8 = 0x80;

/// The header's fields. They come from outside: check a field before using it as an offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vnet {
    /// [`NEEDS_CSUM`] and others.
    pub flags: u8,
    /// The kind of super-packet: one of the `GSO_` types, possibly with [`GSO_ECN`].
    pub gso_type: u8,
    /// Bytes of all headers together; may be wrong, or 0.
    pub hdr_len: u16,
    /// Payload bytes of a segment.
    pub gso_size: u16,
    /// Where the checksum begins, from the frame's first byte.
    pub csum_start: u16,
    /// Where the checksum is written, counted from `csum_start`.
    pub csum_offset: u16,
}

impl Vnet {
    /// Reads a header. Packet sockets use the legacy form, in the machine's byte order.
    pub fn read(bytes: &[u8; LEN]) -> Vnet {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Vnet {
            flags: bytes[0],
            gso_type: bytes[1],
            hdr_len: word(2),
            gso_size: word(4),
            csum_start: word(6),
            csum_offset: word(8),
        }
    }

    /// The header's bytes.
    pub fn write(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        (bytes[0], bytes[1]) = (self.flags, self.gso_type);
        for (at, word) in [(2, self.hdr_len), (4, self.gso_size), (6, self.csum_start), (8, self.csum_offset)] {
            bytes[at..at + 2].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// The kind of super-packet, without [`GSO_ECN`].
    pub fn kind(&self) -> u8 {
        self.gso_type & !GSO_ECN
    }

    /// Adjusts the offsets after `bytes` bytes were inserted before the network header.
    pub fn shift(&mut self, bytes: u16) {
        self.each_offset(|offset| offset.saturating_add(bytes));
    }

    /// Adjusts the offsets after `bytes` bytes were removed before the network header.
    pub fn shift_back(&mut self, bytes: u16) {
        self.each_offset(|offset| offset.saturating_sub(bytes));
    }

    fn each_offset(&mut self, moved: impl Fn(u16) -> u16) {
        if self.flags & NEEDS_CSUM != 0 {
            self.csum_start = moved(self.csum_start);
        }
        if self.hdr_len != 0 {
            self.hdr_len = moved(self.hdr_len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_where_virtio_puts_them() {
        // virtio 1.2, 5.1.6: u8 flags, u8 gso_type, u16 hdr_len, gso_size, csum_start, csum_offset.
        let mut bytes = [1, 0x81, 0, 0, 0, 0, 0, 0, 0, 0];
        for (at, word) in [(2, 66u16), (4, 1448), (6, 34), (8, 16)] {
            bytes[at..at + 2].copy_from_slice(&word.to_ne_bytes());
        }
        let vnet = Vnet::read(&bytes);
        assert_eq!(
            vnet,
            Vnet { flags: 1, gso_type: 0x81, hdr_len: 66, gso_size: 1448, csum_start: 34, csum_offset: 16 }
        );
        assert_eq!((vnet.kind(), vnet.write()), (GSO_TCPV4, bytes));
    }
}
