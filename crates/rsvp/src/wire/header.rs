//! The common header (RFC 2205 3.1.1) and the checksum.

use super::bytes::Reader;
use super::error::{Fault, WireError};

/// Bytes of the common header.
pub const HEADER: usize = 8;

/// Message types. 1 to 7: RFC 2205 3.1.1. 25 and 26: RFC 3097, which moved those of RFC 2747.
pub mod kind {
    /// Path.
    pub const PATH: u8 = 1;
    /// Resv.
    pub const RESV: u8 = 2;
    /// PathErr.
    pub const PATH_ERR: u8 = 3;
    /// ResvErr.
    pub const RESV_ERR: u8 = 4;
    /// PathTear.
    pub const PATH_TEAR: u8 = 5;
    /// ResvTear.
    pub const RESV_TEAR: u8 = 6;
    /// ResvConf.
    pub const RESV_CONF: u8 = 7;
    /// Integrity challenge.
    pub const CHALLENGE: u8 = 25;
    /// Integrity response.
    pub const RESPONSE: u8 = 26;
}

/// The common header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Flags, 4 bits. Flag 1 is "refresh reduction capable" (RFC 2961 2); others are not defined.
    pub flags: u8,
    /// The message type ([`kind`]).
    pub kind: u8,
    /// The checksum; 0 if the sender computed none.
    pub checksum: u16,
    /// The IP TTL with which the message was sent. It shows hops that do not speak RSVP.
    pub send_ttl: u8,
}

impl Header {
    /// The header of a datagram. Version and length are checked, the checksum is not.
    ///
    /// # Errors
    /// The datagram is shorter than a header, of another version, or not as long as it says.
    pub fn read(datagram: &[u8]) -> Result<Header, WireError> {
        let mut reader = Reader::new(datagram, 0);
        let first = reader.u8("the header")?;
        if first >> 4 != 1 {
            return Err(WireError::new(0, Fault::Version(first >> 4)));
        }
        let kind = reader.u8("the header")?;
        let checksum = reader.u16("the header")?;
        let send_ttl = reader.u8("the header")?;
        let _reserved = reader.u8("the header")?;
        let said = usize::from(reader.u16("the header")?);
        if said != datagram.len() {
            return Err(WireError::new(6, Fault::Length { said, have: datagram.len() }));
        }
        Ok(Header { flags: first & 0x0f, kind, checksum, send_ttl })
    }
}

/// The sum of 16-bit words in one's complement (RFC 1071 1) over the whole message, without a
/// pseudo header (RFC 2205 3.1.1). A last odd byte is the upper half of a word.
fn sum(message: &[u8]) -> u16 {
    let mut sum: u64 = 0;
    for pair in message.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u64::from(u16::from_be_bytes([pair[0], low]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // At most 0xffff after the loop.
    sum as u16
}

/// Whether the checksum of a message is right, or absent (RFC 2205 3.1.1: all zero means that none
/// was computed).
pub fn checksum_holds(message: &[u8]) -> bool {
    match message.get(2..4) {
        Some([0, 0]) => true,
        Some(_) => sum(message) == 0xffff,
        None => false,
    }
}

/// Writes the checksum into a message. Messages shorter than a header are left alone.
pub fn set_checksum(message: &mut [u8]) {
    if message.len() < HEADER {
        return;
    }
    message[2..4].fill(0);
    // A sum whose complement is zero would say that there is no checksum. 0xffff is the same number
    // in one's complement.
    let checksum = match !sum(message) {
        0 => 0xffff,
        checksum => checksum,
    };
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
}
