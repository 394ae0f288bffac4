//! Reading and writing of numbers in network order. A reader never reads beyond its slice, and says
//! where in the message it stands.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::error::{Fault, WireError};

/// Reads a part of a message from its beginning to its end.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    /// Where in the message `rest` begins.
    at: usize,
}

impl<'a> Reader<'a> {
    /// A reader of `bytes`, which begin at byte `at` of the message.
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> Reader<'a> {
        Reader { rest: bytes, at }
    }

    /// Where in the message the reader stands.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Bytes that are left.
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    /// The next `count` bytes, which are part of `what`.
    pub(crate) fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], WireError> {
        let rest: &'a [u8] = self.rest;
        match rest.split_at_checked(count) {
            Some((head, tail)) => {
                self.rest = tail;
                self.at += count;
                Ok(head)
            }
            None => Err(WireError::new(self.at, Fault::Short { what, need: count, have: rest.len() })),
        }
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], WireError> {
        let bytes = self.take(N, what)?;
        let mut array = [0; N];
        array.copy_from_slice(bytes);
        Ok(array)
    }

    /// The next byte.
    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, WireError> {
        Ok(self.array::<1>(what)?[0])
    }

    /// The next two bytes.
    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16, WireError> {
        Ok(u16::from_be_bytes(self.array(what)?))
    }

    /// The next four bytes.
    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, WireError> {
        Ok(u32::from_be_bytes(self.array(what)?))
    }

    /// The next four bytes as an IEEE 754 single.
    pub(crate) fn f32(&mut self, what: &'static str) -> Result<f32, WireError> {
        Ok(f32::from_be_bytes(self.array(what)?))
    }

    /// The next six bytes.
    pub(crate) fn u48(&mut self, what: &'static str) -> Result<u64, WireError> {
        let high = u64::from(self.u16(what)?);
        let low = u64::from(self.u32(what)?);
        Ok((high << 32) | low)
    }

    /// The next eight bytes.
    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, WireError> {
        Ok(u64::from_be_bytes(self.array(what)?))
    }

    /// An address of 16 bytes if `v6`, else of 4.
    pub(crate) fn address(&mut self, v6: bool, what: &'static str) -> Result<IpAddr, WireError> {
        if v6 {
            Ok(IpAddr::V6(Ipv6Addr::from(self.array::<16>(what)?)))
        } else {
            Ok(IpAddr::V4(Ipv4Addr::from(self.array::<4>(what)?)))
        }
    }
}

/// Writes a message.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    /// What is written so far.
    pub(crate) bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn f32(&mut self, value: f32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// The lower six bytes of `value`.
    pub(crate) fn u48(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_be_bytes()[2..]);
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(v4) => self.bytes.extend_from_slice(&v4.octets()),
            IpAddr::V6(v6) => self.bytes.extend_from_slice(&v6.octets()),
        }
    }

    pub(crate) fn slice(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// An object: its header, then what `body` writes, then zeros up to a multiple of 4 bytes. The
    /// length is right unless the object has 64 KiB or more, which `encode` refuses for the whole
    /// message.
    pub(crate) fn object(&mut self, class: u8, ctype: u8, body: impl FnOnce(&mut Writer)) {
        let start = self.bytes.len();
        self.u16(0);
        self.u8(class);
        self.u8(ctype);
        body(self);
        while !(self.bytes.len() - start).is_multiple_of(4) {
            self.u8(0);
        }
        let length = u16::try_from(self.bytes.len() - start).unwrap_or(u16::MAX);
        self.bytes[start..start + 2].copy_from_slice(&length.to_be_bytes());
    }
}
