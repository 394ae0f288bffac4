//! What is wrong with a message, and where.

use thiserror::Error;

/// A message that is not RSVP as RFC 2205 has it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("byte {at}: {fault}")]
pub struct WireError {
    /// Where the fault is, in bytes from the beginning of the RSVP header.
    pub at: usize,
    /// What is wrong there.
    pub fault: Fault,
}

/// A fault of a message. Names of objects are those of RFC 2205 3.1.2. No byte of the message is
/// quoted beyond the numbers that are named.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    /// Fewer bytes than the format needs.
    #[error("{what} needs {need} bytes, {have} are left")]
    Short {
        /// What is being read.
        what: &'static str,
        /// Bytes that it needs.
        need: usize,
        /// Bytes that are left.
        have: usize,
    },
    /// Not version 1.
    #[error("version {0} instead of 1")]
    Version(u8),
    /// Header and datagram differ in length.
    #[error("the header says {said} bytes, the datagram has {have}")]
    Length {
        /// The length in the header.
        said: usize,
        /// The length of the datagram.
        have: usize,
    },
    /// The checksum is wrong (RFC 2205 3.1.1).
    #[error("wrong checksum")]
    Checksum,
    /// A message type that this crate does not know.
    #[error("unknown message type {0}")]
    Type(u8),
    /// An object whose length is no multiple of 4, or less than 4 (RFC 2205 3.1.2).
    #[error("an object of {0} bytes; objects have a multiple of 4 bytes, at least 4")]
    ObjectLength(usize),
    /// An object whose body has another length than its C-type says.
    #[error("the body of {what} has {have} bytes instead of {need}")]
    Size {
        /// The object.
        what: &'static str,
        /// Bytes that the C-type needs.
        need: usize,
        /// Bytes that are there.
        have: usize,
    },
    /// A class that must be understood and is not (RFC 2205 3.10).
    #[error("unknown object class {class}, C-type {ctype}")]
    UnknownClass {
        /// The class.
        class: u8,
        /// Its C-type.
        ctype: u8,
    },
    /// A C-type of a known class that is not understood (RFC 2205 3.10).
    #[error("unknown C-type {ctype} of object class {class}")]
    UnknownType {
        /// The class.
        class: u8,
        /// Its C-type.
        ctype: u8,
    },
    /// A style that RFC 2205 does not have.
    #[error("an unknown style")]
    UnknownStyle,
    /// A required object is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// An object stands twice where it may stand once.
    #[error("a second {0}")]
    Twice(&'static str),
    /// An object stands where it may not.
    #[error("{0} does not belong here")]
    Misplaced(&'static str),
    /// A field has a value that it may not have.
    #[error("{0}")]
    Value(&'static str),
    /// More objects than are read.
    #[error("more than {0} objects")]
    Many(usize),
    /// IPv4 and IPv6 addresses in one message.
    #[error("IPv4 and IPv6 addresses in one message")]
    Families,
}

impl WireError {
    /// A fault at byte `at`.
    pub(crate) fn new(at: usize, fault: Fault) -> WireError {
        WireError { at, fault }
    }
}
